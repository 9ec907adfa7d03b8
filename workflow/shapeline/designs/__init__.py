"""Every removal-based attribution as a design: masks to evaluate and a linear readout of their values.

Lazy, so that asking one family for its minimum budget imports that family alone.
"""

import importlib

_HOME = {
    "Design": "design",
    "shapley": "exact",
    "banzhaf": "exact",
    "myerson": "exact",
    "occlusion": "exact",
    "l_shapley": "local",
    "c_shapley": "connected",
    "c_shapley_regression": "connected",
    "kernel_shap": "sampled",
    "kernel_shap_minimum": "sampled",
    "sample_shapley": "sampled",
    "sample_shapley_minimum": "sampled",
    "lime": "surrogate",
    "lime_minimum": "surrogate",
    "lime_weights": "surrogate",
    "symmetric_least_squares": "surrogate",
}
__all__ = sorted(_HOME)


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'shapeline.designs' has no attribute {name!r}")
    return getattr(importlib.import_module(f"shapeline.designs.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
