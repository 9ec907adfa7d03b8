"""Accuracy against ground truth: the pixels, or the words, that decide the class."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from shapeline.errors import ShapelineError
from shapeline.games.features import Features
from shapeline.methods.settings import MethodSettings
from shapeline.seeds import seed_of

MARKED_THRESHOLD = 1e-6  # smallest score of a marked pixel, as published
MAX_CHUNK_PIXELS = 4_000_000  # pixels of the maps sorted at a time, which need several times 32 MB


def measure_pixels(
    rows: pd.DataFrame,
    truth: np.ndarray,
    buckets: list[tuple[Features, np.ndarray]],
    method: MethodSettings | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Compare score maps with the true pixels of the explained class (Teneggi et al. 2021, §5.2).

    Quantities in [0, 1], higher is better, NaN without true pixels: `f1`, `iou` of pixels above 1e-6; `f1_best` at
    the best threshold; `f1_equal_area`, `iou_equal_area` of as many top pixels as are true; `auprc`; `pointing`,
    whether the highest pixel is true; for h_shap `ceiling_touching` and `ceiling_best`, the largest F1 of its
    leaves.
    """
    if len(truth) != len(rows):
        raise ShapelineError(f"localization: {len(truth)} true regions for {len(rows)} explanations; prepare again.")
    frames = []
    for features, positions in buckets:
        part = rows.iloc[positions]
        owner = features.cells.reshape(-1, *truth.shape[1:])[0].ravel()  # the channels of a pixel belong to one feature
        step = max(1, MAX_CHUNK_PIXELS // owner.size)
        for start in range(0, len(part), step):
            chunk = part.iloc[start : start + step]
            target = truth[positions[start : start + step]].reshape(len(chunk), -1)
            values = np.stack(chunk["scores"].to_list())
            # A pixel without a feature has the score 0.
            maps = np.concatenate([values, np.zeros((len(chunk), 1), values.dtype)], axis=1)[:, owner]
            measured = compare_maps(maps, target, [seed_of(seed, "ties", instance) for instance in chunk["instance"]])
            measured |= measure_ceilings(truth[positions[start : start + step]], method, features)
            keys = chunk[["instance", "repeat"]]
            frames += [keys.assign(statistic=name, x=np.nan, value=value) for name, value in measured.items()]
    return pd.concat(frames, ignore_index=True)


def compare_maps(maps: np.ndarray, truth: np.ndarray, seeds: list[int]) -> dict[str, np.ndarray]:
    """Return all comparisons of maps (n, pixels) with true pixels (n, pixels) bool, each (n,); seeds (n,) for ties."""
    total = truth.sum(axis=1)
    n_pixels = maps.shape[1]
    order = np.argsort(-maps, axis=1, kind="stable")
    ordered, hit = np.take_along_axis(maps, order, 1), np.take_along_axis(truth, order, 1)
    # Thresholds separate only different scores, so only the ends of runs of equal scores are needed.
    end = np.concatenate([ordered[:, 1:] < ordered[:, :-1], np.ones((len(maps), 1), bool)], axis=1)
    hits, counts = hit.cumsum(axis=1), np.arange(1, n_pixels + 1)
    before = np.maximum.accumulate(np.where(end, hits, 0), axis=1)
    gained = np.diff(before, axis=1, prepend=0)  # true pixels in the run that ends here
    marked = maps > MARKED_THRESHOLD
    overlap = (marked & truth).sum(axis=1)
    equal, first = _count_top_hits(ordered, hits, total, seeds), end.argmax(axis=1)  # first: last of the highest pixels
    with np.errstate(invalid="ignore", divide="ignore"):  # without true pixels, all are NaN
        result = {
            "f1": 2 * overlap / (marked.sum(axis=1) + total),
            "f1_best": np.where(end, 2 * hits / (counts + total[:, None]), 0).max(axis=1),
            "f1_equal_area": equal / total,
            "auprc": (gained * hits / counts).sum(axis=1) / total,
            "iou": overlap / (marked.sum(axis=1) + total - overlap),
            "iou_equal_area": equal / (2 * total - equal),
            "pointing": hits[np.arange(len(maps)), first] / (first + 1),
        }
    return {name: np.where(total > 0, value, np.nan) for name, value in result.items()}


def _count_top_hits(ordered: np.ndarray, hits: np.ndarray, total: np.ndarray, seeds: list[int]) -> np.ndarray:
    """Return true pixels among the `total` top ones per row, with ties at the threshold sampled at random, (n,)."""
    cut = np.take_along_axis(ordered, np.maximum(total - 1, 0)[:, None], 1)
    above, reaching = (ordered > cut).sum(axis=1), (ordered >= cut).sum(axis=1)
    counted = np.concatenate([np.zeros((len(hits), 1), int), hits], axis=1)
    certain, possible = (np.take_along_axis(counted, ends[:, None], 1)[:, 0] for ends in (above, reaching))
    # The number of true ones in a random choice of ties, without the choice.
    drawn = [
        np.random.default_rng(seed).hypergeometric(true_ties, ties - true_ties, count)
        for seed, true_ties, ties, count in zip(
            seeds, possible - certain, reaching - above, np.maximum(total - above, 0), strict=True
        )
    ]
    return certain + np.array(drawn, int)


def measure_ceilings(truth: np.ndarray, method: MethodSettings | None, features: Features) -> dict[str, np.ndarray]:
    """Return both ceilings of F1 of an h_shap method's leaves and truth (n, height, width); none with other trees."""
    if method is None or method.name != "h_shap" or features.kind != "pixel":
        return {}
    if method.parameters.shifts or method.features is not None:
        return {}
    touching, best = compute_leaf_ceilings(truth, method.parameters.min_size)
    return {"ceiling_touching": touching, "ceiling_best": best}


def compute_leaf_ceilings(truth: np.ndarray, min_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return F1 of all leaves with a true pixel, and of the best set of leaves; each (n,), NaN without true pixels.

    truth (n, height, width) bool. F1 = 2 Σt / (Σa + T) over a set of leaves of a pixels with t true ones exceeds a
    number c exactly where Σ(2t - c a) > c T, and the sum is largest for the leaves with t/a > c/2: so a best set is
    a prefix of the leaves in order of their precision t/a, and all prefixes are tried.
    """
    rows, columns = (find_leaf_edges(side, min_size) for side in truth.shape[1:])
    true_pixels = np.add.reduceat(np.add.reduceat(truth, rows[:-1], axis=1, dtype=np.int64), columns[:-1], axis=2)
    true_pixels = true_pixels.reshape(len(truth), -1)
    area = np.outer(np.diff(rows), np.diff(columns)).ravel()
    total = true_pixels.sum(axis=1)
    order = np.argsort(-true_pixels / area, axis=1, kind="stable")
    hits = np.take_along_axis(true_pixels, order, 1).cumsum(axis=1)
    counts = area[order].cumsum(axis=1)
    with np.errstate(invalid="ignore"):
        touching = 2 * total / (np.where(true_pixels > 0, area, 0).sum(axis=1) + total)
        best = (2 * hits / (counts + total[:, None])).max(axis=1)
    return touching, np.where(total > 0, best, np.nan)


def find_leaf_edges(side: int, min_size: int) -> np.ndarray:
    """Return the boundaries of h-Shap's smallest nodes along a side: halved while both halves keep min_size."""
    edges = np.array([0, side])
    while (large := np.diff(edges) // 2 >= min_size).any():
        edges = np.sort(np.concatenate([edges, (edges[:-1] + edges[1:])[large] // 2]))
    return edges


def measure_words(
    rows: pd.DataFrame, ground_truth_words: Mapping[int, np.ndarray], labels: Mapping[int, int], seed: int = 0
) -> pd.DataFrame:
    """Return the F1 of the k words with the highest signed scores against the k ground-truth words of each document.

    F1 is precision and recall; chance gives k / d. NaN where the document is misclassified or has no such word;
    equal scores are ranked at random, by a seed per instance. Raises ShapelineError for unknown instances.
    """
    instances = rows["instance"].to_numpy()
    d = rows["scores"].map(len).to_numpy(dtype=int)
    for instance, length in zip(instances, d, strict=True):
        if instance not in ground_truth_words or len(ground_truth_words[instance]) != length:
            known = f"{len(ground_truth_words[instance])} words" if instance in ground_truth_words else "no words"
            raise ShapelineError(
                f"ground_truth_words: instance {instance} has {length} scores but {known}; prepare the dataset and "
                "explain again"
            )
    is_true = np.concatenate([np.asarray(ground_truth_words[instance], bool) for instance in instances])
    values = np.concatenate([np.asarray(row, float) for row in rows["scores"]])
    chance = np.concatenate(
        [np.random.default_rng(seed_of(seed, "ties", record)).random(n) for record, n in zip(instances, d, strict=True)]
    )
    row = np.repeat(np.arange(len(rows)), d)
    order = np.lexsort((chance, -values, row))  # by row, the highest score first
    k = np.bincount(row, is_true, minlength=len(rows))
    index = np.arange(len(row)) - np.repeat(np.cumsum(d) - d, d)
    hits = np.bincount(row, is_true[order] & (index < k[row]), minlength=len(rows))
    counted = (k > 0) & (rows["target"].to_numpy() == [labels[instance] for instance in instances])
    f1 = np.divide(hits, k, out=np.full(len(rows), np.nan), where=counted)
    return rows[["instance", "repeat"]].assign(statistic="f1", x=np.nan, value=f1)
