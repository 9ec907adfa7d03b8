"""A server that has imported the libraries of jobs and runs each job as a fork of itself.

`client.py` precedes a job's command: it passes arguments, folder, environment and standard files to the server and ends
with the fork's exit status; if no server answers, it executes the command.
"""

import atexit
import contextlib
import os
import select
import shlex
import signal
import socket
import sys

SOCKETS = "SHAPELINE_FORK_SERVER"  # environment variable: the folder of the server's sockets; empty: no server
BASE = "base"
# Imports of every job, and additional imports of the jobs of a framework. A score file lists the imported packages, so
# no job may start with one that it does not use.
TORCH_MODULES = ("torch", "safetensors.torch", "onnx", "torch.onnx.utils")
LIBRARIES = {
    BASE: (
        *("snakemake.script", "psutil", "filelock", "networkx", "tqdm"),
        *("pandas", "pyarrow.dataset", "pyarrow.pandas_compat", "pyarrow.parquet"),
        *("scipy.linalg", "scipy.sparse", "scipy.special"),
        *("pydantic.fields", "pydantic.functional_validators", "pydantic.root_model"),
    ),
    "torch": TORCH_MODULES,
    "transformers": (*TORCH_MODULES, "transformers.modeling_utils", "transformers.models.auto.modeling_auto"),
    "onnx": ("onnxruntime",),  # jobs that evaluate the graph of a network
    "skops": ("skops.io",),  # which imports scikit-learn and torch, for seconds
    "tensorflow": ("keras", "tensorflow", "safetensors.numpy"),
    "report": ("papermill", "black", "mistune", "matplotlib.pyplot"),
    "snakemake": ("snakemake.cli", "sqlmodel", "pydantic"),  # tests run Snakemake itself as a fork
}
# Modules of the package that most jobs import and that import no other library.
PACKAGE_MODULES = {
    BASE: (
        *("shapeline.attribution.provenance", "shapeline.attribution.attribution_job", "shapeline.metrics.error"),
        *("shapeline.metrics.log_odds", "shapeline.metrics.measurement", "shapeline.metrics.score_measurement"),
        "shapeline.statistics.comparison",
    ),
    "report": (
        "shapeline.report.index",
        "shapeline.report.sections.importance",
        "shapeline.report.sections.localization",
    ),
}
MIN_JOBS = 6  # with fewer jobs, a run would save less than the server's start costs
MAX_IDLE_SECONDS = 30.0  # without a job, after which the server of a framework, with up to 600 MB, ends
LASTING_KINDS = (BASE, "report")  # servers for the entire run; that of "report" has 90 MB
MAX_REQUEST_BYTES = 1 << 20  # arguments and environment


def start(jobs: int) -> str:
    """Start a server that ends with this process; return the prefix of a job's command, "" without a server."""
    import tempfile

    if sys.platform == "linux" and jobs >= MIN_JOBS and SOCKETS not in os.environ:
        with contextlib.suppress(OSError, AttributeError):  # without a server, every job starts a new process
            os.close(os.pidfd_open(os.getpid()))  # which a container may refuse
            folder = tempfile.mkdtemp(prefix="shapeline-")
            start.server = launch(folder, with_package=True)
            os.environ[SOCKETS] = folder
    if not os.environ.get(SOCKETS):
        return ""
    # Ctrl-C reaches all processes at once, and Python would print a traceback while it starts. Snakemake formats the
    # prefix: braces are doubled.
    return f"trap '' INT; {shlex.join(build_command())} ".replace("{", "{{").replace("}", "}}")


def launch(folder: str, with_package: bool = False, program: str = __file__, **options):
    """Start a server with sockets in `folder`, which prints "ready" and ends when its input is closed; return its
    Popen. with_package: it imports this package and serves one run only; program: the file that calls `serve`."""
    import subprocess

    from shapeline.datasets.folders import OFFLINE

    settings = {"MPLBACKEND": "agg", "TF_CPP_MIN_LOG_LEVEL": "3"}  # TensorFlow reads the second during its import
    settings["CUDA_VISIBLE_DEVICES"] = ""  # a job for a GPU imports its framework itself
    settings |= OFFLINE | {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} | options
    root = [os.path.abspath(os.path.join(os.path.dirname(__file__), os.pardir, os.pardir))] if with_package else []
    words = [sys.executable, "-P", program, folder, *root]
    return subprocess.Popen(words, env=environment | settings, stdin=subprocess.PIPE, **quiet)


def build_command(kind: str = BASE) -> list[str]:
    """Return the prefix of the command `python program arguments` with which the server runs it."""
    return [sys.executable, "-I", "-S", os.path.join(os.path.dirname(__file__), "client.py"), kind]


def send(kind: str) -> None:
    """Send this job to the server of `kind` and exit with the job's status; return if there is no server."""
    if not os.environ.get(SOCKETS) or not LIBRARIES.get(kind) or LIBRARIES[kind][0] in sys.modules:
        return
    from shapeline.fork_server.client import request

    status = request(kind, sys.argv)
    if status is not None:
        os._exit(status)


