"""Run one method on instances: sample masks, evaluate them, estimate scores, store them; failures become rows."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shapeline.attribution.explanation import Explanation, blank
from shapeline.attribution.game_values import ValueStore
from shapeline.attribution.sampling import Answer, Batch, Rounds, Sampling, sample
from shapeline.datasets import sources
from shapeline.datasets.loading import Dataset
from shapeline.datasets.sources import Call
from shapeline.designs.design import Design
from shapeline.designs.design import evaluations as evaluations_of
from shapeline.designs.orders import best_orders
from shapeline.errors import MethodFailure, ShapelineError, first_line, locate, locate_input, reject
from shapeline.games import features as feature_kinds
from shapeline.games.game import PREDICTION, Game, check_full
from shapeline.games.references import Reference
from shapeline.memory import is_out_of_memory
from shapeline.methods import registry
from shapeline.methods.settings import MethodSettings, Size


@dataclass(frozen=True)
class Moment:
    """A moment on the wall's clock and on that of this process's processors, in seconds."""

    wall: float
    processor: float

    def since(self, waits: bool) -> float:
        """Return the seconds since then: of the processor if fewer and nothing `waits` elsewhere (a GPU, a server)."""
        wall = time.perf_counter() - self.wall
        return wall if waits else min(wall, time.process_time() - self.processor)


def now() -> Moment:
    return Moment(time.perf_counter(), time.process_time())


@contextlib.contextmanager
def limit_time(seconds: float | None) -> Iterator[None]:
    """Raise MethodFailure inside the block once it has taken so long, between two steps of Python; None: never."""
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
UNEQUAL = 1e-3  # by which a network may differ between batches and backends, relative above 1
# What a library or a framework raises for a model that it cannot take.
CANNOT = (RuntimeError, ValueError, TypeError, AttributeError, AssertionError, LookupError)


@dataclass(frozen=True)
class Options:
    """How a method is run.

    seed: of this method and repeat.
    instances: ids, positions by default.
    samples: what seeds each instance's own samples with the seed; the ids by default.
    on_error: "record" makes a MethodFailure a row with its status, "fail" raises it.
    progress: called with the instances done and the evaluations made.
    save: called with the positions of a chunk of instances and their explanations, one per budget.
    values: of this game's coalitions, and `addresses` of the instances among them; `evaluations` are what the
    method asks, and `seconds` what that took, in this run or when it was stored.
    dataset: whose training part the methods of labelled points read; all_points: all of it.
    background: reference of a method that makes scores itself, in place of the game's.
    device: of the computations beside the model.
    outputs: the instances are outputs of one game, explained together by one sample and one estimator.
    timing: "per_instance" explains and times one instance after another.
    time_limit: seconds after which an instance has failed, all budgets together; then too they are explained one after
    another, and in the main thread.
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
    """A method on its instances (n,); spent: seconds of all budgets; reused: seconds that stored values took."""

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
    given: Mapping[str, Any] = field(default_factory=dict)


def attribute(
    game: Game, inputs: np.ndarray, targets: np.ndarray, method: MethodSettings, options: Options | None = None
) -> list[Explanation]:
    """Return an Explanation of inputs (n, *input shape) and targets (n,) for each budget of the method."""
    began, options = now(), options or Options()
    results = [blank(len(inputs), game.features, targets) for _ in method.budgets]
    everyone = range(len(inputs))
    try:
        _check_method(method, game, options)
    except MethodFailure as failure:
        if options.on_error == "fail":
            raise
        for result in results:
            result.fail(everyone, failure, failure.status)
        return results
    if game.model and len(inputs):
        game.model.check_rows(inputs)
    ids = np.arange(len(inputs)) if options.instances is None else np.asarray(options.instances)
    sample_keys = ids if options.sample_keys is None else np.asarray(options.sample_keys)
    designs, designed, spend = _designs(method, game, options, results)
    if not designed:
        return results
    sampling = sample(method, game.features, designs, inputs, options.seed, sample_keys, options.outputs)
    spent = np.full(len(inputs), began.since(waits(game, options)) / max(len(inputs), 1))
    instances = inputs, targets, ids, sample_keys
    scorer = (None, {}) if designs else _scorer(method, game, options, spend)
    run = _Run(game, method, options, *instances, designed, spent, 0 * spent, sampling, *scorer)
    _explain_all(run)
    return results


def warm_up(game: Game, method: MethodSettings, seed: int) -> None:
    """Make a design and read it out once: what they import, and the first use of it, is no instance's seconds."""
    if not method.method.is_design or not game.features.d:
        return
    with contextlib.suppress(ShapelineError):  # what this raises, the method will too
        spend = method.spend(game.features, method.budgets[-1])
        design = method.design(game.features, spend, seed, keep=False)
        values = np.random.default_rng(0).random((1, design.evaluations))
        if method.read_stack:
            method.read_stack(design.masks[None], values)
        elif method.read:
            method.read(design, values)
        else:
            design.attribute(values)


def waits(game: Game, options: Options) -> bool:
    """Whether the numbers may come from elsewhere: a GPU, or what a function asks."""
    return options.device != "cpu" or bool(game.model and game.model.framework == "function")


