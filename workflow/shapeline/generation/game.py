"""The game over a prompt's parts: token ids of rendered prompts and answers, and the answer's log-probability."""

import functools
import re
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shapeline.errors import ShapelineError, first_line, format_count, name_type, shorten_name
from shapeline.generation.prompts import FIXED, WHERE, Content, Prompt, Rendered
from shapeline.models.classifier import call, detach


@dataclass(frozen=True)
class Answer:
    """An answer as ids (T,), the text of each, and the decoder's ids before them (of sequence-to-sequence models)."""

    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    text: str
    prefix: tuple[int, ...] = ()


@dataclass(frozen=True)
class Encoder:
    """A tokenizer, and whether the prompt goes through its chat template; seq2seq: the answer has a decoder."""

    tokenizer: Any
    chat: bool
    seq2seq: bool = False

    def texts(self, rendered: Sequence[Rendered]) -> list[str]:
        """Return the texts for the tokenizer: chat messages by its template, texts unchanged."""
        return [prompt if isinstance(prompt, str) else self._apply_template(prompt) for prompt in rendered]

    def encode(self, rendered: Sequence[Rendered]) -> list[list[int]]:
        """Return the token ids of each rendered prompt."""
        texts = self.texts(rendered)
        encoded = self.tokenizer(texts, add_special_tokens=not self.chat, verbose=False)["input_ids"]
        return [self._prepare_ids(list(ids), text) for ids, text in zip(encoded, texts, strict=True)]

    def owners(self, prompt: Prompt) -> tuple[list[int], np.ndarray]:
        """Return the ids of the prompt and the player of each token (FIXED where none): that of its first character."""
        if not getattr(self.tokenizer, "is_fast", False):
            raise ShapelineError(f"{WHERE}: removal='mask' needs a fast tokenizer; choose removal='delete'.")
        rendered = prompt.render(np.ones(prompt.d, bool))
        text = self.texts([rendered])[0]
        players, index = np.full(len(text) + 1, FIXED), 0
        for content, message_player, text_before in zip(
            prompt.contents, prompt.whole or (FIXED,), self._split_template(prompt), strict=True
        ):
            start = text.find(text_before, index)
            if start >= 0 and not text[index:start].strip():
                index = start + len(text_before)  # else the template depends on the messages
            index = _mark_players(players, text, index, content, message_player)
        encoded = self.tokenizer(text, add_special_tokens=not self.chat, return_offsets_mapping=True, verbose=False)
        ids = self._prepare_ids(list(encoded["input_ids"]), text)
        owners = np.full(len(ids), FIXED)
        for token, (start, end) in enumerate(encoded["offset_mapping"][: len(ids)]):
            piece = text[start:end]
            if piece.strip():
                owners[token] = players[start + len(piece) - len(piece.lstrip())]
        return ids, owners

    def _split_template(self, prompt: Prompt) -> list[str]:
        """Return the text of the chat template before each message. Raises ShapelineError where it does not show each
        message once, in order."""
        marks = [f"\ue000{index}\ue001" for index in range(len(prompt.contents))]
        messages = [head | {"content": mark} for head, mark in zip(prompt.heads, marks, strict=False)]
        if not messages:
            return [""]
        text = self._apply_template(messages)
        if re.findall("\ue000\\d+\ue001", text) != marks:
            raise ShapelineError(
                f"{WHERE}: the chat template repeats, moves or leaves out a message; choose removal='delete'."
            )
        return re.split("\ue000\\d+\ue001", text)[:-1]

    def check_texts(self, texts: Sequence[str]) -> None:
        """Raise ShapelineError for a text with a special token, which would be tokenized as one, or invalid Unicode."""
        added = getattr(self.tokenizer, "added_tokens_decoder", {})
        special = {str(token) for token in added.values() if getattr(token, "special", False)}
        special |= set(getattr(self.tokenizer, "all_special_tokens", ()))
        for text in texts:
            if any("\ud800" <= letter <= "\udfff" for letter in text):
                raise ShapelineError(f"{WHERE}: {text[:60]!r} holds a lone surrogate; decode the text as UTF-8.")
            if token := next((name for name in sorted(special) if name and name in text), None):
                raise ShapelineError(
                    f"{WHERE}: {text[:60]!r} holds {token!r}, a special token of the tokenizer; remove it there."
                )

    def check_vocabulary(self, rendered: Rendered, embeddings: int) -> None:
        """Raise ShapelineError for a tokenizer with ids beyond the model's embeddings."""
        largest = max(self.encode([rendered])[0])
        if largest >= embeddings:
            raise ShapelineError(
                f"{WHERE}: the tokenizer gives the token {largest} and the model has {embeddings:,}; give the model's "
                "own tokenizer."
            )

    def encode_answer(self, text: str, prompt: Rendered) -> Answer:
        """Return a given answer as tokens, as they continue the full prompt."""
        if not isinstance(text, str) or not text:
            raise ShapelineError(f"{WHERE}: the answer is {text!r:.60}; give a text that is not empty.")
        self.check_texts([text])
        if self.seq2seq:
            return self.build_answer(list(self.tokenizer(text_target=text, verbose=False)["input_ids"]), text)
        before = self.texts([prompt])[0]
        ids, joined = self.encode([before])[0], self.encode([before + text])[0]
        if joined[: len(ids)] != ids or len(joined) == len(ids):  # a token spans the border
            joined = ids + list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        return self.build_answer(joined[len(ids) :], text)

    def build_answer(self, ids: Sequence[int], text: str | None = None) -> Answer:
        """Return an answer of these ids without the special tokens around it; raise where nothing remains."""
        special = set(self.tokenizer.all_special_ids) - {getattr(self.tokenizer, "unk_token_id", None)}
        inside = [index for index, number in enumerate(ids) if number not in special]
        if not inside:
            problem = "the model's own answer is empty" if text is None else f"the answer {text!r:.40} has no token"
            raise ShapelineError(f"{WHERE}: {problem}; give target='an answer'.")
        prefix, answer_ids = tuple(ids[: inside[0]]), tuple(ids[inside[0] : inside[-1] + 1])
        text = self.tokenizer.decode(answer_ids) if text is None else text
        return Answer(answer_ids, _split_pieces(self.tokenizer, answer_ids), text, prefix if self.seq2seq else ())

    def _apply_template(self, messages: list[dict]) -> str:
        if not getattr(self.tokenizer, "chat_template", None):
            raise ShapelineError(f"{WHERE}: the tokenizer has no chat template; give a text, or set its chat_template.")
        ends = bool(messages) and messages[-1]["role"] == "assistant"
        try:
            return self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=not ends, continue_final_message=ends
            )
        except Exception as error:  # a template may raise anything
            raise ShapelineError(
                f"{WHERE}: the chat template refuses {[message['role'] for message in messages]}: {first_line(error)}; "
                "choose removal='placeholder', or features other than 'message'."
            ) from error

    def _prepare_ids(self, ids: list[int], text: str) -> list[int]:
        """Return ids that an answer can follow: for a decoder without a final token, and at least one."""
        ends = {self.tokenizer.eos_token_id, self.tokenizer.sep_token_id} - {None}
        if not self.seq2seq and not self.chat and ids and ids[-1] in ends:
            if not text.endswith(self.tokenizer.decode(ids[-1:])):
                ids = ids[:-1]
        if ids:
            return ids
        usual = (self.tokenizer.bos_token_id, self.tokenizer.eos_token_id, self.tokenizer.pad_token_id)
        start = next((number for number in usual if number is not None), None)
        if start is None:
            raise ShapelineError(f"{WHERE}: without its parts the prompt has no token; add text that stays.")
        return [start]


