"""The common interface of models of all frameworks."""

import contextlib
import importlib
import importlib.util
import inspect
import math
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from shapeline.errors import MethodFailure, ShapelineError, first_line, format_count, name_type
from shapeline.memory import halve, is_out_of_memory

TASK = "classification"  # unless something else is stated
# By name, so that a job's tracked files (plan.sources) hold its own framework alone, and a process imports no other.
MODULES = {
    "torch": "shapeline.models.torch_models",
    "tensorflow": "shapeline.models.keras_models",
    "onnx": "shapeline.models.onnx_graph",  # a runtime
}
FRAMEWORKS = ("torch", "tensorflow")
SUM_TOLERANCE, BFLOAT16_TOLERANCE = 2e-3, 1e-2  # of a sum of probabilities to 1; 2e-3 for those of three digits
LOG_HALF = float(np.log(0.5))  # log-probability from which on a label is predicted as present
OUTPUTS = ("logits", "probabilities")
PROBES = 4  # inputs that decide whether outputs are logits, which nearly always leave [0, 1] there
PROBE_SCALES = (0.0, -1.0, 0.5, 3.0, -30.0, 30.0, -1e5, 1e5)  # factors of inputs at which logits leave [0, 1]
# What was traced, exported or copied of a network, by network and then by purpose. Weights are compared or shared;
# attributes and hooks are not, so each explanation compares a row (`keras_models.drop_if_changed`, `is_current`).
PREPARED: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
ROUNDING = 1e-6  # by which probabilities may leave [0, 1]: 1 - 1.0000001, as forests in .onnx files give it
BATCH_TOLERANCE = 1e-3  # permitted difference of a network's outputs between batches and backends, relative above 1
OUTPUT_TOLERANCE = 1e-3  # of a network's probabilities: of their sum to 1, and of constant outputs


