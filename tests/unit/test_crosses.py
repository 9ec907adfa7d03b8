"""Crosses: the images agree with their masks and labels."""

import numpy as np
import pytest

from shapeline.datasets import synthetic
from shapeline.errors import ShapelineError


def blobs(mask):
    """How many crosses a mask (height, width) holds, each of 17 pixels in a cell of its own."""
    height, width = mask.shape
    in_cells = mask.reshape(height // 10, 10, width // 10, 10).sum(axis=(1, 3))
    assert set(np.unique(in_cells)) <= {0, 17}
    return (in_cells > 0).sum()


def test_the_records_of_the_source():
    records = synthetic.read_crosses({}, count=80)
    assert records["inputs"].shape == (80, 3, 100, 120) and records["inputs"].dtype == np.uint8
    assert records["masks"].shape == (80, 100, 120) and records["masks"].dtype == bool
    assert np.bincount(records["split"]).tolist() == [50, 10, 20]
    counts = np.array([blobs(mask) for mask in records["masks"]])
    np.testing.assert_array_equal(records["labels"], counts > 0)
    assert 25 < records["labels"].sum() < 55 and set(counts) == set(range(7))


def test_masks_are_exactly_the_pixels_of_the_crosses():
    images, masks = synthetic.generate(40, crosses=3)
    for image, mask in zip(images, masks, strict=True):
        assert blobs(mask) == 3
        assert (image[:, mask] < 200).all()
        rows, columns = np.nonzero(mask)
        for row, column in set(zip(rows // 10, columns // 10, strict=True)):
            cell = (slice(10 * row, 10 * row + 10), slice(10 * column, 10 * column + 10))
            inked = (image[(slice(None), *cell)] < 255).any(axis=0)
            np.testing.assert_array_equal(inked, mask[cell])  # one shape a cell
            diagonal = np.eye(9, dtype=bool)
            np.testing.assert_array_equal(inked, np.pad(diagonal | diagonal[::-1], ((0, 1), (0, 1))))
            assert len(np.unique(image[(slice(None), *cell)][:, inked], axis=1).T) == 1  # one colour a shape


def test_shapes_and_their_number():
    images, masks = synthetic.generate(200)
    inked = (images < 255).any(axis=1).reshape(200, 10, 10, 12, 10).sum(axis=(2, 4))
    totals = (inked > 0).sum(axis=(1, 2))
    assert 13.5 < totals.mean() < 14.5 and totals.min() >= 10 and totals.max() <= 18
    sizes = set(np.unique(inked[inked > 0]))
    assert len(sizes) == 4 and {17, 81} < sizes  # cross, triangle, disc, square
    positive = masks.any(axis=(1, 2))
    assert abs(totals[positive].mean() - totals[~positive].mean()) < 1  # their number does not give the class away
    assert (images.reshape(200, 3, -1).max(axis=2) == 255).all()


def test_an_image_does_not_depend_on_the_others():
    images, masks = synthetic.generate(12, seed=4)
    for start, stop in ((0, 3), (5, 12)):
        some, some_masks = synthetic.generate(stop - start, seed=4, first=start)
        np.testing.assert_array_equal(some, images[start:stop])
        np.testing.assert_array_equal(some_masks, masks[start:stop])
    assert (synthetic.generate(12, seed=5)[0] != images).any(axis=(1, 2, 3)).all()
    assert len({image.tobytes() for image in images}) == 12


def test_the_number_of_crosses_of_chosen_images():
    wanted = np.array([0, 1, 6, 2, 25, 0])
    _, masks = synthetic.generate(6, crosses=wanted)
    assert [blobs(mask) for mask in masks] == wanted.tolist()
    mixed, _ = synthetic.generate(6, crosses=wanted, seed=1)
    single, _ = synthetic.generate(1, crosses=6, seed=1, first=2)
    np.testing.assert_array_equal(mixed[2], single[0])


def test_other_sizes():
    images, masks = synthetic.generate(30, height=20, width=30)
    assert images.shape == (30, 3, 20, 30) and masks.shape == (30, 20, 30) and masks.any() and not masks.all()
    _, masks = synthetic.generate(2, crosses=6, height=20, width=30)
    assert [blobs(mask) for mask in masks] == [6, 6]
    assert synthetic.generate(0)[0].shape == (0, 3, 100, 120)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"height": 95}, "height is 95; give a multiple of 10"),
        ({"width": 0}, "width is 0"),
        ({"count": -1}, "count is -1"),
        ({"crosses": 121}, "from 0 to 120"),
        ({"crosses": -1}, "from 0 to 120"),
        ({"crosses": 1.5}, "whole numbers"),
        ({"crosses": [1, 2]}, "2 number"),
    ],
)
def test_mistakes(arguments, words):
    with pytest.raises(ShapelineError, match=words):
        synthetic.generate(**{"count": 3, **arguments})
