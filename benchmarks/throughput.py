"""How near the engine comes to the hardware's limit, and how far ahead of the peers it is, in one run.

    OMP_NUM_THREADS=2 python benchmarks/throughput.py [--architecture cifar_cnn] [--weights FILE] [--peers]

The limit ("raw") is the model alone in its fastest form at its best batch size, on one resident batch again and again.
Engine, raw and peers take turns, so that a machine that others use too slows all of them alike; what is reported is
the median of the turns' ratios with the 10th and 90th percentile. The peers (shap, captum) run the plain module with
the same number of evaluations; without the packages they are left out. Writes throughput.csv and throughput.json.
"""

import argparse
import csv
import importlib.util
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from shapeline import designs, engine, models, torch_engine
from shapeline.engine import Form
from shapeline.features import Features
from shapeline.references import Reference

# Of each model its input shape, the instances of a call, and the rows after which a form is judged: one is 50 times as
# dear as the other.
MODELS = {"mnist_cnn": ((1, 28, 28), 8, 4096), "cifar_cnn": ((3, 32, 32), 1, 256)}


def main() -> None:
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    model = models.load(arguments.weights) if arguments.weights else models.build(arguments.architecture)
    shape, instances, trial = MODELS[model.architecture]
    random = np.random.default_rng(0)
    inputs = random.random((arguments.instances or instances, *shape), dtype=np.float32)
    reference = Reference(np.full((1, *shape), 0.13, np.float32))
    cells = np.arange(shape[1] * shape[2], dtype=np.int32).reshape(shape[1:])
    features = Features("pixel", shape[1:], np.stack([cells] * shape[0]))

    start = time.perf_counter()
    design = designs.kernel_shap(features.d, arguments.evaluations or 4 * features.d, seed=0)
    design_seconds = time.perf_counter() - start
    start = time.perf_counter()
    form = engine.calibrate(model, inputs, reference)
    calibration_seconds = time.perf_counter() - start
    rows = min(25_000, len(inputs) * len(design.masks))
    raw_form, raw = fastest_raw(model, inputs, reference, trial, rows)

    def run_engine() -> int:
        return engine.values(model, inputs, reference, design.masks, features, form=form).size

    def run_method() -> int:
        values = engine.values(model, inputs, reference, design.masks, features, form=form)
        design.attribute(values)
        return values.size

    runs: dict[str, Callable[[], int]] = {"raw": raw, "engine": run_engine, "kernel_shap": run_method}
    if arguments.peers:
        runs |= peers(model, inputs[:1], reference, len(design.masks))
    rates = take_turns(runs, arguments.repetitions)
    facts = {
        "architecture": model.architecture,
        "evaluations_an_instance": len(design.masks),
        "instances": len(inputs),
        "form": vars(form),
        "raw_form": vars(raw_form),
        "design_seconds": round(design_seconds, 3),
        "calibration_seconds": round(calibration_seconds, 3),
    }
    report(arguments.output, rates, facts)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architecture", choices=MODELS, default="mnist_cnn")
    parser.add_argument("--weights", help="trained weights of one of them (.safetensors); random ones by default")
    parser.add_argument("--evaluations", type=int, help="evaluations an instance (4d)")
    parser.add_argument("--instances", type=int, help="instances of a call of the engine")
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--threads", type=int, default=int(os.environ.get("OMP_NUM_THREADS", 2)))
    parser.add_argument("--peers", action="store_true", help="also run shap and captum, where they are installed")
    parser.add_argument("--output", type=Path, default=Path("results/benchmarks"))
    return parser.parse_args()


