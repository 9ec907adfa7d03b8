"""Instances with the influence of their features: images beside influence maps and shifted images, rows of tables
beside bars; and the sections on measures that use no model."""

import dataclasses
import functools
import itertools
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from shapeline import influence
from shapeline.methods.registry import METHODS
from shapeline.metrics import error
from shapeline.report import elements, experiment, findings
from shapeline.report.colours import AGAINST, BARS, INK, QUIET
from shapeline.report.elements import HTML, NARROW, figure, heading, join_parts, note, styled, table
from shapeline.report.experiment import Results
from shapeline.report.figures import score_maps
from shapeline.report.figures.score_maps import Tile
from shapeline.report.formatting import number
from shapeline.report.sections import common, images, method_agreement

three_digits = functools.partial(number, decimals=3)  # of cosines
POINTWISE = ("mim", "parzen", "data_lime", "augmented_mim")  # one vector per instance, by which an image is shifted
PAPER_COSINE = 0.94  # least mean between MIM and Parzen over 8,000 instances (Sliwinski et al. 2019, §8.2)
MAX_COMPARED = 1000  # instances; a larger sample changes no printed digit


def list_data_entries(results: Results, methods: Iterable[str] | None = None) -> list[str]:
    """Return the entries whose scores use only data, in order; restricted to `methods` where these are given."""
    chosen = METHODS if methods is None else methods
    entries = {entry: settings for entry, settings in results.entries.items() if entry in results.scores}
    return [
        entry
        for entry, settings in entries.items()
        if settings.get("family") == "data" and settings["method"] in chosen
    ]


def list_model_free_entries(results: Results) -> list[str]:
    """Return the entries whose method never evaluates a model."""
    return [entry for entry in list_data_entries(results) if not METHODS[results.entries[entry]["method"]].needs_model]


def cosine(first: Sequence[np.ndarray | None], second: Sequence[np.ndarray | None]) -> np.ndarray:
    """Return the cosine of each pair of vectors (p,) that both exist; 0 where one of them is zero."""
    both = [pair for pair in zip(first, second, strict=True) if pair[0] is not None and pair[1] is not None]
    return np.nan_to_num(error.cosine(*map(np.stack, zip(*both, strict=True)))) if both else np.empty(0)


