"""Run one method on instances: build its design, evaluate it, read it out; a failure becomes a row with its reason."""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from shapeline.attribution import clock
from shapeline.attribution.asked import Answer, Asked, Drawn, shared
from shapeline.attribution.ceiling import best_orders
from shapeline.attribution.clock import Moment
from shapeline.attribution.explanation import Explanation, blank
from shapeline.attribution.rounds import Rounds
from shapeline.attribution.time_limit import limited
from shapeline.attribution.value_store import ValueStore
from shapeline.datasets.loading import Dataset
from shapeline.designs.design import Design
from shapeline.designs.design import evaluations as evaluations_of
from shapeline.designs.draws import at_a_time, draws
from shapeline.designs.stopping import Until
from shapeline.engine.question import Question
from shapeline.errors import MethodFailure, ShapelineError, about, among, first_line, unsupported
from shapeline.game import features as feature_kinds
from shapeline.game.features import Features
from shapeline.game.references import Reference
from shapeline.memory import ran_out
from shapeline.methods import calling, registry
from shapeline.methods.calling import PLANNED
from shapeline.methods.design import Size, design_of, size_of
from shapeline.methods.registry import METHODS, Method
from shapeline.seeds import seed_of

NO_FEATURES = MethodFailure("no features", "the instance is nothing but padding, so there is nothing to score")
# What a library or a framework raises for a model that it cannot take.
CANNOT = (RuntimeError, ValueError, TypeError, AttributeError, AssertionError, LookupError)
CHUNK = 32  # instances between two progress lines
DATA_CHUNK = 256  # of a method that reads all the data once a chunk
CHUNK_VALUES = 1_000_000  # values of a chunk: 8 MB, and seconds between two progress lines
CHUNK_BYTES = 1 << 28  # of its inputs: some methods hold them all on the device


@dataclass(frozen=True)
class Options:
    """How a method is run.

    budgets: multiples of d, for sampled methods, or one Until; an Explanation for each. A coalition that several
    budgets use is evaluated once, and `seconds` are shared out by evaluations.
    seed: of this label and repeat.
    instances: ids, positions by default.
    draws: what seeds each instance's own draws with the seed; the ids by default.
    on_error: "record" makes a MethodFailure a row with its status, "fail" raises it.
    progress: called with the instances done and the evaluations made.
    save: called with the positions of a chunk of instances and their explanations, one per budget.
    values: of this question's coalitions, and `addresses` of the instances among them; `evaluations` are what the
    method asks, and `seconds` what that took, in this run or when it was kept.
    dataset: whose training part the methods of labelled points read; all_points: all of it.
    background: reference of a method that makes scores itself, in place of the question's.
    device: of what is computed beside the model.
    timing: "per_instance" explains and times one instance after another.
    time_limit: seconds after which an instance has failed, all budgets together; then too they are explained one after
    another, and in the main thread.
    """

    budgets: Sequence[float | Until | None] = (None,)
    seed: int = 0
    instances: Sequence[int] | None = None
    draws: Sequence[object] | None = None
    on_error: str = "record"
    progress: Callable[[int, int], None] | None = None
    save: Callable[[np.ndarray, list[Explanation]], None] | None = None
    values: ValueStore | None = None
    addresses: Sequence[str] = ()
    dataset: Dataset | None = None
    all_points: bool = False
    background: Reference | None = None
    device: str = "cpu"
    timing: str = "batch"
    time_limit: float | None = None


@dataclass(frozen=True)
class _Run:
    """A method on its instances. results: of the budgets that have a design; spent (n,): seconds of all of them, and
    reused (n,): those that stored values took when they were evaluated. addresses (n,): of the instances in the store
    of values. positions (n,): of the instances among those that were given.

    asks: from a chunk to what it is asked. function, given: of a method that makes scores itself; it is called with
    those of `given` that it names.
    """

    question: Question
    inputs: np.ndarray
    targets: np.ndarray
    ids: np.ndarray
    draws: np.ndarray
    addresses: np.ndarray
    positions: np.ndarray
    options: Options
    asks: Callable[[slice], Asked | Rounds]
    results: list[Explanation]
    spent: np.ndarray
    reused: np.ndarray
    function: Callable | None = None
    given: dict = field(default_factory=dict)
    complete: bool = False  # the values of all coalitions are asked

    @property
    def by_id(self) -> bool:
        """Whether the method looks instances up, in place of drawing by them."""
        return METHODS[self.given["method"]].family == "external"


