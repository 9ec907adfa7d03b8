"""AttnLRP: the paper's rule of every operation, conservation, unchanged outputs, and refusals."""

import contextlib

import numpy as np
import pytest
import torch
from scipy.special import erf, softmax
from torch import nn

import shapeline
from shapeline.errors import ShapelineError
from shapeline.games.features import Features
from shapeline.games.game import Game
from shapeline.gradients import torch_gradients
from shapeline.models.classifier import Classifier
from tests.fixtures import transformer

WORDS = Features("word", (3,), np.array([-1, 0, 1, 1, 2], np.int32), ("a", "lovely", "room"))
IDS = np.array([[2, 5, 6, 7, 3], [2, 8, 6, 5, 3]], np.int32)
WIDE = 6


class Layer(nn.Module):
    """One layer of attention and one of cells, without biases, in double precision; the first token is read."""

    def __init__(self, attends: bool = True):
        super().__init__()
        self.table, self.attends = nn.Embedding(10, WIDE), attends
        self.q, self.k, self.v, self.up, self.down, self.pool = (nn.Linear(WIDE, WIDE, bias=False) for _ in range(6))
        self.norm, self.head = nn.LayerNorm(WIDE, elementwise_affine=False), nn.Linear(WIDE, 2, bias=False)
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, WIDE))
        self.double()

    def forward(self, ids):
        return self.from_embedding(self.embed(ids), ids)

    def embed(self, ids):
        return self.table(ids.long())

    def from_embedding(self, x, ids):
        attention = torch.matmul(self.q(x), self.k(x).transpose(1, 2)).div(WIDE**0.5).softmax(-1)
        mixed = self.norm(x + torch.matmul(attention, self.v(x))) if self.attends else x + self.v(x) * self.scale
        after = mixed + self.down(nn.functional.gelu(self.up(mixed)))
        return self.head(torch.tanh(self.pool(after.sum(1) if not self.attends else after[:, 0])))

    plainly = contextlib.nullcontext


def made(attends: bool = True) -> Layer:
    torch.manual_seed(0)
    return Layer(attends).eval()


def linear(weight: np.ndarray, x: np.ndarray, relevance: np.ndarray) -> np.ndarray:
    """R_i = sum_j x_i w_ji R_j / z_j."""
    return x * ((relevance / (x @ weight.T)) @ weight)


def by_rules(net: Layer, x: np.ndarray, target: int) -> np.ndarray:
    """The relevance (tokens, e) of one input, operation by operation from the logit back, as the paper has them."""
    w = {name: getattr(net, name).weight.detach().numpy() for name in ("q", "k", "v", "up", "down", "pool", "head")}
    q, k, v = (x @ w[name].T for name in "qkv")
    s = q @ k.T / WIDE**0.5
    a = softmax(s, axis=1)
    o = a @ v
    c = x + o - (x + o).mean(1, keepdims=True)
    h = c / np.sqrt((c**2).mean(1, keepdims=True) + net.norm.eps)
    up = h @ w["up"].T
    gelu = up * (1 + erf(up / 2**0.5)) / 2
    down = gelu @ w["down"].T
    pooled = (h + down)[:1] @ w["pool"].T
    logits = np.tanh(pooled) @ w["head"].T
    r = np.where(np.arange(2) == target, logits, 0)
    r = linear(w["head"], np.tanh(pooled), r)  # tanh: identity
    first = linear(w["pool"], (h + down)[:1], r)
    r = np.zeros_like(x)
    r[0] = first[0]
    share = r / (h + down)
    r = h * share + linear(w["up"], h, linear(w["down"], gelu, down * share))  # gelu: identity
    r = (x + o) * (r / c - (r / c).mean(1, keepdims=True))  # the norm's scale is a constant, its mean is linear
    to_o = o * r / (x + o)
    total = x * r / (x + o)
    to_v = v * (a.T @ (to_o / o)) / 2
    to_a = a * ((to_o / o) @ v.T) / 2
    to_s = s * (to_a - a * to_a.sum(1, keepdims=True))
    to_q, to_k = q * (to_s / s @ k) / WIDE**0.5 / 2, k * ((to_s / s).T @ q) / WIDE**0.5 / 2
    for name, relevance in (("v", to_v), ("q", to_q), ("k", to_k)):
        total = total + linear(w[name], x, relevance)
    return total


def test_every_operation_follows_the_rule_of_the_paper():
    net = made()
    targets = np.array([1, 0])
    scores, evaluations = torch_gradients.attn_lrp(Game(Classifier("torch", "net", net, 2), None, WORDS), IDS, targets)
    for row, target, found in zip(IDS, targets, scores, strict=True):
        tokens = by_rules(net, net.table.weight.detach().numpy()[row], target).sum(1)
        np.testing.assert_allclose(found, [tokens[1], tokens[2:4].sum(), tokens[4]], rtol=1e-8)
    assert evaluations == 1
    assert np.abs(scores).max() > 0.01


