"""The games of `shapeline.games`: values computed by hand, containers, identities, shapiq's files, examples."""

import doctest
import importlib
import json
import pickle
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import coo_matrix, csr_matrix
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
)
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, log_loss, r2_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import shapeline
from shapeline import games
from shapeline.errors import ShapelineError
from tests.unit.value_tables import masks_of

X, y = load_iris(return_X_y=True)
FRAME, LABELS = load_iris(return_X_y=True, as_frame=True)
TRAIN, TEST = slice(0, None, 3), slice(1, None, 3)
SHARES = np.bincount(y[TEST]) / len(y[TEST])
NAMED = make_pipeline(make_column_transformer(("passthrough", [FRAME.columns[0]])), GaussianNB())
NAMES = np.array(["setosa", "versicolor", "virginica"])[y]
MODULES = ("games.retraining", "games.removal", "games.stored", "api.case")


@pytest.mark.parametrize("name", [*MODULES, "api.call"])
def test_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = doctest.testmod(importlib.import_module(f"shapeline.{name}"))
    assert found.attempted and not found.failed


@pytest.mark.parametrize("container", ["array", "frame", "list", "sparse"])
def test_data_valuation_trains_on_the_examples_of_a_coalition(container):
    source = np.arange(len(y[TRAIN])) % 4
    rows, labels = {
        "array": (X[TRAIN], y[TRAIN]),
        "frame": (FRAME[TRAIN], pd.Series(NAMES, FRAME.index)[TRAIN]),
        "list": (X[TRAIN].tolist(), y[TRAIN].tolist()),
        "sparse": (coo_matrix(X[TRAIN]), y[TRAIN]),
    }[container]
    test = (FRAME[TEST], NAMES[TEST]) if container == "frame" else (X[TEST], y[TEST])
    model = DecisionTreeClassifier(random_state=0) if container == "sparse" else GaussianNB()
    game = games.DataValuation(model, rows, labels, *test, groups=(f"source {one}" for one in source))
    assert game.player_names == [f"source {one}" for one in range(4)] and game.n_players == 4
    masks = masks_of(4)
    for mask, value in zip(masks[1:], game(masks)[1:], strict=True):
        there = mask[source]
        own = model.fit(X[TRAIN][there], y[TRAIN][there]).predict(X[TEST])
        assert value == accuracy_score(y[TEST], own)
    assert game(masks)[0] == pytest.approx(SHARES[0])  # the most frequent class


def test_data_valuation_of_single_examples_scores_and_few_of_them():
    few = slice(0, None, 15)
    scoring = ["accuracy", "neg_log_loss"]
    game = games.DataValuation(LogisticRegression(), X[few], y[few], X[TEST], y[TEST], scoring=["accuracy", "f1_macro"])
    assert game.n_players == 10 and game.output_names == ["accuracy", "f1_macro"]
    found = shapeline.shapley_values(game, evaluations=60)
    assert found.scores.shape == (2, 10) and found.evaluations[0] == 60
    alone = np.eye(10, dtype=bool)[:1]
    assert game(alone)[0][0] == pytest.approx(SHARES[0])  # of one class, which it predicts always
    nearest = KNeighborsClassifier(3)
    with pytest.raises(ShapelineError, match=r"DataValuation: ValueError: .*n_neighbors.*; give untrainable='empty'"):
        games.DataValuation(nearest, X[few], y[few], X[TEST], y[TEST])(
            np.eye(10, dtype=bool)[[0]] | np.eye(10, dtype=bool)[[9]]
        )
    lenient = games.DataValuation(nearest, X[few], y[few], X[TEST], y[TEST], untrainable="empty", empty=0.25)
    assert lenient(np.eye(10, dtype=bool)[[0]] | np.eye(10, dtype=bool)[[9]]).tolist() == [0.25]
    never = games.DataValuation(KNeighborsClassifier(30), X[few], y[few], X[TEST], y[TEST], untrainable="empty")
    with pytest.raises(ShapelineError, match=r"of all players: .*; give an estimator that takes all of X and y"):
        shapeline.shapley_values(never)
    assert games.DataValuation(GaussianNB(), X, y, X, y, scoring=scoring).empty == pytest.approx([1 / 3, -np.log(3)])
    loss = games.DataValuation(Ridge(), X[:, :3], X[:, 3], X[:, :3], X[:, 3], scoring="neg_mean_squared_error")
    assert loss.empty == pytest.approx(-X[:, 3].var())


