"""Entries of the configuration as frozen records of typed keys, and the mistakes in one, a line each."""

import json
import os
import re
import reprlib
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from shapeline.errors import ShapelineError, nearest

EXAMPLE, USER_FILE = "path/to/file.py:function", r"^[^:]+\.py:[A-Za-z_]\w*$"
FOLDER = r"^[^:]*/[^:/.]*(\.[^A-Za-z:/.][^:/.]*)*$"  # path/to/folder: a slash, and no suffix of letters
MODEL_FILE = rf"{USER_FILE}|\.(skops|keras|onnx|json|ubj|txt|cbm)$|{FOLDER}"
TEXT = "text"  # the tokenizer of models that take the texts themselves
TOKENIZER = rf"{USER_FILE}|{FOLDER}|^{TEXT}$"
PERCENT = r"^(\d*[1-9]\d*(\.\d+)?|0+\.\d*[1-9]\d*) ?%$"  # above 0
# Corrections for texts that do not match a pattern.
PATTERN_HINTS = {
    PERCENT: "give a number or a percentage above 0, such as 5%",
    USER_FILE: f"write {EXAMPLE}",
    TOKENIZER: "write path/to/file.py:function, path/to/folder of a tokenizer.json, or text (of a model of texts)",
    MODEL_FILE: "name path/to/file.py:function, a .skops, .keras or .onnx file, one of XGBoost (.json, .ubj), LightGBM "
    "(.txt) or CatBoost (.cbm), or path/to/folder of transformers (here: ./folder); save a pipeline by skops.io.dump, "
    "name weights of a network under 'weights', or load another file in a function (framework: function)",
}
REFUSED = "refused"  # the type of errors whose message is a line of the package's own
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
NUMBERS = {"int_type": "a whole number", "float_type": "a number"}
TYPES = NUMBERS | {"bool_type": "true or false", "list_type": "a list", "string_type": "a text"}
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxdict, _SHORT.maxstring, _SHORT.maxother = 3, 12, 6, 120, 120


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _list_known_keys(cls, keys: Any) -> Any:
        """Refuse unknown keys with the list of the known ones, which pydantic's own error lacks."""
        keyed = keys.items() if isinstance(keys, dict) else ()
        unknown = {key: value for key, value in keyed if isinstance(key, str) and key not in cls.model_fields}
        if unknown:
            kind = PydanticCustomError("extra_forbidden", "unknown key", {"allowed": list(cls.model_fields)})
            errors = [{"type": kind, "loc": (key,), "input": value} for key, value in unknown.items()]
            raise ValidationError.from_exception_data(cls.__name__, errors)
        return keys


Positive = Annotated[int, Field(ge=1)]
Entry = TypeVar("Entry", bound=Strict)


def parse(kind: type[Entry], keys: Mapping, where: str) -> Entry:
    """Return the record of a mapping; raise a ShapelineError for its first mistake. where: "{key}" stands for the key.

    Lists may be tuples, and texts paths.
    """
    try:
        return kind.model_validate(json.loads(json.dumps(dict(keys), default=os.fspath)))
    except ValidationError as failure:
        (key, *_) = failure.errors()[0]["loc"]
        errors = [error for error in failure.errors() if error["loc"][0] == key]
        last = errors[-1]  # of the innermost value
        errors = [error for error in errors if error["input"] is last["input"]]
        problem = explain_errors(errors, last["loc"][-1])
        key = ".".join(map(str, last["loc"])) if last["type"] == "extra_forbidden" else key
        raise ShapelineError(f"{where.format(key=key)}: {problem}") from failure


