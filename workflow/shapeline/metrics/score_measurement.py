"""Measurements of all methods of an experiment by metrics that evaluate no model, reusing rows of earlier jobs."""

import functools
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pandas as pd

from shapeline import scores
from shapeline.attribution.row_store import digest, digest_file, digest_frame
from shapeline.methods.registry import METHODS
from shapeline.metrics.registry import METRICS
from shapeline.metrics.scored_rows import measure, measure_missing, open_table, select_rows


def measure_scores(files, jobs: Mapping[str, dict], store: str) -> tuple[pd.DataFrame, list[str]]:
    """Return the measurements (scores.MEASURED) of all methods and their tables' keys; jobs: settings by metric."""
    by_entry: dict[str, list[str]] = {}
    for path in files.scores:
        by_entry.setdefault(Path(path).parent.name, []).append(path)
    inputs = {entry: _collect_inputs(files, entry, paths) for entry, paths in by_entry.items()}
    frames, keys = [scores.MEASURED.empty_table().to_pandas()], []
    for name, job in jobs.items():
        keys.append(digest(_list_facts(name, job, files)))
        truth = inputs.get(job.get("parameters", {}).get("reference"))
        for entry, files_of_entry in inputs.items():
            if files_of_entry is truth:
                continue
            with open_table(store, keys[-1]) as table:
                for seed in sorted(_read(files_of_entry)["training_seed"].unique()) if METRICS[name].paired else [0]:
                    measured = _measure(name, job.get("parameters", {}), table, files_of_entry, truth, seed)
                    frames.append(measured.assign(metric=name, method=entry, training_seed=seed))
    return pd.concat(frames, ignore_index=True), keys


def _measure(name: str, parameters: dict, table, files, truth, training_seed: int) -> pd.DataFrame:
    """Return the measurements of an entry's scores of one training seed; truth: the files with the exact scores."""
    rows = select_rows(name, _read(files), training_seed)
    known = None if truth is None else scores.select_training(_read(truth), training_seed)
    parameters = parameters if truth is None else parameters | _compare_quantities(files, truth)
    address = _compute_address(name, rows, files, known)

    def chunks(missing: pd.DataFrame):
        yield measure(name, missing, _gather(name, parameters, files, missing, known))

    measured = measure_missing(name, table, rows, lambda some: pd.Series(address, some.index, dtype=object), chunks)
    if "game" not in scores.metadata(files.scores[0])["settings"]:
        return measured
    # Outputs of a game share their coalitions, so the game, under the instance of its first output, is the unit.
    output = rows.drop_duplicates("instance").set_index("instance")["target"]
    return measured.assign(instance=measured["instance"] - measured["instance"].map(output))


def _compare_quantities(files, truth) -> dict[str, bool]:
    """Return whether scores have the unit of the exact ones, or either has none, and whether both or none are main
    effects beside pairs."""
    settings, exact = (scores.metadata(each.scores[0])["settings"] for each in (files, truth))
    method, reference = (METHODS[each["method"]["method"]] for each in (settings, exact))
    return {
        "same_unit": not method.differs_in_unit(reference, settings.get("value")),
        "same_quantity": (method.pairs is None) == (reference.pairs is None),
    }


def _list_facts(name: str, job: dict, files) -> dict:
    """Return the definition of the measurements of every entry, besides its scores."""
    facts = {
        "metric": job,
        "columns": scores.MEASURED.names,
        "seed": scores.metadata(files.scores[0])["settings"]["seed"],
    }
    if METRICS[name].reads_data:
        prepared = (path for path in sorted(Path(files.arrays).parent.iterdir()) if path.is_file())
        facts["data"] = [digest_file(path) for path in (*prepared, files.instances)]
    return facts


def _compute_address(name: str, rows: pd.DataFrame, files, truth: pd.DataFrame | None) -> str:
    """Return the address of an entry's measurements: a digest of its scores and of the others that the metric reads."""
    facts = {"rows": digest_frame(rows), "method": scores.metadata(files.scores[0])["settings"]["method"]}
    if truth is not None:
        facts["truth"] = digest_frame(truth, ("seconds",))
    if METRICS[name].needs_randomised:
        facts["randomised"] = digest_frame(scores.read(files.randomised), ("seconds",))
    return digest(facts)


def _gather(name: str, parameters: dict, files, rows: pd.DataFrame, truth: pd.DataFrame | None = None) -> dict:
    """Return arguments for a metric that evaluates no model; truth: rows of the exact method, of the same training."""
    metric, needs = METRICS[name], {key: value for key, value in parameters.items() if key != "reference"}
    if truth is not None:
        needs |= {"truth": truth[truth["status"] == "ok"]}
        settings = scores.metadata(files.scores[0])["settings"]
        needs |= {"seed": settings["seed"], "scale_free": settings["method"]["method"] == "random"}
    if not metric.reads_data:
        return needs
    from shapeline.metrics.loaders import load_pixels, load_randomised, load_words  # large imports

    if metric.needs_documents:
        needs |= load_words(files, rows)
    if metric.needs_ground_truth:
        needs |= load_pixels(files, rows)
    if metric.needs_randomised:
        needs = load_randomised(files, rows)  # the files are given by its parameters
    return needs


def _collect_inputs(files, entry: str, paths: list[str]) -> SimpleNamespace:
    """Return the input files of the measurement of one entry."""
    others = [path for path in files.get("randomised", ()) if Path(path).parent.name.partition("@")[0] == entry]
    return SimpleNamespace(**dict(files.items()) | {"scores": paths, "randomised": others})


def _read(files) -> pd.DataFrame:
    return _read_cached(tuple(files.scores))


@functools.lru_cache(maxsize=2)  # an entry, and the reference of all
def _read_cached(paths: tuple[str, ...]) -> pd.DataFrame:
    return scores.read(paths)
