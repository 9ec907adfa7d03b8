"""Influence measures as attribution methods, which receive `measure` so that an edit re-runs one only; Pei's LIME."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from shapeline.datasets.loading import Dataset
from shapeline.designs.surrogate import lime_masks, ridge_readout
from shapeline.errors import ShapelineError, nearest
from shapeline.games.features import Features
from shapeline.games.game import Game
from shapeline.gradients.methods import pool
from shapeline.seeds import seed_of

MAX_CELLS = 1 << 22  # input cells per call of the model
NO_WEIGHT = "no neighbour carries weight"
NO_PAIRS = "no two rows differ in one feature only"


def score_points(
    measure: Callable,
    inputs: np.ndarray,
    instances: Sequence[int],
    dataset: Dataset,
    features: Features,
    parameters: dict,
    device: str = "cpu",
    all_points: bool = False,
) -> tuple[np.ndarray, int, dict]:
    """Return `mim`, `parzen` or `data_lime` summed over each feature's cells, (n, d); a warning if a row is all 0.

    instances: ids in the dataset, whose training part (with all_points all of it) is the labelled data. Positive is
    towards the instance's label, independent of a model's prediction; in a regression towards larger labels.
    """
    known = _select_complete(dataset, all_points)
    parameters = {**parameters, "categorical": _number_columns(parameters.get("categorical"), dataset.card)}
    influence = measure(
        _flatten(inputs),
        _flatten(known.inputs),
        known.labels,
        regression=_is_regression(dataset),
        point_labels=_get_labels(dataset, instances),
        device=device,
        **parameters,
    )
    return pool(influence.reshape(inputs.shape), features), 0, {"warning": _warn(influence, NO_WEIGHT)}


def score_queried_points(
    measure: Callable,
    game: Game,
    inputs: np.ndarray,
    instances: Sequence[int],
    dataset: Dataset,
    features: Features,
    seed: int,
    parameters: dict,
) -> tuple[np.ndarray, np.ndarray, dict]:
    """Return `augmented_mim` summed over each feature's cells (n, d), rows labelled by the model (n,), a warning."""
    model, known = game.model, _select_complete(dataset, False)
    parameters = {**parameters, "categorical": _number_columns(parameters.get("categorical"), dataset.card)}
    counts: list[int] = []

    def predict(rows: np.ndarray) -> np.ndarray:
        counts.append(len(rows))
        return model.predict(rows.reshape(-1, *inputs.shape[1:]).astype(inputs.dtype))

    influence = np.concatenate(
        [
            measure(
                predict,
                point[None],
                _flatten(known.inputs),
                known.labels,
                seed=seed_of(seed, instance),
                regression=_is_regression(dataset),
                point_labels=label[None],
                **parameters,
            )
            for point, instance, label in zip(_flatten(inputs), instances, _get_labels(dataset, instances), strict=True)
        ]
    )
    return (pool(influence.reshape(inputs.shape), features), np.array(counts), {"warning": _warn(influence, NO_WEIGHT)})


