"""Run one method on instances: build its design, evaluate it, read it out; a failure becomes a row with its reason."""

import contextlib
import importlib.metadata
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
import pandas as pd

import shapeline
from shapeline import engine, methods
from shapeline import features as feature_kinds
from shapeline.datasets import Dataset
from shapeline.designs.build import build
from shapeline.designs.design import Design, openblas, unique_rows
from shapeline.designs.design import evaluations as evaluations_of
from shapeline.errors import MethodFailure, ShapelineError
from shapeline.features import Features
from shapeline.models import Classifier
from shapeline.references import Reference
from shapeline.seeds import seed_of
from shapeline.value_cache import Cache, key_of

NO_FEATURES = MethodFailure("no features", "the instance is nothing but padding, so there is nothing to score")
# Keys of a method entry that say how much to spend, and on what.
PLANNED = ("budget", "snapshots", "rival_of", "rival", "features")
CHUNK = 32  # instances between two progress lines
DATA_CHUNK = 256  # of a method that reads all the data once a chunk
CHUNK_VALUES = 1_000_000  # values of a chunk: 8 MB, and seconds between two progress lines
CHUNK_BYTES = 1 << 28  # of its inputs: some methods hold them all on the device
# What `seconds` leave out, by timing; both end when the numbers are on the host, so that the device has finished.
EXCLUDED = {
    "batch": "loading, calibration, cutting superpixels and one warm-up call of the model (of a peer, one whole "
    "warm-up explanation); a batch's time is shared out over its instances",
    "per_instance": "loading, calibration, cutting superpixels and one whole warm-up explanation; instances are "
    "explained one at a time",
}


@dataclass
class Explanation:
    """Scores of n instances by one method (one repeat of it).

    scores (n, *feature shape), NaN where the method failed; evaluations (n,) coalitions whose value was asked for;
    seconds (n,) wall time, the design's construction shared out; target (n,) explained class, 0 of a regression;
    value_full and value_empty (n,) values of the whole input and of the reference, NaN without a model; status and
    error (n,) "ok" or why not.
    """

    scores: np.ndarray
    evaluations: np.ndarray
    seconds: np.ndarray
    target: np.ndarray
    value_full: np.ndarray
    value_empty: np.ndarray
    status: list[str] = field(default_factory=list)
    error: list[str | None] = field(default_factory=list)
    extra: list[dict] = field(default_factory=list)  # what a method says of each instance beside its scores
    flag: list[str | None] = field(default_factory=list)  # what is to be known of an explanation that did not fail


