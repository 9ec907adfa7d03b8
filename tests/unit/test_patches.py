"""Transformers on patches: Grad-CAM on the grid of their tokens, and patches omitted from the sequence."""

import numpy as np
import pytest
import torch
from torch import nn

import shapeline
from shapeline.errors import MethodFailure, ShapelineError
from shapeline.games import calibration, references
from shapeline.games import features as feature_kinds
from shapeline.games.execution import ExecutionBackend
from shapeline.games.game import Game
from shapeline.games.references import Reference
from shapeline.gradients.methods import average_map, upsample
from shapeline.gradients.torch_gradients import grad_cam
from shapeline.models.classifier import Classifier
from shapeline.models.transformer_models import ImageNetwork
from tests.fixtures import vision

CARD = {"input_shape": (3, 16, 16), "kind": "image"}
PATCHES = feature_kinds.build({"kind": "patch", "size": 4}, CARD)
GONE = Reference(np.full((1, 3, 16, 16), np.nan, np.float32))
IMAGES = np.random.default_rng(1).random((3, 3, 16, 16), dtype=np.float32)


class OnePatch(nn.Module):
    """A class token and those of four patches of 2 x 2; the first class's logit is w · LayerNorm(token of patch 2)."""

    def __init__(self, grid: int = 2):
        super().__init__()
        self.cut = nn.Conv2d(1, 3, 2, 2)
        self.first, self.last = nn.LayerNorm(3), nn.LayerNorm(3)
        self.token, self.grid = nn.Parameter(torch.tensor([[[1.0, 2.0, 4.0]]])), grid
        self.w = torch.tensor([1.0, -2.0, 0.5])

    def forward(self, images):
        tokens = self.cut(images).flatten(2).transpose(1, 2)
        if self.grid == 1:  # as where patches are joined from stage to stage
            tokens = tokens.view(len(tokens), 1, 4, 3).mean(2).expand(-1, 2, -1)
        tokens = self.first(torch.cat([self.token.expand(len(tokens), -1, -1), tokens], 1))
        logit = tokens[:, min(3, tokens.shape[1] - 1)] @ self.w
        unused = self.last(tokens)[:, 0].sum(1)  # reads the class's own token, which no patch has spoken to
        return torch.stack([logit, 0 * unused], dim=1)


def drawn(module):
    torch.manual_seed(3)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module.eval()


def test_grad_cam_of_tokens_by_hand():
    net = drawn(OnePatch())
    x = np.random.default_rng(0).random((2, 1, 4, 4), dtype=np.float32)
    cells = feature_kinds.build({"kind": "patch", "size": 2}, {"input_shape": (1, 4, 4), "kind": "image"})
    asked = Game(Classifier("torch", "net", net, 2), None, cells)
    with torch.no_grad():
        tokens = net.first(net.cut(torch.from_numpy(x)).flatten(2).transpose(1, 2)).double()
        p = torch.from_numpy(asked.model.log_probs(x)).exp()
    # ∂ log p / ∂ token 2 is (1 - p) w, of the others 0; the mean over the four patches is a quarter of it.
    maps = (1 - p[:, :1]) / 4 * (tokens @ net.w.double())
    found, evaluations = grad_cam(asked, x, np.zeros(2, int), signed=True)
    expected = average_map(upsample(maps.view(2, 2, 2).numpy(), (4, 4)), cells)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert evaluations == 1 and (expected < 0).any()
    positive = average_map(upsample(maps.view(2, 2, 2).numpy().clip(0), (4, 4)), cells)
    np.testing.assert_allclose(grad_cam(asked, x, np.zeros(2, int))[0], positive, rtol=1e-5)
    np.testing.assert_array_equal(grad_cam(asked, x, np.zeros(2, int), layer="first", signed=True)[0], found)
    assert np.abs(grad_cam(asked, x, np.zeros(2, int), layer="cut", signed=True)[0] - found).max() > 1e-3


def test_a_transformer_whose_last_tokens_are_on_no_grid_is_refused():
    asked = Game(
        Classifier("torch", "net", drawn(OnePatch(grid=1)), 2),
        None,
        feature_kinds.build({"kind": "patch", "size": 2}, {"input_shape": (1, 4, 4), "kind": "image"}),
    )
    with pytest.raises(MethodFailure, match="'net' has no tokens of a grid of 2 x 2 patches in its last LayerNorm"):
        grad_cam(asked, np.ones((2, 1, 4, 4), np.float32), np.zeros(2, int))
    with pytest.raises(MethodFailure, match="patches in 'last'"):
        grad_cam(asked, np.ones((2, 1, 4, 4), np.float32), np.zeros(2, int), layer="last")


