"""Adaptive stopping: coalitions of the rounds, the stopping rule, and the errors after it."""

import copy
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import shapeline
from shapeline import designs
from shapeline.attribution import sampling
from shapeline.attribution.run import Options, attribute
from shapeline.config import validation
from shapeline.config.derived import SMOKE, find_budget
from shapeline.designs import gaussian_process, sampled
from shapeline.designs.stopping import (
    CAP_WARNING,
    MAX_CHANGE,
    MIN_VARIANCE_FACTOR,
    PredictedErrors,
    StoppingCriterion,
    count_ranked,
    predict_error,
)
from shapeline.designs.uncertainty import kernel_shap_uncertainty
from shapeline.errors import ShapelineError
from shapeline.games import features as feature_kinds
from shapeline.methods.registry import METHODS
from shapeline.methods.settings import parse
from shapeline.metrics import error
from shapeline.report import experiment
from shapeline.report.elements import SIGNS, styles
from shapeline.report.figures import score_maps
from shapeline.report.figures.lines import calibration
from shapeline.report.formatting import number, share
from shapeline.report.sections import robustness, texts
from shapeline.workflow import jobs as plan_settings
from shapeline.workflow import messages

from . import games, value_tables

D = 10
GROWING = [name for name, method in METHODS.items() if method.nested_design]


def asked_of(tables, asked=None):
    """A game whose values are those of tables (n, 2^d), the input being the table's number."""
    d = tables.shape[1].bit_length() - 1

    def values(inputs, masks, targets):
        rows = inputs[:, 0].astype(int)
        if asked is not None:
            for row, mask in zip(rows, masks, strict=True):
                asked[row] += (mask @ (1 << np.arange(d))).tolist()
        return np.take_along_axis(tables[rows], masks @ (1 << np.arange(d)), axis=1)

    model = SimpleNamespace(check_rows=lambda inputs: None, framework="function")
    features = feature_kinds.build({"kind": "column"}, {"input_shape": [d], "kind": "table"})
    return SimpleNamespace(model=model, features=features, values=values, value="log_probability")


def explained(method, tables, until, seed=0, places=None, asked=None, **options):
    """The explanation of tables (n, 2^d) by a method until it is good enough."""
    places = np.arange(len(tables)) if places is None else np.asarray(places)
    options = Options(seed, instances=places, **options)
    game = asked_of(tables, asked)
    return attribute(
        game, places[:, None].astype(float), np.zeros(len(places)), parse({"method": method}, [until]), options
    )[0]


def tables_of(n, d=D):
    """Curves of weighted sums with an interaction, some nearly linear."""
    rng = np.random.default_rng(5)
    pair = games.unanimity(d, {frozenset({1, 2, 3}): 1.0})
    bend = np.geomspace(0.01, 1, n)
    return np.array([np.tanh(b * games.linear(rng.normal(size=d))) / b + b * pair for b in bend])


@pytest.mark.parametrize("make", [sampled.grow_kernel_shap, sampled.grow_sample_shapley, gaussian_process.gp_pairs])
@pytest.mark.parametrize("d", [2, 5, 10, 40])
def test_a_larger_budget_contains_the_coalitions_of_a_smaller_one(make, d):
    before = set()
    for budget in (sampled.round_minimum(d), 5 * d, 6 * d, 9 * d, 16 * d):
        design = make(d, budget, seed=3)
        asked = {mask.tobytes() for mask in design.masks}
        assert before <= asked
        assert len(asked) == design.evaluations <= max(budget, 4)
        before = asked
    with pytest.raises(ShapelineError, match="too few to stop"):
        sampled.grow_kernel_shap(d, sampled.round_minimum(d) - 1)


@pytest.mark.parametrize("make", [sampled.grow_kernel_shap, sampled.grow_sample_shapley])
def test_all_coalitions_are_the_shapley_values_and_linear_games_are_exact(make):
    game = games.table(6)
    np.testing.assert_allclose(games.scores(make(6, 64), game), games.shapley(game), atol=1e-10)
    weights = np.random.default_rng(0).normal(size=9)
    np.testing.assert_allclose(games.scores(make(9, 50), games.linear(weights)), weights, atol=1e-10)


