"""Figures of a report, and tables and notes as HTML: the notebook calls these, a line each.

Figures take data frames in the formats of the metric and score files and return a matplotlib Figure; `figure`, `table`
and `note` make HTML of what they are given. Numbers and sentences come from `shapeline.findings`.
"""

import base64
import functools
import html
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
import pandas as pd
import seaborn
from IPython.display import HTML
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import rgb_to_hsv
from matplotlib.figure import Figure

from shapeline import findings
from shapeline.findings import Results, number, scalars, share

PIXELS_PER_INCH = 96  # a browser's inch, so that a font size means the same in the page and in a figure
WIDTH = 1104 / PIXELS_PER_INCH  # inches: the text column of the page
STYLE = {
    **seaborn.axes_style("ticks"),
    "font.family": ["DejaVu Sans"],
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#666666",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "shapeline",
}
INK = "#1a1a1a"
FEW = 6  # more curves than this hide each other under their bands
DARK_INK = ("digits", "mnist")  # sources whose pictures store ink as bright
CONTROL_GREYS = ("#7d7d7d", "#4d4d4d", "#969696", "#666666")
CONTROL_DASHES = ((0, (1, 1.4)), (0, (4, 2)), (0, (5, 1.5, 1, 1.5)), (0, (2, 1)))
# A name stays legible where a line runs behind it. An outline of its letters would be a path each, 20 kB a name.
PLATE = {"boxstyle": "square,pad=0.05", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}
DASHES = ("-", (0, (6, 1.5)), (0, (6, 1.5, 1.5, 1.5)))
Answers = Iterable[tuple[str, str]]  # the answer in short, and what else is to be said of it
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "d")


@dataclass(frozen=True)
class Style:
    """How one label is drawn everywhere: colour, marker and dashes each tell it apart."""

    colour: str
    marker: str
    line: object
    width: float = 1.7
    control: bool = False

    @property
    def face(self) -> str:
        return "white" if self.control else self.colour

    @property
    def ink(self) -> tuple[float, float, float]:
        """The colour for text, dark enough to read on white."""
        red, green, blue = matplotlib.colors.to_rgb(self.colour)
        darker = min(1.0, 0.36 / max(0.2126 * red + 0.7152 * green + 0.0722 * blue, 0.01))
        return red * darker, green * darker, blue * darker


# ----------------------------------------------------------------------------------------------------------- styles


def palette(name: str | Sequence[str] = "colorblind") -> list[str]:
    """The colours of a seaborn palette that are neither grey (the controls' tone) nor too pale for white paper."""
    colours = np.array(seaborn.color_palette(name))
    luminance = colours @ [0.2126, 0.7152, 0.0722]
    saturation = rgb_to_hsv(colours)[:, 1]
    kept = colours[(luminance < 0.72) & (saturation > 0.15)]
    return [matplotlib.colors.to_hex(colour) for colour in kept]


def styles_of(results: Results) -> dict[str, Style]:
    """The styles of an experiment's labels, in the palette that its settings name."""
    return styles(results.labels, results.exact, results.settings.get("palette") or "colorblind")


def styles(
    labels: Mapping[str, dict], exact: str | None = None, colours: str | Sequence[str] = "colorblind"
) -> dict[str, Style]:
    """One style a label, by its place in the order: controls grey and dashed, the exact values black, others in colour.

    When the colours run out they start again with other dashes; markers run on, so no two labels look the same.
    """
    wheel = palette(colours)
    result: dict[str, Style] = {}
    coloured = controls = 0
    for position, (label, entry) in enumerate(labels.items()):
        marker = MARKERS[position % len(MARKERS)]
        if entry.get("is_control"):
            turn = controls % len(CONTROL_GREYS)
            result[label] = Style(CONTROL_GREYS[turn], marker, CONTROL_DASHES[turn], 1.5, control=True)
            controls += 1
        elif label == exact:
            result[label] = Style("#000000", marker, "-", 2.2)
        else:
            turn, place = divmod(coloured, len(wheel))
            result[label] = Style(wheel[place], marker, DASHES[turn % len(DASHES)])
            coloured += 1
    return result


def _styled(function: Callable) -> Callable:
    @functools.wraps(function)
    def inner(*arguments, **options):
        with matplotlib.rc_context(STYLE):
            return function(*arguments, **options)

    return inner


# ------------------------------------------------------------------------------------------------- pieces of HTML


def table(frame: pd.DataFrame, caption: str = "", text: Iterable[str] = (), header: bool = True) -> HTML:
    """A table of text; columns other than the first and those in `text` are aligned right; a cell with ⚠ stands out."""
    text = {frame.columns[0], *text} if len(frame.columns) else set()
    classes = ["text" if column in text else "number" for column in frame.columns]

    def cells(values: Iterable, tag: str) -> str:
        return "".join(
            f'<{tag} class="{kind}{" flag" if str(value).startswith("⚠") else ""}">{html.escape(str(value))}</{tag}>'
            for value, kind in zip(values, classes, strict=True)
        )

    head = f"<thead><tr>{cells(frame.columns, 'th')}</tr></thead>" if header else ""
    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in frame.itertuples(index=False, name=None))
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return HTML(
        f'<div class="wide"><table class="{"" if header else "facts"}">{title}{head}<tbody>{body}</tbody></table></div>'
    )


