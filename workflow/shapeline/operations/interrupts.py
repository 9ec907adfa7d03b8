"""Ctrl-C reaches Snakemake and all its jobs at once: none of them prints a traceback."""

import contextlib
import signal
import threading

import psutil

PRESSED = threading.Event()
# Before every job's command. In the second in which Python and its packages start, nothing could be caught.
PREFIX = "trap '' INT; "


def listen() -> None:
    """In a job that has set up how it ends: from now on an interrupt stops it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def catch() -> None:
    """In Snakemake's process: an interrupt ends the jobs that do not listen yet, and is noted.

    Not where interrupts are ignored, as in a script's background, or where another thread than the first runs it.
    """
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGINT, _interrupted)


def _interrupted(number, frame) -> None:
    PRESSED.set()
    for process in reversed(psutil.Process().children(recursive=True)):  # those furthest down first
        with contextlib.suppress(psutil.Error, OSError):
            if _ignores_interrupts(process.pid):
                process.terminate()
    raise KeyboardInterrupt


def _ignores_interrupts(pid: int) -> bool:
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        ignored = next(line.split()[1] for line in file if line.startswith("SigIgn:"))
    return bool(int(ignored, 16) >> (signal.SIGINT - 1) & 1)
