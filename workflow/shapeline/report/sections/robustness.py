"""Does the advice hold in every training of the model, and with every reference? Where does the variance come from?"""

import math
from collections.abc import Mapping

import pandas as pd

from shapeline.report.elements import figure, note, table, together
from shapeline.report.experiment import Results
from shapeline.report.figures.evidence import training_plot
from shapeline.report.html import HTML
from shapeline.report.numbers import counted, ends, enumerated, number, share, within
from shapeline.report.questions import Evidence, asked, by_references, reference_name, training_means, training_values
from shapeline.report.styling import Style
from shapeline.statistics import paired, ranking, variance
from shapeline.statistics.recommendation import Recommendation, recommend


def over_trainings(answer: Evidence, results: Results, styles: Mapping[str, Style]) -> HTML | None:
    """The mean of each label in every training of the model, whether each bears the advice out, and how alike they rank
    the labels; nothing where there is one training."""
    trainings = results.settings.get("seeds") or 1
    if trainings < 2:
        return None
    means, values = training_means(answer, results), training_values(answer, results)
    if len(means) < 2 or means.shape[1] < 2:
        return note(
            f"The {number(trainings)} trainings of the model cannot be compared: fewer than two of them, or of the "
            "methods, were measured on the same instances."
        )
    lost = trainings - len(means)
    partly = [label for label in answer.values if label not in means]
    agreement = ranking.kendall_w((means if answer.question.better == "lower" else -means).to_numpy())
    best = {paired.order(means.loc[[training]], answer.question.better)[0] for training in means.index}
    told = f"{best.pop()} leads in all" if len(best) == 1 else f"the leader differs: {enumerated(sorted(best))}"
    return together(
        figure(
            training_plot(answer, means, styles),
            "Means of each method in every training of the model",
            f"Mean over the same {number(len(values))} instances in {number(len(means))} trainings that differ by "
            "their seed alone, a point each; filled is the training that the rest of the page is of.",
            numbers=means.rename_axis("training").reset_index(),
        ),
        _in_each(answer, results, values[list(means)]),
        note(
            f"Rankings of the methods by the trainings: Kendall's W {agreement:.2f} (1: all the same); {told}."
            + (f" Left out, without a measurement: {counted(lost, 'training')}." if lost else "")
            + (f" Not ranked here, as a training lacks them: {enumerated(partly)}." if partly else "")
        ),
    )


def _in_each(answer: Evidence, results: Results, values: pd.DataFrame) -> HTML | None:
    """The label advised against the best mean of each training; values: (instances, (label, training))."""
    affordable = _advised(answer, results).bounds.index

    def advised(training: int) -> Recommendation:
        own = values.xs(training, axis=1, level=1)
        kept = [label for label in own if label in affordable]
        return recommend(own[kept], answer.evaluations, answer.margin, answer.random, answer.question.better)

    each = {number(training): advised(training) for training in sorted(values.columns.unique(1))}
    told = f"in each training, on {counted(len(values), 'instance')}?"
    return _borne_out(answer, results, each, "training", told)


def _advised(answer: Evidence, results: Results) -> Recommendation:
    """The advice within the experiment's budget, as the page gives it first; where nothing keeps to it, at any cost."""
    return answer.within(results) or answer.last


def _borne_out(
    answer: Evidence, results: Results, each: Mapping[str, Recommendation], what: str, told: str
) -> HTML | None:
    """The label advised against the best mean of each variation; nothing where the advice is of no label in it."""
    taken, limited = _advised(answer, results).label, results.settings.get("budget") is not None
    rows, unit = [], f" ({answer.unit})" if answer.unit else ""
    best = "best mean within the budget" if limited and answer.within(results) else "best mean"
    for name, advice in each.items():
        if taken not in advice.bounds.index:
            return None
        row = advice.bounds.loc[taken]
        rows.append(
            {
                what: name,
                best: advice.bounds.index[0],
                f"{taken} behind it{unit}": number(row["behind"], whole=False),
                "interval, all together": ends(row["low"], row["high"]),
                f"margin{unit}": number(advice.margin, whole=False),
                "within the margin": within(row["status"]),
            }
        )
    return table(pd.DataFrame(rows), f"Does {taken} stay within the margin {told}", text=[best])


