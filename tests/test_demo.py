"""The demo says what it must, keeps its files, and refuses folders that are not its own."""

from __future__ import annotations

import json

import pytest

from msprobe import demo
from msprobe.core.errors import MsprobeError


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Runs the demo once, after a shorter warm-up."""
    pytest.importorskip("transformers")
    from msprobe.demo import trainings

    out = tmp_path_factory.mktemp("demo") / "out"
    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainings, "WARM_UP_STEPS", 20)
        code = demo.run(out, say=lines.append)
    return code, out, "\n".join(lines)


def _summary(out, name):
    return json.loads((out / "comparisons" / name / "summary.json").read_text())


def test_every_chapter_ends_as_it_should(told):
    code, _, text = told
    assert "WRONG" not in text
    assert code == 0


def test_the_rotary_table_in_bf16_is_named_first(told):
    summary = _summary(told[1], "rope-in-bf16")
    assert summary["verdict"] == "introduced"
    assert summary["sources"][0]["node"] == "model.rotary_emb"
    assert summary["sources"][0]["direction"] == "forward"


def test_the_wrong_eps_is_named_first_and_quoted(told):
    source = _summary(told[1], "norm-eps")["sources"][0]
    assert source["node"] == "model.layers.0.input_layernorm"
    assert any("variance_epsilon" in line for line in source["evidence"])


def test_other_rounding_is_clean_and_judged(told):
    summary = _summary(told[1], "other-rounding")
    assert summary["exit_code"] == 0
    assert summary["counts"]["introduced"] == 0
    assert summary["coverage"]["judged_share"] >= 0.95


def test_runs_and_pages_are_left(told):
    import msprobe

    _, out, _ = told
    for name in ("healthy", "rope-in-bf16", "norm-eps", "other-rounding"):
        assert len(msprobe.open_run(out / "runs" / name).steps) == 3
    assert (out / "comparisons" / "rope-in-bf16" / "report.html").stat().st_size > 1000


def test_a_folder_that_is_not_a_demos_is_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(MsprobeError, match="not from a demo"):
        demo.run(tmp_path)
    assert (tmp_path / "thesis.txt").exists()


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(MsprobeError, match="is a file"):
        demo.run(tmp_path / "out")
