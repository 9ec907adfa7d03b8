"""Faithfulness: changes of the explained class's log-odds as the top features are masked, or only they are kept."""

import json

import numpy as np
import pandas as pd

from shapeline import scores
from shapeline.designs.orders import INSERTION_ORDER, MASKING_ORDER
from shapeline.errors import locate
from shapeline.games.features import Features
from shapeline.games.game import Game

FRACTIONS = (0.01, 0.02, 0.04, 0.06, 0.08, 0.12, 0.16, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0)
CHUNK_SIZE = 64


def measure(
    rows: pd.DataFrame,
    game: Game,
    inputs: np.ndarray,
    buckets: list[tuple[Features, np.ndarray]],
    seed: int = 0,
    fractions: list[float] | None = None,
    progress=None,
    references: dict[str, Game] | None = None,
) -> pd.DataFrame:
    """Return changes of log-odds(target) from the full input, nats, per instance and fraction (Chen et al. 2018, §5).

    `deletion` (top fraction at the reference; lower is better), `insertion` (the rest; higher is better), and their
    areas over x, also in the games of other `references`. fractions: by default every count where d <= 20. With the
    values of all coalitions also `best_deletion`, `best_insertion` and areas, of the optimal orders (`designs.orders`).
    """
    parts = [_measure(rows, game, inputs, buckets, seed, fractions, progress)]
    if game.features is not None and fractions is None:
        parts.append(_measure_ceiling(rows, game, inputs))
    for name, other in (references or {}).items():
        areas = _measure(rows, other, inputs, buckets, seed, fractions, progress)
        areas = areas[areas["statistic"].isin(("deletion_auc", "insertion_auc"))]
        parts.append(areas.assign(statistic=areas["statistic"] + f"_{name}"))
    return pd.concat(parts, ignore_index=True)


def _measure(rows, game: Game, inputs, buckets, seed, fractions, progress) -> pd.DataFrame:
    """Measure with only the game's reference, as `measure`."""
    frames, done, evaluations = [], 0, 0
    for features, positions in buckets:
        d = features.d
        if game.features is None:  # curves of instances with different d share their fractions
            x = np.r_[0.0, sorted({*(fractions or FRACTIONS), 1.0})]
            counts = np.maximum(np.round(x * d), x > 0).astype(int)
        else:
            rounded = np.maximum(1, np.round(np.asarray(fractions or FRACTIONS) * d))
            counts = np.arange(d + 1) if fractions is None and d <= 20 else np.unique(np.r_[0, rounded, d]).astype(int)
            x = counts / d
        part = rows.iloc[positions].reset_index(drop=True)
        ranks = scores.rank_features(scores.matrix(part), part["instance"].to_numpy(), seed)
        report = progress and (lambda n, evaluations, to=(done, evaluations): progress(to[0] + n, to[1] + evaluations))
        part_game = game.having(features=features, value="log_odds")
        curves = _compute_curves(part, part_game, inputs[positions], (ranks, ranks), counts, report)
        done, evaluations = done + len(part), evaluations + 2 * len(counts) * len(part)
        frames += _stack_curves(part[["instance", "repeat"]], x, curves)
    return pd.concat(frames, ignore_index=True)


def _measure_ceiling(rows: pd.DataFrame, game: Game, inputs: np.ndarray) -> pd.DataFrame:
    """Return the curves of the optimal orders, for the rows with them."""
    texts = rows["details"] if "details" in rows else [None] * len(rows)
    details = [json.loads(text) if isinstance(text, str) else {} for text in texts]
    known = np.flatnonzero([MASKING_ORDER in row for row in details])
    if not len(known):
        return rows.iloc[:0][["instance", "repeat"]].assign(statistic="", x=0.0, value=0.0)
    part = rows.iloc[known].reset_index(drop=True)
    # From an order of features to the rank of each.
    ranks = tuple(
        np.argsort([details[row][name] for row in known], axis=1) for name in (MASKING_ORDER, INSERTION_ORDER)
    )
    counts = np.arange(game.features.d + 1)
    curves = _compute_curves(part, game.having(value="log_odds"), inputs[known], ranks, counts, None)
    best = {f"best_{name}": curve for name, curve in curves.items()}
    return pd.concat(_stack_curves(part[["instance", "repeat"]], counts / game.features.d, best))


def _stack_curves(keys: pd.DataFrame, x: np.ndarray, curves: dict[str, np.ndarray]) -> list[pd.DataFrame]:
    """Return curves (instances, x) by name, and their areas, as rows."""
    along, frames = keys.loc[keys.index.repeat(len(x))], []
    for name, curve in curves.items():
        frames.append(along.assign(statistic=name, x=np.tile(x, len(keys)), value=curve.ravel()))
        frames.append(keys.assign(statistic=f"{name}_auc", x=np.nan, value=np.trapezoid(curve, x, axis=1)))
    return frames


def _compute_curves(rows, game: Game, inputs, ranks, counts, progress) -> dict[str, np.ndarray]:
    """Return deletion and insertion curves (instances, counts); ranks: of each feature, the first 0."""
    parts = []
    for start in range(0, len(rows), CHUNK_SIZE):
        part = slice(start, start + CHUNK_SIZE)
        masked, kept = (rank[part, None, :] < counts[:, None] for rank in ranks)  # (instances, counts, d)
        targets = rows["target"].to_numpy()[part]
        masks = np.concatenate([~masked, kept], 1)
        with locate(rows["instance"].to_numpy()[part]):
            values = game.values(inputs[part], masks, targets)
        masking, insertion = np.split(values - values[:, :1], 2, axis=1)  # the first mask removes nothing
        parts.append((masking, insertion))
        if progress:
            progress(min(start + CHUNK_SIZE, len(rows)), 2 * len(counts) * min(start + CHUNK_SIZE, len(rows)))
    masking, insertion = (np.concatenate(kind) for kind in zip(*parts, strict=True))
    return {"deletion": masking, "insertion": insertion}
