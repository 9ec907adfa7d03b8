"""Masked columns filled given the kept ones: by a Gaussian, and by the nearest records."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import shapeline
from shapeline.errors import ShapelineError
from shapeline.games import references
from shapeline.games.features import build
from shapeline.games.game import Game
from shapeline.models import adapters

from . import games

WEIGHTS = np.array([1.0, -2.0, 0.5, 3.0])


def records(n: int = 400, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, 4)) @ rng.normal(size=(4, 4)) * [1, 2, 10, 0.1] + [0, 1, -5, 3]).astype(np.float32)


def dataset(rows: np.ndarray, **card) -> SimpleNamespace:
    return SimpleNamespace(inputs=rows, split=np.zeros(len(rows), np.uint8), card=card)


def every(d: int = 4) -> np.ndarray:
    return (np.arange(2**d)[:, None] >> np.arange(d) & 1).astype(bool)


def expectations(row: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """E[w x | x_S] for every S of 4 columns, by the blocks of the covariance."""
    rows = rows.astype(float)
    mean, covariance = rows.mean(axis=0), np.cov(rows.T, ddof=0)
    found = []
    for kept in every():
        filled = np.where(kept, row, mean)
        if kept.any() and not kept.all():
            gain = covariance[np.ix_(~kept, kept)] @ np.linalg.inv(covariance[np.ix_(kept, kept)])
            filled[~kept] += gain @ (row - mean)[kept]
        found.append(filled @ WEIGHTS)
    return np.array(found)


def game(reference: dict | str, rows: np.ndarray) -> Game:
    model = adapters.wrap(lambda inputs: inputs @ WEIGHTS.astype(np.float32), "regression")
    return Game(
        model, references.build(reference, dataset(rows), 0), build("column", {"input_shape": [4]}), "prediction"
    )


@pytest.mark.parametrize("rows", [1, 2, 16])
def test_a_gaussian_gives_a_linear_model_its_conditional_shapley_values(rows):
    data = records()
    asked = game({"kind": "conditional", "rows": rows}, data)
    tables = asked.values(data[:3], every())
    for row, table in zip(data[:3].astype(float), tables, strict=True):
        expected = expectations(row, data)
        size = np.abs(data * WEIGHTS).sum(axis=1).max()
        np.testing.assert_allclose(table, expected, atol=2e-5 * size)  # the ridge, and single precision
        np.testing.assert_allclose(games.shapley(table), games.shapley(expected), atol=4e-5 * size)
    # A column without weight has a share where another tells of it: that is not so of the marginal reference.
    marginal = game("mean", data).values(data[:1], every())
    assert np.abs(games.shapley(marginal[0]) - games.shapley(tables[0])).max() > 0.1


def test_samples_given_columns_have_the_conditional_covariance():
    data = records()
    filled = references.build({"kind": "conditional", "rows": 20000}, dataset(data), 0)
    kept = np.array([True, False, True, False])
    rows = filled.given(data[:1], kept[None, None])[0, 0][:, ~kept].astype(float)
    covariance = np.cov(data.astype(float).T, ddof=0)
    across = covariance[np.ix_(~kept, kept)]
    expected = covariance[np.ix_(~kept, ~kept)] - across @ np.linalg.inv(covariance[np.ix_(kept, kept)]) @ across.T
    np.testing.assert_allclose(np.cov(rows.T), expected, rtol=0.05, atol=0.02 * np.sqrt(np.prod(np.diag(expected))))


def test_neighbours_by_hand():
    data = np.array([[0, 10], [1, 20], [2, 30], [3, 40]], np.float32)
    rows, fill = references.build_conditional("neighbours", 2, data, np.random.default_rng(0))
    assert {tuple(row) for row in rows} <= {tuple(row) for row in data}
    kept = np.array([[[True, False], [False, True], [False, False]]])
    found = fill(np.array([[0.9, 31.0]]), kept)[0]
    assert [tuple(row) for row in found[0]] == [(1, 20), (0, 10)]  # 0.9 is nearest to 1, then to 0
    assert [tuple(row) for row in found[1]] == [(2, 30), (3, 40)]  # 31 to 30, then to 40
    np.testing.assert_array_equal(found[2], rows)  # nothing to be near to: the rows of the empty coalition


def test_nearness_is_in_standard_deviations():
    data = np.array([[0, 0, 0], [1, 90000, 1], [1000, 100, 2]], np.float32)
    _, fill = references.build_conditional("neighbours", 1, data, np.random.default_rng(0))
    kept = np.array([[[True, True, False]]])
    assert fill(np.array([[300.0, 55000.0, 0.0]]), kept)[0, 0, 0, 2] == 1
    assert fill(np.array([[900.0, 55000.0, 0.0]]), kept)[0, 0, 0, 2] == 2


@pytest.mark.parametrize("form", references.FORMS)
def test_masks_of_each_instance_and_shared_masks_have_equal_values(form):
    data = records()
    asked = game({"kind": "conditional", "form": form, "rows": 4}, data)
    shared = asked.values(data[:5], every())
    own = asked.values(data[:5], np.array([every()] * 5))
    alone = np.array([asked.values(data[i : i + 1], every())[0] for i in range(5)])
    np.testing.assert_array_equal(own, shared)
    np.testing.assert_allclose(alone, shared, atol=1e-5 * np.abs(shared).max())
    np.testing.assert_allclose(shared[:, -1], data[:5] @ WEIGHTS, rtol=1e-5)


@pytest.mark.parametrize("form", references.FORMS)
def test_torch_and_tensorflow_fill_alike(form):
    tf = pytest.importorskip("tensorflow")
    data = records()
    filled = references.build({"kind": "conditional", "form": form, "rows": 3}, dataset(data), 0)
    layer = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(2)])
    rng = np.random.default_rng(0)
    layer.layers[-1].set_weights([rng.normal(size=(4, 2)).astype(np.float32), np.zeros(2, np.float32)])
    import torch

    linear = torch.nn.Linear(4, 2)
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(layer.layers[-1].get_weights()[0].T.copy()))
        linear.bias.zero_()
    columns = build("column", {"input_shape": [4]})
    asked = [Game(adapters.wrap(model), filled, columns) for model in (linear, layer)]
    by = [one.values(data[:6], every(), np.zeros(6, int)) for one in asked]
    np.testing.assert_allclose(by[0], by[1], atol=1e-4)
    assert np.abs(np.diff(by[0], axis=1)).max() > 0.1


def test_collinear_columns_are_accepted():
    data = records()
    twice = np.column_stack([data, data[:, 0], np.full(len(data), 7.0)]).astype(np.float32)
    _, fill = references.build_conditional("gaussian", 8, twice, np.random.default_rng(0))
    kept = np.array([[[True, False, False, False, False, False]]])
    found = fill(twice[:1], kept)[0, 0]
    spread = data[:, 0].std()
    np.testing.assert_allclose(found[:, 4], twice[0, 0], atol=0.01 * spread)
    np.testing.assert_allclose(found[:, 5], 7, atol=0.01)


@pytest.mark.parametrize(
    ("settings", "card", "words"),
    [
        ({"form": "neighbours", "rows": 500}, {}, "needs 500 training record.s. and has 400"),
        ({"form": "tree"}, {}, "gaussian or neighbours"),
        ({}, {"categorical": [2], "feature_names": list("wxyz")}, "column 'y' holds categories"),
    ],
)
def test_what_it_cannot_fill_is_refused(settings, card, words):
    with pytest.raises(ShapelineError, match=words):
        references.build({"kind": "conditional", **settings}, dataset(records(), **card), 0)


def test_missing_numbers_and_images_are_refused():
    data = records()
    data[3, 1] = np.nan
    with pytest.raises(ShapelineError, match="column '1' has missing or infinite numbers"):
        references.build("conditional", dataset(data), 0)
    frame = pd.DataFrame(data, columns=["age", "income", "c", "d"])
    for other in (
        frame,
        frame.fillna(0).assign(income="u"),
        frame.fillna(0).assign(income=pd.Categorical(["v"] * 400)),
    ):
        with pytest.raises(ShapelineError, match=r"column 'income' (has missing or infinite numbers|holds categories)"):
            shapeline.explain(lambda rows: np.zeros(len(rows)), other[:2], background=other, reference="conditional")
    with pytest.raises(ShapelineError, match="not a table"):
        references.build("conditional", dataset(np.zeros((9, 1, 4, 4), np.float32)), 0)


def test_explain_accepts_it_and_reports_it():
    data = records()
    wanted = {"background": data, "reference": {"kind": "conditional", "rows": 2}, "value": "prediction"}
    found = shapeline.explain(lambda rows: rows @ WEIGHTS, data[:3], method="shapley", **wanted)
    for row, scores in zip(data[:3].astype(float), found.scores, strict=True):
        expected = games.shapley(expectations(row, data))
        np.testing.assert_allclose(scores, expected, atol=1e-4 * np.abs(data * WEIGHTS).sum(axis=1).max())
    assert "conditional" in found.about.reference and found.about.rows == 2


def test_methods_that_read_the_model_itself_refuse_it():
    sklearn = pytest.importorskip("sklearn.linear_model")
    data = records()
    model = sklearn.LinearRegression().fit(data, data @ WEIGHTS)
    with pytest.raises(ShapelineError, match="conditional"):
        shapeline.explain(model, data[:2], method="linear_shap", background=data, reference="conditional")
