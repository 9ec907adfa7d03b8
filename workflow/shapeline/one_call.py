"""One call from a notebook, `shapeline.explain(model, inputs, ...)`, by the engine and designs of the workflow."""

import dataclasses
import math
import weakref
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
from pydantic import ValidationError

from shapeline import engine, methods, models, references
from shapeline import features as feature_kinds
from shapeline.attribution import PLANNED, Explanation, attribute
from shapeline.errors import ShapelineError, nearest
from shapeline.features import Features
from shapeline.models import Classifier
from shapeline.references import Reference
from shapeline.seeds import seed_of


def explain(
    model: object,
    inputs: np.ndarray,
    method: str = "kernel_shap",
    reference: str | dict | np.ndarray = "mean",
    features: str | dict | Features = "pixel",
    budget: float = 4,
    target: int | Sequence[int] | None = None,
    seed: int = 0,
    background: np.ndarray | None = None,
    value: str | None = None,
    **parameters: object,
) -> Explanation:
    """Explain a torch module, a Keras model, a predict_proba object or a function -> probabilities, in one call.

    A regression model is explained with value="prediction", which is the default of an object with `predict` alone.

    inputs (n, *input shape); reference: a kind as in the configuration ("zero", "mean", {"kind": "background", "rows":
    16}, "blur", "pad", ...), made from `background` (else from the inputs), or an array of one input's shape, or of (M,
    *input shape) rows to average over; features: "pixel", "column", "word" (token ids, 0 is padding), "superpixel",
    {"kind": "patch", "size": 2} or a Features; budget: multiple of d, for sampled methods; target: class (or one an
    instance), the predicted one by default; value: log-probability for networks, probability for functions. Returns an
    Explanation; where d differs by instance, `scores` is (n, largest d), NaN beyond an instance's own features.
    """
    settings = _checked_settings(method, parameters, budget)
    kind = {"kind": features} if isinstance(features, str) else features
    tokens = (kind.kind if isinstance(kind, Features) else kind.get("kind")) in feature_kinds.TEXT_KINDS
    dtype = np.int32 if tokens else np.float32
    inputs = np.asarray(inputs, dtype=dtype)
    if inputs.ndim < 2 or not len(inputs):
        raise ShapelineError(f"explain: inputs have shape {inputs.shape}; give one or more inputs as (n, *input shape)")
    taken, found = methods.METHODS[method].data, "text" if tokens else {2: "table", 4: "image"}.get(inputs.ndim)
    if taken and found not in taken:
        raise ShapelineError(
            f"explain: {method} explains data of kind {' and '.join(taken)}, not inputs of shape {inputs.shape}"
        )
    if isinstance(reference, str) and reference.startswith("mean") and background is None and len(inputs) == 1:
        raise ShapelineError("explain: the mean of a single input is the input itself; give background or a reference")
    if isinstance(kind, Features):
        buckets = [(kind, np.arange(len(inputs)))]
    else:
        buckets = feature_kinds.buckets(kind, {"input_shape": list(inputs.shape[1:])}, inputs)
    of_regression = value == engine.PREDICTION and not hasattr(model, "predict_proba")
    classifier = models.wrap(model, "regression" if of_regression else None)
    if classifier.task == "regression":
        value, target = value or engine.PREDICTION, 0 if target is None else target
    value = value or ("probability" if classifier.framework == "function" else "log_probability")
    filled = _reference(reference, inputs if background is None else np.asarray(background, dtype=dtype), seed)
    targets = _targets(classifier, inputs, target)
    form = _form_of(classifier, inputs, filled)
    budgets = [budget if methods.METHODS[method].sampled else None]
    parts = []
    for own, positions in buckets:
        parts += attribute(
            classifier,
            inputs[positions],
            targets[positions],
            settings,
            own,
            filled,
            value,
            budgets,
            seed_of(seed, method, 0),
            positions,
            form=form,
            on_error="fail",
        )
    return parts[0] if len(parts) == 1 else _together(parts, [positions for _, positions in buckets])


