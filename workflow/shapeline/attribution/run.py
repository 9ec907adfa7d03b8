"""Run one method on instances: sample masks, evaluate them, estimate scores, store them; failures become rows."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shapeline.attribution.explanation import OPTIONAL, Explanation, build_blank
from shapeline.attribution.game_values import ValueStore
from shapeline.attribution.sampling import Answer, Batch, Rounds, Sampling, sample
from shapeline.datasets import sources
from shapeline.datasets.loading import Dataset
from shapeline.datasets.sources import Call
from shapeline.designs.design import Design, count_evaluations
from shapeline.designs.orders import find_best_orders
from shapeline.errors import MethodFailure, ShapelineError, first_line, locate, locate_input, reject
from shapeline.games import features as feature_kinds
from shapeline.games.game import PREDICTION, Game, check_full
from shapeline.games.references import Reference
from shapeline.memory import is_out_of_memory
from shapeline.methods import registry
from shapeline.methods.settings import MethodSettings, Size
from shapeline.models.classifier import BATCH_TOLERANCE


def start_clock() -> Callable[[bool], float]:
    """Return a function that returns the seconds since this call: processor time, if it is less and no GPU or server
    computes (its argument)."""
    wall, processor = time.perf_counter(), time.process_time()

    def measure(runs_elsewhere: bool) -> float:
        seconds = time.perf_counter() - wall
        return seconds if runs_elsewhere else min(seconds, time.process_time() - processor)

    return measure


@contextlib.contextmanager
def limit_time(seconds: float | None) -> Iterator[None]:
    """Raise MethodFailure inside the block after `seconds`, between two steps of Python; None: never."""
    if seconds is None:
        yield
        return

    def stop(*_) -> None:
        raise MethodFailure(
            "time limit",
            f"time_limit: an instance took longer than {seconds:g} s; raise time_limit, or lower the budget",
        )

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


NO_FEATURES = MethodFailure("no features", "instances: one is nothing but padding; leave it out")
# Errors of a library or a framework for an unsupported model.
UNSUPPORTED_ERRORS = (RuntimeError, ValueError, TypeError, AttributeError, AssertionError, LookupError)


@dataclass(frozen=True)
class Options:
    """Options of a run of a method.

    seed: of this method and repeat.
    instances: ids, positions by default.
    sample_keys: seed each instance's sample together with the seed; the ids by default.
    on_error: "record" turns a MethodFailure into a row with its status, "fail" raises it.
    progress: called with the numbers of explained instances and of evaluations.
    save: called with the positions of a chunk of instances and their explanations, one per budget.
    values: store of this game's values by the `addresses` of the instances; stored values count in `evaluations`, and
    in `seconds` with the time when they were computed.
    dataset: methods of labelled points read its training part, or with all_points all of it.
    background: baseline of a method that computes scores itself, instead of the game's.
    device: of the computations beside the model.
    outputs: the instances are outputs of one game, explained together by one sample and one estimator.
    timing: "per_instance" explains and times one instance after another.
    time_limit: seconds per instance, for all budgets, after which it fails; instances are then explained one after
    another, in the main thread.
    """

    seed: int = 0
    instances: Sequence[int] | None = None
    sample_keys: Sequence[object] | None = None
    on_error: str = "record"
    progress: Callable[[int, int], None] | None = None
    save: Callable[[np.ndarray, list[Explanation]], None] | None = None
    values: ValueStore | None = None
    addresses: Sequence[str] = ()
    dataset: Dataset | None = None
    all_points: bool = False
    background: Reference | None = None
    device: str = "cpu"
    outputs: bool = False
    timing: str = "batch"
    time_limit: float | None = None


@dataclass(frozen=True)
class _Run:
    """A method on its instances (n,); spent: seconds of all budgets; reused: seconds of stored values."""

    game: Game
    method: MethodSettings
    options: Options
    inputs: np.ndarray
    targets: np.ndarray
    ids: np.ndarray
    sample_keys: np.ndarray
    results: list[Explanation]
    spent: np.ndarray
    reused: np.ndarray
    sampling: Sampling
    scorer: Call | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)  # of the scorer


def attribute(
    game: Game, inputs: np.ndarray, targets: np.ndarray, method: MethodSettings, options: Options | None = None
) -> list[Explanation]:
    """Return an Explanation of inputs (n, *input shape) and targets (n,) for each budget of the method."""
    began, options = start_clock(), options or Options()
    results = [build_blank(len(inputs), game.features, targets) for _ in method.budgets]
    try:
        _check_method(method, game, options)
    except MethodFailure as failure:
        if options.on_error == "fail":
            raise
        for result in results:
            result.fail(range(len(inputs)), failure, failure.status)
        return results
    if game.model and len(inputs):
        game.model.check_rows(inputs)
    ids = np.arange(len(inputs)) if options.instances is None else np.asarray(options.instances)
    sample_keys = ids if options.sample_keys is None else np.asarray(options.sample_keys)
    designs, designed, spend = _build_designs(method, game, options, results)
    if not designed:
        return results
    sampling = sample(method, game.features, designs, inputs, options.seed, sample_keys, options.outputs)
    spent = np.full(len(inputs), began(runs_elsewhere(game, options)) / max(len(inputs), 1))
    instances = inputs, targets, ids, sample_keys
    scorer = (None, {}) if designs else _scorer(method, game, options, spend)
    run = _Run(game, method, options, *instances, designed, spent, 0 * spent, sampling, *scorer)
    _explain_all(run)
    return results


def warm_up(game: Game, method: MethodSettings, seed: int) -> None:
    """Build and estimate one design, so that imports and first calls do not count as the seconds of an instance."""
    if not method.method.is_design or not game.features.d:
        return
    with contextlib.suppress(ShapelineError):  # the method raises the same error
        spend = method.resolve_budget(game.features, method.budgets[-1])
        design = method.design(game.features, spend, seed, keep=False)
        values = np.random.default_rng(0).random((1, design.evaluations))
        if method.read_stack:
            method.read_stack(design.masks[None], values)
        elif method.read:
            method.read(design, values)
        else:
            design.attribute(values)


def runs_elsewhere(game: Game, options: Options) -> bool:
    """Return whether values may be computed outside this process: on a GPU, or by a server that a function calls."""
    return options.device != "cpu" or bool(game.model and game.model.framework == "function")


def _check_method(method: MethodSettings, game: Game, options: Options) -> None:
    """Raise ShapelineError if the method cannot run on this game."""
    name, model, dataset = method.name, game.model, options.dataset
    if method.method.family == "data" and dataset is None:
        raise ShapelineError(
            f"{name}: labelled examples are needed; run it in an experiment of the workflow, or call "
            f"shapeline.influence.{name}"
        )
    if method.method.family == "data" and dataset.labels.ndim == 2:
        raise ShapelineError(
            f"{name}: examples of one label each are compared, and these have several; choose another method"
        )
    if lacking := not method.arguments.get("python") and registry.find_missing_package(name):
        raise ShapelineError(lacking)
    if method.method.torch_only and model and model.framework == "tensorflow":  # a job imports one framework
        raise reject(
            f"{name}: a torch model is needed, and '{model.architecture}' is a tensorflow one; give it in "
            "torch, or use expected_gradients or a method of coalitions"
        )


def _build_designs(
    method: MethodSettings, game: Game, options: Options, results: list[Explanation]
) -> tuple[list[tuple[float | None, Design | Size]], list[Explanation], float | None]:
    """Return the designs of the budgets (sizes if each instance has its own design, none if the method computes scores
    itself), the results of budgets that have a design, and the last budget as a multiple of d."""
    designs, designed, spend, features = [], [], None, game.features
    for budget, result in zip(method.budgets, results, strict=True):
        try:
            if features.d == 0:
                raise NO_FEATURES
            spend = method.resolve_budget(features, budget)
            if method.method.is_design:
                make = method.size if method.samples_designs else method.design
                designs.append((spend, make(features, spend, options.seed)))
            designed.append(result)
        except ShapelineError as error:
            # If d varies by instance, others may have a design.
            if options.on_error == "fail" or not feature_kinds.is_varying(features.kind):
                raise
            result.fail(range(len(result.status)), error, getattr(error, "status", "no design"))
    return designs, designed, spend


def _scorer(method: MethodSettings, game: Game, options: Options, spend: float | None) -> tuple[Call, dict[str, Any]]:
    """Return the function of a method that computes scores itself, and those of its arguments that all chunks share."""
    return method.scorer(game.model and game.model.framework), {
        **method.arguments,
        "game": game.having(reference=options.background) if options.background else game,
        "features": game.features,
        "d": game.features.d,
        "seed": options.seed,
        "budget": count_evaluations(spend, game.features.d) if spend else None,
        "dataset": options.dataset,
        "all_points": options.all_points,
        "device": options.device,
        "measure": sources.resolve(method.method.measure).function if method.method.measure else None,
        "parameters": method.arguments,
    }


def _explain_all(run: _Run) -> None:
    one_by_one = run.options.timing == "per_instance" or run.options.time_limit
    step, evaluations = 1 if one_by_one else run.sampling.step, 0
    for start in range(0, len(run.inputs), step):
        positions = run.sampling.order[start : start + step]
        batch = _explain(run, positions)
        if run.options.progress:
            done = run.sampling.order[: start + step]
            if run.scorer is None and isinstance(batch, Batch):
                evaluations += batch.masks.shape[-2] * len(positions)
            else:
                evaluations = sum(int(result.evaluations[done].sum()) for result in run.results)
            run.options.progress(len(done), evaluations)
        if run.options.save and len(run.results) == len(run.method.budgets):
            run.options.save(positions, [result.at(positions) for result in run.results])
        del batch  # free its designs before the next chunk's are built


def _explain(run: _Run, positions: np.ndarray) -> Batch | Rounds:
    """Explain a chunk; if the method fails, explain its instances one by one to find those that fail."""
    began, batch = start_clock(), run.sampling.select(positions)
    try:
        with limit_time(run.options.time_limit):
            _explain_together(run, positions, batch, began)
    except MethodFailure as failure:
        if run.options.on_error == "fail":
            raise
        if len(positions) > 1:
            for position in positions:
                run.results[-1].details[position].pop("reused", None)
                run.reused[position] = 0.0
                _explain(run, np.array([position]))
        for result in run.results if len(positions) == 1 else ():
            result.fail(positions, failure, failure.status)
    return batch


def _explain_together(run: _Run, positions: np.ndarray, batch: Batch | Rounds, began: Callable[[bool], float]) -> None:
    with locate(run.ids[positions]):
        if isinstance(batch, Rounds):
            answer, full, empty = batch.explain(lambda rows, masks: _evaluate_among(run, positions, rows, masks))
            answers = [answer]
        else:
            values = _evaluate(run, positions, batch.masks)
            full, empty = batch.select_ends(values)
            if run.scorer is None:
                answers = batch.read(values)
            else:
                began = start_clock()  # the seconds of the ends do not count for the method
                answers = [_run_scorer(run, positions)]
        seconds = began(runs_elsewhere(run.game, run.options))  # without the optimal orders below
        run.spent[positions] += seconds / len(positions)
        if run.method.method.exact:
            for position, orders in zip(positions, find_best_orders(batch.masks, values, run.game.value), strict=True):
                run.results[-1].details[position].update(orders)
        for result, answer in zip(run.results, answers, strict=True):
            _store(run, positions, result, answer, batch)
            result.value_full[positions], result.value_empty[positions] = full, empty
            if run.scorer is None:
                result.drop_noise(positions)
        _check_full_values(run.game, run.inputs[positions], run.targets[positions], np.asarray(full))
    if batch.several:
        for position, number in zip(positions, np.broadcast_to(batch.distinct, len(values)), strict=True):
            run.results[-1].details[position]["evaluated"] = int(number)  # coalitions of all budgets together


def _check_full_values(game: Game, inputs: np.ndarray, targets: np.ndarray, full: np.ndarray) -> None:
    """Raise ShapelineError if a network's output for an input differs between masked rows (n,) and the input alone."""
    model, value = game.model, game.value
    if model is None or model.framework == "function" or value not in ("log_probability", "probability", PREDICTION):
        return
    rows = np.arange(len(inputs))
    expected = model.predict(inputs) if value == PREDICTION else model.log_probs(inputs)[rows, targets]
    expected = np.exp(expected) if value == "probability" else expected
    differs = np.abs(full - expected) > BATCH_TOLERANCE * (1 + np.abs(expected))  # False for NaN, of failed instances
    check_full(model.architecture, full, expected, np.arange(len(expected)), differs)


