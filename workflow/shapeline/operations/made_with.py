"""What is said at the start of a run of the versions that scores were made with."""

import contextlib
import os

from shapeline.config.types import Config
from shapeline.errors import ShapelineError
from shapeline.operations.versions import differing
from shapeline.plan import paths, runs


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
        said = {}
        for path in filter(os.path.exists, files):
            with contextlib.suppress(ShapelineError):  # of a damaged file, which the job that reads it names
                said[path] = scores.metadata(path).get("versions", {})
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