def note(text: str) -> HTML:
    """One line of explanation."""
    return HTML(f'<p class="note">{html.escape(text)}</p>')


def missing(metric: str) -> HTML:
    """The line that stands in for the figures of a metric that was not computed."""
    return note(f"No figures here: the metric “{metric}” was not computed in this experiment.")


def heading(text: str, level: int = 3) -> HTML:
    """The heading of a section (level 2), or inside one."""
    return HTML(f"<h{level}>{html.escape(text)}</h{level}>")


def together(*parts: HTML | None) -> HTML:
    """Several parts as one; None is left out."""
    return HTML("".join(part.data for part in parts if part is not None))


def pair(left: HTML, right: HTML) -> HTML:
    """Two tables side by side where the page is wide enough."""
    return HTML(f'<div class="pair"><div>{left.data}</div><div>{right.data}</div></div>')


@_styled
def figure(
    drawing: Figure | None, alt: str, caption: str = "", vector: bool = True, numbers: pd.DataFrame | None = None
) -> HTML | None:
    """A figure inside the page: vector graphics, or a picture at twice the screen's resolution; `alt` describes it.

    numbers: what is drawn, kept in the vector graphics as CSV, which `reports.write_parts` writes beside the figure;
    none where a compared metric's CSV has it all.
    """
    if drawing is None:
        return None
    buffer = io.BytesIO()
    if vector:
        told = {} if numbers is None else {"Description": numbers.to_csv(index=False, float_format="%.6g")}
        drawing.savefig(buffer, format="svg", metadata={"Date": None, **told})
    else:
        drawing.savefig(buffer, format="png", dpi=2 * PIXELS_PER_INCH)
    kind = "svg+xml" if vector else "png"
    width = round(drawing.get_figwidth() * PIXELS_PER_INCH)
    source = f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
    legend = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    image = f'<img width="{width}" alt="{html.escape(alt, quote=True)}" src="{source}">'
    return HTML(f'<figure><div class="wide">{image}</div>{legend}</figure>')


# ---------------------------------------------------------------------------------------------- parts of the page


def top(title: str, answers: Answers, sentences: Iterable[str], facts: Mapping[str, object]) -> HTML:
    """The first screen of a page: title, which method to take at what cost, what else was found, key figures."""
    items = [f"<li><b>{html.escape(short)}</b> {html.escape(more)}</li>" for short, more in answers]
    items += [f"<li>{html.escape(text)}</li>" for text in sentences]
    cells = "".join(f"<div><b>{value}</b><span>{name}</span></div>" for name, value in facts.items())
    return HTML(
        f'<h1>{html.escape(title)}</h1><ul class="headlines">{"".join(items)}</ul><div class="key">{cells}</div>'
    )


def header(results: Results, answers: Answers = ()) -> HTML:
    """The top of the page; answers: which method to take, and what else is to be said of it, before the others."""
    found = findings.headline(results)
    facts = {
        "test accuracy": share(found["accuracy"]) if found["accuracy"] is not None else "–",
        "test R²": number(found["r2"], 2),
        "instances explained": number(found["instances"]),
        "labels compared": number(len(results.labels)),
        "features (d)": number(results.d),
        "evaluations": number(found["evaluations"]),
        "failed rows": number(found["failures"]),
    }
    facts.pop("test R²" if found["r2"] is None else "test accuracy")
    if not results.model_card:
        facts.pop("test accuracy")
    return top(found["title"], answers, findings.headlines(results), facts)


def health(results: Results) -> HTML:
    """The health table and how to read it; without the columns that only a model's values fill."""
    shown = findings.health(results)
    if results.model_card:
        return together(table(shown, text=["failures", "flagged"]), health_note(results))
    kept = [
        name for name in ("label", "rows", "failures", "flagged", "zero scores", "ties at the cut") if name in shown
    ]
    return together(
        table(shown[kept], text=["failures", "flagged"]),
        note(
            f"Ties at the cut: points whose top {share(findings.CUT)} of the features is no clear set, because "
            "influences are equal. A ⚠ marks a failure."
        ),
    )


def health_note(results: Results) -> HTML:
    """How the columns of the health table are made."""
    return note(
        "Efficiency gap: how far the scores are from adding up to the value of the full input minus that of the empty "
        f"one. Ties at the cut: explanations whose top {share(findings.CUT)} of the features is no clear set, because "
        "scores are equal. A ⚠ marks a failure, or a gap where the method promises none."
    )


