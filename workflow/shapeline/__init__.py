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
MODULES = "datasets designs games graphs hierarchy influence models scores statistics theory".split()


def __dir__() -> list[str]:
    """What documentation names, so that notebooks complete it."""
    return sorted([*CALLS, *MODULES, "__version__"])


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
        from shapeline.errors import nearest

        remedy = "; call shapeline.explain(model, inputs, background=rows)" if name.endswith("Explainer") else ""
        if name == "plots" or name.endswith("_plot"):  # of shap
            remedy = "; call explanation.plot(kind)"
        remedy = remedy or ("" if name.startswith("_") else f".{nearest(name, __dir__())}")
        raise AttributeError(f"module 'shapeline' has no attribute '{name}'{remedy}") from None
