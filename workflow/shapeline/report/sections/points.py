"""Instances with the influence of their features: images beside influence maps and shifted images, rows of tables
beside bars; and the sections on measures that use no model."""

import html
import itertools
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from shapeline import influence
from shapeline.games.features import Features
from shapeline.methods.registry import METHODS
from shapeline.report import elements, experiment, findings, formatting
from shapeline.report.colours import AGAINST, BARS, INK, QUIET
from shapeline.report.elements import HTML, NARROW, SIGNS, figure, heading, join_parts, note, styled, table
from shapeline.report.experiment import Results
from shapeline.report.explorer import to_data_uri
from shapeline.report.formatting import number, share
from shapeline.report.sections import common, method_agreement
from shapeline.report.tables import feature_values

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
    cosines = []
    for left, right in zip(first, second, strict=True):
        if left is not None and right is not None:
            size = np.linalg.norm(left) * np.linalg.norm(right)
            cosines.append(float(left @ right / size) if size > 0 else 0.0)
    return np.array(cosines)


def cosine_pairs(vectors: Mapping[str, Sequence[np.ndarray | None]]) -> dict[tuple[str, str], np.ndarray]:
    """Return the cosines of every pair of methods, in order; vectors (d,) per instance, None for a failure."""
    return {pair: cosine(*(vectors[entry] for entry in pair)) for pair in itertools.combinations(vectors, 2)}


def sparse_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Return instance and reason (warning, or all influences 0) of the rows with an empty neighbourhood."""
    fine = experiment.drop_failures(frame)
    empty = np.array([not np.any(scores) for scores in fine["scores"]], bool)
    why = fine["warning"].astype(object).where(fine["warning"].notna(), np.where(empty, "every influence is 0", None))
    rows = pd.DataFrame({"instance": fine["instance"], "why": why})
    return rows[rows["why"].notna()].drop_duplicates("instance", ignore_index=True)


def header(results: Results, cards: HTML | None = None) -> HTML:
    """Return the top of the page: recommendations (cards) where a metric ranks the measures, findings, key figures."""
    headline, card = findings.headline(results), results.model_card
    sizes = experiment.count_rows(results.dataset_card)
    rows = sizes.get("train", 0) if card else sum(sizes.values())
    n_measures = len(list_data_entries(results))
    facts = {
        "instances explained": number(headline["instances"]),
        "labelled rows": number(rows),
        "features (d)": number(results.d),
        "measures from data": number(n_measures),
        "other methods": number(len(results.entries) - n_measures) if card else None,
        "test accuracy": None if headline["accuracy"] is None else share(headline["accuracy"]),
        "test R²": None if headline["r2"] is None else number(headline["r2"], 2),
        "failed rows": number(headline["failures"]),
    }
    answers = () if cards else _describe_costs(results)
    return common.top(headline["title"], answers, sentences(results, rows, bool(cards)), facts, cards)


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
        lines.append("No model is used; a class named below is the label of the instance.")
    if (pair := _select_pair(results)) and len(values := cosine(*pair.values())):
        verdict = "no lower than" if values.mean() >= PAPER_COSINE else "below"
        lines.append(
            f"The mean cosine between {' and '.join(pair)} over {number(len(values))} instances is "
            f"{values.mean():.3f}, {verdict} the paper's {PAPER_COSINE} on its data."
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
    pairs = cosine_pairs({entry: experiment.select_scores(results.scores[entry], ids) for entry in entries})
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
        low, median, high = map(_round, np.percentile(values, [5, 50, 95]))
        row = {"one": first, "other": second, "mean": _round(values.mean()), "median": median}
        rows.append(row | {"5 to 95 %": f"{low} to {high}", "instances": number(len(values))})
    return pd.DataFrame(rows)


def _round(value: float) -> str:
    return f"{value:.3f}".replace("-", "−")


@styled
def cosine_histogram(values: np.ndarray, paper: float | None = PAPER_COSINE) -> Figure:
    """Draw the distribution of cosines (p,) with its median, 5th and 95th percentile, and the paper's mean."""
    low, median, high = np.percentile(values, [5, 50, 95])
    start = max(-1.0, min(values.min(), paper - 0.02 if paper else 0.9, 0.9))
    drawing = Figure(figsize=(NARROW, 3.3), layout="constrained")
    axes = drawing.subplots()
    axes.hist(np.clip(values, -1, 1), bins=np.linspace(start, 1, 41), color=BARS)
    axes.axvline(median, color=INK, linewidth=2, label=f"median {_round(median)}")
    axes.axvline(low, color=QUIET, linestyle=(0, (5, 2)), label=f"5 % {_round(low)}, 95 % {_round(high)}")
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
        masking_note(results),
        common.masking_section(results),
    )


