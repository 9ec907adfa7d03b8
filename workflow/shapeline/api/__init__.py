"""What people call from Python: explain, compare, and an Explanation that they can read, plot, index and save."""

from shapeline.lazy import export_lazily

__getattr__, __dir__ = export_lazily(
    __name__, {"call": "explain", "explanation": "Explanation", "comparison": "compare Comparison"}
)
