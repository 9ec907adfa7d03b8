"""The scores of a few instances."""

from collections.abc import Sequence

import numpy as np

from shapeline.designs.stopping import settled_places
from shapeline.methods.registry import METHODS
from shapeline.report import experiment
from shapeline.report.colours import signs
from shapeline.report.elements import figure, join_parts, note
from shapeline.report.experiment import Results
from shapeline.report.figures.score_maps import LEVEL, heat_maps, instance_table, tone_of
from shapeline.report.formatting import number, share
from shapeline.report.html import HTML
from shapeline.report.tables import record_values


def signless(results: Results) -> str:
    """What a caption with colours of signs says, in brackets, of the labels whose scores lack one or both of them."""
    without, positive = [], []
    for label in results.scores:
        entry = results.labels[label]
        method = METHODS[entry["method"]]
        if method.unsigned:
            without.append(label)
        elif method.is_one_sided(entry.get("parameters") or {}):
            positive.append(label)
    said = [("without a sign", without), ("only what is positive", positive)]
    listed = "; ".join(f"{words}: {', '.join(labels)}" for words, labels in said if labels)
    return listed and f" ({listed})"


def explanations(results: Results) -> HTML:
    """The scores of a few instances by all labels side by side: maps for an image, a table of features otherwise."""
    picked = experiment.choose_instances(results.instances, int(results.settings.get("n_shown") or 4))
    values = {label: experiment.scores_of(frame, picked["instance"]) for label, frame in results.scores.items()}
    names = [experiment.instance_name(results, row) for row in picked.to_dict("records")]
    if results.dataset_card["kind"] == "image":
        images = results.dataset.inputs[experiment.positions(results.dataset, picked)]
        regression = results.dataset_card.get("task") == "regression"
        told = signs("a larger prediction" if regression else experiment.explained_class(results))
        caption = (
            f"{told}{signless(results)}. Every map is scaled by its "
            "own largest magnitude, written below it: compare places within a map, not colours between maps."
            f"{experiment.rows_shown(results)}"
        )
        cells = [results.features_of(image).cells[0] for image in images]
        half = intervals(results, picked["instance"])
        caption += " No colour: the 95 % interval of a sampled score includes 0." * bool(half)
        drawing = heat_maps(images, names, values, cells, tone=tone_of(results.dataset_card), half=half)
        maps = figure(drawing, "Score maps of a few instances, one column per method", caption, vector=False)
        return join_parts(maps, order_note(results))
    ends = {
        label: experiment.scores_of(each, picked["instance"], "standard_error")
        for label, each in results.scores.items()
    }
    rows = results.dataset.inputs[experiment.positions(results.dataset, picked)]
    tables = [
        instance_table(
            experiment.units_told(results),
            {label: scores[place] for label, scores in values.items()},
            {label: scores[place] for label, scores in ends.items()},
            named_values(results, row),
            name,
        )
        for place, (row, name) in enumerate(zip(rows, names, strict=True))
    ]
    return join_parts(HTML("".join(tables)), order_note(results))


def intervals(results: Results, instances: Sequence[int]) -> dict[str, list[np.ndarray | None]]:
    """Half of the 95 % intervals of the labels that know any: (d,) of each instance, None where it is not known."""
    found = {label: experiment.scores_of(frame, instances, "standard_error") for label, frame in results.scores.items()}
    known = {label: rows for label, rows in found.items() if any(row is not None for row in rows)}
    return {label: [None if row is None else LEVEL * row for row in rows] for label, rows in known.items()}


def order_note(results: Results) -> HTML | None:
    """How far the order of the largest scores is settled, by label; None where no label says how wrong it is."""
    told = []
    for label, frame in results.scores.items():
        rows = experiment.good(frame).reindex(columns=["scores", "standard_error"]).dropna()
        pairs = [(np.asarray(one)[None], np.asarray(spread)[None]) for one, spread in rows.itertuples(index=False)]
        places = np.array([settled_places(*pair)[0] for pair in pairs])
        if len(places):
            told.append(f"{label} {number(np.median(places))} ({share((places > 0).mean())} settle the first)")
    if not told:
        return None
    return note(
        "Settled order (median over explanations): number of largest scores that differ significantly, at 95 %, from "
        f"all smaller ones: {'; '.join(told)}. Below these, the order is not significant."
    )


def named_values(results: Results, row: np.ndarray) -> list[str]:
    """The features of a record with what it has in each, as age = 39; of a large group of columns the name alone."""
    names, features = experiment.feature_names(results), results.features_of(row)
    values = record_values(row, features, results.dataset_card)
    several = np.bincount(features.cells[features.cells >= 0], minlength=features.d) > 1
    return [
        name if many and value.endswith(" columns") else f"{name} = {_category(name, value) if many else value}"
        for name, value, many in zip(names, values, several, strict=True)
    ]


def _category(name: str, value: str) -> str:
    """The category in a column of a one-hot code that is named by both, as job=clerk or job_clerk."""
    return value.removeprefix(name).lstrip("=_ ") if value.removeprefix(name)[:1] in ("=", "_") else value
