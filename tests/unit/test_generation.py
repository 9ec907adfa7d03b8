"""Explanations of generated answers: values by an independent loop over single prompts, and bad input in one line."""

import copy
import dataclasses
import itertools
import re

import numpy as np
import pandas as pd
import pytest
import torch

import shapeline
from shapeline.errors import ShapelineError
from shapeline.generation import prefix_cache
from shapeline.generation.language_models import LanguageModel
from shapeline.generation.prompts import Content, split_text
from tests.fixtures import language_model
from tests.unit import games

pytest.importorskip("transformers", reason="language models need the extra shapeline[text]")
pytest.importorskip("tokenizers")
SENTENCES = [
    "The Amber Tower stands in the harbour.",
    "It was designed by Mara Velling.",
    "The ferry runs every hour.",
    "Tickets cost four crowns.",
]
CONTEXT, QUESTION, ANSWER = " ".join(SENTENCES), "Who designed the tower?", "Mara Velling designed it."


def subsets(d):
    return [kept for size in range(d + 1) for kept in itertools.combinations(range(d), size)]


def log_probabilities(model, ids, answer):
    """Of the answer's tokens, by a plain pass of one row for each token."""
    found = []
    for place, token in enumerate(answer):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([[*ids, *answer[:place]]])).logits[0, -1].double()
        found.append(torch.log_softmax(logits, 0)[token].item())
    return found


def chat_text(content):
    return f"<|start|>user\n{content}<|end|>\n<|start|>assistant\n"


def by_hand(model, cut, prompts, answer):
    """Values (T,) of every coalition of a chat about a context, by prompt."""
    ids = cut(answer, add_special_tokens=False)["input_ids"]
    return {
        kept: np.array(log_probabilities(model, cut(text, add_special_tokens=False)["input_ids"], ids))
        for kept, text in prompts.items()
    }


def shapley_of(values, d):
    return games.shapley(games.of_sets(values if callable(values) else lambda kept: values[tuple(kept)], d))


@pytest.fixture(scope="module")
def exact(model, cut):
    """Values by hand of the four sentences deleted from the context."""
    prompts = {
        kept: chat_text(
            "Context:\n" + " ".join(SENTENCES[place] for place in kept) + f"\n\nQuestion: {QUESTION}"
            if kept
            else f"Context:\n\nQuestion: {QUESTION}"
        )
        for kept in subsets(4)
    }
    return by_hand(model, cut, prompts, ANSWER)


def explain(model, cut, **named):
    given = {"context": CONTEXT, "target": ANSWER, "prompt": QUESTION, **named}
    return shapeline.explain_generation(model, tokenizer=cut, **given)


@pytest.mark.parametrize("reuse", [True, False, None])
def test_exact_values_of_sentences_are_those_by_hand(model, cut, exact, reuse):
    found = explain(model, cut, reuse=reuse)
    assert found.method == "shapley" and found.evaluations == 16 and found.parts == tuple(SENTENCES)
    expected = shapley_of({kept: values.sum() for kept, values in exact.items()}, 4)
    np.testing.assert_allclose(found.scores, expected, atol=1e-4)
    assert (found.standard_error == 0).all()
    assert found.value_full == pytest.approx(exact[0, 1, 2, 3].sum(), abs=1e-4)
    assert found.value_empty == pytest.approx(exact[()].sum(), abs=1e-4)
    for token in range(len(found.answer_tokens)):
        by_token = shapley_of({kept: values[token] for kept, values in exact.items()}, 4)
        np.testing.assert_allclose(found.tokens[:, token], by_token, atol=1e-4)
    assert "".join(found.answer_tokens) == ANSWER == found.answer


class Wrapper(torch.nn.Module):
    """A model that passes all arguments on, as one of torch.compile or PEFT."""

    def __init__(self, model):
        super().__init__()
        self.base = model

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("base"), name)

    def forward(self, *values, **named):
        return self.base(*values, **named)


def test_a_wrapped_model_has_the_scores_of_the_model_inside(model, cut):
    for wrapped in (Wrapper(model), torch.nn.DataParallel(model)):
        np.testing.assert_allclose(explain(wrapped, cut).scores, explain(model, cut).scores, atol=1e-4)


def test_prompts_without_a_template_and_placeholders(model, plain):
    found = explain(model, plain, removal="placeholder", placeholder="[...]", features="word", context="the tall tower")
    words = ["the", "tall", "tower"]
    prompts = {
        kept: "Context:\n"
        + " ".join(word if place in kept else "[...]" for place, word in enumerate(words))
        + f"\n\nQuestion: {QUESTION}\nAnswer:"
        for kept in subsets(3)
    }
    values = {kept: one.sum() for kept, one in by_hand(model, plain, prompts, ANSWER).items()}
    np.testing.assert_allclose(found.scores, shapley_of(values, 3), atol=1e-4)


