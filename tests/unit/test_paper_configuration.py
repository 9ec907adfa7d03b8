"""config.paper.yaml agrees with the papers: computed from the file, without a run.

`python -m tests.unit.test_paper_configuration` writes the cost of each experiment into the file.
"""

import contextlib
import re
import tempfile

import numpy as np
import pytest
import yaml

from shapeline.config import validation
from shapeline.datasets import preparation
from shapeline.hierarchy import exploration
from shapeline.papers import claims
from shapeline.workflow import messages
from tests.conftest import ROOT
from tests.fixtures import annotated_files, failures

FILE = ROOT / "config.paper.yaml"


def load_paper() -> dict:
    return yaml.safe_load(FILE.read_text())


def load_both(paper: dict):
    """The configuration with the experiments of config.paper.yaml on top of those of config.yaml."""
    default = yaml.safe_load((ROOT / "config.yaml").read_text())
    merged = {key: {**default.get(key, {}), **paper[key]} for key in ("datasets", "models", "experiments")}
    return validation.load({**merged, "run": paper["run"]})


def write_costs(text: str, config) -> str:
    """The text of config.paper.yaml with the estimated cost of each experiment on its line."""
    start, experiments = re.split(r"(?<=\nexperiments:\n)", text)

    def describe(line: re.Match) -> str:
        name = line[1]
        cost, model = messages.estimate_experiment(config, name), config.experiments[name].model
        told = f"{messages.format_amount(cost.rows)} model rows, {messages.format_time(cost.seconds)}"
        if model:
            told += f"; training {model}: {messages.format_time(messages.estimate_training(config, model))}"
        return f"  {name}:  # {told}\n"

    return start + re.sub(r"^  (\w+):(?:  #.*)?\n", describe, experiments, flags=re.M)


@pytest.fixture(scope="module")
def paper():
    return load_paper()


@pytest.fixture(scope="module")
def config(paper):
    return load_both(paper)


