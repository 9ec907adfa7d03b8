"""Files of prompts for experiments: JSON Lines or CSV with a question or messages, context, answer and support."""

import csv
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shapeline.errors import ShapelineError, first_line, nearest
from shapeline.generation.prompts import build_prompt

COLUMNS = ("question", "messages", "context", "answer", "contrast", "support")
SUFFIXES = (".jsonl", ".csv")


@dataclass(frozen=True)
class PromptRow:
    """A prompt of a file. where: its file and line; question: a text or chat messages; context: its passages, None
    without one; answer and contrast: None where they are not given; support: numbers or texts of supporting parts."""

    where: str
    question: str | list
    context: list[str] | None = None
    answer: str | None = None
    contrast: str | None = None
    support: tuple[int | str, ...] = ()

    def support_of(self, parts: Sequence[str]) -> list[int]:
        """Return the numbers of the supporting parts. Raises ShapelineError where one is no part."""
        result: list[int] = []
        for one in self.support:
            plain = " ".join(str(one).split())
            of_text = [place for place, part in enumerate(parts) if _overlap(" ".join(part.split()), plain)]
            places = of_text if isinstance(one, str) else [one] if 0 <= one < len(parts) else []
            if not places:
                raise ShapelineError(
                    f"{self.where}: support {one!r:.60} is none of the {len(parts)} parts; give the number of a part, "
                    "from 0, or its text"
                )
            result += places
        return sorted(set(result))


def _overlap(part: str, support: str) -> bool:
    return bool(support) and (part in support or support in part)


def read_prompts(path: str | os.PathLike) -> list[PromptRow]:
    """Return the prompts of a .jsonl or .csv file. Raises ShapelineError, one line, for what is wrong with it."""
    file = Path(path)
    if file.suffix.lower() not in SUFFIXES:
        raise ShapelineError(f"{file}: prompts are read from {' or '.join(SUFFIXES)} files; write one of these")
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, FileNotFoundError):
            raise ShapelineError(f"{file}: there is no such file; paths start at the folder of the run") from error
        raise ShapelineError(f"{file}: cannot be read ({first_line(error)}); give a file in UTF-8") from error
    entries = _read_json if file.suffix.lower() == ".jsonl" else _read_csv
    rows = [_row(where, entry) for where, entry in entries(file, text)]
    if not rows:
        raise ShapelineError(f"{file}: it holds no prompt; write one per line")
    return rows


def _read_json(file: Path, text: str) -> Iterator[tuple[str, Mapping]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"{file}, line {number}"
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise ShapelineError(f"{where}: it is not JSON ({first_line(error)}); write an object per line") from error
        if not isinstance(entry, dict):
            raise ShapelineError(f"{where}: it is a {type(entry).__name__}; write an object with a question")
        yield where, entry


def _read_csv(file: Path, text: str) -> Iterator[tuple[str, Mapping]]:
    reader = csv.DictReader(io.StringIO(text), strict=True)
    try:
        for number, entry in enumerate(reader, 2):
            if None in entry or None in entry.values():
                raise ShapelineError(
                    f"{file}, row {number}: it has other cells than the header; quote cells with commas"
                )
            row = {name.strip(): cell.strip() for name, cell in entry.items() if cell.strip()}
            row |= {
                name: _cells(row[name], split) for name, split in (("context", "\n\n"), ("support", ";")) if name in row
            }
            yield f"{file}, row {number}", row
    except csv.Error as error:
        raise ShapelineError(f"{file}: it is not CSV ({first_line(error)}); quote cells with line breaks") from error


def _cells(cell: str, split: str) -> list:
    """Return the items of a cell: of a JSON list, else between blank lines or semicolons."""
    if cell.startswith("["):
        try:
            return json.loads(cell)
        except ValueError:
            pass
    items = [item.strip() for item in cell.split(split) if item.strip()]
    return [int(item) if split == ";" and item.isdecimal() else item for item in items]


def _row(where: str, entry: Mapping) -> PromptRow:
    """Return a checked prompt."""
    for name in entry:
        if name not in COLUMNS:
            raise ShapelineError(f"{where}: unknown key '{name}'.{nearest(name, COLUMNS)}")
    given = {name: value for name, value in entry.items() if value is not None}
    if ("question" in given) == ("messages" in given):
        raise ShapelineError(f"{where}: exactly one of question and messages is needed; give one of them")
    question = given.get("question", given.get("messages"))
    if not isinstance(question, str if "question" in given else list) or not question:
        raise ShapelineError(f"{where}: the question is {question!r:.40}; give a text, or messages as a list")
    for name in ("answer", "contrast"):
        if name in given and (not isinstance(given[name], str) or not given[name].strip()):
            raise ShapelineError(f"{where}: {name} is {given[name]!r:.40}; give a text, or leave it out")
    if "contrast" in given and "answer" not in given:
        raise ShapelineError(f"{where}: contrast needs an answer to be contrasted with; give answer")
    context = given.get("context")
    context = [context] if isinstance(context, str) else context
    if context is not None and not (context and all(isinstance(one, str) and one.strip() for one in context)):
        raise ShapelineError(f"{where}: context is {given['context']!r:.40}; give a text or a list of texts")
    support = given.get("support", [])
    support = support if isinstance(support, list) else [support]
    if not all(isinstance(one, str | int) and not isinstance(one, bool) for one in support):
        raise ShapelineError(f"{where}: support is {given['support']!r:.40}; give numbers or texts of parts")
    return PromptRow(where, question, context, given.get("answer"), given.get("contrast"), tuple(support))


def check_parts(rows: Sequence[PromptRow], features: str) -> None:
    """Raise ShapelineError, with its line, for the first prompt that has no parts or too few, or a wrong support."""
    for row in rows:
        try:
            built = build_prompt(row.question, row.context, features, None, True)
        except ShapelineError as error:
            raise ShapelineError(f"{row.where}: {str(error).partition(': ')[2]}") from error
        if built.d < 2:
            raise ShapelineError(f"{row.where}: it has {built.d} parts of kind {features}; choose smaller parts")
        row.support_of(built.parts)
