"""The six axioms of influence as tests of a measure, with a small counter-example (Sliwinski et al. 2019, §3)."""

import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from shapeline.errors import ShapelineError
from shapeline.influence.distances import check_positive

RELATIVE, ABSOLUTE = 1e-4, 1e-6  # tolerances of the comparison of influences in float32
SMALL_STEPS = (1e-2, 1e-4)  # step sizes towards the limit; a continuous change decreases with the step, a jump stays
ROTATIONS = {
    1: [[[-1.0]]],
    2: [[[0.0, -1.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, -1.0]], [[0.6, -0.8], [0.8, 0.6]]],  # the last is 3-4-5
}


@dataclass(frozen=True)
class Labelled:
    """A data set X (m, n) with labels (m,) of -1 and 1; the point of interest is row 0, and its influence (n,)."""

    X: np.ndarray
    labels: np.ndarray
    influence: np.ndarray


@dataclass(frozen=True)
class CounterExample:
    """The data before and after, `change` between them in words, `expected` (n,) by the axiom, worst `feature`."""

    before: Labelled
    after: Labelled
    change: str
    expected: np.ndarray
    feature: int


@dataclass(frozen=True)
class Verdict:
    """The result for an axiom: number in the paper, name, statement, number of data sets, and counter-example."""

    number: int
    axiom: str
    statement: str
    tried: int
    counter_example: CounterExample | None

    @property
    def passed(self) -> bool:
        return self.counter_example is None


def check(measure: Callable, tries: int = 300, scale: float = 1.0, seed: int = 0) -> list[Verdict]:
    """Test a measure against the six axioms; one Verdict each, in the paper's order.

    measure(points (p, n), X (m, n), labels (m,) of -1 and 1) -> (p, n); bind parameters with functools.partial.
    tries: random data sets per axiom, up to 4 rows and 2 features of integers from -2 to 2, times `scale`, which
    should suit the measure's width. Raises ShapelineError where the measure returns another shape.
    """
    scale = check_positive("axioms.check", "scale", scale)
    known: dict[tuple, np.ndarray] = {}  # cache, since a seventh of the data sets repeat

    def influence(X: np.ndarray, labels: np.ndarray) -> np.ndarray:
        data = X.shape, X.tobytes(), labels.tobytes()
        if data not in known:
            known[data] = measure_influence(X, labels)
        return known[data]

    def measure_influence(X: np.ndarray, labels: np.ndarray) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings of small data sets are expected
            numbers = np.asarray(measure(scale * X[:1], scale * X, labels), np.float64)
        if numbers.shape != (1, X.shape[1]):
            raise ShapelineError(
                f"axioms.check: the measure gave shape {numbers.shape} for 1 point of {X.shape[1]} features; it takes "
                f"(points, X, labels) and must give one row a point, (1, {X.shape[1]})."
            )
        return numbers[0]

    verdicts = []
    for number, (axiom, (statement, breaks)) in enumerate(AXIOMS.items(), 1):
        random = np.random.default_rng([seed, number])
        broken, count = None, 0
        for X, labels in _generate_data_sets(random, tries):
            count += 1
            broken = breaks(influence, X, labels)
            if broken:
                broken = _shrink(influence, breaks, X, labels, broken)
                break
        verdicts.append(Verdict(number, axiom, statement, count, broken))
    return verdicts


