"""The typed configuration: read it, check it, and write one clear line for every mistake."""

import copy
import json
import re
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from shapeline import datasets
from shapeline.config_checks import impossible
from shapeline.config_types import (  # noqa: F401 (some stand here for others)
    OWN,
    WANTED,
    Config,
    Data,
    Dataset,
    Experiment,
    Features,
    Instances,
    Model,
    Reference,
    Report,
    Training,
    budget_of,
    canonical,
    dataset_of,
    feature_shape,
    features_of,
    fixed_cost,
    framework_of,
    shards_of,
    source_of,
)
from shapeline.errors import ShapelineError, nearest
from shapeline.methods import USER_FILE, Own

TARGETS = ("all", "fetch", "train", "scores", "metrics", "report", "smoke", "prune", "doctor")
RULES = (
    *("fetch_source", "prepare_dataset", "convert_weights", "train_model", "train_again", "randomise_model"),
    *("select_instances", "attribute", "measure", "compare", "render_report", "render_theory", "render_index"),
)
# Folders and pages beside the experiments' own.
TAKEN = ("models", "reports", "logs", "benchmark", "benchmarks", "theory", "index")
# The tiny experiment behind the target `smoke`: always defined, whatever config.yaml says.
SMOKE = {
    "datasets": {"smoke": {"source": "digits", "classes": [3, 8]}},
    "models": {"smoke": {"dataset": "smoke", "architecture": "digits_cnn", "training": {"epochs": 2}}},
    "experiments": {
        "smoke": {
            "model": "smoke",
            "features": {"kind": "patch", "size": 4},
            "instances": {"count": 8},
            "methods": {
                "exact": {"method": "shapley"},
                "kernel_shap": {"method": "kernel_shap"},
                "occlusion": {"method": "occlusion"},
                "random": {"method": "random"},
            },
            "metrics": {"log_odds": {}, "error": {"reference": "exact"}, "efficiency": {}, "cost": {}},
            "report": {"title": "Smoke test"},
        }
    },
}
SECTIONS = ("datasets", "models", "experiments")
# What `scale: smoke` leaves: of pictures made, of sizes of an ablation, and of what a method may say that it spends.
SMOKE_PICTURES, SMOKE_SIZES = 400, 20
SMOKE_MOST = {"evaluations": 64, "samples": 10, "permutations": 20}
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
NUMBERS = {"int_type": "a whole number", "float_type": "a number"}
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def load(raw: dict) -> Config:
    """The validated configuration; raises one ShapelineError with a line for every mistake found."""
    raw = _without_removed(copy.deepcopy(raw))
    lines = list(_name_errors(raw))
    names = {section: set(raw[section]) for section in SECTIONS if isinstance(raw.get(section), dict)}
    for section in SECTIONS:
        if isinstance(raw.get(section), dict) and raw[section]:
            raw[section] = {**raw[section], **SMOKE[section]}
            names[section] |= set(SMOKE[section])
    config, mistakes = _parse(raw)
    lines += [f"{'.'.join(map(str, path))}: {text}" for path, text in mistakes.items() if text]
    if config is not None:
        lines += impossible(config, names, {path[:2] for path in mistakes})
    if lines:
        raise ShapelineError("\n".join(dict.fromkeys(lines)))
    return SCALES[config.scale](config)


def schema() -> dict:
    """The JSON schema that editors read (workflow/schemas/config.schema.json)."""
    return Config.model_json_schema()


def _without_removed(raw: dict) -> dict:
    """`name: null` removes an entry that an earlier configuration file defined."""
    for section in SECTIONS:
        entries = raw.get(section)
        if isinstance(entries, dict):
            raw[section] = {name: entry for name, entry in entries.items() if entry is not None}
    for experiment in (raw.get("experiments") or {}).values() if isinstance(raw.get("experiments"), dict) else ():
        if isinstance(experiment, dict) and isinstance(experiment.get("methods"), dict):
            experiment["methods"] = {k: v for k, v in experiment["methods"].items() if v is not None}
    return raw


