"""Terminal output: an Explanation as text, and a progress bar for long calls."""

import contextlib
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pandas as pd
from tqdm import tqdm

from shapeline.errors import shorten_name
from shapeline.methods.registry import METHODS
from shapeline.report.formatting import format_count

MAX_ROWS = 12  # features or instances listed
MAX_COLUMNS = 5  # classes or outputs whose scores are listed
MAX_TOP = 4  # features per instance where instances have different features
MAX_WIDTH = 24  # characters of a feature's value
GAME, ONE = "game", "value"  # the value of a set function, and the name of its only output
VALUES = {
    None: "none: scores without a model",
    "log_probability": "log-probability",
    "expected_log_probability": "expected log-probability",
    "log_odds": "log-odds",
    "margin": "margin (log-odds averaged over the background rows)",
    "centred_logit": "centred logit (log-probability minus its mean over classes, averaged over the background rows)",
    "prediction": "the model's prediction",
    GAME: "value of the coalition",
}
MIN_SECONDS = 2.0  # seconds; shorter calls show none


def format_explanation(explanation) -> str:
    """Return the method, the value, the baseline, the cost and the largest scores as text."""
    n = len(explanation)
    lines = [headline(explanation), *(f"  {name:<10}{text}" for name, text in facts(explanation).items()), ""]
    if n == 1:
        lines += _format_one(explanation)
    elif n and explanation._shares_names():
        lines += _format_table(explanation)
    else:
        lines += [_format_row(explanation, index) for index in range(min(n, MAX_ROWS))]
        lines += _note_more(n - MAX_ROWS, "instance")
    return "\n".join(lines)


def _format_table(explanation) -> list[str]:
    """Return the mean scores of features, per class where instances have several; of a game with few outputs the scores
    per output, which share no unit."""
    table, targets = explanation.summary(), explanation._list_mean_targets()
    names = ["mean score" if target is None else format_value(target) for target in targets]
    is_apart = explanation.about.value == GAME and 1 < len(names) <= MAX_COLUMNS
    if len(names) > 1 and explanation.about.value != GAME:
        names[0] = f"mean score: {names[0]}"
    table.columns = ["mean |score|", *names]
    shown = table.iloc[:MAX_ROWS, int(is_apart) : MAX_COLUMNS + 1].rename(index=shorten_name)
    wide = max(map(len, shown.index))
    lines = [f"  {'':<{wide}}" + "".join(f"  {name:>10}" for name in shown)]
    signs = ["" if index == 0 and not is_apart else "+" for index in range(shown.shape[1])]
    widths = [max(10, len(name)) for name in shown]
    for name, row in zip(shown.index, round_noise(shown.to_numpy()), strict=True):
        cells = [format_number(score, sign=sign) for score, sign in zip(row, signs, strict=True)]
        scores = "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        lines.append(f"  {name:<{wide}}{scores}")
    lines += _note_more(len(table) - len(shown), _name_scored(explanation))
    return lines + [f"  .summary() has the scores of all {len(names)}"] * (len(names) > MAX_COLUMNS)


def headline(explanation) -> str:
    """Return the method and the numbers of instances and features."""
    sizes = {len(names) for names in explanation.about.names} or {math.prod(explanation.scores.shape[1:])}
    each = f"{next(iter(sizes))}" if len(sizes) == 1 else f"{min(sizes)} to {max(sizes)}"
    each_features = [features for features in explanation.about.features if features is not None]
    kinds = {features.kind for features in each_features}
    kind = next(iter(kinds)).replace("_", " ") if len(kinds) == 1 else "feature"
    kind = "cell" if kind == "pixel" and each_features[0].names else kind  # of series
    plural = "" if each == "1" else "es" if kind.endswith("ch") else "s"
    return f"Explanation by {name_of(explanation)} of {_count_rows(explanation)}, {each} {kind}{plural}"


def _count_rows(explanation) -> str:
    """Return the number of instances, or of outputs of a game, with its noun."""
    noun = "output" if explanation.about.value == GAME else "instance"
    count = int(explanation.input_numbers.max(initial=-1)) + 1
    rows = f" ({len(explanation):,} explanations)" if count < len(explanation) else ""
    return f"{format_count(count, noun)}{rows}"


