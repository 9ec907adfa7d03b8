"""Influence measures as attribution methods: they score from labelled points, all where no model was trained on some.

Each is given its `measure`, a function of shapeline.influence that the registry names: were it imported here, an edit
of one measure would run the labels of all again.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from shapeline.datasets.loading import Dataset
from shapeline.errors import ShapelineError, nearest
from shapeline.games.features import Features
from shapeline.games.game import Game
from shapeline.gradients.cells import pooled
from shapeline.seeds import seed_of

CELLS = 1 << 22  # input cells given to the model at a time
EMPTY = "no neighbour carries weight"
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
    """`mim`, `parzen` or `data_lime` of the input cells, summed over each feature's; no evaluations.

    measure: the influence, from points and labelled data.
    inputs: (n, *input shape).
    instances: their ids in the dataset (n,).
    dataset: whose training part is the labelled data; all of it, the instances too, with all_points, as in the paper.
    features: that the cells' influence is summed over.
    parameters: of the measure.
    device: that it is computed on.

    -> scores (n, d). Positive is towards the instance's
    own label, whatever a model predicts; of a regression towards larger labels. {"warning": ...} where a row is all 0.
    """
    known = _complete(dataset, all_points)
    if "categorical" in parameters:
        parameters = {**parameters, "categorical": _numbered(parameters["categorical"], dataset.card)}
    influence = measure(
        _rows(inputs),
        _rows(known.inputs),
        known.labels,
        regression=_is_regression(dataset),
        point_labels=_labels(dataset, instances),
        device=device,
        **parameters,
    )
    return pooled(influence.reshape(inputs.shape), features), 0, {"warning": _flags(influence, EMPTY)}


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
    """`augmented_mim` of the input cells, summed over each feature's, and the rows that the model labelled.

    measure: the influence, from a function, points and labelled data.
    game: its model, which labels rows around the instances.
    inputs, instances, dataset, features: as in `around_points`.
    seed: of this label and repeat; each instance samples its own rows.
    parameters: of the measure, count and spread among them.

    -> scores (n, d), rows asked (n,), and {"warning": ...} where a row is all 0.
    """
    model, known = game.model, _complete(dataset, False)
    if "categorical" in parameters:
        parameters = {**parameters, "categorical": _numbered(parameters["categorical"], dataset.card)}

    asked: list[int] = []

    def predict(rows: np.ndarray) -> np.ndarray:
        asked.append(len(rows))
        return model.predict(rows.reshape(-1, *inputs.shape[1:]).astype(inputs.dtype))

    influence = np.concatenate(
        [
            measure(
                predict,
                point[None],
                _rows(known.inputs),
                known.labels,
                seed=seed_of(seed, instance),
                regression=_is_regression(dataset),
                point_labels=label[None],
                **parameters,
            )
            for point, instance, label in zip(_rows(inputs), instances, _labels(dataset, instances), strict=True)
        ]
    )
    return pooled(influence.reshape(inputs.shape), features), np.array(asked), {"warning": _flags(influence, EMPTY)}


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
    """`qii` of the probability of targets (n,), or of the prediction: the players are the features, not the cells.

    measure: the influence, from a function, points and data.
    game: its model and its features.
    inputs, targets: (n, *input shape) and (n,).
    instances: ids (n,), by which and `seed` the orders drawn differ.
    dataset: whose training part features are drawn from.
    seed: of this label and repeat.
    parameters: of the measure.

    -> scores (n, d) and the rows that the model was asked for (n,): m 2^d up to 12 features, with m rows of data, else
    (d + 1) a permutation.
    """
    train, model, features = _points(dataset), game.model, game.features
    m, d = len(train.inputs), features.d
    origins = np.concatenate([_rows(train.inputs), _rows(inputs)])  # what each feature of a row asked is taken from
    owner = features.cells.reshape(-1)
    step = max(1, CELLS // owner.size)
    data = np.broadcast_to(np.arange(m)[:, None], (m, d))
    scores, asked = np.empty((len(inputs), d)), np.zeros(len(inputs), np.int64)
    for row, (target, instance) in enumerate(zip(targets, instances, strict=True)):

        def predict(taken: np.ndarray, row=row, target=target) -> np.ndarray:
            asked[row] += len(taken)
            return np.concatenate([outputs(taken[a : a + step], target) for a in range(0, len(taken), step)])

        def outputs(taken: np.ndarray, target: int) -> np.ndarray:
            rows = origins[taken[:, owner], np.arange(owner.size)].reshape(-1, *inputs.shape[1:])
            if model.task == "regression":
                return model.predict(rows)
            return np.exp(model.log_probs(rows)[:, target])

        point = np.full((1, d), m + row)
        scores[row] = measure(predict, point, data, seed=seed_of(seed, instance), **parameters)[0]
    return scores, asked


def score_pairs(
    measure: Callable,
    inputs: np.ndarray,
    instances: Sequence[int],
    dataset: Dataset,
    features: Features,
    all_points: bool = False,
) -> tuple[np.ndarray, int, dict]:
    """`counterfactual` of the input cells, summed over each feature's, unsigned; no evaluations.

    The same for all instances of a class, (n, d): of more than two classes each against the rest. {"warning": ...}
    where no two rows of the data differ in one cell only.
    """
    known, own = _complete(dataset, all_points), _labels(dataset, instances)
    X = _rows(known.inputs)
    if _is_regression(dataset):
        influence = np.tile(measure(X, known.labels), (len(own), 1))
    else:
        classes, place = np.unique(own, return_inverse=True)
        influence = np.stack([measure(X, known.labels == label) for label in classes])[place]
    return pooled(influence.reshape(inputs.shape), features), 0, {"warning": _flags(influence, NO_PAIRS)}


@lru_cache(maxsize=1)
def _points(dataset: Dataset, all_points: bool = False) -> Dataset:
    if dataset.card["kind"] == "text":
        raise ShapelineError("measures of labelled points: the tokens of a text are no points; choose another method")
    return dataset if all_points else dataset.part("train")


def _complete(dataset: Dataset, all_points: bool) -> Dataset:
    """The training part, or all points; ShapelineError where cells are missing, which have no distance to others."""
    if missing := dataset.card.get("missing"):
        raise ShapelineError(
            f"measures of labelled points: cells are missing in {', '.join(missing)}; fill them, or use another method"
        )
    return _points(dataset, all_points)


def _rows(inputs: np.ndarray) -> np.ndarray:
    return inputs.reshape(len(inputs), -1)


def _is_regression(dataset: Dataset) -> bool:
    return dataset.card.get("task") == "regression"


def _labels(dataset: Dataset, instances: Sequence[int]) -> np.ndarray:
    """The labels (n,) of instances by their ids."""
    order = np.argsort(dataset.ids)
    return dataset.labels[order[np.searchsorted(dataset.ids, instances, sorter=order)]]


def _numbered(columns: Sequence[int | str], card: dict) -> list[int]:
    names = card.get("feature_names") or []
    for column in columns:
        if isinstance(column, str) and column not in names:
            raise ShapelineError(f"categorical: there is no column '{column}'.{nearest(column, names)}")
    return [names.index(column) if isinstance(column, str) else column for column in columns]


def _flags(influence: np.ndarray, reason: str) -> list[str | None]:
    # As the score files hold it, where the smallest numbers are 0.
    return [None if some else reason for some in influence.astype(np.float32).any(axis=1)]
