"""AttnLRP of a torch transformer: layer-wise relevance propagation as one pass back with other derivatives."""

import contextlib
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from shapeline.errors import unsupported
from shapeline.games.game import Game
from shapeline.gradients.cells import check, halving, pooled, rows_of_a_pass
from shapeline.gradients.torch_passes import differentiable, points, tensor

# Functions of a cell alone that are 0 at 0: what comes out is told from what goes in whole.
OF_A_CELL = {"gelu", "relu", "silu", "tanh", "leaky_relu", "elu", "mish", "hardswish", "relu6"}
PRODUCTS = {"matmul", "bmm", "baddbmm", "mul", "multiply", "__matmul__", "__mul__", "__rmul__"}
SCALES = {"rsqrt", "reciprocal"}  # by which a normalisation multiplies
FUSED = {"scaled_dot_product_attention", "multi_head_attention_forward"}


@halving
def attn_lrp(question: Game, inputs: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, int]:
    """Relevance of each feature's tokens for the target's logit (Achtibat et al. 2024), signed.

    inputs (n, length) of tokens, targets (n,) -> scores (n, d), evaluations per instance (one pass, forward and back):
    embedding times derivative where each operation goes back by its rule (section 3.3; `Rules`). The model's module has
    embed, from_embedding and `plainly()`, in which attention is products and a softmax of its own. Raises
    ShapelineError for another model.
    """
    model = question.model
    if not check(model, inputs, "torch") or not hasattr(model.module, "plainly"):
        raise unsupported(
            f"attn_lrp: '{model.architecture}' is no transformer of tokens; give a text classifier of transformers, a "
            "network with the method plainly(), or choose another method"
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
    return pooled(of_cells, question.features), 1


class Rules(TorchFunctionMode):
    """Operations whose numbers are as ever and whose derivatives are the rules of relevance over the input.

    Of a function of a cell the share goes through whole (identity rule); of a product of two parts of the input each
    has half (equation 15); a normalisation's scale is a constant (proposition 3.4); softmax keeps its derivative
    (proposition 3.1); sums and products with weights are linear.
    """

    def __torch_function__(self, function: Callable, types, args=(), kwargs=None):
        name, kwargs = getattr(function, "__name__", ""), kwargs or {}
        if name in FUSED:
            raise unsupported("attn_lrp: attention as one fused call has no rule; choose another method")
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
    with _constant(module), _written_out(module), Rules():
        yield


@contextlib.contextmanager
def _written_out(module: torch.nn.Module) -> Iterator[None]:
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
