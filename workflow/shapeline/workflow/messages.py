"""The report of a run before and after its jobs: their cost, and lines beside those of Snakemake.

The cost is rows of the model, core hours and bytes of a configuration, by rough rates of one core of a server.
"""

import contextlib
import json
import logging
import math
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from shapeline.config import derived
from shapeline.config.types import Config, Experiment, Model
from shapeline.datasets import checks, registry
from shapeline.datasets.registry import SOURCES, WEIGHTS, RemoteFile
from shapeline.designs.design import MAX_D
from shapeline.errors import ShapelineError
from shapeline.files import format_bytes, read_document
from shapeline.methods.registry import METHODS
from shapeline.metrics.registry import METRICS
from shapeline.models.registry import ARCHITECTURES, CPU_KINDS, find_kind
from shapeline.models.training import get_settings
from shapeline.versions import find_differences
from shapeline.workflow import job_code, runs

CUSTOM_RATE = 5_000  # evaluations per second of a custom model: a guess
BACKWARD = 3  # time of a gradient, or of a training step, in evaluations
POINTS_PER_SECOND = 3e8  # labelled points x columns that a core processes per second
JOB_SECONDS = {"torch": 1.0, "tensorflow": 1.5}  # start of a job by fork_server/server.py, and its data
REPORT_SECONDS = 12.0
MIN_GPU_SECONDS = 60.0  # of one core: shorter jobs end sooner on several cores than in turn on a GPU (7 s to start)
MIN_STATED_BYTES = 1e9  # smaller designs of a job are not reported
READOUT_COPIES = 2.3  # peak memory of a dense readout, relative to its size, measured at d = 2,500 and 4d
DEFAULT_FEATURES = 100  # assumed number of features before the data are prepared
MODEL_BYTES, REPORT_BYTES = 50e6, 6e6


@dataclass(frozen=True)
class Cost:
    """Rows that an experiment's model predicts, also for metrics, seconds of one core, those of the mean job without
    its start, and the slowest method."""

    rows: float
    seconds: float
    job_seconds: float
    slowest: str
    slowest_seconds: float


def estimate_experiment(config: Config, name: str, rate: float | None = None) -> Cost:
    """Return the cost of an experiment's scores, metrics and report, by the table or a measured rate (rows/s)."""
    experiment = config.experiments[name]
    count = count_explanations(config, name)
    model = config.models.get(experiment.model)
    start = JOB_SECONDS[job_code.find_job_framework(config, experiment.model)]
    speed = rate or (estimate_rate(config, experiment.model, experiment.dataset) if model else 1.0)
    rows_total, work = 0.0, 0.0
    slowest, slowest_seconds = "", 0.0
    additional = sum(getattr(experiment.metrics, metric).explanations() for metric in runs.list_metrics(config, name))
    shares, entries = count_models(config, name), runs.list_entries(config, name)
    for entry in entries:
        _, rows = estimate_instance(config, name, entry)
        seconds = rows / speed + _estimate_points(config, name, entry)
        if seconds > slowest_seconds:
            slowest, slowest_seconds = entry, seconds
        sampled = METHODS[experiment.methods[entry].method].sampled
        explanations = count * shares * (experiment.repeats if sampled else 1)
        explanations += count * additional
        rows_total += explanations * rows
        work += explanations * seconds
    measured = estimate_metrics(config, name) * count * len(experiment.methods) * experiment.repeats if model else 0.0
    work += measured / speed
    jobs = len(entries) * runs.shards(config, name) * (2 if runs.list_variants(config, name) else 1)
    jobs += len(runs.list_measured_files(config, name)) + 1
    seconds = REPORT_SECONDS + start + work + jobs * start  # one start is that of select_instances
    return Cost(rows_total + measured, seconds, work / jobs, slowest, slowest_seconds)