@dataclass(eq=False)
class Classifier:
    """A model of class probabilities or, if `task` is "regression", of one number per input.

    If `task` is "multilabel", several labels may be present: each logit's sigmoid is a probability.

    `framework` is "torch" (`module` is an nn.Module from (n, *input_shape) to logits (n, classes)), "tensorflow" (a
    keras.Model of logits) or "function" (`module` maps an unchanged array of numbers to probabilities, (n, classes), or
    (n,) for the second of two classes). The module of a regression returns predictions, (n,) or (n, 1), in the target's
    units, and `n_classes` is 1. `sizes` are the keyword sizes that it was built with (empty for a wrapped model);
    `n_classes` is None until a wrapped model was evaluated; `vocabulary_digest` identifies the vocabulary of a text
    model. Compared and hashed by identity, so that caches can use weak references.
    """

    framework: str
    architecture: str
    module: Any
    n_classes: int | None = None
    sizes: dict[str, Any] = field(default_factory=dict)
    vocabulary_digest: str | None = None
    task: str = "classification"
    most_rows: int | None = None  # per call, after memory ran out in this process
    runtime: str | None = None  # "onnx": `module` is the graph of the framework's network, onnx_graph.Graph
    outputs: str | None = None  # "logits" or "probabilities", of the network itself; None before `settle_outputs`

    @property
    def n_parameters(self) -> int:
        """Number of trainable parameters (0 for a function)."""
        if self.framework == "function":
            return 0
        return backend(self.framework).n_parameters(self.module)

    @property
    def device(self) -> str:
        """Device of the weights: "cpu", "cuda:0", ..."""
        if self.framework == "function":
            return "cpu"
        return str(backend(self.runtime or self.framework).find_device(self.module))

    def to(self, device: str) -> "Classifier":
        """Move the weights to a device in place. Raises ShapelineError if TensorFlow's are on another one."""
        if self.framework != "function":
            backend(self.runtime or self.framework).move(self.module, device)
        return self

    def log_probs(self, inputs: Any, batch: int = 256) -> np.ndarray:
        """Return log-probabilities (n, classes) float64 of inputs (n, *input_shape), log-sigmoids of several labels.

        `batch` is halved if memory runs out. Raises ShapelineError for unfit token ids and regressions, and
        MethodFailure if memory does not suffice for one row.
        """
        if self.task == "regression":
            raise ShapelineError(
                f"model '{self.architecture}': a regression gives no probabilities; use its predictions"
            )
        return self._outputs(inputs, batch)

    def predict(self, inputs: Any, batch: int = 256) -> np.ndarray:
        """Return predictions (n,) float64 of a regression, the most probable classes (n,) of a classifier, or for
        several labels (n, labels) bool, true for a probability of 0.5 or more; inputs: (n, *input_shape)."""
        if self.task == "regression":
            return self._outputs(inputs, batch)[:, 0]
        if self.task == "multilabel":
            return self.log_probs(inputs, batch) >= LOG_HALF
        return self.log_probs(inputs, batch).argmax(1)

    def settle_outputs(self, inputs: Any) -> None:
        """Wrap a network of probabilities, which `outputs` states or evaluations show, as a network of logits."""
        if self.framework not in FRAMEWORKS or self.runtime or self.task == "regression" or self.outputs == "logits":
            return
        framework = backend(self.framework)
        if isinstance(self.module, framework.LogProbabilities) or not len(inputs):
            return
        # Inputs for which memory runs out are skipped, because they fail later; others show the outputs.
        for start in range(len(inputs)) if self.outputs is None else ():
            probes = inputs[start : start + PROBES]
            with contextlib.suppress(MethodFailure):
                arguments = framework, self.module, probes, self.architecture
                self.outputs = halve(self, PROBES, lambda rows, arguments=arguments: detect_outputs(*arguments, rows))
                break
        if self.outputs == "probabilities":
            outputs = framework.outputs(self.module, np.asarray(detach(inputs[:PROBES]))) if self.task == TASK else None
            if outputs is not None:
                self._check_range(outputs)
            several = outputs is not None and outputs.shape[1] > 1
            if several and not _sums_to_one(outputs[np.isfinite(outputs).all(1)]):
                if self.n_classes is not None:  # known from a dataset
                    raise ShapelineError(
                        f"model '{self.architecture}': its outputs are probabilities of several labels, which do not "
                        "sum to 1, and the dataset has a class each; end the network in a softmax, or give its logits"
                    )
                self.task = "multilabel"
            self.module = framework.build_from_probabilities(self.module, self.task)

    def _check_range(self, outputs: np.ndarray) -> None:
        """Raise ShapelineError for outputs (n, k) stated to be probabilities that are others."""
        finite = outputs[np.isfinite(outputs)]
        if finite.size and _select_probabilities(finite[:, None]) is None:
            raise ShapelineError(
                f"model '{self.architecture}': gave values from {finite.min():.3g} to {finite.max():.3g}, and "
                "probabilities are from 0 to 1; leave outputs out, or give outputs='logits'"
            )

    def _outputs(self, inputs: Any, batch: int) -> np.ndarray:
        """Return log-probabilities (n, classes) float64, or predictions (n, 1)."""
        self.settle_outputs(inputs)
        if self.framework == "function":
            function = function_predictions if self.task == "regression" else function_log_probs
            inputs = np.asarray(inputs)

            def evaluate(rows: int) -> np.ndarray:
                # Copies, because a function may change its rows, and a later call the returned array.
                parts = (inputs[i : i + rows].copy() for i in range(0, len(inputs), rows))
                return np.concatenate([function(self.module, part, self.architecture).copy() for part in parts])
        else:
            self.check_tokens(inputs)

            def evaluate(rows: int) -> np.ndarray:
                framework = backend(self.runtime or self.framework)
                return framework.log_probs(self.module, inputs, rows, self.architecture, self.task)

        return halve(self, batch, evaluate)

    def check_rows(self, inputs: np.ndarray) -> None:
        """Raise ShapelineError if a torch module changes its input rows in place; functions receive copies, and
        TensorFlow's tensors and a graph's rows never change. Also settles the outputs of a network."""
        self.settle_outputs(inputs)
        if self.framework == "torch" and self.runtime is None:
            backend("torch").check_rows(self.module, inputs[:1], self.architecture)

    def check_tokens(self, inputs: Any) -> None:
        """Raise ShapelineError for token ids (n, length) beyond the model's vocabulary or length."""
        known = self.sizes.get("vocabulary", self.sizes.get("alphabet", -1) + 1)
        if not known or len(inputs) == 0:
            return
        if inputs.min() < 0 or inputs.max() >= known:
            raise ShapelineError(
                f"model '{self.architecture}': token ids run from {inputs.min()} to {inputs.max()}, but it knows 0 to "
                f"{known - 1}; the documents were prepared with another vocabulary, so prepare them or train it again"
            )
        length, tokens = self.sizes.get("length"), inputs.shape[1]
        if (self.architecture == "char_cnn" and tokens != length) or (self.architecture == "word_cnn" and tokens < 3):
            wanted = "at least 3" if self.architecture == "word_cnn" else length
            raise ShapelineError(
                f"model '{self.architecture}': documents have {tokens} tokens and it takes {wanted}; pad them with 0"
            )


