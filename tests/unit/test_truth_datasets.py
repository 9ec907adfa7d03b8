"""Where in an image its class is: synthetic, slides and traffic lights, and the instances that are chosen by it."""

import json
from functools import partial

import numpy as np
import pytest

from shapeline.attribution import context, selection
from shapeline.config import validation
from shapeline.datasets import (
    checks,
    image_sources,
    images,
    loading,
    malaria,
    preparation,
    registry,
    sources,
    synthetic,
)
from shapeline.datasets.records import local_files
from shapeline.datasets.sources import TEST, TRAIN
from shapeline.errors import ShapelineError
from shapeline.models.classifier import Classifier
from shapeline.workflow.jobs import prepare_settings, select_settings
from tests.fixtures import annotated_files as files
from tests.fixtures import failures, text_files

failure = partial(failures.failure, preparation.prepare)


def prepared(tmp_path, source, **settings):
    folder = tmp_path / "prepared" / source.rpartition(":")[2]
    return preparation.prepare(source, settings, [], folder), loading.load(folder), folder


def own(tmp_path, body: str) -> str:
    """A source of three images 4x6, of two in class a and one in class b; body: what else it returns."""
    file = tmp_path / "own.py"
    file.write_text(
        "import numpy as np\n"
        "masks = np.zeros((6, 4, 6), bool)\n"
        "masks[::2, 1:3, 2:5] = True\n"
        "some = np.array([[1, 1, 2, 3, 5]])\n"
        "def read():\n"
        "    base = {'inputs': np.zeros((6, 4, 6), np.uint8), 'labels': [1, 0] * 3, 'class_names': ['a', 'b']}\n"
        f"    return base | {body}\n"
    )
    return f"{file}:read"


# ---- truth.npz


@pytest.fixture(scope="module")
def crossed(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("crosses"), "crosses", count=240, seed=3)


def test_crosses_have_their_pixels_as_ground_truth(crossed):
    card, data, folder = crossed
    assert card["truth"] == "masks" and card["synthetic"] is True and card["classes"] == ["no cross", "cross"]
    assert [sum(counts.values()) for counts in card["counts"].values()] == [150, 30, 60]
    records = synthetic.read_crosses({}, count=240, seed=3)
    assert (synthetic.read_crosses({}, count=240, seed=4)["inputs"] != records["inputs"]).any(axis=(1, 2, 3)).all()
    ids = data.ids[::-1]
    np.testing.assert_array_equal(images.truth(folder, ids, data.labels[::-1]), records["masks"][ids])
    assert not images.truth(folder, data.ids, 0).any()
    expected = records["masks"].sum(axis=(1, 2)) // 17
    np.testing.assert_array_equal(images.objects(folder, data.ids, 1), expected)
    assert not images.objects(folder, data.ids, 0).any() and card["objects"] == {"cross": expected.sum()}


def test_test_images_have_one_or_six_crosses_more_often():
    masks, split = (synthetic.read_crosses({}, count=1600)[name] for name in ("masks", "split"))
    counts = masks.sum(axis=(1, 2)) // 17
    test, train = (np.bincount(counts[(split == part) & (counts > 0)])[1:] for part in (2, 0))
    assert 0.28 < test[0] / test.sum() < 0.42 and 0.28 < test[5] / test.sum() < 0.42
    assert (test[1:5] > 0).all() and (np.abs(train / train.sum() - 1 / 6) < 0.06).all()
    assert abs(test.sum() / 400 - 0.5) < 0.1


def test_ground_truth_follows_the_selected_classes(tmp_path):
    card, data, folder = prepared(tmp_path, "crosses", count=120, classes=["cross", "no cross"])
    assert card["classes"] == ["cross", "no cross"]
    shown = images.truth(folder, data.ids, data.labels)
    np.testing.assert_array_equal(shown.any(axis=(1, 2)), data.labels == 0)
    boxes = "[[[i % 3, i % 3, 0, 4, 6]] for i in range(6)]"
    boxes = "{'class_names': 'abc', 'labels': [0, 1, 2] * 2, 'boxes': " + boxes + "}"
    _, data, folder = prepared(tmp_path, own(tmp_path, boxes), classes=["c", "a"], test=0.5)
    shown = images.truth(folder, data.ids, data.labels)
    assert sorted(data.ids) == [0, 2, 3, 5]
    for record, label, pixels in zip(data.ids, data.labels, shown, strict=True):
        assert label == (1 if record % 3 == 0 else 0) and pixels.sum() == 6 * (4 - record % 3)
    assert not images.objects(folder, data.ids, 1 - data.labels).any()


