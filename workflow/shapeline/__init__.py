"""Shapeline: which attribution to trust, and what it costs."""

import importlib

__version__ = "0.1.0"
CALLS = {
    "explain": "shapeline.api.call",
    "shapley_values": "shapeline.api.call",
    "compare": "shapeline.api.comparison",
    "explain_generation": "shapeline.api.generation",
    "compare_generation": "shapeline.api.generation_comparison",
    "Explanation": "shapeline.api.explanation",
    "compare_folders": "shapeline.statistics.folders",
    "log_to_mlflow": "shapeline.report.exporting",
    "ShapelineError": "shapeline.errors",
}


def __getattr__(name: str):
    """Modules are imported when they are first used, so that a dry run never pays for torch."""
    if name == "__all__":
        return list(CALLS)
    if name in CALLS:
        return getattr(importlib.import_module(CALLS[name]), name)
    try:
        return importlib.import_module(f"shapeline.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"shapeline.{name}":
            raise
        remedy = "; call shapeline.explain(model, inputs, background=rows)" if name.endswith("Explainer") else ""
        raise AttributeError(f"module 'shapeline' has no attribute '{name}'{remedy}") from None