def test_the_nested_fit_has_the_weights_of_the_kernel():
    design = sampled.grow_kernel_shap(7, 60, seed=1)
    weights, drawn = design.sample
    first = design.masks[1 : 1 + len(weights)]
    assert (drawn == (first.sum(axis=1) > 1)).all()
    np.testing.assert_allclose(weights[drawn == 0], games.kernel(7, 1))
    np.testing.assert_allclose(2 * weights[drawn > 0].sum(), sum(6 / (s * (7 - s)) for s in range(2, 6)))
    times = weights[drawn > 0] / weights[drawn > 0].min()
    np.testing.assert_allclose(times, np.round(times), rtol=1e-9)
    assert times.max() > 1
    # A size that happens to be drawn whole still varies.
    whole = sampled.grow_kernel_shap(5, 30, seed=0)
    assert (kernel_shap_uncertainty(whole, games.look_up(games.table(5), whole.masks)).standard_error > 0).all()


@pytest.mark.parametrize("method", GROWING)
def test_it_stops_in_the_first_round_below_the_error_and_evaluates_no_coalition_twice(method):
    tables, asked = tables_of(12), {row: [] for row in range(12)}
    found = explained(method, tables, StoppingCriterion(16, error=0.05), asked=asked)
    errors, at_cap = predict_error(found.standard_error), np.array(found.warning) == CAP_WARNING
    assert (errors[~at_cap] <= 0.05).all() and (errors[at_cap] > 0.05).all()
    rounds = StoppingCriterion(16, error=0.05).rounds(D, METHODS[method].first_round)
    assert rounds == ([120, 150, 160] if method == "sample_shapley" else [40, 50, 62, 78, 97, 122, 152, 160])
    assert rounds[0] - D < found.evaluations.min() < found.evaluations.max() <= 16 * D
    for row, details in enumerate(found.details):
        taken = int(details["rounds"])
        assert len(set(asked[row])) == found.evaluations[row]
        if method != "sample_shapley":  # whose draws differ in length, so that some are filled up
            assert len(asked[row]) == found.evaluations[row]
            assert found.evaluations[row] == rounds[taken - 1] // 2 * 2
        if taken > METHODS[method].min_rounds:  # one round less would not have been enough
            earlier = explained(method, tables, StoppingCriterion(rounds[taken - 2] / D, error=1e-9), places=[row])
            assert predict_error(earlier.standard_error)[0] > 0.05


@pytest.mark.parametrize("method", GROWING)
def test_scores_depend_on_the_instance_only(method, monkeypatch):
    tables, until = tables_of(9), StoppingCriterion(16, error=0.04, top=2)
    together = explained(method, tables, until)
    backwards = explained(method, tables, until, places=np.arange(9)[::-1])
    alone = explained(method, tables, until, timing="per_instance")
    monkeypatch.setattr(sampling, "CHUNK_SIZE", 2)
    in_twos = explained(method, tables, until)
    for other in (backwards.at(np.arange(9)[::-1]), alone, in_twos):
        np.testing.assert_allclose(other.scores, together.scores, rtol=0, atol=1e-12 * np.abs(tables).max())
        assert (other.evaluations == together.evaluations).all() and other.warning == together.warning


def test_relative_errors_and_the_top_features():
    tables = tables_of(8)
    whole = np.abs(tables[:, -1] - tables[:, 0])
    found = explained("gp_shapley", tables, StoppingCriterion(64, error="2%"))
    assert (predict_error(found.standard_error) <= 0.02 * whole).all()
    found = explained("kernel_shap", tables, StoppingCriterion(2**D / D, top=3))
    exact = designs.shapley(D).attribute(games_in_order(tables))
    top = [set(row.argsort()[-3:]) for row in found.scores]
    assert sum(one == set(row.argsort()[-3:]) for one, row in zip(top, exact, strict=True)) >= 7
    assert found.warning == [None] * 8 and found.evaluations.max() > found.evaluations.min()
    few = explained("gp_shapley", tables[:, : 2**D], StoppingCriterion(4, top=50))  # all of them: settled at once
    assert few.warning == [None] * 8