def attribute(
    question: Question, inputs: np.ndarray, targets: np.ndarray, settings: dict, options: Options | None = None
) -> list[Explanation]:
    """Explain inputs (n, *input shape) for targets (n,) by the method of `settings` ({"method": name, ...parameters}).

    question: of a method that asks no model, the model may be None. An Explanation for each budget of the options.
    Raises ShapelineError for a model that returns NaN, and for any failure when on_error is "fail".
    """
    began, options = clock.now(), options or Options()
    method = METHODS[settings["method"]]
    results = [blank(len(inputs), question.features, targets) for _ in options.budgets]
    try:
        _check_method(settings["method"], question, options)
    except MethodFailure as failure:
        if options.on_error == "fail":
            raise
        for result in results:
            result.status, result.error = [failure.status] * len(inputs), [str(failure)] * len(inputs)
        return results
    if question.model and len(inputs):
        question.model.check_rows(inputs)
    ids = np.arange(len(inputs)) if options.instances is None else np.asarray(options.instances)
    named = ids if options.draws is None else np.asarray(options.draws)
    designs, designed, budget = _designs(settings, question.features, options, results)
    if not designed:
        return results
    asks, order = _asks(settings, question.features, options, designs, named)
    spent = np.full(len(inputs), began.since(waits(question, options)) / max(len(inputs), 1))
    function, given = (None, {}) if designs else _scorer(method, settings, question, options, budget)
    own = designed
    addresses, positions = np.asarray(options.addresses, dtype=object), np.arange(len(inputs))
    if order is not None:
        inputs, targets, ids, named, positions = (each[order] for each in (inputs, targets, ids, named, positions))
        own, addresses = [each.at(order) for each in designed], addresses[order] if len(addresses) else addresses
    of_instances = inputs, targets, ids, named, addresses, positions
    run = _Run(question, *of_instances, options, asks, own, spent, 0 * spent, function, given, method.exact)
    _explain_all(run, _chunk_size(method, designs, inputs, options, order is not None))
    if order is not None:
        for result, in_order in zip(designed, own, strict=True):
            result.put(order, in_order)
    return results


def warm_up(question: Question, settings: dict, options: Options) -> None:
    """Make a design and read it out once: what they import, and the first use of it, is no instance's seconds."""
    method, features = METHODS[settings["method"]], question.features
    if not method.is_design or not features.d:
        return
    with contextlib.suppress(ShapelineError):  # what this raises, the method will too
        spend = _spend(settings, features, options.budgets[-1])
        design = design_of(_parameters(settings, options), features, spend, options.seed, keep=False)
        values = np.random.default_rng(0).random((1, design.evaluations))
        if method.reads_stack:
            _reader(method.reads_stack, settings)(design.masks[None], values)
        elif method.reads:
            _reader(method.reads, settings)(design, values)
        else:
            design.attribute(values)


def waits(question: Question, options: Options) -> bool:
    """Whether the numbers may come from elsewhere: a GPU, or what a function asks."""
    return options.device != "cpu" or bool(question.model and question.model.framework == "function")


def _explain_all(run: _Run, step: int) -> None:
    made = 0
    for start in range(0, len(run.inputs), step):
        part = slice(start, min(start + step, len(run.inputs)))
        asked = _explain(run, part)
        if run.options.progress:
            planned = run.function is None and isinstance(asked, Asked)
            made += asked.masks.shape[-2] * (part.stop - part.start) if planned else 0
            run.options.progress(part.stop, made if planned else _evaluations(run.results, part.stop))
        if run.options.save and len(run.results) == len(run.options.budgets):
            places = np.arange(part.start, part.stop)
            run.options.save(run.positions[places], [result.at(places) for result in run.results])
        del asked  # with its designs, before the next chunk's are made


