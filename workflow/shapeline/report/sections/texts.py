"""Sections of a text experiment. Words for the class are blue with a line below, against it orange with one above."""

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from shapeline.datasets import text
from shapeline.datasets.text import PAIR
from shapeline.metrics.error import correlate, rank_means
from shapeline.report import experiment
from shapeline.report.colours import LEVELS
from shapeline.report.elements import HTML, join_parts, note
from shapeline.report.experiment import Results, choose_instances, scalars
from shapeline.report.formatting import format_count, format_evaluations, number, two_digits
from shapeline.report.sections.images import intervals, list_words, order_note, signless

MAX_METHODS = 5  # methods on a page of documents
MAX_ALIGNED = 12  # words of a sentence that is aligned in columns
MAX_LARGE = 120  # words of a text in the normal font size


@dataclass(frozen=True)
class Document:
    """An explained document: its words as given to the model, scores (d,) by method (None: failed), classes."""

    name: str
    words: Sequence[str]
    scores: Mapping[str, np.ndarray | None]
    truth: str | None  # None where unknown
    prediction: str
    probability: float
    unknown: np.ndarray | None = None  # (d,) bool: words the model has no embedding for
    note: str = ""
    units: Mapping[str, str] = field(default_factory=dict)  # of methods whose scores have another unit than the page
    unsure: Mapping[str, np.ndarray] = field(default_factory=dict)  # (d,) bool by method: intervals that include 0
    explained: str | None = None  # where that is not the predicted class
    second: int | None = None  # of a sentence pair, the index of the second one's first word

    def mask_unsure(self, entry: str) -> np.ndarray | None:
        """Return a method's scores, 0 where the interval includes 0."""
        scores = self.scores.get(entry)
        return np.where(self.unsure[entry], 0.0, scores) if entry in self.unsure else scores


def reading_note(explained: str, without: str = "") -> HTML:
    """Return a note on reading coloured words; explained: the class; without: methods whose scores have no sign."""
    return HTML(
        '<p class="note words">Colours: <span class="p6">blue, line below</span>: the word supports '
        f'{html.escape(explained)}; <span class="n6">orange, line above</span>: it opposes it'
        f"{html.escape(without)}. Stronger colours and thicker lines are larger "
        "scores, on a linear scale beside each method up to its largest score. "
        "In documents, a word whose 95 % interval includes 0 has no colour. "
        '<span class="unknown">Dotted</span>: a word without an embedding in the model.</p>'
    )


def words(
    text_words: Sequence[str],
    scores: np.ndarray | None,
    unit: str = "nats",
    limit: float | None = None,
    unknown: np.ndarray | None = None,
    second: int | None = None,
    unsure: bool = False,
) -> HTML:
    """Return a document as coloured words with its scale.

    scores: (d,) or None for a failure; limit: the score of full colour; unknown: (d,) bool, words that are marked;
    second: index of a pair's second sentence; unsure: scores are 0 where their intervals include 0.
    """
    kind = "words long" if len(text_words) > MAX_LARGE else "words"
    scale = 1.0 if scores is None else _choose_limit(scores, limit)
    spans = list(map(html.escape, text_words) if scores is None else _write_spans(text_words, scores, scale, unknown))
    if second is not None:
        spans.insert(second, '<br class="pair">')  # between the sentences of a pair
    if scores is None:
        return HTML(f'<p class="{kind}"><b>⚠ failed:</b> {" ".join(spans)}</p>')
    none = "the interval of every score includes 0" if unsure else "every score is 0"
    legend = _write_scale(scale, unit) if np.any(scores) else f'<div class="scale">{none}</div>'
    return HTML(f'<p class="{kind}" dir="auto">{" ".join(spans)}</p>{legend}')


def _choose_limit(scores: np.ndarray, limit: float | None = None) -> float:
    return limit or float(np.abs(scores).max(initial=0.0)) or 1.0


def _write_spans(
    text_words: Sequence[str], scores: np.ndarray, limit: float, unknown: np.ndarray | None = None
) -> list[str]:
    """Return each word as HTML; plain text where the score is below half a shade, which keeps long pages small."""
    levels = np.clip(np.round(LEVELS * np.asarray(scores, float) / limit), -LEVELS, LEVELS).astype(int)
    strange = np.zeros(len(levels), bool) if unknown is None else unknown
    spans = []
    for word, level, score, new in zip(text_words, levels, scores, strange, strict=True):
        kinds = [f"{'p' if level > 0 else 'n'}{abs(level)}"] * bool(level) + ["unknown"] * bool(new)
        title = f' title="{_format_signed(score, limit)}"' if level else ""
        text = html.escape(word)
        spans.append(f'<span class="{" ".join(kinds)}"{title}>{text}</span>' if kinds else text)
    return spans


