"""Hand a job to the server of `warm.py`: what stands before every job's command, in a hundredth of a second.

So it imports only what Python has within itself: `socket`, `signal` and `json` would be most of that time, and to
compile all of `warm.py` the rest.
"""

import _signal
import _socket
import os
import sys

DOOR = "SHAPELINE_WARM"  # as in warm.py, which the server starts from without the package
MOST = 1 << 20


def ask(kind: str, words: list[str]) -> int | None:
    """Have a program run with this process's folder, environment and standard files; its exit status, or None where
    nobody took it."""
    door = os.environ.get(DOOR)
    if not door or os.environ.get("OMP_NUM_THREADS", "1") != "1":  # the libraries were imported for one thread
        return None
    own = [name + b"=" + value for name, value in os.environb.items()]
    told = b"\0".join([b"%d" % len(words), *map(os.fsencode, words), os.getcwdb(), *own])  # none of them holds a 0
    files = b"".join(file.to_bytes(4, sys.byteorder) for file in (0, 1, 2))
    taken, before = b"", _signal.signal(_signal.SIGINT, lambda *_: None)  # the fork ends by one, and says so
    line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    try:
        line.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDBUF, MOST)
        line.connect(os.path.join(door, kind))
        line.sendmsg([told], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
        taken = line.recv(16)
        return int(line.recv(16) or 128 + _signal.SIGKILL)
    except OSError:
        if taken:
            return 128 + _signal.SIGKILL
    finally:
        line.close()
    _signal.signal(_signal.SIGINT, before)
    return None


if __name__ == "__main__":
    kind, program, *words = sys.argv[1:]
    if os.path.abspath(program) == sys.executable:  # and not another environment's
        ended = ask(kind, words)
        if ended is not None:
            sys.exit(ended)
    os.execvp(program, [program, *words])
