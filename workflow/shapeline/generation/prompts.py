"""A prompt with removable parts: a coalition of parts is rendered as the text or chat messages for a model."""

import csv
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path

import numpy as np

from shapeline.errors import ShapelineError, first_line, name_type, nearest, rename_place, shorten_name

Span = tuple[int, int]
KINDS = ("message", "passage", "sentence", "word")
PASSAGE = re.compile(r"\S(?:.*?\S)??(?=\s*\n[ \t]*\r?\n|\s*\Z)", re.DOTALL)
WORD = re.compile(r"\S+")
LINE = re.compile(r"\S(?:.*\S)?")
# Ends of sentences: punctuation (also Arabic, Urdu, Devanagari, Armenian, Ethiopic), optional closing quotes, then
# white space; East Asian full stops need no space.
END = re.compile(r"""(?:[.!?…؟۔।॥։።]+["'”’»)\]]*(?=\s)|[。．！？｡]+["'”’»」』）]*)\s*""")
ABBREVIATION = re.compile(
    r"""(?<![^\s("'“‘])(?:[A-Z]|(?:[A-Za-z]\.)+[A-Za-z]|Mrs?|Ms|Dr|Prof|St|Jr|Sr|vs|etc|cf|al|Fig|(?<![.!?…]\s)Nos?|Vol|pp?|ca|approx|Inc|Ltd|Co)\.$"""
)
NUMBER = re.compile(r"\d{1,3}\.")  # of a list, at the beginning of a line


def split_text(text: str, features: object, where: str) -> list[Span]:
    """Return the spans of a text's parts in order, stripped: "passage", "sentence", "word", or (start, end) pairs."""
    if isinstance(features, str):
        if features not in KINDS:
            raise ShapelineError(f"{where}: features is '{features}'.{nearest(features, KINDS)}")
        if features == "sentence":
            return _split_sentences(text)
        return [match.span() for match in {"passage": PASSAGE, "word": WORD}[features].finditer(text)]
    return _check_spans(text, features, where)


def _split_sentences(text: str) -> list[Span]:
    """Return the sentences' spans; a line break ends a sentence, an abbreviation or a list number does not."""
    spans = []
    for line in LINE.finditer(text):
        start = line.start()
        for end in END.finditer(text, line.start(), line.end()):
            stop = end.start() + len(end.group().rstrip())
            if not ABBREVIATION.search(text, start, stop) and not NUMBER.fullmatch(text, line.start(), stop):
                spans.append((start, stop))
                start = end.end()
        if start < line.end():
            spans.append((start, line.end()))
    return spans


def _check_spans(text: str, features: object, where: str) -> list[Span]:
    """Return a user's spans, checked, sorted and stripped of white space."""
    features = features.tolist() if hasattr(features, "tolist") else features  # of an array
    items = list(features) if isinstance(features, Iterable) else []
    pairs = [tuple(pair) for pair in items if isinstance(pair, Sequence) and not isinstance(pair, str)]
    are_pairs = all(len(pair) == 2 and all(isinstance(end, Integral) for end in pair) for pair in pairs)
    if not items or len(pairs) < len(items) or not are_pairs:
        short = " ".join(repr(features).split())[:60]
        raise ShapelineError(
            f"{where}: features is {short}; give one of {', '.join(KINDS)}, or (start, end) pairs of characters."
        )
    spans, last = [], 0
    for start, end in sorted(pairs):
        if not last <= start < end <= len(text) or not text[start:end].strip():
            raise ShapelineError(
                f"{where}: the span ({start}, {end}) overlaps another, is empty or lies outside the {len(text)} "
                "characters; give spans that do not overlap."
            )
        last = end
        part = text[start:end]
        spans.append((start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())))
    return spans


WHERE = "explain_generation"
REMOVALS = ("delete", "placeholder", "mask")
SYSTEM = ("system", "developer")  # roles whose messages stay
FIXED = -1  # player number of text that is never removed
CHAT_TEMPLATE = "Context:\n{context}\n\nQuestion: {question}"
PLAIN_TEMPLATE = CHAT_TEMPLATE + "\nAnswer:"
Rendered = str | list[dict]