def masking_note(results: Results) -> HTML | None:
    """Return the best deletion AUC of the measures without the model, of those with it, and of the controls."""
    areas = experiment.scalars(results.metrics.get("log_odds"), "deletion_auc")
    best: dict[str, str | None] = {"data only": None, "evaluates the model": None, "control": None}
    for entry in areas.sort_values("mean").index:
        settings = results.entries[entry]
        kind = "evaluates the model" if METHODS[settings["method"]].needs_model else "data only"
        kind = "control" if settings.get("is_control") else kind
        best[kind] = best[kind] or f"{entry} at {formatting.interval(areas.loc[entry])}"
    lowest = "; ".join(f"{kind}: {area}" for kind, area in best.items() if area)
    return note(f"The lowest (best) deletion AUC, in nats: {lowest}.") if lowest else None


MAX_FEATURES = 20  # listed per row of a table


@dataclass(frozen=True)
class InfluenceMap:
    """An influence map: its caption, the influence of every cell, and a warning if any."""

    caption: str
    phi: np.ndarray | None  # of the image's shape; None where the explanation failed
    warning: str = ""


def points_section(results: Results) -> HTML:
    """Return the shown instances with the influence of their features: images, or tables of values and bars."""
    picked = results.shown
    if results.dataset_card["kind"] == "image":
        return image_rows(results, picked)
    if results.dataset_card["kind"] == "table":
        return record_tables(results, picked)
    return note("Not available: these measures need images or rows of a table, and the inputs are texts.")


def image_rows(results: Results, picked: pd.DataFrame) -> HTML:
    """Return a row per image: the image, then per measure its influence map and the image shifted along it."""
    entries = list_data_entries(results, POINTWISE)
    scores = {entry: experiment.select_scores(results.scores[entry], picked["instance"]) for entry in entries}
    reasons = {entry: sparse_rows(results.scores[entry]).set_index("instance")["why"] for entry in entries}
    images = results.read_inputs(picked)
    rows = []
    for index, (image, point) in enumerate(zip(images, picked.to_dict("records"), strict=True)):
        features = results.features_of(image)
        maps = [
            InfluenceMap(
                entry,
                None if scores[entry][index] is None else cell_map(scores[entry][index], features),
                reasons[entry].get(point["instance"], ""),
            )
            for entry in entries
        ]
        rows.append(image_row(image, experiment.name_instance(results, point), maps))
    return join_parts(*rows, note(READING))


READING = (
    "For each measure: the influence map and the image shifted along it. Blue: a brighter pixel supports the label "
    "of the image; orange: a darker one. Each map has its own scale, written below it; an image is shifted until 5 % "
    "of its pixels change by at least 0.3 of the range."
)


