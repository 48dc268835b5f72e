"""How tinynet's split layers lie over tensor-parallel ranks: the layers themselves do not say it."""

from __future__ import annotations

from msprobe.core.merging.rules import LayoutRule


class TinyNetLayouts:
    """Rules by class."""

    name = "tinynet"
    rules = (LayoutRule.of("SplitDense", outputs={"tp": "shard(-1)"}, parameters={"weight": {"tp": "shard(0)"}}),)