def _format_signed(score: float, limit: float) -> str:
    """Return a signed score with three digits of the largest one, so that a row's scores have equal decimals."""
    if limit < 1e-3:
        return ("+" if score > 0 else "") + number(float(score), 2, whole=False)
    text = f"{score:+.{max(0, 2 - math.floor(math.log10(limit)))}f}"
    return text.replace("-", "−") if float(text) else text[1:]


def _write_scale(limit: float, unit: str) -> str:
    """Return the legend of one method: its shades in steps of two between the largest scores."""
    steps = range(-LEVELS, LEVELS + 1, 2)
    shades = "".join(f'<span class="{"p" if step > 0 else "n"}{abs(step)}"></span>' for step in steps)
    end = number(limit, 2, whole=False)
    return f'<div class="scale">−{end} {shades} +{end} {html.escape(unit)}</div>'


def sentence_table(
    text_words: Sequence[str],
    scores_by_entry: Mapping[str, np.ndarray | None],
    evaluations: Mapping[str, float] | None = None,
    unit: str = "nats",
    caption: str = "",
    units: Mapping[str, str] | None = None,
) -> HTML:
    """Return a sentence with a row per method; the others are correlated with the first (Chen et al. 2018, table 2).

    Up to MAX_ALIGNED words are aligned in columns. Full colour is the largest score of a row. units: method -> unit.
    """
    aligned = len(text_words) <= MAX_ALIGNED
    exact = next(iter(scores_by_entry))
    columns = len(text_words) if aligned else 1
    heads = ["correlation", "rank correlation", f"full colour ({unit})"]
    heads += ["evaluations"] if evaluations is not None else []
    head = "".join(f'<th class="number">{html.escape(name)}</th>' for name in heads)
    rows = []
    for entry, scores in scores_by_entry.items():
        if scores is None:
            cells = f'<td class="flag" colspan="{columns}">⚠ failed</td>'
            facts = ["–", "–", "–"]
        else:
            limit = _choose_limit(scores)
            cells = _write_cells(text_words, scores, limit, aligned)
            same, of_entry = entry == exact, (units or {}).get(entry, unit)
            facts = ["–" if same else two_digits(value) for value in _correlate(scores, scores_by_entry[exact])]
            other = f" {of_entry or '(no unit)'}" if of_entry != unit else ""
            facts.append(f"± {number(limit, 2, whole=False)}{other}")
        if evaluations is not None:
            facts.append(format_evaluations(evaluations.get(entry)))
        rest = "".join(f'<td class="number">{fact}</td>' for fact in facts)
        rows.append(f'<tr><td class="text">{html.escape(entry)}</td>{cells}{rest}</tr>')
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return HTML(
        f'<div class="wide"><table class="sentence">{title}<thead><tr><th>method</th>'
        f'<th colspan="{columns}">words</th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
        + note(f"Correlation (linear) and rank correlation are with the scores of {exact}.").data
    )


def _write_cells(text_words: Sequence[str], scores: np.ndarray, limit: float, aligned: bool) -> str:
    """Return a cell per word with its score (aligned), or one cell with all words."""
    spans = _write_spans(text_words, scores, limit)
    if not aligned:
        return f'<td class="flow" dir="auto">{" ".join(spans)}</td>'
    cells = (f"{span}<small>{_format_signed(score, limit)}</small>" for span, score in zip(spans, scores, strict=True))
    return "".join(f'<td class="word">{cell}</td>' for cell in cells)


def _correlate(scores: np.ndarray, exact: np.ndarray | None) -> tuple[float, float]:
    """Return linear and rank correlation of two score vectors; NaN where one is constant or failed."""
    if exact is None:
        return math.nan, math.nan
    both = np.stack([scores, exact]).astype(float)
    return tuple(float(correlate(rows[:1], rows[1:])[0]) for rows in (both, rank_means(both)))


def build_documents(results: Results, picked: pd.DataFrame) -> list[Document]:
    """Return picked rows of a text experiment's instances (with their text) as documents; a label of -1 is unknown."""
    card, texts = results.dataset_card, list_words(results, picked)
    known = set(card["vocabulary"]) if card["unit"] == "word" and "words" not in picked else None
    values = results.select_scores(picked["instance"])
    units = {entry: experiment.find_unit(results, entry) for entry in results.scores}
    half = intervals(results, picked["instance"])
    return [
        Document(
            name=f"document {row['instance']}",
            words=text,
            scores={entry: scores[index] for entry, scores in values.items()},
            truth=str(card["classes"][row["label"]]) if row["label"] >= 0 else None,
            prediction=str(card["classes"][row["prediction"]]),
            probability=row["probability"],
            explained=experiment.find_other_class(results, row),
            unknown=None if known is None else np.array([word not in known for word in text], bool),
            note=_describe_cut(row, len(text), card["unit"]),
            units=units,
            second=row.get("second"),
            unsure={
                entry: np.abs(values[entry][index]) <= ends[index]
                for entry, ends in half.items()
                if ends[index] is not None
            },
        )
        for index, (row, text) in enumerate(zip(picked.to_dict("records"), texts, strict=True))
    ]