def uses_gpu(config: Config, name: str) -> bool:
    """Return whether the jobs of an experiment that evaluate its model ask for a GPU.

    All of them or none, so that the seconds of methods are comparable.
    """
    experiment = config.experiments[name]
    if config.device != "auto" or experiment.has_no_data:
        return config.device != "cpu"
    return _gains_from_gpu(config.models.get(experiment.model), estimate_experiment(config, name).job_seconds)


def trains_on_gpu(config: Config, model: str) -> bool:
    """Return whether the training of a model asks for a GPU."""
    if config.device != "auto":
        return config.device == "cuda"
    return _gains_from_gpu(config.models[model], estimate_training(config, model))


def list_gpu_lines(config: Config, names: Collection[str], asked: int | None, visible: int) -> Iterator[str]:
    """Yield a line on experiments that leave the visible GPUs unused, and one where no number of GPUs is given."""
    on_gpu = {name for name in names if uses_gpu(config, name)}
    models = {name: config.models.get(config.experiments[name].model) for name in sorted({*names} - on_gpu)}
    unused = [name for name, model in models.items() if model and model.architecture]
    if unused:
        yield f"short jobs run on the CPU, where they end sooner (device: cuda: on a GPU): {', '.join(unused)}"
    if on_gpu and not asked:
        yield f"jobs that wait for a GPU hold cores; --resources gpu={visible} starts them when one is free"


def _gains_from_gpu(model: Model | None, seconds: float) -> bool:
    if model and find_kind(model.source, model.framework) in CPU_KINDS:
        return False
    return seconds > MIN_GPU_SECONDS or (model is not None and model.architecture is None)  # whose speed is unknown


def count_explanations(config: Config, name: str) -> int:
    """Return the explanations of an entry per repeat: of instances, or of each label of multi-label ones."""
    chosen, dataset = config.experiments[name].instances, runs.find_dataset(config, name)
    if dataset is None:  # only a game itself tells its outputs
        return 1
    count, source, card = chosen.number, derived.find_source(config.datasets[dataset]), read_card(dataset)
    if chosen.label is not None or (source.task if source else card.get("task")) != "multilabel":
        return count
    return count * len((config.datasets[dataset].classes or source.classes) if source else card["classes"])


def count_models(config: Config, name: str) -> float:
    """Return the number of trained and randomised models; a model on fewer instances counts as their share."""
    return len(runs.list_variants(config, name)) + count_trainings(config.experiments[name])


def count_trainings(experiment: Experiment) -> float:
    count = experiment.instances.number
    return 1 + (experiment.training_seeds - 1) * min(1, (experiment.instances_per_training_seed or count) / count)


def estimate_instance(config: Config, name: str, entry: str) -> tuple[float, float]:
    """Return the evaluations of one instance by an entry, for all its budgets, and the rows of the model."""
    experiment = config.experiments[name]
    settings = experiment.methods[entry]
    method = METHODS[settings.method]
    if experiment.model is None or not method.needs_model:
        return 0.0, 0.0
    shape, d = _count_features(config, name, settings)
    if gradients := method.count_gradients(settings):
        return gradients, BACKWARD * gradients
    if (own_count := settings.count_evaluations(d, shape)) is not None:
        evaluations = own_count
    elif method.exact:
        evaluations = 2.0**d if d <= MAX_D else 0
    elif method.argument_names is not None and not method.sampled:  # custom designs are not built for an estimate
        evaluations = experiment.budget * d
    elif method.sampled and (shape or not settings.match_budget_of):
        evaluations = derived.find_budget(config, name, entry, round(d)) * d
    else:
        evaluations = _estimate_fixed(
            experiment.methods[settings.match_budget_of] if method.sampled else settings, shape, d
        )
    return evaluations, evaluations * getattr(experiment.reference, "rows", 1)


def estimate_metrics(config: Config, name: str) -> float:
    """Return the model's rows of an experiment's metrics per instance, entry and repeat, over all training seeds."""
    experiment = config.experiments[name]
    rows = sum(
        getattr(experiment.metrics, metric).rows() * (count_trainings(experiment) if METRICS[metric].paired else 1)
        for metric in runs.list_metrics(config, name)
    )
    return float(rows) * getattr(experiment.reference, "rows", 1)


