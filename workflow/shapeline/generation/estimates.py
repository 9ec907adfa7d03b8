"""Scores of a prompt's parts by a method of the registry, and their quality.

Methods work on the text's tree (sentences in passages in messages) too, and score each answer token from the same
evaluations. Quality: error to exact values, and the metrics of context attribution.
"""

import importlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shapeline.attribution.explanation import GRADIENT_EVALUATIONS
from shapeline.attribution.sampling import Answer, Batch, MergedDesigns, Rounds, merge_designs
from shapeline.designs.design import Design, check_integer
from shapeline.errors import ShapelineError, describe_missing, is_installed
from shapeline.generation.game import PromptGame
from shapeline.generation.prompts import WHERE, Prompt, split_text
from shapeline.gradients.methods import measure_completeness
from shapeline.hierarchy import exploration, methods
from shapeline.methods.external import sample
from shapeline.methods.registry import METHODS
from shapeline.methods.settings import MethodSettings
from shapeline.metrics.error import correlate, match_scale, rank_means
from shapeline.scores import rank_features

Values = Callable[[np.ndarray], np.ndarray]  # of coalitions (K, d), (K,)
LEVELS = ("sentence", "passage")  # by decreasing depth; borders between messages are above both
MAX_EXACT_PARTS = 12
TIE_TOLERANCE = 1e-12
ROUNDING = 1e-6  # rounding of single precision, relative to the range of values and to the largest score
UNITLESS_METHODS = ("h_shap", "attention_rollout", "attn_lrp")  # methods whose scores are not in nats


def find_border_levels(prompt: Prompt) -> np.ndarray:
    """Return the level (d - 1,) of the border behind each part but the last: 0 inside a sentence, then by LEVELS."""
    units = [_number_units(prompt, number) for number in range(len(prompt.contents))]
    order = np.concatenate(units)
    if len(order) < prompt.d:  # messages that are parts
        return np.full(prompt.d - 1, len(LEVELS) + 1)
    order = order[np.argsort(order[:, 0], kind="stable"), 1:]
    differs = order[1:] != order[:-1]
    return (differs * np.arange(1, differs.shape[1] + 1)).max(axis=1, initial=0)


def _number_units(prompt: Prompt, number: int) -> np.ndarray:
    """Return a row per part of a message: numbers of the part, its sentence, its passage and the message."""
    content = prompt.contents[number]
    text, index, rows = content.render(np.ones(prompt.d, bool)), 0, []
    starts = [np.array([start for start, _ in split_text(text, level, WHERE)]) for level in LEVELS]
    for piece, player in zip(content.pieces, content.players, strict=True):
        index = text.index(piece, index)
        if player >= 0:
            rows.append([player, *(np.searchsorted(level, index, "right") for level in starts), number])
        index += len(piece)
    return np.array(rows, np.int64).reshape(-1, len(LEVELS) + 2)


