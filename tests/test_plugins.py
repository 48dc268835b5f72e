"""The plugin table: built-in rows, a real foreign package, and what happens when one is broken."""

from __future__ import annotations

import importlib.metadata
import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import msprobe
from msprobe import hookspecs
from msprobe.core.errors import PluginError
from msprobe.plugins import KINDS, Plugin, PluginTable, PluginWarning, load_entry_points, plugin_table, read_table
from msprobe.testing import Trial, check_adapter

ROOT = Path(__file__).parents[1]
BUILT_IN = list(read_table().rows.values())


def _example_is_there() -> bool:
    try:
        importlib.metadata.version("msprobe-example")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


#: CI sets MSPROBE_REQUIRE_EXAMPLE, so that there the tests fail instead of being skipped.
with_example = pytest.mark.skipif(
    not _example_is_there() and not os.environ.get("MSPROBE_REQUIRE_EXAMPLE"),
    reason="pip install --no-deps -e tests/plugin_example",
)


@pytest.mark.parametrize("plugin", BUILT_IN, ids=lambda p: f"{p.kind}-{p.name}")
def test_each_built_in_row_leads_to_an_object_of_its_name(plugin: Plugin) -> None:
    if plugin.missing:
        pytest.skip(plugin.state)
    assert plugin_table().get(plugin.kind, plugin.name).name == plugin.name


@pytest.mark.parametrize("plugin", BUILT_IN, ids=lambda p: f"{p.kind}-{p.name}")
def test_each_built_in_row_has_one_line_about_itself(plugin: Plugin) -> None:
    assert 10 < len(plugin.summary) <= 80
    assert "\n" not in plugin.summary


@pytest.mark.parametrize("kind", ["comparators", "visualizers"])
def test_each_public_class_of_a_plugin_folder_is_in_the_table(kind: str) -> None:
    targets = {str(p.target).rpartition(":")[0] for p in BUILT_IN if p.kind == kind}
    for path in sorted((ROOT / kind).glob("*.py")):
        if '\n    name = "' in path.read_text():
            assert f"msprobe.{kind}.{path.stem}" in targets


@pytest.mark.parametrize("kind", KINDS)
def test_each_hook_is_documented_with_its_real_signature(kind: str) -> None:
    hook = getattr(hookspecs, f"register_{kind}")
    signature = inspect.signature(hook)
    assert f"register_{kind}{signature}".replace("'", "") in (ROOT / "docs/plugins.md").read_text()
    assert hook.__doc__


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(PluginError, match=r"unknown visualizer 'cvs'. Did you mean 'csv'\? Known: "):
        plugin_table().get("visualizers", "cvs")


def test_what_is_missing_is_told_without_an_import() -> None:
    table = PluginTable()
    plugin = Plugin("comparators", "x", "nowhere:X", requires=("surely-not-there>=1", "numpy>=1.26", "numpy>=99"))
    table.add(plugin)
    assert plugin.missing == ("surely-not-there>=1", "numpy>=99")
    assert plugin.state == "missing surely-not-there>=1, numpy>=99"
    with pytest.raises(PluginError, match="pip install 'surely-not-there>=1'"):
        table.get("comparators", "x")
    assert table.of_kind("comparators") == [plugin]
    assert table.of_kind("comparators", usable=True) == []


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("no_such_module:X", "ModuleNotFoundError"),
        ("math:no_such_name", "AttributeError"),
        ("math:pi", "it must have name, better, compare or name, better, compare_statistics"),
        ("fractions:Fraction", "it must have"),
    ],
)
def test_a_plugin_that_cannot_be_used_says_why(target: str, reason: str) -> None:
    table = PluginTable()
    table.add(Plugin("comparators", "odd", target, origin="some-package 1.0"))
    with pytest.raises(PluginError) as caught:
        table.get("comparators", "odd")
    assert "comparator 'odd' (some-package 1.0)" in str(caught.value)
    assert reason in str(caught.value)


def test_listing_imports_no_framework_and_no_plugin() -> None:
    heavy = ("torch", "numpy", "duckdb", "msprobe.visualizers", "msprobe_example.adapter")
    code = (
        "import sys; from msprobe.cli import main; main(['plugins']); "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/").stdout
    assert out.splitlines()[-1] == "[]"


def _package(folder: Path, name: str, body: str) -> importlib.metadata.EntryPoint:
    """Writes a module that an entry point can name, as an installed package would have it."""
    (folder / f"{name}.py").write_text(body)
    return importlib.metadata.EntryPoint(name=name, value=name, group="msprobe")


GOOD = """
from msprobe.hookspecs import hookimpl
@hookimpl
def register_comparators(register):
    register("good", "somewhere:Good", summary="fine")
"""


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("import surely_not_there", "ModuleNotFoundError: No module named 'surely_not_there'"),
        ("def x(:", "SyntaxError"),
        ("raise RuntimeError('boom')", "RuntimeError: boom"),
        (
            "from msprobe.hookspecs import hookimpl\n@hookimpl\ndef register_painters(register): pass",
            "register_painters",
        ),
        (
            "from msprobe.hookspecs import hookimpl\n@hookimpl\ndef register_comparators(register):\n"
            "    register('half', 'x:X')\n    raise ValueError('later')",
            "ValueError: later",
        ),
        (
            "from msprobe.hookspecs import hookimpl\n@hookimpl\ndef register_comparators(register):\n"
            "    register('odd', 'x:X', colour='red')",
            "TypeError",
        ),
    ],
)
def test_a_broken_package_is_reported_and_the_others_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, reason: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("MSPROBE_PLUGINS", raising=False)
    name = f"broken_{abs(hash(body))}"
    table = PluginTable()
    load_entry_points(table, [_package(tmp_path, name, body), _package(tmp_path, f"good_{name}", GOOD)])
    assert [(b.name, reason in b.reason) for b in table.broken] == [(name, True)]
    assert [p.name for p in table.of_kind("comparators")] == ["good"]


