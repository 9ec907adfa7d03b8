"""A run accepts the configuration of `shapeline init` for any names of columns, classes and files."""

import contextlib
import copy
import os
import time

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image

from shapeline.config import validation
from shapeline.datasets import csv_file, loading, preparation
from shapeline.datasets.sources import expand
from shapeline.errors import ShapelineError
from shapeline.workflow import init_config

RNG = np.random.default_rng(0)
NAMES = [
    *("grade #final", "yes", "no", "on", "true", "null", "None", "~", "NA", "nan", "1e5", "0x1f", "012"),
    *("2020", "1_000", "12:30", "2020-01-02", "Outcome: died", "a: b", "- a", "? a", "! a", "&a", "*a"),
    *("% default", "@a", "`a`", "|", ">", "'", "''", '"', 'say "hi"', "it's", "\\", "a\\nb", "\\u0041"),
    *("{a}", "{{a}}", "[a]", "{a: 1}", "a, b", "a;b", "#", " lead", "trail ", "  both  ", "\ttab", "$HOME"),
    *("${HOME}", "$a", "~/a", "<b>", "&amp;", "=1+1", "-", "--", ".", "a.", "\xfcn\xef \u2603"),
    *("\u53d8\u91cf", "\U0001f600", "\u0627\u0644", "a\xa0b", "e\u0301", "\u200bx", "!!python/none", "<<"),
    *("long " * 60, "a\x07b", "date", "---", "..."),
]
FILES = [name for name in NAMES if "/" not in name and len(name) < 200 and name != "."]


def test_the_table_has_enough_names():
    assert len(NAMES) == len(set(NAMES)) > 40


def read_dataset(text: str) -> dict:
    """The keys of the only dataset of a configuration."""
    (entry,) = yaml.safe_load(text)["datasets"].values()
    return entry


@pytest.fixture
def default(parsed_default) -> dict:
    """The default configuration with one experiment of ten, which is validated as often as a file is read back."""
    experiment = parsed_default["experiments"]["cancer"]
    model = parsed_default["models"][experiment["model"]]
    sections = {"experiments": {"cancer": experiment}, "models": {experiment["model"]: model}}
    sections["datasets"] = {model["dataset"]: parsed_default["datasets"][model["dataset"]]}
    return copy.deepcopy(parsed_default | {"run": ["cancer"]} | sections)


def read_back(folder, text: str, default: dict, monkeypatch) -> loading.Dataset:
    """The dataset that a run prepares by a configuration."""
    from snakemake.common.configfile import load_configfile

    file = folder / "shapeline.yaml"
    file.write_text(text, encoding="utf-8")
    given = load_configfile(file)
    assert given == yaml.safe_load(text)
    config = validation.load(default | {"datasets": default["datasets"] | given["datasets"]})
    (name,) = given["run"]
    entry = config.datasets[name].model_dump(exclude_unset=True)
    preparation.prepare(entry["source"], entry, [], folder / "data")
    return loading.load(folder / "data")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("name", NAMES)
def test_a_column_may_have_any_name(name, suffix, tmp_path, default, monkeypatch, root):
    monkeypatch.chdir(root)
    table = pd.DataFrame({"a": RNG.normal(size=40), f"{name}2": RNG.normal(size=40), name: ["in", "out"] * 20})
    file = tmp_path / f"d.{suffix}"
    table.to_csv(file, index=False) if suffix == "csv" else table.to_parquet(file)
    guessed, given = (init_config.build_configuration(file, target) for target in (None, name))
    assert guessed.replace("    # guessed; shapeline init --target names another", "") == given
    data = read_back(tmp_path, guessed, default, monkeypatch)
    assert data.card["classes"] == ["in", "out"] and data.card["feature_names"] == ["a", f"{name}2"]
    table.insert(0, f"{name}0", np.arange(40))  # counts the rows, so that the others are listed
    table.to_csv(file, index=False) if suffix == "csv" else table.to_parquet(file)
    data = read_back(tmp_path, init_config.build_configuration(file), default, monkeypatch)
    assert data.card["classes"] == ["in", "out"] and data.card["feature_names"] == ["a", f"{name}2"]


@pytest.mark.parametrize("name", NAMES)
def test_a_class_may_have_any_name(name, tmp_path, default, monkeypatch, root):
    monkeypatch.chdir(root)
    table = pd.DataFrame(RNG.normal(size=(40, 2)), columns=["a", "b"])
    table = table.assign(note="some words of a text", y=["other", name] * 20)
    table.to_csv(tmp_path / "texts.csv", index=False)
    table.drop(columns="note").to_csv(tmp_path / "table.csv", index=False)
    for file in ("texts.csv", "table.csv"):
        data = read_back(tmp_path, init_config.build_configuration(tmp_path / file), default, monkeypatch)
        assert data.card["classes"] == sorted(["other", name])


