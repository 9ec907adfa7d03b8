"""Faces, arrest records, recidivism scores: the official layouts, the stated choices, one clear line for bad files."""

import gzip
import json
import lzma
import zipfile
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np
import pytest

from shapeline.datasets import loading, preparation, registry, sources, text_sources
from shapeline.datasets.fetch import fetch
from tests.fixtures import builders, failures, text_files
from tests.fixtures import influence_files as files

failure = partial(failures.failure, preparation.prepare)


def prepared(tmp_path, source, path, **settings):
    card = preparation.prepare(source, {"path": str(path), **settings}, [], tmp_path / "prepared" / source)
    return card, loading.load(tmp_path / "prepared" / source)


def refused(tmp_path, source, path) -> str:
    return failure(source, {"path": str(path)}, [], tmp_path / "prepared")


def written(path, content: bytes):
    path.write_bytes(content)
    return path


# ---- faces


def test_faces_of_folders_and_of_the_csv_are_the_same(tmp_path):
    text_files.write_folder(tmp_path / "faces", files.fer())
    card, of_folders = prepared(tmp_path, "fer", tmp_path / "faces", validation=0)
    rows = files.table(files.FER_HEADER, files.fer_rows())
    _, of_csv = prepared(tmp_path, "fer", written(tmp_path / "fer2013.csv", rows), validation=0)
    assert card["kind"] == "image" and card["classes"] == ["happy", "sad"] and card["scale"] == 255
    assert card["input_shape"] == [1, 48, 48] and of_folders.inputs.dtype == np.float32
    for name in ("inputs", "labels", "split"):
        np.testing.assert_array_equal(getattr(of_folders, name), getattr(of_csv, name))
    np.testing.assert_array_equal(np.load(tmp_path / "prepared/fer/arrays.npz")["inputs"][-1, 0], files.face(154))
    # The folder above the layout, and the other layout of the csv.
    text_files.write_folder(tmp_path / "above" / "fer2013", files.fer())
    _, above = prepared(tmp_path, "fer", tmp_path / "above", validation=0)
    np.testing.assert_array_equal(above.inputs, of_folders.inputs)
    header = [" Usage", "emotion", " pixels"]
    rows = [{f" {name}" if name != "emotion" else name: cell for name, cell in row.items()} for row in files.fer_rows()]
    _, other = prepared(tmp_path, "fer", written(tmp_path / "icml.csv", files.table(header, rows)), validation=0)
    np.testing.assert_array_equal(other.inputs, of_folders.inputs)


@pytest.mark.parametrize("content", ["folders", "csv"])
@pytest.mark.parametrize("compressed", [gzip.compress, lzma.compress])
def test_faces_of_a_tar(tmp_path, content, compressed):
    members = files.fer() if content == "folders" else {"fer2013.csv": files.table(files.FER_HEADER, files.fer_rows())}
    archive = text_files.write_archive(
        tmp_path / "a.tar.gz", {f"fer2013/{name}": data for name, data in members.items()}
    )
    path = written(tmp_path / "faces.tar", compressed(gzip.decompress(archive.read_bytes())))
    card, data = prepared(tmp_path, "fer", path, validation=0)
    assert card["counts"]["train"] == {"happy": 5, "sad": 5} and data.inputs.shape == (20, 1, 48, 48)
    assert card["records"]["left_out_other_expressions"] == 1
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    assert f"{path}: truncated or damaged" in refused(tmp_path, "fer", path)
    if compressed is lzma.compress:  # of gzip bytes changed inside may show first as a wrong row
        path.write_bytes(whole[:1000] + bytes(64) + whole[1064:])
        assert f"{path}: truncated or damaged" in refused(tmp_path, "fer", path)


