"""What defines a row's numbers (not backend, batch, shard or number of instances); files count by their content."""

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from shapeline.attribution.context import ExplanationContext, targets
from shapeline.attribution.row_store import digest_array, digest_file, digest_of
from shapeline.attribution.settings import AttributionSettings
from shapeline.methods import shapiq_process
from shapeline.scores import MEASURED, SCHEMA
from shapeline.versions import list_versions

READS_ALL_DATA = ("data", "external")  # families whose scores depend on more than the instance's input


def score_facts(
    context: ExplanationContext, settings: AttributionSettings, entry: str, files: Iterable[str], arrays: str
) -> dict:
    """Return what defines scores of a model by a method beside the instance; entry seeds samples, arrays: the data."""
    method = settings.method
    whole = method.method.family in READS_ALL_DATA or method.background
    return {
        **_list_shared_facts(context, [*files, *([arrays] if whole else [])], method.method.package),
        "settings": settings.rows,
        **({"release": shapiq_process.read_version(python)} if (python := method.arguments.get("python")) else {}),
        "label": entry if method.is_random else None,
        "columns": SCHEMA.names,
    }


def value_facts(context: ExplanationContext, settings: AttributionSettings, files: Iterable[str]) -> dict:
    """Return what defines the value of a coalition of an instance; files: behind the model, and the code of a value."""
    game = dataclasses.asdict(settings.game) | ({"features": own} if (own := settings.method.features) else {})
    return {**_list_shared_facts(context, files), "game": game}


def measurement_facts(
    context: ExplanationContext, settings: AttributionSettings, job: Mapping, files: Iterable[str]
) -> dict:
    """Return what defines a metric's measurements of one model beside the scores; job: settings of the metric."""
    return {**value_facts(context, settings, files), "metric": job, "columns": MEASURED.names}


def _list_shared_facts(context: ExplanationContext, files: Iterable[str], *packages: str | None) -> dict:
    model, reference = context.model, context.reference
    return {
        "files": sorted(map(digest_file, filter(None, files))),
        "device": context.device,
        "versions": list_versions(model and model.framework, packages),
        "architecture": model and model.architecture,
        "reference": None if reference is None or reference.rows is None else digest_array(reference.rows),
    }


def score_addresses(context: ExplanationContext, share: pd.DataFrame, repeats: int) -> np.ndarray:
    """Return the address of each instance's rows (n, repeats): of its id, which seeds samples, class and input."""
    named = zip(share["instance"], targets(share), map(digest_array, context.inputs(share)), strict=True)
    return np.array(
        [[digest_of([int(one), int(target), of_input, repeat]) for repeat in range(repeats)]
         for one, target, of_input in named]
    ).reshape(len(share), repeats)  # fmt: skip


def value_addresses(inputs: np.ndarray, classes: np.ndarray) -> list[str]:
    """Return the address of each instance's values (n,): of its input and class."""
    return [digest_of([digest_array(row), int(target)]) for row, target in zip(inputs, classes, strict=True)]
