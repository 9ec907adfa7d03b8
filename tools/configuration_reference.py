"""The reference of the configuration as a page: every key with its type, default and description, from the types."""

import json
import re
import sys
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from shapeline.config.types import (
    CUSTOM_METHOD,
    Config,
    Data,
    Experiment,
    Features,
    Instances,
    Model,
    Reference,
    Report,
)
from shapeline.config.validation import build_schema
from shapeline.datasets.checks import Dataset, Limits
from shapeline.methods.parameters import CustomMethod, Sampled, StoppingRule
from shapeline.methods.registry import METHODS
from shapeline.metrics.registry import METRICS
from shapeline.models.registry import Training

TAGS = ("method", "kind")  # keys that say which entry is meant: the headings
SHARED = Sampled
FAMILIES = {
    "coalitions": "Coalition methods",
    "hierarchical": "Hierarchical methods",
    "gradients": "Gradient methods",
    "data": "Methods of labelled data",
    "peers": "Other libraries' estimators",
    "external": "Scores computed elsewhere",
}
PLAIN = {str: "text", int: "whole number", float: "number", bool: "true or false"}
LIMITS = {"ge": "≥ {}", "gt": "> {}", "le": "≤ {}", "lt": "< {}", "min_length": "{} or more", "max_length": "up to {}"}
NO_KEYS = "No keys.\n"
HEAD = """# Configuration reference

This page is the reference of all configuration keys, with type, default and meaning. [Experiments](experiments.md)
shows how to combine them. *needed* marks a key without a default; where the default is –, the meaning states it. The
page is generated from the types by `python -m tools.configuration_reference > docs/configuration.md`.
"""


def page() -> str:
    """Return the page in Markdown."""
    parts = [HEAD, *section("Top level", Config), *section("`data`", Data)]
    parts += section("`datasets.<name>`", Dataset) + section("`datasets.<name>.limits`", Limits)
    parts += section("`models.<name>`", Model) + section("`models.<name>.training`", Training)
    parts += section("`experiments.<name>`", Experiment)
    features, references = members(Features), members(Reference)
    parts += union("features", "A mapping of a `kind` and its keys.", features)
    names = ", ".join(f"`{name}`" for model in references if get_origin(model) is Literal for name in get_args(model))
    parts += union("reference", f"A name ({names}), or a mapping of a `kind` and its keys.", references)
    parts += section("`instances`", Instances) + section("`report`", Report)
    parts += [
        "## `metrics`\n",
        "A metric is a key under `metrics:` with the keys below as its value; definitions: [Metrics](metrics.md).\n",
    ]
    parts += [f"### `{name}`\n\n{table(metric.parameters) or NO_KEYS}" for name, metric in METRICS.items()]
    parts += [
        "## `methods`\n",
        "A method entry is a name of your choice under `methods:` with the value `{method: name, ...}` and the keys "
        "below; definitions: [Methods](methods.md). Shared keys:\n",
        table(SHARED),
        "Adaptive stopping, a mapping as `budget` (`kernel_shap`, `sample_shapley`, `gp_shapley`):\n",
        table(StoppingRule),
    ]
    for family, title in FAMILIES.items():
        parts.append(f"### {title}\n")
        known = {name: model.parameters for name, model in METHODS.items() if model.family == family}
        parts += [f"#### `{name}`\n\n{format_method(parameters)}" for name, parameters in known.items()]
    parts += ["### A custom function\n", f"#### `{CUSTOM_METHOD}`\n\n{format_method(CustomMethod)}"]
    return "\n".join(parts)


def section(title: str, model: type[BaseModel]) -> list[str]:
    """Return a heading and the table of a model's keys."""
    return [f"## {title}\n", table(model)]


def union(key: str, words: str, of: list[Any]) -> list[str]:
    """Return the section of a key whose value is one of several models, with a heading for each."""
    parts = [f"## `{key}`\n", f"{words}\n"]
    for model in of:
        if isinstance(model, type):
            names = ", ".join(f"`{name}`" for name in get_args(model.model_fields["kind"].annotation))
            parts.append(f"### {key} {names}\n\n{table(model) or NO_KEYS}")
    return parts


def format_method(parameters: type[BaseModel]) -> str:
    """Return the keys of a method's entry: the names of its shared keys, and a table of the others."""
    shared = [key for key in SHARED.model_fields if key in parameters.model_fields]
    shared_line = f"Shared keys: {', '.join(f'`{key}`' for key in shared)}.\n" if shared else ""
    rows = table(parameters, left_out=shared)
    return "\n".join(part for part in (shared_line, rows) if part) or NO_KEYS


def table(model: type[BaseModel], left_out: Any = ()) -> str:
    """Return the keys of a model as a table without those that name it; empty if it has no others."""
    rows = []
    for key, field in model.model_fields.items():
        if key in left_out or (key in TAGS and get_origin(field.annotation) is Literal and not field.description):
            continue
        meaning = re.sub(r"([*|])", r"\\\1", (field.description or "").replace("->", "→").replace("<", "&lt;"))
        rows.append(f"| `{key}` | {format_type(field.annotation, field.metadata)} | {default(field)} | {meaning} |")
    return "\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *rows, ""]) if rows else ""


def default(field: FieldInfo) -> str:
    if field.is_required():
        return "*needed*"
    value = field.default
    if value is None:
        return "–"
    return f"`{json.dumps(value.model_dump(exclude_defaults=True) if isinstance(value, BaseModel) else value)}`"


def format_type(annotation: Any, metadata: Any = ()) -> str:
    """Return a type as text, with its limits."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        limits = [member for part in inner[1:] for member in getattr(part, "metadata", [part])]
        return format_type(inner[0], [*limits, *metadata])
    bounds = [
        words.format(getattr(limit, name))
        for limit in metadata
        for name, words in LIMITS.items()
        if getattr(limit, name, None) is not None
    ]
    limits = f" ({', '.join(dict.fromkeys(bounds)).replace('2 or more, up to 2', '2 of them')})" if bounds else ""
    if origin in (Union, UnionType):
        chosen = [member for member in inner if member is not NoneType]
        told_of = [format_type(member, metadata if len(chosen) == 1 else ()) for member in chosen]
        return " or ".join(dict.fromkeys(told_of))
    if origin is Literal:
        return ", ".join(f"`{name}`" for name in inner)
    if origin is list:
        return f"list of {format_type(inner[0])}{limits}"
    if origin is dict:
        return f"name → {format_type(inner[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "a mapping, below"
    return PLAIN[annotation] + ("" if annotation is str else limits)


def bare(annotation: Any) -> Any:
    """Return a type without its annotations."""
    return bare(get_args(annotation)[0]) if get_origin(annotation) is Annotated else annotation


def members(annotation: Any) -> list[Any]:
    """Return the members of an annotated union."""
    return [bare(member) for member in get_args(bare(annotation))]


if __name__ == "__main__":  # > docs/configuration.md; with --schema > workflow/schemas/config.schema.json
    print(json.dumps(build_schema(), indent=2) if "--schema" in sys.argv else page().removesuffix("\n"))
