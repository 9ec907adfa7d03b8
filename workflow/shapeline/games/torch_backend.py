"""The backend for torch models: features are masked on the device, in one buffer, tile after tile."""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch

from shapeline.errors import MethodFailure
from shapeline.games import calibration, execution, numpy_backend, windows
from shapeline.games.features import Features
from shapeline.games.game import Game, Progress, as_array, check_finite, map_targets, select_rows, share_reference
from shapeline.games.references import Reference
from shapeline.games.torch_execution import ORDER, Runner, build_runner, evaluating, get_fill, prepare, score_on_device
from shapeline.models.classifier import Classifier
from shapeline.models.torch_models import evaluation_mode

MAX_CALL_SECONDS, FEW_ROWS = calibration.MAX_CALL_SECONDS, 64  # batches of few rows are rarely the fastest
TIMING_SECONDS = 0.03  # per timed batch


def values(
    game: Game, inputs: np.ndarray, masks: np.ndarray, targets: np.ndarray | None, progress: Progress
) -> np.ndarray:
    """Return values (n, K) float64 as Game.values, which has checked the arguments."""
    by_backend = _evaluate_graph if game.backend.name == "onnx" else _evaluate_module
    return by_backend(game, inputs, masks, targets, progress)


def _evaluate_module(
    game: Game, inputs: np.ndarray, masks: np.ndarray, targets: np.ndarray | None, progress: Progress
) -> np.ndarray:
    model, value, own_rows = game.model, game.value, game.reference.own
    reference = share_reference(game.reference, inputs)
    n, K, M = len(inputs), masks.shape[-2], len(reference.rows)
    with evaluating(model):
        runner = build_runner(model, game.backend, execution.select_traced_rows(inputs, reference))
        full = None
        if targets is None or value == "expected_log_probability":
            full = runner.log_probs(inputs)
            model.n_classes = full.shape[1]
        targets = full.argmax(1) if targets is None else torch.from_numpy(targets).to(runner.device)
        result = np.empty((n, K, *targets.shape[1:]))
        score = functools.partial(score_on_device, value=value, framework=model.framework, task=model.task)
        score = map_targets(score, torch.stack)
        full = full.exp() if value == "expected_log_probability" else None
        absent = runner.flat(reference.rows).to(runner.device)
        cells = runner.cells(game.features)
        a, b = execution.choose_tile(n, K, max(1, runner.limit // M))
        buffer = torch.empty((a * b * M, runner.size), dtype=absent.dtype, device=runner.device)
        chunk = b * max(1, execution.MAX_MASK_BYTES[runner.device.type] // (4 * runner.size * b))
        for first in range(0, K, chunk):
            last = min(first + chunk, K)
            shared = present = None  # frees the previous chunk's masks, which are as large
            # Masks that all instances share are expanded to input cells once, not per instance.
            shared = runner.expand(masks[None, first:last], cells) if masks.ndim == 2 else None
            for start in range(0, n, a):
                stop = min(start + a, n)
                if own_rows is not None:
                    rows = as_array(own_rows(inputs[start:stop]), inputs.dtype).reshape(-1, *inputs.shape[1:])
                    absent = runner.flat(rows).to(runner.device).view(stop - start, 1, M, -1)
                fill = get_fill(absent, runner.flat(inputs[start:stop]).to(runner.device)[:, None, None])
                arguments = targets[start:stop], None if full is None else full[start:stop]
                scored, outputs = [], []
                for k in range(first, last, b):
                    end = min(k + b, last)
                    if shared is None:
                        present = runner.expand(masks[start:stop, k:end], cells)
                    else:
                        present = shared[:, k - first : end - first]
                    pairs = (stop - start, end - k, M)
                    if game.reference.given is not None:
                        fill = _build_filler(runner, game, inputs[start:stop], masks[..., k:end, :], start)
                    filled = buffer[: math.prod(pairs)]
                    fill(present[:, :, None], filled.view(*pairs, -1))
                    outputs.append(runner.outputs(filled).view(*pairs, -1))
                    if end == last or len(outputs) * outputs[0].numel() > execution.MAX_BUFFERED_OUTPUTS:
                        scored.append(score(torch.cat(outputs, dim=1), *arguments))
                        outputs = []
                block = result[start:stop, first:last] = torch.cat(scored, dim=1).cpu().numpy()
                check_finite(game, block, start, first)
                if progress:
                    progress(stop if last == K else 0, first * n + stop * (last - first))
    return result


def _evaluate_graph(
    game: Game, inputs: np.ndarray, masks: np.ndarray, targets: np.ndarray | None, progress: Progress
) -> np.ndarray:
    """Return the same by the module's graph; each thread composes its rows with numpy and evaluates them."""
    model = game.model
    graph = _export_graph(model, execution.select_traced_rows(inputs, share_reference(game.reference, inputs)))
    try:
        return numpy_backend.values(game.having(model=graph), inputs, masks, targets, progress)
    finally:
        model.most_rows, model.n_classes = graph.most_rows, graph.n_classes


def _export_graph(model: Classifier, rows: np.ndarray) -> Classifier:
    """Return the classifier with its module's graph; rows: of execution.select_traced_rows."""
    return dataclasses.replace(
        model, module=prepare(model, execution.ExecutionBackend("onnx"), rows).graph, runtime="onnx"
    )


def _build_filler(runner: Runner, game: Game, inputs: np.ndarray, masks: np.ndarray, start: int) -> Callable:
    """Return the filler of a tile whose masked features depend on the kept ones; arguments as for `select_rows`."""
    rows = select_rows(game, inputs, masks, start)
    absent = runner.flat(rows.reshape(-1, *inputs.shape[1:])).to(runner.device).view(*rows.shape[:3], -1)
    return get_fill(absent, runner.flat(inputs).to(runner.device)[:, None, None])


def calibrate(model: Classifier, inputs: np.ndarray, reference: Reference) -> execution.ExecutionBackend:
    """Return the fastest backend and batch, for inputs and reference rows in the model's format."""
    began, traced = time.perf_counter(), execution.select_traced_rows(inputs, reference)
    largest = execution.limit_trial_rows(math.prod(inputs.shape[1:]), torch.device(model.device).type)
    with evaluating(model):
        plain = build_runner(model, execution.ExecutionBackend("plain", largest), traced)
        step = _step(plain, 1, inputs, reference, *_generate_masks(plain, 1, inputs.dtype))
        step()  # starts the threads
        single = calibration.time_fastest(step, 1, TIMING_SECONDS)
        rows = execution.mask_rows(inputs, reference, count=int(np.clip(MAX_CALL_SECONDS / single, 4, 64)))
        expected = plain.compare_outputs(rows)
        masks = functools.cache(lambda batch: _generate_masks(plain, batch, inputs.dtype))

        def candidate(name: str) -> calibration.Candidate:
            runner = (
                plain if name == "plain" else build_runner(model, execution.ExecutionBackend(name, largest), traced)
            )
            difference = 0.0 if name == "plain" else _measure_difference(runner, rows, expected)
            if name == "onnx":
                graph = _export_graph(model, traced)
                most, step = numpy_backend.try_candidate(graph, inputs, reference)
                return calibration.Candidate(difference, lambda: max(smallest, most()), step)
            return calibration.Candidate(
                difference, lambda: runner.limit, lambda batch: _step(runner, batch, inputs, reference, *masks(batch))
            )

        backends = ORDER[plain.device.type]
        # Large models start with small batches, so that no single call takes long.
        smallest = 1 << int(np.clip(math.log2(min(MAX_CALL_SECONDS / single, largest)), 0, math.log2(FEW_ROWS)))
        plan = calibration.Search(
            shares=tuple(index / len(backends) for index in range(1, len(backends) + 1)),
            refusals=(execution.BackendRefused, RuntimeError, MethodFailure),
            smallest=smallest,
            sure=smallest,
            stride=2,
            measured=TIMING_SECONDS,
            few_rows=FEW_ROWS,
            turns=5,
            worth={"onnx": execution.MAX_GRAPH_SLOWDOWN},
        )
        return calibration.search(backends, candidate, plan, began)


def measure_backend(game: Game, inputs: np.ndarray) -> float:
    """Return the backend's largest difference to the plain model on 64 masked rows, as `_measure_difference`."""
    model, backend, reference = game.model, game.backend, share_reference(game.reference, inputs)
    with evaluating(model):
        traced, rows = execution.select_traced_rows(inputs, reference), execution.mask_rows(inputs, reference, count=64)
        expected = build_runner(model, execution.ExecutionBackend("plain", backend.batch), traced).compare_outputs(rows)
        return _measure_difference(build_runner(model, backend, traced), rows, expected)


def _measure_difference(runner: Runner, rows: np.ndarray, expected: torch.Tensor) -> float:
    """Return the largest difference to the expected log-probabilities, with all rows at once and about half of them."""
    half = len(rows) // 2 + 1
    actual = torch.cat([runner.compare_outputs(rows), runner.compare_outputs(rows[:half])])
    expected = torch.cat([expected, expected[:half]])
    return calibration.measure_difference(*(log_probs.detach().cpu().numpy() for log_probs in (actual, expected)))


def _generate_masks(runner: Runner, batch: int, dtype: np.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return bits of artificial masks and a buffer for composed rows, (batch, cells) each, shared by all backends."""
    kept = np.random.default_rng(0).random((1, batch, runner.size), dtype=np.float32) < 0.5
    buffer = torch.empty((batch, runner.size), dtype=getattr(torch, dtype.name), device=runner.device)
    return runner.expand(kept, None)[0], buffer


def _step(
    runner: Runner, batch: int, inputs: np.ndarray, reference: Reference, present: torch.Tensor, buffer: torch.Tensor
) -> Callable[[], float]:
    """Return a function that evaluates a tile on artificial masks and returns seconds per row (inf: too large)."""
    rows = runner.flat(inputs[:1]).to(runner.device)
    fill = get_fill(runner.flat(reference.rows[:1]).to(runner.device), rows)
    target = torch.zeros(1, dtype=torch.int64, device=runner.device)

    def run() -> float:
        start = time.perf_counter()
        fill(present, buffer)
        outputs = runner.outputs(buffer)
        kind = runner.model.framework, runner.model.task
        score_on_device(outputs.view(1, batch, 1, -1), target, None, "log_probability", *kind)
        if runner.device.type == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - start) / batch if runner.limit >= batch else math.inf

    return run


def window_values(
    model: Classifier, inputs: np.ndarray, rows: np.ndarray, masks: np.ndarray, features: Features
) -> Iterator[tuple[int, int, int, int, np.ndarray]]:
    """Yield logits as `windows.evaluate_tiles`, for a module with `window_size`, `windows` and `from_pooled`."""
    module, device = model.module, torch.device(model.device)

    def wrap_arrays(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[np.ndarray], np.ndarray]:
        def run(rows: np.ndarray) -> np.ndarray:
            with evaluation_mode(module):
                return function(torch.from_numpy(rows).to(device)).cpu().numpy()

        return run

    threads = torch.get_num_threads()
    local = windows.Local(module.window_size, wrap_arrays(module.windows), wrap_arrays(module.from_pooled), threads)
    return windows.evaluate_tiles(local, inputs, rows, masks, features.cells)
