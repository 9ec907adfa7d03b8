"""A model that explains data other than those that it was trained on: what the two must have in common."""

from collections.abc import Mapping

from shapeline.datasets import checks
from shapeline.datasets.registry import Source
from shapeline.errors import ShapelineError

PAIRS = "pairs of sentences"
FIXED_SIZES = ("side", "height", "width", "input_shape")  # of a model that takes images of one size


def describe_entry(source: Source | None, settings: dict) -> dict:
    """Return what an entry tells of its data, as `difference` compares it: nothing of a user's function."""
    if source is None:
        return {}
    facts = {"kind": source.kind, "task": source.task}
    shape = checks.input_shape(source, settings)
    if source.classes:
        chosen = checks.choose_classes(source.name, source.classes, settings.get("classes"))
        facts["classes"] = [source.classes[index] for index in chosen]
    if source.kind == "image" and shape:
        facts["channels"], facts["size"] = shape[0], list(shape[1:])
    if source.kind == "table" and source.feature_names:
        facts["columns"] = list(source.feature_names)
    if source.kind == "text":
        tokens = checks.text_settings(source, settings)
        facts["unit"], facts["tokens a document"] = tokens.unit, tokens.length
        if settings.get("tokenizer"):
            facts |= {"unit": "word", "tokenizer": settings["tokenizer"]}
        facts["documents"] = PAIRS if settings.get("text_pair") else "single texts"
    return facts


def describe_card(card: Mapping) -> dict:
    """The same of prepared data."""
    shape, kind = card["input_shape"], card["kind"]
    facts = {"kind": kind, "task": card.get("task", "classification"), "classes": card["classes"]}
    if kind == "image":
        facts["channels"], facts["size"] = shape[0], list(shape[1:])
    if kind == "table":
        facts["columns"], facts["categories"] = card["feature_names"], card.get("categories", {})
    if kind == "text":
        facts |= {"unit": card["unit"], "tokens a document": shape[0], "words": card["vocabulary_digest"]}
        facts["documents"] = PAIRS if "separator_id" in card else "single texts"
    return facts


def difference(trained: dict, explained: dict, any_size: bool) -> str | None:
    """Return in words what keeps a model of some data from explaining others, None where nothing known does."""
    for name in [key for key in trained if key in explained and not (any_size and key == "size")]:
        own, other = trained[name], explained[name]
        if own == other:
            continue
        if name == "size":
            own, other = ("x".join(map(str, sides)) for sides in (own, other))
            return f"the model takes images of {own} pixels alone and these have {other}"
        if name in ("words", "categories"):  # long, and a digest
            return f"their {name} differ from those of the model's data"
        return f"their {name}: {_plain(other)}; of the model's data: {_plain(own)}"
    return None


def check(sizes: Mapping, trained: Mapping, explained: Mapping) -> None:
    """Raise ShapelineError where the cards of the training and the explained data do not fit."""
    any_size = not set(sizes) & set(FIXED_SIZES)
    differs = difference(describe_card(trained), describe_card(explained), any_size)
    if differs:
        raise ShapelineError(
            f"dataset '{explained['name']}' cannot be explained by a model trained on '{trained['name']}': "
            f"{differs}; give a dataset like that of the model"
        )


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
