"""The explained class of each input, by number or by name."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from shapeline.api.inputs import refuse_unordered
from shapeline.attribution.set_game import describe_rounding
from shapeline.datasets.table_file import class_name
from shapeline.errors import ShapelineError, first_line, format_count, nearest
from shapeline.memory import is_out_of_memory
from shapeline.metrics.provenance import TOLERANCE
from shapeline.models.adapters import find_classes, find_columns, find_owner, takes_image
from shapeline.models.classifier import Classifier, ModelFailure, TooManyRows, check_independent, detach

log = logging.getLogger(__name__)

MAX_LABELS = 20  # of a model that predicts labels; counts have more values
REPEATED_ROWS = 4  # evaluated twice, to check that the model is deterministic
MAX_ROWS = 200  # evaluated one by one to find the row on which a model fails
WORDS = ("predicted", "true", "each")


@dataclass(frozen=True)
class Classes:
    """The classes. names: given, else the model's; labels: the model's; empty where unknown."""

    names: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()

    def number(self, value: object, what: str, count: int) -> int:
        """Return the number of a class by label, name, or number; what: the argument; count: of classes."""
        if pd.api.types.is_scalar(value) and pd.isna(value):
            raise ShapelineError(f"explain: {what} has a missing class ({value}); give the class of each input")
        known = class_name(value)
        is_number = isinstance(value, int | np.integer | float | np.floating) and not isinstance(value, bool)
        for called in (self.labels, self.names) if is_number else (self.names, self.labels):
            if known in called:
                return called.index(known)
        if is_number and known in ("0", "1") and self.labels == ("False", "True"):
            return int(known)
        if isinstance(value, bool) and count == 2 and self.labels in ((), ("0", "1")):
            return int(value)
        index = int(known) if is_number and known.isdigit() and int(known) < count else None
        if index is not None and not self.labels:
            return index
        if index is not None:
            label = (self.names or self.labels)[index]
            known = ", ".join([*map(repr, self.labels[:5]), *["..."] * (len(self.labels) > 5)])
            raise ShapelineError(
                f"explain: {what} {value} is not a class; the model's are {known}. For the class at that position "
                f"write {what}={label!r}."
            )
        if not (self.names or self.labels):
            if is_number:
                raise ShapelineError(
                    f"explain: {what} {value} is not a class; give classes as whole numbers, 0 to {count - 1}."
                )
            raise ShapelineError(f"explain: {what} '{value}': the model's classes have no names; give class_names")
        raise ShapelineError(
            f"explain: {what} '{value}' is not a class.{nearest(known, [*(self.names or self.labels), *WORDS])}"
        )


def name_classes(
    model: object, class_names: Sequence[str] | None, classifier: Classifier, inputs: np.ndarray
) -> Classes:
    """Return the given names, and those of a model with named classes: its own, or columns of its data frames."""
    refuse_unordered("class_names", given := () if class_names is None else class_names)
    given = tuple(map(class_name, given))
    known = find_classes(find_owner(model))
    gives_probabilities = "predict_proba" in (*dir(type(model)), getattr(model, "__name__", ""))
    if known is None and gives_probabilities and classifier.framework == "function":
        answer = classifier.module(inputs[:1].copy())
        is_named = isinstance(answer, pd.DataFrame) and not isinstance(answer.columns, pd.RangeIndex)
        known = answer.columns if is_named and len(answer.columns) > 1 else None
    labels = () if known is None else tuple(map(class_name, known))
    for what, names in (("the model's classes_", labels), ("class_names", given)):
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ShapelineError(f"explain: {what}: two classes are called '{twice}'; give each a name of its own")
    moved = next((name for name, label in zip(given, labels, strict=False) if name != label and name in labels), None)
    if moved is not None:
        raise ShapelineError(
            f"explain: class_names: '{moved}' is another class of the model, whose classes are {', '.join(labels[:9])} "
            "in this order; give their names in this order, or leave class_names out"
        )
    names = labels if class_names is None else given
    return Classes(names, () if getattr(find_owner(model), "names_ids", False) else labels)  # numbers of transformers


def choose_targets(
    classifier: Classifier, predictions: np.ndarray, target: object, classes: Classes, y: Sequence | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the class explained in each row (m,) and the input of the row (m,). Raises ShapelineError."""
    n, names = len(predictions), classes.names
    everyone = np.arange(n)
    if y is not None:  # also where no class is read from it
        _read_one_each(y, n, "y")
    if classifier.task == "regression":
        target = 0 if target is None or (isinstance(target, str) and target == "predicted") else target
        if not np.array_equal(target, np.zeros_like(target)):
            raise ShapelineError(f"explain: target {target!r}: a regression has no classes; leave target out")
        return np.zeros(n, int), everyone
    count = predictions.shape[1]
    if names and len(names) != count:
        raise ShapelineError(
            f"explain: class_names: {len(names)} names, and the model gives {count} classes; give one name per class"
        )
    if target is None or (isinstance(target, str) and target == "predicted" and target not in names):
        return predictions.argmax(1), everyone
    if isinstance(target, str) and target == "true" and target not in names:
        if y is None:
            raise ShapelineError("explain: target 'true' needs the true class of each input; give y")
        return _broadcast_classes(y, classes, predictions.shape, "y"), everyone
    if isinstance(target, set | frozenset) or (isinstance(target, str) and target == "each" and target not in names):
        if not len(target):
            raise ShapelineError("explain: target is a set without classes; give one or more")
        every = range(count) if isinstance(target, str) else {classes.number(one, "target", count) for one in target}
        return np.tile(sorted(every), n), np.repeat(everyone, len(every))
    return _broadcast_classes(target, classes, predictions.shape, "target"), everyone


