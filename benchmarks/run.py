"""What the package costs, in one run and one table: `make benchmark`, or python -m benchmarks.run [--quick].

Parts: of every model (cases.py) the engine and each method against the model alone, and the peers against ours; a
user's own models of tables (tables.py); the start-up and memory of fresh processes; the growth of cost with d,
instances and budget. Whatever is compared takes turns in one process, which has one framework. Writes table.csv,
table.json, table.md, growth.csv and three figures, those of --quick into the folder quick/ beside them.
"""

import argparse
import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import cases, methods, peers, scaling, tables
from benchmarks.turns import TURNS, Times, spread, take_turns, times_as_fast
from shapeline.memory import keep_freed_memory

PARTS = ("tables", "memory", "start-up", "growth")  # beside the cases
FRAMEWORKS = ("torch", "tensorflow")
ENGINE_GOAL, FLAT = 0.9, 1.1  # of the raw rate; of the memory of a tenth of the evaluations
EVALUATIONS = (1_000, 30_000, 300_000)  # of which the second fills the buffers of the engine
PACKAGES = ("torch", "tensorflow", "numpy", "scipy", "captum", "shap", "lime")
COLUMNS = (
    *("part", "case", "what", "version", "instances", "turns", "evaluations", "per_second"),
    *("seconds", "seconds_low", "seconds_high", "times_raw", "times_raw_low", "times_raw_high"),
    *("ours_times", "ours_times_low", "ours_times_high", "exponent", "exponent_low", "exponent_high"),
    *("peak_mib", "goal", "met", "note"),
)
# What a library's call raises that fails; the reason becomes a row.
FAILURES = (ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, OSError, RuntimeError)
FAILURES += (MemoryError, TypeError, ValueError)


def main() -> None:
    arguments = parse()
    if arguments.worker:
        keep_freed_memory()  # as every job does
        name = arguments.worker
        alone = {"growth": scaling.measure, "tables": tables.measure}
        measured = alone[name](arguments.quick) if name in alone else run_case(name, arguments.quick)
        print(json.dumps(measured))
        return
    names = [*(cases.QUICK if arguments.quick else cases.CASES), *PARTS]
    for name in arguments.only or ():
        if name not in names:
            sys.exit(f"--only: there is no '{name}'; choose among: {', '.join(names)}")
    began, load = time.time(), os.getloadavg()[0]
    rows, left_out, points = [], {}, []
    for name in arguments.only or names:
        print(f"{time.time() - began:5.0f} s  {name}", flush=True)
        if name == "growth":
            points = worker(name, arguments)
            rows += fit_exponents(pd.DataFrame(points))
        elif name == "tables":
            rows += worker(name, arguments)
        elif name == "memory":
            rows += memory(arguments)
        elif name == "start-up":
            rows += start_up(arguments)
        else:
            more = worker(name, arguments)
            rows += more["rows"]
            left_out[name] = more["left_out"]
    seconds = time.time() - began
    facts = {
        **{"processors": len(os.sched_getaffinity(0)), "threads": arguments.threads, "machine": platform.machine()},
        **{"system": platform.system(), "python": platform.python_version()},
        "versions": {package: importlib.metadata.version(package) for package in PACKAGES if is_installed(package)},
        **{"load_before": round(load, 2), "seconds": round(seconds), "quick": arguments.quick},
    }
    folder = arguments.output / "quick" if arguments.quick else arguments.output
    write(folder, pd.DataFrame(rows, columns=COLUMNS), pd.DataFrame(points), facts, left_out)
    print(f"{seconds:5.0f} s  {folder}/table.md")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one small model, few points and turns: does it work?")
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"of {', '.join([*cases.CASES, *PARTS])}")
    threads = int(os.environ.get("OMP_NUM_THREADS", len(os.sched_getaffinity(0))))
    parser.add_argument("--threads", type=int, default=threads, help=f"of the numeric libraries ({threads})")
    parser.add_argument("--output", type=Path, default=Path("results/benchmark"))
    parser.add_argument("--worker", metavar="NAME", help=argparse.SUPPRESS)  # measures one, in its own process
    return parser.parse_args()


def is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


# --- processes ----------------------------------------------------------------------------------------------------


