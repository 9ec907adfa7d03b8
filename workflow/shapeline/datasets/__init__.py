"""Datasets: prepared from a source, and loaded."""

from shapeline.lazy import export_lazily

__getattr__, __dir__ = export_lazily(__name__, {"preparation": "prepare", "loading": "load"})
