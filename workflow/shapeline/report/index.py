"""The index of all reports: recommendations, a row per experiment, claims, models and data."""

import html
import html as markup
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from shapeline.files import document
from shapeline.papers import claims
from shapeline.papers.claim_checks import UNTESTABLE
from shapeline.papers.claims import STAND_INS
from shapeline.report import criteria, experiment, findings, formatting, rendering, styling
from shapeline.report.criteria import Evidence
from shapeline.report.elements import HTML, figure, folded, heading, join_parts, note, part, table
from shapeline.report.experiment import Results
from shapeline.report.figures import lines
from shapeline.report.formatting import format_count, number
from shapeline.report.sections import evidence, importance, overview_matrix
from shapeline.report.styling import Style
from shapeline.seeds import digest

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
    remarks = [f"the model was trained and tested on {trained_on}"] if trained_on else []
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
        "note": "; ".join([*remarks, *filter(None, [card.get("subset")]), *(card.get("notes") or [])]),
    }


def experiments_table(rows: Iterable[Mapping]) -> HTML:
    """Return data and models of text experiments beside the paper's (Chen et al. 2018, table 1); missing is a dash."""
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


# Beside the others in the figure of all experiments; the labels there must be the same everywhere.
COMMON = (
    "l_shapley",
    "c_shapley",
    "c_shapley_regression",
    "kernel_shap",
    "sample_shapley",
    "lime",
    "occlusion",
    "random",
)
ENOUGH = 10  # least instances of a curve in the figure of all experiments


def write_index(
    notebooks: Iterable[Path | str],
    html: Path | str,
    pages: Mapping[str, str] | None = None,
    digests: Mapping[str, str] | None = None,
) -> None:
    """Write the index of executed notebooks; pages: link -> title of other pages; digests: experiment -> settings
    digest."""
    every = [experiment.load(**document(result)["metadata"]["papermill"]["parameters"]) for result in notebooks]
    answered = {result.experiment: criteria.evidence(result) for result in every}
    of_papers = claims.concern(every)
    parts = [
        cards(every, answered),
        overview_matrix.section(every, answered),
        evidence.overview(every, answered),
        overview_matrix.pooled_section(every, answered),
        papers_section(every, pages or {}) if of_papers else None,
        part("Models and data", models_section(every)) if every else None,
        part("Provenance", origins_section(every, digests or {})) if every else None,
    ]
    write_page(join_parts(*parts), html, [result.experiment for result in every], pages if of_papers else None)


def write_page(
    body: HTML, html: Path | str, experiments: Sequence[str], pages: Mapping[str, str] | None = None
) -> None:
    """Write the page that links every report; pages: link -> title of others."""
    links = {f"{name}.html": name for name in experiments}
    links |= {link: title.split(":")[0] for link, title in (pages or {}).items()}
    named = (f'<a href="{_escape(link)}">{_escape(name)}</a>' for link, name in links.items())
    title = "<h1>Shapeline: recommended attribution methods and their cost</h1>"
    whole = rendering.page("Shapeline reports", f"<nav>{' '.join(named)}</nav>\n{title}{body.data}")
    rendering.write(Path(html), rendering.linked(whole, Path(html).stem))


def _escape(text: object) -> str:
    return markup.escape(str(text), quote=True)


def cards(results: Sequence[Results], answered: Mapping[str, Sequence[Evidence]]) -> HTML:
    """Return a card per experiment: what matters to its model, the recommended methods with their cost, key figures."""
    if not results:
        return note("No experiment has a report yet.")
    found = "".join(_card(result, answered[result.experiment]) for result in results)
    return HTML(f'<p class="note">{criteria.LEGEND}</p><div class="cards">{found}</div>')


def _card(result: Results, answers: Sequence[Evidence]) -> str:
    facts = findings.headline(result)
    link = f'<a class="need" href="{_escape(result.experiment)}.html">{_escape(facts["title"])}</a>'
    shown = [f"{format_count(facts['instances'], 'instance')}, d = {number(result.d)}"]
    if facts["r2"] is not None:
        shown.append(f"model R² {facts['r2']:.2f}")
    elif facts["accuracy"] is not None:
        shown.append(f"model accuracy {100 * facts['accuracy']:.1f} %")
    shown.append(f"{number(facts['evaluations'])} evaluations in total")
    if facts["failures"]:
        shown.append(f"⚠ {number(facts['failures'])} of {number(facts['rows'])} explanations failed")
    rows = [
        f'<span class="criterion">{_escape(need)}</span> <b class="method">{_escape(taken)}</b><br>{_escape(cost)}'
        for need, taken, cost in evidence.verdicts(answers, result)
    ]
    rows = "".join(f"<p>{row}</p>" for row in rows) or "<p>No recommendation: no criterion ranks the methods.</p>"
    drawn = importance.thumbnail(result, importance.choose_method(result, answers))
    return f'<article class="card">{link}<p class="quiet">{_escape(", ".join(shown))}</p>{drawn}{rows}</article>'


