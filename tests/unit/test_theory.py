"""The theorems: closed forms against brute force, printed against corrected, and the notebook that shows them."""

import itertools
import re
import subprocess
import sys
from math import log

import networkx
import numpy as np
import pytest

from shapeline import designs, graphs, seeds
from shapeline.errors import ShapelineError
from shapeline.influence.measures import mim
from shapeline.papers import theory_figures as figures
from shapeline.theory import checks as identities
from shapeline.theory import estimators, visited_nodes
from shapeline.theory.checks import Checks, check_all
from tests.fixtures import notebooks

from . import games


@pytest.fixture(scope="module")
def checks() -> Checks:
    return check_all(seed=0)


# --- hierarchical Shapley -----------------------------------------------------------------------------------------


def visited(important, gamma):
    """Nodes of the full tree that hold an important cell, and the root."""
    count, size = 1, len(important) // gamma
    while size >= 1:
        count += sum(any(important[first : first + size]) for first in range(0, len(important), size))
        size //= gamma
    return count


def test_expected_visited_nodes_of_the_paper():
    assert visited_nodes.expected_visited_nodes(64, 2, 0.05) == pytest.approx(16.8326, abs=1e-4)


@pytest.mark.parametrize(("n", "gamma"), [(1, 2), (2, 2), (8, 2), (9, 3), (4, 4)])
@pytest.mark.parametrize("rho", [0.0, 1e-9, 0.2, 0.7, 1.0])
def test_expected_visited_nodes_is_the_mean_over_all_samples(n, gamma, rho):
    expected = 0.0
    for important in itertools.product((False, True), repeat=n):
        expected += rho ** sum(important) * (1 - rho) ** (n - sum(important)) * visited(important, gamma)
    assert visited_nodes.expected_visited_nodes(n, gamma, rho) == pytest.approx(expected, rel=1e-12)


def test_simulated_visits_count_the_nodes_that_hold_an_important_cell():
    run = visited_nodes.simulate_visits(16, 4, 0.1, runs=200, seed=3)
    important = np.random.default_rng(seeds.seed_of("theory", 3, "visits 16 4 0.1")).random((200, 16)) < 0.1
    assert run.nodes.tolist() == [visited(row, 4) for row in important]
    assert run.important.tolist() == important.sum(axis=1).tolist()
    inner = [visited(row.reshape(4, 4).any(axis=1), 4) for row in important]  # leaves are not played
    assert run.evaluations.tolist() == [16 * count for count in inner]


