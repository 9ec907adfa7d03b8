"""The code behind the result of each kind of job, and its digest: what a script imports or loads by name.

A test compares them with what the jobs of a real run import.
"""

import dataclasses
import json
import os
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from shapeline.config.derived import canonical, find_dataset, find_framework, find_source
from shapeline.config.types import Config
from shapeline.datasets import folders
from shapeline.datasets.registry import SOURCES, file_digest
from shapeline.datasets.sources import expand, names_function, source_files
from shapeline.errors import ShapelineError
from shapeline.games import references
from shapeline.methods.parameters import StoppingRule
from shapeline.methods.registry import METHODS
from shapeline.metrics.registry import METRICS
from shapeline.models import registry
from shapeline.seeds import digest
from shapeline.workflow.runs import as_inputs, split_entry

PACKAGE = Path(__file__).parent.parent
# Of the Snakefile: above the package in a clone, else where pip puts what is in a wheel beside it, or pip --target.
PLACES = tuple((PACKAGE / place).resolve() for place in ("../..", "../../../../share/shapeline", "../share/shapeline"))
# Edited often and never the origin of a number: plumbing, messages, and the registries, of whose entries a job's
# digest has what decides its own numbers. A refusal stops a job, what a file says of how it was made
# (provenance) is for people to read, and rows come back from their store as they were.
UNTRACKED = {
    *("config", "fork_server", "workflow"),
    *("errors.py", "files.py", "lazy.py", "versions.py", "datasets/entries.py"),
    *("methods/registry.py", "methods/parameters.py", "metrics/registry.py"),
    *("datasets/registry.py", "models/registry.py"),
    *("attribution/provenance.py", "attribution/row_store.py"),
}
# Imports within the package, as they stand in its files; parsing these took a tenth of the time of a dry run.
IMPORT = re.compile(
    r"^[ \t]*(?:from (shapeline[\w.]*) import (\((?:#.*|[^)#])*\)|.+)|import (shapeline[\w.]*))", re.MULTILINE
)


def find_root() -> Path:
    """Return the folder of the Snakefile, one of PLACES. Raises ShapelineError if it is in none of these."""
    root = next((place for place in PLACES if (place / "Snakefile").is_file()), None)
    if root is None:
        raise ShapelineError(
            f"shapeline: no Snakefile beside the package in {PACKAGE}; reinstall it (pip install "
            "--force-reinstall --no-deps), "
            "or work in a clone (git clone <address of the repository>)"
        )
    return root


def list_sources(*modules: str, without: Iterable[str] = ()) -> list[str]:
    """Return sorted paths of modules and their imports within the package; without: with what they alone import."""
    return list(_list_sources(modules, frozenset(without), os.getcwd()))


@cache
def _list_sources(modules: tuple[str, ...], without: frozenset[str], folder: str) -> tuple[str, ...]:
    """Return the paths relative to a folder; thousands of jobs ask for the same few."""
    left_out = {find_module_file(module) for module in without}
    seen: set[Path] = set()
    waiting = [find_module_file(module) for module in modules]
    while waiting:
        file = waiting.pop()
        if file not in seen and file not in left_out:
            seen.add(file)
            waiting += _list_imports(file)
    return tuple(sorted(os.path.relpath(file, folder) for file in seen))


def list_user_modules(files: list[str]) -> list[str]:
    """Return the user's own among the files behind a result; they stand in a rule's input, however large they are."""
    package = _find_prefix(os.getcwd())
    return as_inputs(file for file in files if not file.startswith(package))


def add_code_digest(settings: dict, files: list[str], facts: dict | None = None) -> dict:
    """Return a job's settings with a digest of its package files and of `list_facts` of the registries."""
    folder = os.getcwd()
    package = _find_prefix(folder)
    code = _compute_digest(tuple(sorted({file for file in files if file.startswith(package)})), folder)
    return settings | {"code": digest({"code": code, "facts": facts}) if facts else code}


@cache
def _compute_digest(files: tuple[str, ...], folder: str) -> str:
    """Return a digest of files' names and contents, cached because thousands of jobs share the files."""
    return digest({file: file_digest(Path(folder, file), "sha256") for file in files})


@cache
def _find_prefix(folder: str) -> str:
    """Return how the paths of the package's files begin, relative to a folder."""
    return os.path.relpath(PACKAGE, folder) + os.sep


def list_tracked_modules(text: str) -> list[str]:
    """Return the modules of the package that a text imports and whose files count, sorted."""
    files = {module: find_module_file(module) for module in _list_modules(text)}
    return sorted(module for module, file in files.items() if file.is_file() and not _is_untracked(file))


