"""Absent patches of an image left out of a transformer's sequence, in place of filling their pixels."""

import inspect
from collections.abc import Callable

import torch

from shapeline.errors import MethodFailure, ShapelineError
from shapeline.games.execution import ExecutionBackend
from shapeline.models.classifier import Classifier
from shapeline.models.torch_models import checked_logits


def leaving_out(model: Classifier, form: ExecutionBackend) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function from rows (n, channels, height, width), NaN where a patch is absent, to logits.

    The model's module declares `patch`, the side of its patches, and takes `forward(images, kept)`: kept (n, k), the
    patches that are there, by number in reading order, each with its own place. Raises ShapelineError for another.
    """
    module, name = model.module, model.architecture
    if not getattr(module, "patch", None) or "kept" not in inspect.signature(module.forward).parameters:
        raise ShapelineError(
            f"reference 'delete': '{name}' cannot leave patches out; use zero or mean_value, or give its module "
            "`patch`, their side, and let it take forward(images, kept), kept (n, k): patches there are, by number"
        )
    if form.name != "plain":
        raise ShapelineError(f"reference 'delete': '{name}' runs plain under it; remove precision and compile")

    def forward(rows: torch.Tensor) -> torch.Tensor:
        absent = rows[:, 0].isnan().unfold(1, module.patch, module.patch).unfold(2, module.patch, module.patch)
        absent = absent.flatten(1, 2).flatten(2)  # (n, patches, cells)
        gone = absent[:, :, 0]
        if (absent != gone[:, :, None]).any():
            raise MethodFailure(
                "unsupported features",
                f"reference 'delete': a feature cuts through the patches of '{name}', of {module.patch} x "
                f"{module.patch} pixels; set features: {{kind: patch, size: {module.patch}}}",
            )
        kept = gone.to(torch.uint8).argsort(dim=1, stable=True)  # those that are there first, in their order
        counts = (~gone).sum(1)
        pictures, parts, places = rows.nan_to_num(0.0), [], []
        for count in counts.unique().tolist():
            own = (counts == count).nonzero()[:, 0]
            parts.append(module(pictures[own], kept[own, :count]))
            places.append(own)
        logits = checked_logits(torch.cat(parts), len(rows), name, model.task)
        return torch.empty_like(logits).index_copy_(0, torch.cat(places), logits)

    return forward
