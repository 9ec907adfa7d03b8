"""Data-LIME: a weighted ridge fit of label agreement around a point (Ribeiro 2016; Sliwinski et al. 2019, §7.2)."""

import warnings

import numpy as np

from shapeline.errors import ShapelineError, nearest
from shapeline.influence.distances import BLOCK_CELLS, Neighbours, Space, check_dtype, check_positive

MAX_CONDITION = 1e4  # largest condition number for which float32 rows are exact within 1e-5
CLASSIFIERS = ("line", "step")
MAX_STEPS = 100  # steps of a descent
SLICE_CELLS = 1 << 18  # float64 cells processed at a time, so that they stay in the cache


def data_lime(
    points,
    X,
    labels,
    rho: float = 3.0,
    regression: bool = False,
    categorical=(),
    *,
    mu: float | None = None,
    ridge: float = 1.0,
    classifier: str = "line",
    point_labels=None,
    dtype: str = "float32",
    device: str = "cpu",
) -> np.ndarray:
    """Return the slopes of a linear fit to the agreement of labels on the data around x, or of a step.

    The fit minimises sum_y w_y (s(x, y) - b - phi.(y - x))^2 + ridge |phi|^2 over phi and b, with s as in `mim`, so
    positive is towards x's own label. Rows whose weight cannot change the slopes by 1e-6 (float64: 1e-12) are left out.

    Parameters
    ----------
    points : array of shape (p, n)
        The explained rows.
    X, labels : arrays of shape (m, n) and (m,)
        The data.
    rho : float
        Width of the weights sqrt(exp(-r^2 / rho^2)), r the Euclidean distance.
    regression, categorical, point_labels, dtype, device
        As in `mim`.
    mu : float, optional
        In place of rho, the width of the cosine distance r = 1 - cos(x, y); 0 has cosine 0 with everything.
    ridge : float
        Penalty of large slopes.
    classifier : {"line", "step"}
        "step": of classes the phi of length 1 for which sum_y w_y [agrees(y) differs from 1(phi.(y - x) >= 0)] is
        least, as far as a descent finds it (equation 14).

    Returns
    -------
    numpy.ndarray
        (p, n) float64, per unit of each column.

    Raises
    ------
    ShapelineError
        As `mim`.

    References
    ----------
    Ribeiro, Singh & Guestrin (2016); Sliwinski, Strobel & Zick (2019), section 7.2.

    Examples
    --------
    >>> import numpy as np
    >>> from shapeline import influence
    >>> X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
    >>> labels = np.array([0, 1, 0, 1])
    >>> influence.data_lime(X[:1], X, labels).round(3)
    array([[-0.84 ,  0.132]])
    """
    where = "data_lime"
    rho, ridge = check_positive(where, "rho", rho), check_positive(where, "ridge", ridge)
    mu = None if mu is None else check_positive(where, "mu", mu)
    _check(where, classifier, regression, mu, categorical)
    # Distances are in float64: they cost little relative to the fits, and the kernels are steep.
    data = Neighbours(where, points, X, categorical, "float64", device)
    known, codes = data.labels(labels, regression, point_labels)
    dtype = check_dtype(where, dtype)
    tolerance = 1e-12 if dtype == "float64" else 1e-6
    scores = np.zeros(data.points.shape)
    lost = []
    for chunk in data.chunks():
        squared = data.space.host(data.compute_squared(chunk).squared)
        scaled = squared / rho**2 if mu is None else (_compute_cosine_distance(data.points[chunk], data.X) / mu) ** 2
        weights = np.exp(-scaled / 2)
        for row, index in enumerate(range(chunk.start, chunk.stop)):
            kept = _select_rows(weights[row], squared[row], ridge, tolerance)
            if not (weights[row, kept] * squared[row, kept]).any():
                lost.append(index)
                continue
            # c(y) - c(x) or agreement: the intercept absorbs c(x).
            target = known[kept] - codes[index] if regression else np.where(known[kept] == codes[index], 1.0, -1.0)
            scores[index] = _fit_slopes(data, index, kept, weights[row, kept], target, ridge, dtype)
            if classifier == "step":
                scores[index] = _fit_step(data, index, kept, weights[row, kept], target, scores[index])
    if lost:
        warnings.warn(
            f"{where}: no row but equal ones keeps weight at {len(lost)} of {len(scores)} points (the first is point "
            f"{lost[0]}); their influence is given as 0. Take a larger {'rho' if mu is None else 'mu'}.",
            stacklevel=2,
        )
    return scores


def _check(where: str, classifier: str, regression: bool, mu: float | None, categorical) -> None:
    if mu is not None and len(tuple(categorical)):
        raise ShapelineError(
            f"{where}: the cosine kernel (mu) takes no categorical columns, named or of the dataset; use rho."
        )
    if classifier not in CLASSIFIERS:
        raise ShapelineError(f"{where}: unknown classifier {classifier!r}.{nearest(classifier, CLASSIFIERS)}")
    if classifier == "step" and regression:
        raise ShapelineError(f"{where}: classifier step is for classes, and these are of a regression; use line.")