def _split_pieces(tokenizer: Any, ids: tuple[int, ...]) -> tuple[str, ...]:
    """Return the text that each token adds."""
    texts = [tokenizer.decode(ids[: index + 1]) for index in range(len(ids))]
    pieces = [
        text[len(before) :] if text.startswith(before) else ""
        for before, text in zip(["", *texts], texts, strict=False)
    ]
    singles = (tokenizer.decode([number]) or str(tokenizer.convert_ids_to_tokens(number)) for number in ids)
    return tuple(piece or single for piece, single in zip(pieces, singles, strict=True))


def _mark_players(players: np.ndarray, text: str, position: int, content: Content, message_player: int) -> int:
    """Write the players of a message's characters, and return the position of the next message."""
    for piece, player in zip(content.pieces, content.players, strict=True):
        start = text.find(piece, position)
        if start < 0:
            raise ShapelineError(f"{WHERE}: the chat template changes {piece[:40]!r}; choose removal='delete'.")
        position = start + len(piece)
        players[start:position] = player if message_player == FIXED else message_player
    return position


@dataclass(frozen=True)
class Removal:
    """The removal of a part: "delete", "placeholder" (replaces it) or "mask" (it is not attended to)."""

    kind: str = "delete"
    placeholder: str | None = None


@dataclass(eq=False)
class PromptGame:
    """Values (K, T) of coalitions (K, d), each evaluated once: log-probabilities of the answer's tokens. weights (T,):
    of tokens in the value, negative for a second answer; seconds: of all evaluations by the source."""

    prompt: Prompt
    tokens: tuple[str, ...]
    weights: np.ndarray
    source: Callable[[np.ndarray], np.ndarray]
    known: dict[bytes, np.ndarray] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def d(self) -> int:
        """Number of parts."""
        return self.prompt.d

    @property
    def signed_tokens(self) -> list[str]:
        """The tokens, with a minus sign for those of a contrasted answer."""
        return [token if weight > 0 else f"-{token}" for token, weight in zip(self.tokens, self.weights, strict=True)]

    def values(self, masks: np.ndarray) -> np.ndarray:
        """Return the values (K, T) of coalitions (K, d) bool, in nats; weights are not applied."""
        keys = [mask.tobytes() for mask in masks]
        new = {key: mask for key, mask in zip(keys, masks, strict=True) if key not in self.known}
        if new:
            began = time.perf_counter()
            values = np.asarray(self.source(np.array(list(new.values()))), np.float64)
            self.seconds += time.perf_counter() - began
            self._check(values, np.array(list(new.values())))
            self.known.update(zip(new, values, strict=True))
        return np.array([self.known[key] for key in keys])

    def totals(self, masks: np.ndarray) -> np.ndarray:
        """Return the values (K,) of the answer, those of a contrasted one subtracted."""
        return self.values(masks) @ self.weights

    def _check(self, values: np.ndarray, masks: np.ndarray) -> None:
        """Raise ShapelineError for a value that is NaN or minus infinity, or for another number of tokens."""
        if values.shape[1] != len(self.tokens):
            raise ShapelineError(
                f"{WHERE}: the function returned {values.shape[1]} numbers per prompt where {len(self.tokens)} were "
                "expected; return as many for each prompt, those of one answer."
            )
        bad = ~np.isfinite(values)
        if bad.any():
            row, token = np.argwhere(bad)[0]
            kept = int(masks[row].sum())
            barred = np.isneginf(values[row, token])
            what = "probability 0" if barred else f"the log-probability {values[row, token]}"
            remedy = "give an answer that the model can produce"
            remedy = remedy if barred else "check the model's weights and precision, or the function"
            raise ShapelineError(
                f"{WHERE}: token {token + 1} of the answer, {self.tokens[token]!r}, has {what} where {kept} of "
                f"{self.d} parts are kept; {remedy}."
            )


