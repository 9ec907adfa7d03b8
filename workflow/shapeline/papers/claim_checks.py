"""How a claim is judged: order, speed, accuracy, likeness."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shapeline.report import experiment
from shapeline.report.experiment import Results
from shapeline.report.findings import equal_error
from shapeline.report.formatting import interval, number, share
from shapeline.statistics import paired
from shapeline.statistics.bounds import FAILS, HOLDS, UNDECIDED, compare_with_others, enough, intervals, verdict

UNTESTABLE = "not testable"


@dataclass(frozen=True)
class Finding:
    """What was found of a claim, in words with its interval, and the verdict: HOLDS, FAILS, UNDECIDED or UNTESTABLE."""

    found: str
    verdict: str


@dataclass(frozen=True)
class Claim:
    """A claim and its check on the first of its experiments that there is; every: on all of them, in order."""

    paper: str
    section: str
    text: str
    experiments: tuple[str, ...]
    check: Callable[..., Finding]
    every: bool = False


def accuracy(claimed: float) -> Callable[[Results], Finding]:
    """Test accuracy of the model: holds or fails where its 95 % Wilson interval lies on one side of the claimed one."""

    def check(results: Results) -> Finding:
        correct, rows = results.model_card.get("test_accuracy"), results.model_card["rows"]["test"]
        low, high = wilson(round(correct * rows), rows)
        text = f"{share(correct)} ({share(low)} to {share(high)}) on {number(rows)}"
        return Finding(text, HOLDS if low >= claimed else FAILS if high < claimed else UNDECIDED)

    return check


def wilson(count: int, of: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share (Wilson 1927)."""
    z, p = 1.959963985, count / of
    middle, half = p + z**2 / (2 * of), z * math.sqrt(p * (1 - p) / of + z**2 / (4 * of**2))
    return (middle - half) / (1 + z**2 / of), (middle + half) / (1 + z**2 / of)


def parameters(claimed: int) -> Callable[[Results], Finding]:
    """Number of trainable parameters."""

    def check(results: Results) -> Finding:
        counted = results.model_card.get("parameters")
        return Finding(number(counted), HOLDS if counted == claimed else FAILS)

    return check


def beats(
    first: str, *others: str, metric: str = "log_odds", statistic: str = "deletion_auc", better: str = "lower"
) -> Callable[[Results], Finding]:
    """Check that a method beats others on the same instances, by simultaneous 95 % intervals of the differences."""

    def check(results: Results) -> Finding:
        if metric not in results.measured:
            return Finding(f"metric {metric} was not measured", UNTESTABLE)
        measured = results.measured[metric]
        values = paired.pivot_by_method(measured[measured["method"].isin([first, *others])], statistic)
        absent = [entry for entry in (first, *others) if entry not in values]
        if absent:
            return Finding(f"{', '.join(absent)} did not run, or on too few instances", UNTESTABLE)
        if not enough(len(values)):
            return Finding(f"{number(len(values))} instances are too few for a verdict", UNTESTABLE)
        claim = compare_with_others(values[[first, *others]], first, better)
        ahead = "; ".join(f"{entry} {interval(row)}" for entry, row in claim.table.iterrows())
        return Finding(f"ahead of: {ahead}", claim.verdict)

    return check


def level(entry: str, within: float, metric: str, statistic: str) -> Callable[[Results, Results], Finding]:
    """Check by Welch's 95 % interval that a method's means in two experiments differ by at most `within`."""

    def check(first: Results, second: Results) -> Finding:
        values = []
        for results in (first, second):
            frame = results.measured.get(metric)
            if frame is None or entry not in set(frame["method"]):
                return Finding(f"{entry} was not measured in {results.experiment}", UNTESTABLE)
            values.append(paired.pivot_by_method(frame[frame["method"] == entry], statistic)[entry].dropna().to_numpy())
        if not enough(min(map(len, values))):
            return Finding(f"{number(min(map(len, values)))} instances are too few for a verdict", UNTESTABLE)
        (a, b), error = values, math.sqrt(sum(one.var(ddof=1) / len(one) for one in values))
        row = {"mean": b.mean() - a.mean()}
        row |= {"low": row["mean"] - 1.96 * error, "high": row["mean"] + 1.96 * error}
        inside, outside = max(-row["low"], row["high"]) <= within, max(row["low"], -row["high"]) > within
        text = f"{a.mean():.3f} and {b.mean():.3f}, apart {interval(row)}; the margin is {within:g}"
        return Finding(text, HOLDS if inside else FAILS if outside else UNDECIDED)

    return check


def fewer(first: str, second: str, least: float = 1.0) -> Callable[[Results], Finding]:
    """Check how many times the evaluations of the first method the second needs for the least error of both."""

    def check(results: Results) -> Finding:
        if "error" not in results.measured:
            return Finding("metric error was not measured", UNTESTABLE)
        if absent := [entry for entry in (first, second) if entry not in results.scores]:
            return Finding(f"{', '.join(absent)} did not run", UNTESTABLE)
        pair = equal_error(results, first, second)
        if pair is None:
            return Finding("no error that both cross between two intermediate budgets", UNTESTABLE)
        if not np.isfinite(pair.low):
            return Finding(f"{number(pair.n)} instances or intermediate budgets are too few for a verdict", UNTESTABLE)
        at = f"RMSE {number(pair.error, whole=False)}: {number(pair.first)} evaluations against {number(pair.second)}"
        mean, low, high = (number(side, whole=False) for side in (pair.ratio, pair.low, pair.high))
        result = verdict(math.log(pair.low), math.log(pair.high), bar=math.log(least))
        return Finding(f"{mean} times as many ({low} to {high}); {at}", result)

    return check


