"""The types of the configuration: every key, its range and its default, and what follows from a few of them."""

import re
from typing import Annotated, Any, Literal, Union

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, create_model

from shapeline.datasets.limits import MOST_PIXELS
from shapeline.datasets.registry import SOURCES
from shapeline.datasets.sources import FOLDER, USER_FILE
from shapeline.methods.parameters import Own, Patch, Positive, Superpixel
from shapeline.methods.registry import METHODS
from shapeline.metrics.registry import METRICS
from shapeline.models.registry import ARCHITECTURES, AUGMENTATIONS, OPTIMIZERS, SCHEDULES

INSTANCES_A_SHARD = 250
ROOT = ("benchmarks", "data", "docs", "envs", "examples", "notebooks", "profiles", "tests", "workflow")  # no results
MODEL_FILE = rf"{USER_FILE}|\.(skops|keras|onnx|json|ubj|txt|cbm)$|{FOLDER}"
TOKENIZER = rf"{USER_FILE}|{FOLDER}"
# What a text that does not match a pattern should have been.
WANTED = {
    USER_FILE: "write path/to/file.py:function",
    TOKENIZER: "write path/to/file.py:function, or path/to/folder of a tokenizer.json",
    MODEL_FILE: "name path/to/file.py:function, a .skops, .keras or .onnx file, one of XGBoost (.json, .ubj), LightGBM "
    "(.txt) or CatBoost (.cbm), or path/to/folder of transformers (here: ./folder); pickle and joblib are not read, so "
    "save a pipeline with skops.io.dump",
}


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Data(Strict):
    mirror: str | None = Field(
        None, description="Folder or URL holding <source>/<file>, tried before the official places."
    )
    offline: bool = Field(False, description="Never use the network; say which file to place where.")


class Limits(Strict):
    member: float | None = Field(
        None, gt=0, description="Megabytes that a file in an archive or folder may unpack to; 128 by default."
    )
    total: float | None = Field(
        None,
        gt=0,
        description="Megabytes that a whole archive may; by default 500, or 50 times its own size where that is more.",
    )
    pixels: float | None = Field(
        None,
        gt=0,
        le=MOST_PIXELS,
        description="Million pixels of a picture as it is stored; 50 by default.",
    )


class Dataset(Strict):
    source: str = Field(description=f"One of {', '.join(SOURCES)}, or path/to/file.py:function.")
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
        None,
        pattern=TOKENIZER,
        description="Text: path/to/folder with a tokenizer.json of transformers, whose length is the default; or "
        "path/to/file.py:function, a function that takes nothing and returns a tokenizer.",
    )
    target: str | None = Field(None, description="table_file, text_file: the column of classes or numbers to predict.")
    text: str | None = Field(None, description="text_file: the column of documents.")
    text_pair: str | None = Field(
        None,
        description="text_file: the column of second sentences, where a document is a pair; for a folder's tokenizer.",
    )
    task: Literal["classification", "regression", "multilabel"] | None = Field(
        None,
        description="table_file: whether the target is a class (the default) or a number. malaria: multilabel for two "
        "labels a slide that may both be there, trophozoite and ring; for torch. A function of one's own returns it.",
    )
    columns: list[str] | None = Field(
        None, min_length=1, description="table_file: the columns that are features; all but the target by default."
    )
    categorical: list[str] | None = Field(
        None, min_length=1, description="table_file: columns of numbers that are categories all the same."
    )
    separator: str = Field(
        ",",
        min_length=1,
        description="CSV files of table_file and text_file: the character between cells, or the word tab or spaces.",
    )
    header: bool | Annotated[int, Field(ge=0)] | list[str] | None = Field(
        None,  # true: it would be equal to 1
        description="CSV files: the first line by default; false where there is none, and columns are then called 0, "
        "1, ...; a list: their names, where there is none; a number: so many lines stand above it.",
    )
    na_values: list[str | int | float] | None = Field(
        None,
        min_length=1,
        description="CSV files: what stands for a missing cell, beside an empty one and, in a column of "
        "numbers, pandas' own words (NA, null, None, ...).",
    )
    encoding: str = Field("utf-8", description="CSV files: how the text is written, cp1252 say.")
    trim: bool = Field(False, description="CSV files: spaces around cells and names are removed.")
    decimal: Literal[".", ","] = Field(".", description="CSV files: the sign before decimals.")
    thousands: str | None = Field(
        None, description="CSV files: the sign between thousands: a comma, a point, a space or an apostrophe."
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
    limits: Limits | None = Field(
        None,
        description="Archives and pictures in files: how much is read, where the usual limits are too small.",
    )
    validation: float = Field(
        0.1, gt=0, lt=1, description="Fraction of the training part used to choose the best epoch."
    )
    split: Literal["official", "drawn"] = Field(
        "official", description="drawn: the parts are drawn from all records, whatever split the source has."
    )
    test: Annotated[float, Field(gt=0, lt=1)] | Positive = Field(
        0.3,
        description="Held out where the parts are drawn: a fraction of each class, or a whole number of its records.",
    )


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
        None, description="halving: the learning rate halves every 3 epochs; step: it falls every `step_epochs`."
    )
    step: float | None = Field(None, gt=0, lt=1, description="schedule step: what it is multiplied by, default 0.2.")
    step_epochs: Positive | None = Field(None, description="schedule step: after so many epochs each, default 10.")
    optimizer: Literal[OPTIMIZERS] | None = Field(None, description="By architecture.")
    augment: list[Literal[AUGMENTATIONS]] | None = Field(
        None, description="Pictures: flips made or not, at random, for every training row in every epoch."
    )
    patience: Positive | None = Field(
        None, description="Training ends after so many epochs in a row that are no better on the validation part."
    )


