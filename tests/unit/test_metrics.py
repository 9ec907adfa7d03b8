"""Every metric on a case with a known answer."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from snakemake.iocontainers import InputFiles

from shapeline import scores
from shapeline.games.features import Features
from shapeline.games.game import Game
from shapeline.games.references import Reference
from shapeline.metrics import bookkeeping, error
from shapeline.metrics.score_measurement import measure_scores
from shapeline.report import formatting
from shapeline.scores import rank_features
from shapeline.statistics.bounds import intervals
from shapeline.statistics.comparison import compare


def rows(values, full=None, empty=0.0, **columns) -> pd.DataFrame:
    n = len(values)
    return pd.DataFrame(
        {
            "instance": np.arange(n),
            "target": 0,
            "repeat": 0,
            "budget": np.nan,
            "scores": [np.asarray(row, np.float32) for row in values],
            "evaluations": 8,
            "seconds": 0.25,
            "value_full": np.zeros(n) if full is None else full,
            "value_empty": empty,
            **columns,
        }
    )


def statistic(frame: pd.DataFrame, name: str) -> list[float]:
    return frame.loc[frame["statistic"] == name, "value"].tolist()


def test_error_by_hand():
    found = error.measure(rows([[1, 2, 3, 4], [4, 3, 2, 1]]), rows([[1, 2, 3, 6], [1, 2, 3, 4]]), top=0.5)
    assert statistic(found, "rmse") == pytest.approx([1.0, np.sqrt((9 + 1 + 1 + 9) / 4)])
    assert statistic(found, "spearman") == pytest.approx([1.0, -1.0])
    assert statistic(found, "top_k_overlap") == [1.0, 0.0]


def test_rounding_of_exact_scores_is_no_error():
    """Otherwise methods that are exact, such as kernel_shap with all coalitions, are ranked by their rounding."""
    exact = np.float32([100.0, -3.0, 0.0])
    nearly = exact + np.float32([2e-5, 2e-6, 1e-5])
    parts = [rows([nearly], budget=budget) for budget in (2.0, 4.0)]
    found = error.measure(pd.concat(parts, ignore_index=True), rows([exact]))
    assert statistic(found, "rmse") == [0.0] and statistic(found, "rmse_by_budget") == [0.0, 0.0]
    assert statistic(error.measure(rows([exact + np.float32([2e-3, 0, 0])]), rows([exact])), "rmse")[0] > 1e-3


def test_the_top_share_is_counted_without_rounding_errors():
    """0.14 * 50 is above 7 in floating point."""
    truth = np.arange(50.0)
    estimated = np.where(truth == 43, -1.0, truth)  # the seventh largest
    found = error.measure(rows([list(estimated)]), rows([list(truth)]), top=0.14)
    assert statistic(found, "top_k_overlap") == [6 / 7]


def test_scores_without_a_scale_take_that_of_the_truth():
    """By hand: the first row has a root mean square of 5, the truth of 10; zeros stay zeros."""
    found = error.measure(rows([[5, -5], [0, 0]]), rows([[10, 10], [3, 4]]), scale_free=True)
    assert statistic(found, "rmse") == pytest.approx([np.sqrt((0 + 400) / 2), np.sqrt((9 + 16) / 2)])


@pytest.mark.parametrize(
    ("reference", "method", "value", "comparable"),
    [
        ("shapley", "kernel_shap", "probability", True),
        ("shapley", "integrated_gradients", "probability", False),
        ("shapley", "integrated_gradients", "log_probability", True),
        ("shapley", "integrated_gradients", "prediction", True),
        ("shapley", "saliency", "log_probability", False),
        ("shapley", "grad_cam", "log_probability", False),
        ("shapley", "random", "probability", True),
        ("shapley", "external", "probability", True),
        ("shapley", "counterfactual", "probability", False),
        ("external", "kernel_shap", "probability", True),
        ("mim", "parzen", None, False),
    ],
)
def test_scores_in_another_unit_than_the_exact_ones_have_no_rmse(reference, method, value, comparable, tmp_path):
    files = {}
    for entry, name in {"exact": reference, "other": method}.items():
        (tmp_path / entry).mkdir()
        files[entry] = str(tmp_path / entry / "0-of-1.parquet")
        told = {"settings": {"method": {"method": name}, "value": value, "seed": 0}}
        scores.write(files[entry], rows([[1, 2, 3, 4], [4, 3, 2, 1]], training_seed=0, status="ok"), told)
    jobs = {"error": {"parameters": {"reference": "exact"}}}
    found, _ = measure_scores(InputFiles(fromdict={"scores": list(files.values())}), jobs, "")
    common = {"spearman", "top_k_overlap"}
    assert set(found["statistic"]) == (common | {"rmse"} if comparable else common)


@pytest.mark.parametrize(("reference", "covers"), [("shapley", False), ("shapley_interactions", True)])
def test_intervals_of_main_effects_are_not_of_shapley_values(reference, covers, tmp_path):
    """A main effect beside pairs is the Shapley value less half of its pairs: its interval covered 44 % of them."""
    files = []
    for entry, name in {"exact": reference, "other": "gp_interactions"}.items():
        (tmp_path / entry).mkdir()
        files.append(str(tmp_path / entry / "0-of-1.parquet"))
        spread = rows([[1, 2], [4, 3]], training_seed=0, status="ok", standard_error=[np.ones(2)] * 2)
        scores.write(files[-1], spread, {"settings": {"method": {"method": name}, "value": "probability", "seed": 0}})
    found, _ = measure_scores(
        InputFiles(fromdict={"scores": files}), {"error": {"parameters": {"reference": "exact"}}}, ""
    )
    assert ({"coverage", "predicted_rmse"} <= set(found["statistic"])) == covers and "rmse" in set(found["statistic"])


def test_outputs_of_a_game_are_one_instance(tmp_path):
    (tmp_path / "one").mkdir()
    path, told = str(tmp_path / "one/0-of-1.parquet"), {"method": {"method": "gp_shapley"}, "seed": 0, "game": "a.py:b"}
    every = rows(np.ones((5, 3)), full=np.arange(5.0), target=[0, 1, 0, 1, 2], training_seed=0, status="ok")
    scores.write(path, every, {"settings": told})
    found, _ = measure_scores(InputFiles(fromdict={"scores": [path]}), {"efficiency": {}}, "")
    assert found["instance"].tolist() == [0, 0, 2, 2, 2] and compare(found)["n"].tolist() == [2]


@pytest.mark.parametrize("truth", [np.arange(10), -np.arange(10)])
def test_scores_that_are_all_the_same_have_the_overlap_of_chance(truth):
    found = error.measure(rows(np.zeros((2000, 10))), rows(np.tile(truth, (2000, 1))), seed=1)
    assert np.mean(statistic(found, "top_k_overlap")) == pytest.approx(0.2, abs=0.03)  # k of d, wherever the truth is
    back = error.measure(rows(np.tile(truth, (2000, 1))), rows(np.zeros((2000, 10))), seed=1)
    assert np.mean(statistic(back, "top_k_overlap")) == pytest.approx(0.2, abs=0.03)
    both = error.measure(rows(np.zeros((2000, 10))), rows(np.zeros((2000, 10))), seed=1)
    assert np.mean(statistic(both, "top_k_overlap")) == pytest.approx(0.2, abs=0.03)
    again = error.measure(rows(np.zeros((2000, 10))), rows(np.tile(truth, (2000, 1))), seed=2)
    assert statistic(found, "top_k_overlap") != statistic(again, "top_k_overlap")


def test_spearman_of_constant_scores_is_nan_and_ties_share_ranks():
    unused = [0, 2e-17, -1e-17, 1e-7, 2]  # a feature without effect has the rounding of sums as its score
    found = error.measure(rows([[1, 1, 1], [1, 1, 2], unused]), rows([[1, 2, 3], [1, 2, 3], [1e-17, 0, 2e-7, 0, 3]]))
    spearman = statistic(found, "spearman")
    assert np.isnan(spearman[0])
    assert spearman[1:] == pytest.approx([np.sqrt(3) / 2, stats.spearmanr([0, 0, 0, 1, 2], [0, 0, 1, 0, 2])[0]])


def test_error_leaves_out_instances_without_truth():
    truth = rows([[1, 2], [3, 4]]).iloc[1:]
    assert error.measure(rows([[1, 2], [3, 4]]), truth)["instance"].unique().tolist() == [1]


def test_error_by_budget_with_bias_and_variance_apart():
    truth = rows([[0.0, 0.0]])
    parts = [
        rows([values], budget=budget).assign(repeat=repeat)
        for budget, repeated in ((2.0, ([3, 1], [1, 1])), (4.0, ([1, 0], [-1, 0])))
        for repeat, values in enumerate(repeated)
    ]
    found = error.measure(pd.concat(parts, ignore_index=True), truth)
    assert statistic(found, "rmse") == pytest.approx([np.sqrt(0.5)] * 2)  # of the full budget alone
    by_budget = found[found["statistic"] == "rmse_by_budget"].sort_values(["x", "repeat"])["value"].tolist()
    assert by_budget == pytest.approx([np.sqrt(5), 1, np.sqrt(0.5), np.sqrt(0.5)])
    assert statistic(found, "variance_by_budget") == pytest.approx([1.0, 1.0])  # (2 + 0)/2 and (2 + 0)/2
    assert statistic(found, "bias_squared_by_budget") == pytest.approx([2.5 - 0.5, 0 - 0.5])
    mean_square = (np.array([5, 0.5]) + np.array([1, 0.5])) / 2
    assert np.array([2.0, -0.5]) + 1.0 == pytest.approx(mean_square)  # error squared is bias squared plus variance


def test_efficiency_and_cost_by_hand():
    table = rows([[1, 2], [1, -1]], full=[4.0, 1.0], empty=1.0)
    assert statistic(bookkeeping.measure_efficiency(table), "gap") == [0.0, 0.0]
    table["value_full"] = [4.5, 0.0]
    assert statistic(bookkeeping.measure_efficiency(table), "gap") == [0.5, 1.0]
    table["interactions"] = [[0.5], None]  # the report's diagnostics counted them, and this metric did not
    assert statistic(bookkeeping.measure_efficiency(table), "gap") == [0.0, 1.0]
    assert statistic(bookkeeping.measure_cost(table), "evaluations") == [8.0, 8.0]
    assert statistic(bookkeeping.measure_cost(table), "seconds") == [0.25, 0.25]


def linear_model(weights):
    """Two classes with log-odds(0) = weights @ x exactly: logits (weights @ x, 0)."""
    import torch

    from shapeline.models import adapters

    layer = torch.nn.Linear(len(weights), 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([weights, [0.0] * len(weights)]))
        layer.bias.zero_()
    return adapters.wrap(layer)


def log_odds(scores, weights=(4.0, 2.0, 1.0), **options):
    from shapeline.metrics import log_odds as metric

    d = len(weights)
    features = Features("column", (d,), np.arange(d, dtype=np.int32), ())
    return metric.measure(
        rows([scores]),
        Game(linear_model(list(weights)), Reference(np.zeros((1, d), np.float32)), features),
        np.ones((1, d), np.float32),
        [(features, np.array([0]))],
        **options,
    )


def test_log_odds_curves_by_hand():
    found = log_odds([3.0, 2.0, 1.0])
    assert statistic(found, "deletion") == pytest.approx([0, -4, -6, -7])
    assert statistic(found, "insertion") == pytest.approx([-7, -3, -1, 0])
    assert statistic(found, "deletion_auc") == pytest.approx([-(4 / 2 + 4 / 2 + 6 / 2 + 6 / 2 + 7 / 2) / 3])
    assert statistic(found, "insertion_auc") == pytest.approx([-(7 / 2 + 3 / 2 + 3 / 2 + 1 / 2 + 1 / 2) / 3])
    assert found.loc[found["statistic"] == "deletion", "x"].tolist() == pytest.approx([0, 1 / 3, 2 / 3, 1])


def test_log_odds_rank_by_signed_score_and_take_fractions():
    found = log_odds([-9.0, 2.0, 1.0], fractions=[0.5])  # half of three features is two
    assert statistic(found, "deletion") == pytest.approx([0, -3, -7])


def test_instances_with_different_features_share_the_fractions():
    from shapeline.metrics import log_odds as metric

    coarse = Features("group", (2,), np.array([0, 0, 1], dtype=np.int32), ())
    fine = Features("column", (3,), np.arange(3, dtype=np.int32), ())
    both = pd.concat([rows([[3.0, 2.0, 1.0]]), rows([[1.0, 2.0]]).assign(instance=1)], ignore_index=True)
    found = metric.measure(
        both,
        Game(linear_model([4.0, 2.0, 1.0]), Reference(np.zeros((1, 3), np.float32)), None),
        np.ones((2, 3), np.float32),
        [(coarse, np.array([1])), (fine, np.array([0]))],
        fractions=[0.5],
    )
    masking = found[found["statistic"] == "deletion"]
    assert sorted(masking["x"].unique()) == [0, 0.5, 1]
    assert masking.loc[masking["instance"] == 1, "value"].tolist() == pytest.approx([0, -1, -7])
    assert masking.loc[masking["instance"] == 0, "value"].tolist() == pytest.approx([0, -6, -7])


def test_ties_are_broken_by_instance_not_by_position():
    ranks = rank_features(np.zeros((200, 3)), np.arange(200), seed=0)
    assert sorted(set(ranks[:, 0])) == [0, 1, 2]
    assert (np.sort(ranks, 1) == np.arange(3)).all()
    assert (rank_features(np.zeros((1, 3)), np.array([7]), 0) == ranks[7]).all()


def measured(values, entry="a", name="rmse") -> pd.DataFrame:
    return pd.DataFrame(
        {
            "method": entry,
            "instance": np.arange(len(values)),
            "repeat": 0,
            "statistic": name,
            "x": np.nan,
            "value": values,
        }
    )


def test_compare_gives_mean_interval_and_count():
    values = np.random.default_rng(0).normal(5, 2, 400)
    row = compare(measured(values)).iloc[0]
    assert row["mean"] == pytest.approx(values.mean())
    assert row["n"] == 400
    half = 1.96 * values.std() / 20
    assert (row["high"] - row["low"]) / 2 == pytest.approx(half, rel=0.1)
    assert row["low"] < row["mean"] < row["high"]
    assert np.isnan(row["x"])


def test_compare_gives_one_instance_no_interval():
    row = compare(measured(np.array([2.0]))).iloc[0]
    assert (row["mean"], row["n"]) == (2.0, 1) and np.isnan([row["low"], row["high"]]).all()
    assert formatting.interval(row) == "2.00"
    row = compare(measured(np.repeat([1.0, 3.0], 5)).assign(statistic="seconds")).iloc[0]  # of two batches
    assert (row["mean"], row["n"]) == (2.0, 10) and np.isnan([row["low"], row["high"]]).all()


def test_compare_leaves_out_what_is_not_finite_and_averages_repeats():
    frame = pd.concat([measured([1.0, np.nan, 3.0]), measured([3.0, np.nan, np.inf]).assign(repeat=1)])
    row = compare(frame).iloc[0]
    assert (row["mean"], row["n"]) == (2.5, 2)


def test_compare_pairs_the_methods():
    values = np.random.default_rng(0).normal(size=50)
    both = compare(pd.concat([measured(values), measured(values + 1, entry="b")]))
    widths = both["high"] - both["low"]
    assert widths.iloc[0] == pytest.approx(widths.iloc[1])
    assert (both["low"].iloc[1] - both["low"].iloc[0]) == pytest.approx(1)


def test_compare_averages_repeats_within_the_instance_which_is_the_unit():
    """Twice the repeats of the same instances are no further units: the interval is that of the instances' means."""
    random = np.random.default_rng(0)
    drawn = random.normal(size=(50, 1)) + random.normal(0, 0.5, (50, 4))
    rows = [(i, r, drawn[i, r]) for i in range(50) for r in range(4)]
    frame = pd.DataFrame(rows, columns=["instance", "repeat", "value"])
    frame = frame.assign(method="a", statistic="area", x=np.nan)
    wide = compare(frame).iloc[0]
    means = intervals(drawn.mean(1)[:, None]).loc[0]
    assert wide[["mean", "low", "high"]].tolist() == pytest.approx(means[["mean", "low", "high"]].tolist())
    assert wide["n"] == 50
    again = compare(pd.concat([frame, frame.assign(repeat=frame["repeat"] + 4)])).iloc[0]
    assert again[["low", "high"]].tolist() == pytest.approx(wide[["low", "high"]].tolist())