def faster(first: str, second: str, least: float = 1.0) -> Callable[[Results], Finding]:
    """Check the seconds per instance of the second method over the first's (geometric mean), timed one by one."""

    def check(results: Results) -> Finding:
        frames = [results.scores.get(entry) for entry in (first, second)]
        if any(frame is None for frame in frames):
            return Finding(f"no scores of {first} and {second}", UNTESTABLE)
        if results.settings.get("timing") != "per_instance":
            return Finding("instances were timed in batches; set timing: per_instance", UNTESTABLE)
        left, right = (experiment.good(frame).groupby("instance")["seconds"].mean() for frame in frames)
        logs = np.log(right / left).dropna().to_numpy()
        if not enough(len(logs)):
            return Finding(f"too few scores of {first} and {second}", UNTESTABLE)
        row = intervals(logs[:, None]).loc[0, ["mean", "low", "high"]]
        mean, low, high = (number(math.exp(value), whole=False) for value in row)
        result = verdict(row["low"], row["high"], bar=math.log(least))
        return Finding(f"{mean} times ({low} to {high})", result)

    return check


def alike(first: str, second: str, least: float) -> Callable[[Results], Finding]:
    """Mean cosine of the scores of two methods, at least so large."""

    def check(results: Results) -> Finding:
        if not {first, second} <= set(results.scores):
            return Finding(f"no scores of {first} and {second}", UNTESTABLE)
        ids = results.instances["instance"]
        rows = [experiment.select_scores(results.scores[entry], ids) for entry in (first, second)]
        both = [(a, b) for a, b in zip(*rows, strict=True) if a is not None and b is not None]
        if len(both) < 2:
            return Finding(f"no scores of {first} and {second}", UNTESTABLE)
        left, right = (np.array(side) for side in zip(*both, strict=True))
        norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
        cosines = np.divide((left * right).sum(1), norms, out=np.zeros(len(norms)), where=norms > 0)
        row = intervals(cosines[:, None]).loc[0]
        text = f"{row['mean']:.3f} ({row['low']:.3f} to {row['high']:.3f}) on {number(len(cosines))}"
        return Finding(text, verdict(row["low"], row["high"], bar=least))

    return check


def mostly(entry: str, feature: str, sign: int, least: float = 0.5) -> Callable[[Results], Finding]:
    """The share of instances to whose class or number per feature adds (sign 1) or takes away (-1)."""

    def check(results: Results) -> Finding:
        if entry not in results.scores:
            return Finding(f"no scores of {entry}", UNTESTABLE)
        names = experiment.feature_names(results)
        if feature not in names:
            return Finding(f"no feature is called {feature}", UNTESTABLE)
        rows = experiment.select_scores(results.scores[entry], results.instances["instance"])
        signed = np.array([sign * row[names.index(feature)] > 0 for row in rows if row is not None])
        if not enough(len(signed)):
            return Finding(f"too few scores of {entry}", UNTESTABLE)
        low, high = wilson(int(signed.sum()), len(signed))
        text = f"{share(signed.mean())} ({share(low)} to {share(high)}) of {number(len(signed))}"
        return Finding(text, HOLDS if low > least else FAILS if high < least else UNDECIDED)

    return check


def check_cost_bound(entry: str, bound: Callable[[int], float], formula: str) -> Callable[[Results], Finding]:
    """Evaluations per instance of a method, against a bound in d."""

    def check(results: Results) -> Finding:
        if entry not in results.scores:
            return Finding(f"no scores of {entry}", UNTESTABLE)
        frame = experiment.good(results.scores[entry])
        if frame.empty:
            return Finding(f"every explanation of {entry} failed", UNTESTABLE)
        d = frame["scores"].map(len).to_numpy()
        ratio = (frame["evaluations"].to_numpy() / np.array([bound(size) for size in d])).max()
        text = f"at most {number(frame['evaluations'].max(), 6)}, {number(ratio, whole=False)} of {formula}"
        return Finding(text, HOLDS if ratio <= 1 else FAILS)

    return check


def takes_at_most(entry: str, most: float) -> Callable[[Results], Finding]:
    """Check the mean seconds per instance of a method by its 95 % interval; none where a batch's time is shared."""

    def check(results: Results) -> Finding:
        if entry not in results.scores:
            return Finding(f"no scores of {entry}", UNTESTABLE)
        each = experiment.good(results.scores[entry]).groupby("instance")["seconds"].mean()
        if not np.isfinite(each.mean()):
            return Finding(f"every explanation of {entry} failed", UNTESTABLE)
        alone = results.settings.get("timing") == "per_instance" and len(each) > 1
        half = 1.96 * each.std() / math.sqrt(len(each)) if alone else math.nan
        row = {"mean": each.mean(), "low": each.mean() - half, "high": each.mean() + half}
        low, high = (row["low"], row["high"]) if alone else [row["mean"]] * 2
        return Finding(f"{interval(row)} s per instance", HOLDS if high <= most else FAILS if low > most else UNDECIDED)

    return check
