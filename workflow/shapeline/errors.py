"""The exceptions for users' mistakes, and the nearest valid name in their messages."""

import contextlib
import difflib
import importlib.util
import os
import re
import traceback
from collections.abc import Iterable, Iterator, Sequence

MAX_NAMES = 100  # names that a hint lists
MAX_CHARACTERS = 200  # characters of a name
# Of messages of Keras and TensorFlow.
PREFACES = ("in user code:", "Exception encountered when calling", "Graph execution error:", "Detected at", 'File "')
# deep_lift's warning for scores that violate completeness; methods with it are never recommended.
NO_RULE = "scores do not sum to the prediction minus the base value: an operation of the network has no rule"
# Packages of each extra, which an installation may lack.
EXTRAS = {
    "torch": ("torch", "onnx", "onnxruntime", "safetensors"),
    "tensorflow": ("tensorflow", "keras"),
    "text": ("transformers", "tokenizers"),
    "workflow": ("snakemake", "papermill", "mistune", "filelock", "yaml", "skops", "skimage"),
    "peers": ("shap", "lime", "shapiq", "captum"),
    "boosted": ("lightgbm", "xgboost", "catboost"),
    "mlflow": ("mlflow",),
}

MEMORY_ERRORS = ("OutOfMemoryError", "ResourceExhaustedError")  # of torch and TensorFlow; a job imports only one
MEMORY_TEXTS = ("not enough memory", "can't allocate memory", "out of memory")

# Names of methods and arguments in shap, captum, shapiq and lime, in lower case, without "Explainer".
NAMES_ELSEWHERE = {
    **dict.fromkeys(("exact", "shapleyvalues"), "shapley"),
    **dict.fromkeys(("kernel", "kernelshap", "shap"), "kernel_shap"),
    **dict.fromkeys(("permutation", "sampling", "shapleyvaluesampling"), "sample_shapley"),
    **dict.fromkeys(("gradient", "gradientshap"), "expected_gradients"),
    **dict.fromkeys(("deep", "deepshap", "deepliftshap"), "deep_lift"),
    **dict.fromkeys(("featureablation", "ablation"), "occlusion"),
    **{"tree": "tree_shap", "linear": "linear_shap", "ig": "integrated_gradients", "layergradcam": "grad_cam"},
    **{"gp": "gp_shapley", "limetabular": "lime", "svarm": "stratified_svarm", "owen": "owen_sampling"},
    **dict.fromkeys(("targeterror", "tolerance", "tol", "stop"), "budget"),
    **dict.fromkeys("nsamples numsamples samplesize nperturbsamples numperturbations".split(), "evaluations"),
    **dict.fromkeys("maxevals nevals nevaluations npermutations nperms".split(), "evaluations"),
    **dict.fromkeys(("batchsize", "perturbationspereval", "internalbatchsize"), "batch"),
    **dict.fromkeys(("index", "order", "maxorder", "approximator", "algorithm"), "method"),
    **dict.fromkeys(("labels", "toplabels", "outputindexes"), "target"),
    **dict.fromkeys(("data", "masker", "imputer"), "background"),
    **{"baselines": "reference", "featuremask": "features", "link": "value"},
    **dict.fromkeys("segment segments segmentation quickshift slic felzenszwalb".split(), "superpixel"),
    **dict.fromkeys(("token", "tokens"), "word"),
    **{"randomseed": "seed", "randomstate": "seed", "silent": "progress", "verbose": "progress"},
    **{
        "scatter": "dependence",
        "violin": "beeswarm",
        "force": "waterfall",
        "decision": "waterfall",
        "image": "overlay",
    },
}


class ShapelineError(Exception):
    """A mistake or failure that the user can act on, in one line: where, what, remedy; instance fills "{instance}"."""

    def __init__(self, message: str, instance: int | None = None):
        super().__init__(escape_breaks(message))
        self.instance = None if instance is None else int(instance)

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.instance is None else text.replace("{instance}", str(self.instance))

    def at(self, positions: Sequence[int]) -> "ShapelineError":
        """Return the same error on other inputs, which contain those of this error at `positions`."""
        return self if self.instance is None else ShapelineError(self.args[0], positions[self.instance])

    def locate(self, ids: Sequence[int]) -> "ShapelineError":
        """Return the same error with the id of the instance, which later calls do not change; ids: of the inputs."""
        return self if self.instance is None else ShapelineError(str(self.at(ids)))


def describe_error(error: object) -> str:
    """Return the message of an error; "" where a user's type of errors fails to give one."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 (a user's type may raise any exception)
        return ""


def first_line(error: object) -> str:
    """Return the first line of an error's message, of an error that later lines quote its own, or its type's name."""
    text = describe_error(error)
    lines = [re.sub(r"\x1b\[\d*m", "", line).strip() for line in text.splitlines() if line.strip()]
    if lines and lines[0].startswith(PREFACES):
        raised = [line.partition(": ")[2] for line in lines if re.match(r"\w*(Error|Exception): ", line)]
        lines = [line for line in (*raised, *lines) if line and not line.startswith(PREFACES)] or lines
    inner = getattr(error, "__cause__", None) or getattr(error, "__context__", None)
    if inner is not None and " " in (reason := first_line(inner)) and reason in text and reason not in lines[0]:
        return reason
    return next(iter(lines), type(error).__name__)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether numpy, torch or TensorFlow ran out of memory; torch on the CPU has no type for this error."""
    if isinstance(error, MemoryError) or type(error).__name__ in MEMORY_ERRORS:
        return True
    return isinstance(error, RuntimeError) and any(words in describe_error(error) for words in MEMORY_TEXTS)


