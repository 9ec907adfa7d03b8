"""Handwritten digits, 8x8 (Alpaydin & Kaynak 1998): 1,797 images that come with scikit-learn, so no file is needed."""

from pathlib import Path

import numpy as np


def read(paths: dict[str, Path]) -> dict:
    """All 1,797 images as (n, 1, 8, 8) uint8 in 0..16, and their labels 0..9; no official split. `paths` is empty."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return {"inputs": bunch.images.astype(np.uint8)[:, None], "labels": bunch.target, "scale": 16}
