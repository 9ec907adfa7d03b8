"""A user's CSV file by pandas' options; the header is read without pandas, because every dry run needs it."""

import codecs
import contextlib
import csv
import io
import itertools
import re
import unicodedata
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from shapeline.errors import ShapelineError, first_line, nearest, shorten_name

if TYPE_CHECKING:
    import pandas as pd

SEPARATORS = {"tab": "\t", "spaces": " "}  # by word; spaces are any run of them
ALTERNATIVES = (";", "\t", "|", ":", " ")  # instead of a comma
ENCODINGS = ("cp1252", "latin-1", "utf-8", "utf-16", "iso8859-15", "gb18030", "shift_jis", "euc_kr", "cp1251")
NO_FILE_ENCODINGS = ("idna", "punycode", "raw_unicode_escape", "undefined", "unicode_escape")
DECIMALS, THOUSANDS = (".", ","), (",", ".", " ", "'", "\u00a0", "\u202f", "\u2019")
MAX_LINE = 1 << 22  # characters; a table of 10,000 columns has a tenth of that
MAX_NAME = 1000
CATEGORICAL = "list the column under 'categorical'"  # the fix for numbers that are names
SAMPLE_SIZE = 1000  # rows or cells that decide the format of a file
HIDDEN = ("Cc", "Cf")  # Unicode's control and format characters
# First bytes of .gz, .zip and .xlsx, .bz2, .xz, .xls.
PACKED = (b"\x1f\x8b", b"PK\3\4", b"BZh", b"\xfd7zXZ", b"\xd0\xcf\x11\xe0")
COMMON = {*"이다는을의에가고하지로도사기자한인어서대시아남여성"}  # Hangul, of which Korean texts have some
MINUS = "\u2212"  # typographic minus, which pandas does not read


@dataclass(frozen=True)
class CsvFormat:
    """The format of a CSV file; header: True, False (columns 0, 1, ...), names, or lines above it; trim: of spaces."""

    separator: str = ","
    header: bool | int | tuple[str, ...] = True
    na_values: tuple[str | int | float, ...] = ()
    encoding: str = "utf-8"
    trim: bool = False
    decimal: str = "."
    thousands: str | None = None

    @property
    def delimiter(self) -> str:
        return SEPARATORS.get(self.separator, self.separator)

    @property
    def above(self) -> int:
        """Lines above the header, or above the rows."""
        return 0 if isinstance(self.header, bool | tuple) else self.header


PLAIN = CsvFormat()
KEYS = tuple(field.name for field in fields(CsvFormat))  # of a dataset's entry


def find_problem(key: str, value: object) -> str:
    """Return why a value of a key cannot be the format of a file, "" if it can; its type is right."""
    if key == "separator" and value not in SEPARATORS:
        printable = len(value) == 1 and (value == "\t" or " " <= value < "\x7f")
        if not printable or value == '"' or value.isalnum():
            return f"is not a separator; give one character, or {' or '.join(SEPARATORS)}"
    if key == "encoding" and not _is_encoding(value):
        return f"is unknown.{nearest(value, ENCODINGS)}"
    if key == "thousands" and value is not None and value not in THOUSANDS:
        return "is not a thousands separator; give ',', '.', ' ' or \"'\""
    return "are not names; give a text for each column" if key == "header" and value == [] else ""


def _is_encoding(name: str) -> bool:
    try:
        "".encode(name)
        return codecs.lookup(name).name not in NO_FILE_ENCODINGS
    except (LookupError, ValueError):
        return False


