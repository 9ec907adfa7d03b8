"""Cooperative games ready to use with `shapeline.shapley_values`: from coalitions (K, n_players) to values."""

from shapeline.lazy import export_lazily

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "retraining": "DataValuation FeatureSelection EnsembleSelection",
        "removal": "GlobalImportance UncertaintyExplanation",
        "stored": "StoredGame",
        "shapeline.api.case": "ModelGame",
    },
)