def estimate_rate(config: Config, model: str, dataset: str | None = None) -> float:
    """Return the evaluations per second of one core, by the table; dataset: by default the model's."""
    entry = config.models[model]
    if entry.architecture is None:
        return CUSTOM_RATE
    known = ARCHITECTURES[entry.architecture]
    rate = known.rate * known.windows
    shape = find_input_shape(config, dataset or entry.dataset)
    return rate * known.cells / math.prod(shape[-2:]) if shape else rate


def estimate_training(config: Config, model: str) -> float:
    """Return the core seconds of a model's training; for a trained model, of the start of a job."""
    entry = config.models[model]
    if find_kind(entry.source, entry.framework) or entry.training.epochs == 0:
        return JOB_SECONDS[job_code.find_job_framework(config, model)]
    epochs = get_settings(entry.architecture or "", entry.training.model_dump(exclude_none=True)).epochs
    rate = estimate_rate(config, model) / getattr(ARCHITECTURES.get(entry.architecture), "windows", 1)
    return (
        0.7 * count_rows(config, entry.dataset) * epochs * BACKWARD / rate + JOB_SECONDS[derived.find_framework(entry)]
    )


def estimate_run(config: Config) -> tuple[float, float]:
    """Return rows of models, and core seconds with training and data, of all experiments under `run:`."""
    costs = [estimate_experiment(config, name) for name in config.run]
    trained = {  # what counts is the experiment with the most training seeds of a model
        entry.model: entry.training_seeds * estimate_training(config, entry.model)
        for entry in sorted((config.experiments[name] for name in config.run), key=lambda entry: entry.training_seeds)
        if entry.model
    }
    datasets = {dataset for name in config.run for dataset in runs.list_datasets(config, name)}
    seconds = sum(cost.seconds for cost in costs) + sum(trained.values()) + len(datasets) * JOB_SECONDS["torch"]
    return sum(cost.rows for cost in costs), seconds


def list_memory_warnings(config: Config) -> list[str]:
    """Return a line for each entry under `run` whose design needs much memory in each of its jobs."""
    return [
        f"{name}: each job of {entry} takes about {format_bytes(needed)} of memory for its design alone; run few jobs "
        "at a time, or choose coarser features, a smaller budget or sample_shapley"
        for name in config.run
        for entry in runs.list_entries(config, name)
        if (needed := estimate_design_bytes(config, name, entry)) > MIN_STATED_BYTES
    ]


def estimate_design_bytes(config: Config, name: str, entry: str) -> float:
    """Return the peak bytes of a job that builds and reads dense weights of d rows or more; else 0."""
    settings = config.experiments[name].methods[entry]
    if settings.method != "kernel_shap":
        return 0.0
    shape, d = _count_features(config, name, settings)
    budget = derived.find_budget(config, name, entry) if shape or settings.match_budget_of is None else 4
    return READOUT_COPIES * 8 * min(budget * d, 2.0 ** min(d, 60)) * d


def format_time(seconds: float) -> str:
    """Return core time as text."""
    if seconds < 3600:
        return f"{max(seconds / 60, 0.1):.2g} core minutes"
    return f"{seconds / 3600:,.{0 if seconds > 36_000 else 1}f} core hours"


def format_amount(number: float) -> str:
    """Return a count as text: 1,234, 5.6 million, 7.8 billion."""
    for size, word in ((1e9, "billion"), (1e6, "million")):
        if number >= size:
            return f"{number / size:,.1f} {word}"
    return f"{number:,.0f}"


def count_rows(config: Config, dataset: str) -> int:
    """Return the records of a dataset by its card, else as published; 0 if only its files determine them."""
    if card := read_card(dataset):
        counts = card.get("rows") or card["counts"]
        return sum(sum(part.values()) if isinstance(part, dict) else part for part in counts.values())
    entry = config.datasets[dataset]
    source = SOURCES.get(entry.source)
    if source is None or source.local:
        return 0
    number = (entry.count or source.count) if source.count else source.records
    is_subset = entry.classes and source.classes and entry.task != "multilabel"  # multilabel keeps all records
    return number * len(entry.classes) // len(source.classes) if is_subset else number


