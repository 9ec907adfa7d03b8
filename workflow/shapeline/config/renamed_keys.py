"""Configuration keys under the names that they had in earlier versions."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from shapeline.config.yaml_files import Loader
from shapeline.errors import ShapelineError

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


def rename_keys(raw: dict, files: Iterable[str | Path] = ()) -> list[str]:
    """Give the keys of a raw configuration their new names, in place; return one deprecation line per old key.

    files: those that were merged into it, later ones over earlier ones. Of an old and a new name that stand in two of
    them, the later one counts, as of one name; in one file they are a ShapelineError.
    """
    lines, conflicts = [], []
    for place, old, new in RENAMED_KEYS:
        for where, section in _find_sections(raw, place):
            if old not in section:
                continue
            key = f"{where}.{old}".removeprefix(".")
            if new in section and (earlier := _find_earlier(where, old, new, files)):
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
        raise ShapelineError("\n".join(conflicts))
    return lines


def _find_earlier(where: str, old: str, new: str, files: Iterable[str | Path]) -> str | None:
    """Return which of two names stands only in an earlier file than the other; None where one file has both."""
    last = dict.fromkeys((old, new), float("inf"))  # what no file has is of the command line, which overrides them
    for rank, file in enumerate(files):
        section = yaml.load(Path(file).read_text(encoding="utf-8"), Loader=Loader) if Path(file).is_file() else None
        for part in where.split(".") if where else ():
            section = section.get(part) if isinstance(section, dict) else None
        last |= dict.fromkeys({old, new} & set(section if isinstance(section, dict) else ()), rank)
    return None if last[old] == last[new] else min(last, key=last.get)


def _find_sections(raw: Any, place: str) -> Iterator[tuple[str, dict]]:
    """Return the path and the mapping of each section at a place."""
    found = [("", raw)]
    for part in place.split(".") if place else ():
        found = [
            (f"{where}.{name}".removeprefix("."), section[name])
            for where, section in found
            if isinstance(section, dict)
            for name in (section if part == "*" else [part] if part in section else [])
        ]
    return ((where, section) for where, section in found if isinstance(section, dict))
