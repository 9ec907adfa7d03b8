"""What the Snakefile asks: the settings of a job, the paths of its files, the package files that define its result."""

import json
import os
import re
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from shapeline import datasets, methods, metrics, references
from shapeline.config import Config, budget_of, canonical, feature_shape, framework_of, shards_of
from shapeline.config import dataset_of as dataset_name
from shapeline.errors import ShapelineError
from shapeline.files import document
from shapeline.models import ready
from shapeline.seeds import digest

PACKAGE = Path(__file__).parent
# Edited often and never the origin of a number: registries, messages, figures and the plumbing of jobs.
UNTRACKED = {
    "methods",
    "config",
    "config_types",
    "config_checks",
    "plots",
    "plan",
    "errors",
    "files",
    "jobs",
    "reports",
}
# Imports within the package, as they stand in its files; parsing these took a tenth of the time of a dry run.
IMPORT = re.compile(
    r"^[ \t]*(?:from (shapeline[\w.]*) import (\((?:#.*|[^)#])*\)|.+)|import (shapeline[\w.]*))", re.MULTILINE
)
RECORDED_WITHIN = 600.0  # seconds; on a cluster Snakemake sees the end of a job late
# A job imports one framework; its modules are named in tables, where a scan of imports does not see them.
FRAMEWORK_CODE = {
    "torch": ["shapeline.models.torch_models", "shapeline.torch_engine", "shapeline.torch_windows"],
    "tensorflow": ["shapeline.models.keras_models", "shapeline.tf_engine", "shapeline.tf_windows"],
    "function": ["shapeline.models.pipeline_file", "shapeline.torch_engine"],
}
ON_DEVICE = {
    name: "shapeline.hierarchy_torch" for name in ("torch", "function")
}  # what hierarchical_methods asks of a framework
TRAINING = {"torch": "shapeline.models.torch_training", "tensorflow": "shapeline.models.keras_training"}


# --- what is in the run -------------------------------------------------------------------------------------------


def labels(config: Config, experiment: str) -> list[str]:
    """Labels in an order that does not depend on the order of keys in the file: exact first, controls last."""
    entries = config.experiments[experiment].methods
    registry = list(methods.METHODS)

    def rank(label: str) -> tuple:
        method = methods.METHODS[entries[label].method]
        place = len(registry) if method.takes is not None else registry.index(entries[label].method)
        return method.control, not method.exact, place, label

    return sorted(entries, key=rank)


def variants(config: Config, experiment: str) -> list[str]:
    """The randomised models of an experiment, by what stands after the @ of their names: full, or top and a number."""
    asked = config.experiments[experiment].metrics.randomisation
    return [one if one == "full" else f"top{one}" for one in asked.layers] if asked else []


def trainings(config: Config, experiment: str) -> list[str]:
    """The model's trainings beside the first, by what stands after the @ of their names: seed1, seed2, ..."""
    return [f"seed{number}" for number in range(1, config.experiments[experiment].seeds)]


def all_labels(config: Config, experiment: str) -> list[str]:
    """Every label, followed by those of the derived models: label@variant."""
    derived = [*variants(config, experiment), *trainings(config, experiment)]
    return [each for own in labels(config, experiment) for each in (own, *(f"{own}@{one}" for one in derived))]


def split_label(label: str) -> tuple[str, str | None]:
    """The label itself and, in label@variant, the derived model that it explains: a randomised one, or a training."""
    own, _, variant = label.partition("@")
    return own, variant or None


def metric_names(config: Config, experiment: str) -> list[str]:
    return [name for name in metrics.METRICS if getattr(config.experiments[experiment].metrics, name) is not None]


def shards(config: Config, experiment: str) -> int:
    """Score files a label: from counts only, so that paths are the same on every machine."""
    return shards_of(config, config.experiments[experiment])


# --- paths --------------------------------------------------------------------------------------------------------


def prepared(dataset: str) -> dict[str, str]:
    return {name: f"data/prepared/{dataset}/{file}" for name, file in (("arrays", "arrays.npz"), ("card", "card.json"))}


def dataset_of(config: Config, experiment: str) -> str:
    return dataset_name(config, config.experiments[experiment])


