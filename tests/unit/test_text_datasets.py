"""Text datasets: the right tokens of the right documents, and one clear line for bad files."""

import gzip
import json
import tarfile
from functools import partial

import numpy as np
import pytest

from shapeline.datasets import checks, loading, preparation, records, registry, sources, synthetic, text, tokenizer
from shapeline.errors import ShapelineError
from shapeline.games import features, references
from shapeline.seeds import digest
from tests.fixtures import builders, failures, text_files

failure = partial(failures.failure, preparation.prepare)
SPACE = 69


def own(tmp_path, texts, labels=None, **more) -> str:
    """A user's source of the given documents."""
    returned = {"texts": texts, "labels": [i % 2 for i in range(len(texts))] if labels is None else labels, **more}
    return builders.write_own_source(tmp_path / "own.py", f"return {returned!r}")


def prepared(tmp_path, texts, settings=None, **more):
    card = preparation.prepare(own(tmp_path, texts, **more), settings or {}, [], tmp_path / "out")
    return card, loading.load(tmp_path / "out")


# The example of Chen et al. (2018); it is not among the reviews, but all its words are.
EXAMPLE = "It is not heartwarming or entertaining. It just sucks."


# ---- words


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (EXAMPLE, EXAMPLE.lower().replace(".", "").split()),
        ("Isn't it 'good'? Rock'n'roll!", ["isn't", "it", "good", "rock'n'roll"]),
        ("don\u2019t, DON'T", ["don't", "don't"]),
        ("A well-made 2-hour film_noir (1949)...", ["a", "well", "made", "2", "hour", "film", "noir", "1949"]),
        ("Na\u00efve caf\u00e9 \u4e2d\u6587 <br />", ["na\u00efve", "caf\u00e9", "\u4e2d\u6587", "br"]),
        ("?! ... --- ''", []),
    ],
)
def test_what_a_word_is(document, expected):
    assert text.split_words(document, "word", 400) == expected


def test_the_vocabulary_is_the_most_frequent_words_of_the_training_part(tmp_path):
    # c four times, a and b twice each: of these a is first in the alphabet. z is frequent, but not in training.
    texts = ["c c b", "c a b a c", "d e", "z z z z z z c", "z z z z z z z", "d z z z"]
    split = ["train", "train", "train", "validation", "test", "test"]
    card, data = prepared(tmp_path, texts, {"vocabulary": 4}, split=split)
    assert card["vocabulary"] == ["", "<unk>", "c", "a"]
    assert card["vocabulary_digest"] == digest(card["vocabulary"])
    assert data.inputs[:2, :6].tolist() == [[2, 2, 1, 0, 0, 0], [2, 3, 1, 3, 2, 0]]
    assert data.inputs[4, :8].tolist() == [1] * 7 + [0]
    assert data.inputs.dtype == np.int32 and data.inputs.shape == (6, 400)
    # Only of the chosen classes: without c the others rank.
    card, _ = prepared(tmp_path, ["c c", "a", "b b", "a", "b"], {"classes": [1, 2]}, labels=[0, 1, 2, 1, 2])
    assert "c" not in card["vocabulary"]
    # Fewer words than the vocabulary could hold.
    card, _ = prepared(tmp_path, texts, split=split)
    assert card["vocabulary"] == ["", "<unk>", "c", "a", "b", "d", "e"]


def test_long_documents_keep_their_last_words(tmp_path):
    document = " ".join(f"w{i}" for i in range(5000))
    settings = {"length": 7, "vocabulary": 6000}
    card, data = prepared(tmp_path, [document, "w1", "w3", "one"], settings, split=[0, 0, 1, 2])
    assert card["records"]["truncated"] == 1 and card["input_shape"] == [7] and card["mean_words"] == 5003 / 4
    kept = [f"w{i}" for i in range(4993, 5000)]
    assert tokenizer.list_words(document, card) == kept
    assert [card["vocabulary"][token] for token in data.inputs[0]] == kept
    assert tokenizer.read_documents(tmp_path / "out", [0]) == [document]


def test_one_word_and_no_known_word(tmp_path):
    card, data = prepared(tmp_path, ["good film", "bad film", "film", "Qwerty uiop!"], split=[0, 0, 2, 2])
    assert data.inputs[2, :2].tolist() == [2, 0]
    assert data.inputs[3, :3].tolist() == [1, 1, 0]
    for record, d in ((2, 1), (3, 2)):
        built = features.build_for("word", card, data.inputs[record])
        assert built.d == d == len(tokenizer.list_words(tokenizer.read_documents(tmp_path / "out", [record])[0], card))


