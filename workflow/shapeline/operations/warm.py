"""Jobs that start at once: a server has their libraries imported, and each job is a fork of it.

Most of a small job is the start of Python and the same imports again. Before a job's command stands
`python ask.py`, which hands the job's arguments, folder, environment and standard files to the server and ends
as the fork does; where no server answers it becomes the command itself. A run's own server has imported the package
too, as it was when the run's jobs were planned.
"""

import contextlib
import os
import select
import shlex
import signal
import socket
import sys

DOOR = "SHAPELINE_WARM"  # in the environment: the folder of the server's sockets; empty where there is to be none
BASE = "base"
# What every job imports, and what those of a framework import besides; a score file names the packages that were
# imported, so no job starts with one that it does not use.
TORCH = ("torch", "safetensors.torch", "onnx", "torch.onnx.utils")
LIBRARIES = {
    BASE: (
        *("snakemake.script", "psutil", "filelock", "networkx", "tqdm"),
        *("pandas", "pyarrow.dataset", "pyarrow.pandas_compat", "pyarrow.parquet"),
        *("scipy.linalg", "scipy.sparse", "scipy.special"),
        *("pydantic.fields", "pydantic.functional_validators", "pydantic.root_model"),
    ),
    "torch": TORCH,
    "transformers": (*TORCH, "transformers.modeling_utils", "transformers.models.auto.modeling_auto"),
    "onnx": ("onnxruntime",),  # of jobs that ask the graph of a network for values
    "skops": ("skops.io",),  # which imports scikit-learn and torch, for seconds
    "tensorflow": ("keras", "tensorflow", "safetensors.numpy"),
    "report": ("papermill", "black", "nbconvert", "ipykernel.kernelapp", "ipykernel.ipkernel", "matplotlib.pyplot"),
    "snakemake": ("snakemake.cli", "sqlmodel", "pydantic"),  # as whole runs are forks in tests
}
# Of the package what most jobs import, and no other library with it.
OWN = {
    BASE: (
        *("shapeline.attribution.provenance", "shapeline.attribution.attribution_job", "shapeline.metrics.error"),
        *("shapeline.metrics.log_odds", "shapeline.metrics.measurement", "shapeline.metrics.score_measurement"),
        "shapeline.statistics.comparison",
    ),
    "report": (
        "shapeline.report.index",
        "shapeline.report.sections.combined",
        "shapeline.report.sections.localization",
        "shapeline.report.first_page",
    ),
}
FEWEST = 6  # jobs of a run from which a server is worth its own start
IDLE = 2.0  # seconds without a job, after which a run's server of a framework ends: it holds up to 600 MB
LASTING = (BASE, "report")  # the second holds 90 MB, and a run's pages stand far apart
MOST = 1 << 20  # bytes of a request: arguments and environment


def start(jobs: int) -> str:
    """Start a server that ends with this process; what is to stand before a job's command, "" without a server."""
    import tempfile

    if sys.platform == "linux" and jobs >= FEWEST and DOOR not in os.environ:
        with contextlib.suppress(OSError, AttributeError):  # then every job starts by itself
            os.close(os.pidfd_open(os.getpid()))  # which a container may refuse
            folder = tempfile.mkdtemp(prefix="shapeline-")
            start.server = server(folder, own=True)
            os.environ[DOOR] = folder
    # Snakemake fills in what stands between braces.
    return f"{shlex.join(command())} ".replace("{", "{{").replace("}", "}}") if os.environ.get(DOOR) else ""


def server(folder: str, own: bool = False, program: str = __file__, **options):
    """A server's Popen; its sockets are in `folder`, which it removes; it says "ready" and ends when its input does.

    own: whether it imports this very package, so that it serves one run alone; program: what calls `serve`.
    """
    import subprocess

    from shapeline.datasets.folders import OFFLINE

    told = {"MPLBACKEND": "agg", "TF_CPP_MIN_LOG_LEVEL": "3"}  # the second is read where TensorFlow is imported
    one = OFFLINE | told | {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} | options
    root = [os.path.abspath(os.path.join(os.path.dirname(__file__), os.pardir, os.pardir))] if own else []
    words = [sys.executable, "-P", program, folder, *root]
    return subprocess.Popen(words, env=environment | one, stdin=subprocess.PIPE, **quiet)


def command(kind: str = BASE) -> list[str]:
    """The words before `python program arguments` with which the server of the environment runs it."""
    return [sys.executable, "-I", "-S", os.path.join(os.path.dirname(__file__), "ask.py"), kind]


def move(kind: str) -> None:
    """Let the server's process that has the libraries of `kind` run this very job, and end as it does.

    Returns where there is none, or this process has them.
    """
    if not os.environ.get(DOOR) or not LIBRARIES.get(kind) or LIBRARIES[kind][0] in sys.modules:
        return
    from shapeline.operations.ask import ask

    status = ask(kind, sys.argv)
    if status is not None:
        os._exit(status)


