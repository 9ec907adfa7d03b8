"""A configuration file, looked at before Snakemake's reader has it, which runs code in it or ends with a traceback.

Snakemake gives a file with `__use_yte__` to a template engine that runs Python, takes the last of two equal keys, and
writes merges (`<<`) out without end. `limits` looks at what was read; this at the text. It imports nothing of the
package, for profiles/default runs it by itself.
"""

import math
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml

MOST_VALUES = 200_000  # once aliases are written out; the largest of our own files has a few thousand
DEEPEST = 30  # keys and lists inside one another
LONGEST_NAME = 100  # characters of a key, which may become the name of a folder
LONGEST_TEXT = 4096
LARGEST = 10_000_000  # bytes; the largest of our own files has 20 thousand
CODE = "__use_yte__"
NUMBER = re.compile(r"[-+]?[0-9][0-9_:.]*")
MERGE = "tag:yaml.org,2002:merge"
DEEP = f"more than {DEEPEST} keys and lists inside one another; no key is that deep"
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def shortened(text: str, most: int = LONGEST_NAME) -> str:
    """The text, or its beginning where it is long."""
    return text if len(text) <= most else f"{text[:20]}..."


def look(paths: Iterable[str | Path]) -> None:
    """End with a line for each mistake in the files; those that are not there are Snakemake's to tell."""
    lines = [f"{path}: {line}" for path in paths if Path(path).is_file() for line in mistakes(Path(path))]
    if lines:
        sys.exit("\n".join(lines))


def named(arguments: Iterable[str]) -> Iterator[str]:
    """The files after --configfile and --configfiles of a command line, also where these are shortened."""
    taking = False
    for word in arguments:
        option, equals, value = word.partition("=")
        if word.startswith("-"):
            taking = len(option) > len("--config") and "--configfiles".startswith(option)
            if taking and equals:
                yield value
        elif taking:
            yield word


def mistakes(path: Path) -> Iterator[str]:
    """A line for what keeps a file from being a configuration: as YAML, and by what its reader would do with it."""
    if path.stat().st_size > LARGEST:
        yield f"has more than {LARGEST / 1e6:g} MB; a configuration is a few kilobytes"
        return
    try:
        text = path.read_bytes().decode("utf-8")
        text = text.replace("\t", " ") if text.lstrip().startswith("{") else text  # JSON takes tabs, YAML does not
        if problem := _shape(text):
            yield problem
            return
        loader = Loader(text)
        root = loader.get_single_node()
        lines = list(_of_nodes(root)) if root else ["is empty; name at least what to run"]
        yield from lines
        if not lines:
            loader.construct_document(root)
    except UnicodeDecodeError as error:
        yield f"is not written in UTF-8 (byte {error.start}); save it so"
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        yield f"line {mark.line + 1 if mark else '?'}: is no YAML ({error.problem or error.context})"
    except RecursionError:
        yield DEEP
    except (yaml.YAMLError, ValueError, AttributeError, TypeError, OverflowError) as error:  # of a value's form
        yield f"is no YAML ({shortened(str(error).splitlines()[0])})"


def _shape(text: str) -> str:
    """What is too deep or too long for a reader that calls itself; the events come without recursion."""
    deep = 0
    for event in yaml.parse(text, Loader=Loader):
        deep += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if deep > DEEPEST + 1:
            return f"line {event.start_mark.line + 1}: {DEEP}"
        number = isinstance(event, yaml.ScalarEvent) and len(event.value) > LONGEST_TEXT
        if number and event.implicit[0] and NUMBER.fullmatch(event.value):
            return f"line {event.start_mark.line + 1}: a number of {len(event.value):,} characters"
    return ""


def _of_nodes(root: yaml.Node) -> Iterator[str]:
    """Lines for a key that runs code, keys that stand twice in one place, and merges that write out too much."""
    maps = [node for node in _below(root) if isinstance(node, yaml.MappingNode)]
    for node in maps:
        yield from _repeated(node)
        if CODE in (key.value for key, _ in node.value):  # anywhere, for a merge may bring it to the top
            yield f"the key {CODE} has Python run that the file holds; remove it, a configuration runs nothing"
    written: dict[int, float] = {}  # keys of a mapping with those that it merges, by its id
    for node in sorted(maps, key=lambda one: (one.end_mark.index, -one.start_mark.index)):  # merged ones first
        written[id(node)] = sum(_written(key, value, written) for key, value in node.value)
    if sum(written.values()) > MOST_VALUES:
        yield f"holds more than {MOST_VALUES:,} values once its merges (<<) are written out"


def _below(root: yaml.Node) -> Iterator[yaml.Node]:
    """Lists and mappings, each once, however many aliases name it."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen or isinstance(node, yaml.ScalarNode):
            continue
        seen.add(id(node))
        yield node
        waiting += [child for entry in node.value for child in (entry if isinstance(entry, tuple) else (entry,))]


def _repeated(node: yaml.MappingNode) -> Iterator[str]:
    first: dict[tuple[str, str], int] = {}
    for key, _ in node.value:
        line = key.start_mark.line + 1
        if isinstance(key, yaml.ScalarNode) and key.tag != MERGE:
            if (name := (key.tag, key.value)) in first:
                yield f"line {line}: the key '{shortened(key.value)}' is there already, in line {first[name]}"
            first.setdefault(name, line)


def _written(key: yaml.Node, value: yaml.Node, written: dict[int, float]) -> float:
    """How many keys a pair becomes: one, or those of what it merges; without end where that holds the pair itself."""
    if key.tag != MERGE:
        return 1
    sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
    return sum(written.get(id(source), math.inf) for source in sources)
