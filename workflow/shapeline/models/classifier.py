"""The one interface every model is used through, whatever framework made it."""

import contextlib
import importlib
import importlib.util
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from shapeline.errors import MethodFailure, ShapelineError
from shapeline.memory import halve, is_out_of_memory

TASK = "classification"  # unless something else is stated
# By name, so that a job's tracked files (plan.sources) hold its own framework alone, and a process imports no other.
MODULES = {
    "torch": "shapeline.models.torch_models",
    "tensorflow": "shapeline.models.keras_models",
    "onnx": "shapeline.models.onnx_graph",  # a runtime
}
FRAMEWORKS = ("torch", "tensorflow")
UNEQUAL = 2e-3  # by which probabilities may miss 1: those rounded to three digits, of a few classes
LOG_HALF = float(np.log(0.5))  # from which on a label counts as present
OUTPUTS = ("logits", "probabilities")
PROBES = 4  # of the inputs that are evaluated; logits nearly always leave 0..1 there
PROBE_SCALES = (0.0, -1.0, 0.5, 3.0, -30.0, 30.0, -1e5, 1e5)  # of the rows, at which logits leave 0..1
UNEQUAL_OUTPUTS = 1e-3  # by which probabilities may miss 1, and vary without being constant


@dataclass(eq=False)
class Classifier:
    """A model that gives class probabilities or, where `task` is "regression", one number an input.

    Where `task` is "multilabel" the classes are labels that go together: each logit's sigmoid is a probability.

    `framework` is "torch" (`module` is an nn.Module giving logits, (n, *input_shape) -> (n, classes)), "tensorflow" (a
    keras.Model giving logits) or "function" (`module` maps an array of numbers, as they are, to probabilities,
    (n, classes) or (n,) for the second of two classes). Of a regression the module gives the prediction, (n,) or
    (n, 1), in the target's own units, and `n_classes` is 1. `sizes` are the keyword sizes it was built with (empty for
    a wrapped model); `n_classes` is None until a wrapped model ran; `vocabulary_digest` names the words whose ids a
    model of text takes. Compared and hashed by identity, so that caches can hold it weakly.
    """

    framework: str
    architecture: str
    module: Any
    n_classes: int | None = None
    sizes: dict[str, Any] = field(default_factory=dict)
    vocabulary_digest: str | None = None
    task: str = "classification"
    most_rows: int | None = None  # of a call, once memory ran out: for the rest of the process
    runtime: str | None = None  # "onnx": `module` is the graph of the framework's network, onnx_graph.Graph
    outputs: str | None = None  # "logits" or "probabilities", what the network gave; None until `settle_outputs`

    @property
    def n_parameters(self) -> int:
        """Number of trainable parameters (0 for a function)."""
        if self.framework == "function":
            return 0
        return backend(self.framework).n_parameters(self.module)

    @property
    def device(self) -> str:
        """Where the weights are: "cpu", "cuda:0", ..."""
        if self.framework == "function":
            return "cpu"
        return str(backend(self.runtime or self.framework).device_of(self.module))

    def to(self, device: str) -> "Classifier":
        """Move the weights to a device in place; ShapelineError where TensorFlow's are elsewhere."""
        if self.framework != "function":
            backend(self.runtime or self.framework).move(self.module, device)
        return self

    def log_probs(self, inputs: Any, batch: int = 256) -> np.ndarray:
        """Return log-probabilities (n, classes) float64 of inputs (n, *input_shape), log-sigmoids of several labels.

        Of a function the log of its probabilities. ShapelineError for unfit token ids and regressions; `batch`
        is halved while memory runs out, MethodFailure at one row.
        """
        if self.task == "regression":
            raise ShapelineError(
                f"model '{self.architecture}': a regression gives no probabilities; use its predictions"
            )
        return self._outputs(inputs, batch)

    def predict(self, inputs: Any, batch: int = 256) -> np.ndarray:
        """Predictions of a regression model, (n, *input_shape) -> (n,) float64; most probable classes of another, or
        of several labels (n, labels) bool: those of a probability of 0.5 or more."""
        if self.task == "regression":
            return self._outputs(inputs, batch)[:, 0]
        if self.task == "multilabel":
            return self.log_probs(inputs, batch) >= LOG_HALF
        return self.log_probs(inputs, batch).argmax(1)

    def settle_outputs(self, inputs: Any) -> None:
        """Let a network give logits: of probabilities, as inputs show or `outputs` states, their logarithms."""
        if self.framework not in FRAMEWORKS or self.runtime or self.task == "regression" or self.outputs == "logits":
            return
        made_by = backend(self.framework)
        if isinstance(self.module, made_by.LogProbabilities) or not len(inputs):
            return
        # Inputs for which memory runs out fail by themselves later; others show what the network gives.
        for start in range(len(inputs)) if self.outputs is None else ():
            shown = inputs[start : start + PROBES]
            with contextlib.suppress(MethodFailure):
                self.outputs = halve(
                    self, PROBES, lambda rows, shown=shown: detect(made_by, self.module, shown, self.architecture, rows)
                )
                break
        if self.outputs == "probabilities":
            if self.task == TASK and are_of_several_labels(made_by, self.module, inputs):
                if self.n_classes is not None:  # of a dataset
                    raise ShapelineError(
                        f"model '{self.architecture}': its outputs are probabilities of several labels, which do not "
                        "sum to 1, and the dataset has a class each; end the network in a softmax, or give its logits"
                    )
                self.task = "multilabel"
            self.module = made_by.build_from_probabilities(self.module, self.task, self.architecture)

    def _outputs(self, inputs: Any, batch: int) -> np.ndarray:
        """Log-probabilities (n, classes) float64, or predictions (n, 1)."""
        self.settle_outputs(inputs)
        if self.framework == "function":
            function = function_predictions if self.task == "regression" else function_log_probs
            inputs = np.asarray(inputs)

            def ask(rows: int) -> np.ndarray:
                # A function may change its rows as it likes.
                parts = (inputs[i : i + rows].copy() for i in range(0, len(inputs), rows))
                # Copies: the next call may change what this one gave.
                return np.concatenate([function(self.module, part, self.architecture).copy() for part in parts])
        else:
            self.check_tokens(inputs)

            def ask(rows: int) -> np.ndarray:
                made_by = backend(self.runtime or self.framework)
                return made_by.log_probs(self.module, inputs, rows, self.architecture, self.task)

        return halve(self, batch, ask)

    def check_rows(self, inputs: np.ndarray) -> None:
        """ShapelineError when a torch module changes the rows that it is given; a function is given copies, and
        neither TensorFlow's tensors nor a graph's rows ever change. What a network gives is settled on the way."""
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
    """The module of a framework's models, imported when first needed."""
    avoid_triton_crash()
    return importlib.import_module(MODULES[framework])