def score_outputs(
    measure: Callable,
    game: Game,
    inputs: np.ndarray,
    targets: np.ndarray,
    instances: Sequence[int],
    dataset: Dataset,
    seed: int,
    parameters: dict,
) -> tuple[np.ndarray, np.ndarray]:
    """Return `qii` (n, d), whose players are the features, and the evaluations (n,)."""
    train, model, features = _select_points(dataset), game.model, game.features
    m, d = len(train.inputs), features.d
    origins = np.concatenate([_flatten(train.inputs), _flatten(inputs)])  # sources of features
    owner = features.cells.reshape(-1)
    step = max(1, MAX_CELLS // owner.size)
    data = np.broadcast_to(np.arange(m)[:, None], (m, d))
    scores, counts = np.empty((len(inputs), d)), np.zeros(len(inputs), np.int64)
    for row, (target, instance) in enumerate(zip(targets, instances, strict=True)):

        def predict(sources: np.ndarray, row=row, target=target) -> np.ndarray:
            counts[row] += len(sources)
            return np.concatenate([outputs(sources[a : a + step], target) for a in range(0, len(sources), step)])

        def outputs(sources: np.ndarray, target: int) -> np.ndarray:
            rows = origins[sources[:, owner], np.arange(owner.size)].reshape(-1, *inputs.shape[1:])
            if model.task == "regression":
                return model.predict(rows)
            return np.exp(model.log_probs(rows)[:, target])

        point = np.full((1, d), m + row)
        scores[row] = measure(predict, point, data, seed=seed_of(seed, instance), **parameters)[0]
    return scores, counts


def score_pairs(
    measure: Callable,
    inputs: np.ndarray,
    instances: Sequence[int],
    dataset: Dataset,
    features: Features,
    all_points: bool = False,
) -> tuple[np.ndarray, int, dict]:
    """Return `counterfactual` summed over each feature's cells, unsigned (n, d), of a class."""
    known, labels = _select_complete(dataset, all_points), _get_labels(dataset, instances)
    X = _flatten(known.inputs)
    if _is_regression(dataset):
        influence = np.tile(measure(X, known.labels), (len(labels), 1))
    else:
        classes, index = np.unique(labels, return_inverse=True)
        influence = np.stack([measure(X, known.labels == label) for label in classes])[index]
    return pool(influence.reshape(inputs.shape), features), 0, {"warning": _warn(influence, NO_PAIRS)}


@lru_cache(maxsize=1)
def _select_points(dataset: Dataset, all_points: bool = False) -> Dataset:
    if dataset.card["kind"] == "text":
        raise ShapelineError("measures of labelled points: the tokens of a text are not points; choose another method")
    return dataset if all_points else dataset.part("train")


def _select_complete(dataset: Dataset, all_points: bool) -> Dataset:
    """Return the training part, or all points. Raises ShapelineError for missing cells, which have no distance."""
    if missing := dataset.card.get("missing"):
        raise ShapelineError(
            f"measures of labelled points: cells are missing in {', '.join(missing)}; fill them, or use another method"
        )
    return _select_points(dataset, all_points)


def _flatten(inputs: np.ndarray) -> np.ndarray:
    return inputs.reshape(len(inputs), -1)


def _is_regression(dataset: Dataset) -> bool:
    return dataset.card.get("task") == "regression"


def _get_labels(dataset: Dataset, instances: Sequence[int]) -> np.ndarray:
    """Return the labels (n,) of instances by their ids."""
    order = np.argsort(dataset.ids)
    return dataset.labels[order[np.searchsorted(dataset.ids, instances, sorter=order)]]


def _number_columns(columns: Sequence[int | str] | None, card: dict) -> list[int]:
    """Return the numbers of columns, by default those of three or more categories, whose codes have no order."""
    names = card.get("feature_names") or []
    columns = columns or [name for name, values in card.get("categories", {}).items() if len(values) > 2]
    for column in columns:
        if isinstance(column, str) and column not in names:
            raise ShapelineError(f"categorical: there is no column '{column}'.{nearest(column, names)}")
    return [names.index(column) if isinstance(column, str) else column for column in columns]


def _warn(influence: np.ndarray, reason: str) -> list[str | None]:
    # In single precision, as in score files, where the smallest numbers are 0.
    return [None if has_influence else reason for has_influence in influence.astype(np.float32).any(axis=1)]


def lime_input(
    game: Game,
    inputs: np.ndarray,
    targets: np.ndarray,
    instances: Sequence[int],
    seed: int,
    budget: int,
    sigma: float = 0.5,
    ridge: float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Return scores (n, d) of ridge fits with weights exp(-|x - h(S)|^2 / sigma^2) to values of masked inputs h(S).

    sigma: share of the distance to the fully masked input; squared distances are averaged over reference rows.
    """
    d = game.features.d
    drawn = [lime_masks(d, budget, np.random.default_rng(seed_of(seed, instance))) for instance in instances]
    values = game.values(inputs, np.stack(drawn), targets)
    # The squared distance by which masking each feature moves an input, the mean over the baseline rows.
    moved = ((inputs[:, None].astype(np.float64) - game.reference.of(inputs)) ** 2).mean(axis=1)
    apart = pool(moved, game.features).reshape(len(inputs), -1)
    scores = np.empty((len(inputs), d))
    for row, masks in enumerate(drawn):
        total = apart[row].sum() or 1.0
        weights = np.exp(-(~masks @ apart[row]) / total / sigma**2)
        scores[row] = ridge_readout(masks, weights, ridge) @ (values[row] - values[row, 0])  # exactly 0 of a constant
    return scores, np.array([len(masks) for masks in drawn])
