"""Extreme values of a configuration are refused in one line each within a second."""

import os
import time

import pytest
import yaml

from shapeline.config import validation
from shapeline.config.method_checks import estimate_bytes, find_max_budget
from shapeline.errors import ShapelineError
from shapeline.files import format_bytes

LONG = "a" * 300


def refused(raw: dict) -> list[str]:
    """The lines of a refusal, which took less than a second."""
    began = time.process_time()
    with pytest.raises(ShapelineError) as failure:
        validation.load(raw)
    spent, found = time.process_time() - began, str(failure.value).splitlines()
    assert spent < 1 and len(found) < 30 and max(map(len, found)) < 1200, (spent, found)
    return found


def put(raw: dict, path: str, value: object) -> dict:
    *parents, last = path.split(".")
    node = raw
    for part in parents:
        node = node[part]
    node[last] = value
    return raw


def test_aliases_that_are_no_bomb_are_taken(default):
    shared = default["experiments"]["digits"]
    default["experiments"] |= {f"again{number}": shared for number in range(20)}
    assert len(validation.load(default).experiments) > 20


def test_a_list_that_contains_itself_is_one_line(default):
    (line,) = refused(put(default, "seed", yaml.safe_load("&a [*a]")))
    assert line.startswith("seed: ")


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("seed", 2**64, "seed: a whole number of 65 bits; the largest is 2^64 - 1; give a smaller one"),
        ("seed", 10**5000, "seed: a whole number of 16,610 bits"),
        ("experiments.digits.training_seeds", -(2**64), "experiments.digits.training_seeds: a whole number of 65 bits"),
        ("experiments.digits.instances", {"count": 10**400}, "digits.instances.count: a whole number of 1,329 bits"),
        (
            "experiments",
            {LONG: {}},
            "experiments: the key 'aaaaaaaaaaaaaaaaaaaa...' is a text of 300 characters; the longest is 100",
        ),
        ("datasets", {LONG: {}}, "datasets: the key 'aaaaaaaaaaaaaaaaaaaa...' is a text of 300 characters"),
        ("models", {LONG: {}}, "models: the key 'aaaaaaaaaaaaaaaaaaaa...' is a text of 300 characters"),
        (
            "experiments.digits.methods",
            {LONG: {"method": "shapley"}},
            "digits.methods: the key 'aaaaaaaaaaaaaaaaaaaa...'",
        ),
        ("results", LONG, "is not a folder of its own inside the repository; give a relative path without"),
        ("datasets.digits38.path", LONG, "dataset key 'path': source 'digits' needs no file"),
        (
            "models.digits_cnn.weights",
            f"{LONG}.pth",
            "digits_cnn.weights: path 'aaaaaaaaaaaaaaaaaaaa...': a name of 304",
        ),
        ("data", {"mirror": "/".join(["a" * 200] * 20)}, "data.mirror: path 'aaaaaaaaaaaaaaaaaaaa...': 4,019 bytes"),
        ("b" * 2000, 1, "the configuration: the key 'bbbbbbbbbbbbbbbbbbbb...' is a text of 2,000 characters"),
        ("run", ["x" * 5000], "run.0: a text of 5,000 characters; the longest is 4,096"),
        ("results", "a\0b", "results: a text with the character U+0000, which no file or name can hold"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_number_or_name_beyond_all_limits_is_one_line(default, path, value, said):
    found = refused(put(default, path, value))
    assert any(said in line for line in found), found


def test_a_missing_mirror_is_one_line(default, tmp_path, caplog):
    missing = f"data.mirror: there is no folder {tmp_path}/no; files are downloaded from their official addresses"
    for mirror, words in (
        (f"{tmp_path}/no", [missing]),
        *((other, []) for other in (str(tmp_path), "https://mirror.example/files", None)),
    ):
        caplog.clear()
        validation.load(put(default, "data", {"mirror": mirror}))
        assert caplog.messages == words


def test_a_seed_of_64_bits_is_taken(default):
    assert validation.load({**default, "seed": 2**64 - 1}).seed == 2**64 - 1


@pytest.mark.parametrize("raw", [[], None, "text", 3, {1: 2}, {None: {}}, {"datasets": {2: {}}, "run": {}}])
def test_what_is_no_mapping_of_keys_is_refused(raw):
    refused(raw)


@pytest.mark.parametrize("method", ["kernel_shap", "sample_shapley", "lime"])
@pytest.mark.parametrize("budget", [1e308, 1e9])
def test_a_design_larger_than_memory_is_refused_with_its_size(default, method, budget):
    default["experiments"]["reviews"]["methods"] = {"far": {"method": method, "budget": budget}}
    default["experiments"]["reviews"]["metrics"] = {"cost": {}}
    (line,) = refused(default)
    assert line.startswith(f"experiments.reviews.methods.far.budget: {budget:g} x d evaluations by {method} would take")
    assert (" PB" in line or " TB" in line) and "at about 50 features; the most is 16 GB: set" in line
    enough = float(line.rpartition("set ")[2].split()[0])
    default["experiments"]["reviews"]["methods"]["far"]["budget"] = enough
    validation.load(default)


def test_a_budget_beyond_all_coalitions_is_bounded_too(default):
    default["experiments"]["digits"] |= {"methods": {"whole": {"method": "kernel_shap", "budget": 1e7}}}
    default["experiments"]["digits"] |= {"metrics": {"cost": {}}, "training_seeds": 1}
    validation.load(default)  # 2^16 coalitions are all that there are
    (line,) = refused(put(default, "experiments.digits.methods.whole.budget", 1e308))
    assert line.endswith("whole.budget: 1e+308 x d evaluations are more than any run makes; set 1e+08 or less")
    default["experiments"]["digits"]["methods"]["whole"] |= {"budget": 4, "intermediate_budgets": [1e308]}
    assert any("whole.intermediate_budgets: 1e+308 x d" in line for line in refused(default))


@pytest.mark.parametrize("section", ["datasets", "models"])
def test_a_dangling_name_is_reported_for_every_experiment(default, section):
    found = refused(put(default, section, {"other": {"dataset": "x"}}))
    assert any("there is no" in line for line in found)


@pytest.mark.parametrize("name", ["digits", "cancer", "reviews"])
def test_the_experiments_own_budget_is_bounded_too(default, name):
    found = refused(put(default, f"experiments.{name}.budget", 1e308))
    assert found == [f"experiments.{name}.budget: 1e+308 is not valid; input should be less than or equal to 100000000"]


@pytest.mark.parametrize(("method", "d"), [("kernel_shap", 3), ("kernel_shap", 5000), ("sample_shapley", 400)])
def test_stated_limits_are_accepted(method, d):
    assert 0 < estimate_bytes(method, find_max_budget(method, d), d) <= 16e9
    assert estimate_bytes(method, float("inf"), d) == (
        9 * d * 2**d if d < 1000 and method == "kernel_shap" else float("inf")
    )
    assert [format_bytes(number) for number in (0.0, 999.0, 2.5e9, 1e300, float("inf"))] == [
        *("0 B", "999 B", "2.5 GB", "more than 1,000 PB", "more than 1,000 PB")
    ]


def test_results_that_are_a_dangling_link_are_named(default, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.symlink("/nowhere/results", "results")
    told = "results: results is a link to /nowhere/results, which is not there; make it, or remove the link"
    assert refused(default) == [told]
    assert refused({**default, "results": "results/first"}) == [told]
    os.remove("results")
    os.symlink(tmp_path, "results")
    validation.load(default)
