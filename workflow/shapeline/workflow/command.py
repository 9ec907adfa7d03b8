"""The command `shapeline`, and what the Snakefile calls before its jobs: `read_config` and `start_run`.

`run` is a call of Snakemake that is printed before it runs; the other actions need none.

`prune` removes what lies in the results folder and the configuration no longer names.
"""

import argparse
import contextlib
import errno
import importlib
import io
import os
import re
import shlex
import sys
import threading
import webbrowser
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

from shapeline import __version__
from shapeline.errors import ShapelineError, ShapelineErrors, reported_extras

try:  # an installation for Python's interface lacks packages of the workflow
    with reported_extras("shapeline"):
        import yaml

        from shapeline.config.types import Config
        from shapeline.config.validation import check_files, check_frameworks, load
        from shapeline.datasets.sources import find_file
        from shapeline.files import format_bytes, trim_folders
        from shapeline.fork_server import server as fork_server
        from shapeline.workflow import init_config, job_environment, jobs, messages, runs
        from shapeline.workflow.job_code import find_root
except ShapelineError as error:
    sys.exit(str(error))

# What to do where the system refuses a file.
REFUSALS = dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "check its permissions, or use another folder")
REFUSALS |= dict.fromkeys((errno.EEXIST, errno.ENOTDIR), "name another folder")
REFUSALS |= dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free disk space")
CONFIG = "shapeline.yaml"  # what init writes, and run and doctor read where it is there


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit status. A mistake is one line."""
    parser, words = _build_parser(), list(sys.argv[1:] if arguments is None else arguments)
    end = words.index("--") if words[:1] == ["run"] and "--" in words else len(words)
    parsed, unknown = parser.parse_known_args(words[:end], argparse.Namespace(options=words[end + 1 :]))
    if unknown:
        hint = "; give options of Snakemake after --, as in: shapeline run -- --keep-going"
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint if parsed.action == 'run' else ''}")
    try:
        status = parsed.execute(parsed)
        sys.stdout.flush()
        return status
    except ShapelineError as error:
        print(f"shapeline: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader has enough lines, as head has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python's exit flushes what is left
        return 1
    except OSError as error:
        if error.filename is None or error.errno not in REFUSALS:
            raise
        print(f"shapeline: {error.filename}: {error.strerror}; {REFUSALS[error.errno]}", file=sys.stderr)
        return 1


def read_config(raw: dict, workflow: Any) -> Config:
    """Return the typed configuration of Snakemake's workflow; mistakes end the run before any job, in one line each."""
    try:
        if workflow.is_main_process:
            for name in workflow.global_resources:
                if name != "gpu" and name.lower().rstrip("s") == "gpu":
                    raise ShapelineError(f"--resources {name}: no job asks for it; write --resources gpu=N")
            job_environment.check_workflow_folder(str(workflow.basedir))
            check_files(workflow.configfiles)
        # Snakemake merges files of the command line over those of the workflow, but lists them first.
        files = sorted(workflow.configfiles, key=workflow.overwrite_configfiles.__contains__)
        config = runs.add_available_experiments(load(raw, files))
        if workflow.is_main_process:  # a job on a cluster reads the configuration again
            jobs.check_records(config)
            if untrusted := list(jobs.find_untrusted(config)):
                raise ShapelineErrors(untrusted)
    except ShapelineError as error:
        sys.exit(f"{error}")
    messages.TARGETS.update(config.experiments)
    return config


def start_run(config: Config, workflow: Any, gpus: int) -> str:
    """Check frameworks, show what a user should know, and return a prefix of the jobs' shell commands, or ''."""
    needed = list(workflow.dag.needrun_jobs())
    experiments = {job.wildcards.get("experiment") for job in needed} - {None}
    visible = config.device != "cpu" and job_environment.list_visible_devices()
    try:
        if not workflow.deployment_settings.deployment_method:  # otherwise each rule has its own environment
            check_frameworks(config, experiments)
    except ShapelineError as error:
        sys.exit(f"{error}")
    lines = [*runs.list_unavailable(config), *messages.list_memory_warnings(config)]
    lines += messages.list_version_lines(config)
    if gpus and config.device != "cpu" and not visible:
        lines.append("No GPU is visible on this machine: running on the CPU.")
    if workflow.local_exec and visible:
        lines += messages.list_gpu_lines(config, experiments, gpus, len(visible))
    messages.show(lines)
    return fork_server.start(len(needed)) if workflow.local_exec else ""


