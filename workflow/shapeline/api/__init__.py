"""What people call from Python: explain, compare, and an Explanation that they can read, draw, index and keep."""

from shapeline.lazy import names_from

__getattr__, __dir__ = names_from(
    "shapeline.api",
    {"explain": "call", "Explanation": "explanation", "compare": "comparison", "Comparison": "comparison"},
)
