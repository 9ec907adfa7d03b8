"""Gradient attributions of a TensorFlow classifier, summed over the input cells of each feature.

Of a regression model the prediction stands wherever log p_target is written.
"""

import weakref
from collections.abc import Callable, Sequence

import numpy as np

from shapeline.games.game import Game
from shapeline.gradients import draws
from shapeline.gradients.cells import absolute, check, completeness, halving, nodes, pooled, rows_of_a_pass, starts
from shapeline.models.classifier import Classifier
from shapeline.models.tensorflow_setup import tf


@halving
def saliency(question: Game, inputs: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, int]:
    """|∂ log p_target / ∂x|, unsigned: largest over channels, mean over a feature's cells (Simonyan et al. 2013).

    inputs (n, *input shape), targets (n,) -> scores (n, d), evaluations per instance (one pass, forward and back).
    Of tokens it is the L2 norm of the derivative by their embedding.
    """
    model = question.model
    if check(model, inputs, "tensorflow"):
        of_cells = _gradients(model, inputs, targets, lambda gradient, _: np.linalg.norm(gradient, axis=-1))
    else:
        of_cells = _gradients(model, inputs, targets, lambda gradient, _: np.abs(gradient))
    return absolute(of_cells, question.features), 1


@halving
def gradient_x_input(question: Game, inputs: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, int]:
    """x · ∂ log p_target / ∂x, signed, summed over a feature's cells (Shrikumar et al. 2016); shapes as in saliency.

    Of tokens, x is their embedding.
    """
    model = question.model
    if check(model, inputs, "tensorflow"):
        of_cells = _gradients(model, inputs, targets, lambda gradient, x: (gradient * x).sum(-1))
    else:
        of_cells = _gradients(model, inputs, targets, np.multiply)
    return pooled(of_cells, question.features), 1


@halving
def gradient_x_difference(question: Game, inputs: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, int]:
    """(x - x0) · ∂ log p_target / ∂x, signed: gradient × input for the game's own reference; shapes as in saliency.

    x0: the reference, averaged over its M rows; of tokens, x and x0 are embeddings. One step of integrated gradients
    at the input (Shrikumar et al. 2017, §2.3.1).
    """
    tokens = check(question.model, inputs, "tensorflow")
    of_cells = _gradients(
        question.model,
        inputs,
        targets,
        lambda gradient, moved: (gradient * moved).sum(-1) if tokens else gradient * moved,
        starts(question, inputs),
    )
    return pooled(of_cells, question.features), 1


