"""Games with known Shapley values, for the accuracy of estimators at a budget: images, columns, words, trees.

Each is a trained model of scikit-learn on data that it carries or that a seed generates; the exact values come from all
2^d coalitions, or from a closed form: of trees with one reference row that of their leaves.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from shapeline import files
from shapeline.designs.exact import shapley
from shapeline.statistics.accuracy import Game, Terms, build_exact_game, build_from_terms

SIDES = ("present", "absent")
ENCODING = {f"{column}.list.element": "BYTE_STREAM_SPLIT" for column in ("values", "weights", "exact")}


def build_game(name: str, tables: np.ndarray, kind: str = "") -> Game:
    """Return the game of `tables` (n, 2^d): column c holds the value of the features whose bit is set in c."""
    d = tables.shape[1].bit_length() - 1
    design = shapley(d)
    return build_exact_game(name, tables, tables[:, design.masks @ (1 << np.arange(d))] @ design.readout.T, kind)


def write(games: Iterable[Game], path: Path | str) -> None:
    """Write games to a file, tables in single precision, with the Shapley values of the rounded tables."""
    frame = pd.DataFrame(row for game in games for row in _iterate_rows(game))
    with files.atomic(path) as partial:
        frame.to_parquet(partial, index=False, use_dictionary=False, compression="zstd", column_encoding=ENCODING)


def _iterate_rows(game: Game) -> Iterator[dict]:
    about = {"game": game.name, "kind": game.kind, "d": game.d}
    for number, stored in enumerate(game.stored):
        row = {**about, "instance": number, "form": "terms", "values": None, "weights": None}
        row |= {"present": None, "absent": None, "exact": game.exact[number]}
        if isinstance(stored, Terms):
            row |= {side: [np.flatnonzero(part).astype(np.int16) for part in getattr(stored, side)] for side in SIDES}
            row |= {"weights": stored.weight}
        else:
            single = np.asarray(stored, np.float32)
            row |= {"form": "table", "values": single, "exact": build_game("", single[None].astype(float)).exact[0]}
        yield row


def from_groups(
    name: str, predict: Callable, rows: np.ndarray, reference: np.ndarray, groups: list, instances: int
) -> Game:
    """Return tables of `predict(inputs, row)` on `rows` (n, columns); masked groups are at the reference."""
    from shapeline.designs.design import enumerate_coalitions

    d = len(groups)
    group_of_column = np.zeros(rows.shape[1], int)
    for group, columns in enumerate(groups):
        group_of_column[columns] = group
    kept = enumerate_coalitions(d, name)[:, group_of_column]
    return build_game(name, np.array([predict(np.where(kept, rows[i], reference), i) for i in range(instances)]))


def log_probability(model, rows: np.ndarray) -> Callable:
    """Return the function from inputs and the number of a row to the log-probability of the row's predicted class."""
    target = model.predict_proba(rows).argmax(axis=1)
    return lambda inputs, row: np.log(np.maximum(model.predict_proba(inputs)[:, target[row]], 1e-300))


def digits(instances: int) -> Game:
    """Return tables of scikit-learn's digits 3 and 8: 16 patches, a network of 32 units, the mean image as baseline."""
    from sklearn.datasets import load_digits
    from sklearn.neural_network import MLPClassifier

    images, labels = load_digits(return_X_y=True)
    chosen = (labels == 3) | (labels == 8)
    images, labels = images[chosen] / 16, labels[chosen]
    model = MLPClassifier((32,), max_iter=400, random_state=0).fit(images[100:], labels[100:])
    cells = np.arange(64).reshape(8, 8)
    patches = [cells[r : r + 2, c : c + 2].ravel() for r in range(0, 8, 2) for c in range(0, 8, 2)]
    return from_groups(
        "digits", log_probability(model, images[:100]), images[:100], images[100:].mean(axis=0), patches, instances
    )


def _load_cancer():
    from sklearn.datasets import load_breast_cancer
    from sklearn.preprocessing import StandardScaler

    rows, labels = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(rows))
    return StandardScaler().fit_transform(rows)[order], labels[order]


