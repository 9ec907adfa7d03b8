"""The benchmark: its arithmetic on invented numbers, and a quick run."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import cases, methods, peers, run, scaling, tables
from benchmarks.turns import FEW, SLOW, Times, spread, take_turns, times_as_fast

ROOT = Path(__file__).parents[2]
CASE = cases.QUICK["digits_cnn"]
INSTALLED = {name: importlib.util.find_spec(name) is not None for name in ("shap", "captum", "lime")}


def test_ratios_are_of_rates_within_a_turn():
    """The machine is twice as slow in every second turn, for both alike."""
    slow = np.array([1.0, 2.0, 1.0, 2.0, 1.0])
    ours, theirs = Times(0.5 * slow, evaluations=100), Times(10 * slow, evaluations=50)
    assert times_as_fast(ours, theirs) == pytest.approx((40, 40, 40))  # 200 a second against 5
    assert times_as_fast(theirs, ours)[0] == pytest.approx(1 / 40)
    assert spread(np.array([1.0, 2, 3, 4, 5])) == pytest.approx((3, 1.4, 4.6))


def test_turns_that_were_left_out_do_not_count():
    nan = np.nan
    ours, theirs = Times(np.array([1.0, 1, 1, 9, 9]), 10), Times(np.array([4.0, 4, 4, nan, nan]), 10)
    assert times_as_fast(ours, theirs) == pytest.approx((4, 4, 4))
    assert run.seconds(theirs, 2)["turns"] == 3 and run.seconds(theirs, 2)["seconds"] == 2


def test_runs_alternate_and_slow_ones_have_fewer_turns():
    called = []

    def one(name, seconds):
        def go():
            called.append(name)
            return seconds, 7

        return go

    times = take_turns({"quick": one("q", 0.1), "slow": one("s", SLOW + 1)}, turns=5)
    assert "".join(called) == "qs" + "qs" * FEW + "q" * (5 - FEW)
    assert np.isfinite(times["slow"].seconds).sum() == FEW and times["quick"].evaluations == 7


def test_rows_of_tables_are_judged_by_the_models_own_rate():
    times = {"raw": Times(np.full(3, 2.0), 1_000), "engine": Times(np.full(3, 8.0), 3_000)}
    times |= {"kernel_shap": Times(np.full(3, 10.0), 3_000), "shap.KernelExplainer": Times(np.full(3, 4.0), 300)}
    rows = {row["what"]: row for row in tables.tabulate_rates("linear pipeline", "array", 4_096, times, (30, 3))}
    assert rows["engine"]["times_raw"] == pytest.approx(0.75) and rows["engine"]["met"]  # 375 a second of 500
    assert rows["kernel_shap"]["times_raw"] == pytest.approx(0.6) and rows["kernel_shap"]["evaluations"] == 1
    assert rows["shap.KernelExplainer"]["ours_times"] == pytest.approx(4) and rows["shap.KernelExplainer"]["met"]
    of_frames = {row["what"]: row for row in tables.tabulate_rates("gradient boosting", "frame", 1, times, (30, 3))}
    assert not of_frames["engine"]["met"]  # 0.75 of 0.8


@pytest.mark.parametrize("power", [0.5, 1.0, 2.7])
def test_the_exponent_of_a_power_law_is_recovered(power):
    x = np.array([16, 64, 256, 1024, 4096])
    assert scaling.exponent(x, 3e-6 * x**power) == pytest.approx((power, power, power), abs=1e-9)


def test_the_interval_of_an_exponent_has_its_nominal_coverage():
    random, x = np.random.default_rng(0), 2.0 ** np.arange(4, 13)
    found = np.array([scaling.exponent(x, x**1.5 * np.exp(0.3 * random.standard_normal(9))) for _ in range(1000)])
    covered = ((found[:, 1] <= 1.5) & (1.5 <= found[:, 2])).mean()
    assert 0.93 < covered < 0.97


def test_the_parts_of_a_cost_are_all_of_it_and_evaluations_are_the_designs():
    for name in scaling.METHODS:
        found = scaling.cost(name, 16, 2, 4)
        assert sum(found[part] for part in ("design", "evaluations", "read-out")) == pytest.approx(found["total"])
    assert scaling.cost("kernel_shap", 16, 1, 4)["count"] == 64
    assert scaling.cost("occlusion", 16, 1, 4)["count"] == 17


def test_every_method_is_measured_or_left_out_with_a_reason():
    runs, left_out = methods.fitting(CASE)
    wanted = {
        name
        for name, one in methods.METHODS.items()
        if one.family in ("coalitions", "hierarchical", "gradients") and one.needs_model
    }
    assert set(runs) | set(left_out) == wanted and not set(runs) & set(left_out)
    too_dear = {"shapley", "banzhaf", "myerson", "stratified_svarm", "shapley_interactions", "sample_interactions"}
    for_another_model = {"linear_shap", "tree_shap", "attention_rollout", "attn_lrp"}
    assert set(left_out) == too_dear | for_another_model
    assert "2^64" in left_out["shapley"]
    seconds, evaluations = runs["kernel_shap"]()
    assert seconds > 0 and evaluations == CASE.instances * 4 * 64


@pytest.mark.parametrize("name", peers.choose_peers(CASE))
def test_a_peer_uses_about_its_budget(name):
    peer = peers.PEERS[name]
    if not INSTALLED[peer.package]:
        pytest.skip(f"{peer.package} is not installed: pip install .[peers]")
    _, evaluations = peers.run_of(peer, CASE)()
    assert 0.9 * 256 <= evaluations <= 256


def test_a_peer_receives_the_values_of_the_engine():
    masks = np.random.default_rng(0).random((300, 64)) < 0.5
    game = cases.Game(CASE.model, CASE.reference, CASE.features)
    expected = game.values(CASE.inputs[:1], masks, CASE.targets[:1])[0]
    np.testing.assert_allclose(peers._evaluator(CASE)(masks), expected, atol=1e-5)


def test_a_peer_that_is_missing_or_fails_is_a_row_with_its_reason(monkeypatch):
    def broken(game, case, budget):
        raise ValueError("no such thing")

    def works(game, case, budget):
        game(np.eye(game.d))

    found = {"a": peers.Peer("nowhere", "kernel_shap", works), "b": peers.Peer("numpy", "kernel_shap", broken)}
    found["c"] = peers.Peer("numpy", "kernel_shap", works, goal=1e9)
    monkeypatch.setattr(peers, "PEERS", found)
    missing, fails, fine = run.run_peers(CASE, "digits_cnn", CASE.engine_run(CASE.row_backend), turns=1)
    assert missing["note"] == "not installed" and "seconds" not in missing
    assert fails["note"] == "failed: ValueError: no such thing" and fails["version"]
    assert fine["evaluations"] == 64 and fine["met"] is False and fine["ours_times"] > 0


def test_the_quick_run_works_from_end_to_end(tmp_path, monkeypatch):
    """The program measures each case in a process of its own, by the same module."""
    monkeypatch.setattr(sys, "argv", ["run", "--quick", "--only", "digits_cnn", "--output", str(tmp_path)])
    run.main()
    folder = tmp_path / "quick"
    table = pd.read_csv(folder / "table.csv")
    assert list(table.columns) == list(run.COLUMNS)
    assert set(table["part"]) == {"raw", "engine", "method", "peer"}
    measured = table[table["part"].isin(("engine", "method"))]
    assert (measured["times_raw"] > 0).all() and (measured["seconds"] > 0).all()
    assert (measured["seconds_low"] <= measured["seconds"]).all()
    kernel = measured[measured["what"] == "kernel_shap"].iloc[0]
    assert kernel["evaluations"] == 256
    theirs = table[table["part"] == "peer"].set_index("what")
    for name, peer in peers.choose_peers(CASE).items():
        assert (theirs.loc[name, "ours_times"] > 0) == INSTALLED[peer.package], name
    content = json.loads((folder / "table.json").read_text())
    assert len(content["rows"]) == len(table) and content["facts"]["threads"] == 1
    assert str(ROOT) not in (folder / "table.json").read_text() + (folder / "table.md").read_text()
    assert "| digits_cnn | kernel_shap |" in (folder / "table.md").read_text()
    for name in ("near_raw", *(["ahead_of_peers"] if (theirs["ours_times"] > 0).any() else [])):
        assert (folder / f"{name}.svg").read_text().endswith("</svg>\n")


def test_an_unknown_part_is_reported(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["run", "--quick", "--only", "nothing"])
    with pytest.raises(SystemExit, match="there is no 'nothing'; choose among: digits_cnn"):
        run.main()


@pytest.mark.parametrize(
    "command, reason",
    [
        ("folds {0} mlp", "error: prepared dataset {0}: {0}/card.json is missing"),
        ("published {0}", "published.py: error: {0}: there is no published_mse.csv"),
        ("compare_scores {0} {0}", "compare_scores.py: error: {0} and {0}: no experiments"),
    ],
)
def test_a_folder_without_what_a_command_reads_is_one_line(tmp_path, command, reason):
    words = [word.format(tmp_path) for word in command.split(" ")]
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{words[0]}", *words[1:]], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode and done.stderr.splitlines()[-1].startswith(reason.format(tmp_path))


def test_fine_tuning_trains_only_the_last_layers():
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers", reason="encoders need the extra shapeline[text]")
    from benchmarks import finetuning
    from tests.fixtures import transformer

    texts = ["good film", "a very good film", "the good", "bad film", "the very bad film", "a bad"] * 4
    model, cut = transformer.bert(layers=2), transformer.tokenizer()
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    finetuning.train(model, cut, texts, np.array([1, 1, 1, 0, 0, 0] * 4), 1)
    changed = {name for name, weight in model.named_parameters() if not weight.equal(before[name])}
    assert changed and all("layer.1." in name or "pooler" in name or "classifier" in name for name in changed)
    assert any("layer.1.attention" in name for name in changed)
    with torch.no_grad():
        alone = [int(model(**cut(text, return_tensors="pt")).logits.argmax()) for text in texts]
    assert finetuning.predict(model, cut, texts).tolist() == alone
