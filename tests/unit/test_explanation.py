"""The Python interface: arguments against brute force over data frames and texts, and the Explanation object."""

import contextlib
import dataclasses
import io
import json
import re

import numpy as np
import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter
from matplotlib.dates import date2num
from matplotlib.figure import Figure
from matplotlib.text import Text
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import shapeline
from shapeline import scores
from shapeline.api import formatting
from shapeline.errors import ShapelineError
from shapeline.games.features import Features
from shapeline.statistics.bounds import intervals
from tests.unit import games

RNG = np.random.default_rng(0)
N = 240
FRAME = pd.DataFrame(
    {
        "sex": RNG.choice(["female", "male"], N),
        "age": np.where(RNG.random(N) < 0.2, np.nan, RNG.integers(1, 80, N)),
        "deck": pd.Categorical(RNG.choice(["A", "B", "C"], N), categories=["C", "B", "A"]),
        "alone": RNG.random(N) < 0.5,
        "cabin": pd.array(np.where(RNG.random(N) < 0.5, None, RNG.choice(["a1", "b2"], N)), dtype="str"),
    },
    index=[f"passenger {place}" for place in range(N)],
)
WORDS = {"great": 2.0, "bad": -1.5, "not": -1.0}


@pytest.fixture(scope="module")
def pipeline():
    said = (FRAME["sex"] == "female") * 2.0 + (FRAME["deck"] == "A") - FRAME["alone"] + RNG.normal(size=N)
    steps = make_column_transformer(
        (SimpleImputer(), make_column_selector(dtype_include="number")),
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude="number")),
    )
    return make_pipeline(steps, LogisticRegression()).fit(FRAME, np.where(said > 0.8, "survived", "died"))


@pytest.fixture(scope="module")
def explained(pipeline):
    return shapeline.explain(pipeline, FRAME[:6], background=FRAME[:30], method="kernel_shap", budget=6)


def opinion(texts):
    said = [sum(WORDS.get(word.strip(",.").lower(), 0.0) for word in text.split()) for text in texts]
    return 1 / (1 + np.exp(-np.array(said)))


# --------------------------------------------------------------------------------------------------------- inputs


def test_a_frame_with_texts_categories_and_missing_cells_is_explained_exactly(pipeline):
    """The value of a coalition: the mean probability of the background's rows with the row's own cells put in."""
    background = FRAME[:30]
    found = shapeline.explain(pipeline, FRAME[40:42], "shapley", background=background, target="survived")
    for place, (_, row) in enumerate(FRAME[40:42].iterrows()):

        def value(kept, row=row):
            rows = background.copy()
            for column in (list(FRAME)[i] for i in kept):
                rows[column] = pd.Series([row[column]] * len(rows), rows.index, dtype=FRAME[column].dtype)
            return pipeline.predict_proba(rows)[:, 1].mean()

        np.testing.assert_allclose(found.scores[place], games.shapley(games.of_sets(value, 5)), atol=1e-6)
    assert found.feature_names == tuple(FRAME) and found.target_names == ["survived"] * 2
    assert found.data.equals(FRAME[40:42]) and found.cost["rows"] == 30


def test_one_row_is_what_it_is_among_others(pipeline, explained):
    """For any codes of categories: a sampled method is seeded by the content of a row."""
    for one in (FRAME[3:4], FRAME.iloc[3]):
        alone = shapeline.explain(pipeline, one, "kernel_shap", background=FRAME[:30], budget=6)
        np.testing.assert_allclose(alone.scores[0], explained.scores[3], atol=1e-9)


def test_a_large_background_is_sampled_to_a_hundred_rows_and_reported(pipeline):
    settings = {"method": "occlusion", "background": FRAME}
    found, again = (shapeline.explain(pipeline, FRAME[:2], **settings, random_state=seed) for seed in (1, 1))
    other = shapeline.explain(pipeline, FRAME[:2], **settings, seed=2)
    np.testing.assert_array_equal(found.scores, again.scores)
    assert np.abs(found.scores - other.scores).max() > 1e-4
    assert "100 of 240 background rows (sampled with seed 1)" in repr(found)
    assert "evaluations per instance, each averaged over 100 background rows; " in repr(found)


def test_columns_that_the_model_does_not_take_are_omitted(pipeline):
    more = FRAME.assign(survived="yes", when=pd.Timestamp(0))[["survived", *reversed(list(FRAME)), "when"]]
    found = shapeline.explain(pipeline, more[:2], "occlusion", background=more[:30])
    same = shapeline.explain(pipeline, FRAME[:2], "occlusion", background=FRAME[:30])
    np.testing.assert_array_equal(found.scores, same.scores)
    assert found.feature_names == tuple(FRAME)


def test_a_model_of_arrays_receives_arrays_and_one_of_frames_frames():
    seen = []
    table = pd.DataFrame(RNG.random((6, 3)), columns=["a", "b", "c"])

    def rule(rows):
        seen.append(rows)
        return 1 / (1 + np.exp(-rows["a"].to_numpy()))

    shapeline.explain(rule, table, "occlusion")
    assert all(isinstance(rows, pd.DataFrame) and list(rows) == ["a", "b", "c"] for rows in seen)
    arrays = LogisticRegression().fit(table.to_numpy(), [0, 1] * 3)
    found = shapeline.explain(arrays, table, "occlusion")
    assert found.feature_names == ("a", "b", "c")
    objects = np.array([["x", 1.0], ["y", 2.0], ["x", 3.0]], dtype=object)
    words = shapeline.explain(
        lambda rows: 0.2 + 0.5 * (rows[:, 0] == "x"), objects, "occlusion", background=objects[1:2]
    )
    np.testing.assert_allclose(words.scores, [[0.5, 0], [0, 0], [0.5, 0]], atol=1e-7)


def test_large_numbers_are_written_in_full():
    rows = np.array([[20200131.0, 2.0], [0.5, 0.0], [0.0, 1.0]])
    text = repr(
        shapeline.explain(lambda rows: rows @ [0.01, 0.5] + 1e5, rows, background=rows[1:], value="prediction")[0]
    )
    assert "prediction 302,002, base value 100,000" in text and "20200131  " in text
    assert "+202,001" in text and "+0.75" in text


def test_texts_are_words_and_an_absent_one_is_deleted():
    texts = ["A great film.", "not bad, not   great"]
    found = shapeline.explain(opinion, texts, "shapley", target=1)
    for place, text in enumerate(texts):
        pieces = text.split()
        said = games.of_sets(lambda kept, own=pieces: opinion([" ".join(own[i] for i in kept)])[0], len(pieces))
        expected = games.shapley(said)
        np.testing.assert_allclose(found.of(place)[1], expected, atol=1e-6)
        assert found.of(place)[0] == tuple(pieces)
    alone = shapeline.explain(opinion, texts[1], "kernel_shap", target=1)
    together = shapeline.explain(opinion, texts, "kernel_shap", target=1)
    np.testing.assert_allclose(alone.of(0)[1], together.of(1)[1], atol=1e-7)


def test_a_mask_word_replaces_a_masked_word():
    seen = []

    def model(texts):
        seen.extend(texts)
        return opinion(texts)

    shapeline.explain(model, "great  film", "shapley", reference="bad", target=1)
    assert set(seen) == {"great  film", "bad film", "great  bad", "bad bad"}


def test_a_pipeline_of_texts_takes_a_series():
    model = make_pipeline(CountVectorizer(), LogisticRegression()).fit(
        ["good", "bad", "so good"], ["pos", "neg", "pos"]
    )
    found = shapeline.explain(model, pd.Series(["a good one", "bad"], index=["x", "y"]), "occlusion")
    assert found.target_names == ["pos", "neg"] and found.of(0)[0] == ("a", "good", "one")
    assert found.to_frame()["instance"].tolist() == ["x"] * 3 + ["y"]


