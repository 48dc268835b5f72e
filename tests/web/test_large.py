"""A wide model: the fault is found at once, and only what is in view is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright.sync_api", reason="no playwright: the pages are not looked at")
from playwright.sync_api import expect

from benchmarks.wide_moe import FAULT_NODE, Width, nodes_of, write_wide_run
from tests.web.conftest import Served, serve

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

WIDTH = Width(layers=12, experts=40)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("wide")
    server = serve(*(write_wide_run(folder / side, WIDTH, side=side) for side in ("candidate", "reference")))
    yield server
    server.stop()


def test_the_fault_in_a_wide_model_is_one_click_away(page: Page) -> None:
    assert len(nodes_of(WIDTH)) > 2000
    page.locator(".sentence .guilty").click()
    expect(page.locator(".panel header .path").first).to_have_attribute("title", FAULT_NODE)
    chosen = page.locator(".node.side-c.selected")
    expect(chosen).to_be_in_viewport()
    assert "w-introduced" in (chosen.get_attribute("class") or "")


def test_only_what_is_in_view_is_drawn(page: Page) -> None:
    everything = ",".join(f"{node}:{node}" for node in range(len(nodes_of(WIDTH))))
    page.evaluate("(open) => { location.hash = `#/graph?step=0&open=${open}` }", everything)
    expect(page.locator(".node.side-c").filter(has_text="input_layernorm").first).to_be_visible()
    rows = page.evaluate("document.querySelector('.canvas').clientHeight / 26")
    assert rows > 1500
    assert page.locator(".node.side-c").count() < 80
    page.evaluate("document.querySelector('.scroller').scrollTop = 1e9")
    expect(page.locator(".node.side-c").filter(has_text="down_proj").last).to_be_in_viewport()
    assert page.locator(".node.side-c").count() < 80


def test_letters_in_order_find_and_the_closest_is_first(page: Page) -> None:
    page.keyboard.press("2")
    page.locator(".search input").fill("l7e31dwn")
    expect(page.locator(".hits [role=option]").first).to_contain_text("layers.7.mlp.experts.31.down_proj")
    page.locator(".search input").fill("router")
    expect(page.locator(".hits .total")).to_contain_text(f"{WIDTH.layers} found")


@pytest.fixture
def page(browser: Browser, served: Served) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, locale="en-US")
    visited = context.new_page()
    visited.goto(served.address)
    visited.wait_for_selector("main")
    yield visited
    context.close()
