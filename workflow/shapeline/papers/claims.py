"""The papers' quantitative claims, in our words, each with the experiments that can judge it."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from shapeline.metrics.error import cosine
from shapeline.report import experiment
from shapeline.report.elements import HTML, join_parts, note, part
from shapeline.report.elements import table as format_table
from shapeline.report.experiment import Results
from shapeline.report.findings import find_equal_error
from shapeline.report.formatting import interval, number, share
from shapeline.statistics import paired
from shapeline.statistics.bounds import FAILS, HOLDS, UNDECIDED, compare_with_others, intervals, is_enough, verdict
from shapeline.statistics.comparison import wilson

UNTESTABLE = "not testable"


@dataclass(frozen=True)
class Finding:
    """The measured value with its interval, as text, and the verdict: HOLDS, FAILS, UNDECIDED or UNTESTABLE."""

    found: str
    verdict: str


@dataclass(frozen=True)
class Claim:
    """A claim and its check on the first available of its experiments; every: on all of them, in order."""

    paper: str
    section: str
    text: str
    experiments: tuple[str, ...]
    check: Callable[..., Finding]
    every: bool = False


class Untestable(Exception):
    """The reason why results cannot judge a claim."""


def check(judge: Callable[..., Finding]) -> Callable[..., Callable[..., Finding]]:
    """Decorate a judgement of results as a function of its other arguments that returns the check of results."""

    @functools.wraps(judge)
    def prepare(*values, **named) -> Callable[..., Finding]:
        def check_results(*results: Results) -> Finding:
            try:
                return judge(*results, *values, **named)
            except Untestable as reason:
                return Finding(str(reason), UNTESTABLE)

        return check_results

    return prepare


def require(condition: bool, reason: str) -> None:
    """Raise Untestable unless a condition of a check holds."""
    if not condition:
        raise Untestable(reason)


@check
def has_accuracy(results: Results, claimed: float) -> Finding:
    """Check the model's test accuracy by its 95 % Wilson interval; undecided where it includes the claimed accuracy."""
    correct, rows = results.model_card.get("test_accuracy"), results.model_card["rows"]["test"]
    low, high = wilson(round(correct * rows) / rows, rows)
    text = f"{share(correct)} ({share(low)} to {share(high)}) on {number(rows)}"
    return Finding(text, HOLDS if low >= claimed else FAILS if high < claimed else UNDECIDED)


@check
def has_size(results: Results, claimed: int) -> Finding:
    """Check the number of trainable parameters."""
    counted = results.model_card.get("parameters")
    return Finding(number(counted), HOLDS if counted == claimed else FAILS)


@check
def beats(
    results: Results,
    first: str,
    *others: str,
    metric: str = "log_odds",
    statistic: str = "deletion_auc",
    better: str = "lower",
) -> Finding:
    """Check that a method beats others on the same instances, by simultaneous 95 % intervals of the differences."""
    require(metric in results.measured, f"metric {metric} was not measured")
    measured = results.measured[metric]
    values = paired.pivot_by_method(measured[measured["method"].isin([first, *others])], statistic)
    missing = [entry for entry in (first, *others) if entry not in values]
    require(not missing, f"{', '.join(missing)} did not run, or on too few instances")
    require(is_enough(len(values)), f"{number(len(values))} instances are too few for a verdict")
    claim = compare_with_others(values[[first, *others]], first, better)
    comparisons = "; ".join(f"{entry} {interval(row)}" for entry, row in claim.table.iterrows())
    return Finding(f"ahead of: {comparisons}", claim.verdict)


@check
def has_equal_mean(first: Results, second: Results, entry: str, margin: float, metric: str, statistic: str) -> Finding:
    """Check by Welch's 95 % interval that a method's means in two experiments differ by at most `margin`."""
    values = []
    for results in (first, second):
        frame = results.measured.get(metric)
        is_measured = frame is not None and entry in set(frame["method"])
        require(is_measured, f"{entry} was not measured in {results.experiment}")
        values.append(paired.pivot_by_method(frame[frame["method"] == entry], statistic)[entry].dropna().to_numpy())
    fewest = min(map(len, values))
    require(is_enough(fewest), f"{number(fewest)} instances are too few for a verdict")
    (a, b), error = values, math.sqrt(sum(sample.var(ddof=1) / len(sample) for sample in values))
    row = {"mean": b.mean() - a.mean()}
    row |= {"low": row["mean"] - 1.96 * error, "high": row["mean"] + 1.96 * error}
    is_within, is_beyond = max(-row["low"], row["high"]) <= margin, max(row["low"], -row["high"]) > margin
    text = f"{a.mean():.3f} and {b.mean():.3f}, apart {interval(row)}; the margin is {margin:g}"
    return Finding(text, HOLDS if is_within else FAILS if is_beyond else UNDECIDED)


