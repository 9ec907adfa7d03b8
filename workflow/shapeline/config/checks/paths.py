"""Files that a configuration names."""

from shapeline.datasets import sources
from shapeline.errors import ShapelineError


def absent(path: str) -> str | None:
    """What is wrong with the path of a user's own file; None where the file is there."""
    try:
        file = sources.expand(path)
    except ShapelineError as error:
        return str(error)
    return None if file.is_file() else f"there is no file {file} (paths start at the repository root)"
