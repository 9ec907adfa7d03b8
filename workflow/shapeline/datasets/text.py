"""Documents as tokens: words and characters, the vocabulary, and rows of the official CSV files.

A word is a run of letters and digits with inner apostrophes, in lower case; a character one of CHARACTERS, all others
id 0, which is the padding.
"""

import contextlib
import csv
import io
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from shapeline.errors import ShapelineError, nearest

if TYPE_CHECKING:
    import pandas as pd

UNITS = ("word", "character")
PADDING, UNKNOWN = 0, 1
DELETED = -1  # the id of a token that is left out of a document, which then is shorter
PAIR = "\x1e"  # stands between the two sentences of a document that is a pair
# Zhang, Zhao & LeCun (2015), section 2.2, with the space in place of the line break and the second hyphen once.
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
    """How documents become tokens: "word" or "character", tokens a document, words known (ids 0 and 1 counted)."""

    unit: str
    length: int
    vocabulary: int


@dataclass(frozen=True, eq=False)
class Tokens:
    """Documents as integers: whole words (numbers into `entries`) or cut characters; sizes: before the cut."""

    settings: Settings
    documents: list[np.ndarray]
    entries: tuple[str, ...]
    sizes: np.ndarray
    empty: np.ndarray
    n_words: np.ndarray


def read_settings(
    settings: dict, unit: str = "word", length: int | None = None, vocabulary: int = VOCABULARY
) -> Settings:
    """Return the text keys of settings with defaults; ShapelineError for an unknown unit or a number out of range."""
    chosen = settings.get("unit") or unit
    if chosen not in UNITS:
        raise ShapelineError(f"dataset key 'unit': {chosen!r} is unknown.{nearest(chosen, UNITS)}")
    for key, least in (("length", 1), ("vocabulary", 3)):
        number = settings.get(key)
        if number is not None and (type(number) is not int or number < least):
            raise ShapelineError(
                f"dataset key '{key}': {number!r} is out of range; give a whole number of {least} or more."
            )
    if chosen == "character" and settings.get("vocabulary") is not None:
        raise ShapelineError("dataset key 'vocabulary': characters have a fixed alphabet of 69; remove the key.")
    default = length if length and chosen == unit else LENGTHS[chosen]
    return Settings(chosen, settings.get("length") or default, settings.get("vocabulary") or vocabulary)


def split_words(text: str, unit: str, length: int) -> list[str]:
    """The words of a document in reading order, one a feature: its last `length`, or those of its first characters."""
    if unit == "word":
        return _words(text)[-length:]
    return _runs(_characters(text)[:length])


def tokenize(texts: list[str], settings: Settings) -> Tokens:
    """All tokens of the documents, and which documents have none."""
    if settings.unit == "character":
        cleaned = [_characters(text) for text in texts]
        documents = [_character_ids(text[: settings.length]) for text in cleaned]
        return Tokens(
            settings,
            documents,
            CHARACTERS,
            np.array([len(text) for text in cleaned], np.int64),
            np.array([not ((ids != PADDING) & (ids != SPACE)).any() for ids in documents], bool),
            np.array([len(_runs(text)) for text in cleaned], np.int64),
        )
    index: defaultdict[str, int] = defaultdict()
    index.default_factory = index.__len__  # a new word gets the next number
    documents = []
    for text in texts:
        words = _words(text)
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
    """New documents as ids (n, length) int32 of a vocabulary that is already there."""
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
        # Words: the last ones, as the code of Chen et al. (2018) has it. Characters were cut to the first ones.
        kept = document[-settings.length :]
        ids[row, : len(kept)] = table[kept]
    return ids


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower().replace("\u2019", "'"))


def _characters(text: str) -> str:
    return re.sub(r"\s", " ", text.lower())


def _runs(characters: str) -> list[str]:
    """What stands between spaces; a run without a known character is no feature."""
    return [run for run in characters.split(" ") if not _KNOWN.isdisjoint(run)]


def _character_ids(text: str) -> np.ndarray:
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    return _CHARACTER_IDS[np.minimum(codes, 127)]  # 127 is no character of the alphabet


