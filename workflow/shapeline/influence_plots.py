"""Parts of the influence report: pictures and records with their influence, alike measures, axioms, sparse data.

The notebook calls the functions that take `results`, a line each; what they draw is made by functions of arrays.
"""

import base64
import functools
import html
import io
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
import pandas as pd
from IPython.display import HTML
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import imsave

from shapeline import comparison_plots, findings, influence, plots
from shapeline.features import Features
from shapeline.findings import Results, number, share
from shapeline.influence import axioms
from shapeline.methods import METHODS
from shapeline.plots import INK, STYLE, figure, heading, missing, note, table, together

POINTWISE = ("mim", "parzen", "data_lime")  # a vector a point, whose picture can be shifted along it
PAPER_COSINE = 0.94  # between MIM and Parzen, at least, mean over 8,000 points (Sliwinski et al. 2019, §8.2)
ALIKE = 1000  # instances whose agreement is computed; more change no digit that is shown
SWEPT = 12_500  # labelled rows at most for the sweeps, about the paper's: seconds a page
MOST = 20  # features of a record that are listed
NARROW = 5.0  # inches: a figure that is still legible on a telephone
ADDED = "#d55e00"
POSITIVE, NEGATIVE = matplotlib.colormaps["RdBu"]([0.88, 0.12])[:, :3]
# Table 3 of the paper has ten values of each.
SWEEPS = {
    "parzen": {"sigma": ("σ", (2.0, 3.0, 4.0, 5.0, 6.5))},
    "data_lime": {"rho": ("ρ", (2.0, 2.4, 2.8, 3.2, 3.8)), "mu": ("μ", (0.010, 0.012, 0.014, 0.016, 0.019))},
}
MEASURES = {
    "mim, α = 1": functools.partial(influence.mim, alpha="constant"),
    "mim, gaussian": functools.partial(influence.mim, alpha="gaussian"),
    "mim, 1/r": functools.partial(influence.mim, alpha="inverse"),
    "mim, 1/r²": functools.partial(influence.mim, alpha="inverse_square"),
    "parzen, σ = 1": functools.partial(influence.parzen, sigma=1.0),
    "data_lime, ρ = 2": functools.partial(influence.data_lime, rho=2.0),
}
styled = matplotlib.rc_context(STYLE)

_BLUE, _RED = (matplotlib.colors.to_hex(colour) for colour in (POSITIVE, NEGATIVE))
CSS = f"""
.face {{ display: flex; gap: 6px 18px; padding: 10px 0; border-top: 1px solid var(--faint); break-inside: avoid; }}
.face > div:first-child {{ flex: none; }}
.face > div + div {{ display: flex; flex-wrap: wrap; gap: 8px 18px; min-width: 0; }}
.face img {{ display: inline-block; width: clamp(82px, 8.6vw, 116px); height: auto; image-rendering: pixelated;
  outline: 1px solid var(--line); margin-right: 4px; }}
.face.sweep > div + div {{ gap: 8px 10px; }}
.face.sweep .measure {{ width: clamp(82px, 8.6vw, 116px); }}
.axioms td:nth-child(2) {{ min-width: 220px; }}
.face.sweep .measure img {{ display: block; margin: 0 0 4px; }}
.face span {{ display: block; font-size: 12.5px; line-height: 1.35; color: var(--quiet); }}
.face span b {{ color: var(--ink); }}
.face .flag, .sparse {{ color: var(--warn); font-weight: 600; }}
table.record {{ width: auto; }}
table.record td, table.record th {{ padding: 3px 0 3px 14px; vertical-align: middle; white-space: nowrap; }}
table.record td:first-child, table.record th:first-child {{ padding-left: 0; }}
table.record .number {{ text-align: right; }}
table.record td.bar {{ padding-left: 6px; }}
.bar i {{ display: block; position: relative; width: 120px; height: 14px;
  background: linear-gradient(#8a8a8a, #8a8a8a) center / 1px 100% no-repeat; }}
.bar u {{ position: absolute; top: 2px; bottom: 2px; -webkit-print-color-adjust: exact; print-color-adjust: exact; }}
.bar .p {{ left: 50%; background: {_BLUE}; }} .bar .n {{ right: 50%; background: {_RED}; }}
.examples {{ display: flex; flex-wrap: wrap; gap: 4px 40px; }}
.examples > div {{ flex: 0 1 {round(NARROW * plots.PIXELS_PER_INCH)}px; min-width: 0; break-inside: avoid; }}
@media screen and (prefers-color-scheme: dark) {{
  .bar .p {{ background: #5b9fdb; }} .bar .n {{ background: #e06a6f; }}
}}
@media screen and (max-width: 900px) {{
  .bar i {{ width: 64px; }} table.record td:first-child {{ white-space: normal; }}
}}
@media print {{ .face img {{ width: 68px; }} .face span {{ font-size: 7.5pt; }} .bar i {{ width: 70px; }} }}
"""