def serve(folder: str, root: str = "") -> dict:
    """Import, then fork for every request until whoever started the server is gone; returns in the forks alone.

    root: where the package is that is imported too.
    """
    signal.signal(signal.SIGINT, lambda *_: None)  # not ignored: it ends after the jobs
    _import(BASE, root)
    doors = {}
    for kind in LIBRARIES:
        doors[kind] = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        doors[kind].bind(os.path.join(folder, kind))
        doors[kind].listen(64)
    with contextlib.suppress(OSError):
        print("ready", flush=True)
    return _answer(folder, doors, root)


def _answer(folder: str, doors: dict[str, socket.socket], root: str, kind: str = BASE) -> dict:
    """Fork for every request at the door of this kind, and a server for each other kind while it is asked for."""
    running: dict[int, tuple[int, socket.socket]] = {}  # by a file that can be read when it ended: a fork, who waits
    kept: dict[int, str] = {}  # by such a file: the kind that has a server, which answers at its door
    while True:
        waiting = [line for _, line in running.values() if line.fileno() >= 0]
        mine = {name: door for name, door in doors.items() if name not in kept.values()}
        patience = IDLE if root and kind not in LASTING and not running else None
        ready = select.select([sys.stdin, *mine.values(), *kept, *running, *waiting], [], [], patience)[0]
        if sys.stdin in ready or not ready:
            if kind == BASE:
                _remove(folder)
            os._exit(0)
        for ended in [file for file in kept if file in ready]:  # who asks next has another
            os.waitid(os.P_PIDFD, ended, os.WEXITED)
            os.close(ended)
            del kept[ended]
        for other in [name for name, door in mine.items() if door in ready and name != kind]:
            if not (fork := os.fork()):
                _close(running, kept, [door for name, door in doors.items() if name != other])
                _import(other, root)
                return _answer(folder, {other: doors[other]}, root, other)
            kept[os.pidfd_open(fork)] = other
        if doors[kind] in ready:
            line, _ = doors[kind].accept()
            message, files, _, _ = socket.recv_fds(line, MOST, 3)
            if not (fork := os.fork()):
                _close(running, kept, doors.values())
                return _request(line, message, files)
            for file in files:
                os.close(file)
            running[os.pidfd_open(fork)] = fork, line
        for ended in [file for file in running if file in ready]:
            fork, line = running.pop(ended)
            status = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
            with contextlib.suppress(OSError):
                line.send(str(status if status >= 0 else 128 - status).encode())
            line.close()
            os.close(ended)
        for fork, line in [one for one in running.values() if one[1] in ready]:
            os.kill(fork, signal.SIGKILL)  # who waited for it is gone
            line.close()


def _import(kind: str, root: str) -> None:
    import gc
    import importlib

    before = ("triton",) if kind == "tensorflow" else ()  # models/frameworks.py has the reason
    for name in (*before, *LIBRARIES[kind]):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if root:
        sys.path.insert(0, root)  # as the jobs have it
        for name in OWN.get(kind, ()):
            with contextlib.suppress(Exception):  # a job that needs it says what is wrong
                importlib.import_module(name)
        sys.path.remove(root)
    gc.freeze()  # what is looked at for garbage would be copied into every fork


def _remove(folder: str) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _close(running: dict[int, tuple[int, socket.socket]], kept, doors) -> None:
    for file in [*running, *kept]:
        os.close(file)
    for _, line in running.values():
        line.close()
    for door in doors:
        door.close()


def _request(line: socket.socket, message: bytes, files: list[int]) -> dict:
    """What a fork is asked to run, with its standard files in place."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as before every job's command, until the job listens
    if len(files) < 3:  # whoever asked is gone
        os._exit(0)
    line.send(b"taken")
    line.close()
    for place, file in enumerate(files):
        os.dup2(file, place)
        os.close(file)
    count, *told = map(os.fsdecode, message.split(b"\0"))
    words, (folder, *environment) = told[: int(count)], told[int(count) :]
    return {"words": words, "folder": folder, "environment": dict(pair.split("=", 1) for pair in environment)}


def run(words: list[str], folder: str, environment: dict) -> None:
    """Become the program."""
    import atexit
    import runpy
    import threading

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = words
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [os.path.dirname(words[0]), *filter(None, paths)]
    if sys.dont_write_bytecode and environment.get(DOOR):  # or each job would compile the package once more
        sys.dont_write_bytecode, sys.pycache_prefix = False, os.path.join(environment[DOOR], "compiled")
    status: object = 0
    try:
        runpy.run_path(words[0], run_name="__main__")
    except SystemExit as ended:
        status = ended.code or 0
    except BaseException:  # noqa: BLE001  as the interpreter itself would
        sys.excepthook(*sys.exc_info())
        status = 1
    # As it ends too, but for the libraries' modules: to take them apart would copy them first, two seconds of work.
    threading._shutdown()
    atexit._run_exitfuncs()
    if not isinstance(status, int):
        print(status, file=sys.stderr)
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    run(**serve(*sys.argv[1:]))