def cancer(instances: int, logistic: bool = False) -> Game:
    """Return tables of breast cancer: 10 groups (mean, error, worst), a network of 16 units or logistic regression."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier

    rows, labels = _load_cancer()
    model = LogisticRegression() if logistic else MLPClassifier((16,), max_iter=600, random_state=0)
    model.fit(rows[100:], labels[100:])
    groups = [np.array([i, i + 10, i + 20]) for i in range(10)]
    name = "cancer, logistic" if logistic else "cancer"
    return from_groups(name, log_probability(model, rows[:100]), rows[:100], rows[100:].mean(axis=0), groups, instances)


def wine(instances: int) -> Game:
    """Return tables of wine: 13 columns, three classes, a network of 16 units."""
    from sklearn.datasets import load_wine
    from sklearn.neural_network import MLPClassifier
    from sklearn.preprocessing import StandardScaler

    rows, labels = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(rows))
    rows, labels = StandardScaler().fit_transform(rows)[order], labels[order]
    model = MLPClassifier((16,), max_iter=800, random_state=0).fit(rows[40:], labels[40:])
    groups = [np.array([i]) for i in range(13)]
    return from_groups("wine", log_probability(model, rows[:40]), rows[:40], rows[40:].mean(axis=0), groups, instances)


def diabetes(instances: int) -> Game:
    """Return tables of diabetes: 10 columns, a regression by a network of 32 units, which is a smooth surface."""
    from sklearn.datasets import load_diabetes
    from sklearn.neural_network import MLPRegressor

    rows, labels = load_diabetes(return_X_y=True)
    rows, labels = rows / rows.std(axis=0), (labels - labels.mean()) / labels.std()
    model = MLPRegressor(hidden_layer_sizes=(32,), max_iter=800, random_state=0, alpha=0.01).fit(rows[60:], labels[60:])
    return from_groups(
        "diabetes",
        lambda inputs, _: model.predict(inputs),
        rows[:60],
        rows[60:].mean(axis=0),
        [np.array([i]) for i in range(10)],
        instances,
    )


GOOD = ["good", "great", "funny", "warm", "brilliant", "moving"]
BAD = ["bad", "dull", "boring", "weak", "flat", "awful"]
PLAIN = ["the", "film", "plot", "is", "was", "actor", "scene", "and", "with", "story", "a", "music", "of", "it"]
NEGATORS = ["not", "never"]


def _sample_reviews(count: int, words: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return word numbers (count, words) from 1, 0 for no word; label 1 if the opinions, negated or not, are good."""
    polar, first = len(GOOD), 1 + len(PLAIN)
    negator = first + 2 * polar
    text = rng.integers(1, first, size=(count, words))
    score = np.zeros(count)
    for position in range(1, words, 3):
        use, sign, turned = rng.random(count) < 0.6, rng.random(count) < 0.5, rng.random(count) < 0.4
        word = first + rng.integers(0, polar, size=count) + np.where(sign, 0, polar)
        text[use, position] = word[use]
        before = rng.integers(negator, negator + 2, size=count)
        text[use & turned, position - 1] = before[use & turned]
        score += use * np.where(sign != turned, 1.0, -1.0)
    return text, (score + rng.normal(scale=0.5, size=count) > 0).astype(int)


def reviews(instances: int) -> Game:
    """Return tables of reviews of 14 words with negated opinions: a network on words and neighbouring pairs."""
    from sklearn.neural_network import MLPClassifier

    words, kinds = 14, 1 + len(PLAIN) + len(GOOD) + len(BAD) + len(NEGATORS)
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(kinds * kinds, 48))  # random directions stand for the pairs: a bag of hashed bigrams

    def bag(text: np.ndarray) -> np.ndarray:
        single = np.stack([(text == kind).sum(axis=1) for kind in range(1, kinds)], axis=1)
        left, right = text[:, :-1], text[:, 1:]
        pairs = np.where((left > 0) & (right > 0), left * kinds + right, 0)
        hashed = np.where((pairs > 0)[:, :, None], directions[pairs], 0).sum(axis=1)
        return np.concatenate([single, hashed / 4], axis=1)

    text, labels = _sample_reviews(6000, words, rng)
    model = MLPClassifier((48,), max_iter=60, random_state=0, alpha=1e-3).fit(bag(text[200:]), labels[200:])
    from shapeline.designs.design import enumerate_coalitions

    kept = enumerate_coalitions(words, "reviews")
    value = log_probability(model, bag(text[:200]))
    return build_game("reviews", np.array([value(bag(np.where(kept, text[i], 0)), i) for i in range(instances)]))


