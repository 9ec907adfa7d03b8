"""Scores of a prompt's parts by a method of the registry, and of each answer token from the same evaluations."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shapeline.attribution.sampling import Answer, Batch, Rounds, Together, merge_designs
from shapeline.designs.design import Design
from shapeline.errors import ShapelineError
from shapeline.generation.game import PromptGame
from shapeline.generation.part_scores import CAPTUM, OF_TOKENS, SCORERS
from shapeline.generation.prompts import WHERE
from shapeline.methods.external import random
from shapeline.methods.settings import MethodSettings

VALUES = ("sum", "mean", "token")
ALIASES = {"leave_one_out": "occlusion", "exact": "shapley"}
OF_MODEL = (*OF_TOKENS, CAPTUM)  # methods that evaluate the model themselves


# From values of the answer (K,) and of its tokens (T, K) to scores (d,) and (T, d), each with standard errors or None.
Reader = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray | None, np.ndarray, np.ndarray | None]]


@dataclass(frozen=True, eq=False)
class Estimate:
    """Scores (d,), or (d, T) of each token; standard_error of their shape or None; tokens (d, T), None where the method
    gives none; values of both ends; the coalitions evaluated and their values; seconds; warning: where a stopping rule
    was not met."""

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
    """Return the scores of a method. value: one of VALUES; evaluations: their number, unless the method has a stopping
    rule.

    seconds: of the method itself, and of its evaluations at the mean rate of the game's; so that they do not depend on
    the coalitions that the game had evaluated before.
    """
    began, spent = time.perf_counter(), game.seconds
    read = (
        _estimate_by_scorer if method.name in SCORERS else _estimate_in_rounds if method.until else _estimate_by_design
    )
    (scores, error, tokens, spread), count, masks, *warning = read(game, method, evaluations, value, seed)
    by_token = _values(game, masks.masks, value)
    if value == "token":
        scores = tokens = tokens.T
        error = None if spread is None else spread.T
    elif tokens is not None:
        tokens = reconcile(scores, tokens, by_token)
    total = by_token.sum(axis=1)
    ends = float(total[masks.full]), float(total[masks.empty])
    own = time.perf_counter() - began - (game.seconds - spent)
    took = own + (count * game.seconds / len(game.known) if method.name not in OF_MODEL else 0.0)
    return Estimate(method.name, scores, error, tokens, *ends, masks.masks, by_token, count, took, *warning)


def _values(game: PromptGame, masks: np.ndarray, value: str) -> np.ndarray:
    """Values (K, T) of the answer's tokens as they add up to the value."""
    by_token = game.values(masks) * game.signs
    return by_token / max(np.sum(game.signs > 0), 1) if value == "mean" else by_token


def _estimate_by_design(game: PromptGame, method: MethodSettings, evaluations: int, value: str, seed: int) -> tuple:
    """What a reader returns, the evaluations, and the coalitions, of a method that is a design."""
    read, count, masks = _plan(method, game.d, evaluations, seed)
    by_token = _values(game, masks.masks, value)[:count]
    return read(by_token.sum(axis=1), by_token.T), count, masks


def _estimate_in_rounds(game: PromptGame, method: MethodSettings, _: int, value: str, seed: int) -> tuple:
    """The same in rounds until the stopping rule holds for the scores of the answer, and the warning if it never does.

    The standard error of these counts the earlier rounds.
    """
    last: list[tuple[Design, Together]] = []

    def ask(spent: int) -> Batch:
        design = method.build((game.d,), spent / game.d, seed)
        masks = merge_designs([design], game.d)
        last[:] = [(design, masks)]

        def read(values: np.ndarray) -> list[Answer]:
            scores, error = _read_plainly(method, design, values[:, : design.evaluations])
            return [Answer(scores, design.evaluations, {}, error)]

        return Batch(masks.masks[None], masks.full, masks.empty, masks.distinct, read)

    asks = [lambda places, spent=spent: ask(spent) for spent in method.rounds(game.d)]
    rounds = Rounds(np.arange(1), asks, method.until, method.method.falls, method.method.rounds)
    answer = rounds.explain(lambda rows, masks: _values(game, masks[0], value).sum(axis=1)[None])[0]
    [(design, masks)] = last
    by_token = _values(game, masks.masks, value)[: design.evaluations]
    scores, _, tokens, spread = _reader(method, design)(by_token.sum(axis=1), by_token.T)
    result = scores, answer.standard_error[0], tokens, spread
    return result, design.evaluations, masks, answer.details["warning"][0]


