"""What follows from a valid configuration: canonical settings, shapes, budgets, shards."""

import contextlib
import dataclasses
import functools
import json
import math
from typing import Any

from pydantic import BaseModel

from shapeline.config.types import INSTANCES_PER_SHARD, Config, Experiment, Model
from shapeline.datasets import checks
from shapeline.datasets.checks import Dataset
from shapeline.datasets.registry import SOURCES, Source, adapt_to_task
from shapeline.errors import ShapelineError
from shapeline.games.features import find_shape
from shapeline.methods.parameters import CShapleyRegression
from shapeline.methods.registry import DEFAULT_BUDGET, METHODS
from shapeline.models.registry import ARCHITECTURES, FRAMEWORKS, find_suffix

LARGE_D = 1000  # features at which the share of evaluations that a method needs is assumed, while d is unknown


def canonical(value: Any) -> Any:
    """Return settings as builtin types with sorted keys, without defaults and nulls, for re-run detection."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json", exclude_defaults=True)
    if isinstance(value, dict):
        return {key: canonical(value[key]) for key in sorted(value) if value[key] is not None}
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value]
    return value


def find_framework(model: Model) -> str:
    """Return the framework of a model: its own, that of its architecture or file, else torch."""
    if suffix := find_suffix(model.source):
        return FRAMEWORKS[suffix]
    if model.framework or model.architecture is None:
        return model.framework or "torch"
    return ARCHITECTURES[model.architecture].framework


def find_source(dataset: Dataset | None) -> Source | None:
    """Return the source of a dataset before it is read; None for a user's function and without a dataset."""
    entry = SOURCES.get(dataset.source) if dataset else None
    if entry is None or not (entry.local and entry.kind == "table"):
        return entry and adapt_to_task(entry, dataset.task)
    names = ()
    with contextlib.suppress(ShapelineError):  # reported by the checks of the dataset
        names = checks.find_columns(dataset) or ()
    task = dataset.task or entry.task
    return dataclasses.replace(entry, task=task, feature_names=names, input_shape=(len(names),) if names else ())


def settle_prompts(config: Config) -> Config:
    """Return the configuration whose experiments on prompts name the prompts and the language model themselves."""
    experiments = {}
    for name, entry in config.experiments.items():
        model = config.models.get(entry.model)
        if model and model.task == "generation":
            count = entry.instances.count
            removal = canonical(entry.reference) if "reference" in entry.model_fields_set else "delete"
            prompts = {"model": model.source, "path": config.datasets[entry.dataset].path, "removal": removal}
            prompts |= {"features": entry.features.kind, "max_tokens": model.max_tokens, "count": count}
            entry = entry.attach_prompts(prompts | {"measures": entry.metrics.prompts is not None})
        experiments[name] = entry
    models = {name: model for name, model in config.models.items() if model.task is None}
    datasets = {name: dataset for name, dataset in config.datasets.items() if dataset.source != "prompts"}
    return config.model_copy(update={"experiments": experiments, "models": models, "datasets": datasets})


def find_dataset(config: Config, experiment: Experiment) -> str | None:
    """Return the name of the experiment's dataset: its own, or its model's; None of a game and of prompts."""
    return None if experiment.has_no_data else experiment.dataset or config.models[experiment.model].dataset


def count_shards(config: Config, experiment: Experiment) -> int:
    """Return the number of score files per method entry; the evaluations of a game are divided before."""
    if experiment.game:
        return 1
    number, chosen = experiment.shards or config.shards, experiment.instances
    count = chosen.number
    if experiment.prompts:
        return 1 if number == "auto" else min(number, count)
    return math.ceil(count / INSTANCES_PER_SHARD) if number == "auto" else min(number, count)


def count_evaluation_shards(config: Config, experiment: Experiment) -> int:
    """Return the number of jobs that share the evaluations of a method; 1 if the job of its scores does them."""
    number = experiment.shards or config.shards
    return number if experiment.game and number != "auto" else 1


def find_features(experiment: Experiment, settings: Any) -> Any:
    """Return the features that a method entry explains: its own, else the experiment's."""
    return getattr(settings, "features", None) or experiment.features


def find_feature_shape(config: Config, experiment: Experiment, settings: Any = None) -> tuple[int, ...] | None:
    """Return the shape of the features of the experiment, or of one of its entries; None if only the data tell."""
    model = config.models.get(experiment.model)
    dataset = config.datasets.get(experiment.dataset or (model.dataset if model else None))
    source = find_source(dataset)
    if source is None:  # also where a name leads nowhere, which is stated elsewhere
        return None
    chosen, input_shape = canonical(find_features(experiment, settings)), checks.input_shape(source, dataset)
    return find_shape(chosen, input_shape, source.groups, source.kind, source.feature_names) if input_shape else None


