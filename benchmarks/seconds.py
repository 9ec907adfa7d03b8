"""Whether seconds mean the same in two runs: python -m benchmarks.seconds [EXPERIMENT ...]; else digits and cancer.

Makes the scores of each experiment of config.yaml in two results folders below the checkout, one job at a time, then
each method's again in TURNS, one folder right after the other: the machine's own speed comes and goes by more than what
is sought, and so both have the same of it. A method's seconds are the median over instances, of the fastest turn.
Nothing else should run. Prints a line per method with the backend of either run, and exits with 1 where the ratio of
the two leaves 1 by more than 15 %. Before them stands by how much a fixed loop varies. Of digits, whose exact values
are most of the work, it takes 40 instances and one training.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
import yaml

from shapeline import scores

MOST, TURNS = 1.15, 3
SMALLER = {"digits": {"training_seeds": 1, "instances": {"count": 40}}}


def make(experiment: str, folder: Path, *targets: str) -> None:
    """Run Snakemake for files of an experiment in this results folder."""
    chosen = {"run": [experiment], "results": folder.name, "experiments": {experiment: SMALLER.get(experiment, {})}}
    (folder / "chosen.yaml").write_text(yaml.safe_dump(chosen))
    args = [*targets, "--cores", "1", "--configfile", str(folder / "chosen.yaml"), "--quiet", "all"]
    done = subprocess.run([sys.executable, "-m", "snakemake", *args], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{experiment}: snakemake failed: {done.stderr.strip()[-500:]}")


def repeat(experiment: str, folder: Path, entry: str) -> tuple[float, str]:
    """Return the median seconds per instance of a method whose scores are computed again, and the backend."""
    files = [str(file) for file in (folder / experiment / "scores" / entry).iterdir()]
    shutil.rmtree(folder / experiment / "scores" / entry)
    make(experiment, folder, *files)
    backend = scores.metadata(files[0])["form"] or {"name": "none", "batch": 0}
    return scores.read(Path(files[0]).parent)["seconds"].median(), f"{backend['name']} by {backend['batch']}"


def machine(times: int = 30) -> float:
    """Return the slowest over the fastest time of a fixed loop in half a minute, in processor seconds."""
    taken = []
    for _ in range(times):
        began = time.process_time()
        sum(range(3_000_000))
        taken.append(time.process_time() - began)
        time.sleep(1)
    return max(taken) / min(taken)


def compare(experiment: str) -> dict[str, float]:
    """Return the ratio of the two runs' seconds of each method, and print it with both."""
    folders = [Path(tempfile.mkdtemp(prefix="results_seconds_", dir=".")) for _ in range(2)]
    ratios = {}
    try:
        for folder in folders:
            make(experiment, folder, "scores")
        for entry in sorted(path.name for path in (folders[0] / experiment / "scores").iterdir()):
            turns = [[repeat(experiment, folder, entry) for folder in folders] for _ in range(TURNS)]
            first, second = (min(turn[side] for turn in turns) for side in (0, 1))
            ratios[f"{experiment} {entry}"] = ratio = second[0] / first[0]
            columns = " ".join(f"{1e3 * seconds:9.3f} ms {backend:20}" for seconds, backend in (first, second))
            print(f"{experiment:10} {entry:28} {columns} {ratio:6.2f}", flush=True)
        return ratios
    finally:
        for folder in folders:
            shutil.rmtree(folder)


def main() -> int:
    varies = machine()
    print(f"a fixed loop varies by {varies:.2f} here")
    ratios = {}
    for experiment in sys.argv[1:] or ["digits", "cancer"]:
        ratios |= compare(experiment)
    apart = {name: ratio for name, ratio in ratios.items() if not 1 / MOST <= ratio <= MOST}
    median = pd.Series(ratios).median()
    print(json.dumps({"methods": len(ratios), "median ratio": median, "machine": varies, "apart": apart}))
    return 1 if apart else 0


if __name__ == "__main__":
    sys.exit(main())
