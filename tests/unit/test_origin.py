"""Files of another job are refused, and labels of two models are never compared."""

import contextlib

import numpy as np
import pandas as pd
import pytest

from shapeline import scores
from shapeline.config import validation
from shapeline.errors import ShapelineError
from shapeline.metrics import provenance
from shapeline.seeds import digest
from shapeline.workflow import jobs


def write(folder, entry, shard="0-of-1", full=(-0.1, -0.2, -0.3), empty=-1.0, first=0, **changed):
    columns = {name: changed.pop(name) for name in ("training_seed", "randomised_layers") if name in changed}
    path = folder / "results/e/scores" / entry / f"{shard}.parquet"
    frame = pd.DataFrame(
        {
            "instance": np.arange(first, first + len(full)),
            "target": 0,
            "value_full": full,
            "value_empty": empty,
            "status": "ok",
            "scores": [np.zeros(2)] * len(full),
            **columns,
        }
    )
    told = {"experiment": "e", "label": entry, "shard": shard.replace("-of-", " of "), "settings_digest": "d"}
    scores.write(path, frame, told | {"settings": {"method": {}}} | changed.pop("told", changed))
    return path


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"experiment": "other"}, r"is of experiment 'other' and stands where that of 'e' belongs.*rm .*kernel/0-of-1"),
        ({"label": "exact"}, "is of method 'exact' and stands where that of 'kernel' belongs"),
        ({"shard": "1 of 2"}, "is of shard '1 of 2' and stands where that of '0 of 1' belongs"),
        ({"settings_digest": "x"}, "is of settings 'x' and stands where that of 'd' belongs"),
    ],
)
def test_a_file_of_another_job_is_named(tmp_path, told, said):
    provenance.check_scores([write(tmp_path, "kernel")], "e", {"kernel": "d"})
    with pytest.raises(ShapelineError, match=said):
        provenance.check_scores([write(tmp_path, "kernel", told=told)], "e", {"kernel": "d"})


def test_jobs_check_the_metadata_of_their_files(default):
    loaded = validation.load(default)
    told = provenance.parse_digests(jobs.format_digests(loaded, "digits", ["kernel_shap", "exact", "exact"]))
    assert told == {entry: digest(jobs.attribute_job(loaded, "digits", entry)) for entry in ("kernel_shap", "exact")}
    told = provenance.parse_digests(jobs.format_measured_digests(loaded, "digits"))
    by_model, by_scores = ["log_odds"], ["error", "cost"]
    assert told == {
        "model": digest(jobs.measure_jobs(loaded, "digits", by_model)),
        "scores": digest(jobs.measure_jobs(loaded, "digits", by_scores)),
    }


@pytest.mark.parametrize(("name", "kind"), [("measured/lime.parquet", "model"), ("measured.parquet", "scores")])
def test_measurements_of_another_job_are_named(tmp_path, name, kind):
    path, digests = tmp_path / name, {"model": "of model", "scores": "of scores"}
    about = {"experiment": "e", "label": path.stem, "settings_digest": digests[kind]}
    for changed, said in (({}, ""), ({"experiment": "f"}, "of experiment 'f'"), ({"settings_digest": "x"}, "settings")):
        scores.write_measured(path, pd.DataFrame(columns=scores.MEASURED.names), about | changed)
        with pytest.raises(ShapelineError, match=said) if said else contextlib.nullcontext():
            provenance.check_measured([path], "e", digests)


@pytest.mark.parametrize("other", [{"full": (-0.1, -0.2, -0.3003)}, {"empty": -1.0003}])
def test_methods_of_two_models_are_not_compared(tmp_path, other):
    exact, kernel = write(tmp_path, "exact"), write(tmp_path, "kernel", **other)
    with pytest.raises(ShapelineError) as caught:
        provenance.check_ends([exact, kernel])
    said = str(caught.value)
    assert f"{exact} and {kernel} are of other models" in said
    assert said.endswith(f"rm {exact} {kernel} && snakemake --cores all") and "\n" not in said


def test_ends_that_may_differ_do(tmp_path):
    exact = write(tmp_path, "exact")
    own = write(tmp_path, "own", empty=-2.0, settings={"method": {"features": {"kind": "patch"}}})
    variant = write(tmp_path, "exact@randomised", full=(-5.0, -5.0, -5.0), randomised_layers=2)
    other = write(tmp_path, "other", full=(-4.0, -4.0, -4.0), training_seed=1)
    rounded = write(tmp_path, "rounded", full=(-0.1001, -0.2, -0.3), empty=-1.0001)
    without = write(tmp_path, "without", full=(np.nan,) * 3, empty=np.nan)
    later = write(tmp_path, "later", "1-of-2", first=2, full=(-0.3, -0.4))
    provenance.check_ends([without, exact, own, variant, other, rounded, later, tmp_path / "none.parquet"])
    provenance.check_ends([tmp_path / "none.parquet"])
    wrong = write(tmp_path, "wrong", "1-of-2", first=3, full=(-0.5,))
    with pytest.raises(ShapelineError, match=r"later/1-of-2.*wrong/1-of-2.*instance 3 is -0\.4 and -0\.5"):
        provenance.check_ends([exact, later, wrong])
    half = {"settings": {"method": {}, "precision": "bfloat16"}}
    provenance.check_ends([write(tmp_path, "a", **half), write(tmp_path, "b", full=(-0.15, -0.2, -0.3), **half)])
