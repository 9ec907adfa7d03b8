"""Explanations of generated answers: parts of a prompt by tokens of the answer."""

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from shapeline.report.colours import AGAINST, FOR, PAPER
from shapeline.report.styling import WIDTH, styled_names

LONGEST_PART, LONGEST_TOKEN = 34, 12  # characters of names at the axes
MOST_WIDTH = 16.0  # inches


@styled_names
def heat_map(parts: Sequence[str], tokens: Sequence[str], scores: np.ndarray) -> Figure:
    """Scores (d, T) of parts, one per row, for the tokens of the answer, one per column, in nats."""
    width = min(MOST_WIDTH, max(WIDTH * 0.6, 3.2 + 0.3 * len(tokens)))
    drawing = Figure(figsize=(width, 1.5 + 0.28 * len(parts)), layout="constrained")
    axes = drawing.subplots()
    limit = float(np.abs(scores).max(initial=0.0)) or 1.0
    colours = LinearSegmentedColormap.from_list("signs", [AGAINST, PAPER, FOR])
    drawn = axes.imshow(scores, cmap=colours, vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
    axes.set_yticks(range(len(parts)), [cut(part, LONGEST_PART) for part in parts])
    shown = [cut(token.replace("\n", "\\n"), LONGEST_TOKEN) for token in tokens]
    axes.set_xticks(range(len(tokens)), shown, rotation=60, ha="right")
    axes.set(xlabel="tokens of the answer", ylabel="parts of the prompt")
    axes.grid(False)
    axes.tick_params(length=0)
    drawing.colorbar(drawn, ax=axes, label="score (nats)")
    return drawing


def cut(text: str, most: int) -> str:
    """Return a text of at most so many characters, an ellipsis in the place of the rest."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
