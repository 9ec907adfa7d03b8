"""Robustness to baselines and training seeds, components of the variance, and adaptive stopping."""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from shapeline.designs.stopping import AT_THE_CAP, predicted_error
from shapeline.report import criteria
from shapeline.report.elements import HTML, Style, assign_styles, figure, heading, join_parts, note, table
from shapeline.report.experiment import Results, find_stopping_rules, good, scalars
from shapeline.report.figures.dots import training_plot
from shapeline.report.figures.lines import draw_completion
from shapeline.report.formatting import describe_status, ends, format_count, join_names, number, share
from shapeline.statistics import bounds, paired
from shapeline.statistics.recommendation import Recommendation, recommend


def compare_training_seeds(answer: criteria.Evidence, results: Results, styles: Mapping[str, Style]) -> HTML | None:
    """Return means per training seed, the recommendation and the agreement of the rankings; None for one seed."""
    seeds = results.settings.get("training_seeds") or 1
    if seeds < 2:
        return None
    means, values = criteria.training_means(answer, results), criteria.training_values(answer, results)
    if len(means) < 2 or means.shape[1] < 2:
        return note(
            f"The {number(seeds)} training seeds cannot be compared: fewer than two seeds or methods were measured "
            "on the same instances."
        )
    lost = seeds - len(means)
    partly = [entry for entry in answer.values if entry not in means]
    agreement = paired.kendall_w((means if answer.criterion.better == "lower" else -means).to_numpy())
    best = {paired.order(means.loc[[training]], answer.criterion.better)[0] for training in means.index}
    leaders = f"{best.pop()} is best in all" if len(best) == 1 else f"the best differs: {join_names(sorted(best))}"
    return join_parts(
        figure(
            training_plot(answer, means, styles),
            "Means of each method per training seed",
            f"Mean over the same {number(len(values))} instances for {number(len(means))} training seeds, one point "
            "each; filled: the seed of the rest of the page.",
            numbers=means.rename_axis("training").reset_index(),
        ),
        _compare_seeds(answer, results, values[list(means)]),
        note(
            f"Agreement of the training seeds: Kendall's W {agreement:.2f} (1: identical rankings); {leaders}."
            + (f" Left out, without a measurement: {format_count(lost, 'training seed')}." if lost else "")
            + (f" Not ranked, since a training seed lacks them: {join_names(partly)}." if partly else "")
        ),
    )


def recommend_by_seed(answer: criteria.Evidence, results: Results, values: pd.DataFrame) -> dict[str, Recommendation]:
    """Return the recommendation of each training seed; values: (instances, (method, seed))."""
    affordable = _recommendation(answer, results).bounds.index

    def recommend_in(training: int) -> Recommendation:
        own = values.xs(training, axis=1, level=1)
        kept = [entry for entry in own if entry in affordable]
        return recommend(own[kept], answer.evaluations, answer.margin, answer.random, answer.criterion.better)

    return {number(training): recommend_in(training) for training in sorted(values.columns.unique(1))}


def _compare_seeds(answer: criteria.Evidence, results: Results, values: pd.DataFrame) -> HTML | None:
    """Return the recommended method against the best mean per training seed; values: (instances, (method, seed))."""
    each = recommend_by_seed(answer, results, values)
    return _confirm(
        answer, results, each, "training seed", f"per training seed, on {format_count(len(values), 'instance')}"
    )


def changes(answer: criteria.Evidence, results: Results) -> list[str]:
    """Return the baselines and training seeds with a method significantly better than the recommended one."""
    taken, found = _recommendation(answer, results).entry, []
    for name, other in criteria.compare_references(answer, results).items():
        found += _change(_recommendation(other, results), taken, f"with the baseline {name}")
    means = criteria.training_means(answer, results)
    if len(means) > 1 and means.shape[1] > 1:
        seeds = recommend_by_seed(answer, results, criteria.training_values(answer, results)[list(means)])
        found += [one for seed, other in seeds.items() for one in _change(other, taken, f"for training seed {seed}")]
    return found


def _change(advice: Recommendation | None, taken: str | None, where: str) -> list[str]:
    if advice is None or advice.bounds["status"].get(taken) not in ("worse", "plainly worse"):
        return []
    return [f"{advice.bounds.index[0]} is better {where}"]


def _recommendation(answer: criteria.Evidence, results: Results) -> Recommendation:
    """Return the recommendation within the budget, as the page gives it first, or at any cost where nothing fits it."""
    return answer.within(results) or answer.last


