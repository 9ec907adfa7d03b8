"""Instances of a page: the explorer, and images by all methods, masked, misclassified, and averaged."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from shapeline.datasets import tokenizer
from shapeline.datasets.loading import is_series
from shapeline.designs.stopping import count_ranked
from shapeline.methods.registry import METHODS
from shapeline.report import experiment
from shapeline.report.colours import BRIGHT, DARK, signs
from shapeline.report.elements import HTML, figure, heading, join_parts, note
from shapeline.report.experiment import Results
from shapeline.report.explorer import Entry, ExplorerData, Instance, count_shown, explorer_html, to_data_uri
from shapeline.report.figures import score_maps
from shapeline.report.figures.score_maps import LEVEL, Tile, choose_tone, heat_maps, instance_table
from shapeline.report.formatting import explain_unit, format_count, number, share
from shapeline.report.tables import feature_values

MASKED = (0.15, 0.2)  # shares of the features masked, as in the images of Chen et al. (2018)
MAX_WRONG = 6  # misclassified images shown
MAX_CLASSES = 10  # classes that have mean maps
NUMBERING = "An instance has the number of its row in the data, from 0."
MAX_BYTES = 400_000  # of the scores of all methods, from which the number of instances follows


def sections(results: Results) -> HTML:
    """Return all sections on images; empty for other inputs."""
    if results.dataset_card["kind"] != "image":
        return HTML("")
    things = name_inputs(results)
    parts = [heading(f"Masked {things}"), masked_section(results)]
    if results.model_card and results.dataset_card.get("task") != "regression":
        parts += [heading(f"Misclassified {things}"), mistakes_section(results)]
    return join_parts(*parts, heading("Mean maps"), mean_section(results))


def name_inputs(results: Results) -> str:
    """Return what the inputs are, in the plural."""
    return "series" if is_series(results.dataset_card) else "images"


def masked_section(results: Results) -> HTML:
    """Return the shown instances with every method's top features masked (Chen et al. 2018, figures 4 and 5)."""
    return figure(
        draw_masked(results, results.shown),
        f"{name_inputs(results).capitalize()} with the top features masked, two rows per instance, one column per "
        "method",
        f"The top {' and '.join(map(share, MASKED))} of the features by signed score are masked{signless(results)}. "
        f"{_name_colours(results)}",
        vector=False,
    )


def mistakes_section(results: Results) -> HTML:
    """Return misclassified instances with their top features (Chen et al. 2018, figure 3, right), or a note."""
    rows = results.instances
    wrong = rows[rows["label"] != rows["prediction"]]
    of_others = "Features with the largest scores for the wrong class"
    things, explained = name_inputs(results), "the class that it predicts, not the true one"
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
            f"Misclassified {name_inputs(results)} with the top features masked, one column per method",
            f"{of_others}: the top {share(MASKED[-1])} of the features{signless(results)}. {_name_colours(results)}",
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
    images = score_maps.scale_series(images, results.dataset_card)
    coloured = [colour_image(image, score_maps.choose_tone(results.dataset_card)) for image in images]

    def tile(row: int, entry: str | None) -> Tile:
        if entry is None:
            return Tile(coloured[row])
        scores = values[entry][row]
        return Tile(None if scores is None else mask_image(coloured[row], images[row], scores, cells[row], of_row[row]))

    return score_maps.image_grid(names, list(values), tile)


