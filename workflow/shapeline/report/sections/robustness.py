"""Robustness of a recommendation: training seeds, baselines, randomised models, sampling, and adaptive stopping."""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from shapeline.designs.stopping import CAP_WARNING, predict_error
from shapeline.report import criteria
from shapeline.report.colours import QUIET
from shapeline.report.elements import (
    FOLD,
    HTML,
    WIDTH,
    Style,
    assign_styles,
    figure,
    fold,
    heading,
    join_parts,
    name_rows,
    note,
    styled,
    table,
)
from shapeline.report.experiment import Results, drop_failures, find_stopping_rules, scalars
from shapeline.report.figures.lines import draw_completion
from shapeline.report.formatting import (
    describe_status,
    ends,
    format_count,
    join_names,
    number,
    share,
    two_digit_interval,
)
from shapeline.report.tables import tabulate_means
from shapeline.statistics import bounds, paired
from shapeline.statistics.recommendation import Recommendation, recommend

WORSE = ("worse", "plainly worse")  # statuses in the bounds of a recommendation
PANELS = {
    "rank_correlation": "Rank correlation",
    "rank_correlation_absolute": "Rank correlation of magnitudes",
    "ssim": "Structural similarity of maps",
}
MIN_IDENTICAL = 0.999  # a rank correlation above this means identical scores


def compare_training_seeds(answer: criteria.Evidence, results: Results) -> HTML | None:
    """Return ranks per training seed, the recommendation and the agreement of the rankings; None for one seed."""
    seeds = results.settings.get("training_seeds") or 1
    if seeds < 2:
        return None
    means, values = criteria.average_per_seed(answer, results), criteria.pivot_by_seed(answer, results)
    if len(means) < 2 or means.shape[1] < 2:
        return note(
            f"The {number(seeds)} training seeds cannot be compared: fewer than two seeds or methods were measured "
            "on the same instances."
        )
    lost = seeds - len(means)
    partly = [entry for entry in answer.values if entry not in means]
    remark = f"Left out, without a measurement: {format_count(lost, 'training seed')}. " * bool(lost)
    remark += f"Not ranked, since a training seed lacks them: {join_names(partly)}." if partly else ""
    return _compare_variations(
        answer,
        results,
        means.rename(index=str),
        recommend_by_seed(answer, results, values[list(means)]),
        "training seed",
        f"per training seed, on {format_count(len(values), 'instance')}",
        remark,
    )


def _compare_variations(
    answer: criteria.Evidence,
    results: Results,
    means: pd.DataFrame,
    each: Mapping[str, Recommendation],
    what: str,
    scope: str,
    remark: str,
) -> HTML:
    """Return ranks per variation of the experiment, the recommended method in each, and their agreement.

    means: (variations, methods); each: the recommendation of each variation.
    """
    ranks = paired.ranks(means, answer.criterion.better).T
    ranks = ranks.loc[ranks.mean(axis=1).sort_values(kind="stable").index]
    shown = pd.DataFrame(
        {
            "method": entry,
            **{name: f"{rank:g} ({number(means.loc[name, entry], whole=False)})" for name, rank in row.items()},
        }
        for entry, row in ranks.iterrows()
    )
    is_best = ranks.eq(ranks.min())  # several methods, where they are equal
    best, always = (sorted(ranks.index[where]) for where in (is_best.any(axis=1), is_best.all(axis=1)))
    verb = "is" if len(always) == 1 else "are"
    leaders = f"{join_names(always)} {verb} best in all" if always else f"⚠ the best differs: {join_names(best)}"
    agreement = paired.kendall_w(ranks.T.to_numpy())
    return join_parts(
        figure(
            rank_lines(ranks, assign_styles(results), what),
            f"Rank of every method by {answer.criterion.short}, one column per {what}",
            f"Rank by the mean per {what}, 1 is best. Controls are grey and dashed.",
            numbers=means.T.rename_axis("method").reset_index(),
        ),
        table(shown, f"Rank (mean{f', {answer.unit}' if answer.unit else ''}) per {what}"),
        _tabulate_differences(answer, results, each, what, scope),
        note(
            f"Kendall's W {agreement:.2f} over {len(ranks)} methods (1: identical rankings, 0: no agreement); "
            f"{leaders}. Methods with overlapping intervals may change ranks by chance. {remark}".strip()
        ),
    )


def recommend_by_seed(answer: criteria.Evidence, results: Results, values: pd.DataFrame) -> dict[str, Recommendation]:
    """Return the recommendation of each training seed; values: (instances, (method, seed))."""
    affordable, settings = answer.first(results).bounds.index, (answer.margin, answer.random, answer.criterion.better)
    of_seeds = {seed: values.xs(seed, axis=1, level=1) for seed in sorted(values.columns.unique(1))}
    return {
        number(seed): recommend(table[[entry for entry in table if entry in affordable]], answer.evaluations, *settings)
        for seed, table in of_seeds.items()
    }


