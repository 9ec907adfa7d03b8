"""Which instances an experiment explains, and all that is needed to ask its model about them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from shapeline import datasets, engine, models, references, scores
from shapeline import features as feature_kinds
from shapeline.datasets import Dataset
from shapeline.errors import ShapelineError
from shapeline.features import Features
from shapeline.models import Classifier
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

    def buckets(self, inputs: np.ndarray) -> list[tuple[Features, np.ndarray]]:
        """Groups of the inputs that share their features: (features, positions)."""
        if self.features is not None:
            return [(self.features, np.arange(len(inputs)))]
        return feature_kinds.buckets(self.feature_settings, self.dataset.card, inputs)

    def inputs(self, selected: pd.DataFrame) -> np.ndarray:
        """Inputs (n, *input_shape) of selected instances; a text of one's own, at row -1, becomes its tokens."""
        rows = selected["row"].to_numpy()
        found = self.dataset.inputs[rows]
        own = rows < 0
        if own.any():
            found[own] = datasets.encode(selected["text"][own].to_list(), self.dataset.card)
        return found


def bench(weights: str | None, arrays: str, settings: dict, device: str) -> Bench:
    """Load the prepared data and, where there are weights, the model.

    settings: features and reference (default mean), seed.
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
    read, made = model.vocabulary_digest, dataset.card.get("vocabulary_digest")
    if read != made:
        raise ShapelineError(
            f"model {weights}: it was trained on another vocabulary ({read}) than that of {arrays} ({made}); "
            "remove the weights and train it again"
        )
    reference = references.build(settings.get("reference", "mean"), dataset, settings["seed"])
    return Bench(model=model, reference=reference, **shared)


def select(
    stand: Bench, seed: int, count: int = 100, split: str = "test", texts: list[str] | None = None
) -> pd.DataFrame:
    """Ids, labels and predictions of `count` instances drawn by seed; a larger count adds to a smaller one.

    Columns: instance (id in the source), row (position in the prepared arrays), label, prediction, probability, and
    text where the inputs are documents; of a regression label and prediction are numbers in the target's units, and
    there is no probability. Without a model there is none either, and the prediction is the label. `texts` are
    explained in their place: instances -1, -2, ..., label -1. Raises ShapelineError when the split has fewer.
    """
    if texts:
        rows = np.full(len(texts), -1)
        chosen = {"instance": -1 - np.arange(len(texts)), "row": rows, "label": rows, "text": texts}
    else:
        rows = _drawn(stand, seed, count, split)
        chosen = {"instance": stand.dataset.ids[rows], "row": rows, "label": stand.dataset.labels[rows]}
        if stand.dataset.card["kind"] == "text":
            chosen["text"] = datasets.documents(stand.folder, chosen["instance"])
    if stand.model is None:
        labels = chosen["label"] if chosen["label"].dtype.kind == "f" else chosen["label"].astype(np.int32)
        return pd.DataFrame(chosen).assign(label=labels, prediction=labels)
    if stand.model.task == "regression":
        return _predicted(stand, pd.DataFrame(chosen))
    selected = pd.DataFrame(chosen).astype({"label": np.int32})
    log_probs = stand.model.log_probs(stand.inputs(selected))
    bad = np.flatnonzero(~np.isfinite(log_probs).all(1))
    if len(bad):
        raise ShapelineError(
            f"model '{stand.model.architecture}' returns {log_probs[bad[0]].tolist()} "
            f"for instance {selected['instance'][bad[0]]}"
        )
    predicted = {"prediction": log_probs.argmax(1).astype(np.int32), "probability": np.exp(log_probs.max(1))}
    return selected.assign(**predicted)


def _predicted(stand: Bench, selected: pd.DataFrame) -> pd.DataFrame:
    """The instances with the predictions of a regression model."""
    predictions = stand.model.predict(stand.inputs(selected))
    bad = np.flatnonzero(~np.isfinite(predictions))
    if len(bad):
        name, instance = stand.model.architecture, selected["instance"][bad[0]]
        raise ShapelineError(f"model '{name}' returns {predictions[bad[0]]} for instance {instance}")
    return selected.assign(prediction=predictions)


def _drawn(stand: Bench, seed: int, count: int, split: str) -> np.ndarray:
    candidates = np.flatnonzero(stand.dataset.split == datasets.PARTS.index(split))
    if count > len(candidates):
        raise ShapelineError(
            f"instances.count: {count} asked, the {split} split has {len(candidates)}; lower the count"
        )
    order = np.random.default_rng(seed_of(seed, "instances")).permutation(candidates)
    return np.sort(order[:count])


def write(path: str, selected: pd.DataFrame, forms: dict[str, engine.Form], metadata: dict) -> None:
    """Write the instances with the calibrated form of the engine per device kind."""
    table = pa.Table.from_pandas(selected, preserve_index=False)
    # Without the measured rate: a file made again must hold the same bytes, or all that read it would run again.
    kept = {device: {"name": form.name, "batch": form.batch} for device, form in forms.items()}
    scores.write_table(path, table, {**metadata, "forms": kept})


def read(path: str) -> pd.DataFrame:
    return pq.read_table(path).to_pandas()


def form_for(path: str, stand: Bench, device: str) -> engine.Form | None:
    """The form recorded for this kind of device; on another kind it is calibrated now. None without a model."""
    if stand.model is None:
        return None
    recorded = scores.metadata(path)["forms"].get(device)
    return engine.Form(**recorded) if recorded else calibrate(stand)


def calibrate(stand: Bench) -> engine.Form:
    """Calibrate on training inputs, which are there whatever the count of instances."""
    training = np.flatnonzero(stand.dataset.split == datasets.TRAIN)[:64]
    return engine.calibrate(stand.model, stand.dataset.inputs[training], stand.reference)


def for_metric(files, rows: pd.DataFrame, device: str, progress=None) -> dict:
    """What a metric that asks the model needs, for score rows that succeeded; files: the job's input.

    The features, reference and seed are those that the scores were made with.
    """
    settings = scores.metadata(files.scores[0])["settings"]
    stand = bench(files.weights, files.arrays, settings, device)
    inputs = stand.inputs(read(files.instances).set_index("instance").loc[rows["instance"]])
    return {
        "model": stand.model,
        "inputs": inputs,
        "buckets": stand.buckets(inputs),
        "varies": stand.features is None,
        "reference": stand.reference,
        "form": form_for(files.instances, stand, device),
        "seed": settings["seed"],
        "progress": progress,
    }


def known_words(files, rows: pd.DataFrame) -> dict:
    """The decisive words and the classes of the documents that score rows explain; files: the job's input."""
    ids = rows["instance"].unique()
    flags = datasets.decisive(Path(files.arrays).parent, ids)
    chosen = read(files.instances).set_index("instance")["label"]
    return {"decisive": dict(zip(ids, flags, strict=True)), "labels": chosen.to_dict()}
