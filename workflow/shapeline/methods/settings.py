"""A method's settings, parsed once: the functions that compute its scores, its parameters and its budgets."""

import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from shapeline.datasets import sources
from shapeline.designs.design import Design, count_evaluations, find_unique_rows
from shapeline.designs.stopping import StoppingCriterion
from shapeline.errors import ShapelineError, name_type
from shapeline.games import features as feature_kinds
from shapeline.games.features import Features
from shapeline.methods.parameters import Parameters
from shapeline.methods.registry import METHODS, Method

if TYPE_CHECKING:  # a third of a second, which designs without a graph save
    import networkx

# Keys of a method entry on its budget and features; the others are the parameters of the method's function.
BUDGET_KEYS = ("budget", "intermediate_budgets", "match_budget_of", "rival", "features", "background")
Budget = float | StoppingCriterion | None


@dataclass(frozen=True)
class Size:
    """The evaluations and features of a design, known before it is built."""

    evaluations: int
    d: int


@dataclass(frozen=True)
class MethodSettings:
    """A method of the registry or of a file with typed parameters; budgets: one explanation each, the entry's last.

    rival: the method of fixed cost whose number of evaluations is the budget; features and background replace the
    experiment's.
    """

    key: str = field(repr=False)  # all settings as text; records with the same key are equal
    name: str = field(compare=False)
    parameters: Parameters = field(compare=False)
    budgets: tuple[Budget, ...] = field(default=(None,), compare=False)
    rival: "MethodSettings | None" = field(default=None, compare=False)
    features: Any = field(default=None, compare=False)
    background: int | None = field(default=None, compare=False)

    @functools.cached_property
    def method(self) -> Method:
        """The entry in the registry."""
        return METHODS[self.name]

    @property
    def until(self) -> StoppingCriterion | None:
        """The stopping criterion of an adaptive budget; None for a fixed one."""
        return self.budgets[-1] if isinstance(self.budgets[-1], StoppingCriterion) else None

    @functools.cached_property
    def is_random(self) -> bool:
        """Whether scores depend on a seed."""
        return self.method.is_random(self.arguments)

    @property
    def samples_designs(self) -> bool:
        """Whether each instance has a separate design."""
        return self.method.is_design and self.is_random

    def rounds(self, d: int) -> list[int]:
        """Return the evaluations after each round of adaptive stopping."""
        return self.until.rounds(d, self.method.first_round, self.method.max_evaluations)

    def resolve_budget(self, features: Features, budget: Budget) -> float | None:
        """Return a budget as a multiple of d: a fixed one, that of the first round, of the rival, or the default."""
        if isinstance(budget, StoppingCriterion):
            return self.rounds(features.d)[0] / features.d
        if self.rival is not None:
            return self.rival.design(features, None, 0).evaluations / features.d
        is_default = budget is None and self.method.sampled
        return self.method.default_budget(self.arguments, features.d) if is_default else budget

    def design(self, features: Features, budget: float | None, seed: int, keep: bool = True) -> Design:
        """Return the design on these features; keep: cache it for equal settings."""
        graph = self._build_graph(features)
        if keep and graph is None:
            return _build_cached(self, tuple(features.shape), budget, seed)
        return self.build(features.shape, budget, seed, graph)

    def size(self, features: Features, budget: float | None, seed: int) -> Size:
        """Return the size of the design, built once for equal settings and dropped: it can take gigabytes."""
        if self._build_graph(features) is None:
            return _size(self, tuple(features.shape), budget, seed)
        return _measure_size(self.design(features, budget, seed))

    def build(
        self, shape: tuple[int, ...], budget: float | None = None, seed: int = 0, graph: "networkx.Graph | None" = None
    ) -> Design:
        """Return the design on features of a shape; budget: a multiple of d; graph: replaces the shape's."""
        d = math.prod(shape)
        evaluations = None if budget is None else count_evaluations(budget, d)
        available = {**self.arguments, "d": d, "shape": shape, "seed": seed, "budget": evaluations}
        if "graph" in self._build.names:
            kind = getattr(self.parameters, "graph", "features")
            available["graph"] = graph if kind == "features" and graph is not None else build_graph(kind, shape)
        try:
            if (evaluations or 0) * d > psutil.virtual_memory().total:  # the system would kill the process
                raise MemoryError
            design = self._build(available)
        except MemoryError as error:
            raise ShapelineError(
                f"{self.name}: {d} features exceed the memory; group them, or lower the budget"
            ) from error
        except ShapelineError as error:
            if self.method.argument_names is None:
                raise
            raise ShapelineError(f"{self.name}: {error}") from error
        if self.method.argument_names is not None:
            self._check_own(design, d, evaluations if "budget" in self._build.names else None)
        return design if self._sparsify is None else self._sparsify({**self.arguments, "fitted": design})

    def _check_own(self, design: object, d: int, limit: int | None) -> None:
        """Raise ShapelineError for what a user's function returned; limit: of coalitions."""
        problem = ""
        if not isinstance(design, Design) or design.d != d:
            returned = f"a Design of {design.d} features" if isinstance(design, Design) else name_type(design)
            problem = f"returned {returned}; return a Design of {d} features"
        elif not np.isfinite(design.attribute(np.ones(len(design.masks)))).all():
            problem = "returned a readout that is not finite; return finite weights"
        elif limit is not None and len(design.masks) > limit:
            problem = f"returned {len(design.masks)} coalitions; return at most {limit}, the budget"
        elif repeated := len(design.masks) - len(find_unique_rows(design.masks)[0]):
            problem = f"returned {repeated} of {len(design.masks)} coalitions again; return each once"
        if problem:
            raise ShapelineError(f"{self.name}: {problem}")

    def scorer(self, framework: str | None) -> sources.Call:
        """Return the function of a method that computes scores itself, for a model of this framework."""
        return sources.resolve(self.method.function_for(framework))

    @functools.cached_property
    def read(self) -> Callable | None:
        """The estimator from a design and values to scores, if it is not the design's own."""
        return self.method.estimator and sources.resolve(self.method.estimator).bind(self.arguments)

    @functools.cached_property
    def read_stack(self) -> Callable | None:
        """The estimator from masks and values of each instance of a chunk."""
        return self.method.batch_estimator and sources.resolve(self.method.batch_estimator).bind(self.arguments)

    @functools.cached_property
    def read_outputs(self) -> Callable | None:
        """The estimator for all outputs of one game together."""
        reference = self.method.multi_output_estimator
        return reference and sources.resolve(reference).bind(self.arguments)

    @functools.cached_property
    def _build(self) -> sources.Call:
        return sources.resolve(self.method.nested_design if self.until else self.method.function)

    @functools.cached_property
    def _sparsify(self) -> sources.Call | None:
        # By name, because an import would make the digest of every method depend on that file.
        return sources.resolve("shapeline.designs.surrogate:sparsify") if self.arguments.get("n_features") else None

    @functools.cached_property
    def arguments(self) -> dict[str, Any]:
        """The given parameters by name; those of a user's function are in a mapping."""
        names = self.parameters.model_fields_set - {"method", *BUDGET_KEYS}
        values = {name: getattr(self.parameters, name) for name in sorted(names)}
        return values | values.pop("parameters", {})

    def _build_graph(self, features: Features) -> "networkx.Graph | None":
        """Return the graph of the features, if the method uses it."""
        uses_graph = "graph" in (*self.method.parameters.model_fields, *(self.method.argument_names or ()))
        is_default = getattr(self.parameters, "graph", "features") == "features"
        return feature_kinds.build_graph(features) if uses_graph and is_default else None


def parse(settings: Mapping[str, Any], budgets: Sequence[Budget | Mapping] | None = None) -> MethodSettings:
    """Return the record of {"method": name, ...parameters}; budgets: replace the entry's own."""
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


def build_graph(kind: str, shape: tuple[int, ...]) -> "networkx.Graph":
    """Return the graph over features: "features" (grid or chain, by the shape), "chain" or "complete"."""
    import networkx

    from shapeline import graphs

    d = math.prod(shape)
    if kind == "complete":
        return networkx.complete_graph(d)
    return graphs.chain(d) if kind == "chain" or len(shape) == 1 else graphs.grid(*shape)