def _confirm(
    answer: criteria.Evidence, results: Results, each: Mapping[str, Recommendation], what: str, scope: str
) -> HTML | None:
    """Return the recommended method against the best mean of each variation; None where one lacks the method."""
    taken, limited = _recommendation(answer, results).entry, results.settings.get("budget") is not None
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
                f"difference of {taken}{unit}": number(row["behind"], whole=False),
                "simultaneous 95 % CI": ends(row["low"], row["high"]),
                f"margin{unit}": number(advice.margin, whole=False),
                "non-inferior": describe_status(row["status"]),
            }
        )
    return table(pd.DataFrame(rows), f"Is {taken} non-inferior {scope}?", text=[best])


def compare_baselines(answer: criteria.Evidence, results: Results) -> HTML | None:
    """Return whether the recommendation holds with other baselines; None where there is no other."""
    others = criteria.compare_references(answer, results)
    if not others:
        return None
    judged = {criteria.name_reference(results): answer, **others}
    each = {name: _recommendation(other, results) for name, other in judged.items()}
    return join_parts(
        heading("Sensitivity to the baseline", 4),
        _confirm(answer, results, each, "baseline", "for every baseline"),
        note(
            f"{reference_change(answer, results) or ''} All rows evaluate the same scores, which were computed with "
            "the first baseline, so that row may favour them."
        ),
    )


def reference_change(answer: criteria.Evidence, results: Results) -> str | None:
    """Return in a sentence whether the recommendation changes with the baseline; None where there is no other."""
    taken = _recommendation(answer, results).entry
    others = {
        name: _recommendation(other, results) for name, other in criteria.compare_references(answer, results).items()
    }
    status = {name: advice.bounds["status"].get(taken) for name, advice in others.items()}
    if not others or None in status.values():
        return None
    own = criteria.name_reference(results)
    worse = [name for name in status if status[name] in ("worse", "plainly worse")]
    if worse:
        ahead = join_names([_format_difference(others[name], taken, answer.unit, name) for name in worse])
        return f"⚠ The recommendation changes with the baseline: {taken} is significantly worse than {ahead}."
    if unsure := [name for name in status if status[name] == "undecided"]:
        return f"Sensitivity to the baseline: with {join_names(unsure)} in place of {own}, {taken} is undecided."
    return (
        f"Sensitivity to the baseline: with {join_names(list(status))} in place of {own}, {taken} is non-inferior too."
    )


def _format_difference(advice: Recommendation, taken: str, unit: str, name: str) -> str:
    """Return the best mean with another baseline, and the difference of a method from it."""
    row = advice.bounds.loc[taken]
    return f"{advice.bounds.index[0]} by {ends(row['low'], row['high'])} {unit} (with {name})".replace("  ", " ")


def variances(results: Results) -> HTML | None:
    """Return the shares of the variance between instances, sampling repetitions and training seeds per method."""
    rows = []
    for criterion in criteria.list_criteria(results.by_training_seed):
        measured = results.by_training_seed.get(criterion.metric)
        if measured is None:
            continue
        measured = measured[(measured["statistic"] == criterion.statistic) & measured["x"].isna()]
        if measured.empty:
            continue
        keys = ["repeat", "training"]
        every = measured.pivot_table(
            index="instance", columns=["method", *keys], values="value"
        )  # computing one costs as much as all
        for entry, own in measured.groupby("method"):
            wide = every[entry].dropna() if entry in every else every[:0]
            sizes = [own[key].nunique() for key in keys]
            if not len(wide) or wide.shape[1] != math.prod(sizes):  # a repetition or a seed failed on all instances
                continue
            shares = bounds.variance_shares(wide.to_numpy().reshape(-1, *sizes))
            if not math.isnan(shares["instances"]):
                levels = dict(zip(("repetitions", "training seeds"), map(number, sizes), strict=True))
                names = {"instances": "instances", "repetitions": "repetitions", "training_seeds": "training seeds"}
                parts = {f"between {title}": share(shares[name]) for name, title in names.items()}
                rows.append(
                    {"criterion": criterion.short, "method": entry, "instances": number(len(wide)), **levels, **parts}
                )
                rows[-1]["rest"] = share(shares["rest"])
    if not rows:
        return None
    shown = pd.DataFrame(rows)
    if (shown["training seeds"] == "1").all():
        shown = shown.drop(columns=["training seeds", "between training seeds"])
    return join_parts(
        table(shown, "Components of the variance", text=["method"]),
        note(
            "Analysis of variance: sampling repetitions are nested in instances, and training seeds are crossed with "
            f"them; the rest is their interaction.{_describe_precision(shown)}"
        ),
    )