TIMED = {
    "batch": "The time is that of a batch over its instances, so it has no interval; it includes making the design and "
    "leaves out loading, calibration, cutting superpixels and one warm-up call.",
    "per_instance": "Each instance was timed alone; the interval is over instances. The time includes a share of "
    "making the design and leaves out loading, calibration, cutting superpixels and one whole warm-up.",
}


def cost_note(results: Results) -> HTML:
    """How the columns of the cost table are made."""
    budget, timed = results.settings.get("budget"), TIMED[results.settings.get("timing", "batch")]
    if not budget:
        return note(timed)
    return note(
        f"The budget is {number(budget)} d = {number(budget * results.d)} evaluations per instance, the empty and the "
        "full input among them. Sampled methods spend it; the others have a cost of their own, marked where above. "
        + timed
    )


def masking_section(results: Results) -> HTML:
    """Curves, a panel a method, areas, and a table of both; one line where the metric is missing."""
    frame, drawn = results.metrics.get("log_odds"), styles_of(results)
    if frame is None or frame.empty:
        return missing("log_odds")
    few = sum(label in set(frame["label"]) for label in results.labels) <= FEW
    bands = "bands are 95 % intervals" if few else "their intervals are in the panels below"
    return together(
        figure(
            curves(frame, drawn),
            "Masking and insertion curves of every method",
            f"Means over instances; {bands}. Controls are grey and dashed with hollow markers"
            + (f"; {results.truth} black." if results.exact else "."),
        ),
        heading("One method at a time"),
        figure(
            curve_panels(frame, drawn),
            "Masking curve of each method in front of all the others",
            "The masking curve of each method with its 95 % interval, all others in grey; lower is better, best area "
            "first.",
        ),
        heading("Areas"),
        figure(
            areas(frame, drawn),
            "Areas under the masking and insertion curves with 95 % intervals",
            "Mean height of each curve with its 95 % interval. Dotted line: the best control.",
        ),
        table(findings.area_table(results)),
    )


def interval_note(results: Results) -> HTML:
    """What the intervals cover, which depends on how many designs were drawn."""
    repeats = max((frame["repeat"].nunique() for frame in results.scores.values()), default=1)
    several = "picture" in results.instances
    text = "The number of a picture is the mean over those of its labels that have one. " * several + (
        "Intervals are 95 % bootstrap intervals over instances. All methods explain the same instances, so one can win "
        "on nearly every instance and still overlap with another. "
    )
    if repeats >= 3:
        more = (
            f"Sampled methods were repeated with {repeats} designs, and the intervals include which were drawn; the "
            "p-values of differences hold the mean over designs fixed."
        )
    else:
        more = (
            "They hold the sampled design fixed: another seed can move a sampled method by more than its interval. "
            "With repeats, each instance is the mean over several designs."
        )
    return note(text + more)


# ------------------------------------------------------------------------------------------------------------ curves


PANELS = {
    "masking": ("Masking (lower is better)", "top features masked (%)", "change of log-odds (nats)"),
    "insertion": (
        "Insertion (higher is better)",
        "top features kept, all others filled (%)",
        "change of log-odds (nats)",
    ),
}
SCALARS = {  # title, unit (None: that of the value), whether higher is better
    "masking_area": ("Masking area", "nats", False),
    "insertion_area": ("Insertion area", "nats", True),
    "rmse": ("RMSE", None, False),
    "spearman": ("Spearman correlation", "rank correlation", True),
    "top_k_overlap": ("Top-k overlap", "share of the exact top k", True),
}


@_styled
def curves(frame: pd.DataFrame, styles: Mapping[str, Style]) -> Figure | None:
    """Masking and insertion curves of all labels, a few with their intervals as bands; None without a curve."""
    quantities = [name for name in PANELS if (frame["quantity"] == name).any()]
    if not quantities:
        return None
    labels = _ranked(frame, styles, f"{quantities[0]}_area", highest=quantities[0] == "insertion")
    drawing = Figure(figsize=(WIDTH, 4.6), layout="constrained")
    panels = drawing.subplots(1, len(quantities), squeeze=False)[0]
    for axes, quantity in zip(panels, quantities, strict=True):
        title, across, up = PANELS[quantity]
        for label in labels:
            draw_curve(
                axes, line_of(frame, quantity, label), styles[label], label, band=0.12 if len(labels) <= FEW else 0.0
            )
        axes.set(title=title, xlabel=across, ylabel=up)
        axes.margins(x=0.02)
    handles, names = panels[0].get_legend_handles_labels()
    heading = "best area first"
    drawing.legend(
        handles, names, loc="outside right upper", title=heading, alignment="left", handlelength=3.2, labelspacing=0.7
    )
    return drawing


