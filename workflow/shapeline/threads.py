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
_LOCKS = [threading.Lock()]  # one; another in a fork
LIMITED: list[Any] = []  # of the blocks that keep to one thread: the first's limit, and a place for each other


def allowed() -> int:
    """Those that the process may take: OMP_NUM_THREADS, or as many as it has processors."""
    every = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return int(os.environ.get("OMP_NUM_THREADS") or 0) or every or 1


def at_once(run: Callable[[Any], Result], tasks: Sequence, threads: int) -> Iterable[Result]:
    """What `run` gives of each task, in their order, by so many threads; none where one is enough.

    A task must not ask for others itself: it would wait for a thread that waits for it.
    """
    if min(threads, len(tasks)) < 2:
        return map(run, tasks)
    return _pool(threads, os.getpid()).map(run, tasks)


@functools.cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Threads of this process: those of one that was forked from are not there."""
    return ThreadPoolExecutor(threads, "shapeline")


@contextlib.contextmanager
def one_thread(multiplications: float) -> Iterator[None]:
    """A block in which the linear algebra of numpy and scipy keeps to one thread, where it takes but a moment.

    Its threads wait spinning, as those of torch do, so that between two calls of a model each takes the other's
    processor: on two cores kernel_shap of 200 words took three times as long.
    """
    if multiplications > MOMENT:
        yield
        return
    with _LOCKS[-1]:  # of blocks at the same time the first sets the limit and the last, whosever, takes it away
        if LIMITED:
            LIMITED.append(None)
        else:
            with _any_thread():
                LIMITED.append(openblas().limit(limits=1))
    try:
        yield
    finally:
        with _LOCKS[-1]:
            limit = LIMITED.pop() if LIMITED else None  # none in a fork of the block
            if limit:
                with _any_thread():
                    limit.restore_original_limits()


@contextlib.contextmanager
def _any_thread() -> Iterator[None]:
    """A block in which this thread may set BLAS's threads: threadpoolctl lets one thread alone, which it keeps."""
    # Of one library: all share it. Before 3.8 threadpoolctl had no such rule.
    clear = [getattr(one, "clear_controlling_thread", lambda force: None) for one in openblas().lib_controllers[:1]]
    for one in clear:
        one(force=True)
    try:
        yield
    finally:
        for one in clear:
            one(force=True)


def _in_a_fork() -> None:
    """No block of another thread is in a fork, and nobody there gives the lock back."""
    LIMITED.clear()
    _LOCKS[:] = [threading.Lock()]


os.register_at_fork(after_in_child=_in_a_fork)


@functools.cache
def openblas():
    """The BLAS of numpy and of scipy, where that is OpenBLAS; another takes the threads of torch itself."""
    import scipy.linalg  # noqa: F401  it brings its own, which is found once it is loaded
    import threadpoolctl

    return threadpoolctl.ThreadpoolController().select(internal_api="openblas")
