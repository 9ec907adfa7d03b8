"""Figures and tables of a report, on a small invented result folder in the formats of a real one."""

import dataclasses
import io
import re

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from PIL import Image

import shapeline
from shapeline import scores
from shapeline.errors import ShapelineError
from shapeline.games import features as feature_kinds
from shapeline.methods import external
from shapeline.report import criteria, elements, experiment, findings, formatting, tables
from shapeline.report.colours import PALETTES
from shapeline.report.elements import HTML
from shapeline.report.figures import dots, explanations, games, score_maps
from shapeline.report.figures.lines import curve_panels, curves, error_by_cost
from shapeline.report.sections import common, images, method_agreement
from tests.fixtures.result_folder import METHODS, build


@pytest.fixture(scope="module")
def parameters(tmp_path_factory) -> dict:
    return build(tmp_path_factory.mktemp("image"), "image")


@pytest.fixture(scope="module")
def results(parameters) -> experiment.Results:
    return experiment.load(**parameters)


@pytest.fixture(scope="module")
def table_results(tmp_path_factory) -> experiment.Results:
    return experiment.load(**build(tmp_path_factory.mktemp("table"), "table"))


def row(frame: pd.DataFrame, entry: str) -> pd.Series:
    return frame.set_index("method").loc[entry]


# --- text ---------------------------------------------------------------------------------------------------------


def test_numbers_are_written_for_reading():
    cases = {1582008: "1,582,008", 0.28: "0.280", -11.437: "−11.4", 5.1e-8: "5.1e−8", 150000.4: "150,000", 0.0: "0"}
    assert {value: formatting.number(value) for value in cases} == cases
    assert formatting.number(2.0) == "2" and formatting.number(2.0, whole=False) == "2.00"
    assert formatting.number(float("nan")) == formatting.number(None) == "–"
    assert formatting.interval({"mean": -2.0, "low": -3.25, "high": 0.5}) == "−2.00 (−3.25 to 0.50)"
    assert formatting.interval({"mean": 8.9e-4, "low": -0.015, "high": 0.0188}) == "0.0009 (−0.0150 to 0.0188)"
    assert formatting.interval({"mean": -1e-4, "low": -5.678, "high": 1234.5}) == "0 (−6 to 1,234)"
    assert formatting.interval({"mean": 1e-6, "low": np.nan, "high": np.nan}) == "1.0e−6"
    assert [formatting.format_count(count, "day") for count in (0, 1, 2, 65536)] == [
        "0 days",
        "1 day",
        "2 days",
        "65,536 days",
    ]
    assert formatting.share(-0.354) == "−35.4 %"


def test_shares_round_neither_to_nothing_nor_to_everything():
    assert [formatting.share(value) for value in (0, 1e-4, 0.5, 0.9876, 0.9999, 1)] == [
        *("0 %", "< 0.1 %", "50 %", "98.8 %", "> 99.9 %", "100 %")
    ]  # fmt: skip


def test_tables_escape_what_users_name():
    page = elements.table(pd.DataFrame({"method": ["<b>&"], "rows": ["⚠ 1"]})).data
    assert "&lt;b&gt;&amp;" in page and "<b>" not in page
    assert 'class="number flag"' in page


# --- styles -------------------------------------------------------------------------------------------------------


def list_entries(count: int, controls: int) -> dict[str, dict]:
    return {f"label{place}": {"is_control": place >= count - controls} for place in range(count)}


@pytest.mark.parametrize("palette", ["colorblind", "deep", "muted"])
def test_every_method_has_a_distinct_style(palette):
    styles = elements.styles(list_entries(20, 3), "label0", palette)
    assert len({(style.colour, style.marker, str(style.line)) for style in styles.values()}) == 20
    assert styles["label0"].colour == "#000000"
    for style in list(styles.values())[-3:]:
        red, green, blue = matplotlib.colors.to_rgb(style.colour)
        assert style.control and red == green == blue and style.line != "-"


@pytest.mark.parametrize("palette", ["colorblind", "deep", "muted"])
def test_colours_are_neither_grey_nor_pale(palette):
    colours = np.array([matplotlib.colors.to_rgb(colour) for colour in PALETTES[palette]])
    assert len(colours) >= 6
    assert (colours.max(axis=1) - colours.min(axis=1) > 0.1).all()
    assert (colours @ [0.2126, 0.7152, 0.0722] < 0.72).all()


def test_a_new_method_at_the_end_changes_no_colour():
    before, after = elements.styles(list_entries(9, 0)), elements.styles(list_entries(10, 0))
    assert {entry: after[entry] for entry in before} == before


# --- reading ------------------------------------------------------------------------------------------------------


def test_load_keeps_the_order_of_the_methods(results):
    assert list(results.entries) == list(results.scores) == list(METHODS)
    assert results.d == 16 and len(results.scores["exact"]) == 12
    assert results.metadata["kernel_shap"][0]["git_commit"] == "0123456789abcdef"


def test_load_names_a_missing_file(parameters):
    with pytest.raises(ShapelineError, match=r"report of digits_patches: .*gone\.parquet is missing"):
        experiment.load(**{**parameters, "instances": "gone.parquet"})


def test_load_refuses_scores_that_the_settings_do_not_name(parameters):
    with pytest.raises(ShapelineError, match="scores for stray"):
        experiment.load(**{**parameters, "scores": {**parameters["scores"], "stray": []}})


