"""CIFAR-10's binary archive and custom images in class folders: the right pixels, or one clear line."""

import gzip
import io
import itertools
import lzma
import os
import runpy
import shutil
import tarfile
import zipfile
from functools import partial

import numpy as np
import pytest
import yaml

from shapeline.config import derived, mistakes, validation
from shapeline.datasets import checks, images, loading, preparation, registry, sources
from shapeline.errors import ShapelineError
from shapeline.workflow import runs
from shapeline.workflow.jobs import prepare_settings
from tests.fixtures import failures, picture_files, text_files
from tests.fixtures.picture_files import COLOURS, encoded, painted

failure = partial(failures.failure, preparation.prepare)


def prepared(tmp_path, source, path, **settings):
    folder = tmp_path / "prepared" / source
    card = preparation.prepare(source, {"path": str(path), **settings}, [], folder)
    return card, loading.load(folder)


def refused(tmp_path, path, **settings) -> str:
    message = failure("image_folder", {"path": str(path), **settings}, [], tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
    return message


@pytest.fixture
def folder(tmp_path):
    """Writes class folders of images, with changes (name -> content), and returns their path."""

    def write(changes: dict[str, bytes] | None = None, **how):
        target = tmp_path / f"images{len(list(tmp_path.iterdir()))}"
        return text_files.write_folder(target, {**picture_files.folders(**how), **(changes or {})})

    return write


# ---- CIFAR-10


def test_cifar10_keeps_order_channels_and_the_official_split(tmp_path):
    path = text_files.write_archive(tmp_path / "any.tar.gz", picture_files.cifar10(20))
    card, data = prepared(tmp_path, "cifar10", path, validation=0.1)
    assert card["input_shape"] == [3, 32, 32] and card["scale"] == 255 and card["records"]["read"] == 120
    assert card["classes"][3:5] == ["cat", "deer"] and card["classes"][-1] == "truck"
    assert (data.split[100:] == sources.TEST).all() and (data.split[:100] != sources.TEST).all()
    np.testing.assert_array_equal(data.labels, np.tile(np.arange(10), 12))
    bytes_ = np.rint(255 * data.inputs).astype(int)
    assert (bytes_[:, :, 0, :3] == 255).all(), "a channel begins with the left of its uppermost row"
    np.testing.assert_array_equal(bytes_[:, 0, 31, 31], data.labels)
    np.testing.assert_array_equal(bytes_[:, 1, 1, 0], np.tile(np.arange(20), 6))
    np.testing.assert_array_equal(bytes_[:, 2, 1, 0], np.repeat(np.arange(6), 20))


def test_cifar10_in_another_order_or_unpacked_is_the_same(tmp_path):
    files = picture_files.cifar10(20)
    _, first = prepared(tmp_path, "cifar10", text_files.write_archive(tmp_path / "a.tar.gz", files))
    turned = text_files.write_archive(tmp_path / "b.tar.gz", dict(reversed(files.items())))
    above = text_files.write_folder(tmp_path / "above", files)
    for path in (turned, above, above / picture_files.CIFAR10):
        _, data = prepared(tmp_path, "cifar10", path)
        np.testing.assert_array_equal(data.inputs, first.inputs)
        np.testing.assert_array_equal(data.split, first.split)


def test_deer_and_horse_are_classes_4_and_7(tmp_path):
    path = text_files.write_archive(tmp_path / "a.tar.gz", picture_files.cifar10(20))
    card, data = prepared(tmp_path, "cifar10", path, classes=["deer", "horse"])
    assert card["classes"] == ["deer", "horse"] and len(data.ids) == 24
    np.testing.assert_array_equal(np.rint(255 * data.inputs[:, 0, 5, 5]), np.array([4, 7])[data.labels])


def test_damaged_cifar10_is_refused(tmp_path):
    def told(**changes) -> str:
        files = picture_files.cifar10(20)
        for name, change in changes.items():
            files[f"{picture_files.CIFAR10}/{name}.bin"] = change(files[f"{picture_files.CIFAR10}/{name}.bin"])
        path = text_files.write_archive(tmp_path / "a.tar.gz", files)
        return failure("cifar10", {"path": str(path)}, [], tmp_path / "out")

    assert "data_batch_2.bin: has 61,459 bytes, not records of 3,073 bytes" in told(data_batch_2=lambda b: b[:-1])
    assert "test_batch.bin: has 0 bytes" in told(test_batch=lambda b: b"")
    wrong = told(data_batch_3=lambda b: b[: 4 * 3073] + b"\x0b" + b[4 * 3073 + 1 :])
    assert "data_batch_3.bin, record 4: has the label 11, expected 0 to 9" in wrong
    path = text_files.write_archive(tmp_path / "python.tar.gz", {"cifar-10-batches-py/data_batch_1": b"\x80\x02"})
    assert "not the pickles of the python version" in failure("cifar10", {"path": str(path)}, [], tmp_path / "out")
    whole = text_files.write_archive(path, picture_files.cifar10(20)).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert "truncated or damaged" in failure("cifar10", {"path": str(path)}, [], tmp_path / "out")
    (tmp_path / "empty").mkdir()
    message = failure("cifar10", {"path": str(tmp_path / "empty")}, [], tmp_path / "out")
    assert "holds neither cifar-10-binary.tar.gz nor data_batch_1.bin" in message


def test_cifar10_from_files_of_some_of_its_records(tmp_path):
    files = {name.split("/")[-1]: content for name, content in picture_files.cifar10(20).items()}
    folder = text_files.write_folder(
        tmp_path / "some",
        {
            "own_train.bin.xz": lzma.compress(files["data_batch_2.bin"] + files["data_batch_3.bin"]),
            "own_test.bin": files["test_batch.bin"],
            "notes.txt": b"",
        },
    )
    card, data = prepared(tmp_path, "cifar10", folder, classes=["deer", "horse"])
    told = "subset: own_train.bin.xz, 40 rows, and own_test.bin, 20 rows, in place of cifar-10-binary.tar.gz"
    assert card["subset"] == told and card["records"]["read"] == 60
    assert "cifar-10" not in card["name"] and card["counts"]["test"] == {"deer": 2, "horse": 2}
    bytes_ = np.rint(255 * data.inputs).astype(int)
    np.testing.assert_array_equal(bytes_[:, 0, 5, 5], np.array([4, 7])[data.labels])
    # Green is the number of the record in its batch, blue the batch; the test part is the sixth.
    np.testing.assert_array_equal(bytes_[:, 1, 5, 5], np.tile([4, 7, 14, 17], 3))
    np.testing.assert_array_equal(bytes_[:, 2, 5, 5], np.repeat([1, 2, 5], 4))
    np.testing.assert_array_equal(data.split == sources.TEST, bytes_[:, 2, 5, 5] == 5)
    whole = (folder / "own_train.bin.xz").read_bytes()
    for content, said in (
        (whole[:-40], "own_train.bin.xz: truncated or damaged"),
        (lzma.compress(bytes(3072)), "own_train.bin.xz: has 3,072 bytes, not records of 3,073 bytes"),
        (lzma.compress(bytes([10]) + bytes(3072)), "record 0: has the label 10, expected 0 to 9"),
    ):
        (folder / "own_train.bin.xz").write_bytes(content)
        assert said in failure("cifar10", {"path": str(folder)}, [], tmp_path / "out")
    (folder / "own_test.bin").unlink()
    assert "holds neither cifar-10-binary.tar.gz" in failure("cifar10", {"path": str(folder)}, [], tmp_path / "out")


def test_files_of_some_rows_are_inputs_of_the_job(tmp_path, default):
    for name in ("own_train.bin.xz", "own_test.bin", "some.csv.gz", "test.csv"):
        (tmp_path / name).write_bytes(b"")
    for name, path in (("cifar10", tmp_path), ("agnews", tmp_path / "some.csv.gz")):
        default["datasets"][name] = {"source": name, "path": str(path)}
    loaded = validation.load(default)
    assert {*runs.list_raw_files(loaded, "agnews")} == {str(tmp_path / name) for name in ("some.csv.gz", "test.csv")}
    assert runs.list_raw_files(loaded, "cifar10") == [str(tmp_path)]


def test_the_official_files_have_no_subset(tmp_path):
    files = picture_files.cifar10(20)
    folder = text_files.write_folder(tmp_path / "a", {**files, f"{picture_files.CIFAR10}/own_train.bin": b"damaged"})
    card, _ = prepared(tmp_path, "cifar10", folder)
    assert "subset" not in card and card["records"]["read"] == 120


def test_real_deer_and_horses_in_the_record_layout(real_data, tmp_path):
    folder = real_data("cifar10", "deer_horse_train.bin.xz").parent
    card, data = prepared(tmp_path, "cifar10", folder, classes=["deer", "horse"])
    assert "deer_horse_train.bin.xz, 10,000 rows" in card["subset"]
    assert card["counts"]["test"] == {"deer": 90, "horse": 102} and len(data.labels) == 10_192
    pieces = np.load(folder / "data_batch_4_prefix.npz")
    original = pieces["data"][np.isin(pieces["labels"], (4, 7))]
    ours = {row.tobytes() for row in np.rint(255 * data.inputs).astype(np.uint8).reshape(-1, 3072)}
    assert len(original) > 200 and all(row.tobytes() in ours for row in original)


def test_the_official_archive_is_verified(tmp_path):
    (file,) = registry.SOURCES["cifar10"].files
    path = text_files.write_archive(tmp_path / file.name, picture_files.cifar10(1))
    message = failure("cifar10", {}, [path], tmp_path / "out")
    assert file.sha256 in message and "170,052,171 bytes" in message
    assert "fetch it first" in failure("cifar10", {}, [], tmp_path / "out")


# ---- class folders


def test_class_folders_become_classes_and_parts_are_sampled(tmp_path, folder):
    card, data = prepared(tmp_path, "image_folder", folder(n=10))
    assert card["classes"] == ["deer", "horse"] and card["kind"] == "image" and card["input_shape"] == [3, 12, 10]
    assert card["counts"]["test"] == {"deer": 3, "horse": 3} and card["licence"] == "" and "notes" not in card
    expected = [painted(COLOURS[name], number) for name in ("deer", "horse") for number in range(10)]
    found = np.rint(255 * data.inputs).astype(np.uint8).transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(data.labels, np.repeat([0, 1], 10))


def compressed_tar(path, files, compress):
    archive = text_files.write_archive(path, files)
    path.write_bytes(compress(gzip.decompress(archive.read_bytes())))
    return path


def zipped(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def test_folder_tar_and_zip_are_the_same(tmp_path):
    files = picture_files.folders(n=4, parts=("train", "val", "test"))
    first, data = prepared(tmp_path, "image_folder", text_files.write_folder(tmp_path / "f", files))
    assert {part: sum(names.values()) for part, names in first["counts"].items()} == {
        "train": 8,
        "validation": 8,
        "test": 8,
    }
    assert data.split.tolist() == 8 * [0] + 8 * [1] + 8 * [2] and data.labels.tolist() == 3 * (4 * [0] + 4 * [1])
    inside = {f"./pets/{name}": content for name, content in files.items()}
    for path in (
        compressed_tar(tmp_path / "a.tar", inside, bytes),
        compressed_tar(tmp_path / "a.tar.gz", inside, gzip.compress),
        compressed_tar(tmp_path / "a.tar.xz", inside, lzma.compress),
        zipped(tmp_path / "a.zip", {name.removeprefix("./"): content for name, content in inside.items()}),
    ):
        card, other = prepared(tmp_path, "image_folder", path)
        assert {**card, "settings": 0} == {**first, "settings": 0}
        np.testing.assert_array_equal(other.inputs, data.inputs)
        np.testing.assert_array_equal(other.split, data.split)


def test_what_is_no_image_is_ignored_and_counted(tmp_path, folder):
    changes = {
        "README.txt": b"x",
        "deer/list.csv": b"x",
        "deer/scan.tiff": b"x",
        "horse/.hidden.png": b"x",
        "__MACOSX/deer/._0.png": b"x",
        "deer/UPPER.JPG": encoded(painted((1, 2, 3)), "JPEG"),
        "deer/lower.jpeg": encoded(painted((1, 2, 3)), "JPEG"),
    }
    card, _ = prepared(tmp_path, "image_folder", folder(changes))
    assert card["notes"] == ["5 file(s) that are not images ignored"] and card["records"]["read"] == 12


def test_split_folders_have_several_names(tmp_path, folder):
    for parts in (("Train", "valid", "TEST"), ("train", "validation", "test")):
        _, data = prepared(tmp_path, "image_folder", folder(n=1, parts=parts))
        assert data.split.tolist() == [0, 0, 1, 1, 2, 2]


def test_a_single_split_folder_does_not_determine_the_split(tmp_path, folder):
    card, _ = prepared(tmp_path, "image_folder", folder(parts=("train",)))
    assert card["notes"] == ["all images lie in train, so the parts are drawn"]
    assert card["counts"]["test"]["deer"] == 2
    # A class may be called so.
    card, _ = prepared(tmp_path, "image_folder", folder(n=4, train=(9, 9, 9), bus=(200, 0, 0)))
    assert card["classes"] == ["bus", "train"] and "notes" not in card


def test_sizes_are_height_and_width(tmp_path, folder):
    wide = np.zeros((20, 60, 3), np.uint8)
    wide[:, 20:40] = 250  # the middle third
    path = folder({f"{name}/wide.png": encoded(wide) for name in ("deer", "horse")})
    message = refused(tmp_path, path)
    assert (
        "deer/wide.png: has other sides than deer/0.png (20x60 and 12x10 pixels); set size: [height, width]" in message
    )
    card, data = prepared(tmp_path, "image_folder", path, size=[12, 10])
    assert card["input_shape"] == [3, 12, 10]
    np.testing.assert_array_equal(
        np.rint(255 * data.inputs[:1]).astype(np.uint8)[0].transpose(1, 2, 0), painted(COLOURS["deer"], 0)
    )  # of that size already: not a bit is changed
    _, stretched = prepared(tmp_path, "image_folder", path, size=[10, 30], resize="resize")
    _, cut = prepared(tmp_path, "image_folder", path, size=[10, 8], resize="crop")
    row = stretched.inputs[5, 0, 5]  # five of each class by number, then the wide one
    assert row[12:18].min() > 0.95 and row[:7].max() < 0.05 and row[23:].max() < 0.05
    assert cut.inputs.shape[2:] == (10, 8) and cut.inputs[5].min() > 0.8, "only the middle is left"


def test_a_reduced_image_is_averaged_over_its_area():
    board = np.indices((64, 64)).sum(axis=0) % 2 * 255
    pixels = images.decode("x", encoded(board), (8, 8), color="grey")
    assert pixels.shape == (1, 8, 8) and (np.abs(pixels.astype(int) - 127) <= 2).all()


def test_grey_where_colour_is_expected(tmp_path, folder):
    path = folder({"horse/grey.jpg": encoded(np.full((12, 10), 90), "JPEG")})
    message = refused(tmp_path, path)
    assert "horse/grey.jpg: is grey and colour is expected; set color: grey, or save the image as RGB" in message
    card, data = prepared(tmp_path, "image_folder", path, color="grey")
    assert card["input_shape"] == [1, 12, 10]
    # Luma: 0.299 R + 0.587 G + 0.114 B.
    luma = painted(COLOURS["deer"], 0) @ [0.299, 0.587, 0.114]
    np.testing.assert_allclose(255 * data.inputs[0, 0], luma, atol=1)
    assert np.rint(255 * data.inputs[data.ids == 10]).max() == 90


def test_transparent_images_are_blended_with_white(tmp_path, folder, caplog):
    colour = painted(COLOURS["deer"])
    half = np.dstack([colour, np.full(colour.shape[:2], 128)])
    card, data = prepared(tmp_path, "image_folder", folder({"horse/a.png": encoded(half)}), size=[12, 10])
    blended = colour * (128 / 255) + 255 * (127 / 255)
    assert min(np.abs(255 * image.transpose(1, 2, 0) - blended).max() for image in data.inputs) < 1.01
    assert "horse/a.png, the first of 1 transparent image(s): blended with white" in caplog.text
    assert "1 transparent image(s) blended with white" in card["notes"]


@pytest.mark.parametrize("color", ["rgb", "grey"])
def test_images_of_four_inks_are_converted(color, tmp_path, folder, caplog):
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(painted(COLOURS["deer"])).convert("CMYK").save(stream, "JPEG", quality=95)
    seen = Image.open(stream).convert("RGB").convert({"rgb": "RGB", "grey": "L"}[color])
    card, data = prepared(tmp_path, "image_folder", folder({"horse/a.jpg": stream.getvalue()}), color=color)
    wanted = np.asarray(seen).reshape(*seen.size[::-1], -1).transpose(2, 0, 1)
    assert min(np.abs(255 * one - wanted).max() for one in data.inputs) < 0.01
    assert "horse/a.jpg, the first of 1 CMYK image(s): converted to RGB" in caplog.text
    assert "1 CMYK image(s) converted to RGB" in card["notes"]


def test_transparent_and_strange_images_are_refused_and_opaque_ones_are_read(tmp_path, folder):
    colour = painted(COLOURS["deer"])
    opaque = np.dstack([colour, np.full(colour.shape[:2], 255)])
    seen = np.dstack([colour, np.full(colour.shape[:2], 254)])
    np.testing.assert_array_equal(images.decode("x", encoded(opaque)).transpose(1, 2, 0), colour)
    with pytest.raises(ShapelineError, match="x: is transparent and no background is known"):
        images.decode("x", encoded(seen))
    from PIL import Image

    Image.new("I;16", (10, 12)).save(tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").unlink()
    assert "horse/a.png: is of mode I;16; save it as RGB or grey" in refused(
        tmp_path, folder({"horse/a.png": content}), color="grey", on_decode_error="skip"
    )
    palette = Image.fromarray(colour).quantize(8)
    palette.save(tmp_path / "p.png")
    found = images.decode("x", (tmp_path / "p.png").read_bytes())
    np.testing.assert_array_equal(found.transpose(1, 2, 0), np.asarray(palette.convert("RGB")))


def test_an_image_is_rotated_by_its_metadata():
    from PIL import Image

    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn clockwise
    ramp = np.zeros((8, 16, 3), np.uint8)
    ramp[:4] = 240  # bright above: to the right after the turn
    pixels = images.decode("x", encoded(ramp, "JPEG", quality=95, exif=exif.tobytes()))
    assert pixels.shape == (3, 16, 8) and pixels[:, :, 5:].min() > 200 and pixels[:, :, :3].max() < 40


# ---- images that cannot be decoded


@pytest.mark.parametrize("form", [{}, {"progressive": True}, {"form": "PNG"}])
def test_no_truncated_image_is_ever_read(form):
    pixels = np.random.default_rng(0).integers(0, 255, (24, 32, 3))
    content = encoded(pixels, **{"form": "JPEG", **form})
    whole = images.decode("x", content)
    read = 0
    for end in range(0, len(content), 3):
        try:
            found = images.decode("x", content[:end])
        except images.Undecodable as error:
            assert "x: cannot be decoded (" in str(error)
            continue
        read += 1
        np.testing.assert_array_equal(found, whole)
    assert read <= 7  # a png has 20 bytes after its pixels


@pytest.mark.filterwarnings("ignore:.*(EXIF|Truncated|Tag):UserWarning")
@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_damage_ends_in_one_known_error(form):
    from PIL import Image

    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 3, "maker"
    generator = np.random.default_rng(1)
    content = encoded(generator.integers(0, 255, (12, 16, 3)), form, exif=exif.tobytes())
    for _ in range(600):
        damaged = bytearray(content)
        # Mostly in the header, where sizes and tables are.
        for position in generator.integers(0, generator.choice([60, 300, len(content)]), 2):
            damaged[position] = generator.integers(256)
        try:
            images.decode("x", bytes(damaged))
        except ShapelineError as error:
            assert "\n" not in str(error)


def test_a_corrupt_image_stops_or_is_skipped_named_and_counted(tmp_path, folder, caplog):
    good = encoded(painted(COLOURS["deer"]), "JPEG")
    bad = {"deer/cut.jpg": good[: len(good) // 2], "horse/page.png": b"<html>", "horse/empty.jpeg": b""}
    path = folder(bad)
    message = refused(tmp_path, path)
    assert "deer/cut.jpg: cannot be decoded (" in message and "or set on_decode_error: skip" in message
    card, data = prepared(tmp_path, "image_folder", path, on_decode_error="skip")
    assert card["records"]["read"] == 13 and card["records"]["left_out_unreadable"] == 3 and len(data.ids) == 10
    assert card["notes"] == ["cannot be decoded and left out: deer/cut.jpg, horse/empty.jpeg, horse/page.png"]
    assert all(name in caplog.text for name in bad)
    path = folder({f"deer/{number}.jpg": b"" for number in range(12)})
    card, _ = prepared(tmp_path, "image_folder", path, on_decode_error="skip")
    assert card["notes"][0].endswith("deer/7.jpg and 2 more") and card["records"]["left_out_unreadable"] == 12


# ---- folders that are wrong


def test_a_class_folder_without_images_is_named(tmp_path, folder):
    path = folder()
    (path / "frog").mkdir()
    assert "the folder frog holds no image (.jpg, .jpeg, .png) that can be read; fill it or remove it" in refused(
        tmp_path, path
    )
    (path / "frog/readme.txt").write_text("x")
    assert "the folder frog holds no image" in refused(tmp_path, path)
    path = folder(parts=("train", "test"))
    (path / "test/frog").mkdir()
    assert "the folder test/frog holds no image" in refused(tmp_path, path)
    path = folder(parts=("train", "test"))
    (path / "val").mkdir()
    assert "the folder val holds no image" in refused(tmp_path, path)
    path = folder({f"frog/{number}.png": b"x" for number in range(3)})
    assert "the folder frog holds no image" in refused(tmp_path, path, on_decode_error="skip")
    files = picture_files.folders()
    for archive in (
        compressed_tar(tmp_path / "a.tar.gz", {**files, "frog/readme.txt": b"x"}, gzip.compress),
        zipped(tmp_path / "a.zip", {**files, "frog/": b""}),
        text_files.write_archive(tmp_path / "b.tar.gz", files, (member("frog", tarfile.DIRTYPE),)),
    ):
        assert "the folder frog holds no image" in refused(tmp_path, archive)


def test_a_class_that_one_part_lacks_is_noted(tmp_path, folder, caplog):
    path = folder(parts=("train", "val", "test"))
    shutil.rmtree(path / "test/horse")
    card, _ = prepared(tmp_path, "image_folder", path)
    assert card["notes"] == ["no image of horse in the test part"] and card["counts"]["test"]["horse"] == 0
    assert "no image of horse in the test part" in caplog.text
    shutil.rmtree(path / "val/deer")
    notes = ["no image of deer in the validation part", "no image of horse in the test part"]
    assert prepared(tmp_path, "image_folder", path)[0]["notes"] == notes
    path = folder(parts=("train", "test"), n=3)
    assert "notes" not in prepared(tmp_path, "image_folder", path)[0]
    shutil.rmtree(path / "train/horse")
    assert "class 'horse' has 3 record(s), none of them in the training part" in refused(tmp_path, path)


def test_layouts_that_mean_nothing_are_refused(tmp_path, folder):
    pixels = encoded(painted((1, 2, 3)))
    assert "a.png lies in no class folder; the layout is <class>/" in refused(tmp_path, folder({"a.png": pixels}))
    message = refused(tmp_path, folder({"horse/young/a.png": pixels}))
    assert "lie in two layouts" in message and "horse/young/a.png" in message
    path = folder({"frog/a.png": pixels}, parts=("train", "test"))
    assert "lie in two layouts" in refused(tmp_path, path)
    assert "holds one class folder, 'deer'" in refused(tmp_path, folder(deer=(1, 2, 3)))
    assert "holds train and val but no test folder" in refused(tmp_path, folder(parts=("train", "val")))
    assert "holds test and val but no train folder" in refused(tmp_path, folder(parts=("val", "test")))
    (tmp_path / "nothing").mkdir()
    assert "holds no image (.jpg, .jpeg, .png); the layout is" in refused(tmp_path, tmp_path / "nothing")
    path = folder()
    assert "Did you mean 'horse'?" in refused(tmp_path, path, classes=["deer", "hors"])
    assert "there is no file or folder" in refused(tmp_path, tmp_path / "elsewhere")


# ---- archives that are wrong


def member(name: str, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, "/etc/passwd"
    return info


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        (member("deer/../../up.png"), "climbs out"),
        (member("/etc/passwd"), "climbs out"),
        (member("deer/link.png", tarfile.SYMTYPE), "is a link or a device"),
        (member("deer/hard.png", tarfile.LNKTYPE), "is a link or a device"),
    ],
)
def test_members_that_leave_the_archive_are_refused(tmp_path, odd, words):
    path = text_files.write_archive(tmp_path / "a.tar.gz", picture_files.folders(), (odd,))
    message = refused(tmp_path, path)
    assert words in message and odd.name in message


def test_zips_that_leave_the_archive_are_refused(tmp_path):
    path = zipped(tmp_path / "a.zip", {**picture_files.folders(), "../up.png": b"x"})
    assert "'../up.png' climbs out" in refused(tmp_path, path)
    link = zipfile.ZipInfo("deer/link.png")
    link.external_attr = 0o120777 << 16
    zipped(path, picture_files.folders())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(link, "/etc/passwd")
    assert "'deer/link.png' is a link" in refused(tmp_path, path)
    content = bytearray(zipped(path, picture_files.folders()).read_bytes())
    content[content.rindex(b"PK\x01\x02") + 8] |= 1  # the flag of the last member
    path.write_bytes(content)
    assert "has a password" in refused(tmp_path, path)


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "tar.xz", "zip"])
def test_truncated_archives_are_refused(tmp_path, kind):
    files = picture_files.folders()
    path = tmp_path / f"a.{kind}"
    if kind == "zip":
        zipped(path, files)
    else:
        compressed_tar(path, files, {"tar": bytes, "tar.gz": gzip.compress, "tar.xz": lzma.compress}[kind])
    whole = path.read_bytes()
    prepared(tmp_path, "image_folder", path)
    full = len(whole.rstrip(b"\0"))
    # Of a plain tar also between two members, where nothing seems to lack.
    for end in (*range(1, full - 4, full // 15), *(range(512, full + 512, 512) if kind == "tar" else ())):
        path.write_bytes(whole[:end])
        assert f"{path}: truncated or damaged" in refused(tmp_path, path), end
    for junk in (b"", b"no archive", b"PK\x03\x04 no zip"):
        path.write_bytes(junk)
        assert "truncated or damaged" in refused(tmp_path, path)
    if kind == "zip":  # a changed byte of an image
        start = whole.index(b"IDAT") + 8
        path.write_bytes(whole[:start] + bytes([whole[start] ^ 1]) + whole[start + 1 :])
        assert "truncated or damaged" in refused(tmp_path, path, on_decode_error="skip")


def test_a_tar_whose_first_name_begins_like_a_zip_is_a_tar(tmp_path):
    files = {f"PKlot/{name}": content for name, content in picture_files.folders().items()}
    prepared(tmp_path, "image_folder", compressed_tar(tmp_path / "a.tar", files, bytes))


# ---- keys


@pytest.mark.parametrize(
    ("source", "settings", "words"),
    [
        ("image_folder", {}, "reads data of your own; name their file, folder or archive"),
        ("image_folder", {"path": "x", "size": [32]}, "[32] is not valid; list should have at least 2 items"),
        ("image_folder", {"path": "x", "size": [32, 0]}, "0 is not valid; input should be greater"),
        ("image_folder", {"path": "x", "size": 32}, "32 is not valid; give a list"),
        ("image_folder", {"path": "x", "resize": "crop"}, "add size: [height, width]"),
        ("image_folder", {"path": "x", "size": [8, 8], "resize": "corp"}, "Did you mean 'crop'?"),
        ("image_folder", {"path": "x", "color": "gray"}, "Did you mean 'grey'?"),
        ("image_folder", {"path": "x", "on_decode_error": "ski"}, "Did you mean 'skip'?"),
        ("image_folder", {"path": "x", "unit": "word"}, "not text"),
        ("mnist", {"size": [32, 32]}, "dataset key 'size': source 'mnist' does not take it; remove the key"),
        ("imdb", {"on_decode_error": "skip"}, "source 'imdb' does not take it"),
        ("own.py:records", {"color": "grey"}, "does not take it"),
    ],
)
def test_wrong_keys(source, settings, words, tmp_path):
    assert words in failure(source, settings, [], tmp_path / "out")


def experiment(path, **keys) -> dict:
    return {
        "run": ["pets"],
        "datasets": {"pets": {"source": "image_folder", "path": str(path), **keys}},
        "models": {"cnn": {"dataset": "pets", "architecture": "digits_cnn"}},
        "experiments": {
            "pets": {
                "model": "cnn",
                "features": {"kind": "patch", "size": 4},
                "budget": 0.1,
                "methods": {"kernel": {"method": "kernel_shap"}},
                "metrics": {"cost": {}},
            }
        },
    }


def told(raw: dict) -> str:
    with pytest.raises(ShapelineError) as caught:
        validation.load(raw)
    return str(caught.value)


def test_the_configuration_knows_the_shape_from_size(folder):
    path = folder()
    assert "evaluations and kernel_shap needs at least" in (told(experiment(path, size=[16, 24])))
    assert "at d = 24" in told(experiment(path, size=[16, 24]))
    raw = experiment(path)
    raw["experiments"]["pets"]["budget"] = 4
    loaded = validation.load(raw)
    assert derived.find_feature_shape(loaded, loaded.experiments["pets"]) is None
    raw["datasets"]["pets"]["size"] = [16, 24]
    loaded = validation.load(raw)
    assert derived.find_feature_shape(loaded, loaded.experiments["pets"]) == (4, 6)
    assert prepare_settings(loaded, "pets")["size"] == [16, 24]
    own = registry.SOURCES["image_folder"]
    assert checks.input_shape(own, checks.Dataset(source=own.name, size=[16, 24], color="grey")) == (1, 16, 24)
    assert checks.input_shape(own, checks.Dataset(source=own.name)) is None
    raw["experiments"]["pets"]["features"] = {"kind": "patch", "size": 20}
    assert "larger than the image, 16x24" in told(raw)
    raw["datasets"]["pets"] |= {"resized": "crop"}
    assert "Did you mean 'resize'?" in told(raw)


def test_the_configuration_refuses_values_that_fit_no_image(folder, tmp_path):
    raw = experiment(tmp_path / "elsewhere", size=[16, 24])
    assert f"datasets.pets.path: there is nothing at {tmp_path / 'elsewhere'}" in told(raw)
    del raw["datasets"]["pets"]["path"]
    assert "datasets.pets: dataset key 'path': source 'image_folder' reads data of your own" in told(raw)


def test_an_additional_or_missing_image_changes_the_inputs_of_the_job(folder):
    path = folder(parts=("train", "test"))
    raw = experiment(path, size=[16, 24])
    raw["experiments"]["pets"]["budget"] = 4
    loaded = validation.load(raw)
    listed = runs.list_raw_files(loaded, "pets")
    assert listed == [str(path / name) for name in ("", "test", "test/deer", "test/horse", "train", "train/deer")] + [
        str(path / "train/horse")
    ]
    before = os.stat(path / "test/deer").st_mtime_ns
    os.utime(path / "test/deer", ns=(before - 10**9, before - 10**9))
    shutil.copy(path / "test/deer/0.png", path / "test/deer/new.png")
    assert os.stat(listed[2]).st_mtime_ns >= before


# ---- the real files


def test_the_jpeg_copies_of_deer_and_horse(real_data, tmp_path):
    """How lossy they are: 265 originals of data_batch_4 against the copy that is nearest to each."""
    archive, originals = (
        real_data("cifar10", name) for name in ("cifar10_deer_horse_jpg.tar.gz", "data_batch_4_prefix.npz")
    )
    card, data = prepared(tmp_path, "image_folder", archive, size=[32, 32])
    assert card["classes"] == ["deer", "horse"] and card["input_shape"] == [3, 32, 32]
    assert card["counts"] == {
        "train": {"deer": 4500, "horse": 4500},
        "validation": {"deer": 500, "horse": 500},
        "test": {"deer": 1000, "horse": 1000},
    }
    with np.load(originals) as stored:
        kept = np.isin(stored["labels"], [4, 7])
        pixels, labels = stored["data"][kept].astype(np.float32), (stored["labels"][kept] == 7).astype(int)
    training = data.split != sources.TEST
    copies = np.rint(255 * data.inputs[training]).reshape(-1, 3072)
    squares = (copies**2).sum(axis=1) - 2 * pixels @ copies.T + (pixels**2).sum(axis=1)[:, None]
    nearest = squares.argmin(axis=1)
    difference = np.abs(pixels - copies[nearest])
    assert len(pixels) == 265 and len(set(nearest)) == 265
    np.testing.assert_array_equal(data.labels[training][nearest], labels)
    assert 5.5 < difference.mean() < 6.5 and np.sqrt((difference**2).mean(axis=1)).max() < 13
    assert (difference == 0).mean() < 0.1  # lossy indeed


def test_ten_digits_of_the_real_mnist(real_data, tmp_path):
    folder = real_data("mnist")
    card, data = prepared(tmp_path, "mnist", folder)
    assert len(data.ids) == 70_000 and card["classes"] == list("0123456789")
    assert card["counts"]["test"]["1"] == 1135 and sum(card["counts"]["test"].values()) == 10_000
    assert sum(card["counts"]["train"].values()) == 54_000
    _, two = prepared(tmp_path, "mnist", folder, classes=[3, 8])
    np.testing.assert_array_equal(data.split[two.ids], two.split)
    np.testing.assert_array_equal(np.array([3, 8])[two.labels], data.labels[two.ids])


def test_the_example_of_cifar_copies_is_valid_and_states_that_it_is_lossy(real_data, root, default, monkeypatch):
    monkeypatch.setenv("SHAPELINE_DATA", str(real_data("cifar10", "cifar10_deer_horse_jpg.tar.gz").parents[1]))
    own = yaml.safe_load((root / "examples" / "cifar_copies.yaml").read_text())
    loaded = validation.load(
        default | {"run": own["run"]} | {key: default[key] | own[key] for key in mistakes.SECTIONS}
    )
    assert "lossy" in loaded.experiments["cifar_copies"].report.title


def test_crops_of_the_frames_example_are_around_green_lights_or_without_one(root):
    """Lights are the only bright pixels: a crop is bright exactly where it is labelled so; any size is classified."""
    example = runpy.run_path(str(root / "examples" / "lisa_frames.py"))
    images, boxes = (
        np.zeros((3, 3, 120, 150), np.uint8),
        [[(1, 0, 0, 8, 6)], [(0, 50, 50, 60, 60)], [(1, 90, 120, 110, 140)]],
    )
    for image, own in zip(images, boxes, strict=True):
        for category, top, left, bottom, right in own:
            image[:, top:bottom, left:right] = 255 * category
    batches = example["iterate_crops"](images, [np.array(own) for own in boxes])
    for crops, labels in itertools.islice(batches, 4):
        assert crops.shape == (32, 3, 48, 48) and labels.tolist() == [0, 1] * 16
        assert ((crops.amax((1, 2, 3)) > 0) == (labels == 1)).all()
    assert example["network"](2, 3)(crops).shape == (32, 2)
