"""The localization report: rendered from a folder of synthetic maps on generated crosses, and its parts on arrays."""

import dataclasses
import json
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy.ndimage import gaussian_filter, label

from shapeline import scores as score_files
from shapeline.config.validation import load
from shapeline.datasets import images, loading, preparation, sources
from shapeline.games import features as feature_kinds
from shapeline.hierarchy import exploration
from shapeline.methods.settings import parse
from shapeline.metrics import ground_truth
from shapeline.papers import claims, statement_sections
from shapeline.report import elements, experiment, rendering
from shapeline.report.figures import localization as figures_localization
from shapeline.report.figures import score_maps
from shapeline.report.sections import images as images_of_pages
from shapeline.report.sections import localization as sections_localization
from shapeline.statistics.comparison import compare
from shapeline.theory import visited_nodes
from shapeline.workflow.job_code import list_page_code

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "localization.ipynb"
SECTIONS = ["Explanations", "Instances", "Comparison", "Robustness", "How to read this report", "Diagnostics"]
SECTIONS += ["Claims of the papers", "Model and data", "Provenance"]
PARTS = ["Importance over", "Agreement with the true region", "F1 and runtime", "Ablation", "Smallest leaf"]
PARTS += ["Nodes visited: theorem 3.2", "Similarity to the Shapley map: theorem 3.4", "Cost"]
ENTRIES = {  # entry: method, parameters, control, milliseconds
    "h_shap": ("h_shap", {"min_size": 3}, False, 12),
    "h_shap_12": ("h_shap", {"min_size": 12}, False, 5),
    "h_shap_1": ("h_shap", {}, False, 20),
    "h_shap_70": ("h_shap", {"min_size": 3, "mode": "relative", "threshold": 70.0}, False, 9),
    "partition_500": ("partition", {}, False, 310),
    "partition_64": ("partition", {"evaluations": 64}, False, 45),
    "expected_gradients": ("expected_gradients", {}, False, 90),
    "grad_cam": ("grad_cam", {}, False, 2),
    "random": ("random", {}, True, 0.1),
}
SHAPE = (100, 120)


def needs_part_of_a_cross(truth: np.ndarray):
    """Return a game that is 1 if enough of a true part is kept, as for a model that needs most of an object."""
    groups, count = label(truth, np.ones((3, 3)))
    sizes = np.bincount(groups.ravel())[1:]

    def game(masks: np.ndarray) -> np.ndarray:
        kept = np.stack(
            [(masks & (groups == part)).sum(axis=(1, 2)) for part in range(1, count + 1)] or [0 * masks[:, 0, 0]]
        )
        return (kept / np.maximum(sizes, 1)[:, None] >= 0.12).any(axis=0).astype(float)

    return game


def map_of(method: str, given: dict, truth: np.ndarray, image: np.ndarray, random) -> tuple[np.ndarray, dict]:
    if method == "h_shap":
        settings = {name: value for name, value in given.items() if name != "min_size"}
        found = exploration.h_shap(needs_part_of_a_cross(truth), SHAPE, given.get("min_size", 1), **settings)
        return found.saliency, {"visited_nodes": found.visited_nodes, "evaluations": found.evaluations}
    if method == "random":
        return random.normal(size=SHAPE), {}
    ink = (image < 1).any(axis=0)
    width = {"partition": 4.0, "grad_cam": 6.0, "expected_gradients": 0.8}[method]
    noise = gaussian_filter(random.normal(size=SHAPE), width / 2)
    return gaussian_filter(truth.astype(float), width) * 20 + 2 * noise * (ink if width < 1 else 1), {}