@dataclass(frozen=True, eq=False)
class ModelSource:
    """A function from coalitions (K, d) to log-probabilities (K, T) by a model of transformers; reuse: of caches."""

    language_model: Any
    encoder: Encoder
    prompt: Prompt
    answers: Sequence[Answer]
    removal: Removal = Removal()
    reuse: bool | None = None

    def __call__(self, masks: np.ndarray) -> np.ndarray:
        from shapeline.generation import prefix_cache

        rows, indices = self._build_rows(masks)
        result = None
        if self.reuse or (self.reuse is None and prefix_cache.saves_tokens(self.language_model, rows)):
            result = prefix_cache.score_with_reuse(self.language_model, rows)
        result = prefix_cache.score_in_batches(self.language_model, rows) if result is None else result
        step = len(self.answers)
        return np.array([np.concatenate(result[index * step : index * step + step]) for index in indices])

    def _build_rows(self, masks: np.ndarray) -> tuple[list, list[int]]:
        """Return rows of distinct prompts, one per answer, and the index of each coalition's prompt."""
        from shapeline.generation.prefix_cache import Row

        if self.removal.kind == "mask":
            ids, owners = self.owners
            removed = ~np.concatenate([masks, np.ones((len(masks), 1), bool)], axis=1)[:, owners]
            rows = [Row(ids, answer.ids, answer.prefix, hidden) for hidden in removed for answer in self.answers]
            return rows, list(range(len(masks)))
        encoded = self.encoder.encode([self.prompt.render(mask, self.removal.placeholder) for mask in masks])
        _check_lengths(encoded, self.answers, self.language_model, self.removal)
        distinct = {key: number for number, key in enumerate(dict.fromkeys(map(tuple, encoded)))}
        rows = [Row(key, answer.ids, answer.prefix) for key in distinct for answer in self.answers]
        return rows, [distinct[tuple(ids_of_prompt)] for ids_of_prompt in encoded]

    @functools.cached_property
    def owners(self) -> tuple[list[int], np.ndarray]:
        """Token ids of the full prompt and the player of each, as `Encoder.owners`."""
        return self.encoder.owners(self.prompt)


