"""The model, data, features, reference and targets of a call, shared by all methods; and the game of one input."""

import dataclasses
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from shapeline.api import inputs as givens
from shapeline.api.choice import check_fixed_cost, parse_stopping_rule, resolve_default
from shapeline.api.explanation import Explanation, Metadata
from shapeline.api.formatting import show_progress
from shapeline.api.inputs import Inputs
from shapeline.api.targets import (
    choose_targets,
    name_classes,
    query_outputs,
    report_labels,
    report_other_labels,
    report_rounding,
)
from shapeline.api.texts import ABSENT, describe_removal, read_text_model
from shapeline.attribution.explanation import OPTIONAL
from shapeline.attribution.explanation import Explanation as Record
from shapeline.attribution.run import Options, attribute
from shapeline.datasets.table import as_type, is_same_type
from shapeline.errors import ShapelineError, name_type, rename_place
from shapeline.games import calibration, references
from shapeline.games import features as feature_kinds
from shapeline.games.calibration import are_outputs_equal, fit_reference
from shapeline.games.execution import MAX_BATCH_ROWS, ExecutionBackend, import_backend, mask_rows
from shapeline.games.features import TEXT_KINDS, Features
from shapeline.games.game import PREDICTION, Game, check_full, is_apart
from shapeline.games.references import Reference
from shapeline.games.validation_scores import check_order
from shapeline.methods.registry import METHODS
from shapeline.methods.settings import parse
from shapeline.models import adapters
from shapeline.models.classifier import (
    OUTPUTS,
    PROBES,
    Classifier,
    detach,
    function_predictions,
    function_probabilities,
)
from shapeline.models.classifier import backend as import_framework
from shapeline.report.formatting import format_count
from shapeline.seeds import seed_of

MAX_ROWS = 100  # of a background; larger ones are sampled
MAX_PIXELS = 1024  # of images whose features are pixels; the features of larger ones are patches
SPLITS = ("sentence", "passage")  # parts of texts besides words
PATCHES = 16  # along the longer side
LABELLED = {"table": "give one per column, or groups as name -> columns", "image": "give one per pixel"}
_BACKENDS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class CallOptions:
    """The arguments of `explain` that describe the game."""

    reference: object = None
    features: Any = None
    target: object = None
    seed: int = 0
    background: object = None
    value: str | None = None
    y: Sequence | None = None
    feature_names: Sequence[str] | None = None
    class_names: Sequence[str] | None = None
    tokenizer: object = None
    outputs: str | None = None

    def check_order(self, inputs: object) -> None:
        """Raise ShapelineError for classes whose rows have the labels of the inputs' in another order."""
        for name in ("y", "target"):
            check_order("explain", inputs, getattr(self, name), ("inputs", name))


