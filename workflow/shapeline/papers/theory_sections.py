"""Sections of the theory report, from the measurements of `shapeline.theory`: a summary and a section per statement."""

import functools
from collections.abc import Callable

import numpy as np
import pandas as pd

from shapeline import graphs
from shapeline.papers.theory_figures import couplings, finite_weight, hierarchy, neighbourhoods, points, shares
from shapeline.report.elements import HTML, figure, join_parts, note, pair, table
from shapeline.report.formatting import number
from shapeline.report.sections.common import top
from shapeline.theory.checks import AXIOMS, Checks, Search, measure_linear_share
from shapeline.theory.estimators import ESTIMATORS, ROUNDING, Approximation


def verdict(discrepancy: float | None) -> str:
    """Return 'holds' or the discrepancy, for a table; a discrepancy within rounding counts as none."""
    if discrepancy is None:
        return ""
    size = number(discrepancy, 2, whole=False) if discrepancy else "0"
    return f"holds ({size})" if discrepancy < ROUNDING else f"⚠ off by {size}"


def header(checks: Checks) -> HTML:
    """Return title, key figures and main findings."""
    rows = _list_statements(checks)
    failed = [row for row in rows if row["as printed"].startswith("⚠")]
    estimators = checks.efficiency
    facts = {
        "statements checked": len(rows),
        "hold as printed": len(rows) - len(failed),
        "hold once corrected": sum(row["corrected"].startswith("holds") for row in failed),
        "bounds checked, one per feature": number(sum(_count_cases(checks, key)[1] for key in ESTIMATORS)),
        "efficient estimators": f"{sum(row['any game'] < ROUNDING for row in estimators)} of {len(estimators)}",
    }
    return top("Theory: statements of the papers, checked numerically", (), _list_headlines(checks), facts)


def _list_headlines(checks: Checks) -> list[str]:
    chain = measure_linear_share(graphs.chain(9), 8)
    grid = measure_linear_share(graphs.grid(4, 4), 6)
    _, cases, violated = _count_cases(checks, "c_shapley_myerson")
    worst = max(_count_cases(checks, key)[0] for key in ("l_shapley", "c_shapley_myerson"))
    return [
        "The weights of C-Shapley as printed (Chen et al. 2018, eq. 6) fit only sets with exactly two neighbours. In a "
        f"linear model they multiply the correct score by {number(chain.min(), 2)} to {number(chain.max(), 2)} on a "
        f"chain of 9 and by {number(grid.min(), 2)} to {number(grid.max(), 2)} on a whole 4 × 4 grid; with weights: "
        "myerson every score is correct.",
        "Theorem 2, the 6ε bound of C-Shapley, is false with those weights: without any coupling ε is 0 and the "
        f"error is {number(_measure_uncoupled(checks.sweep.chain, 'c_shapley_paper'), 2)} nats. With Myerson weights "
        f"it held in {number(cases - violated)} of {number(cases)} cases.",
        f"The bounds are loose: the errors of L-Shapley and of C-Shapley with Myerson weights reached at most "
        f"{100 * worst:.0f} % of them.",
        "The Shapley kernel proof has two misprints and one silent assumption, v(∅) = 0; its result stands.",
    ]


def _measure_uncoupled(runs: dict[int, list[Approximation]], key: str) -> float:
    """Return the largest error of a feature at coupling 0, over all orders."""
    return max(float(order[0].errors[key].max()) for order in runs.values())


def summary(checks: Checks) -> HTML:
    """Return a row per statement: as printed, and as corrected where necessary."""
    statements, expectations = pd.DataFrame(_list_statements(checks)), checks.expectations
    return join_parts(
        table(statements, text=list(statements.columns)),
        note(
            "In brackets: the largest discrepancy, for random games with values of order 1; for a bound, the largest "
            "error as a share of the bound. ⚠: the statement fails as printed. (7), (8) and (9) are the conditional, "
            "the marginal and the plug-in value of a coalition. For dependent features (7) and (8) differ by "
            f"{number(expectations['dependent'], 2)}; for a model that is not linear (8) and (9) differ by "
            f"{number(expectations['curved'], 2)}."
        ),
    )


