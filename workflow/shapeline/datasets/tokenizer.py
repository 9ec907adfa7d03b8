"""User-defined tokenizers, "path/to/file.py:function" or a folder: ids of documents, and the word of each token.

The function returns a mapping with `encode`, `pad` and `vocabulary`, or an object like tokenizers.Tokenizer.
`encode(text)` gives `(ids, word_of_token[, words])` or an object with `ids`, `word_ids` and perhaps `offsets`; the word
of a special token is None. Documents of a prepared dataset, their words, and the tokens of new ones, by its card.
"""

import functools
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from shapeline.datasets import folders, text
from shapeline.datasets.entries import TEXT
from shapeline.datasets.loading import explain_damage
from shapeline.datasets.sources import expand, report_user_code, user_function
from shapeline.datasets.text import DELETED, PADDING, PAIR, WORD
from shapeline.errors import ShapelineError, first_line, name_type

RETURNED = ("encode", "pad", "vocabulary")
PADS = ("[PAD]", "<pad>")  # usual names of the padding token
SPECIAL = -1  # the word number of a token that is never removed
MAX_SHOWN = 30  # characters of a document in an error message


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """encode: see the module's docstring; pad: the id that pads a document and replaces a masked token; vocabulary: the
    tokens by id; mask: the id of the mask token, or None; separator: for pairs, the id of the token after which all
    tokens have type 1, or None without types; cuts_start: a long document loses its start instead of its end."""

    source: str
    encode: Callable[[str], Any]
    pad: int
    vocabulary: list[str]
    mask: int | None = None
    separator: int | None = None
    cuts_start: bool = False


@dataclass(frozen=True, eq=False)
class Documents:
    """Tokenized documents, truncated to `length`: ids, owners (the word of each token or SPECIAL), words, sizes, empty.
    seconds: for a pair, the number of the second sentence's first word."""

    tokenizer: Tokenizer
    length: int
    ids: list[np.ndarray]
    owners: list[np.ndarray]
    words: list[list[str]]
    seconds: list[int | None]
    sizes: np.ndarray
    n_words: np.ndarray
    empty: np.ndarray


@functools.lru_cache(maxsize=4)
def call_tokenizer(source: str) -> Tokenizer:
    """Return the tokenizer that the user's function returns. Raises ShapelineError if it lacks what is needed."""
    where = f"tokenizer '{source}'"
    with report_user_code(where):
        returned = user_function(source)()
    if not isinstance(returned, Mapping):
        returned = _read_object(where, returned)
    missing = [key for key in RETURNED if returned.get(key) is None]
    if missing:
        needed = "the id of padding" if missing == ["pad"] else "all of " + ", ".join(RETURNED)
        raise ShapelineError(f"{where}: it has no '{missing[0]}'; return a dict with {needed}.")
    vocabulary, pad = list_tokens(returned["vocabulary"]), returned["pad"]
    if not isinstance(pad, int | np.integer) or not 0 <= pad < len(vocabulary):
        raise ShapelineError(f"{where}: pad is {pad!r}; the vocabulary has the ids 0 to {len(vocabulary) - 1}.")
    return Tokenizer(source, returned["encode"], int(pad), vocabulary)


def _read_object(where: str, made: Any) -> dict:
    if not all(hasattr(made, name) for name in ("encode", "token_to_id", "get_vocab")):
        raise ShapelineError(
            f"{where}: returned {type(made).__name__}; return a dict with {', '.join(RETURNED)}, or an object with "
            "encode, token_to_id and get_vocab."
        )
    for name in ("no_padding", "no_truncation"):  # this module pads and truncates, and counts truncated documents
        getattr(made, name, lambda: None)()
    pads = [made.token_to_id(name) for name in PADS]
    return {
        "encode": made.encode,
        "pad": next((pad for pad in pads if pad is not None), None),
        "vocabulary": made.get_vocab(),
    }


def list_tokens(vocabulary: int | np.integer | Mapping[str, int] | list[str]) -> list[str]:
    """Return tokens by id, from their number, their ids, or a list; a token without a name is named by its id."""
    if isinstance(vocabulary, Mapping):
        names = [str(number) for number in range(max(vocabulary.values(), default=-1) + 1)]
        for token, number in vocabulary.items():
            names[number] = str(token)
        return names
    if isinstance(vocabulary, int | np.integer):
        return [str(number) for number in range(vocabulary)]
    return [str(token) for token in vocabulary]


