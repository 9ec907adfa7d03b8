"""h-Shap against brute-force recursion, against the theorems of its paper, and against the engine on a model."""

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest

from shapeline.errors import ShapelineError
from shapeline.hierarchy import exploration, methods
from shapeline.hierarchy.exploration import h_shap
from shapeline.theory import visited_nodes
from tests.unit import shortcuts

rng = np.random.default_rng


def any_of(important):
    """The OR game: 1 if an important cell is present."""
    return lambda masks: (masks & important).reshape(len(masks), -1).any(axis=1).astype(float)


def some_cells(shape, k, seed=0):
    important = np.zeros(math.prod(shape), bool)
    important[rng(seed).choice(important.size, k, replace=False)] = True
    return important.reshape(shape)


def random_game(shape, seed=0):
    """A game with interactions that a product of sums of cells gives; neither monotone nor normalised."""
    random = rng(seed)
    weights = random.normal(size=(3, math.prod(shape))) / math.prod(shape) ** 0.5

    def game(masks):
        sums = masks.reshape(len(masks), -1) @ weights.T
        return 0.7 + np.tanh(sums[:, 0]) + sums[:, 1] * sums[:, 2] + 0.2 * sums[:, 1]

    return game


# --- a reference: the paper's recursion, one node and one mask at a time ---


def halves(start, stop, s):
    middle = (start + stop) // 2
    return [(start, middle), (middle, stop)] if min(middle - start, stop - middle) >= s else [(start, stop)]


def parts_of(node, s):
    top, bottom, left, right = node
    found = [(*rows, *columns) for rows in halves(top, bottom, s) for columns in halves(left, right, s)]
    return found if len(found) > 1 else []


def shapley_of(v, parts):
    """Shapley value of each part by the sum over permutations; v takes a list of parts."""
    total = np.zeros(len(parts))
    for order in itertools.permutations(range(len(parts))):
        for place, part in enumerate(order):
            before = [parts[i] for i in order[:place]]
            total[part] += v([*before, parts[part]]) - v(before)
    return total / math.factorial(len(parts))


def by_recursion(game, shape, s, threshold, mode, product):
    """(leaves {rectangle: product}, visited nodes), level by level because a relative threshold pools a level."""
    known = {}

    def v(parts):
        key = frozenset(parts)
        if key not in known:
            mask = np.zeros(shape, bool)
            for top, bottom, left, right in parts:
                mask[top:bottom, left:right] = True
            known[key] = game(mask[None])[0]
        return known[key]

    whole = (0, shape[0], 0, shape[1])
    v([]), v([whole])
    leaves, visited, level = {}, 1, [(whole, 1.0)]
    while level:
        found = []
        for node, path in level:
            parts = parts_of(node, s)
            found += [(part, phi, phi * path) for part, phi in zip(parts, shapley_of(v, parts), strict=True)]
        scores = [entry[2] if product else entry[1] for entry in found]
        tolerance = 1e-9 * (max(known.values()) - min(known.values()))
        bar = threshold if mode == "absolute" else max(np.percentile(scores, threshold) - 2 * tolerance, 0)
        level = []
        for (part, _, path), score in zip(found, scores, strict=True):
            if score > bar + tolerance:
                visited += 1
                if parts_of(part, s):
                    level.append((part, path))
                else:
                    leaves[part] = path
    return leaves, visited


CASES = list(
    itertools.product(
        [((8, 8), 1), ((7, 11), 1), ((13, 5), 2), ((1, 17), 1), ((6, 20), 3)],
        [("absolute", 0.0), ("absolute", 0.05), ("relative", 0), ("relative", 50), ("relative", 70)],
        ["uniform", "product"],
    )
)


@pytest.mark.parametrize(("sides", "threshold", "leaf_score"), CASES)
def test_equal_to_recursion_on_random_games(sides, threshold, leaf_score):
    (shape, s), (mode, bar) = sides, threshold
    for seed in range(4):
        game = random_game(shape, seed)
        leaves, visited = by_recursion(game, shape, s, bar, mode, leaf_score == "product")
        found = h_shap(game, shape, s, bar, mode, leaf_score)
        assert {tuple(leaf) for leaf in found.leaves.tolist()} == set(leaves)
        assert found.visited_nodes == visited
        raw = np.zeros(shape)
        for (top, bottom, left, right), path in leaves.items():
            raw[top:bottom, left:right] = path
        np.testing.assert_allclose(found.raw, raw, atol=1e-12)
        weight = raw if leaf_score == "product" else (raw > 0).astype(float)
        np.testing.assert_allclose(found.saliency, weight / weight.sum() if leaves else weight, atol=1e-12)
        assert found.warning == ("" if leaves else "no relevant node")