def test_parts_of_a_prompt_are_found_by_characters_for_any_tokens(model, plain):
    """Removed by characters: pieces of the tokenizer span the borders of these parts."""
    text, spans = "The ferry runs every hour.", [(4, 7), (7, 9), (10, 14)]
    pieces = plain(text, return_offsets_mapping=True)["offset_mapping"]
    assert any(start < 7 < end for start, end in pieces) or any(start < 14 < end for start, end in pieces)
    found = shapeline.explain_generation(model, text, plain, features=spans, target=" Yes.")
    assert found.parts == ("fer", "ry", "runs")
    prompts = {
        (): "The every hour.",
        (0,): "The fer every hour.",
        (1,): "The ry every hour.",
        (2,): "The runs every hour.",
        (0, 1): "The ferry every hour.",
        (0, 2): "The fer runs every hour.",
        (1, 2): "The ry runs every hour.",
        (0, 1, 2): text,
    }
    values = {kept: one.sum() for kept, one in by_hand(model, plain, prompts, " Yes.").items()}
    np.testing.assert_allclose(found.scores, shapley_of(values, 3), atol=1e-4)


@pytest.mark.parametrize("kind", ["unigram", "wordpiece"])
@pytest.mark.parametrize("network", ["llama", "t5"])
def test_other_tokenizers(kind, network):
    """Nothing is cut off, and the answer follows the prompt, not its final token."""
    own, other = getattr(language_model, network)(), language_model.other_tokenizer(kind)
    found = explain(own, other, context=SENTENCES[:3], features="passage")
    answer, values = found.game.source.answers[0], {}
    assert len(other(CONTEXT)["input_ids"]) > 20
    for kept in subsets(3):
        inside = "\n\n".join(SENTENCES[place] for place in kept)
        ids = other(f"Context:\n{inside}{chr(10) * (2 if kept else 1)}Question: {QUESTION}\nAnswer:")["input_ids"]
        ids = ids[:-1] if kind == "wordpiece" and network == "llama" else ids
        start = [own.config.decoder_start_token_id, *answer.prefix] if network == "t5" else []
        total = 0.0
        for place, token in enumerate(answer.ids):
            before = torch.tensor([[*start, *answer.ids[:place]]])
            given = {"input_ids": torch.tensor([ids]), "decoder_input_ids": before}
            with torch.no_grad():
                logits = own(**given if start else {"input_ids": torch.tensor([[*ids, *answer.ids[:place]]])}).logits
            total += torch.log_softmax(logits[0, -1].double(), 0)[token].item()
        values[kept] = total
    np.testing.assert_allclose(found.scores, shapley_of(values, 3), atol=1e-4, rtol=1e-5)
    assert all(found.answer_tokens)


def test_unknown_characters_of_an_answer_are_tokens(model):
    other = language_model.other_tokenizer("wordpiece")
    found = explain(model, other, target="\u6771 tower \u6771")
    assert found.answer_tokens[0] == "[UNK]" and len(found.answer_tokens) >= 3
    refused("has no token", model, QUESTION, other, CONTEXT, target="\n")


def test_a_message_that_repeats_the_template_is_masked_itself(model, cut):
    chat = [{"role": "user", "content": "user guide"}, {"role": "assistant", "content": "assistant"}]
    chat = [*chat, {"role": "user", "content": QUESTION}]
    found = shapeline.explain_generation(model, chat, cut, features="word", target=ANSWER, removal="mask")
    ids, owners = found.game.source.owners
    ends = np.cumsum([len(cut.decode([one])) for one in ids])
    first = [ends[np.flatnonzero(owners == part)[0] - 1] for part in range(3)]
    text = cut.decode(ids)
    places = [text.index("user guide"), text.index("guide"), text.index("assistant\nassistant") + len("assistant\n")]
    assert found.parts == ("user", "guide", "assistant")
    assert np.abs(np.subtract(first, places)).max() <= 1  # a token may begin with the space before


def test_a_template_that_shows_a_message_twice_or_never_is_not_masked(model):
    cut, messages = language_model.tokenizer(), [{"role": "user", "content": "A tall tower."}] * 2
    each = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    for cut.chat_template in (each + "{{ messages[0]['content'] }}", "{{ messages[1]['content'] }}"):
        refused("repeats, moves or leaves out a message", model, messages, cut, target=ANSWER, removal="mask")
        assert len(shapeline.explain_generation(model, messages, cut, target=ANSWER)) == 1


def test_masked_parts_are_not_attended_to(model, cut):
    found = explain(model, cut, removal="mask", features="passage", context=SENTENCES[:3])
    text = chat_text("Context:\n" + "\n\n".join(SENTENCES[:3]) + f"\n\nQuestion: {QUESTION}")
    encoded = cut(text, add_special_tokens=False, return_offsets_mapping=True)
    answer = cut(ANSWER, add_special_tokens=False)["input_ids"]
    owners = []
    for start, end in encoded["offset_mapping"]:
        first = start + len(text[start:end]) - len(text[start:end].lstrip())
        inside = [text.find(one) <= first < min(end, text.find(one) + len(one)) for one in SENTENCES[:3]]
        owners.append(inside.index(True) if any(inside) else -1)
    ids = torch.tensor([encoded["input_ids"] + answer[:-1]])
    values = {}
    for kept in subsets(3):
        attended = [int(own < 0 or own in kept) for own in owners] + [1] * (len(answer) - 1)
        positions = torch.arange(ids.shape[1])[None]
        with torch.no_grad():
            logits = model(input_ids=ids, attention_mask=torch.tensor([attended]), position_ids=positions).logits[0]
        scores = torch.log_softmax(logits[-len(answer) :].double(), -1)
        values[kept] = sum(scores[place, token].item() for place, token in enumerate(answer))
    np.testing.assert_allclose(found.scores, shapley_of(values, 3), atol=1e-4)


