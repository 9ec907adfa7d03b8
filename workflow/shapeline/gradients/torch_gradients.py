"""Gradient attributions of a torch classifier, by attention (rollout, AttnLRP), and DeepLIFT (Shrikumar et al. 2017).

DeepLIFT by the rescale rule, averaged over reference rows: in one forward pass of inputs and references every
non-linear module is the straight line through its two values. The rules are implemented here, because those of captum
(0.9) and shap (0.51) for max-pooling violate completeness.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from threading import get_ident

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from shapeline.errors import NO_RULE, name_type, reject
from shapeline.games.game import Game
from shapeline.gradients.methods import (
    Slope,
    bind,
    build_starts,
    check_inputs,
    check_layer,
    choose_batch_size,
    compute_nodes,
    describe_missing_map,
    halve_on_memory_error,
    measure_completeness,
    pool,
    score_maps,
)
from shapeline.models.classifier import Classifier
from shapeline.models.torch_models import check_logits, evaluation_mode, find_device, normalise, set_inside, unwrap

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
MAX_RULE_GAP = 0.01  # share of the logits' gain; a larger gap shows that an operation has no rule
ROUNDING = 1e-5  # relative error of the logits
EQUAL = 1e-6  # for smaller differences of input and reference, the derivative replaces the slope


def tensor(model: Classifier, array: np.ndarray) -> torch.Tensor:
    return torch.tensor(array, device=find_device(model.module))


def embed(model: Classifier, rows: np.ndarray, tokens: bool) -> torch.Tensor:
    """Return the differentiation variables: rows (n, *input shape) float32, or embeddings (n, length, e) of tokens."""
    if tokens:
        return model.module.embed(tensor(model, rows)).detach()
    return tensor(model, rows).float()


def build_log_probs(model: Classifier, tokens: bool) -> Callable[..., torch.Tensor]:
    """Return the function from points and token ids to log-probabilities (n, classes) float64, or predictions."""

    def forward(points: torch.Tensor, ids: torch.Tensor | None = None) -> torch.Tensor:
        logits = model.module.from_embedding(points, ids) if tokens else model.module(points)
        logits = check_logits(logits, len(points), model.architecture, model.task)
        return normalise(logits.to(points.device, torch.float64), model.task)  # a network may end on another device

    return forward


@contextlib.contextmanager
def differentiable(module: nn.Module) -> Iterator[None]:
    """Set evaluation mode with gradients; without cuDNN, which refuses the backward pass of recurrent layers in it."""
    recurrent = any(isinstance(part, nn.RNNBase) for part in module.modules())
    without_cudnn = [(torch.backends.cudnn, "enabled", False)] if recurrent else []
    with evaluation_mode(module), set_inside(without_cudnn), torch.inference_mode(False), torch.enable_grad():
        yield


@contextlib.contextmanager
def open_slope(model: Classifier, inputs: np.ndarray, targets: np.ndarray) -> Iterator[Slope]:
    """Yield the slope of log p_target. Raises ShapelineError where torch cannot differentiate the model."""
    tokens = check_inputs(model, inputs, "torch")

    def embed_rows(rows: np.ndarray) -> np.ndarray:
        return embed(model, rows, tokens).cpu().numpy()

    def gradient(at: np.ndarray, instance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x = tensor(model, at).requires_grad_()
        target = tensor(model, targets[instance]).long()
        log_p = forward(x, tensor(model, inputs[instance]) if tokens else None).gather(1, target[:, None])[:, 0]
        (gradients,) = torch.autograd.grad(log_p.sum(), x)
        return gradients.cpu().numpy(), log_p.detach().cpu().numpy()

    with differentiable(model.module):
        forward = build_log_probs(model, tokens)
        yield Slope(embed_rows, gradient, choose_batch_size(embed_rows(inputs[:1]).shape, model), tokens)


saliency, gradient_x_input, gradient_x_difference, integrated_gradients, expected_gradients, smooth_grad = bind(
    open_slope
)


@halve_on_memory_error
def grad_cam(
    game: Game, inputs: np.ndarray, targets: np.ndarray, layer: str | None = None, signed: bool = False
) -> tuple[np.ndarray, int]:
    """Return a layer's maps, weighted by the mean of ∂ log p_target / ∂map, summed, 0 where negative (eq. 1, 2).

    Scores (n, d): means over the pixels of the upsampled map. layer: of `named_modules`, by default the last
    convolution, of a transformer the tokens of its patches; signed: negative values are kept. Raises ShapelineError
    for a layer without maps.
    """
    model = game.model
    check_inputs(model, inputs, "torch")
    modules = dict(unwrap(model.module).named_modules())
    convolutions = [name for name, part in modules.items() if isinstance(part, nn.Conv2d)]
    grid = find_patch_grid(model.module, inputs.shape[2:]) if inputs.ndim == 4 else None
    if grid and (layer is None or isinstance(modules.get(layer), NORMS)):
        layers = [layer] if layer else [name for name, part in modules.items() if isinstance(part, NORMS)]

        def compute_maps(part: slice) -> np.ndarray:
            x, target = embed(model, inputs[part], False), tensor(model, targets[part]).long()
            return compute_token_maps(model, x, target, layers, grid).cpu().numpy()

        return score_maps(game, inputs, compute_maps, signed), 1
    layer = check_layer(model, inputs, layer, modules, convolutions)

    def compute_maps(part: slice) -> np.ndarray:
        x, target = embed(model, inputs[part], False), tensor(model, targets[part]).long()
        *_, (maps, slope) = (x, None), *differentiate_layers(model, x, target, [modules[layer]])
        if slope is None or maps.ndim != 4:
            raise describe_missing_map(model, layer, convolutions)
        return (slope.mean((2, 3), keepdim=True) * maps).sum(1).detach().cpu().numpy()

    return score_maps(game, inputs, compute_maps, signed), 1


def differentiate_layers(
    model: Classifier, x: torch.Tensor, target: torch.Tensor, parts: Sequence[nn.Module]
) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
    """Return the tensors that calls of these modules return, in order, with ∂ log p_target / ∂tensor or None."""
    recorded = []

    def record(_: nn.Module, __: tuple, output: torch.Tensor) -> torch.Tensor | None:
        if not isinstance(output, torch.Tensor) or not output.requires_grad:
            return None
        recorded.append(output)
        return output.clone()  # what follows may change it in place

    with differentiable(model.module), contextlib.ExitStack() as hooks:
        for part in parts:
            _hook(hooks, part, record)
        log_p = build_log_probs(model, tokens=False)(x.requires_grad_()).gather(1, target[:, None]).sum()
        slopes = torch.autograd.grad(log_p, recorded, allow_unused=True) if recorded else ()
    return list(zip(recorded, slopes, strict=True))


def _hook(hooks: contextlib.ExitStack, part: nn.Module, after: Callable, before: Callable | None = None) -> None:
    """Call functions around the module's forward pass in this thread, as others may evaluate the same network."""
    own = get_ident()

    def limit(function: Callable) -> Callable:
        return lambda *given: function(*given) if get_ident() == own else None

    if before:
        hooks.enter_context(part.register_forward_pre_hook(limit(before)))
    hooks.enter_context(part.register_forward_hook(limit(after)))


