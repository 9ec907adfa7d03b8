"""The settings of a game, parsed once: its features, its baseline, and the value of a coalition."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class GameSettings:
    """The settings of a game as the configuration has them; reference: the baseline; seed: of what it samples."""

    features: Any = None
    seed: int = 0
    reference: Any = "mean"
    value: str = "log_probability"
    precision: str = "float32"
    compile: bool = False


def parse(settings: Mapping[str, Any]) -> GameSettings:
    """Return the record of a job's settings, which have more than these."""
    known = GameSettings.__dataclass_fields__
    return GameSettings(**{name: setting for name, setting in settings.items() if name in known})
