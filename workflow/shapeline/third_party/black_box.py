"""The input of every library, a counting function of an instance's coalitions on the plain model; lime and shapiq.

A library explains the vector of ones against the vector of zeros; both ends are evaluated once.
"""

import contextlib
import functools
import inspect
import io
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version

import numpy as np

from shapeline.errors import MethodFailure, ShapelineError, locate_input
from shapeline.games.features import Features
from shapeline.games.game import Game
from shapeline.methods import shapiq_process
from shapeline.methods.parameters import fit_minimum, kernel_minimum
from shapeline.seeds import seed_of

Scored = tuple[np.ndarray, np.ndarray]
BATCH_SIZE = 256  # coalitions per call of a library that has a parameter for it


class InstanceGame:
    """v(S) of one instance, with cached ends; `evaluations` counts evaluated coalitions."""

    def __init__(self, evaluate: Callable[[np.ndarray], np.ndarray], features: Features):
        self.d, self.features, self.evaluations = features.d, features, 0
        self._evaluate, self._ends = evaluate, {}

    def __call__(self, masks: np.ndarray) -> np.ndarray:
        """Return values (K,) of coalitions (K, d), present where above one half."""
        masks = np.asarray(masks) > 0.5
        sizes = masks.sum(1)
        values = np.empty(len(masks))
        inner = (sizes > 0) & (sizes < self.d)
        if inner.any():
            values[inner] = self._count_and_evaluate(masks[inner])
        for size in np.unique(sizes[~inner]):
            values[sizes == size] = self._evaluate_end(size)
        return values

    def compute_gain(self) -> float:
        """Return v(N) - v(∅)."""
        return self._evaluate_end(self.d) - self._evaluate_end(0)

    def _evaluate_end(self, size: int) -> float:
        if size not in self._ends:
            self._ends[size] = self._count_and_evaluate(np.full((1, self.d), size > 0))[0]
        return self._ends[size]

    def _count_and_evaluate(self, masks: np.ndarray) -> np.ndarray:
        self.evaluations += len(masks)
        return self._evaluate(masks)


def peer(minimum: Callable[[int], int]) -> Callable[[Callable[..., np.ndarray]], Callable[..., Scored]]:
    """Return the decorator of a function that explains one instance, so that it explains many; minimum: budget, from d.

    The function returns scores (d,) from a game, a 32-bit seed, a budget, ends included, and settings; decorated,
    scores (n, d) and evaluations (n,) from instances, which seed their samples with `seed`.
    """

    def decorate(explain: Callable[..., np.ndarray]) -> Callable[..., Scored]:
        def explain_each(
            game: Game,
            inputs: np.ndarray,
            targets: np.ndarray,
            instances: Sequence[int],
            seed: int,
            budget: int,
            **settings,
        ) -> Scored:
            d, plain = game.features.d, game.having(backend=None)
            if budget < minimum(d):
                raise MethodFailure(
                    "no design",
                    f"budget: {budget} evaluations are fewer than the {minimum(d)} needed at d = {d}; raise it",
                )
            scores, evaluations = np.zeros((len(inputs), d)), np.zeros(len(inputs), np.int64)
            for i, instance in enumerate(instances):
                part = slice(i, i + 1)

                def evaluate(masks: np.ndarray, part=part) -> np.ndarray:
                    return plain.values(inputs[part], masks, targets[part])[0]

                with locate_input([i]):
                    v = InstanceGame(evaluate, game.features)
                    of_instance = seed_of(seed, int(instance)) % 2**32
                    # The libraries divide by zero for a single feature, whose score is known.
                    scores[i] = explain(v, of_instance, budget, **settings) if d > 1 else v.compute_gain()
                evaluations[i] = v.evaluations
            return scores, evaluations

        # `sources.resolve` reads the names of a method's arguments.
        shared, own = (list(inspect.signature(function).parameters.values()) for function in (explain_each, explain))
        explain_each.__signature__ = inspect.Signature(shared[:-1] + own[3:])
        return functools.update_wrapper(explain_each, explain)

    return decorate


