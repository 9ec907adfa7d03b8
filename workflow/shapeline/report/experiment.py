"""Everything a report shows of an experiment, read once."""

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np
import pandas as pd

from shapeline import scores as score_files
from shapeline.datasets import loading
from shapeline.datasets.loading import Dataset
from shapeline.errors import ShapelineError
from shapeline.games import features as feature_kinds
from shapeline.games.features import Features
from shapeline.methods import external
from shapeline.methods.registry import METHODS
from shapeline.metrics.registry import PAIRED
from shapeline.report.formatting import number

UNITS = {
    "log_probability": "nats",
    "expected_log_probability": "nats",
    "log_odds": "nats",
    "margin": "nats",
    "probability": "probability",
    "logit": "logits",
    "prediction": "units of the target",
}
DIRECTIONS = {"deletion": "lower", "insertion": "higher"}  # of the two curves: which way is better


def remember(compute: Callable) -> Callable:
    """Decorate a function of results and hashable values: it is computed once per experiment and values."""

    @functools.wraps(compute)
    def wrapper(results: "Results", *given):
        known, key = results.memo, (compute, *given)
        if key not in known:
            known[key] = compute(results, *given)
        return known[key]

    return wrapper


@dataclass(frozen=True)
class Results:
    """Everything a report shows, read once by `load`."""

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
    # Rows at budgets below the method's own.
    intermediate_budgets: dict[str, pd.DataFrame] = field(default_factory=dict)

    @functools.cached_property
    def memo(self) -> dict:
        """What `remember` has computed."""
        return {}

    @functools.cached_property
    def dataset(self) -> Dataset:
        """Read when first asked for: the index of many experiments shows none of their inputs."""
        return loading.load(self.folder)

    @property
    def exact(self) -> str | None:
        return self.settings.get("exact")

    @property
    def truth(self) -> str:
        """What errors are measured against, in words: exact Shapley values, or whatever the method holds."""
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
        """The features of one instance."""
        return self.features or feature_kinds.build_for(self.settings["features"], self.dataset_card, image)

    @property
    def shown(self) -> pd.DataFrame:
        """The instances that a page shows."""
        return choose_instances(self.instances, int(self.settings.get("n_shown") or 4))

    def read_inputs(self, rows: pd.DataFrame) -> np.ndarray:
        """Return the inputs of instances."""
        return self.dataset.inputs[positions(self.dataset, rows)]

    def name_instances(self, rows: pd.DataFrame) -> list[str]:
        """Return the class, prediction, probability and number of instances."""
        return [instance_name(self, row) for row in rows.to_dict("records")]

    def select_scores(self, instances: Sequence[int], column: str = "scores") -> dict[str, list[np.ndarray | None]]:
        """Return `select_scores` of each entry."""
        return {entry: select_scores(frame, instances, column) for entry, frame in self.scores.items()}

    @property
    def value_unit(self) -> str:
        return UNITS.get(self.settings.get("value"), "units of the value")


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """A notebook's experiment, settings and files; `settings_json`: methods, budget, features, report keys …."""

    experiment: str
    settings_json: str
    model_card: str  # "" where there is no model
    dataset_card: str
    dataset: str  # the folder of the prepared one
    instances: str
    scores: Mapping[str, Sequence[str]]  # the shards of each method
    metrics: str = ""  # the comparison of all methods by all metrics, "" where there is none
    measured: Sequence[str] = ()  # what was measured of each instance
    root: str = ""  # the folder of the results, as the page names it


def load_notebook(names: Mapping[str, object]) -> Results:
    """The experiment of the notebook that passes its `globals()`, in which its parameters stand."""
    return load(**{parameter.name: names[parameter.name] for parameter in fields(Parameters)})