def datasets_of(config: Config, experiment: str) -> list[str]:
    """The experiment's dataset and, where it is another, the one that its model is trained on."""
    entry = config.experiments[experiment]
    trained_on = [config.models[entry.model].dataset] if entry.model else []
    return list(dict.fromkeys([dataset_of(config, experiment), *trained_on]))


def trained_on(config: Config, experiment: str) -> list[str]:
    """The card of the data that the experiment's model is trained on, where these are other data than the explained."""
    return [prepared(name)["card"] for name in datasets_of(config, experiment)[1:]]


def raw_files(config: Config, dataset: str) -> list[str]:
    """The files that the dataset is read from: local ones where its `path` names them, else fetched ones."""
    entry = config.datasets[dataset]
    source = datasets.SOURCES.get(entry.source)
    if entry.path is None:
        return [f"data/raw/{entry.source}/{file.name}" for file in source.files] if source else []
    path = datasets.expand(entry.path)
    if source and source.local and path.is_dir():  # a picture more or less shows in the time of its own folder alone
        return [str(path), *sorted(map(str, path.rglob("*/")))]
    return (
        [str(file) for file in datasets.local_files(source, path).values()] if source and path.is_dir() else [str(path)]
    )


def score_files(config: Config, experiment: str, label: str) -> list[str]:
    n = shards(config, experiment)
    return [f"{config.results}/{experiment}/scores/{label}/{i}-of-{n}.parquet" for i in range(n)]


def values_folder(config: Config, experiment: str) -> str:
    """Where an experiment's jobs share values of coalitions; "" where they do not."""
    entry = config.experiments[experiment]
    return f"{config.results}/{experiment}/values" if entry.cache and entry.model else ""


def metric_files(config: Config, experiment: str, metric: str) -> list[str]:
    """One file a label; an error to a label is not measured on that label itself."""
    truth = getattr(config.experiments[experiment].metrics.error, "reference", None) if metric == "error" else None
    return [
        f"{config.results}/{experiment}/metrics/{metric}/{label}.parquet"
        for label in labels(config, experiment)
        if label != truth
    ]


def compared_files(config: Config, experiment: str) -> list[str]:
    return [f"{config.results}/{experiment}/metrics/{metric}.parquet" for metric in metric_names(config, experiment)]


def paired_files(config: Config, experiment: str) -> list[str]:
    """The per-instance measurements whose paired differences the report shows."""
    return [
        file
        for metric in metric_names(config, experiment)
        if metric in metrics.PAIRED
        for own in metric_files(config, experiment, metric)
        for file in (own, *_of_trainings(config, experiment, own))
    ]


def _of_trainings(config: Config, experiment: str, file: str) -> list[str]:
    """The measurements of the model's other trainings beside those of one label."""
    return [f"{file.removesuffix('.parquet')}@{one}.parquet" for one in trainings(config, experiment)]


def randomised_files(config: Config, experiment: str, label: str) -> dict[str, list[str]]:
    """The scores of a label on every randomised model, and the cards of these models."""
    kept, model = variants(config, experiment), config.experiments[experiment].model
    return {
        "randomised": [file for one in kept for file in score_files(config, experiment, f"{label}@{one}")],
        "randomised_cards": [model_files(config, f"{model}@{one}")["card"] for one in kept],
    }


def model_files(config: Config, model: str) -> dict[str, str]:
    folder = f"{config.results}/models/{model}"
    return {"weights": f"{folder}/weights.safetensors", "card": f"{folder}/card.json"}


def weights_file(config: Config, model: str) -> list[str]:
    """The file of weights that training starts from, fetched or the user's own; none where it starts from a draw."""
    named = config.models[model].weights
    if named in datasets.WEIGHTS:
        return [f"data/raw/weights/{datasets.WEIGHTS[named].name}"]
    return [str(datasets.expand(named))] if named else []


def start_file(config: Config, model: str) -> list[str]:
    """The same weights as safetensors, which training reads."""
    return [f"{config.results}/models/{model}/start.safetensors"] if config.models[model].weights else []


# --- settings: one canonical dict a job, from wildcards alone ------------------------------------------------------


def fetch_settings(source: str, file: str) -> dict:
    """What identifies an official file: where it is from and its checksum, not how it came here."""
    listed = {known.name: known for known in datasets.remote_files(source)}
    return {"checksum": listed[file].checksum, "file": file, "source": source}


