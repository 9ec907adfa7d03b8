"""The model, data, features, reference and targets of a call, once for all methods; and the game of one input."""

import dataclasses
import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from shapeline.api import inputs as givens
from shapeline.api.choice import stopping_rule
from shapeline.api.explanation import Explanation, Metadata
from shapeline.api.formatting import bar
from shapeline.api.inputs import Inputs
from shapeline.api.targets import choose_targets, name_classes, query_outputs
from shapeline.api.texts import ABSENT, read_text_model, removal
from shapeline.attribution.explanation import Explanation as Record
from shapeline.attribution.run import Options, attribute
from shapeline.datasets.table import as_type
from shapeline.errors import ShapelineError
from shapeline.games import calibration, references
from shapeline.games import features as feature_kinds
from shapeline.games.calibration import answers_alike, settle_reference
from shapeline.games.execution import LARGEST_BATCH, ExecutionBackend, import_backend, mask_rows
from shapeline.games.features import TEXT_KINDS, Features
from shapeline.games.game import PREDICTION, Game, check_full, is_apart
from shapeline.games.references import Reference
from shapeline.methods.registry import METHODS
from shapeline.methods.settings import parse
from shapeline.models import adapters
from shapeline.models.classifier import OUTPUTS, PROBES, Classifier, function_predictions, function_probabilities
from shapeline.seeds import seed_of

MAX_ROWS = 100  # of a background that is taken as it is
MAX_PIXELS = 1024  # of images that are explained pixel by pixel; larger ones by patches,
PATCHES = 16  # so many along the longer side
_BACKENDS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class CallOptions:
    """What is asked of a model, as `explain` has it."""

    reference: object = None
    features: str | dict | Features | None = None
    target: object = None
    seed: int = 0
    background: object = None
    value: str | None = None
    y: Sequence | None = None
    feature_names: Sequence[str] | None = None
    class_names: Sequence[str] | None = None
    tokenizer: object = None
    outputs: str | None = None


