"""The data of an experiment's report, read once."""

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np
import pandas as pd

from shapeline import scores as score_files
from shapeline.attribution.explanation import GRADIENT_EVALUATIONS
from shapeline.datasets import loading
from shapeline.datasets.loading import Dataset
from shapeline.errors import ShapelineError
from shapeline.games import features as feature_kinds
from shapeline.games.features import IMAGE_KINDS, Features
from shapeline.methods import external
from shapeline.methods.registry import METHODS
from shapeline.metrics.registry import PAIRED
from shapeline.report.formatting import number, share
from shapeline.statistics.comparison import wilson

UNITS = {
    "log_probability": "nats",
    "expected_log_probability": "nats",
    "log_odds": "nats",
    "margin": "nats",
    "centred_logit": "nats",
    "probability": "probability",
    "logit": "logits",
    "prediction": "units of the target",
}
DIRECTIONS = {"deletion": "lower", "insertion": "higher"}  # the better direction of each curve


def remember(compute: Callable) -> Callable:
    """Decorate a function of results and hashable arguments to compute it once per experiment and arguments."""

    @functools.wraps(compute)
    def wrapper(results: "Results", *arguments):
        memo, key = results.memo, (compute, *arguments)
        if key not in memo:
            memo[key] = compute(results, *arguments)
        return memo[key]

    return wrapper


@dataclass(frozen=True)
class Results:
    """The data of a report, read once by `load`."""

    experiment: str
    root: str
    settings: dict
    entries: dict[str, dict]
    model_card: dict
    dataset_card: dict
    folder: str  # of the prepared dataset
    features: Features | None  # None where each instance has its own
    instances: pd.DataFrame
    scores: dict[str, pd.DataFrame]
    metadata: dict[str, list[dict]]
    metrics: dict[str, pd.DataFrame]
    measured: dict[str, pd.DataFrame]  # per instance, of the metrics whose paired differences a report shows
    by_training_seed: dict[str, pd.DataFrame]  # the same with rows of the model's other training seeds
    # Rows at budgets below the method's configured one.
    intermediate_budgets: dict[str, pd.DataFrame] = field(default_factory=dict)

    @functools.cached_property
    def memo(self) -> dict:
        """The values that `remember` has computed."""
        return {}

    @functools.cached_property
    def dataset(self) -> Dataset:
        """The prepared dataset, read at first use: the index of many experiments needs none."""
        return loading.load(self.folder)

    @property
    def exact(self) -> str | None:
        return self.settings.get("exact")

    @property
    def truth(self) -> str:
        """A phrase for the ground truth of errors: exact Shapley values, or the values of another method."""
        if self.exact and self.entries[self.exact]["method"] == "shapley":
            return "the exact values"
        return f"the values of {self.exact}"

    @property
    def d(self) -> int:
        """The number of features; the median over instances where each has its own."""
        if self.features is not None:
            return self.features.d
        lengths = [len(row) for frame in self.scores.values() for row in frame["scores"] if row is not None]
        return int(np.median(lengths)) if lengths else 0

    def features_of(self, image: np.ndarray) -> Features:
        return self.features or feature_kinds.build_for(self.settings["features"], self.dataset_card, image)

    @property
    def shown(self) -> pd.DataFrame:
        """The instances that a page shows."""
        return choose_instances(self.instances, int(self.settings.get("n_shown") or 4))

    def read_inputs(self, rows: pd.DataFrame) -> np.ndarray:
        return self.dataset.inputs[find_positions(self.dataset, rows)]

    def name_instances(self, rows: pd.DataFrame) -> list[str]:
        """Return the class, prediction, probability and number of instances."""
        return [name_instance(self, row) for row in rows.to_dict("records")]

    def select_scores(self, instances: Sequence[int], column: str = "scores") -> dict[str, list[np.ndarray | None]]:
        return {entry: select_scores(frame, instances, column) for entry, frame in self.scores.items()}

    @property
    def value_unit(self) -> str:
        return UNITS.get(self.settings.get("value"), "units of the value")


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """A notebook's experiment, settings and files; `settings_json`: methods, budget, features, report keys …."""

    experiment: str
    settings_json: str
    model_card: str  # "" without a model
    dataset_card: str
    dataset: str  # folder of the prepared dataset
    instances: str
    scores: Mapping[str, Sequence[str]]  # the shards of each method
    metrics: str = ""  # the comparison of all methods by all metrics; "" without one
    measured: Sequence[str] = ()  # files of the measurements per instance
    root: str = ""  # the results folder, as shown on the page


