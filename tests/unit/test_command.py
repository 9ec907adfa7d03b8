"""The command `shapeline`: configurations that are valid, and the Snakemake command that it prints and runs."""

import dataclasses
import errno
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import skops.io
import yaml
from PIL import Image
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import shapeline
from shapeline import datasets
from shapeline.config import validation
from shapeline.errors import ShapelineError
from shapeline.models import architectures, onnx_file, pipeline_file, storage
from shapeline.workflow import command, init_config, job_code
from tests.unit.test_documentation import merged

RNG = np.random.default_rng(0)


def made(folder, what):
    """A path of custom data."""
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
def test_a_configuration_is_derived_from_the_file(what, source, target, model, tmp_path, default, root, monkeypatch):
    monkeypatch.chdir(root)
    text = init_config.build_configuration(made(tmp_path, what))
    given = yaml.safe_load(text)
    assert given["run"] == [what]
    assert given["datasets"][what]["source"] == source and given["datasets"][what].get("target") == target
    assert given["models"][what]["architecture"] == model and text.count("#") >= 5
    methods = list(validation.load(merged(default, given)).experiments[what].methods)
    gradients = ["integrated_gradients", "gradient_x_difference"]
    exact = ["exact"] * (source == "table_file")
    assert methods == [*exact, "gp_shapley", "kernel_shap", *gradients, "occlusion", "random"]


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("wine.csv", "wine"),
        ("Wine Quality (red).csv", "wine_quality_red"),
        ("Löhne 2024.csv", "lohne_2024"),
        ("2024.csv", "data_2024"),
        ("木.csv", "data"),
        ("diabetes.csv", "my_diabetes"),
        ("report.csv", "my_report"),
    ],
)
def test_names_are_the_files_and_no_names_of_the_default_run(file, name, tmp_path, default, root, monkeypatch):
    monkeypatch.chdir(root)
    made(tmp_path, "classes").rename(tmp_path / file)
    given = yaml.safe_load(init_config.build_configuration(tmp_path / file))
    assert given["run"] == list(given["datasets"]) == list(given["models"]) == list(given["experiments"]) == [name]
    assert validation.load(merged(default, given)).run == [name]


