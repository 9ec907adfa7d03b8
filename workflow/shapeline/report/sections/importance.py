"""Importance of features over the explained instances, by the recommended method, and the instances."""

import html
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from shapeline.report import experiment
from shapeline.report.colours import signs
from shapeline.report.criteria import Evidence
from shapeline.report.elements import HTML, figure, fold, heading, join_parts, table
from shapeline.report.experiment import Results
from shapeline.report.figures import explanations as figures
from shapeline.report.figures import score_maps
from shapeline.report.figures.score_maps import Tile
from shapeline.report.formatting import format_count, interval, number, share
from shapeline.report.sections import images, texts
from shapeline.report.sections.images import colour_image, explorer, list_words, mean_map, to_data_uri
from shapeline.statistics.bounds import intervals

MAX_NAMED = 3  # features at the top of the page
MIN_SHARE = 0.05  # of the largest mean: smaller ones are not named at the top of the page
MAX_ROWS = 14  # features or words of a table
MAX_GROUPS = 4  # per figure
MAX_CLASSES = 10
MIN_INSTANCES = 3  # with a word, so that its mean covers several texts


def choose_method(results: Results, answered: Sequence[Evidence]) -> str | None:
    """Return the method recommended by the first criterion that has one, else the first that is not a control; never
    random attribution, in which no feature is important."""
    picks = [advice.entry for answer in answered if (advice := answer.first(results)) and advice.entry]
    names = [name for entry in picks for name in (entry, entry.partition(" at ")[0])]
    others = [entry for entry in results.scores if not results.entries[entry].get("is_control")]
    fitting = (name for name in [*names, *others] if name in results.scores)
    return next((name for name in fitting if results.entries[name].get("method") != "random"), None)


def section(results: Results, entry: str | None) -> HTML | None:
    """Return the importance of the features by a method, over all explained instances and in groups."""
    if entry is None:
        return None
    kind = results.dataset_card["kind"]
    parts = {"image": _show_images, "text": _show_words}.get(kind, _show_columns)(results, entry)
    return join_parts(
        heading(f"Importance over {format_count(len(results.instances), 'instance')}, by {entry}"), *parts
    )


def top_features(results: Results, entry: str | None) -> str:
    """Return the most important features in one sentence; "" where features have no names of their own."""
    if entry is None:
        return ""
    if results.dataset_card["kind"] == "text":
        words = mean_words(results, entry)
        above = words[(words["low"] > 0) & (words["mean"] >= MIN_SHARE * words["mean"].max())].head(MAX_NAMED)
        if len(words) and above.empty:
            large = f"large mean score (at least {share(MIN_SHARE)} of the largest)"
            return f"By {entry}, no word of {large} has a 95 % interval above 0."
        named = [f"“{row.word}” for {row.group}: {interval(row._asdict())}" for row in above.itertuples()]
        what = "Most important words"
    else:
        names, scores = sort_by_size(results, entry)
        means, low, high = figures.mean_intervals(np.abs(scores[:, :MAX_NAMED])) if names else ([], [], [])
        ends = [{"mean": one, "low": down, "high": up} for one, down, up in zip(means, low, high, strict=True)]
        ends = [row for row in ends if row["mean"] >= MIN_SHARE * means[0]]
        named = [f"{name}: {interval(row)}" for name, row in zip(names, ends, strict=False)]
        what = "Most important features"
    measure = "mean score" if results.dataset_card["kind"] == "text" else "mean |score|"
    unit = experiment.find_unit(results, entry)
    scale = f"{measure} in {unit}" if unit else measure
    return f"{what} by {entry} ({scale}, 95 % CI): {'; '.join(named)}." if named else ""


def thumbnail(results: Results, entry: str | None) -> str:
    """Return a small image of the importance for the index: a mean map, or bars of the largest features."""
    if entry is None or not results.dataset_card:
        return ""
    if results.dataset_card["kind"] == "image":
        images = results.read_inputs(results.instances)
        values = experiment.select_scores(results.scores[entry], results.instances["instance"])
        size = mean_map(results, images, [None if row is None else np.abs(row) for row in values], range(len(images)))
        if size is None:
            return ""
        shape = images.shape[-2:]
        pixels = score_maps.SIGNS(0.5 + 0.5 * size.reshape(shape) / (size.max() or 1.0))[..., :3]
        alt = html.escape(f"Mean |score| per pixel by {entry}", quote=True)
        return f'<img width="96" alt="{alt}" src="{to_data_uri(pixels)}">'
    if results.dataset_card["kind"] == "text":
        rows = mean_words(results, entry).head(5)
        names, sizes = list(rows["word"]), rows["mean"].to_numpy()
    else:
        names, scores = sort_by_size(results, entry)
        names, sizes = names[:5], np.nanmean(np.abs(scores[:, :5]), axis=0) if names else []
    if not len(names):
        return ""
    shares = [100 * max(size, 0) / (max(sizes) or 1) for size in sizes]
    bars = "".join(
        f'<div><span>{html.escape(name)}</span><i style="width: {share:.0f}%"></i></div>'
        for name, share in zip(names, shares, strict=True)
    )
    return f'<div class="bars" aria-label="Most important features by {html.escape(entry)}" role="img">{bars}</div>'


