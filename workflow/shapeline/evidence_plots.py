"""Which method to trust: for each question an experiment asked, the best at what it costs, and the tests behind it."""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
import pandas as pd
from IPython.display import HTML
from matplotlib.figure import Figure

from shapeline import findings, plots, statistics
from shapeline.findings import Results, counted, interval, number, scalars, share
from shapeline.plots import INK, STYLE, WIDTH, Style, figure, heading, note, table, together

SURE = 0.05
ENOUGH = 6  # instances: with fewer no signed-rank test can be significant
styled = matplotlib.rc_context(STYLE)


@dataclass(frozen=True)
class Question:
    """A scalar quantity that ranks methods: of which metric, which way is better, and its words, long and short."""

    metric: str
    quantity: str
    better: str
    title: str
    short: str
    unit: str


QUESTIONS = (
    Question(
        "localization",
        "auprc",
        "higher",
        "Finding the annotated objects: area under precision and recall",
        "finding objects",
        "",
    ),
    Question("decisive", "f1", "higher", "Finding the words that decide: F1", "finding words", ""),
    Question("error", "rmse", "lower", "Closeness to the true values: RMSE", "error", "{value}"),
    Question(
        "log_odds", "masking_area", "lower", "Faithfulness by masking: area under the log-odds curve", "masking", "nats"
    ),
)


@dataclass(frozen=True)
class Evidence:
    """The answer of one experiment to a question: values (instances, labels), all pairs, evaluations an instance."""

    question: Question
    values: pd.DataFrame
    pairs: pd.DataFrame
    evaluations: pd.Series
    unit: str

    def told_apart(self, one: str, other: str) -> float:
        """Holm-corrected p of two labels."""
        rows = self.pairs[(self.pairs["better"] == one) & (self.pairs["worse"] == other)]
        rows = rows if len(rows) else self.pairs[(self.pairs["better"] == other) & (self.pairs["worse"] == one)]
        return float(rows["p_holm"].iloc[0])

    @functools.cached_property
    def choices(self) -> pd.DataFrame:
        """What to take at most so many evaluations an instance, a row where the answer changes.

        Columns: evaluations, best, mean, next, difference, low, high, p_holm (of best and next; nothing where alone),
        equal (labels not told apart from the best), chosen (the cheapest of these and the best).
        """
        labels = statistics.order(self.values, self.question.better)
        spent = self.evaluations.reindex(labels).fillna(np.inf)  # unknown: of scores made elsewhere
        rows: list[dict] = []
        for most in sorted(spent.unique()):
            affordable = [label for label in labels if spent[label] <= most]
            best, *others = affordable
            equal = [label for label in others if self.told_apart(best, label) >= SURE]
            chosen = min((best, *equal), key=lambda label: (spent[label], affordable.index(label)))
            row = {"evaluations": most, "best": best, "mean": self.values[best].mean(), "equal": equal}
            row["chosen"] = chosen
            if others:
                pair = self.pairs[(self.pairs["better"] == best) & (self.pairs["worse"] == others[0])].iloc[0]
                row |= {"next": others[0], **{key: pair[key] for key in ("difference", "low", "high", "p_holm")}}
            if rows and (row["chosen"], row["best"]) == (rows[-1]["chosen"], rows[-1]["best"]):
                rows[-1] = {**row, "evaluations": rows[-1]["evaluations"]}  # what is dearer may be closer to the best
            else:
                rows.append(row)
        return pd.DataFrame(rows)

    def within(self, results: Results) -> Mapping | None:
        """The last of the choices that the experiment's budget allows; the empty and the full input are on top."""
        budget = results.settings.get("budget")
        rows = self.choices if budget is None else self.choices[self.choices["evaluations"] <= budget * results.d + 2]
        return rows.iloc[-1] if len(rows) else None


def evidence(results: Results, seed: int = 0) -> list[Evidence]:
    """What the experiment's metrics say, a question each; those without two labels on six common instances are out."""
    found = []
    spent = findings.evaluations(results)
    for question in asked(results.measured):
        measured = results.measured.get(question.metric)
        if measured is None or measured.empty:
            continue
        values = statistics.by_label(measured, question.quantity)
        if values.shape[1] > 1 and len(values) >= ENOUGH:
            unit = question.unit.format(value=results.value_unit)
            pairs = statistics.pairs(values, question.better, seed, statistics.by_draw(measured, question.quantity))
            found.append(Evidence(question, values, pairs, spent, unit))
    return found


