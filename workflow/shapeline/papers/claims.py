"""The papers' quantitative claims, in our words, each with the experiments that can judge it."""

from collections.abc import Mapping, Sequence

import pandas as pd

from shapeline.papers.claim_checks import (
    FAILS,
    UNTESTABLE,
    Claim,
    Finding,
    accuracy,
    alike,
    beats,
    check_cost_bound,
    faster,
    fewer,
    level,
    mostly,
    parameters,
    takes_at_most,
)
from shapeline.report.elements import HTML, join_parts, note, part
from shapeline.report.elements import table as format_table
from shapeline.report.experiment import Results

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
F1_BEST = {**F1, "statistic": "f1_best"}
AUPRC = {**F1, "statistic": "auprc"}
SHAPLEY_RIVALS = ("partition_500", "expected_gradients", "deep_lift")
# The paper prints a formula, and names the least squares that it is meant to solve: both are judged, and no other fit.
FITS = {"c_shapley_regression_printed": "as printed", "c_shapley_regression_kernel": "by the fit that it names"}
PICTURE_RIVALS = {"kernel_shap": "KernelSHAP", "sample_shapley": "SampleShapley", "saliency": "Saliency"}
PEERS = {
    "peer_shap_partition_500": "Partition with 500 evaluations",
    "peer_shap_gradient": "GradientExplainer",
    "peer_shap_deep": "DeepExplainer",
}
LIBRARY = {"crosses_1_peers": "One cross", "crosses_6_peers": "Six crosses"}
REAL = {"malaria": "Trophozoites", "lisa": "Green lights"}
# Where an experiment is not the paper's own: what it is, said beside every finding.
SMALLER = {
    "mnist_small": "in 2 × 2 patches, by a network of 270 digits",
    "agnews_words": "by the word CNN in place of the character network",
}
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
    *(
        Claim(
            CHEN,
            "5.1",
            f"On IMDB L-Shapley has the best deletion AUC, before LIME, KernelSHAP and C-Shapley ({said})",
            ("imdb",),
            beats("l_shapley", "lime", "kernel_shap", entry),
        )
        for entry, said in FITS.items()
    ),
    Claim(
        CHEN,
        "5.1",
        "On AG News L-Shapley is before LIME, KernelSHAP and SampleShapley",
        ("agnews", "agnews_words"),
        beats("l_shapley", "lime", "kernel_shap", "sample_shapley"),
    ),
    *(
        Claim(
            CHEN,
            "5.1",
            f"On AG News C-Shapley ({said}) is before LIME, KernelSHAP and SampleShapley",
            ("agnews", "agnews_words"),
            beats(entry, "lime", "kernel_shap", "sample_shapley"),
        )
        for entry, said in FITS.items()
    ),
    *(
        Claim(
            CHEN,
            "5.1",
            f"On Yahoo Answers C-Shapley ({said}) is before LIME, which is the next",
            ("yahoo",),
            beats(entry, "lime"),
        )
        for entry, said in FITS.items()
    ),
    Claim(
        CHEN,
        "5.1",
        "On Yahoo Answers LIME is before L-Shapley of order 1, SampleShapley and KernelSHAP",
        ("yahoo",),
        beats("lime", "l_shapley", "sample_shapley", "kernel_shap"),
    ),
    *(
        Claim(
            CHEN,
            "5.1",
            f"{called} of a text takes less than one second at 4 d evaluations",
            ("imdb", "agnews", "yahoo"),
            takes_at_most(entry, 1.0),
        )
        for entry, called in (("l_shapley", "L-Shapley"), ("c_shapley_regression_printed", "C-Shapley"))
    ),
    Claim(
        CHEN,
        "3.2",
        "L-Shapley of order k on a chain needs O(2^(2k) d) evaluations",
        ("imdb", "reviews", "imdb_sentence"),
        check_cost_bound("l_shapley", lambda d: 4 * d + 2, "4 d + 2"),
    ),
    Claim(CHEN, "5.2, A", "The CNN on MNIST classifies 99.7 % of 3s and 8s", ("mnist38",), accuracy(0.997)),
    Claim(CHEN, "5.2, A", "The CNN on CIFAR classifies 96.1 % of deer and horses", ("cifar10dh",), accuracy(0.961)),
    *(
        Claim(CHEN, "5.2", f"On {data} C-Shapley ({said}) is before {called}", experiments, beats(entry, rival))
        for experiments, data in ((("mnist38", "mnist_small"), "MNIST"), (("cifar10dh",), "CIFAR"))
        for entry, said in FITS.items()
        for rival, called in PICTURE_RIVALS.items()
    ),
    Claim(
        CHEN,
        "5.2",
        "C-Shapley of all squares to 4 x 4 needs at most 4 d evaluations",
        ("mnist38", "cifar10dh", "mnist_small"),
        check_cost_bound("c_shapley_regression_printed", lambda d: 4 * d, "4 d"),
    ),
    Claim(
        SHAP,
        "5.1",
        "Least squares with the Shapley kernel needs fewer evaluations than sampled permutations",
        ("digits_convergence", "cancer_convergence"),
        fewer("kernel_shap", "sample_shapley"),
    ),
    Claim(
        SLIWINSKI,
        "8.2",
        "MIM and Parzen have the same direction on the Strategic Subject List: cosine of 0.94 or more",
        ("ssl",),
        alike("mim", "parzen", 0.94),
    ),
    Claim(
        SLIWINSKI,
        "8.2",
        "MIM and Parzen have the same direction on COMPAS, which stands in for the list: cosine of 0.94 or more",
        ("compas",),
        alike("mim", "parzen", 0.94),
    ),
    *(
        Claim(SLIWINSKI, "8.2", said, ("ssl", "compas"), mostly("mim", feature, sign))
        for feature, sign, said in (
            ("age", -1, "In most cases a greater age decreases the score"),
            ("last contact", 1, "Often, here at least every other time, a later contact increases the score"),
        )
    ),
    Claim(SLIWINSKI, "8.1", "An influence vector of a face takes 4 to 5 seconds", ("fer",), takes_at_most("mim", 5.0)),
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
    *(
        Claim(
            TENEGGI,
            "5.2",
            f"The number of crosses is irrelevant: h-Shap ({said}) has the same F1 for one and for six, to within 0.05",
            ("crosses_1", "crosses_6"),
            level(entry, 0.05, "localization", "f1"),
            every=True,
        )
        for entry, said in (("h_shap", "τ = 0"), ("h_shap_relative", "70 %"))
    ),
    *(
        Claim(
            TENEGGI,
            "5.2",
            f"{shown}: h-Shap has a higher F1 than the library's own Partition, GradientExplainer and DeepExplainer",
            (experiment,),
            beats("h_shap", *PEERS, **F1),
        )
        for experiment, shown in LIBRARY.items()
    ),
    *(
        Claim(
            TENEGGI,
            "5.2",
            f"{shown}: h-Shap takes {told} time than the library's own {called}",
            (experiment,),
            faster("h_shap", entry, least),
        )
        for experiment, shown in LIBRARY.items()
        for (entry, called), (told, least) in zip(
            PEERS.items(), (("ten times less", 10), ("less", 1), ("less", 1)), strict=True
        )
    ),
    *(
        Claim(
            TENEGGI,
            "5.2",
            f"{shown}: h-Shap has the highest F1 among Shapley methods",
            (experiment,),
            beats("h_shap", "partition_64", "expected_gradients", "deep_lift", **F1),
        )
        for experiment, shown in REAL.items()
    ),
    *(
        Claim(TENEGGI, "5.2", f"{shown}: h-Shap takes less time than {called}", (experiment,), faster("h_shap", entry))
        for experiment, shown in REAL.items()
        for entry, called in (("partition_64", "Partition"), ("expected_gradients", "GradientExplainer"))
    ),
    Claim(
        TENEGGI,
        "5.2",
        "A relative threshold raises F1 over the threshold of 0",
        CROSSES,
        beats("h_shap_relative", "h_shap", **F1),
    ),
)


