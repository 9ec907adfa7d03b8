"""The Gaussian process where the pairs are many: relevances chosen on some of them, three factorisations in all."""

import numpy as np

from shapeline.designs.gaussian_fit import (
    LEARNED,
    STEPS,
    Data,
    Fit,
    add_rest,
    ascend,
    best_of,
    compute_pair_variance,
    compute_score_variance,
    even_relevance,
    fit_reaches,
    mixture,
    relevance_of,
)
from shapeline.designs.gaussian_held import held_out
from shapeline.designs.gaussian_moments import correlation, score_covariance, score_variance

MANY = 700  # pairs
SUBSET = 256


def explain_large(data: Data) -> Fit:
    """Posterior of the scores: the mixture of equal relevances, of those in proportion to scores, and of learned ones,
    which are chosen on some of the pairs, as is the factor on the variances; both where these are three per feature."""
    n, m, d = data.shape
    some = data.only(np.r_[0, np.sort(np.random.default_rng(0).choice(np.arange(1, m), SUBSET - 1, replace=False))])
    even = best_of(fit_reaches(some, lambda reach: np.full((n, d), even_relevance(d, reach))))
    fitted = [_posterior(data, *even)]
    sized = best_of(fit_reaches(some, lambda reach: relevance_of(fitted[0].scores, reach)))
    fitted.append(_posterior(data, *sized).penalise(LEARNED * d))
    if SUBSET < 3 * d:
        return mixture(fitted)
    fitted.append(_posterior(data, *ascend(some, *sized, STEPS)).penalise(LEARNED * d))
    return mixture(fitted).widen(held_out(some, *even))


def _posterior(data: Data, relevance: np.ndarray, rest: np.ndarray) -> Fit:
    """The fit of all instances, one after another."""
    parts = [_posterior_of(data, place, relevance, rest) for place in range(len(rest))]
    return Fit(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _posterior_of(data: Data, place: int, relevance: np.ndarray, rest: np.ndarray) -> tuple[np.ndarray, ...]:
    """What a Fit has of one instance, by one Cholesky factor in place."""
    from scipy.linalg import cholesky, solve_triangular

    one = slice(place, place + 1)
    parts = (data.rows, data.odd, data.noise, data.rest, data.outputs)
    own, relevance, rest = Data(*(part[one] for part in parts)), relevance[one], rest[one]
    odd, (m, d) = own.odd[0], own.rows.shape[1:]
    matrix = add_rest(correlation(own.rows, relevance), own, rest)[0]
    factor = cholesky(matrix, lower=True, overwrite_a=True, check_finite=False)
    cross = score_covariance(own.rows, relevance)[0] + compute_pair_variance(own, rest)[0][:, None] * own.rest[0]
    right = np.column_stack([odd, cross, own.outputs[0].T])
    white = solve_triangular(factor, right, lower=True, check_finite=False, overwrite_b=True)
    white, seen, outputs = white[:, 0], white[:, 1 : d + 1], white[:, d + 1 :]
    left = score_variance(relevance) + compute_score_variance(d, rest) - (seen**2).sum(axis=0)
    left, scale = np.maximum(left, 0), white @ white / m + 1e-300
    value = m * np.log(scale) + 2 * np.log(np.diagonal(factor)).sum()
    of_outputs = (outputs.T @ seen)[None], left[None] * (outputs**2).mean(axis=0)[None, :, None]
    return np.array([value]), (white @ seen)[None], left * scale, *of_outputs