def style_sheet() -> HTML:
    """The rules of this report, once a page."""
    return HTML(f"<style>{CSS}</style>")


# ------------------------------------------------------------------------------------------------------ the numbers


def data_labels(results: Results, methods: Iterable[str] | None = None) -> list[str]:
    """The labels whose scores come from the data alone, in their order; of some methods where they are named."""
    chosen = None if methods is None else set(methods)
    return [
        label
        for label, entry in results.labels.items()
        if label in results.scores and entry.get("family") == "data" and (chosen is None or entry["method"] in chosen)
    ]


def cosine(first: Sequence[np.ndarray | None], second: Sequence[np.ndarray | None]) -> np.ndarray:
    """Cosine of each pair of vectors (p,), of the pairs where both are there; 0 where one of them is zero."""
    found = []
    for one, other in zip(first, second, strict=True):
        if one is not None and other is not None:
            size = np.linalg.norm(one) * np.linalg.norm(other)
            found.append(float(one @ other / size) if size > 0 else 0.0)
    return np.array(found)


def cosine_pairs(vectors: Mapping[str, Sequence[np.ndarray | None]]) -> dict[tuple[str, str], np.ndarray]:
    """The cosines of every pair of labels, in their order; vectors: label -> one (d,) a point, None for a failure."""
    labels = list(vectors)
    pairs = [(one, other) for place, one in enumerate(labels) for other in labels[place + 1 :]]
    return {pair: cosine(*(vectors[label] for label in pair)) for pair in pairs}