@check
def needs_fewer(results: Results, first: str, second: str, least: float = 1.0) -> Finding:
    """Check the ratio of evaluations, second over first method, at the smallest error that both reach."""
    require("error" in results.measured, "metric error was not measured")
    missing = [entry for entry in (first, second) if entry not in results.scores]
    require(not missing, f"{', '.join(missing)} did not run")
    pair = find_equal_error(results, first, second)
    require(pair is not None, "no error that both cross between two intermediate budgets")
    is_known = np.isfinite(pair.low)
    require(is_known, f"{number(pair.n)} instances or intermediate budgets are too few for a verdict")
    cost = f"RMSE {number(pair.error, whole=False)}: {number(pair.first)} evaluations against {number(pair.second)}"
    mean, low, high = (number(bound, whole=False) for bound in (pair.ratio, pair.low, pair.high))
    result = verdict(math.log(pair.low), math.log(pair.high), bar=math.log(least))
    return Finding(f"{mean} times as many ({low} to {high}); {cost}", result)


@check
def faster(results: Results, first: str, second: str, least: float = 1.0) -> Finding:
    """Check the geometric mean of the ratio of seconds per instance, second over first, timed one by one."""
    require({first, second} <= set(results.scores), f"no scores of {first} and {second}")
    is_timed = results.settings.get("timing") == "per_instance"
    require(is_timed, "instances were timed in batches; set timing: per_instance")
    left, right = (_average_seconds(results, entry) for entry in (first, second))
    logs = np.log(right / left).dropna().to_numpy()
    require(is_enough(len(logs)), f"too few scores of {first} and {second}")
    row = intervals(logs[:, None]).loc[0, ["mean", "low", "high"]]
    mean, low, high = (number(math.exp(value), whole=False) for value in row)
    return Finding(f"{mean} times ({low} to {high})", verdict(row["low"], row["high"], bar=math.log(least)))


def _average_seconds(results: Results, entry: str) -> pd.Series:
    return experiment.drop_failures(results.scores[entry]).groupby("instance")["seconds"].mean()


@check
def are_similar(results: Results, first: str, second: str, least: float) -> Finding:
    """Check that the mean cosine similarity of the scores of two methods is at least `least`."""
    require({first, second} <= set(results.scores), f"no scores of {first} and {second}")
    ids = results.instances["instance"]
    rows = [experiment.select_scores(results.scores[entry], ids) for entry in (first, second)]
    pairs = [(a, b) for a, b in zip(*rows, strict=True) if a is not None and b is not None]
    require(len(pairs) >= 2, f"no scores of {first} and {second}")
    left, right = (np.array(side) for side in zip(*pairs, strict=True))
    cosines = np.nan_to_num(cosine(left, right))
    row = intervals(cosines[:, None]).loc[0]
    text = f"{row['mean']:.3f} ({row['low']:.3f} to {row['high']:.3f}) on {number(len(cosines))}"
    return Finding(text, verdict(row["low"], row["high"], bar=least))


@check
def has_mostly_sign(results: Results, entry: str, feature: str, sign: int, least: float = 0.5) -> Finding:
    """Check the share of instances in which the feature's score is positive (sign 1) or negative (-1)."""
    require(entry in results.scores, f"no scores of {entry}")
    names = experiment.name_features(results)
    require(feature in names, f"no feature is called {feature}")
    rows = experiment.select_scores(results.scores[entry], results.instances["instance"])
    signed = np.array([sign * row[names.index(feature)] > 0 for row in rows if row is not None])
    require(is_enough(len(signed)), f"too few scores of {entry}")
    low, high = wilson(signed.mean(), len(signed))
    text = f"{share(signed.mean())} ({share(low)} to {share(high)}) of {number(len(signed))}"
    return Finding(text, verdict(low, high, bar=least))


@check
def check_cost_bound(results: Results, entry: str, bound: Callable[[int], float], formula: str) -> Finding:
    """Check the evaluations per instance of a method against a bound in d."""
    require(entry in results.scores, f"no scores of {entry}")
    frame = experiment.drop_failures(results.scores[entry])
    require(not frame.empty, f"every explanation of {entry} failed")
    d = frame["scores"].map(len).to_numpy()
    ratio = (frame["evaluations"].to_numpy() / np.array([bound(size) for size in d])).max()
    text = f"at most {number(frame['evaluations'].max(), 6)}, {number(ratio, whole=False)} of {formula}"
    return Finding(text, HOLDS if ratio <= 1 else FAILS)


