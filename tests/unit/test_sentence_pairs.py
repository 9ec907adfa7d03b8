"""Pairs of sentences: words of both are features, separators and token types are kept; checked by hand."""

import itertools
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

import shapeline
from shapeline.attribution import context, selection
from shapeline.attribution.context import parse_game as game_of
from shapeline.config import validation
from shapeline.datasets import loading, preparation, tokenizer
from shapeline.datasets.text import PAIR
from shapeline.errors import ShapelineError
from shapeline.games.execution import ExecutionBackend
from shapeline.models import architectures, storage
from shapeline.report.elements import HTML
from shapeline.report.sections import texts
from tests.fixtures import transformer
from tests.unit import games, shortcuts

pytest.importorskip("transformers")
PAIRS = [("A good film", "isn't bad films!"), ("the end", "ending a film very good"), ("bad", "goodly")]
WORDS = [
    (["A", "good", "film"], ["isn't", "bad", "films", "!"]),
    (["the", "end"], ["ending", "a", "film", "very", "good"]),
    (["bad"], ["goodly"]),
]


@pytest.fixture(scope="module")
def cut():
    return transformer.tokenizer(types=True)


@pytest.fixture(scope="module")
def model():
    return transformer.bert()


def said(model, cut, sentences, kept, removal):
    """Return log-probabilities of only the `kept` words, by a plain pass of one row with types by hand."""
    rows, number = [(cut.cls_token_id, 1, 0)], 0  # id, attended to, type
    for kind, words in enumerate(sentences):
        for word in words:
            own = cut(word, add_special_tokens=False)["input_ids"]
            if number in kept:
                rows += [(token, 1, kind) for token in own]
            elif removal == "mask":
                rows += [(cut.mask_token_id, 1, kind)] * len(own)
            elif removal == "pad":
                rows += [(cut.pad_token_id, 0, kind)] * len(own)
            number += 1
        rows.append((cut.sep_token_id, 1, kind))
    ids, attended, types = torch.tensor(rows).T[:, None]
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=attended, token_type_ids=types).logits
    return torch.log_softmax(logits.double(), 1)[0].numpy()


@pytest.mark.parametrize("removal", ["delete", "mask", "pad"])
def test_shapley_values_of_both_sentences_are_those_by_hand(model, cut, removal):
    found = shapeline.explain(model, PAIRS, "shapley", removal, tokenizer=cut, target="positive")
    assert [list(names) for names in found.feature_names] == [first + second for first, second in WORDS]
    for place, sentences in enumerate(WORDS):
        d = sum(map(len, sentences))
        values = {
            kept: said(model, cut, sentences, set(kept), removal)[1]
            for size in range(d + 1)
            for kept in itertools.combinations(range(d), size)
        }
        expected = games.shapley(games.of_sets(lambda kept, own=values: own[tuple(kept)], d))
        np.testing.assert_allclose(found.scores[place][:d], expected, atol=1e-5)
        assert found.value_full[place] == pytest.approx(values[tuple(range(d))], abs=1e-5)
        assert found.value_empty[place] == pytest.approx(values[()], abs=1e-5)


@pytest.mark.parametrize("features", ["sentence", list])
def test_features_of_texts_with_a_tokenizer_are_words(model, cut, features):
    with pytest.raises(ShapelineError, match="of texts with a tokenizer they are its words; leave them out"):
        shapeline.explain(model, PAIRS, features=features, tokenizer=cut)


def test_types_are_as_the_tokenizer_gives_them(model, cut):
    """As in a call with the tokenizer's output; a tokenizer without types gives none."""
    scores = {}
    for types, own in ((True, cut), (False, transformer.tokenizer())):
        asked = own([a for a, _ in PAIRS], [b for _, b in PAIRS], padding=True, return_tensors="pt")
        assert ("token_type_ids" in asked) == types
        with torch.no_grad():
            expected = torch.log_softmax(model(**asked).logits.double(), 1)[:, 0]
        found = shapeline.explain(model, PAIRS, "occlusion", tokenizer=own, target="negative")
        np.testing.assert_allclose(found.value_full, expected, atol=1e-5)
        scores[types] = found.scores
    assert np.nanmax(np.abs(scores[True] - scores[False])) > 0.01