def test_random_games_reach_every_case():
    """The random games of the comparison above include cut, complete and empty trees."""
    counts = [len(h_shap(random_game((7, 11), seed), (7, 11), 1, 0.05).leaves) for seed in range(4)]
    assert min(counts) < max(counts) < 77


# --- OR games: the theorems ---


@pytest.mark.parametrize("shape", [(8, 8), (16, 16), (64,), (7, 11), (1, 13), (13, 1), (31,)])
@pytest.mark.parametrize("mode", ["absolute", "relative"])
def test_exact_on_or_games(shape, mode):
    for k in (1, 2, 3, 7):
        important = some_cells(shape, k, seed=k)
        found = h_shap(any_of(important), shape, 1, mode=mode)
        np.testing.assert_allclose(found.saliency, important / k, atol=1e-15)
        assert found.saliency.dtype == np.float64 and found.saliency.shape == shape
        assert ((found.raw > 0) == important).all() and len(found.leaves) == k
        assert found.value_empty == 0 and found.value_full == 1


@pytest.mark.parametrize(("shape", "gamma"), [((8, 8), 4), ((64,), 2)])
def test_remark_3_1_bounds_the_evaluations(shape, gamma):
    levels = round(math.log(64, gamma))
    for seed in range(20):
        for k in (1, 2, 5, 20, 64):
            found = h_shap(any_of(some_cells(shape, k, seed)), shape, 1)
            inner = found.visited_nodes - k
            assert found.evaluations == 2 + (2**gamma - 2) * inner
            assert found.evaluations <= 2**gamma * k * levels


def test_remark_3_1_for_any_size():
    for shape, s in (((7, 11), 1), ((13, 30), 2), ((1, 19), 1)):
        for seed in range(10):
            found = h_shap(any_of(some_cells(shape, 3, seed)), shape, s)
            k = len(found.leaves)
            assert k <= 3 and found.evaluations <= 2**4 * k * math.ceil(math.log2(max(shape)))


@pytest.mark.parametrize(("shape", "gamma"), [((8, 8), 4), ((64,), 2)])
def test_theorem_3_2_in_simulation(shape, gamma):
    for rho in (0.02, 0.05, 0.3):
        samples = 400
        important = rng(int(1000 * rho)).random((samples, *shape)) < rho

        sums = np.pad(important.reshape(samples, -1, shape[-1]), ((0, 0), (1, 0), (1, 0))).cumsum(axis=1).cumsum(axis=2)

        def evaluate(instances, rectangles, sums=sums):
            at = lambda rows, columns: sums[instances[:, None], rows, columns]  # noqa: E731
            top, bottom, left, right = np.moveaxis(rectangles, 2, 0)
            inside = at(bottom, right) - at(top, right) - at(bottom, left) + at(top, left)
            return (inside > 0).any(axis=1).astype(float)

        found = exploration.explore(evaluate, samples, shape, 1)
        nodes = found.visited_nodes
        error = nodes.std(ddof=1) / samples**0.5
        assert abs(nodes.mean() - visited_nodes.expected_visited_nodes(64, gamma, rho)) < 4 * error