def games_in_order(tables):
    return tables[:, designs.shapley(D).masks @ (1 << np.arange(D))]


@pytest.mark.parametrize(
    ("method", "error", "least"), [("kernel_shap", 0.1, 0.92), ("sample_shapley", 0.4, 0.9), ("gp_shapley", 0.1, 0.92)]
)
def test_the_predicted_error_holds_when_it_decides(method, error, least):
    # A hard game: log-probabilities of a network that is sure, whose errors have long tails.
    game = value_tables.cancer()
    inside, wrong, predicted = [], [], []
    for seed in range(2):
        found = explained(method, game.values[:60], StoppingCriterion(32, error=error), seed)
        done = np.array(found.warning) != CAP_WARNING
        assert done.mean() > 0.8
        apart = (found.scores - game.shapley[:60])[done]
        inside.append(np.abs(apart) <= 1.96 * found.standard_error[done])
        wrong.append(apart)
        predicted.append(found.standard_error[done])
    coverage = np.concatenate(inside).mean()
    ratio = np.sqrt((np.concatenate(predicted) ** 2).mean() / (np.concatenate(wrong) ** 2).mean())
    assert least <= coverage <= 0.985
    assert 0.8 <= ratio <= 1.25


def stop_in_simulation(rng, n, d, rounds, chance, foretold):
    """Errors and uncertainties (n, d) at the stop of estimates with normal errors ~ 1 / evaluations, predicted with a
    chance factor in each round."""
    spent = 40 * 1.25 ** np.arange(rounds)
    precise = spent**2 / spent[0] ** 2  # a sum of independent pieces, as a posterior's moves are
    pieces = rng.normal(size=(rounds, n, d)) * np.sqrt(np.diff(precise, prepend=0))[:, None, None]
    wrong = pieces.cumsum(axis=0) / precise[:, None, None]
    errors, said, left = np.zeros((n, d)), np.zeros((n, d)), np.ones(n, bool)
    earlier = PredictedErrors(n, d, 1.0)
    for turn in range(rounds):
        sd = np.exp(chance * rng.normal(size=(n, 1))) / np.sqrt(precise[turn])
        spread = np.broadcast_to(sd, (n, d))
        if foretold:
            spread = earlier.widen(np.arange(n), np.full(n, spent[turn]), wrong[turn], spread)
        stop = left & (predict_error(spread) < 0.3)
        errors[stop], said[stop] = wrong[turn, stop], spread[stop]
        left &= ~stop
    return errors[~left], said[~left]


def test_a_stop_at_the_first_low_prediction_is_too_sure_unless_earlier_rounds_are_heard():
    held = {}
    for foretold in (False, True):
        wrong, said = stop_in_simulation(np.random.default_rng(3), 4000, 12, 12, 0.4, foretold)
        held[foretold] = (np.abs(wrong) <= 1.96 * said).mean()
    assert held[False] < 0.84
    assert 0.91 < held[True] < 0.97


