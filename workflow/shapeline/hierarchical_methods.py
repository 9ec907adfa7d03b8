"""h-Shap and Partition for the registry: trees over the features' grid, and what evaluates their coalitions.

A coalition is a handful of rectangles. Torch models and functions are asked on the device, without masks, where the
features are single cells; any other model, features and value through engine.values, a mask a coalition.
"""

import dataclasses
import importlib
from collections.abc import Sequence

import numpy as np

from shapeline import engine, hierarchy
from shapeline.errors import MethodFailure, ShapelineError
from shapeline.features import Features
from shapeline.hierarchy import Evaluate
from shapeline.models.classifier import Classifier
from shapeline.references import Reference

# By name, so that a job imports the framework of its own model alone.
ON_DEVICE = {"torch": "shapeline.hierarchy_torch", "function": "shapeline.hierarchy_torch"}
TOLERANCE = 1e-6  # of the range of v: models are float32 (see hierarchy_torch)
BLOCK_BYTES = 1 << 26  # of inputs and masks that engine.values is given at a time

Scored = tuple[np.ndarray, np.ndarray, dict[str, Sequence]]


def h_shap(
    model: Classifier,
    inputs: np.ndarray,
    targets: np.ndarray,
    reference: Reference,
    features: Features,
    value: str = "log_probability",
    form: engine.Form | None = None,
    min_size: int = 1,
    threshold: float = 0.0,
    mode: str = "absolute",
    leaf_score: str = "uniform",
    shifts: Sequence[Sequence[int]] | None = None,
) -> Scored:
    """Hierarchical Shapley values (Teneggi et al. 2021): scores (n, d) that sum to 1 or are all 0; see hierarchy.

    Features on a grid or in a row are split into quadrants or halves; superpixels into halves of a tree over them
    (§6.1), where min_size and shifts mean nothing. Said: visited_nodes, leaves; flag "no relevant node".
    """
    chosen = threshold, mode, leaf_score, TOLERANCE
    n, d = len(inputs), features.d
    if features.kind == "superpixel":
        segments = features.cells[0]
        trees = hierarchy.forest([hierarchy.superpixel_tree(segments)] * n)
        places = np.argsort(trees.labels[0])  # of each superpixel, among the leaves
        evaluate = by_masks(model, inputs, reference, targets, features, value, form, places=places)
        found = hierarchy.explore_forest(evaluate, trees, *chosen)
        maps = (found.maps(i, places[segments])[0] for i in range(n))
        scores = np.stack([np.bincount(segments.ravel(), weights=one.ravel(), minlength=d) for one in maps])
        leaves = np.bincount(found.instances, minlength=n)
        return _said(scores, found.evaluations, found.visited_nodes, leaves)
    if min_size > max(features.shape):  # of a document; for other features the configuration has told
        raise MethodFailure("too short", f"h_shap: min_size is {min_size} and there are {max(features.shape)} features")
    moves = hierarchy.checked_shifts(shifts, len(features.shape))
    owners = np.repeat(np.arange(n), len(moves))
    evaluate = evaluator(
        *(model, inputs, reference, targets[owners], features, value, form, owners), np.tile(moves, (n, 1))
    )
    explored = hierarchy.explore(evaluate, len(owners), features.shape, min_size, *chosen)
    found = hierarchy.gathered(explored, moves, features.shape)
    scores = np.stack([one.saliency.ravel() for one in found])
    numbers = np.array([(one.evaluations, one.visited_nodes, len(one.leaves)) for one in found])
    return _said(scores, *numbers.T)


def _said(scores: np.ndarray, evaluations: np.ndarray, visited: np.ndarray, leaves: np.ndarray) -> Scored:
    flags = [None if some else hierarchy.NOTHING for some in leaves]
    return scores, evaluations, {"visited_nodes": visited, "leaves": leaves, "flag": flags}


def partition(
    model: Classifier,
    inputs: np.ndarray,
    targets: np.ndarray,
    reference: Reference,
    features: Features,
    value: str = "log_probability",
    form: engine.Form | None = None,
    evaluations: int = 500,
) -> Scored:
    """Owen values over halves of the features' grid, as shap's PartitionExplainer (fixed_context=0); scores (n, d).

    Said: split_nodes. Scores sum to v(N) - v(∅) on any budget; see hierarchy.partition.
    """
    if form is not None:  # a round asks ten coalitions an instance, and TensorFlow fills a larger batch up
        form = dataclasses.replace(form, batch=min(form.batch, 1 << (16 * len(inputs) - 1).bit_length()))
    evaluate = evaluator(model, inputs, reference, targets, features, value, form)
    found = hierarchy.partition(evaluate, len(inputs), features.shape, evaluations)
    return found.scores.reshape(len(inputs), -1), found.evaluations, {"split_nodes": found.nodes}


def evaluator(
    model: Classifier,
    inputs: np.ndarray,
    reference: Reference,
    targets: np.ndarray,
    features: Features,
    value: str,
    form: engine.Form | None = None,
    owners: np.ndarray | None = None,
    shifts: np.ndarray | None = None,
) -> Evaluate:
    """What hierarchy.explore asks on the features' grid: the device's own where it can, else `by_masks`.

    Instance j of the exploration explains targets[j] of inputs[owners[j]] on a partition moved by shifts[j].
    """
    if features.kind in ("pixel", "column") and model.framework in ON_DEVICE:
        device = importlib.import_module(ON_DEVICE[model.framework])
        if value in device.VALUES:
            return device.evaluator(
                *(model, inputs, reference, targets, value), form=form, owners=owners, shifts=shifts
            )
    return by_masks(model, inputs, reference, targets, features, value, form, owners, shifts)


def by_masks(
    model: Classifier,
    inputs: np.ndarray,
    reference: Reference,
    targets: np.ndarray,
    features: Features,
    value: str,
    form: engine.Form | None = None,
    owners: np.ndarray | None = None,
    shifts: np.ndarray | None = None,
    places: np.ndarray | None = None,
) -> Evaluate:
    """An evaluator through engine.values, for any framework, features and value; places (d,): columns of a forest."""
    height, width = (1, *features.shape) if len(features.shape) == 1 else features.shape
    owners = np.arange(len(inputs)) if owners is None else owners
    shifts = np.zeros((len(owners), 2), np.int64) if shifts is None else shifts
    block = max(1, BLOCK_BYTES // (inputs[0].nbytes + features.d))
    if form is not None and form.name == "windows":  # its table pays for many coalitions of an instance, here is one
        form = dataclasses.replace(form, name="plain")

    def evaluate(instances: np.ndarray, rectangles: np.ndarray) -> np.ndarray:
        values = np.empty(len(instances))
        for start in range(0, len(instances), block):
            part = slice(start, start + block)
            own, of = instances[part], owners[instances[part]]
            rows, columns = hierarchy.inside(rectangles[part], shifts[own], np.arange(height), np.arange(width))
            masks = ((rows[:, :, None] & columns[:, None, :]) != 0).reshape(len(own), 1, -1)
            masks = masks if places is None else masks[..., places]
            try:
                found = engine.values(model, inputs[of], reference, masks, features, value, targets[own], form)
            except ShapelineError as error:
                if not hasattr(error, "instance"):
                    raise
                named = engine.by_id(error, of)
                named.instance = int(of[error.instance])
                raise named from None
            values[part] = found[:, 0]
        return values

    return evaluate
