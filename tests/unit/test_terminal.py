"""What a run says on the terminal, from the events that Snakemake logs."""

import io
import logging
from types import SimpleNamespace

import pytest

from shapeline.config import validation
from shapeline.operations import interrupts, jobs, terminal

SNAKEMAKE = logging.getLogger("snakemake.logging")


class Screen(io.StringIO):
    live = False

    def isatty(self) -> bool:
        return self.live


@pytest.fixture
def said(default, monkeypatch, tmp_path):
    """`said.event(name, text, **fields)` logs as Snakemake does, `said.screen` is what the terminal shows."""
    monkeypatch.delenv(jobs.TOLD_BY_SNAKEMAKE, raising=False)
    monkeypatch.chdir(tmp_path)
    interrupts.PRESSED.clear()
    screen = Screen()
    before = logging.StreamHandler(screen)
    before.name = "DefaultStreamHandler"
    monkeypatch.setattr(SNAKEMAKE, "handlers", [before])
    monkeypatch.setattr(SNAKEMAKE, "propagate", False)
    SNAKEMAKE.setLevel(logging.INFO)
    settings = SimpleNamespace(quiet={"host"}, verbose=False, debug_dag=False, printshellcmds=False)
    needrun = [
        job(1, "attribute", "a.parquet", experiment="digits", label="exact", shard="0", shards="1"),
        job(2, "render_report", "results/reports/digits.html", experiment="digits"),
        job(3, "render_index", "results/reports/index.html"),
    ]
    workflow = SimpleNamespace(
        output_settings=settings,
        dryrun=False,
        local_exec=True,
        cores=2,
        nodes=None,
        dag=SimpleNamespace(needrun_jobs=lambda: needrun),
    )

    def event(name, text="", level=logging.INFO, **fields):
        SNAKEMAKE.log(level, text, extra={"event": name, **fields} if name else fields)

    shown = terminal.attach(workflow, validation.load(default), lambda: ["made with other versions"])
    yield SimpleNamespace(event=event, screen=screen, shown=shown, settings=settings, workflow=workflow, before=before)
    interrupts.PRESSED.clear()
    if shown:
        shown.over.set()


def job(number: int, rule: str, output: str, **words) -> SimpleNamespace:
    return SimpleNamespace(
        jobid=number, rule=SimpleNamespace(name=rule), wildcards_dict=words, output=[output], log=[f"{number}.log"]
    )


def begins(said, number: int, rule: str, **fields) -> None:
    more = {"rule_msg": None, "output": ["x"], "wildcards": {}, "reason": "a long reason", **fields}
    said.event("job_info", jobid=number, rule_name=rule, **more)


def test_pages_and_the_end_are_told_and_no_reasons(said):
    said.event("workflow_started")
    said.event(None, "Building DAG of jobs...")
    said.event("run_info", "Job stats:")
    said.event(None, "Select jobs to execute...")
    for number, rule in ((1, "attribute"), (2, "render_report"), (3, "render_index")):
        begins(said, number, rule)
        said.event("job_finished", job_id=number)
    said.shown.end(True, "results/reports/index.html", lambda: ["digits: exact: of 5 explanations 1 failed"])
    assert said.screen.getvalue().splitlines() == [
        "page: results/reports/digits.html",
        "page: results/reports/index.html",
        "flagged: digits: exact: of 5 explanations 1 failed",
        "3 jobs done; open results/reports/index.html",
    ]


def test_a_failed_job_has_its_cause_in_one_line_and_its_log(said):
    said.event("workflow_started")
    said.event("run_info")
    with open("1.log", "w") as file:
        file.write(f"10:00 explained\nTraceback\n{jobs.CAUSE}the disk is full\n")
    begins(said, 1, "attribute")
    raised = "RuleException:\nCalledProcessError in file x, line 3:\nCommand 'long' returned non-zero exit status 1."
    said.event("error", raised, logging.ERROR, exception="RuleException")
    failed = {"rule_name": "attribute", "rule_msg": None, "log": ["1.log"]}
    said.event("job_error", "Error in rule", logging.ERROR, jobid=1, **failed)
    begins(said, 2, "render_report")
    said.event("error", raised.replace("returned non-zero exit status 1", "died with <Signals.SIGKILL: 9>"))
    said.event("job_error", jobid=2, **{**failed, "log": ["2.log"]})
    with open("4.log", "w") as file:
        file.write("2026-01-01 10:00:00 1/9 instances\n\nFatal Python error: Aborted\nThread 1\n  File x.py, line 3\n")
    said.event("error", raised.replace("status 1", "status 134"))
    said.event("job_error", jobid=2, **{**failed, "log": ["4.log"]})
    said.event("error", raised.replace("status 1", "status 127"))
    said.event("job_error", jobid=2, **{**failed, "log": ["2.log"]})
    of_cluster = (
        "SLURM-job '7' failed,\nSLURM status is: 'CANCELLED'. For further error details see the cluster/cloud log."
    )
    said.event("job_error", jobid=2, **{**failed, "rule_msg": of_cluster, "log": ["3.log"]})
    said.event(None, "Exiting because a job execution failed. Look above", logging.ERROR)
    said.shown.end(False, "index", list)
    assert said.screen.getvalue().splitlines() == [
        "[attribute digits exact 0 1] error: the disk is full",
        "  its log: 1.log",
        "[render_report digits] error: ended by SIGKILL",
        "  its log: 2.log",
        "[render_report digits] error: ended by SIGABRT",
        "  | Fatal Python error: Aborted",
        "  | Thread 1",
        "  |   File x.py, line 3",
        "  its log: 4.log",
        "[render_report digits] error: failed with exit status 127",
        "  its log: 2.log",
        "[render_report digits] error: SLURM-job '7' failed, SLURM status is: 'CANCELLED'.",
        "  its log: 3.log",
        "3 of 3 jobs are not done; once that is mended the same command goes on",
    ]


