"""What is said at the start of a run of the versions that scores were made with, and at its end of what failed."""

import contextlib
import os
from collections import Counter
from collections.abc import Collection

from shapeline.config.types import Config
from shapeline.errors import ShapelineError
from shapeline.versions import differing
from shapeline.workflow import paths, runs


def lines(config: Config) -> list[str]:
    """A line for each experiment under `run` and package whose score files were made with other versions than are
    here; reads what the files say of themselves."""
    from shapeline import scores  # pandas: only where a run starts

    told = []
    for experiment in config.run:
        files = {
            path: label
            for label in runs.all_labels(config, experiment)
            for path in paths.score_files(config, experiment, label)
        }
        said, rows_of = {}, {}
        for path in filter(os.path.exists, files):
            with contextlib.suppress(ShapelineError):  # of a damaged file, which the job that reads it names
                told_by = scores.metadata(path)
                said[path] = told_by.get("versions", {})
                rows_of[path] = told_by.get("framework"), told_by.get("row_types")
        encoded = [files[path] for path, (framework, rows) in rows_of.items() if framework == "function" and not rows]
        if encoded:
            told.append(
                f"{experiment}: scores of {', '.join(dict.fromkeys(encoded))} were computed from rows encoded as "
                "float32; they are computed again from rows in their own types"
            )
        apart = differing(said)
        labels: dict[tuple, list[str]] = {}
        for path, packages in apart.items():
            for package, (theirs, here) in packages.items():
                labels.setdefault((package, theirs, here), []).append(files[path])
        told += [
            f"{experiment}: scores of {', '.join(dict.fromkeys(names))} were made with {package} {theirs} and {here} "
            "is here, which may change numbers; `versions: strict` in the configuration makes them anew"
            for (package, theirs, here), names in sorted(labels.items())
        ]
    return told


def flagged(config: Config, asked: Collection[str | None]) -> list[str]:
    """A line for each label of the experiments that were asked for, and are under `run`, whose instances failed or are
    flagged, with how many."""
    from pyarrow import parquet

    told = []
    for experiment in filter(asked.__contains__, config.run):
        for label in runs.labels(config, experiment):
            rows = [
                row
                for path in filter(os.path.exists, paths.score_files(config, experiment, label))
                for row in parquet.read_table(path, columns=["status", "warning"]).to_pylist()
            ]
            failed = sum(row["status"] != "ok" for row in rows)
            named = Counter(row["warning"] for row in rows if row["status"] == "ok" and row["warning"])
            what = [f"{failed} failed"] * bool(failed) + [f"{count} {flag}" for flag, count in named.items()]
            if what:
                told.append(f"{experiment}: {label}: of {len(rows)} explanations {', '.join(what)}")
    return told