def load(**parameters) -> Results:
    """Read the files of one experiment (fields of `Parameters`); a missing one is a ShapelineError, but of a metric."""
    given = Parameters(**parameters)
    settings = json.loads(given.settings_json)
    settings = {**settings.pop("report", {}), **settings}
    entries = _order_entries(settings)
    files = _score_files(given, entries)
    tables = _split_metrics([score_files.read_table(given.metrics)] if Path(given.metrics).is_file() else [])
    every = _split_metrics(map(_read_compared, given.measured))
    card = _card(given, given.dataset_card) if given.dataset_card else {}
    explained = score_files.read_table(_present(given.instances, given.experiment))
    every_row = {entry: score_files.select_training(score_files.read(paths)) for entry, paths in files.items()}
    explanations = {entry: score_files.final(rows) for entry, rows in every_row.items()}
    if card.get("task") == "multilabel":
        explained = _expand_labels(explained, len(card["classes"])).assign(image=explained["instance"])
        explanations = {entry: _expand_labels(frame, len(card["classes"])) for entry, frame in explanations.items()}
    return Results(
        experiment=given.experiment,
        root=given.root,
        settings=settings,
        entries=entries,
        model_card=_card(given, given.model_card) if given.model_card else {},
        dataset_card=card,
        folder=given.dataset,
        features=None
        if feature_kinds.varies(settings["features"])
        else feature_kinds.build(settings["features"], card),
        instances=explained,
        scores=explanations,
        metadata={entry: [score_files.metadata(path) for path in paths] for entry, paths in files.items()},
        metrics={metric: frame[frame["method"].isin(list(entries))] for metric, frame in tables.items()},
        measured={
            metric: frame[frame["method"].isin(list(entries)) & (frame["training"] == 0)]
            for metric, frame in every.items()
        },
        by_training_seed=every,
        intermediate_budgets={entry: rows[rows["budget"] < rows["budget"].max()] for entry, rows in every_row.items()},
    )


def _score_files(given: Parameters, entries: Mapping[str, dict]) -> dict[str, list[Path]]:
    """Return the files of each method, in order; all of them exist and are named by the settings."""
    unknown = sorted(set(given.scores) - set(entries))
    if unknown:
        raise ShapelineError(
            f"report of {given.experiment}: scores for {', '.join(unknown)}, which the settings do not name; run "
            "it again."
        )
    shown = [entry for entry in entries if entry in given.scores]
    return {entry: [_present(path, given.experiment) for path in given.scores[entry]] for entry in shown}


def _read_compared(path: str | Path) -> pd.DataFrame:
    """Return what pages compare by instance, without curves: thousands would fill the memory, and means are drawn."""
    measured = score_files.read_table(path)
    paired = measured["metric"].isin(PAIRED) & (measured["x"].isna() | measured["statistic"].str.endswith("_by_budget"))
    return measured[paired].rename(columns={"training_seed": "training"})


