"""Who may ask the server, and what names from a run can do to a page: nothing."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest
import torch

import msprobe
from tests.web.conftest import Served, serve

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog


@pytest.fixture(scope="module")
def cookie(served: Served) -> str:
    """What a browser holds after it opened the printed address."""
    answer = ask(served, "/?" + urlsplit(served.address).query)
    assert answer.status == 303
    cookie = answer.getheader("set-cookie") or ""
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    return cookie.partition(";")[0]


def ask(served: Served, path: str, method: str = "GET", **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(urlsplit(served.origin).netloc, timeout=20)
    connection.putrequest(method, path, skip_host="host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


def test_the_token_opens_and_nothing_else_does(served: Served, cookie: str) -> None:
    assert ask(served, "/", cookie=cookie).status == 200
    assert ask(served, "/api/overview", cookie=cookie).status == 200
    name = cookie.partition("=")[0]
    for wrong in ({}, {"cookie": f"{name}=wrong"}, {"cookie": "other=" + cookie.partition("=")[2]}):
        assert ask(served, "/", **wrong).status == 403
        assert ask(served, "/api/overview", **wrong).status == 403
    assert ask(served, "/?token=wrong").status == 403


def test_only_under_its_own_name(served: Served, cookie: str) -> None:
    port = urlsplit(served.origin).port
    token = parse_qs(urlsplit(served.address).query)["token"][0]
    for host in ("evil.example", f"127.0.0.1.evil.example:{port}", "", "evil.example:80"):
        assert ask(served, f"/?token={token}", host=host).status == 400
        assert ask(served, "/api/overview", host=host, cookie=cookie).status == 400
    assert ask(served, "/api/overview", host=f"localhost:{port}", cookie=cookie).status == 200


def test_other_sites_cannot_ask(served: Served, cookie: str) -> None:
    assert ask(served, "/api/overview", cookie=cookie, origin="http://evil.example").status == 403
    assert ask(served, "/api/overview", "POST", cookie=cookie).status in (403, 405)


@pytest.mark.parametrize(
    "path",
    [
        "/../serving.py",
        "/%2e%2e/serving.py",
        "/..%2fserving.py",
        "/assets/../../serving.py",
        "//etc/passwd",
        "/assets/%00",
        "/api/rows?open=0:99999999",
        "/api/rows?open=x",
        "/api/node?node=-5:0",
        "/api/rows?step=abc",
        "/api/rows?verdicts=nonsense",
        "/api/way?side=z&node=1",
        "/api/minimap?pixels=abc",
    ],
)
def test_no_address_leads_out_or_breaks(served: Served, cookie: str, path: str) -> None:
    assert ask(served, path, cookie=cookie).status in (400, 404)
    assert ask(served, "/api/overview", cookie=cookie).status == 200


def test_every_answer_forbids_what_pages_do_not_need(served: Served, cookie: str) -> None:
    for path in ("/", "/api/overview", "/nothing", "/?token=wrong"):
        answer = ask(served, path, cookie=cookie)
        policy = answer.getheader("content-security-policy") or ""
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.getheader("x-content-type-options") == "nosniff"


HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "\x1b[31mred",
    "\u202eright to left",
    "n" * 10_000,
)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("hostile")
    for name in ("a", "b"):
        torch.manual_seed(0)
        model = torch.nn.Module()
        parts = [torch.nn.Linear(4, 4) for _ in HOSTILE]
        for title, part in zip(HOSTILE, parts, strict=True):
            model.add_module(title.replace(".", "_"), part)
        model.forward = lambda x, parts=parts: sum(part(x) for part in parts)
        with msprobe.record(model, folder / name) as probe:
            model(torch.ones(2, 4) * (1 + (name == "b"))).sum().backward()
            probe.step()
    server = serve(folder / "a", folder / "b")
    yield server
    server.stop()


def test_names_from_a_run_are_text(browser: Browser, hostile: Served) -> None:
    page = browser.new_page()
    happened: list[str] = []

    def note(dialog: Dialog) -> None:
        happened.append("dialog")
        dialog.dismiss()

    page.on("dialog", note)
    page.on("console", lambda message: happened.append(message.text) if message.type == "error" else None)
    page.goto(hostile.address)
    page.wait_for_selector("main")
    page.keyboard.press("2")
    page.wait_for_selector(".node.leaf")
    text = page.locator(".scroller").inner_text()
    assert "<img src=x onerror=alert(1)>" in text
    assert "\\x1b[31mred" in text
    assert "\\u202e" in text
    assert "\u202e" not in text
    assert page.evaluate("document.querySelectorAll('img, main script').length") == 0
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    page.keyboard.press("/")
    page.keyboard.type("nnnn")
    page.wait_for_selector(".hits [role=option]")
    assert happened == []
    page.close()


def test_refusals(runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], served: Served) -> None:
    from msprobe.cli import main

    (tmp_path / "empty").mkdir()
    port = str(urlsplit(served.origin).port)
    for words, said in (
        (["view", str(tmp_path / "nothing")], "no such directory"),
        (["view", str(tmp_path / "empty")], "not a run"),
        (["view", str(runs[0]), "--export", str(tmp_path / "a.html")], "name the run to compare with"),
        (["view", *map(str, runs), "--port", port], "Choose another port"),
        (["view", *map(str, runs), "--export", str(tmp_path)], "is a directory"),
    ):
        assert main(words) == 2
        assert said in capsys.readouterr().err
