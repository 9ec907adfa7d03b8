"""Cost against d, instances and budget, in parts: making the design, evaluating it, reading it out.

The model is the dense network of tables (64 and 32 units) on d columns, whose own cost grows with d: a lower bound of
what a model of d features costs. Windows lie on a chain.
"""

import time

import numpy as np
from scipy import stats

from benchmarks.cases import BUDGET
from benchmarks.turns import FEW, SLOW, TURNS
from shapeline.attribution import run
from shapeline.games.execution import ExecutionBackend
from shapeline.games.features import Features
from shapeline.games.game import Game
from shapeline.games.references import Reference
from shapeline.methods import registry
from shapeline.methods.settings import parse
from shapeline.models import architectures
from shapeline.models.classifier import Classifier

METHODS = ("kernel_shap", "sample_shapley", "l_shapley", "c_shapley", "c_shapley_regression", "h_shap", "occlusion")
PARTS = ("design", "evaluations", "read-out", "total")
AXES = {  # of each axis its values, and what the other two are
    "d": ([2**power for power in range(4, 13)], {"instances": 1, "budget": BUDGET}),
    "instances": ([1, 4, 16, 64, 256], {"d": 64, "budget": BUDGET}),
    "budget": ([2, 4, 8, 16, 32, 64], {"d": 64, "instances": 1}),
}
QUICK = {"d": ([16, 32, 64], AXES["d"][1]), "instances": ([1, 4, 16], AXES["instances"][1])}


def measure(quick: bool = False) -> list[dict]:
    """Return a row per method and point of an axis: axis, x, method, evaluations, median seconds of the parts."""
    points = [
        {"axis": axis, "x": x, "method": name, **{**fixed, axis: x}}
        for axis, (values, fixed) in (QUICK if quick else AXES).items()
        for x in values
        for name in METHODS
        if axis != "budget" or registry.METHODS[name].sampled
    ]
    turns = 2 if quick else TURNS
    parts: list[list[dict]] = [[] for _ in points]
    for turn in range(-1, turns):  # the first is a warm-up, but for points that take long
        for point, seen in zip(points, parts, strict=True):
            if seen and seen[0]["total"] > SLOW and len(seen) >= FEW:
                continue
            seconds = cost(point["method"], point["d"], point["instances"], point["budget"])
            if turn >= 0 or seconds["total"] > SLOW:
                seen.append(seconds)
    return [
        {**point, "turns": len(seen), "evaluations": seen[0]["count"]}
        | {part: float(np.median([each[part] for each in seen])) for part in PARTS}
        for point, seen in zip(points, parts, strict=True)
    ]


def cost(name: str, d: int, n: int, budget: float) -> dict[str, float]:
    """Return the seconds of the parts, and the evaluations (`count`), of an instance."""
    model = _model(d)
    inputs = np.random.default_rng(1).random((n, d), dtype=np.float32)
    reference, backend = Reference(np.zeros((1, d), np.float32)), ExecutionBackend("plain", 256)
    # The class that the input speaks for: of another, h-Shap has nothing to explore.
    targets = (model.log_probs(inputs) - model.log_probs(reference.rows)).argmax(1)
    features = Features("column", (d,), np.arange(d, dtype=np.int32))
    game = Game(model, reference, features, backend=backend)
    settings = {"method": name}
    if "graph" in registry.METHODS[name].parameters.model_fields:
        settings["graph"] = "chain"
    start = time.perf_counter()
    if not registry.METHODS[name].is_design:
        (result,) = run.attribute(game, inputs, targets, parse(settings))
        total = time.perf_counter() - start
        return {"design": 0.0, "evaluations": total, "read-out": 0.0, "total": total, "count": result.evaluations[0]}
    design = parse(settings).build((d,), budget if registry.METHODS[name].sampled else None)
    made = time.perf_counter()
    values = game.values(inputs, design.masks, targets)
    evaluated = time.perf_counter()
    design.attribute(values)
    end = time.perf_counter()
    parts = {"design": made - start, "evaluations": evaluated - made, "read-out": end - evaluated, "total": end - start}
    return {**parts, "count": design.evaluations}


_MODELS: dict[int, Classifier] = {}


def _model(d: int) -> Classifier:
    if d not in _MODELS:
        _MODELS[d] = architectures.build("mlp", inputs=d)
    return _MODELS[d]


def exponent(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """Return b of y = a x^b by least squares of logarithms, and its 95 % interval (Student's t on n - 2); n >= 3."""
    fit = stats.linregress(np.log(x), np.log(y))
    half = stats.t.ppf(0.975, len(x) - 2) * fit.stderr
    return float(fit.slope), float(fit.slope - half), float(fit.slope + half)