def changes(answer: criteria.Evidence, results: Results) -> list[str]:
    """Return the baselines and training seeds with a method significantly better than the recommended one."""
    entry, references = answer.first(results).entry, criteria.compare_references(answer, results)
    advices = {f"with the baseline {name}": other.first(results) for name, other in references.items()}
    means = criteria.average_per_seed(answer, results)
    if len(means) > 1 and means.shape[1] > 1:
        seeds = recommend_by_seed(answer, results, criteria.pivot_by_seed(answer, results)[list(means)])
        advices |= {f"for training seed {seed}": other for seed, other in seeds.items()}
    return [
        f"{advice.bounds.index[0]} is better {where}"
        for where, advice in advices.items()
        if advice is not None and advice.bounds["status"].get(entry) in WORSE
    ]


def _tabulate_differences(
    answer: criteria.Evidence, results: Results, each: Mapping[str, Recommendation], what: str, scope: str
) -> HTML | None:
    """Return the recommended method against the best mean of each variation; None where one lacks the method."""
    entry, limited = answer.first(results).entry, results.settings.get("budget") is not None
    rows, unit = [], f" ({answer.unit})" if answer.unit else ""
    best = "best mean within the budget" if limited and answer.within(results) else "best mean"
    for name, advice in each.items():
        if entry not in advice.bounds.index:
            return None
        row = advice.bounds.loc[entry]
        rows.append(
            {
                what: name,
                best: advice.bounds.index[0],
                f"difference of {entry}{unit}": number(row["behind"], whole=False),
                "simultaneous 95 % CI": ends(row["low"], row["high"]),
                f"margin{unit}": number(advice.margin, whole=False),
                "non-inferior": describe_status(row["status"]),
            }
        )
    return table(pd.DataFrame(rows), f"Is {entry} non-inferior {scope}?", text=[best])


def compare_baselines(answer: criteria.Evidence, results: Results) -> HTML | None:
    """Return whether the recommendation holds with other baselines; None where there is no other."""
    others = criteria.compare_references(answer, results)
    if not others:
        return None
    reference = results.settings.get("reference") or "mean"
    judged = {reference if isinstance(reference, str) else reference["kind"]: answer, **others}
    means = pd.DataFrame({name: other.values.mean() for name, other in judged.items()}).T.dropna(axis=1)
    return join_parts(
        heading("Sensitivity to the baseline", 4),
        _compare_variations(
            answer,
            results,
            means,
            {name: other.first(results) for name, other in judged.items()},
            "baseline",
            "for every baseline",
            "All columns evaluate the same scores, which were computed with the first baseline and may be favoured by "
            "it.",
        ),
    )


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
        for entry, group in measured.groupby("method"):
            wide = every[entry].dropna() if entry in every else every[:0]
            sizes = [group[key].nunique() for key in keys]
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
        "times its estimate, if values are normally distributed."
    )


def stopping_section(results: Results) -> HTML:
    """Return evaluations, error and the fixed budget that does the same; empty where no method stops by its error."""
    entries = find_stopping_rules(results)
    spent = {entry: drop_failures(results.scores[entry])["evaluations"].to_numpy() for entry in entries}
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
        table(pd.DataFrame([_describe_stopping(results, entry, entries[entry]) for entry in spent]), text=["target"]),
        note(_explain_columns(results)),
    )


def describe_stopping_rule(budget: Mapping) -> str:
    error, top = budget.get("error"), budget.get("top")
    parts = []
    if error is not None:
        of_whole = " of |v(N) − v(∅)|" if isinstance(error, str) else ""
        parts.append(f"predicted RMSE ≤ {error}{of_whole}")
    if top is not None:
        parts.append(f"top {top} stable")
    return " and ".join(parts)


def _explain_columns(results: Results) -> str:
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


