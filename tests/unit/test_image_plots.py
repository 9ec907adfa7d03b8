"""Sections on images: masked pixels and their colours, misclassified images, mean maps."""

import dataclasses
import re

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb

from shapeline.report import experiment
from shapeline.report.colours import BRIGHT, DARK
from shapeline.report.elements import wrap_name
from shapeline.report.figures import score_maps
from shapeline.report.sections import images, importance
from tests.fixtures.result_folder import METHODS, build

RED, BLUE = to_rgb(BRIGHT), to_rgb(DARK)


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> experiment.Results:
    return experiment.load(**build(tmp_path_factory.mktemp("image"), "image", ("exact", "kernel_shap", "lime")))


def test_the_top_fifth_is_red_where_it_was_bright_and_blue_where_it_was_dark():
    image = np.array([[[0.9, 0.2], [0.0, 0.8], [1.0, 0.4], [0.3, 0.6], [0.1, 0.7]]])
    picture = images.colour_image(image, "gray")
    scores = np.array([5.0, 4, 0, 1, 0, 0, 0, 0, 0, -9])  # the sign counts
    painted = images.mask_image(picture, image, scores, np.arange(10).reshape(5, 2))
    assert tuple(painted[0, 0]) == RED and tuple(painted[0, 1]) == BLUE
    assert (painted[1:] == picture[1:]).all()
    assert (images.mask_image(picture, image, scores[:2], np.zeros((5, 2), int))[0, 1] == BLUE).all()  # at least one


def test_features_of_many_pixels_and_pixels_of_none():
    image = np.full((3, 2, 4), 0.2)
    image[:, 0, 0] = [1.0, 1.0, 0.0]  # bright on the mean of its channels
    cells = np.array([[0, 0, 1, -1], [2, 2, 3, 4]])
    painted = images.mask_image(images.colour_image(image, "gray"), image, np.array([3.0, 1, 1, 1, 1]), cells)
    assert tuple(painted[0, 0]) == RED and tuple(painted[0, 1]) == BLUE
    np.testing.assert_allclose(painted[1], 0.2)
    np.testing.assert_allclose(painted[0, 2:], 0.2)


def test_ink_is_dark_and_photographs_are_as_they_are(results):
    ink = np.array([[[1.0, 0.25]]])
    np.testing.assert_allclose(images.colour_image(ink, "gray_r")[0], [[0] * 3, [0.75] * 3])
    np.testing.assert_allclose(images.colour_image(ink, "gray")[0], [[1] * 3, [0.25] * 3])
    assert images.colour_image(np.ones((3, 2, 2)), "gray_r").min() == 1  # colours are never inverted
    names = ("mnist", "digits", "fer", "image_folder", "my.py:read")
    assert [score_maps.choose_tone({"source": name}) for name in names] == [
        *("gray_r", "gray_r", "gray", "gray", "gray")
    ]  # fmt: skip
    photographs = dataclasses.replace(results, dataset_card={**results.dataset_card, "source": "fer"})
    for one, word in ((results, "ink"), (photographs, "bright")):
        assert f"red where {'there was' if word == 'ink' else 'they were'} {word}" in images.sections(one).data


def test_the_grid_has_rows_of_15_and_20_percent_per_instance_and_reports_failures(results):
    drawing = images.draw_masked(results, results.instances.head(3))
    [axes] = drawing.axes
    failed = [text for text in axes.texts if text.get_text() == "failed"]
    assert len(failed) == 2  # lime on the first instance
    assert len(axes.images) == 3 * 2 * (1 + 3) - len(failed)
    tiles = [np.asarray(image.get_array()) for image in axes.images]
    first = tiles[0]
    image = results.dataset.inputs[experiment.find_positions(results.dataset, results.instances.head(1))][0]
    np.testing.assert_allclose(first, images.colour_image(image, "gray_r"), atol=1 / 255)
    few, more = ((tiles[place] != first).any(-1) for place in (1, 4))
    assert few.any() and few.sum() <= 2 * 4 and more.sum() <= 3 * 4  # two and three patches of four pixels, of sixteen
    assert more[few].all() and more.sum() > few.sum()
    [axes] = images.draw_masked(results, results.instances.head(3), (0.2,)).axes
    assert len(axes.images) == 3 * (1 + 3) - 1


