"""The archives hold exactly what they must: every file of the tree under its import name, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest

import msprobe

ROOT = Path(__file__).parents[1]
PACKED = ("core", "adapters", "comparators", "visualizers")
LEFT_OUT = ("__pycache__", ".pyc", ".DS_Store")
#: At the top of the source archive, beside the folders.
TOP_FILES = {
    "plugins.toml",
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


def _build(source: Path, out: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


def _tree(folder: str) -> set[str]:
    """Lists the files of a folder as git sees them: tracked, or new and not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", folder]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return {name for name in listed if (ROOT / name).is_file() and not (ROOT / name).is_symlink()}


def _wheel_names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_the_tree_under_its_import_names(archives: Path) -> None:
    expected = {f"msprobe/{name}" for folder in PACKED for name in _tree(folder)}
    expected |= {*_tree("msprobe"), "msprobe/plugins.toml"}
    info = f"msprobe-{msprobe.__version__}.dist-info"
    expected |= {f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")}
    (wheel,) = archives.glob("*.whl")
    assert _wheel_names(wheel) == expected


def test_the_source_archive_holds_each_file_once(archives: Path) -> None:
    (path,) = archives.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        members = archive.getmembers()
    assert not [member.name for member in members if member.issym() or member.islnk()]
    names = {PurePosixPath(*PurePosixPath(m.name).parts[1:]).as_posix() for m in members if m.isfile()}
    expected = {name for folder in ("msprobe", *PACKED) for name in _tree(folder)}
    assert names == expected | TOP_FILES


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
