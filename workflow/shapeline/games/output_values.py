"""From the outputs of a model to the values of coalitions."""

import math

import numpy as np

VALUES = ("log_probability", "probability", "logit", "log_odds", "margin", "expected_log_probability")
PREDICTION = "prediction"  # the one value of a regression model


def score(
    outputs: np.ndarray, targets: np.ndarray, full: np.ndarray | None, value: str, logits: bool = True
) -> np.ndarray:
    """Logits (a, b, M, classes) of a block, or log-probabilities, to values (a, b); `full` (a, classes): probabilities
    on the input."""
    from scipy.special import log_softmax, logsumexp  # torch's jobs do without

    index = targets.reshape(-1, 1, 1, 1)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):  # check_finite names what is not finite
        outputs = outputs.astype(np.float64)
        if value in ("logit", PREDICTION):
            return np.take_along_axis(outputs, index, 3).mean((2, 3))
        log_probs = log_softmax(outputs, axis=3) if logits else outputs
        if value in ("log_probability", "probability"):
            log_probs = np.take_along_axis(log_probs, index, 3)
        if value == "margin":
            others = log_probs.copy()
            np.put_along_axis(others, index, -np.inf, 3)
            return (np.take_along_axis(log_probs, index, 3)[..., 0] - logsumexp(others, axis=3)).mean(2)
        average = log_probs[:, :, 0]
        if log_probs.shape[2] > 1:
            average = logsumexp(log_probs, axis=2) - math.log(log_probs.shape[2])
        if value == "log_probability":
            return average[..., 0]
        if value == "probability":
            return np.exp(average[..., 0])
        if value == "log_odds":
            of_target = np.take_along_axis(average, index[..., 0], 2)[..., 0]
            others = average.copy()
            np.put_along_axis(others, index[..., 0], -np.inf, 2)
            return of_target - logsumexp(others, axis=2)
        full = full[:, None]
        return np.where(full > 0, full * average, 0.0).sum(2)  # 0 log 0 is 0
