"""The registry of architectures: what is known of each before a framework is imported."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from shapeline.datasets.entries import MODEL_FILE, Positive, Strict, parse
from shapeline.datasets.folders import names_folder
from shapeline.datasets.sources import names_function
from shapeline.errors import describe_missing, is_installed

Precision = Literal["float32", "bfloat16"]
# Boosted trees in the files of their own package: what reads each.
BOOSTED = {".json": "xgboost", ".ubj": "xgboost", ".txt": "lightgbm", ".cbm": "catboost"}
# Of each kind of trained model its framework, and what reads it, by name, so that a process imports no other framework.
READY = {
    ".keras": ("tensorflow", "keras_models"),
    ".onnx": ("function", "onnx_file"),
    "folder": ("torch", "transformer_models"),
    **dict.fromkeys((".skops", "function", *BOOSTED), ("function", "pipeline_file")),
}
FRAMEWORKS = {kind: framework for kind, (framework, _) in READY.items()}
READERS = {kind: f"shapeline.models.{module}" for kind, (_, module) in READY.items()}
ESTIMATORS = (".skops", *BOOSTED)  # what tree_shap can look into
CPU_KINDS = (".onnx", *ESTIMATORS)  # which no GPU evaluates


class Training(Strict):
    epochs: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="Passes over the training part; default by architecture. 0: no training, if source or weights"
        " give a trained model.",
    )
    batch: Positive | None = Field(None, description="Rows per step; default by architecture.")
    learning_rate: float | None = Field(None, gt=0, description="Initial learning rate; default by architecture.")
    weight_decay: float | None = Field(None, ge=0, description="Penalty on large weights; default by architecture.")
    schedule: Literal["cosine", "halving", "none", "step"] | None = Field(
        None, description="halving: the learning rate halves every 3 epochs; step: it decreases every `step_epochs`."
    )
    step: float | None = Field(None, gt=0, lt=1, description="schedule step: the factor, 0.2 by default.")
    step_epochs: Positive | None = Field(None, description="schedule step: epochs between decreases, 10 by default.")
    optimizer: Literal["adam", "rmsprop", "sgd"] | None = Field(None, description="Default by architecture.")
    augment: list[Literal["flip_horizontal", "flip_vertical"]] | None = Field(
        None, description="Images: random flips of every training image in every epoch."
    )
    patience: Positive | None = Field(
        None, description="Stop after so many epochs in a row without improvement on the validation part."
    )
    precision: Precision | None = Field(
        None, description="torch: bfloat16 is mixed precision, which many processors and GPUs compute faster."
    )


@dataclass(frozen=True)
class Architecture:
    """One registry entry; rate: evaluations a second of one core, of inputs of so many `cells`."""

    kind: Literal["image", "table", "text"]  # of the dataset that it takes
    rate: float
    cells: int
    windows: int = 1  # times as many evaluations from a table of the windows that it reads
    unit: Literal["word", "character"] | None = None  # of the tokens that it reads
    torch_only: bool = False
    any_size: bool = False  # takes images of any size
    regression: bool = False  # predicts a number too
    weights: tuple[str, ...] = ()  # published ones that its training may start from
    # Sizes below which no output is left, and what to use instead; every other whole number is at least 1.
    smallest: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def framework(self) -> str:
        """Where a model names none."""
        return "tensorflow" if self.kind == "text" else "torch"


ARCHITECTURES: dict[str, Architecture] = {
    "bilstm": Architecture("text", 400, 400, unit="word"),
    "char_cnn": Architecture(
        "text", 400, 1014, unit="character", smallest={"length": (123, "pad the documents to 123 characters or more")}
    ),
    "cifar_cnn": Architecture(
        "image", 860, 32 * 32, torch_only=True, smallest={"side": (22, "use mnist_cnn or digits_cnn")}
    ),
    "crosses_cnn": Architecture(
        "image",
        1_600,
        100 * 120,
        torch_only=True,
        smallest={side: (20, "use larger images") for side in ("height", "width")},
    ),
    "digits_cnn": Architecture("image", 124_000, 8 * 8, smallest={"side": (2, "use larger images")}),
    "mlp": Architecture("table", 740_000, 30, regression=True, smallest={"classes": (1, "")}),
    "mnist_cnn": Architecture("image", 58_000, 28 * 28, smallest={"side": (16, "use digits_cnn")}),
    "resnet18": Architecture("image", 14, 240 * 320, torch_only=True, any_size=True, weights=("imagenet",)),
    "word_cnn": Architecture(
        "text", 2_500, 400, windows=16, unit="word", smallest={"length": (3, "it reads three words at a time")}
    ),
}


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

    @property
    def kind(self) -> str | None:
        return find_kind(self.source, self.framework)


class JobModel(Model):
    """A model's entry with what the settings of a job add to it."""

    seed: int = 0
    code: str | None = None
    versions: dict[str, Any] | None = None


def read_entry(settings: Mapping[str, Any] | JobModel) -> JobModel:
    """Return the checked entry of a model from a mapping of its keys. Raises ShapelineError for its first mistake."""
    return settings if isinstance(settings, JobModel) else parse(JobModel, settings, "model key '{key}'")


def find_task_problem(model: Model, task: str | None) -> str:
    """Return why a model cannot be of the task of a dataset, "" if it can."""
    framework = ARCHITECTURES[model.architecture].framework if model.architecture else "torch"
    if task != "multilabel" or (not model.kind and (model.framework or framework) == "torch"):
        return ""
    remedy = "give a function that builds one" if model.kind else "set framework: torch"
    return f"has several labels per record, which needs torch; {remedy}"


def find_size_problem(architecture: str, name: str, size: object) -> str:
    """Return why an architecture cannot have this size, "" if it can."""
    if name == "dropout":
        return "" if 0 <= size < 1 else f"{architecture} has a dropout of {size}; give at least 0 and below 1"
    takes_list = (architecture, name) == ("mlp", "hidden")
    if takes_list and not isinstance(size, list | tuple):
        return f"mlp takes a list, the width of each hidden layer; write [{size}]"
    usual = 2 if name in ("classes", "vocabulary") else 1
    least, hint = ARCHITECTURES[architecture].smallest.get(name, (usual, ""))
    for number in size if takes_list else [size]:
        if not isinstance(number, int) or number < least:
            wanted = f"{architecture} needs a {name} of at least {least}, not {number!r}"
            return f"{wanted}; {hint or 'give a larger number'}"
    return ""


def find_suffix(source: str | None) -> str | None:
    """Return the suffix of a model's file if it is a trained model, "folder" for a folder, else None."""
    if names_folder(source):
        return "folder"
    suffix = Path(source).suffix if source else None
    return suffix if suffix in FRAMEWORKS else None


def find_kind(source: str | None, framework: str | None) -> str | None:
    """Return the kind of a trained model: its suffix, "folder" or "function"; None for one that is built here."""
    return "function" if framework == "function" and source and names_function(source) else find_suffix(source)


def explain_missing(kind: str | None) -> str | None:
    """Return how to install the missing package that reads a kind of model; None if nothing is missing."""
    package = BOOSTED.get(kind)
    return None if package is None or is_installed(package) else f"it cannot be read: {describe_missing(package)}"
