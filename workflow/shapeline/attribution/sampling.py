"""Coalitions that a method evaluates per instance: one design, one sample per instance, or adaptive rounds."""

import contextlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from shapeline.attribution.explanation import OPTIONAL
from shapeline.designs.design import Design, find_unique_rows
from shapeline.designs.stopping import CAP_WARNING, PredictedErrors, StoppingCriterion
from shapeline.games.features import Features
from shapeline.methods.settings import MethodSettings, Size
from shapeline.seeds import seed_of
from shapeline.threads import SHORT_WORK, Result, count_allowed, limit_to_one, run_tasks

MAX_POOL_SIZE, MIN_POOL_SIZE = 1024, 12  # designs, each of which is created when an instance first needs it
POOL_WORK = 1 << 34  # multiplications of the pool's factorisations: about a second
MAX_READOUT_BYTES = 1 << 28  # size of the designs of a chunk of instances


@dataclass(frozen=True)
class InstanceSamples:
    """The design of each of n instances by its number in the pool, (n,), and the instance's permutation of features.

    orders (n, d): feature j of the pool's design is feature orders[i, j] of instance i; None if the features are not
    exchangeable, and each number is then a seed. threads: share the work per design.
    """

    numbers: np.ndarray
    orders: np.ndarray | None
    threads: int = 1
    large: bool = True

    def masks(self, designs_masks: Sequence[np.ndarray], part: np.ndarray) -> np.ndarray:
        """Return masks (a, K, d) of the instances at `part` (a,) from the masks of their designs, each (K, d)."""
        if self.orders is None:
            return np.stack(designs_masks)
        result = np.empty((len(part), *designs_masks[0].shape), bool)

        def permute(task: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
            masks, columns, permuted = task
            np.take(masks, columns, axis=1, out=permuted, mode="clip")  # `take_along_axis` takes four times as long

        self.run_shared(permute, list(zip(designs_masks, self.orders[part].argsort(axis=1), result, strict=True)))
        return result

    def run_shared(self, run: Callable[[Any], Result], tasks: Sequence) -> list[Result]:
        """Return the result of `run` per task, by the samples' threads with one thread of linear algebra each."""
        # Set once: setting the limit per task costs a tenth of a millisecond and makes threads wait.
        with contextlib.nullcontext() if self.large or len(tasks) < 2 else limit_to_one(0):
            return list(run_tasks(run, tasks, self.threads))

    def scores(self, of_designs: np.ndarray, part: np.ndarray) -> np.ndarray:
        """Return scores (a, d) by the instances' features from scores by the features of their designs."""
        if self.orders is None:
            return of_designs
        result = np.empty_like(of_designs)
        np.put_along_axis(result, self.orders[part], of_designs, axis=1)
        return result

    def pairs(self, of_designs: np.ndarray, part: np.ndarray) -> np.ndarray:
        """Return interactions (a, d (d-1) / 2) of the instances' pairs from those of their designs' pairs."""
        if self.orders is None:
            return of_designs
        d = self.orders.shape[1]
        design_features = self.orders[part].argsort(axis=1)  # by feature of the instance
        a, b = np.sort(design_features[:, np.triu_indices(d, 1)], axis=1).swapaxes(0, 1)
        return np.take_along_axis(of_designs, a * (2 * d - a - 1) // 2 + b - a - 1, axis=1)


def assign_samples(
    seed: int, instances: Sequence[Hashable], d: int, evaluations: int, exchangeable: bool = True
) -> InstanceSamples:
    """Return the samples of instances, each by a seed of (seed, instance), so that none depends on the others.

    seed: of the method and repeat; instances: the id or digest that seeds each; evaluations: K of a design.
    """
    if not exchangeable:
        return InstanceSamples(np.array([seed_of(seed, instance) for instance in instances], dtype=object), None)
    pool = size_pool(d, evaluations)
    numbers, orders = np.empty(len(instances), np.int64), np.empty((len(instances), d), np.int64)
    for index, instance in enumerate(instances):
        random = np.random.default_rng(seed_of(seed, instance))
        numbers[index], orders[index] = random.integers(pool), random.permutation(d)
    # Small designs are built before threads could start; large ones leave the threads to linear algebra.
    large = evaluations * d * d >= 4 * SHORT_WORK
    return InstanceSamples(numbers, orders, count_allowed() if pool < MAX_POOL_SIZE and not large else 1, large)


def size_pool(d: int, evaluations: int) -> int:
    """Return the number of designs in the pool: as many as POOL_WORK allows, at least MIN_POOL_SIZE."""
    return int(np.clip(POOL_WORK // max(1, evaluations * d * d), MIN_POOL_SIZE, MAX_POOL_SIZE))


def count_at_once(d: int, evaluations: int, exchangeable: bool = True) -> int | None:
    """Return how many instances are explained together, each with a design in memory; None if the whole pool fits."""
    fitting = max(1, MAX_READOUT_BYTES // (8 * d * evaluations))
    return None if exchangeable and size_pool(d, evaluations) <= fitting else fitting


# From a design and the values (m, K) of its masks to scores (m, d), their standard error (m, d) or None, and
# optionally the standard error of its pairs.
Reader = Callable[[Design, np.ndarray], tuple[np.ndarray | None, ...]]
# From masks (m, K, d) and values (m, K) of a chunk to the same, and optionally pairs and their standard errors.
StackReader = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray | None, ...]]


class Answer(NamedTuple):
    """The result of a method on a chunk at one budget: scores (m, d), evaluations (m,) or per instance, and details."""

    scores: np.ndarray
    evaluations: np.ndarray | int
    details: dict[str, Sequence]
    standard_error: np.ndarray | None = None
    interaction_values: np.ndarray | None = None  # (m, d (d-1) / 2)
    interactions_standard_error: np.ndarray | None = None  # of the same shape


@dataclass(frozen=True)
class Batch:
    """The coalitions that are evaluated on a chunk: those of its designs, one per budget, and both ends.

    masks: (K, d) for all instances, or (m, K, d); full, empty: the index of each end, one or (m,); distinct: the number
    of masks of the designs, one or (m,); read: the function from values (m, K) to one answer per budget.
    """

    masks: np.ndarray
    full: np.ndarray | int
    empty: np.ndarray | int
    distinct: np.ndarray | int
    read: Callable[[np.ndarray], list[Answer]]
    several: bool = False  # budgets

    def select_ends(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the values (m,) of the full and of the empty coalition."""
        rows = np.arange(len(values))
        return values[rows, self.full], values[rows, self.empty]


@dataclass(frozen=True)
class MergedDesigns:
    """The designs of several budgets as one set of masks (K, d), and the columns of each."""

    designs: list[Design]
    masks: np.ndarray
    columns: list[np.ndarray]
    full: int
    empty: int
    distinct: int


def merge_designs(designs: list[Design], d: int) -> MergedDesigns:
    """Merge designs, so that shared coalitions are evaluated once, and add both ends, even if no design has them."""
    if len(designs) > 1:
        masks = np.concatenate([design.masks for design in designs])
        first, inverse = find_unique_rows(masks)
        masks, columns = masks[first], np.split(inverse, np.cumsum([design.evaluations for design in designs])[:-1])
    else:
        masks = designs[0].masks if designs else np.zeros((0, d), bool)
        columns = [np.arange(len(masks)) for _ in designs]
    with_ends, full, empty = _add_ends(masks)
    return MergedDesigns(designs, with_ends, columns, full, empty, len(masks))


def share_design(designs: list[Design], d: int, reader: Reader | None = None) -> Batch:
    """Return the batch of every chunk where all instances share one design per budget."""
    merged = merge_designs(designs, d)
    columns = [slice(0, merged.distinct)] if len(designs) == 1 else merged.columns  # a view if possible

    def read(values: np.ndarray) -> list[Answer]:
        return [_estimate(reader, *pair) for pair in zip(designs, (values[:, part] for part in columns), strict=True)]

    return Batch(merged.masks, merged.full, merged.empty, merged.distinct, read, len(designs) > 1)


@dataclass
class SampledMasks:
    """Chunks of instances with one sample each; build: the function from a sample's number to one design per budget."""

    d: int
    samples: InstanceSamples
    build: Callable[[int], list[Design]]
    reader: Reader | None = None
    stack_reader: StackReader | None = None
    cache: dict[int, MergedDesigns] = field(default_factory=dict)

    def select(self, positions: np.ndarray) -> Batch:
        """Return the coalitions (m, K, d) of the instances at `positions`; a smaller sample repeats its first one."""
        numbers = [int(number) for number in self.samples.numbers[positions]]
        # Designs that are no longer used are freed before new ones are built.
        self.cache = {number: merged for number, merged in self.cache.items() if number in numbers}
        new = [number for number in dict.fromkeys(numbers) if number not in self.cache]
        built = self.samples.run_shared(lambda number: merge_designs(self.build(number), self.d), new)
        self.cache.update(zip(new, built, strict=True))
        designs = [self.cache[number] for number in numbers]
        rows = np.arange(max(len(merged.masks) for merged in designs))
        padded = [merged.masks[np.where(rows < len(merged.masks), rows, 0)] for merged in designs]
        masks = self.samples.masks(padded, positions)

        def read(values: np.ndarray) -> list[Answer]:
            count = len(designs[0].designs)
            if self.stack_reader:
                return [self._read_by_stack(designs, masks, values, budget) for budget in range(count)]
            return [self._read_by_design(designs, numbers, positions, values, budget) for budget in range(count)]

        ends = (np.array([getattr(merged, name) for merged in designs]) for name in ("full", "empty", "distinct"))
        return Batch(masks, *ends, read, len(designs[0].designs) > 1)

    def _read_by_design(
        self, designs: list[MergedDesigns], numbers: list[int], positions: np.ndarray, values: np.ndarray, budget: int
    ) -> Answer:
        """Estimate the instances of each design together, and map its features to those of the instances."""
        found: dict[str, np.ndarray] = {}  # without what no design estimates
        members = {number: np.flatnonzero([other == number for other in numbers]) for number in self.cache}

        def estimate(number: int) -> Answer:
            merged = self.cache[number]
            design_values = values[np.ix_(members[number], merged.columns[budget])]
            return _estimate(self.reader, merged.designs[budget], design_values)

        answers = self.samples.run_shared(estimate, list(self.cache))
        for rows, answer in zip(members.values(), answers, strict=True):
            for name in ("scores", *OPTIONAL):
                if (column := getattr(answer, name)) is not None:
                    found.setdefault(name, np.full((len(designs), column.shape[1]), np.nan))[rows] = column
        for name, column in found.items():
            reorder = self.samples.pairs if "interaction" in name else self.samples.scores
            found[name] = reorder(column, positions)
        evaluations = np.array([merged.designs[budget].evaluations for merged in designs])
        return Answer(evaluations=evaluations, details={}, **found)

    def _read_by_stack(
        self, designs: list[MergedDesigns], masks: np.ndarray, values: np.ndarray, budget: int
    ) -> Answer:
        """Estimate all instances together, each with its masks; designs of one budget have equally many."""
        columns = np.stack([merged.columns[budget] for merged in designs])
        scores, *more = self.stack_reader(
            np.take_along_axis(masks, columns[:, :, None], axis=1), np.take_along_axis(values, columns, axis=1)
        )
        return Answer(scores, np.array([merged.designs[budget].evaluations for merged in designs]), {}, *more)


def _estimate(reader: Reader | None, design: Design, values: np.ndarray) -> Answer:
    scores, standard_error, *more = reader(design, values) if reader else (design.attribute(values), None)
    return Answer(scores, design.evaluations, {}, standard_error, design.attribute_pairs(values), *more)


def _add_ends(masks: np.ndarray) -> tuple[np.ndarray, int, int]:
    """Return the masks with both ends, which are not counted as evaluations, and the positions of the ends."""
    sizes = masks.sum(1)
    positions, missing = [], []
    for size, end in ((masks.shape[1], True), (0, False)):
        found = np.flatnonzero(sizes == size)
        positions.append(int(found[0]) if len(found) else len(masks) + len(missing))
        if not len(found):
            missing.append(np.full((1, masks.shape[1]), end))
    return np.concatenate([masks, *missing]), *positions


@dataclass(frozen=True, eq=False)
class Rounds:
    """The rounds of adaptive stopping on a chunk.

    positions (n,): of its instances. batches: per round, the function from positions to the batch, which includes
    earlier rounds. until: the stopping criterion. convergence_rate: r of error ~ evaluations^-r, if a round's predicted
    error is averaged with earlier ones. min_rounds: rounds before an explanation whose error is not 0 may stop.
    together: whether all instances stop in the same round.
    """

    positions: np.ndarray
    batches: Sequence[Callable[[np.ndarray], Batch]]
    until: StoppingCriterion
    convergence_rate: float | None = None
    min_rounds: int = 1
    together: bool = False
    several = False  # budgets

    def explain(
        self, evaluate: Callable[[np.ndarray, np.ndarray], np.ndarray]
    ) -> tuple[Answer, np.ndarray, np.ndarray]:
        """Return the answer on the chunk, and the values of the full and of the empty coalition (n,).

        evaluate: from positions in the chunk (m,) and masks of each (m, K, d) to values (m, K).
        """
        n = len(self.positions)
        full, empty, evaluations = np.empty(n), np.empty(n), np.zeros(n, np.int64)
        scores, standard_error, details = None, None, {"rounds": np.zeros(n), "warning": [CAP_WARNING] * n}
        running, cache = np.arange(n), _ValueCache(n)
        for number, select in enumerate(self.batches, 1):
            batch = select(self.positions[running])
            values = cache.values(running, batch.masks, evaluate)
            full[running], empty[running] = batch.select_ends(values)
            [answer] = batch.read(values)
            if scores is None:
                scores, standard_error = np.empty((2, n, batch.masks.shape[2]))
                earlier = PredictedErrors(*scores.shape, self.convergence_rate) if self.convergence_rate else None
            if earlier:
                widened = earlier.widen(running, answer.evaluations, answer.scores, answer.standard_error)
                answer = answer._replace(standard_error=widened)
            scores[running], evaluations[running] = answer.scores, answer.evaluations
            standard_error[running] = np.nan if answer.standard_error is None else answer.standard_error
            details["rounds"][running] += 1
            exact = ~standard_error[running].any(axis=1)  # also if equal scores have no order
            met = self.until.is_met(answer.scores, answer.standard_error, full[running] - empty[running]) | exact
            if number < min(self.min_rounds, len(self.batches)):
                met &= exact
            if self.together:
                met &= met.all()
            for row in running[met]:
                details["warning"][row] = None
            running = running[~met]
            if not len(running):
                break
        return Answer(scores, evaluations, details, standard_error), full, empty


class _ValueCache:
    """The evaluated values of coalitions on n instances."""

    def __init__(self, n: int):
        self.known: list[dict[bytes, float]] = [{} for _ in range(n)]

    def values(self, rows: np.ndarray, masks: np.ndarray, evaluate: Callable) -> np.ndarray:
        """Return values (m, K) of masks (m, K, d) on the instances at `rows` (m,); new ones from `evaluate`."""
        keys = [[mask.tobytes() for mask in of_instance] for of_instance in np.packbits(masks, axis=2)]
        known = [self.known[row] for row in rows]
        is_new = np.array([[key not in own for key in part] for own, part in zip(known, keys, strict=True)])
        largest = is_new.sum(axis=1).max()
        if largest:  # an instance with fewer new coalitions evaluates some again
            columns = np.argsort(~is_new, axis=1, kind="stable")[:, :largest]
            values = evaluate(rows, np.take_along_axis(masks, columns[:, :, None], axis=1))
            for own, part, places, new in zip(known, keys, columns, values, strict=True):
                own.update(zip((part[place] for place in places), new, strict=True))
        return np.array([[own[key] for key in part] for own, part in zip(known, keys, strict=True)])


CHUNK_SIZE = 32  # instances between two progress lines
DATA_CHUNK_SIZE = 256  # instances per chunk of a method that reads all data once per chunk
MAX_CHUNK_VALUES = 1_000_000  # values per chunk: 8 MB, and seconds between two progress lines
MAX_CHUNK_BYTES = 1 << 28  # size of the inputs of a chunk: some methods have all of them on the device


@dataclass(frozen=True)
class Sampling:
    """The batch or rounds of instances (m,), the order (n,) that groups equal designs, and the size of a chunk."""

    select: Callable[[np.ndarray], Batch | Rounds]
    order: np.ndarray
    step: int


def sample(
    method: MethodSettings,
    features: Features,
    designs: Sequence[tuple[float | None, Design | Size]],
    inputs: np.ndarray,
    seed: int,
    sample_keys: np.ndarray,
    outputs: bool = False,
) -> Sampling:
    """Return the sampling of a method; designs: the multiple of d of each budget, and its design or size."""
    masks = sum(design.evaluations for _, design in designs) + 2
    chunk = DATA_CHUNK_SIZE if method.method.measure else CHUNK_SIZE
    sizes = [MAX_CHUNK_BYTES // max(1, inputs[:1].nbytes)]
    if not method.samples_designs:
        shared = share_design([design for _, design in designs], features.d, method.read)
        step = min([chunk, MAX_CHUNK_VALUES // masks, *sizes])
        return Sampling(lambda positions: shared, np.arange(len(inputs)), max(1, step))
    d, largest = features.d, max(design.evaluations for _, design in designs)
    samples = assign_samples(seed, sample_keys.tolist(), d, largest, method.method.exchangeable)

    def select_at(budgets: Sequence[float | None]) -> Callable[[np.ndarray], Batch]:
        def build(number: int) -> list[Design]:
            own_seed = number if samples.orders is None else seed_of(seed, "pool", number)
            return [method.design(features, budget, own_seed, keep=False) for budget in budgets]

        stack = method.read_outputs if outputs else method.read_stack
        return SampledMasks(d, samples, build, method.read, stack).select

    select = select_at([budget for budget, _ in designs])
    if until := method.until:
        evaluations = method.rounds(d)
        masks, rounds = evaluations[-1], [select_at([count / d]) for count in evaluations]

        def select(positions: np.ndarray) -> Rounds:
            return Rounds(positions, rounds, until, method.method.convergence_rate, method.method.min_rounds, outputs)

    # Memory is needed for masks per instance and for designs of some instances, of each round and budget.
    whole_pool = method.method.exchangeable and len(designs) == 1 and not until
    at_once = count_at_once(d, masks, whole_pool) or chunk
    sizes += [chunk, MAX_CHUNK_VALUES // masks, MAX_CHUNK_BYTES // (masks * d), at_once]
    sizes = [len(inputs)] if outputs else sizes
    return Sampling(select, np.argsort(samples.numbers.astype(object), kind="stable"), max(1, min(sizes)))