def function_predictions(function: Callable[[np.ndarray], Any], inputs: np.ndarray, name: str) -> np.ndarray:
    """A function's predictions, (n, *input_shape) -> (n, 1) float64; ShapelineError when it gives another shape."""
    returned = detach(call(function, inputs, name))
    try:
        predictions = _as_reals(returned)
    except (TypeError, ValueError) as error:
        raise not_predictions(name, len(inputs), f"{type(returned).__name__} ({error})") from error
    if predictions.shape not in ((len(inputs),), (len(inputs), 1)):
        raise not_predictions(name, len(inputs), f"shape {predictions.shape}")
    return predictions.reshape(-1, 1)


class ModelFailure(ShapelineError):
    """What a function raised, in one line."""


def call(function: Callable[[Any], Any], inputs: Any, name: str) -> Any:
    """What a model gives for rows. Raises ModelFailure for whatever it raises but where memory ran out."""
    try:
        return function(inputs)
    except ShapelineError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        reason = f"there is no {reason}" if isinstance(error, KeyError) else reason
        remedy = "give a model that takes any masked row, a row of the baseline with cells of an input"
        raise ModelFailure(f"model '{name}' fails on {len(inputs)} rows: {reason}; {remedy}") from error


def _as_reals(returned: Any) -> np.ndarray:
    """What a function gives as float64, NaN where a masked array hides a number; TypeError for complex numbers."""
    if returned is None:
        raise TypeError("nothing was returned")
    array = np.ma.asarray(returned) if np.ma.isMaskedArray(returned) else np.asarray(returned)
    if array.dtype.kind == "c":
        raise TypeError("they are complex")
    array = array.astype(np.float64, copy=False)
    return array.filled(np.nan) if np.ma.isMaskedArray(array) else array


def detach(returned: Any) -> Any:
    """What a function gives, of a tensor of torch one without gradient in main memory, which numpy reads."""
    return returned.detach().cpu() if hasattr(returned, "detach") else returned


