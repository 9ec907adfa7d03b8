"""A custom tokenizer: words of several tokens, from the dataset's entry to the scores."""

import copy
import dataclasses
import itertools
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import skops.io
import torch
import yaml
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from torch import nn

import shapeline
from shapeline.attribution import context, selection
from shapeline.attribution.attribution_job import explain_rows
from shapeline.attribution.context import parse
from shapeline.attribution.context import parse_game as game_of
from shapeline.config import validation
from shapeline.config.entry_checks import describe_entry
from shapeline.datasets import loading, preparation, registry, tokenizer
from shapeline.datasets.checks import Dataset
from shapeline.errors import ShapelineError
from shapeline.games import references
from shapeline.games.execution import ExecutionBackend
from shapeline.games.features import Features
from shapeline.models import adapters, architectures, storage
from shapeline.report.sections.texts import _describe_cut, build_documents
from shapeline.workflow import job_code
from shapeline.workflow.jobs import prepare_settings
from tests.fixtures import builders
from tests.unit import shortcuts

# Pad is 3. Each piece is two letters; ids 0 and 1 stand around a document.
FILE = """
PIECES = ["<", ">", "?", "_", "ab", "cd", "ef", "gh"]

def encode(text):
    ids, words = [0], [None]
    for number, word in enumerate(text.split()):
        for start in range(0, len(word), 2):
            piece = word[start : start + 2]
            ids.append(PIECES.index(piece) if piece in PIECES else 2)
            words.append(number)
    return [*ids, 1], [*words, None]

def make():
    return {"encode": encode, "pad": 3, "vocabulary": PIECES}
"""
TEXTS = ["abcd ef", "ef gh ab", "  ", "ghabcd abcdefgh ab", "cd cd", "ab"]
SAID = torch.tensor([0.3, -0.2, 9.0, 0.0, 1.0, 2.0, -0.5, 4.0])  # of each id; nothing of pad


class Linear(nn.Module):
    """Logits of two classes: 0 and the sum over the tokens."""

    def __init__(self):
        super().__init__()
        self.said = nn.Embedding.from_pretrained(SAID[:, None])

    def forward(self, ids):
        said = self.said(ids).sum(1)
        return torch.cat([torch.zeros_like(said), said], 1)


@pytest.fixture
def own(tmp_path):
    """prepared(file text, **settings) -> card, dataset."""

    def prepare(text: str = FILE, texts=TEXTS, **settings):
        tokenizer.call_tokenizer.cache_clear()
        (tmp_path / "cut.py").write_text(text)
        labels, split = [k % 2 for k in range(len(texts))], [0, 0, 0, 0, 2, 2][: len(texts)]
        body = f"return dict(texts={texts!r}, labels={labels}, split={split})"
        source = builders.write_own_source(tmp_path / "own.py", body)
        settings = {"length": 6, "tokenizer": f"{tmp_path / 'cut.py'}:make", "validation": 0, **settings}
        card = preparation.prepare(source, settings, [], tmp_path / "out")
        return card, loading.load(tmp_path / "out")

    return prepare


def subject(dataset, model=None) -> context.ExplanationContext:
    reference = references.build("pad", dataset, 0)
    return context.ExplanationContext(adapters.wrap(model or Linear()), dataset, None, reference, {"kind": "word"})


def rows(dataset, **more) -> pd.DataFrame:
    chosen = pd.DataFrame({"instance": dataset.ids, "row": np.arange(len(dataset.ids)), "prediction": 1})
    return chosen.assign(text=[TEXTS[place] for place in dataset.ids], **more)


def test_a_document_is_ids_and_the_word_of_each(own):
    card, data = own()
    assert card["absent_id"] == 3 and card["unit"] == "word" and len(card["vocabulary"]) == 8
    assert data.inputs[0].tolist() == [0, 4, 5, 6, 1, 3] and data.owners[0].tolist() == [-1, 0, 0, 1, -1, -1]
    # Cut to the first tokens, and what stands at the end: "ghabcd a|bcdefgh ab"
    assert data.inputs[2].tolist() == [0, 7, 4, 5, 4, 1] and data.owners[2].tolist() == [-1, 0, 0, 0, 1, -1]
    assert card["records"]["truncated"] == 1 and card["records"]["empty"] == 1
    assert tokenizer.list_words(TEXTS[3], card) == ["ghabcd", "abcdefgh"]
    assert registry.describe_card(card)["words"] == card["vocabulary_digest"]
    assert data.part("test").owners.tolist() == data.owners[3:].tolist()


