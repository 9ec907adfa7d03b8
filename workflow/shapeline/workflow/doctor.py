"""The environment and the needs of the configured run: versions, devices, disk, memory, data, model rows and hours."""

import importlib.metadata
import math
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

from shapeline.config.types import Config
from shapeline.datasets import sources
from shapeline.datasets.registry import SOURCES, RemoteFile
from shapeline.errors import EXTRAS, ShapelineError, is_installed
from shapeline.files import format_bytes
from shapeline.methods.registry import METHODS
from shapeline.threads import count_processors
from shapeline.workflow import job_code, jobs, messages, runs
from shapeline.workflow.job_code import find_root
from shapeline.workflow.job_environment import list_visible_devices
from shapeline.workflow.messages import format_amount, format_time

PIN = re.compile(r"^([\w.-]+)==([\w.+]+)", re.M)
CHECKS = ("tests and checks",)  # heading of the packages in requirements.txt that no run needs
# Packages that some runs do without; a configuration that needs one is refused before doctor reads it.
OPTIONAL = sorted(name for extra in ("torch", "tensorflow", "text", "peers", "boosted") for name in EXTRAS[extra])
DISK_RESERVE = 1.2  # required disk space, relative to the estimate
SEES = {
    "torch": "import torch; print(torch.cuda.device_count())",
    "tensorflow": "import tensorflow; print(len(tensorflow.config.list_physical_devices('GPU')))",
}


def report(config: Config) -> tuple[str, list[str]]:
    """Return the report of a configuration, and the problems that prevent its run, one line each."""
    lines, problems = [], []
    parts = {
        "Versions": report_versions((find_root() / "requirements.txt").read_text(encoding="utf-8")),
        "Devices": report_devices(config),
        "Data": report_data(config),
        "Disk and memory": report_space(config),
        f"Run ({', '.join(config.run)})": report_work(config),
    }
    for heading, part in parts.items():
        lines += ["", heading]
        try:
            for text, problem in part:
                lines += [f"  {text}"] if text else []
                problems += [problem] if problem else []
        except ShapelineError as error:  # a damaged file: the other parts are stated all the same
            problems.append(str(error))
    return "\n".join(lines[1:]), list(dict.fromkeys(problems))


def report_versions(requirements: str) -> Iterator[tuple[str, str]]:
    """Compare Python and the packages with the pins of requirements.txt."""
    yield f"Python {platform.python_version()}", ""
    needed = requirements.split(f"# {CHECKS[0]}")[0]
    as_pinned, differs, lacking = 0, [], []
    for name, pinned in PIN.findall(needed):
        try:
            installed = importlib.metadata.version(name).split("+")[0]
        except importlib.metadata.PackageNotFoundError:
            lacking.append(name)
            continue
        as_pinned += installed == pinned
        if installed != pinned:
            differs.append(f"{name} {installed} (pinned {pinned})")
    yield f"{as_pinned} packages as pinned", ""
    if differs:
        yield f"other than pinned: {', '.join(differs)}", ""
    if Path(sys.prefix).is_relative_to(Path(".snakemake").resolve()):
        yield "each rule runs in its own environment, envs/*.yaml; this is the environment of doctor", ""
    elif needed := [name for name in lacking if name not in OPTIONAL]:
        remedy = "pip install -r requirements.txt"
        yield f"missing: {', '.join(needed)}", f"not installed: {', '.join(needed)}; {remedy}"
    if absent := [name for name in OPTIONAL if not is_installed(name)]:
        yield f"not installed, and not needed by this run: {', '.join(absent)}", ""


