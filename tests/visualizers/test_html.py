import base64
import hashlib
import json
import math
import re
import shutil
import subprocess
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest

from msprobe.core.comparison import Comparison
from msprobe.visualizers import html as page_module
from msprobe.visualizers.html import Html
from msprobe.visualizers.page import payload as payload_module
from msprobe.visualizers.page.markup import prose
from msprobe.visualizers.page.ruler import Scale
from tests.visualizers.conftest import HOSTILE, make_comparison

CSS = Path(page_module.__file__).with_name("page") / "page.css"


class Page(HTMLParser):
    """Collects elements, their attributes and the text of style and script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.blocks: dict[str, list[str]] = {"style": [], "script": []}
        self.text: list[str] = []
        self.inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.inside = tag

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside in self.blocks:
            self.blocks[self.inside].append(data)
        else:
            self.text.append(data)


def rows_of(text: str) -> dict[str, object]:
    document: dict[str, object] = json.loads(Page(text).blocks["script"][0], parse_constant=pytest.fail)
    return document


def test_the_story_reads_without_script(introduced: Comparison) -> None:
    text = " ".join(Page(Html().render(introduced)).text)
    assert "The first error that rounding does not explain" in text
    assert "126 of 128 records" in text
    assert "rank 3 is only in the reference" in text


CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
SWITCHES = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--disable-quic")  # fmt: skip


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_a_browser_fills_the_table_under_the_policy(
    introduced: Comparison, hostile: Comparison, tmp_path: Path
) -> None:
    for name, comparison, rows in (("introduced", introduced, 100), ("hostile", hostile, 46)):
        page = tmp_path / f"{name}.html"
        page.write_text(Html().render(comparison), encoding="utf-8")
        command = [str(CHROMIUM), *SWITCHES, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
        tags = [attributes.get("class") or "" for tag, attributes in Page(done.stdout).tags if tag == "tr"]
        assert sum(classes.startswith("row ") for classes in tags) == rows
        assert not [tag for tag, _ in Page(done.stdout).tags if tag == "img"]


def test_the_policy_admits_the_own_style_and_script_only(introduced: Comparison) -> None:
    page = Page(Html().render(introduced))
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy") or ""
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for block in (page.blocks["style"][0], page.blocks["script"][-1]):
        digest = base64.b64encode(hashlib.sha256(block.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_nothing_is_fetched(introduced: Comparison) -> None:
    page = Page(Html().render(introduced))
    assert not {"link", "img", "iframe", "object", "base", "form", "a"} & {tag for tag, _ in page.tags}
    assert not [a for _, a in page.tags if {"src", "href", "style", "action"} & set(a)]
    assert not [name for _, a in page.tags for name in a if name.startswith("on")]
    assert not re.search(r"url\((?!#)|@import", page.blocks["style"][0])


def test_text_of_a_stranger_is_no_markup(hostile: Comparison, introduced: Comparison) -> None:
    tame, page = Page(Html().render(introduced)), Page(Html().render(hostile))
    assert len(page.blocks["script"]) == len(tame.blocks["script"]) == 2
    assert {tag for tag, _ in page.tags} <= {tag for tag, _ in tame.tags}
    assert any(HOSTILE[:20] in text for text in page.text)
    assert "\x1b" not in Html().render(hostile)


def test_the_four_states_of_a_number_reach_the_table(introduced: Comparison) -> None:
    columns = rows_of(Html().render(introduced))["columns"]
    assert isinstance(columns, dict)
    assert {"+Inf", None, 0} <= set(columns["error"])
    assert {"NaN", None, -3.5} <= set(columns["candidate_min"])


def test_only_the_worst_are_embedded_and_it_is_said(introduced: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_module, "MOST_ROWS", 10)
    monkeypatch.setattr(page_module, "MOST_ROWS", 10)
    text = Html().render(introduced)
    assert rows_of(text)["rows"] == 10
    assert "the worst 10 of 128; CSV and Parquet hold all" in text


def test_many_pairs_make_a_page_of_bounded_size(many: Comparison) -> None:
    start = time.process_time()
    text = Html().render(many)
    assert time.process_time() - start < 10
    assert len(text) < 8e6
    assert rows_of(text)["total"] == len(many)


def test_the_same_comparison_gives_the_same_page(introduced: Comparison) -> None:
    assert Html().render(introduced) == Html().render(introduced)


def test_the_strip_shows_the_guilty_cell(introduced: Comparison) -> None:
    cells = [a for tag, a in Page(Html().render(introduced)).tags if a.get("class") == "cell"]
    guilty = [cell["data-said"] for cell in cells if cell["data-verdict"] == "introduced"]
    assert set(guilty) == {"model.layers.3.self_attn.o_proj, forward"}


def _of_sources(sizes: list[float]) -> Comparison:
    rows: list[dict[str, object]] = [
        {"candidate_node": f"part{i}", "verdict": "introduced", "error": 6e-8 * size, "error_eps": size, "bound": 1e-6}
        for i, size in enumerate(sizes)
    ]
    return make_comparison(rows)


def test_more_than_eight_sources_are_folded() -> None:
    few, many = (Html().render(_of_sources([100.0] * number_of)) for number_of in (8, 11))
    assert "<details" not in few
    open_part, _, folded = many.partition("<details")
    assert (open_part.count("<article"), folded.count("<article")) == (8, 3)
    assert "3 more sources" in folded


@pytest.mark.parametrize(
    ("largest", "label"), [(50.0, "10,000"), (5e9, "1e10"), (1e5, "1e5"), (3e15, "1e16"), (1.7e308, "1e310")]
)
def test_all_rulers_of_a_page_reach_the_largest_error(largest: float, label: str) -> None:
    scale = Scale.reaching([3.0, math.nan, math.inf, 0.0, largest])
    assert math.log10(largest) <= scale.highest
    labels = [text for _, text in scale.ticks()]
    assert len(labels) <= 7
    assert labels[-1] == label
    places = [scale.at(power) for power, _ in scale.ticks()]
    assert places == sorted(set(places))


def test_no_line_ends_inside_a_number() -> None:
    shown = prose("within 2.8e-07 of layer1e-2, <b> 1.5e-3.")
    assert shown == (
        'within <span class="number">2.8e-07</span> of layer1e-2, &lt;b&gt; <span class="number">1.5e-3</span>.'
    )


def test_an_empty_comparison_has_a_page(empty: Comparison) -> None:
    assert "There is no pair to judge." in Html().render(empty)


def _luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("text", "ground"),
    [
        *((name, ground) for name in ("ink", "ink2", "ink3", "accent") for ground in ("bg", "surface")),
        *((name, "surface") for name in ("introduced", "suspect", "inherited", "normal", "equal", "nan")),
        ("introduced", "introduced-tint"),
        ("suspect", "suspect-tint"),
        ("inherited", "inherited-fill"),
        ("ink", "introduced-tint"),
        ("ink", "suspect-tint"),
        ("nan", "suspect-tint"),
        ("nan", "introduced-tint"),
        ("equal", "normal-fill"),
    ],
)
def test_text_stands_out_from_its_ground(theme: int, text: str, ground: str) -> None:
    block = re.findall(r":root[^{]*\{(.*?)\}", CSS.read_text(encoding="utf-8"), re.DOTALL)[theme]
    tokens = dict(re.findall(r"--([\w-]+): (#[0-9A-F]{6});", block))
    assert _contrast(tokens[text], tokens[ground]) >= 4.5


def test_a_container_has_a_cell_only_for_a_fault_that_no_leaf_shows() -> None:
    def shown(container: str, leaf: str) -> set[str]:
        rows: list[dict[str, object]] = [
            {"candidate_node": "model.layers.0.mlp", "verdict": container},
            {"candidate_node": "model.layers.0.mlp.up_proj", "verdict": leaf},
        ]
        tags = Page(Html().render(make_comparison(rows))).tags
        return {str(a["data-said"]).split(",")[0] for _, a in tags if a.get("class") == "cell"}

    leaf, container = "model.layers.0.mlp.up_proj", "model.layers.0.mlp"
    assert shown("suspect", "suspect") == {leaf}
    assert shown("inherited", "normal") == {leaf}
    assert container in shown("suspect", "normal")
    assert container in shown("introduced", "suspect")
