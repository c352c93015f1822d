"""The page in a real browser: no errors, figures drawn, the slider and the legend work, names are text, phones fit."""

import os
import shutil

import numpy as np
import pytest

import misspec as ms
from files import head
from misspec import experiments as ex
from misspec.reports import tables
from misspec.reports.optimisation import Optimisation
from misspec.reports.page import page as page_of
from misspec.reports.page import policy_page
from misspec.reports.theorems import all_bounds

NASTY = "<img src=x onerror=alert(1)> & <b>bold</b> %{x}"
TOML = (
    head(200, 2, [0.0, 0.2], grid=40, title=NASTY)
    + f"""
[[problems]]
name = "{NASTY}"
misfit = "random"

[[problems]]
name = "two dimensions"
domain = {{ box = [[0, 1], [0, 1]], grid = 8 }}
misfit = "bump"
epsilons = [0.1]

[[problems]]
kind = "trap"

[[policies]]
name = "{NASTY}"
kind = "GPUCB"

[[policies]]
kind = "ECGPUCB"

[[policies]]
kind = "PhasedUncertaintySampling"

[[policies]]
kind = "RegretBalancing"
"""
)
CHROMIUM = os.environ.get("MISSPEC_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    ex.go(TOML.encode(), folder, cores=1)
    path = folder / "index.html"
    found = ex.results(folder)
    path.write_text(page_of(found, tables.summary(found), all_bounds(found)), encoding="utf-8")
    return path.resolve().as_uri()


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        if os.environ.get("MISSPEC_REQUIRE_BROWSER"):
            pytest.fail("these tests must not skip here, and there is no Chromium: install Debian's package chromium")
        pytest.skip("there is no Chromium; Debian's package chromium brings one, or set MISSPEC_CHROMIUM")
    from playwright.sync_api import sync_playwright

    options = [*QUIET.split(), "--disable-component-update", "--disable-sync"]
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield started
        started.close()


# Drawing takes seconds: the layout is looked at on both, each control on one of them.
DESK, PHONE, BOTH = (
    pytest.mark.parametrize("page", on, indirect=True) for on in (["desk"], ["phone"], ["desk", "phone"])
)


@pytest.fixture
def page(request, browser, address):
    """The page, drawn; any message of the console, any error and any request to a network fails the test."""
    phone = request.param == "phone"
    size = {"width": 390, "height": 844} if phone else {"width": 1280, "height": 900}
    context = browser.new_context(viewport=size, is_mobile=phone, has_touch=phone)
    opened = context.new_page()
    complaints = []
    opened.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
    opened.on("pageerror", lambda e: complaints.append(str(e)))
    opened.on("dialog", lambda d: (complaints.append(f"dialog {d.message}"), d.dismiss()))
    opened.on("request", lambda r: complaints.append(r.url) if r.url.startswith("http") else None)
    opened.goto(address)
    opened.wait_for_selector("body[data-drawn='1']", timeout=60_000)
    yield opened
    assert complaints == []
    context.close()


def drawn(page):
    """Names of the figures that have been drawn and are visible."""
    return page.evaluate(
        "[...document.querySelectorAll('.js-plotly-plot')].filter(e => e.offsetHeight > 100).map(e => e.id)"
    )


@BOTH
def test_figures_are_drawn(page):
    assert set(drawn(page)) >= {"regret", "epsilon", "active", "bases", "coverage"}
    assert page.locator(".card .js-plotly-plot").count() == 4
    assert page.locator("#regret .scatterlayer .js-line").count() >= 4
    assert page.locator("tbody tr").count() == 4


@PHONE
def test_names_are_printed_as_they_are(page):
    assert page.title() == NASTY
    assert page.locator("h1").inner_text() == NASTY
    assert page.locator(".card h3").first.inner_text() == NASTY
    assert page.locator("#regret .legendtext").first.text_content() == NASTY
    assert NASTY in page.locator("tbody").inner_text()
    assert page.locator("img").count() == 0


@DESK
def test_the_slider_changes_the_picture(page):
    card = page.locator(".card").first
    assert page.locator("#round").inner_text() == "round 200"
    widths = []
    pictures = []
    for value in ("0", "12", page.locator("#slider").get_attribute("max")):
        page.locator("#slider").evaluate(
            "(e, v) => { e.value = v; e.dispatchEvent(new Event('input', {bubbles: true})); }", value
        )
        widths.append(
            page.evaluate(
                "(() => { const d = document.querySelectorAll('.card .js-plotly-plot')[0].data;"
                " return d[3].y.reduce((s, u, i) => s + u - d[2].y[i], 0) / d[3].y.length; })()"
            )
        )
        pictures.append(card.screenshot())
    assert widths[0] > 2 * max(widths[1:]) > 0  # the band shrinks
    assert len(set(pictures)) == 3
    active = "document.querySelectorAll('.card .js-plotly-plot')[2].data[9].y.filter(v => !Number.isNaN(v)).length"
    at_the_end = page.evaluate(active)
    page.locator("#slider").evaluate("(e) => { e.value = 0; e.dispatchEvent(new Event('input')); }")
    assert page.locator("#round").inner_text() == "round 1"
    assert page.evaluate(active) == 40 > at_the_end > 0  # and so does the active set


@PHONE
def test_play_moves_the_slider(page):
    page.locator("#play").click()
    page.wait_for_function("document.getElementById('slider').value > 2", timeout=20_000)
    page.locator("#play").click()
    assert "play" in page.locator("#play").inner_text()


@PHONE
def test_a_click_in_the_legend_hides_a_line(page):
    def shown():
        return page.evaluate("document.getElementById('regret').data.filter(t => t.visible !== 'legendonly').length")

    before = shown()
    page.locator("#regret .legendtoggle").nth(1).click()
    page.wait_for_function(
        "document.getElementById('regret').data.some(t => t.visible === 'legendonly')", timeout=10_000
    )
    assert shown() == before - 3  # the line and both edges of its spread


@DESK
def test_hovering_tells_the_value(page):
    page.locator("#regret").scroll_into_view_if_needed()
    place = page.locator("#regret .nsewdrag").first.bounding_box()
    page.mouse.move(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
    page.locator("#regret .hovertext").first.wait_for(timeout=10_000)
    shown = page.locator("#regret .hoverlayer").text_content().replace("\u200b", "")
    assert NASTY in shown
    assert "ECGPUCB" in shown


@DESK
def test_another_epsilon_keeps_the_round_and_the_hidden_lines(page):
    page.locator("#regret .legendtoggle").nth(1).click()
    page.wait_for_function("document.getElementById('regret').data.some(t => t.visible === 'legendonly')")
    page.locator("#slider").evaluate("(e) => { e.value = 5; e.dispatchEvent(new Event('input')); }")
    before = page.locator("#round").inner_text()
    page.select_option("#choice", label="ε = 0")
    page.wait_for_selector("body[data-drawn='0']", timeout=60_000)
    assert page.locator("#round").inner_text() == before
    hidden = "document.getElementById('regret').data.filter(t => t.visible === 'legendonly').map(t => t.legendgroup)"
    assert set(page.evaluate(hidden)) == {"ECGPUCB"}


@PHONE
def test_axes_and_bounds_can_be_switched(page):
    page.locator("#bounds").click()
    page.wait_for_function("document.getElementById('regret').layout.xaxis.type === 'log'", timeout=10_000)
    assert page.evaluate("document.getElementById('regret').data.filter(t => t.visible === true).length") >= 1
    assert "Theorem 1 for ECGPUCB" in page.locator("#regret .legend").text_content()
    page.locator("#scale").click()
    page.wait_for_function("document.getElementById('regret').layout.xaxis.type === 'linear'", timeout=10_000)


@pytest.mark.parametrize(
    ("page", "problem", "group"), [("desk", "two dimensions", 2), ("phone", "trap", 3)], indirect=["page"]
)
def test_other_problems_are_drawn_too(page, problem, group):
    page.select_option("#problem", label=problem)
    page.wait_for_selector(f"body[data-drawn='{group}']", timeout=60_000)
    assert page.locator(".card .js-plotly-plot").count() == 4
    assert "epsilon" not in drawn(page)
    before = page.locator(".card").nth(2).screenshot()
    page.locator("#slider").evaluate("(e) => { e.value = 0; e.dispatchEvent(new Event('input')); }")
    assert page.locator(".card").nth(2).screenshot() != before


@BOTH
def test_the_page_fits(page, tmp_path):
    """Nothing sticks out sideways; the picture is for people (the folder is printed when a test fails)."""
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    assert len(page.screenshot(path=tmp_path / "page.png", full_page=True)) > 50_000


# -- the demo ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The page of the demo with all its policies and candidates, in fewer rounds: as large as the real one."""
    folder = tmp_path_factory.mktemp("demo")
    ex.go(ex.demo().replace(b"horizon = 1500", b"horizon = 150").replace(b"seeds = 4", b"seeds = 1"), folder, cores=1)
    found, first = ex.results(folder), ex.contest_in(folder.with_name("contest"), 8, 2, cores=1)
    path = folder / "index.html"
    path.write_text(page_of(found, tables.summary(found), all_bounds(found), first), encoding="utf-8")
    assert path.stat().st_size < 6e6
    return path.resolve().as_uri()


@pytest.mark.parametrize("width", [360, *(pytest.param(width, marks=pytest.mark.slow) for width in (390, 430)), 1280])
def test_the_demo(browser, demo, width, tmp_path):
    """Both parts are drawn, the first one first; nothing sticks out sideways, and nothing is complained of."""
    context = browser.new_context(
        viewport={"width": width, "height": 844}, is_mobile=width < 640, has_touch=width < 640
    )
    opened = context.new_page()
    complaints = []
    opened.on("console", lambda m: complaints.append(m.text))
    opened.on("pageerror", lambda e: complaints.append(str(e)))
    opened.on("request", lambda r: complaints.append(r.url) if r.url.startswith("http") else None)
    opened.goto(demo)
    opened.wait_for_selector("body[data-drawn='2']", timeout=120_000)
    assert {"contest", "regret", "epsilon", "coverage"} <= set(drawn(opened))
    assert opened.locator("#contest .scatterlayer .js-line").count() == 9
    top = "(id) => document.getElementById(id).getBoundingClientRect().top"
    assert opened.evaluate(top, "contest") < opened.evaluate(top, "table") < opened.evaluate(top, "regret")
    held = opened.locator("#table th").nth(2).bounding_box()
    assert held["x"] + held["width"] <= width  # what a policy wins by is seen without moving the table
    assert opened.locator(".short tbody tr").count() == 3
    assert opened.locator("#table th").all_inner_texts()[:3] == ["policy", "loss of the recommendation", "bands held"]
    assert not opened.locator("#old").is_visible()
    # a phone widens its window to what sticks out, so that it is no measure; a table may be wider than what holds it
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    right = "Math.max(...[...document.querySelectorAll('.short, #contest svg, .message, .sentences')].map("
    assert opened.evaluate(right + "e => e.getBoundingClientRect().right))") <= width
    assert complaints == []
    assert len(opened.screenshot(path=tmp_path / f"{width}.png", full_page=True)) > 50_000
    context.close()


# -- contexts ----------------------------------------------------------------------------------------------------------

CONTEXTUAL = """
horizon = 30
seeds = 2
epsilons = [0.1]
[model]
kernel = { name = "DotProduct", sigma_0 = 0.0 }
norm_bound = 1.0
noise = 0.1
[[problems]]
kind = "fresh_actions"
dimension = 3
actions = 6
rounds = 40
shape = "ball"
misfit = "random"
[[policies]]
kind = "LinUCB"
[[policies]]
kind = "RegretBalancing"
"""


@pytest.fixture(scope="module")
def contextual(tmp_path_factory):
    folder = tmp_path_factory.mktemp("contextual")
    ex.go(CONTEXTUAL.encode(), folder, cores=1)
    found = ex.results(folder)
    path = folder / "index.html"
    path.write_text(page_of(found, tables.summary(found), all_bounds(found)), encoding="utf-8")
    return path.resolve().as_uri()


@pytest.mark.parametrize("width", [1280, 390])
def test_a_contextual_problem(browser, contextual, width):
    context = browser.new_context(
        viewport={"width": width, "height": 844}, is_mobile=width < 640, has_touch=width < 640
    )
    opened = context.new_page()
    complaints = []
    opened.on("console", lambda m: complaints.append(m.text))
    opened.on("pageerror", lambda e: complaints.append(str(e)))
    opened.goto(contextual)
    opened.wait_for_selector("body[data-drawn='0']", timeout=60_000)
    assert set(drawn(opened)) == {"regret", "share", "bases", "coverage"}
    assert not opened.locator("#bands").is_visible()  # there is no list to draw bands over
    # the names of problems are long; a phone widens its window to what sticks out, so that it is no measure
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    assert complaints == []
    context.close()


# -- a report of one optimisation --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def optimisation(tmp_path_factory):
    space = {"rate": ms.Float(1e-4, 1e-1, log=True), NASTY: ms.Choice(["a", NASTY, "$x$ and $y$"]), "n": ms.Int(1, 9)}
    policy = ms.Auto(ms.Space(space), minimize=True)
    for _ in range(8):
        query = policy.ask()
        policy.tell(query, (np.log10(query.params["rate"]) + 2) ** 2 + 0.1 * query.params["n"])
    path = tmp_path_factory.mktemp("report") / "index.html"
    path.write_text(policy_page(Optimisation(policy, title=NASTY)), encoding="utf-8")
    return path.resolve().as_uri()


@pytest.mark.parametrize("width", [1280, 360])
def test_a_report_of_one_optimisation(browser, optimisation, width):
    context = browser.new_context(
        viewport={"width": width, "height": 844}, is_mobile=width < 640, has_touch=width < 640
    )
    opened = context.new_page()
    complaints = []
    opened.on("console", lambda m: complaints.append(m.text))
    opened.on("pageerror", lambda e: complaints.append(str(e)))
    opened.on("request", lambda r: complaints.append(r.url) if r.url.startswith("http") else None)
    opened.goto(optimisation)
    opened.wait_for_selector("body[data-drawn='1']", timeout=60_000)
    wanted = {"best", "importance", "model"} | ({"parallel"} if width > 640 else set())
    assert set(drawn(opened)) >= wanted
    assert opened.locator(".card .js-plotly-plot").count() == 3
    assert opened.locator(".sentences li").count() == 6
    assert NASTY in opened.locator(".card h3").all_inner_texts()
    assert "$x$ and $y$" in opened.locator(".card .xtick").all_text_contents()
    fits = "[...document.querySelectorAll('.card')].every(c => c.querySelector('svg').clientWidth <= c.clientWidth)"
    assert opened.evaluate(fits)
    assert opened.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert opened.locator("img").count() == 0
    assert complaints == []
    context.close()