def test_thousands_of_instances_do_not_fill_the_memory(parameters, results, monkeypatch, tmp_path):
    """Curves are plotted from means, and the similarity of methods is measured on a subset."""
    rows = {"metric": "log_odds", "method": "lime", "training_seed": 0, "instance": 0, "repeat": 0, "value": 1.0}
    measured = pd.DataFrame(
        {**rows, "x": [np.nan, 0.5, 2.0], "statistic": ["deletion_auc", "deletion", "rmse_by_budget"]}
    )
    scores.write_measured(tmp_path / "lime.parquet", measured, {})
    loaded = experiment.load(**parameters, measured=[str(tmp_path / "lime.parquet")])
    assert [*loaded.measured["log_odds"]["statistic"]] == ["deletion_auc", "rmse_by_budget"]
    assert "evenly spaced" not in method_agreement.comparisons(results).data
    monkeypatch.setattr(method_agreement, "MAX_COMPARED", 5)
    assert "Computed on 5 of 12 instances, evenly spaced." in method_agreement.comparisons(results).data


# --- findings -----------------------------------------------------------------------------------------------------


def areas_of(**means: float) -> pd.DataFrame:
    rows = [{"method": entry, "statistic": "deletion_auc", "x": np.nan, "mean": mean} for entry, mean in means.items()]
    return pd.DataFrame(rows).assign(low=lambda frame: frame["mean"] - 1, high=lambda frame: frame["mean"] + 1, n=12)


def with_metrics(results: experiment.Results, **metrics: pd.DataFrame) -> experiment.Results:
    return dataclasses.replace(results, metrics={**results.metrics, **metrics})


def without(results: experiment.Results, *names: str) -> experiment.Results:
    kept = {name: frame for name, frame in results.metrics.items() if name not in names}
    return dataclasses.replace(results, metrics=kept)


def test_the_first_screen_begins_with_the_answers(results):
    page = common.header(results, HTML("<p>A card</p>"), "Most important: <b>").data
    assert (
        '<p>A card</p><ul class="headlines"><li>Most important: &lt;b&gt;</li><li>Nats are natural logarithms' in page
    )
    assert page.index("<h1>") < page.index("A card") < page.index('<div class="key">')
    bare = common.header(results).data  # the best means are told where no advice is, which might say otherwise
    assert bare.count("Best mean by") == 3 and "Best mean by" not in page


def test_a_figure_can_be_moved_sideways_in_a_box_of_its_own():
    drawing = elements.figure(Figure(figsize=(1, 1)), "A <figure>", "what it shows").data
    image = r'<svg role="img" aria-label="A &lt;figure&gt;" width="96" .*</svg>'
    legend = "<figcaption>what it shows</figcaption>"
    assert re.fullmatch(f'<figure><div class="wide">{image}</div>{legend}</figure>', drawing, re.S)


@pytest.mark.parametrize("layout", [None, "constrained"])
def test_a_figure_is_drawn_once(monkeypatch, layout):
    drawing, drawn, draw = Figure(figsize=(2, 2), layout=layout), [], Figure.draw
    drawing.subplots().set_title("laid out")
    monkeypatch.setattr(Figure, "draw", lambda self, renderer: drawn.append(renderer) or draw(self, renderer))
    elements.figure(drawing, "drawn")
    assert len(drawn) == 1


def test_the_title_names_a_subset(results):
    plain = findings.headline(results)["title"]
    card = results.dataset_card | {"subset": "subset: part.csv, 40 rows, in place of train.csv"}
    named = dataclasses.replace(results, dataset_card=card)
    assert findings.headline(named)["title"] == f"{plain} (subset: part.csv, 40 rows, in place of train.csv)"


def measured_of(statistic: str, x: float = np.nan, **values: np.ndarray) -> pd.DataFrame:
    rows = {"repeat": 0, "statistic": statistic, "x": x}
    return pd.concat(
        [
            pd.DataFrame({"method": entry, "instance": np.arange(len(own)), "value": own, **rows})
            for entry, own in values.items()
        ]
    )


def test_the_best_at_a_budget_is_judged_on_the_same_instances(results):
    random = np.random.default_rng(1)
    easy = np.abs(random.normal(3, 1, 40))
    compared = pd.DataFrame(
        {
            "method": ["lime", "kernel_shap"] * 2,
            "statistic": "rmse_by_budget",
            "x": [2.0, 2.0, 4.0, 4.0],
            "mean": [3.0, 3.1, 3.0, 3.1],
        }
    ).assign(low=lambda frame: frame["mean"] - 0.3, high=lambda frame: frame["mean"] + 0.3, n=40)
    parts = [
        measured_of("rmse_by_budget", x, lime=easy, kernel_shap=easy + 0.1 + random.normal(0, noise, 40))
        for x, noise in ((2.0, 0.02), (4.0, 2.0))
    ]
    found = dataclasses.replace(with_metrics(results, error=compared), measured={"error": pd.concat(parts)})
    table = findings.best_by_budget(found)
    assert list(table["smallest error"]) == ["lime"] * 2 and list(table["next"]) == ["kernel_shap"] * 2
    assert list(table["significant"]) == ["yes", "no"]
    assert table["difference"][0] == formatting.interval(
        findings.difference(found, "error", "rmse_by_budget", "lime", "kernel_shap", 2.0)
    )
    assert findings.difference(found, "error", "rmse_by_budget", "lime", "kernel_shap", 2.0)["high"] < 0
    bare = findings.best_by_budget(dataclasses.replace(found, measured={}))
    assert list(bare["difference"]) == list(bare["significant"]) == ["–"] * 2


