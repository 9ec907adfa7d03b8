"""A custom metric: over how many features the scores are spread."""

import numpy as np
import pandas as pd


def spread(rows: pd.DataFrame) -> np.ndarray:
    """Effective number of features, exp of the entropy of the shares of absolute scores: 1 where one has all."""
    sizes = np.abs(np.stack(rows["scores"].to_list()).astype(float))
    shares = sizes / np.maximum(sizes.sum(1, keepdims=True), 1e-300)
    return np.exp(-(shares * np.log(np.maximum(shares, 1e-300))).sum(1))
