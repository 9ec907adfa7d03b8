"""Measurements of one method by metrics that evaluate the model, per instance, reusing rows of earlier jobs."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from shapeline import scores
from shapeline.attribution import selection
from shapeline.attribution.context import (
    AttributionSettings,
    ExplanationContext,
    load_backend,
    load_context,
    measurement_facts,
    parse,
)
from shapeline.attribution.row_store import digest, digest_array, digest_file, digest_frame, digest_rows
from shapeline.games import references
from shapeline.metrics.loaders import load_arguments, pick_instances
from shapeline.metrics.registry import METRICS
from shapeline.metrics.scored_rows import measure, measure_missing, open_table, select_rows

CHUNK_SIZE = 64  # rows that are measured together


@dataclass(frozen=True)
class ModelMeasurement:
    """A job's input files, the models' execution, and the folder of the row store, "" without one."""

    files: Any
    device: str
    by_graph: bool
    store: str
    progress: Callable[[int], Callable]

    def measure(self, entry: str, jobs: dict[str, dict]) -> tuple[pd.DataFrame, list[str]]:
        """Return a method's measurements (scores.MEASURED) and the keys of their tables; jobs: settings by metric."""
        files, frames, keys = self.files, [], []
        rows, selected = scores.read(files.scores), selection.read(files.instances)
        settings = parse(scores.metadata(files.scores[0])["settings"])
        context = load_context(files.weights[0], files.arrays, settings.game, self.device, by_graph=self.by_graph)
        for training_seed, weights in enumerate(files.weights):
            names = [name for name in jobs if METRICS[name].paired or not training_seed]
            if training_seed and names:
                context = context.change_model(weights, self.by_graph)
            context = dataclasses.replace(context, backend=load_backend(files.instances, context, self.device))
            model_files = [weights, files.dataset_card, *files.get("user", ()), *files.get("reference", ())]
            for name in names:
                selected_rows = select_rows(name, rows, training_seed)
                if METRICS[name].moves_inputs:  # perturbed inputs are explained with the samples of the first repeat
                    selected_rows = selected_rows[selected_rows["repeat"] == 0].reset_index(drop=True)
                longest = int(np.max([len(row) for row in selected_rows["scores"]], initial=0))
                metric = _OneMetric(name, jobs[name], entry, context, selected, settings, longest)
                result, key = self._measure(metric, selected_rows, model_files)
                frames.append(result.assign(metric=name, method=entry, training_seed=training_seed))
                keys.append(key)
        return pd.concat(frames, ignore_index=True), keys

    def _measure(self, metric: "_OneMetric", rows: pd.DataFrame, files: Sequence[str]) -> tuple[pd.DataFrame, str]:
        user_files = self.files.get("own", ()) if METRICS[metric.name].reads_all_rows else ()  # a user's function
        key = digest(metric.facts([*files, *user_files], self.files.arrays))
        address_of = metric.addresses(rows) if len(rows) else {}

        def chunks(missing: pd.DataFrame) -> Iterator[pd.DataFrame]:
            report = self.progress(len(missing))
            for start, part in metric.chunks(missing):
                yield metric.measure(part, lambda n, evaluations, before=start: report(before + n, evaluations))

        def address(part: pd.DataFrame) -> pd.Series:
            return pd.Series([address_of[key] for key in _list_keys(part)], part.index, dtype=object)

        with open_table(self.store, key) as table:
            return measure_missing(metric.name, table, rows, address, chunks), key


@dataclass(frozen=True)
class _OneMetric:
    """A metric on the scores of one entry and training seed; job: the metric's settings; settings: of the scores."""

    name: str
    job: dict
    entry: str
    context: ExplanationContext
    selected: pd.DataFrame
    settings: AttributionSettings
    longest: int  # the largest number of features of an instance

    def facts(self, files: Sequence[str], arrays: str) -> dict:
        """Return the definition of the measurements, besides an instance's scores and input."""
        metric = METRICS[self.name]
        facts = measurement_facts(self.context, self.settings, self.job, files)
        facts["references"] = {
            name: None if game.reference.rows is None else digest_array(game.reference.rows)
            for name, game in self.references.items()
        }
        if metric.moves_inputs:
            facts |= {"scores": self.settings.rows, "label": self.entry, "arrays": digest_file(arrays)}
        if metric.shares_axis:
            facts["longest"] = self.longest
        return facts

    def addresses(self, rows: pd.DataFrame) -> dict[tuple[int, int], str]:
        """Return the address of each instance and repeat: by its scores and input, or by all scores."""
        reads_all = METRICS[self.name].reads_all_rows
        inputs = self.context.inputs(pick_instances(self.selected, rows))
        digests, all_rows = digest_rows(rows, ("seconds",)), digest_frame(rows) if reads_all else ""
        parts: dict[tuple[int, int], list[str]] = {}
        for key, digest_of_row, row in zip(_list_keys(rows), digests, inputs, strict=True):
            parts.setdefault(key, [all_rows, digest_array(row)]).append(digest_of_row)
        return {key: digest(part) for key, part in parts.items()}

    def chunks(self, rows: pd.DataFrame) -> Iterator[tuple[int, pd.DataFrame]]:
        """Yield parts of the rows, each with all rows of its instances, with the position of the first row."""
        ids, done = rows["instance"].unique(), 0
        step = len(ids) if METRICS[self.name].reads_all_rows else max(1, CHUNK_SIZE * len(ids) // len(rows))
        for start in range(0, len(ids), step):
            part = rows[rows["instance"].isin(ids[start : start + step])].reset_index(drop=True)
            yield done, part
            done += len(part)

    def measure(self, rows: pd.DataFrame, progress: Callable[[int, int], None]) -> pd.DataFrame:
        """Return the measurements of some rows."""
        given = {"references": self.references, "entry": self.entry, "progress": progress, "longest": self.longest}
        parameters = self.job.get("parameters", {})
        return measure(
            self.name, rows, parameters | load_arguments(self.context, self.selected, self.settings, rows) | given
        )

    @functools.cached_property
    def references(self) -> dict:
        """The games with the additional baselines of the metric, by name."""
        names, game = self.job.get("parameters", {}).get("references", ()), self.settings.game
        built = {name: references.build(name, self.context.dataset, game.seed) for name in names}
        return {name: self.context.change_reference(other).game(game.value) for name, other in built.items()}


def _list_keys(rows: pd.DataFrame) -> list[tuple[int, int]]:
    return [*zip(rows["instance"], rows["repeat"], strict=True)]