def header(path: Path, form: CsvFormat = PLAIN) -> list[str]:
    """Return the names of the columns from the beginning of the file; raise ShapelineError."""
    try:
        with open(path, "rb") as stream:
            if stream.read(6).startswith(PACKED):
                raise ShapelineError(
                    f"{path}: is an archive or a workbook, no text; unpack it, or save it as a CSV file."
                )
        row = next(_read_rows(path, form), [])
    except (OSError, ValueError, csv.Error) as error:
        raise _explain_failure(path, error, form) from error
    if not row:
        above = f" below {form.above} line(s)" if form.above else ""
        raise ShapelineError(f"{path}: holds no line{above}; it is not a table.")
    if form.header is False:
        return [str(number) for number in range(len(row))]
    if isinstance(form.header, tuple):
        if len(form.header) != len(row):
            raise ShapelineError(
                f"dataset key 'header': {len(form.header)} name(s), and the first line of {path} has {len(row)} cells"
                "; give a name per column."
            )
        return list(form.header)
    if "\0" in "".join(row):
        raise ShapelineError(f"{path}: is not written in {form.encoding}; {_suggest_encoding(path, form)}.")
    if broken := [name for name in row if len(f"{name}.".splitlines()) > 1 or len(name) > MAX_NAME]:
        raise ShapelineError(
            f"{path}: its header has the name '{shorten_name(broken[0])}', which is not one line of text; close its "
            "quote, or rename it."
        )
    names = [name or f"Unnamed: {number}" for number, name in enumerate(row)]  # as pandas calls them
    refuse_repeated(f"{path}, header", names)
    return names


def _read_rows(path: Path, form: CsvFormat) -> Iterator[list[str]]:
    """Yield the cells of each line that is not empty, from the header on, or from the rows without a header."""
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE))
    encoding = "utf-8-sig" if codecs.lookup(form.encoding).name == "utf-8" else form.encoding
    with open(path, newline="", encoding=encoding) as stream:
        lines = iter(lambda: stream.readline(MAX_LINE), "")
        for _ in range(form.above):
            next(lines, "")
        if form.separator == "spaces":
            lines = (re.sub(r"[ \t]+", " ", line.strip()) for line in lines)
        for row in csv.reader(map(_check_length, lines), delimiter=form.delimiter, skipinitialspace=form.trim):
            if len(row) > 1 or "".join(row).strip():
                yield [cell.strip() for cell in row] if form.trim else row


def _check_length(line: str) -> str:
    if len(line) == MAX_LINE:
        raise ValueError(f"a line of more than {MAX_LINE:,} characters; it is not a table")
    return line


def frame(path: Path, form: CsvFormat = PLAIN) -> "pd.DataFrame":
    """Return the whole file with the columns of `header`; attrs["words"] lists texts such as NA."""
    names = header(path, form)
    table = _read(path, form, names)
    if form.thousands:
        _check_groups(path, form, table, names)
    doubtful = [
        name for name, cells in table.items() if cells.isna().any() and (holds_texts(cells) or cells.isna().all())
    ]
    words = {}
    if doubtful:
        # Read again, because pandas does not return the words that it treats as missing.
        texts = _read(path, form, names, usecols=doubtful, dtype=str, keep_default_na=False)
        for name, cells in texts.items():
            kept = cells[table[name].isna() & cells.notna()]
            is_number = holds_texts(table[name]) and number_styles(table[name].dropna(), form)
            if len(kept) and cells.nunique() > 1 and not is_number:
                table[name], words[name] = cells, kept.unique().tolist()
    for name, cells in table.items():
        if cells.dtype == object and any(type(cell) is int for cell in cells.head(SAMPLE_SIZE)):
            raise ShapelineError(
                f"{path}, column '{name}': holds whole numbers of more than 64 bits; leave it out of the file, or put "
                "a letter before each, which makes it a column of texts."
            )
    table.attrs["words"] = words
    return table


def _read(path: Path, form: CsvFormat, names: list[str], **more) -> "pd.DataFrame":
    import pandas as pd

    has_header = not (form.header is False or isinstance(form.header, tuple))
    # By default pandas uses the first of too many cells as the row's name and shifts the others by a column.
    how = {"index_col": False, "skiprows": form.above, "encoding": form.encoding, "skipinitialspace": form.trim}
    how["sep"] = r"\s+" if form.separator == "spaces" else form.delimiter
    more = {"decimal": form.decimal, "thousands": form.thousands, "na_values": ["", *form.na_values]} | more
    if (form.thousands or "").isascii():
        how["low_memory"] = False
    else:
        how["engine"] = "python"
    if "usecols" in more:
        more["usecols"] = [names.index(name) for name in more["usecols"]]
    source = path
    try:
        with warnings.catch_warnings(action="error", category=pd.errors.ParserWarning):
            if form.trim and form.separator != "spaces":
                source = io.StringIO()
                csv.writer(source, lineterminator="\n").writerows(_read_rows(path, form))
                source.seek(0)
                how |= {"sep": ",", "skiprows": 0}
            table = pd.read_csv(source, header=0 if has_header else None, **how, **more)
    except pd.errors.ParserWarning as error:
        fix = "name every column in it, set header to the number of lines above it, or remove separators at line ends"
        signs = [sign for sign in ALTERNATIVES[:3] if len(names) == 1 and sign in names[0]]
        fix = f"set separator: {signs[0]!r}" if signs else fix
        raise ShapelineError(
            f"{path}: its rows have more cells than its header has names, {len(names)}; {fix}."
        ) from error
    except (OSError, ValueError, csv.Error, OverflowError) as error:
        raise _explain_failure(path, error, form) from error
    chosen = [names[place] for place in more["usecols"]] if "usecols" in more else names
    if len(chosen) != table.shape[1]:
        raise ShapelineError(
            f"{path}: its header has {len(names)} names and its rows {table.shape[1]} cells; name each column once."
        )
    table.columns = chosen
    return table