def sparse_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of a score file whose point has an empty neighbourhood: instance and why, in words.

    That is what the method says in `flag`, or that every influence is 0.
    """
    fine = findings.good(frame)
    empty = np.array([not np.any(scores) for scores in fine["scores"]], bool)
    why = fine["flag"].astype(object).where(fine["flag"].notna(), np.where(empty, "every influence is 0", None))
    found = pd.DataFrame({"instance": fine["instance"], "why": why})
    return found[found["why"].notna()].drop_duplicates("instance", ignore_index=True)


def cell_map(scores: np.ndarray, features: Features) -> np.ndarray:
    """Scores (d,) as a map of the input's shape: each cell has its feature's score divided by its number of cells."""
    sizes = np.bincount(features.cells[features.cells >= 0], minlength=features.d)
    return np.append(scores / np.maximum(sizes, 1), 0.0)[features.cells]  # the appended 0 is what -1 points at


# ---------------------------------------------------------------------------------------------------------- the top


def header(results: Results, answers: plots.Answers = ()) -> HTML:
    """The top of the page: which measure to take, what else was found, key figures; of a model only where there is one.

    answers: which method to take, where a metric can tell.
    """
    found, card = findings.headline(results), results.model_card
    counts = results.dataset_card.get("counts") or {}
    rows = sum(counts.get("train", {}).values())
    key = {
        "points explained": number(found["instances"]),
        "labelled rows": number(rows),
        "features (d)": number(results.d),
        "measures from data": number(len(data_labels(results))),
        **({"other labels": number(len(results.labels) - len(data_labels(results)))} if card else {}),
        **({"test accuracy": share(found["accuracy"])} if found["accuracy"] is not None else {}),
        **({"test R²": number(found["r2"], 2)} if found["r2"] is not None else {}),
        "failed rows": number(found["failures"]),
    }
    return together(
        style_sheet(), plots.top(found["title"], list(answers) or _costs(results), sentences(results, rows), key)
    )


def _costs(results: Results) -> list[tuple[str, str]]:
    """What a point costs by each measure: all that can be said of which to take where no metric ranks them."""
    free = [label for label in data_labels(results) if not METHODS[results.labels[label]["method"]].asks_model]
    each = {label: 1000 * findings.good(results.scores[label])["seconds"].mean() for label in free}
    told = ", ".join(f"{label} {number(time, 2, whole=False)} ms" for label, time in each.items() if np.isfinite(time))
    more = (
        "No model was asked that could say which is right: compare their axioms and how alike they are, below. A "
        f"point costs {told}, and no evaluation of a model."
    )
    return [("Which measure to take? Nothing here ranks them.", more)] * bool(told)


def sentences(results: Results, rows: int) -> list[str]:
    """What the experiment found, in sentences made from its numbers; rows: of the training part."""
    free = [label for label in data_labels(results) if not METHODS[results.labels[label]["method"]].asks_model]
    points = number(len(results.instances))
    measures = ", ".join(free) or "no measure"
    said = [f"From {number(rows)} labelled rows alone: the influence of each feature at {points} points ({measures})."]
    if results.model_card:
        said += findings.headlines(results)
    else:
        said.append("No model was trained and none was asked; where a class is named it is the point's own label.")
    pair = _pair(results)
    if pair:
        values = cosine(*pair.values())
        if len(values):
            one, other = pair
            verdict = "no lower than" if values.mean() >= PAPER_COSINE else "below"
            said.append(
                f"The cosine between {one} and {other} is {values.mean():.3f} in the mean over {number(len(values))} "
                f"points, {verdict} the paper's {PAPER_COSINE} on its own records."
            )
    empty = {label: len(sparse_rows(results.scores[label])) for label in data_labels(results)}
    if any(empty.values()):
        listed = ", ".join(f"{label} at {number(count)}" for label, count in empty.items() if count)
        said.append(f"⚠ Empty neighbourhoods, where the data say nothing: {listed}. See the section on sparse data.")
    return said


def _pair(results: Results) -> dict[str, list]:
    """The vectors of the first MIM and the first Parzen label at all points; empty where one of them is missing."""
    labels = [next(iter(data_labels(results, [method])), None) for method in ("mim", "parzen")]
    if None in labels:
        return {}
    ids = results.instances["instance"]
    return {label: findings.scores_of(results.scores[label], ids) for label in labels}


def cards(results: Results) -> HTML:
    """The data and, where there is one, the model as facts."""
    data = table(findings.dataset_facts(results.dataset_card), "Data", header=False)
    if not results.model_card:
        return data
    return plots.pair(data, table(findings.model_facts(results.model_card), "Model", header=False))


def sparse_section(results: Results) -> HTML:
    """Which points have an empty neighbourhood, a line a measure and reason; a reassurance where none has."""
    found = []
    for label in data_labels(results):
        for why, group in sparse_rows(results.scores[label]).groupby("why", sort=False):
            first = ", ".join(map(str, group["instance"].head(8))) + (", …" if len(group) > 8 else "")
            points = f"⚠ {number(len(group))} of {number(len(results.scores[label]))}"
            found.append({"label": label, "points": points, "why": why, "instances": first})
    if not found:
        return note("No point is without neighbours: no measure flagged one, and no influence is 0 everywhere.")
    return together(
        HTML(
            '<p class="sparse">⚠ At the points below the data say nothing: no labelled row is near enough to count. '
            "An influence of 0 there is no finding.</p>"
        ),
        table(pd.DataFrame(found), text=["why", "instances"]),
        note(
            "Remedies: a larger width (sigma, rho, mu), more data around the point, or, where a model can be asked, "
            "rows labelled by it (influence.augment)."
        ),
    )


# -------------------------------------------------------------------------------------------------------- pictures


@dataclass(frozen=True)
class Shown:
    """One picture beside a map: what is written under both, the influence of every cell, and a warning if any."""

    caption: str
    phi: np.ndarray | None  # of the picture's shape; None for a failure
    warning: str = ""


def points_section(results: Results) -> HTML:
    """The points shown, with the influence of their features: pictures, or tables of values and bars."""
    picked = findings.chosen(results.instances, int(results.settings.get("instances_shown") or 4))
    if results.dataset_card["kind"] == "image":
        return faces(results, picked)
    if results.dataset_card["kind"] == "table":
        return records(results, picked)
    return note("No pictures and no records here: the inputs are texts, which these measures do not read.")


def faces(results: Results, picked: pd.DataFrame) -> HTML:
    """A row a picture: itself, then for each measure its influence map and the picture shifted along it."""
    labels = data_labels(results, POINTWISE)
    scores = {label: findings.scores_of(results.scores[label], picked["instance"]) for label in labels}
    reasons = {label: sparse_rows(results.scores[label]).set_index("instance")["why"] for label in labels}
    images = results.dataset.inputs[findings.positions(results.dataset, picked)]
    rows = []
    for place, (image, point) in enumerate(zip(images, picked.to_dict("records"), strict=True)):
        features = results.features_of(image)
        shown = [
            Shown(
                label,
                None if scores[label][place] is None else cell_map(scores[label][place], features),
                reasons[label].get(point["instance"], ""),
            )
            for label in labels
        ]
        rows.append(picture_row(image, findings.instance_name(results, point), shown))
    return together(*rows, note(READING))


READING = (
    "Of each measure: the influence map and the picture shifted along it. Blue: brighter here speaks for the picture's "
    "own label; red: darker here does. Each map is scaled by its own largest magnitude, written below it. A picture is "
    "shifted until 5 % of its pixels change by 0.3 or more of the range."
)


def picture_row(image: np.ndarray, name: str, shown: Sequence[Shown], sweep: bool = False) -> HTML:
    """The picture (channels, height, width) in [0, 1], then every map beside (sweep: above) its shifted picture."""
    title, *rest = name.split("\n")
    told = html.escape(", ".join(name.split("\n")), quote=True)
    first = f"{_img(_grey(image), f'Picture: {told}')}<span><b>{html.escape(title)}</b></span>"
    first += "".join(f"<span>{html.escape(line)}</span>" for line in rest)
    cells = "".join(f'<div class="measure">{_shown(image, one, told)}</div>' for one in shown)
    return HTML(f'<div class="face{" sweep" if sweep else ""}"><div>{first}</div><div>{cells}</div></div>')


def _shown(image: np.ndarray, one: Shown, name: str) -> str:
    caption = f"<b>{html.escape(one.caption)}</b>"
    if one.phi is None:
        return f'<span>{caption}</span><span class="flag">⚠ failed</span>'
    size = np.abs(one.phi).max()
    said = html.escape(one.caption, quote=True)
    pictures = _img(tinted(one.phi), f"Influence map by {said}: {name}")
    pictures += _img(_grey(shifted(image, one.phi)), f"Picture shifted along the influence by {said}: {name}")
    flag = f'<span class="flag">⚠ {html.escape(one.warning)}</span>' if one.warning else ""
    return f"{pictures}<span>{caption} ± {number(size)}</span>{flag}"


def shifted(image: np.ndarray, phi: np.ndarray) -> np.ndarray:
    """The picture moved along the influence until the eye sees it, of the same shape, in [0, 1]."""
    return influence.shifted_picture(image.reshape(-1), phi.reshape(-1)).reshape(image.shape)


def tinted(phi: np.ndarray) -> np.ndarray:
    """An influence map (channels, height, width) as colours (height, width, 3): blue positive, red negative, 0 white.

    Channels are added, as they belong to one place.
    """
    values = phi.sum(axis=0)
    limit = np.abs(values).max() or 1.0
    return matplotlib.colormaps["RdBu"](0.5 + 0.5 * values / limit)[..., :3]


def _grey(image: np.ndarray) -> np.ndarray:
    """(channels, height, width) as colours: one channel is a brightness, white at 1."""
    return np.moveaxis(np.broadcast_to(image.clip(0, 1), (3, *image.shape[1:])), 0, -1)


def _img(colours: np.ndarray, alt: str) -> str:
    buffer = io.BytesIO()
    imsave(buffer, np.ascontiguousarray(colours), format="png", metadata={"Software": None})
    source = f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
    return f'<img width="{colours.shape[1]}" alt="{alt}" src="{source}">'


# ---------------------------------------------------------------------------------------------------------- sweeps


@dataclass(frozen=True)
class Sweep:
    """One parameter of a measure over several values: vectors (values, p, n) at p points, seconds a vector."""

    method: str
    symbol: str
    values: tuple[float, ...]
    phi: np.ndarray
    warned: tuple[bool, ...]  # a value each: whether some point kept no neighbour
    seconds: float


def sweep(
    points: np.ndarray, X: np.ndarray, labels: np.ndarray, own: np.ndarray, methods: Iterable[str]
) -> list[Sweep]:
    """The parameter sweeps of table 3 at points (p, n), whose labels are own (p,), over the data X (m, n)."""
    found = []
    for method in methods:
        measure = getattr(influence, method)
        for parameter, (symbol, values) in SWEEPS.get(method, {}).items():
            start = time.perf_counter()
            phi, warned = [], []
            for value in values:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    phi.append(measure(points, X, labels, **{parameter: value}, point_labels=own))
                warned.append(bool(caught))
            seconds = (time.perf_counter() - start) / (len(values) * len(points))
            found.append(Sweep(method, symbol, values, np.array(phi), tuple(warned), seconds))
    return found


def sweeps_section(results: Results, count: int = 2) -> HTML:
    """Picture rows of the sweeps at the first point of each class; a line where there are no pictures to show."""
    methods = {results.labels[label]["method"]: None for label in data_labels(results, SWEEPS)}
    if results.dataset_card["kind"] != "image" or not methods or results.dataset_card.get("task") == "regression":
        return note("No sweeps here: they are drawn for labelled pictures with parzen or data_lime among the measures.")
    picked = findings.chosen(results.instances, count)
    places = findings.positions(results.dataset, picked)
    images, own = results.dataset.inputs[places], results.dataset.labels[places]
    train = results.dataset.part("train")
    rows = np.unique(np.linspace(0, len(train.inputs) - 1, SWEPT).astype(int))  # evenly through the file
    flat = train.inputs[rows].reshape(len(rows), -1)
    found = sweep(images.reshape(len(images), -1), flat, train.labels[rows], own, methods)
    names = [findings.instance_name(results, row) for row in picked.to_dict("records")]
    return together(*(sweep_rows(one, images, names) for one in found), note(sweep_times(found, len(flat))))


def sweep_rows(one: Sweep, images: np.ndarray, names: Sequence[str]) -> HTML:
    """A row a picture: itself, then for each value the map above the shifted picture."""
    rows = []
    for place, (image, name) in enumerate(zip(images, names, strict=True)):
        maps = [phi[place].reshape(image.shape) for phi in one.phi]
        shown = [
            Shown(f"{one.symbol} = {value:g}", phi, "no neighbours" if warned and not phi.any() else "")
            for value, phi, warned in zip(one.values, maps, one.warned, strict=True)
        ]
        rows.append(picture_row(image, name, shown, sweep=True))
    return together(heading(f"{one.method}, {one.symbol} from {one.values[0]:g} to {one.values[-1]:g}"), *rows)


def sweep_times(found: Sequence[Sweep], rows: int) -> str:
    """How long a vector took to compute, for every sweep."""
    took = "; ".join(f"{one.method} ({one.symbol}) {number(one.seconds, 2)} s" for one in found)
    return (
        f"Computed while this page was made, over {number(rows)} labelled rows. Time a vector: {took}. A magnitude far "
        "below those of wider kernels means that hardly a row keeps weight: the map is then made of the nearest ones."
    )


# --------------------------------------------------------------------------------------------------------- records


def records(results: Results, picked: pd.DataFrame) -> HTML:
    """A table a record: every feature with its value and its influence by each measure as a number and a bar."""
    labels = data_labels(results)
    scores = {label: findings.scores_of(results.scores[label], picked["instance"]) for label in labels}
    inputs = results.dataset.inputs[findings.positions(results.dataset, picked)]
    parts = []
    for place, (row, point) in enumerate(zip(inputs, picked.to_dict("records"), strict=True)):
        features = results.features_of(row)
        title = ", ".join(findings.instance_name(results, point).split("\n"))
        parts += [
            heading(title),
            record_table(
                findings.feature_names(results),
                record_values(row, features, results.dataset_card),
                {label: scores[label][place] for label in labels},
            ),
        ]
    said = [REMARKS[method] for method in REMARKS if method in {results.labels[label]["method"] for label in labels}]
    return together(*parts, note(" ".join([RECORD_READING, *said])))


RECORD_READING = (
    "Blue bars to the right: a larger value speaks for the point's own label (of a regression: for a larger number); "
    "red to the left: a smaller one does. Bars are scaled within each column, whose units are those of its measure."
)


REMARKS = {
    "qii": "qii asks the model: blue raises the probability of the class explained, or the prediction.",
    "counterfactual": "counterfactual has no sign, and is one number a feature for all points of a class.",
}


def record_values(row: np.ndarray, features: Features, card: Mapping) -> list[str]:
    """What a record (n,) has in each of its features: a number, the name of a category, or how many columns."""
    columns = list(card.get("feature_names") or [])
    categories = card.get("categories") or {}
    found = []
    for feature in range(features.d):
        cells = np.flatnonzero(features.cells == feature)
        values, names = row[cells], [columns[cell] if columns else str(cell) for cell in cells]
        if len(cells) > 1 and sorted(values) == [0.0] * (len(cells) - 1) + [1.0]:  # a one-hot code
            found.append(names[int(values.argmax())])
        elif len(cells) > 1:
            found.append(f"{len(cells)} columns")
        elif names[0] in categories:
            found.append("missing" if np.isnan(values[0]) else str(categories[names[0]][int(values[0])]))
        else:
            found.append(number(float(values[0]), 4))
    return found


def record_table(
    names: Sequence[str], values: Sequence[str], scores: Mapping[str, np.ndarray | None], most: int = MOST
) -> HTML:
    """Features (d) with values and, for each label -> (d,), influence and bar; None is a failure.

    Of more than `most` features those with the largest influence, by mean rank, in their own order.
    """
    there = {label: row for label, row in scores.items() if row is not None}
    order = np.arange(len(names))
    if len(names) > most and there:
        ranks = pd.DataFrame({label: np.abs(row) for label, row in there.items()}).rank().mean(axis=1)
        order = np.sort(np.argsort(-ranks.to_numpy(), kind="stable")[:most])
    head = "".join(f'<th class="number">{html.escape(label)}</th><th></th>' for label in scores)
    limits = {label: np.abs(row).max() or 1.0 for label, row in there.items()}
    body = []
    for feature in order:
        cells = "".join(
            _bar(row[feature], limits[label]) if row is not None else '<td class="flag">⚠ failed</td><td></td>'
            for label, row in scores.items()
        )
        name, value = html.escape(names[feature]), html.escape(values[feature])
        body.append(f'<tr><td>{name}</td><td class="number">{value}</td>{cells}</tr>')
    rest = len(names) - len(order)
    more = note(f"{number(rest)} features with less influence are not listed.") if rest else None
    listed = HTML(
        f'<div class="wide"><table class="record"><thead><tr><th>feature</th><th class="number">value</th>{head}</tr>'
        f"</thead><tbody>{''.join(body)}</tbody></table></div>"
    )
    return together(listed, more)


def _bar(value: float, limit: float) -> str:
    width = 50 * abs(value) / limit
    side = "p" if value > 0 else "n"
    bar = f'<u class="{side}" style="width: {width:.1f}%"></u>' if width >= 0.05 else ""
    return f'<td class="number">{findings.aligned(value, limit)}</td><td class="bar"><i>{bar}</i></td>'


# ------------------------------------------------------------------------------------------------------- alikeness


def alike_section(results: Results) -> HTML:
    """The cosine between MIM and Parzen over all points, its distribution, and that of every other pair."""
    ids = results.instances["instance"]
    labels = data_labels(results, POINTWISE)
    pairs = cosine_pairs({label: findings.scores_of(results.scores[label], ids) for label in labels})
    pairs = {pair: values for pair, values in pairs.items() if len(values)}
    if not pairs:
        return note("Nothing to compare: fewer than two measures explained the same points.")
    main = tuple(_pair(results)) if tuple(_pair(results)) in pairs else next(iter(pairs))
    drawing = cosine_histogram(pairs[main], paper=PAPER_COSINE if main == tuple(_pair(results)) else None)
    caption = (
        f"Cosine between {main[0]} and {main[1]} at {number(len(pairs[main]))} points. The paper reports a mean of at "
        f"least {PAPER_COSINE} over 8,000 points of another data set."
    )
    return plots.pair(
        figure(
            drawing,
            f"Histogram of the cosine between {main[0]} and {main[1]}",
            caption,
            numbers=pd.DataFrame({"cosine": pairs[main]}),
        ),
        together(
            table(cosine_table(pairs), "Cosine of every pair of measures", text=["other"]),
            note("Between the vectors of all features at a point; 0 where one of them is zero."),
        ),
    )


def cosine_table(pairs: Mapping[tuple[str, str], np.ndarray]) -> pd.DataFrame:
    """A row a pair: mean, median, 5th and 95th percentile, number of points; text."""
    rows = []
    for (one, other), values in pairs.items():
        low, median, high = map(_three, np.percentile(values, [5, 50, 95]))
        row = {"one": one, "other": other, "mean": _three(values.mean()), "median": median}
        row["5 to 95 %"] = f"{low} to {high}"
        rows.append({**row, "points": number(len(values))})
    return pd.DataFrame(rows)


def _three(value: float) -> str:
    return f"{value:.3f}".replace("-", "−")


@styled
def cosine_histogram(values: np.ndarray, paper: float | None = PAPER_COSINE) -> Figure:
    """The distribution of cosines (p,) with its median, 5th and 95th percentile, and the paper's mean."""
    low, median, high = np.percentile(values, [5, 50, 95])
    start = max(-1.0, min(values.min(), paper - 0.02 if paper else 0.9, 0.9))
    drawing = Figure(figsize=(NARROW, 3.3), layout="constrained")
    axes = drawing.subplots()
    axes.hist(np.clip(values, -1, 1), bins=np.linspace(start, 1, 41), color="#a9bccb")
    axes.axvline(median, color=INK, linewidth=2, label=f"median {_three(median)}")
    axes.axvline(low, color="#4d4d4d", linestyle=(0, (5, 2)), label=f"5 % {_three(low)}, 95 % {_three(high)}")
    axes.axvline(high, color="#4d4d4d", linestyle=(0, (5, 2)))
    if paper is not None:
        axes.axvline(paper, color=NEGATIVE, linestyle=(0, (1, 1.4)), linewidth=2, label=f"paper: mean ≥ {paper:g}")
    axes.set(xlabel="cosine", ylabel="points", xlim=(start, 1))
    axes.yaxis.get_major_locator().set_params(integer=True)
    drawing.legend(loc="outside upper center", ncols=3, handlelength=1.8, columnspacing=1.2, fontsize=9)
    return drawing


