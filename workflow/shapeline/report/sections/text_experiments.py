"""Data and models of the text experiments, ours above the paper's (Chen et al. 2018, table 1)."""

import html
from collections.abc import Iterable, Mapping

from shapeline.report import experiment
from shapeline.report.elements import join_parts, note
from shapeline.report.experiment import Results
from shapeline.report.formatting import number
from shapeline.report.html import HTML

PAPER = {  # Chen et al. 2018, table 1
    "imdb": {
        "train": 25_000, "test": 25_000, "mean_length": 325.6, "model": "WordCNN", "parameters": 351_002,
        "accuracy": 0.901, "classes": 2,
    },
    "agnews": {
        "train": 120_000, "test": 7_600, "mean_length": 43.3, "model": "CharCNN", "parameters": 11_337_988,
        "accuracy": 0.9009, "classes": 4,
    },
    "yahoo": {
        "train": 1_400_000, "test": 60_000, "mean_length": 108.4, "model": "LSTM", "parameters": 7_146_166,
        "accuracy": 0.7084, "classes": 10,
    },
}  # fmt: skip
COLUMNS = {
    "classes": "classes",
    "train": "train samples",
    "test": "test samples",
    "mean_length": "mean length (words)",
    "model": "model",
    "parameters": "parameters",
    "accuracy": "test accuracy",
}


def row_of(result: Results) -> dict:
    card, rows = result.dataset_card, experiment.part_sizes(result.dataset_card)
    trained_on = experiment.other_data(result)
    told = [f"the model was trained and tested on {trained_on}"] if trained_on else []
    return {
        "dataset": card["source"],
        "title": f"{card['name']}, synthetic" if card.get("synthetic") else card["name"],
        "classes": len(card["classes"]) or None,  # a regression has none
        "train": rows.get("train", 0) + rows.get("validation", 0),
        "test": rows.get("test", 0),
        "mean_length": card.get("mean_words"),
        "model": result.model_card.get("architecture", "none"),
        "parameters": result.model_card.get("parameters"),
        "accuracy": result.model_card.get("test_accuracy"),
        "note": "; ".join([*told, *filter(None, [card.get("subset")]), *(card.get("notes") or [])]),
    }


def experiments_table(rows: Iterable[Mapping]) -> HTML:
    """Data and models of the text experiments, ours above the paper's (Chen et al. 2018, table 1).

    rows: dicts of dataset (a key of PAPER where the paper has it), title, classes, train, test, mean_length, model,
    parameters, accuracy (a fraction) and note; what is None or absent is a dash.
    """
    body, notes = [], []
    for row in rows:
        name, paper = row.get("title") or row["dataset"], PAPER.get(row["dataset"])
        first = f'<td class="text"><b>{html.escape(name)}</b></td>{_facts("here", row)}'
        body.append(f'<tr class="{"first" if paper else ""}">{first}</tr>')
        if paper:
            body.append(f'<tr><td class="text paper"></td>{_facts("paper", paper, "paper")}</tr>')
        if row.get("note"):
            notes.append(f"{name}: {row['note'].rstrip('.')}.")
    head = "".join(
        f'<th class="{"text" if name == "model" else "number"}">{title}</th>' for name, title in COLUMNS.items()
    )
    return join_parts(
        HTML(
            '<div class="wide"><table class="experiments"><thead><tr><th class="text">data set</th><th class="text">'
            f"</th>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
        ),
        note(" ".join(["Paper: Chen et al. 2018, table 1. A dash: not there, or not known.", *notes])),
    )


def _facts(who: str, row: Mapping, kind: str = "") -> str:
    cells = [f'<td class="text {kind}">{who}</td>']
    for name in COLUMNS:
        value = row.get(name)
        if value is None:
            text = "–"
        elif name == "accuracy":
            text = f"{100 * value:.2f}".rstrip("0").rstrip(".") + " %"
        elif name == "mean_length":
            text = f"{value:,.1f}"
        else:
            text = html.escape(value) if isinstance(value, str) else number(value, 12)
        cells.append(f'<td class="{"text" if name == "model" else "number"} {kind}">{text}</td>')
    return "".join(cells)
