"""The command line: help at once, mistakes in one message, exit codes, no file of others overwritten."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from msprobe import record as record_model
from msprobe.cli import COMMANDS, command_help, main
from msprobe.cli.record import chosen_options, parser
from msprobe.core.errors import RecordingError
from msprobe.core.options import OPTION_NAMES, RecordOptions
from msprobe.plugins import PluginWarning, plugin_table
from tests.test_plugins import make_tinynet_trial, with_example

#: What --help must not import, and the CPU time that it may take: what it would last on an idle machine.
HEAVY = ("torch", "numpy", "duckdb", "pandas", "pyarrow", "pydantic", "nanoarrow", "tqdm", "yaml")
HELP_SECONDS = 0.3


@pytest.mark.parametrize("words", [["--help"], *([name, "--help"] for name in COMMANDS)], ids=" ".join)
def test_help_answers_at_once_and_imports_nothing_heavy(words: list[str]) -> None:
    code = (
        f"import sys; from msprobe.cli import main; code = main({words!r}); "
        f"sys.exit(code or [name for name in {HEAVY!r} if name in sys.modules] or 0)"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (done.returncode, done.stderr) == (0, "")
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < HELP_SECONDS
    assert "examples:" in done.stdout


def test_importing_msprobe_imports_nothing_heavy() -> None:
    code = f"import sys, msprobe; dir(msprobe); sys.exit([name for name in {HEAVY!r} if name in sys.modules] or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_public_name_is_there_and_in_order() -> None:
    import msprobe

    assert msprobe.__all__ == sorted(msprobe.__all__)
    for name in msprobe.__all__:
        assert getattr(msprobe, name) is not None
    with pytest.raises(AttributeError, match="It has: MsprobeError"):
        _ = msprobe.recrod


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["recrod"], "no command 'recrod'. Did you mean 'record'?"),
        (["compare", "--nosie", "n", "a", "b"], "unknown option '--nosie'; did you mean '--noise'?"),
        (["compare", "a"], "the following arguments are required: REFERENCE"),
        (["compare", "a", "b", "c"], "unexpected argument 'c'"),
        (["compare", "a", "b"], "a: no such directory"),
        (["compare", "a", "b", "--min-coverage", "95"], "argument --min-coverage"),
        (["compare", "a", "b", "--format", "cvs"], "unknown visualizer 'cvs'. Did you mean 'csv'?"),
        (["compare", "a", "b", "--format", "table,csv"], "--format csv writes a file: say where with --out DIR"),
        (["compare", "a", "b", "--comparator", "cosin"], "unknown comparator 'cosin'"),
        (["compare", "a", "b", "--step", "5-3"], "argument --step: range '5-3' ends before it starts"),
        (["compare", "a", "b", "--step", "abc"], "argument --step: 'abc' is no step or range"),
        (["compare", "a", "b", "--rank", "0-"], "argument --rank: '0-' has no end"),
        (["compare", "a", "b", "--limit", "-1"], "argument --limit: '-1' is no whole number from 0 up"),
        (["compare", "a", "b", "--format", "html"], "--format html writes a file: say where with --out DIR"),
        (["compare", "a", "b", "--format", "xlsx"], "--format xlsx writes a file: say where with --out DIR"),
        (["compare", "a", "b", "--out", ""], "argument --out: the name is empty"),
        (["scan", "a"], "a: no such directory"),
        (["scan", "a", "--format", "xml"], "argument --format"),
        (["info"], "name one run, or two"),
        (["info", "a"], "a: no such directory"),
        (["info", "a", "b", "c"], "name one run, or two"),
        (["plugins", "--kind", "painters"], "argument --kind"),
        (["record", "--out", "x"], "nothing to run"),
        (["record", "--", "python", "x.py"], "the following arguments are required: --out"),
        (["record", "--out", "", "--", "python", "x.py"], "argument --out: the name is empty"),
        (["record", "--out", "x", "python", "x.py"], "unexpected argument 'python'"),
        (["record", "--out", "x", "--level", "modul", "--", "python"], "unknown level 'modul'. Did you mean 'module'?"),
        (["record", "--out", "x", "--config", "gone.yaml", "--", "python"], "gone.yaml: cannot be read"),
        (["record", "--out", "x", "--adapter", "pytroch", "--", "python"], "unknown adapter 'pytroch'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_gets_one_message_and_exit_code_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("msprobe: error: ")
    assert message in shown.err
    assert len(shown.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_file_or_a_folder_of_others_is_no_place_for_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    for out in (tmp_path, tmp_path / "thesis.tex"):
        assert main(["record", "--out", str(out), "--", "python", "x.py"]) == 2
        assert str(out) in capsys.readouterr().err
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    from msprobe import __version__

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"msprobe {__version__}\n"


def test_python_m_msprobe_is_the_same_command() -> None:
    done = subprocess.run([sys.executable, "-m", "msprobe", "nothing"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("msprobe: error: no command 'nothing'")


def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m msprobe plugins | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 141)
    assert done.stderr == ""


def test_an_interrupt_ends_quietly(tmp_path: Path) -> None:
    """A command that waits for its pipe to be read is interrupted as by Ctrl-C."""
    pipe = tmp_path / "mapping.yaml"
    os.mkfifo(pipe)
    # A shell in the background leaves interrupts ignored to its children; the command must hear them.
    started = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code = f"{started}from msprobe.cli import main; print('up', flush=True); sys.exit(main(sys.argv[1:]))"
    words = ["record", "--out", str(tmp_path / "run"), "--config", str(pipe), "--", sys.executable, "-c", "pass"]
    command = [sys.executable, "-c", code, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        time.sleep(2)  # it opens the pipe, to which nobody writes
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert said == "msprobe: interrupted\n"


def test_warnings_of_msprobe_are_one_line_and_others_stay(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def show(message: object, category: type[Warning], *_: object, **__: object) -> None:
        sys.stderr.write(f"{category.__name__}: {message}")

    def warn(_: object) -> int:
        warnings.warn("odd", PluginWarning, stacklevel=1)
        warnings.warn("foreign", UserWarning, stacklevel=1)
        return 0

    monkeypatch.setattr("msprobe.cli.plugins.run", warn)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        assert main(["plugins"]) == 0
    shown = capsys.readouterr().err
    assert "msprobe: warning: odd\n" in shown
    assert "UserWarning: foreign" in shown


def test_each_option_of_a_recording_is_an_option_of_the_command() -> None:
    known = {action.dest for action in parser()._actions}
    assert set(OPTION_NAMES) <= known


def test_options_of_the_command_win_over_the_file(tmp_path: Path) -> None:
    config = tmp_path / "probe.yaml"
    config.write_text("level: op\nevery: 5\nstacks: true\n")
    words = [
        "--out",
        "x",
        "--config",
        str(config),
        "--level",
        "mix",
        "--what-for",
        "*.mlp=tensors+rows",
        "--no-buffers",
    ]
    options = chosen_options(parser().read([*words, "--", "python", "a.py", "--level", "op", "--", "x"]))
    assert options == RecordOptions.create(
        level="mix", every=5, stacks=True, buffers=False, what_for={"*.mlp": ["tensors", "rows"]}
    )


def test_what_follows_the_dashes_belongs_to_the_program() -> None:
    arguments = parser().read(["--out", "x", "--", "python", "a.py", "--level", "op", "--", "x"])
    assert arguments.command == ["python", "a.py", "--level", "op", "--", "x"]


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Records the example's network twice alike, and once with a loss that is 1.5 times as large."""
    paths = (tmp_path / "a", tmp_path / "b", tmp_path / "wrong")
    for path, scale in zip(paths, (1.0, 1.0, 1.5), strict=True):
        trial = make_tinynet_trial(scale)
        with record_model(trial.model, path, context={"scale": scale}) as probe:
            for _ in range(2):
                trial.step()
                probe.step()
    return paths


