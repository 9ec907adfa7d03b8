"""The index of all reports: recommendations, a row per experiment, claims, models and data."""

import html as markup
import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from shapeline.files import read_document
from shapeline.papers import claims
from shapeline.papers.claims import STAND_INS, UNTESTABLE
from shapeline.report import criteria, elements, experiment, findings, rendering, tables
from shapeline.report.criteria import Evidence, average_per_seed, name_verdict
from shapeline.report.elements import HTML, Style, figure, fold, heading, join_parts, note, part, table
from shapeline.report.experiment import Results, warn_near_chance
from shapeline.report.figures import lines
from shapeline.report.formatting import ends, format_count, join_names, number
from shapeline.report.sections import common, evidence, games, importance
from shapeline.report.sections.robustness import changes
from shapeline.seeds import digest
from shapeline.statistics import paired
from shapeline.statistics.recommendation import Recommendation

Column = tuple[Results, Evidence, Recommendation]


def shares(answer: Evidence, advice: Recommendation) -> pd.Series:
    """Return each mean rescaled so that random attribution (or the worst mean) is 0 and the best mean is 1; also of the
    exact values, where they are recommended for their own error."""
    means = answer.values.mean()
    if advice.entry == answer.truth:
        means[answer.truth] = answer.also[answer.truth].mean()
    if answer.criterion.better == "higher":
        means = -means
    end, best = means.get(answer.last.ends_at, means.max()), means.min()
    return (end - means) / (end - best) if end > best else means * np.nan


def section(results: Sequence[Results], evidence: Mapping[str, Sequence[Evidence]]) -> HTML | None:
    """Return the overview with links to pages (evidence by name); None where no criterion ranks methods."""
    columns = [
        (result, answer, answer.first(result))
        for result in results
        if not warn_near_chance(result)
        for answer in evidence[result.experiment]
        if answer.last is not None
    ]
    if not columns:
        return None
    positions = [shares(answer, advice) for _, answer, advice in columns]
    position_table = pd.DataFrame(dict(enumerate(positions))).dropna(how="all")
    position_table = position_table[(position_table.fillna(0) != 0).any(axis=1)]  # random attribution is 0 everywhere
    order = pd.DataFrame({"in": position_table.notna().sum(axis=1), "mean": position_table.mean(axis=1)})
    position_table = position_table.loc[order.sort_values(["in", "mean"], ascending=False, kind="stable").index]
    head = "".join(_write_head(column) for column in columns)
    body = "".join(_write_row(entry, row, columns) for entry, row in position_table.iterrows())
    return join_parts(
        heading("Methods by experiment and criterion", 2),
        note(
            "100 % is the best mean of the column and 0 % is random attribution; below 0 % a method is worse than "
            "random. Symbols are those of the cards above. –: not measured by this criterion."
        ),
        HTML(
            '<div class="wide"><table class="glance"><caption>Position of each method between random attribution and '
            f"the best; a cell links to its page</caption><thead><tr><th>method</th>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table></div>"
        ),
        fold(
            "Criteria",
            note(
                "Error: distance to the exact values. Deletion and insertion AUC: the loss of log-odds as the top "
                "features are removed, and the gain as they are added. Localisation and ground-truth words: agreement "
                "with annotated objects and words. The pages have the intervals of all means."
            ),
        ),
    )


def _write_head(column: Column) -> str:
    """Return the head of a column, with the attributes by which the page filters."""
    result, answer, _ = column
    kind, title = result.dataset_card.get("kind", "game"), _escape(_name_column(column)).replace("_", "_<wbr>")
    return f'<th data-kind="{_escape(kind)}" data-criterion="{_escape(answer.criterion.short)}">{title}</th>'


def _name_column(column: Column) -> str:
    result, answer, _ = column
    return f"{result.experiment}: {answer.criterion.short}"


def _write_row(entry: str, row: pd.Series, columns: Sequence[Column]) -> str:
    cells = []
    for value, column in zip(row, columns, strict=True):
        if not np.isfinite(value):
            cells.append('<td title="not measured by this criterion">–</td>')
            continue
        result, answer, advice = column
        is_recommended = advice.entry == entry or str(advice.entry).startswith(f"{entry} at ")
        mark = f"{'⚠ ' * bool(changes(answer, result))}{name_verdict(advice)[0]} " if is_recommended else ""
        spent = format_count(answer.evaluations.get(entry, np.nan), "evaluation")
        hint = f"{entry}, {_name_column(column)}: {spent} per instance"
        if is_recommended and advice.entry != entry:
            hint += f"; at {advice.entry.partition(' at ')[2]}"
        hint += "; worse than random attribution" if value < 0 else ""
        width, text = f"{100 * min(max(value, 0.0), 1.0):.0f}%", f"{100 * value:.0f} %".replace("-", "−")
        link = f'<a href="{_escape(result.experiment)}.html" title="{_escape(hint)}">{mark}{text}</a>'
        cells.append(f'<td style="--way: {width}">{link}</td>')
    return f"<tr><td>{_escape(str(entry)).replace('_', '_<wbr>')}</td>{''.join(cells)}</tr>"


