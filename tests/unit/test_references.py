"""References: the replacement of masked features."""

import numpy as np
import pandas as pd
import pytest

import shapeline
from shapeline.datasets.loading import Dataset
from shapeline.games import references
from tests.fixtures.failures import failure


def dataset(inputs, split, dtype=np.float32, **card) -> Dataset:
    inputs, n = np.asarray(inputs, dtype), len(split)
    return Dataset(inputs, np.zeros(n, np.int64), np.array(split, np.uint8), np.arange(n), card)


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


def test_a_mean_omits_missing_cells_as_that_of_a_data_frame_does():
    """A single missing cell made the baseline of its whole column missing."""
    rows = np.array([[1.0, 2, np.nan], [3, np.nan, np.nan], [8, 4, np.nan]])
    found = references.build("mean", dataset(rows, [0, 0, 0]), 0).rows
    np.testing.assert_array_equal(found, [[4, 3, np.nan]])

    def model(rows):
        return np.nan_to_num(np.asarray(rows, float), nan=9) @ [1.0, 10, 100]

    arrays, frames = (
        shapeline.explain(model, given[:1], "shapley", background=given, reference="mean", value="prediction")
        for given in (rows, pd.DataFrame(rows))
    )
    assert arrays.base_values == frames.base_values == [4 + 30 + 900]
    np.testing.assert_allclose(arrays.scores, frames.scores)


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
    assert len(large) == references.KINDS["background"]["rows"]
    assert set(small) < set(large) and set(small) != set(other)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("meen", "Did you mean 'mean'?"),
        ({"kind": "background", "row": 3}, "Did you mean 'rows'?"),
        ({"kind": "zero", "rows": 3}, "unknown for kind 'zero'"),
        ({"kind": "background", "rows": 0}, "1 or more"),
        ({"kind": "background", "rows": 2.5}, "2.5"),
        ({"kind": "background", "rows": 6}, "needs 6 training row(s) and has 5"),
        ({"kind": "blur", "sigma": 0}, "0 is out of range; give a number of pixels above 0"),
        ({"kind": "blur", "sigma": "2"}, "'2'"),
        ({"kind": "blur", "sigma": True}, "True"),
        ({"kind": "blur", "sigm": 2}, "Did you mean 'sigma'?"),
        ({"kind": "pad", "id": -1}, "0 or more"),
        ({"kind": "pad", "id": 1.5}, "1.5"),
        ("pad", "not tokens; use zero or mean"),
        ("array", "None is out of range; give the path"),
    ],
)
def test_wrong_references(settings, words, images):
    assert words in failure(references.build, settings, images, 0)


def test_a_training_part_is_needed():
    assert "needs 1 training row(s) and has 0" in failure(references.build, "mean", dataset([[1.0]], [2]), 0)


# ---- tokens


@pytest.fixture
def documents():
    return dataset([[5, 3, 0, 0], [8, 8, 8, 2], [1, 0, 0, 0], [9, 9, 9, 9]], [0, 0, 0, 2], np.int32)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_tokens_keep_their_integers(dtype):
    text = dataset([[5, 3, 0, 0], [8, 8, 8, 2]], [0, 0], dtype)
    for settings, expected in (("pad", 0), ({"kind": "pad", "id": 7}, 7), ("zero", 0)):
        rows = references.build(settings, text, 0).rows
        assert rows.dtype == dtype and rows.tolist() == [[expected] * 4]
    rows = references.build({"kind": "background", "rows": 2}, text, 0).rows
    assert rows.dtype == dtype and rows.tolist() == text.inputs.tolist()


def test_a_padding_id_beyond_the_type():
    assert "300 does not fit" in failure(references.build, {"kind": "pad", "id": 300}, dataset([[1]], [0], np.uint8), 0)


@pytest.mark.parametrize("kind", ["mean", "mean_value", "mean_image", "blur"])
def test_tokens_have_no_mean(kind, documents):
    assert "use pad" in failure(references.build, kind, documents, 0)


# ---- of each instance


@pytest.mark.parametrize("kind", ["zero", "mean", {"kind": "background", "rows": 3}])
def test_shared_rows_are_the_same_for_all(images, kind):
    built = references.build(kind, images, 0)
    of = built.of(images.inputs[:4])
    assert of.shape == (1, len(built.rows), 2, 3, 4)
    np.testing.assert_array_equal(of[0], built.rows)


@pytest.fixture
def pictures():
    inputs = np.random.default_rng(3).random((5, 3, 20, 28))
    return dataset(inputs, [0, 0, 1, 2, 2], scale=255)


def gaussian(image: np.ndarray, sigma: float) -> np.ndarray:
    """Blur by a dense matrix per side; outside the image its nearest pixel counts."""

    def weights(side: int) -> np.ndarray:
        reach = int(4 * sigma + 0.5)
        bell = np.exp(-((np.arange(-reach, reach + 1) / sigma) ** 2) / 2)
        table = np.zeros((side, side))
        for centre in range(side):
            for offset, weight in zip(range(-reach, reach + 1), bell / bell.sum(), strict=True):
                table[centre, np.clip(centre + offset, 0, side - 1)] += weight
        return table

    return weights(image.shape[0]) @ image @ weights(image.shape[1]).T


@pytest.mark.parametrize(("settings", "sigma"), [({"kind": "blur", "sigma": 1.5}, 1.5), ("blur", 2.5)])
def test_blur_is_each_images_own(pictures, settings, sigma):
    built = references.build(settings, pictures, 0)
    rows = built.of(pictures.inputs)
    assert rows.shape == (5, 1, 3, 20, 28) and rows.dtype == np.float32 and built.rows is None
    for image, row in zip(pictures.inputs, rows[:, 0], strict=True):
        for channel in range(3):
            np.testing.assert_allclose(row[channel], gaussian(image[channel], sigma), atol=1e-6)


