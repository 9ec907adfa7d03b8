"""Choices of a call from Python: the method and its parameters, the evaluations, the seed."""

import inspect
import re
from collections.abc import Iterable

import numpy as np
from pydantic import ValidationError

import shapeline
from shapeline.config.types import MAX_BUDGET
from shapeline.datasets.sources import names_function
from shapeline.designs.design import MAX_D, check_integer
from shapeline.errors import ShapelineError, name_type, nearest
from shapeline.methods.parameters import StoppingRule
from shapeline.methods.registry import DEFAULT_BUDGET, METHODS, find_problem, find_stopping_problem
from shapeline.methods.settings import BUDGET_KEYS, Size, parse

AUTO = "auto"
MIN_EXACT = 256  # coalitions that are always affordable


def check_spending(where: str, budget: float | dict | None, evaluations: object) -> float | dict:
    """Return the budget, by default the one that `evaluations` replaces. Raises ShapelineError where both are given."""
    if evaluations is None:
        return DEFAULT_BUDGET if budget is None else budget
    if budget is not None:
        raise ShapelineError(f"{where}: budget and evaluations both set the cost; give one of them")
    check_integer(where, "evaluations", evaluations, 1)
    return DEFAULT_BUDGET


def check_margin(where: str, margin: object) -> None:
    """Raise ShapelineError for a margin that is not a share of a range."""
    if isinstance(margin, bool) or not isinstance(margin, int | float | np.number) or not 0 < margin < 1:
        raise ShapelineError(f"{where}: margin is {margin!r}; give a share above 0 and below 1, such as 0.05 for 5 %")


def resolve_default(budget: float | dict | None, settings: dict, d: int) -> float | dict:
    """Return a budget as it is given, and by default the method's for d features."""
    return METHODS[settings["method"]].default_budget(parse(settings).arguments, d) if budget is None else budget


def is_auto(method: object, where: str) -> bool:
    """Return whether the call chooses the method. Raises ShapelineError for what is not a name."""
    if not isinstance(method, str):
        remedy = "give the name of a method, and data by the name of their argument, as background=rows"
        if inspect.isroutine(method):
            remedy = f'give its file and name, "path/to/file.py:{method.__name__}"'
        raise ShapelineError(f"{where}: method is {name_type(method)}; {remedy}")
    return method == AUTO


def settle_spending(
    where: str, method: str, parameters: dict, budget: float | dict | None, evaluations: int | None
) -> tuple[dict, int | None]:
    """Return the settings of a method and its evaluations, which may be a parameter of it."""
    spend = check_spending(where, budget, evaluations)
    if evaluations is not None and method in METHODS and "evaluations" in METHODS[method].parameters.model_fields:
        parameters, evaluations = parameters | {"evaluations": evaluations}, None
    return check_entry(method, parameters, spend, where), evaluations


def check_fixed_cost(where: str, method: str, size: Size, evaluations: int | None, counted: str = "features") -> None:
    """Raise ShapelineError where the design of a method of fixed cost has more evaluations than requested."""
    if evaluations and size.evaluations > evaluations:
        raise ShapelineError(
            f"{where}: evaluations is {evaluations} and {method} always evaluates {size.evaluations} coalitions of "
            f"{size.d} {counted}; raise it, or leave it out"
        )


def parse_stopping_rule(budget: float | dict | None) -> dict | None:
    """Return the stopping rule of a budget, with defaults; None for a number."""
    return StoppingRule.model_validate(budget).model_dump() if isinstance(budget, dict) else None


def choose_method(d: int, spent: float, exact: float) -> str:
    """Return the method for d features: exact if affordable, else gp_shapley, else kernel_shap."""
    if d <= MAX_D and 2**d <= exact:
        return "shapley"
    return "gp_shapley" if spent <= METHODS["gp_shapley"].max_evaluations else "kernel_shap"


