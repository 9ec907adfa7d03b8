"""One call from a notebook, `shapeline.explain(model, inputs, ...)`, by the engine and designs of the workflow."""

import dataclasses
import hashlib
import math
import weakref
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
from pydantic import ValidationError

from shapeline.attribution.explanation import Explanation
from shapeline.attribution.run import Options, attribute
from shapeline.engine import calibration
from shapeline.engine.forms import Form
from shapeline.engine.question import Question
from shapeline.engine.scoring import PREDICTION
from shapeline.errors import ShapelineError, nearest
from shapeline.game import features as feature_kinds
from shapeline.game import references
from shapeline.game.features import TEXT_KINDS, Features
from shapeline.game.references import Reference
from shapeline.methods.calling import PLANNED
from shapeline.methods.registry import METHODS
from shapeline.models import wrapping
from shapeline.models.classifier import Classifier
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
    """Explain what a model makes of its inputs, in one call.

    model: a torch module, a Keras model, a predict_proba object or a function -> probabilities.
    inputs: (n, *input shape).
    method: a name of the registry, or path/to/file.py:function.
    reference: a kind as in the configuration ("zero", "mean", {"kind": "background", "rows": 16}, "blur", "pad", ...),
    or an array of one input's shape, or of (M, *input shape) rows to average over.
    features: "pixel", "column", "word" (token ids, 0 is padding), "superpixel", {"kind": "patch", "size": 2} or a
    Features.
    budget: multiple of d, for sampled methods.
    target: class (or one an instance), the predicted one by default.
    seed: of all draws; an instance's own depend on its row too, and on how many equal ones stand before it.
    background: rows that a kind of reference is made from, else the inputs.
    value: log-probability for networks, probability for functions by default; a regression model is explained with
    "prediction", which is the default of an object with `predict` alone.
    parameters: the method's own.

    Returns an Explanation; where d differs by instance, `scores` is (n, largest d), NaN beyond an instance's own
    features.
    """
    settings = _checked_settings(method, parameters, budget)
    kind = {"kind": features} if isinstance(features, str) else features
    tokens = (kind.kind if isinstance(kind, Features) else kind.get("kind")) in TEXT_KINDS
    inputs = _inputs(inputs, method, tokens)
    if isinstance(reference, str) and reference.startswith("mean") and background is None and len(inputs) == 1:
        raise ShapelineError("explain: the mean of a single input is the input itself; give background or a reference")
    if isinstance(kind, Features):
        buckets = [(kind, np.arange(len(inputs)))]
    else:
        buckets = feature_kinds.buckets(kind, {"input_shape": list(inputs.shape[1:])}, inputs)
    of_regression = value == PREDICTION and not hasattr(model, "predict_proba")
    classifier = wrapping.wrap(model, "regression" if of_regression else None)
    if classifier.task == "regression":
        value, target = value or PREDICTION, 0 if target is None else target
    value = value or ("probability" if classifier.framework == "function" else "log_probability")
    filled = _reference(reference, inputs if background is None else np.array(background, dtype=inputs.dtype), seed)
    targets = _targets(classifier, inputs, target)
    asked = Question(classifier, filled, None, value, _form_of(classifier, inputs, filled))
    options = Options([budget if METHODS[method].sampled else None], seed_of(seed, method, 0), on_error="fail")
    parts, rows = [], _row_names(inputs)
    for own, positions in buckets:
        few = dataclasses.replace(options, instances=positions, draws=rows[positions])
        question = asked.having(features=own)
        parts += attribute(question, inputs[positions], targets[positions], settings, few)
    return parts[0] if len(parts) == 1 else _together(parts, [positions for _, positions in buckets])


def _inputs(inputs: np.ndarray, method: str, tokens: bool) -> np.ndarray:
    """The inputs as a model takes them; refuses those that the method does not explain."""
    inputs = np.array(
        inputs, dtype=np.int32 if tokens else np.float32, order="C"
    )  # a copy: the caller's stays as it is
    if inputs.ndim < 2 or not len(inputs):
        raise ShapelineError(f"explain: inputs have shape {inputs.shape}; give one or more inputs as (n, *input shape)")
    taken, given = METHODS[method].data, "text" if tokens else {2: "table", 4: "image"}.get(inputs.ndim)
    if taken and given not in taken:
        raise ShapelineError(
            f"explain: {method} explains data of kind {' and '.join(taken)}, not inputs of shape {inputs.shape}"
        )
    return inputs


def _row_names(inputs: np.ndarray) -> np.ndarray:
    """What seeds the draws of each input, (n,) int64: its row, and how many equal ones stand before it."""
    before: Counter[str] = Counter()
    names = []
    for row in inputs:
        digest = hashlib.sha256(np.ascontiguousarray(row).tobytes()).hexdigest()
        names.append(seed_of(digest, before[digest]))
        before[digest] += 1
    return np.array(names, dtype=np.int64)


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
        if field.name == "uncertainty" and any(values is None for values in each):
            columns[field.name] = None
            continue
        if field.name in ("scores", "uncertainty"):
            each = [np.pad(s, ((0, 0), (0, widest - s.shape[1])), constant_values=np.nan) for s in each]
        if isinstance(each[0], list):
            joined = [item for items in each for item in items]
            columns[field.name] = [joined[place] for place in order]
        else:
            columns[field.name] = np.concatenate(each)[order]
    return Explanation(**columns)


_FORMS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def _form_of(model: Classifier, inputs: np.ndarray, reference: Reference) -> Form:
    """The calibrated form, once per model object and input shape; a function is called in large batches."""
    if model.framework == "function":
        return Form("plain", 4096)
    kept = _FORMS.setdefault(model.module, {})
    if inputs.shape[1:] not in kept:
        kept[inputs.shape[1:]] = calibration.calibrate(model, inputs[:64], reference)
    return kept[inputs.shape[1:]]


def _checked_settings(method: str, parameters: dict, budget: float) -> dict:
    if method not in METHODS:
        raise ShapelineError(f"unknown method '{method}'.{nearest(method, METHODS)}")
    for key in PLANNED:
        if key in parameters:
            raise ShapelineError(f"{method}: {key} belongs to the workflow's configuration; give a budget")
    if isinstance(budget, bool) or not isinstance(budget, int | float | np.number) or not 0 < budget < math.inf:
        raise ShapelineError(f"{method}: budget is {budget!r}; give a number above 0, evaluations as a multiple of d")
    settings = {"method": method, **parameters}
    try:
        METHODS[method].parameters.model_validate(settings)
    except ValidationError as failure:
        first = failure.errors()[0]
        key = ".".join(map(str, first["loc"]))
        allowed = [name for name in METHODS[method].parameters.model_fields if name not in ("method", *PLANNED)]
        hint = nearest(key, allowed) if first["type"] == "extra_forbidden" else ""
        raise ShapelineError(f"{method}: {key}: {first['msg']}.{hint}") from None
    return settings


def _reference(reference: str | dict | np.ndarray, background: np.ndarray, seed: int) -> Reference:
    """A reference of a kind, made from the background, or given as rows."""
    if isinstance(reference, str | dict):
        data = SimpleNamespace(inputs=background, split=np.zeros(len(background), np.uint8), card={})
        return references.build(reference, data, seed)
    shape, rows = background.shape[1:], np.array(reference, dtype=background.dtype)
    rows = rows[None] if rows.shape == shape else rows
    if rows.shape[1:] != shape:
        raise ShapelineError(f"the reference has shape {rows.shape}; one input has shape {shape}")
    return Reference(rows)