def find_module_file(module: str) -> Path:
    """Return the file of a module of the package, or where it would be."""
    path = PACKAGE.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def _list_imports(file: Path) -> list[Path]:
    """Return the files of the package that a file imports anywhere."""
    return [find_module_file(module) for module in list_tracked_modules(file.read_text(encoding="utf-8"))]


def _list_modules(text: str) -> set[str]:
    """Return the modules that a text imports from the package, and names that may be modules."""
    modules: set[str] = set()
    for package, names, plain in IMPORT.findall(text):
        modules |= {package, *(f"{package}.{name}" for name in re.findall(r"\w+", names))} if package else {plain}
    return modules - {"shapeline"}


@cache
def _is_untracked(file: Path) -> bool:
    """Return whether a file never decides a number: by its path, or as an `__init__` that is empty or lazy."""
    path = file.relative_to(PACKAGE)
    if not UNTRACKED.isdisjoint((path.as_posix(), path.parts[0])):
        return True
    return file.name == "__init__.py" and _list_modules(file.read_text(encoding="utf-8")) <= {
        "shapeline.lazy",
        "shapeline.lazy.export_lazily",
    }


def list_user_code(reference: str | None) -> list[str]:
    """Return a user's Python file with its imports from the same folder, or the file or folder of a trained model."""
    if folders.names_folder(reference):
        return folders.list_files(reference, weights=True)
    if registry.find_suffix(reference):
        return [str(expand(reference))]
    return source_files(reference) if reference and names_function(reference) else []


def list_tokenizer_files(tokenizer: str | None) -> list[str]:
    """Return the user's files of a tokenizer, as inputs."""
    return (
        folders.list_files(tokenizer, weights=False) if folders.names_folder(tokenizer) else list_user_code(tokenizer)
    )


def list_game_files(config: Config, experiment: str) -> list[str]:
    """Return the user's files behind the values of an experiment's game or prompts, as inputs; none without these."""
    entry = config.experiments[experiment]
    if entry.prompts:
        return [*folders.list_files(entry.prompts["model"], weights=True), str(expand(entry.prompts["path"]))]
    return [*list_user_code(entry.game), *(str(expand(path)) for path in entry.game_files)]


def find_tokenizer_file(config: Config, experiment: str) -> list[str]:
    """Return the user's tokenizer files of the experiment's dataset, as inputs."""
    dataset = find_dataset(config, config.experiments[experiment])
    return list_tokenizer_files(config.datasets[dataset].tokenizer) if dataset else []


def list_user_files(config: Config, experiment: str) -> list[str]:
    """Return the user's files behind the values of an experiment's model: the model's, and the tokenizer's of texts."""
    entry = config.experiments[experiment]
    tokenizer = find_tokenizer_file(config, experiment) if entry.instances.texts else []
    return as_inputs(dict.fromkeys([*list_user_code(config.models[entry.model].source), *tokenizer]))


def find_reference_file(config: Config, experiment: str) -> list[str]:
    """Return the user's array of the baseline, as an input."""
    kind, chosen = references.parse(canonical(config.experiments[experiment].reference))
    return as_inputs([str(expand(chosen["path"]))]) if kind == "array" else []


# A job imports one framework by name from these tables, which a scan of imports does not find.
MODEL_CODE = {
    "torch": "shapeline.models.torch_models",
    "tensorflow": "shapeline.models.keras_models",
    "function": "shapeline.models.pipeline_file",
}
ENGINE_CODE = {
    "torch": ("shapeline.games.torch_backend", "shapeline.games.numpy_backend"),
    "tensorflow": ("shapeline.games.tf_backend", "shapeline.games.numpy_backend"),
    "function": ("shapeline.games.numpy_backend",),
}
GAME_CODE, PROMPT_CODE = "shapeline.attribution.game_job", "shapeline.generation.prompt_job"
# For hierarchical methods, as in `hierarchy.methods.DEVICE_EVALUATORS`.
DEVICE_CODE = dict.fromkeys(("torch", "function"), "shapeline.hierarchy.torch_evaluator")
OF_VALUES = ("coalitions", "data", "external")  # families that evaluate a model only on coalitions
TRAINING = {"torch": "shapeline.models.torch_training", "tensorflow": "shapeline.models.keras_training"}
# Every job imports the readers of all kinds of data; an edit of tokenization must not re-run jobs on images.
OF_KIND = {"image": ("shapeline.datasets.images",), "text": ("shapeline.datasets.text", "shapeline.datasets.tokenizer")}
# Fields of registry entries for people or the configuration, not for jobs: an edit of these re-runs nothing.
NO_JOB_FACTS = frozenset(
    (
        "name description licence citation files data unsupported package needs minimum distinct records words "
        "about lacks paired"
    ).split()
)
# Fields that only the report shows.
SHOWN = frozenset("control exact pairs efficient unsigned unit one_sided gradients category statistics".split())