@dataclass(frozen=True, eq=False)
class Case:
    """The game of a call and the inputs that it explains.

    positions: (m,), the input of each explanation, which may have several for its classes; targets, sample_keys: (m,),
    the class of each and what seeds its samples. buckets: features, and the explanations that have them. reference: in
    words; classes: names.
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

    def explain_all(self, settings: dict, budget: float | dict, evaluations: int | None = None) -> Explanation:
        """What a method says: settings, its name and parameters; evaluations: in place of the budget."""
        method = settings["method"]
        self._check_data(method)
        budget = budget if METHODS[method].sampled else None
        until = stopping_rule(budget)
        if not METHODS[method].sampled:
            evaluations = None
        options = Options(seed_of(self.seed, method, 0), on_error="fail")
        parts, inputs = [], self.inputs
        with bar(method, len(inputs)) as tell:
            for own, indices in self.buckets:
                few = dataclasses.replace(
                    options,
                    instances=self.positions[indices],
                    sample_keys=self.sample_keys[indices],
                    progress=tell(len(indices)),
                )
                asked = self.game.having(features=own)
                each = budget if evaluations is None or not own.d else evaluations / own.d
                parsed = parse(settings, [until or each])
                parts += attribute(asked, inputs[indices], self.targets[indices], parsed, few)
        record = parts[0] if len(parts) == 1 else _join_groups(parts, [indices for _, indices in self.buckets])
        limits = {} if budget is None else {"budget": budget} if evaluations is None else {"evaluations": evaluations}
        return Explanation(**vars(record), about=self._describe(settings | limits))

    def _check_data(self, method: str) -> None:
        """Refuses inputs that the method does not explain."""
        taken = METHODS[method].data
        if taken and self.given.kind not in taken:
            raise ShapelineError(
                f"explain: {method} explains data of kind {' and '.join(taken)}, not inputs of shape "
                f"{self.given.inputs.shape}"
                "; choose another method"
            )

    def _describe(self, settings: dict) -> Metadata:
        """What the explanations are of."""
        given, game, m = self.given, self.game, len(self.positions)
        features, names = [None] * m, [()] * m
        for own, indices in self.buckets:
            shared = list_names(own)
            for index in indices:
                features[index] = own
                names[index] = tuple(given.shown[self.positions[index]]) if given.has_words else shared
        rows = 1 if game.reference.own else len(game.reference.rows)
        inputs = Metadata(features=given.instances, names=given.instances, data=given.shown, instances=given.instances)
        inputs = inputs.at(self.positions)
        return Metadata(
            given.kind, settings, game.value, self.reference, rows, features, names, inputs.data, inputs.instances,
            self.classes, self.positions.tolist(),
        )  # fmt: skip


def build_case(model: object, inputs: object, wanted: CallOptions) -> Case:
    """The game and inputs of a call. Raises ShapelineError that names the argument."""
    settled = wanted.features if isinstance(wanted.features, Features) else None
    kind = wanted.features.get("kind") if isinstance(wanted.features, dict) else wanted.features
    tokens = (settled.kind if settled else kind) in TEXT_KINDS
    model, cutter, inputs = read_text_model(model, wanted.tokenizer, inputs)
    if cutter is None:
        adapters.check_inputs(model)
    given = givens.read(
        model, inputs, wanted.background, wanted.reference, tokens, settled, wanted.feature_names, cutter
    )
    of_regression = wanted.value == PREDICTION and not hasattr(model, "predict_proba")
    if wanted.outputs not in (None, *OUTPUTS):
        raise ShapelineError(f"explain: outputs is {wanted.outputs!r}; give 'probabilities' or 'logits'")
    classifier = given.classifier(adapters.wrap(model, "regression" if of_regression else wanted.outputs))
    chosen = _default_features(given) if wanted.features is None else wanted.features
    everyone = [(settled, np.arange(len(given.inputs)))] if settled else _buckets(chosen, given)
    filled, described = build_reference(wanted.reference, given, wanted.seed)
    classes = name_classes(model if cutter is None else model.module, wanted.class_names)
    settle_outputs(classifier, given, filled)
    try:
        predictions = query_outputs(classifier, given.inputs)
    except ShapelineError as error:
        column = _find_text_column(inputs)
        error.args = (f"{error}; for a model of texts give inputs[{column!r}]" if column is not None else str(error),)
        raise
    targets, positions = choose_targets(classifier, predictions, wanted.target, classes, wanted.y)
    given, filled, described = settle_mean(classifier, given, filled, described)
    classifier, settled_reference = settle_reference(classifier, given.inputs, filled)
    if settled_reference is not filled:
        filled, described = settled_reference, f"{described}, whole numbers rounded"
    check_rows(classifier, given, filled, predictions)
    import_backend(classifier)  # imported now, which is no instance's time
    build_from_probabilities = classifier.framework == "function" or classifier.outputs == "probabilities"
    usual = "probability" if build_from_probabilities else "log_probability"
    usual = PREDICTION if classifier.task == "regression" else usual
    game = Game(classifier, filled, None, wanted.value or usual, _calibrate_backend(classifier, given.inputs, filled))
    buckets = [(own, np.flatnonzero(np.isin(positions, members))) for own, members in everyone]
    sample_keys = _row_names(given)[positions]
    return Case(given, game, positions, targets, sample_keys, buckets, described, classes.names, wanted.seed)


def _find_text_column(inputs: object) -> object:
    """Return the name of the only column of a data frame, where it holds texts; else None."""
    if getattr(inputs, "ndim", 0) != 2 or not hasattr(inputs, "columns") or inputs.shape[1] != 1:
        return None
    return inputs.columns[0] if all(isinstance(cell, str) for cell in inputs.iloc[:, 0]) else None


def settle_outputs(classifier: Classifier, given: Inputs, reference: Reference) -> None:
    """Detect what a network gives by inputs and baselines mixed, so that one row tells as much as many."""
    if classifier.framework == "function" or reference.rows is None or reference.leaves_out:
        return
    try:
        classifier.settle_outputs(mask_rows(given.inputs, reference, PROBES))
    except ShapelineError:
        raise
    except Exception:  # noqa: BLE001 (`query_outputs` says why the model takes no such rows)
        return


def settle_mean(
    classifier: Classifier, given: Inputs, reference: Reference, described: str
) -> tuple[Inputs, Reference, str]:
    """Return inputs, reference and its description where a mean lies between the whole numbers of an array: as real
    numbers for a model that answers alike to these, else rounded, as of the columns of a data frame."""
    source = given.inputs if given.background is None else given.background
    rows = reference.rows
    if classifier.framework != "function" or given.table is not None or source.dtype.kind not in "biu":
        return given, reference, described
    if rows is None or rows.dtype.kind != "f" or reference.given is not None or given.reference is not None:
        return given, reference, described
    rounded, real = as_type(rows, source.dtype), given.inputs.astype(np.float64)
    if (rounded != rows).any():
        is_exact = source.dtype.kind != "b" and (real == given.inputs).all()
        if is_exact and answers_alike((classifier, given.inputs), (classifier, real)):
            return dataclasses.replace(given, inputs=real), reference, described
        described += ", whole numbers rounded"
    return given, Reference(rounded), described


def check_rows(classifier: Classifier, given: Inputs, reference: Reference, predictions: np.ndarray) -> None:
    """Raise ShapelineError where a model fails on rows of the baseline, or depends on how rows are composed."""
    if given.kind == "text":
        return
    if reference.rows is not None and not reference.leaves_out:
        query_outputs(classifier, reference.rows, "reference", given.background)
    if given.untouched is not None and isinstance(classifier.module, givens.DecodingModel):
        regression = classifier.task == "regression"
        ask = function_predictions if regression else function_probabilities
        own = ask(classifier.module.ask, given.untouched.copy(), classifier.architecture)
        expected = predictions if regression else np.exp(predictions)
        check_full(classifier.architecture, expected, own, np.arange(len(own)), is_apart(expected, own))


def _default_features(given: Inputs) -> str | dict:
    """Columns, words, pixels of small images, and patches of larger ones."""
    if given.kind != "image":
        return {"text": "word"}.get(given.kind, "column")
    _, height, width = given.inputs.shape[1:]
    size = -(-max(height, width) // PATCHES)
    return "pixel" if height * width <= MAX_PIXELS else {"kind": "patch", "size": [min(size, height), min(size, width)]}


def _buckets(kind: str | dict, given: Inputs) -> list[tuple[Features, np.ndarray]]:
    settings = {"kind": kind} if isinstance(kind, str) else kind
    if not isinstance(settings, dict):
        raise ShapelineError(f"explain: features is a {type(kind).__name__}; give a kind, or groups as name -> columns")
    settings = settings if "kind" in settings else {"kind": "group", "groups": settings}
    return feature_kinds.buckets(settings, given.card, given.inputs, given.owners)


def list_names(features: Features) -> tuple[str, ...]:
    """What features are called that have no names."""
    if features.names:
        return features.names
    if features.kind in feature_kinds.IMAGE_KINDS:
        return tuple(f"row {row}, column {column}" for row, column in np.ndindex(*features.shape))
    return tuple(f"{features.kind.replace('_', ' ')} {index}" for index in range(features.d))


def _row_names(given: Inputs) -> np.ndarray:
    """What seeds the samples of each input, (n,) int64: what it is, and how many equal ones stand before it."""
    before: Counter[str] = Counter()
    names = []
    for digest in given.digests():
        names.append(seed_of(digest, before[digest]))
        before[digest] += 1
    return np.array(names, dtype=np.int64)


def _join_groups(parts: Sequence[Record], positions: Sequence[np.ndarray]) -> Record:
    """Explanations of groups of instances as one, in the order of the inputs."""
    order = np.argsort(np.concatenate(positions))
    columns = {}
    for field in dataclasses.fields(Record):
        each = [getattr(part, field.name) for part in parts]
        if field.name in ("standard_error", "interaction_values", "interactions_standard_error") and any(
            values is None for values in each
        ):
            columns[field.name] = None
            continue
        if field.name in ("scores", "standard_error", "interaction_values", "interactions_standard_error"):
            widest = max(values.shape[1] for values in each)
            each = [np.pad(s, ((0, 0), (0, widest - s.shape[1])), constant_values=np.nan) for s in each]
        if isinstance(each[0], list):
            joined = [item for items in each for item in items]
            columns[field.name] = [joined[index] for index in order]
        else:
            columns[field.name] = np.concatenate(each)[order]
    return Record(**columns)


def _calibrate_backend(model: Classifier, inputs: np.ndarray, reference: Reference) -> ExecutionBackend:
    """Return the calibrated backend, once per model object and input shape; functions get large batches."""
    rows = LARGEST_BATCH["function"] if model.framework == "function" else calibration.limit_rows(model, reference)
    if rows:
        return ExecutionBackend("plain", rows)
    kept = _BACKENDS.setdefault(model.module, {})
    if inputs.shape[1:] not in kept:
        kept[inputs.shape[1:]] = calibration.calibrate(model, inputs[:64], reference)
    return kept[inputs.shape[1:]]


def build_reference(reference: object, given: Inputs, seed: int) -> tuple[Reference, str]:
    """Return the baseline of masked features, and its description."""
    tokens = given.kind == "text"
    if given.reference is not None:
        return Reference(given.reference), f"the given reference, {_format_counts(len(given.reference), 'row')}"
    if given.kind == "text" and given.take is not None:
        filled = np.full((1, *given.inputs.shape[1:]), ABSENT, np.int32)
        return Reference(filled), f"the word {reference!r}" if reference else "masked words are deleted"
    whole, rows = "the inputs", given.inputs
    if given.owners is not None:
        settings, described = removal(reference, given.card)
        return references.build(settings, SimpleNamespace(inputs=rows, card=given.card), seed), described
    if given.background is not None:
        whole, rows = "the background", given.background
    described = reference
    if reference is None and given.background is not None:
        count = min(len(rows), MAX_ROWS)
        reference = {"kind": "background", "rows": count}
        described = _format_counts(count, "background row")
        if count < len(rows):
            described = f"{count} of {len(rows):,} background rows (sampled with seed {seed})"
    elif reference is None and not tokens and len(rows) == 1 and given.kind == "image" and not given.is_series:
        reference, described = "blur", "the blurred image"
    elif reference is None:
        reference = "pad" if tokens else "mean"
        described = "padding" if tokens else f"the mean of {whole}"
    kind, chosen = references.parse(reference)
    if kind.startswith("mean") and given.background is None and len(rows) == 1:
        raise ShapelineError(
            "explain: the mean of a single input is the input itself; give background (rows of your data) or a "
            "reference (one baseline row)"
        )
    data = SimpleNamespace(inputs=rows, split=np.zeros(len(rows), np.uint8), card=given.card)
    if isinstance(described, str | dict) and described is not None and described == reference:
        described = f"{kind} of {whole}" if kind != "pad" else "padding"
        described += f", {_format_counts(chosen['rows'], 'row')}" if "rows" in chosen else ""
    reference = "mean_image" if kind == "mean" and given.has_no_channels else reference  # of each cell of a series
    built = references.build(reference, data, seed)
    return built, described


def _format_counts(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


class ModelGame:
    """The game of a model on one input: its players are features, its value is the model's.

    Parameters
    ----------
    model, x
        A model and one input, as of `shapeline.explain`.
    **wanted
        What else `shapeline.explain` takes: reference, features, target, seed, background, value, y, feature_names,
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
    """Return names that are all different: a word that stands twice is numbered."""
    seen: Counter[str] = Counter()
    numbered = []
    for name in names:
        seen[name] += 1
        numbered.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return numbered