@pytest.mark.parametrize(("n", "s"), [(6, 1), (8, 2), (8, 4), (9, 3)])
def test_similarity_bound_is_never_passed_and_is_met(n, s):
    for k in range(1, n + 1):
        cosines = []
        for cells in itertools.combinations(range(n), k):
            leaves = {cell // s for cell in cells}
            exact, found = np.zeros(n), np.zeros(n)
            exact[list(cells)] = 1 / k
            for leaf in leaves:
                found[leaf * s : leaf * s + s] = 1 / (s * len(leaves))
            cosines.append(exact @ found / np.linalg.norm(exact) / np.linalg.norm(found))
        bound = visited_nodes.similarity_lower_bound(n, s, k)
        assert min(cosines) >= bound - 1e-12
        if k <= n // s or k > n - n // s:
            assert min(cosines) == pytest.approx(bound, rel=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: visited_nodes.expected_visited_nodes(60, 2, 0.1), "no power of gamma = 2; the nearest are 32 and 64"),
        (lambda: visited_nodes.expected_visited_nodes(64, 1, 0.1), "gamma is 1"),
        (lambda: visited_nodes.expected_visited_nodes(64, 2, 1.5), "rho is 1.5"),
        (lambda: visited_nodes.expected_visited_nodes(64, 2, float("nan")), "rho is nan"),
        (lambda: visited_nodes.similarity_lower_bound(64, 0, 3), "s is 0"),
        (lambda: visited_nodes.similarity_lower_bound(64, 4, 65), "k is 65 of n = 64 cells"),
        (lambda: estimators.kernel_proof(3), "d is 3"),
    ],
)
def test_mistakes_are_one_line(call, message):
    with pytest.raises(ShapelineError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


# --- least squares ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [4, 6, 9])
def test_the_kernel_proof_holds_once_corrected(d):
    proof = estimators.kernel_proof(d, games=5, seed=d)
    gram, inverse, member, other, game = proof.comparisons
    # Rounding grows with the condition of the system, and over the 2^d normal values of a game with their length.
    rounding, length = proof.condition * np.finfo(float).eps, 2 ** (d / 2)
    for row, bound in ((gram, rounding), (member, rounding), (game, rounding * length)):
        assert row[" "] < bound and row[""] > 0.01, row
    assert gram[""] == pytest.approx(abs((d - 1) / d - 1 / (d - 1)), abs=rounding)
    assert max(inverse[""], other[""]) < rounding
    assert max(proof.designs.values()) < 4 * d * length * np.finfo(float).eps
    least = proof.end_errors.argmin()
    assert 1e-12 < proof.end_errors[least] < 1e-5 and 0 < least < len(proof.end_errors) - 1


def test_the_recipe_as_printed_is_off_by_the_empty_coalition_over_d():
    d, game = 5, games.table(5, seed=2)
    X = np.array([[r >> i & 1 for i in range(d)] for r in range(2**d)], float)
    weight = [games.kernel(d, s) if 0 < s < d else 1e7 for s in X.sum(axis=1).astype(int).tolist()]
    fit = np.linalg.solve(X.T * weight @ X, X.T * weight @ game)
    np.testing.assert_allclose(fit - games.shapley(game), game[0] / d, atol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_general_solution_equals_the_fit_by_lagrange_multipliers(seed):
    d = 3 + seed
    q = np.random.default_rng(seed).exponential(size=d - 1)
    q[seed % (d - 1)] = 0  # a size may have no weight
    game = games.table(d, seed)
    expected = games.constrained_least_squares(game, lambda s: q[s - 1])
    closed, paired = estimators.charnes_solution(game[None], q)
    for found in (closed, paired, estimators.constrained_least_squares(game[None], q)):
        np.testing.assert_allclose(found[0], expected, atol=1e-12)


def test_named_weights_are_shapley_and_banzhaf(checks):
    found = {row["weight q(s)"].split(":")[0]: list(row.values())[1:] for row in checks.charnes}
    assert found["Shapley"][3] < 1e-12 < 0.1 < found["Shapley"][4]
    assert found["all coalitions alike"][4] < 1e-12 < 0.1 < found["all coalitions alike"][3]
    assert all(max(row[:3]) < 1e-12 for row in found.values())


# --- L- and C-Shapley ---------------------------------------------------------------------------------------------


def slow_information(joint, d, i, V, U, with_class):
    """E|log P(i, V | U, Y) / (P(i | U, Y) P(V | U, Y))| from dictionaries; without Y if it is omitted."""
    classes = range(joint.shape[1])

    def probability(x, y, nodes):
        return sum(
            joint[r, c]
            for r in range(2**d)
            for c in classes
            if all(r >> j & 1 == x >> j & 1 for j in nodes) and (c == y or not with_class)
        )

    total = 0.0
    for x in range(2**d):
        for y in classes:
            p = {
                key: probability(x, y, nodes)
                for key, nodes in (("iVU", {i} | V | U), ("U", U), ("iU", {i} | U), ("VU", V | U))
            }
            total += joint[x, y] * abs(log(p["iVU"] * p["U"] / p["iU"] / p["VU"]))
    return total


def subsets(nodes):
    nodes = sorted(nodes)
    return [set(part) for size in range(len(nodes) + 1) for part in itertools.combinations(nodes, size)]


@pytest.mark.parametrize("graph", [networkx.path_graph(4), networkx.cycle_graph(4)], ids=["chain", "cycle"])
@pytest.mark.parametrize("kind", ["any joint", "independent given the class"])
def test_epsilons_are_those_of_the_conditions(graph, kind):
    d, order, node = 4, 1, 1
    rng = np.random.default_rng(5)
    joint = rng.dirichlet(np.full(2**d * 2, 0.7)).reshape(2**d, 2)
    if kind != "any joint":  # then all the information is in the terms without the class
        bits, chance = np.arange(2**d)[:, None] >> np.arange(d) & 1, rng.uniform(0.1, 0.9, (2, 1, d))
        joint = np.where(bits == 1, chance, 1 - chance).prod(axis=-1).T * [0.3, 0.7]

    def most(pairs):
        return max(
            (slow_information(joint, d, node, V, U, given) for U, V in pairs if V for given in (True, False)),
            default=0.0,
        )

    window = {node, *graph.adj[node]}
    local, connected = {}, {}
    for S in subsets(window):
        if node in S:
            key = frozenset(S)
            outside = subsets(set(range(d)) - S)
            local[key] = most((U, V) for U in subsets(S - {node}) for V in outside)
            joined = [U for U in subsets(S) if node in U and networkx.is_connected(graph.subgraph(U))]
            pairs = []
            for U in joined:
                near = U | {other for member in U for other in graph.adj[member]}
                pairs += [(U - {node}, V) for V in subsets(set(range(d)) - near)]
            connected[key] = max(local[key], most(pairs))
    found = estimators.approximate(joint, graph, order)
    whole = frozenset(window)
    assert found.local[node] == pytest.approx(min(local.values()), rel=1e-10)
    assert found.connected[node] == pytest.approx(min(connected.values()), rel=1e-10)
    assert found.local_window[node] == pytest.approx(local[whole], rel=1e-10)
    assert found.connected_window[node] == pytest.approx(connected[whole], rel=1e-10)


@pytest.mark.parametrize("score", ["expected", "predicted"])
def test_errors_are_expectations_over_inputs(score):
    d, graph = 3, graphs.chain(3)
    joint = np.random.default_rng(8).dirichlet(np.ones(2**d * 3)).reshape(2**d, 3)
    expected = np.zeros(d)
    for x in range(2**d):
        game = np.zeros(2**d)
        for S in range(2**d):
            same = [r for r in range(2**d) if r & S == x & S]
            conditional = joint[same].sum(axis=0) / joint[same].sum()
            weight = joint[x] / joint[x].sum()
            if score == "predicted":
                weight = np.eye(3)[joint[x].argmax()]
            game[S] = weight @ np.log(conditional)
        expected += joint[x].sum() * np.abs(games.l_shapley(game, graph, 1, "absent") - games.shapley(game))
    np.testing.assert_allclose(
        estimators.approximate(joint, graph, 1, score).errors["l_shapley"], expected, rtol=1e-9, atol=1e-12
    )


def test_chain_model_is_a_markov_chain_that_couples():
    for coupling in (0.0, 0.8):
        joint = estimators.build_chain(coupling, d=5, seed=2)
        assert joint.sum() == pytest.approx(1) and joint.min() > 0
        for given in (True, False):
            apart = slow_information(joint, 5, 1, {3, 4}, {2}, given)
            beside = slow_information(joint, 5, 1, {2}, set(), given)
            assert apart < 1e-12 and (beside < 1e-12) == (coupling == 0)


def test_both_bounds_hold_and_vanish_without_coupling(checks):
    for runs in (*checks.sweep.chain.values(), checks.sweep.random):
        for run in runs:
            assert (run.errors["l_shapley"] <= 4 * run.local + 1e-12).all()
            assert (run.errors["l_shapley"] <= 2 * run.local_window + 1e-12).all()
            assert (run.errors["c_shapley_myerson"] <= 6 * run.connected + 1e-12).all()
            assert (run.errors["c_shapley_myerson"] <= 4 * run.connected_window + 1e-12).all()
    for order in (1, 2):
        first, *coupled = checks.sweep.chain[order]
        assert max(first.local.max(), first.connected.max()) < 1e-12
        assert max(first.errors["l_shapley"].max(), first.errors["c_shapley_myerson"].max()) < 1e-12
        means = [run.errors["l_shapley"].mean() for run in coupled]
        assert means == sorted(means) and means[-1] > 0.01


def test_theorem_2_is_false_with_the_weights_of_equation_6(checks):
    run = checks.sweep.chain[2][0]
    read = [0, 2, 4]
    assert (run.errors["c_shapley_paper"][read] > 0.05).all() and run.connected.max() < 1e-12
    # Without coupling every marginal contribution is the same, so what is missing is the sum of the weights to 1.
    share = identities.measure_linear_share(graphs.chain(6), 2)
    np.testing.assert_allclose(run.errors["c_shapley_paper"], (1 - share) * run.shapley, atol=1e-12)


def test_on_a_markov_chain_c_shapley_of_every_order_is_l_shapley_of_order_1():
    chain = graphs.chain(6)
    found = [estimators.approximate(estimators.build_chain(1.2, 6, 4), chain, order) for order in (1, 2, 5)]
    for run in found:
        np.testing.assert_allclose(run.errors["c_shapley_myerson"], found[0].errors["l_shapley"], atol=1e-12)
    assert (found[1].errors["l_shapley"] < found[0].errors["l_shapley"]).all()


def test_lemma_1(checks):
    assert checks.lemma_1 < 1e-12


# --- Myerson, efficiency, Banzhaf ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["grid", "cycle", "disconnected", "random", "one"])
def test_additive_games_are_sums_over_components(name):
    graph = games.GRAPHS[name]
    game = games.table(graph.number_of_nodes(), seed=1)
    np.testing.assert_allclose(
        estimators.additive_over_components(graph, game[None])[0], games.myerson_game(game, graph), atol=1e-12
    )


def test_equation_6_on_a_linear_model():
    for d in (2, 5, 9):
        share = identities.measure_linear_share(graphs.chain(d), d)
        assert share[0] == pytest.approx(1 / 2 - 1 / ((d + 1) * (d + 2)), rel=1e-12)
        weights = np.arange(1.0, d + 1)
        found = games.scores(designs.c_shapley(graphs.chain(d), d), games.linear(weights))
        np.testing.assert_allclose(found, share * weights, atol=1e-12)
    np.testing.assert_allclose(identities.measure_linear_share(graphs.grid(3, 3), 4, "myerson"), 1, atol=1e-12)
    assert identities.measure_linear_share(graphs.grid(4, 4), 6).max() > 19


def test_c_shapley_is_the_myerson_value_with_its_weights_only(checks):
    for row in checks.myerson:
        _, corrected, design, printed, _ = row.values()
        assert max(corrected, design) < 1e-12 < 0.1 < printed


def test_which_estimators_add_up(checks):
    found = {row["estimator"]: row for row in checks.efficiency}
    always = {name for name, row in found.items() if row["any game"] < 1e-9}
    assert always == {
        "shapley",
        "myerson",
        "kernel_shap, 4d",
        "sample_shapley, 4d",
        "symmetric_least_squares, q = 1",
        "lime, Shapley kernel, ridge 0, 4d",
        "c_shapley_regression, order 4, constrained",
        "l_shapley, order ≥ diameter",
    }
    additive = {name for name, row in found.items() if row["additive over components"] < 1e-9}
    assert additive == always | {"c_shapley, order ≥ diameter, Myerson weights"}
    never = {name for name, row in found.items() if row["linear"] > 1e-9}
    assert {name.split(",")[0] for name in never} == {"lime", "c_shapley", "c_shapley_regression"} and len(never) == 4
    assert all(row["any game"] > 0.1 for name, row in found.items() if name not in always)


def test_theorem_6_1_by_a_double_sum(checks):
    n, game = 3, games.table(3, seed=9)
    half = games.banzhaf(game) / 2
    for i in range(n):
        total = 0.0
        for S, T in itertools.product(range(8), range(8)):
            if not S >> i & 1 and T >> i & 1:
                total += (game[T] - game[S]) / bin(S ^ T).count("1")
        assert total == pytest.approx(8 * 7 / 3 * half[i], rel=1e-12)
    assert [row["n"] for row in checks.banzhaf] == list(range(1, 9))
    for _, printed, measured, discrepancy in (row.values() for row in checks.banzhaf):
        assert discrepancy < 1e-12 and measured == pytest.approx(printed)


def test_only_mim_keeps_the_axioms_among_the_terms(checks, monkeypatch):
    found = checks.uniqueness
    assert found.mim < 1e-12 and found.others > 0.01 and all(found.broken.values())
    assert {axiom for broken in found.broken.values() for axiom in broken} == set(identities.AXIOMS)
    assert found.broken["Parzen"] == ("non-bias", "lemma 4.1")  # as the axioms' own search finds
    # A term that is MIM in disguise, and two whose sum is: the search must not miss them.
    again = {"disguised": identities.MIM["α = 1"]}
    monkeypatch.setattr(identities, "OTHERS", again)
    assert identities.run_search(data_sets=5).others < 1e-12
    parts = {
        "to the right": lambda away, r, s, own, x: (x[0] > 0) * (s @ away),
        "to the left": lambda away, r, s, own, x: (x[0] <= 0) * (s @ away),
    }
    monkeypatch.setattr(identities, "OTHERS", parts)
    assert identities.run_search().others < 1e-12 and all(
        "shift" in one for one in identities.run_search().broken.values()
    )


def test_lemma_4_1_is_seen_to_fail(monkeypatch):
    assert identities.check_lemma_4_1() < 1e-12
    monkeypatch.setitem(identities.MIM, "α = 1", identities.OTHERS["mean instead of sum"])
    assert identities.check_lemma_4_1() > 0.1


def test_figure_1_shows_the_quantities_of_its_titles():
    grid, (height, width) = graphs.grid(*figures.SIDES), figures.SIDES
    centre = height // 2 * width + width // 2
    pieces, piece = (
        {row * width + column for row, column in cells} for cells in (figures.DISCONNECTED, figures.CONNECTED)
    )
    window = graphs.neighborhood(grid, centre, 2)
    assert centre in pieces & piece and pieces | piece <= window
    assert networkx.is_connected(grid.subgraph(piece)) and not networkx.is_connected(grid.subgraph(pieces))


# --- the report ---------------------------------------------------------------------------------------------------


def test_hierarchy_agrees_with_simulation(checks):
    found = checks.hierarchy
    assert all(abs(mean - expected) < 4 * error for *_, expected, mean, error in found.visits)
    assert all(lowest >= bound - 1e-12 for _, _, bound, lowest, _ in found.similarity)
    assert found.costly == found.costly_empty > 0


def test_the_same_seed_gives_the_same_numbers(checks):
    again, other = check_all(0), check_all(1)
    assert again.charnes == checks.charnes and again.hierarchy == checks.hierarchy
    assert again.efficiency == checks.efficiency != other.efficiency
    assert (again.sweep.random[0].local == checks.sweep.random[0].local).all()
    assert (other.sweep.random[0].local != checks.sweep.random[0].local).all()


def test_theory_imports_neither_a_framework_nor_pandas():
    code = "import sys, shapeline.theory; print([m for m in ('torch', 'tensorflow', 'pandas') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_cell_of_the_notebook_shows_something(root):
    parameters, shown = notebooks.shown(root / "notebooks/theory.ipynb")
    assert parameters == {"seed": 0}
    assert shown.count("<svg") == 5 and 'aria-label=""' not in shown
    assert shown.count("<table") == 10
    text = re.sub(r'src="[^"]*"', "", shown)
    assert not any(absent in text for absent in ("nan", "None", "inf<", "np.float64"))
    assert "hold as printed" in shown and shown.count("⚠ violated in") == 1


def test_short_statements_hold_and_their_conditions_matter():
    found = {statement.split(":")[0]: error for (statement, _), error in identities.check_identities(seed=3).items()}
    assert len(found) == 8 and max(found.values()) < 1e-12
    assert found["Theorem 5.1"] == 0 and found["Monotonicity of the Shapley value (Young 1985)"] == 0
    apart = identities.check_expectations(seed=3)
    assert max(apart["independent"], apart["linear"], apart["both"]) < 1e-13 < 0.01 < apart["dependent"]
    assert apart["curved"] > 0.01


def test_values_as_expectations_by_hand():
    """Two features: z = (1, 1) with .5, (0, 0) with .3, (1, 0) with .2; f = z_0 + 2 z_1, at x = (1, 1)."""
    points = np.array([[0, 0], [1, 0], [0, 1], [1, 1]], float)
    law, model = np.array([0.3, 0.2, 0, 0.5]), lambda z: z @ np.array([1.0, 2.0])
    mean = [0.7 + 1.0, 1 + 1.0, 0.7 + 2, 3]
    np.testing.assert_allclose(identities._marginalise(points, law, model), mean)
    np.testing.assert_allclose(identities._impute_mean(points, law, model), mean)
    np.testing.assert_allclose(identities._condition(points, law, model), [1.7, (0.2 * 1 + 0.5 * 3) / 0.7, 3, 3])


def test_the_best_direction_is_that_of_mim_and_another_is_below_it(monkeypatch):
    random = np.random.default_rng(0)
    X, labels = random.normal(size=(9, 3)), random.integers(0, 2, 9)
    away = X[1:] - X[0]
    weights = np.where(labels[1:] == labels[0], 1, -1) / (away**2).sum(1)
    np.testing.assert_allclose(identities.sum_influence(away, weights), mim(X[:1], X, labels, dtype="float64")[0])
    monkeypatch.setattr(identities, "sum_influence", lambda away, weights: np.eye(away.shape[1])[0])
    assert identities.check_optimum() > 0.1
