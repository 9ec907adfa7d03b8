"""The engine against values computed by hand, for any batch, backend and layout of the masks."""

import math
import os
import shutil
import subprocess
import sys
import time
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from shapeline import threads as thread_counts
from shapeline.errors import MethodFailure, ShapelineError
from shapeline.games import calibration, execution, game, numpy_backend, torch_backend, torch_execution
from shapeline.games.execution import ExecutionBackend, mask_rows, select_traced_rows
from shapeline.games.features import Features
from shapeline.games.game import Game
from shapeline.games.references import Reference
from shapeline.models import adapters, architectures, onnx_graph, torch_models
from tests.fixtures import forks
from tests.unit import shortcuts

pytestmark = pytest.mark.usefixtures("whole_calibration")
WEIGHTS = np.array([[1.0, -2.0, 0.5], [0.0, 1.0, 1.5]])
BIAS = np.array([0.25, -0.5])
INPUTS = np.array([[1.0, 2.0, 3.0], [-1.0, 0.5, 2.0]], np.float32)
REFERENCE = Reference(np.array([[0.5, 0.0, -1.0]], np.float32))
COLUMNS = Features("column", (3,), np.arange(3, dtype=np.int32))
ALL_MASKS = np.array([[i >> j & 1 for j in range(3)] for i in range(8)], bool)


def linear(weights=WEIGHTS, bias=BIAS):
    layer = nn.Linear(weights.shape[1], weights.shape[0])
    layer.load_state_dict({"weight": torch.tensor(weights), "bias": torch.tensor(bias)})
    return adapters.wrap(layer)


def logits_by_hand(inputs, reference_row, masks):
    """(n, K, classes) in float64."""
    return np.where(masks[None], inputs[:, None], reference_row) @ WEIGHTS.T + BIAS


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def cnn(side=8, channels=1, seed=0):
    return architectures.build("digits_cnn", side=side, channels=channels, seed=seed)


def pixels(side=8, channels=1):
    cells = np.broadcast_to(np.arange(side * side).reshape(side, side), (channels, side, side))
    return Features("pixel", (side, side), cells.astype(np.int32))


