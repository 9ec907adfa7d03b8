"""Attributions of transformers from their attention: AttnLRP and attention rollout."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from shapeline.errors import reject
from shapeline.games.game import Game
from shapeline.gradients.cells import check, halving, pool, rows_of_a_pass
from shapeline.gradients.torch_gradients import differentiable, points, tensor
from shapeline.models.torch_models import evaluation_mode

# Functions of a cell alone that are 0 at 0: what comes out follows from what goes in whole.
OF_A_CELL = {"gelu", "relu", "silu", "tanh", "leaky_relu", "elu", "mish", "hardswish", "relu6"}
PRODUCTS = {"matmul", "bmm", "baddbmm", "mul", "multiply", "__matmul__", "__mul__", "__rmul__"}
SCALES = {"rsqrt", "reciprocal"}  # by which a normalisation multiplies
FUSED = {"scaled_dot_product_attention", "multi_head_attention_forward"}


@halving
def attn_lrp(game: Game, inputs: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, int]:
    """Relevance of each feature's tokens for the target's logit, signed (Achtibat et al. 2024, section 3.3; `Rules`).

    Inputs (n, length), targets (n,) -> scores (n, d), evaluations per instance. The module has embed,
    from_embedding and `plainly()`; raises ShapelineError for another model.
    """
    model = game.model
    if not check(model, inputs, "torch") or not hasattr(model.module, "plainly"):
        raise reject(
            f"attn_lrp: '{model.architecture}' is not a transformer of tokens; give a text classifier of transformers, "
            "a network with the method plainly(), or choose another method"
        )
    of_cells = np.zeros(inputs.shape)
    with differentiable(model.module), model.module.plainly(), relevance_rules(model.module):
        rows = rows_of_a_pass(points(model, inputs[:1], True).shape, model)
        for start in range(0, len(inputs), rows):
            part = slice(start, start + rows)
            x = points(model, inputs[part], True).requires_grad_()
            logits = model.module.from_embedding(x, tensor(model, inputs[part]))
            target = tensor(model, targets[part]).long()[:, None]
            (slope,) = torch.autograd.grad(logits.gather(1, target).sum(), x)
            of_cells[part] = (x * slope).sum(-1).detach().double().cpu().numpy()
    return pool(of_cells, game.features), 1


class Rules(TorchFunctionMode):
    """Operations whose derivatives are the rules of relevance over the input.

    Identity rule for a function of a cell; half for each factor of a product of inputs (equation 15); a constant
    scale in normalisation (proposition 3.4); softmax and linear maps as ever (proposition 3.1).
    """

    def __torch_function__(self, function: Callable, types, args=(), kwargs=None):
        name, kwargs = getattr(function, "__name__", ""), kwargs or {}
        if name in FUSED:
            raise reject("attn_lrp: attention as one fused call has no rule; choose another method")
        if name == "layer_norm":
            return _layer_norm(*args, **kwargs)
        made = function(*args, **kwargs)
        if name in OF_A_CELL:
            return _whole(args[0], made)
        if name in SCALES:
            return made.detach()
        if name in PRODUCTS and all(isinstance(part, torch.Tensor) and part.requires_grad for part in args[:2]):
            return (made + made.detach()) / 2
        return made


def _whole(x: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    return x * torch.where(x == 0, 0.0, made / x).detach()


def _layer_norm(x: torch.Tensor, shape, weight=None, bias=None, eps: float = 1e-5) -> torch.Tensor:
    axes = tuple(range(-len(shape), 0))
    centred = x - x.mean(axes, keepdim=True)
    made = centred * (centred.square().mean(axes, keepdim=True) + eps).rsqrt().detach()
    made = made if weight is None else made * weight
    return made if bias is None else made + bias


@contextlib.contextmanager
def relevance_rules(module: torch.nn.Module) -> Iterator[None]:
    """A block in which derivatives of the module by its input follow the rules; its attention has to be eager."""
    with _constant(module), _write_out(module), Rules():
        yield


@contextlib.contextmanager
def _write_out(module: torch.nn.Module) -> Iterator[None]:
    """Functions of a cell that transformers writes out in several operations, such as GPT-2's, by the rule of one."""
    parts = [part for part in module.modules() if type(part).__module__ == "transformers.activations"]
    hooks = [part.register_forward_hook(lambda _, given, made: _whole(given[0], made)) for part in parts]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextlib.contextmanager
def _constant(module: torch.nn.Module) -> Iterator[None]:
    """Parameters without derivatives, so that what has one comes from the input."""
    asked = [parameter for parameter in module.parameters() if parameter.requires_grad]
    try:
        for parameter in asked:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in asked:
            parameter.requires_grad_(True)


@halving
def attention_rollout(game: Game, inputs: np.ndarray) -> tuple[np.ndarray, int]:
    """How much of each feature flows by attention into the token that is read, of any class; scores (n, d) ≥ 0."""
    model = game.model
    if inputs.ndim != 2 or not hasattr(model.module, "attentions"):
        raise reject(
            f"attention_rollout: '{model.architecture}' has no attention; give a text classifier of transformers, a "
            "network of tokens with the method attentions(ids), or choose another method"
        )
    of_cells = np.zeros(inputs.shape)
    # Attention is a square a head and layer; that of a row has no more numbers than this.
    config = getattr(getattr(model.module, "model", None), "config", None)
    squares = getattr(config, "num_hidden_layers", 1) * getattr(config, "num_attention_heads", 1)
    rows = rows_of_a_pass((squares, inputs.shape[1], inputs.shape[1]), model)
    with evaluation_mode(model.module), torch.no_grad():
        for start in range(0, len(inputs), rows):
            flow = read_by(model.module.attentions(tensor(model, inputs[start : start + rows])))
            of_cells[start : start + rows, : flow.shape[1]] = flow.cpu().numpy()
    return pool(of_cells, game.features), 1


def rollout(layers: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return how much of token j is in token i, (n, t, t), of the attention (n, heads, t, t) of all layers (eq. 1)."""
    identity = torch.eye(layers[0].shape[-1], dtype=torch.float64, device=layers[0].device)
    whole = identity
    for layer in layers:
        mixed = layer.double().mean(1) + identity
        whole = mixed / mixed.sum(-1, keepdim=True) @ whole
    return whole


def read_by(layers: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the rollout's row (n, t) of the token that is read: the first, or under causal attention the last."""
    whole = rollout(layers)
    ahead = sum(layer[:, :, 0, 1:].sum() for layer in layers)
    place = torch.zeros(len(whole), dtype=torch.long, device=whole.device)
    if ahead == 0:
        attended = layers[0].amax((1, 2)) > 0
        place = (attended * torch.arange(attended.shape[1], device=attended.device)).amax(1)
    return whole[torch.arange(len(whole), device=whole.device), place]