def test_gradients_and_attention_know_the_types_too(model, cut):
    found = shapeline.explain(model, PAIRS, "gradient_x_input", tokenizer=cut, target="positive")
    asked = cut(*PAIRS[2], return_tensors="pt")  # [CLS] bad [SEP] good ##ly [SEP]
    embedded = model.get_input_embeddings()(asked["input_ids"]).detach().requires_grad_()
    logits = model(inputs_embeds=embedded, token_type_ids=asked["token_type_ids"]).logits
    torch.log_softmax(logits.double(), 1)[0, 1].backward()
    each = (embedded.grad * embedded).sum(-1)[0].detach().numpy()
    np.testing.assert_allclose(found.scores[2][:2], [each[1], each[3] + each[4]], rtol=1e-3, atol=1e-5)
    found = shapeline.explain(model, PAIRS, "attention_rollout", tokenizer=cut)
    eager = transformer.bert(attn_implementation="eager")
    (layer,) = eager(**asked, output_attentions=True).attentions
    row = layer[0, :, 0].mean(0).detach().numpy() / 2
    np.testing.assert_allclose(found.scores[2][:2], [row[1], row[3] + row[4]], atol=1e-6)


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_long_text_or_pair_is_cut_as_transformers_cuts_it(side):
    cut = transformer.tokenizer(types=True)
    cut.truncation_side = side
    own = tokenizer.wrap_fast_tokenizer("tokenizer", cut)
    for n, m, length in itertools.product((1, 3, 9), (0, 2, 5, 9, 12), range(6, 20)):
        both = [(["good", "film", "a"] * 3)[:n], (["bad", "not", "the", "end"] * 3)[:m]]
        given = [" ".join(words) for words in both if words]
        made = tokenizer.tokenize([PAIR.join(given)], own, length)
        expected = cut(*given, truncation=True, max_length=length)
        assert made.ids[0].tolist() == expected["input_ids"], (n, m, length)
        assert made.sizes[0] == n + m + len(given) + 1
        assert made.seconds[0] == (sum(word in both[0] for word in made.words[0]) if m else None)


def test_a_drawing_begins_the_second_sentence_on_a_line(model, cut):
    def drawn(found):
        return found._repr_html_().partition("<b>instance")[2]

    found = shapeline.explain(model, PAIRS[:1], "occlusion", tokenizer=cut, target="positive")
    before, line, behind = drawn(found).partition("<br>")
    assert line and ">film<" in before and ">isn" not in before and ">isn" in behind
    single = shapeline.explain(model, [" ".join(PAIRS[0])], "occlusion", tokenizer=cut, target="positive")
    assert "<br>" not in drawn(single)


def test_what_is_no_pair_is_one_line(model, cut):
    def refused(match, inputs, **named):
        with pytest.raises(ShapelineError, match=match):
            shapeline.explain(model, inputs, "occlusion", **{"tokenizer": cut, **named})

    refused("the second sentence of the pair at position 1 has no words", [("good", "bad"), ("good", " ")])
    refused("the first sentence of the pair at position 0 has no words", [("", "bad")])
    refused(r"at position 1 is not a pair of texts; give \('first', 'second'\)", [("good", "bad"), "good"])
    refused("at position 0 is not a pair of texts", [("good", "bad", "film")])
    refused("at position 1 is not a pair of texts", [("good", "bad"), ("good", None)])
    refused("its sentences are not parted by the first separator", [("a [SEP] film", "bad")])
    # In the second sentence it is a word as any.
    typed = shapeline.explain(model, [("a film", "bad [SEP] film")], "occlusion", tokenizer=cut)
    assert typed.feature_names == ("a", "film", "bad", "[SEP]", "film")


# ----------------------------------------------------------------------------------------------------- the workflow

SETTINGS = {"text": "premise", "text_pair": "hypothesis", "target": "relation", "tokenizer": "examples/model"}


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame(PAIRS * 6, columns=["premise", "hypothesis"])
    table["relation"] = ["positive", "negative"] * 9
    table.to_csv("pairs.csv", index=False)
    return table


def test_the_workflow_gives_the_scores_that_a_call_gives(table, tmp_path):
    own, cut = transformer.folder("examples/model", types=True)
    card = preparation.prepare("text_file", {"path": "pairs.csv", **SETTINGS}, [], tmp_path / "out")
    assert card["separator_id"] == cut.sep_token_id
    model = architectures.for_dataset({"source": "examples/model"}, card)
    storage.save(model, tmp_path / "weights.safetensors")
    for removal in ("delete", "mask", "pad"):
        settings = {"features": {"kind": "word"}, "reference": removal, "seed": 0}
        subject = context.load_context(
            "weights.safetensors", str(tmp_path / "out/arrays.npz"), game_of(settings), "cpu"
        )
        chosen = selection.select(subject, 0, 4)
        pairs = [tuple(text.split(PAIR)) for text in chosen["text"]]
        assert set(pairs) <= set(PAIRS)
        asked = {"method": {"method": "shapley"}, "seed": 0, "value": "log_probability", "budget": 4.0}
        found = shortcuts.explain_rows(subject, chosen, asked, "one", ExecutionBackend()).set_index("instance")[
            "scores"
        ]
        said = shapeline.explain(own, pairs, "shapley", removal, tokenizer=cut)
        for row, (scores, words, second) in enumerate(
            zip(found[chosen["instance"]], chosen["words"], chosen["second"], strict=True)
        ):
            np.testing.assert_allclose(scores, said.scores[row][: len(words)], atol=1e-5)
            assert (list(words[:second]), list(words[second:])) == WORDS[PAIRS.index(pairs[row])]
        own_pairs = selection.select(subject, 0, texts=[list(pair) for pair in pairs])
        for name in ("words", "second", "probability"):
            assert list(map(str, own_pairs[name])) == list(map(str, chosen[name]))
    assert loading.load(tmp_path / "out").owners.max() == 6