def finish_run(config: Config) -> None:
    """Trim the row store, and cancel Snakemake's timers of the next look at waiting jobs, which delay the exit."""
    trim_folders(f"{config.results}/.rows", config.row_store_gb * 1e9)
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.cancel()


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="shapeline",
        description="Explain predictions by several attribution methods at a matched budget, and recommend one.",
        epilog="Documentation: docs/index.md of the repository; all keys: docs/configuration.md.",
    )
    parser.add_argument("--version", action="version", version=f"shapeline {__version__}")
    actions = parser.add_subparsers(dest="action", required=True)

    def add(action: str, execute: Callable, text: str) -> argparse.ArgumentParser:
        described = f"{text[0].upper()}{text[1:]}."
        # Without abbreviations, because --config is Snakemake's.
        added = actions.add_parser(action, help=text, description=described, allow_abbrev=False)
        added.set_defaults(execute=execute)
        return added

    init = add("init", _init, "write a configuration for a file or folder of data")
    init.add_argument(
        "path",
        type=Path,
        help="a CSV or Parquet table, a CSV of texts, a folder of images by class, a .jsonl file of prompts, or a "
        "model beside one of these",
    )
    init.add_argument("--target", help="the column of classes or numbers; by default guessed and reported")
    init.add_argument(
        "--model",
        help="a model file, a folder of transformers, or path/to/file.py:function; by default a model is trained",
    )
    init.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="'KEY: VALUE'",
        help="a key of the dataset, as in --set \"na_values: ['?']\"; may be repeated",
    )
    run = add("run", _run, "run the experiments and write their reports")
    run.add_argument(
        "targets", nargs="*", help="experiments or steps, by default those of run:; after --, options of Snakemake"
    )
    run.add_argument("--cores", default="all", help="number of CPU cores to use; by default all")
    doctor = add("doctor", _run_doctor, "check versions, devices, data and disk space for a run")
    prune = add("prune", _prune, "remove results that are not in the configuration")
    export = add("export", _export, "write the figures and tables of a report: SVG, PNG, CSV, LaTeX")
    export.add_argument("experiment", help="an experiment with a report")
    export.add_argument("folder", type=Path, nargs="?", help="folder to write to; by default EXPERIMENT_export")
    for one in (run, doctor, prune, export):
        one.add_argument(
            "--configfile",
            action="append",
            type=Path,
            help=f"a configuration that is merged over config.yaml; may be repeated; by default {CONFIG} if it exists, "
            "which is not read beside others unless named too",
        )
    for one in (run, prune):
        one.add_argument("--dry-run", "-n", action="store_true", help="show what would be done and do nothing")
    add("open", _open, "open the reports in a browser")
    return parser