def missing_words(path: Path, form: CsvFormat, name: str) -> list[str]:
    """Return the words among the numbers of a column."""
    texts = {"dtype": str, "keep_default_na": False, "na_values": None}
    cells = _read(path, form, header(path, form), usecols=[name], **texts)[name]
    return [
        word for word in cells.unique() if word and not re.fullmatch(_build_pattern(form.decimal, form.thousands), word)
    ]


def missing_column(names: list[str], name: str) -> str:
    """Return the key that fixes a missing column, or the nearest name."""
    if name in [known.strip() for known in names]:
        return "; there are spaces around that name, so set trim: true."
    if len(names) == 1:
        for separator in (",", *ALTERNATIVES):
            if separator in names[0].strip():
                word = {"\t": "tab", " ": "spaces"}.get(separator, separator)
                return f"; its first line is one cell, so set separator: {word!r}."
    if any(re.fullmatch(_build_pattern(".", None), name.strip()) for name in names):
        return "; its first line holds numbers and looks like data, so set header: false, or header: [names]."
    return f".{nearest(name, names)}"


def _explain_failure(path: Path, error: Exception, form: CsvFormat) -> ShapelineError:
    """Return the error for a file that cannot be read, with the key that fixes it."""
    reason = first_line(error)
    if isinstance(error, UnicodeError):
        place = f", byte {error.start:,}" if isinstance(error, UnicodeDecodeError) else ""
        remedy = _suggest_encoding(path, form)
        return ShapelineError(f"{path}: is not written in {form.encoding}{place}; {remedy}.")
    if match := re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", reason):
        expected, line, saw = match.groups()
        return ShapelineError(
            f"{path}, line {line}: {saw} cells, and the lines above have {expected}; set separator, or header to the "
            "number of lines above it, or put cells that hold the separator in quotes."
        )
    if "EOF inside string" in reason:
        return ShapelineError(f"{path}: a quote is opened and never closed ({reason}); close it.")
    return ShapelineError(f"{path}: cannot be read as a CSV file ({reason}); save it again.")


def _suggest_encoding(path: Path, form: CsvFormat) -> str:
    other = _detect_encoding(path)
    is_same = codecs.lookup(other) == codecs.lookup(form.encoding)
    return "save it as a CSV file of texts in UTF-8" if is_same else f"set encoding: {other}, or its own"


def _build_pattern(decimal: str, thousands: str | None) -> str:
    """Return the expression of a number; groups are of three digits, and of two before the last in India."""
    group, point = re.escape(thousands or ""), re.escape(decimal)
    whole = rf"(?:\d{{1,3}}(?:{group}\d{{2,3}})*{group}\d{{3}}|\d+)" if thousands else r"\d+"
    return rf"\s*[-+]?(?:{whole}(?:{point}\d*)?|{point}\d+)(?:[eE][-+]?\d+)?\s*"


def holds_texts(cells: "pd.Series") -> bool:
    """Return whether pandas read a column as texts, which are objects before its version 3."""
    from pandas.api.types import infer_dtype

    return infer_dtype(cells, skipna=True) == "string"