def _check_method(name: str, question: Question, options: Options) -> None:
    """Stop where the method cannot run on this question at all."""
    method, model, dataset = METHODS[name], question.model, options.dataset
    if method.family == "data" and dataset is None:
        raise ShapelineError(f"{name} needs labelled points: run it in an experiment of the workflow")
    if method.family == "data" and dataset.labels.ndim == 2:
        raise ShapelineError(f"{name} compares points of one label each; these have several")
    if lacking := registry.missing(name):
        raise ShapelineError(lacking)
    if method.torch_only and model and model.framework == "tensorflow":  # a job imports one framework
        raise unsupported(
            f"{name} needs a torch model and '{model.architecture}' is a tensorflow one; give it in "
            "torch, or use expected_gradients or a method of coalitions"
        )


def _designs(
    settings: dict, features: Features, options: Options, results: list[Explanation]
) -> tuple[list[tuple[float | None, Design | Size]], list[Explanation], int | None]:
    """The designs of the budgets, or their sizes where each instance has its own, none of a method that makes scores
    itself; the results of those budgets that have
    one; and the evaluations an instance that the last budget allows."""
    designs, designed, count = [], [], None
    for budget, result in zip(options.budgets, results, strict=True):
        try:
            if features.d == 0:
                raise NO_FEATURES
            spend = _spend(settings, features, budget)
            if METHODS[settings["method"]].is_design:
                make = size_of if METHODS[settings["method"]].is_random(settings) else design_of
                designs.append((spend, make(_parameters(settings, options), features, spend, options.seed)))
            elif spend:
                count = evaluations_of(spend, features.d)
            designed.append(result)
        except ShapelineError as error:
            # Where d differs by instance, that some have no design (2^d coalitions) says nothing of the others.
            if options.on_error == "fail" or not feature_kinds.varies(features.kind):
                raise
            result.status = [getattr(error, "status", "no design")] * len(result.status)
            result.error = [str(error)] * len(result.error)
    return designs, designed, count


def _asks(
    settings: dict,
    features: Features,
    options: Options,
    designs: list[tuple[float | None, Design | Size]],
    named: np.ndarray,
) -> tuple[Callable[[slice], Asked | Rounds], np.ndarray | None]:
    """What a chunk is asked, and an order of the instances in which those of one design follow each other; None where
    a design serves all. A sampled design is drawn for every instance."""
    method = METHODS[settings["method"]]
    reader = _reader(method.reads, settings)
    if not (method.is_design and method.is_random(settings)):
        every = shared([design for _, design in designs], features.d, reader)
        return lambda part: every, None
    most = max(design.evaluations for _, design in designs)
    drawn = draws(options.seed, named.tolist(), features.d, most, method.exchangeable)
    order = np.argsort(drawn.numbers.astype(object), kind="stable")
    orders = None if drawn.orders is None else drawn.orders[order]
    drawn = dataclasses.replace(drawn, numbers=drawn.numbers[order], orders=orders)
    parameters = _parameters(settings, options)

    def asks(spends: Sequence[float | None]) -> Callable[[np.ndarray], Asked]:
        def make(number: int) -> list[Design]:
            seed = number if drawn.orders is None else seed_of(options.seed, "pool", number)
            return [design_of(parameters, features, spend, seed, keep=False) for spend in spends]

        return Drawn(features.d, drawn, make, reader, stack).asked

    stack = _reader(method.reads_stack, settings)
    if until := _until(options):
        rounds = [asks([spent / features.d]) for spent in _rounds(until, method, features.d)]
        return lambda part: Rounds(np.arange(part.start, part.stop), rounds, until, method.falls, method.rounds), order
    every = asks([spend for spend, _ in designs])
    return lambda part: every(np.arange(part.start, part.stop)), order


def _reader(reference: str | None, settings: dict) -> Callable | None:
    """The function that makes scores of values, given the settings that it names; None where the readout does."""
    return calling.with_settings(calling.function_of(reference), settings) if reference else None


def _spend(settings: dict, features: Features, budget: float | Until | None) -> float | None:
    """The budget as a multiple of d: that of the entry, what its rival of fixed cost spends on these features, or that
    of the first round."""
    if isinstance(budget, Until):
        return _rounds(budget, METHODS[settings["method"]], features.d)[0] / features.d
    if "rival" not in settings:
        return budget
    return design_of(settings["rival"], features, None, 0).evaluations / features.d