def _targets(classifier: Classifier, inputs: np.ndarray, target: int | Sequence[int] | None) -> np.ndarray:
    """The class explained of each input, (n,); the predicted one where none is given."""
    ask = classifier.predict if classifier.task == "regression" else classifier.log_probs
    try:
        said = ask(inputs if target is None else inputs[:1])
    except (IndexError, RuntimeError, TypeError, ValueError) as error:  # what frameworks raise where shapes do not fit
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ShapelineError(
            f"explain: model '{classifier.architecture}' fails on inputs of shape {inputs.shape}: {reason}"
        ) from error
    targets = said.argmax(1) if target is None else np.asarray(target)
    whole = targets.dtype.kind in "biuf" and np.array_equal(targets, np.floor(targets.astype(float)))
    if targets.shape not in ((), (len(inputs),)) or not whole:
        raise ShapelineError(
            f"explain: target has {targets.dtype} of shape {targets.shape}; give one class, or {len(inputs)}, one an "
            "input, as whole numbers"
        )
    return np.broadcast_to(targets, len(inputs)).astype(int)


def _together(parts: Sequence[Explanation], positions: Sequence[np.ndarray]) -> Explanation:
    """Explanations of groups of instances as one, in the order of the inputs."""
    order = np.argsort(np.concatenate(positions))
    widest = max(part.scores.shape[1] for part in parts)
    columns = {}
    for field in dataclasses.fields(Explanation):
        each = [getattr(part, field.name) for part in parts]
        if field.name == "scores":
            each = [np.pad(s, ((0, 0), (0, widest - s.shape[1])), constant_values=np.nan) for s in each]
        if isinstance(each[0], list):
            joined = [item for items in each for item in items]
            columns[field.name] = [joined[place] for place in order]
        else:
            columns[field.name] = np.concatenate(each)[order]
    return Explanation(**columns)


_FORMS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def _form_of(model: Classifier, inputs: np.ndarray, reference: Reference) -> engine.Form:
    """The calibrated form, once per model object and input shape; a function is called in large batches."""
    if model.framework == "function":
        return engine.Form("plain", 4096)
    kept = _FORMS.setdefault(model.module, {})
    if inputs.shape[1:] not in kept:
        kept[inputs.shape[1:]] = engine.calibrate(model, inputs[:64], reference)
    return kept[inputs.shape[1:]]


def _checked_settings(method: str, parameters: dict, budget: float) -> dict:
    if method not in methods.METHODS:
        raise ShapelineError(f"unknown method '{method}'.{nearest(method, methods.METHODS)}")
    for key in PLANNED:
        if key in parameters:
            raise ShapelineError(f"{method}: {key} belongs to the workflow's configuration; give a budget")
    if isinstance(budget, bool) or not isinstance(budget, int | float | np.number) or not 0 < budget < math.inf:
        raise ShapelineError(f"{method}: budget is {budget!r}; give a number above 0, evaluations as a multiple of d")
    settings = {"method": method, **parameters}
    try:
        methods.METHODS[method].parameters.model_validate(settings)
    except ValidationError as failure:
        first = failure.errors()[0]
        key = ".".join(map(str, first["loc"]))
        allowed = [name for name in methods.METHODS[method].parameters.model_fields if name not in ("method", *PLANNED)]
        hint = nearest(key, allowed) if first["type"] == "extra_forbidden" else ""
        raise ShapelineError(f"{method}: {key}: {first['msg']}.{hint}") from None
    return settings


def _reference(reference: str | dict | np.ndarray, background: np.ndarray, seed: int) -> Reference:
    """A reference of a kind, made from the background, or given as rows."""
    if isinstance(reference, str | dict):
        data = SimpleNamespace(inputs=background, split=np.zeros(len(background), np.uint8), card={})
        return references.build(reference, data, seed)
    shape, rows = background.shape[1:], np.asarray(reference, dtype=background.dtype)
    rows = rows[None] if rows.shape == shape else rows
    if rows.shape[1:] != shape:
        raise ShapelineError(f"the reference has shape {rows.shape}; one input has shape {shape}")
    return Reference(rows)
