"""Which method to trust: for each question an experiment asked, the best at what it costs, and the tests behind it."""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import matplotlib
import numpy as np
import pandas as pd
from IPython.display import HTML
from matplotlib.figure import Figure

from shapeline import findings, plots, statistics
from shapeline.findings import Results, counted, interval, number, scalars, share
from shapeline.plots import INK, STYLE, WIDTH, Style, figure, heading, note, table, together

ENOUGH = 6  # instances: with fewer no signed-rank test can be significant
ANY = "at any cost"
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
    """The answer of one experiment to a question.

    values: (instances, labels); pairs: of these and `also`, as `statistics.pairs` makes them; evaluations: an instance,
    of the same. also: (instances, names) what can be taken too: labels at smaller budgets, and the truth that errors
    are measured against, which has none. truth: its label, where it is among them; absent: labels that were measured
    on too few instances.
    """

    question: Question
    values: pd.DataFrame
    pairs: pd.DataFrame
    evaluations: pd.Series
    unit: str
    also: pd.DataFrame = field(default_factory=pd.DataFrame)
    truth: str | None = None
    absent: tuple[str, ...] = ()

    @functools.cached_property
    def candidates(self) -> pd.DataFrame:
        """Values (instances, names) of all that can be taken."""
        return self.values.join(self.also)

    @functools.cached_property
    def _pair(self) -> dict[tuple[str, str], Mapping]:
        return {(row["better"], row["worse"]): row for row in self.pairs.to_dict("records")}

    def _beaten(self, name: str, ahead: list[str]) -> bool:
        """Whether one of those with a better mean is surely better."""
        return any(self._pair[other, name]["sure"] for other in ahead)

    @functools.cached_property
    def every(self) -> list[dict]:
        """What to take at most so many evaluations an instance, a row a cost.

        Keys: evaluations, best, mean, next, difference, low, high, p_holm (of best and next; nothing where alone),
        equal (than what none is surely better), chosen (the cheapest of these and the best). A higher cost is never
        answered by something cheaper.
        """
        names = statistics.order(self.candidates, self.question.better)
        spent = self.evaluations.reindex(names).fillna(np.inf)  # unknown: of scores made elsewhere
        rows: list[dict] = []
        for most in sorted(spent.unique()):
            best, *others = affordable = [name for name in names if spent[name] <= most]
            equal = [name for place, name in enumerate(others) if not self._beaten(name, [best, *others[:place]])]
            chosen = min((best, *equal), key=lambda name: (spent[name], affordable.index(name)))
            row = {"evaluations": most, "best": best, "mean": self.candidates[best].mean(), "equal": equal}
            row["chosen"] = chosen
            if others:
                pair = self._pair[best, others[0]]
                row |= {"next": others[0], **{key: pair[key] for key in ("difference", "low", "high", "p_holm")}}
            rows.append(row)
        return rows

    @functools.cached_property
    def choices(self) -> pd.DataFrame:
        """The rows of `every` at which the answer changes."""
        answer = [(row["chosen"], row["best"]) for row in self.every]
        return pd.DataFrame(
            [row for place, row in enumerate(self.every) if not place or answer[place] != answer[place - 1]]
        )

    @property
    def last(self) -> Mapping:
        """What to take whatever it costs: of errors, as long as it costs less than the truth that has none."""
        before = [row for row in self.every if row["best"] != self.truth]
        return (before or self.every)[-1]

    @property
    def limit(self) -> str:
        """Up to what cost `last` holds, in words."""
        if self.truth is None or self.last["best"] == self.truth:
            return ANY
        return f"below the {counted(self.evaluations[self.truth], 'evaluation')} of {self.truth} itself"

    def within(self, results: Results) -> Mapping | None:
        """The last of the choices that the experiment's budget allows; the empty and the full input are on top."""
        budget = results.settings.get("budget")
        most = np.inf if budget is None else budget * results.d + 2
        rows = [row for row in self.every if row["evaluations"] <= most]
        return rows[-1] if rows else None


