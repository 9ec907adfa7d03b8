"""Features and references: which cells a feature owns, and what fills them."""

import numpy as np
import pytest

from shapeline import datasets, features, references
from shapeline.datasets import Dataset
from shapeline.errors import ShapelineError

IMAGE = {"input_shape": [3, 5, 7]}
TABLE = {
    "input_shape": [4],
    "feature_names": ["a", "b", "c", "d"],
    "groups": {"first": ["a", "c"], "second": ["b", "d"]},
}


def failure(function, *arguments) -> str:
    with pytest.raises(ShapelineError) as caught:
        function(*arguments)
    message = str(caught.value)
    assert "\n" not in message
    return message


def dataset(inputs, split) -> Dataset:
    inputs, n = np.asarray(inputs, np.float32), len(split)
    return Dataset(inputs, np.zeros(n, np.int64), np.array(split, np.uint8), np.arange(n), {})


# ---- features


def test_pixels_share_their_channels():
    built = features.build("pixel", IMAGE)
    assert built.shape == (5, 7) and built.d == 35
    assert built.cells.shape == (3, 5, 7) and built.cells.dtype == np.int32
    for channel in built.cells:
        np.testing.assert_array_equal(channel, np.arange(35).reshape(5, 7))


@pytest.mark.parametrize("size", [1, 2, 3, 5, [2, 3], [5, 7], [1, 7]])
def test_patches_against_a_loop(size):
    height, width = size if isinstance(size, list) else (size, size)
    built = features.build({"kind": "patch", "size": size}, IMAGE)
    n_columns = -(-7 // width)
    for row in range(5):
        for column in range(7):
            expected = (row // height) * n_columns + column // width
            assert (built.cells[:, row, column] == expected).all()
    assert built.shape == (-(-5 // height), n_columns)
    assert set(built.cells.ravel()) == set(range(built.d))


def test_sixteen_patches_of_digits():
    built = features.build({"kind": "patch", "size": 2}, {"input_shape": [1, 8, 8]})
    assert built.shape == (4, 4) and built.d == 16
    assert (np.bincount(built.cells.ravel()) == 4).all()


def test_columns():
    built = features.build({"kind": "column"}, TABLE)
    assert built.shape == (4,) and built.names == ("a", "b", "c", "d")
    assert built.cells.tolist() == [0, 1, 2, 3]


def test_groups_of_the_dataset_and_of_the_settings():
    built = features.build("group", TABLE)
    assert built.shape == (2,) and built.names == ("first", "second") and built.cells.tolist() == [0, 1, 0, 1]
    assert built.cells.dtype == np.int32
    built = features.build({"kind": "group", "groups": {"x": ["d"], "y": ["b", "a"], "z": ["c"]}}, TABLE)
    assert built.names == ("x", "y", "z") and built.cells.tolist() == [1, 1, 2, 0]


def test_groups_of_breast_cancer(tmp_path):
    card = datasets.prepare("breast_cancer", {}, [], tmp_path)
    built = features.build("group", card)
    assert built.d == 10 and (np.bincount(built.cells) == 3).all()
    for group, members in card["groups"].items():
        ids = {built.cells[card["feature_names"].index(column)] for column in members}
        assert ids == {built.names.index(group)}


def test_expand_keeps_what_no_feature_owns():
    cells = np.array([[[0, 1], [-1, 0]]], np.int32)
    built = features.Features("patch", (2,), cells)
    masks = np.array([[True, False], [False, True], [False, False]])
    expected = [[[[1, 0], [1, 1]]], [[[0, 1], [1, 0]]], [[[0, 0], [1, 0]]]]
    np.testing.assert_array_equal(built.expand(masks), np.array(expected, bool))
    assert built.expand(masks).dtype == bool
    assert "(K, 2)" in failure(built.expand, np.ones((3, 4), bool))


@pytest.mark.parametrize(
    ("settings", "card"),
    [
        ("pixel", IMAGE),
        ({"kind": "patch", "size": [2, 3]}, IMAGE),
        ("column", TABLE),
        ("group", TABLE),
        ({"kind": "group", "groups": {"x": ["a", "b", "c", "d"]}}, TABLE),
    ],
)
def test_shape_of_agrees_with_build(settings, card):
    shape = features.shape_of(settings, tuple(card["input_shape"]), card.get("groups"))
    assert shape == features.build(settings, card).shape


@pytest.mark.parametrize(
    ("settings", "card", "words"),
    [
        ("pixle", IMAGE, "Did you mean 'pixel'?"),
        ({}, IMAGE, "unknown"),
        ({"kind": "patch", "sise": 2}, IMAGE, "Did you mean 'size'?"),
        ({"kind": "patch"}, IMAGE, "needs a side"),
        ({"kind": "patch", "size": 0}, IMAGE, "1 or more"),
        ({"kind": "patch", "size": [2, 2, 2]}, IMAGE, "[height, width]"),
        ({"kind": "patch", "size": 2.0}, IMAGE, "2.0"),
        ({"kind": "patch", "size": 6}, IMAGE, "larger than the image, 5x7"),
        ("column", IMAGE, "Allowed: pixel, patch"),
        ("pixel", TABLE, "Allowed: column, group"),
        ("group", {"input_shape": [4]}, "has no groups"),
        ({"kind": "group", "groups": {"x": ["a", "b"]}}, TABLE, "2 column(s) in no group ('c', 'd')"),
        ({"kind": "group", "groups": {"x": ["a", "b", "c"], "y": ["a", "d"]}}, TABLE, "more than one place ('a')"),
        ({"kind": "group", "groups": {"x": ["a", "a", "b", "c", "d"]}}, TABLE, "more than one place ('a')"),
        ({"kind": "group", "groups": {"x": ["a", "b", "c", "e"]}}, TABLE, "no column 'e'"),
        ({"kind": "group", "groups": {"x": "abcd"}}, TABLE, "not a list"),
        ({"kind": "group", "groups": {"x": []}}, TABLE, "not a list"),
    ],
)
def test_wrong_features(settings, card, words):
    assert words in failure(features.build, settings, card)
    # The configuration finds the same mistake before any data is there.
    assert words in failure(features.shape_of, settings, tuple(card["input_shape"]), card.get("groups"))


def test_groups_of_a_dataset_without_its_own():
    card = {"input_shape": [4], "feature_names": ["a", "b", "c", "d"]}
    assert features.build({"kind": "group", "groups": {"x": ["a", "b"], "y": ["c", "d"]}}, card).d == 2
    assert "in no group" in failure(features.build, {"kind": "group", "groups": {"x": ["a", "b"]}}, card)


# ---- references


@pytest.fixture
def images():
    generator = np.random.default_rng(0)
    inputs = generator.random((9, 2, 3, 4))
    split = [0, 2, 0, 1, 0, 0, 2, 1, 0]
    inputs[np.array(split) != 0] += 100  # whatever looks outside the training part is far off
    return dataset(inputs, split)


def test_zero(images):
    rows = references.build("zero", images, 0).rows
    assert rows.shape == (1, 2, 3, 4) and rows.dtype == np.float32 and not rows.any()


@pytest.mark.parametrize("kind", ["mean", "mean_value", {"kind": "mean_value"}])
def test_mean_value_is_one_number_per_channel(images, kind):
    rows = references.build(kind, images, 0).rows
    assert rows.shape == (1, 2, 3, 4) and rows.dtype == np.float32
    for channel in range(2):
        expected = images.inputs[[0, 2, 4, 5, 8], channel].astype(np.float64).mean()
        np.testing.assert_allclose(rows[0, channel], expected, rtol=1e-6)


def test_mean_image(images):
    rows = references.build("mean_image", images, 0).rows
    np.testing.assert_allclose(rows[0], images.inputs[[0, 2, 4, 5, 8]].mean(axis=0), rtol=1e-6)


@pytest.mark.parametrize("kind", ["mean", "mean_value", "mean_image"])
def test_means_of_a_table_are_its_column_means(kind):
    table = dataset([[1, 10], [3, 30], [99, 99]], [0, 0, 2])
    np.testing.assert_array_equal(references.build(kind, table, 0).rows, [[2, 20]])


def test_background_rows_are_training_rows(images):
    rows = references.build({"kind": "background", "rows": 3}, images, 7).rows
    assert rows.shape == (3, 2, 3, 4) and rows.dtype == np.float32
    training = [image.tobytes() for image in images.inputs[images.split == 0]]
    drawn = [row.tobytes() for row in rows]
    assert set(drawn) <= set(training) and len(set(drawn)) == 3
    again = references.build({"kind": "background", "rows": 3}, images, 7).rows
    np.testing.assert_array_equal(rows, again)
    every = references.build({"kind": "background", "rows": 5}, images, 7).rows
    assert [row.tobytes() for row in every] == training


def test_background_depends_on_the_seed_and_grows():
    table = dataset(np.arange(100)[:, None], [0] * 100)
    small = references.build({"kind": "background", "rows": 5}, table, 1).rows[:, 0]
    large = references.build("background", table, 1).rows[:, 0]
    other = references.build({"kind": "background", "rows": 5}, table, 2).rows[:, 0]
    assert len(large) == references.DEFAULT_ROWS
    assert set(small) < set(large) and set(small) != set(other)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("meen", "Did you mean 'mean'?"),
        ({"kind": "background", "row": 3}, "Did you mean 'rows'?"),
        ({"kind": "zero", "rows": 3}, "unknown for kind 'zero'"),
        ({"kind": "background", "rows": 0}, "1 or more"),
        ({"kind": "background", "rows": 2.5}, "2.5"),
        ({"kind": "background", "rows": 6}, "6 asked of 5 training record(s)"),
    ],
)
def test_wrong_references(settings, words, images):
    assert words in failure(references.build, settings, images, 0)


def test_a_training_part_is_needed():
    assert "of 0 training" in failure(references.build, "mean", dataset([[1.0]], [2]), 0)