def test_areas_between_random_and_the_best_found_have_intervals(results):
    """By hand on masking and insertion, whose better directions differ; the interval is over instances."""
    random = np.random.default_rng(2)
    reach, good = random.uniform(5, 9, 30), random.uniform(0.5, 0.9, 30)
    masking = {"random": 0 * reach, "lime": -good * reach, "exact": -reach}
    insertion = {"random": -reach, "lime": -(1 - good) * reach, "exact": 0 * reach}
    frames = [measured_of("deletion_auc", **masking), measured_of("insertion_auc", **insertion)]
    found = dataclasses.replace(results, measured={"log_odds": pd.concat(frames)})
    table = tables.area_table(found).set_index("method")
    half = 1.96 * good.std(ddof=1) / np.sqrt(30)
    for curve in ("deletion", "insertion"):
        column = table[f"{tables.AUC[curve]}, from random to the best method"]
        mean, low, high = map(float, re.fullmatch(r"([\d.]+) % \(([\d.]+) to ([\d.]+)\)", column["lime"]).groups())
        assert mean == pytest.approx(100 * good.mean(), abs=0.05)
        assert (low, high) == pytest.approx((mean - 100 * half, mean + 100 * half), abs=1)
        assert column["exact"] == "100.0 % (100.0 to 100.0)" and column["random"] == "0.0 % (0.0 to 0.0)"
        assert column["saliency"] == "–"
    assert "from random" not in " ".join(tables.area_table(results))


def test_headline_counts_evaluations_and_failures(results):
    found = findings.headline(results)
    per_instance = [2**16 if method[3] is None else method[3] for method in METHODS.values()]
    assert found["evaluations"] == 12 * sum(per_instance)
    assert (found["rows"], found["failures"], found["instances"]) == (12 * 13, 1, 12)


def test_without_a_recommendation_the_best_mean_by_each_criterion_is_stated(results):
    told = " ".join(findings.headlines(with_metrics(results, log_odds=areas_of(exact=-10, kernel_shap=-9))))
    assert "Best mean by deletion AUC: exact, −10.0 (−11.0 to −9.0) nats (lower is better)." in told
    assert "Best mean by" not in " ".join(findings.headlines(without(results, "log_odds", "error")))


def test_diagnostics_count_failures_by_status(results):
    frame = tables.health(results)
    assert list(frame["method"]) == list(METHODS)
    assert row(frame, "lime")["failures"] == "⚠ memory in 1" and row(frame, "exact")["failures"] == "none"
    assert row(frame, "exact")["evaluations, total"] == "786,432"


def test_diagnostics_flag_a_gap_of_efficient_methods_only(results):
    column = "efficiency gap, median (nats)"
    healthy = tables.health(results)
    assert not healthy[column].str.startswith("⚠").any()
    broken = {**results.scores, "kernel_shap": results.scores["kernel_shap"].assign(value_full=9.0)}
    broken["banzhaf"] = results.scores["banzhaf"].assign(value_full=9.0)
    frame = tables.health(dataclasses.replace(results, scores=broken))
    assert list(frame["method"][frame[column].str.startswith("⚠")]) == ["kernel_shap"]
    entries = {**results.entries, "banzhaf": {"method": "gp_interactions"}}  # prompts store only its main effects
    frame = tables.health(dataclasses.replace(results, scores=broken, entries=entries))
    assert row(frame, "banzhaf")["should be 0"] == "no"
    failed = {"exact": results.scores["exact"].assign(status="evaluation failed", scores=None)}
    assert row(tables.health(dataclasses.replace(results, scores=failed)), "exact")["should be 0"] == "–"


def test_diagnostics_count_zero_scores_and_ties(results):
    few = np.array([4, 3, 2, 1, 1] + [0] * 11, np.float32)  # the cut is at 4 of 16
    frame = results.scores["random"].assign(scores=[few] * 12)
    table = tables.health(dataclasses.replace(results, scores={"random": frame}))
    assert row(table, "random")["zero scores"] == "68.8 %" and row(table, "random")["ties at top-20 %"] == "100 %"


def test_diagnostics_report_flags_of_methods_and_are_silent_otherwise(results):
    assert "warnings" not in tables.health(results)
    flags = ["no neighbour"] * 5 + [None] * 7
    marked = {**results.scores, "random": results.scores["random"].assign(warning=flags)}
    table = tables.health(dataclasses.replace(results, scores=marked))
    assert row(table, "random")["warnings"] == "no neighbour in 5" and row(table, "lime")["warnings"] == "none"


def test_ties_are_found_only_at_the_threshold():
    values = np.array([[5, 4, 3, 2, 1.0], [5, 5, 3, 2, 1], [5, 3, 3, 2, 1], [-1, -1, -2, -3, -4]])
    assert tables.ties(values, cut=0.2).tolist() == [False, True, False, True]
    assert tables.ties(values, cut=0.4).tolist() == [False, False, True, False]
    assert tables.ties(np.ones((2, 1))).tolist() == [False, False]


