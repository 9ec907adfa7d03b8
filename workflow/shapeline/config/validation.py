"""The typed configuration: read it, check it, and write one clear line for every mistake."""

import copy
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from shapeline.config.derived import SCALES, SMOKE, settle_prompts
from shapeline.config.entry_checks import find_missing_frameworks
from shapeline.config.experiment_checks import find_problems
from shapeline.config.mistakes import MAX_TEXT_LENGTH, SECTIONS, explain_failure, find_extremes, get_value, name_errors
from shapeline.config.types import Config
from shapeline.datasets.sources import expand, find_file, is_address
from shapeline.errors import ShapelineErrors

# The place of each renamed key (* is any name), its old and its new name.
RENAMED_KEYS = (
    ("", "run_if_here", "run_if_available"),
    ("", "accuracy", "estimator_benchmark"),
    ("datasets.*", "fit", "resize"),
    ("datasets.*", "on_corrupt", "on_decode_error"),
    ("models.*", "trusted", "trusted_types"),
    ("experiments.*", "seeds", "training_seeds"),
    ("experiments.*", "seed_instances", "instances_per_training_seed"),
    ("experiments.*.instances", "or_all", "fewer_ok"),
    ("experiments.*.report", "instances_shown", "n_shown"),
    ("experiments.*.metrics", "decisive", "ground_truth_words"),
    ("experiments.*.methods.*", "snapshots", "intermediate_budgets"),
    ("experiments.*.methods.*", "rival_of", "match_budget_of"),
    ("experiments.*.methods.*", "keep", "n_features"),
    ("experiments.*.methods.*.budget", "at_most", "max_budget"),
)


def rename_keys(raw: dict, contents: Iterable[Any] = ()) -> list[str]:
    """Give the keys of a raw configuration their new names, in place; return one deprecation line per old key.

    contents: of the files that were merged into it, later ones over earlier ones. Of an old and a new name that stand
    in two of them, the later one counts, as of one name; in one file they are a ShapelineError.
    """
    lines, conflicts = [], []
    for place, old, new in RENAMED_KEYS:
        for where, section in _find_sections(raw, place):
            if old not in section:
                continue
            key = f"{where}.{old}".removeprefix(".")
            if new in section and (earlier := _find_earlier(where, old, new, contents)):
                del section[earlier]
                if earlier == old:
                    continue
            if new in section:
                conflicts.append(f"{key}: is the old name of '{new}', which is also given; remove '{old}'")
                continue
            items = [(new if name == old else name, value) for name, value in section.items()]
            section.clear()
            section.update(items)
            lines.append(f"{key}: the key is deprecated; rename it to '{new}'")
    if conflicts:
        raise ShapelineErrors(conflicts)
    return lines


def _find_earlier(where: str, old: str, new: str, contents: Iterable[Any]) -> str | None:
    """Return which of two names stands only in an earlier file than the other; None if one file has both."""
    last = dict.fromkeys((old, new), float("inf"))  # what no file has is of the command line, which overrides them
    for rank, section in enumerate(contents):
        for part in where.split(".") if where else ():
            section = section.get(part) if isinstance(section, dict) else None
        last |= dict.fromkeys({old, new} & set(section if isinstance(section, dict) else ()), rank)
    return None if last[old] == last[new] else min(last, key=last.get)


PATH_KEYS = ("path", "weights", "mirror", "game_files")
SOURCE_KEYS = ("source", "tokenizer", "method", "game", "functions")  # whose texts may be names of something else


def locate_files(raw: dict, contents: Mapping[Path, Any]) -> None:
    """Replace, in place, relative paths of files that lie beside the configuration file that names them."""
    for file, content in contents.items():
        if (folder := file.resolve().parent) != Path.cwd():
            _locate(raw, content, folder, "")


def _locate(merged: Any, value: Any, folder: Path, key: str) -> Any:
    """Return the merged value; if it is the value in the file, with paths from the folder of the run."""
    if isinstance(value, dict) and isinstance(merged, dict):
        for name in value.keys() & merged.keys():
            merged[name] = _locate(merged[name], value[name], folder, key if key == "functions" else name)
    elif value != merged:
        return merged
    elif isinstance(value, list):
        return [_locate(item, item, folder, key) for item in value]
    elif isinstance(value, str) and (key in PATH_KEYS or (key in SOURCE_KEYS and re.search("[./]", value))):
        path = folder / find_file(value)
        if not Path(value).is_absolute() and len(value) <= MAX_TEXT_LENGTH and os.path.exists(path):
            return (os.path.relpath if folder.is_relative_to(Path.cwd()) else str)(folder / value)
    return merged


