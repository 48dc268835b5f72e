"""What each kind of record of a run costs: how many there are, on disk, and in bytes of tensors that were read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msprobe.cli.layout import aligned, shown_size

if TYPE_CHECKING:
    from msprobe.core.run.reader import RankRun, Run

#: Files that hold records.
_OF_RECORDS = ("records", "values", "counts", "checksums")


def kind_lines(run: Run) -> Iterator[str]:
    """Gives a table: kind of record, records, sites, share of the records' bytes on disk, tensor bytes a step."""
    from msprobe.core.sites import Direction, Role

    counts: dict[tuple[int, int], list[int]] = {}
    for rank in run.ranks:
        for code, found in _counted(run.rank(rank), len(Role)).items():
            count = counts.setdefault(divmod(code, len(Role)), [0, 0, 0])
            counts[divmod(code, len(Role))] = [a + b for a, b in zip(count, found, strict=True)]
    sizes = run.sizes()
    each = sum(sizes.get(name, 0) for name in _OF_RECORDS) / max(1, run.num_records)
    steps = max(1, len(run.steps)) * len(run.ranks)
    rows: list[tuple[str, ...]] = [("KIND", "RECORDS", "SITES", "ON DISK", "READ PER STEP")]
    for (direction, role), (records, sites, read) in sorted(counts.items()):
        kind = f"{tuple(Direction)[direction].value} {tuple(Role)[role].value}"
        rows.append((kind, f"{records:,}", f"{sites:,}", shown_size(int(records * each)), shown_size(read // steps)))
    yield ""
    yield from ("  " + line for line in aligned(rows, right=(1, 2, 3, 4)))


def _counted(rank: RankRun, roles: int) -> dict[int, list[int]]:
    """Gives records, sites and bytes of tensors by code of direction and role."""
    import numpy as np

    from msprobe.core.dtypes import FORMATS

    records: Any = rank.records
    sites = records["site"]
    codes = rank.sites.direction.astype(int) * roles + rank.sites.role
    widths = [FORMATS[form.dtype].bits // 8 if form.dtype in FORMATS else 0 for form in rank.forms]
    nbytes = np.array([np.prod(f.shape, dtype=float) * w for f, w in zip(rank.forms, widths, strict=True)] or [0.0])
    of_record = codes[sites]
    seen = np.bincount(sites, minlength=len(codes)) > 0
    found = {}
    for code in np.unique(of_record).tolist():
        mine = of_record == code
        read = int(nbytes[records["form"][mine]].sum())
        found[code] = [int(mine.sum()), int(np.sum(seen & (codes == code))), read]
    return found
