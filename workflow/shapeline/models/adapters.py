"""A user's model as a classifier: network, predict_proba object or function; its columns and axes of images."""

import inspect
import logging
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any

import numpy as np

from shapeline.datasets.table_file import class_name
from shapeline.errors import ShapelineError, first_line, format_count, name_type, nearest
from shapeline.models.classifier import FRAMEWORKS, OUTPUTS, TASK, Classifier, backend, detach

log = logging.getLogger(__name__)

LOGISTIC, SOFTMAX = "binary:logistic", ("multi:softprob", "multi:softmax")


def find_classes(model: Any) -> Sequence | None:
    """Return the classes that a model was fitted on; None of a regression and of what does not tell."""
    classes = getattr(model, "classes_", None)
    return None if classes is None or len(classes) == 0 else classes  # CatBoost's regressions have an empty list


def find_columns(model: Any) -> Sequence[str] | None:
    """Return the columns of the data frame that a model, or the owner of a method, was fitted on; None of arrays."""
    model = unwrap_booster(getattr(model, "__self__", model))
    fitted = getattr(model, "model", None)  # of the results of statsmodels, which take columns by position
    if hasattr(exog := getattr(getattr(fitted, "data", None), "orig_exog", None), "columns"):
        return None if hasattr(fitted, "formula") else list(exog.columns)
    names = getattr(model, "feature_names_in_", None)
    if names is None and hasattr(model, "get_cat_feature_indices"):  # CatBoost's own name for them
        names = model.feature_names_
        return None if names is None or list(names) == [str(place) for place in range(len(names))] else names
    return names


def find_fitted_columns(model: Any, labels: Sequence) -> list | None:
    """Return the columns that a model was fitted on by a data frame's labels, or None."""
    fitted = find_columns(model)
    if fitted is None:
        return None
    known = {re.sub(r"\s", "_", str(label)): label for label in labels} | {str(label): label for label in labels}
    return [known.get(str(name), name) for name in fitted]


def find_width(model: Any) -> int | None:
    """Return how many columns a model takes; None if it does not tell."""
    named = getattr(model, "feature_names_", None)  # a CatBoost model that was read from a file counts none
    return getattr(model, "n_features_in_", None) or (None if named is None else len(named))


def find_probabilities(model: Any) -> Callable[[Any], np.ndarray]:
    """Return an object's method of probabilities (n, classes); XGBoost's of its margins, which have more digits."""
    last = model
    while hasattr(last, "steps") and hasattr(last, "__getitem__"):
        last = last[-1]
    places = [getattr(getattr(type(each), "predict_proba", None), "__module__", "") for each in (model, last)]
    is_own = all(place.startswith(("xgboost.", "sklearn.", "imblearn.")) for place in places)  # of no user's subclass
    if is_own and hasattr(last, "get_booster") and getattr(last, "objective", None) in (LOGISTIC, *SOFTMAX):
        return MethodType(_convert_margins, model)
    return model.predict_proba


@dataclass(frozen=True, eq=False)
class LightGBM:
    """LightGBM's own Booster as a regressor; feature_names_in_: None where it was fitted on an array."""

    booster_: Any
    feature_names_in_: list[str] | None

    @property
    def n_features_in_(self) -> int:
        return self.booster_.num_feature()

    def predict(self, rows: Any) -> np.ndarray:
        """Return predictions (n,)."""
        return self.booster_.predict(rows)


@dataclass(frozen=True, eq=False)
class LightGBMClassifier(LightGBM):
    """The same as a classifier, whose classes are numbers."""

    classes_: np.ndarray

    def predict_proba(self, rows: Any) -> np.ndarray:
        """Return probabilities (n, classes)."""
        predictions = self.booster_.predict(rows)
        return np.column_stack([1 - predictions, predictions]) if predictions.ndim == 1 else predictions


def unwrap_booster(model: Any) -> Any:
    """Return LightGBM's own Booster as an estimator, which its objective decides; other models unchanged."""
    if not hasattr(model, "num_model_per_iteration"):
        return model
    objective, names = model.dump_model(num_iteration=1).get("objective", ""), model.feature_name()
    fitted = None if names == [f"Column_{place}" for place in range(len(names))] else names
    if not objective.startswith(("binary", "multiclass", "cross_entropy")):
        return LightGBM(model, fitted)
    return LightGBMClassifier(model, fitted, np.arange(max(2, model.num_model_per_iteration())))


