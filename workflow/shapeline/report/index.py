"""The index of all reports: recommendations, a row per experiment, claims, models and data."""

import html as markup
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pandas as pd

from shapeline.files import document
from shapeline.papers import claims
from shapeline.papers.claim_checks import UNTESTABLE
from shapeline.papers.claims import STAND_INS
from shapeline.report import criteria, experiment, findings, formatting, rendering, styling
from shapeline.report.elements import figure, folded, heading, note, table, together
from shapeline.report.experiment import Results
from shapeline.report.figures import lines
from shapeline.report.formatting import interval, number
from shapeline.report.html import HTML
from shapeline.report.sections import common, evidence, overview_matrix, pooled, text_experiments
from shapeline.report.styling import Style
from shapeline.seeds import digest

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
COLUMNS = {  # of the index, and how they are aligned
    "experiment": "text",
    "model accuracy": "number",
    "instances": "number",
    "best deletion AUC (nats)": "text",
    "best control": "text",
    "closest sampled method (RMSE)": "text",
    "evaluations": "number",
    "failures": "number",
}
ENOUGH = 10  # least instances of a curve in the figure of all experiments


def write_index(
    notebooks: Iterable[Path | str],
    html: Path | str,
    pages: Mapping[str, str] | None = None,
    digests: Mapping[str, str] | None = None,
) -> None:
    """Write the index of executed notebooks, each beside its page, from the parameters they were run with.

    pages: link -> title of other pages; digests: experiment -> digest of its settings.
    """
    kept = {Path(result).stem: document(result) for result in notebooks}
    results = {name: experiment.load(**node["metadata"]["papermill"]["parameters"]) for name, node in kept.items()}
    drawn = {alt: figure for node in kept.values() for alt, figure in rendering.figures_of(node).items()}
    entries = [{**findings.headline(result), "link": f"{name}.html"} for name, result in results.items()]
    every = list(results.values())
    write_page(
        entries, html, pages, above=recommendations(every, drawn).data, below=overview(every, digests or {}).data
    )


def recommendations(results: Sequence[Results], shown: Mapping[str, str] = MappingProxyType({})) -> HTML:
    """Return the recommendations per experiment and criterion, and figures and diagnostics of each behind a fold.

    shown: figures of the experiments' pages, by their description; they are not drawn again.
    """
    asked = {result.experiment: criteria.evidence(result) for result in results}
    parts = [heading("Recommendation", 2), overview_matrix.section(results, asked), evidence.overview(results, asked)]
    parts += [pooled.section(results, asked)]
    for result in results:
        drawn = [evidence.costs_and_ranks(each, result, shown) for each in asked[result.experiment]]
        title = "Costs, ranks and diagnostics" if drawn else "Diagnostics"
        parts.append(
            folded(f"{title}: {result.experiment}", together(*drawn, heading("Diagnostics"), common.health(result)))
        )
    return together(*parts)


def overview(results: Sequence[Results], digests: Mapping[str, str]) -> HTML:
    """Return the papers' claims, models and data (table 1), deletion curves (figure 2), and the provenance of the
    results; digests: of the settings of each experiment, if known."""
    # A model serves several experiments.
    of_data = [result for result in results if result.dataset_card]  # and not of a game
    rows = {
        (result.dataset_card["name"], result.model_card.get("name")): text_experiments.row_of(result)
        for result in of_data
    }
    styles = styling.styles(
        {label: entry for result in results for label, entry in result.labels.items() if label in COMMON}
    )
    drawn = [result for result in results if "log_odds" in result.metrics and len(result.instances) >= ENOUGH]
    frames = {result.experiment: result.metrics["log_odds"] for result in drawn}
    judged = claims.table(of_data)
    tested = judged["verdict"] != UNTESTABLE
    return together(
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
        heading("Models and data", 2),
        text_experiments.experiments_table(rows.values()),
        heading("Deletion curves of all experiments", 2),
        figure(
            lines.log_odds_grid(frames, styles),
            "Deletion curves of the common methods, one panel per experiment",
            "Lower is better; bands are 95 % intervals over instances. Controls are grey and dashed.",
            numbers=_masking(frames, styles),
        ),
        heading("Provenance", 2),
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


def write_page(
    entries: Sequence[Mapping[str, object]],
    html: Path | str,
    pages: Mapping[str, str] | None = None,
    above: str = "",
    below: str = "",
) -> None:
    """Write the page that links every report, with one row per experiment; pages: link -> title of others.

    entries: as made by `findings.headline`, and a link: title, link, accuracy or r2, instances, best, control,
    control_wins, error, evaluations, rows, failures; what is None is shown as a dash. above, below: HTML before
    and after the table.
    """
    head = "".join(f'<th class="{kind}">{name}</th>' for name, kind in COLUMNS.items())
    rows = "".join(f"<tr>{_row(entry)}</tr>" for entry in entries)
    body = (
        f"<h1>Shapeline: recommended attribution methods and their cost</h1>\n{above}<h2>Reports</h2>\n<p>One report "
        "per experiment. Deletion AUC: mean change of log-odds while the top features are removed; lower is better; "
        "95 % intervals over instances in brackets. Controls are methods of negligible cost. This table shows best "
        "means; the recommendations are above.</p>\n"
        f'<div class="wide"><table class="index"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )
    if not entries:
        body += '\n<p class="note">No experiment has a report yet.</p>'
    for link, title in (pages or {}).items():
        body += f'\n<p><a href="{markup.escape(link, quote=True)}">{markup.escape(title)}</a></p>'
    links = {str(entry["link"]): str(entry.get("experiment") or entry["title"]) for entry in entries}
    links |= {link: title.split(":")[0] for link, title in (pages or {}).items()}
    every = " ".join(
        f'<a href="{markup.escape(link, quote=True)}">{markup.escape(of)}</a>' for link, of in links.items()
    )
    whole = rendering.page("Shapeline reports", f"<nav>{every}</nav>\n{body}{below}")
    rendering.write(Path(html), rendering.linked(whole, Path(html).stem))


def _row(entry: Mapping[str, object]) -> str:
    wins, failures, accuracy = entry.get("control_wins"), entry.get("failures"), entry.get("accuracy")
    r2 = entry.get("r2")

    def named(key: str) -> str:
        part = entry.get(key)
        return f"<b>{markup.escape(part['method'])}</b><br>{interval(part)}" if part else "–"

    verdict = "" if wins is None else "<br>better" if wins else "<br>worse"
    behind = entry.get("control_behind")
    verdict += "" if behind is None or findings.sure(behind) else ",<br>not significantly"
    spent = f"<br>{number(entry['error']['evaluations'])} evaluations" if entry.get("error") else ""
    cells = (
        f'<a href="{markup.escape(str(entry["link"]), quote=True)}">{markup.escape(str(entry["title"]))}</a>',
        f"R² {r2:.2f}" if r2 is not None else "–" if accuracy is None else f"{100 * accuracy:.1f} %",
        number(entry.get("instances")),
        named("best"),
        named("control") + verdict,
        named("error") + spent,
        number(entry.get("evaluations")),
        "none" if not failures else f"⚠ {number(failures)}<br>of {number(entry.get('rows'))}",
    )
    flagged = {4: bool(wins), 7: bool(failures)}
    return "".join(
        f'<td class="{kind}{" flag" if flagged.get(place) else ""}">{cell}</td>'
        for place, (kind, cell) in enumerate(zip(COLUMNS.values(), cells, strict=True))
    )
