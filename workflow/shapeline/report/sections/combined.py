"""Sections made of others: a few instances by the kind of their data, and what the methods have in common."""

import numpy as np

from shapeline.report import experiment, styling
from shapeline.report.elements import heading, join_parts, note
from shapeline.report.experiment import Results
from shapeline.report.formatting import number
from shapeline.report.html import HTML
from shapeline.report.sections import examples, explorer, texts
from shapeline.report.sections.contexts import context_comparison, context_pairs, context_section
from shapeline.report.sections.ground_truth_words import ground_truth_section
from shapeline.report.sections.method_agreement import agreement_section

ENOUGH = 2_000  # instances for an agreement to two digits


def comparisons(results: Results) -> HTML:
    """How alike the methods are; where they were run both ways, what context changes; the words known to decide."""
    ids = results.instances["instance"]
    some = ids.iloc[np.linspace(0, len(ids) - 1, min(len(ids), ENOUGH)).astype(int)]
    scores = {label: experiment.scores_of(frame, some) for label, frame in results.scores.items()}
    parts = [heading("Agreement between methods"), agreement_section(scores)]
    if len(some) < len(ids):
        parts.append(note(f"Computed on {number(len(some))} of {number(len(ids))} instances, evenly spaced."))
    pairs = context_pairs(results.labels)
    if pairs and "log_odds" in results.measured:
        compared = context_comparison(results.measured["log_odds"], scores, pairs)
        parts += [heading("Context masked or kept"), context_section(compared)]
    if "ground_truth_words" in results.metrics:
        parts += [
            heading("Ground-truth words"),
            ground_truth_section(results.metrics["ground_truth_words"], styling.styles_of(results), len(ids)),
        ]
    return join_parts(*parts)


def explanations(results: Results, label: str | None) -> HTML:
    """Return the explorer of instances, a method and the exact values first; without JavaScript figures of a few."""
    still = texts.explanations if results.dataset_card["kind"] == "text" else examples.explanations
    first = [name for name in (label, results.exact) if name is not None]
    return explorer.explorer(results, first, still(results))
