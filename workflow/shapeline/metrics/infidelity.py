"""Infidelity of scores to changes of the model's output, and sensitivity to small perturbations (Yeh et al. 2019)."""

import dataclasses
import functools

import numpy as np
import pandas as pd

from shapeline import scores
from shapeline.attribution.attribution_job import explain_rows
from shapeline.attribution.context import AttributionSettings, ExplanationContext
from shapeline.datasets.loading import Dataset, blocks
from shapeline.datasets.sources import TRAIN
from shapeline.errors import locate
from shapeline.games.features import Features
from shapeline.games.game import Game
from shapeline.seeds import seed_of

CHUNK_SIZE = 64


def measure(
    rows: pd.DataFrame,
    game: Game,
    inputs: np.ndarray,
    buckets: list[tuple[Features, np.ndarray]],
    seed: int = 0,
    samples: int = 100,
    progress=None,
) -> pd.DataFrame:
    """Return the mean squared difference of removed features' scores and lost value (Yeh et al. 2019, eq. 1).

    Random sets of features are at the reference, equal for all methods and independent between instances, which are
    the units of intervals and tests. `infidelity` of the scores, and `infidelity_scaled` of the scores times each
    instance's optimal factor (§3.2), lower is better.
    """
    frames, done = [], 0
    for features, positions in buckets:
        part = rows.iloc[positions].reset_index(drop=True)
        part_game = game.having(features=features)
        lost, predicted = np.zeros((2, len(part), samples))
        own_scores = scores.matrix(part)[:, :, None]
        for start in range(0, len(part), CHUNK_SIZE):
            chosen = slice(start, start + CHUNK_SIZE)
            instances = part["instance"].to_numpy()[chosen]
            removed = np.stack([sample_sets(features.d, samples, seed, instance) for instance in instances])
            masks = np.concatenate([np.ones((len(removed), 1, features.d), bool), ~removed], axis=1)
            with locate(instances):
                values = part_game.values(inputs[positions[chosen]], masks, part["target"].to_numpy()[chosen])
            lost[chosen] = values[:, :1] - values[:, 1:]
            predicted[chosen] = (removed @ own_scores[chosen])[..., 0]
            if progress:
                progress(done + min(start + CHUNK_SIZE, len(part)), (done + len(part)) * (samples + 1))
        done += len(part)
        square = (predicted**2).mean(1)
        scale = np.divide((predicted * lost).mean(1), square, out=np.zeros(len(part)), where=square > 0)
        for name, factor in (("infidelity", 1.0), ("infidelity_scaled", scale[:, None])):
            error = ((factor * predicted - lost) ** 2).mean(1)
            frames.append(part[["instance", "repeat"]].assign(statistic=name, x=np.nan, value=error))
    return pd.concat(frames, ignore_index=True)


def sample_sets(d: int, samples: int, seed: int, instance: int) -> np.ndarray:
    """Return an instance's sets of features (samples, d) bool, with sizes sampled from 1 to d."""
    random = np.random.default_rng(seed_of(seed, "infidelity", d, instance))
    sizes = random.integers(1, d + 1, samples)
    return random.permuted(np.tile(np.arange(d), (samples, 1)), axis=1) < sizes[:, None]


def measure_sensitivity(
    rows: pd.DataFrame,
    context: ExplanationContext,
    share: pd.DataFrame,
    settings: AttributionSettings,
    entry: str,
    samples: int = 10,
    radius: float = 0.02,
    progress=None,
) -> pd.DataFrame:
    """Return the largest |scores(x + e) - scores(x)| / |scores(x)| over random e, L2 norms (Yeh et al. 2019, def. 3).

    e is uniform in +- `radius` of the training inputs' range, equal for all methods; the explained class is fixed.
    `max_sensitivity`, lower is better; NaN where all scores are 0. Perturbed inputs that fail are omitted.
    """
    keys = ["instance", "target"]
    rows = rows[rows["repeat"] == rows["repeat"].min()].sort_values("budget").drop_duplicates(keys, keep="last")
    own_keys = [key for key in keys if key in share]
    share = rows[own_keys].merge(share, on=own_keys)
    method = dataclasses.replace(settings.method, budgets=settings.method.budgets[-1:])
    batch_settings = dataclasses.replace(settings, method=method, repeats=1, timing="batch")
    base = scores.matrix(rows)
    size = np.linalg.norm(base, axis=1)
    inputs = context.inputs(share)
    scale = radius * _measure_range(context.dataset)
    worst, noisy = np.zeros(len(rows)), inputs.copy()
    for sample in range(samples):
        for index, instance in enumerate(share["instance"]):
            random = np.random.default_rng(seed_of(settings.game.seed, "sensitivity", sample, int(instance)))
            noisy[index] = inputs[index] + (scale * random.uniform(-1, 1, inputs.shape[1:])).astype(inputs.dtype)
        explained = rows[keys].merge(explain_rows(context, share, batch_settings, entry, inputs=noisy), on=keys)
        ok = (explained["status"] == "ok").to_numpy()
        distance = np.linalg.norm(np.stack(explained["scores"][ok]) - base[ok], axis=1) if ok.any() else 0.0
        worst[ok] = np.maximum(worst[ok], distance)
        if progress:
            progress((sample + 1) * len(rows) // samples, int(explained["evaluations"].sum()) * (sample + 1))
    relative = np.divide(worst, size, out=np.full(len(rows), np.nan), where=size > 0)
    return rows[["instance", "repeat"]].assign(statistic="max_sensitivity", x=np.nan, value=relative)


@functools.lru_cache(maxsize=1)  # rows are measured a few at a time
def _measure_range(dataset: Dataset) -> np.ndarray:
    """Return the range of the training inputs: one number, or per column of a table, 0 for a category."""
    axis = 0 if dataset.inputs.ndim == 2 else None
    training = np.flatnonzero(dataset.split == TRAIN)
    ends = [(np.nanmin(rows, axis=axis), np.nanmax(rows, axis=axis)) for rows in blocks(dataset.inputs, training)]
    low, high = (np.stack(ends_of_blocks) for ends_of_blocks in zip(*ends, strict=True))
    scale = np.nanmax(high, axis=0) - np.nanmin(low, axis=0)
    if axis == 0:  # categories are not perturbed
        scale[list(dataset.card.get("categorical") or ())] = 0.0
    return scale