def _check_lengths(encoded: list[list[int]], answers: Sequence[Answer], language_model: Any, removal: Removal) -> None:
    """Raise ShapelineError for coalitions longer than the model's window, as with a long placeholder."""
    most = 0 if language_model.seq2seq else max(len(answer.ids) for answer in answers) - 1
    longest = max(map(len, encoded)) + most
    if language_model.window is not None and longest > language_model.window:
        raise ShapelineError(
            f"{WHERE}: a prompt with removed parts and the answer have {longest:,} tokens and the model's context "
            f"window holds {language_model.window:,}; give a shorter placeholder than {removal.placeholder!r:.40}."
        )


def build_function_source(
    function: Callable, encoder: Encoder | None, prompt: Prompt, removal: Removal
) -> Callable[[np.ndarray], np.ndarray]:
    """Return the evaluation of coalitions by a function from prompts to log-probabilities (n,) or (n, T)."""

    def evaluate(masks: np.ndarray) -> np.ndarray:
        rendered = [prompt.render(mask, removal.placeholder) for mask in masks]
        rendered = encoder.texts(rendered) if encoder else rendered
        return _evaluate(function, rendered, "prompt")

    return evaluate


def _evaluate(function: Callable, texts: list, what: str) -> np.ndarray:
    """Return the values (n, T) of a user's function of n prompts or generated texts."""
    name, count = getattr(function, "__name__", "function"), len(texts)
    returned = call(function, texts, name, what, "correct it, and repeat failed requests within it")
    try:
        if isinstance(returned, str | bytes | Mapping | Set):
            raise TypeError  # sets and mappings have no order of values
        returned = returned.to_numpy() if hasattr(returned, "to_numpy") else returned  # of a frame
        each = list(detach(returned))
        if any(value is None for value in each):
            raise TypeError  # numpy reads None as NaN
        values = np.array([np.atleast_1d(np.asarray(value, np.float64)) for value in each])
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.ndim != 2 or len(values) != count or not values.size:
        raise ShapelineError(
            f"{WHERE}: the function returned {_describe_values(returned)} for {format_count(count, what)}; return a "
            "number for each, or one per token of the answer."
        )
    return values


def _describe_values(returned: object) -> str:
    """Return the type of what a function returned, with its shape, or its length and first value."""
    if hasattr(returned, "shape"):
        return f"{name_type(returned)} of shape {tuple(returned.shape)}"
    if not isinstance(returned, list | tuple):
        return name_type(returned)
    missing = next((index for index, value in enumerate(returned) if value is None), None)
    first = f" that begins with {shorten_name(repr(returned[0]))}" if returned else ""
    shown = first if missing is None else f" with None at position {missing}"
    return f"{name_type(returned)} of length {len(returned)}{shown}"


