"""Configuration files as YAML: what Snakemake's reader would accept in silence, or report in many lines."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml

from shapeline.errors import ShapelineError

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MERGE_TAG = "tag:yaml.org,2002:merge"  # of `<<`, which may stand twice


def check_files(paths: Iterable[str | Path]) -> None:
    """Raise a ShapelineError with a line for each file that is not YAML and each key that stands twice in one place.

    YAML's readers keep the last of two equal keys, so that a setting would be ignored. Missing files are left to
    Snakemake.
    """
    problems = [f"{path}: {problem}" for path in paths if Path(path).is_file() for problem in _problems(Path(path))]
    if problems:
        raise ShapelineError("\n".join(problems))


def _problems(path: Path) -> Iterator[str]:
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=Loader)
    except UnicodeDecodeError as error:
        yield f"not encoded in UTF-8 (byte {error.start}); save it in UTF-8"
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else "?"
        yield f"line {line}: invalid YAML ({error.problem or error.context}); correct the line"
    except yaml.YAMLError as error:
        yield f"invalid YAML ({' '.join(str(error).split())}); correct it"
    else:
        yield from _repeated_keys(root)


def _repeated_keys(root: yaml.Node | None) -> Iterator[str]:
    waiting, seen = [root] if root else [], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen or isinstance(node, yaml.ScalarNode):
            continue
        seen.add(id(node))  # an alias names a node that stands elsewhere too
        children = node.value
        if isinstance(node, yaml.MappingNode):
            first: dict[str, int] = {}
            for key, _ in node.value:
                line = key.start_mark.line + 1
                if not isinstance(key, yaml.ScalarNode) or key.tag == MERGE_TAG:
                    continue
                if (before := first.setdefault(key.value, line)) != line:
                    yield f"line {line}: the key '{key.value}' is repeated (first in line {before}); keep one"
            children = [child for pair in node.value for child in pair]
        waiting += children
