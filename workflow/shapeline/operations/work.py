"""How far a run is: the estimated seconds of each of its jobs, corrected as jobs end."""

from collections.abc import Mapping
from dataclasses import dataclass

from shapeline.config.types import Config
from shapeline.methods.registry import METHODS
from shapeline.operations import estimates
from shapeline.plan import code, runs

TRUST = 10.0  # estimated seconds that must have passed before what they took counts as much as the estimate
NEARLY = 0.95  # of a running job's time at most counts as done


@dataclass
class Job:
    """A job of a run: what it is called, where its first file and its log are, its estimate in seconds, and since when
    and for how long it has run."""

    rule: str
    name: str
    output: str
    log: str
    estimate: float
    began: float | None = None
    spent: float | None = None
    done: float | None = None  # the share of its instances that is done, where it says so


@dataclass
class Work:
    """The jobs of a run by Snakemake's number, and how many of them run at a time."""

    jobs: dict[int, Job]
    slots: int = 1

    def end(self, number: int, now: float) -> None:
        job = self.jobs[number]
        job.spent = now - (now if job.began is None else job.began)

    def state(self, now: float) -> tuple[float, float]:
        """The share of the work that is done, 0 to 1, and the seconds until the run ends: by the estimates, times what
        jobs of the rule took of theirs, or all jobs where few of it have ended. A job that is late counts as well."""
        late = {id(job): now - job.began for job in self.jobs.values() if job.began is not None and job.spent is None}
        seen = [(job, late.get(id(job), job.spent)) for job in self.jobs.values()]
        seen = [
            (job, took) for job, took in seen if took is not None and (job.spent is not None or took > job.estimate)
        ]
        over_all = _taken(seen, 1.0)
        taken = {rule: _taken([one for one in seen if one[0].rule == rule], over_all) for rule in self._rules()}
        whole = done = waits = longest = 0.0
        for job in self.jobs.values():
            expected, part = job.estimate * taken[job.rule], 0.0
            if job.spent is not None:
                expected, part = job.spent, 1.0
            elif job.began is not None:
                elapsed = late[id(job)]
                expected = elapsed / job.done if job.done else max(expected, elapsed / NEARLY)
                part = min(elapsed / expected, NEARLY) if expected else NEARLY
            left = expected * (1 - part)
            whole, done, waits, longest = whole + expected, done + expected * part, waits + left, max(longest, left)
        return done / whole if whole else 1.0, max(waits / self.slots, longest)

    def _rules(self) -> set[str]:
        return {job.rule for job in self.jobs.values()}


def _taken(seen: list[tuple[Job, float]], before: float) -> float:
    """Seconds taken for each estimated one, drawn towards what was thought before."""
    return (sum(took for _, took in seen) + TRUST * before) / (sum(job.estimate for job, _ in seen) + TRUST)


def planned(config: Config, workflow) -> Work:
    """The jobs that a run of Snakemake's workflow will make something by."""
    seconds: dict[tuple, float] = {}
    jobs = {}
    for job in workflow.dag.needrun_jobs():
        if not job.output:
            continue
        rule, words = job.rule.name, job.wildcards_dict
        kind = (rule, *(value for key, value in words.items() if key != "shard"))
        if kind not in seconds:
            seconds[kind] = seconds_of(config, rule, words)
        name = " ".join([rule, *filter(None, words.values())])
        jobs[job.jobid] = Job(rule, name, job.output[0], next(iter(job.log), ""), seconds[kind])
    return Work(jobs, max(1, min(len(jobs), workflow.cores if workflow.local_exec else workflow.nodes or 1)))


def line(config: Config, workflow) -> str:
    """What a run that starts will take."""
    work = planned(config, workflow)
    told = estimates.core_time(sum(job.estimate for job in work.jobs.values()))
    return f"{len(work.jobs)} jobs to run, roughly {told} without a GPU; `snakemake doctor` says what all of it takes"


def seconds_of(config: Config, rule: str, wildcards: Mapping[str, str]) -> float:
    """Estimated seconds of one job on one core."""
    if rule == "train_model":
        return estimates.of_training(config, runs.split_training(wildcards["model"])[0])
    if rule in ("render_report", "render_theory", "render_accuracy", "render_index"):
        return estimates.REPORT_SECONDS
    if rule == "fetch_source" or "experiment" not in wildcards:
        return estimates.JOB_SECONDS["torch"]
    name = wildcards["experiment"]
    experiment = config.experiments[name]
    start = estimates.JOB_SECONDS[code.job_framework(config, experiment.model) if rule != "compare" else "torch"]
    speed = estimates.rate_of(config, experiment.model, experiment.dataset) if experiment.model else 1.0
    count = estimates.explanations(config, name)
    if rule == "attribute":
        label, randomised = runs.split_label(wildcards["label"])
        passes = estimates.of_instance(config, name, label)[1]
        count *= experiment.repeats if METHODS[experiment.methods[label].method].sampled else 1
        count *= len(runs.variants(config, name)) if randomised else estimates.of_trainings(experiment)
        return start + count * passes / speed / int(wildcards["shards"])
    if rule == "measure":
        return start + count * experiment.repeats * estimates.of_metrics(config, name) / speed
    return start
