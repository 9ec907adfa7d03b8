"""The papers' quantitative claims, each beside what the reports at hand say of it.

A claim names the experiments (of config.paper.yaml, and smaller ones) that can judge it; where none of them is among
the reports, or its labels are missing, that is what stands beside it. Wordings are ours.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from shapeline import findings, statistics
from shapeline.findings import Results, interval, number, share

CHEN = "Chen et al. 2018"
SLIWINSKI = "Sliwinski et al. 2019"
TENEGGI = "Teneggi et al. 2021"
KERNEL = "Lundberg 2017"
HOLDS, FAILS, OPEN, UNTESTABLE = "holds", "fails", "undecided", "not testable here"


@dataclass(frozen=True)
class Finding:
    """What was found of a claim, in words with its interval, and the verdict: HOLDS, FAILS, OPEN or UNTESTABLE."""

    found: str
    verdict: str


@dataclass(frozen=True)
class Claim:
    """A claim, and the check of it on the results of the first of its experiments that there is."""

    paper: str
    section: str
    text: str
    experiments: tuple[str, ...]
    check: Callable[[Results], Finding]


def accuracy(claimed: float) -> Callable[[Results], Finding]:
    """Test accuracy of the model; holds where its 95 % Wilson interval reaches the claimed one."""

    def check(results: Results) -> Finding:
        found, rows = results.model_card.get("test_accuracy"), results.model_card["rows"]["test"]
        interval = stats.binomtest(round(found * rows), rows).proportion_ci(method="wilson")
        text = f"{share(found)} ({share(interval.low)} to {share(interval.high)}) on {number(rows)}"
        return Finding(text, HOLDS if interval.high >= claimed else FAILS)

    return check


def parameters(claimed: int) -> Callable[[Results], Finding]:
    """Number of trainable parameters."""

    def check(results: Results) -> Finding:
        found = results.model_card.get("parameters")
        return Finding(number(found), HOLDS if found == claimed else FAILS)

    return check


def beats(
    first: str, *others: str, metric: str = "log_odds", quantity: str = "masking_area", better: str = "lower"
) -> Callable[[Results], Finding]:
    """Whether a label is better than others on the same instances: holds where it is surely better than every one,
    fails where it is surely worse than one (95 % paired intervals)."""

    def check(results: Results) -> Finding:
        if metric not in results.measured:
            return Finding(f"metric {metric} was not measured", UNTESTABLE)
        measured = results.measured[metric]
        values = statistics.by_label(measured[measured["label"].isin([first, *others])], quantity)
        absent = [label for label in (first, *others) if label not in values]
        if absent or len(values) < 2:
            return Finding(f"too few scores of {', '.join(absent or (first, *others))}", UNTESTABLE)
        draws, verdicts, texts = statistics.by_draw(measured, quantity), [], []
        for other in others:
            pair = statistics.pairs(values[[first, other]], better, draws=draws).iloc[0]
            sign = (1 if pair["better"] == first else -1) * (1 if better == "higher" else -1)
            low, high = sorted((sign * pair["low"], sign * pair["high"]))
            sure = pair["low"] > 0 or pair["high"] < 0
            verdicts.append(OPEN if not sure else HOLDS if pair["better"] == first else FAILS)
            texts.append(f"{other} {interval({'mean': sign * pair['difference'], 'low': low, 'high': high})}")
        verdict = FAILS if FAILS in verdicts else OPEN if OPEN in verdicts else HOLDS
        return Finding(f"ahead by: {'; '.join(texts)}", verdict)

    return check


def faster(first: str, second: str, least: float = 1.0) -> Callable[[Results], Finding]:
    """Seconds per instance of the second label over the first's, at least so often; the geometric mean of instances."""

    def check(results: Results) -> Finding:
        frames = [results.scores.get(label) for label in (first, second)]
        if any(frame is None for frame in frames):
            return Finding(f"no scores of {first} and {second}", UNTESTABLE)
        one, two = (findings.good(frame).groupby("instance")["seconds"].mean() for frame in frames)
        logs = np.log(two / one).dropna().to_numpy()
        if not len(logs):
            return Finding(f"no scores of {first} and {second}", UNTESTABLE)
        half = 1.96 * logs.std(ddof=1) / math.sqrt(len(logs)) if len(logs) > 1 else 0.0
        low, mean, high = (
            number(math.exp(value), whole=False) for value in (logs.mean() - half, logs.mean(), logs.mean() + half)
        )
        verdict = (
            HOLDS if logs.mean() - half >= math.log(least) else FAILS if logs.mean() + half < math.log(least) else OPEN
        )
        return Finding(f"{mean} times ({low} to {high})", verdict)

    return check


