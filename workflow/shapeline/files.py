"""Files that appear whole or not at all, documents that are read with a remedy, and sizes in words."""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from shapeline.errors import ShapelineError

before_any: list[Callable[[], None]] = []  # asked before a file gets its name; a job's is whether its inputs stayed


def may_appear() -> None:
    """Ask what is to be asked before a file gets its name; it raises where the file should not."""
    for check in before_any:
        check()


@contextlib.contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path, renamed to `path` on success; leftovers of killed jobs go first."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    for left_over in path.parent.glob(f".{path.name}.*.tmp"):
        left_over.unlink(missing_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield partial
        may_appear()
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def document(path: str | Path) -> dict:
    """What a card or notebook of the workflow holds; one that is no JSON document is a ShapelineError."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        reason = "" if isinstance(content, dict) else "it holds no keys"
    except ValueError as error:  # of the text or of its coding
        reason = str(error)
    if reason:
        raise ShapelineError(f"{path}: damaged ({reason}); remove it and run again, which re-computes it")
    return content


def format_bytes(number: float) -> str:
    """A number of bytes in words: 3 B, 45.6 MB, 1,234.5 GB."""
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:,.1f} GB"
