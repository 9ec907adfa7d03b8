"""Token ids of rendered prompts and answers, by a tokenizer of transformers and its chat template."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shapeline.errors import ShapelineError, first_line
from shapeline.generation.prompts import FIXED, WHERE, Content, Prompt, Rendered


@dataclass(frozen=True)
class Answer:
    """An answer as tokens (T,), what each shows, and the decoder's ids before them (of sequence-to-sequence models)."""

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
        """Return what the tokenizer reads: chat messages by its template, texts as they are."""
        return [one if isinstance(one, str) else self._apply_template(one) for one in rendered]

    def encode(self, rendered: Sequence[Rendered]) -> list[list[int]]:
        """Return the token ids of each rendered prompt."""
        texts = self.texts(rendered)
        encoded = self.tokenizer(texts, add_special_tokens=not self.chat, verbose=False)["input_ids"]
        return [self._complete(list(ids), text) for ids, text in zip(encoded, texts, strict=True)]

    def owners(self, prompt: Prompt) -> tuple[list[int], np.ndarray]:
        """Return the ids of the prompt and the player of each token (FIXED where none): that of its first character."""
        if not getattr(self.tokenizer, "is_fast", False):
            raise ShapelineError(f"{WHERE}: removal='mask' needs a fast tokenizer; choose removal='delete'.")
        rendered = prompt.render(np.ones(prompt.d, bool))
        text = self.texts([rendered])[0]
        players, index = np.full(len(text) + 1, FIXED), 0
        for content, whole, before in zip(
            prompt.contents, prompt.whole or (FIXED,), self._texts_before(prompt), strict=True
        ):
            start = text.find(before, index)
            if start >= 0 and not text[index:start].strip():
                index = start + len(before)  # else the template depends on the messages
            index = _mark(players, text, index, content, whole)
        encoded = self.tokenizer(text, add_special_tokens=not self.chat, return_offsets_mapping=True, verbose=False)
        ids = self._complete(list(encoded["input_ids"]), text)
        owners = np.full(len(ids), FIXED)
        for token, (start, end) in enumerate(encoded["offset_mapping"][: len(ids)]):
            piece = text[start:end]
            if piece.strip():
                owners[token] = players[start + len(piece) - len(piece.lstrip())]
        return ids, owners

    def _texts_before(self, prompt: Prompt) -> list[str]:
        """What the chat template writes before each message."""
        marks = [f"\ue000{index}\ue001" for index in range(len(prompt.contents))]
        messages = [{"role": role, "content": mark} for role, mark in zip(prompt.roles, marks, strict=False)]
        return re.split("\ue000\\d+\ue001", self._apply_template(messages))[:-1] if messages else [""]

    def check_texts(self, texts: Sequence[str]) -> None:
        """Refuse a text that holds a special token, which would be read as one, or that is no Unicode."""
        added = getattr(self.tokenizer, "added_tokens_decoder", {})
        special = {str(token) for token in added.values() if getattr(token, "special", False)}
        special |= set(getattr(self.tokenizer, "all_special_tokens", ()))
        for text in texts:
            if any("\ud800" <= letter <= "\udfff" for letter in text):
                raise ShapelineError(f"{WHERE}: {text!r:.60} holds a lone surrogate; decode the text as UTF-8.")
            if token := next((one for one in sorted(special) if one and one in text), None):
                raise ShapelineError(
                    f"{WHERE}: {text!r:.60} holds {token!r}, a special token of the tokenizer; remove it from the text."
                )

    def check_vocabulary(self, rendered: Rendered, embeddings: int) -> None:
        """Refuse a tokenizer whose ids the model has no embeddings for."""
        largest = max(self.encode([rendered])[0])
        if largest >= embeddings:
            raise ShapelineError(
                f"{WHERE}: the tokenizer gives the token {largest} and the model has {embeddings:,}; give the model's "
                "own tokenizer."
            )

    def encode_answer(self, text: str, prompt: Rendered) -> Answer:
        """Return a given answer as tokens, cut as they continue the whole prompt."""
        if not isinstance(text, str) or not text:
            raise ShapelineError(f"{WHERE}: the answer is {text!r:.60}; give a text that is not empty.")
        self.check_texts([text])
        if self.seq2seq:
            return self.answer_of(list(self.tokenizer(text_target=text, verbose=False)["input_ids"]), text)
        before = self.texts([prompt])[0]
        ids, both = self.encode([before])[0], self.encode([before + text])[0]
        if both[: len(ids)] != ids or len(both) == len(ids):  # a piece spans the border
            both = ids + list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        return self.answer_of(both[len(ids) :], text)

    def answer_of(self, ids: Sequence[int], text: str | None = None) -> Answer:
        """Return an answer of these ids without the special tokens around it; raise where nothing remains."""
        special = set(self.tokenizer.all_special_ids) - {getattr(self.tokenizer, "unk_token_id", None)}
        inside = [index for index, number in enumerate(ids) if number not in special]
        if not inside:
            problem = "the model's own answer is empty" if text is None else f"the answer {text!r:.40} has no token"
            raise ShapelineError(f"{WHERE}: {problem}; give target='an answer'.")
        prefix, own = tuple(ids[: inside[0]]), tuple(ids[inside[0] : inside[-1] + 1])
        text = self.tokenizer.decode(own) if text is None else text
        return Answer(own, _pieces(self.tokenizer, own), text, prefix if self.seq2seq else ())

    def _apply_template(self, messages: list[dict[str, str]]) -> str:
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

    def _complete(self, ids: list[int], text: str) -> list[int]:
        """Ids that an answer can follow: of a decoder without a final token, and never none at all."""
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


def _pieces(tokenizer: Any, ids: tuple[int, ...]) -> tuple[str, ...]:
    """What each token adds to the text."""
    texts = [tokenizer.decode(ids[: index + 1]) for index in range(len(ids))]
    pieces = [
        text[len(before) :] if text.startswith(before) else ""
        for before, text in zip(["", *texts], texts, strict=False)
    ]
    alone = (tokenizer.decode([number]) or str(tokenizer.convert_ids_to_tokens(number)) for number in ids)
    return tuple(piece or own for piece, own in zip(pieces, alone, strict=True))


def _mark(players: np.ndarray, text: str, place: int, content: Content, whole: int) -> int:
    """Write the players of a message's characters; return where the next one begins."""
    for piece, player in zip(content.pieces, content.players, strict=True):
        start = text.find(piece, place)
        if start < 0:
            raise ShapelineError(f"{WHERE}: the chat template changes {piece!r:.40}; choose removal='delete'.")
        place = start + len(piece)
        players[start:place] = player if whole == FIXED else whole
    return place
