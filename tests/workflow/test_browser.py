"""Pages in an installed Chromium: every control works, no requests, no overflow, labels and contrast."""

import functools
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import shapeline
from shapeline.report import elements, rendering

pytestmark = pytest.mark.xdist_group("tiny")  # one run of the tiny configuration serves them all
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
AXE = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed").Axe
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = os.environ.get("SHAPELINE_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"], "resultTypes": ["violations"]}
EXPLORED = ("table", "image", "text")
PAGES = (*EXPLORED, "notebook", "comparison", "tiny", "index")
WIDTHS = {"telephone": 390, "laptop": 1280}


def opinion(texts: list[str]) -> np.ndarray:
    return 1 / (1 + np.exp(-np.array([text.count("great") - 2 * text.count("bad") for text in texts], float)))


def explain_table():
    random = np.random.default_rng(0)
    names = ["age", "<script>alert(1)</script>", "Größe 木", *(f"column {place}" for place in range(12))]
    rows = random.normal(size=(60, len(names)))
    model = LogisticRegression().fit(rows, rows[:, 0] + 0.3 * rows[:, 1] > 0)
    given = {"background": rows[:10], "feature_names": names}
    return shapeline.compare(model, rows[:20], ["kernel_shap", "gp_shapley", "occlusion"], **given)


def explain_images():
    random = np.random.default_rng(0)

    def model(rows):
        return rows.reshape(len(rows), -1).mean(1)

    return shapeline.explain(
        model, random.random((3, 1, 8, 8)), "sample_shapley", features={"kind": "patch", "size": 2}
    )


@pytest.fixture(scope="module")
def pages(tiny, tmp_path_factory) -> dict[str, str]:
    """The addresses of the pages, by their names."""
    if BROWSER is None:
        pytest.skip("no Chromium is installed; name one by SHAPELINE_BROWSER")
    folder = tmp_path_factory.mktemp("pages")
    compared, images = explain_table(), explain_images()
    texts = shapeline.explain(
        opinion, ["a great <b> film", "bad, not great"] * 3, "kernel_shap", class_names=["-", "+"]
    )
    compared.explanations["gp_shapley"].to_html(folder / "table.html")
    images.to_html(folder / "image.html")
    shapeline.explain(lambda rows: rows[:, 0, 0], np.eye(90)[:2, :, None], "occlusion").to_html(folder / "series.html")
    texts.to_html(folder / "text.html")
    shapeline.shapley_values(lambda masks: masks @ np.arange(1.0, 17.0), 16).to_html(folder / "game.html")
    compared.to_html(folder / "comparison.html")
    both = f"<h1>Notebook</h1>{compared._repr_html_()}{texts._repr_html_()}"
    (folder / "notebook.html").write_text(rendering.page("Notebook", both), encoding="utf-8")
    values = ["−3", "−0.25", "0", "−5", *map(str, range(1, 10))]
    numbers = pd.DataFrame({"name": [f"row {place}" for place in range(13)], "value": values})
    many = pd.DataFrame([[f"method_{place}_of_a_long_name", *["−1.234 (0.123 to 2.345)"] * 17] for place in range(12)])
    for name, frame in (("numbers", numbers), ("wide", many.rename(columns=lambda place: f"column {place}"))):
        body = f"<h1>Table</h1>{elements.table(frame, name.capitalize()).data}"
        (folder / f"{name}.html").write_text(rendering.page(name, body), encoding="utf-8")
    own = {name: folder / f"{name}.html" for name in (*PAGES[:5], "numbers", "wide", "series", "game")}
    return {name: file.as_uri() for name, file in own.items()} | {
        name: (tiny.path / f"results/reports/{name}.html").as_uri() for name in PAGES[5:]
    }


@pytest.fixture(scope="module")
def browser(pages):
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def tabs(browser):
    """A function that returns a tab, with scripts or without, which all tests share: a new one takes a second."""

    @functools.cache
    def tab(java_script_enabled: bool):
        opened = browser.new_context(java_script_enabled=java_script_enabled).new_page()
        opened.set_default_timeout(20_000)
        return opened

    return tab


@pytest.fixture
def visit(tabs, pages):
    """A function that opens a page; at the end no page has reported an error or requested anything but itself."""
    used, problems = {}, []  # the address by tab

    def listen(tab):
        listeners = {
            "console": lambda message: message.type in ("error", "warning") and problems.append(message.text),
            "pageerror": lambda error: problems.append(str(error)),
            "request": lambda request: is_foreign(request.url, used[tab]) and problems.append(request.url),
        }
        for event, listener in listeners.items():
            tab.on(event, listener)
        return listeners

    def to(name: str, address: str = "", width: int = 1280, color_scheme: str = "light", java_script_enabled=True):
        tab = tabs(java_script_enabled)
        tab.goto("about:blank")  # an address that differs after its # alone would load nothing
        if tab not in used:
            heard.append((tab, listen(tab)))
        used[tab] = pages[name]
        tab.set_viewport_size({"width": width, "height": 900})
        tab.emulate_media(media="screen", color_scheme=color_scheme)
        tab.mouse.move(0, 0)
        tab.goto(pages[name] + address)
        return tab

    heard = []
    yield to
    for tab, listeners in heard:
        tab.evaluate("0")  # what the page has reported by now is heard
        for event, listener in listeners.items():
            tab.remove_listener(event, listener)
    assert not problems


