"""Errors of scores to those of the exact method, and their similarity to those of a randomised model."""

import numpy as np
import pandas as pd

from shapeline import scores
from shapeline.games.features import Features
from shapeline.seeds import seed_of

HALF_WIDTH = 1.96  # of a 95 % interval, in standard errors
WITHOUT_UNIT = ("spearman", "top_k_overlap")
SINGLE_PRECISION = 1e-6  # rounding of single precision, as a share of the largest score
ROUNDING = 1e-9  # of sums of equal values, as a share of the largest score; columns may have units of any size


def measure(
    rows: pd.DataFrame,
    truth: pd.DataFrame,
    top: float = 0.2,
    seed: int = 0,
    scale_free: bool = False,
    same_unit: bool = True,
    same_quantity: bool = True,
) -> pd.DataFrame:
    """Return RMSE (units of the value), Spearman correlation and top-k overlap with the truth per instance and repeat.

    k = ceil(top * d), ties at the threshold at random; Spearman is NaN where one side is constant. With
    intermediate budgets also `rmse_by_budget`, and with repeats unbiased `bias_squared_by_budget` and
    `variance_by_budget`; with standard errors `predicted_rmse` and `coverage` of 95 % intervals, also by budget.
    same_unit: otherwise only the correlation and the overlap, which have no unit. same_quantity: otherwise, as for main
    effects beside pairs, no `predicted_rmse` and `coverage`, because the intervals are those of another quantity.
    """
    truth = scores.final(truth).drop_duplicates(["instance", "target"])
    joined = rows.merge(truth[["instance", "target", "scores"]], on=["instance", "target"], suffixes=("", "_true"))
    if not same_quantity:
        joined = joined.drop(columns="standard_error", errors="ignore")
    if joined.empty:
        return joined[["instance", "repeat"]].assign(statistic="", x=np.nan, value=np.nan)
    groups = joined.groupby(joined["scores"].map(len))  # instances may differ in their number of features
    found = pd.concat([_pad_rows(group, top, seed, scale_free) for _, group in groups], ignore_index=True)
    return found if same_unit else found[found["statistic"].isin(WITHOUT_UNIT)].reset_index(drop=True)