def build(
    folder: Path,
    entries: dict = ENTRIES,
    n: int = 18,
    timing: str = "per_instance",
    metrics=("localization", "ablation"),
) -> dict:
    """Write a result folder in `folder` (relative to the working folder); returns the parameters of the notebook."""
    data, root, model = folder / "prepared", folder / "crosses", folder / "model"
    for place in (root / "metrics", model):
        place.mkdir(parents=True)
    preparation.prepare("crosses", {"count": 80}, [], data)
    dataset, random = loading.load(data), np.random.default_rng(0)
    rows = np.flatnonzero(dataset.split == sources.TEST)[:n]
    ids, known = dataset.ids[rows], dataset.labels[rows].astype(np.int32)
    pd.DataFrame({"instance": ids, "label": known, "prediction": known, "probability": 0.99}).to_parquet(
        root / "instances.parquet"
    )
    truth = images.truth(data, ids, known)
    card = {"name": "crosses", "architecture": "crosses_cnn", "n_parameters": 203_000, "test_accuracy": 0.994}
    (model / "card.json").write_text(json.dumps(card))
    files, measured, curves = {}, {}, []
    features = feature_kinds.build("pixel", dataset.card)
    for name, (method, given, _, milliseconds) in entries.items():
        maps = [map_of(method, given, *pair, random) for pair in zip(truth, dataset.inputs[rows], strict=True)]
        frame = pd.DataFrame(
            {
                "instance": ids,
                "target": known,
                "repeat": np.int16(0),
                "budget": None,
                "scores": [one.ravel().astype(np.float32) for one, _ in maps],
                "evaluations": [told.get("evaluations", 500 if name == "partition_500" else 64) for _, told in maps],
                "seconds": milliseconds / 1000 * random.uniform(0.8, 1.3, n),
                "value_full": 0.99,
                "value_empty": 0.01,
                "status": "ok",
                "error": None,
                "warning": None,
                "details": [json.dumps(told) if told else None for _, told in maps],
            }
        )
        path = root / "scores" / name / "0-of-1.parquet"
        settings = {"method": {"method": method, **given}}
        about = {"label": name, "method": method, "parameters": settings["method"], "settings": settings, "seed": 0}
        excluded = {"seconds_exclude": "loading, and one warm-up explanation", "timing": timing}
        score_files.write(path, frame, {**about, **excluded, "device": "cpu", "settings_digest": "0" * 16})
        files[name] = [str(path)]
        fine = score_files.read(path)
        measured[name] = ground_truth.measure_pixels(
            fine,
            images.truth(data, fine["instance"], fine["target"]),
            [(features, np.arange(n))],
            parse(settings["method"]),
        ).assign(method=name)
        counts = np.unique(np.geomspace(1, 12_000, 40).astype(int))
        fall = np.exp(-counts / (40 + 200 * random.random()))
        curves += [
            pd.DataFrame(
                {
                    "method": name,
                    "statistic": kind,
                    "x": counts.astype(float),
                    "mean": fall**power,
                    "low": fall**power - 0.05,
                    "high": fall**power + 0.05,
                }
            )
            for kind, power in (("logit", 1), ("probability", 2))
        ]
        curves += [
            pd.DataFrame(
                [
                    {
                        "method": name,
                        "statistic": f"{kind}_area",
                        "x": np.nan,
                        "mean": fall.mean(),
                        "low": fall.mean() - 0.05,
                        "high": fall.mean() + 0.05,
                    }
                ]
            )
            for kind in ("logit", "probability")
        ]
    every, paths = pd.concat(measured.values()), {"metrics": "", "measured": []}
    compared = {"localization": compare(every), "ablation": pd.concat(curves).assign(n=n)}
    if metrics:
        paths = {
            "metrics": str(root / "metrics/compared.parquet"),
            "measured": [str(root / "metrics/measured.parquet")],
        }
        pd.concat([compared[name].assign(metric=name) for name in metrics]).to_parquet(paths["metrics"])
        score_files.write_measured(paths["measured"][0], every.assign(metric="localization", training_seed=0), {})
    described = {
        name: {"method": method, "family": "hierarchical", "parameters": given, "is_control": control}
        for name, (method, given, control, _) in entries.items()
    }
    stated = {
        "report": {"title": "Crosses, synthetic maps", "n_shown": 3, "notebook": "localization"},
        **{"entries": described, "order": list(entries), "budget": 4.0, "features": {"kind": "pixel"}},
        **{"reference": "mean", "value": "probability", "timing": timing},
    }
    return {
        **{"experiment": "crosses", "root": str(root), "settings_json": json.dumps(stated, sort_keys=True)},
        **{"model_card": str(model / "card.json"), "dataset_card": str(data / "card.json"), "dataset": str(data)},
        **{"instances": str(root / "instances.parquet"), "scores": files},
        **paths,
    }