def _split_metrics(frames: Iterable[pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Rows of measurements by their metric."""
    every = pd.concat([*frames], ignore_index=True) if (frames := [*frames]) else pd.DataFrame({"metric": []})
    return {
        metric: rows.drop(columns="metric").reset_index(drop=True)
        for metric, rows in every.groupby("metric", sort=False)
    }


def _card(given: Parameters, path: str) -> dict:
    return json.loads(_present(path, given.experiment).read_text(encoding="utf-8"))


def _expand_labels(frame: pd.DataFrame, count: int) -> pd.DataFrame:
    """The rows with a number of its own for each label of an image, which to a report is an instance by itself."""
    return frame.assign(image=frame["instance"], instance=frame["instance"] * count + frame["target"])


def ids(instances: pd.DataFrame) -> pd.Series:
    """The instances as the dataset knows them: of several labels each is there once a label, and is its image."""
    return instances["image" if "image" in instances else "instance"]


def describe_explained_class(results: Results) -> str:
    """Return what positive scores support, in words."""
    if results.dataset_card.get("task") == "multilabel":
        return "the label named beside the image"
    if asked := results.settings.get("target"):
        return "the true class" if asked == "true" else f"class {results.dataset_card['classes'][_target(results)]}"
    return "the predicted class" if results.model_card else "the image's own label"


def _target(results: Results) -> int:
    """The one class that is explained of all instances."""
    return int(results.instances["target"].iloc[0])


def describe_rows(results: Results) -> str:
    """What is to be said of the rows of a figure of instances where each label of an image has one."""
    if "image" not in results.instances:
        return ""
    return " Each label has a row of its own, and the images that have most labels come first."


def _order_entries(settings: Mapping) -> dict[str, dict]:
    described = settings["entries"]
    return {entry: described[entry] for entry in settings.get("order", described)}


def _present(path: str | Path, experiment: str) -> Path:
    if not Path(path).is_file():
        raise ShapelineError(f"report of {experiment}: {path} is missing; run `snakemake {experiment}` to make it.")
    return Path(path)


def good(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of a score file that did not fail."""
    fine = frame["status"] == "ok"
    return frame if fine.all() else frame[fine]


def count_warnings_and_failures(frame: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """How many rows of a score file the method flags as what, and how many failed by what."""
    return good(frame)["warning"].value_counts(), frame.loc[frame["status"] != "ok", "status"].value_counts()


def scalars(frame: pd.DataFrame | None, statistic: str) -> pd.DataFrame:
    """The rows of a scalar statistic, indexed by method; empty when the metric or the statistic is missing."""
    if frame is None:
        return pd.DataFrame(columns=["mean", "low", "high", "n"])
    rows = frame[(frame["statistic"] == statistic) & frame["mean"].notna()]
    return rows.drop_duplicates("method", keep="last").set_index("method")


def ceiling(frame: pd.DataFrame | None, name: str) -> pd.DataFrame:
    """Return what the optimal order reaches, the rows of `best_<name>`; none without the values of all coalitions."""
    none = pd.DataFrame(columns=["method", "x", "mean", "low", "high", "n"])
    if frame is None:
        return none
    rows = frame[(frame["statistic"] == f"best_{name}") & frame["mean"].notna()]
    return rows[rows["method"] == rows["method"].iloc[0]].sort_values("x") if len(rows) else none


def count_failures(results: Results) -> int:
    """Return the number of explanations that failed, of all methods."""
    return int(sum((frame["status"] != "ok").sum() for frame in results.scores.values()))


def count_spent(frame: pd.DataFrame) -> int:
    """Coalitions evaluated for the rows, with those that only intermediate budgets at smaller budgets used."""
    own = frame["evaluations"].to_numpy()
    noted = [json.loads(details).get("evaluated") if isinstance(details, str) else None for details in frame["details"]]
    return int(sum(own[index] if union is None else union for index, union in enumerate(noted)))


def count_evaluations(results: Results, frame: pd.DataFrame) -> int:
    """Return the evaluations of a method's rows; the outputs of a game share theirs, which count once."""
    if "players" in results.instances:
        frame = frame[frame["instance"].isin(results.instances.drop_duplicates("row")["instance"])]
    return count_spent(frame)


def evaluations(results: Results, instance: int | None = None) -> pd.Series:
    """Evaluations per instance and repeat, by method: median of the rows that did not fail, mean of those that end
    when they are good enough; NaN where scores made elsewhere do not say. instance: of this one alone."""
    known = {entry: good(frame) for entry, frame in results.scores.items()}
    if instance is not None:
        known = {entry: frame[frame["instance"] == instance] for entry, frame in known.items()}
    known = {entry: frame.loc[frame["warning"] != external.UNKNOWN, "evaluations"] for entry, frame in known.items()}
    varied = find_stopping_rules(results)  # where a few instances may take most of it
    each = {entry: spent.mean() if entry in varied else spent.median() for entry, spent in known.items()}
    return pd.Series(each, dtype=float)


def find_stopping_rules(results: Results) -> dict[str, dict]:
    """The methods whose explanations end when they are good enough, and what has to hold."""
    budgets = {entry: (settings.get("parameters") or {}).get("budget") for entry, settings in results.entries.items()}
    return {entry: budget for entry, budget in budgets.items() if isinstance(budget, dict) and entry in results.scores}


def find_unit(results: Results, entry: str) -> str:
    """Return the unit of a method's scores, "" without: of gradients nats, or a regression's, whatever the value."""
    output = UNITS["prediction" if results.dataset_card.get("task") == "regression" else "log_probability"]
    kinds = {"value": results.value_unit, "output": output, "slope": f"{output} per unit of the input", "none": ""}
    return kinds[METHODS[results.entries[entry]["method"]].unit]


def describe_units(results: Results) -> str:
    """The unit of the scores, and in which other units some methods have theirs."""
    others: dict[str, list[str]] = {}
    for entry in results.scores:
        if (unit := find_unit(results, entry)) != results.value_unit:
            others.setdefault(unit or "no unit", []).append(entry)
    return "; ".join([results.value_unit, *(f"{unit}: {', '.join(entries)}" for unit, entries in others.items())])


def list_gradient_methods(results: Results) -> list[str]:
    """The methods whose evaluations are gradients."""
    methods = {
        entry: METHODS[settings["method"]] for entry, settings in results.entries.items() if entry in results.scores
    }
    return [entry for entry, method in methods.items() if method.gradients]


def part_sizes(card: Mapping) -> dict[str, int]:
    """Return the number of records per part of a dataset."""
    return card.get("rows") or {part: sum(of.values()) for part, of in (card.get("counts") or {}).items()}


def warn_near_chance(results: Results) -> str | None:
    """Return a sentence where the model is not significantly better than the commonest class or the mean, else None."""
    card, data = results.model_card, results.dataset_card
    if card.get("test_r2") is not None:
        quality = f"Its R² on the test part is {card['test_r2']:.2f}: always naming the mean does as well."
        return quality if card["test_r2"] <= 0 else None
    counts = (data.get("counts") or {}).get("test") or {}
    rows = sum(counts.values())
    if card.get("test_accuracy") is None or not rows or data.get("task") == "multilabel" or find_other_dataset(results):
        return None  # nothing is known of the part that it was tested on
    from scipy.special import bdtrc  # scipy.stats takes half a second

    commonest = max(counts.values()) / rows
    right = round(card["test_accuracy"] * rows)
    if right and bdtrc(right - 1, rows, commonest) < 0.05:
        return None
    shares = (100 * card["test_accuracy"], 100 * commonest)
    return "It is right on {:.1f} % of the test part, and the commonest class alone is {:.1f} %.".format(*shares)


def mean_seconds(results: Results) -> pd.Series:
    """Mean seconds per instance by method, of the rows that did not fail; NaN where external scores do not say."""
    return pd.Series({entry: good(frame)["seconds"].mean() for entry, frame in results.scores.items()}, dtype=float)


def evaluations_at_budgets(results: Results) -> pd.Series:
    """The same at each smaller budget whose estimates were kept, by method and budget (a multiple of d)."""
    parts = [good(rows).assign(method=entry) for entry, rows in results.intermediate_budgets.items() if len(rows)]
    if not parts:
        return pd.Series(dtype=float)
    return pd.concat(parts).groupby(["method", "budget"])["evaluations"].median()


def find_other_dataset(results: Results) -> str | None:
    """The dataset that the model was trained on, where the experiment explains another."""
    return results.model_card.get("settings", {}).get("dataset") if results.settings.get("dataset") else None


def choose_instances(instances: pd.DataFrame, count: int) -> pd.DataFrame:
    """Return the instances shown: the first of every class in turn; of several labels all of an image together."""
    if "image" in instances:
        order = instances.groupby("image")["label"].sum().sort_values(ascending=False, kind="stable").index
        rows = instances.set_index("image", drop=False).loc[order].reset_index(drop=True)
        return rows.head(max(count // rows["target"].nunique(), 1) * rows["target"].nunique())
    if instances["label"].dtype.kind == "f":
        return instances.head(count)
    turn = instances.groupby("label", sort=True).cumcount()
    return instances.assign(turn=turn).sort_values(["turn", "label"], kind="stable").head(count).drop(columns="turn")


def positions(dataset: Dataset, instances: pd.DataFrame) -> np.ndarray:
    """Places in the dataset's arrays of the instances, which are named by their position in the source."""
    indices = pd.Index(dataset.ids).get_indexer(ids(instances))
    own = dataset.labels[indices, instances["target"]] if "image" in instances else dataset.labels[indices]
    if (indices < 0).any() or (own != instances["label"]).any():
        raise ShapelineError("report: the explained instances are not those of the prepared dataset; run both again.")
    return indices


def select_scores(frame: pd.DataFrame, instances: Sequence[int], column: str = "scores") -> list[np.ndarray | None]:
    """Return the first repeat's scores (or `column`) at the largest budget per instance, None where it failed."""
    rows = good(frame).sort_values(["repeat", "budget"], ascending=[False, True])
    rows = rows.drop_duplicates("instance", keep="last")
    by_instance = dict(zip(rows["instance"], rows[column], strict=True)) if column in rows else {}
    by_instance = {key: row for key, row in by_instance.items() if row is not None}
    return [np.asarray(by_instance[key], np.float64) if key in by_instance else None for key in instances]


def instance_name(results: Results, row: Mapping) -> str:
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
    known = row["label"] >= 0  # of a custom text it is not
    mark = " (wrong)" if known and row["label"] != row["prediction"] else ""
    truth = f"true {classes[row['label']]}\n" if known else ""
    other = find_other_class(results, row)
    asked = f"\nexplained {other}" if other else ""
    return (
        f"{truth}predicted {classes[row['prediction']]}{mark}\nP = {row['probability']:.3f}{asked}"
        f"\ninstance {row['instance']}"
    )


def find_other_class(results: Results, row: Mapping) -> str | None:
    """The class that is explained of an instance, where that is not the predicted one."""
    target = row.get("target", row["prediction"])
    return None if target == row["prediction"] else str(results.dataset_card["classes"][target])


def feature_names(results: Results) -> list[str]:
    """The names of the d features, or numbers where they have none."""
    return list(results.features.names) or [f"feature {index}" for index in range(results.d)]
