"""The typed configuration: every key, its range, its default, and one clear line for every mistake."""

import copy
import functools
import json
import math
import re
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, create_model

from shapeline import datasets, features, methods, metrics, other_data, references
from shapeline.designs.design import evaluations
from shapeline.errors import ShapelineError, nearest
from shapeline.methods import USER_FILE, Own, Patch, Positive, Superpixel
from shapeline.models import ARCHITECTURES, TORCH_ONLY, ready
from shapeline.models.training import AUGMENTATIONS, SCHEDULES

TARGETS = ("all", "fetch", "train", "scores", "metrics", "report", "smoke", "prune", "doctor")
RULES = (
    *("fetch_source", "prepare_dataset", "convert_weights", "train_model", "train_again", "randomise_model"),
    *("select_instances", "attribute", "measure", "compare", "render_report", "render_theory", "render_index"),
)
TEXT_ARCHITECTURES = ("word_cnn", "char_cnn", "bilstm")
KINDS_TAKEN = {"mlp": "table", **dict.fromkeys(TEXT_ARCHITECTURES, "text")}  # the others take images
ANY_SIZE = ("resnet18",)  # of pictures
UNITS = {"word_cnn": "word", "bilstm": "word", "char_cnn": "character"}
TAKEN = ("models", "reports", "logs", "benchmarks", "theory", "index")  # folders and pages beside the experiments' own
ROOT = ("benchmarks", "data", "docs", "envs", "examples", "notebooks", "profiles", "tests", "workflow")  # no results
MODEL_FILE = rf"{USER_FILE}|\.(skops|keras)$"
# What a text that does not match a pattern should have been.
WANTED = {
    USER_FILE: "write path/to/file.py:function",
    MODEL_FILE: "name path/to/file.py:function, or a .skops or .keras file; pickle and joblib are not read, so save a "
    "pipeline with skops.io.dump",
}


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Data(Strict):
    mirror: str | None = Field(
        None, description="Folder or URL holding <source>/<file>, tried before the official places."
    )
    offline: bool = Field(False, description="Never use the network; say which file to place where.")


class Dataset(Strict):
    source: str = Field(description=f"One of {', '.join(datasets.SOURCES)}, or path/to/file.py:function.")
    path: str | None = Field(
        None, description="Local file or folder in place of the official source; $VARIABLES expand."
    )
    classes: list[int | str] | None = Field(None, min_length=2, description="The classes kept, by index or name.")
    unit: Literal["word", "character"] | None = Field(None, description="Text: what a token is.")
    length: Positive | None = Field(None, description="Text: tokens a document; longer ones are cut.")
    vocabulary: Annotated[int, Field(ge=3)] | None = Field(
        None, description="Text: the most frequent words known, padding and unknown counted."
    )
    tokenizer: str | None = Field(
        None, pattern=USER_FILE, description="Text: path/to/file.py:function that returns a tokenizer of one's own."
    )
    target: str | None = Field(None, description="table_file, text_file: the column of classes or numbers to predict.")
    text: str | None = Field(None, description="text_file: the column of documents.")
    task: Literal["classification", "regression", "multilabel"] | None = Field(
        None,
        description="table_file: whether the target is a class (the default) or a number. malaria: multilabel for two "
        "labels a slide that may both be there, trophozoite and ring; for torch.",
    )
    columns: list[str] | None = Field(
        None, min_length=1, description="table_file: the columns that are features; all but the target by default."
    )
    categorical: list[str] | None = Field(
        None, min_length=1, description="table_file: columns of numbers that are categories all the same."
    )
    count: Positive | None = Field(None, description="How many pictures are made, of a source that makes them.")
    size: Annotated[list[Positive], Field(min_length=2, max_length=2)] | None = Field(
        None, description="Pictures in files: [height, width] in pixels, to which each is brought."
    )
    fit: Literal["resize", "crop"] | None = Field(
        None, description="Pictures in files: how: resize (the default) stretches; crop cuts off what is too long."
    )
    color: Literal["rgb", "grey"] | None = Field(
        None, description="Pictures in files: rgb by default, and then a grey picture is refused."
    )
    on_corrupt: Literal["stop", "skip"] | None = Field(
        None, description="Pictures in files: whether one that cannot be decoded stops the run (the default)."
    )
    validation: float = Field(
        0.1, gt=0, lt=1, description="Fraction of the training part used to choose the best epoch."
    )
    test: float = Field(0.3, gt=0, lt=1, description="Fraction held out, where the source has no official split.")


class Training(Strict):
    epochs: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="Passes over the training part; by architecture. 0: none, where source or weights bring a model "
        "that is ready.",
    )
    batch: Positive | None = Field(None, description="Rows a step; by architecture.")
    learning_rate: float | None = Field(None, gt=0, description="At the start; by architecture.")
    weight_decay: float | None = Field(None, ge=0, description="Penalty of large weights; by architecture.")
    schedule: Literal[SCHEDULES] | None = Field(
        None, description="halving: the learning rate halves every 3 epochs; step: it falls to a fifth every 10."
    )
    optimizer: Literal["adam", "rmsprop", "sgd"] | None = Field(None, description="By architecture.")
    augment: list[Literal[AUGMENTATIONS]] | None = Field(
        None, description="Pictures: flips made or not, at random, for every training row in every epoch."
    )
    patience: Positive | None = Field(
        None, description="Training ends after so many epochs in a row that are no better on the validation part."
    )


