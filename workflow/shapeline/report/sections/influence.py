"""Sections of the influence report: its top, sparse data, how alike measures are, and methods that ask the model."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from shapeline.methods.registry import METHODS
from shapeline.report import elements, experiment, findings, numbers, tables
from shapeline.report.colours import AGAINST, BARS, INK, QUIET
from shapeline.report.elements import Answers, figure, heading, missing, note, table, together
from shapeline.report.experiment import Results
from shapeline.report.html import HTML
from shapeline.report.numbers import number, share
from shapeline.report.sections import common, method_agreement
from shapeline.report.styling import NARROW, styled

POINTWISE = ("mim", "parzen", "data_lime", "augmented_mim")  # a vector a point, whose image can be shifted along it
PAPER_COSINE = 0.94  # between MIM and Parzen, at least, mean over 8,000 points (Sliwinski et al. 2019, §8.2)
ALIKE = 1000  # instances whose agreement is computed; more change no digit that is shown


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
    cosines = []
    for left, right in zip(first, second, strict=True):
        if left is not None and right is not None:
            size = np.linalg.norm(left) * np.linalg.norm(right)
            cosines.append(float(left @ right / size) if size > 0 else 0.0)
    return np.array(cosines)


def cosine_pairs(vectors: Mapping[str, Sequence[np.ndarray | None]]) -> dict[tuple[str, str], np.ndarray]:
    """The cosines of every pair of labels, in their order; vectors: label -> one (d,) a point, None for a failure."""
    labels = list(vectors)
    pairs = [(first, second) for place, first in enumerate(labels) for second in labels[place + 1 :]]
    return {pair: cosine(*(vectors[label] for label in pair)) for pair in pairs}


def sparse_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of a score file whose point has an empty neighbourhood: instance and why, in words.

    That is what the method says in `flag`, or that every influence is 0.
    """
    fine = experiment.good(frame)
    empty = np.array([not np.any(scores) for scores in fine["scores"]], bool)
    why = fine["warning"].astype(object).where(fine["warning"].notna(), np.where(empty, "every influence is 0", None))
    rows = pd.DataFrame({"instance": fine["instance"], "why": why})
    return rows[rows["why"].notna()].drop_duplicates("instance", ignore_index=True)


def header(results: Results, answers: Answers = ()) -> HTML:
    """The top of the page: which measure to take, what else was found, key figures; of a model only where there is one.

    answers: which method to take, where a metric can tell.
    """
    headline, card = findings.headline(results), results.model_card
    sizes = experiment.part_sizes(results.dataset_card)
    rows = sizes.get("train", 0) if card else sum(sizes.values())
    key = {
        "points explained": number(headline["instances"]),
        "labelled rows": number(rows),
        "features (d)": number(results.d),
        "measures from data": number(len(data_labels(results))),
        **({"other labels": number(len(results.labels) - len(data_labels(results)))} if card else {}),
        **({"test accuracy": share(headline["accuracy"])} if headline["accuracy"] is not None else {}),
        **({"test R²": number(headline["r2"], 2)} if headline["r2"] is not None else {}),
        "failed rows": number(headline["failures"]),
    }
    return common.top(headline["title"], list(answers) or _costs(results), sentences(results, rows, bool(answers)), key)


def _costs(results: Results) -> list[tuple[str, str]]:
    """What a point costs by each measure: all that can be said of which to take where no metric ranks them."""
    free = [label for label in data_labels(results) if not METHODS[results.labels[label]["method"]].asks_model]
    each = 1000 * experiment.mean_seconds(results).reindex(free)
    told = ", ".join(f"{label} {number(time, 2, whole=False)} ms" for label, time in each.items() if np.isfinite(time))
    more = (
        "No model was asked that could say which is right: compare their axioms and how alike they are, below. A "
        f"point costs {told}, and no evaluation of a model."
    )
    return [("Which measure to take? Nothing here ranks them.", more)] * bool(told)


