"""Hierarchical, gradient and attention methods on prompts, and captum's, against independent computations."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import shapeline
from shapeline.errors import ShapelineError
from shapeline.generation import estimates
from shapeline.generation.prompts import build_prompt
from shapeline.hierarchy.methods import h_shap_tree
from tests.fixtures import language_model

pytest.importorskip("transformers", reason="language models need the extra shapeline[text]")
pytest.importorskip("tokenizers")
CONTEXT = "The Amber Tower stands. It was designed by Mara Velling.\n\nThe ferry runs. Tickets cost a crown. It is old."
QUESTION, ANSWER = "Who designed the tower?", "Mara Velling."


def explain(model, cut, **named):
    given = {"context": CONTEXT, "target": ANSWER, "prompt": QUESTION, **named}
    return shapeline.explain_generation(model, tokenizer=cut, **given)


def value_of(found, kept):
    mask = np.isin(np.arange(len(found)), kept)[None]
    return float((found.game.values(mask) @ found.game.weights)[0])


def test_levels_of_borders_and_cuts():
    context = ["One two. Three four five.", "Six seven."]
    prompt = build_prompt("Why?", context, "word", None, True)
    np.testing.assert_array_equal(estimates.find_border_levels(prompt), [0, 1, 0, 0, 2, 0])
    chat = [{"role": "user", "content": "A b. C"}, {"role": "assistant", "content": "D"}]
    chat = [*chat, {"role": "user", "content": "Why?"}]
    np.testing.assert_array_equal(estimates.find_border_levels(build_prompt(chat, None, "word", None, True)), [0, 1, 3])
    np.testing.assert_array_equal(estimates.find_border_levels(build_prompt(chat, None, "message", None, True)), [3])
    levels = estimates.find_border_levels(prompt)
    first, second = estimates.cut(np.array([[0, 1, 0, 7], [0, 1, 0, 5], [0, 1, 2, 5]]), levels)
    np.testing.assert_array_equal(first[:, 3], [5, 2, 3])
    np.testing.assert_array_equal(second[:, 2], [5, 2, 3])


def test_owen_values_follow_the_tree_of_the_text(model, cut):
    found = explain(model, cut, method="partition", evaluations=100)
    tree = [[0, 1], [2, [3, 4]]]  # the passages, and their sentences; of equal borders the first nearest to the middle
    empty, expected = value_of(found, []), np.zeros(5)

    def leaves(node):
        return [node] if isinstance(node, int) else [*leaves(node[0]), *leaves(node[1])]

    def share(node):
        own, worth = leaves(node), value_of(found, leaves(node)) - empty
        if not isinstance(node, int):
            worth -= sum(value_of(found, leaves(child)) - empty for child in node)
            for child in node:
                share(child)
        expected[own] += worth / len(own)

    share(tree)
    np.testing.assert_allclose(found.scores, expected, atol=1e-9)
    assert found.scores.sum() == pytest.approx(found.value_full - found.value_empty)
    assert found.tokens is None and found.evaluations == 10
    few = explain(model, cut, method="partition", evaluations=4)
    assert few.evaluations == 4 and few.scores[0] == few.scores[1] and few.scores[2] == few.scores[4]
    assert few.scores.sum() == pytest.approx(found.value_full - found.value_empty)


def test_h_shap_is_that_of_the_nested_tree(model, cut):
    game = explain(model, cut).game
    for leaf_score in ("uniform", "product"):
        found = explain(model, cut, method="h_shap", leaf_score=leaf_score)
        expected = h_shap_tree(
            lambda masks: game.values(masks) @ game.weights, np.arange(5), [[0, 1], [2, [3, 4]]], leaf_score=leaf_score
        )
        np.testing.assert_allclose(found.scores, expected.saliency, atol=1e-12)
        assert found.evaluations == expected.evaluations


def scaled_value(model, source, factors):
    """The value where the embeddings of each part are multiplied by its factor."""
    ids, owners = source.owners
    answer = source.answers[0].ids
    x = model.get_input_embeddings()(torch.tensor([[*ids, *answer[:-1]]])).detach().double()
    scale = np.ones(x.shape[1])
    scale[: len(ids)] = np.where(owners < 0, 1.0, np.append(factors, 1.0)[owners])
    logits = model.double()(inputs_embeds=x * torch.tensor(scale)[None, :, None]).logits[0, -len(answer) :]
    return torch.log_softmax(logits, -1)[np.arange(len(answer)), list(answer)].sum().item()


@pytest.fixture(scope="module")
def smooth():
    return language_model.llama(initializer_range=0.1)


def test_threads_explain_one_model_by_methods_that_switch_its_attention(smooth, cut):
    """A model between two kinds of attention would attend to later tokens."""
    methods = ["attn_lrp", "leave_one_out", "attention_rollout", "shapley"]
    alone = [explain(smooth, cut, method=method).scores for method in methods]
    with ThreadPoolExecutor(4) as pool:
        for place, found in enumerate(pool.map(lambda method: explain(smooth, cut, method=method), 6 * methods)):
            np.testing.assert_allclose(found.scores, alone[place % 4], atol=1e-5)
    assert smooth.config._attn_implementation == "sdpa"


def test_gradient_x_input_is_the_slope_along_each_part(smooth, cut):
    found = explain(smooth, cut, method="gradient_x_input")
    double, step = language_model.llama(initializer_range=0.1), 1e-3  # normalisations are in single precision
    for part in range(5):
        both = [scaled_value(double, found.game.source, 1 + sign * step * (np.arange(5) == part)) for sign in (1, -1)]
        assert found.scores[part] == pytest.approx((both[0] - both[1]) / (2 * step), rel=1e-2, abs=1e-3)
    assert found.evaluations == 3 and found.standard_error is None


def test_integrated_gradients_add_up(smooth, cut):
    found = explain(smooth, cut, method="integrated_gradients", steps=300)
    double = language_model.llama(initializer_range=0.1)
    ends = [scaled_value(double, found.game.source, np.full(5, factor)) for factor in (1.0, 1e-9)]
    assert found.scores.sum() == pytest.approx(ends[0] - ends[1], rel=0.02)
    assert explain(smooth, cut, method="integrated_gradients", evaluations=32).evaluations == 30


def test_relevance_is_conserved_without_attention(plain):
    """Without attention, the full logit of a token is attributed to the token before it."""
    even = language_model.llama()
    for layer in even.model.layers:
        layer.self_attn.o_proj.weight.data[:] = 0
    text, token = "Tellmethewaynow", plain(" is", add_special_tokens=False)["input_ids"][:1]
    given = {"features": [(0, 4), (4, 9), (9, 15)], "target": plain.decode(token), "method": "attn_lrp"}
    found = shapeline.explain_generation(even, text, plain, **given)
    assert len(found.answer_tokens) == 1
    logit = even(input_ids=torch.tensor([plain(text)["input_ids"]])).logits[0, -1, token[0]].item()
    np.testing.assert_allclose(found.scores, [0, 0, logit], rtol=1e-4, atol=1e-6)
    assert even.config._attn_implementation != "eager"
    flow = shapeline.explain_generation(even, text, plain, **{**given, "method": "attention_rollout"})
    assert flow.scores.sum() == pytest.approx(1.0) and (flow.scores >= 0).all() and flow.evaluations == 1


@pytest.mark.parametrize("method", ["gradient_x_input", "integrated_gradients", "attn_lrp", "attention_rollout"])
def test_scores_of_tokens_add_up(model, cut, method):
    steps = {"steps": 10} if method == "integrated_gradients" else {}
    given = {"method": method, **steps}
    whole, token, mean = (explain(model, cut, value=value, **given) for value in ("sum", "token", "mean"))
    assert token.scores.shape == (5, len(whole.answer_tokens))
    np.testing.assert_allclose(token.scores.sum(axis=1), whole.scores, rtol=1e-4, atol=1e-4)
    if method != "attention_rollout":
        np.testing.assert_allclose(mean.scores * len(whole.answer_tokens), whole.scores, rtol=1e-6)
        other = explain(model, cut, target="The ferry.", **given)
        against = explain(model, cut, contrast="The ferry.", **given)
        np.testing.assert_allclose(against.scores, whole.scores - other.scores, rtol=1e-4, atol=1e-4)
    with pytest.raises(ShapelineError, match="value='token'"):
        whole.tokens_frame()


def test_captum_has_the_same_game(model, cut):
    pytest.importorskip("captum", reason="captum is an extra")
    ablated = explain(model, cut, method="peer_captum_llm", explainer="feature_ablation")
    np.testing.assert_allclose(ablated.scores, explain(model, cut, method="leave_one_out").scores, atol=1e-4)
    sampled = explain(model, cut, method="peer_captum_llm", evaluations=400)
    exact = explain(model, cut, method="exact")
    assert sampled.evaluations == 396 and sampled.scores.sum() == pytest.approx(exact.scores.sum(), abs=1e-3)
    assert np.sqrt(np.mean((sampled.scores - exact.scores) ** 2)) < 0.25 * np.abs(exact.scores).max()
    tokens = explain(model, cut, method="peer_captum_llm", explainer="feature_ablation", value="token")
    np.testing.assert_allclose(tokens.scores.sum(axis=1), ablated.scores, atol=1e-4)


@pytest.mark.parametrize(
    "named, match",
    [
        ({"method": "partition", "value": "token"}, "choose value='sum'"),
        ({"method": "h_shap", "min_size": 2}, "no min_size"),
        ({"method": "peer_captum_llm", "explainer": "lime"}, "explainer: Input should be"),
        ({"method": "peer_captum_llm", "explainer": "kernel_shap", "value": "token"}, "gives no scores of tokens"),
        ({"method": "peer_captum_llm", "contrast": "No."}, "one answer"),
        ({"method": "deep_lift"}, "does not explain prompts"),
        ({"method": "integrated_gradients", "steps": 0}, "steps"),
    ],
)
def test_bad_input_is_one_line(model, cut, named, match):
    if named["method"] == "peer_captum_llm":
        pytest.importorskip("captum", reason="captum is an extra")
    with pytest.raises(ShapelineError, match=match) as failure:
        explain(model, cut, **named)
    assert "\n" not in str(failure.value)


def test_gradients_need_a_causal_model(cut, plain):
    with pytest.raises(ShapelineError, match="is not a causal model"):
        explain(language_model.t5(), plain, method="gradient_x_input")
    with pytest.raises(ShapelineError, match="needs a model of transformers"):
        shapeline.explain_generation(lambda prompts: [1.0] * len(prompts), "a b", features="word", method="attn_lrp")