def explain_errors(errors: list[dict], key: Any) -> str:
    """Return the problem of the value of a key, with what is allowed and the nearest name."""
    error = next((e for e in errors if e["type"].startswith("union_tag") and isinstance(e["input"], dict)), errors[0])
    kind, value = error["type"], error["input"]
    if kind == "missing":
        return "is missing; add it"
    if kind == "extra_forbidden":
        return f"unknown key.{nearest(key, error['ctx']['allowed'])}"
    if kind == REFUSED:
        return f"{shorten_value(value)} {error['msg']}"
    if kind == "union_tag_not_found":
        key_of_kind = error["ctx"]["discriminator"].strip("'()")
        if isinstance(value, dict):
            return f"the key '{key_of_kind}' is missing; add it"
        is_name = isinstance(value, str) and NAME.fullmatch(value)
        return f"{shorten_value(value)} is not a mapping of keys; write {{{key_of_kind}: {value if is_name else key}}}"
    if kind == "union_tag_invalid":
        choices = re.findall(r"'([^']+)'", error["ctx"]["expected_tags"])
        tag, key_of_kind = error["ctx"]["tag"], error["ctx"]["discriminator"].strip("'()")
        is_file = (tag.endswith(".py") or ":" in tag) and EXAMPLE in choices
        return f"unknown {key_of_kind} '{tag}'{f'; write {EXAMPLE}' if is_file else f'.{nearest(tag, choices)}'}"
    if kind == "string_pattern_mismatch" and error["ctx"]["pattern"] in PATTERN_HINTS:
        return f"{shorten_value(value)} is not understood; {PATTERN_HINTS[error['ctx']['pattern']]}"
    if value is None or value == {} or value == []:
        return "the section is empty; add an entry, or remove it"
    return _explain_yaml(value, errors) or _explain_type(kind, value, errors)


def _explain_yaml(value: Any, errors: list[dict]) -> str:
    """Return the problem of a value that YAML reads as another type than meant; "" if it does not."""
    types = {error["type"] for error in errors}
    if isinstance(value, str) and NUMBER.fullmatch(value) and types & set(NUMBERS):
        factor, _, power = value.lower().partition("e")
        if not power:
            bare = re.sub("^0+(?=[0-9])", "", value)
            return f"'{value}' is text to YAML; write {bare} without quotes (within --config all is text: use a file)"
        return f"'{value}' is text to YAML; write {float(factor)}e{int(power):+d}, with a point and a sign"
    if isinstance(value, bool) and "string_type" in types and types <= {"string_type", "int_type"}:
        return f"{value} is a bare {'yes, on or true' if value else 'no, off or false'} to YAML; write it in quotes"
    return ""


def _explain_type(kind: str, value: Any, errors: list[dict]) -> str:
    """Return the problem of a value that is not one of the allowed ones, or of another type."""
    words = [
        word for e in errors if e["type"] == "literal_error" for word in re.findall(r"'([^']+)'", e["ctx"]["expected"])
    ]
    types = [TYPES[e["type"]] for e in errors if e["type"] in TYPES]
    known = {*TYPES, "literal_error", "none_required"}
    others = [
        PATTERN_HINTS.get(e.get("ctx", {}).get("pattern")) or e["msg"][0].lower() + e["msg"][1:]
        for e in errors
        if e["type"] not in known
    ]
    if words and (isinstance(value, str) or not (others or types)):
        wanted = [f" Or write {NUMBERS[e['type']]}." for e in errors if e["type"] in NUMBERS]
        return f"unknown value {shorten_value(value)}.{nearest(value, words)}{''.join(wanted)}"
    if kind.endswith(("model_type", "attributes_type", "dict_type")):
        name = errors[0].get("ctx", {}).get("class_name", "")
        is_kind = kind == "model_attributes_type" or name.lower() == value
        wanted = f"{{kind: {value}}}" if is_kind and isinstance(value, str) and NAME.fullmatch(value) else "one"
        if name == "Instances" and isinstance(value, int):
            wanted = f"{{count: {value}}}"
        elif isinstance(value, list) and value and all(isinstance(one, str) for one in value):
            wanted = f"{value[0]}: {{...}} without a hyphen, one per line"
        return f"{shorten_value(value)} is not a mapping of keys; write {wanted}"
    if not others:  # a limit says more than the types of the other alternatives
        others = [f"give {' or '.join(dict.fromkeys([*types, *words]))}"]
    elif isinstance(value, float):
        others += [NUMBERS[e["type"]] for e in errors if e["type"] == "int_type"]
    return f"{shorten_value(value)} is not valid; {' or '.join(dict.fromkeys(others))}"


def shorten_value(value: Any) -> str:
    """Return the value as Python writes it, shortened where that is long."""
    return _SHORT.repr(value)