def from_trees(name: str, model, predict: Callable, rows: np.ndarray, reference: np.ndarray) -> Game:
    """Return each row's game on a forest or boosted trees with one reference row, as one term per leaf."""
    reference = reference.astype(np.float32)
    games = []
    for row in rows.astype(np.float32):
        found: dict[tuple[frozenset, frozenset], float] = {}
        for tree, scale, output in _iterate_trees(model):
            for present, absent, leaf in _iterate_leaves(tree, 0, row, reference, frozenset(), frozenset()):
                found[present, absent] = found.get((present, absent), 0.0) + scale * tree.value[leaf].ravel()[output]
        none = frozenset()
        game = _build_terms(rows.shape[1], found)
        empty = predict(reference[None])[0] - game.value(np.zeros((1, rows.shape[1]), bool))[0]  # where boosting begins
        found[none, none] = found.get((none, none), 0.0) + empty
        games.append(_build_terms(rows.shape[1], found))
        masks = np.random.default_rng(0).random((50, rows.shape[1])) < 0.5
        assert np.allclose(games[-1].value(masks), predict(np.where(masks, row, reference)), atol=1e-6)
    return build_from_terms(name, games)


def _iterate_trees(model) -> Iterator[tuple]:
    """Return each tree, the factor of its leaves, and the index of the output in their values."""
    if hasattr(model, "learning_rate"):
        yield from ((tree.tree_, model.learning_rate, 0) for tree in model.estimators_.ravel())
    else:
        yield from ((tree.tree_, 1 / len(model.estimators_), 1) for tree in model.estimators_)


def _iterate_leaves(tree, node: int, row, reference, present: frozenset, absent: frozenset) -> Iterator[tuple]:
    """Return the leaves that a coalition can reach: the features that must be kept and masked for each."""
    feature = tree.feature[node]
    if feature < 0:
        yield present, absent, node
        return
    on, off = (
        tree.children_left[node] if cells[feature] <= tree.threshold[node] else tree.children_right[node]
        for cells in (row, reference)
    )
    if on == off or feature not in absent:
        yield from _iterate_leaves(tree, on, row, reference, present | ({feature} if on != off else set()), absent)
    if on != off and feature not in present:
        yield from _iterate_leaves(tree, off, row, reference, present, absent | {feature})


def _build_terms(d: int, found: dict) -> Terms:
    return Terms.of(d, list(found.values()), [sorted(p) for p, _ in found], [sorted(a) for _, a in found])


def forest(instances: int) -> Game:
    """Return terms of breast cancer: 30 columns, the probability of a random forest."""
    from sklearn.ensemble import RandomForestClassifier

    rows, labels = _load_cancer()
    model = RandomForestClassifier(50, random_state=0, n_jobs=1).fit(rows[100:], labels[100:])
    return from_trees(
        "forest", model, lambda x: model.predict_proba(x)[:, 1], rows[:instances], rows[100:].mean(axis=0)
    )


def boosted(instances: int) -> Game:
    """Return terms of breast cancer: 30 columns, the margin of boosted trees of depth 3."""
    from sklearn.ensemble import GradientBoostingClassifier

    rows, labels = _load_cancer()
    model = GradientBoostingClassifier(n_estimators=100, random_state=0).fit(rows[100:], labels[100:])
    return from_trees("boosted", model, model.decision_function, rows[:instances], rows[100:].mean(axis=0))


