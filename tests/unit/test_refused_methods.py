"""A method that does not support a model is refused before any job, or fails as rows."""

import numpy as np
import pytest
import torch
from torch import nn

from shapeline.config import validation
from shapeline.errors import MethodFailure, ShapelineError
from shapeline.games import features as feature_kinds
from shapeline.games.game import Game
from shapeline.games.references import Reference
from shapeline.models.classifier import Classifier
from tests.unit import shortcuts

X = np.random.default_rng(0).random((3, 1, 8, 8), dtype=np.float32)
CELLS = feature_kinds.build({"kind": "patch", "size": 4}, {"input_shape": (1, 8, 8), "kind": "image"})
ZERO = Reference(np.zeros((1, 1, 8, 8), np.float32))


class Rounded(nn.Module):
    """Its output has no derivative."""

    def forward(self, x):
        return torch.stack([(x.flatten(1) > 0.5).sum(1).float(), torch.full((len(x),), 30.0)], 1).detach()


MODELS = {
    "dense": nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.LayerNorm(8), nn.Linear(8, 2)),
    "rounded": Rounded(),
}


def found(model, method, on_error):
    return shortcuts.attribute(model, X, np.zeros(3, int), {"method": method}, CELLS, ZERO, on_error=on_error)


@pytest.mark.parametrize(
    ("model", "method", "said"),
    [
        ("dense", "grad_cam", "'dense' has no convolution"),
        ("dense", "deep_lift", "module '2' of 'dense' is a LayerNorm, which has no rule"),
        ("rounded", "integrated_gradients", "integrated_gradients: the model 'rounded' is not supported, "),
        ("rounded", "saliency", "; use gp_shapley or kernel_shap"),
        ("rounded", "grad_cam", "'rounded' has no convolution"),
        ("function", "integrated_gradients", "'function' is a function, which torch cannot differentiate"),
        ("keras", "deep_lift", "deep_lift: a torch model is needed, and 'keras' is a tensorflow one"),
    ],
)
def test_an_unsupported_model_is_a_row_with_the_reason(model, method, said):
    if model in MODELS:
        classifier = Classifier("torch", model, MODELS[model].eval(), 2)
    else:
        framework = {"keras": "tensorflow"}.get(model, model)
        classifier = Classifier(framework, model, lambda rows: np.full(len(rows), 0.5), 2)
        if model == "keras":  # refused before it is asked anything
            classifier.check_rows = lambda rows: None
    (explanation,) = found(classifier, method, "record")
    assert set(explanation.status) == {"unsupported model"} and len(explanation.status) == 3
    assert all(said in error for error in explanation.error)
    with pytest.raises(MethodFailure):
        found(classifier, method, "fail")


def test_what_is_no_matter_of_the_method_still_ends_the_job():
    class Broken(nn.Module):
        def forward(self, x):
            return torch.full((len(x), 2), torch.nan)

    with pytest.raises(ShapelineError, match="nan"):
        found(Classifier("torch", "broken", Broken(), 2), "saliency", "record")
    one = Classifier("torch", "dense", MODELS["dense"].eval(), 2)
    with pytest.raises(ShapelineError, match="no layer 'nine'"):
        shortcuts.attribute(
            one, X, np.zeros(3, int), {"method": "grad_cam", "layer": "nine"}, CELLS, ZERO, on_error="record"
        )
    assert np.isfinite(Game(one, ZERO, CELLS).values(X, np.ones((1, 4), bool))).all()


def table(**model):
    return {
        "run": ["one"],
        "datasets": {"loans": {"source": "table_file", "path": "loans.csv", "target": "granted"}},
        "models": {"mine": {"dataset": "loans", **model}},
        "experiments": {
            "one": {"model": "mine", "features": {"kind": "column"}, "value": "probability", "metrics": {"cost": {}}}
        },
    }


@pytest.mark.parametrize(
    ("model", "method", "said"),
    [
        ({"architecture": "mlp"}, "tree_shap", "tree_shap reads a .* file or boosted trees, which models.mine is not"),
        ({"source": "m.onnx"}, "tree_shap", "tree_shap reads a pipeline"),
        ({"source": "m.onnx"}, "integrated_gradients", "needs the derivative of a network, which an ONNX file has not"),
        ({"source": "m.onnx"}, "deep_lift", "deep_lift needs a torch model"),
        (
            {"source": "f.py:say", "framework": "function"},
            "integrated_gradients",
            "needs the derivative of a network, which a function has not",
        ),
        ({"source": "f.py:say", "framework": "function"}, "linear_shap", "linear_shap reads a pipeline"),
        ({"architecture": "mlp"}, "grad_cam", "grad_cam explains data of kind image, not of kind table"),
    ],
)
def test_known_problems_of_a_model_are_reported_before_any_job(tmp_path, monkeypatch, model, method, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loans.csv").write_text("age,income,granted\n1,2,no\n")
    (tmp_path / "m.onnx").write_bytes(b"")
    (tmp_path / "f.py").write_text("def say(rows):\n    return rows\n")
    raw = table(**model)
    raw["experiments"]["one"]["methods"] = {"kernel_shap": {"method": "kernel_shap"}}
    validation.load(raw)
    raw["experiments"]["one"]["methods"]["wrong"] = {"method": method}
    with pytest.raises(ShapelineError, match=said):
        validation.load(raw)
