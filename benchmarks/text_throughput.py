"""How fast masked documents are evaluated, beside the model's raw forward rate, in torch and in TensorFlow, in one run.

    OMP_NUM_THREADS=2 python benchmarks/text_throughput.py

WordCNN at the paper's size (5,000 words, documents of 400) on documents of 300 and of 100 random words, one document a
call. "raw" is the model alone in its fastest form and batch, again and again on one resident batch; "engine" is the
engine filling and running every masked document; the other rows are the shortcut over windows, a design each. All take
turns, so that a machine that others use too slows all of them alike, and what is reported is the median over the turns
of the ratio to raw. Each framework runs in a process of its own. Writes text_throughput.csv.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from shapeline import engine, features, models
from shapeline.designs import build
from shapeline.engine import Form
from shapeline.references import Reference

LENGTH, WORDS = 400, (300, 100)
BATCHES = (16, 64, 128, 256)
DESIGNS = {
    "runs of <= 4 words": {"method": "c_shapley_regression", "order": 4},
    "L-Shapley of order 1": {"method": "l_shapley", "order": 1},
    "occlusion": {"method": "occlusion"},
    "KernelSHAP, 4d": {"method": "kernel_shap"},
}
FRAMEWORKS = ("torch", "tensorflow")


def main() -> None:
    arguments = parse()
    if arguments.framework:
        print(json.dumps(measure(arguments.framework, arguments.threads, arguments.turns)))
        return
    rows = []
    for framework in FRAMEWORKS:
        command = [sys.executable, __file__, "--framework", framework]
        command += ["--threads", str(arguments.threads), "--turns", str(arguments.turns)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads)}
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
        rows += json.loads(done.stdout.splitlines()[-1])
    print(f"{'framework':11} {'words':>5} {'what':28} {'masks':>6} {'a second':>9} {'/ raw':>7}  difference")
    for row in rows:
        print(
            f"{row['framework']:11} {row['words']:>5} {row['what']:28} {row['masks']:>6} {row['per_second']:>9,} "
            f"{row['ratio']:>7}  {row['difference']}"
        )
    arguments.output.mkdir(parents=True, exist_ok=True)
    with open(arguments.output / "text_throughput.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--framework", choices=FRAMEWORKS, help="measure this one in this process and print JSON")
    parser.add_argument("--threads", type=int, default=int(os.environ.get("OMP_NUM_THREADS", 2)))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path("results/benchmarks"))
    return parser.parse_args()


def measure(framework: str, threads: int, turns: int) -> list[dict]:
    """Rows of the table, for both lengths of document."""
    set_threads(framework, threads)
    model = models.build("word_cnn", framework, classes=2)
    return [row for words in WORDS for row in one_length(model, framework, words, turns)]


def one_length(model, framework: str, words: int, turns: int) -> list[dict]:
    random = np.random.default_rng(words)
    x = np.zeros((1, LENGTH), np.int32)
    x[0, :words] = random.integers(2, 5000, words)
    reference, target = Reference(np.zeros((1, LENGTH), np.int32)), np.zeros(1, np.int64)
    of_words = features.build_for("word", {"input_shape": [LENGTH], "kind": "text"}, x[0])
    masks = {"dense random": random.random((4 * words, words)) < 0.5}
    for name, settings in DESIGNS.items():
        masks[name] = build.build(settings, (words,), budget=4).masks
    form, raw = fastest_raw(model, framework, engine.masked_rows(x, reference, max(BATCHES)))

    def values(these: np.ndarray, form: Form) -> np.ndarray:
        return engine.values(model, x, reference, these, of_words, targets=target, form=form)[0]

    runs = {f"raw ({form.name}, {form.batch} a batch)": raw}
    runs["engine"] = lambda: len(values(masks["dense random"][:384], form))
    for name, these in masks.items():
        runs[name] = lambda these=these: len(values(these, Form("windows")))
    rates = take_turns(runs, turns)
    reached = next(iter(rates.values()))
    rows = []
    for what, rate in rates.items():
        difference = ""
        if what in masks:
            some = masks[what][random.permutation(len(masks[what]))[:256]]
            difference = f"{np.abs(values(some, Form('windows')) - values(some, form)).max():.1e}"
        rows.append(
            {
                "framework": framework,
                "words": words,
                "what": what,
                "masks": len(masks[what]) if what in masks else "",
                "per_second": round(float(np.median(rate))),
                "ratio": float(f"{np.median(rate / reached):.3g}"),
                "difference": difference,
            }
        )
    return rows


def set_threads(framework: str, threads: int) -> None:
    if framework == "torch":
        import torch

        torch.set_num_threads(threads)
    else:
        import tensorflow

        tensorflow.config.threading.set_intra_op_parallelism_threads(threads)


def fastest_raw(model, framework: str, rows: np.ndarray) -> tuple[Form, Callable[[], int]]:
    """The fastest form and batch of all there are, and a function that runs 512 rows that way."""
    forwards = torch_forwards(model, rows) if framework == "torch" else tensorflow_forwards(model)
    candidates = {
        (name, batch): repeated(forward, rows[:batch], 512 // batch)
        for name, forward in forwards.items()
        for batch in BATCHES
    }
    best = dict.fromkeys(candidates, np.inf)
    for _ in range(3):
        for key, run in candidates.items():
            start = time.perf_counter()
            count = run()
            best[key] = min(best[key], (time.perf_counter() - start) / count)
    fastest = min(best, key=best.__getitem__)
    return Form(*fastest), candidates[fastest]


def torch_forwards(model, rows: np.ndarray) -> dict[str, Callable[[np.ndarray], Callable]]:
    """Of each form, a function from rows to a call that runs them."""
    import torch

    from shapeline import torch_engine
    from shapeline.models.torch_models import evaluation_mode

    def forward(name):
        prepared = torch_engine.prepare(model, Form(name), rows, Reference(rows[:1]))

        def on(batch):
            resident = torch.from_numpy(batch)

            def run():
                with evaluation_mode(model.module):
                    prepared(resident)

            return run

        return on

    return {name: forward(name) for name in ("plain", "frozen")}


def tensorflow_forwards(model) -> dict[str, Callable[[np.ndarray], Callable]]:
    """Of each form, a function from rows to a call that runs them."""
    import tensorflow

    def forward(by_xla):
        function = tensorflow.function(lambda rows: model.module(rows, training=False), jit_compile=by_xla)

        def on(batch):
            resident = tensorflow.constant(batch)
            return lambda: function(resident).numpy()

        return on

    return {"plain": forward(False), "compiled": forward(True)}


def repeated(forward: Callable[[np.ndarray], Callable], batch: np.ndarray, times: int) -> Callable[[], int]:
    call = forward(batch)

    def run() -> int:
        for _ in range(times):
            call()
        return times * len(batch)

    return run


def take_turns(runs: dict[str, Callable[[], int]], turns: int) -> dict[str, np.ndarray]:
    """Evaluations per second of each, by turn, after a warm-up."""
    rates = {name: np.zeros(turns) for name in runs}
    for run in runs.values():
        run()
    for turn in range(turns):
        for name, run in runs.items():
            time.sleep(0.05)  # threads of the run before wait actively for a while
            start = time.perf_counter()
            rows = run()
            rates[name][turn] = rows / (time.perf_counter() - start)
    return rates


if __name__ == "__main__":
    main()