@dataclass(frozen=True)
class Content:
    """Pieces of text, the player of each (FIXED if never removed), and the white space between them, for `_join`."""

    pieces: tuple[str, ...]
    players: tuple[int, ...]
    gaps: tuple[str, ...]

    @classmethod
    def of(cls, text: str, spans: Sequence[Span], first: int = 0) -> "Content":
        """Return the pieces of a text whose spans are the players from `first` on."""
        pieces, players, gaps, gap, index = [], [], [], "", 0
        ends = [(start, end, first + number) for number, (start, end) in enumerate(spans)]
        for start, end, player in [*ends, (len(text), len(text), FIXED)]:
            between = text[index:start]
            if between.strip():
                gaps.append(gap + between[: len(between) - len(between.lstrip())])
                pieces.append(between.strip())
                players.append(FIXED)
                gap = between[len(between.rstrip()) :]
            else:
                gap += between
            if end > start:
                gaps.append(gap)
                pieces.append(text[start:end])
                players.append(player)
                gap = ""
            index = end
        return cls(tuple(pieces), tuple(players), (*gaps, gap))

    def render(self, kept: np.ndarray, placeholder: str | None = None) -> str:
        """Return the text of a coalition, kept (d,) bool; a removed part leaves the placeholder, or nothing."""
        parts, gaps, last = [], [], None
        for piece, player, before in zip(self.pieces, self.players, self.gaps, strict=False):
            gaps.append(before)
            is_kept = player == FIXED or kept[player]
            if is_kept or placeholder is not None:
                parts.append(_join(gaps, last, player) + (piece if is_kept else placeholder))
                gaps, last = [], player
        return self.gaps[0] * (not parts) + "".join(parts) + self.gaps[-1]


def _join(gaps: Sequence[str], before: int | None, after: int) -> str:
    """Return the white space between pieces of two players: that next to fixed text, else the widest."""
    if before is None or (before == FIXED and after != FIXED):
        return gaps[0]
    candidates = [gaps[0], gaps[-1]] if before == FIXED else [gaps[-1]] if after == FIXED else gaps
    return max(candidates, key=lambda space: (space.count("\n"), len(space)))


@dataclass(frozen=True)
class Prompt:
    """A text, or messages of a chat, with d removable parts; heads: the messages without their contents; whole: the
    player that removes each message."""

    parts: tuple[str, ...]
    contents: tuple[Content, ...]
    heads: tuple[dict, ...] = ()
    whole: tuple[int, ...] = ()

    @property
    def d(self) -> int:
        """Number of parts."""
        return len(self.parts)

    def render(self, kept: np.ndarray, placeholder: str | None = None) -> Rendered:
        """Return the text or messages of a coalition, kept (d,) bool."""
        if not self.heads:
            return self.contents[0].render(kept, placeholder)
        messages = []
        for head, content, player in zip(self.heads, self.contents, self.whole, strict=True):
            if player == FIXED or kept[player]:
                messages.append(head | {"content": content.render(kept, placeholder)})
            elif placeholder is not None:
                messages.append(head | {"content": placeholder})
        return messages

    def list_texts(self) -> list[str]:
        """Return every text of the prompt, with fixed and removable parts."""
        return [content.render(np.ones(self.d, bool)) for content in self.contents]


def build_prompt(
    prompt: str | Sequence[Mapping], context: object, features: object, template: str | None, chat: bool
) -> Prompt:
    """Return the prompt of a call: parts of the context, else of earlier messages, else of the text."""
    if isinstance(prompt, str) and prompt.strip():
        if isinstance(features, str) and features == "message":
            raise ShapelineError(f"{WHERE}: features='message' is for a list of messages; choose passage or sentence.")
        text, spans = _fill_template(prompt, context, features, template or (CHAT_TEMPLATE if chat else PLAIN_TEMPLATE))
        contents, parts = (Content.of(text, spans),), tuple(text[start:end] for start, end in spans)
        return Prompt(parts, contents, ({"role": "user"},), (FIXED,)) if chat else Prompt(parts, contents)
    heads, texts = read_messages(prompt)
    question, removable = _find_removable(heads, texts)
    if isinstance(features, str) and features == "message":
        return _split_messages(heads, texts, removable, context)
    if not isinstance(features, str) and context is None and len(removable) > 1:
        raise ShapelineError(
            f"{WHERE}: spans are of one text; give their text as context, or one message before the last."
        )
    contents, parts = [], []
    for index, text in enumerate(texts):
        spans: list[Span] = []
        if index == question and (context is not None or not removable):
            text, spans = _fill_template(text, context, features, template or CHAT_TEMPLATE)
        elif context is None and index in removable:
            spans = split_text(text, features, WHERE)
        contents.append(Content.of(text, spans, len(parts)))
        parts += [text[start:end] for start, end in spans]
    return Prompt(tuple(parts), tuple(contents), heads, (FIXED,) * len(heads))


