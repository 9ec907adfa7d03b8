"""Cooperative games ready to use with `shapeline.shapley_values`: from coalitions (K, n_players) to values."""

from shapeline.lazy import names_from

__getattr__, __dir__ = names_from(
    __name__,
    {
        "retraining": "DataValuation FeatureSelection EnsembleSelection",
        "removal": "GlobalImportance UncertaintyExplanation",
        "stored": "StoredGame",
        "shapeline.api.case": "ModelGame",
    },
)