@pytest.mark.parametrize(("shape", "s"), [((16, 16), 1), ((16, 16), 2), ((16, 16), 4), ((21, 13), 3), ((50,), 4)])
def test_theorem_3_4_bounds_the_cosine(shape, s):
    n = math.prod(shape)
    for seed, k in itertools.product(range(10), (1, 3, 10, n // 2)):
        important = some_cells(shape, k, seed)
        found = h_shap(any_of(important), shape, s)
        sides = np.diff(found.leaves.reshape(len(found.leaves), -1, 2))[..., 0]
        assert sides.min() >= s and sides.max() < 2 * s
        exact = important / k
        cosine = (exact * found.saliency).sum() / np.linalg.norm(exact) / np.linalg.norm(found.saliency)
        bound = visited_nodes.similarity_lower_bound(n, int(sides.prod(axis=1).max()), k)
        assert cosine >= bound - 1e-12
        if s == 1:
            assert cosine == pytest.approx(1)


def test_product_of_the_authors_code():
    """Three leaves that flat Shapley values hold equal get 1/4, 1/4 and 1/2 (two of them share a quadrant)."""
    important = np.zeros((4, 4), bool)
    important[0, 0] = important[1, 1] = important[3, 3] = True
    found = h_shap(any_of(important), (4, 4), 1, leaf_score="product")
    np.testing.assert_allclose(found.saliency[important], [0.25, 0.25, 0.5])
    np.testing.assert_allclose(h_shap(any_of(important), (4, 4), 1).saliency[important], 1 / 3)
    assert len(h_shap(any_of(important), (4, 4), 1, 0.3, leaf_score="product").leaves) == 1
    assert len(h_shap(any_of(important), (4, 4), 1, 0.3).leaves) == 3


# --- thresholds and counts ---


def test_every_coalition_is_evaluated_once():
    asked = []

    def game(masks):
        asked.extend(mask.tobytes() for mask in masks)
        return any_of(np.eye(8, dtype=bool))(masks)

    found = h_shap(game, (8, 8), 1)
    assert len(asked) == found.evaluations == 2 + 14 * 7  # the root, 2 quadrants and 4 of theirs are split
    assert len(set(asked)) == len(asked)


def test_one_call_per_level():
    calls = []

    def evaluate(instances, rectangles):
        calls.append(len(instances))
        return rectangles[..., 1].max(axis=1) * 1.0 + instances

    exploration.explore(evaluate, 3, (8, 8), 2)
    assert calls[:2] == [2 * 3, 14 * 3] and len(calls) == 3


def test_batched_is_one_at_a_time():
    games = [random_game((9, 12), seed) for seed in range(5)] + [any_of(some_cells((9, 12), 0))]

    def evaluate(instances, rectangles):
        rows, columns = exploration.encode(rectangles, np.zeros((len(instances), 2), int), np.arange(9), np.arange(12))
        masks = (rows[:, :, None] & columns[:, None]) != 0
        return np.array([games[i](mask[None])[0] for i, mask in zip(instances, masks, strict=True)])

    for threshold, mode in ((0.0, "absolute"), (0.1, "absolute"), (70, "relative")):
        together = exploration.explore(evaluate, len(games), (9, 12), 1, threshold, mode)
        for i, game in enumerate(games):
            alone = h_shap(game, (9, 12), 1, threshold, mode)
            saliency, raw = together.maps(i)
            np.testing.assert_array_equal(together.leaves[together.slice_leaves(i)], alone.leaves)
            np.testing.assert_array_equal(saliency, alone.saliency)
            np.testing.assert_allclose(raw, alone.raw, atol=1e-14)
            assert together.evaluations[i] == alone.evaluations
            assert together.visited_nodes[i] == alone.visited_nodes


def test_percentiles_are_numpys():
    random = rng(3)
    groups = np.sort(random.integers(6, size=60))
    groups = groups[groups != 2]
    values = random.normal(size=len(groups)).round(1)
    for percent in (0, 10, 33.3, 70, 100):
        found = exploration._percentile_of(values, groups, 6, percent)
        for group in set(groups):
            assert found[group] == pytest.approx(np.percentile(values[groups == group], percent))


@pytest.mark.parametrize("game", [lambda m: np.full(len(m), 0.1), lambda m: -m.sum(axis=(1, 2)) / 7])
@pytest.mark.parametrize("mode", ["absolute", "relative"])
def test_nothing_relevant_is_a_zero_map_with_a_flag(game, mode):
    found = h_shap(game, (10, 6), 2, mode=mode)
    assert found.warning == "no relevant node" and not found.saliency.any() and not found.raw.any()
    assert len(found.leaves) == 0 and found.visited_nodes == 1 and found.evaluations == 16


def test_rounding_below_the_tolerance_is_not_explored():
    important = some_cells((8, 8), 1)
    noise = lambda masks: 1e-10 * masks.sum(axis=(1, 2))  # noqa: E731
    game = lambda masks: any_of(important)(masks) + noise(masks)  # noqa: E731
    assert len(h_shap(game, (8, 8), 4).leaves) == 4  # 1.6e-9 a quadrant, above 1e-9
    assert len(h_shap(game, (8, 8), 4, tolerance=1e-8).leaves) == 1
    faint = lambda masks: 1e-3 * noise(masks)  # noqa: E731
    assert len(h_shap(faint, (8, 8), 4).leaves) == 4  # the tolerance is relative to the range


def test_a_root_too_small_to_split_is_the_leaf():
    found = h_shap(lambda masks: masks.sum(axis=(1, 2)) / 6.0, (5, 6), 4)
    np.testing.assert_array_equal(found.leaves, [[0, 5, 0, 6]])
    np.testing.assert_allclose(found.saliency, 1 / 30)
    assert found.visited_nodes == 1 and found.evaluations == 2 and found.raw[0, 0] == pytest.approx(5)
    assert h_shap(lambda masks: -masks.sum(axis=(1, 2)), (5, 6), 4).warning == "no relevant node"


# --- cycle spinning ---


def test_cycle_spinning_is_the_mean_over_moved_partitions():
    shape, shifts = (8, 12), [(0, 0), (1, 0), (2, 5), (-3, 7)]
    game = random_game(shape, 2)
    found = h_shap(game, shape, 2, shifts=shifts)
    saliency, raw, leaves, evaluations = np.zeros(shape), np.zeros(shape), 0, 0
    for shift in shifts:
        back = tuple(-cells for cells in shift)
        # In the moved frame the image is rolled by the shift; its masks are rolled back for the game.
        alone = h_shap(lambda masks, back=back: game(np.roll(masks, back, axis=(1, 2))), shape, 2)
        saliency += np.roll(alone.saliency, back, axis=(0, 1)) / len(shifts)
        raw += np.roll(alone.raw, back, axis=(0, 1)) / len(shifts)
        leaves, evaluations = leaves + len(alone.leaves), evaluations + alone.evaluations
    np.testing.assert_allclose(found.saliency, saliency, atol=1e-12)
    np.testing.assert_allclose(found.raw, raw, atol=1e-12)
    assert len(found.leaves) == leaves and found.evaluations == evaluations
    drawn = np.zeros(shape, bool)
    for top, bottom, left, right in found.leaves:
        drawn[np.ix_(np.arange(top, bottom) % 8, np.arange(left, right) % 12)] = True
    assert (drawn == (found.saliency > 0)).all()


def test_cycle_spinning_of_a_vector_sharpens_a_run():
    important = np.zeros(16, bool)
    important[3:5] = True  # across the middle of a half
    game = lambda masks: masks[:, important].all(axis=1).astype(float)  # noqa: E731
    found = h_shap(game, (16,), 2, shifts=[(0,), (1,)])
    assert found.saliency.argmax() in (3, 4) and found.leaves.shape[1] == 2


# --- partition trees of one's own ---


def test_a_tree_of_quadrants_is_h_shap():
    shape = (4, 8)
    game = random_game(shape, 5)
    labels = np.arange(32).reshape(shape)
    inner = lambda block: [block[0, 0], block[0, 1], block[1, 0], block[1, 1]]  # noqa: E731
    quarter = lambda block: [inner(b) for half in np.split(block, 2) for b in np.split(half, 2, axis=1)]  # noqa: E731
    # (4, 8) -> (2, 4) -> (1, 2) -> two cells
    tree = [
        [
            [[int(c[0, 0]), int(c[0, 1])] for half in np.split(block, 2) for c in np.split(half, 2, axis=1)]
            for block in np.split(half, 2, axis=1)
        ]
        for half in np.split(labels, 2)
    ]
    tree = [block for half in tree for block in half]
    for threshold, mode in ((0.0, "absolute"), (60, "relative")):
        expected = h_shap(game, shape, 1, threshold, mode)
        found = methods.h_shap_tree(game, labels, tree, threshold, mode)
        np.testing.assert_allclose(found.saliency, expected.saliency, atol=1e-14)
        np.testing.assert_allclose(found.raw, expected.raw, atol=1e-14)
        assert found.evaluations == expected.evaluations and found.visited_nodes == expected.visited_nodes
    assert quarter(labels)  # the helper also serves as a check that splits of numpy are in reading order


def test_superpixels_with_their_own_names_and_tree():
    labels = np.array([[7, 7, 2, 2], [7, 5, 5, 2], [9, 9, 5, 2], [9, 9, 4, 4]])
    important = labels == 5
    for tree in ([[7, 2], [5, 9, 4]], [7, [2, [5, [9, 4]]]], methods.superpixel_tree(labels)):
        found = methods.h_shap_tree(any_of(important), labels, tree)
        np.testing.assert_allclose(found.saliency, important / 3)
        assert found.leaves.tolist() == [5]
    assert sorted(methods.forest([methods.superpixel_tree(labels)]).labels[0]) == [2, 4, 5, 7, 9]
    assert methods.h_shap_tree(any_of(labels == 0), labels, [[7, 2], [5, 9, 4]]).warning == "no relevant node"


def test_an_uneven_tree_finds_both_leaves():
    labels = np.repeat(np.arange(6), 2).reshape(3, 4)
    important = np.isin(labels, [0, 4])
    found = methods.h_shap_tree(any_of(important), labels, [0, [1, 2, 3], [4, 5]])
    np.testing.assert_allclose(found.saliency, important / 4)
    assert found.evaluations == 2 + 6 + 2 and found.visited_nodes == 4


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ([[0, 1], [1, 2]], "segment 1 is in the tree twice"),
        ([[0, 1]], "has 1 part"),
        ([0, 1], "segment 2 of the input is not in its tree"),
        ([0, "1"], "label of the tree is '1'"),
        (list(range(11)), "has 11 part"),
    ],
)
def test_trees_refused(tree, words):
    with pytest.raises(ShapelineError, match=words):
        methods.h_shap_tree(any_of(np.ones((1, 3), bool)), np.array([[0, 1, 2]]), tree)