def test_features_and_reference_by_kind():
    def model(rows):
        return 1 / (1 + np.exp(-rows.reshape(len(rows), -1).mean(1)))

    def settled(inputs, **more):
        found = shapeline.explain(model, inputs, "occlusion", **more)
        return found.about.features[0], found.about.reference

    features, told = settled(RNG.random((3, 1, 32, 32)))
    assert features.kind == "pixel" and features.d == 1024 and told == "the mean of the inputs per channel"
    features, told = settled(RNG.random((1, 224, 200)))
    assert features.kind == "patch" and features.shape == (16, 15) and told == "the blurred image"
    features, told = settled(RNG.random((2, 4)), background=RNG.random((5, 4)))
    assert features.kind == "column" and told == "5 background rows"
    assert settled(RNG.random(4), reference=np.zeros(4))[1] == "the given reference, 1 row"
    frame = pd.DataFrame(RNG.random((3, 3)), columns=["kind", "b", "c"])
    grouped = {"kind": ["kind", "b"], "c": ["c"]}  # a group of that name, and no kind of features
    groups = shapeline.explain(lambda rows: rows.mean(axis=1), frame, "occlusion", features=grouped)
    assert groups.feature_names == ("kind", "c")


def test_the_mean_of_dates_is_the_middle_one():
    frame = pd.DataFrame({"day": pd.date_range("2020-01-01", periods=5), "wage": range(5)})
    found = shapeline.explain(lambda rows: rows["day"].dt.day + 0.5, frame, "shapley", value="prediction")
    assert (found.value_empty == 3.5).all()


# -------------------------------------------------------------------------------------------------------- targets


def test_targets_by_name(pipeline):
    y = ["died", "survived", "died"]
    settings = {"inputs": FRAME[:3], "method": "occlusion", "background": FRAME[:30]}
    each = shapeline.explain(pipeline, **settings, target="each")
    assert each.target_names == ["died", "survived"] * 3 and each.about.instances[:3] == [
        *["passenger 0"] * 2,
        "passenger 1",
    ]
    np.testing.assert_allclose(each.scores[::2], -each.scores[1::2], atol=1e-6)  # of two classes
    for target, expected in (
        (y, y),
        ("true", y),
        ("died", ["died"] * 3),
        ({"survived"}, ["survived"] * 3),
        (np.array(y), y),
    ):
        found = shapeline.explain(pipeline, **settings, target=target, y=y)
        assert found.target_names == expected
        np.testing.assert_allclose(found.scores, each.scores[np.arange(3) * 2 + found.target], atol=1e-9)
    named = shapeline.explain(
        lambda rows: np.full(len(rows), 0.3), [[1.0], [2.0]], "occlusion", class_names=["no", "yes"]
    )
    assert named.target_names == ["no", "no"]


def test_the_samples_of_a_row_are_the_same_for_each_class(pipeline):
    each = shapeline.explain(pipeline, FRAME[:2], budget=4, background=FRAME[:9], target="each")
    np.testing.assert_allclose(each.scores[0], -each.scores[1], atol=1e-9)


@pytest.mark.parametrize("method", ["gp_shapley", "kernel_shap", "sample_shapley", "occlusion", "shapley"])
def test_classes_of_an_input_share_its_evaluations(method):
    """As many rows are evaluated for three classes as for one, and each class has the scores of a call of its own."""
    rows, asked = np.random.default_rng(0).normal(size=(8, 4)), []

    def model(rows):
        asked.append(len(rows))
        logits = np.exp(np.stack([rows[:, 0] * rows[:, 1], rows[:, 2], np.abs(rows[:, 3])], axis=1))
        return logits / logits.sum(1, keepdims=True)

    given = {"background": rows[:5], "class_names": list("abc")}
    ones = [shapeline.explain(model, rows[5:], method, **given, target=name) for name in "abc"]
    alone, before = sum(asked) / 3, len(asked)
    each = shapeline.explain(model, rows[5:], method, **given, target="each")
    assert sum(asked[before:]) == alone
    assert each.cost["evaluations"] == ones[0].cost["evaluations"]
    for number, one in enumerate(ones):
        np.testing.assert_allclose(each.scores[number::3], one.scores, atol=1e-9)


def test_an_error_about_a_class_names_the_input():
    def model(rows):
        return np.column_stack([1 - rows[:, 0] / 2, rows[:, 0] / 2])

    rows = np.array([[0.5, 0.1], [1.0, 0.2], [0.0, 0.3], [0.7, 0.4]])
    with pytest.raises(ShapelineError, match=r"instance 2, .*the probability is 0 or 1"):
        shapeline.explain(model, rows, "kernel_shap", background=[[1.0, 1.0]], target="each", value="log_odds")
    with pytest.raises(ShapelineError, match=r"instance 0, .*the probability is 0 or 1"):  # ∞ − ∞ is NaN
        shapeline.explain(model, rows, "kernel_shap", background=[[0.0, 1.0], [2.0, 1.0]], value="margin")


def test_a_method_that_evaluates_for_each_class_costs_their_sum():
    nn = pytest.importorskip("torch").nn
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))
    rows = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    one, each = (shapeline.explain(net, rows[:2], "saliency", target=target) for target in ("predicted", "each"))
    assert each.cost["evaluations"] == 3 * one.cost["evaluations"]
    path = shapeline.explain(net, rows[:2], "integrated_gradients", background=rows, steps=8)
    assert "cost      1 gradient per instance; " in repr(one) and "cost      60 gradients per instance; " in repr(path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"target": "survivd"}, "target 'survivd' is not a class. Did you mean 'survived'"),
        ({"target": "true"}, "target 'true' needs the true class of each input"),
        ({"class_names": ["one"]}, "class_names: 1 names, and the model gives 2 classes"),
        ({"background": FRAME[["sex", "age"]]}, "background: column 'deck' is missing; add it"),
        ({"inputs": FRAME.rename(columns={"sex": "Sex"})[:2]}, "column 'sex' is missing. Did you mean 'Sex'"),
        ({"inputs": FRAME[:0]}, "give one or more rows"),
        ({"inputs": FRAME[:1], "background": None}, "give background \\(rows of your data\\) or a reference"),
        ({"reference": "zero"}, "column 'sex' holds categories"),
        ({"random_state": 3, "seed": 4}, "seed and random_state are the same thing"),
        ({"seed": 0.5}, "seed is a float"),
        ({"feature_names": list("abcde")}, "feature_names: a data frame has its own"),
        ({"inputs": FRAME.assign(age=pd.Timestamp(0))[:2]}, "background: the column 'age' holds floating values"),
        ({"target": 0}, "write target='died'"),
        ({"target": {1}}, "write target='survived'"),
        ({"inputs": ["some text"]}, "background: texts have none; leave it out"),
        ({"inputs": ["a b", " "], "background": None}, "the text at position 1 has no words"),
        ({"inputs": ["a b"], "background": None, "reference": "mean"}, "give the word that replaces a masked one"),
        ({"inputs": [[1.0, 2.0], [3.0]], "background": None}, "inputs: .*give rows of one shape"),
    ],
)
def test_a_mistake_names_its_argument(pipeline, arguments, words):
    given = {"inputs": FRAME[:2], "background": FRAME[:9], "method": "occlusion", **arguments}
    with pytest.raises(ShapelineError, match=words) as failure:
        shapeline.explain(pipeline, **given)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize("method", [None, "predict"])
