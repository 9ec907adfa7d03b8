"""Invalid probabilities are refused when the model is evaluated."""

import numpy as np
import pytest
import torch

import shapeline
from shapeline.errors import ShapelineError
from shapeline.games import features
from shapeline.games.references import Reference
from shapeline.models import adapters
from tests.unit import shortcuts

ROWS = np.random.default_rng(0).random((6, 3)).astype(np.float32)


def said(rows, sums: float):
    share = rows[:, :1] / 2
    return sums * np.concatenate([share, 0.8 * (1 - share), 0.2 * (1 - share)], axis=1)


@pytest.mark.parametrize("sums", [0.5, 0.99, 1.004])
def test_probabilities_that_do_not_sum_to_one_are_refused(sums):
    with pytest.raises(ShapelineError) as failure:
        shapeline.explain(lambda rows: said(rows, sums), ROWS, "shapley", np.zeros(3), "column")
    line = str(failure.value)
    assert f"its outputs sum to {sums:.6g} in row 0 (from 0)" in line and "which sum to 1" in line
    assert "\n" not in line


def test_a_row_far_down_is_named():
    def model(rows):
        found = said(rows, 1.0)
        found[4] /= 2
        return found

    with pytest.raises(ShapelineError, match=r"sum to 0\.5 in row 4 \(from 0\), and not to 1 in 1 of 6 rows"):
        adapters.wrap(model).log_probs(ROWS)


def test_rounded_probabilities_and_those_of_one_label_are_taken():
    found = shapeline.explain(lambda rows: said(rows, 1.0).round(3), ROWS, "shapley", np.zeros(3), "column")
    assert np.isfinite(found.scores).all()
    sums = (torch.from_numpy(ROWS * 9).bfloat16().softmax(1)).double().sum(1)
    assert (sums - 1).abs().max() > 2e-3  # as bfloat16 rounds
    found = shapeline.explain(lambda rows: torch.from_numpy(rows * 9).bfloat16().softmax(1), ROWS, "shapley", "zero")
    assert np.isfinite(found.scores).all()
    found = shapeline.explain(lambda rows: rows[:, 0] / 3, ROWS, "shapley", np.zeros(3), "column", target=1)
    assert np.isfinite(found.scores).all()


def test_nan_stays_a_row_that_failed():
    def model(rows):
        found = said(rows, 1.0)
        found[0] = np.nan
        return found

    assert np.isnan(adapters.wrap(model).log_probs(ROWS)[0]).all()


def test_in_a_job_no_row_has_the_status_ok():
    wrapped = adapters.wrap(lambda rows: said(rows, 0.7))
    own = features.build("column", {"kind": "table", "input_shape": [3], "feature_names": ["a", "b", "c"]})
    settings, reference = {"method": "shapley"}, Reference(np.zeros((1, 3), np.float32))
    with pytest.raises(ShapelineError, match=r"its outputs sum to 0\.7"):
        shortcuts.attribute(wrapped, ROWS, np.zeros(6, int), settings, own, reference, "probability")


def test_a_label_that_is_not_the_most_probable_class_is_reported(caplog):
    class Threshold:
        classes_ = np.array(["no", "yes"])

        def predict_proba(self, rows):
            return np.column_stack([1 - rows.mean(axis=1), rows.mean(axis=1)])

        def predict(self, rows):
            return self.classes_[(rows.mean(axis=1) > 0.1).astype(int)]

    rows = np.array([[0.8, 0.9], [0.2, 0.3], [0.0, 0.1]])
    found = shapeline.explain(Threshold(), rows, reference="zero")
    assert found.target_names == ["yes", "no", "no"]
    said = (
        "predicts 'yes' for input 1 (from 0; 1 in all), and class 'no', which is explained, is more probable; for the"
    )
    assert said in caplog.text
    caplog.clear()
    assert (
        shapeline.explain(Threshold(), rows, reference="zero", target=Threshold().predict(rows)).target_names[1]
        == "yes"
    )
    shapeline.explain(Threshold(), rows[::2], reference="zero")
    assert not caplog.text
