"""A method's settings, parsed once: what computes its scores, its own parameters, and how much an instance may cost."""

import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psutil

from shapeline.designs.design import Design, evaluations
from shapeline.designs.stopping import StoppingCriterion
from shapeline.errors import ShapelineError
from shapeline.games import features as feature_kinds
from shapeline.games.features import Features
from shapeline.methods import dispatch
from shapeline.methods.parameters import Parameters
from shapeline.methods.registry import METHODS, Method

if TYPE_CHECKING:  # a third of a second, which designs without a graph save
    import networkx

# Keys of a method entry that say how much to spend, and on what; the others are the method's own parameters.
PLANNED = ("budget", "intermediate_budgets", "match_budget_of", "rival", "features", "background")
Budget = float | StoppingCriterion | None


@dataclass(frozen=True)
class Size:
    """What is known of a design before it is made: its evaluations and features."""

    evaluations: int
    d: int


@dataclass(frozen=True)
class MethodSettings:
    """A method of the registry or of a file with typed parameters; budgets: an explanation each, the last its own.

    rival: the method of fixed cost whose evaluations are the budget; features and background: in place of the
    experiment's.
    """

    key: str = field(repr=False)  # of all of them; two records of one key are equal
    name: str = field(compare=False)
    parameters: Parameters = field(compare=False)
    budgets: tuple[Budget, ...] = field(default=(None,), compare=False)
    rival: "MethodSettings | None" = field(default=None, compare=False)
    features: Any = field(default=None, compare=False)
    background: int | None = field(default=None, compare=False)

    @functools.cached_property
    def method(self) -> Method:
        """Its entry in the registry."""
        return METHODS[self.name]

    @property
    def until(self) -> StoppingCriterion | None:
        """What ends the rounds of an explanation, where the budget is no fixed one."""
        return self.budgets[-1] if isinstance(self.budgets[-1], StoppingCriterion) else None

    @functools.cached_property
    def is_random(self) -> bool:
        """Whether scores depend on a seed."""
        return self.method.is_random(self.arguments)

    @property
    def samples_designs(self) -> bool:
        """Whether each instance has a design of its own."""
        return self.method.is_design and self.is_random

    def rounds(self, d: int) -> list[int]:
        """Return the evaluations after each round of an explanation that ends when it is good enough."""
        return self.until.rounds(d, self.method.first_round, self.method.largest)

    def spend(self, features: Features, budget: Budget) -> float | None:
        """Return a budget as a multiple of d: as it is given, that of the first round, or that of the rival here."""
        if isinstance(budget, StoppingCriterion):
            return self.rounds(features.d)[0] / features.d
        return budget if self.rival is None else self.rival.design(features, None, 0).evaluations / features.d

    def design(self, features: Features, budget: float | None, seed: int, keep: bool = True) -> Design:
        """Return the design on these features; keep: so that equal settings make it once."""
        graph = self._graph_of(features)
        if keep and graph is None:
            return _build_cached(self, tuple(features.shape), budget, seed)
        return self.build(features.shape, budget, seed, graph)

    def size(self, features: Features, budget: float | None, seed: int) -> Size:
        """Return the size of the design, built once for equal settings and dropped: it can take gigabytes."""
        if self._graph_of(features) is None:
            return _size(self, tuple(features.shape), budget, seed)
        return _measure_size(self.design(features, budget, seed))

    def build(
        self, shape: tuple[int, ...], budget: float | None = None, seed: int = 0, graph: "networkx.Graph | None" = None
    ) -> Design:
        """Return the design on features of a shape; budget: a multiple of d; graph: in place of the shape's."""
        d = math.prod(shape)
        spent = None if budget is None else evaluations(budget, d)
        available = {**self.arguments, "d": d, "shape": shape, "seed": seed, "budget": spent}
        if "graph" in self._build.names:
            laid = getattr(self.parameters, "graph", "features")
            available["graph"] = graph if laid == "features" and graph is not None else shape_graph(laid, shape)
        try:
            if (spent or 0) * d > psutil.virtual_memory().total:  # the system would end the process that fills it
                raise MemoryError
            design = self._build(available)
        except MemoryError as error:
            raise ShapelineError(
                f"{self.name}: {d} features exceed the memory; group them, or lower the budget"
            ) from error
        if self.method.takes is not None and (not isinstance(design, Design) or design.d != d):
            given = f"a Design of {design.d} features" if isinstance(design, Design) else f"a {type(design).__name__}"
            raise ShapelineError(f"{self.name}: returned {given}; return a Design of {d} features")
        return design if self._sparsify is None else self._sparsify({**self.arguments, "fitted": design})

    def scorer(self, framework: str | None) -> dispatch.Call:
        """Return the function of a method that makes scores itself, for a model of this framework."""
        return dispatch.resolve(self.method.function_for(framework))

    @functools.cached_property
    def read(self) -> Callable | None:
        """What makes scores of a design and values, where the design itself does not."""
        return self.method.reads and dispatch.resolve(self.method.reads).bind(self.arguments)

    @functools.cached_property
    def read_stack(self) -> Callable | None:
        """The same from masks and values of each instance, all instances of a chunk together."""
        return self.method.reads_stack and dispatch.resolve(self.method.reads_stack).bind(self.arguments)

    @functools.cached_property
    def read_outputs(self) -> Callable | None:
        """The same of the outputs of one game, by one estimator for all."""
        return self.method.reads_outputs and dispatch.resolve(self.method.reads_outputs).bind(self.arguments)

    @functools.cached_property
    def _build(self) -> dispatch.Call:
        return dispatch.resolve(self.method.grows if self.until else self.method.function)

    @functools.cached_property
    def _sparsify(self) -> dispatch.Call | None:
        # Named, not imported: an import would make every method depend on that file.
        return dispatch.resolve("shapeline.designs.surrogate:sparse") if self.arguments.get("n_features") else None

    @functools.cached_property
    def arguments(self) -> dict[str, Any]:
        """The parameters that are given, by name; a user's function has its own in a mapping."""
        own = self.parameters.model_fields_set - {"method", *PLANNED}
        given = {name: getattr(self.parameters, name) for name in sorted(own)}
        return given | given.pop("parameters", {})

    def _graph_of(self, features: Features) -> "networkx.Graph | None":
        """Return the features' own graph, where the method walks one."""
        walks = "graph" in (*self.method.parameters.model_fields, *(self.method.takes or ()))
        own = getattr(self.parameters, "graph", "features") == "features"
        return feature_kinds.graph(features) if walks and own else None


