"""The explorer in a real browser: what is drawn when something is dragged, what can be taken away, what goes wrong."""

import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import sgdlimit as sl

for needed in ("starlette", "uvicorn", "plotly"):
    pytest.importorskip(needed, reason=f"the explorer needs {needed}")
playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine"),
]
PATIENCE = 90_000
"""Milliseconds: the first curve of a kind is compiled."""


class Server:
    def __init__(self, *options):
        command = [sys.executable, "-c", "from sgdlimit.cli import main; main()", "explore", "--no-browser", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        found = re.search(r"http\S+", self.process.stdout.readline())
        assert found is not None
        self.address = found[0]

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            assert self.process.wait(timeout=20) == 0


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    server.end()


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(browser, server):
    """Open the page, watching what it asks for and what goes wrong."""
    contexts = []

    def opened(state="", wait="good", address=None, **options):
        context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.asked, page.errors = [], []  # type: ignore[attr-defined]
        page.on("request", lambda request: page.asked.append(request.url))
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.goto((address or server.address) + (f"#{state}" if state else ""))
        if wait:
            page.wait_for_selector(f'[data-state="{wait}"]')
        return page

    yield opened
    for context in contexts:
        for page in context.pages:
            assert page.errors == []
        context.close()


def traces(page):
    """Names and last values of what is drawn."""
    return dict(
        page.evaluate("document.getElementById('curves-plot').data.filter(t => t.name).map(t => [t.name, t.y.at(-1)])")
    )


def test_load_draws_curves_kernels_and_the_law_of_the_weights(visit, server):
    page = visit()
    found = traces(page)
    assert list(found) == ["train error, refined", "test error, refined"]
    assert 0.05 < found["train error, refined"] < found["test error, refined"] < 0.5
    assert page.evaluate("document.getElementById('kernel-plot').data[0].type") == "heatmap"
    assert page.evaluate("document.getElementById('weights-plot').data.length") == 3
    assert "refined to 2 %" in page.inner_text("#state")
    assert "train error from 0.5 to" in page.get_attribute("#curves-plot", "aria-label")
    here = urlsplit(server.address).netloc
    assert page.asked
    assert {urlsplit(url).netloc for url in page.asked if not url.startswith(("data:", "blob:"))} == {here}


def test_dragging_a_slider_moves_the_curve_first_roughly_then_well(visit):
    page = visit()
    before = traces(page)["test error, refined"]
    slider = page.locator("#slide-sigma")
    box = slider.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + box["height"] / 2)
    page.mouse.down()
    for share in (0.4, 0.6, 0.8, 1.0):
        page.mouse.move(box["x"] + box["width"] * share - 4, box["y"] + box["height"] / 2)
    page.mouse.up()
    page.wait_for_selector('[data-state="rough"], [data-state="working"]')
    page.wait_for_selector('[data-state="good"]')
    assert traces(page)["test error, refined"] > before + 0.05
    assert "sigma=" in page.url
    assert f"sigma={page.input_value('#field-sigma')}" in page.url


def test_the_keyboard_reaches_everything(visit):
    page = visit()
    page.focus("#slide-tau")
    page.keyboard.press("ArrowRight")
    assert "tau=0.52" in page.url
    seen = set()
    page.focus("body")
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert {"run", "python", "toml", "link", "field-loss", "slide-delta", "field-algorithm", "field-dim"} <= seen
    nameless = page.evaluate(
        "[...document.querySelectorAll('button, input, select, summary, textarea')]"
        ".filter(e => !(e.labels?.length || e.ariaLabel || e.getAttribute('aria-labelledby') || e.textContent.trim()))"
        ".map(e => e.outerHTML)"
    )
    assert nameless == []


def test_choices_that_do_not_go_together_are_put_right(visit):
    page = visit(wait="good")
    page.select_option("#field-labels", "linear")
    assert page.input_value("#field-loss") == "square"
    page.select_option("#field-data", "mixture")
    assert page.input_value("#field-labels") == "classes"
    page.select_option("#field-loss", "two_layer")
    assert page.is_visible("#field-width")
    assert not page.is_visible("#field-teacher_width")


def test_runs_stream_in_and_can_be_stopped(visit):
    page = visit("dim=400&trials=3&batch=1")
    page.click("#run")
    page.locator("#runs-words", has_text="3 of 3 runs").wait_for()
    page.locator("#run", has_text="Simulate").wait_for()
    found = traces(page)
    assert abs(found["train error, runs"] - found["train error, refined"]) < 0.05
    assert "±" in page.locator("#values tr td").nth(1).inner_text()
    page.fill("#field-dim", "1500")
    page.fill("#field-trials", "50")
    assert "train error, runs" not in traces(page)
    page.click("#run")
    page.locator("#runs-words", has_text="Circles").wait_for()
    page.click("#run")
    assert "Stopped" in page.inner_text("#runs-words")
    page.locator("#slide-tau").press("ArrowRight")
    page.wait_for_selector('[data-state="good"]')  # the worker is free again