def load_notebook(names: Mapping[str, object]) -> Results:
    """Return the experiment of a notebook; names: the notebook's `globals()`, which include its parameters."""
    return load(**{parameter.name: names[parameter.name] for parameter in fields(Parameters)})


def load(**parameters) -> Results:
    """Read an experiment's files (fields of `Parameters`). Raises ShapelineError for a missing one, except metrics."""
    record = Parameters(**parameters)
    settings = json.loads(record.settings_json)
    settings = {**settings.pop("report", {}), **settings}
    entries = {entry: settings["entries"][entry] for entry in settings.get("order", settings["entries"])}
    files = _find_score_files(record, entries)
    tables = _split_metrics([score_files.read_table(record.metrics)] if Path(record.metrics).is_file() else [])
    measured = _split_metrics(map(_read_compared, record.measured))
    card = _read_card(record, record.dataset_card) if record.dataset_card else {}
    instances = score_files.read_table(_check_file(record.instances, record.experiment))
    all_rows = {entry: score_files.select_training(score_files.read(paths)) for entry, paths in files.items()}
    explanations = {entry: score_files.final(rows) for entry, rows in all_rows.items()}
    if card.get("task") == "multilabel":
        instances = _expand_labels(instances, len(card["classes"])).assign(image=instances["instance"])
        explanations = {entry: _expand_labels(frame, len(card["classes"])) for entry, frame in explanations.items()}
    return Results(
        experiment=record.experiment,
        root=record.root,
        settings=settings,
        entries=entries,
        model_card=_read_card(record, record.model_card) if record.model_card else {},
        dataset_card=card,
        folder=record.dataset,
        features=None
        if feature_kinds.is_varying(settings["features"])
        else feature_kinds.build(settings["features"], card),
        instances=instances,
        scores=explanations,
        metadata={entry: [score_files.metadata(path) for path in paths] for entry, paths in files.items()},
        metrics={metric: frame[frame["method"].isin(list(entries))] for metric, frame in tables.items()},
        measured={
            metric: frame[frame["method"].isin(list(entries)) & (frame["training"] == 0)]
            for metric, frame in measured.items()
        },
        by_training_seed=measured,
        intermediate_budgets={entry: rows[rows["budget"] < rows["budget"].max()] for entry, rows in all_rows.items()},
    )


def _find_score_files(record: Parameters, entries: Mapping[str, dict]) -> dict[str, list[Path]]:
    """Return the files of each method, in order. Raises ShapelineError for missing files and unknown methods."""
    unknown = sorted(set(record.scores) - set(entries))
    if unknown:
        raise ShapelineError(
            f"report of {record.experiment}: scores for {', '.join(unknown)}, which the settings do not name; run "
            "it again."
        )
    shown = [entry for entry in entries if entry in record.scores]
    return {entry: [_check_file(path, record.experiment) for path in record.scores[entry]] for entry in shown}


def _read_compared(path: str | Path) -> pd.DataFrame:
    """Return the paired measurements without curves: figures use means, and thousands of curves need much memory."""
    measured = score_files.read_table(path)
    paired = measured["metric"].isin(PAIRED) & (measured["x"].isna() | measured["statistic"].str.endswith("_by_budget"))
    return measured[paired].rename(columns={"training_seed": "training"})


def _split_metrics(frames: Iterable[pd.DataFrame]) -> dict[str, pd.DataFrame]:
    joined = pd.concat([*frames], ignore_index=True) if (frames := [*frames]) else pd.DataFrame({"metric": []})
    return {
        metric: rows.drop(columns="metric").reset_index(drop=True)
        for metric, rows in joined.groupby("metric", sort=False)
    }


def _read_card(record: Parameters, path: str) -> dict:
    return json.loads(_check_file(path, record.experiment).read_text(encoding="utf-8"))


def _expand_labels(frame: pd.DataFrame, count: int) -> pd.DataFrame:
    """Return the rows with an instance number per label of an image: reports treat each label as an instance."""
    return frame.assign(image=frame["instance"], instance=frame["instance"] * count + frame["target"])


