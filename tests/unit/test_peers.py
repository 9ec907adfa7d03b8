"""Explainers of other packages: their values against ours where both are exact, and their counts of evaluations."""

import copy
import importlib.util
import sys
from typing import get_args

import numpy as np
import pytest
import torch

from shapeline.config import derived, validation
from shapeline.errors import MethodFailure, ShapelineError
from shapeline.games import features as feature_kinds
from shapeline.games.features import Features
from shapeline.games.game import Game
from shapeline.games.references import Reference
from shapeline.methods import parameters, registry, shapiq_process
from shapeline.models import adapters, architectures
from shapeline.third_party.black_box import InstanceGame, peer, seed_numpy
from tests.unit import shortcuts, twins

pytestmark = pytest.mark.filterwarnings("ignore:The set_.* function will be deprecated:PendingDeprecationWarning")

INSTALLED = {name: importlib.util.find_spec(name) for name in ("shap", "lime", "shapiq", "captum")}
needs_shap = pytest.mark.skipif(INSTALLED["shap"] is None, reason="shap is not installed: pip install .[peers]")
needs_lime = pytest.mark.skipif(INSTALLED["lime"] is None, reason="lime is not installed: pip install .[peers]")
needs_shapiq = pytest.mark.skipif(INSTALLED["shapiq"] is None, reason="shapiq is not installed: pip install .[peers]")
needs_captum = pytest.mark.skipif(INSTALLED["captum"] is None, reason="captum is not installed: pip install .[peers]")
MARKS = {"shap": needs_shap, "lime": needs_lime, "shapiq": needs_shapiq, "captum": needs_captum}
PEERS = {
    name: method
    for name, method in registry.METHODS.items()
    if method.family == "peers" and method.data != ("prompts",)
}
APPROXIMATORS = set(get_args(parameters.PeerShapiq.model_fields["approximator"].annotation))
SAMPLED = [pytest.param(name, marks=MARKS[peer.package]) for name, peer in PEERS.items() if peer.sampled]
OF_PIXELS = [one for one in SAMPLED if one.values[0] != "peer_lime_text"]

RNG = np.random.default_rng(0)
IMAGES, TARGETS = RNG.random((3, 1, 8, 8), dtype=np.float32), np.array([0, 2, 1])
PATCHES = feature_kinds.build({"kind": "patch", "size": [4, 2]}, {"input_shape": [1, 8, 8]})  # d = 8
ROWS = Reference(RNG.random((2, 1, 8, 8), dtype=np.float32))
IDS = np.array([7, 3, 11])


@pytest.fixture(scope="module")
def model():
    built = architectures.build("digits_cnn", seed=1, classes=3)
    for weight in built.module.parameters():
        weight.data *= 2
    return built


def explain(model, name, budget=None, seed=3, ids=IDS, part=slice(None), value="log_probability", **parameters):
    (found,) = shortcuts.attribute(
        *(model, IMAGES[part], TARGETS[part], {"method": name, **parameters}, PATCHES, ROWS, value),
        budgets=[budget],
        seed=seed,
        instances=ids[part],
        on_error="fail",
    )
    return found


@pytest.fixture(scope="module")
def exact(model):
    return explain(model, "shapley").scores


@needs_shap
@pytest.mark.parametrize("value", ["log_probability", "probability", "logit"])
def test_shap_kernel_on_all_coalitions_is_exact(model, value):
    found = explain(model, "peer_shap_kernel", budget=256 / 8, value=value)
    np.testing.assert_allclose(found.scores, explain(model, "shapley", value=value).scores, atol=1e-6)
    assert (found.evaluations == 256).all()


@pytest.mark.parametrize("name", OF_PIXELS)
def test_peers_come_near_the_exact_values(model, exact, name):
    scale = np.abs(exact).mean()
    few, many = (np.abs(explain(model, name, budget).scores - exact).mean() / scale for budget in (4, 100))
    # LIME and the Owen values are no Shapley values; on this network they are near.
    assert many < {"peer_lime_image": 0.5, "peer_shap_partition": 0.2}.get(name, 0.1)
    assert many <= few


@pytest.mark.parametrize("name", OF_PIXELS)
def test_evaluations_are_counted_at_the_model_and_within_the_budget(model, name, monkeypatch):
    counted, right = [0], Game.values

    def counting(game, inputs, masks, *others):
        counted[0] += masks.shape[-2]
        return right(game, inputs, masks, *others)

    monkeypatch.setattr(Game, "values", counting)
    for budget in (4, 7, 20):
        counted[0] = 0
        found = explain(model, name, budget)
        ends = 2  # of the one chunk, which attribution asks for
        assert found.evaluations.sum() == counted[0] - ends
        assert (found.evaluations <= budget * 8).all() and found.evaluations.min() >= min(0.7 * budget * 8, 40)


