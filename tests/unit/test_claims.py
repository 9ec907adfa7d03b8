"""Claims of the papers: each check on results with a known answer, and the table of all claims."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from shapeline.papers import claims
from shapeline.report import findings


def measured(**columns):
    rows = []
    for entry, values in columns.items():
        rows += [(entry, i, 0, "deletion_auc", np.nan, value) for i, value in enumerate(values)]
    return pd.DataFrame(rows, columns=["method", "instance", "repeat", "statistic", "x", "value"])


def scored(scores, seconds=1.0, evaluations=10):
    n = len(scores)
    return pd.DataFrame(
        {
            "instance": range(n),
            "repeat": 0,
            "budget": np.nan,
            "status": "ok",
            "scores": [np.asarray(row, float) for row in scores],
            "seconds": seconds,
            "evaluations": evaluations,
        }
    )


@pytest.fixture
def results():
    noise = np.random.default_rng(0).normal(0, 0.1, 30)
    directions = np.random.default_rng(1).normal(size=(30, 4))
    return SimpleNamespace(
        experiment="imdb",
        model_card={"test_accuracy": 0.9, "parameters": 351_002, "rows": {"test": 1000}},
        dataset_card={},
        settings={},
        instances=pd.DataFrame({"instance": range(30)}),
        features=SimpleNamespace(names=("age", "race", "contact", "charge")),
        measured={"log_odds": measured(good=-2 + noise, same=-2 - noise, poor=-1 + 2 * noise)},
        scores={
            "good": scored(directions, 0.1),
            "poor": scored(directions + 0.01, 2.0),
            "other": scored(-directions, 0.1, 16),
        },
    )


def test_accuracy_holds_where_its_interval_lies_above_the_claim(results):
    assert claims.has_accuracy(0.87)(results).verdict == "holds"
    assert claims.has_accuracy(0.91)(results).verdict == "undecided"  # it spans the claim
    assert claims.has_accuracy(0.95)(results).verdict == "fails"
    assert "90 % (88" in claims.has_accuracy(0.91)(results).found


def test_fewer_evaluations_are_claimed_only_at_equal_error(results):
    """Errors 1/K against 2/K at 4, 8 and 16 d of d = 10: the second ends at 2/160, the first is there with 80."""
    hard, budgets = np.linspace(1, 2, 30), (4.0, 8.0, 16.0)
    rows = [
        (entry, i, 0, "rmse_by_budget", x, factor * each / (10 * x))
        for entry, factor in (("good", 1), ("poor", 2))
        for x in budgets
        for i, each in enumerate(hard)
    ]
    results.measured["error"] = pd.DataFrame(rows, columns=measured(a=[1.0]).columns)
    results.scores = {
        entry: scored(np.ones((30, 2)), evaluations=160).assign(warning=None) for entry in ("good", "poor")
    }
    earlier = [scored(np.ones((30, 2)), evaluations=int(10 * x)).assign(budget=x) for x in budgets[:-1]]
    results.entries, results.intermediate_budgets = {}, dict.fromkeys(("good", "poor"), pd.concat(earlier))
    errors = pd.DataFrame({"method": ["good", "poor"], "mean": [0.1, 0.2], "x": 16.0, "statistic": "rmse_by_budget"})
    results.metrics = {"error": errors}
    [row] = findings.tabulate_equal_error(results).to_dict("records")
    assert (row["method"], row["evaluations of good"], row["evaluations"]) == ("poor", "80.0", "160")
    told = claims.needs_fewer("good", "poor")(results)
    assert told.verdict == "holds" and told.found.startswith("2.00 times as many (2.00 to 2.00)")
    assert "80.0 evaluations against 160" in told.found
    assert claims.needs_fewer("good", "poor", 3)(results).verdict == "fails"
    assert claims.needs_fewer("poor", "good")(results).verdict == "fails"
    assert claims.needs_fewer("good", "absent")(results).found == "absent did not run"
    results.intermediate_budgets = {}
    results.measured["error"] = results.measured["error"].query("x == 16")
    assert claims.needs_fewer("good", "poor")(results).verdict == "not testable"


def test_parameters_are_counted_exactly(results):
    assert claims.has_size(351_002)(results).verdict == "holds"
    assert claims.has_size(351_003)(results).verdict == "fails"


def test_beats_holds_fails_or_is_undecided(results):
    assert claims.beats("good", "poor")(results).verdict == "holds"
    assert claims.beats("poor", "good")(results).verdict == "fails"
    assert claims.beats("good", "same")(results).verdict == "undecided"
    assert claims.beats("good", "poor", "same")(results).verdict == "undecided"
    assert claims.beats("good", "poor")(results).found.startswith(("ahead of: poor 1.0", "ahead of: poor 0.9"))
    assert claims.beats("poor", "good")(results).found.startswith(("ahead of: good −1.0", "ahead of: good −0.9"))
    assert claims.beats("good", "poor", better="higher")(results).verdict == "fails"
    assert claims.beats("good", "absent")(results) == claims.Finding(
        "absent did not run, or on too few instances", "not testable"
    )
    assert claims.beats("good", "poor", metric="localization")(results).verdict == "not testable"


def test_two_experiments_are_equal_if_the_interval_of_their_difference_is_within_the_margin(results, monkeypatch):
    """Thirty instances, deviation 0.1 each: the difference has an interval of 0.05 to either side."""
    other = SimpleNamespace(**vars(results) | {"experiment": "other"})
    told = {}
    for moved in (0.0, 0.06, 0.3):
        other.measured = {"log_odds": measured(good=results.measured["log_odds"]["value"][:30] + moved)}
        told[moved] = claims.has_equal_mean("good", 0.1, "log_odds", "deletion_auc")(results, other)
    assert [finding.verdict for finding in told.values()] == ["holds", "undecided", "fails"]
    assert claims.has_equal_mean("absent", 0.1, "log_odds", "deletion_auc")(results, other).verdict == claims.UNTESTABLE
    check = claims.has_equal_mean("good", 0.1, "log_odds", "deletion_auc")
    monkeypatch.setattr(claims, "CLAIMS", (claims.Claim("p", "1", "level", ("imdb", "other"), check, True),))
    both = claims.table([results, other]).iloc[0]
    assert (both["experiment"], both["verdict"]) == ("imdb, other", "⚠ fails")
    assert claims.table([results]).iloc[0]["found here"] == "other is not among these reports"
    assert claims.select_claims(results).empty


def test_an_order_averages_samples_within_their_instance(results):
    """Repeats are averaged within the instance: they make its number less noisy, and are no further instances."""
    values = np.arange(5) / 10
    few = measured(good=-2 + values, poor=-1 - values)
    results.measured["log_odds"] = pd.concat([few.assign(repeat=repeat) for repeat in range(8)])
    told = claims.beats("good", "poor")(results)
    assert told == claims.Finding("5 instances are too few for a verdict", "not testable")
    noise = np.random.default_rng(4).normal(0, 10, (30, 2))
    noise -= noise.mean(1, keepdims=True)
    drawn = [measured(good=-2 + noise[:, r], poor=-1 - noise[:, r]).assign(repeat=r) for r in range(2)]
    results.measured["log_odds"] = drawn[0]
    assert claims.beats("good", "poor")(results).verdict == "undecided"
    results.measured["log_odds"] = pd.concat(drawn)
    assert claims.beats("good", "poor")(results).verdict == "holds"


def test_an_order_of_several_is_corrected_for_them(results):
    """A lead that one comparison would call sure is open where it is one of nine."""
    random = np.random.default_rng(8)
    n, rivals = 30, {f"r{place}": random.normal(0, 1, 30) for place in range(8)}
    own = random.normal(0, 1, n)
    own = (own - own.mean()) / own.std(ddof=1)
    near = 0.0 * own
    results.measured["log_odds"] = measured(
        own=near, near=near + own + 2.2 / np.sqrt(n), **{name: each + 9 for name, each in rivals.items()}
    )
    assert claims.beats("own", "near")(results).verdict == "holds"
    assert claims.beats("own", "near", *rivals)(results).verdict == "undecided"


def test_faster_compares_seconds_of_the_same_instances_timed_separately(results):
    told = claims.faster("good", "poor", 10)(results)
    assert told.verdict == "not testable" and "timing: per_instance" in told.found
    results.settings["timing"] = "per_instance"
    assert claims.faster("good", "poor", 10)(results) == claims.Finding("20.0 times (20.0 to 20.0)", "holds")
    assert claims.faster("good", "poor", 30)(results).verdict == "fails"
    assert claims.faster("good", "absent")(results).verdict == "not testable"


def test_similarity_is_the_mean_cosine(results):
    assert claims.are_similar("good", "poor", 0.94)(results).verdict == "holds"
    assert claims.are_similar("good", "other", 0.94)(results).found.startswith("-1.000")
    assert claims.are_similar("good", "other", 0.94)(results).verdict == "fails"


def test_mostly_counts_the_signs_of_one_feature(results):
    results.scores["good"]["scores"] = [np.array([-1.0, 2.0 * (i < 16) - 1, 0, 1]) for i in range(30)]
    told = claims.Finding("100 % (88.6 % to 100 %) of 30", "holds")
    assert claims.has_mostly_sign("good", "age", -1)(results) == told
    assert claims.has_mostly_sign("good", "age", 1)(results).verdict == "fails"
    assert claims.has_mostly_sign("good", "race", 1)(results).verdict == "undecided"  # 16 of 30
    assert claims.has_mostly_sign("good", "contact", 1)(results).verdict == "fails"  # nothing has no sign
    assert claims.has_mostly_sign("good", "height", 1)(results).verdict == "not testable"


def test_bounds_and_seconds(results):
    assert claims.check_cost_bound("other", lambda d: 4 * d, "4 d")(results).verdict == "holds"
    assert claims.check_cost_bound("other", lambda d: 3 * d, "3 d")(results).verdict == "fails"
    assert claims.takes_at_most("poor", 5.0)(results) == claims.Finding("2.00 s per instance", "holds")
    assert claims.takes_at_most("poor", 1.0)(results).verdict == "fails"


def test_seconds_have_an_interval_where_each_instance_was_timed_separately(results):
    each = np.random.default_rng(3).normal(2, 0.3, 30)
    results.scores["poor"]["seconds"] = each
    assert "(" not in claims.takes_at_most("poor", 5.0)(results).found
    results.settings["timing"] = "per_instance"
    half = 1.96 * each.std(ddof=1) / np.sqrt(30)
    found = claims.takes_at_most("poor", each.mean() + 2 * half)(results)
    assert found.verdict == "holds"
    assert found.found == f"{each.mean():.2f} ({each.mean() - half:.2f} to {each.mean() + half:.2f}) s per instance"
    assert claims.takes_at_most("poor", each.mean() + half / 2)(results).verdict == "undecided"
    assert claims.takes_at_most("poor", each.mean() - 2 * half)(results).verdict == "fails"


def test_the_table_has_every_claim_and_the_reason_of_untestable_ones(results):
    table = claims.table([results])
    assert len(table) == len(claims.CLAIMS) >= 30
    first = table.iloc[0]
    assert (first["experiment"], first["found here"], first["verdict"]) == ("imdb", "351,002", "holds")
    assert table["verdict"].isin({"holds", "⚠ fails", "undecided", "not testable"}).all()
    assert "yahoo is not among these reports" in set(table["found here"])
    assert all(dataclasses.is_dataclass(claim) and claim.experiments for claim in claims.CLAIMS)


def test_claims_refer_to_configured_experiments(root):
    import yaml

    named = set()
    for file in ("config.yaml", "config.paper.yaml"):
        named |= set(yaml.safe_load((root / file).read_text())["experiments"])
    missing = {claim.experiments[0] for claim in claims.CLAIMS} - named
    assert not missing, f"no configuration defines {sorted(missing)}"


@pytest.mark.parametrize(("count", "of"), [(100, 110), (1, 40)])
def test_wilsons_interval_is_scipys(count, of):
    assert claims.wilson(count / of, of) == pytest.approx(stats.binomtest(count, of).proportion_ci(method="wilson"))


def test_a_finding_on_a_subset_of_rows_reports_it(results):
    results.dataset_card = {"subset": "subset: train_some.csv, 40 rows, in place of train.csv"}
    found = claims.select_claims(results)
    told = "on a subset: train_some.csv, 40 rows, in place of train.csv"
    assert len(found) > 1 and found["found here"].str.endswith(told).all()
    assert found["verdict"].str.endswith(" on a subset").all()
    assert (claims.table([results])["verdict"] == claims.UNTESTABLE).sum() > 9  # not those