def test_an_interrupt_is_one_word_and_no_failure(said):
    said.event("workflow_started")
    said.event("run_info")
    begins(said, 1, "attribute")
    interrupts.PRESSED.set()
    said.event("error", "CalledProcessError died with <Signals.SIGINT: 2>", logging.ERROR)
    said.event("job_error", jobid=1, rule_name="attribute", log=["1.log"])
    said.event(None, "Terminating processes on user request, this might take some time.")
    said.event("error", "WorkflowError:\nAt least one job did not complete successfully.", logging.ERROR)
    said.shown.end(False, "index", list)
    assert said.screen.getvalue().splitlines() == ["stopping", "stopped; the same command goes on"]


def test_a_dry_run_lists_by_rule_and_label(said):
    said.workflow.dryrun = True
    said.event("workflow_started")
    for shard in "01":
        for label in ("exact", "lime"):
            words = {"experiment": "digits", "label": label, "shard": shard, "shards": "2"}
            begins(said, 1, "attribute", wildcards=words)
    begins(said, 2, "measure", wildcards={"experiment": "digits", "label": "lime"})
    begins(said, 3, "render_index", output=["results/reports/index.html"])
    begins(said, 4, "all", output=[])
    begins(said, 5, "prune", output=[], rule_msg="In results: 3 files")
    said.event(None, "This was a dry-run (flag -n).")
    assert said.screen.getvalue().splitlines() == [
        "In results: 3 files",
        "attribute (4)",
        "  digits: exact in 2 shards, lime in 2 shards",
        "measure (1)",
        "  digits: lime",
        "render_index (1)",
        "  results/reports/index.html",
        "This was a dry-run (flag -n).",
    ]


def test_a_terminal_has_one_line_of_progress(said, monkeypatch):
    said.shown.live, said.shown.clear = True, jobs.CLEAR
    said.event("workflow_started")
    said.event("run_info")
    said.shown.over.set()
    begins(said, 1, "attribute")
    with open("1.log", "w") as file:
        file.write("10:00 5/20 instances, 30 evaluations/s, 3 s left\n")
    said.shown._tell_progress()
    line = said.screen.getvalue().rpartition(jobs.CLEAR)[2]
    assert line.startswith("0 of 3 jobs · ") and line.endswith("left · attribute digits exact 0 1 25%")
    assert "\n" not in line


def test_without_anything_to_do_that_is_said_with_what_there_is_to_know(said):
    said.event("workflow_started")
    said.event(None, "Nothing to be done (all requested files are present and up to date).")
    assert said.screen.getvalue().splitlines()[1:] == ["made with other versions"]


def test_a_fault_of_its_own_hands_back_to_snakemake(said):
    said.event("workflow_started")
    said.workflow.dag = None  # of which it will ask
    said.event("run_info", "Job stats:")
    said.event(None, "Select jobs to execute...")
    assert said.screen.getvalue().splitlines() == ["Job stats:", "Select jobs to execute..."]
    assert said.before in SNAKEMAKE.handlers and said.shown not in SNAKEMAKE.handlers


@pytest.mark.parametrize(
    "asked",
    [{"verbose": True}, {"printshellcmds": True}, {"quiet": {"all"}}, {"quiet": {"rules"}}, {"quiet": {"progress"}}],
)
def test_where_snakemake_is_asked_for_more_or_less_it_speaks_itself(said, asked):
    SNAKEMAKE.handlers[:] = [said.before]
    vars(said.settings).update(asked)
    assert terminal.attach(said.workflow, None, list) is None and SNAKEMAKE.handlers == [said.before]


def test_other_loggers_stay(said):
    SNAKEMAKE.handlers[:] = [logging.NullHandler()]
    assert terminal.attach(said.workflow, None, list) is None


@pytest.mark.parametrize(("seconds", "told"), [(1, "5 s"), (61, "60 s"), (120, "2 min"), (7200, "2.0 h")])
def test_times_left_are_round(seconds, told):
    assert terminal.in_words(seconds) == told


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ("digitss", "digitss: no such target. Did you mean 'digits'?"),
        ("repport", "repport: no such target. Did you mean 'report'?"),
        ("results/reports/x.html", "results/reports/x.html: no rule makes this file"),
    ],
)
def test_a_target_that_is_none_has_the_nearest_name(said, asked, line):
    text = f"MissingRuleException:\nNo rule to produce {asked} (if you use input functions make sure that they don't)."
    said.event("workflow_started")
    said.event("error", text, logging.ERROR, exception="MissingRuleException")
    assert said.screen.getvalue().splitlines() == [line]
