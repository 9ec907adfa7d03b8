"""What is compared across methods and experiments: agreement, contexts, known words, models, curves side by side."""

import html
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import seaborn
from IPython.display import HTML
from matplotlib.figure import Figure

from shapeline import findings, plots, reports
from shapeline.findings import Results, interval, number, scalars
from shapeline.metrics.compare import compare
from shapeline.plots import FEW, STYLE, WIDTH, Style, figure, heading, note, table, together
from shapeline.seeds import digest

CONTROLS = "Controls are grey with hollow markers; the dotted line is the best of them."
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
ENOUGH = 10  # instances for a curve beside those of other experiments
styled = matplotlib.rc_context(STYLE)


def explanations(results: Results) -> HTML:
    """The scores of a few instances: words in colour for a text, else as `plots` draws them."""
    if results.dataset_card["kind"] != "text":
        return plots.explanations(results)
    from shapeline import text_plots  # it draws on this module

    return text_plots.explanations(results)


def comparisons(results: Results) -> HTML:
    """How alike the methods are; where they were run both ways, what context changes; the words known to decide."""
    ids = results.instances["instance"]
    scores = {label: findings.scores_of(frame, ids) for label, frame in results.scores.items()}
    parts = [heading("Agreement between methods", 2), agreement_section(scores)]
    pairs = context_pairs(results.labels)
    if pairs and "log_odds" in results.measured:
        compared = context_comparison(results.measured["log_odds"], scores, pairs)
        parts += [heading("Context absent or present", 2), context_section(compared)]
    if "decisive" in results.metrics:
        parts += [
            heading("Words that decide", 2),
            decisive_section(results.metrics["decisive"], plots.styles_of(results), len(ids)),
        ]
    return together(*parts)


def write_index(
    notebooks: Iterable[Path | str],
    html: Path | str,
    pages: Mapping[str, str] | None = None,
    digests: Mapping[str, str] | None = None,
) -> None:
    """Write the index of executed notebooks, each beside its page, from the parameters they were run with.

    pages: link -> title of other pages; digests: experiment -> digest of its settings.
    """
    kept = {Path(one).stem: json.loads(Path(one).read_text())["metadata"]["papermill"] for one in notebooks}
    results = {name: findings.load(**papermill["parameters"]) for name, papermill in kept.items()}
    entries = [{**findings.headline(one), "link": f"{name}.html"} for name, one in results.items()]
    every = list(results.values())
    reports.index(entries, html, pages, above=recommendations(every).data, below=overview(every, digests or {}).data)


def recommendations(results: Sequence[Results]) -> HTML:
    """What to take in which experiment, for which question, at what cost; folded, what each experiment says of it."""
    from shapeline import evidence_plots  # it draws on this module's neighbours; other pages need it not

    found = {one.experiment: evidence_plots.evidence(one) for one in results}
    parts = [heading("Which method to trust", 2), evidence_plots.overview(results, found)]
    for one in results:
        drawn = [evidence_plots.costs_and_ranks(each, one) for each in found[one.experiment]]
        named = "Costs, ranks and health" if drawn else "Health"
        parts.append(folded(f"{named}: {one.experiment}", together(*drawn, heading("Health"), plots.health(one))))
    return together(*parts)


def overview(results: Sequence[Results], digests: Mapping[str, str]) -> HTML:
    """The papers' claims, models and data beside the paper's (table 1), masking curves (figure 2), and where the
    results come from; digests: of the settings of each experiment, if known."""
    from shapeline import claims  # it draws on this module's neighbours; other pages need it not

    # A model serves several experiments.
    rows = {(one.dataset_card["name"], one.model_card.get("name")): _row_of(one) for one in results}
    styles = plots.styles({label: entry for one in results for label, entry in one.labels.items() if label in COMMON})
    drawn = [one for one in results if "log_odds" in one.metrics and len(one.instances) >= ENOUGH]
    frames = {one.experiment: one.metrics["log_odds"] for one in drawn}
    judged = claims.table(results)
    tested = judged["verdict"] != claims.UNTESTABLE
    return together(
        heading("What the papers claim", 2),
        table(judged[tested], text=judged.columns) if tested.any() else note("None of them can be judged by this run."),
        note(
            "Numbers are this run's, with their 95 % intervals. A claim about an order holds where the order is sure "
            "on every comparison, fails where it is surely the other way round on one, and is undecided between. "
            + claims.STAND_INS
        ),
        folded(
            f"{number((~tested).sum())} claims that this run cannot judge, and why",
            table(judged[~tested].drop(columns=["experiment", "verdict"]), text=judged.columns),
        ),
        heading("Models and data", 2),
        experiments_table(rows.values()),
        heading("Masking curves of all experiments", 2),
        figure(
            log_odds_grid(frames, styles),
            "Masking curves of the common labels, a panel an experiment",
            "Lower is better; bands are 95 % bootstrap intervals over instances. Controls are grey and dashed.",
            numbers=_masking(frames, styles),
        ),
        heading("Where the results come from", 2),
        table(_origins(results, digests), text=["commit", "versions", "device", "frameworks", "configuration"]),
        note(
            "Configuration: a digest of the settings of all jobs behind a page, from the data to the report. Pages of "
            f"equal digests are of equal settings. Of all of them together: {digest(dict(digests))}."
        )
        if digests
        else None,
    )


