"""Texts of users: missing cells, surrounding white space, no spaces, hundreds of thousands of characters."""

import itertools
import json
import logging
from collections import deque

import numpy as np
import pandas as pd
import pytest

import shapeline
from shapeline.datasets import loading, preparation, tokenizer
from shapeline.errors import ShapelineError
from tests.unit import games

MISSING = [None, np.nan, float("nan"), pd.NA, pd.NaT, np.float32("nan")]
CONTAINERS = [
    list,
    tuple,
    deque,
    iter,
    lambda texts: dict(enumerate(texts)).values(),
    lambda texts: np.array(texts, dtype=object),
    pd.Series,
    lambda texts: pd.Series(texts, index=[f"review {number}" for number in range(len(texts))]),
    lambda texts: pd.Series(texts, dtype=object),
    lambda texts: pd.Series(texts, dtype="string"),
    lambda texts: pd.Series(texts, dtype="category"),
    lambda texts: pd.Index(texts, dtype=object),
    lambda texts: pd.array(texts, dtype="string"),
]


def length(texts: list[str]) -> np.ndarray:
    """A model that sees each sign."""
    assert all(type(text) is str for text in texts)
    return np.array([len(text) / 100 for text in texts])


def refused(*arguments, **named) -> str:
    with pytest.raises(ShapelineError) as failure:
        shapeline.explain(*arguments, **named)
    assert "\n" not in str(failure.value)
    return str(failure.value)


@pytest.mark.parametrize("missing", MISSING, ids=repr)
@pytest.mark.parametrize("container", CONTAINERS)
def test_a_missing_text_is_refused_with_its_position(container, missing):
    told = refused(length, container(["good film", missing, "bad"]), "shapley", target=1)
    assert told.startswith("explain: inputs: the text at position 1 is missing")


@pytest.mark.parametrize(
    "given", [[None, None], pd.Series([None, None], dtype=object), pd.Series([None], dtype="str"), [pd.NA]]
)
def test_nothing_but_missing_texts_are_refused_too(given):
    assert "the text at position 0 is missing" in refused(length, given, "shapley", target=1)


@pytest.mark.parametrize("given", [["good", 5], ["good", ["a", "b"]], pd.Series(["good", 5]), ("good", b"bad")])
def test_what_is_no_text_is_refused_with_its_position(given):
    assert "explain: inputs: position 1 holds a" in refused(length, given, "shapley", target=1)
    for binary in ([b"good"], b"good"):
        assert "position 0 holds a bytes and not a text; decode it" in refused(length, binary, "shapley", target=1)


def test_a_masked_text_is_missing_and_compare_refuses_it_too():
    masked = np.ma.array(["good film", "bad"], mask=[False, True])
    assert "the text at position 1 is missing" in refused(length, masked, "shapley", target=1)
    with pytest.raises(ShapelineError, match="the text at position 0 is missing"):
        shapeline.compare(length, [None, "good film"], ["shapley", "occlusion"], target=1)


def test_rows_of_texts_and_numbers_stay_rows():
    seen = []

    def model(rows):
        seen.extend(np.asarray(rows).tolist())
        return np.array([0.25 + 0.5 * (row[0] == "x") + row[1] / 100 for row in np.asarray(rows).tolist()])

    found = shapeline.explain(model, [["x", 1.0], ["y", 2]], "shapley", background=[["y", 0.0]], target=1)
    np.testing.assert_allclose(found.scores, [[0.5, 0.01], [0, 0.02]], atol=1e-7)
    assert {type(row[1]) for row in seen} == {float, int}
    frame = pd.DataFrame({"kind": ["x", "y"], "size": [1.0, 2.0]})
    row = shapeline.explain(lambda rows: rows["size"] / 100, frame.iloc[0], "shapley", background=frame, target=1)
    np.testing.assert_allclose(row.scores, [[0, -0.005]], atol=1e-7)
    texts = pd.DataFrame({"title": ["a good film", "bad"], "body": ["not so", "long"]})
    with pytest.raises(ShapelineError, match="the mean of a single input is the input itself; give background"):
        shapeline.explain(length, texts.iloc[0], target=1)  # not two texts