def list_facts(entry: object, *left_out: set[str]) -> dict:
    """Return the fields of a registry's entry that may affect numbers, as builtin types."""
    values = {field.name: getattr(entry, field.name) for field in dataclasses.fields(entry)}
    return canonical(
        {
            name: value
            for name, value in values.items()
            if not isinstance(value, type) and name not in NO_JOB_FACTS.union(*left_out)
        }
    )


@cache
def list_script_modules(name: str) -> tuple[str, ...]:
    """Return the modules of the package that a script imports."""
    return tuple(list_tracked_modules((find_root() / "workflow/scripts" / f"{name}.py").read_text(encoding="utf-8")))


def choose_environment(config: Config, model: str | None) -> str:
    """Return the conda environment of the jobs that evaluate a model or labelled points."""
    return f"../../envs/{find_job_framework(config, model)}.yaml"


def find_job_framework(config: Config, model: str | None) -> str:
    """Return the framework of the jobs that evaluate a model or labelled points."""
    framework = find_framework(config.models[model]) if model else "torch"
    return "torch" if framework == "function" else framework  # which has the packages of pipelines


def list_libraries(config: Config, model: str | None) -> str:
    """Return the name in fork_server/server.py of the libraries that these jobs import."""
    entry = config.models[model] if model else None
    if entry and registry.find_kind(entry.source, entry.framework) == "folder":
        return "transformers"
    if entry and find_framework(entry) == "function":
        return "skops" if registry.find_suffix(entry.source) == ".skops" else "base"
    return find_job_framework(config, model)


def needs_values_only(config: Config, experiment: str, entry: str, metrics: Sequence[str] = ()) -> bool:
    """Return whether an entry's job, or that of metrics on it, only needs values, which an ONNX graph can compute."""
    definition = config.experiments[experiment]
    if definition.model is None or find_framework(config.models[definition.model]) not in TRAINING:
        return False
    of_values = METHODS[definition.methods[split_entry(entry)[0]].method].family in OF_VALUES
    if metrics:
        return "own" not in metrics and (of_values or not any(METRICS[metric].moves_inputs for metric in metrics))
    return of_values and definition.precision == "float32" and not definition.compile


def list_model_code(config: Config, model: str) -> list[str]:
    """Return the modules that build or read a model."""
    entry = config.models[model]
    reader = registry.READERS.get(registry.find_kind(entry.source, entry.framework))
    return [MODEL_CODE[find_framework(entry)], *([reader] if reader else [])]


def list_framework_code(config: Config, experiment: str) -> list[str]:
    """Return the modules of the framework of an experiment's model and of its engine; none without a model."""
    model = config.experiments[experiment].model
    return [*list_model_code(config, model), *ENGINE_CODE[find_framework(config.models[model])]] if model else []


def list_value_code(architecture: str, framework: str) -> list[str]:
    """Return the files that determine the value of a coalition for a model, which address cached values."""
    reader = registry.READERS.get(registry.find_kind(architecture, framework))
    modules = [MODEL_CODE[framework], *ENGINE_CODE[framework], *([reader] if reader else [])]
    return list_sources("shapeline.attribution.context", *modules)


def prepare_code(config: Config, dataset: str) -> list[str]:
    entry = config.datasets[dataset]
    code = list_sources(*list_script_modules("prepare_dataset"), without=_list_other_kinds(config, dataset))
    reader = list_sources(SOURCES[entry.source].module) if entry.source in SOURCES else list_user_code(entry.source)
    return [*dict.fromkeys([*code, *reader]), *list_tokenizer_files(entry.tokenizer)]


def train_code(config: Config, model: str) -> list[str]:
    entry = config.models[model]
    modules = list_model_code(config, model)
    if not registry.find_kind(entry.source, entry.framework):
        modules.append(TRAINING[find_framework(entry)])
    return [*list_sources(*list_script_modules("train_model"), *modules), *list_user_code(entry.source)]


def randomise_code(config: Config, model: str) -> list[str]:
    code = list_sources(*list_script_modules("randomise_model"), *list_model_code(config, model))
    return [*code, *list_user_code(config.models[model].source)]


