"""What the trend page asks for: the catalogue of a run, pictures as binary arrays, anomalies, where two runs part."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.errors import MsprobeError
from msprobe.core.scan.scanning import scan
from msprobe.core.trend.anomalies import Anomaly, anomalies
from msprobe.core.trend.forks import forks
from msprobe.core.trend.index import Query, open_index
from msprobe.core.trend.kinds import KINDS
from msprobe.core.trend.places import coordinates
from msprobe.core.trend.slices import STATISTICS
from msprobe.core.trend.states import NON_FINITE, State
from msprobe.visualizers.rows import encode
from msprobe.visualizers.web.graph_view import number, strict
from msprobe.visualizers.wording import printable

if TYPE_CHECKING:
    from msprobe.core.scan.findings import Scan
    from msprobe.core.trend.index import TrendIndex
    from msprobe.core.trend.slices import Slice

#: The largest picture that is sent, in pixels a side.
_MOST_PIXELS = 4096

#: How many sites with NaN or Inf are listed, before the anomalies.
_MOST_NON_FINITE = 12

#: How states are called on the page.
STATE_NAMES = {State.NEG_INF: "-Inf", State.POS_INF: "+Inf", State.NAN: "NaN carried", State.NAN_MADE: "NaN made here"}

#: How many anomalies and forks are listed.
_MOST_LISTED = 200


class Trends:
    """The trends of the runs that are open; an index is made when it is first asked for."""

    def __init__(self, runs: Sequence[Path]) -> None:
        self.runs = tuple(runs)
        self._lock = threading.Lock()
        self._indexes: dict[int, TrendIndex] = {}
        self._anomalies: dict[int, list[Anomaly]] = {}
        self._scans: dict[int, Scan] = {}

    def index(self, run: int, *, refresh: bool = False) -> TrendIndex:
        """Gives the index of one run, brought up to date when it is first opened or asked to."""
        if not 0 <= run < len(self.runs):
            raise MsprobeError(f"there is no run {run}.")
        with self._lock:
            if refresh or run not in self._indexes:
                self._indexes[run] = open_index(self.runs[run])
                self._anomalies.pop(run, None)
                self._scans.pop(run, None)
            return self._indexes[run]

    def about(self, run: int, *, refresh: bool = False) -> dict[str, Any]:
        """Gives what there is to look at: kinds of metric, statistics, steps, ranks with their places, sites."""
        index = self.index(run, refresh=refresh)
        sites = index.sites
        order = sites.order
        nodes, codes = encode(sites["node"])
        labels, label_codes = encode(np.array([_label(sites, site) for site in range(len(sites))], dtype=object))
        classes, class_codes = encode(sites["class_name"])
        present = np.unique(sites["kind"])
        return {
            "runs": [str(path) for path in self.runs],
            "kinds": [{"name": KINDS[kind], "number": int(kind)} for kind in present.tolist()],
            "statistics": list(STATISTICS),
            "steps": index.steps.tolist(),
            "ranks": [{"rank": int(rank), "mesh": _mesh(index, int(rank))} for rank in index.ranks],
            "nodes": [printable(node) or "(root)" for node in nodes],
            "labels": [printable(label) for label in labels],
            "classes": [printable(name) for name in classes],
            # Columns by site, in order of execution; "site" holds the numbers to ask with.
            "sites": {
                "site": order.tolist(),
                "node": codes[order].tolist(),
                "label": label_codes[order].tolist(),
                "class": class_codes[order].tolist(),
                "kind": sites["kind"][order].tolist(),
                "layer": sites["layer"][order].tolist(),
            },
        }

    def picture(self, run: int, asked: Mapping[str, str]) -> bytes:
        """Gives a slice: length of the header, the header as JSON, float32 values, uint8 states, row by row."""
        found = self.index(run).slice(_query(asked))
        return packed(found)

    def listed(self, run: int) -> dict[str, Any]:
        """Gives the worst anomalies, most extreme first."""
        index = self.index(run)
        with self._lock:
            if run not in self._anomalies:
                self._anomalies[run] = anomalies(index)
            found = self._anomalies[run]
        odd = _non_finite(index)
        listed = [*odd[:_MOST_NON_FINITE], *(_anomaly(index, each) for each in found[:_MOST_LISTED])]
        return {"total": len(odd) + len(found), "anomalies": listed}

    def scanned(self, run: int) -> dict[str, Any]:
        """Gives what a scan of the run says, its findings with the number of the site that each is about."""
        index = self.index(run)
        with self._lock:
            if run not in self._scans:
                self._scans[run] = scan(index.run)
        found: dict[str, Any] = self._scans[run].to_json()
        numbers = {index.sites.name(site): site for site in range(len(index.sites))}
        for finding in found["findings"]:
            site = numbers.get(finding["site"], -1)
            finding["number"] = site
            finding["metric"] = KINDS[int(index.sites["kind"][site])] if site >= 0 else ""
        found["findings"] = found["findings"][:_MOST_LISTED]
        shown: dict[str, Any] = strict(found)
        return shown

    def parting(self) -> dict[str, Any]:
        """Gives the sites that leave the reference's band, the earliest first."""
        candidate, reference = self.index(0), self.index(1)
        found = forks(candidate, reference)
        return {
            "total": len(found),
            "forks": [
                {
                    "site": fork.candidate_site,
                    "name": printable(candidate.sites.name(fork.candidate_site)),
                    "step": fork.step,
                    "from_step": fork.from_step,
                    "candidate": number(fork.candidate),
                    "reference": number(fork.reference),
                    "allowed": number(fork.allowed),
                }
                for fork in found[:_MOST_LISTED]
            ],
        }


