"""Claims of the papers on the page of the experiment that tests them."""

from shapeline.papers import claims
from shapeline.report.elements import join_parts, note, part, table
from shapeline.report.experiment import Results
from shapeline.report.html import HTML


def section(results: Results) -> HTML:
    """The papers' claims that this experiment can judge, beside what was measured; empty where there is none."""
    judged = claims.of(results)
    if judged.empty:
        return HTML("")
    timed = "each instance timed separately" if results.settings.get("timing") == "per_instance" else "timed in batches"
    found = join_parts(
        table(judged, text=judged.columns),
        note(
            f"Models, data and machines differ from the papers'; {timed}; 95 % intervals in brackets. A claim about an "
            "order holds if the order is significant in every comparison, fails if one comparison is significantly "
            "reversed, and is undecided otherwise. " + claims.STAND_INS
        ),
    )
    return part("Claims of the papers", found)
