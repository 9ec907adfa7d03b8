"""Paths that Snakemake could not use: of the interpreter, and of the workflow."""

import os
import shlex
import sys
from pathlib import Path

from shapeline.errors import ShapelineError

LINK = Path(".snakemake/environment")


def make_interpreter_path_plain() -> None:
    """Give this process a path of its interpreter that a shell reads as one word.

    Snakemake writes `sys.executable` into the commands of jobs without quotes (snakemake issue 2645), so that a clone
    in a folder with a space could start none. Jobs start in the working directory, as this process does, so that a
    relative path reaches the same environment; where that has such characters too, a link in `.snakemake` does.
    """
    if _is_plain(sys.executable):
        return
    path = os.path.relpath(sys.executable)
    if not _is_plain(path):
        if not LINK.exists() or not LINK.samefile(sys.prefix):
            _link_environment()
        path = str(LINK / os.path.relpath(sys.executable, sys.prefix))
    sys.executable = path


def check_workflow_folder(folder: str) -> None:
    """Raise a ShapelineError where the path of the Snakefile has braces, which Snakemake cannot escape."""
    if "{" in folder:
        raise ShapelineError(f"{folder}: Snakemake reads braces in the path of a workflow as wildcards; move it")


def _is_plain(path: str) -> bool:
    return shlex.quote(path) == path and "{" not in path


def _link_environment() -> None:
    """Make or replace LINK at once, as other runs in this folder may be using it."""
    LINK.parent.mkdir(exist_ok=True)
    new = LINK.with_name(f"{LINK.name}.{os.getpid()}")
    new.symlink_to(sys.prefix, target_is_directory=True)
    os.replace(new, LINK)
