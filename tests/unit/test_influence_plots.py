"""The influence report: rendered from a folder of real influence on small data, and its parts on invented numbers."""

import dataclasses
import functools
import json
import re
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from shapeline import influence
from shapeline import scores as score_files
from shapeline.datasets import loading, preparation, sources
from shapeline.games import features as feature_kinds
from shapeline.gradients.methods import pool
from shapeline.influence import axioms
from shapeline.papers import statement_sections as sections_axioms
from shapeline.report import elements, experiment, rendering, tables
from shapeline.report.sections import points as sections_influence
from shapeline.report.sections import points as sections_points
from tests.fixtures.result_folder import build as build_of_a_model

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "influence.ipynb"
SECTIONS = ["Instances and their influence", "Sparse data", "Comparison", "Axioms", "How to read this report"]
SECTIONS += ["Diagnostics", "Model and data", "Provenance"]
METHODS = {  # entry: method, parameters, and those of the function that is called
    "mim": ("mim", {"alpha": "inverse_square"}),
    "parzen": ("parzen", {"sigma": 2.0}),
    "data_lime": ("data_lime", {"rho": 2.0}),
}


def shown(page: str) -> str:
    """Return the visible text of a page."""
    return re.sub(r"<style>.*?</style>|<[^>]+>", " ", page, flags=re.S)


def build(folder: Path, kind: str, n: int = 20, prepared: Path | None = None) -> dict:
    """Write the result folder of an experiment without a model; returns the parameters of its notebook.

    kind: "image" (digits 3 and 8, pixels), "table" (breast cancer, columns) or "regression" (diabetes, columns).
    """
    source, settings = {
        "image": ("digits", {"classes": [3, 8]}),
        "table": ("breast_cancer", {}),
        "regression": ("diabetes", {}),
    }[kind]
    features = {"kind": "pixel" if kind == "image" else "column"}
    data, root = prepared or folder / "prepared" / kind, folder / kind
    root.mkdir(parents=True)
    if prepared is None:
        preparation.prepare(source, settings, [], data)
    dataset = loading.load(data)
    rows = np.flatnonzero(dataset.split == sources.TEST)[:n]
    regression = kind == "regression"
    known = dataset.labels[rows] if regression else dataset.labels[rows].astype(np.int32)
    instances = pd.DataFrame({"instance": dataset.ids[rows], "label": known, "prediction": known})
    instances.to_parquet(root / "instances.parquet")
    train = dataset.part("train")
    X, points = (part.reshape(len(part), -1) for part in (train.inputs, dataset.inputs[rows]))
    if kind != "image":
        X, points = (part / train.inputs.std(axis=0) for part in (X, points))
    owner = feature_kinds.build(features, dataset.card)
    written = {}
    for entry, (method, parameters) in METHODS.items():
        measure = functools.partial(getattr(influence, method), regression=regression, **parameters)
        phi = measure(points, X, train.labels, point_labels=dataset.labels[rows])
        frame = pd.DataFrame(
            {
                "instance": dataset.ids[rows],
                "target": np.int32(0),
                "repeat": np.int16(0),
                "budget": None,
                "scores": list(pool(phi, owner).astype(np.float32)),
                "evaluations": 0,
                "seconds": 0.001,
                "status": "ok",
                "error": None,
            }
        )
        path = root / "scores" / entry / "0-of-1.parquet"
        score_files.write(path, frame, {"label": entry, "method": method, "features": features, "versions": {}})
        written[entry] = [str(path)]
    described = {
        entry: {"method": method, "family": "data", "parameters": parameters, "is_control": False}
        for entry, (method, parameters) in METHODS.items()
    }
    stated = {"title": f"Influence, {kind}", "entries": described, "order": list(METHODS), "features": features}
    return {
        "experiment": kind,
        "root": str(root),
        "settings_json": json.dumps({**stated, "exact": None, "n_shown": 4}),
        "model_card": "",
        "dataset_card": str(data / "card.json"),
        "dataset": str(data),
        "instances": str(root / "instances.parquet"),
        "scores": written,
    }


@pytest.fixture(scope="module")
def parameters(tmp_path_factory):
    root = tmp_path_factory.mktemp("influence")
    return {kind: build(root / kind, kind) for kind in ("image", "table", "regression")}


@pytest.fixture(scope="module")
def results(parameters):
    return {kind: experiment.load(**given) for kind, given in parameters.items()}