def report_devices(config: Config) -> Iterator[tuple[str, str]]:
    """Report processors, the GPUs of a job, and whether the frameworks of the run can use them."""
    yield f"{count_processors()} cores, {format_bytes(psutil.virtual_memory().total)} memory", ""
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
        query_result = subprocess.run(query, capture_output=True, text=True)
        for gpu in (query_result.stdout if query_result.returncode == 0 else query_result.stderr).splitlines():
            yield f"nvidia-smi: {gpu}", ""
    visible = list_visible_devices()
    if config.device == "cpu":
        yield "device: cpu; no job uses a GPU", ""
        return
    required = config.device == "cuda"
    if not visible:
        yield "no GPU is visible to a job", "device: cuda, but no GPU is visible to a job" if required else ""
        return
    yield f"visible to a job: {', '.join(visible)}", ""
    used = {job_code.find_job_framework(config, config.experiments[name].model) for name in config.run}
    for framework in sorted(used):
        sees = subprocess.run([sys.executable, "-c", SEES[framework]], capture_output=True, text=True).stdout.strip()
        problem = f"device: cuda, but this build of {framework} sees no GPU" if required and sees in ("", "0") else ""
        yield f"{framework} sees {sees or 'no'} GPU(s)", problem
    for line in messages.list_gpu_lines(config, config.run, len(visible), len(visible)):
        yield line, ""


def report_data(config: Config) -> Iterator[tuple[str, str]]:
    """Report the datasets of the run: prepared, read from a path, or which files exist and which are missing."""
    reported = set()
    for name in config.run:
        for dataset in runs.list_datasets(config, name):
            if dataset not in reported:
                yield _describe_dataset(config, dataset), ""
        for source, file, path in messages.list_downloads(config, name):
            if path not in reported:
                yield _describe_file(config, source, file, Path(path))
        reported |= {*runs.list_datasets(config, name), *(path for _, _, path in messages.list_downloads(config, name))}
    yield from ((line, "") for line in runs.list_unavailable(config))
    yield from (("", line) for line in jobs.find_untrusted(config))


def _describe_dataset(config: Config, dataset: str) -> str:
    arrays = Path(runs.list_prepared_files(dataset)["arrays"])
    entry = config.datasets[dataset]
    if arrays.exists():
        state = f"prepared, {format_bytes(arrays.stat().st_size)}"
    elif entry.path:
        state = f"to be read from {sources.expand(entry.path)}"
    elif entry.source in SOURCES:
        state = f"to be prepared, about {format_bytes(messages.estimate_prepared_bytes(config, dataset))}"
    else:
        state = f"to be made by {entry.source}"
    return f"{dataset}: {state}"


def _describe_file(config: Config, source: str, file: RemoteFile, path: Path) -> tuple[str, str]:
    size = format_bytes(file.size or file.about)
    line = f"  {path}: "
    if path.exists():
        problem = _find_difference(file, path)
        problem = problem and f"{path} is not the official file ({problem}); delete it, or put the official one there"
        return f"{line}there, {format_bytes(path.stat().st_size)}", problem
    mirror = config.data.mirror
    if mirror and not sources.is_address(mirror):
        if (sources.expand(mirror) / source / file.name).is_file():
            return f"{line}in the mirror, {size}", ""
    elif mirror and not config.data.offline:
        return f"{line}not downloaded, {size}, from {mirror}", ""
    if not file.urls:
        return (
            f"{line}missing, {size}; place it by hand",
            f"{path} has to be placed by hand (about {size}): get it at {file.page}",
        )
    if config.data.offline:
        return f"{line}missing, {size}", f"data.offline is set and {path} is missing: get it at {file.urls[0]}"
    return f"{line}not downloaded, {size}, from {file.urls[0]}", ""


def _find_difference(file: RemoteFile, path: Path) -> str:
    """Return the problem of an official file, "" if it has none: its size, or its checksum if the size is unknown."""
    if not path.is_file():
        return "it is no file"
    if file.size is None:
        return file.problem(path)
    size = path.stat().st_size
    return "" if size == file.size else f"{size:,} of {file.size:,} bytes"


def report_space(config: Config) -> Iterator[tuple[str, str]]:
    """Compare free disk with the size of the results, per disk, and memory with the largest dataset."""
    disks: dict[int, list] = {}
    if not os.access(".", os.W_OK):
        yield ". cannot be written", f"{Path.cwd()}: cannot be written; run in a folder that you can write"
    for folder, needed in _count_missing_bytes(config).items():
        existing = next(path for path in (Path(folder), *Path(folder).parents) if path.exists())
        disk = disks.setdefault(os.stat(existing).st_dev, [existing, [], 0.0])
        disk[1].append(folder)
        disk[2] += needed
        if needed and not os.access(existing, os.W_OK):
            yield f"{folder}: cannot be written", f"{existing} cannot be written, and {folder} has to be"
    for existing, folders, needed in disks.values():
        free = shutil.disk_usage(existing).free
        line = f"{' and '.join(folders)}: about {format_bytes(needed)} to be written, {format_bytes(free)} free"
        yield line, f"the disk is too small: {line}" if DISK_RESERVE * needed > free else ""
    memory = psutil.virtual_memory().total
    for dataset in sorted({dataset for name in config.run for dataset in runs.list_datasets(config, name)}):
        needed = _estimate_memory(config, dataset)
        line = f"{dataset}: about {format_bytes(needed)} in memory, in each job that reads it"
        problem = f"the memory, {format_bytes(memory)}, is too small for {line}; make `size` smaller"
        if needed > 1e9:
            yield line, problem if needed > memory else ""