def test_cost_flags_what_is_above_the_budget(results):
    frame = tables.cost(results)
    flagged = list(frame["method"][frame["budget"].str.startswith("⚠")])
    assert flagged == ["exact", "banzhaf", "l_shapley", "c_shapley", "c_shapley_myerson"]
    assert (
        row(frame, "kernel_shap")["evaluations per instance"] == "64"
        and row(frame, "exact")["multiple of d"] == "4,096"
    )
    on_top = {"kernel_shap": results.scores["kernel_shap"].assign(evaluations=66)}  # the empty and the full input
    assert tables.cost(dataclasses.replace(results, scores=on_top))["budget"][0] == "within 4 d"
    above = {"kernel_shap": results.scores["kernel_shap"].assign(evaluations=67)}
    assert tables.cost(dataclasses.replace(results, scores=above))["budget"][0] == "⚠ above 4 d"
    gradients = dataclasses.replace(
        results,
        entries={"a": {"method": "integrated_gradients"}},
        scores={"a": results.scores["kernel_shap"].assign(evaluations=25)},
    )
    shown = row(tables.cost(gradients), "a")
    assert shown["evaluations per instance"] == "75" and shown["budget"] == "⚠ above 4 d"
    many = {"a": [{"reference_rows": 50}]}  # an evaluation has as many rows, a gradient one
    shown = row(tables.cost(dataclasses.replace(gradients, metadata=many)), "a")
    assert shown["evaluations per instance"] == "1.5" and shown["budget"] == "within 4 d"
    changes = {"warning": external.NO_COUNT, "seconds": np.nan}  # of scores computed elsewhere
    unknown = {**results.scores, "kernel_shap": results.scores["kernel_shap"].assign(**changes)}
    known = row(tables.cost(dataclasses.replace(results, scores=unknown)), "kernel_shap")
    assert {text for name, text in known.items() if name != "method"} == {"–"}


def test_area_table_reads_the_nearest_computed_fractions(results):
    frame = tables.area_table(results)
    assert [column for column in frame.columns if column.startswith("top")] == ["top 6.2 % masked", "top 18.8 % masked"]
    assert frame["method"][0] == "exact" and frame["method"].iloc[-1] == "random"
    line = results.metrics["log_odds"].query("method == 'lime' and statistic == 'deletion' and x == 0.1875")
    assert row(frame, "lime")["top 18.8 % masked"] == formatting.number(line["mean"].item())


def test_cards_and_provenance_come_from_the_files(results):
    model = tables.model_facts(results.model_card).set_index("fact")["value"]
    assert model["trainable parameters"] == "10,282" and model["epochs"] == "20"
    assert model["test accuracy"] == "99.1 % (94.9 % to 99.8 %)"
    data = tables.dataset_facts(results.dataset_card).set_index("fact")["value"]
    assert data["classes"] == "3, 8" and "(3: " in data["rows, test"]
    shared, by_entry = tables.provenance(results)
    assert shared.set_index("fact")["value"]["git commit"] == "0123456789abcdef"
    assert row(by_entry, "c_shapley_myerson")["parameters"] == "order 4, weights myerson"
    assert row(by_entry, "exact")["shards"] == "2"


# --- instances ----------------------------------------------------------------------------------------------------


def test_instances_shown_take_turns_between_classes():
    instances = pd.DataFrame({"instance": range(6), "label": [0, 0, 0, 1, 1, 2]})
    assert experiment.choose_instances(instances, 5)["instance"].tolist() == [0, 3, 5, 1, 4]


def test_instances_go_by_their_number_in_the_source(results):
    picked = results.instances.iloc[[3, 0]]
    places = experiment.find_positions(results.dataset, picked)
    assert (results.dataset.ids[places] == picked["instance"]).all()
    with pytest.raises(ShapelineError, match="not those of the prepared dataset"):
        experiment.find_positions(results.dataset, picked.assign(instance=10**9))
    with pytest.raises(ShapelineError, match="not those of the prepared dataset"):
        experiment.find_positions(results.dataset, picked.assign(label=1 - picked["label"]))


def test_scores_shown_are_those_of_the_first_repeat_at_the_largest_budget():
    rows = [(5, 0, 2.0, "ok", [1]), (5, 0, 4.0, "ok", [2]), (5, 1, 4.0, "ok", [3]), (6, 0, 4.0, "memory", None)]
    frame = pd.DataFrame(rows, columns=["instance", "repeat", "budget", "status", "scores"])
    shown = experiment.select_scores(frame, [6, 5])
    assert shown[0] is None and shown[1].tolist() == [2]


# --- figures ------------------------------------------------------------------------------------------------------


def overlap(one, other) -> bool:
    return one.x0 < other.x1 and other.x0 < one.x1 and one.y0 < other.y1 and other.y0 < one.y1


def drawn(figure: Figure) -> Figure:
    figure.draw_without_rendering()
    return figure


def test_curves_show_every_method_with_units_and_a_legend_beside_the_data(results):
    frame, styles = results.metrics["log_odds"], elements.assign_styles(results)
    figure = drawn(curves(frame, styles))
    masking, insertion = figure.axes
    assert masking.get_xlabel() == "top features masked (%)" and masking.get_ylabel() == "change of log-odds (nats)"
    lines = {line.get_label(): line for line in masking.lines}
    assert set(lines) == set(METHODS) and len(insertion.lines) == len(METHODS)
    means = frame.query("method == 'lime' and statistic == 'deletion'").sort_values("x")["mean"]
    assert lines["lime"].get_ydata() == pytest.approx(means)
    assert lines["random"].get_color() == styles["random"].colour and lines["random"].is_dashed()
    legend = figure.legends[0].get_window_extent()
    assert not any(overlap(legend, axes.get_window_extent()) for axes in figure.axes)
    assert legend.x1 <= figure.bbox.x1 and legend.y0 >= 0


