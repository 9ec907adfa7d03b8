"""The jobs of a configuration: their settings with the digest of their code, and their outputs."""

import json
import os
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path

from shapeline.config.derived import canonical, find_budget, find_feature_shape, find_framework
from shapeline.config.types import Config, Experiment
from shapeline.datasets.registry import SOURCES, adapt_to_task, remote_files
from shapeline.datasets.sources import expand
from shapeline.errors import ShapelineError, ShapelineErrors, format_count
from shapeline.files import read_document
from shapeline.methods.parameters import StoppingRule
from shapeline.methods.registry import METHODS
from shapeline.metrics.registry import METRICS
from shapeline.seeds import digest
from shapeline.versions import list_versions
from shapeline.workflow import job_code, runs
from shapeline.workflow.job_code import PACKAGE, add_code_digest, list_sources

READERS = ("pandas", "pillow", "scikit-learn")  # packages that read tables, images and bundled datasets


def prepare_job(config: Config, dataset: str) -> dict:
    entry = config.datasets[dataset]
    known = entry.source in SOURCES  # no fields of a user's function decide numbers
    facts = job_code.list_facts(adapt_to_task(SOURCES[entry.source], entry.task)) if known else {}
    files = job_code.prepare_code(config, dataset)
    return _complete_job(config, prepare_settings(config, dataset), files, facts, None, *READERS)


def train_job(config: Config, model: str, number: int = 0) -> dict:
    return _complete_job(config, train_settings(config, model, number), job_code.train_code(config, model), None, model)


def randomise_job(config: Config, model: str, variant: str) -> dict:
    """Return how many last layers of a model are initialised again (None: all), and the seed."""
    layers = None if variant == "full" else int(variant.removeprefix("top"))
    settings = canonical({"layers": layers, "seed": config.seed})
    return _complete_job(config, settings, job_code.randomise_code(config, model), None, model)


def select_job(config: Config, experiment: str) -> dict:
    files, model = job_code.select_code(config, experiment), config.experiments[experiment].model
    return _complete_job(config, select_settings(config, experiment), files, None, model)


def attribute_job(config: Config, experiment: str, entry: str) -> dict:
    definition, job = config.experiments[experiment], (config, experiment, entry)
    method = METHODS[definition.methods[runs.split_entry(entry)[0]].method]
    facts = {**job_code.list_facts(method, job_code.SHOWN), "functions": job_code.list_functions(*job)}
    files = job_code.attribute_code(*job)
    return _complete_job(config, attribute_settings(*job), files, facts, definition.model, method.package)


def measure_job(config: Config, experiment: str, metric: str) -> dict:
    definition, entry = config.experiments[experiment], METRICS[metric]
    settings = canonical({"metric": metric, "parameters": getattr(definition.metrics, metric)})
    files, facts = job_code.measure_code(config, experiment, metric), job_code.list_facts(entry, job_code.SHOWN)
    return _complete_job(config, settings, files, facts, definition.model if entry.evaluates_model else None)


def measure_jobs(config: Config, experiment: str, metrics: list[str]) -> dict[str, dict]:
    """Return the settings of each metric of a job that computes several."""
    return {metric: measure_job(config, experiment, metric) for metric in metrics}


def _complete_job(
    config: Config, settings: dict, files: list[str], facts: dict | None, model: str | None, *packages: str | None
) -> dict:
    """Return settings with the digest of their code, and with `versions: strict` those of packages they may use."""
    job = add_code_digest(settings, files, facts)
    if config.versions == "strict":
        job |= {"versions": list_versions(find_framework(config.models[model]) if model else None, packages)}
    return job


def compare_job(config: Config, experiment: str) -> dict:
    files = list_sources(*job_code.list_script_modules("compare"))
    return add_code_digest(canonical({"metrics": runs.list_metrics(config, experiment), "seed": config.seed}), files)


def report_job(config: Config, experiment: str) -> dict:
    definition = config.experiments[experiment]
    methods = {definition.methods[entry].method for entry in runs.list_entries(config, experiment)}
    facts = {
        "methods": {name: job_code.list_facts(METHODS[name]) for name in sorted(methods)},
        "metrics": {name: job_code.list_facts(METRICS[name]) for name in sorted(METRICS)},
    }
    files = job_code.list_page_code("render_report", definition.report.notebook)
    return add_code_digest(report_settings(config, experiment), files, facts)


