"""Removal-based attributions as designs: masks to evaluate, and a linear readout of their values.

Imports are lazy: the minimum budget of one family imports that family only.
"""

from shapeline.lazy import export_lazily

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "design": "Design",
        "exact": "shapley banzhaf myerson occlusion",
        "local": "l_shapley c_shapley c_shapley_regression",
        "sampled": "kernel_shap kernel_shap_minimum sample_shapley sample_shapley_minimum",
        "interactions": "shapley_interactions sample_interactions sample_interactions_minimum",
        "gaussian_interactions": "gp_interactions gp_interactions_minimum",
        "surrogate": "lime lime_minimum lime_weights symmetric_least_squares context_cite context_cite_minimum",
        "semivalues": "leverage_shap leverage_shap_minimum unbiased_kernel_shap unbiased_kernel_shap_minimum "
        "stratified_svarm stratified_svarm_minimum "
        "owen_sampling owen_sampling_minimum beta_shapley weighted_banzhaf semivalue_minimum",
        "gaussian_process": "gp_shapley",
        "gaussian_pairs": "gp_shapley_minimum",
        "orders": "optimal_order",
    },
)
