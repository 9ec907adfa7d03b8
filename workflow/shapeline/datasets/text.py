"""Documents as tokens: words and characters, and the vocabulary.

A word is a run of letters and digits with inner apostrophes, in lower case; a character one of CHARACTERS, all others
id 0, which is the padding.
"""

import re
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

UNITS = ("word", "character")
PADDING, UNKNOWN = 0, 1
DELETED = -1  # the id of a token that is removed from a document
PAIR = "\x1e"  # separates the two sentences of a pair
WORD = re.compile(r"^\s*\S+\s*|\S+\s*")  # with surrounding white space, so that joined words give the text
# Zhang, Zhao & LeCun (2015), section 2.2, with a space instead of the line break, and without the second hyphen.
CHARACTERS = ("", *"abcdefghijklmnopqrstuvwxyz0123456789-,;.!?:'\"/\\|_@#$%^&*~`+=<>()[]{} ")
SPACE = CHARACTERS.index(" ")
_KNOWN = frozenset(CHARACTERS[1:])
LENGTHS = {"word": 400, "character": 1014}
VOCABULARY = 5000

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_CHARACTER_IDS = np.zeros(128, np.uint8)
_CHARACTER_IDS[[ord(character) for character in CHARACTERS[1:]]] = np.arange(1, len(CHARACTERS))


@dataclass(frozen=True)
class Settings:
    """Options of tokenization: "word" or "character", tokens per document, vocabulary size (with ids 0 and 1)."""

    unit: str
    length: int
    vocabulary: int


@dataclass(frozen=True, eq=False)
class Tokens:
    """Documents as integers: all words (indices of `entries`) or truncated characters; sizes: before truncation."""

    settings: Settings
    documents: list[np.ndarray]
    entries: tuple[str, ...]
    sizes: np.ndarray
    empty: np.ndarray
    n_words: np.ndarray


def split_words(text: str, unit: str, length: int) -> list[str]:
    """Return the words of a document in order, one per feature: the last `length`, or those of its first characters."""
    if unit == "word":
        return _find_words(text)[-length:]
    return _split_runs(_to_characters(text)[:length])


def tokenize(texts: list[str], settings: Settings) -> Tokens:
    """Return all tokens of the documents, and which documents have none."""
    if settings.unit == "character":
        cleaned = [_to_characters(text) for text in texts]
        codes = [np.frombuffer(text[: settings.length].encode("utf-32-le"), np.uint32) for text in cleaned]
        documents = [_CHARACTER_IDS[np.minimum(code, 127)] for code in codes]  # 127 is no character of the alphabet
        return Tokens(
            settings,
            documents,
            CHARACTERS,
            np.array([len(text) for text in cleaned], np.int64),
            np.array([not ((ids != PADDING) & (ids != SPACE)).any() for ids in documents], bool),
            np.array([len(_split_runs(text)) for text in cleaned], np.int64),
        )
    index: defaultdict[str, int] = defaultdict()
    index.default_factory = index.__len__  # a new word gets the next number
    documents = []
    for text in texts:
        words = _find_words(text)
        documents.append(np.fromiter(map(index.__getitem__, words), np.int32, len(words)))
    sizes = np.array([len(document) for document in documents], np.int64)
    return Tokens(settings, documents, tuple(index), sizes, sizes == 0, sizes)


def encode(tokens: Tokens, rows: np.ndarray, training: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Return chosen documents as ids (n, length), right-padded with 0, and the vocabulary of `training` ones."""
    settings, documents = tokens.settings, [tokens.documents[row] for row in rows]
    if settings.unit == "character":
        table, vocabulary = np.arange(len(CHARACTERS)), list(CHARACTERS)
    else:
        counted = [documents[row] for row in np.flatnonzero(training)]
        counts = np.bincount(np.concatenate(counted) if counted else [], minlength=len(tokens.entries))
        ranked = sorted(np.flatnonzero(counts).tolist(), key=lambda entry: (-counts[entry], tokens.entries[entry]))
        known = ranked[: settings.vocabulary - 2]
        table = np.full(len(tokens.entries), UNKNOWN)
        table[known] = np.arange(2, 2 + len(known))
        vocabulary = ["", "<unk>", *(tokens.entries[entry] for entry in known)]
    return _pad(documents, table.astype(np.min_scalar_type(len(vocabulary) - 1)), settings), vocabulary


def encode_with(texts: list[str], settings: Settings, vocabulary: list[str]) -> np.ndarray:
    """Encode new documents as ids (n, length) int32 of a given vocabulary."""
    tokens = tokenize(texts, settings)
    known = {entry: position for position, entry in enumerate(vocabulary)}
    if settings.unit == "word":
        table = np.array([known.get(entry, UNKNOWN) for entry in tokens.entries], np.int32)
    else:
        table = np.arange(len(CHARACTERS), dtype=np.int32)
    return _pad(tokens.documents, table, settings)


def _pad(documents: list[np.ndarray], table: np.ndarray, settings: Settings) -> np.ndarray:
    ids = np.full((len(documents), settings.length), PADDING, table.dtype)
    for row, document in enumerate(documents):
        # The last words, as in the code of Chen et al. (2018); characters are already truncated to the first ones.
        tokens = document[-settings.length :]
        ids[row, : len(tokens)] = table[tokens]
    return ids


def _find_words(text: str) -> list[str]:
    return _WORD.findall(text.lower().replace("\u2019", "'"))


def _to_characters(text: str) -> str:
    return re.sub(r"\s", " ", text.lower())


def _split_runs(characters: str) -> list[str]:
    """Return the runs between spaces; a run without a known character is no feature."""
    return [run for run in characters.split(" ") if not _KNOWN.isdisjoint(run)]


def repair(text: str) -> tuple[str, bool]:
    """Return the text with U+FFFD for each surrogate that "surrogateescape" left, and whether there was one."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), True
    return text, False