def find_input_shape(config: Config, dataset: str) -> tuple[int, ...] | None:
    """Return the shape of one input; None if only unprepared data determine it."""
    entry = config.datasets[dataset]
    source = SOURCES.get(entry.source)
    known = checks.input_shape(source, entry) if source else None
    if known and source.kind == "text":
        known = (entry.length or known[0],)
    return known or tuple(read_card(dataset).get("input_shape", ())) or None


def read_card(dataset: str) -> dict:
    """Return the card of a prepared dataset, {} where there is none."""
    file = runs.list_prepared_files(dataset)["card"]
    return read_document(file) if os.path.exists(file) else {}


def list_downloads(config: Config, name: str) -> Iterator[tuple[str, RemoteFile, str]]:
    """Yield source, official file and its path for an experiment's data and its model's weights."""
    experiment = config.experiments[name]
    for entry in (config.datasets[dataset] for dataset in runs.list_datasets(config, name)):
        if entry.path is None and entry.source in SOURCES:
            for file in registry.remote_files(entry.source):
                yield entry.source, file, f"data/raw/{entry.source}/{file.name}"
    weights = experiment.model and config.models[experiment.model].weights
    if weights in WEIGHTS:
        file = WEIGHTS[weights]
        yield "weights", file, f"data/raw/weights/{file.name}"


def estimate_prepared_bytes(config: Config, dataset: str) -> float:
    """Return the bytes of a dataset's prepared arrays; 0 if only its files determine them."""
    shape = find_input_shape(config, dataset)
    source = SOURCES.get(config.datasets[dataset].source)
    if shape is None or source is None:
        return 0.0
    cells = math.prod(shape) * (1 if source.kind == "image" else 4)
    masks = math.prod(shape[-2:]) if source.truth == "masks" else 0
    return count_rows(config, dataset) * (cells + masks + (500 if source.kind == "text" else 0))


def size_results(config: Config, name: str) -> float:
    """Return the bytes of an experiment's scores, metrics, cached values and pages."""
    experiment = config.experiments[name]
    count, shares, total = count_explanations(config, name), count_models(config, name), REPORT_BYTES
    _, d = _count_features(config, name, None)
    for entry, settings in experiment.methods.items():
        sampled = METHODS[settings.method].sampled
        rows = count * (experiment.repeats * (1 + len(settings.intermediate_budgets or ())) if sampled else 1)
        total += rows * shares * (4 * d + 100)
        total += 8 * rows * estimate_instance(config, name, entry)[0] if experiment.cache else 0
    return total


def _count_features(config: Config, name: str, settings) -> tuple[tuple[int, ...] | None, float]:
    """Return the shape of the features and their number; where instances differ, None and the mean number."""
    shape = derived.find_feature_shape(config, config.experiments[name], settings)
    return shape, math.prod(shape) if shape else _average_features(config, name, settings)


def _average_features(config: Config, name: str, settings) -> float:
    """Return the mean number of features of instances that differ in it."""
    experiment = config.experiments[name]
    chosen = derived.find_features(experiment, settings)
    if chosen.kind == "superpixel":
        return float(chosen.segments or 50)
    if texts := experiment.instances.texts:
        sentences = [sentence for text in texts for sentence in ([text] if isinstance(text, str) else text)]
        return sum(len(sentence.split()) for sentence in sentences) / len(texts)
    dataset = runs.find_dataset(config, name)
    if dataset is None:
        return DEFAULT_FEATURES
    shape = find_input_shape(config, dataset)
    if chosen.kind in ("word", "character_run"):
        source = SOURCES.get(config.datasets[dataset].source)
        words = (source and source.words) or DEFAULT_FEATURES
        return float(min(words, shape[0] if shape else DEFAULT_FEATURES))
    return float(math.prod(shape[-2:]) if shape else DEFAULT_FEATURES)


