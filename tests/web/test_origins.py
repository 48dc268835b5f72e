"""The panel tells where tensors come from: the code that called, and the ranks that a whole was made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright.sync_api", reason="no playwright: the pages are not looked at")
from playwright.sync_api import expect

from msprobe.core.sites import Role
from msprobe.visualizers.web.origins import source_line
from tests.core.merging.cutting import write_one, write_ranks
from tests.core.merging.model import EDGES, Fault, cut, whole
from tests.web.conftest import Served, serve

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

SIZES = {"dp": 2, "tp": 2}


def test_the_stack_is_read_on_the_page(page: Page) -> None:
    page.locator(".sentence .guilty").click()
    stack = page.locator(".stacks ol").first
    expect(stack.locator("li").first).to_contain_text("return x + self.down(self.act(self.up(self.norm(x))))")
    expect(stack.locator("li").first).to_contain_text("forward")
    expect(stack).to_contain_text("x = layer(x)")
    assert page.locator(".stacks ol").count() == 2


def test_the_data_flow_is_followed_on_and_back(page: Page) -> None:
    page.locator(".sentence .guilty").click()
    steps = page.locator(".flow div").first.locator("li")
    expect(steps.filter(has_text="layers.3.up")).to_contain_text("\u2190")
    expect(steps.filter(has_text="layers.3.down").first).to_be_visible()
    steps.filter(has_text="layers.3.up").get_by_role("button").click()
    expect(page.locator(".panel header .path").first).to_have_attribute("title", "layers.3.up")
    page.keyboard.press("f")
    expect(page.locator(".panel header .path").first).to_have_attribute("title", "layers.3.act")


def test_only_python_files_are_read(tmp_path: Path) -> None:
    code, secret = tmp_path / "model.py", tmp_path / "secret.txt"
    code.write_text("first\n  second\n")
    secret.write_text("secret\n")
    assert source_line(str(code), 2) == "second"
    assert source_line(str(code), 99) == ""
    assert source_line(str(secret), 1) == ""
    assert source_line("model.py", 1) == ""
    assert source_line(f"{tmp_path}\0/model.py", 1) == ""


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("merged")
    fault = Fault("b", Role.PARAMETER, lambda values: values * 1.01, {"dp": 1, "tp": 0})
    many = write_ranks(folder / "many", SIZES, lambda place: cut(SIZES, place, fault), edges=EDGES)
    server = serve(many, write_one(folder / "one", whole(), edges=EDGES))
    yield server
    server.stop()


def test_a_merged_tensor_names_its_ranks(browser: Browser, merged: Served) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 900}, locale="en-US")
    page.goto(merged.address)
    page.wait_for_selector("main")
    page.locator(".sentence .guilty").click()
    origins = page.locator(".origins")
    expect(origins).to_contain_text("join of ranks")
    expect(origins.locator("li.odd").first).to_contain_text("2 (dp 1, tp 0)")
    expect(origins).to_contain_text("replica differs")
    assert origins.locator("li.kept").filter(has_text="tp 1").count() > 0
    assert origins.locator("li.replica").count() > 0
    page.close()
