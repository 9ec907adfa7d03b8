"""Custom images, from class folders to the report; an additional image prepares the dataset again."""

import json

import numpy as np
import pytest
import yaml

from shapeline import scores
from shapeline.datasets import loading
from tests.fixtures import picture_files, text_files
from tests.fixtures.picture_files import encoded, painted
from tests.workflow.conftest import copy_repository

pytestmark = pytest.mark.xdist_group("pictures")  # one run serves all


def own_images(folder) -> dict:
    return {
        "run": ["pets"],
        "datasets": {
            "pets": {"source": "image_folder", "path": str(folder), "size": [16, 16], "on_decode_error": "skip"}
        },
        "models": {"cnn": {"dataset": "pets", "architecture": "digits_cnn", "training": {"epochs": 30}}},
        "experiments": {
            "pets": {
                "model": "cnn",
                "features": {"kind": "patch", "size": 8},
                "instances": {"count": 6},
                "methods": {
                    "exact": {"method": "shapley"},
                    "l_shapley": {"method": "l_shapley"},
                    "occlusion": {"method": "occlusion"},
                },
                "metrics": {"log_odds": {}, "error": {"reference": "exact"}, "cost": {}},
            }
        },
    }


@pytest.fixture(scope="module")
def pets(root, tmp_path_factory):
    """Deer are red above, horses blue above; one image is larger and one is none."""
    folder = tmp_path_factory.mktemp("pets")
    checkout = copy_repository(root, folder / "checkout")
    files = picture_files.folders(n=20)
    wide = np.repeat(painted(picture_files.COLOURS["deer"], 99, (24, 24)), 2, axis=1)
    files |= {"deer/wide.jpg": encoded(wide, "JPEG"), "horse/broken.jpg": b"\xff\xd8\xff\xe0"}
    text_files.write_folder(folder / "pictures", files)
    checkout.configure(own_images(folder / "pictures"))
    checkout.snakemake("pets", "--cores", "2")  # without the index and the page of theory
    return checkout, folder / "pictures"


def test_custom_images_reach_the_report(pets):
    checkout, _ = pets
    card = json.loads((checkout.path / "data/prepared/pets/card.json").read_text())
    assert card["classes"] == ["deer", "horse"] and card["input_shape"] == [3, 16, 16]
    assert card["notes"] == ["cannot be decoded and left out: horse/broken.jpg"]
    data = loading.load(checkout.path / "data/prepared/pets")
    assert data.inputs.shape == (41, 3, 16, 16) and 0 <= data.inputs.min() < data.inputs.max() <= 1
    assert json.loads((checkout.path / "results/models/cnn/card.json").read_text())["test_accuracy"] == 1
    rows = scores.read(checkout.path / "results/pets/scores/exact")
    assert len(rows) == 6 and (rows["status"] == "ok").all() and (rows["scores"].map(len) == 4).all()
    gap = rows["scores"].map(sum) - (rows["value_full"] - rows["value_empty"])
    assert gap.abs().max() < 1e-4
    assert "Agreement between methods" in (checkout.path / "results/reports/pets.html").read_text()
    assert {rule for rule, _ in checkout.pending()} <= {"render_theory", "render_index"}


def test_an_additional_image_prepares_the_dataset_again(pets):
    checkout, folder = pets
    (folder / "deer/new.png").write_bytes(encoded(painted(picture_files.COLOURS["deer"], 100)))
    assert ("prepare_dataset", "data/prepared/pets/card.json") in checkout.pending()


def test_a_grey_image_stops_the_run_with_one_line(fresh, tmp_path):
    files = picture_files.folders(n=6) | {"deer/grey.png": encoded(np.zeros((9, 9)))}
    raw = own_images(text_files.write_folder(tmp_path / "pictures", files))
    del raw["datasets"]["pets"]["on_decode_error"]
    fresh.configure(raw)
    done = fresh.snakemake("data/prepared/pets/card.json", "--cores", "1", check=False)
    assert done.returncode
    log = (fresh.path / "results/logs/prepare_dataset/pets.log").read_text()
    assert "deer/grey.png: is grey and colour is expected; set color: grey" in log
    assert not (fresh.path / "data/prepared/pets").exists() or not any((fresh.path / "data/prepared/pets").iterdir())
    # Without `size` the features' number is known only when the images are read; a wrong key is told at once.
    fresh.configure(
        yaml.safe_load(yaml.safe_dump(raw).replace("size: [16", "sizes: [16").replace("size:\n", "sizes:\n"))
    )
    done = fresh.snakemake("-n", check=False)
    assert "datasets.pets.sizes: unknown key. Did you mean 'size'?" in done.stderr + done.stdout