class Model(Strict):
    dataset: str = Field(description="Name of the dataset that it is trained on.")
    architecture: Literal[ARCHITECTURES] | None = Field(None, description="One of the package's; or source, not both.")
    source: str | None = Field(
        None,
        pattern=MODEL_FILE,
        description="path/to/file.py:function that builds a torch module; or a model that is ready: a scikit-learn "
        "pipeline in a .skops file, or a .keras file.",
    )
    trusted: list[str] | None = Field(
        None, min_length=1, description=".skops: types that the file may hold beside scikit-learn's usual ones."
    )
    framework: Literal["torch", "tensorflow"] | None = Field(
        None, description="tensorflow for the architectures of text, torch for the others."
    )
    sizes: dict[str, int | float | list[int]] = Field({}, description="Sizes that differ from the architecture's own.")
    weights: str | None = Field(
        None,
        description="Training starts from them: imagenet (of resnet18), or a .pth or .safetensors file with the "
        "architecture's names; $VARIABLES expand.",
    )
    training: Training = Field(Training(), description="What differs from the architecture's own training.")


class Pixel(Strict):
    kind: Literal["pixel"]


class Column(Strict):
    kind: Literal["column"]


class Group(Strict):
    kind: Literal["group"]
    groups: dict[str, list[str]] | None = Field(
        None, description="Name -> columns; the dataset's own groups by default."
    )


class Word(Strict):
    kind: Literal["word"]


class CharacterRun(Strict):
    kind: Literal["character_run"]


Features = Annotated[Pixel | Patch | Superpixel | Column | Group | Word | CharacterRun, Field(discriminator="kind")]


class Background(Strict):
    kind: Literal["background"]
    rows: Positive = Field(16, description="Training rows drawn; the model's probability is averaged over them.")


class Blur(Strict):
    kind: Literal["blur"]
    sigma: float | None = Field(None, gt=0, description="Pixels; an eighth of the shorter side by default.")


class Array(Strict):
    kind: Literal["array"]
    path: str = Field(description=".npy or .npz of one input's shape or (M, *shape); $VARIABLES expand.")


class Pad(Strict):
    kind: Literal["pad"]
    id: int | None = Field(
        None, ge=0, description="The token that fills absent ones: padding for words, the space for characters."
    )


def kind(reference: Any) -> str | None:
    """Which member of `Reference` a value means; the one of plain names has the tag "mean"."""
    if isinstance(reference, str):
        return "mean"
    return reference.get("kind") if isinstance(reference, dict) else getattr(reference, "kind", None)


Reference = Annotated[
    Annotated[Literal["zero", "mean", "mean_value", "mean_image", "pad", "blur"], Tag("mean")]
    | Annotated[Background, Tag("background")]
    | Annotated[Pad, Tag("pad")]
    | Annotated[Blur, Tag("blur")]
    | Annotated[Array, Tag("array")],
    Discriminator(kind),
]


class Instances(Strict):
    count: Positive = Field(100, description="Test instances explained, drawn by seed.")
    split: Literal["test"] = Field("test", description="Only records that were not trained on are explained.")
    label: int | str | None = Field(None, description="Only instances of this class, by index or name.")
    correct: bool = Field(False, description="Only instances that the model predicts correctly.")
    objects: Positive | None = Field(
        None, description="Only pictures with so many objects of their class, where a dataset knows them."
    )
    or_all: bool = Field(False, description="Where there are fewer, all of them, in place of an error.")
    texts: list[Annotated[str, Field(min_length=1)]] | None = Field(
        None, min_length=1, description="Documents of one's own, explained in place of test instances."
    )


class Report(Strict):
    notebook: Literal["report", "influence", "localization"] = Field(
        "report",
        description="The page: influence is that of measures which need labelled points alone, localization that of "
        "pictures whose decisive pixels are known.",
    )
    title: str | None = Field(None, description="Heading of the page; the experiment's name by default.")
    instances_shown: Annotated[int, Field(ge=1, le=12)] = Field(4, description="Explanations drawn as examples.")
    palette: Literal["colorblind", "deep", "muted"] = Field("colorblind", description="Colours of the figures.")


def method(entry: Any) -> str | None:
    """Which member of `MethodEntry` an entry means; that of functions of one's own has the tag OWN."""
    name = entry.get("method") if isinstance(entry, dict) else getattr(entry, "method", None)
    return OWN if re.match(USER_FILE, str(name)) else name and str(name)


OWN = "path/to/file.py:function"
MethodEntry = Annotated[
    Union[
        (
            *(Annotated[entry.parameters, Tag(name)] for name, entry in methods.METHODS.items()),
            Annotated[Own, Tag(OWN)],
        )
    ],
    Discriminator(method),
]
Metrics = create_model(
    "Metrics",
    __base__=Strict,
    **{name: (metric.parameters | None, None) for name, metric in metrics.METRICS.items()},
)


