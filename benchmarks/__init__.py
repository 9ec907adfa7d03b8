"""Benchmarks of the package: `python -m benchmarks.run` gives one table; each other script answers one question."""

import sys
import traceback


def _report(kind: type[BaseException], error: BaseException, trace: object) -> None:
    """Print a mistake of the user, such as a missing file, in one line, and any other error with its traceback."""
    from shapeline.errors import ShapelineError

    if issubclass(kind, ShapelineError | OSError):
        print(f"error: {error}", file=sys.stderr)
    else:
        traceback.print_exception(kind, error, trace)


if sys.argv[0] == "-m":  # as Python sets it until it has found the script, so not in an import
    sys.excepthook = _report
