"""The gallery repeats its pages; the committed one is small and names existing experiments."""

import re

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from PIL import Image

from shapeline.report import elements
from shapeline.report.elements import HTML
from shapeline.report.sections import common
from tools import gallery

MEANS = "digits, masking: means against evaluations and seconds per instance"


def write(folder, name, title, *, advice, facts, claims=(), points=None, seconds=()):
    """Write a page with the elements of report pages."""
    lines = "".join(f'<p class="{kind}">{text}</p>' for kind, text in advice.items())
    card = HTML(f'<div class="card">{lines}<details><p><b>Within the budget.</b> And why.</p></details></div>')
    parts = [common.top(title, [], ["One more."], facts, card)]
    parts += [elements.table(pd.DataFrame({"method": ["a", "b"][: len(seconds)], "seconds, total": seconds}))]
    if claims:
        parts += [elements.table(pd.DataFrame(claims, columns=["claim", "found here", "verdict"]), text=["claim"])]
    if points is not None:
        caption = "Faithfulness by masking. Means; lower left is better."
        parts += [elements.figure(Figure(), MEANS, caption, numbers=points)]
    (folder / f"{name}.html").write_text(elements.join_parts(*parts).data, encoding="utf-8")


@pytest.fixture
def folder(tmp_path, root, monkeypatch):
    (tmp_path / "docs").mkdir()
    for file in ("config.yaml", "config.paper.yaml"):
        (tmp_path / file).write_text((root / file).read_text())
    monkeypatch.chdir(tmp_path)
    points = pd.DataFrame({"method": ["a", "b"], "evaluations": [64, 3], "seconds": [1, 1.0], "mean": [2.0, 1]})
    claims = [("A < B", "−1.5", "holds"), ("C", "0", "⚠ fails")]
    facts = {
        "test accuracy (95 % CI 84 % to 94 %)": "90 %",
        "instances explained": "200",
        "features (d)": "9",
        "evaluations": "1,234",
    }
    cost = "2 gradients (counted as 6 evaluations), 2 ms per instance"
    advice = {"need": "Finds what the model relies on", "method": "⚠ ★ own_a", "cost": cost}
    given = {"advice": advice, "facts": facts, "claims": claims, "seconds": ["1,000", "3.7e−1"]}
    write(tmp_path, "imdb", "Reviews | long", points=points.assign(low=0.5, high=2.5), **given)
    write(tmp_path, "mine", "Mine", advice={"": "No recommendation."}, facts={"labelled rows": "9"})
    (tmp_path / "index.html").write_text("no page of an experiment")
    return tmp_path


def test_a_gallery_is_generated_from_pages(folder, capsys):
    assert gallery.main([str(folder)]) == 0
    text = (folder / "docs/gallery.md").read_text()
    row = next(line for line in text.splitlines() if "](#imdb)" in line)
    assert row == (
        r"| [`imdb`](#imdb), `config.paper.yaml` | 200 of 1,000, d = 9; model 90 % | 1,234 evaluations, 1,000 s "
        r"| Finds what the model relies on: own\_a (2 gradients, 2 ms) |"
    )
    assert "| `mine`: Mine, a file outside the repository | –, d = – | no model |" in text
    assert "## Reviews \\| long\n" in text and "](images/gallery/imdb.png)" in text
    records = pd.read_csv(gallery.RECORDS)
    assert records.to_numpy().tolist() == [["imdb", "A < B", "−1.5", "holds"], ["imdb", "C", "0", "fails"]]
    assert text.index("](#imdb)") < text.index("`mine`")
    assert (folder / "docs/images/gallery/imdb.png").stat().st_size < gallery.LARGEST
    assert capsys.readouterr().out.startswith("docs/gallery.md: 2 runs, 1 figures, ")


def test_the_figure_of_a_subset_names_it(folder):
    page = folder / "imdb.html"
    told = "subset: train_some.csv, 40 rows, in place of train.csv"
    page.write_text(page.read_text().replace("<metadata>", f"<desc>{told}</desc><metadata>"))
    assert gallery.read(page).points[1] == f"Faithfulness by masking\n{told}. Means; lower left is better."


