"""The types of the configuration: every key, its range and its default."""

import re
from typing import Annotated, Any, Literal, Union

from pydantic import BaseModel, ConfigDict, Discriminator, Field, PrivateAttr, Tag, create_model

from shapeline.datasets.archive import MAX_PIXELS
from shapeline.datasets.registry import SOURCES
from shapeline.datasets.sources import FOLDER, USER_FILE
from shapeline.methods.parameters import CustomMethod, Patch, Positive, Superpixel
from shapeline.methods.registry import METHODS
from shapeline.metrics.registry import METRICS
from shapeline.models.registry import ARCHITECTURES, AUGMENTATIONS, OPTIMIZERS, PRECISIONS, SCHEDULES

INSTANCES_PER_SHARD = 250
# Folders of the repository that the folder of results must not be.
ROOT_FOLDERS = ("benchmarks", "data", "docs", "envs", "examples", "notebooks", "profiles", "tests", "workflow")
MODEL_FILE = rf"{USER_FILE}|\.(skops|keras|onnx|json|ubj|txt|cbm)$|{FOLDER}"
TOKENIZER = rf"{USER_FILE}|{FOLDER}"
# Corrections for texts that do not match a pattern.
PATTERN_HINTS = {
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
        None, description="Folder or URL with <source>/<file>, tried before the official addresses."
    )
    offline: bool = Field(False, description="Never use the network; report which file to place where.")


class Limits(Strict):
    member: float | None = Field(
        None, gt=0, description="Largest size in megabytes of an unpacked file of an archive or folder; 128 by default."
    )
    total: float | None = Field(
        None,
        gt=0,
        description="Largest size in megabytes of an unpacked archive; by default 500, or 50 times its packed "
        "size if that is more.",
    )
    pixels: float | None = Field(
        None, gt=0, le=MAX_PIXELS, description="Largest number of pixels of a stored image, in millions; 50 by default."
    )


class Dataset(Strict):
    source: str = Field(
        description=f"One of {', '.join(SOURCES)}; prompts, a .jsonl or .csv file; or path/to/file.py:function."
    )
    path: str | None = Field(
        None, description="Local file or folder instead of the official source; $VARIABLES expand."
    )
    classes: list[int | str] | None = Field(None, min_length=2, description="Selected classes, by index or name.")
    unit: Literal["word", "character"] | None = Field(None, description="Texts: kind of token.")
    length: Positive | None = Field(None, description="Texts: tokens per document; longer ones are cut.")
    vocabulary: Annotated[int, Field(ge=3)] | None = Field(
        None, description="Texts: number of most frequent words, including padding and unknown."
    )
    tokenizer: str | None = Field(
        None,
        pattern=TOKENIZER,
        description="Texts: path/to/folder with a tokenizer.json of transformers, which also sets the default "
        "length; or path/to/file.py:function without arguments that returns a tokenizer.",
    )
    target: str | None = Field(None, description="table_file, text_file: the column of classes or numbers to predict.")
    text: str | None = Field(None, description="text_file: the column of documents.")
    text_pair: str | None = Field(
        None, description="text_file: the column of second sentences of pairs; needs a folder's tokenizer."
    )
    task: Literal["classification", "regression", "multilabel"] | None = Field(
        None,
        description="table_file: classification (default) or regression. malaria: multilabel for the two labels "
        "trophozoite and ring; torch only. A custom dataset function returns its task.",
    )
    columns: list[str] | None = Field(
        None, min_length=1, description="table_file: the feature columns; by default all but the target."
    )
    categorical: list[str] | None = Field(
        None, min_length=1, description="table_file: numeric columns that are categories."
    )
    separator: str = Field(
        ",",
        min_length=1,
        description="CSV files of table_file and text_file: the separator between cells, or the word tab or spaces.",
    )
    header: bool | Annotated[int, Field(ge=0)] | list[str] | None = Field(
        None,  # true: it would be equal to 1
        description="CSV files: by default the first line; false: no header, columns are named 0, 1, ...; a list:"
        " the names of a file without a header; a number: so many lines precede the header.",
    )
    na_values: list[str | int | float] | None = Field(
        None,
        min_length=1,
        description="CSV files: values of missing cells, beside an empty cell and, in numeric columns, pandas' "
        "own words (NA, null, None, ...).",
    )
    encoding: str = Field("utf-8", description="CSV files: text encoding, for example cp1252.")
    trim: bool = Field(False, description="CSV files: remove spaces around cells and names.")
    decimal: Literal[".", ","] = Field(".", description="CSV files: decimal separator.")
    thousands: str | None = Field(
        None, description="CSV files: thousands separator: a comma, a point, a space or an apostrophe."
    )
    count: Positive | None = Field(None, description="Number of images of a source that generates them.")
    size: Annotated[list[Positive], Field(min_length=2, max_length=2)] | None = Field(
        None, description="Image files: [height, width] in pixels of the resized images."
    )
    resize: Literal["resize", "crop"] | None = Field(
        None, description="Image files: resize (default) stretches, crop cuts the longer side."
    )
    color: Literal["rgb", "grey"] | None = Field(
        None, description="Image files: rgb by default, which refuses a grey image."
    )
    on_decode_error: Literal["stop", "skip"] | None = Field(
        None, description="Image files: whether an image that cannot be decoded stops the run (default) or is skipped."
    )
    limits: Limits | None = Field(
        None, description="Archives and image files: limits of size, if the defaults are too small."
    )
    validation: float = Field(
        0.1, gt=0, lt=1, description="Fraction of the training part used to choose the best epoch."
    )
    split: Literal["official", "drawn"] = Field(
        "official", description="drawn: the split is sampled from all instances, whatever split the source has."
    )
    test: Annotated[float, Field(gt=0, lt=1)] | Positive = Field(
        0.3, description="Size of a sampled test part: a fraction of each class, or a number of instances."
    )


