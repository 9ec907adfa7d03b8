"""Datasets: prepared from a source, and loaded."""

from shapeline.lazy import names_from

__getattr__, __dir__ = names_from(__name__, {"preparation": "prepare", "loading": "load"})