def test_misclassified_images_are_shown_or_reported_as_none(results):
    page = images.mistakes_section(results).data  # the folder has one
    assert "wrong on 1 of the 12 explained images" in page and "<figure>" in page and "are shown" not in page
    right = results.instances.assign(prediction=results.instances["label"])
    page = images.mistakes_section(dataclasses.replace(results, instances=right)).data
    assert "correct on all 12" in page and "<figure>" not in page
    wrong = results.instances.assign(prediction=1 - results.instances["label"])
    page = images.mistakes_section(dataclasses.replace(results, instances=wrong)).data
    assert "12 of the 12" in page and "The first 6 are shown." in page


def test_mean_maps_are_the_means_of_the_maps(results):
    means = images.mean_maps(results)
    assert list(means) == [0, 1] and sum(count for *_, count in means.values()) == 12
    for group, (picture, maps, count) in means.items():
        rows = results.instances[results.instances["prediction"] == group]
        assert count == len(rows)
        shown = results.dataset.inputs[experiment.find_positions(results.dataset, rows)]
        np.testing.assert_allclose(picture, shown.mean(0))
        for entry, found in maps.items():
            scores = [
                row for row in experiment.select_scores(results.scores[entry], rows["instance"]) if row is not None
            ]
            np.testing.assert_allclose(found.reshape(8, 8)[::2, ::2].ravel(), np.mean(scores, 0))


def test_only_a_page_with_omitted_classes_reports_it(results, monkeypatch):
    monkeypatch.setattr(images, "MAX_CLASSES", 2)  # as many as there are
    assert "classes are shown" not in images.mean_section(results).data
    monkeypatch.setattr(images, "MAX_CLASSES", 1)
    assert "The first 1 classes are shown." in images.mean_section(results).data


def test_every_caption_of_signed_colours_names_unsigned_scores(results):
    def captions(**entries: dict) -> list[str]:
        scores = {entry: results.scores["exact"] for entry in entries}
        other = dataclasses.replace(results, entries=entries, scores=scores)
        pages = images.explanations(other).data, *images.sections(other).data.split("<h3")[1:]
        found = [caption for page in pages for caption in re.findall(r"<figcaption.*?</figcaption>", page, re.S)]
        assert len(found) == 4
        return found

    told = "(without a sign: saliency, quiet; only what is positive: cam)"
    entries = {"saliency": {"method": "saliency"}, "quiet": {"method": "smooth_grad"}, "cam": {"method": "grad_cam"}}
    assert all(told in caption for caption in captions(**entries, exact=results.entries["exact"]))
    signed = {"method": "grad_cam", "parameters": {"signed": True}}
    assert not any("sign" in caption.replace("signed score", "") for caption in captions(cam=signed))


def test_mean_maps_of_features_that_differ_and_of_a_method_that_failed(results):
    settings = {**results.settings, "features": {"kind": "patch", "size": 2}}
    varying = dataclasses.replace(results, features=None, settings=settings)
    fixed, found = images.mean_maps(results), images.mean_maps(varying)
    for group in fixed:
        for entry in ("exact", "lime"):  # lime failed on one instance
            np.testing.assert_allclose(found[group][1][entry], fixed[group][1][entry])
    failed = {**results.scores, "lime": results.scores["lime"].assign(status="memory")}
    without = dataclasses.replace(varying, scores=failed)
    assert [maps["lime"] for _, maps, _ in images.mean_maps(without).values()] == [None, None]
    assert "Mean maps" in images.sections(without).data


def test_a_count_above_a_mean_map_stays_on_one_line(results, monkeypatch):
    named = []
    monkeypatch.setattr(importance.score_maps, "image_grid", lambda _, columns, *more, **kinds: named.extend(columns))
    importance.section(results, "exact")
    lines = [wrap_name(name, 1.0).splitlines()[-1] for name in named]
    assert len(lines) > 2 and all(re.search(r"\(n\s=\s\d+\)$", line) for line in lines)


def test_other_data_have_no_sections(tmp_path):
    table = experiment.load(**build(tmp_path / "table", "table", tuple(METHODS)[:3]))
    assert images.sections(table).data == ""


def test_without_a_model_the_section_of_mistakes_is_empty(results):
    rows = pd.DataFrame({**results.instances, "prediction": results.instances["label"]})
    page = images.sections(dataclasses.replace(results, model_card={}, instances=rows)).data
    assert "gets wrong" not in page and "Mean maps" in page and "predicted" not in page