def over_references(answer: Evidence, results: Results) -> HTML | None:
    """Whether the advice stands when something else fills what is masked; nothing where nothing else was asked."""
    others = by_references(answer, results)
    if not others:
        return None
    judged = {reference_name(results): answer, **others}
    each = {name: _advised(asked, results) for name, asked in judged.items()}
    return together(
        _borne_out(answer, results, each, "what fills absent features", "whatever fills absent features?"),
        note(
            f"{reference_change(answer, results) or ''} The scores were made with the first, and a judge that shares "
            "it may favour them; with another the same scores are judged."
        ),
    )


def reference_change(answer: Evidence, results: Results) -> str | None:
    """Whether the label advised stays within the margin whatever masks, in a sentence; None where nothing was asked."""
    taken = _advised(answer, results).label
    others = {name: _advised(asked, results) for name, asked in by_references(answer, results).items()}
    status = {name: advice.bounds["status"].get(taken) for name, advice in others.items()}
    if not others or None in status.values():
        return None
    own = reference_name(results)
    worse = [name for name in status if status[name] in ("worse", "plainly worse")]
    if worse:
        ahead = enumerated([_behind(others[name], taken, answer.unit, name) for name in worse])
        return f"⚠ The advice changes with what fills absent features: {taken} is shown to be behind {ahead}."
    if unsure := [name for name in status if status[name] == "open"]:
        return f"With {enumerated(unsure)} in place of {own} it is open whether {taken} stays within the margin."
    return f"With {enumerated(list(status))} in place of {own} {taken} stays within the margin too."


def _behind(advice: Recommendation, taken: str, unit: str, name: str) -> str:
    """The best mean with another reference, and by how much a label is behind it."""
    row = advice.bounds.loc[taken]
    return f"{advice.bounds.index[0]} by {ends(row['low'], row['high'])} {unit} (with {name})".replace("  ", " ")


def variances(results: Results) -> HTML | None:
    """How the variance of each label's metric splits between instances, draws of the design and trainings."""
    rows = []
    for question in asked(results.trainings):
        measured = results.trainings.get(question.metric)
        if measured is None:
            continue
        measured = measured[(measured["quantity"] == question.quantity) & measured["x"].isna()]
        if measured.empty:
            continue
        keys = ["repeat", "training"]
        every = measured.pivot_table(index="instance", columns=["label", *keys], values="value")  # one takes as long
        for label, own in measured.groupby("label"):
            wide = every[label].dropna() if label in every else every[:0]
            sizes = [own[key].nunique() for key in keys]
            if not len(wide) or wide.shape[1] != math.prod(sizes):  # a draw or a training that failed throughout
                continue
            shares = variance.variance_shares(wide.to_numpy().reshape(-1, *sizes))
            if not math.isnan(shares["instances"]):
                levels = dict(zip(("draws", "trainings"), map(number, sizes), strict=True))
                parts = {f"between {name}": share(shares[name]) for name in ("instances", "draws", "trainings")}
                rows.append(
                    {"question": question.short, "label": label, "instances": number(len(wide)), **levels, **parts}
                )
                rows[-1]["rest"] = share(shares["rest"])
    if not rows:
        return None
    shown = pd.DataFrame(rows)
    if (shown["trainings"] == "1").all():
        shown = shown.drop(columns=["trainings", "between trainings"])
    return together(
        table(shown, "Where the variance comes from", text=["label"]),
        note(
            "Variance components of draws nested in instances, and of trainings of the model that differ by their seed "
            "alone, crossed with them (analysis of variance); the rest is what a training does to single instances or "
            f"draws.{_roughness(shown)}"
        ),
    )


def _roughness(shown: pd.DataFrame) -> str:
    """How wrong the component of so few trainings may be: the 95 % interval of a variance, by chi-square."""
    if "trainings" not in shown:
        return ""
    from scipy.special import chdtri

    trainings = int(shown["trainings"].astype(int).max())
    low, high = ((trainings - 1) / chdtri(trainings - 1, tail) for tail in (0.025, 0.975))
    return (
        f" A variance between {number(trainings)} trainings is known to a factor of {number(low)} to {number(high)} "
        "only (95 %, of normal numbers), so that share is rough. Where it moves all methods alike it does not matter "
        "for the choice: see the trainings above."
    )
