"""How near the measures without a model come to the machine's own matrix product, and what the paper's sizes take.

    OMP_NUM_THREADS=2 python benchmarks/influence.py [--scores] [--device cuda]

MIM and Parzen need two products, 4 p m n operations; "product" is those two products of the same numbers and precision
and nothing else. All three take turns, so that a machine that others use too slows them alike; what is reported is the
median of the turns' ratios with the 10th and 90th percentile. --scores adds 8,000 points against 398,684 records of 14
columns (minutes), with the most memory the process held. Writes influence.json.
"""

import argparse
import json
import os
import platform
import resource
import time
import warnings
from pathlib import Path

import numpy as np

from shapeline import influence
from shapeline.influence.distances import open_space

ROWS, FEATURES, POINTS = 12_156, 2_304, 100  # the paper's faces
RECORDS, COLUMNS, RECORD_POINTS = 398_684, 14, 8_000  # and its list of scores


def main() -> None:
    arguments = parse()
    random = np.random.default_rng(0)
    X = random.random((ROWS, FEATURES), dtype=np.float32)
    labels = random.integers(0, 2, ROWS)
    facts = {
        "device": arguments.device,
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "processor": platform.processor() or platform.machine(),
        "numpy": np.__version__,
        "rates": rates(X, labels, arguments),
        "data_lime": fits(X, labels, arguments.device),
    }
    del X
    if arguments.scores:
        facts["records"] = records(arguments.device)
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "influence.json").write_text(json.dumps(facts, indent=1) + "\n")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--scores", action="store_true", help="also 8,000 points against 398,684 records")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--output", type=Path, default=Path("results/benchmarks"))
    return parser.parse_args()


def rates(X: np.ndarray, labels: np.ndarray, arguments) -> dict:
    """Measure the share of the product's rate by measure and precision."""
    measured = {}
    here = open_space("benchmark", arguments.device)
    for dtype in ("float32", "float64"):
        data = X.astype(dtype)
        points = data[:POINTS]
        on_device = here.array(data)
        x, weights = on_device[:POINTS], here.array(np.random.default_rng(1).random((POINTS, ROWS)).astype(dtype))
        settings = {"dtype": dtype, "device": arguments.device}

        def product(x=x, y=on_device, weights=weights):
            here.host((x @ y.T)[:1, :1]), here.host((weights @ y)[:1, :1])

        runs = {
            "product": product,
            "mim": lambda d=data, p=points, s=settings: influence.mim(p, d, labels, **s),
            "parzen": lambda d=data, p=points, s=settings: influence.parzen(p, d, labels, 4.7, **s),
        }
        seconds = take_turns(runs, arguments.repetitions)
        rate = 4 * POINTS * ROWS * FEATURES / np.median(seconds["product"])
        print(f"{dtype} product {rate / 1e9:8.1f} billion operations a second")
        for name in ("mim", "parzen"):
            share = np.percentile(seconds["product"] / seconds[name], [10, 50, 90])
            vector = np.median(seconds[name]) / POINTS
            measured[f"{name} {dtype}"] = {
                "share_of_product": rounded(share[1]),
                "low": rounded(share[0]),
                "high": rounded(share[2]),
                "seconds_a_vector": rounded(vector),
                "product_operations_a_second": rounded(rate),
            }
            print(
                f"{dtype} {name:8s} {share[1]:.2f} of the product's rate ({share[0]:.2f} to {share[2]:.2f}), ", end=""
            )
            print(f"{1000 * vector:.2f} ms a vector")
    return measured


def take_turns(runs: dict, repetitions: int) -> dict[str, np.ndarray]:
    seconds = {name: np.zeros(repetitions) for name in runs}
    for run in runs.values():
        run()
    for turn in range(repetitions):
        for name, run in runs.items():
            seconds[name][turn] = timed(run)
    return seconds


def timed(run) -> float:
    time.sleep(0.05)  # threads of the run before wait actively for a while
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def fits(X: np.ndarray, labels: np.ndarray, device: str) -> dict:
    """Seconds a vector of data-LIME: the paper's width, at which random data carry little, and one that all carry."""
    measured, count = {}, 4
    for rho in (3.0, 20.0):
        processor = time.process_time()
        seconds = timed(lambda r=rho: influence.data_lime(X[:count], X, labels, r, device=device)) / count
        processor = (time.process_time() - processor) / count
        measured[f"rho {rho:g}"] = {"seconds_a_vector": rounded(seconds), "processor_seconds": rounded(processor)}
        print(f"data-LIME, rho = {rho:g}: {seconds:.2f} s a vector ({processor:.2f} s of processor time)")
    return measured


def records(device: str) -> dict:
    """Measure seconds and memory of regression with a categorical column on integer and real columns."""
    random = np.random.default_rng(2)
    X = random.random((RECORDS, COLUMNS))
    X[:, :10] = random.poisson(0.7, (RECORDS, 10))
    labels = random.integers(0, 501, RECORDS)
    points = X[random.choice(RECORDS, RECORD_POINTS, replace=False)]
    measured = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, measure, settings in (("mim", influence.mim, {}), ("parzen", influence.parzen, {"sigma": 1.0})):
            processor = time.process_time()
            run = timed(
                lambda m=measure, s=settings: m(
                    points, X, labels, regression=True, categorical=(9,), device=device, **s
                )
            )
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            processor = time.process_time() - processor
            measured[name] = {
                "seconds": rounded(run),
                "processor_seconds": rounded(processor),
                "most_memory_gib": rounded(memory),
            }
            print(f"{name}: {RECORD_POINTS:,} points against {RECORDS:,} records: {run:.0f} s ", end="")
            print(f"({processor:.0f} s of processor time), {memory:.1f} GiB")
    return measured


def rounded(number: float) -> float:
    return float(f"{number:.4g}")


if __name__ == "__main__":
    main()
