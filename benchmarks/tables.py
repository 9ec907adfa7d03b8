"""A user's own models of tables: rows of `predict_proba` a second, and what of it is left when explained.

A linear pipeline and gradient boosting, on arrays and on data frames of 30 columns: the model at its best batch, the
engine, `shapeline.explain`, and shap's KernelExplainer with as many evaluations. An evaluation is a coalition on one
row of the background, so that it costs a row of the model.
"""

import numpy as np
import pandas as pd

import shapeline
from benchmarks.turns import Run, Times, spread, take_turns, timed, times_as_fast
from shapeline.api.case import CallOptions, build_case

COLUMNS, BACKGROUND, BUDGET = 30, 100, 4
BATCHES = (4_096, 16_384, 65_536, 262_144)
# Share of the model's own rate that the engine is to reach on arrays and on frames; times shap's rate.
GOALS = {"linear pipeline": (0.7, 0.5, 3.0), "gradient boosting": (0.9, 0.8, 1.5)}


def models() -> dict:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return {
        "linear pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
        "gradient boosting": HistGradientBoostingClassifier(random_state=0),
    }


def measure(quick: bool = False) -> list[dict]:
    """Return rows of the table of `benchmarks.run`; quick: few instances and turns."""
    from sklearn.datasets import make_classification

    instances, few, turns = (8, 2, 2) if quick else (200, 10, 5)
    X, y = make_classification(2_000, COLUMNS, n_informative=10, random_state=0)
    frame, rows = pd.DataFrame(X, columns=[f"column {place}" for place in range(COLUMNS)]), []
    for name, model in models().items():
        for kind, data in (("array", X), ("frame", frame)):
            fitted = model.fit(data, y)
            best = find_batch(fitted, data, BATCHES[:2] if quick else BATCHES)
            runs = {"raw": best[1], **build_runs(fitted, data, instances, few)}
            rows += tabulate_rates(name, kind, best[0], take_turns(runs, turns), (instances, few))
    return rows


def find_batch(model, data, batches: tuple[int, ...]) -> tuple[int, Run]:
    """Return the fastest batch size on masked rows, which take trees longer than equal rows, and a run of it."""
    runs, values, random = {}, np.asarray(data), np.random.default_rng(0)
    for batch in batches:
        places = np.arange(batch)
        kept = np.repeat(random.random((batch // BACKGROUND + 1, COLUMNS)) < 0.5, BACKGROUND, axis=0)[:batch]
        own, other = values[places // (BUDGET * COLUMNS * BACKGROUND)], values[1_000 + places % BACKGROUND]
        block = np.where(kept, own, other)
        if isinstance(data, pd.DataFrame):
            block = pd.DataFrame(block, columns=data.columns)
        runs[str(batch)] = timed(lambda block=block: len(model.predict_proba(block)))
    times = take_turns(runs, 3)
    best = max(runs, key=lambda batch: np.nanmedian(times[batch].rate))
    return int(best), runs[best]


def build_runs(model, data, instances: int, few: int) -> dict[str, Run]:
    """Return the runs of the engine, `explain`, and shap's explainer of few instances; each returns its evaluations."""
    first, background = data[:instances], data[1_000 : 1_000 + BACKGROUND]
    case = build_case(model, first, CallOptions(background=background))
    game = case.game.having(features=case.buckets[0][0])
    masks = np.random.default_rng(0).random((instances, BUDGET * COLUMNS, COLUMNS)) < 0.5

    def engine() -> int:
        game.values(case.inputs, masks, case.targets)
        return masks.shape[0] * masks.shape[1] * BACKGROUND

    def explain() -> int:
        found = shapeline.explain(model, first, "kernel_shap", background=background, budget=BUDGET)
        return int(found.evaluations.sum()) * BACKGROUND

    runs = {"engine": timed(engine), "kernel_shap": timed(explain)}
    try:
        import shap
    except ImportError:
        return runs

    def predict(rows: np.ndarray) -> np.ndarray:
        """Return outputs for arrays, since the explainer converts data frames, which a pipeline with names needs."""
        return model.predict_proba(pd.DataFrame(rows, columns=data.columns) if is_frame else rows)

    is_frame = isinstance(data, pd.DataFrame)

    def peer() -> int:
        explainer = shap.KernelExplainer(predict, background)
        explainer.shap_values(data[:few], nsamples=BUDGET * COLUMNS, l1_reg=False, silent=True)
        return few * BUDGET * COLUMNS * BACKGROUND

    return {**runs, "shap.KernelExplainer": timed(peer)}


def tabulate_rates(name: str, kind: str, batch: int, times: dict[str, Times], counts: tuple[int, int]) -> list[dict]:
    """Return a row per run: its rate, relative to the model alone or to shap."""
    on_array, on_frame, over_shap = GOALS[name]
    goals = {"engine": on_array if kind == "array" else on_frame, "shap.KernelExplainer": over_shap}
    parts = {"raw": "raw", "engine": "engine", "kernel_shap": "method", "shap.KernelExplainer": "peer"}
    rows = []
    for what, own in times.items():
        instances = counts[what == "shap.KernelExplainer"]
        row = {"part": parts[what], "case": f"{name}, {kind}", "what": what, "turns": len(own.seconds)}
        row |= {"per_second": spread(own.rate)[0], "goal": goals.get(what)}
        ratio, column = times_as_fast(own, times["raw"]), "times_raw"
        if what == "raw":
            rows.append({**row, "note": f"predict_proba, {batch:,} rows a call"})
            continue
        row |= {"instances": instances, "evaluations": own.evaluations / instances / BACKGROUND}
        row |= dict(zip(("seconds", "seconds_low", "seconds_high"), spread(own.seconds / instances), strict=True))
        row |= dict(zip((column, f"{column}_low", f"{column}_high"), ratio, strict=True))
        if what == "shap.KernelExplainer":
            ratio, column = times_as_fast(times["kernel_shap"], own), "ours_times"
            row |= dict(zip((column, f"{column}_low", f"{column}_high"), ratio, strict=True))
            row["note"] = "ours: kernel_shap"
        if what in goals:
            row["met"] = bool(ratio[0] >= goals[what])
        rows.append(row)
    return rows
