"""Maps against true pixels, and ablation curves: by hand, by brute force, and against scikit-learn."""

import copy
import itertools
import math

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score, f1_score

from shapeline.config.validation import load
from shapeline.datasets.synthetic import generate
from shapeline.errors import ShapelineError
from shapeline.games.features import Features, build
from shapeline.games.game import Game
from shapeline.games.references import Reference
from shapeline.hierarchy import exploration
from shapeline.methods.settings import parse
from shapeline.metrics import ground_truth, registry

SCALARS = {"f1", "f1_best", "f1_equal_area", "auprc", "iou", "iou_equal_area", "pointing"}


def pixels(height: int, width: int, channels: int = 1) -> Features:
    return build("pixel", {"input_shape": [channels, height, width], "kind": "image"})


def rows(maps) -> pd.DataFrame:
    maps = [np.asarray(one, np.float32).ravel() for one in maps]
    return pd.DataFrame({"instance": np.arange(len(maps)), "repeat": 0, "target": 1, "scores": maps})


def of(maps, truth, **options) -> dict[str, np.ndarray]:
    """Quantities (n,) of maps and truth (n, height, width)."""
    truth = np.asarray(truth, bool)
    one = [(pixels(*truth.shape[1:]), np.arange(len(truth)))]
    if method := options.pop("method", None):
        options["method"] = parse(method)
    found = ground_truth.measure_pixels(rows(maps), truth, one, **options)
    assert found["x"].isna().all()
    found = {name: part.sort_values("instance") for name, part in found.groupby("statistic")}
    assert all(list(part["instance"]) == list(range(len(truth))) for part in found.values())
    return {name: part["value"].to_numpy() for name, part in found.items()}


def only(maps, truth, **options) -> dict[str, float]:
    return {name: value[0] for name, value in of([maps], [truth], **options).items()}


# ------------------------------------------------------------------------------------------------------- by hand


def test_a_map_by_hand():
    found = only([[5, 4, 3], [2, 1, -1]], [[1, 0, 1], [0, 0, 0]])
    assert set(found) == SCALARS == set(registry.METRICS["localization"].statistics)
    assert found["f1"] == pytest.approx(2 * 2 / (5 + 2))  # five are above 1e-6, both true ones among them
    assert found["iou"] == pytest.approx(2 / 5)
    assert found["f1_best"] == pytest.approx(2 * 2 / (3 + 2))  # cut below 3
    assert found["f1_equal_area"] == pytest.approx(1 / 2)  # 5 and 4, of which one is true
    assert found["iou_equal_area"] == pytest.approx(1 / 3)
    assert found["auprc"] == pytest.approx((1 / 1 + 2 / 3) / 2)
    assert found["pointing"] == 1


def test_a_map_that_is_the_truth_is_perfect_and_its_negative_is_not():
    truth = np.eye(4, dtype=bool)
    assert set(only(truth, truth).values()) == {1.0}
    worst = only(-truth.astype(float), truth)
    assert worst["f1"] == worst["f1_equal_area"] == worst["pointing"] == worst["iou"] == 0
    assert worst["f1_best"] == pytest.approx(2 * 4 / (16 + 4))  # all are marked
    assert worst["auprc"] == pytest.approx(4 / 16)


def test_the_published_threshold_is_one_millionth():
    truth = [[1, 0]]
    assert only([[1.1e-6, 0.9e-6]], truth)["f1"] == 1
    assert only([[0.9e-6, 0.9e-6]], truth)["f1"] == 0
    assert only([[0.9e-6, 0.0]], truth)["f1_best"] == 1  # the best threshold is lower


def test_a_map_of_zeros_marks_nothing_and_its_ties_are_chance():
    truth = np.zeros((10, 12), bool)
    truth[2:5, 3:7] = True  # 12 of 120
    found = only(np.zeros((10, 12)), truth)
    assert found["f1"] == found["iou"] == 0
    assert [found["pointing"], found["auprc"]] == pytest.approx([0.1, 0.1])
    assert found["f1_best"] == pytest.approx(2 * 12 / (120 + 12))


