"""What a Python file of the user's imports from beside it: read from its text, without running it."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path


def local_imports(file: Path) -> dict[str, Path]:
    """Modules that a file imports, anywhere in it, and these import in turn, whose files are below its folder or below
    the working directory: their files by name. Of a file that is missing or no Python there are none.
    """
    roots, files = (file.parent, Path()), {}
    waiting = [(file, "")]
    while waiting:
        importing, package = waiting.pop()
        for name in _imported(importing, package):
            path = _file_of(name, roots)
            if path and name not in files and path != file:
                files[name] = path
                waiting.append((path, name if path.name == "__init__.py" else name.rpartition(".")[0]))
    return files


def _imported(file: Path, package: str) -> tuple[str, ...]:
    """Names that a file of a package may import, with the packages that they are in."""
    if not file.is_file():
        return ()
    names = [".".join(parts[:end]) for parts in _names(file, file.stat().st_mtime_ns, package) for end in _ends(parts)]
    return tuple(dict.fromkeys(names))


def _ends(parts: tuple[str, ...]) -> range:
    return range(1, len(parts) + 1)


@cache
def _names(file: Path, _changed: int, package: str) -> list[tuple[str, ...]]:
    """The full names in the import statements of a file; what is imported from a module may be one too."""
    return list(_statements(file, package))


def _statements(file: Path, package: str) -> Iterator[tuple[str, ...]]:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # the job that runs it says so
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            base = [*filter(None, above), *(node.module.split(".") if node.module else [])]
            yield from ((*base, alias.name) for alias in node.names)


def _file_of(name: str, roots: tuple[Path, ...]) -> Path | None:
    """The file of a module below the first of the roots that has one."""
    inside = Path(*name.split("."))
    places = (root / path for root in roots for path in (inside / "__init__.py", inside.with_suffix(".py")))
    return next((path for path in places if path.is_file()), None)