def packed(found: Slice) -> bytes:
    """Packs a slice; the values start at a multiple of four bytes."""
    header = {
        name: {"name": axis.name, "starts": axis.values[axis.starts].tolist(), "count": len(axis.values)}
        for name, axis in (("x", found.x), ("y", found.y))
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 4)
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(found.values, dtype="<f4")
    return b"".join((np.uint32(len(text)).tobytes(), text, values.tobytes(), found.states.tobytes()))


def _query(asked: Mapping[str, str]) -> Query:
    steps = [int(part) for part in asked.get("steps", "").split("-") if part]
    return Query(
        x=asked.get("x", "step"),
        y=asked.get("y", "site"),
        statistic=asked.get("statistic", "norm"),
        fixed=_optional(asked.get("fixed", "")),
        kind=asked.get("kind") or None,
        sites=_numbers(asked.get("sites", "")),
        steps=(steps[0], steps[1]) if len(steps) == 2 else None,
        ranks=_numbers(asked.get("ranks", "")),
        micro_step=_optional(asked.get("micro_step", "")),
        width=min(_MOST_PIXELS, int(asked.get("width", "1000"))),
        height=min(_MOST_PIXELS, int(asked.get("height", "1000"))),
    )


def _optional(text: str) -> int | None:
    return int(text) if text else None


def _numbers(text: str) -> list[int] | None:
    return [int(part) for part in text.split(",")] if text else None


def _mesh(index: TrendIndex, rank: int) -> dict[str, int]:
    return coordinates(index.run.rank(rank).info.mesh) if rank in index.run.ranks else {}


def _label(sites: Any, site: int) -> str:
    """Gives the name of a site inside its node."""
    if sites["node"][site] == "" and sites["direction"][site] == "scalar":
        return str(sites["argument"][site])
    call = int(sites["call"][site])
    name = f"{sites['direction'][site]} {sites['role'][site]} {sites['argument'][site]}".rstrip()
    return f"{name} #{call}" if call else name


def _non_finite(index: TrendIndex) -> list[dict[str, Any]]:
    """Gives the steps at which sites begin to hold NaN or Inf, each by the first of them in order of execution.

    Of the first few the ranks are told, too.
    """
    found = index.slice(Query("step", "site"))
    steps, sites = found.x.values, found.y.values
    bad = found.states >= NON_FINITE
    rows = np.flatnonzero(bad.any(axis=1))
    first = np.argmax(bad[rows], axis=1)
    listed: list[dict[str, Any]] = []
    begins, sites_of_step = np.unique(first, return_counts=True)
    for begin, together in zip(begins.tolist(), sites_of_step.tolist(), strict=True):
        # Of what begins at one step, the first in order of execution leads to the cause.
        place = int(np.argmax(first == begin))
        site, step = int(sites[rows[place]]), int(steps[first[place]])
        state = STATE_NAMES[State(found.states[rows[place], first[place]])]
        ranks = _bad_ranks(index, site, step) if len(listed) < _MOST_NON_FINITE else []
        listed.append(
            {
                "site": site,
                "name": printable(index.sites.name(site)),
                "node": printable(str(index.sites["node"][site])),
                "kind": KINDS[int(index.sites["kind"][site])],
                "step": step,
                "rank": ranks[0] if ranks else -1,
                "ranks": ranks,
                "statistic": "norm",
                "state": state,
                "more": together - 1,
            }
        )
    return listed


def _bad_ranks(index: TrendIndex, site: int, step: int) -> list[int]:
    found = index.slice(Query("rank", "site", fixed=step, sites=[site]))
    return [int(rank) for rank in found.x.values[found.states[0] >= NON_FINITE]]


def _anomaly(index: TrendIndex, each: Anomaly) -> dict[str, Any]:
    sites = index.sites
    return {
        "site": each.site,
        "name": printable(sites.name(each.site)),
        "node": printable(str(sites["node"][each.site])),
        "kind": KINDS[int(sites["kind"][each.site])],
        "step": each.step,
        "rank": each.rank,
        "statistic": each.statistic,
        "value": number(each.value),
        "low": number(each.low),
        "high": number(each.high),
        "score": number(each.score) if not math.isinf(each.score) else ("+Inf" if each.score > 0 else "-Inf"),
        "against": each.against,
    }
