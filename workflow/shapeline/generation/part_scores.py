"""Methods that choose their own coalitions or none: hierarchical, of gradients and attention, and captum's."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from shapeline.errors import ShapelineError, describe_missing, is_installed
from shapeline.generation import part_tree
from shapeline.generation.prompts import WHERE

CAPTUM = "peer_captum_llm"
# Of a method: scores (d,) or (T, d) of each token where these are asked for, and its evaluations.
Scores = tuple[np.ndarray, int]


def score_parts(game: Any, name: str, parameters: Mapping, evaluations: int, seed: int, by_token: bool) -> Scores:
    """Return the scores by a method of SCORERS; ShapelineError where it has none for this game."""
    return SCORERS[name](game, dict(parameters), evaluations, seed, by_token)


def _hierarchical(scores: Callable[[Any, dict, int], Scores]) -> Callable[..., Scores]:
    def score(game: Any, parameters: dict, evaluations: int, seed: int, by_token: bool) -> Scores:
        if by_token:
            raise ShapelineError(f"{WHERE}: hierarchical methods give no scores of tokens; choose value='sum'.")
        return scores(game, parameters, evaluations)

    return score


def _h_shap(game: Any, parameters: dict, evaluations: int) -> Scores:
    if wrong := next((key for key in ("min_size", "shifts") if key in parameters), None):
        raise ShapelineError(f"{WHERE}: h_shap on a prompt has no {wrong}; leave it out.")
    given = [parameters.get(key, usual) for key, usual in H_SHAP.items()]
    return part_tree.h_shap(game.totals, game.prompt, *given)


def _partition(game: Any, parameters: dict, evaluations: int) -> Scores:
    return part_tree.partition(game.totals, game.prompt, parameters.get("evaluations", max(2, evaluations)))


def _score_tokens(name: str) -> Callable[..., Scores]:
    def score(game: Any, parameters: dict, evaluations: int, seed: int, by_token: bool) -> Scores:
        source, functions = _model_of(game, name), importlib.import_module("shapeline.generation.token_scores")
        passes = len(source.answers) * functions.PASSES
        if name == "integrated_gradients":
            parameters.setdefault("steps", max(2, evaluations // passes))
        weights = np.diag(game.signs) if by_token else game.signs[None]
        scores = getattr(functions, name)(source, weights, **parameters)
        cost = len(source.answers) if name == "attention_rollout" else passes * parameters.get("steps", 1)
        return (scores if by_token else scores[0]), cost

    return score


def _captum(game: Any, parameters: dict, evaluations: int, seed: int, by_token: bool) -> Scores:
    if not is_installed("captum"):
        raise ShapelineError(f"{CAPTUM}: {describe_missing('captum')}")
    captum_llm = importlib.import_module("shapeline.third_party.captum_methods")  # which imports captum
    return captum_llm.explain(
        _model_of(game, CAPTUM), evaluations=evaluations, seed=seed, by_token=by_token, **parameters
    )


def _model_of(game: Any, name: str) -> Any:
    """The ModelSource of a game."""
    if not hasattr(game.source, "language_model"):
        raise ShapelineError(f"{WHERE}: {name} needs a model of transformers and its answer; choose another method.")
    return game.source


H_SHAP = {"threshold": 0.0, "mode": "absolute", "leaf_score": "uniform"}
OF_TOKENS = ("gradient_x_input", "integrated_gradients", "attention_rollout", "attn_lrp")
SCORERS: dict[str, Callable[..., Scores]] = {
    "h_shap": _hierarchical(_h_shap),
    "partition": _hierarchical(_partition),
    CAPTUM: _captum,
    **{name: _score_tokens(name) for name in OF_TOKENS},
}