def _list_statements(checks: Checks) -> list[dict[str, str]]:
    kernel = checks.kernel.comparisons
    symmetric = max(
        row[name] for row in checks.charnes for name in ("form (6)", "form (−1)", "symmetric_least_squares")
    )
    local, connected, printed = (_count_cases(checks, key) for key in ESTIMATORS)
    deviation = max(abs(mean - expected) / error for *_, expected, mean, error in checks.hierarchy.visits)
    below = max(bound - lowest for _, _, bound, lowest, _ in checks.hierarchy.similarity)
    costly = checks.hierarchy.costly - checks.hierarchy.costly_empty
    size = f"{number(deviation, 2)} standard errors off"
    visits = f"holds (at most {size})" if deviation < 5 else f"⚠ {size}"
    cost = f"⚠ exceeded {costly} times" if costly else "holds for k ≥ 1"
    similarity = "holds" if below < ROUNDING else f"⚠ below by {number(below, 2)}"
    gaps = ("eq. 6: root mean square difference", "Myerson weights: largest difference")
    myerson = [max(row[name] for row in checks.myerson) for name in gaps]
    banzhaf = max(row["largest relative discrepancy"] for row in checks.banzhaf)
    rows = [(f"Kernel proof: {row['formula']}", "Lundberg 2017", verdict(row[""]), verdict(row[" "])) for row in kernel]
    rows += [
        ("Solution of least squares with any weight q(s)", "Charnes et al. 1988", verdict(symmetric), ""),
        ("Lemma 1, a sum of binomials", "Chen et al. 2018", verdict(checks.lemma_1), ""),
        ("Theorem 1: L-Shapley is within 4ε", "Chen et al. 2018", _describe_bounds(local), ""),
        ("Theorem 2: C-Shapley is within 6ε", "Chen et al. 2018", *map(_describe_bounds, (printed, connected))),
        ("§4.2: C-Shapley of order d is the Myerson value", "Chen et al. 2018", *map(verdict, myerson)),
        ("Theorem 6.1: MIM in a game is a multiple of Banzhaf", "Sliwinski et al. 2019", verdict(banzhaf), ""),
        ("Theorem 3.2: expected nodes that h-Shap visits", "Teneggi et al. 2021", visits, ""),
        ("Remark 3.1: h-Shap costs at most 2ᵞ k logᵧ n", "Teneggi et al. 2021", cost, ""),
        ("Theorem 3.4: least similarity of h-Shap to Shapley", "Teneggi et al. 2021", similarity, ""),
        ("Theorem 4.2: MIM alone keeps the axioms", "Sliwinski et al. 2019", _describe_search(checks.uniqueness), ""),
        *((*statement, verdict(discrepancy), "") for statement, discrepancy in checks.identities.items()),
    ]
    names = ("statement", "source", "as printed", "corrected")
    return [dict(zip(names, row, strict=True)) for row in rows]


def _describe_search(search: Search) -> str:
    if search.mim > ROUNDING or search.others < 1e-3:
        return f"⚠ MIM is off by {number(search.mim, 2)}, a sum of other terms by {number(search.others, 2)}"
    return f"holds among {len(search.broken)} other terms (off by {number(search.others, 2)} or more)"


def _describe_bounds(cases: tuple[float, int, int]) -> str:
    share, _, violated = cases
    return f"⚠ violated in {violated} cases" if violated else f"holds (at most {100 * share:.0f} % of the bound)"


def _count_cases(checks: Checks, key: str, which: str = "all") -> tuple[float, int, int]:
    """Return the largest ratio of error to bound (of bounds above 0), number of cases, number violated."""
    bound, error = points(checks, key, which).T
    is_positive = bound > ROUNDING
    return float((error[is_positive] / bound[is_positive]).max()), len(bound), int((error > bound + ROUNDING).sum())


def _compare_window(checks: Checks, key: str) -> float:
    """Return the largest ratio of error to the bound that the proofs give where S is the entire window."""
    runs = [*checks.sweep.random, *(run for order in checks.sweep.chain.values() for run in order[1:])]
    bounds = [2 * run.local_window if key == "l_shapley" else 4 * run.connected_window for run in runs]
    return max(float((run.errors[key] / bound).max()) for run, bound in zip(runs, bounds, strict=True))


def kernel_section(checks: Checks) -> HTML:
    """Return the formulas of the kernel proof, the designs that use them, and the error from finite end weights."""
    kernel = checks.kernel
    formulas = _format_rows(kernel.comparisons, str, str, verdict, str, verdict)
    designs = pd.DataFrame(
        {"design": list(kernel.designs), "largest difference": [number(error, 2) for error in kernel.designs.values()]}
    )
    drawing = figure(
        finite_weight(kernel),
        "Largest error of the scores against the weight given to the full coalition",
        "The error of the printed recipe, a large finite weight on v(N), in float64.",
        numbers=pd.DataFrame({"weight": kernel.end_weights, "largest_error": kernel.end_errors}),
    )
    return join_parts(
        table(formulas, f"The formulas of the proof, d = {kernel.d}", text=["as printed", "corrected"]),
        note(
            "As printed, the third is undefined at s = d − 1. In the last the empty coalition is a row of zeros, so "
            "v(∅) drops out of the fit and every score is off by v(∅)/d."
        ),
        pair(
            join_parts(
                table(designs, "The designs against the Shapley value by enumeration"),
                note("They meet v(∅) and v(N) as constraints, so no weight has to be chosen."),
            ),
            drawing,
        ),
    )


