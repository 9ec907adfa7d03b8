"""What the logs of jobs say: causes of failures, last lines, progress."""

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

CAUSE = "error: "  # how the last lines of a failed job's log begin
LOG_TIME = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ")
INSTANCES = re.compile(r"(\d+)/(\d+) instances")
ERRORS_ARE_REPORTED = "SHAPELINE_ERRORS_ARE_REPORTED"  # set where the logger reads causes from the logs of jobs


def instances_done(path: str) -> float | None:
    """The share of its instances that the job with this log says are done."""
    try:
        with open(path, "rb") as file:
            file.seek(-min(400, os.stat(path).st_size), os.SEEK_END)
            found = INSTANCES.findall(file.read().decode(errors="replace"))
    except OSError:
        return None
    return int(found[-1][0]) / max(int(found[-1][1]), 1) if found else None


def cause_of(logs: Iterable[str]) -> str:
    """What the logs of a failed job end with as its cause, "" where they have none."""
    for path in logs:
        with contextlib.suppress(OSError):
            _, found, cause = Path(path).read_text(encoding="utf-8", errors="replace").rpartition(f"\n{CAUSE}")
            if found:
                return cause.strip()
    return ""


def last_lines(logs: Iterable[str], count: int = 3) -> list[str]:
    """Return the last non-empty lines of a failed job's log without their times, or how a crash of a library begins."""
    lines: list[str] = []
    for path in logs:
        with contextlib.suppress(OSError):
            text = Path(path).read_text(encoding="utf-8", errors="replace")
            lines += [LOG_TIME.sub("", line) for line in text.splitlines() if line.strip()]
    crash = next((place for place, line in enumerate(lines) if line.startswith("Fatal Python error")), None)
    return lines[-count:] if crash is None else lines[crash : crash + count]
