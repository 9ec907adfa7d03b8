"""The statements of the papers, each computed in two independent ways."""

from shapeline.lazy import export_lazily

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "visited_nodes": "expected_visited_nodes similarity_lower_bound Visits simulate_visits "
        "simulate_similarity Hierarchy "
        "simulate_hierarchy",
        "estimators": "KernelProof kernel_proof shapley_weight charnes charnes_solution "
        "constrained_least_squares Approximation approximate build_chain Sweep sweep lemma_1 "
        "ROUNDING scores generator rms largest additive_over_components",
        "checks": "Checks check_all measure_myerson_gaps measure_linear_share check_efficiency check_banzhaf_identity",
    },
)
