"""The engine: coalitions x instances -> values, as fast as the model can go.

`values` never sees a method. It checks what it is given and hands it to the backend of the model's framework, which
fills absent features from the reference on the model's device and runs the model in the form (plain, frozen graph,
compiled, ...) and batch that `calibrate` found fastest and verified. No framework is imported here: a job has one.
"""

import dataclasses
import importlib
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from shapeline.errors import ShapelineError, nearest
from shapeline.features import Features
from shapeline.models.classifier import Classifier
from shapeline.references import Reference
from shapeline.windows import WIDEST

log = logging.getLogger(__name__)

VALUES = ("log_probability", "probability", "logit", "log_odds", "expected_log_probability")
PREDICTION = "prediction"  # the one value of a regression model
TOLERANCE = 1e-5  # largest difference in log-probability that a form may show against the plain model
BFLOAT16_TOLERANCE = 0.1  # the same where an experiment asks for bfloat16, whose numbers have three digits
CALIBRATION_SECONDS = 3.0  # after which no other candidate is tried; a small model on a quiet machine takes under one
# By name, so that a job's tracked files (plan.sources) hold the backend of its own framework alone.
BACKENDS = {
    "torch": "shapeline.torch_engine",
    "function": "shapeline.torch_engine",
    "tensorflow": "shapeline.tf_engine",
}
WINDOWED = ("window_size", "windows", "from_pooled")  # what a module of tokens with a local receptive field declares
WINDOWS = {"torch": "shapeline.torch_windows", "tensorflow": "shapeline.tf_windows"}


@dataclass(frozen=True)
class Form:
    """How a model is run: its form, rows a call, measured rows/s (0: not measured), largest difference to plain.

    An evaluation with M > 1 reference rows takes M rows. `difference` is in log-probability, on masked rows.
    """

    name: str = "plain"
    batch: int = 256
    rate: float = 0.0
    difference: float = 0.0


class FormRefused(ShapelineError):
    """A form that this model cannot take; the calibration goes on without it."""


def values(
    model: Classifier,
    inputs: np.ndarray,
    reference: Reference,
    masks: np.ndarray,
    features: Features,
    value: str = "log_probability",
    targets: np.ndarray | None = None,
    form: Form | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> np.ndarray:
    """Values v(S) of coalitions on instances, (n, K) float64 (Chen et al. 2018, §2.1).

    inputs (n, *input_shape); masks (K, d) bool shared by all instances, or (n, K, d), True = present; targets (n,)
    classes, by default the one predicted on the full input. value: log_probability, probability, log_odds (log p - log
    of the other classes' sum), expected_log_probability (sum over classes of P(y|x) log P(y|x_S)), logit (networks
    only). Of a model of several labels they are those of the target's sigmoid, log_odds its logit, and there is no
    expected_log_probability. With M > 1 reference rows the probability is averaged over them first (the logit itself
    for logit). Of a regression model value is prediction, its plain output averaged over the reference rows, and the
    target 0. Everything after the outputs is float64 and from log-softmax. The numbers do not depend on the form's
    batch beyond float32 rounding. `progress(done_instances, evaluations)` is called after each block.

    Raises ShapelineError for shapes and names that do not fit, for a log of P = 0, and for a NaN or infinite output
    (its `.instance` is the position); MethodFailure when one row alone does not fit into memory.
    """
    inputs, masks = as_array(inputs), as_array(masks, bool)
    if len(inputs) == 0 or masks.shape[-2] == 0:
        return np.empty((len(inputs), masks.shape[-2]))
    _check(model, inputs, shared_reference(reference, inputs), masks, features, value)
    if targets is not None:
        targets = _checked_targets(model, inputs, targets)
    elif value == PREDICTION:
        targets = np.zeros(len(inputs), np.int64)
    run = _by_windows if form is not None and form.name == "windows" else _backend(model).values
    return run(model, inputs, reference, masks, features, value, targets, form or Form(), progress)


def _by_windows(model, inputs, reference, masks, features, value, targets, form, progress) -> np.ndarray:
    """Values of a model with a local receptive field, whose windows are tabled once a document (windows.py)."""
    result = np.empty((len(inputs), masks.shape[-2]))
    full = model.log_probs(inputs) if targets is None or value == "expected_log_probability" else None
    targets = full.argmax(1) if targets is None else targets
    full = np.exp(full) if value == "expected_log_probability" else None
    rows = as_array(reference.of(inputs), inputs.dtype)
    rows = rows[0] if reference.own is None else rows
    evaluations = 0
    for start, stop, first, last, logits in importlib.import_module(WINDOWS[model.framework]).values(
        model, inputs, rows, masks, features
    ):
        of_block = targets[start:stop], None if full is None else full[start:stop]
        result[start:stop, first:last] = score(logits, *of_block, value)
        check_finite(model, result, start, stop, first, last, value)
        evaluations += (stop - start) * (last - first)
        if progress:
            progress(stop if last == masks.shape[-2] else 0, evaluations)
    return result


def score(outputs: np.ndarray, targets: np.ndarray, full: np.ndarray | None, value: str) -> np.ndarray:
    """Logits (a, b, M, classes) of a block to values (a, b); `full` (a, classes): probabilities on the input."""
    from scipy.special import log_softmax, logsumexp  # torch's jobs do without

    index = targets.reshape(-1, 1, 1, 1)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):  # check_finite names what is not finite
        outputs = outputs.astype(np.float64)
        if value in ("logit", PREDICTION):
            return np.take_along_axis(outputs, index, 3).mean((2, 3))
        log_probs = log_softmax(outputs, axis=3)
        if value in ("log_probability", "probability"):
            log_probs = np.take_along_axis(log_probs, index, 3)
        average = log_probs[:, :, 0]
        if log_probs.shape[2] > 1:
            average = logsumexp(log_probs, axis=2) - math.log(log_probs.shape[2])
        if value == "log_probability":
            return average[..., 0]
        if value == "probability":
            return np.exp(average[..., 0])
        if value == "log_odds":
            of_target = np.take_along_axis(average, index[..., 0], 2)[..., 0]
            others = average.copy()
            np.put_along_axis(others, index[..., 0], -np.inf, 2)
            return of_target - logsumexp(others, axis=2)
        full = full[:, None]
        return np.where(full > 0, full * average, 0.0).sum(2)  # 0 log 0 is 0