def test_scores_that_move_more_than_was_predicted_widen_what_follows():
    earlier, rng = PredictedErrors(2, 50, 0.5), np.random.default_rng(0)
    uncertainty = np.ones((2, 50))
    first = rng.normal(size=(2, 50))
    np.testing.assert_array_equal(earlier.widen(np.arange(2), np.full(2, 100), first, uncertainty), uncertainty)
    step = np.sqrt(0.5) * rng.normal(size=(2, 50))  # half of the variance is gone after twice the evaluations
    second = first + step * [[1.0], [3.0]]
    found = earlier.widen(np.arange(2), np.full(2, 200), second, np.sqrt(0.5) * uncertainty)
    moved = (2 + ((second - first) ** 2).mean(axis=1) / 0.5) / 3
    np.testing.assert_allclose(found, np.sqrt(0.5 * moved)[:, None].repeat(50, axis=1))
    assert moved[0] == pytest.approx(1, abs=0.15) and moved[1] > 3
    # Where nothing moves a share is left; what is certain stays certain; one instance alone may go on.
    still = PredictedErrors(1, 50, 0.5)
    for spent in (100, 200, 400, 800):
        found = still.widen(np.arange(1), np.full(1, spent), first[:1], 10 / np.sqrt(spent) * uncertainty[:1])
    np.testing.assert_allclose(found, np.sqrt(MIN_VARIANCE_FACTOR) * 10 / np.sqrt(800))
    alone = earlier.widen(np.array([1]), np.array([400]), second[1:] + 1e9, 0.5 * uncertainty[:1])
    assert predict_error(alone)[0] < 0.5 * np.sqrt((2 + 2 * MAX_CHANGE) / 4) * 2
    assert (earlier.widen(np.array([1]), np.array([1024]), second[1:], 0 * uncertainty[:1]) == 0).all()


def rounds_of(found):
    return {int(details["rounds"]) for details in found.details}


@pytest.mark.parametrize("method", GROWING)
def test_an_estimate_whose_first_rounds_are_too_sure_stops_in_the_third_at_the_earliest_unless_it_is_certain(method):
    """At 4 d and 5 d gp_shapley erred twice as much as it said where that was small enough, on a sure network."""
    tables, least, first = tables_of(6), METHODS[method].min_rounds, METHODS[method].first_round
    loose = explained(method, tables, StoppingCriterion(64, error=1e6))
    assert rounds_of(loose) == {least} and loose.warning == [None] * 6
    assert least == (1 if method == "kernel_shap" else 3)
    capped = explained(
        method, tables, StoppingCriterion(first, error=1e6)
    )  # the last round is judged whatever its number
    assert rounds_of(capped) == {1} and capped.warning == [None] * 6
    linear = (np.arange(2**D)[:, None] >> np.arange(D) & 1) @ np.arange(D) + np.ones((1, 1))
    assert rounds_of(explained(method, linear, StoppingCriterion(64, error=1e-6))) == {1}


def model(rows):
    positive = 1 / (1 + np.exp(-rows @ np.linspace(-1, 1, rows.shape[1])))
    return np.stack([1 - positive, positive], axis=1)


