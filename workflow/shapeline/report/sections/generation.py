"""Sections of the page of prompts: answers by coloured parts, parts by answer tokens, methods and their measures."""

import json
from collections.abc import Iterator

import numpy as np
import pandas as pd

from shapeline.report import experiment
from shapeline.report.elements import HTML, figure, fold, heading, join_parts, note, table
from shapeline.report.experiment import Results, good, scalars
from shapeline.report.explorer import ExplorerData, Instance, count_shown, explorer_html
from shapeline.report.figures import explanations, games
from shapeline.report.figures.games import cut
from shapeline.report.figures.score_maps import LEVEL
from shapeline.report.formatting import explain_unit, format_count, interval, number
from shapeline.report.sections import common, explorer, game

MAX_LENGTH = 90  # characters of a part or an answer in a figure and in a heading
MEASURES = {  # of the metric `prompts`, and how a table names them
    "deletion_auc": "deletion AUC (lower is better)",
    "insertion_auc": "insertion AUC (higher is better)",
    "top_k_drop": "top-3 drop (higher is better)",
    "datamodeling": "datamodeling score (higher is better)",
    "precision": "precision of support",
    "recall": "recall of support",
}


def header(results: Results, cards: HTML | None) -> HTML:
    """Return the top of the page; cards: the recommended methods."""
    rows = results.instances
    own = int(rows["answer_ids"].notna().sum())
    facts = {
        "prompts": number(len(rows)),
        "parts per prompt (median)": number(float(np.median([len(parts) for parts in rows["parts"]]))),
        "methods compared": number(len(results.entries)),
        "evaluations": number(sum(experiment.count_coalitions(frame) for frame in results.scores.values())),
        "failed rows": number(experiment.count_failures(results)),
    }
    settings = results.settings["prompts"]
    given = f"{format_count(own, 'answer')} of {len(rows)} {'is' if own == 1 else 'are'} the model's own."
    sentences = [f"Language model: {settings['model']}. {given}", *([] if cards else [_recommend_by_error(results)])]
    return common.top(results.settings.get("title") or results.experiment, (), sentences, facts, cards)


def _recommend_by_error(results: Results) -> str:
    best = game.best_method(results)
    if best is None:
        return "No recommendation: no method has scores with a known error."
    entry, error, kind = best
    exact = (
        f"the scores of {entry} are exact" if kind == "exact" else f"{entry} has the smallest {kind}, {number(error)}"
    )
    return f"No recommendation by a test: too few prompts, or no metric compares methods; {exact}."


def prompts_section(results: Results, method: str | None) -> HTML:
    """Return the prompts that the page shows, with parts coloured by a method, and the scores of all methods."""
    count = int(results.settings.get("n_shown") or 4)
    leading = method or (game.best_method(results) or [next(iter(results.scores))])[0]
    shown = results.instances.head(count).to_dict("records")
    parts = [part for row in shown for part in _prompt(results, row, leading)]
    rest = len(results.instances) - len(shown)
    more = note(f"{format_count(rest, 'further prompt')} in the explorer below.") if rest else None
    return join_parts(note(f"Parts are coloured by {leading}."), *parts, more, _explore(results, leading))


def _explore(results: Results, leading: str) -> HTML:
    """Return the explorer of all prompts with the scores of all methods."""
    entries = explorer.list_entries(results, results.instances["instance"])
    listed = [
        Instance(
            str(row["instance"]),
            prediction=f"{_cut(row['answer'])} ({_cut(row['question'])})",
            base=row["value_empty"],
            full=row["value_full"],
            names=[*row["parts"]],
        )
        for row in results.instances.to_dict("records")
    ]
    shown = max(1, count_shown(entries, explorer.MAX_BYTES))
    about = {"explained": "the answer", "unit": results.value_unit, "recommended": [leading], "n_shown": shown}
    about |= {"noun": "prompts", "note": explain_unit(results.value_unit)}
    return join_parts(heading("All prompts"), HTML(explorer_html(ExplorerData("text", listed, entries, **about))))


def _prompt(results: Results, row: dict, leading: str) -> Iterator[HTML]:
    yield heading(_cut(row["question"]))
    ends = f"{number(row['value_full'], whole=False)} with all parts, {number(row['value_empty'], whole=False)} without"
    against = f" against “{_cut(row['contrast'])}”" if row["contrast"] else ""
    support = "; ".join(_cut(row["parts"][index]) for index in row["support"])
    support = f" Support by the file: {support}" if support else ""
    yield note(f"Answer: “{_cut(row['answer'])}”{against}. log p(answer), nats: {ends}.{support}")
    frame = results.scores[leading]
    [scores] = experiment.select_scores(frame, [row["instance"]])
    [spread] = experiment.select_scores(frame, [row["instance"]], "standard_error")
    if scores is None:
        yield note(f"{leading} failed: {_reason(frame, row['instance'])}")
    else:
        half = None if spread is None else LEVEL * spread
        panels = [("", row["parts"], scores, half, None)]
        yield HTML(explanations.colour_words(panels, what="the answer", feature="part").data)
        yield from _tokens(row, frame)
    shown = {**row, "game": _cut(row["question"]), "players": [_cut(part, 60) for part in row["parts"]]}
    yield fold("Scores of the parts by each method", join_parts(*game.show_scores(results, shown)))


def _reason(frame: pd.DataFrame, instance: int) -> str:
    failed = frame[(frame["instance"] == instance) & frame["error"].notna()]["error"]
    return failed.iloc[0] if len(failed) else "no scores"


def _tokens(row: dict, frame: pd.DataFrame) -> Iterator[HTML]:
    """The heat map of parts by answer tokens, where the scores of tokens are stored."""
    rows = good(frame)
    rows = rows[(rows["instance"] == row["instance"]) & (rows["repeat"] == 0)]
    details = [json.loads(details or "{}") for details in rows["details"]]
    tokens = next((one["tokens"] for one in reversed(details) if "tokens" in one), None)
    if tokens is not None:
        names = [_cut(part, 60) for part in row["parts"]]
        yield figure(
            games.heat_map(names, [*row["tokens"]], np.array(tokens)),
            f"Scores of parts for each token of the answer: {_cut(row['question'])}",
            "Contributions of each part to the log-probability of each token of the answer, from the same evaluations.",
        )


def measures_section(results: Results) -> HTML:
    """Return the means of the measures of each method with 95 % intervals; empty where they were not computed."""
    frame = results.metrics.get("prompts")
    if frame is None or frame.empty:
        return HTML("")
    result = {title: scalars(frame, name) for name, title in MEASURES.items()}
    result = {title: rows for title, rows in result.items() if len(rows)}
    shown = pd.DataFrame(
        {
            "method": entry,
            **{title: interval(rows.loc[entry]) if entry in rows.index else "–" for title, rows in result.items()},
        }
        for entry in results.scores
    )
    return join_parts(
        heading("Removal, prediction and citation", 2),
        table(shown),
        note(
            "AUC: mean change of log p(answer), in nats, while parts are removed from the whole prompt, or inserted, "
            "by falling score. Top-3 drop: fall of the value without the three best parts. Datamodeling score: rank "
            "correlation of the sum of the kept parts' scores with the value, over fresh coalitions."
        ),
    )


def _cut(text: str, most: int = MAX_LENGTH) -> str:
    return cut(" ".join(str(text).split()), most)