def prepare_settings(config: Config, dataset: str) -> dict:
    return canonical({**canonical(config.datasets[dataset]), "seed": config.seed})


def train_settings(config: Config, model: str, number: int = 0) -> dict:
    """Settings of a model's training, or of that which other seeds number."""
    framework = framework_of(config.models[model])
    named = {"framework": None if framework == "torch" else framework}  # torch written out is no other setting
    return canonical({**canonical(config.models[model]), **named, "seed": config.seed + number})


def randomise_settings(config: Config, variant: str) -> dict:
    """How many last layers of a model are drawn anew (all where nothing is said), and by which seed."""
    return canonical({"layers": None if variant == "full" else int(variant.removeprefix("top")), "seed": config.seed})


def select_settings(config: Config, experiment: str) -> dict:
    entry = config.experiments[experiment]
    return canonical(
        {
            "instances": entry.instances,
            **({"reference": entry.reference} if entry.model else {}),
            "dataset": entry.dataset,  # without a model, or where the data are not its model's
            "features": entry.features,
            "seed": config.seed,
        }
    )


def attribute_settings(config: Config, experiment: str, label: str) -> dict:
    """All that decides the scores of one label, and nothing of the other labels."""
    entry = config.experiments[experiment]
    label, variant = split_label(label)
    method = entry.methods[label]
    settings = {
        "method": method,
        "variant": variant,
        "features": entry.features,
        "seed": config.seed,
        **({"reference": entry.reference, "value": entry.value} if entry.model else {}),
        "dataset": entry.dataset,
    }
    if entry.timing != "batch":
        settings["timing"] = entry.timing
    if entry.precision != "float32":
        settings["precision"] = entry.precision
    if entry.compile:
        settings["compile"] = True
    if entry.time_limit:
        settings["time_limit"] = entry.time_limit
    if methods.METHODS[method.method].sampled:
        settings |= {"repeats": None if entry.repeats == 1 else entry.repeats}
        if method.rival_of and feature_shape(config, entry) is None:  # known when the instance is seen
            settings["method"] = {**canonical(method), "rival": canonical(entry.methods[method.rival_of])}
        else:
            settings["budget"] = budget_of(config, experiment, label)
    return canonical(settings)


def measure_settings(config: Config, experiment: str, metric: str) -> dict:
    return canonical({"metric": metric, "parameters": getattr(config.experiments[experiment].metrics, metric)})


def compare_settings(config: Config, experiment: str, metric: str) -> dict:
    return canonical({"metric": metric, "seed": config.seed})


def report_settings(config: Config, experiment: str) -> dict:
    entry = config.experiments[experiment]
    described = {}
    for label in labels(config, experiment):
        parameters = canonical(entry.methods[label])
        method = methods.METHODS[parameters.pop("method")]
        described[label] = {
            "method": entry.methods[label].method,
            "family": method.family,
            "parameters": parameters,
            "is_control": method.control,
            "sampled": method.sampled,
        }
    return canonical(
        {
            "report": entry.report,
            **(
                {"budget": float(entry.budget), "reference": entry.reference, "value": entry.value}
                if entry.model
                else {}
            ),
            "dataset": entry.dataset,
            "features": entry.features,
            "timing": None if entry.timing == "batch" else entry.timing,
            "repeats": entry.repeats,
            "seeds": None if entry.seeds == 1 else entry.seeds,
            "exact": getattr(entry.metrics.error, "reference", None),
            "labels": described,
            "order": labels(config, experiment),
        }
    )


# --- the package files behind a result ----------------------------------------------------------------------------


def sources(*modules: str) -> list[str]:
    """Paths, relative to the root, of the modules and of all that they import within the package, sorted."""
    return list(_sources(modules, os.getcwd()))


@cache
def _sources(modules: tuple[str, ...], folder: str) -> tuple[str, ...]:
    """The paths relative to a folder; thousands of jobs ask for the same few."""
    found: set[Path] = set()
    waiting = [_file(module) for module in modules]
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += _imports(file)
    return tuple(sorted(os.path.relpath(file, folder) for file in found))


def own(files: list[str]) -> list[str]:
    """The user's own among the files behind a result; they stand in a rule's input, however large they are."""
    package = _package(os.getcwd())
    return [file for file in files if not file.startswith(package)]


