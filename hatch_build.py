"""Compiles the kernels of core/kernels/source and builds the pages of visualizers/web while the package is built.

A wheel that holds them bears the platform's tag and no Python's: the library is plain C that ctypes loads. An editable
install has it beside its sources. Where no compiler is found the package is built without: NumPy does the work then.

The pages are built where Node.js is, and packed into wheel and source archive, so that who installs these needs none.

    python hatch_build.py           # after changing the C code in a checkout
    python hatch_build.py pages     # after changing the TypeScript (make web)
    # a wheel for Arm, on another machine:
    CC=aarch64-linux-gnu-gcc _PYTHON_HOST_PLATFORM=linux-aarch64 python -m hatchling build -t wheel
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any, Final

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run alone where hatchling is not installed
    BuildHookInterface = object

FOLDER: Final = Path("core/kernels")
LIBRARY: Final = "_kernels.so"
#: No -ffast-math: only the loops that say so may reorder their sums.
FLAGS: Final = ("-std=gnu11", "-O3", "-fPIC", "-fvisibility=hidden", "-fopenmp-simd", "-fno-math-errno")
OPTIONAL: Final = ("-fno-trapping-math",)
AVX2: Final = ("-mavx2", "-mfma", "-mf16c")
AVX512: Final = (*AVX2, *(f"-mavx512{part}" for part in ("f", "dq", "bw", "vl")), "-mprefer-vector-width=512")
#: Instruction sets for which the loops are compiled, beside what every machine of the kind has; chosen at run time.
INSTRUCTIONS: Final = {"avx2": AVX2, "avx512": AVX512}


#: Where the TypeScript is, and what it is built into.
CLIENT: Final = Path("visualizers/web/client")
PAGES: Final = Path("visualizers/web/pages")
#: What identifies the sources of the pages that were built.
STAMP: Final = "sources.txt"


class CompilingError(Exception):
    """Tells why there are no kernels."""


class PagesError(Exception):
    """Tells why there are no pages."""


def compiler() -> list[str]:
    """Gives the command of the C compiler: $CC, or the first one found."""
    wanted = shlex.split(os.environ.get("CC", ""))
    if wanted:
        if shutil.which(wanted[0]):
            return wanted
        raise CompilingError(f"CC={os.environ['CC']} is not there")
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    raise CompilingError("no C compiler (cc, gcc, clang, or name one in CC)")


def target_platform() -> str:
    """Names the platform compiled for, as in a wheel's tag."""
    name = sysconfig.get_platform().replace("universal2", platform.machine())
    return name.replace("-", "_").replace(".", "_")


def wheel_platform(library: Path) -> str:
    """Names the platform of a wheel that holds the library: manylinux of the newest C library whose functions it calls.

    It calls no other library (PEP 600).
    """
    platform_ = target_platform()
    needed = [int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", library.read_bytes())]
    if not platform_.startswith("linux_") or not needed:
        return platform_
    return f"manylinux_2_{max(17, *needed)}_{platform_.removeprefix('linux_')}"


def digest(source: Path) -> str:
    """Identifies the sources, so that a library of other sources can be told."""
    texts = [path.read_bytes() for path in sorted(source.glob("*.[ch]"))]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]


def compile_library(root: Path, target: Path) -> None:
    """Compiles all sources into one shared library, which replaces ``target`` at once."""
    source = root / FOLDER / "source"
    with tempfile.TemporaryDirectory() as name:
        objects = Path(name)
        command = [*compiler(), *FLAGS, *(flag for flag in OPTIONAL if _accepts(flag, objects))]
        more = INSTRUCTIONS if target_platform().endswith("x86_64") else {}
        for instructions, flags in {"baseline": (), **more}.items():
            which = (f"-DLOOPS=loops_{instructions}", f'-DLOOPS_NAME="{instructions}"', *flags)
            _run([*command, *which, "-c", str(source / "block.c"), "-o", str(objects / f"{instructions}.o")])
        has = [f"-DHAS_{instructions.upper()}" for instructions in more]
        has.append(f'-DSOURCES="{digest(source)}"')
        for path in source.glob("*.c"):
            if path.name != "block.c":
                _run([*command, *has, "-c", str(path), "-o", str(objects / f"{path.stem}.o")])
        built = objects / LIBRARY
        _run([*compiler(), "-shared", *(str(path) for path in sorted(objects.glob("*.o"))), "-o", str(built), "-lm"])
        beside = target.with_name(f"{target.name}.{os.getpid()}")
        shutil.copyfile(built, beside)
        beside.replace(target)  # a process that has the old one loaded keeps it


