"""The largest values that a configuration may hold, so that a typing error is one line and not a full memory."""

import math
import reprlib
from collections.abc import Iterator
from typing import Any

MAX_NAME_LENGTH = 100  # characters of a key, which may become the name of a folder
MAX_TEXT_LENGTH = 4096
MAX_DOCUMENT_LENGTH = 1_000_000
MAX_INTEGER = 2**64 - 1
MAX_DESIGN_BYTES = 16e9  # masks and estimator weights, or permutations
MAX_BUDGET = 1e8  # times d
UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")

_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxdict, _SHORT.maxstring, _SHORT.maxother = 3, 12, 6, 120, 120


def shorten_value(value: Any) -> str:
    """Return the value as Python writes it, shortened where that is long."""
    return _SHORT.repr(value)


def shorten_text(text: str) -> str:
    """Return the text, or its beginning where it is longer than a name may be."""
    return text if len(text) <= MAX_NAME_LENGTH else f"{text[:20]}..."


def find_extremes(raw: Any) -> Iterator[str]:
    """Yield a line for each key and value of a raw configuration that no setting can take."""
    if not isinstance(raw, dict):
        yield f"the configuration is {shorten_value(raw)}; write a mapping of keys"
        return
    waiting: list[tuple[tuple, Any]] = [((), raw)]
    seen: set[int] = set()
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict | list):
            if id(value) in seen:
                continue
            seen.add(id(value))  # an alias of YAML may name it again, or itself
            inside = value.items() if isinstance(value, dict) else enumerate(value)
            waiting += [((*path, key), item) for key, item in inside]
            problems = [_find_key_problem(key) for key in value] if isinstance(value, dict) else []
        else:
            longest = MAX_DOCUMENT_LENGTH if "texts" in path else MAX_TEXT_LENGTH
            problems = [_find_value_problem(value, longest)]
        yield from (f"{format_place(path)}: {problem}" for problem in problems if problem)


def format_place(path: tuple) -> str:
    """Return the keys of a path as a message names them."""
    parts = [shorten_text(key) if isinstance(key, str) else shorten_value(key) for key in path]
    return ".".join(parts) or "the configuration"


def describe_long_name(name: object) -> str:
    """Return the problem of a name that is too long for a folder, or "" where it is not."""
    length = len(str(name))
    return (
        f"a name of {length:,} characters; the longest is {MAX_NAME_LENGTH}; shorten it"
        if length > MAX_NAME_LENGTH
        else ""
    )


def format_bytes(number: float) -> str:
    """Return a number of bytes in the largest unit that it fills."""
    power = min(int(math.log10(max(number, 1)) // 3), len(UNITS) - 1) if math.isfinite(number) else len(UNITS)
    return (
        f"{number / 1000**power:.3g} {UNITS[power]}" if power < len(UNITS) and number < 1e18 else "more than 1,000 PB"
    )


def _find_key_problem(key: object) -> str:
    problem = _find_value_problem(key, MAX_NAME_LENGTH)
    return f"the key {shorten_text(str(key))!r} is {problem}" if problem else ""


def _find_value_problem(value: object, longest: int) -> str:
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        return f"a whole number of {value.bit_length():,} bits; the largest is 2^64 - 1; give a smaller one"
    if isinstance(value, str) and len(value) > longest:
        return f"a text of {len(value):,} characters; the longest is {longest:,}; shorten it"
    if isinstance(value, str) and "\0" in value:
        return "a text with the character U+0000, which no file or name can hold; remove it"
    return ""
