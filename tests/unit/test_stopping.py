"""Estimates made in rounds until they are good enough: what they ask, when they stop, if their errors hold then."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest

import shapeline
from shapeline import designs
from shapeline.attribution import run
from shapeline.attribution.rounds import AT_THE_CAP
from shapeline.attribution.run import Options, attribute
from shapeline.config import validation
from shapeline.config.derived import budget_of
from shapeline.config.scales import SMOKE
from shapeline.designs import gaussian_process, growing
from shapeline.designs.stopping import Until
from shapeline.designs.uncertainty import kernel_shap_uncertainty, predicted_error
from shapeline.errors import ShapelineError
from shapeline.game import features as feature_kinds
from shapeline.methods.registry import METHODS
from shapeline.operations import estimates
from shapeline.plan import settings as plan_settings

from . import games, value_tables

D = 10
GROWING = [name for name, method in METHODS.items() if method.grows]


def asked_of(tables, asked=None):
    """A question whose values are those of tables (n, 2^d), the input being the table's number."""
    d = tables.shape[1].bit_length() - 1

    def values(inputs, masks, targets):
        rows = inputs[:, 0].astype(int)
        if asked is not None:
            for row, mask in zip(rows, masks, strict=True):
                asked[row] += (mask @ (1 << np.arange(d))).tolist()
        return np.take_along_axis(tables[rows], masks @ (1 << np.arange(d)), axis=1)

    model = SimpleNamespace(check_rows=lambda inputs: None, framework="function")
    features = feature_kinds.build({"kind": "column"}, {"input_shape": [d], "kind": "table"})
    return SimpleNamespace(model=model, features=features, values=values)


def explained(method, tables, until, seed=0, places=None, asked=None, **options):
    """The explanation of tables (n, 2^d) by a method until it is good enough."""
    places = np.arange(len(tables)) if places is None else np.asarray(places)
    options = Options([until], seed, instances=places, **options)
    question = asked_of(tables, asked)
    return attribute(question, places[:, None].astype(float), np.zeros(len(places)), {"method": method}, options)[0]


def tables_of(n, d=D):
    """Curves of weighted sums with an interaction, some nearly linear."""
    rng = np.random.default_rng(5)
    pair = games.unanimity(d, {frozenset({1, 2, 3}): 1.0})
    bend = np.geomspace(0.01, 1, n)
    return np.array([np.tanh(b * games.linear(rng.normal(size=d))) / b + b * pair for b in bend])


@pytest.mark.parametrize("make", [growing.kernel_shap, growing.sample_shapley, gaussian_process.gp_pairs])
@pytest.mark.parametrize("d", [2, 5, 10, 40])
def test_a_larger_budget_asks_what_a_smaller_one_does(make, d):
    before = set()
    for budget in (growing.minimum(d), 5 * d, 6 * d, 9 * d, 16 * d):
        design = make(d, budget, seed=3)
        asked = {mask.tobytes() for mask in design.masks}
        assert before <= asked
        assert len(asked) == design.evaluations <= max(budget, 4)
        before = asked
    with pytest.raises(ShapelineError, match="too few to stop"):
        growing.kernel_shap(d, growing.minimum(d) - 1)


@pytest.mark.parametrize("make", [growing.kernel_shap, growing.sample_shapley])
def test_all_coalitions_are_the_shapley_values_and_linear_games_are_exact(make):
    game = games.table(6)
    np.testing.assert_allclose(games.scores(make(6, 64), game), games.shapley(game), atol=1e-10)
    weights = np.random.default_rng(0).normal(size=9)
    np.testing.assert_allclose(games.scores(make(9, 50), games.linear(weights)), weights, atol=1e-10)


