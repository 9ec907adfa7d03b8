"""Rules of an experiment that explains a game: its function, the keys that it has, and its methods and metrics."""

from collections.abc import Iterator

from shapeline.config.checks.place import MethodPlace, Place, catch, describe_absence, refuse
from shapeline.config.types import Config
from shapeline.datasets import folders
from shapeline.datasets.sources import expand
from shapeline.errors import ShapelineError
from shapeline.generation import prompts
from shapeline.generation.prompts import KINDS, REMOVALS
from shapeline.methods.dispatch import list_arguments
from shapeline.methods.registry import METHODS, Method

BUILD_TAKES = ("seed", "device")  # arguments that a function which builds a game may name
OF_MODELS = (
    *("model", "dataset", "reference", "value", "target", "instances", "timing", "time_limit", "precision", "compile"),
    *("cache", "training_seeds", "instances_per_training_seed"),
)
OF_GAMES = ("game_files", "game_rounds")


def check_file(place: Place) -> Iterator[str]:
    """The function that builds the game is there and needs nothing that it is not given; so are its files."""
    where, entry = place.where, place.experiment
    try:
        needed = [name for name, must in list_arguments(entry.game).items() if must and name not in BUILD_TAKES]
        if needed:
            yield (
                f"{where}.game: {entry.game} needs {', '.join(needed)}; it is called with {' and '.join(BUILD_TAKES)} "
                "alone, so give it defaults"
            )
    except ShapelineError as error:
        yield f"{where}.game: {error}"
    for path in entry.game_files:
        if problem := describe_absence(path):
            yield f"{where}.game_files: {problem}"


def check_keys(place: Place) -> Iterator[str]:
    """No key stands beside the game that is of models and their data."""
    yield from refuse(place.where, place.experiment, OF_MODELS, "an experiment with a game has no {key}")
    if place.kind != "player":
        yield f"{place.where}.features: the features of a game are its players; remove the key"
    if place.experiment.report.notebook != "game":
        yield f"{place.where}.report.notebook: the page of a game is game; remove the key"


def check_metrics(place: Place) -> Iterator[str]:
    """The metrics read scores alone."""
    for name, metric in place.metrics():
        if metric.reads_data:
            yield f"{place.where}.metrics.{name}: it measures a model on data; a game has error, efficiency and cost"


def can_explain_games(method: Method) -> bool:
    """Whether a method needs the values of coalitions alone."""
    if method.family == "coalitions":
        return method.is_design or method.control
    return method.family == "peers" and not method.needs and not method.data


def check_game_method(entry: MethodPlace) -> Iterator[str]:
    """The method explains any function of coalitions."""
    if not can_explain_games(entry.method):
        able = ", ".join(name for name, one in METHODS.items() if can_explain_games(one))
        yield f"{entry.where}: {entry.settings.method} needs a model and its inputs; for a game use one of {able}"


def check_game_keys(place: Place) -> Iterator[str]:
    """Keys of games stand beside a game."""
    yield from refuse(place.where, place.experiment, OF_GAMES, "it is of an experiment with a game")
    if place.kind == "player":
        yield f"{place.where}.features.kind: players are of a game; give game, or the features of the dataset"
    if place.experiment.report.notebook == "game":
        yield f"{place.where}.report.notebook: the page game is of an experiment with a game; remove the key"


RULES = (check_file, check_keys, check_metrics)


PROMPTS = "prompts"
OF_MODEL, OF_DATASET = {"source", "task", "max_tokens"}, {"source", "path"}
OF_OTHERS = (
    *("target", "timing", "time_limit", "precision", "compile", "cache", "training_seeds"),
    *("instances_per_training_seed", "game", "game_files", "game_rounds"),
)
METRICS = ("error", "efficiency", "cost", "prompts")