class OnPatches(nn.Module):
    """A small custom transformer that accepts the kept patches."""

    patch = 4

    def __init__(self):
        super().__init__()
        self.cut = nn.Linear(48, 8)
        self.places, self.token = nn.Parameter(torch.empty(1, 16, 8)), nn.Parameter(torch.empty(1, 1, 8))
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, images, kept=None, hidden=None):
        cut = images.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
        tokens = self.cut(cut) + self.places
        if kept is not None:
            tokens = tokens.gather(1, kept[..., None].expand(-1, -1, 8))
        tokens = torch.cat([self.token.expand(len(tokens), -1, -1), tokens], 1)
        return self.head(self.block(tokens, src_key_padding_mask=hidden)[:, 0])


def masks_of_all_sizes(n=40):
    random = np.random.default_rng(2)
    masks = random.random((n, 16)) < random.random((n, 1))
    masks[:2] = [[False], [True]]
    return masks


def test_omitted_patches_equal_masked_attention_in_a_custom_module():
    net, masks = drawn(OnPatches()), masks_of_all_sizes()
    game = Game(Classifier("torch", "net", net, 2), GONE, PATCHES, backend=ExecutionBackend("plain", 32))
    found = game.values(IMAGES, masks, np.zeros(3, int))
    hidden = torch.cat([torch.zeros(len(masks), 1, dtype=torch.bool), torch.from_numpy(~masks)], 1)
    with torch.no_grad():
        for i, image in enumerate(IMAGES):
            logits = net(torch.from_numpy(image).expand(len(masks), -1, -1, -1), hidden=hidden)
            np.testing.assert_allclose(found[i], logits.double().log_softmax(1)[:, 0], atol=1e-5)
    assert found.std(1).min() > 0.01


@pytest.mark.parametrize("kind", ["ViT", "DeiT"])
def test_omitted_patches_equal_masked_attention(kind):
    pytest.importorskip("transformers")
    own, masks = vision.vit(kind=kind), masks_of_all_sizes()
    net = ImageNetwork(own, 2.0, [0.1, 0.2, 0.3], [0.5, 0.6, 0.7], [1, 0]).eval()
    game = Game(Classifier("torch", "net", net, 2), GONE, PATCHES)
    found = game.values(IMAGES, masks, np.zeros(3, int))
    special = 2 if kind == "DeiT" else 1
    attended = torch.cat([torch.ones(len(masks), special), torch.from_numpy(masks)], 1).long()
    scaled = (2 * IMAGES - np.array([0.1, 0.2, 0.3]).reshape(3, 1, 1)) / np.array([0.5, 0.6, 0.7]).reshape(3, 1, 1)
    with torch.no_grad():
        for i, image in enumerate(torch.from_numpy(scaled.astype(np.float32))):
            logits = own(image.expand(len(masks), -1, -1, -1), attention_mask=attended).logits
            np.testing.assert_allclose(found[i], logits.double().log_softmax(1)[:, 1], atol=1e-4)
    filled = game.having(reference=Reference(np.zeros((1, 3, 16, 16), np.float32))).values(IMAGES, masks)
    assert np.abs(filled - found).max() > 0.01


def test_a_python_call_and_a_calibration_omit_patches():
    net = drawn(OnPatches())
    said = shapeline.explain(
        net, IMAGES, "occlusion", reference="delete", features={"kind": "patch", "size": 4}, target=0
    )
    game = Game(Classifier("torch", "net", net, 2), GONE, PATCHES)
    values = game.values(IMAGES, np.vstack([np.ones(16, bool), ~np.eye(16, dtype=bool)]), np.zeros(3, int))
    np.testing.assert_allclose(said.scores.reshape(3, 16), values[:, :1] - values[:, 1:], atol=1e-5)
    form = calibration.calibrate(game.model, IMAGES, GONE)
    assert (form.name, form.batch) == ("plain", 1024) and form.rate > 0
    data = type("Data", (), {"inputs": IMAGES, "card": CARD})
    assert references.build("delete", data, 0).leaves_out


def test_models_that_cannot_omit_patches_are_refused():
    plain = Classifier("torch", "net", nn.Sequential(nn.Flatten(), nn.Linear(768, 2)), 2)
    with pytest.raises(ShapelineError, match="'net' cannot leave patches out; use zero or mean_value, or give"):
        Game(plain, GONE, PATCHES).values(IMAGES, np.ones((1, 16), bool))
    small = feature_kinds.build({"kind": "patch", "size": 2}, CARD)
    own = Classifier("torch", "net", drawn(OnPatches()), 2)
    with pytest.raises(ShapelineError, match=r"cuts through the patches of 'net'.* features: {kind: patch, size: 4}"):
        Game(own, GONE, small).values(IMAGES, np.eye(64, dtype=bool))
    with pytest.raises(ShapelineError, match="remove precision and compile"):
        Game(own, GONE, PATCHES, backend=ExecutionBackend("bfloat16")).values(IMAGES, np.ones((1, 16), bool))
