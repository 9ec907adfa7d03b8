"""A limit on the seconds that an instance may take."""

import contextlib
import signal
from collections.abc import Iterator

from shapeline.errors import MethodFailure


@contextlib.contextmanager
def limited(seconds: float | None) -> Iterator[None]:
    """Raise MethodFailure inside the block once it has taken so long; without a limit, do nothing.

    The alarm is heard between two steps of Python: a single call of a library that hangs is not ended.
    """
    if seconds is None:
        yield
        return

    def stop(*_) -> None:
        raise MethodFailure("time limit", f"it took longer than the {seconds:g} s that time_limit allows an instance")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
