"""Value tables of real games, all 2^d coalitions of each instance, and pools of a sampled method's errors on them.

Row r of a table is v of the features whose bit is set in r, the log-probability of the explained class.
"""

import functools
from dataclasses import dataclass

import numpy as np

from shapeline import designs

INSTANCES = 100
SAMPLES = 12  # of a method for each instance, of which a trial takes two
METHODS = ("kernel_shap", "sample_shapley", "lime")
GOOD, BAD, NOT, REST = ("good", "great"), ("bad", "awful"), ("not", "never"), ("the", "film", "plot", "was", "and")


@dataclass(frozen=True)
class Game:
    """Values (n, 2^d) of n instances, d features each."""

    values: np.ndarray

    @property
    def d(self) -> int:
        return self.values.shape[1].bit_length() - 1

    @functools.cached_property
    def shapley(self) -> np.ndarray:
        """Exact Shapley values (n, d)."""
        return designs.shapley(self.d).attribute(self.values)


def masks_of(d: int) -> np.ndarray:
    return (np.arange(2**d)[:, None] >> np.arange(d) & 1).astype(bool)


def evaluate(predict, inputs: np.ndarray, groups: np.ndarray, reference: np.ndarray) -> Game:
    """predict: probabilities (rows, classes) of inputs; groups: the feature of each column."""
    kept = masks_of(groups.max() + 1)[:, groups]
    rows = [np.where(kept, one, reference) for one in inputs]
    chosen = predict(inputs).argmax(1)
    found = [predict(each)[:, one] for each, one in zip(rows, chosen, strict=True)]
    return Game(np.log(np.maximum(found, 1e-12)))


@functools.cache
def digits(height: int, width: int) -> Game:
    """3 against 8, the pixels in height x width patches, filled by the mean."""
    from sklearn.datasets import load_digits
    from sklearn.neural_network import MLPClassifier

    source = load_digits()
    some = np.isin(source.target, (3, 8))
    inputs, labels = source.data[some] / 16, source.target[some]
    model = MLPClassifier((16,), solver="lbfgs", alpha=0.1, max_iter=1000, random_state=0).fit(
        inputs[100:], labels[100:]
    )
    rows, columns = np.arange(8) * height // 8, np.arange(8) * width // 8
    groups = (rows[:, None] * width + columns).ravel()
    return evaluate(model.predict_proba, inputs[:INSTANCES], groups, inputs[100:].mean(0))


@functools.cache
def cancer() -> Game:
    """Ten characteristics, each with its mean, error and worst."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.neural_network import MLPClassifier

    inputs, labels = load_breast_cancer(return_X_y=True)
    inputs = (inputs - inputs.mean(0)) / inputs.std(0)
    order = np.random.default_rng(0).permutation(len(inputs))
    inputs, labels = inputs[order], labels[order]
    model = MLPClassifier((16,), solver="lbfgs", alpha=0.1, max_iter=1000, random_state=0).fit(
        inputs[100:], labels[100:]
    )
    return evaluate(model.predict_proba, inputs[:INSTANCES], np.arange(30) % 10, np.zeros(30))


@functools.cache
def reviews(d: int = 10) -> Game:
    """Texts of d words in which `not` negates the next one; a masked word is deleted."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression

    random = np.random.default_rng(0)
    texts = [_text(random, d) for _ in range(1500)]
    labels = np.array([_tone(words) > 0 for words in texts])
    model = LogisticRegression(C=10, max_iter=300)
    count = CountVectorizer(ngram_range=(1, 2), binary=True)
    model.fit(count.fit_transform([" ".join(words) for words in texts[INSTANCES:]]), labels[INSTANCES:])
    found = []
    for words in texts[:INSTANCES]:
        parts = [" ".join(np.array(words)[mask]) for mask in masks_of(d)]
        scores = model.predict_log_proba(count.transform(parts))
        found.append(scores[:, scores[-1].argmax()])
    return Game(np.array(found))


def _text(random: np.random.Generator, d: int) -> list[str]:
    words = GOOD + BAD + NOT + NOT + REST
    return [str(random.choice(words)) for _ in range(d)]


def _tone(words: list[str]) -> float:
    """1 for a good word, -1 for a bad one, each turned round by a negation before it; a quarter where all is even."""
    signs = [(word in GOOD) - (word in BAD) for word in words]
    turned = [-1 if place and words[place - 1] in NOT else 1 for place in range(len(words))]
    return 0.25 + sum(sign * turn for sign, turn in zip(signs, turned, strict=True))


GAMES = {
    "digits8": functools.partial(digits, 2, 4),
    "digits12": functools.partial(digits, 4, 3),
    "cancer": cancer,
    "reviews": reviews,
}


@functools.cache
def drawn_designs(method: str, d: int, multiple: int = 4) -> list:
    """Return an independent design for each instance and sample."""
    return [getattr(designs, method)(d, multiple * d, seed) for seed in range(INSTANCES * SAMPLES)]


def errors_of_nothing(game: str) -> np.ndarray:
    """RMSE (instances,) of scores that are all 0: the far end of the span that a margin is a share of."""
    return np.sqrt((GAMES[game]().shapley ** 2).mean(1))


@functools.cache
def pool(game: str, method: str) -> np.ndarray:
    """Return RMSE (instances, samples) of a method at 4 d evaluations, each with an independent design."""
    one = GAMES[game]()
    bits = 1 << np.arange(one.d)
    errors = np.empty((INSTANCES, SAMPLES))
    for place, design in enumerate(drawn_designs(method, one.d)):
        instance = place // SAMPLES
        scores = design.attribute(one.values[instance, design.masks @ bits])
        errors[instance, place % SAMPLES] = np.sqrt(np.mean((scores - one.shapley[instance]) ** 2))
    return errors


@functools.cache
def shared_pool(game: str, method: str) -> np.ndarray:
    """Return the same where every sample is one design for all instances."""
    one = GAMES[game]()
    bits = 1 << np.arange(one.d)
    columns = []
    for design in drawn_designs(method, one.d)[:SAMPLES]:
        scores = design.attribute(one.values[:, design.masks @ bits])
        columns.append(np.sqrt(np.mean((scores - one.shapley) ** 2, axis=1)))
    return np.stack(columns, axis=1)