def test_without_products_of_the_input_relevance_is_conserved():
    net = made(attends=False)
    whole = Features("word", (5,), np.arange(5, dtype=np.int32))
    targets = np.array([0, 1])
    scores, _ = torch_gradients.attn_lrp(Game(Classifier("torch", "net", net, 2), None, whole), IDS, targets)
    logits = net(torch.from_numpy(IDS)).detach().numpy()
    np.testing.assert_allclose(scores.sum(1), logits[[0, 1], targets], rtol=1e-9)
    moved, _ = torch_gradients.attn_lrp(Game(Classifier("torch", "net", net, 2), None, whole), IDS, 1 - targets)
    assert np.abs(moved - scores).max() > 0.01


def test_a_gated_product_is_shared_and_a_norm_of_squares_is_a_constant():
    x = torch.tensor([[1.0, -2.0, 3.0]], dtype=torch.float64, requires_grad=True)
    scale = torch.tensor([0.5, 2.0, 1.0], dtype=torch.float64)
    with torch_gradients.Rules():
        normed = scale * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True)))
        y = (nn.functional.silu(normed) * normed).sum()
    (slope,) = torch.autograd.grad(y, x)
    plain = scale * x.detach() / x.detach().pow(2).mean().sqrt()
    # Each side of the product has half of it, and of silu the share goes through whole.
    np.testing.assert_allclose((x * slope).detach(), nn.functional.silu(plain) * plain, rtol=1e-12)
    assert y.item() == pytest.approx((nn.functional.silu(plain) * plain).sum().item(), rel=1e-12)


def test_outputs_and_the_model_s_own_settings_stay():
    net, model = made(), Classifier("torch", "net", made(), 2)
    net.head.weight.requires_grad_(False)
    with torch_gradients.Rules():
        under = net(torch.from_numpy(IDS))
    torch.testing.assert_close(under, made()(torch.from_numpy(IDS)), rtol=1e-12, atol=1e-12)
    model.module.head.weight.requires_grad_(False)
    torch_gradients.attn_lrp(Game(model, None, WORDS), IDS, np.array([0, 1]))
    assert not model.module.head.weight.requires_grad and model.module.q.weight.requires_grad
    assert model.module.q.weight.grad is None


class Fused(Layer):
    def from_embedding(self, x, ids):
        return self.head(nn.functional.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x))[:, 0])


class Bag(nn.Module):
    """A module of tokens and embeddings without a declaration of its attention."""

    embed, from_embedding = Layer.embed, Layer.from_embedding

    def forward(self, ids):
        return ids[:, :2].double()


def test_operations_without_a_rule_are_refused_in_one_line():
    torch.manual_seed(0)
    targets = np.array([0, 1])
    with pytest.raises(ShapelineError, match="one fused call has no rule"):
        torch_gradients.attn_lrp(Game(Classifier("torch", "fused", Fused().eval(), 2), None, WORDS), IDS, targets)
    with pytest.raises(ShapelineError, match="'bag' is not a transformer of tokens; give"):
        torch_gradients.attn_lrp(Game(Classifier("torch", "bag", Bag(), 2), None, WORDS), IDS, targets)


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_relevance_of_a_transformer_follows_the_class_and_restores_its_attention(kind):
    pytest.importorskip("transformers")
    cut = transformer.tokenizer()
    model = transformer.bert(layers=2) if kind == "bert" else transformer.gpt2(cut)
    texts, usual = ["A good, goodly film isn't ending!", "bad films"], model.config._attn_implementation
    both = [shapeline.explain(model, texts, "attn_lrp", tokenizer=cut, target=number) for number in (0, 1)]
    assert model.config._attn_implementation == usual
    assert np.abs(both[0].scores[0] - both[1].scores[0]).max() > 0
    alone = shapeline.explain(model, texts[1:], "attn_lrp", tokenizer=cut, target=1)
    np.testing.assert_allclose(alone.scores[0][:2], both[1].scores[1][:2], rtol=1e-3, atol=1e-6)


def test_a_function_that_transformers_writes_out_has_the_rule_of_one():
    activations = pytest.importorskip("transformers.activations")
    part = nn.Sequential(activations.NewGELUActivation())
    x = torch.tensor([-1.0, 0.5, 2.0], dtype=torch.float64, requires_grad=True)
    with torch_gradients._fuse_activations(part), torch_gradients.Rules():
        y = part(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(x * slope, y, rtol=1e-12, atol=0)
    torch.testing.assert_close(y, part(x), rtol=1e-12, atol=0)
