"""The graph beside a network's weights gives the network's outputs, and is used only if it is of these weights."""

import json
import multiprocessing
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from shapeline.attribution import context, selection
from shapeline.attribution.context import parse_game as game_of
from shapeline.config import validation
from shapeline.errors import ShapelineError
from shapeline.games.execution import MAX_MASK_BYTES, ExecutionBackend
from shapeline.games.features import Features
from shapeline.games.references import Reference
from shapeline.models import architectures, onnx_graph, storage, torch_models
from shapeline.threads import run_tasks
from shapeline.workflow import job_code, job_environment
from tests.unit import shortcuts

pytest.importorskip("onnxruntime")
RANDOM = np.random.default_rng(0)
SIZES = {
    "digits_cnn": ({"classes": 3}, (1, 8, 8), 0),
    "mlp": ({"classes": 2}, (30,), 0),
    "word_cnn": ({"vocabulary": 50, "length": 40}, (40,), 50),
}
NETWORKS = [
    ("digits_cnn", "classification"),
    ("digits_cnn", "multilabel"),
    ("mlp", "classification"),
    ("mlp", "regression"),
    ("word_cnn", "classification"),
]
VALUES = ("log_probability", "probability", "logit", "log_odds", "margin", "expected_log_probability")


def drawn(count: int, shape: tuple[int, ...], ids: int) -> np.ndarray:
    """Rows of an input shape: of token ids int32 where there are any."""
    if ids:
        return RANDOM.integers(0, ids, (count, *shape)).astype(np.int32)
    return RANDOM.standard_normal((count, *shape)).astype(np.float32)


def stored(folder, name: str = "mlp", task: str = "classification", seed: int = 1) -> str:
    """The path of weights with what train_model writes beside them."""
    sizes, shape, ids = SIZES[name]
    sizes = {**sizes, "classes": 1} if task == "regression" else sizes
    model = architectures.build(name, "torch", seed=seed, **sizes)
    model.task, model.n_classes = task, sizes.get("classes", 2)
    folder.mkdir(exist_ok=True)
    path = folder / "weights.safetensors"
    storage.save(model, path)
    told = storage.save_graph(model, path, drawn(40, shape, ids))
    (folder / "card.json").write_text(json.dumps({"onnx": told}))
    return str(path)