def _estimate_fixed(entry, shape: tuple[int, ...] | None, d: float) -> float:
    """Return the evaluations of a fixed-cost design; if d varies, of a chain, proportional to d for a long one."""
    settings = json.dumps(derived.canonical(entry))
    if shape:
        return derived.count_fixed_cost(settings, shape)
    on_chain = min(max(2, round(d)), 40)
    return derived.count_fixed_cost(settings, (on_chain,)) * d / on_chain


def _estimate_points(config: Config, name: str, entry: str) -> float:
    """Return the seconds per instance of a method of labelled points."""
    if "labelled points" not in METHODS[config.experiments[name].methods[entry].method].needs:
        return 0.0
    dataset = runs.find_dataset(config, name)
    shape = find_input_shape(config, dataset)
    return count_rows(config, dataset) * math.prod(shape or (DEFAULT_FEATURES,)) / POINTS_PER_SECOND


TARGETS = {"all", "fetch", "train", "scores", "metrics", "report"}  # targets of a run besides the experiments
log = logging.getLogger("snakemake.logging")


def show(lines: Iterable[str]) -> None:
    """Show lines among those of Snakemake, with any of its loggers."""
    for line in lines:
        log.info(line, extra={"shapeline": True})


def show_success(config: Config, index: str, outputs: Collection[str], experiments: Collection[str | None]) -> None:
    """Show failed explanations and warnings of a run, and the page to open; outputs: files of the jobs that ran."""
    show(f"flagged: {line}" for line in list_warnings(config, experiments))
    show([f"open {index}"] if index in outputs else [])


def list_version_lines(config: Config) -> list[str]:
    """Return a line per experiment and package whose version in score files differs from the installed one."""
    from shapeline import scores  # pandas: only where a run starts

    lines = []
    for experiment in config.run:
        files = {
            path: entry
            for entry in runs.list_all_entries(config, experiment)
            for path in runs.list_score_files(config, experiment, entry)
        }
        versions = {}
        for path in filter(os.path.exists, files):
            with contextlib.suppress(ShapelineError):  # of a damaged file, which the job that reads it names
                versions[path] = scores.metadata(path).get("versions", {})
        differences = find_differences(versions)
        entries: dict[tuple, list[str]] = {}
        for path, packages in differences.items():
            for package, (used, present) in packages.items():
                entries.setdefault((package, used, present), []).append(files[path])
        lines += [
            f"{experiment}: scores of {', '.join(dict.fromkeys(names))} were made with {package} {used} and {present} "
            "is installed, which may change numbers; `versions: strict` in the configuration re-computes them"
            for (package, used, present), names in sorted(entries.items())
        ]
    return lines


def list_warnings(config: Config, requested: Collection[str | None]) -> list[str]:
    """Return a line per warning of a model, and per method the numbers of failed and flagged instances."""
    from pyarrow import parquet

    lines = []
    for experiment in filter(requested.__contains__, config.run):
        model = config.experiments[experiment].model
        card = Path(runs.name_model_files(config, model)["card"]) if model else None
        if card and card.is_file() and (warning := read_document(card).get("test_warning")):
            lines.append(f"{experiment}: {warning}")
        for entry in runs.list_entries(config, experiment):
            rows = [
                row
                for path in filter(os.path.exists, runs.list_score_files(config, experiment, entry))
                for row in parquet.read_table(path, columns=["status", "warning", "error"]).to_pylist()
            ]
            failed = [row["error"] or row["status"] for row in rows if row["status"] != "ok"]
            flagged = Counter(row["warning"] for row in rows if row["status"] == "ok" and row["warning"])
            first = Counter(failed).most_common(1)
            problems = [f"{len(failed)} of {len(rows)} explanations failed ({reason})" for reason, _ in first]
            problems += [f"{flag} in {count} of {len(rows)} explanations" for flag, count in flagged.items()]
            if problems:
                lines.append(f"{experiment}: {entry}: {', '.join(problems)}")
    return lines
