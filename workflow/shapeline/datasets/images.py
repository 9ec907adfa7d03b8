"""Images in files: decoded as they are seen, in colour or grey, and brought to one size."""

import io
import struct
import warnings

import numpy as np

from shapeline.datasets.archive import USUAL, Limits
from shapeline.errors import ShapelineError, nearest

SUFFIXES = (".jpg", ".jpeg", ".png")
KEYS = ("size", "resize", "color", "on_decode_error")  # of a dataset's entry, where its source is images in files
WORDS = {"resize": ("resize", "crop"), "color": ("rgb", "grey"), "on_decode_error": ("stop", "skip")}
MODES = {"rgb": "RGB", "grey": "L"}
GREY, COLOUR, ALPHA = ("L", "1", "LA"), ("RGB", "P", "PA", "RGBA"), ("LA", "PA", "RGBA")


class Undecodable(ShapelineError):
    """The content of a file is no whole image."""


def check(settings: dict) -> None:
    """Check the keys of KEYS in a dataset's settings, without reading any image; raises ShapelineError."""
    for key, words in WORDS.items():
        if settings.get(key) is not None and settings[key] not in words:
            raise ShapelineError(f"dataset key '{key}': {settings[key]!r} is unknown.{nearest(settings[key], words)}")
    size = settings.get("size")
    if size is None:
        if settings.get("resize") is not None:
            raise ShapelineError("dataset key 'resize': it sets how images are resized; add size: [height, width].")
        return
    if not isinstance(size, list | tuple) or len(size) != 2 or not all(type(side) is int and side > 0 for side in size):
        raise ShapelineError(f"dataset key 'size': {size!r} is not a size; give [height, width] in pixels.")


def shape_of(settings: dict) -> tuple[int, int, int] | None:
    """Channels, height and width that the settings give to every image; None without `size`."""
    size = settings.get("size")
    return size and (1 if settings.get("color") == "grey" else 3, *size)


def decode(
    where: str,
    content: bytes,
    size: tuple[int, int] | None = None,
    resize: str = "resize",
    color: str = "rgb",
    limits: Limits = USUAL,
) -> np.ndarray:
    """Return a JPEG or PNG as (channels, height, width) uint8, turned as its camera says.

    size: of area-weighted bilinear interpolation; resize: "resize" changes the ratio of sides, "crop" cuts both
    ends; color: "rgb" refuses grey, "grey" is luma; limits: checked before decoding. Raises ShapelineError,
    Undecodable where the content is no whole image.
    """
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings(action="ignore", category=Image.DecompressionBombWarning):  # the limits decide
            image = Image.open(io.BytesIO(content), formats=("JPEG", "PNG"))
        limits.refuse_pixels(where, *image.size)
        image.load()
        image = ImageOps.exif_transpose(image)
    except (OSError, SyntaxError, ValueError, EOFError, struct.error, Image.DecompressionBombError) as error:
        reason = "neither JPEG nor PNG" if isinstance(error, Image.UnidentifiedImageError) else str(error)
        raise Undecodable(f"{where}: cannot be decoded ({reason})") from error
    if image.mode not in (*GREY, *COLOUR):
        raise ShapelineError(f"{where}: is of mode {image.mode}; save it as RGB or grey, 8 bits per channel.")
    if image.mode in GREY and color == "rgb":
        raise ShapelineError(f"{where}: is grey and colour is expected; set color: grey, or save the image as RGB.")
    if (image.mode in ALPHA or "transparency" in image.info) and image.convert("RGBA").getextrema()[3][0] < 255:
        raise ShapelineError(f"{where}: is transparent and no background is known; save it without transparency.")
    image = image.convert(MODES[color])
    if size is not None:
        height, width = size
        if resize == "crop":
            image = ImageOps.fit(image, (width, height), Image.Resampling.BILINEAR)
        elif image.size != (width, height):
            image = image.resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(np.moveaxis(pixels, 2, 0))
