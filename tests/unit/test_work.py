"""How far a run is, by estimates that are corrected as jobs end."""

from types import SimpleNamespace

import pytest

from shapeline.config import validation
from shapeline.operations import estimates
from shapeline.operations.work import Job, Work, line, planned, seconds_of
from shapeline.plan import runs


def job(estimate: float, rule: str = "attribute", **more) -> Job:
    return Job(rule, rule, "out", "log", estimate, **more)


def test_what_jobs_took_corrects_what_is_left():
    work = Work({number: job(10.0) for number in range(10)}, slots=2)
    assert work.state(0.0) == (0.0, 50.0)
    for number in range(2):
        work.jobs[number].began = 0.0
        work.end(number, 30.0)  # three times the estimate
    share, left = work.state(30.0)
    of_all = (60 + 10) / (20 + 10)  # drawn a little towards the estimate
    of_rule = (60 + 10 * of_all) / (20 + 10)
    assert left == pytest.approx(8 * 10 * of_rule / 2)
    assert share == pytest.approx(60 / (60 + 80 * of_rule))


def test_another_rule_is_corrected_by_all_until_it_has_ended_jobs_of_its_own():
    work = Work({0: job(100.0), 1: job(100.0, "measure"), 2: job(100.0, "measure")})
    work.jobs[0].began = 0.0
    work.end(0, 300.0)
    assert 400 < work.state(300.0)[1] < 600
    work.jobs[1].began = 300.0
    work.end(1, 330.0)
    assert work.state(330.0)[1] < 70  # as the first of its rule


def test_a_late_job_is_neither_over_nor_forgotten():
    work = Work({0: job(10.0), 1: job(10.0)})
    work.jobs[0].began = 0.0
    share, left = work.state(100.0)
    assert share < 0.95 and left > 30  # the other is thought late as well
    work.jobs[0].done = 0.5  # it says so itself
    assert work.state(100.0)[1] > 100


def test_nothing_to_do_is_all_done():
    assert Work({}).state(0.0) == (1.0, 0.0)


def test_the_jobs_of_an_experiment_add_up_to_its_estimate(default):
    loaded = validation.load(default)
    for name in loaded.run:
        labels = runs.labels(loaded, name)
        told = sum(
            seconds_of(loaded, "attribute", {"experiment": name, "label": label, "shards": f"{shards}"}) * shards
            for label in runs.all_labels(loaded, name)
            for shards in [runs.shards(loaded, name)]
        )
        if runs.model_metrics(loaded, name):
            told += seconds_of(loaded, "measure", {"experiment": name, "label": labels[0]}) * len(labels)
        told += seconds_of(loaded, "measure_scores", {"experiment": name})
        told += seconds_of(loaded, "compare", {"experiment": name})
        told += seconds_of(loaded, "render_report", {"experiment": name})
        assert told == pytest.approx(estimates.of_experiment(loaded, name).seconds, rel=0.5), name


def test_a_run_says_what_it_will_take_and_leaves_out_what_makes_no_file(default):
    loaded = validation.load(default)

    def one(number, rule, output, **words):
        return SimpleNamespace(
            jobid=number, rule=SimpleNamespace(name=rule), wildcards_dict=words, output=output, log=["a.log"]
        )

    jobs = [
        one(0, "all", []),
        one(1, "render_theory", ["theory.html"]),
        one(2, "compare", ["c"], experiment="digits"),
    ]
    workflow = SimpleNamespace(dag=SimpleNamespace(needrun_jobs=lambda: jobs), cores=8, local_exec=True, nodes=None)
    work = planned(loaded, workflow)
    assert {number: (one.name, one.output, one.log) for number, one in work.jobs.items()} == {
        1: ("render_theory", "theory.html", "a.log"),
        2: ("compare digits", "c", "a.log"),
    }
    assert work.slots == 2
    workflow.local_exec, workflow.cores, workflow.nodes = False, None, 50  # on a cluster
    assert planned(loaded, workflow).slots == 2
    assert line(loaded, workflow).startswith("2 jobs to run, roughly 0.22 core minutes")