# --- mistakes ---


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"min_size": 9}, "min_size is 9 but the input has 8x6 cells; give at most 8"),
        ({"min_size": 0}, "min_size is 0"),
        ({"min_size": 1.5}, "min_size is 1.5"),
        ({"shape": (3, 8, 6)}, "shape is"),
        ({"shape": 48}, r"shape is 48; give \(length,\)"),
        ({"shape": (0, 6)}, "a side of the shape is 0"),
        ({"mode": "absolut"}, "Did you mean 'absolute'"),
        ({"leaf_score": "sum"}, "leaf_score is 'sum'"),
        ({"threshold": -0.1}, "threshold is -0.1; give a number of at least 0"),
        ({"threshold": float("nan")}, "threshold is nan"),
        ({"threshold": 101, "mode": "relative"}, "a percentile from 0 to 100"),
        ({"shifts": [(1, 2, 3)]}, "shifts"),
        ({"shifts": [(1, 0.5)]}, "shifts"),
        ({"game": lambda masks: np.full(len(masks), np.nan)}, "value nan"),
        ({"game": lambda masks: masks}, "the game gave shape"),
    ],
)
def test_mistakes_are_one_clear_line(arguments, words):
    given = {"game": lambda masks: masks.sum(axis=(1, 2)) * 1.0, "shape": (8, 6), "min_size": 2, **arguments}
    with pytest.raises(ShapelineError, match=words) as error:
        h_shap(**given)
    assert "\n" not in str(error.value)