class Experiment(Strict):
    model: str | None = Field(None, description="The model explained; or a dataset in its place, or beside it.")
    dataset: str | None = Field(
        None,
        description="Explained without a model, by methods that need its labelled points alone; beside a model: other "
        "data than those that it was trained on, whose instances it explains.",
    )
    features: Features = Field(description="What is scored: the parts that an instance is cut into.")
    reference: Reference = Field("mean", description="What stands for an absent feature.")
    value: Literal["log_probability", "probability", "logit", "expected_log_probability", "prediction"] = Field(
        "log_probability", description="What a coalition is worth; prediction is the one value of a regression."
    )
    instances: Instances = Field(Instances(), description="Which instances are explained.")
    budget: float = Field(4, gt=0, description="Evaluations of a sampled method, as a multiple of d.")
    timing: Literal["batch", "per_instance"] = Field(
        "batch", description="What seconds are: a batch's time shared out, or each instance's own after a warm-up."
    )
    repeats: Annotated[int, Field(ge=1, le=1000)] = Field(1, description="Independent designs of every sampled method.")
    seeds: Annotated[int, Field(ge=1, le=100)] = Field(
        1, description="Trainings of the model, by other seeds alone; every label explains each of them."
    )
    time_limit: float | None = Field(
        None,
        gt=0,
        description="Seconds that a method may take for an instance; what takes longer is a row that failed. With it "
        "instances are explained one at a time.",
    )
    methods: dict[str, MethodEntry] = Field(min_length=1, description="Label -> method and its parameters.")
    metrics: Metrics = Field(description="Metric -> its parameters.")
    report: Report = Field(Report(), description="The page.")
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="torch: of coalitions' values; bfloat16 is mixed precision, faster and less exact."
    )
    compile: bool = Field(False, description="torch: coalitions' values by torch.compile, which takes a minute first.")
    cache: bool = Field(
        False, description="Keep values of coalitions in results/<experiment>/values, which methods then share."
    )
    shards: Literal["auto"] | Positive | None = Field(
        None, description="Score files a label; run-wide `shards` by default."
    )
    on_error: Literal["record", "fail"] = Field(
        "record",
        description="Whether a method's failure on an instance becomes a row with its reason, or stops the run.",
    )


class Config(Strict):
    run: list[str] = Field(min_length=1, description="The experiments that `all` makes.")
    datasets: dict[str, Dataset] = Field(min_length=1, description="Name -> where data come from.")
    models: dict[str, Model] = Field(min_length=1, description="Name -> what is trained on a dataset, or is ready.")
    experiments: dict[str, Experiment] = Field(min_length=1, description="Name -> what is explained, how and by what.")
    results: str = Field("results", min_length=1, description="Output folder, inside the repository root.")
    scale: Literal["smoke", "paper", "beyond"] = Field(
        "paper",
        description="paper: as written; smoke: everything small; beyond: three times the instances, three repeats.",
    )
    seed: Annotated[int, Field(ge=0)] = Field(0, description="All that is random follows from it.")
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="auto: a GPU where one is free, else the CPU; cuda: an error where there is none."
    )
    jobs_per_gpu: Positive = Field(1, description="Jobs that share a GPU; --resources gpu still counts GPUs.")
    shards: Literal["auto"] | Positive = Field("auto", description="Score files a label, each a job of its own.")
    data: Data = Field(Data(), description="Where official files come from.")


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
LARGE = 1000  # features, for what can be said of instances before they are seen
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
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
        lines += _impossible(config, names, {path[:2] for path in mistakes})
    if lines:
        raise ShapelineError("\n".join(dict.fromkeys(lines)))
    return SCALES[config.scale](config)


def canonical(value: Any) -> Any:
    """Settings as builtin types with sorted keys, without defaults and nulls: what re-run detection compares."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json", exclude_defaults=True)
    if isinstance(value, dict):
        return {key: canonical(value[key]) for key in sorted(value) if value[key] is not None}
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value]
    return value


def schema() -> dict:
    """The JSON schema that editors read (workflow/schemas/config.schema.json)."""
    return Config.model_json_schema()


def framework_of(model: Model) -> str:
    """The framework of a model: its own, else tensorflow for the architectures of text and torch for the others.

    Of a model that is ready, what its file is of: function or tensorflow.
    """
    if suffix := ready.suffix_of(model.source):
        return ready.FRAMEWORKS[suffix]
    return model.framework or ("tensorflow" if model.architecture in TEXT_ARCHITECTURES else "torch")


def source_of(dataset: Dataset | None) -> datasets.Source | None:
    """What is known of a dataset before it is read; None of a user's own function, and where there is no dataset."""
    return datasets.source_for(canonical(dataset)) if dataset else None


def dataset_of(config: Config, experiment: Experiment) -> str:
    """The name of the experiment's dataset: its own, or its model's."""
    return experiment.dataset or config.models[experiment.model].dataset


def features_of(experiment: Experiment, entry: Any) -> Any:
    """The features that a method entry explains: its own, else the experiment's."""
    return getattr(entry, "features", None) or experiment.features


def feature_shape(config: Config, experiment: Experiment, entry: Any = None) -> tuple[int, ...] | None:
    """The shape of the features of the experiment, or of one of its entries; None where only an instance or the user's
    own dataset function can tell."""
    dataset = config.datasets[dataset_of(config, experiment)]
    source = source_of(dataset)
    if source is None:
        return None
    chosen, input_shape = canonical(features_of(experiment, entry)), datasets.input_shape(source, canonical(dataset))
    return features.shape_of(chosen, input_shape, source.groups, source.kind) if input_shape else None


def budget_of(config: Config, name: str, label: str) -> float:
    """The budget of a sampled label as a multiple of d: its own, that of the method it is the rival of, or the
    experiment's."""
    experiment = config.experiments[name]
    entry = experiment.methods[label]
    if entry.rival_of is None:
        return float(entry.budget or experiment.budget)
    shape = feature_shape(config, experiment)
    settings = json.dumps(canonical(experiment.methods[entry.rival_of]))
    return fixed_cost(settings, shape) / math.prod(shape)


@functools.cache
def fixed_cost(settings: str, shape: tuple[int, ...]) -> int:
    """Evaluations of a fixed-cost method, by building its design (networkx and scipy are imported only here)."""
    from shapeline.designs.build import build

    entry = json.loads(settings)
    if entry["method"] == "c_shapley_regression":  # counted, for its fit at 1,000 features takes seconds
        order = entry.get("order", methods.CShapleyRegression.model_fields["order"].default)
        if order < max(shape):  # none of the runs or squares is the whole
            squares = sum(math.prod(side - size for side in shape) for size in range(min(order, *shape)))
            return 1 + squares + entry.get("constrained", False)
    return build(entry, shape).evaluations


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
        return f"unknown value {value!r}.{nearest(value, words)}"
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


