"""Tells msprobe what this package brings, by name: none of it is imported until it is used."""

from __future__ import annotations

from msprobe.hookspecs import Register, hookimpl


@hookimpl
def register_adapters(register: Register) -> None:
    """Registers the adapter of tinynet."""
    register(
        "tinynet",
        "msprobe_example.adapter:TinyNetAdapter",
        summary="layers of the tinynet framework",
        framework="tinynet",
        tensors=["numpy"],
    )


@hookimpl
def register_comparators(register: Register) -> None:
    """Registers one measure."""
    register("sign_flips", "msprobe_example.sign_flips:SignFlips", summary="share of elements whose sign differs")


@hookimpl
def register_visualizers(register: Register) -> None:
    """Registers one way to show a comparison."""
    register("headline", "msprobe_example.headline:Headline", summary="the verdict as one line, for a status board")


@hookimpl
def register_layouts(register: Register) -> None:
    """Registers how tinynet's layers are cut over ranks."""
    register("tinynet", "msprobe_example.layouts:TinyNetLayouts", summary="tinynet's split layers over tp")


@hookimpl
def register_mappings(register: Register) -> None:
    """Registers one ready mapping."""
    register("tinynet-towers", "msprobe_example.towers:TOWERS", summary="left and right towers and their joint layer")
