"""The environment of a job: its log, its progress line, its device (the first free GPU or the CPU), and its end."""

import contextlib
import faulthandler
import functools
import gc
import logging
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from shapeline import files
from shapeline.errors import ShapelineError, describe_missing, is_installed
from shapeline.fork_server import server as fork_server
from shapeline.memory import is_out_of_memory, keep_freed_memory

log = logging.getLogger("shapeline")
CLEAR = "\r\033[K"  # clears the terminal's line


def start(snakemake, libraries: str = "") -> str:
    """Set up log, errors and parent watch for a script; return the device; libraries: of the fork server."""
    resources = snakemake.resources
    if not (resources.get("gpu") and list_visible_devices()):  # a server that has imported a framework sees no GPU
        fork_server.send(libraries or (resources.get("framework", "") if snakemake.input.get("weights") else ""))
    path = Path(snakemake.log[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    name = " ".join([snakemake.rule, *filter(None, map(str, snakemake.wildcards))])
    to_file, to_terminal = logging.FileHandler(path, mode="w", encoding="utf-8"), logging.StreamHandler()
    to_file.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    clear = CLEAR if sys.stderr.isatty() else ""
    to_terminal.setFormatter(logging.Formatter(f"{clear}[{name}] %(message)s"))
    to_terminal.setLevel(logging.WARNING)
    log.handlers[:] = [to_file, to_terminal]
    warnings.showwarning = lambda message, kind, *_: log.info("%s: %s", kind.__name__, message)
    logging.raiseExceptions = False  # a log that cannot be written must not end the job
    log.setLevel(logging.INFO)
    faulthandler.enable(to_file.stream)  # writes the position of a crash of a library

    def report_failure(kind: type[BaseException], error: BaseException, trace) -> None:
        if issubclass(kind, KeyboardInterrupt):
            log.info("stopped")
            return
        to_file.emit(log.makeRecord(log.name, logging.ERROR, "", 0, "failed", (), (kind, error, trace)))
        cause = describe_cause(error)
        in_log = False
        with contextlib.suppress(OSError):  # such as a full disk
            to_file.stream.write(f"{CAUSE}{cause}\n")
            to_file.stream.flush()
            in_log = True
        if in_log and ERRORS_ARE_REPORTED in os.environ:
            return
        if cause.startswith(f"{kind.__name__}: "):
            sys.__excepthook__(kind, error, trace)
        else:
            print(f"[{name}] error: {cause}", file=sys.stderr)

    sys.excepthook = report_failure
    files.before_any[:] = [watch_inputs(snakemake.input)]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a fork of the server ignores it until here
    _watch_parents()
    keep_freed_memory()
    # Snakemake sets OMP_NUM_THREADS; TensorFlow reads these, and writes to the terminal unless its level is set.
    os.environ |= {f"TF_NUM_{kind}OP_THREADS": str(snakemake.threads) for kind in ("INTRA", "INTER")}
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    required = resources.get("device") == "cuda"
    device = acquire_device(int(resources.get("gpu", 0)), required, int(resources.get("jobs_per_gpu", 1)))
    return check_device(resources.get("framework", "torch"), required) if device == "cuda" else device


def describe_cause(error: BaseException) -> str:
    """Return the reason of a job's failure, in one line if the user can act on it."""
    name = type(error).__name__
    if is_out_of_memory(error):
        lines = [line for line in str(error).splitlines() if "memory" in line or "OOM" in line] or [name]
        return f"memory ran out ({lines[0]}); run fewer jobs at a time, or use a device with more memory"
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.partition(".")[0]
        if not is_installed(package):
            return describe_missing(package)
    if isinstance(error, ShapelineError | OSError):
        return str(error) or name
    for frame, _ in traceback.walk_tb(error.__traceback__) if isinstance(error, EOFError) else ():
        if path := frame.f_locals.get("bytecode_path"):  # of an import, which Python names nowhere
            return f"{path} is damaged (byte code that a full disk cut short); remove it and run again"
    return f"{name}: {error}"


def uses_graph(snakemake) -> bool:
    """Return whether the job needs values only, on the CPU, and runs the ONNX graph without the framework."""
    resources, instances, weights = snakemake.resources, *map(snakemake.input.get, ("instances", "weights"))
    if not (resources.get("values_alone") and instances and weights):
        return False
    if not Path(weights if isinstance(weights, str) else weights[0]).with_name("model.onnx").is_file():
        return False
    if resources.get("gpu") and list_visible_devices():
        return False
    from shapeline import scores

    return (scores.metadata(instances).get("forms") or {}).get("cpu", {}).get("name") == "onnx"


def watch_inputs(paths: Iterable[str]) -> Callable[[], None]:
    """Return a check that no input file has changed since this call: outputs newer than an edit would never re-run."""

    def read_stamp(path: str) -> tuple[int, int] | None:
        with contextlib.suppress(OSError):
            status = os.stat(path)
            return status.st_mtime_ns, status.st_size
        return None

    stamps = {path: read_stamp(path) for path in map(str, paths) if not os.path.isdir(path)}

    def check() -> None:
        for path, before in stamps.items():
            if read_stamp(path) != before:
                raise ShapelineError(f"{path}: was changed while this job ran; run the same command again")

    return check


def progress(total: int, every: float = 5.0) -> Callable[[int, int], None]:
    """Return a callback (instances done, evaluations) that logs the rate and the remaining time every few seconds."""
    began = last = time.monotonic()

    def log_progress(done: int, evaluations: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < every and done < total:
            return
        last, spent = now, max(now - began, 1e-9)
        left = spent / max(done, 1) * (total - done)
        log.info("%d/%d instances, %s evaluations/s, %.0f s left", done, total, f"{evaluations / spent:,.0f}", left)

    return log_progress


def prepare_process(main: bool) -> None:
    """Prepare a process of Snakemake: its memory, paths and, in the main process, the lock of a killed run."""
    # The objects of a plan persist; garbage collection took a tenth of a dry run.
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    # The scripts that Snakemake starts import this package, installed or not.
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    try:
        make_interpreter_path_plain()
        was_killed = main and release_stale_locks()
    except OSError as error:
        sys.exit(f"{Path.cwd()}: cannot be written ({error.strerror}); run in a folder that you can write")
    if was_killed:
        print("The last run was killed; its lock is removed and finished files are kept.", file=sys.stderr)


def release_stale_locks(folder: Path = Path(".snakemake")) -> bool:
    """Remove the lock of a killed Snakemake if no other run exists; return whether there was one."""
    dead, others = [], 0
    owners = folder / "owners"
    owners.mkdir(parents=True, exist_ok=True)
    for note in owners.iterdir():
        if not is_gone(note):
            others += note.name != name_owner()
        elif note.name.rsplit("@", 2)[0] == socket.gethostname():
            dead.append(note)
        else:
            note.unlink(missing_ok=True)
    dead = [] if others else dead  # their locks and notes stay while another run exists
    locks = list((folder / "locks").glob("*")) if dead else []
    for file in [*locks, *dead]:
        file.unlink(missing_ok=True)
    (owners / name_owner()).touch()
    return bool(locks)


def name_owner() -> str:
    """Return a unique name of this process."""
    return f"{socket.gethostname()}@{os.getpid()}@{psutil.Process().create_time():.2f}"


def is_gone(note: Path) -> bool:
    """Return whether the process of a note has ended; for another machine, whether the note is a week old."""
    host, pid, born = note.name.rsplit("@", 2)
    if host == socket.gethostname():
        return not _is_alive(int(pid), float(born))
    return time.time() - note.stat().st_mtime > 7 * 86400  # few runs last a week


def _is_alive(pid: int, born: float) -> bool:
    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - born) < 1 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _watch_parents() -> None:
    """End this process when Snakemake ends: after a SIGKILL its workers would otherwise continue."""
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
        os.kill(os.getpid(), signal.SIGINT)  # lets temporary files be removed
        time.sleep(5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


CAUSE = "error: "  # the prefix of the last lines of a failed job's log
LOG_TIME = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ")
INSTANCES = re.compile(r"(\d+)/(\d+) instances")
ERRORS_ARE_REPORTED = "SHAPELINE_ERRORS_ARE_REPORTED"  # set if the logger reads causes from the logs of jobs


def count_done(path: str) -> float | None:
    """Return the share of explained instances in the log of a job."""
    try:
        with open(path, "rb") as file:
            file.seek(-min(400, os.stat(path).st_size), os.SEEK_END)
            counts = INSTANCES.findall(file.read().decode(errors="replace"))
    except OSError:
        return None
    return int(counts[-1][0]) / max(int(counts[-1][1]), 1) if counts else None


def find_cause(logs: Iterable[str]) -> str:
    """Return the cause at the end of the logs of a failed job; "" if there is none."""
    for path in logs:
        with contextlib.suppress(OSError):
            _, mark, cause = Path(path).read_text(encoding="utf-8", errors="replace").rpartition(f"\n{CAUSE}")
            if mark:
                return cause.strip()
    return ""


def read_last_lines(logs: Iterable[str], count: int = 3) -> list[str]:
    """Return the last non-empty lines of a failed job's log without their times, or how a crash of a library begins."""
    lines: list[str] = []
    for path in logs:
        with contextlib.suppress(OSError):
            text = Path(path).read_text(encoding="utf-8", errors="replace")
            lines += [LOG_TIME.sub("", line) for line in text.splitlines() if line.strip()]
    crash = next((index for index, line in enumerate(lines) if line.startswith("Fatal Python error")), None)
    return lines[-count:] if crash is None else lines[crash : crash + count]


LINK = Path(".snakemake/environment")


def make_interpreter_path_plain() -> None:
    """Set an interpreter path without spaces, because Snakemake writes it into commands unquoted (issue 2645)."""
    if _is_plain(sys.executable):
        return
    path = os.path.relpath(sys.executable)
    if not _is_plain(path):
        if not LINK.exists() or not LINK.samefile(sys.prefix):
            LINK.parent.mkdir(exist_ok=True)
            new = LINK.with_name(f"{LINK.name}.{os.getpid()}")
            new.symlink_to(sys.prefix, target_is_directory=True)
            os.replace(new, LINK)  # at once, because other runs in this folder may use it
        path = str(LINK / os.path.relpath(sys.executable, sys.prefix))
    sys.executable = path


def check_workflow_folder(folder: str) -> None:
    """Raise ShapelineError if the path of the Snakefile has braces, which Snakemake cannot escape."""
    if "{" in folder:
        raise ShapelineError(f"{folder}: Snakemake reads braces in the path of a workflow as wildcards; move it")


def _is_plain(path: str) -> bool:
    return shlex.quote(path) == path and "{" not in path


_locks: list[FileLock] = []  # of devices; they last as long as the process, and the kernel releases them


def list_visible_devices() -> list[str]:
    """Return the GPUs of this job from CUDA_VISIBLE_DEVICES, else nvidia-smi; a split GPU counts as its parts."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        names = (name.strip() for name in os.environ["CUDA_VISIBLE_DEVICES"].split(","))
        return [name for name in names if name not in ("", "-1", "NoDevFiles")]
    return _list_gpus()


@functools.cache  # a job asks more than once, and an idle driver takes seconds to answer
def _list_gpus() -> list[str]:
    if not shutil.which("nvidia-smi"):
        return []
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    gpus: list[tuple[str, list[str]]] = []  # each with its parts
    for name in re.findall(r"UUID: ([\w/-]+)\)", listed.stdout if listed.returncode == 0 else ""):
        if name.startswith("MIG-") and gpus:
            gpus[-1][1].append(name)
        else:
            gpus.append((name, []))
    return [name for gpu, parts in gpus for name in parts or [gpu]]


def acquire_device(gpus: int, required: bool = False, jobs_per_gpu: int = 1) -> str:
    """Reserve one of a GPU's `jobs_per_gpu` slots by a lock on a node-local file, before a framework is imported.

    Snakemake counts GPUs but does not assign one; Slurm does. Raises ShapelineError if a GPU is required and none is
    available.
    """
    devices = list_visible_devices() if gpus else []
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
    reported = False
    while True:
        for slot, name in [(slot, name) for slot in range(jobs_per_gpu) for name in devices]:
            file = f"shapeline-gpu-{re.sub('[^A-Za-z0-9-]', '_', name)}-{slot}.lock"  # a MIG name may hold slashes
            lock = FileLock(Path(tempfile.gettempdir()) / file, mode=0o666)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            _locks.append(lock)
            os.environ["CUDA_VISIBLE_DEVICES"] = name
            log.info("running on GPU %s", name)
            return "cuda"
        if not reported:
            log.info("waiting for one of %d GPU(s)", len(devices))
            reported = True
        time.sleep(1)


def check_device(framework: str, required: bool = False) -> str:
    """Import the framework; return "cuda" if it can use the GPU of this job, else release the GPU and return "cpu"."""
    if framework == "tensorflow":
        from shapeline.models.keras_models import tf

        available = bool(tf.config.list_physical_devices("GPU"))
    else:
        import torch

        available = torch.cuda.is_available()
    if available:
        return "cuda"
    name = "tensorflow" if framework == "tensorflow" else "torch"
    problem = f"{name} cannot use the GPU (a build for the CPU, or an unfit driver)"
    if required:
        raise ShapelineError(f"device: cuda, but {problem}; set device: auto to fall back to the CPU")
    log.warning("%s: running on the CPU", problem)
    while _locks:
        _locks.pop().release()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    return "cpu"
