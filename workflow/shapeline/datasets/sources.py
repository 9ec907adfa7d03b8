"""The parts of a dataset, the paths that name them, and functions by name: a user's, or one that a registry names."""

import ast
import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.machinery import SourceFileLoader
from pathlib import Path

from shapeline.errors import ShapelineError, describe_exception, is_out_of_memory, nearest

PARTS = ("train", "validation", "test")
TRAIN, VALIDATION, TEST = range(3)
LONGEST_PART, LONGEST_PATH = 255, 4000  # bytes of a name and of a path that Linux takes


def describe_subset(rows: dict[str, int], official: str) -> str:
    """Return what a page says of data read from files of some of the official rows; rows: by the name of the file."""
    files = " and ".join(f"{name}, {count:,} rows," for name, count in rows.items())
    return f"subset: {files} in place of {official}"


def names_function(text: str) -> bool:
    """Return whether the text is of the form path/to/file.py:function, whatever the function's name."""
    return ".py:" in text


def split_function(text: str) -> tuple[str, str]:
    """Return the file and the name of "path/to/file.py:function"."""
    file, _, name = text.rpartition(":")
    return file, name


def find_file(source: str) -> str:
    """Return the file of "path/to/file.py:function", and any other path as it is."""
    return split_function(source)[0] if names_function(source) else source


def is_address(mirror: str) -> bool:
    """Return whether a mirror is an http address; it is a folder otherwise."""
    return mirror.lower().startswith(("http://", "https://"))


def expand(path: str | os.PathLike) -> Path:
    """Return a path with ~ and variables filled in unless it is there as written."""
    if os.path.exists(path):
        return Path(path)
    text = os.path.expanduser(os.path.expandvars(os.fspath(path)))
    unset = re.search(r"\$(\{\w+\}|\w+)", text)
    if unset:
        raise ShapelineError(
            f"path '{path}': the environment variable {unset.group().strip('${}')} is not set; set it, or write "
            "the path."
        )
    whole = text.encode("utf-8", "surrogatepass")
    part = max(map(len, whole.split(b"/")))
    if len(whole) > LONGEST_PATH or part > LONGEST_PART:  # which no operating system can open
        problem = f"a name of {part:,} bytes" if part > LONGEST_PART else f"{len(whole):,} bytes"
        raise ShapelineError(
            f"path '{text[:20]}...': {problem}; the longest are {LONGEST_PART} and {LONGEST_PATH:,}; shorten it."
        )
    return Path(text)


@contextlib.contextmanager
def report_user_code(where: str) -> Iterator[None]:
    """Raise a ShapelineError of one line for an exception of a user's code; its cause has the traceback."""
    try:
        yield
    except (Exception, SystemExit) as error:
        if isinstance(error, ShapelineError) or is_out_of_memory(error):
            raise
        remedy = "correct the file"
        if isinstance(error, SystemExit):  # of a script that reads arguments as it is imported
            remedy = "run what ends the program under if __name__ == '__main__' alone"
        raise ShapelineError(f"{where}: {describe_exception(error)}; {remedy}") from error


def user_function(text: str) -> Callable:
    """Return the function of "path/to/file.py:function", which may import modules beside it. Raises ShapelineError."""
    file, name = split_function(text)
    if not file.endswith(".py") or not name.isidentifier():
        raise ShapelineError(f"source '{text}': is not understood; write a custom source as path/to/file.py:function.")
    path = expand(file)
    if not path.is_file():
        raise ShapelineError(f"source '{text}': there is no file {path}; paths start at the folder of the run.")
    # The digest keeps two files of one name apart; sys.modules is where pickle and dataclasses look a module up.
    module_name = f"shapeline_own_{path.stem}_{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:8]}"
    _allow_siblings(text, path)
    spec = importlib.util.spec_from_file_location(module_name, path, loader=_AsItIs(module_name, str(path)))
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    with report_user_code(f"source '{text}'"):
        spec.loader.exec_module(module)
    if not callable(getattr(module, name, None)):
        names = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        hint = f".{nearest(name, names)}" if names else "; the file defines no function, so add it"
        raise ShapelineError(f"source '{text}': {path}: has no function '{name}'{hint}")
    return getattr(module, name)


class _AsItIs(SourceFileLoader):
    """Compiles the file: kept byte code would be taken for that of an edit of the same size in the same second."""

    def get_code(self, fullname: str):
        return self.source_to_code(self.get_data(self.path), self.path)


def _allow_siblings(text: str, path: Path) -> None:
    """Add the folder of a user's file to the end of the import path. Raises ShapelineError for a conflicting name."""
    folder = str(path.parent.resolve())
    if folder not in sys.path:
        sys.path.append(folder)
    for name, file in local_imports(path).items():
        other = getattr(sys.modules.get(name), "__file__", None)
        if other and _is_other_user_file(Path(other), file):
            raise ShapelineError(
                f"source '{text}': it imports {file}, and this job already has {other} as '{name}'; rename one of them"
            )