@pytest.mark.parametrize(
    "method",
    [
        {"method": "shapley"},
        {"method": "l_shapley", "order": 1},
        {"method": "c_shapley", "order": 2, "weights": "myerson"},
        {"method": "kernel_shap"},
        {"method": "sample_shapley"},
        {"method": "occlusion"},
    ],
    ids=lambda method: method["method"],
)
def test_the_score_of_a_word_is_the_sum_of_its_tokens(own, method):
    _, data = own()
    settings = {"method": method, "seed": 0, "value": "logit", "budget": 8.0}
    found = shortcuts.explain_rows(subject(data), rows(data), settings, "one", ExecutionBackend()).set_index("instance")
    for place, (ids, words) in enumerate(zip(data.inputs, data.owners, strict=True)):
        said = [SAID[ids[words == word]].sum() for word in range(words.max() + 1)]
        np.testing.assert_allclose(found.loc[data.ids[place], "scores"], said, atol=1e-5)
        assert found.loc[data.ids[place], "value_empty"] == pytest.approx(SAID[0] + SAID[1])  # what stands around stays


def test_custom_texts_and_the_words_in_a_report(own, monkeypatch):
    _, data = own()
    bench = subject(data)
    monkeypatch.setattr(tokenizer, "read_documents", lambda folder, ids: [TEXTS[place] for place in ids])
    chosen = selection.select(bench, 0, 2)
    assert [list(words) for words in chosen["words"]] == [["cd", "cd"], ["ab"]] and chosen["words_cut"].tolist() == [
        0,
        0,
    ]
    chosen = selection.select(bench, 0, texts=["efgh ab", "ab cd ef gh ab"])
    assert bench.inputs(chosen)[0].tolist() == [0, 6, 7, 4, 1, 3]
    (first, _), (second, _) = bench.buckets(bench.inputs(chosen), chosen)
    assert first.cells.tolist() == [-1, 0, 0, 1, -1, -1] and second.d == 4
    assert _describe_cut(chosen.iloc[1], 4, "word") == "cut to its first 4 of 5 words"
    card = {**data.card, "classes": ["no", "yes"]}
    results = SimpleNamespace(dataset_card=card, scores={}, select_scores=lambda *_: {})
    shown = build_documents(results, chosen)
    assert shown[0].words == ["efgh", "ab"] and shown[0].unknown is None


@pytest.mark.parametrize("kind", ["pipeline", "function"])
def test_a_model_of_texts_receives_them_as_explain_gives_them(own, tmp_path, kind):
    texts = ["good  food", "bad\nfood ", " Nicht gut: \u00a1malo! \u996d\t", "good bad good", "so-so \U0001f600", "x"]
    card, data = own(texts=texts, tokenizer="text", length=None)
    assert tokenizer.decode_texts(data.inputs) == texts and card["input_shape"] == [1024]
    fitted = make_pipeline(TfidfVectorizer(analyzer="char", ngram_range=(1, 2)), LogisticRegression(C=9))
    fitted.fit(texts, [0, 1] * 3)
    skops.io.dump(fitted, tmp_path / "model.skops")
    text = f"import skops.io\n\ndef model(texts):\n    return skops.io.load({str(tmp_path / 'model.skops')!r})"
    (tmp_path / "model.py").write_text(f"{text}.predict_proba(list(map(str.lower, texts)))\n")
    settings = {"source": str(tmp_path / "model.skops")}
    if kind == "function":
        settings = {"source": f"{tmp_path}/model.py:model", "framework": "function"}
    storage.save(architectures.for_dataset(settings, card), tmp_path / "weights.safetensors")
    model = storage.load(tmp_path / "weights.safetensors")
    bench = dataclasses.replace(subject(data, model), reference=references.build("delete", data, 0))
    chosen = rows(data).assign(text=[texts[place] for place in data.ids])
    settings = {"method": {"method": "shapley"}, "seed": 0, "value": "probability"}
    found = shortcuts.explain_rows(bench, chosen, settings, "one", ExecutionBackend()).sort_values("instance")
    expected = shapeline.explain(fitted, texts, "shapley", target=1)
    for score, row, words in zip(found["scores"], expected.scores, expected.feature_names, strict=True):
        np.testing.assert_allclose(score, row[: len(words)], atol=1e-7)
    skops.io.dump(LogisticRegression().fit([[1], [2]], [0, 1]), tmp_path / "model.skops")
    if kind == "pipeline":
        with pytest.raises(ShapelineError, match="was fitted on columns and the dataset holds texts"):
            architectures.for_dataset({"source": str(tmp_path / "model.skops")}, card)