@pytest.mark.parametrize("name, task", NETWORKS)
def test_values_are_those_of_the_network_in_that_backend(tmp_path, name, task):
    """Of every kind of value, of one and more rows of a reference, of one's own, and of those that hang on what is
    present; masks shared and not; the logits bit for bit."""
    _, shape, ids = SIZES[name]
    path = stored(tmp_path, name, task)
    network, graph = storage.load(path), storage.read_graph(path)
    assert (graph.runtime, graph.framework, graph.device, graph.task) == ("onnx", "torch", "cpu", task)
    size = int(np.prod(shape))
    cells = (np.arange(size, dtype=np.int32) * 10 // size).reshape(shape)
    cells.flat[-1] = -1
    features, rows = Features("patch", (10,), cells), drawn(7, shape, ids)
    shared, some = drawn(5, shape, ids), drawn(2, shape, ids)
    references = [
        Reference(shared[:1]),
        Reference(shared),
        Reference(None, own=lambda inputs: np.stack([0 * inputs, inputs], axis=1)),
        Reference(
            some, given=lambda inputs, kept: np.where(kept[:, :, None], 1, some.reshape(2, -1)).astype(some.dtype)
        ),
    ]
    targets = np.arange(7) % (network.n_classes or 1)
    asked = ("prediction",) if task == "regression" else VALUES[:-1] if task == "multilabel" else VALUES
    for value in asked:
        for reference in references[: 3 if ids else 4]:
            for masks in (RANDOM.random((120, 10)) < 0.5, RANDOM.random((7, 33, 10)) < 0.5):
                given = rows, reference, masks, features, value, targets, ExecutionBackend("onnx", 37)
                expected = shortcuts.values(network, *given)
                actual = shortcuts.values(graph, *given)
                if value in ("logit", "prediction"):
                    np.testing.assert_array_equal(actual, expected)
                np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(graph._outputs(rows, 3), network._outputs(rows, 3), atol=1e-5)


def test_large_evaluations_are_split_and_nan_is_reported(tmp_path, monkeypatch):

    path = stored(tmp_path)
    network, graph = storage.load(path), storage.read_graph(path)
    features, rows = Features("column", (30,), np.arange(30, dtype=np.int32)), drawn(5, (30,), 0)
    masks, reference = RANDOM.random((300, 30)) < 0.5, Reference(drawn(2, (30,), 0))
    expected = shortcuts.values(network, rows, reference, masks, features)
    monkeypatch.setitem(MAX_MASK_BYTES, "cpu", 1)
    told = []
    for batch in (1, 64, 4096):
        form = ExecutionBackend("onnx", batch)
        asked = {"backend": form, "progress": lambda *now: told.append(now)}
        actual = shortcuts.values(graph, rows, reference, masks, features, **asked)
        np.testing.assert_allclose(actual, expected, atol=1e-5)
    assert told[-1] == (5, 1500)
    rows[3, 4] = np.nan
    with pytest.raises(ShapelineError, match="instance 3, coalition 1: the output is nan"):
        shortcuts.values(graph, rows, reference, np.eye(30, dtype=bool)[[0, 4]], features, targets=np.zeros(5, int))


def test_rows_per_call_decrease_when_memory_runs_out(tmp_path, monkeypatch):
    graph = storage.read_graph(stored(tmp_path))
    features, rows = Features("column", (30,), np.arange(30, dtype=np.int32)), drawn(2, (30,), 0)
    asked = rows, Reference(drawn(1, (30,), 0)), RANDOM.random((50, 30)) < 0.5, features
    expected, own = shortcuts.values(graph, *asked), graph.module.session

    def run(names, given):
        if len(given["rows"]) > 9:
            from onnxruntime.capi.onnxruntime_pybind11_state import RuntimeException

            raise RuntimeException("Failed to allocate memory for requested buffer of size 4096")
        return own.run(names, given)

    small = SimpleNamespace(run=run, get_inputs=own.get_inputs, get_outputs=own.get_outputs)
    graph.module = onnx_graph.Graph(small)
    np.testing.assert_allclose(shortcuts.values(graph, *asked), expected, atol=1e-6)
    assert graph.most_rows <= 9


@pytest.mark.parametrize("rows", [1, 2, 3, 8, 500])
def test_rows_of_a_call_are_shared_out_and_come_back_in_order(rows):
    model, given = architectures.build("mlp", "torch", classes=3), drawn(rows, (30,), 0)
    content = torch_models.export_graph(model.module, drawn(2, (30,), 0))
    alone, shared = onnx_graph.load_graph(content, 1), onnx_graph.load_graph(content, 3)
    assert (alone.shares, shared.shares) == (1, 3)
    np.testing.assert_allclose(shared(given), alone(given), atol=1e-6)


@pytest.mark.parametrize(
    "instances, coalitions, batch", [(1, 300, 16), (1, 20, 64), (5, 40, 16), (40, 30, 64), (3, 7, 2)]
)
@pytest.mark.parametrize("own", [False, True], ids=["shared masks", "own masks"])
@pytest.mark.parametrize("name", ["mlp", "word_cnn"])
def test_threads_that_share_tiles_give_the_values_of_one(
    instances, coalitions, batch, own, name, tmp_path, monkeypatch
):

    _, shape, ids = SIZES[name]
    network = storage.load(stored(tmp_path, name))
    features = Features("column", shape, np.arange(shape[0], dtype=np.int32))
    masks = RANDOM.random((instances, coalitions, shape[0]) if own else (coalitions, shape[0])) < 0.5
    asked = drawn(instances, shape, ids), Reference(drawn(2, shape, ids)), masks, features
    expected = shortcuts.values(network, *asked)
    monkeypatch.setitem(MAX_MASK_BYTES, "cpu", 4 * shape[0] * 64)
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        network, told = storage.load(stored(tmp_path, name)), []
        more = {"backend": ExecutionBackend("onnx", batch), "progress": lambda *now, told=told: told.append(now)}
        np.testing.assert_allclose(shortcuts.values(network, *asked, **more), expected, atol=1e-5)
        assert told[-1] == (instances, instances * coalitions) and told == sorted(told)


def test_rows_of_a_large_graph_have_all_threads_each(monkeypatch):
    content = torch_models.export_graph(architectures.build("mlp", "torch").module, drawn(2, (30,), 0))
    monkeypatch.setattr(onnx_graph, "SMALL", len(content))
    assert onnx_graph.load_graph(content, 5).shares == 1


@pytest.mark.parametrize("threads", [1, 4])
def test_what_a_task_raises_is_raised(threads):
    def run(task):
        if task == 9:
            raise MemoryError("of the last task")
        return task

    with pytest.raises(MemoryError, match="of the last task"):
        list(run_tasks(run, range(10), threads))


def test_a_fork_of_a_process_that_shared_rows_out_shares_its_own():
    model = architectures.build("mlp", "torch", classes=3)
    graph = onnx_graph.load_graph(torch_models.export_graph(model.module, drawn(2, (30,), 0)), 2)
    given = drawn(40, (30,), 0)
    expected, context = graph(given), multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=lambda: sender.send(graph(given)), daemon=True)
    child.start()
    said = receiver.recv() if receiver.poll(20) else None
    child.kill()
    np.testing.assert_array_equal(said, expected)


