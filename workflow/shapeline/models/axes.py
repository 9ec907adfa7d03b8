"""Where the channels of images are: the order in which a model takes its axes, and that in which arrays are given."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shapeline.errors import ShapelineError, first_line
from shapeline.models import adapters
from shapeline.models.classifier import FRAMEWORKS, Classifier, backend, detach

COUNTS = (5, 7)  # rows that a model is tried on: it must answer for each, however many there are
# The rows that a model takes, of rows (n, channels, height, width).
ORDERS = {
    "channels_first": lambda rows: rows,
    "without_channels": lambda rows: rows[:, 0],
    "channels_last": lambda rows: np.moveaxis(rows, 1, -1),
}
CHANNELS = (1, 2, 3, 4)


def find_order(shape: tuple[int, ...], fits: Callable[[tuple[int, ...]], bool]) -> str | None:
    """Return the order of axes in which a model takes rows of a shape, or None; a single channel may be left out."""
    sides = {"channels_first": shape}
    if len(shape) == 3:
        sides |= {"channels_last": (*shape[1:], shape[0])} | ({"without_channels": shape[1:]} if shape[0] == 1 else {})
    return next((order for order, each in sides.items() if fits(each)), None)


def failure(classifier: Classifier, rows: np.ndarray, order: str) -> str | None:
    """Return why a model gives no answer for each of some rows in an order; None where it does."""
    for count in COUNTS:
        given = np.ascontiguousarray(ORDERS[order](np.resize(rows, (count, *rows.shape[1:]))))
        try:
            if classifier.framework == "function":
                outputs = np.asarray(detach(classifier.module(given)))
            else:
                outputs = backend(classifier.framework).outputs(classifier.module, given)
        except Exception as error:  # noqa: BLE001 (whatever a model raises, it does not take such rows)
            return first_line(error)
        if outputs is None or outputs.ndim == 0 or len(outputs) != count:
            return f"it does not give an answer for each of {count} rows"
    return None


def takes_image(classifier: Classifier, image: np.ndarray) -> bool:
    """Return whether a model takes rows (height, width), of which this is one."""
    return any(failure(classifier, image[None, None], order) is None for order in ORDERS)


def rearrange(classifier: Classifier, order: str | None) -> Classifier:
    """Return a network as one of rows (n, channels, height, width)."""
    if order in (None, "channels_first"):
        return classifier
    return replace(classifier, module=backend(classifier.framework).rearrange(classifier.module, order))


def fit_to_shape(classifier: Classifier, shape: tuple[int, ...]) -> Classifier:
    """Return a network defined by the user that takes rows of a dataset's shape, images in its own order."""
    if classifier.framework not in FRAMEWORKS or len(shape) != 3:
        return classifier
    rows = np.random.default_rng(0).random((1, *shape), dtype=np.float32)
    orders = [order for order in ORDERS if order != "without_channels" or shape[0] == 1]
    fitting = (order for order in orders if failure(classifier, rows, order) is None)
    return rearrange(classifier, next(fitting, None))


def order_of(module: object) -> str | None:
    """Return the order of a module that `arranged` made, or of the one in it."""
    return getattr(module, "order", None) or getattr(getattr(module, "network", None), "order", None)


@dataclass(frozen=True)
class Layout:
    """A reading of an array. axis: of channels, None without; order: of ORDERS, of the rows the model takes."""

    name: str
    axis: int | None
    order: str

    def inward(self, rows: np.ndarray) -> np.ndarray:
        """One input, or several, that were read so, as the engine has them."""
        rows = rows[None] if rows.ndim == (2 if self.axis is None else 3) else rows
        return rows[:, None] if self.axis is None else np.moveaxis(rows, self.axis, 1)

    def outward(self, rows: np.ndarray) -> np.ndarray:
        """Rows of the engine as the model takes them."""
        return ORDERS[self.order](rows)


FIRST = Layout("one image, as inputs[None]", 1, "channels_first")
LAST = Layout("one image, as inputs[None]", -1, "channels_last")
MOVED = Layout("one image, as inputs[None]", 1, "channels_last")  # of a network that wants them last
PLAIN = Layout("inputs without channels", None, "without_channels")
GREY = Layout("grey images, as inputs[:, None]", None, "channels_first")
GREY_LAST = Layout("grey images, as inputs[..., None]", None, "channels_last")


def find_layout(model: object, inputs: np.ndarray, beside: Sequence[np.ndarray | None]) -> Layout | None:
    """Return how an array of three or four axes is read, None of others.

    Channels of images are known by shape, else by what the model takes; three axes are n inputs or one image.
    beside: background and reference. Raises ShapelineError where several readings fit, or none.
    """
    keras = adapters.find_framework(model) == "tensorflow"
    if inputs.ndim == 4:
        return _find_image_layout(model, inputs, keras)
    if inputs.ndim != 3:
        return None
    many, one = ([PLAIN, GREY_LAST, GREY], [LAST, FIRST, MOVED]) if keras else ([PLAIN, GREY], [FIRST])
    shapes = [rows.shape for rows in beside if rows is not None and rows.shape != inputs.shape]
    if any(shape[1:] == inputs.shape for shape in shapes):
        many = []
    elif any(inputs.shape[1:] in (shape, shape[1:]) for shape in shapes):
        one = []
    classifier = adapters.wrap(model)
    reasons = {}
    for each in (*many, *one):
        reasons[each] = failure(classifier, each.inward(inputs), each.order)
        if each == PLAIN and reasons[each] is None:
            return PLAIN
    fitting = [each for each, reason in reasons.items() if reason is None]
    if not fitting:
        raise ShapelineError(
            f"explain: inputs have shape {inputs.shape}, and the model takes them neither so nor with an axis of "
            f"channels, as inputs[:, None] or inputs[None] ({next(iter(reasons.values()))}); give the shape of "
            "its training, or a function that reshapes its inputs"
        )
    if len(inputs) > 1 and fitting[0] not in one and set(fitting) & set(one):
        singly = next(each for each in fitting if each in one)
        raise ShapelineError(
            f"explain: inputs of shape {inputs.shape} may be {fitting[0].name}, or {singly.name}; give one of these"
        )
    return fitting[0]


def _find_image_layout(model: object, inputs: np.ndarray, keras: bool) -> Layout:
    """As `find_layout`, of four axes."""
    classifier = adapters.wrap(model)
    likely = [inputs.shape[axis] in (1, 3) for axis in (1, -1)]  # of two small sides
    first, last = likely if any(likely) else [inputs.shape[axis] in CHANNELS for axis in (1, -1)]
    if last and not first:
        if classifier.framework == "torch" and failure(classifier, LAST.inward(inputs), LAST.order):
            raise ShapelineError(
                f"explain: inputs have shape {inputs.shape}, channels last; give np.moveaxis(inputs, -1, 1), as the "
                "model takes them"
            )
        return LAST
    tried = [FIRST, MOVED] if first and not last else [LAST, FIRST, MOVED] if keras else [FIRST, LAST]
    if not keras and not last:
        return FIRST
    fitting = (each for each in tried if failure(classifier, each.inward(inputs), each.order) is None)
    return next(fitting, tried[0])