def _fit_step(data: Neighbours, index: int, kept, weights, target, line: np.ndarray) -> np.ndarray:
    """Return the direction (n,) with the least weight on the wrong side among all steps (Gallant 1990: pocket)."""
    differences = data.differences(slice(index, index + 1), np.zeros(len(kept), int), kept).astype(np.float64)
    length = np.linalg.norm(differences, axis=1)
    differences, weights, target = differences[length > 0], weights[length > 0], target[length > 0]
    gradient = differences * (weights * target / length[length > 0])[:, None]
    best, least = line, np.inf
    for start in (line, gradient.sum(axis=0)):
        phi = start / (np.linalg.norm(start) or 1.0)
        for step in range(MAX_STEPS):
            wrong = (differences @ phi >= 0) != (target > 0)
            lost = weights[wrong].sum()
            if lost < least:
                best, least = phi, lost
            if not lost:
                break
            change = gradient[wrong].sum(axis=0)
            phi = phi + change / (np.linalg.norm(change) or 1.0) / np.sqrt(step + 1)
            phi /= np.linalg.norm(phi) or 1.0
    return best / (np.linalg.norm(best) or 1.0)


def _compute_cosine_distance(points: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return 1 - cos (c, m) in float64."""
    step = max(1, BLOCK_CELLS // X.shape[1])
    unit = [np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64)) for rows in (points, X)]
    parts = [points.astype(np.float64) @ X[a : a + step].astype(np.float64).T for a in range(0, len(X), step)]
    cosine = np.concatenate(parts, axis=1)
    scale = unit[0][:, None] * unit[1]
    return 1 - np.divide(cosine, scale, out=np.zeros_like(cosine), where=scale > 0)


def _select_rows(weights: np.ndarray, squared: np.ndarray, ridge: float, tolerance: float) -> np.ndarray:
    """Return the rows to fit: the others change the normal matrix by less than `tolerance` of its smallest part."""
    share = weights * (1 + squared)
    order = np.argsort(share)
    most = tolerance * min(ridge, share[squared > 0].sum())
    return np.sort(order[np.cumsum(share[order]) > most])


def _fit_slopes(data: Neighbours, index: int, kept, weights, target, ridge: float, dtype: str) -> np.ndarray:
    """Return ridge slopes (n,) float64 of a weighted fit around one point, with a free intercept.

    data: the points and the rows.
    index: of the point.
    kept: positions (k,) of the rows that are fitted.
    weights: of these rows (k,).
    target: the fitted values (k,).
    ridge: penalty of large slopes.
    dtype: "float32" or "float64", of the rows and their product; ill-conditioned float32 rows are fitted in float64.

    Raises ShapelineError where the ridge is too small for a fit.
    """
    total, root = weights.sum(), np.sqrt(weights)
    rows = np.empty((len(kept), data.X.shape[1]), dtype)
    middle = np.zeros(rows.shape[1])
    for part in _slice_rows(rows):
        change = data.differences(slice(index, index + 1), np.zeros(len(kept[part]), int), kept[part])
        middle += weights[part] @ change / total
        np.multiply(change, root[part, None], out=rows[part], casting="same_kind")
    for part in _slice_rows(rows):
        rows[part] -= root[part, None].astype(dtype) * middle.astype(dtype)
    target = (target - weights @ target / total) * root
    space = data.space
    dual = len(rows) <= rows.shape[1]
    rows, target = space.array(rows), space.array(target)
    rows = rows.T if dual else rows  # the matrix is rows.T @ rows + ridge, of the smaller size
    matrix = rows.T @ rows
    diagonal = space.xp.arange(len(matrix), device=matrix.device)
    matrix[diagonal, diagonal] += ridge
    right = target if dual else sum(space.cast(rows[part], "float64").T @ target[part] for part in _slice_rows(rows))
    if dtype == "float32" and _estimate_norm(space, matrix) > MAX_CONDITION * ridge:
        # Rounding of the rows would be visible, so the fit is in float64.
        target = space.host(target) / np.where(root > 0, root, 1)
        return _fit_slopes(data, index, kept, weights, target, ridge, "float64")
    try:
        solve = space.solver(matrix)
    except np.linalg.LinAlgError:
        raise ShapelineError(
            f"data_lime: ridge = {ridge:g} is too small beside the data for a fit at point {index}; take a larger one."
        ) from None
    solution = space.cast(solve(space.cast(right, dtype)), "float64")
    for _ in range(2 if dtype == "float32" else 0):  # corrected by residuals computed in float64
        residual = right - ridge * solution
        for part in _slice_rows(rows):
            block = space.cast(rows[part], "float64")
            residual -= block.T @ (block @ solution)
        solution = solution + space.cast(solve(space.cast(residual, dtype)), "float64")
    if not dual:
        return space.host(solution)
    return np.concatenate([space.host(space.cast(rows[part], "float64") @ solution) for part in _slice_rows(rows)])


def _estimate_norm(space: Space, matrix) -> float:
    """Return approximately the largest eigenvalue, by the power method."""
    vector = matrix.sum(1)
    for _ in range(8):
        vector = matrix @ (vector / space.xp.linalg.norm(vector))
    return float(space.xp.linalg.norm(vector))


def _slice_rows(rows) -> list[slice]:
    step = max(1, SLICE_CELLS // rows.shape[1])
    return [slice(a, min(a + step, len(rows))) for a in range(0, len(rows), step)]