def test_custom_masks_and_boxes(tmp_path):
    card, data, folder = prepared(tmp_path, own(tmp_path, "{'masks': masks}"), test=0.4)
    assert card["truth"] == "masks" and card["objects"] == {"b": 3}
    shown = images.truth(folder, data.ids, data.labels)
    np.testing.assert_array_equal(shown.sum(axis=(1, 2)), 6 * data.labels)
    assert shown[data.labels == 1][0, 1:3, 2:5].all()
    again, _, folder = prepared(
        tmp_path, own(tmp_path, "{'boxes': [some, some[:0]] * 3, 'box_names': 'abc'}"), test=0.4
    )
    np.testing.assert_array_equal(images.truth(folder, data.ids, data.labels), shown)
    assert again["truth"] == "boxes" and again["objects"] == {"a": 0, "b": 3, "c": 0}
    assert again["truth_digest"] != card["truth_digest"]
    prepared(tmp_path, own(tmp_path, "{}"), test=0.4)
    assert not (folder / "truth.npz").exists()  # of the dataset that stood there before


def test_boxes_outside_are_clipped_and_counted(tmp_path):
    boxes = "[[[1, -2, 4, 3, 9], [1, 0, 6, 2, 9], [1, 2, 2, 2, 4]], [], [[1, 0, 0, 4, 6]], [], [[1, 0, 0, 1, 1]], []]"
    card, _, folder = prepared(tmp_path, own(tmp_path, "{'boxes': " + boxes + "}"), test=0.4)
    assert card["records"]["boxes_clipped"] == 1 and card["records"]["boxes_outside_left_out"] == 2
    np.testing.assert_array_equal(images.objects(folder, [0, 1, 2], [1, 1, 1]), [1, 0, 1])
    shown = images.truth(folder, [0], 1)[0]
    assert shown[:3, 4:].all() and shown.sum() == 6


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("{'masks': masks, 'boxes': []}", "both masks and boxes"),
        ("{'masks': masks[:, :3]}", "(6, 4, 6)"),
        ("{'masks': masks.astype(int)}", "give bool"),
        ("{'masks': ~masks}", "record 1 is 'a'"),
        ("{'masks': masks, 'class_names': 'abc'}", "masks need two classes, and there are 3"),
        ("{'boxes': [some]}", "boxes of 1 records for 6 inputs"),
        ("{'boxes': [some[:, :4]] * 6}", "give (k, 5)"),
        ("{'boxes': [some * 0.5] * 6}", "give (k, 5)"),
        ("{'boxes': [some * 2] * 6}", "category 2 of 2"),
        ("{'box': []}", "unknown key 'box'. Did you mean 'boxes'?"),
    ],
)
def test_wrong_truth_is_refused(tmp_path, body, words):
    assert words in failure(own(tmp_path, body), {"test": 0.4}, [], tmp_path / "prepared")


def test_unavailable_facts_of_a_prepared_dataset(crossed, tmp_path):
    _, _, folder = crossed
    asked = partial(failures.failure, images.truth)
    assert "no record 240" in asked(folder, [0, 240], [1, 1])
    assert "2 is no class" in asked(folder, [0], [2])
    assert "is missing" in asked(tmp_path, [0], [1])
    _, _, plain = prepared(tmp_path, own(tmp_path, "{}"), test=0.4)
    assert "is not known" in asked(plain, [0], [1])
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "card.json").write_bytes((folder / "card.json").read_bytes())
    assert "truth.npz is missing" in asked(copy, [0], [1])
    (copy / "truth.npz").write_bytes((folder / "truth.npz").read_bytes()[:5000])
    assert "damaged" in asked(copy, [0], [1])


def test_truth_is_written_the_same_again(crossed, tmp_path):
    card, _, folder = crossed
    again = preparation.prepare("crosses", {"count": 240, "seed": 3}, [], tmp_path / "crosses")
    assert again["truth_digest"] == card["truth_digest"]
    assert (tmp_path / "crosses/truth.npz").read_bytes() == (folder / "truth.npz").read_bytes()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"count": 0}, "'count': 0"),
        ({"count": 2.5}, "'count': 2.5"),
        ({"path": "."}, "needs no file"),
        ({"test": 0.2}, "official test part"),
        ({"validation": 0.2}, "makes a validation part"),
        ({"size": [50, 60]}, "does not take it"),
    ],
)
def test_keys_that_crosses_do_not_take(settings, words):
    assert words in failures.failure(checks.read_entry, "crosses", settings)