def test_the_exploration_imports_no_framework():
    code = "import sys, shapeline.hierarchy; print([m for m in ('torch', 'tensorflow', 'pandas') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- models ---

torch = pytest.importorskip("torch")

from shapeline.games.execution import ExecutionBackend  # noqa: E402
from shapeline.games.features import Features  # noqa: E402
from shapeline.games.game import Game  # noqa: E402
from shapeline.games.references import Reference  # noqa: E402
from shapeline.hierarchy import torch_evaluator  # noqa: E402
from shapeline.models import adapters  # noqa: E402

SIDES = (11, 14)


LAYERS = {
    "one convolution": lambda: [torch.nn.Conv2d(2, 5, 3)],
    # Windows of 9 rows and 8 columns, every 4 and every 2; the last row and column are seen by nothing.
    "strides": lambda: [
        *(torch.nn.Conv2d(2, 4, 3, stride=(2, 1)), torch.nn.ReLU(), torch.nn.MaxPool2d(2, 1)),
        *(torch.nn.Conv2d(4, 4, 2), torch.nn.BatchNorm2d(4), torch.nn.AvgPool2d((2, 2), (2, 2))),
    ],
    "padded": lambda: [torch.nn.Conv2d(2, 5, 3, padding=1)],  # whole images: a crop cannot tell whose border it has
}


