"""Starts training processes, each in the environment of its tool, and asks them for steps."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

PEER = "mindstudio-probe==26.2.0"
_WORKER = Path(__file__).with_name("worker.py")
_PEER_FOLDER = Path(".venvs/peer-26.2.0")
#: What a step writes that need not stay for the benchmark.
_BULKY = (".pt", ".safetensors")


class Process:
    """One training under one tool, in a process of its own that waits between commands."""

    def __init__(self, tool: str, size: tuple[int, int, int], folder: Path, options: dict[str, Any]) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        self.folder = folder
        self._deleted = 0
        is_peer = tool.startswith("mindstudio")
        python = str(peer_python()) if is_peer else sys.executable
        # The peer's package has our name: it must not find ours first.
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH" or not is_peer}
        task = {"tool": tool, "size": size, "folder": str(folder), "options": options}
        self._process = subprocess.Popen(
            [python, "-W", "ignore", str(_WORKER), json.dumps(task)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if is_peer else None,
            text=True,
            env={**environment, "OMP_NUM_THREADS": "1"},
        )

    def ask(self, command: str) -> dict[str, Any]:
        """Sends a command and waits for the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the training with output in {self.folder} ended early")
        found: dict[str, Any] = json.loads(answer)
        return found

    def written(self) -> int:
        """Gives how many bytes lie on disk since the start; takes away what would fill it."""
        # A shard under way has a hidden name, and gets its own at the end.
        files = [file for file in self.folder.rglob("[!.]*") if file.is_file()]
        sizes = {file: file.stat().st_size for file in files}
        for file, size in sizes.items():
            if file.suffix in _BULKY:
                file.unlink()
                self._deleted += size
        return self._deleted + sum(size for file, size in sizes.items() if file.suffix not in _BULKY)

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def peer_python() -> Path:
    """Gives the interpreter of the peer's own environment, which the first call makes."""
    python = _PEER_FOLDER / "bin/python"
    done = _PEER_FOLDER / ".installed"
    if not done.exists():
        print(f"installing {PEER} into {_PEER_FOLDER} (once; minutes)", file=sys.stderr)
        versions = [f"{name}=={_version(name)}" for name in ("torch", "transformers")]
        subprocess.run([sys.executable, "-m", "venv", str(_PEER_FOLDER)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *versions, PEER], check=True)
        done.touch()
    return python


def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)