def test_only_crosses_take_a_count():
    assert "only crosses takes it" in failures.failure(checks.read_entry, "digits", {"count": 3})
    assert "only crosses takes it" in failures.failure(checks.read_entry, "own.py:read", {"count": 3})


# ---- instances that are chosen


@pytest.fixture
def subject(crossed):
    """A model that is right unless an image's first cell is inked, and records its inputs."""
    _, data, folder = crossed
    asked = []

    def predict(inputs):
        asked.append(len(inputs))
        crosses_there = np.array([known[one.tobytes()] for one in inputs])
        wrong = inputs[:, :, 40:60].min(axis=(1, 2, 3)) < 0.2
        return np.where(wrong, 1 - crosses_there, crosses_there) * 0.8 + 0.1

    known = {one.tobytes(): label for one, label in zip(data.inputs, data.labels, strict=True)}
    subject = context.ExplanationContext(Classifier("function", "own", predict, 2), data, None, None, folder=folder)
    return subject, asked


def test_instances_of_a_class_predicted_correctly_with_so_many_objects(subject):
    subject, asked = subject
    everything = selection.select(subject, seed=0, count=60)
    assert {"instance", "row", "label", "objects", "prediction", "probability"} == set(everything)
    wrong = everything["label"] != everything["prediction"]
    assert 0 < wrong.sum() < 55
    fitting = everything[(everything["label"] == 1) & ~wrong & (everything["objects"] == 6)]
    assert len(fitting) > 2
    chosen = {"label": "cross", "correct": True, "objects": 6}
    found = selection.select(subject, seed=0, count=len(fitting), **chosen)
    assert found["instance"].tolist() == fitting["instance"].tolist()
    fewer = selection.select(subject, seed=0, count=len(fitting) - 1, label=1, correct=True, objects=6)
    assert set(fewer["instance"]) < set(found["instance"])
    told = failures.failure(selection.select, subject, 0, len(fitting) + 1, **chosen)
    assert f"has {len(fitting)} of class 'cross' with 6 object(s) that are predicted correctly; lower the count" in told
    told = failures.failure(selection.select, subject, 0, 1, objects=99)
    assert "has 0 with 99 object(s); remove a condition" in told
    for one in ({"label": "no cross"}, {"correct": True}, {"objects": 1}):
        kept = selection.select(subject, 0, 3, **one)
        whole = {
            "label": kept["label"] == 0,
            "correct": kept["label"] == kept["prediction"],
            "objects": kept["objects"] == 1,
        }
        assert whole[next(iter(one))].all()
    assert "'cros' is not one of them. Did you mean 'cross'?" in failures.failure(
        selection.select, subject, 0, 3, label="cros"
    )
    asked.clear()
    selection.select(subject, 0, 4, correct=True)
    assert sum(asked) < 60  # no more than it takes


def test_a_filter_does_not_change_the_order_of_the_sample(subject):
    subject, _ = subject
    without = selection.select(subject, seed=5, count=25)
    positive = selection.select(subject, seed=5, count=int((without["label"] == 1).sum()), label="cross")
    assert positive["instance"].tolist() == without[without["label"] == 1]["instance"].tolist()


def configured(instances_entry, **others) -> dict:
    return {
        "run": ["where"],
        "datasets": {"crosses": {"source": "crosses", "count": 240}},
        "models": {"net": {"dataset": "crosses", "architecture": "digits_cnn"}},
        "experiments": {
            "where": {
                "model": "net",
                "features": {"kind": "patch", "size": 10},
                "instances": {"count": 5, **instances_entry},
                "methods": {"occlusion": {"method": "occlusion"}},
                "metrics": {"cost": {}},
                **others,
            }
        },
    }


def test_settings_of_the_chosen_instances():
    chosen = {"label": "cross", "correct": True, "objects": 1}
    settings = select_settings(validation.load(configured(chosen)), "where")
    assert settings["instances"] == {"count": 5, **chosen}
    usual = select_settings(validation.load(configured({"correct": False})), "where")
    assert usual["instances"] == {"count": 5}
    loaded = validation.load(configured({}))
    assert prepare_settings(loaded, "crosses") == {"source": "crosses", "count": 240, "seed": 0}


