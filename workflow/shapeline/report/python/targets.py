"""Which class of each input is explained, by number or by name."""

from collections.abc import Sequence

import numpy as np

from shapeline.datasets.table_file import class_name
from shapeline.errors import ShapelineError, nearest
from shapeline.metrics.origin import TOLERANCE
from shapeline.models.classifier import Classifier
from shapeline.models.estimators import classes_of

ASKED_AGAIN = 4  # rows that a model is asked of twice: it must say the same
WORDS = ("predicted", "true", "each")


def class_names_of(model: object, class_names: Sequence[str] | None) -> tuple[str, ...]:
    """The names given, else those of a model that knows its classes; none where nobody does."""
    known = classes_of(model) if class_names is None else class_names
    return () if known is None else tuple(map(class_name, known))


def chosen_targets(
    classifier: Classifier, inputs: np.ndarray, target: object, names: Sequence[str], y: Sequence | None
) -> tuple[np.ndarray, np.ndarray]:
    """The class explained in each row, (m,), and the input that the row is of, (m,): inputs of several have a row each.

    target, y: as in `explain`. names: of the classes, or none. Raises ShapelineError.
    """
    said = _said(classifier, inputs, inputs if target is None or isinstance(target, str) else inputs[:1])
    everyone = np.arange(len(inputs))
    if classifier.task == "regression":
        target = 0 if target is None or (isinstance(target, str) and target == "predicted") else target
        return _one_each(target, (), len(inputs), "target"), everyone
    names = _checked_names(names, said.shape[1])
    if target is None or (isinstance(target, str) and target == "predicted" and target not in names):
        return said.argmax(1), everyone
    if isinstance(target, str) and target == "true" and target not in names:
        return _one_each(_true(y), names, len(inputs), "y"), everyone
    if isinstance(target, set | frozenset) or (isinstance(target, str) and target == "each" and target not in names):
        chosen = range(said.shape[1]) if isinstance(target, str) else sorted(_number(each, names) for each in target)
        return np.tile(list(chosen), len(inputs)), np.repeat(everyone, len(chosen))
    return _one_each(target, names, len(inputs), "target"), everyone


def _said(classifier: Classifier, inputs: np.ndarray, some: np.ndarray) -> np.ndarray:
    """What the model says of some of the inputs, (n, classes)."""
    ask = classifier.predict if classifier.task == "regression" else classifier.log_probs
    try:
        said = ask(some)
        twice = [ask(some[:ASKED_AGAIN]) for _ in range(2)]
    except (IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:  # where shapes and types do not fit
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ShapelineError(
            f"explain: model '{classifier.architecture}' fails on inputs of shape {inputs.shape}: {reason}"
        ) from error
    _check_same(classifier, *(answers if ask == classifier.predict else np.exp(answers) for answers in twice))
    return said


def _check_same(classifier: Classifier, first: np.ndarray, second: np.ndarray) -> None:
    """Refuses a model that draws: a coalition's value would be another at every call, and the scores noise."""
    apart = np.abs(first - second) > TOLERANCE * (1 + np.abs(first))
    if apart.any():
        one, other = (float(np.asarray(answers)[apart][0]) for answers in (first, second))
        raise ShapelineError(
            f"explain: model '{classifier.architecture}' says {one:.6g} and then {other:.6g} of one row; let it answer "
            "alike: switch its dropout off, or seed it within each call"
        )


def _checked_names(names: Sequence[str], classes: int) -> Sequence[str]:
    if names and len(names) != classes:
        raise ShapelineError(f"explain: class_names: {len(names)} names, and the model gives {classes} classes")
    return names


def _true(y: Sequence | None) -> Sequence:
    if y is None:
        raise ShapelineError("explain: target 'true' needs y, the true class of each input")
    return y


def _one_each(given: object, names: Sequence[str], n: int, what: str) -> np.ndarray:
    """One class for all, or one an input, as numbers; what: the argument."""
    values = np.asarray(given)
    named = values.dtype.kind in "OUS" or (what == "y" and bool(names))
    if named and values.shape in ((), (n,)):
        numbers = [_number(each, names, what) for each in values.ravel().tolist()]
        return np.broadcast_to(np.array(numbers), n).astype(int)
    whole = values.dtype.kind in "biuf" and np.array_equal(values, np.floor(values.astype(float)))
    if values.shape not in ((), (n,)) or not whole:
        raise ShapelineError(
            f"explain: {what} has {values.dtype} of shape {values.shape}; give one class, or {n}, one an "
            "input, as whole numbers" + (" or names" if names else "")
        )
    return np.broadcast_to(values, n).astype(int)


def _number(name: object, names: Sequence[str], what: str = "target") -> int:
    """The number of a class, from its name or the number itself."""
    if what == "y" and class_name(name) in names:
        return list(names).index(class_name(name))
    if isinstance(name, int | np.integer) and not isinstance(name, bool):
        return int(name)
    if str(name) in names:
        return list(names).index(str(name))
    if not names:
        raise ShapelineError(f"explain: {what} '{name}': the model's classes have no names; give class_names")
    raise ShapelineError(f"explain: {what} '{name}' is no class.{nearest(name, [*names, *WORDS])}")
