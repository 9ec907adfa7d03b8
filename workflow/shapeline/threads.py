"""Threads: how many a process may take, tasks that they share, and linear algebra that keeps to one."""

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")
MOMENT = 1e9  # multiplications that one thread makes in a tenth of a second
LOCK = threading.Lock()
LIMITED: list[Any] = []  # of the blocks that keep to one thread: the first's limit, and a place for each other


def processors() -> int:
    """Return the number of processors that the process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def count_allowed() -> int:
    """Return the number of threads that the process may use: OMP_NUM_THREADS, or its processors."""
    return int(os.environ.get("OMP_NUM_THREADS") or 0) or processors()


def run_tasks(run: Callable[[Any], Result], tasks: Sequence, threads: int) -> Iterable[Result]:
    """Return what `run` gives of each task, in order, by so many threads; a task must not ask for others (deadlock)."""
    if min(threads, len(tasks)) < 2:
        return map(run, tasks)
    return _pool(threads, os.getpid()).map(run, tasks)


@functools.cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Return the threads of this process, because a fork does not have those of its parent."""
    return ThreadPoolExecutor(threads, "shapeline")


@contextlib.contextmanager
def limit_to_one(multiplications: float) -> Iterator[None]:
    """Limit the linear algebra of numpy and scipy to one thread inside the block, if it takes less than 0.1 s.

    Its threads wait spinning, as those of torch do, so that between two calls of a model each takes the other's
    processor: on two cores kernel_shap of 200 words took three times as long.
    """
    if multiplications > MOMENT:
        yield
        return
    blas = openblas()
    with LOCK:  # of blocks at the same time the first sets the limit and the last, whosever, takes it away
        LIMITED.append(None if LIMITED else _set_threads(lambda: blas.limit(limits=1)))
    try:
        yield
    finally:
        with LOCK:
            limit = LIMITED.pop() if LIMITED else None  # none in a fork of the block
            if limit:
                _set_threads(limit.restore_original_limits)


def _set_threads(set_threads: Callable[[], Result]) -> Result:
    """Set BLAS's threads: from 3.8 on threadpoolctl lets but one thread do so, which it keeps until a change."""
    _let_go()
    try:
        return set_threads()
    finally:
        _let_go()


def _let_go() -> None:
    for library in openblas().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)


def _forget_blocks() -> None:
    """Forget the blocks of other threads, which a fork does not have."""
    LIMITED.clear()
    LOCK.release()


# Nobody else holds the lock while the process is forked, who would not be there to give it back.
os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=_forget_blocks)


@functools.cache
def openblas():
    """Return the BLAS of numpy and of scipy, where that is OpenBLAS; another takes the threads of torch itself."""
    import scipy.linalg  # noqa: F401  it brings its own, which is found once it is loaded
    import threadpoolctl

    return threadpoolctl.ThreadpoolController().select(internal_api="openblas")
