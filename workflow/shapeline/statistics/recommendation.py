"""What to take: the cheapest label that is surely within a margin of the best, by comparisons with the best alone.

The one rule of the page, the index and the claims. It is honest about a best chosen from the same data: every label is
held against every one that could be the true best (multiple comparisons with the best: Hsu 1981; 1996, chapter 4).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from shapeline.statistics.bounds import LEAST_BLOCKS, LEAST_INSTANCES, Moments, enough, largest, moments, student, units
from shapeline.statistics.paired import POWER

MARGIN = 0.05
SCREEN, FINAL = 0.005, 0.045  # of the 5 %: to leave out what is plainly worse, and for what is left


@dataclass(frozen=True)
class Recommendation:
    """What to take, and how sure that is.

    outcome: "recommended" (label is within the margin, though another has the better mean or does as well), "best"
    (every other is shown to be worse), "undecided" (between label, the best mean, and rivals), "alone" (one label) or
    "too few" (instances for a verdict; label is None). safe: whether label is shown to be within the margin. rivals:
    labels that more instances may put in its place: cheaper ones, or where it is not safe any. margin, span: in units
    of the values; span is from the best mean to `ends_at`, the random label or, without one (to_random False), the
    worst. needed: further instances that would decide, as planned; 0 where nothing is open, inf where none would.
    exhausted: whether there are no more. absent: labels measured on fewer than half of the instances. bounds: a row a
    label, the best first: mean, cost, behind (own less best mean, positive is worse), low and high (simultaneous 95 %),
    status ("within", "open", "worse", "plainly worse"); a label is within where high is below the margin, and worse
    where low is above 0.
    """

    outcome: str
    label: str | None
    safe: bool
    rivals: tuple[str, ...]
    margin: float
    span: float
    share: float
    ends_at: str | None
    to_random: bool
    needed: float
    n: int
    available: int | None
    exhausted: bool
    absent: tuple[str, ...]
    bounds: pd.DataFrame

    def sentence(self, unit: str = "", cost: str = "", among: str = "") -> str:
        """The advice in words, the only ones that a page gives; cost: of the label, written behind it; among: said of
        the best and of all others where they are not all that were measured."""
        return _sentence(self, f" {unit}" if unit else "", f" ({cost})" if cost else "", f" {among}" if among else "")


@dataclass(frozen=True)
class _Compared:
    """Losses of the labels that are left as rows of independent units, the best first, and of the end of the span."""

    rows: np.ndarray
    end: np.ndarray
    share: float
    tail: float = FINAL / 2

    def ahead(self, share: float) -> tuple[Moments, np.ndarray]:
        """Of (1 - share) own + share end - other, [own, other]: moments and the quantile for each own, the one that
        all its comparisons hold together at; the diagonal says nothing."""
        k = self.rows.shape[1]
        target = (1 - share) * self.rows + share * self.end[:, None]
        gains = target[:, :, None] - self.rows[:, None, :]
        others = ~np.eye(k, dtype=bool)
        quantiles = [largest(gains[:, own, others[own]], self.tail, both=True) for own in range(k)]
        return moments(gains), np.array(quantiles)


def recommend(
    values: pd.DataFrame,
    costs: Mapping[str, float],
    margin: float = MARGIN,
    random: str | None = None,
    better: str = "lower",
    block: np.ndarray | None = None,
    available: int | None = None,
) -> Recommendation:
    """The cheapest label whose upper 95 % bound of (own - best) lies under the margin.

    values: (instances, labels), repeats averaged, NaN where missing; instances that a label lacks are left out, and a
    label that lacks more than half.
    costs: of each label; unknown is infinite.
    margin: a share of the span from `random` to the best.
    random: the label that the span ends at; without it, the worst, and then a worse label widens the margin.
    better: "lower" or "higher".
    block: (instances,) which share their draws: blocks are the units.
    available: instances that there are.

    Bounds are the ends of two-sided 95 % intervals, simultaneous over comparisons with the best alone: for every label
    i that could be the best, a quantile at which all (other - i) hold together, so that it does not matter which looks
    best in the data. The span is not taken for known: with m the share, (1 - m) i + m random - own must be above 0. Of
    the 5 %, 0.5 leave out labels plainly behind the best mean (Bonferroni, step by step, so that the hopeless do
    not make the rest stricter) by more than the margin, and 4.5 judge the others: a plainly worse label does not change
    the advice. What a page says is `sentence()`. Hsu (1981), Edwards & Hsu (1983), METHODS §13.
    """
    table, blocks, absent = _complete(values, block)
    sign = -1 if better == "higher" else 1
    means = (sign * table).mean().sort_index().sort_values(kind="stable")
    labels = list(means.index)
    rows = units(sign * table[labels].to_numpy(), blocks)
    end = random if random in labels else labels[-1] if labels else None
    unjudged = replace(
        _unjudged(means, sign, costs, margin, end),
        to_random=end == random,
        n=len(table),
        available=available,
        exhausted=available is not None and len(table) >= available,
        absent=absent,
    )
    if len(labels) == 1:
        return replace(unjudged, outcome="alone", label=labels[0])
    size = len(table) / max(len(rows), 1)
    if not labels or not enough(len(rows), block is not None):
        need = LEAST_INSTANCES if block is None else math.ceil(LEAST_BLOCKS * max(size, 1))
        return replace(unjudged, needed=float(need - len(table)))
    at_end = rows[:, labels.index(end)]
    kept = _screened(rows, at_end, margin)
    low, high, status = behind_best(rows, at_end, margin, kept)
    judged = replace(unjudged, bounds=unjudged.bounds.assign(low=low, high=high, status=status))
    return _advice(judged, _Compared(rows[:, kept], at_end, margin), [labels[place] for place in kept], size)


def _unjudged(
    means: pd.Series, sign: int, costs: Mapping[str, float], margin: float, end: str | None
) -> Recommendation:
    """What there is before any label is judged; means: losses, the least first."""
    prices = np.array([costs.get(label, math.nan) for label in means.index], float)
    prices = np.where(np.isnan(prices), np.inf, prices)
    span = float(means[end] - means.iloc[0]) if len(means) else math.nan
    bounds = pd.DataFrame({"mean": sign * means, "cost": prices, "behind": means - means.min()}, index=means.index)
    return Recommendation(
        outcome="too few",
        label=None,
        safe=False,
        rivals=(),
        margin=margin * max(span, 0.0) if len(means) else math.nan,
        span=span,
        share=margin,
        ends_at=end,
        to_random=False,
        needed=0.0,
        n=0,
        available=None,
        exhausted=False,
        absent=(),
        bounds=bounds.assign(low=np.nan, high=np.nan, status="open"),
    )


def _complete(
    values: pd.DataFrame, block: np.ndarray | None
) -> tuple[pd.DataFrame, np.ndarray | None, tuple[str, ...]]:
    """The instances that all labels have, their blocks, and the labels left out since they have fewer than half."""
    values = values.replace([np.inf, -np.inf], np.nan)
    there = values.notna().sum()
    absent = there[(there < there.max() / 2) | (there == 0)].index if len(there) else []
    table = values.drop(columns=absent)
    whole = table.notna().all(axis=1).to_numpy()
    return table[whole], None if block is None else np.asarray(block)[whole], tuple(map(str, absent))


def _screened(rows: np.ndarray, end: np.ndarray, share: float) -> list[int]:
    """The columns that are not plainly more than the margin worse than the first; each step asks less, as fewer are
    left."""
    beyond = moments(rows - ((1 - share) * rows[:, :1] + share * end[:, None]))
    kept = list(range(rows.shape[1]))
    while True:
        low = beyond.ends(_strict(len(kept), len(rows)))[0]
        left = [place for place in kept if place == 0 or not low[place] > 0]
        if left == kept:
            return kept
        kept = left


def behind_best(
    rows: np.ndarray, end: np.ndarray, share: float, kept: list[int] | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Low and high of (own - best) of each label, together 95 %, and its status, as `Recommendation.bounds` has them.

    rows: (units, labels) losses, the least mean first; end: (units,) losses of the end of the span; share: the margin.
    kept: what `_screened` leaves. Those plainly worse have the screen's intervals against the best mean.
    """
    kept = _screened(rows, end, share) if kept is None else kept
    margin = share * max(float(np.mean(end) - np.mean(rows[:, 0])), 0.0)
    low, high = moments(rows - rows[:, :1]).ends(_strict(rows.shape[1], len(rows)))
    status = np.full(rows.shape[1], "plainly worse", dtype=object)
    low[kept], high[kept] = np.maximum(0.0, _behind(_Compared(rows[:, kept], end, share), margin))
    status[kept] = np.where(high[kept] < margin, "within", np.where(low[kept] > 0, "worse", "open"))
    if len(kept) == 1:  # all others are worse
        status[kept] = "within"
    return low, high, status


