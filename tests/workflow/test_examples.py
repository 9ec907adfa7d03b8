"""The examples of users' models, each from a file created here to its page."""

import shutil

import numpy as np
import pandas as pd
import pytest
import yaml

from shapeline import scores
from tests.fixtures import picture_files, text_files, vision
from tests.workflow.conftest import copy_repository


@pytest.fixture
def example(root, tmp_path):
    """A copy of the repository whose configuration is an example, by name, and the folder of its files."""

    def of(name: str):
        checkout = copy_repository(root, tmp_path / "checkout")
        checkout.configure(yaml.safe_load((root / f"examples/{name}.yaml").read_text()))
        folder = checkout.path / "examples" / name
        folder.mkdir(parents=True)
        return checkout, folder

    return of


def page_of(checkout, experiment: str, *entries: str) -> str:
    """The page, after a look at the scores: all are there."""
    for entry in entries:
        rows = scores.read(checkout.path / f"results/{experiment}/scores/{entry}")
        assert (rows["status"] == "ok").all() and scores.matrix(rows).any()
    return (checkout.path / f"results/reports/{experiment}.html").read_text()


def test_a_vision_transformer_in_a_folder(example):
    pytest.importorskip("transformers")
    checkout, folder = example("picture_folder")
    vision.folder(folder / "model")
    text_files.write_folder(folder / "images", picture_files.folders(n=15))
    raw = yaml.safe_load((checkout.path / "config.yaml").read_text())
    # Each job that asks the model imports transformers, for seconds.
    raw["experiments"]["left_out"]["metrics"] = {"cost": {}}
    for name in ("l_shapley", "occlusion"):
        del raw["experiments"]["left_out"]["methods"][name], raw["experiments"]["filled"]["methods"][name]
    checkout.configure(raw)
    checkout.snakemake("left_out", "--cores", "2")
    assert "Patches left out" in page_of(checkout, "left_out", "kernel_shap", "grad_cam")
    ends = scores.read(checkout.path / "results/left_out/scores/kernel_shap").groupby("target")
    assert ends["value_empty"].agg(np.ptp).max() < 1e-5  # of the class token alone
    assert ends["value_full"].agg(np.ptp).max() > 1e-3


def test_a_network_in_an_onnx_file(example):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper, numpy_helper
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    digits = load_digits()
    chosen = np.isin(digits.target, (3, 8))
    fitted = LogisticRegression(max_iter=1000).fit(digits.images[chosen].reshape(-1, 64) / 16, digits.target[chosen])
    both = np.hstack([np.zeros((64, 1)), fitted.coef_.T]).astype(np.float32), np.r_[0, fitted.intercept_]
    tensors = [
        numpy_helper.from_array(both[0], "w"),
        numpy_helper.from_array(both[1].astype(np.float32), "b"),
        numpy_helper.from_array(np.array([-1, 64]), "shape"),
    ]
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["sums"]),
        helper.make_node("Add", ["sums", "b"], ["y"]),
    ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 1, 8, 8])
    said = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 2])
    graph = helper.make_graph(nodes, "g", [given], [said], tensors)
    checkout, folder = example("onnx_file")
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "model.onnx"
    )
    checkout.snakemake("digits_onnx", "--cores", "2")
    assert "A network in an ONNX file" in page_of(checkout, "digits_onnx", "kernel_shap", "l_shapley", "occlusion")


def test_boosted_trees_on_a_table_with_texts(example, root):
    import skops.io
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OrdinalEncoder

    checkout, _ = example("boosted_trees")
    (checkout.path / "examples/own").mkdir()
    shutil.copy2(root / "examples/own/loans.csv", checkout.path / "examples/own")
    table = pd.read_csv(checkout.path / "examples/own/loans.csv")
    columns = ["age", "income", "debt", "job", "home", "married"]
    cut = make_column_transformer((OrdinalEncoder(), ["job", "home", "married"]), remainder="passthrough")
    trees = make_pipeline(cut, HistGradientBoostingRegressor(max_iter=30, random_state=0))
    skops.io.dump(trees.fit(table[columns], table["limit"]), checkout.path / "examples/own/trees.skops")
    checkout.snakemake("boosted", "--cores", "2")
    page = page_of(checkout, "boosted", "exact", "tree_shap", "kernel_shap")
    exact, own = (scores.read(checkout.path / f"results/boosted/scores/{name}") for name in ("exact", "tree_shap"))
    np.testing.assert_allclose(scores.matrix(own), scores.matrix(exact), rtol=1e-4, atol=0.1)
    assert "Boosted trees" in page


def test_a_method_that_does_not_support_the_model_fails_alone(example):
    checkout, folder = example("onnx_file")
    (folder / "dense.py").write_text(
        "from torch import nn\n\n\ndef build():\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.LayerNorm(8), nn.Linear(8, 2))\n"
    )
    raw = yaml.safe_load((checkout.path / "config.yaml").read_text())
    raw["models"]["network"] = {"dataset": "digits38", "source": "examples/onnx_file/dense.py:build"}
    raw["models"]["network"]["training"] = {"epochs": 3}
    names = ("kernel_shap", "occlusion", "grad_cam", "deep_lift")
    raw["experiments"]["digits_onnx"]["methods"] = {name: {"method": name} for name in names}
    raw["experiments"]["digits_onnx"]["metrics"] = {"log_odds": {}, "cost": {}}
    checkout.configure(raw)
    checkout.snakemake("digits_onnx", "--cores", "2")
    for entry, said in (("grad_cam", "has no convolution"), ("deep_lift", "is a LayerNorm, which has no rule")):
        rows = scores.read(checkout.path / f"results/digits_onnx/scores/{entry}")
        assert (rows["status"] == "unsupported model").all() and rows["error"].str.contains(said).all()
    page = page_of(checkout, "digits_onnx", "kernel_shap", "occlusion")
    assert page.count("unsupported model in 12") == 2 and "has no convolution" in page and "grad_cam: grad" not in page
