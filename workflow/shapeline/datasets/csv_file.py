"""A CSV file of one's own, however it is written: separator, header, encoding, words for what is missing, spaces.

The header is read without pandas, for the configuration asks for it; what pandas then reads has the same names.
"""

import codecs
import csv
import io
import re
import unicodedata
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from shapeline.errors import ShapelineError, nearest, on_one_line

if TYPE_CHECKING:
    import pandas as pd

SEPARATORS = {"tab": "\t", "spaces": " "}  # by word; spaces are any run of them
LIKELY = (";", "\t", "|", ":", " ")  # in the place of a comma
ENCODINGS = ("cp1252", "latin-1", "utf-8", "utf-16", "iso8859-15", "gb18030", "shift_jis", "euc_kr", "cp1251")
NO_FILES = ("idna", "punycode", "raw_unicode_escape", "undefined", "unicode_escape")  # encodings of something else
LONGEST_LINE = 1 << 22  # characters; of a table of 10,000 columns a tenth of that
LONGEST_CELL = 1 << 24
LONGEST_NAME = 1000
HIDDEN = ("Cc", "Cf")  # Unicode's control and format signs


@dataclass(frozen=True)
class Form:
    """How a file is written. header: True, the first line; False, none, and then columns are called 0, 1, ...; their
    names, where the file has none; or so many lines stand above it. trim: spaces around cells and names go."""

    separator: str = ","
    header: bool | int | tuple[str, ...] = True
    na_values: tuple[str | int | float, ...] = ()
    encoding: str = "utf-8"
    trim: bool = False

    @property
    def delimiter(self) -> str:
        return SEPARATORS.get(self.separator, self.separator)

    @property
    def above(self) -> int:
        """Lines above the header, or above the rows."""
        return 0 if isinstance(self.header, bool | tuple) else self.header


PLAIN = Form()
KEYS = tuple(field.name for field in fields(Form))  # of a dataset's entry


def form_of(settings: dict) -> Form:
    """The form that the keys of a dataset's entry say; raises ShapelineError."""
    given = {key: settings[key] for key in KEYS if settings.get(key) is not None}
    separator, encoding, header = (given.get(key, getattr(PLAIN, key)) for key in ("separator", "encoding", "header"))
    printable = isinstance(separator, str) and len(separator) == 1 and (separator == "\t" or " " <= separator < "\x7f")
    if separator not in SEPARATORS and (not printable or separator == '"' or separator.isalnum()):
        words = " or ".join(SEPARATORS)
        raise ShapelineError(f"dataset key 'separator': {separator!r} is no character between cells, nor {words}.")
    if not _is_encoding(encoding):
        raise ShapelineError(f"dataset key 'encoding': {encoding!r} is unknown.{nearest(encoding, ENCODINGS)}")
    if isinstance(header, list | tuple):
        given["header"] = tuple(header)
        if not header or not all(isinstance(name, str) for name in header):
            raise ShapelineError(f"dataset key 'header': {header!r} are no names; give a text for each column.")
        refuse_twice("dataset key 'header':", header)
    elif type(header) not in (bool, int) or header < 0:
        raise ShapelineError(f"dataset key 'header': {header!r} is neither true, false, names, nor a number of lines.")
    words = given.get("na_values", [])
    if not isinstance(words, list | tuple) or not all(type(word) in (str, int, float) for word in words):
        raise ShapelineError(f"dataset key 'na_values': {words!r} is no list of what stands for a missing cell.")
    if not isinstance(given.get("trim", False), bool):
        raise ShapelineError(f"dataset key 'trim': {given['trim']!r} is neither true nor false.")
    return Form(**given | {"na_values": tuple(words)})


def header(path: Path, form: Form = PLAIN) -> list[str]:
    """The names of the columns, from the beginning of the file alone. Raises ShapelineError."""
    try:
        with open(path, newline="", encoding=_with_mark(form.encoding)) as stream:
            row = next(_rows(str(path), stream, form), [])
    except (OSError, ValueError, csv.Error) as error:
        raise unreadable(path, error, form) from error
    if not row:
        above = f" below {form.above} line(s)" if form.above else ""
        raise ShapelineError(f"{path}: holds no line{above}; it is no table.")
    if form.header is False:
        return [str(number) for number in range(len(row))]
    if isinstance(form.header, tuple):
        if len(form.header) != len(row):
            raise ShapelineError(
                f"dataset key 'header': {len(form.header)} name(s), and the first line of {path} has {len(row)} cells."
            )
        return list(form.header)
    if broken := [name for name in row if len(f"{name}.".splitlines()) > 1 or "\0" in name or len(name) > LONGEST_NAME]:
        raise ShapelineError(
            f"{path}: its header has the name '{on_one_line(broken[0])}', which is no text on one line; close its "
            "quote, or rename it."
        )
    names = [name or f"Unnamed: {number}" for number, name in enumerate(row)]  # as pandas calls them
    refuse_twice(f"{path}: its header", names)
    return names


