"""What only a fresh process can tell: the seconds until a job starts to work, and the most memory that it holds.

    python -m benchmarks.processes start-up FRAMEWORK FILE_OF_WEIGHTS
    python -m benchmarks.processes memory FRAMEWORK EVALUATIONS

prints JSON. Nothing is imported before it is timed.
"""

import json
import sys
import time


def main() -> None:
    began = time.time()
    if len(sys.argv) != 4 or sys.argv[1] not in ("start-up", "memory"):
        sys.exit(__doc__.strip())
    what, framework, argument = sys.argv[1:]
    print(json.dumps(start_up(framework, argument, began) if what == "start-up" else memory(framework, int(argument))))


def start_up(framework: str, weights: str, began: float) -> dict[str, float]:
    """Print times of the clock: at the start of this file, after imports, after loading, after calibration."""
    import numpy as np

    from shapeline.games import calibration
    from shapeline.games.references import Reference
    from shapeline.memory import keep_freed_memory
    from shapeline.models import storage
    from shapeline.models.classifier import backend

    backend(framework)
    keep_freed_memory()
    imported = time.time()
    model = storage.load(weights, framework=framework)
    loaded = time.time()
    inputs = np.random.default_rng(0).random((8, 1, 28, 28), dtype=np.float32)
    calibration.calibrate(model, inputs, Reference(inputs[:1]))
    return {"began": began, "imported": imported, "loaded": loaded, "calibrated": time.time()}


def memory(framework: str, evaluations: int) -> dict[str, float]:
    """Print the peak memory of this process (MiB) after an evaluation, and the part of masks and values."""
    import resource

    import numpy as np

    from shapeline.games.execution import ExecutionBackend
    from shapeline.games.features import build
    from shapeline.games.game import Game
    from shapeline.games.references import Reference
    from shapeline.memory import keep_freed_memory
    from shapeline.models import architectures

    keep_freed_memory()
    model = architectures.build("mnist_cnn", framework)
    features = build({"kind": "patch", "size": 4}, {"input_shape": (1, 28, 28)})
    inputs = np.random.default_rng(0).random((1, 1, 28, 28), dtype=np.float32)
    masks = np.random.default_rng(1).integers(0, 2, (evaluations, features.d), dtype=bool)
    form = ExecutionBackend("plain" if framework == "tensorflow" else "onnx", 256)
    values = Game(model, Reference(inputs), features, backend=form).values(inputs, masks)
    array_bytes = masks.nbytes + values.nbytes
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"most": most / 2**10, "asked": array_bytes / 2**20}


if __name__ == "__main__":
    main()
