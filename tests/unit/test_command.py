"""The command `shapeline`: configurations that are valid, and the Snakemake command that it prints and runs."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image

import shapeline
from shapeline.config import validation
from shapeline.errors import ShapelineError
from shapeline.operations import command, starting
from shapeline.plan import tracked
from tests.unit.test_documentation import merged

RNG = np.random.default_rng(0)


def made(folder, what):
    """A path of one's own data."""
    n, path = 60, folder / f"{what}.csv"
    numbers = {"a": RNG.random(n), "b": RNG.integers(0, 9, n)}
    if what == "pictures":
        for place in range(8):
            file = folder / "pictures" / ("cat" if place % 2 else "dog") / f"{place}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(RNG.integers(0, 255, (40, 50, 3), np.uint8)).save(file)
        return folder / "pictures"
    columns = {
        "classes": {**numbers, "label": RNG.choice(["yes", "no"], n)},
        "numbers": {"price": RNG.random(n), **numbers},
        "mixed": {**numbers, "job": RNG.choice(["x", None], n), "y": RNG.integers(0, 2, n)},
        "texts": {
            "sentiment": RNG.choice(["pos", "neg"], n),
            "said": ["a film of some length", "so very good a film"] * 30,
        },
    }[what]
    pd.DataFrame(columns).to_csv(path, index=False)
    return path


@pytest.mark.parametrize(
    ("what", "source", "target", "model"),
    [
        ("classes", "table_file", "label", "mlp"),
        ("numbers", "table_file", "price", "mlp"),
        ("texts", "text_file", "sentiment", "word_cnn"),
        ("pictures", "image_folder", None, "cifar_cnn"),
    ],
)
def test_a_configuration_is_made_by_looking_at_the_file(
    what, source, target, model, tmp_path, default, root, monkeypatch
):
    monkeypatch.chdir(root)
    text = starting.configuration(made(tmp_path, what))
    given = yaml.safe_load(text)
    assert given["datasets"]["mine"]["source"] == source and given["datasets"]["mine"].get("target") == target
    assert given["models"]["mine"]["architecture"] == model and text.count("#") >= 5
    config = validation.load(merged(default, given))
    assert ("exact" in config.experiments["mine"].methods) == (source == "table_file")


def test_texts_and_missing_cells_ask_for_a_pipeline(tmp_path):
    given = starting.configuration(made(tmp_path, "mixed"))
    assert "source: pipeline.skops" in given and "skops.io.dump" in given
    assert "source: mine.skops" in starting.configuration(tmp_path / "mixed.csv", model="mine.skops")


@pytest.mark.parametrize(
    ("path", "target", "words"),
    [
        ("none.csv", None, "there is no such file"),
        ("model.onnx", None, "give one of these"),
        ("classes.csv", "lable", "no column 'lable'"),
        (".", None, "one a class"),
    ],
)
def test_what_it_cannot_read_is_one_line(path, target, words, tmp_path):
    made(tmp_path, "classes")
    with pytest.raises(ShapelineError, match=words) as failure:
        starting.configuration(tmp_path / path, target)
    assert "\n" not in str(failure.value)


def test_the_command_that_is_run_is_printed(root, tmp_path, monkeypatch, capsys):
    called = []
    monkeypatch.setattr(command.subprocess, "run", lambda *given, **more: called.append((given, more)) or done)
    done = subprocess.CompletedProcess([], 3)
    monkeypatch.chdir(root / "docs")
    assert command.main(["run", "digits", "--cores", "2", "-n"]) == 3
    assert command.main(["doctor"]) == 3
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].endswith("&& snakemake digits --cores 2 --dry-run") and " doctor --cores all" in printed[1]
    ((words,), more), _ = called
    assert words == [sys.executable, "-m", "snakemake", "digits", "--cores", "2", "--dry-run"]
    assert more["cwd"] == root


def test_outside_a_clone_the_installed_workflow_runs_where_one_is(root, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    called = []
    done = subprocess.CompletedProcess([], 0)
    monkeypatch.setattr(command.subprocess, "run", lambda *given, **more: called.append((given, more)) or done)
    (tmp_path / "shapeline.yaml").write_text("run: [mine]\n")
    assert command.main(["run"]) == 0
    ((words,), more) = called[0]
    assert more["cwd"] == tmp_path and words[words.index("--snakefile") + 1] == str(root / "Snakefile")
    assert words[-2:] == [str(root / "config.yaml"), str(tmp_path / "shapeline.yaml")]
    monkeypatch.setattr(tracked, "PLACES", (tmp_path / "no", tmp_path / "share/shapeline"))
    assert command.main(["doctor"]) == 1
    said = capsys.readouterr().err
    assert "git clone" in said and "pip install" in said and said.count("\n") == 1
    installed = tmp_path / "share/shapeline"
    installed.mkdir(parents=True)
    (installed / "Snakefile").touch()
    assert tracked.workflow_root() == tmp_path / "share/shapeline"
    assert command.main(["open"]) == 1 and "make it by: shapeline run" in capsys.readouterr().err


def test_a_file_that_runs_python_is_refused_outside_a_clone_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shapeline.yaml").write_text("__use_yte__: true\nrun: [mine]\n")
    with pytest.raises(SystemExit, match="a configuration runs nothing"):
        command.main(["run"])


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit):
        command.main(["--version"])
    assert capsys.readouterr().out == f"shapeline {shapeline.__version__}\n"


def test_init_writes_a_file_once_and_run_reads_it(root, tmp_path, monkeypatch, capsys):
    clone = tmp_path / "clone"
    (clone / "workflow").mkdir(parents=True)
    (clone / "Snakefile").touch()
    monkeypatch.chdir(clone)
    monkeypatch.setattr(command.subprocess, "run", lambda *given, **more: subprocess.CompletedProcess([], 0))
    assert command.main(["init", str(made(tmp_path, "classes"))]) == 0
    assert yaml.safe_load((clone / "shapeline.yaml").read_text())["run"] == ["mine"]
    assert command.main(["run"]) == 0
    assert f"--configfile {clone}/shapeline.yaml" in capsys.readouterr().out
    assert command.main(["init", "again.csv"]) == 1 and "remove or rename it first" in capsys.readouterr().err
    assert command.main(["open"]) == 1 and "make it by: shapeline run" in capsys.readouterr().err
