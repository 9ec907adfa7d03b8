"""DeepLIFT (Shrikumar et al. 2017, rescale rule) of a torch classifier, averaged over reference rows.

In one forward pass of inputs and references every non-linear module is the straight line through its two values. The
rules are our own, because captum's (0.9) and shap's (0.51) for max-pooling do not add up.
"""

import contextlib
from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from shapeline.errors import NO_RULE, reject
from shapeline.games.game import Game
from shapeline.gradients.cells import check, completeness, halving, nodes, pool, rows_of_a_pass, starts
from shapeline.gradients.torch_gradients import differentiable, points, tensor
from shapeline.models.torch_models import checked_logits

# Modules that act on each number alone.
ELEMENTWISE = (
    *(nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.ReLU6, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Softplus),
    *(nn.Sigmoid, nn.LogSigmoid, nn.Tanh, nn.Softsign, nn.Hardtanh, nn.Hardsigmoid, nn.Hardswish),
    *(nn.Hardshrink, nn.Softshrink, nn.Tanhshrink, nn.Threshold, nn.RReLU),  # outside training RReLU has one slope
)
POOLS = {nn.MaxPool1d: nn.functional.max_pool1d, nn.MaxPool2d: nn.functional.max_pool2d}
WITHOUT_RULE = (
    *(nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention, nn.Bilinear, nn.GLU),
    *(nn.Softmax, nn.Softmax2d, nn.Softmin, nn.LogSoftmax),
    *(nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
    *(nn.LocalResponseNorm, nn.CrossMapLRN2d, nn.LPPool1d, nn.LPPool2d, nn.LPPool3d),
    *(nn.MaxPool3d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d),
    *(nn.FractionalMaxPool2d, nn.FractionalMaxPool3d),
)
RULE_GAP = 0.01  # of what the logits gained, above which some operation has no rule
ROUNDING = 1e-5  # of the logits
EQUAL = 1e-6  # inputs nearer than this to their reference have the derivative in place of a slope


@halving
def deep_lift(game: Game, inputs: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, int, dict]:
    """DeepLIFT's contributions to log p_target, averaged over the reference's rows (shap's DeepExplainer).

    Returns scores (n, d), evaluations and {"completeness_gap": (n,)}. Flagged is a large gap, and a network with an
    operation without a rule: there what the logits gained is missed by more than 1 %. Multipliers of logits are the
    mean derivatives of log p_target on the line between the two. Raises ShapelineError for a module without a rule
    (an LSTM).
    """
    model = game.model
    tokens = check(model, inputs, "torch")
    for name, part in model.module.named_modules():
        if isinstance(part, WITHOUT_RULE):
            raise reject(
                f"deep_lift: module '{name}' of '{model.architecture}' is a {type(part).__name__}, which has no rule; "
                "use expected_gradients or integrated_gradients"
            )
    origins = starts(game, inputs)
    n, M = origins.shape[:2]
    of_cells, gained, beyond = np.zeros(inputs.shape), np.zeros(n), np.zeros(n)
    with differentiable(model.module), _straighten(model.module):
        rows = max(1, rows_of_a_pass(points(model, inputs[:1], tokens).shape, model) // 2)
        for first in range(0, n * M, rows):
            instance, background = np.divmod(np.arange(first, min(first + rows, n * M)), M)
            x = points(model, inputs[instance], tokens).requires_grad_()
            x0 = points(model, origins[instance, background], tokens)
            target = tensor(model, targets[instance]).long()
            both = torch.cat([x, x0])
            ids = tensor(model, inputs[np.tile(instance, 2)]) if tokens else None
            logits = model.module.from_embedding(both, ids) if tokens else model.module(both)
            logits = checked_logits(logits, len(both), model.architecture, model.task).double()
            multipliers, difference = head(logits.detach(), target, model.task)
            (gradient,) = torch.autograd.grad((multipliers * logits[: len(x)]).sum(), x)
            moved = (gradient * (x - x0)).detach().double()
            np.add.at(of_cells, instance, (moved.sum(-1) if tokens else moved).cpu().numpy() / M)
            np.add.at(gained, instance, difference.cpu().numpy() / M)
            np.add.at(beyond, instance, measure_rule_gap(moved, multipliers, logits.detach()).cpu().numpy())
    scores = pool(of_cells, game.features)
    details = completeness(scores, gained)
    details["warning"] = [NO_RULE if far else flag for far, flag in zip(beyond > 0, details["warning"], strict=True)]
    return scores, 2 * M, details


def measure_rule_gap(moved: torch.Tensor, multipliers: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Return by how much contributions (m, ...) miss the gain of the weighted logits (2m, classes), (m,)."""
    x, x0 = logits.chunk(2)
    gained, moved = (multipliers * (x - x0)).sum(1), moved.flatten(1)
    rounding = (multipliers.abs() * torch.maximum(x.abs(), x0.abs())).sum(1)
    allowed = RULE_GAP * (gained.abs() + moved.abs().sum(1) / 10) + ROUNDING * rounding
    return (moved.sum(1) - gained).abs().sub(allowed).clamp(min=0)


def head(logits: torch.Tensor, target: torch.Tensor, task: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Multipliers (m, classes) of the logits (2m, classes) of inputs and references, and what F gained (m,)."""
    x, x0 = logits.chunk(2)
    if task == "regression":
        return torch.ones_like(x), (x - x0)[:, 0]
    if task == "multilabel":  # of one logit, the slope between its two values
        chosen = nn.functional.one_hot(target, x.shape[1])
        apart = x - x0
        gained = nn.functional.logsigmoid(x) - nn.functional.logsigmoid(x0)
        slope = torch.where(apart.abs() < EQUAL, torch.sigmoid(-x), gained / torch.where(apart.abs() < EQUAL, 1, apart))
        return chosen * slope, (chosen * gained).sum(1)
    mean = torch.zeros_like(x)
    for position, weight in zip(*nodes(50), strict=True):
        mean += weight * torch.softmax(x0 + position * (x - x0), dim=1)
    multipliers = nn.functional.one_hot(target, x.shape[1]) - mean
    gained = (torch.log_softmax(x, dim=1) - torch.log_softmax(x0, dim=1)).gather(1, target[:, None])[:, 0]
    return multipliers, gained


@contextlib.contextmanager
def _straighten(module: nn.Module) -> Iterator[None]:
    """Keep the values of non-linear modules with the rescale rule's slopes; rows: inputs, then references."""
    given: dict[nn.Module, torch.Tensor] = {}

    def before(part: nn.Module, arguments: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        given[part] = arguments[0]
        return (arguments[0].clone(), *arguments[1:])  # a module that works in place leaves the original as it was

    def after(part: nn.Module, _: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
        return (_line if isinstance(part, ELEMENTWISE) else _pooled_line)(part, given.pop(part), output)

    parts = [part for part in module.modules() if isinstance(part, (*ELEMENTWISE, *POOLS))]
    hooks = [part.register_forward_pre_hook(before) for part in parts]
    hooks += [part.register_forward_hook(after) for part in parts]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _line(part: nn.Module, given: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """The output, with the slope between input and reference; its own derivative where the two are equal."""
    apart = torch.sub(*given.detach().chunk(2))
    slope = torch.sub(*output.detach().chunk(2)) / torch.where(apart.abs() < EQUAL, 1, apart)
    line = output.detach() + slope.repeat(2, *[1] * (given.ndim - 1)) * (given - given.detach())
    return torch.where((apart.abs() < EQUAL).repeat(2, *[1] * (given.ndim - 1)), output, line)


def _pooled_line(part: nn.Module, given: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """Return the output, whose change is shared by the largest cells of input and reference (the authors' code)."""
    pool = next(pool for kind, pool in POOLS.items() if isinstance(part, kind))
    options = part.kernel_size, part.stride, part.padding, part.dilation, part.ceil_mode
    cells = given.flatten(2)
    indices = pool(given.detach(), *options, return_indices=True)[1].flatten(2)
    of_input, of_reference = indices.chunk(2)
    y, y0 = output.detach().flatten(2).chunk(2)
    largest = torch.maximum(y, y0)
    apart = torch.sub(*cells.detach().chunk(2))
    line = output.detach().flatten(2)
    for index, change in ((of_input, largest - y0), (of_reference, y - largest)):
        distance = apart.gather(2, index)
        slope = torch.where(change == 0, 0, change / torch.where(distance == 0, 1, distance)).repeat(2, 1, 1)
        moved = (cells - cells.detach()).gather(2, index.repeat(2, 1, 1))
        line = line + slope * moved
    return line.view_as(output)
