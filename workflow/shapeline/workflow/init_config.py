"""A first configuration for a custom file or folder, from its contents."""

import contextlib
import json
import math
import os
import re
import tempfile
import unicodedata
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import yaml

from shapeline.config import mistakes, types
from shapeline.datasets import folders
from shapeline.datasets.checks import Dataset, read_format
from shapeline.datasets.csv_file import KEYS, PLAIN, CsvFormat, holds_texts
from shapeline.datasets.entries import TEXT, parse
from shapeline.datasets.sources import find_file, list_arguments, names_function
from shapeline.datasets.table_file import MAX_CLASSES, SUFFIXES
from shapeline.errors import ShapelineError, is_installed
from shapeline.generation.prompts import check_parts, read_prompts
from shapeline.models import registry
from shapeline.workflow.job_code import find_root

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")
DEFAULT_LABEL = re.compile(r"label_\d+")
IDENTIFIER = re.compile(r"(?!\d{4}-\d\d-\d\d)\S*[^\W\d_]\S*")  # a word with a letter, and no date
MIN_PATCHES = 16  # features of an explained image


@dataclass(frozen=True)
class Model:
    """A trained model: its kind of data, class labels, input sides (or columns; None for any) and patch side."""

    source: str
    kind: str
    labels: frozenset[str] = frozenset()
    sides: tuple[int, ...] | None = None
    patch: int | None = None

    def check(self, kind: str, path: Path, labels: set[str]) -> None:
        """Raise ShapelineError if the data are of another kind or have other classes."""
        if kind != self.kind:
            raise ShapelineError(
                f"{self.source}: takes {_name_inputs(self.kind)}, and {path} holds {_name_inputs(kind)}; give data of "
                "its kind"
            )
        if self.labels and labels != self.labels:
            known, found = (", ".join(sorted(names)[:10]) for names in (self.labels, labels))
            raise ShapelineError(f"{self.source}: has the classes {known}, and {path} has {found}; give them one name")


def is_model(path: Path) -> bool:
    return path.suffix == ".onnx" or (path / "config.json").is_file()


def read_model(path: Path) -> Model:
    """Return the properties of a trained model. Raises ShapelineError for one that the workflow would refuse."""
    if not path.exists():
        raise ShapelineError(f"{path}: file not found; check the path")
    source = str(path.resolve())
    if path.suffix == ".onnx":
        return _read_onnx(source, path.read_bytes())
    if not folders.names_folder(source):
        raise ShapelineError(f"{source}: a model's folder has no suffix in its name, and its path no colon; rename it")
    kind = folders.find_kind(source)
    folders.check_model(source, kind)
    if kind == "text":
        folders.check_tokenizer(source)
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    labels = frozenset(str(label).casefold() for label in config.get("id2label", {}).values())
    labels = frozenset() if all(DEFAULT_LABEL.fullmatch(label) for label in labels) else labels
    if kind == "text":
        return Model(source, kind, labels)
    patch = config.get("patch_size")
    return Model(source, kind, labels, folders.find_image_shape(source), patch if isinstance(patch, int) else None)


def _read_onnx(source: str, content: bytes) -> Model:
    from shapeline.models import onnx_file

    shape, is_integer = onnx_file.read_input(source, content)
    if shape is None:
        return Model(source, "text")
    if len(shape) == 1 and not is_integer:
        return Model(source, "table", sides=shape if isinstance(shape[0], int) else None)
    if len(shape) == 3:
        channels, *sides = shape if shape[0] in (1, 3) else (shape[2], *shape[:2])
        if channels in (1, 3):
            known = all(isinstance(side, int) for side in sides)
            return Model(source, "image", sides=(channels, *sides) if known else None)
    rows = f"rows of shape {shape}{' of whole numbers' if is_integer else ''}"
    raise ShapelineError(
        f"{source}: takes {rows}, neither columns nor images; write its configuration by hand: docs/own_data.md"
    )


def list_gradient_methods(source: str | None, path: bool = True) -> list[str]:
    """Return lines of gradient methods for a network, none for other models; path: whether the baseline is an input."""
    if source is not None and registry.find_kind(source, None) not in (".keras", "folder"):
        return []
    if not path:
        return ["gradient_x_input: {method: gradient_x_input}    # control: one gradient"]
    return [
        "integrated_gradients: {method: integrated_gradients}",
        "gradient_x_difference: {method: gradient_x_difference}    # control: one gradient",
    ]


