"""A method defined by the user: the arguments of path/to/file.py:function, read without running the file."""

import ast

from shapeline.datasets.sources import expand
from shapeline.errors import ShapelineError, nearest

OWN_TAKES = ("d", "shape", "graph", "budget", "seed")


def own_arguments(reference: str) -> dict[str, bool]:
    """The arguments of "path/to/file.py:function", and whether each must be given; read without running the file.

    Raises ShapelineError where there is no such file or function.
    """
    file, _, name = reference.rpartition(":")
    path = expand(file)
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError) as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else error
        raise ShapelineError(f"{path} cannot be read ({reason}); paths start at the repository root") from error
    functions = {node.name: node.args for node in tree.body if isinstance(node, ast.FunctionDef)}
    if name not in functions:
        hint = nearest(name, functions) if functions else " It defines no function."
        raise ShapelineError(f"{path} has no function '{name}'.{hint}")
    arguments = functions[name]
    listed = [*arguments.posonlyargs, *arguments.args]
    needed = {argument.arg: place < len(listed) - len(arguments.defaults) for place, argument in enumerate(listed)}
    return needed | {
        argument.arg: default is None
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    }