@pytest.mark.parametrize("name", OF_PIXELS)
def test_samples_are_independent_per_instance_and_global_generators_are_restored(model, name):
    before = np.random.get_state()[1].copy(), torch.get_rng_state().clone()
    whole, part = explain(model, name, 4), explain(model, name, 4, part=slice(1, 3))
    np.testing.assert_array_equal(np.random.get_state()[1], before[0])
    assert torch.equal(torch.get_rng_state(), before[1])
    np.testing.assert_allclose(part.scores, whole.scores[1:], atol=1e-6)
    if name != "peer_shap_partition":  # it draws only to break ties
        assert np.abs(explain(model, name, 4, seed=4).scores - whole.scores).max() > 1e-4


@needs_shapiq
def test_every_approximator_of_shapiq_explains_within_its_budget(model, exact):
    from shapeline.third_party import black_box

    scale = np.abs(exact).mean()
    slow = {"SPEX", "ProxySPEX"}
    enumerate_all = {"KernelSHAP", "kADDSHAP", "UnbiasedKernelSHAP", "SVARM"}
    offered = APPROXIMATORS & set(black_box.list_approximators())
    assert enumerate_all < offered
    for name in offered - slow:
        few, every = (
            explain(model, "peer_shapiq", budget, approximator=name, part=slice(1)) for budget in (6, 256 / 8)
        )
        assert few.evaluations[0] <= 48 and every.evaluations[0] <= 256, name
        bound = 1e-5 if name in enumerate_all else 0.4 * scale
        assert np.abs(every.scores - exact[:1]).mean() < bound, name


