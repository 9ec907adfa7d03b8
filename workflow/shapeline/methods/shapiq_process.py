"""shapiq's approximators in another environment's interpreter: its program, of numpy and shapiq, and its client."""

import contextlib
import functools
import inspect
import json
import os
import subprocess
import sys
import tempfile
from typing import IO

START_SECONDS = 120  # time limit of a query of an environment, whose first import may be slow


def answer(task: dict, evaluate) -> dict:
    """Return {"scores": ...} of a task, or {"error": kind, "message": ...}; evaluate: masks (K, d) to values (K,)."""
    import numpy as np
    from shapiq import approximator as installed

    make = getattr(installed, task["approximator"], None)
    if make is None or task["approximator"] not in list_approximators(installed):
        return {"error": "name", "message": ", ".join(list_approximators(installed))}
    accepted = inspect.signature(make).parameters
    order = {"index": "SV", "max_order": 1} if "SV" in make.valid_indices else {}
    order = {name: value for name, value in order.items() if name in accepted}
    np.random.seed(task["seed"])
    try:
        built = make(n=task["d"], random_state=task["seed"], **order)
        values = built.approximate(task["budget"], lambda masks: evaluate(np.atleast_2d(masks)))
    except ImportError as error:
        return {"error": "import", "message": str(error)}
    except (ValueError, IndexError) as error:
        return {"error": "failure", "message": str(error)}
    return {"scores": [float(values[(feature,)]) for feature in range(task["d"])]}


def list_approximators(installed) -> list[str]:
    """Return the approximators of Shapley values that a release of shapiq has."""
    result = {name: getattr(installed, name) for name in installed.__all__}
    first_order = {"SV", "kADD-SHAP"}
    concrete = {name: entry for name, entry in result.items() if not inspect.isabstract(entry)}
    return sorted(name for name, entry in concrete.items() if first_order & set(getattr(entry, "valid_indices", ())))


def serve() -> None:
    """Answer tasks from the standard input until it ends; prints of libraries go to the standard error."""
    import numpy as np

    lines, out = sys.stdin, os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def write_line(document: dict) -> None:
        out.write(json.dumps(document) + "\n")
        out.flush()

    def evaluate(masks):
        write_line({"masks": (np.asarray(masks) > 0.5).astype(int).tolist()})
        return np.array(json.loads(lines.readline())["values"])

    for line in iter(lines.readline, ""):
        try:
            write_line(answer(json.loads(line), evaluate))
        except Exception as error:  # noqa: BLE001 (of another release of the library)
            write_line({"error": "other", "message": f"{type(error).__name__}: {error}"})


@functools.cache
def read_version(python: str) -> str | None:
    """Return the version of shapiq in the environment of an interpreter; None if it is missing or cannot run."""
    program = "from importlib.metadata import version; print(version('shapiq'))"
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = [os.path.expanduser(python), "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS, env=_build_environment())
        return done.stdout.strip() if done.returncode == 0 else None
    return None


def find_problem(python: str) -> str | None:
    """Return in one line why an interpreter cannot run shapiq; None if it can."""
    path = os.path.expanduser(python)
    if not os.access(path, os.X_OK) or os.path.isdir(path):
        return f"there is no interpreter {path}; name that of an environment with shapiq"
    if read_version(python) is None:
        return f"{path} has no shapiq; install it there: {path} -m pip install shapiq"
    return None


@functools.cache
def start_process(python: str) -> tuple[subprocess.Popen, IO[str]]:
    """Start the program in an interpreter, which ends with this process; return both and the file of its messages."""
    messages = tempfile.TemporaryFile("w+")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": messages, "text": True}
    command = [os.path.expanduser(python), os.path.abspath(__file__)]
    return subprocess.Popen(command, **pipes, env=_build_environment()), messages


def _build_environment() -> dict[str, str]:
    """Return the environment variables without those that name this environment's packages."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


def approximate(python: str, task: dict, game) -> dict:
    """Return the program's answer to a task; game: from masks (K, d) to values (K,)."""
    child, messages = start_process(python)

    def write_line(document: dict) -> None:
        child.stdin.write(json.dumps(document) + "\n")
        child.stdin.flush()

    try:
        write_line(task)
        for line in iter(child.stdout.readline, ""):
            message = json.loads(line)
            if "masks" not in message:
                return message
            write_line({"values": [float(value) for value in game(message["masks"])]})
    except BrokenPipeError:
        pass
    start_process.cache_clear()
    status = child.wait()
    messages.seek(0)
    last = (messages.read().strip().splitlines() or [""])[-1]
    return {"error": "import", "message": f"{python} ended by exit status {status}{': ' * bool(last)}{last}"}


if __name__ == "__main__":
    serve()