def spawn(module: str, words: list[str], threads: int) -> str:
    """Return the last line that `python -m module words` prints; its errors are passed on."""
    count = str(threads)
    environment = {**os.environ, "OMP_NUM_THREADS": count, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    environment |= {"TF_NUM_INTRAOP_THREADS": count, "TF_NUM_INTEROP_THREADS": count}
    command = [sys.executable, "-W", "ignore", "-m", module, *words]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return done.stdout.splitlines()[-1]


def worker(name: str, arguments: argparse.Namespace):
    words = ["--worker", name, *(["--quick"] if arguments.quick else [])]
    return json.loads(spawn("benchmarks.run", words, arguments.threads))


def memory(arguments: argparse.Namespace) -> list[dict]:
    """Return rows of peak memory; with full buffers, its growth beyond masks and values is compared with the goal."""
    rows = []
    for framework in FRAMEWORKS[: 1 if arguments.quick else None]:
        own = []
        for evaluations in EVALUATIONS[: 1 if arguments.quick else None]:
            words = ["memory", framework, str(evaluations)]
            used = json.loads(spawn("benchmarks.processes", words, arguments.threads))
            own.append(used["most"] - used["asked"])
            row = {"part": "memory", "case": f"mnist_cnn {framework}", "what": "engine", "evaluations": evaluations}
            row |= {"peak_mib": used["most"], "note": f"{used['asked']:.1f} MiB of it masks and values"}
            if len(own) > 2:
                row["note"] += f"; the rest is {own[-1] / own[1]:.2f} times that of {EVALUATIONS[1]:,} evaluations"
                row |= {"goal": FLAT, "met": bool(own[-1] <= FLAT * own[1])}
            rows.append(row)
    return rows


def start_up(arguments: argparse.Namespace) -> list[dict]:
    """Return rows of the seconds of a new process until it has imported, loaded a model, and calibrated the engine."""
    turns = 1 if arguments.quick else TURNS
    with tempfile.TemporaryDirectory() as folder:
        weights = f"{folder}/weights.safetensors"
        save = "from shapeline import models; import sys; models.save(models.build('mnist_cnn'), sys.argv[1])"
        subprocess.run([sys.executable, "-c", save, weights], check=True)
        steps: dict[str, list[list[float]]] = {framework: [] for framework in FRAMEWORKS}
        for _ in range(turns):
            for framework in FRAMEWORKS:
                began = time.time()
                took = json.loads(spawn("benchmarks.processes", ["start-up", framework, weights], arguments.threads))
                times = [began, *(took[key] for key in ("imported", "loaded", "calibrated"))]
                steps[framework].append([*np.diff(times), times[-1] - times[0]])
    return [
        {
            **{"part": "start-up", "case": f"mnist_cnn {framework}", "what": what, "turns": turns},
            **summarise("seconds", part),
        }
        for framework, seconds in steps.items()
        for what, part in zip(
            ("Python and imports", "load the model", "calibrate the engine", "all"), np.transpose(seconds), strict=True
        )
    ]


# --- one case -----------------------------------------------------------------------------------------------------


def run_case(name: str, quick: bool) -> dict:
    """Return the rows of a case, and the methods that do not fit it with the reason."""
    case, turns = (cases.QUICK if quick else cases.CASES)[name], 1 if quick else TURNS
    backend, raw = cases.raw(case)
    base = {"case": name}
    d, runs = case.features.d, {"raw": raw, "engine": case.engine_run(case.row_backend)}
    if case.backend.name == "windows":
        runs["engine, windows"] = case.engine_run(case.backend)
    times = take_turns(runs, turns)
    told_raw = {"turns": turns, "per_second": spread(times["raw"].rate)[0]}
    rows = [{**base, "part": "raw", "what": f"{backend.name}, {backend.batch} a call", **told_raw}]
    used = {"engine": case.row_backend, "engine, windows": case.backend}
    for what, timed in list(times.items())[1:]:
        rows.append({**base, "part": "engine", "what": what, **seconds(timed, case.engine_instances)})
        rows[-1] |= compare("times_raw", timed, times["raw"], ENGINE_GOAL)
        rows[-1]["note"] = f"{used[what].name}, {used[what].batch} a call" + (f"; d = {d}" if what == "engine" else "")

    fitting, left_out = methods.fitting(case)
    times = take_turns({"raw": raw, **fitting}, turns, warm=True)  # fitting ran each once
    for what in fitting:
        rows.append({**base, "part": "method", "what": what, **seconds(times[what], case.instances)})
        rows[-1] |= compare("times_raw", times[what], times["raw"])
    return {"rows": rows + (run_peers(case, name, raw, turns) if case.peers else []), "left_out": left_out}


def run_peers(case: cases.Case, name: str, raw, turns: int) -> list[dict]:
    """Return rows of the peers, each against ours in the same turns, or the reason why one is missing or fails."""
    rows, chosen, runs = {}, peers.choose_peers(case), {"raw": raw}
    ours = dataclasses.replace(case, instances=case.job or case.instances)
    for what, peer in chosen.items():
        rows[what] = {"part": "peer", "case": name, "what": what, "version": peers.version(peer), "goal": peer.goal}
        if rows[what]["version"] is None:
            rows[what] |= {"note": "not installed"}
            continue
        run = peers.run_of(peer, case)
        try:
            run()
        except FAILURES as error:
            rows[what] |= {"note": f"failed: {type(error).__name__}: {next(iter(str(error).splitlines()), '')}"}
            continue
        if peer.ours not in runs:
            runs[peer.ours] = methods.build_run(peer.ours, ours)
            runs[peer.ours]()
        runs[what] = run
    times = take_turns(runs, turns, warm=True)
    for what, peer in chosen.items():
        if what in times:
            rows[what] |= {"note": f"ours: {peer.ours}, {ours.instances} instances", **seconds(times[what], 1)}
            rows[what] |= compare("times_raw", times[what], times["raw"])
            rows[what] |= compare("ours_times", times[peer.ours], times[what], peer.goal)
    return list(rows.values())


def seconds(times: Times, instances: int) -> dict:
    """Return columns of seconds and evaluations per instance, and evaluations per second."""
    counted = {"instances": instances, "turns": int(np.isfinite(times.seconds).sum())}
    counted |= {"evaluations": times.evaluations / instances, "per_second": spread(times.rate)[0]}
    return {**counted, **summarise("seconds", times.seconds / instances)}


def compare(column: str, ours: Times, theirs: Times, goal: float | None = None) -> dict:
    """Return columns of the speed of `ours` relative to `theirs`, and whether a goal is met."""
    return as_bounds(column, times_as_fast(ours, theirs)) | judge_ratio(times_as_fast(ours, theirs)[0], goal)


def judge_ratio(ratio: float, goal: float | None) -> dict:
    return {} if goal is None else {"goal": goal, "met": bool(ratio >= goal)}


def summarise(column: str, numbers: np.ndarray) -> dict:
    return as_bounds(column, spread(numbers))


def as_bounds(column: str, numbers: tuple[float, float, float]) -> dict:
    return dict(zip((column, f"{column}_low", f"{column}_high"), numbers, strict=True))


# --- the table ----------------------------------------------------------------------------------------------------


def fit_exponents(points: pd.DataFrame) -> list[dict]:
    """Return rows of the powers with which the cost of each method grows."""
    points = points.assign(**{"design and read-out": points["design"] + points["read-out"]})
    rows = []
    for (axis, name), part in points.groupby(["axis", "method"], sort=False):
        for what in ("total", "design and read-out"):
            if (part[what] > 0).all():
                slope = as_bounds("exponent", scaling.exponent(part["x"].to_numpy(), part[what].to_numpy()))
                note = f"of {what} in {axis}, {part['x'].min():,} to {part['x'].max():,}"
                counted = {"turns": int(part["turns"].min()), "note": note}
                rows.append({"part": "growth", "case": "mlp", "what": name, **slope, **counted})
    return rows


def write(folder: Path, table: pd.DataFrame, points: pd.DataFrame, facts: dict, left_out: dict) -> None:
    from benchmarks import figures

    folder.mkdir(parents=True, exist_ok=True)
    table.to_csv(folder / "table.csv", index=False, float_format="%.5g")
    records = [{key: value for key, value in row.items() if not is_missing(value)} for row in table.to_dict("records")]
    content = {"facts": facts, "rows": records, "left_out": left_out}
    (folder / "table.json").write_text(json.dumps(content, indent=1) + "\n")
    (folder / "table.md").write_text(format_page(table, facts))
    drawings = {}
    if table["times_raw"].notna().any():
        drawings["near_raw"] = figures.near_raw(table)
    if table["ours_times"].notna().any():
        drawings["ahead_of_peers"] = figures.ahead_of_peers(table)
    if len(points):
        points.to_csv(folder / "growth.csv", index=False, float_format="%.5g")
        drawings["growth"] = figures.growth(points)
    for name, drawing in drawings.items():
        drawing.savefig(folder / f"{name}.svg", metadata={"Date": None})


def is_missing(cell) -> bool:
    return cell is None or (isinstance(cell, float) and np.isnan(cell))


HEADS = {
    "raw": ("case", "what", "per_second"),
    "engine": ("case", "what", "instances", "evaluations", "per_second", "times_raw", "met", "note"),
    "method": ("case", "what", "instances", "evaluations", "seconds", "times_raw"),
    "peer": ("case", "what", "version", "evaluations", "seconds", "times_raw", "ours_times", "goal", "met", "note"),
    "start-up": ("case", "what", "seconds"),
    "memory": ("case", "what", "evaluations", "peak_mib", "met", "note"),
    "growth": ("what", "exponent", "note"),
}


def format_page(table: pd.DataFrame, facts: dict) -> str:
    """Return the table in Markdown by parts; intervals are 10 and 90 % quantiles of the turns, of exponents 95 %."""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    lines = [
        f"{facts['processors']} processors, {facts['threads']} threads, {facts['machine']}; {versions}; "
        f"load before: {facts['load_before']} (quiet: near 0); {facts['seconds']} s."
    ]
    for part, columns in HEADS.items():
        rows = table[table["part"] == part]
        if rows.empty:
            continue
        lines += ["", f"## {part}", "", f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
        lines += [f"| {' | '.join(cell_text(row, column) for column in columns)} |" for row in rows.to_dict("records")]
    return "\n".join(lines) + "\n"


def cell_text(row: dict, column: str) -> str:
    value = row[column]
    if is_missing(value):
        return ""
    if column == "met":
        return "yes" if value else "**no**"
    if isinstance(value, str):
        return value
    if column in ("instances", "evaluations", "per_second", "peak_mib"):
        return f"{value:,.0f}"
    if f"{column}_low" in row and not is_missing(row[f"{column}_low"]):
        return f"{value:.3g} ({row[f'{column}_low']:.3g} to {row[f'{column}_high']:.3g})"
    return f"{value:.3g}"


if __name__ == "__main__":
    main()
