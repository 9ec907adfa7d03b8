"""Parts of a text as character spans: passages, sentences, words, or those that a user gives."""

import re
from collections.abc import Iterable, Sequence
from numbers import Integral

from shapeline.errors import ShapelineError, nearest

Span = tuple[int, int]
KINDS = ("message", "passage", "sentence", "word")
PASSAGE = re.compile(r"\S(?:.*?\S)??(?=\s*\n[ \t]*\r?\n|\s*\Z)", re.DOTALL)
WORD = re.compile(r"\S+")
LINE = re.compile(r"\S(?:.*\S)?")
# Ends of sentences: punctuation, perhaps closing quotes, then white space; East Asian full stops need no space.
END = re.compile(r"""(?:[.!?…]+["'”’»)\]]*(?=\s)|[。！？]+["'”’»」』）]*)\s*""")
ABBREVIATION = re.compile(
    r"""(?:^|[\s("'“‘])(?:[A-Z]|(?:[A-Za-z]\.)+[A-Za-z]|Mrs?|Ms|Dr|Prof|St|Jr|Sr|vs|etc|cf|al|Fig|No|Nos|Vol|pp?|ca|approx|Inc|Ltd|Co)\.$"""
)


def split_text(text: str, features: object, where: str) -> list[Span]:
    """Return the spans of the parts of a text, in order, without the white space around them.

    features: "passage", "sentence", "word", or (start, end) pairs of characters.
    """
    if isinstance(features, str):
        if features not in KINDS:
            raise ShapelineError(f"{where}: features is '{features}'.{nearest(features, KINDS)}")
        return {"passage": _passages, "sentence": _sentences, "word": _words}[features](text)
    return _check_spans(text, features, where)


def _words(text: str) -> list[Span]:
    return [match.span() for match in WORD.finditer(text)]


def _passages(text: str) -> list[Span]:
    return [match.span() for match in PASSAGE.finditer(text)]


def _sentences(text: str) -> list[Span]:
    """Sentences; a line break ends one, an abbreviation or an initial does not."""
    spans = []
    for line in LINE.finditer(text):
        start = line.start()
        for end in END.finditer(text, line.start(), line.end()):
            stop = end.start() + len(end.group().rstrip())
            if not ABBREVIATION.search(text, start, stop):
                spans.append((start, stop))
                start = end.end()
        if start < line.end():
            spans.append((start, line.end()))
    return spans


def _check_spans(text: str, features: object, where: str) -> list[Span]:
    """Spans as a user gives them, checked, sorted and without the white space around them."""
    features = features.tolist() if hasattr(features, "tolist") else features  # of an array
    given = list(features) if isinstance(features, Iterable) else []
    pairs = [tuple(pair) for pair in given if isinstance(pair, Sequence) and not isinstance(pair, str)]
    whole = all(len(pair) == 2 and all(isinstance(end, Integral) for end in pair) for pair in pairs)
    if not given or len(pairs) < len(given) or not whole:
        said = " ".join(repr(features).split())[:60]
        raise ShapelineError(
            f"{where}: features is {said}; give one of {', '.join(KINDS)}, or (start, end) pairs of characters."
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
