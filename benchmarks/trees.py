"""How long `tree_shap` takes, as a multiple of shap's TreeExplainer: 20 columns, 100 background rows, one thread.

    OMP_NUM_THREADS=1 python -m benchmarks.trees [--rows 10 200]

A line per model: median and 10th to 90th percentile over runs that take turns. It needs shap; XGBoost and LightGBM are
left out where they are not installed.
"""

import argparse
import importlib.util
import warnings

import numpy as np
from sklearn import datasets, ensemble

import shapeline
from benchmarks.turns import spread, take_turns, timed

COLUMNS, BACKGROUND = 20, 100


def list_models() -> dict:
    """Return models that are not fitted, by name."""
    models = {
        "random forest": ensemble.RandomForestClassifier(100, random_state=0),
        "random forest of depth 8": ensemble.RandomForestClassifier(100, max_depth=8, random_state=0),
        "random forest, regression": ensemble.RandomForestRegressor(20, random_state=0),
        "gradient boosting": ensemble.GradientBoostingClassifier(random_state=0),
        "histogram gradient boosting": ensemble.HistGradientBoostingClassifier(random_state=0),
    }
    for package, name, options in (("xgboost", "XGBClassifier", {}), ("lightgbm", "LGBMClassifier", {"verbose": -1})):
        if importlib.util.find_spec(package):
            models[package] = getattr(importlib.import_module(package), name)(**options)
    return models


def measure(model, count: int) -> tuple[tuple[float, float, float], float]:
    """Return the spread of the ratio of seconds, and the largest difference of scores relative to the largest score."""
    import shap

    is_forest = isinstance(model, ensemble.RandomForestClassifier | ensemble.RandomForestRegressor)
    make = datasets.make_classification if hasattr(model, "predict_proba") else datasets.make_regression
    X, y = make(5_000, COLUMNS, n_informative=10, random_state=0)
    model.fit(X, y)
    rows, background, found = X[1_000 : 1_000 + count], X[:BACKGROUND], {}
    value = {} if is_forest else {"value": "margin"}
    target = {"target": 1} if hasattr(model, "predict_proba") else {}

    def ours() -> int:
        found["ours"] = shapeline.explain(model, rows, "tree_shap", background=background, **value, **target).scores
        return count

    def theirs() -> int:
        explainer = shap.TreeExplainer(model, background, feature_perturbation="interventional")
        values = np.asarray(explainer.shap_values(rows, check_additivity=False))
        found["theirs"] = values[..., 1] if values.ndim == 3 else values
        return count

    times = take_turns({"ours": timed(ours), "theirs": timed(theirs)})
    apart = np.abs(found["ours"] - found["theirs"]).max() / np.abs(found["ours"]).max()
    return spread(times["ours"].seconds / times["theirs"].seconds), float(apart)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[10, 200])
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for name, model in list_models().items():
        for count in given.rows:
            (middle, low, high), apart = measure(model, count)
            print(f"{name}, {count} rows: {middle:.2f} ({low:.2f} to {high:.2f}), scores {apart:.0e} apart", flush=True)


if __name__ == "__main__":
    main()
