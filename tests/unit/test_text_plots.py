"""Coloured words, tables and figures of a text report, and the F1 against known words, on invented numbers."""

import dataclasses
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb

from shapeline.errors import ShapelineError
from shapeline.metrics import ground_truth
from shapeline.report import elements, experiment, index, rendering
from shapeline.report.colours import INK, tint
from shapeline.report.explorer import Entry, ExplorerData, Instance, explorer_html
from shapeline.report.figures import explanations, lines
from shapeline.report.sections import method_agreement, texts
from shapeline.statistics.comparison import compare
from tests.fixtures.result_folder import build

SENTENCE = "it is not heartwarming or entertaining it just sucks".split()
EXACT = np.array([0.02, 0.05, 0.9, -0.7, 0.01, -0.55, 0.04, 0.3, 1.6])


def shown(page: str) -> str:
    """Return the visible text of a page."""
    return re.sub(r"<[^>]+>", "", page)


def classes(page: str) -> set[str]:
    return {name for names in re.findall(r'class="([^"]*)"', page) for name in names.split()}


# --- words --------------------------------------------------------------------------------------------------------


def test_words_carry_sign_and_size():
    page = texts.words(["bad", "film", "nice"], np.array([2.0, 0.05, -1.0])).data
    assert '<span class="p10" title="+2.00">bad</span> film <span class="n5" title="−1.00">nice</span>' in page
    assert "−2.0 " in shown(page) and " +2.0 nats" in shown(page)


def test_texts_have_the_direction_of_their_script():
    words, scores = ["שלום", "עולם"], np.array([1.0, -1.0])
    assert 'dir="auto"' in texts.words(words, scores).data
    assert 'dir="auto"' in explanations.colour_words([("a", words, scores, None, None)]).data
    colours = explanations.colour_words([("a", words, scores, None, None)]).data
    assert colours.count('style="unicode-bidi:plaintext') == 2  # the box of a word of the other direction is whole
    data = ExplorerData("text", [Instance("0", names=words)], [Entry("m", [scores])])
    assert r"\u2068${nameOf(one, method, place)}\u2069" in explorer_html(data)  # numbers behind them stay in order


def test_words_share_a_scale_on_request():
    page = texts.words(["bad", "worse"], np.array([1.0, 9.0]), limit=4.0).data
    assert 'class="p2"' in page and 'class="p10" title="+9.00">worse' in page  # 2.5 tenths round to even; 9 is cut off
    assert "−4.0 " in shown(page)


def test_words_are_escaped_and_unknown_ones_marked():
    page = texts.words(["<b>&", "zyx"], np.array([1.0, 0.0]), unknown=np.array([True, True])).data
    assert "&lt;b&gt;&amp;" in page and "<b>" not in page
    assert '<span class="p10 unknown"' in page and '<span class="unknown">zyx</span>' in page


def test_words_without_scores_are_shown_all_the_same():
    failed = texts.words(["so", "what<"], None).data
    assert "⚠ failed" in failed and "so what&lt;" in failed
    flat = texts.words(["so", "what"], np.zeros(2)).data
    assert "so what" in flat and "every score is 0" in flat and "+1" not in flat
    document = texts.Document("one", ["so", "what"], {"m": np.array([1.0, 2.0])}, None, "good", 0.9)
    for unsure, said in (([True, True], True), ([True, False], False)):
        page = texts.document_page([dataclasses.replace(document, unsure={"m": np.array(unsure)})]).data
        assert ("the interval of every score includes 0" in page) == said and "every score is 0" not in page


def test_long_documents_keep_every_word_and_are_set_small():
    many = [f"w{place}" for place in range(400)]
    page = texts.words(many, np.linspace(-1, 1, 400)).data
    text = page.split('<div class="scale">')[0]
    assert shown(text).split() == many and 'class="words long"' in text
    assert "long" not in classes(texts.words(SENTENCE, EXACT).data)


def test_words_and_scores_must_be_as_many():
    with pytest.raises(ValueError):
        texts.words(["one", "two"], np.ones(3))


# --- colours ------------------------------------------------------------------------------------------------------


