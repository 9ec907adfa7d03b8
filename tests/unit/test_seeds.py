"""Training seeds before any job: names, cost, and refusals."""

import copy
import json

import pandas as pd
import pytest

from shapeline.attribution.attribution_job import Variant, list_variants
from shapeline.attribution.context import parse
from shapeline.config import validation
from shapeline.errors import ShapelineError
from shapeline.workflow import jobs, messages, runs
from shapeline.workflow.jobs import attribute_settings, train_settings
from tests.workflow.conftest import TINY


@pytest.fixture
def raw() -> dict:
    return copy.deepcopy(TINY)


def loaded(raw: dict, **more):
    raw["experiments"]["tiny"] |= more
    return validation.load(raw)


def test_a_training_has_its_own_seed_and_files_and_moves_no_other(raw):
    one, three = loaded(raw), loaded(raw, training_seeds=3)
    assert train_settings(one, "cnn") == train_settings(three, "cnn")
    assert [train_settings(three, "cnn", number)["seed"] for number in (0, 1, 2)] == [0, 1, 2]
    before, after = dict(jobs.list_expected_outputs(one)), dict(jobs.list_expected_outputs(three))
    scores = {f"results/tiny/scores/{label}/0-of-1.parquet" for label in ("exact", "kernel", "occlusion")}
    changed = {path for path, settings in before.items() if after[path] != settings}
    assert changed == {*scores, "results/reports/tiny.ipynb"}
    assert set(after) - set(before) == {f"results/models/cnn@seed{number}/card.json" for number in (1, 2)}
    assert runs.list_explained_files(three, "tiny", "exact")["weights"] == [
        f"results/models/cnn{end}/weights.safetensors" for end in ("", "@seed1", "@seed2")
    ]


def test_trainings_cost_what_they_cost(raw):
    one, three = loaded(raw), loaded(raw, training_seeds=3)
    assert messages.estimate_experiment(three, "tiny").rows == 3 * messages.estimate_experiment(one, "tiny").rows
    more = messages.estimate_run(three)[1] - messages.estimate_run(one)[1]
    assert more > 2 * messages.estimate_training(one, "cnn")
    assert messages.size_results(three, "tiny") > messages.size_results(one, "tiny")
    assert validation.load({**raw, "scale": "smoke"}).experiments["tiny"].training_seeds == 2


def test_instances_of_other_trainings_need_their_seeds(raw):
    raw["experiments"]["tiny"] |= {"training_seeds": 1, "instances_per_training_seed": 4}
    validation.load(raw)  # one training, perhaps in place of the three of an earlier file
    del raw["experiments"]["tiny"]["training_seeds"]
    with pytest.raises(ShapelineError, match=r"tiny.instances_per_training_seed: training_seeds is not set; remove"):
        validation.load(raw)


def test_other_trainings_may_explain_fewer_instances_which_change_no_row_of_the_first(raw):
    one, whole, few = loaded(raw), loaded(raw, training_seeds=3), loaded(raw, instances_per_training_seed=4)
    before, after = dict(jobs.list_expected_outputs(whole)), dict(jobs.list_expected_outputs(few))
    changed = {path for path, settings in before.items() if after[path] != settings}
    assert changed and all("/scores/" in path for path in changed)
    asked = [attribute_settings(config, "tiny", "exact") for config in (one, whole, few)]
    assert [parse(settings).rows for settings in asked] == [asked[0]] * 3
    assert asked[2] == {**asked[0], "training_seeds": 3, "training_instances": 4}
    count = whole.experiments["tiny"].instances.count
    assert messages.count_models(loaded(raw, instances_per_training_seed=10 * count), "tiny") == 3
    once, partly = (messages.estimate_experiment(config, "tiny").rows for config in (one, few))
    assert partly / once == pytest.approx(1 + 2 * 4 / count)


