"""Cooperative games ready to use with `shapeline.shapley_values`: from coalitions (K, n_players) to values."""

from shapeline.lazy import names_from

__getattr__, __dir__ = names_from(
    __name__,
    {
        "DataValuation": "retraining",
        "FeatureSelection": "retraining",
        "EnsembleSelection": "ensembles",
        "GlobalImportance": "removal",
        "UncertaintyExplanation": "removal",
        "StoredGame": "stored",
        "ModelGame": "shapeline.api.model_game",
    },
)

__all__ = __dir__()
