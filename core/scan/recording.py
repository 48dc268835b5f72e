"""What is to be said of the recording itself: restarts, ranks that died or never started, clocks, losses, events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from msprobe.core.scan.findings import spans

if TYPE_CHECKING:
    from msprobe.core.trend.circumstances import Circumstances

#: Seconds that the clocks of ranks may differ without a word.
_SKEW: Final = 60.0
#: Kinds of event that are told, each with its words.
_EVENTS: Final = {
    "scaler_skip": "the gradient scaler left updates out",
    "drop": "records or tensors were dropped",
    "gap": "there are gaps",
    "error": "recording failed at places",
    "altered": "recording changed how the program computes",
}


def recording_notes(ranks: Sequence[Circumstances]) -> list[str]:
    """Gives what a reader of the run must know, one sentence each, events and all."""
    return [*circumstance_notes(ranks), *_events(ranks)]


def circumstance_notes(ranks: Sequence[Circumstances]) -> list[str]:
    """Gives what is to be said of ranks, restarts, losses and clocks; one sentence each."""
    return [*_missing(ranks), *_ends(ranks), *_starts(ranks), *_losses(ranks), *_clocks(ranks)]


def _missing(ranks: Sequence[Circumstances]) -> Iterator[str]:
    sizes = Counter(each.world_size for each in ranks)
    world = max(sizes)
    if len(sizes) > 1:
        text = ", ".join(f"{size} by {count} rank{'s' if count > 1 else ''}" for size, count in sorted(sizes.items()))
        yield f"Ranks tell different numbers of ranks ({text}): two jobs may have been recorded into one directory."
    absent = sorted(set(range(world)) - {each.rank for each in ranks})
    if absent:
        yield f"{_begin(absent)} of {world} never wrote anything."
    silent = [each.rank for each in ranks if not each.records]
    if silent:
        yield f"{_begin(silent)} started and {'have' if len(silent) > 1 else 'has'} no record."


def _begin(ranks: list[int]) -> str:
    text = spans(ranks, "rank")
    return text[0].upper() + text[1:]


def _ends(ranks: Sequence[Circumstances]) -> Iterator[str]:
    lasts = {each.rank: each.last_step for each in ranks if each.records}
    if len(set(lasts.values())) < 2:
        return
    last = max(lasts.values())
    by_step: dict[int, list[int]] = {}
    for rank, step in lasts.items():
        by_step.setdefault(step, []).append(rank)
    early = [f"{spans(r, 'rank')} at step {step}" for step, r in sorted(by_step.items()) if step != last]
    more = f" and {len(early) - 4} other steps" if len(early) > 4 else ""
    yield f"Not all ranks end at step {last}: {'; '.join(early[:4])}{more}. They were killed, hang, or lag."


def _starts(ranks: Sequence[Circumstances]) -> Iterator[str]:
    again = [each for each in ranks if each.starts > 1]
    if not again:
        return
    superseded = sum(each.superseded for each in again)
    text = f"; {superseded:,} records of steps done again do not count" if superseded else ""
    times = max(each.starts for each in again)
    yield f"{_begin([e.rank for e in again])} {'were' if len(again) > 1 else 'was'} started {times} times{text}."
    anew = [e.rank for e in again if any(0 <= step <= e.steps_begun[0] for step in e.steps_begun[1:])]
    other = [e.rank for e in again if not e.one_command]
    if anew or other:
        what = "began at the first step again" if anew else "have another command line"
        yield f"The restarts {what}: two jobs may have been recorded into one directory; only the later one counts."


def _losses(ranks: Sequence[Circumstances]) -> Iterator[str]:
    torn = sum(each.torn_batches for each in ranks)
    if torn:
        yield f"{torn} batch{'es' if torn > 1 else ''} at the end of a file were torn by a crash and are left out."
    cut = [each.rank for each in ranks if each.uncommitted_bytes]
    if cut:
        verb = "were" if len(cut) > 1 else "was"
        yield f"{_begin(cut)} {verb} killed while writing: what was not committed is left out."


def _clocks(ranks: Sequence[Circumstances]) -> Iterator[str]:
    """Compares clocks by when ranks that end at one step committed it."""
    last = max(each.last_step for each in ranks)
    times = [each.last_commit for each in ranks if each.last_step == last and each.records]
    if len(times) > 1 and max(times) - min(times) > _SKEW:
        yield (
            f"By their clocks ranks ended step {last} up to {max(times) - min(times):,.0f} s apart: clocks differ, or "
            "ranks lag. Nothing here is ordered by time."
        )


def _events(ranks: Sequence[Circumstances]) -> Iterator[str]:
    for kind, words in _EVENTS.items():
        count = sum(each.events.get(kind, 0) for each in ranks)
        if not count:
            continue
        holders = [each for each in ranks if each.events.get(kind)]
        step, node, message = holders[0].event_texts[kind][0]
        place = f" at {node}" if node else ""
        where = spans([each.rank for each in holders], "rank")
        yield f"{words[0].upper()}{words[1:]} ({count:,}, {where}); first at step {step}{place}: {message}."
