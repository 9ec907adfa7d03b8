"""The axioms that each measure violates, with counter-examples that are checked separately."""

import functools

import numpy as np
import pytest

from shapeline import influence
from shapeline.errors import ShapelineError
from shapeline.influence import axioms

ALL = {"shift", "rotation", "continuity", "flip", "monotonicity", "non_bias"}
MEASURES = {
    "constant": (functools.partial(influence.mim, alpha="constant"), set()),
    "gaussian": (functools.partial(influence.mim, alpha="gaussian"), set()),
    "inverse": (functools.partial(influence.mim, alpha="inverse"), {"continuity"}),
    "inverse_square": (influence.mim, {"continuity"}),
    "parzen": (functools.partial(influence.parzen, sigma=1.0), {"monotonicity", "non_bias"}),
    "data_lime": (functools.partial(influence.data_lime, rho=2.0), {"monotonicity", "non_bias"}),
}


def verdicts(measure, tries=48):
    return {verdict.axiom: verdict for verdict in axioms.check(measure, tries)}


@pytest.mark.filterwarnings("ignore:.*all labels are equal")
@pytest.mark.parametrize("name", MEASURES)
def test_table_of_axioms(name):
    measure, broken = MEASURES[name]
    found = verdicts(measure)
    assert [verdict.number for verdict in found.values()] == [1, 2, 3, 4, 5, 6] and set(found) == ALL
    assert {axiom for axiom, verdict in found.items() if not verdict.passed} == broken
    for axiom in broken:
        example = found[axiom].counter_example
        # Small enough to draw: two rows of one feature, whole numbers next to 0.
        assert example.before.X.shape == (2, 1) and np.abs(example.before.X).max() <= 2
        for data in (example.before, example.after) if axiom != "non_bias" else (example.before,):
            again = measure(data.X[:1], data.X, data.labels, point_labels=data.labels[:1])[0]
            np.testing.assert_allclose(again, data.influence)


def test_mim_jumps_where_points_coincide():
    """Theorem 4.2 overlooks it: y at x has no influence, y next to x has 1/r^2 r."""
    example = verdicts(influence.mim)["continuity"].counter_example
    assert (example.before.X[0] == example.before.X[1]).all() and (example.before.influence == 0).all()
    assert np.abs(example.after.influence).max() == pytest.approx(1e4, rel=1e-3)


def test_parzen_loses_influence_to_a_point_that_should_strengthen_it():
    example = verdicts(MEASURES["parzen"][0])["monotonicity"].counter_example
    before, after, i = example.before, example.after, example.feature
    new = after.X[-1]
    assert new[i] > before.X[0, i]
    if after.labels[-1] == before.labels[0]:
        assert after.influence[i] < before.influence[i] - 1e-3
    else:
        assert after.influence[i] > before.influence[i] + 1e-3


def made(which):
    """Measures of a user's own, each wrong in one way."""

    def measure(points, X, labels):
        own = influence.mim(points, X, labels, "constant")
        if which == "shift":
            return own + points.sum() * own
        if which == "rotation":
            return np.sign(own) * own**2
        if which == "flip":
            return own * labels[0]
        if which == "monotonicity":
            return -own
        if which == "non_bias":
            differences = (X - points).sum(axis=0)[None]
            return own + 2 * differences
        return own

    return measure


@pytest.mark.parametrize("which", ["none", "shift", "rotation", "flip", "monotonicity", "non_bias"])
def test_a_users_own_measure(which):
    broken = {axiom for axiom, verdict in verdicts(made(which), 60).items() if not verdict.passed}
    assert which in broken if which != "none" else not broken


def test_a_measure_that_jumps_or_returns_nothing():
    def jumps(points, X, labels):
        return np.round(influence.mim(points, X, labels, "constant") / 2)

    def empty(points, X, labels):
        return np.full(points.shape, np.nan)

    assert not verdicts(jumps, 60)["continuity"].passed
    assert not any(verdict.passed for verdict in axioms.check(empty, 10))
    with pytest.raises(ShapelineError, match=r"shape \(4,\)"):
        axioms.check(lambda points, X, labels: np.zeros(4), 5)


def test_scale_suits_a_wide_measure():
    wide = functools.partial(influence.parzen, sigma=4.7)
    found = {verdict.axiom: verdict.passed for verdict in axioms.check(wide, 48, scale=4.7)}
    assert [axiom for axiom, passed in found.items() if not passed] == ["monotonicity", "non_bias"]
