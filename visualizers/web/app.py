"""The web application: answers the pages from tables. No address names a file, no answer is markup."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from msprobe.core.errors import MsprobeError
from msprobe.visualizers.marks import MARKS
from msprobe.visualizers.web import graph_view, hand
from msprobe.visualizers.web.panel import panel
from msprobe.visualizers.web.security import Guard
from msprobe.visualizers.web.selection import Selection
from msprobe.visualizers.web.suggesting import suggest
from msprobe.visualizers.wording import printable

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from msprobe.visualizers.web.workspace import View, Workspace

#: Where the build puts the pages.
PAGES = Path(__file__).parent / "pages"

#: How many containers one request may open.
_MOST_OPENED = 400

#: How many nodes without a partner are listed.
_MOST_UNMATCHED = 1000

#: Bytes of the longest question.
_MOST_ASKED = 100_000

#: Height of the largest minimap.
_MOST_PIXELS = 4000

_VERDICTS = frozenset(mark.verdict for mark in MARKS)


class BadRequestError(MsprobeError):
    """The browser asked for something that is not there."""


def make_app(workspace: Workspace, token: str, hosts: tuple[str, ...]) -> ASGIApp:
    """Gives the guarded application."""
    answers: dict[str, Callable[[Request, View], Any]] = {
        "overview": _overview,
        "rows": _rows,
        "node": _node,
        "way": _way,
        "search": _search,
        "minimap": _minimap,
        "unmatched": _unmatched,
    }
    routes: list[Any] = [Route(f"/api/{name}", _route(workspace, answer)) for name, answer in answers.items()]
    routes += [Route(f"/api/{name}", endpoint) for name, endpoint in _trend_routes(workspace).items()]
    routes.append(Route("/api/hand/{what}", _hand(workspace), methods=["POST"]))
    routes.append(Mount("/", StaticFiles(directory=PAGES, html=True)))
    app = Starlette(routes=routes, exception_handlers={MsprobeError: _say, ValueError: _say, Exception: _own_fault})
    return Guard(app, token, hosts)


def _route(workspace: Workspace, answer: Callable[[Request, View], Any]) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        view = workspace.view(request.query_params.get("session", ""))
        return JSONResponse(await run_in_threadpool(answer, request, view))

    return endpoint


def _own_fault(request: Request, error: Exception) -> Response:
    """Says that it is not the reader's fault; the traceback goes to the terminal."""
    name = type(error).__name__
    text = f"msprobe made a mistake: {name}: {error}. The terminal shows where; please report it."
    return PlainTextResponse(text, status_code=500)


def _trend_routes(workspace: Workspace) -> dict[str, Callable[[Request], Any]]:
    trends = workspace.trends

    async def pages(request: Request) -> Response:
        return JSONResponse({"pages": workspace.pages, "runs": [printable(str(path)) for path in trends.runs]})

    async def about(request: Request) -> Response:
        refresh = "refresh" in request.query_params
        return JSONResponse(await run_in_threadpool(trends.about, _run_of(request), refresh=refresh))

    async def picture(request: Request) -> Response:
        found = await run_in_threadpool(trends.picture, _run_of(request), request.query_params)
        return Response(found, media_type="application/octet-stream")

    async def anomalies(request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(trends.listed, _run_of(request)))

    async def scanned(request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(trends.scanned, _run_of(request)))

    async def forks(request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(trends.parting))

    async def mapping(request: Request) -> Response:
        return JSONResponse(hand.state(workspace, request.query_params.get("session", "")))

    return {
        "mapping": mapping,
        "pages": pages,
        "scan": scanned,
        "trend": about,
        "slice": picture,
        "anomalies": anomalies,
        "forks": forks,
    }


def _hand(workspace: Workspace) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        body = await request.body()
        asked = json.loads(body) if len(body) <= _MOST_ASKED else None
        if not isinstance(asked, dict):
            raise BadRequestError("that is no question.")
        session, what = str(asked.get("session", ""))[:100], request.path_params["what"]
        return JSONResponse(await run_in_threadpool(hand.act, workspace, session, what, asked))

    return endpoint


def _run_of(request: Request) -> int:
    return int(request.query_params.get("run", "0"))


def _say(request: Request, error: Exception) -> Response:
    return PlainTextResponse(str(error), status_code=400)


# --- what is asked


def _overview(request: Request, view: View) -> Any:
    return view.overview


def _rows(request: Request, view: View) -> Any:
    chosen = _selection(request)
    opened = request.query_params.get("open", "0:0").split(",")[:_MOST_OPENED]
    return {pair: graph_view.open_container(view.index, chosen, *_pair(view, pair)) for pair in opened}


def _node(request: Request, view: View) -> Any:
    return panel(view.index, _selection(request), *_pair(view, request.query_params.get("node", "")))


def _way(request: Request, view: View) -> Any:
    side = "cr".find(request.query_params.get("side") or "?")
    asked = request.query_params
    node = view.index.trees[max(side, 0)].number_of.get(asked["path"], 0) if "path" in asked else int(asked["node"])
    if side < 0 or not 0 < node < len(view.index.trees[side]):
        raise BadRequestError("there is no such node.")
    partners = view.index.partners[side].get(node, [])
    pair = [node, partners[0] if partners else -1]
    return {"way": graph_view.way_to(view.index, side, node), "pair": pair if side == 0 else pair[::-1]}


def _search(request: Request, view: View) -> Any:
    return graph_view.search(view.index, _selection(request), request.query_params.get("text", "")[:200])


def _minimap(request: Request, view: View) -> Any:
    return graph_view.minimap(
        view.index, _selection(request), min(2000, int(request.query_params.get("pixels", "400")))
    )


def _unmatched(request: Request, view: View) -> Any:
    index, marks = view.index, view.index.marks(_selection(request))
    found: dict[str, list[dict[str, Any]]] = {}
    nodes_of = [graph_view.unmatched(index, which, _MOST_UNMATCHED) for which in (0, 1)]
    for (which, side), nodes in zip(enumerate("cr"), nodes_of, strict=True):
        found[side] = [
            {
                **graph_view.node_data(index, which, node, marks[which]),
                "path": graph_view.shown_path(index, which, node),
            }
            for node in nodes
        ]
    found["suggestions"] = [
        {"c": each.candidate, "r": each.reference, "signs": each.signs, "confidence": each.confidence}
        for each in suggest(index, *nodes_of)
    ]
    return found


def _selection(request: Request) -> Selection:
    asked = request.query_params
    numbers = {
        name: int(asked[name]) if asked.get(name, "") not in ("", "all") else None
        for name in ("step", "rank", "micro_step")
    }
    direction = asked.get("direction") or None
    if direction not in (None, "forward", "backward"):
        raise BadRequestError(f"no direction is called {direction!r}.")
    verdicts = frozenset(name for name in asked.get("verdicts", "").split(",") if name)
    if not verdicts <= _VERDICTS:
        raise BadRequestError(f"no verdict is called {sorted(verdicts - _VERDICTS)[0]!r}.")
    return Selection(
        **numbers,
        direction=direction,
        verdicts=verdicts,
        class_name=asked.get("class", ""),
        dtype=asked.get("dtype", ""),
    )


def _pair(view: View, text: str) -> tuple[int, int]:
    parts = text.split(":")
    if len(parts) != 2:
        raise BadRequestError(f"{text!r} is no pair of nodes.")
    candidate, reference = (int(part) for part in parts)
    for tree, node in zip(view.index.trees, (candidate, reference), strict=True):
        if not -1 <= node < len(tree):
            raise BadRequestError(f"there is no node {node}.")
    return candidate, reference