MIN_METHODS = 3  # for a ranking


def pooled_section(results: Sequence[Results], evidence: Mapping[str, Sequence[Evidence]]) -> HTML | None:
    """Return ranks per criterion shared by at least two datasets or models at one budget; None without."""
    groups: dict[tuple, list[tuple[Results, Evidence]]] = {}
    for result in results:
        for answer in () if warn_near_chance(result) else evidence[result.experiment]:
            criterion, budget = answer.criterion, result.settings.get("budget")
            groups.setdefault((criterion.metric, criterion.statistic, budget), []).append((result, answer))
    parts = [part for members in groups.values() if (part := _rank_group(members)) is not None]
    if not parts:
        return None
    return join_parts(
        heading("Ranks over the experiments", 2),
        *parts,
        note(
            "Ranks of the means over instances (1 is best), one per training seed, among the methods that all these "
            "experiments share with equal parameters and budget. The simultaneous 95 % CI use Student's t over the "
            "pairs of dataset and model, after averaging over training seeds, or the spread of random ranks if wider."
        ),
    )


def _rank_group(members: Sequence[tuple[Results, Evidence]]) -> HTML | None:
    """Return the ranks of the shared methods; None where there are too few, or one dataset and model."""
    [_, first] = members[0]
    entries = _list_shared_entries(members)
    pairs = [f"{result.dataset_card.get('name')}, {result.model_card.get('name')}" for result, _ in members]
    if len(entries) < MIN_METHODS or len(set(pairs)) < 2:
        return None
    means_of_members = [_collect_means(answer, result, entries) for result, answer in members]
    cluster = [pair for pair, means in zip(pairs, means_of_members, strict=True) for _ in range(len(means))]
    sign = 1 if first.criterion.better == "lower" else -1
    means = pd.concat(means_of_members, ignore_index=True) * sign
    pooled, ranks = paired.pool_ranks(means, cluster), paired.ranks(means)
    shown = pd.DataFrame(
        {
            "method": entry,
            "mean rank": number(row["mean"], 2, whole=False),
            "simultaneous 95 % CI": ends(row["low"], row["high"]),
            **{
                pair: ", ".join(map(number, ranks.loc[np.array(cluster) == pair, entry]))
                for pair in dict.fromkeys(pairs)
            },
        }
        for entry, row in pooled.iterrows()
    )
    budget = members[0][0].settings.get("budget")
    scope = "" if budget is None else f", budget {number(budget)} d"
    return join_parts(
        table(shown, f"{first.criterion.title.replace(': ', ', ')}{scope}: ranks of {number(len(entries))} methods"),
        note(_format_ranks(pooled, len(set(pairs)))),
    )


def _list_shared_entries(members: Sequence[tuple[Results, Evidence]]) -> list[str]:
    """Return the entries of all members that have the same method and parameters everywhere."""

    def identify(result: Results, entry: str) -> tuple:
        return result.entries[entry]["method"], result.entries[entry].get("parameters")

    first, answer = members[0]
    return [
        entry
        for entry in answer.values
        if all(entry in other.values and identify(of, entry) == identify(first, entry) for of, other in members)
    ]


def _collect_means(answer: Evidence, result: Results, entries: list[str]) -> pd.DataFrame:
    """Return means (training seeds, methods); the first row uses all instances; complete seeds only."""
    others = average_per_seed(answer, result)
    others = others.loc[others.index > 0, entries] if set(entries) <= set(others) else pd.DataFrame(columns=entries)
    return pd.concat([answer.values[entries].mean().to_frame().T, others.astype(float)], ignore_index=True)


def _format_ranks(pooled: pd.DataFrame, pairs: int) -> str:
    """Return a sentence with the methods that rank significantly differently."""
    apart = [
        f"{better} before {worse}"
        for better, worse in itertools.combinations(pooled.index, 2)
        if pooled["high"][better] < pooled["low"][worse]
    ]
    scope = f"Over {number(pairs)} pairs of dataset and model"
    if not apart:
        return f"{scope}, no two methods rank significantly differently."
    order = join_names(apart) if len(apart) < 4 else f"{number(len(apart))} of the pairs of methods, first {apart[0]}"
    return f"{scope}, these rank significantly differently: {order}."