def test_few_curves_carry_their_intervals_as_bands(results):
    frame = results.metrics["log_odds"]
    few = frame[frame["method"].isin(["exact", "lime", "random"])]
    band = curves(few, elements.assign_styles(results)).axes[0].collections[0]
    heights = band.get_paths()[0].vertices[:, 1]
    line = few.query("method == 'exact' and statistic == 'deletion'")
    assert (heights.min(), heights.max()) == pytest.approx((line["low"].min(), line["high"].max()))
    assert band.get_alpha() > 0


def test_many_curves_leave_room_for_the_bands_that_they_do_not_draw(results):
    axes = drawn(curves(results.metrics["log_odds"], elements.assign_styles(results))).axes[0]
    assert not axes.collections
    masking = results.metrics["log_odds"].query("statistic == 'deletion'")
    low, high = axes.get_ylim()
    assert low <= masking["low"].min() and masking["high"].max() <= high


def test_curve_panels_have_one_panel_per_method(results):
    figure = drawn(curve_panels(results.metrics["log_odds"], elements.assign_styles(results)))
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert panels[0].get_title(loc="left") == "exact" and len(panels) == len(METHODS)
    band = panels[0].collections[0].get_paths()[0].vertices[:, 1]
    line = results.metrics["log_odds"].query("method == 'exact' and statistic == 'deletion'")
    assert (band.min(), band.max()) == pytest.approx((line["low"].min(), line["high"].max()))


def test_areas_are_ordered_and_keep_their_intervals(results):
    figure = drawn(dots.draw_dots(results.metrics["log_odds"], elements.assign_styles(results), dots.AREAS))
    masking = figure.axes[0]
    names = [text.get_text() for text in masking.get_yticklabels()]
    areas = experiment.scalars(results.metrics["log_odds"], "deletion_auc")
    assert names == list(areas.sort_values("mean").index)
    top, bottom = masking.get_ylim()[1], masking.get_ylim()[0]
    assert top < bottom  # the first, best, is on top
    whisker = masking.lines[0].get_xdata()
    assert list(whisker) == pytest.approx(areas.loc[names[0], ["low", "high"]])
    assert "lower is better" in masking.get_xlabel() and "higher is better" in figure.axes[1].get_xlabel()


def test_errors_leave_out_the_exact_values(results):
    frame = results.metrics["error"]
    both = pd.concat([frame, frame[frame["method"] == "lime"].assign(method="exact", mean=0.0)])
    figure = drawn(dots.draw_dots(frame, elements.assign_styles(results), dots.ERRORS))
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["RMSE", "Spearman correlation", "Top-k overlap"]
    assert next(text.get_text() for text in figure.axes[0].get_yticklabels()) == "banzhaf"
    page = common.error_section(dataclasses.replace(results, metrics={**results.metrics, "error": both})).data
    drawn_methods = set(re.findall('data-method="([^"]*)"', page.partition("</svg>")[0]))
    assert drawn_methods == {*METHODS} - {"exact"}


def test_the_cost_figure_names_every_method_beside_the_data(results):
    frame, styles = results.metrics["error"], elements.assign_styles(results)
    figure = drawn(error_by_cost(frame, styles, experiment.average_evaluations(results), "exact", "nats", 64))
    [legend], [axes] = figure.legends, figure.axes
    assert {text.get_text() for text in legend.get_texts()} == {*METHODS} - {"exact"}
    assert not overlap(legend.get_window_extent(), axes.get_window_extent())


def test_maps_are_symmetric_about_zero_and_report_failures():
    cells = np.array([[0, 0, 1], [0, 0, 1], [2, 2, 3]])  # patches of unequal size
    images = np.zeros((2, 1, 3, 3))
    values = {"one": [np.array([1.0, 4, -2, 0]), None], "two": [np.zeros(4), np.arange(4.0)]}
    figure = score_maps.heat_maps(images, ["a", "b"], values, [cells, cells])
    [axes] = figure.axes
    assert len(axes.images) == 5
    map_ = axes.images[1]  # beside the first image
    expected = elements.SIGNS((np.array([[1, 1, 4], [1, 1, 4], [-2, -2, 0]]) + 4) / 8, bytes=True)
    assert (map_.to_rgba(map_.get_array(), bytes=True) == expected).all()
    texts = [text.get_text() for text in axes.texts]
    assert texts.count("failed") == 1 and texts.count("one") == texts.count("± 4") == 1
    title, below = (next(text for text in axes.texts if text.get_text() == words) for words in ("one", "± 4"))
    left, right, bottom, top = map_.get_extent()  # the axes point down
    assert left < title.get_position()[0] == below.get_position()[0] < right
    assert title.get_position()[1] < top < bottom < below.get_position()[1]


@pytest.mark.parametrize(
    "label, width, expected",
    [
        ("class deer, 13", 1.25, "class deer, 13"),
        ("wrong predictions, 2", 1.25, "wrong\npredictions, 2"),
        ("c_shapley_regression_kernel", 1.25, "c_shapley_\nregression_kernel"),
        ("shapley_regression_kernel_4", 0.5, "shapley_\nregression_\nkernel_4"),
    ],
)
def test_a_name_is_wrapped_if_it_is_wider_than_its_column(label, width, expected):
    assert elements.wrap_name(label, width) == expected


@pytest.mark.parametrize("low, high, expected", [(-0.001, 0.3, "0.15 (0.00 to 0.30)"), (np.nan, np.nan, "0.15")])
def test_a_mean_without_an_interval_stands_alone(low, high, expected):
    row = {"mean": 0.15, "low": low, "high": high}
    assert formatting.two_digit_interval(row) == expected


