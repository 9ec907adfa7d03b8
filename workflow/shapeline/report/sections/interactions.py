"""Interactions: shares of main effects and pairs, pairs of a few instances, and the difference to occlusion."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from shapeline.designs.interactions import build_symmetric, enumerate_pairs
from shapeline.report import experiment
from shapeline.report.colours import signs
from shapeline.report.elements import HTML, figure, heading, join_parts, note, table
from shapeline.report.experiment import Results
from shapeline.report.figures import games as figures
from shapeline.report.figures.score_maps import choose_tone, scale_series
from shapeline.report.formatting import number, share
from shapeline.report.sections import texts

MAX_INSTANCES = 4  # whose pairs are drawn
ROUNDING = 1e-6  # of scores, which are stored as float32
MAX_ROWS = 6  # features of an instance whose occlusion is decomposed


def section(results: Results) -> HTML:
    """Return the interactions of every method that computes them; empty where none does."""
    ids = results.instances["instance"]
    result = {entry: _select_parts(frame, ids) for entry, frame in results.scores.items()}
    result = {entry: parts for entry, parts in result.items() if parts}
    if not result:
        return HTML("")
    entry = next(iter(result))
    return join_parts(
        heading("Interactions"),
        table(
            pd.DataFrame([_describe_shares(results, *one) for one in result.items()]),
            text=["strongest pair on average"],
        ),
        note(
            "Main effects and pairwise interactions sum to v(N) − v(∅). Share of pairs: Σ|pairs| over Σ|pairs| + "
            "Σ|main effects|, mean over instances and quartiles."
        ),
        heading(f"Pairs of a few instances, by {entry}"),
        *_draw_pairs(results, entry),
        *_compare_with_occlusion(results, result),
    )


def _select_parts(frame: pd.DataFrame, ids: Sequence) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Return main effects (d,) and pairs of each instance that has them, by its index."""
    rows = zip(experiment.select_scores(frame, ids), experiment.select_scores(frame, ids, "interactions"), strict=True)
    return {index: row for index, row in enumerate(rows) if row[0] is not None and row[1] is not None}


def _describe_shares(results: Results, entry: str, parts: Mapping[int, tuple[np.ndarray, np.ndarray]]) -> dict:
    main_effects = np.array([np.abs(row).sum() for row, _ in parts.values()])
    both = np.array([np.abs(row).sum() for _, row in parts.values()])
    of_pairs = both / np.maximum(main_effects + both, 1e-300)
    low, high = np.quantile(of_pairs, [0.25, 0.75])
    sums = np.array([[row.sum(), pairs.sum()] for row, pairs in parts.values()])
    unit = results.value_unit
    return {
        "method": entry,
        "share of pairs": f"{share(of_pairs.mean())} ({share(low)} to {share(high)})",
        f"sum of main effects, mean ({unit})": number(sums[:, 0].mean(), whole=False),
        f"sum of pairs, mean ({unit})": number(sums[:, 1].mean(), whole=False),
        "v(N) − v(∅), mean": number(sums.sum(axis=1).mean(), whole=False),
        "strongest pair on average": _name_strongest(results, parts),
        "pairs different from 0": _format_share(results, entry, parts),
        "evaluations": number(experiment.average_evaluations(results)[entry]),
    }


def _format_share(results: Results, entry: str, parts: Mapping[int, tuple[np.ndarray, np.ndarray]]) -> str:
    """Return the share of pairs whose 95 % interval excludes 0, over the instances with intervals."""
    spread = experiment.select_scores(
        results.scores[entry], results.instances["instance"], "interactions_standard_error"
    )
    shares = [
        figures.keep_significant(pairs, spread[index]) != 0
        for index, (_, pairs) in parts.items()
        if spread[index] is not None
    ]
    return share(np.concatenate(shares).mean()) if shares else "–"


def _name_strongest(results: Results, parts: Mapping[int, tuple[np.ndarray, np.ndarray]]) -> str:
    """Return the pair with the largest mean |score| and its mean, where all instances have equal features."""
    if results.features is None or results.dataset_card["kind"] == "text" or results.d < 2:
        return "–"
    pairs = np.array([row for _, row in parts.values()])
    index = int(np.abs(pairs).mean(axis=0).argmax())
    names = experiment.name_shared_features(results)
    first, second = (names[one[index]] for one in enumerate_pairs(results.d))
    return f"{first} × {second}: mean {number(pairs[:, index].mean(), whole=False)}"


