"""Run one method on instances: build its design, evaluate it, read it out; a failure becomes a row with its reason."""

import contextlib
import importlib.metadata
import json
import shutil
import subprocess
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from types import SimpleNamespace

import numpy as np
import pandas as pd
from pydantic import ValidationError

import shapeline
from shapeline import engine, methods, models, references
from shapeline import features as feature_kinds
from shapeline.designs.build import build
from shapeline.designs.design import Design, unique_rows
from shapeline.errors import MethodFailure, ShapelineError, nearest
from shapeline.features import Features
from shapeline.models import Classifier
from shapeline.references import Reference
from shapeline.seeds import seed_of

NO_FEATURES = MethodFailure("no features", "the instance is nothing but padding, so there is nothing to score")
PLANNED = ("budget", "snapshots", "rival_of")  # keys of a method entry that say how much to spend
CHUNK = 32  # instances between two progress lines
CHUNK_VALUES = 1_000_000  # values of a chunk: 8 MB, and seconds between two progress lines


@dataclass
class Explanation:
    """Scores of n instances by one method (one repeat of it).

    scores (n, *feature shape), NaN where the method failed; evaluations (n,) coalitions whose value was asked for;
    seconds (n,) wall time, the design's construction shared out; target (n,) explained class; value_full and
    value_empty (n,) values of the whole input and of the reference; status and error (n,) "ok" or why not.
    """

    scores: np.ndarray
    evaluations: np.ndarray
    seconds: np.ndarray
    target: np.ndarray
    value_full: np.ndarray
    value_empty: np.ndarray
    status: list[str] = field(default_factory=list)
    error: list[str | None] = field(default_factory=list)
    extra: str | None = None  # JSON; with snapshots, {"evaluated": coalitions of all budgets together}


