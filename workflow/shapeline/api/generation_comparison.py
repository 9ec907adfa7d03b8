"""Compare methods on the answers of a language model in one call, `shapeline.compare_generation`."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from shapeline.api import comparison, drawing
from shapeline.api.choice import AUTO, check_margin, check_method
from shapeline.api.comparison import CONTROL, PRINTED, Comparison
from shapeline.api.formatting import count_steps
from shapeline.api.generation import PromptExplanation, explain_generation, parse_method
from shapeline.designs.design import check_integer
from shapeline.errors import ShapelineError, rename_place, reported_extras
from shapeline.generation import estimates
from shapeline.methods.settings import MethodSettings, parse
from shapeline.metrics.error import correlate, rank_means
from shapeline.seeds import seed_of
from shapeline.statistics.paired import pivot_by_method
from shapeline.statistics.recommendation import MARGIN, recommend

WHERE = "compare_generation"
DEFAULT_METHODS = ("gp_shapley", "kernel_shap", "sample_shapley", "context_cite", "leave_one_out")
COLUMNS = PRINTED | {
    "coverage": "coverage",
    "top_k_drop": "top-3 drop",
    "datamodeling": "datamodeling score",
    "precision": "precision",
    "recall": "recall",
}
Found = dict[str, list[PromptExplanation]]  # by method, prompts in order, and the repeats of each


@dataclass(frozen=True, eq=False, repr=False)
class PromptComparison(Comparison):
    """A `Comparison` of prompts; explanations: a list of PromptExplanation per method; exact: one, or None."""

    @property
    def every(self) -> dict[str, list[PromptExplanation]]:
        """The explanations by method, with the exact values where known for every prompt."""
        exact = {} if "exact" in self.explanations or None in self.exact else {"exact": self.exact}
        return {**self.explanations, **exact}

    def to_html(self, path: str | Path | None = None) -> str | None:
        """Return a page with the table, the recommendation and the explorer of all prompts, or write it to a file."""
        from shapeline.api import plots

        leading = self.explanations[self.recommended or next(iter(self.explanations))]
        coloured = "".join(each.plot("text")._repr_html_() for each in leading)
        about = leading[0].unit, estimates.UNITLESS_METHODS, coloured
        explored = plots.explore_prompts(self.every, self.recommended, *about)
        return drawing.save_page("Comparison of methods", drawing.comparison_head(self) + explored, path)

    def _repr_html_(self) -> str:
        return drawing.comparison_page(self, explore=False)


@reported_extras(WHERE)
def compare_generation(
    model: object,
    prompts: object,
    tokenizer: object = None,
    methods: Sequence[str] | Mapping[str, str | dict] = DEFAULT_METHODS,
    evaluations: int = 32,
    *,
    support: Sequence[Sequence[int]] | None = None,
    repeats: int = 1,
    exact_parts: int = 8,
    margin: float = MARGIN,
    seed: int = 0,
    **options: object,
) -> PromptComparison:
    """Explain the answers to the same prompts by several methods at equal evaluations, and recommend one.

    Parameters
    ----------
    model, prompts, tokenizer
        As in `explain_generation`, like further arguments: context, target, contrast, features, removal, value
        ("sum" or "mean"), ...
    methods : list of str, or mapping
        Names, or a mapping of names to a method or {"method": name, ...parameters}; "random" is always added.
    evaluations : int
        Coalitions of each method and prompt. Coalitions that methods share are evaluated once.
    support : list of lists of int, optional
        The numbers of the supporting parts of each prompt, for precision and recall.
    repeats : int
        Samples of each method and prompt.
    exact_parts : int
        Exact values, from all coalitions, are computed of prompts with at most so many parts (at most 12).
    margin : float
        Share of the range between the best method and random, within which the cheapest is recommended.

    Returns
    -------
    PromptComparison
        table: a row per method with evaluations, seconds (of the method and its evaluations at the model's mean rate),
        error (RMSE to exact values, nats), rank correlation, coverage of 95 % intervals, deletion and insertion AUC
        (nats, lower and higher is better), top-3 drop, linear datamodeling score, precision, recall, and agreement.
        The criterion is the error where all prompts have exact values, else the deletion AUC.

    Raises
    ------
    ShapelineError
        Where an input is wrong or all methods fail; one line.
    """
    for name, number, least in (("repeats", repeats, 1), ("exact_parts", exact_parts, 1)):
        check_integer(WHERE, name, number, least)
    if options.get("value", "sum") not in ("sum", "mean"):
        raise ShapelineError(f"{WHERE}: value is {options['value']!r}; give 'sum' or 'mean'.")
    if wrong := sorted({"method", "budget"} & set(options)):
        raise ShapelineError(f"{WHERE}: '{wrong[0]}' is not an argument; give methods= and evaluations=.")
    check_margin(WHERE, margin)
    entries = comparison.read_entries(methods)
    for name, _ in entries.values():
        check_method(name, WHERE, (AUTO, *estimates.ALIASES))
    with rename_place(CONTROL, WHERE):
        first = explain_generation(
            model, prompts, tokenizer, method=CONTROL, evaluations=evaluations, seed=seed, **options
        )
    first = [first] if isinstance(first, PromptExplanation) else first
    support = _check_support(support, first)
    result, notes = _explain_prompts(first, entries, evaluations, repeats, seed)
    least = min(exact_parts, estimates.MAX_EXACT_PARTS)
    shapley = parse({"method": "shapley"})
    exact = [
        _estimate(one, shapley, 2 ** len(one), 0) if len(one) <= least else None for one in count_steps("exact", first)
    ]
    measured = _measure_prompts(result, exact, support, repeats, seed)
    n_missing = sum(one is None for one in exact)
    if n_missing:
        notes.append(f"{n_missing} of {len(first)} prompts have more than {least} parts: no error is measured on them.")
    agreement = comparison.tabulate_agreement(list(result), functools.partial(_correlate, result, repeats))
    table = _tabulate(result, measured, agreement)
    by = "rmse" if not n_missing and "rmse" in set(measured["statistic"]) else "deletion_auc"
    values = pivot_by_method(measured, by)
    advice = recommend(values, table["evaluations"].to_dict(), margin, CONTROL) if set(values) - {CONTROL} else None
    first_repeats = {entry: each[::repeats] for entry, each in result.items()}
    return PromptComparison(first_repeats, exact, table, agreement, advice, PRINTED[by], values, tuple(notes))


def _check_support(support: Sequence | None, first: list[PromptExplanation]) -> list:
    """Return the supporting parts of each prompt, None where unknown."""
    if support is None:
        return [None] * len(first)
    given = list(support)
    if len(given) != len(first):
        raise ShapelineError(
            f"{WHERE}: support has {len(given)} entries for {len(first)} prompts; give one per prompt."
        )
    for number, (one, parts) in enumerate(zip(first, given, strict=True)):
        with rename_place("citation", f"{WHERE}: prompt {number}"):
            estimates.measure_citation(one.totals, parts)
    return given


def _explain_prompts(
    first: list[PromptExplanation], entries: Mapping, evaluations: int, repeats: int, seed: int
) -> tuple[Found, list[str]]:
    """Return the explanations of all prompts by each method, and a note per failing method."""
    result, notes = {}, []
    for entry, (name, parameters) in entries.items():
        try:
            settings = [parse_method(name, parameters, evaluations, len(one)) for one in first]
            result[entry] = [
                _estimate(one, settings[index], evaluations, seed_of(seed, entry, repeat, index))
                for index, one in enumerate(count_steps(entry, first))
                for repeat in range(repeats)
            ]
        except ShapelineError as failure:
            notes.append(f"{entry} failed: {failure}")
    if not set(result) - {CONTROL}:
        raise ShapelineError(f"{WHERE}: all methods failed ({'; '.join(notes)}); choose others")
    return result, notes


def _estimate(one: PromptExplanation, method: MethodSettings, evaluations: int, seed: int) -> PromptExplanation:
    """Return the same prompt explained by another method, on the same game."""
    return replace(one, **vars(estimates.estimate(one.game, method, evaluations, one.value, seed)))


def _measure_prompts(found: Found, exact: list, support: list, repeats: int, seed: int) -> pd.DataFrame:
    """Return the measures in long format: method, instance, repeat, statistic, x, value."""
    rows = []
    for entry, explanations in found.items():
        for number, one in enumerate(count_steps(f"measuring {entry}", explanations)):
            index, repeat = divmod(number, repeats)
            for statistic, value in estimates.measure(one, exact[index], support[index], seed_of(seed, index)).items():
                rows.append((entry, index, repeat, statistic, np.nan, value))
    return pd.DataFrame(rows, columns=["method", "instance", "repeat", "statistic", "x", "value"])


def _correlate(found: Found, repeats: int, one: str, other: str) -> float:
    """Return the mean rank correlation over prompts of two methods."""
    pairs = zip(found[one][::repeats], found[other][::repeats], strict=True)
    ranks = [[rank_means(each.totals[None]) for each in pair] for pair in pairs]
    values = [correlate(*pair)[0] for pair in ranks]
    return np.nanmean(values) if np.isfinite(values).any() else np.nan


def _tabulate(found: Found, measured: pd.DataFrame, agreement: pd.DataFrame) -> pd.DataFrame:
    """Return a row per method."""
    means = {entry: [np.mean([getattr(one, name) for one in each]) for name in COSTS] for entry, each in found.items()}
    table = pd.DataFrame.from_dict(means, orient="index", columns=list(COSTS))
    return comparison.add_quality(table, measured, COLUMNS, agreement)


COSTS = ("evaluations", "seconds")
