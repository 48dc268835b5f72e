"""Two ways to write a model of two towers: apart, or as one joint layer that holds both."""

from __future__ import annotations

from msprobe.core.matching.ready import ReadyMapping

TOWERS = ReadyMapping(
    "tinynet-towers",
    """\
version: 1
rules:
  - candidate: towers.{i}.joint
    reference: [left.{i}, right.{i}]
    combine: {concat: -1}
""",
)