def test_empty_documents_are_omitted_and_counted(tmp_path):
    card, data = prepared(
        tmp_path, ["good", "...", "bad", "good", "", "bad"], labels=[1, 0, 0, 1, 1, 0], split=[0] * 4 + [2] * 2
    )
    assert card["records"] == {
        "read": 6, "skipped_other_classes": 0, "empty": 2, "undecodable": 0, "truncated": 0,
    }  # fmt: skip
    assert data.ids.tolist() == [0, 2, 3, 5] and data.labels.tolist() == [1, 0, 1, 0]
    assert tokenizer.read_documents(tmp_path / "out", [5, 0, 5]) == ["bad", "good", "bad"]


def test_documents_by_id(tmp_path):
    texts = [f"Word {i} \u2013 'na\u00efve'\nline" for i in range(20)]
    _, data = prepared(tmp_path, texts, {"classes": [1, 0]})
    assert tokenizer.read_documents(tmp_path / "out", data.ids) == texts
    assert "there is no record 20" in failures.failure(tokenizer.read_documents, tmp_path / "out", [3, 20])
    assert "not known" in failures.failure(tokenizer.read_ground_truth_words, tmp_path / "out", [3])
    (tmp_path / "out/documents.parquet").write_bytes(b"PAR1")
    assert "damaged" in failures.failure(tokenizer.read_documents, tmp_path / "out", [3])
    (tmp_path / "out/documents.parquet").unlink()
    assert "is missing" in failures.failure(tokenizer.read_documents, tmp_path / "out", [3])


def test_new_documents_are_encoded_as_the_dataset_is(tmp_path):
    for unit in text.UNITS:
        texts = ["A good film!", "A bad\tfilm caf\u00e9", "Good, good", "bad " * 30]
        card, data = prepared(tmp_path, texts, {"unit": unit, "length": 20}, split=[0, 0, 0, 2])
        encoded = tokenizer.encode_documents(texts, card)
        assert encoded.dtype == np.int32
        np.testing.assert_array_equal(encoded, data.inputs)
    assert tokenizer.encode_documents([], card).shape == (0, 20)