# --- the page -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rendered(parameters, tmp_path_factory):
    """The page of the images, and the seconds it took."""
    folder = tmp_path_factory.mktemp("reports")
    start = time.perf_counter()
    rendering.render(NOTEBOOK, parameters["image"], folder / "image.html", folder / "image.ipynb")
    return (folder / "image.html").read_text(), time.perf_counter() - start


def test_a_regression_without_a_model_has_no_class(parameters):
    table = experiment.load(**parameters["table"])
    table.model_card.clear()
    assert "No model is used; the class named below is the instance's label." in sections_points.sentences(table, 9)
    table.dataset_card["task"] = "regression"
    assert any("the number above an instance" in line for line in sections_points.sentences(table, 9))


def test_the_page_has_every_section_and_needs_nothing_else(rendered):
    page, _ = rendered
    assert re.findall(r"<h2[^>]*>(.*?)</h2>", page) == SECTIONS
    assert page.count("<img") == page.count(' alt="') and 'alt=""' not in page
    assert not re.search(r"<script[^>]*src|<link|<iframe|@import|url\((?!#)", page)
    text = shown(page)
    assert "Traceback" not in text and "None" not in text and "nan" not in text.split()
    assert "No model is used" in text and "the model is right" not in text
    assert "Influence, image" in text and "findings.load" not in text


def test_the_page_shows_the_required_figures(rendered):
    page, _ = rendered
    text = shown(page)
    assert page.count('alt="Images, and per measure the influence map') == 1
    assert page.count('alt="Influence maps by ') == 3  # sigma, rho and mu
    assert "time per vector: parzen (σ)" in text and "data_lime (ρ)" in text and "data_lime (μ)" in text
    assert "Cosine between mim and parzen at 20 instances" in text
    assert "parzen, σ = 1: monotonicity" in text and "mim, 1/r²: continuity" in text


@pytest.mark.parametrize("kind", ["image", "table", "regression"])
def test_every_section_is_rendered_without_a_model(results, kind):
    one = results[kind]
    parts = (sections_influence.header, sections_influence.sparse_section)
    parts += (sections_points.points_section, sections_influence.agreement_section, sections_influence.model_section)
    text = shown("".join(part(one).data for part in parts))
    assert "nan" not in text.split() and "None" not in text and not sections_influence.model_section(one).data


def test_with_a_model_its_methods_and_curves_are_shown(tmp_path):
    results = experiment.load(**build_of_a_model(tmp_path, "table", ("exact", "lime", "random")))
    entry = {"method": "mim", "family": "data", "parameters": {}, "is_control": False}
    results = dataclasses.replace(
        results, entries={"mim": entry, **results.entries}, scores={"mim": results.scores["exact"], **results.scores}
    )
    assert sections_influence.list_data_entries(results) == ["mim"]
    text = shown(sections_influence.model_section(results).data)
    assert (
        "Comparison with methods that evaluate the model" in text
        and "Table of pairs" in text
        and "deletion AUC (lower is better)" in text
    )
    top = shown(sections_influence.header(results).data)
    assert "test accuracy" in top and "The model classifies" in top and "No model is used" not in top
    assert "predicted" in sections_points.points_section(results).data
    assert sections_points.sweeps_section(results).data == ""


def test_every_class_has_a_rule(results):
    parts = [sections_points.points_section(results[kind]) for kind in ("image", "table")]
    found = sections_axioms.verdicts({"parzen": functools.partial(influence.parzen, sigma=1.0)}, 10)
    page = elements.join_parts(*parts, sections_axioms.axioms_section(found)).data
    names = {name for names in re.findall(r'class="([^"]*)"', page) for name in names.split()}
    sheet = rendering.style_sheet()
    assert {name for name in names if not re.search(rf"\.{name}\b", sheet)} <= {"text"}


# --- images -----------------------------------------------------------------------------------------------------


def test_a_shifted_image_moves_along_the_influence():
    moved = sections_points.shift_image(np.array([[[0.0, 0.5, 1.0]]]), np.array([[[1.0, -1.0, 0.0]]]))
    assert moved[0, 0] == pytest.approx([0.3, 0.2, 1.0])


def test_each_map_is_above_its_shifted_image_with_its_size():
    phi = np.zeros((1, 4, 4))
    phi[0, 1, 2] = -0.25
    maps = {"mim $1$": [phi], "parzen": [None], "data_lime": [0 * phi]}
    drawing = sections_points.draw_shifted(np.full((1, 1, 4, 4), 0.5), ["happy\ninstance 7"], maps)
    drawing.draw_without_rendering()
    texts = [text.get_text() for text in drawing.axes[0].texts]
    assert texts.count("failed") == 2 and [text for text in texts if "±" in text] == ["± 0.250", "± 0"]
    assert "happy\ninstance 7" in texts and "shifted" in texts


