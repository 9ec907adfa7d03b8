"""Figures of an Explanation in the style of the report; matplotlib is imported when the first is drawn."""

import functools
import html
import io

import numpy as np
import pandas as pd

from shapeline.errors import ShapelineError, nearest
from shapeline.report.python import words

KINDS = ("bars", "waterfall", "summary", "overlay", "words", "pairs")
MAX_IMAGES, MAX_TEXTS = 8, 20  # in one figure


def add_png(drawn):
    """Return a figure that a notebook displays: IPython displays only those of pyplot, or with a PNG representation."""
    if not hasattr(drawn, "data"):  # coloured words are HTML
        drawn._repr_png_ = functools.partial(_png, drawn)
    return drawn


def _png(drawn) -> bytes:
    buffer = io.BytesIO()
    drawn.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def plot(explanation, kind: str | None = None):
    """Return the figure that `Explanation.plot` describes."""
    from shapeline.report.figures import explanations as figures

    kind = _fitting(explanation) if kind is None else kind
    if kind not in KINDS:
        raise ShapelineError(f"plot: unknown kind '{kind}'.{nearest(kind, KINDS)}")
    across = f"score ({words.VALUES.get(explanation.about.value, explanation.about.value)})"
    if kind in ("bars", "waterfall"):
        if len(explanation) != 1:
            raise ShapelineError(f"plot: '{kind}' shows one instance; select it, as in e[3].plot('{kind}')")
        _, scores, half = explanation.of(0)
        both = (explanation.value_empty[0], explanation.value_full[0])
        draw = figures.bars if kind == "bars" else figures.waterfall
        return draw(
            words.label_features(explanation, 0), scores, half, both, words.format_title(explanation, 0), across
        )
    if kind == "summary":
        table = explanation.summary()
        places = [explanation.about.names[0].index(name) for name in table.index]
        flat = explanation.scores.reshape(len(explanation), -1)[:, places]
        return figures.summary(list(table.index), flat, _shades(explanation, list(table.index)), across)
    if kind == "pairs":
        return _pairs(explanation)
    if kind == "overlay":
        return _overlay(explanation, figures)
    return _texts(explanation, figures)


def page(explanation) -> str:
    """Return the explanation as HTML for a notebook: its facts and its figure."""
    from shapeline.report import elements

    head = f"<p><b>{html.escape(words.headline(explanation))}</b></p>"
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td style='text-align:left'>{html.escape(text)}</td></tr>"
        for name, text in words.facts(explanation).items()
    )
    if not len(explanation) or not np.isfinite(explanation.scores).any():
        return f"<div>{head}<table>{rows}</table></div>"
    drawn = plot(explanation)
    vector = explanation.about.kind != "image"
    if not hasattr(drawn, "data"):
        drawn = elements.figure(drawn, words.format_explanation(explanation), vector=vector)
    return f"<div>{head}<table>{rows}</table>{drawn.data}</div>"


def _fitting(explanation) -> str:
    """Return the default kind of figure for the kind of data and the number of instances."""
    kind = explanation.about.kind
    known = bool(explanation.about.features) and explanation.about.features[0] is not None
    if kind == "image" and known and explanation.data is not None:
        return "overlay"
    if kind == "text":
        return "words"
    if len(explanation) == 1:
        return "bars"
    if not explanation._shares_names():
        raise ShapelineError("plot: instances have different features; select one, as in e[3].plot()")
    return "summary"


def _shades(explanation, names: list[str]) -> np.ndarray | None:
    """Return the rank of each value in its column, (n, d) in [0, 1], NaN where it is not a number."""
    values = explanation._values()
    if values is None:
        return None
    numbers = values.set_axis(list(explanation.about.names[0]), axis=1)[names].apply(
        lambda column: column if pd.api.types.is_numeric_dtype(column) else pd.Series(np.nan, column.index)
    )
    return numbers.astype(float).rank(pct=True).to_numpy()


