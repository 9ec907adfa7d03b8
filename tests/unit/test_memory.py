"""When memory runs out: equal numbers with fewer rows per pass, failures of single rows, and one line otherwise."""

import subprocess
import sys
import tracemalloc
import weakref
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch
from torch import nn

import shapeline
from shapeline import memory
from shapeline.attribution import sampling
from shapeline.designs import sampled, uncertainty
from shapeline.errors import MethodFailure, ShapelineError
from shapeline.games import calibration
from shapeline.games import features as feature_kinds
from shapeline.games.execution import ExecutionBackend
from shapeline.games.game import Game
from shapeline.games.references import Reference
from shapeline.gradients import tf_gradients, torch_gradients
from shapeline.methods.settings import MethodSettings
from shapeline.models import adapters, training
from shapeline.models.classifier import Classifier
from tests.unit import shortcuts

RNG = np.random.default_rng(0)
IMAGES, TARGETS = RNG.random((7, 1, 4, 4), dtype=np.float32), np.array([0, 1, 1, 0, 1, 0, 0])
PATCHES = feature_kinds.build({"kind": "patch", "size": 2}, {"input_shape": [1, 4, 4]})
REFERENCE = Reference(np.zeros((1, 1, 4, 4), np.float32))
PATHS = {"instances": np.arange(7), "seed": 0, "samples": 5}
ASKED = {
    "saliency": {},
    "gradient_x_input": {},
    "integrated_gradients": {"steps": 6},
    "expected_gradients": PATHS,
    "smooth_grad": PATHS,
    "grad_cam": {},
    "deep_lift": {},
}
MODULES = {"torch": {"deep_lift": torch_gradients}, "tensorflow": {}}
OTHERS = {"torch": torch_gradients, "tensorflow": tf_gradients}
CASES = [(name, method) for name in MODULES for method in ASKED if name == "torch" or method != "deep_lift"]


class Torch(nn.Module):
    """A network with memory for `most` rows; with gradients for none whose first pixel is above 4."""

    def __init__(self, most):
        super().__init__()
        self.most, self.convolution, self.dense = most, nn.Conv2d(1, 2, 3), nn.Linear(8, 2)
        self.activation = nn.ReLU()

    def forward(self, images):
        if len(images) > self.most or (torch.is_grad_enabled() and (images[:, 0, 0, 0] > 4).any()):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return self.dense(self.activation(self.convolution(images)).flatten(1))


class Keras(keras.Model):
    """The same in Keras; on a traced function the number of rows is known when it runs."""

    def __init__(self, most):
        super().__init__()
        self.most, self.convolution, self.dense = most, keras.layers.Conv2D(2, 3), keras.layers.Dense(2)

    def call(self, images):
        def allocate(rows):
            if rows > self.most:
                raise MemoryError("OOM when allocating tensor")
            return rows

        with tf.control_dependencies([tf.numpy_function(allocate, [tf.shape(images)[0]], tf.int32)]):
            maps = self.convolution(tf.transpose(images, [0, 2, 3, 1]))
        return self.dense(tf.reshape(tf.nn.relu(maps), [-1, 8]))


def build(framework: str, most: int = 1000) -> Classifier:
    if framework == "torch":
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return Classifier("torch", "net", Torch(most).eval(), 2)
    keras.utils.set_random_seed(0)
    module = Keras(1000)
    module(IMAGES[:1])
    module.most = most
    return Classifier("tensorflow", "net", module, 2)


def explain(framework: str, method: str, model: Classifier):
    function = getattr(MODULES[framework].get(method, OTHERS[framework]), method)
    return function(Game(model, REFERENCE, PATCHES), IMAGES, TARGETS, **ASKED[method])


@pytest.mark.parametrize(("framework", "method"), CASES)
def test_gradients_are_the_same_with_as_many_rows_as_fit_into_memory(framework, method):
    expected, evaluations, *_ = explain(framework, method, build(framework))
    tight = build(framework, most=3)
    scores, spent, *_ = explain(framework, method, tight)
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    np.testing.assert_array_equal(spent, evaluations)
    assert tight.most_rows in (1, 2)
    with pytest.raises(MethodFailure, match="model 'net': runs out of memory on a single row; use a smaller") as caught:
        explain(framework, method, build(framework, most=0))
    assert caught.value.status == "out of memory"


def test_a_gradient_that_does_not_fit_is_a_row_and_affects_its_instance_only():
    inputs = IMAGES.copy()
    inputs[2, 0, 0, 0] = 9
    asked = inputs, TARGETS, {"method": "integrated_gradients", "steps": 6}, PATCHES, REFERENCE
    (found,) = shortcuts.attribute(build("torch"), *asked)
    assert found.status == ["ok", "ok", "out of memory", "ok", "ok", "ok", "ok"]
    assert found.error[2].startswith("model 'net': runs out of memory on a single row")
    np.testing.assert_allclose(np.delete(found.scores, 2, 0), np.delete(_whole(), 2, 0), atol=1e-6)
    with pytest.raises(MethodFailure):
        shortcuts.attribute(build("torch"), *asked, on_error="fail")


def _whole() -> np.ndarray:
    return explain("torch", "integrated_gradients", build("torch"))[0].reshape(-1, 2, 2)


def test_an_error_that_is_none_of_memory_passes_at_once():
    model = build("torch")
    model.module.convolution = nn.Conv2d(3, 2, 3)
    with pytest.raises(RuntimeError, match="to have 3 channels"):
        explain("torch", "saliency", model)
    assert model.most_rows is None