def test_the_fit_that_grows_weighs_what_is_drawn_as_the_kernel_does():
    design = growing.kernel_shap(7, 60, seed=1)
    weights, drawn = design.draw
    first = design.masks[1 : 1 + len(weights)]
    assert (drawn == (first.sum(axis=1) > 1)).all()
    np.testing.assert_allclose(weights[drawn == 0], games.kernel(7, 1))
    np.testing.assert_allclose(2 * weights[drawn > 0].sum(), sum(6 / (s * (7 - s)) for s in range(2, 6)))
    times = weights[drawn > 0] / weights[drawn > 0].min()
    np.testing.assert_allclose(times, np.round(times), rtol=1e-9)
    assert times.max() > 1
    # A size that happens to be drawn whole still varies.
    whole = growing.kernel_shap(5, 30, seed=0)
    assert (kernel_shap_uncertainty(whole, games.look_up(games.table(5), whole.masks)).uncertainty > 0).all()


@pytest.mark.parametrize("method", GROWING)
def test_it_ends_in_the_first_round_whose_error_is_small_enough_and_asks_nothing_twice(method):
    tables, asked = tables_of(12), {row: [] for row in range(12)}
    found = explained(method, tables, Until(16, error=0.05), asked=asked)
    errors, at_cap = predicted_error(found.uncertainty), np.array(found.flag) == AT_THE_CAP
    assert (errors[~at_cap] <= 0.05).all() and (errors[at_cap] > 0.05).all()
    rounds = Until(16, error=0.05).rounds(D, METHODS[method].first_round)
    assert rounds == ([120, 150, 160] if method == "sample_shapley" else [40, 50, 62, 78, 97, 122, 152, 160])
    assert rounds[0] - D < found.evaluations.min() < found.evaluations.max() <= 16 * D
    numbers = [int(extra["rounds"]) for extra in found.extra]
    for row, number in enumerate(numbers):
        assert len(set(asked[row])) == found.evaluations[row]
        if method != "sample_shapley":  # whose draws differ in length, so that some are filled up
            assert len(asked[row]) == found.evaluations[row]
            assert found.evaluations[row] == rounds[number - 1] // 2 * 2
        if number > 1:  # one round less would not have been enough
            earlier = explained(method, tables, Until(rounds[number - 2] / D, error=1e-9), places=[row])
            assert predicted_error(earlier.uncertainty)[0] > 0.05


@pytest.mark.parametrize("method", GROWING)
def test_scores_hang_on_nothing_but_the_instance(method, monkeypatch):
    tables, until = tables_of(9), Until(16, error=0.04, top=2)
    together = explained(method, tables, until)
    backwards = explained(method, tables, until, places=np.arange(9)[::-1])
    alone = explained(method, tables, until, timing="per_instance")
    monkeypatch.setattr(run, "CHUNK", 2)
    in_twos = explained(method, tables, until)
    for other in (backwards.at(np.arange(9)[::-1]), alone, in_twos):
        np.testing.assert_allclose(other.scores, together.scores, rtol=0, atol=1e-12 * np.abs(tables).max())
        assert (other.evaluations == together.evaluations).all() and other.flag == together.flag


def test_a_share_of_the_whole_and_the_top_features():
    tables = tables_of(8)
    whole = np.abs(tables[:, -1] - tables[:, 0])
    found = explained("gp_shapley", tables, Until(32, error="2%"))
    assert (predicted_error(found.uncertainty) <= 0.02 * whole).all()
    found = explained("kernel_shap", tables, Until(2**D / D, top=3))
    exact = designs.shapley(D).attribute(games_in_order(tables))
    top = [set(row.argsort()[-3:]) for row in found.scores]
    assert sum(one == set(row.argsort()[-3:]) for one, row in zip(top, exact, strict=True)) >= 7
    assert found.flag == [None] * 8 and found.evaluations.max() > found.evaluations.min()
    few = explained("gp_shapley", tables[:, : 2**D], Until(4, top=50))  # all of them: settled at once
    assert few.flag == [None] * 8


def games_in_order(tables):
    return tables[:, designs.shapley(D).masks @ (1 << np.arange(D))]


