"""Which instances an experiment explains, and all that is needed to ask its model about them."""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from shapeline import datasets, engine, models, other_data, references, scores
from shapeline import features as feature_kinds
from shapeline.datasets import Dataset
from shapeline.errors import ShapelineError
from shapeline.features import Features
from shapeline.models import Classifier
from shapeline.models.classifier import LOG_HALF
from shapeline.references import Reference
from shapeline.seeds import seed_of


@dataclass(frozen=True)
class Bench:
    """A model on its device with the data, features and reference of an experiment; None and None without a model.

    features: None where they depend on the instance; `buckets` makes them from feature_settings.
    """

    model: Classifier | None
    dataset: Dataset
    features: Features | None
    reference: Reference | None
    feature_settings: dict | str | None = None
    folder: Path | None = None  # of the prepared dataset
    device: str = "cpu"

    def buckets(self, inputs: np.ndarray, selected: pd.DataFrame) -> list[tuple[Features, np.ndarray]]:
        """Groups of the inputs of selected instances that share their features: (features, positions)."""
        if self.features is not None:
            return [(self.features, np.arange(len(inputs)))]
        owners = None if self.dataset.owners is None else self._of(selected, self.dataset.owners, datasets.owners)
        return feature_kinds.buckets(self.feature_settings, self.dataset.card, inputs, owners)

    def with_features(self, settings: dict) -> "Bench":
        """The same with other features."""
        own = None if feature_kinds.varies(settings) else feature_kinds.build(settings, self.dataset.card)
        return dataclasses.replace(self, features=own, feature_settings=settings)

    def inputs(self, selected: pd.DataFrame) -> np.ndarray:
        """Inputs (n, *input_shape) of selected instances; a text of one's own, at row -1, becomes its tokens."""
        return self._of(selected, self.dataset.inputs, datasets.encode)

    def _of(self, selected: pd.DataFrame, stored: np.ndarray, made: Callable[[list[str], dict], np.ndarray]):
        rows = selected["row"].to_numpy()
        found = stored[rows]
        own = rows < 0
        if own.any():
            found[own] = made(selected["text"][own].to_list(), self.dataset.card)
        return found


def bench(weights: str | None, arrays: str, settings: dict, device: str, trained_on: str | None = None) -> Bench:
    """Load the prepared data and, where there are weights, the model.

    settings: features and reference (default mean), seed. trained_on: the card of the model's data, where these are
    others; data that do not fit them raise a ShapelineError.
    """
    dataset = datasets.load(Path(arrays).parent)
    kind = settings["features"]
    shared = {
        "dataset": dataset,
        "features": None if feature_kinds.varies(kind) else feature_kinds.build(kind, dataset.card),
        "feature_settings": kind,
        "folder": Path(arrays).parent,
        "device": device,
    }
    if not weights:
        return Bench(model=None, reference=None, **shared)
    model = models.load(weights, device)
    if trained_on:
        other_data.check(model.sizes, json.loads(Path(trained_on).read_text(encoding="utf-8")), dataset.card)
    read, made = model.vocabulary_digest, dataset.card.get("vocabulary_digest")
    if read != made:
        raise ShapelineError(
            f"model {weights}: it was trained on another vocabulary ({read}) than that of {arrays} ({made}); "
            "remove the weights and train it again"
        )
    reference = references.build(settings.get("reference", "mean"), dataset, settings["seed"])
    return Bench(model=model, reference=reference, **shared)


def select(
    stand: Bench,
    seed: int,
    count: int = 100,
    split: str = "test",
    texts: list[str] | None = None,
    label: int | str | None = None,
    correct: bool = False,
    objects: int | None = None,
    or_all: bool = False,
) -> pd.DataFrame:
    """Ids, labels and predictions of `count` instances drawn by seed; a larger count adds to a smaller one.

    label, correct, objects: only instances of that class, only those predicted correctly, only pictures with so many
    objects of their class. or_all: where there are fewer, all of them. Columns: instance (id in the source), row
    (position in the prepared arrays), label, prediction, probability, text where the inputs are documents, objects
    where the dataset knows them, and with a tokenizer of one's own words, those of the document, and words_cut, how
    many it lost; of a regression label and prediction are numbers in the target's units, and there is
    no probability. Without a model there is none either, and the prediction is the label. `texts` are explained in
    their place: instances -1, -2, ..., label -1. Raises ShapelineError when the split has fewer, or none at all.

    Where a record has several labels there is a row for each of them, or with `label` for that one alone: target is the
    label, label and prediction are 1 where it is there and where its probability is 0.5 or more.
    """
    if stand.dataset.card.get("task") == "multilabel":
        return _of_labels(stand, _drawn(stand, seed, count, split, label, correct, objects, or_all), label)
    if texts:
        rows = np.full(len(texts), -1)
        chosen = {"instance": -1 - np.arange(len(texts)), "row": rows, "label": rows, "text": texts}
    else:
        rows = _drawn(stand, seed, count, split, label, correct, objects, or_all)
        chosen = {"instance": stand.dataset.ids[rows], "row": rows, "label": stand.dataset.labels[rows]}
        if stand.dataset.card["kind"] == "text":
            chosen["text"] = datasets.documents(stand.folder, chosen["instance"])
        if stand.dataset.card.get("truth"):
            chosen["objects"] = datasets.objects(stand.folder, chosen["instance"], chosen["label"])
    if stand.dataset.owners is not None:
        made = datasets.tokenized(list(chosen["text"]), stand.dataset.card)
        chosen |= {"words": made.words, "words_cut": made.n_words - [len(words) for words in made.words]}
    if stand.model is None:
        labels = chosen["label"] if chosen["label"].dtype.kind == "f" else chosen["label"].astype(np.int32)
        return pd.DataFrame(chosen).assign(label=labels, prediction=labels)
    if stand.model.task == "regression":
        return _predicted(stand, pd.DataFrame(chosen))
    selected = pd.DataFrame(chosen).astype({"label": np.int32})
    log_probs = stand.model.log_probs(stand.inputs(selected))
    bad = np.flatnonzero(np.isnan(log_probs).any(1))  # -inf is what a function that gives P = 0 says
    if len(bad):
        raise ShapelineError(
            f"model '{stand.model.architecture}' returns {log_probs[bad[0]].tolist()} "
            f"for instance {selected['instance'][bad[0]]}"
        )
    predicted = {"prediction": log_probs.argmax(1).astype(np.int32), "probability": np.exp(log_probs.max(1))}
    return selected.assign(**predicted)


