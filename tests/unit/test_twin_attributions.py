"""One model in two frameworks: equal weights give equal scores by every method."""

import numpy as np
import pytest

from shapeline.games.execution import ExecutionBackend
from shapeline.games.features import Features
from shapeline.games.references import Reference
from shapeline.methods import registry
from shapeline.models import architectures, storage
from tests.unit import shortcuts

LENGTH, WORDS = 12, 8
SIZES = {"word_cnn": {"filters": 16, "hidden": 8, "embedding": 6}, "bilstm": {"units": 5, "embedding": 6, "classes": 3}}
OF_MODELS = [
    name
    for name, method in registry.METHODS.items()
    if method.family in ("coalitions", "hierarchical", "gradients")
    and not method.torch_only
    and "text" in (method.data or ("text",))
]


@pytest.fixture(scope="module", params=sorted(SIZES))
def twins(request, tmp_path_factory):
    """The same weights, larger than untrained ones so that scores are far from 0, loaded in both frameworks."""
    file = tmp_path_factory.mktemp("twins") / "w.safetensors"
    built = architectures.build(request.param, seed=1, vocabulary=50, length=LENGTH, **SIZES[request.param])
    for weight in built.module.parameters():
        weight.data *= 3
    storage.save(built, file)
    return [storage.load(file, framework=framework) for framework in ("torch", "tensorflow")]


@pytest.mark.parametrize("form", ["plain", "windows"])
@pytest.mark.parametrize("name", OF_MODELS)
def test_scores_are_equal(twins, name, form):
    if form == "windows" and not hasattr(twins[0].module, "window_size"):
        pytest.skip("a recurrent model has no local receptive field")
    rng = np.random.default_rng(0)
    documents = np.zeros((3, LENGTH), np.int32)
    documents[:, :WORDS] = rng.integers(1, 50, (3, WORDS))
    cells = np.where(np.arange(LENGTH) < WORDS, np.arange(LENGTH), -1).astype(np.int32)
    features, reference = Features("word", (WORDS,), cells), Reference(np.zeros((1, LENGTH), np.int32))
    budget = (12.0 if name == "sample_interactions" else 5.0) if registry.METHODS[name].sampled else None
    targets = twins[0].log_probs(documents).argmax(1)
    one, other = (
        shortcuts.attribute(
            *(model, documents, targets, {"method": name}, features, reference),
            budgets=[budget],
            seed=5,
            backend=ExecutionBackend(form, 64),
            on_error="fail",
        )[0]
        for model in twins
    )
    assert np.abs(one.scores - other.scores).max() < 1e-4
    assert (one.evaluations == other.evaluations).all()
    assert name == "random" or np.abs(one.scores).max() > 1e-2