def test_one_call_accepts_it_and_mistakes_are_one_line():
    rows = np.random.default_rng(0).normal(size=(6, 6))

    def explain(method, budget):
        return shapeline.explain(model, rows, method, features="column", budget=budget)

    found = explain("gp_shapley", {"error": "5%", "max_budget": 8})
    assert found.evaluations.max() <= 48
    for method, budget, words in (
        ("lime", {"error": 1.0}, "lime cannot stop when good enough; give a number, or use one of kernel_shap"),
        ("occlusion", {"error": 1.0}, "occlusion cannot stop"),
        ("kernel_shap", {}, "give error, or top"),
        ("kernel_shap", {"error": 0.1, "max_budget": 3}, "max_budget: the first round of kernel_shap takes 4 x d"),
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


def test_auto_takes_an_error_target_of_few_features():
    rows = np.random.default_rng(0).normal(size=(3, 4))
    found = shapeline.explain(
        lambda rows: np.tanh(rows.sum(axis=1)), rows, reference="zero", value="prediction", budget={"error": 1e-3}
    )
    exact = shapeline.explain(
        lambda rows: np.tanh(rows.sum(axis=1)), rows, "shapley", reference="zero", value="prediction"
    )
    np.testing.assert_allclose(found.scores, exact.scores, atol=5e-3)


def test_the_plan_and_the_estimates_know_the_most_that_it_spends():
    config = validation.load(configuration({"method": "gp_shapley", "budget": {"error": "5%"}}))
    settings = plan_settings.attribute_settings(config, "own", "own")
    assert settings["budget"] == {"max_budget": 32, "error": "5%"}
    assert find_budget(config, "own", "own") == 32
    assert messages.estimate_instance(config, "own", "own")[0] == 32 * 4
    assert METHODS["gp_shapley"].max_evaluations == gaussian_process.MAX_COALITIONS


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"method": "lime", "budget": {"error": 0.1}}, "budget: lime cannot stop when good enough"),
        (
            {"method": "kernel_shap", "budget": {"error": 0.1}, "intermediate_budgets": [2]},
            "intermediate_budgets: a budget that ends",
        ),
        (
            {"method": "kernel_shap", "budget": {"error": 0.1}, "match_budget_of": "occlusion"},
            "remove budget and intermediate_budgets",
        ),
        ({"method": "kernel_shap", "budget": {"eror": 0.1}}, "budget.eror: unknown key. Did you mean 'error'?"),
        ({"method": "kernel_shap", "budget": {"error": "five"}}, "give a number or a percentage above 0, such as 5%"),
        ({"method": "kernel_shap", "budget": {"error": "0.0%"}}, "give a number or a percentage above 0, such as 5%"),
        ({"method": "kernel_shap", "budget": {"error": -1}}, "budget.error: -1 is not valid; input should be"),
        (
            {"method": "kernel_shap", "budget": {"top": 3, "max_budget": 2}},
            "budget.max_budget: the first round of kernel_shap",
        ),
        ({"method": "kernel_shap", "budget": "4"}, "budget: '4' is text to YAML"),
    ],
)
def test_a_mistake_in_it_is_one_clear_line(entry, words):
    with pytest.raises(ShapelineError) as told:
        validation.load(configuration(entry))
    lines = str(told.value).splitlines()
    assert any(words in line and line.startswith("experiments.own.methods.own") for line in lines)
    assert "budget.error" not in words or len(lines) == 1, lines
    assert not any("there is no stopping criterion" in line for line in lines)


def scored(found, places):
    """The rows of a score file."""
    return pd.DataFrame(
        {
            "instance": places,
            "target": 0,
            "repeat": 0,
            "budget": np.nan,
            "scores": list(found.scores.astype(np.float32)),
            "standard_error": list(found.standard_error.astype(np.float32)),
            "evaluations": found.evaluations,
            "seconds": 0.01,
            "value_full": 1.0,
            "value_empty": 0.0,
            "status": "ok",
            "warning": found.warning,
        }
    )


def test_the_page_reports_the_cost_and_the_equivalent_fixed_budget():
    tables = tables_of(12)
    found = explained("gp_shapley", tables, StoppingCriterion(8, error=0.02))
    curve = [("fixed", "rmse_by_budget", x, 0.08 / x) for x in (2.0, 4.0, 8.0)]
    compared = [*curve, ("close", "rmse", np.nan, 0.02)]
    frame = pd.DataFrame(compared, columns=["method", "statistic", "x", "mean"]).assign(low=0.0, high=1.0, n=12)
    entry = {"method": "gp_shapley", "parameters": {"budget": {"error": 0.02, "max_budget": 8}}}
    results = SimpleNamespace(
        entries={"close": entry, "fixed": {"method": "gp_shapley"}, "exact": {"method": "shapley"}},
        scores={"close": scored(found, np.arange(12))},
        metrics={"error": frame},
        exact="exact",
        value_unit="nats",
        settings={},
        d=D,
    )
    row = robustness._describe_stopping(results, "close", experiment.find_stopping_rules(results)["close"])
    spent = found.evaluations
    assert row["target"] == "predicted RMSE ≤ 0.02"
    assert row["evaluations, mean"] == number(spent.mean(), 4) and row["maximum"] == number(spent.max())
    assert row["at the cap"] == share(np.mean(np.array(found.warning) == CAP_WARNING)) != "0 %"
    assert row["equal RMSE at"] == "4 d (fixed)"  # half way between 0.04 at 2 d and 0.01 at 8 d
    assert row["saved"] == share(1 - spent.mean() / spent.max())
    page = robustness.stopping_section(results).data
    assert "Adaptive stopping" in page and "predicted RMSE ≤ 0.02" in page
    assert experiment.average_evaluations(results)["close"] == pytest.approx(spent.mean())
    assert (
        robustness.describe_stopping_rule({"error": "5%", "top": 3})
        == "predicted RMSE ≤ 5% of |v(N) − v(∅)| and top 3 stable"
    )
    results.entries = {"fixed": {"method": "gp_shapley"}}
    assert robustness.stopping_section(results).data == ""


