"""The page in a real browser: it fits, it is quiet, and it fetches nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from synthetic import write_run

from gradveil.report import write_report

CHROMIUM = Path("/usr/bin/chromium")
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory) -> Path:
    return write_report(write_run(tmp_path_factory.mktemp("browser") / "november"))


@pytest.fixture(scope="module")
def context(tmp_path_factory) -> Iterator:
    if not CHROMIUM.exists():
        pytest.skip("chromium is not installed: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch_persistent_context(
            str(tmp_path_factory.mktemp("profile")),
            executable_path=str(CHROMIUM),
            headless=True,
            offline=True,
            args=QUIET,
        )
        yield opened
        opened.close()


@pytest.fixture
def visit(context, page_file):
    """Open the report with all that it complains about or asks for on record."""
    page = context.new_page()
    page.said, page.asked = [], []
    page.on("console", lambda message: page.said.append(message.text))
    page.on("pageerror", lambda error: page.said.append(str(error)))
    page.on("dialog", lambda dialog: (page.said.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: page.asked.append(request.url))
    page.goto(page_file.as_uri())
    yield page
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_fits_and_is_quiet(visit, page_file, width, scheme):
    visit.emulate_media(color_scheme=scheme)
    visit.set_viewport_size({"width": width, "height": 900})
    assert visit.evaluate("document.documentElement.scrollWidth") <= width
    assert visit.said == []
    assert [url for url in visit.asked if not url.startswith("data:image/png")] == [page_file.as_uri()]


def test_pictures_are_drawn_and_enlarged_without_smoothing(visit):
    drawn = visit.evaluate("[...document.images].map(i => i.naturalWidth * i.complete)")
    assert drawn
    assert set(drawn) == {32}
    assert visit.evaluate("getComputedStyle(document.images[0]).imageRendering") == "pixelated"


def test_dark_is_dark_and_light_is_light(visit):
    brightness = "parseInt(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])"
    visit.emulate_media(color_scheme="light")
    assert visit.evaluate(brightness) > 200
    visit.emulate_media(color_scheme="dark")
    assert visit.evaluate(brightness) < 60


def test_the_table_scrolls_inside_its_box_on_a_phone(visit):
    visit.set_viewport_size({"width": 390, "height": 800})
    inner, outer = visit.evaluate("(b => [b.scrollWidth, b.clientWidth])(document.querySelector('.box'))")
    assert inner > outer


def test_fits_on_paper(visit):
    visit.emulate_media(media="print")
    visit.set_viewport_size({"width": 690, "height": 1000})  # A4 less the margins
    assert visit.evaluate("document.documentElement.scrollWidth") <= 690
