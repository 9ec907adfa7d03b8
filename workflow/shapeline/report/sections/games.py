"""Sections of the pages of games, and of prompts, whose answers are games of their parts.

Games: scores of players with intervals, convergence, interactions, cost. Prompts: answers by coloured parts, parts by
answer tokens, methods and their measures.
"""

import json
from collections.abc import Iterator

import numpy as np
import pandas as pd

from shapeline.designs.interactions import enumerate_pairs
from shapeline.methods.registry import METHODS
from shapeline.report import experiment
from shapeline.report.elements import FOLD, HTML, assign_styles, figure, fold, heading, join_parts, note, shorten, table
from shapeline.report.experiment import Results, drop_failures, scalars
from shapeline.report.explorer import PROMPT_WORDS, ExplorerData, Instance, count_shown, explorer_html
from shapeline.report.figures import explanations, games
from shapeline.report.figures.score_maps import LEVEL
from shapeline.report.formatting import explain_unit, format_count, join_names, number, share
from shapeline.report.sections import common, images
from shapeline.report.tables import tabulate_means

MAX_PLAYERS = 40  # in a figure
MAX_PAIRS = 12  # in a table
MAX_NAMED = 3  # players in the header
ROUNDING = 1e-12  # of the largest score: smaller numbers are rounding errors
MAX_LENGTH = 90  # characters of a part or an answer in a figure and in a heading
MEASURES = {  # of the metric `prompts`, with the titles of table columns
    "deletion_auc": "deletion AUC (lower is better)",
    "insertion_auc": "insertion AUC (higher is better)",
    "top_k_drop": "top-3 drop (higher is better)",
    "datamodeling": "datamodeling score (higher is better)",
    "precision": "precision of support",
    "recall": "recall of support",
}


def name_output(row: pd.Series | dict) -> str:
    """Return the name of an output and its game; "" where there is only one."""
    return ", ".join(filter(None, (row["game"], row["output"])))


def best_method(results: Results) -> tuple[str, float, str] | None:
    """Return the method to read, its error, and the kind of error; None where no method has any."""
    actual = scalars(results.metrics.get("error"), "rmse")["mean"] if results.exact else pd.Series(dtype=float)
    if results.exact and len(drop_failures(results.scores[results.exact])):
        return results.exact, 0.0, "exact"
    errors = {entry: estimate_error(frame) for entry, frame in results.scores.items() if _has_values(results, entry)}
    known = {entry: error for entry, error in errors.items() if np.isfinite(error)} if actual.empty else dict(actual)
    if not known:
        return None
    entry = min(known, key=known.get)
    return entry, known[entry], "predicted RMSE"


def estimate_error(frame: pd.DataFrame) -> float:
    """Return the mean predicted RMSE of the rows that did not fail; NaN where it is not known."""
    known = [row for row in drop_failures(frame)["standard_error"] if row is not None]
    return float(np.mean([np.sqrt(np.mean(np.square(row, dtype=float))) for row in known])) if known else np.nan


def header(results: Results) -> HTML:
    """Return the top of the page: the method to read with its error, the largest scores, and key figures."""
    facts = {
        "players": number(max(map(len, results.instances["players"]))),
        "outputs": number(len(results.instances)),
        "methods compared": number(len(results.entries)),
        "evaluations, all methods": number(
            sum(experiment.count_evaluations(results, frame) for frame in results.scores.values())
        ),
        "seconds of evaluations": number(_sum_evaluation_seconds(results).sum()),
        "failed explanations": number(experiment.count_failures(results)),
    }
    best = best_method(results)
    answers = [] if best is None else [_write_answer(results, *best)]
    sentences = [] if best is None else [_describe_largest(results, best[0])]
    sentences += [f"{entry} failed: {reason}." for entry, reason in common.find_failure_reasons(results).items()]
    sentences = sentences or ["No method has scores with a known error."]
    return common.top(results.settings.get("title") or results.experiment, answers, sentences, facts)


