"""Texts as inputs of `shapeline.explain`: a feature per word, as words or a tokenizer's tokens."""

import dataclasses
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd

from shapeline.datasets import tokenizer
from shapeline.datasets.text import PAIR, WORD
from shapeline.datasets.tokenizer import Tokenizer
from shapeline.errors import ShapelineError, first_line, name_type
from shapeline.games import references
from shapeline.generation import prompts

log = logging.getLogger(__name__)
ABSENT = 1  # the id of a masked word; 0 is padding
MAX_WORDS = 10_000  # per text; every input is as wide as the longest, and methods evaluate at least as many masks
PIPELINE = ("model", "tokenizer", "task")  # attributes of a transformers pipeline
WHERE = "explain: tokenizer"
DESCRIPTIONS = {"delete": "masked words are deleted", "pad": "padding outside the attention mask"}


def list_texts(given: Any) -> list[str] | None:
    """Return the texts of any container, None where it has none. Raises ShapelineError for a cell without text."""
    if isinstance(given, str | bytes):
        given = [given]
    if isinstance(given, Mapping) or getattr(given, "ndim", 1) > 1:
        return None
    if hasattr(given, "__array__"):
        array = np.ma.asarray(given) if np.ma.isMaskedArray(given) else np.asarray(given)
        cells, numeric = array.reshape(-1).tolist(), array.dtype.kind not in "OUST"
    else:
        cells = list(given) if isinstance(given, Iterable) else []
        numeric = all(isinstance(cell, float) for cell in cells)  # only NaN, which may be numeric
    is_text = any(isinstance(cell, str | bytes) for cell in cells) or all(map(_is_missing, cells))
    if numeric or not is_text:
        return None
    for index, cell in enumerate(cells):
        if _is_missing(cell):
            raise ShapelineError(f"explain: inputs: the text at position {index} is missing ({cell}); leave it out")
        if not isinstance(cell, str):
            fix = "decode it" if isinstance(cell, bytes) else "give texts alone, or rows of a table as a data frame"
            raise ShapelineError(f"explain: inputs: position {index} holds {name_type(cell)} and not a text; {fix}")
    return [str(cell) for cell in cells]


def is_row(series: pd.Series) -> bool:
    """Return whether a Series is a row of a table, although its index has no column names of the model: it holds more
    than texts, or names its cells by texts and itself by the number of a row."""
    if isinstance(series.name, Integral) and all(isinstance(label, str) for label in series.index):
        return True
    others = [cell for cell in series if not isinstance(cell, str) and not _is_missing(cell)]
    has_text = any(isinstance(cell, str) for cell in series)
    return bool(others) and not (has_text and pd.api.types.is_integer_dtype(series.index.dtype))


def pack_texts(texts: list[str], like: Any) -> Any:
    """Return texts in the container type of `like`, a list where that is not of numpy or pandas."""
    if isinstance(like, pd.Series | pd.Index | pd.api.extensions.ExtensionArray):
        dtype = object if isinstance(like.dtype, pd.CategoricalDtype) else like.dtype
        if isinstance(like, pd.Series):
            return pd.Series(texts, dtype=dtype, name=like.name)
        return pd.Index(texts, dtype=dtype) if isinstance(like, pd.Index) else pd.array(texts, dtype=dtype)
    if isinstance(like, np.ndarray) and like.ndim:
        return np.array(texts, dtype=str if like.dtype.kind == "U" else like.dtype)
    return tuple(texts) if isinstance(like, tuple) else texts


def cut_parts(text: str, split: str | Callable[[str], Iterable[str]], index: int) -> list[str]:
    """Return the parts of a text, each with the text up to the next: words, sentences, passages, or those that a
    function returns in order; index: the position of the text. Raises ShapelineError."""
    if split == "word":
        return WORD.findall(text)
    if isinstance(split, str):
        starts = [start for start, _ in prompts.split_text(text, split, "explain")]
    else:
        try:
            parts, starts, end = list(split(text)), [], 0
            for part in parts:
                start = text.index(part, end)
                starts += [start] if part.strip() else []
                end = start + len(part)
        except Exception as error:
            raise ShapelineError(
                f"explain: features: the function fails on the text at position {index} ({first_line(error)}); return "
                "the parts of the text in order, such as list(text)"
            ) from error
    return [text[start:end] for start, end in itertools.pairwise([*[0][: len(starts)], *starts[1:], len(text)])]