def test_feature_selection_trains_on_the_columns_of_a_coalition():
    for rows, test, groups in (
        (X[TRAIN], X[TEST], {"petal": [2, 3], "sepal length": [0]}),
        (FRAME[TRAIN], FRAME[TEST], {"petal": list(FRAME)[2:], "sepal length": list(FRAME)[:1]}),
    ):
        game = games.FeatureSelection(GaussianNB(), rows, y[TRAIN], test, y[TEST])
        for mask, value in zip(masks_of(4)[1:], game(masks_of(4))[1:], strict=True):
            own = GaussianNB().fit(X[TRAIN][:, mask], y[TRAIN]).predict(X[TEST][:, mask])
            assert value == accuracy_score(y[TEST], own)
        grouped = games.FeatureSelection(GaussianNB(), rows, y[TRAIN], test, y[TEST], groups=groups)
        assert grouped.player_names == ["petal", "sepal length"]
        assert grouped([[True, False], [True, True]]).tolist() == game([[0, 0, 1, 1], [1, 0, 1, 1]]).tolist()


def test_ensemble_selection_averages_the_members():
    forest = RandomForestClassifier(5, max_depth=2, random_state=0).fit(FRAME[TRAIN], NAMES[TRAIN])
    trees = [tree.predict_proba(X[TEST]) for tree in forest.estimators_]
    game = games.EnsembleSelection(forest, FRAME[TEST], NAMES[TEST], scoring=["accuracy", "neg_log_loss"])
    for mask, values in zip(masks_of(5)[1:], game(masks_of(5))[1:], strict=True):
        mean = np.mean([tree for tree, there in zip(trees, mask, strict=True) if there], axis=0)
        assert values == pytest.approx([np.mean(mean.argmax(axis=1) == y[TEST]), -log_loss(y[TEST], mean)])
    assert game(masks_of(5))[-1, 0] == forest.score(FRAME[TEST], NAMES[TEST])
    zero = games.EnsembleSelection(forest, FRAME[TEST], NAMES[TEST], scoring=["accuracy", "neg_log_loss"], empty=0.0)
    assert (zero(masks_of(5))[0] == 0).all()
    assert game(masks_of(5))[0] == pytest.approx([SHARES[0], SHARES @ np.log(SHARES)])
    named = {"bayes": GaussianNB().fit(X, NAMES), "tree": DecisionTreeClassifier(max_depth=1).fit(X, NAMES)}
    game = games.EnsembleSelection(named, X, NAMES)
    assert game.player_names == ["bayes", "tree"] and game([[0, 1]])[0] == named["tree"].score(X, NAMES)
    for models in (
        VotingClassifier([*named.items()], voting="soft").fit(X, NAMES),
        BaggingClassifier(GaussianNB(), 4, random_state=0).fit(X, NAMES),
    ):
        game = games.EnsembleSelection(models, X, NAMES)
        assert game(np.ones((1, game.n_players)))[0] == models.score(X, NAMES)
    T, t = load_diabetes(return_X_y=True)
    trees = RandomForestRegressor(4, random_state=0, max_depth=3).fit(T, t)
    game = games.EnsembleSelection(trees, T, t)
    assert game([[0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]]) == pytest.approx(
        [0, trees.score(T, t), r2_score(t, trees.estimators_[0].predict(T))]
    )


def test_columns_are_found_by_name_and_by_position():
    """Also by numeric and repeated names; predictions (n, 1) equal those of shape (n,)."""
    turned = FRAME.set_axis([3, 2, 1, 0], axis=1)
    groups = {"first": [3], "others": [2, 1, 0]}
    game = games.FeatureSelection(GaussianNB(), turned[TRAIN], y[TRAIN], turned[TEST], y[TEST], groups=groups)
    assert game([[1, 0]])[0] == GaussianNB().fit(X[TRAIN, :1], y[TRAIN]).score(X[TEST, :1], y[TEST])
    model = GaussianNB().fit(X, y)
    twice = FRAME.set_axis(["a", "a", "b", "c"], axis=1)
    grouped = {"first": [0], "second": [1], "others": ["b", "c"]}
    masks = masks_of(3)
    expected = games.GlobalImportance(model, X, y, background=X[::9], groups={"a": [0], "b": [1], "c": [2, 3]})(masks)
    plain = SimpleNamespace(predict_proba=lambda rows: model.predict_proba(rows.to_numpy()), classes_=model.classes_)
    found = games.GlobalImportance(plain, twice, y, background=twice[::9], groups=grouped)(masks)
    assert found == pytest.approx(expected)
    T, t = load_diabetes(return_X_y=True)
    members = [LinearRegression().fit(T, t[:, None]), Ridge().fit(T, t)]
    assert games.EnsembleSelection(members, T, t)(masks_of(2))[1:3] == pytest.approx([m.score(T, t) for m in members])


def mixed() -> pd.DataFrame:
    random = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "town": random.choice(["Oslo", "Rome", "Bern"], 60),
            "size": pd.array(random.integers(1, 9, 60), dtype="Int64"),
            "kind": pd.Categorical(random.choice(["a", "b"], 60)),
        },
        index=pd.date_range("2026-01-01", periods=60),
    )


