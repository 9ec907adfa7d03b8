"""One attribution job: a method's scores on one shard of the instances, for every model, repeat and budget."""

import contextlib
import dataclasses
import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from shapeline import scores
from shapeline.attribution import game_values
from shapeline.attribution.context import (
    AttributionSettings,
    ExplanationContext,
    load_backend,
    load_context,
    read_targets,
    score_addresses,
    score_facts,
    value_addresses,
    value_facts,
)
from shapeline.attribution.explanation import OPTIONAL, Explanation, build_rows
from shapeline.attribution.game_values import ValueStore
from shapeline.attribution.row_store import ADDRESS, FLUSH_SECONDS, Table, digest
from shapeline.attribution.run import Options, attribute, runs_elsewhere, warm_up
from shapeline.errors import ShapelineError
from shapeline.games import features as feature_kinds
from shapeline.games import references
from shapeline.games.features import Features
from shapeline.games.game import Game
from shapeline.methods.settings import MethodSettings
from shapeline.scores import SCHEMA
from shapeline.seeds import seed_of
from shapeline.threads import find_openblas


@dataclass(frozen=True)
class Variant:
    """A model or None, its training seed, its number of randomised last layers, and its instances (None: all)."""

    weights: str | None = None
    training_seed: int = 0
    randomised_layers: int | None = None
    n_instances: int | None = None

    def choose(self, share: pd.DataFrame, selected: pd.DataFrame, seed: int) -> pd.DataFrame:
        """Return the rows of a share that are instances of this model; fewer instances are a subset of more."""
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
    count = settings.training_instances
    return [Variant(file, number, n_instances=count if number else None) for number, file in enumerate(weights)]


log = logging.getLogger("shapeline")


@dataclass(frozen=True)
class Job:
    """A method's settings, name and input files, its device, and the folder of the row store, "" without one."""

    settings: AttributionSettings
    entry: str
    files: Any
    device: str
    store: str = ""

    def join(self, rows: pd.DataFrame, keys: list[str], features: Features | None = None) -> "Result":
        """Return the result of a job without data; features: what all instances share."""
        context = ExplanationContext(None, None, features, None, self.settings.game.features, device=self.device)
        return Result(rows, context, keys)


@dataclass(frozen=True)
class AttributionJob(Job):
    """A job of a method on a model's data or on labelled points; by_graph: by the model's graph."""

    by_graph: bool = False
    value_code: Callable[[str, str], list[str]] | None = None

    def explain_shard(self, index: int, count: int, on_error: str, progress: Callable[[int], Callable]) -> "Result":
        """Return the rows of the index-th of `count` shards; progress: from a number of explanations to a callback."""
        selected = scores.read_table(self.files.instances)
        share = select_shard(selected, index, count)
        weights, cards = ([*self.files.get(key, ())] for key in ("weights", "cards"))
        models = list_variants(self.settings, weights, cards)
        shares = [model.choose(share, selected, self.settings.game.seed) for model in models]
        repeats, done = self.settings.repeats, 0
        report, frames, keys = progress(sum(map(len, shares)) * repeats), [], []
        context = load_context(
            models[0].weights, self.files.arrays, self.settings.game, self.device, by_graph=self.by_graph
        )
        for model, part in zip(models, shares, strict=True):
            if model is not models[0]:
                context = context.change_model(model.weights, self.by_graph)
            backend = load_backend(self.files.instances, context, self.device, self.settings.game)
            context = dataclasses.replace(context, backend=backend)
            options = Options(on_error=on_error, progress=lambda n, count, before=done: report(before + n, count))
            if len(part):
                rows, table_keys = self._explain(context, model, part, options)
                frames.append(rows.assign(training_seed=model.training_seed, randomised_layers=model.randomised_layers))
                keys += table_keys
            done += len(part) * repeats
        rows = pd.concat(frames, ignore_index=True) if frames else scores.SCHEMA.empty_table().to_pandas()
        return Result(rows.sort_values(scores.KEYS, ignore_index=True), context, keys)

    def _explain(
        self, context: ExplanationContext, model: Variant, share: pd.DataFrame, options: Options
    ) -> tuple[pd.DataFrame, list[str]]:
        """Return the rows of one model, and the keys of the tables that hold them and the values behind them."""
        files = self.files
        model_files = [model.weights, files.dataset_card, *files.get("user", ()), *files.get("reference", ())]
        all_files = [*model_files, *files.get("own", ())]
        keys = [digest(score_facts(context, self.settings, self.entry, all_files, files.arrays))]
        if self.value_code and context.model:
            code = self.value_code(context.model.architecture, context.model.framework)
            keys.append(digest(value_facts(context, self.settings, [*model_files, *code])))
            table = Table(self._locate_folder("values", keys[-1]), game_values.VALUES, growing=True)
            addresses = value_addresses(context.inputs(share), read_targets(share))
            options = dataclasses.replace(options, values=ValueStore(table), addresses=addresses)
        with Table(self._locate_folder("scores", keys[0]), STORED) as table:
            stored = StoredRows(table, score_addresses(context, share, self.settings.repeats))
            rows = explain_rows(context, share, self.settings, self.entry, options, stored=stored)
        reused, computed = len(stored.found), len(rows) - len(stored.found)
        log.info("rows of %s: %d computed, %d reused", model.weights or "the labelled points", computed, reused)
        return rows, keys

    def _locate_folder(self, kind: str, key: str) -> Path | None:
        return Path(self.store, kind, key) if self.store else None


