"""Tables of a page, as data frames of text."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from shapeline.datasets.loading import is_series
from shapeline.games.features import Features
from shapeline.methods.registry import METHODS
from shapeline.report import experiment
from shapeline.report.formatting import format_evaluations, format_lists, interval, merge_values, number, plain, share
from shapeline.scores import count_top, sum_scores
from shapeline.statistics import paired
from shapeline.statistics.bounds import intervals
from shapeline.versions import find_differences

CEILING = "best order"  # no method has a space in its name
MAX_LISTED = 3  # columns of a group whose values are listed; larger groups show their number of columns
AUC = {"deletion": "deletion AUC", "insertion": "insertion AUC"}
TOP = 0.2  # of features, at whose threshold the diagnostics check for ties


def health(results: experiment.Results) -> pd.DataFrame:
    """Return a row per method: rows, failures, efficiency gap, zero scores, ties, evaluations, warnings, versions."""
    table = pd.DataFrame([_describe_health(results, entry, frame) for entry, frame in results.scores.items()])
    table["packages"] = [_list_packages(results).get(entry, "as installed") for entry in table["method"]]
    usual = {"warnings": "none", "packages": "as installed"}
    return table.drop(columns=[name for name, value in usual.items() if table[name].eq(value).all()])


def _list_packages(results: experiment.Results) -> dict[str, str]:
    """Return the packages of each method whose version differs from the installed one, or from that of most methods."""
    shards = {
        (entry, index): metadata.get("versions", {})
        for entry, files in results.metadata.items()
        for index, metadata in enumerate(files)
    }
    warnings: dict[str, dict[str, None]] = {}
    for (entry, _), packages in find_differences(shards).items():
        for name, (theirs, here) in packages.items():
            warnings.setdefault(entry, {})[f"{name} {theirs}, not {here}"] = None
    return {entry: "⚠ " + "; ".join(texts) for entry, texts in warnings.items()}


def _describe_health(results: experiment.Results, entry: str, frame: pd.DataFrame) -> dict:
    fine = experiment.drop_failures(frame)
    values = [np.asarray(row, dtype=float)[None] for row in fine["scores"]]  # rows may differ in length
    values = [np.concatenate(values)] if len({row.shape for row in values}) == 1 else values
    flagged, failed = experiment.count_warnings_and_failures(frame)
    total = (fine["value_full"] - fine["value_empty"]).to_numpy()
    gap = float(np.median(np.abs(sum_scores(fine) - total))) if len(fine) else math.nan
    has_pairs = "interactions" in fine and fine["interactions"].notna().any()  # those of prompts are not stored
    settings = results.entries[entry]
    method = METHODS[settings["method"]]
    promised = len(fine) and (has_pairs or method.is_efficient(settings.get("parameters", {})))
    broken = promised and gap > 1e-4 * np.median(np.abs(total)) + 1e-6
    return {
        "method": entry,
        "rows": number(len(frame)),
        "failures": "⚠ " + format_lists(failed, first=False) if len(failed) else "none",
        "warnings": format_lists(flagged, first=False) if len(flagged) else "none",
        f"efficiency gap, median ({results.value_unit})": ("⚠ " if broken else "")
        + number(0.0 if gap < 1e-12 else gap),
        "should be 0": ("yes" if promised else "no") if len(fine) else "–",
        "zero scores": share(np.mean(np.concatenate([rows.ravel() for rows in values]) == 0)) if values else "–",
        "ties at top-20 %": share(np.mean(np.concatenate([ties(rows) for rows in values]))) if values else "–",
        "evaluations, total": number(experiment.count_evaluations(results, frame)),
    }


def ties(values: np.ndarray, cut: float = TOP) -> np.ndarray:
    """Return whether the k-th and next largest signed score of rows (rows, d) are equal, k = ⌈cut · d⌉."""
    d = values.shape[1]
    k = count_top(cut, d)
    if k >= d:
        return np.zeros(len(values), bool)
    ordered = -np.sort(-values, axis=1)
    return ordered[:, k - 1] == ordered[:, k]


def tabulate_means(
    frame: pd.DataFrame, titles: Mapping[str, str], entries: Iterable[str], write: Callable[[Mapping], str] = interval
) -> pd.DataFrame:
    """Return a row per method with its mean by each statistic in the frame, as text; titles: of the columns."""
    present = {title: rows for name, title in titles.items() if len(rows := experiment.scalars(frame, name))}
    return pd.DataFrame(
        {
            "method": entry,
            **{title: write(rows.loc[entry]) if entry in rows.index else "–" for title, rows in present.items()},
        }
        for entry in entries
    )


def area_table(results: experiment.Results, marks: Sequence[float] = (0.02, 0.08, 0.2)) -> pd.DataFrame:
    """Return the mean change of log-odds at a few masked fractions (the nearest computed), and both AUCs."""
    frame = results.metrics.get("log_odds")
    if frame is None:
        return pd.DataFrame()
    masking, insertion = experiment.scalars(frame, "deletion_auc"), experiment.scalars(frame, "insertion_auc")
    curve = frame[frame["statistic"] == "deletion"].pivot_table(index="method", columns="x", values="mean")
    positive = curve.columns[curve.columns > 0]
    nearest = sorted({positive[np.abs(positive - mark).argmin()] for mark in marks}) if len(positive) else []
    ways = {name: _scale_auc(results, f"{name}_auc", better) for name, better in experiment.DIRECTIONS.items()}
    tops = {name: experiment.select_ceiling(frame, f"{name}_auc") for name in experiment.DIRECTIONS}
    ends = {name: "the optimal order" if len(top) else "the best method" for name, top in tops.items()}
    order = sorted(curve.index.union(masking.index), key=lambda entry: masking["mean"].get(entry, math.inf))
    shown = pd.DataFrame(
        {
            "method": entry,
            **{f"top {share(x)} masked": number(curve[x].get(entry)) for x in nearest},
            "deletion AUC (lower is better)": interval(masking.loc[entry]) if entry in masking.index else "–",
            "insertion AUC (higher is better)": interval(insertion.loc[entry]) if entry in insertion.index else "–",
            **{
                f"{AUC[name]}, from random to {ends[name]}": _format_shares(way.loc[entry])
                if entry in way.index
                else "–"
                for name, way in ways.items()
                if len(way)
            },
        }
        for entry in order
    )
    if not len(tops["deletion"]):
        return shown
    along = experiment.select_ceiling(frame, "deletion").set_index("x")["mean"]
    best = {"method": "optimal order", **{f"top {share(x)} masked": number(along.get(x, math.nan)) for x in nearest}}
    best |= {
        f"{AUC[name]} ({way} is better)": interval(tops[name].iloc[0]) for name, way in experiment.DIRECTIONS.items()
    }
    return pd.concat([pd.DataFrame([best]), shown], ignore_index=True).fillna("–")


def _scale_auc(results: experiment.Results, statistic: str, better: str) -> pd.DataFrame:
    """Return mean, low and high of AUCs between random attribution, 0, and the optimal order or best method, 1."""
    random = next((entry for entry, settings in results.entries.items() if settings["method"] == "random"), None)
    measured = results.measured.get("log_odds")
    if measured is None or random is None:
        return pd.DataFrame()
    values = paired.pivot_by_method(measured, statistic)
    if random not in values:
        return pd.DataFrame()
    name = f"best_{statistic}"
    best = paired.pivot_by_method(measured[measured["statistic"] == name], name)  # equal for all methods that have it
    values = values if best.empty else values.assign(**{CEILING: best.iloc[:, 0]})
    result = intervals(paired.scale_to_range(values, random, better).drop(columns=CEILING, errors="ignore"))
    return result.assign(high=result["high"].clip(upper=1.0))  # no method is better than the best


def _format_shares(row: Mapping) -> str:
    """Return 'mean (low to high)' of fractions, as percentages."""
    mean, low, high = (number(100 * row[key], decimals=1) for key in ("mean", "low", "high"))
    return f"{mean} % ({low} to {high})" if np.isfinite(row["low"]) else f"{mean} %" if row["n"] else mean


def cost(results: experiment.Results) -> pd.DataFrame:
    """Return a row per method: evaluations per instance, as a multiple of d, against the budget; seconds and share."""
    each, budget, d = experiment.average_costs(results), results.settings.get("budget"), results.d
    varied = experiment.find_stopping_rules(results)
    alone = results.settings.get("timing") == "per_instance"  # only then do seconds differ by instance
    timed = 1000 * experiment.scalars(results.metrics.get("cost"), "seconds")[["mean", "low", "high"]]
    totals = {entry: frame["seconds"].sum(min_count=1) for entry, frame in results.scores.items()}
    seconds = pd.Series(totals, dtype=float)
    rows, limit = [], f"{number(budget)} d"
    within = "–" if budget is None else f"within {limit}"
    for entry, frame in results.scores.items():
        above = budget is not None and each[entry] > budget * d + 2
        known = within if np.isfinite(each[entry]) else "–"
        mean = 1000 * experiment.drop_failures(frame)["seconds"].mean()
        rows.append(
            {
                "method": entry,
                "evaluations per instance": format_evaluations(each[entry]),
                "multiple of d": number(each[entry] / d) if d else "–",
                "budget": "adaptive stopping" if entry in varied else f"⚠ above {limit}" if above else known,
                "ms per instance": interval(timed.loc[entry]) if alone and entry in timed.index else number(mean),
                "seconds, total": number(seconds[entry]),
                "share of time": share(seconds[entry] / seconds.sum()) if seconds.sum() > 0 else "–",
            }
        )
    return pd.DataFrame(rows)


def feature_values(row: np.ndarray, features: Features, card: Mapping) -> list[str]:
    """Return a row's (n,) value per feature: a number, several, a category's name, or the number of columns."""
    columns = list(card.get("feature_names") or [])
    categories = card.get("categories") or {}
    texts = []
    for feature in range(features.d):
        cells = np.flatnonzero(features.cells == feature)
        values, names = row[cells], [columns[cell] if columns else str(cell) for cell in cells]
        shown = [_format_cell(value, categories.get(name)) for value, name in zip(values, names, strict=True)]
        is_one_hot = sorted(values) == [0.0] * (len(cells) - 1) + [1.0] and not categories.keys() & set(names)
        if len(cells) > 1 and is_one_hot:
            texts.append(names[int(values.argmax())])
        else:
            texts.append("; ".join(shown) if len(cells) <= MAX_LISTED else f"{len(cells)} columns")
    return texts


def _format_cell(value: float, categories: Sequence | None) -> str:
    if np.isnan(value):
        return "missing"
    # Without separators of thousands, which years, codes and identifiers do not have.
    return number(float(value), 4).replace(",", "") if categories is None else str(categories[int(value)])


def facts(entries: Mapping[str, object]) -> pd.DataFrame:
    """Return two columns, name and value, without empty entries."""
    known = {name: str(value) for name, value in entries.items() if value not in (None, "", [], {})}
    return pd.DataFrame({"fact": list(known), "value": list(known.values())})


def model_facts(card: Mapping) -> pd.DataFrame:
    """Return the model card as facts; for an experiment without a model, a statement that it has none."""
    if not card:
        return facts({"model": "none: labelled instances only"})
    parameters, accuracy = card.get("n_parameters", card.get("parameters")), experiment.describe_accuracy
    epochs, best = len(card.get("history") or []), card.get("best_epoch")
    by_label = card.get("test_accuracy_by_label", {})
    return facts(
        {
            "name": card.get("name"),
            "architecture": card.get("architecture"),
            "framework": card.get("framework"),
            "trained on": (card.get("settings") or {}).get("dataset"),
            "trainable parameters": None if parameters is None else number(parameters),
            "test accuracy": accuracy(card, card["test_accuracy"]) if "test_accuracy" in card else None,
            "test accuracy per label": format_lists({name: accuracy(card, value) for name, value in by_label.items()}),
            "all labels correct": accuracy(card, card["test_exact_match"]) if "test_exact_match" in card else None,
            "test R²": None if card.get("test_r2") is None else number(card["test_r2"], decimals=3),
            "test RMSE": None if card.get("test_rmse") is None else number(card["test_rmse"]),
            "epochs": f"{epochs}, best: {best}" if epochs and best else epochs or None,
            "training": plain(card.get("training")),
            "training time": None if card.get("seconds") is None else f"{number(card['seconds'])} s",
            "seed": card.get("seed"),
            "versions": plain(card.get("versions")),
        }
    )


def dataset_facts(card: Mapping) -> pd.DataFrame:
    counts = {
        f"rows, {part}": number(experiment.count_rows(card)[part])
        + (f" ({format_lists(classes)})" if card.get("classes") else "")
        for part, classes in (card.get("counts") or {}).items()
    }
    records = {name.replace("_", " "): count for name, count in (card.get("records") or {}).items() if count}
    kind, shape = card.get("kind", ""), card.get("input_shape", [])
    kind, shape = ("series", shape[1:]) if is_series(card) else (kind, shape)
    return facts(
        {
            "name": card.get("name"),
            "source": card.get("source"),
            "kind": f"{kind}, input shape {' × '.join(map(str, shape))}",
            "task": card.get("task"),
            "labels" if card.get("rows") else "classes": ", ".join(map(str, card.get("classes", []))),
            **counts,
            "groups of columns": len(card.get("groups") or {}) or None,
            "records": format_lists(records),
            "subset": card.get("subset"),
            "notes": "; ".join(card.get("notes") or []),
            "licence": card.get("licence"),
            "citation": card.get("citation"),
            "addresses": ", ".join(card.get("urls") or []),
        }
    )


def _format_d(results: experiment.Results) -> str:
    """Return the number of features; the smallest and the largest where instances differ."""
    if results.features is not None:
        return f"{results.d:,}"
    lengths = {len(row) for frame in results.scores.values() for row in frame["scores"] if row is not None}
    return f"{min(lengths):,} to {max(lengths):,}" if len(lengths) > 1 else f"{results.d:,}"


def merge_metadata(results: experiment.Results, keys: Sequence[str]) -> dict[str, str]:
    """Return the values of keys in the metadata of all score files; versions are those that jobs imported."""
    every = [metadata for files in results.metadata.values() for metadata in files]
    return {
        key: merge_values(file.get(key) for file in every)
        if key == "versions"
        else "; ".join(sorted({plain(file[key]) for file in every if file.get(key) is not None}))
        for key in keys
    }


def provenance(results: experiment.Results) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the provenance of the scores: what all score files share, and a row per method."""
    known = {"experiment": results.experiment, "result folder": results.root}
    keys = ("schema_version", "seed", "reference", "value", "framework", "device", "versions", "git_commit")
    shared = {key.replace("_", " "): text for key, text in merge_metadata(results, keys).items()}
    kind = {
        "game": results.settings.get("game"),
        "features": f"{plain(results.settings['features'])}, d = {_format_d(results)}",
    }
    return facts({**known, **kind, **shared}), pd.DataFrame(
        {
            "method": entry,
            "method of the registry": results.entries[entry]["method"],
            "parameters": plain(results.entries[entry].get("parameters")) or "defaults",
            "shards": number(len(files)),
            "execution backend": "; ".join(sorted({_format_backend(file.get("form")) for file in files})),
            "settings digest": "; ".join(sorted({str(file.get("settings_digest", "–")) for file in files})),
        }
        for entry, files in results.metadata.items()
    )


def _format_backend(backend: object) -> str:
    """Return the model's backend in words, without the rate, which differs between runs."""
    return f"{backend['name']}, batch {backend['batch']}" if isinstance(backend, Mapping) else plain(backend) or "–"