def verdicts(results: Results) -> list[tuple[str, str, str]]:
    """Return need, method and cost, for the card of the experiment; empty if no method has a known error."""
    if (best := best_method(results)) is None:
        return []
    entry, error, kind = best
    if kind == "exact":
        return [("Exact Shapley values", entry, _format_evaluations(results, entry))]
    return [(f"Smallest {kind}", f"★ {entry}", f"{number(error)} with {_format_evaluations(results, entry)}")]


def _format_evaluations(results: Results, entry: str) -> str:
    return format_count(float(drop_failures(results.scores[entry])["evaluations"].mean()), "evaluation")


def _write_answer(results: Results, entry: str, error: float, kind: str) -> tuple[str, str]:
    spent = _format_evaluations(results, entry)
    if kind == "exact":
        return f"Exact Shapley values by {entry}", f"({spent})."
    return f"Recommended: {entry}", f"– the smallest {kind}, {number(error)}, with {spent}."


def _describe_largest(results: Results, entry: str) -> str:
    """Return the largest scores of the first output, and how many have an interval without 0."""
    first = results.instances.iloc[0]
    scores, spread = _read(results.scores[entry], first["instance"])
    if scores is None:
        return f"{entry} failed on the first output."
    names, order = first["players"], np.argsort(-np.abs(scores))[:MAX_NAMED]
    shown = ", ".join(f"{names[index]} {_format_signed(scores[index], spread, index)}" for index in order)
    sure = ""
    if spread is not None:
        count = int((np.abs(scores) > LEVEL * spread).sum())
        sure = f" The 95 % intervals of {count} of {len(scores)} players exclude 0."
    return f"Largest scores{' of ' + name_output(first) if len(results.instances) > 1 else ''}: {shown}.{sure}"


def _read(frame: pd.DataFrame, instance: int, column: str = "scores") -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the scores, or interactions, of one instance, and their standard errors, 0 in place of rounding errors;
    None where there are none."""
    errors = "standard_error" if column == "scores" else f"{column}_standard_error"
    [values], [spread] = (experiment.select_scores(frame, [instance], name) for name in (column, errors))
    rounding = 0.0 if values is None else ROUNDING * np.abs(values).max(initial=0.0)
    values, spread = (one if one is None else np.where(np.abs(one) < rounding, 0.0, one) for one in (values, spread))
    return values, spread


def _format_signed(score: float, spread: np.ndarray | None, index: int) -> str:
    within = "" if spread is None or not spread[index] else f" ± {number(LEVEL * spread[index], 2)}"
    return f"{'+' if score > 0 else ''}{number(score, whole=False)}{within}"


def scores_section(results: Results) -> HTML:
    """Return the scores of the players of the outputs that the page shows: a figure, and a table behind a fold."""
    count = int(results.settings.get("n_shown") or 4)
    shown = results.instances.head(count)
    parts = [part for row in shown.to_dict("records") for part in show_scores(results, row)]
    rest = len(results.instances) - len(shown)
    more = note(f"{format_count(rest, 'further output')} in the score files.") if rest else None
    return join_parts(*parts, more)


def show_scores(results: Results, row: dict) -> Iterator[HTML]:
    """Return the figure and the table of the scores of an output's players, a row of the instances."""
    best = best_method(results)
    frames = {entry: frame for entry, frame in results.scores.items() if _has_values(results, entry)}
    columns = {entry: _read(frame, row["instance"]) for entry, frame in frames.items()}
    columns = {entry: column for entry, column in columns.items() if column[0] is not None}
    name = name_output(row)
    title = name or "Scores of the players"
    if not columns:
        yield note(f"{title}: every method failed.")
        return
    leading = best[0] if best and best[0] in columns else next(iter(columns))
    order = np.argsort(-columns[leading][0], kind="stable")
    largest = order[np.sort(np.argsort(-np.abs(columns[leading][0][order]), kind="stable")[:MAX_PLAYERS])]
    names = [row["players"][index] for index in largest]
    drawn = {
        entry: (scores[largest], None if spread is None else spread[largest])
        for entry, (scores, spread) in columns.items()
    }
    ends = f"v(∅) = {number(row['value_empty'], whole=False)}, v(N) = {number(row['value_full'], whole=False)}"
    others = [entry for entry in drawn if not _is_efficient(results.entries[entry])]
    unlike = f" Scores of {join_names(others)} need not add up to v(N) − v(∅)." if others else ""
    n_hidden = len(order) - len(largest)
    left_out = f" The {n_hidden} players with smaller scores are not shown." * bool(n_hidden)
    yield figure(
        games.scores(names, drawn, assign_styles(results), title, f"score ({results.value_unit})"),
        f"Scores of players with 95 % intervals by each method: {title}",
        f"Players in the order of {leading}; bars are 95 % intervals of the sampling error. {ends}.{unlike}{left_out}",
        numbers=_tabulate_numbers(row["players"], columns),
    )
    texts = {
        entry: [_format_signed(scores[index], spread, index) for index in order]
        for entry, (scores, spread) in columns.items()
    }
    players = [row["players"][index] for index in order]
    yield fold(f"Table of scores{name and f': {name}'}", table(pd.DataFrame({"player": players, **texts})))


