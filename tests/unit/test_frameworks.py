"""TensorFlow and torch in one process, with triton installed as in the CUDA builds of torch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures import forks

PACKAGE_ROOT = str(Path(__file__).parents[2] / "workflow")
# A triton that ends the process where the real one would: when it is imported after TensorFlow.
TRITON = """
import os, sys
if "tensorflow" in sys.modules:
    os.abort()
"""
LOADED = "import sys; assert sys.modules['triton'] and 'tensorflow' in sys.modules"
ADAM = "import torch; torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])"
EXPLAIN_TORCH = """
import numpy as np, shapeline, torch
network = torch.nn.Linear(3, 2)
found = shapeline.explain(network, np.eye(3, dtype="float32"), reference="zero", method="shapley")
assert np.isfinite(found.scores).all()
"""
EXPLAIN_KERAS = """
import numpy as np, shapeline
network = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2, activation="softmax")])
found = shapeline.explain(network, np.eye(3, dtype="float32"), reference="zero", method="shapley")
assert np.isfinite(found.scores).all()
"""
TRAIN = """
import sys, numpy as np; from types import SimpleNamespace; from shapeline import models
from shapeline.models import training
assert not {{"torch", "tensorflow", "keras"}} & set(sys.modules)
model = models.build("mlp", {framework!r}, inputs=2, hidden=[2])
rows = np.ones((3, 2), np.float32)
data = SimpleNamespace(inputs=rows, labels=np.array([0, 1, 0]), split=np.arange(3))
training.fit(model, data, {{"epochs": 1}})
assert {framework!r} in sys.modules and {other!r} not in sys.modules
"""
# Torch takes triton for missing; whether it is imported after all, its optimisers tell, in a second of imports.
IS_MISSING = "import sys; assert sys.modules['triton'] is None and 'tensorflow' in sys.modules"


def options(folder: Path) -> dict:
    """What a process in a folder with the stub of triton is given."""
    paths = os.pathsep.join([str(folder), PACKAGE_ROOT])
    return {"env": os.environ | {"PYTHONPATH": paths, "TF_CPP_MIN_LOG_LEVEL": "3"}, "cwd": folder}


def finish(folder: Path, program: str) -> subprocess.CompletedProcess:
    """Run a program of Python with the stub of triton in a folder; returns the finished process."""
    words = [sys.executable, "-c", program]
    return subprocess.run(words, capture_output=True, text=True, check=False, **options(folder))


def write_stub(folder: Path, more: str = "") -> Path:
    (folder / "triton").mkdir()
    (folder / "triton/__init__.py").write_text(TRITON + more)
    return folder


# Programs of a user who has imported TensorFlow alone.
AFTER_TENSORFLOW = {
    "triton": "import triton",
    "TensorFlow": f"{EXPLAIN_TORCH}\n{ADAM}",
    "TensorFlow, torch": f"import torch\n{EXPLAIN_TORCH}\n{IS_MISSING}",
    "explained Keras": f"import keras\n{EXPLAIN_KERAS}\n{EXPLAIN_TORCH}\n{IS_MISSING}",
}


@pytest.fixture(scope="module")
def after_tensorflow(tmp_path_factory) -> tuple[dict[str, int], str]:
    """The exit status of each program, all in forks of one process that has imported TensorFlow; its errors."""
    folder = write_stub(tmp_path_factory.mktemp("triton"))
    return forks.run_in_forks("import tensorflow, pandas, scipy.stats, sklearn", AFTER_TENSORFLOW, **options(folder))


def test_the_stub_ends_a_process_that_imports_it_after_tensorflow(after_tensorflow):
    assert after_tensorflow[0]["triton"] < 0  # and not one that imports it before: the next test's do


def test_a_job_of_torch_imports_one_framework(tmp_path):
    done = finish(tmp_path, TRAIN.format(framework="torch", other="tensorflow"))
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_job_of_tensorflow_imports_one_framework_and_triton_before_it(tmp_path):
    done = finish(write_stub(tmp_path), TRAIN.format(framework="tensorflow", other="torch") + LOADED)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("name", [*AFTER_TENSORFLOW][1:])
def test_torch_works_without_triton_where_the_user_has_loaded_tensorflow(name, after_tensorflow):
    codes, said = after_tensorflow
    assert codes[name] == 0, said[-2000:]


# Programs in which the order of the imports is all that counts: TensorFlow, seconds of imports, is an empty module.
ORDERED = {
    "torch, then the user's TensorFlow": f"import torch, shapeline\n{EXPLAIN_TORCH}\nimport tensorflow\n{LOADED}",
    "the package, then Keras": f"import shapeline, tensorflow\n{EXPLAIN_TORCH}\n{IS_MISSING}",
}
FAILS = "\nraise ImportError('no libcuda')"


@pytest.mark.parametrize("name", ORDERED)
def test_torch_works_whenever_tensorflow_is_loaded(name, tmp_path):
    (tmp_path / "tensorflow.py").write_text("")
    done = finish(write_stub(tmp_path), ORDERED[name])
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_triton_that_cannot_be_imported_is_missing(tmp_path):
    (tmp_path / "tensorflow.py").write_text("")
    avoid = "from shapeline.models.classifier import avoid_triton_crash; avoid_triton_crash(); import tensorflow"
    done = finish(write_stub(tmp_path, FAILS), f"{avoid}\n{IS_MISSING}\n{ADAM}")
    assert done.returncode == 0, done.stderr[-2000:]


def test_nothing_is_imported_where_triton_is_missing():
    code = (
        "import sys; from shapeline.models.classifier import avoid_triton_crash; before = set(sys.modules); "
        "avoid_triton_crash(); assert set(sys.modules) == before, set(sys.modules) - before"
    )
    blocked = "import sys; sys.path_hooks; import importlib.util as u; u.find_spec = lambda name: None; "
    environment = os.environ | {"PYTHONPATH": PACKAGE_ROOT}
    assert subprocess.run([sys.executable, "-c", blocked + code], env=environment, check=False).returncode == 0


# In place of Keras and TensorFlow, ten seconds of imports before the one line that counts.
KERAS = """
import os
from types import SimpleNamespace
layers, config = None, SimpleNamespace(backend=lambda: os.environ["KERAS_BACKEND"])
"""


def test_keras_on_another_backend_is_one_line(tmp_path):
    (tmp_path / "keras.py").write_text(KERAS)
    (tmp_path / "tensorflow.py").write_text("from unittest import mock\nconfig = mock.MagicMock()")
    program = "import os; os.environ['KERAS_BACKEND'] = 'torch'; import shapeline.models.keras_models"
    error = finish(tmp_path, program).stderr.strip().splitlines()[-1]
    assert "Keras: it runs on torch" in error and "KERAS_BACKEND=tensorflow" in error
