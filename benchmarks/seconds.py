"""Whether seconds mean the same in two runs: python -m benchmarks.seconds [EXPERIMENT ...]; else digits and cancer.

Makes the scores of each experiment of config.yaml twice, one job at a time, each in a results folder of its own below
the checkout, and compares the median over instances of the seconds that the score files hold. Nothing else should run
on the machine. Prints a line a label, and exits with 1 where a ratio leaves 1 by more than 15 %. Before them stands by
how much a fixed loop varies: a machine where that is more cannot show it.
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

MOST = 1.15


def medians(experiment: str) -> pd.Series:
    """Seconds an instance of each label, the median over instances, of a run from the start."""
    folder = Path(tempfile.mkdtemp(prefix="results_seconds_", dir="."))
    try:
        chosen = folder / "chosen.yaml"
        chosen.write_text(yaml.safe_dump({"run": [experiment], "results": folder.name}))
        asked = ["scores", "--cores", "1", "--configfile", str(chosen), "--quiet", "all"]
        subprocess.run([sys.executable, "-m", "snakemake", *asked], check=True)
        found = (folder / experiment / "scores").iterdir()
        return pd.Series({label.name: scores.read(label)["seconds"].median() for label in found}).sort_index()
    finally:
        shutil.rmtree(folder)


def machine(times: int = 30) -> float:
    """Slowest by fastest of a fixed loop over half a minute, in processor seconds."""
    taken = []
    for _ in range(times):
        began = time.process_time()
        sum(range(3_000_000))
        taken.append(time.process_time() - began)
        time.sleep(1)
    return max(taken) / min(taken)


def main() -> int:
    ratios, varies = {}, machine()
    print(f"a fixed loop varies by {varies:.2f} here")
    for experiment in sys.argv[1:] or ["digits", "cancer"]:
        first, second = medians(experiment), medians(experiment)
        for label, ratio in (second / first).items():
            ratios[f"{experiment} {label}"] = ratio
            print(f"{experiment:10} {label:28} {1e3 * first[label]:9.3f} ms {1e3 * second[label]:9.3f} ms {ratio:6.2f}")
    apart = {name: ratio for name, ratio in ratios.items() if not 1 / MOST <= ratio <= MOST}
    print(
        json.dumps(
            {"labels": len(ratios), "median ratio": pd.Series(ratios).median(), "machine": varies, "apart": apart}
        )
    )
    return 1 if apart else 0


if __name__ == "__main__":
    sys.exit(main())
