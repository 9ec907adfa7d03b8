"""Seconds of each method of the registry on a case, as its job explains a run of instances."""

import time
from collections.abc import Callable

from benchmarks.cases import BUDGET, Case
from benchmarks.turns import Run
from shapeline.attribution.explanation import Explanation
from shapeline.attribution.run import Options, attribute
from shapeline.designs.design import MAX_D
from shapeline.errors import ShapelineError
from shapeline.games.game import Game
from shapeline.methods.registry import METHODS
from shapeline.methods.settings import parse

SHARED = 100  # instances of a job, which share the making of one design
FAMILIES = ("coalitions", "hierarchical", "gradients")  # what needs no data; benchmarks/influence.py measures the rest


def build_settings(name: str, case: Case) -> dict:
    """Return a method's settings on a case: defaults, a graph where the features have none, windows that fit a grid."""
    accepted, settings = METHODS[name].parameters.model_fields, {"method": name}
    if "graph" in accepted and case.features.kind == "column":
        settings["graph"] = "chain"
    if name == "c_shapley" and len(case.features.shape) == 2:
        settings["order"] = 1
    if name == "partition":
        settings["evaluations"] = BUDGET * case.features.d
    return settings


def explain(case: Case, settings: dict) -> Explanation:
    """Explain the case by a method. Raises ShapelineError where the method does not fit the case."""
    sampled = METHODS[settings["method"]].sampled
    game = Game(case.model, case.reference, case.features, backend=case.backend)
    method = parse(settings, [float(BUDGET) if sampled else None])
    (explanation,) = attribute(game, case.inputs, case.targets, method, Options(on_error="fail"))
    return explanation


def design_seconds(case: Case, settings: dict) -> float:
    """Return the seconds of building a method's design; those sampled per instance are built during the explanation."""
    method = METHODS[settings["method"]]
    if not method.is_design or method.random is True:
        return 0.0
    budget = float(BUDGET) if method.sampled else None
    parsed = parse(settings, [budget])
    start = time.perf_counter()
    parsed.design(case.features, budget, 0, keep=False)
    return time.perf_counter() - start


def build_run(name: str, case: Case) -> Run:
    """Return the run that explains the case's instances, with their share of a design that SHARED instances share."""
    settings = build_settings(name, case)

    def run() -> tuple[float, int]:
        making = design_seconds(case, settings)
        explanation = explain(case, settings)
        return explanation.seconds.sum() + making * case.instances / SHARED, int(explanation.evaluations.sum())

    return run


def fitting(case: Case) -> tuple[dict[str, Run], dict[str, str]]:
    """Return the runs of the methods that fit a case, and the reasons of the others."""
    runs, left_out = {}, {}
    for name, method in METHODS.items():
        if method.family not in FAMILIES or not method.needs_model:
            continue
        if reason := _unfit(name, case):
            left_out[name] = reason
            continue
        runs[name] = build_run(name, case)
    return runs, left_out


def _unfit(name: str, case: Case) -> str | None:
    method = METHODS[name]
    kind = "text" if case.words else "image" if len(case.shape) == 3 else "table"
    checks: list[tuple[Callable[[], bool], str]] = [
        (lambda: method.exact and case.features.d > (method.pairs or MAX_D), f"2^{case.features.d} coalitions"),
        (lambda: name == "myerson" and len(case.features.shape) == 2, "too many connected coalitions on a grid"),
        (lambda: bool(method.data) and kind not in method.data, f"not for data of kind {kind}"),
        (lambda: method.torch_only and case.framework != "torch", "for torch alone"),
        (lambda: case.architecture in method.unsupported, f"not for a {case.architecture}"),
    ]
    for holds, reason in checks:
        if holds():
            return reason
    try:
        explain(case, build_settings(name, case))
    except ShapelineError as error:
        return str(error)
    return None
