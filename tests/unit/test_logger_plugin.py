"""The terminal output of a run, from the events that Snakemake logs."""

import io
import logging
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from snakemake.logging import DefaultFilter, DefaultFormatter
from snakemake_interface_logger_plugins.registry import LoggerPluginRegistry

import snakemake_logger_plugin_shapeline as plugin
from shapeline.workflow import job_environment, messages


class Screen(io.StringIO):
    live = False

    def isatty(self) -> bool:
        return self.live


@pytest.fixture
def shown(monkeypatch, tmp_path):
    """`shown.event(name, text, **fields)` logs as Snakemake does, `shown.lines()` are those of the terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(job_environment.ERRORS_ARE_REPORTED, "")  # so that the handler's own value is removed afterwards
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    settings = SimpleNamespace(
        quiet={"host"}, verbose=False, debug_dag=False, printshellcmds=False, stdout=False, dryrun=False
    )

    def event(name, text="", level=logging.INFO, **fields):
        record = logging.LogRecord("snakemake.logging", level, "", 0, text, (), None)
        vars(record).update({"event": name, **fields} if name else fields)
        one.handler.handle(record)

    def lines() -> list[str]:
        return screen.getvalue().splitlines()

    one = SimpleNamespace(event=event, lines=lines, screen=screen, settings=settings)
    one.handler = plugin.LogHandler(settings, None)
    yield one
    one.handler.close()


def begin(shown, number: int, rule: str, **fields) -> None:
    wildcards = {"attribute": {"experiment": "digits", "method": "exact"}}.get(rule, {})
    more = {"rule_msg": None, "output": ["x"], "wildcards": wildcards, "log": [f"{number}.log"], **fields}
    shown.event("job_info", jobid=number, rule_name=rule, **more)


def begin_run(shown, **counts: int) -> None:
    shown.event("run_info", "Job stats:", stats={**counts, "total": sum(counts.values())})


def test_the_plugin_is_created_before_the_package_is_on_the_path():
    """The Snakefile puts the package beside it first on the path, where another copy may be installed."""
    code = "import sys; from types import SimpleNamespace as S; import snakemake_logger_plugin_shapeline as p; " + (
        "p.LogHandler(S(quiet=(), verbose=0, debug_dag=0, printshellcmds=0, stdout=0, dryrun=0), None); "
        "print([name for name in sys.modules if name.partition('.')[0] == 'shapeline'])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
    assert plugin.ERRORS_ARE_REPORTED == job_environment.ERRORS_ARE_REPORTED


def test_snakemake_finds_the_plugin():
    found = LoggerPluginRegistry().get_plugin("shapeline")
    assert found.log_handler is plugin.LogHandler


def test_importing_the_plugin_imports_nothing_of_the_package(root):
    import subprocess

    code = (
        "import sys, snakemake_logger_plugin_shapeline; print([name for name in sys.modules if 'shapeline.' in name])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root / "workflow", capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_pages_and_the_end_are_shown_and_no_reasons(shown):
    shown.event(None, "Building DAG of jobs...")
    begin_run(shown, attribute=1, render_report=1, render_index=1, all=1, models=0)
    shown.event(None, "Select jobs to execute...")
    outputs = {"attribute": "a.parquet", "render_report": "r/digits.html", "render_index": "r/index.html", "all": ""}
    for number, (rule, output) in enumerate(outputs.items()):
        begin(shown, number, rule, output=[output])
        shown.event("job_finished", job_id=number)
    shown.event(None, "open r/index.html", shapeline=True)
    assert shown.lines() == [
        "4 jobs to run: 1 attribute, 1 render_report, 1 render_index, 1 all",
        "page: r/digits.html",
        "page: r/index.html",
        "4 jobs done",
        "open r/index.html",
    ]


def test_a_failed_job_has_its_cause_in_one_line_and_its_log(shown):
    begin_run(shown, attribute=1, render_report=2)
    raised = "RuleException:\nCalledProcessError in file x, line 3:\nCommand 'long' returned non-zero exit status 1."

    def fail(number: int, rule: str, how: str, log: str, text: str | None = None, **fields) -> None:
        if text is not None:
            with open(log, "w") as file:
                file.write(text)
        begin(shown, number, rule)
        shown.event("error", raised.replace("returned non-zero exit status 1", how), logging.ERROR)
        shown.event(
            "job_error", "", logging.ERROR, jobid=number, rule_name=rule, **{"rule_msg": None, "log": [log], **fields}
        )

    fail(1, "attribute", "returned non-zero exit status 1", "1.log", f"x\n{job_environment.CAUSE}the disk is full\n")
    fail(2, "render_report", "died with <Signals.SIGKILL: 9>", "2.log")
    crash = "2026-01-01 10:00:00 1/9 instances\n\nFatal Python error: Aborted\nThread 1\n  File x.py, line 3\nlast\n"
    fail(3, "render_report", "returned non-zero exit status 134", "3.log", crash)
    fail(4, "render_report", "returned non-zero exit status 127", "4.log")
    of_cluster = "SLURM-job '7' failed,\nSLURM status is: 'CANCELLED'. For further error details see the log."
    fail(5, "render_report", "", "5.log", rule_msg=of_cluster)
    refused = (
        "SLURM sbatch failed. The error message was 'sbatch: error: no\npartition'. sbatch call: sbatch --parsable ..."
    )
    fail(6, "render_report", "", "1.log", rule_msg=refused)
    shown.event(None, "Exiting because a job execution failed. Look above", logging.ERROR)
    shown.event("error", "WorkflowError:\nAt least one job did not complete successfully.", logging.ERROR)
    assert shown.lines()[1:] == [
        "[attribute digits exact] error: the disk is full",
        "  its log: 1.log",
        "[render_report] error: ended by SIGKILL",
        "  its log: 2.log",
        "[render_report] error: ended by SIGABRT",
        "  | Fatal Python error: Aborted",
        "  | Thread 1",
        "  |   File x.py, line 3",
        "  its log: 3.log",
        "[render_report] error: failed with exit status 127",
        "  its log: 4.log",
        "[render_report] error: SLURM-job '7' failed, SLURM status is: 'CANCELLED'.",
        "  its log: 5.log",
        "[render_report] error: SLURM sbatch failed. The error message was 'sbatch: error: no partition'",
        "3 of 3 jobs are not done; fix the cause, then run the same command",
    ]


def test_an_interrupt_is_one_line_and_no_failure(shown):
    begin_run(shown, attribute=2)
    begin(shown, 1, "attribute")
    begin(shown, 2, "attribute")
    shown.event("error", "CalledProcessError died with <Signals.SIGINT: 2>", logging.ERROR)
    shown.event("job_error", jobid=1, rule_name="attribute", rule_msg=None, log=["1.log"])
    shown.event(None, "Terminating processes on user request, this might take some time.")
    shown.event(None, "Exiting because a job execution failed.", logging.ERROR)
    shown.event("error", "WorkflowError:\nAt least one job did not complete successfully.", logging.ERROR)
    assert shown.lines() == ["2 jobs to run: 2 attribute", "stopping after 1 running job; the same command resumes"]
    shown.handler.running.clear()
    shown.event(None, "Terminating processes on user request, this might take some time.")
    assert shown.lines()[-1] == "stopped; the same command resumes"


def test_a_dry_run_lists_by_rule_and_method(shown):
    shown.settings.dryrun = True
    for shard in "01":
        for entry in ("exact", "lime"):
            words = {"experiment": "digits", "method": entry, "shard": shard, "shards": "2"}
            begin(shown, 1, "attribute", wildcards=words)
    for index, shard in ((0, 0), (1, 0), (1, 1)):
        words = {"experiment": "groups", "method": "until", "round": str(index), "shard": str(shard), "shards": "2"}
        begin(shown, 1, "evaluate_game", wildcards=words)
    begin(shown, 2, "measure", wildcards={"experiment": "digits", "method": "lime"})
    begin(shown, 3, "compare", wildcards={"experiment": "digits"})
    begin(shown, 4, "render_index", output=["results/reports/index.html"], wildcards={})
    begin(shown, 5, "measure_accuracy", wildcards={})
    begin(shown, 6, "all", output=[], wildcards={})
    shown.event(
        None, "Reasons:\n    (check individual jobs above for details)\n    params have changed since last execution:"
    )
    shown.event(None, "This was a dry-run (flag -n).")
    assert shown.lines() == [
        "attribute (4)",
        "  digits: exact in 2 shards, lime in 2 shards",
        "evaluate_game (3)",
        "  groups: until, until round 2 in 2 shards",
        "measure (1)",
        "  digits: lime",
        "compare (1)",
        "  digits",
        "render_index (1)",
        "  results/reports/index.html",
        "measure_accuracy (1)",
        "Reasons:",
        "    (`-p` shows them per job)",
        "    settings or package code have changed since last execution:",
        "This was a dry-run (flag -n).",
    ]


def test_one_line_says_why_results_are_computed_again(shown):
    begin_run(shown, attribute=3)
    begin(shown, 1, "attribute", reason="Missing output files: x")
    for number in (2, 3):
        begin(shown, number, "attribute", reason="Params have changed since last execution: before: 1; now: 2")
    told = "re-computed, because settings or package code have changed: attribute digits exact, ..."
    assert shown.lines()[1:] == [told]


@pytest.mark.parametrize("text", ["Report created.", "Unlocked working directory.", "Deleting results/a.parquet"])
def test_the_result_of_a_command_without_jobs_is_shown(shown, text):
    shown.event(None, "Adding page.html (1 MB).")
    shown.event(None, text)
    assert shown.lines() == [text]


def test_a_terminal_has_one_line_of_progress(shown):
    shown.handler.live = True
    begin_run(shown, attribute=4)
    begin(shown, 1, "attribute")
    shown.event("job_finished", job_id=1)
    shown.handler.seconds["attribute"] = [20.0]
    begin(shown, 2, "attribute", wildcards={"experiment": "digits", "method": "exact", "shard": "0", "shards": "2"})
    with open("2.log", "w") as file:
        file.write("10:00 5/20 instances, 30 evaluations/s, 3 s left\n")
    shown.handler.write_progress()
    line = shown.screen.getvalue().rpartition(plugin.CLEAR_LINE)[2]
    assert line == "1/4 jobs, 25%, 60 s left, attribute digits exact shard 1 of 2 25%"


def test_seconds_left_are_those_of_the_rule_or_of_all_shared_by_the_jobs_at_a_time(shown):
    begin_run(shown, attribute=3, compare=2)
    assert shown.handler.estimate_seconds_left() == 0
    shown.handler.seconds = {"attribute": [10.0, 20.0]}
    shown.handler.waiting = plugin.Counter(attribute=1, compare=2)
    shown.handler.slots = 2
    assert shown.handler.estimate_seconds_left() == pytest.approx((15 + 2 * 15) / 2)


@pytest.mark.parametrize(("seconds", "text"), [(1, "5 s"), (61, "60 s"), (120, "2 min"), (7200, "2.0 h")])
def test_times_left_are_round(seconds, text):
    assert plugin.format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("target", "line"),
    [
        ("digitss", "digitss: no such target. Did you mean 'digits'?"),
        ("repport", "repport: no such target. Did you mean 'report'?"),
        ("runs/my.yaml", "runs/my.yaml: a configuration is no target; write --configfile runs/my.yaml"),
        ("results/reports/x.html", "results/reports/x.html: no rule makes this file"),
    ],
)
def test_a_wrong_target_has_the_nearest_name(shown, monkeypatch, target, line):
    monkeypatch.setattr(messages, "TARGETS", {*messages.TARGETS, "digits"})
    text = f"MissingRuleException:\nNo rule to produce {target} (if you use input functions make sure that they don't)."
    shown.event("error", text, logging.ERROR)
    assert shown.lines() == [line]


@pytest.mark.parametrize(
    "changed", [{"verbose": True}, {"printshellcmds": True}, {"quiet": {"rules"}}, {"quiet": {"all"}}]
)
def test_with_verbose_or_quiet_options_snakemakes_messages_are_shown(shown, changed):
    vars(shown.settings).update(changed)
    own = shown.settings
    handler = plugin.LogHandler(own, None)
    handler.stream = shown.screen
    assert not handler.has_filter and not handler.has_formatter
    handler.addFilter(DefaultFilter(own.quiet, own.debug_dag, own.verbose, own.dryrun, own.printshellcmds))
    handler.setFormatter(DefaultFormatter(own.quiet, False))
    record = logging.LogRecord("snakemake.logging", logging.ERROR, "", 0, "its own words", (), None)
    handler.handle(record)
    assert re.sub(r"\x1b\[\w+", "", "".join(shown.lines())).endswith("its own words")