def test_a_feature_of_many_cells_has_its_share_in_each():
    cells = np.array([[[0, 0], [1, -1]]], np.int32)
    owner = feature_kinds.Features("patch", (2,), cells)
    assert owner.divide(np.array([3.0, -2.0])).tolist() == [[[1.5, 1.5], [-2.0, 0.0]]]


# --- sweeps -------------------------------------------------------------------------------------------------------


def test_a_sweep_is_the_measure_at_each_value():
    random = np.random.default_rng(0)
    X, labels = random.random((60, 9)), np.arange(60) % 2
    points, own = X[:2], labels[:2]
    parzen, rho, mu = sections_points.sweep(points, X, labels, own, ("parzen", "data_lime"))
    assert (parzen.symbol, rho.symbol, mu.symbol) == ("σ", "ρ", "μ")
    for one, low, high in ((parzen, 2.0, 6.5), (rho, 2.0, 3.8), (mu, 0.010, 0.019)):
        assert len(one.values) == 10 and (one.values[0], one.values[-1]) == (low, high)
        assert one.phi.shape == (10, 2, 9) and one.seconds > 0
    np.testing.assert_allclose(parzen.phi[6], influence.parzen(points, X, labels, 5.0))
    np.testing.assert_allclose(mu.phi[0], influence.data_lime(points, X, labels, mu=0.010))
    rows = sections_points.sweep_rows(mu, points.reshape(2, 1, 3, 3), ["one", "two"]).data
    assert rows.count("<img") == 1 and "no neighbours" not in rows


def test_a_width_without_neighbours_is_reported():
    X, labels = np.array([[0.0, 0], [900, 0], [0, 900]]), np.array([0, 1, 0])
    (parzen,) = sections_points.sweep(X[:1], X, labels, labels[:1], ["parzen"])
    assert all(parzen.warned)
    rows = sections_points.sweep_rows(parzen, X[:1].reshape(1, 1, 1, 2), ["one"]).data
    assert "no neighbours at σ = 2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5, 6, 6.5." in rows


# --- records ------------------------------------------------------------------------------------------------------


def test_records_are_heat_tables_of_the_measures_only(results):
    page = sections_points.points_section(results["table"]).data
    assert page.count('aria-label="Scores of every feature by every method') == 4
    assert "Each measure has its own scale." in page and "smaller features not shown" in page


def test_values_of_a_record_name_categories():
    cells = np.array([0, 1, 1, 1, 2, 2, 3], np.int32)
    owner = feature_kinds.Features("group", (4,), cells, ("age", "race", "both", "sex"))
    card = {"feature_names": ["age", "white", "black", "other", "u", "v", "sex"], "categories": {"sex": ["m", "f"]}}
    row = np.array([1.8, 0, 1, 0, 0.5, 1999, 1])
    assert tables.feature_values(row, owner, card) == ["1.800", "black", "0.5000; 1999", "f"]
    # Also in a group, whose codes 0 and 1 are no one-hot columns.
    pair = feature_kinds.Features("group", (1,), np.zeros(2, np.int32), ("stay",))
    of_texts = {"feature_names": ["sex", "ward"], "categories": {"sex": ["m", "f"], "ward": ["ENT", "surgery"]}}
    assert tables.feature_values(np.array([1.0, 0.0]), pair, of_texts) == ["f; ENT"]
    assert tables.feature_values(np.array([1.0, np.nan]), pair, of_texts) == ["f; missing"]


# --- alike --------------------------------------------------------------------------------------------------------


def test_cosines_by_hand_with_zero_for_nothing():
    one = [np.array([1.0, 0]), np.array([3.0, 4]), np.zeros(2), None, np.ones(2)]
    other = [np.array([2.0, 0]), np.array([4.0, -3]), np.ones(2), np.ones(2), np.array([0, 2.0])]
    assert sections_influence.cosine(one, other) == pytest.approx([1, 0, 0, np.sqrt(0.5)])


