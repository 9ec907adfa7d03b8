"""Jobs on games of an experiment: shares of evaluations, rounds, outputs, failures, and mistakes of a configuration."""

import numpy as np
import pandas as pd
import pytest

import shapeline
from shapeline import scores
from shapeline.attribution import game_job, game_values, selection
from shapeline.attribution.context import parse
from shapeline.attribution.provenance import provenance
from shapeline.config.validation import load
from shapeline.errors import ShapelineError
from shapeline.statistics.comparison import compare_files
from tests.fixtures.games_of_files import GAME, by_definition


class Files(dict):
    """Input files of a job, by name as Snakemake gives them."""

    __getattr__ = dict.__getitem__


@pytest.fixture
def file(tmp_path):
    (tmp_path / "table.py").write_text(GAME.replace("pause=0.12", "pause=0"))
    return tmp_path / "table.py"


def settings_of(file, function: str, method: dict, **others) -> dict:
    return {"game": f"{file}:{function}", "features": {"kind": "player"}, "method": method, "seed": 0, **others}


def selected(tmp_path, settings: dict, store: str) -> str:
    path = str(tmp_path / "instances.parquet")
    selection.write(path, game_job.select_outputs(settings, store, "cpu"), {}, {})
    return path


def job_of(tmp_path, settings: dict, entry: str, store: str = "", **files) -> game_job.GameJob:
    given = Files(instances=selected(tmp_path, settings, store), **files)
    return game_job.GameJob(parse(settings), entry, given, "cpu", store)


def table_of(seed: int, n: int, outputs: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(2**n, outputs))


@pytest.mark.parametrize("store", ["", "rows"])
def test_scores_of_a_game_are_those_of_the_definition_and_of_a_call(tmp_path, file, store):
    store = store and str(tmp_path / store)
    exact = job_of(tmp_path, asked := settings_of(file, "build", {"method": "shapley"}), "exact", store)
    found = exact.explain_shard(0, 1, "fail", None)
    [row], place = found.rows["scores"], {"experiment": "e", "label": "exact", "shard": "0 of 1"}
    scores.write(path := tmp_path / "scores.parquet", found.rows, place | provenance(found.context, asked, "cpu"))
    assert shapeline.Explanation.load(path).feature_names == tuple(f"player {letter}" for letter in "abcdef")
    np.testing.assert_allclose(row, by_definition(table_of(0, 6)[:, 0], 6), atol=1e-6)
    sampled = settings_of(file, "build", {"method": "gp_shapley"}, budget=5.0)
    rows = job_of(tmp_path, sampled, "gp_shapley", store).explain_shard(0, 1, "fail", None).rows
    table = table_of(0, 6)[:, 0]
    called = shapeline.shapley_values(lambda masks: table[masks @ (1 << np.arange(6))], 6, 30, "gp_shapley", seed=0)
    np.testing.assert_allclose(rows["scores"][0], called.scores[0], atol=1e-6)
    np.testing.assert_allclose(rows["standard_error"][0], called.standard_error[0], atol=1e-6)
    assert rows["evaluations"][0] == 30 and rows["value_full"][0] == table[-1] and rows["value_empty"][0] == table[0]
    least = job_of(tmp_path, settings_of(file, "build", {"method": "sample_interactions"}), "pairs", store)
    assert least.explain_shard(0, 1, "fail", None).rows["evaluations"][0] > 24  # the minimum is above 4 d


def test_games_and_outputs_are_instances(tmp_path, file):
    settings = settings_of(file, "several", {"method": "shapley"})
    job = job_of(tmp_path, settings, "exact")
    told = scores.read_table(job.files.instances)
    assert [*zip(told["game"], told["output"], strict=True)] == [
        ("small", ""),
        ("large", "output 0"),
        ("large", "output 1"),
    ]
    rows = job.explain_shard(0, 1, "fail", None).rows
    small, large = table_of(1, 4)[:, 0], table_of(2, 5, 2)
    expected = [by_definition(small, 4), *(by_definition(column, 5) for column in large.T)]
    for row, right in zip(rows["scores"], expected, strict=True):
        np.testing.assert_allclose(row, right, atol=1e-6)