def _check_method(method: MethodSettings, game: Game, options: Options) -> None:
    """Stop where the method cannot run on this game at all."""
    name, model, dataset = method.name, game.model, options.dataset
    if method.method.family == "data" and dataset is None:
        raise ShapelineError(f"{name}: labelled examples are needed; run it in an experiment of the workflow")
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


def _designs(
    method: MethodSettings, game: Game, options: Options, results: list[Explanation]
) -> tuple[list[tuple[float | None, Design | Size]], list[Explanation], float | None]:
    """The designs of the budgets, or their sizes where each instance has its own, none of a method that makes scores
    itself; the results of those budgets that have one; and the last budget, as a multiple of d."""
    designs, designed, spend, features = [], [], None, game.features
    for budget, result in zip(method.budgets, results, strict=True):
        try:
            if features.d == 0:
                raise NO_FEATURES
            spend = method.spend(features, budget)
            if method.method.is_design:
                make = method.size if method.samples_designs else method.design
                designs.append((spend, make(features, spend, options.seed)))
            designed.append(result)
        except ShapelineError as error:
            # Where d differs by instance, that some have no design (2^d coalitions) says nothing of the others.
            if options.on_error == "fail" or not feature_kinds.varies(features.kind):
                raise
            result.fail(range(len(result.status)), error, getattr(error, "status", "no design"))
    return designs, designed, spend


def _scorer(method: MethodSettings, game: Game, options: Options, spend: float | None) -> tuple[Call, dict[str, Any]]:
    """The function of a method that makes scores itself, and what it may name beside what differs by chunk."""
    return method.scorer(game.model and game.model.framework), {
        **method.arguments,
        "game": game.having(reference=options.background) if options.background else game,
        "features": game.features,
        "d": game.features.d,
        "seed": options.seed,
        "budget": evaluations_of(spend, game.features.d) if spend else None,
        "dataset": options.dataset,
        "all_points": options.all_points,
        "device": options.device,
        "measure": sources.resolve(method.method.measure).function if method.method.measure else None,
        "parameters": method.arguments,
    }


def _explain_all(run: _Run) -> None:
    one_by_one = run.options.timing == "per_instance" or run.options.time_limit
    step, made = 1 if one_by_one else run.sampling.step, 0
    for start in range(0, len(run.inputs), step):
        places = run.sampling.order[start : start + step]
        asked = _explain(run, places)
        if run.options.progress:
            done = run.sampling.order[: start + step]
            if run.scorer is None and isinstance(asked, Batch):
                made += asked.masks.shape[-2] * len(places)
            else:
                made = sum(int(result.evaluations[done].sum()) for result in run.results)
            run.options.progress(len(done), made)
        if run.options.save and len(run.results) == len(run.method.budgets):
            run.options.save(places, [result.at(places) for result in run.results])
        del asked  # with its designs, before the next chunk's are made


def _explain(run: _Run, places: np.ndarray) -> Batch | Rounds:
    """Explain a chunk; where the method fails, find out which of its instances do."""
    began, asked = now(), run.sampling.ask(places)
    try:
        with limit_time(run.options.time_limit):
            _explain_together(run, places, asked, began)
    except MethodFailure as failure:
        if run.options.on_error == "fail":
            raise
        if len(places) > 1:
            for place in places:
                run.results[-1].details[place].pop("reused", None)
                run.reused[place] = 0.0
                _explain(run, np.array([place]))
        for result in run.results if len(places) == 1 else ():
            result.fail(places, failure, failure.status)
    return asked


def _explain_together(run: _Run, places: np.ndarray, asked: Batch | Rounds, began: Moment) -> None:
    with locate(run.ids[places]):
        if isinstance(asked, Rounds):
            answer, full, empty = asked.explain(lambda rows, masks: _evaluate_among(run, places, rows, masks))
            answers = [answer]
        else:
            values = _evaluate(run, places, asked.masks)
            full, empty = asked.ends(values)
            if run.scorer is None:
                answers = asked.read(values)
            else:
                began = now()  # the values of the ends are not the method's
                answers = [_run_scorer(run, places)]
        took = began.since(waits(run.game, run.options))  # without the ceiling, which is no method's
        run.spent[places] += took / len(places)
        if run.method.method.exact:
            for place, own in zip(places, best_orders(asked.masks, values, run.game.value), strict=True):
                run.results[-1].details[place].update(own)
        for result, answer in zip(run.results, answers, strict=True):
            _store(run, places, result, answer, asked)
            result.value_full[places], result.value_empty[places] = full, empty
        _check_own_answers(run.game, run.inputs[places], run.targets[places], np.asarray(full))
    if asked.several:
        for place, number in zip(places, np.broadcast_to(asked.distinct, len(values)), strict=True):
            run.results[-1].details[place]["evaluated"] = int(number)  # coalitions of all budgets together


