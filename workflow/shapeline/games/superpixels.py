"""Superpixels: regions of one image by a segmentation of scikit-image."""

import math

import numpy as np

from shapeline.errors import ShapelineError, nearest

# Of each segmentation: its parameters and their defaults, those of scikit-image and of LIME (Ribeiro et al. 2016).
SEGMENTATIONS = {
    "slic": {"segments": 50, "compactness": 10},
    "quickshift": {"kernel_size": 4, "max_distance": 200, "ratio": 0.2},
}


def check_segmentation(settings: dict) -> tuple[str, dict]:
    """The method of superpixels and its parameters, defaults filled in."""
    method = settings.get("method", "slic")
    if method not in SEGMENTATIONS:
        raise ShapelineError(f"features method '{method}': unknown.{nearest(method, SEGMENTATIONS)}")
    defaults = SEGMENTATIONS[method]
    for key in settings:
        if key not in ("kind", "method", *defaults):
            raise ShapelineError(f"features key '{key}': unknown for method '{method}'.{nearest(key, defaults)}")
    chosen = {key: settings.get(key, default) for key, default in defaults.items()}
    for key, number in chosen.items():
        if key == "segments":
            good, wanted = type(number) is int and number >= 1, "a whole number of 1 or more"
        else:
            least, wanted = (1, "a number of 1 or more") if key == "kernel_size" else (0, "a number above 0")
            good = type(number) in (int, float) and 0 < number < math.inf and number >= least
        if not good:
            raise ShapelineError(f"features key '{key}': {number!r} is out of range; give {wanted}.")
    return method, chosen


def cut_segments(x: np.ndarray, settings: dict) -> np.ndarray:
    """The segment 0..d-1 of each pixel, (height, width), of an image (channels, height, width)."""
    from skimage import segmentation

    method, chosen = check_segmentation(settings)
    if not np.isfinite(x).all():
        raise ShapelineError(
            "features kind 'superpixel': the image holds NaN or infinite numbers; replace them by numbers."
        )
    image = np.ascontiguousarray(np.moveaxis(x.astype(np.float64), 0, 2))
    if image.shape[2] == 1:
        # Grey as colour, so that one compactness, a distance in CIELAB, means the same for both.
        image = np.repeat(image, 3, axis=2)
    colour = image.shape[2] == 3
    if method == "slic":
        # The library scales an image to [0, 1]; CIELAB runs to 100.
        compactness = chosen["compactness"] / (1 if colour else 100)
        labels = segmentation.slic(image, n_segments=chosen["segments"], compactness=compactness, start_label=0)
    else:
        labels = segmentation.quickshift(
            image,
            ratio=chosen["ratio"],
            kernel_size=chosen["kernel_size"],
            max_dist=chosen["max_distance"],
            convert2lab=colour,
            rng=0,
        )
    return np.unique(labels, return_inverse=True)[1].reshape(labels.shape)
