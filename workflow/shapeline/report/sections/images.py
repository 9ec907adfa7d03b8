"""Images of a page: a few instances by all methods, masked and misclassified images, mean maps of each class."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from shapeline.designs.stopping import count_settled
from shapeline.methods.registry import METHODS
from shapeline.report import experiment
from shapeline.report.colours import BRIGHT, DARK, signs
from shapeline.report.elements import HTML, figure, heading, join_parts, note
from shapeline.report.experiment import Results
from shapeline.report.figures import score_maps
from shapeline.report.figures.score_maps import LEVEL, Tile, choose_tone, heat_maps, instance_table
from shapeline.report.formatting import format_count, number, share
from shapeline.report.tables import feature_values

MASKED = (0.15, 0.2)  # shares of the features masked, as in the images of Chen et al. (2018)
MAX_WRONG = 6  # misclassified images shown
MAX_CLASSES = 10  # classes that have mean maps


def sections(results: Results) -> HTML:
    """Return all sections on images; empty for other inputs."""
    if results.dataset_card["kind"] != "image":
        return HTML("")
    return join_parts(
        heading("Masked images"),
        masked_section(results),
        heading("Misclassified images") if _has_classes(results) else None,
        mistakes_section(results) if _has_classes(results) else None,
        heading("Mean maps"),
        mean_section(results),
    )


def _has_classes(results: Results) -> bool:
    return bool(results.model_card) and results.dataset_card.get("task") != "regression"


# ------------------------------------------------------------------------------------------------- masked images


def masked_section(results: Results) -> HTML:
    """Return the shown instances with every method's top features masked (Chen et al. 2018, figures 4 and 5)."""
    picked = results.shown
    return figure(
        draw_masked(results, picked),
        "Images with the top features masked, two rows per instance, one column per method",
        f"The top {' and '.join(map(share, MASKED))} of the features by signed score are masked"
        f"{signless(results)}. "
        f"{_colours(results)}",
        vector=False,
    )


def mistakes_section(results: Results) -> HTML:
    """Return misclassified instances with their top features (Chen et al. 2018, figure 3, right), or a note."""
    rows = results.instances
    wrong = rows[rows["label"] != rows["prediction"]]
    of_others = "Features with the largest scores for the wrong class"
    things, explained = "images", "the class that it predicts, not the true one"
    if results.settings.get("target"):
        explained = experiment.describe_explained_class(results)
        of_others = "Features with the largest scores for the explained class"
    if "image" in rows:
        things, explained = "labels", "the label named, whether it is there or not"
    of_all = f"{number(len(wrong))} of the {number(len(rows))} explained {things}"
    if wrong.empty:
        return note(f"The model is correct on all {number(len(rows))} explained {things}.")
    shown = wrong.head(MAX_WRONG)
    first = "" if len(shown) == len(wrong) else f" The first {len(shown)} are shown."
    return join_parts(
        note(f"The model is wrong on {of_all}.{first} The scores explain {explained}."),
        figure(
            draw_masked(results, shown, MASKED[-1:]),
            "Misclassified images with the top features masked, one column per method",
            f"{of_others}: the top {share(MASKED[-1])} of the features{signless(results)}. {_colours(results)}",
            vector=False,
        ),
    )


