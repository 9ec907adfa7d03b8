"""Features: which input cells a feature owns, for fixed kinds and for those that depend on the instance."""

import logging
import subprocess
import sys

import networkx
import numpy as np
import pytest
from sklearn.datasets import load_digits, load_sample_image

from shapeline import graphs
from shapeline.datasets import preparation
from shapeline.games import features
from tests.fixtures.failures import failure

IMAGE = {"input_shape": [3, 5, 7]}
TEXT = {"kind": "text", "input_shape": [12], "space_id": 9}
TABLE = {
    "input_shape": [4],
    "feature_names": ["a", "b", "c", "d"],
    "groups": {"first": ["a", "c"], "second": ["b", "d"]},
}


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


@pytest.mark.parametrize(
    ("side", "size", "channels", "names"),
    [
        (
            (4, 2),
            [2, 1],
            [],
            ("steps 0–1, channel 0", "steps 0–1, channel 1", "steps 2–3, channel 0", "steps 2–3, chan"),
        ),
        ((4, 2), [2, 1], ["x", "y"], ("steps 0–1, x", "steps 0–1, y", "steps 2–3, x", "steps 2–3, y")),
        ((4, 2), [3, 2], ["x", "y"], ("steps 0–2", "step 3")),
        ((2, 4), 1, ["x", "y"], ("step 0, x", "step 1, x", "step 2, x", "step 3, x", "step 0, y")),
        ((2, 4), [2, 2], [], ("steps 0–1", "steps 2–3")),
        ((3, 1), 1, [], ("step 0", "step 1", "step 2")),
        ((3, 1), 1, ["x"], ("step 0, x", "step 1, x", "step 2, x")),
        ((9, 9), 9, ["a", "b", "c", "d", "e", "f", "g", "h", "i"], ("steps 0–8",)),
        ((9, 9), 9, [], ()),
    ],
)
def test_features_of_series_are_named_by_steps_and_channels(side, size, channels, names):
    card = {"kind": "image", "input_shape": (1, *side), "has_channels": False, "feature_names": channels}
    found = features.build({"kind": "patch", "size": size}, card).names
    assert [one[: len(name)] for one, name in zip(found, names, strict=False)] == list(names)
    assert features.build({"kind": "patch", "size": size}, card | {"has_channels": True}).names == ()


def test_groups_of_breast_cancer(tmp_path):
    card = preparation.prepare("breast_cancer", {}, [], tmp_path)
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
    shape = features.find_shape(settings, tuple(card["input_shape"]), card.get("groups"))
    assert shape == features.build(settings, card).shape


