"""The Parquet score file (schema version 3): written completely or not at all, read by shard or as a complete set."""

import contextlib
import json
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from shapeline.errors import ShapelineError, reported_extras
from shapeline.files import atomic, check_path
from shapeline.seeds import seed_of

VERSION = 3
METADATA_KEY, MAGIC = b"shapeline", b"PAR1"
SCHEMA = pa.schema(
    [
        ("instance", pa.int64()),
        ("target", pa.int32()),
        ("training_seed", pa.int16()),  # 0: the model itself; 1, 2, ...: the same trained by other seeds
        ("randomised_layers", pa.int16()),  # last layers whose weights were drawn anew; null for a trained model
        ("repeat", pa.int16()),
        ("budget", pa.float32()),  # multiple of d; null for a fixed-cost design, and where a row ends when good enough
        ("scores", pa.list_(pa.float32())),
        # The half-width of the 95 % interval of each score over 1.96; null where a method has none.
        ("standard_error", pa.list_(pa.float32())),
        # Row-major upper triangle; null where a method has none.
        ("interactions", pa.list_(pa.float32())),
        ("interactions_standard_error", pa.list_(pa.float32())),  # of each pair, as `standard_error`
        ("evaluations", pa.int64()),
        ("seconds", pa.float64()),
        ("value_full", pa.float64()),
        ("value_empty", pa.float64()),
        ("status", pa.string()),
        ("error", pa.string()),
        ("warning", pa.string()),
        ("details", pa.string()),
    ]
)
# The columns that identify a row of a score file.
KEYS = ["instance", "target", "training_seed", "randomised_layers", "repeat", "budget"]
# Columns that files of schemas 1 and 2 lack, and columns with other names there.
LATER_COLUMNS = {"training_seed", "randomised_layers", "standard_error", "interactions", "interactions_standard_error"}
RENAMED_COLUMNS = {
    "uncertainty": "standard_error",
    "pairs": "interactions",
    "pairs_uncertainty": "interactions_standard_error",
    "flag": "warning",
    "extra": "details",
}
MEASURED = pa.schema(
    [
        ("metric", pa.string()),
        ("method", pa.string()),
        ("training_seed", pa.int16()),
        ("instance", pa.int64()),
        ("repeat", pa.int16()),
        ("statistic", pa.string()),
        ("x", pa.float64()),
        ("value", pa.float64()),
    ]
)
SHARD_NAME = re.compile(r"(\d+)-of-(\d+)\.parquet")


def write(path: str | Path, rows: pd.DataFrame, metadata: dict) -> None:
    """Write the rows (columns of SCHEMA; absent ones are null, `training_seed` 0) and the metadata as a score file."""
    absent = {name: 0 if name == "training_seed" else None for name in SCHEMA.names if name not in rows}
    write_table(
        path,
        pa.Table.from_pandas(rows.assign(**absent), SCHEMA, preserve_index=False),
        {"schema_version": VERSION, **metadata},
    )


def write_measured(path: str | Path, rows: pd.DataFrame, metadata: dict) -> None:
    """Write measurements (columns of MEASURED) and the metadata as one file, in an order equal in every run."""
    rows = rows.sort_values(["metric", "method", "training_seed", "repeat", "instance"], kind="stable")
    table = pa.Table.from_pandas(rows, MEASURED, preserve_index=False)
    write_table(path, table, {"schema_version": VERSION, **metadata})


def write_table(path: str | Path, table: pa.Table, metadata: dict) -> None:
    """Write a table with its metadata to a temporary name, then rename it: a killed job leaves no partial file."""
    with atomic(path) as partial:
        written = {**(table.schema.metadata or {}), METADATA_KEY: json.dumps(metadata)}
        pq.write_table(table.replace_schema_metadata(written), partial, compression="zstd", write_page_checksum=True)


