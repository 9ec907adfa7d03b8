"""The doctor's report: the environment, the needs of the run, and a line for each problem."""

import hashlib
import json
import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import skops.io
import yaml
from sklearn.preprocessing import FunctionTransformer

from shapeline.config import mistakes, validation
from shapeline.errors import ShapelineError
from shapeline.workflow import doctor, jobs, messages, runs
from tests.unit.shortcuts import build


@pytest.fixture
def place(root, tmp_path, monkeypatch):
    """An empty folder, with pins of its own, on a machine without GPUs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (tmp_path / "requirements.txt").write_text((root / "requirements.txt").read_text())
    monkeypatch.setattr(doctor, "find_root", lambda: tmp_path)
    return tmp_path


@pytest.fixture
def paper(root, default):
    """The raw configuration that --configfile config.paper.yaml makes."""
    more = yaml.safe_load((root / "config.paper.yaml").read_text())
    return {**default, **more, **{key: default[key] | more[key] for key in mistakes.SECTIONS}}


def told(raw: dict) -> tuple[str, list[str]]:
    return doctor.report(validation.load(raw))


def test_the_default_run_works(place, default):
    (place / "play.py").write_text("def build():\n    return None\n")
    default["experiments"]["play"] = {"game": "play.py:build", "methods": {"gp_shapley": {"method": "gp_shapley"}}}
    default["run"] = [*default["run"], "play"]
    text, problems = told(default)
    assert problems == [] and "play: a game, whose time" in text and "all but games, without" in text
    assert "packages as pinned" in text and "no GPU is visible to a job" in text
    assert "breast_cancer: to be prepared, about 68.3 kB" in text  # 569 rows of 30 float32
    for name in default["run"]:
        assert f"{name}: " in text


def test_types_of_a_pipeline_that_are_not_trusted_are_named(place, default):
    skops.io.dump(FunctionTransformer(partial(np.log1p)), place / "own.skops")
    pd.DataFrame({"a": range(9), "y": list("uvw") * 3}).to_csv(place / "own.csv", index=False)
    default["datasets"]["own"] = {"source": "table_file", "path": "own.csv", "target": "y"}
    default["models"]["own"] = {"dataset": "own", "source": "own.skops"}
    words = "models.own.source: own.skops holds types that are not trusted: functools.partial; list them under"
    [problem] = told(default)[1]
    assert problem.startswith(words)
    [line] = jobs.find_untrusted(validation.load(default))  # as a dry run
    assert line == problem
    default["models"]["own"]["trusted_types"] = ["functools.partial"]
    assert told(default)[1] == []
    del default["models"]["own"]["trusted_types"]
    weights = Path("results/models/own/weights.safetensors")
    weights.parent.mkdir(parents=True)
    weights.touch()
    assert told(default)[1] == []  # it was loaded before
    (place / "own.skops").write_bytes(b"no archive")
    os.utime(weights, (0, 0))
    assert "own.skops cannot be read as skops.io.dump writes it" in told(default)[1][0]


def test_a_package_that_is_missing_or_of_another_version(place, default, monkeypatch):
    (place / "requirements.txt").write_text("numpy==1.0.0\nno-such-package==1.2\n# tests and checks\nnor-this==1\n")
    text, problems = told(default)
    assert "other than pinned: numpy " in text and "(pinned 1.0.0)" in text
    assert problems == ["not installed: no-such-package; pip install -r requirements.txt"]
    monkeypatch.setattr(doctor, "OPTIONAL", ["no-such-package", "numpy"])  # as captum without the extra of peers
    text, problems = told(default)
    assert problems == [] and "not installed, and not needed by this run: no-such-package" in text


def test_files_to_place_by_hand_are_named_with_page_place_and_size(place, paper):
    paper["run"] = ["fer", "lisa"]
    text, problems = told(paper)
    by_hand = [problem for problem in problems if "placed by hand" in problem]
    assert len(by_hand) == 2
    assert by_hand[0].startswith("data/raw/fer/fer2013.csv has to be placed by hand (about 301 MB): get it at https:")
    assert "data/raw/lisa/lisa-traffic-light-dataset.zip" in by_hand[1] and "4.7 GB" in by_hand[1]
    assert "data/raw/weights/resnet18-f37072fd.pth: not downloaded, 47 MB, from https://download.pytorch.org" in text


def test_a_file_that_is_not_the_official_one_is_a_problem(place, paper):
    """By its size where that is published with the checksum, else by the checksum; where neither is, any is taken."""
    paper["run"] = ["agnews", "ssl"]
    files = [Path("data/raw/agnews/train.csv"), Path("data/raw/agnews/test.csv")]
    any_taken = Path("data/raw/ssl/Strategic_Subject_List.csv")
    for file in (*files, any_taken):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes(26))
    text, problems = told(paper)
    assert all(f"{file}: there, 26 B" in text for file in (*files, any_taken))
    remedy = "; delete it, or put the official one there"
    assert problems == [
        f"{files[0]} is not the official file (found md5 {hashlib.md5(bytes(26)).hexdigest()} (26 bytes), expected "
        f"b1a00f826fdfbd249f79597b59e1dc12){remedy}",
        f"{files[1]} is not the official file (26 of 1,857,427 bytes){remedy}",
    ]
    for file, size in zip(files, (0, 1_857_427), strict=True):
        file.unlink()
        with open(file, "wb") as stream:
            stream.truncate(size)
    files[0].unlink()
    assert told(paper)[1] == []


def test_a_corrupt_file_is_a_problem_and_the_other_checks_are_reported(place, default):
    file = Path(runs.list_score_files(validation.load(default), "digits", "exact")[0])
    file.parent.mkdir(parents=True)
    file.touch()
    text, problems = told(default)
    assert len(problems) == 1 and problems[0].startswith(f"{file}: damaged (")
    assert "packages as pinned" in text and "Disk and memory" in text


def test_offline_files_missing_here_and_in_the_mirror_are_a_problem(place, paper):
    paper |= {"run": ["mnist38"], "data": {"offline": True, "mirror": "mirror"}}
    Path("mirror/mnist").mkdir(parents=True)
    Path("mirror/mnist/train-images-idx3-ubyte.gz").touch()
    text, problems = told(paper)
    assert "data/raw/mnist/train-images-idx3-ubyte.gz: in the mirror, 9.91 MB" in text
    assert len(problems) == 3
    assert problems[0].startswith("data.offline is set and data/raw/mnist/train-labels-idx1-ubyte.gz is missing")
    paper["data"] = {}
    assert told(paper)[1] == []


def test_run_if_here_uses_available_data_and_the_doctor_names_the_missing(place, paper):
    """Placed, in the mirror's folder, or at the path; and no name is twice."""
    compas, lists = "compas/compas-scores-two-years.csv", Path("data/raw/ssl/Strategic_Subject_List.csv")
    paper |= {"run": ["digits", "fer"], "run_if_available": ["fer", "compas", "ssl"], "data": {"mirror": "mirror"}}

    def run_of() -> tuple[list[str], list[str]]:
        config = runs.add_available_experiments(validation.load(paper))
        return config.run, runs.list_unavailable(config)

    run, left = run_of()
    assert run == ["digits", "fer"]
    assert left == [
        f"not in this run: compas, because data/raw/{compas} is missing",
        f"not in this run: ssl, because {lists} is missing",
    ]
    assert all(f"  {line}\n" in told(paper)[0] for line in left)
    for file in (lists, Path("mirror") / compas):
        file.parent.mkdir(parents=True)
        file.touch()
    assert run_of() == (["digits", "fer", "compas", "ssl"], [])
    paper["data"] = {"mirror": "http://127.0.0.1:1/"}  # nothing is fetched for them
    assert run_of() == (["digits", "fer", "ssl"], left[:1])
    paper["datasets"]["compas"] = {"source": "compas", "path": f"mirror/{compas}"}
    assert run_of() == (["digits", "fer", "compas", "ssl"], [])
    paper["run_if_available"] = ["feer"]
    with pytest.raises(ShapelineError, match="run_if_available: there is no experiment 'feer'"):
        validation.load(paper)


