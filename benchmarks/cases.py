"""The measured models, with random weights, their inputs, and the speed of each model alone."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from benchmarks.turns import Run, timed
from shapeline import designs
from shapeline.games import calibration, execution
from shapeline.games.execution import BackendRefused, ExecutionBackend
from shapeline.games.features import Features, build_for
from shapeline.games.game import Game
from shapeline.games.references import Reference
from shapeline.models import architectures
from shapeline.models.classifier import Classifier

BUDGET = 4  # multiple of d
BATCHES = (16, 64, 128, 256, 512, 1024, 2048, 4096)
RAW_SECONDS = 0.3  # of one run of the raw model
CALLS = 4  # of each thread of ONNX Runtime before it waits for the others
TRIALS, TRIAL_SECONDS = 3, 0.2  # of each backend and batch; a larger batch is not tried after a call that took longer


@dataclass(frozen=True, eq=False)
class Case:
    """A model, instances that have the same features, and a design of 4 d coalitions.

    shape: of an input; words: of a text, whose other places are padding. instances: that methods and peers explain
    at a time; engine_instances: of one call that the engine is measured by, so that it takes long enough; job: that
    ours explain beside a peer, where designs cost as much as the model: a job's, which share a pool of them.
    """

    architecture: str
    shape: tuple[int, ...]
    kind: dict | str
    instances: int
    engine_instances: int
    framework: str = "torch"
    words: int = 0
    peers: bool = False
    job: int | None = None
    sizes: dict = field(default_factory=dict)

    @cached_property
    def model(self) -> Classifier:
        return architectures.build(self.architecture, self.framework, **self.sizes)

    @cached_property
    def inputs(self) -> np.ndarray:
        random = np.random.default_rng(0)
        if not self.words:
            return random.random((self.instances, *self.shape), dtype=np.float32)
        rows = np.zeros((self.instances, *self.shape), np.int32)
        rows[:, : self.words] = random.integers(2, self.model.sizes["vocabulary"], (self.instances, self.words))
        return rows

    @cached_property
    def targets(self) -> np.ndarray:
        return np.zeros(self.instances, np.int64)

    @cached_property
    def reference(self) -> Reference:
        return Reference(np.zeros((1, *self.shape), np.int32) if self.words else np.full((1, *self.shape), 0.13, "f4"))

    @cached_property
    def features(self) -> Features:
        card = {"input_shape": self.shape, "kind": "text" if self.words else None}
        return build_for(self.kind, card, self.inputs[0])

    @cached_property
    def design(self) -> designs.Design:
        return designs.kernel_shap(self.features.d, BUDGET * self.features.d, seed=0)

    @cached_property
    def backend(self) -> ExecutionBackend:
        """As a job calibrates it."""
        return calibration.calibrate(self.model, self.inputs, self.reference)

    @cached_property
    def row_backend(self) -> ExecutionBackend:
        """The same where every row is filled and run: without the table of windows that some models of text have."""
        if self.backend.name != "windows":
            return self.backend
        return execution.import_backend(self.model).calibrate(self.model, self.inputs, self.reference)

    def rows(self, count: int) -> np.ndarray:
        """Return rows (count, *shape) as filled by the engine: coalitions of the design, all sizes, one instance."""
        by_size = np.argsort(self.design.masks.sum(1), kind="stable")
        chosen = by_size[np.linspace(0, len(by_size) - 1, count).astype(np.int64)]
        return np.where(self.features.expand(self.design.masks[chosen]), self.inputs[0], self.reference.rows[0])

    def engine_run(self, backend: ExecutionBackend) -> Run:
        copies = np.resize(self.inputs, (self.engine_instances, *self.shape))
        targets = np.zeros(len(copies), np.int64)

        def run() -> int:
            game = Game(self.model, self.reference, self.features, backend=backend)
            return game.values(copies, self.design.masks, targets).size

        return timed(run)


def image(architecture: str, side: int, channels: int, kind: dict | str, instances: int, per_call: int, **more) -> Case:
    return Case(architecture, (channels, side, side), kind, instances, per_call, **more)


WORD_CNN = {"architecture": "word_cnn", "shape": (400,), "kind": "word", "words": 200}
MNIST_CNN = {"architecture": "mnist_cnn", "side": 28, "channels": 1, "kind": "pixel"}
DIGITS_CNN = {"architecture": "digits_cnn", "side": 8, "channels": 1, "kind": "pixel"}
CASES = {
    "mnist_cnn": image(**MNIST_CNN, instances=8, per_call=16, peers=True, job=250),
    "mnist_cnn tensorflow": image(**MNIST_CNN, instances=2, per_call=16, framework="tensorflow"),
    "cifar_cnn": image("cifar_cnn", 32, 3, {"kind": "patch", "size": 4}, 2, 8, peers=True),
    "word_cnn": Case(**WORD_CNN, instances=4, engine_instances=2, peers=True),
    "word_cnn tensorflow": Case(**WORD_CNN, instances=2, engine_instances=2, framework="tensorflow"),
    "bilstm": Case("bilstm", (400,), "word", 2, 8, words=50),
    "mlp": Case("mlp", (16,), "column", 128, 16384, peers=True, sizes={"inputs": 16}),
}
QUICK = {
    "digits_cnn": image(**DIGITS_CNN, instances=2, per_call=8, peers=True),
    "digits_cnn tensorflow": image(**DIGITS_CNN, instances=2, per_call=8, framework="tensorflow"),
}


def raw(case: Case) -> tuple[ExecutionBackend, Run]:
    """Return the fastest backend and a run of the model alone on one resident batch, or one per ONNX thread."""
    forwards, at_once = _torch(case) if case.framework == "torch" else _tensorflow(case)
    calls: dict[tuple[str, int], Callable[[], object]] = {}
    best: dict[tuple[str, int], float] = {}
    for name, forward in forwards.items():
        for batch in BATCHES:
            call = calls[name, batch] = forward(case.rows(batch))
            call()  # generates kernels, or traces
            took = _seconds(call)
            best[name, batch] = took / batch / at_once[name]
            if took > TRIAL_SECONDS * (CALLS if at_once[name] > 1 else 1):
                break
    for _ in range(TRIALS - 1):
        for key, call in calls.items():
            best[key] = min(best[key], _seconds(call) / key[1] / at_once[key[0]])
    leaders = sorted(best, key=best.__getitem__)[:3]
    for _ in range(2 * TRIALS):
        for key in leaders:
            best[key] = min(best[key], _seconds(calls[key]) / key[1] / at_once[key[0]])
    name, batch = min(leaders, key=best.__getitem__)
    rows = batch * at_once[name]
    times = max(1, round(RAW_SECONDS / (best[name, batch] * rows)))

    def run() -> int:
        for _ in range(times):
            calls[name, batch]()
        return times * rows

    return ExecutionBackend(name, batch, 1 / best[name, batch]), timed(run)


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


Forwards = dict[str, Callable[[np.ndarray], Callable[[], object]]]


def _torch(case: Case) -> tuple[Forwards, dict[str, int]]:
    """Return per backend a function from rows to a call that runs them, and the number of calls at once."""
    import torch

    from shapeline.games import torch_execution
    from shapeline.games.torch_execution import BACKENDS
    from shapeline.models.torch_models import evaluation_mode
    from shapeline.threads import run_tasks

    def run_backend(name: str):
        rows = execution.select_traced_rows(case.inputs, case.reference)
        prepared = torch_execution.prepare(case.model, ExecutionBackend(name), rows)
        times[name] = CALLS * prepared.graph.shares if name == "onnx" else 1

        def on(rows: np.ndarray) -> Callable[[], object]:
            if name == "onnx":
                graph = prepared.graph
                return lambda: list(run_tasks(again(graph), [rows] * graph.shares, graph.shares))
            resident = torch.from_numpy(rows)
            if name == "channels_last":
                resident = resident.contiguous(memory_format=torch.channels_last)

            def call():
                with evaluation_mode(case.model.module):
                    return prepared(resident)

            return call

        return on

    def again(graph) -> Callable[[np.ndarray], None]:
        def run(rows: np.ndarray) -> None:
            for _ in range(CALLS):
                graph.run_once(rows)

        return run

    by_backend, times = {}, {}
    for name in BACKENDS:
        try:
            by_backend[name] = run_backend(name)
        except BackendRefused:
            continue
    return by_backend, times


def _tensorflow(case: Case) -> tuple[Forwards, dict[str, int]]:
    from shapeline.models.keras_models import tf

    def run_backend(by_xla: bool):
        def on(rows: np.ndarray) -> Callable[[], object]:
            resident = tf.constant(rows)
            forward = tf.function(lambda rows: case.model.module(rows, training=False), jit_compile=by_xla)
            step = forward.get_concrete_function(resident)  # of these alone: TensorFlow warns of what is traced often
            return lambda: step(resident).numpy()

        return on

    return {"plain": run_backend(False), "compiled": run_backend(True)}, {"plain": 1, "compiled": 1}