def evidence(results: Results, seed: int = 0) -> list[Evidence]:
    """What the experiment's metrics say, a question each; those without two labels on six common instances are out."""
    found = []
    for question in asked(results.measured):
        measured = results.measured.get(question.metric)
        if measured is None or measured.empty:
            continue
        labels = [label for label in results.labels if question.metric != "error" or label != results.exact]
        also, spent, truth = _also(question, measured, results)
        measured = pd.concat([measured, *also])
        values = statistics.by_label(measured, question.quantity)
        kept = [label for label in values if label in labels]
        if len(kept) < 2 or len(values) < ENOUGH:
            continue
        also = [name for name in values if name == truth or (name not in kept and _can_be_sure(values))]
        values = values[[*kept, *also]]
        found.append(
            Evidence(
                question,
                values[kept],
                statistics.pairs(values, question.better, seed, statistics.by_draw(measured, question.quantity)),
                spent,
                question.unit.format(value=results.value_unit),
                values[also],
                truth if truth in also else None,
                tuple(label for label in labels if label not in kept),
            )
        )
    return found


def _also(
    question: Question, measured: pd.DataFrame, results: Results
) -> tuple[list[pd.DataFrame], pd.Series, str | None]:
    """What can be taken beside the labels: measurements of it under names of its own, evaluations of the labels and of
    it, and the name of the truth that errors are measured against."""
    spent = findings.evaluations(results)
    if question.metric != "error":
        return [], spent, None
    parts, earlier = [_at_budgets(measured)], findings.evaluations_at_budgets(results)
    truth = results.exact if np.isfinite(spent.get(results.exact, np.nan)) else None
    if truth:
        none = {"label": truth, "repeat": 0, "quantity": question.quantity, "x": np.nan, "value": 0.0}
        parts.append(pd.DataFrame({"instance": measured["instance"].unique()}).assign(**none))
    spent = pd.concat([spent, earlier.set_axis([_named_at(*at) for at in earlier.index])])
    return [part for part in parts if len(part)], spent, truth


def _at_budgets(frame: pd.DataFrame) -> pd.DataFrame:
    """The errors at budgets below a label's own, as errors of a label named by both."""
    rows = frame[frame["quantity"] == "rmse_by_budget"]
    rows = rows[rows["x"] < rows.groupby("label")["x"].transform("max")]
    names = [_named_at(*at) for at in zip(rows["label"], rows["x"], strict=True)]
    return rows.assign(label=names, quantity="rmse", x=np.nan)


def _named_at(label: str, budget: float) -> str:
    return f"{label} at {number(budget)} d"


def _can_be_sure(values: pd.DataFrame) -> bool:
    """Whether so many instances can tell any two of so many columns apart, by a signed-rank test and Holm's correction;
    were smaller budgets compared on fewer, nothing would ever be told from anything."""
    n, k = values.shape
    return 2.0 ** (1 - n) * k * (k - 1) / 2 < statistics.SURE


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
    frame = results.metrics.get(one.question.metric)
    if one.question.metric == "error" and frame is not None:
        frame = pd.concat([frame, _at_budgets(frame)])
    means = scalars(frame, one.question.quantity)

    def mean(label: str) -> str:
        text = interval(means.loc[label]) if label in means.index else number(one.candidates[label].mean(), whole=False)
        return f"{text} {one.unit}".strip()

    def spent(label: str) -> str:
        return f"{counted(one.evaluations.get(label, np.nan), 'evaluation')} an instance"

    within, last = one.within(results), one.last["chosen"]
    if within is None:
        short = f"{subject}: no method keeps to the budget; {one.limit} take {last}, {spent(last)}."
        return short, f"{what}: {mean(last)}, {one.question.better} is better."
    chosen = within["chosen"]
    control = "the control " if results.labels.get(chosen, {}).get("is_control") else ""
    short = f"{subject}: take {control}{chosen}, {spent(chosen)}."
    more = [f"{what[0].upper()}{what[1:]}: {mean(chosen)}, {one.question.better} is better."]
    if chosen != within["best"]:
        more.append(f"{within['best']} has the best mean within the budget, but cannot be told from it.")
    if last != chosen and chosen != one.truth:
        more.append(f"{one.limit[0].upper()}{one.limit[1:]}: {last}, {mean(last)}, {spent(last)}.")
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
            "number of pairs (Holm); repeats are averaged, so the test holds fixed what was drawn. From three repeats "
            "on the interval of a difference covers that too, and must leave out 0 as well. Of methods that cannot be "
            "told apart so, the cheapest is recommended. A metric answers its own question only; where two disagree, "
            "decide which question is yours."
        ),
    ]
    for one in found:
        drawn = plots.styles_of(results)
        parts += [heading(one.question.title), recommendation(one), absence(one), choices_table(one)]
        parts += [costs_and_ranks(one, results), against_best(one), over_trainings(one, results, drawn)]
    parts += [over_questions(found), variances(results)]
    return together(*parts)


