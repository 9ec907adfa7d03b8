"""What the package costs: `python -m benchmarks.run` is all of it in one table; the other scripts ask one question."""
