"""h-Shap and Partition in the pipeline: any framework, features and value; features of a method; timing."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch

from shapeline.attribution import provenance
from shapeline.config import validation
from shapeline.errors import MethodFailure, ShapelineError
from shapeline.games import features as feature_kinds
from shapeline.games.execution import ExecutionBackend
from shapeline.games.features import Features
from shapeline.games.game import Game
from shapeline.games.references import Reference
from shapeline.hierarchy import exploration, methods
from shapeline.methods import registry
from shapeline.models import adapters, architectures
from shapeline.workflow.job_code import attribute_code
from shapeline.workflow.jobs import attribute_settings
from tests.unit import shortcuts

rng = np.random.default_rng


def pixels(height, width, channels=1):
    cells = np.broadcast_to(np.arange(height * width).reshape(height, width), (channels, height, width))
    return Features("pixel", (height, width), cells.astype(np.int32))


def network(height, width, channels=1, classes=3):
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(channels, 4, 1), torch.nn.ReLU(), torch.nn.Flatten()
    return adapters.wrap(torch.nn.Sequential(*layers, torch.nn.Linear(4 * height * width, classes)), n_classes=classes)


def pictures(n, height, width, channels=1, seed=0):
    return rng(seed).random((n, channels, height, width), dtype=np.float32)


class Bright:
    """A model as people have them: probabilities by predict_proba; class 1 where one of some pixels is present."""

    def __init__(self, decisive):
        self.decisive = decisive
        self.rows = 0

    def predict_proba(self, rows):
        self.rows += len(rows)
        some = rows[:, 0][:, self.decisive].max(axis=1) > 0.5
        return np.stack([0.9 - 0.8 * some, 0.1 + 0.8 * some], axis=1)


def explain(model, inputs, settings, features, targets=None, reference=None, **more):
    targets = np.ones(len(inputs), int) if targets is None else targets
    reference = Reference(np.zeros((1, *inputs.shape[1:]), np.float32)) if reference is None else reference
    more = {"value": "probability", "on_error": "fail", **more}
    (found,) = shortcuts.attribute(model, inputs, targets, settings, features, reference, **more)
    return found


# --- h-Shap ---


@pytest.mark.parametrize("sides", [(8, 8), (1, 13), (13, 1), (7, 11), (2, 2)])
def test_h_shap_finds_the_relevant_cells_and_reports_its_cost(sides):
    """Odd, prime and one-pixel-high images; through predict_proba, for all frameworks in the registry."""
    decisive = np.zeros(sides, bool)
    decisive[-1, -1] = decisive[0, 0] = True
    inner = Bright(decisive)
    inputs = np.stack([np.ones((1, *sides)), decisive[None], np.zeros((1, *sides))]).astype(np.float32)
    found = explain(adapters.wrap(inner), inputs, {"method": "h_shap"}, pixels(*sides))
    expected = decisive / decisive.sum()
    np.testing.assert_allclose(found.scores, [expected, expected, 0 * expected])
    assert found.warning == [None, None, "no relevant node"] and found.status == ["ok"] * 3
    assert [details["leaves"] for details in found.details] == [2, 2, 0]
    alone = exploration.h_shap(lambda masks: (masks & decisive).any(axis=(1, 2)) * 0.8 + 0.1, sides, 1)
    assert found.evaluations[0] == found.evaluations[1] == alone.evaluations
    assert found.details[0]["visited_nodes"] == alone.visited_nodes
    # Each evaluation is a row of the model, but for two ends, which every score file states anew, and the input itself.
    assert inner.rows == found.evaluations.sum() + 3 * len(inputs) + 1  # and one to count classes


@pytest.mark.parametrize("value", ["probability", "log_probability", "logit", "expected_log_probability"])
@pytest.mark.parametrize("shifts", [None, [[0, 0], [1, 2]]])
def test_the_device_and_the_engine_grow_the_same_trees(value, shifts, monkeypatch):
    model, inputs, features = network(6, 9, 2), pictures(4, 6, 9, 2), pixels(6, 9, 2)
    targets, reference = np.array([0, 2, 1, 1]), Reference(pictures(2, 6, 9, 2, seed=1))
    settings = {"method": "h_shap", "min_size": 2, "mode": "relative", "threshold": 50.0}
    settings |= {"shifts": shifts} if shifts else {}
    found = explain(model, inputs, settings, features, targets, reference, value=value)
    monkeypatch.setattr(methods, "DEVICE_EVALUATORS", {})
    monkeypatch.setattr(methods, "MAX_BLOCK_BYTES", 5000)
    general = explain(model, inputs, settings, features, targets, reference, value=value)
    np.testing.assert_allclose(found.scores, general.scores, atol=1e-12)
    np.testing.assert_array_equal(found.evaluations, general.evaluations)
    assert np.ptp(found.scores) > 0 and found.evaluations.min() > 2 + 14
    np.testing.assert_allclose(found.scores.sum(axis=(1, 2)), 1)


@pytest.mark.parametrize("spun", [False, True])
@pytest.mark.parametrize("kind", ["patch", "column", "group"])
def test_h_shap_on_other_grids_is_that_of_the_game_of_the_engine(kind, spun):
    if kind == "patch":
        inputs, model = pictures(2, 7, 10), network(7, 10)
        features = feature_kinds.build({"kind": "patch", "size": 2}, {"input_shape": [1, 7, 10]})
    else:
        torch.manual_seed(1)
        model = adapters.wrap(torch.nn.Sequential(torch.nn.Linear(9, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)))
        inputs = rng(0).normal(size=(2, 9)).astype(np.float32)
        groups = {"groups": {"a": ["x0", "x5"], "b": ["x1"], "c": [f"x{i}" for i in (2, 3, 4, 6, 7, 8)]}}
        card = {"input_shape": [9], "feature_names": [f"x{i}" for i in range(9)], "kind": "table"}
        features = feature_kinds.build({"kind": kind, **(groups if kind == "group" else {})}, card)
    targets, reference = np.array([2, 0]), Reference(inputs[:1] * 0 + 0.5)
    shifts = [[0] * len(features.shape), [1] * len(features.shape), [2] * len(features.shape)] if spun else None
    settings = {"method": "h_shap", "shifts": shifts}
    found = explain(model, inputs, settings, features, targets, reference)
    for i in range(2):

        def game(masks, i=i):
            flat = masks.reshape(len(masks), -1)
            return shortcuts.values(
                model, inputs[i : i + 1], reference, flat, features, "probability", targets[i : i + 1]
            )[0]

        alone = exploration.h_shap(game, features.shape, 1, shifts=shifts, tolerance=methods.TOLERANCE)
        np.testing.assert_allclose(found.scores[i], alone.saliency)
        assert found.evaluations[i] == alone.evaluations


def test_h_shap_on_superpixels_splits_a_tree_over_them():
    segments = np.array([[0, 0, 1, 1], [0, 2, 2, 1], [3, 3, 2, 4]])
    features = Features("superpixel", (5,), np.broadcast_to(segments, (1, 3, 4)).astype(np.int32))
    inner = Bright(segments == 2)
    ones = np.ones((1, 1, 3, 4), np.float32)
    found = explain(adapters.wrap(inner), ones, {"method": "h_shap"}, features)
    np.testing.assert_allclose(found.scores, [[0, 0, 1, 0, 0]])
    assert found.details[0]["leaves"] == 1 and found.evaluations[0] < 2**5
    spread = feature_kinds.spread_scores(found.scores, features, pixels(3, 4))
    np.testing.assert_allclose(spread[0], (segments == 2) / 3)  # 1/|L| on the cells of the leaf, as on any tree


def test_a_failure_names_the_instance():
    model, inputs = network(6, 6), pictures(3, 6, 6)
    inputs[1, 0, 0, 0] = np.nan
    for on_device in (True, False):
        with pytest.MonkeyPatch.context() as patched, pytest.raises(ShapelineError, match="instance 71,"):
            if not on_device:
                patched.setattr(methods, "DEVICE_EVALUATORS", {})
            game = Game(model, Reference(inputs[:1]), pixels(6, 6), "probability")
            evaluate = methods.build_evaluator(game, inputs, np.zeros(3, int))
            try:
                exploration.explore(evaluate, 3, (6, 6), 1)
            except ShapelineError as error:
                raise error.locate(np.array([70, 71, 72])) from None


def test_an_instance_shorter_than_a_leaf_fails_alone():
    """As a document may be, whose length no configuration knows."""
    model, inputs = adapters.wrap(torch.nn.Linear(3, 2)), np.ones((2, 3), np.float32)
    features = Features("word", (3,), np.arange(3, dtype=np.int32))
    found = explain(model, inputs, {"method": "h_shap", "min_size": 4}, features, on_error="record")
    assert found.status == ["too short"] * 2 and "min_size is 4 and there are 3" in found.error[0]


def test_memory_that_runs_out_halves_the_crops(monkeypatch):
    from shapeline.hierarchy import torch_evaluator

    monkeypatch.setitem(torch_evaluator.CALL_WORK, "cpu", -1)  # crops even where they do not pay
    model, inputs, reference = network(8, 8), pictures(3, 8, 8), Reference(pictures(1, 8, 8, seed=5))
    expected = shortcuts.trees(model, inputs, reference, np.array([0, 1, 2]), 1, backend=ExecutionBackend("plain", 64))
    plain, sizes = torch_evaluator.LocalCrops.outputs, []

    def small(self, codes, owner, most=5):
        sizes.append(len(owner))
        if len(owner) > most:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return plain(self, codes, owner)

    monkeypatch.setattr(torch_evaluator.LocalCrops, "outputs", small)
    found = shortcuts.trees(model, inputs, reference, np.array([0, 1, 2]), 1, backend=ExecutionBackend("plain", 64))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.saliency, other.saliency)
        assert one.evaluations == other.evaluations
    assert max(sizes) > 5
    evaluate = shortcuts.evaluator(model, inputs, reference, np.array([0, 1, 2]))
    monkeypatch.setattr(torch_evaluator.LocalCrops, "outputs", lambda *a: small(*a, most=0))
    with pytest.raises(MethodFailure, match="a single coalition"):
        evaluate(np.array([0, 1]), np.tile([0, 4, 0, 4], (2, 1, 1)))


def test_windows_are_not_tabulated_for_single_coalitions(monkeypatch):
    sizes = {"vocabulary": 20, "length": 12, "embedding": 4, "filters": 5, "hidden": 5}
    model, inputs = (
        architectures.build("word_cnn", **sizes),
        np.random.default_rng(0).integers(1, 20, (2, 12), np.int32),
    )
    features = Features("word", (12,), np.arange(12, dtype=np.int32))
    game, targets = Game(model, Reference(np.zeros((1, 12), np.int32)), features), np.array([0, 1])
    expected = methods.score_partition(game, inputs, targets, evaluations=20)[0]
    right, forms = Game.values, set()
    monkeypatch.setattr(Game, "values", lambda *given: forms.add(given[0].backend.name) or right(*given))
    found = methods.score_partition(
        game.having(backend=ExecutionBackend("windows", 64)), inputs, targets, evaluations=20
    )[0]
    assert forms == {"plain"}
    np.testing.assert_allclose(found, expected, atol=1e-6)


# --- Partition ---


def owen_by_recursion(game, node, sides, budget):
    """PartitionExplainer with fixed_context=0 and a batch of ten masks, by lists and dicts; scores (*sides)."""
    area = lambda n: (n[1] - n[0]) * (n[3] - n[2])  # noqa: E731
    scores = np.zeros(sides)

    def value(rectangle):
        mask = np.zeros((1, *sides), bool)
        mask[0, rectangle[0] : rectangle[1], rectangle[2] : rectangle[3]] = True
        return float(game(mask)[0])

    empty = value((0, 0, 0, 0))
    waiting, spent, born = [(value(node) - empty, 0, node)], 2, 1
    while True:
        waiting.sort(key=lambda one: (-abs(one[0]), one[1]))
        batch = [one for one in waiting if area(one[2]) > 1][: min(5, (budget - spent) // 2)]
        if not batch:
            break
        waiting = [one for one in waiting if one not in batch]
        for worth, _, (top, bottom, left, right) in batch:
            if bottom - top >= right - left:
                middle = bottom - (bottom - top) // 2
                halves = (top, middle, left, right), (middle, bottom, left, right)
            else:
                middle = right - (right - left) // 2
                halves = (top, bottom, left, middle), (top, bottom, middle, right)
            parts = [value(half) - empty for half in halves]
            scores[top:bottom, left:right] += (worth - sum(parts)) / area((top, bottom, left, right))
            waiting += [(part, born + i, half) for i, (part, half) in enumerate(zip(parts, halves, strict=True))]
            spent, born = spent + 2, born + 2
    for worth, _, (top, bottom, left, right) in waiting:
        scores[top:bottom, left:right] += worth / area((top, bottom, left, right))
    return scores, spent


@pytest.mark.parametrize("sides", [(8, 8), (7, 11), (1, 13), (5, 1)])
@pytest.mark.parametrize("budget", [2, 3, 4, 16, 33, 64, 1000])
def test_partition_is_the_recursion_on_any_budget(sides, budget):
    model, inputs, features = network(*sides, 2), pictures(3, *sides, 2), pixels(*sides, 2)
    targets, reference = np.array([0, 2, 1]), Reference(pictures(1, *sides, 2, seed=1))
    settings = {"method": "partition", "evaluations": budget}
    found = explain(model, inputs, settings, features, targets, reference, value="log_probability")
    for i in range(3):

        def game(masks, i=i):
            flat = masks.reshape(len(masks), -1)
            asked = inputs[i : i + 1], reference, flat, features, "log_probability", targets[i : i + 1]
            return shortcuts.values(model, *asked)[0]

        scores, spent = owen_by_recursion(game, (0, sides[0], 0, sides[1]), sides, budget)
        np.testing.assert_allclose(found.scores[i], scores, atol=1e-6)
        assert found.evaluations[i] == spent <= budget and found.details[i]["split_nodes"] == (spent - 2) // 2
    gap = found.scores.sum(axis=(1, 2)) - (found.value_full - found.value_empty)
    np.testing.assert_allclose(gap, 0, atol=1e-6)
    assert budget < 16 or np.ptp(found.scores) > 1e-3


@pytest.mark.real  # no data, but the library compiles itself for most of a minute; the recursion above is the same
@pytest.mark.parametrize(("sides", "channels"), [((8, 8), 1), ((13, 22), 1), ((13, 22), 3)])
def test_partition_is_that_of_the_library(sides, channels):
    """shap.PartitionExplainer itself; on three channels within a budget that reaches no single pixel, whose channels
    the library would split too."""
    shap = pytest.importorskip("shap")
    random = rng(0)
    weights = random.normal(size=(6, math.prod(sides) * channels))
    image, absent = random.random((2, *sides, channels))

    def game(flat):
        return np.tanh(flat @ weights.T / sides[0]).prod(axis=1) + flat @ weights[0] / 10

    explainer = shap.PartitionExplainer(
        lambda images: game(images.reshape(len(images), -1)), shap.maskers.Image(absent, absent.shape)
    )

    def evaluate(instances, rectangles):
        rows, columns = exploration.encode(
            rectangles, np.zeros((len(instances), 2), int), np.arange(sides[0]), np.arange(sides[1])
        )
        masks = (rows[:, :, None] & columns[:, None, :]) != 0
        return game(np.where(masks[..., None], image, absent).reshape(len(instances), -1))

    for budget in (16, 32, 64) if channels > 1 else (16, 32, 64, 500):
        library = explainer(image[None], max_evals=budget, fixed_context=0, batch_size=10, silent=True)
        expected = np.asarray(library.values).reshape(*sides, channels).sum(axis=2)
        found = methods.partition(evaluate, 1, sides, budget)
        np.testing.assert_allclose(found.scores[0], expected, atol=1e-6)
        assert np.ptp(expected) > 1e-2


def test_a_batch_of_instances_equals_single_instances():
    model, inputs, features = network(7, 11), pictures(5, 7, 11), pixels(7, 11)
    for settings in ({"method": "partition", "evaluations": 40}, {"method": "h_shap", "min_size": 2}):
        together = explain(model, inputs, settings, features)
        alone = explain(model, inputs, settings, features, timing="per_instance")
        np.testing.assert_allclose(together.scores, alone.scores, atol=1e-6)
        np.testing.assert_array_equal(together.evaluations, alone.evaluations)


# --- features of a method's own, and timing ---


class Table:
    """A dataset of images in memory."""

    owners = None  # of words

    def __init__(self, inputs):
        self.inputs, self.card = inputs, {"input_shape": list(inputs.shape[1:]), "kind": "image"}


def bench(inputs, model):
    import pandas as pd

    from shapeline.attribution.context import ExplanationContext

    features = feature_kinds.build("pixel", {"input_shape": list(inputs.shape[1:])})
    reference = Reference(np.zeros((1, *inputs.shape[1:]), np.float32))
    subject = ExplanationContext(model, Table(inputs), features, reference, {"kind": "pixel"})
    rows = np.arange(len(inputs))
    return subject, pd.DataFrame({"instance": rows + 40, "row": rows, "prediction": 1})


def rows_of(settings, inputs, model):
    subject, share = bench(inputs, model)
    settings = {"seed": 0, "value": "probability", "budget": 4, **settings}
    return shortcuts.explain_rows(subject, share, settings, "label", ExecutionBackend(), "fail"), subject, settings


QUICK = {"method": "quickshift", "kernel_size": 1.0, "max_distance": 3.0}


@pytest.mark.parametrize("kind", ["patch", "superpixel"])
def test_own_features_score_every_pixel_an_equal_share(kind):
    own = {"kind": "patch", "size": [2, 3]} if kind == "patch" else {"kind": "superpixel", **QUICK}
    inputs, model = pictures(2, 7, 10, 3), network(7, 10, 3)
    rows, subject, settings = rows_of({"method": {"method": "kernel_shap", "features": own}}, inputs, model)
    assert sorted(rows["instance"]) == [40, 41]
    for row in rows.itertuples():
        scores = row.scores.reshape(7, 10)
        features = feature_kinds.build_for(own, subject.dataset.card, inputs[row.instance - 40])
        owners = features.cells[0]
        for feature in range(features.d):
            assert np.ptp(scores[owners == feature]) == 0
        sums = np.bincount(owners.ravel(), weights=scores.ravel())
        assert len(np.unique(sums.round(9))) == features.d > 3
        assert scores.sum() == pytest.approx(row.value_full - row.value_empty, abs=1e-5)  # efficiency is kept
        assert row.evaluations <= 4 * features.d  # the budget is a multiple of its own d
    said = provenance.provenance(dataclasses.replace(subject, backend=ExecutionBackend()), settings, "cpu")
    assert said["spread_from"] == own and said["features"]["kind"] == "pixel"


def test_timing_of_an_instance_is_its_own_after_a_warm_up():
    calls = []

    class Slow(Bright):
        def predict_proba(self, rows):
            calls.append(len(rows))
            return super().predict_proba(rows)

    decisive = np.zeros((4, 4), bool)
    decisive[1, 2] = True
    inputs = np.ones((3, 1, 4, 4), np.float32)
    counted = {}
    for timing in ("batch", "per_instance"):
        calls.clear()
        settings = {"method": {"method": "h_shap"}, "timing": timing}
        rows, subject, settings = rows_of(settings, inputs, adapters.wrap(Slow(decisive)))
        counted[timing] = sum(calls), len(calls), rows["seconds"]
        said = provenance.provenance(dataclasses.replace(subject, backend=ExecutionBackend()), settings, "cpu")
        assert said["timing"] == timing and "warm-up" in said["seconds_exclude"]
    assert counted["batch"][2].nunique() == 1 and counted["per_instance"][2].nunique() == 3
    a_row = (2 + 14 * 2) + 2
    # Alone: an explanation more, the warm-up; every call is of one instance.
    assert counted["per_instance"][0] - counted["batch"][0] >= a_row
    assert counted["per_instance"][1] > counted["batch"][1]


def experiment(**changes):
    entry = {
        "model": "m",
        "features": {"kind": "pixel"},
        "instances": {"count": 5},
        "methods": {"a": {"method": "h_shap", "min_size": 2}},
        "metrics": {"cost": {}},
    }
    return {
        "run": ["e"],
        "datasets": {"d": {"source": "digits"}},
        "models": {"m": {"dataset": "d", "architecture": "digits_cnn"}},
        "experiments": {"e": {**entry, **changes}},
    }


SUPERPIXELS = {"kind": "superpixel", "segments": 8}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"methods": {"a": {"method": "h_shap", "min_size": 9}}}, "min_size: 9 is larger than the 8x8"),
        (
            {"methods": {"a": {"method": "h_shap", "mode": "relative", "threshold": 101.0}}},
            "threshold: 101 is not a percentile",
        ),
        ({"methods": {"a": {"method": "h_shap", "threshold": -1.0}}}, "threshold: .*greater than or equal to 0"),
        ({"methods": {"a": {"method": "h_shap", "shifts": [[1]]}}}, r"shifts: .* \[rows, columns\]"),
        ({"methods": {"a": {"method": "h_shap", "features": SUPERPIXELS, "min_size": 2}}}, "min_size: superpixels"),
        ({"features": SUPERPIXELS, "methods": {"a": {"method": "partition"}}}, "superpixels lie on none"),
        ({"methods": {"a": {"method": "partition", "evaluations": 1}}}, "evaluations: .*greater than or equal to 2"),
        (
            {"features": {"kind": "patch", "size": 2}, "methods": {"a": {"method": "lime", "features": SUPERPIXELS}}},
            "only beside pixels has a method other features",
        ),
        ({"methods": {"a": {"method": "lime", "features": {"kind": "patch", "size": 9}}}}, "larger than the image"),
        ({"methods": {"a": {"method": "lime", "features": {"kind": "word"}}}}, "unknown kind 'word'"),
        ({"methods": {"a": {"method": "lime", "features": {"kind": "patch", "size": 4}, "budget": 0.1}}}, "at d = 4"),
        ({"timing": "per_instance", "cache": True}, "remove cache"),
        ({"timing": "each"}, "unknown value 'each'"),
    ],
)
def test_mistakes_are_reported_before_any_job(changes, words):
    with pytest.raises(ShapelineError, match=words):
        validation.load(experiment(**changes))


def test_settings_and_code_of_a_job():
    chosen = experiment(
        methods={
            "a": {"method": "h_shap", "min_size": 2},
            "b": {"method": "lime", "features": SUPERPIXELS, "budget": 5.0},
            "c": {"method": "lime"},
        }
    )
    loaded = validation.load(chosen)
    settings = attribute_settings(loaded, "e", "b")
    assert settings["method"]["features"] == SUPERPIXELS and settings["features"] == {"kind": "pixel"}
    assert "timing" not in settings
    assert attribute_settings(loaded, "e", "c")["method"] == {"method": "lime"}
    code = attribute_code(loaded, "e", "a")
    assert all(f"workflow/shapeline/{name}.py" in code for name in ("hierarchy/methods", "hierarchy/torch_evaluator"))
    assert not any("hierarch" in file for file in attribute_code(loaded, "e", "b"))
    alone = validation.load({**chosen, "experiments": {"e": {**chosen["experiments"]["e"], "timing": "per_instance"}}})
    assert attribute_settings(alone, "e", "b")["timing"] == "per_instance"


def test_the_registry_names_both():
    assert {registry.METHODS[name].family for name in ("h_shap", "partition")} == {"hierarchical"}
    assert not any(registry.METHODS[name].is_design for name in ("h_shap", "partition"))


def test_a_node_costs_fourteen_evaluations_and_values_are_used_again():
    """Rows that the model is given, beyond the ends: 14 a node of four that is split; its own value is its parent's."""
    decisive = np.zeros((8, 8), bool)
    decisive[[0, 1, 5], [0, 6, 5]] = True
    inner = Bright(decisive)
    model, ones = adapters.wrap(inner), np.ones((1, 1, 8, 8), np.float32)
    game = Game(model, Reference(0 * ones), pixels(8, 8), "probability")
    evaluate = methods.build_evaluator(game, ones, np.array([1]))
    inner.rows = 0
    found = exploration.explore(evaluate, 1, (8, 8), 1)
    split = {
        (top // side, left // side, side) for (top, left), side in itertools.product(np.argwhere(decisive), (8, 4, 2))
    }
    assert found.evaluations[0] == inner.rows == 2 + 14 * len(split)


def test_seconds_have_an_interval_where_each_instance_was_timed_separately():
    from types import SimpleNamespace

    import pandas as pd

    from shapeline.report import tables
    from shapeline.report.sections import common

    rows = pd.DataFrame({"status": "ok", "evaluations": [30, 30], "seconds": [0.01, 0.03], "warning": None})
    cost = pd.DataFrame(
        {
            "method": ["a"],
            "statistic": ["seconds"],
            "x": [np.nan],
            "mean": [0.02],
            "low": [0.01],
            "high": [0.03],
            "n": [2],
        }
    )
    shown = {}
    for timing in ("batch", "per_instance"):
        settings = {} if timing == "batch" else {"timing": timing}
        results = SimpleNamespace(
            settings=settings,
            entries={"a": {"method": "h_shap"}},
            scores={"a": rows},
            metrics={"cost": cost},
            metadata={},
            d=8,
        )
        shown[timing] = tables.cost(results)["ms per instance"][0]
        assert ("timed separately" in common.cost_note(results).data) == (timing == "per_instance")
    assert "to" not in shown["batch"] and shown["per_instance"] == "20.0 (10.0 to 30.0)"


def test_partition_splits_negative_nodes_as_early_as_positive_ones():
    """One cell of -3 and one of +1, no more than four splits: those of the negative cell's nodes."""
    weights = np.zeros((1, 16))
    weights[0, 2], weights[0, 13] = -3, 1

    def evaluate(instances, rectangles):
        columns = (
            exploration.encode(rectangles, np.zeros((len(instances), 2), int), np.arange(1), np.arange(16))[1] != 0
        )
        return columns @ weights[0]

    found = methods.partition(evaluate, 1, (16,), 2 + 2 * 4, nodes_a_round=1)
    assert found.scores[0, 0, 2] == pytest.approx(-3) and found.scores[0, 0, 13] == pytest.approx(1 / 8)