def charnes_section(checks: Checks) -> HTML:
    """Return a row per weight: closed forms against the direct fit, and the distance to known values."""
    short = functools.partial(number, digits=2)
    distance = [lambda value: "0" if value < ROUNDING else short(value)] * 2
    frame = _format_rows(checks.charnes, str, short, short, short, *distance)
    return join_parts(
        table(frame),
        note(
            "First three columns: largest difference from a direct constrained fit. Distances: root mean square over "
            "20 random games of 7 features, in units of that of the Shapley values."
        ),
    )


def _format_rows(rows: list[dict], *formats: Callable[..., str]) -> pd.DataFrame:
    """Return rows of measurements as text, by a format per column."""
    return pd.DataFrame(
        {name: write(value) for (name, value), write in zip(row.items(), formats, strict=True)} for row in rows
    )


def neighbourhood_section() -> HTML:
    """Return figure 1 of Chen et al. (2018), with the number of sets that each estimator sums over."""
    grid = graphs.grid(9, 9)
    rows = []
    for order in (1, 2):  # order 3 has 847,472 sets, which takes seconds
        window = sorted(graphs.neighborhood(grid, 40, order))
        connected = graphs.connected_table(graphs.adjacency(grid, window), window.index(40))
        counts = {"L-Shapley: all sets with i": 2 ** (len(window) - 1), "C-Shapley: connected ones": len(connected)}
        rows.append({"order k": order, "features": len(window)} | {name: number(n) for name, n in counts.items()})
    return join_parts(
        figure(
            neighbourhoods(),
            "Neighbourhood of order 2 on a grid, a set in pieces and a connected one",
            "The feature i is orange, its neighbourhood N₂(i) grey, the rest of a set blue.",
        ),
        table(pd.DataFrame(rows), "Number of sets in the score of a feature inside a grid"),
    )


def approximation_section(checks: Checks) -> HTML:
    """Return errors and bounds against the coupling, every case against its bound, and the counts."""
    rows = []
    for name, key, which in (
        ("L-Shapley, 4ε (theorem 1)", "l_shapley", "all"),
        ("C-Shapley, Myerson weights, 6ε (theorem 2, corrected)", "c_shapley_myerson", "all"),
        ("C-Shapley, eq. 6, 6ε (theorem 2 as printed)", "c_shapley_paper", "all"),
        ("L-Shapley, predicted class: not covered", "l_shapley", "predicted"),
        ("C-Shapley, Myerson weights, predicted class: not covered", "c_shapley_myerson", "predicted"),
    ):
        share, cases, violated = _count_cases(checks, key, which)
        runs = checks.sweep.predicted if which == "predicted" else checks.sweep.chain
        rows.append(
            {
                "estimator and bound": name,
                "cases": number(cases),
                "bound violated": f"⚠ {violated}" if violated else "never",
                "largest error, share of its bound": number(share, 2),
                "largest error at coupling 0": number(_measure_uncoupled(runs, key), 2),
            }
        )
    tighter = max(_compare_window(checks, "l_shapley"), _compare_window(checks, "c_shapley_myerson"))
    return join_parts(
        figure(
            couplings(checks),
            "Error of L-Shapley and C-Shapley and their bounds against the coupling; every case against its bound",
            f"Left and middle: mean over the features of a Markov chain of {checks.sweep.d}; solid: E|estimate − "
            "Shapley value|, dashed: the bound. Right: every feature of every distribution; above the line the bound "
            "is violated.",
            numbers=pd.concat(
                pd.DataFrame(points(checks, key), columns=["bound", "error"]).assign(estimator=key)
                for key in ("l_shapley", "c_shapley_myerson", "c_shapley_paper")
            ),
        ),
        table(pd.DataFrame(rows)),
        note(
            f"A case is one feature of one joint distribution: {len(checks.sweep.couplings)} couplings of the chain at "
            f"orders 1 and 2, and {len(checks.sweep.random)} random joint distributions without structure on a chain "
            "of 5 or a 2 × 3 grid. ε is the least, over all sets S that the theorem allows, of the largest absolute "
            "conditional mutual information, found by enumeration. Predicted class: the same with the log-probability "
            "of the predicted class, the score of the paper's own experiments, which the theorems do not cover."
        ),
        note(
            "Where S is the whole window the proofs give 2ε and 4ε; the errors reached at most "
            f"{100 * tighter:.0f} % of these. For a smaller S, the second case of theorem 2's proof uses condition "
            "(10) for sets outside S, which the theorem does not assume; what follows without it is 8ε."
        ),
    )


