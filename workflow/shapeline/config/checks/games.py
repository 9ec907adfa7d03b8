"""Rules of an experiment that explains a game: its function, the keys that it has, and its methods and metrics."""

from collections.abc import Iterator

from shapeline.config.checks.paths import absent
from shapeline.config.checks.place import MethodPlace, Place
from shapeline.errors import ShapelineError
from shapeline.methods.custom import own_arguments
from shapeline.methods.registry import METHODS, Method

BUILD_TAKES = ("seed", "device")  # arguments that a function which builds a game may name
OF_MODELS = (
    *("model", "dataset", "reference", "value", "target", "instances", "timing", "time_limit", "precision", "compile"),
    *("cache", "training_seeds", "instances_per_training_seed"),
)
OF_GAMES = ("game_files", "game_rounds")


def file(place: Place) -> Iterator[str]:
    """The function that builds the game is there and needs nothing that it is not given; so are its files."""
    where, entry = place.where, place.experiment
    try:
        needed = [name for name, must in own_arguments(entry.game).items() if must and name not in BUILD_TAKES]
        if needed:
            yield (
                f"{where}.game: {entry.game} needs {', '.join(needed)}; it is called with {' and '.join(BUILD_TAKES)} "
                "alone, so give it defaults"
            )
    except ShapelineError as error:
        yield f"{where}.game: {error}"
    for path in entry.game_files:
        if problem := absent(path):
            yield f"{where}.game_files: {problem}"


def keys(place: Place) -> Iterator[str]:
    """No key stands beside the game that is of models and their data."""
    for key in OF_MODELS:
        if key in place.experiment.model_fields_set:
            yield f"{place.where}.{key}: an experiment with a game has no {key}; remove the key"
    if place.kind != "player":
        yield f"{place.where}.features: the features of a game are its players; remove the key"
    if place.experiment.report.notebook != "game":
        yield f"{place.where}.report.notebook: the page of a game is game; remove the key"


def check_metrics(place: Place) -> Iterator[str]:
    """The metrics read scores alone."""
    for name, metric in place.metrics():
        if metric.asks_data:
            yield f"{place.where}.metrics.{name}: it measures a model on data; a game has error, efficiency and cost"


def explains_games(method: Method) -> bool:
    """Whether a method needs the values of coalitions alone."""
    if method.family == "coalitions":
        return method.is_design or method.control
    return method.family == "peers" and not method.needs and not method.data


def method(label: MethodPlace) -> Iterator[str]:
    """The method explains any function of coalitions."""
    if not explains_games(label.method):
        able = ", ".join(name for name, one in METHODS.items() if explains_games(one))
        yield f"{label.where}: {label.entry.method} needs a model and its inputs; for a game use one of {able}"


def check_game_keys(place: Place) -> Iterator[str]:
    """Keys of games stand beside a game."""
    for key in OF_GAMES:
        if key in place.experiment.model_fields_set:
            yield f"{place.where}.{key}: it is of an experiment with a game; remove the key"
    if place.kind == "player":
        yield f"{place.where}.features.kind: players are of a game; give game, or the features of the dataset"
    if place.experiment.report.notebook == "game":
        yield f"{place.where}.report.notebook: the page game is of an experiment with a game; remove the key"


RULES = (file, keys, check_metrics)