@pytest.mark.parametrize(
    ("entry", "others", "words"),
    [
        ({"label": "crosss"}, {}, "instances.label: classes of the dataset: 'crosss' is not one of them. Did you"),
        ({"label": 2}, {}, "instances.label: classes of the dataset: 2 is not one"),
        ({"objects": 0}, {}, "instances.objects: 0 is not valid; input should be greater than or equal to 1"),
        (
            {"correct": True},
            {"model": None, "dataset": "table", "features": {"kind": "column"}, "methods": {"mim": {"method": "mim"}}},
            "instances.correct: without a model nothing is predicted",
        ),
        (
            {"objects": 1},
            {"model": None, "dataset": "table", "features": {"kind": "column"}, "methods": {"mim": {"method": "mim"}}},
            "instances.objects: the objects in records of source 'breast_cancer' are not known",
        ),
        ({}, {"metrics": {"ground_truth_words": {}}}, "the ground-truth words of source 'crosses' are not known"),
    ],
)
def test_impossible_instances_are_reported_before_any_job(entry, others, words):
    raw = configured(entry, **others)
    raw["datasets"]["table"] = {"source": "breast_cancer"}
    with pytest.raises(ShapelineError) as caught:
        validation.load(raw)
    assert words in str(caught.value)


# ---- slides and frames


def placed(tmp_path, content: dict, form: str):
    if form == "zip":
        return files.write_zip(tmp_path / "placed.zip", content)
    return text_files.write_folder(tmp_path / "placed", content)


OFFICIAL = {"malaria": files.malaria, "lisa": files.lisa}
READ = {"malaria": malaria.read, "lisa": image_sources.read_lisa}


def read(tmp_path, source, content, form="zip", **keys):
    return READ[source]({"archive": placed(tmp_path, content, form)}, size=keys.pop("size", [12, 16]), **keys)


def refused(tmp_path, source, content, form="zip", **keys) -> str:
    return failures.failure(read, tmp_path, source, content, form, **keys)


def positive(pictures):
    """The pixels (n, height, width) in the colour of the positive class."""
    return pictures.mean(axis=1) * 255 > files.POSITIVE


def test_slides(tmp_path):
    path = placed(tmp_path, files.malaria(), "zip")
    card, data, folder = prepared(tmp_path, "malaria", path=str(path), size=[12, 16], validation=0.4)
    assert card["classes"] == ["no trophozoite", "trophozoite"] and card["input_shape"] == [3, 12, 16]
    assert card["truth"] == "boxes" and "CC BY-NC-SA 3.0" in card["licence"] and "Ljosa" in card["citation"]
    assert data.labels.tolist() == [1, 0, 1, 0, 1, 0, 1, 0] and data.split.tolist()[6:] == [2, 2]
    assert (data.split[:6] != 2).all()
    assert card["records"] | {"boxes_clipped": 0, "left_out_missing": 0, "read": 8} == card["records"]
    assert card["objects"]["trophozoite"] == 5 and card["objects"]["ring"] == 2 and card["objects"]["leukocyte"] == 0
    assert "2 image(s) brought to 12x16 pixels" in card["notes"]
    shown = images.truth(folder, data.ids, 1)
    np.testing.assert_array_equal(shown, positive(data.inputs))
    assert images.objects(folder, data.ids, data.labels).tolist() == [1, 0, 2, 0, 1, 0, 1, 0]
    assert not images.truth(folder, data.ids, 0).any()


def test_frames(tmp_path):
    path = placed(tmp_path, files.lisa(), "zip")
    card, data, folder = prepared(tmp_path, "lisa", path=str(path), size=[12, 16], validation=0.3)
    assert card["classes"] == ["no green light", "green light"] and card["truth"] == "boxes"
    assert "Jensen" in card["citation"] and card["urls"] == [registry.SOURCES["lisa"].files[0].page]
    # dayClip1, dayClip2 and dayClip10 in this order, then the sequence of the test; nothing of the night.
    assert data.labels.tolist() == [1, 0, 0, 0, 1, 1, 0, 1, 1, 0, 0]
    assert (data.split == 2).tolist() == [False] * 8 + [True] * 3
    assert card["objects"] == {
        "no green light": 0,
        "green light": 6,
        "stop": 3,
        "stopLeft": 0,
        "warning": 1,
        "warningLeft": 0,
    }
    shown = images.truth(folder, data.ids, 1)
    np.testing.assert_array_equal(shown, positive(data.inputs))
    assert images.objects(folder, data.ids, 1).tolist() == [1, 0, 0, 0, 1, 1, 0, 1, 2, 0, 0]