def test_each_part_has_as_many_happy_as_sad_faces(tmp_path):
    folder = text_files.write_folder(tmp_path / "faces", files.fer(n_happy=30, n_sad=10))
    card, data = prepared(tmp_path, "fer", folder, validation=0.2)
    assert card["counts"] == {
        "train": {"happy": 8, "sad": 8},
        "validation": {"happy": 2, "sad": 2},
        "test": {"happy": 10, "sad": 10},
    }
    assert card["records"]["read"] == 81 and card["records"]["left_out_to_balance"] == 40
    assert card["notes"] == ["each class sampled by seed to the size of the rarest, in each part"]
    assert set(data.ids[data.labels == 1]) == {*range(30, 40), *range(70, 80)}, "every sad face is kept"
    _, again = prepared(tmp_path, "fer", folder, validation=0.2)
    np.testing.assert_array_equal(again.ids, data.ids)
    drawn = [set(prepared(tmp_path, "fer", folder, validation=0, seed=seed)[1].ids) for seed in (0, 1)]
    assert drawn[0] != drawn[1] and drawn[0] != {*range(10), *range(30, 50), *range(70, 80)}
    # The same faces, whichever class comes first.
    _, turned = prepared(tmp_path, "fer", folder, validation=0.2, classes=["sad", "happy"])
    np.testing.assert_array_equal(turned.ids, data.ids)
    np.testing.assert_array_equal(turned.labels, 1 - data.labels)


def test_an_image_that_cannot_be_decoded_is_named_and_left_out(tmp_path, caplog):
    faces = files.fer(form="JPEG")
    faces["train/happy/Training_12.jpg"] = faces["train/happy/Training_12.jpg"][:300]
    faces["test/sad/PublicTest_10.jpg"] = b"no image"
    card, _ = prepared(tmp_path, "fer", text_files.write_folder(tmp_path / "faces", faces), validation=0)
    assert card["records"]["left_out_unreadable"] == 2 and card["records"]["read"] == 27
    assert card["counts"]["test"] == {"happy": 4, "sad": 4}
    for name in ("train/happy/Training_12.jpg", "test/sad/PublicTest_10.jpg", "2 image(s) left out"):
        assert name in caplog.text


@pytest.mark.parametrize("missing", ["test/sad", "train/happy", "test"])
def test_a_missing_class_or_part_is_named(tmp_path, missing):
    faces = {name: data for name, data in files.fer().items() if not name.startswith(missing)}
    folder = text_files.write_folder(tmp_path / "faces", faces)
    message = refused(tmp_path, "fer", folder)
    part, _, name = missing.partition("/")
    assert (f"no {name} face of the {part} part" if name else "neither fer2013.csv nor train and test") in message


def test_a_face_of_another_size_is_refused_and_a_zip_is_read(tmp_path):
    faces = files.fer() | {"train/sad/Training_11.png": files.image(1, (48, 50), "PNG")}
    message = refused(tmp_path, "fer", text_files.write_folder(tmp_path / "faces", faces))
    assert "train/sad/Training_11.png has 48x50 pixels, expected 48x48" in message
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        for name, content in files.fer().items():
            archive.writestr(name, content)
    card, _ = prepared(tmp_path, "fer", tmp_path / "archive.zip", validation=0)
    assert card["counts"]["train"] == {"happy": 5, "sad": 5}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pixels": "1 2 3"}, "line 4: 3 pixels; expected 2,304 numbers from 0 to 255"),
        ({"pixels": " ".join(["256"] * 2304)}, "line 4: 2,304 pixels"),
        ({"pixels": " ".join(["x"] * 2304)}, "line 4: 2,304 pixels"),
        ({"emotion": "7"}, "line 4: the emotion '7' is not one of 0 to 6"),
        ({"Usage": "Test"}, "line 4: the usage 'Test' is not one of Training, PublicTest, PrivateTest"),
    ],
)
def test_a_bad_row_of_faces(tmp_path, change, words):
    rows = files.fer_rows()
    rows[2] |= change
    path = written(tmp_path / "fer2013.csv", files.table(files.FER_HEADER, rows))
    assert f"{path}, {words}" in refused(tmp_path, "fer", path)


def test_faces_are_placed_by_hand(tmp_path):
    place = tmp_path / "data/raw/fer/fer2013.csv"
    for offline in (False, True):
        message = failures.failure(fetch, "fer", "fer2013.csv", place, offline=offline)
        assert "log-in" in message and "https://www.kaggle.com/c/" in message and str(place) in message
    assert "'path'" in message and not list(place.parent.iterdir())
    place.write_bytes(b"another file")
    assert "expected f8428a1edbd21e88f42c73edd2a14f95" in failures.failure(fetch, "fer", "fer2013.csv", place)
    message = failures.failure(fetch, "fer", "fer2013.csv", tmp_path / "new.csv", mirror=str(tmp_path / "mirror"))
    assert f"Tried: {tmp_path / 'mirror/fer/fer2013.csv'}: not there" in message


