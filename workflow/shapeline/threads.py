"""Threads: their number per process, shared tasks, and linear algebra with a single thread."""

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")
SHORT_WORK = 1e9  # multiplications of one thread in 0.1 s
LOCK = threading.Lock()
LIMITED: list[Any] = []  # one entry per block with a single thread: the limit of the first, None for others


def count_processors() -> int:
    """Return the number of processors that the process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def count_allowed() -> int:
    """Return the number of threads that the process may use: OMP_NUM_THREADS, or its processors."""
    return read_threads("OMP_NUM_THREADS") or count_processors()


def read_threads(variable: str) -> int:
    """Return the first number of an environment variable, as of "4,2" for nested loops; 0 if it is no number."""
    first = os.environ.get(variable, "").split(",")[0].strip()
    return int(first) if first.isdecimal() else 0


def run_tasks(run: Callable[[Any], Result], tasks: Sequence, threads: int) -> Iterable[Result]:
    """Return the result of `run` per task, in order, by `threads` threads; a task must not start others (deadlock)."""
    if min(threads, len(tasks)) < 2:
        return map(run, tasks)
    return _pool(threads, os.getpid()).map(run, tasks)


@functools.cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Return the thread pool of this process, because a fork does not have the threads of its parent."""
    return ThreadPoolExecutor(threads, "shapeline")


@contextlib.contextmanager
def limit_to_one(multiplications: float) -> Iterator[None]:
    """Limit the linear algebra of numpy and scipy to one thread inside the block, if it takes less than 0.1 s.

    Waiting threads of BLAS and of torch spin, so that each library blocks the other's processor between two calls of a
    model: on two cores kernel_shap of 200 words took three times as long.
    """
    if multiplications > SHORT_WORK:
        yield
        return
    blas = find_openblas()
    with LOCK:  # of simultaneous blocks, the first sets the limit and the last removes it
        LIMITED.append(None if LIMITED else _set_threads(lambda: blas.limit(limits=1)))
    try:
        yield
    finally:
        with LOCK:
            limit = LIMITED.pop() if LIMITED else None  # empty in a fork of the block
            if limit:
                _set_threads(limit.restore_original_limits)


def _set_threads(set_threads: Callable[[], Result]) -> Result:
    """Set the threads of BLAS; threadpoolctl 3.8 and later permits it to one thread only, unless it is released."""
    _release_control()
    try:
        return set_threads()
    finally:
        _release_control()


def _release_control() -> None:
    for library in find_openblas().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)


def _forget_blocks() -> None:
    """Clear the record of other threads' blocks, which a fork does not have."""
    LIMITED.clear()
    LOCK.release()


# The forking thread holds the lock, because another holder would not exist in the fork to release it.
os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=_forget_blocks)


@functools.cache
def find_openblas():
    """Return the BLAS of numpy and of scipy if it is OpenBLAS; other libraries use the threads of torch."""
    import scipy.linalg  # noqa: F401 (its own BLAS is found once it is loaded)
    import threadpoolctl

    return threadpoolctl.ThreadpoolController().select(internal_api="openblas")
