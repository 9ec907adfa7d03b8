"""A trained model whose last layers, or all, are sampled anew: what an explanation of it ought to notice."""

import importlib
import re

import numpy as np

from shapeline.errors import ShapelineError
from shapeline.models.architectures import build
from shapeline.models.classifier import Classifier, backend
from shapeline.models.registry import READERS, find_kind

BLOCK = re.compile(r"(.*?(?:\.\d+|embeddings))\.")  # of a transformer, in the names of its layers


def randomise(classifier: Classifier, layers: int | None, seed: int) -> list[str]:
    """Randomise the last `layers` layers (None: all) in place; return their names, last first.

    Adebayo et al. (2018, §3); layers of a smaller number are the same by one seed; scales are kept. Raises
    ShapelineError.
    """
    made_by, name = backend(classifier.framework), classifier.architecture
    layers_by_name = list_layers(classifier)
    count = len(layers_by_name) if layers is None else layers
    if count > len(layers_by_name):
        raise ShapelineError(
            f"randomisation.layers: {count} asked, '{name}' has {len(layers_by_name)} layers with weights "
            f"({', '.join(layers_by_name)}); ask for fewer, or full"
        )
    if _is_folder_model(classifier):
        fresh = importlib.import_module(READERS["folder"]).build_random(name, classifier.sizes, seed=seed)
    else:
        fresh = build(name, classifier.framework, seed=seed, **classifier.sizes)
    fresh = made_by.state(fresh.module)
    kept = made_by.state(classifier.module)
    chosen = list(layers_by_name)[len(layers_by_name) - count :]
    drawn = {weight: fresh[weight] for layer in chosen for weight in layers_by_name[layer]}
    if all(np.array_equal(array, kept[weight]) for weight, array in drawn.items()):
        raise ShapelineError(f"randomisation: '{name}' is built with the same weights for every seed; initialise them")
    made_by.set_state(classifier.module, {**kept, **drawn})
    return chosen[::-1]


def list_layers(classifier: Classifier) -> dict[str, list[str]]:
    """Return the trained layers from the input on with their weights' names; normalisations and blocks are joined."""
    made_by = backend(classifier.framework)
    arrays = made_by.state(classifier.module)
    layers: dict[str, list[str]] = {}
    for layer, names in made_by.trained_layers(classifier.module).items():
        block = BLOCK.match(f"{layer}.") if _is_folder_model(classifier) else None
        if block and block[1] in layers:
            layers[block[1]] += names
        elif block:
            layers[block[1]] = list(names)
        elif layers and all(arrays[name].ndim < 2 for name in names):
            layers[list(layers)[-1]] += names
        else:
            layers[layer] = list(names)
    return layers


def _is_folder_model(classifier: Classifier) -> bool:
    return find_kind(classifier.architecture, classifier.framework) == "folder"