@needs_shapiq
def test_missing_and_failing_approximators_of_shapiq_are_one_line(model, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(shapiq_process, "list_approximators", lambda installed: ["KernelSHAP", "SVARM"])
        told = r"^peer_shapiq: shapiq \S+ has no approximator 'SPEX'.* KernelSHAP,"
        with pytest.raises(ShapelineError, match=told) as caught:
            explain(model, "peer_shapiq", 4, approximator="SPEX")
    assert not isinstance(caught.value, MethodFailure) and "\n" not in str(caught.value)
    (found,) = shortcuts.attribute(
        *(model, IMAGES, TARGETS, {"method": "peer_shapiq", "approximator": "SPEX"}, PATCHES, ROWS, "probability"),
        budgets=[4.0],
    )
    assert found.status == ["no design"] * 3 and "SPEX of 32 evaluations: " in found.error[0]


@needs_shapiq
@pytest.mark.skipif(importlib.util.find_spec("lightgbm") is None, reason="lightgbm is not installed")
def test_shapiq_by_boosted_trees(model, exact):
    found = explain(model, "peer_shapiq", 20, approximator="ProxySPEX", part=slice(1))
    assert np.abs(found.scores - exact[:1]).mean() < 0.5 * np.abs(exact).mean() and found.evaluations[0] <= 160


@needs_shap
def test_shap_partition_is_ours_where_it_follows_one_branch(model):
    """Images are explained with the context fixed; the tree halves the longest side in both."""
    theirs = explain(model, "peer_shap_partition", budget=200, fixed_context=0)
    ours = explain(model, "partition", evaluations=1600)
    np.testing.assert_allclose(theirs.scores, ours.scores, atol=1e-6)


@needs_shap
def test_the_tree_halves_the_longest_side():
    from shapeline.third_party.shap_methods import build_linkage

    tree = build_linkage((2, 4))
    members = {leaf: {leaf} for leaf in range(8)}
    for row, (left, right, _, size) in enumerate(tree):
        members[8 + row] = members[left] | members[right]
        assert len(members[8 + row]) == size
    assert {frozenset(members[child]) for child in tree[-1, :2]} == {frozenset({0, 1, 4, 5}), frozenset({2, 3, 6, 7})}
    assert len(tree) == 7 and build_linkage((5,))[-1, 3] == 5


@needs_shap
def test_shap_deep_is_our_deep_lift_and_shap_gradient_comes_near_ours(model):
    np.testing.assert_allclose(explain(model, "peer_shap_deep").scores, explain(model, "deep_lift").scores, atol=1e-5)
    assert (explain(model, "peer_shap_deep").evaluations == 4).all()
    theirs, ours = explain(model, "peer_shap_gradient", samples=1500), explain(model, "integrated_gradients")
    assert (theirs.evaluations == 1500).all()
    assert np.abs(theirs.scores - ours.scores).mean() < 0.1 * np.abs(ours.scores).mean()


@needs_shap
def test_shap_explains_regressions_and_columns():
    regression = twins.linear(np.array([[1.0, -2.0, 0.5, 0.25]], np.float32), np.array([0.5], np.float32))[0]
    regression.task, regression.n_classes = "regression", 1
    rows, origin = RNG.normal(size=(2, 4)).astype(np.float32), RNG.normal(size=(2, 4)).astype(np.float32)
    columns = Features("column", (4,), np.arange(4, dtype=np.int32))
    wanted = np.array([[1.0, -2.0, 0.5, 0.25]]) * (rows - origin.mean(0))
    for name in ("peer_shap_deep", "peer_shap_kernel", "peer_shap_permutation", "peer_captum_shapley_sampling"):
        (found,) = shortcuts.attribute(
            *(regression, rows, np.zeros(2, int), {"method": name}, columns, Reference(origin), "prediction"),
            budgets=[4.0 if PEERS[name].sampled else None],
            on_error="fail",
        )
        np.testing.assert_allclose(found.scores, wanted, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", [one for one in SAMPLED if one.values[0] != "peer_lime_image"])
@pytest.mark.parametrize("d", [1, 2, 7])
def test_words_are_explained_in_either_framework(name, d):
    """Every copy of a word has a separate score, and a document of one word has the gain of the model."""
    ids = np.zeros((2, twins.LENGTH), np.int32)
    ids[:, :d] = np.random.default_rng(d).integers(1, twins.WORDS, (2, d))
    cells = np.where(np.arange(twins.LENGTH) < d, np.arange(twins.LENGTH), -1).astype(np.int32)
    words, pad = Features("word", (d,), cells), Reference(np.zeros((1, twins.LENGTH), np.int32))
    found = []
    for model in twins.text()[: 1 if PEERS[name].torch_only else 2]:
        asked = model, ids, TARGETS[:2]
        settings = {"method": name}
        (theirs,) = shortcuts.attribute(*asked, settings, words, pad, budgets=[60.0], on_error="fail")
        (exact,) = shortcuts.attribute(*asked, {"method": "shapley"}, words, pad, on_error="fail")
        if name == "peer_lime_text":  # draws and weights of its own: no Shapley values, but much the same words
            assert d < 7 or np.corrcoef(theirs.scores.ravel(), exact.scores.ravel())[0, 1] > 0.8
        else:
            near = 0.1 if name in ("peer_shap_kernel", "peer_shap_permutation") else 0.4  # captum samples few orders
            assert np.abs(theirs.scores - exact.scores).mean() < near * np.abs(exact.scores).mean() + 1e-6
        found.append(theirs.scores)
    np.testing.assert_allclose(found[0], found[-1], atol=1e-4)


@needs_shap
def test_a_rival_on_words_spends_what_the_fixed_method_does():
    ids = RNG.integers(1, twins.WORDS, (2, twins.LENGTH)).astype(np.int32)
    words = Features("word", (twins.LENGTH,), np.arange(twins.LENGTH, dtype=np.int32))
    asked = twins.text()[0], ids, TARGETS[:2]
    pad, fixed = Reference(np.zeros((1, twins.LENGTH), np.int32)), {"method": "l_shapley", "order": 1}
    settings = {"method": "peer_shap_kernel", "match_budget_of": "l", "rival": fixed}
    (theirs,) = shortcuts.attribute(*asked, settings, words, pad, on_error="fail")
    (ours,) = shortcuts.attribute(*asked, fixed, words, pad, on_error="fail")
    np.testing.assert_array_equal(theirs.evaluations, ours.evaluations)


def game_of(table: dict) -> InstanceGame:
    columns = Features("column", (2,), np.arange(2, dtype=np.int32))
    return InstanceGame(lambda masks: np.array([table[tuple(mask)] for mask in masks.astype(int)]), columns)


def test_a_game_evaluates_each_end_at_most_once():
    game = game_of({(0, 0): 1.0, (1, 1): 8.0, (1, 0): 3.0, (0, 1): 4.0})
    np.testing.assert_array_equal(game(np.array([[1, 1], [1, 0], [1, 1], [0, 1.0]])), [8, 3, 8, 4])
    assert game.evaluations == 3
    assert game.compute_gain() == 7 and game.evaluations == 4
    np.testing.assert_array_equal(game(np.array([[0, 0], [1, 1]])), [1, 8])
    assert game.evaluations == 4


def test_too_few_evaluations_are_a_failure_of_the_instance_only(model):
    explain_each = peer(parameters.kernel_minimum)(lambda v, seed, budget: np.zeros(8))
    with pytest.raises(MethodFailure, match="budget: 15 evaluations are fewer than the 16 needed at d = 8"):
        explain_each(Game(model, ROWS, PATCHES), IMAGES, TARGETS, IDS, 0, 15)


def test_an_infinite_value_names_its_instance():
    model = adapters.wrap(lambda rows: np.where(rows[:, :1] > 5, np.nan, np.full((len(rows), 2), 0.5)))
    rows, columns = np.zeros((3, 2), np.float32), Features("column", (2,), np.arange(2, dtype=np.int32))
    rows[1] = 9
    game = Game(model, Reference(np.zeros((1, 2), np.float32)), columns, "probability")
    explain_each = peer(parameters.kernel_minimum)(lambda v, seed, budget: v(np.eye(2)))
    with pytest.raises(ShapelineError) as caught:
        explain_each(game, rows, np.zeros(3, int), IDS, 0, 8)
    assert caught.value.instance == 1 and "instance 1," in str(caught.value)


def test_the_global_generator_is_restored_after_a_failure():
    before = np.random.get_state()[1].copy()
    with pytest.raises(ValueError), seed_numpy(5):
        np.random.rand()
        raise ValueError
    np.testing.assert_array_equal(np.random.get_state()[1], before)


def refused(raw: dict) -> list[str]:
    with pytest.raises(ShapelineError) as caught:
        validation.load(raw)
    return str(caught.value).splitlines()


@pytest.fixture
def entries(default):
    """The raw configuration and the methods of an experiment on images that runs."""
    raw = copy.deepcopy(default)
    name = next(k for k, e in raw["experiments"].items() if e["features"]["kind"] == "patch" and k in raw["run"])
    return raw, name, raw["experiments"][name]["methods"]


def test_a_missing_peer_stops_only_the_run(entries, model, monkeypatch):
    raw, name, entries = entries
    entries["theirs"] = {"method": "peer_shap_kernel"}
    monkeypatch.setattr(registry, "is_installed", lambda package: False)
    command = "peer_shap_kernel: shap is not installed; pip install 'shapeline[peers]'"
    assert refused(raw) == [f"experiments.{name}.methods.theirs: {command}"]
    with pytest.raises(ShapelineError) as caught:
        explain(model, "peer_shap_kernel", 4)
    assert str(caught.value) == command
    raw["run"] = [other for other in raw["run"] if other != name]
    validation.load(raw)


def test_impossible_entries_are_refused(entries, monkeypatch):
    raw, name, entries = entries
    monkeypatch.setattr(registry, "find_missing_package", lambda method: None)
    entries |= {
        "text": {"method": "peer_lime_text"},
        "steps": {"method": "peer_shap_permutation", "intermediate_budgets": [2.0]},
        "few": {"method": "peer_shap_kernel", "budget": 1.0},
    }
    d = int(np.prod(derived.find_feature_shape(validation.load(entries_of(raw, name)), entry_of(raw, name))))
    where = f"experiments.{name}.methods"
    assert refused(raw) == [
        f"{where}.text: peer_lime_text explains data of kind text, not of kind image; remove it",
        f"{where}.steps.intermediate_budgets: peer_shap_permutation returns only its last estimate; "
        "define an entry per budget",
        f"{where}.few.budget: 1 x d is {d} evaluations and peer_shap_kernel needs at least {2 * d} at d = {d}; "
        "set 2 or more",
    ]


def entries_of(raw: dict, name: str) -> dict:
    """The configuration without the labels that the tests added."""
    raw = copy.deepcopy(raw)
    for entry in ("text", "steps", "few"):
        raw["experiments"][name]["methods"].pop(entry)
    return raw


def entry_of(raw: dict, name: str):
    return validation.load(entries_of(raw, name)).experiments[name]


def test_nothing_of_a_library_is_imported_by_the_configuration(root):
    import subprocess

    code = (
        "import sys; from shapeline.config import validation; "
        "from shapeline.datasets.sources import resolve; from shapeline.methods.registry import METHODS; "
        "[resolve(m.minimum) for m in METHODS.values() if m.family == 'peers' and m.minimum]; "
        "print({'shap', 'lime', 'torch'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert ran.stdout.strip() == "set()", ran.stderr