def theory_job(config: Config) -> dict:
    return add_code_digest({"seed": config.seed}, job_code.list_page_code("render_standalone", "theory"))


def known_games_job(config: Config) -> dict:
    files = [
        *list_sources(*job_code.list_script_modules("measure_accuracy")),
        os.path.relpath(PACKAGE / "statistics/games.parquet"),
    ]
    return add_code_digest({"seed": config.seed, "repeats": config.estimator_benchmark}, files)


def accuracy_job() -> dict:
    return add_code_digest({}, job_code.list_page_code("render_standalone", "accuracy"))


def index_job(config: Config) -> dict:
    sources = job_code.list_page_sources(*job_code.list_script_modules("render_index"))
    return add_code_digest({"digests": compute_digests(config)}, sources)


def list_outputs(config: Config) -> set[str]:
    """Return the paths of the outputs of all jobs: one file per job, a card or notebook if it has several outputs."""
    return {path for path, _ in list_expected_outputs(config)}


def compute_digests(config: Config) -> dict[str, str]:
    """Return a digest of the settings of all jobs of each experiment under `run`, which identifies its page."""

    def strip_code(job: dict) -> dict:
        """Return the job without its code and that of each of its metrics."""
        return {
            key: strip_code(setting) if isinstance(setting, dict) else setting
            for key, setting in job.items()
            if key != "code"
        }

    return {
        name: digest({"jobs": sorted({digest(strip_code(job)) for _, job in _list_experiment_jobs(config, name)})})
        for name in config.run
    }


def list_expected_outputs(config: Config) -> Iterator[tuple[str, dict]]:
    """Yield the outputs of all jobs, pages without an experiment first, with the settings of the job."""
    if "theory" in runs.list_pages(config):
        yield f"{config.results}/reports/theory.ipynb", theory_job(config)
    if "accuracy" in runs.list_pages(config):
        yield f"{config.results}/accuracy/errors.parquet", known_games_job(config)
        yield f"{config.results}/reports/accuracy.ipynb", accuracy_job()
    for experiment in config.experiments:
        yield from _list_experiment_jobs(config, experiment)


def _list_experiment_jobs(config: Config, experiment: str) -> Iterator[tuple[str, dict]]:
    """Yield the outputs and settings of the jobs of one experiment."""
    for list_stage in (_list_model_jobs, _list_score_jobs, _list_result_jobs):
        yield from list_stage(config, experiment)


def _list_model_jobs(config: Config, experiment: str) -> Iterator[tuple[str, dict]]:
    """Yield the outputs and settings of the jobs on an experiment's data, models and instances, in this order."""
    definition = config.experiments[experiment]
    model = definition.model
    for dataset in runs.list_datasets(config, experiment):
        yield runs.list_prepared_files(dataset)["card"], prepare_job(config, dataset)
    if model:
        yield runs.name_model_files(config, model)["card"], train_job(config, model)
    for variant in runs.list_variants(config, experiment):
        yield runs.name_model_files(config, f"{model}@{variant}")["card"], randomise_job(config, model, variant)
    for number in range(1, definition.training_seeds):
        yield runs.name_model_files(config, runs.name_training(model, number))["card"], train_job(config, model, number)
    yield f"{config.results}/{experiment}/instances.parquet", select_job(config, experiment)


def _list_score_jobs(config: Config, experiment: str) -> Iterator[tuple[str, dict]]:
    """Yield the files of values and scores of an experiment's methods, with the settings of their jobs."""
    for entry in runs.list_all_entries(config, experiment):
        job = attribute_job(config, experiment, entry)
        yield from ((path, job) for path in runs.list_value_files(config, experiment, entry))
        yield from ((path, job) for path in runs.list_score_files(config, experiment, entry))


def _list_result_jobs(config: Config, experiment: str) -> Iterator[tuple[str, dict]]:
    """Yield the files of measurements and comparisons, and the page, with the settings of their jobs."""
    by_model, by_scores = (
        measure_jobs(config, experiment, metrics(config, experiment))
        for metrics in (runs.list_model_metrics, runs.list_score_metrics)
    )
    if by_model:
        yield from (
            (runs.name_measured_file(config, experiment, entry), by_model)
            for entry in runs.list_entries(config, experiment)
        )
    if by_scores:
        yield runs.list_measured_files(config, experiment)[-1], by_scores
    for path in runs.list_compared_files(config, experiment):
        yield path, compare_job(config, experiment)
    yield f"{config.results}/reports/{experiment}.ipynb", report_job(config, experiment)


