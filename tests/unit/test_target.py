"""The explained class of an experiment: the predicted one, the true one, or one for all instances."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from shapeline.attribution import selection
from shapeline.attribution.attribution_job import explain_rows
from shapeline.attribution.context import ExplanationContext, parse
from shapeline.config.validation import load
from shapeline.datasets.loading import Dataset
from shapeline.errors import ShapelineError
from shapeline.games import features
from shapeline.games.references import Reference
from shapeline.models import adapters
from shapeline.report import experiment
from shapeline.workflow import jobs

CARD = {"name": "t", "kind": "table", "input_shape": [3], "classes": ["no", "yes"], "feature_names": ["a", "b", "c"]}
ROWS = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)


class Sure:
    """Sure of `yes` by the sum of the columns."""

    def predict_proba(self, rows):
        yes = 1 / (1 + np.exp(-rows.sum(1)))
        return np.stack([1 - yes, yes], 1)


@pytest.fixture
def subject():
    labels = (np.arange(20) % 2).astype(np.int64)
    dataset = Dataset(inputs=ROWS, labels=labels, split=np.full(20, 2), ids=np.arange(20), card=CARD)
    parts = features.build("column", CARD)
    return ExplanationContext(adapters.wrap(Sure()), dataset, parts, Reference(np.zeros((1, 3), np.float32)), "column")


def scores_for(subject, target):
    selected = selection.select(subject, 0, 20, target=target)
    rows = explain_rows(subject, selected, parse({"method": {"method": "shapley"}, "features": "column"}), "exact")
    return selected, rows.sort_values("instance", ignore_index=True)


def test_scores_of_one_class_keep_their_sign(subject):
    selected, rows = scores_for(subject, "yes")
    assert (rows["target"] == 1).all() and selected["prediction"].nunique() == 2
    up = np.sign(np.stack(rows["scores"])) == np.sign(ROWS)  # a column above 0 speaks for `yes`, whatever is predicted
    assert up.all()
    _, other = scores_for(subject, 0)
    assert (other["target"] == 0).all()
    np.testing.assert_allclose(np.sign(np.stack(other["scores"])), -np.sign(ROWS))


def test_the_true_class_is_the_label(subject):
    selected, rows = scores_for(subject, "true")
    assert rows["target"].tolist() == selected["label"].tolist() != selected["prediction"].tolist()


def test_the_predicted_class_needs_no_column(subject):
    selected, rows = scores_for(subject, "predicted")
    assert "target" not in selected
    assert rows["target"].tolist() == selected["prediction"].tolist()


def test_an_unknown_class_is_reported_with_the_nearest(subject):
    with pytest.raises(ShapelineError, match=r"target: classes of the dataset: 'yess' is not one of them\. .*yes"):
        selection.select(subject, 0, 5, target="yess")


def configuration(data=None, network=None, **changes):
    entry = {
        "model": "m",
        "features": {"kind": "patch", "size": 2},
        "methods": {"occlusion": {"method": "occlusion"}},
        "metrics": {"cost": {}},
        **changes,
    }
    entry = {key: setting for key, setting in entry.items() if setting is not None}
    return {
        "run": ["e"],
        "datasets": {"d": data or {"source": "digits", "classes": [3, 8]}},
        "models": {"m": network or {"dataset": "d", "architecture": "digits_cnn"}},
        "experiments": {"e": entry},
    }


@pytest.mark.parametrize("target", ["predicted", "true", "8", 8])
def test_a_class_by_its_label_is_accepted(target):
    assert load(configuration(target=target)).experiments["e"].target == target


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"target": "9"}, r"experiments.e.target: .*'9' is not one of them"),
        ({"target": 1}, r"experiments.e.target: .*for the class at that position write 8"),
        ({"target": 0, "value": "expected_log_probability"}, "expected_log_probability is of all classes together"),
        ({"target": 0, "model": None, "dataset": "d", "methods": {"mim": {"method": "mim"}}}, "without a model"),
    ],
)
def test_what_has_no_such_class_is_one_line(changes, told):
    with pytest.raises(ShapelineError, match=told):
        load(configuration(**changes))


def test_a_regression_has_no_class():
    told = "experiments.e.target: source 'diabetes' is of regression"
    given = configuration(
        {"source": "diabetes"},
        {"dataset": "d", "architecture": "mlp"},
        target=1,
        value="prediction",
        features={"kind": "column"},
    )
    with pytest.raises(ShapelineError, match=told):
        load(given)


def test_the_target_changes_selection_and_scores_and_the_default_is_no_setting():
    plain, named = load(configuration()), load(configuration(target="8"))
    assert "target" not in jobs.select_job(plain, "e")
    assert jobs.select_job(named, "e")["target"] == "8"
    assert jobs.attribute_job(plain, "e", "occlusion") == jobs.attribute_job(named, "e", "occlusion")  # by its rows


def test_a_page_states_the_explained_class():
    settings = {"target": "yes"}
    instances = pd.DataFrame({"instance": [4], "label": [0], "prediction": [0], "probability": [0.9], "target": [1]})
    results = SimpleNamespace(settings=settings, dataset_card=CARD, model_card={"a": 1}, instances=instances)
    assert experiment.describe_explained_class(results) == "class yes"
    assert "explained yes" in experiment.name_instance(results, instances.to_dict("records")[0])
    results.settings = {"target": "true"}
    assert experiment.describe_explained_class(results) == "the true class"
    results.settings = {}
    assert experiment.describe_explained_class(results) == "the predicted class"
    results.model_card = None
    assert experiment.describe_explained_class(results) == "the instance's own class"
