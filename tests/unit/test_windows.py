"""The shortcut for local receptive fields gives the model's values on masked documents."""

import numpy as np
import pytest

from shapeline import graphs
from shapeline.designs import local
from shapeline.games import windows
from shapeline.games.features import Features
from shapeline.models.classifier import Classifier

LENGTH, VOCABULARY, CLASSES = 24, 40, 3


def net(width: int, seed: int = 0, channels: int = 10, threads: int = 1) -> windows.Local:
    random = np.random.default_rng(seed)
    embedding = random.normal(size=(VOCABULARY, 4)).astype(np.float32)
    kernel = random.normal(size=(width * 4, channels), scale=(4 * width) ** -0.5).astype(np.float32)
    head = random.normal(size=(channels, CLASSES)).astype(np.float32)
    return windows.Local(
        width,
        lambda ids: np.maximum(embedding[ids].reshape(len(ids), -1) @ kernel, 0),
        lambda pooled: pooled @ head,
        threads,
    )


def forward(model: windows.Local, ids: np.ndarray) -> np.ndarray:
    """Logits (n, classes) of documents (n, length), window by window."""
    views = np.lib.stride_tricks.sliding_window_view(ids, model.width, axis=1)
    outputs = model.windows(views.reshape(-1, model.width)).reshape(*views.shape[:2], -1)
    return model.from_pooled(outputs.max(axis=1))


def plain(model, inputs, rows, masks, cells, of=forward) -> np.ndarray:
    """Logits (n, K, M, classes) of every filled document."""
    rows = np.broadcast_to(rows, (len(inputs), *rows.shape[-2:]))
    masks = np.broadcast_to(masks, (len(inputs), *masks.shape[-2:]))
    kept = np.concatenate([masks, np.ones((*masks.shape[:2], 1), bool)], axis=2)[:, :, cells]
    filled = np.where(kept[:, :, None], inputs[:, None, None], rows[:, None])
    return of(model, filled.reshape(-1, inputs.shape[1])).reshape(*filled.shape[:3], -1)


def gathered(tiles, shape) -> np.ndarray:
    """All tiles in one array; a place that no tile fills, or two fill, shows."""
    result, filled = np.full(shape, np.nan, np.float32), np.zeros(shape[:2], int)
    for start, stop, first, last, logits in tiles:
        result[start:stop, first:last] = logits
        filled[start:stop, first:last] += 1
    assert (filled == 1).all()
    return result


def log_probs(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64)
    top = logits.max(axis=-1, keepdims=True)
    return logits - top - np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))


def check(model, inputs, rows, masks, cells):
    expected = plain(model, inputs, rows, masks, cells)
    actual = gathered(windows.evaluate_tiles(model, inputs, rows, masks, cells), expected.shape)
    close(log_probs(actual), log_probs(expected))


def close(actual: np.ndarray, expected: np.ndarray, name: str = "") -> None:
    """Sums in another order: their rounding grows with the precision of float32 and the size of the values."""
    bound = 8 * np.finfo(np.float32).eps * max(1, np.abs(expected).max())
    np.testing.assert_allclose(actual, expected, rtol=0, atol=bound, err_msg=name)


def document(cells: np.ndarray, n: int = 1, seed: int = 1) -> np.ndarray:
    """Random words where a feature is; elsewhere all tokens differ, so that every window between features counts."""
    words = np.random.default_rng(seed).integers(1, VOCABULARY, (n, len(cells)))
    return np.where(cells >= 0, words, np.arange(len(cells)) % VOCABULARY).astype(np.int32)


def words(d: int, length: int = LENGTH, first: int = 0) -> np.ndarray:
    cells = np.full(length, -1, np.int32)
    cells[first : first + d] = np.arange(d)
    return cells


OWNERS = {
    "one word": words(1),
    "two words": words(2),
    "some words": words(9),
    "full length": words(LENGTH),
    "all but one": words(LENGTH - 1),
    "words at the end": words(5, first=LENGTH - 5),
    "words in the middle": words(6, first=8),
    "no feature": words(0),
    "runs": np.array([-1, 0, 0, 0, 0, -1, 1, -1, -1, -1, -1, -1, 2, 2, -1, 3, 3, 3, 3, 3, 3, -1, 4, -1], np.int32),
    "runs of full length": np.repeat(np.arange(6, dtype=np.int32), 4),
    "features apart": (np.arange(LENGTH) % 5).astype(np.int32),
}