def with_code(settings: dict, files: list[str]) -> dict:
    """The settings of a job and a digest of the package files behind its result, so that an edited method re-runs
    itself alone.

    As inputs these files, thirty a job, took Snakemake a third of the time that it plans a run in.
    """
    folder = os.getcwd()
    package = _package(folder)
    return settings | {"code": _code_digest(tuple(file for file in files if file.startswith(package)), folder)}


@cache
def _code_digest(files: tuple[str, ...], folder: str) -> str:
    """Of the files' names and contents; thousands of jobs ask for the same few."""
    return digest({file: datasets.file_digest(Path(folder, file), "sha256") for file in files})


@cache
def _package(folder: str) -> str:
    """How the paths of the package's files begin, relative to a folder."""
    return os.path.relpath(PACKAGE, folder) + os.sep


def environment(config: Config, model: str | None) -> str:
    """The conda environment of the jobs that ask a model, or labelled points in its place."""
    return f"../../envs/{job_framework(config, model)}.yaml"


def job_framework(config: Config, model: str | None) -> str:
    """The framework of the jobs that ask a model, or labelled points in its place."""
    framework = framework_of(config.models[model]) if model else "torch"
    return "torch" if framework == "function" else framework  # whose rows torch fills


def framework_code(config: Config, experiment: str) -> list[str]:
    """Modules of the framework of an experiment's model; none without a model."""
    model = config.experiments[experiment].model
    if not model:
        return []
    entry = config.models[model]
    reader = ready.READERS.get(ready.kind_of(entry.source, entry.framework))
    return [*FRAMEWORK_CODE[framework_of(entry)], *([reader] if reader else [])]


def prepare_code(config: Config, dataset: str) -> list[str]:
    source, tokenizer = config.datasets[dataset].source, user_file(config.datasets[dataset].tokenizer)
    if source in datasets.SOURCES:
        return [*sources("shapeline.datasets", datasets.SOURCES[source].module), *tokenizer]
    return [*sources("shapeline.datasets"), *user_file(source), *tokenizer]


def train_code(config: Config, model: str) -> list[str]:
    framework = framework_of(config.models[model])
    kind = ready.kind_of(config.models[model].source, config.models[model].framework)
    made_by = ready.READERS[kind] if kind else TRAINING[framework]
    modules = ("shapeline.datasets", *FRAMEWORK_CODE[framework], made_by)
    return [*sources("shapeline.models.training", *modules), *user_file(config.models[model].source)]


def randomise_code(config: Config, model: str) -> list[str]:
    framework = FRAMEWORK_CODE[framework_of(config.models[model])]
    return [*sources("shapeline.models.randomisation", *framework), *user_file(config.models[model].source)]


def attribute_code(config: Config, experiment: str, label: str) -> list[str]:
    entry = config.experiments[experiment].methods[split_label(label)[0]]
    fit = ["shapeline.surrogate_lasso"] if getattr(entry, "keep", None) else []
    model = config.experiments[experiment].model
    method = methods.METHODS[entry.method]
    functions = [method.function_for(framework_of(config.models[model]) if model else None), method.measure]
    if getattr(entry, "rival_of", None):  # its count of evaluations is the budget
        functions.append(methods.METHODS[config.experiments[experiment].methods[entry.rival_of].method].function)
    own = [file for function in functions if function for file in user_file(function)]
    if entry.method == "external":
        own.append(str(datasets.expand(entry.path)))
    modules = [function.split(":")[0] for function in functions if function and ".py:" not in function]
    if method.family == "hierarchical" and model and framework_of(config.models[model]) in ON_DEVICE:
        modules.append(ON_DEVICE[framework_of(config.models[model])])
    code = sources("shapeline.instances", "shapeline.attribution", *modules, *fit, *framework_code(config, experiment))
    return [*code, *own]


def select_code(config: Config, experiment: str) -> list[str]:
    code = sources("shapeline.instances", *framework_code(config, experiment))
    return [*code, *tokenizer_file(config, experiment)]  # whose words stand beside an instance


