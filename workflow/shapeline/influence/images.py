"""A point moved along its influence until the eye sees it."""

import numpy as np

from shapeline.errors import ShapelineError


def shifted_picture(x, phi, amount: float = 0.3, low: float = 0.0, high: float = 1.0) -> np.ndarray:
    """x + t phi, clipped to [low, high] (Sliwinski et al. 2019, §8, Tables 1 to 3).

    x, phi (..., n), one image a row, same shape out, float64. t > 0 is such that the 95th percentile of the change,
    before clipping, is `amount` of the range; where phi is 0 the image stays.
    """
    x, phi = np.asarray(x, np.float64), np.asarray(phi, np.float64)
    if x.shape != phi.shape or not high > low:
        raise ShapelineError(f"shifted_picture: x {x.shape} and phi {phi.shape} must agree, and low be below high.")
    size = np.abs(phi)
    # A few pixels may hold all the influence: then their largest counts.
    reach = np.percentile(size, 95, axis=-1, keepdims=True)
    reach = np.where(reach > 0, reach, size.max(axis=-1, keepdims=True))
    step = np.divide(amount * (high - low), reach, out=np.zeros_like(reach), where=reach > 0)
    return np.clip(x + step * phi, low, high)