@check
def takes_at_most(results: Results, entry: str, most: float) -> Finding:
    """Check the mean seconds per instance of a method by its 95 % interval, which exists only without batching."""
    require(entry in results.scores, f"no scores of {entry}")
    seconds = _average_seconds(results, entry)
    require(np.isfinite(seconds.mean()), f"every explanation of {entry} failed")
    separate = results.settings.get("timing") == "per_instance" and len(seconds) > 1
    half = 1.96 * seconds.std() / math.sqrt(len(seconds)) if separate else math.nan
    row = {"mean": seconds.mean(), "low": seconds.mean() - half, "high": seconds.mean() + half}
    low, high = (row["low"], row["high"]) if separate else [row["mean"]] * 2
    return Finding(f"{interval(row)} s per instance", HOLDS if high <= most else FAILS if low > most else UNDECIDED)


CHEN = "Chen et al. 2018"
SLIWINSKI = "Sliwinski et al. 2019"
TENEGGI = "Teneggi et al. 2021"
SHAP = "Lundberg & Lee 2017"
STAND_INS = (
    "Shapley methods of a library are ours here: expected_gradients stands for shap's GradientExplainer, deep_lift for "
    "its DeepExplainer, partition_500 for its Partition; its own are peer_shap_gradient, peer_shap_deep and "
    "peer_shap_partition."
)
F1 = {"metric": "localization", "statistic": "f1", "better": "higher"}
SHAPLEY_RIVALS = ("partition_500", "expected_gradients", "deep_lift")
# The paper prints a formula and names the least-squares problem that it solves; both variants are judged.
FITS = {"c_shapley_regression_printed": "as printed", "c_shapley_regression_kernel": "by the fit that it names"}
IMAGE_RIVALS = {"kernel_shap": "KernelSHAP", "sample_shapley": "SampleShapley", "saliency": "Saliency"}
PEERS = {
    "peer_shap_partition_500": "Partition with 500 evaluations",
    "peer_shap_gradient": "GradientExplainer",
    "peer_shap_deep": "DeepExplainer",
}
LIBRARY = {"crosses_1_peers": "One cross", "crosses_6_peers": "Six crosses"}
REAL = {"malaria": "Trophozoites", "lisa": "Green lights"}
# How a smaller experiment differs from the paper's; each finding states it.
SMALLER = {
    "mnist_small": "in 2 × 2 patches, by a network of 270 digits",
    "agnews_words": "by the word CNN in place of the character network",
}
CROSSES = ("crosses_6", "crosses_1", "crosses")


def _list_chen_claims() -> Iterator[Claim]:
    about_models, table_1 = (functools.partial(Claim, CHEN, section) for section in ("5.1, A", "table 1"))
    yield about_models("The word CNN on IMDB has 351,002 parameters", ("imdb",), has_size(351_002))
    yield table_1("It classifies 90.1 % of the test reviews", ("imdb",), has_accuracy(0.901))
    yield about_models("The character CNN on AG News has 11,337,988 parameters", ("agnews",), has_size(11_337_988))
    yield table_1("It classifies 90.09 % of the test news", ("agnews",), has_accuracy(0.9009))
    yield about_models("The LSTM on Yahoo Answers has 7,146,166 parameters", ("yahoo",), has_size(7_146_166))
    yield table_1("It classifies 70.84 % of the test questions", ("yahoo",), has_accuracy(0.7084))
    on_texts, ag_news = functools.partial(Claim, CHEN, "5.1"), ("agnews", "agnews_words")
    others = ("lime", "kernel_shap", "sample_shapley")
    for entry, kind in FITS.items():
        text = f"On IMDB L-Shapley has the best deletion AUC, before LIME, KernelSHAP and C-Shapley ({kind})"
        yield on_texts(text, ("imdb",), beats("l_shapley", "lime", "kernel_shap", entry))
    before = "is before LIME, KernelSHAP and SampleShapley"
    yield on_texts(f"On AG News L-Shapley {before}", ag_news, beats("l_shapley", *others))
    for entry, kind in FITS.items():
        yield on_texts(f"On AG News C-Shapley ({kind}) {before}", ag_news, beats(entry, *others))
    for entry, kind in FITS.items():
        text = f"On Yahoo Answers C-Shapley ({kind}) is before LIME, which is the next"
        yield on_texts(text, ("yahoo",), beats(entry, "lime"))
    text = "On Yahoo Answers LIME is before L-Shapley of order 1, SampleShapley and KernelSHAP"
    yield on_texts(text, ("yahoo",), beats("lime", "l_shapley", "sample_shapley", "kernel_shap"))
    for entry, called in (("l_shapley", "L-Shapley"), ("c_shapley_regression_printed", "C-Shapley")):
        text = f"{called} of a text takes less than one second at 4 d evaluations"
        yield on_texts(text, ("imdb", "agnews", "yahoo"), takes_at_most(entry, 1.0))
    text = "L-Shapley of order k on a chain needs O(2^(2k) d) evaluations"
    bound = check_cost_bound("l_shapley", lambda d: 4 * d + 2, "4 d + 2")
    yield Claim(CHEN, "3.2", text, ("imdb", "reviews", "imdb_sentence"), bound)
    about_models, on_images = (functools.partial(Claim, CHEN, section) for section in ("5.2, A", "5.2"))
    yield about_models("The CNN on MNIST classifies 99.7 % of 3s and 8s", ("mnist38",), has_accuracy(0.997))
    yield about_models("The CNN on CIFAR classifies 96.1 % of deer and horses", ("cifar10dh",), has_accuracy(0.961))
    for experiments, data in ((("mnist38", "mnist_small"), "MNIST"), (("cifar10dh",), "CIFAR")):
        for (entry, kind), (rival, called) in itertools.product(FITS.items(), IMAGE_RIVALS.items()):
            yield on_images(f"On {data} C-Shapley ({kind}) is before {called}", experiments, beats(entry, rival))
    text = "C-Shapley of all squares to 4 x 4 needs at most 4 d evaluations"
    bound = check_cost_bound("c_shapley_regression_printed", lambda d: 4 * d, "4 d")
    yield on_images(text, ("mnist38", "cifar10dh", "mnist_small"), bound)