class Training(Strict):
    epochs: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="Passes over the training part; default by architecture. 0: no training, if source or weights"
        " give a trained model.",
    )
    batch: Positive | None = Field(None, description="Rows per step; default by architecture.")
    learning_rate: float | None = Field(None, gt=0, description="Initial learning rate; default by architecture.")
    weight_decay: float | None = Field(None, ge=0, description="Penalty on large weights; default by architecture.")
    schedule: Literal[SCHEDULES] | None = Field(
        None, description="halving: the learning rate halves every 3 epochs; step: it decreases every `step_epochs`."
    )
    step: float | None = Field(None, gt=0, lt=1, description="schedule step: the factor, 0.2 by default.")
    step_epochs: Positive | None = Field(None, description="schedule step: epochs between decreases, 10 by default.")
    optimizer: Literal[OPTIMIZERS] | None = Field(None, description="Default by architecture.")
    augment: list[Literal[AUGMENTATIONS]] | None = Field(
        None, description="Images: random flips of every training image in every epoch."
    )
    patience: Positive | None = Field(
        None, description="Stop after so many epochs in a row without improvement on the validation part."
    )
    precision: Literal[PRECISIONS] | None = Field(
        None, description="torch: bfloat16 is mixed precision, which many processors and GPUs compute faster."
    )


class Model(Strict):
    dataset: str | None = Field(
        None, description="Name of the dataset that the model is trained on; needed but for task: generation."
    )
    task: Literal["generation"] | None = Field(
        None, description="generation: the source is path/to/folder of a language model, whose answers are explained."
    )
    max_tokens: Positive = Field(64, description="task: generation: tokens of the model's own answer at most.")
    architecture: Literal[*ARCHITECTURES] | None = Field(
        None, description="A network of the package; not together with source."
    )
    source: str | None = Field(
        None,
        pattern=MODEL_FILE,
        description="path/to/file.py:function that builds a torch module or a Keras model; or a trained model: a "
        "scikit-learn pipeline in a .skops file, a .keras or .onnx file, boosted trees of XGBoost "
        "(.json, .ubj), LightGBM (.txt) or CatBoost (.cbm), path/to/folder of a text or image "
        "classifier of transformers, or with framework: function a path/to/file.py:function of rows.",
    )
    trusted_types: list[str] | None = Field(
        None, min_length=1, description=".skops: allowed types beyond scikit-learn's usual ones."
    )
    framework: Literal["torch", "tensorflow", "function"] | None = Field(
        None,
        description="Default: tensorflow for text architectures, torch for others. function: the source is the "
        "model itself, from rows to probabilities or predictions.",
    )
    outputs: Literal["logits", "probabilities"] | None = Field(
        None, description="Output of a custom network, or of a .keras or .onnx file; detected by default."
    )
    sizes: dict[str, int | float | list[int]] = Field(
        {}, description="Sizes that differ from the architecture's defaults."
    )
    weights: str | None = Field(
        None,
        description="Initial weights: imagenet (resnet18), or a .pt, .pth (a state dict) or .safetensors file with the"
        " architecture's names; $VARIABLES expand.",
    )
    training: Training = Field(Training(), description="Training options that differ from the architecture's defaults.")


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


