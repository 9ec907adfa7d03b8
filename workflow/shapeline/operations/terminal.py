"""What a run says on the terminal: one line of how far it is, a line for each page, and the cause of what failed.

It takes the place of Snakemake's own handler of the terminal, not of the one that writes its log file, which keeps the
inputs and the reason of every job. A logger plugin would be asked for by the profile, and where it is not installed
Snakemake would not start; this needs nothing, and at any mistake of its own it hands back to Snakemake's.
"""

import contextlib
import logging
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

from shapeline.config.mistakes import TARGETS
from shapeline.errors import nearest
from shapeline.operations import interrupts
from shapeline.operations.jobs import CLEAR, TOLD_BY_SNAKEMAKE, cause_of, instances_done, last_lines
from shapeline.operations.work import Work, planned

PAGES = ("render_report", "render_theory", "render_accuracy", "render_index")
SHOWN = ("Nothing to be done", "Will exit after", "Trying to restart", "Reasons:", "This was a dry-run")
HIDDEN = ("At least one job did not complete", "Exiting because a job execution failed")
ABOVE = "(check individual jobs above for details)"
FURTHER = "For further error details"  # what a cluster did with a job stands before it
NO_RULE = re.compile(r"No rule to produce (.+?) \(if you use")
EXIT = re.compile(r"died with <Signals\.(\w+)|exit status (\d+)")
PLAIN_EVERY = 30.0  # seconds between two lines of progress where the output is no terminal


def attach(workflow, config, nothing_to_do: Callable[[], list[str]]) -> "Terminal | None":
    """Let a run of this workflow speak so; where Snakemake is asked for more, less or another logger, nothing changes.

    nothing_to_do: lines to add where all is there.
    """
    try:
        asked = workflow.output_settings
        wanted = {str(one).rpartition(".")[2].lower() for one in asked.quiet or ()} <= {"host", "reason"}
        ours = wanted and not (asked.verbose or asked.debug_dag or asked.printshellcmds)
        handlers = logging.getLogger("snakemake.logging").handlers
        for place, default in enumerate(handlers):
            if not ours or default.name != "DefaultStreamHandler":
                continue
            handlers[place] = terminal = Terminal(default, workflow, config, nothing_to_do)
            os.environ[TOLD_BY_SNAKEMAKE] = "1"
            return terminal
    except Exception as error:  # noqa: BLE001
        print(f"Progress is shown as Snakemake does: {error}", file=sys.stderr)
    return None