@_styled
def curve_panels(frame: pd.DataFrame, styles: Mapping[str, Style], quantity: str = "masking") -> Figure | None:
    """One small panel a label: its curve and interval in front of all the others in grey; None without the curve."""
    if not (frame["quantity"] == quantity).any():
        return None
    labels = _ranked(frame, styles, f"{quantity}_area", highest=quantity == "insertion")
    columns = min(len(labels), min((4, 5), key=lambda count: -len(labels) % count))  # the fewer empty places
    rows = math.ceil(len(labels) / columns)
    drawing = Figure(figsize=(WIDTH, 0.6 + 1.85 * rows), layout="constrained")
    panels = drawing.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    lines = {label: line_of(frame, quantity, label) for label in labels}
    for place, axes in enumerate(panels.flat):
        if place >= len(labels):
            axes.set_visible(False)
            continue
        for line in lines.values():
            axes.plot(100 * line["x"], line["mean"], color="#d9d9d9", linewidth=0.8)
        label = labels[place]
        draw_curve(axes, lines[label], styles[label], label, band=0.3)
        axes.set_title(_wrapped(label, WIDTH / columns - 0.3), color=styles[label].ink, fontsize=9.5)
        if place + columns >= len(labels):
            axes.tick_params(labelbottom=True)
    drawing.supxlabel(PANELS[quantity][1], fontsize=9.5)
    drawing.supylabel(PANELS[quantity][2], fontsize=9.5)
    return drawing


def line_of(frame: pd.DataFrame, quantity: str, label: str) -> pd.DataFrame:
    return frame[(frame["quantity"] == quantity) & (frame["label"] == label)].sort_values("x")


def draw_curve(axes: Axes, line: pd.DataFrame, style: Style, label: str, band: float) -> None:
    across = 100 * line["x"]
    axes.fill_between(across, line["low"], line["high"], color=style.colour, alpha=band, linewidth=0)
    axes.plot(
        across,
        line["mean"],
        color=style.colour,
        linestyle=style.line,
        linewidth=style.width,
        marker=style.marker,
        markersize=4.5,
        markevery=max(1, len(line) // 8),
        markerfacecolor=style.face,
        label=label,
    )


def _ranked(frame: pd.DataFrame, styles: Mapping[str, Style], quantity: str, highest: bool = False) -> list[str]:
    """The labels present, best first by the quantity (those without it last, in their own order)."""
    present = [label for label in styles if label in set(frame["label"])]
    means = scalars(frame, quantity)["mean"]
    worst = -np.inf if highest else np.inf
    return sorted(present, key=lambda label: means.get(label, worst), reverse=highest)


# -------------------------------------------------------------------------------------------------------- dot plots


@_styled
def areas(frame: pd.DataFrame, styles: Mapping[str, Style]) -> Figure | None:
    """Masking and insertion areas with intervals, best masking area on top; the best control as a dotted line."""
    return _dots(frame, styles, ["masking_area", "insertion_area"])


@_styled
def errors(
    frame: pd.DataFrame, styles: Mapping[str, Style], exact: str | None = None, unit: str = "nats"
) -> Figure | None:
    """RMSE, rank correlation and top-k overlap with the exact values, with intervals, lowest RMSE on top."""
    others = frame[frame["label"] != exact]
    return _dots(others, styles, ["rmse", "spearman", "top_k_overlap"], unit)


def error_section(results: Results) -> HTML:
    """The whole section on error to the exact values, heading included; empty where no label is exact."""
    exact, frame, unit = results.exact, results.metrics.get("error"), results.value_unit
    if not exact:
        return HTML("")
    title = heading(f"Error to {results.truth}", 2)
    if frame is None or frame.empty:
        return together(title, missing("error"))
    drawn, budget = styles_of(results), results.settings.get("budget")
    spent = None if budget is None else budget * results.d
    return together(
        title,
        figure(
            errors(frame, drawn, exact, unit),
            f"RMSE, rank correlation and top-k overlap with the scores of {exact}",
            f"Distance to the scores of {exact}: mean over instances, 95 % intervals. Dotted line: the best control.",
        ),
        figure(
            error_by_cost(frame, drawn, findings.evaluations(results), exact, unit, spent),
            "RMSE against evaluations per instance",
            "Lower left is better: a small error for few evaluations. Vertical bars are 95 % intervals.",
            numbers=by_cost(scalars(frame, "rmse"), evaluations=findings.evaluations(results)),
        ),
        convergence_section(results, frame),
    )


def by_cost(rows: pd.DataFrame, **costs: pd.Series) -> pd.DataFrame:
    """What a figure of a quantity against costs draws: label, each cost, mean, low, high; rows as of `scalars`."""
    each = {name: cost.reindex(rows.index) for name, cost in costs.items()}
    return (
        rows[["mean", "low", "high"]].assign(**each)[[*each, "mean", "low", "high"]].rename_axis("label").reset_index()
    )


BUDGET_PANELS = {  # quantity -> title, whether it is a square whose root is drawn
    "rmse_by_budget": ("RMSE", False),
    "bias_squared_by_budget": ("Bias", True),
    "variance_by_budget": ("Standard deviation over repeats", True),
}


def convergence_section(results: Results, frame: pd.DataFrame) -> HTML | None:
    """Error against the budget, bias and spread apart, and the best label at each budget; None without snapshots."""
    drawing = convergence(frame, styles_of(results), results.value_unit)
    if drawing is None:
        return None
    caption = (
        "Lower is better; bands are 95 % intervals over instances and, from three repeats on, draws. Error squared is "
        "bias squared plus variance; the bias needs repeats, and is drawn where its square is above 0 (its estimate "
        "scatters round 0 for an unbiased estimator)."
    )
    return together(
        HTML("<h3>Convergence</h3>"),
        figure(drawing, f"Error to {results.truth} against the budget, bias and standard deviation apart", caption),
        table(findings.best_by_budget(results), "Best at each budget", text=["smallest error", "next", "told apart"]),
    )


@_styled
def convergence(frame: pd.DataFrame, styles: Mapping[str, Style], unit: str = "nats") -> Figure | None:
    """RMSE, bias and standard deviation against the budget (a multiple of d), both axes logarithmic."""
    found = {name: panel for name, panel in BUDGET_PANELS.items() if (frame["quantity"] == name).any()}
    if not found:
        return None
    drawing = Figure(figsize=(WIDTH, 3.9), layout="constrained")
    panels = drawing.subplots(1, len(found), squeeze=False, sharey=True)[0]
    for axes, (quantity, (title, squared)) in zip(panels, found.items(), strict=True):
        for label, style in styles.items():
            line = line_of(frame, quantity, label)
            line = line[line["mean"] > 0]
            if line.empty:
                continue
            low, middle, high = (line[key].clip(lower=0) ** (0.5 if squared else 1) for key in ("low", "mean", "high"))
            low = low.where(low > 0, middle)
            if "bias" in quantity:  # what lies below 0 is missing: no line across it
                axes.plot(line["x"], middle, style.marker, color=style.colour, markersize=5)
                axes.vlines(line["x"], low, high, color=style.colour, alpha=0.4)
                continue
            axes.plot(line["x"], middle, style.marker, linestyle="-", color=style.colour, markersize=5, label=label)
            axes.fill_between(line["x"], low, high, color=style.colour, alpha=0.15, linewidth=0)
        axes.set(xscale="log", yscale="log", title=title, xlabel="budget (evaluations / d)")
        ticks = sorted(frame.loc[frame["quantity"] == quantity, "x"].unique())
        axes.set_xticks(ticks, [number(tick) for tick in ticks])
        axes.minorticks_off()
    panels[0].set_ylabel(unit)
    drawing.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=9)
    return drawing