def test_an_array_meets_a_data_frame_with_columns_in_another_order(method):
    """Names decide where both sides have them; rows without names are refused where their order is unknown."""
    cells, weights = RNG.normal(size=(40, 3)), np.array([1.0, 10.0, 100.0])
    frame = pd.DataFrame(cells, columns=list("abc"))
    model = LinearRegression().fit(frame, cells @ weights)
    model, turned = model if method is None else getattr(model, method), frame[list("cab")]
    array, baseline, expected = cells[:2], cells[9:], (cells[:2] - cells[9:].mean(axis=0)) * weights
    for inputs in (array, array.astype(object), turned[:2]):
        found = shapeline.explain(model, inputs, "shapley", background=turned[9:])
        np.testing.assert_allclose(found.scores, expected, atol=1e-9)
    named = shapeline.explain(model, array, "shapley", reference=turned.iloc[9])
    np.testing.assert_allclose(named.scores, (array - cells[9]) * weights, atol=1e-9)
    for inputs, given, words in (
        (turned[:2], {"background": turned[9:].to_numpy()}, "background: it has no column names"),
        (turned[:2], {"reference": baseline[0]}, "reference: it has no column names"),
        (array, {"background": baseline, "feature_names": list("cab")}, "feature_names: the model has these columns"),
    ):
        with pytest.raises(ShapelineError, match=words):
            shapeline.explain(model, inputs, "shapley", **given)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (np.zeros((9, 8, 8)), r"neither so nor with an axis of channels, as inputs\[:, None\] or inputs\[None\]"),
        (np.zeros((9, 8, 8, 3)), r"channels last; give np.moveaxis\(inputs, -1, 1\)"),
        (np.zeros((8, 8, 3)), r"one image with channels last; give np.moveaxis\(inputs, -1, 0\)\[None\]"),
        ("some text", "is a network, which takes numbers"),
        (FRAME[:2], "column 'sex' holds no numbers"),
    ],
)
def test_unsupported_inputs_of_a_network_are_refused(inputs, words):
    import torch

    with pytest.raises(ShapelineError, match=words):
        shapeline.explain(torch.nn.Sequential(torch.nn.Conv2d(3, 2, 8), torch.nn.Flatten()), inputs, "occlusion")


# --------------------------------------------------------------------------------------------------- what it knows


def test_an_explanation_prints_on_one_screen(explained):
    for told in (repr(explained), repr(explained[3]), repr(explained.about)):
        assert len(told.splitlines()) <= 24 and max(map(len, told.splitlines())) <= 100
    assert "Explanation by kernel_shap of 6 instances, 5 columns" in repr(explained)
    assert "sex = " in repr(explained[3]) and "±" in repr(explained[3])
    page = explained._repr_html_()
    assert "<svg" in page and "kernel_shap" in page
    assert repr(explained[:0]).startswith("Explanation by kernel_shap of 0 instances")


def test_instances_and_features_are_picked(explained):
    np.testing.assert_array_equal(explained[3].scores, explained.scores[3:4])
    np.testing.assert_array_equal(explained[-1].scores, explained.scores[5:])
    assert explained[np.arange(6) > 3].about.instances == ["passenger 4", "passenger 5"]
    some = explained[1:3, ["age", "sex"]]
    np.testing.assert_array_equal(some.scores, explained.scores[1:3][:, [1, 0]])
    np.testing.assert_array_equal(some.standard_error, explained.standard_error[1:3][:, [1, 0]])
    assert list(some.data) == ["age", "sex"] and some.feature_names == ("age", "sex")
    assert explained[:, "age"].scores.shape == (6, 1) and explained[:, 1].feature_names == ("age",)
    assert len(list(explained)) == 6


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (lambda e: e[:, "agee"], "no feature 'agee'. Did you mean 'age'"),
        (lambda e: e["age"], "use e[:, 'age']"),
        *(
            (lambda e, key=key: e[key], f"explanation: instances: {key!r} selects none of 6; give positions below 6")
            for key in (9, -7, 1.5, None, [9], [[0, 1]])
        ),
        (lambda e: e[np.arange(9) > 3], "explanation: instances: a mask of 9 for 6; give a Boolean per instance"),
        (lambda e: e[:, [True]], "explanation: features: a mask of 1 for 5; give a Boolean per feature"),
        *(
            (lambda e, key=key: e[0, key], f"explanation: features: {key!r} selects none of 5; give positions below 5")
            for key in (9, 1.5, None, [1.5], [])
        ),
        (lambda e: e[1, 2, 3], "3 indices; give instances and features, as in e[2:5, 'age']; the class is chosen by"),
        (lambda e: e.save(None), "a NoneType is no path"),
        (lambda e: e.save("a\0.parquet"), r"the path 'a\x00.parquet' has the character U+0000; remove it"),
        (lambda e: e.save("e.csv"), "e.csv: save writes Parquet; end the name with .parquet"),
        (lambda e: e.to_html(5), "to_html: an int is no path"),
        (lambda e: shapeline.Explanation.load(None), "load: a NoneType is no path"),
        (lambda e: shapeline.Explanation.load(__file__), "no score file; name one of a run or of Explanation.save"),
        (lambda e: scores.read(5), "scores.read: an int is no path"),
        (lambda e: scores.read(__file__), "no score file; name one of a run or of Explanation.save"),
        (lambda e: e.save("e.pkl"), "e.pkl: save writes Parquet; end the name with .parquet"),
    ],
)
def test_mistakes_of_indices_and_paths_are_one_line(explained, mistake, words):
    with pytest.raises(ShapelineError, match=re.escape(words)) as raised:
        mistake(explained)
    assert "\n" not in str(raised.value)


def test_a_path_may_begin_at_home(explained, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    explained.save("~/kept/scores.parquet")
    assert (tmp_path / "kept" / "scores.parquet").is_file()
    np.testing.assert_allclose(shapeline.Explanation.load("~/kept/scores.parquet").scores, explained.scores, rtol=1e-6)


def test_a_frame_has_a_row_an_instance_and_feature(explained):
    table = explained.to_frame()
    assert list(table) == ["instance", "target", "feature", "value", "score", "half"] and len(table) == 30
    wide = table.pivot(index="instance", columns="feature", values="score").loc[explained.about.instances, list(FRAME)]
    np.testing.assert_array_equal(wide, explained.scores)
    assert table[table["feature"] == "sex"]["value"].tolist() == FRAME["sex"][:6].tolist()
    np.testing.assert_allclose(table["half"], 1.96 * explained.standard_error.ravel())
    words = shapeline.explain(opinion, ["great film", "bad"], "occlusion").to_frame()
    assert words["feature"].tolist() == ["great", "film", "bad"] and words["instance"].tolist() == [0, 0, 1]


@pytest.mark.parametrize("unit", [1e-60, 1e60])
def test_scores_beyond_the_range_of_a_file_are_not_stored(unit, tmp_path):
    found = shapeline.explain(lambda rows: unit * rows[:, 0], RNG.normal(size=(4, 2)), "shapley", value="prediction")
    with pytest.raises(ShapelineError, match=r"the largest score is .*, and files store numbers of 1e-38 to 3e\+38; "):
        found.save(tmp_path / "e.parquet")


def test_labels_of_a_panel_are_tuples_after_storing(tmp_path):
    days = pd.date_range("2020-01-01", periods=2)
    panel = pd.DataFrame({"wage": [1.0, 2.0, 4.0, 8.0]}, pd.MultiIndex.from_product([["p", "q"], days]))
    shapeline.explain(lambda rows: rows["wage"] / 9, panel, "shapley", background=panel).save(tmp_path / "e.parquet")
    stored = shapeline.Explanation.load(tmp_path / "e.parquet")
    assert stored.about.instances[1] == ("p", "2020-01-02 00:00:00") and stored.to_frame()["instance"].nunique() == 4


def test_rows_of_a_multiple_index_and_signs_that_do_not_print():
    index = pd.MultiIndex.from_product([["p", "q"], [1, 2]], names=["site", "day"])
    frame = pd.DataFrame({"a\nb": ["x\ny", "z"] * 2, "c": range(4)}, index=index)
    found = shapeline.explain(
        lambda rows: np.asarray(rows["c"]) / 4, frame[:2], "shapley_interactions", background=frame
    )
    assert found.to_frame()["instance"].tolist() == [("p", 1), ("p", 1), ("p", 2), ("p", 2)]
    assert found.interactions()["instance"].tolist() == [("p", 1), ("p", 2)]
    assert "  a\\nb = x\\ny" in repr(found[0]) and "  a\\nb " in repr(found)


def test_no_instances_and_no_classes(explained, tmp_path):
    none = explained[[]]
    assert len(none.to_frame()) == 0 and "of 0 instances" in repr(none)
    for refused in (none.summary, none.plot):
        with pytest.raises(ShapelineError, match="there are no instances, so there is no mean"):
            refused()
    with pytest.raises(ShapelineError, match="there is no such file"):
        shapeline.Explanation.load(tmp_path / "none.parquet")
    none.save(tmp_path / "none.parquet")
    assert shapeline.Explanation.load(tmp_path / "none.parquet").scores.shape == none.scores.shape == (0, 5)
    assert "of 0 instances, 5 features\n" in repr(none) and "explained class" not in repr(none)
    ages = FRAME[["age"]].fillna(0)
    model = LogisticRegression().fit(ages, np.arange(len(ages)) % 2)
    with pytest.raises(ShapelineError, match="target is a set without classes"):
        shapeline.explain(model, ages, target=set())
    with pytest.raises(ShapelineError, match=r"^explain: unknown value 'proba'\. Did you mean 'probability'"):
        shapeline.explain(model, ages, value="proba")
    texts = pd.DataFrame({"said": ["good film", "bad film"] * 3})
    words = make_pipeline(CountVectorizer(), LogisticRegression()).fit(texts["said"], [1, 0] * 3)
    with pytest.raises(ShapelineError, match=r"for a model of texts give inputs\['said'\]"):
        shapeline.explain(words, texts)
    with pytest.raises(ShapelineError, match=r"for a model of texts give inputs\[:, 0\]"):
        shapeline.explain(words, texts.to_numpy())
    columns = make_column_transformer((CountVectorizer(), "said"))
    framed = make_pipeline(columns, LogisticRegression()).fit(texts, [1, 0] * 3)
    with pytest.raises(ShapelineError, match=r"so give lambda texts: model.predict_proba\(pandas.DataFrame\(\{'said'"):
        shapeline.explain(framed, texts["said"])
    assert len(shapeline.explain(words, texts["said"])) == 6


class Unfitted:
    def predict(self, rows):
        raise type("LGBMNotFittedError", (ValueError,), {})("no trained model")


class Typed:
    def __init__(self, reason="DataFrame.dtypes must be int"):
        self.reason = reason

    def predict(self, rows):
        raise ValueError(self.reason)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (LogisticRegression, "LogisticRegression is a class; give an object of it that was fitted"),
        (LogisticRegression(), "this estimator; fit the model first"),
        (Unfitted(), "no trained model; fit the model first"),
        (Typed(), "DataFrame.dtypes must be int; give columns of the types of its training"),
        (Typed("same dtype, but got Double and Float"), r"; give inputs\.astype\('float32'\)"),  # of torch
        (lambda rows: rows[:, 0] > 30, r"the model takes arrays: give inputs.to_numpy\(\) and such a background"),
        (lambda rows: None, "gave NoneType, no array of numbers .nothing was returned."),
    ],
)
def test_a_model_that_cannot_answer_is_refused_in_one_line(model, words):
    with pytest.raises(ShapelineError, match=words) as failure:
        shapeline.explain(model, FRAME[["age"]][:2], "shapley", background=FRAME[["age"]])
    assert "\n" not in str(failure.value)


