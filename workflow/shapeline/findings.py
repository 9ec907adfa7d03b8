"""What an experiment found: its files read once, its headline sentences, and its tables as data frames of text."""

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from shapeline import datasets, external
from shapeline import features as feature_kinds
from shapeline import scores as score_files
from shapeline.errors import ShapelineError

UNITS = {
    "log_probability": "nats",
    "expected_log_probability": "nats",
    "log_odds": "nats",
    "probability": "probability",
    "logit": "logits",
    "prediction": "units of the target",
}
# Their scores add up to v(all) - v(none).
EFFICIENT = {"shapley", "myerson", "kernel_shap", "sample_shapley", "partition"} | {
    *("peer_shap_kernel", "peer_shap_permutation", "peer_shap_partition", "peer_captum_shapley_sampling")
}
DIRECTIONS = {"masking": "lower", "insertion": "higher"}  # of the two curves: which way is better
CUT = 0.2  # the share of features whose choice the health table checks for ties


@dataclass(frozen=True)
class Results:
    """Everything a report shows, read once by `load`."""

    experiment: str
    root: str
    settings: dict
    labels: dict[str, dict]
    model_card: dict
    dataset_card: dict
    folder: str  # of the prepared dataset
    features: feature_kinds.Features | None  # None where each instance has its own
    instances: pd.DataFrame
    scores: dict[str, pd.DataFrame]
    metadata: dict[str, list[dict]]
    metrics: dict[str, pd.DataFrame]
    measured: dict[str, pd.DataFrame]  # per instance, of the metrics whose paired differences a report shows
    trainings: dict[str, pd.DataFrame]  # the same with those of the model's other trainings, by their number
    snapshots: dict[str, pd.DataFrame] = field(default_factory=dict)  # rows at budgets below the label's own

    @functools.cached_property
    def dataset(self) -> datasets.Dataset:
        """Read when first asked for: the index of many experiments shows none of their inputs."""
        return datasets.load(self.folder)

    @property
    def exact(self) -> str | None:
        return self.settings.get("exact")

    @property
    def truth(self) -> str:
        """What errors are measured against, in words: exact Shapley values, or whatever the label holds."""
        if self.exact and self.labels[self.exact]["method"] == "shapley":
            return "the exact values"
        return f"the values of {self.exact}"

    @property
    def d(self) -> int:
        """The number of features; the median over instances where each has its own."""
        if self.features is not None:
            return self.features.d
        lengths = [len(row) for frame in self.scores.values() for row in frame["scores"] if row is not None]
        return int(np.median(lengths)) if lengths else 0

    def features_of(self, image: np.ndarray) -> feature_kinds.Features:
        """The features of one instance."""
        return self.features or feature_kinds.build_for(self.settings["features"], self.dataset_card, image)

    @property
    def value_unit(self) -> str:
        return UNITS.get(self.settings.get("value"), "units of the value")


