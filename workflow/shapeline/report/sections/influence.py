"""Sections of the influence report: its top, sparse data, how alike measures are, and methods that ask the model."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from shapeline.methods.registry import METHODS
from shapeline.report import elements, experiment, findings, formatting
from shapeline.report.colours import AGAINST, BARS, INK, QUIET
from shapeline.report.elements import HTML, figure, heading, join_parts, note, table
from shapeline.report.experiment import Results
from shapeline.report.formatting import number, share
from shapeline.report.sections import common, method_agreement
from shapeline.report.styling import NARROW, styled

POINTWISE = ("mim", "parzen", "data_lime", "augmented_mim")  # a vector a point, whose image can be shifted along it
PAPER_COSINE = 0.94  # between MIM and Parzen, at least, mean over 8,000 points (Sliwinski et al. 2019, §8.2)
ALIKE = 1000  # instances whose agreement is computed; more change no digit that is shown


def list_data_entries(results: Results, methods: Iterable[str] | None = None) -> list[str]:
    """The methods whose scores come from the data alone, in their order; of some methods where they are named."""
    chosen = None if methods is None else set(methods)
    return [
        entry
        for entry, settings in results.entries.items()
        if entry in results.scores
        and settings.get("family") == "data"
        and (chosen is None or settings["method"] in chosen)
    ]


def cosine(first: Sequence[np.ndarray | None], second: Sequence[np.ndarray | None]) -> np.ndarray:
    """Return the cosine of each pair of vectors (p,) that both exist; 0 where one of them is zero."""
    cosines = []
    for left, right in zip(first, second, strict=True):
        if left is not None and right is not None:
            size = np.linalg.norm(left) * np.linalg.norm(right)
            cosines.append(float(left @ right / size) if size > 0 else 0.0)
    return np.array(cosines)


def cosine_pairs(vectors: Mapping[str, Sequence[np.ndarray | None]]) -> dict[tuple[str, str], np.ndarray]:
    """The cosines of every pair of methods, in their order; vectors: method -> one (d,) a point, None for a failure."""
    entries = list(vectors)
    pairs = [(first, second) for place, first in enumerate(entries) for second in entries[place + 1 :]]
    return {pair: cosine(*(vectors[entry] for entry in pair)) for pair in pairs}


def sparse_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows whose point has an empty neighbourhood: instance and why (its flag, or influences all 0)."""
    fine = experiment.good(frame)
    empty = np.array([not np.any(scores) for scores in fine["scores"]], bool)
    why = fine["warning"].astype(object).where(fine["warning"].notna(), np.where(empty, "every influence is 0", None))
    rows = pd.DataFrame({"instance": fine["instance"], "why": why})
    return rows[rows["why"].notna()].drop_duplicates("instance", ignore_index=True)


def header(results: Results, cards: HTML | None = None) -> HTML:
    """Return the top of the page: recommendations (cards) where a metric ranks the measures, findings, key figures."""
    headline, card = findings.headline(results), results.model_card
    sizes = experiment.part_sizes(results.dataset_card)
    rows = sizes.get("train", 0) if card else sum(sizes.values())
    key = {
        "instances explained": number(headline["instances"]),
        "labelled rows": number(rows),
        "features (d)": number(results.d),
        "measures from data": number(len(list_data_entries(results))),
        **({"other methods": number(len(results.entries) - len(list_data_entries(results)))} if card else {}),
        **({"test accuracy": share(headline["accuracy"])} if headline["accuracy"] is not None else {}),
        **({"test R²": number(headline["r2"], 2)} if headline["r2"] is not None else {}),
        "failed rows": number(headline["failures"]),
    }
    answers = () if cards else _costs(results)
    return common.top(headline["title"], answers, sentences(results, rows, bool(cards)), key, cards)


def _costs(results: Results) -> list[tuple[str, str]]:
    """Return the cost per instance of each measure, where no metric ranks them."""
    free = [entry for entry in list_data_entries(results) if not METHODS[results.entries[entry]["method"]].asks_model]
    each = 1000 * experiment.mean_seconds(results).reindex(free)
    times = ", ".join(f"{entry} {number(time, 2, whole=False)} ms" for entry, time in each.items() if np.isfinite(time))
    more = (
        "Without a model no metric ranks the measures; compare their axioms and their agreement below. Cost per "
        f"instance: {times}, and no model evaluations."
    )
    return [("No recommendation.", more)] * bool(times)


def sentences(results: Results, rows: int, advised: bool = False) -> list[str]:
    """Return the findings in lines; rows: labelled instances read; advised: whether recommendations precede."""
    free = [entry for entry in list_data_entries(results) if not METHODS[results.entries[entry]["method"]].asks_model]
    points = number(len(results.instances))
    measures = ", ".join(free) or "no measure"
    lines = [f"Influence of each feature at {points} instances, from {number(rows)} labelled rows only ({measures})."]
    if results.model_card:
        lines += findings.headlines(results, advised)
    else:
        lines.append("No model is used; a class named below is the label of the instance.")
    pair = _pair(results)
    if pair:
        values = cosine(*pair.values())
        if len(values):
            mim, parzen = pair
            verdict = "no lower than" if values.mean() >= PAPER_COSINE else "below"
            lines.append(
                f"The mean cosine between {mim} and {parzen} over {number(len(values))} instances is "
                f"{values.mean():.3f}, {verdict} the paper's {PAPER_COSINE} on its data."
            )
    empty = {entry: len(sparse_rows(results.scores[entry])) for entry in list_data_entries(results)}
    if any(empty.values()):
        listed = ", ".join(f"{entry} at {number(count)}" for entry, count in empty.items() if count)
        lines.append(f"⚠ Empty neighbourhoods, where influences carry no information: {listed} (see Sparse data).")
    return lines