def model_section(results: Results) -> HTML:
    """How the measures agree with the methods that asked a model, and the masking curves of both; one line without."""
    if not results.model_card:
        return note("No model here, so there is nothing to agree with and nothing to mask.")
    ids = results.instances["instance"].head(ALIKE)
    scores = {label: findings.scores_of(frame, ids) for label, frame in results.scores.items()}
    few = f"The first {number(ALIKE)} of {number(len(results.instances))} points." if len(ids) == ALIKE else ""
    measured = results.metrics.get("log_odds")
    return together(
        heading("Agreement"),
        comparison_plots.agreement_section(scores),
        note(few) if few and len(results.instances) > ALIKE else None,
        heading("Masking curves"),
        masking_note(results),
        missing("log_odds") if measured is None or measured.empty else plots.masking_section(results),
    )


def masking_note(results: Results) -> HTML | None:
    """The best masking area of the measures that did not ask the model, of those that did, and of the controls."""
    areas = findings.scalars(results.metrics.get("log_odds"), "masking_area")
    best: dict[str, str | None] = {"data alone": None, "asks the model": None, "control": None}
    for label in areas.sort_values("mean").index:
        entry = results.labels[label]
        kind = "asks the model" if METHODS[entry["method"]].asks_model else "data alone"
        kind = "control" if entry.get("is_control") else kind
        best[kind] = best[kind] or f"{label} at {findings.interval(areas.loc[label])}"
    said = "; ".join(f"{kind}: {area}" for kind, area in best.items() if area)
    return note(f"The lowest (best) masking areas, in nats: {said}.") if said else None