def unwrap_mlflow(model: Any) -> Any:
    """Return the model in a PyFuncModel of MLflow, whose predict gives a classifier's labels; others unchanged."""
    if not hasattr(model, "get_raw_model"):
        return model
    try:
        inner = model.get_raw_model()
    except NotImplementedError:  # of a custom Python model
        return model
    is_known = find_framework(inner) or find_classes(unwrap_booster(inner)) is not None or is_regressor(inner)
    return inner if is_known else model


def select_outputs(model: Any) -> Any:
    """Return a model whose outputs are the numbers that are explained: a booster's, or the logits of transformers."""
    return backend("torch").select_logits(model) if find_framework(model) == "torch" else unwrap_booster(model)


def find_owner(model: Any) -> Any:
    """Return the object whose bound method a function is, where it is an estimator; else the model itself."""
    owner = getattr(model, "__self__", None)
    return owner if hasattr(owner, "get_params") else model


def list_transformers(pipeline: Any) -> list:
    """Return the steps before the last one that rows go through when it predicts: a sampler is of training alone."""
    steps = [step for _, step in pipeline.steps[:-1] if step not in (None, "passthrough")]
    return [step for step in steps if hasattr(step, "transform")]


def _find_refusal(estimator: Any, kind: str) -> tuple[str, str] | None:
    """Return why an estimator, or its method of this name, cannot be explained, and the alternative; None if it can."""
    name, classes = type(estimator).__name__, find_classes(estimator)
    module = type(estimator).__module__.partition(".")[0]
    if getattr(estimator, "refit", True) is False and not hasattr(estimator, "predict"):  # a search without a model
        return "has refit=False and so no fitted model", "it with refit=True"
    if module == "xgboost" and name == "Booster":
        call = "lambda rows: model.predict(xgboost.DMatrix(rows)), of a regression with value='prediction'"
        return "takes a DMatrix", f"the XGBClassifier or XGBRegressor, or {call}"
    if name == "InferenceSession":
        is_text = estimator.get_inputs()[0].type == "tensor(string)"
        rows = "numpy.array(rows, object)" + "[:, None]" * (len(estimator.get_inputs()[0].shape) == 2)
        rows = rows if is_text else "rows.astype('float32')"
        call = f"model.run(None, {{model.get_inputs()[0].name: {rows}}})[-1]"
        if estimator.get_outputs()[-1].type.startswith("seq("):  # a dictionary per row
            call = f"pandas.DataFrame({call}).to_numpy()"
        return "takes its inputs by name", f"lambda rows: {call}, of numbers with value='prediction'"
    if module == "catboost" and name == "CatBoost" and classes is not None and not kind:
        call = "lambda rows: model.predict(rows, prediction_type='Probability')"
        return "gives margins and no probabilities", f"the CatBoostClassifier, or {call}"
    if classes is not None and isinstance(classes[0], np.ndarray | list) and kind in ("", "predict_proba"):
        call = "lambda rows: model.predict_proba(rows)[0] (of a ClassifierChain [:, 0])"
        return f"gives {len(classes)} labels a row", f"one of them, as {call}, whose class_names are model.classes_[0]"
    if classes is not None and len(classes) == 1 and kind in ("", "predict_proba"):
        problem = f"has one class, '{classes[0]}', so that there is nothing to explain"
        return problem, "a model that was fitted on rows of two classes or more"
    if kind not in ("", "predict") or (hasattr(estimator, "predict_proba") and not kind) or is_regressor(estimator):
        return None
    if classes is not None and (kind == "predict" or hasattr(estimator, "predict")):
        call = "lambda rows: model.decision_function(rows)" + ("[:, 0]" if len(classes) > 2 else "")
        remedy = f"the model in sklearn's CalibratedClassifierCV, or {call} with value='prediction'"
        if hasattr(estimator, "predict_proba"):
            remedy = "model.predict_proba, or the model itself"
        elif name == "VotingClassifier":
            remedy = "the model with voting='soft'"
        elif not hasattr(estimator, "decision_function"):
            remedy = "lambda rows: (model.predict(rows) == model.classes_[0]).astype(float), 1 where that is the label"
        return "returns labels, not probabilities", remedy
    if hasattr(estimator, "predict_proba"):  # of a mixture too, whose predict gives the numbers of its parts
        return ("predicts groups", "model.predict_proba") if hasattr(estimator, "fit_predict") else None
    call = "lambda rows: model.transform(rows)[:, 0]"
    if not hasattr(estimator, "predict") and hasattr(estimator, "transform"):
        return "gives no predictions", f"{call} with value='prediction'"
    marks = [method for method in ("decision_function", "score_samples", "fit_predict") if hasattr(estimator, method)]
    if not marks:
        named = _list_predictions(estimator)
        if not named or callable(estimator) or hasattr(estimator, "predict"):
            return None
        return "has no method predict", f"another of its methods ({', '.join(named[:9])}) with value='prediction'"
    remedy = f"model.{marks[0]}"
    if marks == ["fit_predict"]:
        remedy = call if hasattr(estimator, "transform") else "a function that gives a number per row,"
    is_named = hasattr(estimator, "predict") or "fit_predict" in marks
    problem = "predicts groups, not probabilities" if is_named else "has no method predict"  # of densities
    return problem, f"{remedy} with value='prediction'"