def test_a_tile_is_drawn_where_its_frame_is():
    tiles = [score_maps.Tile(np.zeros((2, 3, 3))), score_maps.Tile(None)]
    figure = score_maps.image_grid(["a"], ["b"], lambda _, entry: tiles[entry is not None])
    assert [text.get_text() for text in figure.axes[0].texts] == ["a", "input", "failed", "b"]
    png = elements._write_png(figure)
    dark = np.asarray(Image.open(io.BytesIO(png)).convert("L")) < 20
    frame = figure.axes[0].patches[0].get_window_extent().transformed(figure.dpi_scale_trans.inverted())
    rows, columns = (slice(int(low * 192) + 3, int(high * 192) - 3) for low, high in (frame.intervaly, frame.intervalx))
    inside = dark[::-1][rows, columns]
    assert inside.all() and inside.shape[1] > 1.4 * inside.shape[0] > 100
    assert dark.sum() < 1.2 * inside.size  # beside it stand a name, a title and a word


@pytest.mark.parametrize("count", [1, 2])
def test_a_heat_map_of_few_parts_shows_the_names_of_its_axes(count):
    figure = games.heat_map(["It was designed by the architect"] * count, ["understanding"], np.ones((count, 1)))
    figure.draw_without_rendering()
    axis = figure.axes[0].yaxis.label.get_window_extent()
    assert 0 <= axis.y0 and axis.y1 <= figure.bbox.y1


def test_an_image_of_one_row_and_colours_that_are_a_rounding_too_bright_are_drawn():
    shown = [score_maps.Tile(np.ones((1, 900))), score_maps.Tile(np.full((2, 2, 3), 1 + 1e-6))]
    drawing = score_maps.image_grid(["a"], ["$b$"], lambda _, entry: shown[entry == "$b$"])
    line, white = drawing.axes[0].images
    assert line.get_array().shape == (1, 900) and (white.get_array() == 1).all() and elements._write_png(drawing)
    left, right, bottom, top = line.get_extent()
    assert bottom - top == pytest.approx((right - left) / 4)
    for shape in ((1, 900), (60, 2)):
        drawing = explanations.overlay(np.zeros((1, 1, *shape)), ["a"], [np.zeros(shape)], False, 0, "the class")
        drawing.draw_without_rendering()
        sides = drawing.axes[0].get_window_extent().size
        assert max(sides) == pytest.approx(4 * min(sides), rel=0.01)


def test_the_overlay_of_a_regression_names_no_class():
    images = np.random.default_rng(0).random((2, 1, 4, 4)).astype(np.float32)
    patches = {"kind": "patch", "size": 2}

    def predict(rows):
        return rows.mean(axis=(1, 2, 3)) - 3

    found = shapeline.explain(predict, images, features=patches, evaluations=16, value="prediction")
    assert found.plot("overlay").get_supxlabel().startswith("Blue supports a larger prediction")


def test_maps_of_many_methods_continue_in_another_block():
    values = {f"method{place}": [np.zeros(4)] for place in range(13)}
    figure = score_maps.heat_maps(np.zeros((1, 3, 2, 2)), ["a"], values, [np.arange(4).reshape(2, 2)])
    shown = figure.axes[0].images
    assert len(shown) == 13 + 2  # the image stands in both blocks
    wide, high = figure.get_size_inches()
    boxes = [Bbox.from_extents(x0, y0, x1, y1) for x0, x1, y1, y0 in (image.get_extent() for image in shown)]
    assert all(0 <= box.x0 and box.x1 <= wide and 0 <= box.y0 and box.y1 <= high for box in boxes)
    assert not any(overlap(one, other) for place, one in enumerate(boxes) for other in boxes[:place])


def with_best_order(results: experiment.Results) -> experiment.Results:
    """The results with curves and areas of a best order, on 12 instances."""
    frame = results.metrics["log_odds"]
    curve = frame[(frame["method"] == "exact") & frame["statistic"].isin(["deletion", "insertion"])]
    best = curve.assign(statistic="best_" + curve["statistic"], mean=-7.0)
    area = {"method": "exact", "x": np.nan, "mean": -5.0, "low": -6.0, "high": -4.0, "n": 12}
    both = [{**area, "statistic": f"best_{name}_auc"} for name in experiment.DIRECTIONS]
    known = pd.concat([frame, best, pd.DataFrame(both)])
    return dataclasses.replace(results, metrics={**results.metrics, "log_odds": known})


def test_the_best_order_is_drawn_and_named_where_it_is_known(results):
    known = with_best_order(results)
    frame, drawn_in = known.metrics["log_odds"], elements.assign_styles(results)
    lines = {line.get_label(): line for line in curves(frame, drawn_in).axes[0].lines}
    assert set(lines["optimal order"].get_ydata()) == {-7.0}
    dotted = dots.draw_dots(frame, drawn_in, dots.AREAS).axes[0]
    assert [-5.0, -5.0] in [list(line.get_xdata()) for line in dotted.lines]
    assert dotted.patches[0].get_extents().width > 0  # its interval
    table = tables.area_table(known)
    assert table["method"][0] == "optimal order" and len(table) == len(tables.area_table(results)) + 1
    assert table["deletion AUC (lower is better)"][0] == formatting.interval({"mean": -5.0, "low": -6.0, "high": -4.0})
    assert "all coalitions of 12 instances" in common.masking_section(known).data
    page = common.masking_section(results).data
    assert "No optimal order" in page and "optimal order" not in set(tables.area_table(results)["method"])


