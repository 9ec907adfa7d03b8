"""Benchmarks of the package: `python -m benchmarks.run` gives one table; each other script answers one question."""
