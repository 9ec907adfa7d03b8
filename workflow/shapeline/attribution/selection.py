"""The selection of the instances that an experiment explains, sampled by seed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa

from shapeline import scores
from shapeline.attribution.context import ExplanationContext
from shapeline.datasets import checks, images, tokenizer
from shapeline.datasets.sources import PARTS
from shapeline.datasets.text import PAIR
from shapeline.errors import ShapelineError, nearest
from shapeline.games.execution import ExecutionBackend
from shapeline.models.classifier import LOG_HALF
from shapeline.seeds import seed_of


@dataclass(frozen=True)
class Selection:
    """The keys of `instances` in an experiment.

    count: number of instances; a larger one extends a smaller one. split: the part of the data.
    texts: texts to explain instead, pairs as two texts each: instances -1, -2, ..., label -1.
    label, correct, objects: only instances of that class, only those predicted correctly, only images with that number
    of objects of their class. fewer_ok: if there are fewer instances, explain all of them.
    near: values by column; the nearest records are explained instead, in this order; without a model from all parts.
    target: the explained class, "predicted", "true", or one for all.
    """

    count: int = 100
    split: str = "test"
    texts: list[str | list[str]] | None = None
    label: int | str | None = None
    correct: bool = False
    objects: int | None = None
    fewer_ok: bool = False
    near: list[dict[str, float | str]] | None = None
    target: int | str = "predicted"


def select(context: ExplanationContext, seed: int, count: int = 100, **others) -> pd.DataFrame:
    """Return ids, labels and predictions of `count` instances sampled by seed; others: the other keys of `Selection`.

    Columns: instance (id in the source), row (position in the prepared arrays), label, prediction, probability; text
    for documents; objects if the dataset has them; with a custom tokenizer words of the document, words_cut (the number
    of truncated words), and for a pair second, the number of the second sentence's first word. For a regression label
    and prediction are numbers in the target's units, without probability. Without a model the prediction is the label,
    without probability. Raises ShapelineError if the split has fewer instances, or none.

    If another class than the predicted one is explained, target is that class. Records with several labels have one row
    per label, or with `label` one row: target is the label, label is 1 if it is present, and prediction is 1 if its
    probability is 0.5 or more.
    """
    selection = Selection(count, **others)
    if context.dataset.card.get("task") == "multilabel":
        return _expand_labels(context, _sample_rows(context, seed, selection), selection.label)
    chosen = _read_chosen(context, seed, selection)
    if context.model is None:
        labels = chosen["label"] if chosen["label"].dtype.kind == "f" else chosen["label"].astype(np.int32)
        return pd.DataFrame(chosen).assign(label=labels, prediction=labels)
    if context.model.task == "regression":
        selected = pd.DataFrame(chosen)
        predictions = context.model.predict(context.inputs(selected))
        _check_outputs(context, predictions, ~np.isfinite(predictions), selected["instance"])
        return selected.assign(prediction=predictions)
    selected = pd.DataFrame(chosen).astype({"label": np.int32})
    log_probs = context.model.log_probs(context.inputs(selected))
    _check_outputs(context, log_probs, np.isnan(log_probs).any(1), selected["instance"])  # -inf is P = 0 of a function
    predicted = {"prediction": log_probs.argmax(1).astype(np.int32), "probability": np.exp(log_probs.max(1))}
    selected = selected.assign(**predicted)
    if selection.target == "predicted":
        return selected
    return selected.assign(target=_find_targets(context, selected, selection))


def _find_targets(context: ExplanationContext, selected: pd.DataFrame, selection: Selection) -> np.ndarray:
    """Return the explained class of each instance where it is not the predicted one."""
    if selection.target != "true":
        number = checks.class_index("target: classes of the dataset", selection.target, context.dataset.card["classes"])
        return np.full(len(selected), number, np.int32)
    if (selected["label"] < 0).any():
        raise ShapelineError("target: the true class is unknown for custom texts; name a class, or predicted")
    return selected["label"].to_numpy(np.int32)


def _read_chosen(context: ExplanationContext, seed: int, selection: Selection) -> dict:
    """Return the columns of the instances that need no model."""
    if selection.texts:
        rows = np.full(len(selection.texts), -1)
        texts = [text if isinstance(text, str) else PAIR.join(text) for text in selection.texts]
        chosen = {"instance": -1 - np.arange(len(rows)), "row": rows, "label": rows, "text": texts}
    else:
        rows = _find_nearest(context, selection) if selection.near else _sample_rows(context, seed, selection)
        chosen = {"instance": context.dataset.ids[rows], "row": rows, "label": context.dataset.labels[rows]}
        if context.dataset.card["kind"] == "text":
            chosen["text"] = tokenizer.read_documents(context.folder, chosen["instance"])
        if context.dataset.card.get("truth"):
            chosen["objects"] = images.objects(context.folder, chosen["instance"], chosen["label"])
    if context.dataset.owners is not None:
        documents = tokenizer.tokenize_for(list(chosen["text"]), context.dataset.card)
        chosen |= {"words": documents.words, "words_cut": documents.n_words - [*map(len, documents.words)]}
        if "separator_id" in context.dataset.card:
            chosen["second"] = np.array(documents.seconds)
    return chosen


def _expand_labels(context: ExplanationContext, rows: np.ndarray, label: int | str | None) -> pd.DataFrame:
    """Return one row per instance (row of the prepared arrays) and label, or for one label only."""
    dataset, names = context.dataset, context.dataset.card["classes"]
    if context.model is None:
        raise ShapelineError(f"dataset '{dataset.card['name']}': several labels per record need a model; give one")
    targets = np.arange(len(names))
    if label is not None:
        targets = targets[[checks.class_index("instances.label: classes of the dataset", label, names)]]
    log_probs = context.model.log_probs(dataset.inputs[rows])
    _check_outputs(context, log_probs, np.isnan(log_probs).any(1), dataset.ids[rows])
    repeated, labels = np.repeat(rows, len(targets)), np.tile(targets, len(rows))
    selected = pd.DataFrame(
        {
            "instance": dataset.ids[repeated],
            "row": repeated,
            "target": labels.astype(np.int32),
            "label": dataset.labels[repeated, labels].astype(np.int32),
            "prediction": (log_probs >= LOG_HALF)[:, targets].ravel().astype(np.int32),
            "probability": np.exp(log_probs[:, targets]).ravel(),
        }
    )
    if dataset.card.get("truth"):
        selected["objects"] = images.objects(context.folder, selected["instance"], selected["target"])
    return selected


def _check_outputs(context: ExplanationContext, outputs: np.ndarray, is_bad: np.ndarray, instances: Sequence) -> None:
    """Raise ShapelineError for the first instance (n,) whose outputs are bad (n,)."""
    if is_bad.any():
        first = is_bad.argmax()
        raise ShapelineError(
            f"model '{context.model.architecture}': returns {outputs[first].tolist()} for instance {instances[first]}; "
            "return finite numbers"
        )


def _sample_rows(context: ExplanationContext, seed: int, selection: Selection) -> np.ndarray:
    """Return rows of the selected instances: the first that fit in an order of the split sampled by seed."""
    dataset, label, split, count = context.dataset, selection.label, selection.split, selection.count
    candidates = np.flatnonzero(dataset.split == PARTS.index(split))
    order = np.random.default_rng(seed_of(seed, "instances")).permutation(candidates)
    restriction, several = "", dataset.labels.ndim == 2
    explained = slice(None)  # of several labels
    if label is not None:
        index = checks.class_index("instances.label: classes of the dataset", label, dataset.card["classes"])
        explained = slice(index, index + 1)
        order = order[dataset.labels[order, index] == 1] if several else order[dataset.labels[order] == index]
        restriction = f" of class '{dataset.card['classes'][index]}'"
    if selection.objects is not None:
        if several and label is None:
            raise ShapelineError("instances.objects: an image has objects of several labels; name one by the key label")
        classes = index if several else dataset.labels[order]
        order = order[images.objects(context.folder, dataset.ids[order], classes) == selection.objects]
        restriction += f" with {selection.objects} object(s)"
    if selection.correct:
        order = _select_correct(context, order, count, explained)
        restriction += " that are predicted correctly"
    if count > len(order) and not (selection.fewer_ok and len(order)):
        remedy = "lower the count, or set fewer_ok: true" if len(order) else "remove a condition"
        raise ShapelineError(
            f"instances.count: {count} requested, the {split} split has {len(order)}{restriction}; {remedy}"
        )
    return np.sort(order[:count])


def _find_nearest(context: ExplanationContext, selection: Selection) -> np.ndarray:
    """Return the distinct rows nearest to given values; a different category counts as one standard deviation."""
    dataset = context.dataset
    card, names = dataset.card, dataset.card.get("feature_names") or []
    remaining = dataset.split == PARTS.index(selection.split) if context.model else np.ones(len(dataset.ids), bool)
    if len(dataset.inputs[:1].shape) != 2 or remaining.sum() < len(selection.near):
        raise ShapelineError(
            f"instances.near: {len(selection.near)} records are sought, among {remaining.sum()} of a table; give fewer"
        )
    rows = []
    for values in selection.near:
        distance = np.zeros(len(remaining))
        for name, value in values.items():
            if name not in names:
                raise ShapelineError(f"instances.near: there is no column '{name}'.{nearest(name, names)}")
            column = dataset.inputs[:, names.index(name)].astype(np.float64)
            if name in (known := card.get("categories") or {}):
                distance += column != checks.class_index(f"instances.near, column '{name}'", value, known[name])
            elif isinstance(value, str):
                raise ShapelineError(
                    f"instances.near: column '{name}' holds numbers, and {value!r} is none; give a number"
                )
            else:
                distance += (column - value) ** 2 / (column.var() or 1.0)
        rows.append(int(np.where(remaining, distance, np.inf).argmin()))
        remaining[rows[-1]] = False
    return np.array(rows)


def _select_correct(context: ExplanationContext, rows: np.ndarray, count: int, labels: slice) -> np.ndarray:
    """Return `count` rows or more that the model predicts correctly, or all; `labels` selects among several labels."""
    correct: list[np.ndarray] = []
    for start in range(0, len(rows), count):
        part = rows[start : start + count]
        agrees = context.model.predict(context.dataset.inputs[part]) == context.dataset.labels[part]
        correct.append(part[agrees if agrees.ndim == 1 else agrees[:, labels].all(1)])
        if sum(map(len, correct)) >= count:
            break
    return np.concatenate([*correct, rows[:0]])


def write(path: str, selected: pd.DataFrame, backends: dict[str, ExecutionBackend], metadata: dict) -> None:
    """Write the instances with the calibrated backend of the engine per device kind."""
    table = pa.Table.from_pandas(selected, preserve_index=False)
    # Without the measured rate: a re-computed file must have the same bytes, or all jobs that read it would re-run.
    kept = {device: {"name": backend.name, "batch": backend.batch} for device, backend in backends.items()}
    scores.write_table(path, table, {**metadata, "forms": kept})


def read(path: str) -> pd.DataFrame:
    return scores.read_table(path)