def image_model(layers="one convolution", classes=3, task=None):
    torch.manual_seed(0)
    layers = [*LAYERS[layers](), torch.nn.ReLU(), torch.nn.Flatten()]
    features = torch.nn.Sequential(*layers).eval()(torch.zeros(1, 2, *SIDES)).shape[1]
    return adapters.wrap(torch.nn.Sequential(*layers, torch.nn.Linear(features, classes)), task, n_classes=classes)


def images(n, seed=0):
    return rng(seed).random((n, 2, *SIDES), dtype=np.float32)


PIXELS = Features("pixel", SIDES, np.broadcast_to(np.arange(154).reshape(SIDES), (2, *SIDES)).astype(np.int32))
OWN = Reference(None, lambda inputs: inputs[:, None] * np.float32(0.2))


def some_pairs(n, count, seed=0):
    """Ragged pairs: instances, unions of up to four rectangles, and the same as masks."""
    random = rng(seed)
    instances = random.integers(n, size=count)
    rows, columns = (np.sort(random.integers(side + 1, size=(count, 3))) for side in SIDES)
    rectangles = np.zeros((count, 4, 4), np.int64)
    masks = np.zeros((count, *SIDES), bool)
    for pair in range(count):
        for place, (a, b) in enumerate(itertools.product(range(2), range(2))):
            if random.random() < 0.6:
                rectangle = *rows[pair, a : a + 2], *columns[pair, b : b + 2]
                rectangles[pair, place] = rectangle
                masks[pair, rectangle[0] : rectangle[1], rectangle[2] : rectangle[3]] = True
    return instances, rectangles, masks


@pytest.mark.parametrize(
    "form", [ExecutionBackend("plain", 7), ExecutionBackend("channels_last", 64), ExecutionBackend("onnx", 16)]
)
@pytest.mark.parametrize("value", torch_evaluator.VALUES)
@pytest.mark.parametrize("reference", [1, 3, OWN], ids=["one row", "three rows", "own"])
@pytest.mark.parametrize("layers", LAYERS)
def test_values_are_the_engines(form, value, reference, layers, caplog):
    if isinstance(reference, int):
        reference = Reference(images(reference, seed=9))
    model, inputs, targets = image_model(layers), images(4), np.array([0, 2, 1, 2])
    instances, rectangles, masks = some_pairs(4, 60)
    found = shortcuts.evaluator(model, inputs, reference, targets, value, backend=form)(instances, rectangles)
    flat = masks.reshape(len(masks), -1)
    expected = shortcuts.values(model, inputs, reference, flat, PIXELS, value, targets)
    np.testing.assert_allclose(found, expected[instances, np.arange(len(flat))], atol=1e-5)
    assert found.dtype == np.float64 and np.ptp(expected) > 1e-3
    assert not caplog.records  # a crop that gave other values would have been given up, and said so


@pytest.mark.parametrize("layers", LAYERS)
def test_a_batch_of_images_is_one_game_each(layers, monkeypatch):
    monkeypatch.setattr(torch_evaluator, "MAX_CODE_BYTES", 16 * 25 * 50)  # blocks of 50 pairs
    model, inputs, targets = image_model(layers), images(4), np.array([0, 2, 1, 2])
    reference, shifts = Reference(images(2, seed=9)), [(0, 0), (3, 5)]
    together = shortcuts.trees(
        model, inputs, reference, targets, 2, shifts=shifts, backend=ExecutionBackend("plain", 33)
    )
    for i, found in enumerate(together):

        def game(masks, i=i):
            flat = masks.reshape(len(masks), -1)
            return shortcuts.values(
                model, inputs[i : i + 1], reference, flat, PIXELS, "probability", targets[i : i + 1]
            )[0]

        alone = h_shap(game, SIDES, 2, shifts=shifts, tolerance=methods.TOLERANCE)
        np.testing.assert_array_equal(found.leaves, alone.leaves)
        np.testing.assert_allclose(found.raw, alone.raw, atol=1e-7)
        np.testing.assert_array_equal(found.saliency, alone.saliency)
        assert found.evaluations == alone.evaluations and len(found.leaves)


@pytest.fixture(autouse=True)
def crops_of_small_networks(monkeypatch):
    """Crops are taken even where they save less than a call costs."""
    monkeypatch.setitem(torch_evaluator.CALL_WORK, "cpu", -1)