def _draw_pairs(results: Results, entry: str) -> Iterator[HTML]:
    """Yield the figures of the shown instances' pairs, by their kind of data."""
    count = min(int(results.settings.get("n_shown") or MAX_INSTANCES), MAX_INSTANCES)
    picked = experiment.choose_instances(results.instances, count)
    parts = _select_parts(results.scores[entry], picked["instance"])
    if not parts:
        yield note("The method failed on all shown instances.")
        return
    picked = picked.iloc[list(parts)]
    main_effects, pairs = (list(one) for one in zip(*parts.values(), strict=True))
    spread = experiment.select_scores(results.scores[entry], picked["instance"], "interactions_standard_error")
    surely = [figures.keep_significant(*one) for one in zip(pairs, spread, strict=True)]
    muted = "" if all(one is None for one in spread) else " Pairs whose 95 % interval includes 0 are drawn as 0."
    titles = [experiment.name_instance(results, row).replace("\n", ", ") for row in picked.to_dict("records")]
    meaning = signs(experiment.describe_positive(results))
    if results.dataset_card["kind"] == "image":
        images = results.read_inputs(picked)
        cells = [results.features_of(image).cells[0] for image in images]
        names = [_join_lines(experiment.name_instance(results, row)) for row in picked.to_dict("records")]
        images = scale_series(images, results.dataset_card)
        drawing = figures.network(images, names, cells, main_effects, surely, choose_tone(results.dataset_card))
        features = [_name_features(results, len(row)) for row in main_effects]
        caption = (
            f"{meaning}. Dots: main effects; lines: the {figures.MAX_PAIRS} largest pairs, scaled by scores; the title "
            f"has the largest of each.{muted}"
        )
        yield figure(
            drawing,
            "Main effects and pairs over images",
            caption,
            numbers=_tabulate_numbers(titles, features, main_effects, pairs),
        )
        return
    words = [document.words for document in texts.build_documents(results, picked)] if _is_text(results) else None
    for index, (title, row, both, sure) in enumerate(zip(titles, main_effects, pairs, surely, strict=True)):
        names = words[index] if words else experiment.name_shared_features(results)
        if words:
            drawing = figures.arcs(names, row, sure, title, results.value_unit)
            caption = (
                f"{meaning}: arcs above and below the words, of the {figures.MAX_PAIRS} largest pairs at most.{muted}"
            )
        else:
            drawing = figures.matrix(names, row, sure, results.value_unit)
            caption = f"{title}. {meaning}.{muted}"
        numbers = _tabulate_numbers([title], [names], [row], [both])
        yield figure(drawing, f"Main effects and pairs of {title}", caption, numbers=numbers)


def _join_lines(name: str) -> str:
    """Return a name with two lines joined into one, since four above an image are cut off."""
    lines = name.split("\n")
    return "\n".join(", ".join(lines[index : index + 2]) for index in range(0, len(lines), 2))


def _is_text(results: Results) -> bool:
    return results.dataset_card["kind"] == "text"


def _name_features(results: Results, d: int) -> list[str]:
    """Return the names of the d features of an instance, numbered where instances have different ones."""
    is_shared = results.features is not None
    return experiment.name_shared_features(results) if is_shared else [f"feature {index}" for index in range(d)]


def _tabulate_numbers(
    titles: Sequence[str], names: Sequence, main_effects: Sequence[np.ndarray], pairs: Sequence
) -> pd.DataFrame:
    """Return the rows of a figure: main effects have no second feature."""
    tables = []
    for title, named, row, both in zip(titles, names, main_effects, pairs, strict=True):
        first, second = enumerate_pairs(len(row))
        named = np.array(list(named), dtype=object)
        firsts, seconds = np.r_[named, named[first]], np.r_[np.full(len(row), ""), named[second]]
        tables.append(pd.DataFrame({"instance": title, "first": firsts, "second": seconds, "score": np.r_[row, both]}))
    return pd.concat(tables, ignore_index=True)