def test_the_distribution_marks_median_percentiles_and_the_paper():
    values = np.linspace(0.5, 1, 101)
    figure = sections_influence.cosine_histogram(values)
    axes = figure.axes[0]
    assert [line.get_xdata()[0] for line in axes.lines] == pytest.approx([0.75, 0.525, 0.975, 0.94])
    assert sum(patch.get_height() for patch in axes.patches) == 101
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == ["median 0.750", "5 % 0.525, 95 % 0.975", "paper: mean ≥ 0.94"]
    alone = sections_influence.cosine_histogram(np.ones(3), paper=None).axes[0]
    assert sum(patch.get_height() for patch in alone.patches) == 3 and len(alone.lines) == 3
    row = sections_influence.cosine_table({("mim", "parzen"): values}).iloc[0]
    assert row.tolist() == ["mim", "parzen", "0.750", "0.750", "0.525 to 0.975", "101"]


# --- sparse data --------------------------------------------------------------------------------------------------


def frame_of(**columns) -> pd.DataFrame:
    n = len(columns["scores"])
    rows = {"instance": np.arange(n), "status": "ok", "warning": None, "details": None, "repeat": 0, "budget": np.nan}
    return pd.DataFrame({**rows, **columns})


def test_empty_neighbourhoods_are_found_by_flag_or_zeros():
    frame = frame_of(
        scores=[np.ones(2), np.ones(2), np.zeros(2), None],
        warning=[None, "sigma too small", None, "x"],
        status=["ok", "ok", "ok", "memory"],
    )
    found = sections_influence.sparse_rows(frame)
    assert found["instance"].tolist() == [1, 2]
    assert found["why"].tolist() == ["sigma too small", "every influence is 0"]
    assert sections_influence.sparse_rows(frame.drop(columns="warning").assign(warning=None))["instance"].tolist() == [
        2
    ]


def test_sparse_points_are_warned_of_at_the_top_and_beside_their_image(results):
    one = results["image"]
    frame = one.scores["parzen"].copy()
    first = experiment.choose_instances(one.instances, 4)["instance"].iloc[0]
    frame.loc[frame["instance"] == first, "warning"] = "sigma is too small"
    one = dataclasses.replace(one, scores={**one.scores, "parzen": frame})
    assert (
        "Empty neighbourhoods, where influences carry no information: parzen at 1"
        in sections_influence.header(one).data
    )
    section = shown(sections_influence.sparse_section(one).data)
    assert "⚠ 1 of 20" in section and "sigma is too small" in section and str(first) in section
    assert sections_points.points_section(one).data.count(f"⚠ parzen, instance {first}: sigma is too small.") == 1
    assert "No instance has an empty neighbourhood" in sections_influence.sparse_section(results["image"]).data


# --- axioms -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def verdicts():
    return sections_axioms.verdicts(tries=12)


def test_the_table_of_axioms(verdicts):
    table = sections_axioms.axiom_table(verdicts).set_index("axiom")
    fails = {name: {axiom for axiom in table.index if "fails" in table.loc[axiom, name]} for name in verdicts}
    assert fails == {
        "mim, α = 1": set(),
        "mim, gaussian": set(),
        "mim, 1/r": {"3 continuity"},
        "mim, 1/r²": {"3 continuity"},
        "parzen, σ = 1": {"5 monotonicity", "6 non-bias"},
        "data_lime, ρ = 2": {"5 monotonicity", "6 non-bias"},
    }
    page = sections_axioms.axioms_section(verdicts).data
    assert page.count("<svg") == 1 + 6 and page.count("⚠ fails") == 6  # figure 1 of the paper before them


def arrows(axes) -> list:
    return [text for text in axes.texts if getattr(text, "arrow_patch", None) is not None]


def broken(verdicts, name: str, axiom: str) -> axioms.Verdict:
    return next(verdict for verdict in verdicts[name] if verdict.axiom == axiom)


def test_parzens_potential_has_the_influence_as_its_slope(verdicts):
    verdict = broken(verdicts, "parzen, σ = 1", "monotonicity")
    for data in (verdict.counter_example.before, verdict.counter_example.after):
        ends = data.X[0, 0] + np.array([-1e-5, 1e-5])
        low, high = sections_axioms.potential(data.X, data.labels, 1.0, ends)
        assert (high - low) / 2e-5 == pytest.approx(data.influence[0], rel=1e-4)
    figure = sections_axioms.counter_example(verdict, sigma=1.0)
    before, after = figure.axes
    for axes, data in ((before, verdict.counter_example.before), (after, verdict.counter_example.after)):
        arrow = arrows(axes)[-1]
        (x0, y0), (x1, y1) = arrow.xyann, arrow.xy
        assert (y1 - y0) / (x1 - x0) == pytest.approx(data.influence[0], rel=1e-6)
    sentence = sections_axioms.counter_sentence(verdict)
    assert sentence == (
        "Row [1.0] added with x's label, 1 above x in feature 0: influence 0.210 before and 0.170 after; the axiom "
        "requires at least 0.210."
    )
    turned = dataclasses.replace(verdict.counter_example, expected=np.array([0.1]))
    assert "at most 0.100" in sections_axioms.counter_sentence(dataclasses.replace(verdict, counter_example=turned))