def fetch_settings(source: str, file: str) -> dict:
    """Return the identity of an official file: its source and checksum, not its way of download."""
    files = {remote.name: remote for remote in remote_files(source)}
    return {"checksum": files[file].checksum, "file": file, "source": source}


def prepare_settings(config: Config, dataset: str) -> dict:
    return canonical({**canonical(config.datasets[dataset]), "seed": config.seed})


def train_settings(config: Config, model: str, number: int = 0) -> dict:
    """Return the settings of a model's training with seed `number`."""
    framework = find_framework(config.models[model])
    other = {"framework": None if framework == "torch" else framework}  # an explicit torch is the same setting
    return canonical({**canonical(config.models[model]), **other, "seed": config.seed + number})


def select_settings(config: Config, experiment: str) -> dict:
    definition = config.experiments[experiment]
    return canonical(
        {
            "instances": definition.instances,
            "target": None if definition.target == "predicted" else definition.target,
            **({"reference": definition.reference} if definition.model else {}),
            "dataset": definition.dataset,  # without a model, or if its model has other data
            **_select_game(definition),
            "features": definition.features,
            "seed": config.seed,
        }
    )


def attribute_settings(config: Config, experiment: str, entry: str) -> dict:
    """Return all settings that determine the scores of one entry, and none of other entries."""
    definition = config.experiments[experiment]
    entry, randomised = runs.split_entry(entry)
    method = definition.methods[entry]
    settings = {
        "method": method,
        "features": definition.features,
        "seed": config.seed,
        **({"reference": definition.reference, "value": definition.value} if definition.model else {}),
        "dataset": definition.dataset,
        **_select_game(definition),
    }
    if randomised:
        settings["randomised"] = runs.list_variants(config, experiment)
    elif (number := runs.count_trainings(config, experiment, entry)) > 1:
        settings |= {"training_seeds": number, "training_instances": definition.instances_per_training_seed}
    of_evaluation = {"timing", "precision", "compile", "time_limit"}
    settings |= definition.model_dump(include=of_evaluation, exclude_defaults=True)
    if METHODS[method.method].sampled:
        settings |= {"repeats": None if definition.repeats == 1 else definition.repeats}
        if method.match_budget_of and find_feature_shape(config, definition) is None:  # which the instance determines
            settings["method"] = {**canonical(method), "rival": canonical(definition.methods[method.match_budget_of])}
        else:
            # A multiple of d, or the rule of adaptive stopping.
            is_rule = isinstance(method.budget, StoppingRule)
            budget = method.budget.model_dump(exclude_none=True) if is_rule else find_budget(config, experiment, entry)
            settings["budget"] = budget
    return canonical(settings)


def _select_game(definition: Experiment) -> dict:
    """Return the game of an experiment and the files that it reads, or the prompts that it explains."""
    if definition.prompts:
        return {"prompts": definition.prompts}
    return {"game": definition.game, "game_files": definition.game_files or None} if definition.game else {}


def report_settings(config: Config, experiment: str) -> dict:
    definition = config.experiments[experiment]
    entries = {}
    for entry in runs.list_entries(config, experiment):
        parameters = canonical(definition.methods[entry])
        method = METHODS[parameters.pop("method")]
        entries[entry] = {
            "method": definition.methods[entry].method,
            "family": method.family,
            "parameters": parameters,
            "is_control": method.control,
            "sampled": method.sampled,
        }
    return canonical(
        {
            "report": definition.report,
            **(
                {"budget": float(definition.budget), "reference": definition.reference, "value": definition.value}
                if definition.model
                else {}
            ),
            "dataset": definition.dataset,
            **({**_select_game(definition), "budget": float(definition.budget)} if definition.has_no_data else {}),
            **({"value": "log_probability"} if definition.prompts else {}),
            "target": None if definition.target == "predicted" else definition.target,
            "features": definition.features,
            "timing": None if definition.timing == "batch" else definition.timing,
            "repeats": definition.repeats,
            "training_seeds": None if definition.training_seeds == 1 else definition.training_seeds,
            "exact": getattr(definition.metrics.error, "reference", None),
            "metrics": runs.list_metrics(config, experiment),
            "entries": entries,
            "order": runs.list_entries(config, experiment),
        }
    )