PAPER = {  # Chen et al. 2018, table 1
    "imdb": {
        "train": 25_000, "test": 25_000, "mean_length": 325.6, "model": "WordCNN", "parameters": 351_002,
        "accuracy": "90.1 %", "classes": 2,
    },
    "agnews": {
        "train": 120_000, "test": 7_600, "mean_length": 43.3, "model": "CharCNN", "parameters": 11_337_988,
        "accuracy": "90.09 %", "classes": 4,
    },
    "yahoo": {
        "train": 1_400_000, "test": 60_000, "mean_length": 108.4, "model": "LSTM", "parameters": 7_146_166,
        "accuracy": "70.84 %", "classes": 10,
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


def build_row(result: Results) -> dict:
    card, rows = result.dataset_card, experiment.count_rows(result.dataset_card)
    trained_on = experiment.find_other_dataset(result)
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
        "accuracy": experiment.describe_accuracy(result.model_card, result.model_card.get("test_accuracy")),
        "note": "; ".join([*remarks, *filter(None, [card.get("subset")]), *(card.get("notes") or [])]),
    }


def experiments_table(rows: Iterable[Mapping]) -> HTML:
    """Return data and models of text experiments beside the paper's (Chen et al. 2018, table 1); a dash is missing."""
    shown, notes = [], []
    for row in rows:
        name, paper = row.get("title") or row["dataset"], PAPER.get(row["dataset"])
        shown.append({"data set": name, "": "here", **_format_facts(row)})
        shown += [{"data set": "", "": "paper", **_format_facts(paper)}] if paper else []
        notes += [f"{name}: {row['note'].rstrip('.')}."] if row.get("note") else []
    return join_parts(
        table(pd.DataFrame(shown), text=["", "model"]),
        note(" ".join(["Paper: Chen et al. 2018, table 1. A dash: not there, or not known.", *notes])),
    )


def _format_facts(row: Mapping) -> dict[str, str]:
    formats = {"model": str, "mean_length": "{:,.1f}".format, "accuracy": str}
    known = {name: row[name] for name in COLUMNS if row.get(name) is not None}
    texts = {name: formats.get(name, "{:,}".format)(value) for name, value in known.items()}
    return {title: texts.get(name, "–") for name, title in COLUMNS.items()}


# The methods of the figure of all experiments, which shows the same methods in every panel.
COMMON = "l_shapley c_shapley c_shapley_regression kernel_shap sample_shapley lime occlusion random".split()
MIN_INSTANCES = 10  # of a curve in the figure of all experiments


def write_index(
    notebooks: Iterable[Path | str],
    html: Path | str,
    pages: Mapping[str, str] | None = None,
    digests: Mapping[str, str] | None = None,
) -> None:
    """Write the index of executed notebooks; pages: link -> title of others; digests: of settings by experiment."""
    results = [experiment.load(**read_document(path)["metadata"]["papermill"]["parameters"]) for path in notebooks]
    evidence_of = {path.experiment: criteria.collect_evidence(path) for path in results}
    with_claims = claims.has_claims(results)
    ranked = [result for result in results if not result.settings.get("game")]  # a game is one instance
    parts = [
        cards(results, evidence_of),
        section(results, evidence_of),
        evidence.overview(ranked, evidence_of) if ranked else None,
        pooled_section(results, evidence_of),
        papers_section(results, pages or {}) if with_claims else None,
        part("Models and data", models_section(results)) if ranked else None,
        part("Provenance", origins_section(results, digests or {})) if results else None,
    ]
    write_page(join_parts(*parts), html, [path.experiment for path in results], pages if with_claims else None)


def write_page(
    body: HTML, html: Path | str, experiments: Sequence[str], pages: Mapping[str, str] | None = None
) -> None:
    """Write the page that links every report; pages: link -> title of other pages."""
    links = {f"{name}.html": name for name in experiments}
    links |= {link: title.split(":")[0] for link, title in (pages or {}).items()}
    anchors = (f'<a href="{_escape(link)}">{_escape(name)}</a>' for link, name in links.items())
    title = "<h1>Shapeline: recommended attribution methods and their cost</h1>"
    beside = sorted({path.name for path in Path(html).parent.glob("*.html")} - {*links, Path(html).name})
    others = ", ".join(f'<a href="{_escape(link)}">{_escape(Path(link).stem)}</a>' for link in beside)
    others = f'<p class="note">Reports of other or earlier configurations in this folder: {others}.</p>' * bool(others)
    page = rendering.page("Shapeline reports", f"<nav>{' '.join(anchors)}</nav>\n{title}{body.data}{others}")
    rendering.write(Path(html), rendering.link_files(page, Path(html).stem))


def _escape(text: object) -> str:
    return markup.escape(str(text), quote=True)


def cards(results: Sequence[Results], evidence_of: Mapping[str, Sequence[Evidence]]) -> HTML:
    """Return a card per experiment: key figures, and the recommended methods with their cost."""
    if not results:
        return note("No experiment has a report yet.")
    cards = "".join(_write_card(result, evidence_of[result.experiment]) for result in results)
    legend = f"{criteria.LEGEND} Bars and maps: mean |score| of the features."
    return HTML(f'<p class="note">{legend}</p><div class="cards">{cards}</div>')


def _write_card(result: Results, answers: Sequence[Evidence]) -> str:
    facts = findings.headline(result)
    link = f'<a class="need" href="{_escape(result.experiment)}.html">{_escape(facts["title"])}</a>'
    figures = [f"{format_count(facts['instances'], 'instance')}, d = {number(result.d)}"]
    if facts["r2"] is not None:
        figures.append(f"model R² {number(facts['r2'], decimals=2)}")
    elif facts["accuracy"] is not None:
        figures.append(f"model accuracy {experiment.describe_accuracy(result.model_card, facts['accuracy'])}")
    figures.append(f"{number(facts['evaluations'])} evaluations in total")
    if facts["failures"]:
        figures.append(f"⚠ {number(facts['failures'])} of {number(facts['rows'])} explanations failed")
    rows = [
        f'<span class="criterion">{_escape(need)}</span> <b class="method">{_escape(verdict)}</b><br>{_escape(cost)}'
        for need, verdict, cost in (
            games.verdicts(result) if result.settings.get("game") else evidence.verdicts(answers, result)
        )
    ]
    rows = "".join(f"<p>{row}</p>" for row in rows) or f"<p>{common.explain_missing_recommendation(result)}</p>"
    thumbnail = importance.thumbnail(result, importance.choose_method(result, answers))
    return f'<article class="card">{link}<p class="quiet">{_escape(", ".join(figures))}</p>{thumbnail}{rows}</article>'


def papers_section(results: Sequence[Results], pages: Mapping[str, str]) -> HTML:
    """Return the papers' claims, deletion curves of the common methods (figure 2), and links to the other pages."""
    styles = elements.styles(
        {entry: settings for result in results for entry, settings in result.entries.items() if entry in COMMON}
    )
    drawn = [result for result in results if "log_odds" in result.metrics and len(result.instances) >= MIN_INSTANCES]
    frames = {result.experiment: result.metrics["log_odds"] for result in drawn}
    judged = claims.table([result for result in results if result.dataset_card])  # a game has no dataset
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
        fold(
            f"{number((~tested).sum())} claims that this run cannot test, with reasons",
            table(judged[~tested].drop(columns=["experiment", "verdict"]), text=judged.columns),
        ),
        figure(
            lines.log_odds_grid(frames, styles),
            "Deletion curves of the common methods, one panel per experiment",
            "Deletion curves: lower is better; bands are 95 % intervals over instances. Controls are grey and dashed.",
            numbers=_collect_curves(frames, styles),
        ),
        HTML(f"<ul>{links}</ul>"),
    )


