"""Measures the graph page with 100,000 nodes a side in a real Chromium: ``python -m benchmarks.pages``.

First paint is from the address to the sentence and the strip on the screen. Expanding and searching are from the click,
or the last letter, to the frame that shows the answer. Frame times are of a scroll through some thousand open rows.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.wide_moe import FAULT_NODE, Width, nodes_of, write_wide_run

if TYPE_CHECKING:
    from playwright.sync_api import Page

MOST_FIRST_PAINT, MOST_EXPAND, MOST_SEARCH = 2000.0, 100.0, 200.0
MOST_BYTES = 10**9
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")
WORDS = ("down_proj", "layers.150.mlp.router", "linear", "l17e9down")

_SHOWN = "() => document.querySelector('.sentence') && document.querySelector('.strip svg .cell')"

#: Clicks, or types, and gives the milliseconds until the number or text of something has changed and is painted.
_UNTIL_CHANGED = """async ([act, watched, text]) => {
  const state = () => [...document.querySelectorAll(watched)].map((e) => e.textContent).join("|");
  const before = state();
  const start = performance.now();
  if (text === null) document.querySelector(act).click();
  else {
    const input = document.querySelector(act);
    input.value = text;
    input.dispatchEvent(new Event("input", { bubbles: true }));
  }
  while (state() === before && performance.now() - start < 20000)
    await new Promise((next) => requestAnimationFrame(next));
  await new Promise((next) => requestAnimationFrame(next));
  return performance.now() - start;
}"""

_MARK_NEXT = """() => {
  const bottom = document.querySelector(".node.side-c.selected").getBoundingClientRect().bottom;
  const below = [...document.querySelectorAll(".node.side-c.container")].filter(
    (e) => e.getBoundingClientRect().top >= bottom - 2);
  below.sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top);
  below[0].querySelector(".fold").setAttribute("data-next", "");
}"""

_SCROLL = """async (frames) => {
  const scroller = document.querySelector(".scroller");
  scroller.scrollTop = 0;
  const times = [];
  let last = await new Promise(requestAnimationFrame);
  for (let i = 0; i < frames; i++) {
    scroller.scrollTop += 60;
    const now = await new Promise(requestAnimationFrame);
    times.push(now - last);
    last = now;
  }
  return times.sort((a, b) => a - b);
}"""


@dataclass(frozen=True, slots=True)
class Served:
    """A server under way, and the address that it printed."""

    process: subprocess.Popen[str]
    address: str
    seconds: float

    def memory(self, name: str) -> int:
        """Gives bytes of memory: ``VmRSS`` now, ``VmHWM`` at most."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"{name}:\s+(\d+) kB", status)
        return int(found[1]) * 1024 if found else 0


def serve(folder: Path) -> Served:
    """Starts ``msprobe view`` on a saved comparison and waits for its address."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "msprobe", "view", str(folder)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    for line in process.stdout:
        found = re.search(r"http://\S+", line)
        if found:
            return Served(process, found[0], time.perf_counter() - started)
    raise SystemExit("msprobe view ended")


def first_paint(page: Page, address: str) -> float:
    """Opens the address and waits for the overview; milliseconds."""
    started = time.perf_counter()
    page.goto(address)
    page.wait_for_function(_SHOWN)
    return 1000 * (time.perf_counter() - started)


def expand(page: Page, layer: int) -> float:
    """Opens all experts of a layer; milliseconds from the click to the picture."""
    page.locator(".search input").fill(f"layers.{layer}.mlp.router")
    page.locator(".hits [role=option]").first.click()
    page.locator(".node.side-c.selected").wait_for()
    page.wait_for_timeout(300)
    # The experts come right behind the router.
    page.evaluate(_MARK_NEXT)
    taken: float = page.evaluate(_UNTIL_CHANGED, ["[data-next]", ".node.side-c .name", None])
    page.evaluate("document.querySelector('[data-next]')?.removeAttribute('data-next')")
    return taken


def search(page: Page, text: str) -> float:
    """Types a text at once; milliseconds until the hits stand there."""
    page.locator(".search input").fill("")
    page.wait_for_selector(".hits", state="detached")
    taken: float = page.evaluate(_UNTIL_CHANGED, [".search input", ".hits [role=option], .hits .total", text])
    page.locator(".search input").fill("")
    return taken


def measure(folder: Path, chromium: str) -> dict[str, Any]:
    """Serves a saved comparison, looks at it, and gives what was measured."""
    from playwright.sync_api import sync_playwright

    served = serve(folder)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
            page = browser.new_page(viewport={"width": 1440, "height": 900}, locale="en-US")
            found: dict[str, Any] = {
                "server ready (s)": served.seconds,
                "first paint": first_paint(page, served.address),
            }
            guilty = page.locator(".sentence .guilty").inner_text()
            page.keyboard.press("2")
            page.wait_for_selector(".node")
            found["expand"] = median(expand(page, layer) for layer in range(20, 160, 20))
            found["search"] = {word: median(search(page, word) for _ in range(5)) for word in WORDS}
            frames = page.evaluate(_SCROLL, 120)
            found["frames"] = {"median": frames[60], "95 %": frames[114], "worst": frames[-1]}
            found["guilty"] = guilty
            browser.close()
        found["bytes now"], found["bytes at most"] = served.memory("VmRSS"), served.memory("VmHWM")
    finally:
        served.process.terminate()
        served.process.wait()
    return found


def write_comparison(folder: Path, width: Width) -> Path:
    """Writes both runs, compares them, and gives the folder of the comparison."""
    sides = [write_wide_run(folder / side, width, side=side) for side in ("candidate", "reference")]
    out = folder / "report"
    command = [sys.executable, "-m", "msprobe", "compare", *map(str, sides), "--out", str(out), "--quiet"]
    subprocess.run(command, check=False)
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; returns 1 when a limit is broken or the fault is not found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pages", description=__doc__)
    parser.add_argument("--layers", type=int, default=Width().layers)
    parser.add_argument("--experts", type=int, default=Width().experts)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--comparison", type=Path, help="a comparison that was made before")
    arguments = parser.parse_args(argv)
    width = Width(arguments.layers, arguments.experts)
    with tempfile.TemporaryDirectory(prefix="pages-") as folder:
        found = measure(arguments.comparison or write_comparison(Path(folder), width), arguments.chromium)
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    print(f"{len(nodes_of(width))} nodes a side; {load:.1f} processes waiting for each core; milliseconds are medians")
    for name, value in found.items():
        print(f"{name}: {value}")
    good = found["first paint"] <= MOST_FIRST_PAINT and found["expand"] <= MOST_EXPAND
    good = good and max(found["search"].values()) <= MOST_SEARCH and found["bytes at most"] <= MOST_BYTES
    return 0 if good and FAULT_NODE.endswith(found["guilty"]) else 1


if __name__ == "__main__":
    sys.exit(main())
