"""Programs that start at once: a server has their libraries imported, and each program is a fork of it.

Most of a workflow test is the same imports in dozens of processes. `command(socket, program, *arguments)` is run in
place of `program`; it hands its arguments, folder, environment and standard files to the server, and ends as the fork
does. The package itself is not among the libraries: every fork imports the copy that it is to run.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
from pathlib import Path

LIBRARIES = (
    *("snakemake.cli", "snakemake.script", "sqlmodel", "pydantic", "networkx", "psutil", "filelock"),
    *("pandas", "pyarrow.parquet", "scipy.stats", "scipy.linalg", "sklearn.datasets", "seaborn"),
    *("papermill", "nbconvert", "torch", "safetensors.torch"),
)
MOST = 1 << 20  # bytes of a request: arguments and environment


def command(door: str | Path, *words: str | Path) -> list[str]:
    """What to run so that the server at `door` runs a program of Python: its file and arguments."""
    return [sys.executable, "-I", "-S", __file__, "ask", *map(str, (door, *words))]


def ask(door: str, *words: str) -> int:
    """Have a program run with this process's folder, environment and standard files; its exit status."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST)
        line.connect(door)
        told = {"words": words, "folder": os.getcwd(), "environment": dict(os.environ), "door": door}
        socket.send_fds(line, [json.dumps(told).encode()], [0, 1, 2])
        status = line.recv(16)
    return int(status or 128 + signal.SIGKILL)


def serve(door: str) -> dict:
    """Import, then fork for every request until whoever started the server is gone; returns in the forks alone."""
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.freeze()  # what is looked at for garbage would be copied into every fork
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(door)
        listening.listen(64)
        print("ready", flush=True)
        running: set[int] = set()
        while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
            line, _ = listening.accept()
            if not (latest := os.fork()):
                break
            line.close()
            running = {one for one in (*running, latest) if os.waitpid(one, os.WNOHANG) == (0, 0)}
        else:
            sys.exit()
    return _forked(line)


def _forked(line: socket.socket) -> dict:
    """The request, in a process that is to run it; the one between tells the status, or ends it with who asked."""
    message, files, _, _ = socket.recv_fds(line, MOST, 3)
    if child := os.fork():
        ended = os.pidfd_open(child)
        if ended not in select.select([ended, line], [], [])[0]:
            os.killpg(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        line.send(str(status if status >= 0 else 128 - status).encode())
        os._exit(0)
    line.close()
    os.setsid()
    for place, file in enumerate(files):
        os.dup2(file, place)
        os.close(file)
    return json.loads(message)


def run(words: list[str], folder: str, environment: dict, door: str) -> None:
    """Become the program."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = words
    own = [str(Path(words[0]).parent), *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    sys.path[:0] = own
    if Path(words[0]).name == "snakemake":  # which starts a job by this name
        sys.executable = " ".join(command(door))
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
    task, *given = sys.argv[1:]
    if task == "ask":
        sys.exit(ask(*given))
    run(**serve(*given))