def _impossible(config: Config, names: dict[str, set], mistaken: set[tuple]) -> Iterator[str]:
    """Combinations that no single key shows to be wrong; entries with a mistake of their own are judged leniently."""
    if not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)*", config.results) or config.results.split("/")[0] in ROOT:
        yield (
            f"results: '{config.results}' is not a folder of its own inside the repository; give a relative path "
            "without '..', or a link of that name to a disk elsewhere"
        )
    for name in config.run:
        if name not in names["experiments"]:
            yield f"run: there is no experiment '{name}'.{nearest(name, names['experiments'])}"
    for name, dataset in config.datasets.items():
        if dataset.source not in datasets.SOURCES and not re.match(USER_FILE, dataset.source):
            hint = nearest(dataset.source, datasets.SOURCES)
            if dataset.source.endswith(("csv", "parquet")):
                hint = " A file of your own is named by path, with source: table_file, or text_file for documents."
            yield f"datasets.{name}.source: unknown source '{dataset.source}'.{hint}"
        elif dataset.source in datasets.SOURCES:
            try:
                datasets.check(dataset.source, canonical(dataset))
            except ShapelineError as error:
                yield f"datasets.{name}: {error}"
        if dataset.path:
            try:
                path, source = datasets.expand(dataset.path), datasets.SOURCES.get(dataset.source)
                if not path.exists():
                    hint = "paths start at the repository root"
                    yield f"datasets.{name}.path: there is no file or folder {path} ({hint})"
                elif source and source.files:
                    datasets.local_files(source, path)
            except ShapelineError as error:
                yield f"datasets.{name}: {error}"
        if dataset.tokenizer:
            try:
                methods.own_arguments(dataset.tokenizer)
            except ShapelineError as error:
                yield f"datasets.{name}.tokenizer: {error}"
    for name, model in config.models.items():
        if model.dataset not in names["datasets"]:
            hint = nearest(model.dataset, names["datasets"])
            yield f"models.{name}.dataset: there is no dataset '{model.dataset}'.{hint}"
        if (model.architecture is None) == (model.source is None) and ("models", name) not in mistaken:
            yield f"models.{name}: give either architecture or source"
        dataset = config.datasets.get(model.dataset)
        source = source_of(dataset)
        if source and model.architecture and KINDS_TAKEN.get(model.architecture, "image") != source.kind:
            yield f"models.{name}.architecture: {model.architecture} does not take a dataset of kind {source.kind}"
        if source and source.task == "multilabel" and framework_of(model) != "torch":
            remedy = "give a function of your own" if ready.suffix_of(model.source) else "set framework: torch"
            yield f"models.{name}: datasets.{model.dataset} has several labels a record, for torch alone; {remedy}"
        yield from _impossible_training(f"models.{name}", model, source)
        yield from _impossible_ready(f"models.{name}", model, source, dataset)
        unit = datasets.unit_of(canonical(dataset)) if source else None
        if unit and model.architecture and UNITS.get(model.architecture, unit) != unit:
            yield (
                f"models.{name}.architecture: {model.architecture} reads tokens of unit {UNITS[model.architecture]} "
                f"and datasets.{model.dataset} has unit {unit}; set its unit"
            )
    for name, experiment in config.experiments.items():
        if experiment.model is None and experiment.dataset is None and ("experiments", name) not in mistaken:
            yield f"experiments.{name}: give a model, or a dataset, or both"
        if experiment.dataset and experiment.dataset not in names["datasets"]:
            hint = nearest(experiment.dataset, names["datasets"])
            yield f"experiments.{name}.dataset: there is no dataset '{experiment.dataset}'.{hint}"
        if experiment.model and experiment.model not in names["models"]:
            hint = nearest(experiment.model, names["models"])
            yield f"experiments.{name}.model: there is no model '{experiment.model}'.{hint}"
        strange = list(_impossible_other_data(config, name, experiment))
        yield from strange or _impossible_experiment(config, name, experiment)


def _impossible_ready(
    where: str, model: Model, source: datasets.Source | None, dataset: Dataset | None
) -> Iterator[str]:
    """What does not go with a model that comes ready in a file."""
    suffix = ready.suffix_of(model.source)
    if model.trusted and suffix != ".skops":
        yield f"{where}.trusted: only the types of a .skops file are checked; remove the key"
    if model.training.epochs == 0 and model.architecture and not model.weights:
        yield f"{where}.training.epochs: with 0 nothing is trained and {model.architecture} knows nothing; give weights"
    if not suffix:
        return
    for key in ("framework", "sizes", "weights", "training"):
        if key in model.model_fields_set:
            yield f"{where}.{key}: the model in {model.source} is ready and not made here; remove the key"
    try:
        if not datasets.expand(model.source).is_file():
            file = datasets.expand(model.source)
            yield f"{where}.source: there is no file {file} (paths start at the repository root)"
    except ShapelineError as error:
        yield f"{where}.source: {error}"
    if source and suffix == ".skops" and source.kind != "table":
        yield f"{where}.source: a pipeline takes tables, not a dataset of kind {source.kind}; give another model"
    elif source and source.kind == "text" and not dataset.tokenizer:
        yield (
            f"{where}.source: a Keras file has a vocabulary of its own, which is not known here; give the dataset its "
            "tokenizer, or a function path/to/file.py:function that builds the model"
        )