class Sentence(Strict):
    kind: Literal["sentence"]


class Passage(Strict):
    kind: Literal["passage"]


class Message(Strict):
    kind: Literal["message"]


class Player(Strict):
    kind: Literal["player"]


Features = Annotated[
    Pixel | Patch | Superpixel | Column | Group | Word | CharacterRun | Sentence | Passage | Message | Player,
    Field(discriminator="kind"),
]


class Background(Strict):
    kind: Literal["background"]
    rows: Positive = Field(
        16, description="Number of sampled training rows; the model's probability is averaged over them."
    )


class Conditional(Strict):
    kind: Literal["conditional"]
    form: Literal["gaussian", "neighbours"] = Field(
        "gaussian", description="Samples of a Gaussian given the kept columns, or the training rows nearest on these."
    )
    rows: Positive = Field(16, description="Number of rows; the model's probability is averaged over them.")


class Blur(Strict):
    kind: Literal["blur"]
    sigma: float | None = Field(None, gt=0, description="In pixels; an eighth of the shorter side by default.")


class Array(Strict):
    kind: Literal["array"]
    path: str = Field(description=".npy or .npz of one input's shape or (M, *shape); $VARIABLES expand.")


class Pad(Strict):
    kind: Literal["pad"]
    id: int | None = Field(
        None,
        ge=0,
        description="Token that replaces masked ones; by default padding for words, the space for characters.",
    )


class Placeholder(Strict):
    kind: Literal["placeholder"]
    text: str = Field("...", description="Prompts: what replaces a removed part.")


def kind(reference: Any) -> str | None:
    """Return the tag of the member of `Reference` that a value selects; plain names have the tag "mean"."""
    if isinstance(reference, str):
        return "mean"
    return reference.get("kind") if isinstance(reference, dict) else getattr(reference, "kind", None)


Reference = Annotated[
    Annotated[Literal["zero", "mean", "mean_value", "mean_image", "pad", "mask", "delete", "blur"], Tag("mean")]
    | Annotated[Background, Tag("background")]
    | Annotated[Conditional, Tag("conditional")]
    | Annotated[Pad, Tag("pad")]
    | Annotated[Blur, Tag("blur")]
    | Annotated[Placeholder, Tag("placeholder")]
    | Annotated[Array, Tag("array")],
    Discriminator(kind),
]


class Instances(Strict):
    count: Positive = Field(100, description="Number of explained test instances, sampled by seed.")
    split: Literal["test"] = Field(
        "test", description="Part of the data that is explained: instances that were not trained on."
    )
    label: int | str | None = Field(None, description="Only instances of this class, by index or name.")
    correct: bool = Field(False, description="Only instances that the model predicts correctly.")
    objects: Positive | None = Field(
        None, description="Only images with so many objects of their class, if the dataset knows them."
    )
    fewer_ok: bool = Field(False, description="If there are fewer instances, explain all of them instead of an error.")
    texts: (
        list[
            Annotated[str, Field(min_length=1)]
            | Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=2, max_length=2)]
        ]
        | None
    ) = Field(
        None,
        min_length=1,
        description="Your own documents, explained instead of test instances; pairs are [first, second].",
    )
    near: list[dict[str, float | str]] | None = Field(
        None,
        min_length=1,
        description="Tables: instead of sampling, the instance nearest to each of these values by column, in "
        "standard deviations of the columns.",
    )

    @property
    def number(self) -> int:
        """The maximum of explained instances."""
        return len(self.texts or self.near or ()) or self.count


