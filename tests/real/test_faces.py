"""The 15,066 faces of FER2013 in class folders, by their source and as custom images."""

import numpy as np
import pytest

from shapeline.datasets import loading, preparation, sources
from tests.fixtures.failures import failure


@pytest.mark.real
def test_the_faces_are_the_same_by_either_source(real_data, tmp_path):
    path = str(real_data("fer2013", "fer2013_kaggle_happy_sad.tar.xz"))
    message = failure(preparation.prepare, "image_folder", {"path": path}, [], tmp_path / "refused")
    assert message.endswith("is grey and colour is expected; set color: grey, or save the image as RGB.")
    card = preparation.prepare("image_folder", {"path": path, "color": "grey"}, [], tmp_path / "folders")
    preparation.prepare("fer", {"path": path}, [], tmp_path / "fer")
    data, faces = (loading.load(tmp_path / name) for name in ("folders", "fer"))
    assert card["records"]["read"] == 15066 and card["classes"] == ["happy", "sad"]
    np.testing.assert_array_equal(data.inputs[faces.ids], faces.inputs)
    np.testing.assert_array_equal(data.labels[faces.ids], faces.labels)
    np.testing.assert_array_equal(data.split[faces.ids] == sources.TEST, faces.split == sources.TEST)