def draw_masked(results: Results, instances: pd.DataFrame, shares: Sequence[float] = MASKED) -> Figure:
    """Draw a row per instance and share of the features: the image, then the image masked by each method."""
    instances = instances.loc[instances.index.repeat(len(shares))]
    images = results.read_inputs(instances)
    names = results.name_instances(instances)
    of_row = list(shares) * (len(instances) // len(shares))
    if len(shares) > 1:
        names = [f"{name}\n{share(part)} masked" for name, part in zip(names, of_row, strict=True)]
    values = results.select_scores(instances["instance"])
    cells = [results.features_of(image).cells[0] for image in images]
    coloured = [colour_image(image, score_maps.choose_tone(results.dataset_card)) for image in images]

    def tile(row: int, entry: str | None) -> Tile:
        if entry is None:
            return Tile(coloured[row])
        scores = values[entry][row]
        return Tile(None if scores is None else mask_image(coloured[row], images[row], scores, cells[row], of_row[row]))

    return score_maps.picture_grid(names, list(values), tile)


def mask_image(
    coloured: np.ndarray, image: np.ndarray, scores: np.ndarray, cells: np.ndarray, part: float = MASKED[-1]
) -> np.ndarray:
    """Return the image (height, width, 3) with its top features red where it was bright and blue where it was dark.

    image (channels, height, width); scores (d,), of which the largest `share` is masked; cells: features of
    pixels.
    """
    top = np.argsort(-scores, kind="stable")[: max(1, round(part * len(scores)))]
    bright = image.mean(0) > 0.5
    hidden = np.isin(cells, top)
    painted = coloured.copy()
    painted[hidden & bright], painted[hidden & ~bright] = to_rgb(BRIGHT), to_rgb(DARK)
    return painted


def colour_image(image: np.ndarray, tone: str) -> np.ndarray:
    """Return an image (channels, height, width) in [0, 1] as (height, width, 3); tone: of grey images."""
    colours = score_maps.scale_tones(image).clip(0, 1)
    if colours.ndim == 3:
        return colours
    return np.repeat((1 - colours if tone == "gray_r" else colours)[..., None], 3, axis=2)


def _colours(results: Results) -> str:
    if score_maps.choose_tone(results.dataset_card) == "gray_r":
        return "Masked pixels are red where there was ink and blue where there was none."
    return "Masked pixels are red where they were bright and blue where they were dark."


# ------------------------------------------------------------------------------------------------------- mean maps


def mean_section(results: Results) -> HTML:
    """Return the mean image and the mean score map of every method, a row per class."""
    regression = results.dataset_card.get("task") == "regression"
    means = mean_maps(results)
    kind = "predicted " if results.model_card and "target" not in results.instances else ""
    classes = results.dataset_card.get("classes")
    names = [
        ("all" if regression else f"{kind}{classes[group]}") + f"\n{format_count(count, 'instance')}"
        for group, (_, _, count) in means.items()
    ]
    some = next(iter(means.values()))[0]
    entries = list(results.scores)
    drawing = score_maps.heat_maps(
        np.stack([mean for mean, _, _ in means.values()]),
        names,
        {entry: [maps[entry] for _, maps, _ in means.values()] for entry in entries},
        [np.arange(some[0].size).reshape(some[0].shape)] * len(means),
        tone=score_maps.choose_tone(results.dataset_card),
    )
    more = (
        ""
        if len(means) == len(np.unique(_groups(results.instances)))
        else f" The first {MAX_CLASSES} classes are shown."
    )
    return figure(
        drawing,
        "Mean image and mean score map of every method, one row per class",
        "Means over the explained instances of the image and of the scores, where the method did not fail. "
        f"{signs('the class')}{signless(results)}; every map is scaled by its own largest "
        "magnitude, written below it. Where objects have different positions, the mean shows the average position "
        f"only.{more}",
        vector=False,
    )


def mean_maps(results: Results) -> dict[int, tuple[np.ndarray, dict[str, np.ndarray | None], int]]:
    """Return by explained class: mean image, method -> mean scores per pixel (None where it failed), count."""
    rows = results.instances
    groups = _groups(rows)
    scores = results.select_scores(rows["instance"])
    images = results.read_inputs(rows)
    by_class = {}
    for group in np.unique(groups)[:MAX_CLASSES]:
        indices = np.flatnonzero(groups == group)
        maps = {entry: mean_map(results, images, values, indices) for entry, values in scores.items()}
        by_class[int(group)] = images[indices].mean(0), maps, len(indices)
    return by_class


def _groups(instances: pd.DataFrame) -> np.ndarray:
    """Return the explained class of every instance (n,), 0 for a regression."""
    explained = instances["target" if "target" in instances else "prediction"].to_numpy()
    return explained if explained.dtype.kind in "iu" else np.zeros(len(explained), int)


def mean_map(results: Results, images: np.ndarray, values: list, places: np.ndarray) -> np.ndarray | None:
    """Return mean scores per pixel over some instances, 0 where no feature includes it; None without scores."""
    fine = [index for index in places if values[index] is not None]
    if not fine:
        return None
    if results.features is not None:  # the map of the mean scores equals the mean map and costs one
        mean = np.mean([values[index] for index in fine], axis=0)
        return np.append(mean, 0.0)[results.features.cells[0]].ravel()
    total = sum(np.append(values[index], 0.0)[results.features_of(images[index]).cells[0]] for index in fine)
    return total.ravel() / len(fine)


def signless(results: Results) -> str:
    """Return a bracketed note on methods whose scores have one sign or none, for a caption with signed colours."""
    without, positive = [], []
    for entry in results.scores:
        settings = results.entries[entry]
        method = METHODS[settings["method"]]
        if method.unsigned:
            without.append(entry)
        elif method.is_one_sided(settings.get("parameters") or {}):
            positive.append(entry)
    parts = [("without a sign", without), ("only what is positive", positive)]
    listed = "; ".join(f"{words}: {', '.join(entries)}" for words, entries in parts if entries)
    return listed and f" ({listed})"


def explanations(results: Results) -> HTML:
    """Return the scores of a few instances by all methods side by side: maps for images, else a table of features."""
    picked = results.shown
    values = results.select_scores(picked["instance"])
    names = results.name_instances(picked)
    if results.dataset_card["kind"] == "image":
        images = results.read_inputs(picked)
        regression = results.dataset_card.get("task") == "regression"
        meaning = signs("a larger prediction" if regression else experiment.describe_explained_class(results))
        caption = (
            f"{meaning}{signless(results)}. Every map is scaled by its "
            "own largest magnitude, written below it: compare places within a map, not colours between maps."
            f"{experiment.describe_rows(results)}"
        )
        cells = [results.features_of(image).cells[0] for image in images]
        half = intervals(results, picked["instance"])
        caption += " No colour: the 95 % interval of a sampled score includes 0." * bool(half)
        drawing = heat_maps(images, names, values, cells, tone=choose_tone(results.dataset_card), half=half)
        maps = figure(drawing, "Score maps of a few instances, one column per method", caption, vector=False)
        return join_parts(maps, order_note(results))
    ends = results.select_scores(picked["instance"], "standard_error")
    rows = results.read_inputs(picked)
    tables = [
        instance_table(
            experiment.describe_units(results),
            {entry: scores[index] for entry, scores in values.items()},
            {entry: scores[index] for entry, scores in ends.items()},
            list_named_values(results, row),
            name,
        )
        for index, (row, name) in enumerate(zip(rows, names, strict=True))
    ]
    return join_parts(HTML("".join(tables)), order_note(results))


def intervals(results: Results, instances: Sequence[int]) -> dict[str, list[np.ndarray | None]]:
    """Return half-widths of 95 % intervals of the methods that have any: (d,) per instance, None where unknown."""
    found = results.select_scores(instances, "standard_error")
    known = {entry: rows for entry, rows in found.items() if any(row is not None for row in rows)}
    return {entry: [None if row is None else LEVEL * row for row in rows] for entry, rows in known.items()}


def order_note(results: Results) -> HTML | None:
    """Return how certain the order of the largest scores is, by method; None where no method has intervals."""
    medians = []
    for entry, frame in results.scores.items():
        rows = experiment.good(frame).reindex(columns=["scores", "standard_error"]).dropna()
        pairs = [(np.asarray(one)[None], np.asarray(spread)[None]) for one, spread in rows.itertuples(index=False)]
        indices = np.array([count_settled(*pair)[0] for pair in pairs])
        if len(indices):
            medians.append(f"{entry} {number(np.median(indices))} ({share((indices > 0).mean())} settle the first)")
    if not medians:
        return None
    return note(
        "Settled order (median over explanations): number of largest scores that differ significantly, at 95 %, from "
        f"all smaller ones: {'; '.join(medians)}. Below these, the order is not significant."
    )


def list_named_values(results: Results, row: np.ndarray) -> list[str]:
    """Return a row's features with their values, as age = 39; only the name for a large group of columns."""
    names, features = experiment.feature_names(results), results.features_of(row)
    values = feature_values(row, features, results.dataset_card)
    several = np.bincount(features.cells[features.cells >= 0], minlength=features.d) > 1
    return [
        name if many and value.endswith(" columns") else f"{name} = {_category(name, value) if many else value}"
        for name, value, many in zip(names, values, several, strict=True)
    ]


def _category(name: str, value: str) -> str:
    """Return the category in the name of a one-hot column, as in job=clerk or job_clerk."""
    return value.removeprefix(name).lstrip("=_ ") if value.removeprefix(name)[:1] in ("=", "_") else value
