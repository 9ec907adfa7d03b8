"""Memory: freed memory that the C library keeps, and smaller passes when memory runs out."""

import ctypes
import logging
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from shapeline.errors import MethodFailure, is_out_of_memory

log = logging.getLogger(__name__)
Result = TypeVar("Result")


def keep_freed_memory() -> None:
    """Set glibc to keep up to 1 GB of freed memory: clearing new blocks took half the time of some models' calls."""
    trim_threshold, mmap_threshold = -1, -3  # malloc.h
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(mmap_threshold, 1 << 30)
        library.mallopt(trim_threshold, 1 << 30)


def halve(model: Any, rows: int, run: Callable[[int], Result], unit: str = "row") -> Result:
    """Return run(rows), repeated with half the rows per pass when memory runs out; the model stores the limit."""
    rows = min(rows, model.most_rows or rows)
    while True:
        try:
            return run(rows)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        # Outside the except clause, where the failed pass's tensors are still held by the traceback.
        if rows == 1:
            raise MethodFailure(
                "out of memory",
                f"model '{model.architecture}': runs out of memory on a single {unit}; "
                "use a smaller model or input, or a device with more memory",
            )
        rows = model.most_rows = rows // 2
        if "torch" in sys.modules:
            sys.modules["torch"].cuda.empty_cache()  # memory of the failed pass, for other jobs on the GPU
        log.warning("out of memory: going on with %d rows a pass", rows)