def backend(framework: str) -> ModuleType:
    """Return the module of a framework's models, imported at its first use."""
    avoid_triton_crash()
    return importlib.import_module(MODULES[framework])


def function_predictions(function: Callable[[np.ndarray], Any], inputs: np.ndarray, name: str) -> np.ndarray:
    """Return a function's predictions (n, 1) float64. Raises ShapelineError for another shape."""
    predictions, _ = _call_for_numbers(function, inputs, name)
    if predictions.shape not in ((len(inputs),), (len(inputs), 1)) and (len(inputs), predictions.size) != (1, 1):
        raise reject_predictions(name, len(inputs), f"shape {predictions.shape}")
    return predictions.reshape(-1, 1)


class ModelFailure(ShapelineError):
    """The error of a function in one line."""


class TooManyRows(ModelFailure):
    """The error of a function that works on fewer of the rows."""


ANY_ROW = "give a model that takes any masked row, a row of the baseline with cells of an input"


def call(function: Callable[[Any], Any], inputs: Any, name: str, what: str = "row", remedy: str = ANY_ROW) -> Any:
    """Return a model's outputs for rows. Raises ModelFailure for its errors, unless memory ran out."""
    try:
        returned = function(inputs)
        if inspect.iscoroutine(returned):
            returned.close()
            raise ShapelineError(
                f"model '{name}': is an async function; give one that waits for it, such as lambda {what}s: "
                f"asyncio.run({name}({what}s))"
            )
        return returned
    except ShapelineError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        reason = first_line(error)
        reason = f"there is no {reason}" if isinstance(error, KeyError) else reason
        remedy = "repeat failed calls within the model" if isinstance(error, OSError) and not error.filename else remedy
        if remedy is ANY_ROW and (accepted := _find_accepted_rows(function, inputs)):
            raise TooManyRows(
                f"model '{name}' fails on {format_count(len(inputs), what)}: {reason}, and works on {accepted:,} of "
                f"them; evaluate at most {format_count(accepted, what)} at a time within the model"
            ) from error
        raise ModelFailure(f"model '{name}' fails on {format_count(len(inputs), what)}: {reason}; {remedy}") from error


def _find_accepted_rows(function: Callable[[Any], Any], inputs: Any) -> int:
    """Return a number of rows that a function takes, which fails on all of them at once; 0 where single rows fail."""

    def accepts(part: np.ndarray) -> bool:
        try:
            function(part.copy())
        except Exception:  # noqa: BLE001 (a model may raise any exception)
            return False
        return True

    rows = len(inputs) if isinstance(inputs, np.ndarray) else 1
    while rows > 1:
        failing, rows = rows, (rows + 1) // 2
        if accepts(inputs[:rows]):
            return rows if accepts(inputs[failing - rows : failing]) else 0
    return 0