def groups(results: Results) -> dict[str, np.ndarray]:
    """Return groups of the explained instances as masks (n,): explained classes, and right and wrong predictions."""
    rows, classes = results.instances, results.dataset_card.get("classes")
    if not results.model_card or results.dataset_card.get("task") == "regression" or not classes:
        return {}
    explained = rows["target" if "target" in rows else "prediction"].to_numpy()
    result = {str(classes[one]): explained == one for one in np.unique(explained)[:MAX_CLASSES]}
    right = (rows["label"] == rows["prediction"]).to_numpy()
    known = (rows["label"] >= 0).to_numpy()
    result = {f"class {name}": mask for name, mask in result.items()} if len(result) > 1 else {}
    if (known & ~right).any() and right.any():
        result |= {"correct predictions": right, "wrong predictions": known & ~right}
    return result


def sort_by_size(results: Results, entry: str) -> tuple[list[str], np.ndarray]:
    """Return names of features, the largest mean |score| first, and scores (n, d); nothing where features differ."""
    if results.features is None:
        return [], np.empty((0, 0))
    rows = experiment.select_scores(results.scores[entry], results.instances["instance"])
    scores = np.stack([np.full(results.d, np.nan) if row is None else row for row in rows])
    names = experiment.name_shared_features(results)
    order = np.argsort(-np.nan_to_num(np.nanmean(np.abs(scores), axis=0)), kind="stable")
    return [names[index] for index in order], scores[:, order]


def _show_columns(results: Results, entry: str) -> Iterator[HTML | None]:
    names, scores = sort_by_size(results, entry)
    across = f"score ({experiment.find_unit(results, entry) or 'no unit'})"
    size, low, high = figures.mean_intervals(np.abs(scores))
    numbers = pd.DataFrame({"feature": names, "mean": size, "low": low, "high": high})
    is_regression = results.dataset_card.get("task") == "regression"
    explained = "" if is_regression else f" for {experiment.describe_explained_class(results)}"
    yield figure(
        figures.summary(names, scores, _rank_values(results, names), across),
        f"Importance of the features by {entry}",
        f"Left: mean |score| with 95 % intervals over instances. Right: the score of each instance{explained}.",
        numbers=numbers,
    )
    result = groups(results)
    if not result:
        return
    if len(result) <= MAX_GROUPS:
        drawing = figures.cohorts(names, {name: scores[mask] for name, mask in result.items()}, across)
        shown = figure(drawing, f"Importance in groups of instances, by {entry}")
    else:
        shown = table(_tabulate_groups(names, scores, result), f"Mean |score| in groups of instances, by {entry}")
    yield fold("Importance by class, and for correct and wrong predictions", shown)


def _tabulate_groups(names: Sequence[str], scores: np.ndarray, found: Mapping[str, np.ndarray]) -> pd.DataFrame:
    sizes = {"all": np.ones(len(scores), bool), **found}
    means = {name: figures.mean_intervals(np.abs(scores[mask])) for name, mask in sizes.items()}
    return pd.DataFrame(
        {
            "feature": feature,
            **{
                f"{name} (n = {number(sizes[name].sum())})": interval({"mean": mean[k], "low": low[k], "high": high[k]})
                for name, (mean, low, high) in means.items()
            },
        }
        for k, feature in enumerate(names[:MAX_ROWS])
    )


def _rank_values(results: Results, names: Sequence[str]) -> np.ndarray | None:
    """Return ranks (n, d) in [0, 1] of the values of features that are one column of numbers each, NaN for others."""
    cells = results.features.cells.ravel()
    values = results.read_inputs(results.instances).reshape(len(results.instances), -1)
    values[:, list(results.dataset_card.get("categorical", ()))] = np.nan
    indices = {
        name: np.flatnonzero(cells == index) for index, name in enumerate(experiment.name_shared_features(results))
    }
    columns = [values[:, indices[name][0]] if len(indices[name]) == 1 else None for name in names]
    if all(column is None or np.isnan(column).all() for column in columns):
        return None
    ranks = [np.full(len(values), np.nan) if one is None else pd.Series(one).rank(pct=True) for one in columns]
    return np.stack(ranks, axis=1)