def _impossible_training(where: str, model: Model, source: datasets.Source | None) -> Iterator[str]:
    torch = framework_of(model) == "torch"
    if model.architecture in TORCH_ONLY and not torch:
        yield f"{where}.framework: {model.architecture} is for torch alone; remove the key"
    if model.training.augment and ((source and source.kind != "image") or not torch):
        of = f"a dataset of kind {source.kind} has none" if torch else "in torch alone"
        yield f"{where}.training.augment: it flips pictures, {of}; remove the key"
    if model.weights is None:
        return
    if not torch:
        yield f"{where}.weights: training starts from a file in torch alone; remove the key"
    if model.weights in datasets.WEIGHTS:
        if model.architecture != "resnet18":
            yield f"{where}.weights: {model.weights} is of resnet18; set architecture: resnet18, or name a file"
        return
    try:
        file = datasets.expand(model.weights)
    except ShapelineError as error:
        yield f"{where}.weights: {error}"
        return
    if file.suffix not in (".pth", ".safetensors"):
        hint = nearest(model.weights, datasets.WEIGHTS)
        yield f"{where}.weights: '{model.weights}' is no .pth or .safetensors file.{hint}"
    elif not file.is_file():
        yield f"{where}.weights: there is no file {file}"


def _impossible_other_data(config: Config, name: str, experiment: Experiment) -> Iterator[str]:
    """What keeps a model from explaining the dataset named beside it, as far as the configuration tells."""
    model = config.models.get(experiment.model)
    own = config.datasets.get(model.dataset) if model else None
    other = config.datasets.get(experiment.dataset)
    if own is None or other is None:
        return
    where = f"experiments.{name}.dataset"
    if model.dataset == experiment.dataset:
        yield f"{where}: models.{experiment.model} is trained on {experiment.dataset} itself; remove the key"
        return
    try:
        trained, explained = (other_data.told_by(source_of(one), canonical(one)) for one in (own, other))
    except ShapelineError:  # told where the dataset is
        return
    any_size = model.source is not None or model.architecture in ANY_SIZE
    told = other_data.difference(trained, explained, any_size)
    same = "tokenizer" in trained and "tokenizer" in explained  # `difference` compared them
    if told is None and trained.get("unit") == explained.get("unit") == "word" and not same:
        told = "each dataset of words has a vocabulary of its own"
    if told:
        yield (
            f"{where}: models.{experiment.model} is trained on {model.dataset} and cannot explain "
            f"{experiment.dataset}: {told}"
        )


