"""The traits in the registries' entries, against the functions and the pages."""

import inspect
import re
import subprocess
import sys

import pytest

from shapeline.datasets import sources
from shapeline.methods import registry
from shapeline.metrics.registry import METRICS, PAIRED
from shapeline.models import architectures, training


@pytest.mark.parametrize("name", sorted(registry.METHODS))
def test_a_method_samples_by_seed_if_its_entry_declares_it(name):
    if lacking := registry.find_missing_package(name):
        pytest.skip(lacking)
    method = registry.METHODS[name]
    assert bool(method.random) == (
        "seed" in inspect.signature(sources.resolve(method.function_for("torch")).function).parameters
    )


def test_designs_are_efficient_if_the_page_of_methods_states_it(root):
    row = (root / "docs/methods.md").read_text().partition("| efficiency |")[2].split("|")[1]
    named = re.findall(r"`(\w+)`", row)
    designs = [name for name, one in registry.METHODS.items() if one.family == "coalitions" and one.is_design]
    assert named == [name for name in designs if registry.METHODS[name].is_efficient({})] and len(named) > 5


def test_traits_name_parameters_that_entries_have():
    for name, method in registry.METHODS.items():
        for trait in (method.efficient, method.one_sided, method.gradients, method.random):
            assert not isinstance(trait, str) or trait in method.parameters.model_fields, (name, trait)
        assert not method.minimum or method.sampled, name
        assert ("derivative" in method.needs) == bool(method.gradients), name
        assert ("labelled points" in method.needs) == bool(method.measure), name
    regression, grad_cam = registry.METHODS["c_shapley_regression"], registry.METHODS["grad_cam"]
    assert regression.is_efficient({"constrained": True}) and not regression.is_efficient({})
    assert grad_cam.is_one_sided({}) and not grad_cam.is_one_sided({"signed": True})
    assert registry.METHODS["h_shap"].is_one_sided({}) and not registry.METHODS["shapley"].is_one_sided({})


def test_the_evaluations_of_an_entry_are_counted():
    def entry(name, **parameters):
        return registry.METHODS[name].parameters(method=name, **parameters)

    assert registry.METHODS["integrated_gradients"].count_gradients(entry("integrated_gradients", steps=7)) == 7
    assert registry.METHODS["saliency"].count_gradients(entry("saliency")) == 1
    assert (
        registry.METHODS["lime"].count_gradients(entry("lime")) == 0
        and entry("lime").count_evaluations(9, (3, 3)) is None
    )
    assert (
        entry("tree_shap").count_evaluations(300, None) == 2
        and entry("attention_rollout").count_evaluations(300, None) == 1
    )
    assert entry("partition", evaluations=64).count_evaluations(9, (3, 3)) == 64
    assert (
        entry("qii").count_evaluations(4, None) == 16
        and entry("qii", permutations=10).count_evaluations(30, None) == 300
    )
    assert entry("h_shap", shifts=[[0, 0], [1, 1]]).count_evaluations(64, (8, 8)) == 2 * 14 * 8 * 3


def test_metrics_that_rank_methods_are_reported_in_order():
    assert PAIRED == ("error", "ground_truth_words", "localization", "log_odds", "own", "prompts")
    assert {name for name, metric in METRICS.items() if not metric.needs_model} == {
        *("error", "ground_truth_words", "localization", "prompts", "cost")
    }


def test_every_architecture_has_its_training():
    assert set(architectures.ARCHITECTURES) == set(training.DEFAULTS)


def test_the_types_of_the_configuration_import_no_model():
    asked = "import sys, shapeline.config.types; print([m for m in sys.modules if m.startswith('shapeline.models.')])"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['shapeline.models.registry']"