def _is_other_user_file(loaded: Path, file: Path) -> bool:
    """Return whether a loaded module is another file of a user's, and no installed one, which goes first by rights."""
    inside = loaded.resolve()
    ours = (Path(os.__file__).resolve().parent, Path(__file__).resolve().parents[1])
    installed = {"site-packages", "dist-packages"} & set(inside.parts) or set(ours) & set(inside.parents)
    return inside != file.resolve() and not installed


def source_files(reference: str) -> list[str]:
    """Return the file of "path/to/file.py:function" and what it imports from beside it."""
    file = expand(find_file(reference))
    return [str(file), *sorted(map(str, local_imports(file).values()))]


def local_imports(file: Path) -> dict[str, Path]:
    """Modules that a file imports, anywhere in it, and these import in turn, whose files are below its folder or below
    the working directory: their files by name. Of a file that is missing or no Python there are none.
    """
    roots, files = (file.parent, Path()), {}
    waiting = [(file, "")]
    while waiting:
        importing, package = waiting.pop()
        imported = _list_names(importing, importing.stat().st_mtime_ns, package) if importing.is_file() else ()
        parents = [".".join(parts[: end + 1]) for parts in imported for end in range(len(parts))]
        for name in dict.fromkeys(parents):
            inside = Path(*name.split("."))
            places = (root / each for root in roots for each in (inside / "__init__.py", inside.with_suffix(".py")))
            path = next(filter(Path.is_file, places), None)
            if path and name not in files and path != file:
                files[name] = path
                waiting.append((path, name if path.name == "__init__.py" else name.rpartition(".")[0]))
    return files


@cache
def _list_names(file: Path, _changed: int, package: str) -> list[tuple[str, ...]]:
    """Return the full names in the import statements of a file; what is imported from a module may be one too."""
    names = []
    with contextlib.suppress(SyntaxError, ValueError):  # the job that runs it says so
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Import):
                names += [tuple(alias.name.split(".")) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
                base = [*filter(None, above), *(node.module.split(".") if node.module else [])]
                names += [(*base, alias.name) for alias in node.names]
    return names


@dataclass(frozen=True)
class Call:
    """A function of a registry or of the user, the names of its arguments, and its own name in the user's file."""

    function: Callable
    names: tuple[str, ...]
    own: str = ""

    def __call__(self, available: Mapping[str, object]) -> object:
        with report_user_code(f"source '{self.own}'") if self.own else contextlib.nullcontext():
            return self.function(**self._select_named(available))

    def bind(self, available: Mapping[str, object]) -> Callable:
        """Return the function bound to those of the available values that are its arguments."""
        return partial(self.function, **self._select_named(available))

    def _select_named(self, available: Mapping[str, object]) -> dict[str, object]:
        return {name: available[name] for name in self.names if name in available}


def resolve(reference: str) -> Call:
    """Return the function named by "module:function" or "path/to/file.py:function"."""
    module, name = split_function(reference)
    is_file = module.endswith(".py")
    function = user_function(reference) if is_file else getattr(importlib.import_module(module), name)
    return Call(function, tuple(inspect.signature(function).parameters), reference if is_file else "")


DESIGN_ARGUMENTS = ("d", "shape", "graph", "budget", "seed")


def check_function(reference: str) -> None:
    """Raise a ShapelineError where "file.py:function" neither defines nor imports the name, without running it."""
    file, name = split_function(reference)
    nodes = list(ast.walk(_parse_file(file)))
    imported = {(node.asname or node.name).split(".")[0] for node in nodes if isinstance(node, ast.alias)}
    assigned = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    defined = [node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    if not imported & {name, "*"} and name not in assigned:
        _check_name(file, name, defined)


def _check_name(file: str, name: str, functions: Collection[str]) -> None:
    if name not in functions:
        hint = f".{nearest(name, functions)}" if functions else "; the file defines no function, so add it"
        raise ShapelineError(f"{expand(file)}: has no function '{name}'{hint}")


def _parse_file(file: str) -> ast.Module:
    path = expand(file)
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError) as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else error
        where = "paths start at the folder of the configuration or run"
        raise ShapelineError(f"{path}: cannot be read ({reason}); {where}") from error


def list_arguments(reference: str) -> dict[str, bool]:
    """Return the arguments of "file.py:function", and whether each is required, without running the file."""
    file, name = split_function(reference)
    functions = {node.name: node.args for node in _parse_file(file).body if isinstance(node, ast.FunctionDef)}
    _check_name(file, name, functions)
    arguments = functions[name]
    listed = [*arguments.posonlyargs, *arguments.args]
    needed = {argument.arg: index < len(listed) - len(arguments.defaults) for index, argument in enumerate(listed)}
    return needed | {
        argument.arg: default is None
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    }