def asked(measured: Mapping[str, pd.DataFrame]) -> list[Question]:
    """The questions that metrics answer, and one for each quantity of metrics of one's own."""
    own = measured.get("own")
    names = [] if own is None else sorted(own["quantity"].unique())
    return [*QUESTIONS, *(Question("own", name, "lower", f"A metric of one's own: {name}", name, "") for name in names)]


def answers(found: Sequence[Evidence], results: Results) -> list[tuple[str, str]]:
    """For the top of the page, a question each: what to take within the budget at what cost; how good it is, and what
    is better beyond the budget."""
    return [_answer(one, results) for one in found]


def _answer(one: Evidence, results: Results) -> tuple[str, str]:
    subject, what = one.question.title.split(": ")
    means = scalars(results.metrics.get(one.question.metric), one.question.quantity)

    def mean(label: str) -> str:
        text = interval(means.loc[label]) if label in means.index else number(one.values[label].mean(), whole=False)
        return f"{text} {one.unit}".strip()

    def spent(label: str) -> str:
        return f"{counted(one.evaluations.get(label, np.nan), 'evaluation')} an instance"

    within, last = one.within(results), one.choices.iloc[-1]["chosen"]
    if within is None:
        short = f"{subject}: no method keeps to the budget; at any cost take {last}, {spent(last)}."
        return short, f"{what}: {mean(last)}, {one.question.better} is better."
    chosen = within["chosen"]
    control = "the control " if results.labels[chosen].get("is_control") else ""
    short = f"{subject}: take {control}{chosen}, {spent(chosen)}."
    more = [f"{what[0].upper()}{what[1:]}: {mean(chosen)}, {one.question.better} is better."]
    if chosen != within["best"]:
        more.append(f"{within['best']} has the best mean within the budget, but cannot be told from it.")
    if last != chosen:
        more.append(f"At any cost: {last}, {mean(last)}, {spent(last)}.")
    return short, " ".join(more)


def section(found: Sequence[Evidence], results: Results) -> HTML | None:
    """For every question: the recommendation, average ranks with the critical difference, every method against the
    best; nothing where no metric ranks methods on enough instances."""
    if not found:
        return None
    parts = [
        heading("Which method to trust", 2),
        note(
            "Methods are compared on the same instances, pair by pair: Wilcoxon's signed-rank test, corrected for the "
            "number of pairs (Holm); repeats are averaged, so the test holds fixed what was drawn; with fewer than "
            "three repeats so do the intervals of differences. Of methods that these instances cannot tell apart, the "
            "cheapest is recommended. A metric answers its own question only; where two disagree, decide which "
            "question is yours."
        ),
    ]
    for one in found:
        drawn = plots.styles_of(results)
        parts += [heading(one.question.title), recommendation(one), choices_table(one)]
        parts += [
            figure(
                cost_plane(one, scalars(results.metrics.get(one.question.metric), one.question.quantity), drawn),
                f"{one.question.title}, against evaluations per instance",
                "Means with 95 % intervals against their cost; "
                f"{'lower' if one.question.better == 'lower' else 'upper'} left is better. The line joins the methods "
                "that no cheaper one beats.",
            ),
            figure(
                rank_diagram(one, drawn),
                "Average ranks of the methods with the critical difference",
                f"Average rank over {number(len(one.values))} instances, 1 the best. A bar joins methods whose ranks "
                "differ by less than Nemenyi's critical difference at 5 %, which is stricter than the pairwise tests.",
            ),
            against_best(one),
            over_trainings(one, results, drawn),
        ]
    parts.append(variances(results))
    return together(*parts)