@pytest.mark.parametrize("function", ["build", "several"])
def test_shares_of_a_round_are_all_coalitions_once(tmp_path, file, function):
    settings = settings_of(file, function, {"method": "kernel_shap"}, budget=3.0, repeats=2)
    whole = job_of(tmp_path, settings, "kernel").explain_shard(0, 1, "fail", None).rows
    paths = [str(tmp_path / f"0.{index}-of-3.parquet") for index in range(3)]
    for index, path in enumerate(paths):
        job_of(tmp_path, settings, "kernel").evaluate_shard(path, index, 3, "fail", {})
    rows = game_values.read_files(paths)
    assert not rows.duplicated(["game", "address"]).any()
    sizes = [len(scores.read_table(path)) for path in paths]
    assert max(sizes) - min(sizes) <= 1 and min(sizes) > 0
    (tmp_path / "asked.txt").unlink()
    job = job_of(tmp_path, settings, "kernel", values=paths)
    (tmp_path / "asked.txt").unlink()  # that of both ends
    again = job.explain_shard(0, 1, "fail", None).rows
    assert not (tmp_path / "asked.txt").exists()  # nothing is evaluated once more
    np.testing.assert_array_equal(np.concatenate(again["scores"]), np.concatenate(whole["scores"]))


def test_rounds_evaluate_the_next_coalitions_of_an_adaptive_budget(tmp_path, file):
    settings = settings_of(file, "build", {"method": "gp_shapley"}, budget={"error": 1e-9, "max_budget": 10})
    earlier = []
    for number in range(4):
        job, path = job_of(tmp_path, settings, "gp", earlier=earlier), str(tmp_path / f"{number}.parquet")
        job.evaluate_shard(path, 0, 1, "fail", {})
        earlier = [*earlier, path]
    sizes = [len(scores.read_table(path)) for path in earlier]
    assert len(game_values.read_files(earlier)["address"].unique()) == sum(sizes) < 60 and min(sizes) > 0
    whole = job_of(tmp_path, settings, "gp").explain_shard(0, 1, "fail", None).rows
    rows = job_of(tmp_path, settings, "gp", values=earlier).explain_shard(0, 1, "fail", None).rows
    assert rows["evaluations"][0] == whole["evaluations"][0] == 60  # the most, of which one job evaluates the rest
    np.testing.assert_array_equal(rows["scores"][0], whole["scores"][0])


def test_failed_evaluations_are_a_row_or_stop_the_job(tmp_path, file):
    settings = settings_of(file, "broken", {"method": "shapley"})
    path = str(tmp_path / "0.parquet")
    job_of(tmp_path, settings, "exact").evaluate_shard(path, 0, 1, "record", {})
    assert len(scores.read_table(path)) == 30
    rows = job_of(tmp_path, settings, "exact", values=[path]).explain_shard(0, 1, "record", None).rows
    assert rows["status"][0] == "evaluation failed" and "2 of 32 evaluations failed" in rows["error"][0]
    assert rows["evaluations"][0] == 32
    with pytest.raises(ShapelineError, match=r"table.py:broken: coalition \{player a, player b\}: the value is nan"):
        job_of(tmp_path, settings, "exact").explain_shard(0, 1, "fail", None)


def test_methods_that_all_fail_are_compared_without_rows(tmp_path):
    columns = ["metric", "method", "statistic", "x", "value", "instance", "training_seed"]
    pd.DataFrame({name: [] for name in columns}).to_parquet(tmp_path / "measured.parquet")
    compared = compare_files([tmp_path / "measured.parquet"], ["cost"])
    assert compared.empty and "mean" in compared


def test_values_outlive_a_job_and_an_edit_of_the_file_recomputes_them(tmp_path, file):
    settings = settings_of(file, "build", {"method": "shapley"})
    asked, store = tmp_path / "asked.txt", str(tmp_path / "rows")
    for entry, count in (("exact", 65), ("other", 66), ("edited", 131)):  # one in fifty shows if the game is repeatable
        if entry == "edited":
            file.write_text(file.read_text() + "\n# another\n")
        found = job_of(tmp_path, settings, entry, store).explain_shard(0, 1, "fail", None)
        assert len(asked.read_text().splitlines()) == count and found.rows["warning"][0] is None
    rows = (
        job_of(tmp_path, settings_of(file, "unseeded", {"method": "shapley"}), "exact")
        .explain_shard(0, 1, "fail", None)
        .rows
    )
    assert rows["warning"][0].startswith("the game is not repeatable: the value of the coalition {player")


