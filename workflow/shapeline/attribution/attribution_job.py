"""One attribution job: every model that a method explains, on one shard of the instances."""

import dataclasses
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from shapeline import scores
from shapeline.attribution import addresses, game_values
from shapeline.attribution.context import ExplanationContext, load_backend, load_context, targets
from shapeline.attribution.game_values import ValueStore
from shapeline.attribution.row_store import Table, digest_of
from shapeline.attribution.rows import STORED, StoredRows, explain_rows, shard
from shapeline.attribution.run import Options
from shapeline.attribution.settings import AttributionSettings
from shapeline.seeds import seed_of


@dataclass(frozen=True)
class Variant:
    """One of the models, or None; a training seed, how many last layers are randomised, and instances (None: all)."""

    weights: str | None = None
    training_seed: int = 0
    randomised_layers: int | None = None
    n_instances: int | None = None

    def choose(self, share: pd.DataFrame, selected: pd.DataFrame, seed: int) -> pd.DataFrame:
        """Return the rows of a share of the instances of this model; more instances keep the fewer."""
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


log = logging.getLogger("shapeline")


@dataclass(frozen=True)
class AttributionJob:
    """A method's settings, name and input files, how models run, and the folder of the row store, "" without one."""

    settings: AttributionSettings
    entry: str
    files: Any
    device: str
    by_graph: bool = False
    store: str = ""
    value_code: Callable[[str, str], list[str]] | None = None

    def explain_shard(self, index: int, count: int, on_error: str, progress: Callable[[int], Callable]) -> "Result":
        """Return the rows of the index-th of `count` shards; progress: from a number of explanations to a callback."""
        selected = scores.read_table(self.files.instances)
        share = shard(selected, index, count)
        weights, cards = ([*self.files.get(key, ())] for key in ("weights", "cards"))
        models = list_variants(self.settings, weights, cards)
        shares = [model.choose(share, selected, self.settings.game.seed) for model in models]
        repeats, done = self.settings.repeats, 0
        tell, frames, keys = progress(sum(map(len, shares)) * repeats), [], []
        context = load_context(
            models[0].weights, self.files.arrays, self.settings.game, self.device, by_graph=self.by_graph
        )
        for model, some in zip(models, shares, strict=True):
            if model is not models[0]:
                context = context.change_model(model.weights, self.by_graph)
            backend = load_backend(self.files.instances, context, self.device, self.settings.game)
            context = dataclasses.replace(context, backend=backend)
            options = Options(on_error=on_error, progress=lambda n, made, before=done: tell(before + n, made))
            if len(some):
                rows, of_tables = self._explain(context, model, some, options)
                frames.append(rows.assign(training_seed=model.training_seed, randomised_layers=model.randomised_layers))
                keys += of_tables
            done += len(some) * repeats
        rows = pd.concat(frames, ignore_index=True) if frames else scores.SCHEMA.empty_table().to_pandas()
        return Result(rows.sort_values(scores.KEYS, ignore_index=True), context, keys)

    def _explain(
        self, context: ExplanationContext, model: Variant, share: pd.DataFrame, options: Options
    ) -> tuple[pd.DataFrame, list[str]]:
        """Return the rows of one model, and the keys of the tables that hold them and the values behind them."""
        files = self.files
        behind = [model.weights, files.dataset_card, *files.get("user", ()), *files.get("reference", ())]
        own = [*behind, *files.get("own", ())]
        keys = [digest_of(addresses.score_facts(context, self.settings, self.entry, own, files.arrays))]
        if self.value_code and context.model:
            code = self.value_code(context.model.architecture, context.model.framework)
            keys.append(digest_of(addresses.value_facts(context, self.settings, [*behind, *code])))
            table = Table(self._folder("values", keys[-1]), game_values.VALUES, growing=True)
            named = addresses.value_addresses(context.inputs(share), targets(share))
            options = dataclasses.replace(options, values=ValueStore(table), addresses=named)
        with Table(self._folder("scores", keys[0]), STORED) as table:
            stored = StoredRows(table, addresses.score_addresses(context, share, self.settings.repeats))
            rows = explain_rows(context, share, self.settings, self.entry, options, stored=stored)
        reused, computed = len(stored.found), len(rows) - len(stored.found)
        log.info("rows of %s: %d computed, %d found", model.weights or "the labelled points", computed, reused)
        return rows, keys

    def _folder(self, kind: str, key: str) -> Path | None:
        return Path(self.store, kind, key) if self.store else None


@dataclass(frozen=True)
class Result:
    """Score rows, the context that was explained last, and the keys of the tables that hold the rows."""

    rows: pd.DataFrame
    context: ExplanationContext
    keys: list[str]