def shown(page: str) -> str:
    return re.sub(r"<style>.*?</style>|<[^>]+>", " ", page, flags=re.S)


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    """Return the folder of the page, and its data."""
    root, before = tmp_path_factory.mktemp("root"), Path.cwd()
    os.chdir(root)
    try:
        given = build(Path("made"))
        rendering.render(NOTEBOOK, given, "reports/crosses.html", "reports/crosses.ipynb")
        results = experiment.load(**given)
        truth = figures_localization.read_truth(results)
        assert len(results.dataset.ids)  # read while its path, which is relative, leads somewhere
    finally:
        os.chdir(before)
    return root, results, truth


# ------------------------------------------------------------------------------------------------------- the page


def test_the_page_has_every_section_and_every_method(rendered):
    page = (rendered[0] / "reports/crosses.html").read_text()
    assert re.findall(r"<h2[^>]*>(.*?)</h2>", page) == SECTIONS
    parts = " ".join(re.findall(r"<h3[^>]*>(.*?)</h3>", page))
    found = [parts.find(part) for part in PARTS]
    assert found == sorted(found) and min(found) >= 0
    text = shown(page)
    assert all(name in text for name in ENTRIES)
    assert "Traceback" not in text and "None" not in text and "nan" not in text.split()
    assert "The data are synthetic (crosses)." in text and "no figures" not in text.lower()
    assert "Highest mean F1 as published" in text and "Upper bounds of F1 for the leaves of h-Shap" in text
    assert not re.search(r"<script[^>]*src|<link|<iframe|@import|url\((?!#)", page)
    assert page.count("<img") + page.count("<svg") == 14 and 'label=""' not in page and ' alt=""' not in page


