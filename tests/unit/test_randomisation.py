"""Sanity checks: randomised models, similarity of their scores, other references, null and duplicated features."""

import copy

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

import shapeline
from shapeline.config import validation
from shapeline.errors import ShapelineError
from shapeline.games.features import Features
from shapeline.games.game import Game
from shapeline.games.references import Reference
from shapeline.methods.registry import METHODS
from shapeline.metrics import error, log_odds
from shapeline.models import adapters, architectures
from shapeline.models.architectures import list_layers, randomise
from shapeline.models.classifier import backend
from shapeline.report.elements import styles
from shapeline.report.sections import robustness
from shapeline.workflow import job_code, runs
from shapeline.workflow.jobs import attribute_settings, list_expected_outputs, randomise_job


def arrays_of(classifier) -> dict:
    return backend(classifier.framework).state(classifier.module)


def changed(classifier, before: dict) -> set[str]:
    return {name.rpartition(".")[0] for name, array in arrays_of(classifier).items() if (array != before[name]).any()}


# --- the models ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_layers_are_randomised_from_the_output_down(framework):
    sizes = {"vocabulary": 20, "length": 8, "embedding": 4, "filters": 5, "hidden": 6}
    before = arrays_of(architectures.build("word_cnn", framework, seed=1, **sizes))
    found = {}
    for count in (1, 2, None):
        model = architectures.build("word_cnn", framework, seed=1, **sizes)
        drawn = randomise(model, count, seed=7)
        assert changed(model, before) == set(drawn)
        found[count] = drawn, arrays_of(model)
    assert [drawn for drawn, _ in found.values()] == [
        ["last"],
        ["last", "hidden"],
        ["last", "hidden", "convolution", "embedding"],
    ]
    for name in ("last.weight", "hidden.weight"):  # a cascade: one draw of a layer, whatever else is drawn
        assert (found[2][1][name] == found[None][1][name]).all()
    assert (found[1][1]["last.weight"] == found[2][1]["last.weight"]).all()


def test_untrained_parameters_are_unchanged():
    model = architectures.build("mlp", inputs=3, hidden=[4], classes=2)
    model.module[0].mean[:] = 5.0
    assert randomise(model, None, seed=1) == ["3", "1"]
    assert (arrays_of(model)["0.mean"] == 5.0).all()


NETWORKS = """
from torch import nn
import torch

def normalised(classes=2):
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, classes))

def fixed(classes=2):
    layer = nn.Linear(4, classes)
    nn.init.ones_(layer.weight), nn.init.zeros_(layer.bias)
    return nn.Sequential(layer)
"""


@pytest.fixture
def networks(tmp_path):
    (tmp_path / "networks.py").write_text(NETWORKS)
    return lambda name: architectures.build(f"{tmp_path / 'networks.py'}:{name}", classes=2)


def test_a_normalisation_is_randomised_with_the_layer_before_it(networks):
    model = networks("normalised")
    assert list_layers(model) == {
        "0": ["0.weight", "0.bias", *(f"1.{name}" for name in ("weight", "bias", "running_mean", "running_var",
                                                                "num_batches_tracked"))],
        "4": ["4.weight", "4.bias"],
    }  # fmt: skip
    model.module[1].running_mean[:] = 3.0
    assert randomise(model, 2, seed=1) == ["4", "0"]
    assert (arrays_of(model)["1.running_mean"] == 0).all()


def test_more_layers_than_there_are_and_weights_that_no_seed_changes(networks):
    with pytest.raises(ShapelineError, match=r"randomisation\.layers: 4 requested, 'mnist_cnn' has 3 layers .*0, 3, 7"):
        randomise(architectures.build("mnist_cnn"), 4, seed=0)
    with pytest.raises(ShapelineError, match="same weights for every seed"):
        randomise(networks("fixed"), None, seed=0)


# --- the metric ---------------------------------------------------------------------------------------------------


def rows(values, first: int = 0) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "instance": first + np.arange(len(values)),
            "target": 0,
            "repeat": 0,
            "budget": np.nan,
            "scores": [None if row is None else np.asarray(row, np.float32) for row in values],
        }
    )


def values_of(found: pd.DataFrame, statistic: str) -> list[float]:
    return found.loc[found["statistic"] == statistic].sort_values(["x", "instance"])["value"].tolist()