def _call_for_numbers(function: Callable, inputs: np.ndarray, name: str) -> tuple[np.ndarray, str]:
    """Return a function's outputs as float64, NaN for masked ones, and their type. Raises ShapelineError for others."""
    outputs = call(function, inputs, name)
    returned, dtype = detach(outputs), str(getattr(outputs, "dtype", ""))
    try:
        array = np.ma.asarray(returned) if np.ma.isMaskedArray(returned) else np.asarray(returned)
        if returned is None or array.dtype.kind == "c":
            raise TypeError("nothing was returned" if returned is None else "they are complex")
        array = array.astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        remedy = "an array of numbers"
        if isinstance(returned, tuple):
            remedy = f"one of its {len(returned)} parts, as lambda rows: function(rows)[0] does"
        elif "convert string" in str(error):
            remedy = "an array of the probabilities of classes, as of model.predict_proba"
        elif returned is not None and not isinstance(getattr(returned, "shape", ()), tuple):  # of a distribution
            remedy = "an array of numbers, such as its mean: lambda rows: function(rows).mean()"
        given = type(returned).__name__
        raise ShapelineError(f"model '{name}': gave {given}, no array of numbers ({error}); return {remedy}") from error
    return array.filled(np.nan) if np.ma.isMaskedArray(array) else array, dtype


def detach(returned: Any) -> Any:
    """Return arrays as numpy reads them: tensors of torch without gradient and, as those of CuPy, in main memory."""
    if isinstance(returned, list | tuple) and returned and hasattr(returned[0], "detach"):
        return [detach(each) for each in returned]
    if callable(getattr(returned, "detach", None)):
        tensor = returned.detach().cpu()
        return tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor  # numpy has no bfloat16
    on_gpu = hasattr(returned, "__cuda_array_interface__") and callable(getattr(returned, "get", None))
    return returned.get() if on_gpu else returned


def check_outputs(outputs: Any, shape: tuple[int, ...] | None, rows: int, name: str, task: str) -> None:
    """Raise ShapelineError unless a network's outputs are logits (rows, classes), or a regression's one per row."""
    shown = name_type(outputs) if shape is None else f"shape {shape}"
    if shape is None:  # a list, a dictionary or an object of several outputs
        raise ShapelineError(
            f"model '{name}': gave {shown} for {format_count(rows, 'row')}; it must return one array; give a module "
            "whose forward pass returns one of them, in Keras keras.Model(network.inputs, output)"
        )
    if task == "regression":
        if shape not in ((rows,), (rows, 1)):
            remedy = "a module whose forward pass returns one output, or, of classes, leave value='prediction' out"
            raise reject_predictions(name, rows, shown, f"give {remedy}")
    elif len(shape) != 2 or shape[0] != rows or shape[1] < (1 if task == "multilabel" else 2):
        raise ShapelineError(
            f"model '{name}': gave {shown} for {format_count(rows, 'row')}; it must return logits of shape (rows, "
            "classes) with two or more classes (for one output z before a sigmoid return the two logits 0 and z; a "
            'network that predicts a number is explained with value="prediction")'
        )


OF_ONE = (
    "explain one output at a time, as by lambda rows: model.predict(rows)[:, 0], or, where the outputs are "
    "probabilities, give model.predict without value='prediction'"
)


def reject_predictions(name: str, rows: int, given: str, remedy: str = OF_ONE) -> ShapelineError:
    """Return the error for a regression model that returned something else than one number per row."""
    return ShapelineError(
        f"model '{name}': gave {given} for {format_count(rows, 'row')}, and a regression has one number per row; "
        + remedy
    )


def function_log_probs(function: Callable[[np.ndarray], Any], inputs: np.ndarray, name: str) -> np.ndarray:
    """Return the log of a function's probabilities, (n, classes) float64; -inf for P = 0, NaN unchanged."""
    with np.errstate(divide="ignore"):
        return np.log(function_probabilities(function, inputs, name))