LIKE = """
class Tokenizer:
    padding = None
    def no_padding(self):
        self.padding = "off"
    def token_to_id(self, token):
        return {"[PAD]": 3}.get(token)
    def get_vocab(self):
        return {"a": 4, "b": 5, "[PAD]": 3, "c": 0}
    def encode(self, text):
        assert self.padding == "off"
        class Encoding:
            ids = [4 if letter == "a" else 5 for letter in text if letter != " "]
            offsets = [(place, place + 1) for place, letter in enumerate(text) if letter != " "]
            word_ids = [text[:place].count(" ") for place, _ in offsets]
        return Encoding()

def make():
    return Tokenizer()
"""


def test_an_object_like_those_of_the_library_tokenizers(own):
    card, data = own(LIKE, ["ab b", "bba", "a", "b a", "ab", "b"])
    assert data.inputs[0].tolist() == [4, 5, 5, 3, 3, 3] and data.owners[0].tolist() == [0, 0, 1, -1, -1, -1]
    assert card["absent_id"] == 3 and card["vocabulary"] == ["c", "1", "2", "[PAD]", "a", "b"]
    assert tokenizer.list_words("ab bba", card) == ["ab", "bba"]  # the document's own letters, by the offsets


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "return [*ids, 1], [*words, None]",
            "return [*ids, 1], words",
            "5 ids and the words of 4 tokens; give each id",
        ),
        (
            "return [*ids, 1], [*words, None]",
            "return [*ids, 8], [*words, None]",
            "id 8 is none of the vocabulary's, 0 to 7",
        ),
        (
            "return [*ids, 1], [*words, None]",
            "return [*ids, 1], [*words, 7]",
            "of word 7 .* there are 2; return the words",
        ),
        ("return [*ids, 1], [*words, None]", "return ids", "encode returned list; return"),
        (
            "return [*ids, 1], [*words, None]",
            "return ids, None",
            "document 'abcd ef': the words of tokens are not whole",
        ),
        ("return [*ids, 1], [*words, None]", "return [str(i) for i in ids], words", "the ids are not whole numbers"),
        ("return [*ids, 1], [*words, None]", "return [[0], ids], words", "the ids are not whole numbers"),
        ('"pad": 3, ', "", "it has no 'pad'; return a dict with the id of padding"),
        ('"pad": 3', '"pad": 8', "pad is 8; the vocabulary has the ids 0 to 7"),
        ("return {", "return 3\n    return {", "returned int; return a dict with encode, pad, vocabulary"),
    ],
)
def test_a_mistake_of_the_tokenizer_is_one_line(own, old, new, said):
    with pytest.raises(ShapelineError, match=said) as failure:
        own(FILE.replace(old, new))
    assert "\n" not in str(failure.value) and "cut.py:make" in str(failure.value)


def test_without_a_pad_token_of_a_usual_name_it_must_be_given(own):
    with pytest.raises(ShapelineError, match="it has no 'pad'"):
        own(LIKE.replace("[PAD]", "[FILL]"))


def test_a_tokenizer_without_words_is_reported(own):
    with pytest.raises(ShapelineError, match="all tokens of a document are of one word"):
        own(LIKE.replace('text[:place].count(" ")', "0"))


@pytest.mark.parametrize("padded", [4, 40])
def test_padding_by_the_users_own_encode_pushes_no_word_out(own, padded):
    own_pad = f"return [*ids, 1, *[3] * {padded}], [*words, None, *[None] * {padded}]"
    card, data = own(FILE.replace("return [*ids, 1], [*words, None]", own_pad))
    plain, same = own()
    np.testing.assert_array_equal(data.inputs, same.inputs)
    np.testing.assert_array_equal(data.owners, same.owners)
    assert card["records"] == plain["records"]


