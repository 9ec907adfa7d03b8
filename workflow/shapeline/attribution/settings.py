"""The settings of a job that explains, parsed once: the game, the method, and how often and how it is run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shapeline.methods import settings as method_settings
from shapeline.methods.settings import MethodSettings

OF_A_JOB = ("training_seeds", "training_instances", "randomised", "repeats")  # which rows there are, not what they hold


@dataclass(frozen=True)
class GameSettings:
    """The settings of a game as the configuration has them; reference: the baseline; seed: of what it samples."""

    features: Any = None
    seed: int = 0
    reference: Any = "mean"
    value: str = "log_probability"
    precision: str = "float32"
    compile: bool = False


@dataclass(frozen=True)
class AttributionSettings:
    """The settings of an attribute job; rows: those that define a row, as they were given."""

    game: GameSettings
    method: MethodSettings
    repeats: int
    timing: str
    time_limit: float | None
    training_instances: int | None
    randomised: bool
    rows: Mapping[str, Any]


def parse(settings: Mapping[str, Any]) -> AttributionSettings:
    """Return the record of the settings that the plan gives a job, and that a score file states."""
    method = settings["method"]
    return AttributionSettings(
        parse_game(settings),
        method_settings.parse(method, [*method.get("intermediate_budgets", ()), settings.get("budget")]),
        settings.get("repeats", 1),
        settings.get("timing", "batch"),
        settings.get("time_limit"),
        settings.get("training_instances"),
        "randomised" in settings,
        {name: setting for name, setting in settings.items() if name not in OF_A_JOB},
    )


def parse_game(settings: Mapping[str, Any]) -> GameSettings:
    """Return the record of a job's settings, which have more than these."""
    known = GameSettings.__dataclass_fields__
    return GameSettings(**{name: setting for name, setting in settings.items() if name in known})