class Report(Strict):
    notebook: Literal["report", "influence", "localization", "game", "generation"] = Field(
        "report",
        description="The page: influence for measures on labelled data, localization for images with known "
        "ground-truth pixels, game and generation (their defaults) for games and for prompts.",
    )
    title: str | None = Field(None, description="Heading of the page; by default the experiment's name.")
    margin: float = Field(
        0.05,
        gt=0,
        lt=1,
        description="Non-inferiority margin of a recommended method, as a fraction of the range between the best "
        "method and random attribution.",
    )
    n_shown: Annotated[int, Field(ge=1, le=12)] = Field(4, description="Number of explanations shown as examples.")
    palette: Literal["colorblind", "deep", "muted"] = Field("colorblind", description="Colours of the figures.")


def method(entry: Any) -> str | None:
    """Return the tag of the member of `MethodEntry` that an entry selects; CUSTOM_METHOD for custom functions."""
    name = entry.get("method") if isinstance(entry, dict) else getattr(entry, "method", None)
    return CUSTOM_METHOD if re.match(USER_FILE, str(name)) else name and str(name)


CUSTOM_METHOD = "path/to/file.py:function"
MethodEntry = Annotated[
    Union[
        (
            *(Annotated[entry.parameters, Tag(name)] for name, entry in METHODS.items()),
            Annotated[CustomMethod, Tag(CUSTOM_METHOD)],
        )
    ],
    Discriminator(method),
]
Metrics = create_model(
    "Metrics", __base__=Strict, **{name: (metric.parameters | None, None) for name, metric in METRICS.items()}
)


class Experiment(Strict):
    model: str | None = Field(None, description="The explained model; or give a dataset instead of it or beside it.")
    dataset: str | None = Field(
        None,
        description="Without a model: data for methods of labelled data. Beside a model: other data than it was "
        "trained on, whose instances are explained.",
    )
    game: str | None = Field(
        None,
        pattern=USER_FILE,
        description="In place of a model and data: path/to/file.py:function that returns a game, a function from "
        "coalitions to values with `n_players`, or a list or mapping of games. Its players are the features.",
    )
    game_files: list[str] = Field(
        [], description="game: files that its function reads, so that an edit of one evaluates the game again."
    )
    game_rounds: Annotated[int, Field(ge=1, le=20)] = Field(
        4,
        description="game with several shards: rounds of evaluation jobs for an adaptive budget; one job evaluates "
        "what is left after them.",
    )
    features: Features = Field(description="Parts of an instance that get a score; not given for a game.")
    reference: Reference = Field("mean", description="Baseline: what replaces a masked feature.")
    value: Literal[
        "log_probability", "probability", "log_odds", "margin", "logit", "expected_log_probability", "prediction"
    ] = Field(
        "log_probability",
        description="The value of a coalition. log_odds: of the probability averaged over the background rows; "
        "margin: the mean over the rows of the log-odds, to which boosted trees sum; prediction: the "
        "only value of a regression.",
    )
    target: int | str = Field(
        "predicted",
        description="The explained class: predicted, true, or one class by its label for all instances, so that "
        "signs are comparable between instances.",
    )
    instances: Instances = Field(Instances(), description="Explained instances.")
    budget: float = Field(4, gt=0, description="Evaluations of a sampled method, as a multiple of d.")
    timing: Literal["batch", "per_instance"] = Field(
        "batch",
        description="Meaning of seconds: a batch's time divided by its instances, or each instance's own time "
        "after a warm-up.",
    )
    repeats: Annotated[int, Field(ge=1, le=1000)] = Field(
        1, description="Sampling repetitions of every sampled method."
    )
    training_seeds: Annotated[int, Field(ge=1, le=100)] = Field(
        1, description="Training seeds; every method explains the model of each."
    )
    instances_per_training_seed: Positive | None = Field(
        None, description="Number of instances explained for the other training seeds, sampled by seed; all by default."
    )
    time_limit: float | None = Field(
        None,
        gt=0,
        description="Seconds per instance and method; an instance that takes longer is a failed row. Instances "
        "are then explained one at a time.",
    )
    methods: dict[str, MethodEntry] = Field(min_length=1, description="Name -> method and its parameters.")
    metrics: Metrics = Field(description="Metric -> its parameters.")
    report: Report = Field(Report(), description="Options of the report page.")
    precision: Literal[PRECISIONS] = Field(
        "float32",
        description="torch: precision of the values of coalitions; bfloat16 is mixed precision, faster and less exact.",
    )
    compile: bool = Field(
        False, description="torch: evaluate coalitions by torch.compile, whose compilation takes a minute."
    )
    cache: bool = Field(False, description="Store values of coalitions in the row store, so that methods share them.")
    shards: Literal["auto"] | Positive | None = Field(
        None,
        description="Score files per method; the run-wide `shards` by default. game: jobs that share the evaluations "
        "of a method, 1 by default.",
    )
    _prompts: dict[str, Any] | None = PrivateAttr(None)
    on_error: Literal["record", "fail"] = Field(
        "record",
        description="Whether a failure of a method, on an instance or on an unsupported model, becomes a row with"
        " its reason or stops the run.",
    )

    @property
    def prompts(self) -> dict[str, Any] | None:
        """The language model and the prompts of an experiment on prompts; None for other experiments."""
        return self._prompts

    @property
    def has_no_data(self) -> bool:
        """Whether the experiment has no prepared dataset, because it explains a game or prompts."""
        return bool(self.game or self._prompts)

    def attach_prompts(self, prompts: dict[str, Any]) -> "Experiment":
        """Return the experiment with prompts in place of a model and a dataset."""
        report = self.report.model_copy(update={"notebook": "generation"})
        experiment = self.model_copy(update={"model": None, "dataset": None, "report": report})
        experiment._prompts = prompts
        return experiment