def format_digests(config: Config, experiment: str, entries: list[str]) -> str:
    """Return `entry:digest` of the settings of each entry's scores, separated by commas."""
    return ",".join(f"{entry}:{digest(attribute_job(config, experiment, entry))}" for entry in dict.fromkeys(entries))


def format_measured_digests(config: Config, experiment: str) -> str:
    """Return the digests of the settings of both kinds of measurements, in the same form."""
    kinds = {"model": runs.list_model_metrics, "scores": runs.list_score_metrics}
    names = {kind: metrics(config, experiment) for kind, metrics in kinds.items()}
    return ",".join(f"{kind}:{digest(measure_jobs(config, experiment, each))}" for kind, each in names.items())


MAX_RECORD_DELAY = 600.0  # seconds; on a cluster Snakemake notices the end of a job late


def check_records(config: Config) -> None:
    """Raise ShapelineError with stale outputs whose records Snakemake lost, and the command to re-compute them."""
    stale = [
        path
        for path, settings in dict(list_expected_outputs(config)).items()
        if os.path.exists(path) and not _is_recorded(path, settings) and _read_stored_digest(path) != digest(settings)
    ]
    if stale:
        there = [path for path in _list_dependents(config, set(stale)) if os.path.exists(path)]
        raise ShapelineErrors(
            f".snakemake: has no record of {format_count(len(stale), 'file')} made with other settings or code: "
            f"{', '.join(stale)}; remove what depends on them too, and run the same command again:\n"
            f"  rm {' '.join(dict.fromkeys([*stale, *there]))}"
        )


def _list_dependents(config: Config, stale: set[str]) -> Iterator[str]:
    """Yield the outputs that depend on stale ones; Snakemake does not remake an output whose input is missing."""
    if f"{config.results}/accuracy/errors.parquet" in stale:
        yield f"{config.results}/reports/accuracy.ipynb"
    for experiment in config.experiments:
        before, methods, results = (
            [path for path, _ in list_stage(config, experiment)]
            for list_stage in (_list_model_jobs, _list_score_jobs, _list_result_jobs)
        )
        outputs = [*before, *methods, *results]
        if first := next((number for number, path in enumerate(outputs, 1) if path in stale), 0):
            # no method depends on another
            yield from results if len(before) < first <= len(before) + len(methods) else outputs[first:]


def find_untrusted(config: Config) -> Iterator[str]:
    """Yield one line per .skops file that the run would refuse; files that were loaded before are skipped."""
    for name, model in config.models.items():
        path = expand(model.source) if str(model.source).endswith(".skops") else None
        loaded = runs.name_model_files(config, name)["weights"]
        if path is None or (os.path.exists(loaded) and os.path.getmtime(loaded) >= path.stat().st_mtime):
            continue
        from shapeline.models import pipeline_file  # skops takes seconds

        try:
            pipeline_file.check_types(model.source, path.read_bytes(), model.trusted_types or ())
        except ShapelineError as error:
            yield f"models.{name}.source: {str(error).removeprefix('models: ')}"


def _is_recorded(path: str, settings: dict) -> bool:
    """Return whether Snakemake's record, written soon after the file, permits to decide if the file is up to date."""
    record = find_record(path)
    try:
        recorded = json.loads(record.read_text(encoding="utf-8")).get("params", [])
    except (FileNotFoundError, ValueError):  # Snakemake ignores records that it cannot read
        return False
    if 0 <= record.stat().st_mtime - os.stat(path).st_mtime < MAX_RECORD_DELAY:
        return True
    return not any(repr(settings) in parameter for parameter in recorded)  # one of several parameters of a job


def find_record(path: str, kind: str = "metadata") -> Path:
    """Return the path of Snakemake's record of an output, or of its mark of an `incomplete` one."""
    name = urlsafe_b64encode(path.encode()).decode()
    longest = os.pathconf(".", "PC_NAME_MAX") - 1
    pieces = [name[i : i + longest] for i in range(0, len(name), longest)]
    return Path(".snakemake", kind, *("@" + piece for piece in pieces[:-1]), pieces[-1])


def _read_stored_digest(path: str) -> str | None:
    if path.endswith(".parquet"):
        from shapeline import scores  # imports pandas, so only if a record is missing

        return scores.metadata(path).get("settings_digest")
    content = read_document(path)
    if path.endswith(".ipynb"):
        return content.get("metadata", {}).get("shapeline", {}).get("settings_digest")
    return digest(content.get("settings"))
