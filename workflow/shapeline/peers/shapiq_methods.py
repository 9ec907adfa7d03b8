"""shapiq's approximators by name, through one adapter; see games for what they are asked about."""

import inspect
from collections.abc import Callable, Sequence
from importlib.metadata import version

import numpy as np
from shapiq import approximator as installed

from shapeline.engine.question import Question
from shapeline.errors import MethodFailure, ShapelineError
from shapeline.peers.budgets import kernel_minimum
from shapeline.peers.games import Asked, Game, explained, numpy_seeded

Scored = tuple[np.ndarray, np.ndarray]
FIRST_ORDER = {"SV", "kADD-SHAP"}  # the indices whose interactions of a single feature are its Shapley value


def approximate(
    question: Question,
    inputs: np.ndarray,
    targets: np.ndarray,
    instances: Sequence[int],
    seed: int,
    budget: int,
    approximator: str = "KernelSHAP",
) -> Scored:
    """The Shapley values that a shapiq approximator of this name gives, with its own defaults. Scores (n, d),
    evaluations (n,).

    Raises ShapelineError where the installed release has none of that name, or lacks what it runs; MethodFailure where
    it gives up, as the sparse transforms do at small budgets.
    """
    make = _found(approximator)
    taken = inspect.signature(make).parameters
    order = {"index": "SV", "max_order": 1} if "SV" in make.valid_indices else {}  # kADDSHAP fits pairs beside them
    order = {name: asked for name, asked in order.items() if name in taken}

    def explain(game: Game, seed: int) -> np.ndarray:
        try:
            with numpy_seeded(seed):
                values = make(n=game.d, random_state=seed, **order).approximate(
                    budget, lambda masks: game(np.atleast_2d(masks))
                )
        except ImportError as error:
            raise ShapelineError(f"peer_shapiq: {_line(error)}") from error
        except (ValueError, IndexError) as error:
            raise MethodFailure("no design", f"{approximator} of {budget} evaluations: {_line(error)}") from error
        return np.array([values[(feature,)] for feature in range(game.d)])

    asked = Asked(question, inputs, targets, instances, seed, budget)
    return explained(explain, asked, kernel_minimum)


def names() -> list[str]:
    """The approximators of Shapley values that the installed release has."""
    found = {name: getattr(installed, name) for name in installed.__all__}
    return sorted(name for name, one in found.items() if FIRST_ORDER & set(getattr(one, "valid_indices", ())))


def _found(name: str) -> Callable:
    if name not in names():
        raise ShapelineError(
            f"peer_shapiq: shapiq {version('shapiq')} has no approximator '{name}' of Shapley values; it has "
            f"{', '.join(names())}"
        )
    return getattr(installed, name)


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0]