def _is_efficient(entry: dict) -> bool:
    return METHODS[entry["method"]].is_efficient(entry.get("parameters") or {})


def _has_values(results: Results, entry: str) -> bool:
    """Return whether a method's scores are values of players, not main effects with pairs or random numbers."""
    method = METHODS[results.entries[entry]["method"]]
    return not (results.entries[entry].get("is_control") or method.pairs) and method.unit == "value"


def _tabulate_numbers(players: list[str], columns: dict) -> pd.DataFrame:
    half = {entry: np.nan if spread is None else LEVEL * spread for entry, (_, spread) in columns.items()}
    parts = [
        pd.DataFrame({"method": entry, "player": players, "score": scores, "half": half[entry]})
        for entry, (scores, _) in columns.items()
    ]
    return pd.concat(parts, ignore_index=True)


def convergence_section(results: Results) -> HTML:
    """Return predicted and actual errors of every method and intermediate budget against its evaluations."""
    rows = []
    for entry, last in results.scores.items():
        if _has_values(results, entry) and entry != results.exact:
            earlier = results.intermediate_budgets.get(entry, last[:0])
            rows += [_measure_errors(results, entry, part) for _, part in earlier.groupby("budget")]
            rows.append(_measure_errors(results, entry, last))
    frame = pd.DataFrame([row for row in rows if row], columns=["method", "evaluations", "predicted", "actual"])
    drawing = games.convergence(frame, assign_styles(results), results.value_unit)
    exact = f"to {results.truth}" if results.exact else "not known without exact values"
    return join_parts(
        heading("Convergence", 2),
        figure(
            drawing,
            "Predicted and actual RMSE of each method against evaluations",
            "Lower left is better. Predicted: the root mean square of the standard errors, an estimate that may rise.",
            numbers=frame,
        ),
        None if drawing else note("No method has a standard error, or an error above 0."),
        note(f"Means over outputs and repeats; the actual one is {exact}. The key intermediate_budgets adds points."),
    )


def _measure_errors(results: Results, entry: str, rows: pd.DataFrame) -> dict | None:
    rows = drop_failures(rows)
    if rows.empty:
        return None
    result = {"method": entry, "evaluations": rows["evaluations"].mean(), "predicted": estimate_error(rows)}
    truth = experiment.select_scores(results.scores[results.exact], rows["instance"]) if results.exact else [None]
    if any(row is None for row in truth):
        return {**result, "actual": np.nan}
    rmses = [np.sqrt(np.mean((np.asarray(row) - true) ** 2)) for row, true in zip(rows["scores"], truth, strict=True)]
    return {**result, "actual": float(np.mean(rmses))}


def interactions_section(results: Results) -> HTML:
    """Return the interactions of the first output by each method that has them; empty where none does."""
    first = results.instances.iloc[0]
    parts = []
    for entry, frame in results.scores.items():
        pairs, spread = _read(frame, first["instance"], "interactions")
        if pairs is None:
            continue
        main_effects, _ = _read(frame, first["instance"])
        names, sure = list(first["players"]), games.keep_significant(pairs, spread)
        parts += [
            heading(f"By {entry}"),
            figure(
                games.matrix(names, main_effects, sure, results.value_unit),
                f"Main effects and pairs of players by {entry}",
                "Diagonal: main effects; above: interactions of pairs. Pairs whose 95 % interval includes 0 are 0.",
            ),
            table(_tabulate_pairs(names, pairs, spread), text=["second"]),
        ]
    return join_parts(heading("Interactions", 2), *parts) if parts else HTML("")