def load(
    *,
    experiment: str,
    settings_json: str,
    model_card: str,
    dataset_card: str,
    dataset: str,
    instances: str,
    scores: Mapping[str, Sequence[str]],
    metrics: Mapping[str, str],
    measured: Mapping[str, Sequence[str]] | None = None,
    root: str = "",
) -> Results:
    """Read the files of one experiment, named by the parameters of the notebook.

    `settings_json` holds labels (label -> {method, family, parameters, is_control}) and their order (or labels as a
    list of such entries, each with its label), budget, features, reference, value, exact, and title, instances_shown,
    palette (or those three under `report`). model_card: "" where there is no model. Raises ShapelineError when a file
    is missing, except a metric's, which its section then mentions in one line.
    """
    settings = json.loads(settings_json)
    settings = {**settings.pop("report", {}), **settings}
    labels = _labels(settings)
    unknown = sorted(set(scores) - set(labels))
    if unknown:
        raise ShapelineError(
            f"report of {experiment}: scores for {', '.join(unknown)}, which the settings do not name."
        )
    files = {label: [_present(path, experiment) for path in scores[label]] for label in labels if label in scores}
    tables = {metric: score_files.read_table(path) for metric, path in metrics.items() if Path(path).is_file()}
    every = {
        metric: pd.concat(map(score_files.read_table, paths), ignore_index=True)
        for metric, paths in (measured or {}).items()
        if paths
    }
    card = json.loads(_present(dataset_card, experiment).read_text(encoding="utf-8"))
    explained = score_files.read_table(_present(instances, experiment))
    every_row = {label: score_files.read(paths) for label, paths in files.items()}
    found = {label: score_files.final(rows) for label, rows in every_row.items()}
    if card.get("task") == "multilabel":
        explained = _each_label(explained, len(card["classes"])).assign(picture=explained["instance"])
        found = {label: _each_label(frame, len(card["classes"])) for label, frame in found.items()}
    return Results(
        experiment=experiment,
        root=root,
        settings=settings,
        labels=labels,
        model_card=json.loads(_present(model_card, experiment).read_text(encoding="utf-8")) if model_card else {},
        dataset_card=card,
        folder=dataset,
        features=None
        if feature_kinds.varies(settings["features"])
        else feature_kinds.build(settings["features"], card),
        instances=explained,
        scores=found,
        metadata={label: [score_files.metadata(path) for path in paths] for label, paths in files.items()},
        metrics={metric: frame[frame["label"].isin(list(labels))] for metric, frame in tables.items()},
        measured={metric: frame[frame["label"].isin(list(labels))] for metric, frame in every.items()},
        trainings={metric: _by_training(frame) for metric, frame in every.items()},
        snapshots={label: rows[rows["budget"] < rows["budget"].max()] for label, rows in every_row.items()},
    )


def _by_training(measured: pd.DataFrame) -> pd.DataFrame:
    """Measurements with their label, and the number of the training in label@seed1, 0 of the model itself."""
    parts = measured["label"].str.partition("@seed")
    return measured.assign(label=parts[0], training=pd.to_numeric(parts[2]).fillna(0).astype(int))


def _each_label(frame: pd.DataFrame, count: int) -> pd.DataFrame:
    """The rows with a number of its own for each label of a picture, which to a report is an instance by itself."""
    return frame.assign(picture=frame["instance"], instance=frame["instance"] * count + frame["target"])


def ids(instances: pd.DataFrame) -> pd.Series:
    """The instances as the dataset knows them: of several labels each is there once a label, and is its picture."""
    return instances["picture" if "picture" in instances else "instance"]


def explained_class(results: Results) -> str:
    """What positive scores speak for, in words."""
    if results.dataset_card.get("task") == "multilabel":
        return "the label named beside the picture"
    return "the predicted class" if results.model_card else "the picture's own label"


def rows_shown(results: Results) -> str:
    """What is to be said of the rows of a figure of instances where each label of a picture has one."""
    if "picture" not in results.instances:
        return ""
    return " Each label has a row of its own, and the pictures that have most labels come first."


def _labels(settings: Mapping) -> dict[str, dict]:
    entries = settings["labels"]
    if isinstance(entries, dict):
        return {label: entries[label] for label in settings.get("order", entries)}
    return {entry["label"]: entry for entry in entries}


def _present(path: str | Path, experiment: str) -> Path:
    if not Path(path).is_file():
        raise ShapelineError(f"report of {experiment}: {path} is missing; run `snakemake {experiment}` to make it.")
    return Path(path)