def sparse_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Return instance and reason (warning, or all influences 0) of the rows with an empty neighbourhood."""
    fine = experiment.drop_failures(frame)
    empty = np.array([not np.any(scores) for scores in fine["scores"]], bool)
    why = fine["warning"].astype(object).where(fine["warning"].notna(), np.where(empty, "every influence is 0", None))
    rows = pd.DataFrame({"instance": fine["instance"], "why": why})
    return rows[rows["why"].notna()].drop_duplicates("instance", ignore_index=True)


def header(results: Results, cards: HTML | None = None) -> HTML:
    """Return the top of the page: recommendations (cards) where a metric ranks the measures, findings, key figures."""
    sizes = experiment.count_rows(results.dataset_card)
    rows = sizes.get("train", 0) if results.model_card else sum(sizes.values())
    extra = {"labelled rows": number(rows), "measures from data": number(len(list_data_entries(results)))}
    told = sentences(results, rows, bool(cards))
    return common.header(results, cards, "", extra, told, () if cards else _describe_costs(results))


def _describe_costs(results: Results) -> list[tuple[str, str]]:
    """Return the cost per instance of each measure, where no metric ranks them."""
    each = 1000 * experiment.average_seconds(results).reindex(list_model_free_entries(results))
    times = ", ".join(f"{entry} {number(time, 2, whole=False)} ms" for entry, time in each.items() if np.isfinite(time))
    reason = (
        "Without a model no metric ranks the measures; compare their axioms and their agreement below. Cost per "
        f"instance: {times}, and no model evaluations."
    )
    return [("No recommendation.", reason)] * bool(times)


def sentences(results: Results, rows: int, advised: bool = False) -> list[str]:
    """Return the findings as sentences; rows: labelled rows read; advised: whether recommendations precede."""
    count = number(len(results.instances))
    measures = ", ".join(list_model_free_entries(results)) or "no measure"
    lines = [f"Influence of each feature at {count} instances, from {number(rows)} labelled rows only ({measures})."]
    if results.model_card:
        lines += findings.headlines(results, advised)
    else:
        is_regression = results.dataset_card.get("task") == "regression"
        named = (
            "number above an instance is its target" if is_regression else "class named below is the instance's label"
        )
        lines.append(f"No model is used; the {named}.")
    if (pair := _select_pair(results)) and len(values := cosine(*pair.values())):
        verdict = "no lower than" if values.mean() >= PAPER_COSINE else "below"
        lines.append(
            f"The mean cosine between {' and '.join(pair)} over {number(len(values))} instances is "
            f"{number(values.mean(), decimals=3)}, {verdict} the paper's {PAPER_COSINE} on its data."
        )
    empty = {entry: len(sparse_rows(results.scores[entry])) for entry in list_data_entries(results)}
    if any(empty.values()):
        listed = ", ".join(f"{entry} at {number(count)}" for entry, count in empty.items() if count)
        lines.append(f"⚠ Empty neighbourhoods, where influences carry no information: {listed} (see Sparse data).")
    return lines


def _select_pair(results: Results) -> dict[str, list]:
    """Return the vectors of the first MIM and first Parzen entries, for all instances; empty where one is missing."""
    entries = [next(iter(list_data_entries(results, [method])), None) for method in ("mim", "parzen")]
    if None in entries:
        return {}
    ids = results.instances["instance"]
    return {entry: experiment.select_scores(results.scores[entry], ids) for entry in entries}


def sparse_section(results: Results) -> HTML:
    """Return a row per measure and reason for the instances with empty neighbourhoods; a note where none has one."""
    rows = []
    for entry in list_data_entries(results):
        for why, group in sparse_rows(results.scores[entry]).groupby("why", sort=False):
            listed = ", ".join(map(str, group["instance"].head(8))) + (", …" if len(group) > 8 else "")
            affected = f"⚠ {number(len(group))} of {number(len(results.scores[entry]))}"
            rows.append({"method": entry, "affected": affected, "why": why, "instances": listed})
    if not rows:
        return note(
            "No instance has an empty neighbourhood: no measure warns of one, and no influence is 0 everywhere."
        )
    return join_parts(
        HTML(
            '<p class="sparse">⚠ At the instances below no labelled row is near enough to count. '
            "An influence of 0 there carries no information.</p>"
        ),
        table(pd.DataFrame(rows), text=["why", "instances"]),
        note(
            "How to fix: a larger width (sigma, rho, mu), more data around the instance, or, with a model, rows "
            "labelled by it (augmented_mim)."
        ),
    )


def agreement_section(results: Results) -> HTML:
    """Return the distribution of the cosine between MIM and Parzen over all instances, and a table of all pairs."""
    ids = results.instances["instance"]
    entries = list_data_entries(results, POINTWISE)
    vectors = {entry: experiment.select_scores(results.scores[entry], ids) for entry in entries}
    pairs = {pair: cosine(*(vectors[entry] for entry in pair)) for pair in itertools.combinations(vectors, 2)}
    pairs = {pair: values for pair, values in pairs.items() if len(values)}
    if not pairs:
        return note("Not available: fewer than two measures explained the same instances.")
    of_paper = tuple(_select_pair(results))
    main = of_paper if of_paper in pairs else next(iter(pairs))
    return elements.pair(
        figure(
            cosine_histogram(pairs[main], paper=PAPER_COSINE if main == of_paper else None),
            f"Histogram of the cosine between {main[0]} and {main[1]}",
            f"Cosine between {main[0]} and {main[1]} at {number(len(pairs[main]))} instances. The paper reports a mean "
            f"of at least {PAPER_COSINE} over 8,000 points of another data set.",
            numbers=pd.DataFrame({"cosine": pairs[main]}),
        ),
        join_parts(
            table(cosine_table(pairs), "Cosine of every pair of measures", text=["other"]),
            note("Between the vectors of all features of an instance; 0 where one of them is zero."),
        ),
    )


def cosine_table(pairs: Mapping[tuple[str, str], np.ndarray]) -> pd.DataFrame:
    """Return a row per pair: mean, median, 5th and 95th percentile, number of instances; as text."""
    rows = []
    for (first, second), values in pairs.items():
        low, median, high = map(three_digits, np.percentile(values, [5, 50, 95]))
        row = {"one": first, "other": second, "mean": three_digits(values.mean()), "median": median}
        rows.append(row | {"5 to 95 %": f"{low} to {high}", "instances": number(len(values))})
    return pd.DataFrame(rows)


@styled
def cosine_histogram(values: np.ndarray, paper: float | None = PAPER_COSINE) -> Figure:
    """Draw the distribution of cosines (p,) with its median, 5th and 95th percentile, and the paper's mean."""
    low, median, high = np.percentile(values, [5, 50, 95])
    start = max(-1.0, min(values.min(), paper - 0.02 if paper else 0.9, 0.9))
    drawing = Figure(figsize=(NARROW, 3.3), layout="constrained")
    axes = drawing.subplots()
    axes.hist(np.clip(values, -1, 1), bins=np.linspace(start, 1, 41), color=BARS)
    axes.axvline(median, color=INK, linewidth=2, label=f"median {three_digits(median)}")
    axes.axvline(low, color=QUIET, linestyle=(0, (5, 2)), label=f"5 % {three_digits(low)}, 95 % {three_digits(high)}")
    axes.axvline(high, color=QUIET, linestyle=(0, (5, 2)))
    if paper is not None:
        axes.axvline(paper, color=AGAINST, linestyle=(0, (1, 1.4)), linewidth=2, label=f"paper: mean ≥ {paper:g}")
    axes.set(xlabel="cosine", ylabel="instances", xlim=(start, 1))
    axes.yaxis.get_major_locator().set_params(integer=True)
    drawing.legend(loc="outside upper center", ncols=3, handlelength=1.8, columnspacing=1.2, fontsize=9)
    return drawing


