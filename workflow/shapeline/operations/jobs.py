"""The plumbing of a job: its log, its progress line, its device, and an end when Snakemake dies."""

import _thread
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from shapeline.errors import ShapelineError
from shapeline.memory import keep_freed_memory, ran_out
from shapeline.operations.devices import acquire_device, usable_device

log = logging.getLogger("shapeline")


def start(snakemake) -> str:
    """Set up log, errors and parent watch for a script; returns the device to use, "cpu" or "cuda"."""
    path = Path(snakemake.log[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    name = " ".join([snakemake.rule, *map(str, snakemake.wildcards)])
    to_file, to_terminal = logging.FileHandler(path, mode="w", encoding="utf-8"), logging.StreamHandler()
    to_file.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    to_terminal.setFormatter(logging.Formatter(f"[{name}] %(message)s"))
    to_terminal.setLevel(logging.INFO if sys.stderr.isatty() else logging.WARNING)
    log.handlers[:] = [to_file, to_terminal]
    log.setLevel(logging.INFO)

    def last_words(kind: type[BaseException], error: BaseException, trace) -> None:
        to_file.stream.flush()
        logging.getLogger("shapeline.failure").propagate = False
        to_file.emit(log.makeRecord(log.name, logging.ERROR, "", 0, "failed", (), (kind, error, trace)))
        if ran_out(error):
            told = [line for line in str(error).splitlines() if "memory" in line or "OOM" in line] or [kind.__name__]
            print(
                f"[{name}] error: memory ran out ({told[0]}); "
                "run fewer jobs at a time, or use a device with more memory",
                file=sys.stderr,
            )
        elif issubclass(kind, ShapelineError | OSError):
            print(f"[{name}] error: {str(error) or kind.__name__}", file=sys.stderr)
        else:
            sys.__excepthook__(kind, error, trace)

    sys.excepthook = last_words
    _watch_parents()
    keep_freed_memory()
    # Snakemake sets OMP_NUM_THREADS; TensorFlow asks these instead, and writes to the terminal unless told not to.
    os.environ |= {f"TF_NUM_{kind}OP_THREADS": str(snakemake.threads) for kind in ("INTRA", "INTER")}
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    asked = snakemake.resources
    required = asked.get("device") == "cuda"
    device = acquire_device(int(asked.get("gpu", 0)), required, int(asked.get("jobs_per_gpu", 1)))
    return usable_device(asked.get("framework", "torch"), required) if device == "cuda" else device


def progress(total: int, every: float = 5.0) -> Callable[[int, int], None]:
    """A callback (instances done, evaluations made) that logs the rate and the time left, at most every few seconds."""
    began = last = time.monotonic()

    def tell(done: int, evaluations: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < every and done < total:
            return
        last, spent = now, max(now - began, 1e-9)
        left = spent / max(done, 1) * (total - done)
        log.info("%d/%d instances, %s evaluations/s, %.0f s left", done, total, f"{evaluations / spent:,.0f}", left)

    return tell


def export_package() -> None:
    """Let the scripts that Snakemake starts import this very package, installed or not."""
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


def release_stale_locks(folder: Path = Path(".snakemake")) -> bool:
    """Remove the lock that a killed Snakemake left behind; True when there was one.

    Every run notes itself under `owners`. The lock goes only when a noted run of this machine is dead and no other
    run is noted alive or, in the last week, on another machine.
    """
    host, dead, others = socket.gethostname(), [], 0
    owners = folder / "owners"
    owners.mkdir(parents=True, exist_ok=True)
    for note in owners.iterdir():
        where, pid, born = note.name.rsplit("@", 2)
        if where == host and not _lives(int(pid), float(born)):
            dead.append(note)
        elif where != host and time.time() - note.stat().st_mtime > 7 * 86400:  # cannot be asked; few runs last a week
            note.unlink(missing_ok=True)
        else:
            others += note.name != _own_note(host)
    locks = list((folder / "locks").glob("*")) if dead and not others else []
    for file in [*locks, *dead]:
        file.unlink(missing_ok=True)
    (owners / _own_note(host)).touch()
    return bool(locks)


def _own_note(host: str) -> str:
    return f"{host}@{os.getpid()}@{psutil.Process().create_time():.2f}"


def _lives(pid: int, born: float) -> bool:
    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - born) < 1 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _watch_parents() -> None:
    """End this process when Snakemake is gone: after a SIGKILL its workers would live on."""
    above: list[psutil.Process] = []
    for parent in psutil.Process().parents():
        above.append(parent)
        words = [os.path.basename(word) for word in parent.cmdline()[:3]]
        if "snakemake" in words:
            break
    else:
        return

    def watch() -> None:
        while all(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in above):
            time.sleep(1)
        log.error("Snakemake is gone: stopping")
        _thread.interrupt_main()  # lets temporary files be removed
        time.sleep(5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