def test_a_run_whose_page_is_gone_keeps_its_entry_and_one_whose_page_is_new_gets_another(folder, capsys):
    assert gallery.main([str(folder)]) == 0
    before, image = (folder / "docs/gallery.md").read_text(), folder / "docs/images/gallery/imdb.png"
    kept, content = before[before.index('<a id="imdb">') :], image.read_bytes()
    (folder / "imdb.html").unlink()
    write(folder, "mine", "Mine again", advice={"": "No recommendation."}, facts={"labelled rows": "9"})
    write(folder, "cancer", "Cells", advice={"": "No recommendation."}, facts={"labelled rows": "9"})
    assert gallery.main([str(folder)]) == 0
    text = (folder / "docs/gallery.md").read_text()
    assert kept in text and image.read_bytes() == content and text.count("imdb.png") == 1
    rows = [found[1] or found[2] for found in gallery.ROW.finditer(text)]
    assert rows == ["cancer", "imdb", "mine"] and "| `mine`: Mine again," in text
    assert [*pd.read_csv(gallery.RECORDS)["run"]] == ["imdb", "imdb"]  # the claims of a run without a page stay
    assert capsys.readouterr().out.endswith(f"3 runs, 1 figures, {len(content):,} bytes\n")


def test_the_figure_of_claims_has_every_comparison_with_an_interval(folder):
    """Leads in nats and in F1, a ratio, a share and a count: the intervals are those of the texts."""
    claims = [
        ("On MNIST A is before B and C", "ahead of: b −0.23 (−0.44 to −0.03); c 2.75 (2.46 to 3.07)", "⚠ fails"),
        ("A has the highest F1", "ahead of: b 0.04 (−0.02 to 0.10), on a subset: x.csv, 40 rows", "undecided"),
        ("A takes ten times less time", "7.10 times (6.94 to 7.26)", "⚠ fails"),
        ("The network finds more than 99 % of them", "99.9 % (99.6 % to > 99.9 %) on 2,000", "holds"),
        ("It has 351,002 parameters", "351,002", "holds"),
    ]
    write(folder, "own", "Own", advice={"": "No recommendation."}, facts={"labelled rows": "9"}, claims=claims)
    assert gallery.main([str(folder)]) == 0
    found = gallery.list_comparisons(pd.read_csv(gallery.RECORDS))
    numbers = found[["mean", "low", "high", "claimed"]].to_numpy().tolist()
    assert numbers == [
        [-0.23, -0.44, -0.03, 0],
        [2.75, 2.46, 3.07, 0],
        [0.04, -0.02, 0.1, 0],
        [7.1, 6.94, 7.26, 10],
        [99.9, 99.6, 99.9, 99],
    ]
    assert [*found["verdict"]] == ["fails", "holds", "undecided", "fails", "holds"]
    assert [*found["panel"].map(gallery.PANELS.index)] == [0, 0, 1, 2, 3]
    assert found["text"][2] == "own: A has the highest F1 on some of the rows (b)" and "(c)" in found["text"][1]
    assert 5_000 < gallery.CLAIMS.stat().st_size < gallery.LARGEST
    pixels = np.asarray(Image.open(gallery.CLAIMS).convert("RGB"), int)
    for _, colour in gallery.LOOKS.values():
        wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
        assert (abs(pixels - wanted).max(2) < 24).sum() > 5, colour


def test_what_is_no_page_or_too_large_is_one_line(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(gallery, "LARGEST", 10)
    assert gallery.main([str(folder)]) == 1 and "larger than a repository should hold" in capsys.readouterr().err
    (folder / "other.html").write_text("<h1>Something else</h1>")
    assert gallery.main([str(folder)]) == 1 and "other.html: no page of an experiment" in capsys.readouterr().err
    assert gallery.main([]) == 1 and "no pages" in capsys.readouterr().err


def test_the_committed_gallery_is_small_and_names_the_files_of_its_experiments(root, monkeypatch):
    monkeypatch.chdir(root)
    text, known = gallery.PAGE.read_text(), gallery.configured()
    shown = {name for name in re.findall(r"!\[.*?\]\(images/gallery/(\w+)\.png\)", text)}
    sizes = {file.stem: file.stat().st_size for file in gallery.FIGURES.iterdir()}
    assert set(sizes) == shown and max(sizes.values()) <= gallery.LARGEST
    assert sum(sizes.values()) <= gallery.LARGEST_OF_ALL
    rows = {found[1] or found[2]: found[0] for found in gallery.ROW.finditer(text)}
    assert len(rows) > 20
    for name, row in rows.items():
        file = re.search(r"`([\w/.]+\.yaml)`", row)
        assert known[name][0] == (file[1] if file else gallery.DEFAULT), name