def _show_images(results: Results, entry: str) -> Iterator[HTML | None]:
    images, rows = results.read_inputs(results.instances), results.instances
    scores = experiment.select_scores(results.scores[entry], rows["instance"])
    sizes = [None if row is None else np.abs(row) for row in scores]
    every = {"all": np.ones(len(rows), bool), **groups(results)}
    tone, shape = score_maps.choose_tone(results.dataset_card), images.shape[-2:]
    names = ["mean |score|", "mean score", "mean image"]

    def tile(row: int, group: str | None) -> Tile:
        indices = np.flatnonzero(every[group or "all"])
        if row == 2:
            return Tile(colour_image(images[indices].mean(0), tone))
        result = mean_map(results, images, (sizes, scores)[row], indices)
        return score_maps.map_tile(result, np.arange(math.prod(shape)).reshape(shape))

    titles = {f"{group} (n\u00a0=\u00a0{number(mask.sum())})": group for group, mask in every.items() if group != "all"}
    count = f"all (n = {number(len(rows))})"
    yield figure(
        score_maps.image_grid(names, list(titles), lambda row, title: tile(row, titles.get(title)), first=count),
        f"Mean maps by {entry}: all instances, classes, correct and wrong predictions",
        f"n: number of instances. {signs(experiment.describe_positive(results))}; each map's own scale is below it.",
        vector=False,
    )


@experiment.remember
def mean_words(results: Results, entry: str) -> pd.DataFrame:
    """Return group, word, mean score with its 95 % interval over texts and their number, the largest first."""
    rows, classes = results.instances, results.dataset_card.get("classes")
    scores = experiment.select_scores(results.scores[entry], rows["instance"])
    explained = rows["target" if "target" in rows else "prediction"].to_numpy()
    named = [str(classes[of]) if classes else "the prediction" for of in explained]
    parts = [
        pd.DataFrame({"group": of, "word": [str(word).lower() for word in words], "text": k, "mean": row})
        for k, (words, row, of) in enumerate(zip(list_words(results, rows), scores, named, strict=True))
        if row is not None and len(row) == len(words)
    ]
    if not parts:
        return pd.DataFrame(columns=["group", "word", "mean", "low", "high", "texts"])
    each = pd.concat(parts).groupby(["group", "word", "text"])["mean"].mean()
    sizes = each.groupby(["group", "word"]).transform("size")
    several = each[sizes >= MIN_INSTANCES]
    table_of = (several if len(several.groupby(["group", "word"])) >= MAX_NAMED else each).unstack("text")
    result = intervals(table_of.T).rename_axis(["group", "word"]).rename(columns={"n": "texts"}).reset_index()
    return result.sort_values("mean", ascending=False, kind="stable", ignore_index=True)


def _show_words(results: Results, entry: str) -> Iterator[HTML | None]:
    result, unit = mean_words(results, entry), experiment.find_unit(results, entry)
    across = f"mean score ({unit or 'no unit'})"
    classes = {
        f"class {group}" if results.dataset_card.get("classes") else group: rows
        for group, rows in result.groupby("group")
    }
    if 0 < len(classes) <= MAX_GROUPS:
        found = {
            group: (list(rows["word"]), *(rows[end].to_numpy() for end in ("mean", "low", "high")))
            for group, rows in classes.items()
        }
        fewest = result["texts"].min()
        least = f"; words in at least {fewest} texts" if fewest > 1 else ""
        meaning = signs(experiment.describe_positive(results))
        caption = f"Means over the texts with the word, with 95 % intervals{least}. {meaning}."
        yield figure(figures.word_means(found, across), f"Importance of words by {entry}", caption, numbers=result)
    for group, rows in classes.items():
        scores, texts = [interval(row) for row in rows.to_dict("records")], rows["texts"].map(number)
        shown = pd.DataFrame({"word": rows["word"], across: scores, "texts": texts})
        most, others = shown.head(MAX_ROWS), shown.iloc[MAX_ROWS:].tail(MAX_ROWS).iloc[::-1]
        tables = [table(most, "Largest mean scores"), table(others, "Smallest mean scores") if len(others) else None]
        yield fold(f"Words for and against {group}", join_parts(*tables))


def explanations(results: Results, entry: str | None) -> HTML:
    """Return the explorer of instances, a method and the exact values first; without JavaScript figures of a few."""
    still = texts.explanations if results.dataset_card["kind"] == "text" else images.explanations
    first = [name for name in (entry, results.exact) if name is not None]
    return explorer(results, first, still(results))