def costs_and_ranks(one: Evidence, results: Results) -> HTML:
    """The answer to a question as two figures: means against costs, and average ranks."""
    drawn = plots.styles_of(results)
    means = scalars(results.metrics.get(one.question.metric), one.question.quantity)
    named = f"{results.experiment}, {one.question.short}:"
    return together(
        figure(
            cost_plane(one, means, drawn, seconds(results)),
            f"{named} means against evaluations and seconds per instance",
            f"{one.question.title}. Means with 95 % intervals against their cost; "
            f"{'lower' if one.question.better == 'lower' else 'upper'} left is better. The line joins the methods "
            "that no cheaper one beats. Seconds are of the machine that ran, means over instances.",
            numbers=plots.by_cost(means, evaluations=one.evaluations, seconds=seconds(results)),
        ),
        figure(
            rank_diagram(one, drawn),
            f"{named} average ranks of the methods with the critical difference",
            f"Average rank over {number(len(one.values))} instances, 1 the best. A bar joins methods whose ranks "
            "differ by less than Nemenyi's critical difference at 5 %, which is stricter than the pairwise tests.",
            numbers=_ranked(one),
        ),
    )


def _ranked(one: Evidence) -> pd.DataFrame:
    average, critical, _ = statistics.critical_difference(one.values, one.question.better)
    return average.rename("average_rank").rename_axis("label").reset_index().assign(critical_difference=critical)


def over_questions(found: Sequence[Evidence]) -> HTML | None:
    """How each question ranks the methods by their means, and Kendall's W of these rankings; nothing where fewer than
    two questions rank the same three methods."""
    common = [label for label in found[0].values if all(label in one.values for one in found)] if found else []
    if len(found) < 2 or len(common) < 3:
        return None
    means = pd.DataFrame({one.question.short: one.values[common].mean() for one in found})
    signs = np.array([1 if one.question.better == "lower" else -1 for one in found])
    agreement = statistics.kendall_w((means * signs).to_numpy().T)
    ranks = (means * signs).rank(method="min").astype(int)
    ranks = ranks.loc[ranks.mean(axis=1).sort_values(kind="stable").index]
    shown = pd.DataFrame(
        {
            "label": label,
            **{name: f"{rank} ({number(means.loc[label, name], whole=False)})" for name, rank in row.items()},
        }
        for label, row in ranks.iterrows()
    )
    left = sorted({label for one in found for label in one.values} - set(common))
    return together(
        heading("Do the questions agree?"),
        table(shown, "Rank by the mean (the mean), a column a question"),
        note(
            f"Kendall's W {agreement:.2f} over {number(len(common))} methods and {number(len(found))} questions: 1 "
            f"where all rank the methods alike, {1 / len(found):.2f} on average where they have nothing in common."
            + (f" Not every question ranks {_named(left)}." if left else "")
        ),
    )


def overview(results: Sequence[Results], found: Mapping[str, Sequence[Evidence]]) -> HTML:
    """The recommendation of every experiment to every question it asked, with its margin and test; a note where none
    was asked. found: the evidence by experiment."""
    rows = []
    for result in results:
        for one in found[result.experiment]:
            row, within = one.last, one.within(result)
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
            "test on the same instances, Holm's correction at 5 %), within the experiment's budget and at any cost "
            "(of errors, below that of the values that they are measured against), with the model evaluations that an "
            "instance takes. Controls take part. Errors and masking areas: lower is better; finding words or objects: "
            "higher."
        ),
    )


def recommendation(one: Evidence) -> HTML:
    """What to take whatever it costs, in a sentence."""
    row = one.last
    spent = counted(one.evaluations.get(row["chosen"], np.nan), "evaluation")
    mean = f"{number(row['mean'], whole=False)} {one.unit}".strip()
    start = "Whatever the cost," if one.limit == ANY else f"{one.limit[0].upper()}{one.limit[1:]}"
    text = f"{start} the best mean is that of {row['best']} ({mean})"
    if row["chosen"] == row["best"]:
        others = f", though {_named(row['equal'])} cannot be told from it" if len(row["equal"]) else ""
        return note(f"{text}{others}. Recommended: {row['chosen']}, {spent} an instance.")
    return note(
        f"{text}, but {_named(row['equal'])} cannot be told from it on these instances. "
        f"Recommended: {row['chosen']}, {spent} an instance."
    )