def function_probabilities(function: Callable[[np.ndarray], Any], inputs: np.ndarray, name: str) -> np.ndarray:
    """Return a function's probabilities (n, classes) float64. Raises ShapelineError for a wrong shape, range or sum."""
    probabilities, dtype = _call_for_numbers(function, inputs, name)
    shape = probabilities.shape
    if len(inputs) == 1 and probabilities.ndim < 2 and probabilities.size:  # as numpy.squeeze leaves a single row
        probabilities = probabilities.reshape(1, -1)
    if probabilities.ndim == 2 and probabilities.shape[1] == 1:
        probabilities = probabilities[:, 0]
    returned = probabilities
    if probabilities.ndim == 1:
        probabilities = np.stack([1 - probabilities, probabilities], axis=1)
    if probabilities.ndim != 2 or len(probabilities) != len(inputs):
        raise ShapelineError(
            f"model '{name}': gave shape {shape} for {format_count(len(inputs), 'row')}; "
            "it must return probabilities of shape (rows, classes)"
        )
    if not probabilities.size:
        return probabilities
    least, most = returned.min(), returned.max()
    if least < -ROUNDING or most > 1 + ROUNDING:
        remedy = "for other numbers give a function of rows with value='prediction', and a torch module itself instead "
        remedy += "of a function"
        if returned.ndim == 2 and (abs(np.exp(returned.clip(max=1)).sum(1) - 1) <= SUM_TOLERANCE).all():
            remedy = "return numpy.exp of these log-probabilities"
        raise ShapelineError(
            f"model '{name}': gave values from {least:.3g} to {most:.3g}, and probabilities are from 0 to 1; {remedy}"
        )
    probabilities = probabilities.clip(min=0) if least < 0 or most > 1 else probabilities
    sums = probabilities @ np.ones(probabilities.shape[1])  # a third of the time of a sum over few columns
    most = BFLOAT16_TOLERANCE if "bfloat16" in dtype else SUM_TOLERANCE
    wrong = abs(sums - 1) > most  # False for NaN, which makes a failed row
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ShapelineError(
            f"model '{name}': its outputs sum to {sums[row]:.6g} in row {row} (from 0), and not to 1 in {wrong.sum()} "
            f"of {len(sums)} rows; return probabilities of all classes, which sum to 1, or of a model with several "
            "labels those of one: lambda rows: model.predict_proba(rows)[:, 0]"
        )
    return probabilities


def check_independent(model: Classifier, outputs: np.ndarray, few: np.ndarray, what: str) -> None:
    """Raise ShapelineError for a model whose outputs of the first few rows differ from those among all rows."""
    among = outputs[: len(few)]
    scale = np.abs(outputs).max(initial=0) / 10 if model.framework == "function" else 1 + np.abs(among)
    if len(apart := np.argwhere(np.abs(few - among) > BATCH_TOLERANCE * scale)):
        index = tuple(apart[0])
        raise ShapelineError(
            f"model '{model.architecture}': it gives {among[index]:.6g} for row {index[0]} (from 0) of the {what} "
            f"among all {len(outputs)}, and {few[index]:.6g} among {len(few)}; give a model that answers row by row, "
            "from the cells alone"
        )


def start_card(classifier: Classifier) -> dict[str, Any]:
    """Return the first entries of every model card."""
    return {"architecture": classifier.architecture, "framework": classifier.framework, "sizes": classifier.sizes}


def check_labels(classifier: Classifier, inputs: np.ndarray, labels: np.ndarray) -> None:
    """Raise ShapelineError unless the labels (n, labels) are 0 or 1 and the model has one logit for each."""
    if labels.ndim != 2 or not np.isin(labels, (0, 1)).all():
        raise ShapelineError(f"models: labels of shape {labels.shape}; several labels are (n, labels) of 0 and 1")
    outputs = classifier.log_probs(inputs[:1]).shape[1]
    if outputs != labels.shape[1]:
        raise ShapelineError(
            f"models: '{classifier.architecture}' gives {outputs} output(s) and the dataset has {labels.shape[1]} "
            "labels; give one logit a label"
        )


def r_squared(predictions: np.ndarray, targets: np.ndarray) -> float:
    """Return the share of the targets' variance that the predictions (n,) explain; NaN if all targets are equal."""
    total = ((targets - targets.mean()) ** 2).sum()
    return float(1 - ((predictions - targets) ** 2).sum() / total) if total > 0 else math.nan