def _dots(
    frame: pd.DataFrame, styles: Mapping[str, Style], quantities: Sequence[str], unit: str = "nats"
) -> Figure | None:
    found = [name for name in quantities if len(scalars(frame, name))]
    if not found:
        return None
    labels = _ranked(frame, styles, found[0], highest=SCALARS[found[0]][2])
    drawing = Figure(figsize=(WIDTH, 1.1 + 0.29 * len(labels)), layout="constrained")
    panels = drawing.subplots(1, len(found), sharey=True, squeeze=False)[0]
    for axes, quantity in zip(panels, found, strict=True):
        dot_panel(axes, scalars(frame, quantity), styles, labels, *SCALARS[quantity], unit)
    panels[0].set_yticks(range(len(labels)), labels)
    panels[0].set_ylim(len(labels) - 0.4, -0.6)
    return drawing


def dot_panel(
    axes: Axes,
    rows: pd.DataFrame,
    styles: Mapping[str, Style],
    labels: list[str],
    title: str,
    across: str | None,
    higher: bool,
    unit: str,
) -> None:
    beside = axes.get_yaxis_transform()
    for place, label in enumerate(labels):
        if label in rows.index:
            row, style = rows.loc[label], styles[label]
            axes.plot([row["low"], row["high"]], [place, place], color=style.colour, linewidth=2, solid_capstyle="butt")
            axes.plot(row["mean"], place, style.marker, color=style.colour, markerfacecolor=style.face, markersize=6.5)
            axes.text(
                1.02, place, number(row["mean"], whole=False), transform=beside, va="center", fontsize=8.5, color=INK
            )
    controls = rows.loc[[label for label in rows.index if styles[label].control], "mean"]
    if len(controls):
        best = controls.max() if higher else controls.min()
        axes.axvline(best, color="#5f5f5f", linestyle=(0, (1, 2)), linewidth=1.1, zorder=0)
    if not higher and wide(rows):
        axes.set_xscale("log")
    axes.set(title=title, xlabel=f"{across or unit}, {'higher' if higher else 'lower'} is better")
    axes.grid(axis="y", linewidth=0.4)
    axes.tick_params(axis="y", length=0)


def wide(rows: pd.DataFrame) -> bool:
    """Whether the values are positive and span so much that only a logarithmic axis shows them all."""
    return bool((rows["low"] > 0).all() and rows["mean"].max() > 30 * rows["mean"].min())