def _evaluate_among(run: _Run, positions: np.ndarray, rows: np.ndarray, masks: np.ndarray) -> np.ndarray:
    with locate_input(rows):
        return _evaluate(run, positions[rows], masks)


def _share_evaluations(
    game: Game, inputs: np.ndarray, masks: np.ndarray, targets: np.ndarray, sample_keys: np.ndarray
) -> np.ndarray:
    """Return values as Game.values does; an input that is explained for several classes is evaluated once."""
    several = len({*sample_keys.tolist()}) < len(inputs)
    members: dict[tuple[bytes, bytes], list[int]] = {}
    for index, row in enumerate(inputs) if several else ():
        key = row.tobytes(), masks[index].tobytes() if masks.ndim == 3 else b""
        members.setdefault(key, []).append(index)
    if not several or len(members) == len(inputs):
        return game.values(inputs, masks, targets)
    first = np.array([indices[0] for indices in members.values()])
    classes = np.repeat(targets[first, None], max(map(len, members.values())), axis=1)
    for row, indices in zip(classes, members.values(), strict=True):
        row[: len(indices)] = targets[indices]
    with locate_input(first):
        values = game.values(inputs[first], masks[first] if masks.ndim == 3 else masks, classes)
    result = np.empty((len(inputs), masks.shape[-2]))
    for by_class, indices in zip(values, members.values(), strict=True):
        result[indices] = by_class.T[: len(indices)]
    return result


