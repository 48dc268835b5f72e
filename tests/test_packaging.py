"""The archives hold exactly what they must: every file of the tree under its import name, and nothing else."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest

import msprobe

ROOT = Path(__file__).parents[1]
PACKED = ("core", "adapters", "comparators", "visualizers")
#: What the build hook compiles, where it finds a compiler.
LIBRARY = "msprobe/core/kernels/_kernels.so"
#: What the build hook makes of the TypeScript, where it finds npm; the wheel holds it instead of the sources.
CLIENT, PAGES = "visualizers/web/client/", "visualizers/web/pages"
LEFT_OUT = ("__pycache__", ".pyc", ".DS_Store")
#: At the top of the source archive, beside the folders.
TOP_FILES = {
    "plugins.toml",
    "hatch_build.py",
    "README.md",
    "README.zh.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "pyproject.toml",
    "PKG-INFO",
    ".gitignore",
}


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds wheel and source archive, offline."""
    out = tmp_path_factory.mktemp("dist")
    _build(ROOT, out)
    return out


def _build(source: Path, out: Path, *targets: str, **variables: str) -> str:
    """Builds and gives what was said."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out), *targets]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000", **variables}
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def _has_compiler() -> bool:
    return bool(os.environ.get("CC")) or any(map(shutil.which, ("cc", "gcc", "clang")))


def _tree(folder: str) -> set[str]:
    """Lists the files of a folder as git sees them: tracked, or new and not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", folder]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return {name for name in listed if (ROOT / name).is_file() and not (ROOT / name).is_symlink()}


def _pages() -> set[str]:
    """Lists the built pages, which git ignores; archives are built first, and build them."""
    built = {path.relative_to(ROOT).as_posix() for path in (ROOT / PAGES).rglob("*") if path.is_file()}
    if shutil.which("npm"):
        assert f"{PAGES}/index.html" in built
    return built


def _wheel_names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_the_tree_under_its_import_names(archives: Path) -> None:
    tree = {name for folder in PACKED for name in _tree(folder) if not name.startswith(CLIENT)}
    expected = {f"msprobe/{name}" for name in tree | _pages()}
    expected |= {*_tree("msprobe"), "msprobe/plugins.toml"}
    info = f"msprobe-{msprobe.__version__}.dist-info"
    expected |= {f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")}
    (wheel,) = archives.glob("*.whl")
    assert _wheel_names(wheel) == expected | ({LIBRARY} if _has_compiler() else set())


@pytest.mark.skipif(not _has_compiler(), reason="no C compiler")
def test_a_wheel_with_kernels_is_for_this_platform_and_any_python(archives: Path) -> None:
    (wheel,) = archives.glob("*.whl")
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if platform.startswith("linux_"):  # as auditwheel tags what calls no newer function of the C library
        platform = rf"(many)?linux_(2_\d\d_)?{platform.removeprefix('linux_')}"
    assert re.fullmatch(rf"msprobe-{re.escape(msprobe.__version__)}-py3-none-{platform}\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        tags = archive.read(f"msprobe-{msprobe.__version__}.dist-info/WHEEL").decode()
    assert "Root-Is-Purelib: false" in tags


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"CC": "no-such-compiler"}, "CC=no-such-compiler is not there"),
        ({"CC": "false"}, "failed"),
        ({"MSPROBE_PURE": "1"}, "MSPROBE_PURE=1"),
    ],
    ids=["missing", "broken", "unwanted"],
)
def test_without_a_compiler_a_pure_wheel_is_built_and_says_why(
    tmp_path: Path, variables: dict[str, str], reason: str
) -> None:
    said = _build(ROOT, tmp_path, "-t", "wheel", **variables)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == f"msprobe-{msprobe.__version__}-py3-none-any.whl"
    assert LIBRARY not in _wheel_names(wheel)
    assert "NumPy does their work" in said
    assert reason in said


def test_the_source_archive_holds_each_file_once(archives: Path) -> None:
    (path,) = archives.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        members = archive.getmembers()
    assert not [member.name for member in members if member.issym() or member.islnk()]
    names = {PurePosixPath(*PurePosixPath(m.name).parts[1:]).as_posix() for m in members if m.isfile()}
    expected = {name for folder in ("msprobe", *PACKED) for name in _tree(folder)}
    assert names == expected | TOP_FILES | _pages()


@pytest.mark.skipif(not shutil.which("npm"), reason="no npm")
def test_the_pages_are_small() -> None:
    script = b"".join(path.read_bytes() for path in sorted((ROOT / PAGES / "assets").iterdir()))
    assert len(gzip.compress(script)) < 150_000


def test_a_wheel_from_the_source_archive_is_the_same(archives: Path, tmp_path: Path) -> None:
    (path,) = archives.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(tmp_path, filter="data")
        else:
            archive.extractall(tmp_path)  # a Python before the filters
    (source,) = tmp_path.iterdir()
    _build(source, tmp_path / "dist")
    (first,), (second,) = archives.glob("*.whl"), (tmp_path / "dist").glob("*.whl")
    assert _wheel_names(first) == _wheel_names(second)


def test_the_version_stands_in_two_places_alike() -> None:
    assert f'version = "{msprobe.__version__}"' in (ROOT / "pyproject.toml").read_text()


def test_nothing_in_the_wheel_is_litter(archives: Path) -> None:
    (wheel,) = archives.glob("*.whl")
    assert not [name for name in _wheel_names(wheel) if name.endswith(LEFT_OUT) or "__pycache__" in name]