def absence(one: Evidence) -> HTML | None:
    """Which labels the comparison leaves out, and why."""
    if not one.absent:
        return None
    verb = "is" if len(one.absent) == 1 else "are"
    return note(
        f"Left out: {_named(list(one.absent))} {verb} measured on fewer than half of the instances, too few to decide "
        "what the others are compared on."
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
            "difference (95 % interval)": _difference(row).replace(" to ", "\N{NO-BREAK SPACE}to\N{NO-BREAK SPACE}"),
            "p (Holm)": probability(row.get("p_holm", np.nan)),
        }
        for row in one.choices.to_dict("records")
    )
    wrapped = ["recommended", "best mean", "next", "difference (95 % interval)"]
    return table(shown, "What to take for what it costs", text=wrapped)


def against_best(one: Evidence) -> HTML:
    """Every label against the best one, with its effect and the instances it takes to tell the two apart."""
    best = statistics.order(one.values, one.question.better)[0]
    rows = one.pairs[(one.pairs["better"] == best) & one.pairs["worse"].isin(list(one.values))]
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
            numbers=means.rename_axis("training").reset_index(),
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
def cost_plane(
    one: Evidence, rows: pd.DataFrame, styles: Mapping[str, Style], seconds: pd.Series | None = None
) -> Figure | None:
    """A quantity against evaluations and, below, seconds per instance; every point named, the best at each cost joined
    by a line.

    rows: mean, low, high by label, as `scalars` gives them; a label without a cost is left out of its panel, and a
    panel without labels is left out.
    """
    rows = rows.loc[[label for label in styles if label in rows.index and label in one.values]]
    costs = [one.evaluations, pd.Series(dtype=float) if seconds is None else seconds[seconds > 0]]
    panels = [rows[np.isfinite(cost.reindex(rows.index).to_numpy(float))] for cost in costs]
    there = [place for place, drawn in enumerate(panels) if len(drawn)]
    if not there:
        return None
    drawing = Figure(figsize=(WIDTH, 4.2 * len(there)), layout="constrained")
    sign = 1 if one.question.better == "higher" else -1
    what = one.question.title.split(": ")[-1]
    every = drawing.subplots(len(there), squeeze=False)[:, 0]
    for axes, place in zip(every, there, strict=True):
        drawn, spent = panels[place], costs[place].reindex(panels[place].index).to_numpy(float)
        if place == 0:
            plots.evaluations_axis(axes, spent.max())
        else:
            axes.set_xscale("log")
            axes.set_xlim(spent.min() / 1.5, spent.max() * 2.5)
            axes.set_xlabel("seconds per instance (logarithmic)")
        if one.question.better == "lower" and plots.wide(drawn):
            axes.set_yscale("log")
        means = drawn["mean"].to_numpy()
        by_cost = np.lexsort([-sign * means, spent])
        leads = by_cost[sign * means[by_cost] >= np.maximum.accumulate(sign * means[by_cost])]
        axes.plot(spent[leads], means[leads], color="#b0b0b0", linewidth=1.2, zorder=0)
        for across, (label, row) in zip(spent, drawn.iterrows(), strict=True):
            style = styles[label]
            axes.plot([across, across], [row["low"], row["high"]], color=style.colour, linewidth=1.8)
            axes.plot(across, row["mean"], style.marker, color=style.colour, markerfacecolor=style.face, markersize=7.5)
        axes.set_ylabel(f"{what}{f' ({one.unit})' if one.unit else ''}\n{one.question.better} is better")
    for axes, place in zip(every, there, strict=True):  # when all is drawn, for names are placed in the final layout
        plots.name_points(axes, costs[place].reindex(panels[place].index).to_numpy(float), panels[place], styles)
    return drawing


def seconds(results: Results) -> pd.Series:
    """Mean seconds per instance by label, of the rows that did not fail; NaN where scores made elsewhere do not say."""
    return pd.Series({label: findings.good(frame)["seconds"].mean() for label, frame in results.scores.items()})


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
    if "next" not in row:
        return "–"
    return f"{row['next']}: {_difference(row)}, p {_equals(row['p_holm'])}"


def _equals(p: float) -> str:
    return probability(p) if p < 0.001 else f"= {probability(p)}"


def _priced(one: Evidence, label: str) -> str:
    return f"{label}, {counted(one.evaluations.get(label, np.nan), 'evaluation')}"


def _named(labels: list[str]) -> str:
    return labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} and {labels[-1]}"