def designs(d: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(d)
    made = {
        "dense": random.random((150, d)) < 0.5,
        "sparse": random.random((150, d)) < random.choice([0.05, 0.95], (150, 1)),
        "occlusion": np.concatenate([np.ones((1, d), bool), ~np.eye(d, dtype=bool)]),
        "one mask": np.ones((1, d), bool),
    }
    if d > 1:
        made["runs of words"] = local.c_shapley_regression((d,)).masks
        made["l_shapley"] = local.l_shapley(graphs.chain(d), 1).masks
    return made


@pytest.mark.parametrize("name", OWNERS)
def test_values_are_those_of_filled_documents(name):
    cells = OWNERS[name]
    rows = np.zeros((1, LENGTH), np.int32)
    for masks in designs(int(cells.max()) + 1).values():
        check(net(3), document(cells), rows, masks, cells)


@pytest.mark.parametrize("width", [1, 2, 3, 4, 7, 23, LENGTH])
def test_any_width_of_window(width):
    for name in ("some words", "full length", "runs", "no feature"):
        cells = OWNERS[name]
        masks = np.random.default_rng(0).random((300, int(cells.max()) + 1)) < 0.5
        check(net(width), document(cells), np.zeros((1, LENGTH), np.int32), masks, cells)


def test_the_widest_window():
    cells = words(70, 70)
    masks = np.random.default_rng(0).random((40, 70)) < 0.5
    rows = np.zeros((1, 70), np.int32)
    check(net(windows.MAX_WIDTH), document(cells), rows, masks, cells)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("shared", [True, False])
def test_several_documents_reference_rows_and_masks(own, shared):
    cells, random = OWNERS["runs"], np.random.default_rng(3)
    inputs = document(cells, 7)
    rows = random.integers(0, VOCABULARY, (7, 2, LENGTH) if own else (2, LENGTH)).astype(np.int32)
    masks = random.random((40, 5) if shared else (7, 40, 5)) < 0.5
    # A cell without a feature keeps the document's own token, which differs between these.
    inputs[:, cells < 0] = random.integers(0, VOCABULARY, (7, (cells < 0).sum()))
    check(net(3), inputs, rows, masks, cells)


@pytest.mark.parametrize("limit", [1, 700, 5000])
def test_small_chunks_change_nothing(monkeypatch, limit):
    for name in (
        "MAX_MASK_CELLS",
        "MAX_TABLE_BYTES",
        "MAX_GATHERED_BYTES",
        "MIN_THREAD_BYTES",
        "MAX_TABLE_ROWS",
        "CALL_ROWS",
    ):
        monkeypatch.setattr(windows, name, limit)
    cells, random = words(12), np.random.default_rng(4)
    rows = random.integers(0, VOCABULARY, (3, LENGTH)).astype(np.int32)
    for masks in (random.random((20, 12)) < 0.5, local.c_shapley_regression((12,), 2).masks):
        check(net(3, threads=3), document(cells, 2), rows, masks, cells)


def test_neighbouring_masks_share_their_work():
    d = 300
    cells = words(d, 400)
    for masks in (local.c_shapley_regression((d,)).masks, ~np.eye(d, dtype=bool)):
        made = windows.build_plan(masks, cells, 3)
        compared = sum(ids.size for ids in made.levels)
        assert compared < 20 * len(masks) + 8 * d  # 298 a mask without sharing
    dense = windows.build_plan(np.random.default_rng(0).random((1200, d)) < 0.5, cells, 3)
    assert sum(ids.size for ids in dense.levels) < 95 * 1200
    assert len(dense.positions) <= 8 * d


def test_only_windows_that_some_mask_shows_are_tabled():
    made = windows.build_plan(~np.eye(9, dtype=bool), words(9), 3)
    assert len(made.positions) == len(np.unique(np.column_stack([made.positions, made.present]), axis=0))
    assert (~made.present).sum(axis=1).max() == 1
    runs = windows.build_plan(np.array([[True, False], [False, False]]), np.array([0, 0, 0, 0, 1, 1, -1], np.int32), 3)
    assert {tuple(kept) for kept in runs.present[runs.positions == 0].tolist()} == {(True,) * 3, (False,) * 3}


def framework_nets():
    """A net of the protocol in torch and in TensorFlow, with random weights."""
    import torch

    from shapeline.games import torch_backend

    class Net(torch.nn.Module):
        window_size = 3

        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(VOCABULARY, 8, padding_idx=0)
            self.convolution = torch.nn.Conv1d(8, 20, 3)
            self.head = torch.nn.Sequential(torch.nn.Linear(20, 20), torch.nn.ReLU(), torch.nn.Linear(20, CLASSES))

        def activations(self, ids):
            return torch.relu(self.convolution(self.embedding(ids).transpose(1, 2)))

        def windows(self, ids):
            return self.activations(ids)[:, :, 0]

        def from_pooled(self, pooled):
            return self.head(pooled)

        def forward(self, ids):
            return self.from_pooled(self.activations(ids).amax(dim=2))

    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = Net().eval()
    yield torch_backend, module, lambda _, ids: module(torch.from_numpy(ids)).detach().numpy()

    import tensorflow as tf

    from shapeline.games import tf_backend

    state = {name: tf.Variable(value.numpy()) for name, value in module.state_dict().items()}

    def convolved(ids):
        kernel = tf.transpose(state["convolution.weight"], (2, 1, 0))
        embedded = tf.gather(state["embedding.weight"], ids)
        return tf.nn.relu(tf.nn.conv1d(embedded, kernel, 1, "VALID") + state["convolution.bias"])

    def from_pooled(pooled):
        hidden = tf.nn.relu(pooled @ tf.transpose(state["head.0.weight"]) + state["head.0.bias"])
        return hidden @ tf.transpose(state["head.2.weight"]) + state["head.2.bias"]

    class Twin:
        window_size = 3

        def windows(self, ids):
            return convolved(ids)[:, 0]

        def from_pooled(self, pooled):
            return from_pooled(pooled)

    yield tf_backend, Twin(), lambda _, ids: from_pooled(tf.reduce_max(convolved(ids), axis=1)).numpy()


def test_both_frameworks_give_the_plain_forward():
    random = np.random.default_rng(5)
    cells = words(15)
    rows = random.integers(0, VOCABULARY, (2, LENGTH)).astype(np.int32)
    found = []
    for shortcut, module, of in framework_nets():
        model = Classifier("torch" if "torch" in shortcut.__name__ else "tensorflow", "net", module, CLASSES)
        features = Features("word", (15,), cells)
        for name, masks in designs(15).items():
            inputs = document(cells, 3)
            expected = plain(module, inputs, rows, masks, cells, of)
            actual = gathered(shortcut.window_values(model, inputs, rows, masks, features), expected.shape)
            close(log_probs(actual), log_probs(expected), name)
            found.append(actual)
    half = len(found) // 2
    for one, other in zip(found[:half], found[half:], strict=True):
        close(one, other)