def _describe_cut(row: Mapping, count: int, unit: str) -> str:
    """Return a note on a document (a row of the instances) that is longer than the model's input of count words."""
    is_custom = "words_cut" in row  # by a custom tokenizer
    total = count + row["words_cut"] if is_custom else len(text.split_words(row["text"], unit, len(row["text"]) + 1))
    side = "last" if unit == "word" and not is_custom else "first"
    return "" if total == count else f"cut to its {side} {number(count)} of {number(total)} words"


def document_page(documents: Iterable[Document], unit: str = "nats", entries: Sequence[str] | None = None) -> HTML:
    """Return documents with their classes and a block of coloured words per method; misclassified ones stand out."""
    return HTML("".join(_write_document(document, unit, entries or list(document.scores)) for document in documents))


def _write_document(document: Document, unit: str, entries: Sequence[str]) -> str:
    wrong = document.truth not in (None, document.prediction)
    truth = "" if document.truth is None else f"true {document.truth}, "
    classes = f"{truth}predicted {document.prediction} (P = {document.probability:.3f})"
    classes += f", explained {document.explained}" if document.explained else ""
    mark = '<span class="flag">⚠ misclassified: </span>' if wrong else ""
    count = format_count(len(document.words), "word")
    if document.second is not None:
        count += f", {number(document.second)} of them in the first sentence"
    more = f"; {document.note}" if document.note else ""

    def write(entry: str) -> str:
        shown, of_entry = document.mask_unsure(entry), document.units.get(entry, unit)
        unsure = entry in document.unsure and bool(np.any(document.scores[entry]))
        return words(document.words, shown, of_entry, None, document.unknown, document.second, unsure).data

    blocks = "".join(
        f'<div class="explained"><b>{html.escape(entry).replace("_", "_<wbr>")}</b><div>{write(entry)}</div></div>'
        for entry in entries
    )
    return (
        f'<section class="document"><h3>{html.escape(document.name)}</h3>'
        f"<p>{mark}{html.escape(f'{classes}; {count}{more}')}</p>{blocks}</section>"
    )


def explanations(results: Results) -> HTML:
    """Return a few documents as coloured words, including misclassified ones; custom texts with every method."""
    read = reading_note(experiment.describe_explained_class(results), signless(results))
    custom = results.instances[results.instances["instance"] < 0]
    if len(custom):
        tables = [
            sentence_table(
                *(document.words, dict(sorted(document.scores.items(), key=lambda item: item[0] != results.exact))),
                *(experiment.average_evaluations(results, row["instance"]), results.value_unit),
                row["text"].replace(PAIR, " / "),
                units=document.units,
            )
            for document, row in zip(build_documents(results, custom), custom.to_dict("records"), strict=True)
        ]
        return join_parts(read, *tables, order_note(results))
    picked = choose_documents(results.instances, int(results.settings.get("n_shown") or 4) + 2)
    entries = _choose_methods(results)
    shown = f"Shown are {', '.join(entries or ())}: the methods with the best deletion AUC, and the best control."
    page = document_page(build_documents(results, picked), results.value_unit, entries)
    return join_parts(read, note(shown) if entries else None, page, order_note(results))


def _choose_methods(results: Results) -> list[str] | None:
    """Return the methods shown on a page of documents; None, meaning all, where no criterion ranks them."""
    areas = scalars(results.metrics.get("log_odds"), "deletion_auc")
    if len(results.entries) <= MAX_METHODS or areas.empty:
        return None
    ranked = areas["mean"].sort_values().index
    control = [entry for entry in ranked if results.entries[entry].get("is_control")][:1]
    return [entry for entry in ranked if entry not in control][: MAX_METHODS - 1] + control


def choose_documents(instances: pd.DataFrame, count: int = 6, wrong: int = 2) -> pd.DataFrame:
    """Return the shown documents, alternating between classes, at least `wrong` misclassified if possible."""
    errs = (instances["label"] != instances["prediction"]) & (instances["label"] >= 0)
    mistakes = instances[errs].head(wrong)
    return pd.concat([choose_instances(instances[~errs], count - len(mistakes)), mistakes])
