"""Errors of methods on prompts of a language model: python -m benchmarks.generation_accuracy FOLDER PROMPTS TABLES

FOLDER holds a causal model and its tokenizer. PROMPTS is a file of benchmarks.prompts, or the test.csv of AG News,
whose headlines are classified by prompting (the contrast of the two most likely topics, explained by words). TABLES is
a folder for the values of all coalitions: a run that was interrupted goes on, and methods read their values there.
"""

import argparse
import csv
import json
import time
from pathlib import Path

import numpy as np
import torch

from shapeline.designs.exact import shapley
from shapeline.generation import game, language_models
from shapeline.generation.encoding import Encoder
from shapeline.generation.game import PromptGame
from shapeline.generation.prompts import build_prompt

TOPICS = ("World", "Sports", "Business", "Technology")
QUESTION = "Which topic has this headline: World, Sports, Business or Technology? Answer with one word."
WORDS = 5, 7  # of a headline


def read_prompts(path: Path, count: int) -> list[dict]:
    """Return the first prompts of a file, of AG News those whose titles have 5 to 7 words."""
    if path.suffix != ".csv":
        return [json.loads(line) for line in path.read_text().splitlines()[:count]]
    with path.open(newline="", encoding="utf-8") as lines:
        titles = [row[1].strip() for row in csv.reader(lines)]
    fitting = [title for title in titles if WORDS[0] <= len(title.split()) <= WORDS[1]]
    return [{"question": QUESTION, "context": title, "answers": TOPICS} for title in fitting[:count]]


def build_game(model: language_models.LanguageModel, encoder: Encoder, item: dict) -> PromptGame:
    """Return the game of a prompt: of its answer, or of the more likely topic less the second one."""
    features = "word" if "answers" in item else "passage"
    prompt = build_prompt(item["question"], item["context"], features, None, encoder.chat)
    everything = prompt.render(np.ones(prompt.d, bool))
    answers = [encoder.encode_answer(text, everything) for text in item.get("answers", [item.get("answer")])]
    if len(answers) > 1:
        source = game.ModelSource(model, encoder, prompt, answers, game.Removal(), True)
        ends = np.cumsum([0, *(len(one.ids) for one in answers)])
        likely = np.argsort(-np.add.reduceat(source(np.ones((1, prompt.d), bool))[0], ends[:-1]))
        answers = [answers[place] for place in likely[:2]]
    signs = np.concatenate([np.full(len(one.ids), sign) for one, sign in zip(answers, (1.0, -1.0), strict=False)])
    source = game.ModelSource(model, encoder, prompt, answers, game.Removal(), None)
    return PromptGame(prompt, tuple(token for one in answers for token in one.tokens), signs, source)


def fill_table(played: PromptGame, file: Path) -> float:
    """Give a game the values of all its coalitions, from the file or by the model; return the seconds of one."""
    masks = shapley(played.d).masks
    if not file.exists():
        began = time.process_time()
        values = played.values(masks)
        np.savez(file, values=values, seconds=(time.process_time() - began) / len(masks))
    with np.load(file) as stored:
        played.known.update(zip((mask.tobytes() for mask in masks), stored["values"], strict=True))
        return float(stored["seconds"])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("folder", "prompts", "tables"):
        options.add_argument(name, type=Path)
    options.add_argument("--count", type=int, default=12)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    model, tokenizer = language_models.load(chosen.folder)
    encoder = Encoder(tokenizer, bool(tokenizer.chat_template))
    chosen.tables.mkdir(parents=True, exist_ok=True)
    for number, item in enumerate(read_prompts(chosen.prompts, chosen.count)):
        played = build_game(model, encoder, item)
        seconds = fill_table(played, chosen.tables / f"{number}.npz")
        full, empty = (played.values(np.full((1, played.d), end)) @ played.signs for end in (True, False))
        print(number, played.d, len(played.tokens), f"{seconds:.3f}", full, empty, item, flush=True)


if __name__ == "__main__":
    main()