def _find_sections(raw: Any, place: str) -> Iterator[tuple[str, dict]]:
    """Return the path and the mapping of each section at a place."""
    result = [("", raw)]
    for part in place.split(".") if place else ():
        result = [
            (f"{where}.{name}".removeprefix("."), section[name])
            for where, section in result
            if isinstance(section, dict)
            for name in (section if part == "*" else [part] if part in section else [])
        ]
    return ((where, section) for where, section in result if isinstance(section, dict))


Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MERGE_TAG = "tag:yaml.org,2002:merge"  # of `<<`, which may stand twice


def check_files(paths: Iterable[str | Path]) -> None:
    """Raise a ShapelineError with a line per file that is not YAML and per repeated key, which YAML would ignore."""
    problems = [
        f"{path}: {problem}" for path in paths if Path(path).is_file() for problem in _list_problems(Path(path))
    ]
    if problems:
        raise ShapelineErrors(problems)


def _list_problems(path: Path) -> Iterator[str]:
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=Loader)
    except UnicodeDecodeError as error:
        yield f"not encoded in UTF-8 (byte {error.start}); save it in UTF-8"
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else "?"
        texts = [*path.read_text(encoding="utf-8").split("\n"), ""]
        indents = mark and "\t" in texts[mark.line][: mark.column + 1]
        fix = "indent by spaces, not by a tab" if indents else "correct this line or the one before"
        yield f"line {line}: invalid YAML ({error.problem or error.context}); {fix}"
    except yaml.YAMLError as error:
        yield f"invalid YAML ({' '.join(str(error).split())}); correct it"
    else:
        if root is not None and not isinstance(root, yaml.MappingNode):
            yield "holds no keys; begin with one, such as 'experiments:'"
        yield from _find_repeated_keys(root, set())


def _find_repeated_keys(node: yaml.Node | None, seen: set[int]) -> Iterator[str]:
    if node is None or isinstance(node, yaml.ScalarNode) or id(node) in seen:
        return
    seen.add(id(node))  # an alias names a node that stands elsewhere too
    first: dict[str, int] = {}
    for key, child in node.value if isinstance(node, yaml.MappingNode) else ((None, child) for child in node.value):
        if isinstance(key, yaml.ScalarNode) and key.tag != MERGE_TAG:
            line = key.start_mark.line + 1
            if (before := first.setdefault(key.value, line)) != line:
                yield f"line {line}: the key '{key.value}' is repeated (first in line {before}); keep one"
        yield from _find_repeated_keys(child, seen)


log = logging.getLogger("shapeline")
MAX_LINES = 40  # mistakes that are listed at once