def test_the_page_shows_both_sentences_apart(table, monkeypatch):
    results = SimpleNamespace(
        dataset_card={"unit": "word", "classes": ["negative", "positive"], "vocabulary": []},
        select_scores=lambda *_: {},
        scores={},
        settings={},
    )
    picked = pd.DataFrame(
        {"instance": [3], "label": [0], "prediction": [1], "probability": [0.9], "text": ["a" + PAIR + "b c"]}
    ).assign(words=[["a", "b", "c"]], words_cut=0, second=1)
    (document,) = texts.build_documents(results, picked)
    page = texts.document_page([document], entries=["none"]).data
    assert "3 words, 1 of them in the first sentence" in page and 'a <br class="pair"> b c' in page
    shown = texts.words(document.words, np.ones(3), second=1).data
    assert shown.index(">a</span>") < shown.index('<br class="pair">') < shown.index(">b</span>")
    own = picked.assign(instance=-1, label=-1)
    results.instances, results.measured, results.metadata, results.value_unit = own, {}, {}, "nats"
    results.entries, results.metrics, results.model_card = {}, {}, {"name": "bert"}
    monkeypatch.setattr(texts, "sentence_table", lambda *given, units: HTML(given[-1]))
    assert "a / b c" in texts.explanations(results).data  # one's own pair, as a heading
    single = texts.build_documents(results, picked.drop(columns="second"))
    assert "<br" not in texts.document_page(single, entries=["none"]).data


def config(**changes):
    return {
        "run": ["pairs"],
        "datasets": {"pairs": {"source": "text_file", "path": "pairs.csv", **SETTINGS, **changes}},
        "models": {"bert": {"dataset": "pairs", "source": "examples/model"}},
        "experiments": {
            "pairs": {
                "model": "bert",
                "features": {"kind": "word"},
                "reference": "delete",
                "methods": {"occlusion": {"method": "occlusion"}},
                "metrics": {"cost": {}},
            }
        },
    }


def test_bad_files_and_keys_are_one_line(table, tmp_path):
    transformer.folder("examples/model", types=True)
    validation.load(config())

    def refused(match, raw):
        with pytest.raises(ShapelineError, match=match):
            validation.load(raw)

    refused("datasets.pairs: .*'text_pair': .*'hypotheses'.*hypothesis", config(text_pair="hypotheses"))
    refused("'text_pair': pairs are cut by the tokenizer of a folder", config(tokenizer="own.py:cut"))
    raw = config()
    for own, said in (
        (
            [["a film", "good"], "a film"],
            r"texts.1: the documents of datasets.pairs are pairs; write \[first, second\]",
        ),
        ([["a film", " "]], "texts.0: a sentence of it is empty"),
        ([["a film"]], "texts"),
        ([["a film", "good", "bad"]], "texts"),
    ):
        raw["experiments"]["pairs"]["instances"] = {"texts": own}
        refused(said, raw)
    raw["experiments"]["pairs"]["instances"] = {"texts": [["a film", "good"]]}
    validation.load(raw)
    raw["datasets"]["pairs"]["text_pair"] = None
    refused("texts.0: the documents of datasets.pairs are single texts; write one text each", raw)
    raw = config()
    raw["datasets"]["pairs"] |= {"source": "table_file"}
    refused("does not take it|text", raw)
    table[:0].to_csv("pairs.csv", index=False)
    with pytest.raises(ShapelineError, match=r"pairs\.csv: holds a header and no rows"):
        preparation.prepare("text_file", {"path": "pairs.csv", **SETTINGS}, [], tmp_path / "out")
    for cell, said in ((" ", "is empty in 1 row"), ("", "is empty in 1 row"), ("a\x1eb", r"the sign U\+001E in row 2")):
        spoilt = table.copy()
        spoilt.loc[2, "hypothesis"] = cell
        spoilt.to_csv("pairs.csv", index=False)
        with pytest.raises(ShapelineError, match=rf"the column 'hypothesis' .*{said}"):
            preparation.prepare("text_file", {"path": "pairs.csv", **SETTINGS}, [], tmp_path / "out")


def test_a_model_of_pairs_does_not_explain_single_texts(table):
    transformer.folder("examples/model", types=True)
    raw = config()
    raw["datasets"]["texts"] = {**raw["datasets"]["pairs"], "text_pair": None}
    raw["experiments"]["pairs"]["dataset"] = "texts"
    with pytest.raises(ShapelineError, match="their documents: single texts; of the model's data: pairs of sentences"):
        validation.load(raw)
