"""Effects of removing features on the explained class: ablation curves, comprehensiveness and sufficiency."""

import numpy as np
import pandas as pd

from shapeline import scores
from shapeline.errors import locate
from shapeline.games.features import Features
from shapeline.games.game import Game

MAX_SIZES = 200  # numbers of removed features at which a curve is measured
MAX_MASK_BYTES = 1 << 26  # masks per call of the engine
OUTPUTS = ("logit", "probability")
FRACTIONS = (0.01, 0.05, 0.1, 0.2, 0.5)  # the paper's bins of tokens
CHUNK_SIZE = 64


def measure(
    rows: pd.DataFrame,
    game: Game,
    inputs: np.ndarray,
    buckets: list[tuple[Features, np.ndarray]],
    seed: int = 0,
    sizes: int = MAX_SIZES,
    progress=None,
    longest: int | None = None,
) -> pd.DataFrame:
    """Return logit and probability without the top k positive features, over the full input's (Teneggi et al. 2021).

    x is at most `sizes` counts from 1 to d, evenly on a logarithmic axis. Quantities `logit`, `probability` and
    their areas, means over that axis, lower is better (section F.2). Where the full input's logit is not positive its
    shares are NaN.
    """
    largest = longest or max(features.d for features, _ in buckets)
    counts = np.unique(np.round(np.geomspace(1, largest, sizes)).astype(int))
    axis = np.log(counts / counts[0]) / max(np.log(counts[-1] / counts[0]), 1e-300)
    frames, done, evaluations = [], 0, 0
    for features, positions in buckets:
        part = rows.iloc[positions].reset_index(drop=True)
        positive = np.array([(np.asarray(row) > 0).sum() for row in part["scores"]])
        # Instances with similar numbers of positive features share a chunk, so that few masks are evaluated in vain.
        order = np.argsort(positive, kind="stable")
        step = max(1, MAX_MASK_BYTES // ((_count_needed(positive, counts) + 1) * features.d))
        for rows_of in (order[start : start + step] for start in range(0, len(order), step)):
            part_game = game.having(features=features)
            chunk, n_positive = part.iloc[rows_of], positive[rows_of]
            curves = _compute_curves(chunk, n_positive, part_game, inputs[positions[rows_of]], seed, counts)
            keys = chunk[["instance", "repeat"]]
            for name, curve in curves.items():
                repeated = keys.loc[keys.index.repeat(len(counts))]
                frames.append(
                    repeated.assign(statistic=name, x=np.tile(counts.astype(float), len(keys)), value=curve.ravel())
                )
                area = np.trapezoid(curve, axis, axis=1) if len(counts) > 1 else curve[:, 0]
                frames.append(keys.assign(statistic=f"{name}_area", x=np.nan, value=area))
            done += len(chunk)
            evaluations += len(OUTPUTS) * len(chunk) * (_count_needed(n_positive, counts) + 1)
            if progress:
                progress(done, evaluations)
    return pd.concat(frames, ignore_index=True)


def _count_needed(positive: np.ndarray, counts: np.ndarray) -> int:
    """Return the number of counts to evaluate for these instances: later ones remove all positive features."""
    most = positive.max()
    return int(np.searchsorted(counts, most)) + 1 if most else 0


def _compute_curves(rows, positive, game: Game, inputs, seed, counts) -> dict[str, np.ndarray]:
    """Return shares of the full input's logit and probability, each (instances, counts)."""
    ranks = scores.rank_features(scores.matrix(rows), rows["instance"].to_numpy(), seed)
    targets = rows["target"].to_numpy()
    needed = np.r_[0, counts[: _count_needed(positive, counts)]]  # the first mask removes nothing
    removed = np.minimum(needed, positive[:, None])
    step = max(1, MAX_MASK_BYTES // (len(rows) * game.features.d))
    collected = {name: [] for name in OUTPUTS}
    for start in range(0, len(needed), step):
        masks = ranks[:, None, :] >= removed[:, start : start + step, None]
        for name, parts in collected.items():
            with locate(rows["instance"].to_numpy()):
                parts.append(game.having(value=name).values(inputs, masks, targets))
    curves = {}
    for name, parts in collected.items():
        values = np.concatenate(parts, axis=1)
        full = values[:, :1]
        share = np.divide(values, full, out=np.full(values.shape, np.nan), where=full > 0)
        # Curves are constant after the last evaluated mask.
        curves[name] = share[:, np.minimum(np.arange(len(counts)) + 1, share.shape[1] - 1)]
    return curves


def measure_erasure(
    rows: pd.DataFrame,
    game: Game,
    inputs: np.ndarray,
    buckets: list[tuple[Features, np.ndarray]],
    seed: int = 0,
    fractions: list[float] | None = None,
    progress=None,
) -> pd.DataFrame:
    """Return changes of the target's probability, averaged over top fractions of features (DeYoung et al. 2020, §4.2).

    `comprehensiveness`, p(all) - p(all but the top), higher is better, and `sufficiency`, p(all) - p(the top
    alone), lower is better; both in -1 to 1. At least one feature is the top.
    """
    frames, done = [], 0
    for features, positions in buckets:
        part = rows.iloc[positions].reset_index(drop=True)
        part_game = game.having(features=features, value="probability")
        counts = np.maximum(1, np.round(np.asarray(fractions or FRACTIONS) * features.d)).astype(int)
        ranks = scores.rank_features(scores.matrix(part), part["instance"].to_numpy(), seed)
        keys, lost = part[["instance", "repeat"]], np.zeros((len(part), 2))
        for start in range(0, len(part), CHUNK_SIZE):
            chosen = slice(start, start + CHUNK_SIZE)
            top = ranks[chosen, None, :] < counts[:, None]
            masks = np.concatenate([np.ones((len(top), 1, features.d), bool), ~top, top], 1)
            with locate(part["instance"].to_numpy()[chosen]):
                values = part_game.values(inputs[positions[chosen]], masks, part["target"].to_numpy()[chosen])
            lost[chosen] = (values[:, :1] - values[:, 1:]).reshape(len(top), 2, -1).mean(2)
            if progress:
                progress(done + min(start + CHUNK_SIZE, len(part)), (done + len(part)) * masks.shape[1])
        done += len(part)
        for name, column in zip(("comprehensiveness", "sufficiency"), lost.T, strict=True):
            frames.append(keys.assign(statistic=name, x=np.nan, value=column))
    return pd.concat(frames, ignore_index=True)
