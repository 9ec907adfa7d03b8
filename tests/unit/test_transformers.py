"""Models of transformers on texts: words as features, the three ways to remove one, against brute force."""

import itertools
import logging
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import shapeline
from shapeline.datasets import tokenizer
from shapeline.errors import ShapelineError
from tests.fixtures import transformer
from tests.unit import games

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")
TEXTS = ["A good, goodly film isn't ending!", "bad films", "the film endings"]
WORDS = [["A", "good", ",", "goodly", "film", "isn't", "ending", "!"], ["bad", "films"], ["the", "film", "endings"]]


@pytest.fixture(scope="module")
def cut():
    return transformer.tokenizer()


@pytest.fixture(scope="module")
def model():
    return transformer.bert()


def spans(cut, text, words):
    """The pieces of each word, by hand: cut one word at a time."""
    return [cut(word, add_special_tokens=False)["input_ids"] for word in words]


def said(model, cut, text, words, kept, removal):
    """Return log-probabilities of only the `kept` words, by a plain pass of one row."""
    ids, attended = [cut.cls_token_id], [1]
    for number, own in enumerate(spans(cut, text, words)):
        if number in kept or removal != "delete":
            gone = number not in kept
            ids += own if not gone else [cut.mask_token_id if removal == "mask" else cut.pad_token_id] * len(own)
            attended += [int(not gone or removal == "mask")] * len(own)
    ids, attended = torch.tensor([[*ids, cut.sep_token_id]]), torch.tensor([[*attended, 1]])
    with torch.no_grad():
        return torch.log_softmax(model(input_ids=ids, attention_mask=attended).logits.double(), 1)[0].numpy()


@pytest.mark.parametrize("removal", ["delete", "mask", "pad"])
def test_shapley_values_of_words_are_those_by_hand(model, cut, removal):
    found = shapeline.explain(model, TEXTS, "shapley", removal, tokenizer=cut, target="positive")
    assert [list(names) for names in found.feature_names] == WORDS
    assert found.target_names == ["positive"] * 3
    for place, (text, words) in enumerate(zip(TEXTS, WORDS, strict=True)):
        values = {
            kept: said(model, cut, text, words, set(kept), removal)[1]
            for size in range(len(words) + 1)
            for kept in itertools.combinations(range(len(words)), size)
        }
        expected = games.shapley(games.of_sets(lambda kept, own=values: own[tuple(kept)], len(words)))
        np.testing.assert_allclose(found[place].scores[0][: len(words)], expected, atol=1e-5)
        assert found.value_full[place] == pytest.approx(values[tuple(range(len(words)))], abs=1e-5)
        assert found.value_empty[place] == pytest.approx(values[()], abs=1e-5)


def test_the_removals_differ(model, cut):
    first, *others = (
        shapeline.explain(model, TEXTS[0], "shapley", removal, tokenizer=cut).scores
        for removal in ("delete", "mask", "pad")
    )
    assert all(np.abs(first - other).max() > 0.01 for other in others)
    again = shapeline.explain(model, TEXTS[0], "shapley", "[MASK]", tokenizer=cut).scores
    np.testing.assert_array_equal(again, others[0])


def test_a_pipeline_of_transformers_is_its_model_and_tokenizer(model, cut):
    from transformers import TextClassificationPipeline

    whole = TextClassificationPipeline(model=model, tokenizer=cut)
    found = shapeline.explain(whole, TEXTS[:2], "occlusion")
    expected = shapeline.explain(model, TEXTS[:2], "occlusion", tokenizer=cut)
    np.testing.assert_array_equal(found.scores, expected.scores)
    assert set(found.target_names) <= {"negative", "positive"}
    assert "masked words are deleted" in repr(found) and "goodly" in repr(found[0])