@pytest.mark.parametrize("text", ["  good film ", "good film\n\n", "\tnot a  good\u00a0film", " a ", "good film"])
@pytest.mark.parametrize("instead", [None, "[MASK]"])
def test_a_text_reaches_the_model_as_it_was_given(text, instead):
    seen = []

    def model(texts):
        seen.extend(texts)
        return length(texts)

    found = shapeline.explain(model, [text, "another one"], "shapley", reference=instead, target=1)
    np.testing.assert_allclose(found.value_full, length([text, "another one"]), atol=1e-7)
    assert text in seen
    words = text.split()
    starts = [0] + [text.index(word, 1) for word in words[1:]] + [len(text)]  # each word is there once
    pieces = [text[start:end] for start, end in itertools.pairwise(starts)]

    def value(kept):
        filled = f"{instead} " if instead else ""
        made = "".join(piece if place in kept else filled for place, piece in enumerate(pieces))
        return len(made if len(pieces) - 1 in kept else made.rstrip()) / 100

    np.testing.assert_allclose(found.of(0)[1], games.shapley(games.of_sets(value, len(pieces))), atol=1e-7)
    assert found.of(0)[0] == tuple(words)


@pytest.mark.parametrize(
    "given",
    [
        pd.Series(["a good film", "bad"], name="review", index=[4, 7]),
        pd.Series(["a good film", "bad"], dtype=object),
        pd.Series(["a good film", "bad"], dtype="string"),
        pd.Index(["a good film", "bad"]),
        pd.array(["a good film", "bad"], dtype="string"),
        np.array(["a good film", "bad"]),
        np.array(["a good film", "bad"], dtype=object),
        ("a good film", "bad"),
        ["a good film", "bad"],
    ],
    ids=lambda given: type(given).__name__,
)
def test_the_model_gets_texts_in_the_container_of_its_user(given):
    def model(texts):
        assert type(texts) is type(given)
        if hasattr(given, "dtype"):
            assert texts.dtype.kind == given.dtype.kind and (given.dtype.kind == "U" or texts.dtype == given.dtype)
        if isinstance(given, pd.Series):
            assert texts.name == given.name
            return (texts.str.len() / 100).to_numpy(float)
        return np.array([len(text) / 100 for text in texts])

    found = shapeline.explain(model, given, "shapley", target=1)
    np.testing.assert_allclose(found.value_full, [0.11, 0.03], atol=1e-7)


def test_a_text_without_spaces_is_reported_as_one_word(caplog):
    caplog.set_level(logging.WARNING)
    shapeline.explain(length, ["a good film", "\u3053\u306e\u6620\u753b\u306f\u9762\u767d\u3044"], "shapley", target=1)
    assert "1 of 2 texts are one word, and so one feature (first at position 1)" in caplog.text
    assert "a function that splits a text, such as list" in caplog.text
    shapeline.explain(length, ["\u9762\u767d\u3044"], "shapley", features=list, target=1)
    caplog.clear()
    shapeline.explain(length, ["a good film"], "shapley", target=1)
    assert not caplog.records


SENTENCES = "Good film. Not\na\n\nbad plot! "


@pytest.mark.parametrize(
    ("features", "pieces"),
    [
        ("sentence", ["Good film. ", "Not\n", "a\n\n", "bad plot! "]),
        ({"kind": "passage"}, ["Good film. Not\na\n\n", "bad plot! "]),
        (lambda text: ["Good", "Not\na", "plot"], ["Good film. ", "Not\na\n\nbad ", "plot! "]),
        (lambda text: text.split()[1:], ["Good film. ", "Not\n", "a\n\n", "bad ", "plot! "]),
    ],
)
def test_parts_of_texts_are_masked_in_place_of_words(features, pieces):
    found = shapeline.explain(length, [SENTENCES] * 2, "shapley", features=features, target=1)

    def value(kept):
        made = "".join(piece for place, piece in enumerate(pieces) if place in kept)
        return len(made if len(pieces) - 1 in kept else made.rstrip()) / 100

    names, scores = found.of(0)[:2]
    assert names == tuple(piece.strip() for piece in pieces)
    np.testing.assert_allclose(scores, games.shapley(games.of_sets(value, len(pieces))), atol=1e-7)
    assert shapeline.explain(length, [SENTENCES], "l_shapley", features=features, target=1).scores.shape == (
        1,
        len(pieces),
    )