def test_global_importance_is_the_fall_of_the_loss():
    frame = mixed()
    label = np.where((frame["town"] == "Rome").to_numpy() | (frame["size"] > 6).to_numpy(bool), "yes", "no")
    columns = ["town", "kind"]
    model = make_pipeline(
        make_column_transformer((OneHotEncoder(), columns), remainder="passthrough"), LogisticRegression()
    )
    model.fit(frame, label)
    rows, background = frame[:7], frame[20:25]
    game = games.GlobalImportance(model, rows, label[:7], background=background)
    seen = []

    def loss(mask) -> float:
        total = []
        for place in range(7):
            filled = background.copy()
            for column in frame.columns[mask]:
                filled[column] = pd.array([rows[column].iloc[place]] * 5, dtype=frame[column].dtype)
            p = model.predict_proba(filled).mean(axis=0)
            seen.append(p)
            total.append(-np.log(p[list(model.classes_).index(label[place])]))
        return float(np.mean(total))

    masks = masks_of(3)
    assert game(masks) == pytest.approx([loss(masks[0]) - loss(mask) for mask in masks], abs=1e-12)
    masked = game.mask(np.array([True, False, True]))
    assert masked.dtypes.equals(frame.dtypes) and list(masked) == list(frame) and len(masked) == 35
    assert games.GlobalImportance(model, rows, label[:7], loss="zero_one", background=background)(masks)[0] == 0
    grouped = games.GlobalImportance(
        model, rows, label[:7], background=background, groups={"both": columns, "size": ["size"]}
    )
    assert grouped([[1, 0]])[0] == pytest.approx(game([[1, 0, 1]])[0])


def test_global_importance_does_not_broadcast_columns():
    """Targets or predictions (n, 1) are those of shape (n,), in any combination."""
    T, t = load_diabetes(return_X_y=True, as_frame=True)
    values = [
        games.GlobalImportance(LinearRegression().fit(T, target), T[:50], measured, background=T[50:60])(
            masks_of(10)[-3:]
        )
        for target in (t, t.to_frame())
        for measured in (t[:50], t[:50].to_frame())
    ]
    assert np.ptp(values, axis=0) == pytest.approx(0, abs=1e-6)
    plain = games.GlobalImportance(LinearRegression().fit(T, t), T[:50], t[:50], background=T[50:60].to_numpy())
    assert plain(masks_of(10)[-3:]) == pytest.approx(values[0])


class Answers:
    """A model of a function."""

    def __init__(self, predict):
        self.predict = predict


def test_masked_rows_have_the_types_of_the_table():
    """Also a cell that the other table's type cannot hold: 0.5 of an array does not become 0 beside whole numbers."""
    rows = pd.DataFrame({"a": [0.5, 1.5, 2.5], "i": [1, 2, 3]})
    background, targets = rows.to_numpy() + 0.5, [1.0, 0.0, 2.0]
    product = Answers(lambda table: np.asarray(table)[:, 0] * np.asarray(table)[:, 1])
    expected = games.GlobalImportance(product, rows.to_numpy(), targets, background=background)(masks_of(2))
    found = games.GlobalImportance(product, rows, targets, background=background)(masks_of(2))
    np.testing.assert_allclose(found, expected, atol=1e-12)
    game = games.GlobalImportance(product, rows, targets, background=rows.astype({"i": float}))
    assert all(game.mask(np.array(mask, bool)).dtypes.equals(rows.dtypes) for mask in masks_of(2))


def test_a_model_whose_answers_change_among_masked_rows_is_refused():
    """It reads the codes of categories whose order differs between tables, or the other rows of a batch."""
    frame = pd.DataFrame({"a": np.arange(9.0), "k": pd.Categorical(list("xyz") * 3)})
    other = frame.assign(k=frame["k"].cat.set_categories(["z", "y", "x"]))
    coded, centred = (
        Answers(lambda table: table["a"] * table["k"].cat.codes),
        Answers(lambda table: table["a"] - table["a"].mean()),
    )
    named = Answers(lambda table: table["a"] * (table["k"] == "x"))
    with pytest.raises(ShapelineError, match=r"for row 2 .* of background and .* for it among masked rows; give X and"):
        games.GlobalImportance(coded, frame, frame["a"], background=other)
    with pytest.raises(
        ShapelineError, match=r"for row 0 .* of X and .* for it among masked rows; .* answers row by row"
    ):
        games.GlobalImportance(centred, frame, frame["a"], background=frame)
    expected = games.GlobalImportance(named, frame, frame["a"], background=frame)(masks_of(2))
    found = games.GlobalImportance(named, frame, frame["a"], background=other)(masks_of(2))
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_the_default_loss_of_a_booster_is_that_of_its_classes():
    """LightGBM's own model has no predict_proba: its probabilities were numbers, with a squared loss."""
    lightgbm = pytest.importorskip("lightgbm")
    settings = {"objective": "binary", "verbose": -1, "min_data_in_leaf": 5, "num_threads": 1}
    model = lightgbm.train(settings, lightgbm.Dataset(X, y > 0), 5)
    p = model.predict(X[40:60])
    game = games.GlobalImportance(model, X[40:60], y[40:60] > 0, background=X[:1])
    none, loss = (-np.log(np.where(y[40:60] > 0, q, 1 - q)).mean() for q in (model.predict(X[:1]), p))
    assert game([[True] * 4])[0] == pytest.approx(none - loss)