class Terminal(logging.Handler):
    """Snakemake's events as short lines; `default` is the handler that it replaces."""

    def __init__(self, default: logging.StreamHandler, workflow, config, nothing_to_do: Callable[[], list[str]]):
        super().__init__()
        self.default, self.stream, self.workflow, self.config = default, default.stream, workflow, config
        self.nothing_to_do = nothing_to_do
        self.live = self.stream.isatty()
        self.clear = CLEAR if self.live else ""
        self.started = False
        self.listed: dict[str, dict[str, list[str]]] = {}  # of a dry run, by rule and experiment
        self.died: dict[int, str] = {}  # how the job of a thread ended
        self.work, self.told = Work({}), 0.0
        self.over = threading.Event()
        self.acts = {
            "run_info": self._begin,
            "job_info": self._job_begins,
            "job_finished": self._job_ends,
            "job_error": self._job_fails,
            "error": self._error,
            "group_info": self._as_before,
            "group_error": self._as_before,
            "": self._message,
        }

    def emit(self, record: logging.LogRecord) -> None:
        try:
            event = str(getattr(record, "event", None) or "")
            if event == "workflow_started":
                self.started = True
            elif not self.started and not event:  # what Snakemake does beside runs is its own
                if "shared filesystem" not in record.getMessage():
                    self._as_before(record)
            elif event in self.acts:
                self.acts[event](record)
        except Exception:  # noqa: BLE001
            self._give_up(record)

    def end(self, made: bool, index: str, flagged: Callable[[], list[str]]) -> None:
        """The last lines of a run; made: whether it made everything. flagged: what to look at besides the index."""
        self.over.set()
        jobs = self.work.jobs.values()
        if interrupts.PRESSED.is_set():
            self._line("stopped; the same command goes on")
        elif made:
            opened = f"; open {index}" if any(job.output == index for job in jobs) else ""
            with contextlib.suppress(Exception):  # what is told besides the numbers stops no run
                for line in flagged():
                    self._line(f"flagged: {line}")
            self._line(f"{len(jobs)} jobs done{opened}")
        else:
            undone = sum(job.spent is None for job in jobs)
            self._line(f"{undone} of {len(jobs)} jobs are not done; once that is mended the same command goes on")

    def _begin(self, record) -> None:
        if not self.workflow.dryrun:
            self.work = planned(self.config, self.workflow)
            threading.Thread(target=self._watch, daemon=True).start()

    def _job_begins(self, record) -> None:
        if record.rule_msg:
            self._line(record.rule_msg)
        if self.workflow.dryrun:
            self._list(record)
        elif record.jobid in self.work.jobs:
            self.work.jobs[record.jobid].began = time.monotonic()

    def _job_ends(self, record) -> None:
        if record.job_id in self.work.jobs:
            self.work.end(record.job_id, time.monotonic())
            job = self.work.jobs[record.job_id]
            if job.rule in PAGES:
                self._line(f"page: {job.output}")

    def _job_fails(self, record) -> None:
        died = self.died.pop(record.thread, "failed")
        if interrupts.PRESSED.is_set():
            return
        of_cluster = " ".join((record.rule_msg or "").partition(FURTHER)[0].split())
        cause = cause_of(record.log)
        lines = [] if cause else last_lines(record.log)
        cause = cause or (died if died.startswith("ended by") else of_cluster or died)
        job = self.work.jobs.get(record.jobid)
        self._line(f"[{job.name if job else record.rule_name}] error: {cause}")
        for line in lines:
            self._line(f"  | {line}")
        self._line(f"  its log: {', '.join(record.log)}")

    def _error(self, record) -> None:
        text = record.getMessage()
        if "CalledProcessError" in text:  # its job is told of next, by the same thread
            self.died[record.thread] = describe_exit(text)
        elif "Cancelling snakemake on user request" in text:  # before the first job
            self._line("stopped; the same command goes on")
        elif no_rule := NO_RULE.search(text):
            asked, names = no_rule[1], {*TARGETS, *self.config.experiments}
            what = "no rule makes this file" if "/" in asked else f"no such target.{nearest(asked, names)}"
            self._line(f"{asked}: {what}")
        elif not any(hidden in text for hidden in HIDDEN):
            self._as_before(record)

    def _message(self, record) -> None:
        text = record.getMessage()
        if text.startswith("Terminating processes on user request"):
            self.over.set()
            self._line("stopping")
        elif record.levelno >= logging.WARNING:
            if not any(hidden in text for hidden in HIDDEN):
                self._as_before(record)
        elif text.startswith(SHOWN):
            self._tell_listed()
            told = text.replace(ABOVE, "(`snakemake -n -p` has them of each job)")
            self._line(told)
            if text.startswith("Nothing") and not self.workflow.dryrun:
                for line in self.nothing_to_do():
                    self._line(line)

    def _list(self, record) -> None:
        """Note a job of a dry run."""
        words = dict(record.wildcards)
        group = words.pop("experiment", "")
        if record.rule_name in PAGES:
            group, item = "", record.output[0]
        elif "label" in words:
            item = words["label"]
        else:
            item = " ".join(filter(None, words.values()))
        if record.output:
            self.listed.setdefault(record.rule_name, {}).setdefault(group, []).append(item)

    def _tell_listed(self) -> None:
        for rule, groups in self.listed.items():
            self._line(f"{rule} ({sum(map(len, groups.values()))})")
            for group, items in sorted(groups.items()):
                counted = sorted(Counter(items).items())
                told = [f"{item} in {number} shards" if number > 1 else item for item, number in counted]
                self._line("  " + ": ".join(filter(None, [group, ", ".join(told)])))
        self.listed = {}

    def _watch(self) -> None:
        while not self.over.wait(1.0):
            try:
                with self.lock:
                    self._tell_progress()
            except Exception:  # noqa: BLE001
                return

    def _tell_progress(self) -> None:
        now = time.monotonic()
        if not self.live and now - self.told < PLAIN_EVERY:
            return
        jobs = self.work.jobs
        running = [job for job in jobs.values() if job.began is not None and job.spent is None]
        for job in running:
            job.done = instances_done(job.log)
        share, left = self.work.state(now)
        parts = [
            f"{sum(job.spent is not None for job in jobs.values())} of {len(jobs)} jobs",
            f"{share:.0%} of the work",
            f"{in_words(left)} left",
            ", ".join(job.name + (f" {job.done:.0%}" if job.done else "") for job in running[:3]),
        ]
        self.told, line = now, " · ".join(filter(None, parts))
        if self.live:
            width = shutil.get_terminal_size().columns - 1
            self.stream.write(f"{CLEAR}{line[:width]}")
        else:
            self.stream.write(f"{line}\n")
        self.stream.flush()

    def _line(self, text: str) -> None:
        self.stream.write(f"{self.clear}{text}\n")
        self.stream.flush()

    def _as_before(self, record) -> None:
        self.stream.write(self.clear)
        self.default.handle(record)

    def _give_up(self, record) -> None:
        """Snakemake's own handler, from here on."""
        self.over.set()
        os.environ.pop(TOLD_BY_SNAKEMAKE, None)
        handlers = logging.getLogger("snakemake.logging").handlers
        handlers[handlers.index(self)] = self.default
        self.default.handle(record)


def describe_exit(text: str) -> str:
    """Return how a job's process ended, from Snakemake's message about it."""
    found = EXIT.search(text)
    if not found:
        return "failed"
    name, status = found[1], int(found[2] or 0)
    if status > 128:  # as a shell reports a signal
        with contextlib.suppress(ValueError):
            name = signal.Signals(status - 128).name
    return f"ended by {name}" if name else f"failed with exit status {status}"


def in_words(seconds: float) -> str:
    if seconds < 90:
        return f"{max(5, round(seconds / 5) * 5)} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