def tokenize(texts: list[str], tokenizer: Tokenizer, length: int) -> Documents:
    """Return documents by the tokenizer; a long one keeps its special tokens and its first, or its last ones."""
    encoded = [_encode(text, tokenizer) for text in texts]
    truncated = [_truncate(*document, length, tokenizer.cuts_start) for document in encoded]
    return Documents(
        tokenizer,
        length,
        *([document[field] for document in truncated] for field in range(4)),
        np.array([len(ids) for ids, *_ in encoded], np.int64),
        np.array([len(words) for _, _, words, _ in encoded], np.int64),
        np.array([not words for _, _, words, _ in truncated], bool),
    )


def pad_documents(documents: Documents, rows: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return documents as ids and words of their tokens, both (n, length) int32, padded with pad and SPECIAL."""
    chosen = range(len(documents.ids)) if rows is None else rows
    ids = np.full((len(chosen), documents.length), documents.tokenizer.pad, np.int32)
    owners = np.full(ids.shape, SPECIAL, np.int32)
    for index, row in enumerate(chosen):
        ids[index, : len(documents.ids[row])] = documents.ids[row]
        owners[index, : len(documents.ids[row])] = documents.owners[row]
    return ids, owners


def _encode(text: str, tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray, list[str], int | None]:
    """Return ids, word numbers of tokens, the words, and the number of the second sentence's first word."""
    encoded = tokenizer.encode(text)
    start = text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."
    where = f"tokenizer '{tokenizer.source}', document {start!r}"
    words = offsets = second = None
    if isinstance(encoded, tuple) and len(encoded) in (2, 3, 4):
        ids, numbers, words, second = (*encoded, None, None)[:4]
    elif hasattr(encoded, "ids") and hasattr(encoded, "word_ids"):
        ids, numbers, offsets = encoded.ids, encoded.word_ids, getattr(encoded, "offsets", None)
    else:
        raise ShapelineError(
            f"{where}: encode returned {type(encoded).__name__}; return (ids, word_of_token), or an object with ids "
            "and word_ids."
        )
    ids, own = _convert_numbers(where, "ids", ids), _convert_numbers(where, "words of tokens", numbers)
    if len(own) != len(ids):
        raise ShapelineError(
            f"{where}: {len(ids)} ids and the words of {len(own)} tokens; give each id the number of its word, or "
            "None for a special token."
        )
    wrong = ids[(ids < 0) | (ids >= len(tokenizer.vocabulary))]
    if len(wrong):
        raise ShapelineError(
            f"{where}: id {wrong[0]} is none of the vocabulary's, 0 to {len(tokenizer.vocabulary) - 1}"
            "; return ids of the vocabulary."
        )
    # Padding of the user's tokenizer is removed, so that truncation does not keep it; documents are padded later.
    size = np.flatnonzero((ids != tokenizer.pad) | (own >= 0)).max(initial=-1) + 1
    ids, own = ids[:size], own[:size]
    numbers = np.unique(own[own >= 0])
    owners = np.where(own >= 0, np.searchsorted(numbers, own), SPECIAL)
    if offsets is not None and words is None:
        spans = [np.flatnonzero(owners == word) for word in range(len(numbers))]
        return ids, owners, [text[offsets[span[0]][0] : offsets[span[-1]][1]].strip() for span in spans], None
    words = text.split() if words is None else list(words)
    if len(numbers) and numbers[-1] >= len(words):
        raise ShapelineError(
            f"{where}: a token is of word {numbers[-1]} (from 0) and there are {len(words)}; return the words too, "
            "(ids, word_of_token, words)."
        )
    return ids, owners, [str(words[number]) for number in numbers], second


def _convert_numbers(where: str, what: str, given: Any) -> np.ndarray:
    """Return the numbers of `encode` (m,) as int64, SPECIAL for None. Raises ShapelineError for other values."""
    try:
        numbers = np.asarray([SPECIAL if number is None else number for number in given]).reshape(-1)
    except (TypeError, ValueError):  # not iterable, or rows of several lengths
        numbers = np.zeros(1, object)
    if len(numbers) and numbers.dtype.kind not in "iu":
        raise ShapelineError(
            f"{where}: the {what} are not whole numbers; give each token its id, and the number of its word or None."
        )
    return numbers.astype(np.int64)


def _truncate(
    ids: np.ndarray, owners: np.ndarray, words: list[str], second: int | None, length: int, cuts_start: bool
) -> tuple[np.ndarray, np.ndarray, list[str], int | None]:
    """Truncate a document to `length` tokens: its first ones, the special ones at the end, and their words; where it
    loses its start, its last ones and the special ones before them."""
    if len(ids) <= length:
        return ids, owners, words, second
    inside = np.flatnonzero(owners >= 0)
    special = inside.min(initial=len(ids)) if cuts_start else len(ids) - 1 - inside.max(initial=-1)
    special = min(special, length)
    first = special if cuts_start else min(len(ids) - special, length - special)
    kept = np.r_[np.arange(first), np.arange(len(ids) - (length - first), len(ids))]
    if second is not None:
        kept = _truncate_pair(owners, second, length, cuts_start)
    remaining = np.unique(owners[kept][owners[kept] >= 0])
    owners = np.where(owners[kept] >= 0, np.searchsorted(remaining, owners[kept]), SPECIAL)
    second = None if second is None else int((remaining < second).sum())
    return ids[kept], owners, [words[number] for number in remaining], second


def _truncate_pair(owners: np.ndarray, second: int, length: int, cuts_start: bool) -> np.ndarray:
    """Return the tokens of a truncated pair as in transformers: first the longer sentence is cut, then both."""
    special = np.flatnonzero(owners < 0)
    sentences = [np.flatnonzero((owners >= 0) & (owners < second)), np.flatnonzero(owners >= second)]
    shorter, longer = sorted(sentences, key=len)
    capacity = max(length - len(special), 0)
    least = min(len(shorter), capacity // 2)
    if cuts_start:
        shorter, longer = shorter[::-1], longer[::-1]
    return np.sort(np.r_[special, shorter[:least], longer[: capacity - least]])[:length]


# A word with an apostrophe, which tokenizers split into three, is one word, as in the workflow's own texts.
CONTRACTION = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)+")
SPACE = re.compile(r"\s")


def load_tokenizer(source: str) -> Tokenizer:
    """Return a tokenizer, by its name in a dataset's entry. Raises ShapelineError if it cannot be read."""
    if source == TEXT:
        return Tokenizer(source, _encode_bytes, PADDING, list_tokens(257))
    return _load_folder(source) if folders.names_folder(source) else call_tokenizer(source)


def _encode_bytes(text: str) -> tuple[list[int], list[int], list[str]]:
    """Return the bytes of a text, from 1, their words with the white space behind these, and the words."""
    parts = WORD.findall(text)
    contents = [part.encode() for part in parts]
    owners = [number for number, content in enumerate(contents) for _ in content]
    return [byte + 1 for byte in b"".join(contents)], owners, [part.strip() for part in parts]


def decode_texts(rows: np.ndarray) -> list[str]:
    """Return rows of bytes (n, length) as texts without masked words, as `shapeline.explain` deletes them."""
    texts = []
    for row in rows:
        row = row[row != PADDING]
        decoded = (row[row != DELETED] - 1).astype(np.uint8).tobytes().decode(errors="ignore")  # of a cut character
        texts.append(decoded.rstrip() if len(row) and row[-1] == DELETED else decoded)
    return texts


@functools.lru_cache(maxsize=4)
def _load_folder(source: str) -> Tokenizer:
    folders.check_tokenizer(source)
    library, folder = folders.transformers(), expand(source)
    try:
        made = library.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, ImportError, KeyError, TypeError, AttributeError) as error:
        raise ShapelineError(
            f"tokenizer '{source}': cannot be read by transformers ({first_line(error)}); save it again with "
            "save_pretrained"
        ) from error
    return wrap_fast_tokenizer(source, made)