def match_scale(scores: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return scores (..., d) times the number that gives them the root mean square of other scores (..., d)."""
    actual, target = (np.sqrt(np.mean(np.square(values, dtype=float), -1, keepdims=True)) for values in (scores, truth))
    return scores * np.divide(target, actual, out=np.ones_like(actual), where=actual > 0)


def _pad_rows(joined: pd.DataFrame, top: float, seed: int, scale_free: bool) -> pd.DataFrame:
    if scale_free:
        joined = joined.assign(scores=list(match_scale(scores.matrix(joined), scores.matrix(joined, "scores_true"))))
    last = scores.final(joined)
    estimated, exact = scores.matrix(last), scores.matrix(last, "scores_true")
    k = scores.count_top(top, estimated.shape[1])
    instances = last["instance"].to_numpy()
    chosen = scores.rank_features(estimated, instances, seed) < k
    exact_top = scores.rank_features(exact, instances, seed_of(seed, "truth")) < k
    quantities = {
        "rmse": np.sqrt((_subtract(estimated, exact) ** 2).mean(1)),
        "spearman": correlate(rank_means(estimated), rank_means(exact)),
        "top_k_overlap": (chosen & exact_top).sum(1) / k,
    }
    keys = last[["instance", "repeat"]]
    frames = [keys.assign(statistic=name, x=np.nan, value=value) for name, value in quantities.items()]
    frames += [part.assign(x=np.nan) for part in _measure_predicted(last)]
    if joined["budget"].nunique() > 1:
        frames += _measure_budgets(joined)
    return pd.concat(frames, ignore_index=True)


def _subtract(estimated: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Return errors (n, d), 0 where they are rounding, by which methods that are exact would be ranked."""
    errors = estimated - exact
    return np.where(np.abs(errors) > SINGLE_PRECISION * np.abs(exact).max(axis=1, keepdims=True), errors, 0.0)


def _measure_budgets(joined: pd.DataFrame) -> list[pd.DataFrame]:
    """Return RMSE per budget and, with repeats, squared bias and variance."""
    errors = _subtract(scores.matrix(joined), scores.matrix(joined, "scores_true"))
    keys = joined[["instance", "repeat"]].assign(x=joined["budget"].astype(float))
    frames = [keys.assign(statistic="rmse_by_budget", value=np.sqrt((errors**2).mean(1)))]
    frames += [part.assign(statistic=part["statistic"] + "_by_budget") for part in _measure_predicted(joined)]
    repeats = joined["repeat"].nunique()
    if repeats > 1:
        groups = pd.DataFrame(errors).groupby([keys["instance"], joined["target"], keys["x"]])
        variance = groups.var(ddof=1).mean(axis=1)
        squared = (groups.mean() ** 2).mean(axis=1) - variance / groups.size()
        for name, values in (("bias_squared_by_budget", squared), ("variance_by_budget", variance)):
            frame = values.rename("value").reset_index().drop(columns="target")
            frames.append(frame.assign(statistic=name, repeat=0))
    return frames


def _measure_predicted(joined: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the predicted RMSE and the coverage of the rows with a standard error; x: their budgets."""
    if "standard_error" not in joined or not (known := joined["standard_error"].notna()).any():
        return []
    rows = joined[known]
    standard_error = scores.matrix(rows, "standard_error")
    exact = scores.matrix(rows, "scores_true")
    rounding = SINGLE_PRECISION * np.abs(exact).max(axis=1, keepdims=True)
    inside = np.abs(scores.matrix(rows) - exact) <= HALF_WIDTH * standard_error + rounding
    keys = rows[["instance", "repeat"]].assign(x=rows["budget"].astype(float))
    result = {"predicted_rmse": np.sqrt((standard_error**2).mean(axis=1)), "coverage": inside.mean(axis=1)}
    return [keys.assign(statistic=name, value=value) for name, value in result.items()]


def rank_means(values: np.ndarray) -> np.ndarray:
    """Return ranks along each row, with mean ranks for values equal up to rounding, such as of unused features."""
    unit = ROUNDING * np.abs(values).max(axis=1, keepdims=True, initial=0)
    return pd.DataFrame(np.round(values / np.where(unit == 0, 1, unit))).rank(axis=1).to_numpy()


def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the cosine of each pair of rows (n, d): (n,), NaN where one is zero or missing."""
    scale = np.sqrt((a**2).sum(1) * (b**2).sum(1))
    return np.divide((a * b).sum(1), scale, out=np.full(len(a), np.nan), where=scale > 0)


def correlate(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the linear correlation of each pair of rows (n, d): (n,), NaN where one is constant."""
    varies = (np.ptp(rows, axis=1, keepdims=True) > 0 for rows in (a, b))  # else rounding would correlate
    centred = (rows - rows.mean(1, keepdims=True) for rows in (a, b))
    return cosine(*(np.where(where, rows, 0.0) for where, rows in zip(varies, centred, strict=True)))


SSIM_WINDOW = 7  # pixels per side


def compare_randomised(
    rows: pd.DataFrame, randomised: dict[int, pd.DataFrame], buckets: list[tuple[Features, np.ndarray]] | None = None
) -> pd.DataFrame:
    """Return the similarity of scores before and after randomisation, per instance, repeat and number of layers (x).

    Adebayo et al. 2018, §3: `rank_correlation`, `rank_correlation_absolute`, NaN where constant; for images `ssim`
    of both maps divided by their largest size. Instances that either side lacks are omitted.
    """
    frames = [rows.iloc[:0][["instance", "repeat"]].assign(statistic="", x=0.0, value=0.0)]
    keys = ["instance", "target", "repeat"]
    rows = rows.assign(index=np.arange(len(rows)))
    cells = {index: features.cells[0] for features, positions in buckets or () for index in positions}
    for layers, others in randomised.items():
        joined = rows.merge(scores.final(others)[[*keys, "scores"]], on=keys, suffixes=("", "_randomised"))
        for _, part in joined.groupby(joined["scores"].map(len)):  # instances may differ in their number of features
            trained, other = scores.matrix(part), scores.matrix(part, "scores_randomised")
            measured = {
                "rank_correlation": correlate(rank_means(trained), rank_means(other)),
                "rank_correlation_absolute": correlate(rank_means(np.abs(trained)), rank_means(np.abs(other))),
            }
            if cells:
                measured["ssim"] = _measure_similarity(trained, other, [cells[index] for index in part["index"]])
            about = part[["instance", "repeat"]]
            frames += [about.assign(statistic=name, x=float(layers), value=value) for name, value in measured.items()]
    return pd.concat(frames, ignore_index=True)


def _measure_similarity(trained: np.ndarray, other: np.ndarray, cells: list[np.ndarray]) -> np.ndarray:
    """Return the SSIM of the maps of scores (n, d) on cells, n times (height, width): (n,) in [-1, 1]."""
    from skimage.metrics import structural_similarity

    side = min(SSIM_WINDOW, *cells[0].shape)
    window = side - (side % 2 == 0)  # SSIM needs an odd window

    def compute_ssim(first: np.ndarray, second: np.ndarray, owners: np.ndarray) -> float:
        sizes = np.abs(first).max(), np.abs(second).max()
        if window < 3 or min(sizes) == 0:
            return np.nan
        maps = (np.append(row / size, 0.0)[owners] for row, size in zip((first, second), sizes, strict=True))
        return structural_similarity(*maps, win_size=window, data_range=2.0)

    return np.array([compute_ssim(*row) for row in zip(trained, other, cells, strict=True)])
