"""Hierarchical Shapley values and Owen values: only relevant nodes are split further (Teneggi et al. 2021)."""

from shapeline.lazy import export_lazily

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "exploration": "MODES LEAF_SCORES TOLERANCE NO_RELEVANT_NODE MAX_MASK_BYTES Evaluate Split HShap "
        "Exploration explore h_shap gather check_shifts halve explore_trees Tally encode image_sides call_game",
        "methods": "MAX_CHILDREN Forest forest superpixel_tree explore_forest h_shap_tree Owen partition",
    },
)