def wrap_fast_tokenizer(where: str, made: Any) -> Tokenizer:
    """Wrap a fast tokenizer of transformers. Raises ShapelineError, beginning with `where`, for another one."""
    if not getattr(made, "is_fast", False):
        raise ShapelineError(
            f"{where}: {name_type(made)} is not a fast tokenizer, which knows the word of each token; give "
            "the one of a tokenizer.json, as AutoTokenizer.from_pretrained reads it"
        )
    if made.pad_token_id is None:
        raise ShapelineError(
            f"{where}: it has no pad token; set tokenizer.pad_token and model.config.pad_token_id, and save both again"
        )
    # Of a tokenizer with types, the token of a pair after which all have type 1.
    pair = made("a", "b")
    types = list(pair.get("token_type_ids", ()))
    separator = pair["input_ids"][types.index(1) - 1] if 1 in types[1:] else None

    def encode(text: str) -> tuple[list[int], list[int | None], list[str], int | None]:
        first, pair, second = text.partition(PAIR)
        encoding = made(first, second if pair else None, truncation=False, padding=False, verbose=False).encodings[0]
        if not pair:
            return encoding.ids, *split_words(text, encoding), None
        _check_types(where, first, encoding, separator)
        owners, words = split_words(first, _select_sentence(encoding, 0))
        others, more = split_words(second, _select_sentence(encoding, 1))
        both = [one if other is None else other + len(words) for one, other in zip(owners, others, strict=True)]
        return encoding.ids, both, words + more, len(words)

    cuts_start = getattr(made, "truncation_side", "right") == "left"
    tokens = list_tokens(made.get_vocab())
    return Tokenizer(where, encode, made.pad_token_id, tokens, made.mask_token_id, separator, cuts_start)