def check_outputs(given: Any, shape: tuple[int, ...] | None, rows: int, name: str, task: str) -> None:
    """Raise ShapelineError unless a network gave logits (rows, classes), or one number per row of a regression."""
    shown = f"a {type(given).__name__}" if shape is None else f"shape {shape}"
    if task == "regression":
        if shape not in ((rows,), (rows, 1)):
            raise not_predictions(name, rows, shown)
    elif shape is None:  # a list, a dictionary or an object of several outputs
        raise ShapelineError(
            f"model '{name}': gave {shown} for {rows} rows; it must return one array; give a network of one of its "
            "outputs, in Keras by keras.Model(network.inputs, output)"
        )
    elif len(shape) != 2 or shape[0] != rows or shape[1] < (1 if task == "multilabel" else 2):
        raise ShapelineError(
            f"model '{name}': gave {shown} for {rows} rows; it must return logits of shape (rows, classes) "
            "with two or more classes (for one output z before a sigmoid return the two logits 0 and z; a network that "
            'predicts a number is explained with value="prediction")'
        )


def not_predictions(name: str, rows: int, given: str) -> ShapelineError:
    """The error of a regression model that gave something else than a number per row."""
    return ShapelineError(
        f"model '{name}': gave {given} for {rows} rows; a regression model must return one number per row, (rows,), as "
        "lambda rows: model.predict(rows)[:, 0] of several"
    )


def function_log_probs(function: Callable[[np.ndarray], Any], inputs: np.ndarray, name: str) -> np.ndarray:
    """Log of a function's probabilities, (n, *input_shape) -> (n, classes) float64; -inf where P = 0, NaN kept."""
    with np.errstate(divide="ignore"):
        return np.log(function_probabilities(function, inputs, name))


def function_probabilities(function: Callable[[np.ndarray], Any], inputs: np.ndarray, name: str) -> np.ndarray:
    """Return a function's probabilities (n, classes) float64, checked for shape, range and sum: ShapelineError."""
    returned = detach(call(function, inputs, name))
    try:
        probabilities = _as_reals(returned)
    except (TypeError, ValueError) as error:
        raise ShapelineError(
            f"model '{name}': gave {type(returned).__name__}, no array of numbers ({error}); return an array of numbers"
        ) from error
    shape = probabilities.shape
    if probabilities.ndim == 2 and shape[1] == 1:
        probabilities = probabilities[:, 0]
    if probabilities.ndim == 1:
        probabilities = np.stack([1 - probabilities, probabilities], axis=1)
    if probabilities.ndim != 2 or len(probabilities) != len(inputs):
        raise ShapelineError(
            f"model '{name}': gave shape {shape} for {len(inputs)} rows; "
            "it must return probabilities of shape (rows, classes)"
        )
    if not probabilities.size:
        return probabilities
    least, most = probabilities.min(), probabilities.max()
    if least < 0 or most > 1 + 1e-6:
        raise ShapelineError(
            f"model '{name}': gave values from {least:.3g} to {most:.3g}, and probabilities are from 0 to 1; for other "
            "numbers set value='prediction', and give a torch module itself in place of a function of it"
        )
    sums = probabilities @ np.ones(probabilities.shape[1])  # a third of the time of a sum over few columns
    wrong = abs(sums - 1) > UNEQUAL  # not of NaN, which makes the row one that failed
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ShapelineError(
            f"model '{name}': its outputs sum to {sums[row]:.6g} in row {row} (from 0), and not to 1 in {wrong.sum()} "
            f"of {len(sums)} rows; return probabilities of all classes, which sum to 1, or of a model with several "
            "labels those of one: lambda rows: model.predict_proba(rows)[:, 0]"
        )
    return probabilities


def start_card(classifier: Classifier) -> dict[str, Any]:
    """What every card of a model begins with."""
    return {"architecture": classifier.architecture, "framework": classifier.framework, "sizes": classifier.sizes}


def check_labels(classifier: Classifier, inputs: np.ndarray, labels: np.ndarray) -> None:
    """ShapelineError unless the labels (n, labels) are 0 or 1 and the model gives a logit for each."""
    if labels.ndim != 2 or not np.isin(labels, (0, 1)).all():
        raise ShapelineError(f"models: labels of shape {labels.shape}; several labels are (n, labels) of 0 and 1")
    outputs = classifier.log_probs(inputs[:1]).shape[1]
    if outputs != labels.shape[1]:
        raise ShapelineError(
            f"models: '{classifier.architecture}' gives {outputs} output(s) and the dataset has {labels.shape[1]} "
            "labels; give one logit a label"
        )


def r_squared(predictions: np.ndarray, targets: np.ndarray) -> float:
    """Share of the targets' variance that the predictions (n,) explain; NaN where all targets are equal."""
    total = ((targets - targets.mean()) ** 2).sum()
    return float(1 - ((predictions - targets) ** 2).sum() / total) if total > 0 else math.nan


