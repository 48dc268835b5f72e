"""The library loads without a framework, works in threads, and its absence is no failure but is said."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from msprobe.core import kernels
from msprobe.core.kernels import arrays, library
from msprobe.core.sketches import sketch
from msprobe.core.statistics import measure

ROOT = Path(__file__).parents[3]
with_kernels = pytest.mark.skipif(not kernels.available(), reason=f"kernels: {kernels.status()}")


def run(program, **variables):
    environment = {**os.environ, **variables}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    return done.stdout.strip()


@with_kernels
def test_nothing_else_is_loaded_with_it():
    program = (
        "import sys; from msprobe.core import kernels; print(kernels.available(), 'torch' in sys.modules,"
        " 'subprocess' in sys.modules)"
    )
    assert run(program) == "True False False"


def test_msprobe_pure_makes_numpy_do_the_work():
    program = (
        "import numpy; from msprobe.core import kernels, statistics;"
        "print(kernels.status(), statistics.measure(numpy.ones(3)).norm > 1.7)"
    )
    assert run(program, MSPROBE_PURE="1") == "NumPy (MSPROBE_PURE=1 asks for it) True"


def test_without_a_library_numpy_does_the_work(monkeypatch, tmp_path):
    monkeypatch.setattr(library, "PATH", tmp_path / "_kernels.so")
    monkeypatch.delenv("MSPROBE_PURE", raising=False)
    assert library._load_if_wanted() == (None, "this installation was built without a C compiler")
    monkeypatch.setattr(library, "_state", library._State())
    assert not kernels.available()
    assert arrays.measure_array(np.ones(3), arrays.STATISTICS) is None
    assert measure(np.ones(4)).norm == 2.0


def test_a_library_that_does_not_load_is_no_failure(monkeypatch, tmp_path):
    path = tmp_path / "_kernels.so"
    path.write_text("not a library")
    monkeypatch.setattr(library, "PATH", path)
    monkeypatch.delenv("MSPROBE_PURE", raising=False)
    found, reason = library._load_if_wanted()
    assert found is None
    assert "does not load" in reason


@with_kernels
def test_the_library_is_made_of_these_sources():
    """After a change in core/kernels/source: python hatch_build.py."""
    hook = ROOT / "hatch_build.py"
    if not hook.exists():
        pytest.skip("not a checkout")
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import hatch_build, pathlib;"
    program += f"print(hatch_build.digest(pathlib.Path({str(ROOT / 'core' / 'kernels' / 'source')!r})))"
    loaded = library.current()
    assert loaded is not None
    assert run(program) == loaded.sources


@with_kernels
def test_threads_do_not_disturb_each_other():
    rng = np.random.default_rng(0)
    tensors = [rng.standard_normal(size).astype(np.float32) for size in (10, 5000, 300_000, 400_001)]
    expected = [(measure(x), sketch(x)) for x in tensors]
    wrong = []

    def work(number):
        for i in range(40):
            which = (number + i) % len(tensors)
            measured, sketched = measure(tensors[which]), sketch(tensors[which])
            if measured != expected[which][0] or not np.array_equal(sketched, expected[which][1]):
                wrong.append(which)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@with_kernels
def test_long_calls_let_other_threads_run():
    values = np.ones(2**24, np.float32)
    ticks, done = [0], threading.Event()

    def tick():
        while not done.wait(0.0005):
            ticks[0] += 1

    thread = threading.Thread(target=tick)
    thread.start()
    before = ticks[0]
    for _ in range(40):
        measure(values)
    during = ticks[0] - before
    done.set()
    thread.join()
    assert during > 3


@with_kernels
def test_flushed_denormals_are_measured_all_the_same():
    torch = pytest.importorskip("torch")
    values = np.full(100, 1e-40, np.float32)
    if not torch.set_flush_denormal(True):
        pytest.skip("this machine cannot flush denormals")
    try:
        measured = measure(values)
    finally:
        torch.set_flush_denormal(False)
    assert measured.zero == 0
    assert measured.max == float(values[0])


def test_info_says_which_path_runs():
    said = run("from msprobe.cli import main; main(['info', '--system'])", MSPROBE_PURE="1")
    assert "NumPy (MSPROBE_PURE=1 asks for it)" in said


@with_kernels
def test_without_is_for_its_block_only():
    with kernels.without():
        assert not kernels.available()
        assert kernels.status() == "NumPy (switched off by this program)"
    assert kernels.available()
