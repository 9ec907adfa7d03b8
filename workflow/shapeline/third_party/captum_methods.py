"""captum's explainers of functions, whose input is described in `black_box`."""

from collections.abc import Callable

import numpy as np
import torch
from captum.attr import FeatureAblation, KernelShap, LLMAttribution, ShapleyValueSampling, TextTemplateInput

from shapeline.errors import ShapelineError
from shapeline.generation.game import ModelSource
from shapeline.generation.prompts import WHERE
from shapeline.methods.parameters import kernel_minimum, permutation_minimum
from shapeline.models.torch_models import set_seed
from shapeline.third_party.black_box import BATCH_SIZE, InstanceGame, peer


@peer(kernel_minimum)
def kernel_shap(v: InstanceGame, seed: int, budget: int) -> np.ndarray:
    """Run captum's KernelShap with BATCH_SIZE perturbations per call; scores (d,)."""
    return _explain(KernelShap, v, seed, n_samples=budget, perturbations_per_eval=BATCH_SIZE)


@peer(permutation_minimum)
def shapley_sampling(v: InstanceGame, seed: int, budget: int) -> np.ndarray:
    """Run captum's ShapleyValueSampling with as many permutations as the budget allows."""
    permutations = (budget - 2) // (v.d - 1)
    return _explain(ShapleyValueSampling, v, seed, n_samples=permutations, perturbations_per_eval=BATCH_SIZE)


def _explain(explainer: Callable, v: InstanceGame, seed: int, **settings: int) -> np.ndarray:
    def forward(masks: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(v(masks.numpy()))

    with set_seed(seed):
        scores = explainer(forward).attribute(torch.ones(1, v.d), baselines=torch.zeros(1, v.d), **settings)
    return scores[0].double().numpy()


def explain(
    source: ModelSource, evaluations: int, seed: int, by_token: bool = False, explainer: str = "shapley_sampling"
) -> tuple[np.ndarray, int]:
    """Return captum's scores (d,) of the answer's log-probability or (T, d) of its tokens, and the evaluations.

    The answer is evaluated in one pass, because token by token captum 0.9 gives other values with transformers 5.
    """
    prompt, model = source.prompt, source.language_model
    if model.seq2seq or len(source.answers) > 1 or source.removal.kind == "mask":
        raise ShapelineError(
            f"{WHERE}: captum's LLMAttribution takes a causal model, one answer and no mask; choose another method."
        )
    permutations = max(1, (evaluations - 1) // prompt.d)
    method, settings, count = {
        "shapley_sampling": (ShapleyValueSampling, {"n_samples": permutations}, permutations * prompt.d + 1),
        "feature_ablation": (FeatureAblation, {}, prompt.d + 1),
        "kernel_shap": (KernelShap, {"n_samples": evaluations}, evaluations),
    }[explainer]

    def render(*parts: str) -> str:
        kept = np.array([bool(part) for part in parts])
        return source.encoder.texts([prompt.render(kept, source.removal.placeholder)])[0]

    given = TextTemplateInput(render, list(prompt.parts), [""] * prompt.d)
    answer = torch.tensor(source.answers[0].ids)
    settings["forward_in_tokens"] = False
    with model.evaluating(), set_seed(seed):
        found = LLMAttribution(method(model.model), source.encoder.tokenizer).attribute(
            given, target=answer, **settings
        )
    if by_token and found.token_attr is None:
        raise ShapelineError(f"{WHERE}: captum's {explainer} gives no scores of tokens; choose value='sum'.")
    return (found.token_attr if by_token else found.seq_attr).double().cpu().numpy(), count
