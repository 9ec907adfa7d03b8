"""Claims with three outcomes: what an interval leaves on one side holds or does not, and what it spans stays open."""

from dataclasses import dataclass

import pandas as pd

from shapeline.errors import ShapelineError
from shapeline.statistics.bounds import enough, intervals

HOLDS, FAILS, OPEN = "holds", "does not hold", "open"


@dataclass(frozen=True)
class Claim:
    """A verdict with its table: a row a rival, mean, low, high (together 95 %), verdict, and n."""

    verdict: str
    table: pd.DataFrame


def verdict(low: float, high: float, claimed: str = "above", bar: float = 0.0) -> str:
    """Whether an interval says what is claimed of its number: "holds", "does not hold" or "open".

    low, high: of the interval, NaN where there is none (then it is open). claimed: "above" or "below" the bar. An end
    that lies on the bar leaves it open, but an interval that is nothing but the bar itself is not beyond it.
    """
    if claimed not in ("above", "below"):
        raise ShapelineError(f"verdict: claimed is {claimed!r}; give above or below.")
    if claimed == "below":
        low, high, bar = -high, -low, -bar
    return HOLDS if low > bar else FAILS if high < bar or low == high == bar else OPEN


def ahead_of(values: pd.DataFrame, first: str, better: str = "lower", block=None) -> Claim:
    """Whether a label is better than each other one of a table (instances, labels), on the same instances.

    Intervals of the leads hold together (`intervals(together=True)`), so a claim about several rivals holds where every
    lead is above 0, does not where one is below, and is open between or with too few instances.
    """
    kept = values.dropna()
    block = None if block is None else pd.Series(block, values.index)[kept.index].to_numpy()
    sign = 1 if better == "higher" else -1
    leads = kept.drop(columns=first).rsub(kept[first], axis=0).mul(sign)
    table = intervals(leads, block, together=True)
    count = int(table["units"].min()) if len(table) else 0
    told = enough(count, block is not None)
    table["verdict"] = [verdict(row.low, row.high) if told else OPEN for row in table.itertuples()]
    verdicts = set(table["verdict"]) or {OPEN}
    return Claim(FAILS if FAILS in verdicts else OPEN if OPEN in verdicts else HOLDS, table.drop(columns="units"))