def _impossible_experiment(config: Config, name: str, experiment: Experiment) -> Iterator[str]:
    where = f"experiments.{name}"
    model = config.models.get(experiment.model)
    dataset_name = experiment.dataset or (model.dataset if model else None)
    dataset = config.datasets.get(dataset_name)
    source = source_of(dataset)
    kind = experiment.features.kind
    without_model = experiment.model is None
    if without_model and kind in features.TEXT_KINDS:
        yield f"{where}.dataset: the tokens of a text are no points, so texts are explained by a model; give model"
        return
    if source:
        fitting = features.FITTING[source.kind]
        if kind not in fitting:
            allowed = ", ".join(fitting)
            yield f"{where}.features.kind: '{kind}' does not fit a dataset of kind {source.kind}. Allowed: {allowed}."
            return
        unit = datasets.unit_of(canonical(dataset))
        if unit and (kind == "word") != (unit == "word"):
            fitting = "word" if unit == "word" else "character_run"
            yield f"{where}.features.kind: '{kind}' does not fit tokens of unit {unit}; use {fitting}"
            return
        if not without_model:
            yield from _impossible_value(where, experiment, dataset_name, source.task)
        reference, _ = references.parse(canonical(experiment.reference))
        if reference not in references.FITTING[source.kind] and not without_model:
            allowed = ", ".join(references.FITTING[source.kind])
            yield f"{where}.reference: '{reference}' does not fit a dataset of kind {source.kind}. Allowed: {allowed}."
    asking = ("log_odds", "ablation", "erasure", "infidelity", "sensitivity", "randomisation", "own", "efficiency")
    for metric in asking if without_model else ():
        if getattr(experiment.metrics, metric) is not None:
            yield f"{where}.metrics.{metric}: it asks what the model says and there is no model; remove the metric"
    if model and ready.suffix_of(model.source) and experiment.metrics.randomisation:
        yield f"{where}.metrics.randomisation: the model in {model.source} cannot be drawn anew; remove the metric"
    if model and framework_of(model) == "function":
        if experiment.value == "logit":
            yield f"{where}.value: a pipeline gives probabilities and no logit; use log_probability or probability"
        if experiment.metrics.ablation:
            yield f"{where}.metrics.ablation: it asks for a logit, which a pipeline has not; remove the metric"
    for metric, reference in (experiment.metrics.own.functions if experiment.metrics.own else {}).items():
        try:
            methods.own_arguments(reference)
        except ShapelineError as error:
            yield f"{where}.metrics.own.functions.{metric}: {error}"
    regression = source.task == "regression" if source else experiment.value == "prediction"
    if experiment.metrics.log_odds and regression and not without_model:
        yield f"{where}.metrics.log_odds: a regression model gives no probabilities and so no odds; remove the metric"
    for metric in ("ablation", "erasure") if regression and not without_model else ():
        if getattr(experiment.metrics, metric):
            yield f"{where}.metrics.{metric}: a regression model gives no logits nor probabilities; remove the metric"
    own = kind in features.TEXT_KINDS or features.varies(canonical(experiment.features))
    if experiment.metrics.sensitivity and own:
        yield f"{where}.metrics.sensitivity: inputs of kind '{kind}' cannot move a little; remove the metric"
    yield from _impossible_localization(where, experiment, source)
    yield from _impossible_seeds(where, experiment, model)
    judges = experiment.metrics.log_odds.references if experiment.metrics.log_odds and source else None
    for other in judges or ():
        if other not in references.FITTING[source.kind]:
            yield f"{where}.metrics.log_odds.references: '{other}' does not fit kind {source.kind}; remove it"
    try:
        file = references.file_of(canonical(experiment.reference))
        if file is not None and not file.is_file():
            yield f"{where}.reference.path: there is no file {file}"
    except ShapelineError as error:
        yield f"{where}.reference.path: {error}"
    if experiment.instances.texts and "count" in experiment.instances.model_fields_set:
        yield f"{where}.instances.count: texts of one's own are all explained; remove the count"
    if experiment.instances.texts and source and source.kind != "text":
        yield f"{where}.instances.texts: only a dataset of kind text takes them, not one of kind {source.kind}"
    yield from _impossible_instances(f"{where}.instances", experiment, dataset, source)
    for key in ("precision", "compile"):
        framework = framework_of(model) if model else None
        if getattr(experiment, key) != Experiment.model_fields[key].default and framework != "torch":
            yield f"{where}.{key}: it is for models of torch; remove the key"
    shape = None
    if source:
        try:
            shape = feature_shape(config, experiment)
        except ShapelineError as error:
            yield f"{where}.features: {error}"
    d = math.prod(shape) if shape else None
    if d == 1:
        yield f"{where}.features: there is a single feature (d = 1), so nothing to share out; make the features smaller"
        return
    if experiment.timing == "per_instance" and experiment.cache:
        yield f"{where}.timing: values kept in the cache take no time, so seconds would say nothing; remove cache"
    for label, entry in experiment.methods.items():
        problem = _file_problem(entry, experiment)
        if problem:
            yield f"{where}.methods.{label}.{problem}"
            continue
        own = _own_shape(config, experiment, entry, shape)
        if isinstance(own, str):
            yield f"{where}.methods.{label}.features: {own}"
            continue
        mistakes = [
            *_impossible_method(f"{where}.methods.{label}", entry, experiment, own),
            *_impossible_tree(f"{where}.methods.{label}", entry, experiment, own),
            *_impossible_data_method(f"{where}.methods.{label}", entry, experiment, source),
            *_impossible_for_model(f"{where}.methods.{label}", entry, config, name, source),
        ]
        yield from mistakes
        if methods.METHODS[entry.method].minimum and not mistakes and not (entry.rival_of and own is None):
            yield from _impossible_budget(config, name, label, math.prod(own) if own else None)
    if experiment.metrics.decisive and experiment.instances.texts:
        yield f"{where}.metrics.decisive: the decisive words of one's own texts are not known; remove the metric"
    elif experiment.metrics.decisive and dataset and dataset.tokenizer:
        yield f"{where}.metrics.decisive: which words of the tokenizer's decide is not known; remove the metric"
    elif experiment.metrics.decisive and source and not (source.synthetic and source.kind == "text"):
        yield f"{where}.metrics.decisive: the decisive words of source '{source.name}' are not known; remove the metric"
    error = experiment.metrics.error
    if error and list(experiment.methods) == [error.reference]:
        yield f"{where}.metrics.error: '{error.reference}' is the only label, so there is nothing to compare with it"
    if error and error.reference not in experiment.methods:
        yield (
            f"{where}.metrics.error.reference: there is no label '{error.reference}' among the methods."
            f"{nearest(error.reference, experiment.methods)}"
        )


def _impossible_seeds(where: str, experiment: Experiment, model: Model | None) -> Iterator[str]:
    """What keeps an experiment from training its model again by other seeds."""
    if experiment.seeds == 1:
        return
    if experiment.model is None:
        yield f"{where}.seeds: without a model nothing is trained; remove the key"
    elif model and (ready.suffix_of(model.source) or model.training.epochs == 0):
        yield f"{where}.seeds: models.{experiment.model} is ready and not trained here; remove the key"
    for label, entry in experiment.methods.items():
        if entry.method == "external":
            yield f"{where}.seeds: the scores of '{label}' are of one model; remove the key, or the label"
    if not any(getattr(experiment.metrics, metric) for metric in metrics.PAIRED):
        yield f"{where}.seeds: no metric compares trainings; add one of {', '.join(metrics.PAIRED)}"


def _file_problem(entry: Any, experiment: Experiment) -> str | None:
    """What is wrong with the user's own file behind an entry: a function, or scores made elsewhere."""
    if isinstance(entry, Own):
        problem = methods.own_problem(entry)
        if not problem and "graph" in methods.own_arguments(entry.method):
            kind = features_of(experiment, entry).kind
            if kind in features.TABLE_KINDS:
                return f"method: {entry.method} takes a graph and features of kind '{kind}' lack one; let it take d"
        return problem
    if entry.method != "external":
        return None
    if experiment.metrics.randomisation:
        return "method: scores made elsewhere are of one model; remove metrics.randomisation, or the label"
    if experiment.metrics.sensitivity:
        return "method: scores made elsewhere cannot be made anew for moved inputs; remove metrics.sensitivity"
    try:
        file = datasets.expand(entry.path)
    except ShapelineError as error:
        return f"path: {error}"
    return None if file.is_file() else f"path: there is no file {file} (paths start at the repository root)"