@pytest.mark.parametrize("name", NAMES)
def test_a_column_of_texts_may_have_any_name(name, tmp_path, default, monkeypatch, root):
    monkeypatch.chdir(root)
    texts = [f"some {word} of a text" for word in ("words", "signs")] * 20
    pd.DataFrame({name: texts, "y": ["in", "out"] * 20}).to_csv(tmp_path / "d.csv", index=False)
    text = init_config.build_configuration(tmp_path / "d.csv")
    assert read_dataset(text)["text"] == name
    assert len(read_back(tmp_path, text, default, monkeypatch).inputs) == 40


@pytest.mark.parametrize("name", FILES)
def test_a_file_and_a_folder_may_have_any_name(name, tmp_path, default, monkeypatch):
    folder = tmp_path / name
    folder.mkdir()
    table = pd.DataFrame(RNG.normal(size=(40, 2)), columns=["a", "b"]).assign(y=["in", "out"] * 20)
    table.to_csv(folder / f"{name}.csv", index=False)
    monkeypatch.chdir(folder)
    text = init_config.build_configuration(type(tmp_path)(f"{name}.csv"))
    assert len(read_back(tmp_path, text, default, monkeypatch).inputs) == 40


@pytest.mark.parametrize("name", FILES)
def test_a_folder_of_images_may_have_any_name(name, tmp_path, default, monkeypatch, root):
    monkeypatch.chdir(root)
    for kind in (name, "other"):
        (tmp_path / name / kind).mkdir(parents=True)
        for number in range(6):
            image = Image.fromarray(RNG.integers(0, 255, (8, 8, 3), np.uint8))
            image.save(tmp_path / name / kind / f"{name}{number}.png")
    if name.startswith((".", "\u200b")) or name in ("...",):
        pytest.skip("a hidden folder is no class")
    data = read_back(tmp_path, init_config.build_configuration(tmp_path / name), default, monkeypatch)
    assert data.card["classes"] == sorted([name, "other"])


def test_an_existing_path_is_not_expanded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "$NONE.csv").write_text("")
    assert expand("$NONE.csv").is_file() and expand(str(tmp_path / "$NONE.csv")).is_file()
    with pytest.raises(ShapelineError, match="the environment variable OTHER_NONE is not set"):
        expand("$OTHER_NONE.csv")
    monkeypatch.setenv("OTHER_NONE", "x")
    assert os.fspath(expand("$OTHER_NONE.csv")) == "x.csv"


# -------------------------------------------------------------------------------------------------- images in grey


def image(mode: str, alpha: int = 255) -> Image.Image:
    grey = Image.fromarray(RNG.integers(0, 255, (12, 12), np.uint8))
    if mode in ("LA", "RGBA"):
        made = grey.convert(mode)
        made.putalpha(alpha)
        return made
    return Image.fromarray(RNG.integers(0, 1000, (12, 12)).astype(np.uint16)) if mode == "I;16" else grey.convert(mode)


@pytest.mark.parametrize(
    ("modes", "color"),
    [
        (("LA",), "grey"),
        (("L",), "grey"),
        (("1",), "grey"),
        (("L", "LA"), "grey"),
        (("RGB",), "rgb"),
        (("RGBA",), "rgb"),
        (("P",), "rgb"),
        (("RGB", "RGBA"), "rgb"),
        (("RGB", "LA"), "grey"),
        (("LA", "RGB"), "grey"),
        (("RGBA", "L"), "grey"),
    ],
)
def test_a_run_accepts_the_configuration_written_for_images(modes, color, tmp_path, default, monkeypatch, root):
    monkeypatch.chdir(root)
    for place in range(12):
        file = tmp_path / "own" / "ab"[place % 2] / f"{place:02d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        image(modes[place // 2 % len(modes)]).save(file)
    text = init_config.build_configuration(tmp_path / "own")
    assert read_dataset(text)["color"] == color
    data = read_back(tmp_path, text, default, monkeypatch)
    assert len(data.inputs) == 12 and data.card["input_shape"][0] == (1 if color == "grey" else 3)


@pytest.mark.parametrize(("mode", "alpha", "said"), [("LA", 0, ""), ("RGBA", 9, ""), ("I;16", 255, "8 bits")])
def test_images_that_a_run_refuses_are_refused_at_once(mode, alpha, said, tmp_path):
    for place in range(4):
        file = tmp_path / "own" / "ab"[place % 2] / f"{place}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        image(mode, alpha).save(file)
    with pytest.raises(ShapelineError, match=said) if said else contextlib.nullcontext():
        init_config.build_configuration(tmp_path / "own")


def test_texts_without_spaces_need_a_tokenizer(tmp_path):
    documents = ["昨天看了这个电影非常好看。", "演员的故事无聊。", "剧情糟糕，我们失望。"]
    for texts, keys, said in (
        (documents, {}, "the texts of '评论' have no spaces between words, .*; give --model path/to/folder"),
        (documents, {"text": "评论"}, "the texts of '评论' have no spaces between words"),
        (["高级工程师", "教师", "医生"], {}, "has one feature column"),
    ):
        pd.DataFrame({"评论": texts * 9, "情感": list("好差差") * 9}).to_csv(tmp_path / "评论.csv", index=False)
        with pytest.raises(ShapelineError, match=said):
            init_config.build_configuration(tmp_path / "评论.csv", None, None, keys)