def test_a_vocabulary_may_be_a_number_of_numpy(own):
    text = FILE.replace('"vocabulary": PIECES', '"vocabulary": __import__("numpy").int64(8)')
    assert own(text)[0]["vocabulary"] == [str(number) for number in range(8)]


def test_the_table_of_windows_is_exact_on_words_of_several_tokens(own):
    _, data = own(FILE.replace('"pad": 3', '"pad": 0').replace("[0], [None]", "[3], [None]"))
    sizes = {"vocabulary": 8, "length": 6, "embedding": 4, "filters": 5, "hidden": 6}
    bench = subject(data, architectures.build("word_cnn", "torch", seed=1, **sizes))
    for features, places in bench.buckets(data.inputs, rows(data)):
        masks = np.array(list(itertools.product([False, True], repeat=features.d)))
        asked = bench.model, data.inputs[places], bench.reference, masks, features
        plain, table = (shortcuts.values(*asked, backend=ExecutionBackend(name)) for name in ("plain", "windows"))
        np.testing.assert_allclose(table, plain, atol=1e-6)
        several = np.tile([0, 1], (len(places), 1))
        both = shortcuts.values(*asked, targets=several, backend=ExecutionBackend("windows"))
        each = [shortcuts.values(*asked, targets=several[:, number]) for number in (0, 1)]
        np.testing.assert_allclose(both, np.stack(each, axis=2), atol=1e-6)


def test_networks_of_the_package_are_padded_with_zero(own):
    card, _ = own()
    with pytest.raises(ShapelineError, match="'word_cnn' is padded with id 0 and the tokenizer of 'out' pads with 3"):
        architectures.for_dataset({"architecture": "word_cnn"}, card)


def test_words_of_tokens_in_one_call():
    ids, cells = np.array([[0, 4, 5, 6, 1, 3]]), np.array([-1, 0, 0, 1, -1, -1], np.int32)
    words = Features("word", (2,), cells, ("abcd", "ef"))
    for reference in ({"kind": "pad", "id": 3}, np.full(6, 3)):
        found = shapeline.explain(Linear(), ids, "shapley", reference, words, value="logit", target=1)
        np.testing.assert_allclose(found.scores, [[3.0, -0.5]], atol=1e-6)


# --- configuration ------------------------------------------------------------------------------------------------


@pytest.fixture
def example(root, monkeypatch) -> dict:
    monkeypatch.chdir(root)
    raw = yaml.safe_load((root / "examples/own/config.yaml").read_text())
    kept = {section: {"pieces": raw[section].get("pieces")} for section in ("datasets", "experiments")}
    return {"run": ["pieces"], **kept, "models": {"bag": raw["models"]["bag"]}}


def test_the_example_is_valid_and_tracks_the_tokenizer(example):
    loaded = validation.load(example)
    assert "examples/own/subwords.py" in job_code.prepare_code(loaded, "pieces")
    assert "tokenizer" in prepare_settings(loaded, "pieces")
    file = ["examples/own/subwords.py"]
    assert (
        job_code.select_code(loaded, "pieces")[-1:] == file and job_code.find_tokenizer_file(loaded, "pieces") == file
    )
    raw = copy.deepcopy(example)
    raw["models"]["bag"]["source"] = "examples/own/halves.py:halves"
    raw["experiments"]["pieces"]["instances"] = {"texts": ["so good"]}
    halves = ["examples/own/halves.py"]
    assert (
        job_code.list_user_files(validation.load(raw), "pieces") == halves + file
    )  # its tokens are not among the arrays
    raw["experiments"]["pieces"]["instances"] = {}
    assert job_code.list_user_files(validation.load(raw), "pieces") == halves
    assert validation.load({**copy.deepcopy(example), "scale": "smoke"}).models["bag"].training.epochs == 0


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("datasets.pieces.tokenizer", "examples/own/subwords.py:tokeniser", "Did you mean 'tokenizer'?"),
        ("datasets.pieces.tokenizer", "examples/own/none.py:make", "datasets.pieces.tokenizer: .* cannot be read"),
        (
            "datasets.pieces.tokenizer",
            "examples/own/subwords.py:encode",
            "requires text and is called without arguments; give",
        ),
        ("datasets.pieces.unit", "character", "'unit': the tokenizer has its own words and tokens; remove the key"),
        ("datasets.pieces.vocabulary", 50, "'vocabulary': the tokenizer has its own"),
        ("experiments.pieces.features.kind", "character_run", "does not fit tokens of unit word; use word"),
        ("experiments.pieces.metrics.ground_truth_words", {}, "decide is not known; remove the metric"),
        (
            "models.bag",
            {"dataset": "pieces", "architecture": "bilstm", "training": {"epochs": 0}},
            "bilstm is untrained",
        ),
        (
            "datasets.pieces",
            {"source": "digits", "tokenizer": "examples/own/subwords.py:tokenizer"},
            "not text; remove",
        ),
    ],
)
def test_a_mistake_of_the_configuration_is_one_line(example, path, value, said):
    builders.put(example, path, value)
    with pytest.raises(ShapelineError, match=said):
        validation.load(example)