@halving
def integrated_gradients(
    question: Game,
    inputs: np.ndarray,
    targets: np.ndarray,
    steps: int = 50,
) -> tuple[np.ndarray, int, dict]:
    """(x - x0) · mean of ∂ log p_target / ∂x on the straight path from x0 to x (Sundararajan et al. 2017, eq. 1).

    x0: the reference, averaged over its M rows; of tokens, x and x0 are embeddings, and padding is that of the input.
    The path is integrated by Gauss-Legendre. Scores (n, d), evaluations per instance, and {"completeness_gap": (n,)}:
    |sum of scores - (F(x) - mean F(x0))| of F = log p_target. A large one is flagged.
    """
    model = question.model
    tokens = check(model, inputs, "tensorflow")
    origins = starts(question, inputs)
    (n, M), (position, weight) = origins.shape[:2], nodes(steps)
    # The two ends stand among the nodes with a weight of nothing: their values tell the completeness gap.
    position, weight = np.append(position, [0, 1]).astype(np.float32), np.append(weight, [0, 0]).astype(np.float32)
    of_cells, gained = np.zeros(inputs.shape), np.zeros(n)
    step = _step(model, inputs, tokens)
    rows = rows_of_a_pass(_points(model, inputs[:1], tokens).shape, model)
    for first in range(0, n * M, rows):
        instance, background = np.divmod(np.arange(first, min(first + rows, n * M)), M)
        x, x0 = (_points(model, ends, tokens) for ends in (inputs[instance], origins[instance, background]))
        total, at_nodes = 0.0, []
        together = max(1, rows // len(instance))  # nodes of a pass
        for start in range(0, steps + 2, together):
            part = slice(start, start + together)
            count = len(position[part])
            along = position[part].reshape(-1, *[1] * x.ndim)
            points = (x0 + along * (x - x0)).reshape(-1, *x.shape[1:])
            arguments = _arguments(np.tile(instance, count), inputs, targets, tokens)
            gradient, log_probs = step(points, *arguments)
            total = total + np.tensordot(weight[part], gradient.numpy().reshape(count, *x.shape), 1)
            at_nodes.append(log_probs.numpy().reshape(count, -1))
        moved = (total * (x - x0)).astype(np.float64)
        at_nodes = np.concatenate(at_nodes)
        np.add.at(of_cells, instance, (moved.sum(-1) if tokens else moved) / M)
        np.add.at(gained, instance, (at_nodes[-1] - at_nodes[-2]) / M)
    scores = pooled(of_cells, question.features)
    return scores, (steps + 2) * M, completeness(scores, gained)


@halving
def expected_gradients(
    question: Game,
    inputs: np.ndarray,
    targets: np.ndarray,
    instances: Sequence[int],
    seed: int,
    samples: int = 200,
) -> tuple[np.ndarray, np.ndarray, dict]:
    """(x - x0) · ∂ log p_target / ∂x at random points of random paths, averaged (Erion et al. 2021, eq. 4).

    x0: a row of the reference drawn for each sample, the one row where there is one; draws by (seed, instance). Of
    tokens, x and x0 are embeddings. As shap's GradientExplainer. Scores (n, d), evaluations (n,), and
    {"completeness_gap": (n,)}: |sum of scores - (F(x) - mean F(x0) of the rows drawn)| of F = log p_target. A large one
    is flagged.
    """
    slope = _slope(question.model, inputs, targets, check(question.model, inputs, "tensorflow"))
    return draws.expected(slope, question, inputs, instances, seed, samples)


@halving
def smooth_grad(
    question: Game,
    inputs: np.ndarray,
    targets: np.ndarray,
    instances: Sequence[int],
    seed: int,
    samples: int = 50,
    noise: float = 0.15,
) -> tuple[np.ndarray, int]:
    """Saliency of the mean gradient of noisy copies of an input (Smilkov et al. 2017); unsigned, and pooled alike.

    question: its model and its features.
    inputs, targets: (n, *input shape) and (n,).
    instances, seed: the noise is drawn by (seed, instance).
    samples: noisy copies of an input.
    noise: standard deviation as a fraction of the input's own range (of tokens, of their embeddings').

    Scores (n, d), evaluations per instance.
    """
    slope = _slope(question.model, inputs, targets, check(question.model, inputs, "tensorflow"))
    return draws.smooth(slope, question.features, inputs, instances, seed, samples, noise), samples


def _slope(model: Classifier, inputs: np.ndarray, targets: np.ndarray, tokens: bool) -> draws.Slope:
    """The model as `draws` asks it."""
    step = _step(model, inputs, tokens)

    def points_of(rows: np.ndarray) -> np.ndarray:
        return _points(model, rows, tokens)

    def gradient(at: np.ndarray, instance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        gradients, of_target = step(at, *_arguments(instance, inputs, targets, tokens))
        return gradients.numpy(), of_target.numpy()

    return draws.Slope(points_of, gradient, rows_of_a_pass(points_of(inputs[:1]).shape, model))


def _gradients(
    model: Classifier,
    inputs: np.ndarray,
    targets: np.ndarray,
    reduced: Callable[[np.ndarray, np.ndarray], np.ndarray],
    origins: np.ndarray | None = None,
) -> np.ndarray:
    """What `reduced` makes of (∂ log p_target / ∂x, x), (n, *input shape) float64; x: the embedding of tokens, less
    the mean of that of `origins` (n, M, *input shape), where these are given."""
    tokens, parts = np.issubdtype(inputs.dtype, np.integer), []
    step = _step(model, inputs, tokens)
    rows = rows_of_a_pass(_points(model, inputs[:1], tokens).shape, model)
    for start in range(0, len(inputs), rows):
        instance = np.arange(start, min(start + rows, len(inputs)))
        x = _points(model, inputs[instance], tokens)
        gradient, _ = step(x, *_arguments(instance, inputs, targets, tokens))
        if origins is not None:
            x = x - np.stack([_points(model, own, tokens).mean(0) for own in origins[instance]])
        parts.append(reduced(gradient.numpy(), x).astype(np.float64))
    return np.concatenate(parts)


def _arguments(instance: np.ndarray, inputs: np.ndarray, targets: np.ndarray, tokens: bool) -> list[np.ndarray]:
    """Targets, and the ids of tokens, as a step takes them."""
    return [given[instance].astype(np.int32) for given in (targets, inputs)[: 1 + tokens]]


def _points(model: Classifier, rows: np.ndarray, tokens: bool) -> np.ndarray:
    """What is differentiated by: rows (n, *input shape) as float32, or the embedding (n, length, e) of tokens."""
    if tokens:
        return np.asarray(model.module.embed(tf.constant(rows.astype(np.int32))), np.float32)
    return rows.astype(np.float32)


def _step(model: Classifier, inputs: np.ndarray, tokens: bool) -> Callable[..., tuple[tf.Tensor, tf.Tensor]]:
    """From points, targets and the ids of tokens to (∂ log p_target / ∂points, log p_target in float64).

    Traced once for all numbers of rows, and kept while the module lives.
    """
    kept = _STEPS.setdefault(model.module, {})
    shape = _points(model, inputs[:1], tokens).shape[1:]
    regression = model.task == "regression"
    if (tokens, shape, regression) in kept:
        return kept[tokens, shape, regression]
    alive = weakref.ref(model.module)
    of_tokens = [tf.TensorSpec([None, *inputs.shape[1:]], tf.int32)] if tokens else []

    @tf.function(input_signature=[tf.TensorSpec([None, *shape]), tf.TensorSpec([None], tf.int32), *of_tokens])
    def step(points, target, *ids):
        with tf.GradientTape() as tape:
            tape.watch(points)
            logits = alive().from_embedding(points, *ids) if tokens else alive()(points, training=False)
            logits = tf.cast(logits, tf.float64)
            log_probs = tf.reshape(logits, [-1, 1]) if regression else tf.nn.log_softmax(logits)
            log_probs = tf.gather(log_probs, target, batch_dims=1)
        return tape.gradient(log_probs, points), log_probs

    kept[tokens, shape, regression] = step
    return step


_STEPS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