def label_scores(right: np.ndarray, card: dict) -> dict[str, Any]:
    """How often each label is right, and how often all of a row are; right (n, labels) bool, card: of the dataset."""
    names = card.get("classes") or map(str, range(right.shape[1]))
    by_label = dict(zip(names, right.mean(axis=0).tolist(), strict=True))
    return {"accuracy_by_label": by_label, "exact_match": float(right.all(axis=1).mean())}


def avoid_triton_crash() -> None:
    """Load triton, of torch's CUDA builds, before TensorFlow, after which it crashes, or declare it missing."""
    if "triton" in sys.modules or importlib.util.find_spec("triton") is None:
        return
    if "tensorflow" not in sys.modules:
        with contextlib.suppress(ImportError):
            import triton  # noqa: F401

            return
    sys.modules["triton"] = None  # an import of it is then an ImportError, which torch expects


def detect(made_by: ModuleType, module: Any, inputs: Any, name: str, batch: int = PROBES) -> str:
    """Return "logits" or "probabilities" of a network on inputs (n, *input shape).

    Numbers outside 0..1 are logits; within, the last operation decides, else rows far from the inputs. Raises
    ShapelineError where both fit.
    """
    rows = _as_array(inputs)
    given = _select_probabilities(made_by.outputs(module, rows, batch))
    if given is None:
        return "logits"
    last = made_by.last_operation(module, rows)
    if (last == "softmax" and _sums_to_one(given)) or last == "sigmoid":
        return "probabilities"
    far = _far_away(made_by, module, rows, given.shape[1], batch)
    return "logits" if far is None else kind_of_outputs(np.concatenate([given, far]), name, linear=last == "linear")


def kind_of_outputs(given: np.ndarray, name: str, linear: bool = False) -> str:
    """Return what outputs (n, k) near and far are; linear: known to be of such a layer."""
    if not len(given) or given.min() < 0 or given.max() > 1 + UNEQUAL_OUTPUTS:
        return "logits"
    together = given.shape[1] > 1
    sums = together and _sums_to_one(given)
    if np.ptp(given, axis=0).max() > UNEQUAL_OUTPUTS and (sums or not together):
        return "probabilities"
    if linear and not sums:
        return "logits"
    among = " and sum to 1" if sums else " without summing to 1, as those of several labels do" if together else ""
    raise ShapelineError(
        f"model '{name}': its outputs lie between 0 and 1{among}, so they may be logits or probabilities; give "
        'outputs="probabilities" or outputs="logits" (in a configuration, the key outputs of the model)'
    )


def are_of_several_labels(made_by: ModuleType, module: Any, inputs: Any) -> bool:
    """Return whether probabilities of a network are those of labels that go together, which do not sum to 1."""
    given = made_by.outputs(module, _as_array(inputs))
    return given is not None and given.shape[1] > 1 and not _sums_to_one(given[np.isfinite(given).all(1)])


def _as_array(inputs: Any) -> np.ndarray:
    rows = inputs[:PROBES]
    return rows.detach().cpu().numpy() if hasattr(rows, "detach") else np.asarray(rows)


def _select_probabilities(given: np.ndarray | None) -> np.ndarray | None:
    """The finite rows of outputs where all lie in 0..1 (bfloat16 rounds), else None."""
    if given is None:
        return None
    given = given[np.isfinite(given).all(1)]
    return given if len(given) and given.min() >= 0 and given.max() <= 1 + UNEQUAL_OUTPUTS else None


def _sums_to_one(given: np.ndarray) -> bool:
    return bool((np.abs(given.sum(1) - 1) <= UNEQUAL_OUTPUTS * given.shape[1]).all())


def _far_away(made_by: ModuleType, module: Any, rows: np.ndarray, width: int, batch: int) -> np.ndarray | None:
    """Outputs of rows away from the inputs, or of reordered tokens, where all lie in 0..1, else None."""
    shape, random = (len(PROBE_SCALES), *rows.shape[1:]), np.random.default_rng(0)
    if np.issubdtype(rows.dtype, np.integer):
        chosen = random.choice(rows.ravel(), shape)
    else:
        scales = np.array(PROBE_SCALES).reshape(-1, *[1] * (rows.ndim - 1))
        chosen = scales * (rows[:1] + (np.abs(rows).max() or 1) * random.standard_normal(shape) / 10)
    try:
        given = made_by.outputs(module, chosen, batch)
    except Exception as error:  # a network need not take such rows; what it raises is its own
        if is_out_of_memory(error):
            raise
        given = None
    nothing = given is None or not np.isfinite(given).all(1).any()
    return np.empty((0, width)) if nothing else _select_probabilities(given)
