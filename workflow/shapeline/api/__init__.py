"""What people call from Python: explain, compare, and an Explanation that they can read, plot, index and save."""

from shapeline.lazy import names_from

__getattr__, __dir__ = names_from(
    __name__, {"call": "explain", "explanation": "Explanation", "comparison": "compare Comparison"}
)
