"""Influence from labelled data only (Sliwinski, Strobel & Zick 2019). Imported eagerly, since `axioms` is a module."""

from shapeline.influence import axioms
from shapeline.influence.distances import shifted_picture
from shapeline.influence.local_linear import data_lime
from shapeline.influence.measures import (
    augment,
    augmented_mim,
    counterfactual,
    mim,
    parzen,
    qii,
    set_influence,
    total_set_influence,
)

__all__ = [
    "augment",
    "augmented_mim",
    "axioms",
    "counterfactual",
    "data_lime",
    "mim",
    "parzen",
    "qii",
    "set_influence",
    "shifted_picture",
    "total_set_influence",
]
