"""The speed-up of h-Shap if the trees of all images grow together, on crosses, in one run.

    OMP_NUM_THREADS=2 python benchmarks/hierarchy.py [--images 100] [--device cuda] [--seconds 60]

The paper's ConvNet (`crosses_cnn`) is trained for a minute first: in an untrained network nothing
is relevant and there is nothing to explore. "one at a time" explains image after image and gives the plain module
two nodes per batch, 2^4 coalitions each, as published; "one at a time, engine" is this package on single images;
"batched" is all images at once in the engine's calibrated backend. "Partition" is ours, one image at a time and with
m = 500 evaluations; where the extra `peers` is installed, "Partition of shap" is the library's as the authors of h-Shap
call it: 36,000 features (each channel's pixels are its own), the branch where the rest is absent, its own batch of ten,
and the logit. They take turns, so that a machine that others use too slows all alike. Writes hierarchy.json, which also
has how much of the time is spent outside the model: what would be left of it on a device where the model costs nothing.
"""

import argparse
import importlib.util
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from torch import nn

from shapeline import designs
from shapeline.datasets import synthetic
from shapeline.games.calibration import calibrate
from shapeline.games.execution import ExecutionBackend
from shapeline.games.features import Features
from shapeline.games.game import Game
from shapeline.games.references import Reference
from shapeline.hierarchy import methods
from shapeline.hierarchy.exploration import HShap
from shapeline.hierarchy.methods import TOLERANCE
from shapeline.models import architectures
from shapeline.models.classifier import Classifier

MIN_SIZE = 3
EVALUATIONS = 500  # of Partition
GAME = designs.shapley(4)


def main() -> None:
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    model, accuracy = trained(arguments.seconds, arguments.device, arguments.weights)
    images, masks = synthetic.generate(arguments.images, crosses=arguments.crosses, seed=1)
    inputs, targets = scaled(images), np.ones(len(images), np.int64)
    reference = Reference(scaled(synthetic.generate(1000, seed=2)[0]).mean(axis=0, keepdims=True))
    start = time.perf_counter()
    backend = calibrate(model, inputs, reference)
    calibration = time.perf_counter() - start

    module, absent = Timed(model.module), reference.rows[0]
    runs: dict[str, Callable[[], list]] = {
        "one at a time": lambda: [
            explain_by_pairs(module, x, absent, arguments.threshold, arguments.tolerance) for x in inputs
        ],
        "one at a time, engine": lambda: [
            explain(model, inputs[i : i + 1], reference, targets[:1], backend, arguments)[0] for i in range(len(inputs))
        ],
        "batched, plain form": lambda: explain(
            model, inputs, reference, targets, ExecutionBackend("plain", backend.batch), arguments
        ),
        "batched": lambda: explain(model, inputs, reference, targets, backend, arguments),
        "Partition": lambda: [
            methods.score_partition(
                build_game(model, inputs, reference, backend), inputs[i : i + 1], targets[:1], EVALUATIONS
            )
            for i in range(len(inputs))
        ],
    }
    if importlib.util.find_spec("shap"):
        runs["Partition of shap"] = partition_of_shap(module, inputs, absent)
    seconds = {name: np.zeros(arguments.repetitions) for name in runs}
    outside, by_way = {}, {}
    for turn in range(-1, arguments.repetitions):  # the first turn is a warm-up
        for name, run in runs.items():
            module.seconds, start = 0.0, time.perf_counter()
            by_way[name] = run()  # results are on the host: the device has finished
            took = time.perf_counter() - start
            if turn >= 0:
                seconds[name][turn] = took / len(inputs)
            if module.seconds and arguments.device == "cpu":  # on a device a call returns before it is done
                outside[name] = (took - module.seconds) / len(inputs)
    report(arguments, model, accuracy, backend, calibration, seconds, outside, by_way, masks)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--crosses", type=int, default=1, help="crosses per image")
    parser.add_argument("--threshold", type=float, default=0.0)
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, help="of the range of v")
    parser.add_argument("--seconds", type=float, default=60, help="of training")
    parser.add_argument("--weights", type=Path, help="a file of trained weights: read if there, else written")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=int(os.environ.get("OMP_NUM_THREADS", 2)))
    parser.add_argument("--output", type=Path, default=Path("results/benchmarks"))
    return parser.parse_args()