@_styled
def error_by_cost(
    frame: pd.DataFrame,
    styles: Mapping[str, Style],
    evaluations: pd.Series,
    exact: str | None = None,
    unit: str = "nats",
    budget: float | None = None,
) -> Figure | None:
    """RMSE to the exact values against evaluations per instance, every point named; `budget` counts evaluations."""
    rows = scalars(frame[frame["label"] != exact], "rmse")
    rows = rows.loc[[label for label in styles if label in rows.index and np.isfinite(evaluations.get(label, np.nan))]]
    if rows.empty:
        return None
    drawing = Figure(figsize=(WIDTH, 4.4), layout="constrained")
    axes = drawing.subplots()
    spent = np.array([evaluations[label] for label in rows.index])
    if wide(rows):
        axes.set_yscale("log")
    for across, (label, row) in zip(spent, rows.iterrows(), strict=True):
        style = styles[label]
        axes.plot([across, across], [row["low"], row["high"]], color=style.colour, linewidth=1.8)
        axes.plot(across, row["mean"], style.marker, color=style.colour, markerfacecolor=style.face, markersize=7.5)
    evaluations_axis(axes, max(spent.max(), evaluations.get(exact, 0) if exact else 0))
    marks = [(budget, "budget")] if budget else []
    if exact in evaluations.index:
        marks.append((evaluations[exact], f"{exact} (error 0)"))
    for place, (across, text) in enumerate(marks):
        _marker_line(axes, across, text, place)
    axes.set_ylabel(f"RMSE to {exact or 'the exact values'} ({unit})")
    name_points(axes, spent, rows, styles)
    return drawing


def evaluations_axis(axes: Axes, top: float) -> None:
    """An axis of evaluations from 0, then logarithmic, to `top`."""
    axes.set_xscale("symlog", linthresh=1, linscale=0.25)
    ticks = [0, *(10**power for power in range(0, math.ceil(math.log10(max(top, 10))) + 1))]
    axes.set_xticks(ticks, [number(tick) for tick in ticks])
    axes.set_xlim(-0.3, max(top, 1) * 2.2)
    axes.minorticks_off()
    axes.set_xlabel("model evaluations per instance (0, then logarithmic)")


def _marker_line(axes: Axes, across: float, text: str, row: int) -> None:
    """A dotted line at a number of evaluations; its name at the top, each in a row of its own as lines may coincide."""
    axes.axvline(across, color="#8a8a8a", linestyle=(0, (1, 2)), linewidth=1.1, zorder=0)
    place = {"xycoords": ("data", "axes fraction"), "xytext": (-4, -2 - 13 * row), "textcoords": "offset points"}
    axes.annotate(text, (across, 1), **place, ha="right", va="top", fontsize=8, color="#5f5f5f")


def name_points(
    axes: Axes,
    across: np.ndarray,
    rows: pd.DataFrame,
    styles: Mapping[str, Style],
    spans: np.ndarray | None = None,
) -> None:
    """Write each name beside its point, at the first place around it that covers no point, no bar and no other name.

    spans: ends (n, 2) of level bars through the points, NaN for none.
    """
    FigureCanvasAgg(axes.figure)  # without a canvas every look at a text's extent would set up a renderer anew
    axes.figure.draw_without_rendering()  # fixes the layout, so that places on the page are known
    low, middle, high = (
        axes.transData.transform(np.column_stack([across, rows[key]])) for key in ("low", "mean", "high")
    )
    frame = axes.get_window_extent()
    taken = [(x - 7, y - 7, x + 7, y + 7) for x, y in middle]
    taken += [(x - 2, bottom, x + 2, top) for (x, bottom), (_, top) in zip(low, high, strict=True)]
    for span, (_, y) in zip(spans if spans is not None else (), middle, strict=False):
        if np.isfinite(span).all():
            (left, _), (right, _) = axes.transData.transform(np.column_stack([span, [axes.get_ylim()[0]] * 2]))
            taken.append((left - 2, y - 2, right + 2, y + 2))
    taken += [text.get_window_extent().extents for text in axes.texts]
    offsets = [(8, 0), (-8, 0), (0, 10), (0, -10)]
    offsets += [(side * 9, step) for step in (10, -10, 20, -20, 30, -30, 42, -42, 56, -56) for side in (1, -1)]
    for place in np.lexsort([-middle[:, 1], middle[:, 0]]):
        label, point = rows.index[place], (across[place], rows["mean"].iloc[place])
        style = {"va": "center", "fontsize": 9, "color": styles[label].ink, "bbox": PLATE}
        for right, above in offsets:
            side = "left" if right > 0 else "right" if right < 0 else "center"
            text = axes.annotate(label, point, xytext=(right, above), textcoords="offset points", ha=side, **style)
            box = text.get_window_extent()
            inside = frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1
            free = all(box.x1 < x0 or box.x0 > x1 or box.y1 < y0 - 1 or box.y0 > y1 + 1 for x0, y0, x1, y1 in taken)
            if (inside and free) or (right, above) == offsets[-1]:
                break
            text.remove()
        taken.append((box.x0, box.y0, box.x1, box.y1))
        if abs(above) > 10:
            leader = {"arrowstyle": "-", "color": "#b0b0b0", "linewidth": 0.7, "shrinkA": 0, "shrinkB": 4}
            axes.annotate("", point, xytext=(right, above), textcoords="offset points", arrowprops=leader)


