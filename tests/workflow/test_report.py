"""The results of a run for others: one archive of all pages, and every figure with its numbers."""

import dataclasses
import re
import zipfile

import pandas as pd
import pytest

from benchmarks import accuracy_games
from shapeline.statistics import accuracy
from tests.workflow.conftest import TINY
from tools import gallery

pytestmark = pytest.mark.xdist_group("tiny")  # one run of the tiny configuration serves them all


def test_the_archive_of_a_run_has_every_page_under_its_name(tiny):
    archive = tiny.path / "report.zip"
    try:
        tiny.snakemake("--report", archive.name)
        with zipfile.ZipFile(archive) as packed:
            names = packed.namelist()
            opened = packed.read("report/report.html").decode()
            pages = {name.split("/")[-1]: packed.read(name).decode() for name in names if "/data/" in name}
    finally:
        archive.unlink(missing_ok=True)
    assert set(pages) == {"index.html", "theory.html", "tiny.html"}
    for name, page in pages.items():
        assert page == (tiny.path / "results/reports" / name).read_text()
    labels = dict(re.findall(r'"results/reports/(\w+)\.html": \{[^{}]*"labels": \{"page": "([^"]*)"\}', opened))
    assert labels == {"index": "recommended methods", "theory": "statements of the papers", "tiny": "tiny"}
    assert "This run explains tiny." in opened and "Recommendation, explanations, comparison" in opened
    for category in ("Overview", "Theory", "Experiments"):
        assert f'"{category}": ' in opened


def test_the_page_of_accuracy_is_rendered_on_request(tiny):
    assert not {rule for rule, _ in tiny.pending()}
    asked = tiny.pending("--config", "accuracy=1")
    assert {rule for rule, _ in asked} == {"measure_accuracy", "render_accuracy", "render_index"}


def test_the_page_of_accuracy_is_rendered_with_its_figures(fresh):
    kept = [game for game in accuracy.read() if game.name in ("cancer, logistic", "diabetes", "wine")]
    one = [dataclasses.replace(game, exact=game.exact[:1], stored=game.stored[:1]) for game in kept]
    accuracy_games.write(one, fresh.path / "workflow/shapeline/statistics/games.parquet")
    fresh.configure(TINY)
    # A run ends with its last job: it does not wait until this hour is over.
    words = ("--cores", "1", "--max-jobs-per-timespan", "300/1h", "--config", "accuracy=1")
    fresh.snakemake("results/reports/accuracy.html", *words, timeout=300)
    page = (fresh.path / "results/reports/accuracy.html").read_text()
    assert "Accuracy: estimators of Shapley values at equal budgets" in page and "gp_shapley" in page
    assert all(game.name in page for game in kept) and "boosted trees" not in page.split("<script")[0]
    written = [path for path in (fresh.path / "results/reports/accuracy_files").iterdir() if path.suffix == ".svg"]
    assert len(written) == len(re.findall("<img|<svg role", page)) > 1


def test_figures_and_their_numbers_lie_beside_every_page(tiny):
    reports = tiny.path / "results/reports"
    for name in ("index", "theory", "tiny"):
        figures = len(re.findall("<img|<svg role", (reports / f"{name}.html").read_text()))
        written = [path.name for path in (reports / f"{name}_files").iterdir() if path.suffix in (".svg", ".png")]
        assert len(written) == figures > (-1 if name == "index" else 1), name
        links = re.findall(rf'<a href="{name}_files/([^"]*)">', (reports / f"{name}.html").read_text())
        assert set(written) >= {link for link in links if not link.endswith(".csv")} and (links or name == "index"), (
            name
        )
        assert (reports / f"{name}.html").stat().st_size < 3_000_000, name
    assert gallery.read(reports / "tiny.html").advice.startswith("Closest to the exact values: ")
    [costs] = (reports / "tiny_files").glob("*_tiny_error_means_against_evaluations*.csv")
    assert costs.with_suffix(".svg").is_file()
    numbers = pd.read_csv(costs).set_index("method")
    compared = pd.read_parquet(tiny.path / "results/tiny/metrics/compared.parquet")
    compared = compared[compared["statistic"] == "rmse"].set_index("method")
    for label in ("kernel", "occlusion"):
        assert numbers.loc[label, "mean"] == pytest.approx(compared.loc[label, "mean"], rel=1e-5)
        assert numbers.loc[label, "seconds"] > 0 and numbers.loc[label, "evaluations"] > 0