def patches(side=8, channels=1):
    grid = np.arange(side)[:, None] // 2 * (side // 2) + np.arange(side) // 2
    cells = np.broadcast_to(grid, (channels, side, side)).astype(np.int32)
    return Features("patch", (side // 2, side // 2), cells)


def images(n, side=8, channels=1, seed=0):
    return np.random.default_rng(seed).random((n, channels, side, side), dtype=np.float32)


@pytest.mark.parametrize("batch", [1, 3, 5, 64])
@pytest.mark.parametrize("value", game.VALUES)
def test_linear_values_by_hand(value, batch):
    targets = np.array([1, 0])
    logits = logits_by_hand(INPUTS, REFERENCE.rows[0], ALL_MASKS)
    log_probs = log_softmax(logits)
    of_target = lambda array: np.stack([array[i, :, t] for i, t in enumerate(targets)])  # noqa: E731
    expected = {
        "logit": of_target(logits),
        "log_probability": of_target(log_probs),
        "probability": of_target(np.exp(log_probs)),
        "log_odds": of_target(logits) - of_target(logits[..., ::-1]),  # two classes: the difference of the logits
        "margin": of_target(logits) - of_target(logits[..., ::-1]),
        "centred_logit": (of_target(logits) - of_target(logits[..., ::-1])) / 2,
        "expected_log_probability": (np.exp(log_softmax(INPUTS @ WEIGHTS.T + BIAS))[:, None] * log_probs).sum(-1),
    }[value]
    actual = shortcuts.values(
        linear(), INPUTS, REFERENCE, ALL_MASKS, COLUMNS, value, targets, backend=ExecutionBackend("plain", batch)
    )
    assert actual.dtype == np.float64
    np.testing.assert_allclose(actual, expected, atol=2e-6)


@pytest.mark.parametrize("value", ["log_odds", "centred_logit"])
def test_values_of_three_classes(value):
    weights = np.vstack([WEIGHTS, [0.3, 0.1, -0.2]])
    model = linear(weights, np.append(BIAS, 0.1))
    p = np.exp(log_softmax(INPUTS @ weights.T + np.append(BIAS, 0.1)))
    full = np.ones((1, 3), bool)
    actual = shortcuts.values(model, INPUTS, REFERENCE, full, COLUMNS, value, np.array([2, 1]))
    mean, p = np.log(p).mean(axis=1), p[[0, 1], [2, 1]]
    expected = np.log(p / (1 - p)) if value == "log_odds" else np.log(p) - mean
    np.testing.assert_allclose(actual[:, 0], expected, atol=1e-5)


@pytest.mark.parametrize("batch", [1, 2, 4, 7, 64])
def test_marginal_averages_probability_before_the_log(batch):
    background = np.array([[0.5, 0.0, -1.0], [2.0, 1.0, 0.0], [-3.0, 0.5, 1.0]], np.float32)
    targets = np.array([1, 0])
    probabilities = np.mean([np.exp(log_softmax(logits_by_hand(INPUTS, row, ALL_MASKS))) for row in background], axis=0)
    p = np.stack([probabilities[i, :, t] for i, t in enumerate(targets)])
    arguments = (linear(), INPUTS, Reference(background), ALL_MASKS, COLUMNS)
    margins = np.mean([-np.diff(logits_by_hand(INPUTS, row, ALL_MASKS))[..., 0] for row in background], axis=0)
    for value, expected in {
        "margin": np.where(targets[:, None], -margins, margins),  # of each row, and then averaged
        "centred_logit": np.where(targets[:, None], -margins, margins) / 2,
        "log_probability": np.log(p),
        "probability": p,
        "log_odds": np.log(p / (1 - p)),
        "expected_log_probability": (
            np.exp(log_softmax(INPUTS @ WEIGHTS.T + BIAS))[:, None] * np.log(probabilities)
        ).sum(-1),
    }.items():
        actual = shortcuts.values(*arguments, value, targets, backend=ExecutionBackend("plain", batch))
        np.testing.assert_allclose(actual, expected, atol=2e-6, err_msg=value)


@pytest.mark.parametrize("task", ["classification", "multilabel", "function"])
@pytest.mark.parametrize("form", ["plain", "onnx"])
@pytest.mark.parametrize("value", game.VALUES)
def test_several_targets_have_the_values_of_each(value, form, task):
    """From one evaluation, whether masks are shared or an input's own, of background rows, tiles and several blocks."""
    if (value == "logit" and task == "function") or (value in game.OF_ALL_CLASSES and task == "multilabel"):
        return
    model = linear()
    if task == "multilabel":
        model = adapters.wrap(model.module, "multilabel")
    if task == "function":
        model = adapters.wrap(lambda rows: np.exp(log_softmax(rows @ WEIGHTS.T + BIAS)))
    background = Reference(np.array([[0.5, 0.0, -1.0], [2.0, 1.0, 0.0]], np.float32))
    backend, several = ExecutionBackend("plain" if task == "function" else form, 6), np.array([[0, 1, 0], [1, 1, 0]])
    for masks in (ALL_MASKS, np.stack([ALL_MASKS, ALL_MASKS[::-1]])):
        asked = model, INPUTS, background, masks, COLUMNS, value
        found = shortcuts.values(*asked, several, backend=backend)
        each = [shortcuts.values(*asked, several[:, number], backend=backend) for number in range(3)]
        np.testing.assert_allclose(found, np.stack(each, axis=2), atol=1e-6)


def test_targets_default_to_the_predicted_class():
    predicted = (INPUTS @ WEIGHTS.T + BIAS).argmax(1)
    assert set(predicted) == {0, 1} or len(set(predicted)) == 1
    default = shortcuts.values(linear(), INPUTS, REFERENCE, ALL_MASKS, COLUMNS)
    stated = shortcuts.values(linear(), INPUTS, REFERENCE, ALL_MASKS, COLUMNS, targets=predicted)
    other = shortcuts.values(linear(), INPUTS, REFERENCE, ALL_MASKS, COLUMNS, targets=1 - predicted)
    np.testing.assert_array_equal(default, stated)
    assert not np.allclose(default, other)


def test_confident_outputs_keep_their_digits():
    model = linear(np.array([[0.0, 0, 0], [300.0, 0, 0]]), np.zeros(2))
    value = shortcuts.values(model, INPUTS[:1], REFERENCE, np.ones((1, 3), bool), COLUMNS, targets=np.array([0]))
    assert value[0, 0] == pytest.approx(-300)  # log(p + eps) would stop near -36
    sure = linear(np.array([[0.0, 0, 0], [20.0, 0, 0]]), np.zeros(2))
    value = shortcuts.values(sure, INPUTS[:1], REFERENCE, np.ones((1, 3), bool), COLUMNS, targets=np.array([1]))
    assert value[0, 0] == pytest.approx(-np.exp(-20), rel=1e-6)  # float32 would say 0


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", ["plain", "onnx", "channels_last"])
@pytest.mark.parametrize("make", [pixels, patches])
def test_every_backend_masks_cells_like_numpy(name, make, channels):
    model, inputs, features = cnn(channels=channels), images(5, channels=channels), make(channels=channels)
    reference = Reference(images(1, channels=channels, seed=1))
    masks = np.random.default_rng(2).random((23, features.d)) < 0.5
    filled = np.where(masks[:, features.cells][None], inputs[:, None], reference.rows)
    targets = np.array([0, 1, 1, 0, 1])
    expected = model.log_probs(filled.reshape(-1, *inputs.shape[1:])).reshape(5, 23, 2)[np.arange(5), :, targets]
    for batch in (1, 7, 64):
        actual = shortcuts.values(
            model, inputs, reference, masks, features, targets=targets, backend=ExecutionBackend(name, batch)
        )
        np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_cells_without_a_feature_are_never_removed():
    features = Features("group", (2,), np.array([0, -1, 1], np.int32))
    masks = np.array([[False, False], [True, False]])
    actual = shortcuts.values(linear(), INPUTS, REFERENCE, masks, features, "logit", np.array([0, 0]))
    kept = np.array([[False, True, False], [True, True, False]])
    np.testing.assert_allclose(actual, logits_by_hand(INPUTS, REFERENCE.rows[0], kept)[..., 0], atol=1e-6)


@pytest.mark.parametrize("rows", [1, 3])
def test_masks_of_each_instance_equal_shared_masks(rows):
    model, inputs, reference = cnn(), images(6), Reference(images(rows, seed=1))
    own = np.random.default_rng(3).random((6, 9, 16)) < 0.5
    together = shortcuts.values(model, inputs, reference, own, patches(), backend=ExecutionBackend("plain", 20))
    for i in range(6):
        alone = shortcuts.values(model, inputs[i : i + 1], reference, own[i], patches())
        np.testing.assert_allclose(together[i], alone[0], atol=1e-6)
    repeated = np.broadcast_to(own[0], (6, 9, 16))
    shared = shortcuts.values(model, inputs, reference, own[0], patches())
    np.testing.assert_allclose(shortcuts.values(model, inputs, reference, repeated, patches()), shared, atol=1e-6)


def test_values_do_not_depend_on_batch_or_chunk(monkeypatch):
    model, inputs, reference = cnn(), images(7), Reference(images(1, seed=1))
    masks = np.random.default_rng(4).random((100, 64)) < 0.5
    one = shortcuts.values(model, inputs, reference, masks, pixels(), backend=ExecutionBackend("plain", 1))
    monkeypatch.setattr(execution, "MAX_MASK_BYTES", {"cpu": 4 * 64 * 30})  # masks expanded 30 at a time
    monkeypatch.setattr(execution, "MAX_BUFFERED_OUTPUTS", 40)
    for batch in (16, 64, 1000):
        other = shortcuts.values(model, inputs, reference, masks, pixels(), backend=ExecutionBackend("plain", batch))
        np.testing.assert_allclose(other, one, atol=1e-6)


@pytest.mark.parametrize(
    "n, K, pairs", [(1, 3136, 256), (50, 3136, 256), (9, 300, 256), (100, 16, 256), (3, 5, 1), (2, 1, 7)]
)
def test_tiles_fit_and_waste_little(n, K, pairs):
    a, b = execution.choose_tile(n, K, pairs)
    assert 1 <= a <= n and 1 <= b <= K and a * b <= pairs
    assert a * b >= min(n * K, pairs) * 0.7


def test_progress_counts_instances_and_evaluations():
    calls = []
    shortcuts.values(
        linear(),
        INPUTS,
        REFERENCE,
        ALL_MASKS,
        COLUMNS,
        backend=ExecutionBackend("plain", 8),
        progress=lambda *call: calls.append(call),
    )
    assert calls == [(1, 8), (2, 16)]


def test_no_instances_and_no_coalitions():
    assert shortcuts.values(linear(), INPUTS[:0], REFERENCE, ALL_MASKS, COLUMNS).shape == (0, 8)
    assert shortcuts.values(linear(), INPUTS, REFERENCE, ALL_MASKS[:0], COLUMNS).shape == (2, 0)


class Small(nn.Module):
    """A linear model that has memory for `most` rows only."""

    def __init__(self, most, error):
        super().__init__()
        self.layer, self.most, self.error, self.sizes = linear().module, most, error, []

    def forward(self, rows):
        self.sizes.append(len(rows))
        if len(rows) > self.most:
            raise self.error
        return self.layer(rows)


OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory."),
    MemoryError(),
    RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes."),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY)
def test_the_batch_is_halved_when_memory_runs_out(error):
    module = Small(3, error)
    actual = shortcuts.values(
        adapters.wrap(module), INPUTS, REFERENCE, ALL_MASKS, COLUMNS, backend=ExecutionBackend("plain", 16)
    )
    np.testing.assert_allclose(actual, shortcuts.values(linear(), INPUTS, REFERENCE, ALL_MASKS, COLUMNS))
    assert sum(size > 3 for size in module.sizes) <= 4  # it remembers, and does not try each tile anew


def test_a_model_that_ran_out_of_memory_is_remembered_for_the_rest_of_the_process():
    model = adapters.wrap(Small(3, OUT_OF_MEMORY[0]))
    for _ in range(3):  # a job calls the engine once for every few instances
        shortcuts.values(model, INPUTS, REFERENCE, ALL_MASKS, COLUMNS, backend=ExecutionBackend("plain", 16))
    assert sum(size > 3 for size in model.module.sizes) <= 4
    assert model.most_rows == 2


def test_out_of_memory_on_one_row_is_a_failure_of_the_method():
    module = Small(0, OUT_OF_MEMORY[0])
    with pytest.raises(MethodFailure, match="out of memory on a single row"):
        shortcuts.values(adapters.wrap(module), INPUTS, REFERENCE, ALL_MASKS, COLUMNS)


def test_other_runtime_errors_are_not_hidden():
    with pytest.raises(ShapelineError, match="model 'Small' fails on 16 rows: broken"):
        shortcuts.values(adapters.wrap(Small(3, RuntimeError("broken"))), INPUTS, REFERENCE, ALL_MASKS, COLUMNS)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_names_model_and_instance(bad):
    inputs = np.tile(INPUTS, (20, 1))
    inputs[33, 1] = bad
    with pytest.raises(ShapelineError, match="model 'Linear', instance 33, coalition 1") as caught:
        shortcuts.values(
            linear(),
            inputs,
            REFERENCE,
            ALL_MASKS[[0, 2, 7]],
            COLUMNS,
            targets=np.zeros(40, int),
            backend=ExecutionBackend("plain", 30),
        )
    assert caught.value.instance == 33


def stairs(rows):
    """Probabilities that are exactly 0 and 1 for some rows, as trees give them."""
    return np.where(rows[:, :1] > 0.7, [[0.0, 1.0]], [[0.25, 0.75]])


def test_function_gives_probabilities_and_refuses_the_log_of_zero():
    model = adapters.wrap(stairs)
    masks, targets = ALL_MASKS[[0, 1]], np.array([0, 0])
    arguments = (model, INPUTS, REFERENCE, masks, COLUMNS)
    np.testing.assert_allclose(shortcuts.values(*arguments, "probability", targets), [[0.25, 0], [0.25, 0.25]])
    np.testing.assert_allclose(shortcuts.values(*arguments, targets=1 - targets), np.log([[0.75, 1], [0.75, 0.75]]))
    with pytest.raises(ShapelineError, match=r'instance 0, coalition 1.*use value="probability"') as caught:
        shortcuts.values(*arguments, "log_probability", targets)
    assert caught.value.instance == 0
    with pytest.raises(ShapelineError, match='use value="probability"'):
        shortcuts.values(*arguments, "log_odds", 1 - targets)
    with pytest.raises(ShapelineError, match="no logit"):
        shortcuts.values(*arguments, "logit", targets)


def test_a_functions_probabilities_are_taken_as_they_are():
    """Rounded ones, which miss 1, too."""
    model = adapters.wrap(lambda rows: np.tile([0.333, 0.333, 0.333], (len(rows), 1)))
    for value, expected in (("log_probability", np.log(0.333)), ("probability", 0.333), ("log_odds", -np.log(2))):
        actual = shortcuts.values(model, INPUTS, REFERENCE, ALL_MASKS, COLUMNS, value, np.array([0, 2]))
        np.testing.assert_allclose(actual, np.full((2, 8), expected), rtol=1e-12)


def test_marginal_function_is_refused_only_where_the_average_is_zero():
    background = Reference(np.array([[0.5, 0, 0], [0.9, 0, 0]], np.float32))
    value = shortcuts.values(
        adapters.wrap(stairs), INPUTS, background, ALL_MASKS[:1], COLUMNS, targets=np.array([0, 0])
    )
    np.testing.assert_allclose(value, np.log([[0.125], [0.125]]))


class Branch(nn.Module):
    """Right for the rows that a trace sees, wrong for others once exported."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2))

    def forward(self, rows):
        logits = self.convolution(rows)
        return logits if rows.sum() > 20 else logits + 5


def test_a_branch_on_the_data_is_refused_as_a_traced_backend(caplog):
    model, inputs, reference = adapters.wrap(Branch()), images(4), Reference(np.zeros((1, 1, 8, 8), np.float32))
    with pytest.raises(ShapelineError, match="cannot take the backend 'onnx': the trace warns"):
        torch_execution.prepare(model, ExecutionBackend("onnx"), select_traced_rows(inputs, reference))
    caplog.set_level("INFO")
    assert calibration.calibrate(model, inputs, reference).name != "onnx"
    assert "backend onnx left out" in caplog.text


class Untraced(Branch):
    """Raises an error of a data-dependent table, only while it is traced."""

    def forward(self, rows):
        return {False: self.convolution}[torch.jit.is_tracing()](rows)


def test_a_module_that_cannot_be_traced_runs_as_it_is():
    model, reference = adapters.wrap(Untraced()), Reference(np.zeros((1, 1, 8, 8), np.float32))
    assert calibration.calibrate(model, images(4), reference).name in ("plain", "channels_last")


class Sorted(nn.Module):
    """What the exporter refuses, as packed sequences do."""

    def forward(self, rows):
        out = torch.empty(len(rows), 64), torch.empty(len(rows), 64, dtype=torch.int64)
        return torch.sort(rows.flatten(1), dim=1, out=out)[0][:, :2]


def test_what_cannot_be_exported_is_refused_in_a_line_and_prints_nothing(capfd):
    model, inputs, reference = adapters.wrap(Sorted()), images(2), Reference(np.zeros((1, 1, 8, 8), np.float32))
    with pytest.raises(ShapelineError, match=r"cannot take the backend .onnx.: the export failed: [^\n]*$"):
        torch_execution.prepare(model, ExecutionBackend("onnx"), select_traced_rows(inputs, reference))
    assert capfd.readouterr().out == ""


def test_without_onnx_runtime_the_other_backends_are_tried(monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setattr(torch_models, "EXPORT_PACKAGES", ("onnx", "no_such_runtime"))
    form = calibration.calibrate(cnn(), images(4), Reference(np.zeros((1, 1, 8, 8), np.float32)))
    assert form.name in ("plain", "channels_last")
    assert "no_such_runtime is not installed" in caplog.text


def test_a_large_network_is_not_held_three_times(monkeypatch):
    model, inputs, reference = cnn(), images(2), Reference(np.zeros((1, 1, 8, 8), np.float32))
    monkeypatch.setattr(onnx_graph, "MAX_BYTES", 1 << 4)
    with pytest.raises(ShapelineError, match="an export holds them three times"):
        torch_execution.prepare(model, ExecutionBackend("onnx"), select_traced_rows(inputs, reference))


def test_of_onnx_runtime_s_own_errors_no_memory_is_one_and_halves_the_rows(monkeypatch):
    from onnxruntime.capi.onnxruntime_pybind11_state import RuntimeException

    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)  # several share a call's rows
    model, inputs, reference = cnn(), images(3), Reference(np.zeros((1, 1, 8, 8), np.float32))
    forward = torch_execution.prepare(model, ExecutionBackend("onnx"), select_traced_rows(inputs, reference))
    session = forward.graph.session
    own = session.run

    def small(names, given):
        if len(given["rows"]) > 4:
            raise RuntimeException("Failed to allocate memory for requested buffer of size 4096")
        return own(names, given)

    monkeypatch.setattr(session, "run", small)
    masks = np.random.default_rng(0).random((16, 64)) < 0.5
    scarce = shortcuts.values(model, inputs, reference, masks, pixels(), backend=ExecutionBackend("onnx", 64))
    assert model.most_rows == 3
    np.testing.assert_allclose(scarce, shortcuts.values(cnn(), inputs, reference, masks, pixels()), atol=1e-6)


def test_a_backend_that_differs_is_omitted(monkeypatch, caplog):
    caplog.set_level("INFO")

    def wrong(module, rows):
        """Wrong on the pure reference only, which random rows would not show."""
        return lambda rows: (
            module(rows) + 0.01 * (rows == 0).all(dim=(1, 2, 3)).float()[:, None] * torch.tensor([1.0, 0])
        )

    monkeypatch.setitem(torch_execution.BACKENDS, "channels_last", wrong)
    form = calibration.calibrate(cnn(), images(4), Reference(np.zeros((1, 1, 8, 8), np.float32)))
    assert form.name != "channels_last"
    assert "backend channels_last left out: log-probabilities differ" in caplog.text


def test_calibrate_picks_a_verified_backend():
    model, inputs, reference = cnn(), images(4), Reference(images(2, seed=1))
    form = calibration.calibrate(model, inputs, reference)
    assert form.name in torch_execution.BACKENDS and form.batch >= 1 and form.rate > 0
    assert 0 <= form.difference <= execution.TOLERANCE
    masks = np.random.default_rng(0).random((50, 64)) < 0.5
    plain = shortcuts.values(model, inputs, reference, masks, pixels(), backend=ExecutionBackend("plain", 1))
    fast = shortcuts.values(model, inputs, reference, masks, pixels(), backend=form)
    np.testing.assert_allclose(fast, plain, atol=1e-5)


def test_masks_of_a_chunk_are_freed_before_the_next_are_built(monkeypatch):
    made, right = [], torch_execution.Runner.expand

    def expand(*given):
        assert all(one() is None for one in made)
        present = right(*given)
        made.append(weakref.ref(present))
        return present

    monkeypatch.setattr(torch_execution.Runner, "expand", expand)
    monkeypatch.setitem(execution.MAX_MASK_BYTES, "cpu", 1)
    masks = np.random.default_rng(0).random((50, 64)) < 0.5
    shortcuts.values(cnn(), images(4), Reference(images(1)), masks, pixels(), backend=ExecutionBackend("plain", 8))
    assert len(made) > 5


def test_calibration_outlasts_a_disturbance_of_small_batches(monkeypatch):
    """For short calls: on a busy machine, calibration once chose 2 rows per call for a model that is fastest at 64."""
    model, inputs, reference = cnn(), images(4), Reference(images(1))

    def chosen(rates: dict[int, float]) -> tuple[int, set[int]]:
        """The batch that is found best at such rows/s, and those that were tried."""
        tried = set()

        def measured(_, batch, least=0.0):
            tried.add(batch)
            return 1 / rates[batch]

        monkeypatch.setattr(torch_backend, "_step", lambda runner, batch, *_: lambda: measured(None, batch))
        monkeypatch.setattr(calibration, "time_fastest", measured)
        return calibration.calibrate(model, inputs, reference).batch, tried

    quick = {1: 20, 2: 700, 4: 90, 8: 540, 16: 300, 32: 400, 64: 1600, 128: 700, 256: 600}
    assert chosen(quick)[0] == 64
    slow = {1: 20, 2: 30, 4: 29, 8: 28}  # no other is asked for
    assert chosen(slow) == (2, {1, 2, 4, 8})


@pytest.mark.parametrize(("side", "largest"), [(100, 64), (300, 4)])
@pytest.mark.parametrize("framework", ["torch", "function"])
def test_calibration_takes_as_much_memory_on_a_quick_machine(framework, side, largest, monkeypatch):
    """Where larger batches are always faster: 512 rows of images and their activations were 2.4 GB."""
    shape, tried, expanded = (3, side, 2 * side), set(), []
    module, right = nn.Sequential(nn.Flatten(), nn.Linear(6 * side * side, 2)), torch_execution.Runner.expand
    model = adapters.wrap(module if framework == "torch" else lambda rows: np.full((len(rows), 2), 0.5))

    def expand(runner, masks, cells):
        expanded.append(masks.shape[1])
        return right(runner, masks, cells)

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(calibration, "time_fastest", lambda step, batch, least: tried.add(batch) or 1e-6 / batch)
    monkeypatch.setattr(torch_execution.Runner, "expand", expand)
    calibration.calibrate(model, np.ones((2, *shape), np.float32), Reference(np.zeros((1, *shape), np.float32)))
    assert max(tried) == largest
    assert framework == "function" or expanded == [1, largest]  # once for all forms
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert largest <= execution.limit_trial_rows(math.prod(shape), "cpu") // 4 < 2 * largest


@pytest.mark.parametrize(
    ("variable", "count"), [("3", 3), ("4,2", 4), (" 2 ", 2), ("", None), ("0", None), ("x", None)]
)
def test_the_number_of_threads_is_read_as_openmp_does(variable, count, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", variable)
    assert thread_counts.count_allowed() == (count or thread_counts.count_processors())


@pytest.mark.parametrize("threads", [1, 4])
def test_threads_that_each_make_a_call_try_their_share_of_its_rows(threads, monkeypatch):
    right, tried = numpy_backend._step, set()
    monkeypatch.setenv("OMP_NUM_THREADS", str(threads))
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setitem(execution.MAX_TRIAL_BYTES, "cpu", 256 * 4 * 64)
    monkeypatch.setattr(calibration, "time_fastest", lambda step, batch, least: 1e-6 / batch)
    monkeypatch.setattr(numpy_backend, "_step", lambda model, batch, *of: tried.add(batch) or right(model, batch, *of))
    calibration.calibrate(cnn(), images(4), Reference(images(1)))
    assert execution.limit_trial_rows(64, "cpu") == threads * 256 and max(tried) == 256


@pytest.mark.parametrize(
    ("worth", "slower", "chosen"), [(1.1, 1.09, "onnx"), (1.1, 1.2, "channels_last"), (1.0, 1.09, "channels_last")]
)
def test_a_preferred_backend_may_be_slightly_slower(worth, slower, chosen):
    rates = {"plain": 50.0, "channels_last": 100.0, "onnx": 100.0 / slower}

    def candidate(name: str) -> calibration.Candidate:
        return calibration.Candidate(0.0, lambda: 16, lambda batch: lambda: 1 / rates[name])

    plan = calibration.Search((0.3, 0.6, 1.0), (), 16, 16, 2, 0.0, 64, 2, worth={"onnx": worth})
    form = calibration.search(tuple(rates), candidate, plan, time.perf_counter())
    assert (form.name, form.rate) == (chosen, pytest.approx(rates[chosen]))


def test_calibrate_runs_on_functions():
    form = calibration.calibrate(adapters.wrap(stairs), INPUTS, REFERENCE)
    assert form.name == "plain" and form.difference == 0


def test_a_function_is_evaluated_without_torch():
    code = """
import sys, numpy as np
from shapeline.games import calibration
from shapeline.games.game import Game
from shapeline.games.features import Features
from shapeline.games.references import Reference
from shapeline.models import adapters
model = adapters.wrap(lambda rows: 1 / (1 + np.exp(-rows[:, 0])))
rows, reference = np.ones((4, 3), np.float32), Reference(np.zeros((2, 3), np.float32))
form = calibration.calibrate(model, rows, reference)
features = Features("column", (3,), np.arange(3, dtype=np.int32))
values = Game(model, reference, features, "log_odds", form).values(rows, np.eye(3, dtype=bool))
print(form.name, values.shape, round(values[0, 0], 6), *({"torch", "tensorflow"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["plain", "(4,", "3)", "1.0"]


def test_the_pure_reference_is_among_the_verified_rows():
    reference = Reference(images(1, seed=1))
    rows = mask_rows(images(4), reference, 16)
    np.testing.assert_array_equal(rows[0], reference.rows[0])
    np.testing.assert_array_equal(rows[1], images(4)[1])
    share = (rows == reference.rows[0]).reshape(16, -1).mean(1)
    assert ((share[2:] > 0) & (share[2:] < 1)).sum() >= 12


def test_a_prepared_backend_is_cached_until_the_weights_change():
    model, inputs, reference = cnn(), images(2), Reference(images(1, seed=1))
    masks = np.ones((1, 64), bool)
    first = torch_execution.prepare(model, ExecutionBackend("onnx"), select_traced_rows(inputs, reference))
    assert torch_execution.prepare(model, ExecutionBackend("onnx", 7), select_traced_rows(inputs, reference)) is first
    before = shortcuts.values(model, inputs, reference, masks, pixels(), backend=ExecutionBackend("onnx"))
    with torch.no_grad():
        model.module[-1].bias += torch.tensor([1.0, -1.0])
    assert torch_execution.prepare(model, ExecutionBackend("onnx"), select_traced_rows(inputs, reference)) is not first
    after = shortcuts.values(model, inputs, reference, masks, pixels(), backend=ExecutionBackend("onnx"))
    plain = shortcuts.values(model, inputs, reference, masks, pixels())
    np.testing.assert_allclose(after, plain, atol=1e-6)
    assert not np.allclose(before, after)


COMPILED = [pytest.param(name, marks=pytest.mark.real) for name in ("compiled", "compiled_bfloat16")]  # half a minute


@pytest.mark.parametrize("name", ["bfloat16", *COMPILED])
def test_precision_and_compilation_are_separate_verified_backends(name):
    compiled, precision = "compiled" in name, "bfloat16" if "bfloat16" in name else "float32"
    if compiled and not shutil.which(os.environ.get("CXX", "g++")):
        pytest.skip("torch.compile needs a C++ compiler, g++ or the one named by CXX")
    model, reference = cnn(), Reference(np.zeros((1, 1, 8, 8), np.float32))
    form = calibration.choose_backend(
        Game(model, reference, None, backend=ExecutionBackend("onnx", 64)), images(8), precision, compiled
    )
    assert form.name == name
    assert form.batch == 64
    masks = np.random.default_rng(0).random((100, 16)) < 0.5
    plain, fast = (
        shortcuts.values(model, images(3), reference, masks, patches(), backend=one)
        for one in (ExecutionBackend("plain", 64), form)
    )
    largest = np.abs(plain - fast).max()
    assert largest <= (execution.BFLOAT16_TOLERANCE if precision == "bfloat16" else execution.TOLERANCE)
    assert (largest > 1e-5) == (form.difference > 1e-5) == (precision == "bfloat16")


def test_a_precision_that_changes_too_much_is_refused(monkeypatch):
    monkeypatch.setattr(execution, "BFLOAT16_TOLERANCE", 1e-6)
    with pytest.raises(ShapelineError, match=r"precision: bfloat16 changes log-probabilities .* remove the key"):
        calibration.choose_backend(
            Game(cnn(), Reference(images(1)), None, backend=ExecutionBackend()), images(4), "bfloat16", False
        )


def test_calibration_never_selects_backends_that_need_a_request():
    assert not torch_execution.REQUESTED.keys() & torch_execution.BACKENDS.keys()
    assert calibration.calibrate(cnn(), images(4), Reference(images(1))).name in torch_execution.BACKENDS


IMPORTED_ONCE = "import pandas; from shapeline.api import call; from shapeline.games import torch_backend\n"
KEEPS_PRECISION = """
cudnn = torch.backends.cudnn
owners = [cudnn, cudnn.conv, cudnn.rnn]
own = {own}
for name, precision in own.items():
    setattr(getattr(cudnn, name) if name else cudnn, "fp32_precision", precision)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.LSTM(3, 2)

    def forward(self, rows):
        used = {{owner.fp32_precision for owner in owners[1:]}}
        assert used == {{"ieee"}} if own else not cudnn.allow_tf32, used
        return self.layer(rows[None])[0][0]

before = [owner.fp32_precision for owner in owners]
for method in ("shapley", "saliency"):
    shapeline.explain(Net(), np.zeros((1, 3), np.float32), method, background=np.ones((1, 3), np.float32))
assert before == [owner.fp32_precision for owner in owners], before
"""


@pytest.mark.skipif(not hasattr(torch.backends.cudnn, "conv"), reason="precision by operation is of torch 2.9 or later")
def test_convolutions_keep_float32_however_their_precision_was_set():
    given = ({"conv": "ieee", "rnn": "tf32"}, {"": "tf32"}, {"conv": "ieee", "rnn": "ieee"}, {})
    first = "import torch, numpy as np, shapeline\n"  # names of each program
    programs = {str(own): first + KEEPS_PRECISION.format(own=own) for own in given}  # a setting cannot be taken back
    codes, errors = forks.run_in_forks(f"{first}{IMPORTED_ONCE}", programs)
    assert codes == dict.fromkeys(programs, 0), f"{codes}\n{errors}"


def test_training_mode_is_restored_and_not_used():
    module = nn.Sequential(nn.Dropout(0.9), nn.Linear(3, 2))
    module.train()
    arguments = (adapters.wrap(module), INPUTS, REFERENCE, ALL_MASKS, COLUMNS)
    np.testing.assert_array_equal(shortcuts.values(*arguments), shortcuts.values(*arguments))
    assert module.training and module[0].training


@pytest.mark.parametrize(
    "change, message",
    [
        ({"value": "log_prob"}, "Did you mean 'log_probability'"),
        ({"masks": ALL_MASKS[:, :2]}, r"masks have shape \(8, 2\)"),
        ({"masks": ALL_MASKS[None]}, r"\(2, K, 3\)"),
        ({"reference": Reference(np.zeros((1, 4), np.float32))}, r"reference rows have shape \(4,\)"),
        ({"features": pixels()}, "features have shape"),
        ({"targets": np.array([0, 2])}, "classes are 0 to 1"),
        ({"targets": np.array([0])}, "2 class numbers"),
        ({"targets": np.array([0.5, 1.0])}, "2 class numbers"),
    ],
)
def test_mistakes_are_named(change, message):
    arguments = {"reference": REFERENCE, "masks": ALL_MASKS, "features": COLUMNS, **change}
    with pytest.raises(ShapelineError, match=message):
        shortcuts.values(linear(), INPUTS, **arguments)


def test_one_logit_is_refused_with_the_remedy():
    with pytest.raises(ShapelineError, match="return the two logits 0 and z"):
        shortcuts.values(adapters.wrap(nn.Linear(3, 1)), INPUTS, REFERENCE, ALL_MASKS, COLUMNS)


def test_filling_is_exact():
    random = np.random.default_rng(0)
    rows, reference = (torch.tensor(random.normal(0, 10.0**power, (40, 33)).astype(np.float32)) for power in (-6, 6))
    present = torch.tensor(random.random((40, 33)) < 0.5)
    rows[0], reference[1] = np.nan, np.inf
    out = torch.empty(40, 33)
    torch_execution.get_fill(reference, rows)(-present.int(), out)
    np.testing.assert_array_equal(out, torch.where(present, rows, reference))


def test_an_image_model_with_windows_of_its_own_is_calibrated_as_any(caplog):
    class Swin(torch.nn.Module):
        window_size = 7

        def forward(self, rows):
            return rows.flatten(1)[:, :2]

    images = np.random.default_rng(0).random((3, 1, 8, 8), dtype=np.float32)
    form = calibration.calibrate(adapters.wrap(Swin()), images, Reference(np.zeros((1, 1, 8, 8), np.float32)))
    assert form.name != "windows"


def test_the_probability_of_two_is_exact_however_sure_the_network_is():
    logits = np.array([[1e4, 0], [0, 1e4], [3, 3], [0, 40], [40, 0], [1e-9, 0], [-800, 800]], np.float32)
    network = SimpleNamespace(framework="torch", task="classification")
    for target in (0, 1):
        expected = -np.logaddexp(0, logits[:, 1 - target].astype(np.float64) - logits[:, target])
        asked = logits.reshape(1, -1, 1, 2), np.array([target]), None
        found = numpy_backend.convert_outputs(*asked, "log_probability", network)
        np.testing.assert_allclose(found[0], expected, rtol=1e-14)
        probabilities = numpy_backend.convert_outputs(*asked, "probability", network)
        np.testing.assert_allclose(probabilities[0], np.exp(expected), rtol=1e-13)


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_function_that_returns_its_rows_keeps_them(threads, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    random = np.random.default_rng(5)
    inputs, rows, masks = random.random((40, 3)), random.random((20, 3)), random.random((40, 60, 3)) < 0.5

    def first_cell(cells):
        return cells[:, 0]

    model = adapters.wrap(first_cell, "regression")
    backend = ExecutionBackend("plain", 200)
    actual = shortcuts.values(model, inputs, Reference(rows), masks, COLUMNS, "prediction", backend=backend)
    expected = np.where(masks[:, :, 0], inputs[:, :1], rows[:, 0].mean())
    np.testing.assert_allclose(actual, expected, rtol=1e-12)
    inputs[7, 0] = np.nan
    with pytest.raises(ShapelineError) as caught:
        shortcuts.values(model, inputs, Reference(rows), np.ones((1, 3), bool), COLUMNS, "prediction", backend=backend)
    assert caught.value.instance == 7
