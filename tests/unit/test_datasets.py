"""Sources, prepare() and load(): the right records, the same in every run, and one clear line for bad data."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from shapeline.datasets import checks, loading, preparation, registry, sources
from shapeline.datasets import mnist as official_mnist
from shapeline.errors import ShapelineError
from tests.fixtures import builders, failures

ROOT = Path(__file__).resolve().parents[2]
REAL = Path(os.environ.get("SHAPELINE_DATA", ROOT.parent / "shared" / "data")) / "mnist"
needs_real_mnist = pytest.mark.skipif(
    not all((REAL / name).is_file() for name in builders.MNIST_FILES),
    reason=f"the official MNIST files are not in {REAL} (set SHAPELINE_DATA to the folder of real data)",
)
TABLE = (
    "return {'inputs': np.arange(40.0).reshape(20, 2), 'labels': np.arange(20) % 2,\n"
    "        'feature_names': ['age', 'dose'], 'class_names': ['well', 'ill'],\n"
    "        'groups': {'all': ['age', 'dose']}}"
)


failure = partial(failures.failure, preparation.prepare)


def local(folder, **settings) -> dict:
    return {"path": str(folder), **settings}


@pytest.fixture
def mnist(tmp_path):
    folder = tmp_path / "files"
    builders.write_mnist(folder)
    return folder


@pytest.fixture
def own(tmp_path):
    """Writes a user's source with the given body and returns the text that names it."""
    return lambda body=TABLE: builders.write_own_source(tmp_path / "own.py", body)


# ---- the table of sources