def _list_predictions(estimator: Any) -> list[str]:
    """Return the methods that give predictions by other names: of survival models, and effects of a treatment."""
    try:
        names = dir(estimator)
    except AttributeError:  # of a model that lists the methods of another one, which only its fit makes
        names = dir(type(estimator))
    return [name for name in names if (name == "effect" or name.startswith("predict_")) and hasattr(estimator, name)]


def _convert_margins(model: Any, rows: Any) -> np.ndarray:
    """Return probabilities (n, classes) float64 of an XGBoost classifier, or of a pipeline that ends in one."""
    from scipy.special import expit, softmax

    last = model
    while hasattr(last, "steps"):
        for step in list_transformers(last):
            rows = step.transform(rows)
        last = last[-1]
    margins = last.predict(rows, output_margin=True).astype(np.float64)
    if margins.ndim == 1:
        return np.column_stack([expit(-margins), expit(margins)])
    return expit(margins) if last.objective == LOGISTIC else softmax(margins, axis=1)  # of several labels, or classes


KINDS = ("function", "logits", "multilabel", "predict_proba", "probabilities", "regression")


def wrap(model: Any, kind: str | None = None, n_classes: int | None = None) -> Classifier:
    """Return a custom model as a Classifier.

    `kind`: "logits", "probabilities", "multilabel" (a logit a label), "predict_proba", "function" (array ->
    probabilities) or "regression"; None finds it out, of a network when it is first evaluated. Raises
    ShapelineError when the model is none of these.
    """
    if isinstance(model, Classifier):
        model.outputs = model.outputs or (kind if kind in OUTPUTS else None)
        return model
    if isinstance(model, type):
        raise ShapelineError(f"models: {model.__name__} is a class; give an object of it that was fitted")
    framework, model = find_framework(model), select_outputs(model)
    if framework == "torch":
        backend(framework).check_lazy(model)
    if framework is None:
        estimator = find_owner(model)
        if refusal := _find_refusal(estimator, getattr(model, "__name__", "") if estimator is not model else ""):
            raise ShapelineError(f"models: {name_type(estimator)} {refusal[0]}; give {refusal[1]}")
    detected = kind is None
    if kind is None:
        if framework:
            kind = "logits"
        elif _is_regression(model):
            kind = "regression"
        else:
            kind = "predict_proba" if hasattr(model, "predict_proba") else "function"
    if kind not in KINDS:
        raise ShapelineError(f"models: unknown kind of model '{kind}'.{nearest(kind, KINDS)}")
    if kind == "regression":
        return _wrap_regression(model, framework)
    function: Callable[..., Any] | None = model
    if kind == "predict_proba":
        function = find_probabilities(model) if hasattr(model, kind) else None
    taken = {"logits": FRAMEWORKS, "multilabel": ("torch",), "probabilities": FRAMEWORKS}.get(kind, (None,))
    if framework not in taken or not callable(function):
        what = f"cannot be used as '{kind}'" if callable(model) or kind != "function" else "is not a model"
        raise ShapelineError(
            f"models: {name_type(model)} {what}; give a torch module or a Keras model (of logits or "
            "probabilities), an object with predict_proba, or a function that returns probabilities"
        )
    name = getattr(model, "__name__", type(model).__name__)
    if framework:
        outputs = None if detected else "probabilities" if kind == "probabilities" else "logits"
        task = "multilabel" if kind == "multilabel" else TASK
        return Classifier(framework, name, model, n_classes, task=task, outputs=outputs)
    if n_classes is None and (classes := find_classes(model)) is not None:
        n_classes = len(classes)
    return Classifier("function", name, function, n_classes)