def test_the_summary_is_the_mean_size(explained):
    table = explained.summary()
    np.testing.assert_allclose(table["mean |score|"][list(FRAME)], np.abs(explained.scores).mean(0))
    assert table["mean |score|"].is_monotonic_decreasing


@pytest.mark.parametrize("what", ["table", "pictures", "texts"])
def test_it_is_a_score_file(what, explained, tmp_path):
    if what == "pictures":
        pictures = RNG.random((2, 1, 4, 4))
        explained = shapeline.explain(lambda rows: rows.reshape(len(rows), -1).mean(1), pictures, "sample_shapley")
    if what == "texts":
        texts = ["a great film of some length and much more", "bad film"]
        explained = shapeline.explain(opinion, texts, "kernel_shap", budget=3, class_names=["neg", "pos"])
    explained.save(tmp_path / "kept.parquet")
    again = shapeline.Explanation.load(tmp_path / "kept.parquet")
    np.testing.assert_allclose(again.scores, explained.scores, rtol=1e-6)
    np.testing.assert_allclose(again.to_frame()["half"], explained.to_frame()["half"], rtol=1e-6)
    assert repr(again) == repr(explained) and again.to_frame()["feature"].equals(explained.to_frame()["feature"])
    assert type(again.plot()) is type(explained.plot())
    rows = scores.read(tmp_path / "kept.parquet")
    assert rows["evaluations"].tolist() == explained.evaluations.tolist()


def test_a_score_file_of_a_run_is_read(tmp_path):
    rows = pd.DataFrame(
        {
            "instance": [7, 9],
            "target": 0,
            "repeat": 0,
            "scores": [np.float32([1, 2]), None],
            "status": ["ok", "time limit"],
        }
    )
    told = {
        "method": "lime",
        "parameters": {"method": "lime"},
        "features": {"kind": "column", "shape": [2], "names": ["a", "b"]},
        "reference": {"kind": "background"},
        "value": "log_odds",
        "classes": ["refused", "granted"],
    }
    scores.write(tmp_path / "one.parquet", rows, told)
    found = shapeline.Explanation.load(tmp_path / "one.parquet")
    assert found.about.instances == [7, 9] and found[0].to_frame()["score"].tolist() == [1, 2]
    assert np.isnan(found.scores[1]).all() and "failed" in repr(found)
    assert "log-odds of refused" in repr(found) and "background, 16 rows\n" in repr(found)
    for column, match in (("repeat", "2 repeats"), ("randomised_layers", "2 randomised models"), ("training_seed", "")):
        several = pd.concat([rows.assign(**{column: 0}), rows.assign(**{column: 1})])
        scores.write(tmp_path / "two.parquet", several, told)
        with pytest.raises(ShapelineError, match=f"holds {match}") if match else contextlib.nullcontext():
            assert shapeline.Explanation.load(tmp_path / "two.parquet").about.instances == [7, 9]  # of the model itself
    labels = pd.concat([rows[:1], rows[:1].assign(target=1)])
    scores.write(tmp_path / "labels.parquet", labels, told)
    assert "of 1 instance (2 explanations)" in repr(shapeline.Explanation.load(tmp_path / "labels.parquet"))
    for classes, target in ((told["classes"], "refused"), (None, "prediction")):  # without a model
        scores.write(tmp_path / "none.parquet", rows[:1], {**told, "value": None, "classes": classes})
        found = shapeline.Explanation.load(tmp_path / "none.parquet")
        assert found.target_names == [target] and "instance 7" in repr(found) and "base value" not in repr(found)


def test_figures_show_the_available_data(explained):
    figure = explained[3].plot("waterfall")
    assert isinstance(figure, Figure)
    (axes,) = figure.axes
    ends = sorted(edge for bar in axes.patches for edge in (bar.get_x(), bar.get_x() + bar.get_width()))
    assert ends[0] == pytest.approx(min(explained.value_empty[3], explained.value_full[3]), abs=0.2)
    largest = max(axes.patches, key=lambda bar: bar.get_y() * 0 - bar.get_y())
    assert max(largest.get_x(), largest.get_x() + largest.get_width()) == pytest.approx(
        explained.value_full[3], abs=1e-6
    )
    (bars,) = explained[3].plot().axes
    title = f"{explained.value_full[3]:.4g} of class survived, base value {explained.value_empty[3]:.4g}"
    assert len(bars.patches) == 5 and bars.get_title("left").endswith(title)
    assert bars.get_title("left").startswith("instance passenger 3: prediction ")
    left, right = explained.plot().axes
    np.testing.assert_allclose([bar.get_width() for bar in left.patches], explained.summary()["mean |score|"])
    dots = right.collections[0].get_offsets()
    np.testing.assert_allclose(np.sort(dots[:, 0]), np.sort(explained.scores.ravel()))
    assert np.abs(dots[:, 1] - np.round(dots[:, 1])).max() <= 0.36
    formats, _ = DisplayFormatter().format(figure)  # as a notebook asks for it
    assert formats["image/png"].startswith(b"\x89PNG")
    with pytest.raises(ShapelineError, match=r"'waterfall' shows one instance; select it, as in e\[3\]"):
        explained.plot("waterfall")
    with pytest.raises(ShapelineError, match=r"unknown kind 'violin'\. Did you mean 'beeswarm'"):
        explained.plot("violin")