def _tabulate_pairs(names: list[str], pairs: np.ndarray, spread: np.ndarray | None) -> pd.DataFrame:
    first, second = enumerate_pairs(len(names))
    order = np.argsort(-np.abs(pairs), kind="stable")[:MAX_PAIRS]
    rows = [(names[first[k]], names[second[k]], _format_signed(pairs[k], spread, k)) for k in order]
    return pd.DataFrame(rows, columns=["first", "second", "interaction"])


def _sum_evaluation_seconds(results: Results) -> pd.Series:
    """Return the seconds of the evaluations of each method, all outputs and repeats together."""
    details = {entry: map(json.loads, frame["details"].dropna()) for entry, frame in results.scores.items()}
    seconds = {entry: sum(one.get("evaluation_seconds", 0.0) for one in rows) for entry, rows in details.items()}
    return pd.Series(seconds, dtype=float)


def cost_section(results: Results) -> HTML:
    """Return evaluations and seconds of each method, over all games."""
    seconds = _sum_evaluation_seconds(results)
    players = results.instances.drop_duplicates("row")["players"].map(len).sum()
    totals, rows = {entry: frame["seconds"].sum() for entry, frame in results.scores.items()}, []
    for entry, frame in results.scores.items():
        spent = experiment.count_evaluations(results, drop_failures(frame))
        rows.append(
            {
                "method": entry,
                "evaluations": number(spent),
                "multiple of players": number(spent / max(1, players)),
                "seconds of evaluations": number(seconds[entry]),
                "seconds per evaluation": number(seconds[entry] / spent) if spent else "–",
                "seconds of the estimator": number(max(0.0, totals[entry] - seconds[entry])),
                "share of time": share(totals[entry] / max(sum(totals.values()), 1e-12)),
            }
        )
    text = (
        "Evaluations of all games, repeats and intermediate budgets. Seconds of evaluations are those that the "
        "evaluations took when they were made, one after another; a coalition that several methods use is evaluated "
        "once and counts for each."
    )
    return join_parts(table(pd.DataFrame(rows)), fold(FOLD, note(text)))


def prompts_header(results: Results, cards: HTML | None) -> HTML:
    """Return the top of the page; cards: the recommended methods."""
    rows = results.instances
    n_greedy = int(rows["answer_ids"].notna().sum())  # answers that the model gave itself
    facts = {
        "prompts": number(len(rows)),
        "parts per prompt (median)": number(float(np.median([len(parts) for parts in rows["parts"]]))),
        "methods compared": number(len(results.entries)),
        "evaluations": number(sum(experiment.count_coalitions(frame) for frame in results.scores.values())),
        "failed explanations": number(experiment.count_failures(results)),
    }
    settings = results.settings["prompts"]
    origin = f"{format_count(n_greedy, 'answer')} of {len(rows)} {'is' if n_greedy == 1 else 'are'} the model's own."
    sentences = [f"Language model: {settings['model']}. {origin}", *([] if cards else [_recommend_by_error(results)])]
    return common.top(results.settings.get("title") or results.experiment, (), sentences, facts, cards)


def _recommend_by_error(results: Results) -> str:
    best = best_method(results)
    if best is None:
        return "No recommendation: no method has scores with a known error."
    entry, error, kind = best
    finding = f"{entry} has the smallest {kind}, {number(error)}"
    finding = f"the scores of {entry} are exact" if kind == "exact" else finding
    return f"No recommendation: it needs {common.MIN_INSTANCES} prompts and a metric that ranks methods; {finding}."


def prompts_section(results: Results, method: str | None) -> HTML:
    """Return the prompts that the page shows, with parts coloured by a method, and the scores of all methods."""
    count = int(results.settings.get("n_shown") or 4)
    leading = method or (best_method(results) or [next(iter(results.scores))])[0]
    shown = results.instances.head(count).to_dict("records")
    parts = [part for row in shown for part in _show_prompt(results, row, leading)]
    rest = len(results.instances) - len(shown)
    more = note(f"{format_count(rest, 'further prompt')} in the explorer below.") if rest else None
    return join_parts(note(f"Parts are coloured by {leading}."), *parts, more, _build_explorer(results, leading))