def _overlay(explanation, figures):
    """Return score maps over images, without features whose interval includes 0."""
    if explanation.about.kind != "image" or explanation.data is None or not all(explanation.about.features):
        raise ShapelineError("plot: 'overlay' needs images with known features; use 'bars' or 'summary'")
    shown = range(min(len(explanation), MAX_IMAGES))
    maps = []
    for place in shown:
        _, scores, half = explanation.of(place)
        surely = scores if half is None else np.where(np.abs(scores) > np.nan_to_num(half), scores, 0.0)
        cells = explanation.about.features[place].cells[0]
        maps.append(np.where(cells < 0, 0.0, surely[cells]))
    names = [f"{explanation.about.instances[place]}: {explanation.target_names[place]}" for place in shown]
    rest = len(explanation) - len(maps)
    return figures.overlay(_to_images(explanation)[: len(maps)], names, maps, explanation.uncertainty is not None, rest)


def _to_images(explanation) -> np.ndarray:
    """Return the explained images as (n, channels, height, width); their channels may be last or missing."""
    data = np.asarray(explanation.data)
    if data.ndim == 3:
        return data[:, None]
    return data if data.shape[1:] == explanation.about.features[0].cells.shape else np.moveaxis(data, -1, 1)


def _pairs(explanation):
    """Return main effects and interactions of one instance: over an image, as arcs over words, else as a matrix."""
    from shapeline.report.figures import pairs as figures

    explanation.interactions()  # raises an error where there are none
    if len(explanation) != 1:
        raise ShapelineError("plot: 'pairs' shows one instance; select it, as in e[3].plot('pairs')")
    names, own, _ = explanation.of(0)
    both = explanation.pairs[0, : len(names) * (len(names) - 1) // 2]
    if explanation.pairs_uncertainty is not None:  # as the page does
        both = figures.told_from_zero(both, explanation.pairs_uncertainty[0, : len(both)])
    about, title = explanation.about, f"{explanation.about.instances[0]}: {explanation.target_names[0]}"
    unit = words.VALUES.get(about.value, about.value)
    features = about.features[0]
    if about.kind == "image" and explanation.data is not None and features is not None:
        image = np.asarray(_to_images(explanation), dtype=float)
        image = (image - image.min()) / max(float(image.max() - image.min()), 1e-12)
        return figures.network(image, [title], [features.cells[0]], [own], [both])
    if about.kind == "text":
        return figures.arcs(names, own, both, title, unit)
    return figures.matrix(words.label_features(explanation, 0), own, both, unit)


def _texts(explanation, figures):
    """Return coloured words; words whose interval includes 0 stay plain."""
    if explanation.about.kind != "text":
        raise ShapelineError("plot: 'words' needs texts; leave out the kind to get the default figure")
    shown = range(min(len(explanation), MAX_TEXTS))
    each = [
        (words.format_title(explanation, place), *explanation.of(place), _second(explanation, place)) for place in shown
    ]
    return figures.coloured_words(each, len(explanation) - len(each))


def _second(explanation, place: int) -> int | None:
    """Return the first word after special tokens between words, as in a pair of sentences."""
    features = explanation.about.features[place] if explanation.about.features else None
    if features is None:
        return None
    of_words = np.flatnonzero(features.cells >= 0)
    behind = of_words[1:][np.diff(of_words) > 1]
    return int(features.cells[behind[0]]) if len(behind) else None


def comparison(found):
    """Return the figure of `Comparison.plot`."""
    from shapeline.report.figures import explanations as figures

    if found.by is None:
        raise ShapelineError("plot: no metric could be computed; see `notes` for the reasons")
    labels = [label for label in found.table.index if label in found.values]
    costs = found.table["evaluations"][labels].to_numpy()
    likeness = found.agreement.loc[labels, labels].to_numpy()
    across = f"{found.criterion} ({'nats, ' if found.by == 'masking' else ''}lower is better)"
    return figures.trade_off(costs, found.values[labels].to_numpy(), labels, found.recommended, likeness, across)


def comparison_page(found) -> str:
    """Return a comparison as HTML for a notebook: the table, the recommendation and the figure."""
    from shapeline.report import elements

    sentences = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in found.list_findings())
    drawn = "" if found.by is None else elements.figure(comparison(found), "quality and cost of each method").data
    table = found.titled_table.to_html(float_format="{:.4g}".format, na_rep="–")
    return f"<div>{table}{sentences}{drawn}</div>"