def concern(results: Sequence[Results]) -> bool:
    """Return whether an experiment is one that a claim names."""
    return not {result.experiment for result in results}.isdisjoint(
        name for claim in CLAIMS for name in claim.experiments
    )


def table(results: Sequence[Results]) -> pd.DataFrame:
    """Every claim with what the results say: paper, section, claim, experiment, found, verdict."""
    by_name = {result.experiment: result for result in results}
    return pd.DataFrame([_judge_claim(claim, by_name) for claim in CLAIMS])


def of(results: Results) -> pd.DataFrame:
    """The claims that one experiment can judge, for its own page: paper, section, claim, found, verdict."""
    named = [claim for claim in CLAIMS if results.experiment in claim.experiments]
    judged = [_judge_claim(claim, {results.experiment: results}) for claim in named]
    testable = pd.DataFrame([row for row in judged if row["verdict"] != UNTESTABLE])
    return testable.drop(columns="experiment", errors="ignore")


def section(results: Results) -> HTML:
    """The papers' claims that this experiment can judge, beside what was measured; empty where there is none."""
    judged = of(results)
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
    there = [name for name in claim.experiments if name in results]
    absent = [name for name in claim.experiments if name not in results]
    ending, name = "", ", ".join(there if claim.every else there[:1]) if there else None
    if not there or (claim.every and absent):
        finding = Finding(f"{absent[0]} is not among these reports", UNTESTABLE)
    else:
        finding = claim.check(*(results[one] for one in (there if claim.every else there[:1])))
        if name in SMALLER:
            finding = Finding(f"{finding.found}, {SMALLER[name]}", finding.verdict)
        card = results[there[0]].dataset_card
        if card.get("synthetic"):
            finding = Finding(f"{finding.found}, on synthetic data", finding.verdict)
        if card.get("subset") and finding.verdict != UNTESTABLE:
            ending = " on a subset"  # which decides no claim about the paper's data
            finding = Finding(f"{finding.found}, on a {card['subset']}", finding.verdict)
    return {
        "paper": claim.paper,
        "section": claim.section,
        "claim": claim.text,
        "experiment": name or "–",
        "found here": finding.found,
        "verdict": ("⚠ " if finding.verdict == FAILS else "") + finding.verdict + ending,
    }
