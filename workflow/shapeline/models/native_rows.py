"""A model and its data in one form: rows in their own types for a ready model, numbers for a network."""

import dataclasses
from typing import TYPE_CHECKING

from shapeline.models.classifier import Classifier

if TYPE_CHECKING:
    from shapeline.datasets.loading import Dataset


def fit_rows(model: Classifier, dataset: "Dataset") -> "tuple[Classifier, Dataset]":
    """Return the model and the dataset whose inputs it takes, each row in the types of the user's own table."""
    if model.framework != "function":
        return model, dataset.as_numbers()
    if not hasattr(model.module, "table") or dataset.own_rows is None:
        return model, dataset
    own = dataclasses.replace(model.module, table=dataset.own_rows[0])
    return dataclasses.replace(model, module=own), dataset.as_given()