def papers_section(results: Sequence[Results], pages: Mapping[str, str]) -> HTML:
    """Return the papers' claims, deletion curves of the common methods (figure 2), and links to the other pages."""
    styles = styling.styles(
        {label: entry for result in results for label, entry in result.labels.items() if label in COMMON}
    )
    drawn = [result for result in results if "log_odds" in result.metrics and len(result.instances) >= ENOUGH]
    frames = {result.experiment: result.metrics["log_odds"] for result in drawn}
    judged = claims.table([result for result in results if result.dataset_card])  # and not of a game
    tested = judged["verdict"] != UNTESTABLE
    links = "".join(f'<li><a href="{_escape(link)}">{_escape(title)}</a></li>' for link, title in pages.items())
    return join_parts(
        heading("Claims of the papers", 2),
        table(judged[tested], text=judged.columns) if tested.any() else note("This run cannot test any of the claims."),
        note(
            "Values are of this run, with 95 % intervals. A claim about an order holds if the order is significant in "
            "every comparison, fails if one comparison is significantly reversed, and is undecided otherwise. "
            + STAND_INS
        ),
        folded(
            f"{number((~tested).sum())} claims that this run cannot test, with reasons",
            table(judged[~tested].drop(columns=["experiment", "verdict"]), text=judged.columns),
        ),
        figure(
            lines.log_odds_grid(frames, styles),
            "Deletion curves of the common methods, one panel per experiment",
            "Deletion curves: lower is better; bands are 95 % intervals over instances. Controls are grey and dashed.",
            numbers=_masking(frames, styles),
        ),
        HTML(f"<ul>{links}</ul>"),
    )


def models_section(results: Sequence[Results]) -> HTML:
    """Return models and data (table 1); a model serves several experiments, and a game has neither."""
    rows = {
        (result.dataset_card["name"], result.model_card.get("name")): row_of(result)
        for result in results
        if result.dataset_card
    }
    return experiments_table(rows.values())


def origins_section(results: Sequence[Results], digests: Mapping[str, str]) -> HTML:
    """Return the provenance of the results; digests: of the settings of each experiment, if known."""
    return join_parts(
        table(_origins(results, digests), text=["commit", "versions", "device", "frameworks", "configuration"]),
        note(
            "Configuration: a digest of the settings of all jobs of a page; equal digests mean equal settings. "
            f"Digest of all experiments: {digest(dict(digests))}."
        )
        if digests
        else None,
    )


def _masking(frames: Mapping[str, pd.DataFrame], styles: Mapping[str, Style]) -> pd.DataFrame | None:
    """Return the deletion curves of the methods in the figure, of all experiments."""
    curves = [frame.assign(experiment=name) for name, frame in frames.items()]
    if not curves:
        return None
    every = pd.concat(curves, ignore_index=True)
    return every.loc[(every["statistic"] == "deletion") & every["method"].isin(list(styles)),
                     ["experiment", "method", "x", "mean", "low", "high"]]  # fmt: skip


def _origins(results: Sequence[Results], digests: Mapping[str, str]) -> pd.DataFrame:
    """Return commit, versions, devices, seed and configuration of every experiment, from its score files."""

    def merge(result: Results, key: str) -> str:
        every = [entry.get(key) for files in result.metadata.values() for entry in files]
        if key == "versions":
            return formatting.merged(every) or "–"
        return "; ".join(sorted({formatting.plain(value) for value in every if value is not None})) or "–"

    keys = {
        "commit": "git_commit",
        "versions": "versions",
        "device": "device",
        "frameworks": "framework",
        "seed": "seed",
    }
    return pd.DataFrame(
        {
            "experiment": result.experiment,
            **{name: merge(result, key) for name, key in keys.items()},
            **({"configuration": digests[result.experiment]} if digests else {}),
        }
        for result in results
    )