@pytest.mark.parametrize(
    ("settings", "card", "words"),
    [
        ("pixle", IMAGE, "Did you mean 'pixel'?"),
        ({}, IMAGE, "unknown"),
        ({"kind": "patch", "sise": 2}, IMAGE, "Did you mean 'size'?"),
        ({"kind": "patch"}, IMAGE, "give a side"),
        ({"kind": "patch", "size": 0}, IMAGE, "1 or more"),
        ({"kind": "patch", "size": [2, 2, 2]}, IMAGE, "[height, width]"),
        ({"kind": "patch", "size": 2.0}, IMAGE, "2.0"),
        ({"kind": "patch", "size": 6}, IMAGE, "larger than the image, 5x7"),
        ("column", IMAGE, "Allowed: pixel, patch, superpixel."),
        ("pixel", TABLE, "Allowed: column, group,"),
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
    assert words in failure(features.find_shape, settings, tuple(card["input_shape"]), card.get("groups"))


def test_groups_of_a_dataset_without_its_own():
    card = {"input_shape": [4], "feature_names": ["a", "b", "c", "d"]}
    assert features.build({"kind": "group", "groups": {"x": ["a", "b"], "y": ["c", "d"]}}, card).d == 2
    assert "in no group" in failure(features.build, {"kind": "group", "groups": {"x": ["a", "b"]}}, card)


def test_the_kind_of_data_narrows_what_fits():
    assert features.find_shape("column", (4,), None, "table") == (4,)
    assert "kind text. Allowed: word, character_run." in failure(features.find_shape, "column", (4,), None, "text")
    assert "kind table. Allowed: column, group." in failure(
        features.build_for, "word", {**TABLE, "kind": "table"}, [0] * 4
    )
    assert {kind for kinds in features.CHOICES.values() for kind in kinds} <= set(features.KINDS)


def test_a_one_hot_group_is_one_feature():
    card = {
        "input_shape": [5],
        "feature_names": ["age", "colour=red", "colour=green", "colour=blue", "height"],
        "groups": {"age": ["age"], "colour": ["colour=red", "colour=green", "colour=blue"], "height": ["height"]},
    }
    built = features.build("group", card)
    assert built.d == 3 and built.names == ("age", "colour", "height")
    kept = built.expand(~np.eye(3, dtype=bool))  # each feature absent in turn
    assert kept.astype(int).tolist() == [[0, 1, 1, 1, 1], [1, 0, 0, 0, 1], [1, 1, 1, 1, 0]]


# ---- kinds that depend on the instance


def test_which_kinds_vary():
    fixed = ["pixel", {"kind": "patch", "size": 2}, "column", {"kind": "group", "groups": {"x": ["a"]}}]
    assert not any(features.is_varying(settings) for settings in fixed)
    assert all(features.is_varying(kind) for kind in ("superpixel", {"kind": "word"}, "character_run"))
    assert "Did you mean 'word'?" in failure(features.is_varying, "wrd")


@pytest.mark.parametrize(("kind", "shape"), [("superpixel", (3, 9, 9)), ("word", (12,)), ("character_run", (12,))])
def test_the_shape_of_what_varies_is_unknown(kind, shape):
    assert features.find_shape(kind, shape) is None
    assert "build_for" in failure(features.build, kind, {"input_shape": shape})


@pytest.mark.parametrize("x", [[5, 9, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0], [0] * 9 + [7, 7, 1], [3] * 12, [4] + [0] * 11])
def test_words_are_the_tokens_that_are_not_padding(x):
    built = features.build_for({"kind": "word"}, TEXT, np.array(x, np.int32))
    d = np.count_nonzero(x)
    assert built.d == d and built.shape == (d,) and built.cells.dtype == np.int32
    expected = np.full(12, -1)
    expected[np.flatnonzero(x)] = np.arange(d)
    np.testing.assert_array_equal(built.cells, expected)


@pytest.mark.parametrize(
    ("x", "expected"),
    [  # 9 is the space, 0 is padding
        ([1, 2, 9, 9, 3, 9, 4, 4, 4, 9, 0, 0], [0, 0, -1, -1, 1, -1, 2, 2, 2, -1, -1, -1]),
        ([0, 0, 9, 9, 1, 1, 9, 2, 2, 2, 2, 2], [-1, -1, -1, -1, 0, 0, -1, 1, 1, 1, 1, 1]),
        # A character outside the alphabet has become 0: the run goes on after it.
        ([1, 0, 1, 9, 2, 0, 0, 0, 0, 0, 0, 0], [0, -1, 0, -1, 1, -1, -1, -1, -1, -1, -1, -1]),
        ([7] * 12, [0] * 12),
        ([9] * 12, [-1] * 12),
    ],
)
def test_runs_of_characters_end_at_spaces(x, expected):
    built = features.build_for("character_run", TEXT, np.array(x))
    assert built.cells.tolist() == expected and built.shape == (max(expected) + 1,)
    # An absent run leaves the spaces and the padding where they are.
    for feature, kept in enumerate(built.expand(~np.eye(built.d, dtype=bool))):
        np.testing.assert_array_equal(kept, np.array(expected) != feature)


@pytest.mark.parametrize("kind", ["word", "character_run"])
def test_a_document_of_padding_has_no_feature(kind):
    built = features.build_for(kind, TEXT, np.zeros(12, np.int64))
    assert built.d == 0 and built.shape == (0,) and (built.cells == -1).all()
    assert built.expand(np.zeros((2, 0), bool)).all()


@pytest.fixture(scope="module")
def flower():
    """A photograph, (3, 80, 112) float32 in [0, 1]."""
    return np.moveaxis(load_sample_image("flower.jpg")[100:340:3, 200:536:3], 2, 0).astype(np.float32) / 255


SEGMENTATIONS = [
    "superpixel",
    {"kind": "superpixel", "segments": 100, "compactness": 20.0},
    {"kind": "superpixel", "method": "quickshift", "max_distance": 20},
]


@pytest.mark.parametrize("settings", SEGMENTATIONS)
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_superpixels_of_a_photograph(flower, settings, channels):
    x = np.concatenate([flower, flower[:1]])[:channels]
    built = features.build_for(settings, {"kind": "image", "input_shape": x.shape}, x)
    assert built.cells.shape == x.shape and built.cells.dtype == np.int32 and built.shape == (built.d,)
    np.testing.assert_array_equal(np.unique(built.cells), np.arange(built.d))  # no gap
    assert (built.cells == built.cells[0]).all()  # channels go together
    assert 5 <= built.d <= 400
    # What a segment holds is of one colour, more or less.
    owner, colours = built.cells[0].ravel(), x.reshape(channels, -1)
    means = np.stack([np.bincount(owner, colour) for colour in colours]) / np.bincount(owner)
    assert ((colours - means[:, owner]) ** 2).mean() < 0.4 * colours.var(axis=1).mean()


def filled(built):
    """Share of its bounding box that a segment fills, on average: 1 for rectangles."""
    shares = []
    for segment in range(built.d):
        rows, columns = np.nonzero(built.cells[0] == segment)
        shares.append(len(rows) / (np.ptp(rows) + 1) / (np.ptp(columns) + 1))
    return np.mean(shares)


def superpixels(x, **settings):
    return features.build_for({"kind": "superpixel", **settings}, {"input_shape": x.shape}, x)


def test_the_number_of_segments_and_their_compactness_count(flower):
    assert superpixels(flower, segments=10).d < superpixels(flower).d < superpixels(flower, segments=200).d
    assert superpixels(flower, segments=1).d == 1
    default = superpixels(flower, method="slic", segments=50, compactness=10)
    np.testing.assert_array_equal(superpixels(flower).cells, default.cells)
    # One compactness means about the same for grey, colour and any other number of channels.
    for x in (flower, flower[:1], np.concatenate([flower, flower[:1]])):
        assert filled(superpixels(x, compactness=1000)) > 0.9 > 0.75 > filled(superpixels(x))
    grey = np.repeat(flower[:1], 3, axis=0)
    np.testing.assert_array_equal(superpixels(flower[:1]).cells[0], superpixels(grey).cells[0])


def test_segments_are_numbered_without_gaps(flower, monkeypatch):
    labels = np.zeros((80, 112), int)
    labels[20:40], labels[40:] = 7, 3
    monkeypatch.setattr("skimage.segmentation.slic", lambda *_, **__: labels)
    built = superpixels(flower)
    assert built.d == 3
    np.testing.assert_array_equal(built.cells[1, [0, 30, 60], 5], [0, 2, 1])


def test_superpixels_are_the_same_on_every_run(flower, tmp_path):
    code = (
        "import sys, numpy as np; from shapeline.games import features; x = np.load(sys.argv[1])\n"
        "for i, method in enumerate(['slic', 'quickshift']):\n"
        "    settings = {'kind': 'superpixel', 'method': method}\n"
        "    cells = features.build_for(settings, {'input_shape': x.shape}, x).cells\n"
        "    np.save(sys.argv[i + 2], cells)\n"
    )
    files = [str(tmp_path / name) for name in ("x.npy", "slic.npy", "quickshift.npy")]
    np.save(files[0], flower)
    subprocess.run([sys.executable, "-c", code, *files], check=True, timeout=60)
    for method, file in zip(("slic", "quickshift"), files[1:], strict=True):
        settings = {"kind": "superpixel", "method": method}
        here = features.build_for(settings, {"input_shape": flower.shape}, flower).cells
        np.testing.assert_array_equal(here, np.load(file))


@pytest.mark.parametrize("method", ["slic", "quickshift"])
def test_superpixels_do_not_depend_on_the_range_of_pixels(flower, method):
    settings = {"method": method, **({"max_distance": 20} if method == "quickshift" else {})}
    expected = superpixels(flower, **settings)
    for other in (flower * 255, np.round(flower * 255).astype(np.uint8), flower * 2 - 1, flower * 9 - 2):
        found = superpixels(other, **settings)
        assert abs(found.d - expected.d) <= 0.1 * expected.d
    np.testing.assert_array_equal(superpixels(flower * 255, **settings).cells, expected.cells)


def test_superpixels_of_a_flat_image_and_of_small_ones(caplog):
    flat = features.build_for(
        {"kind": "superpixel", "segments": 9}, {"input_shape": (1, 12, 12)}, np.zeros((1, 12, 12))
    )
    assert flat.d == 9
    for image in load_digits().images[:5].astype(np.float32) / 16:
        built = features.build_for({"kind": "superpixel", "segments": 16}, {"input_shape": (1, 8, 8)}, image[None])
        assert 4 <= built.d <= 24 and set(built.cells.ravel()) == set(range(built.d))
        np.testing.assert_array_equal(
            superpixels(image[None]).cells, built.cells
        )  # by default four pixels or more each
    assert (
        superpixels(image[None], method="quickshift").d
        == 1
        < superpixels(image[None], method="quickshift", max_distance=2).d
    )
    assert caplog.messages == ["superpixels: quickshift finds one in the whole image; set max_distance: 2, or slic"]


@pytest.mark.parametrize(
    ("settings", "card", "x", "words"),
    [
        ({"kind": "superpixel", "segment": 9}, IMAGE, 0, "Did you mean 'segments'?"),
        ({"kind": "superpixel", "method": "slik"}, IMAGE, 0, "Did you mean 'slic'?"),
        ({"kind": "superpixel", "method": "quickshift", "segments": 9}, IMAGE, 0, "unknown for method 'quickshift'"),
        ({"kind": "superpixel", "ratio": 0.5}, IMAGE, 0, "unknown for method 'slic'"),
        ({"kind": "superpixel", "segments": 0}, IMAGE, 0, "0 is out of range; give a whole number of 1 or more"),
        ({"kind": "superpixel", "segments": 2.5}, IMAGE, 0, "2.5"),
        ({"kind": "superpixel", "segments": True}, IMAGE, 0, "True"),
        ({"kind": "superpixel", "segments": 36}, IMAGE, 0, "more than the image's 35 pixels"),
        ({"kind": "superpixel", "segments": 9, "compactness": 0}, IMAGE, 0, "0 is out of range; give a number above 0"),
        ({"kind": "superpixel", "segments": 9, "compactness": "1"}, IMAGE, 0, "'1'"),
        ({"kind": "superpixel", "method": "quickshift", "kernel_size": 0.5}, IMAGE, 0, "1 or more"),
        ("superpixel", TEXT, 0, "Allowed: word, character_run"),
        ("word", IMAGE, 0, "Allowed: pixel, patch, superpixel"),
        ({"kind": "word", "size": 2}, TEXT, 0, "'size': unknown for kind 'word'"),
    ],
)
def test_wrong_features_of_an_instance(settings, card, x, words):
    assert words in failure(features.build_for, settings, card, np.zeros(card["input_shape"]))
    assert words in failure(features.find_shape, settings, tuple(card["input_shape"]), None, card.get("kind"))


def test_wrong_instances():
    small = {"kind": "superpixel", "segments": 9}
    assert "shape (3, 7, 5); the card says (3, 5, 7)" in failure(features.build_for, small, IMAGE, np.zeros((3, 7, 5)))
    broken = np.zeros((3, 5, 7))
    broken[0, 0, 0] = np.nan
    assert "NaN" in failure(features.build_for, small, IMAGE, broken)
    for wrong in (0.5, np.nan):
        assert "not token ids" in failure(features.build_for, "word", TEXT, np.full(12, wrong))
    without = {"input_shape": [12]}
    assert "no space_id" in failure(features.build_for, "character_run", without, np.ones(12))


def test_an_instance_of_a_fixed_kind():
    built = features.build_for({"kind": "patch", "size": 3}, IMAGE, np.zeros((3, 5, 7)))
    np.testing.assert_array_equal(built.cells, features.build({"kind": "patch", "size": 3}, IMAGE).cells)


# ---- groups of instances that share their features


def test_documents_of_one_length_are_a_bucket():
    lengths = [3, 1, 12, 3, 0, 1, 3]
    inputs = np.stack([np.arange(12) < length for length in lengths]).astype(np.int32) * 5
    found = features.group_inputs("word", TEXT, inputs)
    assert [built.d for built, _ in found] == [0, 1, 3, 12]
    assert [positions.tolist() for _, positions in found] == [[4], [1, 5], [0, 3, 6], [2]]
    inputs[3] = inputs[3, ::-1]  # padded in front: another map at the same length
    found = features.group_inputs("word", TEXT, inputs)
    assert [positions.tolist() for _, positions in found] == [[4], [1, 5], [0, 6], [3], [2]]
    for built, positions in found:
        for position in positions:
            np.testing.assert_array_equal(built.cells, features.build_for("word", TEXT, inputs[position]).cells)


def test_fixed_features_are_one_bucket():
    ((built, positions),) = features.group_inputs("pixel", IMAGE, np.zeros((4, 3, 5, 7)))
    assert built.shape == (5, 7) and positions.tolist() == [0, 1, 2, 3]


def test_superpixels_are_a_bucket_each(flower):
    inputs = np.stack([flower, flower[:, ::-1], flower])
    found = features.group_inputs({"kind": "superpixel", "segments": 30}, {"input_shape": flower.shape}, inputs)
    assert sorted(positions.tolist() for _, positions in found) == [[0, 2], [1]]
    assert [built.d for built, _ in found] == sorted(built.d for built, _ in found)


# ---- graphs


def same_graph(one, other):
    return set(one.nodes) == set(other.nodes) and {*map(frozenset, one.edges)} == {*map(frozenset, other.edges)}


def test_grids_and_chains():
    assert same_graph(features.build_graph(features.build("pixel", IMAGE)), graphs.grid(5, 7))
    assert same_graph(features.build_graph(features.build({"kind": "patch", "size": 2}, IMAGE)), graphs.grid(3, 4))
    words = features.build_for("word", TEXT, np.arange(12) % 5)
    assert same_graph(features.build_graph(words), graphs.chain(9))
    runs = features.build_for("character_run", TEXT, np.array([1, 9, 2, 2, 9, 9, 3, 0, 0, 0, 0, 0]))
    assert same_graph(features.build_graph(runs), graphs.chain(3))


@pytest.mark.parametrize("kind", ["column", "group"])
def test_tables_have_no_graph(kind):
    assert "set graph to 'chain' or 'complete'" in failure(features.build_graph, features.build(kind, TABLE))


def test_superpixels_are_joined_where_they_touch(caplog):
    # 0 0 1        Neither 0 and 3 nor 1 and 2 touch but at a corner.
    # 0 4 1
    # 2 2 3
    cells = np.array([[[0, 0, 1], [0, 4, 1], [2, 2, 3]]], np.int32)
    joined = features.build_graph(features.Features("superpixel", (5,), cells))
    assert {*map(frozenset, joined.edges)} == {
        *map(frozenset, [(0, 1), (0, 2), (0, 4), (1, 4), (2, 4), (1, 3), (2, 3)])
    }
    assert not caplog.records


def test_superpixels_that_fall_apart_are_reported(caplog):
    cells = np.array([[[0, -1, 1, 1, 2]]], np.int32)
    with caplog.at_level(logging.WARNING):
        joined = features.build_graph(features.Features("superpixel", (3,), cells))
    assert set(joined.nodes) == {0, 1, 2} and {*map(frozenset, joined.edges)} == {frozenset({1, 2})}
    assert "2 components" in caplog.text


@pytest.mark.parametrize("settings", SEGMENTATIONS)
def test_the_graph_of_superpixels_against_a_loop(flower, settings):
    built = features.build_for(settings, {"input_shape": flower.shape}, flower)
    owner, expected = built.cells[0], set()
    for row in range(80):
        for column in range(112):
            for other in owner[row : row + 2, column].tolist() + owner[row, column : column + 2].tolist():
                expected |= {frozenset({int(owner[row, column]), other})}
    joined = features.build_graph(built)
    assert {*map(frozenset, joined.edges)} == {pair for pair in expected if len(pair) == 2}
    assert networkx.is_connected(joined) and sorted(joined.nodes) == list(range(built.d))


def test_shapes_are_known_without_heavy_packages():
    code = (
        "import sys; from shapeline.games import features, references\n"
        "features.is_varying('word'); features.find_shape('superpixel', (3, 90, 90)); references.parse('blur')\n"
        "heavy = {'networkx', 'skimage', 'scipy', 'pandas', 'sklearn', 'torch', 'tensorflow'} & set(sys.modules)\n"
        "sys.exit(' '.join(heavy) or 0)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert found.returncode == 0, found.stderr