def _masking(frames: Mapping[str, pd.DataFrame], styles: Mapping[str, Style]) -> pd.DataFrame | None:
    """The masking curves of the labels drawn, of all experiments."""
    curves = [frame.assign(experiment=name) for name, frame in frames.items()]
    if not curves:
        return None
    every = pd.concat(curves, ignore_index=True)
    return every.loc[(every["quantity"] == "masking") & every["label"].isin(list(styles)),
                     ["experiment", "label", "x", "mean", "low", "high"]]  # fmt: skip


def folded(title: str, part: HTML) -> HTML:
    """A part of a page that opens on a click."""
    return HTML(f"<details><summary>{html.escape(title)}</summary>{part.data}</details>")


def _origins(results: Sequence[Results], digests: Mapping[str, str]) -> pd.DataFrame:
    """Commit, versions, devices, seed and configuration of every experiment, as its score files say."""

    def told(one: Results, key: str) -> str:
        every = (entry.get(key) for files in one.metadata.values() for entry in files)
        return "; ".join(sorted({findings.plain(value) for value in every if value is not None})) or "–"

    keys = {
        "commit": "git_commit",
        "versions": "versions",
        "device": "device",
        "frameworks": "framework",
        "seed": "seed",
    }
    return pd.DataFrame(
        {
            "experiment": one.experiment,
            **{name: told(one, key) for name, key in keys.items()},
            **({"configuration": digests[one.experiment]} if digests else {}),
        }
        for one in results
    )


def _row_of(one: Results) -> dict:
    card, rows = one.dataset_card, findings.part_sizes(one.dataset_card)
    trained_on = findings.other_data(one)
    told = [f"the model was trained and tested on {trained_on}"] if trained_on else []
    return {
        "dataset": card["source"],
        "title": f"{card['name']}, synthetic" if card.get("synthetic") else card["name"],
        "classes": len(card["classes"]) or None,  # a regression has none
        "train": rows.get("train", 0) + rows.get("validation", 0),
        "test": rows.get("test", 0),
        "mean_length": card.get("mean_words"),
        "model": one.model_card.get("architecture", "none"),
        "parameters": one.model_card.get("parameters"),
        "accuracy": one.model_card.get("test_accuracy"),
        "note": "; ".join([*told, *(card.get("notes") or [])]),
    }


# ---------------------------------------------------------------------------------------------------- agreement


def agreements(scores_by_label: Mapping[str, Sequence[np.ndarray | None]], seed: int = 0) -> pd.DataFrame:
    """Rank correlation and cosine of every pair of labels: mean over instances and 95 % bootstrap interval.

    scores_by_label: label -> one array (d,) an instance, in the same order for all labels, d may differ between
    instances; None for a failure. Columns: label, other, quantity, mean, low, high, n; n counts the instances where
    both succeeded and neither is constant (for cosines: all zero). A pair without any is missing.
    """
    labels = list(scores_by_label)
    first, second = np.triu_indices(len(labels), 1)
    found: dict[str, list[np.ndarray]] = {"rank correlation": [], "cosine": []}
    for rows in zip(*scores_by_label.values(), strict=True):
        d = max((len(row) for row in rows if row is not None), default=1)
        values = np.stack([np.full(d, np.nan) if row is None else np.asarray(row, float) for row in rows])
        ranks = pd.DataFrame(values).rank(axis=1).to_numpy()
        found["rank correlation"].append(cosines(centred(ranks))[first, second])
        found["cosine"].append(cosines(values)[first, second])
    long = [
        pd.DataFrame({"instance": place, "quantity": quantity, "label": np.arange(len(first)), "value": pairs})
        for quantity, instances in found.items()
        for place, pairs in enumerate(instances)
    ]
    columns = ["label", "other", "quantity", "mean", "low", "high", "n"]
    if not long or not len(first):
        return pd.DataFrame(columns=columns)
    table = compare(pd.concat(long, ignore_index=True).assign(repeat=0, x=np.nan), seed)
    pair = table["label"].astype(int).to_numpy()
    named = {"label": np.array(labels)[first[pair]], "other": np.array(labels)[second[pair]]}
    return table.assign(**named)[columns]


