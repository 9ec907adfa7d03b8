"""What many instances and methods cost: python -m benchmarks.scale [INSTANCES METHODS FEATURES].

Writes score files of invented numbers, as jobs write them, and runs what makes and follows them, each in a process of
its own: a shard of a method, two metrics of all methods, the comparison, and the page. Prints seconds, peak memory
and bytes. With no numbers: 1,000 instances by 40 methods at d = 12, then 1,000 and 10,000 by 10 at d = 500.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

import shapeline
from shapeline import scores
from shapeline.config.types import INSTANCES_PER_SHARD
from shapeline.datasets import loading, preparation
from shapeline.metrics import scored_rows
from shapeline.report import rendering
from shapeline.statistics.comparison import compare_files

CASES = ((1_000, 40, 12), (1_000, 10, 500), (10_000, 10, 500))
METHODS = ("kernel_shap", "sample_shapley", "lime")
POINTS = np.array([0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])  # of a masking curve
METRICS = ("log_odds", "error", "cost")


def build(folder: Path, instances: int, methods: int, d: int) -> None:
    """Write data, instances, score files and measurements of a model's metric to folder, with parameters.json."""
    random = np.random.default_rng(0)
    columns = [f"c{i}" for i in range(d)]
    table = pd.DataFrame(random.normal(0, 1, (2 * instances + 40, d)).round(3), columns=columns)
    table.assign(y=(table["c0"] > 0).map({True: "yes", False: "no"})).to_csv(folder / "table.csv", index=False)
    settings = {"path": str(folder / "table.csv"), "target": "y", "test": 0.6}
    preparation.prepare("table_file", settings, [], folder / "data")
    dataset = loading.load(folder / "data")
    rows = np.flatnonzero(dataset.split == 2)[:instances]
    ids, classes = dataset.ids[rows], dataset.labels[rows].astype(np.int32)
    assert len(ids) == instances
    shown = {"instance": ids, "label": classes, "prediction": classes, "probability": 0.9}
    pd.DataFrame(shown).to_parquet(folder / "instances.parquet")
    names = ["exact", *(f"{METHODS[i % len(METHODS)]}_{i}" for i in range(1, methods))]
    truth = random.normal(0, 1, (instances, d))
    files, curves = {}, []
    for i, name in enumerate(names):
        noise = random.normal(0, 0.1 + 0.01 * i, truth.shape) if i else 0.0
        files[name] = [_scores(folder / "scores" / name / "0-of-1.parquet", name, ids, truth + noise, i)]
        curves.append(str(folder / f"metrics/measured/{name}.parquet"))
        _write(Path(curves[-1]), _curves(name, ids, random.normal(-5 - 3 / (1 + i), 1, instances)), "log_odds")
    described = {
        name: {
            "method": METHODS[i % 3] if i else "shapley",
            "family": "coalitions",
            "parameters": {},
            "is_control": False,
        }
        for i, name in enumerate(names)
    }
    stated = {"entries": described, "order": names, "budget": 4.0, "features": {"kind": "column"}, "reference": "mean"}
    stated |= {"value": "log_probability", "exact": "exact", "report": {"title": "Scale", "n_shown": 3}}
    parameters = {
        "experiment": "scale",
        "root": str(folder),
        "settings_json": json.dumps(stated),
        "model_card": "",
        "dataset_card": str(folder / "data/card.json"),
        "dataset": str(folder / "data"),
        "instances": str(folder / "instances.parquet"),
        "scores": files,
        "metrics": str(folder / "metrics/compared.parquet"),
        "measured": [*curves, *(str(folder / f"metrics/{metric}.parquet") for metric in ("error", "cost"))],
    }
    (folder / "parameters.json").write_text(json.dumps(parameters))


def _model(rows: np.ndarray) -> np.ndarray:
    probability = 1 / (1 + np.exp(-rows[:, 0] - 0.1 * rows.mean(1)))
    return np.stack([1 - probability, probability], 1)