@pytest.mark.parametrize("framework", ["torch", "tensorflow", "function"])
def test_log_probabilities_use_as_many_rows_as_fit_into_memory(framework, caplog):
    def small(most: int) -> Classifier:
        if framework != "function":
            return build(framework, most)

        def probabilities(rows):
            if len(rows) > most:
                raise MemoryError
            return 1 / (1 + rows.reshape(len(rows), -1).sum(1))

        return adapters.wrap(probabilities, n_classes=2)

    tight = small(3)
    np.testing.assert_allclose(tight.log_probs(IMAGES), small(1000).log_probs(IMAGES), atol=1e-6)
    assert tight.most_rows == 2 and "out of memory: going on with 2 rows a pass" in caplog.text
    with pytest.raises(MethodFailure, match="runs out of memory on a single row"):
        small(0).log_probs(IMAGES)


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
@pytest.mark.parametrize("most", [1, 5])
def test_calibration_and_values_use_as_many_rows_as_fit_into_memory(framework, most):
    """Without targets, each input's is its most probable class, of all inputs in passes that become smaller."""
    tight, masks = build(framework, most), np.arange(16)[:, None] >> np.arange(4) & 1 > 0
    arguments = np.concatenate([IMAGES, IMAGES]), REFERENCE, masks, PATCHES
    expected = shortcuts.values(build(framework), *arguments)
    backends = ExecutionBackend("plain", 6), calibration.calibrate(build(framework, most), IMAGES, REFERENCE)
    for backend in backends:
        np.testing.assert_allclose(shortcuts.values(tight, *arguments, backend=backend), expected, atol=1e-6)
        tight = build(framework, most)


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_training_halves_what_it_measures_and_names_the_key_of_a_batch_that_does_not_fit(framework):
    dataset = SimpleNamespace(
        inputs=np.tile(IMAGES, (3, 1, 1, 1)), labels=np.tile(TARGETS, 3), split=np.repeat([0, 1, 2], 7)
    )
    given, options = {"epochs": 2, "batch": 3}, {"initialise": False, "key": "models.cnn.training"}
    enough = 4  # of seven rows, for the row left over joins the last batch; seven are measured
    cards = [training.fit(build(framework, most), dataset, given, **options) for most in (enough, 1000)]
    assert [epoch["loss"] for epoch in cards[0]["history"]] == [epoch["loss"] for epoch in cards[1]["history"]]
    with pytest.raises(ShapelineError) as caught:
        training.fit(build(framework, 2), dataset, given, **options)
    assert str(caught.value) == (
        "training: memory does not hold a batch of 3 rows of 'net'; lower models.cnn.training.batch, or use a device "
        "with more memory"
    )


@pytest.mark.parametrize(
    ("error", "ran_out"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."), True),
        (tf.errors.ResourceExhaustedError(None, None, "OOM"), True),
        (RuntimeError("broken"), False),
        (ValueError("out of memory"), False),
        (MethodFailure("out of memory", "runs out of memory"), False),
    ],
)
def test_which_errors_are_of_memory(error, ran_out):
    assert memory.is_out_of_memory(error) is ran_out


JOB = """
import sys
from types import SimpleNamespace
from shapeline.workflow import job_environment
class OutOfMemoryError(RuntimeError): pass  # as torch's
class ResourceExhaustedError(Exception): pass  # as TensorFlow's
resources = SimpleNamespace(get=lambda name, default=None: default)
told = dict(log=[sys.argv[1]], rule="attribute", wildcards=["tiny"], threads=1, resources=resources)
job_environment.start(SimpleNamespace(**told, input=dict(), output=[]))
raise {error}
"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("OutOfMemoryError('CUDA out of memory. Tried 2 GiB.\\nand more')", "CUDA out of memory. Tried 2 GiB."),
        ("ResourceExhaustedError('Graph execution error:\\n\\nOOM when allocating')", "OOM when allocating"),
        ("MemoryError()", "MemoryError"),
    ],
)
def test_a_job_that_runs_out_of_memory_ends_with_one_line(tmp_path, error, said):
    log = tmp_path / "job.log"
    done = subprocess.run([sys.executable, "-c", JOB.format(error=error), log], capture_output=True, text=True)
    assert done.returncode == 1
    remedy = "run fewer jobs at a time, or use a device with more memory"
    assert done.stderr == f"[attribute tiny] error: memory ran out ({said}); {remedy}\n"
    assert "Traceback" in log.read_text()


def test_a_design_is_freed_before_the_next_is_built(monkeypatch):
    """For designs at the limit of memory: with 5,000 features each needs a gigabyte."""
    made, alive, build = [], [], MethodSettings.build

    def counted(*given):
        alive.append(sum(one() is not None for one in made))
        design = build(*given)
        made.append(weakref.ref(design.readout))
        return design

    monkeypatch.setattr(sampling, "MAX_READOUT_BYTES", 1)
    monkeypatch.setattr(MethodSettings, "build", counted)
    inputs = np.random.default_rng(0).normal(size=(5, 9)).astype(np.float32)
    shapeline.explain(lambda rows: 1 / (1 + np.exp(-rows[:, 0])), inputs, "kernel_shap", features="column", seed=8)
    assert len(alive) > 3 and not any(alive), alive


def test_the_errors_of_a_large_design_take_little_beside_it(monkeypatch):
    d = 300
    design = sampled.kernel_shap(d, 4 * d)
    values = np.random.default_rng(0).normal(size=(1, design.evaluations))
    whole = uncertainty.kernel_shap_uncertainty(design, values)
    monkeypatch.setattr(uncertainty, "MAX_CELLS", 1 << 12)
    tracemalloc.start()
    some = uncertainty.kernel_shap_uncertainty(design, values)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.2 * design.readout.nbytes
    np.testing.assert_allclose(some.standard_error, whole.standard_error, rtol=1e-9)