def test_a_disk_too_small_and_a_folder_that_cannot_be_written(place, paper, monkeypatch):
    paper["run"] = ["yahoo"]
    assert told(paper)[1] == []
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1e9))
    monkeypatch.setattr(os, "access", lambda folder, mode: False)
    problems = told(paper)[1]
    small = "the disk is too small: data/raw and data/prepared and results: about 3."
    assert any(problem.startswith(small) for problem in problems)
    assert ". cannot be written, and data/raw has to be" in problems
    assert f"{place}: cannot be written; run in a folder that you can write" in problems


def test_a_dataset_larger_than_memory(place, paper, monkeypatch):
    paper["run"] = ["malaria"]  # 1,364 images of 3 x 600 x 800, a byte a value
    monkeypatch.setattr(doctor.psutil, "virtual_memory", lambda: SimpleNamespace(total=1.9e9))
    problems = [problem for problem in told(paper)[1] if "memory" in problem]
    assert len(problems) == 1 and "the memory, 1.9 GB, is too small for malaria: about 1.96 GB" in problems[0]
    monkeypatch.setattr(doctor.psutil, "virtual_memory", lambda: SimpleNamespace(total=2e9))
    assert not [problem for problem in told(paper)[1] if "memory" in problem]


def test_a_requested_gpu_that_is_missing(place, default, monkeypatch):
    assert told({**default, "device": "cuda"})[1] == ["device: cuda, but no GPU is visible to a job"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(doctor, "SEES", {"torch": "print(1)", "tensorflow": "print(0)"})
    text, problems = told({**default, "device": "cuda"})
    assert "visible to a job: 0" in text and "torch sees 1 GPU(s)" in text
    assert problems == ["device: cuda, but this build of tensorflow sees no GPU"]
    assert told(default)[1] == []


def test_experiments_of_long_jobs_and_of_models_of_unknown_speed_use_a_gpu(default, paper):
    paper["run"] = ["cifar10dh"]
    short, long = validation.load(default), validation.load(paper)
    assert messages.uses_gpu(short, "digits") is messages.trains_on_gpu(short, "digits_cnn") is False
    assert messages.uses_gpu(long, "cifar10dh") is messages.trains_on_gpu(long, "cifar_cnn") is True
    assert list(messages.list_gpu_lines(short, ["digits", "cancer"], None, 2)) == [
        "short jobs run on the CPU, where they end sooner (device: cuda: on a GPU): cancer, digits"
    ]
    assert list(messages.list_gpu_lines(long, ["cifar10dh"], None, 2)) == [
        "jobs that wait for a GPU hold cores; --resources gpu=2 starts them when one is free"
    ]
    for device, expected in (("cpu", False), ("cuda", True)):
        forced = validation.load({**default, "device": device})
        assert messages.uses_gpu(forced, "digits") is messages.trains_on_gpu(forced, "digits_cnn") is expected
    network = short.models["digits_cnn"]
    for source, expected in (("net.onnx", False), ("trees.skops", False), ("own.py:build", True)):
        short.models["digits_cnn"] = network.model_copy(update={"architecture": None, "source": source})
        assert messages.uses_gpu(short, "digits") is expected


def test_a_time_limit_below_the_estimate(place, default):
    default["experiments"]["digits"]["time_limit"] = 0.1  # of 2^16 coalitions
    assert told(default)[1] == [
        "experiments.digits.time_limit: 0.1 s per instance is below the estimate for 'exact', 0.53 s"
    ]
    default["experiments"]["digits"]["time_limit"] = 1
    assert told(default)[1] == []


def test_rates_are_read_from_existing_score_files(place, default, monkeypatch):
    loaded = validation.load(default)
    assert doctor.measure_rate(loaded, "digits") is None
    from shapeline import scores

    file = Path(runs.list_score_files(loaded, "cancer", "exact")[0])
    file.parent.mkdir(parents=True)
    file.touch()
    monkeypatch.setattr(scores, "read_table", lambda path: pd.DataFrame({"evaluations": [100, 300], "seconds": [1, 3]}))
    assert doctor.measure_rate(loaded, "cancer") == 1600  # of 16 background rows an evaluation
    assert "at 1,600 rows/s, measured on this machine" in doctor.report(loaded)[0]


def test_evaluations_are_those_of_the_designs(default):
    loaded = validation.load(default)
    assert messages.estimate_instance(loaded, "digits", "exact") == (2**16, 2**16)
    assert messages.estimate_instance(loaded, "digits", "kernel_shap") == (64, 64)
    assert messages.estimate_instance(loaded, "digits", "random") == (0, 0)
    built = build({"method": "l_shapley", "order": 1}, (4, 4)).evaluations
    assert messages.estimate_instance(loaded, "digits", "l_shapley")[0] == built
    assert messages.estimate_instance(loaded, "digits", "kernel_shap_as_l_shapley")[0] == pytest.approx(built)
    assert messages.estimate_instance(loaded, "cancer", "exact") == (2**10, 16 * 2**10)  # 16 background rows
    on_words = build({"method": "l_shapley", "order": 1}, (12,)).evaluations
    assert messages.estimate_instance(loaded, "reviews", "l_shapley")[0] == on_words
    assert messages.estimate_instance(loaded, "reviews", "integrated_gradients") == (50, 150)
    cost = messages.estimate_experiment(loaded, "digits")
    explained = 107 + 2 * 30  # by the first training, and by the others
    assert explained * 2**16 < cost.rows < explained * 1.5 * 2**16 and cost.slowest == "exact"


def test_the_cost_of_every_experiment_of_the_papers_is_reported(paper):
    loaded = validation.load(paper)
    for name in loaded.experiments:
        cost = messages.estimate_experiment(loaded, name)
        assert cost.seconds > 0 and (cost.rows > 0) == (loaded.experiments[name].model is not None)
    evaluations, seconds = messages.estimate_run(loaded)
    assert evaluations == sum(messages.estimate_experiment(loaded, name).rows for name in loaded.run)
    assert seconds > sum(messages.estimate_experiment(loaded, name).seconds for name in loaded.run)  # data, models


def test_prepared_data_determine_their_size(place, default):
    loaded = validation.load(default)
    assert messages.count_rows(loaded, "digits38") == 1797 * 2 // 10
    folder = place / "data/prepared/digits38"
    folder.mkdir(parents=True)
    counts = {"train": {"3": 100, "8": 90}, "validation": {"3": 5, "8": 5}, "test": {"3": 50, "8": 50}}
    (folder / "card.json").write_text(json.dumps({"counts": counts, "input_shape": [1, 8, 8]}))
    assert messages.count_rows(loaded, "digits38") == 300
    (folder / "arrays.npz").write_bytes(bytes(2_000_000))
    assert "digits38: prepared, 2 MB" in doctor.report(loaded)[0]


def test_times_and_counts_are_readable():
    assert [messages.format_time(seconds) for seconds in (1, 90, 5400, 360_000)] == [
        *("0.1 core minutes", "1.5 core minutes", "1.5 core hours", "100 core hours")
    ]
    assert [messages.format_amount(n) for n in (12, 3456, 7.89e6, 1.2e10)] == [
        "12",
        "3,456",
        "7.9 million",
        "12.0 billion",
    ]


def test_the_memory_of_a_large_design_is_reported_before_the_run(default, monkeypatch):
    loaded = validation.load({**default, "run": ["digits"]})
    assert messages.list_memory_warnings(loaded) == []
    needed = messages.estimate_design_bytes(loaded, "digits", "kernel_shap")
    assert needed == pytest.approx(2.3 * 8 * 64 * 16) and messages.estimate_design_bytes(loaded, "digits", "lime") == 0
    monkeypatch.setattr(messages, "MIN_STATED_BYTES", needed - 1)
    line, *_ = [line for line in messages.list_memory_warnings(loaded) if "each job of kernel_shap takes" in line]
    assert line.startswith("digits: each job of kernel_shap takes about 18.8 kB of memory for its design alone")