def _is_regression(model: Any) -> bool:
    """Return whether a model without classes predicts, or is that method of an estimator."""
    owner = find_owner(model)
    if owner is not model:
        return getattr(model, "__name__", "") == "predict" and find_classes(owner) is None
    if is_regressor(model):  # skorch's have a predict_proba too
        return find_classes(model) is None
    return hasattr(model, "predict") and not hasattr(model, "predict_proba") and find_classes(model) is None


def is_regressor(model: Any) -> bool:
    """Return whether an estimator, or that of a bound method, says itself that it predicts numbers."""
    owner, base = find_owner(model), sys.modules.get("sklearn.base")
    try:
        return base is not None and hasattr(owner, "get_params") and base.is_regressor(owner)
    except (AttributeError, TypeError):  # of an estimator of an older interface
        return False


def check_inputs(model: Any) -> None:
    """Raise ShapelineError for a network of several inputs, with how to write it as a function of one array."""
    framework, width, named = find_framework(model), 3, None
    if framework == "torch" and inspect.isfunction(getattr(type(model), "forward", None)):
        arguments = [*inspect.signature(type(model).forward).parameters.values()][1:]
        count = sum(item.default is item.empty and item.kind is item.POSITIONAL_OR_KEYWORD for item in arguments)
        call = "network(*map(torch.tensor, [{}])).softmax(1).detach().numpy()"
    elif framework == "tensorflow":
        shapes = [item.shape[1:] for item in getattr(model, "inputs", None) or ()]
        count, call = len(shapes), "network.predict([{}], verbose=0)"
        width = shapes[0][0] if count and len(shapes[0]) == 1 else width
        named = getattr(model, "input", None) if count else None
    else:
        return
    if count > 1 or isinstance(named, dict):
        parts = [f"rows[:, :{width}]", f"rows[:, {width}:]"][:count]
        if isinstance(named, dict):
            call = call.replace("[{}]", "{{{}}}")
            parts = [f"{name!r}: {part}" for name, part in zip(named, parts if count > 1 else ["rows"], strict=False)]
        several = "put their columns side by side in one array, and give a function that splits it"
        raise ShapelineError(
            f"models: {name_type(model)} takes {format_count(count, 'input')}{' by name' * isinstance(named, dict)}; "
            f"{several if count > 1 else 'give a function'} (in a configuration with framework: function), as in "
            f"lambda rows: {call.format(', '.join([*parts, *['...'] * (count > 2)]))}"
        )


def _wrap_regression(model: Any, framework: str | None) -> Classifier:
    """Wrap a custom regression model as a Classifier; refuse a classifier's `predict`, which returns labels."""
    function = model if framework else getattr(model, "predict", model)
    name = getattr(model, "__name__", type(model).__name__)
    if not callable(function) or find_classes(model) is not None:
        raise ShapelineError(
            f"models: {name_type(model)} cannot be used as 'regression'; give a network, an object whose predict "
            "gives numbers, or a function that does"
        )
    return Classifier(framework or "function", name, function, 1, task="regression")


def find_framework(model: Any) -> str | None:
    """Return the framework whose model this is, or None; a framework that was never imported made no model."""
    for framework, package, kind in (("torch", "torch.nn", "Module"), ("tensorflow", "keras", "Model")):
        module = sys.modules.get(package)
        if module is not None and isinstance(model, getattr(module, kind)):
            return framework
    return None


def check_n_outputs(source: str, count: int, known: dict[str, Any], task: str) -> None:
    """Raise ShapelineError unless the network of a file gives a score per class of the dataset, or one number."""
    if task == "regression":
        if count != 1:
            raise ShapelineError(f"models: {source} gives {count} numbers a row; a regression model gives one")
    elif (classes := max(count, 2)) != len(known["classes"]):
        raise ShapelineError(
            f"models: {source} has {classes} classes and the dataset {len(known['classes'])}; give a model of these"
        )


