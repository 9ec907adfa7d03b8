"""Scores of other programs: a Parquet or CSV file with one row per instance, measured as those of any method."""

import functools
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from shapeline.datasets import table_file
from shapeline.datasets.csv_file import PLAIN, CsvFormat
from shapeline.datasets.loading import Dataset
from shapeline.datasets.sources import expand
from shapeline.errors import MethodFailure, ShapelineError
from shapeline.games.features import Features
from shapeline.seeds import seed_of


def sample(d: int, instances: Sequence[int], seed: int) -> tuple[np.ndarray, int]:
    """Return standard normal scores (n, d), sampled per instance by its id; no evaluations."""
    return np.stack([np.random.default_rng(seed_of(seed, instance)).standard_normal(d) for instance in instances]), 0


COLUMNS = ("instance", "target", "scores", "evaluations", "seconds")
MAX_EVALUATIONS = 2.0**62
NO_COUNT = "evaluations unknown"


def read(
    targets: np.ndarray, instances: Sequence[int], features: Features, path: str, dataset: Dataset | None = None
) -> tuple[np.ndarray, np.ndarray, dict]:
    """Return scores (n, d) of instances (n,) for targets (n,) in a file, their evaluations, and warnings and seconds.

    Columns: instance; scores (a list of d) or one per feature; optionally target, evaluations, seconds. Raises
    MethodFailure where the first instance has no usable row, ShapelineError where the file is wrong.
    """
    file = expand(path)
    if not file.is_file():
        raise ShapelineError(f"{path}: there is no such file of scores; paths start at the folder of the run.")
    table = _read_table(str(file), os.stat(file).st_mtime_ns)
    keyed = table.index.nlevels > 1
    if not keyed and dataset is not None and dataset.labels.ndim == 2:
        raise ShapelineError(f"{path}: the dataset has several labels per record; add a column 'target'.")
    requested = pd.MultiIndex.from_arrays([instances, targets]) if keyed else np.asarray(instances)
    positions, known = table.index.get_indexer(requested), table.index.get_level_values(0)
    for row, instance, target in zip(positions, instances, targets, strict=True):
        if row < 0 and instance in known:
            other = table.index.get_level_values(1)[known == instance][0]
            # A column with missing cells has floats.
            other = (
                "no class" if pd.isna(other) else f"class {other:g}" if isinstance(other, float) else f"class {other}"
            )
            raise MethodFailure(
                "other class", f"{path}: explains {other} of instance {instance}, not {target}; add a row of that class"
            )
        if row < 0:
            raise MethodFailure("not in the file", f"{path}: has no row of instance {instance}; add it")
    rows = table.iloc[positions]
    scores = _read_scores(path, rows, features)
    bad = ~np.isfinite(scores).all(1)
    if bad.any():
        raise MethodFailure(
            "not finite",
            f"{path}: has scores of instance {np.asarray(instances)[bad][0]} that are not numbers; give finite numbers",
        )
    counts, details = rows.get("evaluations"), {}
    evaluations = np.zeros(len(rows), np.int64) if counts is None else counts.fillna(0).to_numpy(np.int64)
    details["warning"] = [None if known else NO_COUNT for known in (evaluations > 0).tolist()]
    seconds = rows.get("seconds")
    details["seconds"] = np.full(len(rows), np.nan) if seconds is None else seconds.to_numpy(np.float64)
    return scores, evaluations, details


def _read_scores(path: str, rows: pd.DataFrame, features: Features) -> np.ndarray:
    """Return the scores (n, d) float64 of rows of the file."""
    if "scores" in rows:
        for instance, scores in zip(rows.index.get_level_values(0), rows["scores"], strict=True):
            if np.size(scores) != features.d or scores is None:
                raise MethodFailure(
                    "other features",
                    f"{path}: has {np.size(scores)} scores of instance {instance}, which has {features.d} features"
                    "; give one score per feature",
                )
        return np.array([np.asarray(scores, np.float64).ravel() for scores in rows["scores"]])
    columns = [name for name in rows if name not in COLUMNS]
    if features.names and set(features.names) == set(columns):
        columns = list(features.names)
    elif len(columns) != features.d:
        raise MethodFailure(
            "other features",
            f"{path}: has {len(columns)} columns of scores for {features.d} features; give one column per feature",
        )
    return rows[columns].to_numpy(np.float64)


def _find_format(file: Path) -> CsvFormat:
    """Return the signs of a CSV file, which spreadsheets choose by language; cells are numbers, so a row shows them."""
    if file.suffix.lower() == ".parquet":
        return PLAIN
    with open(file, encoding="utf-8-sig", errors="replace") as stream:
        header, row = stream.readline(), stream.readline()
    separators = [sign for sign in ",;\t" if "instance" in [cell.strip(' "\n') for cell in header.split(sign)]]
    separator = next(iter(separators), ",")
    return CsvFormat(separator, decimal="," if separator != "," and "," in row else ".")


@functools.lru_cache(maxsize=1)
def _read_table(path: str, changed: int) -> pd.DataFrame:
    """Return the file by instance, and by target if it has one. changed: its modification time, a key of the cache."""
    file = expand(path)
    table = table_file.frame(file, _find_format(file))
    if "instance" not in table:
        raise ShapelineError(
            f"{path}: it has no column 'instance'; add it, with the numbers of the rows of the dataset."
        )
    if "scores" in table and isinstance(table["scores"].iloc[0] if len(table) else None, str):
        raise ShapelineError(f"{path}: lists of scores need a Parquet file; in a CSV give each feature a column.")
    keys = [key for key in ("instance", "target") if key in table]
    twice = table["instance"][table.duplicated(keys)]
    if len(twice):
        raise ShapelineError(f"{path}: instance {twice.iloc[0]} has several rows; give one an {' and '.join(keys)}.")
    others = [name for name in table if name != "scores" and not pd.api.types.is_numeric_dtype(table[name])]
    if others:
        raise ShapelineError(f"{path}: column '{others[0]}' holds no numbers; remove it, or give scores as a list.")
    count = table.get("evaluations", pd.Series(dtype=float)).fillna(0).to_numpy(np.float64)
    if not ((count >= 0) & (count < MAX_EVALUATIONS)).all():
        raise ShapelineError(
            f"{path}: column 'evaluations' holds {count[~((count >= 0) & (count < MAX_EVALUATIONS))][0]:g}; count them."
        )
    return table.set_index(keys)
