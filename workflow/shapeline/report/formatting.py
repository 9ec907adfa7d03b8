"""Formatting of numbers and settings as text."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd


def number(value: float | None, digits: int = 3, whole: bool = True) -> str:
    """Return a number with significant digits, separated thousands, a minus sign, a dash for None; whole: counts."""
    if value is None or not np.isfinite(value):
        return "–"
    if value == 0 or (whole and float(value).is_integer()):
        text = f"{int(value):,}"
    elif abs(value) < 1e-3:
        text = f"{value:.1e}".replace("e-0", "e-")
    else:
        text = f"{value:,.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"
    return text.replace("-", "−")


def interval(row: Mapping) -> str:
    """Return 'mean (low to high)' of a row with the decimals of the largest; only the mean without an interval."""
    values = [row[key] for key in ("mean", "low", "high")]
    largest = max((abs(value) for value in values if np.isfinite(value)), default=0.0)
    mean, low, high = (align_columns(value, largest) for value in values)
    return f"{mean} ({low} to {high})" if np.isfinite(values[1:]).all() else mean


def two_digits(value: float) -> str:
    """Return a number with two decimals, as for correlations."""
    if not np.isfinite(value):
        return "–"
    text = f"{value:.2f}"
    return text.replace("-", "−") if float(text) else "0.00"


def two_digit_interval(row: Mapping) -> str:
    """Return 'mean (low to high)' with two decimals; only the mean without an interval."""
    mean, low, high = (two_digits(row[key]) for key in ("mean", "low", "high"))
    return f"{mean} ({low} to {high})" if np.isfinite([row["low"], row["high"]]).all() else mean


def align_columns(value: float, largest: float) -> str:
    """Return a number with the decimals of the largest at three digits, so that a column is aligned."""
    if not np.isfinite(value) or largest < 1e-3:
        return number(value, whole=False)
    text = f"{value:,.{max(0, 2 - math.floor(math.log10(largest)))}f}"
    return text.lstrip("-") if not float(text.replace(",", "")) else text.replace("-", "−")


def format_evaluations(value: float | None) -> str:
    """Return evaluations, integers or a mean: 177.5, since 177.500 looks like thousands."""
    return number(value) if value is None or not np.isfinite(value) else f"{value:,.1f}".removesuffix(".0")


def format_count(value: float | None, noun: str) -> str:
    """Return '1 evaluation', '2 evaluations'."""
    return f"{format_evaluations(value)} {noun}{'' if value == 1 else 's'}"


def explain_unit(unit: str) -> str:
    """Return the meaning of a score's unit in a sentence; "" where it is self-explanatory."""
    if unit != "nats":
        return ""
    return "Nats are natural logarithms: a score of +0.69 doubles the probability (or odds), −0.69 halves it."


def share(value: float) -> str:
    """Return a fraction as a percentage: 0 % and 100 % only for exactly 0 and 1."""
    if not np.isfinite(value):
        return "–"
    if 0 < value < 0.001:
        return "< 0.1 %"
    if 0.999 < value < 1:
        return "> 99.9 %"
    return f"{100 * value:.1f} %".replace(".0 %", " %").replace("-", "−")


def format_lists(values: Mapping | pd.Series | None, first: bool = True) -> str:
    """Return 'name: item, name: item', or 'item name, item name' with first=False."""
    items = {} if values is None else dict(values)
    parts = ((name, number(item) if isinstance(item, int | np.integer) else item) for name, item in items.items())
    return ", ".join(f"{name}: {item}" if first else f"{item} {name}" for name, item in parts)


def plain(value: object) -> str:
    """Return settings as text: 'name value, name value'."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {plain(item)}" for name, item in value.items() if item not in (None, "", [], {}))
    if isinstance(value, list | tuple):
        return " × ".join(plain(item) for item in value)
    return "" if value is None else str(value)


def merge_values(mappings: Iterable[Mapping | None]) -> str:
    """Return the values of several mappings by name, in one line: 'name value, name value or another'."""
    values: dict[str, set[str]] = {}
    for each in mappings:
        for name, value in (each or {}).items():
            values.setdefault(name, set()).add(plain(value))
    return ", ".join(f"{name} {' or '.join(sorted(values[name]))}" for name in sorted(values))


def probability(p: float) -> str:
    """Return a p-value as text."""
    if not np.isfinite(p):
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def equals(p: float) -> str:
    return probability(p) if p < 0.001 else f"= {probability(p)}"


def join_names(names: Sequence[str]) -> str:
    """Return names as a list in a sentence."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def ends(low: float, high: float) -> str:
    """Return an interval as text; a dash where there is none."""
    return f"{number(low, whole=False)} to {number(high, whole=False)}" if np.isfinite(high) else "–"


def describe_status(status: str) -> str:
    """Return whether a method is non-inferior, by its status in the bounds of a recommendation."""
    return {"within": "yes", "undecided": "undecided"}.get(status, "no")