def alike(first: str, second: str, least: float) -> Callable[[Results], Finding]:
    """Mean cosine of the scores of two labels, at least so large."""

    def check(results: Results) -> Finding:
        if not {first, second} <= set(results.scores):
            return Finding(f"no scores of {first} and {second}", UNTESTABLE)
        ids = results.instances["instance"]
        rows = [findings.scores_of(results.scores[label], ids) for label in (first, second)]
        both = [(a, b) for a, b in zip(*rows, strict=True) if a is not None and b is not None]
        if len(both) < 2:
            return Finding(f"no scores of {first} and {second}", UNTESTABLE)
        left, right = (np.array(side) for side in zip(*both, strict=True))
        norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
        cosines = np.divide((left * right).sum(1), norms, out=np.zeros(len(norms)), where=norms > 0)
        half = 1.96 * cosines.std(ddof=1) / math.sqrt(len(cosines))
        text = f"{cosines.mean():.3f} (± {half:.3f}) on {number(len(cosines))}"
        return Finding(
            text, HOLDS if cosines.mean() - half >= least else FAILS if cosines.mean() + half < least else OPEN
        )

    return check


def at_most(label: str, bound: Callable[[int], float], formula: str) -> Callable[[Results], Finding]:
    """Evaluations per instance of a label, against a bound in d."""

    def check(results: Results) -> Finding:
        if label not in results.scores:
            return Finding(f"no scores of {label}", UNTESTABLE)
        frame = findings.good(results.scores[label])
        if frame.empty:
            return Finding(f"every explanation of {label} failed", UNTESTABLE)
        d = frame["scores"].map(len).to_numpy()
        ratio = (frame["evaluations"].to_numpy() / np.array([bound(one) for one in d])).max()
        text = f"at most {number(frame['evaluations'].max(), 6)}, {number(ratio, whole=False)} of {formula}"
        return Finding(text, HOLDS if ratio <= 1 else FAILS)

    return check


def seconds(label: str, most: float) -> Callable[[Results], Finding]:
    """Mean seconds per instance of a label, at most so many: holds or fails where its 95 % interval lies on one side.

    Of instances that were not timed alone there is no interval.
    """

    def check(results: Results) -> Finding:
        if label not in results.scores:
            return Finding(f"no scores of {label}", UNTESTABLE)
        each = findings.good(results.scores[label]).groupby("instance")["seconds"].mean()
        if not np.isfinite(each.mean()):
            return Finding(f"every explanation of {label} failed", UNTESTABLE)
        alone = results.settings.get("timing") == "per_instance" and len(each) > 1
        half = 1.96 * each.std() / math.sqrt(len(each)) if alone else math.nan
        found = {"mean": each.mean(), "low": each.mean() - half, "high": each.mean() + half}
        low, high = (found["low"], found["high"]) if alone else [found["mean"]] * 2
        return Finding(f"{interval(found)} s an instance", HOLDS if high <= most else FAILS if low > most else OPEN)

    return check