def test_without_a_true_pixel_all_is_nan_and_left_out_of_the_mean():
    found = of([[[1, 0]], [[1, 0]]], [[[1, 0]], [[0, 0]]], method={"method": "h_shap"})
    assert set(found) == SCALARS | {"ceiling_touching", "ceiling_best"}
    assert all(value[0] == 1 and np.isnan(value[1]) for value in found.values())
    from shapeline.statistics.comparison import compare

    frame = ground_truth.measure_pixels(rows([[[1, 0]], [[1, 0]]]), np.array([[[1, 0]], [[0, 0]]], bool),
                                 [(pixels(1, 2), np.arange(2))]).assign(method="a")  # fmt: skip
    assert set(compare(frame)["n"]) == {1}


def test_ties_at_the_threshold_are_sampled_by_a_seed_per_instance():
    truth = np.zeros((400, 2, 10), bool)
    truth[:, 0, :6] = True  # of 20, six true
    maps = np.zeros((400, 2, 10))
    maps[:, 0, :2] = 3  # two of them sure
    maps[:, 1, 0] = 2  # one that is false
    found = of(maps, truth)["f1_equal_area"]
    assert set(np.round(6 * found)) <= {2.0, 3.0, 4.0, 5.0}
    assert found.mean() == pytest.approx((2 + 3 * 4 / 17) / 6, abs=0.02)  # the other three from 17, four of them true
    assert np.array_equal(found, of(maps, truth)["f1_equal_area"])
    assert np.array_equal(found[:7], of(maps[:7], truth[:7])["f1_equal_area"])  # not by the place in the batch
    assert not np.array_equal(found, of(maps, truth, seed=1)["f1_equal_area"])


def test_pixels_have_the_score_of_their_feature():
    features = build({"kind": "patch", "size": 2}, {"input_shape": [3, 4, 4], "kind": "image"})
    truth = np.zeros((1, 4, 4), bool)
    truth[0, :2, 2:] = True
    found = ground_truth.measure_pixels(rows([[0.0, 1.0, -1.0, 0.0]]), truth, [(features, np.array([0]))])
    assert set(found["value"]) == {1.0}
    gaps = Features("superpixel", (1,), np.where(np.arange(16).reshape(1, 4, 4) < 8, 0, -1).astype(np.int32))
    found = ground_truth.measure_pixels(rows([[1.0]]), truth, [(gaps, np.array([0]))]).set_index("statistic")["value"]
    assert found["f1"] == pytest.approx(2 * 4 / (8 + 4))  # a pixel without a feature has score 0


def test_rows_of_different_features_keep_their_own_truth():
    truth = np.array([[[1, 0, 0]], [[0, 0, 1]]], bool)
    single, double = pixels(1, 3), Features("superpixel", (2,), np.array([[[0, 0, 1]]], np.int32))
    both = rows([[1, 0, 0], [0, 1]])
    found = ground_truth.measure_pixels(both, truth, [(double, np.array([1])), (single, np.array([0]))])
    assert set(found["value"]) == {1.0} and set(found["instance"]) == {0, 1}


def test_a_truth_for_other_rows_is_refused():
    with pytest.raises(ShapelineError, match="2 true regions for 1 explanations"):
        ground_truth.measure_pixels(rows([[1, 0]]), np.zeros((2, 1, 2), bool), [(pixels(1, 2), np.array([0]))])


# ---------------------------------------------------------------------------------------------------- brute force


