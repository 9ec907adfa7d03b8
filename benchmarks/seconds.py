"""Whether seconds mean the same in two runs: python -m benchmarks.seconds [EXPERIMENT ...]; else digits and cancer.

Makes the scores of each experiment of config.yaml in two results folders below the checkout, one job at a time, in
TURNS: the one, the other, the one, the other. A label's seconds are the median over instances, of the fastest turn, for
the machine's own speed comes and goes by more than what is sought. Nothing else should run on it. Prints a line a
label, and exits with 1 where the ratio of the two folders leaves 1 by more than 15 %. Before them stands by how much a
fixed loop varies. Of digits, whose exact values are most of the work, it takes 40 instances and one training.
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
SMALLER = {"digits": {"seeds": 1, "instances": {"count": 40}}}


def medians(experiment: str, folder: Path) -> pd.Series:
    """Seconds an instance of each label, the median over instances; the scores are made anew, data and model once."""
    made = folder / experiment / "scores"
    shutil.rmtree(made, ignore_errors=True)
    chosen = {"run": [experiment], "results": folder.name, "experiments": {experiment: SMALLER.get(experiment, {})}}
    (folder / "chosen.yaml").write_text(yaml.safe_dump(chosen))
    asked = ["scores", "--cores", "1", "--configfile", str(folder / "chosen.yaml"), "--quiet", "all"]
    subprocess.run([sys.executable, "-m", "snakemake", *asked], check=True, capture_output=True)
    return pd.Series({label.name: scores.read(label)["seconds"].median() for label in made.iterdir()}).sort_index()


def machine(times: int = 30) -> float:
    """Slowest by fastest of a fixed loop over half a minute, in processor seconds."""
    taken = []
    for _ in range(times):
        began = time.process_time()
        sum(range(3_000_000))
        taken.append(time.process_time() - began)
        time.sleep(1)
    return max(taken) / min(taken)


def fastest(experiment: str) -> list[pd.Series]:
    """The seconds of `medians` in either folder, of the fastest turn."""
    folders = [Path(tempfile.mkdtemp(prefix="results_seconds_", dir=".")) for _ in range(2)]
    try:
        turns = [[medians(experiment, folder) for folder in folders] for _ in range(TURNS)]
        return [pd.concat(side, axis=1).min(axis=1) for side in zip(*turns, strict=True)]
    finally:
        for folder in folders:
            shutil.rmtree(folder)


def main() -> int:
    ratios, varies = {}, machine()
    print(f"a fixed loop varies by {varies:.2f} here")
    for experiment in sys.argv[1:] or ["digits", "cancer"]:
        first, second = fastest(experiment)
        for label, ratio in (second / first).items():
            ratios[f"{experiment} {label}"] = ratio
            print(f"{experiment:10} {label:28} {1e3 * first[label]:9.3f} ms {1e3 * second[label]:9.3f} ms {ratio:6.2f}")
    apart = {name: ratio for name, ratio in ratios.items() if not 1 / MOST <= ratio <= MOST}
    median = pd.Series(ratios).median()
    print(json.dumps({"labels": len(ratios), "median ratio": median, "machine": varies, "apart": apart}))
    return 1 if apart else 0


if __name__ == "__main__":
    sys.exit(main())
