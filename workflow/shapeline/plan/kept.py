"""What is worked out of the configuration of a run, kept: Snakemake asks it of each job, for input, parameters and
resources apart, and many jobs share it."""

import functools
from collections.abc import Callable, Hashable
from typing import TypeVar

from shapeline.config.types import Config

Answer = TypeVar("Answer")
_OF: list[Config] = []  # the one whose answers are kept
_ANSWERS: dict[tuple, object] = {}


def keep_answers(config: Config) -> None:
    """From here on keep what is asked of this very object, which stays as it is, as the files behind its jobs do."""
    _OF[:] = [config]
    _ANSWERS.clear()


def keep_parameters() -> None:
    """Have Snakemake (9.27) look once at the parameters of each function of the rules: it looks twice for each job, a
    tenth of what it plans a run in. Of one that looks elsewhere nothing changes."""
    from snakemake import common, rules

    if hasattr(common, "get_function_params") and not hasattr(common.get_function_params, "cache_info"):
        common.get_function_params = functools.cache(common.get_function_params)
        rules.get_function_params = common.get_function_params


def kept(function: Callable[..., Answer]) -> Callable[..., Answer]:
    """A function of a configuration and names, asked once for the same names; its answer is not to be changed."""

    @functools.wraps(function)
    def answer(config: Config, *names: Hashable) -> Answer:
        if not any(config is one for one in _OF):
            return function(config, *names)
        asked = (function, *names)
        if asked not in _ANSWERS:
            _ANSWERS[asked] = function(config, *names)
        return _ANSWERS[asked]

    return answer