def number_styles(cells: Iterable[str], form: CsvFormat) -> list[tuple[str, str | None]]:
    """Return the (decimal, thousands) with which most texts are numbers, the likeliest first; none below half."""
    texts = [text.strip() for text in itertools.islice(cells, SAMPLE_SIZE)]
    own = form.decimal, form.thousands

    def count(style: tuple[str, str | None]) -> int:
        return sum(map(bool, map(re.compile(_build_pattern(*style)).fullmatch, texts)))

    counts = {own: count(own)}
    if texts and counts[own] == len(texts):
        return [own]
    joined = "".join(text for text in texts if re.search(r"\d", text))
    styles = [(point, group) for group in (None, *THOUSANDS) for point in DECIMALS if point != group]
    styles = [
        (point, group)
        for point, group in styles
        if (not group or group in joined) and (point in "." or point in joined or group == ".")
    ]
    # 1,234 is a number below two in a file with semicolons, and a thousand in others.
    semicolons = form.separator == ";"
    styles.sort(key=lambda style: (style[0] != form.decimal and not semicolons, style == (".", ",") and semicolons))
    counts |= {style: count(style) for style in styles if style != own}
    most = max(counts.values())
    best = [style for style, count in counts.items() if count == most and 2 * most > len(texts)]
    return [own] if own in best else best


def refuse_numbers(where: str, cells: "pd.Series", form: CsvFormat, fix: str = CATEGORICAL) -> None:
    """Raise ShapelineError for a column of texts that are numbers in another format, or with a few words."""
    texts = cells.dropna()
    styles = number_styles(texts, form) if holds_texts(cells) else []
    if holds_texts(cells) and (signed := texts[texts.str.contains(MINUS)]).size:
        if number_styles(texts.str.replace(MINUS, "-"), form):
            raise ShapelineError(
                f"{where}: holds numbers such as {signed.iloc[0]!r}, whose minus is the sign U+2212; write '-' in the "
                f"file, or {fix}."
            )
    if not styles:
        return
    odd = texts[~texts.str.fullmatch(_build_pattern(form.decimal, form.thousands))]
    if (form.decimal, form.thousands) not in styles:
        example = odd[odd.str.fullmatch(_build_pattern(*styles[0]))].iloc[0]
        keys = " or ".join(describe_style(style) for style in styles[:2])
        usual = (form.decimal, form.thousands) == (PLAIN.decimal, PLAIN.thousands)
        given = describe_style((form.decimal, form.thousands))
        keys = f"set {keys} for the file" if usual else f"the file's key is {given}: replace it by {keys}"
        raise ShapelineError(f"{where}: holds numbers such as {example!r}; {keys}, or {fix}.")
    if len(odd):
        words = list(dict.fromkeys(text[:40] for text in odd))[:3]
        raise ShapelineError(
            f"{where}: holds {len(texts) - len(odd):,} numbers and {len(odd):,} texts ({', '.join(map(repr, words))}, "
            f"first in row {odd.index[0]}, from 0); set na_values: {words} if they stand for missing cells, or {fix}."
        )


def describe_style(style: tuple[str, str | None]) -> str:
    decimal, thousands = style
    return f"decimal: {decimal!r}" * (decimal == "," or not thousands) + (
        f"{' and ' * (decimal == ',')}thousands: {thousands!r}" if thousands else ""
    )


def _check_groups(path: Path, form: CsvFormat, table: "pd.DataFrame", names: list[str]) -> None:
    """Restore dates such as 31.5.2024; raise ShapelineError if pandas dropped a sign of another meaning, as in 0.5."""
    numeric = [name for name, cells in table.items() if cells.dtype.kind in "iuf"]
    for name, cells in _read(path, form, names, usecols=numeric, dtype=str).items() if numeric else ():
        grouped = cells[cells.str.contains(form.thousands, regex=False, na=False)]
        odd = grouped[~grouped.str.fullmatch(_build_pattern(form.decimal, form.thousands))]
        if len(odd) and len(odd) == cells.count() and (odd.str.count(re.escape(form.thousands)) > 1).all():
            table[name] = cells
        elif len(odd):
            raise ShapelineError(
                f"{path}, column '{name}': holds {odd.iloc[0]!r} in row {odd.index[0]} (from 0), where "
                f"{form.thousands!r} does not precede three digits; correct the keys 'decimal' and 'thousands'."
            )


