"""Accuracy against known words: how many of the words that decide the class are among the top ones."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from shapeline.errors import ShapelineError
from shapeline.seeds import seed_of


def measure(
    rows: pd.DataFrame, ground_truth_words: Mapping[int, np.ndarray], labels: Mapping[int, int], seed: int = 0
) -> pd.DataFrame:
    """Return the F1 of the k words with the highest signed scores against the k ground-truth words of each document.

    rows: score rows that succeeded; ground_truth_words: instance -> (d,) bool; labels: instance -> true class. As many
    words are selected as there are ground-truth words, so F1, precision and recall are one number in [0, 1]; chance
    gives k / d. The sign counts: ground-truth words speak for the true class. F1 is NaN, and excluded from means and
    their n, where the model misclassifies the document or no word is a ground-truth word. Equal scores are ranked at
    random, by a seed per instance. Raises ShapelineError for an instance that is unknown or has another number of
    words.
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
    wanted = np.concatenate([np.asarray(ground_truth_words[instance], bool) for instance in instances])
    values = np.concatenate([np.asarray(row, float) for row in rows["scores"]])
    chance = np.concatenate(
        [np.random.default_rng(seed_of(seed, "ties", record)).random(n) for record, n in zip(instances, d, strict=True)]
    )
    owner = np.repeat(np.arange(len(rows)), d)
    order = np.lexsort((chance, -values, owner))  # the words of a row stay together, its highest score first
    k = np.bincount(owner, wanted, minlength=len(rows))
    place = np.arange(len(owner)) - np.repeat(np.cumsum(d) - d, d)
    hits = np.bincount(owner, wanted[order] & (place < k[owner]), minlength=len(rows))
    counted = (k > 0) & (rows["target"].to_numpy() == [labels[instance] for instance in instances])
    f1 = np.divide(hits, k, out=np.full(len(rows), np.nan), where=counted)
    return rows[["instance", "repeat"]].assign(statistic="f1", x=np.nan, value=f1)