def _generate_data_sets(random: np.random.Generator, tries: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield all pairs of a row at 0 and a second row in one feature, then random data sets of increasing size."""
    for other, label in itertools.product((-1.0, 1.0, 0.0, -2.0, 2.0), (1, -1)):
        yield np.array([[0.0], [other]]), np.array([1, label])
    sizes = [(m, n) for n in (1, 2) for m in (2, 3, 4)]
    for index in range(tries):
        m, n = sizes[index * len(sizes) // tries]
        yield random.integers(-2, 3, (m, n)).astype(np.float64), random.choice([-1, 1], m)


def _shrink(influence, breaks, X, labels, broken: CounterExample) -> CounterExample:
    """Return a smaller counter-example: drop rows and features and move numbers towards 0."""
    while True:
        fewer = [np.delete(np.arange(len(X)), row) for row in range(1, len(X))]
        candidates = [(X[rows], labels[rows]) for rows in fewer]
        if X.shape[1] > 1:
            candidates += [(np.delete(X, feature, axis=1), labels) for feature in range(X.shape[1])]
        if np.abs(X - X[0]).sum() < np.abs(X).sum():
            candidates.append((X - X[0], labels))
        for cell in zip(*np.nonzero(X), strict=True):
            nearer = X.copy()
            nearer[cell] -= np.sign(nearer[cell])
            candidates.append((nearer, labels))
        for candidate in candidates:
            smaller = breaks(influence, *candidate)
            if smaller:
                X, labels, broken = *candidate, smaller
                break
        else:
            return broken


def _compare(before: Labelled, after: Labelled, expected: np.ndarray, change: str) -> CounterExample | None:
    """Return a counter-example where the second influence is not the expected one, (n,); change: in words."""
    size = np.abs(np.concatenate([after.influence, expected])).max()
    excess = np.abs(after.influence - expected) - RELATIVE * size - ABSOLUTE
    excess = np.where(np.isfinite(excess), excess, np.inf)  # a value that is not finite is never within the tolerance
    if excess.max() <= 0:
        return None
    return CounterExample(before, after, change, expected, int(excess.argmax()))


def shift(influence, X, labels) -> CounterExample | None:
    moved = X + np.arange(1, X.shape[1] + 1)
    before, after = influence(X, labels), influence(moved, labels)
    change = f"all rows moved by {np.arange(1, X.shape[1] + 1).tolist()}"
    return _compare(Labelled(X, labels, before), Labelled(moved, labels, after), before, change)


def rotation(influence, X, labels) -> CounterExample | None:
    before = influence(X, labels)
    for matrix in map(np.array, ROTATIONS[X.shape[1]]):
        turned = X @ matrix.T
        after = Labelled(turned, labels, influence(turned, labels))
        change = f"all rows multiplied by the orthogonal matrix {matrix.tolist()}"
        broken = _compare(Labelled(X, labels, before), after, matrix @ before, change)
        if broken:
            return broken
    return None


def continuity(influence, X, labels) -> CounterExample | None:
    """Move one row by decreasing steps along an axis; the influence must converge to the original."""
    before = influence(X, labels)
    for row, feature in itertools.product(range(len(X)), range(X.shape[1])):
        gaps = []
        for step in SMALL_STEPS:
            moved = X.copy()
            moved[row, feature] += step
            after = influence(moved, labels)
            gaps.append(np.abs(after - before).max())
        # With a hundredth of the step, a continuous measure has far less than a third of the gap.
        if not gaps[1] <= gaps[0] / 3:
            change = f"row {row} moved by {SMALL_STEPS[-1]:g} along feature {feature}, and by less with the same result"
            broken = _compare(Labelled(X, labels, before), Labelled(moved, labels, after), before, change)
            if broken:
                return broken
    return None


def flip(influence, X, labels) -> CounterExample | None:
    before, after = influence(X, labels), influence(X, -labels)
    return _compare(Labelled(X, labels, before), Labelled(X, -labels, after), before, "all labels turned")


def monotonicity(influence, X, labels) -> CounterExample | None:
    """Test that a new row above x in a feature does not lower its influence with x's label, nor raise it without."""
    before = influence(X, labels)
    offsets = itertools.product((0, 1, -1, 2), repeat=X.shape[1])
    for offset, feature, sign in itertools.product(offsets, range(X.shape[1]), (1, -1)):
        if offset[feature] <= 0:
            continue
        new = X[0] + offset
        grown, known = np.vstack([X, new]), np.append(labels, sign * labels[0])
        after = influence(grown, known)
        bound = after.copy()
        bound[feature] = sign * max(sign * before[feature], sign * after[feature])
        word = "x's label" if sign > 0 else "the other label"
        change = f"row {new.tolist()} added with {word}, {offset[feature]} above x in feature {feature}"
        broken = _compare(Labelled(X, labels, before), Labelled(grown, known, after), bound, change)
        if broken:
            return broken
    return None


def non_bias(influence, X, labels) -> CounterExample | None:
    """Test that the mean over all equally likely labellings of the other rows is 0, by enumeration."""
    labellings = [np.append(labels[0], others) for others in itertools.product((-1, 1), repeat=len(X) - 1)]
    found = [influence(X, labelling) for labelling in labellings]
    largest = int(np.argmax([np.abs(influences).max() for influences in found]))
    mean = np.mean(found, axis=0)
    change = f"mean influence over all {len(found)} labellings of the other rows"
    before = Labelled(X, labellings[largest], found[largest])
    return _compare(before, Labelled(X, labels, mean), np.zeros(X.shape[1]), change)


AXIOMS = {
    "shift": ("Moving all points alike changes nothing.", shift),
    "rotation": ("Turning or mirroring all points turns or mirrors the influence.", rotation),
    "continuity": ("The influence is a continuous function of the points.", continuity),
    "flip": ("Exchanging the two labels changes nothing.", flip),
    "monotonicity": (
        "A new point above x in a feature does not lower its influence if it has x's label, nor raise it if not.",
        monotonicity,
    ),
    "non_bias": ("With the other labels random, the mean influence is 0.", non_bias),
}
