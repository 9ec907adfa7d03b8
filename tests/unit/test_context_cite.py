"""ContextCite's estimator against a lasso by scikit-learn's own pipeline, and the measures of prompt scores by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.linear_model import Lasso
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import shapeline
from shapeline import designs
from shapeline.errors import ShapelineError
from shapeline.generation import estimates
from shapeline.methods.registry import METHODS


def test_scores_are_the_slopes_of_the_lasso_on_random_ablations():
    design = designs.context_cite(6, 40, seed=3, alpha=0.1)
    assert design.evaluations == len(np.unique(design.masks, axis=0)) < design.counts.sum() == 40
    noise = np.random.default_rng(0).standard_normal((2, design.evaluations))
    values = noise + design.masks @ [3.0, 0, 0, -1, 0, 0.02]
    sampled = np.repeat(np.arange(design.evaluations), design.counts)  # as the authors have them, repeats and all
    for own, scores in zip(values, design.attribute(values), strict=True):
        scaler, lasso = StandardScaler(), Lasso(0.1)
        make_pipeline(scaler, lasso).fit(design.masks[sampled].astype(float), own[sampled])
        np.testing.assert_allclose(scores, lasso.coef_ / scaler.scale_, atol=1e-4)
    assert 0.3 < design.masks[sampled].mean() < 0.7
    with pytest.raises(ShapelineError, match="the minimum is 2"):
        designs.context_cite(4, 1)


def either(prompts):
    """Two parts of which either suffices, one that adds, one without effect."""
    return [3.0 * ("a" in one or "b" in one) + 1.0 * ("c" in one) for one in prompts]


@pytest.fixture(scope="module")
def found():
    return shapeline.explain_generation(either, "a b c d", features="word", evaluations=16)


def test_explained_by_the_estimator_of_context_cite():
    cited = shapeline.explain_generation(either, "a b c d", features="word", evaluations=64, method="context_cite")
    alone = shapeline.explain_generation(either, "a b c d", features="word", method="leave_one_out")
    assert cited.method == "context_cite" and cited.scores[2] == pytest.approx(1, abs=0.2)
    assert (cited.scores[:2] > 0.5).all() and alone.scores[:2] == pytest.approx([0, 0])


@pytest.mark.parametrize("method", [name for name, one in METHODS.items() if one.explains_prompts and one.is_design])
def test_every_method_of_coalitions_explains_a_function(method):
    def function(prompts):
        return [[value, float(len(prompt))] for value, prompt in zip(either(prompts), prompts, strict=True)]

    for evaluations in (31, 32):
        if method != "sample_interactions" or evaluations == 32:  # at least 32
            found = shapeline.explain_generation(
                function, "a b c d e", features="word", evaluations=evaluations, method=method
            )
            assert np.isfinite(found.scores).all() and found.tokens.shape == (5, 2)
            np.testing.assert_allclose(found.tokens.sum(axis=1), found.scores, atol=1e-6)


def test_an_explanation_is_plotted_without_a_model(found):
    assert all(hasattr(found.plot(kind), "_repr_png_") for kind in (None, "bars", "tokens"))
    assert "a" in found._repr_html_() and "4 parts by shapley, 16 evaluations" in repr(found)


def test_measures_by_hand(found):
    game = found.game
    np.testing.assert_allclose(found.scores, [1.5, 1.5, 1, 0], atol=1e-12)
    assert estimates.compute_rmse([1.5, 1.5, 1, 1], found.scores) == pytest.approx(0.5)
    assert estimates.top_k_drop(game, found.scores, 1) == 0
    assert estimates.top_k_drop(game, found.scores, 2) == 3
    np.testing.assert_allclose(estimates.compute_curve(game, found.scores), [4, 4, 1, 0, 0])
    np.testing.assert_allclose(estimates.compute_curve(game, found.scores, "insertion"), [0, 3, 3, 4, 4])
    assert estimates.measure_citation(found.scores, [0, 1]) == (1, 1)
    assert estimates.measure_citation(found.scores, [0], k=4) == (pytest.approx(1 / 3), 1)
    assert estimates.measure_citation([0, 0, 0, 0], [1]) == (0, 0)
    equal = SimpleNamespace(game=game, totals=np.zeros(4), value="sum")
    for name in ("deletion_auc", "insertion_auc", "top_k_drop"):  # not always in the order of the prompt
        assert len({estimates.measure(equal, seed=seed)[name] for seed in range(9)}) > 1


def test_datamodeling_score_is_the_rank_correlation(found):
    linear = shapeline.explain_generation(lambda ones: [len(one) * 1.0 for one in ones], "aaa b cc", features="word")
    assert estimates.datamodeling_score(linear.game, [3, 1, 2]) > 0.9
    assert estimates.datamodeling_score(linear.game, [-3, -1, -2]) < -0.9
    assert 0.5 < estimates.datamodeling_score(found.game, found.scores) < 1
    assert np.isnan(estimates.datamodeling_score(found.game, [0, 0, 0, 0]))


def test_bad_input_is_one_line(found):
    with pytest.raises(ShapelineError, match="support is"):
        estimates.measure_citation(found.scores, [7])
    with pytest.raises(ShapelineError, match="'deletion' or 'insertion'"):
        estimates.compute_curve(found.game, found.scores, "removal")
