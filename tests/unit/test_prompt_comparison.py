"""Methods compared on prompts whose values are known in closed form."""

import itertools
import json
import re

import numpy as np
import pytest

import shapeline
from shapeline.api import formatting
from shapeline.errors import ShapelineError
from shapeline.generation import estimates
from tests.unit import games

WORDS = "amber tower stands in harbour".split()
WEIGHTS = dict(zip(WORDS, [3.0, 2.0, -1.0, 0.5, 0.25], strict=True))


def value(text):
    """Weights of the words, and a bonus of 4 where amber or tower is there: either suffices."""
    words = set(text.split())
    return sum(WEIGHTS[word] for word in words & set(WEIGHTS)) + 4.0 * bool(words & {"amber", "tower"})


def function(prompts):
    return [[value(text), 0.5 * ("in" in text.split())] for text in prompts]


def compare(**named):
    prompts = [" ".join(WORDS), " ".join(WORDS[::-1]), " ".join([*WORDS[2:], *WORDS[:2]])]
    given = {"features": "word", "evaluations": 12, **named}
    return shapeline.compare_generation(function, given.pop("prompts", prompts), **given)


def test_measures_are_those_by_hand():
    support = [[WORDS.index(word) for word in ("amber", "tower")], [4, 3], [3, 4]]
    found = compare(methods=["leave_one_out", "exact", "gp_shapley"], support=support)
    kept = [frozenset(one) for size in range(6) for one in itertools.combinations(range(5), size)]
    total = {one: value(" ".join(WORDS[place] for place in one)) + 0.5 * (3 in one) for one in kept}
    exact = games.shapley(games.of_sets(lambda one: total[frozenset(one)], 5))
    np.testing.assert_allclose(found.exact[0].scores, exact)
    alone = np.array([total[kept[-1]] - total[frozenset(range(5)) - {place}] for place in range(5)])
    table = found.table
    assert table["error"]["leave_one_out"] == pytest.approx(np.sqrt(np.mean((alone - exact) ** 2)))
    assert table["error"]["exact"] == pytest.approx(0, abs=1e-9)
    assert table["top-3 drop"]["exact"] == pytest.approx(4 + 3 + 2 + 1.0)  # amber, tower and in
    assert (table["precision"][["leave_one_out", "exact"]] == 1).all() and table["recall"]["exact"] == 1
    assert table["evaluations"].to_dict() == {"leave_one_out": 6, "exact": 32, "gp_shapley": 12, "random": 0}
    order = np.argsort(-exact)
    values = [total[frozenset(order[removed:])] - total[kept[-1]] for removed in range(6)]
    assert table["deletion"]["exact"] == pytest.approx(np.trapezoid(values, dx=0.2))
    assert found.criterion == "error" and "deletion AUC" in repr(found) and found.agreement.shape == (4, 4)
    assert found.explanations["exact"][2].parts == (*WORDS[2:], *WORDS[:2])
    assert hasattr(found.plot(), "savefig") and "<table" in found._repr_html_()


def test_the_page_has_every_prompt_and_method(tmp_path):
    found = compare(methods=["h_shap", "kernel_shap"], evaluations=20, repeats=2)
    assert found.to_html(tmp_path / "page.html") is None
    page = (tmp_path / "page.html").read_text()
    told = json.loads(re.search(r'class="explorer-data">(.*?)</script>', page)[1])
    assert [one["names"] for one in told["instances"]] == [list(one.parts) for one in found.exact]
    shown = [one["name"] for one in told["methods"]]
    assert shown == ["h_shap", "kernel_shap", "random", "exact"]
    assert [one["unit"] for one in told["methods"]] == ["no unit", "", "", ""]
    for place, row in enumerate(told["scores"]):
        by_name, sampled = dict(zip(shown, row, strict=True)), found.explanations["kernel_shap"][place]
        np.testing.assert_allclose(by_name["exact"][0], found.exact[place].scores, rtol=1e-3)
        np.testing.assert_allclose(by_name["kernel_shap"][1], sampled.half_widths, rtol=1e-3)
        assert sampled.half_widths.any()
    assert "top-3 drop" in page and "too few" in page and page == found.to_html()


def test_recommendation_and_repeats():
    prompts = [" ".join(np.random.default_rng(seed).permutation(WORDS)) for seed in range(8)]
    found = compare(prompts=prompts, methods=["gp_shapley", "leave_one_out"], repeats=2, evaluations=20)
    assert found.recommended == "gp_shapley" and len(found.explanations["gp_shapley"]) == 8
    assert found.values.shape == (8, 3) and found.table["error"]["gp_shapley"] < found.table["error"]["random"]
    assert 0 <= found.table["coverage"]["gp_shapley"] <= 1


def test_errors_of_rounding_are_equal():
    errors = compare(methods=["kernel_shap", "gp_shapley", "exact"], evaluations=32).values
    assert (errors.drop(columns="random") == 0).all(axis=None) and errors["random"].all()