def limit_exact(spend: float | dict, spent: float) -> float:
    """Return the number of coalitions up to which all are evaluated; 0 for adaptive stopping."""
    return 0 if isinstance(spend, dict) else max(spent, MIN_EXACT)


def count_affordable(d: int, budget: float | dict, evaluations: int | None) -> float:
    """Return the evaluations available for d features; 0 for adaptive stopping."""
    return evaluations or (0 if isinstance(budget, dict) else budget * d)


def seed_by(seed: int, random_state: int | None, where: str = "explain") -> int:
    """Return the seed, given by either name."""
    if random_state is not None and seed != 0:
        raise ShapelineError(f"{where}: seed and random_state are the same thing; give one of them")
    seed = seed if random_state is None else random_state
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise ShapelineError(f"{where}: seed is {name_type(seed)}; give a whole number")
    return int(seed)


def check_method(method: object, where: str, others: Iterable[str] = ()) -> None:
    """Raise ShapelineError for what is not the name of a method; others: further names of methods."""
    if not isinstance(method, str) or (method not in METHODS and method not in others):  # METHODS has files' functions
        hint = nearest(method, [*METHODS, *others])
        if method == AUTO:
            hint = " It is the choice of explain; give a method, such as 'gp_shapley', or 'shapley' for exact values."
        if isinstance(method, str) and re.search("[.:]", method):
            hint = " A function of yours is named path/to/file.py:function."
        raise ShapelineError(f"{where}: unknown method '{method}'.{hint}")


def check_entry(method: str, parameters: dict, budget: float | dict, where: str = "explain") -> dict:
    """Return the settings of a call's method. Raises ShapelineError."""
    check_method(method, where)
    for key in BUDGET_KEYS:
        if key in parameters:
            remedy = "leave it out" if key in ("features", "background") else "give a budget"
            raise ShapelineError(f"{method}: {key} belongs to the workflow's configuration; {remedy}")
    if isinstance(budget, dict):
        _check_stopping_rule(method, budget, where)
    elif isinstance(budget, bool) or not isinstance(budget, int | float | np.number) or not 0 < budget <= MAX_BUDGET:
        raise ShapelineError(
            f"{method}: budget is {budget!r}; give a number above 0 and at most {MAX_BUDGET:g}, evaluations as a "
            "multiple of d"
        )
    settings = {"method": method, **parameters}
    try:
        entry = METHODS[method].parameters.model_validate(settings)
        if names_function(method) and (problem := find_problem(entry)):
            raise ShapelineError(f"{where}: {problem}")
    except ValidationError as failure:
        first = failure.errors()[0]
        key = ".".join(map(str, first["loc"]))
        if first["type"] != "extra_forbidden":
            raise ShapelineError(f"{method}: {key}: {first['msg']}; give another value.") from None
        allowed = [name for name in METHODS[method].parameters.model_fields if name not in ("method", *BUDGET_KEYS)]
        costs = () if METHODS[method].sampled else ("budget", "evaluations")
        arguments = inspect.signature(getattr(shapeline, where)).parameters.values()
        optional = [one.name for one in arguments if one.default is not one.empty and one.name not in costs]
        hint = f".{nearest(key, [*allowed, *optional])}"
        if "Did you mean" not in hint:
            hint = f".{nearest(key, allowed)}" if allowed else "; leave it out."
            if names_function(method):
                hint = f"; give those of the function as parameters={{'{key}': ...}}"
        raise ShapelineError(f"{method}: there is no parameter '{key}'{hint}") from None
    return settings


def _check_stopping_rule(method: str, budget: dict, where: str) -> None:
    try:
        problem = find_stopping_problem(method, StoppingRule.model_validate(budget))
    except ValidationError as failure:
        problem = (
            f'budget is {budget}: {failure.errors()[0]["msg"]}; give {{"error": 0.05}}, {{"error": "5%"}} or '
            '{"top": 5}, with "max_budget" beside it'
        )
    if problem:
        raise ShapelineError(f"{where}: {problem}")
