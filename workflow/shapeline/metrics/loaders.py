"""What metrics that ask more than scores are given: the model and its inputs, the truth, randomised scores."""

import dataclasses
import json
from pathlib import Path

import pandas as pd

from shapeline import scores
from shapeline.attribution.selection import read
from shapeline.attribution.subjects import form_for, load_subject
from shapeline.datasets import document_files, regions
from shapeline.game import references


def for_metric(
    files, rows: pd.DataFrame, device: str, progress=None, others: list[str] | None = None, by_graph: bool = False
) -> dict:
    """What a metric that asks the model needs, for score rows that succeeded; files: the job's input.

    others: names of references beside the experiment's own, which come as `references`, by name. by_graph: as of
    load_subject.
    The features, reference and seed are those that the scores were made with.
    """
    settings = scores.metadata(files.scores[0])["settings"]
    subject = load_subject(files.weights, files.arrays, settings, device, by_graph=by_graph)
    subject = dataclasses.replace(subject, form=form_for(files.instances, subject, device))
    picked = explained(files, rows)
    inputs = subject.inputs(picked)
    named = {name: references.build(name, subject.dataset, settings["seed"]) for name in others or ()}
    return {
        **({"references": named} if named else {}),
        "question": subject.question(settings.get("value", "log_probability")),
        "inputs": inputs,
        "buckets": subject.buckets(inputs, picked),
        "seed": settings["seed"],
        "progress": progress,
        "subject": subject,
        "share": read(files.instances),
        "settings": settings,
    }


def explained(files, rows: pd.DataFrame) -> pd.DataFrame:
    """The selected instance that each score row explains, in the order of the rows; files: the job's input."""
    each = read(files.instances).drop_duplicates("instance")  # of several labels it has a row for each
    return each.set_index("instance").loc[rows["instance"]]


def randomised(files, rows: pd.DataFrame) -> dict:
    """The scores of randomised models, by how many layers were drawn, and of images the features of the score rows;
    files: the job's input."""
    settings = scores.metadata(files.scores[0])["settings"]
    subject = load_subject(None, files.arrays, settings, "cpu")

    def variant(path: str) -> str:
        return Path(path).parent.name.partition("@")[2]

    cards = {variant(card): Path(card).read_text(encoding="utf-8") for card in files.randomised_cards}
    layers = {name: len(json.loads(card)["drawn"]) for name, card in cards.items()}
    shards: dict[int, list[str]] = {}
    for path in files.randomised:
        shards.setdefault(layers[variant(path)], []).append(path)
    frames = {count: scores.read(paths) for count, paths in shards.items()}
    needs = {"randomised": {count: frame[frame["status"] == "ok"] for count, frame in frames.items()}}
    if subject.dataset.card["kind"] == "image":
        picked = explained(files, rows)
        needs["buckets"] = subject.buckets(subject.inputs(picked), picked)
    return needs


def known_words(files, rows: pd.DataFrame) -> dict:
    """The decisive words and the classes of the documents that score rows explain; files: the job's input."""
    ids = rows["instance"].unique()
    flags = document_files.decisive(Path(files.arrays).parent, ids)
    chosen = read(files.instances).set_index("instance")["label"]
    return {"decisive": dict(zip(ids, flags, strict=True)), "labels": chosen.to_dict()}


def known_pixels(files, rows: pd.DataFrame) -> dict:
    """The pixels that decide the class each score row explains, and the features that scores are of; files: the job's
    input."""
    settings = scores.metadata(files.scores[0])["settings"]
    subject = load_subject(None, files.arrays, settings, "cpu")
    picked = explained(files, rows)
    return {
        "truth": regions.truth(subject.folder, rows["instance"].to_numpy(), rows["target"].to_numpy()),
        "buckets": subject.buckets(subject.inputs(picked), picked),
        "method": settings["method"],
        "seed": settings["seed"],
    }
