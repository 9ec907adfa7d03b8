"""Which files of the package are the code of a result, and their digest: what a script imports or loads by name."""

import os
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from shapeline.datasets.registry import file_digest
from shapeline.errors import ShapelineError
from shapeline.seeds import digest

PACKAGE = Path(__file__).parent.parent
# Of the Snakefile: above the package in a clone, else where pip puts what is in a wheel beside it, or pip --target.
PLACES = tuple((PACKAGE / place).resolve() for place in ("../..", "../../../../share/shapeline", "../share/shapeline"))
# Edited often and never the origin of a number: plumbing, messages, and the registries, of whose entries a job's
# digest has what decides its own numbers. A refusal stops a job, what a file says of how it was made
# (provenance) is for people to read, and rows come back from their store as they were.
UNTRACKED = {
    *("config", "fork_server", "workflow"),
    *("errors.py", "files.py", "lazy.py", "versions.py"),
    *("methods/registry.py", "methods/parameters.py", "metrics/registry.py"),
    *("datasets/registry.py", "models/registry.py"),
    *("attribution/provenance.py", "attribution/row_store.py"),
}
# Imports within the package, as they stand in its files; parsing these took a tenth of the time of a dry run.
IMPORT = re.compile(
    r"^[ \t]*(?:from (shapeline[\w.]*) import (\((?:#.*|[^)#])*\)|.+)|import (shapeline[\w.]*))", re.MULTILINE
)


def find_root() -> Path:
    """Return the folder of the Snakefile, one of PLACES. Raises ShapelineError if it is in none of these."""
    root = next((place for place in PLACES if (place / "Snakefile").is_file()), None)
    if root is None:
        raise ShapelineError(
            f"shapeline: no Snakefile beside the package in {PACKAGE}; reinstall it (pip install "
            "--force-reinstall --no-deps), "
            "or work in a clone (git clone <address of the repository>)"
        )
    return root


def list_sources(*modules: str, without: Iterable[str] = ()) -> list[str]:
    """Return sorted paths of modules and their imports within the package; without: with what they alone import."""
    return list(_list_sources(modules, frozenset(without), os.getcwd()))


@cache
def _list_sources(modules: tuple[str, ...], without: frozenset[str], folder: str) -> tuple[str, ...]:
    """Return the paths relative to a folder; thousands of jobs ask for the same few."""
    left_out = {find_module_file(module) for module in without}
    seen: set[Path] = set()
    waiting = [find_module_file(module) for module in modules]
    while waiting:
        file = waiting.pop()
        if file not in seen and file not in left_out:
            seen.add(file)
            waiting += _list_imports(file)
    return tuple(sorted(os.path.relpath(file, folder) for file in seen))


def list_user_modules(files: list[str]) -> list[str]:
    """Return the user's own among the files behind a result; they stand in a rule's input, however large they are."""
    package = _find_prefix(os.getcwd())
    return as_inputs(file for file in files if not file.startswith(package))


def add_code_digest(settings: dict, files: list[str], facts: dict | None = None) -> dict:
    """Return a job's settings with a digest of its package files and of `list_facts` of the registries."""
    folder = os.getcwd()
    package = _find_prefix(folder)
    code = _compute_digest(tuple(sorted({file for file in files if file.startswith(package)})), folder)
    return settings | {"code": digest({"code": code, "facts": facts}) if facts else code}


@cache
def _compute_digest(files: tuple[str, ...], folder: str) -> str:
    """Return a digest of files' names and contents, cached because thousands of jobs share the files."""
    return digest({file: file_digest(Path(folder, file), "sha256") for file in files})


@cache
def _find_prefix(folder: str) -> str:
    """Return how the paths of the package's files begin, relative to a folder."""
    return os.path.relpath(PACKAGE, folder) + os.sep


def list_tracked_modules(text: str) -> list[str]:
    """Return the modules of the package that a text imports and whose files count, sorted."""
    files = {module: find_module_file(module) for module in _list_modules(text)}
    return sorted(module for module, file in files.items() if file.is_file() and not _is_untracked(file))


def find_module_file(module: str) -> Path:
    """Return the file of a module of the package, or where it would be."""
    path = PACKAGE.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def _list_imports(file: Path) -> list[Path]:
    """Return the files of the package that a file imports anywhere."""
    return [find_module_file(module) for module in list_tracked_modules(file.read_text(encoding="utf-8"))]


def _list_modules(text: str) -> set[str]:
    """Return the modules that a text imports from the package, and names that may be modules."""
    modules: set[str] = set()
    for package, names, plain in IMPORT.findall(text):
        modules |= {package, *(f"{package}.{name}" for name in re.findall(r"\w+", names))} if package else {plain}
    return modules - {"shapeline"}


@cache
def _is_untracked(file: Path) -> bool:
    """Return whether a file never decides a number: by its path, or as an `__init__` that is empty or lazy."""
    path = file.relative_to(PACKAGE)
    if not UNTRACKED.isdisjoint((path.as_posix(), path.parts[0])):
        return True
    return file.name == "__init__.py" and _list_modules(file.read_text(encoding="utf-8")) <= {
        "shapeline.lazy",
        "shapeline.lazy.names_from",
    }


LINKS = Path(".snakemake/links")


def as_inputs(files: Iterable[str]) -> list[str]:
    """Return paths that Snakemake takes: relative, or a symbolic link, where braces would be read as wildcards."""
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