def _list_influence_claims() -> Iterator[Claim]:
    text = "Least squares with the Shapley kernel needs fewer evaluations than sampled permutations"
    convergence = ("digits_convergence", "cancer_convergence")
    yield Claim(SHAP, "5.1", text, convergence, needs_fewer("kernel_shap", "sample_shapley"))
    on_tables = functools.partial(Claim, SLIWINSKI, "8.2")
    for name, data in (("ssl", "the Strategic Subject List"), ("compas", "COMPAS, which stands in for the list")):
        text = f"MIM and Parzen have the same direction on {data}: cosine of 0.94 or more"
        yield on_tables(text, (name,), are_similar("mim", "parzen", 0.94))
    for feature, sign, text in (
        ("age", -1, "In most cases a greater age decreases the score"),
        ("last contact", 1, "Often, here at least every other time, a later contact increases the score"),
    ):
        yield on_tables(text, ("ssl", "compas"), has_mostly_sign("mim", feature, sign))
    text = "An influence vector of a face takes 4 to 5 seconds"
    yield Claim(SLIWINSKI, "8.1", text, ("fer",), takes_at_most("mim", 5.0))


def _list_teneggi_claims() -> Iterator[Claim]:
    yield Claim(TENEGGI, "4.1", "The network finds more than 99 % of the crosses", CROSSES[:2], has_accuracy(0.99))
    yield Claim(
        TENEGGI, "4.2", "The network finds more than 99 % of the trophozoites", ("malaria",), has_accuracy(0.99)
    )
    yield Claim(TENEGGI, "4.3", "The network finds about 95 % of the green lights", ("lisa",), has_accuracy(0.95))
    compared = functools.partial(Claim, TENEGGI, "5.2")
    best = "h-Shap has the highest F1 among Shapley methods"
    for name, shown in (("crosses_1", "One cross"), ("crosses_6", "Six crosses"), ("crosses", "One to six crosses")):
        yield compared(f"{shown}: {best}", (name,), beats("h_shap", *SHAPLEY_RIVALS, **F1))
    for text, statistic in (
        (f"{best}, at the best threshold of each map", "f1_best"),
        ("h-Shap has the largest area under precision and recall among Shapley methods", "auprc"),
    ):
        yield compared(text, CROSSES, beats("h_shap", *SHAPLEY_RIVALS, **F1 | {"statistic": statistic}))
    yield compared("Grad-CAM is less accurate than h-Shap", CROSSES, beats("h_shap", "grad_cam", **F1))
    text = "h-Shap takes one to two orders of magnitude less time than Partition with 500 evaluations"
    yield compared(text, CROSSES, faster("h_shap", "partition_500", 10))
    for entry, called in (("expected_gradients", "GradientExplainer"), ("deep_lift", "DeepExplainer")):
        text = f"Only Grad-CAM is faster: before {called} (here our {entry})"
        yield compared(text, CROSSES, faster("h_shap", entry))
    yield compared("Grad-CAM is faster than h-Shap", CROSSES, faster("grad_cam", "h_shap"))
    for entry, kind in (("h_shap", "τ = 0"), ("h_shap_relative", "70 %")):
        text = (
            f"The number of crosses is irrelevant: h-Shap ({kind}) has the same F1 for one and for six, to within 0.05"
        )
        is_level = has_equal_mean(entry, 0.05, "localization", "f1")
        yield compared(text, ("crosses_1", "crosses_6"), is_level, every=True)
    for name, shown in LIBRARY.items():
        rivals = "the library's own Partition, GradientExplainer and DeepExplainer"
        text = f"{shown}: h-Shap has a higher F1 than {rivals}"
        yield compared(text, (name,), beats("h_shap", *PEERS, **F1))
    factors = (("ten times less", 10), ("less", 1), ("less", 1))
    for name, shown in LIBRARY.items():
        for (entry, called), (factor, least) in zip(PEERS.items(), factors, strict=True):
            text = f"{shown}: h-Shap takes {factor} time than the library's own {called}"
            yield compared(text, (name,), faster("h_shap", entry, least))
    rivals = {"partition_64": "Partition", "expected_gradients": "GradientExplainer"}
    for name, shown in REAL.items():
        yield compared(f"{shown}: {best}", (name,), beats("h_shap", *rivals, "deep_lift", **F1))
    for name, shown in REAL.items():
        for entry, called in rivals.items():
            text = f"{shown}: h-Shap takes less time than {called}"
            yield compared(text, (name,), faster("h_shap", entry))
    text = "A relative threshold raises F1 over the threshold of 0"
    yield compared(text, CROSSES, beats("h_shap_relative", "h_shap", **F1))