class Model(Strict):
    dataset: str = Field(description="Name of the dataset that it is trained on.")
    architecture: Literal[*ARCHITECTURES] | None = Field(None, description="One of the package's; or source, not both.")
    source: str | None = Field(
        None,
        pattern=MODEL_FILE,
        description="path/to/file.py:function that builds a torch module or a Keras model; or a "
        "model that is ready: a scikit-learn pipeline in a .skops file, a .keras or .onnx file, boosted trees of "
        "XGBoost (.json, .ubj), LightGBM (.txt) or CatBoost (.cbm), path/to/folder of a text or picture classifier of "
        "transformers, or with framework: function a path/to/file.py:function of "
        "rows.",
    )
    trusted: list[str] | None = Field(
        None, min_length=1, description=".skops: types that the file may hold beside scikit-learn's usual ones."
    )
    framework: Literal["torch", "tensorflow", "function"] | None = Field(
        None,
        description="tensorflow for the architectures of text, torch for the others. function: the source is the model "
        "itself, from rows to probabilities or predictions.",
    )
    outputs: Literal["logits", "probabilities"] | None = Field(
        None,
        description="What a network of one's own, or the one in a .keras or .onnx file, gives; by default detected.",
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


class Conditional(Strict):
    kind: Literal["conditional"]
    form: Literal["gaussian", "neighbours"] = Field(
        "gaussian", description="Draws of a Gaussian given the columns present, or the records nearest on these."
    )
    rows: Positive = Field(16, description="Draws, or records; the model's probability is averaged over them.")


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
    Annotated[Literal["zero", "mean", "mean_value", "mean_image", "pad", "mask", "delete", "blur"], Tag("mean")]
    | Annotated[Background, Tag("background")]
    | Annotated[Conditional, Tag("conditional")]
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
    texts: (
        list[
            Annotated[str, Field(min_length=1)]
            | Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=2, max_length=2)]
        ]
        | None
    ) = Field(
        None,
        min_length=1,
        description="Documents of one's own, explained in place of test instances; pairs are [first, second].",
    )
    near: list[dict[str, float | str]] | None = Field(
        None,
        min_length=1,
        description="Of a table, in place of a draw: for each of these values by column the record that is nearest, in "
        "the columns' standard deviations.",
    )

    @property
    def number(self) -> int:
        """How many there are at most."""
        return len(self.texts or self.near or ()) or self.count


