"""Compare two folders of results by key: python -m benchmarks.compare_scores OLD NEW [--tolerance 1e-5].

Every numeric column of score files, measurements and comparisons is compared but seconds, whichever layout and schema a
folder has. It prints a line per kind of file and experiment, and exits with 1 where a key lacks a partner or a number
differs by more than the tolerance, relative to 1 + |number|.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from shapeline import scores

SCORE_KEYS = ["method", *scores.KEYS]
MEASURED_KEYS = ["metric", "method", "training_seed", "instance", "repeat", "statistic", "x"]
COMPARED_KEYS = ["metric", "method", "statistic", "x"]
OLD_NAMES = {"label": "method", "quantity": "statistic"}  # columns of files before schema 3
OLD_STATISTICS = {"masking_area": "deletion_auc", "insertion_area": "insertion_auc"}
LISTS = ("scores", "standard_error", "interactions", "interactions_standard_error")


def read_scores(experiment: Path) -> pd.DataFrame | None:
    """Return the score rows of all methods, with their numbers beside the scores as columns."""
    frames = []
    for folder in sorted((experiment / "scores").glob("*")):
        entry, _, variant = folder.name.partition("@")
        rows = scores.read(sorted(folder.glob("*.parquet"))).assign(method=entry)
        if variant and not variant.startswith("seed") and rows["randomised_layers"].isna().all():  # before schema 3
            rows["randomised_layers"] = _count_drawn_layers(experiment, variant)
        details = [json.loads(details) if isinstance(details, str) else {} for details in rows["details"]]
        numbers = pd.DataFrame([{k: v for k, v in each.items() if isinstance(v, int | float)} for each in details])
        frames.append(rows.drop(columns="details").join(numbers.add_prefix("details ")))
    return pd.concat(frames, ignore_index=True) if frames else None


def _count_drawn_layers(experiment: Path, variant: str) -> int:
    [card] = experiment.parent.glob(f"models/*@{variant}/card.json")
    return len(json.loads(card.read_text())["drawn"])


def read_measured(experiment: Path) -> pd.DataFrame | None:
    """Return what was measured of each instance."""
    folder, frames = experiment / "metrics", []
    for path in [*folder.glob("measured.parquet"), *sorted(folder.glob("*/*.parquet"))]:
        rows = _read(path)
        if "metric" not in rows:  # one file per metric, method and training
            entry, _, seed = path.stem.partition("@seed")
            rows = rows.assign(metric=path.parent.name, method=entry, training_seed=int(seed or 0))
        frames.append(rows)
    return _drop_seconds(pd.concat(frames, ignore_index=True)) if frames else None


def read_compared(experiment: Path) -> pd.DataFrame | None:
    """Return means and intervals over instances."""
    frames = []
    for path in sorted((experiment / "metrics").glob("*.parquet")):
        rows = _read(path)
        if "mean" in rows:
            frames.append(rows if "metric" in rows else rows.assign(metric=path.stem))
    return _drop_seconds(pd.concat(frames, ignore_index=True)) if frames else None


def _read(path: Path) -> pd.DataFrame:
    """Return the rows of a file under the names of today's schema."""
    rows = scores.read_table(path).rename(columns=OLD_NAMES)
    return rows.assign(statistic=rows["statistic"].replace(OLD_STATISTICS)) if "statistic" in rows else rows


def _drop_seconds(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["statistic"] != "seconds"]


def compare_columns(old: pd.DataFrame, new: pd.DataFrame, keys: list[str]) -> Iterator[tuple[str, int, float]]:
    """Yield each numeric column with how many of its numbers differ, and the largest relative difference; as the column
    "keys" how many keys lack a partner."""
    sides = [side.assign(turn=side.groupby(keys, dropna=False).cumcount()) for side in (old, new)]
    merged = sides[0].merge(sides[1], on=[*keys, "turn"], how="outer", suffixes=("", " new"), indicator=True)
    yield "keys", int((merged["_merge"] != "both").sum()), 0.0
    merged = merged[merged["_merge"] == "both"]
    for column in (name for name in old if name not in (*keys, "seconds") and f"{name} new" in merged):
        pairs = merged[column], merged[f"{column} new"]
        if column in LISTS:
            a, b = (_concatenate(side, other) for side, other in (pairs, pairs[::-1]))
        elif all(pd.api.types.is_numeric_dtype(side) for side in pairs):
            a, b = (side.to_numpy(float) for side in pairs)
        else:
            yield column, int((pairs[0].fillna("") != pairs[1].fillna("")).sum()), 0.0
            continue
        with np.errstate(invalid="ignore"):
            apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, np.abs(a - b) / (1 + np.abs(a)))
        yield column, int((apart != 0).sum()), float(np.nan_to_num(apart, nan=np.inf).max(initial=0))


def _concatenate(lists: pd.Series, others: pd.Series) -> np.ndarray:
    """Return all numbers of a column of lists; NaN, as many as the other side has, for one that is missing."""
    parts = [
        np.full(0 if other is None else len(other), np.nan) if numbers is None else numbers
        for numbers, other in zip(lists, others, strict=True)
    ]
    return np.concatenate(parts).astype(float) if parts else np.zeros(0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--tolerance", type=float, default=0.0)
    args = parser.parse_args()
    failed = False
    kinds = (
        ("scores", read_scores, SCORE_KEYS),
        ("measured", read_measured, MEASURED_KEYS),
        ("compared", read_compared, COMPARED_KEYS),
    )
    names = sorted({path.parent.name for side in (args.old, args.new) for path in side.glob("*/instances.parquet")})
    if not names:
        parser.error(f"{args.old} and {args.new}: no experiments; give two folders of results")
    for name in names:
        for kind, read, keys in kinds:
            old, new = (read(side / name) for side in (args.old, args.new))
            if old is None or new is None:
                failed |= (old is None) != (new is None)
                print(f"{name} {kind}: {'absent' if old is None and new is None else 'absent on one side'}")
                continue
            found = [*compare_columns(old, new, keys)]
            wrong = [part for part in found if (part[1] and not part[2]) or part[2] > args.tolerance]
            failed |= bool(wrong)
            largest = max(apart for *_, apart in found)
            columns = "; ".join(f"{column}: {count} differ by up to {apart:.1e}" for column, count, apart in wrong)
            print(f"{name} {kind}: {len(old)} rows, largest difference {largest:.1e} {columns and '— ' + columns}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
