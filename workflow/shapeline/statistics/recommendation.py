"""Recommend the cheapest method that is non-inferior to the best one, by multiple comparisons with the best.

The report pages, the index and the claims use this rule. It accounts for the choice of the best method from the same
data: every method is compared with every one that could be the true best (Hsu 1981; 1996, chapter 4).
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from shapeline.statistics.bounds import MIN_INSTANCES, Moments, is_enough, max_t, moments, t_quantile
from shapeline.statistics.paired import POWER

MARGIN = 0.05
EQUAL_COST_RATIO = 1.05  # costs within this ratio are equal, since each method rounds a budget differently
SCREEN_LEVEL, FINAL_LEVEL = 0.005, 0.045  # error rates of the screen for plainly worse methods, and of the comparison


@dataclass(frozen=True)
class Recommendation:
    """The recommended method and its evidence.

    outcome: "recommended" (entry is non-inferior to the best, though another has the better mean or does as well),
    "best" (all others are significantly worse), "undecided" (between entry, the best mean, and rivals), "alone" (one
    method) or "too few" (instances; entry is None). safe: whether entry is non-inferior to the best. rivals: methods
    that more instances may recommend instead: cheaper ones, or any where it is not safe. margin, span: in units of the
    values; span is the range from the best mean to `ends_at`, random attribution or, without it (to_random False), the
    worst. needed: additional instances for a decision; 0 if decided, inf where none suffice. absent: methods measured
    on fewer than half of the instances. has_budget: whether a method has a budget to raise. bounds: a row per method,
    the best first: mean, cost, behind (own minus best mean, positive is worse), low and high (simultaneous 95 % CI),
    status ("within", "undecided", "worse", "plainly worse"): "within" where high is below the margin, "worse" where low
    is above 0.
    """

    margin: float
    span: float
    share: float
    ends_at: str | None
    to_random: bool
    n: int
    available: int | None
    absent: tuple[str, ...]
    bounds: pd.DataFrame
    outcome: str = "too few"
    entry: str | None = None
    safe: bool = False
    rivals: tuple[str, ...] = ()
    needed: float = 0.0
    has_budget: bool = True

    @property
    def exhausted(self) -> bool:
        """Whether no instances are left."""
        return self.available is not None and self.n >= self.available

    @property
    def is_random(self) -> bool:
        """Whether random attribution is the best, so that no method can be recommended."""
        return self.to_random and self.entry == self.ends_at and self.outcome in ("best", "recommended")

    def decision(self, cost: str = "", among: str = "") -> str:
        """Return only the decision, "Recommended: gp_shapley (64 evaluations)", without a full stop.

        cost: of the method, written after its name. among: the compared methods, as in "within the budget".
        """
        cost, among = f" ({cost})" if cost else "", f" {among}" if among else ""
        if self.outcome == "alone":
            return f"{self.entry}{cost} is the only method measured{among}"
        if self.entry is None:
            return "No recommendation"
        if self.outcome == "undecided":
            return f"Undecided between {self.entry}{cost} and {_enumerate(self.rivals)}"
        if self.is_random:
            return f"No method{among} is better than random attribution"
        return f"Recommended: {self.entry}{cost}"

    def reason(self, unit: str = "", among: str = "") -> str:
        """Return the reason, and the next step where undecided, without a full stop; "" where only one was measured."""
        unit, among = f" {unit}" if unit else "", f" {among}" if among else ""
        if self.outcome == "alone":
            return ""
        if self.entry is None:
            count = f"{self.n} instance{' is' if self.n == 1 else 's are'}"
            return f"{count} too few; explain at least {self.needed:.0f} more"
        if self.outcome == "best":
            following = self.bounds.iloc[1]
            ends = f"by {_format(following['low'])} to {_format(following['high'])}{unit} (simultaneous 95 % CI)"
            return f"every other method{among} is significantly worse; the next is {following.name}, {ends}"
        if self.outcome == "undecided":
            range_text = f"The margin is {_describe_margin(self, unit)}"
            if self.safe:
                range_text = f"{self.entry} can be used: {_state_bound(self, unit, among)}"
            return f"{_describe_further_instances(self)}. {range_text}"
        reason = _state_bound(self, unit, among)
        if self.rivals:
            verb = "is" if len(self.rivals) == 1 else "are"
            cheaper = f"{_enumerate(self.rivals)} {verb} cheaper and not significantly different"
            reason += f". {cheaper}: {_describe_further_instances(self)}"
        return reason

    def sentence(self, unit: str = "", cost: str = "") -> str:
        """Return the decision and its reason, as on every page, table and printed comparison."""
        reason = self.reason(unit)
        return f"{self.decision(cost)}{f': {reason}' if reason else ''}."


@dataclass(frozen=True)
class _Compared:
    """Losses of the remaining methods as rows of independent units, the best first, and of the end of the span."""

    rows: np.ndarray
    end: np.ndarray
    share: float
    tail: float = FINAL_LEVEL / 2

    def compute_leads(self, share: float) -> tuple[Moments, np.ndarray]:
        """Return moments of (1 - share) own + share end - other, [own, other], and the quantile for each own."""
        k = self.rows.shape[1]
        target = self.rows + share * (self.end[:, None] - self.rows)  # equal values remain equal
        gains = target[:, :, None] - self.rows[:, None, :]
        others = ~np.eye(k, dtype=bool)
        quantiles = [max_t(gains[:, method, others[method]], self.tail, both=True) for method in range(k)]
        return moments(gains), np.array(quantiles)


def recommend(
    values: pd.DataFrame,
    costs: Mapping[str, float],
    margin: float = MARGIN,
    random: str | None = None,
    better: str = "lower",
    available: int | None = None,
    fixed: Collection[str] = (),
) -> Recommendation:
    """Return the cheapest method whose upper simultaneous 95 % bound of (own - best) is below the margin.

    Costs within 5 % of each other are equal, and the better mean is recommended.

    values: (instances, methods), repeats averaged, NaN where missing; instances that a method lacks are left out, and
    so is a method that lacks more than half.
    costs: per method; unknown is infinite.
    margin: a share of the range between the best method and `random`.
    random: the method at the end of the range; without it the worst, so that a worse method widens the margin.
    better: "lower" or "higher".
    available: number of instances of the data.
    fixed: methods without a budget.

    Bounds are the ends of two-sided 95 % intervals, simultaneous over comparisons with the best: for every method
    i that could be the best, a quantile for which all (other - i) hold jointly, regardless of which method looks
    best in the data. The range is estimated too: with m the share, (1 - m) i + m random - own must be above 0. Of the
    5 % error, 0.5 removes methods that are behind the best mean by more than the margin (Bonferroni, stepwise, so that
    poor methods do not widen the others' intervals), and 4.5 is for the others: plainly worse methods do not change the
    recommendation. Pages print `sentence()`. Hsu (1981), Edwards & Hsu (1983).
    """
    table, absent = _select_complete(values)
    sign = -1 if better == "higher" else 1
    means = (sign * table).mean().sort_index()
    prices = np.array([costs.get(entry, math.nan) for entry in means.index], float)
    # Of equal means the cheapest method is the best; unknown costs and random attribution are last.
    order = np.lexsort((prices, means.index == random, means))
    means, prices = means.iloc[order], prices[order]
    entries = list(means.index)
    rows = sign * table[entries].to_numpy(float)
    end = random if random in entries else entries[-1] if entries else None
    span = float(means[end] - means.iloc[0]) if entries else math.nan
    bounds = pd.DataFrame({"mean": sign * means, "cost": np.where(np.isnan(prices), np.inf, prices)}, index=entries)
    bounds = bounds.assign(behind=means - means.min(), low=np.nan, high=np.nan, status="undecided")
    width = margin * max(span, 0.0) if entries else math.nan
    unjudged = Recommendation(width, span, margin, end, end == random, len(table), available, absent, bounds)
    unjudged = replace(unjudged, has_budget=not {*entries, random} <= {*fixed, random})
    if len(entries) == 1:
        return replace(unjudged, outcome="alone", entry=entries[0])
    if not entries or not is_enough(len(rows)):
        return replace(unjudged, needed=float(MIN_INSTANCES - len(table)))
    at_end = rows[:, entries.index(end)]
    kept = _screen_out(rows, at_end, margin)
    low, high, status = bound_behind_best(rows, at_end, margin, kept)
    judged = replace(unjudged, bounds=unjudged.bounds.assign(low=low, high=high, status=status))
    return _decide(judged, _Compared(rows[:, kept], at_end, margin), [entries[index] for index in kept])


def _select_complete(values: pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Return the instances that all methods have, and the omitted methods, with fewer than half."""
    values = values.replace([np.inf, -np.inf], np.nan)
    counts = values.notna().sum()
    absent = counts[(counts < counts.max() / 2) | (counts == 0)].index if len(counts) else []
    table = values.drop(columns=absent)
    return table.dropna(), tuple(map(str, absent))


def _screen_out(rows: np.ndarray, end: np.ndarray, share: float) -> list[int]:
    """Return the columns that are not significantly behind the first by more than the margin, stepwise."""
    excess = moments(rows - (rows[:, :1] + share * (end[:, None] - rows[:, :1])))
    kept = list(range(rows.shape[1]))
    while True:
        low = excess.ends(_screen_t(len(kept), len(rows)))[0]
        remaining = [index for index in kept if index == 0 or not low[index] > 0]
        if remaining == kept:
            return kept
        kept = remaining


def bound_behind_best(
    rows: np.ndarray, end: np.ndarray, share: float, kept: list[int] | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return simultaneous 95 % bounds of (own - best) per method, and its status, as in `Recommendation.bounds`.

    rows: (units, methods) losses, the least mean first; end: (units,) losses of the end of the span; share: the margin.
    kept: the columns that `_screen_out` keeps. The others have the screen's intervals against the best mean.
    """
    kept = _screen_out(rows, end, share) if kept is None else kept
    margin = share * max(float(np.mean(end) - np.mean(rows[:, 0])), 0.0)
    low, high = moments(rows - rows[:, :1]).ends(_screen_t(rows.shape[1], len(rows)))
    status = np.full(rows.shape[1], "plainly worse", dtype=object)
    low[kept], high[kept] = np.maximum(0.0, _bound_differences(_Compared(rows[:, kept], end, share), margin))
    status[kept] = np.where(high[kept] < margin, "within", np.where(low[kept] > 0, "worse", "undecided"))
    if len(kept) == 1:  # all others are worse
        status[kept] = "within"
    return low, high, status


def _screen_t(entries: int, count: int) -> np.ndarray:
    """Return the quantile of t for the screen of `entries` methods (Bonferroni, over all pairs)."""
    return t_quantile(SCREEN_LEVEL / max(entries * (entries - 1), 1), count)


def _bound_differences(compared: _Compared, margin: float) -> tuple[np.ndarray, np.ndarray]:
    """Return bounds of (own - best) of each remaining method (Edwards & Hsu 1983).

    Low: the minimum over methods that may be the best, those than which none is significantly better. High: the
    maximum over all of own minus the other's margin, plus the margin, which includes the error of the range.
    """
    k = compared.rows.shape[1]
    if k == 1:
        return np.zeros(1), np.zeros(1)
    same = np.eye(k, dtype=bool)
    leads, quantile = compared.compute_leads(compared.share)
    lower = np.where(same, np.inf, leads.ends(quantile[:, None])[0])  # [if best, own]
    plain, quantile = compared.compute_leads(0.0)  # [if best, own]: the best minus own
    lead = np.where(same, np.inf, -plain.ends(quantile[:, None])[1])  # lower bound of own minus best
    beaten = (np.where(same, -np.inf, plain.ends(quantile[:, None])[0]) > 0).any(1)
    low = np.where(beaten[:, None], np.inf, lead).min(0)
    return np.where(np.isinf(low), 0.0, low), margin - lower.min(0)  # inf: no other may be the best


def _decide(advice: Recommendation, compared: _Compared, kept: list[str]) -> Recommendation:
    """Return the outcome from the status of each method."""
    bounds = advice.bounds
    best = bounds.index[0]
    price = bounds["cost"]
    within = bounds.index[bounds["status"] == "within"]
    cheapest = [entry for entry in within if price[entry] <= EQUAL_COST_RATIO * price[within].min()]
    chosen = min(cheapest, key=lambda entry: (bounds["behind"][entry], price[entry]), default=best)
    rivals = [entry for entry in bounds.index if entry != chosen and bounds["status"][entry] == "undecided"]
    others = len(rivals) + len(within) > 1
    if len(within):
        rivals = [entry for entry in rivals if EQUAL_COST_RATIO * price[entry] < price[chosen]]
    if len(within) and chosen != best:
        outcome = "recommended"
    else:
        outcome = "undecided" if rivals else "recommended" if others else "best"
    pairs = [(kept.index(best if name != best else chosen), kept.index(name)) for name in rivals]
    needed = _count_further(advice, compared, pairs) if rivals else 0.0
    return replace(
        advice, outcome=outcome, entry=chosen, safe=len(within) > 0 or not rivals, rivals=tuple(rivals), needed=needed
    )


def _count_further(advice: Recommendation, compared: _Compared, pairs: list[tuple[int, int]]) -> float:
    """Return the number of further instances that decide every pair (leader, rival) at the margin, with power 0.8.

    If the data suffice for that already, return the number at which an interval is no wider than the margin.
    """
    from scipy.special import ndtri

    if not advice.margin > 0:
        return math.inf
    gains, quantile = compared.compute_leads(compared.share)
    means, have, most = compared.rows.mean(0), len(compared.rows), 0.0
    for first, second in pairs:
        deviation = max(gains.error[first, second], gains.error[second, first]) * math.sqrt(have)
        top = max(quantile[first], quantile[second])
        planned = ((top + ndtri(POWER)) * deviation / max(advice.margin, means[second] - means[first])) ** 2
        most = max(most, planned if planned > have else (2 * top * deviation / advice.margin) ** 2)
    return float(max(1, math.ceil(most - have)))


def _state_bound(advice: Recommendation, unit: str, among: str) -> str:
    """Return the bound of the chosen method's difference to the best."""
    behind = advice.bounds["high"][advice.entry]
    margin = f"margin {_describe_margin(advice, unit)}"
    if not behind > 0:
        return f"no other method{among} is better (upper simultaneous 95 % bound 0{unit}; {margin})"
    reason = f"non-inferior to the best method{among}, at most {_format(behind)}{unit} worse"
    if advice.entry == advice.bounds.index[0]:
        reason = f"it has the best mean{among}, and no other method is better by more than {_format(behind)}{unit}"
    return f"{reason} (upper simultaneous 95 % bound; {margin})"


def _format(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _describe_margin(advice: Recommendation, unit: str) -> str:
    """Return the margin and the range of which it is a share."""
    end = "random attribution" if advice.to_random else f"{advice.ends_at}, the worst, since random was not measured"
    span = f"{100 * advice.share:.3g} % of the range between the best method and {end}"
    return f"{_format(advice.margin)}{unit}, {span}"


def _describe_further_instances(advice: Recommendation) -> str:
    """Return the number of further instances to explain, or the advice if none are left."""
    instead = f"{'raise the budget, ' if advice.has_budget else ''}widen the margin, or choose the cheaper method"
    if advice.exhausted:
        return f"all {advice.available} instances are explained; {instead}"
    if math.isinf(advice.needed):
        remedy = "raise the budget" if advice.has_budget else "add other methods"
        return f"no method is better than {advice.ends_at}, so there is no margin; {remedy}"
    about = float(f"{advice.needed:.2g}")
    more = f"explain about {about:,.0f} more instance{'s' if about != 1 else ''} ({advice.n + about:,.0f} in total)"
    if advice.available is not None and advice.n + advice.needed > advice.available:
        return f"{more} to decide; only {advice.available - advice.n} are left, so {instead}"
    return f"{more} to decide"


def _enumerate(names: tuple[str, ...]) -> str:
    """Return names as an English list, at most four of them."""
    if len(names) > 4:
        names = (*names[:3], f"{len(names) - 3} others")
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
