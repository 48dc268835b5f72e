"""What is to be known of each rank's recording besides its numbers: place, restarts, last step, losses, events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from msprobe.core.run.reader import RankRun

#: Events of one kind that are kept of a rank, with their texts.
_MOST_EVENTS: Final = 20
#: Files that grow when a rank has recorded something.
_GROWING: Final = ("commits-*", "events-*", "segment-*")


@dataclass(frozen=True, slots=True)
class Circumstances:
    """One rank's recording. ``steps_begun`` is the first step of each (re)start; -1 for one that wrote nothing."""

    rank: int
    world_size: int
    mesh: Mapping[str, list[int]]
    host: str
    device: str
    steps_begun: tuple[int, ...]
    first_step: int
    last_step: int
    records: int
    superseded: int
    torn_batches: int
    uncommitted_bytes: int
    #: Seconds since 1970 by the rank's own clock.
    started: float
    last_commit: float
    #: Whether the (re)starts were made by one and the same command line.
    one_command: bool
    #: By kind: how many, and for some of them (step, node, message).
    events: Mapping[str, int] = field(default_factory=dict)
    event_texts: Mapping[str, list[list[Any]]] = field(default_factory=dict)

    @property
    def starts(self) -> int:
        """How often the rank was started."""
        return len(self.steps_begun)


def circumstances_of(number: int, rank: RankRun) -> Circumstances:
    """Collects the circumstances of a rank."""
    info, headers, starts = rank.info, rank.headers, rank.starts
    events: dict[str, int] = {}
    texts: dict[str, list[list[Any]]] = {}
    for event in rank.events:
        events[event.kind] = events.get(event.kind, 0) + event.count
        listed = texts.setdefault(event.kind, [])
        if len(listed) < _MOST_EVENTS:
            listed.append([event.step, event.node, event.message])
    steps = rank.steps
    return Circumstances(
        rank=number, world_size=info.world_size, mesh={axis: _place(at) for axis, at in info.mesh.items()},
        host=info.host, device=info.device, steps_begun=tuple(step for step, _ in starts),
        first_step=steps[0] if steps else -1, last_step=steps[-1] if steps else -1, records=rank.num_records,
        superseded=rank.num_superseded, torn_batches=rank.torn_batches, uncommitted_bytes=rank.uncommitted_bytes,
        started=starts[0][1], last_commit=rank.last_commit, one_command=len({h.arguments for h in headers}) == 1,
        events=events, event_texts=texts,
    )  # fmt: skip


def _place(at: Any) -> list[int]:
    return [int(at)] if isinstance(at, int) else [int(part) for part in at]


def signature_of(folder: Path) -> int:
    """Gives a number that changes when the rank has recorded more: the sum of the sizes of the files that grow."""
    return sum(path.stat().st_size + 1 for pattern in _GROWING for path in folder.glob(pattern))


def from_json(content: Mapping[str, Any]) -> Circumstances:
    """Makes circumstances of what ``dataclasses.asdict`` and JSON left of them."""
    return Circumstances(**{**content, "steps_begun": tuple(content["steps_begun"])})
