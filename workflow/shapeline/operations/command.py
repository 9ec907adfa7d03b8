"""The command `shapeline`: init, run, doctor and open, each a thin call of Snakemake that is printed before it runs."""

import argparse
import contextlib
import shlex
import subprocess
import sys
import webbrowser
from pathlib import Path

from shapeline import __version__
from shapeline.config.yaml_files import check_files
from shapeline.errors import ShapelineError
from shapeline.operations import starting
from shapeline.plan.tracked import workflow_root

CONFIG = "shapeline.yaml"  # what init writes, and run and doctor read where it is there


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit status. A mistake is one line."""
    asked = _parser().parse_args(arguments)
    try:
        return {"init": _init, "open": _open}.get(asked.action, _snakemake)(asked)
    except ShapelineError as error:
        print(f"shapeline: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="shapeline", description="Which attribution to trust, and what it costs.")
    parser.add_argument("--version", action="version", version=f"shapeline {__version__}")
    actions = parser.add_subparsers(dest="action", required=True)
    init = actions.add_parser("init", help="write a small configuration for your data, by looking at it")
    init.add_argument(
        "path",
        type=Path,
        help="a CSV or Parquet table, a CSV of texts, a folder of pictures by class, or a model beside one of these",
    )
    init.add_argument("--target", help="the column of classes or numbers; by default guessed, and told")
    init.add_argument(
        "--model",
        help="a file of a model, a folder of transformers, or path/to/file.py:function; else trained",
    )
    run = actions.add_parser("run", help="make the reports")
    run.add_argument("targets", nargs="*", help="experiments or steps; by default everything under run:")
    doctor = actions.add_parser("doctor", help="tell what is there and what a run needs")
    for one in (run, doctor):
        one.add_argument("--configfile", action="append", type=Path, help=f"by default {CONFIG}, where it is there")
        one.add_argument("--cores", default="all")
    run.add_argument("--dry-run", "-n", action="store_true", help="only say what would run")
    actions.add_parser("open", help="show the reports in a browser")
    return parser


def clone() -> Path | None:
    """The folder of a workflow at or above this one, if there is one: a clone, or what snakedeploy has laid."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "Snakefile").is_file() and (folder / "workflow").is_dir():
            return folder
        if (folder / "workflow" / "Snakefile").is_file():
            return folder
    return None


def _init(asked: argparse.Namespace) -> int:
    file = Path(CONFIG)
    if file.exists():
        raise ShapelineError(f"{file} is there; remove or rename it first")
    text = starting.configuration(asked.path, asked.target, asked.model)
    file.write_text(text, encoding="utf-8")
    first = "save a pipeline for its texts or missing cells (docs/own_data.md), name it there" * (
        starting.PIPELINE in text
    )
    with contextlib.suppress(BrokenPipeError):  # who reads no further has the file
        print(
            text,
            f"\nWrote {file}; {first or 'read it'}, then: shapeline run --dry-run, and shapeline run",
            sep="",
            flush=True,
        )
    return 0


def _snakemake(asked: argparse.Namespace) -> int:
    """The profile, in profiles/default beside the Snakefile, is loaded by Snakemake itself."""
    folder, named = clone(), asked.configfile or ([Path(CONFIG)] if Path(CONFIG).exists() else [])
    check_files(named)  # before Snakemake's reader
    words = ["snakemake", *(getattr(asked, "targets", None) or (["doctor"] if asked.action == "doctor" else []))]
    words += ["--cores", asked.cores]
    if folder is None:  # the installed workflow makes its results here
        folder, installed = Path.cwd(), workflow_root()
        words += ["--snakefile", str(installed / "Snakefile")]
        named = [installed / "config.yaml", *named]
    words += ["--dry-run"] if getattr(asked, "dry_run", False) else []
    words += ["--configfile", *(str(file.resolve()) for file in named)] if named else []
    print(f"cd {shlex.quote(str(folder))} && {shlex.join(words)}", flush=True)
    return subprocess.run([sys.executable, "-m", *words], cwd=folder, check=False).returncode


def _open(asked: argparse.Namespace) -> int:
    page = (clone() or Path.cwd()) / "results" / "reports" / "index.html"
    if not page.is_file():
        raise ShapelineError(f"{page} is not there; make it by: shapeline run")
    print(page)
    webbrowser.open(page.as_uri())
    return 0


if __name__ == "__main__":
    sys.exit(main())
