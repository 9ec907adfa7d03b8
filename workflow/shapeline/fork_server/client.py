"""Pass a job to the fork server, or run its command if none answers; imports little, since it precedes every job."""

import os
import signal
import socket
import sys

SOCKETS = "SHAPELINE_FORK_SERVER"  # as in server.py, whose import takes longer
MAX_REQUEST_BYTES = 1 << 20


def request(kind: str, words: list[str]) -> int | None:
    """Run a program on the server with this process's folder, environment and files; return its status or None."""
    folder = os.environ.get(SOCKETS)
    if not folder or os.environ.get("OMP_NUM_THREADS", "1") != "1":  # the server's libraries use one thread
        return None
    environment = [name + b"=" + value for name, value in os.environb.items()]
    message = b"\0".join([b"%d" % len(words), *map(os.fsencode, words), os.getcwdb(), *environment])
    receipt, before = b"", signal.signal(signal.SIGINT, lambda *_: None)  # the fork answers it and reports its status
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_REQUEST_BYTES)
            server.connect(os.path.join(folder, kind))
            socket.send_fds(server, [message], [0, 1, 2])
            receipt = server.recv(16)
            return int(server.recv(16) or 128 + signal.SIGKILL)
    except OSError:
        if receipt:
            return 128 + signal.SIGKILL
    signal.signal(signal.SIGINT, before)
    return None


if __name__ == "__main__":
    kind, program, *words = sys.argv[1:]
    if os.path.abspath(program) == sys.executable:  # and not another environment's
        status = request(kind, words)
        if status is not None:
            sys.exit(status)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # which the shell ignores while this file starts
    os.execvp(program, [program, *words])