def scaled(images: np.ndarray) -> np.ndarray:
    """Return ink, 0 for white to 1, from which the network learns several times as fast as from brightness."""
    return 1 - images.astype(np.float32) / 255


def trained(seconds: float, device: str, weights: Path | None) -> tuple[Classifier, float]:
    """Return the network after the given seconds of Adam at 1e-3, and its accuracy on 500 other images."""
    torch.manual_seed(0)
    model = architectures.build("crosses_cnn").to(device)
    module = model.module.train()
    records = synthetic.read_crosses({}, count=4000)
    inputs = torch.from_numpy(scaled(records["inputs"])).to(device)
    labels = torch.from_numpy(records["labels"]).to(device)
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-3)
    test, end = slice(3500, None), time.perf_counter() + seconds
    if weights and weights.exists():
        module.load_state_dict(safetensors.torch.load_file(weights))
        end = 0.0
    while time.perf_counter() < end:
        for batch in torch.randperm(3500, device=device).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(inputs[batch]), labels[batch]).backward()
            optimizer.step()
    if weights:
        safetensors.torch.save_file(module.state_dict(), weights)
    module.eval()
    accuracy = (model.log_probs(inputs[test]).argmax(1) == labels[test].cpu().numpy()).mean()
    return model, float(accuracy)


class Timed:
    """A module of two classes, and the seconds that its calls took."""

    def __init__(self, module: nn.Module):
        self.module, self.seconds, self.device = module, 0.0, next(module.parameters()).device

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """Return logits (n, 2)."""
        start = time.perf_counter()
        logits = self.module(rows)
        self.seconds += time.perf_counter() - start
        return logits


def build_game(model, inputs, reference, backend) -> Game:
    cells = np.arange(np.prod(inputs.shape[2:]), dtype=np.int32).reshape(inputs.shape[2:])
    features = Features("pixel", cells.shape, np.broadcast_to(cells, inputs.shape[1:]))
    return Game(model, reference, features, "probability", backend)


def explain(model, inputs, reference, targets, backend, arguments) -> list[HShap]:
    growth = methods.Growth(arguments.threshold, tolerance=arguments.tolerance)
    return methods.explain_grid(build_game(model, inputs, reference, backend), inputs, targets, MIN_SIZE, growth)


def partition_of_shap(module: Timed, inputs: np.ndarray, absent: np.ndarray) -> Callable[[], list]:
    """Return a function that explains inputs singly with shap's PartitionExplainer; its tree is built here, untimed."""
    shap = importlib.import_module("shap")

    def logits(images: np.ndarray) -> np.ndarray:
        rows = torch.from_numpy(np.moveaxis(images, -1, 1).astype(np.float32)).to(module.device)
        with torch.inference_mode():
            return module(rows)[:, 1].cpu().numpy()

    explainer = shap.PartitionExplainer(logits, shap.maskers.Image(np.moveaxis(absent, 0, -1)))
    images = np.moveaxis(inputs, 1, -1)
    return lambda: [explainer(x[None], max_evals=EVALUATIONS, fixed_context=0, silent=True) for x in images]


