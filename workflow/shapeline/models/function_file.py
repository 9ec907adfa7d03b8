"""A model that is a function in a file defined by the user: rows to probabilities, or to predictions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from shapeline.datasets.sources import user_function
from shapeline.errors import ShapelineError
from shapeline.models.axes import ORDERS, failure
from shapeline.models.classifier import Classifier, detach
from shapeline.models.pipeline_file import numbers_frame

if TYPE_CHECKING:
    from shapeline.datasets.table import Table


@dataclass(frozen=True, eq=False)
class Function:
    """The user's function of rows, or of data frames of typed columns; content: of its file; order: of images' axes."""

    content: bytes
    source: str
    columns: list[dict] | None
    classes: int | None
    ask: Callable[[Any], Any]
    order: str = "channels_first"
    table: "Table | None" = None

    def take(self, rows: np.ndarray) -> Any:
        """Rows (n, *input shape) as the function is given them."""
        if self.table is not None:
            return self.table.compose(rows)
        return ORDERS[self.order](rows) if self.columns is None else numbers_frame(rows, self.columns)

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        outputs = np.asarray(detach(self.ask(self.take(rows))))
        classes = outputs.shape[1] if outputs.ndim == 2 and outputs.shape[1] > 1 else 2
        if self.classes is not None and classes != self.classes:
            raise ShapelineError(
                f"models: {self.source} gave shape {outputs.shape} for {len(rows)} rows and the dataset has "
                f"{self.classes} classes; return the probability of each, (rows, classes), or of the second of two"
            )
        return outputs


def load_model(source: str, content: bytes, known: dict[str, Any], task: str) -> Function:
    """Return the function of "path/to/file.py:function", for `known` columns, classes and shape."""
    classes, function = None if task == "regression" else len(known["classes"]), user_function(source)
    if not known.get("has_channels", True) and "order" not in known:
        rows = np.random.default_rng(0).random((1, *known["input_shape"]), dtype=np.float32)
        model, orders = Classifier("function", source, function), ("without_channels", "channels_first")
        known["order"] = next((order for order in orders if failure(model, rows, order) is None), orders[0])
    return Function(content, source, known["columns"], classes, function, known.get("order", "channels_first"))