def test_score_table_writes_the_largest_features_first():
    values = {"one": np.array([0.1, -3.0, 1.0]), "two": np.array([0.2, -2.0, 1.5]), "three": None}
    axes = score_maps.score_table(values, ["small", "large", "middle"], most=2).axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["large", "middle"]
    assert [text.get_text() for text in axes.texts] == ["−3.0", "−2.0", "failed", "1.0", "1.5", "failed"]
    assert "1 smaller features not shown" in axes.get_xlabel()


def test_score_table_mutes_scores_whose_interval_contains_0():
    values = {"sampled": np.array([-3.0, 1.0]), "plain": np.array([2.0, 1.5])}
    axes = score_maps.score_table(values, ["a", "b"], half={"sampled": np.array([0.5, 1.2])}).axes[0]
    assert [text.get_text() for text in axes.texts] == ["−3.0 ± 0.50", "2.0", "1.0 ± 1.2", "1.5"]
    muted = {text.get_text(): text.get_color() == "#8a8a8a" for text in axes.texts}
    assert muted == {"−3.0 ± 0.50": False, "2.0": False, "1.0 ± 1.2": True, "1.5": False}
    assert axes.images[0].get_array()[1].tolist() == [0.0, 0.75]


def test_a_table_shows_what_the_instance_has_in_each_feature(table_results):
    features = feature_kinds.build("column", {"input_shape": [3], "feature_names": ["age", "job", "x"]})
    card = {
        **table_results.dataset_card,
        "feature_names": ["age", "job", "x"],
        "categories": {"job": ["none", "clerk"]},
    }
    shown = dataclasses.replace(table_results, features=features, dataset_card=card)
    assert images.list_named_values(shown, np.array([39.0, 1, 0.25])) == ["age = 39", "job = clerk", "x = 0.2500"]
    grouped = table_results.dataset.inputs[0]
    three = "; ".join(formatting.number(float(value), 4) for value in grouped[[0, 10, 20]])
    assert images.list_named_values(table_results, grouped)[0] == f"radius = {three}"  # mean, error, worst
    groups = {"job": ["job_clerk", "job_none"], "many": ["a", "b", "c", "d"]}
    card = {"input_shape": [6], "feature_names": [*groups["job"], *groups["many"]], "groups": groups}
    shown = dataclasses.replace(shown, features=feature_kinds.build("group", card), dataset_card=card)
    assert images.list_named_values(shown, np.array([0.0, 1, 2, 3, 4, 5])) == ["job = none", "many"]


@pytest.mark.parametrize("task, output", [("classification", "nats"), ("regression", "units of the target")])
def test_the_unit_of_a_score_is_that_of_what_its_method_explains(table_results, task, output):
    """Gradients are of log p, or of the prediction, for any value of coalitions."""
    methods = {"a": "kernel_shap", "b": "gradient_x_input", "c": "saliency", "d": "random", "e": "occlusion"}
    shown = dataclasses.replace(
        table_results,
        settings={**table_results.settings, "value": "logit"},
        entries={entry: {"method": method} for entry, method in methods.items()},
        scores=dict.fromkeys(methods),
        dataset_card={**table_results.dataset_card, "task": task},
    )
    slope = f"{output} per unit of the input"
    assert {entry: experiment.find_unit(shown, entry) for entry in methods} == {
        "a": "logits", "b": output, "c": slope, "d": "", "e": "logits"
    }  # fmt: skip
    assert experiment.describe_units(shown) == f"logits; {output}: b; {slope}: c; no unit: d"
    of_one = dataclasses.replace(shown, scores={"d": None})
    assert experiment.describe_units(of_one) == "no unit", "the unit of the value, which no method has"
    assert experiment.describe_units(dataclasses.replace(shown, scores={"a": None, "e": None})) == "logits"


def test_every_measured_metric_is_on_the_page(table_results):
    rows = [("infidelity", np.nan, 0.25), ("infidelity_scaled", np.nan, 0.125), ("infidelity", 1.0, 9.0)]
    rows = [(entry, *row, row[2] - 0.0625, row[2] + 0.0625, 8) for entry in "ab" for row in rows]
    frame = pd.DataFrame(rows, columns=["method", "statistic", "x", "mean", "low", "high", "n"])
    custom = frame.assign(statistic="spread")[:1]
    shown = dataclasses.replace(
        table_results,
        metrics={"infidelity": frame, "own": custom, "ablation": frame},
        entries={"a": {"method": "kernel_shap"}, "b": {"method": "random"}},
        scores={"a": None, "b": None},
    )
    page = common.other_metrics(shown, "ablation").data
    assert "infidelity (nats², lower is better)" in page and "0.250 (0.188 to 0.312)" in page and "9.00" not in page
    assert "spread (lower is better)" in page and "logit" not in page
    assert page.count("0.250 (") == 2 and page.count("0.125 (") == 2, (
        "infidelity of a, not of random; both scaled; spread"
    )
    elsewhere = dataclasses.replace(shown, entries={"a": {"method": "kernel_shap"}, "b": {"method": "external"}})
    assert common.other_metrics(elsewhere, "ablation").data.count("0.250 (") == 3, (
        "external scores are taken as of its unit"
    )
    assert common.other_metrics(dataclasses.replace(table_results, metrics={"log_odds": frame})) is None


