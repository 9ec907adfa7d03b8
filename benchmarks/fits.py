"""Which fit of C-Shapley's regression ranks best, on records that no experiment explains: those of the validation part.

    python -m benchmarks.fits DATASET WEIGHTS [--features pixel|word] [--order 4] [--count 200]

DATASET is a folder of data/prepared, WEIGHTS the file of results/models/<model>. A line for each fit: its mean area
under the masking curve in nats (lower is better), and how far it is from `uniform`, with 95 % intervals over records.
"""

import argparse
import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd

from shapeline.attribution.attribution_job import explain_rows
from shapeline.attribution.context import ExplanationContext, calibrate, load_context, parse
from shapeline.datasets.sources import VALIDATION
from shapeline.metrics import log_odds
from shapeline.statistics.bounds import intervals

FITS = ("uniform", "printed", "kernel")


def areas(context: ExplanationContext, count: int, order: int, seed: int = 0) -> pd.DataFrame:
    """Return the deletion AUC (count, fits) of records of the validation part, sampled by seed."""
    dataset = context.dataset
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(dataset.split == VALIDATION))[:count]
    predicted = np.concatenate([context.model.log_probs(dataset.inputs[part]).argmax(1) for part in np.split(rows, 8)])
    chosen = pd.DataFrame({"instance": dataset.ids[rows], "row": rows, "prediction": predicted})
    inputs = dataset.inputs[rows]
    found = {}
    for fit in FITS:
        method = {"method": "c_shapley_regression", "order": order, "fit": fit}
        settings = parse({"method": method, "features": context.feature_settings, "seed": seed})
        explained = explain_rows(context, chosen, settings, fit)
        buckets = context.buckets(inputs, chosen)
        curves = log_odds.measure(explained, context.game("log_probability"), inputs, buckets)
        found[fit] = curves[curves["statistic"] == "deletion_auc"].set_index("instance")["value"]
    return pd.DataFrame(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--features", default="pixel")
    parser.add_argument("--order", type=int, default=4)
    parser.add_argument("--count", type=int, default=200)
    given = parser.parse_args()
    reference = "pad" if given.features == "word" else "mean"
    settings = {"features": {"kind": given.features}, "reference": reference, "seed": 0}
    context = load_context(str(given.weights), str(given.dataset / "arrays.npz"), settings, "cpu")
    context = dataclasses.replace(context, backend=calibrate(context))
    measured = areas(context, given.count, given.order)
    apart = measured.sub(measured["uniform"], axis=0)
    for fit in FITS:
        mean, difference = (intervals(table[[fit]].to_numpy()).loc[0] for table in (measured, apart))
        template = "{mean:.2f} ({low:.2f} to {high:.2f})"
        print(f"{fit:8} {template.format(**mean)}, uniform's plus {template.format(**difference)}")


if __name__ == "__main__":
    main()