def _check_types(where: str, first: str, encoding: Any, separator: int | None) -> None:
    is_separator = np.array(encoding.ids) == separator
    if separator is not None and ((np.cumsum(is_separator) - is_separator > 0) != encoding.type_ids).any():
        raise ShapelineError(
            f"{where}: pair {first[:MAX_SHOWN]!r}...: its sentences are not parted by the first separator; remove "
            "what looks like one from the first sentence"
        )


def _select_sentence(encoding: Any, number: int) -> SimpleNamespace:
    """Return an encoding of a pair in which the tokens of the other sentence are special."""
    pieces = zip(encoding.special_tokens_mask, encoding.sequence_ids, strict=True)
    special = [special or sentence != number for special, sentence in pieces]
    return SimpleNamespace(special_tokens_mask=special, word_ids=encoding.word_ids, offsets=encoding.offsets)


def limit_tokens(made: Any) -> int | None:
    """Return the tokenizer's maximum of tokens per document; None if it has none."""
    length = getattr(made, "model_max_length", None)
    return int(length) if length and length < folders.ENDLESS else None


def split_words(text: str, encoding: Any) -> tuple[list[int | None], list[str]]:
    """Return the word of each token (None of a special one) and the words; they end at white space."""
    joined = [match.span() for match in CONTRACTION.finditer(text)]
    owners: list[int | None] = []
    spans: list[list[int]] = []
    before: int | None = None  # the tokenizer's number of the previous word
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
    """Return whether a token that begins at `start` belongs to the previous word; same: by the tokenizer."""
    if SPACE.search(text[word[1] : start]):
        return False
    return same or any(first <= word[0] and start < last for first, last in joined)


def read_documents(folder: str | os.PathLike, ids: Iterable[int]) -> list[str]:
    """Return the original texts of records of a prepared text dataset, in the order of the ids, which must be known."""
    return _read_column(Path(folder), ids, "text")


def read_ground_truth_words(folder: str | os.PathLike, ids: Iterable[int]) -> list[np.ndarray]:
    """Return per record whether each of words() decides the class. Raises ShapelineError if that is not known."""
    return [np.array(flags, bool) for flags in _read_column(Path(folder), ids, "ground_truth_words")]


def list_words(document: str, card: dict) -> list[str]:
    """Return the words of a document as the tokenizer saw them, after truncation, in reading order: one a feature."""
    if card.get("tokenizer"):
        return tokenize_for([document], card).words[0]
    return text.split_words(document, card["unit"], card["input_shape"][0])


def encode_documents(documents: list[str], card: dict) -> np.ndarray:
    """Encode new documents as ids (n, length) int32 of a text dataset's vocabulary, truncated and padded alike."""
    if card.get("tokenizer"):
        return pad_documents(tokenize_for(documents, card))[0]
    settings = text.Settings(card["unit"], card["input_shape"][0], len(card["vocabulary"]))
    return text.encode_with(documents, settings, card["vocabulary"])


def tokenize_for(documents: list[str], card: dict) -> Documents:
    """Tokenize new documents with the user-defined tokenizer of a dataset's card."""
    return tokenize(documents, load_tokenizer(card["tokenizer"]), card["input_shape"][0])


def find_owners(documents: list[str], card: dict) -> np.ndarray:
    """Return the word of each token of new documents, (n, length) int32, as in Dataset."""
    return pad_documents(tokenize_for(documents, card))[1]


def _read_column(folder: Path, ids: Iterable[int], column: str) -> list:
    import pyarrow.parquet

    ids, file = [int(record) for record in ids], folder / "documents.parquet"
    with explain_damage(folder):
        if column not in pyarrow.parquet.read_schema(file).names:
            raise ShapelineError(
                f"{file}: the ground-truth words of this dataset are not known; remove the metric that needs them."
            )
        table = pyarrow.parquet.read_table(file, columns=["id", column], filters=[("id", "in", set(ids))])
    by_id = dict(zip(table["id"].to_pylist(), table[column].to_pylist(), strict=True))
    for record in ids:
        if record not in by_id:
            raise ShapelineError(f"{file}: there is no record {record}; prepare the dataset again.")
    return [by_id[record] for record in ids]
