"""Checks of the metadata of score and measurement files against the requested settings and each other."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from shapeline import scores
from shapeline.errors import ShapelineError
from shapeline.games.execution import BFLOAT16_TOLERANCE

TOLERANCE = 1e-4  # permitted difference of end values between two methods, relative to 1 + their size
END_COLUMNS = ("value_full", "value_empty")
KEYS = ["instance", "target", "training_seed", "randomised_layers"]


def check(path: str | Path, **expected: object) -> None:
    """Raise ShapelineError where a file's metadata differ from `expected`, by name; None is not checked."""
    metadata = scores.metadata(path)
    for name, value in expected.items():
        if value is not None and metadata.get(name) != value:
            kind = {"settings_digest": "settings", "label": "method"}.get(name, name)
            raise ShapelineError(
                f"{path}: is of {kind} {metadata.get(name)!r} and stands where that of {value!r} "
                f"belongs; make it anew: rm {path} && snakemake --cores all"
            )


def check_scores(paths: Iterable[str | Path], experiment: str, digests: Mapping[str, str] | None = None) -> None:
    """Check score files, whose entry and shard are those of their path; digests: of the settings, by entry."""
    for path in map(Path, paths):
        entry, matched = path.parent.name, scores.SHARD_NAME.fullmatch(path.name)
        shard = f"{matched[1]} of {matched[2]}" if matched else None
        expected = (digests or {}).get(entry)
        check(path, experiment=experiment, label=entry, shard=shard, settings_digest=expected)


def parse_digests(text: str) -> dict[str, str]:
    """Return digests by entry from the single word of a rule's resource (workflow/jobs.py)."""
    return dict(part.split(":") for part in text.split(",") if part)


def check_measured(paths: Iterable[str | Path], experiment: str, digests: Mapping[str, str]) -> None:
    """Raise ShapelineError for measurements of another experiment, method than their path's, or digest."""
    for path in map(Path, paths):
        entry = path.stem if path.parent.name == "measured" else None
        expected = digests["model" if entry else "scores"]
        check(path, experiment=experiment, label=entry, settings_digest=expected)


def check_ends(paths: Iterable[str | Path]) -> None:
    """Raise ShapelineError where two methods differ on one model and instance: by weights, code or devices."""
    result = [_read_ends(path) for path in filter(Path.is_file, map(Path, paths))]
    if not result:
        return
    rows = pd.concat(result, ignore_index=True)
    for column in END_COLUMNS:
        available = rows[rows[column].notna()]
        keys = [*KEYS, *(["features"] if column == "value_empty" else [])]
        first = available.groupby(keys, sort=False, dropna=False)[[column, "file"]].transform("first")
        differs = (available[column] - first[column]).abs() > available["tolerance"] * (1 + first[column].abs())
        if differs.any():
            mine, known = available[differs].iloc[0], first[differs].iloc[0]
            raise ShapelineError(
                f"{known['file']} and {mine['file']} are of other models: {column} of instance {mine['instance']} is "
                f"{known[column]:.6g} and {mine[column]:.6g} (other weights, code, packages or devices); make both "
                f"anew: rm {known['file']} {mine['file']} && snakemake --cores all"
            )


def _read_ends(path: Path) -> pd.DataFrame:
    """Return both end values of a file's successful instances, NaN where missing, and their keys."""
    settings = scores.metadata(path).get("settings", {})
    rows = scores.read_table(path, [*KEYS, *END_COLUMNS, "status"])
    rows = rows[rows["status"] == "ok"].drop_duplicates(KEYS).drop(columns="status")
    return rows.replace([np.inf, -np.inf], np.nan).assign(
        file=str(path),
        features=json.dumps(settings.get("method", {}).get("features"), sort_keys=True),
        tolerance=BFLOAT16_TOLERANCE if settings.get("precision") == "bfloat16" else TOLERANCE,
    )