def _build_explorer(results: Results, leading: str) -> HTML:
    """Return the explorer of all prompts with the scores of all methods."""
    entries = images.list_entries(results, results.instances["instance"])
    listed = [
        Instance(
            str(row["instance"]),
            prediction=f"{shorten(row['answer'], MAX_LENGTH)} ({shorten(row['question'], MAX_LENGTH)})",
            base=row["value_empty"],
            full=row["value_full"],
            names=[*row["parts"]],
        )
        for row in results.instances.to_dict("records")
    ]
    shown = max(1, count_shown(entries, images.MAX_BYTES))
    about = {"explained": "the answer", "unit": results.value_unit, "recommended": [leading], "n_shown": shown}
    about |= {"noun": "prompts", "words": PROMPT_WORDS, "note": explain_unit(results.value_unit)}
    return join_parts(heading("All prompts"), HTML(explorer_html(ExplorerData("text", listed, entries, **about))))


def _show_prompt(results: Results, row: dict, leading: str) -> Iterator[HTML]:
    yield heading(shorten(row["question"], MAX_LENGTH))
    ends = f"{number(row['value_full'], whole=False)} with all parts, {number(row['value_empty'], whole=False)} without"
    against = f" against “{shorten(row['contrast'], MAX_LENGTH)}”" if row["contrast"] else ""
    support = "; ".join(shorten(row["parts"][index], MAX_LENGTH) for index in row["support"])
    support = f" Support by the file: {support}" if support else ""
    yield note(f"Answer: “{shorten(row['answer'], MAX_LENGTH)}”{against}. log p(answer), nats: {ends}.{support}")
    frame = results.scores[leading]
    scores, spread = _read(frame, row["instance"])
    if scores is None:
        failed = frame[(frame["instance"] == row["instance"]) & frame["error"].notna()]["error"]
        yield note(f"{leading} failed: {failed.iloc[0] if len(failed) else 'no scores'}")
    else:
        half = None if spread is None else LEVEL * spread
        panels = [("", row["parts"], scores, half, None)]
        yield explanations.colour_words(panels, what="the answer", feature="part")
        yield from _show_tokens(row, frame)
    shown = {
        **row,
        "game": shorten(row["question"], MAX_LENGTH),
        "players": [shorten(part, 60) for part in row["parts"]],
    }
    yield fold("Scores of the parts by each method", join_parts(*show_scores(results, shown)))


def _show_tokens(row: dict, frame: pd.DataFrame) -> Iterator[HTML]:
    """Yield the heat map of parts by answer tokens, where the scores of tokens are stored."""
    rows = drop_failures(frame)
    rows = rows[(rows["instance"] == row["instance"]) & (rows["repeat"] == 0)]
    details = [json.loads(details or "{}") for details in rows["details"]]
    tokens = next((one["tokens"] for one in reversed(details) if "tokens" in one), None)
    if tokens is not None:
        names = [shorten(part, 60) for part in row["parts"]]
        yield figure(
            games.heat_map(names, [*row["tokens"]], np.array(tokens)),
            f"Scores of parts for each token of the answer: {shorten(row['question'], MAX_LENGTH)}",
            "Contributions of each part to the log-probability of each token of the answer, from the same evaluations.",
        )


def measures_section(results: Results) -> HTML:
    """Return the means of the measures of each method with 95 % intervals; empty where they were not computed."""
    frame = results.metrics.get("prompts")
    if frame is None or frame.empty:
        return HTML("")
    return join_parts(
        heading("Removal, prediction and citation", 2),
        table(tabulate_means(frame, MEASURES, results.scores)),
        note(
            "AUC: mean change of log p(answer), in nats, while parts are removed from the whole prompt, or inserted, "
            "by falling score. Top-3 drop: fall of the value without the three best parts. Datamodeling score: rank "
            "correlation of the sum of the kept parts' scores with the value, over fresh coalitions."
        ),
    )