def serve(folder: str, root: str = "") -> dict:
    """Import libraries and the package in `root`, then fork for every request; returns only in the forks."""
    # Registered before all others, so called after them: otherwise Python finalises the libraries' modules, which
    # copies their memory for two seconds.
    atexit.register(exit_immediately)
    signal.signal(signal.SIGINT, lambda *_: None)  # not ignored: the server ends after the jobs
    _import(BASE, root)
    sockets = {}
    for kind in LIBRARIES:
        sockets[kind] = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sockets[kind].bind(os.path.join(folder, kind))
        sockets[kind].listen(64)
    with contextlib.suppress(OSError):
        print("ready", flush=True)
    return _serve_kind(folder, sockets, root)


def _serve_kind(folder: str, sockets: dict[str, socket.socket], root: str, kind: str = BASE) -> dict:
    """Fork for every request of this kind, and once for a server of each other kind while it has requests."""
    running: dict[int, tuple[int, socket.socket]] = {}  # process, client; by a descriptor that is readable at its end
    servers: dict[int, str] = {}  # the kind of a server; by such a descriptor
    while True:
        waiting = [line for _, line in running.values() if line.fileno() >= 0]
        own_sockets = {name: waiting_socket for name, waiting_socket in sockets.items() if name not in servers.values()}
        timeout = MAX_IDLE_SECONDS if root and kind not in LASTING_KINDS and not running else None
        ready = select.select([sys.stdin, *own_sockets.values(), *servers, *running, *waiting], [], [], timeout)[0]
        if sys.stdin in ready or not ready:
            if kind == BASE:
                import shutil

                shutil.rmtree(folder, ignore_errors=True)
            os._exit(0)
        for ended in [file for file in servers if file in ready]:  # the next request starts another
            os.waitid(os.P_PIDFD, ended, os.WEXITED)
            os.close(ended)
            del servers[ended]
        for other in [name for name, waiting_socket in own_sockets.items() if waiting_socket in ready and name != kind]:
            if not (fork := os.fork()):
                _close(running, servers, [waiting_socket for name, waiting_socket in sockets.items() if name != other])
                _import(other, root)
                return _serve_kind(folder, {other: sockets[other]}, root, other)
            servers[os.pidfd_open(fork)] = other
        if sockets[kind] in ready:
            line, _ = sockets[kind].accept()
            message, files, _, _ = socket.recv_fds(line, MAX_REQUEST_BYTES, 3)
            if not (fork := os.fork()):
                _close(running, servers, sockets.values())
                return _read_request(line, message, files)
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
        for fork, line in [client for client in running.values() if client[1] in ready]:
            os.kill(fork, signal.SIGKILL)  # its client has exited
            line.close()


def _import(kind: str, root: str) -> None:
    import gc
    import importlib

    before = ("triton",) if kind == "tensorflow" else ()  # models/classifier.py has the reason
    for name in (*before, *LIBRARIES[kind]):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if root:
        sys.path.insert(0, root)  # as the jobs have it
        for name in PACKAGE_MODULES.get(kind, ()):
            with contextlib.suppress(Exception):  # a job that needs it reports the error
                importlib.import_module(name)
        sys.path.remove(root)
    gc.freeze()  # else garbage collection copies all pages into every fork


def _close(running: dict[int, tuple[int, socket.socket]], servers, sockets) -> None:
    for file in [*running, *servers]:
        os.close(file)
    for _, line in running.values():
        line.close()
    for waiting_socket in sockets:
        waiting_socket.close()


def _read_request(line: socket.socket, message: bytes, files: list[int]) -> dict:
    """Return the program of a request, with its standard files in place."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as before every job's command, until the job sets its handler
    if len(files) < 3:  # the client has exited
        os._exit(0)
    line.send(b"taken")
    line.close()
    for descriptor, file in enumerate(files):
        os.dup2(file, descriptor)
        os.close(file)
    count, *parts = map(os.fsdecode, message.split(b"\0"))
    words, (folder, *environment) = parts[: int(count)], parts[int(count) :]
    return {"words": words, "folder": folder, "environment": dict(pair.split("=", 1) for pair in environment)}


EXIT_STATUS = 0  # of the program that a fork has run


def run(words: list[str], folder: str, environment: dict) -> None:
    """Run the program in this process as Python runs it."""
    global EXIT_STATUS
    import runpy

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = words
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [os.path.dirname(words[0]), *filter(None, paths)]
    if sys.dont_write_bytecode and environment.get(SOCKETS):  # or each job would compile the package once more
        sys.dont_write_bytecode, sys.pycache_prefix = False, os.path.join(environment[SOCKETS], "compiled")
    status: object = 0
    try:
        runpy.run_path(words[0], run_name="__main__")
    except SystemExit as ended:
        status = ended.code or 0
    except BaseException:  # noqa: BLE001  as the interpreter itself would
        sys.excepthook(*sys.exc_info())
        status = 1
    if not isinstance(status, int):
        print(status, file=sys.stderr)
        status = 1
    EXIT_STATUS = status


def exit_immediately() -> None:
    """Exit without the finalisation of modules."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(EXIT_STATUS)


if __name__ == "__main__":
    run(**serve(*sys.argv[1:]))
