"""Error, coverage and cost of `gp_shapley` and `kernel_shap` at equal evaluations.

    python -m benchmarks.accuracy [--quick] [--games NAME ...] [--instances N] [--samples N]

A line per game and budget has the RMSE of kernel_shap to the exact values; the ratio to it of gp_shapley (with a 95 %
bootstrap interval over instances), of its cheap form and of sample_shapley; the coverage of 95 % intervals and the
predicted over the actual RMSE of gp_shapley and kernel_shap; and the milliseconds per instance of the estimators. Last
come the geometric means of the ratios over games, per budget.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.accuracy_games import MAKERS, game, parser
from shapeline import designs
from shapeline.designs.gaussian_process import draw_pairs, read_out
from shapeline.designs.uncertainty import kernel_shap_uncertainty
from shapeline.statistics.accuracy import Game

BUDGETS = (2, 4, 8, 16, 32)
MAX_EVALUATIONS = 1600  # per instance
EXACT = 1e-6  # share of the largest score below which trees' own single precision hides an error


@dataclass(frozen=True, eq=False)
class Runs:
    """Errors (samples, n, d) and uncertainties (samples, n, d) of a method, and its seconds per instance."""

    errors: np.ndarray
    standard_error: np.ndarray
    seconds: float

    def rmse(self, instances: np.ndarray | slice = slice(None)) -> float:
        """Return the root mean square error over samples, instances and features."""
        return float(np.sqrt((self.errors[:, instances] ** 2).mean()))

    def coverage(self, exact: np.ndarray) -> float:
        """Return the share of exact values within 1.96 standard errors."""
        slack = EXACT * np.abs(exact).max(axis=1, keepdims=True)
        return float((np.abs(self.errors) <= 1.96 * self.standard_error + slack).mean())

    def predicted(self) -> float:
        """Return the predicted over the actual root mean square error."""
        return float(np.sqrt((self.standard_error**2).mean())) / self.rmse()


def list_seeds(sample: int, instances: int) -> list[int]:
    """Return a sample of coalitions for each instance."""
    return [10_000 * sample + instance for instance in range(instances)]


def run_gp_shapley(played: Game, budget: int, sample: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Return scores, standard errors and seconds of gp_shapley with learned relevances, all instances of a sample."""
    masks = np.array([draw_pairs(played.d, budget, seed) for seed in list_seeds(sample, len(played.exact))])
    values = played.value(masks)
    start = time.process_time()
    found = read_out(masks, values)
    return found.scores, found.standard_error, time.process_time() - start


def wrap_design(make, with_uncertainty: bool = False):
    """Return the method of a function from d, budget and seed to a Design, with the interface of `run_gp_shapley`."""

    def method(played: Game, budget: int, sample: int) -> tuple[np.ndarray, np.ndarray, float]:
        sampled = [make(played.d, budget, seed) for seed in list_seeds(sample, len(played.exact))]
        # Values need the same number of coalitions for each instance; sample_shapley merges repeated ones.
        longest = max(design.evaluations for design in sampled)
        masks = np.array([np.pad(design.masks, ((0, longest - design.evaluations), (0, 0))) for design in sampled])
        values = played.value(masks)
        start = time.process_time()
        scores = np.array([d.attribute(v[: d.evaluations]) for d, v in zip(sampled, values, strict=True)])
        seconds = time.process_time() - start
        standard_errors = np.full(scores.shape, np.nan)
        if with_uncertainty:
            summaries = [kernel_shap_uncertainty(d, v[: d.evaluations]) for d, v in zip(sampled, values, strict=True)]
            standard_errors = np.concatenate([summary.standard_error for summary in summaries])
        return scores, standard_errors, seconds

    return method


METHODS = {
    "kernel_shap": wrap_design(designs.kernel_shap, with_uncertainty=True),
    "gp_shapley": run_gp_shapley,
    "gp_shapley, fixed": wrap_design(designs.gp_shapley),
    "sample_shapley": wrap_design(designs.sample_shapley),
}


def run(played: Game, method, budget: int, samples: int) -> Runs:
    """Return all samples of a method on a game."""
    found = [method(played, budget, sample) for sample in range(samples)]
    scores, standard_errors, seconds = (np.array(part) for part in zip(*found, strict=True))
    return Runs(scores - played.exact, standard_errors, float(seconds.sum() / scores[..., 0].size))


def bootstrap_ratio(ours: Runs, theirs: Runs, resamples: int = 1000) -> tuple[float, float]:
    """Return the 95 % bootstrap interval over instances of the ratio of root mean square errors."""
    our_errors, their_errors = ((runs.errors**2).mean(axis=(0, 2)) for runs in (ours, theirs))
    chosen = np.random.default_rng(0).integers(0, len(our_errors), size=(resamples, len(our_errors)))
    ratios = np.sqrt(our_errors[chosen].mean(axis=1) / their_errors[chosen].mean(axis=1))
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(low), float(high)


def format_line(played: Game, times: int, samples: int) -> tuple[str, float]:
    """Return one line of the table, and gp_shapley's ratio."""
    budget = times * played.d
    runs = {name: run(played, method, budget, samples) for name, method in METHODS.items()}
    kernel, process = runs["kernel_shap"], runs["gp_shapley"]
    ratio = process.rmse() / kernel.rmse()
    low, high = bootstrap_ratio(process, kernel)
    others = " ".join(f"{runs[name].rmse() / kernel.rmse():7.2f}" for name in ("gp_shapley, fixed", "sample_shapley"))
    coverages = " ".join(f"{r.coverage(played.exact):5.2f} {r.predicted():5.2f}" for r in (process, kernel))
    return (
        f"{played.name:17s} {played.d:3d} {times:3d}d {kernel.rmse():9.5f} {ratio:6.3f} [{low:.3f}, {high:.3f}] "
        f"{others}   {coverages}  {1e3 * process.seconds:8.1f}",
        ratio,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    options = parser(__doc__, tuple(MAKERS))
    options.add_argument("--quick", action="store_true", help="4 instances, 2 samples, up to 8 d")
    options.add_argument("--budgets", nargs="+", type=int, default=None, help="multiples of d")
    args = options.parse_args(arguments)
    instances, samples = args.instances or (4 if args.quick else 20), args.samples or (2 if args.quick else 10)
    budgets = args.budgets or (BUDGETS[:3] if args.quick else BUDGETS)
    print(
        "game                d budget  kernel  gp_shapley [95 % interval]   fixed  sample   gp: cover pred "
        "kernel: cover pred  ms"
    )
    ratios: dict[int, list[float]] = {times: [] for times in budgets}
    for name in args.games:
        played = game(name, instances)
        for times in budgets:
            if times * played.d <= min(MAX_EVALUATIONS, 0.75 * 2**played.d):
                text, ratio = format_line(played, times, samples)
                ratios[times].append(ratio)
                print(text, flush=True)
    means = ", ".join(f"{times}d {np.exp(np.mean(np.log(found))):.3f}" for times, found in ratios.items() if found)
    print(f"Geometric mean of gp_shapley's ratio over games: {means}")


if __name__ == "__main__":
    main()