@pytest.mark.parametrize("source", OFFICIAL)
def test_a_folder_is_read_as_its_archive(tmp_path, source):
    content = OFFICIAL[source]()
    zipped, unpacked = (read(tmp_path, source, content, form) for form in ("zip", "folder"))
    for name in ("inputs", "labels", "split"):
        np.testing.assert_array_equal(zipped[name], unpacked[name])
    assert [found.tolist() for found in zipped["boxes"]] == [found.tolist() for found in unpacked["boxes"]]
    entry = registry.SOURCES[source]
    archive = placed(tmp_path, content, "zip")
    assert list(local_files(entry, archive).values()) == [archive]
    found = local_files(entry, tmp_path / "placed")
    assert list(found.values()) == [tmp_path / "placed" / ("malaria" if source == "malaria" else "")]
    READ[source](found, size=[12, 16])


def test_boxes_belong_to_their_image(tmp_path):
    cells = [("trophozoite", 2, 4, 6, 8), ("trophozoite", 9, 13, 12, 16), ("ring", 5, 0, 6, 1)]
    half, counts = images.fit_boxes([(1, *corners) for _, *corners in cells], (12, 16), [6, 8], "resize")
    assert half[:, 1:].tolist() == [[1, 2, 3, 4], [4, 6, 6, 8], [2, 0, 3, 1]] and not counts.total()
    third, _ = images.fit_boxes([(1, 4, 3, 8, 9)], (12, 18), [4, 6], "resize")
    assert third[:, 1:].tolist() == [[1, 1, 3, 3]]  # 4/3 to 8/3 rows: each pixel that it touches
    # 12x20 to 6x6: the middle 12x12 stays, from column 4.
    cropped, counts = images.fit_boxes(
        [(1, 0, 4, 2, 8), (1, 0, 0, 2, 4), (2, 10, 14, 12, 20)], (12, 20), [6, 6], "crop"
    )
    assert cropped.tolist() == [[1, 0, 0, 1, 2], [2, 5, 5, 6, 6]] and counts[images.CROPPED] == 1
    slides = {"training.json": {"a.png": ((24, 40), [("trophozoite", 4, 12, 12, 20)]), "b.png": ((24, 40), [])}}
    for keys in ({"size": [12, 20]}, {"size": [12, 12], "resize": "crop"}, {"size": [48, 80]}):
        records = read(tmp_path, "malaria", files.malaria(slides), **keys)
        ((_, top, left, bottom, right),) = records["boxes"][0]
        inside = records["inputs"][0][:, top:bottom, left:right].mean()
        assert inside > 170
        outside = records["inputs"][0].astype(float).copy()
        outside[:, max(top - 1, 0) : bottom + 1, max(left - 1, 0) : right + 1] = files.BACKGROUND
        assert np.abs(outside - files.BACKGROUND).max() < 3
    # Without a size, that of the training slides.
    assert read(tmp_path, "malaria", files.malaria(slides), size=None)["inputs"].shape == (2, 3, 1200, 1600)


def test_a_crop_without_its_cell_is_negative(tmp_path):
    slides = {"training.json": {"a.png": ((12, 24), [("trophozoite", 0, 0, 4, 4)]), "b.png": ((12, 24), [])}}
    for keys, label, lost in (({}, 1, 0), ({"resize": "crop"}, 0, 1)):
        records = read(tmp_path, "malaria", files.malaria(slides), size=[12, 12], **keys)
        assert records["labels"].tolist() == [label, 0] and records["odd"].get(images.CROPPED, 0) == lost


@pytest.mark.parametrize(("source", "category"), [("malaria", "trophozoite"), ("lisa", "go")])
def test_boxes_that_leave_their_image(tmp_path, source, category):
    def changed(*boxes):
        if source == "malaria":
            without = {name: ((12, 16), []) for name in ("b.png", "c.png")}
            return files.malaria({**files.SLIDES, "training.json": {"a.png": ((12, 16), list(boxes)), **without}})
        lights = [(tag, left, top, right, bottom) for tag, top, left, bottom, right in boxes]
        return files.lisa({**files.FRAMES, "dayClip1": {0: lights}})

    content = changed(
        (category, -3, 12, 4, 20), (category, 20, 2, 30, 4), (category, 5, 5, 5, 9), (category, 4, 4, 8, 8)
    )
    records = read(tmp_path, source, content)
    assert records["odd"][images.CLIPPED] == 1 and records["odd"][images.EMPTY] == 2
    assert records["boxes"][0][:, 1:].tolist() == [[0, 12, 4, 16], [4, 4, 8, 8]]
    path = placed(tmp_path, content, "zip")
    card, _, _ = prepared(tmp_path, source, path=str(path), size=[6, 8], validation=0.4)
    assert card["records"]["boxes_clipped"] == 1 and card["records"]["boxes_outside_left_out"] == 2
    # A box that is all outside makes no image positive.
    assert read(tmp_path, source, changed((category, 12, 2, 30, 4)))["labels"][0] == 0


