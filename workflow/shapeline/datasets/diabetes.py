"""Diabetes (Efron et al. 2004): 442 patients, their disease a year later; comes with scikit-learn, no file needed."""

from pathlib import Path


def read(paths: dict[str, Path]) -> dict:
    """All 442 rows as (n, 10) in the columns' own units, labels the progression after a year; no official split."""
    from sklearn.datasets import load_diabetes

    bunch = load_diabetes(scaled=False)
    return {"inputs": bunch.data, "labels": bunch.target, "feature_names": [str(name) for name in bunch.feature_names]}
