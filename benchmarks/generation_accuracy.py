"""Errors of methods on prompts of a language model: python -m benchmarks.generation_accuracy FOLDER PROMPTS TABLES

FOLDER holds a causal model and its tokenizer. PROMPTS is a file of benchmarks.prompts, or the test.csv of AG News,
whose headlines are classified by prompting (the contrast of the two most likely topics, explained by words). TABLES is
a folder for the values of all coalitions: a run that was interrupted goes on, and methods read their values there.
With --report the tables of the documentation are printed from what is stored: errors to the exact values at several
numbers of evaluations with 95 % intervals over prompts, their coverage and processor seconds per prompt, and the other
measures at 32 evaluations. Samples are five per prompt.
"""

import argparse
import csv
import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from shapeline.api.generation import PromptExplanation
from shapeline.designs.exact import shapley
from shapeline.generation import estimates, game, language_models
from shapeline.generation.game import Encoder, PromptGame
from shapeline.generation.prompts import build_prompt
from shapeline.methods.settings import parse
from shapeline.seeds import seed_of
from shapeline.statistics.bounds import intervals
from shapeline.statistics.paired import pivot_by_method
from shapeline.statistics.recommendation import recommend

TOPICS = ("World", "Sports", "Business", "Technology")
QUESTION = "Which topic has this headline: World, Sports, Business or Technology? Answer with one word."
WORDS = 5, 7  # of a headline
SAMPLED = ("gp_shapley", "kernel_shap", "leverage_shap", "sample_shapley", "context_cite", "partition")
FIXED = ("leave_one_out", "h_shap", "random")
OF_TOKENS = ("gradient_x_input", "attn_lrp", "attention_rollout")  # stored with the values: they need the model
BUDGETS, SHOWN, REPEATS = (16, 32, 64, 128), 32, 5
COLUMNS = {
    "deletion_auc": "deletion AUC",
    "insertion_auc": "insertion AUC",
    "top_1_drop": "top-1 drop",
    "datamodeling": "datamodeling score",
    "precision": "precision",
    "recall": "recall",
}


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


def fill_table(played: PromptGame, file: Path) -> None:
    """Store the values of all coalitions of a game, the processor seconds of one, and scores that need the model."""
    masks = shapley(played.d).masks
    began = time.process_time()
    stored = {"values": played.values(masks), "masks": masks}
    stored["seconds"] = (time.process_time() - began) / len(masks)
    for name in OF_TOKENS:
        began = time.process_time()
        found = estimates.estimate(played, parse({"method": name}), SHOWN)
        stored[name] = found.scores
        stored[f"{name} seconds"] = time.process_time() - began
    np.savez(file, **stored)


