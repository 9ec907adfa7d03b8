"""A small vision transformer of transformers, trained on MNIST and explained by patches; takes minutes."""

import json

import pandas as pd
import pytest

from shapeline import scores
from shapeline.datasets import mnist
from tests.conftest import ROOT
from tests.workflow.conftest import copy_repository

STEPS = 1800  # of 64 images: two minutes on one core


def train(folder, files) -> None:
    """A ViT of 49 patches, saved as people save it, fitted on the official training part."""
    import torch
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    torch.manual_seed(0)
    data = mnist.read({path.name: path for path in files.iterdir() if path.name.endswith(".gz")})
    images, labels = (torch.tensor(data[name][data["split"] == 0]) for name in ("inputs", "labels"))
    sizes = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 96}
    names = {number: str(number) for number in range(10)}
    config = ViTConfig(image_size=28, patch_size=4, num_channels=1, id2label=names, **sizes)
    model = ViTForImageClassification(config).train()
    best = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=0.05)
    paced = torch.optim.lr_scheduler.OneCycleLR(best, 2e-3, total_steps=STEPS)
    for _ in range(STEPS):
        rows = torch.randint(0, len(images), (64,))
        scaled = (images[rows].float() / 255 - 0.5) / 0.5
        loss = torch.nn.functional.cross_entropy(model(pixel_values=scaled).logits, labels[rows].long())
        best.zero_grad()
        loss.backward()
        best.step()
        paced.step()
    model.save_pretrained(folder)
    ViTImageProcessor(size={"height": 28, "width": 28}, image_mean=[0.5], image_std=[0.5]).save_pretrained(folder)


@pytest.mark.real
def test_patches_omitted_from_a_vision_transformer_on_mnist(tmp_path, real_data):
    pytest.importorskip("transformers")
    files = real_data("mnist", "train-images-idx3-ubyte.gz").parent
    checkout = copy_repository(ROOT, tmp_path / "checkout")
    train(tmp_path / "vit", files)
    methods = {name: {"method": name} for name in ("kernel_shap", "occlusion", "grad_cam", "random")}
    experiment = {
        "model": "vit",
        "features": {"kind": "patch", "size": 4},
        "reference": "delete",
        "instances": {"count": 50},
        "methods": methods,
        "metrics": {"log_odds": {}, "cost": {}},
    }
    checkout.configure(
        {
            "run": ["patches"],
            "datasets": {"digits": {"source": "mnist", "path": str(files)}},
            "models": {"vit": {"dataset": "digits", "source": str(tmp_path / "vit")}},
            "experiments": {"patches": experiment},
        }
    )
    checkout.snakemake("patches", "--cores", "2", timeout=1800)
    assert json.loads((checkout.path / "results/models/vit/card.json").read_text())["test_accuracy"] >= 0.9
    for name in methods:
        rows = scores.read(checkout.path / f"results/patches/scores/{name}")
        assert len(rows) == 50 and (rows["status"] == "ok").all()
    table = pd.read_parquet(checkout.path / "results/patches/metrics/compared.parquet")
    areas = table[table["statistic"] == "deletion_auc"].set_index("method")
    for better in ("kernel_shap", "occlusion"):  # grad_cam, on some of such models, cannot be told from chance
        assert areas["high"][better] < areas["low"]["random"]