@dataclass(frozen=True, eq=False)
class Case:
    """The game of a call and the inputs that it explains.

    positions: (m,), the input of each explanation; an input with several classes has several. targets, sample_keys:
    (m,), class and sampling seed of each. buckets: features, and the explanations that have them. reference:
    description; classes: names.
    """

    given: Inputs
    game: Game
    positions: np.ndarray
    targets: np.ndarray
    sample_keys: np.ndarray
    buckets: list[tuple[Features, np.ndarray]]
    reference: str
    classes: tuple[str, ...]
    seed: int

    @property
    def inputs(self) -> np.ndarray:
        """The input of each explanation."""
        return self.given.inputs[self.positions]

    def settle_value(self, value: str | None, methods: Iterable[str]) -> "Case":
        """Return the case of the log-probability, which gradient methods explain, if no value is given and one of the
        methods is one."""
        units = {METHODS[method].unit for method in methods}
        if value is not None or "output" not in units or self.game.value != "probability":
            return self
        return dataclasses.replace(self, game=dataclasses.replace(self.game, value="log_probability"))

    def explain_all(self, settings: dict, budget: float | dict | None, evaluations: int | None = None) -> Explanation:
        """Return a method's explanations; settings: its name and parameters; evaluations: replaces the budget, which is
        the default if it is None."""
        method = settings["method"]
        self._check_data(method)
        sampled = METHODS[method].sampled
        until = parse_stopping_rule(budget) if sampled else None
        largest = max((features.d for features, _ in self.buckets), default=1)
        limits = {"evaluations": evaluations} if evaluations else {"budget": resolve_default(budget, settings, largest)}
        options = Options(seed_of(self.seed, method, 0), on_error="fail")
        parts, inputs = [], self.inputs
        with show_progress(method, len(inputs)) as start_progress:
            for features, indices in self.buckets:
                group_options = dataclasses.replace(
                    options,
                    instances=self.positions[indices],
                    sample_keys=self.sample_keys[indices],
                    progress=start_progress(len(indices)),
                )
                game = self.game.having(features=features)
                own = evaluations / features.d if evaluations and features.d else None
                parsed = parse(settings, [(until or own or budget) if sampled else None])
                parts += attribute(game, inputs[indices], self.targets[indices], parsed, group_options)
        record = parts[0] if len(parts) == 1 else _join_groups(parts, [indices for _, indices in self.buckets])
        return Explanation(**vars(record), about=self._describe(settings | (limits if sampled else {})))

    def check_fixed_cost(self, where: str, settings: dict, evaluations: int | None) -> None:
        """Raise ShapelineError where a method whose cost is fixed by d evaluates more coalitions than requested."""
        parsed = parse(settings)
        if evaluations and parsed.method.is_design and not parsed.method.sampled:
            for features, _ in self.buckets:
                check_fixed_cost(where, parsed.name, parsed.size(features, None, self.seed), evaluations)

    def _check_data(self, method: str) -> None:
        """Raise ShapelineError for inputs that the method does not explain."""
        supported = METHODS[method].data
        if supported and self.given.kind not in supported:
            raise ShapelineError(
                f"explain: {method} explains data of kind {' and '.join(supported)}, not inputs of shape "
                f"{self.given.inputs.shape}; choose another method"
            )

    def _describe(self, settings: dict) -> Metadata:
        """Return the metadata of the explanations."""
        given, game, m = self.given, self.game, len(self.positions)
        features, names = [None] * m, [()] * m
        for group, indices in self.buckets:
            shared = list_names(group)
            for index in indices:
                features[index] = group
                names[index] = tuple(given.shown[self.positions[index]]) if given.has_words else shared
        rows = 1 if game.reference.own else len(game.reference.rows)
        inputs = Metadata(features=given.instances, names=given.instances, data=given.shown, instances=given.instances)
        inputs = inputs.at(self.positions)
        return Metadata(
            given.kind, settings, game.value, self.reference, rows, features, names, inputs.data, inputs.instances,
            self.classes, self.positions.tolist(),
        )  # fmt: skip


@rename_place("models", "explain: model")
def build_case(model: object, inputs: object, wanted: CallOptions) -> Case:
    """Return the game and inputs of a call. Raises ShapelineError that names the argument."""
    if hasattr(model, "n_players"):
        raise ShapelineError(
            "explain: model: a game has players and no inputs; call shapeline.shapley_values(game), once per method"
        )
    if hasattr(inputs, "predict") and not hasattr(model, "predict"):
        raise ShapelineError(f"explain: inputs: {name_type(inputs)} is a model; give the model first, then its inputs")
    given_features = wanted.features if isinstance(wanted.features, Features) else None
    kind = wanted.features.get("kind") if isinstance(wanted.features, dict) else wanted.features
    tokens = (given_features.kind if given_features else kind if isinstance(kind, str) else None) in TEXT_KINDS
    model = adapters.unwrap_mlflow(model)
    model, cutter, inputs = read_text_model(model, wanted.tokenizer, inputs)
    if cutter is None:
        adapters.check_inputs(model)
        model = adapters.select_outputs(model)
    own = given_features or _find_split(kind)
    given = givens.read(model, inputs, wanted.background, wanted.reference, tokens, own, wanted.feature_names, cutter)
    of_regression = wanted.value == PREDICTION and not hasattr(model, "predict_proba")
    if wanted.outputs not in (None, *OUTPUTS):
        raise ShapelineError(f"explain: outputs is {wanted.outputs!r}; give 'probabilities' or 'logits'")
    classifier = given.classifier(adapters.wrap(model, "regression" if of_regression else wanted.outputs))
    if classifier.framework == "tensorflow":
        import_framework(classifier.framework).drop_if_changed(classifier.module, given.inputs)
    if classifier.framework == "torch" and given.kind != "text":
        module = import_framework(classifier.framework).cast_inputs(classifier.module)
        classifier = classifier if module is classifier.module else dataclasses.replace(classifier, module=module)
    chosen = _choose_features(given) if wanted.features is None else wanted.features
    buckets_of_inputs = (
        [(given_features, np.arange(len(given.inputs)))] if given_features else _group_by_features(chosen, given)
    )
    baseline, described = build_reference(wanted.reference, given, wanted.seed)
    settle_outputs(classifier, given, baseline)
    try:
        predictions = query_outputs(classifier, given.inputs)
    except ShapelineError as error:
        column = _find_text_column(inputs)
        error.args = (f"{error}; for a model of texts give inputs[{column}]" if column else str(error),)
        raise
    if wanted.value is None and not adapters.is_regressor(model):
        report_labels(classifier, given.inputs, predictions)
    wanted.check_order(inputs)
    classes = name_classes(model if cutter is None else model.module, wanted.class_names, classifier, given.inputs)
    targets, positions = choose_targets(classifier, predictions, wanted.target, classes, wanted.y)
    report_other_labels(model, classifier, given.inputs, targets, classes.labels if wanted.target is None else ())
    given, baseline, described = settle_mean(classifier, given, baseline, described)
    with rename_place("reference", "explain: reference"):
        classifier, rounded_baseline = fit_reference(classifier, given.inputs, baseline)
    if rounded_baseline is not baseline:
        baseline, described = rounded_baseline, f"{described}, whole numbers rounded"
    check_rows(classifier, given, baseline, predictions)
    import_backend(classifier)  # import time is not an instance's time
    of_probabilities = classifier.framework == "function" or classifier.outputs == "probabilities"
    default_value = "probability" if of_probabilities else "log_probability"
    default_value = PREDICTION if classifier.task == "regression" else default_value
    backend = _calibrate_backend(classifier, given.inputs, baseline)
    game = Game(classifier, baseline, None, wanted.value or default_value, backend)
    buckets = [(group, np.flatnonzero(np.isin(positions, members))) for group, members in buckets_of_inputs]
    sample_keys = _seed_rows(given)[positions]
    return Case(given, game, positions, targets, sample_keys, buckets, described, classes.names, wanted.seed)


