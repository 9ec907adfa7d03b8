"""Evaluations that designs make, kept beside Snakemake's records: a design is counted by building it, and what builds
it takes as long to import as a run is planned in."""

import contextlib
import functools
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from shapeline.files import atomic
from shapeline.seeds import digest

FILE = Path(".snakemake/evaluations.json")
PACKAGE = Path(__file__).parent.parent


def kept(settings: str, shape: tuple[int, ...], count: Callable[[str, tuple[int, ...]], int]) -> int:
    """The count of these settings on a shape: of an earlier run, by the same code, or made now."""
    key = digest({"settings": settings, "shape": shape, "code": _code()})
    counts = _read()
    if not isinstance(counts.get(key), int):
        counts[key] = count(settings, shape)
        if FILE.parent.is_dir():
            with contextlib.suppress(OSError), atomic(FILE) as partial:  # the next run counts again
                partial.write_text(json.dumps(counts), encoding="utf-8")
    return counts[key]


def _read() -> dict:
    try:
        counts = json.loads(FILE.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return counts if isinstance(counts, dict) else {}


@functools.cache
def _code() -> str:
    """A digest of the files that build designs."""
    files = [*sorted((PACKAGE / "designs").glob("*.py")), PACKAGE / "graphs.py", PACKAGE / "methods/settings.py"]
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()
