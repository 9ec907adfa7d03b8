"""The plumbing of a job: its log, its progress line, its device, and an end when Snakemake dies."""

import _thread
import ctypes
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from shapeline.errors import ShapelineError
from shapeline.memory import ran_out

log = logging.getLogger("shapeline")
_held: list[FileLock] = []  # device locks live as long as the process; the kernel frees them when it dies


def start(snakemake) -> str:
    """Set up log, errors and parent watch for a script; returns the device to use, "cpu" or "cuda"."""
    path = Path(snakemake.log[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    name = " ".join([snakemake.rule, *map(str, snakemake.wildcards)])
    to_file, to_terminal = logging.FileHandler(path, mode="w"), logging.StreamHandler()
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


def keep_freed_memory() -> None:
    """Let the C library keep up to a gigabyte of what is freed; for this whole process, and glibc alone.

    It gives large blocks back to the system, which then clears new ones at every call of a model: half of the time of
    some.
    """
    trim_threshold, mmap_threshold = -1, -3  # malloc.h
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(mmap_threshold, 1 << 30)
        library.mallopt(trim_threshold, 1 << 30)


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


def visible_devices() -> list[str]:
    """Names of the GPUs this job may use: those of CUDA_VISIBLE_DEVICES, else every one that nvidia-smi lists.

    A GPU that is split (MIG) counts as its parts, for no job can have it whole.
    """
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        names = (name.strip() for name in os.environ["CUDA_VISIBLE_DEVICES"].split(","))
        return [name for name in names if name not in ("", "-1", "NoDevFiles")]
    if not shutil.which("nvidia-smi"):
        return []
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    found: list[tuple[str, list[str]]] = []  # each GPU with its parts
    for name in re.findall(r"UUID: ([\w/-]+)\)", listed.stdout if listed.returncode == 0 else ""):
        if name.startswith("MIG-") and found:
            found[-1][1].append(name)
        else:
            found.append((name, []))
    return [name for gpu, parts in found for name in parts or [gpu]]


def acquire_device(gpus: int, required: bool = False, jobs_per_gpu: int = 1) -> str:
    """Take a free slot of a GPU through a lock on a node-local file, before a framework is imported; wait for one.

    Snakemake counts GPUs but never picks one. A GPU has `jobs_per_gpu` slots; a second job goes to another GPU where
    one is free. Under Slurm the scheduler has picked already. Raises ShapelineError where a GPU is required and none
    is to be had.
    """
    devices = visible_devices() if gpus else []
    if required and not devices:
        why = "no GPU is visible" if gpus else "--resources gpu=0 leaves this job none"
        raise ShapelineError(f"device: cuda, but {why}; set device: auto to fall back to the CPU")
    if not devices:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        log.info("no GPU is visible: running on the CPU" if gpus else "running on the CPU")
        return "cpu"
    if "SLURM_JOB_ID" in os.environ:
        log.info("running on GPU %s, given by Slurm", ",".join(devices))
        return "cuda"
    told = False
    while True:
        for slot, name in [(slot, name) for slot in range(jobs_per_gpu) for name in devices]:
            file = f"shapeline-gpu-{re.sub('[^A-Za-z0-9-]', '_', name)}-{slot}.lock"  # a MIG name may hold slashes
            lock = FileLock(Path(tempfile.gettempdir()) / file, mode=0o666)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            _held.append(lock)
            os.environ["CUDA_VISIBLE_DEVICES"] = name
            log.info("running on GPU %s", name)
            return "cuda"
        if not told:
            log.info("waiting for one of %d GPU(s)", len(devices))
            told = True
        time.sleep(1)


def usable_device(framework: str, required: bool = False) -> str:
    """ "cuda" where the framework sees the GPU that this job took, else "cpu" with the GPU given back.

    A build for the CPU on a machine with GPUs is common. Imports the framework, which the job does next anyway.
    """
    if framework == "torch":
        import torch

        sees = torch.cuda.is_available()
    else:
        import tensorflow

        sees = bool(tensorflow.config.list_physical_devices("GPU"))
    if sees:
        return "cuda"
    problem = f"{framework} cannot use the GPU (a build for the CPU, or an unfit driver)"
    if required:
        raise ShapelineError(f"device: cuda, but {problem}; set device: auto to fall back to the CPU")
    log.warning("%s: running on the CPU", problem)
    while _held:
        _held.pop().release()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    return "cpu"


def export_package() -> None:
    """Let the scripts that Snakemake starts import this very package, installed or not."""
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
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