def _of_labels(stand: Bench, rows: np.ndarray, label: int | str | None) -> pd.DataFrame:
    """A row an instance (rows in the prepared arrays) and label, or for one label alone."""
    dataset, names = stand.dataset, stand.dataset.card["classes"]
    if stand.model is None:
        raise ShapelineError(f"dataset '{dataset.card['name']}': several labels a record need a model; give one")
    targets = np.arange(len(names))
    if label is not None:
        targets = targets[[datasets.class_index("instances.label", label, names)]]
    log_probs = stand.model.log_probs(dataset.inputs[rows])
    bad = np.flatnonzero(np.isnan(log_probs).any(1))
    if len(bad):
        name, instance = stand.model.architecture, dataset.ids[rows[bad[0]]]
        raise ShapelineError(f"model '{name}' returns {log_probs[bad[0]].tolist()} for instance {instance}")
    each, of = np.repeat(rows, len(targets)), np.tile(targets, len(rows))
    selected = pd.DataFrame(
        {
            "instance": dataset.ids[each],
            "row": each,
            "target": of.astype(np.int32),
            "label": dataset.labels[each, of].astype(np.int32),
            "prediction": (log_probs >= LOG_HALF)[:, targets].ravel().astype(np.int32),
            "probability": np.exp(log_probs[:, targets]).ravel(),
        }
    )
    if dataset.card.get("truth"):
        selected["objects"] = datasets.objects(stand.folder, selected["instance"], selected["target"])
    return selected


def _predicted(stand: Bench, selected: pd.DataFrame) -> pd.DataFrame:
    """The instances with the predictions of a regression model."""
    predictions = stand.model.predict(stand.inputs(selected))
    bad = np.flatnonzero(~np.isfinite(predictions))
    if len(bad):
        name, instance = stand.model.architecture, selected["instance"][bad[0]]
        raise ShapelineError(f"model '{name}' returns {predictions[bad[0]]} for instance {instance}")
    return selected.assign(prediction=predictions)


def _drawn(
    stand: Bench,
    seed: int,
    count: int,
    split: str,
    label: int | str | None,
    correct: bool,
    objects: int | None,
    or_all: bool,
) -> np.ndarray:
    """Rows of `count` instances: the first that fit, of all in the split in an order drawn by seed."""
    dataset = stand.dataset
    candidates = np.flatnonzero(dataset.split == datasets.PARTS.index(split))
    order = np.random.default_rng(seed_of(seed, "instances")).permutation(candidates)
    told, several = "", dataset.labels.ndim == 2
    of = slice(None)  # of several labels, those explained
    if label is not None:
        index = datasets.class_index("instances.label", label, dataset.card["classes"])
        of = slice(index, index + 1)
        order = order[dataset.labels[order, index] == 1] if several else order[dataset.labels[order] == index]
        told = f" of class '{dataset.card['classes'][index]}'"
    if objects is not None:
        if several and label is None:
            raise ShapelineError("instances.objects: a picture has objects of several labels; say of which with label")
        own = index if several else dataset.labels[order]
        order = order[datasets.objects(stand.folder, dataset.ids[order], own) == objects]
        told += f" with {objects} object(s)"
    if correct:
        order = _correct(stand, order, count, of)
        told += " that are predicted correctly"
    if count > len(order) and not (or_all and len(order)):
        raise ShapelineError(
            f"instances.count: {count} asked, the {split} split has {len(order)}{told}; lower the count"
        )
    return np.sort(order[:count])