def test_every_quantity_against_brute_force_with_ties():
    random = np.random.default_rng(0)
    maps = random.integers(-2, 4, (60, 4, 5)).astype(float)  # six values on twenty pixels: ties everywhere
    maps[40:] = random.normal(size=(20, 4, 5))
    truth = random.random((60, 4, 5)) < random.uniform(0.1, 0.9, 60)[:, None, None]
    truth[:, 0, 0] = True
    found = of(maps, truth)
    for row, (one, wanted) in enumerate(zip(maps.reshape(60, -1), truth.reshape(60, -1), strict=True)):
        one = one.astype(np.float32)
        assert found["auprc"][row] == pytest.approx(average_precision_score(wanted, one))
        assert found["f1"][row] == pytest.approx(f1_score(wanted, one > 1e-6))
        assert found["f1_best"][row] == pytest.approx(max(f1_score(wanted, one >= cut) for cut in one))
        assert found["pointing"][row] == pytest.approx(wanted[one == one.max()].mean())
        assert found["iou"][row] == pytest.approx((wanted & (one > 1e-6)).sum() / (wanted | (one > 1e-6)).sum())
        total = wanted.sum()
        cut = np.sort(one)[-total]
        sure, among = wanted[one > cut].sum(), wanted[one == cut].sum()
        left, equal = total - (one > cut).sum(), (one == cut).sum()
        hits = found["f1_equal_area"][row] * total
        assert sure + max(0, left - (equal - among)) - 1e-9 <= hits <= sure + min(left, among) + 1e-9
        assert found["iou_equal_area"][row] == pytest.approx(hits / (2 * total - hits))
    plain = found["f1_equal_area"][40:]
    for row, value in enumerate(plain, start=40):  # without ties there is one answer
        one, wanted = maps[row].ravel(), truth[row].ravel()
        assert value == pytest.approx(wanted[np.argsort(-one)[: wanted.sum()]].mean())


def test_chunks_give_the_results_of_all_rows(monkeypatch):
    random = np.random.default_rng(1)
    maps, truth = random.integers(0, 3, (9, 3, 4)), random.random((9, 3, 4)) < 0.4
    whole = of(maps, truth)
    monkeypatch.setattr(ground_truth, "MAX_CHUNK_PIXELS", 30)
    for name, value in of(maps, truth).items():
        assert np.array_equal(value, whole[name], equal_nan=True)


# ------------------------------------------------------------------------------------------------------- ceilings


def test_the_best_set_of_leaves_against_every_set():
    random = np.random.default_rng(2)
    for height, width, size in ((5, 9, 2), (1, 13, 2), (7, 4, 2)):
        truth = random.random((4, height, width)) < 0.3
        touching, best = ground_truth.compute_leaf_ceilings(truth, size)
        row, column = (ground_truth.find_leaf_edges(side, size) for side in (height, width))
        leaves = list(itertools.product(itertools.pairwise(row), itertools.pairwise(column)))
        assert 4 <= len(leaves) <= 8
        for place, one in enumerate(truth):
            scores = {}
            for chosen in itertools.product([False, True], repeat=len(leaves)):
                marked = np.zeros((height, width), bool)
                for ((top, bottom), (left, right)), taken in zip(leaves, chosen, strict=True):
                    marked[top:bottom, left:right] = taken
                scores[chosen] = 2 * (one & marked).sum() / max(one.sum() + marked.sum(), 1)
            assert best[place] == pytest.approx(max(scores.values()))
            touched = tuple(bool(one[top:bottom, left:right].any()) for (top, bottom), (left, right) in leaves)
            assert touching[place] == pytest.approx(scores[touched])


@pytest.mark.parametrize(("height", "width"), [(100, 120), (7, 31), (1, 13), (17, 3)])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_the_leaves_are_those_of_h_shap(height, width, size):
    if size > max(height, width):
        pytest.skip("larger than the image")
    everything = exploration.h_shap(lambda masks: masks.mean(axis=(1, 2)), (height, width), size)
    rows, columns = (ground_truth.find_leaf_edges(side, size) for side in (height, width))
    expected = {
        (top, bottom, left, right)
        for (top, bottom), (left, right) in itertools.product(itertools.pairwise(rows), itertools.pairwise(columns))
    }
    assert {tuple(map(int, leaf)) for leaf in everything.leaves} == expected


