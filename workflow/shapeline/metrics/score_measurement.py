"""Measurements of all methods of an experiment by metrics that evaluate no model; rows of earlier jobs count."""

import functools
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import pandas as pd

from shapeline import scores
from shapeline.attribution.row_store import ADDRESS, Table, digest_file, digest_frame, digest_of
from shapeline.metrics.needs import STORED, measure, rows_of
from shapeline.metrics.registry import METRICS

log = logging.getLogger("shapeline")


def measure_scores(files, jobs: Mapping[str, dict], store: str) -> tuple[pd.DataFrame, list[str]]:
    """Return the measurements (columns of scores.MEASURED) of all labels, and the keys of the tables that hold them.

    files: scores of all labels and of randomised models, and the data that some metrics read; jobs: of each metric its
    settings; store: the folder of the row store, "" without one.
    """
    by_label: dict[str, list[str]] = {}
    for path in files.scores:
        by_label.setdefault(Path(path).parent.name, []).append(path)
    inputs = {label: _input_of(files, label, paths) for label, paths in by_label.items()}
    measured = [_measure_all(name, job, inputs, store) for name, job in jobs.items()]
    return pd.concat([frame for frame, _ in measured], ignore_index=True), [key for _, key in measured]


def _measure_all(name: str, job: dict, inputs: Mapping[str, SimpleNamespace], store: str) -> tuple[pd.DataFrame, str]:
    """Return the measurements of all labels by one metric, and the key of their table."""
    parameters = job.get("parameters", {})
    truth = inputs.get(parameters.get("reference"))
    every = {label: files for label, files in inputs.items() if files is not truth}
    key = digest_of(_facts(name, job, next(iter(inputs.values()))))
    with Table(Path(store, "measurements", key) if store else None, STORED) as table:
        address_of = {part: _address(name, rows, every[part[0]], truth, part[1]) for part, rows in _parts(name, every)}
        found = table.read(address_of.values())
        by_address = dict(iter(found.drop(columns=ADDRESS).groupby(found[ADDRESS])))
        reused = len(address_of) - len(missing := [part for part, one in address_of.items() if one not in by_address])
        for part, rows in _parts(name, {label: every[label] for label, _ in missing}):
            if part in missing:
                known = None if truth is None else scores.select_training(_read(truth), part[1])
                measured = measure(name, rows, _gather(name, parameters, every[part[0]], rows, known))
                table.append(measured.assign(**{ADDRESS: address_of[part]}))
                by_address[address_of[part]] = measured
    log.info("%s: %d labels computed, %d found", name, len(missing), reused)
    frames = [
        by_address[one].assign(metric=name, label=label, training_seed=seed)
        for (label, seed), one in address_of.items()
    ]
    return pd.concat([*frames, scores.MEASURED.empty_table().to_pandas()], ignore_index=True), key


def _parts(name: str, inputs: Mapping[str, SimpleNamespace]) -> Iterator[tuple[tuple[str, int], pd.DataFrame]]:
    """Yield the score rows that a metric measures, of each label and of the training seeds that it compares."""
    for label, files in inputs.items():
        rows = _read(files)
        seeds = sorted(rows["training_seed"].unique()) if METRICS[name].paired else [0]
        yield from (((label, int(seed)), rows_of(name, rows, seed)) for seed in seeds)


def _facts(name: str, job: dict, files) -> dict:
    """Return what defines the measurements of every label beside its scores."""
    facts = {"metric": job, "seed": scores.metadata(files.scores[0])["settings"]["seed"]}
    if METRICS[name].asks_data:
        prepared = (path for path in sorted(Path(files.arrays).parent.iterdir()) if path.is_file())
        facts["data"] = [digest_file(path) for path in (*prepared, files.instances)]
    return facts


def _address(name: str, rows: pd.DataFrame, files, truth, training_seed: int) -> str:
    """Return the address of a label's measurements: of its scores, and of the others that the metric reads."""
    facts = {"rows": digest_frame(rows), "method": scores.metadata(files.scores[0])["settings"]["method"]}
    if truth is not None:
        facts["truth"] = digest_frame(scores.select_training(_read(truth), training_seed), ("seconds",))
    if METRICS[name].asks_randomised:
        facts["randomised"] = digest_frame(scores.read(files.randomised), ("seconds",))
    return digest_of(facts)


def _gather(name: str, parameters: dict, files, rows: pd.DataFrame, truth: pd.DataFrame | None = None) -> dict:
    """Arguments by name for the function of a metric that evaluates no model.

    parameters: the metric's own; files: the scores of the label, and the job's other input; truth: rows of the label
    that is the truth, of the same training.
    """
    metric, needs = METRICS[name], {key: value for key, value in parameters.items() if key != "reference"}
    if truth is not None:
        needs |= {"truth": truth[truth["status"] == "ok"]}
        needs["seed"] = scores.metadata(files.scores[0])["settings"]["seed"]
    if not metric.asks_data:
        return needs
    from shapeline.metrics.loaders import known_pixels, known_words, randomised  # which import much

    if metric.asks_documents:
        needs |= known_words(files, rows)
    if metric.asks_truth:
        needs |= known_pixels(files, rows)
    if metric.asks_randomised:
        needs = randomised(files, rows)  # its parameters say which files these are
    return needs


def _input_of(files, label: str, paths: list[str]) -> SimpleNamespace:
    """Return what one label is measured by."""
    others = [path for path in files.get("randomised", ()) if Path(path).parent.name.partition("@")[0] == label]
    return SimpleNamespace(**dict(files.items()) | {"scores": paths, "randomised": others})


def _read(files) -> pd.DataFrame:
    return _cached(tuple(files.scores))


@functools.lru_cache(maxsize=2)  # a label, and what is the truth of all
def _cached(paths: tuple[str, ...]) -> pd.DataFrame:
    return scores.read(paths)
