"""A figure as vector graphics. How a text is measured and written is kept for the next figure: a page has the same
names in most of its own."""

import functools
import io
from collections.abc import Mapping

from matplotlib.backends.backend_mixed import MixedModeRenderer
from matplotlib.backends.backend_svg import RendererSVG
from matplotlib.figure import Figure
from matplotlib.textpath import TextToPath


class _Texts(TextToPath):
    """Texts as paths, each worked out once."""

    def __init__(self):
        super().__init__()
        self.get_text_width_height_descent = functools.cache(super().get_text_width_height_descent)
        self._glyphs = functools.cache(super().get_glyphs_with_font)

    def get_glyphs_with_font(self, font, s, glyph_map=None, return_new_glyphs_only=False, **how):
        placed, paths, boxes = self._glyphs(font, s, **how)
        known = glyph_map or {}
        return placed, {name: path for name, path in paths.items() if name not in known}, boxes


_TEXTS = _Texts()


def written(drawing: Figure, metadata: Mapping[str, str | None]) -> bytes:
    """What `savefig` writes of a figure whose parts have their places."""
    dpi, inches = drawing.dpi, drawing.get_size_inches()
    drawing.set_dpi(72)  # a point, which the renderer counts in
    buffer = io.StringIO()
    vectors = RendererSVG(*(72 * inches), buffer, image_dpi=dpi, metadata=metadata)
    vectors._text2path = _TEXTS
    renderer = MixedModeRenderer(drawing, *inches, dpi, vectors)  # of colour bars, which are pixels
    drawing.draw(renderer)
    renderer.finalize()
    return buffer.getvalue().encode()