def test_the_documents_of_an_earlier_text_go(tmp_path):
    prepared(tmp_path, ["a b", "b", "a", "b", "a"])
    preparation.prepare("digits", {"classes": [3, 8]}, [], tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["arrays.npz", "card.json"]


# ---- characters


def test_the_alphabet():
    assert len(text.CHARACTERS) == 70 == len(set(text.CHARACTERS)) and text.CHARACTERS[0] == ""
    assert text.CHARACTERS[SPACE] == " " and text.CHARACTERS[1] == "a" and text.CHARACTERS[27] == "0"


def test_characters(tmp_path):
    texts = ["Ab Z", "a\tb\nc", "caf\u00e9 \u4e2d x", "x" * 2000, "\u4e2d\u6587 ", "b b"]
    card, data = prepared(tmp_path, texts, {"unit": "character"}, labels=[0, 1, 0, 1, 1, 0], split=[0, 0, 0, 2, 0, 2])
    assert card["unit"] == "character" and card["space_id"] == card["absent_id"] == SPACE
    assert card["vocabulary"] == list(text.CHARACTERS) and card["input_shape"] == [1014]
    assert data.inputs[0, :6].tolist() == [1, 2, SPACE, 26, 0, 0]
    assert data.inputs[1, :6].tolist() == [1, SPACE, 2, SPACE, 3, 0]
    assert data.inputs[2, :8].tolist() == [3, 1, 6, 0, SPACE, 0, SPACE, 24]
    assert (data.inputs[3] == 24).all()
    assert card["records"]["truncated"] == 1 and card["records"]["empty"] == 1
    with np.load(tmp_path / "out/arrays.npz") as stored:
        assert stored["inputs"].dtype == np.uint8


def test_an_unknown_character_does_not_end_a_document(tmp_path):
    document = "caf\u00e9s \u4e2d\u6587 are  open \u2014 now"
    card, data = prepared(tmp_path, [document, "a b", "b", "a"], {"unit": "character"}, split=[0, 0, 2, 2])
    words = tokenizer.list_words(document, card)
    assert words == ["caf\u00e9s", "are", "open", "now"]
    built = features.build_for("character_run", card, data.inputs[0])
    assert built.d == 4 and built.cells[4] == 0 and built.cells[3] == -1
    for feature, word in enumerate(words):
        cells = np.flatnonzero(built.cells == feature)
        assert "".join(card["vocabulary"][token] for token in data.inputs[0, cells]) == word.replace("\u00e9", "")


def test_characters_are_cut_at_the_end(tmp_path):
    card, data = prepared(
        tmp_path, ["one two three", "a", "b", "c"], {"unit": "character", "length": 6}, split=[0, 0, 2, 2]
    )
    assert tokenizer.list_words("one two three", card) == ["one", "tw"]
    assert features.build_for("character_run", card, data.inputs[0]).d == 2


def test_features_fit_the_unit(tmp_path):
    for unit, wrong, right in (("word", "character_run", "word"), ("character", "word", "character_run")):
        card, data = prepared(tmp_path, ["a b", "b", "a", "b", "a"], {"unit": unit})
        assert f"use {right}" in failures.failure(features.build_for, wrong, card, data.inputs[0])
        assert features.build_for(right, card, data.inputs[0]).d == 2


# ---- references


def test_an_absent_feature_is_padding_or_space(tmp_path):
    for unit, absent in (("word", 0), ("character", SPACE)):
        _, data = prepared(tmp_path, ["a b", "b", "a", "b", "a"], {"unit": unit})
        rows = references.build("pad", data, 0).rows
        assert rows.dtype == np.int32 and (rows == absent).all() and rows.shape == (1, *data.inputs.shape[1:])
        assert not references.build({"kind": "pad", "id": 0}, data, 0).rows.any()
        n = len(data.card["vocabulary"])
        assert f"ids 0 to {n - 1}" in failures.failure(references.build, {"kind": "pad", "id": n}, data, 0)
        assert (references.build({"kind": "pad", "id": n - 1}, data, 0).rows == n - 1).all()
    for token in (n, -1):
        np.save(tmp_path / "rows.npy", np.full(data.inputs.shape[1:], token))
        settings = {"kind": "array", "path": str(tmp_path / "rows.npy")}
        assert f"{token} is not a token" in failures.failure(references.build, settings, data, 0)


# ---- settings


@pytest.mark.parametrize(
    ("source", "settings", "words"),
    [
        ("reviews", {"unit": "letter"}, "unknown value 'letter'"),
        ("reviews", {"unit": "words"}, "Did you mean 'word'?"),
        ("reviews", {"length": 0}, "0 is not valid; input should be greater than or equal to 1"),
        ("reviews", {"length": 40.0}, "40.0"),
        ("reviews", {"vocabulary": 2}, "2 is not valid; input should be greater than or equal to 3"),
        ("reviews", {"vocabulary": True}, "True"),
        ("reviews", {"vocabularly": 9}, "Did you mean 'vocabulary'?"),
        ("reviews", {"path": "here"}, "needs no file"),
        ("reviews", {"classes": ["positive", "negativ"]}, "Did you mean 'negative'?"),
        ("agnews", {"vocabulary": 50}, "fixed alphabet of 69"),
        ("agnews", {"test": 0.5}, "official test part"),
        ("imdb", {"test": 0.5, "path": "here"}, "official test part"),
        ("digits", {"unit": "word"}, "of kind image, not text"),
        ("breast_cancer", {"length": 3}, "of kind table, not text"),
        ("own.py:records", {"unit": "letter"}, "unknown value 'letter'"),
    ],
)
def test_wrong_settings(source, settings, words):
    assert words in failures.failure(checks.read_entry, source, settings)


def test_settings_and_their_defaults():
    def chosen(source, **settings):
        made = checks.text_settings(registry.SOURCES[source], checks.Dataset(source=source, **settings))
        return made.unit, made.length, made.vocabulary

    assert chosen("imdb") == ("word", 400, 5000)
    assert chosen("yahoo") == ("word", 400, 20_001)
    assert chosen("agnews")[:2] == ("character", 1014)
    assert chosen("agnews", unit="word", vocabulary=9) == ("word", 400, 9)
    assert chosen("imdb", unit="character", length=50)[:2] == ("character", 50)
    for source, entry in registry.SOURCES.items():
        if entry.kind == "text":
            assert chosen(source)[1:2] == entry.input_shape and entry.unit in text.UNITS
    assert checks.find_unit(checks.Dataset(source="agnews")) == "character"
    assert checks.find_unit(checks.Dataset(source="agnews", unit="word")) == "word"
    assert [checks.find_unit(checks.Dataset(source=name)) for name in ("digits", "own.py:f")] == [None, None]


# ---- a user's own documents


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ({"texts": ["a", 3], "labels": [0, 1]}, "record 1 is int; give a text"),
        ({"texts": ["a", None], "labels": [0, 1]}, "record 1 is NoneType"),
        ({"texts": ["a", "b", "c"], "labels": [0, 1]}, "2 labels for 3 texts"),
        ({"texts": ["a", "b"]}, "no 'labels'"),
        ({"texts": ["a", "b"], "labels": [0, 1], "scale": 2}, "'scale', which is not of 'texts'"),
        ({"texts": ["a", "b"], "labels": [0, 1], "kind": "table"}, "kind 'table'"),
        ({"inputs": [[1], [2]], "labels": [0, 1], "kind": "text"}, "return the documents as 'texts'"),
        ({"texts": ["...", "!"], "labels": [0, 1]}, "class '0' has no record"),
        ({"texts": ["a b", "b"], "labels": [0, 1], "ground_truth_words": [[True]]}, "1 records for 2 texts"),
        ({"texts": ["a b", "b"], "labels": [0, 1], "ground_truth_words": [[True], [True]]}, "record 0 has 2 words"),
        ({"texts": ["a b", "b"], "labels": [0, 1], "ground_truth_words": [[1, 0], [1]]}, "one bool a word"),
    ],
)
def test_own_bad_documents(returned, words, tmp_path):
    source = builders.write_own_source(tmp_path / "own.py", f"return {returned!r}")
    assert words in failure(source, {}, [], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_own_text_settings_need_texts(tmp_path):
    source = builders.write_own_source(tmp_path / "own.py", "return {'inputs': np.eye(4), 'labels': [0, 1, 0, 1]}")
    assert "of kind table, not text" in failure(source, {"length": 5}, [], tmp_path / "out")


def test_ground_truth_words_are_truncated_with_their_text(tmp_path):
    texts, flags = ["a b \u2014 c", "d", "b", "a"], [[True, False, True], [True], [False], [True]]
    for unit, expected in (("word", [False, True]), ("character", [True, False])):
        length = {"word": 2, "character": 3}[unit]
        settings = {"unit": unit, "length": length}
        card, _ = prepared(tmp_path, texts, settings, split=[0, 0, 2, 2], ground_truth_words=flags)
        found = tokenizer.read_ground_truth_words(tmp_path / "out", [1, 0])
        assert [flag.tolist() for flag in found] == [[True], expected] and found[0].dtype == bool
        assert len(tokenizer.list_words(texts[0], card)) == 2


# ---- IMDB


def test_imdb_archive_and_folder_are_the_same(tmp_path):
    files = text_files.imdb()
    text_files.write_archive(tmp_path / "any_name.tar.gz", files)
    text_files.write_archive(tmp_path / "holds/aclImdb_v1.tar.gz", dict(reversed(files.items())))
    text_files.write_folder(tmp_path / "folder", files)
    places = ("any_name.tar.gz", "holds", "folder", "folder/aclImdb")
    for number, place in enumerate(places):
        folder = tmp_path / f"out{number}"
        card = preparation.prepare("imdb", {"path": str(tmp_path / place)}, [], folder)
        data = loading.load(folder)
        assert sum(card["counts"]["test"].values()) == 20 and card["records"]["read"] == 40
        assert (folder / "arrays.npz").read_bytes() == (tmp_path / "out0/arrays.npz").read_bytes()
        assert (folder / "documents.parquet").read_bytes() == (tmp_path / "out0/documents.parquet").read_bytes()
    assert tokenizer.read_documents(folder, [0, 39]) == [
        f"{text_files.BAD}, trainneg0.  That's it.",
        f"{text_files.GOOD}, testpos9.  That's it.",
    ]
    np.testing.assert_array_equal(data.split == sources.TEST, data.ids >= 20)
    assert (data.labels == data.ids // 10 % 2).all()
    assert card["classes"] == ["negative", "positive"] and card["synthetic"] is False
    # Of the test part nothing is in the vocabulary: its reviews' own words are unknown.
    assert "trainneg0" in card["vocabulary"] or "trainpos9" in card["vocabulary"]
    assert not [word for word in card["vocabulary"] if word.startswith("test")] and "that's" in card["vocabulary"]


def test_local_files_name_what_a_rule_reads(tmp_path):
    entry = registry.SOURCES["imdb"]
    archive = text_files.write_archive(tmp_path / "any.tar.gz", {"x": b""})
    assert records.local_files(entry, archive) == {"aclImdb_v1.tar.gz": archive}
    folder = text_files.write_folder(tmp_path / "folder", text_files.imdb(1))
    assert records.local_files(entry, folder) == {"aclImdb_v1.tar.gz": folder / "aclImdb"}
    assert "neither aclImdb_v1.tar.gz nor train and test" in failures.failure(records.local_files, entry, tmp_path)
    assert "no file or folder" in failures.failure(records.local_files, entry, tmp_path / "nowhere")


def test_imdb_undecodable_bytes_are_replaced_and_counted(tmp_path):
    files = text_files.imdb()
    files["aclImdb/train/pos/0_9.txt"] = b"caf\xe9 good \xff\xff film"
    text_files.write_archive(tmp_path / "a.tar.gz", files)
    card = preparation.prepare("imdb", {"path": str(tmp_path / "a.tar.gz")}, [], tmp_path / "out")
    assert card["records"]["undecodable"] == 1
    assert tokenizer.read_documents(tmp_path / "out", [10]) == ["caf\ufffd good \ufffd\ufffd film"]
    assert tokenizer.list_words(tokenizer.read_documents(tmp_path / "out", [10])[0], card) == ["caf", "good", "film"]


def special(name: str, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/passwd"
    return member


@pytest.mark.parametrize(
    ("member", "words"),
    [
        (special("aclImdb/../../up.txt", tarfile.REGTYPE), "climbs out"),
        (special("/etc/passwd", tarfile.REGTYPE), "climbs out"),
        (special("aclImdb/train/pos/3_9.txt", tarfile.SYMTYPE), "a link or a device"),
        (special("aclImdb/other", tarfile.LNKTYPE), "a link or a device"),
        (special("aclImdb/null", tarfile.CHRTYPE), "a link or a device"),
    ],
)
def test_dangerous_members(member, words, tmp_path):
    path = text_files.write_archive(tmp_path / "a.tar.gz", text_files.imdb(), (member,))
    message = failure("imdb", {"path": str(path)}, [], tmp_path / "out")
    assert words in message and member.name in message and "a.tar.gz" in message
    assert sorted(left.name for left in tmp_path.iterdir()) == ["a.tar.gz"]


def test_damaged_archives(tmp_path):
    path = text_files.write_archive(tmp_path / "a.tar.gz", text_files.imdb(60))
    good = path.read_bytes()
    flipped = good[: len(good) // 2] + bytes([good[len(good) // 2] ^ 0xFF]) + good[len(good) // 2 + 1 :]
    for damaged in (*(good[:cut] for cut in range(40, len(good), len(good) // 12)), good[:-4], flipped, b"no archive"):
        path.write_bytes(damaged)
        message = failure("imdb", {"path": str(path)}, [], tmp_path / "out")
        assert "truncated or damaged" in message and "a.tar.gz" in message
    text_files.write_archive(path, {"aclImdb/README": b"nothing else"})
    assert "holds no reviews" in failure("imdb", {"path": str(path)}, [], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_official_archives_are_verified(tmp_path):
    for source in ("imdb", "yahoo", "polarity"):
        (file,) = registry.SOURCES[source].files
        path = text_files.write_archive(tmp_path / file.name, text_files.imdb(1))
        assert file.checksum in failure(source, {}, [path], tmp_path / "out")


def test_the_same_arguments_write_the_same_bytes(tmp_path):
    path = text_files.write_archive(tmp_path / "a.tar.gz", text_files.imdb())
    for source, settings in (("imdb", {"path": str(path), "seed": 3}), ("reviews", {"unit": "character"})):
        for folder in ("one", "two"):
            preparation.prepare(source, settings, [], tmp_path / folder / source)
        for name in ("arrays.npz", "card.json", "documents.parquet"):
            assert (tmp_path / "one" / source / name).read_bytes() == (tmp_path / "two" / source / name).read_bytes()


# ---- AG News and Yahoo


def test_agnews(tmp_path):
    text_files.write_folder(tmp_path, {"train.csv": text_files.agnews(40), "test.csv": text_files.agnews(12)})
    card = preparation.prepare("agnews", {"path": str(tmp_path)}, [], tmp_path / "out")
    assert card["counts"]["test"] == dict.fromkeys(["World", "Sports", "Business", "Sci/Tech"], 3)
    assert card["notes"] == [] and card["records"]["read"] == 52
    assert tokenizer.read_documents(tmp_path / "out", [41]) == [
        'The "home" team won Report number 1, the "home" team won.'
    ]
    assert "returns its own split" in failure("agnews", {"path": str(tmp_path), "test": 0.5}, [], tmp_path / "out")


def test_agnews_from_a_file_of_some_training_rows(tmp_path):
    some = tmp_path / "train_subset.csv.gz"
    some.write_bytes(gzip.compress(text_files.agnews(40)))
    message = failure("agnews", {"path": str(some)}, [], tmp_path / "out")
    assert "holds no test.csv, which agnews needs" in message
    (tmp_path / "test.csv").write_bytes(text_files.agnews(12))
    card = preparation.prepare("agnews", {"path": str(some)}, [], tmp_path / "out")
    assert card["subset"] == "subset: train_subset.csv.gz, 40 rows, in place of train.csv"
    assert sum(card["counts"]["test"].values()) == 12 and card["records"]["read"] == 52
    assert tokenizer.read_documents(tmp_path / "out", [41]) == [
        'The "home" team won Report number 1, the "home" team won.'
    ]
    # Its folder is not the subset: a file is taken in place of the official one only where path: names it.
    assert "subset" not in preparation.prepare("agnews", {"path": str(tmp_path)}, [], tmp_path / "out")
    message = failure("agnews", {"path": str(tmp_path / "test.csv")}, [], tmp_path / "out")
    assert "is not a folder; agnews wants one with train.csv, test.csv" in message
    (tmp_path / "train.csv").write_bytes(text_files.agnews(8))
    card = preparation.prepare("agnews", {"path": str(tmp_path)}, [], tmp_path / "out")
    assert "subset" not in card and card["records"]["read"] == 20
    some.write_bytes(some.read_bytes()[:-20])
    assert "train_subset.csv.gz: truncated or damaged" in failure("agnews", {"path": str(some)}, [], tmp_path / "out")


def test_a_subset_is_no_official_file(tmp_path):
    """Without path, the official checksum decides for any name."""
    (tmp_path / "train.csv").write_bytes(text_files.agnews(40))
    (tmp_path / "test.csv").write_bytes(text_files.agnews(12))
    message = failure("agnews", {}, [tmp_path / "train.csv", tmp_path / "test.csv"], tmp_path / "out")
    assert "expected b1a00f826fdfbd249f79597b59e1dc12" in message


def test_agnews_without_its_training_file(tmp_path):
    text_files.write_folder(tmp_path, {"test.csv": text_files.agnews(40)})
    card = preparation.prepare("agnews", {"path": str(tmp_path), "test": 0.2}, [], tmp_path / "out")
    assert sum(card["counts"]["test"].values()) == 8
    assert len(card["notes"]) == 1 and "train.csv is absent" in card["notes"][0]
    (tmp_path / "test.csv").unlink()
    assert "holds no test.csv" in failure("agnews", {"path": str(tmp_path)}, [], tmp_path / "out")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'"3","Two columns"\n', "line 6: 2 column(s), expected 3 (class, title, description)"),
        (b'"5","a","b"\n', "line 6: the label '5' is not one of 1 to 4"),
        (b'"0","a","b"\n', "line 6: the label '0'"),
        (b'"class","a","b"\n', "line 6: the label 'class'"),
        (b'"1","a","never closed\n', "line 6: not readable as CSV"),
    ],
)
def test_bad_csv_lines(line, words, tmp_path):
    rows = text_files.agnews(8).splitlines(keepends=True)
    # A field with a line break in it: the file's lines are counted, not the rows.
    start = [b'"1","two\nlines","x"\n', *rows[:3]]
    text_files.write_folder(tmp_path, {"test.csv": b"".join([*start, line, *rows[3:]])})
    message = failure("agnews", {"path": str(tmp_path)}, [], tmp_path / "out")
    assert words in message and "test.csv" in message


def test_csv_bytes_that_are_no_utf8(tmp_path):
    rows = text_files.agnews(40) + b'"2","Caf\xe9","open"\n\n'
    text_files.write_folder(tmp_path, {"test.csv": b"\xef\xbb\xbf" + rows})
    card = preparation.prepare("agnews", {"path": str(tmp_path)}, [], tmp_path / "out")
    assert card["records"]["undecodable"] == 1 and card["records"]["read"] == 41
    assert tokenizer.read_documents(tmp_path / "out", [40]) == ["Caf\ufffd open"]


def test_yahoo(tmp_path):
    # The test file first: the records' order does not depend on the archive's.
    files = {"yahoo_answers_csv/test.csv": text_files.yahoo(20), "yahoo_answers_csv/train.csv": text_files.yahoo(60)}
    text_files.write_archive(tmp_path / "y.tgz", {**files, "yahoo_answers_csv/readme.txt": b"x"})
    text_files.write_folder(tmp_path / "folder", files)
    for place in ("y.tgz", "folder"):
        card = preparation.prepare("yahoo", {"path": str(tmp_path / place)}, [], tmp_path / place[:1])
        data = loading.load(tmp_path / place[:1])
        assert len(card["classes"]) == 10 and set(card["counts"]["test"].values()) == {2}
        np.testing.assert_array_equal(data.split == sources.TEST, data.ids >= 60)
        assert tokenizer.read_documents(tmp_path / place[:1], [0, 61]) == [
            "topic0 question What now? Answer 0 over",
            "topic1 question Answer 1 over",
        ]


def test_files_of_some_rows_of_yahoo_are_a_named_subset(tmp_path):
    files = {"train_some.csv": text_files.yahoo(40), "test_some.csv": text_files.yahoo(20)}
    folder = text_files.write_folder(tmp_path / "some", files)
    card = preparation.prepare("yahoo", {"path": str(folder)}, [], tmp_path / "out")
    assert card["subset"] == (
        "subset: train_some.csv, 40 rows, and test_some.csv, 20 rows, in place of yahoo_answers_csv.tgz"
    )
    np.testing.assert_array_equal(loading.load(tmp_path / "out").split == sources.TEST, np.arange(60) >= 40)
    (tmp_path / "some" / "test_some.csv").unlink()
    message = failure("yahoo", {"path": str(tmp_path / "some")}, [], tmp_path / "out")
    assert "holds neither yahoo_answers_csv.tgz nor train.csv and test.csv" in message


def test_yahoo_faults(tmp_path):
    files = {"a/test.csv": text_files.yahoo(20), "a/train.csv": text_files.yahoo(20) + b'"11","t","q","a"\n'}
    path = text_files.write_archive(tmp_path / "y.tgz", files)
    message = failure("yahoo", {"path": str(path)}, [], tmp_path / "out")
    assert "y.tgz, a/train.csv, line 21: the label '11' is not one of 1 to 10" in message
    text_files.write_archive(path, {"a/test.csv": text_files.yahoo(20)})
    assert "holds no train.csv" in failure("yahoo", {"path": str(path)}, [], tmp_path / "out")
    good = text_files.write_archive(path, {"test.csv": text_files.yahoo(500), "train.csv": text_files.yahoo(500)})
    path.write_bytes(good.read_bytes()[:-2000])
    assert "truncated or damaged" in failure("yahoo", {"path": str(path)}, [], tmp_path / "out")


# ---- polarity


@pytest.mark.parametrize("encoding", ["cp1252", "utf-8"])
def test_polarity(encoding, tmp_path):
    files = text_files.polarity(20, encoding)
    text_files.write_folder(tmp_path / "folder", files)
    text_files.write_archive(tmp_path / "p.tar.gz", {f"rt-polaritydata/{name}": data for name, data in files.items()})
    for place in ("folder", "p.tar.gz"):
        card = preparation.prepare("polarity", {"path": str(tmp_path / place), "test": 0.25}, [], tmp_path / "out")
        assert card["counts"]["test"] == {"negative": 5, "positive": 5}
        assert card["records"]["read"] == 40 and card["records"]["undecodable"] == 0
        negative, positive = tokenizer.read_documents(tmp_path / "out", [0, 39])
        assert "na\u00efve" in negative and negative.endswith(" 0") and "\u2013 number 19" in positive


def test_polarity_faults(tmp_path):
    files = text_files.polarity()
    files["rt-polarity.neg"] = b"bad \x81 film\n\n" + files["rt-polarity.neg"]
    text_files.write_folder(tmp_path, files)
    card = preparation.prepare("polarity", {"path": str(tmp_path)}, [], tmp_path / "out")
    assert card["records"]["undecodable"] == 1 and card["records"]["empty"] == 1
    assert tokenizer.read_documents(tmp_path / "out", [0]) == ["bad \ufffd film"]
    path = text_files.write_archive(tmp_path / "p.tar.gz", {"rt-polarity.neg": b"bad\n"})
    assert "holds no rt-polarity.pos" in failure("polarity", {"path": str(path)}, [], tmp_path / "out")


# ---- reviews


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reviews")
    return folder, preparation.prepare("reviews", {}, [], folder), loading.load(folder)


def test_reviews_are_synthetic_and_balanced(made):
    folder, card, data = made
    assert card["synthetic"] is True and "no person wrote" in card["citation"]
    assert card["counts"]["test"] == {"negative": 450, "positive": 450} and len(data.ids) == 3000
    sizes = (data.inputs != 0).sum(axis=1)
    assert sizes.min() == 4 and sizes.max() == 30 and len(set(sizes.tolist())) == 27
    assert len(set(tokenizer.read_documents(folder, data.ids))) == 3000
    assert json.loads((folder / "card.json").read_text())["vocabulary"] == card["vocabulary"]
    # A change of the words or of the drawing changes every published number.
    assert tokenizer.read_documents(folder, [0]) == [
        "The script simply disappoints. It just opened in Mumbai. The humour is about three sisters and a dog. "
        "It runs for about three hours. My brother isn't fond of popcorn."
    ]


def test_reviews_include_the_words_of_the_example(made):
    _, card, data = made
    ids = tokenizer.encode_documents([EXAMPLE], card)[0]
    assert (ids != 0).sum() == 9 and text.UNKNOWN not in ids
    assert not (data.inputs == ids).all(axis=1).any()


def test_the_decisive_words_decide(made):
    folder, card, data = made
    documents, flags = tokenizer.read_documents(folder, data.ids), tokenizer.read_ground_truth_words(folder, data.ids)
    polarity = {
        word: side
        for side in range(2)
        for word in (*synthetic.ADJECTIVES[side], *(form for forms in synthetic.VERBS[side] for form in forms))
    }
    negators = {"not", "isn't", "never", "doesn't"}
    share = []
    for document, ground_truth_words, label in zip(documents, flags, data.labels, strict=True):
        words = tokenizer.list_words(document, card)
        assert len(words) == len(ground_truth_words) and 0 < ground_truth_words.sum() < len(words)
        share.append(ground_truth_words.mean())
        # Read from left to right, a negator turns the polar words after it up to the end of its sentence.
        marked = iter(ground_truth_words)
        for sentence in document.rstrip(".").split(". "):
            chosen = [word for word in tokenizer.list_words(sentence, card) if next(marked)]
            turned = bool(chosen) and chosen[0] in negators
            assert all((polarity[word] != label) == turned for word in chosen[turned:])
            assert len(chosen) - turned in (0, 1, 2) and not (turned and len(chosen) == 1)
        neutral = set(np.array(words)[~ground_truth_words])
        assert neutral.isdisjoint(polarity)
    assert 0.1 < np.mean(share) < 0.25


def test_single_words_do_not_determine_the_class(made):
    from sklearn.linear_model import LogisticRegression

    _, card, data = made
    counts = np.zeros((len(data.ids), len(card["vocabulary"])), np.float32)
    np.add.at(counts, (np.arange(len(data.ids))[:, None], data.inputs), 1)
    train, test = data.split != sources.TEST, data.split == sources.TEST
    fitted = LogisticRegression(max_iter=300).fit(counts[train, 1:], data.labels[train])
    assert fitted.score(counts[test, 1:], data.labels[test]) < 0.75


def test_a_small_cnn_predicts_the_class(made):
    import torch
    from torch import nn

    _, card, data = made
    torch.manual_seed(0)
    embedding = nn.Embedding(len(card["vocabulary"]), 32, padding_idx=0)
    convolution, dense = nn.Conv1d(32, 64, 3), nn.Linear(64, 2)

    def logits(ids):
        return dense(torch.relu(convolution(embedding(ids).transpose(1, 2))).amax(2))

    parameters = [*embedding.parameters(), *convolution.parameters(), *dense.parameters()]
    optimizer = torch.optim.Adam(parameters, 5e-3)
    train, test = data.part("train"), data.part("test")
    ids, labels = torch.from_numpy(train.inputs).long(), torch.from_numpy(train.labels)
    for _ in range(6):
        for batch in torch.randperm(len(ids)).split(32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(logits(ids[batch]), labels[batch]).backward()
            optimizer.step()
    with torch.no_grad():
        found = logits(torch.from_numpy(test.inputs).long()).argmax(1).numpy()
    assert (found == test.labels).mean() > 0.95


# ---- real data


def test_real_agnews_subset(real_data, tmp_path):
    card = preparation.prepare("agnews", {"path": str(real_data("ag_news", "train_subset.csv.gz"))}, [], tmp_path)
    assert card["subset"] == "subset: train_subset.csv.gz, 54,600 rows, in place of train.csv"
    assert card["records"]["read"] == 62_200 and card["counts"]["test"]["World"] == 1900
    assert sum(sum(card["counts"][part].values()) for part in ("train", "validation")) == 54_600


def test_real_agnews(real_data, tmp_path):
    folder = real_data("ag_news", "test.csv").parent
    card = preparation.prepare("agnews", {"path": str(folder), "test": 1000 / 7600}, [], tmp_path)
    assert card["records"]["read"] == 7600 and card["records"]["undecodable"] == card["records"]["empty"] == 0
    assert sum(card["counts"]["test"].values()) == 1000
    if not (folder / "train.csv").exists():
        assert "7,600 rows" in card["notes"][0]
    assert card["mean_words"] == pytest.approx(40, abs=4)
    data = loading.load(tmp_path)
    for row in (0, 500, 7000):
        document = tokenizer.read_documents(tmp_path, [data.ids[row]])[0]
        built = features.build_for("character_run", card, data.inputs[row])
        assert built.d == len(tokenizer.list_words(document, card)) > 5


@pytest.mark.real
def test_real_imdb(real_data, tmp_path):
    path = real_data("imdb", "aclImdb_labelled_50k.tar.gz")
    card = preparation.prepare("imdb", {"path": str(path)}, [], tmp_path)
    counts = card["counts"]
    assert counts["test"] == {"negative": 12_500, "positive": 12_500}
    assert {name: counts["train"][name] + counts["validation"][name] for name in counts["train"]} == counts["test"]
    assert len(card["vocabulary"]) == 5000 and 225 < card["mean_words"] < 330
    data = loading.load(tmp_path)
    assert data.inputs.shape == (50_000, 400) and data.inputs.max() == 4999
    document = tokenizer.read_documents(tmp_path, [49_999])[0]
    assert "<br />" not in document
    assert len(tokenizer.list_words(document, card)) == (data.inputs[49_999] != 0).sum()


def test_load_wants_integers(tmp_path):
    prepared(tmp_path, ["a b", "b", "a", "b", "a"])
    arrays = dict(np.load(tmp_path / "out/arrays.npz"))
    with open(tmp_path / "out/arrays.npz", "wb") as stream:
        np.savez(stream, **{**arrays, "inputs": arrays["inputs"][:, :-1]})
    with pytest.raises(ShapelineError, match="disagree"):
        loading.load(tmp_path / "out")