def _pair(results: Results) -> dict[str, list]:
    """The vectors of the first MIM and the first Parzen method at all points; empty where one of them is missing."""
    entries = [next(iter(list_data_entries(results, [method])), None) for method in ("mim", "parzen")]
    if None in entries:
        return {}
    ids = results.instances["instance"]
    return {entry: experiment.select_scores(results.scores[entry], ids) for entry in entries}


def sparse_section(results: Results) -> HTML:
    """Which points have an empty neighbourhood, a line a measure and reason; a reassurance where none has."""
    rows = []
    for entry in list_data_entries(results):
        for why, group in sparse_rows(results.scores[entry]).groupby("why", sort=False):
            first = ", ".join(map(str, group["instance"].head(8))) + (", …" if len(group) > 8 else "")
            points = f"⚠ {number(len(group))} of {number(len(results.scores[entry]))}"
            rows.append({"method": entry, "affected": points, "why": why, "instances": first})
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


def alike_section(results: Results) -> HTML:
    """The cosine between MIM and Parzen over all points, its distribution, and that of every other pair."""
    ids = results.instances["instance"]
    entries = list_data_entries(results, POINTWISE)
    pairs = cosine_pairs({entry: experiment.select_scores(results.scores[entry], ids) for entry in entries})
    pairs = {pair: values for pair, values in pairs.items() if len(values)}
    if not pairs:
        return note("Not available: fewer than two measures explained the same instances.")
    main = tuple(_pair(results)) if tuple(_pair(results)) in pairs else next(iter(pairs))
    drawing = cosine_histogram(pairs[main], paper=PAPER_COSINE if main == tuple(_pair(results)) else None)
    caption = (
        f"Cosine between {main[0]} and {main[1]} at {number(len(pairs[main]))} instances. The paper reports a mean of "
        f"at least {PAPER_COSINE} over 8,000 points of another data set."
    )
    return elements.pair(
        figure(
            drawing,
            f"Histogram of the cosine between {main[0]} and {main[1]}",
            caption,
            numbers=pd.DataFrame({"cosine": pairs[main]}),
        ),
        join_parts(
            table(cosine_table(pairs), "Cosine of every pair of measures", text=["other"]),
            note("Between the vectors of all features of an instance; 0 where one of them is zero."),
        ),
    )


def cosine_table(pairs: Mapping[tuple[str, str], np.ndarray]) -> pd.DataFrame:
    """A row a pair: mean, median, 5th and 95th percentile, number of points; text."""
    rows = []
    for (first, second), values in pairs.items():
        low, median, high = map(_three, np.percentile(values, [5, 50, 95]))
        row = {"one": first, "other": second, "mean": _three(values.mean()), "median": median}
        row["5 to 95 %"] = f"{low} to {high}"
        rows.append({**row, "instances": number(len(values))})
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
    axes.set(xlabel="cosine", ylabel="instances", xlim=(start, 1))
    axes.yaxis.get_major_locator().set_params(integer=True)
    drawing.legend(loc="outside upper center", ncols=3, handlelength=1.8, columnspacing=1.2, fontsize=9)
    return drawing


BESIDE = (
    "Measures from data and methods that evaluate the model explain the same instances. An influence is a slope; a "
    "score of a model method is a share of the prediction, so the two can differ in sign."
)
DIFFERENCES = (
    "An influence is the effect of a larger value, a score that of the present value: signs can differ where a value "
    "is small. An influence is towards the label of the instance, a score towards the predicted class: they oppose "
    "each other where the model is wrong. The deletion curves mask features with the baseline, independently of the "
    "other features; such inputs may lie off the data manifold."
)


def model_section(results: Results) -> HTML:
    """How the measures agree with the methods that asked a model, and the masking curves of both; empty without one."""
    if not results.model_card:
        return HTML("")
    ids = results.instances["instance"].head(ALIKE)
    scores = results.select_scores(ids)
    few = f"The first {number(ALIKE)} of {number(len(results.instances))} instances." if len(ids) == ALIKE else ""
    return join_parts(
        heading("Comparison with methods that evaluate the model"),
        note(BESIDE),
        elements.fold(elements.FOLD, note(DIFFERENCES)),
        heading("Agreement", 4),
        method_agreement.agreement_section(scores),
        note(few) if few and len(results.instances) > ALIKE else None,
        masking_note(results),
        common.masking_section(results),
    )


def masking_note(results: Results) -> HTML | None:
    """Return the best deletion AUC of the measures without the model, of those with it, and of the controls."""
    areas = experiment.scalars(results.metrics.get("log_odds"), "deletion_auc")
    best: dict[str, str | None] = {"data only": None, "evaluates the model": None, "control": None}
    for entry in areas.sort_values("mean").index:
        settings = results.entries[entry]
        kind = "evaluates the model" if METHODS[settings["method"]].asks_model else "data only"
        kind = "control" if settings.get("is_control") else kind
        best[kind] = best[kind] or f"{entry} at {formatting.interval(areas.loc[entry])}"
    lowest = "; ".join(f"{kind}: {area}" for kind, area in best.items() if area)
    return note(f"The lowest (best) deletion AUC, in nats: {lowest}.") if lowest else None