def measure_code(config: Config, experiment: str, metric: str) -> list[str]:
    entry = metrics.METRICS[metric]
    modules = ["shapeline.scores"]
    if entry.asks_model:
        modules = ["shapeline.metrics.needs", *framework_code(config, experiment)]
    elif entry.asks_documents or entry.asks_truth or entry.asks_randomised:
        modules = ["shapeline.metrics.needs"]
    own = getattr(getattr(config.experiments[experiment].metrics, metric), "functions", {}).values()
    return [*sources(*modules, entry.function.split(":")[0]), *(file for one in own for file in user_file(one))]


def report_code(config: Config, experiment: str) -> list[str]:
    notebook = config.experiments[experiment].report.notebook
    own = [f"shapeline.{file.stem}" for file in sorted(PACKAGE.glob(f"{notebook}_*.py"))]
    shared = ("comparison_plots", "evidence_plots", "image_plots", "plots", "reports", "sanity_plots", "text_plots")
    return sources(*(f"shapeline.{module}" for module in shared), *own)


# --- what a rule is given: settings with the code behind them -----------------------------------------------------


def prepare_job(config: Config, dataset: str) -> dict:
    return with_code(prepare_settings(config, dataset), prepare_code(config, dataset))


def train_job(config: Config, model: str, number: int = 0) -> dict:
    return with_code(train_settings(config, model, number), train_code(config, model))


def randomise_job(config: Config, model: str, variant: str) -> dict:
    return with_code(randomise_settings(config, variant), randomise_code(config, model))


def select_job(config: Config, experiment: str) -> dict:
    return with_code(select_settings(config, experiment), select_code(config, experiment))


def attribute_job(config: Config, experiment: str, label: str) -> dict:
    return with_code(attribute_settings(config, experiment, label), attribute_code(config, experiment, label))


def measure_job(config: Config, experiment: str, metric: str) -> dict:
    return with_code(measure_settings(config, experiment, metric), measure_code(config, experiment, metric))


def compare_job(config: Config, experiment: str, metric: str) -> dict:
    return with_code(compare_settings(config, experiment, metric), sources("shapeline.metrics.compare"))


def report_job(config: Config, experiment: str) -> dict:
    return with_code(report_settings(config, experiment), report_code(config, experiment))


def theory_job(config: Config) -> dict:
    modules = ("theory", "theory_plots", "plots", "reports")
    return with_code({"seed": config.seed}, sources(*(f"shapeline.{module}" for module in modules)))


def index_job(config: Config) -> dict:
    modules = ("comparison_plots", "plots", "reports")
    return with_code({"digests": digests(config)}, sources(*(f"shapeline.{module}" for module in modules)))


# --- the user's own files -----------------------------------------------------------------------------------------


def user_file(reference: str | None) -> list[str]:
    """The user's own Python file in "path/to/file.py:function", or the file of a ready model, as an input."""
    if ready.suffix_of(reference):
        return [str(datasets.expand(reference))]
    return [str(datasets.expand(reference.rpartition(":")[0]))] if reference and ".py:" in reference else []


def tokenizer_file(config: Config, experiment: str) -> list[str]:
    """The user's own file that cuts the documents of the experiment's dataset, as an input."""
    return user_file(config.datasets[dataset_of(config, experiment)].tokenizer)


def user_files(config: Config, experiment: str) -> list[str]:
    """The user's own files behind the values of an experiment's model: its own, and what cuts texts of one's own."""
    entry = config.experiments[experiment]
    cut_by = tokenizer_file(config, experiment) if entry.instances.texts else []
    return [*user_file(config.models[entry.model].source), *cut_by]


def reference_file(config: Config, experiment: str) -> list[str]:
    """The user's own array that fills absent features, as an input."""
    file = references.file_of(canonical(config.experiments[experiment].reference))
    return [str(file)] if file else []


def _file(module: str) -> Path:
    path = PACKAGE.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def _imports(file: Path) -> list[Path]:
    """Files of the package that a file imports, anywhere in it."""
    modules: set[str] = set()
    for package, names, plain in IMPORT.findall(file.read_text()):
        modules |= {package, *(f"{package}.{name}" for name in re.findall(r"\w+", names))} if package else {plain}
    files = {_file(module) for module in modules if module != "shapeline"}
    return [f for f in files if f.is_file() and not _untracked(f)]


def _untracked(file: Path) -> bool:
    return file.stem in UNTRACKED or file == PACKAGE / "metrics" / "__init__.py"


# --- a lost .snakemake --------------------------------------------------------------------------------------------


