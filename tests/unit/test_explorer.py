"""The fragment of the instance explorer: its data are right, safe and small, and it needs no other file."""

import base64
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import shapeline
from shapeline.errors import ShapelineError
from shapeline.report import experiment
from shapeline.report.explorer import Entry, ExplorerData, Instance, explorer_html
from shapeline.report.sections import images as sections
from shapeline.workflow.job_code import list_page_sources
from tests.fixtures.result_folder import build

AWKWARD = [
    "</script><script>alert(1)</script>",
    "\"quote\" & 'apostrophe' \\",
    "Größe 木 \u2028",
    "lone \ud800",
    "<!--",
]


def content(page: str) -> dict:
    return json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.S)[1])


def explorer(n: int = 3, methods: int = 2, d: int = 5, **rest) -> ExplorerData:
    rng = np.random.default_rng(0)
    entries = [
        Entry(f"method_{place}", list(rng.normal(size=(n, d))), list(rng.random((n, d)))) for place in range(methods)
    ]
    return ExplorerData("table", [Instance(str(place)) for place in range(n)], entries, **rest)


def test_scores_and_half_widths_are_stored_to_four_digits():
    data = explorer()
    stored = content(explorer_html(data))["scores"]
    for instance, row in enumerate(stored):
        for entry, (scores, half) in zip(data.entries, row, strict=True):
            assert np.allclose(scores, entry.scores[instance], rtol=5e-4, atol=0)
            assert np.allclose(half, entry.half[instance], rtol=5e-4, atol=0)
    equal = ExplorerData("table", [Instance("0", base=0.7, full=0.7)], [Entry("exact", [np.array([-2e-17, 7e-18])])])
    assert content(explorer_html(equal))["scores"][0][0][0] == [0, 0]  # rounding errors of equal values


def test_many_scores_are_integers_of_16_bits_and_what_is_not_finite_is_null():
    scores = np.random.default_rng(0).normal(size=784)
    scores[3] = np.nan
    data = ExplorerData("image", [Instance("0")], [Entry("gp", [scores])])
    packed = content(explorer_html(data))["scores"][0][0][0]
    steps = np.frombuffer(base64.b64decode(packed["text"]), "<i2")
    assert steps[3] == -32768
    assert np.allclose(
        np.delete(steps / 32767 * packed["largest"], 3), np.delete(scores, 3), atol=packed["largest"] / 6e4
    )


def test_text_of_a_dataset_cannot_end_the_element():
    page = explorer_html(ExplorerData("table", [Instance("0", values=AWKWARD)], [Entry("m", [np.ones(5)])], AWKWARD))
    assert page.count("</script>") == 2 and "alert(1)</" not in page and "<!--" not in page
    page.encode()
    assert content(page)["names"] == AWKWARD and content(page)["instances"][0]["values"] == AWKWARD


def test_a_large_page_has_all_methods_for_some_instances_and_a_summary_for_the_rest():
    data = explorer(1000, 40, 30, n_shown=20, recommended=["method_7", "method_7"])
    page = explorer_html(data, "<p>static</p>")
    stored = content(page)
    assert len(page) < 1_000_000 and len(stored["scores"]) == 20 and len(stored["instances"]) == 1000
    assert stored["chosen"] == [7]
    summary, scores = stored["instances"][500]["summary"], data.entries[7].scores[500]
    assert summary["features"] == np.argsort(-np.abs(scores))[:5].tolist() and summary["method"] == 7
    assert np.allclose(summary["scores"], scores[summary["features"]], rtol=5e-4)
    assert "<p>static</p>" in page


def test_a_summary_is_of_the_first_recommended_method_that_has_scores():
    failed, fine = Entry("failed", [np.ones(3), None]), Entry("fine", [np.ones(3), np.array([0.0, 3.0, -4.0])])
    data = ExplorerData(
        "table", [Instance("0"), Instance("1")], [failed, fine], recommended=["failed", "fine"], n_shown=1
    )
    summary = content(explorer_html(data))["instances"][1]["summary"]
    assert summary["method"] == 1 and summary["features"] == [2, 1, 0] and summary["scores"] == [-4, 3, 0]


def test_the_second_text_of_a_pair_begins_at_its_first_word():
    one = Instance("0", names=["a", "b", "c"], second=2)
    stored = content(
        explorer_html(ExplorerData("text", [one, Instance("1", names=["a"])], [Entry("m", [np.ones(3), np.ones(1)])]))
    )
    assert stored["instances"][0]["second"] == 2 and "second" not in stored["instances"][1]


def test_cells_are_run_lengths():
    cells = np.array([[0, 0, 1], [1, -1, -1]])
    stored = content(explorer_html(ExplorerData("image", [Instance("0")], [Entry("m", [np.ones(2)])], cells=cells)))
    assert stored["cells"] == [0, 2, 1, 2, -1, 2] and stored["size"] == [2, 3]