def find_clone() -> Path | None:
    """Return the folder of a workflow at or above this one, if there is one: a clone, or what snakedeploy has laid."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "Snakefile").is_file() and (folder / "workflow").is_dir():
            return folder
        if (folder / "workflow" / "Snakefile").is_file():
            return folder
    return None


def _init(parsed: argparse.Namespace) -> int:
    file = Path(CONFIG)
    if file.exists():
        raise ShapelineError(f"{file}: the file exists; remove or rename it first")
    keys = init_config.parse_keys(parsed.set)
    model = parsed.model and find_file(parsed.model)
    if model and not Path(model).exists():
        raise ShapelineError(f"--model: {model}: file not found; check the path")
    try:
        text = init_config.build_configuration(parsed.path, parsed.target, parsed.model, keys)
        written = f"{file}{_fit_trees(text) if init_config.TREES in text else ''}"
    except ShapelineError as error:
        init_config.name_option(error)
        raise
    file.write_text(text, encoding="utf-8")
    then = "check it, then: shapeline run --dry-run, and shapeline run"
    try:
        load(config := yaml.safe_load(text))
        init_config.try_model(config)
    except ShapelineError as error:
        then = f"but a run would stop: {error}"
    with contextlib.suppress(BrokenPipeError):  # who reads no further has the file
        print(text, f"\nWrote {written}; {then}", sep="", flush=True)
    return 0


def _fit_trees(text: str) -> str:
    """Fit and save the trees of a configuration; return what to say of it. Raises ShapelineError."""
    path, content, new = init_config.fit_pipeline(text)
    path.write_bytes(content)
    unknown = f" (words of {', '.join(new)} that no training row has count as missing)" if new else ""
    return f" and {path.name}, boosted trees fitted to the training rows{unknown}"


def _find_configfiles(parsed: argparse.Namespace) -> list[Path]:
    """Return the configuration files that a command names, or the usual one where it exists."""
    files = [file.resolve() for file in parsed.configfile or ([Path(CONFIG)] if Path(CONFIG).exists() else [])]
    if missing := [file for file in files if not file.is_file()]:
        raise ShapelineError(f"{missing[0]}: there is no such file; give the path of a configuration")
    check_files(files)
    return files


def _run(parsed: argparse.Namespace) -> NoReturn:
    """Become Snakemake, which loads the profile in profiles/default beside the Snakefile itself."""
    folder, named = find_clone(), _find_configfiles(parsed)
    if parsed.cores != "all" and not re.fullmatch("0*[1-9][0-9]*", parsed.cores):
        raise ShapelineError(f"--cores: '{parsed.cores}' is no number of cores; give a number from 1, or all")
    _check_options(parsed.options)
    words = ["snakemake", *parsed.targets, "--cores", parsed.cores, *parsed.options]
    if folder is None:  # the installed workflow makes its results here
        folder, installed = Path.cwd(), find_root()
        words += ["--snakefile", str(installed / "Snakefile")]
        if not named:
            print(f"no {CONFIG} in this folder: running the experiments of Shapeline's own config.yaml", flush=True)
        named = [installed / "config.yaml", *named]
    words += ["--dry-run"] if parsed.dry_run else []
    words += ["--configfile", *map(str, named)] if named else []
    print(f"cd {shlex.quote(str(folder))} && {shlex.join(words)}", flush=True)
    environment = os.environ | _find_cache(folder)
    os.chdir(folder)
    # As this process, so that Ctrl-C and SIGTERM reach Snakemake, which ends its jobs and removes its lock.
    os.execve(sys.executable, [sys.executable, "-m", *words], environment)


def _check_options(options: list[str]) -> None:
    """Raise ShapelineError for options that this release of Snakemake refuses below hundreds of lines of its help."""
    if not options:
        return
    import snakemake.cli

    output = io.StringIO()
    try:
        with contextlib.redirect_stderr(output):
            snakemake.cli.get_argument_parser().parse_args(options)
    except SystemExit as ended:
        if ended.code:
            problem = output.getvalue().rpartition("error: ")[2].strip()
            raise ShapelineError(
                f"run: Snakemake {snakemake.__version__}: {problem}; its options: snakemake --help"
            ) from None
        raise


def _find_cache(folder: Path) -> dict[str, str]:
    """Return the variable of another folder of caches where the user's, which Snakemake needs, cannot be written."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")).absolute()
    existing = next(path for path in (cache / "snakemake", cache, *cache.parents) if path.exists())
    if os.access(existing, os.W_OK):
        return {}
    print(f"{existing}: cannot be written; the caches of this run are in .snakemake", file=sys.stderr)
    return {"XDG_CACHE_HOME": str(folder / ".snakemake/cache")}


def _load(parsed: argparse.Namespace) -> Config:
    """Return the configuration of a run of this command line, and make its folder the working directory."""
    from snakemake.utils import update_config  # as Snakemake merges files

    named, folder = _find_configfiles(parsed), find_clone()
    os.chdir(folder or Path.cwd())
    raw: dict = {}
    for file in [(folder or find_root()) / "config.yaml", *named]:
        update_config(raw, yaml.safe_load(file.read_text(encoding="utf-8")) or {})
    return runs.add_available_experiments(load(raw, named))


def _run_doctor(parsed: argparse.Namespace) -> int:
    from shapeline.workflow import doctor

    report, problems = doctor.report(_load(parsed))
    print(report)
    if problems:
        print(f"{len(problems)} problem(s) prevent the run:", *problems, sep="\n", file=sys.stderr)
        return 1
    print("No problems found: the run can start.")
    return 0


def _prune(parsed: argparse.Namespace) -> int:
    config = _load(parsed)
    print(describe_removal(config))
    if parsed.dry_run:
        return 0
    if any(Path(".snakemake/locks").glob("*")):
        raise ShapelineError(
            "prune: a run works in this folder, or one was killed; wait for its end, or run: snakemake --unlock"
        )
    files = find_stale(config)
    freed = remove_files(files, config.results)
    print(f"removed {len(files)} file(s), {format_bytes(freed)}")
    return 0


def _export(parsed: argparse.Namespace) -> int:
    exporting = importlib.import_module("shapeline.report.exporting")  # jobs do not depend on reports
    folder = (parsed.folder or Path(f"{parsed.experiment}_export")).resolve()
    results = _load(parsed).results  # in whose working directory the notebook runs
    executed = exporting.read_executed_notebook(results, parsed.experiment)
    written = exporting.export_report(executed, folder, find_root() / "notebooks")
    print(f"Wrote {len(written)} files to {folder}")
    return 0