def test_importing_is_light():
    code = (
        "import sys, shapeline.datasets.preparation, shapeline.games.features, shapeline.games.references\n"
        "import shapeline.datasets.fetch, shapeline.datasets.loading\n"
        "heavy = [m for m in ('torch', 'tensorflow', 'pandas', 'pyarrow', 'sklearn', 'scipy') if m in sys.modules]\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_table_agrees_with_scikit_learn():
    from sklearn.datasets import load_breast_cancer, load_digits

    bunch, source = load_breast_cancer(), registry.SOURCES["breast_cancer"]
    assert source.feature_names == tuple(bunch.feature_names)
    assert source.classes == tuple(bunch.target_names)
    assert len(source.groups) == 10
    assert sorted(column for members in source.groups.values() for column in members) == sorted(bunch.feature_names)
    for name, members in source.groups.items():
        assert members == (f"mean {name}", f"{name} error", f"worst {name}")
    assert registry.SOURCES["digits"].input_shape == (1, *load_digits().images.shape[1:])


def test_unknown_source_names_the_nearest(tmp_path):
    assert "Did you mean 'mnist'?" in failure("minst", {}, [], tmp_path)
    assert "path/to/file.py:function" in failure("elsewhere", {}, [], tmp_path)


# ---- the embedded sources


def test_digits_all_ten(tmp_path):
    card = preparation.prepare("digits", {}, [], tmp_path / "digits")
    data = loading.load(tmp_path / "digits")
    assert data.inputs.shape == (1797, 1, 8, 8) and data.inputs.dtype == np.float32
    assert data.inputs.min() == 0 and data.inputs.max() == 1
    assert card["scale"] == 16 and card["name"] == "digits" and card["classes"] == list("0123456789")
    assert data.labels.dtype == data.ids.dtype == np.int64 and data.split.dtype == np.uint8
    assert (data.ids == np.arange(1797)).all()
    with np.load(tmp_path / "digits" / "arrays.npz") as stored:
        assert stored["inputs"].dtype == np.uint8
    from sklearn.datasets import load_digits

    np.testing.assert_array_equal(data.inputs[:, 0] * 16, load_digits().images)
    np.testing.assert_array_equal(data.labels, load_digits().target)


def test_digits_three_and_eight(tmp_path):
    card = preparation.prepare("digits", {"classes": [8, "3"], "seed": 1}, [], tmp_path)
    data = loading.load(tmp_path)
    from sklearn.datasets import load_digits

    assert card["classes"] == ["8", "3"]
    np.testing.assert_array_equal(np.array([8, 3])[data.labels], load_digits().target[data.ids])
    assert len(data.ids) == 357
    assert card["records"] == {"read": 1797, "skipped_other_classes": 1440, "odd_outside_unit_range": 0}


def test_the_digits_that_come_with_the_package(tmp_path, monkeypatch):
    card = preparation.prepare("mnist_small", {}, [], tmp_path / "digits")
    data = loading.load(tmp_path / "digits")
    assert data.inputs.shape == (400, 1, 28, 28) and card["classes"] == ["3", "8"] and "CC BY-SA" in card["licence"]
    assert card["counts"]["test"] == {"3": 50, "8": 50} and sum(card["counts"]["train"].values()) == 270
    # A three is open on the left: there is less ink than in an eight.
    left = data.inputs[:, 0, 8:22, 6:12].mean(axis=(1, 2))
    assert left[data.labels == 0].mean() < 0.7 * left[data.labels == 1].mean()
    assert len(np.unique(data.inputs.reshape(400, -1), axis=0)) == 400
    monkeypatch.setattr(official_mnist, "SHEET_SHA256", "0" * 64)
    assert "missing or changed; get it again" in failure("mnist_small", {}, [], tmp_path / "out")


@needs_real_mnist
def test_they_are_the_official_ones():
    paths = {name: REAL / name for name in builders.MNIST_FILES}
    official, ours = official_mnist.read(paths), official_mnist.read_small({})
    for row, (part, label) in zip(
        np.split(ours["inputs"], [150, 300, 350]), [(0, 3), (0, 8), (2, 3), (2, 8)], strict=True
    ):
        chosen = np.flatnonzero((official["split"] == part) & (official["labels"] == label))[: len(row)]
        np.testing.assert_array_equal(official["inputs"][chosen], row)


def test_breast_cancer(tmp_path):
    card = preparation.prepare("breast_cancer", {}, [], tmp_path)
    data = loading.load(tmp_path)
    assert data.inputs.shape == (569, 30)
    assert card["kind"] == "table" and card["scale"] == 1
    assert card["groups"]["concave points"] == ["mean concave points", "concave points error", "worst concave points"]
    assert {part: sum(classes.values()) for part, classes in card["counts"].items()} == {
        "train": 358,
        "validation": 40,
        "test": 171,
    }
    # 357 of 569 are benign; every part keeps that share to within one record.
    for name in sources.PARTS:
        labels = data.part(name).labels
        assert abs(labels.sum() - len(labels) * 357 / 569) <= 1


# ---- splits


def test_the_same_arguments_write_the_same_bytes(tmp_path):
    for folder in ("one/digits", "two/digits"):
        preparation.prepare("digits", {"classes": [3, 8], "seed": 5}, [], tmp_path / folder)
    for name in ("arrays.npz", "card.json"):
        assert (tmp_path / "one/digits" / name).read_bytes() == (tmp_path / "two/digits" / name).read_bytes()


def test_known_records_stay_in_their_parts(tmp_path):
    # A change of the drawing would silently change every published number; these are the ids of the first run.
    preparation.prepare("digits", {}, [], tmp_path)
    data = loading.load(tmp_path)
    assert data.part("test").ids[:8].tolist() == [1, 2, 4, 5, 7, 17, 20, 21]
    assert data.part("validation").ids[:5].tolist() == [8, 29, 31, 71, 74]


def test_settings_of_a_job_may_be_tuples_paths_and_versions(tmp_path):
    settings = {
        "path": tmp_path,
        "header": ("a", "b"),
        "target": "b",
        "seed": 3,
        "code": "c0de",
        "versions": {"numpy": "2"},
    }
    dataset = checks.read_entry("table_file", settings)
    assert (dataset.path, dataset.header, dataset.seed) == (str(tmp_path), ["a", "b"], 3)
    assert "'limits.membr': unknown key. Did you mean" in failure("digits", {"limits": {"membr": 3}}, [], tmp_path)


def test_another_seed_samples_other_records(tmp_path):
    for seed in (0, 1):
        preparation.prepare("digits", {"seed": seed}, [], tmp_path / str(seed))
    first, second = (loading.load(tmp_path / seed) for seed in "01")
    assert (first.split != second.split).any()
    assert first.card["counts"] == second.card["counts"]


def test_a_record_keeps_its_part_whichever_classes_are_chosen(tmp_path):
    preparation.prepare("digits", {}, [], tmp_path / "all")
    preparation.prepare("digits", {"classes": [8, 3]}, [], tmp_path / "two")
    every, two = loading.load(tmp_path / "all"), loading.load(tmp_path / "two")
    np.testing.assert_array_equal(every.split[two.ids], two.split)


def test_fractions(tmp_path):
    preparation.prepare("digits", {"test": 0.5, "validation": 0.2}, [], tmp_path)
    data = loading.load(tmp_path)
    n, n_test = len(data.ids), len(data.part("test").ids)
    assert n_test == pytest.approx(n / 2, abs=5)
    assert len(data.part("validation").ids) == pytest.approx((n - n_test) / 5, abs=5)
    preparation.prepare("digits", {"validation": 0}, [], tmp_path)
    assert len(loading.load(tmp_path).part("validation").ids) == 0


@pytest.mark.parametrize(
    ("source", "settings", "words"),
    [
        ("digits", {"validation": 1}, "1 is not valid; input should be less than 1"),
        ("digits", {"test": 0}, "0 is not valid; input should be greater than 0"),
        ("digits", {"test": "0.3"}, "'0.3' is text to YAML; write 0.3 without quotes"),
        ("digits", {"seed": 0.5}, "0.5 is not valid; give a whole number"),
        ("digits", {"clases": [3, 8]}, "Did you mean 'classes'?"),
        ("digits", {"classes": [3]}, "should have at least 2 items"),
        ("digits", {"classes": [3, 3]}, "listed twice"),
        ("digits", {"classes": [3, 10]}, "10 is not one of them"),
        ("digits", {"classes": [3, True]}, "True is a bare yes, on or true to YAML; write it in quotes"),
        ("breast_cancer", {"classes": ["benign", "malignent"]}, "Did you mean 'malignant'?"),
        ("digits", {"path": "somewhere"}, "needs no file"),
        ("mnist", {"test": 0.2}, "official test part"),
        ("digits", {"source": "mnist"}, "another source"),
    ],
)
def test_wrong_settings(source, settings, words, tmp_path):
    assert words in failure(source, settings, [], tmp_path)


# ---- MNIST


def test_mnist_keeps_the_official_split(mnist, tmp_path):
    card = preparation.prepare("mnist", local(mnist, classes=[3, 8]), [], tmp_path / "out")
    data = loading.load(tmp_path / "out")
    assert data.inputs.shape == (32, 1, 28, 28)
    assert card["counts"]["test"] == {"3": 4, "8": 4}
    assert card["counts"]["validation"] == {"3": 1, "8": 1}
    np.testing.assert_array_equal(data.split == sources.TEST, data.ids >= 120)
    # The bright row of an image tells its class.
    np.testing.assert_array_equal(data.inputs[:, 0, :, 10].argmax(axis=1), 4 + 2 * np.array([3, 8])[data.labels])
    assert data.inputs.max() == np.float32(250 / 255)


def test_mnist_without_gz_and_from_a_variable(mnist, tmp_path, monkeypatch):
    for path in list(mnist.iterdir()):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    monkeypatch.setenv("FOLDER_FOR_TEST", str(tmp_path))
    card = preparation.prepare("mnist", {"path": "${FOLDER_FOR_TEST}/files"}, [], tmp_path / "out")
    assert sum(card["counts"]["test"].values()) == 40
    assert card["settings"] == {"path": "${FOLDER_FOR_TEST}/files"}
    assert "NOT_SET_FOR_TEST is not set" in failure("mnist", {"path": "$NOT_SET_FOR_TEST/x"}, [], tmp_path)


def test_raw_files_are_verified(mnist, tmp_path):
    paths = sorted(mnist.iterdir())
    message = failure("mnist", {}, paths, tmp_path / "out")
    assert "f68b3c2dcbeaaa9fbdd348bbdeb94873" in message or "9fb629c4189551a2d022fa330f9573f3" in message
    assert not (tmp_path / "out").exists()
    assert "train-images-idx3-ubyte.gz is missing" in failure("mnist", {}, paths[:1], tmp_path)


def test_mnist_path_faults(mnist, tmp_path):
    assert "is not a folder" in failure("mnist", local(tmp_path / "nowhere"), [], tmp_path)
    (mnist / "t10k-labels-idx1-ubyte.gz").unlink()
    assert "holds no t10k-labels-idx1-ubyte.gz" in failure("mnist", local(mnist), [], tmp_path)


@pytest.mark.parametrize(
    ("name", "array", "words"),
    [
        ("t10k-labels-idx1-ubyte.gz", np.r_[np.arange(39) % 10, 10], "record 39 has the label 10"),
        ("t10k-labels-idx1-ubyte.gz", np.arange(39) % 10, "39 labels"),
        ("train-images-idx3-ubyte.gz", np.zeros((120, 28, 27)), "28x27"),
        ("train-images-idx3-ubyte.gz", np.zeros(120), "magic number 2049, expected 2051); it holds labels"),
    ],
)
def test_mnist_bad_content(name, array, words, mnist, tmp_path):
    builders.write_idx(mnist / name, array)
    message = failure("mnist", local(mnist), [], tmp_path / "out")
    assert words in message and name in message
    assert not (tmp_path / "out").exists()


def test_mnist_damaged_files(mnist, tmp_path):
    path = mnist / "train-images-idx3-ubyte.gz"
    good = path.read_bytes()
    for damaged in (good[:-500], good[:4000] + b"\0" * 10 + good[4010:], good[:10] + b"\xff" * 20 + good[30:]):
        path.write_bytes(damaged)
        message = failure("mnist", local(mnist), [], tmp_path / "out")
        assert "truncated or damaged" in message and path.name in message
    path.write_bytes(gzip.compress(gzip.decompress(good)[:-1]))
    assert "94,095 bytes, but its header promises 94,096" in failure("mnist", local(mnist), [], tmp_path / "out")
    for damaged in (b"", gzip.compress(b""), b"<html>not found</html>"):
        path.write_bytes(damaged)
        assert "not the expected IDX file" in failure("mnist", local(mnist), [], tmp_path / "out")
    builders.write_idx(path, np.zeros((1, 28, 28)), magic=0x0D03)
    assert "magic number 3331" in failure("mnist", local(mnist), [], tmp_path / "out")


def test_a_class_without_records(tmp_path):
    # Ten training images hold one of each digit; five hold none of 5 to 9.
    builders.write_mnist(tmp_path / "files", n_train=5, n_test=10)
    settings = local(tmp_path / "files", classes=[3, 8])
    message = failure("mnist", settings, [], tmp_path / "out")
    assert "class '8' has 1 record(s), none of them in the training part" in message
    builders.write_mnist(tmp_path / "files", n_train=5, n_test=5)
    assert "class '8' has no record" in failure(
        "mnist", local(tmp_path / "files", classes=[3, 8]), [], tmp_path / "out"
    )
    builders.write_mnist(tmp_path / "files", n_train=10, n_test=3)
    assert "test part is empty" in failure("mnist", settings, [], tmp_path / "out")


@needs_real_mnist
def test_real_mnist(tmp_path):
    settings = {"classes": [3, 8]}
    card = preparation.prepare("mnist", settings, [REAL / name for name in builders.MNIST_FILES], tmp_path / "mnist38")
    data = loading.load(tmp_path / "mnist38")
    counts = card["counts"]
    assert counts["test"] == {"3": 1010, "8": 974}
    assert {name: counts["train"][name] + counts["validation"][name] for name in "38"} == {"3": 6131, "8": 5851}
    assert sum(counts["validation"].values()) == 1198
    assert len(data.ids) == 11_982 + 1_984 and data.ids.max() < 70_000
    assert card["records"]["read"] == 70_000
    # The usual figures of the whole set, 0.1307 and 0.3081, are of all ten digits; this is their 3 and 8 part.
    assert data.inputs[data.split != sources.TEST].mean() == pytest.approx(0.1459, abs=2e-3)
    shutil.rmtree(tmp_path / "mnist38")


# ---- a user's own source


def test_own_table(own, tmp_path):
    card = preparation.prepare(own(), {}, [], tmp_path / "out")
    data = loading.load(tmp_path / "out")
    assert card["kind"] == "table" and card["feature_names"] == ["age", "dose"] and card["classes"] == ["well", "ill"]
    assert card["groups"] == {"all": ["age", "dose"]}
    np.testing.assert_array_equal(data.inputs, np.arange(40.0).reshape(20, 2))
    assert len(data.part("test").ids) == 6 and len(data.part("validation").ids) == 2


def test_own_images_labels_and_split_by_name(own, tmp_path):
    body = (
        "return {'inputs': np.full((6, 5, 4), 51, np.uint8), 'labels': list('babaab'),\n"
        "        'split': ['train', 'train', 'train', 'validation', 'test', 'test']}"
    )
    card = preparation.prepare(own(body), {}, [], tmp_path / "out")
    data = loading.load(tmp_path / "out")
    assert card["kind"] == "image" and card["input_shape"] == [1, 5, 4] and card["scale"] == 255
    assert np.allclose(data.inputs, 0.2)
    assert data.labels.tolist() == [1, 0, 1, 0, 0, 1] and data.split.tolist() == [0, 0, 0, 1, 2, 2]
    assert "own split" in failure(own(body), {"test": 0.2}, [], tmp_path)
    assert "own validation" in failure(own(body), {"validation": 0.2}, [], tmp_path)


def test_own_reads_a_frame_at_a_path(own, tmp_path):
    (tmp_path / "rows.csv").write_text("age,dose,label\n" + "".join(f"{i},{i / 2},{i % 2}\n" for i in range(12)))
    body = (
        "import pandas as pd\n"
        "frame = pd.read_csv(path)\n"
        "return {'inputs': frame[['age', 'dose']], 'labels': frame['label']}"
    )
    source = own(body)
    card = preparation.prepare(source, local(tmp_path / "rows.csv"), [], tmp_path / "out")
    assert card["feature_names"] == ["age", "dose"] and card["classes"] == ["0", "1"]
    (tmp_path / "rows.csv").write_text("age,dose,label\n1,2,0\n3,,1\n4,5,0\n6,,1\n")
    message = failure(source, local(tmp_path / "rows.csv"), [], tmp_path / "out")
    assert "rows.csv" in message and "record 1, column 'dose' is nan" in message and "(2 record(s)" in message
    assert "there is nothing at" in failure(source, local(tmp_path / "none.csv"), [], tmp_path / "out")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return 3", "returned int"),
        ("return {'labels': [0, 1]}", "no 'inputs'"),
        ("return {'inputs': np.eye(4), 'label': [0, 1, 0, 1]}", "Did you mean 'labels'?"),
        ("return {'inputs': np.eye(4), 'labels': [0, 1, 0]}", "3 labels for 4 inputs"),
        ("return {'inputs': np.eye(4), 'labels': [0, 1, 0, -1]}", "record 3 has the label -1"),
        ("return {'inputs': np.eye(4), 'labels': [0, 1, 0, .5]}", "record 3 has the label 0.5"),
        ("return {'inputs': np.eye(4), 'labels': [0, 1, 0, np.nan]}", "record 3 has the label nan"),
        ("return {'inputs': np.eye(4), 'labels': [0, 1, 0, 2], 'class_names': 'ab'}", "class indices 0 to 1"),
        ("return {'inputs': np.eye(4), 'labels': list('abac'), 'class_names': 'ab'}", "record 3 has the label 'c'"),
        ("return {'inputs': np.eye(4), 'labels': [1, 2, 1, 2]}", "class '0' has no record"),
        ("return {'inputs': np.eye(4), 'labels': [0, 1, 0, 1], 'feature_names': 'abc'}", "3 feature_names"),
        ("return {'inputs': np.eye(4), 'labels': [0, 1, 0, 1], 'feature_names': 'aabc'}", "are equal"),
        ("return {'inputs': np.eye(4), 'labels': [0, 1, 0, 1], 'split': [0, 0, 1, 3]}", "record 3 has the split 3"),
        ("return {'inputs': np.eye(4), 'labels': [0, 1, 0, 1], 'kind': 'tabel'}", "Did you mean 'table'?"),
        ("return {'inputs': [['a', 1.0]], 'labels': [0]}", "not an array of numbers"),
        ("return {'inputs': np.zeros((4, 8, 8, 3)), 'labels': [0, 1, 0, 1]}", "channels last"),
        ("return {'inputs': np.zeros((4, 8, 8), int), 'labels': [0, 1, 0, 1]}", "return uint8"),
        (
            "return {'inputs': np.zeros((4, 8, 8), int), 'labels': [0, 1, 0, 1], 'scale': 0}",
            "not positive; give a number above 0",
        ),
        ("return {'inputs': np.zeros(4), 'labels': [0, 1, 0, 1]}", "(4,)"),
        ("return {'inputs': np.zeros((0, 4)), 'labels': []}", "(0, 4)"),
        (
            "x = np.zeros((4, 2, 2)); x[2, 1, 0] = np.inf\nreturn {'inputs': x, 'labels': [0, 1, 0, 1]}",
            "(0, 1, 0) is inf",
        ),
    ],
)
def test_own_bad_data(body, words, own, tmp_path):
    assert words in failure(own(body), {}, [], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_own_float_images_outside_the_unit_range_are_counted(own, tmp_path):
    body = "x = np.zeros((6, 2, 2)); x[[1, 4], 0, 0] = -1, 2\nreturn {'inputs': x, 'labels': np.arange(6) % 2}"
    assert preparation.prepare(own(body), {}, [], tmp_path)["records"]["odd_outside_unit_range"] == 2


def test_own_function_faults(own, tmp_path):
    source = own()
    assert "Did you mean 'records'?" in failure(source.replace(":records", ":record"), {}, [], tmp_path)
    assert "there is no file" in failure("nowhere/own.py:records", {}, [], tmp_path)
    assert "path/to/file.py:function" in failure(source.removesuffix(":records"), {}, [], tmp_path)
    file = Path(source.removesuffix(":records"))
    file.write_text("def records():\n    pass\n\n\ndef with_path(path):\n    pass\n")
    assert "takes no path" in failure(source, local(tmp_path), [], tmp_path)
    assert "needs a path" in failure(f"{file}:with_path", {}, [], tmp_path)


# ---- files


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    def full_disk(stream, **arrays):
        stream.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full_disk)
    assert "No space left on device" in failure("digits", {}, [], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_load_faults(tmp_path):
    def load_failure():
        with pytest.raises(ShapelineError) as caught:
            loading.load(tmp_path)
        return str(caught.value)

    assert "is missing" in load_failure()
    preparation.prepare("digits", {"classes": [3, 8]}, [], tmp_path)
    arrays, card = tmp_path / "arrays.npz", tmp_path / "card.json"
    good_arrays, good_card = arrays.read_bytes(), card.read_text()
    arrays.write_bytes(good_arrays[:5000])
    assert "damaged" in load_failure()
    arrays.write_bytes(good_arrays)
    card.write_text(good_card[:50])
    assert "damaged" in load_failure()
    card.write_text(json.dumps({**json.loads(good_card), "input_shape": [1, 9, 9]}))
    assert "disagree" in load_failure()
    card.write_text(good_card)
    assert len(loading.load(tmp_path).ids) == 357


def test_unknown_part(tmp_path):
    preparation.prepare("digits", {"classes": [3, 8]}, [], tmp_path)
    with pytest.raises(ShapelineError, match="Did you mean 'train'"):
        loading.load(tmp_path).part("trian")
