"""The typed configuration: read it, check it, and write one clear line for every mistake."""

import copy
import logging
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from shapeline.config.checks.experiment import problems
from shapeline.config.checks.models import find_missing_frameworks
from shapeline.config.derived import settle_prompts
from shapeline.config.limits import find_extremes
from shapeline.config.mistakes import SECTIONS, explain_failure, get_value, name_errors
from shapeline.config.renamed_keys import rename_keys
from shapeline.config.scales import SCALES, SMOKE
from shapeline.config.types import Config
from shapeline.errors import ShapelineError

log = logging.getLogger("shapeline")
MAX_LINES = 40  # mistakes that are listed at once


def load(raw: dict, files: Iterable[str | Path] = ()) -> Config:
    """Return the validated configuration; a key under an old name is accepted with a warning.

    files: those that were merged into `raw`, later ones over earlier ones.

    Raises one ShapelineError with a line per mistake.
    """
    if excess := list(find_extremes(raw)):
        raise ShapelineError("\n".join(excess))
    raw = copy.deepcopy(raw)
    for line in rename_keys(raw, files):
        log.warning(line)
    raw = _drop_removed(raw)
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
        lines += problems(config, names, {path[:2] for path in mistakes})
    if lines:
        raise ShapelineError("\n".join(_first_lines([*dict.fromkeys(lines)])))
    return settle_prompts(SCALES[config.scale](config))


def _first_lines(lines: list[str]) -> list[str]:
    """Return the lines, or the first of them and the number of the others."""
    more = len(lines) - MAX_LINES
    return [*lines[:MAX_LINES], f"... and {more} more mistakes"] if more > 0 else lines


def check_frameworks(config: Config, experiments: Iterable[str]) -> None:
    """Raise a ShapelineError where the model of an experiment needs a framework that is not installed."""
    if lines := list(find_missing_frameworks(config, config.experiments.keys() & set(experiments))):
        raise ShapelineError("\n".join(lines))


def schema() -> dict:
    """The JSON schema that editors read (workflow/schemas/config.schema.json)."""
    return Config.model_json_schema()


def _drop_removed(raw: dict) -> dict:
    """`name: null` removes an entry that an earlier configuration file defined."""
    for section in SECTIONS:
        entries = raw.get(section)
        if isinstance(entries, dict):
            raw[section] = {name: entry for name, entry in entries.items() if entry is not None}
    for experiment in (raw.get("experiments") or {}).values() if isinstance(raw.get("experiments"), dict) else ():
        if isinstance(experiment, dict) and isinstance(experiment.get("methods"), dict):
            experiment["methods"] = {k: v for k, v in experiment["methods"].items() if v is not None}
    return raw


def _complete_games(raw: dict) -> bool:
    """Give experiments with a game what follows from it; return whether there is one, which needs no other section."""
    entries = raw.get("experiments")
    entries = entries.values() if isinstance(entries, dict) else ()
    games = [entry for entry in entries if isinstance(entry, dict) and entry.get("game")]
    for entry in games:
        entry.setdefault("features", {"kind": "player"})
        entry.setdefault("metrics", {"efficiency": {}, "cost": {}})
        if isinstance(entry.setdefault("report", {}), dict):
            entry["report"].setdefault("notebook", "game")
    for section in ("datasets", "models") if games else ():
        raw[section] = raw.get(section) or {}
    return bool(games)


def _parse(raw: dict) -> tuple[Config | None, dict[tuple, str]]:
    """Validate; after a mistake drop the offending key and go on, so that every mistake is told at once.

    Returns what is left (None where nothing whole is) and the mistakes by key path; "" is a mere consequence of a drop.
    """
    told: dict[tuple, str] = {}
    while True:
        try:
            return Config.model_validate(raw), told
        except ValidationError as failure:
            mistakes = _group_by_path(failure, raw)
        consequence = {path: any(earlier[: len(path)] == path for earlier in told) for path in mistakes}
        told = {path: "" if consequence[path] else explain_failure(path, e, raw) for path, e in mistakes.items()} | told
        cuts = [path[:-1] if errors[0]["type"] == "missing" else path for path, errors in mistakes.items()]
        if any(not cut or (len(cut) == 1 and cut[0] in ("run", *SECTIONS)) for cut in cuts):
            return None, told
        for cut in cuts:
            while not isinstance(parent := get_value(raw, cut[:-1]), dict | None):  # a list goes as a whole
                cut = cut[:-1]
            if parent is not None:
                parent.pop(cut[-1], None)


def _group_by_path(failure: ValidationError, raw: dict) -> dict[tuple, list[dict]]:
    """Errors by key path; pydantic's path also holds the names of union members, which are no keys."""
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