def test_every_arrow_is_inside_its_panel(verdicts):
    failed = [(name, verdict) for name, row in verdicts.items() for verdict in row if not verdict.passed]
    failed.append(("parzen, σ = 1", sections_axioms.figure_1()))
    for name, verdict in failed:
        figure = sections_axioms.counter_example(verdict, 1.0 if name.startswith("parzen") else None)
        example = verdict.counter_example
        for axes, data in zip(figure.axes, (example.before, example.after), strict=True):
            assert bool(arrows(axes)) == bool(data.influence.any())
            (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
            assert all(left < x < right and low < y < high for x, y in (arrow.xy for arrow in arrows(axes)))


def test_a_counter_example_draws_every_point_by_its_label_and_rings_the_point(verdicts):
    example = axioms.CounterExample(
        axioms.Labelled(np.array([[0.0, 0], [1, 0]]), np.array([1, -1]), np.array([1.0, 0])),
        axioms.Labelled(np.array([[0.0, 0], [1, 0], [0, 2]]), np.array([1, -1, 1]), np.array([0.0, -2])),
        "row added",
        np.array([1.0, 0]),
        1,
    )
    figure = sections_axioms.counter_example(axioms.Verdict(5, "monotonicity", "…", 3, example))
    before, after = figure.axes
    assert [line.get_marker() for line in before.lines] == ["o", "o", "s"]  # the ring first
    assert [line.get_marker() for line in after.lines] == ["o", "o", "s", "o"]
    # To one scale: the largest, 2, is a little shorter than the margin, 0.6 of the data's width of 2.
    assert [tuple(arrow.xy) for arrow in arrows(before)] == [pytest.approx((0.54, 0))]
    assert [tuple(arrow.xy) for arrow in arrows(after)] == [pytest.approx((0.54, 0)), pytest.approx((0, -1.08))]
    for axes in figure.axes:
        assert axes.get_xlim() == pytest.approx((-1.2, 2.2)) and axes.get_ylim() == pytest.approx((-1.2, 3.2))
    figure.draw_without_rendering()


def test_coincident_points_and_random_labels_are_reported(verdicts):
    jump = sections_axioms.counter_example(broken(verdicts, "mim, 1/r²", "continuity"))
    assert "×2" in [text.get_text() for text in jump.axes[0].texts]
    mean = sections_axioms.counter_example(broken(verdicts, "parzen, σ = 1", "non_bias"), sigma=1.0)
    assert [axes.get_title(loc="left") for axes in mean.axes] == ["one labelling: 0.235", "mean of all: 0.118"]
    assert len(arrows(jump.axes[1])) == 1 and not arrows(jump.axes[0])
    assert "$?$" in [line.get_marker() for line in mean.axes[1].lines]
    assert "the axiom requires 0" in sections_axioms.counter_sentence(broken(verdicts, "parzen, σ = 1", "non_bias"))


def test_figure_1_of_the_paper():
    example = sections_axioms.figure_1().counter_example
    for data in (example.before, example.after):
        assert influence.parzen(data.X[:1], data.X, data.labels, 0.3)[0] == pytest.approx(data.influence)
    new = example.after.X[len(example.before.X) :, 0]
    assert (new > example.before.X[0, 0]).all() and (example.after.labels[-2:] == example.before.labels[0]).all()
    assert example.after.influence[0] < 0.7 * example.before.influence[0]
    assert (example.before.labels == 1).sum() == 4 and (example.after.labels == 1).sum() == 6


def test_a_measure_that_gives_nan_is_drawn_all_the_same():
    found = sections_axioms.verdicts({"mine": lambda points, X, labels: np.full(points.shape, np.nan)}, 3)
    page = sections_axioms.axioms_section(found, {}).data
    assert page.count("⚠ fails") == 6 and page.count("<svg") == 1 + 6
