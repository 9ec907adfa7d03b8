"""Every removal-based attribution as a design: masks to evaluate and a linear readout of their values.

Lazy, so that asking one family for its minimum budget imports that family alone.
"""

from shapeline.lazy import names_from

__getattr__, __dir__ = names_from(
    __name__,
    {
        "Design": "design",
        "shapley": "exact",
        "banzhaf": "exact",
        "myerson": "exact",
        "occlusion": "exact",
        "l_shapley": "local",
        "c_shapley": "connected",
        "c_shapley_regression": "connected",
        "kernel_shap": "sampled",
        "kernel_shap_minimum": "sampled",
        "sample_shapley": "sampled",
        "sample_shapley_minimum": "sampled",
        "shapley_interactions": "interactions",
        "sample_interactions": "interactions",
        "sample_interactions_minimum": "interactions",
        "gp_interactions": "gaussian_interactions",
        "gp_interactions_minimum": "gaussian_interactions",
        "lime": "surrogate",
        "lime_minimum": "surrogate",
        "lime_weights": "surrogate",
        "symmetric_least_squares": "surrogate",
        "context_cite": "ablations",
        "context_cite_minimum": "ablations",
        "leverage_shap": "leverage",
        "leverage_shap_minimum": "leverage",
        "unbiased_kernel_shap": "unbiased",
        "unbiased_kernel_shap_minimum": "unbiased",
        "stratified_svarm": "stratified",
        "stratified_svarm_minimum": "stratified",
        "owen_sampling": "multilinear",
        "owen_sampling_minimum": "multilinear",
        "beta_shapley": "semivalues",
        "weighted_banzhaf": "semivalues",
        "semivalue_minimum": "semivalues",
        "gp_shapley": "gaussian_process",
        "gp_shapley_minimum": "gaussian_pairs",
        "optimal_order": "orders",
    },
)

__all__ = __dir__()
