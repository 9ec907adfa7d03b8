"""Datasets that come with scikit-learn, so that no file is needed; none has an official split."""

from pathlib import Path

import numpy as np


def read_breast_cancer(paths: dict[str, Path]) -> dict:
    """Load Breast Cancer Wisconsin (Wolberg et al. 1995): 569 rows (n, 30), labels 0 malignant, 1 benign."""
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    return {
        "inputs": bunch.data,
        "labels": bunch.target,
        "feature_names": [str(name) for name in bunch.feature_names],
        "class_names": [str(name) for name in bunch.target_names],
    }


def read_diabetes(paths: dict[str, Path]) -> dict:
    """Load Diabetes (Efron et al. 2004): 442 rows (n, 10) in original units, labels the progression after a year."""
    from sklearn.datasets import load_diabetes

    bunch = load_diabetes(scaled=False)
    return {"inputs": bunch.data, "labels": bunch.target, "feature_names": [str(name) for name in bunch.feature_names]}


def read_digits(paths: dict[str, Path]) -> dict:
    """Load handwritten digits (Alpaydin & Kaynak 1998): 1,797 images (n, 1, 8, 8) uint8 in 0..16, and labels."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return {"inputs": bunch.images.astype(np.uint8)[:, None], "labels": bunch.target, "scale": 16}