STAND_INS = (
    "Shapley methods of a library are ours here: expected_gradients stands for shap's GradientExplainer, deep_lift for "
    "its DeepExplainer, partition_500 for its Partition; its own are peer_shap_gradient, peer_shap_deep and "
    "peer_shap_partition."
)
F1 = {"metric": "localization", "quantity": "f1", "better": "higher"}
F1_BEST = {**F1, "quantity": "f1_best"}
AUPRC = {**F1, "quantity": "auprc"}
SHAPLEY_RIVALS = ("partition_500", "expected_gradients", "deep_lift")
CROSSES = ("crosses_6", "crosses_1", "crosses")
CLAIMS = (
    Claim(CHEN, "5.1, A", "The word CNN on IMDB has 351,002 parameters", ("imdb",), parameters(351_002)),
    Claim(CHEN, "table 1", "It classifies 90.1 % of the test reviews", ("imdb",), accuracy(0.901)),
    Claim(
        CHEN, "5.1, A", "The character CNN on AG News has 11,337,988 parameters", ("agnews",), parameters(11_337_988)
    ),
    Claim(CHEN, "table 1", "It classifies 90.09 % of the test news", ("agnews",), accuracy(0.9009)),
    Claim(CHEN, "5.1, A", "The LSTM on Yahoo Answers has 7,146,166 parameters", ("yahoo",), parameters(7_146_166)),
    Claim(CHEN, "table 1", "It classifies 70.84 % of the test questions", ("yahoo",), accuracy(0.7084)),
    Claim(
        CHEN,
        "5.1",
        "On IMDB L-Shapley masks best, before LIME, KernelSHAP and C-Shapley",
        ("imdb",),
        beats("l_shapley", "lime", "kernel_shap", "c_shapley_regression"),
    ),
    Claim(
        CHEN,
        "5.1",
        "On AG News L-Shapley is before LIME, KernelSHAP and SampleShapley",
        ("agnews",),
        beats("l_shapley", "lime", "kernel_shap", "sample_shapley"),
    ),
    Claim(
        CHEN,
        "5.1",
        "On AG News C-Shapley is before LIME, KernelSHAP and SampleShapley",
        ("agnews",),
        beats("c_shapley_regression", "lime", "kernel_shap", "sample_shapley"),
    ),
    Claim(
        CHEN,
        "5.1",
        "On Yahoo Answers C-Shapley is before LIME, which is the next",
        ("yahoo",),
        beats("c_shapley_regression", "lime"),
    ),
    Claim(
        CHEN,
        "5.1",
        "On Yahoo Answers LIME is before L-Shapley of order 1, SampleShapley and KernelSHAP",
        ("yahoo",),
        beats("lime", "l_shapley", "sample_shapley", "kernel_shap"),
    ),
    Claim(
        CHEN,
        "3.2",
        "L-Shapley of order k on a chain asks the model O(2^(2k) d) times",
        ("imdb", "reviews", "imdb_sentence"),
        at_most("l_shapley", lambda d: 4 * d + 2, "4 d + 2"),
    ),
    Claim(CHEN, "5.2, A", "The CNN on MNIST classifies 99.7 % of 3s and 8s", ("mnist38",), accuracy(0.997)),
    Claim(
        CHEN,
        "5.2",
        "On MNIST C-Shapley is before KernelSHAP",
        ("mnist38",),
        beats("c_shapley_regression", "kernel_shap"),
    ),
    Claim(
        CHEN,
        "5.2",
        "On MNIST C-Shapley is before SampleShapley",
        ("mnist38",),
        beats("c_shapley_regression", "sample_shapley"),
    ),
    Claim(
        CHEN, "5.2", "On MNIST C-Shapley is before Saliency", ("mnist38",), beats("c_shapley_regression", "saliency")
    ),
    Claim(CHEN, "5.2, A", "The CNN on CIFAR classifies 96.1 % of deer and horses", ("cifar10dh",), accuracy(0.961)),
    Claim(
        CHEN,
        "5.2",
        "On CIFAR C-Shapley is before KernelSHAP",
        ("cifar10dh",),
        beats("c_shapley_regression", "kernel_shap"),
    ),
    Claim(
        CHEN,
        "5.2",
        "On CIFAR C-Shapley is before SampleShapley",
        ("cifar10dh",),
        beats("c_shapley_regression", "sample_shapley"),
    ),
    Claim(
        CHEN, "5.2", "On CIFAR C-Shapley is before Saliency", ("cifar10dh",), beats("c_shapley_regression", "saliency")
    ),
    Claim(
        KERNEL,
        "supplement",
        "Least squares with the Shapley kernel needs fewer evaluations than sampled permutations",
        ("digits_convergence", "cancer_convergence"),
        beats("kernel_shap", "sample_shapley", metric="error", quantity="rmse"),
    ),
    Claim(
        SLIWINSKI,
        "8.2",
        "MIM and Parzen point the same way on the Strategic Subject List: cosine of 0.94 or more",
        ("ssl",),
        alike("mim", "parzen", 0.94),
    ),
    Claim(SLIWINSKI, "8.1", "An influence vector of a face takes 4 to 5 seconds", ("fer",), seconds("mim", 5.0)),
    Claim(TENEGGI, "4.1", "The network finds more than 99 % of the crosses", CROSSES[:2], accuracy(0.99)),
    Claim(TENEGGI, "4.2", "The network finds more than 99 % of the trophozoites", ("malaria",), accuracy(0.99)),
    Claim(TENEGGI, "4.3", "The network finds about 95 % of the green lights", ("lisa",), accuracy(0.95)),
    Claim(
        TENEGGI,
        "5.2",
        "One cross: h-Shap has the highest F1 among Shapley methods",
        ("crosses_1",),
        beats("h_shap", *SHAPLEY_RIVALS, **F1),
    ),
    Claim(
        TENEGGI,
        "5.2",
        "Six crosses: h-Shap has the highest F1 among Shapley methods",
        ("crosses_6",),
        beats("h_shap", *SHAPLEY_RIVALS, **F1),
    ),
    Claim(
        TENEGGI,
        "5.2",
        "One to six crosses: h-Shap has the highest F1 among Shapley methods",
        ("crosses",),
        beats("h_shap", *SHAPLEY_RIVALS, **F1),
    ),
    Claim(
        TENEGGI,
        "5.2",
        "h-Shap has the highest F1 among Shapley methods, at the best threshold of each map",
        CROSSES,
        beats("h_shap", *SHAPLEY_RIVALS, **F1_BEST),
    ),
    Claim(
        TENEGGI,
        "5.2",
        "h-Shap has the largest area under precision and recall among Shapley methods",
        CROSSES,
        beats("h_shap", *SHAPLEY_RIVALS, **AUPRC),
    ),
    Claim(TENEGGI, "5.2", "Grad-CAM is less accurate than h-Shap", CROSSES, beats("h_shap", "grad_cam", **F1)),
    Claim(
        TENEGGI,
        "5.2",
        "h-Shap takes one to two orders of magnitude less time than Partition with 500 evaluations",
        CROSSES,
        faster("h_shap", "partition_500", 10),
    ),
    Claim(
        TENEGGI,
        "5.2",
        "Only Grad-CAM is faster: before GradientExplainer (here our expected_gradients)",
        CROSSES,
        faster("h_shap", "expected_gradients"),
    ),
    Claim(
        TENEGGI,
        "5.2",
        "Only Grad-CAM is faster: before DeepExplainer (here our deep_lift)",
        CROSSES,
        faster("h_shap", "deep_lift"),
    ),
    Claim(TENEGGI, "5.2", "Grad-CAM is faster than h-Shap", CROSSES, faster("grad_cam", "h_shap")),
    Claim(
        TENEGGI,
        "5.2",
        "A relative threshold raises F1 over the threshold of 0",
        CROSSES,
        beats("h_shap_relative", "h_shap", **F1),
    ),
)