def test_the_file_shows_the_cost_of_each_experiment(paper, config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # without prepared data, whose sizes would be used
    text = FILE.read_text()
    assert text == write_costs(text, config), "write it: python -m tests.unit.test_paper_configuration"
    for name in paper["experiments"]:
        assert re.search(rf"^  {name}:  # .+ model rows, .+ core (minutes|hours)", text, re.M), name


def leaves(sides: tuple[int, int], min_size: int) -> set[tuple[int, int]]:
    """The sides of the leaves of an image all of which is relevant."""
    nodes, found = np.array([[0, sides[0], 0, sides[1]]]), set()
    while len(nodes):
        children, players = exploration._split_quadrants(nodes, min_size)
        found |= {(int(bottom - top), int(right - left)) for top, bottom, left, right in nodes[players == 1]}
        nodes = children[(np.arange(4) < players[:, None]) & (players[:, None] > 1)]
    return found


@pytest.mark.parametrize(
    ("experiment", "full", "min_size", "leaf"),
    [
        ("crosses_1", (100, 120), 3, {(3, 3), (3, 4), (4, 3), (4, 4)}),
        ("malaria", (1200, 1600), 75, {(75, 100)}),
        ("malaria_labels", (1200, 1600), 75, {(75, 100)}),
        ("lisa", (960, 1280), 30, {(30, 40)}),
    ],
)
def test_leaves_are_those_of_the_paper(paper, experiment, full, min_size, leaf):
    """Teneggi et al. 2021: at the reduced size a leaf is the same share of the image, to within a pixel."""
    assert leaves(full, min_size) == leaf
    entry = paper["experiments"][experiment]
    sides = paper["datasets"][paper["models"][entry["model"]]["dataset"]].get("size", full)
    here = leaves(tuple(sides), entry["methods"]["h_shap"]["min_size"])
    shrunk = [(height * sides[0] / full[0], width * sides[1] / full[1]) for height, width in leaf]
    assert all(any(abs(a - h) < 1 and abs(b - w) < 1 for a, b in shrunk) for h, w in here), (here, shrunk)


def test_the_recipes_are_those_of_the_paper(config):
    flips = {name: model.training.augment for name, model in config.models.items() if model.architecture == "resnet18"}
    assert set(map(tuple, flips.values())) == {("flip_horizontal",)}
    entries = config.models["malaria_labels_resnet"].training
    assert (entries.epochs, entries.schedule, entries.step, entries.step_epochs) == (60, "step", 0.7, 7)
    for name in ("malaria_resnet", "lisa_resnet"):
        recipe = config.models[name].training
        assert (recipe.epochs, recipe.schedule, recipe.step, recipe.step_epochs) == (25, "step", None, None)  # 0.2, 10
    assert (config.datasets["malaria"].split, config.datasets["malaria"].test) == ("drawn", 120)
    assert (config.datasets["malaria_labels"].split, config.datasets["malaria_labels"].test) == ("drawn", 0.2)


def test_the_explainers_with_a_background_have_the_papers(config):
    for name in ("crosses_1", "crosses_6"):
        methods = config.experiments[name].methods
        assert methods["expected_gradients"].background == methods["deep_lift"].background == 100
        peers = config.experiments[f"{name}_peers"].methods
        assert peers["peer_shap_gradient"].background == peers["peer_shap_deep"].background == 100
        assert methods["expected_gradients"].samples == peers["peer_shap_gradient"].samples == 200
        spent = [int(peers[f"peer_shap_partition_{m}"].budget * 12_000) for m in (500, 64, 32, 16)]
        assert spent == [500, 64, 32, 16]


def test_a_sampled_split_has_the_requested_count_of_each_class(tmp_path):
    """The official test part has one slide of each class; the paper samples its test part from all slides."""
    path = annotated_files.write_zip(tmp_path / "malaria.zip", annotated_files.malaria())
    settings = {"source": "malaria", "path": str(path), "size": [12, 16]}
    official = preparation.prepare("malaria", settings, [], tmp_path / "official")["counts"]["test"]
    assert official == {"no trophozoite": 1, "trophozoite": 1}
    for test, count in ((2, 2), (0.5, 2), (0.75, 3)):
        card = preparation.prepare("malaria", {**settings, "split": "drawn", "test": test}, [], tmp_path / "drawn")
        assert card["counts"]["test"] == {"no trophozoite": count, "trophozoite": count}
    for wrong, words in (
        ({"split": "drawn", "test": 4}, "4 records of each class, and one has 4; ask for fewer"),
        ({"split": "drawm"}, "unknown value 'drawm'. Did you mean 'drawn'?"),
        ({"test": 2}, "which split: drawn replaces; remove the key"),
        ({"split": "drawn", "test": 1.5}, "1.5 is not valid; input should be less than 1 or a whole number"),
    ):
        assert words in failures.failure(preparation.prepare, "malaria", {**settings, **wrong}, [], tmp_path / "wrong")


def test_controls_are_in_the_experiments_that_the_readme_names(config):
    """Random scores in every experiment; occlusion and a gradient × input where predictions or maps are judged."""
    for name, experiment in config.experiments.items():
        methods = {entry.method for entry in experiment.methods.values()}
        assert "random" in methods, name
        if name != "smoke" and experiment.model and (experiment.metrics.log_odds or experiment.metrics.localization):
            assert "occlusion" in methods and methods & {"gradient_x_input", "gradient_x_difference"}, name


def test_the_claims_of_c_shapley_test_the_printed_formula_and_the_named_fit(config):
    """Never the default, which was chosen by a comparison of our own."""
    asked = set()
    for claim in claims.CLAIMS:
        if claim.paper == claims.CHEN and "C-Shapley" in claim.text:
            asked |= {cell.cell_contents for cell in claim.check.__closure__ if isinstance(cell.cell_contents, str)}
            asked |= {
                one
                for cell in claim.check.__closure__
                if isinstance(cell.cell_contents, tuple)
                for one in cell.cell_contents
                if isinstance(one, str)
            }
    fits = {entry for entry in asked if entry.startswith("c_shapley")}
    assert fits == {"c_shapley_regression_printed", "c_shapley_regression_kernel"} == set(claims.FITS)
    for name in ("imdb", "agnews", "yahoo", "mnist38", "mnist_small", "cifar10dh"):
        methods = config.experiments[name].methods
        assert [methods[entry].fit for entry in claims.FITS] == ["printed", "kernel"], name


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        FILE.write_text(write_costs(FILE.read_text(), load_both(load_paper())))