def centred(rows: np.ndarray) -> np.ndarray:
    """Each row minus its mean; exactly 0 where it is constant, so that rounding has no correlation."""
    return np.where(np.ptp(rows, axis=1, keepdims=True) > 0, rows - rows.mean(1, keepdims=True), 0 * rows)


def two_digits(value: float) -> str:
    """A number with two decimals, as correlations are read."""
    if not np.isfinite(value):
        return "–"
    text = f"{value:.2f}"
    return text.replace("-", "−") if float(text) else "0.00"


def cosines(rows: np.ndarray) -> np.ndarray:
    """Cosines between the rows (m, d): (m, m), NaN where a row is zero or missing."""
    size = np.sqrt((rows**2).sum(1))
    scale = np.outer(size, size)
    return np.divide(rows @ rows.T, scale, out=np.full(scale.shape, np.nan), where=scale > 0)


@styled
def agreement(frame: pd.DataFrame, labels: Sequence[str]) -> Figure | None:
    """Mean rank correlation (below the diagonal) and cosine (above it) between labels; frame as of `agreements`."""
    present = [label for label in labels if label in {*frame["label"], *frame["other"]}]
    if len(present) < 2:
        return None
    place = {label: at for at, label in enumerate(present)}
    values = np.full((len(present), len(present)), np.nan)
    for row in frame[frame["label"].isin(present) & frame["other"].isin(present)].to_dict("records"):
        low, high = sorted((place[row["label"]], place[row["other"]]))
        values[(high, low) if row["quantity"] == "rank correlation" else (low, high)] = row["mean"]
    side = min(0.62, (WIDTH - 3.6) / len(present))
    drawing = Figure(figsize=(min(WIDTH, 3.6 + side * len(present)), 1.9 + 0.75 * side * len(present)))
    drawing.set_layout_engine("constrained")
    axes = drawing.subplots()
    seaborn.heatmap(
        pd.DataFrame(values, present, present),
        ax=axes,
        mask=np.isnan(values),
        cmap="RdBu",
        vmin=-1,
        vmax=1,
        annot=np.vectorize(two_digits)(values),
        fmt="",
        annot_kws={"fontsize": 8.5 if side > 0.5 else 8},
        linewidths=1,
        linecolor="white",
        cbar_kws={"label": "mean over instances", "shrink": 0.8},
    )
    axes.set_facecolor("#ededed")  # the diagonal, and pairs without a common instance
    axes.grid(False)
    axes.tick_params(length=0)
    axes.set_xticks(np.arange(len(present)) + 0.5, present, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(np.arange(len(present)) + 0.5, present, rotation=0)
    axes.set_title("Above the diagonal: cosine. Below: rank correlation")
    return drawing


def agreement_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Every pair of labels with both means and intervals, the most alike first; text."""
    rank, cosine = (
        frame[frame["quantity"] == name].set_index(["label", "other"]) for name in ("rank correlation", "cosine")
    )
    pairs = [
        *rank.sort_values("mean", ascending=False, kind="stable").index,
        *cosine.index.difference(rank.index, sort=False),
    ]
    columns = ["one", "other", "rank correlation", "cosine", "instances"]
    return pd.DataFrame(
        [
            (*pair, *(_between(part.loc[pair]) if pair in part.index else "–" for part in (rank, cosine)),
             number((rank if pair in rank.index else cosine).loc[pair, "n"]))
            for pair in pairs
        ],
        columns=columns,
    )  # fmt: skip


def _between(row: Mapping) -> str:
    return f"{two_digits(row['mean'])} ({two_digits(row['low'])} to {two_digits(row['high'])})"


def agreement_section(scores_by_label: Mapping[str, Sequence[np.ndarray | None]], seed: int = 0) -> HTML:
    """The matrix of agreement between methods and, folded, the table of all pairs with intervals."""
    frame = agreements(scores_by_label, seed)
    drawing = agreement(frame, list(scores_by_label))
    if drawing is None:
        return note("No agreement to show: fewer than two methods explained the same instances.")
    caption = (
        "Mean over instances of the correlation between the scores of two methods; each pair's interval is in the "
        "table. Scores without a sign, as saliency's, rank by size alone and cannot fully agree with signed ones."
    )
    pairs = agreement_table(frame)
    return together(
        figure(
            drawing,
            "Matrix of rank correlation and cosine between the scores of all methods",
            caption,
            numbers=frame,
        ),
        HTML(f"<details><summary>All {number(len(pairs))} pairs, with 95 % intervals</summary>"),
        table(pairs, text=["other"]),
        HTML("</details>"),
    )


# -------------------------------------------------------------------------------------------------- experiments


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
    return together(
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


# ------------------------------------------------------------------------------------------------------ context


def context_pairs(labels: Mapping[str, Mapping]) -> list[tuple[str, str]]:
    """Pairs (context absent, context present) of labels that differ in nothing else."""
    kinds: dict[tuple, dict[str, str]] = {}
    for label, entry in labels.items():
        parameters = dict(entry.get("parameters") or {})
        context = parameters.pop("context", "absent")
        key = (entry["method"], repr(sorted(parameters.items())))
        kinds.setdefault(key, {}).setdefault(context, label)
    return [(pair["absent"], pair["present"]) for pair in kinds.values() if len(pair) == 2]


def context_comparison(
    measured: pd.DataFrame,
    scores_by_label: Mapping[str, Sequence[np.ndarray | None]],
    pairs: Iterable[tuple[str, str]],
    seed: int = 0,
) -> pd.DataFrame:
    """Masking area with context absent minus present, paired over instances, and how alike the two rank the features.

    measured: label, instance, repeat, quantity, x, value, as the metric measured them (repeats are averaged first);
    scores_by_label as in `agreements`. One row a pair: absent, present, absent_area, present_area, mean, low, high (of
    the difference, nats, 95 % bootstrap interval), n, and rank_mean, rank_low, rank_high.
    """
    areas = measured[measured["quantity"] == "masking_area"].pivot_table(
        index="instance", columns="label", values="value", aggfunc="mean"
    )
    rows = []
    for absent, present in pairs:
        if absent not in areas or present not in areas:
            continue
        both = areas[[absent, present]].dropna()
        if both.empty:
            continue
        difference = pd.DataFrame({"value": both[absent] - both[present]}).reset_index()
        found = compare(difference.assign(label="", quantity="difference", repeat=0, x=np.nan), seed).iloc[0]
        alike = agreements({label: scores_by_label[label] for label in (absent, present)}, seed)
        alike = alike[alike["quantity"] == "rank correlation"]
        rank = alike.iloc[0] if len(alike) else dict.fromkeys(("mean", "low", "high"), math.nan)
        rows.append(
            {
                "absent": absent,
                "present": present,
                "absent_area": both[absent].mean(),
                "present_area": both[present].mean(),
                **{key: found[key] for key in ("mean", "low", "high", "n")},
                **{f"rank_{key}": rank[key] for key in ("mean", "low", "high")},
            }
        )
    return pd.DataFrame(rows)


def context_section(frame: pd.DataFrame) -> HTML:
    """The comparison of contexts as a table; a line where there is nothing to compare."""
    if frame.empty:
        return note("No method was run with its context both absent and present.")
    shown = pd.DataFrame(
        {
            "context absent": row["absent"],
            "context present": row["present"],
            "masking areas (nats)": f"{number(row['absent_area'], whole=False)}, "
            f"{number(row['present_area'], whole=False)}",
            "absent − present (nats)": interval(row),
            "lower (better)": "present" if row["low"] > 0 else "absent" if row["high"] < 0 else "no clear difference",
            "rank correlation": _between({key: row[f"rank_{key}"] for key in ("mean", "low", "high")}),
            "instances": number(row["n"]),
        }
        for row in frame.to_dict("records")
    )
    return together(
        table(shown, text=["context present", "lower (better)"]),
        note(
            "Features outside the window of a method are absent (at the reference) or present (kept). Differences are "
            "paired: each instance is compared with itself, and the 95 % intervals are over instances."
        ),
    )


# ------------------------------------------------------------------------------------------------- decisive words


@styled
def decisive_f1(frame: pd.DataFrame, styles: Mapping[str, Style]) -> Figure | None:
    """F1 of the top k words against the k decisive ones, best label on top; frame as of `compare`."""
    rows = scalars(frame, "f1")
    labels = sorted((label for label in styles if label in rows.index), key=lambda label: -rows["mean"][label])
    if not labels:
        return None
    drawing = Figure(figsize=(0.7 * WIDTH, 1.1 + 0.29 * len(labels)), layout="constrained")
    axes = drawing.subplots()
    across = "F1 of the top k words, k = number of decisive words"
    plots.dot_panel(axes, rows.loc[labels], styles, labels, "Decisive words found", across, True, "")
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.set_xlim(0, 1.02)
    return drawing


def decisive_section(frame: pd.DataFrame | None, styles: Mapping[str, Style], explained: int) -> HTML:
    """The F1 of every label as figure and table; explained: documents explained, among them those left out."""
    if frame is None:
        return plots.missing("decisive")
    drawing = decisive_f1(frame, styles)
    if drawing is None:
        return note("No document counts: the model errs on all of them, or none has a decisive word.")
    rows = scalars(frame, "f1").sort_values("mean", ascending=False, kind="stable")
    shown = pd.DataFrame(
        {
            "label": label,
            "F1 (higher is better)": _between(row),
            "control": "yes" if styles[label].control else "",
            "documents": number(row["n"]),
        }
        for label, row in rows.iterrows()
        if label in styles
    )
    counted = int(rows["n"].max())
    left = f"{number(explained - counted)} of {number(explained)} documents are left out"
    return together(
        figure(
            drawing,
            "F1 of the top words of each method against the decisive words, with 95 % intervals",
            f"Mean over documents with 95 % bootstrap intervals. {CONTROLS}",
        ),
        table(shown, text=["control"]),
        note(
            "The decisive words of a document are known. As many words are chosen as are decisive, by signed score, so "
            f"F1, precision and recall are the same number. {left}: those that the model misclassifies, where the "
            "decisive words speak against the explained class, and those without a decisive word."
        ),
    )


# ------------------------------------------------------------------------------------------------------- curves


@styled
def log_odds_grid(
    frames: Mapping[str, pd.DataFrame], styles: Mapping[str, Style], quantity: str = "masking"
) -> Figure | None:
    """The masking (or insertion) curves of several experiments, a panel each, one legend (Chen et al. 2018, figure 2).

    frames: title of the panel -> frame of `compare` for the log-odds metric; labels that `styles` does not name are
    left out. Bands are 95 % intervals, fainter where there are many curves.
    """
    frames = {title: frame for title, frame in frames.items() if (frame["quantity"] == quantity).any()}
    if not frames:
        return None
    columns = min(len(frames), min((3, 2), key=lambda count: -len(frames) % count))  # the fewer empty places
    rows = math.ceil(len(frames) / columns)
    drawing = Figure(figsize=(WIDTH, 0.3 + 3.7 * rows), layout="constrained")
    panels = drawing.subplots(rows, columns, squeeze=False)
    handles: dict[str, object] = {}
    for axes, (title, frame) in zip(panels.flat, frames.items(), strict=False):
        labels = [label for label in styles if label in set(frame.loc[frame["quantity"] == quantity, "label"])]
        for label in labels:
            line = plots.line_of(frame, quantity, label)
            plots.draw_curve(axes, line, styles[label], label, band=0.14 if len(labels) <= FEW else 0.07)
        handles |= dict(zip(labels, axes.get_legend_handles_labels()[0], strict=True))
        axes.set(title=title, xlabel=plots.PANELS[quantity][1])
        axes.margins(x=0.02)
    for axes in panels.flat[len(frames) :]:
        axes.set_visible(False)
    for axes in panels[:, 0]:
        axes.set_ylabel(plots.PANELS[quantity][2])
    order = [label for label in styles if label in handles]
    drawing.legend(
        [handles[label] for label in order], order, loc="outside lower center", handlelength=3.2,
        ncols=min(len(order), 5),
    )  # fmt: skip
    return drawing