def name_rows(explanation) -> list[str]:
    """Return a distinct name per row: the instance, its position if repeated, and the class if it has several."""
    names, numbers = [str(one) for one in explanation.about.instances], explanation.input_numbers
    positions = explanation.about.inputs if len(explanation.about.inputs) else range(len(names))
    shared = Counter(name for name, _ in {*zip(names, numbers.tolist(), strict=True)})
    rows, counts = Counter(numbers.tolist()), Counter()
    result = []
    for index, name in enumerate(names):
        text = name if shared[name] == 1 else f"{name} (row {positions[index]})"
        text += f", {explanation.target_names[index]}" if rows[numbers[index]] > 1 else ""
        counts[text] += 1
        result.append(text if counts[text] == 1 else f"{text} ({counts[text]})")
    return result


def name_of(explanation) -> str:
    return explanation.about.method.get("method", "an unknown method")


def name_value(explanation) -> str | None:
    return VALUES.get(explanation.about.value, explanation.about.value)


def name_unit(explanation) -> str | None:
    """Return the unit of the scores, which for gradient methods is the output's, whatever the value."""
    value, method = name_value(explanation), METHODS.get(name_of(explanation))
    output = VALUES["prediction" if explanation.about.value == "prediction" else "log_probability"]
    return value if method is None else method.name_unit(value, output, none="no unit")


def format_cost(explanation) -> str:
    """Return '120 evaluations', '1 gradient': the cost per instance."""
    method = METHODS.get(name_of(explanation))
    noun = "gradient" if method is not None and method.gradients else "evaluation"
    return format_count(explanation.cost["evaluations"], noun)


def facts(explanation) -> dict[str, str]:
    """Return the explained value, the baseline, the cost, failures and warnings, by name."""
    about, cost = explanation.about, explanation.cost
    of = sorted(set(explanation.target_names))
    listed = f"{', '.join(of[:3])}{', ...' if len(of) > 3 else ''}"
    words = ":" if about.value == GAME else " of" if len(of) == 1 else " of the explained class:"
    targets = "" if not of or about.value in ("prediction", None) or about.classes == (ONE,) else f"{words} {listed}"
    each = "" if about.value == GAME else " per instance"
    method = METHODS.get(name_of(explanation))
    several = about.rows > 1 and getattr(method, "family", None) != "gradients"  # whose passes are of one row each
    averaged = f", each averaged over {about.rows} background rows" if several and cost["evaluations"] else ""
    texts = {
        "value": f"{VALUES.get(about.value, about.value)}{targets}",
        "baseline": about.reference,
        "cost": f"{format_cost(explanation)}{each}{averaged}; {cost['seconds']:.2g} s in total",
    }
    outcomes = zip(explanation.error, explanation.status, strict=True)
    if failed := [error or status for error, status in outcomes if status != "ok"]:
        texts["failed"] = f"{len(failed)} of {_count_rows(explanation)}: {failed[0]}"
    if flags := list_warnings(explanation):
        texts["warning"] = "; ".join(flags)
    if explanation.interaction_values is not None:
        texts["scores"] = "main effects; .interactions() has those of pairs"
    if method is not None and method.unsigned:
        texts["sign"] = "none: scores are magnitudes"
    if method is not None and method.unit == "output" and about.value not in ("prediction", "log_probability"):
        texts["unit"] = f"{name_unit(explanation)}: scores are not contributions to the value"
    return {name: text for name, text in texts.items() if text}


def list_warnings(explanation) -> list[str]:
    """Return each warning of the method with its number of instances."""
    counts = Counter(flag for flag in explanation.warning if flag)
    return [f"{count} of {_count_rows(explanation)}: {flag}" for flag, count in counts.items()]


def label_features(explanation, index: int) -> list[str]:
    """Return the feature names of an instance, with their values where features are columns."""
    values, names = explanation._values(), explanation.about.names[index]
    if values is None:
        return list(map(shorten_name, names))
    pairs = zip(names, values.iloc[index], strict=True)
    return [f"{shorten_name(name)} = {format_value(value)}" for name, value in pairs]


def format_value(value: object) -> str:
    """Return the value of a feature in at most MAX_WIDTH characters."""
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return "missing"
    if isinstance(value, pd.Timestamp) and value == value.normalize():
        value = value.strftime("%Y-%m-%d")
    text = format_number(value).replace(",", "") if isinstance(value, float | np.floating) else shorten_name(value)
    return text if len(text) <= MAX_WIDTH else f"{text[: MAX_WIDTH - 1]}…"


