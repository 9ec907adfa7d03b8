"""A generated answer explained by the parts of its prompt: `shapeline.explain_generation`, and its result."""

import functools
import html
import itertools
import os
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from shapeline.api import drawing, formatting
from shapeline.api.choice import (
    AUTO,
    check_entry,
    check_method,
    check_spending,
    choose_method,
    is_auto,
    parse_stopping_rule,
)
from shapeline.api.explanation import LEVEL
from shapeline.designs.design import check_choice, check_integer, count_evaluations
from shapeline.errors import ShapelineError, format_count, name_type, nearest, reported_extras
from shapeline.generation import estimates, game
from shapeline.generation.game import Encoder, PromptGame, Removal
from shapeline.generation.prompts import REMOVALS, WHERE, Prompt, as_list, build_prompt
from shapeline.methods.registry import DEFAULT_BUDGET
from shapeline.methods.settings import MethodSettings, parse
from shapeline.metrics.provenance import TOLERANCE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from shapeline.report.elements import HTML

KINDS = ("bars", "tokens", "text")
ROWS, WIDE = 12, 60  # parts that are printed, and characters of one
PLACEHOLDER = "..."
# By names of `Explanation` and of shap.
EQUIVALENTS = {
    **dict.fromkeys(("feature_names", "data"), "parts"),
    **dict.fromkeys(("base_values", "expected_value"), "value_empty"),
    **dict.fromkeys(("save", "summary", "to_csv", "to_shap"), "to_frame(), and to_html(path) for a page"),
    "shap_values": "scores",
}
EVALUATIONS = 32