def overview(results: Sequence[Results]) -> HTML:
    """The recommendation of every experiment to every question it asked, with its margin and test; a note where none
    was asked."""
    rows = []
    for result in results:
        for one in evidence(result):
            row, within = one.choices.iloc[-1], one.within(result)
            rows.append(
                {
                    "experiment": f"{result.experiment}, n = {number(len(one.values))}",
                    "question": one.question.short,
                    "within the budget": "–" if within is None else _priced(one, within["chosen"]),
                    "at any cost": _priced(one, row["chosen"]),
                    "best mean": f"{row['best']} {number(row['mean'], whole=False)} {one.unit}".strip(),
                    "next, and how far behind": _behind(row),
                }
            )
    if not rows:
        return note("No experiment measured what would rank its methods on six instances or more.")
    return together(
        table(
            pd.DataFrame(rows),
            text=["question", "within the budget", "at any cost", "best mean", "next, and how far behind"],
        ),
        note(
            "What to take: the cheapest of the methods that cannot be told from the best one (Wilcoxon's signed-rank "
            "test on the same instances, Holm's correction at 5 %), within the experiment's budget and at any cost, "
            "with the model evaluations that an instance takes. Controls take part. Errors and masking areas: lower is "
            "better; finding words or objects: higher."
        ),
    )


def recommendation(one: Evidence) -> HTML:
    """The last row of the choices, in a sentence."""
    row = one.choices.iloc[-1]
    spent = counted(one.evaluations.get(row["chosen"], np.nan), "evaluation")
    mean = f"{number(row['mean'], whole=False)} {one.unit}".strip()
    text = f"Whatever the cost, the best mean is that of {row['best']} ({mean})"
    if row["chosen"] == row["best"]:
        others = f", though {_named(row['equal'])} cannot be told from it" if len(row["equal"]) else ""
        return note(f"{text}{others}. Recommended: {row['chosen']}, {spent} an instance.")
    return note(
        f"{text}, but {_named(row['equal'])} cannot be told from it on these instances. "
        f"Recommended: {row['chosen']}, {spent} an instance."
    )


def choices_table(one: Evidence) -> HTML:
    """The choices for reading."""
    shown = pd.DataFrame(
        {
            "evaluations at most": number(row["evaluations"], 6),
            "recommended": row["chosen"],
            "best mean": row["best"],
            f"its mean{f' ({one.unit})' if one.unit else ''}": number(row["mean"], whole=False),
            "next": row.get("next") if isinstance(row.get("next"), str) else "–",
            "difference (95 % interval)": _difference(row),
            "p (Holm)": probability(row.get("p_holm", np.nan)),
        }
        for row in one.choices.to_dict("records")
    )
    return table(shown, "What to take for what it costs", text=["recommended", "best mean", "next"])


def against_best(one: Evidence) -> HTML:
    """Every label against the best one, with its effect and the instances it takes to tell the two apart."""
    best = statistics.order(one.values, one.question.better)[0]
    rows = one.pairs[one.pairs["better"] == best]
    unit = f" ({one.unit})" if one.unit else ""
    shown = pd.DataFrame(
        {
            f"{best} against": row["worse"],
            f"difference{unit} (95 % interval)": _difference(row),
            "p (Holm)": probability(row["p_holm"]),
            "effect": f"{row['effect']:+.2f}".replace("-", "−"),
            "better on": share(row["wins"]),
            "instances needed": number(row["needed"]) if np.isfinite(row["needed"]) else "–",
        }
        for row in rows.to_dict("records")
    )
    return together(
        table(shown),
        note(
            "Effect: rank-biserial correlation of the pairs, 1 where the best method wins on every instance. Instances "
            "needed: for a power of 80 % at p = 0.05, without correction."
        ),
    )


def variances(results: Results) -> HTML | None:
    """How the variance of each label's metric splits between instances, draws of the design and trainings."""
    rows = []
    for question in asked(results.trainings):
        measured = results.trainings.get(question.metric)
        if measured is None:
            continue
        measured = measured[(measured["quantity"] == question.quantity) & measured["x"].isna()]
        for label, own in measured.groupby("label"):
            keys = ["repeat", "training"]
            wide = own.pivot_table(index="instance", columns=keys, values="value").dropna()
            sizes = [own[key].nunique() for key in keys]
            if not len(wide) or wide.shape[1] != math.prod(sizes):  # a draw or a training that failed throughout
                continue
            shares = statistics.variance_shares(
                wide.to_numpy().reshape(-1, *sizes), ("instances", "draws", "trainings")
            )
            if np.isfinite(shares["rest"]):
                levels = dict(zip(("draws", "trainings"), map(number, sizes), strict=True))
                parts = {f"between {name}": share(shares[name]) for name in ("instances", "draws", "trainings")}
                rows.append({"question": question.short, "label": label, **levels, **parts})
                rows[-1]["rest"] = share(shares["rest"])
    if not rows:
        return None
    shown = pd.DataFrame(rows)
    if (shown["trainings"] == "1").all():
        shown = shown.drop(columns=["trainings", "between trainings"])
    return together(
        table(shown, "Where the variance comes from", text=["label"]),
        note(
            "Variance components of the crossed layout of instances, draws of the design and trainings of the model "
            "that differ by their seed alone (analysis of variance); the rest is what these do together, such as a "
            "training that changes single instances."
        ),
    )


