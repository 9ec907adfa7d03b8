"""The graph of a Keras model gives the model's outputs, and is used where it is faster than TensorFlow."""

import importlib.util
import json
from types import SimpleNamespace

import numpy as np
import pytest

from shapeline.attribution import context, selection
from shapeline.games import calibration
from shapeline.games.execution import ExecutionBackend
from shapeline.games.features import Features
from shapeline.games.references import Reference
from shapeline.models import architectures, storage
from tests.unit import shortcuts

pytestmark = pytest.mark.usefixtures("whole_calibration")
exported = pytest.mark.skipif(importlib.util.find_spec("tf2onnx") is None, reason="tf2onnx is not installed")
RANDOM = np.random.default_rng(0)
NETWORKS = {
    "mlp": ({"classes": 3}, (30,), 0),
    "regression": ({"classes": 1}, (30,), 0),
    "digits_cnn": ({"classes": 2}, (1, 8, 8), 0),
    "bilstm": ({"vocabulary": 50, "length": 12, "embedding": 4, "units": 4, "classes": 2}, (12,), 50),
}


def drawn(count: int, shape: tuple[int, ...], ids: int) -> np.ndarray:
    if ids:
        return RANDOM.integers(0, ids, (count, *shape)).astype(np.int32)
    return RANDOM.standard_normal((count, *shape)).astype(np.float32)


def stored(folder, name: str) -> str:
    sizes, shape, ids = NETWORKS[name]
    model = architectures.build("mlp" if name == "regression" else name, "tensorflow", seed=1, **sizes)
    model.task, model.n_classes = "regression" if name == "regression" else "classification", sizes["classes"]
    path = folder / "weights.safetensors"
    storage.save(model, path)
    (folder / "card.json").write_text(json.dumps({"onnx": storage.save_graph(model, path, drawn(40, shape, ids))}))
    return str(path)


@exported
@pytest.mark.parametrize("name", NETWORKS)
def test_values_are_those_of_the_network(tmp_path, capfd, name):
    _, shape, ids = NETWORKS[name]
    path = stored(tmp_path, name)
    assert capfd.readouterr().out == ""
    network, graph = storage.load(path), storage.read_graph(path)
    assert (graph.runtime, graph.framework) == ("onnx", "tensorflow")
    size = int(np.prod(shape))
    features = Features("cell", (size,), np.arange(size, dtype=np.int32).reshape(shape))
    value = "prediction" if name == "regression" else "log_odds"
    asked = drawn(5, shape, ids), Reference(drawn(2, shape, ids)), RANDOM.random((60, size)) < 0.5, features, value
    expected, actual = (shortcuts.values(model, *asked) for model in (network, graph))
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@exported
def test_the_graph_is_a_backend_if_it_is_faster_and_gives_the_same_values(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")
    path, other = stored(tmp_path, "digits_cnn"), tmp_path / "other"
    other.mkdir()
    network, graph, wrong = (
        storage.load(path),
        storage.read_graph(path),
        storage.read_graph(stored(other, "digits_cnn")),
    )
    given = drawn(20, (1, 8, 8), 0), Reference(drawn(1, (1, 8, 8), 0))
    slow, fast = ExecutionBackend("plain", 16, 1.0), ExecutionBackend("compiled", 16, 1e12)
    form = calibration.prefer_graph(slow, network, graph, *given)
    assert form.name == "onnx" and form.batch >= 16 and form.rate > 1 and 0 < form.difference < 1e-5
    assert calibration.prefer_graph(fast, network, graph, *given) == fast
    with monkeypatch.context() as patch:
        biased = wrong.module
        patch.setattr(wrong, "module", lambda rows: biased(rows) + np.array([0.001, 0], np.float32))
        assert calibration.prefer_graph(slow, network, wrong, *given) == slow
    assert "backend onnx left out: log-probabilities differ" in caplog.text

    # A job that has TensorFlow runs the network itself, whatever is written.
    instances = str(tmp_path / "instances.parquet")
    selection.write(instances, selection.pd.DataFrame({"instance": [1]}), {"cpu": form}, {})
    for model, name in ((network, "plain"), (graph, "onnx")):
        subject = SimpleNamespace(model=model)
        assert context.load_backend(instances, subject, "cpu") == ExecutionBackend(name, form.batch)


def test_without_the_exporter_a_line_reports_it_and_the_network_is_run(tmp_path, monkeypatch, caplog):
    from shapeline.models import keras_models

    caplog.set_level("INFO")
    monkeypatch.setattr(keras_models, "EXPORT_PACKAGES", ("no_such_exporter",))
    path = stored(tmp_path, "mlp")
    assert storage.read_graph(path) is None
    assert "no model.onnx: no_such_exporter is not installed" in caplog.text