def encode_words(
    texts: list[str], instead: object, like: Any, split: str | Callable = "word"
) -> tuple[np.ndarray, list[list[str]], Callable]:
    """Return texts as ids of words or other parts (n, most words), these, and the function from ids to texts in the
    container type of `like`. A masked one is deleted with one adjacent space, or replaced by `instead`."""
    if not isinstance(instead, str | None) or instead in references.KINDS:
        raise ShapelineError(
            f"explain: reference: {instead!r} is not of texts; give the word that replaces a masked one, such as "
            "'[MASK]', or leave it out: then masked words are deleted"
        )
    each = [cut_parts(text, split, index) for index, text in enumerate(texts)]
    check_words(each)
    whole = [index for index, words in enumerate(each) if len(words) == 1]
    if whole:
        unit, remedy = split if isinstance(split, str) else "part", "choose smaller parts"
        if split == "word":
            remedy = "for a language without spaces give as tokenizer the model's own, or as features a function that "
            remedy += "splits a text, such as list"
        warning = "explain: inputs: %d of %d texts are one %s, and so one feature (first at position %d); %s"
        log.warning(warning, len(whole), len(texts), unit, whole[0], remedy)
    known = {word: number for number, word in enumerate(sorted(set().union(*each)), start=ABSENT + 1)}
    ids = np.zeros((len(each), max(map(len, each))), np.int32)
    for row, words in zip(ids, each, strict=True):
        row[: len(words)] = [known[word] for word in words]
    pieces = np.array(["", f"{instead} " if instead else "", *known], dtype=object)

    def decode(rows: np.ndarray) -> Any:
        last = rows[np.arange(len(rows)), (rows != 0).sum(1) - 1] == ABSENT
        joined = map("".join, pieces[rows])
        return pack_texts([text.rstrip() if cut else text for text, cut in zip(joined, last, strict=True)], like)

    return ids, [[word.strip() for word in words] for words in each], decode


def check_words(each: list[list[str]], tokens: list[int] | None = None) -> None:
    """Raise ShapelineError for a text without words or with too many; tokens: of each text with a tokenizer."""
    for index, words in enumerate(each):
        if not words:
            raise ShapelineError(f"explain: inputs: the text at position {index} has no words; leave it out")
        count, unit = (len(words), "words") if tokens is None else (tokens[index], "tokens")
        if count > MAX_WORDS:
            raise ShapelineError(
                f"explain: inputs: the text at position {index} has {count:,} {unit} and the most is {MAX_WORDS:,}; "
                "explain parts of it"
            )


def _is_missing(cell: object) -> bool:
    return bool(pd.api.types.is_scalar(cell) and pd.isna(cell))


@dataclass(frozen=True, eq=False)
class Cutter:
    """The tokenization of texts: the tokenizer, and the model's maximum of tokens, None where unknown."""

    tokenizer: Tokenizer
    most: int | None


def _join_pairs(inputs: Any) -> list[str] | None:
    """Return pairs of texts as documents of two sentences; None for other inputs. Raises ShapelineError for both."""
    each = list(inputs) if isinstance(inputs, list | tuple | np.ndarray) else []
    if not any(_holds_text(one) for one in each):
        return None
    for index, one in enumerate(each):
        if not _holds_text(one) or len(one) != 2 or not all(isinstance(text, str) and PAIR not in text for text in one):
            raise ShapelineError(
                f"explain: inputs: the item at position {index} is not a pair of texts; give ('first', 'second') each"
            )
    return [f"{first}{PAIR}{second}" for first, second in each]