@pytest.mark.parametrize(("size", "touching", "best"), [(5, 0.15, 0.25), (3, 0.28, 0.37), (2, 0.40, 0.44)])
def test_the_ceilings_on_crosses(size, touching, best):
    _, truth = generate(200, 1, seed=0)
    found = of(np.zeros(truth.shape), truth, method={"method": "h_shap", "min_size": size})
    assert found["ceiling_touching"].mean() == pytest.approx(touching, abs=0.01)
    assert found["ceiling_best"].mean() == pytest.approx(best, abs=0.01)


def test_only_h_shap_on_its_own_quadrants_has_ceilings():
    truth = np.ones((1, 2, 2), bool)
    for method in ({"method": "partition"}, {"method": "h_shap", "shifts": [[0, 1]]}, {},
                   {"method": "h_shap", "features": {"kind": "superpixel"}}):  # fmt: skip
        assert set(of(truth, truth, method=method)) == SCALARS
    assert of(truth, truth, method={"method": "h_shap"})["ceiling_best"] == [1.0]


# ------------------------------------------------------------------------------------------------------- ablation


def softmax_model(weights, bias=0.0):
    """Two classes with logits (weights @ x + bias, 0)."""
    import torch

    from shapeline.models import adapters

    layer = torch.nn.Linear(len(weights), 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([weights, [0.0] * len(weights)]))
        layer.bias.copy_(torch.tensor([bias, 0.0]))
    return adapters.wrap(layer)


def ablated(scores, weights, bias=0.0, instances=None, inputs=None, **options) -> dict:
    """Curve or area by statistic: (n, counts) and (n,)."""
    from shapeline.metrics import ablation

    scores, d = np.atleast_2d(scores), len(weights)
    table = rows(scores).assign(target=0)
    if instances is not None:
        table["instance"] = instances
    found = ablation.measure(
        table,
        Game(softmax_model(list(map(float, weights)), bias), Reference(np.zeros((1, d), np.float32)), None),
        np.ones((len(scores), d), np.float32) if inputs is None else inputs,
        [(Features("column", (d,), np.arange(d, dtype=np.int32)), np.arange(len(scores)))],
        **options,
    )
    kept = {}
    for name, part in found.groupby("statistic"):
        wide = part.assign(x=part["x"].fillna(0)).pivot(index="instance", columns="x", values="value")
        kept[name] = wide.to_numpy() if len(wide.columns) > 1 else wide.to_numpy()[:, 0]
        if not name.endswith("area"):
            kept["x"] = wide.columns.to_numpy()
    return kept


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_an_ablation_curve_by_hand():
    found = ablated([3.0, 2.0, 1.0], [4.0, 2.0, 1.0])
    assert found["x"].tolist() == [1, 2, 3]
    assert found["logit"][0] == pytest.approx(np.array([3, 1, 0]) / 7)
    assert found["probability"][0] == pytest.approx([sigmoid(z) / sigmoid(7) for z in (3, 1, 0)], abs=1e-6)
    wide = np.log([2, 3 / 2]) / np.log(3)
    assert found["logit_area"] == pytest.approx(((3 + 1) / 2 * wide[0] + (1 + 0) / 2 * wide[1]) / 7)


def test_only_positive_features_are_removed():
    found = ablated([[3.0, -9.0, 0.0, 1.0], [0.0, -1.0, 0.0, 0.0]], [4.0, 2.0, 1.0, 1.0])
    assert found["logit"][0] == pytest.approx(np.array([4, 3, 3, 3]) / 8)  # the first, then the last; then level
    assert found["logit"][1] == pytest.approx([1, 1, 1, 1])
    assert found["logit_area"][1] == pytest.approx(1)


def test_shares_of_a_logit_that_is_not_positive_are_nan_those_of_its_probability_are_not():
    found = ablated([3.0, 2.0], [1.0, 1.0], bias=-5.0)
    assert np.isnan(found["logit"]).all() and np.isnan(found["logit_area"]).all()
    assert found["probability"][0] == pytest.approx([sigmoid(-4) / sigmoid(-3), sigmoid(-5) / sigmoid(-3)], rel=1e-5)


