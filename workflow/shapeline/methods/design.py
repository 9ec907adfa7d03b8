"""The design of a method's settings on features of a shape."""

import functools
import inspect
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shapeline.designs.design import Design, evaluations
from shapeline.errors import ShapelineError
from shapeline.game import features as feature_kinds
from shapeline.game.features import Features
from shapeline.methods import calling
from shapeline.methods.registry import METHODS

if TYPE_CHECKING:  # a third of a second, which designs without a graph save
    import networkx


def design_of(parameters: dict, features: Features, budget: float | None, seed: int, keep: bool = True) -> Design:
    """The design of a method's parameters on these features; keep: so that equal settings make it once."""
    graph = _own_graph(parameters, features)
    if graph is None and not keep:
        return _build(parameters, features.shape, budget, seed, None)
    return build(parameters, features.shape, budget, seed, graph)


@dataclass(frozen=True)
class Size:
    """What is known of a design before it is made: its evaluations and features."""

    evaluations: int
    d: int


def size_of(parameters: dict, features: Features, budget: float | None, seed: int) -> Size:
    """The size of the design of these settings, which is made for it and given up: of thousands of features it takes
    gigabytes. Equal settings make it once."""
    if _own_graph(parameters, features) is None:
        return _size(json.dumps(parameters, sort_keys=True), tuple(features.shape), budget, seed)
    design = design_of(parameters, features, budget, seed)
    return Size(design.evaluations, design.d)


@functools.lru_cache(maxsize=256)
def _size(parameters: str, shape: tuple[int, ...], budget: float | None, seed: int) -> Size:
    design = _build(json.loads(parameters), shape, budget, seed, None)
    return Size(design.evaluations, design.d)


def _own_graph(parameters: dict, features: Features) -> "networkx.Graph | None":
    """The features' own graph, where the method walks one."""
    method = METHODS[parameters["method"]]
    walks = "graph" in (*method.parameters.model_fields, *(method.takes or ()))
    return feature_kinds.graph(features) if walks and parameters.get("graph", "features") == "features" else None


def build(
    settings: dict,
    shape: tuple[int, ...],
    budget: float | None = None,
    seed: int = 0,
    graph: "networkx.Graph | None" = None,
) -> Design:
    """The design of `settings` ({"method": name, ...parameters}) on features of a shape, (d,) or (height, width).

    budget: a multiple of d, for sampled methods. graph: the features' own, where it is not the grid or chain that the
    shape means. The last few designs are kept: instances of equal d, and calls in a notebook, share them.
    """
    if graph is not None:
        return _build(settings, shape, budget, seed, graph)
    return _kept(json.dumps(settings, sort_keys=True), tuple(shape), budget, seed)


@functools.lru_cache(maxsize=8)
def _kept(settings: str, shape: tuple[int, ...], budget: float | None, seed: int) -> Design:
    return _build(json.loads(settings), shape, budget, seed, None)


def _build(settings: dict, shape: tuple[int, ...], budget: float | None, seed: int, graph) -> Design:
    d = math.prod(shape)
    laid = settings.get("graph", "features")
    available = {
        **settings,
        **settings.get("parameters", {}),
        "d": d,
        "shape": shape,
        "seed": seed,
        "budget": None if budget is None else evaluations(budget, d),
    }
    method = METHODS[settings["method"]]
    function = calling.function_of(method.grows if settings.get("grows") else method.function)
    if "graph" in inspect.signature(function).parameters:
        available["graph"] = graph if laid == "features" and graph is not None else shape_graph(laid, shape)
    design = calling.call(function, available)
    if method.takes is not None and (not isinstance(design, Design) or design.d != d):
        given = f"a Design of {design.d} features" if isinstance(design, Design) else f"a {type(design).__name__}"
        raise ShapelineError(f"{settings['method']} returned {given}; return a Design of {d} features")
    if settings.get("keep"):  # named, not imported: an import would make every method depend on that file
        design = calling.call(calling.function_of("shapeline.designs.lasso:sparse"), {**settings, "design": design})
    return design


def shape_graph(kind: str, shape: tuple[int, ...]) -> "networkx.Graph":
    """The graph over features: "features" (grid or chain, after the shape), "chain" or "complete"."""
    import networkx

    from shapeline import graphs

    d = math.prod(shape)
    if kind == "complete":
        return networkx.complete_graph(d)
    return graphs.chain(d) if kind == "chain" or len(shape) == 1 else graphs.grid(*shape)