def test_plots_of_many_instances_have_the_conventions_of_shap(explained):
    sizes = np.abs(explained.scores)
    (bars,) = explained.plot("bar").axes
    np.testing.assert_allclose([bar.get_width() for bar in bars.patches], explained.summary()["mean |score|"])
    order = [explained.feature_names.index(name) for name in explained.summary().index]
    matrix, top, *_ = explained.plot("heatmap").axes
    shown = np.ma.filled(matrix.images[0].get_array(), 0)
    surely = np.where(sizes > 1.96 * explained.standard_error, explained.scores, 0)[:, order].T
    assert sorted(map(tuple, shown.T.round(9))) == sorted(map(tuple, surely.T.round(9)))
    np.testing.assert_allclose(np.sort(top.lines[0].get_ydata()), np.sort(explained.value_full))
    (axes,) = explained.plot("dependence", feature="age").axes
    dots = axes.collections[-1].get_offsets().filled(np.nan)
    ages = explained.data["age"].to_numpy(float)
    np.testing.assert_array_equal(dots[:, 0], ages)
    np.testing.assert_allclose(dots[:, 1][~np.isnan(ages)], explained[:, "age"].scores[:, 0][~np.isnan(ages)])
    (axes,) = explained.plot("cohort", groups=list("aabbbb")).axes
    widths = np.reshape([bar.get_width() for bar in axes.patches], (2, -1))
    np.testing.assert_allclose(widths, [sizes[:2, order].mean(0), sizes[2:, order].mean(0)])
    categories = explained.plot("dependence", feature="sex").axes[0]
    assert {tick.get_text() for tick in categories.get_xticklabels()} == set(explained.data["sex"].astype(str))
    data = explained.data.assign(deck=explained.data["deck"].where(np.arange(6) != 0))
    found = dataclasses.replace(explained, about=dataclasses.replace(explained.about, data=data))
    decks = found.plot("dependence", feature="deck").axes[0]  # in the order of the categories, the missing last
    shown = [tick.get_text() for tick in decks.get_xticklabels()]
    assert shown == [*[deck for deck in "CBA" if deck in set(explained.data["deck"][1:])], "missing"]
    assert decks.get_xlim()[1] > len(shown) - 1
    waited = pd.to_timedelta([2, 10, 1, None, 3, 3], unit="D")  # in the order of time, not of their texts
    data = explained.data.assign(age=waited, deck=pd.Timestamp("2026-02-28", tz="Europe/Berlin") + waited)
    found = dataclasses.replace(explained, about=dataclasses.replace(explained.about, data=data))
    for feature, start in (("age", 0), ("deck", date2num(np.datetime64("2026-02-28")))):
        (axes,) = found.plot("dependence", feature=feature).axes
        dots = axes.collections[-1].get_offsets().filled(np.nan)[:, 0]
        np.testing.assert_allclose(dots - start, [2, 10, 1, np.nan, 3, 3])
    assert axes.get_xlabel() == "deck (1 missing value not shown)"
    legend = explained.plot("cohort", groups=[1, 2, None] * 2).axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["1.0 (2)", "2.0 (2)", "missing (2)"]
    assert isinstance(explained.plot("cohort", groups="sex"), Figure) and isinstance(explained.plot("beeswarm"), Figure)


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        ("dependence", {"feature": "agee"}, "no feature 'agee'. Did you mean 'age'"),
        ("cohort", {"groups": [1, 2]}, "2 for 6 instances; give one per instance"),
        ("cohort", {"groups": "agee"}, "no column 'agee'. Did you mean 'age'"),
        ("cohort", {"groups": [1] * 6}, "compares 2 to 12 groups, and these instances have 1"),
        (
            "bar",
            {"feature": "age"},
            "'bar' takes no feature; leave it out, or use plot\\(\"dependence\", feature=...\\)",
        ),
        ("dependence", {"max_display": 3}, "'dependence' takes no max_display; leave it out, or use plot\\(\"bar\""),
        ("beeswarm", {"max_display": 0}, "max_display is 0; give a whole number of at least 1"),
    ],
)
def test_arguments_of_plots_are_checked(explained, kind, arguments, message):
    with pytest.raises(ShapelineError, match=message):
        explained.plot(kind, **arguments)


def test_a_number_of_features_is_shown(explained):
    for kind in ("bar", "beeswarm", "heatmap", "cohort"):
        groups = {"groups": list("aabbbb")} if kind == "cohort" else {}
        shown = explained.plot(kind, max_display=2, **groups).axes[0].get_yticklabels()
        assert len(shown) == 2, kind
    for kind in ("bar", "waterfall"):
        labels = [label.get_text() for label in explained[0].plot(kind, max_display=1).axes[0].get_yticklabels()]
        assert len(labels) == 2 and any(label.startswith("sum of ") for label in labels)


def read_explorer(page: str) -> dict:
    return json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.S)[1])


def test_a_page_and_a_notebook_have_the_explorer(explained, tmp_path):
    assert explained.to_html(tmp_path / "new" / "page.html") is None
    page = (tmp_path / "new" / "page.html").read_text()
    assert page == explained.to_html() and page.startswith("<!DOCTYPE html>")
    for text, links in ((page, True), (explained._repr_html_(), False)):
        stored = read_explorer(text)
        assert stored["links"] is links and [one["id"] for one in stored["instances"]] == explained.about.instances
        given = [np.array(row[0][0], float) for row in stored["scores"]]
        np.testing.assert_allclose(given, explained.scores, rtol=1e-3)
        np.testing.assert_allclose([row[0][1] for row in stored["scores"]], explained.half_widths, rtol=1e-3)
        assert '<div class="explorer-static"><figure>' in text


def test_large_explanations_are_figures_in_a_notebook_and_cut_in_a_page(explained):
    many = explained[np.zeros(30_000, int)]
    assert "application/json" not in many._repr_html_()
    page = many.to_html()
    assert len(read_explorer(page)["instances"]) == 2000 and "first 2,000 of 30,000 explanations" in page


def read_ids(explanation) -> list[str]:
    return [one["id"] for one in read_explorer(explanation.to_html())["instances"]]


@pytest.fixture(scope="module")
def by_class():
    """Three instances, two of the same name, each explained for three classes."""
    frame = pd.DataFrame(RNG.normal(size=(3, 4)), columns=list("abcd"), index=["x", "x", "y"])
    model = LogisticRegression().fit(RNG.normal(size=(60, 4)), np.arange(60) % 3)
    return shapeline.explain(model, frame, "shapley", reference="zero", target="each", class_names=list("uvw"))


def test_printed_columns_have_the_names_of_classes_of_any_type():
    X, names = np.random.default_rng(1).normal(size=(60, 2)), np.array(["a", "mean score, b", "mean |score|"])
    model = LogisticRegression().fit(X, names[np.arange(60) % 3])
    found = shapeline.explain(model, X[:4], "shapley", reference="zero", target="each")
    head, *rows = repr(found).splitlines()[-3:]
    assert re.split("  +", head)[-3:] == ["mean score: a", "mean score, b", "mean |score|"]
    for row in rows:
        size, *means = row.split()[-4:]
        assert size[0] not in "+-" and all(mean[0] in "+-" for mean in means)


