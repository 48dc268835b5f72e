"""What a person does on the pages, in a real Chromium."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright.sync_api", reason="no playwright: the pages are not looked at")
from playwright.sync_api import expect

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from tests.web.conftest import Served

GUILTY = "layers.3.act"


def selected(page: Page) -> str:
    """Gives the path in the head of the panel."""
    return page.locator(".panel header .path").first.get_attribute("title") or ""


def expect_selected(page: Page, path: str) -> None:
    expect(page.locator(".panel header .path").first).to_have_attribute("title", path)


def test_the_overview_answers_first(page: Page) -> None:
    assert GUILTY in page.locator(".sentence").inner_text()
    assert "introduced · 1 source" in page.locator(".bar .pill").inner_text()
    assert page.locator(".meter").filter(has_text="Matched").get_by_text("100 %").is_visible()
    assert page.locator(".source .ruler").count() >= 2
    cell = page.locator(".strip .cell").filter(has=page.locator("rect.cell-introduced")).first
    cell.hover()
    assert "introduced" in page.locator(".strip .readout").inner_text()


def test_the_guilty_node_is_one_click_away(page: Page) -> None:
    page.locator(".sentence .guilty").click()
    page.wait_for_selector(".panel .pairs")
    assert selected(page) == GUILTY
    assert page.locator(".node.side-c.selected .name").inner_text() == "act"
    look = page.locator(".pairs tr.look.first")
    assert "output 0" in look.first.inner_text()


def test_a_red_child_is_visible_from_the_top(page: Page) -> None:
    page.keyboard.press("2")
    page.wait_for_selector(".node")
    root = page.locator(".node.side-c").first
    assert root.locator(".chips .v-introduced").count() == 1
    assert "w-introduced" in (root.get_attribute("class") or "")


def test_containers_open_and_close_on_both_sides(page: Page) -> None:
    page.keyboard.press("2")
    layer = page.locator(".node.side-c.container").filter(has_text="Block").first
    layer.wait_for()
    before = page.locator(".node.side-c").count(), page.locator(".node.side-r").count()
    layer.locator(".fold").click()
    expect(page.locator(".node.side-r")).not_to_have_count(before[1])
    assert page.locator(".node.side-c").count() > before[0]
    layer.locator(".fold").click()
    expect(page.locator(".node.side-r")).to_have_count(before[1])


def test_from_the_node_to_its_trend_and_back(page: Page) -> None:
    page.locator(".sentence .guilty").click()
    page.get_by_role("button", name="Trend of this node").click()
    expect(page.locator(".heat canvas")).to_be_visible()
    expect(page).to_have_url(re.compile("t.find=layers.3.act"))
    expect(page.locator(".anomalies").filter(has_text="Where the runs part")).to_contain_text("layers.3.act")
    page.locator(".anomalies li button").filter(has_text="layers.3.act").first.click()
    page.get_by_role("button", name="Open in graph").click()
    expect_selected(page, GUILTY)


def test_a_link_says_the_same_and_back_goes_back(page: Page, browser: Browser, served: Served) -> None:
    page.locator(".sentence .guilty").click()
    page.wait_for_selector(".panel .pairs")
    address = page.url
    other = page.context.new_page()
    other.goto(address)
    other.wait_for_selector(".panel .pairs")
    assert selected(other) == GUILTY
    other.close()
    page.go_back()
    page.wait_for_selector(".sentence")


def test_search_finds_and_reveals(page: Page) -> None:
    page.keyboard.press("2")
    page.wait_for_selector(".node")
    page.keyboard.press("/")
    page.keyboard.type("5.down")
    page.wait_for_selector(".hits [role=option]")
    assert "layers.5.down" in page.locator(".hits [role=option]").first.inner_text()
    page.keyboard.press("Enter")
    expect_selected(page, "layers.5.down")
    assert page.locator(".node.side-c.selected").is_visible()


def test_fuzzy_search(page: Page) -> None:
    page.keyboard.press("2")
    page.wait_for_selector(".node")
    page.keyboard.press("/")
    page.keyboard.type("l4nrm")
    page.wait_for_selector(".hits [role=option]")
    assert "layers.4.norm" in page.locator(".hits [role=option]").first.inner_text()


def test_filters_keep_what_fits_and_what_holds_it(page: Page) -> None:
    page.keyboard.press("2")
    page.wait_for_selector(".node")
    page.get_by_label("verdicts").select_option("introduced")
    expect(page.locator(".node.side-c").filter(has_text="embed")).to_have_count(0)
    names = page.locator(".node.side-c .name").all_inner_texts()
    assert "act" in names
    assert "layers" in names
    assert "norm" not in names


def test_steps_by_key_and_their_history(page: Page) -> None:
    page.locator(".sentence .guilty").click()
    page.wait_for_selector(".history")
    page.keyboard.press("]")
    expect(page).to_have_url(re.compile("step=1"))
    assert page.locator(".history g").count() == 3
    page.keyboard.press("[")
    expect(page).to_have_url(re.compile("step=0"))


def test_arrows_walk_and_the_panel_follows(page: Page) -> None:
    page.locator(".sentence .guilty").click()
    page.wait_for_selector(".panel .pairs")
    page.keyboard.press("ArrowDown")
    expect_selected(page, "layers.3.down")
    page.keyboard.press("ArrowLeft")
    expect_selected(page, "layers.3")


def test_the_way_to_a_node_is_clickable(page: Page) -> None:
    page.locator(".sentence .guilty").click()
    expect_selected(page, GUILTY)
    assert page.locator(".crumbs").inner_text().split() == [
        "(root)",
        "\u203a",
        "layers",
        "\u203a",
        "3",
        "\u203a",
        "act",
    ]
    page.locator(".crumbs button").filter(has_text="3").click()
    expect_selected(page, "layers.3")


def test_the_table_sorts_by_error(page: Page) -> None:
    page.locator(".sentence .guilty").click()
    page.wait_for_selector(".panel .pairs")
    page.locator(".pairs .sort").last.click()
    first = page.locator(".pairs tr.first td.n.mono").nth(5)
    assert first.inner_text() not in ("0", "\u2013")


def test_theme_language_and_the_list_of_keys(page: Page) -> None:
    theme = page.evaluate("document.documentElement.dataset.theme")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") != theme
    page.keyboard.press("l")
    page.get_by_text("覆盖率").first.wait_for()
    page.keyboard.press("?")
    page.wait_for_selector("dialog.keys")
    page.keyboard.press("Escape")
    assert page.locator("dialog.keys").count() == 0


@pytest.mark.parametrize("size", [(1280, 720), (2560, 1440), (3840, 2160)])
def test_nothing_overflows(page: Page, size: tuple[int, int]) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    for key in ("1", "2"):
        page.keyboard.press(key)
        page.wait_for_timeout(100)
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0


def test_one_file_for_sharing(browser: Browser, runs: tuple[Path, Path], tmp_path: Path) -> None:
    from msprobe.cli import main

    out = tmp_path / "report.html"
    assert main(["view", *map(str, runs), "--export", str(out)]) == 0
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(out.as_uri())
    page.wait_for_selector(".sentence")
    page.keyboard.press("n")
    page.wait_for_selector(".panel .pairs")
    assert selected(page) == GUILTY
    page.keyboard.press("/")
    page.keyboard.type("layers.5.up")
    page.locator(".hits [role=option]").first.click()
    expect_selected(page, "layers.5.up")
    assert asked == [out.as_uri()]
    page.close()
