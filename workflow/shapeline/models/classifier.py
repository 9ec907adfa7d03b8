"""The one interface every model is used through, whatever framework made it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shapeline.errors import ShapelineError


@dataclass(eq=False)
class Classifier:
    """A model that gives class probabilities.

    `framework` is "torch" (`module` is an nn.Module giving logits, (n, *input_shape) -> (n, classes)) or "function"
    (`module` maps a float32 array to probabilities, (n, classes) or (n,) for the second of two classes). `sizes` are
    the keyword sizes it was built with (empty for a wrapped model); `n_classes` is None until a wrapped model ran.
    Compared and hashed by identity, so that caches can hold it weakly.
    """

    framework: str
    architecture: str
    module: Any
    n_classes: int | None = None
    sizes: dict[str, Any] = field(default_factory=dict)

    @property
    def n_parameters(self) -> int:
        """Number of trainable parameters (0 for a function)."""
        if self.framework == "function":
            return 0
        return sum(parameter.numel() for parameter in self.module.parameters() if parameter.requires_grad)

    @property
    def device(self) -> str:
        """Where the weights are: "cpu", "cuda:0", ..."""
        if self.framework == "function":
            return "cpu"
        from shapeline.models import torch_models

        return str(torch_models.device_of(self.module))

    def to(self, device: str) -> "Classifier":
        """Move the weights to a device, in place; returns the classifier itself."""
        if self.framework == "torch":
            self.module.to(device)
        return self

    def log_probs(self, inputs: Any, batch: int = 256) -> np.ndarray:
        """Log-probabilities, (n, *input_shape) array or tensor -> (n, classes) float64, in evaluation mode.

        From log-softmax of the logits in float64; for a function the log of its probabilities (-inf where P = 0).
        """
        if self.framework == "function":
            inputs = np.asarray(inputs, dtype=np.float32)
            parts = [
                function_log_probs(self.module, inputs[i : i + batch], self.architecture)
                for i in range(0, len(inputs), batch)
            ]
            return np.concatenate(parts)
        from shapeline.models import torch_models

        return torch_models.log_probs(self.module, inputs, batch, self.architecture)


def function_log_probs(function: Callable[[np.ndarray], Any], inputs: np.ndarray, name: str) -> np.ndarray:
    """Log of a function's probabilities, (n, *input_shape) -> (n, classes) float64; -inf where P = 0, NaN kept.

    Raises ShapelineError when the function gives another shape or numbers outside 0..1.
    """
    probabilities = np.asarray(function(inputs), dtype=np.float64)
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
    if (probabilities < 0).any() or (probabilities > 1 + 1e-6).any():
        raise ShapelineError(
            f"model '{name}': gave values from {probabilities.min():.3g} to {probabilities.max():.3g}; "
            "it must return probabilities in 0..1 (a torch module may give logits)"
        )
    with np.errstate(divide="ignore"):
        return np.log(probabilities)
