"""config.paper.yaml resolves offline, and each of its experiments runs on files in the official formats."""

import json
import re
import resource

import pandas as pd
import pytest
import yaml

from shapeline import scores
from shapeline.datasets import registry, sources
from shapeline.methods import registry as methods_registry
from tests.fixtures import annotated_files, builders, influence_files, picture_files, text_files
from tests.workflow.conftest import copy_repository

pytestmark = pytest.mark.xdist_group("paper")  # one run serves all

# What each experiment runs here, of its many methods; together one of each family.
KEPT = {
    "mnist38": ["c_shapley_regression"],
    "cifar10dh": ["deep_lift"],
    "imdb": ["l_shapley"],
    "imdb_sentence": ["exact", "c_shapley"],
    "imdb_lasso": ["lime_lasso"],
    "agnews": ["kernel_shap"],
    "agnews_words": ["c_shapley"],
    "yahoo": ["integrated_gradients"],
    "crosses_1": ["h_shap"],
    "crosses_6": ["partition_64"],
    "crosses_1_peers": ["h_shap_relative"],  # the peers' package is not always installed
    "crosses_6_peers": ["gradient_x_difference"],
    "malaria": ["grad_cam"],
    "malaria_labels": ["h_shap"],
    "malaria_leaves": ["h_shap_2"],
    "lisa": ["h_shap"],
    "fer": ["mim"],
    "ssl": ["parzen"],
    "ssl_records": ["mim"],
    "compas": ["mim"],
    "fer_model": ["data_lime"],
    "cancer_model": ["data_lime_step", "augmented_mim", "qii"],
    "cancer_tree": ["partition"],
    "reviews_tree": ["h_shap_relative"],
    "crosses_spun": ["h_shap_spun"],
    "mnist_small_expected": ["l_shapley"],
    "mnist_small_lime": ["lime_input"],
}


@pytest.fixture(scope="module")
def paper(root) -> dict:
    return yaml.safe_load((root / "config.paper.yaml").read_text())


def runnable(paper: dict) -> list[str]:
    """The experiments whose methods' packages are installed: not those of the peers, where the extra is not."""
    asked = {name: {entry["method"] for entry in one["methods"].values()} for name, one in paper["experiments"].items()}
    return [name for name, methods in asked.items() if not any(map(methods_registry.find_missing_package, methods))]


def official_files(folder) -> dict:
    """A few records of every source in its official form; the path of each, by source."""
    builders.write_mnist(folder / "mnist")
    text_files.write_folder(folder / "agnews", {"train.csv": text_files.agnews(40), "test.csv": text_files.agnews(16)})
    for name, header, rows in (
        ("fer", influence_files.FER_HEADER, influence_files.fer_rows(16, 12)),
        ("ssl", influence_files.SSL_HEADER, influence_files.ssl(150) + influence_files.ssl(150, race_code_cd="WWH")),
        ("compas", influence_files.COMPAS_HEADER, influence_files.compas(60)),
    ):
        (folder / f"{name}.csv").write_bytes(influence_files.table(header, rows))
    yahoo = {f"yahoo_answers_csv/{part}.csv": text_files.yahoo(n) for part, n in (("train", 60), ("test", 20))}
    return {
        "mnist": folder / "mnist",
        "agnews": folder / "agnews",
        "fer": folder / "fer.csv",
        "ssl": folder / "ssl.csv",
        "compas": folder / "compas.csv",
        "cifar10": text_files.write_archive(folder / "cifar.tar.gz", picture_files.cifar10(60)),
        "imdb": text_files.write_archive(folder / "imdb.tar.gz", text_files.imdb()),
        "yahoo": text_files.write_archive(folder / "yahoo.tgz", yahoo),
        "malaria": annotated_files.write_zip(folder / "malaria.zip", annotated_files.malaria()),
        "lisa": annotated_files.write_zip(folder / "lisa.zip", annotated_files.lisa()),
    }


def small(paper: dict, folder) -> dict:
    """Overrides of config.paper.yaml: small files, smaller inputs and networks, no downloads."""
    files = official_files(folder)
    sizes = {
        **{source: {"size": [24, 32]} for source in ("malaria", "lisa")},
        "imdb": {"length": 30, "vocabulary": 200},
        "yahoo": {"length": 24, "vocabulary": 200},
        "agnews": {"length": 150},
        "crosses": {"count": 160},
    }
    networks = {"word_cnn": {"filters": 6}, "char_cnn": {"hidden": 8}, "bilstm": {"units": 4, "embedding": 5}}
    raw = {"scale": "smoke", "run": list(paper["experiments"]), "datasets": {}, "models": {}, "experiments": {}}
    for name, entry in paper["datasets"].items():
        path = {"path": str(files[entry["source"]])} if entry["source"] in files else {}
        if "test" in entry:  # of eight slides: one of each class, or one in all, so that a ring is left to train on
            path["test"] = 1 if isinstance(entry["test"], int) else 0.1
        raw["datasets"][name] = {**path, **sizes.get(entry["source"], {})}
    for name, entry in paper["models"].items():
        raw["models"][name] = {"weights": None, "sizes": networks.get(entry["architecture"], {})}
    for name, experiment in paper["experiments"].items():
        changed = {}
        for entry, method in experiment["methods"].items():
            if "min_size" in method:
                # Each shift asks all nodes anew.
                changed[entry] = {"min_size": 12 if "shifts" in method else min(3, method["min_size"])}
            if method["method"] == "qii":
                changed[entry] = {"permutations": 3}
            if "background" in method:
                changed[entry] = {"background": 2}
            if method.get("features", {}).get("kind") == "patch":
                changed[entry] = {"features": {"kind": "patch", "size": min(8, method["features"]["size"])}}
        raw["experiments"][name] = {"methods": changed}
    raw["experiments"]["cifar10dh"]["features"] = {"kind": "patch", "size": 4}  # two thirds of the run by pixels
    return raw