def test_wrong_parts_of_texts_are_refused_in_one_line(caplog):
    for features in ([(0, 4)], [0, 0, 1], ["Good"], np.arange(3)):
        assert "of texts give 'word', 'sentence', 'passage', or a function" in refused(
            length, [SENTENCES], features=features
        )
    for features in (lambda text: ["film", "Good"], lambda text: 3, lambda text: [1]):
        assert "the function fails on the text at position 0 (" in refused(length, [SENTENCES], features=features)
    assert "has no words" in refused(length, [SENTENCES], features=lambda text: [])
    shapeline.explain(length, ["One. Two.", "One"], "shapley", features="sentence", target=1)
    assert (
        "1 of 2 texts are one sentence, and so one feature (first at position 1); choose smaller parts" in caplog.text
    )


def test_a_text_of_hundreds_of_thousands_of_characters_is_one_line():
    told = refused(length, ["good film", "seven " * 66_667, "bad"], "kernel_shap", target=1)
    assert told == (
        "explain: inputs: the text at position 1 has 66,667 words and the most is 10,000; explain parts of it"
    )


# ---------------------------------------------------------------------------------------------------- the workflow

TEXTS = ["  good film ", "bad\n\nfilm\n", "None", "\tgood", 'a "quoted" one', "null "] * 10
TOKENIZER = """
def tokenizer():
    def encode(text):
        words = text.split()
        return [len(text), *(3 for word in words)], [None, *range(len(words))], words
    return {"encode": encode, "pad": 0, "vocabulary": 100}
"""


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_workflow_keeps_texts_as_they_are(tmp_path, suffix):
    table = pd.DataFrame({"text": TEXTS, "y": ["p", "n"] * 30})
    file = tmp_path / f"own.{suffix}"
    table.to_csv(file, index=False) if suffix == "csv" else table.to_parquet(file)
    (tmp_path / "own.py").write_text(TOKENIZER)
    entry = {"path": str(file), "text": "text", "target": "y", "tokenizer": f"{tmp_path}/own.py:tokenizer", "length": 8}
    preparation.prepare("text_file", entry, [], tmp_path / "data")
    data = loading.load(tmp_path / "data")
    kept = tokenizer.read_documents(tmp_path / "data", data.ids)
    assert kept == [TEXTS[number] for number in data.ids] and len(kept) == len(TEXTS)
    np.testing.assert_array_equal(data.inputs[:, 0], [len(TEXTS[number]) for number in data.ids])


@pytest.mark.parametrize("missing", MISSING[:4], ids=repr)
def test_the_workflow_refuses_a_missing_text_with_its_row(tmp_path, missing):
    table = pd.DataFrame({"text": ["good film", missing, "bad"] * 10, "y": ["p", "n"] * 15})
    table.to_parquet(tmp_path / "own.parquet")
    entry = {"path": str(tmp_path / "own.parquet"), "text": "text", "target": "y"}
    with pytest.raises(ShapelineError, match=r"'text' is empty in 10 row\(s\), first in row 1 \(from 0\)"):
        preparation.prepare("text_file", entry, [], tmp_path / "data")
    texts = "[None if text is None else text for text in ['good film', None, 'bad']]"
    (tmp_path / "own.py").write_text(f"def read():\n    return {{'texts': {texts}, 'labels': [0, 1, 0]}}\n")
    with pytest.raises(ShapelineError, match="record 1 is NoneType; give a text"):
        preparation.prepare(f"{tmp_path}/own.py:read", {}, [], tmp_path / "data")


def test_the_workflow_reports_texts_of_one_word(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    texts = ["\u3053\u306e\u6620\u753b\u306f", "a good film", "good film"] * 10
    pd.DataFrame({"text": texts, "y": ["p", "n"] * 15}).to_csv(tmp_path / "own.csv", index=False)
    entry = {"path": str(tmp_path / "own.csv"), "text": "text", "target": "y"}
    preparation.prepare("text_file", entry, [], tmp_path / "data")
    assert "10 document(s) without spaces are one word each" in caplog.text


def test_the_workflow_cuts_a_text_of_hundreds_of_thousands_of_characters(tmp_path):
    texts = ["good film", "seven " * 66_667, "bad film"] * 4
    pd.DataFrame({"text": texts, "y": ["p", "n"] * 6}).to_csv(tmp_path / "own.csv", index=False)
    entry = {"path": str(tmp_path / "own.csv"), "text": "text", "target": "y", "length": 16}
    card = preparation.prepare("text_file", entry, [], tmp_path / "data")
    assert loading.load(tmp_path / "data").inputs.shape == (12, 16) and card["records"]["truncated"] == 4
    assert json.loads((tmp_path / "data/card.json").read_text())["input_shape"] == [16]
