"""Records as tables for notebooks: names in place of numbers, then Arrow or pandas where installed."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from msprobe.core.errors import MsprobeError
from msprobe.core.sites import Direction, Role

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from msprobe.core.run.reader import RankRun

Table = dict[str, NDArray[Any]]


def named(rank: RankRun) -> Table:
    """Gives a rank's records with what site and form mean in front of the numbers."""
    records, sites, forms = rank.records, rank.sites, rank.forms
    site, form = records["site"], records["form"]
    table: Table = {name: records[name] for name in ("step", "micro_step", "seq")}
    table["node"] = _objects(rank.node_paths)[sites.node[site]]
    table["class_name"] = _objects([node.class_name for node in rank.nodes])[sites.node[site]]
    table["direction"] = _objects([d.value for d in Direction])[sites.direction[site]]
    table["role"] = _objects([r.value for r in Role])[sites.role[site]]
    table["argument"] = sites.argument[site]
    table["call"] = sites.call[site]
    table["dtype"] = _objects([f.dtype for f in forms])[form]
    table["shape"] = _objects(["x".join(map(str, f.shape)) for f in forms])[form]
    table["kind"] = _objects([f.kind for f in forms])[form]
    left_out = {*table, "site", "form"}
    return table | {name: column for name, column in records.items() if name not in left_out}


def to_arrow(table: Table) -> pa.Table:
    """Gives a pyarrow table.

    Raises:
        MsprobeError: pyarrow is not installed.
    """
    pa = _optional("pyarrow")
    columns = {}
    for name, column in table.items():
        flat = pa.array(column.reshape(-1), from_pandas=False)
        columns[name] = pa.FixedSizeListArray.from_arrays(flat, column.shape[1]) if column.ndim == 2 else flat
    return pa.table(columns)


def to_pandas(table: Table) -> pd.DataFrame:
    """Gives a pandas frame; a column of lists holds one array per row.

    Raises:
        MsprobeError: pandas is not installed.
    """
    pd = _optional("pandas")
    return pd.DataFrame({name: list(column) if column.ndim == 2 else column for name, column in table.items()})


def _optional(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MsprobeError(f"this needs {name} ({error}): pip install --upgrade {name}") from error


def _objects(values: list[str]) -> NDArray[np.object_]:
    column = np.empty(len(values), object)
    column[:] = values
    return column