def test_compare_averages_the_repeats_that_an_instance_has():
    frame = pd.DataFrame(
        {"instance": [1, 1, 1, 2, 2, 2], "repeat": [0, 1, 2] * 2, "value": [1.0, 1, 1, 3, np.nan, 3]}
    ).assign(method="a", statistic="area", x=np.nan)
    row = compare(frame).iloc[0]
    half = stats.t.ppf(0.975, 1)  # of 1 and 3, whose standard error is 1
    assert row[["mean", "low", "high", "n"]].tolist() == pytest.approx([2, 2 - half, 2 + half, 2])


def test_intervals_stay_within_the_bounds_of_their_statistic():
    keys = {"method": "a", "repeat": 0, "x": np.nan}
    random = np.random.default_rng(0)
    binary, shares = np.array([1.0] * 9 + [0.0]), np.r_[0.2, np.full(9, 0.99)]
    given = {
        "pointing": binary,
        "recall": np.ones(10),
        "auprc": shares,
        "rmse": random.exponential(size=10) ** 3,
        "spearman": np.r_[-0.9, np.full(9, 0.999)],
        "deletion_auc": -np.abs(random.normal(size=10)),
    }
    rows = [
        pd.DataFrame({"instance": range(10), "statistic": name, "value": values, **keys})
        for name, values in given.items()
    ]
    found = compare(pd.concat(rows)).set_index("statistic")
    p, z = 0.9, stats.norm.ppf(0.975)  # Wilson's ends are the roots of (x - p)^2 = z^2 x (1 - x) / n
    ends = np.roots([1 + z**2 / 10, -(2 * p + z**2 / 10), p**2])
    assert found.loc["pointing", ["low", "high"]].tolist() == pytest.approx(sorted(ends), abs=1e-6)
    assert found.loc["recall", ["low", "high"]].tolist() == pytest.approx([1 / (1 + z**2 / 10), 1.0], abs=1e-6)
    assert (found["low"] <= found["mean"]).all() and (found["mean"] <= found["high"]).all()
    assert found["high"][["pointing", "recall", "auprc", "spearman"]].le(1).all() and found.loc["auprc", "high"] == 1
    assert found.loc["rmse", "low"] >= 0 > found.loc["deletion_auc", "low"]
    own = compare(rows[2].assign(value=2 * shares)).iloc[0]  # a user's statistic of the same name has other bounds
    assert own["high"] > 2
    alone = compare(rows[0].head(1)).iloc[0]
    assert np.isnan(alone["low"]) and np.isnan(alone["high"])