def mask_image(
    coloured: np.ndarray, image: np.ndarray, scores: np.ndarray, cells: np.ndarray, part: float = MASKED[-1]
) -> np.ndarray:
    """Return the image (height, width, 3) with its top features red where it was bright and blue where it was dark.

    image (channels, height, width); scores (d,), of which the largest share `part` is masked; cells: features of
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


def _name_colours(results: Results) -> str:
    if is_series(results.dataset_card):
        return "Masked cells are red where they were high and blue where they were low."
    if score_maps.choose_tone(results.dataset_card) == "gray_r":
        return "Masked pixels are red where there was ink and blue where there was none."
    return "Masked pixels are red where they were bright and blue where they were dark."


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
    images = score_maps.scale_series(np.stack([mean for mean, _, _ in means.values()]), results.dataset_card)
    drawing = score_maps.heat_maps(
        images,
        names,
        {entry: [maps[entry] for _, maps, _ in means.values()] for entry in results.scores},
        [np.arange(images[0, 0].size).reshape(images[0, 0].shape)] * len(means),
        tone=score_maps.choose_tone(results.dataset_card),
    )
    is_cut = len(means) < len(np.unique(_group_instances(results.instances)))
    more = f" The first {MAX_CLASSES} classes are shown." * is_cut
    noun = "series" if is_series(results.dataset_card) else "image"
    return figure(
        drawing,
        f"Mean {noun} and mean score map of every method, one row per class",
        f"Means over the explained instances of the {noun} and of the scores, where the method did not fail. "
        f"{signs(experiment.describe_positive(results))}{signless(results)}; every map is scaled by its own largest "
        "magnitude, written below it. Where objects have different positions, the mean shows the average position "
        f"only.{more}",
        vector=False,
    )


def mean_maps(results: Results) -> dict[int, tuple[np.ndarray, dict[str, np.ndarray | None], int]]:
    """Return by explained class: mean image, method -> mean scores per pixel (None where it failed), count."""
    rows = results.instances
    groups = _group_instances(rows)
    scores = results.select_scores(rows["instance"])
    images = results.read_inputs(rows)
    by_class = {}
    for group in np.unique(groups)[:MAX_CLASSES]:
        indices = np.flatnonzero(groups == group)
        maps = {entry: mean_map(results, images, values, indices) for entry, values in scores.items()}
        by_class[int(group)] = images[indices].mean(0), maps, len(indices)
    return by_class


def _group_instances(instances: pd.DataFrame) -> np.ndarray:
    """Return the explained class of every instance (n,), 0 for a regression."""
    explained = instances["target" if "target" in instances else "prediction"].to_numpy()
    return explained if explained.dtype.kind in "iu" else np.zeros(len(explained), int)


def mean_map(results: Results, images: np.ndarray, values: list, indices: np.ndarray) -> np.ndarray | None:
    """Return mean scores per pixel over some instances, 0 where no feature includes it; None without scores."""
    fine = [index for index in indices if values[index] is not None]
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


def explanations(results: Results, truth: np.ndarray | None = None) -> HTML:
    """Return the scores of a few instances by all methods: maps for images, else a table of features.

    truth: (n, height, width) bool, pixels of the explained class, which are boxed.
    """
    picked = results.shown
    values = results.select_scores(picked["instance"])
    names = results.name_instances(picked)
    if results.dataset_card["kind"] == "image":
        images = results.read_inputs(picked)
        cells = [results.features_of(image).cells[0] for image in images]
        indices = pd.Index(results.instances["instance"]).get_indexer(picked["instance"])
        regions = None if truth is None else truth[indices]
        half = intervals(results, picked["instance"])
        caption = (
            f"{signs(experiment.describe_positive(results))}{signless(results)}. Every map is scaled by its own "
            "largest magnitude, written below it: compare places within a map, not colours between maps."
        )
        of_labels = " Each label has a row of its own, and the images that have most labels come first."
        caption += of_labels * ("image" in results.instances)
        caption += " No colour: the 95 % interval of a sampled score includes 0." * bool(half)
        caption += " Green boxes: the true regions." * (truth is not None)
        columns, tone = 9 if truth is None else score_maps.BOXED_COLUMNS, choose_tone(results.dataset_card)
        images = score_maps.scale_series(images, results.dataset_card)
        drawing = heat_maps(images, names, values, cells, columns, tone, half, regions)
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
    errors = results.select_scores(instances, "standard_error")
    known = {entry: rows for entry, rows in errors.items() if any(row is not None for row in rows)}
    return {entry: [None if row is None else LEVEL * row for row in rows] for entry, rows in known.items()}


def order_note(results: Results) -> HTML | None:
    """Return how certain the order of the largest scores is, by method; None where no method has intervals."""
    medians = []
    for entry, frame in results.scores.items():
        rows = experiment.drop_failures(frame).reindex(columns=["scores", "standard_error"]).dropna()
        pairs = [(np.asarray(one)[None], np.asarray(spread)[None]) for one, spread in rows.itertuples(index=False)]
        indices = np.array([count_ranked(*pair)[0] for pair in pairs])
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
    names, features = experiment.name_features(results), results.features_of(row)
    values = feature_values(row, features, results.dataset_card)
    several = np.bincount(features.cells[features.cells >= 0], minlength=features.d) > 1
    return [
        name if many and value.endswith(" columns") else f"{name} = {_find_category(name, value) if many else value}"
        for name, value, many in zip(names, values, several, strict=True)
    ]


def _find_category(name: str, value: str) -> str:
    """Return the category in the name of a one-hot column, as in job=clerk or job_clerk."""
    return value.removeprefix(name).lstrip("=_ ") if value.removeprefix(name)[:1] in ("=", "_") else value


def explorer(results: Results, recommended: Sequence[str] = (), fallback: HTML | None = None) -> HTML:
    """Return the explorer with its heading; recommended: methods shown first; fallback: without JavaScript."""
    shown = explorer_html(explorer_data(results, recommended), "" if fallback is None else fallback.data)
    return join_parts(heading("Instances", 2), HTML(shown))


def explorer_data(results: Results, recommended: Sequence[str] = ()) -> ExplorerData:
    """Return the explained instances, those of the static figures first, with the scores of all methods."""
    first = results.shown
    others = results.instances[~results.instances["instance"].isin(first["instance"])]
    rows = pd.concat([first, others], ignore_index=True)
    entries = list_entries(results, rows["instance"])
    least = min(len(first), max(count_shown(entries, 3 * MAX_BYTES), 1))
    shown = min(max(least, count_shown(entries, MAX_BYTES)), len(rows))
    others = [entry for entry in results.scores if not results.entries[entry].get("is_control")]
    estimates = [entry for entry in others if entry != results.exact] or list(results.scores)
    default = [*estimates[:1], *([results.exact] if results.exact in results.scores else [])]
    shared = results.features
    kind = results.dataset_card["kind"]
    return ExplorerData(
        kind=kind,
        instances=_list_instances(results, rows, shown),
        entries=entries,
        names=() if shared is None else experiment.name_features(results),
        cells=shared.cells[0] if kind == "image" and shared is not None else None,
        explained=experiment.describe_positive(results),
        unit=results.value_unit,
        recommended=[entry for entry in recommended if entry in results.scores] or default,
        n_shown=shown,
        note=" ".join(filter(None, [explain_unit(results.value_unit), NUMBERING])),
    )


def list_entries(results: Results, instances: pd.Series) -> list[Entry]:
    """Return the methods with their scores of instances."""
    evaluations, seconds = experiment.average_evaluations(results), experiment.average_seconds(results)
    gradients = experiment.list_gradient_methods(results)
    entries = []
    for entry, frame in results.scores.items():
        errors = experiment.select_scores(frame, instances, "standard_error")
        half = [None if error is None else LEVEL * error for error in errors]
        unit = experiment.find_unit(results, entry)
        noun = "gradient" if entry in gradients else "evaluation"
        costs = [format_count(evaluations[entry], noun)] * bool(np.isfinite(evaluations[entry]))
        costs += [f"{number(1000 * seconds[entry])} ms per instance"] * bool(np.isfinite(seconds[entry]))
        is_of_truth = METHODS[results.entries[entry]["method"]].explains_own_class and results.model_card
        costs += ["for the true class"] * bool(is_of_truth and results.dataset_card.get("task") != "regression")
        entries.append(
            Entry(
                name=entry,
                scores=experiment.select_scores(frame, instances),
                half=half if any(one is not None for one in half) else None,
                note=", ".join(costs),
                unit="" if unit == results.value_unit else unit or "none",
            )
        )
    return entries


def _list_instances(results: Results, rows: pd.DataFrame, shown: int) -> list[Instance]:
    """Return the instances; the first `shown` with their inputs."""
    values = _list_end_values(results, rows["instance"])
    inputs = _list_inputs(results, rows.head(shown))
    facts = [_describe_instance(results, row) for row in rows.to_dict("records")]
    contents = [next(inputs, {}) if index < shown else {} for index in range(len(rows))]
    for content, second in zip(contents, rows.get("second", ()), strict=False):
        content |= {} if pd.isna(second) else {"second": int(second)}
    words = list_words(results, rows) if results.dataset_card["kind"] == "text" else [None] * len(rows)
    return [
        Instance(**fact, **{"names": names, **content}, base=base, full=full)
        for fact, names, content, (base, full) in zip(facts, words, contents, values, strict=True)
    ]


def _list_inputs(results: Results, rows: pd.DataFrame):
    """Yield what is shown of each input: values of a record, or the image with its own features."""
    kind = results.dataset_card["kind"]
    if kind == "text":
        return
    inputs = results.read_inputs(rows)
    scaled = score_maps.scale_series(inputs, results.dataset_card)
    for one, shown in zip(inputs, scaled, strict=True):
        features = results.features_of(one)
        if kind == "table":
            yield {"values": feature_values(one, features, results.dataset_card)}
        else:
            image = to_data_uri(colour_image(shown, choose_tone(results.dataset_card)))
            yield {"image": image} | ({"cells": features.cells[0]} if results.features is None else {})


def list_words(results: Results, rows: pd.DataFrame) -> list[Sequence[str]]:
    if "words" in rows:
        return list(rows["words"])
    return [tokenizer.list_words(text, results.dataset_card) for text in rows["text"]]


def _describe_instance(results: Results, row: Mapping) -> dict:
    """Return the name, the prediction and the true class of an instance in words."""
    card, classes = results.dataset_card, results.dataset_card.get("classes")
    if card.get("task") == "regression":
        prediction, label = (number(row[key], 4, whole=False) for key in ("prediction", "label"))
        return {"id": str(row["instance"]), "prediction": prediction, "label": label}
    if not results.model_card:
        return {"id": str(row["instance"]), "label": str(classes[row["label"]]) if classes else None}
    probability = f"(P = {row['probability']:.3f})"
    if "image" in row:
        there = {True: "present", False: "absent"}
        facts = {"id": f"{row['image']}:{classes[row['target']]}", "label": there[bool(row["label"])]}
        facts["prediction"] = f"{classes[row['target']]} {there[bool(row['prediction'])]} {probability}"
    else:
        facts = {"id": str(row["instance"]), "prediction": f"{classes[row['prediction']]} {probability}"}
        facts["label"] = str(classes[row["label"]]) if row["label"] >= 0 else None
        facts["explained"] = experiment.find_other_class(results, row) or ""
    return facts | {"wrong": row["label"] >= 0 and row["label"] != row["prediction"]}


def _list_end_values(results: Results, instances: pd.Series) -> list[tuple[float | None, float | None]]:
    """Return the base value and the value of the input of each instance, by the first method that has them."""
    known = [
        experiment.drop_failures(frame).drop_duplicates("instance").set_index("instance")[["value_empty", "value_full"]]
        for frame in results.scores.values()
        if {"value_empty", "value_full"} <= set(frame)
    ]
    ends = pd.DataFrame(np.nan, index=pd.Index(instances), columns=["value_empty", "value_full"])
    for frame in known:
        ends = ends.combine_first(frame.reindex(ends.index))
    return list(ends.loc[instances].itertuples(index=False, name=None))