def _compare_with_occlusion(results: Results, found: Mapping[str, Mapping]) -> Iterator[HTML]:
    """Yield occlusion minus Shapley beside half of each feature's pairs, for all instances and for the first."""
    yield heading("Difference between occlusion and Shapley values")
    frame = next(
        (
            frame
            for entry, frame in results.scores.items()
            if results.entries[entry]["method"] == "occlusion"
            and not (results.entries[entry].get("parameters") or {}).get("features")
        ),
        None,
    )
    if frame is None:
        yield note("Not available: no occlusion on these features; add a method ({method: occlusion}).")
        return
    removed = experiment.select_scores(frame, results.instances["instance"])
    rows = []
    for entry, parts in found.items():
        available = [index for index in parts if removed[index] is not None]
        if available:
            split = [split_occlusion(removed[index], *parts[index]) for index in available]
            rows.append({"method": entry, **_describe_sizes(pd.concat(split), results.value_unit)})
    if not rows:
        yield note("Occlusion failed on all instances.")
        return
    yield table(pd.DataFrame(rows))
    yield note(
        "Occlusion removes a feature from the full input; the Shapley value averages over all coalitions. Without "
        "interactions of order 3 or more, occlusion minus Shapley equals half the sum of the pairs of the feature; the "
        "remainder is of higher orders, or the sampling error. Root mean squares over features and instances."
    )
    entry = next(iter(found))
    index = next((index for index in found[entry] if removed[index] is not None), None)
    if index is not None:
        yield _describe_instance(
            results, entry, index, split_occlusion(removed[index], *found[entry][index]), found[entry][index][1]
        )


def split_occlusion(occlusion: np.ndarray, main_effects: np.ndarray, pairs: np.ndarray) -> pd.DataFrame:
    """Return a row per feature: occlusion, shapley, difference, half of its pairs' sum, and the residual."""
    half = build_symmetric(pairs, len(main_effects)).sum(axis=1) / 2
    shapley = main_effects + half
    columns = {"occlusion": occlusion, "shapley": shapley, "difference": occlusion - shapley, "half": half}
    residual = occlusion - shapley - half
    size = np.abs(np.concatenate([occlusion, shapley, half])).max(initial=0.0)
    return pd.DataFrame({**columns, "residual": np.where(np.abs(residual) > ROUNDING * size, residual, 0.0)})


def _describe_sizes(split: pd.DataFrame, unit: str) -> dict[str, str]:
    mean = np.sqrt((split**2).mean())
    explained = 1 - (split["residual"] ** 2).sum() / max((split["difference"] ** 2).sum(), 1e-300)
    return {
        f"occlusion − Shapley ({unit})": number(mean["difference"]),
        "½ Σ of its pairs": number(mean["half"]),
        "remainder (orders 3 and more)": number(mean["residual"]),
        "explained by pairs": share(explained) if explained >= 0 else "none",
    }


def _describe_instance(results: Results, entry: str, index: int, split: pd.DataFrame, pairs: np.ndarray) -> HTML:
    """Return the features of an instance with the largest disagreement, and their strongest interactions."""
    row = results.instances.iloc[[index]]
    if _is_text(results):
        names = texts.build_documents(results, row)[0].words
    else:
        names = _name_features(results, len(split))
    matrix = build_symmetric(pairs, len(split))
    order = np.argsort(-split["difference"].abs().to_numpy(), kind="stable")[:MAX_ROWS]
    partner = np.abs(matrix).argmax(axis=1)
    shown = pd.DataFrame(
        {
            "feature": names[one],
            **{name: number(split[name].iloc[one], whole=False) for name in ("occlusion", "shapley", "difference")},
            "½ Σ of its pairs": number(split["half"].iloc[one], whole=False),
            "remainder": number(split["residual"].iloc[one], whole=False),
            "strongest pair with": f"{names[partner[one]]} ({number(matrix[one, partner[one]], whole=False)})",
        }
        for one in order
    )
    title = experiment.name_instance(results, row.to_dict("records")[0]).replace("\n", ", ")
    return table(shown, f"{title}, by {entry}: largest differences", text=["strongest pair with"])