def select_code(config: Config, experiment: str) -> list[str]:
    code = list_sources(
        *list_script_modules("select_instances"),
        *list_framework_code(config, experiment),
        *_list_game_code(config, experiment),
        without=_list_unused_readers(config, experiment),
    )
    # The file of instances has the tokenizer's words.
    return [*code, *list_game_files(config, experiment), *find_tokenizer_file(config, experiment)]


def attribute_code(config: Config, experiment: str, entry: str) -> list[str]:
    settings = config.experiments[experiment].methods[split_entry(entry)[0]]
    functions = list_functions(config, experiment, entry)
    modules = [function.split(":")[0] for function in functions if not names_function(function)]
    model = config.experiments[experiment].model
    if METHODS[settings.method].family == "hierarchical" and model:
        modules += filter(None, [DEVICE_CODE.get(find_framework(config.models[model]))])
    code = list_sources(
        *list_script_modules("attribute"),
        *modules,
        *list_framework_code(config, experiment),
        *_list_game_code(config, experiment),
        without=_list_unused_readers(config, experiment),
    )
    user_code = [file for function in functions for file in list_user_code(function)] + list_game_files(
        config, experiment
    )
    return [*code, *user_code, *([str(expand(settings.path))] if settings.method == "external" else [])]


def list_functions(config: Config, experiment: str, entry: str) -> list[str]:
    """Return an entry's functions, "module:function" each, with that of the method whose budget it matches."""
    methods, model = config.experiments[experiment].methods, config.experiments[experiment].model
    settings = methods[split_entry(entry)[0]]
    method = METHODS[settings.method]
    functions = [method.function_for(find_framework(config.models[model]) if model else None), method.measure]
    functions += [method.estimator, method.batch_estimator]
    if isinstance(getattr(settings, "budget", None), StoppingRule):
        functions.append(method.nested_design)
    if getattr(settings, "match_budget_of", None):
        functions.append(METHODS[methods[settings.match_budget_of].method].function)
    return [function for function in functions if function]


def measure_code(config: Config, experiment: str, metric: str) -> list[str]:
    """Return the code of a metric; modules that load data and models only if it reads more than scores."""
    entry = METRICS[metric]
    unused = () if entry.reads_data else ("shapeline.metrics.loaders",)
    code = list_sources(
        *list_script_modules("measure" if entry.evaluates_model else "measure_scores"),
        entry.function.split(":")[0],
        *(list_framework_code(config, experiment) if entry.evaluates_model else ()),
        without=(*_list_unused_readers(config, experiment), *unused),
    )
    parameters = getattr(config.experiments[experiment].metrics, metric)
    user_code = [
        file for function in getattr(parameters, "functions", {}).values() for file in list_user_code(function)
    ]
    return [*code, *user_code]


def list_page_code(script: str, notebook: str) -> list[str]:
    """Return the code that renders a page, its style sheet, and the modules that its notebook imports."""
    return list_page_sources(
        *list_script_modules(script), *list_cell_modules(find_root() / "notebooks" / f"{notebook}.ipynb")
    )


def list_page_sources(*modules: str) -> list[str]:
    """Return the files of a page's modules, the common style sheet, and the scripts and styles beside these modules."""
    code = list_sources(*modules)
    return [*code, *(file for module, file in _list_assets(os.getcwd()) if module is None or module in code)]


@cache
def _list_assets(folder: str) -> list[tuple[str | None, str]]:
    """Return scripts and style sheets with the module that adds them to a page; None if every page has them."""
    files = sorted(file for kind in ("css", "js") for file in (PACKAGE / "report").glob(f"*.{kind}"))
    modules = [None if file.stem == "page" else os.path.relpath(file.with_suffix(".py"), folder) for file in files]
    return list(zip(modules, (os.path.relpath(file, folder) for file in files), strict=True))


@cache
def list_cell_modules(notebook: Path) -> tuple[str, ...]:
    """Return the modules of the package that the cells of a notebook import."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return tuple(
        list_tracked_modules("\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"))
    )


def _list_game_code(config: Config, experiment: str) -> list[str]:
    """Return the modules of jobs on a game or on prompts; none for other experiments."""
    entry = config.experiments[experiment]
    return [PROMPT_CODE] if entry.prompts else [GAME_CODE] if entry.game else []


def _list_unused_readers(config: Config, experiment: str) -> tuple[str, ...]:
    return _list_other_kinds(config, find_dataset(config, config.experiments[experiment]))


def _list_other_kinds(config: Config, dataset: str | None) -> tuple[str, ...]:
    """Return the modules that read other kinds of data than the dataset's; none if its kind is unknown."""
    source = find_source(config.datasets.get(dataset))
    if source is None:
        return ()
    return tuple(module for kind, modules in OF_KIND.items() if kind != source.kind for module in modules)