class Report(Strict):
    notebook: Literal["report", "influence", "localization"] = Field(
        "report",
        description="The page: influence is that of measures which need labelled points alone, localization that of "
        "pictures whose decisive pixels are known.",
    )
    title: str | None = Field(None, description="Heading of the page; the experiment's name by default.")
    margin: float = Field(
        0.05,
        gt=0,
        lt=1,
        description="What a recommended method may be behind the best: a share of the span from random scores to it.",
    )
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
            *(Annotated[entry.parameters, Tag(name)] for name, entry in METHODS.items()),
            Annotated[Own, Tag(OWN)],
        )
    ],
    Discriminator(method),
]
Metrics = create_model(
    "Metrics",
    __base__=Strict,
    **{name: (metric.parameters | None, None) for name, metric in METRICS.items()},
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
    value: Literal[
        "log_probability", "probability", "log_odds", "margin", "logit", "expected_log_probability", "prediction"
    ] = Field(
        "log_probability",
        description="What a coalition is worth. log_odds: of the probability, which is averaged over the reference "
        "rows; margin: of each row, then averaged, what boosted trees add up to. prediction is the one value of a "
        "regression.",
    )
    target: int | str = Field(
        "predicted",
        description="The class whose value is explained: predicted, true, or one for all instances, by name, "
        "so that scores keep their sign from one to the next.",
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
    seed_instances: Positive | None = Field(
        None,
        description="Instances that the other trainings are explained on, drawn by seed; all by default.",
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
        False, description="Keep values of coalitions in the row store, too, so that methods share them."
    )
    shards: Literal["auto"] | Positive | None = Field(
        None, description="Score files a label; run-wide `shards` by default."
    )
    on_error: Literal["record", "fail"] = Field(
        "record",
        description="Whether a method's failure, on an instance or on a model that it cannot take, becomes a row with "
        "its reason, or stops the run.",
    )


class Config(Strict):
    run: list[str] = Field(min_length=1, description="The experiments that `all` makes.")
    run_if_here: list[str] = Field(
        [],
        description="Experiments that it makes as well where the files of their data are here: placed, in the folder "
        "`data.mirror`, or at their `path`. Nothing is fetched for them; `doctor` and a run's start name the rest.",
    )
    datasets: dict[str, Dataset] = Field(min_length=1, description="Name -> where data come from.")
    models: dict[str, Model] = Field(min_length=1, description="Name -> what is trained on a dataset, or is ready.")
    experiments: dict[str, Experiment] = Field(min_length=1, description="Name -> what is explained, how and by what.")
    results: str = Field("results", min_length=1, description="Output folder, inside the repository root.")
    scale: Literal["smoke", "paper", "beyond"] = Field(
        "paper",
        description="paper: as written; smoke: everything small; beyond: three times the instances, three repeats.",
    )
    seed: Annotated[int, Field(ge=0, lt=2**64)] = Field(0, description="All that is random follows from it.")
    accuracy: Annotated[int, Field(ge=0, le=1000)] = Field(
        0, description="Draws an instance of the page that measures estimators on stored games; 0: no such page."
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="auto: a GPU where one is free, else the CPU; cuda: an error where there is none."
    )
    jobs_per_gpu: Positive = Field(1, description="Jobs that share a GPU; --resources gpu still counts GPUs.")
    shards: Literal["auto"] | Positive = Field("auto", description="Score files a label, each a job of its own.")
    row_store_gb: float = Field(
        20.0,
        ge=0,
        description="Gigabytes of computed rows that `results/.rows` keeps for later runs, those last used first; "
        "0: none.",
    )
    versions: Literal["tell", "strict"] = Field(
        "tell",
        description="Packages that can change a number in other versions than scores were made with. tell: a line at "
        "the start of a run, and in the health table; strict: the jobs run again.",
    )
    data: Data = Field(Data(), description="Where official files come from.")
