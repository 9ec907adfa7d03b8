"""The Gaussian process where the pairs are many: relevances chosen on some of the pairs, two factorisations in all."""

import numpy as np

from shapeline.designs.gaussian_fit import (
    Data,
    Fit,
    best_of,
    even_relevance,
    over_reaches,
    relevance_of,
    with_rest,
)
from shapeline.designs.gaussian_moments import correlation, rest_variance, score_covariance, score_variance

MANY = 700  # pairs
SUBSET = 256


def explain_large(data: Data) -> Fit:
    """Posterior of the scores: equal relevances, then in proportion to the scores; instance by instance."""
    m = data.shape[1]
    some = data.only(np.r_[0, np.sort(np.random.default_rng(0).choice(np.arange(1, m), SUBSET - 1, replace=False))])
    n, _, d = data.shape
    relevance, rest = best_of(over_reaches(some, lambda reach: np.full((n, d), even_relevance(d, reach))))
    first = np.concatenate([_posterior(data, i, relevance[i : i + 1], rest[i : i + 1], False)[0] for i in range(n)])
    relevance, rest = best_of(over_reaches(some, lambda reach: relevance_of(first, reach)))
    parts = [_posterior(data, i, relevance[i : i + 1], rest[i : i + 1], True) for i in range(n)]
    return Fit(np.zeros(n), *(np.concatenate(part) for part in zip(*parts, strict=True)))


def _posterior(data: Data, instance: int, relevance: np.ndarray, rest: np.ndarray, spread: bool):
    """Scores (1, d) and, where `spread`, their variances (1, d) and the outputs' (1, q, d), by one Cholesky factor."""
    from scipy.linalg import cholesky, solve_triangular

    own_part = slice(instance, instance + 1)
    rows, odd = data.rows[own_part], data.odd[instance]
    own = Data(rows, data.odd[own_part], data.noise[own_part], data.rest[own_part], data.outputs[own_part])
    matrix = with_rest(correlation(rows, relevance), own, rest)[0]
    factor = cholesky(matrix, lower=True, overwrite_a=True, check_finite=False)
    cross = score_covariance(rows, relevance)[0] + rest[0] * data.rest[instance]
    white = solve_triangular(factor, odd, lower=True, check_finite=False)
    weight = solve_triangular(factor, white, lower=True, trans=1, check_finite=False)
    scores = (weight @ cross)[None]
    if not spread:
        return scores, None, None, None
    seen = solve_triangular(factor, cross, lower=True, check_finite=False, overwrite_b=True)
    left = score_variance(relevance) + rest[0] * rest_variance(rows.shape[2]) - (seen**2).sum(axis=0)
    left = np.maximum(left, 0)
    outputs = solve_triangular(factor, own.outputs[0].T, lower=True, check_finite=False)
    of_outputs = (outputs.T @ seen)[None], (left * (outputs**2).mean(axis=0)[:, None])[None]
    return scores, left * (white @ white / len(odd)), *of_outputs
