"""Statistics of paired values: intervals, tests, recommendations by a margin, claims, and their error rates."""

from shapeline.lazy import export_lazily

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "bounds": "Claim LEVEL compare_with_others is_enough intervals verdict variance_components variance_shares",
        "paired": "POWER SIGNIFICANCE pivot_by_method pivot_by_repeat pairs holm count_needed order scale_to_range "
        "compare_at_equal_error EqualMethods rate_of_equal_methods signed_rank_rejections "
        "ranks critical_difference cliques pool_ranks kendall_w",
        "recommendation": "MARGIN Recommendation recommend bound_behind_best",
        "comparison": "compare",
        "folders": "compare_folders",
    },
)