def _correct(stand: Bench, rows: np.ndarray, count: int, of: slice) -> np.ndarray:
    """The rows that the model predicts correctly, asked `count` at a time until there are so many; of several labels
    those `of` which it is right."""
    right: list[np.ndarray] = []
    for start in range(0, len(rows), count):
        asked = rows[start : start + count]
        agrees = stand.model.predict(stand.dataset.inputs[asked]) == stand.dataset.labels[asked]
        right.append(asked[agrees if agrees.ndim == 1 else agrees[:, of].all(1)])
        if sum(map(len, right)) >= count:
            break
    return np.concatenate([*right, rows[:0]])


def write(path: str, selected: pd.DataFrame, forms: dict[str, engine.Form], metadata: dict) -> None:
    """Write the instances with the calibrated form of the engine per device kind."""
    table = pa.Table.from_pandas(selected, preserve_index=False)
    # Without the measured rate: a file made again must hold the same bytes, or all that read it would run again.
    kept = {device: {"name": form.name, "batch": form.batch} for device, form in forms.items()}
    scores.write_table(path, table, {**metadata, "forms": kept})


def read(path: str) -> pd.DataFrame:
    return scores.read_table(path)


def form_for(path: str, stand: Bench, device: str, settings: dict | None = None) -> engine.Form | None:
    """The form recorded for this kind of device; on another kind it is calibrated now. None without a model.

    settings: of the job; their precision and compile ask for another form.
    """
    if stand.model is None:
        return None
    recorded = scores.metadata(path)["forms"].get(device)
    form = engine.Form(**recorded) if recorded else calibrate(stand)
    precision, compiled = (settings or {}).get("precision", "float32"), (settings or {}).get("compile", False)
    if precision == "float32" and not compiled:
        return form
    return engine.asked(stand.model, _training_inputs(stand), stand.reference, form, precision, compiled)


def calibrate(stand: Bench) -> engine.Form:
    """Calibrate on training inputs, which are there whatever the count of instances."""
    return engine.calibrate(stand.model, _training_inputs(stand), stand.reference)


def _training_inputs(stand: Bench) -> np.ndarray:
    return stand.dataset.inputs[np.flatnonzero(stand.dataset.split == datasets.TRAIN)[:64]]


def for_metric(files, rows: pd.DataFrame, device: str, progress=None, others: list[str] | None = None) -> dict:
    """What a metric that asks the model needs, for score rows that succeeded; files: the job's input.

    others: names of references beside the experiment's own, which come as `references`, by name.
    The features, reference and seed are those that the scores were made with.
    """
    settings = scores.metadata(files.scores[0])["settings"]
    stand = bench(files.weights, files.arrays, settings, device)
    picked = explained(files, rows)
    inputs = stand.inputs(picked)
    named = {name: references.build(name, stand.dataset, settings["seed"]) for name in others or ()}
    return {
        **({"references": named} if named else {}),
        "model": stand.model,
        "inputs": inputs,
        "buckets": stand.buckets(inputs, picked),
        "varies": stand.features is None,
        "reference": stand.reference,
        "form": form_for(files.instances, stand, device),
        "value": settings.get("value", "log_probability"),
        "seed": settings["seed"],
        "progress": progress,
        "stand": stand,
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
    stand = bench(None, files.arrays, settings, "cpu")

    def variant(path: str) -> str:
        return Path(path).parent.name.partition("@")[2]

    layers = {variant(card): len(json.loads(Path(card).read_text())["drawn"]) for card in files.randomised_cards}
    shards: dict[int, list[str]] = {}
    for path in files.randomised:
        shards.setdefault(layers[variant(path)], []).append(path)
    found = {count: scores.read(paths) for count, paths in shards.items()}
    needs = {"randomised": {count: frame[frame["status"] == "ok"] for count, frame in found.items()}}
    if stand.dataset.card["kind"] == "image":
        picked = explained(files, rows)
        needs["buckets"] = stand.buckets(stand.inputs(picked), picked)
    return needs


def known_words(files, rows: pd.DataFrame) -> dict:
    """The decisive words and the classes of the documents that score rows explain; files: the job's input."""
    ids = rows["instance"].unique()
    flags = datasets.decisive(Path(files.arrays).parent, ids)
    chosen = read(files.instances).set_index("instance")["label"]
    return {"decisive": dict(zip(ids, flags, strict=True)), "labels": chosen.to_dict()}


def known_pixels(files, rows: pd.DataFrame) -> dict:
    """The pixels that decide the class each score row explains, and the features that scores are of; files: the job's
    input."""
    settings = scores.metadata(files.scores[0])["settings"]
    stand = bench(None, files.arrays, settings, "cpu")
    picked = explained(files, rows)
    return {
        "truth": datasets.truth(stand.folder, rows["instance"].to_numpy(), rows["target"].to_numpy()),
        "buckets": stand.buckets(stand.inputs(picked), picked),
        "method": settings["method"],
        "seed": settings["seed"],
    }
