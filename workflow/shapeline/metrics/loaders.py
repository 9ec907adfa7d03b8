"""Arguments of metrics besides scores: the model and its inputs, ground truth, randomised scores."""

from pathlib import Path

import pandas as pd

from shapeline import scores
from shapeline.attribution.context import AttributionSettings, ExplanationContext, load_context, parse
from shapeline.attribution.selection import read
from shapeline.datasets import images, tokenizer


def load_arguments(
    context: ExplanationContext, selected: pd.DataFrame, settings: AttributionSettings, rows: pd.DataFrame
) -> dict:
    """Return the arguments of a metric that evaluates the model, for score rows; settings: of the scores."""
    picked = pick_instances(selected, rows)
    inputs = context.inputs(picked)
    return {
        "game": context.game(settings.game.value),
        "inputs": inputs,
        "buckets": context.buckets(inputs, picked),
        "seed": settings.game.seed,
        "context": context,
        "share": selected,
        "settings": settings,
    }


def pick_instances(selected: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the selected instance that each score row explains, in the order of the rows."""
    instances = selected.drop_duplicates("instance")  # with several labels, an instance has a row per label
    return instances.set_index("instance").loc[rows["instance"]]


def read_rows(files, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the same from the job's input files."""
    return pick_instances(read(files.instances), rows)


def load_randomised(files, rows: pd.DataFrame) -> dict:
    """Return scores of randomised models by number of layers, and for images the score rows' features."""
    settings = parse(scores.metadata(files.scores[0])["settings"])
    context = load_context(None, files.arrays, settings.game, "cpu")
    result = scores.read(files.randomised)
    result = result[result["status"] == "ok"]
    needs = {"randomised": {int(count): frame for count, frame in result.groupby("randomised_layers")}}
    if context.dataset.card["kind"] == "image":
        picked = read_rows(files, rows)
        needs["buckets"] = context.buckets(context.inputs(picked), picked)
    return needs


def load_words(files, rows: pd.DataFrame) -> dict:
    """Return ground-truth words and classes of the documents of score rows; files: the job's input."""
    ids = rows["instance"].unique()
    flags = tokenizer.read_ground_truth_words(Path(files.arrays).parent, ids)
    chosen = read(files.instances).set_index("instance")["label"]
    return {"ground_truth_words": dict(zip(ids, flags, strict=True)), "labels": chosen.to_dict()}


def load_pixels(files, rows: pd.DataFrame) -> dict:
    """Return the pixels that decide the class each score row explains, and the scores' features."""
    settings = parse(scores.metadata(files.scores[0])["settings"])
    context = load_context(None, files.arrays, settings.game, "cpu")
    picked = read_rows(files, rows)
    return {
        "truth": images.truth(context.folder, rows["instance"].to_numpy(), rows["target"].to_numpy()),
        "buckets": context.buckets(context.inputs(picked), picked),
        "method": settings.method,
        "seed": settings.game.seed,
    }