def calibrate(model: Classifier, inputs: np.ndarray, reference: Reference) -> Form:
    """The fastest verified form and batch size of the model on its device, in about a second for a small model.

    inputs (n, *input_shape), some real ones. A form is verified against the plain model on masked rows and on the
    pure reference, at two batch sizes, to 1e-5 in log-probability (relative to it where it is below -1); a form that
    fails is left out, and the log says why. What is timed is the engine's whole step: filling, model, value.
    """
    inputs = as_array(inputs)
    if len(inputs) == 0:
        raise ShapelineError("engine: calibration needs one or more inputs")
    form = _backend(model).calibrate(model, inputs, shared_reference(reference, inputs))
    declared = inputs.dtype == np.int32 and all(hasattr(model.module, name) for name in WINDOWED)
    if declared and model.task == "classification" and model.module.window_size <= WIDEST:
        form = _with_windows(model, inputs[:1], shared_reference(reference, inputs), form)
    log.info("form %s, %d rows a call: %s rows/s", form.name, form.batch, f"{form.rate:,.0f}")
    return form


def asked(
    model: Classifier, inputs: np.ndarray, reference: Reference, form: Form, precision: str, compiled: bool
) -> Form:
    """The form that an experiment asks for by its keys precision and compile, verified as `calibrate` does; of torch.

    Its batch is that of the calibrated form. Raises ShapelineError where the model cannot take it, or where it differs
    by more than TOLERANCE (BFLOAT16_TOLERANCE).
    """
    name = "_".join(["compiled"] * compiled + ["bfloat16"] * (precision == "bfloat16"))
    inputs = as_array(inputs)
    form = Form(name, form.batch)
    found = _backend(model).difference(model, inputs, shared_reference(reference, inputs), form)
    allowed = BFLOAT16_TOLERANCE if precision == "bfloat16" else TOLERANCE
    if not found <= allowed:
        key = "precision: bfloat16" if precision == "bfloat16" else "compile: true"
        raise ShapelineError(
            f"engine: {key} changes log-probabilities of model '{model.architecture}' by {found:.1e}, more than "
            f"{allowed:g}; remove the key"
        )
    return dataclasses.replace(form, difference=found)


def _with_windows(model: Classifier, document: np.ndarray, reference: Reference, form: Form) -> Form:
    """The form, or the shortcut over windows where it gives the same log-probabilities on random masks, and faster."""
    cells = np.arange(document.shape[1], dtype=np.int32)
    features = Features("word", (len(cells),), cells)
    masks = np.random.default_rng(0).random((256, features.d)) < 0.5
    masks[:2] = [[False], [True]]
    found, rates = {}, {}
    for one in (form, dataclasses.replace(form, name="windows")):
        for _ in range(3):  # the first is a warm-up; of the others the better one counts
            began = time.perf_counter()
            found[one.name] = values(model, document, reference, masks, features, form=one)
            rate = len(masks) / (time.perf_counter() - began)
            rates[one.name] = max(rate, rates.get(one.name, 0.0))
    difference = np.abs(found["windows"] - found[form.name]) / np.abs(found[form.name]).clip(min=1)
    if not difference.max() <= TOLERANCE or rates["windows"] < rates[form.name]:
        log.info("form windows left out: differs by %.1e, %.0f rows/s", difference.max(), rates["windows"])
        return form
    return Form("windows", form.batch, rates["windows"], float(difference.max()))