@pytest.mark.parametrize(("fitted", "given"), [(bool, int), (int, bool), (bool, float), (float, bool), (int, float)])
def test_labels_of_two_classes_of_another_type(fitted, given):
    model = BAYES.fit(X, (y > 0).astype(fitted))
    found, expected = (
        games.GlobalImportance(model, X, (y > 0).astype(kind), background=X[::50])(masks_of(4))
        for kind in (given, fitted)
    )
    np.testing.assert_array_equal(found, expected)


def test_global_importance_of_a_regression():
    T, t = load_diabetes(return_X_y=True)
    model = LinearRegression().fit(T, t)
    game = games.GlobalImportance(model, T[:50], t[:50], background=T[50:80])
    rows = np.where([True, False] * 5, T[:50], T[50:80].mean(axis=0))  # of a linear model the mean prediction
    none = np.mean((t[:50] - model.predict(T[50:80]).mean()) ** 2)
    assert game([[True, False] * 5])[0] == pytest.approx(none - np.mean((t[:50] - model.predict(rows)) ** 2))
    found = shapeline.shapley_values(game, evaluations=80)
    assert found.scores.sum() == pytest.approx(none - np.mean((t[:50] - model.predict(T[:50])) ** 2))
    assert games.GlobalImportance(model, T, t).background.shape == (64, 10)


def test_uncertainty_is_an_entropy_of_masked_rows():
    forest = RandomForestClassifier(7, random_state=0, max_depth=3).fit(X, y)
    kinds = ["total", "aleatoric", "epistemic"]
    game = games.UncertaintyExplanation(forest, X[70], X[::30], kind=kinds)
    for mask, values in zip(masks_of(4), game(masks_of(4)), strict=True):
        rows = np.where(mask, X[70], X[::30])
        trees = np.array([tree.predict_proba(rows) for tree in forest.estimators_])

        def entropy(p):
            return -np.sum(p * np.log(np.where(p > 0, p, 1)), axis=-1)

        total, aleatoric = entropy(trees.mean(axis=0)).mean(), entropy(trees).mean()
        assert values == pytest.approx([total, aleatoric, total - aleatoric], abs=1e-9)
    series = games.UncertaintyExplanation(forest, pd.Series(X[70]), X[::30], kind=kinds)
    assert series(masks_of(4)) == pytest.approx(game(masks_of(4)))
    frame = RandomForestClassifier(7, random_state=0, max_depth=3).fit(FRAME, y)
    for row in (FRAME[70:71], FRAME.iloc[70]):
        assert games.UncertaintyExplanation(frame, row, FRAME[::30], kind=kinds)(masks_of(4)) == pytest.approx(
            game(masks_of(4))
        )
    assert games.UncertaintyExplanation(GaussianNB().fit(X, y), X[:1], X[::30])(masks_of(4)).shape == (16,)


