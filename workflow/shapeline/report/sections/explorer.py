"""The instance explorer of an experiment: the shown instances with all methods, the others with a summary."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from shapeline.datasets import tokenizer
from shapeline.report import experiment
from shapeline.report.elements import HTML, heading, join_parts
from shapeline.report.experiment import Results
from shapeline.report.explorer import Entry, ExplorerData, Instance, count_shown, explorer_html, to_data_uri
from shapeline.report.figures.score_maps import LEVEL, choose_tone
from shapeline.report.formatting import explain_unit, format_evaluations, number
from shapeline.report.sections.images import colour_image
from shapeline.report.tables import feature_values

NUMBERING = "An instance has the number of its row in the data, from 0."
MAX_BYTES = 400_000  # of the scores of all methods, from which the number of instances follows


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
    shared = results.features
    kind = results.dataset_card["kind"]
    regression = results.dataset_card.get("task") == "regression"
    return ExplorerData(
        kind=kind,
        instances=_instances(results, rows, shown),
        entries=entries,
        names=() if shared is None else experiment.feature_names(results),
        cells=shared.cells[0] if kind == "image" and shared is not None else None,
        explained="a larger prediction" if regression else experiment.describe_explained_class(results),
        unit=results.value_unit,
        recommended=[entry for entry in recommended if entry in results.scores] or _choose_default(results),
        n_shown=shown,
        note=" ".join(filter(None, [explain_unit(results.value_unit), NUMBERING])),
    )


def _choose_default(results: Results) -> list[str]:
    """Return the first method that is neither exact nor a control, and the exact values."""
    others = [entry for entry in results.scores if not results.entries[entry].get("is_control")]
    estimates = [entry for entry in others if entry != results.exact] or list(results.scores)
    return [*estimates[:1], *([results.exact] if results.exact in results.scores else [])]


def list_entries(results: Results, instances: pd.Series) -> list[Entry]:
    """Return the methods with their scores of instances."""
    evaluations, seconds = experiment.evaluations(results), experiment.mean_seconds(results)
    entries = []
    for entry, frame in results.scores.items():
        errors = experiment.select_scores(frame, instances, "standard_error")
        half = [None if error is None else LEVEL * error for error in errors]
        unit = experiment.find_unit(results, entry)
        costs = [f"{format_evaluations(evaluations[entry])} evaluations"] * bool(np.isfinite(evaluations[entry]))
        costs += [f"{number(1000 * seconds[entry])} ms per instance"] * bool(np.isfinite(seconds[entry]))
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


def _instances(results: Results, rows: pd.DataFrame, shown: int) -> list[Instance]:
    """Return the instances; the first `shown` with their inputs."""
    values = _values(results, rows["instance"])
    inputs = _inputs(results, rows.head(shown))
    facts = [_facts(results, row) for row in rows.to_dict("records")]
    own = [next(inputs, {}) if place < shown else {} for place in range(len(rows))]
    for one, second in zip(own, rows.get("second", ()), strict=False):
        one |= {} if pd.isna(second) else {"second": int(second)}
    summaries = {} if results.dataset_card["kind"] != "text" else dict(enumerate(list_words(results, rows)))
    return [
        Instance(**fact, **{"names": summaries.get(place), **one}, base=base, full=full)
        for place, (fact, one, (base, full)) in enumerate(zip(facts, own, values, strict=True))
    ]


def _inputs(results: Results, rows: pd.DataFrame):
    """Yield what is shown of each input: values of a record, or the image with its own features."""
    kind = results.dataset_card["kind"]
    if kind == "text":
        return
    inputs = results.read_inputs(rows)
    for one in inputs:
        features = results.features_of(one)
        if kind == "table":
            yield {"values": feature_values(one, features, results.dataset_card)}
        else:
            own = {"cells": features.cells[0]} if results.features is None else {}
            yield {"image": to_data_uri(colour_image(one, choose_tone(results.dataset_card))), **own}


def list_words(results: Results, rows: pd.DataFrame) -> list[Sequence[str]]:
    if "words" in rows:
        return list(rows["words"])
    return [tokenizer.list_words(text, results.dataset_card) for text in rows["text"]]


def _facts(results: Results, row: Mapping) -> dict:
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


def _values(results: Results, instances: pd.Series) -> list[tuple[float | None, float | None]]:
    """Return the base value and the value of the input of each instance, by the first method that has them."""
    known = [
        experiment.good(frame).drop_duplicates("instance").set_index("instance")[["value_empty", "value_full"]]
        for frame in results.scores.values()
        if {"value_empty", "value_full"} <= set(frame)
    ]
    ends = pd.DataFrame(np.nan, index=pd.Index(instances), columns=["value_empty", "value_full"])
    for frame in known:
        ends = ends.combine_first(frame.reindex(ends.index))
    return list(ends.loc[instances].itertuples(index=False, name=None))
