"""A logger plugin of Snakemake: one line of progress, a line per page, and the cause of each failed job.

The profile names it (`logger: shapeline`); any other logger of Snakemake works as well. With options that ask for more
or less (`--verbose`, `--printshellcmds`, `--debug-dag`, `--quiet rules`) messages are those of Snakemake itself.

Snakemake imports all installed plugins at each start, of other workflows too, and makes the logger before it reads the
Snakefile, which puts the package beside it on the path: the package is imported only when a message needs it.
"""

import logging
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean

from snakemake_interface_logger_plugins.base import LogHandlerBase

ERRORS_ARE_REPORTED = "SHAPELINE_ERRORS_ARE_REPORTED"  # read by shapeline.workflow.job_environment
CLEAR_LINE = "\r\033[K"
PLAIN_INTERVAL = 30.0  # seconds between two lines of progress where the output is no terminal
# Messages without an event that are shown, and errors that repeat what is shown.
SHOWN = ("Nothing to be done", "Will exit after", "Trying to restart", "Reasons:", "This was a dry-run")
SHOWN += ("Report created", "Unlocked working directory", "Would delete", "Deleting")  # of --report, --unlock, ...
HIDDEN = ("At least one job did not complete", "shared filesystem")
NO_RULE = re.compile(r"No rule to produce (.+?) \(if you use")
EXIT = re.compile(r"died with <Signals\.(\w+)|exit status (\d+)")
SUBMISSION = ". sbatch call:"  # after the cause in the Slurm executor's message
STOPPED = "stopped; the same command resumes"
CHANGED = re.compile(r"(Params|Code) ha(ve|s) changed since last execution")  # params hold a digest of the code
SHORTER = {
    "(check individual jobs above for details)": "(`-p` shows them per job)",
    "params have changed": "settings or package code have changed",
}
FAILED = "Exiting because a job execution failed"


@dataclass
class RunningJob:
    """A job that has started: its rule, its name for people, its outputs and logs, and when it started."""

    rule: str
    name: str
    outputs: list[str]
    logs: list[str]
    started: float


