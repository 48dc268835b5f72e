"""The kernels give on Arm what they give here; compiled and emulated, so only where a cross compiler and QEMU are."""

import math
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DRIVER = Path(__file__).with_name("driver.c")
COMPILE = "import sys, pathlib, hatch_build; hatch_build.compile_library(pathlib.Path('.'), pathlib.Path(sys.argv[1]))"
CROSS = "aarch64-linux-gnu-gcc"

pytestmark = pytest.mark.skipif(
    not (shutil.which(CROSS) and shutil.which("qemu-aarch64") and platform.machine() == "x86_64"),
    reason=f"the kernels are NOT tested on Arm here: no {CROSS} and qemu-aarch64",
)


def output_of(folder: Path, compiler: str, kind: str, run: list[str]) -> list[str]:
    folder.mkdir()
    library, program = folder / "_kernels.so", folder / "driver"
    environment = {**os.environ, "CC": compiler, "_PYTHON_HOST_PLATFORM": f"linux-{kind}"}
    subprocess.run([sys.executable, "-c", COMPILE, str(library)], cwd=ROOT, env=environment, check=True)
    link = [str(DRIVER), str(library), f"-Wl,-rpath,{folder}", "-lm", "-o", str(program)]
    subprocess.run([compiler, "-O1", *link], check=True)
    return subprocess.run([*run, str(program)], capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.long
@pytest.mark.skipif(not (ROOT / "hatch_build.py").exists(), reason="not a checkout")
def test_arm_gives_what_this_machine_gives(tmp_path):
    here = output_of(tmp_path / "here", "gcc", "x86_64", [])
    arm = output_of(tmp_path / "arm", CROSS, "aarch64", ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"])
    assert len(here) == len(arm) == 20
    for left, right in zip(here, arm, strict=True):
        floats, counts = ([part.split() for part in line.split("|")] for line in (left, right))
        assert floats[1] == counts[1], left
        numbers = [[float(x) for x in part[0][2:]] for part in (floats, counts)]
        scale = max((abs(x) for x in numbers[0] if math.isfinite(x)), default=0.0)
        assert numbers[1] == pytest.approx(numbers[0], rel=1e-5, abs=1e-7 * scale, nan_ok=True), left