def attribute(
    model: Classifier,
    inputs: np.ndarray,
    targets: np.ndarray,
    settings: dict,
    features: Features,
    reference: Reference,
    value: str = "log_probability",
    budgets: Sequence[float | None] = (None,),
    seed: int = 0,
    instances: Sequence[int] | None = None,
    form: engine.Form | None = None,
    on_error: str = "record",
    progress: Callable[[int, int], None] | None = None,
) -> list[Explanation]:
    """Explain inputs (n, *input shape) for targets (n,) by the method of `settings` ({"method": name, ...parameters}).

    budgets: multiples of d, for sampled methods; an Explanation for each. A coalition that several budgets use is
    evaluated once, and `seconds` are shared out by evaluations. seed: of this label and repeat; one design serves all
    instances. instances: ids that seed what is drawn an instance (positions by default). Raises ShapelineError for a
    model that returns NaN, and for any failure when on_error is "fail".
    """
    began = time.perf_counter()
    method = methods.METHODS[settings["method"]]
    parameters = {key: setting for key, setting in settings.items() if key not in PLANNED}
    if features.d == 0:
        return _nothing_to_score(inputs, targets, features, len(budgets), on_error)
    graph = None
    if "graph" in method.parameters.model_fields and parameters.get("graph", "features") == "features":
        graph = feature_kinds.graph(features)
    designs = [build(parameters, features.shape, budget, seed, graph) for budget in budgets] if method.is_design else []
    masks, columns = _union(designs, features.d)
    evaluated = len(masks)
    masks, full, empty = _with_ends(masks)
    ids = np.arange(len(inputs)) if instances is None else np.asarray(instances)
    results = [_empty(len(inputs), features, targets) for _ in budgets]
    spent = np.full(len(inputs), (time.perf_counter() - began) / max(len(inputs), 1))
    step = max(1, min(CHUNK, CHUNK_VALUES // len(masks)))

    def explain_part(part: slice) -> None:
        began = time.perf_counter()
        values = engine.values(model, inputs[part], reference, masks, features, value, targets[part], form)
        found = [(d.attribute(values[:, own]), d.evaluations) for d, own in zip(designs, columns, strict=True)]
        if not designs:
            available = {
                **{**parameters, "d": features.d, "features": features, "reference": reference, "seed": seed},
                **{"model": model, "inputs": inputs[part], "targets": targets[part], "instances": ids[part]},
            }
            found = [methods.call(methods.function_of(method.function), available)]
        spent[part] += (time.perf_counter() - began) / len(inputs[part])
        for result, (scores, evaluations) in zip(results, found, strict=True):
            result.scores[part] = np.reshape(scores, (-1, *features.shape))
            result.evaluations[part] = evaluations
            result.value_full[part], result.value_empty[part] = values[:, full], values[:, empty]
            share = evaluations / len(masks) if len(designs) > 1 else 1.0
            result.seconds[part] = spent[part] * share

    for start in range(0, len(inputs), step):
        part = slice(start, min(start + step, len(inputs)))
        try:
            explain_part(part)
        except MethodFailure:
            if on_error == "fail":
                raise
            for i in range(part.start, part.stop):  # find out which instances fail
                try:
                    explain_part(slice(i, i + 1))
                except MethodFailure as failure:
                    for result in results:
                        result.status[i], result.error[i] = failure.status, str(failure)
        except ShapelineError as error:
            raise engine.by_id(error, ids[part]) from None
        if progress:
            progress(part.stop, part.stop * len(masks))
    if len(designs) > 1:
        results[-1].extra = json.dumps({"evaluated": evaluated})
    return results


def shard(selected: pd.DataFrame, index: int, count: int) -> pd.DataFrame:
    """The index-th of `count` consecutive parts, as equal as can be."""
    return selected.iloc[np.array_split(np.arange(len(selected)), count)[index]].reset_index(drop=True)


def explain_rows(
    stand, share: pd.DataFrame, settings: dict, label: str, form: engine.Form, on_error: str = "record", progress=None
) -> pd.DataFrame:
    """Score rows (columns of scores.SCHEMA) of one label on the instances of a shard, every repeat.

    stand: instances.Bench; settings: of the attribute job. Sampled designs are seeded by (seed, label, repeat).
    """
    repeats = settings.get("repeats", 1)
    budgets = [*settings["method"].get("snapshots", ()), settings.get("budget")]
    frames, done, made = [], 0, 0
    inputs = stand.dataset.inputs[share["row"].to_numpy()]
    for features, positions in stand.buckets(inputs):
        part = share.iloc[positions].reset_index(drop=True)
        if not frames and features.d:
            _warm_up(stand, inputs[positions[:1]], features, form)
        for repeat in range(repeats):
            found = attribute(
                stand.model,
                inputs[positions],
                part["prediction"].to_numpy(),
                settings["method"],
                features,
                stand.reference,
                settings.get("value", "log_probability"),
                budgets,
                seed_of(settings["seed"], label, repeat),
                part["instance"].to_numpy(),
                form,
                on_error,
                progress and (lambda n, evaluations, to=(done, made): progress(to[0] + n, to[1] + evaluations)),
            )
            frames += [_rows(part, one, repeat, budget) for one, budget in zip(found, budgets, strict=True)]
            done += len(part)
            made += sum(int(one.evaluations.sum()) for one in found)
    return pd.concat(frames, ignore_index=True)


def _warm_up(stand, inputs: np.ndarray, features: Features, form: engine.Form) -> None:
    """A first call sets up threads and traces, which is not the method's time. What it raises, the method will too."""
    with contextlib.suppress(ShapelineError):
        engine.values(stand.model, inputs, stand.reference, np.ones((2, features.d), bool), features, form=form)


def _rows(share: pd.DataFrame, found: Explanation, repeat: int, budget: float | None) -> pd.DataFrame:
    flat = found.scores.reshape(len(share), -1).astype(np.float32)
    return pd.DataFrame(
        {
            "instance": share["instance"],
            "target": found.target,
            "repeat": repeat,
            "budget": budget,
            "scores": [row if status == "ok" else None for row, status in zip(flat, found.status, strict=True)],
            "evaluations": found.evaluations,
            "seconds": found.seconds,
            "value_full": found.value_full,
            "value_empty": found.value_empty,
            "status": found.status,
            "error": found.error,
            "extra": found.extra,
        }
    )


def provenance(stand, settings: dict, form: engine.Form, device: str) -> dict:
    """What a score file says of how it was made, beside its settings."""
    versions = {name: importlib.metadata.version(name) for name in ("torch", "numpy")}
    git = shutil.which("git")
    commit = subprocess.run([git, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip() if git else ""
    return {
        "method": settings["method"]["method"],
        "parameters": settings["method"],
        "features": _described(stand),
        "reference": settings.get("reference", "mean"),
        "value": settings.get("value", "log_probability"),
        "seed": settings["seed"],
        "versions": {**versions, "shapeline": shapeline.__version__},
        "framework": stand.model.framework,
        "form": asdict(form),
        "device": device,
        "git_commit": commit or None,
    }


def _described(stand) -> dict:
    """Kind, shape and names of the features; shape null where each instance has its own."""
    if stand.features is None:
        kind = stand.feature_settings
        return {"kind": kind if isinstance(kind, str) else kind["kind"], "shape": None, "names": []}
    return {
        "kind": stand.features.kind,
        "shape": list(stand.features.shape),
        "names": list(stand.features.names),
    }


def explain(
    model: object,
    inputs: np.ndarray,
    method: str = "kernel_shap",
    reference: str | dict | np.ndarray = "mean",
    features: str | dict | Features = "pixel",
    budget: float = 4,
    target: int | Sequence[int] | None = None,
    seed: int = 0,
    background: np.ndarray | None = None,
    value: str | None = None,
    **parameters: object,
) -> Explanation:
    """Explain a torch module (logits), a predict_proba object or a function -> probabilities, in one call.

    inputs (n, *input shape); reference: a kind as in the configuration ("zero", "mean", {"kind": "background", "rows":
    16}, "blur", ...), made from `background` (else from the inputs), or an array of one input's shape, or of (M, *input
    shape) rows to average over; features: "pixel", "column", {"kind": "patch", "size": 2} or
    a Features; budget: multiple of d, for sampled methods; target: class (or one an instance), the predicted one by
    default; value: log-probability for networks, probability for functions. Returns an Explanation.
    """
    inputs = np.asarray(inputs, dtype=np.float32)
    if inputs.ndim < 2 or not len(inputs):
        raise ShapelineError(f"explain: inputs have shape {inputs.shape}; give one or more inputs as (n, *input shape)")
    if isinstance(reference, str) and reference.startswith("mean") and background is None and len(inputs) == 1:
        raise ShapelineError("explain: the mean of a single input is the input itself; give background or a reference")
    classifier = models.wrap(model)
    value = value or ("log_probability" if classifier.framework == "torch" else "probability")
    if not isinstance(features, Features):
        kind = {"kind": features} if isinstance(features, str) else features
        features = feature_kinds.build(kind, {"input_shape": list(inputs.shape[1:]), "feature_names": [], "groups": {}})
    filled = _reference(reference, inputs if background is None else np.asarray(background, dtype=np.float32), seed)
    if target is None:
        targets = classifier.log_probs(inputs).argmax(1)
    else:
        targets = np.broadcast_to(np.asarray(target), len(inputs)).astype(int)
    settings = _checked_settings(method, parameters)
    (found,) = attribute(
        classifier,
        inputs,
        targets,
        settings,
        features,
        filled,
        value,
        [budget if methods.METHODS[method].sampled else None],
        seed_of(seed, method, 0),
        form=_form_of(classifier, inputs, filled),
        on_error="fail",
    )
    return found


_FORMS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def _form_of(model: Classifier, inputs: np.ndarray, reference: Reference) -> engine.Form:
    """The calibrated form, once per torch module and input shape; a function is called in large batches."""
    if model.framework != "torch":
        return engine.Form("plain", 4096)
    kept = _FORMS.setdefault(model.module, {})
    if inputs.shape[1:] not in kept:
        kept[inputs.shape[1:]] = engine.calibrate(model, inputs[:64], reference)
    return kept[inputs.shape[1:]]


def _checked_settings(method: str, parameters: dict) -> dict:
    if method not in methods.METHODS:
        raise ShapelineError(f"unknown method '{method}'.{nearest(method, methods.METHODS)}")
    settings = {"method": method, **parameters}
    try:
        methods.METHODS[method].parameters.model_validate(settings)
    except ValidationError as failure:
        first = failure.errors()[0]
        key = ".".join(map(str, first["loc"]))
        allowed = [name for name in methods.METHODS[method].parameters.model_fields if name != "method"]
        raise ShapelineError(f"{method}: {key}: {first['msg']}.{nearest(key, allowed)}") from None
    return settings


def _empty(n: int, features: Features, targets: np.ndarray) -> Explanation:
    numbers = {name: np.full(n, np.nan) for name in ("value_full", "value_empty")}
    return Explanation(
        scores=np.full((n, *features.shape), np.nan),
        evaluations=np.zeros(n, dtype=np.int64),
        seconds=np.zeros(n),
        target=np.asarray(targets, dtype=np.int64),
        **numbers,
        status=["ok"] * n,
        error=[None] * n,
    )


def _nothing_to_score(inputs, targets, features: Features, count: int, on_error: str) -> list[Explanation]:
    if on_error == "fail":
        raise NO_FEATURES
    results = [_empty(len(inputs), features, targets) for _ in range(count)]
    for result in results:
        result.status, result.error = [NO_FEATURES.status] * len(inputs), [str(NO_FEATURES)] * len(inputs)
    return results


def _union(designs: Sequence[Design], d: int) -> tuple[np.ndarray, list]:
    """The distinct coalitions of the designs (K, d), and for each design the columns of its own."""
    if len(designs) < 2:
        return (designs[0].masks, [slice(0, designs[0].evaluations)]) if designs else (np.zeros((0, d), bool), [])
    masks = np.concatenate([design.masks for design in designs])
    first, inverse = unique_rows(masks)
    return masks[first], np.split(inverse, np.cumsum([design.evaluations for design in designs])[:-1])


def _with_ends(masks: np.ndarray) -> tuple[np.ndarray, int, int]:
    """The masks and, where the design lacks them, the full and the empty coalition after them; and their positions.

    Every score file states v(N) and v(∅); a design that does not use them is not charged for them.
    """
    sizes = masks.sum(1)
    positions, missing = [], []
    for size, end in ((masks.shape[1], True), (0, False)):
        found = np.flatnonzero(sizes == size)
        positions.append(int(found[0]) if len(found) else len(masks) + len(missing))
        if not len(found):
            missing.append(np.full((1, masks.shape[1]), end))
    return np.concatenate([masks, *missing]), *positions


def _reference(reference: str | dict | np.ndarray, background: np.ndarray, seed: int) -> Reference:
    """A reference of a kind, made from the background, or given as rows."""
    if isinstance(reference, str | dict):
        data = SimpleNamespace(inputs=background, split=np.zeros(len(background), np.uint8), card={})
        return references.build(reference, data, seed)
    shape, rows = background.shape[1:], np.asarray(reference, dtype=np.float32)
    rows = rows[None] if rows.shape == shape else rows
    if rows.shape[1:] != shape:
        raise ShapelineError(f"the reference has shape {rows.shape}; one input has shape {shape}")
    return Reference(rows)