def build_text_source(
    language_model: Any, encoder: Encoder, prompt: Prompt, function: Callable, removal: Removal, most: int
) -> Callable[[np.ndarray], np.ndarray]:
    """Return the evaluation of coalitions by a user's function of the generated texts, to numbers (n,)."""

    def evaluate(masks: np.ndarray) -> np.ndarray:
        ids = encoder.encode([prompt.render(mask, removal.placeholder) for mask in masks])
        distinct = list(dict.fromkeys(map(tuple, ids)))
        answers = dict(zip(distinct, language_model.generate(distinct, most, encoder.tokenizer), strict=True))
        texts = [encoder.tokenizer.decode(answers[tuple(one)], skip_special_tokens=True) for one in ids]
        return _evaluate(function, texts, "text")

    return evaluate


def check_window(
    encoder: Encoder, prompt: Prompt, answers: Sequence[Answer], window: int | None, removal: Removal
) -> None:
    """Raise ShapelineError for a prompt that does not fit, with the parts that would be cut."""
    if window is None:
        return
    longest = max((len(answer.prefix) + len(answer.ids) for answer in answers), default=0)
    if encoder.seq2seq and longest > window:
        raise ShapelineError(
            f"{WHERE}: the answer has {longest:,} tokens and the model's decoder holds {window:,}; shorten the answer."
        )
    most = 0 if encoder.seq2seq else max((len(answer.ids) for answer in answers), default=1) - 1

    def tokens(count: int) -> int:
        """Return the number of tokens of the prompt with its first `count` parts."""
        return len(encoder.encode([prompt.render(np.arange(prompt.d) < count, removal.placeholder)])[0]) + most

    length = tokens(prompt.d)
    if length <= window:
        return
    fit, over = -1, prompt.d
    while over - fit > 1:
        middle = (fit + over) // 2
        fit, over = (middle, over) if tokens(middle) <= window else (fit, middle)
    if fit < 0:
        raise ShapelineError(
            f"{WHERE}: the prompt without any part and the answer have {tokens(0):,} tokens and the model's context "
            f"window holds {window:,}; shorten the question or the answer."
        )
    cut = f"part {prompt.d}" if fit == prompt.d - 1 else f"parts {fit + 1} to {prompt.d}"
    raise ShapelineError(
        f"{WHERE}: the prompt and the answer have {length:,} tokens and the model's context window holds {window:,}; "
        f"{cut} of {prompt.d} would be cut (from {prompt.parts[fit][:40]!r}); give fewer or shorter parts."
    )


def open_encoder(model: Any, tokenizer: Any, chat: bool, built: Prompt) -> Encoder:
    """Return the encoder of a prompt, whose texts the tokenizer and the model can read. Raises ShapelineError."""
    encoder = Encoder(tokenizer, chat, model.seq2seq)
    model.check_causal()
    encoder.check_texts(built.list_texts() if built.heads else built.parts)
    encoder.check_vocabulary(built.render(np.ones(built.d, bool)), model.embeddings)
    return encoder


def find_answer(model: Any, encoder: Encoder, built: Prompt, target: str | None, removal: Removal, most: int) -> Answer:
    """Return a given answer, or the model's greedy one of at most `most` tokens. Raises ShapelineError."""
    everything = built.render(np.ones(built.d, bool))
    if target is not None:
        return encoder.encode_answer(target, everything)
    check_window(encoder, built, (), model.window, removal)
    ids = encoder.encode([everything])[0]
    limit = most if model.window is None or model.seq2seq else model.window - len(ids)
    return encoder.build_answer(model.generate([ids], max(1, min(most, limit)), encoder.tokenizer)[0])


def build_game(
    model: Any, encoder: Encoder, built: Prompt, answers: list[Answer], removal: Removal, reuse: bool | None = None
) -> PromptGame:
    """Return the game over the parts of a prompt; answers: the explained one, and optionally a contrasted one."""
    if removal.kind == "mask":
        model.check_mask()
    check_window(encoder, built, answers, model.window, removal)
    signs = np.concatenate([np.full(len(answer.ids), sign) for answer, sign in zip(answers, (1.0, -1.0), strict=False)])
    tokens = tuple(token for answer in answers for token in answer.tokens)
    return PromptGame(built, tokens, signs, ModelSource(model, encoder, built, answers, removal, reuse))