def test_crops_are_taken_where_they_save_more_than_a_call_costs(monkeypatch):
    model, inputs, reference = image_model(), images(3), Reference(images(1, seed=9))
    work = torch_evaluator.find_trunk(model, inputs.shape[1:]).work
    cut, alone = torch_evaluator.LocalCrops.outputs, []
    monkeypatch.setattr(torch_evaluator.LocalCrops, "outputs", lambda *a: alone.append(len(a[2])) or cut(*a))
    evaluate = shortcuts.evaluator(model, inputs, reference, np.array([0, 1, 0]))
    nodes = np.array([[4, 6, 4, 6]] * 5 + [[0, 11, 0, 14]] * 5)[:, None]  # of the whole images nothing is saved
    owners = np.arange(len(nodes)) % 3
    found = {}
    for most_work, cropped in ((-1, [5, 5]), (work, [5]), (5 * work, [])):
        monkeypatch.setitem(torch_evaluator.CALL_WORK, "cpu", most_work)
        alone.clear()
        found[most_work] = evaluate(owners, nodes)
        assert sorted(alone, reverse=True) == cropped, most_work
    for values in found.values():
        np.testing.assert_allclose(values, found[-1], atol=1e-6)
    assert np.ptp(found[-1]) > 1e-3


def test_small_nodes_are_computed_from_crops(caplog):
    """Which cells the convolutions are given, by a model that counts them; and no crop that gives other values."""
    cells = []

    class Counting(torch.nn.ReLU):
        def forward(self, rows):
            cells.append(rows.shape[0] * rows.shape[2] * rows.shape[3])
            return super().forward(rows)

    inputs, reference, targets = images(1), Reference(images(1, seed=9)), np.array([0])
    layers = [Counting(), torch.nn.Conv2d(2, 5, 3), torch.nn.Flatten(), torch.nn.Linear(540, 2)]
    counting = adapters.wrap(torch.nn.Sequential(*layers))
    torch_evaluator._CELLWISE += (Counting,)
    try:
        evaluate = shortcuts.evaluator(counting, inputs, reference, targets)
    finally:
        torch_evaluator._CELLWISE = torch_evaluator._CELLWISE[:-1]
    cells.clear()
    corner = np.tile([4, 6, 4, 6], (10, 1, 1))
    evaluate(np.zeros(10, int), corner)
    assert sum(cells) == 10 * 6 * 6  # a cell of the 2x2 is seen by windows of 3x3 in 6x6 cells

    class Uneven(torch.nn.ReLU):
        def forward(self, rows):
            return rows - rows.mean(dim=(2, 3), keepdim=True)

    torch_evaluator._CELLWISE += (Uneven,)
    try:
        uneven = adapters.wrap(torch.nn.Sequential(Uneven(), *layers[1:]))
        found = shortcuts.evaluator(uneven, inputs, reference, targets)(np.zeros(10, int), corner)
    finally:
        torch_evaluator._CELLWISE = torch_evaluator._CELLWISE[:-1]
    mask = np.zeros((1, *SIDES), bool)
    mask[0, 4:6, 4:6] = True
    expected = shortcuts.values(uneven, inputs, reference, mask.reshape(1, -1), PIXELS, "probability", targets)
    np.testing.assert_allclose(found, expected[0, 0], atol=1e-6)
    assert "whole images are evaluated" in caplog.text


def test_the_module_is_left_as_it_was():
    model = image_model("strides")
    model.module.train()
    model.module[5].eval()
    flags = [part.training for part in model.module.modules()]
    shortcuts.trees(model, images(1), Reference(images(1, seed=9)), np.array([0]), 3)
    assert [part.training for part in model.module.modules()] == flags
    # A later call sees changed weights, of the convolutions and of the rest.
    full = []
    for layer in (-1, 0, 0):
        reference = Reference(images(1, seed=9))
        full.append(
            shortcuts.trees(model, images(1), reference, np.array([0]), 3, backend=ExecutionBackend("onnx", 8))[0]
        )
        with torch.no_grad():
            model.module[layer].weight[0] += 1
    assert len({found.value_full for found in full}) == 3


