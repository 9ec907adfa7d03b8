"""An Explanation in words: one screen of text."""

from collections import Counter

import numpy as np

from shapeline.methods.registry import METHODS

MOST = 12  # features or instances that are named
TOP = 4  # features of each of several instances that have their own
WIDE = 24  # letters of a feature's value
GAME, ONE = "game", "value"  # the value that is a set function's, and the name of its only output
VALUES = {
    "log_probability": "log-probability",
    "expected_log_probability": "expected log-probability",
    "log_odds": "log-odds",
    "margin": "log-odds, averaged over the reference rows",
    "prediction": "the model's prediction",
    GAME: "value of the coalition",
}


def told(explanation) -> str:
    """What it is of, what it cost, and the largest scores."""
    n = len(explanation)
    lines = [headline(explanation), *(f"  {name:<10}{text}" for name, text in facts(explanation).items())]
    if n == 1:
        lines += ["", *_one(explanation)]
    elif n and explanation._shares_names():
        table = explanation.summary()
        shown = table[:MOST]
        wide = max(map(len, shown.index))
        lines += ["", f"  {'':<{wide}}  mean |score|  mean score"]
        for name, (size, mean) in zip(shown.index, shown.to_numpy(), strict=True):
            lines.append(f"  {name:<{wide}}  {size:>12.4g}  {mean:>+10.4g}")
        lines += _more(len(table) - len(shown), "feature")
    else:
        lines += ["", *(_short(explanation, place) for place in range(min(n, MOST))), *_more(n - MOST, "instance")]
    return "\n".join(lines)


def headline(explanation) -> str:
    """Of how many instances and features, and by which method."""
    n = len(explanation)
    sizes = {len(names) for names in explanation.about.names}
    each = f"{next(iter(sizes))}" if len(sizes) == 1 else f"{min(sizes, default=0)} to {max(sizes, default=0)}"
    kinds = {features.kind for features in explanation.about.features if features is not None}
    kind = next(iter(kinds)).replace("_", " ") if len(kinds) == 1 else "feature"
    plural = "" if each == "1" else "es" if kind.endswith("ch") else "s"
    noun = "output" if explanation.about.value == GAME else "instance"
    return f"Explanation by {name_of(explanation)} of {n:,} {noun}{'' if n == 1 else 's'}, {each} {kind}{plural}"


def name_of(explanation) -> str:
    return explanation.about.method.get("method", "an unknown method")


def facts(explanation) -> dict[str, str]:
    """What was explained, what stood for absent features, what it cost, and what failed."""
    about, cost = explanation.about, explanation.cost
    of = sorted(set(explanation.target_names))
    listed = f"{', '.join(of[:3])}{', ...' if len(of) > 3 else ''}"
    targets = f" of {listed}" if len(of) == 1 else f" of the class explained: {listed}"
    if about.value == GAME:
        targets = f": {listed}"
    targets = "" if about.value == "prediction" or about.classes == (ONE,) else targets
    each = "" if about.value == GAME else " an instance"
    asked = f", each of {about.rows} rows" if about.rows > 1 and cost["evaluations"] else ""
    said = {
        "value": f"{VALUES.get(about.value, about.value)}{targets}",
        "absent": about.reference,
        "cost": f"{cost['evaluations']:,.6g} evaluations{each}{asked}; {cost['seconds']:.2g} s together",
    }
    failed = [
        error or status for error, status in zip(explanation.error, explanation.status, strict=True) if status != "ok"
    ]
    if failed:
        said["failed"] = f"{len(failed)} of {len(explanation)}: {failed[0]}"
    if flags := flagged(explanation):
        said["warning"] = "; ".join(flags)
    if METHODS.get(name_of(explanation)) is not None and METHODS[name_of(explanation)].unsigned:
        said["sign"] = "none: scores are sizes"
    return {name: text for name, text in said.items() if text}


def flagged(explanation) -> list[str]:
    """What a method flags of its explanations, and of how many."""
    counts = Counter(flag for flag in explanation.flag if flag)
    return [f"{count} of {len(explanation)}: {flag}" for flag, count in counts.items()]


def labelled(explanation, place: int) -> list[str]:
    """The features of an instance by name, with the value of a column."""
    values, names = explanation._values(), explanation.about.names[place]
    if values is None:
        return list(names)
    return [f"{name} = {_short_value(value)}" for name, value in zip(names, values.iloc[place], strict=True)]


def _short_value(value: object) -> str:
    if value is None or value != value:
        return "missing"
    text = f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)
    return text if len(text) <= WIDE else f"{text[: WIDE - 1]}…"


def ends(explanation, place: int) -> str:
    """The values of the model on the whole input, and where all is absent."""
    full, empty = explanation.value_full[place], explanation.value_empty[place]
    absent = "of no players" if explanation.about.value == GAME else "where all is absent"
    return f"{explanation.target_names[place]}: {full:.4g}, and {empty:.4g} {absent}"


def _one(explanation) -> list[str]:
    _, scores, half = explanation.of(0)
    names = labelled(explanation, 0)
    order = np.argsort(-np.abs(np.nan_to_num(scores)), kind="stable")[:MOST]
    wide = max((len(names[place]) for place in order), default=0)
    lines = [f"  {ends(explanation, 0)}"]
    for place in order:
        within = "" if half is None or np.isnan(half[place]) else f" ± {half[place]:.2g}"
        lines.append(f"  {names[place]:<{wide}}  {scores[place]:>+10.4g}{within}")
    return lines + _more(len(names) - len(order), "smaller feature")


def _short(explanation, place: int) -> str:
    names, scores, _ = explanation.of(place)
    order = np.argsort(-np.abs(np.nan_to_num(scores)), kind="stable")[:TOP]
    top = ", ".join(f"{names[one]} {scores[one]:+.2g}" for one in order)
    return f"  {explanation.about.instances[place]}  {ends(explanation, place)}; {top}"


def _more(count: int, noun: str) -> list[str]:
    return [f"  and {count:,} {noun}{'' if count == 1 else 's'} more"] if count > 0 else []