SHEET = rendering.style_sheet()


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.1)."""
    channels = np.array(to_rgb(colour))
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4) @ [
        0.2126, 0.7152, 0.0722
    ]  # fmt: skip


def test_every_tint_leaves_dark_text_legible_and_signs_equally_light():
    ink = luminance(INK)
    for level in range(1, texts.LEVELS + 1):
        blue, orange = luminance(tint(level)), luminance(tint(-level))
        assert (min(blue, orange) + 0.05) / (ink + 0.05) > 6
        assert blue == pytest.approx(orange, rel=0.03)
        assert blue < luminance(tint(level - 1))
    assert tint(0) == "#ffffff"
    assert [tint(level) for level in (5, 10, -10)] == ["#b3d6f8", "#67adf0", "#f18f4e"]


def test_the_dark_page_has_tints_of_its_own_that_leave_light_text_legible():
    dark = re.search(r"prefers-color-scheme: dark\) \{\n  :root \{(.*?)\}", SHEET, re.S)[1]
    colours = dict(re.findall(r"--(\w+): (#\w+);", dark))
    assert colours["paper"] == tint(0, dark=True)
    light, page = (luminance(colours[name]) + 0.05 for name in ("ink", "paper"))
    for level in range(1, texts.LEVELS + 1):
        blue, orange = (luminance(tint(sign * level, dark=True)) + 0.05 for sign in (1, -1))
        assert light / max(blue, orange) > 4.5 and blue == pytest.approx(orange, rel=0.1)
        assert f"  span.p{level} {{ background: {tint(level, dark=True)};" in SHEET
        assert f"  span.n{level} {{ background: {tint(-level, dark=True)};" in SHEET
    for name in ("quiet", "link", "warn"):
        assert (luminance(colours[name]) + 0.05) / page > 4.5
    assert page < luminance(colours["box"]) + 0.05 < light


def test_signs_differ_without_colour():
    rules = dict(re.findall(r"^\.([pn]\d+) \{ (.*?) \}", SHEET, re.M))
    for level in range(1, texts.LEVELS + 1):
        assert "border-bottom" in rules[f"p{level}"] and "border-top" in rules[f"n{level}"]
        assert "border-top" not in rules[f"p{level}"] and "border-bottom" not in rules[f"n{level}"]


def test_every_class_has_a_rule(documents):
    rows = [{"dataset": "imdb"}]
    page = "".join(
        part.data
        for part in (
            texts.document_page(documents),
            texts.sentence_table(SENTENCE, {"exact": EXACT, "lime": -EXACT}),
            texts.reading_note("the predicted class"),
            index.experiments_table(rows),
        )
    )
    sheet = SHEET
    unstyled = {name for name in classes(page) if not re.search(rf"\.{name}\b", sheet)}
    assert unstyled <= {"text"}  # plain cells


# --- sentence -----------------------------------------------------------------------------------------------------


def rows_of(page: str) -> dict[str, str]:
    body = page.split("<tbody>")[1].split("</tbody>")[0]
    return {shown(row.split("</td>")[0]): row for row in body.split("</tr>") if row}


def test_sentence_table_aligns_words_and_compares_with_the_exact_values():
    others = {"exact": EXACT, "twice": 2 * EXACT, "against": -EXACT, "flat": np.ones(9), "failed": None}
    spent = {"exact": 512, "twice": 36, "against": 36, "flat": 1, "failed": 36}
    page = texts.sentence_table(SENTENCE, others, spent, caption="a < b").data
    rows = rows_of(page)
    assert list(rows) == list(others) and "a &lt; b" in page
    assert all(rows[entry].count('<td class="word">') == 9 for entry in ("exact", "twice", "against"))
    assert "not</span><small>+0.90</small>" in rows["exact"] and "heartwarming</span><small>−1.40" in rows["twice"]
    facts = {entry: re.findall(r'<td class="number">(.*?)</td>', row) for entry, row in rows.items()}
    assert facts["exact"] == ["–", "–", "± 1.6", "512"]
    assert facts["twice"] == ["1.00", "1.00", "± 3.2", "36"]
    assert facts["against"] == ["−1.00", "−1.00", "± 1.6", "36"]
    assert facts["flat"] == ["–", "–", "± 1.0", "1"]
    assert "failed" in rows["failed"] and facts["failed"] == ["–", "–", "–", "36"]


def test_linear_and_rank_correlation_differ():
    page = texts.sentence_table(["a", "b", "c"], {"exact": np.array([1, 2, 3.0]), "lime": np.array([1, 2, 9.0])})
    linear = np.corrcoef([1, 2, 3], [1, 2, 9])[0, 1]
    assert re.findall(r'<td class="number">(.*?)</td>', rows_of(page.data)["lime"])[:2] == [f"{linear:.2f}", "1.00"]


def test_rounding_of_constant_scores_is_no_correlation():
    flat = np.full(3, 0.1)
    assert (flat != flat.mean()).all()  # which is why this needs care
    page = texts.sentence_table(["a", "b", "c"], {"exact": np.array([1, 2, 3.5]), "flat": flat}).data
    assert re.findall(r'<td class="number">(.*?)</td>', rows_of(page)["flat"])[:2] == ["–", "–"]


def test_a_longer_sentence_flows_and_a_failed_exact_leaves_dashes():
    page = texts.sentence_table([*SENTENCE, "and", "so", "on", "…"], {"exact": None, "lime": np.ones(13)}).data
    assert 'class="word"' not in page and '<td class="flow"' in page and "evaluations" not in page
    assert re.findall(r'<td class="number">(.*?)</td>', rows_of(page)["lime"])[:2] == ["–", "–"]


# --- documents ----------------------------------------------------------------------------------------------------


@pytest.fixture
def documents() -> list[texts.Document]:
    good = texts.Document("one <1>", SENTENCE, {"exact": EXACT, "lime": None}, "negative", "negative", 0.99)
    wrong = texts.Document(
        "two", ["fine"], {"exact": np.array([1.0]), "lime": np.array([-1.0])}, "positive", "negative", 0.6,
        np.array([True]), "truncated",
    )  # fmt: skip
    return [good, wrong]


def test_document_page_flags_what_is_misclassified(documents):
    first, second = texts.document_page(documents).data.split("</section>")[:2]
    assert "misclassified" not in first and "⚠ misclassified" in second
    assert "true positive, predicted negative (P = 0.600); 1 word; truncated" in shown(second)
    assert "one &lt;1&gt;" in first and "⚠ failed" in first and 'class="p10 unknown"' in second
    assert first.count('class="explained"') == 2


def test_document_page_shows_the_chosen_methods_in_their_order(documents):
    page = texts.document_page(documents, entries=["lime", "exact"]).data
    assert re.findall(r"<b>(lime|exact)</b>", page) == ["lime", "exact"] * 2


def test_documents_shown_take_turns_and_include_the_first_mistakes():
    instances = pd.DataFrame({"instance": range(8), "label": [0, 0, 0, 0, 1, 1, 1, 1]})
    instances["prediction"] = [0, 1, 0, 0, 1, 0, 0, 1]
    assert texts.choose_documents(instances, count=5)["instance"].tolist() == [0, 4, 2, 1, 5]
    assert texts.choose_documents(instances.assign(label=-1), count=2)["instance"].tolist() == [0, 1]
    right = instances.assign(prediction=instances["label"])
    assert texts.choose_documents(right, count=3)["instance"].tolist() == [0, 4, 1]


def test_documents_of_an_experiment_have_their_own_scores(tmp_path):
    results = experiment.load(**build(tmp_path, "image"))
    card = {**results.dataset_card, "unit": "word", "vocabulary": ["", "<unk>", "good"], "input_shape": [16]}
    results = dataclasses.replace(results, dataset_card=card)
    picked = results.instances.iloc[[1, 2, 3]].assign(text=["first odd" + 15 * " good", 16 * "good ", "good"])
    picked.loc[3, "label"] = -1  # a text of the user's own
    one, two, own = texts.build_documents(results, picked)
    assert one.truth != one.prediction and two.truth == two.prediction and own.truth is None
    assert one.words == ["odd", *["good"] * 15] and one.unknown.tolist() == [True] + [False] * 15  # the last 16
    frame = results.scores["exact"].set_index("instance")
    assert one.scores["exact"] == pytest.approx(frame.loc[picked["instance"].iloc[0], "scores"])
    assert "misclassified" in texts.document_page([one], entries=["exact"]).data
    every = results.scores["exact"]
    own_cost = every.assign(evaluations=np.where(every["instance"] == every["instance"].iloc[1], 512, 16))
    results = dataclasses.replace(results, scores={"exact": own_cost})
    assert experiment.average_evaluations(results)["exact"] == 16
    assert experiment.average_evaluations(results, every["instance"].iloc[1])["exact"] == 512  # a text has d of its own
    page = texts.document_page([dataclasses.replace(own, scores={})]).data
    assert f"<p>predicted {own.prediction} (P" in page


# --- agreement ----------------------------------------------------------------------------------------------------


VALUES = {
    "a": [np.array([1.0, 2, 3]), np.array([1.0, -1]), np.array([1.0, 2, 3])],
    "b": [np.array([2.0, 4, 60]), np.array([-1.0, 1]), None],
    "flat": [np.ones(3), np.ones(2), np.zeros(3)],
}


def pair(frame: pd.DataFrame, one: str, other: str, statistic: str) -> pd.Series:
    rows = frame[(frame["method"] == one) & (frame["other"] == other) & (frame["statistic"] == statistic)]
    return rows.squeeze()


def test_agreements_by_hand():
    frame = method_agreement.agreements(VALUES)
    ranks = pair(frame, "a", "b", "rank correlation")  # 1 and -1
    assert ranks[["mean", "low", "high", "n"]].tolist() == pytest.approx([0, -1, 1, 2])  # no further than they go
    cosine = 190 / np.sqrt(14 * 3620)
    assert pair(frame, "a", "b", "cosine")["mean"] == pytest.approx((cosine - 1) / 2)
    assert pair(frame, "a", "flat", "rank correlation").empty  # constant: no ranks
    flat = pair(frame, "a", "flat", "cosine")
    assert flat["n"] == 2 and flat["mean"] == pytest.approx((6 / np.sqrt(14 * 3) + 0) / 2)  # zeros have no direction


def test_agreement_plots_each_pair_once_as_a_triangle():
    figure = method_agreement.agreement(method_agreement.agreements(VALUES), ["flat", "b", "a"])
    figure.draw_without_rendering()
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["flat", "b", "a"]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["flat", "b", "a"]
    cells = {tuple(np.floor(text.get_position()).astype(int)): text.get_text() for text in axes.texts}
    assert cells[(1, 2)] == "0.00"  # column b, row a, below the diagonal: rank correlation
    assert cells[(2, 1)] == f"{(190 / np.sqrt(14 * 3620) - 1) / 2:.2f}".replace("-", "−")
    assert (0, 0) not in cells and (0, 2) not in cells


def test_agreement_section_lists_every_pair_and_tolerates_a_single_method():
    page = method_agreement.agreement_section(VALUES).data
    assert "Table of pairs" in page and "0.00 (−1.00 to 1.00)" in page
    assert "no two methods have scores" in method_agreement.agreement_section({"a": VALUES["a"]}).data


# --- experiments --------------------------------------------------------------------------------------------------


def test_experiments_table_sets_ours_above_the_paper():
    ours = {"dataset": "imdb", "classes": 2, "train": 25000, "test": 25000, "mean_length": 230.53, "model": "WordCNN"}
    page = index.experiments_table([
        {**ours, "parameters": 351_002, "accuracy": "89.3 % (88.9 % to 89.7 %)", "note": "own split"},
        {"dataset": "reviews", "title": "Reviews <synthetic>", "accuracy": "100 %"},
    ]).data  # fmt: skip
    body = page.split("<tbody>")[1].split("</tbody>")[0].split("</tr>")[:-1]
    here, paper, alone = ([shown(cell) for cell in row.split("</td>")[:-1]] for row in body)
    assert here == ["imdb", "here", "2", "25,000", "25,000", "230.5", "WordCNN", "351,002", "89.3 % (88.9 % to 89.7 %)"]
    assert paper == ["", "paper", "2", "25,000", "25,000", "325.6", "WordCNN", "351,002", "90.1 %"]
    assert alone == ["Reviews &lt;synthetic&gt;", "here", *["–"] * 6, "100 %"]
    assert "imdb: own split." in page


def test_the_papers_parameters_are_those_of_table_1():
    counts = {name: entry["parameters"] for name, entry in index.PAPER.items()}
    assert counts == {"imdb": 351_002, "agnews": 11_337_988, "yahoo": 7_146_166}


# --- context ------------------------------------------------------------------------------------------------------


def test_context_pairs_differ_in_nothing_else():
    entries = {
        "l": {"method": "l_shapley", "parameters": {"order": 1}},
        "l2": {"method": "l_shapley", "parameters": {"order": 2}},
        "lp": {"method": "l_shapley", "parameters": {"order": 1, "context": "present"}},
        "cp": {"method": "c_shapley", "parameters": {"context": "present"}},
        "c": {"method": "c_shapley", "parameters": {"context": "absent"}},
        "random": {"method": "random"},
    }
    assert method_agreement.context_pairs(entries) == [("l", "lp"), ("c", "cp")]


def areas(**values: np.ndarray) -> pd.DataFrame:
    parts = [
        pd.DataFrame({"method": entry, "instance": np.arange(len(row)), "repeat": repeat, "value": row + shift})
        for entry, row in values.items()
        for repeat, shift in enumerate((-1, 1))
    ]
    return pd.concat(parts).assign(statistic="deletion_auc", x=np.nan)


def test_context_is_compared_instance_by_instance():
    random = np.random.default_rng(0)
    base = random.normal(-5, 10, 60)
    measured = areas(l=base, lp=base - 0.5 + random.normal(0, 0.1, 60), c=base, cp=base + random.normal(0, 0.1, 60))
    measured.loc[(measured["method"] == "lp") & (measured["instance"] == 7), "value"] = np.nan
    scores = {entry: [np.array([1.0, 2, 3])] * 60 for entry in ("l", "lp", "c", "cp")}
    scores["lp"] = [np.array([1.0, 3, 2])] * 60
    results = SimpleNamespace(measured={"log_odds": measured}, metrics={"log_odds": compare(measured)})
    page = method_agreement.context_section(results, scores, [("l", "lp"), ("c", "cp"), ("l", "gone")]).data
    # Paired: the spread of 10 between instances cancels.
    [first, second] = [[shown(cell) for cell in row.split("</td>")[:-1]] for row in page.split("<tr>")[2:4]]
    low, high = map(float, re.search(r"\(([\d.]+) to ([\d.]+)\)", first[3]).groups())
    assert first[:2] == ["l", "lp"] and 0.45 < low < high < 0.55
    assert [first[4], second[4]] == ["kept", "not significantly different"]
    assert [first[5], second[5]] == ["0.50 (0.50 to 0.50)", "1.00 (1.00 to 1.00)"]
    assert "both masked and kept context" in method_agreement.context_section(results, scores, []).data


# --- ground-truth words -----------------------------------------------------------------------------------------------


def scored(*rows: tuple[int, list[float]], target: int = 1) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["instance", "scores"])
    return frame.assign(scores=frame["scores"].map(lambda row: np.array(row, np.float32)), target=target, repeat=0)


def bools(text: str) -> np.ndarray:
    return np.array([letter == "x" for letter in text])


def test_f1_of_ground_truth_words_by_hand():
    rows = scored((7, [3, -9, 2, 1]), (3, [1, 2]), (5, [0.1, 0.2, 0.3, 0.4, 0.5]))
    known = {7: bools("x.x."), 3: bools("x."), 5: bools("x..x.")}
    found = ground_truth.measure_words(rows, known, dict.fromkeys(known, 1))
    # 7: the top two are words 0 and 2, as -9 is large only in size; 5: words 4 and 3, one of which is decisive
    assert found["value"].tolist() == [1.0, 0.0, 0.5]
    assert found["instance"].tolist() == [7, 3, 5] and set(found["statistic"]) == {"f1"} and found["x"].isna().all()


def test_documents_that_cannot_be_judged_are_omitted_and_counted():
    rows = scored((0, [2, 1]), (1, [2, 1]), (2, [2, 1]))
    known = {0: bools("x."), 1: bools("x."), 2: bools("..")}
    found = ground_truth.measure_words(rows, known, {0: 1, 1: 0, 2: 1})  # of 1 the model makes a 1 that is a 0
    assert found["value"].tolist()[0] == 1 and found["value"].isna().tolist() == [False, True, True]
    row = compare(found.assign(method="a")).iloc[0]
    assert (row["mean"], row["n"]) == (1, 1)


def test_equal_scores_are_ranked_by_a_seed_and_not_by_place():
    many = range(400)
    rows = scored(*((instance, [0, 0, 0, 0]) for instance in many))
    known = {instance: bools("x...") for instance in many}
    first = ground_truth.measure_words(rows, known, dict.fromkeys(many, 1))["value"]
    assert first.mean() == pytest.approx(0.25, abs=0.06)  # chance: k / d
    assert (first == ground_truth.measure_words(rows, known, dict.fromkeys(many, 1))["value"]).all()
    assert (first != ground_truth.measure_words(rows, known, dict.fromkeys(many, 1), seed=1)["value"]).any()
    backwards = ground_truth.measure_words(rows[::-1], known, dict.fromkeys(many, 1)).sort_values("instance")["value"]
    assert backwards.tolist() == first.tolist()  # whatever else is in the table


def test_decisive_words_must_fit_the_scores():
    rows = scored((4, [1, 2]))
    with pytest.raises(ShapelineError, match="instance 4 has 2 scores but 3 words; prepare"):
        ground_truth.measure_words(rows, {4: bools("x..")}, {4: 1})
    with pytest.raises(ShapelineError, match="instance 4 has 2 scores but no words"):
        ground_truth.measure_words(rows, {}, {4: 1})


STYLES = elements.styles({"exact": {}, "lime": {}, "random": {"is_control": True}}, "exact")


def f1_frame(**values: list[float]) -> pd.DataFrame:
    parts = [
        pd.DataFrame({"method": entry, "instance": range(len(row)), "value": row}) for entry, row in values.items()
    ]
    return compare(pd.concat(parts).assign(repeat=0, statistic="f1", x=np.nan))


def test_ground_truth_f1_ranks_methods_and_marks_the_best_control():
    frame = f1_frame(lime=[1.0, 1, 0.5, np.nan], exact=[1.0, 0.5, 0, np.nan], random=[0.0, 0.5, 0, np.nan])
    figure = method_agreement.ground_truth_f1(frame, STYLES)
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["lime", "exact", "random"]
    assert [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == (0, (1, 2)) or line.is_dashed()] == [
        pytest.approx(1 / 6)
    ]
    assert "higher is better" in axes.get_xlabel()
    page = method_agreement.ground_truth_section(frame, STYLES, explained=4).data
    assert "1 of 4 documents are excluded" in page and page.index("0.83 (") < page.index("0.50 (")
    assert page.count(">yes<") == 1 and page.count(">3<") == 3
    assert "not computed" in method_agreement.ground_truth_section(None, STYLES, 4).data
    assert (
        "Not available: the model misclassifies"
        in method_agreement.ground_truth_section(f1_frame(lime=[np.nan]), STYLES, 1).data
    )


# --- curves -------------------------------------------------------------------------------------------------------


def curve(*entries: str) -> pd.DataFrame:
    x = np.linspace(0, 1, 5)
    parts = [
        pd.DataFrame({"method": entry, "x": x, "mean": -x * size, "low": -x * size - 1, "high": -x * size + 1})
        for size, entry in enumerate(entries, start=1)
    ]
    return pd.concat(parts).assign(statistic="deletion", n=9)


def test_grid_gives_each_data_set_a_panel_and_all_one_legend():
    frames = {
        "IMDB": curve("lime", "exact"),
        "AG News": curve("random", "exact", "stranger"),
        "none": curve("lime")[:0],
    }
    figure = lines.log_odds_grid(frames, STYLES)
    figure.draw_without_rendering()
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["IMDB", "AG News"]
    assert [[line.get_label() for line in axes.lines] for axes in figure.axes] == [
        ["exact", "lime"],
        ["exact", "random"],
    ]
    assert figure.axes[0].lines[1].get_ydata() == pytest.approx(-np.linspace(0, 1, 5))
    band = figure.axes[0].collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((-3, 1))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["exact", "lime", "random"]
    legend = figure.legends[0].get_window_extent()
    assert all(legend.y1 < axes.get_window_extent().y0 for axes in figure.axes) and legend.x1 <= figure.bbox.x1
    assert "nats" in figure.axes[0].get_ylabel() and "%" in figure.axes[0].get_xlabel()
    assert lines.log_odds_grid({"none": curve("lime")[:0]}, STYLES) is None


def test_four_data_sets_stand_two_by_two():
    figure = lines.log_odds_grid({str(place): curve("lime") for place in range(4)}, STYLES)
    assert len(figure.axes) == 4 and figure.axes[0].get_subplotspec().get_gridspec().ncols == 2