def _until(options: Options) -> Until | None:
    """What ends the rounds, where the budget is none that is fixed."""
    return options.budgets[-1] if isinstance(options.budgets[-1], Until) else None


def _rounds(until: Until, method: Method, d: int) -> list[int]:
    return until.rounds(d, method.first_round, method.largest)


def _parameters(settings: dict, options: Options) -> dict:
    """The settings without what the workflow plans with; and that the design is to grow, where it is made in rounds."""
    own = {key: setting for key, setting in settings.items() if key not in PLANNED}
    return {**own, "grows": True} if _until(options) else own


def _scorer(
    method: Method, settings: dict, question: Question, options: Options, budget: int | None
) -> tuple[Callable, dict]:
    """The function of a method that makes scores itself, and what it may name beside what differs by chunk."""
    function = calling.function_of(method.function_for(question.model and question.model.framework))
    parameters = _parameters(settings, options)
    return function, {
        **parameters,
        "question": question.having(reference=options.background) if options.background else question,
        "features": question.features,
        "d": question.features.d,
        "seed": options.seed,
        "budget": budget,
        "dataset": options.dataset,
        "all_points": options.all_points,
        "device": options.device,
        "measure": calling.function_of(method.measure) if method.measure else None,
        "parameters": {key: setting for key, setting in parameters.items() if key != "method"},
    }


