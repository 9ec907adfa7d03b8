"""Infidelity: how far scores are from telling what the model loses when features go (Yeh et al. 2019)."""

import numpy as np
import pandas as pd

from shapeline import engine, scores
from shapeline.errors import ShapelineError
from shapeline.features import Features
from shapeline.models import Classifier
from shapeline.references import Reference
from shapeline.seeds import seed_of

CHUNK = 64


def measure(
    rows: pd.DataFrame,
    model: Classifier,
    inputs: np.ndarray,
    buckets: list[tuple[Features, np.ndarray]],
    reference: Reference,
    form: engine.Form | None = None,
    value: str = "log_probability",
    seed: int = 0,
    samples: int = 100,
    progress=None,
) -> pd.DataFrame:
    """Mean squared difference of the removed features' scores and the value lost (Yeh et al. 2019, eq. 1).

    rows: score rows that succeeded, in the order of inputs (n, *input shape); buckets: features and the positions of
    the rows that have them. The perturbation puts a random set of features at the reference: its size is drawn from 1
    to d, the sets are the same for all labels and instances of equal d. Quantities, in squared units of the value,
    lower is better: `infidelity`, of the scores as they are, and `infidelity_scaled`, of the scores times the best
    number of each instance (§3.2), which does not ask that scores have the value's unit.
    """
    frames, done = [], 0
    for features, positions in buckets:
        part = rows.iloc[positions].reset_index(drop=True)
        removed = drawn(features.d, samples, seed)
        lost = np.zeros((len(part), samples))
        for start in range(0, len(part), CHUNK):
            chosen = slice(start, start + CHUNK)
            masks = np.concatenate([np.ones((1, features.d), bool), ~removed])
            asked = inputs[positions[chosen]], reference, masks, features, value
            try:
                values = engine.values(model, *asked, part["target"].to_numpy()[chosen], form)
            except ShapelineError as error:
                raise engine.by_id(error, part["instance"].to_numpy()[chosen]) from None
            lost[chosen] = values[:, :1] - values[:, 1:]
            if progress:
                progress(done + min(start + CHUNK, len(part)), (done + len(part)) * len(masks))
        done += len(part)
        told = scores.matrix(part) @ removed.T
        square = (told**2).mean(1)
        scale = np.divide((told * lost).mean(1), square, out=np.zeros(len(part)), where=square > 0)
        for name, factor in (("infidelity", 1.0), ("infidelity_scaled", scale[:, None])):
            error = ((factor * told - lost) ** 2).mean(1)
            frames.append(part[["instance", "repeat"]].assign(quantity=name, x=np.nan, value=error))
    return pd.concat(frames, ignore_index=True)


def drawn(d: int, samples: int, seed: int) -> np.ndarray:
    """Sets of features (samples, d) bool, each of a size drawn from 1 to d."""
    random = np.random.default_rng(seed_of(seed, "infidelity", d))
    sizes = random.integers(1, d + 1, samples)
    return random.permuted(np.tile(np.arange(d), (samples, 1)), axis=1) < sizes[:, None]
