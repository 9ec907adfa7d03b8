"""Import and call the functions that registries name; a module of its own, so that edits of entries re-run no job."""

import ast
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from shapeline.datasets.sources import expand, user_function
from shapeline.errors import ShapelineError, nearest


@dataclass(frozen=True)
class Call:
    """A function of a registry or of the user, and the names of its arguments."""

    function: Callable
    names: tuple[str, ...]

    def __call__(self, available: Mapping[str, object]) -> object:
        """Call the function with those of the available values that are its arguments."""
        return self.function(**self._select_named(available))

    def bind(self, available: Mapping[str, object]) -> Callable:
        """Return the function bound to those of the available values that are its arguments."""
        return partial(self.function, **self._select_named(available))

    def _select_named(self, available: Mapping[str, object]) -> dict[str, object]:
        return {name: available[name] for name in self.names if name in available}


def resolve(reference: str) -> Call:
    """Return the function named by "module:function" or "path/to/file.py:function"."""
    module, name = reference.rsplit(":", 1)
    is_file = module.endswith(".py")
    function = user_function(reference) if is_file else getattr(importlib.import_module(module), name)
    return Call(function, tuple(inspect.signature(function).parameters))


DESIGN_ARGUMENTS = ("d", "shape", "graph", "budget", "seed")


def list_arguments(reference: str) -> dict[str, bool]:
    """Return the arguments of "file.py:function", and whether each is required, without running the file."""
    file, _, name = reference.rpartition(":")
    path = expand(file)
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError) as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else error
        raise ShapelineError(f"{path}: cannot be read ({reason}); paths start at the folder of the run") from error
    functions = {node.name: node.args for node in tree.body if isinstance(node, ast.FunctionDef)}
    if name not in functions:
        hint = f".{nearest(name, functions)}" if functions else "; the file defines no function, so add it"
        raise ShapelineError(f"{path}: has no function '{name}'{hint}")
    arguments = functions[name]
    listed = [*arguments.posonlyargs, *arguments.args]
    needed = {argument.arg: index < len(listed) - len(arguments.defaults) for index, argument in enumerate(listed)}
    return needed | {
        argument.arg: default is None
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    }
