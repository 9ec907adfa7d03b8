"""What lies in the results folder and the configuration no longer names: listed, and removed on request."""

import os
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from shapeline.config.types import Config
from shapeline.files import format_bytes
from shapeline.workflow import jobs

# Files that the workflow makes, below the results folder. Nothing else there is ever touched, nor is what lies a
# level deeper: `scale: smoke` and the smoke test have folders of their own in results/smoke.
MADE = re.compile(
    r"models/[\w@]+/[\w.-]+|reports/\w+\.(html|ipynb)|reports/\w+_files/[\w.-]+"
    r"|accuracy/errors\.parquet|\w+/(instances|scores/[\w@]+/\d+-of-\d+|metrics/\w+(/[\w@]+)?)\.parquet"
    r"|\w+/values/\w+/[\w.-]+"  # of games, and of earlier versions
)
ROWS = re.compile(r"\.rows/\w+/([0-9a-f]{32})/[\w.-]+")
PARTIAL = re.compile(r"\.(.+)\.\d+\.tmp")  # files.atomic: what a killed job left; Snakemake's lock says that none runs


def find_stale(config: Config) -> list[str]:
    """Paths of score shards, metric files, models, reports and stored rows that no job of the configuration makes."""
    root = Path(config.results)
    named = {os.path.relpath(path, root) for path in jobs.list_outputs(config)} | {"reports/index.ipynb"}
    named |= {f"models/{model}/card.json" for model in config.models}
    keys = _list_keys(config)
    stale_files = []
    for folder, _, files in os.walk(root):  # links to folders are not followed
        for file in files:
            partial = PARTIAL.fullmatch(file)
            path = Path(folder, file)
            name = path.relative_to(root).with_name(partial[1] if partial else file).as_posix()
            if row := ROWS.fullmatch(name):
                is_stale = keys is not None and row[1] not in keys
            else:
                is_stale = bool(MADE.fullmatch(name)) and _find_origin(name) not in named
            if is_stale or (partial and (row or MADE.fullmatch(name))):
                stale_files.append(str(path))
    return sorted(stale_files)


def describe_removal(config: Config) -> str:
    """Return what `remove` would remove: a line per folder with its number of files and bytes, after the sum."""
    files = find_stale(config)
    folders = defaultdict(list)
    for file in files:
        folders[os.path.dirname(file)].append(os.lstat(file).st_size)
    total = f"{len(files)} file(s), {format_bytes(sum(map(sum, folders.values())))}"
    lines = [f"  {folder}: {len(sizes)} file(s), {format_bytes(sum(sizes))}" for folder, sizes in folders.items()]
    return "\n".join([f"{config.results} has {total} that the configuration does not name", *lines])


def remove(files: Iterable[str], results: str) -> int:
    """Remove files of the results folder and folders left empty, not what links lead to elsewhere; return the bytes."""
    root, freed = Path(results).resolve(), 0
    for file in map(Path, files):
        folder = file.parent.resolve()
        if not folder.is_relative_to(root):
            continue
        freed += file.lstat().st_size
        file.unlink()
        while folder != root and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent
    return freed


def trim_rows(folder: str | Path, max_bytes: float) -> int:
    """Remove the tables that no job used for the longest time until the rest fits; return the bytes removed."""
    tables = sorted((path.stat().st_mtime, path) for path in Path(folder).glob("*/*") if path.is_dir())
    sizes = {path: _measure_size(path) for _, path in tables}
    excess, freed = sum(sizes.values()) - max_bytes, 0
    for _, path in tables:
        if freed >= excess:
            break
        shutil.rmtree(path, ignore_errors=True)
        freed += sizes[path]
    return freed


def _measure_size(folder: Path) -> int:
    return sum(entry.stat().st_size for entry in os.scandir(folder) if entry.is_file())


def _find_origin(name: str) -> str:
    """The file that stands for this one among the outputs: the card for a model's, the notebook for a page."""
    if name.startswith("models/"):
        return f"{os.path.dirname(name)}/card.json"
    if beside := re.match(r"(reports/\w+)_files/", name):
        return f"{beside[1]}.ipynb"
    return str(Path(name).with_suffix(".ipynb")) if name.startswith("reports/") else name


def _list_keys(config: Config) -> set[str] | None:
    """Return keys of row tables that the configuration's files name; None while some files are missing."""
    files = [path for path in jobs.list_outputs(config) if re.search(r"/scores/|/metrics/measured", path)]
    run = tuple(f"{config.results}/{name}/" for name in config.run)
    if not all(os.path.exists(file) for file in files if file.startswith(run)):
        return None
    from shapeline import scores  # pandas: only here

    return {key for file in filter(os.path.exists, files) for key in scores.metadata(file).get("rows", ())}