CLAIMS = (*_list_chen_claims(), *_list_influence_claims(), *_list_teneggi_claims())


def has_claims(results: Sequence[Results]) -> bool:
    """Return whether a claim names one of the experiments."""
    named = {name for claim in CLAIMS for name in claim.experiments}
    return not {result.experiment for result in results}.isdisjoint(named)


def table(results: Sequence[Results]) -> pd.DataFrame:
    """Return every claim with its finding: paper, section, claim, experiment, found here, verdict."""
    by_name = {result.experiment: result for result in results}
    return pd.DataFrame([_judge_claim(claim, by_name) for claim in CLAIMS])


def select_claims(results: Results) -> pd.DataFrame:
    """Return the claims that one experiment can judge: paper, section, claim, found here, verdict."""
    named = [claim for claim in CLAIMS if results.experiment in claim.experiments]
    rows = [_judge_claim(claim, {results.experiment: results}) for claim in named]
    testable = pd.DataFrame([row for row in rows if row["verdict"] != UNTESTABLE])
    return testable.drop(columns="experiment", errors="ignore")


def section(results: Results) -> HTML:
    """Return the papers' claims that this experiment can judge with the measured values; empty without any."""
    judged = select_claims(results)
    if judged.empty:
        return HTML("")
    timed = "each instance timed separately" if results.settings.get("timing") == "per_instance" else "timed in batches"
    result = join_parts(
        format_table(judged, text=judged.columns),
        note(
            f"Models, data and machines differ from the papers'; {timed}; 95 % intervals in brackets. A claim about an "
            "order holds if the order is significant in every comparison, fails if one comparison is significantly "
            "reversed, and is undecided otherwise. " + STAND_INS
        ),
    )
    return part("Claims of the papers", result)


def _judge_claim(claim: Claim, results: Mapping[str, Results]) -> dict:
    available = [name for name in claim.experiments if name in results]
    missing = [name for name in claim.experiments if name not in results]
    used = available if claim.every else available[:1]
    ending, name = "", ", ".join(used) or None
    if not available or (claim.every and missing):
        finding = Finding(f"{missing[0]} is not among these reports", UNTESTABLE)
    else:
        finding = claim.check(*(results[experiment] for experiment in used))
        card, remarks = results[available[0]].dataset_card, [finding.found]
        remarks += [SMALLER[name]] if name in SMALLER else []
        remarks += ["on synthetic data"] if card.get("synthetic") else []
        if card.get("subset") and finding.verdict != UNTESTABLE:
            ending = " on a subset"  # A subset decides no claim about the paper's data.
            remarks.append(f"on a {card['subset']}")
        finding = Finding(", ".join(remarks), finding.verdict)
    return {
        "paper": claim.paper,
        "section": claim.section,
        "claim": claim.text,
        "experiment": name or "–",
        "found here": finding.found,
        "verdict": ("⚠ " if finding.verdict == FAILS else "") + finding.verdict + ending,
    }