def test_classes_of_an_instance_are_rows_and_not_instances(by_class):
    assert read_ids(by_class)[:4] == ["x (row 0), u", "x (row 0), v", "x (row 0), w", "x (row 1), u"]
    assert len(set(read_ids(by_class))) == 9 and read_ids(by_class)[-1] == "y, w"
    assert "of 3 instances (9 explanations), 4 columns" in repr(by_class)
    sizes = np.abs(by_class.scores).reshape(3, 3, 4)
    table = by_class.summary()  # the scores of all classes of a feature sum to 0, so that their mean says nothing
    assert list(table) == ["mean |score|", "mean score, u", "mean score, v", "mean score, w"]
    expected = by_class.scores.reshape(3, 3, 4).mean(0).T[[by_class.feature_names.index(name) for name in table.index]]
    np.testing.assert_allclose(table.iloc[:, 1:], expected)
    head, first = repr(by_class).splitlines()[-5:-3]
    assert head.split() == ["mean", "|score|", "mean", "score:", "u", "v", "w"]
    np.testing.assert_allclose([float(cell) for cell in first.split()[2:]], expected[0], rtol=1e-3)
    order = [by_class.feature_names.index(name) for name in by_class.summary().index]
    for kind in ("bar", "beeswarm"):  # n is 3 instances, whose classes are averaged first
        axes = by_class.plot(kind).axes[0]
        low, high = intervals(sizes.mean(1))[["low", "high"]].to_numpy().T
        ends = np.array([line.get_segments()[k][:, 0] for line in axes.collections[:1] for k in range(4)])
        np.testing.assert_allclose(ends, np.c_[np.maximum(low, 0), high][order], atol=1e-9)
    assert "and class" in by_class.plot("beeswarm").axes[1].get_title("left")
    assert "9 instances and classes" in by_class.plot("heatmap").axes[0].get_xlabel()
    (axes,) = by_class.plot("cohort", groups=["p", "q", "q"]).axes  # a group per instance
    widths = np.reshape([bar.get_width() for bar in axes.patches], (2, -1))
    np.testing.assert_allclose(widths, [sizes[0].mean(0)[order], sizes[1:].mean((0, 1))[order]])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["p (1)", "q (2)"]
    with pytest.raises(ShapelineError, match="2 for 3 instances; give one per instance"):
        by_class.plot("cohort", groups=["p", "q"])


def test_rows_are_distinguished_after_indexing_and_storing(by_class, tmp_path):
    by_class.save(tmp_path / "e.parquet")
    again = shapeline.Explanation.load(tmp_path / "e.parquet")
    assert read_ids(again) == read_ids(by_class) and read_ids(by_class[6:]) == ["y, u", "y, v", "y, w"]
    assert read_ids(by_class[[0, 3]]) == ["x (row 0)", "x (row 1)"] and read_ids(by_class[[0, 0]])[1] == "x, u (2)"


def test_plots_of_several_texts_show_their_words():
    texts = shapeline.explain(opinion, ["a great film", "a bad film", "bad not great"], "shapley", target=1)
    (axes,) = texts.plot("bar").axes
    names = [tick.get_text() for tick in axes.get_yticklabels()]
    widths = dict(zip(names, [bar.get_width() for bar in axes.patches], strict=True))
    frame = texts.to_frame()
    assert widths == pytest.approx(frame["score"].abs().groupby(frame["feature"]).mean().to_dict())
    for kind in ("beeswarm", "heatmap", "cohort"):
        assert isinstance(texts.plot(kind, **({"groups": list("aab")} if kind == "cohort" else {})), Figure)


def test_a_text_selected_among_longer_ones_has_its_own_words_alone():
    found = shapeline.explain(
        lambda texts: [0.1 * ("b" in text) for text in texts], ["a b c", "a b c d e"], "shapley_interactions"
    )
    short = found[0]
    assert found.scores.shape == (2, 5) and short.scores.shape == short.interaction_values.shape == (1, 3)
    assert short.summary().index[0] == "b" and len(short.summary()) == 3
    assert short[:, ["a", "b"]].interaction_values.shape == (1, 1)
    for kind in ("beeswarm", "heatmap"):
        short.plot(kind)
    assert found[[0, 0]].plot("bar") and found[[1, 0]].scores.shape == (2, 5)


def test_words_that_repeat_have_bars_of_their_own():
    """Every occurrence was drawn with the score of the first, in figures of one text's classes."""

    def begins_and_ends(texts):
        return [
            0.1 + 0.2 * text.startswith("b") + 0.05 * text.count("a c") + 0.3 * text.endswith("a") for text in texts
        ]

    text = shapeline.explain(begins_and_ends, "a b a c a", "shapley", target="each")
    sizes = np.abs(text.scores[0])
    expected = sizes[np.argsort(-sizes, kind="stable")]
    assert len(np.unique(expected.round(9))) > 3
    for kind in ("bar", "beeswarm"):
        np.testing.assert_allclose([bar.get_width() for bar in text.plot(kind).axes[0].patches], expected)
    np.testing.assert_allclose(np.abs(text.plot("heatmap").axes[0].images[0].get_array())[:, 0], expected)
    np.testing.assert_allclose(text.summary()["mean |score|"], expected)
    np.testing.assert_array_equal(text[:, "a"].scores, text.scores[:, [0, 2, 4]])
    np.testing.assert_array_equal(text[:, ["c", "a"]].scores, text.scores[:, [3, 0, 2, 4]])


def test_features_by_labels_that_are_no_texts():
    for labels in ([2, 0, 1], [("a", "x"), ("a", "y"), ("b", "x")]):
        columns = pd.MultiIndex.from_tuples(labels) if isinstance(labels[0], tuple) else labels
        rows = pd.DataFrame(RNG.integers(0, 3, (8, 3)) * 1.0, columns=columns)
        found = shapeline.explain(
            lambda rows: rows.to_numpy() @ [1.0, 2, 3], rows, "shapley", reference="zero", value="prediction"
        )
        label = labels[1]
        axes = found.plot("dependence", feature=label).axes[0]
        heights = np.concatenate([np.asarray(dots.get_offsets())[:, 1] for dots in axes.collections])
        np.testing.assert_allclose(np.sort(heights), np.sort(found.scores[:, 1]))
        assert isinstance(found.plot("cohort", groups=label), Figure)
        picked = found[:, [str(label)]]
        np.testing.assert_array_equal(picked.scores, found.scores[:, [1]])
        np.testing.assert_array_equal(picked.to_frame()["value"], rows[label])
        with pytest.raises(ShapelineError, match="plot: there is no feature '7'"):
            found.plot("dependence", feature=7)
        with pytest.raises(ShapelineError, match="plot: groups: there is no column '7'"):
            found.plot("cohort", groups=7)
        if isinstance(label, tuple):
            np.testing.assert_array_equal(found[:, label].scores, found.scores[:, [1]])
            continue
        for index in (0, [0], [0, 1]):  # the position of the feature 2 and the name of another one
            with pytest.raises(
                ShapelineError, match=r"0 is the name of a feature and the position of another; .*'0'\]"
            ):
                found[:, index]
    plain = shapeline.explain(
        lambda rows: rows @ [1.0, 2], pd.DataFrame(np.eye(2)), reference="zero", value="prediction"
    )
    np.testing.assert_array_equal(plain[:, 1].scores, plain.scores[:, [1]])


def test_classes_and_groups_in_another_order_of_rows_are_refused():
    rows = FRAME[["age"]].fillna(0)[:6]
    other = pd.Series([0, 1] * 3, rows.index[::-1])
    with pytest.raises(ShapelineError, match="explain: the index of target is that of inputs in another order"):
        shapeline.explain(lambda rows: rows["age"] / 100, rows, background=rows, target=other)
    found = shapeline.explain(lambda rows: rows["age"] / 100, rows, background=rows, target=other[::-1])
    assert found.target.tolist() == [1, 0] * 3
    with pytest.raises(ShapelineError, match="plot: the index of groups is that of the instances in another order"):
        found.plot("cohort", groups=other)
    assert isinstance(found.plot("cohort", groups=other[::-1]), Figure)
    assert isinstance(found.plot("cohort", groups=other.to_numpy()), Figure)
    with pytest.raises(ShapelineError, match="explanation: the index of mask is that of the instances in another"):
        found[other > 0]
    assert found[other[::-1] > 0].about.instances == found[[0, 2, 4]].about.instances