def image_row(image: np.ndarray, name: str, maps: Sequence[InfluenceMap], sweep: bool = False) -> HTML:
    """Return an image (channels, height, width) in [0, 1], then every map beside (sweep: above) its shifted image."""
    title, *rest = name.split("\n")
    alt = html.escape(name.replace("\n", ", "))
    first = f"{_embed(_colour(image), f'Image: {alt}')}<span><b>{html.escape(title)}</b></span>"
    first += "".join(f"<span>{html.escape(line)}</span>" for line in rest)
    cells = "".join(f'<div class="measure">{_draw_measure(image, measure, alt)}</div>' for measure in maps)
    return HTML(f'<div class="face{" sweep" if sweep else ""}"><div>{first}</div><div>{cells}</div></div>')


def _draw_measure(image: np.ndarray, measure: InfluenceMap, name: str) -> str:
    caption = f"<b>{html.escape(measure.caption)}</b>"
    if measure.phi is None:
        return f'<span>{caption}</span><span class="flag">⚠ failed</span>'
    size = np.abs(measure.phi).max()
    quoted = html.escape(measure.caption)
    images = _embed(tint_map(measure.phi), f"Influence map by {quoted}: {name}")
    images += _embed(_colour(shift_image(image, measure.phi)), f"Image shifted along the influence by {quoted}: {name}")
    flag = f'<span class="flag">⚠ {html.escape(measure.warning)}</span>' if measure.warning else ""
    return f"{images}<span>{caption} ± {number(size)}</span>{flag}"


def shift_image(image: np.ndarray, phi: np.ndarray) -> np.ndarray:
    """Return the image shifted visibly along the influence, of the same shape, in [0, 1]."""
    return influence.shifted_picture(image.reshape(-1), phi.reshape(-1)).reshape(image.shape)


def tint_map(phi: np.ndarray) -> np.ndarray:
    """Return an influence map (channels, height, width) as colours (height, width, 3), channels added, white at 0."""
    values = phi.sum(axis=0)
    limit = np.abs(values).max() or 1.0
    return SIGNS(0.5 + 0.5 * values / limit)[..., :3]


def _colour(image: np.ndarray) -> np.ndarray:
    """Return (channels, height, width) as colours (height, width, 3); one channel is a brightness, white at 1."""
    return np.moveaxis(np.broadcast_to(image.clip(0, 1), (3, *image.shape[1:])), 0, -1)


def _embed(colours: np.ndarray, alt: str) -> str:
    return f'<img width="{colours.shape[1]}" alt="{alt}" src="{to_data_uri(colours)}">'


def record_tables(results: Results, picked: pd.DataFrame) -> HTML:
    """Return a table per row: each feature's value, and its influence by each measure as a number and a bar."""
    entries = list_data_entries(results)
    scores = {entry: experiment.select_scores(results.scores[entry], picked["instance"]) for entry in entries}
    inputs = results.read_inputs(picked)
    parts = []
    for index, (row, point) in enumerate(zip(inputs, picked.to_dict("records"), strict=True)):
        values = feature_values(row, results.features_of(row), results.dataset_card)
        of_row = {entry: scores[entry][index] for entry in entries}
        parts.append(heading(experiment.name_instance(results, point).replace("\n", ", ")))
        parts.append(record_table(experiment.name_features(results), values, of_row))
    methods = {results.entries[entry]["method"] for entry in entries}
    remarks = [remark for method, remark in REMARKS.items() if method in methods]
    return join_parts(*parts, note(" ".join([RECORD_READING, *remarks])))


RECORD_READING = (
    "Blue bars to the right: a larger value supports the label of the instance (regression: a larger number); "
    "orange bars to the left: a smaller one. Bars are scaled within each column, in the units of its measure."
)


REMARKS = {
    "qii": "qii evaluates the model: blue raises the probability of the class explained, or the prediction.",
    "counterfactual": "counterfactual has no sign, and one number per feature for all instances of a class.",
}


