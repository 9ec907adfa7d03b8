"""Figures and tables of a report, on a small invented result folder in the formats of the real one."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from shapeline import datasets, findings, plots, scores
from shapeline.errors import ShapelineError

METHODS = {  # label: method, parameters, is_control, evaluations, noise, strength of the masking curve
    "exact": ("shapley", {}, False, None, 0.0, 1.0),
    "banzhaf": ("banzhaf", {}, False, None, 0.05, 0.99),
    "l_shapley": ("l_shapley", {"order": 1}, False, 200, 0.12, 0.96),
    "c_shapley": ("c_shapley", {"order": 4}, False, 160, 0.18, 0.94),
    "c_shapley_myerson": ("c_shapley", {"order": 4, "weights": "myerson"}, False, 160, 0.15, 0.95),
    "c_shapley_regression": ("c_shapley_regression", {"order": 4}, False, 31, 0.3, 0.91),
    "kernel_shap": ("kernel_shap", {}, False, 64, 0.35, 0.90),
    "sample_shapley": ("sample_shapley", {}, False, 64, 0.28, 0.92),
    "lime": ("lime", {}, False, 64, 0.4, 0.88),
    "saliency": ("saliency", {}, False, 1, 1.3, 0.70),
    "occlusion": ("occlusion", {}, True, 17, 0.5, 0.93),
    "gradient_x_input": ("gradient_x_input", {}, True, 1, 0.8, 0.97),
    "random": ("random", {}, True, 0, 1.5, 0.30),
}


def build(folder: Path, kind: str, labels=tuple(METHODS), exact: str | None = "exact", n: int = 12) -> dict:
    """Write a result folder of invented numbers in `folder` (relative to the working folder); returns the parameters.

    kind: "image" (digits 3 and 8 in sixteen patches) or "table" (breast cancer in ten groups).
    """
    name = {"image": "digits_patches", "table": "cancer_groups"}[kind]
    source, settings = ("digits", {"classes": [3, 8]}) if kind == "image" else ("breast_cancer", {})
    features = {"kind": "patch", "size": 2} if kind == "image" else {"kind": "group"}
    data, root, model = folder / "prepared" / name, folder / name, folder / "models" / name
    for place in (root / "metrics", model):
        place.mkdir(parents=True)
    datasets.prepare(source, settings, [], data)
    dataset, d, budget = datasets.load(data), 16 if kind == "image" else 10, 4.0
    random = np.random.default_rng(7)
    rows = np.flatnonzero(dataset.split == 2)[:n]
    predicted = dataset.labels[rows].copy()
    predicted[1] = 1 - predicted[1]
    shown = {"instance": dataset.ids[rows], "label": dataset.labels[rows].astype(np.int32)}
    shown |= {"prediction": predicted.astype(np.int32), "probability": random.uniform(0.6, 1, n)}
    pd.DataFrame(shown).to_parquet(root / "instances.parquet")
    truth = random.normal(0, 1, (n, d)) * random.uniform(0.2, 2, d)
    files = {
        label: _scores(root / "scores" / label, label, truth, dataset.ids[rows], 2**d, budget, features, random)
        for label in labels
    }
    metrics = {
        "log_odds": _log_odds(root / "metrics" / "log_odds.parquet", labels, d, n, random),
        "cost": _compared(root / "metrics" / "cost.parquet", labels, {"seconds": 0.004}, n),
        "efficiency": _compared(root / "metrics" / "efficiency.parquet", labels, {"gap": 0.1}, n),
    }
    if exact:
        others = [label for label in labels if label != exact]
        metrics["error"] = _compared(
            root / "metrics" / "error.parquet", others, {"rmse": 1, "spearman": -1, "top_k_overlap": -1}, n
        )
    history = [{"epoch": epoch, "loss": 1 / (epoch + 1), "accuracy": 0.9} for epoch in range(20)]
    card = {
        "name": name,
        "architecture": "digits_cnn",
        "n_parameters": 10282,
        "test_accuracy": 0.9907,
        "seconds": 4.2,
        "seed": 0,
    }
    (model / "card.json").write_text(
        json.dumps({**card, "versions": {"torch": "2.13.0", "numpy": "2.4.6"}, "history": history})
    )
    described = {
        label: {"method": method, "family": "coalitions", "parameters": parameters, "is_control": control}
        for label, (method, parameters, control, *_) in METHODS.items()
        if label in labels
    }
    report = {
        "title": "Digits 3 and 8 in sixteen patches" if kind == "image" else "Breast cancer in ten groups",
        "instances_shown": 3,
    }
    stated = {"report": report, "labels": described, "order": list(labels), "budget": budget, "features": features}
    stated |= {"reference": "mean", "value": "log_probability", "exact": exact}
    return {
        "experiment": name,
        "root": str(root),
        "settings_json": json.dumps(stated, sort_keys=True),
        "model_card": str(model / "card.json"),
        "dataset_card": str(data / "card.json"),
        "dataset": str(data),
        "instances": str(root / "instances.parquet"),
        "scores": files,
        "metrics": metrics,
    }


def _scores(folder, label, truth, instances, every, budget, features, random) -> list[str]:
    method, parameters, _, spent, noise, _ = METHODS[label]
    n, d = truth.shape
    values = truth + noise * random.normal(0, 1, truth.shape)
    if method == "saliency":
        values = np.abs(values)
    empty = random.normal(-2, 0.3, n)
    frame = pd.DataFrame(
        {
            "instance": instances,
            "target": np.int32(1),
            "repeat": np.int16(0),
            "budget": np.float32(budget) if method in ("kernel_shap", "sample_shapley", "lime") else None,
            "scores": list(values.astype(np.float32)),
            "evaluations": every if spent is None else spent,
            "seconds": 0.0004 + 5e-6 * (every if spent is None else spent),
            "value_full": empty + (values.sum(axis=1) if method in findings.EFFICIENT else truth.sum(axis=1)),
            "value_empty": empty,
            "status": "ok",
            "error": None,
        }
    )
    metadata = {
        "experiment": "digits_patches",
        "label": label,
        "method": method,
        "parameters": parameters,
        "settings_digest": f"{abs(int(noise * 1e9)):016x}",
        "features": {"kind": features["kind"], "shape": [4, 4] if d == 16 else [d]},
        "reference": "mean",
        "value": "log_probability",
        "seed": 0,
        "versions": {"shapeline": "0.1.0", "torch": "2.13.0"},
        "framework": "torch",
        "form": {"name": "frozen", "batch": 256},
        "device": "cpu",
        "git_commit": "0123456789abcdef",
    }
    if label == "lime":
        frame.loc[0, ["scores", "status", "error"]] = [None, "memory", "out of memory at batch 1"]
    paths = [folder / "0-of-2.parquet", folder / "1-of-2.parquet"]
    for number, (path, part) in enumerate(zip(paths, (frame[: n // 2], frame[n // 2 :]), strict=True)):
        scores.write(path, part, {**metadata, "shard": [number, 2]})
    return [str(path) for path in paths]


def _log_odds(path: Path, labels, d: int, n: int, random) -> str:
    x = np.arange(d + 1) / d
    parts = []
    for label in labels:
        strength = METHODS[label][5]
        rate = 1 + 5 * strength
        fall = -14 * (1 - np.exp(-rate * x)) / (1 - np.exp(-rate)) + random.normal(0, 0.15, d + 1) * x * (1 - x)
        rise = -7 + 14 * (1 - np.exp(-rate * x)) / (1 - np.exp(-rate))
        wide = 0.4 + 0.8 * x * (1 - x)
        parts += [
            pd.DataFrame(
                {"label": label, "quantity": "masking", "x": x, "mean": fall, "low": fall - wide, "high": fall + wide}
            ),
            pd.DataFrame(
                {"label": label, "quantity": "insertion", "x": x, "mean": rise, "low": rise - wide, "high": rise + wide}
            ),
        ]
        for quantity, mean in (("masking_area", fall.mean()), ("insertion_area", rise.mean())):
            row = {
                "label": label,
                "quantity": quantity,
                "x": np.nan,
                "mean": mean,
                "low": mean - 0.35,
                "high": mean + 0.4,
            }
            parts.append(pd.DataFrame([row]))
    pd.concat(parts, ignore_index=True).assign(n=n).to_parquet(path)
    return str(path)


def _compared(path: Path, labels, quantities: dict[str, float], n: int) -> str:
    """Scalars that follow the noise of each label: growing with it (a positive size) or falling from 1 (a negative one)."""
    rows = []
    for label in labels:
        for quantity, size in quantities.items():
            noise = METHODS[label][4]
            mean = size * noise if size > 0 else 1 / (1 + noise)
            rows.append(
                {
                    "label": label,
                    "quantity": quantity,
                    "x": np.nan,
                    "mean": mean,
                    "low": 0.85 * mean,
                    "high": 1.15 * mean,
                }
            )
    pd.DataFrame(rows).assign(n=n).to_parquet(path)
    return str(path)
