"""Images as stored: the numbers of the full array, and only the requested rows."""

import copy
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from shapeline.attribution import context, selection
from shapeline.attribution.context import parse
from shapeline.datasets import loading, preparation, sources
from shapeline.datasets.loading import StoredImages, map_array
from shapeline.games import execution, features, references
from shapeline.metrics import infidelity
from shapeline.models import architectures, training
from tests.unit import shortcuts

PIXELS = np.random.default_rng(0).integers(0, 256, (20, 3, 16, 16), dtype=np.uint8)
WHOLE = PIXELS.astype(np.float32) / np.float32(255)


@pytest.fixture
def file(tmp_path):
    np.savez(tmp_path / "arrays.npz", labels=np.arange(20), inputs=PIXELS)
    return tmp_path / "arrays.npz"


def test_a_mapped_array_is_the_stored_one(file):
    found = map_array(file, "inputs")
    assert isinstance(found, np.memmap) and not found.flags.writeable
    np.testing.assert_array_equal(found, PIXELS)
    np.testing.assert_array_equal(map_array(file, "labels"), np.arange(20))


@pytest.mark.skipif(sys.platform != "linux", reason="what a process holds is asked of Linux")
def test_the_checksum_of_a_mapped_file_needs_no_memory(tmp_path):
    np.savez(tmp_path / "large.npz", inputs=np.zeros((100, 1 << 20), np.uint8))
    program = f"""
from pathlib import Path
from shapeline.datasets import loading
def peak(): return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
before = peak()
array = loading.map_array(Path({str(tmp_path / "large.npz")!r}), "inputs")
print(len(array), peak() - before)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    rows, kilobytes = map(int, said.split())
    assert rows == 100 and kilobytes < 20_000


def test_other_orders_types_and_shapes_are_mapped(tmp_path):
    arrays = {"columns": np.asfortranarray(WHOLE[:, 0, 0]), "empty": np.zeros((0, 3), np.float64), "n": np.array(7)}
    np.savez(tmp_path / "arrays.npz", **arrays)
    for name, array in arrays.items():
        found = map_array(tmp_path / "arrays.npz", name)
        assert found.dtype == array.dtype and found.shape == array.shape
        np.testing.assert_array_equal(found, array)


def test_a_flipped_bit_and_a_compressed_file_are_refused(file, tmp_path):
    content = bytearray(file.read_bytes())
    content[content.index(PIXELS[5].tobytes()) + 7] ^= 1
    (tmp_path / "flipped.npz").write_bytes(content)
    with pytest.raises(zipfile.BadZipFile, match="CRC"):
        map_array(tmp_path / "flipped.npz", "inputs")
    np.savez_compressed(tmp_path / "small.npz", inputs=PIXELS)
    with pytest.raises(ValueError, match="inputs is compressed"):
        map_array(tmp_path / "small.npz", "inputs")
    with pytest.raises(KeyError):
        map_array(file, "inouts")


def test_rows_and_the_full_array_are_exactly_the_float32_array():
    images = StoredImages(PIXELS, 255)
    assert (images.shape, images.ndim, len(images), images.dtype) == (WHOLE.shape, 4, 20, np.float32)
    for rows in (3, slice(2, 9), np.array([5, 1, 1]), np.arange(20) % 3 == 0):
        np.testing.assert_array_equal(images[rows], WHOLE[rows])
        assert images[rows].dtype == np.float32
    np.testing.assert_array_equal(np.asarray(images), WHOLE)
    np.testing.assert_array_equal(np.concatenate(list(images.blocks(np.arange(3, 19)))), WHOLE[3:19])
    np.testing.assert_array_equal(images.only(np.array([4, 2]))[:], WHOLE[[4, 2]])
    assert images.only(np.array([4, 2])).stored.dtype == np.uint8


def test_every_other_operation_of_an_array_uses_the_full_array():
    images = StoredImages(PIXELS, 255)
    assert images.mean() == WHOLE.mean() and images.reshape(20, -1).shape == (20, 768)
    np.testing.assert_array_equal(1 - images, 1 - WHOLE)
    np.testing.assert_array_equal(images == WHOLE, True)
    np.testing.assert_array_equal(copy.deepcopy(images)[:], WHOLE)
    with pytest.raises(AttributeError):
        images.meen()


def prepared(tmp_path):
    preparation.prepare("digits", {"classes": [3, 8]}, [], tmp_path)
    lean = loading.load(tmp_path)
    return lean, loading.Dataset(lean.inputs[:], lean.labels, lean.split, lean.ids, lean.card)


def test_a_loaded_dataset_of_images_stays_as_it_is_stored(tmp_path):
    lean, whole = prepared(tmp_path)
    assert isinstance(lean.inputs, StoredImages) and isinstance(lean.part("test").inputs, np.ndarray)
    for kind in ("mean", "mean_image", "zero"):
        np.testing.assert_allclose(
            references.build(kind, lean, 0).rows, references.build(kind, whole, 0).rows, rtol=1e-7
        )


def test_the_same_model_is_trained_from_either(tmp_path):
    cards = []
    for dataset in prepared(tmp_path):
        model = architectures.build("digits_cnn")
        cards.append(training.fit(model, dataset, {"epochs": 2}, seed=1))
    assert cards[0]["test_loss"] == cards[1]["test_loss"]
    assert [epoch["loss"] for epoch in cards[0]["history"]] == [epoch["loss"] for epoch in cards[1]["history"]]


@pytest.fixture
def taken(monkeypatch) -> list[int]:
    """How many images became float32 at a time, where a block has 20."""
    counts, own = [], StoredImages.__getitem__

    def counted(images: StoredImages, rows) -> np.ndarray:
        found = own(images, rows)
        counts.append(len(found))
        return found

    monkeypatch.setattr(StoredImages, "__getitem__", counted)
    monkeypatch.setattr(loading, "BLOCK_BYTES", 20 * 64 * 4)
    return counts


def test_a_model_that_is_ready_is_measured_block_by_block(tmp_path, taken):
    lean, whole = prepared(tmp_path)
    model = architectures.build("digits_cnn")
    taken.clear()
    card = architectures.measure_card(model, lean)
    assert card["rows"] == {part: len(lean.part(part).labels) for part in sources.PARTS}
    lean_only = taken[: -len(sources.PARTS)]
    assert sum(lean_only) == card["rows"]["validation"] + card["rows"]["test"] and max(lean_only) == 20
    own = whole.part("test")
    assert card == architectures.measure_card(model, whole)
    assert card["test_accuracy"] == (model.predict(own.inputs) == own.labels).mean()


def test_sensitivity_holds_only_the_explained_images_in_memory(tmp_path, taken):
    lean, whole = prepared(tmp_path)
    taken.clear()
    settings = {"method": {"method": "occlusion"}, "features": {"kind": "patch", "size": 4}, "seed": 0}
    found = []
    for data in (lean, whole):
        kinds, zero = features.build(settings["features"], data.card), references.build("zero", data, 0)
        subject = context.ExplanationContext(
            architectures.build("digits_cnn", seed=0), data, kinds, zero, settings["features"]
        )
        share = selection.select(subject, seed=0, count=3)
        rows = shortcuts.explain_rows(subject, share, settings, "label", execution.ExecutionBackend())
        found.append(infidelity.measure_sensitivity(rows, subject, share, parse(settings), "label", samples=2)["value"])
        if data is lean:
            assert max(taken) == 20
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4)