def record_table(
    names: Sequence[str], values: Sequence[str], scores: Mapping[str, np.ndarray | None], most: int = MAX_FEATURES
) -> HTML:
    """Return the `most` influential features with values, and per method influence and bar; scores None: failed."""
    available = {entry: row for entry, row in scores.items() if row is not None}
    order = np.arange(len(names))
    if len(names) > most and available:
        ranks = pd.DataFrame({entry: np.abs(row) for entry, row in available.items()}).rank().mean(axis=1)
        order = np.sort(np.argsort(-ranks.to_numpy(), kind="stable")[:most])
    head = "".join(f'<th class="number">{html.escape(entry)}</th><th></th>' for entry in scores)
    limits = {entry: np.abs(row).max() or 1.0 for entry, row in available.items()}
    body = []
    for feature in order:
        cells = "".join(
            _write_bar(row[feature], limits[entry]) if row is not None else '<td class="flag">⚠ failed</td><td></td>'
            for entry, row in scores.items()
        )
        name, value = html.escape(names[feature]), html.escape(values[feature])
        body.append(f'<tr><td>{name}</td><td class="number">{value}</td>{cells}</tr>')
    n_hidden = len(names) - len(order)
    more = note(f"{number(n_hidden)} features with smaller influence are not shown.") if n_hidden else None
    return join_parts(
        HTML(
            '<div class="wide"><table class="record"><thead><tr><th>feature</th><th class="number">value</th>'
            f"{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
        ),
        more,
    )


def _write_bar(value: float, limit: float) -> str:
    width, side = 50 * abs(value) / limit, "p" if value > 0 else "n"
    bar = f'<u class="{side}" style="width: {width:.1f}%"></u>' if width >= 0.05 else ""
    return f'<td class="number">{formatting.align_columns(value, limit)}</td><td class="bar"><i>{bar}</i></td>'


def cell_map(scores: np.ndarray, features: Features) -> np.ndarray:
    """Return scores (d,) as a map of the input's shape: a feature's score is divided evenly among its cells."""
    sizes = np.bincount(features.cells[features.cells >= 0], minlength=features.d)
    return np.append(scores / np.maximum(sizes, 1), 0.0)[features.cells]  # -1, no feature, selects the appended 0


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
    images, point_labels = results.dataset.inputs[indices], results.dataset.labels[indices]
    data = results.dataset.part("train") if results.model_card else results.dataset
    rows = np.unique(np.linspace(0, len(data.inputs) - 1, MAX_SWEEP_ROWS).astype(int))  # spread evenly over the file
    flat = data.inputs[rows].reshape(len(rows), -1)
    sweeps = sweep(images.reshape(len(images), -1), flat, data.labels[rows], point_labels, methods)
    names = results.name_instances(picked)
    return join_parts(
        heading("Parameter sweeps"),
        note(HOW_TO_READ),
        *(sweep_rows(swept, images, names) for swept in sweeps),
        note(sweep_times(sweeps, len(flat))),
    )


def sweep_rows(swept: Sweep, images: np.ndarray, names: Sequence[str]) -> HTML:
    """Return a row per image: the image, then per value the map above the shifted image."""
    rows = []
    for index, (image, name) in enumerate(zip(images, names, strict=True)):
        maps = [phi[index].reshape(image.shape) for phi in swept.phi]
        marked = [
            InfluenceMap(f"{swept.symbol} = {value:g}", phi, "no neighbours" if warned and not phi.any() else "")
            for value, phi, warned in zip(swept.values, maps, swept.warned, strict=True)
        ]
        rows.append(image_row(image, name, marked, sweep=True))
    title = f"{swept.method}, {swept.symbol} from {swept.values[0]:g} to {swept.values[-1]:g}"
    return join_parts(heading(title), *rows)


def sweep_times(sweeps: Sequence[Sweep], rows: int) -> str:
    """Return the seconds per vector of every sweep, as a sentence."""
    times = "; ".join(f"{swept.method} ({swept.symbol}) {number(swept.seconds, 2)} s" for swept in sweeps)
    return (
        f"Computed for this page from {number(rows)} labelled rows; time per vector: {times}. A magnitude far below "
        "that of wider kernels means that only the nearest rows have weight."
    )
