"""Attention rollout: by hand, by all paths, of a custom network and of a transformer, and refusals."""

import copy
import itertools

import numpy as np
import pytest
import torch
from torch import nn

import shapeline
from shapeline.config import validation
from shapeline.errors import ShapelineError
from shapeline.games.features import Features
from shapeline.games.game import Game
from shapeline.gradients import torch_gradients
from shapeline.models.classifier import Classifier
from tests.fixtures import transformer

WORDS = Features("word", (2,), np.array([-1, 0, 0, 1, -1], np.int32), ("lovely", "room"))
IDS = np.array([[2, 5, 6, 7, 3], [2, 8, 6, 5, 3]], np.int32)


def drawn(seed: int, layers: int = 1, heads: int = 2, tokens: int = 5, causal: bool = False) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn((layers, 2, heads, tokens, tokens), generator=generator, dtype=torch.float64)
    if causal:
        logits = logits.masked_fill(torch.ones(tokens, tokens).triu(1).bool(), -torch.inf)
    return list(logits.softmax(-1))


class Told(nn.Module):
    """A network whose attention is known, the same for each row."""

    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, ids):
        return ids[:, :2].float()

    def attentions(self, ids):
        return [layer[:1].repeat(len(ids), 1, 1, 1) for layer in self.layers]


def test_one_layer_by_hand():
    attention = torch.tensor([[0.2, 0.3, 0.1, 0.3, 0.1], *[[0.2] * 5] * 4], dtype=torch.float64)
    other = torch.tensor([[0.0, 0.1, 0.5, 0.3, 0.1], *[[0.2] * 5] * 4], dtype=torch.float64)
    model = Classifier("torch", "told", Told([torch.stack([attention, other])[None]]), 2)
    scores, evaluations = torch_gradients.attention_rollout(Game(model, None, WORDS), IDS)
    # The mean of the heads is 0.1, 0.2, 0.3, 0.3, 0.1, half of which counts; the first and the last are no word's.
    np.testing.assert_allclose(scores, [[0.25, 0.15]] * 2, atol=1e-12)
    assert evaluations == 1


def test_two_layers_are_the_sum_over_all_paths():
    layers = drawn(0, layers=3)
    found = torch_gradients.roll_out(layers).numpy()
    mixed = [(layer.mean(1).numpy() + np.eye(5)) / 2 for layer in layers]
    for row, end, start in itertools.product(range(2), range(5), range(5)):
        paths = itertools.product(range(5), repeat=2)
        each = (mixed[2][row, end, b] * mixed[1][row, b, a] * mixed[0][row, a, start] for a, b in paths)
        assert found[row, end, start] == pytest.approx(sum(each), abs=1e-12)
    np.testing.assert_allclose(found.sum(-1), 1)
    backwards = torch_gradients.roll_out(layers[::-1]).numpy()
    assert np.abs(backwards - found).max() > 0.01


def test_attention_that_does_not_sum_to_one_is_normalised():
    """What a sparse or a gated layer keeps of its softmax."""
    (layer,) = drawn(1)
    found = torch_gradients.roll_out([layer * 0.5])
    np.testing.assert_allclose(found, (layer.mean(1) * 0.5 + torch.eye(5)) / 1.5)


def test_the_head_reads_the_first_token_or_the_last_of_a_decoder():
    layers = drawn(2, layers=2)
    np.testing.assert_array_equal(torch_gradients.select_read_row(layers), torch_gradients.roll_out(layers)[:, 0])
    layers = drawn(3, layers=2, causal=True)
    for layer in layers:
        layer[1, :, :, 3:] = 0  # the second row is two shorter
    whole = torch_gradients.roll_out(layers)
    np.testing.assert_array_equal(torch_gradients.select_read_row(layers), torch.stack([whole[0, 4], whole[1, 2]]))


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_a_model_without_attention_is_one_line_before_any_job(default, framework):
    for name, experiment in list(default["experiments"].items()):
        if experiment.get("model") in default["models"]:
            raw = copy.deepcopy(default)
            raw["experiments"][name]["methods"]["flow"] = {"method": "attention_rollout"}
            raw["models"][experiment["model"]]["framework"] = framework
            with pytest.raises(ShapelineError) as caught:
                validation.load(raw)
            (said,) = [line for line in str(caught.value).splitlines() if "methods.flow" in line]
            assert "explains data of kind text" in said or "needs the attention of a transformer" in said


def test_at_a_call_it_is_one_line_too():
    class Bag(nn.Module):
        def forward(self, ids):
            return ids[:, :2].float()

    for model in (Bag(), lambda ids: np.full(len(ids), 0.5)):
        with pytest.raises(ShapelineError, match="has no attention; give"):
            shapeline.explain(model, IDS, "attention_rollout", {"kind": "pad", "id": 0}, WORDS)


# --------------------------------------------------------------------------------------------------- of transformers


@pytest.fixture(scope="module")
def cut():
    pytest.importorskip("transformers")
    return transformer.tokenizer()


TEXTS = ["A good, goodly film isn't ending!", "bad films", "the film endings"]


def test_rollout_of_a_transformer_uses_its_attention_by_words(cut):
    model = transformer.bert(layers=2)
    assert model.config._attn_implementation == "sdpa"
    found = shapeline.explain(model, TEXTS, "attention_rollout", tokenizer=cut)
    assert model.config._attn_implementation == "sdpa" and (found.evaluations == 1).all()
    for other in ({"target": "positive"}, {"target": "negative"}, {"reference": "mask"}, {"reference": "pad"}):
        again = shapeline.explain(model, TEXTS, "attention_rollout", tokenizer=cut, **other)
        np.testing.assert_array_equal(again.scores, found.scores)
    eager = transformer.bert(layers=2, attn_implementation="eager")
    ids = cut(TEXTS[2], return_tensors="pt")
    with torch.no_grad():
        first, second = (
            (layer[0].mean(0).double() + torch.eye(7)) / 2 for layer in eager(**ids, output_attentions=True).attentions
        )
    assert cut.convert_ids_to_tokens(ids["input_ids"][0]) == "[CLS] the film end ##ing ##s [SEP]".split()
    row = (second @ first)[0].numpy()
    np.testing.assert_allclose(found.scores[2][:3], [row[1], row[2], row[3:6].sum()], atol=1e-6)
    assert found.scores[2][:3].sum() < 1 - row[6] / 2


def test_architectures_with_other_attention_outputs_are_read_or_refused(cut):
    decoder = transformer.gpt2(cut)
    found = shapeline.explain(decoder, TEXTS, "attention_rollout", tokenizer=cut)
    decoder.set_attn_implementation("eager")
    ids = cut(TEXTS[1], return_tensors="pt")["input_ids"]  # padded among the others
    (layer,) = decoder(input_ids=ids, output_attentions=True).attentions
    assert len(ids[0]) == 5
    half = layer[0, :, -1].mean(0).detach().numpy() / 2
    np.testing.assert_allclose(found.scores[1][:2], [half[1], half[2:4].sum()], atol=1e-6)
    with pytest.raises(ShapelineError, match="gives no attention of all tokens"):
        shapeline.explain(transformer.bart(cut), TEXTS, "attention_rollout", tokenizer=cut)