def find_budget(config: Config, name: str, entry: str, d: int | None = None) -> float | None:
    """Return the budget of a sampled entry as a multiple of d, at most: its own, its rival's, the experiment's, or the
    default. d: number of features, where only the data tell; without it, None is a default that depends on it."""
    experiment = config.experiments[name]
    own = experiment.methods[entry]
    if own.match_budget_of is not None:
        shape = find_feature_shape(config, experiment)
        settings = json.dumps(canonical(experiment.methods[own.match_budget_of]))
        return count_fixed_cost(settings, shape) / math.prod(shape)
    method, parameters = METHODS[own.method], own.model_dump()
    is_given = own.most or "budget" in experiment.model_fields_set
    if is_given or method.default_budget(parameters, LARGE_D) == DEFAULT_BUDGET:
        return float(own.most or experiment.budget)
    if shape := find_feature_shape(config, experiment, own):
        d = math.prod(shape)
    return d and float(method.default_budget(parameters, d))


@functools.cache
def count_fixed_cost(settings: str, shape: tuple[int, ...]) -> int:
    """Return the evaluations of a fixed-cost method by building its design (networkx and scipy are imported here)."""
    from shapeline.designs.exact import count_occlusions
    from shapeline.methods.settings import parse

    entry = json.loads(settings)
    if entry["method"] == "c_shapley_regression":  # counted, for its fit at 1,000 features takes seconds
        order = entry.get("order", CShapleyRegression.model_fields["order"].default)
        if order < max(shape):  # none of the runs or squares is the whole
            squares = sum(math.prod(side - size for side in shape) for size in range(min(order, *shape)))
            return 1 + squares + entry.get("constrained", False)
    if entry["method"] == "occlusion":
        return count_occlusions(math.prod(shape))
    return parse(entry, [None]).build(shape).evaluations


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
# Bounds of `scale: smoke`: synthetic images, sizes of an ablation, and the budget of a method.
SMOKE_IMAGES, SMOKE_SIZES = 400, 20
SMOKE_MOST = {"evaluations": 64, "samples": 10, "permutations": 20}


def _shrink(config: Config) -> Config:
    """Return the same experiments at smoke scale, under their own folder."""
    small = config.model_dump(exclude_defaults=True)
    small |= {"results": f"{config.results}/smoke", "shards": "auto"}
    for name, dataset in small["datasets"].items():
        source = SOURCES.get(config.datasets[name].source)
        if source and source.count:
            dataset["count"] = min(SMOKE_IMAGES, dataset.get("count", source.count))
    for model in small["models"].values():
        training = model.get("training", {})
        model["training"] = {**training, "epochs": min(2, training.get("epochs", 2))}
    for name, experiment in small["experiments"].items():
        full = config.experiments[name]
        experiment.pop("shards", None)
        chosen = experiment.get("instances", {})
        if not {"texts", "near"} & set(chosen):
            chosen = {key: chosen[key] for key in chosen if key != "correct"}  # a model of two epochs errs
            experiment["instances"] = {**chosen, "count": min(16, full.instances.count), "fewer_ok": True}
        for key in ("repeats", "training_seeds"):
            if getattr(full, key) > 2:
                experiment[key] = 2
        if full.metrics.ablation:
            experiment["metrics"]["ablation"] = {"sizes": min(SMOKE_SIZES, full.metrics.ablation.sizes)}
        for entry, settings in experiment["methods"].items():
            for key, most in SMOKE_MOST.items():
                if (getattr(full.methods[entry], key, None) or 0) > most:
                    settings[key] = most
    return Config.model_validate(small)


def _enlarge(config: Config) -> Config:
    """Return the experiments with more instances and repeats than the papers', under their own folder."""
    large = config.model_dump(exclude_defaults=True)
    large["results"] = f"{config.results}/beyond"
    for name, experiment in large["experiments"].items():
        full = config.experiments[name]
        if not (full.instances.texts or full.instances.near):
            more = {"count": 3 * full.instances.count, "fewer_ok": True}
            experiment["instances"] = {**experiment.get("instances", {}), **more}
        experiment["repeats"] = max(3, full.repeats)
    return Config.model_validate(large)


SCALES = {"smoke": _shrink, "paper": lambda config: config, "beyond": _enlarge}