# ---------------------------------------------------------------------------------------------------------- instances


UNSIGNED, ONE_SIDED = ("saliency", "smooth_grad", "counterfactual"), ("grad_cam", "h_shap")


def signless(results: Results) -> str:
    """What a caption with colours of signs says, in brackets, of the labels whose scores lack one or both of them."""
    without, positive = [], []
    for label in results.scores:
        entry = results.labels[label]
        if entry["method"] in UNSIGNED:
            without.append(label)
        elif entry["method"] in ONE_SIDED and not (entry.get("parameters") or {}).get("signed"):
            positive.append(label)
    said = [("without a sign", without), ("only what is positive", positive)]
    listed = "; ".join(f"{words}: {', '.join(labels)}" for words, labels in said if labels)
    return listed and f" ({listed})"


def explanations(results: Results) -> HTML:
    """The scores of a few instances by all labels side by side: maps for an image, a table of features otherwise."""
    picked = findings.chosen(results.instances, int(results.settings.get("instances_shown") or 4))
    values = {label: findings.scores_of(frame, picked["instance"]) for label, frame in results.scores.items()}
    names = [findings.instance_name(results, row) for row in picked.to_dict("records")]
    if results.dataset_card["kind"] == "image":
        images = results.dataset.inputs[findings.positions(results.dataset, picked)]
        signs = f"speaks for {findings.explained_class(results)}, blue against it"
        if results.dataset_card.get("task") == "regression":
            signs = "raises the prediction, blue lowers it"
        caption = (
            f"Red {signs}{signless(results)}. Every map is scaled by its "
            "own largest magnitude, written below it: compare places within a map, not colours between maps."
            f"{findings.rows_shown(results)}"
        )
        cells = [results.features_of(image).cells[0] for image in images]
        drawing = heat_maps(images, names, values, cells, tone=tone_of(results.dataset_card))
        return figure(drawing, "Score maps of a few instances, one column a method", caption, vector=False)
    columns = findings.feature_names(results)
    return HTML("".join(_instance_table(results, values, columns, place, name) for place, name in enumerate(names)))


def _instance_table(results: Results, values: Mapping[str, list], columns: Sequence[str], place: int, name: str) -> str:
    drawing = score_table({label: scores[place] for label, scores in values.items()}, columns, results.value_unit)
    title = html.escape(name.replace("\n", ", "))
    numbers = pd.DataFrame({label: scores[place] for label, scores in values.items()}, columns)
    alt = f"Scores of every feature by every method: {title}"
    return f"<h3>{title}</h3>" + figure(drawing, alt, numbers=numbers.rename_axis("feature").reset_index()).data


@_styled
def heat_maps(
    images: np.ndarray,
    names: Sequence[str],
    values: Mapping[str, Sequence[np.ndarray | None]],
    cells: Sequence[np.ndarray],
    columns: int = 9,
    tone: str = "gray",
) -> Figure:
    """Score maps of a few instances: a row an instance, the image first, then a column a label.

    images: (n, channels, height, width) in [0, 1]; names: n texts; values: label -> n arrays (d,) or None for a
    failure; cells: n times (height, width), the feature that owns each pixel, -1 for none; tone: of grey images. More
    labels than `columns` go on in a further block of rows.
    """

    def draw(axes: Axes, row: int, label: str | None) -> None:
        if label is None:
            axes.imshow(picture(images[row]), cmap=tone, vmin=0, vmax=1, interpolation="nearest")
        else:
            _map(axes, values[label][row], cells[row])

    return picture_grid(names, list(values), draw, columns)


@_styled
@matplotlib.rc_context({"axes.grid": False})  # no picture shows its lines, and making them takes long
def picture_grid(
    names: Sequence[str], labels: Sequence[str], draw: Callable[[Axes, int, str | None], None], columns: int = 9
) -> Figure:
    """Small pictures: a row a name, its own picture first, then a column a label; draw(axes, row, label or None).

    More labels than `columns` go on in a further block of rows.
    """
    blocks = math.ceil(len(labels) / columns)
    columns = math.ceil(len(labels) / blocks)
    longest = max((len(line) for name in names for line in name.split("\n")), default=0)
    left = min(max(1.30, 0.2 + 0.062 * longest), 2.4)  # inches: the names
    gap, titles, under = 0.10, 0.50, 0.20  # between panels, above a block, below a map
    side = min(1.25, (WIDTH - left) / (columns + 1) - gap)
    block = titles + len(names) * (side + under)
    drawing = Figure(figsize=(WIDTH, blocks * block + 0.05))
    high = drawing.get_figheight()

    def panel(row: int, column: int, part: int) -> Axes:
        bottom = high - part * block - titles - row * (side + under) - side
        place = ((left + column * (side + gap)) / WIDTH, bottom / high, side / WIDTH, side / high)
        axes = drawing.add_axes(place)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set(visible=True, color="#c4c4c4", linewidth=0.6)
        return axes

    for part in range(blocks):
        for row, name in enumerate(names):
            axes = panel(row, 0, part)
            draw(axes, row, None)
            axes.annotate(
                name, (0, 0.5), xycoords="axes fraction", xytext=(-8, 0), textcoords="offset points", ha="right",
                va="center", fontsize=8, linespacing=1.35,
            )  # fmt: skip
            for column, label in enumerate(labels[part * columns : (part + 1) * columns], start=1):
                axes = panel(row, column, part)
                if row == 0:
                    axes.set_title(_wrapped(label, side), loc="center", fontsize=8.5, fontweight="normal", pad=5)
                draw(axes, row, label)
    return drawing