def test_a_missing_recommendation_has_its_reason(table_results):
    shown = dataclasses.replace(table_results, metrics={})
    assert common.explain_missing_recommendation(shown).endswith("two methods on 6 instances; add the metric log_odds.")
    measured = dataclasses.replace(shown, metrics={"log_odds": pd.DataFrame()})
    assert common.explain_missing_recommendation(measured).endswith("two methods on 6 instances.")
    numbers = dataclasses.replace(shown, dataset_card={**shown.dataset_card, "task": "regression"})
    assert common.explain_missing_recommendation(numbers).endswith("add the metric error.")
    alone = dataclasses.replace(shown, entries=dict([*shown.entries.items()][:1]))
    assert "the experiment has one; add others, such as random." in common.explain_missing_recommendation(alone)
    none = dataclasses.replace(shown, entries={"a": {"method": "random"}, "b": {"method": "random"}})
    assert common.explain_missing_recommendation(none).endswith("add others, such as gp_shapley.")


def test_no_entry_of_random_attribution_is_recommended(table_results):
    values = {"best": -1.0, "second": -4.0, "worst": 0.0, "first": 0.0}
    rows = [(m, i, 0, "deletion_auc", np.nan, v + 0.1 * i) for m, v in values.items() for i in range(8)]
    measured = pd.DataFrame(rows, columns=["method", "instance", "repeat", "statistic", "x", "value"])
    entries = {name: {"method": "random"} for name in ("first", "second")}
    methods = {"best": {"method": "occlusion"}, "worst": {"method": "saliency"}}
    shown = dataclasses.replace(table_results, measured={"log_odds": measured}, entries=entries | methods)
    [answer] = criteria.collect_evidence(shown)
    assert answer.last.entry == answer.recommend_by_time.entry == "best" and "second" in answer.values
    assert not criteria.collect_evidence(dataclasses.replace(shown, entries=entries))


def test_a_share_of_the_range_to_the_best_method_is_at_most_1(table_results):
    """Two methods, of which one is the best nearly everywhere, so that a t interval would end above 1."""
    values = {"random": [0.0] * 8, "a": [-1.0] * 7 + [-0.6], "b": [-0.5] * 7 + [-1.0]}
    rows = [(m, i, 0, "deletion_auc", np.nan, v) for m, column in values.items() for i, v in enumerate(column)]
    measured = pd.DataFrame(rows, columns=["method", "instance", "repeat", "statistic", "x", "value"])
    entries = {name: {"method": name} for name in values}
    shown = dataclasses.replace(table_results, measured={"log_odds": measured}, entries=entries)
    shares = tables._scale_auc(shown, "deletion_auc", "lower")
    assert shares.loc["a", "mean"] == 0.95 and shares.loc["a", "high"] == 1 and shares["low"].notna().all()


def test_a_sentence_on_one_instance_is_in_the_singular(table_results):
    one = table_results.instances.head(1)
    scores = {entry: frame.head(1) for entry, frame in table_results.scores.items()}
    entry = next(iter(scores))
    shown = dataclasses.replace(table_results, instances=one, scores={entry: scores[entry]})
    text = " ".join(findings.headlines(shown))
    assert "1 explanation (1 method, 1 instance" in text and "1 instance is explained; the model is " in text
    assert "100 %" not in text and "of them" not in text


def test_a_table_experiment_shows_named_features(table_results):
    page = images.explanations(table_results).data
    assert page.count("<figure>") == 3 and "true malignant, predicted malignant" in page
    assert "concavity" in experiment.name_features(table_results)


# --- sections -----------------------------------------------------------------------------------------------------


def test_missing_metrics_take_one_line(results):
    bare = without(results, "log_odds", "error")
    assert common.masking_section(bare).data.count("<p") == 1 and "log_odds" in common.masking_section(bare).data
    of_numbers = dataclasses.replace(bare, dataset_card={**bare.dataset_card, "task": "regression"})
    assert "and this is a regression" in common.masking_section(of_numbers).data
    assert "“error” was not computed" in common.error_section(bare).data
    assert tables.cost(without(results, "cost"))["ms per instance"][0] == formatting.number(
        1000 * (0.0004 + 5e-6 * 2**16)
    )


def test_without_exact_values_the_error_section_is_missing(tmp_path):
    entries = tuple(entry for entry in METHODS if entry != "exact")
    results = experiment.load(**build(tmp_path / "image", "image", entries, exact=None))
    assert common.error_section(results).data == ""
    assert results.exact is None and "#000000" not in {
        style.colour for style in elements.assign_styles(results).values()
    }


def test_intervals_state_their_fixed_factors(results):
    assert "sampled independently per instance" in common.interval_note(results).data
    frame = results.scores["kernel_shap"]
    repeated = pd.concat([frame.assign(repeat=repeat) for repeat in range(3)])
    more = dataclasses.replace(results, scores={"kernel_shap": repeated})
    assert "the mean over 3 sampling repetitions" in common.interval_note(more).data


def test_figures_are_images_with_a_description(results):
    page = common.masking_section(results).data
    assert page.count('<svg role="img" aria-label="') == page.count("<svg") == 3 and "<img" not in page


@pytest.mark.parametrize("count, last", [(15, "f0"), (16, "sum of 2 other features")])
def test_bars_sum_two_features_or_more(count, last):
    names = [f"f{place}" for place in range(count)]
    figure = explanations.bars(names, np.arange(1.0, count + 1), None, (0.0, 1.0), "t", "score")
    labels = [one.get_text() for one in figure.axes[0].get_yticklabels()]
    assert len(labels) == 15 and last in (labels[0], labels[-1])
