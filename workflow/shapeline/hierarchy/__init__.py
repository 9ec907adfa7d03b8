"""Hierarchical Shapley values and Owen values: only what is relevant is split further (Teneggi et al. 2021)."""

from shapeline.lazy import names_from

__getattr__, __dir__ = names_from(
    __name__,
    {
        "MODES": "exploration",
        "LEAF_SCORES": "exploration",
        "TOLERANCE": "exploration",
        "NOTHING": "exploration",
        "MASK_BYTES": "exploration",
        "Evaluate": "exploration",
        "Split": "exploration",
        "HShap": "exploration",
        "Exploration": "exploration",
        "explore": "exploration",
        "h_shap": "exploration",
        "gathered": "exploration",
        "checked_shifts": "exploration",
        "halves_of": "exploration",
        "explore_trees": "exploration",
        "Tally": "exploration",
        "inside": "exploration",
        "sides_of_picture": "exploration",
        "call_game": "exploration",
        "MOST_CHILDREN": "forests",
        "Forest": "forests",
        "forest": "forests",
        "superpixel_tree": "forests",
        "explore_forest": "forests",
        "h_shap_tree": "forests",
        "Owen": "owen",
        "partition": "owen",
    },
)