def test_a_taken_name_stays_with_its_first_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("MSPROBE_PLUGINS", raising=False)
    table = PluginTable()
    table.add(Plugin("comparators", "good", "ours:Good"))
    load_entry_points(table, [_package(tmp_path, "latecomer", GOOD)])
    assert table.find("comparators", "good").target == "ours:Good"
    assert "taken by msprobe" in table.broken[0].reason


@pytest.mark.parametrize(("value", "names"), [("", []), ("first", ["good"]), ("other, first", ["good"])])
def test_the_environment_narrows_the_foreign_plugins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, names: list[str]
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("MSPROBE_PLUGINS", value)
    table = PluginTable()
    load_entry_points(table, [_package(tmp_path, "first", GOOD), _package(tmp_path, "second", "raise SystemError")])
    assert [p.name for p in table.of_kind("comparators")] == names
    assert table.broken == []


def test_a_broken_installed_package_warns_and_is_listed(tmp_path: Path) -> None:
    """Goes the whole way: a distribution on the path, an entry point, the command line."""
    (tmp_path / "rotten.py").write_text("raise RuntimeError('rotten to the core')")
    info = tmp_path / "rotten-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rotten\nVersion: 2.0\n")
    (info / "entry_points.txt").write_text("[msprobe]\nrotten = rotten\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    environment.pop("MSPROBE_PLUGINS", None)
    command = [sys.executable, "-m", "msprobe", "plugins"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd="/", check=False)
    assert done.returncode == 0
    assert "broken: rotten of rotten 2.0: RuntimeError: rotten to the core" in done.stdout
    assert done.stderr == "msprobe: warning: plugin 'rotten' of rotten 2.0: RuntimeError: rotten to the core\n"


def test_warnings_have_a_category_that_can_be_silenced() -> None:
    assert issubclass(PluginWarning, UserWarning)


@with_example
def test_the_example_is_listed_with_its_origin() -> None:
    version = importlib.metadata.version("msprobe-example")
    mine = [p for p in plugin_table().rows.values() if p.origin == f"msprobe-example {version}"]
    assert [(p.kind, p.name, p.state) for p in mine] == [
        ("adapters", "tinynet", "ready"),
        ("comparators", "sign_flips", "ready"),
        ("visualizers", "headline", "ready"),
        ("layouts", "tinynet", "ready"),
        ("mappings", "tinynet-towers", "ready"),
    ]


@with_example
def test_the_example_mapping_is_followed_by_name() -> None:
    mapping = plugin_table().get("mappings", "tinynet-towers").mapping
    (rule,) = mapping.rules
    assert rule.reference == ("left.{i}", "right.{i}")
    assert rule.where == "ready mapping tinynet-towers:3"


@with_example
def test_the_example_comparator_measures() -> None:
    comparator = plugin_table().get("comparators", "sign_flips")
    assert comparator.compare(np.array([1.0, -1.0, 2.0, 0.0]), np.array([1.0, 1.0, 3.0, 0.0])) == 0.25


@with_example
def test_the_example_adapter_passes_the_contract() -> None:
    check_adapter(plugin_table().get("adapters", "tinynet"), make_tinynet_trial)


@with_example
def test_a_model_finds_its_adapter_by_itself(tmp_path: Path) -> None:
    trial = make_tinynet_trial()
    with msprobe.record(trial.model, tmp_path / "run", what="statistics", context={"data": "ones"}) as probe:
        trial.step()
        msprobe.save(np.ones(3), "ones")
        probe.step()
    run = msprobe.open_run(tmp_path / "run")
    assert {"", "first", "middle", "last"} <= {node.path for node in run.rank(0).nodes}


def make_tinynet_trial(scale: float = 1.0) -> Trial:
    """Makes a two-layer network of the example's framework, and a training step for it."""
    import tinynet

    generator = np.random.default_rng(0)
    first, last = tinynet.Linear(generator.normal(size=(8, 4))), tinynet.Linear(generator.normal(size=(2, 8)))
    model = tinynet.Layer(first=first, middle=tinynet.Tanh(), last=last)
    x = generator.normal(size=(16, 4))

    def step() -> list[np.ndarray[Any, Any]]:
        y = model(x)
        model.pull_back(scale * y / y.size)
        for layer in (first, last):
            layer.parameters["weight"] = layer.parameters["weight"] - 0.1 * layer.gradients["weight"]
        return [y, *(layer.gradients["weight"] for layer in (first, last)), first.parameters["weight"].copy()]

    def count_hooks() -> int:
        return sum(len(layer.watchers) for _, layer in model.named_layers())

    return Trial(model, step, count_hooks)