def break_bytes(folder):
    file = folder / "model.onnx"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1  # of a weight: the file can be read, and says something else
    file.write_bytes(content)


def cut(folder):
    (folder / "model.onnx").write_bytes((folder / "model.onnx").read_bytes()[:100])


def another_training(folder):
    """Its graph and card, with these weights."""
    own = (folder / "weights.safetensors").read_bytes()
    stored(folder, seed=2)
    (folder / "weights.safetensors").write_bytes(own)


def other_weights(folder):
    """These graph and card, with the weights of another training."""
    kept = {name: (folder / name).read_bytes() for name in ("model.onnx", "card.json")}
    stored(folder, seed=2)
    for name, content in kept.items():
        (folder / name).write_bytes(content)


ATTACKS = {
    "of a bit": break_bytes,
    "cut": cut,
    "gone": lambda folder: (folder / "model.onnx").unlink(),
    "no card": lambda folder: (folder / "card.json").unlink(),
    "another card": lambda folder: (folder / "card.json").write_text('{"onnx": null}'),
    "a damaged card": lambda folder: (folder / "card.json").write_text("{"),
    "another training": another_training,
    "other weights": other_weights,
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_graph_that_is_not_of_these_weights_is_not_used(tmp_path, caplog, attack):
    path = stored(tmp_path)
    assert storage.read_graph(path) is not None
    caplog.set_level("INFO")
    ATTACKS[attack](tmp_path)
    assert storage.read_graph(path) is None
    assert "model.onnx is not used, the network itself is: " in caplog.text


def test_corrupt_weights_are_reported_even_with_a_valid_graph(tmp_path):
    path = stored(tmp_path)
    content = bytearray((tmp_path / "weights.safetensors").read_bytes())
    content[-5] ^= 1
    (tmp_path / "weights.safetensors").write_bytes(content)
    with pytest.raises(ShapelineError, match="damaged"):
        storage.read_graph(path)


class Branch(nn.Module):
    def forward(self, rows):
        return rows[:, :2] if rows.sum() > 0 else rows[:, 2:4]


class OfBatches(nn.Module):
    """Gives other outputs for more rows than a trace sees."""

    def forward(self, rows):
        return rows[:, :2] * (rows.shape[0] if torch.jit.is_tracing() else 1)


def test_what_cannot_be_exported_has_none_and_loses_that_of_before(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")
    path, rows = stored(tmp_path), drawn(20, (30,), 0)
    cuts = nn.Linear(30, 2)
    cuts.rows_a_call = 8
    for module, why in (
        (Branch(), "the trace warns"),
        (OfBatches(), "the trace warns|log-probabilities differ"),
        (cuts, ""),
    ):
        (tmp_path / "model.onnx").write_bytes(b"of before")
        loaded = storage.Classifier("torch", "own", module, 2)
        monkeypatch.setattr(storage, "load", lambda path, loaded=loaded: loaded)
        caplog.clear()
        assert storage.save_graph(loaded, path, rows) is None
        assert not (tmp_path / "model.onnx").exists()
        assert any(word in caplog.text for word in why.split("|")), caplog.text
    assert storage.save_graph(storage.Classifier("tensorflow", "own", cuts), path, rows) is None
    monkeypatch.undo()
    lstm = architectures.build("bilstm", "torch", vocabulary=20, embedding=4, units=4, classes=2)
    storage.save(lstm, path)
    assert storage.save_graph(lstm, path, drawn(20, (9,), 20)) is None


def test_a_graph_that_differs_is_not_written(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")
    other, right = architectures.build("mlp", "torch", seed=5).module, torch_models.export_graph
    monkeypatch.setattr(torch_models, "export_graph", lambda module, rows: right(other, rows))
    path = stored(tmp_path)
    assert json.loads((tmp_path / "card.json").read_text()) == {"onnx": None}
    assert "no model.onnx: log-probabilities differ by" in caplog.text and storage.read_graph(path) is None


def test_a_job_uses_the_graph_if_it_needs_only_values_on_the_cpu(tmp_path, monkeypatch):
    path, instances = stored(tmp_path), str(tmp_path / "instances.parquet")
    seen = []
    monkeypatch.setattr(job_environment, "list_visible_devices", lambda: seen)

    def by_graph(form: str = "onnx", **changes) -> bool:
        import pandas as pd

        selection.write(instances, pd.DataFrame({"instance": [1]}), {"cpu": ExecutionBackend(form)}, {})
        resources = {"values_alone": 1, "gpu": 1, **changes}
        return job_environment.uses_graph(
            SimpleNamespace(resources=resources, input={"weights": path, "instances": instances})
        )

    assert by_graph() and not by_graph("channels_last") and not by_graph(values_alone=0)
    seen.append("GPU-0")
    assert not by_graph() and by_graph(gpu=0)
    (tmp_path / "model.onnx").unlink()
    seen.clear()
    assert not by_graph()


def test_gradients_crops_and_other_precisions_keep_their_framework(default):
    default["experiments"]["digits"]["precision"] = "bfloat16"
    config = validation.load(default)
    of_values = {"cancer": {"exact": True, "occlusion": True, "gradient_x_input": False}}
    for experiment, entries in of_values.items():
        for entry, expected in entries.items():
            if entry in config.experiments[experiment].methods:
                assert job_code.needs_values_only(config, experiment, entry) is expected, (experiment, entry)
    assert job_code.needs_values_only(config, "cancer", "gradient_x_input", ["log_odds"])
    assert not job_code.needs_values_only(config, "cancer", "gradient_x_input", ["sensitivity"])
    assert job_code.needs_values_only(config, "cancer", "exact", ["log_odds", "sensitivity"])
    assert not job_code.needs_values_only(config, "cancer", "exact", ["log_odds", "own"])
    assert not any(
        job_code.needs_values_only(config, "digits", entry) for entry in config.experiments["digits"].methods
    )
    assert job_code.needs_values_only(config, "reviews", "lime") and not job_code.needs_values_only(
        config, "cancer_influence", "mim"
    )


def test_the_subject_of_a_job_is_the_same_by_either(tmp_path, monkeypatch):
    from shapeline.datasets import preparation

    monkeypatch.chdir(tmp_path)
    preparation.prepare("breast_cancer", {"seed": 0}, [], "data")
    path = stored(tmp_path)
    settings = {"features": {"kind": "column"}, "seed": 0}
    one, other = (
        context.load_context(path, "data/arrays.npz", game_of(settings), "cpu", by_graph=by) for by in (True, False)
    )
    assert (one.model.runtime, other.model.runtime) == ("onnx", None)
    for name in ("framework", "architecture", "n_classes", "sizes", "vocabulary_digest", "task"):
        assert getattr(one.model, name) == getattr(other.model, name)
    (tmp_path / "model.onnx").unlink()
    assert context.load_context(path, "data/arrays.npz", game_of(settings), "cpu", by_graph=True).model.runtime is None