def _accepts(flag: str, folder: Path) -> bool:
    probe = folder / "probe.c"
    probe.write_text("int probe;\n")
    command = [*compiler(), "-Werror", flag, "-c", str(probe), "-o", os.devnull]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompilingError(f"{shlex.join(command)} failed:\n{done.stderr}")


def pages_digest(root: Path) -> str:
    """Identifies the sources of the pages."""
    client = root / CLIENT
    files = [*client.glob("*.json"), *client.glob("*.ts"), client / "index.html", *(client / "src").rglob("*.*")]
    texts = [path.read_bytes() for path in sorted(files) if path.is_file()]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]


def build_pages(root: Path) -> None:
    """Builds the pages, unless they were built from these sources already."""
    client, pages = root / CLIENT, root / PAGES
    stamp = pages / STAMP
    if stamp.is_file() and (not client.is_dir() or stamp.read_text().strip() == pages_digest(root)):
        return
    if not client.is_dir():
        raise PagesError(f"{CLIENT} is not there")
    npm = shutil.which("npm")
    if npm is None:
        raise PagesError("no npm (Node.js 20 or newer builds the pages)")
    for command in ([npm, "ci", "--no-audit", "--no-fund"], [npm, "run", "build"]):
        done = subprocess.run(command, cwd=client, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PagesError(f"{shlex.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    stamp.write_text(pages_digest(root) + "\n")


class BuildHook(BuildHookInterface):  # type: ignore[misc,valid-type] # hatchling may be absent
    """Adds the library to wheels and to editable installs, and the pages to all archives."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds both before the archive is packed; ``version`` is ``editable`` or ``standard``."""
        self._add_pages(version, build_data)
        if self.target_name == "wheel":
            self._add_library(version, build_data)

    def _add_pages(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        try:
            build_pages(root)
        except PagesError as reason:
            self.app.display_warning(
                f"msprobe is built without its pages: msprobe view will not work. Reason: {reason}"
            )
            return
        if version == "editable":
            return
        prefix = "msprobe/" if self.target_name == "wheel" else ""
        for file in sorted((root / PAGES).rglob("*")):
            if file.is_file():
                build_data["force_include"][str(file)] = f"{prefix}{file.relative_to(root).as_posix()}"

    def _add_library(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        if version == "editable":
            target = root / FOLDER / LIBRARY
        else:
            self._folder = tempfile.TemporaryDirectory()
            target = Path(self._folder.name) / LIBRARY
        try:
            if os.environ.get("MSPROBE_PURE") == "1":
                raise CompilingError("MSPROBE_PURE=1 asks for a pure wheel")
            compile_library(root, target)
        except CompilingError as reason:
            self.app.display_warning(f"msprobe is built without its C kernels, NumPy does their work. Reason: {reason}")
            return
        if version != "editable":
            build_data["force_include"][str(target)] = f"msprobe/{FOLDER.as_posix()}/{LIBRARY}"
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{wheel_platform(target)}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Removes what was compiled for a wheel."""
        folder = getattr(self, "_folder", None)
        if folder is not None:
            folder.cleanup()


if __name__ == "__main__":
    here = Path(__file__).parent
    try:
        if sys.argv[1:] == ["pages"]:
            build_pages(here)
        else:
            compile_library(here, here / FOLDER / LIBRARY)
    except (CompilingError, PagesError) as failed:
        sys.exit(f"error: {failed}")
