"""Erasure, infidelity and sensitivity: known answers on linear models, and captum's numbers for the same."""

import numpy as np
import pandas as pd
import pytest
import torch

from shapeline.attribution.context import ExplanationContext, parse
from shapeline.datasets import loading
from shapeline.games import features as feature_kinds
from shapeline.games import references
from shapeline.games.game import Game
from shapeline.metrics import ablation, infidelity
from shapeline.metrics import scored_rows as metric_needs
from shapeline.models import adapters
from shapeline.seeds import seed_of
from tests.unit import shortcuts

D = 6
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(5, D)).astype(np.float32)
WEIGHTS = RANDOM.normal(size=D).astype(np.float32)
CARD = {"kind": "table", "input_shape": [D], "feature_names": list("abcdef"), "classes": ["0", "1"]}
FEATURES = feature_kinds.build("column", CARD)
ZERO = references.Reference(np.zeros((1, D), np.float32))


def linear() -> torch.nn.Module:
    """Logits (w @ x, 0): the game of the value `logit` of class 0 is additive, with terms w_i x_i."""
    layer = torch.nn.Linear(D, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(np.stack([WEIGHTS, np.zeros(D)])))
        layer.bias.zero_()
    return layer


MODEL = adapters.wrap(linear(), "logits", 2)
TRUE = WEIGHTS * X


def rows(scores: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "instance": range(len(scores)),
            "repeat": 0,
            "target": 0,
            "budget": np.nan,
            "scores": list(np.asarray(scores, np.float32)),
        }
    )


def given(**more) -> dict:
    game = Game(MODEL, ZERO, FEATURES, more.pop("value", "log_probability"))
    return {"game": game, "inputs": X, "buckets": [(FEATURES, np.arange(len(X)))], **more}


def statistic(frame: pd.DataFrame, name: str) -> np.ndarray:
    return frame[frame["statistic"] == name].sort_values("instance")["value"].to_numpy()


def test_infidelity_of_the_true_scores_of_an_additive_model_is_zero():
    found = infidelity.measure(rows(TRUE), **given(value="logit"))
    assert statistic(found, "infidelity") == pytest.approx(0, abs=1e-9)
    doubled = infidelity.measure(rows(2 * TRUE), **given(value="logit"))
    assert statistic(doubled, "infidelity_scaled") == pytest.approx(0, abs=1e-9)
    assert (statistic(doubled, "infidelity") > 0.01).all()


def test_infidelity_of_no_scores_is_the_mean_square_of_what_is_lost():
    found = infidelity.measure(rows(0 * TRUE), **given(value="logit", samples=50))
    expected = np.array([((infidelity.sample_sets(D, 50, 0, i) @ row) ** 2).mean() for i, row in enumerate(TRUE)])
    assert statistic(found, "infidelity") == pytest.approx(expected, rel=1e-4)
    assert statistic(found, "infidelity_scaled") == pytest.approx(expected, rel=1e-4)


def test_infidelity_agrees_with_captum():
    pytest.importorskip("captum", reason="captum is an extra")
    from captum.metrics import infidelity as captum_infidelity

    scores = RANDOM.normal(size=X.shape).astype(np.float32)
    samples = 40
    removed = torch.tensor(np.stack([infidelity.sample_sets(D, samples, 0, i) for i in range(len(X))], axis=1))

    def perturb(inputs, baselines):  # captum asks for one perturbation of the whole batch at a time
        gone = next(kept).float()
        return gone, inputs * (1 - gone)

    for normalized, name in ((False, "infidelity"), (True, "infidelity_scaled")):
        kept = iter(removed)
        theirs = captum_infidelity(
            MODEL.module,
            perturb,
            torch.tensor(X),
            torch.tensor(scores),
            baselines=0,
            target=0,
            n_perturb_samples=samples,
            max_examples_per_batch=len(X),
            normalize=normalized,
        )
        ours = infidelity.measure(rows(scores), **given(value="logit", samples=samples))
        assert statistic(ours, name) == pytest.approx(theirs.detach().numpy(), rel=1e-3), name


def test_sampled_sets_have_every_size_and_follow_the_seed_and_the_instance():
    sets = infidelity.sample_sets(5, 2000, 0, 3)
    sizes = sets.sum(1)
    assert set(sizes) == {1, 2, 3, 4, 5} and abs(np.mean(sizes == 1) - 0.2) < 0.05
    assert (infidelity.sample_sets(5, 2000, 0, 3) == sets).all()
    for others in ((1, 3), (0, 4)):  # sets that instances share would correlate these units of every test
        assert (infidelity.sample_sets(5, 2000, *others) != sets).any()