def _impossible_instances(
    where: str, experiment: Experiment, dataset: Dataset | None, source: datasets.Source | None
) -> Iterator[str]:
    chosen = experiment.instances
    for key in ("label", "correct", "objects", "or_all"):
        if chosen.texts and key in chosen.model_fields_set:
            yield f"{where}.{key}: texts of one's own are all explained and have no class; remove the key"
    if chosen.correct and experiment.model is None:
        yield f"{where}.correct: without a model nothing is predicted; remove the key"
    if not source:
        return
    if source.task == "regression":
        for key in ("label", "correct"):
            if getattr(chosen, key):
                yield f"{where}.{key}: source '{source.name}' is of regression and has no classes; remove the key"
        return
    if chosen.objects and chosen.label is None and source.task == "multilabel":
        yield f"{where}.objects: a record has objects of several labels; say of which with label, or remove the key"
    if chosen.objects and not source.truth:
        yield f"{where}.objects: the objects in records of source '{source.name}' are not known; remove the key"
    if chosen.label is None:
        return
    try:
        kept = datasets.chosen_classes(source.name, source.classes, dataset.classes)
    except ShapelineError:  # told where the dataset is
        return
    try:
        datasets.class_index("classes of the dataset", chosen.label, [source.classes[index] for index in kept])
    except ShapelineError as error:
        yield f"{where}.label: {error}"


def _impossible_localization(where: str, experiment: Experiment, source: datasets.Source | None) -> Iterator[str]:
    if source and source.kind != "image" and experiment.report.notebook == "localization":
        yield f"{where}.report.notebook: localization shows pictures, not a dataset of kind {source.kind}; use report"
    if not experiment.metrics.localization or not source:
        return
    if source.kind != "image":
        yield f"{where}.metrics.localization: it is of pictures, not of kind {source.kind}; remove the metric"
    elif not source.truth:
        known = ", ".join(name for name, one in datasets.SOURCES.items() if one.truth)
        yield (
            f"{where}.metrics.localization: where in its pictures a class is, source '{source.name}' does not say; "
            f"remove the metric, or use one of {known}"
        )


def _impossible_value(where: str, experiment: Experiment, dataset: str, task: str) -> Iterator[str]:
    regression, several = task == "regression", task == "multilabel"
    if regression and experiment.value != "prediction":
        yield f"{where}.value: datasets.{dataset} is of regression and has no {experiment.value}; set value: prediction"
    if several and experiment.value == "expected_log_probability":
        yield (
            f"{where}.value: datasets.{dataset} has several labels a record, over which nothing sums to 1; use "
            "log_probability"
        )
    if not regression and experiment.value == "prediction":
        yield f"{where}.value: prediction is for regression and datasets.{dataset} has classes; remove the key"


def _impossible_method(place: str, entry: Any, experiment: Experiment, shape: tuple | None) -> Iterator[str]:
    d = math.prod(shape) if shape else None
    method = methods.METHODS[entry.method]
    kind = features_of(experiment, entry).kind
    on_graph = kind not in features.TABLE_KINDS
    on_grid = on_graph and kind != "superpixel"  # words and runs of characters are a row
    if method.exact and d and d > methods.MAX_EXACT:
        yield (
            f"{place}: {entry.method} enumerates 2^d coalitions and d = {d}; it takes d <= {methods.MAX_EXACT}: "
            "use larger patches or groups of columns, or a sampled method"
        )
    if (method.grid and not on_grid) or (getattr(entry, "graph", None) == "features" and not on_graph):
        remedy = "use a sampled method" if method.grid else "set graph: chain or graph: complete"
        needed = "grid" if method.grid and on_graph else "graph"
        yield f"{place}: {entry.method} needs features on a {needed} and features of kind '{kind}' lack one; {remedy}"
    if getattr(entry, "keep", None) and entry.kernel == "shapley":
        yield f"{place}.keep: lime with kernel 'shapley' has no fit of some features; use cosine or fraction"
    if method.is_fixed_cost and not method.exact and d and (on_grid or getattr(entry, "graph", "") != "features"):
        try:
            fixed_cost(json.dumps(canonical(entry)), shape)
        except ShapelineError as error:
            yield f"{place}: {error}"
    rival = getattr(entry, "rival_of", None)
    if rival is None:
        return
    if entry.budget or entry.snapshots:
        yield f"{place}: rival_of sets the budget; remove budget and snapshots"
    if rival not in experiment.methods:
        yield f"{place}.rival_of: there is no label '{rival}' among the methods.{nearest(rival, experiment.methods)}"
    elif not (methods.METHODS[experiment.methods[rival].method].is_fixed_cost):
        yield f"{place}.rival_of: '{rival}' has no fixed number of evaluations; give a budget instead"
    elif getattr(experiment.methods[rival], "features", None):
        yield f"{place}.rival_of: '{rival}' explains features of its own; give a budget instead"


def _own_shape(config: Config, experiment: Experiment, entry: Any, shape: tuple | None) -> tuple | str | None:
    """The shape of the features that an entry explains, None where unknown; or, in a text, why it cannot have them."""
    if getattr(entry, "features", None) is None:
        return shape
    if experiment.features.kind != "pixel":
        kind = experiment.features.kind
        return f"a method has features of its own where the experiment's are pixels, and these are of kind '{kind}'"
    if getattr(entry, "rival_of", None):
        return "a rival explains the same features; remove rival_of and give a budget"
    try:
        own = feature_shape(config, experiment, entry)
    except ShapelineError as error:
        return str(error)
    return "there is a single feature (d = 1); make the features smaller" if own and math.prod(own) == 1 else own