def test_a_text_has_its_scores_whichever_others_are_beside_it(model, cut):
    alone = shapeline.explain(model, TEXTS[1:2], "sample_shapley", tokenizer=cut, budget=3)
    among = shapeline.explain(model, TEXTS, "sample_shapley", tokenizer=cut, budget=3)
    np.testing.assert_allclose(among.scores[1][:2], alone.scores[0], atol=1e-6)


@pytest.mark.parametrize("method", ["saliency", "gradient_x_input", "gradient_x_difference", "integrated_gradients"])
def test_gradients_are_by_the_embeddings_of_whole_words(model, cut, method):
    found = shapeline.explain(model, TEXTS, method, "mask", tokenizer=cut, target="positive")
    text, words = TEXTS[2], WORDS[2]
    ids = torch.tensor([cut(text)["input_ids"]])
    embedded = model.get_input_embeddings()(ids).detach()
    mask = model.get_input_embeddings()(torch.full_like(ids, cut.mask_token_id)).detach()
    mask[:, [0, -1]] = embedded[:, [0, -1]]

    def gradient(at):
        at = at.clone().requires_grad_()
        torch.log_softmax(model(inputs_embeds=at).logits.double(), 1)[0, 1].backward()
        return at.grad

    if method == "integrated_gradients":
        places, weights = np.polynomial.legendre.leggauss(50)
        steps = zip((places + 1) / 2, weights / 2, strict=True)
        slope = sum(weight * gradient(mask + place * (embedded - mask)) for place, weight in steps)
    else:
        slope = gradient(embedded)
    moved = {"saliency": None, "gradient_x_input": embedded}.get(method, embedded - mask)
    of_tokens = (slope.norm(dim=-1) if moved is None else (slope * moved).sum(-1))[0].numpy()
    own = [slice(1, 2), slice(2, 3), slice(3, len(of_tokens) - 1)]  # the last of three pieces
    reduced = np.mean if method == "saliency" else np.sum
    expected = [reduced(of_tokens[part]) for part in own]
    np.testing.assert_allclose(found.scores[2][: len(words)], expected, rtol=1e-3, atol=1e-5)


def test_what_cannot_be_is_one_line(model, cut, caplog):
    def refused(match, *given, **named):
        with pytest.raises(ShapelineError, match=match):
            shapeline.explain(*given, **named)

    refused("give the tokenizer=", model, TEXTS)
    refused("is of texts", model, np.zeros((2, 3)), tokenizer=cut)
    parallel = shapeline.explain(torch.nn.DataParallel(model), TEXTS, "occlusion", tokenizer=cut)
    np.testing.assert_array_equal(parallel.scores, shapeline.explain(model, TEXTS, "occlusion", tokenizer=cut).scores)
    refused("a model of transformers", lambda texts: [0.5], TEXTS, tokenizer=cut)
    refused(
        "no mask token; use delete or pad", model, TEXTS, reference="mask", tokenizer=transformer.tokenizer(mask=False)
    )
    refused("'nonsense' is not a token", model, TEXTS, reference="nonsense", tokenizer=cut)
    refused("position 1 has no words", model, ["a film", " "], tokenizer=cut)
    refused("not a fast tokenizer", model, TEXTS, tokenizer=object())
    refused("use reference: mask or pad", model, TEXTS, "integrated_gradients", tokenizer=cut)
    refused("LayerNorm, which has no rule", model, TEXTS, "deep_lift", reference="mask", tokenizer=cut)
    with caplog.at_level(logging.WARNING):
        found = shapeline.explain(model, ["good " * 40, "bad"], "occlusion", tokenizer=cut)
    assert "1 of 2 texts are longer than the 24 tokens" in caplog.text
    assert [len(names) for names in found.feature_names] == [22, 1]