@pytest.mark.parametrize(
    ("method", "error", "least"),
    [("kernel_shap", 0.1, 0.92), ("sample_shapley", 0.4, 0.87), ("gp_shapley", 0.1, 0.88)],
)
def test_the_predicted_error_holds_when_it_decides(method, error, least):
    # A hard game: log-probabilities of a network that is sure, whose errors have long tails.
    game = value_tables.cancer()
    inside, wrong, predicted = [], [], []
    for seed in range(2):
        found = explained(method, game.values[:60], Until(32, error=error), seed)
        done = np.array(found.flag) != AT_THE_CAP
        assert done.mean() > 0.8
        apart = (found.scores - game.shapley[:60])[done]
        inside.append(np.abs(apart) <= 1.96 * found.uncertainty[done])
        wrong.append(apart)
        predicted.append(found.uncertainty[done])
    coverage = np.concatenate(inside).mean()
    ratio = np.sqrt((np.concatenate(predicted) ** 2).mean() / (np.concatenate(wrong) ** 2).mean())
    assert least <= coverage <= 0.985
    assert 0.8 <= ratio <= 1.25


def model(rows):
    positive = 1 / (1 + np.exp(-rows @ np.linspace(-1, 1, rows.shape[1])))
    return np.stack([1 - positive, positive], axis=1)


def test_one_call_takes_it_and_tells_what_is_wrong_in_a_line():
    rows = np.random.default_rng(0).normal(size=(6, 6))

    def explain(method, budget):
        return shapeline.explain(model, rows, method, features="column", budget=budget)

    found = explain("gp_shapley", {"error": "5%", "at_most": 8})
    assert found.evaluations.max() <= 48
    for method, budget, words in (
        ("lime", {"error": 1.0}, "lime cannot stop when good enough; give a number, or use one of kernel_shap"),
        ("occlusion", {"error": 1.0}, "occlusion cannot stop"),
        ("kernel_shap", {}, "give error, or top"),
        ("kernel_shap", {"error": 0.1, "at_most": 3}, "at_most: the first round of kernel_shap takes 4 x d"),
        ("kernel_shap", {"eror": 0.1}, 'give {"error": 0.05}'),
        ("kernel_shap", {"error": "five"}, 'give {"error": 0.05}'),
    ):
        with pytest.raises(ShapelineError) as told:
            explain(method, budget)
        assert words in str(told.value) and "\n" not in str(told.value)


def configuration(entry):
    experiment = copy.deepcopy(SMOKE["experiments"]["smoke"]) | {"model": "own"}
    experiment["methods"]["own"] = entry
    model_ = SMOKE["models"]["smoke"] | {"dataset": "own"}
    return {
        "run": ["own"],
        "datasets": {"own": SMOKE["datasets"]["smoke"]},
        "models": {"own": model_},
        "experiments": {"own": experiment},
    }


def test_the_plan_and_the_estimates_know_the_most_that_it_spends():
    config = validation.load(configuration({"method": "gp_shapley", "budget": {"error": "5%"}}))
    settings = plan_settings.attribute_settings(config, "own", "own")
    assert settings["budget"] == {"at_most": 32, "error": "5%"}
    assert budget_of(config, "own", "own") == 32
    assert estimates.of_instance(config, "own", "own")[0] == 32 * 4
    assert METHODS["gp_shapley"].largest == gaussian_process.MOST_COALITIONS


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"method": "lime", "budget": {"error": 0.1}}, "budget: lime cannot stop when good enough"),
        ({"method": "kernel_shap", "budget": {"error": 0.1}, "snapshots": [2]}, "snapshots: a budget that ends"),
        ({"method": "kernel_shap", "budget": {"error": 0.1}, "rival_of": "occlusion"}, "remove budget and snapshots"),
        ({"method": "kernel_shap", "budget": {"eror": 0.1}}, "budget.eror: unknown key. Did you mean 'error'?"),
        ({"method": "kernel_shap", "budget": {"error": -1}}, "budget.error: input should be greater than 0"),
        (
            {"method": "kernel_shap", "budget": {"top": 3, "at_most": 2}},
            "budget.at_most: the first round of kernel_shap",
        ),
        ({"method": "kernel_shap", "budget": "4"}, "budget: '4' is text to YAML"),
    ],
)
def test_a_mistake_in_it_is_one_clear_line(entry, words):
    with pytest.raises(ShapelineError) as told:
        validation.load(configuration(entry))
    assert any(
        words in line and line.startswith("experiments.own.methods.own") for line in str(told.value).splitlines()
    )
