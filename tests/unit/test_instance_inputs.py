"""Tokens, references of each instance and features of each instance, through the engine and the methods."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from shapeline.attribution.context import ExplanationContext
from shapeline.datasets.loading import Dataset
from shapeline.games import calibration, features, references
from shapeline.games.execution import ExecutionBackend
from shapeline.models import adapters, architectures
from tests.unit import shortcuts

TEXT = {"kind": "text", "input_shape": [9], "space_id": 2}
FORMS = ["plain", "onnx", "channels_last"]


class Bag(nn.Module):
    """Logits from the mean embedding and its largest component; padding embeds to zero."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(30, 8, padding_idx=0)
        self.out = nn.Linear(16, 3)

    def forward(self, tokens):
        vectors = self.embedding(tokens)
        return self.out(torch.cat([vectors.mean(1), vectors.amax(1)], 1))


def dataset(inputs, **card):
    n = len(inputs)
    return Dataset(inputs, np.zeros(n, np.int64), np.zeros(n, np.uint8), np.arange(n), {**card})


def by_hand(model, x, filler, masks, built, target):
    """Return log P(target) of one instance, one coalition at a time, from an input composed with numpy."""
    rows = np.where(built.expand(masks), x, filler)
    with torch.no_grad():
        return torch.log_softmax(model.module(torch.from_numpy(rows)).double(), 1)[:, target].numpy()


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("batch", [1, 7, 64])
@pytest.mark.parametrize("kind", ["word", "character_run"])
def test_tokens(dtype, batch, kind):
    rng = np.random.default_rng(0)
    inputs = rng.integers(1, 30, (4, 9)).astype(dtype)
    inputs[:, 4] = 2  # a space
    inputs[:2, 7:] = 0
    model = adapters.wrap(Bag())
    reference = references.build({"kind": "pad", "id": 5}, dataset(inputs, **TEXT), 0)
    for built, positions in features.group_inputs(kind, TEXT, inputs):
        masks = rng.random((20, built.d)) < 0.5
        targets = np.array([1, 2, 0, 1])[positions]
        form = ExecutionBackend("onnx", batch)
        values = shortcuts.values(model, inputs[positions], reference, masks, built, targets=targets, backend=form)
        for row, position, target in zip(values, positions, targets, strict=True):
            expected = by_hand(model, inputs[position], 5, masks, built, target)
            np.testing.assert_allclose(row, expected, atol=1e-5)


def test_calibration_on_tokens():
    inputs = np.random.default_rng(0).integers(1, 30, (5, 9)).astype(np.int32)
    reference = references.build("pad", dataset(inputs, **TEXT), 0)
    form = calibration.calibrate(adapters.wrap(Bag()), inputs, reference)
    assert form.rate > 0 and form.difference < 1e-5


def blurred():
    """A model, images, and the blur of each."""
    inputs = np.random.default_rng(1).random((5, 1, 8, 8), dtype=np.float32)
    reference = references.build({"kind": "blur", "sigma": 1.0}, dataset(inputs, kind="image", scale=255), 0)
    return architectures.build("digits_cnn", side=8), inputs, reference


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("batch", [1, 5, 64])
@pytest.mark.parametrize("own_masks", [False, True])
def test_a_blur_is_each_instances_own(name, batch, own_masks):
    model, inputs, reference = blurred()
    built = features.build({"kind": "patch", "size": 2}, {"input_shape": [1, 8, 8]})
    masks = np.random.default_rng(2).random((5, 12, 16) if own_masks else (12, 16)) < 0.5
    targets = np.array([0, 1, 1, 0, 1])
    values = shortcuts.values(
        model, inputs, reference, masks, built, targets=targets, backend=ExecutionBackend(name, batch)
    )
    for i in range(5):
        filler = reference.of(inputs[i : i + 1])[0, 0]
        expected = by_hand(model, inputs[i], filler, masks[i] if own_masks else masks, built, targets[i])
        np.testing.assert_allclose(values[i], expected, atol=2e-5)


def test_calibration_with_a_blur():
    assert calibration.calibrate(*blurred()).rate > 0


def test_rows_of_each_label_over_superpixels_and_words():
    rng = np.random.default_rng(2)
    images = np.repeat(np.repeat(rng.random((6, 1, 4, 4)), 4, axis=2), 4, axis=3).astype(np.float32)
    words = rng.integers(1, 30, (6, 9)).astype(np.int32)
    words[[0, 3], 5:] = 0
    words[4] = 0
    for inputs, kind, card, model in (
        (
            images,
            {"kind": "superpixel", "segments": 9},
            {"kind": "image", "input_shape": [1, 16, 16], "scale": 255},
            None,
        ),
        (words, {"kind": "word"}, TEXT, adapters.wrap(Bag())),
    ):
        model = model or architectures.build("digits_cnn", side=16)
        data = dataset(inputs, **card)
        buckets = features.group_inputs(kind, card, inputs)
        subject = ExplanationContext(model, data, None, references.build("zero", data, 0), kind)
        share = pd.DataFrame({"instance": np.arange(6) + 10, "row": np.arange(6), "prediction": 1})
        for method in ({"method": "kernel_shap"}, {"method": "l_shapley"}, {"method": "lime", "n_features": 2}):
            budget = {"budget": 6.0} if method["method"] != "l_shapley" else {}
            settings, steps = {"method": method, "seed": 0, **budget}, []
            rows = shortcuts.explain_rows(
                subject, share, settings, "a", ExecutionBackend(), progress=lambda *s, to=steps: to.append(s)
            )
            rows = rows.set_index("instance")
            assert steps[-1][0] == 6 and steps == sorted(steps)
            for built, positions in buckets:
                for position in positions:
                    row = rows.loc[position + 10]
                    if built.d == 0:
                        assert row["status"] == "no features" and row["scores"] is None
                        continue
                    assert row["status"] == "ok" and len(row["scores"]) == built.d
                    if method["method"] == "kernel_shap":
                        assert abs(row["scores"].sum() - (row["value_full"] - row["value_empty"])) < 1e-5
                    if "n_features" in method:
                        assert 1 <= np.count_nonzero(row["scores"]) <= 2