def round_noise(scores: np.ndarray) -> np.ndarray:
    """Return the scores with rounding errors (below 1e-12 of the largest) replaced by 0."""
    sizes = np.abs(np.nan_to_num(scores))
    return np.where(sizes < 1e-12 * sizes.max(initial=0), 0.0, scores)


def format_number(value: float, digits: int = 4, sign: str = "") -> str:
    """Return a number with this many significant digits, without a power of ten below a billion."""
    is_whole = 10 ** min(digits, 3) <= abs(value) < 1e9
    return f"{value:{sign}{',.0f' if is_whole else f'.{digits}g'}}"


def format_title(explanation, index: int) -> str:
    """Return the name of an instance, its target, the value of the full input and the base value."""
    full, empty = (format_number(value[index]) for value in (explanation.value_full, explanation.value_empty))
    target = explanation.target_names[index]
    if explanation.about.value == GAME:
        return f"{target} {full}, base value {empty} (no players)"
    if explanation.about.value is None:
        of = f": class {target}" if explanation.about.classes else ""
        return f"instance {name_rows(explanation)[index]}{of}"
    of = "" if explanation.about.value == "prediction" else f" of class {target.removeprefix('class ')}"
    value = VALUES.get(explanation.about.value, "").partition(" (")[0] if of else ""
    return f"instance {name_rows(explanation)[index]}: {value or 'prediction'} {full}{of}, base value {empty}"


def find_second(explanation, index: int) -> int | None:
    """Return the first word after special tokens between words, as in a pair of sentences."""
    features = explanation.about.features[index] if explanation.about.features else None
    if features is None:
        return None
    of_words = np.flatnonzero(features.cells >= 0)
    behind = of_words[1:][np.diff(of_words) > 1]
    return int(features.cells[behind[0]]) if len(behind) else None


def _format_one(explanation) -> list[str]:
    _, scores, half = explanation.of(0)
    if np.isnan(scores).all():
        return ["  no scores"]  # the line of failures has the reason
    scores = round_noise(scores)
    names = label_features(explanation, 0)
    order = np.argsort(-np.abs(np.nan_to_num(scores)), kind="stable")[:MAX_ROWS]
    wide = max((len(names[index]) for index in order), default=0)
    lines = [f"  {format_title(explanation, 0)}"]
    for index in order:
        within = "" if half is None or np.isnan(half[index]) else f" ± {format_number(half[index], 2)}"
        lines.append(f"  {names[index]:<{wide}}  {format_number(scores[index], sign='+'):>10}{within}")
    return lines + _note_more(len(names) - len(order), _name_scored(explanation))


def _format_row(explanation, index: int) -> str:
    names, scores, _ = explanation.of(index)
    order = np.argsort(-np.abs(np.nan_to_num(scores)), kind="stable")[:MAX_TOP]
    rounded = round_noise(scores)
    top = ", ".join(f"{shorten_name(names[one])} {format_number(rounded[one], 2, '+')}" for one in order)
    return f"  {format_title(explanation, index)}; {top}"


def _name_scored(explanation) -> str:
    """Return what has a score: a player of a game, or a feature."""
    return "player" if explanation.about.value == GAME else "feature"


def _note_more(count: int, noun: str) -> list[str]:
    return [f"  and {format_count(count, f'more {noun}')}"] if count > 0 else []


@contextlib.contextmanager
def show_progress(label: str, count: int) -> Iterator[Callable[[int], Callable[[int, int], None] | None]]:
    """Yield a function from a group's size to its progress callback, with a bar over `count` explanations."""
    if not is_watched():
        yield lambda size: None
        return
    done = 0

    def tell(size: int) -> Callable[[int, int], None]:
        nonlocal done
        before, done = done, done + size

        def report(explained: int, evaluations: int) -> None:
            shown.set_postfix_str(f"{evaluations:,} evaluations", refresh=False)
            shown.update(before + explained - shown.n)

        return report

    with tqdm(total=count, desc=label, unit="", delay=MIN_SECONDS, leave=False) as shown:
        yield tell


def count_steps(label: str, steps: Sequence) -> Iterable:
    """Return the steps, with a bar where a terminal or notebook shows it."""
    return tqdm(steps, label, unit="", delay=MIN_SECONDS, leave=False, disable=not is_watched())


def is_watched() -> bool:
    """Return whether messages go to a terminal or to a notebook's cell."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return sys.stderr.isatty() or type(shell).__name__ == "ZMQInteractiveShell"
