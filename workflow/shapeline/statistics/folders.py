"""Comparison of two results folders: python -m shapeline.statistics.folders results_a results_b [table.csv]."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from shapeline import scores
from shapeline.errors import ShapelineError
from shapeline.metrics.registry import METRICS
from shapeline.statistics.bounds import intervals

KEYS = ["experiment", "metric", "method", "statistic"]


def compare_folders(a: str | Path, b: str | Path) -> pd.DataFrame:
    """Return the measurements in two results folders, a row per experiment, method and scalar statistic.

    Rows in only one folder are kept, with NaN.

    Parameters
    ----------
    a, b : str or Path
        Folders of results.

    Returns
    -------
    pandas.DataFrame
        Columns experiment, metric, method, statistic, better ("lower" or "higher"), a and b (means over the
        folder's own instances), shared (instances in both), difference (mean of b - a over the shared ones) with its 95
        % interval low and high; NaN where fewer than two instances are shared.

    Raises
    ------
    ShapelineError
        Where a folder holds no results.

    Examples
    --------
    >>> import shapeline
    >>> shapeline.compare_folders("results", "results_before")  # doctest: +SKIP
    """
    measured_of = {"a": _read_measured(Path(a)), "b": _read_measured(Path(b))}
    by_instance = pd.concat(
        {side: measured.groupby([*KEYS, "instance"])["value"].mean() for side, measured in measured_of.items()}, axis=1
    )
    means = by_instance.groupby(KEYS).mean()
    by_instance = by_instance.sort_index()  # avoids pandas' warning of slow lookups per row
    rows = []
    for key, mean in means.iterrows():
        paired = by_instance.loc[key].dropna()
        _, metric, _, statistic = key
        better = METRICS[metric].statistics.get(statistic, "") if metric in METRICS else ""
        row = {**dict(zip(KEYS, key, strict=True)), "better": better, **mean, "shared": len(paired)}
        if len(paired) > 1:
            change = (paired["b"] - paired["a"]).to_numpy()
            low, high = intervals(change[:, None]).loc[0, ["low", "high"]]
            row |= {"difference": change.mean(), "low": low, "high": high}
        rows.append(row)
    columns = [*KEYS, "better", "a", "b", "shared", "difference", "low", "high"]
    return pd.DataFrame(rows).reindex(columns=columns)


def _read_measured(folder: Path) -> pd.DataFrame:
    """Return the scalar measurements of all experiments in a results folder, by instance and repeat."""
    frames = []
    for file in sorted([*folder.glob("*/metrics/measured.parquet"), *folder.glob("*/metrics/measured/*.parquet")]):
        rows = scores.read_table(file)
        of_model = rows["x"].isna() & (rows["training_seed"] == 0)
        frames.append(rows[of_model].assign(experiment=file.relative_to(folder).parts[0]))
        frames[-1]["value"] = frames[-1]["value"].replace([np.inf, -np.inf], np.nan)
    if not frames:
        raise ShapelineError(
            f"{folder}: holds no measurements (<experiment>/metrics/measured.parquet)"
            "; give the folder of a finished run"
        )
    rows = pd.concat(frames, ignore_index=True)
    for compared in folder.glob("*/metrics/compared.parquet"):  # of the configured methods
        configured = rows["method"].isin(pd.read_parquet(compared, columns=["method"])["method"])
        rows = rows[configured | (rows["experiment"] != compared.parts[-3])]
    return rows.reset_index(drop=True)


def main(arguments: list[str]) -> None:
    if len(arguments) not in (2, 3):
        sys.exit("give two folders of results, and perhaps a .csv file to write")
    try:
        table = compare_folders(*arguments[:2])
    except ShapelineError as error:
        sys.exit(str(error))
    if len(arguments) == 3:
        table.to_csv(arguments[2], index=False)
    print(table.to_string(index=False, float_format=lambda number: f"{number:.4g}", na_rep="-"))


if __name__ == "__main__":
    main(sys.argv[1:])
