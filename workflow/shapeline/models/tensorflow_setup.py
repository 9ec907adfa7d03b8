"""TensorFlow as a job wants it: deterministic, full float32, growing GPU memory, quiet; import it first."""

import contextlib
import os
from collections.abc import Iterator

from shapeline.models.classifier import avoid_triton_crash
from shapeline.threads import processors

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No terminal for what TensorFlow's libraries write before they have read what to leave out; errors still raise."""
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


avoid_triton_crash()
with _quiet():
    import keras
    import tensorflow as tf

    tf.config.experimental.enable_op_determinism()
    # With TF32 the outputs would change by 1e-3 with the batch size.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    with contextlib.suppress(RuntimeError):  # refused, and too late, once the GPU was used
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)


def threads() -> int:
    """Return the number of threads of an operation: the job's, else the processor's."""
    given = tf.config.threading.get_intra_op_parallelism_threads() or int(os.environ.get("TF_NUM_INTRAOP_THREADS", 0))
    return given or processors()


__all__ = ["keras", "tf", "threads"]