def over_trainings(one: Evidence, results: Results, styles: Mapping[str, Style]) -> HTML | None:
    """The mean of each label in every training of the model, and how alike the trainings rank the labels; nothing
    where there is one training."""
    trainings = results.settings.get("seeds") or 1
    if trainings < 2:
        return None
    means = training_means(one, results)
    if len(means) < 2 or means.shape[1] < 2:
        return note(
            f"The {number(trainings)} trainings of the model cannot be compared: fewer than two of them, or of the "
            "methods, were measured on the same instances."
        )
    lost = trainings - len(means)
    partly = [label for label in one.values if label not in means]
    agreement = statistics.kendall_w((means if one.question.better == "lower" else -means).to_numpy())
    best = {statistics.order(means.loc[[training]], one.question.better)[0] for training in means.index}
    told = f"{best.pop()} leads in all" if len(best) == 1 else f"the leader differs: {_named(sorted(best))}"
    return together(
        figure(
            training_plot(one, means, styles),
            "Means of each method in every training of the model",
            f"Mean over the same instances in {number(len(means))} trainings that differ by their seed alone, a point "
            "each; filled is the training that the rest of the page is of.",
        ),
        note(
            f"Rankings of the methods by the trainings: Kendall's W {agreement:.2f} (1: all the same); {told}."
            + (f" Left out, without a measurement: {counted(lost, 'training')}." if lost else "")
            + (f" Not ranked here, as a training lacks them: {_named(partly)}." if partly else "")
        ),
    )


def training_means(one: Evidence, results: Results) -> pd.DataFrame:
    """Means (trainings, labels) over the instances that all labels have in all trainings."""
    measured = results.trainings.get(one.question.metric)
    if measured is None or not len(measured):
        return pd.DataFrame()
    measured = measured[measured["label"].isin(list(one.values))]
    columns = measured["label"] + "@" + measured["training"].astype(str)
    wide = statistics.by_label(measured.assign(label=columns), one.question.quantity)
    means = wide.mean()
    means.index = pd.MultiIndex.from_tuples([tuple(name.rsplit("@", 1)) for name in means.index])
    return means.unstack(0).dropna(axis=1).rename(index=int).sort_index()


@styled
def training_plot(one: Evidence, means: pd.DataFrame, styles: Mapping[str, Style]) -> Figure:
    """A row a label, the best mean first, and on it a point a training; means (trainings, labels)."""
    labels = statistics.order(means, one.question.better)
    drawing = Figure(figsize=(WIDTH, 0.9 + 0.3 * len(labels)), layout="constrained")
    axes = drawing.subplots()
    for place, label in enumerate(labels):
        style = styles[label]
        axes.plot(means[label].agg(["min", "max"]), [place, place], color=style.colour, linewidth=1.2)
        for training, mean in means[label].items():
            face = style.colour if training == 0 else "white"
            axes.plot(mean, place, style.marker, color=style.colour, markerfacecolor=face, markersize=6.5)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    what = one.question.title.split(": ")[-1]
    axes.set_xlabel(f"{what}{f' ({one.unit})' if one.unit else ''}, {one.question.better} is better")
    axes.grid(axis="y", linewidth=0.4)
    return drawing


