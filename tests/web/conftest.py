"""A real comparison of two real trainings, served by the real command, looked at with a real Chromium."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytest.importorskip("torch", reason="no torch: no run to look at")
import torch

from msprobe.visualizers.web.app import PAGES

_NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((path for name in _NAMES if (path := shutil.which(name))), "")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.up = torch.nn.Linear(16, 32)
        self.act = torch.nn.GELU()
        self.down = torch.nn.Linear(32, 16)

    def forward(self, x):
        return x + self.down(self.act(self.up(self.norm(x))))


class Model(torch.nn.Module):
    """Six like layers between an embedding and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(50, 16)
        self.layers = torch.nn.ModuleList(Block() for _ in range(6))
        self.head = torch.nn.Linear(16, 50)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def train(path: Path, fault: str = "") -> Path:
    """Trains three steps; with a fault, the activation of layer 3 is another function."""
    import msprobe

    torch.manual_seed(0)
    model = Model()
    if fault:
        model.layers[3].act = torch.nn.ReLU()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = torch.randint(0, 50, (3, 4, 8), generator=torch.Generator().manual_seed(1))
    with msprobe.record(model, path, optimizer=optimizer, stacks=True):
        for batch in batches:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch).flatten(0, 1), batch.flatten()).backward()
            optimizer.step()
    return path


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("runs")
    return train(folder / "faulty", "relu"), train(folder / "right")


@dataclass(frozen=True)
class Served:
    """A server under way, and the address that it printed."""

    address: str
    process: subprocess.Popen[str]

    @property
    def origin(self) -> str:
        return self.address.partition("/?")[0]

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=20)


def without(what: str) -> NoReturn:
    """Skips, loudly, or fails where everything must be there."""
    if os.environ.get("MSPROBE_REQUIRE_BROWSER"):
        pytest.fail(f"no {what}, and MSPROBE_REQUIRE_BROWSER is set")
    pytest.skip(f"no {what}: the pages are not looked at")


def serve(*arguments: str | Path) -> Served:
    """Starts ``msprobe view`` and waits for its address."""
    if not (PAGES / "index.html").is_file():
        without("built pages (make web)")
    process = subprocess.Popen(
        [sys.executable, "-m", "msprobe", "view", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    said = ""
    assert process.stdout is not None
    for line in process.stdout:
        said += line
        found = re.search(r"http://\S+", line)
        if found:
            return Served(found[0], process)
    raise AssertionError(f"msprobe view ended: {said}")


@pytest.fixture(scope="session")
def served(runs: tuple[Path, Path]) -> Iterator[Served]:
    server = serve(*runs)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: the pages are not looked at")
    if not CHROMIUM:
        without("Chromium")
    playwright.expect.set_options(timeout=30_000)  # machines that run tests are busy
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Browser, served: Served) -> Iterator[Page]:
    """A fresh visitor on the first page; whatever the browser complains about fails the test."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, locale="en-US")
    visited = context.new_page()
    complaints: list[str] = []
    visited.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    visited.on("pageerror", lambda error: complaints.append(str(error)))
    visited.goto(served.address)
    visited.wait_for_selector("main")
    yield visited
    context.close()
    assert complaints == []