def test_a_keras_file_needs_the_tokenizer(example, tmp_path):
    (tmp_path / "text.keras").touch()
    example["models"]["bag"] = {"dataset": "pieces", "source": str(tmp_path / "text.keras")}
    validation.load(example)
    del example["datasets"]["pieces"]["tokenizer"]
    with pytest.raises(ShapelineError, match="give the dataset its tokenizer"):
        validation.load(example)


def test_a_source_of_characters_takes_a_tokenizer(example):
    own = {"source": "agnews", "length": 32, "tokenizer": example["datasets"]["pieces"]["tokenizer"]}
    example["datasets"]["pieces"] = own
    validation.load(example)
    assert describe_entry(registry.SOURCES["agnews"], Dataset(**own))["unit"] == "word"


def test_other_data_by_the_same_tokenizer_can_be_explained(example):
    other = {**example["datasets"]["pieces"], "target": "opinion"}
    example["datasets"]["more"] = other
    example["experiments"]["pieces"]["dataset"] = "more"
    validation.load(example)
    del other["tokenizer"]
    with pytest.raises(ShapelineError, match="a vocabulary of its own"):
        validation.load(example)


# --- models that come ready -----------------------------------------------------------------------------------------

FUNCTION = """
import numpy as np

SAID = np.array([0.3, -0.2, 9.0, 0.0, 1.0, 2.0, -0.5, 4.0])

def model(ids):
    return 1 / (1 + np.exp(-SAID[ids].sum(1)))
"""


def keras_twin(path):
    """A file of the same model as `Linear`."""
    keras = pytest.importorskip("keras")
    layers = [
        keras.layers.Input((6,), dtype="int32"),
        keras.layers.Embedding(8, 1, name="said"),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Rescaling(6.0),
        keras.layers.Dense(2, use_bias=False, name="last"),
    ]
    made = keras.Sequential(layers)
    made.get_layer("said").set_weights([SAID.numpy()[:, None]])
    made.get_layer("last").set_weights([np.array([[0.0, 1.0]])])
    made.save(path)
    return {"source": str(path)}


@pytest.mark.parametrize("kind", ["function", "keras"])
def test_a_text_model_that_comes_ready_explains_the_documents_it_is_measured_on(own, tmp_path, kind):
    _, data = own()
    if kind == "keras":
        settings = keras_twin(tmp_path / "model.keras")
    else:
        (tmp_path / "model.py").write_text(FUNCTION)
        settings = {"source": f"{tmp_path / 'model.py'}:model", "framework": "function"}
    model = architectures.for_dataset(settings, data.card)
    storage.save(model, tmp_path / "weights.safetensors")
    asked = {"features": {"kind": "word"}, "reference": "pad", "seed": 0, "method": {"method": "shapley"}}
    loaded = context.load_context(
        str(tmp_path / "weights.safetensors"), str(tmp_path / "out/arrays.npz"), game_of(asked), "cpu"
    )
    share = rows(data).iloc[[0, 1]].reset_index(drop=True)
    said = explain_rows(loaded, share, parse({**asked, "value": "log_odds"}), "exact")
    assert said["status"].tolist() == ["ok", "ok"]
    twin = explain_rows(subject(data), share, parse({**asked, "value": "log_odds"}), "exact")
    for mine, other in zip(said["scores"], twin["scores"], strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-5)
    own(texts=TEXTS, text=FILE.replace('"gh"', '"xy"'))  # other pieces
    with pytest.raises(ShapelineError, match="another vocabulary"):
        context.load_context(
            str(tmp_path / "weights.safetensors"), str(tmp_path / "out/arrays.npz"), game_of(asked), "cpu"
        )