def refuse_categories(source: str, names: Sequence[str]) -> None:
    """Raise ShapelineError if there are columns, of these names, that hold categories where a model takes numbers."""
    if names:
        raise ShapelineError(
            f"models: {source} takes numbers and column '{names[0]}' holds categories; encode it in the file, or save "
            "a pipeline with skops that was fitted on a data frame"
        )


def order_classes(source: str, labels: Any, known: dict[str, Any], may_number: bool = False) -> list[int]:
    """Return the model's number of each of the dataset's `known` classes: by name, or where its file may number them,
    in the order of the dataset's source."""
    names, classes = [class_name(label) for label in labels], known["classes"]
    if sorted(names) == sorted(classes):
        return [names.index(name) for name in classes]
    if may_number and names == [str(number) for number in range(len(classes))]:
        numbered = known.get("source_classes", classes)
        if list(numbered) != classes:
            raise ShapelineError(
                f"models: {source} numbers its classes, and the dataset's 'classes' has another order than its file; "
                f"write classes: {list(numbered)}, or leave it out"
            )
        log.info("%s: its classes are numbers, taken in the order of %s", source, ", ".join(classes))
        return list(range(len(classes)))
    raise ShapelineError(
        f"models: {source} has the classes {', '.join(names)} and the dataset has {', '.join(classes)}; they must be "
        "the same"
    )


COUNTS = (5, 7)  # rows that a model is tried on: it must answer for each, however many there are
# The rows that a model takes, of rows (n, channels, height, width).
ORDERS = {
    "channels_first": lambda rows: rows,
    "without_channels": lambda rows: rows[:, 0],
    "channels_last": lambda rows: np.moveaxis(rows, 1, -1),
}
CHANNELS = (1, 2, 3, 4)


def find_order(source: str, shape: tuple[int, ...], taken: Sequence[int | str | None]) -> str:
    """Return the order of axes in which a file's model takes rows of a shape; a single channel may be left out.

    taken: the shape that it takes, with numbers where a size is fixed. Raises ShapelineError if no order fits.
    """
    sides = {"channels_first": shape}
    if len(shape) == 3:
        sides |= {"channels_last": (*shape[1:], shape[0])} | ({"without_channels": shape[1:]} if shape[0] == 1 else {})
    for order, given in sides.items():
        pairs = zip(taken, given, strict=False)
        if len(taken) == len(given) and all(a == b for a, b in pairs if isinstance(a, int) and a > 0):
            return order
    raise ShapelineError(
        f"models: {source} takes inputs of shape {tuple(taken)}, the dataset's have {shape}; set its size or columns"
    )


def failure(classifier: Classifier, rows: np.ndarray, order: str) -> str | None:
    """Return why a model gives no answer for each of some rows in an order; None if it does."""
    for count in COUNTS:
        batch = np.ascontiguousarray(ORDERS[order](np.resize(rows, (count, *rows.shape[1:]))))
        try:
            if classifier.framework == "function":
                outputs = np.asarray(detach(classifier.module(batch)))
            else:
                outputs = backend(classifier.framework).outputs(classifier.module, batch)
        except Exception as error:  # noqa: BLE001 (whatever a model raises, it does not take such rows)
            return first_line(error)
        if outputs is None or outputs.ndim == 0 or len(outputs) != count:
            return f"it does not give an answer for each of {count} rows"
    return None


def takes_image(classifier: Classifier, image: np.ndarray) -> bool:
    """Return whether a model takes rows (height, width), of which this is one."""
    return any(failure(classifier, image[None, None], order) is None for order in ORDERS)


def rearrange(classifier: Classifier, order: str | None) -> Classifier:
    """Return a network as one of rows (n, channels, height, width)."""
    if order in (None, "channels_first"):
        return classifier
    return replace(classifier, module=backend(classifier.framework).rearrange(classifier.module, order))


def fit_to_shape(classifier: Classifier, shape: tuple[int, ...]) -> Classifier:
    """Return a network defined by the user that takes rows of a dataset's shape, images in its own order."""
    if classifier.framework not in FRAMEWORKS or len(shape) != 3:
        return classifier
    rows = np.random.default_rng(0).random((1, *shape), dtype=np.float32)
    orders = [order for order in ORDERS if order != "without_channels" or shape[0] == 1]
    fitting = (order for order in orders if failure(classifier, rows, order) is None)
    return rearrange(classifier, next(fitting, None))