def fastest_raw(model, inputs, reference, trial: int, rows_a_run: int) -> tuple[Form, Callable[[], int]]:
    """The model's fastest form and batch of all there are, on one resident batch; each is tried several times."""
    candidates = {}
    for name in torch_engine.FORMS:
        forward = torch_engine.prepare(model, Form(name), inputs, reference)
        for batch in (batch for batch in (64, 128, 256, 512, 1024) if batch <= 2 * trial):
            rows = torch.from_numpy(engine.masked_rows(inputs, reference, batch))
            if name == "channels_last":
                rows = rows.contiguous(memory_format=torch.channels_last)
            candidates[name, batch] = repeated(forward, rows, max(1, trial // batch))
    best = dict.fromkeys(candidates, np.inf)
    for _ in range(8):
        for key, run in candidates.items():
            start = time.perf_counter()
            rows = run()
            best[key] = min(best[key], (time.perf_counter() - start) / rows)
    name, batch = min(best, key=best.__getitem__)
    rows = torch.from_numpy(engine.masked_rows(inputs, reference, batch))
    forward = torch_engine.prepare(model, Form(name), inputs, reference)
    return Form(name, batch, 1 / best[name, batch]), repeated(forward, rows, max(1, rows_a_run // batch))


def repeated(forward, rows: torch.Tensor, times: int) -> Callable[[], int]:
    def run() -> int:
        with torch.inference_mode():
            for _ in range(times):
                forward(rows)
        return times * len(rows)

    return run


def peers(model, inputs, reference, evaluations: int) -> dict[str, Callable[[], int]]:
    """Functions that explain one instance with a peer and return how many rows the model was given."""
    found: dict[str, Callable[[], int]] = {}
    counted = [0]
    x, baseline = torch.from_numpy(inputs), torch.from_numpy(reference.rows)

    def forward(rows: torch.Tensor) -> torch.Tensor:
        counted[0] += len(rows)
        with torch.inference_mode():
            return torch.log_softmax(model.module(rows), dim=1)

    def counting(explain: Callable[[], object]) -> Callable[[], int]:
        def run() -> int:
            counted[0] = 0
            explain()
            return counted[0]

        return run

    if importlib.util.find_spec("shap") is None:
        print("peers: shap is not installed, left out (pip install shap)")
    else:
        import shap

        def probabilities(rows: np.ndarray) -> np.ndarray:
            return forward(torch.from_numpy(rows.reshape(-1, *inputs.shape[1:]).astype(np.float32))).numpy()

        explainer = shap.KernelExplainer(probabilities, reference.rows.reshape(1, -1))
        flat = inputs.reshape(1, -1)
        found["shap KernelExplainer"] = counting(
            lambda: explainer.shap_values(flat, nsamples=evaluations, l1_reg=False, silent=True)
        )
    if importlib.util.find_spec("captum") is None:
        print("peers: captum is not installed, left out (pip install captum)")
    else:
        from captum.attr import KernelShap

        explainer_captum = KernelShap(forward)
        for name, settings in (("default", {}), ("perturbations_per_eval=256", {"perturbations_per_eval": 256})):
            given = {"baselines": baseline, "target": 0, "n_samples": evaluations, **settings}
            found[f"captum KernelShap, {name}"] = counting(lambda given=given: explainer_captum.attribute(x, **given))
    return found


def timed(run: Callable[[], int]) -> tuple[float, int]:
    time.sleep(0.1)  # threads of the run before (of its linear algebra, say) wait actively for a while
    start = time.perf_counter()
    rows = run()
    return time.perf_counter() - start, rows


def take_turns(runs: dict[str, Callable[[], int]], repetitions: int) -> dict[str, np.ndarray]:
    """Evaluations per second of each, by turn, after a warm-up."""
    rates = {name: np.zeros(repetitions) for name in runs}
    for run in runs.values():
        run()
    for turn in range(repetitions):
        for name, run in runs.items():
            seconds, rows = timed(run)
            rates[name][turn] = rows / seconds
    return rates


def report(output: Path, rates, facts: dict) -> None:
    """Print a table of rates and ratios and write it beside what it was measured with."""
    rows = []
    for name, rate in rates.items():
        versus = rates["raw"] if name in ("raw", "engine", "kernel_shap") else rates["engine"]
        ratio = rate / versus if versus is rates["raw"] else versus / rate
        low, median, high = np.percentile(ratio, [10, 50, 90])
        rows.append(
            {
                "what": name,
                "evaluations_per_second": round(float(np.median(rate))),
                "ratio": "rate / raw" if versus is rates["raw"] else "engine / rate",
                **{key: float(f"{number:.4g}") for key, number in (("median", median), ("low", low), ("high", high))},
                "turns": len(rate),
            }
        )
        print(
            f"{name:45s} {rows[-1]['evaluations_per_second']:>9,d} evaluations/s   {rows[-1]['ratio']} "
            f"{median:.3g} ({low:.3g} to {high:.3g}, {rows[-1]['turns']} turns)"
        )
    facts = {
        "threads": torch.get_num_threads(),
        "processor": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        **facts,
        "rows": rows,
    }
    engine, raw = facts["form"], facts["raw_form"]
    print(f"{facts['architecture']}, {facts['evaluations_an_instance']} evaluations an instance")
    print(f"engine: {engine['name']} at {engine['batch']}; raw: {raw['name']} at {raw['batch']}")
    output.mkdir(parents=True, exist_ok=True)
    (output / "throughput.json").write_text(json.dumps(facts, indent=1) + "\n")
    with open(output / "throughput.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