COMPARISON_NOTE = (
    "Measures from data and methods that evaluate the model explain the same instances. An influence is a slope; a "
    "score of a model method is a share of the prediction, so the two can differ in sign."
)
DIFFERENCES_NOTE = (
    "An influence is the effect of a larger value, a score that of the present value: signs can differ where a value "
    "is small. An influence is towards the label of the instance, a score towards the predicted class: they oppose "
    "each other where the model is wrong. The deletion curves mask features with the baseline, independently of the "
    "other features; such inputs may lie off the data manifold."
)


def model_section(results: Results) -> HTML:
    """Return the agreement with methods that evaluate a model, and the deletion curves; empty without a model."""
    if not results.model_card:
        return HTML("")
    ids = results.instances["instance"].head(MAX_COMPARED)
    scores = results.select_scores(ids)
    subset = f"The first {number(MAX_COMPARED)} of {number(len(results.instances))} instances."
    return join_parts(
        heading("Comparison with methods that evaluate the model"),
        note(COMPARISON_NOTE),
        elements.fold(elements.FOLD, note(DIFFERENCES_NOTE)),
        heading("Agreement", 4),
        method_agreement.agreement_section(scores),
        note(subset) if len(results.instances) > MAX_COMPARED else None,
        common.masking_section(results),
        common.other_metrics(results),
    )