def test_downloads_and_texts(visit, tmp_path, monkeypatch):
    page = visit("t_max=1&dim=100&trials=2")
    page.click("#run")
    page.locator("#run", has_text="Simulate").wait_for()
    for which in ("theory-nc", "theory-csv", "runs-nc", "runs-csv", "png", "svg"):
        page.click("#downloads summary")
        with page.expect_download() as waiting:
            page.click(f"#{which}")
        path = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(path)
        assert path.stat().st_size > 1000
    assert sl.load(tmp_path / "theory.nc").success
    assert sl.load(tmp_path / "runs.nc").trials == 2
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "curves.svg").read_text()
    page.click("#python")
    page.wait_for_selector("#text:visible")
    text = page.input_value("#text")
    page.keyboard.press("Escape")
    assert not page.is_visible("#text-dialog")
    monkeypatch.chdir(tmp_path)
    space: dict = {}
    exec(text, space)
    shown = traces(page)["test error, refined"]
    assert space["theory"]["test_error"][-1] == pytest.approx(shown, rel=1e-5)


def test_a_link_opens_the_same_view(visit):
    page = visit("loss=square&labels=linear&lam=0.3&curves=norm,overlap&value_axis=log&algorithm=sgf")
    page.click("#link")
    page.wait_for_selector("#text:visible")
    link = page.input_value("#text")
    found = traces(page)
    other = visit(address=link)
    assert traces(other) == found
    assert other.input_value("#field-lam") == "0.3"
    assert other.is_checked("#field-curves-norm")


@pytest.mark.parametrize(
    ("state", "word", "message"),
    [
        ("tau=-4", "not a valid value", "it must be a number from 0.01 to 10"),
        ("nothing=1", "not a valid value", "field"),
        ("loss=square&labels=linear&tau=6", "diverged", "largest stable temperature"),
        ("dim=4000&delta=10&tol=0.05", "", "d ≤ 1410"),
    ],
)
def test_what_goes_wrong_is_said(visit, state, word, message):
    page = visit(state, wait="bad" if word else "good")
    if word:
        assert word in page.inner_text("#state")
    else:
        page.click("#run")
        page.wait_for_selector("#trouble:visible")
    assert message in page.inner_text("#trouble") + page.inner_text("#notice")
    if state == "tau=-4":
        assert page.get_attribute("#field-tau", "aria-invalid") == "true"
        page.fill("#field-tau", "0.4")
        page.wait_for_selector('[data-state="good"]')
        assert not page.is_visible("#trouble")


def test_a_server_that_is_gone_is_said_and_a_busy_one_too(browser, visit):
    own = Server()
    try:
        page = visit(address=own.address)
        page.route(
            "**/api/curves*", lambda route: route.fulfill(status=503, json={"error": "full", "message": "too many"})
        )
        page.locator("#slide-tau").press("ArrowRight")
        page.wait_for_selector('[data-state="bad"]')
        assert "busy" in page.inner_text("#state")
        page.unroute("**/api/curves*")
        page.click("#retry")
        page.wait_for_selector('[data-state="good"]')
    finally:
        own.end()
    page.locator("#slide-tau").press("ArrowRight")
    page.wait_for_selector('[data-state="bad"]')
    assert "The server does not answer" in page.inner_text("#trouble")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_everything_without_scrolling_sideways(visit, scheme):
    page = visit(viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.locator("#slide-delta").scroll_into_view_if_needed()
    plot = page.locator("#curves-plot").bounding_box()
    assert plot["y"] >= 0  # it stays in sight while a slider is dragged
    assert plot["y"] + plot["height"] < 740
    for target in page.locator("button:visible, summary:visible").all():
        assert target.bounding_box()["height"] >= 36
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 200) == (scheme == "dark")


def test_pictures_to_look_at(visit, tmp_path_factory):
    """Four states, written beside the other results of the tests."""
    folder = Path(tmp_path_factory.mktemp("explorer"))
    page = visit("dim=400")
    page.click("#run")
    page.locator("#runs-words", has_text="5 of 5").wait_for()
    time.sleep(0.3)
    for name, shown in {
        "runs": page,
        "dark": visit("curves=train_loss,test_loss,overlap&algorithm=sgf", color_scheme="dark"),
        "phone": visit(viewport={"width": 390, "height": 844}, is_mobile=True),
        "diverged": visit("loss=square&labels=linear&tau=6", wait="bad"),
    }.items():
        shown.screenshot(path=folder / f"{name}.png")
        assert (folder / f"{name}.png").stat().st_size > 20_000