@pytest.mark.parametrize(
    ("source", "gone", "told"),
    [
        ("malaria", "malaria/images/c.png", "c.png"),
        ("lisa", "dayTrain/dayTrain/dayClip10/frames/dayClip10--00000.jpg", "dayClip10--00000"),
    ],
)
def test_a_box_file_that_names_a_missing_image(tmp_path, source, gone, told):
    content = OFFICIAL[source]()
    everything = read(tmp_path, source, content)
    del content[gone]
    message = refused(tmp_path, source, content)
    assert f"names the image {told}, which is missing; put it there, or set on_decode_error: skip" in message
    records = read(tmp_path, source, content, on_decode_error="skip")
    assert records["skipped"] == {images.MISSING: 1, images.UNREADABLE: 0}
    assert records["notes"][-1] == f"missing and left out: {told}"
    row = 2 if source == "malaria" else 5
    for name in ("inputs", "labels", "split"):
        np.testing.assert_array_equal(records[name], np.delete(everything[name], row, axis=0))
    assert len(records["boxes"]) == len(records["labels"])
    assert "which is missing (and" in refused(
        tmp_path,
        source,
        {name: data for name, data in content.items() if not name.endswith(("png", "jpg"))},
        on_decode_error="skip",
    )


@pytest.mark.parametrize(
    ("source", "name"),
    [("malaria", "malaria/images/c.png"), ("lisa", "daySequence1/daySequence1/frames/daySequence1--00004.jpg")],
)
def test_an_image_that_cannot_be_decoded(tmp_path, source, name):
    content = OFFICIAL[source]()
    content[name] = content[name][:60]
    assert f"{name}: cannot be decoded" in refused(tmp_path, source, content)
    records = read(tmp_path, source, content, on_decode_error="skip")
    assert records["skipped"] == {images.MISSING: 0, images.UNREADABLE: 1}
    assert len(records["labels"]) == len(read(tmp_path, source, OFFICIAL[source]())["labels"]) - 1


@pytest.mark.parametrize("source", OFFICIAL)
def test_archives_that_are_refused(tmp_path, source):
    content = OFFICIAL[source]()
    assert "climbs out of the archive" in refused(tmp_path, source, {**content, "../elsewhere.png": b""})
    assert "climbs out of the archive" in refused(tmp_path, source, {**content, "/elsewhere.png": b""})
    whole = placed(tmp_path, content, "zip").read_bytes()
    for cut in (len(whole) // 2, len(whole) - 30, 10):
        (tmp_path / "placed.zip").write_bytes(whole[:cut])
        message = failures.failure(READ[source], {"archive": tmp_path / "placed.zip"}, size=[12, 16])
        assert "placed.zip: truncated or damaged" in message
    message = failure(source, {"path": str(tmp_path)}, [], tmp_path / "prepared")
    assert f"{tmp_path} holds neither {registry.SOURCES[source].files[0].name} nor" in message
    if source == "lisa":
        message = failure(source, {}, [], tmp_path / "prepared")
        assert "lisa-traffic-light-dataset.zip is missing" in message


def altered(change) -> dict:
    """The official slides with a changed list of training entries."""
    content = files.malaria()
    entries = json.loads(content["malaria/training.json"])
    changed = change(entries)
    content["malaria/training.json"] = json.dumps(entries if not isinstance(changed, list | dict) else changed).encode()
    return content


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda e: e[1]["objects"][0].update(category="trophozoit"),
            "b.png: the category 'trophozoit' is unknown. Did you mean",
        ),
        (lambda e: e[1]["objects"][0].pop("category"), "training.json, entry 1: not in the official form"),
        (lambda e: e[1]["objects"][0]["bounding_box"]["minimum"].pop("r"), "entry 1: not in the official form"),
        (lambda e: e[1]["objects"][0]["bounding_box"]["minimum"].update(r=1.5), "its corners are whole numbers"),
        (lambda e: e[1]["objects"][0]["bounding_box"]["minimum"].update(r=2**64), "has a box beyond 2,147,483,648"),
        (lambda e: e[1].update(image=3), "entry 1: not in the official form"),
        (lambda e: e[1]["image"].update(pathname="/images/b.txt"), "entry 1: '/images/b.txt' names no image"),
        (lambda e: e[1]["image"]["shape"].update(r=13), "b.png: has 12x16 pixels and malaria/training.json says 13x16"),
        (lambda e: e[1]["image"].update(pathname="/images/g.jpg"), "test.json: names the image g.jpg a second time"),
        (lambda e: [], "holds no list of images"),
        (lambda e: {"images": e}, "holds no list of images"),
    ],
)
def test_annotations_of_slides_that_are_refused(tmp_path, change, words):
    assert words in refused(tmp_path, "malaria", altered(change))