# ---- the Strategic Subject List


@pytest.mark.parametrize("separator", [" ", "_"])
def test_subjects(tmp_path, separator):
    rows = [
        files.SSL_EXAMPLE,
        *files.ssl(3, sex_code_cd="F", race_code_cd="WWH", predictor_rat_age_at_latest_arrest="70-80", parolee_i="Y"),
        *files.ssl(6, race_code_cd="API", sex_code_cd="X", predictor_rat_age_at_latest_arrest="20-30"),
    ]
    header = files.SSL_HEADER if separator == " " else [name.lower() for name in files.SSL_HEADER]
    rows = rows if separator == " " else [{name.lower(): cell for name, cell in row.items()} for row in rows]
    path = written(tmp_path / "list.csv", b"\xef\xbb\xbf" + files.table(header, rows, separator))
    card, data = prepared(tmp_path, "ssl", path, test=0.2)
    assert card["task"] == "regression" and card["kind"] == "table" and card["classes"] == []
    assert card["feature_names"] == list(registry.SOURCES["ssl"].feature_names) and data.inputs.shape == (10, 14)
    # Table 4, example 2.
    expected = [1.8, 1, 1, 5, 1, 0, -0.6, 0, 0, 1, 1, 0, 0, 2016]
    np.testing.assert_allclose(data.inputs[0], expected, rtol=1e-6)
    np.testing.assert_array_equal(data.labels, [448, 0, 1, 2, 0, 1, 2, 3, 4, 5])
    assert card["categorical"] == [9] and card["categories"] == {"race": ["API", "BLK", "WWH"]}
    named = dict(zip(card["feature_names"], data.inputs.T, strict=True))
    np.testing.assert_allclose(named["age"], [1.8] + [7.5] * 3 + [2.5] * 6)
    np.testing.assert_array_equal(named["is female"], [0] + [1] * 3 + [0] * 6)
    np.testing.assert_array_equal(named["race"], [1] + [2] * 3 + [0] * 6)
    np.testing.assert_array_equal(named["on parole"], [0] + [1] * 3 + [0] * 6)
    assert sorted(chain(*card["groups"].values())) == sorted(card["feature_names"])


def test_subjects_with_a_missing_value_are_counted(tmp_path):
    rows = files.ssl(20)
    rows[3] |= {"PREDICTOR RAT AGE AT LATEST ARREST": ""}
    rows[7] |= {"SSL SCORE": " "}
    card, data = prepared(tmp_path, "ssl", written(tmp_path / "list.csv", files.table(files.SSL_HEADER, rows)))
    assert card["records"]["left_out_missing_value"] == 2 and card["records"]["read"] == 20
    assert sorted(data.labels) == [row for row in range(20) if row not in (3, 7)]
    assert any("no entry for parole" in note for note in card["notes"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"SSL SCORE": "high"}, "line 4: ssl_score is 'high'; expected a number from 0 to 500"),
        ({"SSL SCORE": 501}, "line 4: ssl_score is '501'; expected a number from 0 to 500"),
        ({"SSL SCORE": "nan"}, "line 4: ssl_score is 'nan'"),
        ({"PREDICTOR RAT UUW ARRESTS": "1;2"}, "line 4: predictor_rat_uuw_arrests is '1;2'; expected a number."),
        ({"PREDICTOR RAT AGE AT LATEST ARREST": "80-90"}, "is '80-90'; expected one of 'less than 20', '20-30'"),
        ({"WEAPON I": "maybe"}, "line 4: weapon_i is 'maybe'; expected one of 'y', 'n'"),
        ({"LATEST DATE": 20160731}, "line 4: latest_date is '20160731'; expected a number from 1900 to 2100"),
    ],
)
def test_a_bad_record_of_subjects(tmp_path, change, words):
    rows = files.ssl(5)
    # A record that is left out does not shift the lines.
    rows[0] |= {"PREDICTOR RAT AGE AT LATEST ARREST": ""}
    rows[2] |= change
    path = written(tmp_path / "list.csv", files.table(files.SSL_HEADER, rows))
    message = refused(tmp_path, "ssl", path)
    assert str(path) in message and words in message


