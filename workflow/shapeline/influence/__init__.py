"""Influence from labelled points alone (Sliwinski, Strobel & Zick 2019). Not lazy: names of functions are modules'."""

from shapeline.influence import axioms
from shapeline.influence.arrays import shifted_picture
from shapeline.influence.counterfactual import counterfactual
from shapeline.influence.local_linear import data_lime
from shapeline.influence.mim import augment, augmented_mim, mim, set_influence, total_set_influence
from shapeline.influence.parzen import parzen
from shapeline.influence.qii import qii

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