def _backend(model: Classifier) -> ModuleType:
    return importlib.import_module(BACKENDS[model.framework])


def masked_rows(inputs: np.ndarray, reference: Reference, count: int) -> np.ndarray:
    """Rows to verify a form on (count, *input_shape): the pure reference, a full input, and masked inputs between.

    Cells are kept at random, sparse to dense, by a fixed seed.
    """
    random = np.random.default_rng(0)
    density = random.permutation(np.linspace(0, 1, count))
    density[:2] = 0, 1
    kept = random.random((count, *inputs.shape[1:])) < density.reshape(-1, *[1] * (inputs.ndim - 1))
    full = inputs[np.arange(count) % len(inputs)]
    absent = reference.rows[np.arange(count) % len(reference.rows)]
    return np.where(kept, full, absent)


# --- checks -------------------------------------------------------------------------------------------------------


def as_array(array: np.ndarray, dtype: type | None = None) -> np.ndarray:
    """The array as a framework can share it: contiguous and writable; copied only where it is not.

    float32, but int32 for integers, which are tokens: as wide as a float32, so that `filler` chooses both by bits.
    """
    dtype = dtype or (np.int32 if np.issubdtype(np.asarray(array).dtype, np.integer) else np.float32)
    return np.require(array, dtype, ["C", "W"])


def shared_reference(reference: Reference, inputs: np.ndarray) -> Reference:
    """The reference as rows (M, *input_shape): its own, or those of the first input where each input has its own."""
    return Reference(as_array(reference.of(inputs[:1])[0], inputs.dtype))


def _check(model, inputs, reference, masks, features, value) -> None:
    if value not in (*VALUES, PREDICTION):
        raise ShapelineError(f"engine: unknown value '{value}'.{nearest(value, (*VALUES, PREDICTION))}")
    if (value == PREDICTION) != (model.task == "regression"):
        kind, remedy = ("gives classes", "value: log_probability or probability")
        if model.task == "regression":
            kind, remedy = "is a regression model", "value: prediction"
        raise ShapelineError(f"engine: '{model.architecture}' {kind}, so it has no {value}; use {remedy}")
    if value == "expected_log_probability" and model.task == "multilabel":
        raise ShapelineError(
            f"engine: '{model.architecture}' gives several labels, over which nothing sums to 1, so it has no {value}; "
            "use log_probability"
        )
    if value == "logit" and model.framework == "function":
        raise ShapelineError(f"engine: '{model.architecture}' gives probabilities, so it has no logit; use log_odds")
    shape = inputs.shape[1:]
    for what, found in (("reference rows", reference.rows.shape[1:]), ("features", features.cells.shape)):
        if found != shape:
            raise ShapelineError(f"engine: {what} have shape {found} but one input has shape {shape}")
    if len(reference.rows) == 0:
        raise ShapelineError("engine: the reference has no rows; give one or more")
    if masks.ndim not in (2, 3) or masks.shape[-1] != features.d or (masks.ndim == 3 and len(masks) != len(inputs)):
        wanted = f"(K, {features.d}) or ({len(inputs)}, K, {features.d})"
        raise ShapelineError(f"engine: masks have shape {masks.shape}; they must be {wanted}")


def _checked_targets(model, inputs, targets) -> np.ndarray:
    targets = np.asarray(targets)
    if targets.shape != (len(inputs),) or not np.issubdtype(targets.dtype, np.integer):
        raise ShapelineError(f"engine: targets have shape {targets.shape}; they must be {len(inputs)} class numbers")
    if model.n_classes is None:
        model.n_classes = model.log_probs(inputs[:1]).shape[1]
    if targets.min() < 0 or targets.max() >= model.n_classes:
        raise ShapelineError(
            f"engine: targets run from {targets.min()} to {targets.max()}; the classes are 0 to {model.n_classes - 1}"
        )
    return targets.astype(np.int64)


def check_finite(model, result, start, stop, first, last, value) -> None:
    """Stop at the first NaN or infinite value of a block, naming model, instance and coalition."""
    block = result[start:stop, first:last]
    if np.isfinite(block).all():
        return
    instance, coalition = np.argwhere(~np.isfinite(block))[0] + (start, first)
    where = f"engine: model '{model.architecture}', instance {instance}, coalition {coalition}"
    if model.framework == "function" and value != PREDICTION and not np.isnan(result[instance, coalition]):
        error = ShapelineError(f'{where}: the probability is 0 or 1 and has no finite log; use value="probability"')
    else:
        error = ShapelineError(f"{where}: the output is {result[instance, coalition]}; check the input and the weights")
    error.instance = int(instance)
    raise error


def by_id(error: ShapelineError, ids: np.ndarray) -> ShapelineError:
    """The error about a position of the inputs as one about an instance by its id; another error as it is."""
    if not hasattr(error, "instance"):
        return error
    return ShapelineError(str(error).replace(f"instance {error.instance},", f"instance {ids[error.instance]},", 1))
