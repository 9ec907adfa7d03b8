"""TensorFlow and torch in one process, where triton is installed as it is with the CUDA builds of torch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
BUILD_KERAS = "from shapeline import models; models.build('mlp', framework='tensorflow', inputs=3, classes=2)"


@pytest.fixture
def run(tmp_path):
    """Run a program of Python with the stub of triton; returns the finished process."""
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton/__init__.py").write_text(TRITON)

    def finish(*parts: str, **environment: str) -> subprocess.CompletedProcess:
        paths = os.pathsep.join([str(tmp_path), PACKAGE_ROOT])
        variables = os.environ | {"PYTHONPATH": paths, "TF_CPP_MIN_LOG_LEVEL": "3"} | environment
        words = [sys.executable, "-c", "\n".join(parts)]
        return subprocess.run(words, env=variables, cwd=tmp_path, capture_output=True, text=True, check=False)

    return finish


def test_the_stub_ends_a_process_that_imports_it_after_tensorflow(run):
    assert run("import tensorflow, triton").returncode < 0 and run("import triton, tensorflow").returncode == 0


@pytest.mark.parametrize(
    "program",
    [(BUILD_KERAS,), ("import torch, shapeline", EXPLAIN_TORCH, "import tensorflow")],
    ids=["a Keras model of the package", "torch, then the user's TensorFlow"],
)
def test_triton_is_loaded_before_tensorflow(run, program):
    done = run(*program, LOADED)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(
    "program",
    [
        ("import tensorflow",),
        ("import tensorflow, torch",),
        ("import shapeline, keras",),
        ("import keras", EXPLAIN_KERAS),
    ],
    ids=["TensorFlow", "TensorFlow, torch", "shapeline, Keras", "explained Keras"],
)
def test_torch_works_without_triton_where_the_user_has_loaded_tensorflow(run, program):
    done = run(*program, EXPLAIN_TORCH, ADAM)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_triton_that_cannot_be_imported_is_missing(run, tmp_path):
    (tmp_path / "triton/__init__.py").write_text(f"{TRITON}\nraise ImportError('no libcuda')")
    done = run(BUILD_KERAS, ADAM)
    assert done.returncode == 0, done.stderr[-2000:]


def test_nothing_is_imported_where_triton_is_missing():
    code = (
        "import sys; from shapeline.models.classifier import avoid_triton_crash; before = set(sys.modules); "
        "avoid_triton_crash(); assert set(sys.modules) == before, set(sys.modules) - before"
    )
    blocked = "import sys; sys.path_hooks; import importlib.util as u; u.find_spec = lambda name: None; "
    environment = os.environ | {"PYTHONPATH": PACKAGE_ROOT}
    assert subprocess.run([sys.executable, "-c", blocked + code], env=environment, check=False).returncode == 0