def cut(nodes: np.ndarray, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return both parts (m, 4) of nodes (m, 4), one-row rectangles, split at the highest border nearest the middle."""
    left, right = nodes[:, 2:3], nodes[:, 3:]
    borders = np.arange(1, len(levels) + 1)
    inside = (borders > left) & (borders < right)
    closeness = -np.abs(2 * borders - left - right)
    rank = np.where(inside, levels * (4 * len(levels) + 4) + closeness, np.iinfo(np.int64).min)
    index = borders[rank.argmax(axis=1)]
    first, second = nodes.copy(), nodes.copy()
    first[:, 3], second[:, 2] = index, index
    return first, second


def partition(values: Values, prompt: Prompt, evaluations: int) -> tuple[np.ndarray, int]:
    """Return Owen values (d,) on the text's tree, refined as by shap's PartitionExplainer, and evaluations."""
    levels = find_border_levels(prompt)
    result = methods.partition(
        _build_evaluator(values, prompt.d), 1, (prompt.d,), evaluations, cut=lambda nodes: cut(nodes, levels)
    )
    return result.scores[0, 0], int(result.evaluations[0])


def h_shap(values: Values, prompt: Prompt, threshold: float, mode: str, leaf_score: str) -> tuple[np.ndarray, int]:
    """Return hierarchical Shapley values (d,) on the text's tree (Teneggi et al. 2021), and the evaluations."""
    levels = find_border_levels(prompt)

    def split(nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        is_leaf = nodes[:, 3] - nodes[:, 2] < 2
        children = np.zeros((len(nodes), 2, 4), np.int64)
        children[:, 0] = nodes
        if not is_leaf.all():
            children[~is_leaf] = np.stack(cut(nodes[~is_leaf], levels), axis=1)
        return children, np.where(is_leaf, 1, 2)

    root, sides = np.array([[0, 1, 0, prompt.d]]), (1, prompt.d)
    evaluate = _build_evaluator(values, prompt.d)
    explored = exploration.explore_trees(evaluate, root, split, sides, threshold, mode, leaf_score, ROUNDING)
    return explored.maps(0)[0][0], int(explored.evaluations[0])


def _build_evaluator(values: Values, d: int) -> exploration.Evaluate:
    def evaluate(instances: np.ndarray, rectangles: np.ndarray) -> np.ndarray:
        still, columns = np.zeros((len(instances), 2), np.int64), np.arange(d)
        masks = exploration.encode(rectangles, still, columns[:1], columns)[1] != 0
        return values(masks)

    return evaluate


CAPTUM_METHOD = "peer_captum_llm"
# The result of a method of SCORERS: scores (d,), or (T, d) per token where requested, and evaluations.
Scores = tuple[np.ndarray, int] | tuple[np.ndarray, int, str | None]  # the evaluations, and a warning


def _score_hierarchically(scores: Callable[..., Scores]) -> Callable[..., Scores]:
    def score(game: Any, parameters: Mapping, evaluations: int, seed: int, by_token: bool) -> Scores:
        if by_token:
            raise ShapelineError(f"{WHERE}: hierarchical methods give no scores of tokens; choose value='sum'.")
        return scores(game, evaluations, **parameters)

    return score


def _explain_h_shap(
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
        passes = len(source.answers) * GRADIENT_EVALUATIONS
        if name == "integrated_gradients":
            parameters = {"steps": max(2, evaluations // passes), **parameters}
        unit = np.abs(game.weights).max()  # factored out, so that the mean of an answer is exactly that of its sum
        weights = (np.diag(game.weights) if by_token else game.weights[None]) / unit
        scores = getattr(functions, name)(source, weights, **parameters)
        cost = len(source.answers) if name == "attention_rollout" else passes * parameters.get("steps", 1)
        warning = None
        if name == "integrated_gradients":
            gained = functions.measure_path(source, weights).sum(keepdims=True)
            [warning] = measure_completeness(scores.sum(0, keepdims=True), gained)["warning"]
        return unit * (scores if by_token else scores[0]), cost, warning

    return score


def _explain_captum(game: Any, parameters: Mapping, evaluations: int, seed: int, by_token: bool) -> Scores:
    if not is_installed("captum"):
        raise ShapelineError(f"{CAPTUM_METHOD}: {describe_missing('captum')}")
    captum_llm = importlib.import_module("shapeline.third_party.captum_methods")  # which imports captum
    scores, count = captum_llm.explain(
        _find_model(game, CAPTUM_METHOD), evaluations=evaluations, seed=seed, by_token=by_token, **parameters
    )
    return scores * game.weights[0], count  # equal weights, of one answer


def _find_model(game: Any, name: str) -> Any:
    """Return the ModelSource of a game. Raises ShapelineError."""
    if not hasattr(game.source, "language_model"):
        raise ShapelineError(f"{WHERE}: {name} needs a model of transformers and its answer; choose another method.")
    return game.source


TOKEN_METHODS = ("gradient_x_input", "integrated_gradients", "attention_rollout", "attn_lrp")
SCORERS: dict[str, Callable[..., Scores]] = {
    "h_shap": _score_hierarchically(_explain_h_shap),
    "partition": _score_hierarchically(_partition),
    CAPTUM_METHOD: _explain_captum,
    **{name: _score_tokens(name) for name in TOKEN_METHODS},
}


VALUES = ("sum", "mean", "token")
ALIASES = {"leave_one_out": "occlusion", "exact": "shapley"}
MODEL_METHODS = (*TOKEN_METHODS, CAPTUM_METHOD)  # methods that evaluate the model directly


# From values of the answer (K,) and its tokens (T, K) to scores (d,) and (T, d), each with standard errors or None.
Reader = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray | None, np.ndarray, np.ndarray | None]]


@dataclass(eq=False)
class Estimate:
    """The scores (d,), or (d, T) per token, of a prompt; standard_error of their shape or None; tokens (d, T) or None;
    values of the empty and the full coalition; the coalitions evaluated and their values; seconds; warning: for a
    stopping rule that was not met."""

    method: str
    scores: np.ndarray
    standard_error: np.ndarray | None
    tokens: np.ndarray | None
    value_full: float
    value_empty: float
    masks: np.ndarray
    values: np.ndarray
    evaluations: int
    seconds: float
    warning: str | None = None


def estimate(game: PromptGame, method: MethodSettings, evaluations: int, value: str = "sum", seed: int = 0) -> Estimate:
    """Return the scores of a method. value: "token" for scores of tokens; evaluations: without a stopping rule.

    seconds: of the method, plus its evaluations at the game's mean rate, so that they do not depend on coalitions that
    the game has evaluated before.
    """
    began, seconds_before = time.perf_counter(), game.seconds
    read = (
        _estimate_by_scorer if method.name in SCORERS else _estimate_in_rounds if method.until else _estimate_by_design
    )
    (scores, error, tokens, token_error), count, masks, *warning = read(game, method, evaluations, value, seed)
    by_token = _compute_values(game, masks.masks)
    if value == "token":
        scores = tokens = tokens.T
        error = None if token_error is None else token_error.T
    elif tokens is not None:
        tokens = reconcile(scores, tokens, by_token)
    total = by_token.sum(axis=1)
    ends = float(total[masks.full]), float(total[masks.empty])
    method_seconds = time.perf_counter() - began - (game.seconds - seconds_before)
    seconds = method_seconds + (count * game.seconds / len(game.known) if method.name not in MODEL_METHODS else 0.0)
    return Estimate(method.name, scores, error, tokens, *ends, masks.masks, by_token, count, seconds, *warning)


def _compute_values(game: PromptGame, masks: np.ndarray) -> np.ndarray:
    """Return values (K, T) of the answer's tokens, which sum to the value."""
    return game.values(masks) * game.weights


def _estimate_by_design(game: PromptGame, method: MethodSettings, evaluations: int, value: str, seed: int) -> tuple:
    """Return the reader's result, the evaluations and the coalitions of a method that is a design."""
    read, count, masks = _plan(method, game.d, evaluations, seed)
    by_token = _compute_values(game, masks.masks)[:count]
    return read(by_token.sum(axis=1), by_token.T), count, masks


def _estimate_in_rounds(game: PromptGame, method: MethodSettings, _: int, value: str, seed: int) -> tuple:
    """Return the same, in rounds until the stopping rule holds for the answer's scores, and a warning otherwise.

    The standard error of these scores includes the earlier rounds.
    """
    last: list[tuple[Design, MergedDesigns]] = []

    def select(evaluations: int) -> Batch:
        design = method.build((game.d,), evaluations / game.d, seed)
        masks = merge_designs([design], game.d)
        last[:] = [(design, masks)]

        def read(values: np.ndarray) -> list[Answer]:
            scores, error = _read_plainly(method, design, values[:, : design.evaluations])
            return [Answer(scores, design.evaluations, {}, error)]

        return Batch(masks.masks[None], masks.full, masks.empty, masks.distinct, read)

    batches = [lambda positions, evaluations=evaluations: select(evaluations) for evaluations in method.rounds(game.d)]
    rounds = Rounds(np.arange(1), batches, method.until, method.method.convergence_rate, method.method.min_rounds)
    answer = rounds.explain(lambda rows, masks: _compute_values(game, masks[0]).sum(axis=1)[None])[0]
    [(design, masks)] = last
    by_token = _compute_values(game, masks.masks)[: design.evaluations]
    scores, _, tokens, token_error = _build_reader(method, design)(by_token.sum(axis=1), by_token.T)
    result = scores, answer.standard_error[0], tokens, token_error
    return result, design.evaluations, masks, answer.details["warning"][0]


def _estimate_by_scorer(game: PromptGame, method: MethodSettings, evaluations: int, value: str, seed: int) -> tuple:
    """Return the same for a method that chooses coalitions adaptively, or has none."""
    scores, count, *warning = SCORERS[method.name](game, method.arguments, evaluations, seed, value == "token")
    ends = merge_designs([], game.d)
    result = (None, None, scores, None) if value == "token" else (scores, None, None, None)
    return result, count, ends, *warning


def _plan(method: MethodSettings, d: int, evaluations: int, seed: int) -> tuple[Reader, int, MergedDesigns]:
    """Return the reader of scores, the number of coalitions, and the coalitions followed by the empty and full ones."""
    if method.name == "random":
        constant = sample(d, [0], seed)[0][0]

        def read(total: np.ndarray, tokens: np.ndarray) -> tuple:
            return constant, None, np.tile(constant / len(tokens), (len(tokens), 1)), None

        return read, 0, merge_designs([], d)
    if not method.method.is_design:
        others = ", ".join(sorted(SCORERS))
        raise ShapelineError(
            f"{WHERE}: {method.name} does not explain prompts; choose a method of coalitions, or {others}."
        )
    design = method.build((d,), evaluations / d, seed)
    return _build_reader(method, design), design.evaluations, merge_designs([design], d)


def reconcile(scores: np.ndarray, tokens: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return token scores (d, T) that sum to the answer's scores, from separate fits (T, d) of each token.

    Linear estimators satisfy this. For methods that fit each game separately, such as a lasso, the difference is
    divided among the tokens by the variance of their values (K, T), as conditioning on the sum does; the sum of each
    token's scores does not change.
    """
    variance = values.var(axis=0)
    total = variance.sum()
    share = variance / total if total > 0 else np.full(len(tokens), 1 / max(len(tokens), 1))
    return tokens.T + np.outer(scores - tokens.sum(axis=0), share)


def _read_plainly(method: MethodSettings, design: Design, values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Return scores (m, d) of values (m, K) of a design's coalitions, row by row, and their standard errors."""
    if method.method.exact:
        scores = design.attribute(values)
        return scores, np.zeros(scores.shape)
    if method.read_stack:
        return method.read_stack(_stack_masks(design, values), values)[:2]
    return method.read(design, values)[:2] if method.read else (design.attribute(values), None)


def _stack_masks(design: Design, values: np.ndarray) -> np.ndarray:
    """Return the masks (m, K, d) for values (m, K) of one design."""
    return np.broadcast_to(design.masks, (len(values), *design.masks.shape))


def _build_reader(method: MethodSettings, design: Design) -> Reader:
    """Return the reader of a design's values."""

    def read(total: np.ndarray, tokens: np.ndarray) -> tuple:
        scores, error = _read_plainly(method, design, total[None])
        if method.read_outputs:
            by_token, token_error = method.read_outputs(_stack_masks(design, tokens), tokens)[:2]  # without pairs
        else:
            by_token, token_error = _read_plainly(method, design, tokens)
        return scores[0], None if error is None else error[0], by_token, token_error

    return read


def compute_rmse(scores: np.ndarray, exact: np.ndarray) -> float:
    """Return the root mean square error of scores (d,) in nats, 0 where it is rounding of double precision."""
    rmse = float(np.sqrt(np.mean((np.asarray(scores) - exact) ** 2)))
    return rmse if rmse > 1e-9 * np.abs(exact).max() else 0.0


def top_k_drop(game: PromptGame, scores: np.ndarray, k: int = 3) -> float:
    """Return the decrease of the value when the k parts of largest score are removed (Cohen-Wang et al. 2024)."""
    k = check_integer("top_k_drop", "k", k, 1)
    masks = np.ones((2, game.d), bool)
    masks[1, np.argsort(-np.asarray(scores), kind="stable")[:k]] = False
    full, removed = game.totals(masks)
    return float(full - removed)


def datamodeling_score(game: PromptGame, scores: np.ndarray, samples: int = 64, seed: int = 0) -> float:
    """Return the linear datamodeling score: Spearman's correlation of the sum of the kept parts' scores with the value,
    over fresh coalitions that keep each part with probability 1/2 (Cohen-Wang et al. 2024); NaN where either is
    constant."""
    samples = check_integer("datamodeling_score", "samples", samples, 2)
    masks = np.random.default_rng([seed, 1]).random((samples, game.d)) < 0.5
    [predicted], [actual] = (rank_means(each[None]) for each in (masks @ np.asarray(scores, float), game.totals(masks)))
    if np.ptp(predicted) < TIE_TOLERANCE or np.ptp(actual) < TIE_TOLERANCE:
        return float("nan")
    return float(np.corrcoef(predicted, actual)[0, 1])


def compute_curve(game: PromptGame, scores: np.ndarray, kind: str = "deletion") -> np.ndarray:
    """Return the values (d + 1,) as parts are removed ("deletion") or inserted ("insertion") by falling score."""
    if kind not in ("deletion", "insertion"):
        raise ShapelineError(f"measures: kind is {kind!r}; give 'deletion' or 'insertion'.")
    rank = np.argsort(np.argsort(-np.asarray(scores), kind="stable"))
    inserted = rank < np.arange(game.d + 1)[:, None]
    return game.totals(inserted if kind == "insertion" else ~inserted)


def measure_citation(scores: np.ndarray, support: Iterable[int], k: int | None = None) -> tuple[float, float]:
    """Return precision and recall of the k parts of largest positive score; k: by default as many as support."""
    scores = np.asarray(scores)
    supporting = set(support) if isinstance(support, Iterable) else set()
    if not supporting or not supporting <= set(range(len(scores))):
        raise ShapelineError(
            f"citation: support is {support!r:.60}; give a list of numbers of parts, 0 to {len(scores) - 1}."
        )
    best = np.argsort(-scores, kind="stable")[: len(supporting) if k is None else check_integer("citation", "k", k, 1)]
    cited = {int(part) for part in best if scores[part] > 0}
    hits = len(cited & supporting)
    return (hits / len(cited) if cited else 0.0), hits / len(supporting)


def measure(
    explanation: Any, exact: Any = None, support: Iterable[int] | None = None, seed: int = 0
) -> dict[str, float]:
    """Return every measure of a PromptExplanation that can be computed, by name.

    exact: the explanation by exact values, for `rmse`, `spearman` and `coverage` (of 95 % intervals), of methods whose
    scores are in nats. support: numbers of the supporting parts, for `precision` and `recall`. `deletion_auc` and
    `insertion_auc` are areas of the change of the value from the full prompt. Coalitions are evaluated where the game
    does not know them: 32 fresh ones of `datamodeling` and those of the curves.
    """
    game, scores = explanation.game, explanation.totals
    steps = np.linspace(0, 1, game.d + 1)
    falling = -rank_features(np.asarray(scores)[None], [0], seed)[0]  # equal scores in random order, not the prompt's
    deletion, insertion = (compute_curve(game, falling, kind) for kind in ("deletion", "insertion"))
    result = {
        "deletion_auc": float(np.trapezoid(deletion - deletion[0], steps)),
        "insertion_auc": float(np.trapezoid(insertion - insertion[-1], steps)),
        "top_k_drop": top_k_drop(game, falling, min(3, game.d)),
        "datamodeling": datamodeling_score(game, scores, 32, seed),
    }
    if exact is not None:
        result["spearman"] = float(correlate(*(rank_means(values[None]) for values in (scores, exact.totals)))[0])
        if explanation.method not in UNITLESS_METHODS:
            is_random = explanation.method == "random"  # its scores have no scale
            result["rmse"] = compute_rmse(match_scale(scores, exact.totals) if is_random else scores, exact.totals)
        half = explanation.half_widths
        of_pairs = getattr(METHODS.get(explanation.method), "pairs", None)  # the intervals are those of main effects
        if half is not None and explanation.evaluations < 2**game.d and not of_pairs:
            inside = np.abs(scores - exact.totals) <= half + ROUNDING * np.abs(exact.totals).max()
            result["coverage"] = float(np.mean(inside))
    if support is not None:
        result["precision"], result["recall"] = measure_citation(scores, support)
    return result
