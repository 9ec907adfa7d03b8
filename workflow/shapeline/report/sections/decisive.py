"""How many of the words that are known to decide were found."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from shapeline.report import elements
from shapeline.report.elements import figure, note, table, together
from shapeline.report.experiment import scalars
from shapeline.report.figures import dots
from shapeline.report.html import HTML
from shapeline.report.numbers import number, two_digit_interval
from shapeline.report.sections.method_agreement import CONTROLS
from shapeline.report.styling import WIDTH, Style, styled


@styled
def decisive_f1(frame: pd.DataFrame, styles: Mapping[str, Style]) -> Figure | None:
    """F1 of the top k words against the k decisive ones, best label on top; frame as of `compare`."""
    rows = scalars(frame, "f1")
    labels = sorted((label for label in styles if label in rows.index), key=lambda label: -rows["mean"][label])
    if not labels:
        return None
    drawing = Figure(figsize=(0.7 * WIDTH, 1.1 + 0.29 * len(labels)), layout="constrained")
    axes = drawing.subplots()
    across = "F1 of the top k words, k = number of decisive words"
    dots.dot_panel(axes, rows.loc[labels], styles, labels, dots.Panel("Decisive words found", across, True))
    dots.name_rows(axes, labels)
    axes.set_xlim(0, 1.02)
    return drawing


def decisive_section(frame: pd.DataFrame | None, styles: Mapping[str, Style], explained: int) -> HTML:
    """The F1 of every label as figure and table; explained: documents explained, among them those left out."""
    if frame is None:
        return elements.missing("decisive")
    drawing = decisive_f1(frame, styles)
    if drawing is None:
        return note("No document counts: the model errs on all of them, or none has a decisive word.")
    rows = scalars(frame, "f1").sort_values("mean", ascending=False, kind="stable")
    shown = pd.DataFrame(
        {
            "label": label,
            "F1 (higher is better)": two_digit_interval(row),
            "control": "yes" if styles[label].control else "",
            "documents": number(row["n"]),
        }
        for label, row in rows.iterrows()
        if label in styles
    )
    counted = int(rows["n"].max())
    left = f"{number(explained - counted)} of {number(explained)} documents are left out"
    return together(
        figure(
            drawing,
            "F1 of the top words of each method against the decisive words, with 95 % intervals",
            f"Mean over documents with 95 % intervals. {CONTROLS}",
        ),
        table(shown, text=["control"]),
        note(
            "The decisive words of a document are known. As many words are chosen as are decisive, by signed score, so "
            f"F1, precision and recall are the same number. {left}: those that the model misclassifies, where the "
            "decisive words speak against the explained class, and those without a decisive word."
        ),
    )