def table(results: Sequence[Results]) -> pd.DataFrame:
    """Every claim with what the results say: paper, section, claim, experiment, found, verdict."""
    by_name = {one.experiment: one for one in results}
    return pd.DataFrame([_judged(claim, by_name) for claim in CLAIMS])


def of(results: Results) -> pd.DataFrame:
    """The claims that one experiment can judge, for its own page: paper, section, claim, found, verdict."""
    named = [claim for claim in CLAIMS if results.experiment in claim.experiments]
    judged = [_judged(claim, {results.experiment: results}) for claim in named]
    found = pd.DataFrame([row for row in judged if row["verdict"] != UNTESTABLE])
    return found.drop(columns="experiment", errors="ignore")


def _judged(claim: Claim, results: Mapping[str, Results]) -> dict:
    name = next((name for name in claim.experiments if name in results), None)
    if name is None:
        finding = Finding(f"{claim.experiments[0]} is not among these reports", UNTESTABLE)
    else:
        finding = claim.check(results[name])
        if results[name].dataset_card.get("synthetic"):
            finding = Finding(f"{finding.found}, on synthetic data", finding.verdict)
    return {
        "paper": claim.paper,
        "section": claim.section,
        "claim": claim.text,
        "experiment": name or "–",
        "found here": finding.found,
        "verdict": ("⚠ " if finding.verdict == FAILS else "") + finding.verdict,
    }
