"""An instance that exceeds time_limit is a failed row; the others are unchanged."""

import signal
import time

import numpy as np
import pandas as pd
import pytest
import torch

from shapeline.attribution import run as time_limit_module
from shapeline.attribution.context import ExplanationContext
from shapeline.config import validation
from shapeline.errors import MethodFailure
from shapeline.games.features import Features
from shapeline.games.references import Reference
from shapeline.models import adapters
from shapeline.workflow.jobs import attribute_settings
from tests.unit import shortcuts

D = 5
X = np.random.default_rng(0).normal(size=(4, D)).astype(np.float32)
X[2, 0] = 100.0  # the instance that the model dwells on


class Dwelling(torch.nn.Module):
    """A linear model that stays longer than the limit over rows with a large first number."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner = torch.nn.Linear(D, 2)

    def forward(self, rows):
        if (rows[:, 0] > 50).any():
            time.sleep(0.7)
        return self.inner(rows)


class Data:
    inputs = X


def rows_of(time_limit: float | None, on_error: str = "record", method: str = "shapley") -> pd.DataFrame:
    features = Features("column", (D,), np.arange(D, dtype=np.int32), ())
    subject = ExplanationContext(adapters.wrap(Dwelling()), Data, features, Reference(np.zeros((1, D), np.float32)))
    share = pd.DataFrame({"instance": [7, 3, 9, 1], "row": range(4), "prediction": [0, 1, 0, 1]})
    settings = {"method": {"method": method}, "seed": 0, "features": {"kind": "column"}}
    if time_limit:
        settings["time_limit"] = time_limit
    return shortcuts.explain_rows(subject, share, settings, "label", None, on_error).set_index("instance")


@pytest.mark.parametrize("method", ["shapley", "gradient_x_input"])
def test_a_slow_instance_is_a_row_with_the_reason_and_the_others_are_unchanged(method):
    free, limited = rows_of(None, method=method), rows_of(0.5, method=method)
    assert limited["status"].to_dict() == {7: "ok", 3: "ok", 9: "time limit", 1: "ok"}
    assert (
        limited.loc[9, "error"]
        == "time_limit: an instance took longer than 0.5 s; raise time_limit, or lower the budget"
    )
    assert limited.loc[9, "scores"] is None
    for instance in (7, 3, 1):
        np.testing.assert_allclose(limited.loc[instance, "scores"], free.loc[instance, "scores"], atol=1e-6)
    assert (free["status"] == "ok").all()


def test_a_failure_ends_the_job_on_request():
    with pytest.raises(MethodFailure, match="time_limit"):
        rows_of(0.5, on_error="fail")


def test_the_alarm_is_off_afterwards():
    before = signal.getsignal(signal.SIGALRM)
    with time_limit_module.limit_time(0.05):
        pass
    time.sleep(0.1)
    with pytest.raises(MethodFailure), time_limit_module.limit_time(0.05):
        time.sleep(1)
    with time_limit_module.limit_time(None):
        pass
    assert signal.getsignal(signal.SIGALRM) == before and signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_the_limit_is_among_the_settings_of_scores_and_only_where_it_is_given(default):
    free = attribute_settings(validation.load(default), "digits", "exact")
    default["experiments"]["digits"]["time_limit"] = 2
    limited = attribute_settings(validation.load(default), "digits", "exact")
    assert limited == {**free, "time_limit": 2.0}
