"""The folded parts at the end of a page."""

from shapeline.papers import claims
from shapeline.report.elements import HTML, join_parts, part
from shapeline.report.experiment import Results
from shapeline.report.sections import common


def section(results: Results) -> HTML:
    """Return diagnostics, claims of the papers, model and data, and provenance, each of them folded."""
    return join_parts(
        part("Diagnostics", common.health(results)),
        claims.section(results),
        part("Model and data", common.model_and_data(results)),
        part("Provenance", common.provenance(results)),
    )
