"""Nodes matched by hand: judged at once, undone, saved, and read by the command line with the same result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

pytest.importorskip("playwright.sync_api", reason="no playwright: the pages are not looked at")
from playwright.sync_api import expect

import msprobe
from tests.web.conftest import Served, serve

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page


class Packed(torch.nn.Linear):
    """Of another class than its parts, as engines have it: order alone says nothing."""


class Attention(torch.nn.Module):
    """Query, key and value as one layer or as three, with the same weights."""

    def __init__(self, *, fused: bool) -> None:
        super().__init__()
        parts = [torch.nn.Linear(16, 16) for _ in range(3)]
        self.out = torch.nn.Linear(16, 16)
        if fused:
            with torch.random.fork_rng(), torch.no_grad():
                self.pack = Packed(16, 48)
                self.pack.weight.copy_(torch.cat([part.weight for part in parts]))
                self.pack.bias.copy_(torch.cat([part.bias for part in parts]))
        else:
            self.query, self.key, self.value = parts
        self.fused = fused

    def forward(self, x):
        q, k, v = self.pack(x).chunk(3, dim=-1) if self.fused else (self.query(x), self.key(x), self.value(x))
        return x + self.out(torch.softmax(q @ k.transpose(-1, -2), dim=-1) @ v)


def record(path: Path, *, fused: bool) -> Path:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(Attention(fused=fused) for _ in range(3)))
    with msprobe.record(model, path, what="statistics,sketch,tensors") as probe:
        model(torch.randn(2, 5, 16)).square().mean().backward()
        probe.step()
    return path


@pytest.fixture
def story(tmp_path: Path) -> Iterator[tuple[Served, Path, Path, Path]]:
    candidate, reference = record(tmp_path / "vllm", fused=True), record(tmp_path / "trainer", fused=False)
    saved, start = tmp_path / "layers.yaml", tmp_path / "start.yaml"
    start.write_text("version: 1\nautomatic: false\nrules: []\n")  # else the contents would pair what is fused
    server = serve(candidate, reference, "--mapping", start, "--save", saved)
    yield server, candidate, reference, saved
    server.stop()


@pytest.fixture
def page(browser: Browser, story: tuple[Served, Path, Path, Path]) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, locale="en-US")
    visited = context.new_page()
    visited.goto(story[0].address)
    visited.wait_for_selector("main")
    visited.keyboard.press("2")
    if not node(visited, "c", "pack").is_visible():
        node(visited, "c", "0").locator(".fold").click()
    expect(node(visited, "c", "pack")).to_be_visible()
    yield visited
    context.close()


def node(page: Page, side: str, name: str) -> Locator:
    return page.locator(f".node.side-{side}").filter(has=page.get_by_text(name, exact=True)).first


def match_all(page: Page) -> None:
    node(page, "c", "pack").click()
    for name in ("query", "key", "value"):
        node(page, "r", name).click()
    page.locator(".tray .do").click()
    expect(page.locator(".hand-tools")).to_be_visible()


def test_matched_by_hand_saved_and_read_by_the_command_line(page: Page, story: tuple[Served, Path, Path, Path]) -> None:
    _, candidate, reference, saved = story
    assert "alone" in (node(page, "c", "pack").get_attribute("class") or "")
    match_all(page)
    matched = node(page, "c", "pack")
    expect(matched.locator("> .glyph.v-equal, > .glyph.v-normal")).to_be_visible()
    expect(node(page, "r", "query+key+value")).to_be_visible()
    expect(page.locator(".between .reason").filter(has_text="by hand").first).to_be_visible()
    page.locator(".hand-tools .wide").click()
    expect(page.locator(".review .added").first).to_be_visible()
    page.locator(".review .do").click()
    expect(page.locator(".review")).to_contain_text("saved to")
    assert "candidate: '{i}.pack'" in saved.read_text()
    assert "- '{i}.query'" in saved.read_text()
    comparison = msprobe.compare(candidate, reference, mapping=saved)
    pairs = comparison.pairs
    outputs = (pairs["candidate_node"] == "2.pack") & (pairs["role"] == "output") & (pairs["direction"] == "forward")
    assert set(pairs["verdict"][outputs]) <= {"equal", "normal"}
    assert outputs.any()
    page.keyboard.press("Escape")
    page.keyboard.press("1")
    expect(page.locator(".sentence")).to_have_text(comparison.summary.sentence)


def test_undo_redo_and_another_reader_sees_nothing_of_it(page: Page, story: tuple[Served, Path, Path, Path]) -> None:
    match_all(page)
    other = page.context.new_page()
    other.goto(page.url)
    expect(other.locator(".node.side-c").first).to_be_visible()
    assert other.locator(".hand-tools").count() == 0
    other.close()
    page.keyboard.press("z")
    expect(page.locator(".node.side-c.alone").filter(has_text="pack").first).to_be_visible()
    page.keyboard.press("Z")
    expect(page.locator(".node.side-c.alone").filter(has_text="pack")).to_have_count(0)


def test_a_pair_is_taken_apart(page: Page) -> None:
    node(page, "c", "out").click()
    page.get_by_role("button", name="unmatch", exact=True).click()
    expect(page.locator(".node.side-c.alone").filter(has_text="out").first).to_be_visible()
    expect(page.locator(".node.side-r.alone").filter(has_text="out").first).to_be_visible()


def test_what_cannot_be_is_said_and_changes_nothing(page: Page) -> None:
    node(page, "c", "pack").click()
    node(page, "r", "query").click()
    page.locator(".tray .chip").first.click()
    expect(page.locator(".tray .do")).to_be_disabled()


def test_the_list_of_unmatched_suggests_and_one_button_matches(page: Page) -> None:
    node(page, "c", "out").click()
    page.get_by_role("button", name="unmatch", exact=True).click()
    expect(page.locator(".node.side-c.alone").filter(has_text="out").first).to_be_visible()
    page.locator(".heads button").first.click()
    suggested = page.locator(".unmatched ul").first.locator("li")
    expect(suggested.first).to_contain_text("0.out")
    expect(suggested.first).to_contain_text("confidence 1.00: class, container, name, shape")
    count = suggested.count()
    suggested.first.get_by_role("button", name="match").click()
    expect(suggested).not_to_have_count(count)
    page.keyboard.press("Escape")
    expect(page.locator(".unmatched")).to_have_count(0)
    expect(page.locator(".node.side-c.alone").filter(has_text="out")).to_have_count(0)
