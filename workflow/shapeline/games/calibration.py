"""The fastest verified form and batch of a model on its device."""

import dataclasses
import logging
import time

import numpy as np

from shapeline.errors import MethodFailure, ShapelineError
from shapeline.games.calibration_search import difference
from shapeline.games.execution import (
    BFLOAT16_TOLERANCE,
    GRAPH_WORTH,
    TOLERANCE,
    ExecutionBackend,
    FormRefused,
    backend_of,
    masked_rows,
)
from shapeline.games.features import Features, build
from shapeline.games.game import Game
from shapeline.games.input_checks import as_array, shared_reference
from shapeline.games.references import Reference
from shapeline.games.windows import WIDEST
from shapeline.models.classifier import Classifier

log = logging.getLogger(__name__)
ROWS_OF_PATCHES = 1024  # of a call, of which those with as many patches go through the model together
WINDOWED = ("window_size", "windows", "from_pooled")  # what a module of tokens with a local receptive field declares


def calibrate(model: Classifier, inputs: np.ndarray, reference: Reference) -> ExecutionBackend:
    """The fastest verified form and batch size of the model on its device, in about a second for a small model.

    inputs (n, *input_shape), some real ones. A form is verified against the plain model on masked rows and on the
    pure reference, at two batch sizes, to 1e-5 in log-probability (relative to it where it is below -1); a form that
    fails is left out, and the log says why. What is timed is the engine's whole step: filling, model, value. A module
    that cuts its own batches (`rows_a_call`) is run plain, in calls of so many rows.
    """
    inputs = as_array(inputs)
    if len(inputs) == 0:
        raise ShapelineError("engine: there is no input to calibrate on; give one or more")
    if rows := own_rows(model, reference):
        form = _calibrate_batches(
            Game(model, shared_reference(reference, inputs), None, form=ExecutionBackend(batch=rows)), inputs[:1]
        )
    else:
        form = backend_of(model).calibrate(model, inputs, shared_reference(reference, inputs))
    declared = inputs.dtype == np.int32 and all(hasattr(model.module, name) for name in WINDOWED)
    if declared and model.task == "classification" and model.module.window_size <= WIDEST:
        form = _try_windows(Game(model, shared_reference(reference, inputs), None, form=form), inputs[:1])
    log.info("form %s, %d rows a call: %s rows/s", form.name, form.batch, f"{form.rate:,.0f}")
    return form


def or_graph(
    form: ExecutionBackend, model: Classifier, graph: Classifier, inputs: np.ndarray, reference: Reference
) -> ExecutionBackend:
    """A form that `calibrate` gave a network whose framework has no form "onnx", or that one where its graph says the
    same on masked rows and is faster, or nearly as fast."""
    inputs = as_array(inputs)
    reference = shared_reference(reference, inputs)
    rows = masked_rows(inputs, reference, count=64)
    try:
        said = [_evaluate(each, rows) for each in (graph, model)]
        differs = difference(*said)
        if not differs <= TOLERANCE:
            raise FormRefused(f"log-probabilities differ by {differs:.1e}")
        by_graph = backend_of(graph).calibrate(graph, inputs, reference, differs)
    except (FormRefused, MethodFailure, RuntimeError) as refusal:
        log.info("form onnx left out: %s", refusal)
        return form
    log.info("form onnx, %d rows a call: %s rows/s", by_graph.batch, f"{by_graph.rate:,.0f}")
    return by_graph if GRAPH_WORTH * by_graph.rate > form.rate else form


def _evaluate(model: Classifier, rows: np.ndarray) -> np.ndarray:
    return model.predict(rows)[:, None] if model.task == "regression" else model.log_probs(rows)


def own_rows(model: Classifier, reference: Reference) -> int | None:
    """Rows of a call where batches are cut inside it, by the module or as patches are left out; else None."""
    return ROWS_OF_PATCHES if reference.leaves_out else getattr(model.module, "rows_a_call", None)


def choose_backend(game: Game, inputs: np.ndarray, precision: str, compiled: bool) -> ExecutionBackend:
    """The form that an experiment asks for by its keys precision and compile, verified as `calibrate` does; of torch.

    game: with the calibrated form, whose batch it keeps. Raises ShapelineError where the model cannot take it, or
    where it differs by more than TOLERANCE (BFLOAT16_TOLERANCE).
    """
    name = "_".join(["compiled"] * compiled + ["bfloat16"] * (precision == "bfloat16"))
    inputs, model = as_array(inputs), game.model
    form = ExecutionBackend(name, game.form.batch)
    differs = backend_of(model).difference(game.having(form=form), inputs)
    allowed = BFLOAT16_TOLERANCE if precision == "bfloat16" else TOLERANCE
    if not differs <= allowed:
        key = "precision: bfloat16" if precision == "bfloat16" else "compile: true"
        raise ShapelineError(
            f"engine: {key} changes log-probabilities of model '{model.architecture}' by {differs:.1e}, more than "
            f"{allowed:g}; remove the key"
        )
    return dataclasses.replace(form, difference=differs)


def _calibrate_batches(game: Game, document: np.ndarray) -> ExecutionBackend:
    """The form of rows that are cut into batches inside a call, with its rate on masks of all sizes."""
    if document.ndim == 4:
        patch = getattr(game.model.module, "patch", 1)
        features = build({"kind": "patch", "size": patch}, {"input_shape": document.shape[1:]})
    else:
        features = Features("word", document.shape[1:], np.arange(document.shape[1], dtype=np.int32))
    shares = np.linspace(0, 1, 256)[:, None]
    masks = np.random.default_rng(0).random((256, features.d)) < shares
    began = time.perf_counter()
    game.having(features=features).values(document, masks)
    return dataclasses.replace(game.form, rate=len(masks) / (time.perf_counter() - began))


def _try_windows(game: Game, document: np.ndarray) -> ExecutionBackend:
    """Its form, or the shortcut over windows where it gives the same log-probabilities on random masks, and faster."""
    form, cells = game.form, np.arange(document.shape[1], dtype=np.int32)
    features = Features("word", (len(cells),), cells)
    masks = np.random.default_rng(0).random((256, features.d)) < 0.5
    masks[:2] = [[False], [True]]
    values, rates = {}, {}
    for tried in (form, dataclasses.replace(form, name="windows")):
        asked = game.having(features=features, form=tried)
        for _ in range(3):  # the first is a warm-up; of the others the better one counts
            began = time.perf_counter()
            values[tried.name] = asked.values(document, masks)
            rate = len(masks) / (time.perf_counter() - began)
            rates[tried.name] = max(rate, rates.get(tried.name, 0.0))
    differs = difference(values["windows"], values[form.name])
    if not differs <= TOLERANCE or rates["windows"] < rates[form.name]:
        log.info("form windows left out: differs by %.1e, %.0f rows/s", differs, rates["windows"])
        return form
    return ExecutionBackend("windows", form.batch, rates["windows"], differs)
