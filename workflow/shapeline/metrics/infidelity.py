"""Infidelity: how far scores are from telling what the model loses when features go (Yeh et al. 2019)."""

import numpy as np
import pandas as pd

from shapeline import scores
from shapeline.errors import about
from shapeline.games.features import Features
from shapeline.games.game import Game
from shapeline.seeds import seed_of

CHUNK = 64


def measure(
    rows: pd.DataFrame,
    game: Game,
    inputs: np.ndarray,
    buckets: list[tuple[Features, np.ndarray]],
    seed: int = 0,
    samples: int = 100,
    progress=None,
) -> pd.DataFrame:
    """Mean squared difference of the removed features' scores and the value lost (Yeh et al. 2019, eq. 1).

    A random set of features is at the reference, the same for all methods. `infidelity` of the scores, and
    `infidelity_scaled` of the scores times each instance's best number (§3.2), lower is better.
    """
    frames, done = [], 0
    for features, positions in buckets:
        part = rows.iloc[positions].reset_index(drop=True)
        asked = game.having(features=features)
        removed = sample_sets(features.d, samples, seed)
        lost = np.zeros((len(part), samples))
        for start in range(0, len(part), CHUNK):
            chosen = slice(start, start + CHUNK)
            masks = np.concatenate([np.ones((1, features.d), bool), ~removed])
            with about(part["instance"].to_numpy()[chosen]):
                values = asked.values(inputs[positions[chosen]], masks, part["target"].to_numpy()[chosen])
            lost[chosen] = values[:, :1] - values[:, 1:]
            if progress:
                progress(done + min(start + CHUNK, len(part)), (done + len(part)) * len(masks))
        done += len(part)
        predicted = scores.matrix(part) @ removed.T
        square = (predicted**2).mean(1)
        scale = np.divide((predicted * lost).mean(1), square, out=np.zeros(len(part)), where=square > 0)
        for name, factor in (("infidelity", 1.0), ("infidelity_scaled", scale[:, None])):
            error = ((factor * predicted - lost) ** 2).mean(1)
            frames.append(part[["instance", "repeat"]].assign(statistic=name, x=np.nan, value=error))
    return pd.concat(frames, ignore_index=True)


def sample_sets(d: int, samples: int, seed: int) -> np.ndarray:
    """Sets of features (samples, d) bool, each of a size drawn from 1 to d."""
    random = np.random.default_rng(seed_of(seed, "infidelity", d))
    sizes = random.integers(1, d + 1, samples)
    return random.permuted(np.tile(np.arange(d), (samples, 1)), axis=1) < sizes[:, None]