def _name_errors(raw: dict) -> Iterator[str]:
    for section in SECTIONS:
        entries = raw.get(section)
        for name, entry in entries.items() if isinstance(entries, dict) else ():
            yield from _bad_name(section, name)
            if section == "experiments" and name in (*TARGETS, *RULES, *TAKEN):
                yield f"experiments.{name}: the name is taken by a target, rule or folder; choose another"
            elif name in SMOKE[section]:
                yield f"{section}.{name}: the name is kept for the built-in smoke test; choose another"
            labels = entry.get("methods") if isinstance(entry, dict) else None
            for label in labels if isinstance(labels, dict) else ():
                yield from _bad_name(f"experiments.{name}.methods", label)


def _bad_name(where: str, name: object) -> Iterator[str]:
    if not NAME.fullmatch(str(name)):
        yield f"{where}.{name}: a name is a letter, then letters, digits and underscores"


def _parse(raw: dict) -> tuple[Config | None, dict[tuple, str]]:
    """Validate; after a mistake drop the offending key and go on, so that every mistake is told at once.

    Returns what is left (None where nothing whole is) and the mistakes by key path; "" is a mere consequence of a drop.
    """
    told: dict[tuple, str] = {}
    while True:
        try:
            return Config.model_validate(raw), told
        except ValidationError as failure:
            mistakes = _by_path(failure, raw)
        consequence = {path: any(earlier[: len(path)] == path for earlier in told) for path in mistakes}
        told = {path: "" if consequence[path] else _explain(path, e, raw) for path, e in mistakes.items()} | told
        cuts = [path[:-1] if errors[0]["type"] == "missing" else path for path, errors in mistakes.items()]
        if any(not cut or (len(cut) == 1 and cut[0] in ("run", *SECTIONS)) for cut in cuts):
            return None, told
        for cut in cuts:
            parent = _at(raw, cut[:-1])
            if isinstance(parent, dict):
                parent.pop(cut[-1], None)
            elif isinstance(parent, list):
                _at(raw, cut[:-2]).pop(cut[-2], None)


def _by_path(failure: ValidationError, raw: dict) -> dict[tuple, list[dict]]:
    """Errors by key path; pydantic's path also holds the names of union members, which are no keys."""
    paths: dict[tuple, list[dict]] = {}
    for error in failure.errors():
        node, path = raw, []
        for part in error["loc"]:
            if (isinstance(node, dict) and part in node) or (isinstance(node, list) and isinstance(part, int)):
                node = node[part]
                path.append(part)
        if error["type"] == "missing":
            path.append(error["loc"][-1])
        paths.setdefault(tuple(path), []).append(error)
    return paths


def _at(raw: Any, path: tuple) -> Any:
    for part in path:
        raw = raw[part] if isinstance(raw, list) else raw.get(part) if isinstance(raw, dict) else None
    return raw


def _explain(path: tuple, errors: list[dict], raw: dict) -> str:
    """What is wrong with the value at `path`, what is allowed, and the nearest name."""
    error = next((e for e in errors if e["type"].startswith("union_tag") and isinstance(e["input"], dict)), errors[0])
    kind, value = error["type"], error["input"]
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return f"unknown key.{nearest(path[-1], _keys_at(path[:-1], raw))}"
    if kind == "union_tag_not_found":
        key = error["ctx"]["discriminator"].strip("'()")
        return f"the key '{key}' is missing"
    if kind == "union_tag_invalid":
        allowed = re.findall(r"'([^']+)'", error["ctx"]["expected_tags"])
        key, tag = error["ctx"]["discriminator"].strip("'()"), error["ctx"]["tag"]
        return f"unknown {key} '{tag}'.{nearest(tag, allowed)}"
    if kind == "string_pattern_mismatch" and error["ctx"]["pattern"] in WANTED:
        return f"{value!r} is not understood; {WANTED[error['ctx']['pattern']]}"
    if value is None or value == {} or value == []:
        return "the section is empty"
    if (
        isinstance(value, str)
        and NUMBER.fullmatch(value)
        and any(e["type"] in ("float_type", "int_type") for e in errors)
    ):
        return f"'{value}' is text to YAML; write the number {float(value)!r}" + (
            " as 1.0e-3 is written (with a point and a sign)" if "e" in value.lower() else " without quotes"
        )
    words = [
        word for e in errors if e["type"] == "literal_error" for word in re.findall(r"'([^']+)'", e["ctx"]["expected"])
    ]
    others = [e["msg"][0].lower() + e["msg"][1:] for e in errors if e["type"] not in ("literal_error", "none_required")]
    if words and (isinstance(value, str) or not others):
        wanted = [f" Or write {NUMBERS[e['type']]}." for e in errors if e["type"] in NUMBERS]
        return f"unknown value {value!r}.{nearest(value, words)}{''.join(wanted)}"
    if kind.endswith(("model_type", "attributes_type", "dict_type")):
        return f"{value!r} is not a mapping of keys"
    return f"{' or '.join(dict.fromkeys(others))}, not {value!r}" + (
        f" (or one of {', '.join(words)})" if words else ""
    )