# ---------------------------------------------------------------------------------------------------------- axioms


def verdicts(measures: Mapping[str, Callable] = MEASURES, tries: int = 60) -> dict[str, list[axioms.Verdict]]:
    """The six verdicts of every measure (METHODS §7), by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on tiny data sets every measure has something to say
        return {name: axioms.check(measure, tries) for name, measure in measures.items()}


def axiom_table(found: Mapping[str, Sequence[axioms.Verdict]]) -> pd.DataFrame:
    """A row an axiom, a column a measure: passes, or fails; text."""
    first = next(iter(found.values()))
    return pd.DataFrame(
        {
            "axiom": f"{verdict.number} {_named(verdict)}",
            "what it asks": verdict.statement,
            **{name: "passes" if row[place].passed else "⚠ fails" for name, row in found.items()},
        }
        for place, verdict in enumerate(first)
    )


def axioms_section(found: Mapping[str, Sequence[axioms.Verdict]], measures: Mapping[str, Callable] = MEASURES) -> HTML:
    """The table of axioms and every counter-example drawn; `measures` tells which of them have a potential."""
    drawn = [(FIGURE_1, figure_1(), 0.3)]
    for name, row in found.items():
        sigma = getattr(measures.get(name), "keywords", {}).get("sigma")
        drawn += [(f"{name}: {_named(verdict)}", verdict, sigma) for verdict in row if not verdict.passed]
    parts = "".join(
        f"<div>{heading(title).data}"
        f"{figure(counter_example(verdict, sigma), title, counter_sentence(verdict)).data}</div>"
        for title, verdict, sigma in drawn
    )
    tried = max(verdict.tried for row in found.values() for verdict in row)
    passed = f"“passes” means that none of {number(tried)} small data sets broke the axiom; “fails” is drawn below."
    return together(
        HTML(f'<div class="axioms">{table(axiom_table(found), text=["what it asks"]).data}</div>'),
        note(passed),
        heading("Counter-examples"),
        note(COUNTER_READING),
        HTML(f'<div class="examples">{parts}</div>'),
    )


COUNTER_READING = (
    "The point of interest is ringed. Filled circles have its label, hollow squares the other, question marks either; "
    "added points are orange. The number above is the influence, and so is the arrow, to one scale in both panels; "
    "dashed is what the axiom asks for. For Parzen the curve is the share of the point's label, and the influence its "
    "slope. The first is drawn after the paper's figure 1, which prints no numbers; the others are the smallest that "
    "the search found."
)
FIGURE_1 = "parzen, as in figure 1: monotonicity"


def _named(verdict: axioms.Verdict) -> str:
    return verdict.axiom.replace("_", "-")


def figure_1() -> axioms.Verdict:
    """Parzen's failure as the paper draws it: two points of x's label beside x make the potential flat there."""
    X = np.array([0.9, 1.5, 1.8, 2.0, 0.0, 0.2, 0.4, 1.05, 1.15])[:, None]
    labels = np.array([1, 1, 1, 1, -1, -1, -1, 1, 1])
    found = [
        axioms.Labelled(X[:m], labels[:m], influence.parzen(X[:1], X[:m], labels[:m], 0.3)[0]) for m in (7, len(X))
    ]
    change = "rows 1.05 and 1.15 added with x's label, above x in feature 0"
    example = axioms.CounterExample(*found, change, found[0].influence, 0)
    return axioms.Verdict(5, "monotonicity", axioms.AXIOMS["monotonicity"][0], 1, example)


def counter_sentence(verdict: axioms.Verdict) -> str:
    """What breaks the axiom, in words and numbers."""
    example = verdict.counter_example
    before, after, expected = (
        _vector(values) for values in (example.before.influence, example.after.influence, example.expected)
    )
    change = example.change[0].upper() + example.change[1:]
    if verdict.axiom == "non_bias":
        return f"{change}: {after}; the axiom asks for {expected}. Left: the labelling of largest influence, {before}."
    if verdict.axiom == "monotonicity":
        rises = example.expected[example.feature] > example.after.influence[example.feature]
        bound = number(example.expected[example.feature], whole=False)
        expected = f"{'at least' if rises else 'at most'} {bound}"
    return f"{change}: influence {before} before and {after} after; the axiom asks for {expected}."


def _vector(values: np.ndarray) -> str:
    texts = [number(value, whole=False) for value in values]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


@styled
def counter_example(verdict: axioms.Verdict, sigma: float | None = None) -> Figure:
    """The data of a counter-example before and after, with the influence as an arrow at the point of interest.

    One feature: the point's own label is up, the other down; with `sigma` Parzen's potential is drawn, of which the
    influence is the slope. Two features: a plane.
    """
    example = verdict.counter_example
    mean = verdict.axiom == "non_bias"
    plane = example.before.X.shape[1] > 1
    drawing = Figure(figsize=(NARROW, 2.9 if plane else 2.3), layout="constrained")
    panels = drawing.subplots(1, 2, sharex=not plane, sharey=not plane)
    every = np.concatenate([example.before.influence, example.after.influence, example.expected])
    largest = np.abs(every[np.isfinite(every)]).max(initial=0) or 1.0
    both = np.concatenate([example.before.X, example.after.X])
    low, high = both.min(axis=0), both.max(axis=0)
    margin = 0.6 * ((high - low).max() or 2.0)  # beside the outermost points; the longest arrow is a little shorter
    titles = ("one labelling", "mean of all") if mean else ("before", "after")
    for axes, data, title, expected in zip(
        panels, (example.before, example.after), titles, (None, example.expected), strict=True
    ):
        axes.set_title(f"{title}: {_vector(data.influence)}", fontsize=9.5)
        random = mean and expected is not None
        axes.set(xlim=(low[0] - margin, high[0] + margin), xlabel="feature 0")
        if plane:
            axes.set(ylim=(low[1] - margin, high[1] + margin), ylabel="feature 1")
            _dots(axes, *data.X.T, data.labels, len(example.before.X), random)
            _plane(axes, data, expected, 0.9 * margin / largest)
        else:
            heights = np.where(data.labels == data.labels[0], 1.0, 0.0)
            heights[1:] = 0.5 if random else heights[1:]
            _dots(axes, data.X[:, 0], heights, data.labels, len(example.before.X), random)
            _line(axes, data, expected, 0.9 * margin / largest, None if random else sigma)
    return drawing


def potential(X: np.ndarray, labels: np.ndarray, sigma: float, at: np.ndarray) -> np.ndarray:
    """Parzen's share of row 0's label at positions (k,) of one feature; X (m, 1), labels (m,)."""
    distance = (at[:, None] - X[:, 0]) ** 2 / (2 * sigma**2)
    weights = np.exp(distance.min(axis=1, keepdims=True) - distance)
    return weights @ (labels == labels[0]) / weights.sum(axis=1)


def _line(axes: Axes, data: axioms.Labelled, expected, scale: float, sigma: float | None) -> None:
    """One feature across; scale: of the arrows, which without a potential lie along the feature."""
    x = data.X[:1, 0]
    axes.set_ylim(-0.35, 1.6)
    axes.set_yticks([0, 1], ["other", "own"])
    arrows = [(value[0], dashed) for value, dashed in ((expected, True), (data.influence, False)) if value is not None]
    if sigma is None:
        for value, dashed in arrows:
            beside = 0.12 * dashed  # else one would lie on the other
            _arrow(axes, (x[0], 1 + beside), (scale * value, 0.0), dashed)
        return
    start, end = axes.get_xlim()
    at = np.linspace(start, end, 200)
    axes.plot(at, potential(data.X, data.labels, sigma, at), color="#8a8a8a", linewidth=1.3, zorder=1)
    height = potential(data.X, data.labels, sigma, x)[0]
    for value, dashed in arrows:
        across = min(0.85 * (end - x[0]), 0.5 / max(abs(value), 1e-9))  # a tip outside would hide the arrow
        _arrow(axes, (x[0], height), (across, across * value), dashed)


def _plane(axes: Axes, data: axioms.Labelled, expected, scale: float) -> None:
    axes.set_aspect("equal")
    for value, dashed in ((expected, True), (data.influence, False)):
        if value is not None:
            _arrow(axes, data.X[0], scale * value, dashed)


def _dots(axes: Axes, across: np.ndarray, up: np.ndarray, labels: np.ndarray, known: int, random: bool) -> None:
    """Every point by its label; those from `known` on are new, and of `random` labels only the first is certain."""
    axes.plot(across[:1], up[:1], "o", markersize=17, markerfacecolor="none", markeredgecolor=INK, markeredgewidth=1.2)
    for place, (x, y) in enumerate(zip(across, up, strict=True)):
        colour = INK if place < known else ADDED
        if random and place:
            axes.plot(x, y, marker="$?$", color="#595959", markersize=9)
        elif labels[place] == labels[0]:
            axes.plot(x, y, "o", color=colour, markersize=7)
        else:
            axes.plot(x, y, "s", markerfacecolor="white", markeredgecolor=colour, markeredgewidth=1.5, markersize=7.5)
    places, counts = np.unique(np.column_stack([across, up]), axis=0, return_counts=True)
    for place, count in zip(places, counts, strict=True):
        if count > 1 and not random:
            axes.annotate(f"×{count}", place, xytext=(11, -10), textcoords="offset points", fontsize=8.5, color=INK)


def _arrow(axes: Axes, start: Sequence[float], change: Sequence[float], dashed: bool) -> None:
    if not (np.isfinite(change).all() and np.abs(change).max() > 0.005 * np.ptp(axes.get_xlim())):
        return  # too short to draw, or not a number
    colour = "#5f5f5f" if dashed else POSITIVE
    shape = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.4 if dashed else 2.2, "shrinkA": 0, "shrinkB": 0}
    shape |= {"linestyle": (0, (3, 2)) if dashed else "-", "mutation_scale": 12}
    axes.annotate("", np.add(start, change), xytext=start, arrowprops=shape, zorder=4 if dashed else 5)