def _find_text_column(inputs: object) -> str:
    """Return the index of the only column of a data frame or an array, where it holds texts; else ""."""
    if getattr(inputs, "ndim", 0) != 2 or inputs.shape[1] != 1:
        return ""
    is_frame = hasattr(inputs, "columns")
    cells = inputs.iloc[:, 0] if is_frame else inputs[:, 0]
    return (repr(inputs.columns[0]) if is_frame else ":, 0") if all(isinstance(cell, str) for cell in cells) else ""


def settle_outputs(classifier: Classifier, given: Inputs, reference: Reference) -> None:
    """Detect a network's outputs from mixtures of inputs and baselines, so that one row suffices."""
    if classifier.framework == "function" or reference.rows is None or reference.leaves_out:
        return
    try:
        classifier.settle_outputs(mask_rows(given.inputs, reference, PROBES))
    except ShapelineError:
        raise
    except Exception:  # noqa: BLE001 (`query_outputs` reports why the model refuses such rows)
        return


def settle_mean(
    classifier: Classifier, given: Inputs, reference: Reference, described: str
) -> tuple[Inputs, Reference, str]:
    """Return inputs, reference and its description where the mean of an integer array is no integer: as real numbers
    for a model with equal outputs for these, else rounded, as for integer columns of a data frame."""
    source = given.inputs if given.background is None else given.background
    rows = reference.rows
    if classifier.framework != "function" or given.table is not None or source.dtype.kind not in "biu":
        return given, reference, described
    if rows is None or rows.dtype.kind != "f" or reference.given is not None or given.reference is not None:
        return given, reference, described
    rounded, real = as_type(rows, source.dtype), given.inputs.astype(np.float64)
    if (rounded != rows).any():
        is_exact = source.dtype.kind != "b" and (real == given.inputs).all()
        if is_exact and are_outputs_equal((classifier, given.inputs), (classifier, real)):
            return dataclasses.replace(given, inputs=real), reference, described
        described += ", whole numbers rounded"
    return given, Reference(rounded), described


def check_rows(classifier: Classifier, given: Inputs, reference: Reference, predictions: np.ndarray) -> None:
    """Raise ShapelineError where a model fails on rows of the baseline, or depends on how rows are composed."""
    if given.kind == "text":
        _check_padding(classifier, given, reference)
        return
    if reference.rows is not None and not reference.leaves_out:
        baseline = query_outputs(classifier, reference.rows, "reference", given.background)
        if classifier.task == "regression":
            report_rounding(classifier, np.concatenate([predictions, baseline]))
    if given.untouched is not None and isinstance(classifier.module, givens.DecodingModel):
        regression = classifier.task == "regression"
        query = function_predictions if regression else function_probabilities
        outputs = query(classifier.module.ask, given.untouched.copy(), classifier.architecture)
        expected = predictions if regression else np.exp(predictions)
        check_full(classifier.architecture, expected, outputs, np.arange(len(outputs)), is_apart(expected, outputs))
        if given.converted is not None:
            _check_types(classifier, given, query)