def _strict(labels: int, count: int) -> np.ndarray:
    """The quantile of t at which one of so many labels is plainly worse than another (Bonferroni, over all pairs)."""
    return student(SCREEN / max(labels * (labels - 1), 1), count)


def _behind(compared: _Compared, margin: float) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of (own - best) of each label that is left (Edwards & Hsu 1983).

    Low: the least against any that may be the best, which those are than which none is surely better. High: the most
    against any, of what own exceeds the other's margin by, plus the margin, so that the error of the span counts.
    """
    k = compared.rows.shape[1]
    if k == 1:
        return np.zeros(1), np.zeros(1)
    own = np.eye(k, dtype=bool)
    within, quantile = compared.ahead(compared.share)
    surely = np.where(own, np.inf, within.ends(quantile[:, None])[0])  # [if best, own]
    plain, quantile = compared.ahead(0.0)  # [if best, own]: the best less own
    lead = np.where(own, np.inf, -plain.ends(quantile[:, None])[1])  # own exceeds the best at least so
    beaten = (np.where(own, -np.inf, plain.ends(quantile[:, None])[0]) > 0).any(1)
    low = np.where(beaten[:, None], np.inf, lead).min(0)
    return np.where(np.isinf(low), 0.0, low), margin - surely.min(0)  # inf: no other may be the best


def _advice(advice: Recommendation, compared: _Compared, kept: list[str], size: float) -> Recommendation:
    """The outcome, from the status of each label; size: instances a unit."""
    bounds = advice.bounds
    best = bounds.index[0]
    price = bounds["cost"]
    within = bounds.index[bounds["status"] == "within"]
    chosen = min(within, key=lambda label: (price[label], bounds["behind"][label])) if len(within) else best
    rivals = [label for label in bounds.index if label != chosen and bounds["status"][label] == "open"]
    others = len(rivals) + len(within) > 1
    if len(within):
        rivals = [label for label in rivals if price[label] < price[chosen]]
    if len(within) and chosen != best:
        outcome = "recommended"
    else:
        outcome = "undecided" if rivals else "recommended" if others else "best"
    pairs = [(kept.index(best if name != best else chosen), kept.index(name)) for name in rivals]
    needed = _further(advice, compared, pairs, size) if rivals else 0.0
    return replace(
        advice, outcome=outcome, label=chosen, safe=len(within) > 0 or not rivals, rivals=tuple(rivals), needed=needed
    )


def _further(advice: Recommendation, compared: _Compared, pairs: list[tuple[int, int]], size: float) -> float:
    """Further instances at which every pair of (leader, rival) would be decided, planned at the margin, power 0.8.

    So many that a label as good as the best is advice within the margin, and one a margin behind is advice worse, four
    times in five; of one that is seen further behind, that so far is advice worse. Where so many are there already, the
    truth lies between, and it takes those at which an interval is no wider than the margin and must leave one of its
    ends.
    """
    from scipy.special import ndtri

    if not advice.margin > 0:
        return math.inf
    gains, quantile = compared.ahead(compared.share)
    means, have, most = compared.rows.mean(0), len(compared.rows), 0.0
    for first, second in pairs:
        spread = max(gains.error[first, second], gains.error[second, first]) * math.sqrt(have)
        top = max(quantile[first], quantile[second])
        planned = ((top + ndtri(POWER)) * spread / max(advice.margin, means[second] - means[first])) ** 2
        most = max(most, planned if planned > have else (2 * top * spread / advice.margin) ** 2)
    return float(max(1, math.ceil((most - have) * size)))


def _sentence(advice: Recommendation, unit: str, cost: str, among: str) -> str:
    """What `Recommendation.sentence` says."""
    if advice.outcome == "alone":
        return f"{advice.label}{cost} is the only one measured{among}."
    if advice.label is None:
        return f"No advice: {advice.n} instances are too few for a verdict; about {advice.needed:.0f} more would do."
    worst = "" if advice.to_random else ", the worst, since no random label was measured"
    margin = (
        f"{advice.margin:.3g}{unit} ({100 * advice.share:.3g} % of the way from the best to {advice.ends_at}{worst})"
    )
    behind = advice.bounds["high"][advice.label]
    near = f"at most {behind:.3g}{unit} worse than the best{among}" if behind > 0 else f"shown to be the best{among}"
    if behind > 0 and advice.label == advice.bounds.index[0]:
        near = f"its mean is the best{among}, and at most {behind:.3g}{unit} behind whichever is truly the best"
    if advice.outcome == "best":
        following = advice.bounds.iloc[1]
        ends = f"{following.name}, by {following['low']:.3g} to {following['high']:.3g}{unit}"
        if following["status"] == "plainly worse":  # by the screen, whose intervals are wider
            ends += f" at {100 * (1 - SCREEN):.3g} %"
        return f"Take {advice.label}{cost}: every other{among} is shown to be worse; the next, {ends}."
    if advice.outcome == "undecided":
        safe = f" {advice.label} is safe: {near}." if advice.safe else ""
        between = f"Undecided between {advice.label}{cost} and {_listed(advice.rivals)}: {_more(advice)}."
        return f"{between}{safe} The margin is {margin}."
    told = f"Take {advice.label}{cost}: {near}; the margin is {margin}."
    if advice.rivals:
        verb = "is" if len(advice.rivals) == 1 else "are"
        told += f" {_listed(advice.rivals)}, cheaper, {verb} undecided: {_more(advice)}."
    return told


def _more(advice: Recommendation) -> str:
    """How many more instances would decide, and whether there are any."""
    if advice.exhausted:
        return f"all {advice.available} instances that there are have been explained"
    if math.isinf(advice.needed):
        return f"{advice.ends_at} is not behind, so there is no margin to decide by"
    about = float(f"{advice.needed:.2g}")
    more = f"about {about:,.0f} more instance{'s' if about != 1 else ''} would decide"
    if advice.available is not None and advice.n + advice.needed > advice.available:
        return f"{more}, and there are only {advice.available - advice.n}"
    return more


def _listed(names: tuple[str, ...]) -> str:
    if len(names) > 4:
        names = (*names[:3], f"{len(names) - 3} others")
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