def query_outputs(
    classifier: Classifier, inputs: np.ndarray, what: str = "inputs", background: np.ndarray | None = None
) -> np.ndarray:
    """Return the model's outputs of inputs, (n, classes) or (n, 1). Raises ShapelineError that names the row."""
    is_regression = classifier.task == "regression"
    ask = (lambda inputs: classifier.predict(inputs)[:, None]) if is_regression else classifier.log_probs
    try:
        predictions = ask(inputs)
        few = min(REPEATED_ROWS, max(2, -(-len(inputs) // 2)))
        twice = [ask(inputs[:few]) for _ in range(2)]
    except TooManyRows:
        raise
    except ModelFailure as error:
        if not _fails(ask, inputs):
            raise ShapelineError(
                f"explain: model '{classifier.architecture}' fails on one call and not on the next "
                f"({first_line(error.__cause__ or error)}); repeat failed calls within the model"
            ) from error
        row = _find_failing_row(ask, inputs)
        where = f"{what} of shape {inputs.shape}" if row is None else _name_row(inputs, row, what, background)
        raise build_failure(classifier, inputs, where, error.__cause__) from error
    except Exception as error:  # whatever a network raises
        if isinstance(error, ShapelineError) or is_out_of_memory(error):
            raise
        raise build_failure(classifier, inputs, f"{what} of shape {inputs.shape}", error) from error
    # log P is -inf where P is 0
    odd = ~np.isfinite(predictions) if classifier.task == "regression" else np.isnan(predictions)
    if odd.any():
        row = int(odd.any(axis=1).argmax())
        remedy = "give outputs='logits'" if classifier.outputs == "probabilities" else "correct this row"
        raise ShapelineError(
            f"explain: model '{classifier.architecture}' gives {predictions[row][odd[row]][0]:.3g} for "
            f"{_name_row(inputs, row, what, background)}; {remedy}, or leave it out"
        )
    given, *twice = (outputs if is_regression else np.exp(outputs) for outputs in (predictions, *twice))
    _check_same(classifier, *twice)
    check_independent(classifier, given, twice[0], what)
    return predictions


def report_labels(classifier: Classifier, inputs: np.ndarray, predictions: np.ndarray) -> None:
    """Warn if the predictions (n, 1) of a model that does not say what it predicts look like labels of classes, or if a
    function gives labels of the numbers 0 and 1 as probabilities (log-probabilities (n, classes))."""
    if classifier.framework != "function":
        return
    is_regression = classifier.task == "regression"
    values = np.unique(predictions if is_regression else np.exp(predictions[:, -1]))
    if len(values) > MAX_LABELS or not (values == np.rint(values)).all():
        return
    answers = np.asarray(detach(classifier.module(inputs[:REPEATED_ROWS].copy())))
    is_whole = answers.dtype.kind in "biu"
    if not is_regression and not (is_whole and answers.size == len(answers)):
        return
    if is_whole or any(np.array_equal(values, labels) for labels in ((0, 1), (-1, 1))):
        log.warning(
            "explain: model '%s' predicts whole numbers alone (%s); if these are labels of classes, give a function of "
            "their probabilities, such as model.predict_proba, and otherwise value='prediction'",
            classifier.architecture,
            ", ".join(f"{value:g}" for value in values),
        )


def report_other_labels(
    model: object, classifier: Classifier, inputs: np.ndarray, targets: np.ndarray, labels: Sequence[str]
) -> None:
    """Warn if an estimator predicts other labels than its most probable classes (targets), as by a threshold."""
    if classifier.framework != "function" or not labels or not hasattr(model, "predict_proba"):
        return
    try:
        answers = np.asarray(model.predict(getattr(classifier.module, "take", np.asarray)(inputs.copy())))
        predicted = [class_name(answer) for answer in answers.reshape(len(targets)).tolist()]
    except Exception:  # noqa: BLE001 (it is not needed, and a user's model may raise any exception)
        return
    probable = [labels[target] for target in targets]
    other = [i for i, (one, most) in enumerate(zip(predicted, probable, strict=True)) if one in labels and one != most]
    if other:
        log.warning(
            "explain: model '%s' predicts '%s' for input %d (from 0; %d in all), and class '%s', which is explained, "
            "is more probable; for the predicted labels give target=model.predict(inputs)",
            *(classifier.architecture, predicted[other[0]], other[0], len(other), probable[other[0]]),
        )


def report_rounding(classifier: Classifier, predictions: np.ndarray) -> None:
    """Warn if a function's predictions of inputs and baseline (n, 1) differ in their last digits alone."""
    if classifier.framework == "function" and (rounding := describe_rounding(predictions)):
        log.warning("explain: model '%s': its predictions %s within the model", classifier.architecture, rounding)


def _fails(ask: Callable[[np.ndarray], Any], inputs: np.ndarray) -> bool:
    try:
        ask(inputs)
    except ShapelineError:
        return True
    return False


def _find_failing_row(ask: Callable[[np.ndarray], Any], inputs: np.ndarray) -> int | None:
    """Return the first of a few rows on which the model fails, None where it fails on all."""
    failed = [row for row in range(min(len(inputs), MAX_ROWS)) if _fails(ask, inputs[row : row + 1])]
    return failed[0] if failed and len(failed) < len(inputs) else None


def _name_row(inputs: np.ndarray, row: int, what: str, background: np.ndarray | None) -> str:
    """Return a row's name: its number in the argument, or in the background where inputs are sampled from it."""
    if background is not None:
        same = (background == inputs[row]) | ((background != background) & (inputs[row] != inputs[row]))
        indices = np.flatnonzero(same.reshape(len(background), -1).all(axis=1))
        what, row = ("background", int(indices[0])) if len(indices) else ("reference", row)
    return f"row {row} (from 0) of the {what}"


def build_failure(classifier: Classifier, inputs: np.ndarray, where: str, error: Exception) -> ShapelineError:
    """Return the error for a model that fails on rows."""
    reason = first_line(error).rstrip(".")
    if isinstance(error, KeyError):
        reason = f"there is no {reason}"
    single = inputs.ndim == 2 and min(inputs.shape) > 1 and takes_image(classifier, inputs)
    remedy = "for a single image give inputs[None]" if single else "give inputs that the model accepts"
    remedy = "for token ids give features='word'" if "embedding" in reason else remedy
    of_frames = "dataframe" in reason.lower() or "valid indices" in reason  # of an array's, not of a data frame's
    is_frame = getattr(getattr(classifier.module, "table", None), "names", None) is not None
    what = "columns of the types" if is_frame else "a data frame with the columns"
    remedy = f"give {what} of its training" if of_frames else remedy
    if is_frame and _takes_arrays(classifier, inputs):
        remedy = "the model takes arrays: give inputs.to_numpy() and such a background, with feature_names=list(inputs)"
    columns = find_columns(classifier.module.ask) if getattr(classifier.module, "decode", None) else None
    if columns is not None and len(columns) == 1:
        call = f"lambda texts: model.predict_proba(pandas.DataFrame({{{str(columns[0])!r}: texts}}))"
        remedy = f"it was fitted on a data frame, so give {call}, whose class_names are model.classes_"
    remedy = "give inputs.astype('float32')" if "got Double and Float" in reason else remedy
    remedy = "load the model's weights first" if "meta tensor" in reason else remedy
    remedy = "fit the model first" if "NotFitted" in type(error).__name__ or "fit()" in reason else remedy
    return ShapelineError(f"explain: model '{classifier.architecture}' fails on {where}: {reason}; {remedy}")


def _takes_arrays(classifier: Classifier, inputs: np.ndarray) -> bool:
    """Return whether a model answers an array in place of a data frame."""
    try:
        return len(classifier.module.ask(classifier.module.take(inputs).to_numpy())) == len(inputs)
    except Exception:  # noqa: BLE001 (whatever a model raises, it does not take such rows)
        return False


def _check_same(classifier: Classifier, first: np.ndarray, second: np.ndarray) -> None:
    """Raise ShapelineError for a stochastic model, whose coalition values differ between calls."""
    differs = np.abs(first - second) > TOLERANCE * (1 + np.abs(first))
    if differs.any():
        one, other = (float(np.asarray(answers)[differs][0]) for answers in (first, second))
        raise ShapelineError(
            f"explain: model '{classifier.architecture}' returns {one:.6g} and then {other:.6g} for one row; make it "
            "deterministic: switch its dropout off, or seed it within each call"
        )


def _broadcast_classes(given: object, classes: Classes, shape: tuple[int, int], what: str) -> np.ndarray:
    """Return one class for all, or one per input, as numbers; what: the argument."""
    n, count = shape
    values = _read_one_each(given, n, what)
    numbers = [classes.number(each, what, count) for each in values.ravel().tolist()]
    return np.broadcast_to(np.array(numbers), n).astype(int)


def _read_one_each(given: object, n: int, what: str) -> np.ndarray:
    """Return one value for all, (), or one per input, (n,); what: the argument. Raises ShapelineError for others."""
    is_one = isinstance(given, str) or not hasattr(given, "__len__")
    values = np.asarray(given) if is_one else _convert_to_objects(given)
    if values.shape not in ((), (n,)):
        raise ShapelineError(
            f"explain: {what} has shape {values.shape} and there are {format_count(n, 'input')}; give one value for "
            "all, or one per input"
        )
    return values


def _convert_to_objects(given: Any) -> np.ndarray:
    """Return a list or array as objects, so that numbers do not become texts among names."""
    values = np.asarray(given, dtype=object)
    return values.reshape(len(values)) if values.ndim == 2 and values.shape[1] == 1 else values
