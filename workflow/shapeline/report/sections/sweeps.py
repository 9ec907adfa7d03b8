"""Influence against the width of its kernel."""

import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from shapeline import influence
from shapeline.report import experiment
from shapeline.report.elements import heading, join_parts, note
from shapeline.report.experiment import Results
from shapeline.report.formatting import number
from shapeline.report.html import HTML
from shapeline.report.sections.influence import data_labels
from shapeline.report.sections.points import Shown, picture_row

SWEPT = 12_500  # labelled rows at most for the sweeps, about the paper's: seconds a page
# The ten values of each in table 3 of the paper.
SWEEPS = {
    "parzen": {"sigma": ("σ", (2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0, 6.5))},
    "data_lime": {
        "rho": ("ρ", (2.0, 2.2, 2.4, 2.6, 2.8, 3.0, 3.2, 3.4, 3.6, 3.8)),
        "mu": ("μ", (0.010, 0.011, 0.012, 0.013, 0.014, 0.015, 0.016, 0.017, 0.018, 0.019)),
    },
}

READING = (
    "Influence maps for several widths of a measure (table 3 of the paper). A narrow kernel uses few rows around the "
    "instance, a wide one all the data."
)


@dataclass(frozen=True)
class Sweep:
    """One parameter of a measure over several values: vectors (values, p, n) at p points, seconds a vector."""

    method: str
    symbol: str
    values: tuple[float, ...]
    phi: np.ndarray
    warned: tuple[bool, ...]  # a value each: whether some point kept no neighbour
    seconds: float


def sweep(
    points: np.ndarray, X: np.ndarray, labels: np.ndarray, own: np.ndarray, methods: Iterable[str]
) -> list[Sweep]:
    """The parameter sweeps of table 3 at points (p, n), whose labels are own (p,), over the data X (m, n)."""
    sweeps = []
    for method in methods:
        measure = getattr(influence, method)
        for parameter, (symbol, values) in SWEEPS.get(method, {}).items():
            start = time.perf_counter()
            phi, warned = [], []
            for value in values:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    phi.append(measure(points, X, labels, **{parameter: value}, point_labels=own))
                warned.append(bool(caught))
            seconds = (time.perf_counter() - start) / (len(values) * len(points))
            sweeps.append(Sweep(method, symbol, values, np.array(phi), tuple(warned), seconds))
    return sweeps


def sweeps_section(results: Results, count: int = 2) -> HTML:
    """Image rows of the sweeps at the first point of each class; empty without images, or measures with a width."""
    methods = {results.labels[label]["method"]: None for label in data_labels(results, SWEEPS)}
    if results.dataset_card["kind"] != "image" or not methods or results.dataset_card.get("task") == "regression":
        return HTML("")
    picked = experiment.choose_instances(results.instances, count)
    places = experiment.positions(results.dataset, picked)
    images, own = results.dataset.inputs[places], results.dataset.labels[places]
    known = results.dataset.part("train") if results.model_card else results.dataset
    rows = np.unique(np.linspace(0, len(known.inputs) - 1, SWEPT).astype(int))  # evenly through the file
    flat = known.inputs[rows].reshape(len(rows), -1)
    sweeps = sweep(images.reshape(len(images), -1), flat, known.labels[rows], own, methods)
    names = [experiment.instance_name(results, row) for row in picked.to_dict("records")]
    return join_parts(
        heading("Parameter sweeps"),
        note(READING),
        *(sweep_rows(swept, images, names) for swept in sweeps),
        note(sweep_times(sweeps, len(flat))),
    )


def sweep_rows(swept: Sweep, images: np.ndarray, names: Sequence[str]) -> HTML:
    """A row a image: itself, then for each value the map above the shifted image."""
    rows = []
    for place, (image, name) in enumerate(zip(images, names, strict=True)):
        maps = [phi[place].reshape(image.shape) for phi in swept.phi]
        shown = [
            Shown(f"{swept.symbol} = {value:g}", phi, "no neighbours" if warned and not phi.any() else "")
            for value, phi, warned in zip(swept.values, maps, swept.warned, strict=True)
        ]
        rows.append(picture_row(image, name, shown, sweep=True))
    return join_parts(
        heading(f"{swept.method}, {swept.symbol} from {swept.values[0]:g} to {swept.values[-1]:g}"), *rows
    )


def sweep_times(sweeps: Sequence[Sweep], rows: int) -> str:
    """How long a vector took to compute, for every sweep."""
    took = "; ".join(f"{swept.method} ({swept.symbol}) {number(swept.seconds, 2)} s" for swept in sweeps)
    return (
        f"Computed for this page from {number(rows)} labelled rows; time per vector: {took}. A magnitude far below "
        "that of wider kernels means that only the nearest rows have weight."
    )