def test_a_folder_without_metrics_and_truth_has_a_line_for_each(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = build(
        Path("made"), {name: ENTRIES[name] for name in ("grad_cam", "random")}, n=3, timing="batch", metrics=()
    )
    card = json.loads(Path(given["dataset_card"]).read_text())
    del card["truth"]
    Path(given["dataset_card"]).write_text(json.dumps(card))
    results = experiment.load(**given)
    truth = figures_localization.read_truth(results)
    assert truth is None
    assert "true region" not in sections_localization.header(results, truth).data
    page = images_of_pages.explanations(results, truth).data
    assert "<img" in page and "orange opposes it (only what is positive: grad_cam)" in page
    said = [
        sections_localization.scores_section(results, truth),
        sections_localization.runtime_section(results),
        sections_localization.ablation_section(results, truth),
        sections_localization.sizes_section(results, truth),
        statement_sections.visits_section(results, truth),
        statement_sections.cosines_section(results, truth),
    ]
    assert all(one.data.startswith('<p class="note">') and one.data.count("<p") == 1 for one in said)
    assert sections_localization.masking_section(results).data == claims.section(results).data == ""


def test_the_committed_notebook_is_bare_and_its_code_is_tracked(default, root):
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert all(len(cell["source"]) <= 10 for cell in code)
    default["experiments"]["digits"]["report"] = {"notebook": "localization"}
    os.chdir(root)
    tracked = list_page_code("render_report", load(default).experiments["digits"].report.notebook)
    files = ("report/sections/localization.py", "papers/statement_sections.py", "papers/claims.py", "report/page.css")
    assert {f"workflow/shapeline/{file}" for file in files} <= set(tracked)
    assert "workflow/shapeline/theory/visited_nodes.py" in tracked


# -------------------------------------------------------------------------------------------------------- numbers


def test_the_truth_is_that_of_the_class_explained(rendered):
    _, results, truth = rendered
    assert (truth.any(axis=(1, 2)) == (results.instances["label"] == 1)).all()
    other = {name: frame.assign(target=1 - frame["target"]) for name, frame in results.scores.items()}
    assert (
        figures_localization.targets(dataclasses.replace(results, scores=other)) == 1 - results.instances["label"]
    ).all()


def test_the_paired_table_is_that_of_the_differences(rendered):
    _, results, _ = rendered
    page = sections_localization.paired_section(results).data
    measured = results.measured["localization"]
    f1 = measured[measured["statistic"] == "f1"].pivot(index="instance", columns="method", values="value").dropna()
    for other in ("partition_500", "random"):
        row = re.search(rf">{other}</td><td[^>]*>([^<]*)</td>", page)[1]
        assert row.startswith(f"{(f1['h_shap'] - f1[other]).mean():.2f} (")
    best = (
        measured[measured["statistic"] == "f1_best"].pivot(index="instance", columns="method", values="value").dropna()
    )
    lost = best["h_shap"] - best["expected_gradients"]
    second = page[page.index("best threshold: h_shap") :]
    assert lost.max() < 0 and f"{lost.mean():.2f} (".replace("-", "−") in second and "0 %" in second


def test_claims_are_those_of_the_one_list_about_this_experiment(rendered):
    _, results, _ = rendered
    page = claims.section(results).data
    rows = re.findall(r"<tr><td.*?</tr>", page)
    known = [claim.text for claim in claims.CLAIMS if "crosses" in claim.experiments]
    judged = ["less accurate than h-Shap", "Partition with 500", "before GradientExplainer", "Grad-CAM is faster"]
    assert len(rows) == len(judged) and all(text in row for text, row in zip(judged, rows, strict=True))
    assert all(any(text in row for text in known) for row in rows)  # labels that were not run judge no claim
    faster = next(row for row in rows if "Partition with 500" in row)
    assert "holds" in faster and re.search(r">2\d\.\d times", faster)  # 310 ms over 12, of the same instances
    slow = {
        name: frame.assign(seconds=frame["seconds"] * (name != "partition_500"))
        for name, frame in results.scores.items()
    }
    slow["partition_500"] = slow["h_shap"]
    changed = claims.section(dataclasses.replace(results, scores=slow)).data
    assert "⚠ fails" in next(row for row in re.findall(r"<tr><td.*?</tr>", changed) if "Partition with 500" in row)
    other = claims.section(dataclasses.replace(results, experiment="mine")).data
    assert other == ""


def test_seconds_have_an_interval_where_each_image_was_timed_separately(rendered):
    _, results, _ = rendered
    alone = sections_localization.seconds_per_image(results)
    taken = results.scores["grad_cam"]["seconds"]
    assert alone["mean"]["grad_cam"] == pytest.approx(taken.mean())
    assert taken.min() < alone["low"]["grad_cam"] < taken.mean() < alone["high"]["grad_cam"] < taken.max()
    batch = sections_localization.seconds_per_image(
        dataclasses.replace(results, settings={**results.settings, "timing": "batch"})
    )
    assert batch["mean"].equals(alone["mean"]) and batch[["low", "high"]].isna().all(axis=None)


def test_only_methods_that_differ_in_min_size_alone_are_a_group(rendered):
    _, results, _ = rendered
    assert figures_localization.size_groups(results) == [{12: "h_shap_12", 3: "h_shap", 1: "h_shap_1"}]


def test_boxes_lie_around_the_connected_parts():
    truth = np.zeros((8, 9), bool)
    truth[1, 1] = truth[2, 2] = True  # corners connect
    truth[5:7, 6:9] = True
    assert score_maps.find_boxes(truth) == [(1, 1, 3, 3), (5, 6, 7, 9)]
    assert score_maps.find_boxes(np.zeros((3, 3), bool)) == []
    left, top, right, bottom = np.transpose(score_maps.boxes(truth))  # two pixels away, as shares of sides
    height, width = truth.shape
    assert np.allclose([left * width, top * height], [[-1, 4], [-1, 3]])
    assert np.allclose([right * width, bottom * height], [[5, 11], [5, 9]])
    assert score_maps.boxes(None) == []


def test_a_large_map_is_reduced_to_the_largest_magnitudes():
    values = np.zeros((1000, 700))
    values[501, 699], values[0, 0], values[1, 1] = -3.0, 1.0, -2.0
    small = score_maps.reduce_map(values)
    assert small.shape == (334, 234) and small.min() == -3 == small[167, 233] and small[0, 0] == -2
    assert np.count_nonzero(small) == 2
    values = np.random.default_rng(0).normal(size=(100, 120))
    assert np.array_equal(score_maps.reduce_map(values), values)
    values[:, 0] = np.nan  # of no feature
    assert np.array_equal(score_maps.reduce_map(values), values, equal_nan=True)


def test_the_enlarged_square_stays_in_the_image():
    truth = np.zeros((40, 60), bool)
    truth[0:4, 56:60] = True
    assert figures_localization.zoom_to_part(truth) == ((0, 12), (48, 60))
    truth[0:30, 10:20] = True
    assert figures_localization.zoom_to_part(truth)[0] == (0, 40)  # larger than the image: all of that side


# ------------------------------------------------------------------------------------------------------- theorems


@pytest.mark.parametrize(("height", "width", "size"), [(16, 16, 1), (13, 9, 2), (5, 31, 3), (100, 120, 3)])
def test_visits_of_an_or_are_those_of_h_shap_on_it(height, width, size):
    random = np.random.default_rng(height)
    truth = random.random((6, height, width)) < 0.02
    truth[0] = False
    truth[1] = True
    expected = [
        exploration.h_shap(lambda masks, one=one: (masks & one).any(axis=(1, 2)).astype(float), (height, width), size)
        for one in truth[: 6 if height < 50 else 3]
    ]
    assert list(statement_sections.or_visits(truth, size))[: len(expected)] == [one.visited_nodes for one in expected]


def test_visits_of_independent_pixels_agree_with_the_theorem():
    truth = np.random.default_rng(0).random((3000, 8, 8)) < 0.05
    visited = statement_sections.or_visits(truth, 1)
    error = visited.std() / len(visited) ** 0.5
    assert visited.mean() == pytest.approx(visited_nodes.expected_visited_nodes(64, 4, 0.05), abs=4 * error)
    share, leaves = statement_sections.leaf_shares(truth, 1)
    assert leaves == 64 and np.allclose(share, truth.mean(axis=(1, 2)))


def test_cosines_by_hand_and_above_the_bound(rendered):
    _, results, truth = rendered
    found = statement_sections.cosines(results, truth, "h_shap")
    having = truth.any(axis=(1, 2))
    assert len(found) == having.sum() and (found["ideal"] >= found["bound"] - 1e-12).all()
    maps = score_files.matrix(results.scores["h_shap"])  # rows in order of instance, as the instances are
    one, wanted = maps[having][0], truth[having][0].ravel()
    assert found["cosine"][0] == pytest.approx(one @ wanted / np.linalg.norm(one) / np.linalg.norm(wanted))
    oracle = exploration.h_shap(
        lambda masks: (masks & truth[having][0]).any(axis=(1, 2)).astype(float), SHAPE, 3
    ).saliency.ravel()
    assert found["ideal"][0] == pytest.approx(oracle @ wanted / np.linalg.norm(oracle) / np.linalg.norm(wanted))
    assert found["bound"][0] == pytest.approx(max(1 / 4, (wanted.sum() / 12_000) ** 0.5))
    assert (statement_sections.cosines(results, truth, "h_shap_1")["bound"] == 1).all()


def test_the_theorem_of_visits_is_only_about_absolute_thresholds_of_zero(rendered):
    _, results, _ = rendered
    assert statement_sections.list_plain_entries(results) == ["h_shap", "h_shap_12", "h_shap_1"]
    shifted = {**results.entries, "h_shap": {"method": "h_shap", "parameters": {"min_size": 3, "shifts": [[0, 1]]}}}
    assert statement_sections.list_plain_entries(dataclasses.replace(results, entries=shifted)) == [
        "h_shap_12",
        "h_shap_1",
    ]


# -------------------------------------------------------------------------------------------------------- figures


def test_ceilings_are_marked_on_the_rows_of_hierarchical_methods(rendered):
    _, results, _ = rendered
    frame = figures_localization.select_measured(results)
    drawing = figures_localization.dots(frame, elements.assign_styles(results))
    panels = {axes.get_title(loc="left"): axes for axes in drawing.axes}
    assert set(panels) == {panel.title for panel in figures_localization.PANELS.values()}
    names = [text.get_text() for text in panels["F1, as published"].get_yticklabels()]
    means = experiment.scalars(frame, "f1")["mean"]
    assert names == list(means.sort_values(ascending=False).index)
    marks = {
        line.get_marker(): line
        for line in panels["F1, as published"].lines
        if line.get_marker() in "|>" and len(line.get_xdata()) > 1
    }
    for marker, name in zip("|>", figures_localization.CEILINGS, strict=True):
        tops = experiment.scalars(frame, name)["mean"]
        drawn = dict(zip(marks[marker].get_ydata(), marks[marker].get_xdata(), strict=True))
        assert drawn == {names.index(one): value for one, value in tops.items()}
        assert set(tops.index) == {"h_shap", "h_shap_12", "h_shap_1", "h_shap_70"}


def test_the_plane_has_a_logarithmic_axis_both_intervals_and_every_name(rendered):
    _, results, _ = rendered
    time = sections_localization.seconds_per_image(results)
    drawing = figures_localization.runtime_plane(
        figures_localization.select_measured(results), time, elements.assign_styles(results), "f1", "F1"
    )
    axes = drawing.axes[0]
    assert axes.get_xscale() == "log" and [text.get_text() for text in drawing.legends[0].get_texts()] == list(ENTRIES)
    level = [line for line in axes.lines if len(line.get_xdata()) == 2 and len(set(line.get_ydata())) == 1]
    assert len(level) == len(ENTRIES)
    time[["low", "high"]] = np.nan
    axes = figures_localization.runtime_plane(
        figures_localization.select_measured(results), time, elements.assign_styles(results), "f1", "F1"
    ).axes[0]
    assert not [line for line in axes.lines if len(line.get_xdata()) == 2 and len(set(line.get_ydata())) == 1]


def test_ablated_images_are_filled_where_the_scores_are_positive(rendered, monkeypatch):
    _, results, truth = rendered
    seen = {}

    def grid(names, entries, tile, columns):
        seen.update({name: tile(0, name).pixels for name in (None, *entries)})
        return Figure()

    monkeypatch.setattr(score_maps, "image_grid", grid)
    figures_localization.draw_ablated_images(results, truth)
    place = int(np.flatnonzero(truth.any(axis=(1, 2)))[0])
    scores = score_files.matrix(results.scores["h_shap"])[place].reshape(SHAPE)
    mean = results.dataset.part("train").inputs.mean(axis=(0, 2, 3))
    assert np.allclose(seen["h_shap"][scores > 0], mean, atol=1e-3)
    assert np.array_equal(seen["h_shap"][scores <= 0], seen[None][scores <= 0])
