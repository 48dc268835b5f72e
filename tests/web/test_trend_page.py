"""The trend page on a run of 32 ranks in which one cell goes wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pytest

pytest.importorskip("playwright.sync_api", reason="no playwright: the pages are not looked at")
from playwright.sync_api import expect

from msprobe.core.run.batch import Batch, RankInfo, RunHeader, SiteRow
from msprobe.core.run.writer import RunWriter
from msprobe.core.sites import Direction, Form, Node, NodeKind, Role
from tests.web.conftest import Served, serve

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

PLACES = (
    (Direction.FORWARD, Role.INPUT, "0"),
    (Direction.FORWARD, Role.OUTPUT, "0"),
    (Direction.BACKWARD, Role.GRADIENT, "weight"),
)
PATHS = [f"layers.{i}.{name}" for i in range(20) for name in ("norm", "attn", "up", "down")]
TP, DP, STEPS = 4, 8, 60
#: Where it begins: its output grows from step 41 on and is NaN at step 45; then everything behind it is.
SICK = PATHS.index("layers.7.attn") * 3 + 1
RANK = 13


def write(path: Path) -> Path:
    for rank in range(TP * DP):
        place = {"tp": (rank % TP, TP), "dp": (rank // TP, DP)}
        header = RunHeader(framework="simulated")
        what = frozenset({"statistics"})
        writer = RunWriter(path, rank=RankInfo(rank, TP * DP, place), header=header, what=what)
        generator = np.random.default_rng(rank)
        for step in range(STEPS):
            writer.submit(batch(generator, rank, step))
        writer.close()
        assert writer.failure is None
    return path


def batch(generator: np.random.Generator, rank: int, step: int) -> Batch:
    count = 3 * len(PATHS)
    made = Batch(step)
    if step == 0:
        made.nodes = [Node(path, NodeKind.MODULE, "Linear", None) for path in PATHS]
        made.sites = [SiteRow(i // 3, *PLACES[i % 3], 0) for i in range(count)]
        made.forms = [Form("bf16", (64,))]
    norm = (1 + np.arange(count) % 17) * np.exp(0.02 * generator.standard_normal(count))
    counts = {name: np.zeros(count, np.int64) for name in ("nan", "pos_inf", "neg_inf", "zero")}
    if rank == RANK and 41 <= step < 45:
        norm[SICK] *= 2.0 ** (step - 40)
    if rank == RANK and step >= 45:
        counts["nan"][SICK:] = 2
    made.records = {
        "seq": np.arange(step * count, (step + 1) * count),
        "step": np.full(count, step),
        "micro_step": np.zeros(count),
        "site": np.arange(count),
        "form": np.zeros(count),
        "status": np.zeros(count),
        "has": np.ones(count),
        "tensor": np.full(count, -1),
        "norm": norm,
        "min": -norm / 9,
        "max": norm / 9,
        "mean": norm / 99,
        "mean_abs": norm / 20,
        "m2": norm**2,
        **counts,
    }
    return made


@pytest.fixture(scope="module")
def trends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = serve(write(tmp_path_factory.mktemp("trend") / "run"))
    yield server
    server.stop()


@pytest.fixture
def page(browser: Browser, trends: Served) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, locale="en-US")
    visited = context.new_page()
    complaints: list[str] = []
    visited.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    visited.on("pageerror", lambda error: complaints.append(str(error)))
    visited.goto(trends.address)
    expect(visited.locator(".anomalies:not(.scan) li").first).to_be_visible()
    expect(visited.locator(".scan .said")).to_be_visible()
    expect(visited.locator(".legend-line")).to_be_visible()
    yield visited
    context.close()
    assert complaints == []


def readout(page: Page) -> str:
    return page.locator(".trend .readout").inner_text()


def test_the_sick_cell_is_the_first_thing_listed_and_one_click_away(page: Page) -> None:
    first = page.locator(".anomalies:not(.scan) li").first
    expect(first).to_contain_text("layers.7.attn")
    expect(first).to_contain_text("NaN")
    expect(first).to_contain_text("step 45")
    expect(first).to_contain_text(f"rank {RANK}")
    first.locator("button").click()
    expect(page.locator(".trend .readout")).to_contain_text("layers.7.attn")
    assert "tp 1" in readout(page)
    assert "dp 3" in readout(page)
    expect(page.locator(".chart canvas")).to_be_visible()


def test_the_sentence_comes_first_and_leads_to_the_cell(page: Page) -> None:
    said = page.locator(".scan .said")
    expect(said).to_contain_text("At step 45, rank 13, the output of layers.7.attn")
    page.locator(".scan li button").first.click()
    expect(page.locator(".trend .readout")).to_contain_text("NaN, made here")
    expect(page.locator(".third label")).to_contain_text(f"rank {RANK}")


def test_the_departure_before_it_is_listed_too(page: Page) -> None:
    listed = page.locator(".anomalies li").filter(has_text="layers.7.attn").filter(has_text="outside")
    expect(listed.first).to_be_visible()


def test_one_bad_cell_keeps_its_colour_however_small(page: Page) -> None:
    page.get_by_label("axes").select_option("rank-site")
    page.wait_for_timeout(500)
    assert pixels_like(page, (181, 18, 95)) > 0
    expect(page.locator(".states")).to_contain_text("NaN")


def pixels_like(page: Page, colour: tuple[int, int, int]) -> int:
    """Counts pixels of the heat map near a colour, mixed with the ground or not."""
    count = """([r, g, b]) => {
      const canvas = document.querySelector('.heat canvas');
      const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
      let n = 0;
      for (let i = 0; i < data.length; i += 4)
        if (data[i] - data[i + 1] > 0.3 * (r - g) && data[i] - data[i + 2] > 0.3 * (r - b)
            && data[i + 2] > data[i + 1]) n++;
      return n;
    }"""
    return int(page.evaluate(count, list(colour)))


def test_metric_statistic_colour_and_address(page: Page) -> None:
    page.get_by_label("metric").select_option("gradient before reduction")
    page.get_by_label("statistic").select_option("max")
    page.get_by_role("radio", name="log").click()
    expect(page).to_have_url(re.compile(r"t\.kind=gradient.*t\.stat=max|t\.stat=max.*t\.kind=gradient"))
    address = page.url
    other = page.context.new_page()
    other.goto(address)
    expect(other.get_by_label("metric")).to_have_value("gradient before reduction")
    expect(other.get_by_label("statistic")).to_have_value("max")
    other.close()


def test_hovering_reads_and_clicking_selects(page: Page) -> None:
    box = page.locator(".heat").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 500, box["y"] + 60)
    expect(page.locator(".trend .readout")).to_contain_text("step")
    page.mouse.click(box["x"] + 500, box["y"] + 60)
    expect(page).to_have_url(re.compile("t.cell="))
    before = page.url
    page.keyboard.press("ArrowRight")
    expect(page).not_to_have_url(before)


def test_a_drag_zooms_and_whole_goes_back(page: Page) -> None:
    box = page.locator(".heat").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 400, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 700, box["y"] + 200, steps=4)
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"t\.steps=\d+-\d+"))
    page.get_by_role("button", name="whole").first.click()
    expect(page).not_to_have_url(re.compile(r"t\.steps="))


def test_pins_overlay_and_go(page: Page) -> None:
    page.locator(".anomalies:not(.scan) li button").first.click()
    page.get_by_role("button", name="pin").click()
    box = page.locator(".heat").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 400, box["y"] + 30)
    expect(page.locator(".keys-of-lines li")).to_have_count(2)
    page.locator(".keys-of-lines button").last.click()
    expect(page.locator(".keys-of-lines li")).to_have_count(1)


def test_the_slider_fixes_the_third_axis(page: Page) -> None:
    page.keyboard.press("]")
    expect(page.locator(".third label")).to_contain_text("rank 0")
    page.keyboard.press("[")
    expect(page.locator(".third label")).to_contain_text("all")


def test_the_mesh_selects_a_rank(page: Page) -> None:
    page.locator(".mesh rect").nth(RANK).click()
    expect(page.locator(".third label")).to_contain_text(f"rank {RANK}")


def test_search_narrows_the_rows(page: Page) -> None:
    page.keyboard.press("/")
    page.keyboard.type("layers.7.")
    expect(page).to_have_url(re.compile("t.find=layers.7."))