def _check_types(classifier: Classifier, given: Inputs, query: Callable) -> None:
    """Raise ShapelineError where the inputs' column types change the model's outputs for rows of the background."""
    rows = given.converted[:MAX_ROWS]
    try:
        outputs = query(classifier.module.ask, rows.copy(), classifier.architecture)
    except ShapelineError:  # it takes the inputs' types alone
        return
    converted = query(classifier.module, given.background[:MAX_ROWS], classifier.architecture)
    if len(apart := np.argwhere(is_apart(converted, outputs, np.inf))):
        kinds = zip(rows.columns, rows.dtypes, given.shown.dtypes, strict=True)
        name = next((name for name, kind, shown in kinds if not is_same_type(kind, shown)), rows.columns[0])
        raise ShapelineError(
            f"explain: background: model '{classifier.architecture}' gives {outputs[tuple(apart[0])]:.6g} for row "
            f"{apart[0][0]} (from 0), and {converted[tuple(apart[0])]:.6g} with the inputs' type of column "
            f"'{name}'; give inputs and background of the same types and categories"
        )


def _check_padding(classifier: Classifier, given: Inputs, reference: Reference) -> None:
    """Raise ShapelineError where a network of token ids has no answer to padding alone, as a mean of no tokens."""
    if given.take is None and given.owners is None and np.isnan(classifier.log_probs(reference.rows)).any():
        raise ShapelineError(
            f"explain: reference: model '{classifier.architecture}' gives nan for masked words alone; mask them by "
            "another token, such as the unknown one, as reference={'kind': 'pad', 'id': 1}"
        )