def _scores(path: Path, entry: str, ids: np.ndarray, values: np.ndarray, number: int) -> str:
    rows = pd.DataFrame(
        {
            "instance": ids,
            "target": np.int32(1),
            "repeat": np.int16(0),
            "budget": np.float32(4.0) if number else None,
            "scores": list(values.astype(np.float32)),
            "evaluations": 4 * values.shape[1],
            "seconds": 0.01 * (1 + number),
            "value_full": values.sum(1),
            "value_empty": 0.0,
            "status": "ok",
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    scores.write(path, rows, {"method": entry, "experiment": "scale", "settings": {"seed": 0}, "versions": {}})
    return str(path)


def _curves(entry: str, ids: np.ndarray, depth: np.ndarray) -> pd.DataFrame:
    """Return a deletion and an insertion curve of every instance, with their areas."""
    frames = []
    for statistic, curve in (("deletion", depth[:, None] * POINTS), ("insertion", depth[:, None] * (1 - POINTS))):
        keys = {"method": entry, "repeat": np.int16(0)}
        along = {"instance": np.repeat(ids, len(POINTS)), "x": np.tile(POINTS, len(ids)), "value": curve.ravel()}
        frames.append(pd.DataFrame({**along, **keys, "statistic": statistic}))
        areas = {"instance": ids, "x": np.nan, "value": curve.mean(1)}
        frames.append(pd.DataFrame({**areas, **keys, "statistic": f"{statistic}_auc"}))
    return pd.concat(frames, ignore_index=True)


def _write(path: Path, measured: pd.DataFrame, metric: str) -> None:
    scores.write_measured(path, measured.assign(metric=metric, training_seed=0), {"scores": []})


def step(what: str, folder: Path) -> None:
    """Run one job as its script does."""
    given = json.loads((folder / "parameters.json").read_text())
    if what == "attribute":
        dataset = loading.load(folder / "data")
        shapeline.explain(_model, dataset.inputs[:INSTANCES_PER_SHARD], "sample_shapley", features="column", budget=2)
    elif what in ("error", "cost"):
        truth = scores.read(given["scores"]["exact"])
        found = []
        for entry, paths in [*given["scores"].items()][1 if what == "error" else 0 :]:
            rows = scores.select_succeeded(scores.read(paths))
            measured = scored_rows.measure(what, rows, {"truth": truth, "seed": 0} if what == "error" else {})
            found.append(measured.assign(method=entry))
        _write(folder / f"metrics/{what}.parquet", pd.concat(found), what)
    elif what == "compare":
        table = pa.Table.from_pandas(compare_files(given["measured"], METRICS), preserve_index=False)
        scores.write_table(given["metrics"], table, {})
    else:
        rendering.render("notebooks/report.ipynb", given, folder / "page.html", folder / "page.ipynb")


def case(instances: int, methods: int, d: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        build(Path(place), instances, methods, d)
        held = sum(file.stat().st_size for file in Path(place).rglob("*.parquet"))
        print(f"{instances:,} instances x {methods} methods, d = {d}: {held / 1e6:.0f} MB of files", flush=True)
        for what in ("attribute", "error", "cost", "compare", "page"):
            began = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.scale", what, place], capture_output=True, text=True
            )
            if done.returncode:
                sys.exit(done.stderr[-3000:])
            spent, peak = time.perf_counter() - began, float(done.stdout.split()[-1])
            size = Path(place, "page.html").stat().st_size if what == "page" else 0
            size_text = f", {size / 1e6:.1f} MB" if size else ""
            print(f"  {what}: {spent:.1f} s, at most {peak:.0f} MB of memory{size_text}", flush=True)


def main() -> None:
    given = sys.argv[1:]
    if len(given) == 2:
        step(given[0], Path(given[1]))
        of = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        print(max(resource.getrusage(who).ru_maxrss for who in of) / 1e3)
        return
    if len(given) not in (0, 3) or not all(number.isdecimal() for number in given):
        sys.exit(__doc__.strip())
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for numbers in [tuple(map(int, given))] if given else CASES:
        case(*numbers)


if __name__ == "__main__":
    main()