def points_section(results: Results) -> HTML:
    """Return the shown instances with the influence of their features: maps and shifted images, or heat tables."""
    entries = list_data_entries(results)
    if results.dataset_card["kind"] == "image":
        return image_rows(results, results.shown)
    if results.dataset_card["kind"] == "table":
        shown = images.explanations(
            dataclasses.replace(results, scores={name: results.scores[name] for name in entries})
        )
        methods = {results.entries[entry]["method"] for entry in entries}
        return join_parts(shown, note(" ".join([READING, *(REMARKS[name] for name in REMARKS if name in methods)])))
    return note("Not available: these measures need images or rows of a table, and the inputs are texts.")


def image_rows(results: Results, picked: pd.DataFrame) -> HTML:
    """Return a row per image: the image, then per measure its influence map and the image shifted along it."""
    entries = list_data_entries(results, POINTWISE)
    inputs, reasons = results.read_inputs(picked), []
    maps = {entry: experiment.select_scores(results.scores[entry], picked["instance"]) for entry in entries}
    for entry in entries:
        maps[entry] = [
            None if row is None else results.features_of(image).divide(row)
            for row, image in zip(maps[entry], inputs, strict=True)
        ]
        rows = sparse_rows(results.scores[entry])
        rows = rows[rows["instance"].isin(picked["instance"])]
        reasons += [note(f"⚠ {entry}, instance {row.instance}: {row.why}.") for row in rows.itertuples()]
    drawing = draw_shifted(inputs, results.name_instances(picked), maps)
    alt = "Images, and per measure the influence map above the image shifted along it"
    return join_parts(figure(drawing, alt, SHIFTED, vector=False), *reasons)