def detect(path: Path) -> tuple[CsvFormat, list[tuple[str, str | None]]]:
    """Detect the format of a file from its beginning: separator, spaces, and signs in numbers. Also return all
    (decimal, thousands) that fit its numbers, the format's first."""
    form, rows = CsvFormat(encoding=_detect_encoding(path)), []
    for separator in (";", "tab", "|", ",", "spaces"):
        rows = []
        with contextlib.suppress(ValueError, csv.Error):
            rows = list(itertools.islice(_read_rows(path, replace(form, separator=separator)), SAMPLE_SIZE))
        if len(rows) > 1 and len(rows[0]) > 1 and len({len(row) for row in rows}) == 1:
            trim = all(cell[:1] == " " for row in rows for cell in row[1:])
            form = replace(form, separator=separator, trim=trim, header=not _is_data(rows))
            break
    columns = [list(filter(None, cells)) for cells in zip(*rows[1:], strict=False)]
    numbers = [cells for cells in columns if number_styles(cells, form)]
    styles = number_styles(itertools.chain(*numbers), form)
    return replace(form, decimal=styles[0][0], thousands=styles[0][1]) if styles else form, styles


def _is_data(rows: list[list[str]]) -> bool:
    """Return whether the first row has a number and a text that recurs in its column, or only numbers and a decimal."""
    numbers = [bool(re.fullmatch(_build_pattern(".", None), cell.strip())) for cell in rows[0]]
    if all(numbers):  # a header of whole numbers is possible: columns or years
        return not all(cell.strip().isdigit() for cell in rows[0])
    below = zip(rows[0], *rows[1:], strict=False)
    return any(numbers) and any(
        first in cells
        for (first, *cells), is_number in zip(below, numbers, strict=True)
        if not is_number and first.strip()
    )


def _detect_encoding(path: Path) -> str:
    with open(path, "rb") as stream:
        first = stream.read(2)
    if first in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return "utf-16"
    if b"\0" in first:
        return "utf-16-be" if first[:1] == b"\0" else "utf-16-le"
    for encoding in itertools.chain(["utf-8"], map(_guess_encoding, [path]), ["cp1252"]):  # guessed only if needed
        with open(path, encoding=encoding) as stream, contextlib.suppress(UnicodeError):
            while stream.read(MAX_LINE):
                pass
            return encoding
    return "latin-1"


def _guess_encoding(path: Path) -> str:
    """Return the likeliest encoding of texts that are not in UTF-8, from the bytes of their letters."""
    with open(path, "rb") as stream:
        content = stream.read(MAX_LINE)
    japanese = content.decode("shift_jis", "replace")
    if len(re.findall("[\u3041-\u30ff]", japanese)) > len(re.findall("[^\0-\x7f\u3000-\u30ff\u4e00-\u9fff]", japanese)):
        return "shift_jis"
    words = re.findall(rb"[A-Za-z]?[\x80-\xff]+[A-Za-z]?", content)
    if 2 * sum(len(word) == 1 or word[:1].isalpha() or word[-1:].isalpha() for word in words) >= len(words):
        return "cp1252"  # letters with accents are among plain ones
    letters = [byte for byte in b"".join(words) if byte > 0x7F]
    if 2 * sum(byte >= 0xE0 for byte in letters) > len(letters):  # small letters of Cyrillic
        return "cp1251"
    hangul = re.findall("[\uac00-\ud7a3]", content.decode("euc_kr", "replace"))
    return "euc_kr" if 2 * len(hangul) > 0.9 * len(letters) and COMMON & {*hangul} else "gb18030"


def refuse_repeated(where: str, names: list[str]) -> None:
    """Raise ShapelineError if two names are equal or look equal: one could be the target, one a feature."""
    alike: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        characters = unicodedata.normalize("NFC", str(name))
        visible = "".join(char for char in characters if unicodedata.category(char) not in HIDDEN)
        alike.setdefault(visible.strip(), []).append(number)
    twice = [numbers for numbers in alike.values() if len(numbers) > 1]
    if twice:
        name = names[twice[0][0]]
        places = " and ".join(str(number + 1) for number in twice[0])
        others = ", ".join(repr(names[numbers[0]]) for numbers in twice[1:5])
        hidden = (
            "" if len({names[number] for number in twice[0]}) == 1 else ", but for spaces or signs that nobody sees"
        )
        raise ShapelineError(
            f"{where}: the name '{shorten_name(name)}' occurs twice or more (columns {places}{hidden})"
            f"{f', and {others} too' if others else ''}; rename all but one."
        )