def good(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of a score file that did not fail."""
    return frame[frame["status"] == "ok"]


def number(value: float | None, digits: int = 3, whole: bool = True) -> str:
    """A number for reading: significant digits as asked, thousands apart, a true minus; a dash for nothing.

    `whole`: a whole number is a count and is written without decimals.
    """
    if value is None or not np.isfinite(value):
        return "–"
    if value == 0 or (whole and float(value).is_integer()):
        text = f"{int(value):,}"
    elif abs(value) < 1e-3:
        text = f"{value:.1e}".replace("e-0", "e-")
    else:
        text = f"{value:,.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"
    return text.replace("-", "−")


def interval(row: Mapping) -> str:
    """'mean (low to high)' of a row of a compared metric file, all three with the decimals of the largest; the mean
    alone where one instance has no interval."""
    values = [row[key] for key in ("mean", "low", "high")]
    largest = max((abs(value) for value in values if np.isfinite(value)), default=0.0)
    mean, low, high = (aligned(value, largest) for value in values)
    return f"{mean} ({low} to {high})" if np.isfinite(values[1:]).all() else mean


def aligned(value: float, largest: float) -> str:
    """A number with as many decimals as three digits of the largest of its kind take, so that they stand in line."""
    if not np.isfinite(value) or largest < 1e-3:
        return number(value, whole=False)
    text = f"{value:,.{max(0, 2 - math.floor(math.log10(largest)))}f}"
    return text.lstrip("-") if not float(text.replace(",", "")) else text.replace("-", "−")


def counted(value: float | None, noun: str) -> str:
    """'1 evaluation', '2 evaluations'."""
    return f"{number(value, 6)} {noun}{'' if value == 1 else 's'}"


def share(value: float) -> str:
    """A fraction as a percentage: 0 % and 100 % only when nothing or everything is meant."""
    if not np.isfinite(value):
        return "–"
    if 0 < value < 0.001:
        return "< 0.1 %"
    if 0.999 < value < 1:
        return "> 99.9 %"
    return f"{100 * value:.1f} %".replace(".0 %", " %").replace("-", "−")


def scalars(frame: pd.DataFrame | None, quantity: str) -> pd.DataFrame:
    """The rows of a scalar quantity, indexed by label; empty when the metric or the quantity is missing."""
    if frame is None:
        return pd.DataFrame(columns=["mean", "low", "high", "n"])
    rows = frame[(frame["quantity"] == quantity) & frame["mean"].notna()]
    return rows.drop_duplicates("label", keep="last").set_index("label")


def headline(results: Results) -> dict:
    """The one row of an experiment in the index: plain numbers and names, None where a metric is missing."""
    areas = scalars(results.metrics.get("log_odds"), "masking_area")["mean"]
    controls = [label for label in areas.index if results.labels[label].get("is_control")]
    best = areas.drop(controls).idxmin() if len(areas) > len(controls) else None
    control = areas[controls].idxmin() if controls else None
    sampled = _closest_sampled(results)
    return {
        "experiment": results.experiment,
        "title": results.settings.get("title") or results.experiment,
        "accuracy": results.model_card.get("test_accuracy"),
        "r2": results.model_card.get("test_r2"),  # in its place where the model is of regression
        "instances": int(ids(results.instances).nunique()),
        "best": _named(results, "log_odds", "masking_area", best),
        "control": _named(results, "log_odds", "masking_area", control),
        "control_wins": None if best is None or control is None else bool(areas[control] < areas[best]),
        "control_behind": None
        if best is None or control is None
        else paired(results, "log_odds", "masking_area", control, best),
        "error": None if sampled is None else _error(results, sampled),
        "evaluations": sum(spent(frame) for frame in results.scores.values()),
        "rows": int(sum(len(frame) for frame in results.scores.values())),
        "failures": int(sum((frame["status"] != "ok").sum() for frame in results.scores.values())),
    }


def _named(results: Results, metric: str, quantity: str, label: str | None) -> dict | None:
    if label is None:
        return None
    row = scalars(results.metrics.get(metric), quantity).loc[label]
    return {"label": label, **{key: float(row[key]) for key in ("mean", "low", "high")}}


def _error(results: Results, label: str) -> dict:
    return {**_named(results, "error", "rmse", label), "evaluations": float(evaluations(results)[label])}


def paired(
    results: Results, metric: str, quantity: str, one: str, other: str, x: float | None = None
) -> dict[str, float] | None:
    """Mean difference of two labels, one less other, on the instances that both have, with its 95 % interval; None
    where there is nothing of either.

    x: of a quantity along a curve, where on it.
    """
    from shapeline import statistics  # scipy.stats takes half a second, which the index need not wait for

    rows = results.measured.get(metric)
    if rows is None:
        return None
    rows = rows[(rows["quantity"] == quantity) & rows["label"].isin([one, other])]
    rows = rows if x is None else rows[rows["x"] == x].assign(x=np.nan)
    values = statistics.by_label(rows, quantity)
    if not {one, other} <= set(values) or values.empty:
        return None
    [pair] = statistics.pairs(values, draws=statistics.by_draw(rows, quantity)).to_dict("records")
    difference = {"mean": pair["difference"], "low": pair["low"], "high": pair["high"]}
    return difference if pair["better"] == one else _other_way(difference)


def _other_way(difference: Mapping) -> dict[str, float]:
    return {"mean": -difference["mean"], "low": -difference["high"], "high": -difference["low"]}


def sure(difference: Mapping) -> bool:
    """Whether the interval of a difference leaves out 0; without one, which one instance has none of, it does not."""
    return difference["low"] > 0 or difference["high"] < 0


def _closest_sampled(results: Results) -> str | None:
    """The label with the lowest RMSE among the sampled ones, which have a budget in their score files.

    Those with a larger budget than the experiment's count only where there is no other.
    """
    errors = scalars(results.metrics.get("error"), "rmse")["mean"]
    budgets = pd.Series({label: results.scores[label]["budget"].max() for label in errors.index}, dtype=float).dropna()
    within = budgets[budgets <= results.settings.get("budget", math.inf)]
    sampled = list((within if len(within) else budgets).index)
    return errors[sampled].idxmin() if sampled else None


def spent(frame: pd.DataFrame) -> int:
    """Coalitions evaluated for the rows, with those that only snapshots at smaller budgets used."""
    own = frame["evaluations"].to_numpy()
    noted = [json.loads(extra).get("evaluated") if isinstance(extra, str) else None for extra in frame["extra"]]
    return int(sum(own[place] if union is None else union for place, union in enumerate(noted)))


def evaluations(results: Results) -> pd.Series:
    """Model evaluations per instance and repeat (median of the rows that did not fail), by label; NaN where scores
    made elsewhere do not say."""
    known = {label: good(frame) for label, frame in results.scores.items()}
    known = {label: frame.loc[frame["flag"] != external.UNKNOWN, "evaluations"] for label, frame in known.items()}
    return pd.Series({label: spent.median() for label, spent in known.items()}, dtype=float)


def evaluations_at_budgets(results: Results) -> pd.Series:
    """The same at each smaller budget whose estimates were kept, by label and budget (a multiple of d)."""
    parts = [good(rows).assign(label=label) for label, rows in results.snapshots.items() if len(rows)]
    if not parts:
        return pd.Series(dtype=float)
    return pd.concat(parts).groupby(["label", "budget"])["evaluations"].median()


def other_data(results: Results) -> str | None:
    """The dataset that the model was trained on, where the experiment explains another."""
    return results.model_card.get("settings", {}).get("dataset") if results.settings.get("dataset") else None


def headlines(results: Results) -> list[str]:
    """What the experiment found, in sentences made from its numbers."""
    found = headline(results)
    regression = found["r2"] is not None or not results.model_card
    known = results.instances[results.instances["label"] >= 0]  # of a text of one's own the class is not
    them = f"their {number(len(known))} labels" if "picture" in known else "them"
    right = f"; the model is right on {share((known['label'] == known['prediction']).mean())} of {them}"
    sentences, trained_on = [], other_data(results)
    tested = f"the test part of {trained_on}, the data that it was trained on," if trained_on else "the test part"
    if "test_exact_match" in results.model_card:
        exact = share(results.model_card["test_exact_match"])
        accuracy = share(found["accuracy"])
        sentences.append(f"On {tested} {accuracy} of the labels are right, and all labels of {exact} of the records.")
    elif found["accuracy"] is not None:
        sentences.append(f"The model classifies {share(found['accuracy'])} of {tested} correctly.")
    if found["r2"] is not None:
        error = number(results.model_card.get("test_rmse"))
        sentences.append(f"On {tested} the model's predictions have R² {found['r2']:.2f} and RMSE {error}.")
    told = right if len(known) and not regression else ""
    verb = "is" if found["instances"] == 1 else "are"
    sentences.append(f"{counted(found['instances'], 'instance')} {verb} explained{told}.")
    if found["best"]:
        sentences.append(_area_sentence(found))
    sentences += _error_sentences(results, found)
    spent = f"{number(found['evaluations'])} model evaluations were spent on {number(found['rows'])} explanations"
    if not results.model_card:
        spent = f"No model was asked: {number(found['rows'])} explanations come from labelled points alone"
    failed = (
        "; none failed." if not found["failures"] else f"; {number(found['failures'])} failed (see the health table)."
    )
    return [*sentences, spent + failed]


def _area_sentence(found: dict) -> str:
    best, control = found["best"], found["control"]
    start = f"The lowest (best) masking area belongs to {best['label']}: {interval(best)} nats"
    if not control:
        return start + "; no control was run."
    behind, verb = found["control_behind"], "beats it" if found["control_wins"] else "stays behind it"
    text = f"{start}. The best control, {control['label']}, {verb} at {interval(control)}"
    if behind is None:
        return f"{text}."
    if not np.isfinite(behind["low"]):
        return f"{text}, on one instance."
    ahead = _other_way(behind) if found["control_wins"] else behind
    told = "" if sure(behind) else ", which may be chance"
    return f"{text}; on the same instances the difference is {interval(ahead)}{told}."


def _error_sentences(results: Results, found: dict) -> list[str]:
    if not found["error"]:
        return []
    error, spent = found["error"], evaluations(results)
    against = f" against {number(spent[results.exact])} for {results.exact}" if results.exact in spent.index else ""
    return [
        f"Of the methods that sample at this budget, {error['label']} is closest to {results.truth}: "
        f"RMSE {interval(error)} {results.value_unit}, "
        f"with {number(error['evaluations'])} evaluations per instance{against}."
    ]


def best_by_budget(results: Results) -> pd.DataFrame:
    """The label with the smallest error to the exact values at each budget, and the runner-up; text, a row a budget."""
    frame = results.metrics["error"]
    found = frame[frame["quantity"] == "rmse_by_budget"].sort_values("mean")
    rows = []
    for budget, rivals in found.groupby("x"):
        first, *others = rivals.to_dict("records")
        row = {"budget": f"{number(budget)} d", "smallest error": first["label"], "RMSE": interval(first)}
        second = others[0] if others else None
        row |= {"next": second["label"] if second else "–", "its RMSE": interval(second) if second else "–"}
        names = (first["label"], second["label"]) if second else None
        behind = paired(results, "error", "rmse_by_budget", *names, budget) if names else None
        row["difference"] = interval(behind) if behind else "–"
        row["told apart"] = "–" if behind is None else "yes" if sure(behind) else "no"
        rows.append(row)
    return pd.DataFrame(rows)


def health(results: Results) -> pd.DataFrame:
    """One row a label: rows, failures by status, efficiency gap, zero scores, ties at the cut, evaluations spent.

    What methods flag stands beside the failures where any flagged an instance.
    """
    table = pd.DataFrame([_health(results, label, frame) for label, frame in results.scores.items()])
    return table if table["flagged"].ne("none").any() else table.drop(columns="flagged")


def _health(results: Results, label: str, frame: pd.DataFrame) -> dict:
    fine = good(frame)
    values = [np.asarray(row, dtype=float)[None] for row in fine["scores"]]  # rows may differ in length
    failed = frame.loc[frame["status"] != "ok", "status"].value_counts()
    flagged = fine["flag"].value_counts()
    total = (fine["value_full"] - fine["value_empty"]).to_numpy()
    gap = float(np.median(np.abs([row.sum() for row in values] - total))) if len(fine) else math.nan
    entry = results.labels[label]
    promised = entry["method"] in EFFICIENT or entry.get("parameters", {}).get("constrained", False)
    broken = promised and gap > 1e-4 * np.median(np.abs(total)) + 1e-6
    return {
        "label": label,
        "rows": number(len(frame)),
        "failures": "⚠ " + _listed(failed, first=False) if len(failed) else "none",
        "flagged": _listed(flagged, first=False) if len(flagged) else "none",
        f"efficiency gap, median ({results.value_unit})": ("⚠ " if broken else "")
        + number(0.0 if gap < 1e-12 else gap),
        "should be 0": "yes" if promised else "no",
        "zero scores": share(np.mean(np.concatenate(values, axis=1) == 0)) if values else "–",
        "ties at the cut": share(np.mean([ties(row) for row in values])) if values else "–",
        "evaluations, total": number(spent(frame)),
    }


def ties(values: np.ndarray, cut: float = CUT) -> np.ndarray:
    """Whether the k-th and the next largest signed score of a row are equal, so that the top k is no clear set.

    values: (rows, d); k = cut · d rounded, at least 1. Returns (rows,) bool; all False when d is 1.
    """
    d = values.shape[1]
    k = max(1, round(cut * d))
    if k >= d:
        return np.zeros(len(values), bool)
    ordered = -np.sort(-values, axis=1)
    return ordered[:, k - 1] == ordered[:, k]


def area_table(results: Results, marks: Sequence[float] = (0.02, 0.08, 0.2)) -> pd.DataFrame:
    """Mean log-odds change at a few masked fractions (the nearest computed), and both areas with intervals."""
    frame = results.metrics.get("log_odds")
    if frame is None:
        return pd.DataFrame()
    masking, insertion = scalars(frame, "masking_area"), scalars(frame, "insertion_area")
    curve = frame[frame["quantity"] == "masking"].pivot_table(index="label", columns="x", values="mean")
    positive = curve.columns[curve.columns > 0]
    nearest = sorted({positive[np.abs(positive - mark).argmin()] for mark in marks}) if len(positive) else []
    ways = {name: _of_the_way(results, f"{name}_area", better) for name, better in DIRECTIONS.items()}
    order = sorted(curve.index.union(masking.index), key=lambda label: masking["mean"].get(label, math.inf))
    return pd.DataFrame(
        {
            "label": label,
            **{f"top {share(x)} masked": number(curve[x].get(label)) for x in nearest},
            "masking area (lower is better)": interval(masking.loc[label]) if label in masking.index else "–",
            "insertion area (higher is better)": interval(insertion.loc[label]) if label in insertion.index else "–",
            **{
                f"{name}, from random to the best found": _shares(way.loc[label]) if label in way.index else "–"
                for name, way in ways.items()
                if len(way)
            },
        }
        for label in order
    )


def _of_the_way(results: Results, quantity: str, better: str) -> pd.DataFrame:
    """Mean, low and high of each label's area between that of random scores (0) and the best of each instance (1)."""
    from shapeline import statistics  # scipy.stats takes half a second, which the index need not wait for

    random = next((label for label, entry in results.labels.items() if entry["method"] == "random"), None)
    measured = results.measured.get("log_odds")
    if measured is None or random is None:
        return pd.DataFrame()
    values = statistics.by_label(measured, quantity)
    return statistics.summary(statistics.of_the_way(values, random, better)) if random in values else pd.DataFrame()


def _shares(row: Mapping) -> str:
    """'mean (low to high)' of fractions, as percentages."""
    mean, low, high = (f"{100 * row[key]:.1f}".replace("-", "−") for key in ("mean", "low", "high"))
    return f"{mean} % ({low} to {high})" if np.isfinite(row["low"]) else f"{mean} %"


def cost(results: Results) -> pd.DataFrame:
    """One row a label: evaluations per instance, as a multiple of d, against the budget; seconds and their share.

    The empty and the full coalition are allowed on top of the budget.
    """
    each, budget, d = evaluations(results), results.settings.get("budget"), results.d
    alone = results.settings.get("timing") == "per_instance"  # only then do seconds differ by instance
    timed = 1000 * scalars(results.metrics.get("cost"), "seconds")[["mean", "low", "high"]]
    seconds = pd.Series({label: frame["seconds"].sum() for label, frame in results.scores.items()}, dtype=float)
    rows = []
    for label, frame in results.scores.items():
        above = budget is not None and each[label] > budget * d + 2
        mean = 1000 * good(frame)["seconds"].mean()
        rows.append(
            {
                "label": label,
                "evaluations per instance": number(each[label], digits=6),
                "multiple of d": number(each[label] / d) if d else "–",
                "budget": ("⚠ above " if above else "within ") + f"{number(budget)} d" if budget is not None else "–",
                "ms per instance": interval(timed.loc[label]) if alone and label in timed.index else number(mean),
                "seconds, total": number(seconds[label]),
                "share of time": share(seconds[label] / seconds.sum()) if seconds.sum() > 0 else "–",
            }
        )
    return pd.DataFrame(rows)


def facts(entries: Mapping[str, object]) -> pd.DataFrame:
    """Two columns, name and value, without the entries that say nothing."""
    kept = {name: value for name, value in entries.items() if value not in (None, "", [], {})}
    return pd.DataFrame({"fact": list(kept), "value": [str(value) for value in kept.values()]})


def model_facts(card: Mapping) -> pd.DataFrame:
    """The model card as facts; of an experiment without a model, that it has none."""
    if not card:
        return facts({"model": "none: labelled points alone"})
    accuracy, parameters = card.get("test_accuracy"), card.get("n_parameters", card.get("parameters"))
    epochs, best = len(card.get("history") or []), card.get("best_epoch")
    by_label = card.get("test_accuracy_by_label", {})
    return facts(
        {
            "name": card.get("name"),
            "architecture": card.get("architecture"),
            "framework": card.get("framework"),
            "trained on": (card.get("settings") or {}).get("dataset"),
            "trainable parameters": None if parameters is None else number(parameters),
            "test accuracy": None if accuracy is None else f"{100 * accuracy:.2f} %",
            "of each label": _listed({name: share(one) for name, one in by_label.items()}),
            "all labels right": share(card["test_exact_match"]) if "test_exact_match" in card else None,
            "test R²": None if card.get("test_r2") is None else f"{card['test_r2']:.3f}",
            "test RMSE": None if card.get("test_rmse") is None else number(card["test_rmse"]),
            "epochs": f"{epochs}, the best was {best}" if epochs and best else epochs or None,
            "training": plain(card.get("training")),
            "training time": None if card.get("seconds") is None else f"{number(card['seconds'])} s",
            "seed": card.get("seed"),
            "versions": plain(card.get("versions")),
        }
    )


def part_sizes(card: Mapping) -> dict[str, int]:
    """Records of each part of a dataset."""
    return card.get("rows") or {part: sum(of.values()) for part, of in (card.get("counts") or {}).items()}


def dataset_facts(card: Mapping) -> pd.DataFrame:
    """The dataset card as facts."""
    counts = {
        f"rows, {part}": number(part_sizes(card)[part]) + (f" ({_listed(classes)})" if card.get("classes") else "")
        for part, classes in (card.get("counts") or {}).items()
    }
    records = {name.replace("_", " "): count for name, count in (card.get("records") or {}).items() if count}
    return facts(
        {
            "name": card.get("name"),
            "source": card.get("source"),
            "kind": f"{card.get('kind', '')}, input shape {' × '.join(map(str, card.get('input_shape', [])))}",
            "task": card.get("task"),
            "labels" if card.get("rows") else "classes": ", ".join(map(str, card.get("classes", []))),
            **counts,
            "groups of columns": len(card.get("groups") or {}) or None,
            "records": _listed(records),
            "notes": "; ".join(card.get("notes") or []),
            "licence": card.get("licence"),
            "citation": card.get("citation"),
            "addresses": ", ".join(card.get("urls") or []),
        }
    )


def _listed(values: Mapping | pd.Series | None, first: bool = True) -> str:
    """'name: item, name: item', or 'item name, item name' where the names do not come first."""
    items = {} if values is None else dict(values)
    parts = ((name, number(item) if isinstance(item, int | np.integer) else item) for name, item in items.items())
    return ", ".join(f"{name}: {item}" if first else f"{item} {name}" for name, item in parts)


def provenance(results: Results) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Where the scores come from: what all score files share, and one row a label, both from the files themselves."""
    every = [entry for files in results.metadata.values() for entry in files]
    known = {"experiment": results.experiment, "result folder": results.root}
    keys = ("schema_version", "seed", "reference", "value", "framework", "device", "versions", "git_commit")
    shared = {key.replace("_", " "): "; ".join(sorted({plain(entry.get(key)) for entry in every})) for key in keys}
    kind = {"features": f"{plain(results.settings['features'])}, d = {results.d}"}
    return facts({**known, **kind, **shared}), pd.DataFrame(
        {
            "label": label,
            "method": results.labels[label]["method"],
            "parameters": plain(results.labels[label].get("parameters")) or "defaults",
            "shards": number(len(files)),
            "form of the model": "; ".join(sorted({_form(entry.get("form")) for entry in files})),
            "settings digest": "; ".join(sorted({str(entry.get("settings_digest", "–")) for entry in files})),
        }
        for label, files in results.metadata.items()
    )


def _form(form: object) -> str:
    """The form of the model in words, without the rate, which differs from run to run."""
    return f"{form['name']}, batch {form['batch']}" if isinstance(form, Mapping) else plain(form) or "–"


def plain(value: object) -> str:
    """Settings as words: 'name value, name value'."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {plain(item)}" for name, item in value.items() if item not in (None, "", [], {}))
    if isinstance(value, list | tuple):
        return " × ".join(plain(item) for item in value)
    return "" if value is None else str(value)