def test_names_of_classes_that_are_those_of_other_classes_are_refused(pipeline):
    for names, name in ((["survived", "died"], "survived"), (["lost", "died"], "died")):
        with pytest.raises(
            ShapelineError, match=rf"class_names: '{name}' is another class .* classes are died, survived"
        ):
            shapeline.explain(pipeline, FRAME[:2], background=FRAME[:9], class_names=names)
    found = shapeline.explain(pipeline, FRAME[:2], background=FRAME[:9], class_names=["died", "lived"], target="lived")
    np.testing.assert_allclose(found.value_full, pipeline.predict_proba(FRAME[:2])[:, 1])


def test_images_of_two_ranges_are_reported(caplog):
    images, background = RNG.integers(0, 256, (2, 4, 4, 3)).astype(np.uint8), RNG.random((3, 4, 4, 3))

    def bright(rows):
        return rows.mean((1, 2, 3)) / 300

    shapeline.explain(bright, images, "occlusion", background=background * 255, target=1)
    assert "range" not in caplog.text
    shapeline.explain(bright, images, "occlusion", background=background, target=1)
    assert re.search(
        r"background: its pixels and those of the inputs reach (0\.9\d*|1) and 25\d; give both", caplog.text
    )


def test_predictions_that_differ_in_their_last_digits_are_reported(caplog):
    rows = np.array([[-1.0, 0.3], [2.0, 0.4]])
    shapeline.explain(lambda rows: 1e9 + rows[:, 0], rows, "shapley", background=rows, value="prediction")
    assert not caplog.text
    shapeline.explain(lambda rows: 1e15 + rows[:, 0], rows, "shapley", background=rows, value="prediction")
    assert "differ by 3 and are as large as 1e+15, so that rounding changes scores" in caplog.text


@pytest.mark.parametrize("method", ["shapley", "gp_shapley", "kernel_shap", "gp_interactions"])
def test_features_that_a_model_does_not_use_have_scores_of_0(method):
    rows = RNG.normal(size=(40, 7))
    constant = shapeline.explain(lambda rows: np.full(len(rows), 0.3), rows[:3], method, background=rows)
    assert not constant.scores.any() and not np.any(constant.interaction_values)
    used = shapeline.explain(lambda rows: 0.3 + 0.1 * np.tanh(rows[:, 0]), rows[:3], method, background=rows, budget=20)
    assert used.scores[:, 0].all() and not used.scores[:, 1:].any()


def test_names_of_any_length_leave_space_for_the_figure():
    frame = pd.DataFrame(RNG.normal(size=(6, 3)), columns=["a" * 300, "b" * 300 + " end", "c"])
    found = shapeline.explain(lambda rows: rows @ [1.0, 2, 3], frame, "shapley", reference="zero", value="prediction")
    for one, kind in (
        (found, "beeswarm"),
        (found, "heatmap"),
        (found[0], "bar"),
        (found[0], "waterfall"),
        (found[0], "heatmap"),
    ):
        drawing = one.plot(kind)
        drawing.savefig(io.BytesIO(), dpi=50)
        labels = [tick.get_text() for tick in drawing.axes[0].get_yticklabels()]
        assert max(map(len, labels)) <= 48 and any(label.startswith("bbbb") for label in labels)
        assert drawing.axes[0].get_position().width > 0.2
    assert not len(found[0].plot("heatmap").axes[0].get_xticks())


def test_images_texts_and_outputs_of_games_have_explorers():
    pictures = RNG.random((2, 3, 6, 6))
    found = shapeline.explain(
        lambda rows: rows.reshape(len(rows), -1).mean(1), pictures, "shapley", features={"kind": "patch", "size": 2}
    )
    stored = read_explorer(found.to_html())
    assert stored["kind"] == "image" and stored["size"] == [6, 6] and len(stored["scores"][0][0][0]) == 9
    stored = read_explorer(shapeline.explain(opinion, ["great <b> film", "bad"], "occlusion").to_html())
    assert [one["names"] for one in stored["instances"]] == [["great", "<b>", "film"], ["bad"]]
    game = shapeline.shapley_values(lambda masks: masks.sum(1) ** 2, 5)
    assert read_explorer(game.to_html())["signs"].startswith("Blue supports a larger value")


def test_words_are_coloured_by_sign_and_escaped():
    found = shapeline.explain(opinion, "great <b> bad", "shapley", target=1)
    page = found.plot().data
    styles = {word: style for style, word in re.findall(r'<span style="(.*?)" title=".*?">(.*?)</span>', page)}
    assert (
        "border-bottom" in styles["great"]
        and "border-top" in styles["bad"]
        and styles["&lt;b&gt;"] == "unicode-bidi:plaintext"
    )


def test_scores_that_may_be_0_are_omitted_from_an_image(monkeypatch):
    pictures = RNG.random((1, 1, 2, 2))
    found = shapeline.explain(
        lambda rows: 0.3 + 0.4 * rows[:, 0, 0, 0], pictures, "shapley", reference=np.zeros((1, 2, 2)), target=1
    )
    found.standard_error = np.full_like(found.scores, 1e9)
    assert "no significant score" in found.plot().axes[0].get_title()
    lines = next(
        text.get_text() for text in found[0].plot().texts if "Blue" in text.get_text()
    ).splitlines()  # narrow, as the figure of one image
    assert len(lines) > 1 and max(map(len, lines)) <= 36
    found.standard_error = None
    assert "no significant score" not in found.plot().axes[0].get_title()


def test_to_shap_keeps_values_and_names(explained):
    pytest.importorskip("shap")
    theirs = explained.to_shap()
    np.testing.assert_array_equal(theirs.values, explained.scores)
    np.testing.assert_array_equal(theirs.base_values, explained.value_empty)
    assert theirs.feature_names == list(FRAME)
    with pytest.raises(ShapelineError, match="to_shap: there are no instances"):
        explained[:0].to_shap()
    np.testing.assert_array_equal(theirs.data[:, 2], explained.data["deck"].cat.codes)


@pytest.mark.parametrize("features", ["superpixel", {"kind": "patch", "size": 3}])
def test_to_shap_gives_images_per_pixel_and_texts_of_any_length(features):
    pytest.importorskip("shap")
    images = np.random.default_rng(0).random((2, 8, 9, 3))
    found = shapeline.explain(
        lambda x: x[:, :4, :, 0].mean((1, 2)), images, features=features, reference="zero", target=1
    )
    theirs = found.to_shap()
    np.testing.assert_array_equal(theirs.data, images)
    assert theirs.values.shape == images.shape
    np.testing.assert_allclose(
        theirs.values.sum((1, 2, 3)), np.nansum(found.scores, axis=tuple(range(1, found.scores.ndim)))
    )
    texts = shapeline.explain(lambda texts: [0.1 * ("b" in text) for text in texts], ["a b", "a b c", "c d"])
    for one in (texts, texts[0]):  # shap joins the words, and averages over instances by word
        shap_texts = one.to_shap()
        assert ["".join(row) for row in shap_texts.data] == [" ".join(names) for names in one.about.names]
        assert all(len(row) == len(names) for row, names in zip(shap_texts.values, one.about.names, strict=True))


def test_a_regression_is_its_prediction():
    table = FRAME[["age", "alone"]].assign(age=FRAME["age"].fillna(30))
    model = LinearRegression().fit(table, 2 * table["age"])
    found = shapeline.explain(model, table[:3], "shapley", background=table[:50])
    expected = 2 * (table["age"][:3] - table["age"][:50].mean())
    np.testing.assert_allclose(found.scores[:, 0], expected, rtol=1e-5)
    assert found.target_names == ["prediction"] * 3 and "the model's prediction" in repr(found)


def test_a_random_model_is_refused():
    """Its scores would be noise. A model with a fixed seed in each call is accepted."""
    generator = np.random.default_rng(0)

    def drawing(rows):
        return 1 / (1 + np.exp(-rows.sum(1) - generator.normal(0, 0.01, len(rows))))

    def seeded(rows):
        return 1 / (1 + np.exp(-rows.sum(1) - np.random.default_rng(0).normal(0, 0.01)))

    calls = iter(range(100))

    def limited(rows):
        assert next(calls) % 2, "rate limit"
        return drawing(rows)

    rows = RNG.normal(size=(6, 3))
    with pytest.raises(ShapelineError, match=r"'limited' fails on one call and not on the next \(rate limit\)"):
        shapeline.explain(limited, rows)
    with pytest.raises(ShapelineError, match=r"'drawing' returns 0\.\d+ and then 0\.\d+ for one row; make it"):
        shapeline.explain(drawing, rows)
    with pytest.raises(ShapelineError, match="'drawing' returns"):
        shapeline.compare(drawing, rows, ["occlusion", "kernel_shap"])
    assert np.isfinite(shapeline.explain(seeded, rows).scores).all()