def explain_by_pairs(module: Timed, x, absent, threshold: float, tolerance: float) -> tuple[int, int]:
    """One image's tree, two nodes at a time, 16 rows per node, masks whole: relevant leaves and rows evaluated."""
    device = module.device
    x, absent = torch.from_numpy(x).to(device), torch.from_numpy(absent).to(device)
    readout, present = torch.from_numpy(GAME.readout).to(device), torch.from_numpy(GAME.masks).to(device)
    nodes, leaves, rows = [(0, x.shape[1], 0, x.shape[2])], 0, 0
    while nodes:
        pair, nodes = nodes[:2], nodes[2:]
        children = [split_quadrants(node) for node in pair]
        masks = torch.zeros((len(pair), 16, *x.shape[1:]), dtype=torch.bool, device=device)
        for mask, parts in zip(masks, children, strict=True):
            for place, (top, bottom, left, right) in enumerate(parts):
                mask[:, top:bottom, left:right] = present[:, place, None, None]
        with torch.inference_mode():
            filled = torch.where(masks[:, :, None], x, absent)
            values = module(filled.flatten(0, 1)).double().softmax(dim=1)[:, 1].view(-1, 16)
        rows += values.numel()
        coefficients = (values @ readout.T).cpu().numpy()
        slack = tolerance * np.ptp(values.cpu().numpy())
        for parts, scores in zip(children, coefficients, strict=True):
            for part, score in zip(parts, scores, strict=True):
                if score - threshold > slack:
                    if min(part[1] - part[0], part[3] - part[2]) // 2 < MIN_SIZE:  # 100x120: both sides end together
                        leaves += 1
                    else:
                        nodes.append(part)
    return leaves, rows


def split_quadrants(node: tuple[int, int, int, int]) -> list[tuple[int, int, int, int]]:
    top, bottom, left, right = node
    middle, centre = (top + bottom) // 2, (left + right) // 2
    return [(a, b, c, d) for a, b in ((top, middle), (middle, bottom)) for c, d in ((left, centre), (centre, right))]


def report(arguments, model, accuracy, backend, calibration, seconds, outside, by_way, masks) -> None:
    """Print seconds per image and ratios, and write them beside what they were measured with."""
    results = by_way["batched"]
    alone = by_way["one at a time, engine"]
    marked = np.array([result.saliency > 0 for result in results])
    hits = (marked & masks).sum() / masks.sum()
    same = np.mean([np.array_equal(a.leaves, b.leaves) for a, b in zip(results, alone, strict=True)])
    facts = {
        "device": str(model.device),
        "threads": arguments.threads,
        "torch": torch.__version__,
        "accuracy": accuracy,
        "images": arguments.images,
        "crosses": arguments.crosses,
        "form": vars(backend),
        "calibration_seconds": calibration,
        "evaluations": float(np.mean([result.evaluations for result in results])),
        "evaluations_published": float(np.mean([rows for _, rows in by_way["one at a time"]])),
        "visited_nodes": float(np.mean([result.visited_nodes for result in results])),
        "leaves": float(np.mean([len(result.leaves) for result in results])),
        "leaves_published": float(np.mean([leaves for leaves, _ in by_way["one at a time"]])),
        "share_of_crosses_marked": float(hits),
        "share_of_picture_marked": float(marked.mean()),
        "same_leaves_alone": float(same),
        "seconds_a_picture": {name: [float(f"{turn:.4g}") for turn in turns] for name, turns in seconds.items()},
        "seconds_outside_the_model": outside,
        "times_as_fast": {},
    }
    for name, turns in seconds.items():
        ratios = seconds["one at a time"] / turns
        facts["times_as_fast"][name] = [float(f"{ratio:.3g}") for ratio in ratios]
        print(
            f"{name:25s} {np.median(turns) * 1e3:8.1f} ms per image, {np.median(ratios):5.2f} times as fast "
            f"({ratios.min():.2f} to {ratios.max():.2f})"
        )
    for name in ("accuracy", "form", "evaluations", "evaluations_published", "leaves", "leaves_published"):
        print(f"{name}: {facts[name]}")
    for name in ("visited_nodes", "share_of_crosses_marked", "share_of_picture_marked", "same_leaves_alone"):
        print(f"{name}: {facts[name]}")
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "hierarchy.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