def test_a_large_image_is_shown_by_blocks_that_keep_the_sums():
    height, width = 204, 205  # blocks of 2 x 2 pixels, of one column at the right edge
    scores = np.random.default_rng(0).normal(size=height * width)
    cells = np.arange(height * width).reshape(height, width)
    entries = [Entry("m", [scores], [np.ones_like(scores)]), Entry("failed", [None])]
    data = ExplorerData("image", [Instance("0")], entries, [f"feature {one}" for one in range(len(scores))], cells)
    page = explorer_html(data)
    stored = content(page)
    expected = np.pad(scores.reshape(height, width), ((0, 0), (0, 1))).reshape(102, 2, 103, 2).sum((1, 3)).ravel()
    [first, half], failed = stored["scores"][0]
    found = np.frombuffer(base64.b64decode(first["text"]), "<i2") / 32767 * first["largest"]
    assert np.allclose(found, expected, atol=2e-5 * np.abs(expected).max()) and half is None and failed is None
    features, lengths = np.array(stored["cells"]).reshape(-1, 2).T
    assert (np.repeat(features, lengths).reshape(height, width)[[0, 1, 2], [0, 1, 3]] == [0, 0, 104]).all()
    assert stored["size"] == [204, 205] and stored["names"] == [] and "2 × 2 pixels" in stored["note"]
    assert len(page) < 400_000


def test_pixels_that_are_features_need_no_cells_and_no_names():
    pixels = np.arange(6).reshape(2, 3)
    names = [f"feature {one}" for one in range(6)]
    stored = content(explorer_html(ExplorerData("image", [Instance("0")], [Entry("m", [np.ones(6)])], names, pixels)))
    assert stored["cells"] is None and stored["names"] == [] and stored["size"] == [2, 3]


def test_a_fragment_loads_nothing_and_a_failed_explanation_is_null():
    page = explorer_html(ExplorerData("table", [Instance("0")], [Entry("m", [None])]))
    assert content(page)["scores"] == [[None]]
    assert not re.search(r"<link|<iframe|@import|url\(|https?://|fetch\(|XMLHttp|innerHTML", page)


def test_methods_with_explanations_of_other_instances_are_refused():
    data = ExplorerData("table", [Instance("0")], [Entry("m", [np.ones(2), np.ones(2)])])
    with pytest.raises(ShapelineError, match="'m' has 2 explanations of 1 instances"):
        explorer_html(data)


def test_an_edit_of_the_script_is_an_edit_of_the_pages_with_an_explorer(root, monkeypatch):
    monkeypatch.chdir(root)
    script = "workflow/shapeline/report/explorer.js"
    assert script in list_page_sources("shapeline.report.explorer") and script not in list_page_sources(
        "shapeline.report.elements"
    )


@pytest.mark.parametrize("kind", ["image", "table"])
def test_the_explorer_of_an_experiment_has_its_files_scores(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    results = experiment.load(**build(Path(kind), kind, ("exact", "saliency", "random"), n=6))
    results.entries["random"] = {"method": "mim"}
    stored = content(sections.explorer(results, ["saliency"]).data)
    assert [method["name"] for method in stored["methods"]] == ["exact", "saliency", "random"]
    assert stored["methods"][1]["note"].startswith("1 gradient,")
    assert [method["note"].endswith("for the true class") for method in stored["methods"]] == [False, False, True]
    assert stored["chosen"] == [1] and stored["kind"] == kind
    facts = pd.read_parquet(Path(kind, results.root.split("/")[-1], "instances.parquet")).set_index("instance")
    for one, scores in zip(stored["instances"], stored["scores"], strict=True):
        row = facts.loc[int(one["id"])]
        assert one["wrong"] == (row["label"] != row["prediction"])
        assert one["label"] == str(results.dataset_card["classes"][int(row["label"])])
        for entry, (given, _) in zip(results.scores, scores, strict=True):
            frame = results.scores[entry].set_index("instance")
            assert np.allclose(given, frame["scores"][int(one["id"])], rtol=5e-4)
        assert one["image"].startswith("data:image/png;base64,") if kind == "image" else len(one["values"]) == 10


def test_parts_of_a_prompt_are_explored_for_the_answer_and_each_token(tmp_path):
    def log_probabilities(prompts):
        return np.array([[float("<b>tower" in prompt), 2.0 * ("hill" in prompt)] for prompt in prompts]) - 3

    found = shapeline.explain_generation(
        log_probabilities, "Where?", context=["The <b>tower is old.", "It stands on a hill."], target="on a hill"
    )
    found.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    stored = content(page)
    assert stored["instances"][0]["id"] == "answer" and len(stored["instances"]) == 3
    scores = [row[0][0] for row in stored["scores"]]
    assert np.allclose(scores, [[1, 2], [1, 0], [0, 2]]) and stored["signs"].startswith("Blue supports the answer")
    assert stored["instances"][0]["names"] == list(found.parts) and "<b>tower" not in page
    assert content(found._repr_html_())["links"] is False
    assert stored["words"]["feature"] == "part" and stored["words"]["prediction"] == "answer"
    assert not stored["methods"][0]["intervals"]  # of exact values


def test_a_game_has_players_and_outputs_and_no_class():
    stored = content(shapeline.shapley_values(lambda masks: masks @ [[1.0, 2], [3, 4]], 2)._repr_html_())
    assert stored["words"] == {
        **{"instance": "output", "feature": "player"},
        **{"value of the input": "value of all players", "base value": "value of no players"},
    }
    assert all("explained" not in one or not one["explained"] for one in stored["instances"])
