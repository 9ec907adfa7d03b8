"""A model of transformers and its tokenizer, from Python: texts as pieces of words, and what stands for absent ones."""

import dataclasses
import logging
from dataclasses import dataclass
from typing import Any

import numpy as np

from shapeline.api.texts import check_words
from shapeline.datasets import fast_tokenizer, tokenizer
from shapeline.datasets.tokenizer import PAIR, Tokenizer
from shapeline.errors import ShapelineError

log = logging.getLogger(__name__)
PIPELINE = ("model", "tokenizer", "task")  # what a pipeline of transformers has
WHERE = "explain: tokenizer"
TOLD = {"delete": "masked words are deleted", "pad": "padding outside the attention mask"}


@dataclass(frozen=True, eq=False)
class Cutter:
    """How texts become pieces: the tokenizer, and the most tokens that the model takes, None where that is not said."""

    tokenizer: Tokenizer
    most: int | None


def _joined(inputs: Any) -> list[str] | None:
    """Pairs of texts as documents of two sentences; None of other inputs. Raises ShapelineError for some of each."""
    each = list(inputs) if isinstance(inputs, list | tuple | np.ndarray) else []
    if not any(_holds_text(one) for one in each):
        return None
    for place, one in enumerate(each):
        if not _holds_text(one) or len(one) != 2 or not all(isinstance(text, str) and PAIR not in text for text in one):
            raise ShapelineError(
                f"explain: inputs: the item at position {place} is not a pair of texts; give ('first', 'second') each"
            )
    return [f"{first}{PAIR}{second}" for first, second in each]


def _holds_text(one: Any) -> bool:
    return isinstance(one, list | tuple | np.ndarray) and any(isinstance(text, str) for text in one)


def read_text_model(model: Any, given: Any, inputs: Any) -> tuple[Any, Cutter | None, Any]:
    """The model as a network of ids, what cuts texts for it, and the inputs, pairs of texts joined to one each; the
    model and the inputs as they are where there is no tokenizer.

    given: the tokenizer beside the model; a pipeline of transformers has both. Raises ShapelineError.
    """
    if given is None and all(hasattr(model, name) for name in PIPELINE):
        model, given = model.model, model.tokenizer
    if given is None:
        return model, None, inputs
    from shapeline.models import adapters, text_network

    cut = fast_tokenizer.wrap_fast_tokenizer(WHERE, given)
    if not text_network.is_of_transformers(model):
        raise ShapelineError(
            f"explain: tokenizer: is of a model of transformers, and the model is a {type(model).__name__}; a function "
            "takes texts as they are, so leave the tokenizer out"
        )
    bounds = [text_network.most_positions(model), fast_tokenizer.most_tokens(given)]
    task = {"classification": "logits"}.get(task := text_network.task_of(model), task)
    pairs = _joined(inputs)
    separator = None if pairs is None else cut.separator
    network = adapters.wrap(text_network.TextNetwork(model, cut.pad, separator=separator), task)
    cutter = Cutter(cut, min((bound for bound in bounds if bound), default=None))
    return network, cutter, inputs if pairs is None else pairs


def pieces(texts: list[str], cutter: Cutter) -> tuple[np.ndarray, np.ndarray, list[list[str]], dict]:
    """Return ids and words of the tokens (n, most tokens), the words of each text, and the card; ShapelineError for
    none."""
    whole = max(1, *(len(text) for text in texts)) * 8 + 8  # more than any has
    made = tokenizer.tokenize(texts, cutter.tokenizer, cutter.most or whole)
    check_words(made.words, list(map(len, made.ids)))
    for place, (second, words) in enumerate(zip(made.seconds, made.words, strict=True)):
        if second is not None and not 0 < second < len(words):
            raise ShapelineError(
                f"explain: inputs: the {'second' if second else 'first'} sentence of the pair at position {place} has "
                "no words; leave the pair out"
            )
    long = int((made.sizes > made.length).sum())
    if long:
        warning = "explain: %d of %d texts are longer than the %d tokens that the model takes; the rest is left out"
        log.warning(warning, long, len(texts), made.length)
    ids, owners = tokenizer.padded(dataclasses.replace(made, length=max(map(len, made.ids))))
    own = cutter.tokenizer
    card = {
        "kind": "text",
        "unit": "word",
        "input_shape": [ids.shape[1]],
        "absent_id": own.pad,
        "mask_id": own.mask,
        "vocabulary": own.vocabulary,
    }
    return ids, owners, made.words, card


def removal(reference: Any, card: dict) -> tuple[str | dict, str]:
    """Return what stands for an absent word, as settings and in words: delete, mask, pad, or a token. Raises
    ShapelineError."""
    named, vocabulary = "delete" if reference is None else reference, card["vocabulary"]
    if isinstance(named, str) and named in TOLD:
        return named, TOLD[named]
    if named == "mask":
        return named, "the mask token"
    if not isinstance(named, str) or named not in vocabulary:
        raise ShapelineError(
            f"explain: reference: {named!r} is not a token of the tokenizer; give 'delete', 'mask', 'pad' or a token"
        )
    return {"kind": "pad", "id": vocabulary.index(named)}, f"the token '{named}'"