def test_a_stored_game_is_shapiq_s(tmp_path):
    """By the keys of its file, and by the package where it is installed."""
    random = np.random.default_rng(0)
    masks = masks_of(5)[random.permutation(32)]
    values = random.normal(size=32)
    file = tmp_path / "game.npz"
    np.savez_compressed(file, values=values, coalitions=masks, n_players=5, normalization_value=values[0])
    game = games.StoredGame.read(file)
    assert game.n_players == 5 and (game(masks[::-1]) == values[::-1]).all()
    game.write(tmp_path / "again.npz")
    with np.load(tmp_path / "again.npz") as again:
        assert set(again.files) == {"values", "coalitions", "n_players", "normalization_value"}
        assert (again["values"] == values).all() and (again["coalitions"] == masks).all() and again["n_players"] == 5
        assert again["normalization_value"] == values[~masks.any(axis=1)][0]
    whole = games.StoredGame.of(lambda masks: masks @ [1.0, 2.0, 3.0], 3)
    assert shapeline.shapley_values(whole).scores == pytest.approx(np.array([[1, 2, 3]]))
    many = games.StoredGame(masks_of(70 // 10), np.arange(128))
    assert (many(masks_of(7)[::-1]) == np.arange(128)[::-1]).all()
    with pytest.raises(ShapelineError, match=r"the coalition of players \[0, 1\] is not stored"):
        games.StoredGame(masks_of(2)[:3], [0, 1, 2])(masks_of(2))
    with pytest.raises(ShapelineError, match=r"not stored; give its value too$"):  # one remedy
        shapeline.shapley_values(games.StoredGame(masks_of(2)[:3], [0, 1, 2]))
    np.save(tmp_path / "one.npy", values)
    whole, cut = file.read_bytes(), tmp_path / "cut"
    for content in (b'{"data_type": "game"}', whole[:200], whole[:-300], (tmp_path / "one.npy").read_bytes()):
        cut.write_bytes(content)
        with pytest.raises(
            ShapelineError, match=r"cut is not a game of shapiq .* give a file of shapiq's Game.save or"
        ):
            games.StoredGame.read(cut)
    keys = [",".join(map(str, np.flatnonzero(mask))) or "Empty" for mask in masks]
    content = {
        "metadata": {"n_players": 5, "player_names": list("abcde")},
        "data": dict(zip(keys, values, strict=True)),
    }
    (tmp_path / "game.json").write_text(json.dumps(content))
    read = games.StoredGame.read(tmp_path / "game.json")
    assert (read(masks) == values).all() and read.player_names == list("abcde")
    for wrong in ("[1]", "{}", '{"metadata": {"n_players": 2}, "data": {"0,5": 1}}', '{"data'):
        (tmp_path / "wrong.json").write_text(wrong)
        with pytest.raises(ShapelineError, match=r"wrong.json is not a game of shapiq"):
            games.StoredGame.read(tmp_path / "wrong.json")
    np.savez(tmp_path / "odd.npz", values=values, coalitions=masks, n_players=6)
    with pytest.raises(ShapelineError, match=r"odd.npz has 6 players and coalitions of shape \(32, 5\)"):
        games.StoredGame.read(tmp_path / "odd.npz")
    named = games.StoredGame(masks, values, np.array(list("abcde")))
    assert shapeline.shapley_values(named).feature_names == tuple("abcde")


def test_shapiq_reads_and_writes_the_same_files(tmp_path):
    shapiq = pytest.importorskip("shapiq")
    table = np.random.default_rng(0).normal(size=16)
    ours = games.StoredGame(masks_of(4), table)
    ours.write(tmp_path / "ours.npz")
    theirs = shapiq.Game(n_players=4, normalize=False)
    theirs.load_values(tmp_path / "ours.npz", precomputed=True)
    assert theirs(masks_of(4)) == pytest.approx(table - table[0])
    theirs.save_values(tmp_path / "theirs.npz", as_npz=True)
    theirs.save(tmp_path / "theirs.json")
    for name in ("theirs.npz", "theirs.json"):
        assert games.StoredGame.read(tmp_path / name)(masks_of(4)) == pytest.approx(table)


def test_the_game_of_a_model_is_what_explain_plays():
    model = GaussianNB().fit(FRAME, NAMES)
    game = games.ModelGame(model, FRAME[60:61], background=FRAME[::10])
    found = shapeline.explain(model, FRAME[60:61], "shapley", background=FRAME[::10])
    same = shapeline.shapley_values(game)
    assert same.scores == pytest.approx(found.scores) and same.feature_names == found.feature_names
    each = games.ModelGame(model, FRAME[60:61], background=FRAME[::10], target="each")
    assert each.output_names == ["setosa", "versicolor", "virginica"]
    assert shapeline.shapley_values(each).scores.sum(axis=0) == pytest.approx(0, abs=1e-12)

    def opinion(texts):
        return 1 / (1 + np.exp([-text.split().count("good") - 0.0 for text in texts]))

    words = games.ModelGame(opinion, "good good film")
    assert words.player_names == ["good", "good (2)", "film"]
    assert shapeline.shapley_values(words).scores[0, 2] == pytest.approx(0)
    with pytest.raises(ShapelineError, match="ModelGame: x has 2 inputs; give one"):
        games.ModelGame(model, FRAME[:2], background=FRAME[::10])
    with pytest.raises(ShapelineError, match="ModelGame: 'targets' is not an argument"):
        games.ModelGame(model, FRAME[:1], targets="each")


def test_a_game_is_known_by_what_defines_it(tmp_path):
    """In another process too; another estimator or other data are another game, which a cache refuses."""
    code = (
        "from sklearn.datasets import load_iris; from sklearn.tree import DecisionTreeClassifier as T; "
        "from shapeline.games import DataValuation as D; X, y = load_iris(return_X_y=True, as_frame=True); "
        "print(D(T(random_state=0), X[:50], y[50:100], X, y, groups=['a', 'b'] * 25).identity)"
    )
    run = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(2)]
    assert run[0].stdout == run[1].stdout and re.fullmatch(r"DataValuation [0-9a-f]{16}\n", run[0].stdout)

    def made(rows=FRAME[TRAIN], estimator=None, **more):
        estimator = DecisionTreeClassifier(random_state=0) if estimator is None else estimator
        return games.DataValuation(estimator, rows, y[TRAIN], FRAME[TEST], y[TEST], groups=list("abcde") * 10, **more)

    def transformed(power):
        return make_pipeline(FunctionTransformer(lambda rows: rows**power), GaussianNB())

    def count(number):  # holds itself
        return count(number - 1) + 1 if number else 0

    assert made(scoring=lambda model, X, y: count(3)).identity
    others = [
        made(),
        made(FRAME[TRAIN] + 1),
        made(estimator=DecisionTreeClassifier(random_state=1)),
        made(empty=0.5),
        made(untrainable="empty"),
        made(scoring=lambda model, X, y: model.score(X, y), empty=0.5),
        made(scoring=lambda model, X, y: 1 - model.score(X, y), empty=0.5),
        made(estimator=transformed(1)),
        made(estimator=transformed(2)),
        made(csr_matrix(X[TRAIN]), GaussianNB()),
        made(csr_matrix(X[TRAIN] + (X[TRAIN] > 0)), GaussianNB()),
        made([np.pad(row, 1000) for row in X[TRAIN]]),
        made([np.pad(-row, 1000) for row in X[TRAIN]]),
    ]
    assert len({game.identity for game in others}) == len(others) and made().identity == others[0].identity
    assert made(estimator=transformed(2)).identity == others[8].identity
    shapeline.shapley_values(made(), cache=tmp_path / "values.parquet")
    with pytest.raises(ShapelineError, match="holds the values of another game"):
        shapeline.shapley_values(others[1], cache=tmp_path / "values.parquet")


@pytest.mark.parametrize("name", ["DataValuation", "FeatureSelection", "EnsembleSelection", "GlobalImportance"])
def test_games_go_to_other_processes(name):
    model = GaussianNB().fit(X, y)
    game = {
        "DataValuation": lambda: games.DataValuation(GaussianNB(), X, y, X, y, groups=y),
        "FeatureSelection": lambda: games.FeatureSelection(GaussianNB(), FRAME, y, FRAME, y),
        "EnsembleSelection": lambda: games.EnsembleSelection([model, model], X, y),
        "GlobalImportance": lambda: games.GlobalImportance(model, FRAME, y, background=FRAME[:9]),
    }[name]()
    masks = masks_of(game.n_players)
    assert (pickle.loads(pickle.dumps(game))(masks) == game(masks)).all()


BAYES = GaussianNB()
ONE = masks_of(2)


class Unsure(GaussianNB):
    """A classifier whose probabilities are missing."""

    def predict_proba(self, X):
        return np.full((len(X), 3), np.nan)


class Outside:
    """A model that scikit-learn does not know, with the probabilities of a model that it knows."""

    def __init__(self):
        self.predict, self.predict_proba = BAYES.fit(X, y).predict, BAYES.predict_proba


def test_models_that_scikit_learn_does_not_know_are_taken():
    outside = Outside()
    outside.classes_ = np.arange(3)
    values = [games.EnsembleSelection([model, model], X, y)(ONE) for model in (outside, BAYES)]
    np.testing.assert_array_equal(*values)
    values = [games.GlobalImportance(model, X, y, background=X[::50])(masks_of(4)) for model in (outside, BAYES)]
    np.testing.assert_array_equal(*values)


def test_a_pipeline_of_columns_is_valued():
    """The parameters of its encoder name a type."""
    estimator = make_pipeline(
        make_column_transformer((OneHotEncoder(handle_unknown="ignore"), [0]), remainder="passthrough"), GaussianNB()
    )
    estimator.set_params(columntransformer__onehotencoder__sparse_output=False)
    game, other = (games.DataValuation(estimator, X, y, X, y, groups=y % parts) for parts in (2, 3))
    full = clone(estimator).fit(X, y).score(X, y)
    assert game([[1, 1]])[0] == full == other([[1, 1, 1]])[0]
    assert game.identity == games.DataValuation(estimator, X, y, X, y, groups=y % 2).identity != other.identity


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: games.DataValuation(3, X, y, X, y), "estimator is an int; give one of scikit-learn"),
        (lambda: games.DataValuation(BAYES, X, y[:9], X, y), "X has 150 rows and y 9"),
        (lambda: games.DataValuation(GaussianNB, X, y, X, y), "estimator is an ABCMeta; give one of scikit-learn"),
        (
            lambda: games.DataValuation(BAYES, X, y, X, y, scoring=lambda *_: 1 / 0),
            "ZeroDivisionError: division by zero;",
        ),
        (
            lambda: games.DataValuation(BAYES, X, y, X, y, scoring=lambda *_: None),
            "give a scorer that takes such targets",
        ),
        (lambda: games.DataValuation(BAYES, X, y, X, y, scoring=5), "scoring: there is no '5'"),
        (lambda: games.DataValuation(BAYES, X, y, X, y, empty="zero"), "or the number empty"),
        (lambda: games.UncertaintyExplanation(BAYES.fit(X, y), X[0], X, kind=[]), "kind: there is no ''"),
        (lambda: games.UncertaintyExplanation(BAYES.fit(X, y), X[0], X, kind=None), "kind: there is no 'None'"),
        (lambda: games.DataValuation(BAYES, X, y, X[:0], y[:0]), "X_test has 0 rows and y_test 0"),
        (lambda: games.DataValuation(BAYES, X, y, X, y, groups=[1]), "groups has 1 label for 150 examples"),
        (lambda: games.DataValuation(BAYES, X, y, X, y, scoring="accuraci"), "Did you mean 'accuracy'?"),
        (lambda: games.DataValuation(BAYES, X, y, X, y, untrainable="no"), "give 'raise' or 'empty'"),
        (lambda: games.DataValuation(BAYES, X, y, X, y, groups=[1, "1", 2] * 50), "two groups have the same text"),
        (
            lambda: games.DataValuation(BAYES, X, y, X, y, groups=[1, np.nan] * 75),
            "label of example 1 (from 0) is missing",
        ),
        (lambda: games.DataValuation(BAYES, X, y, X, y, scoring=["r2", "accuracy"], empty=[0, 0, 0]), "for 2 scores"),
        (lambda: games.FeatureSelection(BAYES, FRAME, y, FRAME.iloc[:, ::-1], y), "X_test has other columns than X"),
        (lambda: games.FeatureSelection(BAYES, X, y, X[:, :3], y), "X_test has other columns than X"),
        (
            lambda: games.GlobalImportance(BAYES.fit(X, y), FRAME, y, background=FRAME.iloc[:, ::-1]),
            "background has other",
        ),
        (
            lambda: games.EnsembleSelection(
                VotingClassifier([("a", BAYES), ("b", BAYES)], voting="soft", weights=[1, 2]).fit(X, y), X, y
            ),
            "soft voting ensemble without weights",
        ),
        (
            lambda: games.FeatureSelection(BAYES, FRAME, LABELS[::-1], FRAME, y),
            "the index of y is that of X in another order",
        ),
        (
            lambda: games.DataValuation(BAYES, FRAME, y, FRAME, LABELS[::-1]),
            "give y_test in the order of X_test, or y_test.to",
        ),
        (
            lambda: games.DataValuation(BAYES, FRAME, y, FRAME, y, groups=LABELS[::-1]),
            "the index of groups is that of X in",
        ),
        (lambda: games.DataValuation(BAYES, X, y, X, y, scoring=lambda y, p: 1.0), "as make_scorer(metric)"),
        (lambda: games.FeatureSelection(BAYES, y, y, y, y), "X is an ndarray; give a data frame or an array"),
        (
            lambda: games.FeatureSelection(NAMED, FRAME, y, FRAME, y)([[False, True, True, True]]),
            "give an estimator that takes any of the columns",
        ),
        (lambda: games.FeatureSelection(BAYES, X, y, X, y, groups={"a": [7]}), "there is no column 7"),
        (
            lambda: games.FeatureSelection(BAYES, X, y, X, y, groups=["a", "b"]),
            "groups is not a mapping of lists; give {",
        ),
        (lambda: games.FeatureSelection(BAYES, X, y, X, y, groups={"a": 0}), "groups is not a mapping of lists"),
        (lambda: games.FeatureSelection(BAYES, X, y, X, y, groups={"a": [0], "b": [0]}), "is in two groups"),
        (lambda: games.EnsembleSelection(3, X, y), "models is an int; give a list of fitted models"),
        (lambda: games.EnsembleSelection([len], X, y), "has a builtin_function_or_method in it; give a list of fitted"),
        (lambda: games.EnsembleSelection([BAYES.fit(X, y)], X, y.astype(str)), "no label of y is a class of the"),
        (lambda: games.GlobalImportance(BAYES.fit(X, y), X, np.eye(3)[y]), "y has shape (150, 3); give one label per"),
        (lambda: games.UncertaintyExplanation(BAYES.fit(X, y), X[0], X, kind="epistemic"), "give an ensemble"),
        (lambda: games.DataValuation(Ridge(), X, y, X, np.where(y, y, np.nan)), "y_test has no value in row 0"),
        (lambda: games.EnsembleSelection(AdaBoostClassifier().fit(X, y), X, y), "does not average its models"),
        (lambda: games.EnsembleSelection([LinearSVC().fit(X, y)], X, y), "LinearSVC gives no probabilities"),
        (
            lambda: games.EnsembleSelection([LinearRegression().fit(X, y), BAYES.fit(X, y)], X, y),
            "give models of one task",
        ),
        (
            lambda: games.EnsembleSelection([GaussianNB().fit(X, y)], X, y, scoring="neg_log_loss", empty=[1, 2]),
            "empty is [1, 2] for 1 scores",
        ),
        (
            lambda: games.EnsembleSelection([GaussianNB().fit(X, y)], X, y, scoring="roc_auc"),
            "give a scorer that takes such targets",
        ),
        (lambda: games.GlobalImportance(BAYES.fit(X, y), X, y, loss="squared"), "predicts shape (150, 3)"),
        (lambda: games.GlobalImportance(3, X, y), "give fitted models"),
        (lambda: games.GlobalImportance(BAYES.fit(X, y), X, y, loss="logg"), "Did you mean 'log'?"),
        (lambda: games.GlobalImportance(BAYES.fit(X, y), X, y + 1), "y has the label 3, which is no class"),
        (lambda: games.GlobalImportance(BAYES.fit(X, y), X, y, background=X[:, :2]), "give rows with 4 columns"),
        (lambda: games.UncertaintyExplanation(BAYES.fit(X, y), X[:2], X), "x has 2 rows; give one"),
        (lambda: games.UncertaintyExplanation(BAYES.fit(FRAME, y), X[0], FRAME.iloc[:, ::-1]), "names should match"),
        (lambda: games.UncertaintyExplanation(BAYES.fit(X, y), X[0], X, kind="all"), "kind: there is no 'all'"),
        (lambda: games.GlobalImportance(LinearSVC().fit(X, y), X, y), "LinearSVC gives no probabilities; wrap it"),
        (lambda: games.GlobalImportance(Ridge(), X, y), "not fitted"),
        (lambda: games.GlobalImportance(Ridge().fit(X, y), X, y, loss="log"), "loss: the model gives no probabilities"),
        (lambda: games.GlobalImportance(Ridge().fit(X, y), X, None), "y is a NoneType; give an array"),
        (lambda: games.EnsembleSelection([Ridge()], X, y), "give fitted models, and rows that they take"),
        (lambda: games.EnsembleSelection([Outside()], X, y), "Outside has probabilities and no classes_"),
        (lambda: games.DataValuation(BAYES, X, y[:9], X, y, groups=[1] * 150), "X has 150 rows and y 9"),
        (lambda: games.StoredGame(ONE, [1, 2]), "returned int64 of shape (2,) for masks of 4 coalitions"),
        (lambda: games.StoredGame([[0], [0, 1]], [1, 2]), "give (K, n_players) bool, True where a player takes part"),
        (
            lambda: games.StoredGame([[0, 1], [1, 2]], [1, 2]),
            "masks are object of shape (2, 2); give (K, n_players) bool",
        ),
        (lambda: games.StoredGame(np.eye(2), [1j, 2]), "returned complex128 of shape (2,) for masks of 2 coalitions"),
        (
            lambda: games.StoredGame(pd.DataFrame(np.eye(2)), pd.Series([1, 2])[::-1]),
            "the index of values is that of masks",
        ),
        (lambda: games.StoredGame.read(None), "None is not a game of shapiq"),
        (
            lambda: games.DataValuation(LinearSVC(), X, y, X, y, scoring="neg_log_loss")([[True] * 150]),
            "predict_proba.; give an estimator and a scorer that take these data",
        ),
        (
            lambda: games.DataValuation(BAYES, X, y, X, y, scoring=lambda *_: np.nan),
            "scorer '<lambda>' gives nan; give",
        ),
        (
            lambda: games.EnsembleSelection([BAYES.fit(X, y)], X[:99], y[:99], scoring="neg_log_loss")([[True]]),
            "EnsembleSelection: ValueError: y_true and y_prob contain",
        ),
        (lambda: games.EnsembleSelection([Unsure().fit(X, y)], X, y), "Unsure predicts nan; give fitted models"),
        (lambda: games.StoredGame(np.ones((2, 2), bool), [1, 2]), "a coalition occurs twice"),
    ],
)
def test_mistakes_are_one_line(make, words):
    with pytest.raises(ShapelineError, match=re.escape(words)) as raised:
        make()
    assert "\n" not in str(raised.value)