class LogHandler(LogHandlerBase):
    """Snakemake's events as short lines."""

    def __post_init__(self) -> None:
        self.stream = sys.stdout if self.common_settings.stdout else sys.stderr
        self.live = self.stream.isatty()
        self.clear = CLEAR_LINE if self.live else ""
        self.running: dict[int, RunningJob] = {}
        self.seconds: dict[str, list[float]] = {}  # of finished jobs, by rule
        self.waiting: Counter[str] = Counter()  # jobs that have not finished, by rule
        self.listed: dict[str, dict[str, list[str]]] = {}  # of a dry run, by rule and experiment
        self.exits: dict[int, str] = {}  # how a job's process ended, by the thread that waited for it
        self.done = self.total = self.slots = 0
        self.reported = 0.0
        self.stopping = self.is_rerun = False
        self.closed = threading.Event()
        if not self.as_snakemake:
            os.environ[ERRORS_ARE_REPORTED] = "1"  # for the jobs, which else print their errors themselves

    @property
    def as_snakemake(self) -> bool:
        """Whether the user asked for more or less than usual."""
        asked = self.common_settings
        quiet = {str(one).rpartition(".")[2].lower() for one in asked.quiet or ()}
        return bool(asked.verbose or asked.debug_dag or asked.printshellcmds or quiet - {"host", "reason"})

    writes_to_stream = True
    writes_to_file = False
    needs_rulegraph = False

    @property
    def has_filter(self) -> bool:
        return not self.as_snakemake

    @property
    def has_formatter(self) -> bool:
        return not self.as_snakemake

    def emit(self, record: logging.LogRecord) -> None:
        if self.as_snakemake:
            text = self.format(record)
            if text not in ("", "None"):
                self.write_line(text)
            return
        event = str(getattr(record, "event", None) or "message")
        show = getattr(self, f"show_{event}", None)
        if show:
            show(record)

    def close(self) -> None:
        self.closed.set()
        super().close()

    def show_run_info(self, record) -> None:
        counts = dict(record.stats)
        self.total = counts.pop("total")
        self.waiting = Counter(counts)
        if not self.common_settings.dryrun:
            rules = ", ".join(f"{number} {rule}" for rule, number in counts.items() if number)
            self.write_line(f"{count_jobs(self.total)} to run: {rules}")
            threading.Thread(target=self.watch, daemon=True).start()

    def show_job_info(self, record) -> None:
        if record.rule_msg:
            self.write_line(record.rule_msg)
        if self.common_settings.dryrun:
            self.list_job(record)
            return
        shard = describe_shard(record.wildcards)
        name = " ".join(filter(None, [record.rule_name, describe_wildcards(record.wildcards), shard]))
        if CHANGED.search(str(getattr(record, "reason", ""))) and not self.is_rerun:
            self.is_rerun = True
            self.write_line(f"re-computed, because settings or package code have changed: {name}, ...")
        job = RunningJob(record.rule_name, name, [*record.output], [*record.log], time.monotonic())
        self.running[record.jobid] = job
        self.slots = max(self.slots, len(self.running))

    def show_job_finished(self, record) -> None:
        job = self.running.pop(record.job_id, None)
        if job is None:
            return
        self.done += 1
        self.waiting[job.rule] -= 1
        self.seconds.setdefault(job.rule, []).append(time.monotonic() - job.started)
        for page in (path for path in job.outputs if path.endswith(".html")):
            self.write_line(f"page: {page}")
        if self.done == self.total:
            self.write_line(f"{count_jobs(self.total)} done")

    def show_job_error(self, record) -> None:
        from shapeline.workflow.job_environment import find_cause, read_last_lines

        job = self.running.pop(record.jobid, None)
        exit_ = self.exits.pop(record.thread, "failed")
        if self.stopping or "SIGINT" in exit_:
            return
        refused, call, _ = (record.rule_msg or "").partition(SUBMISSION)
        if call:  # a job that was not submitted has no log, or one of an earlier run
            self.write_line(f"[{job.name if job else record.rule_name}] error: {' '.join(refused.split())}")
            return
        cause = find_cause(record.log)
        lines = [] if cause else read_last_lines(record.log)
        of_cluster = " ".join((record.rule_msg or "").partition("For further error details")[0].split())
        cause = cause or (exit_ if exit_.startswith("ended by") else of_cluster or exit_)
        self.write_line(f"[{job.name if job else record.rule_name}] error: {cause}")
        for line in lines:
            self.write_line(f"  | {line}")
        self.write_line(f"  its log: {', '.join(record.log)}")

    def show_error(self, record) -> None:
        text = record.getMessage()
        if "CalledProcessError" in text:  # the error of its job follows from the same thread
            self.exits[record.thread] = describe_exit(text)
        elif "Cancelling snakemake on user request" in text:  # before the first job
            self.stopping = True
            self.write_line(STOPPED)
        elif found := NO_RULE.search(text):
            from shapeline.errors import nearest
            from shapeline.workflow.messages import TARGETS

            target = found[1]
            problem = "no rule makes this file" if "/" in target else f"no such target.{nearest(target, TARGETS)}"
            if target.endswith((".yaml", ".yml")):
                problem = f"a configuration is no target; write --configfile {target}"
            self.write_line(f"{target}: {problem}")
        elif not any(hidden in text for hidden in HIDDEN):
            self.write_line(text)

    def show_group_error(self, record) -> None:
        self.write_line(record.getMessage())

    def show_message(self, record) -> None:
        text = record.getMessage()
        if text.startswith("Terminating processes on user request"):
            self.stopping = True
            waits = f"stopping after {count_jobs(len(self.running), 'running ')}; the same command resumes"
            self.write_line(waits if self.running else STOPPED)
        elif text.startswith(FAILED):
            if not self.stopping:
                left = self.total - self.done
                self.write_line(f"{left} of {self.total} jobs are not done; fix the cause, then run the same command")
        elif any(hidden in text for hidden in HIDDEN):
            return
        elif record.levelno >= logging.WARNING or getattr(record, "shapeline", False):
            self.write_line(text)
        elif text.startswith(SHOWN):
            self.write_listed()
            for words, shorter in SHORTER.items():
                text = text.replace(words, shorter)
            self.write_line(text)

    def list_job(self, record) -> None:
        """Note a job of a dry run under its rule and experiment."""
        words = dict(record.wildcards)
        experiment = words.pop("experiment", "")
        item = describe_wildcards(words)
        if not words and any(path.endswith(".html") for path in record.output):
            experiment, item = "", record.output[0]
        if record.output:
            self.listed.setdefault(record.rule_name, {}).setdefault(experiment, []).append(item)

    def write_listed(self) -> None:
        for rule, experiments in self.listed.items():
            self.write_line(f"{rule} ({sum(map(len, experiments.values()))})")
            for experiment, items in sorted(experiments.items()):
                counts = sorted(Counter(filter(None, items)).items())
                names = ", ".join(f"{item} in {number} shards" if number > 1 else item for item, number in counts)
                if line := ": ".join(filter(None, [experiment, names])):
                    self.write_line(f"  {line}")
        self.listed = {}

    def watch(self) -> None:
        while not self.closed.wait(1.0):
            if self.live or time.monotonic() - self.reported >= PLAIN_INTERVAL:
                with self.lock:
                    self.write_progress()

    def write_progress(self) -> None:
        from shapeline.workflow.job_environment import count_done

        shares = {job.name: count_done(job.logs[0]) if job.logs else None for job in self.running.values()}
        left = self.estimate_seconds_left()
        running = ", ".join(name + (f" {share:.0%}" if share else "") for name, share in [*shares.items()][:3])
        parts = [f"{self.done}/{self.total} jobs", f"{self.done / max(self.total, 1):.0%}"]
        line = ", ".join(filter(None, [*parts, left and f"{format_seconds(left)} left", running]))
        self.reported = time.monotonic()
        width = shutil.get_terminal_size().columns - 1
        self.stream.write(f"{CLEAR_LINE}{line[:width]}" if self.live else f"{line}\n")
        self.stream.flush()

    def estimate_seconds_left(self) -> float:
        """Return the seconds left if jobs take as long as the finished ones of their rule; 0 if unknown."""
        finished = [seconds for every in self.seconds.values() for seconds in every]
        if not finished:
            return 0.0
        usual = {rule: fmean(self.seconds.get(rule, finished)) for rule in self.waiting}
        now = time.monotonic()
        spent = sum(min(now - job.started, usual.get(job.rule, 0.0)) for job in self.running.values())
        return max(sum(usual[rule] * number for rule, number in self.waiting.items()) - spent, 0.0) / max(self.slots, 1)

    def write_line(self, text: str) -> None:
        self.stream.write(f"{self.clear}{text}\n")
        self.stream.flush()