def chosen(instances: pd.DataFrame, count: int) -> pd.DataFrame:
    """The instances shown: the first of every class in turn, by their order in the file and not by how they look.

    Of a regression, whose labels are floats, the first ones. Of several labels all of a picture together, the pictures
    that have most of them first.
    """
    if "picture" in instances:
        order = instances.groupby("picture")["label"].sum().sort_values(ascending=False, kind="stable").index
        rows = instances.set_index("picture", drop=False).loc[order].reset_index(drop=True)
        return rows.head(max(count // rows["target"].nunique(), 1) * rows["target"].nunique())
    if instances["label"].dtype.kind == "f":
        return instances.head(count)
    turn = instances.groupby("label", sort=True).cumcount()
    return instances.assign(turn=turn).sort_values(["turn", "label"], kind="stable").head(count).drop(columns="turn")


def positions(dataset: datasets.Dataset, instances: pd.DataFrame) -> np.ndarray:
    """Places in the dataset's arrays of the instances, which are named by their position in the source."""
    places = pd.Index(dataset.ids).get_indexer(ids(instances))
    own = dataset.labels[places, instances["target"]] if "picture" in instances else dataset.labels[places]
    if (places < 0).any() or (own != instances["label"]).any():
        raise ShapelineError("report: the explained instances are not those of the prepared dataset; run both again.")
    return places


def scores_of(frame: pd.DataFrame, instances: Sequence[int]) -> list[np.ndarray | None]:
    """The scores at the largest budget of the first repeat, one array an instance; None where the method failed."""
    rows = good(frame).sort_values(["repeat", "budget"], ascending=[False, True])
    rows = rows.drop_duplicates("instance", keep="last")
    found = dict(zip(rows["instance"], rows["scores"], strict=True))
    return [np.asarray(found[key], np.float64) if key in found else None for key in instances]


def instance_name(results: Results, row: Mapping) -> str:
    """Class, prediction, its probability and the number of an instance, a line each; of a regression both numbers;
    without a model its label."""
    if not results.model_card:
        classes, label = results.dataset_card.get("classes"), row["label"]
        return f"{classes[label] if classes else number(label, 4, whole=False)}\ninstance {row['instance']}"
    if results.dataset_card.get("task") == "regression":
        numbers = (number(row[key], 4, whole=False) for key in ("prediction", "label"))
        return "predicted {}\ntrue {}\ninstance {}".format(*numbers, row["instance"])
    classes = results.dataset_card["classes"]
    if "picture" in row:
        there, mark = "there" if row["label"] else "not there", "" if row["label"] == row["prediction"] else " (wrong)"
        return f"{classes[row['target']]}: {there}\nP = {row['probability']:.3f}{mark}\ninstance {row['picture']}"
    known = row["label"] >= 0  # of a text of one's own it is not
    mark = " (wrong)" if known and row["label"] != row["prediction"] else ""
    truth = f"true {classes[row['label']]}\n" if known else ""
    return (
        f"{truth}predicted {classes[row['prediction']]}{mark}\nP = {row['probability']:.3f}\ninstance {row['instance']}"
    )


def feature_names(results: Results) -> list[str]:
    """The names of the d features, or numbers where they have none."""
    return list(results.features.names) or [f"feature {place}" for place in range(results.d)]