def _keys_at(path: tuple, raw: dict) -> list[str]:
    """The keys allowed at `path`, found by following the types beside the values."""
    kind: Any = Config
    for depth, part in enumerate(path):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            kind = kind.model_fields[part].annotation
        elif get_origin(kind) is dict:
            kind = get_args(kind)[1]
        kind = _member(kind, _at(raw, path[: depth + 1]))
    return list(kind.model_fields) if isinstance(kind, type) and issubclass(kind, BaseModel) else []


def _member(kind: Any, value: Any) -> Any:
    """The member of a union that the value means: by its `method` or `kind`, else the first that has keys."""
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) not in (Union, UnionType):
        return kind
    members = [get_args(m)[0] if get_origin(m) is Annotated else m for m in get_args(kind)]
    models = [m for m in members if isinstance(m, type) and issubclass(m, BaseModel)]
    tag = value.get("method", value.get("kind")) if isinstance(value, dict) else None
    if Own in models and re.match(USER_FILE, str(tag)):
        return Own
    for member in models:
        if any(
            tag in get_args(member.model_fields[key].annotation)
            for key in ("method", "kind")
            if key in member.model_fields
        ):
            return member
    return models[0] if models else kind


def _shrunk(config: Config) -> Config:
    """The same experiments at smoke scale, under their own folder."""
    small = config.model_dump(exclude_defaults=True)
    small |= {"results": f"{config.results}/smoke", "shards": "auto"}
    for name, dataset in small["datasets"].items():
        source = datasets.SOURCES.get(config.datasets[name].source)
        if source and source.count:
            dataset["count"] = min(SMOKE_PICTURES, dataset.get("count", source.count))
    for model in small["models"].values():
        training = model.get("training", {})
        model["training"] = {**training, "epochs": min(2, training.get("epochs", 2))}
    for name, experiment in small["experiments"].items():
        full = config.experiments[name]
        experiment.pop("shards", None)
        chosen = experiment.get("instances", {})
        if "texts" not in chosen:
            chosen = {key: chosen[key] for key in chosen if key != "correct"}  # a model of two epochs errs
            experiment["instances"] = {**chosen, "count": min(16, full.instances.count), "or_all": True}
        for key in ("repeats", "seeds"):
            if getattr(full, key) > 2:
                experiment[key] = 2
        if full.metrics.ablation:
            experiment["metrics"]["ablation"] = {"sizes": min(SMOKE_SIZES, full.metrics.ablation.sizes)}
        for label, entry in experiment["methods"].items():
            for key, most in SMOKE_MOST.items():
                if (getattr(full.methods[label], key, None) or 0) > most:
                    entry[key] = most
    return Config.model_validate(small)


def _grown(config: Config) -> Config:
    """The same experiments beyond the papers' size, under their own folder: more instances, and repeats enough that
    intervals include the draw of the design."""
    large = config.model_dump(exclude_defaults=True)
    large["results"] = f"{config.results}/beyond"
    for name, experiment in large["experiments"].items():
        full = config.experiments[name]
        if not full.instances.texts:
            more = {"count": 3 * full.instances.count, "or_all": True}
            experiment["instances"] = {**experiment.get("instances", {}), **more}
        experiment["repeats"] = max(3, full.repeats)
    return Config.model_validate(large)


SCALES = {"smoke": _shrunk, "paper": lambda config: config, "beyond": _grown}


if __name__ == "__main__":  # python -m shapeline.config > workflow/schemas/config.schema.json
    print(json.dumps(schema(), indent=2))