def repair(text: str) -> tuple[str, bool]:
    """Return the text with U+FFFD for each surrogate that "surrogateescape" left, and whether there was one."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), True
    return text, False


def rows(where: str, stream: BinaryIO, columns: tuple[str, ...], n_classes: int) -> Iterator[tuple[int, list[str]]]:
    """Yield (label from 0, texts) of a CSV file without header whose first column is the class; surrogates for bad
    bytes. Raises ShapelineError with file and line."""
    for line, row in csv_lines(where, stream, "surrogateescape"):
        if not row:
            continue  # an empty line
        if len(row) != len(columns):
            raise ShapelineError(
                f"{where}, line {line}: {len(row)} column(s), expected {len(columns)} ({', '.join(columns)})"
                "; correct the line."
            )
        label = row[0].strip()
        if not (label.isdecimal() and 1 <= int(label) <= n_classes):
            raise ShapelineError(
                f"{where}, line {line}: the label '{row[0]}' is not one of 1 to {n_classes}; correct the line."
            )
        yield int(label) - 1, row[1:]


def csv_lines(where: str, stream: BinaryIO, errors: str, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """Yield (line, cells) of each row of a UTF-8 CSV file, empty ones too; ShapelineError for text that is no CSV."""
    lines = csv.reader(io.TextIOWrapper(stream, "utf-8-sig", errors, newline=""), strict=True, delimiter=delimiter)
    while True:
        line = lines.line_num + 1
        try:
            row = next(lines, None)
        except csv.Error as error:
            raise ShapelineError(f"{where}, line {line}: not readable as CSV ({error}); get the file again.") from error
        if row is None:
            return
        yield line, row


@dataclass(frozen=True, eq=False)
class Columns:
    """Columns of a file in memory. where: the file; texts: its cells by name, each row by its line."""

    where: str
    texts: "pd.DataFrame"

    def numbers(self, name: str, lowest: float = -np.inf, highest: float = np.inf) -> np.ndarray:
        """Return the column as (n,) float64; raise ShapelineError for what is no finite number in that range."""
        import pandas as pd

        values = pd.to_numeric(self.texts[name], errors="coerce").to_numpy(np.float64)
        limits = f" from {lowest:g} to {highest:g}" if np.isfinite(highest) else ""
        self._check(name, np.isfinite(values) & (values >= lowest) & (values <= highest), f"expected a number{limits}")
        return values

    def map_values(self, name: str, table: dict[str, float]) -> np.ndarray:
        """Return the column as (n,) float64, each cell by the table (cells in lower case); refuse others."""
        values = self.texts[name].str.lower().map(table).to_numpy(np.float64)
        self._check(name, ~np.isnan(values), "expected one of " + ", ".join(f"'{known}'" for known in table))
        return values

    def inputs(self, attributes: dict[str, tuple]) -> tuple[np.ndarray, dict[str, list[str]]]:
        """Return attributes (n, columns) and what codes stand for; attributes: name -> (column, table, limits)."""
        inputs, categories = [], {}
        for name, (column, holds) in attributes.items():
            if holds is None:
                codes = self.texts[column].astype("category").cat
                values, categories[name] = codes.codes.to_numpy(np.float64), codes.categories.tolist()
            else:
                values = self.map_values(column, holds) if isinstance(holds, dict) else self.numbers(column, *holds)
            inputs.append(values)
        return np.stack(inputs, axis=1), categories

    def rows(self, kept: np.ndarray) -> "Columns":
        """Return the rows where `kept` (n,) is true."""
        return Columns(self.where, self.texts[kept])

    def _check(self, name: str, fits: np.ndarray, expected: str) -> None:
        if not fits.all():
            cells = self.texts[name][~fits]
            raise ShapelineError(f"{self.where}, line {cells.index[0]}: {name} is '{cells.iloc[0]}'; {expected}.")


def read_columns(path: Path, names: tuple[str, ...]) -> Columns:
    """Return all rows of the named columns; raise ShapelineError as `read_named_rows`."""
    import pandas as pd

    with open_binary(path) as stream:
        result = dict(read_named_rows(str(path), stream, names))
    if not result:
        raise ShapelineError(f"{path}: holds a header and no rows; give a file with rows.")
    return Columns(str(path), pd.DataFrame(result.values(), index=result.keys(), columns=names, dtype="str"))


def read_named_rows(
    where: str, stream: BinaryIO, names: tuple[str, ...], delimiter: str = ","
) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, cells of the named columns, stripped) of each row; ShapelineError for missing columns and no CSV.

    Names are in lower case with an underscore for other characters; of equal names the first counts.
    """
    lines = csv_lines(where, stream, "replace", delimiter)
    _, header = next(lines, (1, []))
    known = [re.sub(r"[^a-z0-9]+", "_", name.strip().lower()) for name in header]
    for name in names:
        if name not in known:
            hint = f".{nearest(name, known)}" if known else "; the file is empty, so get it again"
            raise ShapelineError(f"{where}: its header has no column {name}{hint}")
    places = [known.index(name) for name in names]
    for line, row in lines:
        if row and len(row) != len(header):
            raise ShapelineError(
                f"{where}, line {line}: {len(row)} column(s), but its header has {len(header)}; correct the line."
            )
        if row:
            yield line, [row[place].strip() for place in places]


@contextlib.contextmanager
def open_binary(path: Path) -> Iterator[BinaryIO]:
    try:
        with open(path, "rb") as stream:
            yield stream
    except OSError as error:
        raise ShapelineError(f"{path}: cannot be read ({error.strerror or error}); make it readable.") from error