def test_calibrated_members_are_taken():
    models = [CalibratedClassifierCV(LinearSVC(random_state=0)).fit(X, y), BAYES.fit(X, y)]
    assert games.EnsembleSelection(models, X, y)([[0, 1]])[0] == BAYES.score(X, y)


def blocks_of_the_page(root) -> list[tuple[str, str]]:
    """Return each code block of docs/games.md and its printed output."""
    page = (root / "docs/games.md").read_text()
    return re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.S)


def test_the_page_prints_what_it_shows(root, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found = blocks_of_the_page(root)
    assert len(found) == (root / "docs/games.md").read_text().count("```python")
    for code, printed in found:
        exec(compile(code, "games.md", "exec"), {"__name__": "page"})
        assert capsys.readouterr().out == printed


def test_the_page_shows_the_example(root):
    example = (root / "examples/value_datasets.py").read_text().partition('"""\n\n')[2]
    shown = next(code for code, _ in blocks_of_the_page(root) if "owners" in code)
    assert shown.splitlines()[:-1] == example.splitlines()[:-1]
    code = [line for line in example.splitlines() if line and not line.startswith(("from", "import"))]
    assert len(example.replace("\n\n", "\n").strip().splitlines()) <= 15 and len(code) < 10


def test_a_json_file_without_coalitions_is_one_line(tmp_path):
    (tmp_path / "game.json").write_text('{"metadata": {"n_players": 2}, "data": [1, 2]}')
    with pytest.raises(ShapelineError, match="is not a game of shapiq"):
        games.StoredGame.read(tmp_path / "game.json")