@dataclass(frozen=True)
class Result:
    """Score rows, the context that was explained last, and the keys of the tables that hold the rows."""

    rows: pd.DataFrame
    context: ExplanationContext
    keys: list[str]


TIMING_SECONDS, MAX_TIMING_PASSES = 0.1, 20  # per job: short explanations are repeated until their time is stable,
STABLE_SHARE, STABLE_PASSES = 0.02, 2  # that is, until so many passes in a row reduce it by at most this share
STORED = [field for field in SCHEMA if field.name not in ("training_seed", "randomised_layers")]  # set by the job


@dataclass
class StoredRows:
    """Rows of earlier jobs and the table of new ones. addresses: of each instance and repeat (n, repeats)."""

    table: Table
    addresses: np.ndarray
    found: pd.DataFrame = field(default_factory=pd.DataFrame)

    def find(self) -> np.ndarray:
        """Read the stored rows; return which rows are missing (n, repeats)."""
        stored = self.table.read(self.addresses.ravel())
        self.found = stored.drop(columns=ADDRESS)
        return ~np.isin(self.addresses, stored[ADDRESS].unique())

    def keep(self, rows: pd.DataFrame, positions: np.ndarray, repeat: int) -> None:
        """Store rows of the instances at these positions, one per budget; none of a failed instance."""
        addresses = np.resize(self.addresses[positions, repeat], len(rows))
        failed = addresses[(rows["status"] != "ok").to_numpy()]
        kept = rows.assign(**{ADDRESS: addresses})[~np.isin(addresses, failed)]
        if len(kept):
            self.table.append(kept)


def select_shard(selected: pd.DataFrame, index: int, count: int) -> pd.DataFrame:
    """Return the index-th of `count` consecutive parts of nearly equal size."""
    return selected.iloc[np.array_split(np.arange(len(selected)), count)[index]].reset_index(drop=True)


def explain_rows(
    context: ExplanationContext,
    share: pd.DataFrame,
    settings: AttributionSettings,
    entry: str,
    options: Options | None = None,
    inputs: np.ndarray | None = None,
    stored: StoredRows | None = None,
) -> pd.DataFrame:
    """Return score rows (scores.SCHEMA) of a method on the instances of a shard, for every repeat; stored: known rows.
    Designs are seeded by (seed, method, repeat); scores of a method's own features are distributed over the
    experiment's."""
    method, seed = settings.method, settings.game.seed
    options = _merge_options(context, settings, options or Options())
    explained = context.change_features(method.features) if method.features else context
    game = explained.game(settings.game.value)
    inputs = context.inputs(share) if inputs is None else inputs
    missing = stored.find() if stored else np.ones((len(share), settings.repeats), bool)
    computed: list[pd.DataFrame] = []
    needed, done, evaluations = np.flatnonzero(missing.any(axis=1)), int((~missing).sum()), 0
    for features, members in explained.buckets(inputs[needed], share.iloc[needed]) if len(needed) else ():
        reported = context.features if method.features else None
        for repeat in range(settings.repeats):
            positions = needed[members][missing[needed[members], repeat]]
            if not len(positions):
                continue
            part = _Part(
                *(game.having(features=features), method, inputs[positions], share.iloc[positions], positions, repeat),
                *(reported, stored),
            )
            if not computed:
                part.warm_up(dataclasses.replace(options, seed=seed_of(seed, entry, "warm-up")))
            part_options = dataclasses.replace(
                options,
                seed=seed_of(seed, entry, repeat),
                instances=part.share["instance"].to_numpy(),
                addresses=np.asarray(options.addresses, object)[positions] if len(options.addresses) else (),
                progress=options.progress
                and (lambda n, count, to=(done, evaluations): options.progress(to[0] + n, to[1] + count)),
                save=part.save,
            )
            computed.append(part.explain(part_options, TIMING_SECONDS * len(positions) / missing.sum()))
            done, evaluations = done + len(positions), evaluations + int(computed[-1]["evaluations"].sum())
    return pd.concat([*([stored.found] if stored else []), *computed], ignore_index=True)


