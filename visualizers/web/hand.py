"""Answers what a reader does by hand: match, unmatch, undo, redo, look at the mapping file, save it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msprobe.visualizers.web.edits import Edit, EditError, generalise
from msprobe.visualizers.wording import printable

if TYPE_CHECKING:
    from msprobe.visualizers.web.selection import PairIndex
    from msprobe.visualizers.web.workspace import Workspace

#: How tensors of several nodes become one; ``layers.yaml`` knows more.
_COMBINES: Mapping[str, str] = {"concat": '{"concat": -1}', "concat-first": '{"concat": 0}'}


def state(workspace: Workspace, session: str) -> dict[str, Any]:
    """Gives what can be done, and the mapping file before and after the reader's edits."""
    edits = workspace.edits(session)
    return {
        "possible": workspace.can_match,
        "edits": len(edits.now),
        "undo": edits.done > 0,
        "redo": edits.done < len(edits.edits),
        "before": workspace.before() if workspace.can_match else "",
        "after": workspace.text(session) if workspace.can_match else "",
        "save_to": printable(str(workspace.save_to)) if workspace.save_to is not None else "",
    }


def act(workspace: Workspace, session: str, what: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Does one thing and gives the new state.

    Raises:
        MsprobeError: It cannot be done; nothing has changed.
    """
    edits, before = workspace.edits(session), workspace.view(session).index
    if what == "undo":
        workspace.change(session, edits.undone())
    elif what == "redo":
        workspace.change(session, edits.redone())
    elif what == "save":
        saved = workspace.save(session)
        return {**state(workspace, session), "saved": printable(str(saved))}
    elif what in ("match", "unmatch"):
        workspace.change(session, edits.added(_edit(before, what, asked)))
    else:
        raise EditError(f"nothing is called {what!r}.")
    after = workspace.view(session).index
    opened = asked.get("open")
    pairs = [str(pair) for pair in opened[:2000]] if isinstance(opened, list) else []
    return {
        **state(workspace, session),
        # Numbers of nodes hold for one comparison; what was open and selected is found again by its name.
        "open": [found for pair in pairs if (found := _again(pair, before, after))],
        "node": _again(str(asked.get("node", "")), before, after),
    }


def _again(pair: str, before: PairIndex, after: PairIndex) -> str:
    """Gives a pair of nodes by their new numbers; "" when neither is there any more."""
    try:
        candidate, reference = (int(part) for part in pair.split(":"))
    except ValueError:  # a fold: it closes
        return ""
    if candidate == reference == 0:
        return pair
    again = [_new_number(side, node, before, after) for side, node in enumerate((candidate, reference))]
    for side in (0, 1):
        if again[side] > 0:
            partners = after.partners[side].get(again[side], [])
            again[1 - side] = partners[0] if partners else -1
            return f"{again[0]}:{again[1]}"
    return ""


def _new_number(side: int, node: int, before: PairIndex, after: PairIndex) -> int:
    if not 0 < node < len(before.trees[side]):
        return -1
    return after.trees[side].number_of.get(before.trees[side].paths[node], -1)


def _edit(index: PairIndex, what: str, asked: Mapping[str, Any]) -> Edit:
    candidate = _paths(index, 0, asked.get("c"))
    reference = _paths(index, 1, asked.get("r"))
    if asked.get("alike", True):
        candidate, reference = generalise(candidate, reference)
    if what == "unmatch":
        if len(candidate) != 1 or len(reference) != 1:
            raise EditError("one node is unmatched from one other.")
        return Edit(candidate, reference, apart=True)
    if len(candidate) > 1 and len(reference) > 1:
        raise EditError("several nodes can be matched with one of the other side, not with several.")
    combine = str(asked.get("combine") or ("concat" if len(candidate) + len(reference) > 2 else ""))
    if combine and combine not in _COMBINES:
        raise EditError(f"no way to combine is called {combine!r}.")
    return Edit(candidate, reference, _COMBINES.get(combine, ""))


def _paths(index: PairIndex, side: int, nodes: Any) -> tuple[str, ...]:
    tree = index.trees[side]
    if not isinstance(nodes, list) or not nodes or not all(isinstance(n, int) and 0 < n < len(tree) for n in nodes):
        raise EditError("name the nodes of both sides.")
    paths = tuple(tree.paths[node] for node in sorted(nodes))
    for path in paths:
        if not path or "/" in path or "+" in path:
            raise EditError(f"{path or 'the root'!r} cannot be matched by hand; match the module.")
    return paths