def tone_of(card: Mapping) -> str:
    """The colour map of a dataset's grey pictures: ink is dark on light paper, others are shown as they are."""
    return "gray_r" if card.get("source") in DARK_INK else "gray"


def picture(image: np.ndarray) -> np.ndarray:
    return image[0] if len(image) == 1 else np.moveaxis(image, 0, -1).clip(0, 1)


def _map(axes: Axes, scores: np.ndarray | None, cells: np.ndarray) -> None:
    if scores is None:
        write_failed(axes)
        return
    size = np.abs(scores).max()
    limit = size if size > 0 else 1.0
    axes.imshow(
        np.where(cells < 0, np.nan, scores[cells]), cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest"
    )
    axes.set_xlabel(f"± {number(size)}", fontsize=7.5, color="#5f5f5f", labelpad=2)


def write_failed(axes: Axes) -> None:
    """Say in place of a picture that the method failed."""
    axes.text(0.5, 0.5, "failed", ha="center", va="center", fontsize=8, color="#9a3a00", transform=axes.transAxes)


def _wrapped(label: str, width: float) -> str:
    """The label on up to three lines, broken after its underscores where it is wider than its column (inches)."""
    limit, lines = max(8, int(width / 0.07)), [""]
    for word in label.replace("_", "_ ").replace("-", "- ").split(" "):
        if lines[-1] and len(lines[-1]) + len(word.rstrip("_")) > limit:
            lines.append("")
        lines[-1] += word
    return "\n".join(lines[:3])


@_styled
def score_table(
    values: Mapping[str, np.ndarray | None], names: Sequence[str], unit: str = "nats", most: int = 16
) -> Figure:
    """A heat table of one instance: a row a feature, a column a label, the score written in each cell.

    values: label -> (d,) scores, or None for a failure; names: d texts. Colours are scaled a column; with more than
    `most` features only the largest by mean rank of magnitude are shown.
    """
    labels = list(values)
    scores = np.column_stack([np.full(len(names), np.nan) if row is None else row for row in values.values()])
    size = np.abs(scores)
    order = np.argsort(-pd.DataFrame(size).rank().mean(axis=1).to_numpy(), kind="stable")[:most]
    limits = np.where(np.nan_to_num(size).max(axis=0) > 0, np.nan_to_num(size).max(axis=0), 1.0)
    rows = len(order)
    drawing = Figure(figsize=(WIDTH, 0.75 + 0.25 * rows), layout="constrained")
    axes = drawing.subplots()
    shades = axes.imshow(
        scores[order] / limits, cmap="RdBu_r", vmin=-1.15, vmax=1.15, aspect="auto", interpolation="nearest"
    )
    colours = shades.to_rgba(shades.get_array())
    for (row, column), score in np.ndenumerate(scores[order]):
        text, ink = ("failed", "#9a3a00") if np.isnan(score) else (number(score, 2, whole=False), INK)
        dark = not np.isnan(score) and colours[row, column, :3] @ [0.2126, 0.7152, 0.0722] < 0.45
        axes.text(column, row, text, ha="center", va="center", fontsize=8.5, color="white" if dark else ink)
    axes.set_xticks(range(len(labels)), [_wrapped(label, 9.5 / len(labels)) for label in labels])
    axes.set_yticks(range(rows), [names[place] for place in order])
    axes.tick_params(length=0, labelsize=8.5, labeltop=True, labelbottom=False)
    axes.hlines(np.arange(rows - 1) + 0.5, -0.5, len(labels) - 0.5, color="white", linewidth=1)
    axes.vlines(np.arange(len(labels) - 1) + 0.5, -0.5, rows - 0.5, color="white", linewidth=2)
    axes.spines[:].set_visible(False)
    axes.grid(False)
    rest = len(names) - rows
    more = f"; {rest} smaller features not shown" if rest > 0 else ""
    axes.set_xlabel(f"score ({unit}); colours are scaled within each column{more}", fontsize=8.5, loc="left")
    return drawing