def describe_exception(error: BaseException) -> str:
    """Return the type and the first line of an exception of a user's code, and the line of the file that raised it."""
    if isinstance(error, ShapelineError):
        return first_line(error)
    text = f"{type(error).__name__}: {first_line(error)}" if describe_error(error).strip() else type(error).__name__
    installed = (os.path.dirname(os.__file__), os.path.dirname(__file__))
    places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [place for place in places if "site-packages" not in place[0] and not place[0].startswith(installed)]
    own = [f" ({os.path.basename(file)}, line {line})" for file, line in own if os.path.isfile(file)]
    return text + (own[-1] if own else "")


def format_count(count: int, noun: str) -> str:
    """Return a number with its noun: 1 row, 2 rows."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def name_type(value: object) -> str:
    """Return the name of a value's type with its article."""
    name = type(value).__name__
    return f"{'an' if re.match('(?!One)[AEIOaeio]|nd|[FHLMNRSX][A-Z]', name) else 'a'} {name}"


def is_installed(package: str) -> bool:
    """Return whether a package can be found, without importing it."""
    return importlib.util.find_spec(package) is not None


def describe_missing(package: str) -> str:
    """Return the message that a package is not installed, with the command that installs it."""
    extra = next((extra for extra, packages in EXTRAS.items() if package in packages), None)
    name = f"'shapeline[{extra}]'" if extra else package
    return f"{package} is not installed; pip install {name}"


@contextlib.contextmanager
def reported_extras(where: str) -> Iterator[None]:
    """Raise a ShapelineError if the block needs a missing package of an extra; also a decorator."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not any(package in packages for packages in EXTRAS.values()) or is_installed(package):
            raise  # of the user's own code, or of a package that is installed but broken
        raise ShapelineError(f"{where}: {describe_missing(package)}") from error


@contextlib.contextmanager
def locate(ids: Sequence[int]) -> Iterator[None]:
    """Add the id of the input to errors raised inside the block."""
    try:
        yield
    except ShapelineError as error:
        raise error.locate(ids) from None


@contextlib.contextmanager
def locate_input(positions: Sequence[int]) -> Iterator[None]:
    """Add the position of the input to errors raised inside the block."""
    try:
        yield
    except ShapelineError as error:
        raise error.at(positions) from None


@contextlib.contextmanager
def rename_place(old: str, new: str) -> Iterator[None]:
    """Replace the place in errors raised inside the block: a configuration key or a file, not a Python call."""
    try:
        yield
    except ShapelineError as error:
        error.args = (str(error).replace(f"{old}: ", f"{new}: ", 1), *error.args[1:])
        raise


def nearest(name: object, choices: Iterable[str]) -> str:
    """Return the closest valid name as a hint (" Did you mean 'x'?"), ignoring case, or the list if none is close."""
    names, wrong = sorted(str(choice) for choice in choices), str(name)[:MAX_CHARACTERS]
    plain = {_normalise(valid): valid for valid in reversed(names)}
    close = [known for known in (NAMES_ELSEWHERE.get(_normalise(wrong).removesuffix("explainer")),) if known in names]
    close = close or difflib.get_close_matches(wrong, names, n=1, cutoff=0.6)
    close = close or [plain[valid] for valid in difflib.get_close_matches(_normalise(wrong), plain, n=1, cutoff=0.6)]
    if close:
        return f" Did you mean '{shorten_name(close[0])}'?"
    others = f", and {len(names) - MAX_NAMES:,} more" if len(names) > MAX_NAMES else ""
    return f" Allowed: {', '.join(map(shorten_name, names[:MAX_NAMES])) or 'none'}{others}."


def _normalise(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()


def shorten_name(name: object) -> str:
    """Return a name in one line of limited length; names from files may have line breaks and pages of text."""
    text = str(name)
    text = text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}..."
    return escape_breaks(text)


def escape_breaks(text: str) -> str:
    """Return a text as one line: line breaks and other characters that are not printed become escapes."""
    return text if text.isprintable() else "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


class ShapelineErrors(ShapelineError):
    """Several mistakes, a line each."""

    def __init__(self, lines: Iterable[str] | str):
        Exception.__init__(self, lines if isinstance(lines, str) else "\n".join(lines))
        self.instance = None


class MethodFailure(ShapelineError):
    """A method cannot explain an instance for a declared reason; the result is a row with `status`."""

    def __init__(self, status: str, message: str):
        super().__init__(message)
        self.status = status


def reject(message: str) -> MethodFailure:
    """Return the failure of a method for every instance, because it does not support the model."""
    return MethodFailure("unsupported model", message)