def _evaluate(run: _Run, positions: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Return values (m, K) of masks (K, d) or (m, K, d) of the instances at positions (m,); NaN without a model."""
    inputs, targets, sample_keys = run.inputs[positions], run.targets[positions], run.sample_keys[positions]
    if run.game.model is None:
        return np.full((len(positions), masks.shape[-2]), np.nan)
    if run.options.values is None or run.scorer is not None:
        return _share_evaluations(run.game, inputs, masks, targets, sample_keys)

    def evaluate(rows: np.ndarray, missing: np.ndarray) -> tuple[np.ndarray, float]:
        began = start_clock()
        with locate_input(rows):
            values = _share_evaluations(run.game, inputs[rows], missing, targets[rows], sample_keys[rows])
        return values, began(runs_elsewhere(run.game, run.options))

    addresses = [run.options.addresses[position] for position in positions]
    values, reused, seconds = run.options.values.values(addresses, masks, evaluate)
    run.reused[positions] += seconds
    for position, number in zip(positions, reused, strict=True):
        details = run.results[-1].details[position]
        details["reused"] = details.get("reused", 0) + int(number)  # of all budgets, or rounds, together
    return values


def _run_scorer(run: _Run, positions: np.ndarray) -> Answer:
    """Return the answer of a method that computes scores itself."""
    by_id = run.method.method.family == "external"  # which looks up instances and does not sample
    chunk = {
        "inputs": run.inputs[positions],
        "targets": run.targets[positions],
        "instances": (run.ids if by_id else run.sample_keys)[positions],
    }
    name, model = run.method.name, run.game.model
    try:
        scores, evaluations, *details = run.scorer({**run.arguments, **chunk})
    except UNSUPPORTED_ERRORS as error:  # of a library or a derivative that does not support the model
        if not model or run.method.method.family not in ("gradients", "peers"):
            raise
        if is_out_of_memory(error):
            raise MethodFailure("out of memory", f"{name}: {first_line(error)}") from error
        raise reject(
            f"{name}: the model '{model.architecture}' is not supported, {type(error).__name__}: "
            f"{first_line(error).rstrip('.')}; use gp_shapley or kernel_shap"
        ) from error
    return Answer(scores, evaluations, *(details or [{}]))


def _store(run: _Run, positions: np.ndarray, result: Explanation, answer: Answer, batch: Batch | Rounds) -> None:
    """Write the answer of a method for a chunk to its positions in the result."""
    shape = run.game.features.shape
    result.scores[positions] = np.reshape(answer.scores, (-1, *shape))
    result.evaluations[positions] = answer.evaluations
    for name in OPTIONAL:
        if (values := getattr(answer, name)) is not None:
            values = np.reshape(values, (len(positions), *(shape if name == "standard_error" else (-1,))))
            if getattr(result, name) is None:
                setattr(result, name, np.full((len(result.scores), *values.shape[1:]), np.nan))
            getattr(result, name)[positions] = values
    details = dict(answer.details)
    share = answer.evaluations / batch.masks.shape[-2] if batch.several else 1.0
    result.seconds[positions] = details.pop("seconds", (run.spent[positions] + run.reused[positions]) * share)
    for name, numbers in details.items():
        for position, number in zip(positions, numbers, strict=True):
            if name == "warning":
                result.warning[position] = number
            else:
                result.details[position][name] = float(number)