def _open(parsed: argparse.Namespace) -> int:
    page = (find_clone() or Path.cwd()) / "results" / "reports" / "index.html"
    if not page.is_file():
        raise ShapelineError(f"{page}: there is no such file; create it by: shapeline run")
    print(page)
    webbrowser.open(page.as_uri())
    return 0


# Files that the workflow makes, below the results folder. Nothing else there is ever touched, nor is what lies a
# level deeper: `scale: smoke` and the smoke test have folders of their own in results/smoke.
MADE_FILES = re.compile(
    r"models/[\w@]+/[\w.-]+|reports/\w+\.(html|ipynb)|reports/\w+_files/[\w.-]+"
    r"|accuracy/errors\.parquet|\w+/(instances|scores/[\w@]+/\d+-of-\d+|metrics/\w+(/[\w@]+)?)\.parquet"
    r"|\w+/values/\w+/[\w.-]+"  # of games, and of earlier versions
)
ROW_TABLE = re.compile(r"\.rows/\w+/([0-9a-f]{32})/[\w.-]+")
PARTIAL = re.compile(r"\.(.+?)(\.\d+){1,2}\.tmp")  # files.atomic: what a killed job left, as none runs then


def find_stale(config: Config) -> list[str]:
    """Return score shards, metric files, models, reports and stored rows that no job of the configuration creates."""
    root = Path(config.results)
    named = {os.path.relpath(path, root) for path in jobs.list_outputs(config)} | {"reports/index.ipynb"}
    named |= {f"models/{model}/card.json" for model in config.models}
    keys = _list_keys(config)
    stale_files = []
    for folder, _, files in os.walk(root):  # links to folders are not followed
        for file in files:
            partial = PARTIAL.fullmatch(file)
            path = Path(folder, file)
            name = path.relative_to(root).with_name(partial[1] if partial else file).as_posix()
            if row := ROW_TABLE.fullmatch(name):
                is_stale = keys is not None and row[1] not in keys
            else:
                is_stale = bool(MADE_FILES.fullmatch(name)) and _find_origin(name) not in named
            if is_stale or (partial and (row or MADE_FILES.fullmatch(name))):
                stale_files.append(str(path))
    return sorted(stale_files)


def describe_removal(config: Config) -> str:
    """Return what `remove_files` would remove: a line per folder with its number of files and bytes, after the sum."""
    files = find_stale(config)
    folders = defaultdict(list)
    for file in files:
        folders[os.path.dirname(file)].append(os.lstat(file).st_size)
    total = f"{len(files)} file(s), {format_bytes(sum(map(sum, folders.values())))}"
    lines = [f"  {folder}: {len(sizes)} file(s), {format_bytes(sum(sizes))}" for folder, sizes in folders.items()]
    return "\n".join([f"{config.results} has {total} that the configuration does not name", *lines])


def remove_files(files: Iterable[str], results: str) -> int:
    """Remove files of the results folder and folders left empty, not what links lead to elsewhere; return the bytes."""
    root, freed = Path(results).resolve(), 0
    for file in map(Path, files):
        folder = file.parent.resolve()
        if not folder.is_relative_to(root):
            continue
        freed += file.lstat().st_size
        file.unlink()
        while folder != root and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent
    return freed


def _find_origin(name: str) -> str:
    """Return the file that stands for this one among the outputs: the card for a model's, the notebook for a page."""
    if name.startswith("models/"):
        return f"{os.path.dirname(name)}/card.json"
    if beside := re.match(r"(reports/\w+)_files/", name):
        return f"{beside[1]}.ipynb"
    return str(Path(name).with_suffix(".ipynb")) if name.startswith("reports/") else name


def _list_keys(config: Config) -> set[str] | None:
    """Return keys of row tables that the configuration's files name; None while some files are missing."""
    files = [path for path in jobs.list_outputs(config) if re.search(r"/scores/|/metrics/measured", path)]
    run = tuple(f"{config.results}/{name}/" for name in config.run)
    if not all(os.path.exists(file) for file in files if file.startswith(run)):
        return None
    from shapeline import scores  # pandas: only here

    return {key for file in filter(os.path.exists, files) for key in scores.metadata(file).get("rows", ())}


if __name__ == "__main__":
    sys.exit(main())