def check_model(name: str, config: Config) -> Iterator[str]:
    """Yield what is wrong with the entry of a language model, or of another model with keys of one."""
    where, model = f"models.{name}", config.models[name]
    if model.task is None:
        yield from refuse(where, model, ["max_tokens"], "it is of task: generation")
        return
    yield from refuse(
        where, model, sorted(model.model_fields_set - OF_MODEL), "a model with task: generation has no {key}"
    )
    if not model.source or not folders.names_folder(model.source):
        yield f"{where}.source: task: generation needs a language model; give path/to/folder of transformers"
    else:
        yield from catch(f"{where}.source", folders.check_generator, model.source)


def check_dataset(name: str, config: Config) -> Iterator[str]:
    """Yield what is wrong with the entry of a file of prompts."""
    where, dataset = f"datasets.{name}", config.datasets[name]
    yield from refuse(
        where, dataset, sorted(dataset.model_fields_set - OF_DATASET), "a dataset of prompts has no {key}"
    )
    if not dataset.path:
        yield f"{where}.path: is missing; name a .jsonl or .csv file of prompts"
    else:
        yield from catch(f"{where}.path", lambda: prompts.read_prompts(expand(dataset.path)))


def check_prompts(place: Place) -> Iterator[str]:
    """The dataset is a file of prompts, whose parts are features of the kind."""
    where, dataset = place.where, place.dataset
    if dataset is None or dataset.source != PROMPTS:
        yield f"{where}.dataset: a language model explains prompts; name a dataset with source: {PROMPTS}"
    elif place.kind not in KINDS:
        yield f"{where}.features.kind: '{place.kind}' does not fit prompts. Allowed: {', '.join(KINDS)}."
    else:
        try:
            prompts.check_parts(prompts.read_prompts(expand(dataset.path)), place.kind)
        except (ShapelineError, TypeError) as error:
            yield f"{where}.features: {error}"


def check_prompt_keys(place: Place) -> Iterator[str]:
    """The keys are those of prompts."""
    where, entry = place.where, place.experiment
    yield from refuse(where, entry, OF_OTHERS, "an experiment on prompts has no {key}")
    removal = getattr(entry.reference, "kind", entry.reference)
    if "reference" in entry.model_fields_set and removal not in REMOVALS:
        yield f"{where}.reference: parts of prompts are removed by {', '.join(REMOVALS)}; set one of them"
    if "value" in entry.model_fields_set and entry.value != "log_probability":
        yield f"{where}.value: the value is the log_probability of the answer; remove the key"
    chosen = entry.instances
    beside = sorted(chosen.model_fields_set - {"count"})
    yield from refuse(f"{where}.instances", chosen, beside, "prompts are taken in the order of the file")
    for name, _ in place.metrics():
        if name not in METRICS:
            yield f"{where}.metrics.{name}: it is not of prompts; use {', '.join(METRICS)}"
    if "notebook" in entry.report.model_fields_set and entry.report.notebook != "generation":
        yield f"{where}.report.notebook: the page of prompts is generation; remove the key"


def check_methods(place: Place) -> Iterator[str]:
    """The methods explain prompts."""
    for name, settings in place.experiment.methods.items():
        entry = MethodPlace(place, name, settings, None)
        if not entry.method.explains_prompts:
            able = ", ".join(one for one, method in METHODS.items() if method.explains_prompts)
            yield f"{entry.where}: {settings.method} does not explain prompts; use one of {able}"
        elif settings.method == "h_shap" and (of_grids := {"min_size", "shifts"} & settings.model_fields_set):
            yield f"{entry.where}.{min(of_grids)}: it is of images; remove the key"
        elif getattr(settings, "match_budget_of", None):
            yield f"{entry.where}.match_budget_of: prompts have a budget; give budget"


def check_others(place: Place) -> Iterator[str]:
    """Yield what another experiment has that is of prompts alone."""
    if place.kind in ("sentence", "passage", "message"):
        yield f"{place.where}.features.kind: '{place.kind}' is of prompts; give a model with task: generation"
    if place.experiment.metrics.prompts:
        yield f"{place.where}.metrics.prompts: it is of prompts; remove the metric"


PROMPT_RULES = (check_prompts, check_prompt_keys, check_methods)
