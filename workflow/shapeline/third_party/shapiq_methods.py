"""shapiq's approximators by name, through one adapter; see games for what they are asked about."""

from collections.abc import Sequence
from importlib.metadata import version

import numpy as np

from shapeline.errors import MethodFailure, ShapelineError
from shapeline.games.game import Game
from shapeline.methods import shapiq_process
from shapeline.methods.parameters import kernel_minimum
from shapeline.third_party.games import CountedGame, InstanceGame, explain_each, seed_numpy

Scored = tuple[np.ndarray, np.ndarray]


def approximate(
    game: Game,
    inputs: np.ndarray,
    targets: np.ndarray,
    instances: Sequence[int],
    seed: int,
    budget: int,
    approximator: str = "KernelSHAP",
    python: str | None = None,
) -> Scored:
    """Return scores (n, d) of the shapiq approximator of this name and evaluations (n,).

    python: another environment's interpreter. Raises ShapelineError if the release lacks it, MethodFailure where
    it gives up.
    """

    def explain(v: InstanceGame, seed: int) -> np.ndarray:
        task = {"approximator": approximator, "d": v.d, "budget": budget, "seed": seed}
        if python:
            reply = shapiq_process.approximate(python, task, lambda masks: v(np.atleast_2d(masks)))
        else:
            with seed_numpy(seed):
                reply = shapiq_process.answer(task, v)
        if "scores" in reply:
            return np.array(reply["scores"])
        message = reply["message"].partition("\n")[0]
        if reply["error"] == "failure":
            raise MethodFailure("no design", f"{approximator} of {budget} evaluations: {message}")
        if reply["error"] == "name":
            release = shapiq_process.read_version(python) if python else version("shapiq")
            message = f"shapiq {release} has no approximator '{approximator}' of Shapley values; it has {message}"
        raise ShapelineError(f"peer_shapiq: {message}")

    asked = CountedGame(game, inputs, targets, instances, seed, budget)
    return explain_each(explain, asked, kernel_minimum)


def names() -> list[str]:
    """Return the approximators of Shapley values that the installed release has."""
    from shapiq import approximator as installed

    return shapiq_process.list_approximators(installed)