def attribute(
    model: Classifier | None,
    inputs: np.ndarray,
    targets: np.ndarray,
    settings: dict,
    features: Features,
    reference: Reference | None,
    value: str = "log_probability",
    budgets: Sequence[float | None] = (None,),
    seed: int = 0,
    instances: Sequence[int] | None = None,
    form: engine.Form | None = None,
    on_error: str = "record",
    progress: Callable[[int, int], None] | None = None,
    cache: Cache | None = None,
    dataset: Dataset | None = None,
    device: str = "cpu",
    timing: str = "batch",
    time_limit: float | None = None,
) -> list[Explanation]:
    """Explain inputs (n, *input shape) for targets (n,) by the method of `settings` ({"method": name, ...parameters}).

    budgets: multiples of d, for sampled methods; an Explanation for each. A coalition that several budgets use is
    evaluated once, and `seconds` are shared out by evaluations. seed: of this label and repeat; one design serves all
    instances. instances: ids that seed what is drawn an instance (positions by default). cache: of this model, data,
    features, reference and value; `evaluations` are what the method asks, `seconds` what was spent. dataset: whose
    training part the methods of labelled points read; where one does not ask it, the model may be None. timing:
    "per_instance" explains and times one instance after another. time_limit: seconds after which an instance has
    failed, all budgets together; then too they are explained one after another, and in the main thread. Raises
    ShapelineError for a model that returns NaN, and for any failure when on_error is "fail".
    """
    began = time.perf_counter()
    method = methods.METHODS[settings["method"]]
    parameters = {key: setting for key, setting in settings.items() if key not in PLANNED}
    if method.family == "data" and dataset is None:
        raise ShapelineError(f"{settings['method']} needs labelled points: run it in an experiment of the workflow")
    if method.family == "data" and dataset.labels.ndim == 2:
        raise ShapelineError(f"{settings['method']} compares points of one label each; these have several")
    if lacking := methods.missing(settings["method"]):
        raise ShapelineError(lacking)
    if method.torch_only and model and model.framework == "tensorflow":  # a job imports one framework
        raise ShapelineError(
            f"{settings['method']} needs a torch model and '{model.architecture}' is a tensorflow one; give it in "
            "torch, or use expected_gradients or a method of coalitions"
        )
    results = [blank(len(inputs), features, targets) for _ in budgets]
    designs, designed, count = [], [], None
    for budget, result in zip(budgets, results, strict=True):
        try:
            if features.d == 0:
                raise NO_FEATURES
            rival = _rival(settings, features)
            spend = rival.evaluations / features.d if rival else budget
            if method.is_design:
                designs.append(design_of(parameters, features, spend, seed))
            elif spend:
                count = evaluations_of(spend, features.d)
            designed.append(result)
        except ShapelineError as error:
            # Where d differs by instance, that some have no design (2^d coalitions) says nothing of the others.
            if on_error == "fail" or not feature_kinds.varies(features.kind):
                raise
            result.status = [getattr(error, "status", "no design")] * len(inputs)
            result.error = [str(error)] * len(inputs)
    if not designed:
        return results
    masks, columns = _union(designs, features.d)
    evaluated = len(masks)
    masks, full, empty = _with_ends(masks)
    ids = np.arange(len(inputs)) if instances is None else np.asarray(instances)
    spent = np.full(len(inputs), (time.perf_counter() - began) / max(len(inputs), 1))
    step = max(1, min(DATA_CHUNK if method.measure else CHUNK, CHUNK_VALUES // len(masks)))
    step = 1 if timing == "per_instance" or time_limit else max(1, min(step, CHUNK_BYTES // max(1, inputs[:1].nbytes)))
    function = None if designs else methods.function_of(method.function_for(model and model.framework))
    measure = methods.function_of(method.measure) if method.measure else None

    def values_of(part: slice) -> np.ndarray:
        if model is None:
            return np.full((part.stop - part.start, len(masks)), np.nan)
        if cache is None or not designs:
            return engine.values(model, inputs[part], reference, masks, features, value, targets[part], form)

        def evaluate(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
            asked = inputs[part][rows], reference, masks[columns], features, value, targets[part][rows], form
            try:
                return engine.values(model, *asked)
            except ShapelineError as error:
                raise engine.by_id(error, ids[part][rows]) from None

        values, reused = cache.values(ids[part], targets[part], masks, evaluate)
        for extra, number in zip(designed[-1].extra[part], reused, strict=True):
            extra["reused"] = int(number)  # of all budgets together
        return values

    def explain_part(part: slice) -> None:
        began = time.perf_counter()
        values = values_of(part)
        found = [(d.attribute(values[:, own]), d.evaluations, {}) for d, own in zip(designs, columns, strict=True)]
        if not designs:
            began = time.perf_counter()  # the values of the ends are not the method's
            own = {key: setting for key, setting in parameters.items() if key != "method"}
            available = {
                **{**parameters, "d": features.d, "features": features, "reference": reference, "seed": seed},
                **{"model": model, "inputs": inputs[part], "targets": targets[part], "instances": ids[part]},
                **{"measure": measure, "parameters": own, "dataset": dataset, "device": device},
                **{"value": value, "form": form, "budget": count},
            }
            scores, evaluations, *said = methods.call(function, available)
            found = [(scores, evaluations, *(said or [{}]))]
        spent[part] += (time.perf_counter() - began) / len(inputs[part])
        for result, (scores, evaluations, said) in zip(designed, found, strict=True):
            result.scores[part] = np.reshape(scores, (-1, *features.shape))
            result.evaluations[part] = evaluations
            result.value_full[part], result.value_empty[part] = values[:, full], values[:, empty]
            share = evaluations / len(masks) if len(designs) > 1 else 1.0
            result.seconds[part] = spent[part] * share
            if "seconds" in said:
                result.seconds[part] = said["seconds"]
            for name, numbers in ((name, one) for name, one in said.items() if name != "seconds"):
                for i, number in zip(range(part.start, part.stop), numbers, strict=True):
                    if name == "flag":
                        result.flag[i] = number
                    else:
                        result.extra[i][name] = float(number)

    def failed(i: int, failure: MethodFailure) -> None:
        for result in designed:
            result.status[i], result.error[i] = failure.status, str(failure)

    for start in range(0, len(inputs), step):
        part = slice(start, min(start + step, len(inputs)))
        try:
            with limited(time_limit):
                explain_part(part)
        except MethodFailure as failure:
            if on_error == "fail":
                raise
            if step == 1:
                failed(start, failure)
                continue
            for i in range(part.start, part.stop):  # find out which instances fail
                try:
                    explain_part(slice(i, i + 1))
                except MethodFailure as failure:
                    failed(i, failure)
        except ShapelineError as error:
            raise engine.by_id(error, ids[part]) from None
        if progress:
            each = (int(one.evaluations[: part.stop].sum()) for one in designed)
            progress(part.stop, part.stop * len(masks) if designs else sum(each))
    if len(designs) > 1:
        for extra in designed[-1].extra:
            extra["evaluated"] = evaluated  # coalitions of all budgets together
    return results


@contextlib.contextmanager
def limited(seconds: float | None) -> Iterator[None]:
    """Raise MethodFailure inside the block once it has taken so long; without a limit, do nothing.

    The alarm is heard between two steps of Python: a single call of a library that hangs is not ended.
    """
    if seconds is None:
        yield
        return

    def stop(*_) -> None:
        raise MethodFailure("time limit", f"it took longer than the {seconds:g} s that time_limit allows an instance")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def design_of(parameters: dict, features: Features, budget: float | None, seed: int) -> Design:
    """The design of a method's parameters on these features; cached, so that equal settings make it once."""
    graph = None
    method = methods.METHODS[parameters["method"]]
    if (
        "graph" in (*method.parameters.model_fields, *(method.takes or ()))
        and parameters.get("graph", "features") == "features"
    ):
        graph = feature_kinds.graph(features)
    return build(parameters, features.shape, budget, seed, graph)


def _rival(settings: dict, features: Features) -> Design | None:
    """The fixed-cost design whose number of evaluations is the budget, where that differs by instance."""
    return design_of(settings["rival"], features, None, 0) if "rival" in settings else None


def cache_of(folder: str, files, code: Sequence[str], settings: dict, form: engine.Form, device: str) -> Cache | None:
    """The cache of an attribute job; None where the folder is "". files: the job's input; code: what makes a value."""
    if not folder:
        return None
    facts = {name: settings.get(name) for name in ("features", "reference", "value", "seed")}
    facts["features"] = settings.get("method", {}).get("features", facts["features"])
    # The instances, for texts of one's own have numbers that say nothing of what they are.
    decisive = [files.weights, files.arrays, files.dataset_card, files.instances, *files.user, *files.reference, *code]
    return Cache(folder, key_of(decisive, {**facts, "form": form.name, "device": device}))


def shard(selected: pd.DataFrame, index: int, count: int) -> pd.DataFrame:
    """The index-th of `count` consecutive parts, as equal as can be."""
    return selected.iloc[np.array_split(np.arange(len(selected)), count)[index]].reset_index(drop=True)


def explain_rows(
    stand,
    share: pd.DataFrame,
    settings: dict,
    label: str,
    form: engine.Form,
    on_error: str = "record",
    progress=None,
    cache: Cache | None = None,
    inputs: np.ndarray | None = None,
) -> pd.DataFrame:
    """Score rows (columns of scores.SCHEMA) of one label on the instances of a shard, every repeat.

    stand: instances.Bench; settings: of the attribute job. Sampled designs are seeded by (seed, label, repeat). A
    method with features of its own has its scores spread over the experiment's (features.spread). inputs: explained
    in place of the instances' own.
    """
    experiment_features = stand.features
    if "features" in settings["method"]:
        stand = stand.with_features(settings["method"]["features"])
    timing, peer = settings.get("timing", "batch"), methods.METHODS[settings["method"]["method"]].family == "peers"
    repeats = settings.get("repeats", 1)
    budgets = [*settings["method"].get("snapshots", ()), settings.get("budget")]
    frames, done, made = [], 0, 0
    inputs = stand.inputs(share) if inputs is None else inputs
    regression = share["prediction"].dtype.kind == "f"
    target = "target" if "target" in share else "prediction"  # the label, where an instance has several
    for features, positions in stand.buckets(inputs, share):
        part = share.iloc[positions].reset_index(drop=True)

        def explain(chosen: slice, repeat: int | str, progress=None, features=features, positions=positions, part=part):
            few = part[chosen]
            return attribute(
                stand.model,
                inputs[positions[chosen]],
                np.zeros(len(few), int) if regression else few[target].to_numpy(),
                settings["method"],
                features,
                stand.reference,
                settings.get("value", "log_probability"),
                budgets,
                seed_of(settings["seed"], label, repeat),
                few["instance"].to_numpy(),
                form,
                on_error,
                progress,
                cache,
                stand.dataset,
                stand.device,
                timing,
                None if repeat == "warm-up" else settings.get("time_limit"),
            )

        if not frames and features.d and stand.model:
            _warm_up(stand, inputs[positions[:1]], features, form, settings.get("value", "log_probability"))
        if not frames and (timing == "per_instance" or peer):
            explain(slice(1), "warm-up")  # peers are compiled as they run, for seconds that are no instance's
        for repeat in range(repeats):
            found = explain(
                slice(None),
                repeat,
                progress and (lambda n, evaluations, to=(done, made): progress(to[0] + n, to[1] + evaluations)),
            )
            if "features" in settings["method"]:
                for one in found:
                    one.scores = feature_kinds.spread(one.scores, features, experiment_features)
            frames += [_rows(part, one, repeat, budget) for one, budget in zip(found, budgets, strict=True)]
            done += len(part)
            made += sum(int(one.evaluations.sum()) for one in found)
    return pd.concat(frames, ignore_index=True)


def _warm_up(stand, inputs: np.ndarray, features: Features, form: engine.Form, value: str) -> None:
    """A first call sets up threads and traces, which is not the method's time. What it raises, the method will too."""
    openblas()
    with contextlib.suppress(ShapelineError):
        masks = np.ones((2, features.d), bool)
        engine.values(stand.model, inputs, stand.reference, masks, features, value, form=form)


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
            "flag": found.flag,
            "extra": [json.dumps(extra) if extra else None for extra in found.extra],
        }
    )


def provenance(stand, settings: dict, form: engine.Form | None, device: str) -> dict:
    """What a score file says of how it was made, beside its settings; null for what only a model has."""
    framework = stand.model and stand.model.framework
    used = {"function": "torch"}.get(framework, framework) or ("torch" if device != "cpu" else None)
    peer = methods.METHODS[settings["method"]["method"]].package
    versions = {name: importlib.metadata.version(name) for name in (used, "numpy", peer) if name}
    git = shutil.which("git")
    commit = subprocess.run([git, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip() if git else ""
    return {
        "method": settings["method"]["method"],
        "parameters": settings["method"],
        "features": _described(stand),
        "reference": settings.get("reference", "mean") if framework else None,
        "value": settings.get("value", "log_probability") if framework else None,
        "seed": settings["seed"],
        "timing": settings.get("timing", "batch"),
        "seconds_exclude": EXCLUDED[settings.get("timing", "batch")],
        "spread_from": settings["method"].get("features"),  # the method's own features, of which each cell has a share
        "versions": {**versions, "shapeline": shapeline.__version__},
        "framework": framework,
        "form": asdict(form) if form else None,
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


def blank(n: int, features: Features, targets: np.ndarray) -> Explanation:
    """An explanation of n instances that nothing was said of yet."""
    numbers = {name: np.full(n, np.nan) for name in ("value_full", "value_empty")}
    return Explanation(
        scores=np.full((n, *features.shape), np.nan),
        evaluations=np.zeros(n, dtype=np.int64),
        seconds=np.zeros(n),
        target=np.asarray(targets, dtype=np.int64),
        **numbers,
        status=["ok"] * n,
        error=[None] * n,
        extra=[{} for _ in range(n)],
        flag=[None] * n,
    )


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
