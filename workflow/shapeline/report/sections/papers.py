"""What the papers claim, on the page of the experiment that judges it."""

from shapeline.report import claims
from shapeline.report.elements import heading, note, table, together
from shapeline.report.experiment import Results
from shapeline.report.html import HTML


def section(results: Results) -> HTML:
    """The papers' claims that this experiment can judge, beside what was measured; empty where there is none."""
    judged = claims.of(results)
    if judged.empty:
        return HTML("")
    timed = "each instance timed alone" if results.settings.get("timing") == "per_instance" else "timed in batches"
    return together(
        heading("What the papers claim", 2),
        table(judged, text=judged.columns),
        note(
            "The papers' models, data and machines were larger or others; 95 % intervals in brackets. Here: "
            f"{timed}, on the device named above. A claim about an order holds where the order is sure on every "
            "comparison, fails where it is surely the other way round on one, and is undecided between. "
            + claims.STAND_INS
        ),
    )