def sentences(results: Results, rows: int, advised: bool = False) -> list[str]:
    """What the experiment found, in sentences made from its numbers; rows: that were read; advised: what to take
    is said before."""
    free = [label for label in data_labels(results) if not METHODS[results.labels[label]["method"]].asks_model]
    points = number(len(results.instances))
    measures = ", ".join(free) or "no measure"
    said = [f"From {number(rows)} labelled rows alone: the influence of each feature at {points} points ({measures})."]
    if results.model_card:
        said += findings.headlines(results, advised)
    else:
        said.append("No model was trained and none was asked; where a class is named it is the point's own label.")
    pair = _pair(results)
    if pair:
        values = cosine(*pair.values())
        if len(values):
            mim, parzen = pair
            verdict = "no lower than" if values.mean() >= PAPER_COSINE else "below"
            said.append(
                f"The cosine between {mim} and {parzen} is {values.mean():.3f} in the mean over {number(len(values))} "
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
    return {label: experiment.scores_of(results.scores[label], ids) for label in labels}


def cards(results: Results) -> HTML:
    """The data and, where there is one, the model as facts."""
    data = table(tables.dataset_facts(results.dataset_card), "Data", header=False)
    if not results.model_card:
        return data
    return elements.pair(data, table(tables.model_facts(results.model_card), "Model", header=False))


def sparse_section(results: Results) -> HTML:
    """Which points have an empty neighbourhood, a line a measure and reason; a reassurance where none has."""
    rows = []
    for label in data_labels(results):
        for why, group in sparse_rows(results.scores[label]).groupby("why", sort=False):
            first = ", ".join(map(str, group["instance"].head(8))) + (", …" if len(group) > 8 else "")
            points = f"⚠ {number(len(group))} of {number(len(results.scores[label]))}"
            rows.append({"method": label, "points": points, "why": why, "instances": first})
    if not rows:
        return note("No point is without neighbours: no measure flagged one, and no influence is 0 everywhere.")
    return together(
        HTML(
            '<p class="sparse">⚠ At the points below the data say nothing: no labelled row is near enough to count. '
            "An influence of 0 there is no finding.</p>"
        ),
        table(pd.DataFrame(rows), text=["why", "instances"]),
        note(
            "Remedies: a larger width (sigma, rho, mu), more data around the point, or, where a model can be asked, "
            "rows labelled by it (augmented_mim)."
        ),
    )


def alike_section(results: Results) -> HTML:
    """The cosine between MIM and Parzen over all points, its distribution, and that of every other pair."""
    ids = results.instances["instance"]
    labels = data_labels(results, POINTWISE)
    pairs = cosine_pairs({label: experiment.scores_of(results.scores[label], ids) for label in labels})
    pairs = {pair: values for pair, values in pairs.items() if len(values)}
    if not pairs:
        return note("Nothing to compare: fewer than two measures explained the same points.")
    main = tuple(_pair(results)) if tuple(_pair(results)) in pairs else next(iter(pairs))
    drawing = cosine_histogram(pairs[main], paper=PAPER_COSINE if main == tuple(_pair(results)) else None)
    caption = (
        f"Cosine between {main[0]} and {main[1]} at {number(len(pairs[main]))} points. The paper reports a mean of at "
        f"least {PAPER_COSINE} over 8,000 points of another data set."
    )
    return elements.pair(
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
    for (first, second), values in pairs.items():
        low, median, high = map(_three, np.percentile(values, [5, 50, 95]))
        row = {"one": first, "other": second, "mean": _three(values.mean()), "median": median}
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
    axes.hist(np.clip(values, -1, 1), bins=np.linspace(start, 1, 41), color=BARS)
    axes.axvline(median, color=INK, linewidth=2, label=f"median {_three(median)}")
    axes.axvline(low, color=QUIET, linestyle=(0, (5, 2)), label=f"5 % {_three(low)}, 95 % {_three(high)}")
    axes.axvline(high, color=QUIET, linestyle=(0, (5, 2)))
    if paper is not None:
        axes.axvline(paper, color=AGAINST, linestyle=(0, (1, 1.4)), linewidth=2, label=f"paper: mean ≥ {paper:g}")
    axes.set(xlabel="cosine", ylabel="points", xlim=(start, 1))
    axes.yaxis.get_major_locator().set_params(integer=True)
    drawing.legend(loc="outside upper center", ncols=3, handlelength=1.8, columnspacing=1.2, fontsize=9)
    return drawing


BESIDE = (
    "How good is a measure that never asked the model? Both kinds explain the same points; the masking curves ask "
    "the model what the top features are worth to it. An influence is a slope, what a larger value would do; the "
    "scores of a model are shares, what the present value did. The two can differ in sign where a value is small. "
    "And an influence is towards the point's own label, a score towards the class that the model predicts: where "
    "the model errs they oppose each other. To remove a feature is to fill it from the reference whatever the "
    "others say; such inputs may lie off the data manifold. The measures of labelled points ask about none."
)


def model_section(results: Results) -> HTML:
    """How the measures agree with the methods that asked a model, and the masking curves of both; empty without one."""
    if not results.model_card:
        return HTML("")
    ids = results.instances["instance"].head(ALIKE)
    scores = {label: experiment.scores_of(frame, ids) for label, frame in results.scores.items()}
    few = f"The first {number(ALIKE)} of {number(len(results.instances))} points." if len(ids) == ALIKE else ""
    measured = results.metrics.get("log_odds")
    return together(
        heading("Beside methods that ask the model", 2),
        note(BESIDE),
        heading("Agreement"),
        method_agreement.agreement_section(scores),
        note(few) if few and len(results.instances) > ALIKE else None,
        heading("Masking curves"),
        masking_note(results),
        missing("log_odds") if measured is None or measured.empty else common.masking_section(results),
    )


def masking_note(results: Results) -> HTML | None:
    """The best masking area of the measures that did not ask the model, of those that did, and of the controls."""
    areas = experiment.scalars(results.metrics.get("log_odds"), "deletion_auc")
    best: dict[str, str | None] = {"data alone": None, "asks the model": None, "control": None}
    for label in areas.sort_values("mean").index:
        entry = results.labels[label]
        kind = "asks the model" if METHODS[entry["method"]].asks_model else "data alone"
        kind = "control" if entry.get("is_control") else kind
        best[kind] = best[kind] or f"{label} at {numbers.interval(areas.loc[label])}"
    said = "; ".join(f"{kind}: {area}" for kind, area in best.items() if area)
    return note(f"The lowest (best) masking areas, in nats: {said}.") if said else None