@with_example
def test_equal_runs_compare_clean(runs: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(runs[0]), str(runs[1]), "--no-progress"]) == 0
    assert "clean" in capsys.readouterr().out


@with_example
def test_a_wrong_run_exits_1_and_quiet_is_one_sentence(
    runs: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(runs[2]), str(runs[0]), "--no-progress", "--quiet"]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 1


@with_example
@pytest.mark.parametrize("name", ["json", "csv", "junit", "html", "parquet", "markdown", "headline", "xlsx"])
def test_each_format_writes_its_file(runs: tuple[Path, Path, Path], tmp_path: Path, name: str) -> None:
    out = tmp_path / "report"
    words = ["compare", str(runs[2]), str(runs[0]), "--no-progress", "--quiet", "--out", str(out), "--format", name]
    assert main(words) == 1
    first = {path.name: path.stat().st_size for path in out.iterdir()}
    assert {"summary.json", "pairs.parquet"} <= set(first)
    assert min(first.values()) > 0
    assert main(words) == 1, "a second comparison may replace the first"


@with_example
def test_without_a_terminal_nothing_is_on_standard_error(
    runs: tuple[Path, Path, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(runs[0]), str(runs[1])]) == 0
    assert capfd.readouterr().err == ""


@with_example
def test_a_run_needs_a_name() -> None:
    with pytest.raises(RecordingError, match="the name of the run directory is empty"):
        record_model(make_tinynet_trial(1.0).model, "")


