"""A fast tokenizer of transformers as one defined by the user: what word each piece is of, by the text itself."""

import functools
import re
from types import SimpleNamespace
from typing import Any

import numpy as np

from shapeline.datasets import folders, tokenizer
from shapeline.datasets.sources import expand
from shapeline.datasets.text import PAIR
from shapeline.datasets.tokenizer import MAX_SHOWN, Tokenizer, list_tokens
from shapeline.errors import ShapelineError

# A word with an apostrophe in it, which tokenizers cut into three: it is one, as for the workflow's own texts.
CONTRACTION = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)+")
SPACE = re.compile(r"\s")


def load_tokenizer(source: str) -> Tokenizer:
    """The tokenizer of a folder, or of a function defined by the user; ShapelineError where it cannot be read."""
    return _load_folder(source) if folders.names_folder(source) else tokenizer.call_tokenizer(source)


@functools.lru_cache(maxsize=4)
def _load_folder(source: str) -> Tokenizer:
    folders.check_tokenizer(source)
    library, folder = folders.transformers(), expand(source)
    try:
        made = library.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, ImportError, KeyError, TypeError, AttributeError) as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ShapelineError(
            f"tokenizer '{source}': cannot be read by transformers ({reason}); save it again with save_pretrained"
        ) from error
    return wrap_fast_tokenizer(source, made)


def wrap_fast_tokenizer(where: str, made: Any) -> Tokenizer:
    """A fast tokenizer of transformers as a Tokenizer; ShapelineError, beginning with `where`, for another one."""
    if not getattr(made, "is_fast", False):
        raise ShapelineError(
            f"{where}: a {type(made).__name__} is not a fast tokenizer, which knows the word of each token; give "
            "the one of a tokenizer.json, as AutoTokenizer.from_pretrained reads it"
        )
    if made.pad_token_id is None:
        raise ShapelineError(
            f"{where}: it has no pad token; set tokenizer.pad_token and model.config.pad_token_id, and save both again"
        )

    separator = _separator(made)

    def encode(text: str) -> tuple[list[int], list[int | None], list[str], int | None]:
        first, pair, second = text.partition(PAIR)
        encoding = made(first, second if pair else None, truncation=False, padding=False, verbose=False).encodings[0]
        if not pair:
            return encoding.ids, *split_words(text, encoding), None
        _check_types(where, first, encoding, separator)
        owners, words = split_words(first, _sentence(encoding, 0))
        others, more = split_words(second, _sentence(encoding, 1))
        both = [one if other is None else other + len(words) for one, other in zip(owners, others, strict=True)]
        return encoding.ids, both, words + more, len(words)

    return Tokenizer(where, encode, made.pad_token_id, list_tokens(made.get_vocab()), made.mask_token_id, separator)


def _separator(made: Any) -> int | None:
    """The token of a pair behind which all are of type 1, None where the tokenizer tells no types."""
    pair = made("a", "b")
    types = list(pair.get("token_type_ids", ()))
    return pair["input_ids"][types.index(1) - 1] if 1 in types[1:] else None


def _check_types(where: str, first: str, encoding: Any, separator: int | None) -> None:
    """The network tells the types of tokens by the separator, also where words are left out."""
    is_separator = np.array(encoding.ids) == separator
    if separator is not None and ((np.cumsum(is_separator) - is_separator > 0) != encoding.type_ids).any():
        raise ShapelineError(
            f"{where}: pair {first[:MAX_SHOWN]!r}...: its sentences are not parted by the first separator; remove "
            "what looks "
            "like one from the first sentence"
        )


def _sentence(encoding: Any, number: int) -> SimpleNamespace:
    """An encoding of a pair in which the other sentence's tokens are special."""
    pieces = zip(encoding.special_tokens_mask, encoding.sequence_ids, strict=True)
    special = [special or sentence != number for special, sentence in pieces]
    return SimpleNamespace(special_tokens_mask=special, word_ids=encoding.word_ids, offsets=encoding.offsets)


def limit_tokens(made: Any) -> int | None:
    """How many tokens a document may have, as the tokenizer says; None where it says nothing."""
    length = getattr(made, "model_max_length", None)
    return int(length) if length and length < folders.ENDLESS else None


def split_words(text: str, encoding: Any) -> tuple[list[int | None], list[str]]:
    """Return the word of each token (None of a special one) and the words; they end at white space."""
    joined = [match.span() for match in CONTRACTION.finditer(text)]
    owners: list[int | None] = []
    spans: list[list[int]] = []
    before: int | None = None  # the tokenizer's number of the word before
    pieces = zip(encoding.special_tokens_mask, encoding.word_ids, encoding.offsets, strict=True)
    for special, number, (start, end) in pieces:
        if special:
            owners.append(None)
            before = None
            continue
        start = min(start + len(text[start:end]) - len(text[start:end].lstrip()), end)
        if spans and before is not None and _continues_word(text, joined, spans[-1], start, number == before):
            spans[-1][1] = max(spans[-1][1], end)
        else:
            spans.append([start, end])
        before = -1 if number is None else number
        owners.append(len(spans) - 1)
    return owners, [text[start:end].strip() for start, end in spans]


def _continues_word(text: str, joined: list[tuple[int, int]], word: list[int], start: int, same: bool) -> bool:
    """Whether a piece that begins at `start` is of the word before it; same: the tokenizer says that it is."""
    if SPACE.search(text[word[1] : start]):
        return False
    return same or any(first <= word[0] and start < last for first, last in joined)