def parse(settings: Mapping[str, Any], budgets: Sequence[Budget | Mapping] | None = None) -> MethodSettings:
    """Return the record of {"method": name, ...parameters}; budgets: in place of the entry's own."""
    name = settings["method"]
    typed = METHODS[name].parameters.model_validate({key: settings[key] for key in settings if key != "rival"})
    chosen = [*settings.get("intermediate_budgets", ()), settings.get("budget")] if budgets is None else budgets
    chosen = tuple(StoppingCriterion(**budget) if isinstance(budget, Mapping) else budget for budget in chosen)
    return MethodSettings(
        json.dumps([settings, chosen], sort_keys=True, default=repr),
        name,
        typed,
        chosen,
        parse(settings["rival"], [None]) if "rival" in settings else None,
        settings.get("features"),
        settings.get("background"),
    )


@functools.lru_cache(maxsize=8)  # instances of equal d, and calls in a notebook, share the last few designs
def _build_cached(settings: MethodSettings, shape: tuple[int, ...], budget: float | None, seed: int) -> Design:
    return settings.build(shape, budget, seed)


@functools.lru_cache(maxsize=256)
def _size(settings: MethodSettings, shape: tuple[int, ...], budget: float | None, seed: int) -> Size:
    return _measure_size(settings.build(shape, budget, seed))


def _measure_size(design: Design) -> Size:
    return Size(design.evaluations, design.d)


def shape_graph(kind: str, shape: tuple[int, ...]) -> "networkx.Graph":
    """The graph over features: "features" (grid or chain, after the shape), "chain" or "complete"."""
    import networkx

    from shapeline import graphs

    d = math.prod(shape)
    if kind == "complete":
        return networkx.complete_graph(d)
    return graphs.chain(d) if kind == "chain" or len(shape) == 1 else graphs.grid(*shape)
