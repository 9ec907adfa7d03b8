"""The shortcut of windows.py for torch models on the processor."""

from collections.abc import Callable, Iterator

import numpy as np
import torch

from shapeline.games import windows
from shapeline.games.features import Features
from shapeline.models.classifier import Classifier
from shapeline.models.torch_models import evaluation_mode


def values(
    model: Classifier, inputs: np.ndarray, rows: np.ndarray, masks: np.ndarray, features: Features
) -> Iterator[tuple[int, int, int, int, np.ndarray]]:
    """Logits by tiles, as `windows.values`, for a module with `window_size`, `windows` and `from_pooled`."""
    module, device = model.module, torch.device(model.device)

    def wrap_arrays(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[np.ndarray], np.ndarray]:
        def run(rows: np.ndarray) -> np.ndarray:
            with evaluation_mode(module):
                return function(torch.from_numpy(rows).to(device)).cpu().numpy()

        return run

    threads = torch.get_num_threads()
    local = windows.Local(module.window_size, wrap_arrays(module.windows), wrap_arrays(module.from_pooled), threads)
    return windows.values(local, inputs, rows, masks, features.cells)
