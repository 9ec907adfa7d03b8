"""Sanity: how alike the scores of the trained model and of a randomised one are; they ought to differ."""

import numpy as np
import pandas as pd

from shapeline import scores
from shapeline.games.features import Features
from shapeline.metrics.error import correlation, mean_ranks

WINDOW = 7  # pixels: the usual side of SSIM's window


def measure(
    rows: pd.DataFrame, randomised: dict[int, pd.DataFrame], buckets: list[tuple[Features, np.ndarray]] | None = None
) -> pd.DataFrame:
    """Similarity of scores before and after layers were randomised, per instance, repeat and number of layers (x).

    Adebayo et al. 2018, §3: `rank_correlation`, `rank_correlation_absolute`, NaN where constant; of images `ssim`
    of both maps divided by their largest size. An instance that either lacks is left out.
    """
    frames = [rows.iloc[:0][["instance", "repeat"]].assign(statistic="", x=0.0, value=0.0)]
    keys = ["instance", "target", "repeat"]
    rows = rows.assign(place=np.arange(len(rows)))
    cells = {place: features.cells[0] for features, positions in buckets or () for place in positions}
    for layers, others in randomised.items():
        both = rows.merge(scores.final(others)[[*keys, "scores"]], on=keys, suffixes=("", "_randomised"))
        for _, part in both.groupby(both["scores"].map(len)):  # instances may differ in their number of features
            trained, other = scores.matrix(part), np.stack(part["scores_randomised"].to_list()).astype(float)
            measured = {
                "rank_correlation": correlation(mean_ranks(trained), mean_ranks(other)),
                "rank_correlation_absolute": correlation(mean_ranks(np.abs(trained)), mean_ranks(np.abs(other))),
            }
            if cells:
                measured["ssim"] = _similarity(trained, other, [cells[place] for place in part["place"]])
            about = part[["instance", "repeat"]]
            frames += [about.assign(statistic=name, x=float(layers), value=value) for name, value in measured.items()]
    return pd.concat(frames, ignore_index=True)


def _similarity(trained: np.ndarray, other: np.ndarray, cells: list[np.ndarray]) -> np.ndarray:
    """SSIM of the maps of scores (n, d) on cells, n times (height, width): (n,) in [-1, 1]."""
    from skimage.metrics import structural_similarity

    side = min(WINDOW, *cells[0].shape)
    window = side - (side % 2 == 0)  # odd

    def alike(first: np.ndarray, second: np.ndarray, owners: np.ndarray) -> float:
        sizes = np.abs(first).max(), np.abs(second).max()
        if window < 3 or min(sizes) == 0:
            return np.nan
        maps = (np.append(row / size, 0.0)[owners] for row, size in zip((first, second), sizes, strict=True))
        return structural_similarity(*maps, win_size=window, data_range=2.0)

    return np.array([alike(*row) for row in zip(trained, other, cells, strict=True)])