def _chunk_size(
    method: Method, designs: list[tuple[float | None, Design | Size]], inputs: np.ndarray, options: Options, drawn: bool
) -> int:
    """Instances that are explained together."""
    if options.timing == "per_instance" or options.time_limit:
        return 1
    most = DATA_CHUNK if method.measure else CHUNK
    masks = sum(design.evaluations for _, design in designs) + 2
    if until := _until(options):
        masks = _rounds(until, method, designs[0][1].d)[-1]
    sizes = [most, CHUNK_VALUES // masks, CHUNK_BYTES // max(1, inputs[:1].nbytes)]
    if drawn:  # masks of each instance, and designs for some of them
        d = designs[0][1].d
        whole_pool = method.exchangeable and len(designs) == 1 and not until  # rounds and budgets hold theirs each
        sizes += [CHUNK_BYTES // (masks * d), at_a_time(d, masks, whole_pool) or most]
    return max(1, min(sizes))


def _explain(run: _Run, part: slice) -> Asked | Rounds:
    """Explain a chunk; where the method fails, find out which of its instances do."""
    began = clock.now()
    asked = run.asks(part)
    try:
        with limited(run.options.time_limit):
            _explain_part(run, part, asked, began)
    except MethodFailure as failure:
        if run.options.on_error == "fail":
            raise
        if part.stop - part.start == 1:
            _failed(run, part.start, failure)
        else:
            _retry_alone(run, part)
    return asked


def _retry_alone(run: _Run, part: slice) -> None:
    for i in range(part.start, part.stop):
        run.results[-1].extra[i].pop("reused", None)
        run.reused[i] = 0.0
        began, alone = clock.now(), slice(i, i + 1)
        try:
            _explain_part(run, alone, run.asks(alone), began)
        except MethodFailure as failure:
            _failed(run, i, failure)


def _failed(run: _Run, i: int, failure: MethodFailure) -> None:
    for result in run.results:
        result.status[i], result.error[i] = failure.status, str(failure)


def _explain_part(run: _Run, part: slice, asked: Asked | Rounds, began: Moment) -> None:
    with about(run.ids[part]):
        if isinstance(asked, Rounds):
            answer, full, empty = _in_rounds(run, part, asked)
            answers = [answer]
        else:
            values = _values(run, part, asked.masks)
            full, empty = asked.ends(values)
            if run.function is None:
                answers = asked.read(values)
            else:
                began = clock.now()  # the values of the ends are not the method's
                answers = [_from_scorer(run, part)]
        took = began.since(waits(run.question, run.options))  # without the ceiling, which is no method's
        run.spent[part] += took / len(run.inputs[part])
        if run.complete:
            for extra, own in zip(
                run.results[-1].extra[part], best_orders(asked.masks, values, run.question.value), strict=True
            ):
                extra.update(own)
        for result, answer in zip(run.results, answers, strict=True):
            _store(run, part, result, answer, asked)
            result.value_full[part], result.value_empty[part] = full, empty
    if asked.several:
        distinct = np.broadcast_to(asked.distinct, len(values))
        for extra, number in zip(run.results[-1].extra[part], distinct, strict=True):
            extra["evaluated"] = int(number)  # coalitions of all budgets together


def _in_rounds(run: _Run, part: slice, asked: Rounds) -> tuple[Answer, np.ndarray, np.ndarray]:
    def evaluate(rows: np.ndarray, masks: np.ndarray) -> np.ndarray:
        with among(rows):
            return _values(run, part.start + rows, masks)

    return asked.explain(evaluate)


def _values(run: _Run, places: slice | np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Values (m, K) of the coalitions asked (K, d) or (m, K, d) on instances; NaN without a model."""
    inputs, targets = run.inputs[places], run.targets[places]
    if run.question.model is None:
        return np.full((len(inputs), asked.shape[-2]), np.nan)
    if run.options.values is None or run.function is not None:
        return run.question.values(inputs, asked, targets)

    def evaluate(rows: np.ndarray, masks: np.ndarray) -> tuple[np.ndarray, float]:
        began = clock.now()
        with among(rows):
            made = run.question.values(inputs[rows], masks, targets[rows])
        return made, began.since(waits(run.question, run.options))

    values, reused, took = run.options.values.values(run.addresses[places], asked, evaluate)
    run.reused[places] += took
    for i, number in zip(np.arange(len(run.ids))[places], reused, strict=True):
        extra = run.results[-1].extra[i]
        extra["reused"] = extra.get("reused", 0) + int(number)  # of all budgets, or rounds, together
    return values


def _from_scorer(run: _Run, part: slice) -> Answer:
    """What a method says that makes scores itself."""
    own = {
        "inputs": run.inputs[part],
        "targets": run.targets[part],
        "instances": (run.ids if run.by_id else run.draws)[part],
    }
    name = run.given["method"]
    try:
        scores, evaluations, *said = calling.call(run.function, {**run.given, **own})
    except CANNOT as error:  # a library, or a derivative, that the model is not made for
        if not run.question.model or METHODS[name].family not in ("gradients", "peers"):
            raise
        if ran_out(error):
            raise MethodFailure("out of memory", f"{name}: {first_line(error)}") from error
        raise unsupported(
            f"{name} cannot take '{run.question.model.architecture}': {type(error).__name__}: {first_line(error)}"
        ) from error
    return Answer(scores, evaluations, *(said or [{}]))


def _store(run: _Run, part: slice, result: Explanation, answer: Answer, asked: Asked | Rounds) -> None:
    """Put what a method said of a chunk into its columns of the result."""
    result.scores[part] = np.reshape(answer.scores, (-1, *run.question.features.shape))
    result.evaluations[part] = answer.evaluations
    if answer.uncertainty is not None:
        if result.uncertainty is None:
            result.uncertainty = np.full(result.scores.shape, np.nan)
        result.uncertainty[part] = np.reshape(answer.uncertainty, (-1, *run.question.features.shape))
    if answer.pairs is not None:
        if result.pairs is None:
            result.pairs = np.full((len(result.scores), answer.pairs.shape[1]), np.nan)
        result.pairs[part] = answer.pairs
    if answer.pairs_uncertainty is not None:
        if result.pairs_uncertainty is None:
            result.pairs_uncertainty = np.full(result.pairs.shape, np.nan)
        result.pairs_uncertainty[part] = answer.pairs_uncertainty
    share = answer.evaluations / asked.masks.shape[-2] if asked.several else 1.0
    result.seconds[part] = (
        answer.said["seconds"] if "seconds" in answer.said else (run.spent[part] + run.reused[part]) * share
    )
    for name, numbers in answer.said.items():
        if name == "seconds":
            continue
        for i, number in zip(range(part.start, part.stop), numbers, strict=True):
            if name == "flag":
                result.flag[i] = number
            else:
                result.extra[i][name] = float(number)


def _evaluations(results: Sequence[Explanation], stop: int) -> int:
    """Made of the first instances, of all budgets."""
    return sum(int(result.evaluations[:stop].sum()) for result in results)
