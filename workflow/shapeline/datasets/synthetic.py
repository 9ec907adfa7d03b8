"""Synthetic data, so what decides is known: short reviews of a fixed list of words, and images of crosses.

Every opinion speaks for the label, plainly or by negation of its opposite, so a polar word says nothing without its
negator, which neutral sentences have too. Both are ground truth.
"""

from pathlib import Path

import numpy as np

from shapeline.designs.design import check_integer
from shapeline.errors import ShapelineError
from shapeline.seeds import seed_of

N, SHORTEST, LONGEST = 3000, 4, 30
NEGATED = 0.4  # share of the opinions that are negations
OPINION = 0.35  # share of the sentences after the first that are opinions
ADJECTIVES = (  # negative, then positive, as the classes
    "dull tedious clumsy boring awful lifeless shallow predictable forgettable annoying bland messy hollow lazy "
    "painful pointless stale tiresome unfunny wooden".split(),
    "heartwarming entertaining brilliant moving funny charming delightful gripping clever superb touching wonderful "
    "witty beautiful fresh inspired lovely memorable thrilling warm".split(),
)
# Third person and base form.
VERBS = (
    (("sucks", "suck"), ("fails", "fail"), ("drags", "drag"), ("disappoints", "disappoint"), ("stumbles", "stumble")),
    (("works", "work"), ("shines", "shine"), ("delights", "delight"), ("sparkles", "sparkle"), ("soars", "soar")),
)
SUBJECTS = (
    "it",
    *(
        f"the {noun}"
        for noun in "film story acting script ending music dialogue plot pacing cast humour finale".split()
    ),
)
# A * marks a ground-truth word. {s} subject, {a} and {b} two adjectives, {v} verb, {w} its base form.
PLAIN = (
    "{s} is *{a}",
    "{s} is really *{a}",
    "{s} is *{a} and *{b}",
    "{s} is *{a} or *{b} throughout",
    "{s} feels *{a} from start to end",
    "I found {s} *{a}",
    "this is a *{a} film",
    "{s} just *{v}",
    "{s} simply *{v}",
)
NEGATION = (
    "{s} is *not *{a}",
    "{s} is *not very *{a}",
    "{s} is *not *{a} or *{b}",
    "{s} *isn't *{a}",
    "{s} is *never *{a}",
    "{s} *never feels *{a}",
    "this is *not a *{a} film",
    "{s} *never *{v}",
    "{s} *doesn't *{w}",
)
NEUTRAL = (
    "I saw it on a {day} with my {person}",
    "it runs for about {number} hours",
    "it was shot in {place}",
    "{s} is about {number} sisters and a dog",
    "{s} is based on a novel",
    "I had not read the novel before",
    "my {person} isn't fond of popcorn",
    "I never sit in the front row",
    "it doesn't have a sequel",
    "the cinema was half empty that {day}",
    "we went there by bus or on foot",
    "{s} is not the reason we went",
    "it just opened in {place}",
    "my {person} paid for the tickets",
    "the cast is from {place}",
    "this is a film from {place}",
)
FILLING = {
    "day": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split(),
    "person": "brother sister mother father neighbour colleague cousin friend".split(),
    "number": "two three four".split(),
    "place": "Paris Chicago Mumbai Tokyo Lagos Madrid Cairo Toronto".split(),
}


def read(paths: dict[str, Path]) -> dict:
    """Return 3,000 different reviews of 4 to 30 words, negative and positive in turn, with ground-truth words."""
    generator = np.random.default_rng(seed_of("reviews"))
    texts: dict[str, list[bool]] = {}
    while len(texts) < N:
        text, ground_truth_words = _write_review(generator, len(texts) % 2)
        texts.setdefault(text, ground_truth_words)
    return {"texts": list(texts), "ground_truth_words": list(texts.values()), "labels": np.arange(N) % 2}


def _write_review(generator: np.random.Generator, label: int) -> tuple[str, list[bool]]:
    length = int(generator.integers(SHORTEST, LONGEST + 1))
    sentences = [_write_opinion(generator, label)]
    while sum(map(len, sentences)) < length:
        sentence = _write_opinion(generator, label) if generator.random() < OPINION else _write_neutral(generator)
        if sum(map(len, sentences)) + len(sentence) > LONGEST:
            break
        sentences.append(sentence)
    sentences = [sentences[place] for place in generator.permutation(len(sentences))]
    plain = [" ".join(sentence).replace("*", "") for sentence in sentences]
    text = " ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence in plain)
    return text, [word.startswith("*") for sentence in sentences for word in sentence]


def _write_opinion(generator: np.random.Generator, label: int) -> list[str]:
    negated = generator.random() < NEGATED
    polarity = 1 - label if negated else label
    a, b = generator.permutation(ADJECTIVES[polarity])[:2]
    v, w = _choose(generator, VERBS[polarity])
    template = _choose(generator, NEGATION if negated else PLAIN)
    words = template.format(s=_choose(generator, SUBJECTS), a=a, b=b, v=v, w=w).split()
    # A review of three words would be shorter than the shortest.
    return words if len(words) >= SHORTEST else [*words, "here"]


def _write_neutral(generator: np.random.Generator) -> list[str]:
    filling = {name: _choose(generator, choices) for name, choices in FILLING.items()}
    return _choose(generator, NEUTRAL).format(s=_choose(generator, SUBJECTS), **filling).split()


def _choose(generator: np.random.Generator, choices):
    return choices[int(generator.integers(len(choices)))]


