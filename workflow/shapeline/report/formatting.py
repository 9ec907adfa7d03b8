"""Formatting of numbers and settings as text."""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd


def number(value: float | None, digits: int = 3, whole: bool = True, decimals: int | None = None) -> str:
    """Return a number with separated thousands and a minus sign, a dash for None.

    digits: significant digits; whole: an integer has no decimals; decimals: a fixed number of them, in place of both.
    """
    if value is None or not np.isfinite(value):
        return "–"
    if decimals is not None:
        text = f"{value:,.{decimals}f}"
        text = text.lstrip("-") if not float(text.replace(",", "")) else text
    elif value == 0 or (whole and float(value).is_integer()):
        text = f"{int(value):,}"
    elif abs(value) < 1e-3:
        text = f"{value:.1e}".replace("e-0", "e-")
    else:
        text = f"{value:,.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"
    return text.replace("-", "−")


def interval(row: Mapping, decimals: int | None = None) -> str:
    """Return 'mean (low to high)' of a row, by default with the decimals of the largest; else only the mean."""
    values = [row[key] for key in ("mean", "low", "high")]
    largest = max((abs(value) for value in values if np.isfinite(value)), default=0.0)
    if decimals is None and largest >= 1e-3:
        decimals = max(0, 2 - math.floor(math.log10(largest)))
    mean, low, high = (number(value, whole=False, decimals=decimals) for value in values)
    return f"{mean} ({low} to {high})" if np.isfinite(values[1:]).all() else mean


two_digits = functools.partial(number, decimals=2)  # of correlations and shares
two_digit_interval = functools.partial(interval, decimals=2)


def format_evaluations(value: float | None) -> str:
    """Return evaluations, integers or a mean: 177.5, since 177.500 looks like thousands."""
    if value is None or not np.isfinite(value) or 0 < value < 1:  # a gradient where the baseline has many rows
        return number(value, 2)
    return f"{value:,.1f}".removesuffix(".0")


def format_count(value: float | None, noun: str) -> str:
    """Return '1 evaluation', '2 evaluations'."""
    return f"{format_evaluations(value)} {noun}{'' if value == 1 else 's'}"


def explain_unit(unit: str) -> str:
    """Return the meaning of a score's unit in a sentence; "" where it is self-explanatory."""
    if unit != "nats":
        return ""
    return "Nats are natural logarithms: a score of +0.69 doubles the probability (or odds), −0.69 halves it."


def share(value: float | None) -> str:
    """Return a fraction as a percentage, 0 % and 100 % only for exactly 0 and 1; a dash for None."""
    if value is None or not np.isfinite(value):
        return "–"
    if 0 < value < 0.001:
        return "< 0.1 %"
    if 0.999 < value < 1:
        return "> 99.9 %"
    return f"{100 * value:.1f} %".replace(".0 %", " %").replace("-", "−")


def format_lists(values: Mapping | pd.Series | None, first: bool = True) -> str:
    """Return 'name: item, name: item', or 'name in item, name in item' with first=False."""
    items = {} if values is None else dict(values)
    parts = ((name, number(item) if isinstance(item, int | np.integer) else item) for name, item in items.items())
    return ", ".join(f"{name}: {item}" if first else f"{name} in {item}" for name, item in parts)


def plain(value: object) -> str:
    """Return settings as text: 'name value, name [value, value]'."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {plain(item)}" for name, item in value.items() if item not in (None, "", [], {}))
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(plain, value))}]"
    if isinstance(value, float):
        return str(value).removesuffix(".0")
    return "" if value is None else str(value)


def merge_values(mappings: Iterable[Mapping | None]) -> str:
    """Return the values of several mappings by name, in one line: 'name value, name value or another'."""
    values: dict[str, set[str]] = {}
    for each in mappings:
        for name, value in (each or {}).items():
            values.setdefault(name, set()).add(plain(value))
    return ", ".join(f"{name} {' or '.join(sorted(values[name]))}" for name in sorted(values))


def probability(p: float) -> str:
    if not np.isfinite(p):
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def join_names(names: Sequence[str]) -> str:
    """Return names as a list in a sentence."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def ends(low: float, high: float) -> str:
    """Return an interval as text; a dash where there is none."""
    return f"{number(low, whole=False)} to {number(high, whole=False)}" if np.isfinite(high) else "–"


def describe_status(status: str) -> str:
    """Return whether a method is non-inferior, by its status in the bounds of a recommendation."""
    return {"within": "yes", "undecided": "undecided"}.get(status, "no")