def _describe_stopping(results: Results, entry: str, budget: Mapping) -> dict:
    rows = drop_failures(results.scores[entry])
    spent, d = rows["evaluations"].to_numpy(), results.d
    known = [row for row in rows["standard_error"] if row is not None]
    predicted = np.mean([predict_error(np.asarray(row)[None])[0] for row in known]) if known else np.nan
    row = {
        "method": entry,
        "target": describe_stopping_rule(budget),
        "evaluations, mean": number(spent.mean(), 4),
        "median": number(np.median(spent), 4),
        "maximum": number(spent.max()),
        "at the cap": share((rows["warning"] == CAP_WARNING).mean()),
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


def sections(results: Results) -> HTML:
    """Return the randomisation test; empty where it was not measured."""
    frame = results.metrics.get("randomisation")
    if frame is None:
        return HTML("")
    title = heading("Sensitivity to the model (randomisation test)")
    return join_parts(title, randomisation_section(frame, assign_styles(results)))


@styled
def rank_lines(ranks: pd.DataFrame, styles: Mapping[str, Style], what: str) -> Figure:
    """Draw a line per method through its ranks; ranks: (methods, variations) from 1."""
    drawing = Figure(figsize=(0.8 * WIDTH, 1.0 + 0.27 * len(ranks)), layout="constrained")
    axes = drawing.subplots()
    across = np.arange(ranks.shape[1])
    heights = ranks.iloc[:, -1].rank(method="first")  # names of equal methods below each other
    for entry, row in ranks.iterrows():
        style = styles[entry]
        axes.plot(across, row, markersize=6.5, clip_on=False, **style.curve)
        end = {"xytext": (9, 0), "textcoords": "offset points", "va": "center", "fontsize": 9, "annotation_clip": False}
        axes.annotate(entry, (across[-1], heights[entry]), color=style.ink, **end)
    axes.set_xticks(across, ranks.columns)
    axes.set_yticks(range(1, len(ranks) + 1))
    axes.set_ylim(len(ranks) + 0.4, 0.6)
    axes.set(xlabel=what, ylabel="rank")
    axes.grid(axis="y", visible=False)
    axes.tick_params(length=0)
    return drawing


def randomisation_section(frame: pd.DataFrame, styles: Mapping[str, Style]) -> HTML:
    """Return the similarity of the scores of trained and randomised models, as figure and table."""
    drawing = randomisation(frame, styles)
    if drawing is None:
        return note("Not available: every method failed on the randomised models, or has constant scores.")
    most = frame["x"].max()
    rows = frame[frame["x"] == most]
    entries = _order_by_similarity(rows, styles)
    shown = tabulate_means(rows, {name: title.lower() for name, title in PANELS.items()}, entries, two_digit_interval)
    counts = rows.groupby("method")["n"].max()
    shown["instances"] = [number(counts[entry]) for entry in entries]
    alike = scalars(rows, "rank_correlation")["mean"]
    blind = [entry for entry in entries if alike.get(entry, 0) > MIN_IDENTICAL]
    remarks = f" {', '.join(blind)}: scores do not depend on the model." if blind else ""
    silent = [entry for entry in styles if entry not in entries]
    if silent:
        remarks += f" {', '.join(silent)}: not compared; failed or constant on every instance."
    return join_parts(
        figure(
            drawing,
            "Similarity of the scores of trained and randomised models, one panel per measure",
            "Mean over instances with 95 % intervals. 0: unrelated to the scores of the trained model; 1: identical. "
            "Solid: most layers randomised, paler: fewer.",
        ),
        table(shown, f"{format_count(most, 'layer')} randomised"),
        note(
            "The last layers of the model, or all, are randomised (Adebayo et al. 2018), and the same class is "
            "explained with the same sampled coalitions. Scores that stay similar do not depend on what the model "
            "learnt." + remarks
        ),
        fold(
            FOLD,
            note(
                "The intervals are over instances, for one randomisation of the weights. A map that is 0 almost "
                "everywhere has a high structural similarity to any other such map."
            ),
        ),
    )


@styled
def randomisation(frame: pd.DataFrame, styles: Mapping[str, Style]) -> Figure | None:
    """Return the similarity to the scores of the trained model: a panel per measure, a row per method."""
    quantities = [name for name in PANELS if (frame["statistic"] == name).any()]
    if not quantities:
        return None
    depths = sorted(frame["x"].unique())
    entries = _order_by_similarity(frame[frame["x"] == depths[-1]], styles)
    drawing = Figure(figsize=(WIDTH, 1.1 + (0.2 + 0.09 * len(depths)) * len(entries)), layout="constrained")
    panels = drawing.subplots(1, len(quantities), sharey=True, squeeze=False)[0]
    offsets = np.linspace(0.26, -0.26, len(depths)) if len(depths) > 1 else [0.0]
    for axes, statistic in zip(panels, quantities, strict=True):
        for depth, offset, strength in zip(depths, offsets, np.linspace(0.35, 1, len(depths) + 1)[1:], strict=True):
            rows = scalars(frame[frame["x"] == depth], statistic)
            for index, entry in enumerate(entries):
                if entry in rows.index:
                    row, style, at = rows.loc[entry], styles[entry], index + offset
                    bar = {"color": style.colour, "linewidth": 2, "solid_capstyle": "butt"}
                    axes.plot([row["low"], row["high"]], [at, at], alpha=strength, **bar)
                    axes.plot(row["mean"], at, alpha=strength, markersize=5.5, **style.dot)
        axes.axvline(0, color=QUIET, linestyle=(0, (1, 2)), linewidth=1.1, zorder=0)
        axes.set(title=PANELS[statistic], xlabel="with the trained model's scores")
        axes.set_xlim(min(-0.25, axes.get_xlim()[0]), 1.05)
        axes.grid(axis="y", linewidth=0.4)
        axes.tick_params(axis="y", length=0)
    if len(depths) > 1:
        panels[0].set_ylabel(
            f"from bottom to top: {', '.join(format_count(depth, 'layer') for depth in depths)}", fontsize=8.5
        )
    name_rows(panels[0], entries)
    return drawing


def _order_by_similarity(rows: pd.DataFrame, styles: Mapping[str, Style]) -> list[str]:
    means, present = scalars(rows, "rank_correlation")["mean"], set(rows["method"])
    return sorted((entry for entry in styles if entry in present), key=lambda entry: abs(means.get(entry, np.inf)))
