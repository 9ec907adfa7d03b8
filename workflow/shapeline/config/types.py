"""The types of the configuration: every key, its range and its default."""

import re
from typing import Annotated, Any, Literal, Union

from pydantic import Discriminator, Field, PrivateAttr, Tag, create_model

from shapeline.datasets.checks import Dataset
from shapeline.datasets.entries import USER_FILE, Positive, Strict
from shapeline.methods.parameters import CustomMethod, Patch, Superpixel
from shapeline.methods.registry import DEFAULT_BUDGET, METHODS
from shapeline.metrics.registry import METRICS
from shapeline.models.registry import Model, Precision

INSTANCES_PER_SHARD = 250
MAX_BUDGET = 1e8  # times d
# Folders of the repository that the folder of results must not be.
ROOT_FOLDERS = ("benchmarks", "data", "docs", "envs", "examples", "notebooks", "profiles", "tests", "workflow")


class Data(Strict):
    mirror: str | None = Field(
        None, description="Folder or URL with <source>/<file>, tried before the official addresses."
    )
    offline: bool = Field(False, description="Never use the network; report which file to place where.")


class PlainFeatures(Strict):
    kind: Literal["pixel", "column", "word", "character_run", "sentence", "passage", "message", "player"]


class Group(Strict):
    kind: Literal["group"]
    groups: dict[str, list[str]] | None = Field(
        None, description="Name -> columns; the dataset's own groups by default."
    )


Features = Annotated[PlainFeatures | Patch | Superpixel | Group, Field(discriminator="kind")]


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
    if isinstance(reference, str):  # a name that needs a mapping is refused by the member of this name
        return reference if reference in ("background", "conditional", "array", "placeholder") else "mean"
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
        "log_probability",
        "probability",
        "log_odds",
        "margin",
        "centred_logit",
        "logit",
        "expected_log_probability",
        "prediction",
    ] = Field(
        "log_probability",
        description="The value of a coalition. log_odds: of the probability averaged over the background rows; "
        "margin: the mean over the rows of the log-odds, to which boosted trees sum; centred_logit: the same of "
        "the log-probability minus its mean over classes, to which trees of more than two classes sum; prediction: the "
        "only value of a regression.",
    )
    target: int | str = Field(
        "predicted",
        description="The explained class: predicted, true, or one class by its label for all instances, so that "
        "signs are comparable between instances.",
    )
    instances: Instances = Field(Instances(), description="Explained instances.")
    budget: float = Field(
        DEFAULT_BUDGET,
        gt=0,
        le=MAX_BUDGET,
        description="Evaluations of a sampled method, as a multiple of d; by default at least a method's minimum.",
    )
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
    precision: Precision = Field(
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
        "auto",
        description="auto: a GPU for models of unknown speed and for jobs of more than about a minute on one core, else"
        " the CPU; cuda: a GPU for every job that evaluates or trains a model, and an error where none is visible.",
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
