"""The models that one job explains by a method: as several seeds trained them, or with layers drawn anew."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from shapeline.attribution.settings import AttributionSettings
from shapeline.seeds import seed_of


@dataclass(frozen=True)
class Variant:
    """One of the models, None where only labelled points are explained.

    training_seed: 0 for the model itself; randomised_layers: how many of its last layers were drawn anew; n_instances:
    how many of the selected instances it is explained on, None for all.
    """

    weights: str | None = None
    training_seed: int = 0
    randomised_layers: int | None = None
    n_instances: int | None = None

    def choose(self, share: pd.DataFrame, selected: pd.DataFrame, seed: int) -> pd.DataFrame:
        """Return the rows of a share of the selected instances that this model is explained on; the instances are drawn
        by seed, and a larger number adds to a smaller one."""
        if self.n_instances is None:
            return share
        ids = selected["instance"].unique()  # of several labels an instance has a row for each
        order = np.random.default_rng(seed_of(seed, "trainings")).permutation(len(ids))
        return share[share["instance"].isin(ids[order[: self.n_instances]])].reset_index(drop=True)


def list_variants(settings: AttributionSettings, weights: Sequence[str], cards: Sequence[str]) -> list[Variant]:
    """Return the models that a job of these settings explains, from the files of their weights and their cards."""
    if not weights:
        return [Variant()]
    if settings.randomised:
        layers = [len(json.loads(Path(card).read_text(encoding="utf-8"))["drawn"]) for card in cards]
        by_layers = dict(zip(layers, weights, strict=True))  # two names may mean the same layers
        return [Variant(file, randomised_layers=count) for count, file in by_layers.items()]
    some = settings.training_instances
    return [Variant(file, number, n_instances=some if number else None) for number, file in enumerate(weights)]