def is_foreign(url: str, own: str) -> bool:
    return not url.startswith(("data:", "blob:")) and url.partition("#")[0] != own


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_and_is_accessible_in_both_schemes(name, visit):
    folder = os.environ.get("SHAPELINE_SCREENSHOTS")
    for (size, width), scheme in zip(WIDTHS.items(), ("dark", "light"), strict=True):
        page = visit(name, width=width, color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        found = AXE().run(page, options=RULES).response["violations"]
        told = {one["id"]: [node["html"][:120] for node in one["nodes"][:3]] for one in found}
        if folder:
            page.screenshot(path=Path(folder, f"{name}_{size}_{scheme}.png"), full_page=name != "index")
        assert not told, f"{name}, {size}, {scheme}: {told}"


def facts(page) -> dict[str, str]:
    return dict(
        zip(
            page.locator(".explorer-facts dt").all_inner_texts(),
            page.locator(".explorer-facts dd").all_inner_texts(),
            strict=True,
        )
    )


@pytest.mark.parametrize("name", EXPLORED)
def test_instances_are_stepped_through_by_buttons_keys_and_address(name, visit):
    page = visit(name)
    last = page.locator(".explorer-steps option").count() - 1
    instance = page.get_by_label("Instance", exact=True)
    previous, following = page.get_by_label("Previous instance"), page.get_by_label("Next instance")
    assert facts(page)["instance"] == "0" and previous.is_disabled()
    following.click()
    assert facts(page)["instance"] == "1" and "#instance=1&" in page.url
    for key, place in (("ArrowRight", 2), ("ArrowLeft", 1), ("End", last), ("ArrowRight", last), ("Home", 0)):
        page.keyboard.press(key)
        assert facts(page)["instance"] == str(place), key
    assert f"1 of {last + 1}" in page.get_by_role("status").inner_text()
    instance.select_option(index=2)
    assert facts(page)["instance"] == "2"
    page.evaluate("location.hash = '#instance=1'")
    page.wait_for_function("document.querySelector('.explorer-facts dd').textContent === '1'")
    again = visit(name, "#instance=2&method=nothing")
    assert facts(again)["instance"] == "2" and again.locator(".explorer-panel").count() >= 1


def test_instances_are_found_by_name_class_and_value(visit):
    page = visit("table")
    finder, said = page.get_by_label("Find an instance by name or text"), page.locator(".explorer-matches")
    finder.fill("3")
    assert facts(page)["instance"] == "3" and said.inner_text().startswith("match 1 of ")  # before 13 and values with 3
    finder.press("ArrowLeft")
    assert facts(page)["instance"] == "3"  # moves the cursor in the field and not the instance
    finder.fill("19")
    assert facts(page)["instance"] == "19"
    finder.fill("age = -")  # a minus sign as it is typed
    first = facts(page)["instance"]
    finder.press("Enter")
    assert facts(page)["instance"] != first and said.inner_text().startswith("match 2 of ")
    finder.fill("77")
    assert said.inner_text().startswith(("no match", "no instance 77"))
    text = visit("text")
    text.get_by_label("Find an instance by name or text").fill("not great")
    assert facts(text)["instance"] == "1"


def test_a_game_has_players_and_no_class(visit):
    page = visit("game")
    assert facts(page) == {"output": "value", "value of all players": "136", "value of no players": "0"}
    panel = page.locator(".explorer-panels").inner_text()
    assert page.locator(".explorer-panels th").first.inner_text() == "player"
    assert "other players" in panel and "feature" not in panel
    assert page.get_by_role("button", name="All 16 players").count() == 1


def test_bars_waterfall_intervals_and_all_features_of_a_table(visit):
    page = visit("table")
    chart, intervals = page.get_by_label("Chart"), page.get_by_label("95 % intervals")
    assert page.locator(".explorer-interval").count() == 12 and page.locator("tbody tr").count() >= 13
    intervals.uncheck()
    assert page.locator(".explorer-interval").count() == 0 and "±" not in page.locator(".explorer-panels").inner_text()
    intervals.check()
    page.get_by_role("button", name="All 15 features").click()
    scores = page.locator(".explorer-panel .explorer-number").all_inner_texts()[1:]
    numbers = [float(re.sub(r"±.*", "", score).replace("−", "-").replace("\n", "")) for score in scores]
    assert len(numbers) == 15 and np.all(np.diff(np.abs(numbers)) <= 1e-3)
    assert "<script>alert(1)</script>" in page.locator(".explorer-panels").inner_text()
    chart.select_option("waterfall")
    bars = page.locator(".explorer-bar i:not(.explorer-interval):not(.explorer-end)")
    ends = bars.evaluate_all("all => all.map(one => [parseFloat(one.style.left), parseFloat(one.style.width)])")
    signs = bars.evaluate_all("all => all.map(one => one.className === 'explorer-for')")
    for (left, width), positive, (low, wide), rising in zip(ends, signs, ends[1:], signs[1:], strict=False):
        start = left if positive else left + width  # of a row is the end of the one below
        assert abs(start - (low + wide if rising else low)) < 0.05


def test_methods_stand_side_by_side_on_one_scale(visit):
    page = visit("comparison")
    page.get_by_role("checkbox", name="kernel_shap", exact=True).check()
    page.get_by_role("checkbox", name="random", exact=True).check()
    names = page.locator(".explorer-panel h4").all_inner_texts()
    assert {"kernel_shap", "random"} <= set(names) and "method=kernel_shap" in page.url and "method=random" in page.url
    rows = [panel.locator("th[scope=row]").all_inner_texts() for panel in page.locator(".explorer-panel").all()]
    assert len(rows) == len(names) and all(one == rows[0] for one in rows)
    widths = "all => all.map(one => parseFloat(one.style.width))"
    bars = page.locator(".explorer-bar i[style*=width]:not(.explorer-interval)")
    shared = np.array(bars.evaluate_all(widths))
    page.get_by_label("Same scale for all methods").uncheck()
    own = np.array(bars.evaluate_all(widths))
    assert (own >= shared - 0.01).all() and (own > shared + 1).any()
    page.get_by_role("checkbox", name="random", exact=True).uncheck()
    assert "random" not in page.locator(".explorer-panel h4").all_inner_texts()
    linked = visit("comparison", "#instance=3&method=random")
    assert linked.locator(".explorer-panel h4").all_inner_texts() == ["random"] and facts(linked)["instance"] == "3"
    linked.evaluate("document.dispatchEvent(new CustomEvent('shapeline:method', {detail: 'occlusion'}))")
    assert linked.locator(".explorer-panel h4").all_inner_texts() == ["occlusion", "random"]


def test_an_image_is_painted_and_read_under_the_pointer(visit):
    page = visit("image")
    painted = (
        "canvas => new Set(canvas.getContext('2d', {willReadFrequently: true}).getImageData(0, 0, 8, 8).data).size"
    )
    page.wait_for_function(f"({painted})(document.querySelector('canvas')) > 3")
    canvas = page.locator("canvas")
    assert "Scores by sample_shapley over the input; largest:" in canvas.get_attribute("aria-label")
    canvas.hover()
    assert re.search(r"[+−]\d", page.locator(".explorer-tiles .explorer-quiet").first.inner_text())
    for image in visit("series").locator(".explorer-image").all():  # of 90 cells, a quarter of its height wide
        box = image.bounding_box()
        assert 4 * box["width"] == pytest.approx(box["height"], rel=0.05) and box["height"] < 460


def test_words_are_coloured_by_their_sign(visit):
    page = visit("text", "#instance=1")
    kinds = dict(
        zip(
            page.locator(".explorer-words span").all_inner_texts(),
            page.locator(".explorer-words span").evaluate_all("all => all.map(one => one.className)"),
            strict=True,
        )
    )
    assert kinds["bad,"] != kinds["great"] and {kinds["bad,"], kinds["great"]} <= {
        "explorer-word-for",
        "explorer-word-against",
    }


def test_explorers_of_one_page_do_not_collide(visit):
    page = visit("notebook")
    first, second = page.locator(".shapeline-explorer").all()
    second.get_by_label("Next instance").click()
    assert first.locator(".explorer-facts dd").first.inner_text() == "0"
    assert second.locator(".explorer-facts dd").first.inner_text() == "1" and "#" not in page.url


@pytest.mark.parametrize("name", ["table", "tiny"])
def test_without_scripts_static_figures_stand_in_place(name, visit):
    page = visit(name, java_script_enabled=False)
    assert page.locator(".explorer-static svg, .explorer-static img").first.is_visible()
    assert page.locator(".explorer-live").count() == 0 and page.locator("noscript p").first.is_visible()
    live = visit(name)
    assert not live.locator(".explorer-static").first.is_visible()
    live.emulate_media(media="print")
    assert (
        live.locator(".explorer-panels").first.is_visible() and not live.locator(".explorer-steps").first.is_visible()
    )


def test_the_address_opens_an_instance_of_a_report(visit):
    ids = visit("tiny").evaluate(
        "JSON.parse(document.querySelector('.explorer-data').textContent).instances.map(i => i.id)"
    )
    page = visit("tiny", f"#instance={ids[5]}&method=kernel")
    assert facts(page)["instance"] == ids[5] and page.locator(".explorer-panel h4").all_inner_texts() == [
        "Input",
        "kernel",
    ]
    assert page.locator(".shapeline-explorer").evaluate("one => Math.abs(one.getBoundingClientRect().top)") < 450


def test_tables_of_a_report_are_sorted(visit):
    page = visit("tiny")
    table = page.locator("table:has(button.sort)").first
    column = table.locator("thead th").all_inner_texts()
    table.locator("button.sort").nth(0).click()
    rows = table.locator("tbody tr td:first-child").all_inner_texts()
    assert rows == sorted(rows) and len(column) > 1
    assert table.locator("th").nth(0).get_attribute("aria-sort") == "ascending"


def test_minus_signs_sort_and_filter_as_typed_and_an_empty_result_is_reported(visit):
    page = visit("numbers")
    head = page.locator("th:nth-child(2)")
    page.locator("button.sort").nth(1).click()
    column = page.locator("tbody td:nth-child(2)").all_inner_texts()
    assert [float(text.replace("−", "-")) for text in column] == [-5, -3, -0.25, 0, *range(1, 10)]
    assert head.get_attribute("aria-sort") == "ascending"
    page.get_by_label("Filter the rows of Numbers").fill("-0.25")
    assert page.locator("tbody tr:visible").all_inner_texts() == ["row 1\t−0.25"]
    assert page.locator(".matches").inner_text() == "1 of 13 rows"
    page.get_by_label("Filter the rows of Numbers").fill("absent")
    assert (
        page.locator("tbody tr:visible").count() == 0 and "No row has “absent”" in page.locator(".matches").inner_text()
    )


@pytest.mark.parametrize("name", ["tiny", "index", "wide", "comparison"])
def test_nothing_is_cut_on_a_printed_sheet(name, visit):
    page = visit(name, width=703)  # A4 less its margins
    page.emulate_media(media="print")
    page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    cut = page.evaluate(
        "[...document.querySelectorAll('table, figure svg, figure img')].filter((one) => one.offsetParent !== null ||"
        " one.ownerSVGElement === null).map((one) => [one.getBoundingClientRect().right, one.textContent.slice(0, 60)])"
        ".filter(([right]) => right > 704)"
    )
    assert not cut


def test_links_of_a_report_are_readable_and_lead_to_the_instances(visit):
    page = visit("tiny")
    links = page.locator("nav a").evaluate_all("all => all.map((one) => [one.textContent, one.getAttribute('href')])")
    assert ["Instances", "#instances"] in links and not [link for _, link in links if link.startswith("#section")]
    page.locator("nav a", has_text="Instances").click()
    assert page.locator("#instances").evaluate("one => one.getBoundingClientRect().top") < 200


def test_the_overview_filters_by_criterion_and_sorts(visit):
    page = visit("index")
    shown = "() => [...document.querySelectorAll('table.glance thead th')].filter((one) => !one.hidden).length"
    every = page.evaluate(shown)
    names = page.locator(".filters select").nth(1).locator("option").all_inner_texts()
    page.locator(".filters select").nth(1).select_option(names[1])
    assert 1 < page.evaluate(shown) <= every
    page.locator(".filters select").nth(1).select_option("")
    assert page.evaluate(shown) == every
    page.locator("table.glance thead button").nth(1).press("Enter")
    column = page.locator("table.glance tbody tr td:nth-child(2)").all_inner_texts()
    values = [float(re.sub("[^0-9.−-]", "", text).replace("−", "-")) for text in column if text != "–"]
    assert values == sorted(values) and column[-1] in ("–", column[len(values) - 1])


def test_a_method_is_highlighted_in_all_figures_and_tables_and_shown_in_the_explorer(visit):
    page = visit("tiny")
    button = page.locator(".methods button").first
    name = button.inner_text()
    button.press("Enter")
    assert button.get_attribute("aria-pressed") == "true"
    on = page.evaluate("() => [...document.querySelectorAll('.on')].map((one) => one.dataset.method)")
    assert len(on) > 3 and set(on) == {name}
    assert page.locator("tr.on").count() > 0
    checked = page.evaluate(
        "(name) => [...document.querySelectorAll('.shapeline-explorer label')].some((one) =>"
        " one.textContent.includes(name) && one.querySelector('input')?.checked)",
        name,
    )
    assert checked
    button.click()
    assert page.locator(".on").count() == 0
