"""Coalitions that a method evaluates per instance: of one design, of a sample per instance, or of adaptive rounds."""

import contextlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from shapeline.designs.design import Design, unique_rows
from shapeline.designs.stopping import AT_THE_CAP, Foretold, StoppingCriterion
from shapeline.games.features import Features
from shapeline.methods.settings import MethodSettings, Size
from shapeline.seeds import seed_of
from shapeline.threads import MOMENT, Result, count_allowed, limit_to_one, run_tasks

POOL = 1024  # designs at most; each is created when an instance first needs it
FEWEST = 12  # however expensive they are
POOL_WORK = 1 << 34  # multiplications that the pool's factorisations may take: a second
READOUT_BYTES = 1 << 28  # of the designs that a chunk of instances holds


@dataclass(frozen=True)
class InstanceSamples:
    """Which design of the pool each of n instances has, numbers (n,), and its permutation of the features.

    orders (n, d): feature j of the pool's design is feature orders[i, j] of instance i; None where the features are
    not exchangeable, and each number is a seed of its own. threads: that share out what is done for each design.
    """

    numbers: np.ndarray
    orders: np.ndarray | None
    threads: int = 1
    large: bool = True

    def masks(self, designs_masks: Sequence[np.ndarray], part: np.ndarray) -> np.ndarray:
        """Masks (a, K, d) of the instances at `part` (a,), from those of their designs, each (K, d)."""
        if self.orders is None:
            return np.stack(designs_masks)
        own = np.empty((len(part), *designs_masks[0].shape), bool)

        def take(each: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
            masks, of_feature, taken = each
            np.take(masks, of_feature, axis=1, out=taken, mode="clip")  # `take_along_axis` takes four times as long

        each = list(zip(designs_masks, self.orders[part].argsort(axis=1), own, strict=True))
        self.run_shared(take, each)
        return own

    def run_shared(self, run: Callable[[Any], Result], tasks: Sequence) -> list[Result]:
        """Return the result of `run` per task, by the samples' threads; the linear algebra of each keeps to its own."""
        # Once: to set it for each task costs a tenth of a millisecond and has threads wait.
        with contextlib.nullcontext() if self.large or len(tasks) < 2 else limit_to_one(0):
            return list(run_tasks(run, tasks, self.threads))

    def scores(self, of_designs: np.ndarray, part: np.ndarray) -> np.ndarray:
        """Scores (a, d) by the instances' own features, from those by the features of their designs."""
        if self.orders is None:
            return of_designs
        own = np.empty_like(of_designs)
        np.put_along_axis(own, self.orders[part], of_designs, axis=1)
        return own

    def pairs(self, of_designs: np.ndarray, part: np.ndarray) -> np.ndarray:
        """Interactions (a, d (d-1) / 2) of the instances' own pairs, from those of their designs'."""
        if self.orders is None:
            return of_designs
        d = self.orders.shape[1]
        of_feature = self.orders[part].argsort(axis=1)  # the design's feature that is an instance's
        a, b = np.sort(of_feature[:, np.triu_indices(d, 1)], axis=1).swapaxes(0, 1)
        return np.take_along_axis(of_designs, a * (2 * d - a - 1) // 2 + b - a - 1, axis=1)


def assign_samples(
    seed: int, instances: Sequence[Hashable], d: int, evaluations: int, exchangeable: bool = True
) -> InstanceSamples:
    """The samples of instances, by a seed of (seed, instance) each, so that none depends on the others.

    seed: of the method and repeat; instances: what seeds each, an id or a digest; evaluations: of a design, K.
    """
    if not exchangeable:
        return InstanceSamples(np.array([seed_of(seed, instance) for instance in instances], dtype=object), None)
    pool = pool_size(d, evaluations)
    numbers, orders = np.empty(len(instances), np.int64), np.empty((len(instances), d), np.int64)
    for place, instance in enumerate(instances):
        random = np.random.default_rng(seed_of(seed, instance))
        numbers[place], orders[place] = random.integers(pool), random.permutation(d)
    # Small designs are made before threads could start; those of large ones are the linear algebra's.
    large = evaluations * d * d >= 4 * MOMENT
    return InstanceSamples(numbers, orders, count_allowed() if pool < POOL and not large else 1, large)


def pool_size(d: int, evaluations: int) -> int:
    """Designs of the pool: as many as some seconds make, at least FEWEST."""
    return int(np.clip(POOL_WORK // max(1, evaluations * d * d), FEWEST, POOL))


def count_at_once(d: int, evaluations: int, exchangeable: bool = True) -> int | None:
    """Instances that may be explained together, each with a design that is held; None where the whole pool may be."""
    most = max(1, READOUT_BYTES // (8 * d * evaluations))
    return None if exchangeable and pool_size(d, evaluations) <= most else most


# From a design and the values (m, K) of its masks to scores (m, d) and their standard error (m, d), or None; and
# perhaps the standard error of its pairs.
Reader = Callable[[Design, np.ndarray], tuple[np.ndarray | None, ...]]
# The same from masks of each instance (m, K, d), for what reads all of a chunk together; and perhaps pairs and theirs.
StackReader = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray | None, ...]]


class Answer(NamedTuple):
    """What a method says of a chunk at one budget: scores (m, d), evaluations (m,) or of each, and more by name."""

    scores: np.ndarray
    evaluations: np.ndarray | int
    details: dict[str, Sequence]
    standard_error: np.ndarray | None = None
    interaction_values: np.ndarray | None = None  # (m, d (d-1) / 2)
    interactions_standard_error: np.ndarray | None = None  # of the same shape


@dataclass(frozen=True)
class Batch:
    """The coalitions that a chunk is asked about: those of its designs, a design for each budget, and both ends.

    masks (K, d) of all instances, or (m, K, d) of each; full, empty: where the ends are, one place or (m,); distinct:
    how many of the masks the designs have, one number or (m,). read: from the values (m, K) to an answer a budget.
    """

    masks: np.ndarray
    full: np.ndarray | int
    empty: np.ndarray | int
    distinct: np.ndarray | int
    read: Callable[[np.ndarray], list[Answer]]
    several: bool = False  # budgets

    def ends(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values (m,) of the full and of the empty coalition."""
        rows = np.arange(len(values))
        return values[rows, self.full], values[rows, self.empty]


@dataclass(frozen=True)
class Together:
    """The designs of several budgets as one set of masks (K, d), and the columns of each."""

    designs: list[Design]
    masks: np.ndarray
    columns: list[np.ndarray]
    full: int
    empty: int
    distinct: int


def merge_designs(designs: list[Design], d: int) -> Together:
    """Coalitions that several designs use are asked once; both ends are there, whether a design uses them or not."""
    masks, columns = _union(designs, d)
    with_ends, full, empty = _add_ends(masks)
    return Together(designs, with_ends, columns, full, empty, len(masks))


def share_design(designs: list[Design], d: int, reader: Reader | None = None) -> Batch:
    """What every chunk is asked where one design a budget serves all instances: that of a fixed cost."""
    every = merge_designs(designs, d)
    columns = [slice(0, every.distinct)] if len(designs) == 1 else every.columns  # a view, where that will do

    def read(values: np.ndarray) -> list[Answer]:
        return [_answer(reader, design, values[:, own]) for design, own in zip(every.designs, columns, strict=True)]

    return Batch(every.masks, every.full, every.empty, every.distinct, read, len(designs) > 1)


@dataclass
class SampledMasks:
    """Chunks of instances with a sample each; make: from a sample's number to its designs, one a budget."""

    d: int
    samples: InstanceSamples
    make: Callable[[int], list[Design]]
    reader: Reader | None = None
    stack_reader: StackReader | None = None
    held: dict[int, Together] = field(default_factory=dict)

    def select(self, places: np.ndarray) -> Batch:
        """The coalitions (m, K, d) of the instances at `places`; where a sample has fewer, its first is there again."""
        numbers = [int(number) for number in self.samples.numbers[places]]
        self.held = {number: each for number, each in self.held.items() if number in numbers}
        # What is no longer asked is gone before what is new is made.
        new = [number for number in dict.fromkeys(numbers) if number not in self.held]
        made = self.samples.run_shared(lambda number: merge_designs(self.make(number), self.d), new)
        self.held.update(zip(new, made, strict=True))
        own = [self.held[number] for number in numbers]
        most = max(len(each.masks) for each in own)
        masks = self.samples.masks([_pad_masks(each.masks, most) for each in own], places)

        def read(values: np.ndarray) -> list[Answer]:
            count = len(own[0].designs)
            if self.stack_reader:
                return [self._read_by_stack(own, masks, values, budget) for budget in range(count)]
            return [self._read_by_design(own, numbers, places, values, budget) for budget in range(count)]

        ends = (np.array([getattr(each, name) for each in own]) for name in ("full", "empty", "distinct"))
        return Batch(masks, *ends, read, len(own[0].designs) > 1)

    def _read_by_design(
        self, own: list[Together], numbers: list[int], places: np.ndarray, values: np.ndarray, budget: int
    ) -> Answer:
        """Each design reads the instances that have it; what it says is of its features, and is put on theirs."""
        scores, standard_error = np.empty((len(own), self.d)), np.full((len(own), self.d), np.nan)
        pairs, spread, known = None, None, False
        of_number = {number: np.flatnonzero([other == number for other in numbers]) for number in self.held}

        def answer_of(number: int) -> Answer:
            each = self.held[number]
            asked = values[np.ix_(of_number[number], each.columns[budget])]
            return _answer(self.reader, each.designs[budget], asked)

        answers = self.samples.run_shared(answer_of, list(self.held))
        for rows, answer in zip(of_number.values(), answers, strict=True):
            scores[rows] = answer.scores
            if answer.standard_error is not None:
                standard_error[rows], known = answer.standard_error, True
            if answer.interaction_values is not None:
                pairs = np.empty((len(own), answer.interaction_values.shape[1])) if pairs is None else pairs
                pairs[rows] = answer.interaction_values
            if answer.interactions_standard_error is not None:
                spread = np.full(pairs.shape, np.nan) if spread is None else spread
                spread[rows] = answer.interactions_standard_error
        spent = np.array([each.designs[budget].evaluations for each in own])
        return Answer(
            *(self.samples.scores(scores, places), spent, {}),
            self.samples.scores(standard_error, places) if known else None,
            *(None if one is None else self.samples.pairs(one, places) for one in (pairs, spread)),
        )

    def _read_by_stack(self, own: list[Together], masks: np.ndarray, values: np.ndarray, budget: int) -> Answer:
        """All instances at once, each by its own masks; designs of one budget have as many."""
        columns = np.stack([each.columns[budget] for each in own])
        scores, *more = self.stack_reader(
            np.take_along_axis(masks, columns[:, :, None], axis=1), np.take_along_axis(values, columns, axis=1)
        )
        return Answer(scores, np.array([each.designs[budget].evaluations for each in own]), {}, *more)


def _answer(reader: Reader | None, design: Design, values: np.ndarray) -> Answer:
    scores, standard_error, *more = reader(design, values) if reader else (design.attribute(values), None)
    return Answer(scores, design.evaluations, {}, standard_error, design.attribute_pairs(values), *more)


def _pad_masks(masks: np.ndarray, most: int) -> np.ndarray:
    """Masks (K, d) with the first of them again until there are as many as `most`."""
    lacking = most - len(masks)
    return np.concatenate([masks, np.repeat(masks[:1], lacking, axis=0)]) if lacking else masks


def _union(designs: Sequence[Design], d: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """The distinct coalitions of the designs (K, d), and for each design the columns of its own."""
    if len(designs) < 2:
        return (designs[0].masks, [np.arange(designs[0].evaluations)]) if designs else (np.zeros((0, d), bool), [])
    masks = np.concatenate([design.masks for design in designs])
    first, inverse = unique_rows(masks)
    return masks[first], np.split(inverse, np.cumsum([design.evaluations for design in designs])[:-1])


def _add_ends(masks: np.ndarray) -> tuple[np.ndarray, int, int]:
    """Return the masks with both ends, which are not charged for, and the positions of these."""
    sizes = masks.sum(1)
    positions, missing = [], []
    for size, end in ((masks.shape[1], True), (0, False)):
        places = np.flatnonzero(sizes == size)
        positions.append(int(places[0]) if len(places) else len(masks) + len(missing))
        if not len(places):
            missing.append(np.full((1, masks.shape[1]), end))
    return np.concatenate([masks, *missing]), *positions


@dataclass(frozen=True, eq=False)
class Rounds:
    """What a chunk is asked where nobody knows before how much.

    places (n,): of its instances. asks: of each round, from some places to what they are asked, which includes what
    they were asked before. until: what has to hold. falls: power of the evaluations with which errors fall, where a
    round's prediction is not to be taken alone. least: rounds before an explanation may stop that is not certain.
    together: none stops before all may.
    """

    places: np.ndarray
    asks: Sequence[Callable[[np.ndarray], Batch]]
    until: StoppingCriterion
    convergence_rate: float | None = None
    min_rounds: int = 1
    together: bool = False
    several = False  # budgets

    def explain(
        self, evaluate: Callable[[np.ndarray, np.ndarray], np.ndarray]
    ) -> tuple[Answer, np.ndarray, np.ndarray]:
        """The answer on the chunk, and its values of the full and of the empty coalition (n,).

        evaluate: from positions in the chunk (m,) and masks of each (m, K, d) to values (m, K).
        """
        n = len(self.places)
        full, empty, spent = np.empty(n), np.empty(n), np.zeros(n, np.int64)
        scores, standard_error, details = None, None, {"rounds": np.zeros(n), "warning": [AT_THE_CAP] * n}
        left, held = np.arange(n), _Held(n)
        for number, ask in enumerate(self.asks, 1):
            asked = ask(self.places[left])
            values = held.values(left, asked.masks, evaluate)
            full[left], empty[left] = asked.ends(values)
            [answer] = asked.read(values)
            if scores is None:
                scores, standard_error = np.empty((2, n, asked.masks.shape[2]))
                earlier = Foretold(*scores.shape, self.convergence_rate) if self.convergence_rate else None
            if earlier:
                widened = earlier.widen(left, answer.evaluations, answer.scores, answer.standard_error)
                answer = answer._replace(standard_error=widened)
            scores[left], spent[left] = answer.scores, answer.evaluations
            standard_error[left] = np.nan if answer.standard_error is None else answer.standard_error
            details["rounds"][left] += 1
            exact = ~standard_error[left].any(axis=1)  # also where equal scores have no order
            met = self.until.is_met(answer.scores, answer.standard_error, full[left] - empty[left]) | exact
            if number < min(self.min_rounds, len(self.asks)):
                met &= exact
            if self.together:
                met &= met.all()
            for row in left[met]:
                details["warning"][row] = None
            left = left[~met]
            if not len(left):
                break
        return Answer(scores, spent, details, standard_error), full, empty


class _Held:
    """The values that each of n instances was asked for, so that none is asked twice."""

    def __init__(self, n: int):
        random = np.random.default_rng(0)
        self.salt = random.integers(1 << 63, size=n, dtype=np.uint64)
        self.keys, self.known = np.zeros(0, np.uint64), np.zeros(0)

    def values(self, rows: np.ndarray, masks: np.ndarray, evaluate: Callable) -> np.ndarray:
        """Values (m, K) of masks (m, K, d) on the instances at `rows` (m,), those not held from `evaluate`."""
        packed = np.packbits(masks, axis=2)
        numbers = np.random.default_rng(1).integers(1 << 63, size=(packed.shape[2], 256), dtype=np.uint64)
        # A coalition of an instance is known by the exclusive or of random numbers: 63 bits, no two are taken for one.
        keys = np.bitwise_xor.reduce(numbers[np.arange(len(numbers)), packed], axis=2) ^ self.salt[rows, None]
        every, first, place = np.unique(keys, return_index=True, return_inverse=True)
        table = np.full(len(every), np.nan)
        at = np.searchsorted(every, self.keys).clip(max=len(every) - 1)
        mine = every[at] == self.keys
        table[at[mine]] = self.known[mine]
        fresh = np.zeros(keys.shape, bool)
        fresh.ravel()[first[np.isnan(table)]] = True
        most = fresh.sum(axis=1).max()
        if most:  # an instance that has fewer is asked some again
            columns = np.argsort(~fresh, axis=1, kind="stable")[:, :most]
            asked = np.take_along_axis(masks, columns[:, :, None], axis=1)
            place_of = np.take_along_axis(place.reshape(keys.shape), columns, axis=1)
            table[place_of] = evaluate(rows, asked)
        self.keys, self.known = every, table
        return table[place.reshape(keys.shape)]


CHUNK = 32  # instances between two progress lines
DATA_CHUNK = 256  # of a method that reads all the data once a chunk
CHUNK_VALUES = 1_000_000  # values of a chunk: 8 MB, and seconds between two progress lines
CHUNK_BYTES = 1 << 28  # of its inputs: some methods hold them all on the device


@dataclass(frozen=True)
class Sampling:
    """The masks asked of instances (m,), the order (n,) that groups equal designs, and the size of a group."""

    ask: Callable[[np.ndarray], Batch | Rounds]
    order: np.ndarray
    step: int


def sample(
    method: MethodSettings,
    features: Features,
    designs: Sequence[tuple[float | None, Design | Size]],
    inputs: np.ndarray,
    seed: int,
    named: np.ndarray,
    outputs: bool = False,
) -> Sampling:
    """Return the sampling of a method; designs: the multiple of d of each budget, and its design or size."""
    masks = sum(design.evaluations for _, design in designs) + 2
    most = DATA_CHUNK if method.method.measure else CHUNK
    sizes = [CHUNK_BYTES // max(1, inputs[:1].nbytes)]
    if not method.samples_designs:
        every = share_design([design for _, design in designs], features.d, method.read)
        step = min([most, CHUNK_VALUES // masks, *sizes])
        return Sampling(lambda places: every, np.arange(len(inputs)), max(1, step))
    d, largest = features.d, max(design.evaluations for _, design in designs)
    drawn = assign_samples(seed, named.tolist(), d, largest, method.method.exchangeable)

    def ask(spends: Sequence[float | None]) -> Callable[[np.ndarray], Batch]:
        def make(number: int) -> list[Design]:
            own = number if drawn.orders is None else seed_of(seed, "pool", number)
            return [method.design(features, spend, own, keep=False) for spend in spends]

        stack = method.read_outputs if outputs else method.read_stack
        return SampledMasks(d, drawn, make, method.read, stack).select

    asks = ask([spend for spend, _ in designs])
    if until := method.until:
        spent = method.rounds(d)
        masks, rounds = spent[-1], [ask([count / d]) for count in spent]

        def asks(places: np.ndarray) -> Rounds:
            return Rounds(places, rounds, until, method.method.convergence_rate, method.method.min_rounds, outputs)

    # Masks of each instance, and designs for some of them; rounds and budgets hold theirs each.
    whole_pool = method.method.exchangeable and len(designs) == 1 and not until
    sizes += [most, CHUNK_VALUES // masks, CHUNK_BYTES // (masks * d), count_at_once(d, masks, whole_pool) or most]
    sizes = [len(inputs)] if outputs else sizes
    return Sampling(asks, np.argsort(drawn.numbers.astype(object), kind="stable"), max(1, min(sizes)))