def _choose_features(given: Inputs) -> str | dict:
    """Return the default features: columns, words, pixels of small images, patches of larger ones."""
    if given.kind != "image":
        return {"text": "word"}.get(given.kind, "column")
    _, height, width = given.inputs.shape[1:]
    size = -(-max(height, width) // PATCHES)
    return "pixel" if height * width <= MAX_PIXELS else {"kind": "patch", "size": [min(size, height), min(size, width)]}


def _find_split(kind: object) -> str | Callable | None:
    """Return features of texts that are parts in place of words; None for others."""
    return kind if callable(kind) or (isinstance(kind, str) and kind in SPLITS) else None


def _group_by_features(kind: Any, given: Inputs) -> list[tuple[Features, np.ndarray]]:
    settings = {"kind": kind} if isinstance(kind, str) else kind
    kind = settings.get("kind") if isinstance(settings, dict) else kind
    if given.has_words and given.take is not None and _find_split(kind):
        groups = feature_kinds.group_inputs("word", given.card, given.inputs)
        noun = "part" if callable(kind) else kind
        return [(dataclasses.replace(features, kind=noun), positions) for features, positions in groups]
    if not isinstance(settings, dict) and given.has_words:
        raise ShapelineError(
            f"explain: features is {name_type(kind)}; of texts give 'word', 'sentence', 'passage', or a function from "
            "a text to its parts in order, such as list for characters"
        )
    if not isinstance(settings, dict) and (labels := _read_labels(kind)) is not None:
        return _group_by_labels(labels, given)
    if not isinstance(settings, dict):
        raise ShapelineError(
            f"explain: features is {name_type(kind)}; give a kind, groups as name -> columns, or an array of whole "
            "numbers with the feature of each cell"
        )
    is_kind = isinstance(settings.get("kind"), str)  # not a group of that name
    settings = settings if is_kind else {"kind": "group", "groups": settings}
    return feature_kinds.group_inputs(settings, given.card, given.inputs, given.owners)


def _read_labels(given: object) -> np.ndarray | None:
    """Return an array of whole numbers, also of a tensor or a list of arrays; None for anything else."""
    try:
        labels = np.asarray(detach(given))
    except (TypeError, ValueError):  # of several shapes
        return None
    return labels if labels.ndim and labels.dtype.kind in "iu" else None


def _group_by_labels(labels: np.ndarray, given: Inputs) -> list[tuple[Features, np.ndarray]]:
    """Return features of equal labels: of a cell or pixel, for all inputs or for each; negative ones are not masked."""
    n, shape, own = len(given.inputs), given.inputs.shape[1:], given.shown.shape[1:]
    if given.layout is not None and labels.shape[-len(own) :] == own != shape:  # in the user's order of axes
        labels = given.layout.inward(labels.reshape(-1, *own))
    fitting = [one for one in (shape, shape[1:]) if one and labels.shape in (one, (1, *one), (n, *one))]
    is_ambiguous = len(fitting) > 1 and shape[0] > 1  # as many inputs as channels
    if not fitting or is_ambiguous or given.kind == "text":
        problem = "may be of channels or of inputs" if is_ambiguous else "do not fit inputs"
        remedy = f"give shape {(n, *own)}" if is_ambiguous else LABELLED.get(given.kind, "give one per cell")
        raise ShapelineError(f"explain: features: labels of shape {labels.shape} {problem} of shape {own}; {remedy}")
    each = np.broadcast_to(labels.reshape(-1, *fitting[0]), (n, *fitting[0]))
    if (hidden := (each < 0).reshape(n, -1).all(axis=1)).any():
        raise ShapelineError(
            f"explain: features: the labels of input {hidden.argmax()} are all negative, and such cells are never "
            "masked; give labels from 0"
        )
    groups: dict[bytes, tuple[Features, list[int]]] = {}
    for position, one in enumerate(each):
        numbers, cells = np.unique(one, return_inverse=True)
        cells = cells.reshape(one.shape) - np.count_nonzero(numbers < 0)
        cells = np.broadcast_to(np.maximum(cells, -1), shape).astype(np.int32)
        kind, d = "superpixel" if given.kind == "image" else "group", (numbers >= 0).sum()
        names = tuple(f"segment {number}" for number in numbers[numbers >= 0])
        key = cells.tobytes() + repr(names).encode()
        groups.setdefault(key, (Features(kind, (d,), cells, names), []))[1].append(position)
    return [(features, np.array(positions)) for features, positions in groups.values()]


def list_names(features: Features) -> tuple[str, ...]:
    """Return the features' names, or descriptions where they have none."""
    if features.names:
        return features.names
    if features.kind in feature_kinds.IMAGE_KINDS and len(features.shape) == 2:
        return tuple(f"row {row}, column {column}" for row, column in np.ndindex(*features.shape))
    return tuple(f"{features.kind.replace('_', ' ')} {index}" for index in range(features.d))


def _seed_rows(given: Inputs) -> np.ndarray:
    """Return the sampling seed of each input, (n,) int64, from its digest and the number of equal inputs before it."""
    before: Counter[str] = Counter()
    names = []
    for digest in given.digests():
        names.append(seed_of(digest, before[digest]))
        before[digest] += 1
    return np.array(names, dtype=np.int64)


def _join_groups(parts: Sequence[Record], positions: Sequence[np.ndarray]) -> Record:
    """Return the explanations of groups of instances as one, in the order of the inputs."""
    order = np.argsort(np.concatenate(positions))
    columns = {}
    for field in dataclasses.fields(Record):
        each = [getattr(part, field.name) for part in parts]
        if field.name in OPTIONAL and any(values is None for values in each):
            columns[field.name] = None
            continue
        if field.name in ("scores", *OPTIONAL):
            widest = max(values.shape[1] for values in each)
            each = [np.pad(s, ((0, 0), (0, widest - s.shape[1])), constant_values=np.nan) for s in each]
        if isinstance(each[0], list):
            joined = [item for items in each for item in items]
            columns[field.name] = [joined[index] for index in order]
        else:
            columns[field.name] = np.concatenate(each)[order]
    return Record(**columns)


def _calibrate_backend(model: Classifier, inputs: np.ndarray, reference: Reference) -> ExecutionBackend:
    """Return the calibrated backend, once per model and input shape while it fits; functions get large batches."""
    rows = MAX_BATCH_ROWS["function"] if model.framework == "function" else calibration.limit_rows(model, reference)
    if rows:
        return ExecutionBackend("plain", rows)
    cached = _BACKENDS.setdefault(model.module, {})
    backend = cached.get(inputs.shape[1:])
    if backend is None or not calibration.is_current(backend, model, inputs, reference):
        cached[inputs.shape[1:]] = calibration.calibrate(model, inputs[:64], reference)
    return cached[inputs.shape[1:]]


def build_reference(reference: object, given: Inputs, seed: int) -> tuple[Reference, str]:
    """Return the baseline of masked features, and its description."""
    tokens = given.kind == "text"
    if given.reference is not None:
        return Reference(given.reference), f"the given reference, {format_count(len(given.reference), 'row')}"
    if given.kind == "text" and given.take is not None:
        baseline = np.full((1, *given.inputs.shape[1:]), ABSENT, np.int32)
        return Reference(baseline), f"the word {reference!r}" if reference else "masked words are deleted"
    source, rows = "the inputs", given.inputs
    if given.owners is not None:
        settings, described = describe_removal(reference, given.card)
        return references.build(settings, SimpleNamespace(inputs=rows, card=given.card), seed), described
    if given.background is not None:
        source, rows = "the background", given.background
    described = reference
    if reference is None and given.background is not None:
        reference = "background"
    elif reference is None and not tokens and len(rows) == 1 and given.kind == "image" and not given.is_series:
        reference, described = "blur", "the blurred image"
    elif reference is None:
        reference = "pad" if tokens else "mean"
        described = "padding" if tokens else f"the mean of {source}"
    kind, chosen = references.parse(reference)
    whole = kind == "background" and (reference == kind or "rows" not in reference)
    if (kind.startswith("mean") or whole) and given.background is None and len(rows) == 1:
        raise ShapelineError(
            "explain: the mean of a single input is the input itself; give background (rows of your data) or a "
            "reference (one baseline row)"
        )
    if kind == "background":
        count = min(len(rows), MAX_ROWS) if whole else chosen["rows"]
        reference, noun = {"kind": kind, "rows": count}, "input" if given.background is None else "background row"
        described = format_count(count, noun)
        if count < len(rows):
            described = f"{count} of {len(rows):,} {noun}s (sampled with seed {seed})"
    data = SimpleNamespace(inputs=rows, split=np.zeros(len(rows), np.uint8), card=given.card)
    if isinstance(described, str | dict) and described == reference:
        described = f"{kind} of {source}" if kind != "pad" else "padding"
        described += f", token {chosen['id']}" if chosen.get("id") is not None else ""
        described += f", {format_count(chosen['rows'], 'row')}" if "rows" in chosen else ""
    if kind == "mean" and given.layout is not None and given.layout.order == "without_channels":
        reference = "mean_image"  # of each cell of a series
    elif kind in ("mean", "mean_value") and given.kind == "image":
        described += " per channel"
    built = references.build(reference, data, seed)
    return built, described


class ModelGame:
    """The game of a model on one input: the players are features, the value is the model's output.

    Parameters
    ----------
    model, x
        A model and one input, as for `shapeline.explain`.
    **wanted
        Other arguments of `shapeline.explain`: reference, features, target, seed, background, value, y, feature_names,
        class_names, tokenizer, outputs. ``target="each"`` gives an output per class.

    Examples
    --------
    >>> import shapeline
    >>> from shapeline.games import ModelGame
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> game = ModelGame(GaussianNB().fit(X, y), X[:1], background=X[::10], target="each")
    >>> found = shapeline.shapley_values(game)
    >>> found.scores.shape, found.feature_names[3]
    ((3, 4), 'petal width (cm)')
    """

    def __init__(self, model: object, x: object, **wanted: object):
        if wrong := sorted(set(wanted) - set(CallOptions.__dataclass_fields__)):
            raise ShapelineError(
                f"ModelGame: '{wrong[0]}' is not an argument; give {', '.join(CallOptions.__dataclass_fields__)}"
            )
        case = build_case(model, x, CallOptions(**wanted))
        if len(set(case.positions.tolist())) != 1:
            raise ShapelineError(f"ModelGame: x has {len(case.given.inputs)} inputs; give one, as x[:1]")
        [(features, _)] = case.buckets
        self.game = case.game.having(features=features)
        self.inputs, self.targets, self.n_players = case.inputs, case.targets, features.d
        names = case.given.shown[0] if case.given.has_words else list_names(features)
        self.player_names = _number_duplicates(list(map(str, names)))
        several = len(case.targets) > 1
        self.output_names = [case.classes[target] for target in case.targets] if several and case.classes else None

    def __call__(self, masks: np.ndarray) -> np.ndarray:
        """Return the values (K,), or (K, n_classes), of coalitions (K, n_players)."""
        values = self.game.values(self.inputs[:1], np.asarray(masks, bool), self.targets[None])[0]
        return values if len(self.targets) > 1 else values[:, 0]


def _number_duplicates(names: list[str]) -> list[str]:
    """Return distinct names: repeated words are numbered."""
    counts: Counter[str] = Counter()
    numbered = []
    for name in names:
        counts[name] += 1
        numbered.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
    return numbered