def myerson_section(checks: Checks) -> HTML:
    """Return the result of eq. 6 for a linear model, and the distance to the Myerson value on several graphs."""

    def write_share(share: np.ndarray) -> str:
        ends = sorted({share.min(), share.max()}) if np.ptp(share) > ROUNDING else share[:1]
        return " to ".join(number(value, 2, whole=False) for value in ends)

    short = functools.partial(number, digits=2)
    frame = _format_rows(checks.myerson, str, short, short, lambda gap: f"⚠ {short(gap)}", write_share)
    return join_parts(
        figure(
            shares(),
            "Share of a linear model's term that eq. 6 returns, by position on a chain and on a grid",
            "For a linear model the correct share is 1, which Myerson weights give at every order. Left: a chain of "
            "9. Right: a 4 × 4 grid of patches.",
        ),
        table(frame, "C-Shapley of order d on 50 random games that are additive over components"),
        note("Differences to the Shapley value of the game, by enumeration, in units of its root mean square."),
    )


def efficiency_section(checks: Checks) -> HTML:
    """Return a row per estimator: whether its scores sum to v(N) - v(empty), for three kinds of game."""

    def cell(gap: float) -> str:
        return "holds" if gap < ROUNDING else f"off by {number(gap, 2)}"

    frame = _format_rows(checks.efficiency, str, number, cell, cell, cell)
    return join_parts(
        table(frame),
        note(
            "200 random games of 9 features on a chain. Off by: RMS of Σφ − (v(N) − v(∅)), in units of "
            "that of v(N) − v(∅). myerson is efficient where the graph is connected."
        ),
    )


def banzhaf_section(checks: Checks) -> HTML:
    """Return the constant of theorem 6.1 by number of features."""
    constant = "{:,.10g}".format
    return table(_format_rows(checks.banzhaf, str, constant, constant, functools.partial(number, digits=2)))


def uniqueness_section(checks: Checks) -> HTML:
    """Return the alternative terms of a measure, with the axioms that each violates."""
    result = checks.uniqueness
    rows = [
        {"term": name, **{axiom: "⚠ violated" if axiom in broken else "" for axiom in AXIOMS}}
        for name, broken in result.broken.items()
    ]
    return join_parts(
        table(pd.DataFrame(rows), "Other terms of a measure", text=["term"]),
        note(
            "No sum of them satisfies all axioms: with coefficients of length 1 the residual is at least "
            f"{number(result.others, 2)}, also where a multiple of MIM is added. MIM with four choices of α "
            f"violates none (largest residual {number(result.mim, 2)}). Lemma 4.1 represents monotonicity: a new point "
            "y moves the influence only along y − x. This is a search among these terms and not a proof. It does not "
            "test continuity, which 1/r and 1/r² violate (see the influence pages)."
        ),
    )


def hierarchy_section(checks: Checks) -> HTML:
    """Return visited nodes and similarity of h-Shap: theory as curves, simulations as points."""
    simulated = checks.hierarchy
    visits = pd.DataFrame(simulated.visits, columns=["gamma", "rho", "expected", "mean", "standard_error"])
    cosines = pd.DataFrame(simulated.similarity, columns=["leaf_cells", "important_cells", "bound", "lowest", "mean"])
    return join_parts(
        figure(
            hierarchy(simulated),
            "Expected number of visited nodes, and lower bound on the similarity, with simulations",
            f"Left: curves are theorem 3.2 for n = {simulated.n}, points means of 2,000 simulated runs with 95 % "
            f"intervals (smaller than the points). Right: lines are the bound for {simulated.cells} cells, points the "
            "lowest cosine of 300 random games.",
            numbers=pd.concat([visits.assign(theorem="3.2"), cosines.assign(theorem="3.4")]),
        ),
        note(
            f"In {number(simulated.runs)} runs the cost exceeded 2ᵞ k logᵧ n only in the "
            f"{number(simulated.costly_empty)} without any important cell (k = 0), where the root is still evaluated."
            if simulated.costly == simulated.costly_empty
            else f"The cost exceeded 2ᵞ k logᵧ n in {number(simulated.costly)} of {number(simulated.runs)} runs."
        ),
    )
