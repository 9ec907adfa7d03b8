"""Agreement with the ground-truth words."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from shapeline.report import elements
from shapeline.report.elements import figure, join_parts, note, table
from shapeline.report.experiment import scalars
from shapeline.report.figures import dots
from shapeline.report.formatting import number, two_digit_interval
from shapeline.report.html import HTML
from shapeline.report.sections.method_agreement import CONTROLS
from shapeline.report.styling import WIDTH, Style, styled


@styled
def ground_truth_f1(frame: pd.DataFrame, styles: Mapping[str, Style]) -> Figure | None:
    """F1 of the top k words against the k ground-truth ones, best label on top; frame as of `compare`."""
    rows = scalars(frame, "f1")
    labels = sorted((label for label in styles if label in rows.index), key=lambda label: -rows["mean"][label])
    if not labels:
        return None
    drawing = Figure(figsize=(0.7 * WIDTH, 1.1 + 0.29 * len(labels)), layout="constrained")
    axes = drawing.subplots()
    across = "F1 of the top k words, k = number of ground-truth words"
    dots.dot_panel(axes, rows.loc[labels], styles, labels, dots.Panel("Ground-truth words found", across, True))
    dots.name_rows(axes, labels)
    axes.set_xlim(0, 1.02)
    return drawing


def ground_truth_section(frame: pd.DataFrame | None, styles: Mapping[str, Style], explained: int) -> HTML:
    """The F1 of every label as figure and table; explained: documents explained, among them those left out."""
    if frame is None:
        return elements.missing("ground_truth_words")
    drawing = ground_truth_f1(frame, styles)
    if drawing is None:
        return note("Not available: the model misclassifies all documents, or none has a ground-truth word.")
    rows = scalars(frame, "f1").sort_values("mean", ascending=False, kind="stable")
    shown = pd.DataFrame(
        {
            "method": label,
            "F1 (higher is better)": two_digit_interval(row),
            "control": "yes" if styles[label].control else "",
            "documents": number(row["n"]),
        }
        for label, row in rows.iterrows()
        if label in styles
    )
    counted = int(rows["n"].max())
    left = f"{number(explained - counted)} of {number(explained)} documents are excluded"
    return join_parts(
        figure(
            drawing,
            "F1 of the top words of each method against the ground-truth words, with 95 % intervals",
            f"Mean over documents with 95 % intervals. {CONTROLS}",
        ),
        table(shown, text=["control"]),
        note(
            "The number of selected words, by signed score, equals the number of ground-truth words, so F1, precision "
            f"and recall are equal. {left}: misclassified documents, and documents without a ground-truth word."
        ),
    )
