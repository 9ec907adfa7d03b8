"""Figures of an Explanation in the style of the report; matplotlib is imported when the first is drawn."""

import functools
import html
import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from shapeline.api import formatting
from shapeline.errors import ShapelineError
from shapeline.files import check_path

MAX_BYTES, BYTES_PER_SCORE = 300_000, 2.5  # of an explorer in a notebook, and least size of a score in it


def add_png(drawn):
    """Return a figure that a notebook displays: IPython displays only those of pyplot, or with a PNG representation."""
    from shapeline.report.elements import settle_style

    if not hasattr(drawn, "data"):  # coloured words are HTML
        settle_style(drawn)
        drawn._repr_png_ = functools.partial(_write_png, drawn)
    return drawn


def _write_png(drawn) -> bytes:
    buffer = io.BytesIO()
    drawn.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def facts(explanation) -> str:
    """Return the method, the value, the baseline and the cost as HTML."""
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td style='text-align:left'>{html.escape(text)}</td></tr>"
        for name, text in formatting.facts(explanation).items()
    )
    return f"<p><b>{html.escape(formatting.headline(explanation))}</b></p><table>{rows}</table>"


def static(explanation) -> str:
    """Return the default figure as HTML; "" where there is none."""
    from shapeline.api import plots
    from shapeline.report import elements

    if not len(explanation) or not np.isfinite(explanation.scores).any():
        return ""
    try:
        drawn = plots.plot(explanation)
    except ShapelineError:  # instances with different features have no common figure
        return ""
    vector = explanation.about.kind != "image"
    if not hasattr(drawn, "data"):
        drawn = elements.figure(drawn, formatting.format_explanation(explanation), vector=vector)
    return drawn.data


def page(explanation) -> str:
    """Return the explanation as HTML for a notebook: its facts, and the explorer where it is small, else a figure."""
    explored = _build_explorer({formatting.name_of(explanation): explanation}, static(explanation))
    return f"<div>{facts(explanation)}{explored}</div>"


def _build_explorer(found: Mapping, fallback: str, recommended: str | None = None) -> str:
    """Return an explorer of explanations with a static figure in it; the figure where the explorer would be large."""
    from shapeline.api import plots

    size = sum(each.scores.size for each in found.values())
    if size > MAX_BYTES / BYTES_PER_SCORE or not any(np.isfinite(each.scores).any() for each in found.values()):
        return fallback
    explored = plots.explore(found, recommended, fallback, links=False)
    return explored if len(explored) - len(fallback) <= MAX_BYTES else fallback


def write_page(title: str, head: str, found: Mapping, recommended: str | None, path: str | Path | None) -> str | None:
    """Return a page with the explorer of some explanations, or write it to a file."""
    from shapeline.api import plots

    first = found[recommended] if recommended in found else next(iter(found.values()))
    return save_page(title, head + plots.explore(found, recommended, static(first)), path)


def save_page(title: str, body: str, path: str | Path | None) -> str | None:
    """Return a page of HTML, or write it to a file."""
    from shapeline.report import rendering

    text = rendering.page(title, f"<h1>{html.escape(title)}</h1>{body}")
    if path is None:
        return text
    rendering.write(check_path("to_html", path), text)
    return None


def comparison(found):
    """Return the figure of `Comparison.plot`."""
    from shapeline.report.figures import explanations as figures

    if found.by is None:
        raise ShapelineError("plot: no metric could be computed; see `notes` for the reasons")
    entries = [entry for entry in found.table.index if entry in found.values]
    costs = found.table["evaluations"][entries].to_numpy()
    likeness = found.agreement.loc[entries, entries].to_numpy()
    across = f"{found.criterion} ({'nats, ' if found.by == 'deletion' else ''}lower is better)"
    return figures.trade_off(costs, found.values[entries].to_numpy(), entries, found.recommended, likeness, across)


def comparison_head(found) -> str:
    """Return the table and the recommendation of a comparison as HTML."""
    sentences = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in found.list_findings())
    table = found.titled_table.rename_axis("method").reset_index()
    table = table.to_html(
        float_format=lambda cell: formatting.format_number(cell, 3).replace("-", "−"), na_rep="–", index=False, border=0
    )
    return f'<div class="wide">{table}</div>{sentences}'


def comparison_page(found, explore: bool = True) -> str:
    """Return a comparison as HTML for a notebook: table, recommendation, figure, and the explorer where it is small."""
    from shapeline.report import elements

    drawn = "" if found.by is None else elements.figure(comparison(found), "quality and cost of each method").data
    explored = _build_explorer(found.every, "", found.recommended) if explore else ""
    return f"<div>{comparison_head(found)}{drawn}{explored}</div>"