# ------------------------------------------------------------------------------------------ how a CSV file is written


@pytest.mark.parametrize(
    ("content", "keys"),
    [
        ("a;b;y\n" + "1,5;2;in\n2,5;3;out\n" * 20, {"separator": ";", "decimal": ","}),
        ("a\tb\ty\n" + "1.5\t2\tin\n2.5\t3\tout\n" * 20, {"separator": "tab"}),
        ('a,b,y\n"1,500",2,in\n' + '"22,500",3,out\n0.5,4,in\n' * 20, {"thousands": ","}),
        ('a,b,y\n"1,500",2,in\n' + '"22,500",3,out\n' * 20, {"thousands": ","}),
        ("a;b;y\n" + "1,500;2;in\n2,500;3;out\n" * 20, {"separator": ";", "decimal": ","}),
        ("a;b;y\n" + "1.500;2,5;in\n2.500;3;out\n" * 20, {"separator": ";", "decimal": ",", "thousands": "."}),
        ("a;b;y\n" + "1'500.5;2;in\n2;3;out\n" * 20, {"separator": ";", "thousands": "'"}),
        ("a, b, y\n" + "1.5, 2, in\n2.5, 3, out\n" * 20, {"trim": True}),
        ("a,b,y\n" + "1.5,2,in\n2.5,3,out\n" * 20, {}),
        ("a;b;y\n" + "1,5;2;s\u00fc\u00df\n2,5;3;out\n" * 20, {"separator": ";", "decimal": ",", "encoding": "cp1252"}),
        *(
            ("a,b,y\n" + f"1.5,2,{word}\n2.5,3,out\n" * 20, {"encoding": encoding})
            for encoding, word in {
                "utf-16": "in",
                "shift_jis": "\u30c6\u30b9\u30c8",
                "gb18030": "\u7537",
                "euc_kr": "\ub370\uc774\ud130",
                "cp1251": "\u041c\u043e\u0441\u043a\u0432\u0430",
            }.items()
        ),
        ("a;b;y\n" + f"1,5;2;{'x' * 400_000}\n2,5;3;out\n" * 2, {"separator": ";", "decimal": ","}),
        ("a b  y\n" + "1.5  2 in\n2.5 3 out\n" * 20, {"separator": "spaces"}),
    ],
    ids=lambda value: None if isinstance(value, dict) else "",
)
def test_how_a_file_is_written_is_detected(content, keys, tmp_path, default, monkeypatch, root):
    monkeypatch.chdir(root)
    (tmp_path / "d.csv").write_bytes(content.encode(keys.get("encoding", "utf-8")))
    text = init_config.build_configuration(tmp_path / "d.csv")
    entry = read_dataset(text)
    assert {key: entry[key] for key in entry if key not in ("source", "path", "target")} == keys
    assert ("# guessed from its letters" in text) == (keys.get("encoding", "utf-16") != "utf-16")
    data = read_back(tmp_path, text, default, monkeypatch)
    assert data.card["feature_names"] == ["a", "b"] and "categories" not in data.card
    assert "out" in data.card["classes"]


def test_a_nullable_column_does_not_count_the_rows(tmp_path):
    codes = pd.array([1, None] * 20, dtype="Int64")
    pd.DataFrame({"a": RNG.normal(size=40), "k": codes, "y": ["in", "out"] * 20}).to_parquet(tmp_path / "d.parquet")
    assert "columns" not in read_dataset(init_config.build_configuration(tmp_path / "d.parquet"))


def test_reported_words_include_unchanged_ones(tmp_path, default, monkeypatch, root):
    monkeypatch.chdir(root)
    rows = "".join(f"{i},{['NA', 'mild', 'bad'][i % 3]},{['None', 'some'][i % 2]}\n" for i in range(3, 63))
    (tmp_path / "d.csv").write_text("a,kind,effect\n" + rows)
    text = init_config.build_configuration(tmp_path / "d.csv", model="own.py:ask")
    assert '# na_values: ["NA"] reads these words in "kind" as missing cells' in text
    data = read_back(tmp_path, text, default, monkeypatch)
    assert data.card["classes"] == ["None", "some"] and data.card["categories"] == {"kind": ["NA", "bad", "mild"]}


def test_a_long_cell_does_not_slow_the_guess_of_an_encoding(tmp_path):
    """Letters in a row are read once each: a pattern that tries each as a beginning takes minutes."""
    (tmp_path / "d.csv").write_bytes(("a,y\n" + "x" * 300_000 + ",é\n").encode("cp1252"))
    began = time.process_time()
    assert csv_file.detect(tmp_path / "d.csv")[0].encoding == "cp1252"
    assert time.process_time() - began < 5