@dataclass(repr=False, eq=False, kw_only=True)
class PromptExplanation(estimates.Estimate):
    """Scores of the d parts of a prompt for an answer of T tokens, in nats of log-probability.

    Attributes
    ----------
    parts : tuple of str
        The removable parts of the prompt, d of them.
    answer : str
        The answer that is explained; contrast : the second answer, or None.
    answer_tokens : tuple of str
        What each of the T tokens shows; those of a contrasted answer follow with a minus.
    scores : ndarray of shape (d,)
        A part's contribution to log p(answer); (d, T) of ``value="token"``.
    standard_error : ndarray or None
        Of the shape of `scores`, 0 of exact values; None where the method gives none.
    tokens : ndarray of shape (d, T), or None
        Contributions to each answer token, from the same evaluations; rows add up to `scores`. None where the method
        gives none: ``value="token"`` asks gradient methods for them.
    value_full, value_empty : float
        The value with all parts and with none.
    method, evaluations, seconds
        How the scores were computed; `evaluations` are coalitions. warning : where an error target was not reached.
    masks, values : ndarray of shape (K, d) and (K, T)
        The evaluated coalitions and the log-probabilities of the tokens.
    game : PromptGame
        ``game.values(masks)`` evaluates further coalitions (K, d).
    """

    parts: tuple[str, ...]
    answer: str
    answer_tokens: tuple[str, ...]
    game: PromptGame
    contrast: str | None = None
    removal: str = "delete"
    value: str = "sum"
    is_own_answer: bool = False

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def totals(self) -> np.ndarray:
        """Scores (d,) of the whole answer, also of ``value="token"``."""
        return self.scores if self.scores.ndim == 1 else self.scores.sum(axis=1)

    @property
    def half_widths(self) -> np.ndarray | None:
        """Half-widths (d,) of 95 % intervals of the scores; None where unknown."""
        if self.standard_error is None or self.standard_error.ndim == 2 or np.isnan(self.standard_error).all():
            return None
        return LEVEL * self.standard_error

    @property
    def shown_half_widths(self) -> np.ndarray | None:
        """Half-widths in figures; None of exact values too."""
        return None if self.half_widths is None or not self.half_widths.any() else self.half_widths

    def top(self, count: int = 3) -> list[str]:
        """Return the parts with the largest scores, the largest first."""
        return [self.parts[index] for index in np.argsort(-self.totals, kind="stable")[:count]]

    def to_frame(self) -> pd.DataFrame:
        """Return a row per part: part, score and half, the half-width of its 95 % interval (NaN where unknown)."""
        half = np.full(len(self), np.nan) if self.half_widths is None else self.half_widths
        return pd.DataFrame({"part": self.parts, "score": self.totals, "half": half})

    def tokens_frame(self) -> pd.DataFrame:
        """Return the contributions to each answer token: a row per part, a column per token."""
        parts = pd.Index(self.parts, name="part")
        return pd.DataFrame(self._list_token_scores(), parts, list(self.answer_tokens))

    def plot(self, kind: str | None = None) -> "Figure | HTML":
        """Return a figure: "bars" of the parts with 95 % intervals (default), "tokens", a heat map of parts by answer
        tokens (default of ``value="token"``), or "text", the coloured parts."""
        from shapeline.report.figures import explanations, games

        kind = ("tokens" if self.scores.ndim == 2 else "bars") if kind is None else kind
        if kind not in KINDS:
            raise ShapelineError(f"plot: unknown kind '{kind}'.{nearest(kind, KINDS)}")
        names, half = [_shorten(part) for part in self.parts], self.shown_half_widths
        if kind == "tokens":
            return drawing.add_png(games.heat_map(names, self.answer_tokens, self._list_token_scores()))
        if kind == "text":
            shown = [(self._headline(), self.parts, self.totals, half, None)]
            return explanations.colour_words(shown, what="the answer", feature="part")
        ends, across = (self.value_empty, self.value_full), f"score ({'no unit' if self._is_unitless else self.unit})"
        return drawing.add_png(explanations.bars(names, self.totals, half, ends, self._headline(), across))

    def __repr__(self) -> str:
        own = " (the model's own)" if self.is_own_answer else ""
        parts = format_count(len(self), "part")
        unitless = ", scores without a unit" * self._is_unitless
        lines = [f"{type(self).__name__}: {parts} by {self.method}, {self.evaluations} evaluations{unitless}"]
        lines += [f"warning: {self.warning}"] if self.warning else []
        lines.append(f"answer{own}: {_shorten(self.answer, 100)}")
        if self.contrast is not None:
            lines.append(f"against: {_shorten(self.contrast, 100)}")
        lines.append(f"{self.unit}: {self.value_full:.4g} with all parts, {self.value_empty:.4g} without")
        half, scores = self.half_widths, formatting.round_noise(np.append(self.totals, self.value_full))[:-1]
        order = np.argsort(-np.abs(scores), kind="stable")
        for index in order[:ROWS]:
            within = "" if half is None or not half[index] else f" ± {half[index]:.2g}"
            lines.append(f"  {f'{scores[index]:+.4g}{within}':<18}  {_shorten(self.parts[index])}")
        if len(order) > ROWS:
            lines.append(f"  and {len(order) - ROWS} parts with smaller scores")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<div>{self._explore(links=False)}</div>"

    def to_html(self, path: str | Path | None = None) -> str | None:
        """Return a page with the interactive explorer of parts by answer tokens, or write it to a file."""
        return drawing.save_page("Explanation of an answer", self._explore(links=True), path)

    def _explore(self, links: bool) -> str:
        from shapeline.api import plots

        head = f"<pre>{html.escape(repr(self).partition(chr(10) + '  ')[0])}</pre>"
        return head + plots.explore_prompt(self, self.unit, self.plot("text")._repr_html_(), links)

    def _list_token_scores(self) -> np.ndarray:
        if self.tokens is None:
            raise ShapelineError(f"tokens: {self.method} gave no scores of answer tokens; see value='token'.")
        return self.tokens

    @property
    def unit(self) -> str:
        """What the scores add up to, in words."""
        exceeds = self.contrast is None and (self.values > TOLERANCE).any()  # no log-probability does
        if self.value == "function" or exceeds:
            return "value of the function"
        each = f"{'mean ' * (self.value == 'mean')}log p"
        against = "" if self.contrast is None else f" - {each}(other answer)"
        return f"{each}(answer){against}, nats"

    @property
    def _is_unitless(self) -> bool:
        return self.method in estimates.UNITLESS_METHODS

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError with the equivalent of a name of `Explanation` or of shap."""
        remedy = f"; use {EQUIVALENTS[name]}" if name in EQUIVALENTS else ""
        raise AttributeError(f"{type(self).__name__} has no attribute '{name}'{remedy}")

    def _headline(self) -> str:
        against = "" if self.contrast is None else f" against {_shorten(self.contrast, 40)}"
        return f"{_shorten(self.answer, 80)}{against}"


def _shorten(text: str, most: int = WIDE) -> str:
    """Return the beginning of a text, on one line."""
    return textwrap.shorten(" ".join(text.split()) or repr(text), most, placeholder=" ...")


@dataclass(frozen=True)
class _Call:
    """The settings of a call, equal for every prompt."""

    model: Any
    tokenizer: Any
    features: object
    evaluations: int
    budget: float | dict | None
    method: str
    removal: Removal
    value: str
    template: str | None
    chat: bool
    max_tokens: int
    seed: int
    reuse: bool | None
    parameters: Mapping[str, object]


@reported_extras(WHERE)
def explain_generation(
    model: object,
    prompt: str | Sequence,
    tokenizer: object = None,
    context: object = None,
    features: object = "sentence",
    evaluations: int | None = None,
    target: str | Sequence[str] | None = None,
    method: str = AUTO,
    removal: str = "delete",
    value: str | Callable = "sum",
    *,
    budget: float | dict | None = None,
    contrast: str | Sequence[str] | None = None,
    placeholder: str | None = None,
    template: str | None = None,
    chat: bool | None = None,
    max_tokens: int = 64,
    seed: int = 0,
    reuse: bool | None = None,
    **parameters: object,
) -> PromptExplanation | list[PromptExplanation]:
    """Explain which parts of a prompt made a language model give an answer.

    Parts are removed in coalitions, and the value of a coalition is the log-probability of the answer, in nats.
    The question, system messages and the chat template stay.

    Parameters
    ----------
    model : model, path or callable
        A causal or sequence-to-sequence model of transformers, its pipeline, a local folder of `save_pretrained`, or a
        function from a list of prompts to log-probabilities (n,) or (n, T).
    prompt : str, list of messages, or list of prompts
        The question, or the text itself without a context; chat messages are ``{"role": ..., "content": ...}``, whose
        content is a text or a list of texts, as ``[{"type": "text", "text": ...}]``.
    tokenizer : tokenizer, optional
        That of the model; a folder and a pipeline have their own.
    context : str or list of str, optional
        Passages that the parts are cut from. A list of them (or of lists) for a list of prompts.
    features : {"sentence", "passage", "word", "message"} or list of (start, end)
        The parts: of the context, else of the messages before the question, else of the prompt.
    evaluations : int, optional
        Coalitions that are evaluated; 32 by default.
    target : str, optional
        The answer to explain; by default the model's own greedy answer.
    method : str
        "auto" (exact Shapley values where 2^parts is at most `evaluations`, else "gp_shapley"), "leave_one_out",
        "random", a method of coalitions of the registry, "partition" or "h_shap" along passages and sentences,
        "gradient_x_input", "integrated_gradients", "attn_lrp", "attention_rollout", or "peer_captum_llm"; `parameters`
        are its own.
    removal : {"delete", "placeholder", "mask"}
        Whether a removed part is deleted, replaced by `placeholder` ("..." by default), or not attended to.
    value : {"sum", "mean", "token"} or callable
        The log-probability of the answer, its mean per token, or that of each token (scores of shape (d, T)). Or a
        function from the texts that the model generates without the removed parts to numbers (n,).
    budget : float or dict, optional
        In place of `evaluations`: a multiple of the number of parts, or an error target of the answer's scores as in
        `shapeline.explain`: ``{"error": 0.5}`` (nats), ``{"error": "5%"}`` or ``{"top": 3}``, with "max_budget" beside
        it.
    contrast : str, optional
        A second answer: the value is log p(target) - log p(contrast).
    template : str, optional
        How context and question are joined, with ``{context}`` and ``{question}``.
    chat : bool, optional
        Whether the prompt goes through the tokenizer's chat template; by default where it has one.
    max_tokens : int
        Tokens of the model's own answer at most.
    seed : int
        Seed of sampled methods.
    reuse : bool, optional
        Whether key-value caches of shared prefixes are reused; by default where that saves tokens.

    Returns
    -------
    PromptExplanation or list of PromptExplanation
        One, or one per prompt of a list.

    Raises
    ------
    ShapelineError
        Where an input is wrong, or the prompt exceeds the context window; one line.

    Examples
    --------
    >>> import shapeline
    >>> def log_probability(prompts):  # in place of a language model
    ...     return [-1.0 if "tower" in prompt else -3.0 for prompt in prompts]
    >>> context = ["The tower is old. It rains."]
    >>> shapeline.explain_generation(log_probability, "Who built it?", context=context, target="Mara")
    PromptExplanation: 2 parts by shapley, 4 evaluations
    answer: Mara
    log p(answer), nats: -1 with all parts, -3 without
      +2                  The tower is old.
      +0                  It rains.
    """
    check_spending(WHERE, budget, evaluations)
    model, tokenizer = _open(model, tokenizer)
    evaluations = EVALUATIONS if evaluations is None else evaluations
    _check_choices(removal, value, evaluations, max_tokens, seed, model)
    by_size = is_auto(method, WHERE)
    if budget is not None or by_size:
        check_entry("gp_shapley", parameters if by_size else {}, DEFAULT_BUDGET if budget is None else budget, WHERE)
    chat = bool(getattr(tokenizer, "chat_template", None)) if chat is None else chat
    removed = _read_removal(removal, placeholder)
    features = "sentence" if features is None else features
    about = (features, evaluations, budget, method, removed, value, template, chat, max_tokens, seed, reuse, parameters)
    call = _Call(model, tokenizer, *about)
    several = as_list(prompt)
    if several and not isinstance(several[0], Mapping):
        pairs = formatting.count_steps("prompts", _pair_arguments(several, context, target, contrast))
        return list(itertools.starmap(functools.partial(_explain, call), pairs))  # no frame of its own for warnings
    return _explain(call, prompt, context, target, contrast)


def _pair_arguments(prompts: Sequence, context: object, target: object, contrast: object) -> list[tuple]:
    """Return prompt, context, target and contrast per prompt. Raises ShapelineError."""
    count = len(prompts)
    given = {"context": context, "target": target, "contrast": contrast}
    for name, one in given.items():
        if one is None or (isinstance(one, str) and name != "context"):
            given[name] = [one] * count
            continue
        given[name] = as_list(one) or []
        if len(given[name]) != count:
            raise ShapelineError(f"{WHERE}: {name} is no list of {count}; give one per prompt.")
    return list(zip(prompts, *given.values(), strict=True))


def _open(model: object, tokenizer: object) -> tuple[object, object]:
    """Return the model as a LanguageModel, or unchanged if it is a function; and its tokenizer."""
    if hasattr(model, "tokenizer") and hasattr(model, "model"):  # a pipeline
        model, tokenizer = model.model, tokenizer or model.tokenizer
    if tokenizer is not None and isinstance(tokenizer, str | Sequence | Mapping):
        remedy = "give that of the model, and other arguments by name, as context="
        raise ShapelineError(f"{WHERE}: tokenizer is {name_type(tokenizer)}; {remedy}.")
    if callable(model) and not hasattr(model, "parameters"):
        return model, tokenizer
    from shapeline.generation import language_models

    if isinstance(model, str | os.PathLike):
        opened, saved_tokenizer = language_models.load(model)
        tokenizer = tokenizer or saved_tokenizer
    else:
        opened = language_models.LanguageModel.of(model)
    if tokenizer is None:
        raise ShapelineError(f"{WHERE}: the model has no tokenizer; give tokenizer=.")
    if not callable(tokenizer) or not hasattr(tokenizer, "decode"):
        raise ShapelineError(f"{WHERE}: tokenizer is {name_type(tokenizer)}; give a tokenizer of transformers.")
    return opened, tokenizer


def _check_choices(removal: str, value: str, evaluations: int, max_tokens: int, seed: int, model: object) -> None:
    """Raise ShapelineError for an invalid choice."""
    values = (*estimates.VALUES, value) if callable(value) else estimates.VALUES
    for name, chosen, choices in (("removal", removal, REMOVALS), ("value", value, values)):
        check_choice(WHERE, name, chosen, choices)
    for name, number, least in (("evaluations", evaluations, 1), ("max_tokens", max_tokens, 1), ("seed", seed, 0)):
        check_integer(WHERE, name, number, least)
    if callable(value) and (removal == "mask" or not hasattr(model, "seq2seq")):
        raise ShapelineError(f"{WHERE}: a function of generated texts needs a model and no mask; use removal='delete'.")
    if removal == "mask" and not hasattr(model, "seq2seq"):
        raise ShapelineError(f"{WHERE}: a function reads no attention mask; choose removal='delete'.")


def _read_removal(removal: str, placeholder: object) -> Removal:
    """Return the removal of parts. Raises ShapelineError for a placeholder that is no text or that nothing reads."""
    if not isinstance(placeholder, str | None):
        raise ShapelineError(f"{WHERE}: placeholder is {name_type(placeholder)}; give a text.")
    if placeholder is not None and removal != "placeholder":
        raise ShapelineError(
            f"{WHERE}: placeholder is not used by removal={removal!r}; set removal='placeholder', or leave it out."
        )
    text = PLACEHOLDER if placeholder is None else placeholder
    return Removal(removal, text if removal == "placeholder" else None)


def _explain(
    call: _Call, prompt: object, context: object, target: str | None, contrast: str | None
) -> PromptExplanation:
    built = build_prompt(prompt, context, call.features, call.template, call.chat)
    if not built.d:
        raise ShapelineError(f"{WHERE}: the prompt has no parts by features={call.features!r}; give a context.")
    if built.d == 1 and isinstance(call.features, str):
        smaller = "give (start, end) pairs of characters" if call.features == "word" else "choose smaller parts"
        warnings.warn(f"{WHERE}: the prompt is one part by features='{call.features}'; {smaller}.", stacklevel=4)
    rule = parse_stopping_rule(call.budget)
    spent = call.evaluations if call.budget is None or rule else count_evaluations(call.budget, built.d)
    method = parse_method(call.method, call.parameters, spent, built.d, rule)
    build = _build_function_game if not hasattr(call.model, "seq2seq") else _build_model_game
    played, answer = build(call, built, target, contrast)
    value = "function" if callable(call.value) else call.value
    if value == "mean":  # of each answer over its own tokens
        counts = [np.sum(played.weights == weight) for weight in played.weights]
        played.weights = played.weights / counts
    estimate = estimates.estimate(played, method, spent, value, call.seed)
    return PromptExplanation(
        parts=built.parts,
        answer=answer,
        answer_tokens=tuple(played.signed_tokens),
        game=played,
        contrast=contrast,
        removal=call.removal.kind,
        value=value,
        is_own_answer=target is None and hasattr(call.model, "seq2seq"),
        **vars(estimate),
    )


def parse_method(
    name: str, parameters: Mapping[str, object], evaluations: int, d: int, rule: dict | None = None
) -> MethodSettings:
    """Return a method by name or alias on d parts, with its parameters; rule: of adaptive stopping, or evaluations."""
    check_method(name, WHERE, (AUTO, *estimates.ALIASES))
    name = estimates.ALIASES.get(name, name)
    name = choose_method(d, evaluations, 0 if rule else evaluations) if name == AUTO else name
    budget = rule or evaluations / d
    return parse(check_entry(name, dict(parameters), budget, WHERE), [budget])


def _build_model_game(call: _Call, built: Prompt, target: str | None, contrast: str | None) -> tuple[PromptGame, str]:
    encoder = game.open_encoder(call.model, call.tokenizer, call.chat, built)
    answers = [game.find_answer(call.model, encoder, built, target, call.removal, call.max_tokens)]
    if callable(call.value):
        if target is not None or contrast is not None:
            raise ShapelineError(
                f"{WHERE}: a function of generated texts has no target; leave target and contrast out."
            )
        source = game.build_text_source(call.model, encoder, built, call.value, call.removal, call.max_tokens)
        return PromptGame(built, ("value",), np.ones(1), source), answers[0].text
    answers += [] if contrast is None else [encoder.encode_answer(contrast, built.render(np.ones(built.d, bool)))]
    return game.build_game(call.model, encoder, built, answers, call.removal, call.reuse), answers[0].text


def _build_function_game(
    call: _Call, built: Prompt, target: str | None, contrast: str | None
) -> tuple[PromptGame, str]:
    if contrast is not None:
        raise ShapelineError(f"{WHERE}: a function has one answer; let it return the difference in place of contrast=.")
    encoder = Encoder(call.tokenizer, call.chat) if call.tokenizer is not None and call.chat else None
    source: Callable = game.build_function_source(call.model, encoder, built, call.removal)
    ends = np.array([[True] * built.d, [False] * built.d])
    first = source(ends[:1])
    count = first.shape[1]
    tokens = (target or "answer",) if count == 1 else tuple(f"token {number}" for number in range(1, count + 1))
    played = PromptGame(built, tokens, np.ones(count), source)
    beside = played.values(ends)[:1]  # both values are needed by every method, so that the check costs one evaluation
    if not np.allclose(beside, first, TOLERANCE, TOLERANCE):
        again = source(ends[:1])
        if np.allclose(again, first, TOLERANCE, TOLERANCE):
            problem = f"{first.sum():.6g} for a prompt alone and {beside.sum():.6g} beside another prompt"
            remedy = "correct its padding or attention mask, or evaluate prompts one by one"
        else:
            problem = f"{first.sum():.6g} and then {again.sum():.6g} for one prompt"
            remedy = "set its temperature to 0, or its seed"
        warnings.warn(f"{WHERE}: the function returned {problem}; {remedy}.", stacklevel=5)
    return played, target or "the answer of the function"