def test_the_example_values_groups(root, monkeypatch):
    monkeypatch.chdir(root)
    [game] = game_job.build_games(game_job.GameSource("examples/value_groups.py:build", (), 0), "cpu")
    noise = np.arange(20) >= 15
    empty, clean, full = game.play(np.stack([np.zeros(20, bool), ~noise, np.ones(20, bool)]))
    assert game.players[:2] == ("clinic 1", "clinic 2") and game.identity and empty < full <= clean


def test_what_a_function_returns_is_checked(tmp_path, file):
    with pytest.raises(ShapelineError, match=r"table.py:nothing: it returned a function; return a function from"):
        game_job.select_outputs(settings_of(file, "nothing", {"method": "shapley"}), "", "cpu")


METHODS = {"exact": {"method": "shapley"}, "gp": {"method": "gp_shapley"}}


def lines_of(file, **entry) -> list[str]:
    experiment = {"game": f"{file}:build", "methods": METHODS, **entry}
    try:
        load({"run": ["x"], "experiments": {"x": experiment}})
    except ShapelineError as error:
        return str(error).splitlines()
    return []


@pytest.mark.parametrize(
    "entry, line",
    [
        ({"game": "table.py"}, "experiments.x.game: 'table.py' is not understood; write path/to/file.py:function"),
        ({"model": "m"}, "experiments.x.model: an experiment with a game has no model; remove the key"),
        ({"reference": "zero"}, "experiments.x.reference: an experiment with a game has no reference; remove the key"),
        ({"features": {"kind": "column"}}, "experiments.x.features: the features of a game are its players"),
        ({"game_files": ["no.csv"]}, "experiments.x.game_files: there is no file"),
        ({"metrics": {"log_odds": {}}}, "experiments.x.metrics.log_odds: it measures a model on data"),
        ({"methods": {"x": {"method": "integrated_gradients"}}}, "needs a model and its inputs; for a game use one of"),
        ({"methods": {"x": {"method": "l_shapley"}}}, "lack one; set graph: chain or graph: complete"),
        ({"metrics": {"error": {"reference": "exakt"}}}, "there is no method 'exakt'"),
        ({"budget": 1, "methods": {"x": {"method": "sample_interactions"}}}, "is too few for sample_interactions"),
        ({"shards": 100_000}, "experiments.x.shards: 100,000 jobs per method are more than 10,000"),
    ],
)
def test_mistakes_are_one_line(file, entry, line):
    found = lines_of(file, **entry)
    assert len([one for one in found if line in one]) == 1, found
    assert len(found) == 1 or "game" not in entry, found
    assert lines_of(file, methods={**METHODS, "x": {"method": "sample_interactions", "budget": 6}}) == []


def test_keys_of_games_are_refused_without_one():
    experiment = {"model": "m", "features": {"kind": "player"}, "game_rounds": 2, "methods": METHODS, "metrics": {}}
    models = {"m": {"dataset": "d", "architecture": "digits_cnn"}}
    with pytest.raises(ShapelineError) as told:
        load(
            {"run": ["x"], "datasets": {"d": {"source": "digits"}}, "models": models, "experiments": {"x": experiment}}
        )
    assert "'player' does not fit a dataset of kind image" in str(told.value)


def test_a_file_of_values_is_read_as_it_was_written(tmp_path):
    rows = pd.DataFrame({"address": ["01", "11"], "values": [[1.0, 2.0], [3.0, 4.0]], "seconds": [0.1, 0.2]})
    path = str(tmp_path / "values.parquet")
    game_values.write_file(path, [0, 1], rows, {"settings_digest": "x"})
    again = game_values.read_files([path])
    assert again["address"].tolist() == ["01", "11"] and again["values"][1].tolist() == [3.0, 4.0]
    assert scores.metadata(path)["settings_digest"] == "x"