def test_other_architectures_are_taken_or_refused(cut):
    """A decoder reads the last token that is there; one without embeddings has no gradients, by a line of ours."""
    import transformers

    decoder = transformer.gpt2(cut)
    values = {}
    for kept in itertools.chain.from_iterable(itertools.combinations(range(3), size) for size in range(4)):
        values[kept] = said(decoder, cut, TEXTS[2], WORDS[2], set(kept), "delete")[1]
    found = shapeline.explain(decoder, TEXTS[::2], "shapley", tokenizer=cut, target=1)  # of two lengths
    np.testing.assert_allclose(
        found.scores[1][:3], games.shapley(games.of_sets(lambda kept: values[tuple(kept)], 3)), atol=1e-5
    )
    with pytest.raises(ShapelineError, match="takes no embeddings"):
        shapeline.explain(transformer.bart(cut), TEXTS, "saliency", "mask", tokenizer=cut)
    xlnet = transformers.XLNetForSequenceClassification(
        transformers.XLNetConfig(d_model=16, n_layer=1, n_head=2, vocab_size=len(cut), pad_token_id=0, num_labels=2)
    )
    with pytest.raises(ShapelineError, match="reads the end of its padding"):
        shapeline.explain(xlnet, TEXTS, tokenizer=cut)


def test_rows_of_several_lengths_are_evaluated_in_passes_of_equal_width(model, cut):
    """Sorted, split and restored: each row has its logits."""
    from shapeline.models import transformer_models

    widths = []
    network = transformer_models.TextNetwork(model, cut.pad_token_id)
    hook = model.register_forward_pre_hook(
        lambda module, given, named: widths.append(named["input_ids"].shape), with_kwargs=True
    )
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 20, (700, 24)).astype(np.int32)
    lengths = rng.integers(0, 25, 700)
    ids[np.arange(24) >= lengths[:, None]] = cut.pad_token_id
    gone = rng.random(ids.shape) < 0.5
    ids[gone & (ids != cut.pad_token_id)] = -1
    with torch.no_grad():
        together = network(torch.from_numpy(ids))
        assert sum(rows for rows, _ in widths) == 700 and len({width for _, width in widths}) > 1
        for row in range(0, 700, 50):
            kept = [int(token) for token in ids[row] if token > 0] or [cut.pad_token_id]
            alone = model(input_ids=torch.tensor([kept])).logits
            torch.testing.assert_close(together[row : row + 1], alone, atol=1e-5, rtol=0)
    hook.remove()


def test_words_end_at_white_space_and_not_at_an_apostrophe():
    """For a tokenizer without words, whose pieces begin with the preceding space, and for one with too many."""
    offsets = ((0, 0), (0, 2), (2, 5), (5, 8), (8, 9), (0, 0))
    none = SimpleNamespace(special_tokens_mask=(1, 0, 0, 0, 0, 1), word_ids=(None, 0, 0, 0, 0, None), offsets=offsets)
    assert tokenizer.split_words("don't see", none) == ([None, 0, 0, 1, 1, None], ["don't", "see"])
    offsets = ((0, 3), (3, 4), (4, 5), (6, 9), (9, 10), (11, 12))
    many = SimpleNamespace(special_tokens_mask=(0,) * 6, word_ids=tuple(range(6)), offsets=offsets)
    assert tokenizer.split_words("don't see' x", many) == ([0, 0, 0, 1, 2, 3], ["don't", "see", "'", "x"])


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_missing_text_and_one_of_too_many_pieces_are_refused(model, cut, monkeypatch, missing):
    for texts in ([TEXTS[0], missing], [(TEXTS[0], TEXTS[1]), (TEXTS[0], missing)]):
        with pytest.raises(ShapelineError, match="position 1 is "):
            shapeline.explain(model, texts, "occlusion", tokenizer=cut)
    monkeypatch.setattr("shapeline.api.texts.MAX_WORDS", 8)
    with pytest.raises(ShapelineError, match=r"the text at position 1 has \d+ tokens and the most is 8; explain parts"):
        shapeline.explain(model, [TEXTS[1], TEXTS[0]], "occlusion", tokenizer=cut)
