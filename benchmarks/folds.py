"""Accuracy over all records of a dataset by cross-validation: python -m benchmarks.folds DATASET ARCHITECTURE [FOLDS].

DATASET is a prepared one, data/prepared/mnist38. Each fold is tested by a network of its own, trained on the others
with the architecture's default settings; a tenth of them chooses the best epoch. It prints the correct and all records
of each fold, and the accuracy of all with its 95 % Wilson interval. A test part can be too small to decide a claim.
"""

import argparse
from types import SimpleNamespace

import numpy as np

from shapeline.datasets import loading
from shapeline.datasets.sources import TEST, TRAIN, VALIDATION
from shapeline.models import architectures, training
from shapeline.statistics.comparison import wilson


def split_folds(count: int, folds: int) -> np.ndarray:
    """Return the part of each record in each fold, (folds, count): every record is in one fold's test part."""
    place = np.random.default_rng(0).permutation(count) % (10 * folds)
    tested = place // 10 == np.arange(folds)[:, None]
    return np.where(tested, TEST, np.where(place % 10 == 0, VALIDATION, TRAIN)).astype(np.uint8)


def measure_fold(dataset, architecture: str, split: np.ndarray, seed: int) -> tuple[int, int]:
    """Return the numbers of correct and of all records of the fold's test part."""
    model = architectures.for_dataset({"architecture": architecture}, dataset.card)
    records = SimpleNamespace(inputs=dataset.inputs, labels=dataset.labels, split=split, card=dataset.card)
    card = training.fit(model, records, seed=seed)
    return round(card["test_accuracy"] * card["rows"]["test"]), card["rows"]["test"]


def main(folder: str, architecture: str, folds: int = 5) -> None:
    dataset, counts = loading.load(folder), []
    for seed, split in enumerate(split_folds(len(dataset.labels), folds)):
        counts.append(measure_fold(dataset, architecture, split, seed))
        print(f"fold {seed + 1}: {counts[-1][0]:,} of {counts[-1][1]:,} correct", flush=True)
    correct, count = np.sum(counts, 0).tolist()
    low, high = wilson(correct / count, count)
    print(f"{100 * correct / count:.2f} % ({100 * low:.2f} to {100 * high:.2f}) of {count:,}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", metavar="DATASET")
    parser.add_argument("architecture", metavar="ARCHITECTURE")
    parser.add_argument("folds", metavar="FOLDS", nargs="?", type=int, default=5)
    main(**vars(parser.parse_args()))