def _estimate_by_scorer(game: PromptGame, method: MethodSettings, evaluations: int, value: str, seed: int) -> tuple:
    """The same of a method that chooses coalitions as it goes on, or has none."""
    name = method.name
    scores, count = SCORERS[name](game, method.arguments, evaluations, seed, value == "token")
    unit = max(np.sum(game.signs > 0), 1) if value == "mean" and name not in ("h_shap", "attention_rollout") else 1
    ends = merge_designs([Design(np.zeros((0, game.d), bool), np.zeros((game.d, 0)))], game.d)
    result = (None, None, scores, None) if value == "token" else (scores / unit, None, None, None)
    return result, count, ends


def _plan(method: MethodSettings, d: int, evaluations: int, seed: int) -> tuple[Reader, int, Together]:
    """How scores are read out, how many coalitions the method evaluates, and these with both ends after them."""
    if method.name == "random":
        alone = random(d, [0], seed)[0][0]

        def read(total: np.ndarray, tokens: np.ndarray) -> tuple:
            return alone, None, np.tile(alone / len(tokens), (len(tokens), 1)), None

        return read, 0, merge_designs([Design(np.zeros((0, d), bool), np.zeros((d, 0)))], d)
    if not method.method.is_design:
        others = ", ".join(sorted(SCORERS))
        raise ShapelineError(
            f"{WHERE}: {method.name} does not explain prompts; choose a method of coalitions, or {others}."
        )
    design = method.build((d,), evaluations / d, seed)
    return _reader(method, design), design.evaluations, merge_designs([design], d)


def reconcile(scores: np.ndarray, tokens: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Scores (d, T) of the tokens that add up to those of the answer, from fits (T, d) of each token alone.

    A linear readout adds up by itself. Where a method fits each game by its own, as a lasso does, what is lacking is
    shared among the tokens by the variance of their values (K, T), as conditioning on the sum does; the scores of a
    token still add up to what they did.
    """
    variance = values.var(axis=0)
    total = variance.sum()
    share = variance / total if total > 0 else np.full(len(tokens), 1 / max(len(tokens), 1))
    return tokens.T + np.outer(scores - tokens.sum(axis=0), share)


def _read_plainly(method: MethodSettings, design: Design, values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Scores (m, d) of values (m, K) of a design's coalitions, each row by itself, and their standard errors."""
    if method.method.exact:
        scores = design.attribute(values)
        return scores, np.zeros(scores.shape)
    if method.read_stack:
        return method.read_stack(_stack(design, values), values)[:2]
    return method.read(design, values)[:2] if method.read else (design.attribute(values), None)


def _stack(design: Design, values: np.ndarray) -> np.ndarray:
    """The masks (m, K, d) of values (m, K) of one design."""
    return np.broadcast_to(design.masks, (len(values), *design.masks.shape))


def _reader(method: MethodSettings, design: Design) -> Reader:
    """The reader of a design's values."""

    def read(total: np.ndarray, tokens: np.ndarray) -> tuple:
        scores, error = _read_plainly(method, design, total[None])
        if method.read_outputs:
            by_token, spread = method.read_outputs(_stack(design, tokens), tokens)[:2]  # without pairs
        else:
            by_token, spread = _read_plainly(method, design, tokens)
        return scores[0], None if error is None else error[0], by_token, spread

    return read