def boosted_wide(instances: int) -> Game:
    """Return terms of 100 random columns: a regression by boosted trees of depth 4 on a sum of products."""
    from sklearn.ensemble import GradientBoostingRegressor

    rng = np.random.default_rng(1)
    rows = rng.normal(size=(2000, 100))
    weights = rng.normal(size=100) * (np.arange(100) < 30)
    target = rows @ weights + 2 * rows[:, 0] * rows[:, 1] + 2 * rows[:, 2] * rows[:, 3] * (rows[:, 4] > 0)
    model = GradientBoostingRegressor(n_estimators=80, max_depth=4, max_features=30, random_state=0)
    model.fit(rows[100:], target[100:])
    return from_trees("boosted, 100", model, model.predict, rows[:instances], rows[100:].mean(axis=0))


def sparse_terms(instances: int, d: int = 40) -> Game:
    """Return sums of 60 terms, each of 1 to 6 of 40 features that must be kept; Shapley values in closed form."""
    rng = np.random.default_rng(2)
    size = rng.integers(1, 7, size=(instances, 60))
    member = rng.random((instances, 60, d)).argsort(axis=-1).argsort(axis=-1) < size[..., None]
    weight = rng.normal(size=(instances, 60))
    none = np.zeros((60, d), bool)
    return build_from_terms("terms, 40", [Terms(*arrays, none) for arrays in zip(weight, member, strict=True)])


def cancer_sure(instances: int) -> Game:
    """Return tables of breast cancer: 10 groups, an overconfident network, whose log-probabilities have long tails."""
    from sklearn.neural_network import MLPClassifier

    rows, labels = _load_cancer()
    model = MLPClassifier((16,), solver="lbfgs", alpha=0.1, max_iter=1000, random_state=0)
    model.fit(rows[100:], labels[100:])
    groups = [np.array([i, i + 10, i + 20]) for i in range(10)]
    predict = log_probability(model, rows[:100])
    return from_groups("cancer, sure", predict, rows[:100], rows[100:].mean(axis=0), groups, instances)


def digits_sure(instances: int) -> Game:
    """Return tables of scikit-learn's digits: 16 patches, the probability of an overconfident CNN, mostly 0 or 1."""
    import torch
    from sklearn.datasets import load_digits
    from torch import nn

    from shapeline.designs.design import enumerate_coalitions

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = torch.tensor(images[order] / 16, dtype=torch.float32), torch.tensor(labels[order])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        first = [nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1)]
        last = [nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10)]
        model = nn.Sequential(*first, *last)
        optimiser = torch.optim.Adam(model.parameters(), 1e-3)
        for _ in range(40):
            for batch in (200 + torch.randperm(len(images) - 200)).split(64):
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
                optimiser.step()
    cells = np.arange(64)
    kept = torch.tensor(enumerate_coalitions(16, "digits, sure")[:, cells // 16 * 4 + cells % 8 // 2])
    reference, tables = images[200:].mean(dim=0), []
    with torch.no_grad():
        for one in images[:instances]:
            chosen = model(one[None]).argmax()
            parts = [model(torch.where(part, one, reference)).softmax(dim=1)[:, chosen] for part in kept.split(4096)]
            tables.append(torch.cat(parts).double().numpy())
    return build_game("digits, sure", np.array(tables))


CONFIDENT = {"digits, sure": digits_sure, "cancer, sure": cancer_sure}  # where intervals are hardest
MAKERS = {
    "digits": digits,
    "cancer": cancer,
    "cancer, logistic": lambda instances: cancer(instances, logistic=True),
    "wine": wine,
    "diabetes": diabetes,
    "reviews": reviews,
    "forest": forest,
    "boosted": boosted,
    "boosted, 100": boosted_wide,
    "terms, 40": sparse_terms,
}


@cache
def game(name: str, instances: int) -> Game:
    """Return a game of `instances` explained rows, equal in every call."""
    return (MAKERS | CONFIDENT)[name](instances)


def parser(
    doc: str, games: Sequence[str], instances: int | None = None, samples: int | None = None
) -> argparse.ArgumentParser:
    """Return the argument parser of benchmarks on games, with these defaults; doc: of the benchmark."""
    options = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--games", nargs="+", choices=list(MAKERS | CONFIDENT), default=list(games))
    options.add_argument("--instances", type=int, default=instances)
    options.add_argument("--samples", metavar="N", type=int, default=samples, help="per instance")
    return options
