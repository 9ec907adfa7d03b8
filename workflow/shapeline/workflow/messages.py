"""Lines at the start and the end of a run, beside those of Snakemake."""

import contextlib
import logging
import os
from collections import Counter
from collections.abc import Collection, Iterable

from shapeline.config.types import Config
from shapeline.errors import ShapelineError
from shapeline.versions import find_differences
from shapeline.workflow import estimates, runs

TARGETS = {"all", "fetch", "train", "scores", "metrics", "report"}  # and every experiment: what a user can ask for
log = logging.getLogger("snakemake.logging")


def show(lines: Iterable[str]) -> None:
    """Show lines among those of Snakemake, whichever logger it has."""
    for line in lines:
        log.info(line, extra={"shapeline": True})


def show_start(config: Config, gpus_requested: bool) -> None:
    """Show what a user should know before the jobs run."""
    cpu = ["No GPU is visible on this machine: running on the CPU."] if gpus_requested else []
    show([*runs.list_unavailable(config), *estimates.list_memory_warnings(config), *list_version_lines(config), *cpu])


def show_success(config: Config, index: str, outputs: Collection[str], experiments: Collection[str | None]) -> None:
    """Show failed explanations and warnings of a run, and the page to open; outputs: files of the jobs that ran."""
    show(f"flagged: {line}" for line in list_warnings(config, experiments))
    show([f"open {index}"] if index in outputs else [])


def list_version_lines(config: Config) -> list[str]:
    """Return a line per experiment and package whose score files were made with other versions than are here."""
    from shapeline import scores  # pandas: only where a run starts

    lines = []
    for experiment in config.run:
        files = {
            path: entry
            for entry in runs.list_all_entries(config, experiment)
            for path in runs.list_score_files(config, experiment, entry)
        }
        versions, rows_of = {}, {}
        for path in filter(os.path.exists, files):
            with contextlib.suppress(ShapelineError):  # of a damaged file, which the job that reads it names
                metadata = scores.metadata(path)
                versions[path] = metadata.get("versions", {})
                rows_of[path] = metadata.get("framework"), metadata.get("row_types")
        encoded = [files[path] for path, (framework, rows) in rows_of.items() if framework == "function" and not rows]
        if encoded:
            lines.append(
                f"{experiment}: scores of {', '.join(dict.fromkeys(encoded))} were computed from rows encoded as "
                "float32; they are computed again from rows in their own types"
            )
        apart = find_differences(versions)
        entries: dict[tuple, list[str]] = {}
        for path, packages in apart.items():
            for package, (theirs, here) in packages.items():
                entries.setdefault((package, theirs, here), []).append(files[path])
        lines += [
            f"{experiment}: scores of {', '.join(dict.fromkeys(names))} were made with {package} {theirs} and {here} "
            "is installed, which may change numbers; `versions: strict` in the configuration re-computes them"
            for (package, theirs, here), names in sorted(entries.items())
        ]
    return lines


def list_warnings(config: Config, asked: Collection[str | None]) -> list[str]:
    """Return a line per method of the requested experiments whose instances failed or are flagged, with how many."""
    from pyarrow import parquet

    lines = []
    for experiment in filter(asked.__contains__, config.run):
        for entry in runs.list_entries(config, experiment):
            rows = [
                row
                for path in filter(os.path.exists, runs.list_score_files(config, experiment, entry))
                for row in parquet.read_table(path, columns=["status", "warning", "error"]).to_pylist()
            ]
            failed = [row["error"] or row["status"] for row in rows if row["status"] != "ok"]
            named = Counter(row["warning"] for row in rows if row["status"] == "ok" and row["warning"])
            first = Counter(failed).most_common(1)
            what = [f"{len(failed)} of {len(rows)} explanations failed ({reason})" for reason, _ in first]
            what += [f"{flag} in {count} of {len(rows)} explanations" for flag, count in named.items()]
            if what:
                lines.append(f"{experiment}: {entry}: {', '.join(what)}")
    return lines