CELL = 10  # pixels; a shape fills the first nine, so that two beside each other do not touch
HEIGHT, WIDTH = 100, 120
SHAPES = 10, 18  # fewest and most in an image, 14 on average, whatever its class: their number tells nothing
CROSSES = 1, 6  # fewest and most in a positive image
BRIGHTEST = 200  # colours stay below it in each channel: a white cross on white would be a wrong label
COUNT = 8000
PARTS = 5 / 8, 1 / 8  # of the images for training and validation: 5,000 and 1,000 of 8,000
CROSS = 3  # its place among the stencils
# Crosses of a positive image of the test part, 1 to 6: those with 1 and those with 6 are explained.
TEST_SHARES = 0.35, 0.075, 0.075, 0.075, 0.075, 0.35


def read_crosses(paths: dict[str, Path], count: int = COUNT, seed: int = 0) -> dict:
    """Return `count` images (n, 3, 100, 120) uint8, half of them positive, labels, split and masks of crosses.

    5/8 are for training, 1/8 for validation; in the test a positive image often holds 1 or 6 crosses (35 % each).
    """
    ends = [round(count * sum(PARTS[: part + 1])) for part in range(2)]
    random, n_test = np.random.default_rng(seed_of("crosses", seed, "test")), count - ends[1]
    n_crosses = random.integers(2, size=n_test) * random.choice(range(1, 7), size=n_test, p=TEST_SHARES)
    batches = generate(ends[1], seed=seed), generate(n_test, crosses=n_crosses, seed=seed, first=ends[1])
    images, masks = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
    split = np.searchsorted(ends, np.arange(count), side="right").astype(np.uint8)
    labels = masks.any(axis=(1, 2)).astype(np.int64)
    return {"inputs": images, "labels": labels, "split": split, "masks": masks}


def generate(
    count: int,
    crosses: int | np.ndarray | None = None,
    seed: int = 0,
    height: int = HEIGHT,
    width: int = WIDTH,
    first: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Return images and pixels of crosses; crosses: of each, None: 0 in half of the images, 1 to 6 in the others.

    Image i has the random numbers of `seed` and first + i alone. height, width: multiples of 10. Raises
    ShapelineError.
    """
    count, first = check_integer("crosses", "count", count, 0), check_integer("crosses", "first", first, 0)
    for name, side in (("height", height), ("width", width)):
        if check_integer("crosses", name, side, CELL) % CELL:
            raise ShapelineError(f"crosses: {name} is {side}; give a multiple of {CELL}, the size of a cell.")
    rows, columns = height // CELL, width // CELL
    array = np.asarray(-1 if crosses is None else crosses)
    if array.shape not in ((), (count,)):
        raise ShapelineError(f"crosses: {array.size} number(s) of crosses for {count} image(s); give one, or one each.")
    counts = np.broadcast_to(array, (count,))
    if crosses is not None and (counts.dtype.kind not in "iu" or ((counts < 0) | (counts > rows * columns)).any()):
        raise ShapelineError(f"crosses: {crosses!r} crosses an image; give whole numbers from 0 to {rows * columns}.")
    drawn = [_sample_shapes(seed_of("crosses", seed, first + i), int(counts[i]), rows * columns) for i in range(count)]
    owner = np.repeat(np.arange(count), [len(cells) for cells, _, _ in drawn])
    cells, kinds, colours = (
        (np.concatenate(column) for column in zip(*drawn, strict=True)) if drawn else _sample_shapes(0, 0, 0)
    )
    place = owner, cells // columns, cells % columns
    ink = _draw_stencils()[kinds]
    images = np.full((count, rows, columns, 3, CELL, CELL), 255, np.uint8)
    images[place] = np.where(ink[:, None], colours[:, :, None, None], 255)
    masks = np.zeros((count, rows, columns, CELL, CELL), bool)
    masks[place] = ink & (kinds == CROSS)[:, None, None]
    return (
        np.ascontiguousarray(images.transpose(0, 3, 1, 4, 2, 5)).reshape(count, 3, height, width),
        np.ascontiguousarray(masks.transpose(0, 1, 3, 2, 4)).reshape(count, height, width),
    )


def _sample_shapes(seed: int, crosses: int, n_cells: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sample cells (k,), kinds (k,) and colours (k, 3) uint8 of one image's shapes; crosses: number, -1: sampled."""
    random = np.random.default_rng(seed)
    total = int(random.integers(*SHAPES, endpoint=True))
    if crosses < 0:
        crosses = int(random.integers(2) * random.integers(*CROSSES, endpoint=True))
    # A small image keeps some cells white; all requested crosses fit.
    total = max(min(total, n_cells // 2), crosses)
    cells = random.permutation(n_cells)[:total]
    kinds = random.integers(CROSS, size=total)
    kinds[:crosses] = CROSS
    return cells, kinds, random.integers(BRIGHTEST, size=(total, 3), dtype=np.uint8)


def _draw_stencils() -> np.ndarray:
    """Return square, triangle, disc and cross as pixels of a cell, (4, 10, 10) bool, in a box of 9x9."""
    box = CELL - 1
    row, column = np.indices((box, box)) - box // 2  # from the middle of the box
    square = np.ones((box, box), bool)
    triangle = 2 * np.abs(column) <= row + box // 2
    disc = row**2 + column**2 <= (box / 2) ** 2
    cross = np.abs(row) == np.abs(column)
    return np.pad(np.stack([square, triangle, disc, cross]), ((0, 0), (0, 1), (0, 1)))
