"""The game of a model on one input, as `explain` plays it."""

from collections import Counter

import numpy as np

from shapeline.api.case import CallOptions, case_of, names_of
from shapeline.errors import ShapelineError


class ModelGame:
    """The game of a model on one input: its players are features, its value is the model's.

    Parameters
    ----------
    model, x
        A model and one input, as of `shapeline.explain`.
    **wanted
        What else `shapeline.explain` takes: reference, features, target, seed, background, value, y, feature_names,
        class_names, tokenizer, outputs. ``target="each"`` gives an output per class.

    Examples
    --------
    >>> import shapeline
    >>> from shapeline.games import ModelGame
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> game = ModelGame(GaussianNB().fit(X, y), X[:1], background=X[::10], target="each")
    >>> found = shapeline.shapley_values(game)
    >>> found.scores.shape, found.feature_names[3]
    ((3, 4), 'petal width (cm)')
    """

    def __init__(self, model: object, x: object, **wanted: object):
        if wrong := sorted(set(wanted) - set(CallOptions.__dataclass_fields__)):
            raise ShapelineError(
                f"ModelGame: '{wrong[0]}' is not an argument; give {', '.join(CallOptions.__dataclass_fields__)}"
            )
        case = case_of(model, x, CallOptions(**wanted))
        if len(set(case.positions.tolist())) != 1:
            raise ShapelineError(f"ModelGame: x has {len(case.given.inputs)} inputs; give one, as x[:1]")
        [(features, _)] = case.buckets
        self.game = case.game.having(features=features)
        self.inputs, self.targets, self.n_players = case.inputs, case.targets, features.d
        names = case.given.shown[0] if case.given.spoken else names_of(features)
        self.player_names = _numbered(list(map(str, names)))
        several = len(case.targets) > 1
        self.output_names = [case.classes[target] for target in case.targets] if several and case.classes else None

    def __call__(self, masks: np.ndarray) -> np.ndarray:
        """Return the values (K,), or (K, n_classes), of coalitions (K, n_players)."""
        values = self.game.values(self.inputs, np.asarray(masks, bool), self.targets)
        return values.T if len(values) > 1 else values[0]


def _numbered(names: list[str]) -> list[str]:
    """Return names that are all different: a word that stands twice is numbered."""
    seen: Counter[str] = Counter()
    numbered = []
    for name in names:
        seen[name] += 1
        numbered.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return numbered
