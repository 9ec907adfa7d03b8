"""Scores of prompt parts from gradients, relevance and attention of a causal model: sums over the tokens of a part."""

import contextlib
from collections.abc import Iterator

import numpy as np
import torch

from shapeline.errors import ShapelineError
from shapeline.generation import prefix_cache
from shapeline.generation.game import Answer, ModelSource
from shapeline.generation.prompts import FIXED, WHERE
from shapeline.gradients.torch_gradients import differentiable, relevance_rules, roll_out
from shapeline.models.transformer_models import eager_attention


def gradient_x_input(source: ModelSource, weights: np.ndarray) -> np.ndarray:
    """Return embedding times gradient of the weighted log-probabilities; weights (k, T) -> (k, d)."""
    return _integrate_path(source, weights, 1)


def integrated_gradients(source: ModelSource, weights: np.ndarray, steps: int) -> np.ndarray:
    """Return gradients integrated over the parts' embeddings from zero (Sundararajan et al. 2017); (k, T) -> (k, d)."""
    return _integrate_path(source, weights, steps)


def measure_path(source: ModelSource, weights: np.ndarray) -> np.ndarray:
    """Return the differences (k,) of the values between the ends of that path, to which exact integrals add up."""
    with source.language_model.evaluating():
        ends = [
            sum(
                _sum_outputs(source, answer, x.masked_fill(prompt[:, None], 0.0)[None] if empty else x[None], own)
                for answer, own, x, prompt in _embed(source, weights)
            )
            for empty in (False, True)
        ]
    return (ends[0] - ends[1]).double().cpu().numpy()


def attn_lrp(source: ModelSource, weights: np.ndarray) -> np.ndarray:
    """Return the relevance of parts for the logits of the answer's tokens (Achtibat et al. 2024); (k, T) -> (k, d)."""
    module = source.language_model.model
    with eager_attention(module):
        return _integrate_path(source, weights, 1, relevance_rules(module), logits=True)


def attention_rollout(source: ModelSource, weights: np.ndarray) -> np.ndarray:
    """Return the attention flow from the parts to the positions that predict the answer's tokens (Abnar & Zuidema
    2020), regardless of the weights' signs; (k, T) -> (k, d)."""
    _check(source)
    flows = []
    module = source.language_model.model
    for answer in source.answers:
        ids = torch.tensor([_join_ids(source, answer)], device=source.language_model.device)
        with eager_attention(module), source.language_model.evaluating():
            layers = module(input_ids=ids, output_attentions=True, use_cache=False).attentions
        if not layers or any(layer is None or layer.shape[-1] != ids.shape[1] for layer in layers):
            raise _refuse(source, "gives no attention of all tokens")
        flows.append(roll_out(layers)[0, -len(answer.ids) :].cpu().numpy())
    width = max(flow.shape[1] for flow in flows)
    joined = np.concatenate([np.pad(flow, ((0, 0), (0, width - flow.shape[1]))) for flow in flows])
    return _pool(source, np.abs(weights) @ joined)


def _integrate_path(
    source: ModelSource,
    weights: np.ndarray,
    steps: int,
    rules: contextlib.AbstractContextManager | None = None,
    logits: bool = False,
) -> np.ndarray:
    """Return embedding times mean gradient along the path from zero; one step is the prompt."""
    _check(source)
    total: np.ndarray | float = 0.0
    positions = np.ones(1) if steps == 1 else (np.arange(steps) + 0.5) / steps
    with differentiable(source.language_model.model), rules or contextlib.nullcontext():
        for answer, token_weights, embedded, prompt in _embed(source, weights):
            for position in positions:
                x = torch.where(prompt[:, None], embedded * position, embedded)[None].requires_grad_()
                sums = _sum_outputs(source, answer, x, token_weights, logits)
                slopes = torch.stack([torch.autograd.grad(one, x, retain_graph=True)[0] for one in sums])
                total = total + _pool(source, (slopes[:, 0] * embedded).sum(-1).double().cpu().numpy())
    return total / len(positions)


def _embed(source: ModelSource, weights: np.ndarray) -> Iterator[tuple]:
    """Yield each answer with its weights (k, T), the embeddings (n, e) of prompt and answer, and which are of parts."""
    model, first = source.language_model, 0
    removable = torch.as_tensor(source.owners[1] != FIXED, device=model.device)
    for answer in source.answers:
        token_weights = torch.as_tensor(weights[:, first : first + len(answer.ids)], device=model.device).float()
        first += len(answer.ids)
        ids = torch.tensor(_join_ids(source, answer), device=model.device)
        prompt = torch.zeros(len(ids), dtype=torch.bool, device=model.device)
        prompt[: len(removable)] = removable
        yield answer, token_weights, model.model.get_input_embeddings()(ids).detach(), prompt


def _sum_outputs(
    source: ModelSource, answer: Answer, x: torch.Tensor, weights: torch.Tensor, logits: bool = False
) -> torch.Tensor:
    """Return k weighted sums of the answer tokens' outputs for embeddings (1, n, e)."""
    arguments = {"inputs_embeds": x, "attention_mask": np.ones((1, x.shape[1]), np.int64)}
    scores = prefix_cache.compute_last_logits(source.language_model, len(answer.ids), **arguments)[0].float()
    scores = scores if logits else torch.log_softmax(scores, dim=-1)
    chosen = scores.gather(1, torch.tensor(answer.ids, device=scores.device)[:, None])[:, 0]
    return weights @ chosen


def _join_ids(source: ModelSource, answer: Answer) -> list[int]:
    """Return ids of the prompt and the answer without its last token."""
    return [*source.owners[0], *answer.ids[:-1]]


def _pool(source: ModelSource, by_token: np.ndarray) -> np.ndarray:
    """Return sums (k, d) over the tokens of each part of numbers (k, n), without those after the prompt."""
    owners = source.owners[1]
    parts = owners[None, :] == np.arange(source.prompt.d)[:, None]
    return by_token[:, : len(owners)] @ parts.T


def _check(source: ModelSource) -> None:
    model = source.language_model
    if model.seq2seq or "inputs_embeds" not in model.inputs:
        raise _refuse(source, "is not a causal model that takes embeddings")


def _refuse(source: ModelSource, reason: str) -> ShapelineError:
    return ShapelineError(f"{WHERE}: '{source.language_model.architecture}' {reason}; choose a method of coalitions.")