def _merge_options(context: ExplanationContext, settings: AttributionSettings, options: Options) -> Options:
    rows, seed = settings.method.background, settings.game.seed
    return dataclasses.replace(
        options,
        dataset=context.dataset,
        all_points=context.model is None,  # no model was trained on a part of them
        background=references.build({"kind": "background", "rows": rows}, context.dataset, seed) if rows else None,
        device=context.device,
        timing=settings.timing,
        time_limit=settings.time_limit,
    )


@dataclass
class _Part:
    """Instances (positions in the shard) that share features, in one repeat; shown: the experiment's features."""

    game: Game
    method: MethodSettings
    inputs: np.ndarray
    share: pd.DataFrame
    positions: np.ndarray
    repeat: int
    shown: Features | None
    stored: StoredRows | None
    saved: list[np.ndarray] = field(default_factory=list)  # indices whose rows are stored
    unsaved: list[tuple[np.ndarray, list[Explanation]]] = field(default_factory=list)
    since: float = 0.0  # time of the last storing, or of the start

    def explain(self, options: Options, timing_seconds: float) -> pd.DataFrame:
        """Return the rows with stable seconds, and store them."""
        self.since = time.monotonic()
        explanations = self._attribute(options)
        # No repetition of stored rows, whose seconds stay, nor of stored or remote values.
        if not (self.saved or options.values or runs_elsewhere(self.game, options)):
            silent = dataclasses.replace(options, progress=None, save=None)
            _stabilise_seconds(explanations, lambda: self._attribute(silent), timing_seconds)
        indices = np.arange(len(self.share))
        unsaved = np.setdiff1d(indices, np.concatenate([*self.saved, indices[:0]]))
        self._save_rows(unsaved, [explanation.at(unsaved) for explanation in explanations])
        return self._build_rows(indices, explanations)

    def warm_up(self, options: Options) -> None:
        """Run a first call, so that the start of threads and traces does not count as the method's time."""
        game = self.game
        warm_up(game, self.method, options.seed)
        if game.features.d and game.model:
            find_openblas()
            with contextlib.suppress(ShapelineError):
                game.values(self.inputs[:1], np.ones((2, game.features.d), bool))
        if options.timing == "per_instance" or self.method.method.family == "peers":
            ids = self.share["instance"].to_numpy()[:1]
            few = dataclasses.replace(options, instances=ids, progress=None, time_limit=None)
            attribute(game, self.inputs[:1], read_targets(self.share[:1]), self.method, few)

    def save(self, indices: np.ndarray, explanations: list[Explanation]) -> None:
        """Collect chunks, and store them every few seconds."""
        self.unsaved.append((indices, explanations))
        if time.monotonic() - self.since >= FLUSH_SECONDS:
            for chunk, result in self.unsaved:
                self._save_rows(chunk, result)
            self.saved += [chunk for chunk, _ in self.unsaved]
            self.unsaved, self.since = [], time.monotonic()

    def _attribute(self, options: Options) -> list[Explanation]:
        return attribute(self.game, self.inputs, read_targets(self.share), self.method, options)

    def _save_rows(self, indices: np.ndarray, explanations: list[Explanation]) -> None:
        if self.stored and len(indices):
            self.stored.keep(self._build_rows(indices, explanations), self.positions[indices], self.repeat)

    def _build_rows(self, indices: np.ndarray, explanations: list[Explanation]) -> pd.DataFrame:
        """Return the rows of the instances at these indices, budget after budget."""
        frames = []
        for explanation, budget in zip(explanations, self.method.budgets, strict=True):
            if self.shown:  # equal shares of a feature's score have no standard error
                shares = feature_kinds.spread_scores(explanation.scores, self.game.features, self.shown)
                explanation = dataclasses.replace(explanation, scores=shares, **dict.fromkeys(OPTIONAL))
            frames.append(build_rows(explanation, self.share["instance"].iloc[indices], self.repeat, budget))
        return pd.concat(frames, ignore_index=True)


def _stabilise_seconds(
    explanations: list[Explanation], repeat: Callable[[], list[Explanation]], timing_seconds: float
) -> None:
    """Repeat explanations that take less than `timing_seconds` until their shortest time is stable, and record it."""
    began, stable = time.perf_counter(), 0
    total = fastest = sum(np.nansum(explanation.seconds) for explanation in explanations)
    for _ in range(1, min(MAX_TIMING_PASSES, math.ceil(timing_seconds / total)) if total else 1):
        for explanation, other in zip(explanations, repeat(), strict=True):
            explanation.seconds = np.minimum(explanation.seconds, other.seconds)
        before, fastest = fastest, sum(np.nansum(explanation.seconds) for explanation in explanations)
        stable = stable + 1 if fastest >= (1 - STABLE_SHARE) * before else 0
        if stable == STABLE_PASSES or time.perf_counter() - began > timing_seconds:
            return
