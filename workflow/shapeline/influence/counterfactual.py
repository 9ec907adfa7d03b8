"""Counterfactual influence: pairs of records that differ in one feature (Datta et al. 2015; Sliwinski et al. §7.3)."""

import warnings

import numpy as np

from shapeline.influence.arrays import check, column_hashes, row_hashes, table


def counterfactual(X, labels) -> np.ndarray:
    """Return the mean over rows x of |c(x) - c(y)|, summed over the rows y that differ from x in feature i only.

    Duplicates count. Where no two rows differ in one feature only, the influence is 0 everywhere, with a warning.

    Parameters
    ----------
    X, labels : arrays of shape (m, n) and (m,)
        The data; labels are numbers.

    Returns
    -------
    numpy.ndarray
        (n,) float64, one global number per feature.

    Raises
    ------
    ShapelineError
        Where a number is missing.

    References
    ----------
    Datta, Datta, Procaccia & Zick (2015); Sliwinski, Strobel & Zick (2019), equation 15.

    Examples
    --------
    >>> import numpy as np
    >>> from shapeline import influence
    >>> X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
    >>> labels = np.array([0, 1, 0, 1])
    >>> influence.counterfactual(X, labels)
    array([0.5, 0. ])
    """
    X = table("counterfactual", "X", X)
    labels = check("counterfactual", "labels", labels, len(X), True)
    total = row_hashes(X)
    influence = np.zeros(X.shape[1])
    pairs = 0
    for feature in range(X.shape[1]):
        column = X[:, feature]
        # A row's hash is the sum of its cells' hashes, so the others' hash is a difference.
        others = total - column_hashes(column[:, None], np.array([feature]))[:, 0]
        group = np.unique(others, return_inverse=True)[1].reshape(-1)
        rows = np.flatnonzero(np.bincount(group)[group] > 1)
        if not len(rows):
            continue
        group = _verify(np.delete(X[rows], feature, axis=1), group[rows])
        same = np.unique(np.column_stack([group, column[rows]]), axis=0, return_inverse=True)[1].reshape(-1)
        influence[feature] = 2 * (_spread(group, labels[rows]) - _spread(same, labels[rows])) / len(X)
        pairs += (np.bincount(group) ** 2).sum() - (np.bincount(same) ** 2).sum()
    if not pairs:
        warnings.warn(
            f"counterfactual: no two of the {len(X):,} rows differ in one feature only, so every influence is 0; "
            "the data are too sparse for this measure.",
            stacklevel=2,
        )
    return influence


def _verify(rest: np.ndarray, group: np.ndarray) -> np.ndarray:
    """The groups, made anew by sorting if ever two different rows had one hash."""
    _, first, group = np.unique(group, return_index=True, return_inverse=True)
    group = group.reshape(-1)
    if np.array_equal(rest, rest[first[group]]):
        return group
    return np.unique(rest, axis=0, return_inverse=True)[1].reshape(-1)


def _spread(group: np.ndarray, values: np.ndarray) -> float:
    """Sum of |v - w| over unordered pairs within each group: v at rank r of k counts 2r + 1 - k times."""
    order = np.lexsort((values, group))
    counts = np.bincount(group)
    counts = counts[counts > 0]
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    rank = np.arange(len(values)) - starts
    return float((values[order] * (2 * rank + 1 - np.repeat(counts, counts))).sum())
