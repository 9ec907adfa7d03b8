"""The one exception a user is meant to see, and the nearest valid name that goes into it."""

import difflib
from collections.abc import Iterable


class ShapelineError(Exception):
    """A mistake or a failure the user can act on; its text is one line: where, what, and the remedy."""


def nearest(name: object, choices: Iterable[str]) -> str:
    """The closest valid name as a hint (" Did you mean 'x'?"), or the whole list when none is close."""
    names = sorted(str(choice) for choice in choices)
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.6)
    return f" Did you mean '{close[0]}'?" if close else f" Allowed: {', '.join(names)}."


class MethodFailure(ShapelineError):
    """A method cannot explain an instance for a declared reason; it becomes a row with `status` instead of an end."""

    def __init__(self, status: str, message: str):
        super().__init__(message)
        self.status = status