def find_data(path: Path, kind: str) -> Path:
    """Return the only table, or folder of images by class, in a model's folder or beside it."""
    searched = [path.resolve(), path.resolve().parent] if path.is_dir() else [path.resolve().parent]
    files = [file for folder in searched for file in sorted(folder.iterdir()) if file != path.resolve()]
    candidates = [one for one in files if (_has_images(one) if kind == "image" else one.suffix.lower() in SUFFIXES)]
    if len(candidates) != 1:
        names = ", ".join(one.name for one in candidates[:5])
        which = f"more than one that could be its data ({names})" if candidates else "no data"
        raise ShapelineError(
            f"{path}: is a model of {_name_inputs(kind)}, with {which} beside it; say which: shapeline init DATA "
            f"--model {path}"
        )
    return candidates[0]


def choose_patch(side: int, model_patch: int | None) -> int:
    """Return the side of the patches: the largest multiple of the model's patch that gives MIN_PATCHES features."""
    if model_patch is None or side % model_patch:
        return side // 4
    sizes = range(model_patch, side + 1, model_patch)
    return max((n for n in sizes if side % n == 0 and (side // n) ** 2 >= MIN_PATCHES), default=model_patch)


def _has_images(path: Path) -> bool:
    classes = [one for one in path.iterdir() if one.is_dir()] if path.is_dir() else []
    return sum(any(file.suffix.lower() in IMAGE_SUFFIXES for file in one.iterdir()) for one in classes) > 1


def _name_inputs(kind: str) -> str:
    return {"image": "images", "text": "texts", "table": "columns of numbers"}[kind]


TARGETS = ("target", "label", "class", "y", "outcome", "survived", "churn", "diagnosis", "species")
TARGETS += ("income", "sentiment", "opinion", "quality", "price")
SPACELESS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"  # no spaces between words
WORDS = rf"[{SPACELESS}]{{1,2}}|[^\s{SPACELESS}]+"
MIN_WORDS, MIN_WORDS_BESIDE_FEATURES = 4, 10  # mean words per cell of a column of documents
SIZES = ("input_shape", "inputs", "classes", "channels", "side", "height", "width", "length", "vocabulary", "alphabet")
CELL_TYPES = (str, bytes, bool, np.bool_, int, float, timedelta, datetime)  # that encoders and skops support
TRIED_ROWS = 5  # that a fitted model is evaluated on
TREES = "# boosted trees of scikit-learn; save your own pipeline with skops.io.dump: docs/own_data.md"
MAX_EXACT, MAX_EXACT_OF_MODEL = 13, 12  # features up to which exact values are affordable: small networks, any model
MAX_SIDE = 64  # side in pixels to which images are resized
EXACT = "exact: {method: shapley}    # exact Shapley values, from all 2^d coalitions"


def build_configuration(
    path: Path, target: str | None = None, model: str | None = None, keys: dict | None = None
) -> str:
    """Return a configuration for a table, texts, a folder of images, or a model with one of these; keys: set in the
    dataset's entry, instead of detected values."""
    trained, keys = None, keys or {}
    if is_prompts(path, model):
        if keys:
            raise ShapelineError(f"--set: a dataset of prompts has no key '{next(iter(keys))}'; leave --set out")
        if target is not None:
            raise ShapelineError("--target: prompts have no column of classes; write each prompt's answer in the file")
        return write_prompts(path, model, _choose_name(path))
    if is_model(path):
        if model:
            raise ShapelineError(
                f"{path}: it is a model, and --model names another; name the data in place of the first"
            )
        trained = read_model(path)
        path = find_data(path, trained.kind)
    elif model and is_model(Path(model)):
        trained = read_model(Path(model))
    model = _locate_model(trained.source if trained else model) if trained or model else None
    if model:
        parse(types.Model, {"source": model}, "--model: {key}")
    if path.is_dir():
        if target is not None:
            raise ShapelineError(f"--target: the classes of images in {path} are its folders; leave --target out")
        return _configure_images(path, model, trained, keys)
    if path.suffix in (".skops", ".keras", ".ubj", ".cbm"):
        raise ShapelineError(f"{path}: it is a model; name its data too: shapeline init DATA --model {path}")
    if path.suffix.partition(":")[0] == ".py":
        raise ShapelineError(
            f"{path}: it is a program; for a function of rows give its data and --model {path.name.partition(':')[0]}:"
            "FUNCTION, for a game write an experiment with `game:` (docs/games.md)"
        )
    if path.suffix.lower() not in SUFFIXES:
        raise ShapelineError(
            f"{path}: it is no {', '.join(SUFFIXES)}, .jsonl or .onnx file and no folder of images or of a model; "
            "give one, of another table as in pandas.read_excel('x.xlsx').to_parquet('x.parquet')"
        )
    if not path.is_file():
        raise ShapelineError(f"{path}: file not found; check the path")
    return _configure_columns(path, target, model, trained, keys)


def parse_keys(texts: list[str]) -> dict:
    """Return the keys of a dataset's entry from texts 'KEY: VALUE'. Raises ShapelineError."""
    keys: dict = {}
    for text in texts:
        try:
            parsed = yaml.safe_load(text)
        except yaml.YAMLError:
            parsed = None
        if not isinstance(parsed, dict):
            raise ShapelineError(f"--set: '{text}' is not understood; write it as --set \"na_values: ['?']\"")
        keys |= parsed
    for key in ("source", "path", "target"):
        if key in keys:
            raise ShapelineError(f"--set: {key} is given by DATA or --target; leave it out")
    parse(Dataset, {"source": "table_file", **keys}, "--set: {key}")
    return keys


def name_option(error: ShapelineError) -> None:
    """Add the option of init to an error that names a key of the dataset."""
    match = re.search(rf"(?:'|set |or )({'|'.join((*KEYS, 'categorical', 'columns', 'task'))})(?:'|: )", str(error))
    if match:
        error.args = (f"{str(error).rstrip('.')}; for init: --set '{match[1]}: ...'",)


def _configure_columns(path: Path, target: str | None, model: str | None, trained: Model | None, keys: dict) -> str:
    """Return the configuration for a table, or for texts if a column holds sentences."""
    from shapeline.datasets import csv_file, table_file

    form, styles = (PLAIN, []) if path.suffix.lower() == ".parquet" else csv_file.detect(path)
    form = read_format(Dataset(source="table_file", **keys), form)
    table = table_file.frame(path, form)
    names, guessed = list(table), target is None
    target = _find_target(table) if guessed else target
    table_file.check_column(path, names, "target", target)
    regression = _is_regression(table[target]) if "task" not in keys else keys["task"] == "regression"
    try:
        (table_file.read_numbers if regression else table_file.read_classes)(path, target, table[target], form)
    except ShapelineError as error:
        error.args = (f"{str(error).rstrip('.')}{'; or name another column by --target' * guessed}",)
        raise
    file = [_format_path(path), *_format_csv_keys(form), f"target: {_quote(target)}"]
    file[-1] += "    # guessed; shapeline init --target names another" * guessed
    if len(styles) > 1:
        file.insert(-1, f"# numbers such as 1,234 are guessed; or write {csv_file.describe_style(styles[1])}")
    labels = {str(value).casefold() for value in table[target].unique()}
    is_table = regression or {"columns", "categorical"} & set(keys)
    of_texts = (table.drop(columns=target), None) if trained and trained.kind == "text" else (table, target)
    longest = keys.get("text", None if is_table else _find_documents(*of_texts))
    if longest is not None:
        if trained:
            trained.check("text", path, labels)
        table_file.check_column(path, names, "text", longest)
        table_file.read_documents(path, longest, table[longest], False)
        if not trained and table[longest].dropna().str.split().str.len().mean() < 2:
            raise ShapelineError(
                f"{path}: the texts of '{longest}' have no spaces between words, which are the features; give --model "
                "path/to/folder of transformers, whose tokenizer finds them, or put spaces between words"
            )
        return _configure_texts(_choose_name(path), file, table, longest, model, trained, keys)
    columns = table_file.select_columns(path, names, target, keys.get("columns"), keys.get("categorical"))
    if trained:
        trained.check("table", path, labels)
        if trained.sides and trained.sides != (len(columns),):
            raise ShapelineError(
                f"{trained.source}: takes {trained.sides[0]} columns, and {path} has {len(columns)} beside '{target}'; "
                "--target names another, and --set 'columns: [...]' fewer"
            )
    return _configure_table(path, file, table[columns], model, (regression, len(labels)), keys)


def _configure_table(path: Path, file: list[str], table, model: str | None, task: tuple[bool, int], keys: dict) -> str:
    """Return the configuration for columns; task: whether it is a regression, and the number of classes."""
    from shapeline.datasets import table_file

    regression, classes = task
    pipeline = _load_pipeline(model)
    left_out = {} if model or "columns" in keys else _find_left_out(table)
    unfitted = [] if "columns" in keys else _find_unfitted(pipeline, table)
    features = table.drop(columns=[*left_out, *unfitted])
    if features.shape[1] == 1:
        raise ShapelineError(f"{path}: has one feature column, and an attribution compares features; give two or more")
    for name in features:  # the run would refuse it
        table_file.encode_column(f"{path}, column '{name}'", features[name], name in keys.get("categorical", ()))
    plain = all(features[name].dtype.kind in "iuf" for name in features) and not features.isna().any(axis=None)
    plain = plain and "categorical" not in keys
    built = "architecture: mlp" if plain else f"source: {_quote(_choose_name(path) + '.skops')}"
    exact = features.shape[1] <= (MAX_EXACT_OF_MODEL if model else MAX_EXACT)
    trees, value = _list_tree_methods(_find_tree_value(model, pipeline), regression, classes)
    rows = min(16, len(features) // 2)  # no more than there are training rows
    gradients = list_gradient_methods(model) if model or plain else []
    lines = ["source: table_file", *file]
    if index := table_file.index_names(path):
        lines.append(f"# not read, as it is the index of the file: {_quote(index)}")
    if left_out:
        without = ", ".join(f"{_quote(name)}, which {why}" for name, why in left_out.items())
        lines.append(f"columns: {_quote(list(features))}    # features; without {without}")
    if unfitted:
        lines.append(f"columns: {_quote(list(features))}    # features: those that the model was fitted on")
    if not model and not regression and (texts := _find_documents(features, None)) is not None:
        lines.append(
            f"# texts of {_quote(texts)} are categories; shapeline init --set 'text: ...' explains their words"
        )
    for name, words in table.attrs.get("words", {}).items():
        if name in features:
            lines.append(f"# na_values: {_quote(words)} reads these words in {_quote(name)} as missing cells")
    return _format_experiment(
        _choose_name(path),
        _set_keys([*lines, *["task: regression"] * regression], keys),
        [TREES] * (not plain and not model),
        _format_source(model) if model else built,
        [
            "features: {kind: column}",
            f"reference: {{kind: background, rows: {rows}}}    # baseline: training rows",
            *value,
        ],
        [*[EXACT] * exact, *trees, *gradients],
        ["log_odds: {}"] * (not regression) + ["error: {reference: exact}"] * exact,
    )


def _find_left_out(features) -> dict[str, str]:
    """Return columns that are no features with the reason; two or more remain, if there are as many."""
    empty = {name: "has no cells" for name in features if features[name].isna().all()}
    reasons = {name: "numbers the rows" for name in features if _is_counter(features[name])} | empty
    reasons |= {name: "has another word in each row" for name in features if _is_identifier(features[name])}
    reasons = reasons if len(reasons) + 1 < features.shape[1] else empty
    return reasons if len(reasons) < features.shape[1] else {}


def fit_pipeline(configured: str) -> tuple[Path, bytes, list[str]]:
    """Fit boosted trees of scikit-learn to the training rows of a configuration's table.

    Return the skops file that the configuration names, its content, and the columns of words with words that occur in
    no training row. Raises ShapelineError if the table cannot be prepared, and before the fit if the file exists.
    """
    import skops.io
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, OrdinalEncoder

    from shapeline.datasets import loading, preparation
    from shapeline.models.pipeline_file import digest_training_rows, number_dates

    config = yaml.safe_load(configured)
    [entry], [model] = config["datasets"].values(), config["models"].values()
    with tempfile.TemporaryDirectory() as folder:
        preparation.prepare(entry.pop("source"), entry, [], folder)
        prepared = loading.load(folder)
        table, cells = prepared.own_rows
        path, digest = Path(model["source"]), digest_training_rows(prepared)
        if path.exists():
            raise ShapelineError(f"{path}: the file exists; remove it to fit a new one, or name it by --model")
        rows, train = table.compose(cells), np.flatnonzero(prepared.split == 0)
    words = [name for name in rows if rows[name].dtype.kind not in "iufb"]
    dates = [name for name in words if rows[name].notna().equals(number_dates(rows[[name]])[name].notna())]
    words = [name for name in words if name not in dates]
    for name in words:
        cell = next((cell for cell in rows[name].dropna() if not isinstance(cell, CELL_TYPES)), None)
        if cell is not None:
            raise ShapelineError(
                f"column '{name}': holds cells of type {type(cell).__name__}; write them as numbers or texts, leave it "
                "out of 'columns', or name a model by --model"
            )
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan, encoded_missing_value=np.nan)
    columns = make_column_transformer(
        (encoder, words), (FunctionTransformer(number_dates), dates), remainder="passthrough"
    )
    regression = prepared.card.get("task") == "regression"
    trees = (HistGradientBoostingRegressor if regression else HistGradientBoostingClassifier)(random_state=0)
    pipeline = make_pipeline(columns.set_output(transform="pandas"), trees)  # trees take pandas.NA in a data frame
    target = prepared.labels if regression else np.array(prepared.card["classes"])[prepared.labels]
    pipeline.fit(rows.iloc[train], target[train]).fitted_rows = digest  # the report compares it with the run's
    new = [name for name in words if not rows[name].dropna().isin(rows[name].iloc[train]).all()]
    return path, skops.io.dumps(pipeline), new


def try_model(config: dict) -> None:
    """Evaluate the fitted model that a configuration names on rows of its data. Raises ShapelineError if it fails."""
    from shapeline.datasets import loading, preparation
    from shapeline.models import architectures, storage

    [entry], [model] = config["datasets"].values(), config["models"].values()
    if registry.find_suffix(model.get("source")) in registry.ESTIMATORS:
        with tempfile.TemporaryDirectory() as folder:
            card = preparation.prepare(entry["source"], entry, [], folder)
            classifier, dataset = storage.fit_rows(architectures.load_ready(model, card), loading.load(folder))
            classifier.predict(dataset.inputs[:TRIED_ROWS])


def _find_documents(table, target: str | None) -> str | None:
    """Return the column of the longest texts, if these are documents and not categories; beside feature columns, with a
    given target, they must be longer."""
    texts = {
        name: float(table[name].dropna().str.count(WORDS).mean())
        for name in table
        if name != target and not table[name].isna().all() and holds_texts(table[name])
    }
    longest = max(texts, key=texts.get, default=None)
    others = [table[name] for name in table if name not in (target, longest)]
    is_alone = target is None or all(_is_counter(values) or values.isna().all() for values in others)
    words = MIN_WORDS if is_alone else MIN_WORDS_BESIDE_FEATURES
    return longest if longest is not None and texts[longest] >= words else None


def _configure_texts(
    name: str, file: list[str], table, column: str, model: str | None, trained: Model | None, keys: dict
) -> str:
    length = int(min(400, max(8, table[column].dropna().str.split().str.len().quantile(0.95))))
    only_torch = is_installed("torch") and not is_installed("tensorflow")  # the default of networks of texts
    source = _format_source(model) if model else "architecture: word_cnn" + ", framework: torch" * only_torch
    takes_texts = model is not None and (model.endswith((".skops", ".onnx")) or "framework: function" in source)
    cut = [f"length: {length}    # tokens; longer texts are truncated", "vocabulary: 5000"]
    if takes_texts:
        cut = [f"tokenizer: {TEXT}    # the model takes the texts themselves"]
    elif trained:
        cut = [f"tokenizer: {_quote(model)}    # of the model, which limits the length of a text"]
    lines = [
        "source: text_file",
        *file,
        f"text: {_quote(column)}" + "    # the other columns are not read" * (table.shape[1] > 2),
        *cut,
    ]
    return _format_experiment(
        name,
        _set_keys(lines, keys),
        [],
        source,
        [
            "features: {kind: word}",
            "reference: delete    # baseline: masked words are deleted"
            if trained or takes_texts
            else "reference: pad    # baseline: masked words become padding",
        ],
        [] if takes_texts else list_gradient_methods(model, path=not trained),
        ["log_odds: {}"],
    )


def _configure_images(path: Path, model: str | None, trained: Model | None, keys: dict) -> str:
    from PIL import Image

    from shapeline.datasets import images

    files = [file for file in sorted(path.rglob("*/*")) if file.suffix.lower() in IMAGE_SUFFIXES]
    classes = {file.parent.name for file in files}
    if len(classes) < 2:
        texts = "write the texts into a CSV file with a column of texts and one of classes"
        fix = texts if any(path.glob("*/*.txt")) else "use one folder per class"
        raise ShapelineError(f"{path}: no .jpg or .png files in two or more folders; {fix}")
    by_mode: dict[str, Path] = {}
    sizes = []
    for file in files:
        with contextlib.suppress(OSError), Image.open(file) as image:  # the run reports unreadable images
            by_mode.setdefault(image.mode, file)
            sizes.append(image.size)
    side = max(8, min(MAX_SIDE, *(sizes or [(MAX_SIDE,)])[0]) // 4 * 4)
    # A folder with some grey images is read as grey, because the run cannot add colours.
    grey, size = any(mode in images.GREY for mode in by_mode), [side, side]
    if trained:
        trained.check("image", path, {name.casefold() for name in classes})
        grey, size = (trained.sides[0] == 1, list(trained.sides[1:])) if trained.sides else (grey, size)
    for file in by_mode.values():
        with contextlib.suppress(images.Undecodable):
            images.decode(str(file), file.read_bytes(), color="grey" if grey else "rgb", changed={})
    patch = choose_patch(min(size), trained.patch if trained else None)
    built = "digits_cnn" if side <= 16 else "mnist_cnn" if grey else "cifar_cnn"
    lines = ["source: image_folder", _format_path(path), f"size: {size}    # images are resized to this side"]
    return _format_experiment(
        _choose_name(path),
        _set_keys([*lines, f"color: {'grey' if grey else 'rgb'}"], keys),
        [],
        _format_source(model) if model else f"architecture: {built}",
        [
            f"features: {{kind: patch, size: {patch}}}    # side of a patch in pixels",
            "reference: mean    # baseline: the mean of the training part per channel",
        ],
        list_gradient_methods(model),
        ["log_odds: {}"],
    )


def _format_source(model: str) -> str:
    """Return the line of a model's source; a function of rows (not one that builds a network) needs its framework."""
    needed = []
    if names_function(model) and Path(find_file(model)).is_file():
        needed = [argument for argument, must in list_arguments(model).items() if must]
    return f"source: {_quote(model)}" + ", framework: function" * (len(needed) == 1 and needed[0] not in SIZES)


def _set_keys(lines: list[str], keys: dict) -> list[str]:
    """Return the lines of a dataset's entry, where these keys replace its own or are added."""
    others = [line for line in lines if line.partition(":")[0] not in keys]
    return [*others, *(f"{key}: {_dump_yaml(value)}" for key, value in keys.items())]


def _format_experiment(
    name: str,
    dataset: list[str],
    about_model: list[str],
    model: str,
    experiment: list[str],
    methods: list[str],
    metrics: list[str],
) -> str:
    """Return the configuration of one experiment from the lines of its parts; methods: beside the usual ones."""
    methods = [
        *[line for line in methods if line == EXACT],
        "gp_shapley: {method: gp_shapley}    # Shapley values by a Gaussian process",
        "kernel_shap: {method: kernel_shap}",
        *[line for line in methods if line != EXACT],
        "occlusion: {method: occlusion}    # control: masks one feature at a time",
        "random: {method: random}    # control: random attribution",
    ]
    return _join_lines(
        name,
        dataset,
        [*about_model, f"{name}: {{dataset: {name}, {model}}}"],
        [
            *experiment,
            "instances: {count: 50, fewer_ok: true}    # explained, sampled from the test part; all if it has fewer",
            "budget: 4    # model evaluations of a sampled method per feature",
        ],
        methods,
        f"{{{', '.join([*metrics, 'cost: {}'])}}}    # of methods"
        + "; log_odds: deletion and insertion AUC" * ("log_odds: {}" in metrics),
    )


def _join_lines(
    name: str, dataset: list[str], models: list[str], experiment: list[str], methods: list[str], metrics: str
) -> str:
    """Return the configuration of one experiment from the lines of its parts."""
    lines = [
        f"# Explanations of {name}, merged over config.yaml. Every key: docs/configuration.md. Run: shapeline run, or",
        f"# snakemake {name} --cores all --configfile shapeline.yaml",
        f"run: [{name}]",
        "datasets:",
        f"  {name}:",
        *(f"    {line}" for line in dataset),
        "models:",
        *(f"  {line}" for line in models),
        "experiments:",
        f"  {name}:",
        f"    model: {name}",
        *(f"    {line}" for line in experiment),
        "    methods:",
        *(f"      {line}" for line in methods),
        f"    metrics: {metrics}",
    ]
    return "\n".join(lines) + "\n"


def _choose_name(path: Path) -> str:
    """Return a name for a file's dataset, model and experiment that config.yaml lacks and a target may have."""
    plain = unicodedata.normalize("NFKD", path.resolve().stem).encode("ascii", "ignore").decode()
    name = re.sub(r"\W+", "_", plain).strip("_").lower()[:60] or "data"
    name = name if name[0].isalpha() else f"data_{name}"
    defaults = yaml.safe_load((find_root() / "config.yaml").read_bytes())
    known = (key for section in ("datasets", "models", "experiments") for key in defaults.get(section) or ())
    reserved = {*mistakes.TARGETS, *mistakes.RULES, *mistakes.RESERVED, *known}
    return f"my_{name}" if name in reserved or yaml.safe_load(name) != name else name


def _list_tree_methods(value: str | None, regression: bool, classes: int) -> tuple[list[str], list[str]]:
    """Return the line of tree_shap, if it explains the model's trees, and the line of the value to which they sum."""
    lines = ["value: prediction"] * regression
    if value is None:
        return [], lines
    if value != "probability" and not regression:
        margin, centred = "margin    # log-odds", "centred_logit    # log-probability minus its mean over classes"
        lines = [f"value: {margin if classes == 2 else centred}, to which the trees sum"]
    return ["tree_shap: {method: tree_shap}    # exact Shapley values, read from the trees"], lines


def _find_tree_value(source: str | None, pipeline: object) -> str | None:
    """Return what the trees of a model's file sum to, as `tree_shap.find_value`; None if unknown."""
    is_boosted = registry.find_kind(source, None) in registry.BOOSTED
    if is_boosted or pipeline is None:
        return "margin" if is_boosted else None
    from shapeline.methods.tree_shap import find_value

    while hasattr(pipeline, "steps"):
        pipeline = pipeline.steps[-1][1]
    with contextlib.suppress(ShapelineError):
        return find_value(pipeline)
    return None


def _load_pipeline(source: str | None) -> object:
    """Return the estimator of a .skops file; None of another model, or where it cannot be read."""
    if registry.find_kind(source, None) != ".skops" or not Path(source).is_file():
        return None
    from shapeline.models import pipeline_file

    try:
        return pipeline_file.load_estimator(source, Path(source).read_bytes())
    except ShapelineError:
        return None


def _find_unfitted(pipeline: object, table) -> list[str]:
    """Return the columns that a pipeline was not fitted on, if it was fitted on others of them."""
    from shapeline.models.adapters import find_columns

    fitted = find_columns(pipeline)
    return [name for name in table if name not in fitted] if fitted is not None and set(fitted) < set(table) else []


def _find_target(table) -> str:
    """Return the column named like a target, else the last; the last also if it holds few words and the named many."""
    filled = [name for name in table if not table[name].isna().all()] or list(table)
    by_name = {name.strip().lower(): name for name in reversed(list(table))}
    named = next((by_name[word] for word in TARGETS if word in by_name), filled[-1])
    last = table[filled[-1]]
    words = (holds_texts(last) or last.dropna().isin([True, False]).all()) and last.nunique() <= MAX_CLASSES
    return filled[-1] if words and table[named].nunique() > MAX_CLASSES else named


def _is_regression(values) -> bool:
    """Return whether a target holds numbers that are not classes: many, also beside few rows, or fractions."""
    if values.dtype.kind not in "iuf":
        return False
    most = min(MAX_CLASSES, max(2, len(values) // 2))
    return bool(values.nunique() > most or (values.dropna() % 1 != 0).any())


def _format_csv_keys(form: CsvFormat) -> list[str]:
    """Return the keys of a CSV file whose format differs from the default."""
    values = {key: getattr(form, key) for key in KEYS if getattr(form, key) != getattr(PLAIN, key)}
    lines = [
        f"{key}: {_quote(value) if isinstance(value, str) else _dump_yaml(value)}" for key, value in values.items()
    ]
    guessed = "    # guessed from its letters; are names and texts right?"
    return [f"{line}{guessed * (line.startswith('encoding') and 'utf-' not in line)}" for line in lines]


def _dump_yaml(value: object) -> str:
    """Return a value as one line of YAML."""
    value = list(value) if isinstance(value, tuple) else value
    written = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=math.inf)
    return written.removesuffix("\n").removesuffix("\n...")


def _quote(value: str | list[str]) -> str:
    """Return texts in quotes, which YAML reads back unchanged."""
    written = yaml.safe_dump(value, default_style='"', default_flow_style=True, allow_unicode=True, width=math.inf)
    return written.removesuffix("\n")


def _is_counter(values) -> bool:
    """Return whether a column is 0, 1, 2, ... or 1, 2, 3, ..., which numbers the rows."""
    if (
        len(values) <= MAX_CLASSES
        or values.dtype.kind not in "iu"
        or values.isna().any()
        or values.iloc[0] not in (0, 1)
    ):
        return False
    return bool((values.diff().iloc[1:] == 1).all())


def _is_identifier(values) -> bool:
    """Return whether each row of a column has another word, such as a customer's number; not numbers or dates."""
    if len(values) <= MAX_CLASSES or not holds_texts(values) or values.isna().any() or not values.is_unique:
        return False
    return bool(values.str.fullmatch(IDENTIFIER).all())


def _locate_path(path: Path) -> str:
    """Return a path relative to the current folder, where the configuration is written, or else an absolute one."""
    absolute = Path(os.path.abspath(path))
    if absolute == Path.cwd() or not absolute.is_relative_to(Path.cwd()):
        return str(absolute)
    return os.path.join("." if path.is_dir() else "", absolute.relative_to(Path.cwd()))


def _locate_model(model: str) -> str:
    """Return the path of a model for a configuration; a missing file unchanged."""
    file = find_file(model)
    return _locate_path(Path(file)) + model.removeprefix(file) if Path(file).exists() else model


def _format_path(path: Path) -> str:
    text = _locate_path(path)
    if not text.isprintable() and text.encode(errors="replace").decode() != text:
        raise ShapelineError(f"{text!a}: its name is not written in UTF-8; rename it")
    return f"path: {_quote(text)}"


MAX_EXACT_PARTS = 8  # parts of a prompt up to which exact values are affordable
MIN_PARTS = 2  # parts of a prompt; one with fewer is split into words


def is_prompts(path: Path, model: str | None) -> bool:
    """Return whether a file holds prompts: a .jsonl, or a .csv for a language model."""
    suffix = path.suffix.lower()
    return suffix == ".jsonl" or (suffix == ".csv" and model is not None and _can_generate(model))


def _can_generate(model: str) -> bool:
    try:
        folders.check_generator(model)
    except (ShapelineError, OSError):
        return False
    return True


def write_prompts(path: Path, model: str | None, name: str) -> str:
    """Return the configuration of an experiment on prompts. Raises ShapelineError for a wrong file."""
    rows = read_prompts(path)
    if model is None:
        raise ShapelineError(f"{path}: holds prompts; add --model path/to/folder of a language model")
    folder = _locate_path(Path(model))
    folders.check_generator(folder)
    # The coarsest kind of part of which each prompt has MIN_PARTS or more.
    kind = "sentence" if all(row.build("sentence").d >= MIN_PARTS for row in rows) else "word"
    check_parts(rows, kind)
    counts = np.array([row.build(kind).d for row in rows])
    exact = bool((counts <= MAX_EXACT_PARTS).mean() >= 0.5)
    methods = [
        *(["exact: {method: shapley}    # exact Shapley values, from all 2^parts coalitions"] * exact),
        "gp_shapley: {method: gp_shapley}    # Shapley values by a Gaussian process",
        "kernel_shap: {method: kernel_shap}",
        "context_cite: {method: context_cite}    # a lasso on random ablations",
        "leave_one_out: {method: occlusion}    # control: removes one part at a time",
        "random: {method: random}    # control: random scores",
    ]
    metrics = [*(["error: {reference: exact}"] * exact), "prompts: {}", "cost: {}"]
    experiment = [
        f"dataset: {name}",
        f"features: {{kind: {kind}}}    # parts of a prompt: sentence, passage, word or message",
        f"instances: {{count: {min(100, len(rows))}}}    # the first prompts of the file",
        "budget: 4    # evaluations of a sampled method per part",
    ]
    return _join_lines(
        name,
        ["source: prompts", _format_path(path)],
        [f"{name}: {{source: {_quote(folder)}, task: generation, max_tokens: 64}}    # of its own answer"],
        experiment,
        methods,
        f"{{{', '.join(metrics)}}}    # prompts: deletion, prediction, citation of support",
    )