@dataclass(frozen=True)
class Layout:
    """A reading of an array. axis: of channels, None without; order: of ORDERS, of the rows the model takes."""

    name: str
    axis: int | None
    order: str

    def inward(self, rows: np.ndarray) -> np.ndarray:
        """Return one or several inputs of this layout in the engine's layout."""
        rows = rows[None] if rows.ndim == (2 if self.axis is None else 3) else rows
        return rows[:, None] if self.axis is None else np.moveaxis(rows, self.axis, 1)

    def outward(self, rows: np.ndarray) -> np.ndarray:
        """Return rows of the engine as the model takes them."""
        return ORDERS[self.order](rows)


FIRST = Layout("one image, as inputs[None]", 1, "channels_first")
LAST = Layout("one image, as inputs[None]", -1, "channels_last")
MOVED = Layout("one image, as inputs[None]", 1, "channels_last")  # of a network that wants them last
PLAIN = Layout("inputs without channels", None, "without_channels")
GREY = Layout("grey images, as inputs[:, None]", None, "channels_first")
GREY_LAST = Layout("grey images, as inputs[..., None]", None, "channels_last")


def find_layout(model: object, inputs: np.ndarray, beside: Sequence[np.ndarray | None]) -> Layout | None:
    """Return how an array of three or four axes is read, None of others.

    Channels of images are known by shape, else by what the model takes; three axes are n inputs or one image.
    beside: background and reference. Raises ShapelineError if several readings fit, or none.
    """
    keras = find_framework(model) == "tensorflow"
    if inputs.ndim == 4:
        return _find_image_layout(model, inputs, keras)
    if inputs.ndim != 3:
        return None
    of_several, of_single = ([PLAIN, GREY_LAST, GREY], [LAST, FIRST, MOVED]) if keras else ([PLAIN, GREY], [FIRST])
    shapes = [rows.shape for rows in beside if rows is not None and rows.shape != inputs.shape]
    if any(shape[1:] == inputs.shape for shape in shapes):
        of_several = []
    elif any(inputs.shape[1:] in (shape, shape[1:]) for shape in shapes):
        of_single = []
    classifier = wrap(model)
    reasons = {}
    for layout in (*of_several, *of_single):
        reasons[layout] = failure(classifier, layout.inward(inputs), layout.order)
        if layout == PLAIN and reasons[layout] is None:
            return PLAIN
    fitting = [layout for layout, reason in reasons.items() if reason is None]
    if not fitting and failure(classifier, LAST.inward(inputs), FIRST.order) is None:
        raise ShapelineError(
            f"explain: inputs have shape {inputs.shape}, one image with channels last; give np.moveaxis(inputs, -1, "
            "0)[None], as the model takes it"
        )
    if not fitting:
        raise ShapelineError(
            f"explain: inputs have shape {inputs.shape}, and the model takes them neither so nor with an axis of "
            f"channels, as inputs[:, None] or inputs[None] ({next(iter(reasons.values()))}); give the shape of "
            "its training, or a function that reshapes its inputs"
        )
    if len(inputs) > 1 and fitting[0] not in of_single and set(fitting) & set(of_single):
        singly = next(layout for layout in fitting if layout in of_single)
        raise ShapelineError(
            f"explain: inputs of shape {inputs.shape} may be {fitting[0].name}, or {singly.name}; give one of these"
        )
    return fitting[0]


def _find_image_layout(model: object, inputs: np.ndarray, keras: bool) -> Layout:
    """Return as `find_layout` does, for four axes."""
    classifier = wrap(model)
    likely = [inputs.shape[axis] in (1, 3) for axis in (1, -1)]  # of two small sides
    first, last = likely if any(likely) else [inputs.shape[axis] in CHANNELS for axis in (1, -1)]
    if last and not first:
        if classifier.framework == "torch" and failure(classifier, LAST.inward(inputs), LAST.order):
            raise ShapelineError(
                f"explain: inputs have shape {inputs.shape}, channels last; give np.moveaxis(inputs, -1, 1), as the "
                "model takes them"
            )
        return LAST
    tried = [FIRST, MOVED] if first and not last else [LAST, FIRST, MOVED] if keras else [FIRST, LAST]
    if not keras and not last:
        return FIRST
    fitting = (layout for layout in tried if failure(classifier, layout.inward(inputs), layout.order) is None)
    return next(fitting, tried[0])