def test_sequence_to_sequence_models():
    model, cut = language_model.t5(), language_model.tokenizer(chat=False)
    found = explain(model, cut, context=SENTENCES[:3], features="passage")
    answer, values = cut(ANSWER)["input_ids"], {}
    for kept in subsets(3):
        inside = "\n\n".join(SENTENCES[place] for place in kept)
        text = (
            f"Context:\n{inside}\n\nQuestion: {QUESTION}\nAnswer:"
            if kept
            else f"Context:\n\nQuestion: {QUESTION}\nAnswer:"
        )
        with torch.no_grad():
            logits = model(
                input_ids=torch.tensor([cut(text)["input_ids"]]), decoder_input_ids=torch.tensor([[3, *answer[:-1]]])
            ).logits[0]
        scores = torch.log_softmax(logits.double(), -1)
        values[kept] = sum(scores[place, token].item() for place, token in enumerate(answer))
    np.testing.assert_allclose(found.scores, shapley_of(values, 3), atol=1e-4)
    own = explain(model, cut, context=SENTENCES[:3], target=None, max_tokens=5)
    assert own.is_own_answer and 1 <= len(own.answer_tokens) <= 5


def test_the_models_own_answer_is_greedy_and_shown(model, cut):
    found = explain(model, cut, target=None, max_tokens=4)
    ids = cut(chat_text(f"Context:\n{CONTEXT}\n\nQuestion: {QUESTION}"), add_special_tokens=False)["input_ids"]
    said = []
    for _ in range(4):
        with torch.no_grad():
            said.append(int(model(input_ids=torch.tensor([ids + said])).logits[0, -1].argmax()))
    assert found.answer == cut.decode(said) and found.is_own_answer
    assert "the model's own" in repr(found)
    told = copy.deepcopy(model)
    told.generation_config.update(return_dict_in_generate=True, stop_strings=["no such text"], do_sample=True)
    assert explain(told, cut, target=None, max_tokens=4).answer == found.answer
    told.generation_config.num_return_sequences = 2
    with pytest.raises(
        ShapelineError, match=r"LlamaForCausalLM generates no answer \(.*; correct its generation_config"
    ):
        explain(told, cut, target=None, max_tokens=4)


def test_messages_before_the_question_are_parts(model, cut):
    chat = [
        {"role": "system", "content": "Answer briefly."},
        {"role": "user", "content": SENTENCES[0]},
        {"role": "assistant", "content": SENTENCES[1]},
        {"role": "user", "content": QUESTION},
    ]
    found = shapeline.explain_generation(model, chat, cut, features="message", target=ANSWER)
    assert found.parts == (SENTENCES[0], SENTENCES[1])

    def text(kept):
        shown = [one for place, one in enumerate(chat) if place in (0, 3) or place - 1 in kept]
        return "".join(f"<|start|>{one['role']}\n{one['content']}<|end|>\n" for one in shown) + "<|start|>assistant\n"

    values = by_hand(model, cut, {kept: text(kept) for kept in subsets(2)}, ANSWER)
    expected = shapley_of({kept: one.sum() for kept, one in values.items()}, 2)
    np.testing.assert_allclose(found.scores, expected, atol=1e-4)
    words = shapeline.explain_generation(model, chat, cut, features="word", target=ANSWER)
    assert len(words) == sum(len(one.split()) for one in SENTENCES[:2])