@contextlib.contextmanager
def seed_numpy(seed: int) -> Iterator[None]:
    """Set the seed of numpy's global generator, which some libraries use, inside a block, and restore its state."""
    before = np.random.get_state()
    np.random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(before)


MASK_WORD = "ABSENT"


@peer(fit_minimum)
def explain_text(v: InstanceGame, seed: int, budget: int) -> np.ndarray:
    """Run LimeTextExplainer on word positions (bow=False) with the experiment's value; scores (d,)."""
    from lime import lime_text

    explainer = lime_text.LimeTextExplainer(
        bow=False, mask_string=MASK_WORD, feature_selection="none", random_state=np.random.RandomState(seed)
    )

    def explain_texts(texts: list[str]) -> np.ndarray:
        return v(np.array([words.split() for words in texts]) != MASK_WORD)[:, None]

    words = " ".join(f"word{index}" for index in range(v.d))
    explanation = explainer.explain_instance(words, explain_texts, labels=(0,), num_features=v.d, num_samples=budget)
    return _fill_scores(explanation.local_exp[0], v.d)


@peer(fit_minimum)
def explain_image(v: InstanceGame, seed: int, budget: int) -> np.ndarray:
    """Run LimeImageExplainer with the experiment's features as segments, all of which have scores."""
    from lime import lime_image

    segments = v.features.cells[0]
    _, corners = np.unique(segments, return_index=True)
    explainer = lime_image.LimeImageExplainer(feature_selection="none", random_state=np.random.RandomState(seed))

    def explain_images(images: np.ndarray) -> np.ndarray:
        return v(images[..., 0].reshape(len(images), -1)[:, corners])[:, None]

    with contextlib.redirect_stderr(io.StringIO()):  # its progress bar has no switch
        explanation = explainer.explain_instance(
            np.ones((*segments.shape, 3), np.uint8),
            explain_images,
            labels=(0,),
            top_labels=None,
            hide_color=0,
            num_features=v.d,
            num_samples=budget,
            batch_size=BATCH_SIZE,
            segmentation_fn=lambda _: segments,
        )
    return _fill_scores(explanation.local_exp[0], v.d)


def _fill_scores(weights: list[tuple[int, float]], d: int) -> np.ndarray:
    """Return the library's (feature, weight) pairs as scores (d,)."""
    scores = np.zeros(d)
    for feature, weight in weights:
        scores[feature] = weight
    return scores


@peer(kernel_minimum)
def approximate(
    v: InstanceGame, seed: int, budget: int, approximator: str = "KernelSHAP", python: str | None = None
) -> np.ndarray:
    """Return scores (d,) of the shapiq approximator of this name.

    python: another environment's interpreter. Raises ShapelineError if the release lacks it, MethodFailure if it
    fails.
    """
    task = {"approximator": approximator, "d": v.d, "budget": budget, "seed": seed}
    if python:
        reply = shapiq_process.approximate(python, task, lambda masks: v(np.atleast_2d(masks)))
    else:
        with seed_numpy(seed):
            reply = shapiq_process.answer(task, v)
    if "scores" in reply:
        return np.array(reply["scores"])
    message = reply["message"].partition("\n")[0]
    if reply["error"] == "failure":
        raise MethodFailure("no design", f"{approximator} of {budget} evaluations: {message}")
    if reply["error"] == "name":
        release = shapiq_process.read_version(python) if python else version("shapiq")
        message = f"shapiq {release} has no approximator '{approximator}' of Shapley values; it has {message}"
    raise ShapelineError(f"peer_shapiq: {message}")


def list_approximators() -> list[str]:
    """Return the approximators of Shapley values that the installed release has."""
    from shapiq import approximator as installed

    return shapiq_process.list_approximators(installed)
