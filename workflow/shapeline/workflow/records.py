"""When .snakemake is lost: outputs that were made with other settings or code than are here now."""

import json
import os
from base64 import urlsafe_b64encode
from pathlib import Path

from shapeline.config.types import Config
from shapeline.errors import ShapelineError
from shapeline.files import document
from shapeline.seeds import digest
from shapeline.workflow.jobs import expected_outputs

RECORDED_WITHIN = 600.0  # seconds; on a cluster Snakemake sees the end of a job late


def check_records(config: Config) -> None:
    """Stop when outputs that Snakemake would call up to date were made with other settings or code: it lost its record
    of them, or they are other files than those that it recorded.

    Raises ShapelineError with the stale files and the command that remakes them.
    """
    stale = [
        path
        for path, settings in dict(expected_outputs(config)).items()
        if os.path.exists(path) and not _is_recorded(path, settings) and _stored_digest(path) != digest(settings)
    ]
    if stale:
        raise ShapelineError(
            f".snakemake has no true record of {len(stale)} output(s) that were made with other settings, or by other "
            f"code, than are here now: {', '.join(stale)}. Remake them and what depends on them with:\n"
            f"  rm {' '.join(stale)} && snakemake --cores all"
        )


def _is_recorded(path: str, settings: dict) -> bool:
    """Whether Snakemake itself can tell that the file at `path` is up to date or not.

    It writes its record in the moments after the file; from the times alone a file that came later is known, and then
    the record decides: with other parameters in it the job runs again anyhow.
    """
    record = record_of(path)
    try:
        recorded = json.loads(record.read_text(encoding="utf-8")).get("params", [])
    except (FileNotFoundError, ValueError):  # Snakemake passes over a record that it cannot read
        return False
    if 0 <= record.stat().st_mtime - os.stat(path).st_mtime < RECORDED_WITHIN:
        return True
    return not any(repr(settings) in kept for kept in recorded)  # of a job with several files they are one of many


def record_of(path: str, kind: str = "metadata") -> Path:
    """Where Snakemake keeps its record of an output, or its mark of one that is `incomplete`: the path in URL-safe
    base64, in pieces that a file name can hold."""
    name = urlsafe_b64encode(path.encode()).decode()
    longest = os.pathconf(".", "PC_NAME_MAX") - 1
    pieces = [name[i : i + longest] for i in range(0, len(name), longest)]
    return Path(".snakemake", kind, *("@" + piece for piece in pieces[:-1]), pieces[-1])


def _stored_digest(path: str) -> str | None:
    if path.endswith(".parquet"):
        from shapeline import scores  # pandas: only when a record is missing

        return scores.metadata(path).get("settings_digest")
    content = document(path)
    if path.endswith(".ipynb"):
        return content.get("metadata", {}).get("shapeline", {}).get("settings_digest")
    return digest(content.get("settings"))
