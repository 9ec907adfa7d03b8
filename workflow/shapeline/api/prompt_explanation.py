"""The explanation of a generated answer by the parts of its prompt: read, drawn, and evaluated further."""

import html
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from shapeline.api import drawing
from shapeline.errors import ShapelineError, nearest
from shapeline.generation.game import PromptGame

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from shapeline.report.elements import HTML

LEVEL = 1.96  # half-widths of 95 % intervals to a standard error
KINDS = ("bars", "tokens", "text")
ROWS, WIDE = 12, 60  # parts that are printed, and characters of one


@dataclass(repr=False, eq=False)
class PromptExplanation:
    """Scores of the d parts of a prompt for an answer of T tokens, in nats of log-probability.

    Attributes
    ----------
    parts : tuple of str
        The removable parts of the prompt, d of them.
    answer : str
        The answer that is explained; contrast : the second answer, or None.
    answer_tokens : tuple of str
        What each of the T tokens shows; those of a contrasted answer follow with a minus.
    scores : ndarray of shape (d,)
        A part's contribution to log p(answer); (d, T) of ``value="token"``.
    standard_error : ndarray or None
        Of the shape of `scores`, 0 of exact values; None where the method gives none.
    tokens : ndarray of shape (d, T), or None
        Contributions to each answer token, from the same evaluations; rows add up to `scores`. None where the method
        gives none: ``value="token"`` asks gradient methods for them.
    value_full, value_empty : float
        The value with all parts and with none.
    method, evaluations, seconds
        How the scores were computed; `evaluations` are coalitions. warning : where an error target was not reached.
    masks, values : ndarray of shape (K, d) and (K, T)
        The evaluated coalitions and the log-probabilities of the tokens.
    game : PromptGame
        ``game.values(masks)`` evaluates further coalitions (K, d).
    """

    parts: tuple[str, ...]
    answer: str
    answer_tokens: tuple[str, ...]
    scores: np.ndarray
    standard_error: np.ndarray | None
    tokens: np.ndarray | None
    value_full: float
    value_empty: float
    method: str
    evaluations: int
    seconds: float
    masks: np.ndarray = field(repr=False)
    values: np.ndarray = field(repr=False)
    game: PromptGame = field(repr=False)
    contrast: str | None = None
    removal: str = "delete"
    value: str = "sum"
    is_own_answer: bool = False
    warning: str | None = None

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def totals(self) -> np.ndarray:
        """Scores (d,) of the whole answer, also of ``value="token"``."""
        return self.scores if self.scores.ndim == 1 else self.scores.sum(axis=1)

    @property
    def half_widths(self) -> np.ndarray | None:
        """Half-widths (d,) of 95 % intervals of the scores; None where unknown."""
        if self.standard_error is None or self.standard_error.ndim == 2 or np.isnan(self.standard_error).all():
            return None
        return LEVEL * self.standard_error

    def top(self, count: int = 3) -> list[str]:
        """Return the parts with the largest scores, the largest first."""
        return [self.parts[index] for index in np.argsort(-self.totals, kind="stable")[:count]]

    def to_frame(self) -> pd.DataFrame:
        """Return a row per part: part, score and half, the half-width of its 95 % interval (NaN where unknown)."""
        half = np.full(len(self), np.nan) if self.half_widths is None else self.half_widths
        return pd.DataFrame({"part": self.parts, "score": self.totals, "half": half})

    def tokens_frame(self) -> pd.DataFrame:
        """Return the contributions to each answer token: a row per part, a column per token."""
        return pd.DataFrame(
            self._list_token_scores(), index=pd.Index(self.parts, name="part"), columns=list(self.answer_tokens)
        )

    def plot(self, kind: str | None = None) -> "Figure | HTML":
        """Return a figure: "bars" of the parts with 95 % intervals (default), "tokens", a heat map of parts by answer
        tokens (default of ``value="token"``), or "text", the coloured parts."""
        from shapeline.report.figures import explanations, games

        kind = ("tokens" if self.scores.ndim == 2 else "bars") if kind is None else kind
        if kind not in KINDS:
            raise ShapelineError(f"plot: unknown kind '{kind}'.{nearest(kind, KINDS)}")
        names, half = [_short(part) for part in self.parts], self.half_widths
        if kind == "tokens":
            return drawing.add_png(games.heat_map(names, self.answer_tokens, self._list_token_scores()))
        if kind == "text":
            shown = [(self._headline(), self.parts, self.totals, half, None)]
            return explanations.colour_words(shown, what="the answer", feature="part")
        ends = (self.value_empty, self.value_full)
        return drawing.add_png(
            explanations.bars(names, self.totals, half, ends, self._headline(), f"score ({self.unit})")
        )

    def __repr__(self) -> str:
        own = " (the model's own)" if self.is_own_answer else ""
        lines = [f"{type(self).__name__}: {len(self)} parts by {self.method}, {self.evaluations} evaluations"]
        lines += [f"warning: {self.warning}"] if self.warning else []
        lines.append(f"answer{own}: {_short(self.answer, 100)}")
        if self.contrast is not None:
            lines.append(f"against: {_short(self.contrast, 100)}")
        lines.append(f"{self.unit}: {self.value_full:.4g} with all parts, {self.value_empty:.4g} without")
        half, order = self.half_widths, np.argsort(-np.abs(self.totals), kind="stable")
        for index in order[:ROWS]:
            within = "" if half is None or not half[index] else f" ± {half[index]:.2g}"
            lines.append(f"  {f'{self.totals[index]:+.4g}{within}':<18}  {_short(self.parts[index])}")
        if len(order) > ROWS:
            lines.append(f"  and {len(order) - ROWS} parts with smaller scores")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<div>{self._explore(links=False)}</div>"

    def to_html(self, path: str | Path | None = None) -> str | None:
        """Return a page with the interactive explorer of parts by answer tokens, or write it to a file."""
        return drawing.save_page("Explanation of an answer", self._explore(links=True), path)

    def _explore(self, links: bool) -> str:
        from shapeline.api import exploring

        head = f"<pre>{html.escape(repr(self).partition(chr(10) + '  ')[0])}</pre>"
        return head + exploring.explore_prompt(self, self.unit, self.plot("text")._repr_html_(), links)

    def _list_token_scores(self) -> np.ndarray:
        if self.tokens is None:
            raise ShapelineError(f"tokens: {self.method} gave no scores of answer tokens; see value='token'.")
        return self.tokens

    @property
    def unit(self) -> str:
        """What the scores add up to, in words."""
        if self.value == "function":
            return "value of the function"
        answer = "answer" if self.contrast is None else "answer) - log p(other answer"
        return f"{'mean ' * (self.value == 'mean')}log p({answer}), nats"

    def _headline(self) -> str:
        against = "" if self.contrast is None else f" against {_short(self.contrast, 40)}"
        return f"{_short(self.answer, 80)}{against}"


def _short(text: str, most: int = WIDE) -> str:
    """A text on one line, cut to its beginning."""
    return textwrap.shorten(" ".join(text.split()) or repr(text), most, placeholder=" ...")