def test_several_labels_of_a_sigmoid_head():
    model, inputs, reference = image_model(task="multilabel"), images(2), Reference(images(1, seed=9))
    labels = np.array([[0, 1, 2], [2, 1, 0]])
    found = shortcuts.trees(model, inputs, reference, labels, 2)
    assert len(found) == 6
    for place, (i, label) in enumerate(itertools.product(range(2), range(3))):
        with torch.inference_mode():
            logits = model.module(torch.from_numpy(np.stack([inputs[i], reference.rows[0]]))).double()
        full, empty = torch.sigmoid(logits[:, labels[i, label]]).tolist()
        assert found[place].value_full == pytest.approx(full, abs=1e-6)
        assert found[place].value_empty == pytest.approx(empty, abs=1e-6)
    single = shortcuts.trees(model, inputs, reference, labels[:, 1], 2)
    np.testing.assert_array_equal(single[1].saliency, found[4].saliency)


def test_a_vector_model_and_a_function():
    weights = np.array([0.0, 0, 0, 4, 0, 0, 0, 0, -2, 0])
    function = adapters.wrap(lambda rows: 1 / (1 + np.exp(-(rows @ weights - 2))))
    inputs, reference = np.ones((2, 10), np.float32), Reference(np.zeros((1, 10), np.float32))
    found = shortcuts.trees(function, inputs, reference, np.array([1, 1]), 1)
    assert [result.leaves.tolist() for result in found] == [[[3, 4]]] * 2
    assert found[0].value_full == pytest.approx(0.5)
    with pytest.raises(ShapelineError, match="no logits"):
        shortcuts.trees(function, inputs, reference, np.array([1, 1]), 1, value="logit")


def test_a_forest_on_a_model():
    model, inputs, targets = image_model(), images(2), np.array([0, 2])
    reference = Reference(images(1, seed=9))
    labels = [
        np.arange(154).reshape(SIDES) // 23,
        (np.indices(SIDES) // 4 * np.array([4, 1])[:, None, None]).sum(axis=0),
    ]
    for i, segments in enumerate(labels):
        cells = np.broadcast_to(segments, (2, *SIDES)).astype(np.int32)
        game = Game(model, reference, Features("superpixel", (segments.max() + 1,), cells), "probability")
        trees = methods.forest([methods.superpixel_tree(segments)])
        order = np.argsort(trees.labels[0])
        evaluate = methods.evaluate_by_masks(game, inputs[i : i + 1], targets[i : i + 1], leaf_columns=order)
        together = methods.explore_forest(evaluate, trees)

        def game(masks, i=i):
            flat = masks.reshape(len(masks), -1)
            return shortcuts.values(
                model, inputs[i : i + 1], reference, flat, PIXELS, "probability", targets[i : i + 1]
            )[0]

        alone = methods.h_shap_tree(game, segments, methods.superpixel_tree(segments))
        np.testing.assert_allclose(together.maps(0, trees.index_leaves(0, segments))[0], alone.saliency, atol=1e-12)
        assert alone.saliency.any()


def test_large_images_need_no_masks():
    """1200x1600: the rectangles are all there is; an image's masks at s = 75 would be 27 MB a node."""
    bright = lambda rows: rows[:, 0, 700:710, 320:330].mean(axis=(1, 2))  # noqa: E731
    model = adapters.wrap(lambda rows: bright(rows).clip(0, 1))
    inputs, reference = np.ones((1, 1, 1200, 1600), np.float32), Reference(np.zeros((1, 1, 1200, 1600), np.float32))
    (found,) = shortcuts.trees(model, inputs, reference, np.array([1]), 75, backend=ExecutionBackend("plain", 16))
    assert found.leaves.tolist() == [[675, 750, 300, 400]] and found.evaluations == 2 + 14 * 4
    assert (found.saliency > 0).sum() == 7500 and (found.saliency[675:750, 300:400] == 1 / 7500).all()


def test_model_mistakes():
    model, inputs, reference = image_model(), images(2), Reference(images(1))
    for targets, words in (([0, 3], "classes are 0 to 2"), ([0], "targets have shape"), ([0.0, 1.0], "class numbers")):
        with pytest.raises(ShapelineError, match=words):
            shortcuts.evaluator(model, inputs, reference, np.array(targets))
    with pytest.raises(ShapelineError, match="Did you mean 'probability'"):
        shortcuts.trees(model, inputs, reference, np.array([0, 1]), 2, value="probabilty")
    inputs[1, 0, 0, 0] = np.nan
    with pytest.raises(ShapelineError, match="instance 1, a coalition's probability is nan") as error:
        shortcuts.trees(model, inputs, reference, np.array([0, 1]), 2, shifts=[(0, 0), (1, 1)])
    assert error.value.instance == 1
