"""Comprehensiveness and sufficiency: the probability lost without the top features, and with them alone."""

import numpy as np
import pandas as pd

from shapeline import engine, scores
from shapeline.errors import ShapelineError
from shapeline.features import Features
from shapeline.metrics.ties import ranked
from shapeline.models import Classifier
from shapeline.references import Reference

FRACTIONS = (0.01, 0.05, 0.1, 0.2, 0.5)  # the paper's bins of tokens
CHUNK = 64


def measure(
    rows: pd.DataFrame,
    model: Classifier,
    inputs: np.ndarray,
    buckets: list[tuple[Features, np.ndarray]],
    reference: Reference,
    form: engine.Form | None = None,
    seed: int = 0,
    fractions: list[float] | None = None,
    progress=None,
) -> pd.DataFrame:
    """Change of the target's probability, averaged over the top fractions of features (DeYoung et al. 2020, §4.2).

    rows: score rows that succeeded, in the order of inputs (n, *input shape); buckets: features and the positions of
    the rows that have them. Quantities: `comprehensiveness`, p(all) - p(all but the top), higher is better, and
    `sufficiency`, p(all) - p(the top alone), lower is better; both in -1 to 1. At least one feature is the top. Ties
    are broken at random, by a seed an instance.
    """
    frames, done = [], 0
    for features, positions in buckets:
        part = rows.iloc[positions].reset_index(drop=True)
        counts = np.maximum(1, np.round(np.asarray(fractions or FRACTIONS) * features.d)).astype(int)
        ranks = ranked(scores.matrix(part), part["instance"].to_numpy(), seed)
        keys, lost = part[["instance", "repeat"]], np.zeros((len(part), 2))
        for start in range(0, len(part), CHUNK):
            chosen = slice(start, start + CHUNK)
            top = ranks[chosen, None, :] < counts[:, None]
            masks = np.concatenate([np.ones((len(top), 1, features.d), bool), ~top, top], 1)
            asked = inputs[positions[chosen]], reference, masks, features, "probability"
            try:
                values = engine.values(model, *asked, part["target"].to_numpy()[chosen], form)
            except ShapelineError as error:
                raise engine.by_id(error, part["instance"].to_numpy()[chosen]) from None
            lost[chosen] = (values[:, :1] - values[:, 1:]).reshape(len(top), 2, -1).mean(2)
            if progress:
                progress(done + min(start + CHUNK, len(part)), (done + len(part)) * masks.shape[1])
        done += len(part)
        for name, column in zip(("comprehensiveness", "sufficiency"), lost.T, strict=True):
            frames.append(keys.assign(quantity=name, x=np.nan, value=column))
    return pd.concat(frames, ignore_index=True)