def _split_messages(heads: tuple[dict, ...], texts: tuple[str, ...], removable: list[int], context: object) -> Prompt:
    """Return the prompt whose parts are the removable messages."""
    if context is not None:
        raise ShapelineError(f"{WHERE}: features='message' takes no context; choose passage, or leave context out.")
    if not removable:
        raise ShapelineError(f"{WHERE}: there is no message before the question; choose features='sentence' or 'word'.")
    players = tuple(removable.index(index) if index in removable else FIXED for index in range(len(heads)))
    contents = tuple(Content.of(text, []) for text in texts)
    return Prompt(tuple(texts[index] for index in removable), contents, heads, players)


def _find_removable(heads: Sequence[Mapping], texts: Sequence[str]) -> tuple[int, list[int]]:
    """Return the index of the user's last message, which is never removed, nor are later messages; and the indices of
    the messages before it with a text, except the system's."""
    users = [index for index, head in enumerate(heads) if head["role"] == "user"]
    question = users[-1] if users else len(heads) - 1
    return question, [i for i in range(question) if heads[i]["role"] not in SYSTEM and texts[i].strip()]


def read_messages(prompt: object) -> tuple[tuple[dict, ...], tuple[str, ...]]:
    """Return chat messages without their contents, and the text of each. Raises ShapelineError."""
    messages = as_list(prompt) or []
    texts = [_read_content(message) if isinstance(message, Mapping) else None for message in messages]
    for index, (message, text) in enumerate(zip(messages, texts, strict=True)):
        if text is None or not isinstance(message.get("role"), str):
            remedy = 'give {"role": "user", "content": "text"}, or as content [{"type": "text", "text": "..."}]'
            raise ShapelineError(f"{WHERE}: message {index + 1} is {shorten_value(message)}; {remedy}.")
    if not messages:
        raise ShapelineError(
            f"{WHERE}: the prompt is {shorten_value(prompt)}; give a text that is not empty, or chat messages."
        )
    heads = ({key: value for key, value in message.items() if key != "content"} for message in messages)
    return tuple(heads), tuple(texts)


def _read_content(message: Mapping) -> str | None:
    """Return the text of a message, of which lists of parts are lines; None if it holds anything but texts."""
    content = message.get("content")
    if content is None and message.get("tool_calls"):
        return ""
    if isinstance(content, str):
        return content
    parts = [part.get("text") if isinstance(part, Mapping) else part for part in as_list(content) or [None]]
    return "\n".join(parts) if all(isinstance(part, str) for part in parts) else None


def as_list(value: object) -> list | None:
    """Return the items of a container that is neither text nor mapping; None for anything else."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable) or getattr(value, "ndim", 1) != 1:
        return None
    return value.tolist() if hasattr(value, "tolist") else list(value)


def shorten_value(value: object) -> str:
    """Return the beginning of a value's repr, on one line."""
    return shorten_name(" ".join(repr(value).split())[:80])


def _fill_template(question: str, context: object, features: object, template: str) -> tuple[str, list[Span]]:
    """Return the text of a question with its context by the template, and the spans of the parts."""
    if context is None:
        spans = split_text(question, features, WHERE)
        return question, spans
    passages = [context] if isinstance(context, str) else as_list(context)
    if passages is None or not all(isinstance(passage, str) for passage in passages):
        raise ShapelineError(f"{WHERE}: context is {shorten_value(context)}; give a text or a list of texts.")
    if not passages or not all(passage.strip() for passage in passages):
        raise ShapelineError(f"{WHERE}: the context is empty or holds an empty passage; leave it out.")
    before, mark, after = str(template).partition("{context}")
    if not mark or "{question}" not in before + after:
        raise ShapelineError(f"{WHERE}: template is {shorten_value(template)}; it needs {{context}} and {{question}}.")
    before, after = (part.replace("{question}", question) for part in (before, after))
    if not isinstance(features, str) and len(passages) > 1:
        raise ShapelineError(f"{WHERE}: spans are of one text; give the context as one text.")
    text, spans = before, []
    for index, passage in enumerate(passages):
        text += "\n\n" * (index > 0)
        single = isinstance(features, str) and features == "passage" and not isinstance(context, str)
        trimmed = len(passage) - len(passage.lstrip()), len(passage.rstrip())
        part_spans = [trimmed] if single else split_text(passage, features, WHERE)
        spans += [(len(text) + start, len(text) + end) for start, end in part_spans]
        text += passage
    return text + after, spans


COLUMNS = ("question", "messages", "context", "answer", "contrast", "support")
SUFFIXES = (".jsonl", ".csv")


