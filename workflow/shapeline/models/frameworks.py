"""TensorFlow and torch in one process."""

import contextlib
import importlib.util
import sys


def avoid_triton_crash() -> None:
    """Keep triton from being loaded after TensorFlow, which is a segmentation fault.

    Triton comes with the CUDA builds of torch, whose optimizers already load it. Before TensorFlow it is loaded here.
    After TensorFlow, which the user's program may have imported, it is declared missing, as beside a CPU build: torch
    then works without what needs triton (`torch.compile` on a GPU).
    """
    if "triton" in sys.modules or importlib.util.find_spec("triton") is None:
        return
    if "tensorflow" not in sys.modules:
        with contextlib.suppress(ImportError):
            import triton  # noqa: F401

            return
    sys.modules["triton"] = None  # an import of it is then an ImportError, which torch expects
