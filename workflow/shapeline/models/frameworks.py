"""TensorFlow and torch in one process."""

import contextlib
import importlib.util
import sys


def avoid_triton_crash() -> None:
    """Load triton, of torch's CUDA builds, before TensorFlow, after which it crashes; declare it missing if that is
    late."""
    if "triton" in sys.modules or importlib.util.find_spec("triton") is None:
        return
    if "tensorflow" not in sys.modules:
        with contextlib.suppress(ImportError):
            import triton  # noqa: F401

            return
    sys.modules["triton"] = None  # an import of it is then an ImportError, which torch expects