def draw_shifted(
    inputs: np.ndarray, names: Sequence[str], maps: Mapping[str, Sequence[np.ndarray | None]], columns: int = 10
) -> Figure:
    """Draw images (n, channels, height, width) in [0, 1], and a column per map with the shifted image below it."""
    rows = [text for name in names for text in (name, "shifted")]

    def tile(row: int, entry: str | None) -> Tile:
        image = inputs[row // 2]
        phi = None if entry is None else maps[entry][row // 2]
        if entry is None or (phi is not None and row % 2):
            return score_maps.image_tile(image if entry is None else shift_image(image, phi), "gray")
        if phi is None:
            return Tile(None)
        total = phi.sum(axis=0)
        return score_maps.map_tile(total.ravel(), np.arange(total.size).reshape(total.shape))

    return score_maps.image_grid(rows, list(maps), tile, columns)


SHIFTED = (
    "Blue: a brighter pixel supports the label of the image; orange: a darker one. Each map has its own scale, written "
    "below it; below the map the image, shifted along it until 5 % of its pixels change by at least 0.3 of the range."
)
READING = (
    "Blue: a larger value supports the label of the instance (regression: a larger number); orange: a smaller one. "
    "Each measure has its own scale."
)
REMARKS = {
    "qii": "qii evaluates the model: blue raises the probability of the class explained, or the prediction.",
    "counterfactual": "counterfactual has no sign, and one number per feature for all instances of a class.",
}


def shift_image(image: np.ndarray, phi: np.ndarray) -> np.ndarray:
    """Return the image shifted visibly along the influence, of the same shape, in [0, 1]."""
    return influence.shifted_picture(image.reshape(-1), phi.reshape(-1)).reshape(image.shape)


MAX_SWEEP_ROWS = 12_500  # about the paper's number of labelled rows; takes seconds per page
# Ten values per parameter, of table 3 of the paper.
SWEEPS = {
    "parzen": {"sigma": ("σ", (2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0, 6.5))},
    "data_lime": {
        "rho": ("ρ", (2.0, 2.2, 2.4, 2.6, 2.8, 3.0, 3.2, 3.4, 3.6, 3.8)),
        "mu": ("μ", (0.010, 0.011, 0.012, 0.013, 0.014, 0.015, 0.016, 0.017, 0.018, 0.019)),
    },
}

HOW_TO_READ = (
    "Influence maps for several widths of a measure (table 3 of the paper). A narrow kernel uses few rows around the "
    "instance, a wide one all the data."
)


@dataclass(frozen=True)
class Sweep:
    """One parameter of a measure over several values: vectors phi (values, p, n) at p instances, seconds per vector."""

    method: str
    symbol: str
    values: tuple[float, ...]
    phi: np.ndarray
    warned: tuple[bool, ...]  # per value: whether an instance has no neighbours
    seconds: float


def sweep(
    points: np.ndarray, X: np.ndarray, labels: np.ndarray, point_labels: np.ndarray, methods: Iterable[str]
) -> list[Sweep]:
    """Compute the parameter sweeps of table 3 at points (p, n) with labels (p,), over the data X (m, n)."""
    sweeps = []
    for method in methods:
        measure = getattr(influence, method)
        for parameter, (symbol, values) in SWEEPS.get(method, {}).items():
            start = time.perf_counter()
            phi, warned = [], []
            for value in values:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    phi.append(measure(points, X, labels, **{parameter: value}, point_labels=point_labels))
                warned.append(bool(caught))
            seconds = (time.perf_counter() - start) / (len(values) * len(points))
            sweeps.append(Sweep(method, symbol, values, np.array(phi), tuple(warned), seconds))
    return sweeps


def sweeps_section(results: Results, count: int = 2) -> HTML:
    """Return image rows of the sweeps, one instance per class; empty without images or measures with a width."""
    methods = {results.entries[entry]["method"]: None for entry in list_data_entries(results, SWEEPS)}
    if results.dataset_card["kind"] != "image" or not methods or results.dataset_card.get("task") == "regression":
        return HTML("")
    picked = experiment.choose_instances(results.instances, count)
    indices = experiment.find_positions(results.dataset, picked)
    inputs, point_labels = results.dataset.inputs[indices], results.dataset.labels[indices]
    data = results.dataset.part("train") if results.model_card else results.dataset
    rows = np.unique(np.linspace(0, len(data.inputs) - 1, MAX_SWEEP_ROWS).astype(int))  # spread evenly over the file
    flat = data.inputs[rows].reshape(len(rows), -1)
    sweeps = sweep(inputs.reshape(len(inputs), -1), flat, data.labels[rows], point_labels, methods)
    names = results.name_instances(picked)
    return join_parts(
        heading("Parameter sweeps"),
        note(HOW_TO_READ),
        *(sweep_rows(swept, inputs, names) for swept in sweeps),
        note(sweep_times(sweeps, len(flat))),
    )


def sweep_rows(swept: Sweep, inputs: np.ndarray, names: Sequence[str]) -> HTML:
    """Return a row per image: the image, then per value the map above the shifted image."""
    maps = {
        f"{swept.symbol} = {value:g}": list(phi.reshape(inputs.shape))
        for value, phi in zip(swept.values, swept.phi, strict=True)
    }
    empty = [f"{value:g}" for value, warned in zip(swept.values, swept.warned, strict=True) if warned]
    return join_parts(
        heading(f"{swept.method}, {swept.symbol} from {swept.values[0]:g} to {swept.values[-1]:g}"),
        figure(draw_shifted(inputs, names, maps), f"Influence maps by {swept.method} per {swept.symbol}", vector=False),
        note(f"⚠ An image has no neighbours at {swept.symbol} = {', '.join(empty)}.") if empty else None,
    )


def sweep_times(sweeps: Sequence[Sweep], rows: int) -> str:
    """Return the seconds per vector of every sweep, as a sentence."""
    times = "; ".join(f"{swept.method} ({swept.symbol}) {number(swept.seconds, 2)} s" for swept in sweeps)
    return (
        f"Computed for this page from {number(rows)} labelled rows; time per vector: {times}. A magnitude far below "
        "that of wider kernels means that only the nearest rows have weight."
    )