def read_table(file: Path, item: dict) -> tuple[PromptGame, dict]:
    """Return the game of a stored table, which evaluates no model, and the table."""
    with np.load(file) as stored:
        table = dict(stored)
    chat = build_prompt(item["question"], item["context"], "word" if "answers" in item else "passage", None, True)
    values = table["values"]
    signs = np.ones(values.shape[1]) if "answers" not in item else np.repeat((1.0, -1.0), values.shape[1] // 2)
    played = PromptGame(chat, tuple(map(str, range(values.shape[1]))), signs, lambda masks: 1 / 0)
    played.known.update(zip((mask.tobytes() for mask in table["masks"]), values, strict=True))
    return played, table


def explain(played: PromptGame, table: dict, method: str, evaluations: int, seed: int) -> PromptExplanation:
    """Return an explanation by a method, with the processor seconds of the method and its evaluations."""
    began = time.process_time()
    name = estimates.ALIASES.get(method, method)
    found = estimates.estimate(
        played, parse({"method": "random" if name in OF_TOKENS else name}), evaluations, "sum", seed
    )
    seconds = time.process_time() - began + found.evaluations * float(table["seconds"])
    given = {**vars(found), "seconds": seconds}
    if name in OF_TOKENS:
        given |= {"scores": table[name], "seconds": float(table[f"{name} seconds"]), "method": name}
        given["evaluations"] = 1 if name == "attention_rollout" else 3 * (1 + (played.signs < 0).any())
    return PromptExplanation(played.prompt.parts, "", played.tokens, game=played, **given)


def measure_all(games: list[tuple[PromptGame, dict, dict]]) -> pd.DataFrame:
    """Return the measures of every method, number of evaluations, prompt and sample: label "method, evaluations"."""
    rows = []
    for place, (played, table, item) in enumerate(games):
        exact = explain(played, table, "exact", 2**played.d, 0)
        for method in (*SAMPLED, *FIXED, *OF_TOKENS):
            for budget in BUDGETS if method in SAMPLED else (SHOWN,):
                for repeat in range(REPEATS if method in (*SAMPLED, "random") and method != "partition" else 1):
                    found = explain(played, table, method, budget, seed_of(method, budget, repeat, place))
                    own = estimates.measure(found, exact, item.get("support"), place)
                    own |= {"top_1_drop": estimates.top_k_drop(played, found.totals, 1), "seconds": found.seconds}
                    own["evaluations"] = found.evaluations
                    rows += [(f"{method}, {budget}", place, repeat, key, np.nan, value) for key, value in own.items()]
    return pd.DataFrame(rows, columns=["method", "instance", "repeat", "statistic", "x", "value"])


def report(measured: pd.DataFrame, most: int) -> str:
    """Return the tables in Markdown, and the recommendation at each number of evaluations below `most` coalitions."""
    budgets = [budget for budget in BUDGETS if budget < most]
    errors, coverage = pivot_by_method(measured, "rmse"), pivot_by_method(measured, "coverage")
    ends, inside = intervals(errors), intervals(coverage)
    means = measured.groupby(["method", "statistic"])["value"].mean().unstack()
    columns = [*map(str, budgets), "coverage", "seconds"]
    lines = [f"| RMSE (nats) at | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for method in (*SAMPLED, "leave_one_out", "gradient_x_input", "random"):
        labels = [f"{method}, {budget}" for budget in budgets]
        known = ends.reindex(labels)[["mean", "low", "high"]].to_numpy()
        cells = ["" if np.isnan(row[0]) else "{:.2f} ({:.2f}–{:.2f})".format(*row) for row in known]
        held = ["–" if np.isnan(share) else f"{share:.2f}" for share in inside["mean"].reindex(labels)]
        inside_of = "" if set(held) == {"–"} else ", ".join(held)
        seconds = ", ".join(f"{each:.1f}" for each in means["seconds"].reindex(labels).dropna())
        lines.append(f"| `{method}` | {' | '.join(cells)} | {inside_of} | {seconds} |")
    shown = [name for name in COLUMNS if name in means]
    lines += ["", f"| at {SHOWN} evaluations | {' | '.join(COLUMNS[name] for name in shown)} |"]
    lines.append("|---" * (len(shown) + 1) + "|")
    for method in (*SAMPLED, *FIXED, *OF_TOKENS):
        cells = [f"{means[name][f'{method}, {SHOWN}']:.2f}" for name in shown]
        lines.append(f"| `{method}` | {' | '.join(cells)} |")
    for budget in budgets:
        labels = {label: label.split(",")[0] for label in errors if label.endswith(f", {budget}")}
        within = errors[list(labels)].rename(columns=labels).assign(random=errors[f"random, {SHOWN}"])
        advice = recommend(within, dict.fromkeys(within, budget), random="random")
        lines += ["", f"{budget} evaluations: {advice.sentence('nats')}"]
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("folder", "prompts", "tables"):
        options.add_argument(name, type=Path)
    options.add_argument("--count", type=int, default=12)
    options.add_argument("--report", action="store_true")
    chosen = options.parse_args()
    items = read_prompts(chosen.prompts, chosen.count)
    files = [chosen.tables / f"{number}.npz" for number in range(len(items))]
    if not chosen.report:
        torch.set_num_threads(1)
        model, tokenizer = language_models.load(chosen.folder)
        encoder = Encoder(tokenizer, bool(tokenizer.chat_template))
        chosen.tables.mkdir(parents=True, exist_ok=True)
        for file, item in zip(files, items, strict=True):
            if not file.exists():
                fill_table(build_game(model, encoder, item), file)
                print(file.name, flush=True)
    games = [(*read_table(file, item), item) for file, item in zip(files, items, strict=True) if file.exists()]
    print(f"{len(games)} prompts")
    print(report(measure_all(games), 2 ** max(played.d for played, _, _ in games)))


if __name__ == "__main__":
    main()
