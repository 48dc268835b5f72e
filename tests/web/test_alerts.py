"""What the watchers noted while recording stands on the overview, and leads to the trend."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright.sync_api", reason="no playwright: the pages are not looked at")
import torch
from playwright.sync_api import expect

import msprobe
from tests.web.conftest import serve

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser


def record(path: Path, *, spoil: bool) -> Path:
    torch.manual_seed(0)
    last = torch.nn.Linear(8, 8)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), last)
    inputs = torch.randn(3, 4, 8)
    with msprobe.record(model, path, alerts=["nan"]) as probe:
        for step, batch in enumerate(inputs):
            if spoil and step == 1:
                with torch.no_grad():
                    last.bias[0] = float("nan")
            model(batch).square().mean().backward()
            probe.step()
    return path


def test_an_alert_leads_to_its_cell_on_the_trend_page(browser: Browser, tmp_path: Path) -> None:
    server = serve(record(tmp_path / "bad", spoil=True), record(tmp_path / "good", spoil=False))
    page = browser.new_page(viewport={"width": 1440, "height": 900}, locale="en-US")
    page.goto(server.address)
    alert = page.locator(".alerts li").first
    expect(alert).to_contain_text("nan")
    expect(alert).to_contain_text("step 1")
    expect(page.locator(".alerts .badge.r")).to_have_count(0)
    alert.get_by_role("button").click()
    expect(page.locator(".heat canvas")).to_be_visible()
    expect(page).to_have_url(re.compile(r"t\.cell=1\.0\.\d+"))
    page.close()
    server.stop()
