"""``msprobe demo``: trainings with and without a bug, recorded, compared, and told as a story."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe.core.errors import MsprobeError

if TYPE_CHECKING:
    from msprobe.core.comparison import Comparison
    from msprobe.demo.trainings import Training

#: Marks a folder as the demo's own, so that a later demo may clear it.
_MARK = ".msprobe-demo"
#: At least this share must be judged for a pair to be called clean.
_MIN_JUDGED = 0.95


@dataclass(frozen=True, slots=True)
class Chapter:
    """One comparison of the story, and what it must end with: a first source, or none."""

    training: Training
    title: str
    first_source: str = ""


def run(out: Path, *, say: Callable[[str], None] = print) -> int:
    """Trains, records, compares and tells; returns 0 when every comparison says what it must.

    Raises:
        MsprobeError: torch or transformers is missing, or ``out`` holds something else.
    """
    started = time.monotonic()
    _check_requirements()
    _clear(out)
    os.environ["HF_HUB_OFFLINE"] = "1"
    say("Loading torch and transformers ...")
    from msprobe.demo import trainings

    say("Training a Qwen2 of 0.8 million parameters on the sources of Python's standard library ...")
    steps, first, last = trainings.warm_up(out / "weights.pt")
    say(f"  {steps} steps, loss {first:.2f} -> {last:.2f}; its weights are where all of the following start.\n")
    healthy = _record(trainings.Training("healthy"), out, say)
    right = [_tell(chapter, healthy, out, say) for chapter in _chapters()]
    _conclude(out, time.monotonic() - started, say)
    return 0 if all(right) else 1


def _chapters() -> tuple[Chapter, ...]:
    from msprobe.demo import trainings

    rope = trainings.Training("rope-in-bf16", trainings.rope_table_in_bf16)
    eps = trainings.Training("norm-eps", trainings.norm_with_default_eps)
    rounding = trainings.Training("other-rounding", threads=2, attention="sdpa")
    return (
        Chapter(rope, "A bug: the angles of the rotary embedding are computed in bf16", "model.rotary_emb"),
        Chapter(eps, "Another: the first norm has eps 1e-6 instead of 1e-5", trainings.NORM),
        Chapter(rounding, "No bug: two threads instead of one, and the fused attention kernel"),
    )


def _record(training: Training, out: Path, say: Callable[[str], None]) -> Path:
    from msprobe.demo import trainings

    run = out / "runs" / training.name
    losses = trainings.record(training, out / "weights.pt", run)
    say(f"  recorded {run}: losses {', '.join(f'{loss:.4f}' for loss in losses)}")
    return run


def _tell(chapter: Chapter, healthy: Path, out: Path, say: Callable[[str], None]) -> bool:
    """Records one training, compares it with the healthy one, and says whether the verdict is right."""
    import msprobe
    from msprobe.plugins import plugin_table

    say(f"\n--- {chapter.title} ---\n")
    candidate = _record(chapter.training, out, say)
    comparison = msprobe.compare(candidate, healthy)
    folder = out / "comparisons" / chapter.training.name
    comparison.save(folder)
    html = plugin_table().get("visualizers", "html")
    page = folder / html.file_name
    page.write_text(html.render(comparison), encoding="utf-8")
    say(f"  msprobe compare {candidate} {healthy}\n")
    say(replace(plugin_table().get("visualizers", "table"), limit=5).render(comparison))
    right = _is_right(chapter, comparison)
    say(_judgement(chapter, right=right))
    return right


def _is_right(chapter: Chapter, comparison: Comparison) -> bool:
    summary = comparison.summary
    if not chapter.first_source:
        return summary.exit_code == 0 and summary.coverage.judged_share >= _MIN_JUDGED
    return bool(summary.sources) and summary.sources[0].node == chapter.first_source


def _judgement(chapter: Chapter, *, right: bool) -> str:
    wanted = f"the first source is {chapter.first_source}" if chapter.first_source else "nothing but rounding"
    return f"As it should be: {wanted}." if right else f"WRONG: it should say that {wanted}. Please report this."


def _conclude(out: Path, seconds: float, say: Callable[[str], None]) -> None:
    runs, comparisons = out / "runs", out / "comparisons"
    say(f"\nDone in {seconds:.0f} s. What is left in {out}, and what to try next:\n")
    say(f"  msprobe compare {runs / 'rope-in-bf16'} {runs / 'healthy'}")
    say(f"  msprobe view {runs / 'rope-in-bf16'} {runs / 'healthy'} --open")
    say(f"  msprobe info {runs / 'healthy'}")
    say(f"  open {comparisons / 'rope-in-bf16' / 'report.html'}")


def _check_requirements() -> None:
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        raise MsprobeError(f"the demo needs {' and '.join(missing)}: {sys.executable} -m pip install 'msprobe[demo]'")


def _clear(out: Path) -> None:
    """Makes the folder, or empties it when an earlier demo made it."""
    if out.is_dir() and any(out.iterdir()):
        if not (out / _MARK).exists():
            raise MsprobeError(f"{out} is not empty and not from a demo. Choose another folder with --out.")
        shutil.rmtree(out)
    if out.exists() and not out.is_dir():
        raise MsprobeError(f"{out} is a file. Choose a folder with --out.")
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / _MARK).touch()
    except OSError as error:
        raise MsprobeError(f"{out}: cannot be written: {error.strerror}. Choose another folder with --out.") from error