def test_bad_tables(tmp_path):
    path = tmp_path / "list.csv"
    good = files.table(files.SSL_HEADER, files.ssl(5))
    path.write_bytes(good.replace(b"SSL SCORE", b"SSL SCORES", 1))
    assert f"{path}: its header has no column ssl_score. Did you mean" in refused(tmp_path, "ssl", path)
    path.write_bytes(b"")
    assert "has no column ssl_score; the file is empty" in refused(tmp_path, "ssl", path)
    path.write_bytes(b"<!DOCTYPE html><html>log in</html>")
    assert "its header has no column ssl_score" in refused(tmp_path, "ssl", path)
    path.write_bytes(good.splitlines()[0])
    assert "holds a header and no rows" in refused(tmp_path, "ssl", path)
    path.write_bytes(good[:-40])
    assert f"{path}, line 6: " in refused(tmp_path, "ssl", path) and "its header has 48" in refused(
        tmp_path, "ssl", path
    )
    path.write_bytes(good + b'"open')
    assert f"{path}, line 7: not readable as CSV" in refused(tmp_path, "ssl", path)
    assert f"{tmp_path} holds no Strategic_Subject_List.csv, which ssl needs" in refused(tmp_path, "ssl", tmp_path)
    assert "regression" in failure("ssl", {"path": str(path), "classes": [0, 1]}, [], tmp_path / "prepared")


# ---- COMPAS


@pytest.mark.parametrize("header", [files.COMPAS_HEADER, files.COMPAS_NAMELESS])
def test_compas_and_propublicas_filter(tmp_path, header):
    rows = [
        *files.compas(10),
        *files.compas(10, sex="Female", race="Asian", c_charge_degree="M", days_b_screening_arrest=30),
        *files.compas(1, days_b_screening_arrest=""),
        *files.compas(2, days_b_screening_arrest=-31),
        *files.compas(3, is_recid=-1),
        *files.compas(4, c_charge_degree="O"),
        *files.compas(5, score_text="N/A", decile_score=-1),
    ]
    card, data = prepared(tmp_path, "compas", written(tmp_path / "two-years.csv", files.table(header, rows)))
    assert {name: n for name, n in card["records"].items() if name.startswith("left_out")} == {
        "left_out_no_arrest_date": 1,
        "left_out_arrest_over_30_days_off": 2,
        "left_out_recidivism_unknown": 3,
        "left_out_ordinary_traffic_offence": 4,
        "left_out_no_score": 5,
    }
    assert card["records"]["read"] == 35 and "15 rows left out" in card["notes"][0]
    np.testing.assert_array_equal(data.labels, np.tile(np.arange(1, 11), 2))
    assert card["feature_names"] == list(registry.SOURCES["compas"].feature_names)
    np.testing.assert_array_equal(data.inputs[0], [34, 4, 1, 2, 3, -1, 0, 1, 1])
    np.testing.assert_array_equal(data.inputs[-1], [34, 4, 1, 2, 3, 30, 1, 0, 0])
    assert card["categorical"] == [7] and card["categories"] == {"race": ["Asian", "Other"]}
    assert sorted(chain(*card["groups"].values())) == sorted(card["feature_names"])
    path = written(tmp_path / "bad.csv", files.table(header, [*files.compas(3), *files.compas(1, decile_score="Low")]))
    assert f"{path}, line 5: decile_score is 'Low'; expected a number from 1 to 10." in refused(
        tmp_path, "compas", path
    )


# ---- what they share


def test_lines_are_those_of_the_file(tmp_path):
    path = written(tmp_path / "t.csv", b'a,B c\n1,"two\nlines"\n\n x ,y\n')
    table = text_sources.read_columns(path, ("b_c", "a"))
    assert table.texts.index.tolist() == [2, 5] and table.texts["b_c"].tolist() == ["two\nlines", "y"]
    assert failures.failure(table.numbers, "a") == f"{path}, line 5: a is 'x'; expected a number."
    # Of equal names the first: ProPublica's file has two of them twice.
    written(path, b"a,A\n1,2\n")
    assert text_sources.read_columns(path, ("a",)).texts["a"].tolist() == ["1"]
    assert failures.failure(text_sources.read_columns, tmp_path / "none.csv", ("a",)).startswith(
        f"{tmp_path / 'none.csv'}: "
    )


