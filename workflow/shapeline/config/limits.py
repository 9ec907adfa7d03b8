"""What a configuration may hold at all, seen before anything is made of it: a line in place of a hang or a full memory.

YAML's aliases let a file of a kilobyte stand for a billion values, and nested brackets for a tree that no recursion
walks; both are looked at here as far as the limits and no further.
"""

import math
import reprlib
from collections.abc import Iterator
from typing import Any

from shapeline.config.source import DEEPEST, LONGEST_NAME, LONGEST_TEXT, MOST_VALUES, shortened

LONGEST_DOCUMENT = 1_000_000
WHOLE = 2**64  # above all whole numbers that anything takes
MOST_TOLD = 20  # mistakes of this kind
MOST_HELD = 16e9  # bytes of a design: masks and readout, or permutations
MOST_BUDGET = 1e8  # times d
UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")

_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxdict, _SHORT.maxstring, _SHORT.maxother = 3, 12, 6, 120, 120


def shown(value: Any) -> str:
    """The value as Python writes it, shortened where that is long."""
    return _SHORT.repr(value)


def excessive(raw: Any) -> Iterator[str]:
    """A line for what is too much of a raw configuration, or can be no setting: values, depth, numbers and texts."""
    if not isinstance(raw, dict):
        yield f"the configuration is {shown(raw)}; it is a mapping of keys"
        return
    waiting: list[tuple[tuple, Any]] = [((), raw)]
    values = told = 0
    while waiting and told < MOST_TOLD:
        path, value = waiting.pop()
        values += 1
        if values > MOST_VALUES:
            yield f"the configuration holds more than {MOST_VALUES:,} values once its aliases (*name) are written out"
            return
        if len(path) > DEEPEST:
            yield f"{place(path[:3])}: more than {DEEPEST} keys and lists inside one another; no key is that deep"
            return
        if isinstance(value, dict | list | tuple):
            inside = value.items() if isinstance(value, dict) else enumerate(value)
            waiting += [((*path, key), item) for key, item in inside]
            problems = [_key_problem(key) for key in value] if isinstance(value, dict) else []
        else:
            problems = [_problem(path, value)]
        lines = [f"{place(path)}: {problem}" for problem in problems if problem]
        yield from lines
        told += len(lines)


def place(path: tuple) -> str:
    """Keys as a line names them, long ones shortened."""
    return ".".join(shortened(str(key)) if isinstance(key, str) else shown(key) for key in path) or "the configuration"


def long_name(name: object) -> str:
    """What is wrong with the length of a name; "" where nothing is."""
    length = len(str(name))
    return f"a name of {length:,} characters; the longest is {LONGEST_NAME}" if length > LONGEST_NAME else ""


def _key_problem(key: object) -> str:
    if isinstance(key, int | str) and (problem := _problem((), key, LONGEST_NAME)):
        return f"the key {shortened(key)!r} is {problem}" if isinstance(key, str) else f"a key is {problem}"
    return ""


def _problem(path: tuple, value: Any, most: int = LONGEST_TEXT) -> str:
    """What keeps a single value from being any setting; "" where nothing does."""
    if isinstance(value, int) and abs(value) >= WHOLE:
        return f"a whole number of {value.bit_length():,} bits; the largest that any key takes is 2^64 - 1"
    if not isinstance(value, str):
        return ""
    most = LONGEST_DOCUMENT if "texts" in path else most
    if len(value) > most:
        return f"a text of {len(value):,} characters; the longest is {most:,}"
    strange = next((char for char in value if char == "\0" or "\ud800" <= char <= "\udfff"), None)
    return f"a text with the character U+{ord(strange):04X}, which no file or name can hold" if strange else ""


def in_words(number: float) -> str:
    """A number of bytes in the largest unit that it fills."""
    power = min(int(math.log10(max(number, 1)) // 3), len(UNITS) - 1) if math.isfinite(number) else len(UNITS)
    return (
        f"{number / 1000**power:.3g} {UNITS[power]}" if power < len(UNITS) and number < 1e18 else "more than 1,000 PB"
    )
