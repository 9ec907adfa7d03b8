"""Claims of the papers: each check on results whose answer is known, and the table of all of them."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from shapeline import claims


def measured(**columns):
    rows = []
    for label, values in columns.items():
        rows += [(label, i, 0, "masking_area", np.nan, value) for i, value in enumerate(values)]
    return pd.DataFrame(rows, columns=["label", "instance", "repeat", "quantity", "x", "value"])


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
        measured={"log_odds": measured(good=-2 + noise, same=-2 - noise, poor=-1 + 2 * noise)},
        scores={
            "good": scored(directions, 0.1),
            "poor": scored(directions + 0.01, 2.0),
            "other": scored(-directions, 0.1, 16),
        },
    )


def test_accuracy_holds_where_its_interval_reaches_the_claim(results):
    assert claims.accuracy(0.91)(results).verdict == "holds"
    assert claims.accuracy(0.95)(results).verdict == "fails"
    assert "90 % (88" in claims.accuracy(0.91)(results).found


def test_parameters_are_counted_exactly(results):
    assert claims.parameters(351_002)(results).verdict == "holds"
    assert claims.parameters(351_003)(results).verdict == "fails"


def test_beats_holds_fails_or_stays_open(results):
    assert claims.beats("good", "poor")(results).verdict == "holds"
    assert claims.beats("poor", "good")(results).verdict == "fails"
    assert claims.beats("good", "same")(results).verdict == "undecided"
    assert claims.beats("good", "poor", "same")(results).verdict == "undecided"
    assert claims.beats("good", "poor")(results).found.startswith(("ahead by: poor 1.0", "ahead by: poor 0.9"))
    assert claims.beats("poor", "good")(results).found.startswith(("ahead by: good −1.0", "ahead by: good −0.9"))
    assert claims.beats("good", "poor", better="higher")(results).verdict == "fails"
    assert claims.beats("good", "absent")(results) == claims.Finding("too few scores of absent", "not testable here")
    assert claims.beats("good", "poor", metric="localization")(results).verdict == "not testable here"


def test_an_order_is_sure_of_the_draws_too(results):
    """Two labels whose draws differ more than they do: with one draw sure, over three of them not."""
    moved = [-3.0, 0.0, 3.0]
    several = measured(good=np.full(30, -2.0), poor=np.full(30, -1.0) + np.arange(30) / 1000)
    results.measured["log_odds"] = several
    assert claims.beats("good", "poor")(results).verdict == "holds"
    draws = [several.assign(repeat=place, value=several["value"] + move) for place, move in enumerate(moved)]
    results.measured["log_odds"] = pd.concat(draws)
    assert claims.beats("good", "poor")(results).verdict == "undecided"


def test_faster_compares_seconds_of_the_same_instances(results):
    assert claims.faster("good", "poor", 10)(results) == claims.Finding("20.0 times (20.0 to 20.0)", "holds")
    assert claims.faster("good", "poor", 30)(results).verdict == "fails"
    assert claims.faster("good", "absent")(results).verdict == "not testable here"


def test_alike_is_the_mean_cosine(results):
    assert claims.alike("good", "poor", 0.94)(results).verdict == "holds"
    assert claims.alike("good", "other", 0.94)(results).found.startswith("-1.000")
    assert claims.alike("good", "other", 0.94)(results).verdict == "fails"


def test_bounds_and_seconds(results):
    assert claims.at_most("other", lambda d: 4 * d, "4 d")(results).verdict == "holds"
    assert claims.at_most("other", lambda d: 3 * d, "3 d")(results).verdict == "fails"
    assert claims.seconds("poor", 5.0)(results) == claims.Finding("2.00 s an instance", "holds")
    assert claims.seconds("poor", 1.0)(results).verdict == "fails"


def test_seconds_have_an_interval_where_each_instance_was_timed_alone(results):
    each = np.random.default_rng(3).normal(2, 0.3, 30)
    results.scores["poor"]["seconds"] = each
    assert "(" not in claims.seconds("poor", 5.0)(results).found
    results.settings["timing"] = "per_instance"
    half = 1.96 * each.std(ddof=1) / np.sqrt(30)
    found = claims.seconds("poor", each.mean() + 2 * half)(results)
    assert found.verdict == "holds"
    assert found.found == f"{each.mean():.2f} ({each.mean() - half:.2f} to {each.mean() + half:.2f}) s an instance"
    assert claims.seconds("poor", each.mean() + half / 2)(results).verdict == "undecided"
    assert claims.seconds("poor", each.mean() - 2 * half)(results).verdict == "fails"


def test_the_table_has_every_claim_and_says_why_one_cannot_be_tested(results):
    table = claims.table([results])
    assert len(table) == len(claims.CLAIMS) >= 30
    first = table.iloc[0]
    assert (first["experiment"], first["found here"], first["verdict"]) == ("imdb", "351,002", "holds")
    assert table["verdict"].isin({"holds", "⚠ fails", "undecided", "not testable here"}).all()
    assert "yahoo is not among these reports" in set(table["found here"])
    assert all(dataclasses.is_dataclass(claim) and claim.experiments for claim in claims.CLAIMS)


def test_claims_ask_experiments_that_are_configured(root):
    import yaml

    named = set()
    for file in ("config.yaml", "config.paper.yaml"):
        named |= set(yaml.safe_load((root / file).read_text())["experiments"])
    missing = {claim.experiments[0] for claim in claims.CLAIMS} - named
    assert not missing, f"no configuration defines {sorted(missing)}"