def _holds_text(one: Any) -> bool:
    return isinstance(one, list | tuple | np.ndarray) and any(isinstance(text, str) for text in one)


def read_text_model(model: Any, given: Any, inputs: Any) -> tuple[Any, Cutter | None, Any]:
    """Return the model as a network of ids, its tokenization, and the inputs, with pairs of texts joined; without a
    tokenizer, model and inputs are returned unchanged.

    given: the tokenizer argument; a pipeline of transformers has one. Raises ShapelineError.
    """
    if given is None and all(hasattr(model, name) for name in PIPELINE):
        if model.tokenizer is None:
            raise ShapelineError(
                f"explain: model: the pipeline '{model.task}' prepares its inputs itself; give its model, and inputs "
                "as its image processor or feature extractor prepares them, in an array"
            )
        model, given = model.model, model.tokenizer
    if given is None:
        return model, None, inputs
    from shapeline.models import adapters, torch_models, transformer_models

    model, cut = torch_models.unwrap_parallel(model), tokenizer.wrap_fast_tokenizer(WHERE, given)
    if not torch_models.is_of_transformers(model):
        raise ShapelineError(
            f"explain: tokenizer: is of a model of transformers, and the model is {name_type(model)}; a function "
            "takes texts as they are, so leave the tokenizer out"
        )
    bounds = [transformer_models.limit_positions(model), tokenizer.limit_tokens(given)]
    task = {"classification": "logits"}.get(task := transformer_models.find_task(model), task)
    pairs = _join_pairs(inputs)
    separator = None if pairs is None else cut.separator
    network = adapters.wrap(transformer_models.TextNetwork(model, cut.pad, separator=separator), task)
    cutter = Cutter(cut, min((bound for bound in bounds if bound), default=None))
    return network, cutter, inputs if pairs is None else pairs


def tokenize(texts: list[str], cutter: Cutter) -> tuple[np.ndarray, np.ndarray, list[list[str]], dict]:
    """Return ids and words of the tokens (n, most tokens), the words of each text, and the card."""
    whole = max(1, *(len(text) for text in texts)) * 8 + 8  # an upper bound of tokens
    documents = tokenizer.tokenize(texts, cutter.tokenizer, cutter.most or whole)
    check_words(documents.words, list(map(len, documents.ids)))
    for index, (second, words) in enumerate(zip(documents.seconds, documents.words, strict=True)):
        if second is not None and not 0 < second < len(words):
            raise ShapelineError(
                f"explain: inputs: the {'second' if second else 'first'} sentence of the pair at position {index} has "
                "no words; leave the pair out"
            )
    long = int((documents.sizes > documents.length).sum())
    if long:
        warning = "explain: %d of %d texts are longer than the %d tokens that the model takes; the rest is left out"
        log.warning(warning, long, len(texts), documents.length)
    ids, owners = tokenizer.pad_documents(dataclasses.replace(documents, length=max(map(len, documents.ids))))
    card = {
        "kind": "text",
        "unit": "word",
        "input_shape": [ids.shape[1]],
        "absent_id": cutter.tokenizer.pad,
        "mask_id": cutter.tokenizer.mask,
        "vocabulary": cutter.tokenizer.vocabulary,
    }
    return ids, owners, documents.words, card


def describe_removal(reference: Any, card: dict) -> tuple[str | dict, str]:
    """Return the replacement of a masked word, as settings and in words: delete, mask, pad, or a token."""
    named, vocabulary = "delete" if reference is None else reference, card["vocabulary"]
    if isinstance(named, str) and named in DESCRIPTIONS:
        return named, DESCRIPTIONS[named]
    if named == "mask":
        return named, "the mask token"
    if not isinstance(named, str) or named not in vocabulary:
        raise ShapelineError(
            f"explain: reference: {named!r} is not a token of the tokenizer; give 'delete', 'mask', 'pad' or a token"
        )
    return {"kind": "pad", "id": vocabulary.index(named)}, f"the token '{named}'"