def test_the_error_metric_measures_what_was_predicted():
    truth = pd.DataFrame({"instance": [0], "target": 0, "repeat": 0, "budget": np.nan, "scores": [np.zeros(4)]})
    rows = pd.concat([truth.assign(scores=[np.array([1, 2, 0, 0.0])], budget=budget) for budget in (2.0, 4.0)])
    rows["standard_error"] = [np.array([0.6, 0.6, 0.0, 1.0]), np.array([1.1, 1.1, 0.0, 0.0])]
    found = error.measure(rows, truth).set_index(["statistic", "x"])["value"]
    assert found["coverage_by_budget"].to_dict() == {2.0: 0.75, 4.0: 1.0}
    assert found["predicted_rmse_by_budget"][2.0] == pytest.approx(np.sqrt((0.72 + 1) / 4))
    assert found["coverage"].tolist() == [1.0] and found["predicted_rmse"].iloc[0] == pytest.approx(np.sqrt(2.42 / 4))
    assert "coverage" not in error.measure(rows.assign(standard_error=None), truth)["statistic"].tolist()
    drawn = calibration(
        error.measure(rows, truth).rename(columns={"value": "mean"}).assign(method="a", low=0.0, high=1.0),
        styles({"a": {}}),
    )
    held, predicted = drawn.axes[1], drawn.axes[0]
    assert held.containers[0].lines[0].get_ydata().tolist() == [75, 100]
    assert len(predicted.lines) == 2


def test_an_order_is_significant_while_each_feature_differs_from_all_below():
    scores = np.array([[5.0, 1.0, 3.0, 2.9], [1.0, 5.0, 4.9, 0.0]])
    assert count_ranked(scores, np.full((2, 4), 0.2)).tolist() == [1, 0]
    assert count_ranked(scores, np.full((2, 4), 0.01)).tolist() == [3, 3]
    assert count_ranked(scores, np.zeros((2, 4))).tolist() == [3, 3]


def test_a_score_whose_interval_holds_0_has_no_colour():
    cells = np.arange(4).reshape(2, 2)
    values = {"a": [np.array([1.0, -0.5, 0.2, 0.0])]}
    half = {"a": [np.array([0.5, 0.6, 0.1, 0.3])]}
    drawn = score_maps.heat_maps(np.zeros((1, 1, 2, 2)), ["one"], values, [cells], half=half)
    shown = drawn.axes[0].images[1]
    shown = shown.to_rgba(shown.get_array(), bytes=True)
    assert (shown == SIGNS((np.array([[1.0, 0.0], [0.2, 0.0]]) + 1) / 2, bytes=True)).all()
    table = score_maps.score_table({"a": values["a"][0]}, list("wxyz"), half={"a": half["a"][0]})
    texts_of = [text.get_text() for text in table.axes[0].texts]
    assert texts_of == ["1.0 ± 0.50", "−0.50 ± 0.60", "0.20 ± 0.10", "0 ± 0.30"]
    document = texts.Document(
        "d", ["a", "b"], {"a": np.array([1.0, -0.5])}, None, "p", 1.0, unsure={"a": [False, True]}
    )
    assert document.mask_unsure("a").tolist() == [1.0, 0.0] and document.mask_unsure("b") is None