@pytest.mark.parametrize(
    ("estimator", "classes", "value"),
    [
        (RandomForestClassifier(3), ["a", "b", "c"], None),
        (GradientBoostingClassifier(n_estimators=3), ["a", "b"], "margin"),
        (GradientBoostingClassifier(n_estimators=3), ["a", "b", "c"], "centred_logit"),
        (LogisticRegression(), ["a", "b"], "no trees"),
    ],
)
def test_tree_shap_is_written_for_trees_that_it_explains(
    estimator, classes, value, tmp_path, default, root, monkeypatch
):
    monkeypatch.chdir(root)
    table = pd.DataFrame({"a": RNG.random(60), "b": RNG.random(60), "label": classes * (60 // len(classes))})
    table.to_csv(tmp_path / "trees.csv", index=False)
    skops.io.dump(make_pipeline(estimator).fit(table[["a", "b"]], table["label"]), tmp_path / "model.skops")
    given = yaml.safe_load(init_config.build_configuration(tmp_path / "trees.csv", model=str(tmp_path / "model.skops")))
    own = given["experiments"]["trees"]
    assert ("tree_shap" in own["methods"]) == (value != "no trees")
    assert own.get("value") == (None if value == "no trees" else value)
    assert "integrated_gradients" not in own["methods"]
    validation.load(merged(default, given))


def test_the_features_are_the_columns_that_the_model_was_fitted_on(tmp_path):
    table = pd.DataFrame({name: RNG.random(60) for name in ("id", "a", "b", "c")} | {"label": ["x", "y"] * 30})
    table.to_csv(tmp_path / "data.csv", index=False)
    skops.io.dump(LogisticRegression().fit(table[["a", "b"]], table["label"]), tmp_path / "model.skops")
    for keys, columns in (({}, ["a", "b"]), ({"columns": ["c", "a", "b"]}, ["c", "a", "b"])):
        text = init_config.build_configuration(tmp_path / "data.csv", None, str(tmp_path / "model.skops"), keys)
        assert yaml.safe_load(text)["datasets"]["data"]["columns"] == columns


TEXTS = make_pipeline(TfidfVectorizer(), LogisticRegression())
NEIGHBORS = make_pipeline(TfidfVectorizer(), KNeighborsClassifier())
SELECTED = make_pipeline(make_column_transformer((StandardScaler(), make_column_selector(dtype_include=np.number))))
SEARCH = make_pipeline(SELECTED, GridSearchCV(LogisticRegression(), {"C": [1, 2]}, cv=StratifiedKFold(2)))


@pytest.mark.parametrize(
    ("what", "model", "problem"),
    [
        ("texts", TEXTS, ""),
        ("texts", NEIGHBORS, ""),
        ("texts", LogisticRegression(), "was fitted on columns and the dataset holds texts"),
        ("classes", SEARCH, ""),
        ("classes", TEXTS, "model.skops takes texts and the dataset holds columns; set its source: text_file"),
        ("classes", LinearSVC(), "model.skops has no predict_proba; wrap its classifier"),
    ],
)
def test_init_reports_a_model_that_a_run_would_refuse(what, model, problem, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    file = made(tmp_path, what)
    table = pd.read_csv(file)
    rows = (
        ["good film", "so bad"] * 30
        if model in (TEXTS, NEIGHBORS)
        else table[["a", "b"]]
        if what == "classes"
        else RNG.random((60, 2))
    )
    skops.io.dump(model.fit(rows, table["label" if what == "classes" else "sentiment"]), "model.skops")
    text = init_config.build_configuration(file, model="model.skops")
    assert ("tokenizer: text" in text) == ("reference: delete" in text) == (what == "texts")
    assert command.main(["init", str(file), "--model", "model.skops"]) == 0
    printed = capsys.readouterr().out
    assert problem in printed and bool(problem) == ("but a run would stop: " in printed), printed
    with pytest.raises(ShapelineError, match="it is a model; name its data too: shapeline init DATA --model model"):
        init_config.build_configuration(Path("model.skops"))


def test_a_target_with_missing_cells_is_refused_and_no_other_taken(tmp_path):
    table = pd.DataFrame({"x": np.arange(60.0), "churn": ["yes", None, "no"] * 20, "size": np.arange(60) / 7})
    table.to_csv(tmp_path / "named.csv", index=False)
    table[["x", "size", "churn"]].rename(columns={"churn": "last"}).to_csv(tmp_path / "last.csv", index=False)
    words = r"is missing in 20 row\(s\), first in row 1 \(from 0\); fill or remove them"
    for name, target in (("named", "churn"), ("last", "last")):
        with pytest.raises(ShapelineError, match=f"the target '{target}' {words}; or name another column by --target"):
            init_config.build_configuration(tmp_path / f"{name}.csv")
        with pytest.raises(ShapelineError, match=f"the target '{target}' {words}$"):
            init_config.build_configuration(tmp_path / f"{name}.csv", target=target)
    table.assign(churn="yes").to_csv(tmp_path / "one.csv", index=False)
    with pytest.raises(ShapelineError, match="'churn' has one class, 'yes'"):
        init_config.build_configuration(tmp_path / "one.csv")
    for target in (np.arange(9) / 4, np.arange(9) % 6):  # fractions, or more numbers than half of the rows
        few = pd.DataFrame({"a": range(9), "b": np.arange(9) / 7, "y": target})
        few.to_csv(tmp_path / "few.csv", index=False)
        text = init_config.build_configuration(tmp_path / "few.csv")
        assert "task: regression" in text and "rows: 4}" in text  # no more than training rows


def test_texts_have_classes(tmp_path):
    table = pd.DataFrame({"wage": [1.5, None] * 30, "age": range(60), "note": ["words about a customer"] * 60})
    table["left"] = ["yes", "no"] * 30
    table.to_csv(tmp_path / "customers.csv", index=False)
    given = init_config.build_configuration(tmp_path / "customers.csv")  # as the names of passengers beside features
    assert 'target: "left" ' in given and "source: table_file" in given
    assert """# texts of "note" are categories; shapeline init --set 'text: ...' explains their words""" in given
    given = init_config.build_configuration(tmp_path / "customers.csv", keys={"text": "note"})
    assert "source: text_file" in given and yaml.safe_load(given)["datasets"]["customers"]["text"] == "note"
    with pytest.raises(ShapelineError, match="has no column 'notes'"):
        init_config.build_configuration(tmp_path / "customers.csv", keys={"text": "notes"})
    long = table.assign(note="as many words about a customer as a review of a film has, or more")
    long.to_csv(tmp_path / "reviews.csv", index=False)
    given = init_config.build_configuration(tmp_path / "reviews.csv")
    assert 'target: "left" ' in given and 'text: "note"    # the other columns are not read' in given
    given = init_config.build_configuration(tmp_path / "reviews.csv", keys={"columns": ["wage", "note"]})
    assert "source: table_file" in given
    table[["age", "note", "left"]].to_csv(tmp_path / "notes.csv", index=False)  # age numbers the rows
    assert 'text: "note"' in init_config.build_configuration(tmp_path / "notes.csv")
    given = init_config.build_configuration(tmp_path / "customers.csv", target="age")  # 60 numbers: no classes
    assert "source: table_file" in given and "task: regression" in given


def test_texts_take_the_framework_that_is_installed(tmp_path, monkeypatch):
    path = made(tmp_path, "texts")
    for installed, framework in (("tensorflow", None), ("torch", "torch")):
        monkeypatch.setattr(init_config, "is_installed", installed.__eq__)
        assert yaml.safe_load(init_config.build_configuration(path))["models"]["texts"].get("framework") == framework


def test_a_last_column_of_few_words_is_more_likely_than_many_numbers(tmp_path):
    table = pd.DataFrame({"income": np.arange(60.0), "age": range(60), "bought": ["yes", "no"] * 30})
    table.to_csv(tmp_path / "customers.csv", index=False)
    assert 'target: "bought"    # guessed' in init_config.build_configuration(tmp_path / "customers.csv")
    assert 'target: "income"\n' in init_config.build_configuration(tmp_path / "customers.csv", target="income")
    table.assign(granted=table["income"] > 20).to_csv(tmp_path / "loans.csv", index=False)
    assert 'target: "granted"    # guessed' in init_config.build_configuration(
        tmp_path / "loans.csv"
    )  # not the column income


def test_a_column_that_counts_the_rows_is_no_feature(tmp_path):
    table = pd.DataFrame({"id": range(1, 61), "age": np.arange(60) % 40, "year": range(1960, 2020)})
    table["code"], table["note"] = [f"K-{row}" for row in table.index], [f"no. {row}" for row in table.index]
    table["day"] = pd.date_range("2024-01-01", periods=60).strftime("%Y-%m-%dT%H:%M")
    table["left"] = ["yes", "no"] * 30
    table.to_csv(tmp_path / "customers.csv", index=False)
    given = init_config.build_configuration(tmp_path / "customers.csv")
    reasons = 'without "id", which numbers the rows, "code", which has another word in each row\n'
    assert f'columns: ["age", "year", "note", "day"]    # features; {reasons}' in given
    assert yaml.safe_load(given)["datasets"]["customers"]["columns"] == ["age", "year", "note", "day"]
    assert "columns:" not in init_config.build_configuration(
        tmp_path / "customers.csv", model="mine.skops"
    )  # it has had them
    table[["id"]].assign(other=range(60), left=table["left"]).to_csv(tmp_path / "alone.csv", index=False)
    assert "columns:" not in init_config.build_configuration(tmp_path / "alone.csv")


def test_the_file_is_written_before_the_output_is_read(tmp_path):
    made(tmp_path, "classes")
    words = f"{shlex.quote(sys.executable)} -m shapeline.workflow.command init classes.csv | true"
    done = subprocess.run(["bash", "-c", words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (tmp_path / "shapeline.yaml").is_file() and done.stderr == ""


@pytest.mark.parametrize(("form", "regression"), [("csv", False), ("parquet", False), ("parquet", True)])
def test_a_table_of_texts_and_missing_cells_gets_trees_of_its_training_rows(
    form, regression, tmp_path, monkeypatch, capsys
):
    """Ids differ, so that the encoder has those of the rows that it was fitted to; dates are numbers, new ones too."""
    n, path = 90, tmp_path / f"mixed.{form}"
    table = pd.DataFrame(
        {
            "id": [f"row {row}" for row in range(n)],
            "day": pd.date_range("2020-02-28", periods=n).where(np.arange(n) % 7 > 0),
            "rooms": pd.array([None if row % 5 == 0 else row % 4 for row in range(n)], "Int64"),
            "garden": pd.array([None if row % 9 == 0 else row % 2 == 0 for row in range(n)], "boolean"),
            "town": pd.Categorical(["Ulm", None, "Köln"] * (n // 3)),
            "y": np.arange(n) * 1.5 if regression else np.arange(n) % 3,
        }
    )
    table.to_csv(path, index=False) if form == "csv" else table.to_parquet(path)
    monkeypatch.chdir(tmp_path)
    assert command.main(["init", path.name, "--target", "y"]) == 0
    said = capsys.readouterr().out
    assert "Wrote shapeline.yaml and mixed.skops" in said and "(words of id that no training row has" in said
    given = yaml.safe_load(Path("shapeline.yaml").read_text(encoding="utf-8"))
    assert given["models"]["mixed"]["source"] == "mixed.skops"
    entry = given["datasets"]["mixed"]
    datasets.prepare(entry.pop("source"), entry, [], tmp_path / "prepared")
    data = datasets.load(tmp_path / "prepared")
    model, rows = storage.fit_rows(architectures.for_dataset(given["models"]["mixed"], data.card), data)
    assert architectures.measure_card(model, rows)["settings"] == architectures.FITTED
    other = dataclasses.replace(rows, split=np.roll(rows.split, 1))
    assert architectures.measure_card(model, other)["settings"] == architectures.FITTED_OTHERWISE
    encoder = model.module.estimator[0].transformers_[0]
    known = encoder[1].categories_[encoder[2].index("id")]
    assert set(known) == {f"row {row}" for row in data.ids[data.split == 0]}
    kept, cells = data.own_rows
    days = model.module.estimator[0].transform(kept.compose(cells))["functiontransformer__day"]
    expected = np.where(np.arange(n) % 7 > 0, np.arange(n) + 18320.0, np.nan)[data.ids]  # 2020-02-28 is day 18320
    np.testing.assert_array_equal(days, expected)
    predicted = model.predict(rows.inputs)
    assert np.isfinite(predicted).all() and len(np.unique(predicted)) > 2


def test_dates_are_numbers_of_days():
    texts = ["1970-01-02", "1970-01-03T12:00:00", "5.1.1970", "no date", None, "12", "1970"]
    frame = pd.DataFrame({"a": texts, "b": pd.to_datetime(["1970-01-08", None]).repeat([1, 6])})
    days = pipeline_file.number_dates(frame)
    np.testing.assert_array_equal(days["a"], [1, 2.5, 4, np.nan, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(days["b"], [7, *[np.nan] * 6])


def test_a_model_that_exists_stays(tmp_path, monkeypatch, capsys):
    """It is refused before the fit, and no mistake of the table is hidden by it."""
    path = made(tmp_path, "mixed")
    monkeypatch.chdir(tmp_path)
    Path("mixed.skops").write_bytes(b"mine")
    with monkeypatch.context() as patched:
        patched.setattr(Pipeline, "fit", lambda *given, **more: pytest.fail("fitted"))
        assert command.main(["init", "mixed.csv"]) == 1
    assert Path("mixed.skops").read_bytes() == b"mine" and not Path("shapeline.yaml").exists()
    assert "mixed.skops: the file exists; remove it to fit a new one, or name it by --model" in capsys.readouterr().err
    assert 'source: "mine.skops"' in init_config.build_configuration(path, model="mine.skops")
    pd.read_csv(path).assign(a=[np.inf, *range(59)]).to_csv(path, index=False)
    assert command.main(["init", "mixed.csv"]) == 1 and "column 'a': is infinite" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"target": [None] * 60, "label": ["u", "v"] * 30}, "the target 'target' is missing in 60 row"),
        ({"y": [f"name {row}" for row in range(60)]}, "the target 'y' has 60 different values in 60 rows"),
        (
            {"when": pd.period_range("2020", periods=60, freq="M"), "y": [0, 1] * 30},
            "'when': holds cells of type Period",
        ),
        ({"many": [[1, 2]] * 60, "y": [0, 1] * 30}, "'many': holds cells of type ndarray"),
        ({"most": [*range(59), np.inf], "y": [0, 1] * 30}, "column 'most': is infinite in row 59 (from 0); write a"),
    ],
)
def test_what_a_run_would_not_take_is_refused_by_init(columns, words, tmp_path, monkeypatch, capsys):
    pd.DataFrame({"a": RNG.random(60), "b": RNG.random(60), **columns}).to_parquet(tmp_path / "odd.parquet")
    monkeypatch.chdir(tmp_path)
    assert command.main(["init", "odd.parquet"]) == 1
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1 and not Path("shapeline.yaml").exists()


def test_missing_texts_and_features_are_reported(tmp_path):
    (tmp_path / "odd.csv").write_bytes(b"a,b\0,y\n1,2,3\n")
    with pytest.raises(ShapelineError, match="is not written in utf-8; save it as a CSV file of texts in UTF-8"):
        init_config.build_configuration(tmp_path / "odd.csv")
    pd.DataFrame({"y": ["u", "v"] * 30}).to_csv(tmp_path / "odd.csv", index=False)
    with pytest.raises(ShapelineError, match="has no column beside the target 'y'; give a table with features"):
        init_config.build_configuration(tmp_path / "odd.csv")
    pd.DataFrame({"a": RNG.random(60), "y": ["u", "v"] * 30}).to_csv(tmp_path / "odd.csv", index=False)
    with pytest.raises(ShapelineError, match="has one feature column, and an attribution compares features; give two"):
        init_config.build_configuration(tmp_path / "odd.csv")
    pd.DataFrame({"a": range(60), "b": RNG.random(60), "y": ["u", "v"] * 30}).to_csv(tmp_path / "odd.csv", index=False)
    assert "columns" not in yaml.safe_load(init_config.build_configuration(tmp_path / "odd.csv"))["datasets"]["odd"]


def test_a_function_of_rows_is_no_builder_of_a_network(tmp_path, default, root, monkeypatch):
    monkeypatch.chdir(root)
    file = made(tmp_path, "classes")
    own = tmp_path / "own.py"
    own.write_text("def ask(rows):\n    return rows\n\ndef net(inputs, hidden=3):\n    return inputs\n")
    for name, framework in (("ask", "function"), ("net", None)):
        given = yaml.safe_load(init_config.build_configuration(file, model=f"{own}:{name}"))
        assert given["models"]["classes"].get("framework") == framework
        validation.load(merged(default, given))
    with pytest.raises(ShapelineError, match=r"has no function 'nett'\. Did you mean 'net'"):
        init_config.build_configuration(file, model=f"{own}:nett")


def test_a_project_folder_can_be_moved(tmp_path, monkeypatch, default):
    """Paths below it are written from it, others from the root; a run elsewhere finds them beside the configuration."""
    project, elsewhere = tmp_path / "a", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (project / "data").mkdir(parents=True)
    file = made(project / "data", "mixed")
    folder = made(project / "data", "pictures")
    monkeypatch.chdir(project)
    assert yaml.safe_load(init_config.build_configuration(folder))["datasets"]["pictures"]["path"] == "./data/pictures"
    own = init_config.build_configuration(made(tmp_path, "classes"), model="data/own.py:ask")
    assert str(tmp_path / "classes.csv") in own and '"data/own.py:ask"' in own
    assert command.main(["init", str(file)]) == 0
    moved = project.rename(tmp_path / "b")
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(command, "find_clone", lambda: None)
    given = yaml.safe_load((moved / "shapeline.yaml").read_text())
    assert given["datasets"]["mixed"]["path"] == "data/mixed.csv"
    config = validation.load(merged(default, given), [moved / "shapeline.yaml"])
    assert config.datasets["mixed"].path == str(moved / "data/mixed.csv")
    assert config.models["mixed"].source == str(moved / "mixed.skops")
    assert command.main(["doctor", "--configfile", str(moved / "shapeline.yaml")]) == 0


def test_keys_of_a_table_are_options_of_init(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    power = ["?", *(f"{row}" for row in range(59))]
    table = pd.DataFrame(
        {"power": power, "void": None, "zip": [7, 8] * 30, "job": ["u", "v", "w"] * 20, "y": [0, 1] * 30}
    )
    table.to_csv("cars.csv", index=False)
    assert command.main(["init", "cars.csv"]) == 1
    said = capsys.readouterr().err
    assert (
        "set na_values: ['?'] if they stand for missing cells" in said and "; for init: --set 'na_values: ...'" in said
    )
    assert said.count("\n") == 1 and not Path("shapeline.yaml").exists() and not Path("cars.skops").exists()
    for wrong, words in (
        ("na_value: [a]", "Did you mean 'na_values'"),
        ("na_values", "is not understood"),
        ("columns: zip", "--set: columns: 'zip' is not valid; give a list"),
        ("target: y", "target is given by DATA or --target"),
    ):
        assert command.main(["init", "cars.csv", "--set", wrong]) == 1 and words in capsys.readouterr().err
    assert command.main(["init", "cars.csv", "--set", "na_values: ['?']", "--set", "categorical: [job]"]) == 0
    assert '"void", which has no cells' in capsys.readouterr().out
    entry = yaml.safe_load(Path("shapeline.yaml").read_text())["datasets"]["cars"]
    assert entry["na_values"] == ["?"] and entry["categorical"] == ["job"] and entry["path"] == "cars.csv"
    assert entry["columns"] == ["power", "zip", "job"] and Path("cars.skops").exists()
    chosen = {"columns": ["zip", "job"], "task": "regression"}
    given = yaml.safe_load(init_config.build_configuration(Path("cars.csv"), "y", keys=chosen))["datasets"]["cars"]
    assert given["columns"] == ["zip", "job"] and given["task"] == "regression"


@pytest.mark.parametrize(
    ("path", "target", "words"),
    [
        ("none.csv", None, "file not found"),
        ("model.onnx", None, "file not found"),
        ("model.txt", None, "no folder of images or of a model"),
        ("players.py:build", None, "for a game write an experiment"),
        ("classes.csv", "lable", "no column 'lable'"),
        (".", None, "one folder per class"),
        ("reviews", None, "write the texts into a CSV file"),
    ],
)
def test_what_it_cannot_read_is_one_line(path, target, words, tmp_path):
    made(tmp_path, "classes")
    for name in ("good", "bad"):
        (tmp_path / "reviews" / name).mkdir(parents=True)
        (tmp_path / "reviews" / name / "0.txt").write_text("a film")
    with pytest.raises(ShapelineError, match=words) as failure:
        init_config.build_configuration(tmp_path / path, target)
    assert "\n" not in str(failure.value)


def test_the_command_that_is_run_is_printed(root, tmp_path, monkeypatch, capsys):
    """Snakemake replaces the command, so that signals reach it."""
    called = []
    monkeypatch.setattr(os, "execve", lambda *given: called.append(given))
    monkeypatch.chdir(root / "docs")
    command.main(["run", "digits", "--cores", "2", "-n"])
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].endswith("&& snakemake digits --cores 2 --dry-run")
    words = [sys.executable, "-m", "snakemake", "digits", "--cores", "2", "--dry-run"]
    assert called == [(sys.executable, words, os.environ)] and Path.cwd() == root
    monkeypatch.setattr(os, "access", lambda folder, mode: False)
    command.main(["run"])
    assert "the caches of this run are in .snakemake" in capsys.readouterr().err
    assert called.pop()[2]["XDG_CACHE_HOME"] == str(root / ".snakemake/cache")
    command.main(["run", "digits", "-n", "--", "--keep-going", "--forcerun", "attribute"])
    assert called[-1][1][3:] == [
        *("digits", "--cores", "all", "--keep-going", "--forcerun", "attribute", "--dry-run")  # the user's --cores wins
    ]
    for action, hint in (("run", True), ("doctor", False)):
        with pytest.raises(SystemExit):
            command.main([action, "--keep-going"])
        said = capsys.readouterr().err
        assert "unrecognized arguments: --keep-going" in said and ("shapeline run -- --keep-going" in said) is hint
    with pytest.raises(SystemExit):  # an option of Snakemake, and no short form of --configfile
        command.main(["run", "--config", "seed=3"])
    assert "unrecognized arguments: --config; give options of Snakemake after --" in capsys.readouterr().err


def test_outside_a_clone_the_installed_workflow_runs_where_one_is(root, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    called = []
    monkeypatch.setattr(os, "execve", lambda *given: called.append(given[1]))
    command.main(["run"])
    assert capsys.readouterr().out.startswith("no shapeline.yaml in this folder")
    (tmp_path / "shapeline.yaml").write_text("run: [mine]\n")
    command.main(["run"])
    assert "no shapeline.yaml" not in capsys.readouterr().out
    words = called[1]
    assert Path.cwd() == tmp_path and words[words.index("--snakefile") + 1] == str(root / "Snakefile")
    assert words[-2:] == [str(root / "config.yaml"), str(tmp_path / "shapeline.yaml")]
    monkeypatch.setattr(job_code, "PLACES", (tmp_path / "no", tmp_path / "share/shapeline"))
    assert command.main(["doctor"]) == 1
    said = capsys.readouterr().err
    assert "git clone" in said and "pip install" in said and said.count("\n") == 1
    installed = tmp_path / "share/shapeline"
    installed.mkdir(parents=True)
    (installed / "Snakefile").touch()
    assert job_code.find_root() == tmp_path / "share/shapeline"
    assert command.main(["open"]) == 1 and "create it by: shapeline run" in capsys.readouterr().err


def test_a_repeated_key_is_refused_before_snakemake_reads_the_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shapeline.yaml").write_text("seed: 1\nrun: [mine]\nseed: 2\n")
    assert command.main(["run"]) == 1
    assert capsys.readouterr().err == (
        f"shapeline: {tmp_path}/shapeline.yaml: line 3: the key 'seed' is repeated (first in line 1); keep one\n"
    )


def test_a_reader_that_has_enough_lines_ends_the_command(tmp_path, monkeypatch):
    reading, writing = os.pipe()
    os.close(reading)
    monkeypatch.chdir(tmp_path)
    with os.fdopen(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert command.main(["prune", "--dry-run"]) == 1


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.EACCES, "check its permissions"), (errno.ENOSPC, "free disk"), (errno.ENOTDIR, "name another folder")],
)
def test_a_file_that_the_system_refuses_is_one_line(number, remedy, tmp_path, monkeypatch, capsys):
    def refuse(path, *given, **more):
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(init_config, "build_configuration", lambda *given: "run: []")
    monkeypatch.setattr(Path, "write_text", refuse)
    assert command.main(["init", "rows.csv"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"shapeline: shapeline.yaml: {os.strerror(number)}; {remedy}") and said.count("\n") == 1


def test_the_version_is_printed(capsys):
    with pytest.raises(SystemExit):
        command.main(["--version"])
    assert capsys.readouterr().out == f"shapeline {shapeline.__version__}\n"


def test_init_writes_a_file_once_and_run_reads_it(root, tmp_path, monkeypatch, capsys):
    clone = tmp_path / "clone"
    (clone / "workflow").mkdir(parents=True)
    (clone / "Snakefile").touch()
    monkeypatch.chdir(clone)
    monkeypatch.setattr(os, "execve", lambda *given: None)
    for missing in ("no.skops", "no.py:ask"):
        assert command.main(["init", str(made(tmp_path, "classes")), "--model", missing]) == 1
        assert f"--model: {missing.removesuffix(':ask')}: file not found" in capsys.readouterr().err
    Path("net.pt").touch()
    assert command.main(["init", str(made(tmp_path, "classes")), "--model", "net.pt"]) == 1
    assert "--model: source: 'net.pt' is not understood" in capsys.readouterr().err
    assert not (clone / "shapeline.yaml").exists()
    assert command.main(["init", str(made(tmp_path, "classes"))]) == 0
    assert yaml.safe_load((clone / "shapeline.yaml").read_text())["run"] == ["classes"]
    command.main(["run"])
    assert f"--configfile {clone}/shapeline.yaml" in capsys.readouterr().out
    assert command.main(["init", "again.csv"]) == 1 and "remove or rename it first" in capsys.readouterr().err
    assert command.main(["open"]) == 1 and "create it by: shapeline run" in capsys.readouterr().err


def model_folder(path, kind):
    """A folder of transformers with the files that a configuration reads."""
    path.mkdir()
    head = {"text": "BertForSequenceClassification", "image": "ViTForImageClassification"}[kind]
    config = {"architectures": [head], "id2label": {"0": "Pos" if kind == "text" else "cat", "1": "neg"}}
    if kind == "image":
        config |= {"id2label": {"0": "cat", "1": "dog"}, "image_size": 48, "patch_size": 6, "num_attention_heads": 2}
        said = {"image_mean": 0.5, "image_std": 0.5, "do_normalize": True}
        (path / "preprocessor_config.json").write_text(json.dumps(said))
    (path / "config.json").write_text(json.dumps(config))
    for name in ("model.safetensors", *(["tokenizer.json"] if kind == "text" else [])):
        (path / name).touch()
    return path


@pytest.fixture
def with_transformers(monkeypatch):
    """The library is not imported: a configuration reads JSON files only."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "transformers" or find(name))


@pytest.mark.parametrize(("what", "kind"), [("texts", "text"), ("pictures", "image")])
def test_a_model_folder_determines_its_data(what, kind, tmp_path, default, root, with_transformers):
    data, model = made(tmp_path, what), model_folder(tmp_path / "model", kind)
    text = init_config.build_configuration(model)
    assert text == init_config.build_configuration(data, model=str(model))
    if kind == "text":  # beside features, too
        table = pd.read_csv(data).assign(age=RNG.random(60))
        table.to_csv(tmp_path / "model" / "more.csv", index=False)
        assert 'text: "said"' in init_config.build_configuration(tmp_path / "model" / "more.csv", model=str(model))
    given = yaml.safe_load(text)
    assert given["models"][what] == {"dataset": what, "source": str(model)}
    assert given["datasets"][what]["path"] == str(data)
    if kind == "text":
        assert given["datasets"][what]["tokenizer"] == str(model) and "length" not in given["datasets"][what]
        assert given["experiments"][what]["reference"] == "delete"
    else:
        assert given["datasets"][what]["size"] == [48, 48] and given["datasets"][what]["color"] == "rgb"
        assert given["experiments"][what]["features"] == {"kind": "patch", "size": 12}  # two of the model's own
        for part in ("train", "test"):
            shutil.copytree(data, tmp_path / "split" / "all" / part)
        again = init_config.build_configuration(tmp_path / "split", model=str(model))  # of the same classes
        assert yaml.safe_load(again)["datasets"]["split"]["size"] == [48, 48]
    assert validation.load(merged(default, given)).experiments[what].model == what


def test_what_a_model_folder_does_not_fit_is_one_line(tmp_path, with_transformers):
    model = model_folder(tmp_path / "model", "text")

    def refused(words, *given):
        with pytest.raises(ShapelineError, match=words) as failure:
            init_config.build_configuration(*given)
        assert "\n" not in str(failure.value)

    refused("model of texts, with no data beside it; say which", model)
    refused("takes texts, and .* holds columns of", made(tmp_path, "classes"), None, str(model))
    refused("takes texts, and .* holds images", made(tmp_path, "pictures"), None, str(model))
    refused("--target: the classes of images in .* are its folders; leave", made(tmp_path, "pictures"), "x")
    texts = made(tmp_path, "texts")
    refused(r"more than one that could be its data \(classes.csv, texts.csv\)", model)
    refused("names another", model, None, "a.skops")
    (model / "config.json").write_text('{"architectures": ["BertForSequenceClassification"], "id2label": {"0": "a"}}')
    refused("has the classes a, and .* has neg, pos; give them one name", texts, None, str(model))
    (model / "model.safetensors").unlink()
    refused("has no weights", texts, None, str(model))


@pytest.mark.parametrize(
    ("shape", "whole", "what", "told"),
    [
        ((2,), False, "classes", {"target": "label"}),
        (("columns",), False, "classes", {"target": "label"}),
        ((1, 28, 28), False, "pictures", {"size": [28, 28], "color": "grey"}),
        ((32, 24, 3), False, "pictures", {"size": [32, 24], "color": "rgb"}),
        ((3, "h", "w"), False, "pictures", {"size": [40, 40], "color": "rgb"}),
        ((5,), False, "classes", "takes 5 columns, and .* has 2 beside 'label'"),
        ((7,), True, "texts", "of whole numbers, neither columns nor images"),
        ((4, 4), False, "classes", "neither columns nor images"),
    ],
)
def test_an_onnx_file_determines_its_rows(shape, whole, what, told, tmp_path, default, monkeypatch):
    data, model = made(tmp_path, what), tmp_path / "model.onnx"
    model.touch()
    monkeypatch.setattr(onnx_file, "read_input", lambda source, content: (shape, whole))
    if isinstance(told, str):
        with pytest.raises(ShapelineError, match=told):
            init_config.build_configuration(data, model=str(model))
        return
    given = yaml.safe_load(init_config.build_configuration(model))
    assert given["models"][what]["source"] == str(model)
    assert given["datasets"][what].items() >= {**told, "path": str(data)}.items()
    assert validation.load(merged(default, given)).experiments[what].model == what


@pytest.mark.parametrize(
    ("words", "message"),
    [
        *(
            (
                [action, "--configfile", "none.yaml"],
                "none.yaml: there is no such file; give the path of a configuration",
            )
            for action in ("run", "prune")
        ),
        *((["run", "--cores", cores], f"--cores: '{cores}' is no number of cores") for cores in ("0", "-1", "two")),
        (["run", "--", "--reason"], "unrecognized arguments: --reason; its options: snakemake --help"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(words, message, capsys):
    assert command.main(words) == 1
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


def test_each_untrusted_file_is_a_line(default, monkeypatch):
    """The Snakefile ends with these lines before any job."""
    monkeypatch.setattr(command.jobs, "check_records", lambda config: None)
    monkeypatch.setattr(command.jobs, "find_untrusted", lambda config: iter(["a.skops: no", "b.skops: no"]))
    files = {"configfiles": [], "overwrite_configfiles": []}
    workflow = SimpleNamespace(is_main_process=True, basedir=".", global_resources={"gpu": 2, "mem_mb": 9}, **files)
    with pytest.raises(SystemExit) as ended:
        command.read_config(default, workflow)
    assert ended.value.code == "a.skops: no\nb.skops: no"
    workflow.global_resources = {"gpus": 2}
    with pytest.raises(SystemExit) as ended:
        command.read_config(default, workflow)
    assert ended.value.code == "--resources gpus: no job asks for it; write --resources gpu=N"


@pytest.mark.parametrize("package", ["yaml", "filelock"])
def test_the_command_without_the_workflows_packages_is_one_line(package):
    program = f"import sys; sys.modules[{package!r}] = None; from shapeline.workflow.command import main; main()"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    wanted = f"shapeline: {package} is not installed; pip install 'shapeline[workflow]'\n"
    assert (ended.returncode, ended.stderr) == (1, wanted)