def test_contents_of_texts_are_lines_and_other_keys_of_messages_stay():
    call = {"id": "1", "function": {"name": "ferry"}}
    chat = [
        {"role": "developer", "content": "Answer briefly."},
        {"role": "user", "name": "Mara", "content": [{"type": "text", "text": "A."}, {"type": "text", "text": "B."}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": ["It runs."]},
        {"role": "user", "content": [{"type": "text", "text": QUESTION}]},
    ]
    seen = []

    def log_probability(prompts):
        seen.extend(prompts)
        return [-sum(len(message["content"]) for message in prompt) for prompt in prompts]

    found = shapeline.explain_generation(log_probability, chat)
    assert found.parts == ("A.", "B.", "It runs.") and found.scores.sum() == pytest.approx(-len("A.\nB.It runs."))
    assert [message["content"] for message in seen[0]] == ["Answer briefly.", "A.\nB.", "", "It runs.", QUESTION]
    assert all((one[1]["name"], one[2]["tool_calls"], one[3]["tool_call_id"]) == ("Mara", [call], "1") for one in seen)
    assert shapeline.explain_generation(log_probability, chat, features="message").parts == ("A.\nB.", "It runs.")
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a.png"}}]}]
    refused(r'message 1 is .*or as content \[{"type": "text", "text": "..."}\]', log_probability, image)


def test_values_that_are_no_log_probabilities_have_no_nats():
    assert "value of the function: 2 with" in repr(
        shapeline.explain_generation(lambda all: map(len, all), "ab", features=[(0, 1)])
    )


def test_a_prompt_of_one_part_is_reported():
    with pytest.warns(UserWarning, match=r"one part by features='word'; give \(start, end\) pairs of characters"):
        shapeline.explain_generation(
            lambda prompts: [-len(prompt) for prompt in prompts], "今天天气很好", features="word"
        )


def test_means_tokens_and_contrasts(model, cut, exact):
    whole, mean, token = (explain(model, cut, value=value) for value in ("sum", "mean", "token"))
    np.testing.assert_allclose(mean.scores * len(whole.answer_tokens), whole.scores, atol=1e-9)
    np.testing.assert_allclose(token.scores, whole.tokens, atol=1e-9)
    other = "The ferry."
    found, against = explain(model, cut, contrast=other), explain(model, cut, target=other)
    np.testing.assert_allclose(found.scores, whole.scores - against.scores, atol=1e-4)
    np.testing.assert_allclose(found.tokens.sum(axis=1), found.scores, atol=1e-9)
    assert found.answer_tokens[-1].startswith("-")
    given = {"target": "It opened in 1931, in spring.", "value": "mean"}
    pair = [explain(model, cut, **{**given, "target": each}) for each in (given["target"], other)]
    mean = explain(model, cut, contrast=other, **given)
    np.testing.assert_allclose(mean.scores, pair[0].scores - pair[1].scores, atol=1e-4)
    assert mean.unit == "mean log p(answer) - mean log p(other answer), nats"


@pytest.mark.parametrize("method", ["gp_shapley", "kernel_shap", "leave_one_out", "sample_shapley", "lime", "random"])
def test_tokens_add_up_to_the_scores_by_every_method(model, cut, method):
    found = explain(model, cut, context=CONTEXT + " " + CONTEXT, evaluations=30, method=method)
    assert len(found) == 8  # equal sentences are parts of their own
    np.testing.assert_allclose(found.tokens.sum(axis=1), found.scores, atol=1e-9)
    assert found.evaluations <= 30
    if found.standard_error is not None:
        assert found.standard_error.shape == (8,)


def test_too_few_steps_of_integrated_gradients_are_reported(model, cut):
    rough = explain(model, cut, method="integrated_gradients", steps=3)
    assert "completeness gap above 10 % (raise steps" in rough.warning and rough.warning in repr(rough)
    smooth = explain(language_model.llama(initializer_range=0.1), cut, method="integrated_gradients", steps=300)
    assert smooth.warning is None


def test_leave_one_out_is_the_difference(model, cut, exact):
    found = explain(model, cut, method="leave_one_out")
    whole = exact[0, 1, 2, 3].sum()
    expected = [whole - exact[tuple(place for place in range(4) if place != out)].sum() for out in range(4)]
    np.testing.assert_allclose(found.scores, expected, atol=1e-4)


def test_a_function_of_prompts():
    weights = {"red": 2.0, "green": -1.0, "blue": 0.5}
    asked = []

    def function(prompts):
        asked.extend(prompts)
        return [[sum(weights[word] for word in weights if word in text), float("red" in text)] for text in prompts]

    found = shapeline.explain_generation(function, "red green blue", features="word")
    np.testing.assert_allclose(found.scores, [3.0, -1.0, 0.5], atol=1e-12)
    np.testing.assert_allclose(found.tokens[:, 1], [1, 0, 0], atol=1e-12)
    assert "red green blue" in asked and "red blue" in asked
    single = shapeline.explain_generation(
        lambda prompts: [float("red" in one) for one in prompts], "red", features="word"
    )
    np.testing.assert_allclose(single.scores, [1.0])


@pytest.mark.parametrize("method", ["auto", "kernel_shap"])
def test_a_budget_ends_when_the_error_is_small(method):
    random, d = np.random.default_rng(0), 9
    weights, pairs, words = random.normal(size=d), 0.3 * random.normal(size=(d, d)), [f"w{place}" for place in range(d)]
    spent = []

    def function(prompts):
        spent.append(len(prompts))
        masks = np.array([[word in text.split() for word in words] for text in prompts], float)
        return np.stack([np.tanh(masks @ weights), np.einsum("ni,ij,nj->n", masks, pairs, masks)], axis=1)

    def explain(**named):
        return shapeline.explain_generation(function, " ".join(words), features="word", method=method, **named)

    exact = shapley_of(lambda kept: function([" ".join(words[place] for place in kept)]).sum(), d)
    spent.clear()
    found = explain(budget={"error": 0.05})
    assert sum(spent) <= found.evaluations + 3 < 2**d - 100  # both ends, and how many tokens there are
    assert np.sqrt(np.mean((found.scores - exact) ** 2)) < 0.1 and found.warning is None
    assert np.sqrt(np.mean(found.standard_error**2)) <= 0.05
    np.testing.assert_allclose(found.tokens.sum(axis=1), found.scores, atol=1e-9)
    certain = explain(budget={"error": 1e-9, "max_budget": 100})  # all coalitions
    np.testing.assert_allclose(certain.scores, exact, atol=1e-6)
    few = explain(budget={"error": "0.001%", "max_budget": 5})
    assert few.evaluations <= 5 * d and "warning: stopped at the cap" in repr(few)
    assert explain(budget=6).evaluations == explain(evaluations=6 * d).evaluations


def test_a_function_of_the_generated_text(model, cut):
    def count(texts):
        return [float(len(text)) for text in texts]

    found = explain(model, cut, context=SENTENCES[:2], target=None, value=count, max_tokens=4)
    values = {}
    for kept in subsets(2):
        text = cut.apply_chat_template(
            found.game.prompt.render(np.isin([0, 1], kept)), tokenize=False, add_generation_prompt=True
        )
        ids, said = cut(text, add_special_tokens=False)["input_ids"], []
        while len(said) < 4 and 0 not in said:
            with torch.no_grad():
                said.append(int(model(input_ids=torch.tensor([ids + said])).logits[0, -1].argmax()))
        values[kept] = float(len(cut.decode(said, skip_special_tokens=True)))
    np.testing.assert_allclose(found.scores, shapley_of(values, 2), atol=1e-9)
    assert "value of the function" in repr(found)
    refused("has no target", model, QUESTION, cut, CONTEXT, value=count, target=ANSWER)


def test_lists_of_prompts_and_folders(tmp_path, model, cut):
    model.save_pretrained(tmp_path / "model")
    cut.save_pretrained(tmp_path / "model")
    both = shapeline.explain_generation(
        tmp_path / "model", [QUESTION, "Where?"], context=[CONTEXT, SENTENCES], features="sentence", target=ANSWER
    )
    alone = explain(model, cut)
    np.testing.assert_allclose(both[0].scores, alone.scores, atol=1e-5)
    assert len(both) == 2 and both[1].parts == tuple(SENTENCES)


@pytest.mark.parametrize("container", [tuple, np.array, pd.Series, pd.Index, iter], ids=lambda one: one.__name__)
def test_passages_in_any_container(model, cut, exact, container):
    found = explain(model, cut, context=container(SENTENCES))
    np.testing.assert_allclose(found.scores, explain(model, cut, context=SENTENCES).scores, atol=1e-9)


def test_prompts_and_spans_in_any_container(model, cut):
    both = explain(model, cut, prompt=pd.Series([QUESTION] * 2), context=pd.Series([CONTEXT] * 2))
    np.testing.assert_allclose([one.scores for one in both], [explain(model, cut).scores] * 2, atol=1e-9)
    spans = [(0, 5), (6, 20)]
    alone = explain(model, cut, features=spans)
    np.testing.assert_array_equal(explain(model, cut, features=np.array(spans)).scores, alone.scores)


def test_a_cache_of_another_kind_is_not_shared(cut):
    """Heads of one query, and layers that see a window: right with and without reuse."""
    from transformers import FalconConfig, FalconForCausalLM, MistralConfig, MistralForCausalLM

    sizes = {"vocab_size": 360, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(0)
    falcon = FalconForCausalLM(FalconConfig(**sizes)).eval()
    window = MistralForCausalLM(MistralConfig(**sizes, intermediate_size=48, num_key_value_heads=2, sliding_window=8))
    for network in (falcon, window.eval()):
        shared, plain = (explain(network, cut, reuse=reuse).scores for reuse in (True, False))
        np.testing.assert_allclose(shared, plain, atol=1e-4)
    assert prefix_cache.find_cache_size(LanguageModel.of(falcon)) == (2, 1, 8)
    assert prefix_cache.find_cache_size(LanguageModel.of(window)) is None


def test_what_is_shown(model, cut):
    found = explain(model, cut, context=CONTEXT + " A.", evaluations=20)
    assert "5 parts by gp_shapley, 20 evaluations" in repr(found) and ANSWER in repr(found)
    assert list(found.to_frame().columns) == ["part", "score", "half"] and found.tokens_frame().shape[0] == 5
    assert all(hasattr(found.plot(kind), "savefig") for kind in (None, "bars", "tokens"))
    page = found._repr_html_()
    assert SENTENCES[0] in page and "supports the answer" in page and "Hover over a part" in page
    assert found.top(1) == [found.parts[int(found.scores.argmax())]]


def rows_of(model, count, seed=0):
    """Prompts that share prefixes, with answers."""
    random = np.random.default_rng(seed)
    blocks = [random.integers(5, 350, size=size).tolist() for size in (9, 1, 14, 5, 8)]
    kept = [random.random(5) < 0.6 for _ in range(count)]
    prompts = [[1, 2, *itertools.chain(*(b for b, k in zip(blocks, one, strict=True) if k)), 7] for one in kept]
    return [prefix_cache.Row(prompt, [8, 9, 10] if place % 3 else [8, 11]) for place, prompt in enumerate(prompts)]


def test_shared_prefixes_give_the_values_of_single_prompts(model):
    taken, rows = LanguageModel.of(model), rows_of(model, 24)
    found = prefix_cache.score_with_reuse(taken, rows)
    for row, values in zip(rows, found, strict=True):
        np.testing.assert_allclose(values, log_probabilities(model, row.ids, row.answer), atol=1e-4)


def test_a_trie_holds_each_shared_token_once(model):
    rows = rows_of(model, 24)
    nodes = prefix_cache.build_trie(rows)
    sequences = [[*row.ids, *row.answer[:-1]] for row in rows]
    prefixes = {
        tuple(one[: place + 1]) for one, row in zip(sequences, rows, strict=True) for place in range(len(row.ids) - 1)
    }
    tails = sum(len(row.answer) for row in rows)
    assert len(prefixes) + tails == sum(node.length for node in nodes)
    assert sorted(node.row for node in nodes if node.row is not None) == list(range(24))


def test_reuse_is_chosen_by_counting(model):
    taken = LanguageModel.of(model)
    shared = [prefix_cache.Row([*range(5, 200), place], [3]) for place in range(200, 230)]
    apart = [prefix_cache.Row([place, *range(5, 200)], [3]) for place in range(200, 230)]
    assert prefix_cache.saves_tokens(taken, shared) and not prefix_cache.saves_tokens(taken, apart)


def test_less_memory_gives_the_same(model, cut, exact, monkeypatch):
    original, sizes = prefix_cache.compute_last_logits, []

    def short_of_memory(taken, keep, **given):
        sizes.append(len(given["input_ids"]))
        if sizes[-1] > 2:
            raise RuntimeError("DefaultCPUAllocator: not enough memory")
        return original(taken, keep, **given)

    monkeypatch.setattr(prefix_cache, "compute_last_logits", short_of_memory)
    for reuse in (True, False):
        found = explain(model, cut, reuse=reuse)
        expected = shapley_of({kept: values.sum() for kept, values in exact.items()}, 4)
        np.testing.assert_allclose(found.scores, expected, atol=1e-4)
    assert max(sizes) > 2 and sizes[-1] <= 2


def test_models_without_positions_are_not_padded(cut):
    from transformers import BloomConfig, BloomForCausalLM

    torch.manual_seed(0)
    bloom = BloomForCausalLM(
        BloomConfig(vocab_size=360, hidden_size=32, n_layer=2, n_head=4, initializer_range=0.3)
    ).eval()
    found = explain(bloom, cut, context=SENTENCES[:2], features="passage")
    prompts = {
        kept: chat_text(
            "Context:\n"
            + "\n\n".join(SENTENCES[place] for place in kept)
            + "\n\n" * bool(kept)
            + "\n" * (not kept)
            + f"Question: {QUESTION}"
        )
        for kept in subsets(2)
    }
    values = by_hand(bloom, cut, prompts, ANSWER)
    np.testing.assert_allclose(found.scores, shapley_of({k: v.sum() for k, v in values.items()}, 2), atol=1e-4)


def refused(match, *given, **named):
    with pytest.raises(ShapelineError, match=match) as failure:
        shapeline.explain_generation(*given, **named)
    assert "\n" not in str(failure.value)


def test_a_prompt_that_does_not_fit_is_refused(cut):
    small = language_model.llama(window=90)
    encoded = cut(chat_text(f"Context:\n{CONTEXT}\n\nQuestion: {QUESTION}"), add_special_tokens=False)["input_ids"]
    answer = cut(ANSWER, add_special_tokens=False)["input_ids"]
    small = language_model.llama(window=len(encoded) + len(answer) - 2)  # one token too few
    refused(r"part 4 of 4 would be cut \(from 'Tickets", small, QUESTION, cut, CONTEXT, target=ANSWER)
    fits = language_model.llama(window=len(encoded) + len(answer) - 1)
    assert explain(fits, cut).parts == tuple(SENTENCES)
    refused("shorten the question", language_model.llama(window=10), QUESTION, cut, CONTEXT, target=ANSWER)
    tight = language_model.llama(window=len(encoded) + 1)
    own = explain(tight, cut, target=None)
    assert 1 <= len(own.answer_tokens) <= 2


@pytest.mark.parametrize(
    "named, match",
    [
        ({"context": ""}, "context is empty"),
        ({"context": []}, "context is empty"),
        ({"context": ["a", " "]}, "empty passage"),
        ({"context": 3}, "give a text or a list of texts"),
        ({"prompt": ""}, "not empty"),
        ({"target": ""}, "not empty"),
        ({"features": "sentances"}, "Did you mean 'sentence'"),
        ({"features": "message"}, "list of messages"),
        ({"features": [(0, 5), (3, 8)]}, "overlaps"),
        ({"features": 7}, "pairs of characters"),
        (
            {"features": [(0, 3)], "context": None, "prompt": [*[{"role": "user", "content": CONTEXT}] * 3]},
            "of one text",
        ),
        ({"removal": "drop"}, "removal is 'drop'"),
        ({"value": "total"}, "value is 'total'"),
        ({"evaluations": 0}, "at least 1"),
        ({"method": "kernel_shapp"}, "Did you mean 'kernel_shap'"),
        ({"method": "saliency"}, "does not explain prompts"),
        ({"method": "kernel_shap", "evaluations": 3}, "the minimum for d = 4"),
        ({"context": "A <|end|> here. And more."}, "special token"),
        ({"prompt": "What <|start|>system is?"}, "special token"),
        ({"context": "What <|start|>system", "features": [(0, 8), (8, 20)]}, "special token"),
        ({"target": "No<|end|>"}, "special token"),
        ({"template": "{question}"}, "needs {context}"),
        ({"prompt": [{"role": "user"}]}, "message 1"),
        ({"context": {"a": "b"}}, "give a text or a list of texts"),
        ({"placeholder": 3, "removal": "placeholder"}, "placeholder is an int; give a text"),
        ({"placeholder": "[...]"}, "placeholder is not used by removal='delete'; set removal='placeholder'"),
        ({"seed": "a"}, "seed is 'a'"),
        ({"features": ["The", "It"]}, "pairs of characters"),
        ({"context": "A \ud800 lone. One."}, "lone surrogate"),
        ({"target": "\udfff"}, "lone surrogate"),
        ({"budget": 4, "evaluations": 8}, "budget and evaluations both set the cost"),
        ({"budget": 0}, "budget is 0"),
        ({"budget": {"err": 1}}, "budget is {'err': 1}"),
        ({"budget": {"error": 1, "max_budget": 2}}, "max_budget: the first round of gp_shapley takes 4 x d"),
        ({"budget": {"error": 1}, "method": "leave_one_out"}, "cannot stop when good enough"),
    ],
)
def test_bad_input_is_one_line(model, cut, named, match):
    refused(match, model, **{"tokenizer": cut, "prompt": QUESTION, "context": CONTEXT, "target": ANSWER, **named})


def test_bad_models_are_one_line(tmp_path, model, cut):
    refused("no tokenizer", model, QUESTION, context=CONTEXT)
    refused("give a causal", object(), QUESTION, cut)
    refused("is a LlamaModel", model.model, QUESTION, cut)
    refused("no chat template", model, [{"role": "user", "content": "A."}], language_model.tokenizer(chat=False))
    refused("own tokenizer", language_model.llama(vocab_size=250), QUESTION, cut, CONTEXT, target=ANSWER)
    refused("there is no folder 'gpt2'", "gpt2", QUESTION, cut)
    (tmp_path / "config.json").write_text('{"architectures": ["BertForSequenceClassification"]}')
    refused("generates no text", tmp_path, QUESTION, cut)
    (tmp_path / "config.json").write_text('{"architectures": ["X"], "auto_map": {"AutoModel": "x.py"}}')
    refused("code of its own", tmp_path, QUESTION, cut)
    refused("for 1 prompt; return", lambda prompts: [1.0, 2.0, 3.0], "a b", features="word")
    for wrong in (dict.fromkeys, set, str):  # in no order of the prompts
        refused(
            "the function returned", lambda prompts, wrong=wrong: wrong(range(len(prompts))), "a b", features="word"
        )
    frame = shapeline.explain_generation(lambda prompts: pd.DataFrame({7: map(len, prompts)}), "a", features="word")
    assert frame.value_full == 1 and frame.value_empty == 0
    weights = torch.tensor([2.0], requires_grad=True, dtype=torch.bfloat16)
    found = shapeline.explain_generation(
        lambda prompts: weights * torch.tensor([*map(len, prompts)]), "a", features="word"
    )
    assert found.scores == pytest.approx([2.0])
    refused("the log-probability nan", lambda prompts: [np.nan for _ in prompts], "a b", features="word")


def test_an_answer_that_cannot_be_is_one_line(cut):
    barred = language_model.llama()
    number = cut(ANSWER, add_special_tokens=False)["input_ids"][1]
    original = barred.forward

    class Barred(type(barred)):
        def forward(self, input_ids=None, position_ids=None, attention_mask=None, past_key_values=None, **more):
            said = super().forward(input_ids, attention_mask, position_ids, past_key_values, **more)
            said.logits[..., number] = -torch.inf
            return said

    barred.__class__ = Barred
    assert original is not None
    refused("token 2 of the answer, .* has probability 0", barred, QUESTION, cut, CONTEXT, target=ANSWER)


def test_a_placeholder_that_does_not_fit_is_refused(cut):
    long = {"removal": "placeholder", "placeholder": "removed " * 20}
    encoded = cut(chat_text(f"Context:\n{CONTEXT}\n\nQuestion: {QUESTION}"), add_special_tokens=False)["input_ids"]
    tight = language_model.llama(window=len(encoded) + 20)
    assert len(explain(tight, cut, removal="placeholder")) == 4
    refused("shorter placeholder", tight, QUESTION, cut, CONTEXT, target=ANSWER, **long)


def test_models_that_read_the_answer_before_they_predict_it_are_refused(cut):
    from transformers import BartConfig, BartForConditionalGeneration, BertConfig, BertLMHeadModel

    sizes = {"vocab_size": 360, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(0)
    refused("is not causal", BertLMHeadModel(BertConfig(**sizes, intermediate_size=48)).eval(), QUESTION, cut, CONTEXT)
    decoder = BertLMHeadModel(BertConfig(**sizes, intermediate_size=48, is_decoder=True)).eval()
    assert len(explain(decoder, cut)) == 4
    layers = {f"{one}_{key}": 2 for one in ("encoder", "decoder") for key in ("layers", "attention_heads", "ffn_dim")}
    bart = BartForConditionalGeneration(
        BartConfig(vocab_size=360, d_model=32, max_position_embeddings=80, **layers)
    ).eval()
    plain = language_model.tokenizer(chat=False)
    refused("decoder holds 80", bart, QUESTION, plain, CONTEXT, target=ANSWER * 20)


def test_models_of_speech_and_those_without_a_mask_are_refused(cut):
    from transformers import RwkvConfig, RwkvForCausalLM, WhisperConfig, WhisperForConditionalGeneration

    layers = {f"{one}_{key}": 2 for one in ("encoder", "decoder") for key in ("layers", "attention_heads", "ffn_dim")}
    speech = WhisperForConditionalGeneration(WhisperConfig(vocab_size=360, d_model=8, pad_token_id=0, **layers)).eval()
    refused(r"fails on tokens alone \(.*; give a model of texts", speech, QUESTION, cut, CONTEXT, target=ANSWER)
    recurrent = RwkvForCausalLM(RwkvConfig(vocab_size=360, hidden_size=8, num_hidden_layers=2)).eval()
    refused("as to others; choose removal='delete'", recurrent, QUESTION, cut, CONTEXT, target=ANSWER, removal="mask")


def test_one_part(model, cut):
    with pytest.warns(UserWarning, match="one part by features='sentence'; choose smaller parts"):
        found = explain(model, cut, context=SENTENCES[0])
    assert found.scores == pytest.approx(found.value_full - found.value_empty)


def test_a_prompt_all_of_which_is_removed(model, plain):
    found = shapeline.explain_generation(model, "Tell me.", plain, features="word", target=" Yes")
    ids = plain(" Yes", add_special_tokens=False)["input_ids"]
    assert found.value_empty == pytest.approx(sum(log_probabilities(model, [plain.eos_token_id], ids)), abs=1e-4)


def test_the_example_of_the_documentation_runs(root, tmp_path, monkeypatch, model, cut):
    """Blocks marked "by tests/unit/test_generation.py", with this model in the place of theirs."""
    monkeypatch.chdir(tmp_path)
    model.save_pretrained("models/smollm2")
    cut.save_pretrained("models/smollm2")
    text = (root / "docs/language_models.md").read_text()
    [code] = re.findall(r"<!-- not run: by tests/unit/test_generation.py -->\n```python\n(.*?)```", text, re.S)
    names = {}
    exec(compile(code, "language_models.md", "exec"), names)
    assert names["e"].evaluations == 32 and len(names["e"]) == 8


def test_rounding_errors_are_printed_as_zero():
    found = shapeline.explain_generation(lambda texts: [0.0] * len(texts), "a b", features="word")
    shown = repr(dataclasses.replace(found, scores=np.array([1.0, -1e-16])))
    assert "+0 " in shown and "e-16" not in shown
    assert "e-16" not in repr(dataclasses.replace(found, scores=np.array([1e-16, -1e-16]), value_full=1.0))


def test_abbreviations_and_numbers_may_begin_a_sentence():
    text = "It is No. 5. Dr. Cole left!\nFig. 2 shows it. Is it? No. Mara left.\n  1. She is 7. 8. No"
    spans = split_text(text, "sentence", "here")
    expected = ["It is No. 5.", "Dr. Cole left!", "Fig. 2 shows it.", "Is it?", "No.", "Mara left."]
    expected += ["1. She is 7.", "8.", "No"]
    assert [text[start:end] for start, end in spans] == expected


def test_sentences_end_in_other_scripts():
    for text in ("هل أنت بخير؟ نعم. یہ ہے۔ وہ", "यह पहला है। यह दूसरा॥ है", "こんにちは｡元気？はい．ええ"):
        assert len(split_text(text, "sentence", "here")) in (3, 4)


TEXT = 'Dr. A. B. Cole came, e.g. at 3.5 p.m. He left! "Why?" she asked. Это так. 天気です。はい。\n\nEnd: no stop'


def test_splitting():
    parts = [TEXT[start:end] for start, end in split_text(TEXT, "sentence", "here")]
    assert "".join(parts).replace(" ", "") == "".join(TEXT.split())
    assert parts[-1] == "End: no stop" and "天気です。" in parts and "はい。" in parts
    assert parts[0] == "Dr. A. B. Cole came, e.g. at 3.5 p.m. He left!"
    assert [TEXT[a:b] for a, b in split_text(TEXT, "passage", "here")] == [one.strip() for one in TEXT.split("\n\n")]
    assert [TEXT[a:b] for a, b in split_text(TEXT, "word", "here")] == TEXT.split()


def test_removed_parts_leave_the_widest_gap():
    text = "Q:\n\nOne. Two.\n\nThree. End\n"
    content = Content.of(text, split_text(text, "sentence", "here")[1:4])
    assert content.render(np.array([1, 1, 1], bool)) == text
    assert content.render(np.array([1, 0, 1], bool)) == "Q:\n\nOne.\n\nThree. End\n"
    assert content.render(np.array([0, 0, 0], bool)) == "Q:\n\nEnd\n"
    assert content.render(np.array([0, 0, 1], bool)) == "Q:\n\nThree. End\n"
    assert content.render(np.array([0, 1, 0], bool), "_") == "Q:\n\n_ Two.\n\n_ End\n"


def test_a_function_of_prompts_that_raises_and_a_template_that_is_no_text():
    def dividing(prompts):
        raise ZeroDivisionError("a\nb")

    refused("model 'dividing' fails on 1 prompt: a; correct it", dividing, "red green", features="word")

    async def waiting(prompts):
        return [0.0] * len(prompts)

    refused(r"async function; .*lambda prompts: asyncio.run\(waiting\(prompts\)\)", waiting, "a b", features="word")
    generator = np.random.default_rng(0)
    with pytest.warns(UserWarning, match=r"the function returned \S+ and then \S+ for one prompt"):
        shapeline.explain_generation(lambda prompts: generator.normal(size=len(prompts)), "red green", features="word")
    with pytest.warns(UserWarning, match="-1 for a prompt alone and -2 beside another prompt; correct its padding"):
        shapeline.explain_generation(lambda prompts: [-len(prompts)] * len(prompts), "red green", features="word")
    refused(r"a list of length 0 for 1 prompt", lambda prompts: prompts[1:], "red green", features="word")
    refused(
        r"a list of length 1 that begins with \[\] for 1 prompt", lambda prompts: [[]], "red green", features="word"
    )
    refused(
        "with None at position 1 for 2 prompts", lambda prompts: [1.0, None][: len(prompts)], "a b", features="word"
    )
    refused("2 numbers per prompt where 1 were expected", lambda prompts: [[-1] * len(prompts)] * len(prompts), "a b")
    refused(r"template is 5; it needs \{context\}", len, "Why?", context=["a b."], target="x", template=5)