def test_files_of_slides_that_are_refused(tmp_path):
    content = files.malaria()
    assert "training.json: no JSON" in refused(tmp_path, "malaria", {**content, "malaria/training.json": b"[{"})
    assert "training.json is there twice" in refused(tmp_path, "malaria", {**content, "other/training.json": b"[]"})
    assert "a.png: is there twice" in refused(
        tmp_path, "malaria", {**content, "other/a.png": content["malaria/images/a.png"]}
    )
    del content["malaria/training.json"]
    assert "holds no training.json" in refused(tmp_path, "malaria", content)


def boxes_of(*rows: str, header: str = files.LISA_HEADER) -> dict:
    content = files.lisa()
    content["Annotations/Annotations/dayTrain/dayClip1/frameAnnotationsBOX.csv"] = "\r\n".join([header, *rows]).encode()
    return content


def without(word: str) -> dict:
    return {name: data for name, data in files.lisa().items() if word not in name}


ROW = "dayTraining/dayClip1--00000.jpg;{};{};video;0;video;0"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (boxes_of(ROW.format("goo", "1;1;2;2")), "BOX.csv, line 2: the tag 'goo' is unknown. Did you mean 'go'?"),
        (boxes_of(ROW.format("go", "1;1;2;x")), "line 2: a box of ['1', '1', '2', 'x']; its corners are whole numbers"),
        (boxes_of(ROW.format("go", "1;1;2")), "line 2: 9 column(s), but its header has 10"),
        (boxes_of("dayTraining/frame1.jpg;go;1;1;2;2;video;0;video;0"), "'dayTraining/frame1.jpg' names no frame"),
        (boxes_of(header=files.LISA_HEADER.replace("Annotation tag", "Tag")), "no column annotation_tag"),
        (boxes_of(header=files.LISA_HEADER.replace(";", ",")), "no column filename"),
        (boxes_of("dayTest/daySequence1--00003.jpg;go;1;1;2;2;video;0;video;0"), "both have boxes of daySequence1"),
        (boxes_of(), "has frames of dayClip1 and no frameAnnotationsBOX.csv with its lights"),
        (without("day"), "holds no frameAnnotationsBOX.csv"),
        (without("Sequence1"), "holds no daySequence, and so nothing for the test part"),
        (without("Clip"), "holds no dayClip, and so nothing for the train part"),
    ],
)
def test_annotations_of_frames_that_are_refused(tmp_path, content, words):
    assert words in refused(tmp_path, "lisa", content)


def test_a_sample_without_a_split(tmp_path):
    slides = files.SLIDES["training.json"]
    listed = [{"image": name, "objects": files.entry(name, *slide)["objects"]} for name, slide in slides.items()]
    content = {name.removeprefix("malaria/"): data for name, data in files.malaria().items() if "json" not in name}
    content |= {"annotations.json": json.dumps(listed).encode(), "official_test.json": b"of images that are not here"}
    path = placed(tmp_path, content, "folder")
    card, data, _ = prepared(tmp_path, "malaria", path=str(path), size=[12, 16], test=0.34, validation=0.3)
    assert card["records"]["read"] == 6 and sum(card["counts"]["test"].values()) == 2
    assert data.labels.tolist() == [1, 0, 1, 0, 1, 0]


# ---- real files


def test_real_slides(real_data):
    path = real_data("bbbc041", "annotations.json").parent
    records = malaria.read(local_files(registry.SOURCES["malaria"], path), size=[600, 800])
    assert records["inputs"].shape == (5, 3, 600, 800) and records["labels"].tolist() == [1] * 5
    assert [len(boxes) for boxes in records["boxes"]] == [2, 4, 1, 4, 6] and not sum(records["odd"].values())
    # The parasite is stained: its boxes are more purple (less green) than the whole slide.
    for picture, boxes in zip(records["inputs"], records["boxes"], strict=True):
        purple = picture[[0, 2]].mean(axis=0) - picture[1]
        inside = [purple[top:bottom, left:right].mean() for _, top, left, bottom, right in boxes]
        assert np.mean(inside) > purple.mean() + 5