def _impossible_tree(place: str, entry: Any, experiment: Experiment, shape: tuple | None) -> Iterator[str]:
    """What the methods on trees over a grid of features (family hierarchical) cannot do."""
    if methods.METHODS[entry.method].family != "hierarchical":
        return
    kind = features_of(experiment, entry).kind
    if entry.method == "partition":
        if kind == "superpixel":
            yield f"{place}: partition halves a grid or a row and superpixels lie on none; use h_shap"
        return
    if entry.mode == "relative" and entry.threshold > 100:
        yield f"{place}.threshold: {entry.threshold:g} is no percentile; in mode relative give 0 to 100"
    if kind == "superpixel":
        for key in ("min_size", "shifts"):
            if key in entry.model_fields_set:
                yield f"{place}.{key}: superpixels are the leaves of the tree themselves; remove the key"
        return
    axes = 2 if kind in features.IMAGE_KINDS else 1
    if any(len(shift) != axes for shift in entry.shifts or ()):
        wanted = "[rows, columns]" if axes == 2 else "[columns]"
        yield f"{place}.shifts: features of kind '{kind}' are moved by {wanted} each"
    if shape and entry.min_size > max(shape):
        size = "x".join(map(str, shape))
        yield f"{place}.min_size: {entry.min_size} is larger than the {size} features; give at most {max(shape)}"


def _impossible_data_method(
    place: str, entry: Any, experiment: Experiment, source: datasets.Source | None
) -> Iterator[str]:
    method = methods.METHODS[entry.method]
    if method.asks_model and experiment.model is None:
        free = ", ".join(name for name, other in methods.METHODS.items() if not other.asks_model)
        yield f"{place}: {entry.method} asks a model and there is none; give model in place of dataset, or use {free}"
    if method.family == "data" and source and source.task == "multilabel":
        yield f"{place}: {entry.method} compares points of one label each; these have several, so remove it"
    if method.family == "data" and experiment.features.kind in features.TEXT_KINDS:
        yield f"{place}: {entry.method} compares points and the tokens of a text are none; remove it"
    if getattr(entry, "mu", None) and entry.categorical:
        yield f"{place}: the kernel of cosine distance (mu) takes no categorical columns; use rho"
    for column in getattr(entry, "categorical", ()):
        if isinstance(column, str) and source and column not in source.feature_names:
            yield f"{place}.categorical: there is no column '{column}'.{nearest(column, source.feature_names)}"


def _impossible_for_model(
    place: str, entry: Any, config: Config, name: str, source: datasets.Source | None
) -> Iterator[str]:
    """What the networks, the inputs or the installed packages do not allow a method of gradients or a peer."""
    method, experiment = methods.METHODS[entry.method], config.experiments[name]
    model = config.models.get(experiment.model)
    if method.data and source and source.kind not in method.data:
        explained = " and ".join(method.data)
        yield f"{place}: {entry.method} explains data of kind {explained}, not of kind {source.kind}; remove it"
    if method.torch_only and model and framework_of(model) != "torch":
        yield (
            f"{place}: {entry.method} needs a torch model and models.{experiment.model} is of {framework_of(model)}; "
            "set its framework: torch, or remove the method"
        )
    elif model and model.architecture in method.refuses:
        yield (
            f"{place}: {entry.method} has no rule for what {model.architecture} does; "
            "use expected_gradients or integrated_gradients"
        )
    elif method.family == "gradients" and model and framework_of(model) == "function":
        yield f"{place}: {entry.method} needs the derivative of a network, which a pipeline has not; remove it"
    if method.family == "peers" and getattr(entry, "snapshots", None):
        yield f"{place}.snapshots: {entry.method} tells only its last estimate; give labels with budgets of their own"
    lacking = methods.missing(entry.method) if name in config.run else None  # another's run shall not end for it
    if lacking:
        yield f"{place}: {lacking}"


def _impossible_budget(config: Config, name: str, label: str, d: int | None) -> Iterator[str]:
    where = f"experiments.{name}"
    entry = config.experiments[name].methods[label]
    try:
        budget = budget_of(config, name, label)
    except ShapelineError as error:
        yield f"{where}.methods.{label}.rival_of: {error}"
        return
    if len(set(entry.snapshots or ())) < len(entry.snapshots or ()):
        yield f"{where}.methods.{label}.snapshots: a budget is listed twice"
    key = "rival_of" if entry.rival_of else "budget"
    asked = [(f"{where}.methods.{label}.{key}" if entry.rival_of or entry.budget else f"{where}.budget", budget)]
    for smaller in entry.snapshots or ():
        asked.append((f"{where}.methods.{label}.snapshots", smaller))
        if smaller >= budget:
            yield f"{where}.methods.{label}.snapshots: {smaller:g} is not below the budget of {budget:g}"
    minimum = methods.function_of(methods.METHODS[entry.method].minimum)
    if d is None:  # that of an instance; the smallest multiple of a large d is that of nearly all
        least = methods.call(minimum, {**entry.model_dump(), "d": LARGE}) / LARGE
        for place, multiple in asked:
            if multiple < 0.9 * least:
                enough = math.ceil(10 * least) / 10
                yield f"{place}: {multiple:g} x d is too few for {entry.method}: set {enough:g} or more"
        return
    least = methods.call(minimum, {**entry.model_dump(), "d": d})
    for place, multiple in asked:
        count = evaluations(multiple, d)
        if count < least:
            yield (
                f"{place}: {multiple:g} x d is {count} evaluations and {entry.method} needs at least {least} "
                f"at d = {d}: set {math.ceil(100 * least / d) / 100:g} or more"
            )


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
