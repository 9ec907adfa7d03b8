"""Comprehensiveness and sufficiency: the probability lost without the top features, and with them alone."""

import numpy as np
import pandas as pd

from shapeline import scores
from shapeline.errors import about
from shapeline.games.features import Features
from shapeline.games.game import Game

FRACTIONS = (0.01, 0.05, 0.1, 0.2, 0.5)  # the paper's bins of tokens
CHUNK = 64


def measure(
    rows: pd.DataFrame,
    game: Game,
    inputs: np.ndarray,
    buckets: list[tuple[Features, np.ndarray]],
    seed: int = 0,
    fractions: list[float] | None = None,
    progress=None,
) -> pd.DataFrame:
    """Change of the target's probability, averaged over the top fractions of features (DeYoung et al. 2020, §4.2).

    `comprehensiveness`, p(all) - p(all but the top), higher is better, and `sufficiency`, p(all) - p(the top
    alone), lower is better; both in -1 to 1. At least one feature is the top.
    """
    frames, done = [], 0
    for features, positions in buckets:
        part = rows.iloc[positions].reset_index(drop=True)
        asked = game.having(features=features, value="probability")
        counts = np.maximum(1, np.round(np.asarray(fractions or FRACTIONS) * features.d)).astype(int)
        ranks = scores.rank_features(scores.matrix(part), part["instance"].to_numpy(), seed)
        keys, lost = part[["instance", "repeat"]], np.zeros((len(part), 2))
        for start in range(0, len(part), CHUNK):
            chosen = slice(start, start + CHUNK)
            top = ranks[chosen, None, :] < counts[:, None]
            masks = np.concatenate([np.ones((len(top), 1, features.d), bool), ~top, top], 1)
            with about(part["instance"].to_numpy()[chosen]):
                values = asked.values(inputs[positions[chosen]], masks, part["target"].to_numpy()[chosen])
            lost[chosen] = (values[:, :1] - values[:, 1:]).reshape(len(top), 2, -1).mean(2)
            if progress:
                progress(done + min(start + CHUNK, len(part)), (done + len(part)) * masks.shape[1])
        done += len(part)
        for name, column in zip(("comprehensiveness", "sufficiency"), lost.T, strict=True):
            frames.append(keys.assign(statistic=name, x=np.nan, value=column))
    return pd.concat(frames, ignore_index=True)