def _describe_precision(shown: pd.DataFrame) -> str:
    """Return the 95 % interval of a variance between so few training seeds, by chi-square."""
    if "training seeds" not in shown:
        return ""
    from scipy.special import chdtri

    seeds = int(shown["training seeds"].astype(int).max())
    low, high = ((seeds - 1) / chdtri(seeds - 1, tail) for tail in (0.025, 0.975))
    return (
        f" With {number(seeds)} training seeds, the 95 % CI of their variance is {number(low)} to {number(high)} "
        "times its estimate (normal values)."
    )


def stopping_section(results: Results) -> HTML:
    """Return evaluations, error and the fixed budget that does the same; empty where no method stops by its error."""
    entries = find_stopping_rules(results)
    spent = {entry: good(results.scores[entry])["evaluations"].to_numpy() for entry in entries}
    spent = {entry: row for entry, row in spent.items() if len(row)}
    if not spent:
        return HTML("")
    shown = pd.concat([pd.DataFrame({"method": entry, "evaluations": row}) for entry, row in spent.items()])
    return join_parts(
        heading("Adaptive stopping"),
        figure(
            draw_completion(spent, results.d, assign_styles(results)),
            "Share of explanations that reached their error target, against evaluations",
            "Each explanation continues in rounds until its predicted error reaches the target, or its top features "
            "are stable. Dots: means.",
            numbers=shown,
        ),
        table(pd.DataFrame([_row(results, entry, entries[entry]) for entry in spent]), text=["target"]),
        note(_words(results)),
    )


def words(budget: Mapping) -> str:
    """Return the stopping rule in words."""
    error, top = budget.get("error"), budget.get("top")
    parts = []
    if error is not None:
        of_whole = " of |v(N) − v(∅)|" if isinstance(error, str) else ""
        parts.append(f"predicted RMSE ≤ {error}{of_whole}")
    if top is not None:
        parts.append(f"top {top} stable")
    return " and ".join(parts)


def _words(results: Results) -> str:
    text = (
        "At the cap: share of explanations that stopped before the target, with a warning. Fixed budget: the largest "
        "number of evaluations of any explanation; saved: the share of it that adaptive stopping did not spend."
    )
    if results.exact:
        text += (
            " Equal RMSE at: the budget at which the same method with intermediate budgets has that mean error, by "
            "log-log interpolation; a dash where there is none."
        )
    return text


def _row(results: Results, entry: str, budget: Mapping) -> dict:
    rows = good(results.scores[entry])
    spent, d = rows["evaluations"].to_numpy(), results.d
    known = [row for row in rows["standard_error"] if row is not None]
    predicted = np.mean([predicted_error(np.asarray(row)[None])[0] for row in known]) if known else np.nan
    row = {
        "method": entry,
        "target": words(budget),
        "evaluations, mean": number(spent.mean(), 4),
        "median": number(np.median(spent), 4),
        "maximum": number(spent.max()),
        "at the cap": share((rows["warning"] == AT_THE_CAP).mean()),
        f"RMSE, predicted ({results.value_unit})": number(predicted),
    }
    if results.exact:
        errors = scalars(results.metrics.get("error"), "rmse")["mean"]
        row["actual"] = number(errors.get(entry, np.nan))
        row["equal RMSE at"] = find_equal_budget(results, entry, errors.get(entry, np.nan))
    return {**row, "fixed budget": f"{number(spent.max() / d)} d", "saved": share(1 - spent.mean() / spent.max())}


def find_equal_budget(results: Results, entry: str, error: float) -> str:
    """Return the fixed budget at which the same method has this mean RMSE, by a curve of intermediate budgets."""
    curves = results.metrics.get("error")
    method = results.entries[entry]["method"]
    for other, settings in results.entries.items():
        if other == entry or settings["method"] != method or curves is None:
            continue
        curve = curves[(curves["statistic"] == "rmse_by_budget") & (curves["method"] == other)].sort_values("mean")
        if len(curve) > 1 and curve["mean"].min() <= error <= curve["mean"].max() and curve["mean"].min() > 0:
            budget = np.exp(np.interp(np.log(error), np.log(curve["mean"]), np.log(curve["x"])))
            return f"{number(budget)} d ({other})"
    return "–"