def check_records(config: Config) -> None:
    """Stop when outputs that Snakemake would call up to date were made with other settings or code: it lost its record
    of them, or they are other files than those that it recorded.

    Raises ShapelineError with the stale files and the command that remakes them.
    """
    stale = [
        path
        for path, settings in dict(_expected(config)).items()
        if os.path.exists(path) and not _is_recorded(path, settings) and _stored_digest(path) != digest(settings)
    ]
    if stale:
        raise ShapelineError(
            f".snakemake has no true record of {len(stale)} output(s) that were made with other settings, or by other "
            f"code, than are here now: {', '.join(stale)}. Remake them and what depends on them with:\n"
            f"  rm {' '.join(stale)} && snakemake --cores all"
        )


def outputs(config: Config) -> set[str]:
    """Paths of what the configuration's jobs make: a file a job, its card or notebook where it makes several."""
    return {path for path, _ in _expected(config)}


def digests(config: Config) -> dict[str, str]:
    """A digest of the settings of all jobs of each experiment under `run`: which configuration made its page."""

    def of_settings(job: dict) -> str:
        return digest({key: setting for key, setting in job.items() if key != "code"})

    return {name: digest({"jobs": sorted({of_settings(job) for _, job in _of(config, name)})}) for name in config.run}


def _expected(config: Config) -> Iterator[tuple[str, dict]]:
    yield f"{config.results}/reports/theory.ipynb", theory_job(config)
    for experiment in config.experiments:
        yield from _of(config, experiment)


def _of(config: Config, experiment: str) -> Iterator[tuple[str, dict]]:
    model = config.experiments[experiment].model
    for dataset in datasets_of(config, experiment):
        yield prepared(dataset)["card"], prepare_job(config, dataset)
    if model:
        yield model_files(config, model)["card"], train_job(config, model)
    yield f"{config.results}/{experiment}/instances.parquet", select_job(config, experiment)
    for variant in variants(config, experiment):
        yield model_files(config, f"{model}@{variant}")["card"], randomise_job(config, model, variant)
    for number, training in enumerate(trainings(config, experiment), 1):
        yield model_files(config, f"{model}@{training}")["card"], train_job(config, model, number)
    for label in all_labels(config, experiment):
        settings = attribute_job(config, experiment, label)
        yield from ((path, settings) for path in score_files(config, experiment, label))
    for metric in metric_names(config, experiment):
        settings = measure_job(config, experiment, metric)
        for path in metric_files(config, experiment, metric):
            others = _of_trainings(config, experiment, path) if metric in metrics.PAIRED else ()
            yield from ((one, settings) for one in (path, *others))
    for metric, path in zip(metric_names(config, experiment), compared_files(config, experiment), strict=True):
        yield path, compare_job(config, experiment, metric)
    yield f"{config.results}/reports/{experiment}.ipynb", report_job(config, experiment)


def _is_recorded(path: str, settings: dict) -> bool:
    """Whether Snakemake itself can tell that the file at `path` is up to date or not.

    It writes its record in the moments after the file; from the times alone a file that came later is known, and then
    the record decides: with other parameters in it the job runs again anyhow.
    """
    record = _record(path)
    try:
        recorded = json.loads(record.read_text()).get("params", [])
    except (FileNotFoundError, ValueError):  # Snakemake passes over a record that it cannot read
        return False
    if 0 <= record.stat().st_mtime - os.stat(path).st_mtime < RECORDED_WITHIN:
        return True
    return repr(settings) not in recorded


def _record(path: str) -> Path:
    """Where Snakemake keeps its record of an output: the path in URL-safe base64, in pieces a file name can hold."""
    name = urlsafe_b64encode(path.encode()).decode()
    longest = os.pathconf(".", "PC_NAME_MAX") - 1
    pieces = [name[i : i + longest] for i in range(0, len(name), longest)]
    return Path(".snakemake/metadata", *("@" + piece for piece in pieces[:-1]), pieces[-1])


def _stored_digest(path: str) -> str | None:
    if path.endswith(".parquet"):
        from shapeline import scores  # pandas: only when a record is missing

        return scores.metadata(path).get("settings_digest")
    found = document(path)
    if path.endswith(".ipynb"):
        return found.get("metadata", {}).get("shapeline", {}).get("settings_digest")
    return digest(found.get("settings"))