def _check_own_answers(game: Game, inputs: np.ndarray, targets: np.ndarray, full: np.ndarray) -> None:
    """Raise ShapelineError where a network answers otherwise of an input among masked rows (n,) than of it alone."""
    model, value = game.model, game.value
    if model is None or model.framework == "function" or value not in ("log_probability", "probability", PREDICTION):
        return
    own = model.predict(inputs) if value == PREDICTION else model.log_probs(inputs)[np.arange(len(inputs)), targets]
    own = np.exp(own) if value == "probability" else own
    apart = np.abs(full - own) > UNEQUAL * (1 + np.abs(own))  # NaN of what failed is not
    check_full(model.architecture, full, own, np.arange(len(own)), apart)


def _evaluate_among(run: _Run, places: np.ndarray, rows: np.ndarray, masks: np.ndarray) -> np.ndarray:
    with locate_input(rows):
        return _evaluate(run, places[rows], masks)


def _share_evaluations(
    game: Game, inputs: np.ndarray, masks: np.ndarray, targets: np.ndarray, sample_keys: np.ndarray
) -> np.ndarray:
    """Values as of Game.values; an input that is explained for several classes is evaluated once for all of them."""
    several = len({*sample_keys.tolist()}) < len(inputs)
    members: dict[tuple[bytes, bytes], list[int]] = {}
    for place, row in enumerate(inputs) if several else ():
        key = row.tobytes(), masks[place].tobytes() if masks.ndim == 3 else b""
        members.setdefault(key, []).append(place)
    if not several or len(members) == len(inputs):
        return game.values(inputs, masks, targets)
    first = np.array([places[0] for places in members.values()])
    wide = np.repeat(targets[first, None], max(map(len, members.values())), axis=1)
    for own, places in zip(wide, members.values(), strict=True):
        own[: len(places)] = targets[places]
    with locate_input(first):
        values = game.values(inputs[first], masks[first] if masks.ndim == 3 else masks, wide)
    result = np.empty((len(inputs), masks.shape[-2]))
    for own, places in zip(values, members.values(), strict=True):
        result[places] = own.T[: len(places)]
    return result


def _evaluate(run: _Run, places: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Values (m, K) of coalitions (K, d) or (m, K, d) of the instances at places (m,); NaN without a model."""
    inputs, targets, sample_keys = run.inputs[places], run.targets[places], run.sample_keys[places]
    if run.game.model is None:
        return np.full((len(places), masks.shape[-2]), np.nan)
    if run.options.values is None or run.scorer is not None:
        return _share_evaluations(run.game, inputs, masks, targets, sample_keys)

    def evaluate(rows: np.ndarray, missing: np.ndarray) -> tuple[np.ndarray, float]:
        began = now()
        with locate_input(rows):
            made = _share_evaluations(run.game, inputs[rows], missing, targets[rows], sample_keys[rows])
        return made, began.since(waits(run.game, run.options))

    named = [run.options.addresses[place] for place in places]
    values, reused, took = run.options.values.values(named, masks, evaluate)
    run.reused[places] += took
    for place, number in zip(places, reused, strict=True):
        details = run.results[-1].details[place]
        details["reused"] = details.get("reused", 0) + int(number)  # of all budgets, or rounds, together
    return values


def _run_scorer(run: _Run, places: np.ndarray) -> Answer:
    """What a method says that makes scores itself."""
    by_id = run.method.method.family == "external"  # which looks instances up, in place of sampling by them
    own = {
        "inputs": run.inputs[places],
        "targets": run.targets[places],
        "instances": (run.ids if by_id else run.sample_keys)[places],
    }
    name, model = run.method.name, run.game.model
    try:
        scores, evaluations, *details = run.scorer({**run.given, **own})
    except CANNOT as error:  # a library, or a derivative, that the model is not made for
        if not model or run.method.method.family not in ("gradients", "peers"):
            raise
        if is_out_of_memory(error):
            raise MethodFailure("out of memory", f"{name}: {first_line(error)}") from error
        raise reject(
            f"{name}: the model '{model.architecture}' is not supported, {type(error).__name__}: {first_line(error)}"
        ) from error
    return Answer(scores, evaluations, *(details or [{}]))


def _store(run: _Run, places: np.ndarray, result: Explanation, answer: Answer, asked: Batch | Rounds) -> None:
    """Write the answer of a method for a chunk into its places of the result."""
    shape = run.game.features.shape
    result.scores[places] = np.reshape(answer.scores, (-1, *shape))
    result.evaluations[places] = answer.evaluations
    for name, own in (("standard_error", shape), ("interaction_values", (-1,)), ("interactions_standard_error", (-1,))):
        if (outcome := getattr(answer, name)) is not None:
            outcome = np.reshape(outcome, (len(places), *own))
            if getattr(result, name) is None:
                setattr(result, name, np.full((len(result.scores), *outcome.shape[1:]), np.nan))
            getattr(result, name)[places] = outcome
    details = dict(answer.details)
    share = answer.evaluations / asked.masks.shape[-2] if asked.several else 1.0
    result.seconds[places] = details.pop("seconds", (run.spent[places] + run.reused[places]) * share)
    for name, numbers in details.items():
        for place, number in zip(places, numbers, strict=True):
            if name == "warning":
                result.warning[place] = number
            else:
                result.details[place][name] = float(number)
