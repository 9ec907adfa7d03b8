"""Shortcuts to games, explanations and designs, for tests that vary one of their parts."""

import dataclasses
import inspect

import numpy as np

from shapeline.attribution import attribution_job, run
from shapeline.attribution.context import parse
from shapeline.attribution.explanation import Explanation
from shapeline.attribution.run import Options
from shapeline.designs.design import Design
from shapeline.games.execution import ExecutionBackend
from shapeline.games.features import Features
from shapeline.games.game import Game
from shapeline.games.references import Reference
from shapeline.hierarchy import methods
from shapeline.hierarchy.methods import Growth
from shapeline.methods import settings as method_settings


def values(
    model, inputs, reference, masks, features, value="log_probability", targets=None, backend=None, progress=None
) -> np.ndarray:
    return Game(model, reference, features, value, backend).values(inputs, masks, targets, progress)


def attribute(
    *arguments,
    features: Features | None = None,
    reference: Reference | None = None,
    backend: ExecutionBackend | None = None,
    **more,
) -> list[Explanation]:
    """Explain. arguments: model, inputs, targets, settings; optionally features, reference, value, budgets."""
    names = ("features", "reference", "value", "budgets")
    options = {"features": features, "reference": reference, "budgets": (None,), **more}
    options |= dict(zip(names, arguments[4:], strict=False))
    parts = {name: options.pop(name) for name in ("features", "reference", "value") if name in options}
    method = method_settings.parse(arguments[3], options.pop("budgets"))
    return run.attribute(Game(arguments[0], backend=backend, **parts), *arguments[1:3], method, Options(**options))


def explain_rows(subject, share, settings, entry, backend, on_error="record", inputs=None, stored=None, **more):
    subject = dataclasses.replace(subject, backend=backend)
    parsed = parse({"features": subject.feature_settings, **settings})
    return attribution_job.explain_rows(
        subject, share, parsed, entry, Options(on_error=on_error, **more), inputs, stored
    )


def build(settings: dict, shape: tuple[int, ...], budget: float | None = None, seed: int = 0) -> Design:
    """Return the design of a method's settings, as in a job."""
    return method_settings.parse(settings, [budget]).build(shape, budget, seed)


def bind_gradients(module):
    """Return the gradient methods of a module, with a model, its features and a reference in place of a game."""

    class Methods:
        def __getattr__(self, name: str):
            method = getattr(module, name)
            if not inspect.isfunction(method) or "game" not in inspect.signature(method).parameters:
                return method

            def call(model, inputs, targets, features, *others, **named):
                reference = named.pop("reference", None)
                if others and hasattr(others[0], "rows"):
                    reference, *others = others
                return method(Game(model, reference, features), inputs, targets, *others, **named)

            return call

    return Methods()


def group_cells(inputs: np.ndarray) -> Features:
    """Return each pixel (n, channels, height, width) or column (n, length) as a feature."""
    shape = inputs.shape[1:] if inputs.ndim == 2 else inputs.shape[2:]
    cells = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    return Features("column" if inputs.ndim == 2 else "pixel", shape, np.broadcast_to(cells, inputs.shape[1:]))


def evaluator(model, inputs, reference, targets, value="probability", backend=None, owners=None, shifts=None):
    """Return the evaluator of a torch model or a function on its device."""
    from shapeline.hierarchy.torch_evaluator import Evaluator

    inputs = np.asarray(inputs)
    return Evaluator(Game(model, reference, group_cells(inputs), value, backend), inputs, targets, owners, shifts)


def trees(
    model, inputs, reference, targets, min_size, *, value="probability", backend=None, shifts=None, **growth
) -> list:
    """Return h-Shap of inputs, with several targets (n, T) in reading order."""
    targets = np.asarray(targets)
    inputs = np.repeat(inputs, targets[:1].size, axis=0)
    game = Game(model, reference, group_cells(inputs), value, backend)
    return methods.explain_grid(game, inputs, targets.ravel(), min_size, Growth(**growth), shifts)