def test_categories_of_a_users_own_source(tmp_path):
    def source(categories):
        inputs = [[0.5, i % 3, i] for i in range(30)]
        body = f"return {{'inputs': {inputs}, 'labels': [0, 1] * 15, 'categories': {categories}}}"
        return builders.write_own_source(tmp_path / "own.py", body)

    card = preparation.prepare(source({"column 1": ["a", "b", "c"]}), {}, [], tmp_path / "out")
    assert card["categorical"] == [1] and card["categories"] == {"column 1": ["a", "b", "c"]}
    assert json.loads((tmp_path / "out/card.json").read_text()) == card
    message = failure(source({"column 1": ["a", "b"]}), {}, [], tmp_path / "out")
    assert "record 2, column 'column 1' is 2.0; it has 2 categories, so its codes are 0 to 1" in message
    assert "which is not a column" in failure(source({"colour": ["a"]}), {}, [], tmp_path / "out")


def test_a_file_without_a_published_checksum(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    caplog.set_level("INFO")
    content = files.table(files.COMPAS_HEADER, files.compas(30))
    with builders.file_server() as server:
        source = registry.SOURCES["compas"]
        file = replace(source.files[0], urls=(server.url("/a.csv"),))
        monkeypatch.setitem(registry.SOURCES, "compas", replace(source, files=(file,)))
        place = tmp_path / "raw" / file.name
        message = failures.failure(fetch, "compas", file.name, place)
        assert "expected any content: no checksum is published" in message and str(place) in message
        # Pieces of two files are never joined.
        (place.parent / f"{file.name}.part").write_bytes(b"an old piece")
        server.content["/a.csv"] = content
        server.cut["/a.csv"] = [100]
        assert fetch("compas", file.name, place).read_bytes() == content
        assert all(asked is None for _, asked in server.requests)
    assert "no checksum is published; pinned at first use, sha256" in caplog.text
    card = preparation.prepare("compas", {}, [place], tmp_path / "prepared")
    assert card["records"]["read"] == 30 and card["urls"] == list(file.urls)


# ---- real files


def test_real_faces(tmp_path, real_data):
    card, data = prepared(tmp_path, "fer", real_data("fer2013", "fer2013_kaggle_happy_sad.tar.xz"))
    assert card["records"]["read"] == 15_066 and card["records"]["left_out_to_balance"] == 8_989 - 6_077
    assert card["records"]["left_out_unreadable"] == 0
    whole = {name: sum(card["counts"][part][name] for part in sources.PARTS) for name in ("happy", "sad")}
    assert whole == {"happy": 6_077, "sad": 6_077}  # the selection of the paper
    assert card["counts"]["test"] == {"happy": 1_247, "sad": 1_247}
    assert data.inputs.shape == (12_154, 1, 48, 48) and 0.4 < data.inputs.mean() < 0.6


def test_real_compas(tmp_path, real_data):
    card, data = prepared(tmp_path, "compas", real_data("compas", "compas-two-years-no-names.csv"))
    assert card["records"]["read"] == 7_214 and len(data.inputs) == 6_172  # ProPublica's own count
    assert len(card["categories"]["race"]) == 6 and set(data.labels) == set(range(1, 11))
    named = dict(zip(card["feature_names"], data.inputs.T, strict=True))
    assert np.corrcoef(named["priors"], data.labels)[0, 1] > 0.3 > 0 > np.corrcoef(named["age"], data.labels)[0, 1]


def test_the_columns_of_the_real_list(real_data):
    listed = real_data("chicago_ssl", "columns.csv").read_text().splitlines()[1:]
    assert [line.split(",")[0] for line in listed] == [name.replace(" ", "_") for name in files.SSL_HEADER]
    whole = {line.split(",")[0].lower() for line in listed if line.split(",")[1] == "398684"}
    lacking = {column for column, _ in text_sources.SSL_ATTRIBUTES.values()} - whole
    assert lacking == {"predictor_rat_age_at_latest_arrest", "parolee_i"}
