"""Breast Cancer Wisconsin, Diagnostic (Wolberg et al. 1995): 569 rows that come with scikit-learn, no file needed."""

from pathlib import Path


def read(paths: dict[str, Path]) -> dict:
    """All 569 rows as (n, 30) in the columns' own units, labels 0 malignant, 1 benign; no official split."""
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    return {
        "inputs": bunch.data,
        "labels": bunch.target,
        "feature_names": [str(name) for name in bunch.feature_names],
        "class_names": [str(name) for name in bunch.target_names],
    }