class Config(Strict):
    run: list[str] = Field(min_length=1, description="Experiments of the target `all`.")
    run_if_available: list[str] = Field(
        [],
        description="Further experiments of `all` if the files of their data are available: placed, in "
        "`data.mirror`, or at their `path`. Nothing is downloaded for them; `doctor` and the start of"
        " a run name the others.",
    )
    datasets: dict[str, Dataset] = Field(min_length=1, description="Name -> source of the data.")
    models: dict[str, Model] = Field(min_length=1, description="Name -> a model to train, or a trained one.")
    experiments: dict[str, Experiment] = Field(
        min_length=1, description="Name -> model, instances, methods and metrics."
    )
    results: str = Field("results", min_length=1, description="Output folder, inside the repository root.")
    scale: Literal["smoke", "paper", "beyond"] = Field(
        "paper",
        description="paper: as written; smoke: everything small; beyond: three times the instances, three repeats.",
    )
    seed: Annotated[int, Field(ge=0, lt=2**64)] = Field(0, description="Seed of everything random.")
    estimator_benchmark: Annotated[int, Field(ge=0, le=1000)] = Field(
        0, description="Samples per instance of the page that measures estimators on stored games; 0: no such page."
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="auto: a free GPU, else the CPU; cuda: a missing GPU is an error."
    )
    jobs_per_gpu: Positive = Field(1, description="Jobs that share a GPU; --resources gpu still counts GPUs.")
    shards: Literal["auto"] | Positive = Field("auto", description="Score files per method, each with its own job.")
    row_store_gb: float = Field(
        20.0, ge=0, description="Gigabytes of computed rows in `results/.rows`; the last used ones are kept; 0: none."
    )
    versions: Literal["tell", "strict"] = Field(
        "tell",
        description="Other package versions than those of the scores. tell: a line at the start of a run, and in "
        "the diagnostics; strict: the jobs run again.",
    )
    data: Data = Field(Data(), description="Access to official files.")
