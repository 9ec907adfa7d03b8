"""The order of the axes in which a model takes images, and a network that is given them in this order."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from shapeline.errors import first_line
from shapeline.models.classifier import FRAMEWORKS, Classifier, backend, detach

COUNTS = (5, 7)  # rows that a model is tried on: it must answer for each, however many there are
# The rows that a model takes, of rows (n, channels, height, width).
ORDERS = {
    "channels_first": lambda rows: rows,
    "without_channels": lambda rows: rows[:, 0],
    "channels_last": lambda rows: np.moveaxis(rows, 1, -1),
}


def find_order(shape: tuple[int, ...], fits: Callable[[tuple[int, ...]], bool]) -> str | None:
    """Return the order of axes in which a model takes rows of a shape, None for none; a single channel may be left
    out."""
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


def arranged(classifier: Classifier, order: str | None) -> Classifier:
    """Return a network as one of rows (n, channels, height, width)."""
    if order in (None, "channels_first"):
        return classifier
    return replace(classifier, module=backend(classifier.framework).arranged(classifier.module, order))


def fitted(classifier: Classifier, shape: tuple[int, ...]) -> Classifier:
    """Return a network defined by the user that takes rows of a dataset's shape, images in whatever order it wants
    them."""
    if classifier.framework not in FRAMEWORKS or len(shape) != 3:
        return classifier
    rows = np.random.default_rng(0).random((1, *shape), dtype=np.float32)
    orders = [order for order in ORDERS if order != "without_channels" or shape[0] == 1]
    fitting = (order for order in orders if failure(classifier, rows, order) is None)
    return arranged(classifier, next(fitting, None))


def order_of(module: object) -> str | None:
    """Return the order of a module that `arranged` made, or of the one in it."""
    return getattr(module, "order", None) or getattr(getattr(module, "network", None), "order", None)