def models_section(results: Sequence[Results]) -> HTML:
    """Return models and data (table 1), each model once; a game has neither."""
    rows = {
        (result.dataset_card["name"], result.model_card.get("name")): build_row(result)
        for result in results
        if result.dataset_card
    }
    return experiments_table(rows.values())


ORIGINS = ("commit", "versions", "device", "frameworks", "seed")


def origins_section(results: Sequence[Results], digests: Mapping[str, str]) -> HTML:
    """Return the provenance of the results; digests: of the settings per experiment, if known."""
    return join_parts(
        table(_tabulate_origins(results, digests), text=[*ORIGINS, "configuration"]),
        note(
            "Configuration: a digest of the settings of all jobs of a page; equal digests mean equal settings. "
            f"Digest of all experiments: {digest(dict(digests))}."
        )
        if digests
        else None,
    )


def _collect_curves(frames: Mapping[str, pd.DataFrame], styles: Mapping[str, Style]) -> pd.DataFrame | None:
    """Return the deletion curves of the methods in the figure, of all experiments."""
    if not frames:
        return None
    curves = pd.concat([frame.assign(experiment=name) for name, frame in frames.items()], ignore_index=True)
    drawn = (curves["statistic"] == "deletion") & curves["method"].isin(list(styles))
    return curves.loc[drawn, ["experiment", "method", "x", "mean", "low", "high"]]


def _tabulate_origins(results: Sequence[Results], digests: Mapping[str, str]) -> pd.DataFrame:
    """Return commit, versions, devices, seed and configuration of every experiment, from its score files."""
    keys = ("git_commit", "versions", "device", "framework", "seed")
    return pd.DataFrame(
        {
            "experiment": result.experiment,
            **{
                name: text or "–"
                for name, text in zip(ORIGINS, tables.merge_metadata(result, keys).values(), strict=True)
            },
            **({"configuration": digests[result.experiment]} if digests else {}),
        }
        for result in results
    )