def _count_missing_bytes(config: Config) -> dict[str, float]:
    """Return the bytes that the run will write, by folder."""
    names = {dataset for name in config.run for dataset in runs.list_datasets(config, name)}
    lacking = [name for name in names if not os.path.exists(runs.list_prepared_files(name)["arrays"])]
    files = {file[2]: file for name in config.run for file in messages.list_downloads(config, name)}
    models = {config.experiments[name].model for name in config.run} - {None}
    trained = sum(not os.path.exists(runs.name_model_files(config, model)["weights"]) for model in models)
    pages = [name for name in config.run if not os.path.exists(f"{config.results}/reports/{name}.html")]
    return {
        "data/raw": sum(file.size or file.about for _, file, path in files.values() if not os.path.exists(path)),
        # At least a byte of a dataset of unknown size, because the folder has to be writable.
        "data/prepared": sum(max(messages.estimate_prepared_bytes(config, name), 1.0) for name in lacking),
        config.results: sum(messages.size_results(config, name) for name in pages) + trained * messages.MODEL_BYTES,
    }


def _estimate_memory(config: Config, dataset: str) -> float:
    """Return the bytes of the inputs in a job's memory: one per value of images, four per other value."""
    shape = messages.find_input_shape(config, dataset)
    value_bytes = 1 if shape and len(shape) == 3 else 4
    return float(value_bytes * math.prod(shape or (0,)) * messages.count_rows(config, dataset))


def report_work(config: Config) -> Iterator[tuple[str, str]]:
    """Report rows of the model and core hours of each experiment, by the rates in its score files if there are any."""
    for name in config.run:
        if config.experiments[name].game:
            yield f"{name}: a game, whose time is that of its evaluations (budget x players per method)", ""
            continue
        rate = measure_rate(config, name)
        cost = messages.estimate_experiment(config, name, rate)
        origin = f"at {rate:,.0f} rows/s, measured on this machine" if rate else "at typical rates"
        limit = config.experiments[name].time_limit
        problem = ""
        if limit and cost.slowest_seconds > limit:
            problem = (
                f"experiments.{name}.time_limit: {limit:g} s per instance is below the estimate for "
                f"'{cost.slowest}', {cost.slowest_seconds:.2g} s"
            )
        yield (f"{name}: {format_amount(cost.rows)} model rows, roughly {format_time(cost.seconds)} {origin}", problem)
    for model in sorted({config.experiments[name].model for name in config.run} - {None}):
        yield f"training {model}: roughly {format_time(messages.estimate_training(config, model))}", ""
    rows, seconds = messages.estimate_run(config)
    total = f"{format_amount(rows)} model rows, roughly {format_time(seconds)} at typical rates"
    has_games = any(config.experiments[name].game for name in config.run)
    yield f"all{' but games' * has_games}, without stored results: {total}", ""


def measure_rate(config: Config, name: str) -> float | None:
    """Return the model's rows per second in score files of an experiment's designs; None without files."""
    from shapeline import scores  # pandas

    evaluations = seconds = 0.0
    for entry in runs.list_entries(config, name):
        if not METHODS[config.experiments[name].methods[entry].method].is_design:
            continue
        for file in filter(os.path.exists, runs.list_score_files(config, name, entry)):
            rows = scores.read_table(file)
            evaluations += rows["evaluations"].sum()
            seconds += rows["seconds"].sum()
    rows = getattr(config.experiments[name].reference, "rows", 1)  # an evaluation takes so many
    return rows * evaluations / seconds if evaluations and seconds else None