def test_erasure_by_hand():
    found = ablation.measure_erasure(rows(TRUE), **given(fractions=[0.5]))
    order = np.argsort(-TRUE, axis=1)
    for i in range(len(X)):
        top = np.isin(np.arange(D), order[i, :3])
        p = [1 / (1 + np.exp(-TRUE[i][kept].sum())) for kept in (np.ones(D, bool), ~top, top)]
        assert statistic(found, "comprehensiveness")[i] == pytest.approx(p[0] - p[1], abs=1e-5)
        assert statistic(found, "sufficiency")[i] == pytest.approx(p[0] - p[2], abs=1e-5)


def test_erasure_averages_over_the_fractions_and_takes_one_feature_at_least():
    one, half = (
        statistic(ablation.measure_erasure(rows(TRUE), **given(fractions=[x])), "sufficiency") for x in (0.01, 0.5)
    )
    both = statistic(ablation.measure_erasure(rows(TRUE), **given(fractions=[0.01, 0.5])), "sufficiency")
    assert both == pytest.approx((one + half) / 2)


def bench() -> tuple[ExplanationContext, pd.DataFrame]:
    data = loading.Dataset(
        inputs=np.concatenate([X, X + 1]),
        labels=np.zeros(10, int),
        split=np.repeat([2, 0], 5).astype(np.uint8),
        ids=np.arange(10),
        card=CARD,
    )
    share = pd.DataFrame({"instance": range(5), "row": range(5), "label": 0, "prediction": 0})
    return ExplanationContext(MODEL, data, FEATURES, ZERO, "column"), share


def sensitive(method: dict, scores: np.ndarray, **parameters) -> np.ndarray:
    subject, share = bench()
    settings = parse({"method": method, "seed": 0, "value": "logit"})
    return infidelity.measure_sensitivity(rows(scores), subject, share, settings, "label", **parameters)[
        "value"
    ].to_numpy()


def test_sensitivity_of_exact_scores_is_what_the_inputs_moved():
    found = sensitive({"method": "shapley"}, TRUE, samples=4, radius=0.1)
    scale = 0.1 * ((X + 1).max(0) - (X + 1).min(0))
    bound = np.linalg.norm(WEIGHTS * scale) / np.linalg.norm(TRUE, axis=1)
    assert (found > 0).all() and (found <= bound + 1e-6).all()
    more = sensitive({"method": "shapley"}, TRUE, samples=8, radius=0.1)
    assert (more >= found - 1e-9).all()
    assert sensitive({"method": "shapley"}, TRUE, samples=4, radius=1e-6) == pytest.approx(0, abs=1e-4)


def test_sensitivity_agrees_with_captum_on_the_same_perturbations():
    pytest.importorskip("captum", reason="captum is an extra")
    from captum.metrics import sensitivity_max

    scale = 0.05 * ((X + 1).max(0) - (X + 1).min(0))
    shifts = [np.random.default_rng(seed_of(0, "sensitivity", 0, i)).uniform(-1, 1, D) for i in range(len(X))]
    moved = torch.tensor(X + scale * np.array(shifts), dtype=torch.float32)
    theirs = sensitivity_max(
        lambda inputs: tuple(one * torch.tensor(WEIGHTS) for one in inputs),
        torch.tensor(X),
        perturb_func=lambda inputs: tuple(moved for _ in inputs),
        n_perturb_samples=1,
        max_examples_per_batch=len(X),
    )
    ours = sensitive({"method": "occlusion"}, TRUE, samples=1, radius=0.05)
    assert ours == pytest.approx(theirs.numpy(), rel=1e-3)


def test_sensitivity_of_zero_scores_is_no_number_and_random_scores_do_not_move():
    assert np.isnan(sensitive({"method": "shapley"}, 0 * TRUE, samples=1)).all()
    subject, share = bench()
    settings = {"method": {"method": "random"}, "seed": 0}
    own = shortcuts.explain_rows(subject, share, settings, "label", None)["scores"]
    assert sensitive({"method": "random"}, np.stack(own), samples=2) == pytest.approx(0)


def test_a_metric_is_given_what_its_function_names():
    needs = {"samples": 5, "unknown": 1, **given(value="logit")}
    frame = metric_needs.measure("infidelity", rows(TRUE), needs)
    assert set(frame["statistic"]) == {"infidelity", "infidelity_scaled"}


@pytest.mark.parametrize("metric", ["erasure", "infidelity", "sensitivity"])
def test_impossible_experiments_are_reported_before_any_job(metric):
    from shapeline.config import validation

    raw = {
        "run": ["a"],
        "datasets": {"cancer": {"source": "breast_cancer"}},
        "models": {},
        "experiments": {
            "a": {
                "dataset": "cancer",
                "features": {"kind": "column"},
                "methods": {"random": {"method": "random"}},
                "metrics": {metric: {}},
            }
        },
    }
    with pytest.raises(Exception, match=f"metrics.{metric}: it needs a model"):
        validation.load({**raw, "models": {"m": {"dataset": "cancer", "architecture": "mlp"}}})