def test_crops_of_real_slides(real_data, tmp_path):
    path = real_data("bbbc041", "annotations.json").parent
    card, data, folder = prepared(tmp_path, f"{malaria.__file__}:crops", path=str(path))
    assert card["input_shape"] == [3, 200, 200] and card["truth"] == "boxes"
    assert [card["counts"][part]["trophozoite"] for part in sources.PARTS] == [8 * 11, 8 * 4, 8 * 2]
    assert all(counts["trophozoite"] == counts["no trophozoite"] for counts in card["counts"].values())
    shown = images.truth(folder, data.ids, data.labels)
    np.testing.assert_array_equal(shown.any(axis=(1, 2)), data.labels == 1)
    assert 0.1 < shown[data.labels == 1].mean() < 0.6
    purple = data.inputs[:, [0, 2]].mean(axis=1) - data.inputs[:, 1]
    assert purple[shown].mean() > purple[data.labels == 0].mean() + 0.02


def test_real_annotations_of_slides(real_data):
    file = real_data("bbbc041", "official_test.json")
    annotations = malaria._read_annotations(file.parent, "test.json", file.read_bytes())
    assert len(annotations) == 120 and {one.sides for _, one in annotations} == {(1383, 1944)}
    cells = np.concatenate([one.boxes for _, one in annotations])
    counts = dict(zip(malaria.BOX_NAMES, np.bincount(cells[:, 0], minlength=8).tolist(), strict=True))
    assert counts["trophozoite"] == 111 and counts["ring"] == 169 and counts["red blood cell"] == 5614
    fitted, odd = images.fit_boxes(cells.tolist(), (1383, 1944), [300, 400], "resize")
    assert len(fitted) == len(cells) and not odd.total()


def test_real_boxes_of_lights(real_data, tmp_path):
    rows = real_data("lisa", "frameAnnotationsBOX.csv").read_bytes()
    frames = sorted({line.split(b";")[0].decode().split("/")[1] for line in rows.splitlines()[1:]})
    content = files.lisa({"dayClip1": files.FRAMES["dayClip1"]}, sides=(960, 1280))
    one = files.image((960, 1280), [], "JPEG")
    content["Annotations/Annotations/daySequence1/frameAnnotationsBOX.csv"] = rows
    shown = frames[:20] + frames[-20:]
    content |= {f"daySequence1/daySequence1/frames/{name}": one for name in shown}
    content["daySequence1/daySequence1/frames/daySequence1--99999.jpg"] = one  # of which the real file says nothing
    records = read(tmp_path, "lisa", content, size=[60, 80], on_decode_error="skip")
    assert len(frames) == 3348 and records["skipped"][images.MISSING] == 3348 - 40
    assert len(records["labels"]) == 3 + 40 + 1 and not sum(records["odd"].values())
    assert records["labels"][-1] == 0 and not len(records["boxes"][-1])
    lights = {frame: [] for frame in frames}
    for line in rows.decode().splitlines()[1:]:
        name, tag = line.split(";")[:2]
        lights[name.split("/")[1]].append(tag)
    expected = [int(any(tag == "go" for tag in lights[name])) for name in shown]
    assert records["labels"][3:-1].tolist() == expected and {0, 1} == set(expected)


def test_real_frames_at_their_full_size(real_data, tmp_path):
    """Six frames, with the lights that a person counts in them; of dayClip1 only a file of boxes is made here."""
    frames = {path.name: path.read_bytes() for path in real_data("lisa", "dayClip1--00000.jpg").parent.glob("*.jpg")}
    rows = real_data("lisa", "frameAnnotationsBOX.csv").read_bytes()
    content = {f"frames/{name}": picture for name, picture in frames.items()}
    content["Annotations/daySequence1/frameAnnotationsBOX.csv"] = rows
    made = b"\ndayTraining/dayClip1--00001.jpg;stop;1;1;9;9;video;1;video;1\n"
    content["Annotations/dayClip1/frameAnnotationsBOX.csv"] = rows.splitlines()[0] + made
    records = read(tmp_path, "lisa", content, size=None, on_decode_error="skip")
    assert records["inputs"].shape == (6, 3, 960, 1280) and records["labels"].tolist() == [0, 0, 0, 0, 1, 1]
    assert records["split"].tolist() == [TRAIN, *[TEST] * 5]
    names = [[image_sources.LIGHT_NAMES[box[0]] for box in boxes] for boxes in records["boxes"]]
    green = "green light"
    assert [sorted(one) for one in names] == [
        *([], ["stop"], [], ["stop"] * 3),
        *([green] * 3, [green] * 2 + ["stop"] * 2),
    ]
    corners = {tuple(map(int, line.split(";")[2:6])) for line in rows.decode().splitlines() if "--01010" in line}
    assert {(left, top, right, bottom) for _, top, left, bottom, right in records["boxes"][4].tolist()} == corners