NORMS = (nn.LayerNorm, nn.RMSNorm)
MAX_POOLED = 2  # tokens that a head reads: class token and distillation token
MAX_SPECIAL = 16  # tokens before the patches: class token, distillation token, registers


def find_patch_grid(module: nn.Module, sides: Sequence[int]) -> tuple[int, int] | None:
    """Return rows and columns of a transformer's patches, by its `patch` or first convolution; or None."""
    parts = list(module.modules())
    convolutions = [part for part in parts if isinstance(part, nn.Conv2d)]
    if patch := getattr(module, "patch", None):
        step = (patch, patch)
    elif convolutions and any(isinstance(part, NORMS) for part in parts):
        last = convolutions[-1]
        step = last.stride if last.stride == last.kernel_size != (1, 1) else None
    else:
        step = None
    return step and tuple(side // size for side, size in zip(sides, step, strict=True))


def compute_token_maps(
    model: Classifier, x: torch.Tensor, target: torch.Tensor, layers: Sequence[str], grid: tuple[int, int]
) -> torch.Tensor:
    """Return patch tokens weighted by their mean derivative and summed, (n, rows, columns).

    Of the last called layer whose patch tokens the class depends on; special tokens come first. Raises
    MethodFailure where the last tokens are not on the grid.
    """
    modules = dict(unwrap(model.module).named_modules())
    patches = grid[0] * grid[1]
    for tokens, slope in differentiate_layers(model, x, target, [modules[layer] for layer in layers])[::-1]:
        if slope is None or tokens.ndim != 3 or tokens.shape[1] <= MAX_POOLED:
            continue
        special = tokens.shape[1] - patches
        if not 0 <= special <= MAX_SPECIAL:
            break
        if (slope[:, special:] != 0).any():
            weights = slope[:, special:].mean(1, keepdim=True)
            return (weights * tokens[:, special:]).sum(2).detach().view(-1, *grid)
    raise reject(
        f"grad_cam: '{model.architecture}' has no tokens of a grid of {grid[0]} x {grid[1]} patches in "
        f"{'its last LayerNorm' if len(layers) > 1 else repr(layers[0]) if layers else 'a LayerNorm'} that the class "
        "depends on; name a layer of maps, or use saliency or integrated_gradients"
    )


# Elementwise functions with f(0) = 0: the output's relevance passes entirely to the input.
ELEMENTWISE_NAMES = {"gelu", "relu", "silu", "tanh", "leaky_relu", "elu", "mish", "hardswish", "relu6"}
PRODUCTS = {"matmul", "bmm", "baddbmm", "mul", "multiply", "__matmul__", "__mul__", "__rmul__"}
SCALES = {"rsqrt", "reciprocal"}  # the multipliers of normalisations
FUSED = {"scaled_dot_product_attention", "multi_head_attention_forward"}


@halve_on_memory_error
def attn_lrp(game: Game, inputs: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the signed relevance of each feature for the target's logit (Achtibat et al. 2024, section 3.3; `Rules`).

    Inputs (n, length), targets (n,) -> scores (n, d), evaluations per instance. The module has embed,
    from_embedding and `plainly()`; raises ShapelineError for another model.
    """
    model = game.model
    if not check_inputs(model, inputs, "torch") or not hasattr(model.module, "plainly"):
        raise reject(
            f"attn_lrp: '{model.architecture}' is not a transformer of tokens; give a text classifier of transformers, "
            "a network with the method plainly(), or choose another method"
        )
    of_cells = np.zeros(inputs.shape)
    with differentiable(model.module), model.module.plainly(), relevance_rules(model.module):
        rows = choose_batch_size(embed(model, inputs[:1], True).shape, model)
        for start in range(0, len(inputs), rows):
            part = slice(start, start + rows)
            x = embed(model, inputs[part], True).requires_grad_()
            logits = model.module.from_embedding(x, tensor(model, inputs[part]))
            target = tensor(model, targets[part]).long()[:, None]
            (slope,) = torch.autograd.grad(logits.gather(1, target).sum(), x)
            of_cells[part] = (x * slope).sum(-1).detach().double().cpu().numpy()
    return pool(of_cells, game.features), 1


class Rules(TorchFunctionMode):
    """Operations whose derivatives are relevance divided by the input.

    Identity rule for elementwise functions; half for each factor of a product of inputs (equation 15); a constant
    scale in normalisation (proposition 3.4); softmax and linear maps unchanged (proposition 3.1).
    """

    def __torch_function__(self, function: Callable, types, args=(), kwargs=None):
        name, kwargs = getattr(function, "__name__", ""), kwargs or {}
        if name in FUSED:
            raise reject("attn_lrp: attention as one fused call has no rule; choose another method")
        if name == "layer_norm":
            return _normalise(*args, **kwargs)
        result = function(*args, **kwargs)
        if name in ELEMENTWISE_NAMES:
            return _pass_relevance(args[0], result)
        if name in SCALES:
            return result.detach()
        if name in PRODUCTS and all(isinstance(part, torch.Tensor) and part.requires_grad for part in args[:2]):
            return (result + result.detach()) / 2
        return result


def _pass_relevance(x: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    return x * torch.where(x == 0, 0.0, output / x).detach()


def _normalise(x: torch.Tensor, shape, weight=None, bias=None, eps: float = 1e-5) -> torch.Tensor:
    axes = tuple(range(-len(shape), 0))
    centred = x - x.mean(axes, keepdim=True)
    output = centred * (centred.square().mean(axes, keepdim=True) + eps).rsqrt().detach()
    output = output if weight is None else output * weight
    return output if bias is None else output + bias


@contextlib.contextmanager
def relevance_rules(module: torch.nn.Module) -> Iterator[None]:
    """Make derivatives of the module by its input follow the rules within a block; its attention must be eager."""
    # Without derivatives by parameters only tensors that depend on the input have one.
    frozen = [(parameter, "requires_grad", False) for parameter in module.parameters()]
    with set_inside(frozen), _fuse_activations(module), Rules():
        yield


@contextlib.contextmanager
def _fuse_activations(module: torch.nn.Module) -> Iterator[None]:
    """Replace activations that transformers composes of several operations, as in GPT-2, by one with a rule."""
    parts = [part for part in module.modules() if type(part).__module__ == "transformers.activations"]
    with contextlib.ExitStack() as hooks:
        for part in parts:
            _hook(hooks, part, lambda _, given, made: _pass_relevance(given[0], made))
        yield


@halve_on_memory_error
def attention_rollout(game: Game, inputs: np.ndarray) -> tuple[np.ndarray, int]:
    """Return each feature's attention flow into the token that the head reads, for any class; scores (n, d) ≥ 0."""
    model = game.model
    if inputs.ndim != 2 or not hasattr(model.module, "attentions"):
        raise reject(
            f"attention_rollout: '{model.architecture}' has no attention; give a text classifier of transformers, a "
            "network of tokens with the method attentions(ids), or choose another method"
        )
    of_cells = np.zeros(inputs.shape)
    # Attention has a square per head and layer; this bounds its numbers per row.
    config = getattr(getattr(model.module, "model", None), "config", None)
    squares = getattr(config, "num_hidden_layers", 1) * getattr(config, "num_attention_heads", 1)
    rows = choose_batch_size((squares, inputs.shape[1], inputs.shape[1]), model)
    with evaluation_mode(model.module), torch.no_grad():
        for start in range(0, len(inputs), rows):
            flow = select_read_row(model.module.attentions(tensor(model, inputs[start : start + rows])))
            of_cells[start : start + rows, : flow.shape[1]] = flow.cpu().numpy()
    return pool(of_cells, game.features), 1


def roll_out(layers: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the share of token j in token i, (n, t, t), from the attention (n, heads, t, t) of all layers (eq. 1)."""
    identity = torch.eye(layers[0].shape[-1], dtype=torch.float64, device=layers[0].device)
    product = identity
    for layer in layers:
        mixed = layer.double().mean(1) + identity
        product = mixed / mixed.sum(-1, keepdim=True) @ product
    return product


def select_read_row(layers: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the rollout's row (n, t) of the token that the head reads: the first, with causal attention the last."""
    shares = roll_out(layers)
    ahead = sum(layer[:, :, 0, 1:].sum() for layer in layers)
    index = torch.zeros(len(shares), dtype=torch.long, device=shares.device)
    if ahead == 0:
        attended = layers[0].amax((1, 2)) > 0
        index = (attended * torch.arange(attended.shape[1], device=attended.device)).amax(1)
    return shares[torch.arange(len(shares), device=shares.device), index]


@halve_on_memory_error
def deep_lift(game: Game, inputs: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, int, dict]:
    """Return DeepLIFT's contributions to log p_target, averaged over the reference's rows (shap's DeepExplainer).

    Returns scores (n, d), evaluations and {"completeness_gap": (n,)}. A large gap is flagged, and so is a network with
    an operation without a rule, where contributions differ by more than 1 % from the gain of the logits. Multipliers of
    logits are the mean derivatives of log p_target on the line between the two. Raises ShapelineError for a module
    without a rule (an LSTM).
    """
    model = game.model
    tokens = check_inputs(model, inputs, "torch")
    for name, part in model.module.named_modules():
        if isinstance(part, WITHOUT_RULE):
            raise reject(
                f"deep_lift: module '{name}' of '{model.architecture}' is {name_type(part)}, which has no rule; "
                "use expected_gradients or integrated_gradients"
            )
    origins = build_starts(game, inputs)
    n, M = origins.shape[:2]
    totals, gained, gaps = np.zeros(inputs.shape), np.zeros(n), np.zeros(n)
    with differentiable(model.module), _straighten(model.module):
        rows = max(1, choose_batch_size(embed(model, inputs[:1], tokens).shape, model) // 2)
        for first in range(0, n * M, rows):
            instance, background = np.divmod(np.arange(first, min(first + rows, n * M)), M)
            x = embed(model, inputs[instance], tokens).requires_grad_()
            x0 = embed(model, origins[instance, background], tokens)
            target = tensor(model, targets[instance]).long()
            stacked = torch.cat([x, x0])
            ids = tensor(model, inputs[np.tile(instance, 2)]) if tokens else None
            logits = model.module.from_embedding(stacked, ids) if tokens else model.module(stacked)
            logits = check_logits(logits, len(stacked), model.architecture, model.task).double()
            multipliers, difference = compute_multipliers(logits.detach(), target, model.task)
            (gradient,) = torch.autograd.grad((multipliers * logits[: len(x)]).sum(), x)
            contributions = (gradient * (x - x0)).detach().double()
            np.add.at(totals, instance, (contributions.sum(-1) if tokens else contributions).cpu().numpy() / M)
            np.add.at(gained, instance, difference.cpu().numpy() / M)
            np.add.at(gaps, instance, measure_rule_gap(contributions, multipliers, logits.detach()).cpu().numpy())
    scores = pool(totals, game.features)
    details = measure_completeness(scores, gained)
    details["warning"] = [NO_RULE if gap else flag for gap, flag in zip(gaps > 0, details["warning"], strict=True)]
    return scores, 2 * M, details


def measure_rule_gap(moved: torch.Tensor, multipliers: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Return the excess gap (m,) between contributions (m, ...) and the gain of the weighted logits (2m, classes)."""
    x, x0 = logits.chunk(2)
    gained, moved = (multipliers * (x - x0)).sum(1), moved.flatten(1)
    rounding = (multipliers.abs() * torch.maximum(x.abs(), x0.abs())).sum(1)
    allowed = MAX_RULE_GAP * (gained.abs() + moved.abs().sum(1) / 10) + ROUNDING * rounding
    return (moved.sum(1) - gained).abs().sub(allowed).clamp(min=0)


def compute_multipliers(logits: torch.Tensor, target: torch.Tensor, task: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return multipliers (m, classes) of logits (2m, classes) of inputs and references, and the gain of F (m,)."""
    x, x0 = logits.chunk(2)
    if task == "regression":
        return torch.ones_like(x), (x - x0)[:, 0]
    if task == "multilabel":  # of one logit, the slope between its two values
        chosen = nn.functional.one_hot(target, x.shape[1])
        delta = x - x0
        gained = nn.functional.logsigmoid(x) - nn.functional.logsigmoid(x0)
        slope = torch.where(delta.abs() < EQUAL, torch.sigmoid(-x), gained / torch.where(delta.abs() < EQUAL, 1, delta))
        return chosen * slope, (chosen * gained).sum(1)
    mean = torch.zeros_like(x)
    for position, weight in zip(*compute_nodes(50), strict=True):
        mean += weight * torch.softmax(x0 + position * (x - x0), dim=1)
    multipliers = nn.functional.one_hot(target, x.shape[1]) - mean
    gained = (torch.log_softmax(x, dim=1) - torch.log_softmax(x0, dim=1)).gather(1, target[:, None])[:, 0]
    return multipliers, gained


@contextlib.contextmanager
def _straighten(module: nn.Module) -> Iterator[None]:
    """Keep the values of non-linear modules with the rescale rule's slopes; rows: inputs, then references."""
    inputs: dict[nn.Module, torch.Tensor] = {}

    def before(part: nn.Module, arguments: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        inputs[part] = arguments[0]
        return (arguments[0].clone(), *arguments[1:])  # a module that works in place must not change the original

    def after(part: nn.Module, _: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
        return (_interpolate if isinstance(part, ELEMENTWISE) else _interpolate_pool)(part, inputs.pop(part), output)

    parts = [part for part in module.modules() if isinstance(part, (*ELEMENTWISE, *POOLS))]
    with contextlib.ExitStack() as hooks:
        for part in parts:
            _hook(hooks, part, after, before)
        yield


def _interpolate(part: nn.Module, x: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """Return the output with the slope between input and reference, or its derivative where these are equal."""
    delta = torch.sub(*x.detach().chunk(2))
    slope = torch.sub(*output.detach().chunk(2)) / torch.where(delta.abs() < EQUAL, 1, delta)
    line = output.detach() + slope.repeat(2, *[1] * (x.ndim - 1)) * (x - x.detach())
    return torch.where((delta.abs() < EQUAL).repeat(2, *[1] * (x.ndim - 1)), output, line)


def _interpolate_pool(part: nn.Module, x: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """Return the output, whose change is divided among the largest cells of input and reference (the authors' code)."""
    pool = next(pool for kind, pool in POOLS.items() if isinstance(part, kind))
    options = part.kernel_size, part.stride, part.padding, part.dilation, part.ceil_mode
    cells = x.flatten(2)
    indices = pool(x.detach(), *options, return_indices=True)[1].flatten(2)
    of_input, of_reference = indices.chunk(2)
    y, y0 = output.detach().flatten(2).chunk(2)
    largest = torch.maximum(y, y0)
    delta = torch.sub(*cells.detach().chunk(2))
    line = output.detach().flatten(2)
    for index, change in ((of_input, largest - y0), (of_reference, y - largest)):
        distance = delta.gather(2, index)
        slope = torch.where(change == 0, 0, change / torch.where(distance == 0, 1, distance)).repeat(2, 1, 1)
        change_of_cells = (cells - cells.detach()).gather(2, index.repeat(2, 1, 1))
        line = line + slope * change_of_cells
    return line.view_as(output)