def label_scores(right: np.ndarray, card: dict) -> dict[str, Any]:
    """Return the accuracy per label and the share of rows with all right, of right (n, labels) bool."""
    names = card.get("classes") or map(str, range(right.shape[1]))
    by_label = dict(zip(names, right.mean(axis=0).tolist(), strict=True))
    return {"accuracy_by_label": by_label, "exact_match": float(right.all(axis=1).mean())}


def avoid_triton_crash() -> None:
    """Import triton, of torch's CUDA builds, before TensorFlow, or block its import, which would crash afterwards."""
    if "triton" in sys.modules or importlib.util.find_spec("triton") is None:
        return
    if "tensorflow" not in sys.modules:
        with contextlib.suppress(ImportError):
            import triton  # noqa: F401

            return
    sys.modules["triton"] = None  # an import of it is then an ImportError, which torch expects


def detect_outputs(framework: ModuleType, module: Any, inputs: Any, name: str, batch: int = PROBES) -> str:
    """Return "logits" or "probabilities" of a network on inputs (n, *input shape).

    Numbers outside [0, 1] are logits; otherwise the last operation decides, or else rows far from the inputs. Raises
    ShapelineError if both are possible.
    """
    rows = np.asarray(detach(inputs[:PROBES]))
    outputs = _select_probabilities(framework.outputs(module, rows, batch))
    if outputs is None:
        return "logits"
    last = framework.find_last_operation(module, rows)
    if (last == "softmax" and _sums_to_one(outputs)) or last == "sigmoid":
        return "probabilities"
    far = _evaluate_far_rows(framework, module, rows, outputs.shape[1], batch)
    return "logits" if far is None else classify_outputs(np.concatenate([outputs, far]), name, linear=last == "linear")


def classify_outputs(outputs: np.ndarray, name: str, linear: bool = False) -> str:
    """Return "logits" or "probabilities" for outputs (n, k) near and far from inputs; linear: of a linear layer."""
    if _select_probabilities(outputs) is None:
        return "logits"
    several = outputs.shape[1] > 1
    sums = several and _sums_to_one(outputs)
    if np.ptp(outputs, axis=0).max() > OUTPUT_TOLERANCE and (sums or not (several or linear)):
        return "probabilities"
    if linear and not sums:
        return "logits"
    detail = " and sum to 1" if sums else " without summing to 1, as those of several labels do" if several else ""
    raise ShapelineError(
        f"model '{name}': its outputs lie between 0 and 1{detail}, so they may be logits or probabilities; give "
        'outputs="probabilities" or outputs="logits" (in a configuration, the key outputs of the model)'
    )


def _select_probabilities(outputs: np.ndarray | None) -> np.ndarray | None:
    """Return the finite rows of outputs if all are in [0, 1] (up to rounding in bfloat16), else None."""
    if outputs is None:
        return None
    outputs = outputs[np.isfinite(outputs).all(1)]
    return outputs if len(outputs) and outputs.min() >= -ROUNDING and outputs.max() <= 1 + OUTPUT_TOLERANCE else None


def _sums_to_one(outputs: np.ndarray) -> bool:
    return bool((np.abs(outputs.sum(1) - 1) <= min(OUTPUT_TOLERANCE * outputs.shape[1], 0.1)).all())


def _evaluate_far_rows(
    framework: ModuleType, module: Any, rows: np.ndarray, width: int, batch: int
) -> np.ndarray | None:
    """Return outputs of rows far from the inputs, or of reordered tokens, if all are in [0, 1], else None."""
    shape, random = (len(PROBE_SCALES), *rows.shape[1:]), np.random.default_rng(0)
    if np.issubdtype(rows.dtype, np.integer):
        far = random.choice(rows.ravel(), shape)
    else:
        scales = np.array(PROBE_SCALES).reshape(-1, *[1] * (rows.ndim - 1))
        far = scales * (rows[:1] + (np.abs(rows).max() or 1) * random.standard_normal(shape) / 10)
    try:
        outputs = framework.outputs(module, far, batch)
    except Exception as error:  # a network may refuse such rows with any exception
        if is_out_of_memory(error):
            raise
        outputs = None
    is_empty = outputs is None or not np.isfinite(outputs).all(1).any()
    return np.empty((0, width)) if is_empty else _select_probabilities(outputs)