def test_the_help_names_every_visualizer_of_ours() -> None:
    text = " ".join(command_help("compare").split())
    for plugin in plugin_table().of_kind("visualizers"):
        assert plugin.name in text or plugin.origin != "msprobe", plugin.name


@with_example
def test_a_text_format_goes_to_the_terminal(runs: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(runs[0]), str(runs[1]), "--no-progress", "--format", "json"]) == 0
    assert capsys.readouterr().out.startswith("{")


@with_example
def test_files_of_others_are_never_overwritten(
    runs: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "pairs.parquet").write_text("mine")
    for out in (foreign, foreign / "pairs.parquet", runs[0]):
        assert main(["compare", str(runs[0]), str(runs[1]), "--no-progress", "--out", str(out)]) == 2
        assert f"--out {out}: " in capsys.readouterr().err
    assert (foreign / "pairs.parquet").read_text() == "mine"


@with_example
def test_info_tells_what_a_run_holds(runs: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(runs[0])]) == 0
    shown = capsys.readouterr().out
    for words in ("tinynet", "0-1 (2, 2 complete)", "forward input", "backward gradient", "level=module", "records"):
        assert words in shown


@with_example
def test_info_of_two_runs_tells_in_what_they_differ(
    runs: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info", str(runs[2]), str(runs[0])]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if "scale" in line)
    assert row.split() == ["context", "scale", "1.5", "1.0"]
    assert main(["info", str(runs[0]), str(runs[1])]) == 0
    assert "are the same" in capsys.readouterr().out


def test_info_of_the_system_names_the_adapters(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--system"]) == 0
    assert "adapter pytorch" in capsys.readouterr().out


@with_example
@pytest.mark.parametrize("damage", ["truncate", "newer", "not json"])
def test_a_damaged_run_is_refused_in_one_message(
    runs: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    file = runs[0] / "run.json"
    text = file.read_text()
    changed: dict[str, Any] = {
        "truncate": text[: len(text) // 2],
        "newer": text.replace('"schema":2', '"schema":99'),
        "not json": "hello",
    }
    file.write_text(changed[damage])
    assert file.read_text() != text
    assert main(["compare", str(runs[0]), str(runs[1]), "--no-progress"]) == 2
    message = capsys.readouterr().err
    assert str(runs[0]) in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize("name", list(COMMANDS))
def test_help_fits_a_terminal(name: str) -> None:
    with contextlib.suppress(ImportError):
        assert max(map(len, command_help(name).splitlines())) <= 110
