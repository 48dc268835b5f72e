"""``msprobe map``: proposes a mapping file for two runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from msprobe.cli.parsing import Parser, UsageError

_DESCRIPTION = """\
Propose which module of one run is which of the other, as a mapping file for `compare --mapping`.
Modules are recognised by the content of their parameters (also fused, interleaved and transposed
ones), names, shapes, class and order of execution. `msprobe compare` does the same by itself; the
file is for reading, correcting and keeping."""

_EXAMPLES = """\
  msprobe map runs/megatron runs/huggingface                  # show it
  msprobe map runs/megatron runs/huggingface -o layers.yaml   # write it
  msprobe compare runs/megatron runs/huggingface --mapping layers.yaml
"""


def parser() -> Parser:
    """Gives the command's parser."""
    made = Parser("map", usage="CANDIDATE REFERENCE [-o FILE]", description=_DESCRIPTION, examples=_EXAMPLES)
    made.add_argument("candidate", type=Path, metavar="CANDIDATE", help="the run in doubt")
    made.add_argument("reference", type=Path, metavar="REFERENCE", help="the run that is trusted")
    made.add_argument(
        "-o", "--out", type=Path, metavar="FILE", help="write the mapping here (.yaml) instead of showing it"
    )
    made.add_argument("--force", action="store_true", help="replace the file if it is there")
    return made


def run(arguments: argparse.Namespace) -> int:
    """Writes or shows the mapping."""
    out: Path | None = arguments.out
    if out is not None and out.suffix not in (".yaml", ".yml"):
        raise UsageError(f"{out}: a mapping file's name ends in .yaml.")
    if out is not None and out.exists() and not arguments.force:
        raise UsageError(f"{out} is there already; --force replaces it.")
    from msprobe.comparing import ready_mappings
    from msprobe.core.mapping_runs import propose_text
    from msprobe.core.matching.mapping import Mapping

    known = Mapping((), "").with_ready(ready_mappings())
    proposal, text = propose_text(arguments.candidate, arguments.reference, mapping=known)
    if out is None:
        print(text, end="")
        return 0
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    left = len(proposal.left_candidate), len(proposal.left_reference)
    print(f"{out}: {len(proposal.rules)} rules; {proposal.paired} of {proposal.modules} modules have a partner")
    if any(left):
        print(f"without one: {left[0]} of the candidate, {left[1]} of the reference (named at the end of the file)")
    return 0