def test_a_blur_does_not_depend_on_its_neighbours(pictures):
    built = references.build("blur", pictures, 0)
    together = built.of(pictures.inputs)
    for i in range(5):
        np.testing.assert_array_equal(together[i], built.of(pictures.inputs[i : i + 1])[0])


def test_blur_keeps_a_flat_image_and_flattens_any_other(pictures):
    flat = np.full((1, 3, 20, 28), 0.3, np.float32)
    np.testing.assert_allclose(references.build("blur", pictures, 0).of(flat)[:, 0], flat, atol=1e-6)
    spreads = [
        references.build({"kind": "blur", "sigma": sigma}, pictures, 0).of(pictures.inputs).std()
        for sigma in (0.3, 1, 9)
    ]
    assert pictures.inputs.std() > spreads[0] > 2 * spreads[1] > 4 * spreads[2]


def test_a_table_cannot_be_blurred():
    assert "not images" in failure(references.build, "blur", dataset([[1.0]], [0]), 0)


# ---- the user's own array


def write(folder, array, name="own.npy") -> dict:
    (np.savez if name.endswith("z") else np.save)(folder / name, array)
    return {"kind": "array", "path": str(folder / name)}


def test_an_array_of_one_input_and_of_several(pictures, tmp_path, monkeypatch):
    one = np.random.default_rng(1).random((3, 20, 28))  # float64
    for name in ("own.npy", "own.npz"):
        rows = references.build(write(tmp_path, one, name), pictures, 0).rows
        assert rows.shape == (1, 3, 20, 28) and rows.dtype == np.float32
        np.testing.assert_array_equal(rows[0], one.astype(np.float32))
    many = np.random.default_rng(1).random((7, 3, 20, 28))
    rows = references.build(write(tmp_path, many), pictures, 0).rows
    np.testing.assert_array_equal(rows, many.astype(np.float32))
    monkeypatch.setenv("OWN_FOLDER", str(tmp_path))
    settings = {"kind": "array", "path": "${OWN_FOLDER}/own.npy"}
    np.testing.assert_array_equal(references.build(settings, pictures, 0).rows, rows)


def test_an_array_of_tokens(documents, tmp_path):
    rows = references.build(write(tmp_path, np.array([7.0, 7, 7, 1])), documents, 0).rows
    assert rows.dtype == np.int32 and rows.tolist() == [[7, 7, 7, 1]]
    for wrong in ([0.5, 0, 0, 0], [2.0**40, 0, 0, 0]):
        assert "whole numbers" in failure(references.build, write(tmp_path, np.array(wrong)), documents, 0)


SHAPE = (3, 20, 28)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((20, 28)), "shape (20, 28); one input has (3, 20, 28), rows have (M, 3, 20, 28)"),
        (np.zeros((0, *SHAPE)), "shape (0, 3, 20, 28)"),
        (np.zeros((2, 2, *SHAPE)), "shape (2, 2, 3, 20, 28)"),
        (np.full(SHAPE, np.nan), "1680 value(s) are NaN or infinite"),
        (np.where(np.arange(28) == 5, np.inf, 0) * np.ones(SHAPE), "60 value(s) are NaN or infinite"),
        (np.full(SHAPE, 1e300), "infinite"),
        (np.zeros(SHAPE, complex), "complex128; give numbers"),
        (np.full(SHAPE, "a"), "give numbers"),
        (np.full(SHAPE, 255, np.uint8), "reaches 255, but the inputs are divided by 255"),
    ],
)
def test_wrong_arrays(array, words, pictures, tmp_path):
    settings = write(tmp_path, array)
    message = failure(references.build, settings, pictures, 0)
    assert words in message and settings["path"] in message


def test_wrong_files(pictures, tmp_path, monkeypatch):
    def told(name):
        return failure(references.build, {"kind": "array", "path": str(tmp_path / name)}, pictures, 0)

    assert "no such file" in told("none.npy")
    (tmp_path / "text.npy").write_text("1 2 3")
    assert "not a .npy or .npz array" in told("text.npy")
    (tmp_path / "empty.npy").write_bytes(b"")
    assert "not a .npy or .npz array" in told("empty.npy")
    assert "not a .npy or .npz array" in told("")  # a folder
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)  # a pickle is never loaded
    assert "not a .npy or .npz array" in told("objects.npy")
    np.savez(tmp_path / "two.npz", first=np.zeros(SHAPE), second=np.zeros(SHAPE))
    assert "2 arrays (first, second); keep one" in told("two.npz")
    noise = np.random.default_rng(0).integers(0, 9, (4, *SHAPE)) / 10
    np.savez_compressed(tmp_path / "whole.npz", noise)
    content = (tmp_path / "whole.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(content[: len(content) // 2])
    assert "not a .npy or .npz array" in told("cut.npz")
    for share in range(2, 9):  # bytes that no longer decode, or decode to others
        spoilt = bytearray(content)
        place = len(content) * share // 10
        spoilt[place : place + 8] = b"\xff" * 8
        (tmp_path / "spoilt.npz").write_bytes(bytes(spoilt))
        assert "not a .npy or .npz array" in told("spoilt.npz")
    monkeypatch.delenv("NOT_SET", raising=False)
    assert "NOT_SET is not set" in failure(references.build, {"kind": "array", "path": "$NOT_SET/a.npy"}, pictures, 0)
