"""Quality of scores of prompt parts: error to exact values, and the metrics of context attribution."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from shapeline.designs.design import whole
from shapeline.errors import ShapelineError
from shapeline.generation.game import PromptGame
from shapeline.metrics.error import correlation, match_scale

MAX_EXACT = 12  # parts
TIES = 1e-12
ROUNDING = 1e-6  # of the largest score: what single precision may hide
WITHOUT_UNIT = ("h_shap", "attention_rollout", "attn_lrp")  # methods whose scores are not in nats


def rmse(scores: np.ndarray, exact: np.ndarray) -> float:
    """Return the root mean square error of scores (d,) in nats."""
    return float(np.sqrt(np.mean((np.asarray(scores) - exact) ** 2)))


def top_k_drop(game: PromptGame, scores: np.ndarray, k: int = 3) -> float:
    """Return by how much the value falls when the k parts of largest score are removed (Cohen-Wang et al. 2024)."""
    k = whole("top_k_drop", "k", k, 1)
    masks = np.ones((2, game.d), bool)
    masks[1, np.argsort(-np.asarray(scores), kind="stable")[:k]] = False
    full, removed = game.totals(masks)
    return float(full - removed)


def datamodeling_score(game: PromptGame, scores: np.ndarray, samples: int = 64, seed: int = 0) -> float:
    """Return the linear datamodeling score: Spearman's correlation of the sum of the kept parts' scores with the value,
    over fresh coalitions that keep each part with probability 1/2 (Cohen-Wang et al. 2024); NaN where either is
    constant."""
    masks = np.random.default_rng([seed, 1]).random((whole("datamodeling_score", "samples", samples, 2), game.d)) < 0.5
    predicted, actual = _ranks(masks @ np.asarray(scores, float)), _ranks(game.totals(masks))
    if np.ptp(predicted) < TIES or np.ptp(actual) < TIES:
        return float("nan")
    return float(np.corrcoef(predicted, actual)[0, 1])


def curve(game: PromptGame, scores: np.ndarray, kind: str = "deletion") -> np.ndarray:
    """Return the values (d + 1,) as parts are removed ("deletion") or inserted ("insertion") by falling score."""
    if kind not in ("deletion", "insertion"):
        raise ShapelineError(f"measures: kind is {kind!r}; give 'deletion' or 'insertion'.")
    rank = np.argsort(np.argsort(-np.asarray(scores), kind="stable"))
    inserted = rank < np.arange(game.d + 1)[:, None]
    return game.totals(inserted if kind == "insertion" else ~inserted)


def citation(scores: np.ndarray, support: Iterable[int], k: int | None = None) -> tuple[float, float]:
    """Return precision and recall of the k parts of largest positive score among the supporting parts, k as many."""
    scores = np.asarray(scores)
    given = set(support) if isinstance(support, Iterable) else set()
    if not given or not given <= set(range(len(scores))):
        raise ShapelineError(
            f"citation: support is {support!r:.60}; give a list of numbers of parts, 0 to {len(scores) - 1}."
        )
    best = np.argsort(-scores, kind="stable")[: len(given) if k is None else whole("citation", "k", k, 1)]
    cited = {int(place) for place in best if scores[place] > 0}
    hits = len(cited & given)
    return (hits / len(cited) if cited else 0.0), hits / len(given)


def measure(
    explanation: Any, exact: Any = None, support: Iterable[int] | None = None, seed: int = 0
) -> dict[str, float]:
    """Return every measure of a PromptExplanation that can be computed, by name.

    exact: the explanation by exact values, for `rmse`, `spearman` and `coverage` (of 95 % intervals), of methods whose
    scores are in nats. support: numbers of the supporting parts, for `precision` and `recall`. `deletion_auc` and
    `insertion_auc` are areas of the change of the value from the whole prompt. Coalitions are evaluated where the game
    does not know them: 32 fresh ones of `datamodeling` and those of the curves.
    """
    game, scores = explanation.game, explanation.totals
    unit = 1.0 if explanation.value != "mean" else 1 / max(np.sum(game.signs > 0), 1)
    steps = np.linspace(0, 1, game.d + 1)
    deletion, insertion = (curve(game, scores, kind) for kind in ("deletion", "insertion"))
    result = {
        "deletion_auc": unit * float(np.trapezoid(deletion - deletion[0], steps)),
        "insertion_auc": unit * float(np.trapezoid(insertion - insertion[-1], steps)),
        "top_k_drop": unit * top_k_drop(game, scores, min(3, game.d)),
        "datamodeling": datamodeling_score(game, scores, 32, seed),
    }
    if exact is not None:
        ranks = (np.atleast_2d(_ranks(one)) for one in (scores, exact.totals))
        result["spearman"] = float(correlation(*ranks)[0])
        if explanation.method not in WITHOUT_UNIT:
            is_random = explanation.method == "random"  # which has no scale of its own
            result["rmse"] = rmse(match_scale(scores, exact.totals) if is_random else scores, exact.totals)
        half = explanation.half_widths
        if half is not None and explanation.evaluations < 2**game.d:
            inside = np.abs(scores - exact.totals) <= half + ROUNDING * np.abs(exact.totals).max()
            result["coverage"] = float(np.mean(inside))
    if support is not None:
        result["precision"], result["recall"] = citation(scores, support)
    return result


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks, the mean of them for values that are equal up to rounding."""
    size = np.abs(values).max()
    return pd.Series(np.round(values / (size or 1.0), 9)).rank().to_numpy()