@dataclass(frozen=True)
class PromptRow:
    """A prompt of a file. where: file and line; question: a text or chat messages; context: passages, None without;
    answer, contrast: None where not given; support: numbers or texts of supporting parts."""

    where: str
    question: str | list
    context: list[str] | None = None
    answer: str | None = None
    contrast: str | None = None
    support: tuple[int | str, ...] = ()

    def build(self, features: str) -> Prompt:
        """Return the prompt as a chat with its parts. Raises ShapelineError, with the line of the file."""
        with rename_place(WHERE, self.where):
            return build_prompt(self.question, self.context, features, None, True)

    def number_support(self, parts: Sequence[str]) -> list[int]:
        """Return the numbers of the supporting parts. Raises ShapelineError for support that is no part."""
        result: list[int] = []
        for item in self.support:
            plain = " ".join(str(item).split())
            clean = [" ".join(part.split()) for part in parts] if plain else []
            matching = [index for index, part in enumerate(clean) if part in plain or plain in part]
            indices = matching if isinstance(item, str) else [item] if 0 <= item < len(parts) else []
            if not indices:
                raise ShapelineError(
                    f"{self.where}: support {item!r:.60} is none of the {len(parts)} parts; give the number of a part, "
                    "from 0, or its text"
                )
            result += indices
        return sorted(set(result))


def read_prompts(path: str | os.PathLike) -> list[PromptRow]:
    """Return the prompts of a .jsonl or .csv file. Raises ShapelineError, in one line, for a malformed file."""
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
    rows = [_read_row(where, entry) for where, entry in entries(file, text)]
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
            raise ShapelineError(f"{where}: it is {name_type(entry)}; write an object with a question")
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
                name: _list(row[name], split) for name, split in (("context", "\n\n"), ("support", ";")) if name in row
            }
            yield f"{file}, row {number}", row
    except csv.Error as error:
        raise ShapelineError(f"{file}: it is not CSV ({first_line(error)}); quote cells with line breaks") from error


def _list(cell: str, split: str) -> list:
    """Return the items of a cell: of a JSON list, else between blank lines or semicolons."""
    if cell.startswith("["):
        try:
            return json.loads(cell)
        except ValueError:
            pass
    items = [item.strip() for item in cell.split(split) if item.strip()]
    return [int(item) if split == ";" and item.isdecimal() else item for item in items]


def _read_row(where: str, entry: Mapping) -> PromptRow:
    """Return a checked prompt. Raises ShapelineError."""
    for name in entry:
        if name not in COLUMNS:
            table = "" if any(known in entry for known in COLUMNS) else " A table is a .csv or .parquet file."
            raise ShapelineError(f"{where}: unknown key '{name}'.{nearest(name, COLUMNS)}{table}")
    values = {name: value for name, value in entry.items() if value is not None}
    if ("question" in values) == ("messages" in values):
        raise ShapelineError(f"{where}: exactly one of question and messages is needed; give one of them")
    question = values.get("question", values.get("messages"))
    if not isinstance(question, str if "question" in values else list) or not question:
        raise ShapelineError(f"{where}: the question is {question!r:.40}; give a text, or messages as a list")
    for name in ("answer", "contrast"):
        if name in values and (not isinstance(values[name], str) or not values[name].strip()):
            raise ShapelineError(f"{where}: {name} is {values[name]!r:.40}; give a text, or leave it out")
    if "contrast" in values and "answer" not in values:
        raise ShapelineError(f"{where}: contrast needs an answer to be contrasted with; give answer")
    context = values.get("context")
    context = [context] if isinstance(context, str) else context
    if context is not None and not (context and all(isinstance(one, str) and one.strip() for one in context)):
        raise ShapelineError(f"{where}: context is {values['context']!r:.40}; give a text or a list of texts")
    support = values.get("support", [])
    support = support if isinstance(support, list) else [support]
    if not all(isinstance(one, str | int) and not isinstance(one, bool) for one in support):
        raise ShapelineError(f"{where}: support is {values['support']!r:.40}; give numbers or texts of parts")
    return PromptRow(where, question, context, values.get("answer"), values.get("contrast"), tuple(support))


def check_parts(rows: Sequence[PromptRow], features: str) -> None:
    """Raise ShapelineError, with its line, for the first prompt with too few parts or wrong support."""
    for row in rows:
        built = row.build(features)
        if built.d < 2:
            raise ShapelineError(f"{row.where}: it has {built.d} parts of kind {features}; choose smaller parts")
        row.number_support(built.parts)