def frame(path: Path, form: Form = PLAIN) -> "pd.DataFrame":
    """The whole file as pandas reads it, its columns by the names of `header`. Raises ShapelineError."""
    import pandas as pd

    names = header(path, form)
    has_header = not (form.header is False or isinstance(form.header, tuple))
    how = {"header": 0 if has_header else None, "skiprows": form.above, "na_values": list(form.na_values) or None}
    source, sep = path, r"\s+" if form.separator == "spaces" else form.delimiter
    try:
        if form.trim and form.separator != "spaces":
            source, sep, how["skiprows"] = _trimmed(path, form), ",", 0
        # By itself pandas takes the first of too many cells for the row's name and moves the others by a column.
        how |= {"low_memory": False, "index_col": False, "encoding": form.encoding, "sep": sep}
        with warnings.catch_warnings(action="error", category=pd.errors.ParserWarning):
            table = pd.read_csv(source, **how)
    except pd.errors.ParserWarning as error:
        raise ShapelineError(
            f"{path}: its rows have more cells than its header has names, {len(names)}; name every column in it, or "
            "remove separators at the ends of lines."
        ) from error
    except (OSError, ValueError, csv.Error, OverflowError) as error:
        raise unreadable(path, error, form) from error
    if len(names) != table.shape[1]:
        raise ShapelineError(f"{path}: its header has {len(names)} names and its rows {table.shape[1]} cells.")
    table.columns = names
    return table


def missing_column(names: list[str], name: str) -> str:
    """Which key mends that a column is not found, or the nearest name."""
    if name in [known.strip() for known in names]:
        return " There are spaces around that name; set trim: true."
    if len(names) == 1:
        for separator in LIKELY:
            if separator in names[0].strip():
                word = {"\t": "tab", " ": "spaces"}.get(separator, separator)
                return f" Its first line is one cell; set separator: {word!r}."
    if any(map(_is_number, names)):
        return " Its first line holds numbers and looks like data; set header: false, or header: [names]."
    return nearest(name, names)


def unreadable(path: Path, error: Exception, form: Form) -> ShapelineError:
    """What keeps a file from being read, and the key that mends it."""
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    if isinstance(error, UnicodeError):
        place = f", byte {error.start:,}" if isinstance(error, UnicodeDecodeError) else ""
        other = "utf-8" if form.encoding not in ("utf-8", "utf8") else "cp1252"
        return ShapelineError(f"{path}: is not written in {form.encoding}{place}; set encoding: {other}, or its own.")
    if told := re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", reason):
        expected, line, saw = told.groups()
        return ShapelineError(
            f"{path}, line {line}: {saw} cells, and the lines above have {expected}; set separator, or header to the "
            "number of lines above it, or put cells that hold the separator in quotes."
        )
    if "EOF inside string" in reason:
        return ShapelineError(f"{path}: a quote is opened and never closed ({reason}); close it.")
    return ShapelineError(f"{path}: cannot be read as a CSV file ({reason}).")


def _rows(where: str, stream: TextIO, form: Form) -> Iterator[list[str]]:
    """The cells of each line that holds some, from the header on, or from the rows where there is none."""
    lines = _lines(where, stream)
    for _ in range(form.above):
        next(lines, "")
    spaces = form.separator == "spaces"
    if spaces:
        lines = (re.sub(r"[ \t]+", " ", line.strip()) for line in lines)
    for row in csv.reader(lines, delimiter=form.delimiter):
        if len(row) > 1 or "".join(row).strip():
            yield [cell.strip() for cell in row] if form.trim else row


def _lines(where: str, stream: TextIO) -> Iterator[str]:
    while line := stream.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE:
            raise ShapelineError(f"{where}: a line of more than {LONGEST_LINE:,} characters; it is no table.")
        yield line


def _trimmed(path: Path, form: Form) -> io.StringIO:
    """The file with commas and without spaces around its cells."""
    written = io.StringIO()
    usual = csv.field_size_limit(LONGEST_CELL)
    try:
        with open(path, newline="", encoding=_with_mark(form.encoding)) as stream:
            csv.writer(written, lineterminator="\n").writerows(_rows(str(path), stream, form))
    finally:
        csv.field_size_limit(usual)
    written.seek(0)
    return written


def _with_mark(encoding: str) -> str:
    """The encoding that takes a mark at the beginning, as spreadsheets write it."""
    return "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding


def _is_encoding(name: object) -> bool:
    try:
        encoding = codecs.lookup(name)
    except (LookupError, TypeError, ValueError):
        return False
    return encoding._is_text_encoding and encoding.name not in NO_FILES


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def refuse_twice(where: str, names: list[str]) -> None:
    """ShapelineError where a name is there twice, or two look the same: one would be the target and one a feature."""
    alike: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        alike.setdefault(_looks(str(name)), []).append(number)
    twice = [numbers for numbers in alike.values() if len(numbers) > 1]
    if twice:
        name = names[twice[0][0]]
        places = " and ".join(str(number + 1) for number in twice[0])
        told = ", ".join(repr(names[numbers[0]]) for numbers in twice[1:5])
        hidden = (
            "" if len({names[number] for number in twice[0]}) == 1 else ", but for spaces or signs that nobody sees"
        )
        raise ShapelineError(
            f"{where} names '{on_one_line(name)}' twice or more (columns {places}{hidden})"
            f"{f', and {told} too' if told else ''}; rename all but one."
        )


def _looks(name: str) -> str:
    """A name without what nobody sees: spaces around it, marks of byte order, joiners, how an accent is written."""
    seen = "".join(char for char in unicodedata.normalize("NFC", name) if unicodedata.category(char) not in HIDDEN)
    return seen.strip()