def test_custom_features_determine_the_shape_of_an_input():
    features = Features("word", (2,), np.array([0, 0, 1, -1], np.int32), ("lovely", "room"))
    found = shapeline.explain(opinion_of_ids, np.array([4, 5, 6, 0]), "occlusion", {"kind": "pad"}, features)
    assert found.scores.shape == (1, 2) and found.feature_names == ("lovely", "room")


def test_one_input_of_the_backgrounds_shape():
    series = RNG.random((5, 6, 2))
    found = shapeline.explain(lambda rows: rows[:, :, 0].mean(1), series[0], "occlusion", background=series)
    assert found.scores.shape == (1, 6, 2)
    found = shapeline.explain(lambda rows: rows[:, :, 0].mean(1), series, "occlusion", feature_names=["x", "y"])
    assert found.feature_names[:3] == ("step 0, x", "step 0, y", "step 1, x") and "12 cells" in str(found)
    with pytest.raises(
        ShapelineError, match=r"feature_names: has 3 names and a series the shape \(6, 2\); give one per"
    ):
        shapeline.explain(lambda rows: rows[:, :, 0].mean(1), series, "occlusion", feature_names=["x", "y", "z"])


@pytest.mark.parametrize("axis", [-3, -1])
def test_labels_of_cells_are_features(axis):
    weights, images, of_cells = RNG.normal(size=(3, 5, 5)), RNG.random((2, 3, 5, 5)), RNG.integers(-1, 5, (3, 5, 5))
    weights, images, of_cells = (np.moveaxis(array, -3, axis) for array in (weights, images, of_cells))
    of_pixels = RNG.integers(-1, 4, (2, 5, 5)) * 2
    each = np.broadcast_to(np.expand_dims(of_pixels, axis), images.shape)

    def explain(labels):
        def model(rows):
            return (rows * weights).sum((1, 2, 3))

        return shapeline.explain(model, images, "shapley", "zero", labels, value="prediction").scores

    same = np.broadcast_to(of_cells, images.shape)
    given = (of_pixels, each), (list(of_pixels), each), (each, each), (of_cells, same), (of_cells[None], same)
    for labels, cells in (*given, (of_pixels[0], np.broadcast_to(each[0], images.shape))):
        for scores_of_one, image, numbers in zip(explain(labels), images, cells, strict=True):
            known = np.unique(numbers[numbers >= 0])
            expected = [(image * weights)[numbers == number].sum() for number in known]
            np.testing.assert_allclose(scores_of_one[: len(known)], expected, atol=1e-6)
    with pytest.raises(ShapelineError, match=r"\(9, 5, 5\) do not fit inputs of shape \(.*; give one per pixel"):
        explain(np.zeros((9, 5, 5), int))
    with pytest.raises(ShapelineError, match=r"the labels of input 1 are all negative, .*; give labels from 0"):
        explain(np.where(np.arange(len(images))[:, None, None] == 1, -1, of_pixels))
    with pytest.raises(ShapelineError, match=r"cells hold -1 to 4 \(int64\) and the shape \(3,\) has features 0 to 2"):
        Features("superpixel", (3,), of_cells)


def test_labels_of_as_many_inputs_as_channels():
    with pytest.raises(ShapelineError, match=r"may be of channels or of inputs .*; give shape \(3, 3, 5, 5\)"):
        shapeline.explain(opinion_of_ids, RNG.random((3, 3, 5, 5)), features=RNG.integers(0, 2, (3, 5, 5)))


def opinion_of_ids(ids):
    return (ids > 0).mean(1)


def test_a_progress_bar_is_shown_only_on_a_terminal(monkeypatch, capsys):
    shapeline.explain(opinion, ["great film"] * 3, "occlusion")
    assert capsys.readouterr().err == ""
    told = []
    monkeypatch.setattr(formatting, "is_watched", lambda: True)
    monkeypatch.setattr(formatting, "MIN_SECONDS", 0.0)
    monkeypatch.setattr(formatting.tqdm, "update", lambda self, n: told.append(n))
    shapeline.explain(opinion, ["great film", "bad"], "occlusion")
    assert sum(told) >= 2 and "occlusion" in capsys.readouterr().err


def test_attributes_under_their_old_names_warn(explained):
    for old, new in (("uncertainty", "standard_error"), ("flag", "warning"), ("extra", "details")):
        with pytest.warns(DeprecationWarning, match=f"{old} is deprecated; use {new}"):
            assert getattr(explained, old) is getattr(explained, new)
    ours = {"values": "; use explanation.scores", "expected_value": ".*base_values", "to_csv": ".*to_frame"}
    for name, words in ({"uncertain": "$"} | ours).items():
        with pytest.raises(AttributeError, match=f"no attribute '{name}'{words}"):
            getattr(explained, name)


def test_evaluations_of_partition_are_its_own():
    """Partition has a parameter of that name, in place of a budget."""
    images = np.random.default_rng(0).random((2, 1, 16, 16))
    asked = []

    def predict(rows):
        asked.append(len(rows))
        mean = np.asarray(rows).mean((1, 2, 3))
        return np.stack([1 - mean, mean], axis=1)

    for evaluations in (20, 64):
        asked.clear()
        found = shapeline.explain(predict, images, "partition", np.zeros((1, 16, 16)), "pixel", evaluations=evaluations)
        assert (found.evaluations <= evaluations).all() and found.evaluations.min() > evaluations - 4
        assert sum(asked) <= 2 * evaluations + 20


@pytest.mark.parametrize("kind", ["bar", "waterfall", "beeswarm", "heatmap", "dependence", "cohort"])
def test_dollar_signs_of_names_are_drawn_as_they_are(kind):
    columns = ["$x_$", "price ($) less tax ($)", "$\\foo$"]
    frame = pd.DataFrame(np.random.default_rng(0).random((6, 3)), columns=columns)
    explained = shapeline.explain(lambda rows: rows.to_numpy().mean(1), frame, "shapley", background=frame)
    drawn = (explained[0] if kind == "waterfall" else explained).plot(kind)
    drawn.canvas.draw()
    texts = {text.get_text().replace("\\$", "$") for text in drawn.findobj(Text)}
    assert any("price ($) less tax ($)" in text for text in texts) or kind == "dependence"


def test_text_shows_dates_without_midnight_and_rounding_errors_as_0():
    days = pd.DataFrame(
        {"day": [pd.Timestamp(2024, 2, 3), pd.Timestamp(2024, 5, 6, 7)], "x": [0.1, 0.7], "y": [0.3, 0.2]}
    )

    def sum_months(rows):
        return 0.1 * rows["day"].dt.month.to_numpy() + (rows["x"].to_numpy() + 1e-15 * rows["y"].to_numpy())

    explanation = shapeline.explain(sum_months, days, "shapley", background=days, value="prediction")
    text = str(explanation[0])
    assert "day = 2024-02-03 " in text and " 00:00" not in text and "day = 2024-05-06 07:00:00" in str(explanation[1])
    assert text.split("y = 0.3")[1].split()[0] == "+0"


@pytest.mark.parametrize(
    ("value", "named"), [("probability", "prediction 0.8"), ("log_odds", "log-odds 1.386"), ("margin", "margin 1.386")]
)
def test_a_title_names_the_explained_value(value, named):
    rows = np.array([[0.8, 0.2], [0.5, 0.5]])
    explained = shapeline.explain(
        lambda rows: rows[:, :2] / rows[:, :2].sum(1, keepdims=True), rows[:1], background=rows[1:], value=value
    )
    assert f"instance 0: {named} of class 0" in str(explained)