def test_likeness_by_hand():
    trained = rows([[1, 2, -3, 4], [1, 2, 3, 4], [1, 1, 1, 1]])
    others = {3: rows([[-1, -2, 3, -4], [2, 3, 4, 5], [1, 2, 3, 4]]), 1: trained}
    found = error.compare_randomised(trained, others)
    assert set(found["statistic"]) == {"rank_correlation", "rank_correlation_absolute"}
    signed, sizes = values_of(found, "rank_correlation"), values_of(found, "rank_correlation_absolute")
    assert signed[:2] == pytest.approx([1, 1]) and signed[3:5] == pytest.approx([-1, 1])
    assert sizes[3:5] == pytest.approx([1, 1])
    assert np.isnan(signed[2]) and np.isnan(signed[5])  # constant scores have no ranks
    assert sorted(found["x"].unique()) == [1, 3]


def test_instances_of_other_lengths_and_without_a_randomised_score():
    random = np.random.default_rng(0)
    one = [random.normal(size=d) for d in (5, 9, 7)]
    other = [random.normal(size=d) for d in (5, 9, 7)]
    found = error.compare_randomised(rows(one), {1: rows(other).iloc[:2]})
    expected = [spearmanr(a, b).statistic for a, b in zip(one[:2], other[:2], strict=True)]
    assert values_of(found, "rank_correlation") == pytest.approx(expected)
    assert error.compare_randomised(rows(one), {1: rows(other).iloc[:0]}).empty


def test_similarity_of_maps():
    cells = np.arange(64).reshape(8, 8)
    features = Features("pixel", (8, 8), cells[None].astype(np.int32))
    random = np.random.default_rng(1)
    one, other = random.normal(size=(2, 64))
    trained = rows([one, one, one, np.zeros(64)])
    others = {2: rows([5 * one, -one, other, one])}  # the scale of a map says nothing
    ssim = values_of(error.compare_randomised(trained, others, [(features, np.arange(4))]), "ssim")
    assert ssim[0] == pytest.approx(1) and ssim[1] < 0.5 and abs(ssim[2]) < 0.3 and np.isnan(ssim[3])


# --- the configuration --------------------------------------------------------------------------------------------


MEASURED = ("digits/metrics/measured.parquet", "digits/metrics/compared.parquet")


def test_the_metric_derives_models_and_scores_and_changes_no_other_settings(default):
    before = {path: repr(settings) for path, settings in list_expected_outputs(validation.load(default))}
    default["experiments"]["digits"]["metrics"]["randomisation"] = {"layers": [1, "full"]}
    loaded = validation.load(default)
    after = {path: repr(settings) for path, settings in list_expected_outputs(loaded)}
    changed = {path for path in before if after[path] != before[path]}
    # They hold one metric more.
    assert changed <= {f"results/{path}" for path in ("reports/digits.ipynb", *MEASURED)}
    added = set(after) - set(before)
    assert {"results/models/digits_cnn@full/card.json", "results/models/digits_cnn@top1/card.json"} <= added
    assert "results/digits/scores/lime@randomised/0-of-1.parquet" in added
    assert attribute_settings(loaded, "digits", "lime@randomised")["randomised"] == ["top1", "full"]
    assert randomise_job(loaded, "digits_cnn", "top12").items() >= {"layers": 12, "seed": 0}.items()
    assert job_code.attribute_code(loaded, "digits", "lime@randomised") == job_code.attribute_code(
        loaded, "digits", "lime"
    )
    assert runs.list_explained_files(loaded, "digits", "lime@randomised")["weights"] == [
        f"results/models/digits_cnn@{one}/weights.safetensors" for one in ("top1", "full")
    ]
    assert runs.list_score_files(loaded, "digits", "lime") == ["results/digits/scores/lime/0-of-1.parquet"]


@pytest.mark.parametrize(
    ("experiment", "metrics", "message"),
    [
        (
            "cancer_influence",
            {"randomisation": {}},
            r"metrics\.randomisation: it needs a model, and there is none; remove",
        ),
        ("digits", {"randomisation": {"layers": ["all"]}}, r"layers\.0: unknown value 'all'"),
        ("digits", {"randomisation": {"layers": [0]}}, r"layers\.0: .*greater than or equal to 1"),
        ("digits", {"log_odds": {"references": ["blurr"]}}, r"references\.0: unknown value 'blurr'.*blur"),
        ("cancer", {"log_odds": {"references": ["blur"]}}, r"references: 'blur' does not fit kind table; remove"),
        ("reviews", {"log_odds": {"references": ["mean"]}}, r"references: 'mean' does not fit kind text; remove"),
    ],
)
def test_mistakes_are_reported_before_any_job(default, experiment, metrics, message):
    raw = copy.deepcopy(default)
    raw["experiments"][experiment]["metrics"] |= metrics
    with pytest.raises(ShapelineError, match=message):
        validation.load(raw)