def find_ids(instances: pd.DataFrame) -> pd.Series:
    """Return the dataset's ids of the instances: with several labels per image, the id of the image."""
    return instances["image" if "image" in instances else "instance"]


def describe_explained_class(results: Results) -> str:
    if results.dataset_card.get("task") == "multilabel":
        return f"the label named beside the {'image' if results.dataset_card['kind'] == 'image' else 'instance'}"
    if target := results.settings.get("target"):
        first = int(results.instances["target"].iloc[0])
        return "the true class" if target == "true" else f"class {results.dataset_card['classes'][first]}"
    return "the predicted class" if results.model_card else "the instance's own class"


def describe_positive(results: Results) -> str:
    """Return what positive scores support, in words, also of a regression."""
    is_regression = results.dataset_card.get("task") == "regression"
    return "a larger prediction" if is_regression else describe_explained_class(results)


def _check_file(path: str | Path, experiment: str) -> Path:
    if not Path(path).is_file():
        raise ShapelineError(f"report of {experiment}: {path} is missing; run `snakemake {experiment}` to make it.")
    return Path(path)


def drop_failures(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a score file that did not fail."""
    fine = frame["status"] == "ok"
    return frame if fine.all() else frame[fine]


def count_warnings_and_failures(frame: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Return the counts of warnings and of failures, by text, in a score file."""
    return drop_failures(frame)["warning"].value_counts(), frame.loc[frame["status"] != "ok", "status"].value_counts()


def scalars(frame: pd.DataFrame | None, statistic: str) -> pd.DataFrame:
    """Return the rows of a scalar statistic, indexed by method; empty when the metric or the statistic is missing."""
    if frame is None:
        return pd.DataFrame(columns=["mean", "low", "high", "n"])
    rows = frame[(frame["statistic"] == statistic) & frame["mean"].notna()]
    return rows.drop_duplicates("method", keep="last").set_index("method")


def select_ceiling(frame: pd.DataFrame | None, name: str) -> pd.DataFrame:
    """Return the curve of the optimal order (`best_<name>`); empty without the values of all coalitions."""
    none = pd.DataFrame(columns=["method", "x", "mean", "low", "high", "n"])
    if frame is None:
        return none
    rows = frame[(frame["statistic"] == f"best_{name}") & frame["mean"].notna()]
    return rows[rows["method"] == rows["method"].iloc[0]].sort_values("x") if len(rows) else none


def count_failures(results: Results) -> int:
    """Return the number of explanations that failed, of all methods."""
    return int(sum((frame["status"] != "ok").sum() for frame in results.scores.values()))


def count_coalitions(frame: pd.DataFrame) -> int:
    """Return the number of coalitions evaluated for the rows, including those that only smaller budgets used."""
    evaluations = frame["evaluations"].to_numpy()
    union = [json.loads(details).get("evaluated") if isinstance(details, str) else None for details in frame["details"]]
    return int(sum(evaluations[index] if count is None else count for index, count in enumerate(union)))


def count_evaluations(results: Results, frame: pd.DataFrame) -> int:
    """Return the evaluations of a method's rows; the outputs of a game share theirs, which count once."""
    if "players" in results.instances:
        frame = frame[frame["instance"].isin(results.instances.drop_duplicates("row")["instance"])]
    return count_coalitions(frame)


def count_gradient_cost(results: Results) -> float:
    """Return the evaluations that a gradient counts as: one of one row, where an evaluation has all of the baseline."""
    rows = [file.get("reference_rows", 1) for files in results.metadata.values() for file in files]
    return GRADIENT_EVALUATIONS / max(rows, default=1)


def average_evaluations(results: Results, instance: int | None = None) -> pd.Series:
    """Return evaluations per instance and repeat, by method: median of the rows that did not fail, mean with adaptive
    stopping; NaN where external scores do not state it. instance: restrict to this one."""
    rows = {entry: drop_failures(frame) for entry, frame in results.scores.items()}
    if instance is not None:
        rows = {entry: frame[frame["instance"] == instance] for entry, frame in rows.items()}
    rows = {entry: frame.loc[frame["warning"] != external.NO_COUNT, "evaluations"] for entry, frame in rows.items()}
    adaptive = find_stopping_rules(results)  # a few instances may need most of the evaluations
    typical = {entry: counts.mean() if entry in adaptive else counts.median() for entry, counts in rows.items()}
    return pd.Series(typical, dtype=float)


def average_costs(results: Results) -> pd.Series:
    """Return `average_evaluations` with a gradient as so many evaluations as it counts for in comparisons."""
    spent = average_evaluations(results)
    spent[list_gradient_methods(results)] *= count_gradient_cost(results)
    return spent


def find_stopping_rules(results: Results) -> dict[str, dict]:
    budgets = {entry: (settings.get("parameters") or {}).get("budget") for entry, settings in results.entries.items()}
    return {entry: budget for entry, budget in budgets.items() if isinstance(budget, dict) and entry in results.scores}


def find_unit(results: Results, entry: str) -> str:
    """Return the unit of a method's scores, "" without: of gradients nats, or a regression's, whatever the value."""
    output = UNITS["prediction" if results.dataset_card.get("task") == "regression" else "log_probability"]
    return METHODS[results.entries[entry]["method"]].name_unit(results.value_unit, output, none="")


def describe_units(results: Results) -> str:
    """Return the unit of the scores; where they have several, that of the value, and the methods with others."""
    units: dict[str, list[str]] = {}
    for entry in results.scores:
        units.setdefault(find_unit(results, entry) or "no unit", []).append(entry)
    if len(units) == 1:
        return next(iter(units))
    of_value = [results.value_unit] * bool(units.pop(results.value_unit, None))
    return "; ".join([*of_value, *(f"{unit}: {', '.join(entries)}" for unit, entries in units.items())])


def list_gradient_methods(results: Results) -> list[str]:
    scored = {entry: settings for entry, settings in results.entries.items() if entry in results.scores}
    return [entry for entry, settings in scored.items() if METHODS[settings["method"]].gradients]


def list_fixed_methods(results: Results) -> list[str]:
    """Return the methods without a budget."""
    return [entry for entry, settings in results.entries.items() if not METHODS[settings["method"]].sampled]


def count_rows(card: Mapping) -> dict[str, int]:
    """Return the number of rows per part of a dataset."""
    return card.get("rows") or {part: sum(of.values()) for part, of in (card.get("counts") or {}).items()}


def warn_near_chance(results: Results) -> str | None:
    """Return a sentence where the model is not significantly better than the commonest class or the mean, else None."""
    card, data = results.model_card, results.dataset_card
    if card.get("test_r2") is not None:
        r2 = number(card["test_r2"], decimals=2)
        quality = f"Its R² on the test part is {r2}: always naming the mean does as well."
        return quality if card["test_r2"] <= 0 else None
    counts = (data.get("counts") or {}).get("test") or {}
    rows = sum(counts.values())
    if card.get("test_accuracy") is None or not rows or data.get("task") == "multilabel" or find_other_dataset(results):
        return None  # the test part's class counts are unknown
    from scipy.special import bdtrc  # scipy.stats takes half a second

    commonest = max(counts.values()) / rows
    n_correct = round(card["test_accuracy"] * rows)
    if n_correct and bdtrc(n_correct - 1, rows, commonest) < 0.05:
        return None
    accuracy = describe_accuracy(card, card["test_accuracy"])
    return f"It is right on {accuracy} of the test part, and the commonest class alone is {share(commonest)}."


def describe_accuracy(card: Mapping, accuracy: float | None) -> str:
    """Return an accuracy on the test part with its interval, or a dash."""
    ends = describe_accuracy_interval(card, accuracy)
    return f"{share(accuracy)} ({ends})" if ends else share(accuracy)


def describe_accuracy_interval(card: Mapping, accuracy: float | None) -> str:
    """Return the 95 % Wilson interval (of several labels conservative) of an accuracy; "" where it is unknown."""
    rows = (card.get("rows") or {}).get("test")
    return "" if accuracy is None or not rows else " to ".join(map(share, wilson(accuracy, rows)))


def average_seconds(results: Results) -> pd.Series:
    """Return mean seconds per instance by method, of rows that did not fail; NaN where external scores have none."""
    seconds = {entry: drop_failures(frame)["seconds"].mean() for entry, frame in results.scores.items()}
    return pd.Series(seconds, dtype=float)


def average_evaluations_at_budgets(results: Results) -> pd.Series:
    """Return median evaluations at each intermediate budget, by method and budget (a multiple of d)."""
    budgets = results.intermediate_budgets.items()
    parts = [drop_failures(rows).assign(method=entry) for entry, rows in budgets if len(rows)]
    if not parts:
        return pd.Series(dtype=float)
    return pd.concat(parts).groupby(["method", "budget"])["evaluations"].median()


def find_other_dataset(results: Results) -> str | None:
    """Return the dataset that the model was trained on, where the experiment explains another."""
    return results.model_card.get("settings", {}).get("dataset") if results.settings.get("dataset") else None


def choose_instances(instances: pd.DataFrame, count: int) -> pd.DataFrame:
    """Return the shown instances, alternating between classes; with several labels, all labels of an image."""
    if "image" in instances:
        order = instances.groupby("image")["label"].sum().sort_values(ascending=False, kind="stable").index
        rows = instances.set_index("image", drop=False).loc[order].reset_index(drop=True)
        return rows.head(max(count // rows["target"].nunique(), 1) * rows["target"].nunique())
    if instances["label"].dtype.kind == "f":
        return instances.head(count)
    turn = instances.groupby("label", sort=True).cumcount()
    return instances.assign(turn=turn).sort_values(["turn", "label"], kind="stable").head(count).drop(columns="turn")


def find_positions(dataset: Dataset, instances: pd.DataFrame) -> np.ndarray:
    """Return the indices of instances in the dataset's arrays; an instance's id is its position in the source."""
    indices = pd.Index(dataset.ids).get_indexer(find_ids(instances))
    labels = dataset.labels[indices, instances["target"]] if "image" in instances else dataset.labels[indices]
    if (indices < 0).any() or (labels != instances["label"]).any():
        raise ShapelineError("report: the explained instances are not those of the prepared dataset; run both again.")
    return indices


def select_scores(frame: pd.DataFrame, instances: Sequence[int], column: str = "scores") -> list[np.ndarray | None]:
    """Return the first repeat's scores (or `column`) at the largest budget per instance, None where it failed."""
    rows = drop_failures(frame).sort_values(["repeat", "budget"], ascending=[False, True])
    rows = rows.drop_duplicates("instance", keep="last")
    by_instance = dict(zip(rows["instance"], rows[column], strict=True)) if column in rows else {}
    by_instance = {key: row for key, row in by_instance.items() if row is not None}
    return [np.asarray(by_instance[key], np.float64) if key in by_instance else None for key in instances]


def name_instance(results: Results, row: Mapping) -> str:
    """Return class, prediction, probability and number of an instance, a line each."""
    if not results.model_card:
        classes, label = results.dataset_card.get("classes"), row["label"]
        return f"{classes[label] if classes else number(label, 4, whole=False)}\ninstance {row['instance']}"
    if results.dataset_card.get("task") == "regression":
        numbers = (number(row[key], 4, whole=False) for key in ("prediction", "label"))
        return "predicted {}\ntrue {}\ninstance {}".format(*numbers, row["instance"])
    classes = results.dataset_card["classes"]
    if "image" in row:
        there, mark = "there" if row["label"] else "not there", "" if row["label"] == row["prediction"] else " (wrong)"
        return f"{classes[row['target']]}: {there}\nP = {row['probability']:.3f}{mark}\ninstance {row['image']}"
    has_label = row["label"] >= 0  # a custom text has no label
    mark = " (wrong)" if has_label and row["label"] != row["prediction"] else ""
    true_class = f"true {classes[row['label']]}\n" if has_label else ""
    other = find_other_class(results, row)
    explained = f"\nexplained {other}" if other else ""
    return (
        f"{true_class}predicted {classes[row['prediction']]}{mark}\nP = {row['probability']:.3f}{explained}"
        f"\ninstance {row['instance']}"
    )


def find_other_class(results: Results, row: Mapping) -> str | None:
    """Return the explained class of an instance where it is not the predicted one."""
    target = row.get("target", row["prediction"])
    return None if target == row["prediction"] else str(results.dataset_card["classes"][target])


def name_shared_features(results: Results) -> list[str]:
    """Return the names of features that all instances share; of an image's grid their rows and columns."""
    features = results.features
    if features.kind in IMAGE_KINDS and len(features.shape) == 2 and not features.names:
        return [f"row {row + 1}, column {column + 1}" for row, column in np.ndindex(*features.shape)]
    return name_features(results)


def name_features(results: Results) -> list[str]:
    """Return the names of the d features; numbered names where they have none."""
    return list(results.features.names) or [f"feature {index}" for index in range(results.d)]