def test_sizes_are_integers_evenly_on_a_logarithmic_axis():
    found = ablated(np.arange(300) + 1.0, np.ones(300), sizes=20)
    counts = found["x"]
    assert counts[0] == 1 and counts[-1] == 300 and len(counts) <= 20 and (np.diff(counts) > 0).all()
    large = counts[counts > 20]
    assert np.ptp(large[1:] / large[:-1]) < 0.1
    assert found["logit"][0] == pytest.approx((300 - counts) / 300, abs=1e-6)


def test_pieces_and_order_change_no_curve(monkeypatch):
    from shapeline.metrics import ablation

    random = np.random.default_rng(3)
    scores = np.round(random.normal(size=(7, 30)), 1)  # ties, and different numbers of positive features
    scores[3] = -1.0
    weights = random.normal(size=30)
    whole = ablated(scores, weights, bias=20.0)
    told = []
    monkeypatch.setattr(ablation, "MAX_MASK_BYTES", 100)
    pieces = ablated(scores, weights, bias=20.0, progress=lambda n, made: told.append((n, made)))
    alone = ablated(scores[5:6], weights, bias=20.0, instances=[5])
    for name, values in whole.items():
        assert np.allclose(values, pieces[name], atol=1e-6)
        assert name == "x" or np.allclose(values[5], alone[name][0], atol=1e-6)
    assert told[-1][0] == 7 and len(told) == 7


def test_an_image_is_ablated_against_brute_force():
    random = np.random.default_rng(4)
    scores, weights = random.normal(size=(5, 40)), random.normal(size=40)
    inputs = random.normal(size=(5, 40)).astype(np.float32)
    found = ablated(scores, weights, bias=40.0, sizes=15, inputs=inputs)
    for row, one in enumerate(scores.astype(np.float32)):
        order = [i for i in np.argsort(-one) if one[i] > 0]
        for place, count in enumerate(found["x"]):
            kept = inputs[row].astype(float)
            kept[order[: int(count)]] = 0
            share = (kept @ weights + 40) / (inputs[row] @ weights + 40)
            assert found["logit"][row, place] == pytest.approx(share, rel=1e-4)


# -------------------------------------------------------------------------------------------------- configuration


def changed(default: dict, dataset: dict, metric: str, notebook: str = "report") -> dict:
    raw = copy.deepcopy(default)
    raw["datasets"] = {"some": dataset}
    table = dataset["source"] in ("breast_cancer", "diabetes")
    raw["models"] = {"some": {"dataset": "some", "architecture": "mlp" if table else "digits_cnn"}}
    raw["experiments"] = {
        "some": {
            "model": "some",
            "features": {"kind": "column" if table else "pixel"},
            "value": "prediction" if dataset["source"] == "diabetes" else "log_probability",
            "methods": {"random": {"method": "random"}},
            "metrics": {metric: {}},
            "report": {"notebook": notebook},
        }
    }
    raw["run"] = ["some"]
    return raw


def test_localization_needs_images_whose_truth_is_known(default):
    with pytest.raises(
        ShapelineError, match=r"experiments.some.metrics.localization: .*'digits' does not say.*crosses"
    ):
        load(changed(default, {"source": "digits"}, "localization"))
    with pytest.raises(ShapelineError, match=r"metrics.localization: it is of images, not of kind table"):
        load(changed(default, {"source": "breast_cancer"}, "localization"))
    with pytest.raises(ShapelineError, match=r"report.notebook: localization shows images"):
        load(changed(default, {"source": "breast_cancer"}, "cost", "localization"))
    assert load(changed(default, {"source": "digits"}, "cost", "localization"))


def test_ablation_needs_a_model_with_classes(default):
    with pytest.raises(ShapelineError, match=r"metrics.ablation: a regression model"):
        load(changed(default, {"source": "diabetes"}, "ablation"))
    raw = changed(default, {"source": "digits"}, "ablation")
    raw["experiments"]["some"] |= {"model": None, "dataset": "some", "methods": {"mim": {"method": "mim"}}}
    with pytest.raises(ShapelineError, match=r"metrics.ablation: it needs a model"):
        load(raw)
    assert load(changed(default, {"source": "digits"}, "ablation"))