def begun(root, tmp_path_factory, raw_of, *targets: str):
    checkout = copy_repository(root, tmp_path_factory.mktemp("paper"))
    (checkout.path / "small.yaml").write_text(yaml.safe_dump(raw_of(checkout.path / "official")))
    files = ("--configfile", "config.paper.yaml", "small.yaml")
    done = checkout.snakemake(*targets, "--cores", "2", *files, timeout=3000)
    return checkout, done


@pytest.fixture(scope="module")
def run(root, paper, tmp_path_factory):
    """Every experiment to its scores, by a method or two."""

    def raw_of(folder) -> dict:
        folder.mkdir()
        raw = small(paper, folder)
        for name in ("imdb_cnn", "agnews_cnn", "yahoo_lstm"):  # by TensorFlow, for longer, in test_text.py
            raw["models"][name]["framework"] = "torch"
        for name, experiment in raw["experiments"].items():
            removed = dict.fromkeys(entry for entry in paper["experiments"][name]["methods"] if entry not in KEPT[name])
            experiment["methods"] = {**experiment["methods"], **removed}
            experiment["metrics"] = {"randomisation": None}
            if "count" in paper["experiments"][name].get("instances", {}):
                experiment["instances"] = {"count": 4}
        return raw

    return begun(root, tmp_path_factory, raw_of, "scores")


def test_the_paper_configuration_resolves_offline_in_seconds(fresh, paper):
    """All its experiments, not only those under `run`."""
    (fresh.path / "all.yaml").write_text(yaml.safe_dump({"run": runnable(paper)}))
    closed = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    seconds, runs = [], [(), ("--configfile", "config.paper.yaml", "all.yaml")]
    for arguments in runs:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = fresh.snakemake("-n", *arguments, env=closed, cold=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert "fetch_source" in done.stdout and "render_index" in done.stdout
    assert all(f"results/reports/{name}.html" in done.stdout for name in runnable(paper))
    assert seconds[1] < 4 * seconds[0]  # 2 to 2.5 times the default configuration's


def test_all_experiments_of_the_papers_exist_and_run(paper):
    ten = {"imdb", "agnews", "yahoo", "mnist38", "cifar10dh", "crosses_1", "crosses_6", "malaria", "lisa", "fer", "ssl"}
    assert ten <= set(paper["experiments"]) == set(KEPT)


def test_every_experiment_runs_at_smoke_scale(run, paper):
    checkout, done = run
    assert re.search(r"^\d+ jobs to run: ", done.stderr, re.M)
    assert re.search(r"^\d+ jobs done$", done.stderr, re.M)
    for name in paper["experiments"]:
        selected = pd.read_parquet(checkout.path / f"results/smoke/{name}/instances.parquet")
        assert 1 <= len(selected) <= 16, name
        for entry in KEPT[name]:
            rows = scores.read(checkout.path / f"results/smoke/{name}/scores/{entry}")
            assert (rows["status"] == "ok").all(), (name, entry, rows["error"].dropna().unique())


def test_the_cards_are_of_the_official_formats(run, paper):
    checkout, _ = run
    for name, entry in paper["datasets"].items():
        card = json.loads((checkout.path / f"data/prepared/{name}/card.json").read_text())
        source = registry.SOURCES[entry["source"]]
        assert card["source"] == entry["source"] and card["kind"] == source.kind
        assert card["records"] and set(card["counts"]) == set(sources.PARTS)
        assert set(card["classes"]) <= {*source.classes, *source.labels}


@pytest.mark.real
def test_every_method_of_every_experiment_reaches_its_report(root, paper, tmp_path_factory):
    """Hundreds of jobs: a quarter of an hour."""

    def raw_of(folder) -> dict:
        folder.mkdir()
        return {**small(paper, folder), "run": runnable(paper)}

    checkout, _ = begun(root, tmp_path_factory, raw_of)
    for name in runnable(paper):
        assert (checkout.path / f"results/smoke/reports/{name}.html").exists()