def read_table(path: str | Path, columns: list[str] | None = None) -> pd.DataFrame:
    """Return the rows of a file of `write_table`. Raises ShapelineError for a corrupt file or a newer schema."""
    # pq.read_table would create a dataset of one file, which takes as long as reading it.
    with _name_file(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        version = _read_metadata(file.schema_arrow).get("schema_version", VERSION)
        table = file.read(columns).to_pandas() if version <= VERSION else None
    if table is None:
        raise ShapelineError(
            f"{path}: has version {version} of the score schema, and this Shapeline reads up to {VERSION}; install a "
            "newer one, or remove the file and run again"
        )
    return table


def metadata(path: str | Path) -> dict:
    """Return the metadata of a score file: experiment, label, method, settings digest, versions and others."""
    with _name_file(path):
        return _read_metadata(pq.read_schema(path))


def _read_metadata(schema: pa.Schema) -> dict:
    return json.loads((schema.metadata or {}).get(METADATA_KEY, b"{}"))


@contextlib.contextmanager
def _name_file(path: str | Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise ShapelineError(f"{path}: file not found; check the path") from error
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:  # errors due to a corrupted file
        reason = str(error).splitlines()[0]
        raise ShapelineError(f"{path}: damaged ({reason}); remove it and run again, which re-computes it") from error


def read(path: str | Path | Iterable[str | Path]) -> pd.DataFrame:
    """Return the rows of a score file, of a list of shards, or of a folder with exactly one complete set of shards.

    Parameters
    ----------
    path : str, Path or iterable of them
        Files of schemas 1 and 2 are read under the present column names.

    Returns
    -------
    pandas.DataFrame
        The columns of `SCHEMA`; `scores` holds one float32 array of d values per row, None where the method failed.

    Raises
    ------
    ShapelineError
        Where a file is damaged or newer, and where a folder holds no complete set or several.

    Examples
    --------
    >>> from shapeline import scores
    >>> rows = scores.read("results/digits/scores/kernel_shap")  # doctest: +SKIP
    """
    if isinstance(path, str | Path) or not isinstance(path, Iterable):
        path = check_path("scores.read", path)
        path = _find_shards(Path(path)) if Path(path).is_dir() else [path]
    frames = []
    for shard in path:
        if not is_parquet(shard):  # perhaps a file of the user, which no message advises to remove
            raise ShapelineError(f"{shard}: no score file; name one of a run or of Explanation.save")
        frames.append(_upgrade(read_table(shard), shard))
        if list(frames[-1]) != SCHEMA.names:
            raise ShapelineError(f"{shard}: no score file; name one of a run or of Explanation.save")
    rows = pd.concat(frames, ignore_index=True).astype({"randomised_layers": "Int16"})
    return rows.sort_values(KEYS, ignore_index=True)


def is_parquet(path: str | Path) -> bool:
    """Return whether a file begins as Parquet does; also of one that is empty or missing, whose reader says so."""
    with contextlib.suppress(OSError), open(path, "rb") as stream:
        return stream.read(len(MAGIC)) in (MAGIC, b"")
    return True


def _upgrade(rows: pd.DataFrame, path: str | Path) -> pd.DataFrame:
    """Return the rows of an earlier schema with the columns of SCHEMA; before version 3 the label has the seed."""
    rows = rows.rename(columns=RENAMED_COLUMNS)
    absent = [name for name in SCHEMA.names if name not in rows]
    if not absent or not LATER_COLUMNS.issuperset(absent):
        return rows
    seed = int(str(metadata(path).get("label")).partition("@seed")[2] or 0)
    return rows.assign(**{name: seed if name == "training_seed" else None for name in absent})[SCHEMA.names]


def select_training(rows: pd.DataFrame, training_seed: int = 0) -> pd.DataFrame:
    """Return the rows on the model of a training seed, without those on randomised models."""
    chosen = (rows["training_seed"] == training_seed) & rows["randomised_layers"].isna()
    return rows if chosen.all() else rows[chosen].reset_index(drop=True)


def final(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows at each method's full budget, without intermediate budgets."""
    return rows[rows["budget"].isna() | (rows["budget"] == rows["budget"].max())].reset_index(drop=True)


def select_succeeded(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the successful rows; a record with several labels is omitted if one failed, to keep means comparable."""
    keys = [key for key in KEYS if key != "target" and key in rows]
    is_ok = rows.assign(is_ok=rows["status"] == "ok").groupby(keys, dropna=False)["is_ok"]
    return rows[is_ok.transform("all")].reset_index(drop=True)


def matrix(rows: pd.DataFrame, column: str = "scores") -> np.ndarray:
    """Return the scores, or another column of arrays, of successful rows, (rows, d) float64."""
    return np.stack(rows[column].to_list()).astype(float) if len(rows) else np.zeros((0, 0))


def sum_scores(rows: pd.DataFrame) -> np.ndarray:
    """Return the sum of the scores, and of the interactions if there are any, of successful rows, (rows,) float64."""
    columns = [rows[name] for name in ("scores", "interactions") if name in rows]
    sums = [[0.0 if np.ndim(row) == 0 else np.sum(row, dtype=float) for row in column] for column in columns]
    return np.sum(sums, axis=0)


def count_top(share: float, d: int) -> int:
    """Return how many of d features a share of them is, rounded up, at least 1; 0.14 of 50 are 7, for all digits."""
    return max(1, math.ceil(round(share * d, 9)))


def rank_features(values: np.ndarray, instances: np.ndarray, seed: int) -> np.ndarray:
    """Return the rank of each feature by descending score (n, d), the first 0; equal scores in random order."""
    chance = np.stack([np.random.default_rng(seed_of(seed, "ties", i)).random(values.shape[1]) for i in instances])
    order = np.lexsort((chance, -values), axis=1)
    return np.argsort(order, axis=1)  # the inverse permutation: ranks, not an ordering


def _find_shards(folder: Path) -> list[Path]:
    sets: dict[int, dict[int, Path]] = {}
    for file in sorted(folder.glob("*.parquet")):
        if matched := SHARD_NAME.fullmatch(file.name):
            sets.setdefault(int(matched[2]), {})[int(matched[1])] = file
    complete = [n for n, shards in sets.items() if set(shards) == set(range(n))]
    if len(sets) == 1 and complete:
        return list(sets[complete[0]].values())
    found = ", ".join(f"{len(shards)} of {n}" for n, shards in sorted(sets.items()))
    if not found:
        raise ShapelineError(
            f"{folder}: holds no shard; name a method's folder, <results>/<experiment>/scores/<method>"
        )
    raise ShapelineError(
        f"{folder}: expected exactly one complete set of shards, found {found}; name the files, or remove the others"
    )


def to_csv(source: str | Path | pd.DataFrame, path: str | Path, names: Iterable[str] = ()) -> None:
    """Write score rows as a CSV file: a column per feature, after keys, cost and status.

    Parameters
    ----------
    source : str, Path or pandas.DataFrame
        Argument of `read`, or its rows.
    path : str or Path
        CSV file to write.
    names : iterable of str
        Names of the features; by default those in the file, else their numbers.

    Examples
    --------
    >>> from shapeline import scores
    >>> scores.to_csv("results/digits/scores/exact", "exact.csv")  # doctest: +SKIP
    """
    path = check_path("to_csv", path)
    if path.is_file() and path.stat().st_size and is_parquet(path):
        raise ShapelineError(f"{path}: is a Parquet file, which would be lost; name a .csv file")
    rows, names = _read_with_names(source, names)
    kept = rows["scores"].map(lambda row: np.full(0, np.nan) if row is None else row)
    widest = max(map(len, kept), default=0)
    names = names if len(names) == widest else [f"feature {index}" for index in range(widest)]
    cells = [np.pad(row, (0, widest - len(row)), constant_values=np.nan) for row in kept.map(np.asarray)]
    described = rows.drop(
        columns=["scores", "standard_error", "interactions", "interactions_standard_error"], errors="ignore"
    )
    table = described.join(pd.DataFrame(np.reshape(cells, (len(rows), widest)), rows.index, names))
    with atomic(path) as partial:
        table.to_csv(partial, index=False)


@reported_extras("to_shap")
def to_shap(source: str | Path | pd.DataFrame, names: Iterable[str] = (), data: np.ndarray | None = None):
    """Return the scores as a shap.Explanation, for the plots of that library.

    It has one row per instance (and target, where there are several), the mean over repeats. Failed rows and
    intermediate budgets are omitted.

    Parameters
    ----------
    source : str, Path or pandas.DataFrame
        Argument of `read`, or its rows.
    names : iterable of str
        Names of the features; by default those in the file.
    data : array of shape (n, d), optional
        Feature values to show beside the scores, in the order of the instances.

    Returns
    -------
    shap.Explanation
        `base_values` are the values of the reference, so that the scores of an efficient method add up.

    Raises
    ------
    ShapelineError
        Without shap, and where d differs by instance.

    Examples
    --------
    >>> from shapeline import scores
    >>> explanation = scores.to_shap("results/digits/scores/exact")  # doctest: +SKIP
    """
    import shap

    rows, names = _read_with_names(source, names)
    rows = final(select_training(rows[rows["status"] == "ok"]))
    sizes = {len(row) for row in rows["scores"]}
    if "interactions" in rows and rows["interactions"].notna().any():
        raise ShapelineError(
            "to_shap: scores are main effects; use Explanation.load(path).to_shap(), with interactions"
        )
    if len(sizes) != 1:
        raise ShapelineError(f"to_shap: the instances have {sorted(sizes) or 'no'} features; give those of one number")
    groups = rows.groupby(["instance", "target"], sort=True)
    values = np.stack([matrix(group).mean(0) for _, group in groups])
    return shap.Explanation(values, groups["value_empty"].mean().to_numpy(), data, feature_names=list(names) or None)


def _read_with_names(source: str | Path | pd.DataFrame, names: Iterable[str]) -> tuple[pd.DataFrame, list[str]]:
    """Return score rows, and the names of their features: `names`, or by default those of the files."""
    if isinstance(source, pd.DataFrame):
        return source, list(names)
    file = _find_shards(Path(source))[0] if Path(source).is_dir() else source
    return read(source), list(names) or metadata(file).get("features", {}).get("names", [])