def test_external_scores_belong_to_the_first_training_seed_only(raw, tmp_path):
    made = tmp_path / "scores.csv"
    made.write_text("instance\n")
    raw["experiments"]["tiny"]["methods"]["mine"] = {"method": "external", "path": str(made)}
    three = loaded(raw, training_seeds=3)
    assert len(runs.list_explained_files(three, "tiny", "mine")["weights"]) == 1
    assert "training_seeds" not in attribute_settings(three, "tiny", "mine")


def test_the_instances_of_other_training_seeds_are_sampled_by_seed_and_nested():
    selected = pd.DataFrame({"instance": [3, 3, 7, 7, 8, 8, 9, 9], "target": [0, 1] * 4})  # two labels an image

    def chosen(number: int, seed: int, share: pd.DataFrame = selected) -> pd.DataFrame:
        settings = {"method": {"method": "shapley"}, "features": "pixel", "training_instances": number}
        first, other = list_variants(parse(settings), ["a", "b"], [])
        assert first == Variant("a") and first.choose(share, selected, seed) is share
        return other.choose(share, selected, seed)

    few, more = (chosen(number, 5) for number in (2, 3))
    assert len(few) == 4 and set(few["instance"]) < set(more["instance"]) and few["instance"].is_monotonic_increasing
    assert chosen(None, 5) is selected
    samples = {tuple(chosen(2, seed)["instance"].unique()) for seed in range(20)}
    assert len(samples) > 3
    parts = [chosen(2, 5, selected[:3]), chosen(2, 5, selected[3:])]  # as shards have them
    assert pd.concat(parts, ignore_index=True).equals(few)


def test_randomised_models_are_distinguished_by_the_number_of_layers(tmp_path):
    for name, drawn in (("full", ["c", "b", "a"]), ("top1", ["c"]), ("top3", ["c", "b", "a"])):
        (tmp_path / name).write_text(json.dumps({"drawn": drawn}))
    settings = parse({"method": {"method": "shapley"}, "features": "pixel", "randomised": ["full", "top1", "top3"]})
    found = list_variants(settings, ["f", "1", "3"], [*sorted(tmp_path.iterdir())])
    assert found == [Variant("3", randomised_layers=3), Variant("1", randomised_layers=1)]


def test_only_metrics_that_compare_trainings_are_counted_for_each(raw):
    def asked(**more) -> float:
        return messages.estimate_metrics(loaded(raw, **more), "tiny")

    assert asked(metrics={"log_odds": {}}, training_seeds=3) == 3 * asked(metrics={"log_odds": {}}, training_seeds=1)
    once = asked(metrics={"infidelity": {}}, training_seeds=1)
    both = asked(metrics={"log_odds": {}, "infidelity": {}}, training_seeds=3)
    assert both == 3 * asked(metrics={"log_odds": {}}, training_seeds=1) + once


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda raw, tiny: tiny.update(training_seeds=0), "experiments.tiny.training_seeds: "),
        (
            lambda raw, tiny: tiny.update(metrics={"cost": {}}),
            "tiny.training_seeds: no metric compares training seeds; add one of error, ground_truth_words, "
            "localization, log_odds, own",
        ),
        (
            lambda raw, tiny: (tiny.update(model=None, dataset="digits38"), tiny.pop("model")),
            "tiny.training_seeds: without a model nothing is trained; remove the key",
        ),
        (
            lambda raw, tiny: (
                tiny["methods"].update(mine={"method": "external", "path": "setup.cfg"}),
                tiny.update(metrics={"error": {"reference": "mine"}}),
            ),
            "tiny.training_seeds: the scores of 'mine' are of one model, and no truth of another; remove the key",
        ),
        (
            lambda raw, tiny: raw["models"]["cnn"].update(source="my.keras", architecture=None),
            "tiny.training_seeds: models.cnn is ready and not trained here; remove the key",
        ),
    ],
    ids=["none", "no metric", "no model", "scores made elsewhere", "a ready model"],
)
def test_settings_of_seeds_without_effect_are_refused(raw, change, said):
    raw["experiments"]["tiny"]["training_seeds"] = 3
    change(raw, raw["experiments"]["tiny"])
    with pytest.raises(ShapelineError) as failure:
        validation.load(raw)
    assert said in str(failure.value)
