"""The user's files as inputs of rules."""

import os
from collections.abc import Iterable
from pathlib import Path

from shapeline.seeds import digest

LINKS = Path(".snakemake/links")


def as_inputs(files: Iterable[str]) -> list[str]:
    """Return paths that Snakemake takes as they are.

    Snakemake reads a word in braces as a wildcard and has no way to escape it. A path with braces is therefore given
    relative to the working directory, and where it still has braces through a symbolic link, whose only use is that
    Snakemake sees when the file changes.
    """
    return [_link(os.path.relpath(file)) if "{" in file else file for file in files]


def _link(path: str) -> str:
    target = os.path.abspath(path)
    if "{" not in path or not os.path.exists(target):  # a missing file is reported by its own name
        return path
    link = LINKS / digest(target) / os.path.basename(target).replace("{", "(").replace("}", ")")
    if not link.is_symlink():
        link.parent.mkdir(parents=True, exist_ok=True)
        new = link.with_name(f"{link.name}.{os.getpid()}")
        new.symlink_to(target)
        os.utime(new, (0, 0), follow_symlinks=False)  # Snakemake compares the time of the link too
        os.replace(new, link)
    return str(link)
