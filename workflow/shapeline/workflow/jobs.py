"""Every job of a configuration: what its rule is given (its settings, with the code behind them) and what it makes."""

import os
from collections.abc import Iterator

from shapeline.config.derived import framework_of
from shapeline.config.types import Config
from shapeline.methods.registry import METHODS
from shapeline.metrics.registry import METRICS
from shapeline.seeds import digest
from shapeline.versions import list_versions
from shapeline.workflow import job_code, settings
from shapeline.workflow.dependencies import PACKAGE, add_code_digest, sources
from shapeline.workflow.paths import (
    compared_files,
    datasets_of,
    measured_file,
    measured_files,
    model_files,
    prepared,
    score_files,
    value_files,
)
from shapeline.workflow.runs import (
    all_labels,
    labels,
    model_metrics,
    name_training,
    pages,
    score_metrics,
    split_label,
    variants,
)

READERS = ("pandas", "pillow", "scikit-learn")  # of tables, images and the sets that come with a package


def prepare_job(config: Config, dataset: str) -> dict:
    files, facts = job_code.prepare_code(config, dataset), job_code.prepare_facts(config, dataset)
    job = add_code_digest(settings.prepare_settings(config, dataset), files, facts)
    return _add_versions(config, job, None, *READERS)


def train_job(config: Config, model: str, number: int = 0) -> dict:
    job = add_code_digest(settings.train_settings(config, model, number), job_code.train_code(config, model))
    return _add_versions(config, job, model)


def randomise_job(config: Config, model: str, variant: str) -> dict:
    job = add_code_digest(settings.randomise_settings(config, variant), job_code.randomise_code(config, model))
    return _add_versions(config, job, model)


def select_job(config: Config, experiment: str) -> dict:
    job = add_code_digest(settings.select_settings(config, experiment), job_code.select_code(config, experiment))
    return _add_versions(config, job, config.experiments[experiment].model)


def attribute_job(config: Config, experiment: str, label: str) -> dict:
    files, facts = (
        job_code.attribute_code(config, experiment, label),
        job_code.attribute_facts(config, experiment, label),
    )
    job = add_code_digest(settings.attribute_settings(config, experiment, label), files, facts)
    entry = config.experiments[experiment]
    return _add_versions(config, job, entry.model, METHODS[entry.methods[split_label(label)[0]].method].package)


def measure_job(config: Config, experiment: str, metric: str) -> dict:
    files = job_code.measure_code(config, experiment, metric)
    job = add_code_digest(settings.measure_settings(config, experiment, metric), files, job_code.measure_facts(metric))
    return _add_versions(config, job, config.experiments[experiment].model if METRICS[metric].asks_model else None)


def measure_jobs(config: Config, experiment: str, metrics: list[str]) -> dict[str, dict]:
    """Return what a job that measures by several metrics is given of each."""
    return {metric: measure_job(config, experiment, metric) for metric in metrics}


def _add_versions(config: Config, job: dict, model: str | None, *packages: str | None) -> dict:
    """The job, and where the configuration says `versions: strict` the installed packages that it may use."""
    if config.versions != "strict":
        return job
    return job | {"versions": list_versions(framework_of(config.models[model]) if model else None, packages)}


def compare_job(config: Config, experiment: str) -> dict:
    files = sources(*job_code.script_modules("compare"))
    return add_code_digest(settings.compare_settings(config, experiment), files)


def report_job(config: Config, experiment: str) -> dict:
    files, facts = job_code.report_code(config, experiment), job_code.report_facts(config, experiment)
    return add_code_digest(settings.report_settings(config, experiment), files, facts)


def theory_job(config: Config) -> dict:
    return add_code_digest({"seed": config.seed}, job_code.page_code("render_standalone", "theory"))


def known_games_job(config: Config) -> dict:
    files = [
        *sources(*job_code.script_modules("measure_accuracy")),
        os.path.relpath(PACKAGE / "statistics/games.parquet"),
    ]
    return add_code_digest({"seed": config.seed, "draws": config.estimator_benchmark}, files)


def accuracy_job() -> dict:
    return add_code_digest({}, job_code.page_code("render_standalone", "accuracy"))


def index_job(config: Config) -> dict:
    return add_code_digest(
        {"digests": digests(config)}, job_code.page_sources(*job_code.script_modules("render_index"))
    )


def outputs(config: Config) -> set[str]:
    """Paths of what the configuration's jobs make: a file a job, its card or notebook where it makes several."""
    return {path for path, _ in expected_outputs(config)}


def digests(config: Config) -> dict[str, str]:
    """A digest of the settings of all jobs of each experiment under `run`: which configuration made its page."""

    def settings_of(job: dict) -> dict:
        """Return the job without its code, and without that of each metric where it measures by several."""
        return {
            key: settings_of(setting) if isinstance(setting, dict) else setting
            for key, setting in job.items()
            if key != "code"
        }

    return {
        name: digest({"jobs": sorted({digest(settings_of(job)) for _, job in _of(config, name)})})
        for name in config.run
    }


def expected_outputs(config: Config) -> Iterator[tuple[str, dict]]:
    """What every job makes, the pages without an experiment first, and what the job is given."""
    if "theory" in pages(config):
        yield f"{config.results}/reports/theory.ipynb", theory_job(config)
    if "accuracy" in pages(config):
        yield f"{config.results}/accuracy/errors.parquet", known_games_job(config)
        yield f"{config.results}/reports/accuracy.ipynb", accuracy_job()
    for experiment in config.experiments:
        yield from _of(config, experiment)


def _of(config: Config, experiment: str) -> Iterator[tuple[str, dict]]:
    """The same of one experiment."""
    yield from _list_model_jobs(config, experiment)
    for label in all_labels(config, experiment):
        job = attribute_job(config, experiment, label)
        yield from ((path, job) for path in value_files(config, experiment, label))
        yield from ((path, job) for path in score_files(config, experiment, label))
    by_model, by_scores = (
        measure_jobs(config, experiment, metrics(config, experiment)) for metrics in (model_metrics, score_metrics)
    )
    if by_model:
        yield from ((measured_file(config, experiment, label), by_model) for label in labels(config, experiment))
    if by_scores:
        yield measured_files(config, experiment)[-1], by_scores
    for path in compared_files(config, experiment):
        yield path, compare_job(config, experiment)
    yield f"{config.results}/reports/{experiment}.ipynb", report_job(config, experiment)


def _list_model_jobs(config: Config, experiment: str) -> Iterator[tuple[str, dict]]:
    """The data, the models and the instances of an experiment."""
    entry = config.experiments[experiment]
    for dataset in datasets_of(config, experiment):
        yield prepared(dataset)["card"], prepare_job(config, dataset)
    if entry.model:
        yield model_files(config, entry.model)["card"], train_job(config, entry.model)
    yield f"{config.results}/{experiment}/instances.parquet", select_job(config, experiment)
    for variant in variants(config, experiment):
        yield (
            model_files(config, f"{entry.model}@{variant}")["card"],
            randomise_job(config, entry.model, variant),
        )
    for number in range(1, entry.training_seeds):
        yield model_files(config, name_training(entry.model, number))["card"], train_job(config, entry.model, number)
