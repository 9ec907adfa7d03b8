"""Speed of explanations of answers: python -m benchmarks.generation FOLDER [--parts 8 --tokens 100 --evaluations 64].

FOLDER holds a causal model and its tokenizer. Evaluates the coalitions of gp_shapley over passages of about so many
tokens: by the plain forward pass on ready batches (its rate is 1), by the package with and without caches of shared
prefixes, and with --captum by captum's LLMAttribution at its defaults. Rates are per processor second of one thread,
which a busy machine changes less than seconds.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch

from shapeline.designs.gaussian_pairs import draw_pairs
from shapeline.generation import game, language_models, prefix_cache
from shapeline.generation.game import Encoder
from shapeline.generation.prefix_cache import Row
from shapeline.generation.prompts import Prompt, build_prompt

WORDS = (
    "the tower ferry library harbour was designed opened built near old new stone and of in a large town river".split()
)
QUESTION, ANSWER = "Who designed the tower?", "The tower was designed by Mara Velling."


def passages(parts: int, tokens: int) -> list[str]:
    """Return passages of random words with about the given number of tokens each."""
    random = np.random.default_rng(0)
    return [" ".join(random.choice(WORDS, max(1, tokens - 1))).capitalize() + "." for _ in range(parts)]


def measure(run: Callable[[], object]) -> tuple[float, object]:
    """Return the processor seconds of a call, and its result."""
    began = time.process_time()
    result = run()
    return time.process_time() - began, result


def forward(model: language_models.LanguageModel, groups: list[list[Row]]) -> None:
    """Run the model's forward pass on prepared batches, padded on the right, with logits of the answer's length."""
    ready = []
    for rows in groups:
        width = max(row.length for row in rows)
        ids, attended = torch.zeros((2, len(rows), width), dtype=torch.long)
        for number, row in enumerate(rows):
            ids[number, : row.length] = torch.tensor([*row.ids, *row.answer[:-1]])
            attended[number, : row.length] = 1
        ready.append({"input_ids": ids, "attention_mask": attended, "logits_to_keep": len(rows[0].answer)})
    with model.evaluating():
        for one in ready:
            model.model(**one, use_cache=False)


def score_by_captum(model: language_models.LanguageModel, tokenizer, prompt: Prompt, encoder: Encoder) -> float:
    """Return the processor seconds per evaluation of captum's LLMAttribution with feature ablation, at its defaults."""
    from captum.attr import FeatureAblation, LLMAttribution, TextTemplateInput

    def text(*parts: str) -> str:
        kept = np.array([bool(part) for part in parts])
        return encoder.texts([prompt.render(kept)])[0]

    attribution = LLMAttribution(FeatureAblation(model.model), tokenizer)
    given = TextTemplateInput(text, list(prompt.parts), [""] * prompt.d)
    seconds, _ = measure(lambda: attribution.attribute(given, target=ANSWER))
    return seconds / (prompt.d + 1)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("folder")
    options.add_argument("--parts", type=int, default=8)
    options.add_argument("--tokens", type=int, default=100)
    options.add_argument("--evaluations", type=int, default=64)
    options.add_argument("--captum", action="store_true")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    model, tokenizer = language_models.load(chosen.folder)
    encoder = Encoder(tokenizer, bool(tokenizer.chat_template))
    prompt = build_prompt(QUESTION, passages(chosen.parts, chosen.tokens), "passage", None, encoder.chat)
    answer = encoder.encode_answer(ANSWER, prompt.render(np.ones(prompt.d, bool)))
    masks = draw_pairs(prompt.d, chosen.evaluations, 0)
    rows = [Row(ids, answer.ids) for ids in encoder.encode([prompt.render(mask) for mask in masks])]
    groups = [[rows[place] for place in group] for group in prefix_cache.cut_batches(model, rows, range(len(rows)))]
    forward(model, [[rows[0]]])  # the first pass prepares what later ones share
    raw, _ = measure(lambda: forward(model, groups))
    results = {"plain forward pass": raw}
    values = []
    for reuse, name in ((False, "without caches"), (True, "with caches")):
        source = game.ModelSource(model, encoder, prompt, [answer], game.Removal(), reuse)
        results[name], found = measure(lambda source=source: source(masks))
        values.append(found)
    if chosen.captum:
        results["captum"] = score_by_captum(model, tokenizer, prompt, encoder) * len(masks)
    with_caches = prefix_cache.count_tokens_with_reuse(model, rows)
    without = prefix_cache.count_plain_tokens(model, rows)
    print(f"{prompt.d} passages of {len(rows[1].ids) / prompt.d:.0f} tokens, {len(masks)} coalitions")
    print(f"tokens counted: {without:,} without caches, {with_caches:,} with: {without / with_caches:.2f} times")
    print(f"largest difference of values: {np.abs(values[0] - values[1]).max():.1e} nats")
    for name, seconds in results.items():
        print(f"{name:20} {seconds / len(masks):8.4f} s per evaluation   rate {raw / seconds:5.2f}")


if __name__ == "__main__":
    main()
