"""Methods that choose their own coalitions or none: hierarchical, of gradients and attention, and captum's."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from shapeline.errors import ShapelineError, describe_missing, is_installed
from shapeline.generation.prompts import WHERE, Prompt, split_text
from shapeline.hierarchy import exploration, forests

Values = Callable[[np.ndarray], np.ndarray]  # of coalitions (K, d), (K,)
LEVELS = ("sentence", "passage")  # by falling depth; a border between messages is above both
ROUNDING = 1e-6  # of the range of values: equal coalitions of a float32 model differ by so much


def border_levels(prompt: Prompt) -> np.ndarray:
    """Return the level (d - 1,) of the border behind each part but the last: 0 inside a sentence, then by LEVELS."""
    units = [_units(prompt, number) for number in range(len(prompt.contents))]
    order = np.concatenate(units)
    if len(order) < prompt.d:  # messages that are parts themselves
        return np.full(prompt.d - 1, len(LEVELS) + 1)
    order = order[np.argsort(order[:, 0], kind="stable"), 1:]
    differs = order[1:] != order[:-1]
    return (differs * np.arange(1, differs.shape[1] + 1)).max(axis=1, initial=0)


def _units(prompt: Prompt, number: int) -> np.ndarray:
    """A row per part of a message: its number, its sentence, its passage and the message."""
    content = prompt.contents[number]
    text, place, rows = content.render(np.ones(prompt.d, bool)), 0, []
    starts = [np.array([start for start, _ in split_text(text, level, WHERE)]) for level in LEVELS]
    for piece, player in zip(content.pieces, content.players, strict=True):
        place = text.index(piece, place)
        if player >= 0:
            rows.append([player, *(np.searchsorted(level, place, "right") for level in starts), number])
        place += len(piece)
    return np.array(rows, np.int64).reshape(-1, len(LEVELS) + 2)


def cut(nodes: np.ndarray, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the two parts (m, 4) of nodes (m, 4), rectangles of a row, at their highest border, the middlemost."""
    left, right = nodes[:, 2:3], nodes[:, 3:]
    borders = np.arange(1, len(levels) + 1)
    inside = (borders > left) & (borders < right)
    near = -np.abs(2 * borders - left - right)
    rank = np.where(inside, levels * (4 * len(levels) + 4) + near, np.iinfo(np.int64).min)
    place = borders[rank.argmax(axis=1)]
    first, second = nodes.copy(), nodes.copy()
    first[:, 3], second[:, 2] = place, place
    return first, second


def partition(values: Values, prompt: Prompt, evaluations: int) -> tuple[np.ndarray, int]:
    """Return Owen values (d,) on the text's tree, refined as by shap's PartitionExplainer, and evaluations."""
    levels = border_levels(prompt)
    result = forests.partition(
        _evaluator(values, prompt.d), 1, (prompt.d,), evaluations, cut=lambda nodes: cut(nodes, levels)
    )
    return result.scores[0, 0], int(result.evaluations[0])


def h_shap(values: Values, prompt: Prompt, threshold: float, mode: str, leaf_score: str) -> tuple[np.ndarray, int]:
    """Return hierarchical Shapley values (d,) on the text's tree (Teneggi et al. 2021), and the evaluations."""
    levels = border_levels(prompt)

    def split(nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        whole = nodes[:, 3] - nodes[:, 2] < 2
        children = np.zeros((len(nodes), 2, 4), np.int64)
        children[:, 0] = nodes
        if not whole.all():
            children[~whole] = np.stack(cut(nodes[~whole], levels), axis=1)
        return children, np.where(whole, 1, 2)

    root, sides = np.array([[0, 1, 0, prompt.d]]), (1, prompt.d)
    evaluate = _evaluator(values, prompt.d)
    explored = exploration.explore_trees(evaluate, root, split, sides, threshold, mode, leaf_score, ROUNDING)
    return explored.maps(0)[0][0], int(explored.evaluations[0])


def _evaluator(values: Values, d: int) -> exploration.Evaluate:
    def evaluate(instances: np.ndarray, rectangles: np.ndarray) -> np.ndarray:
        still, columns = np.zeros((len(instances), 2), np.int64), np.arange(d)
        masks = exploration.inside(rectangles, still, columns[:1], columns)[1] != 0
        return values(masks)

    return evaluate


CAPTUM = "peer_captum_llm"
# Of a method of SCORERS: scores (d,), or (T, d) of each token where these are asked for, and its evaluations.
Scores = tuple[np.ndarray, int]


def _hierarchical(scores: Callable[..., Scores]) -> Callable[..., Scores]:
    def score(game: Any, parameters: Mapping, evaluations: int, seed: int, by_token: bool) -> Scores:
        if by_token:
            raise ShapelineError(f"{WHERE}: hierarchical methods give no scores of tokens; choose value='sum'.")
        return scores(game, evaluations, **parameters)

    return score


def _h_shap(
    game: Any, _: int, threshold: float = 0.0, mode: str = "absolute", leaf_score: str = "uniform", **others: object
) -> Scores:
    if others:
        raise ShapelineError(f"{WHERE}: h_shap on a prompt has no {next(iter(others))}; leave it out.")
    return h_shap(game.totals, game.prompt, threshold, mode, leaf_score)


def _partition(game: Any, spent: int, evaluations: int | None = None) -> Scores:
    return partition(game.totals, game.prompt, max(2, spent) if evaluations is None else evaluations)


def _score_tokens(name: str) -> Callable[..., Scores]:
    def score(game: Any, parameters: Mapping, evaluations: int, seed: int, by_token: bool) -> Scores:
        source, functions = _find_model(game, name), importlib.import_module("shapeline.generation.token_scores")
        passes = len(source.answers) * functions.PASSES
        if name == "integrated_gradients":
            parameters = {"steps": max(2, evaluations // passes), **parameters}
        weights = np.diag(game.signs) if by_token else game.signs[None]
        scores = getattr(functions, name)(source, weights, **parameters)
        cost = len(source.answers) if name == "attention_rollout" else passes * parameters.get("steps", 1)
        return (scores if by_token else scores[0]), cost

    return score


def _captum(game: Any, parameters: Mapping, evaluations: int, seed: int, by_token: bool) -> Scores:
    if not is_installed("captum"):
        raise ShapelineError(f"{CAPTUM}: {describe_missing('captum')}")
    captum_llm = importlib.import_module("shapeline.third_party.captum_methods")  # which imports captum
    return captum_llm.explain(
        _find_model(game, CAPTUM), evaluations=evaluations, seed=seed, by_token=by_token, **parameters
    )


def _find_model(game: Any, name: str) -> Any:
    """The ModelSource of a game."""
    if not hasattr(game.source, "language_model"):
        raise ShapelineError(f"{WHERE}: {name} needs a model of transformers and its answer; choose another method.")
    return game.source


OF_TOKENS = ("gradient_x_input", "integrated_gradients", "attention_rollout", "attn_lrp")
SCORERS: dict[str, Callable[..., Scores]] = {
    "h_shap": _hierarchical(_h_shap),
    "partition": _hierarchical(_partition),
    CAPTUM: _captum,
    **{name: _score_tokens(name) for name in OF_TOKENS},
}