def load(raw: dict, files: Iterable[str | Path] = ()) -> Config:
    """Return the validated configuration, with warnings of old keys; raise one ShapelineError with a line per mistake.
    files: those that were merged into `raw`, later ones over earlier ones."""
    if excess := list(find_extremes(raw)):
        raise ShapelineErrors(excess)
    raw = copy.deepcopy(raw)
    texts = {file: file.read_text(encoding="utf-8") for file in map(Path, files) if file.is_file()}
    contents = {file: Loader(text).get_single_data() for file, text in texts.items()}
    for line in rename_keys(raw, contents.values()):
        log.warning(line)
    locate_files(raw, contents)
    _drop_removed(raw)
    of_games = _complete_games(raw)
    lines = list(name_errors(raw))
    names = {section: set(raw[section]) for section in SECTIONS if isinstance(raw.get(section), dict)}
    for section in SECTIONS:
        if isinstance(raw.get(section), dict) and (raw[section] or of_games):
            raw[section] = {**raw[section], **SMOKE[section]}
            names[section] |= set(SMOKE[section])
    config, mistakes = _parse(raw)
    lines += [f"{'.'.join(map(str, path))}: {text}" for path, text in mistakes.items() if text]
    if config is not None:
        # A section without its mistaken key may lack what it needs, such as `budget` its error target; so may an entry.
        of_entries = [("experiments", *path[1:4]) for path in mistakes if path[2:3] == ("methods",) and len(path) > 4]
        parents = tuple(f"{'.'.join(map(str, path[:-1]))}: " for path in mistakes if len(path) > 3)
        parents += tuple(f"{'.'.join(map(str, entry))}." for entry in of_entries)
        found = find_problems(config, names, {path[:2] for path in mistakes})
        lines += [line for line in found if not line.startswith(parents)]
    if lines := [*dict.fromkeys(lines)]:
        more = [f"... and {len(lines) - MAX_LINES} more mistakes"] if len(lines) > MAX_LINES else []
        raise ShapelineErrors(lines[:MAX_LINES] + more)
    mirror = config.data.mirror
    if mirror and not is_address(mirror) and not expand(mirror).is_dir():
        instead = "" if config.data.offline else "; files are downloaded from their official addresses"
        log.warning(f"data.mirror: there is no folder {expand(mirror)}{instead}")
    return settle_prompts(SCALES[config.scale](config))


def check_frameworks(config: Config, experiments: Iterable[str]) -> None:
    """Raise a ShapelineError where the model of an experiment needs a framework that is not installed."""
    if lines := list(find_missing_frameworks(config, config.experiments.keys() & set(experiments))):
        raise ShapelineErrors(lines)


def build_schema() -> dict:
    """Return the JSON schema that editors read (workflow/schemas/config.schema.json)."""
    return Config.model_json_schema()


def _drop_removed(raw: dict) -> None:
    """Remove, in place, entries of earlier configuration files that a later one sets to null."""
    for place in (*SECTIONS, "experiments.*.methods"):
        for _, entries in _find_sections(raw, place):
            for name in [name for name, entry in entries.items() if entry is None]:
                del entries[name]


def _complete_games(raw: dict) -> bool:
    """Give experiments with a game what follows from it; return whether there is one, which needs no other section."""
    games = [entry for _, entry in _find_sections(raw, "experiments.*") if entry.get("game")]
    for entry in games:
        entry.setdefault("features", {"kind": "player"})
        entry.setdefault("metrics", {"efficiency": {}, "cost": {}})
        if isinstance(entry.setdefault("report", {}), dict):
            entry["report"].setdefault("notebook", "game")
    for section in ("datasets", "models") if games else ():
        raw[section] = raw.get(section) or {}
    return bool(games)


def _parse(raw: dict) -> tuple[Config | None, dict[tuple, str]]:
    """Validate without each offending key; return the rest or None, and mistakes by path."""
    reasons: dict[tuple, str] = {}
    while True:
        try:
            return Config.model_validate(raw), reasons
        except ValidationError as failure:
            mistakes = _group_by_path(failure, raw)
        consequence = {path: any(earlier[: len(path)] == path for earlier in reasons) for path in mistakes}
        reasons = {
            path: "" if consequence[path] else explain_failure(path, e) for path, e in mistakes.items()
        } | reasons
        cuts = [path[:-1] if errors[0]["type"] == "missing" else path for path, errors in mistakes.items()]
        if any(not cut or (len(cut) == 1 and cut[0] in ("run", *SECTIONS)) for cut in cuts):
            return None, reasons
        for cut in cuts:
            while not isinstance(parent := get_value(raw, cut[:-1]), dict | None):  # a list goes as a whole
                cut = cut[:-1]
            if parent is not None:
                parent.pop(cut[-1], None)


def _group_by_path(failure: ValidationError, raw: dict) -> dict[tuple, list[dict]]:
    """Return errors by key path; pydantic's path also has names of union members, which are not keys."""
    paths: dict[tuple, list[dict]] = {}
    for error in failure.errors():
        node, path = raw, []
        for part in error["loc"]:
            if (isinstance(node, dict) and part in node) or (isinstance(node, list) and isinstance(part, int)):
                node = node[part]
                path.append(part)
        if error["type"] == "missing":
            path.append(error["loc"][-1])
        paths.setdefault(tuple(path), []).append(error)
    return paths