@styled
def cost_plane(one: Evidence, rows: pd.DataFrame, styles: Mapping[str, Style]) -> Figure | None:
    """A quantity against evaluations per instance, every point named, the best at each cost joined by a line.

    rows: mean, low, high by label, as `scalars` gives them.
    """
    rows = rows.loc[[label for label in styles if label in rows.index and label in one.values]]
    if rows.empty:
        return None
    rows = rows[[bool(np.isfinite(one.evaluations.get(label, np.nan))) for label in rows.index]]
    if rows.empty:
        return None
    spent = one.evaluations.reindex(rows.index).to_numpy()
    sign = 1 if one.question.better == "higher" else -1
    drawing = Figure(figsize=(WIDTH, 4.2), layout="constrained")
    axes = drawing.subplots()
    plots.evaluations_axis(axes, spent.max())
    if one.question.better == "lower" and plots.wide(rows):
        axes.set_yscale("log")
    by_cost = np.lexsort([-sign * rows["mean"], spent])
    best = np.maximum.accumulate(sign * rows["mean"].to_numpy()[by_cost])
    leads = by_cost[sign * rows["mean"].to_numpy()[by_cost] >= best]
    axes.plot(spent[leads], rows["mean"].to_numpy()[leads], color="#b0b0b0", linewidth=1.2, zorder=0)
    for across, (label, row) in zip(spent, rows.iterrows(), strict=True):
        style = styles[label]
        axes.plot([across, across], [row["low"], row["high"]], color=style.colour, linewidth=1.8)
        axes.plot(across, row["mean"], style.marker, color=style.colour, markerfacecolor=style.face, markersize=7.5)
    what = one.question.title.split(": ")[-1]
    axes.set_ylabel(f"{what}{f' ({one.unit})' if one.unit else ''}\n{one.question.better} is better")
    plots.name_points(axes, spent, rows, styles)
    return drawing


@styled
def rank_diagram(one: Evidence, styles: Mapping[str, Style]) -> Figure | None:
    """Average ranks on a line, methods named left and right, a bar over each group within the critical difference."""
    average, critical, p = statistics.critical_difference(one.values, one.question.better)
    k = len(average)
    if k < 3:
        return None
    half = (k + 1) // 2
    groups = statistics.cliques(average, critical)
    top = 1.0 + 0.34 * (len(groups) + 1)
    drawing = Figure(figsize=(WIDTH, 0.62 + 0.24 * (half + 1.6 * top)), layout="constrained")
    axes = drawing.subplots()
    axes.set(xlim=(0.6 - 0.42 * k, k + 0.4 + 0.42 * k), ylim=(half + 0.8, -top - 0.4))
    axes.axis("off")
    axes.plot([1, k], [0, 0], color=INK, linewidth=1)
    for rank in range(1, k + 1):
        axes.plot([rank, rank], [0, -0.16], color=INK, linewidth=1)
        axes.text(rank, -0.25, str(rank), ha="center", va="bottom", fontsize=8.5, color=INK)
    for place, (label, rank) in enumerate(average.items()):
        left, style = place < half, styles[label]
        row = place + 1 if left else k - place
        edge = 0.7 if left else k + 0.3
        axes.plot([rank, rank, edge], [0, row, row], color=style.colour, linewidth=0.9)
        axes.plot(rank, 0, style.marker, color=style.colour, markerfacecolor=style.face, markersize=6)
        name = f"{label}  {rank:.1f}" if left else f"{rank:.1f}  {label}"
        axes.text(
            edge + (-0.08 if left else 0.08),
            row,
            name,
            ha="right" if left else "left",
            va="center",
            fontsize=9,
            color=style.ink,
        )
    for level, (first, last) in enumerate(groups):
        height = -0.85 - 0.34 * (level + 1)
        axes.plot([average[first] - 0.04, average[last] + 0.04], [height] * 2, color=INK, linewidth=3.2)
    height = -0.85 - 0.34 * (len(groups) + 1)
    axes.plot([1, 1 + critical], [height] * 2, color="#8a8a8a", linewidth=1.2, marker="|")
    axes.text(
        1 + critical + 0.15,
        height,
        f"critical difference {critical:.2f}; all ranks equal: p {_equals(p)} (Friedman)",
        va="center",
        fontsize=8.5,
        color="#5f5f5f",
    )
    return drawing


def probability(p: float) -> str:
    """A p-value for reading."""
    if not np.isfinite(p):
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def _difference(row: Mapping) -> str:
    if not np.isfinite(row.get("difference", np.nan)):
        return "–"
    return interval({"mean": row["difference"], "low": row["low"], "high": row["high"]})


def _behind(row: Mapping) -> str:
    return f"{row['next']}: {_difference(row)}, p {_equals(row['p_holm'])}"


def _equals(p: float) -> str:
    return probability(p) if p < 0.001 else f"= {probability(p)}"


def _priced(one: Evidence, label: str) -> str:
    return f"{label}, {counted(one.evaluations.get(label, np.nan), 'evaluation')}"


def _named(labels: list[str]) -> str:
    return labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} and {labels[-1]}"