# --- other references ---------------------------------------------------------------------------------------------


def test_areas_under_other_references_are_those_of_the_measure_with_it():
    model = adapters.wrap(lambda x: 1 / (1 + np.exp(-x @ np.array([2.0, -1.0, 0.5]))))
    inputs = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    explained = rows(inputs.astype(float))
    features = Features("column", (3,), np.arange(3, dtype=np.int32))
    zero, ones = (Reference(np.full((1, 3), fill, np.float32)) for fill in (0, 1))
    game = Game(model, zero, features, "log_odds")
    shared = explained, game, inputs, [(features, np.arange(4))]
    plain = log_odds.measure(*shared)
    both = log_odds.measure(*shared, references={"ones": game.having(reference=ones)})
    pd.testing.assert_frame_equal(both.iloc[: len(plain)].reset_index(drop=True), plain)
    assert set(both["statistic"]) - set(plain["statistic"]) == {"deletion_auc_ones", "insertion_auc_ones"}
    alone = log_odds.measure(explained, game.having(reference=ones), *shared[2:])
    assert values_of(both, "deletion_auc_ones") == values_of(alone, "deletion_auc")
    assert values_of(both, "deletion_auc_ones") != values_of(both, "deletion_auc")


# --- the sections -------------------------------------------------------------------------------------------------

ENTRIES = {"kernel": {"is_control": False}, "mim": {"is_control": False}, "random": {"is_control": True}}


def compared(**means: list[float]) -> pd.DataFrame:
    rows = [
        (entry, "rank_correlation", x, mean, mean - 0.1, mean, 9)
        for entry, both in means.items()
        for x, mean in zip((1.0, 3.0), both, strict=True)
    ]
    return pd.DataFrame(rows, columns=["method", "statistic", "x", "mean", "low", "high", "n"])


def test_the_section_on_randomised_models_names_what_never_changes():
    page = robustness.randomisation_section(compared(kernel=[0.5, 0.02], random=[1.0, 1.0]), styles(ENTRIES)).data
    assert "3 layers randomised" in page and "0.02 (−0.08 to 0.02)" in page
    assert "random: scores do not depend on the model." in page and "kernel: scores do not" not in page
    assert "mim: not compared; failed or constant" in page and "kernel: not compared" not in page
    drawing = robustness.randomisation(compared(kernel=[0.5, 0.02], random=[1.0, 1.0]), styles(ENTRIES))
    assert [text.get_text() for text in drawing.axes[0].get_yticklabels()] == ["kernel", "random"]
    assert "Not available" in robustness.randomisation_section(compared(), styles(ENTRIES)).data


# --- null and duplicated features, asked of a network -------------------------------------------------------------

NULL = {  # whose score of a pixel that the network never reads is 0
    *("shapley", "banzhaf", "l_shapley", "c_shapley", "sample_shapley", "occlusion"),
    *("saliency", "gradient_x_input", "integrated_gradients", "expected_gradients", "deep_lift", "smooth_grad"),
}
SHARED = {"shapley", "banzhaf", "occlusion", "saliency", "gradient_x_input", "integrated_gradients", "deep_lift"}


@pytest.fixture(scope="module")
def half_blind():
    """A network that reads only the upper row of images of 2 x 3 pixels, and of it pixels 0 and 1 alike."""
    import torch

    class HalfBlind(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.activation, self.last = torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)

        def forward(self, images):
            row = images[:, 0, 0]
            return self.last(self.activation(self.first(torch.stack([row[:, 0] + row[:, 1], row[:, 2]], 1))))

    torch.manual_seed(3)
    return HalfBlind().eval()


@pytest.mark.parametrize("name", sorted(name for name in NULL if name in METHODS))
def test_unread_pixels_score_nothing_and_duplicates_the_same(half_blind, name):
    images = np.random.default_rng(5).uniform(size=(4, 1, 2, 3)).astype(np.float32)
    images[:, 0, 0, 1] = images[:, 0, 0, 0]
    background = np.random.default_rng(6).uniform(size=(8, 1, 2, 3))
    found = shapeline.explain(half_blind, images, name, reference="zero", background=background).scores
    assert np.abs(found[:, 1]).max() < 1e-5
    assert np.abs(found[:, 0]).max() > 1e-2
    if name in SHARED:
        np.testing.assert_allclose(found[:, 0, 0], found[:, 0, 1], rtol=1e-4, atol=1e-6)