def describe_wildcards(words: Mapping) -> str:
    """Return the values of a job's wildcards but its shard; rounds of an adaptive budget from the second on."""
    rounds = {"round": f"round {int(words['round']) + 1}" if int(words["round"]) else ""} if "round" in words else {}
    shown = {key: str(word) for key, word in words.items() if key not in ("shard", "shards")} | rounds
    return " ".join(filter(None, shown.values()))


def describe_shard(words: Mapping) -> str:
    """Return which of several shards a job computes; "" for the only one."""
    return f"shard {int(words['shard']) + 1} of {words['shards']}" if int(words.get("shards", 1)) > 1 else ""


def describe_exit(text: str) -> str:
    """Return how a job's process ended, from Snakemake's message about it."""
    found = EXIT.search(text)
    if not found:
        return "failed"
    name, status = found[1], int(found[2] or 0)
    if status > 128:  # as a shell reports a signal
        with suppress(ValueError):
            name = signal.Signals(status - 128).name
    return f"ended by {name}" if name else f"failed with exit status {status}"


def count_jobs(number: int, kind: str = "") -> str:
    return f"{number} {kind}job{'' if number == 1 else 's'}"


def format_seconds(seconds: float) -> str:
    if seconds < 90:
        return f"{max(5, round(seconds / 5) * 5)} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