def test_the_mean_of_tokens_scales_every_measure():
    whole, mean = (compare(value=kind, methods=["exact"]).table for kind in ("sum", "mean"))
    for column in ("deletion", "insertion", "top-3 drop"):
        assert mean[column]["exact"] == pytest.approx(whole[column]["exact"] / 2)


def test_without_exact_values_the_deletion_auc_decides():
    found = compare(methods=["leave_one_out", "h_shap", "attn_lrp"], exact_parts=4)
    assert found.criterion == "deletion AUC" and "error" not in found.table
    assert any("attn_lrp failed" in note for note in found.notes)
    assert any("3 of 3 prompts have more than 4 parts" in note for note in found.notes)
    assert "error" in compare(methods=["h_shap"]).table and np.isnan(
        compare(methods=["h_shap"]).table["error"]["h_shap"]
    )


def test_few_coalitions_of_a_linear_game_have_an_error_per_part():
    found = shapeline.explain_generation(
        lambda prompts: [float(len(text.split())) for text in prompts], " ".join(WORDS), features="word", evaluations=12
    )
    assert found.method == "gp_shapley" and found.standard_error.shape == (5,) and "1" in repr(found)


def test_a_single_prompt():
    found = compare(prompts="amber tower in", methods=["leave_one_out"])
    assert len(found.explanations["leave_one_out"]) == 1 and "too few" in repr(found)


def test_the_datamodeling_score_of_an_additive_game_is_one():
    found = shapeline.explain_generation(
        lambda prompts: [sum(WEIGHTS[word] for word in text.split()) for text in prompts],
        " ".join(WORDS),
        features="word",
    )
    assert estimates.datamodeling_score(found.game, found.scores) == pytest.approx(1)


@pytest.mark.parametrize(
    "named, match",
    [
        ({"support": [[0]]}, "support has 1 entries for 3 prompts"),
        ({"support": [[0], [9], [0]]}, "^compare_generation: prompt 1: support is .* numbers of parts, 0 to 4"),
        ({"support": [1, [0], [0]]}, "support is 1; give a list"),
        ({"methods": ["attn_lrp"]}, "all methods failed"),
        ({"methods": ["gp_shapley", "leaveoneout"]}, "^compare_generation: unknown method .* 'leave_one_out'"),
        ({"tokenizer": ["gp_shapley", "lime"]}, "tokenizer is a list; give .* other arguments by name"),
        ({"margin": 5}, "^compare_generation: margin is 5; give a share .* 0.05 for 5 %"),
        ({"random_state": 1}, "^compare_generation: .*'random_state'. Did you mean 'seed'"),
        ({"background": [0]}, "background belongs to the workflow's configuration; leave it out"),
        ({"methods": "gp_shapley"}, "expected a list of names"),
        ({"budget": 3}, "give methods= and evaluations="),
        ({"value": "token"}, "give 'sum' or 'mean'"),
        ({"repeats": 0}, "at least 1"),
        ({"evaluations": 0}, "at least 1"),
        ({"colour": 1}, "no parameter 'colour'"),
    ],
)
def test_bad_input_is_one_line(named, match):
    with pytest.raises(ShapelineError, match=match) as failure:
        compare(**named)
    assert "\n" not in str(failure.value)


def test_an_explanation_names_its_equivalents_and_the_line_of_a_warning():
    with pytest.warns(UserWarning, match="one part") as caught:
        [one, _] = shapeline.explain_generation(function, ["amber tower", "tower"])
    assert {each.filename for each in caught} == {__file__} and repr(one).startswith("PromptExplanation: 1 part by")
    for name, equivalent in {"feature_names": "parts", "to_shap": r"to_frame\(\)", "shap_values": "scores"}.items():
        with pytest.raises(AttributeError, match=f"no attribute '{name}'; use {equivalent}"):
            getattr(one, name)


def test_scores_without_a_unit_say_so():
    found, nats = (
        shapeline.explain_generation(
            lambda texts: [-float(len(text)) for text in texts], "a b c d", features="word", method=name
        )
        for name in ("h_shap", "shapley")
    )
    assert "scores without a unit" in repr(found) and found.plot().axes[0].get_xlabel() == "score (no unit)"
    assert "without a unit" not in repr(nats) and nats.plot().axes[0].get_xlabel() == "score (log p(answer), nats)"


def test_a_bar_counts_prompts_where_it_is_watched(monkeypatch, capsys):
    compare(methods=["gp_shapley"])
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(formatting, "is_watched", lambda: True)
    monkeypatch.setattr(formatting, "MIN_SECONDS", 0)
    compare(methods=["gp_shapley"])
    shown = capsys.readouterr().err
    assert all(re.search(f"{label}: .*/3 ", shown) for label in ("prompts", "gp_shapley", "exact", "measuring random"))
