"""The page in a real browser: it fits, it is quiet, and it fetches nothing."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic import random_run, write_run

from gradveil.audit.results import Run
from gradveil.report import write_report
from gradveil.report.build import render

pytestmark = pytest.mark.more

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


LOW_CONTRAST = """(() => {
  const rgb = color => {
    const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const found = rgb(getComputedStyle(e).backgroundColor);
      if (found[3] === 255) return found;
    }
    return [255, 255, 255];
  };
  const low = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || element.closest('title, style')) continue;
    const style = getComputedStyle(element);
    const [a, b] = [light(rgb(element.closest('svg') ? style.fill : style.color)), light(behind(element))];
    if ((Math.max(a, b) + .05) / (Math.min(a, b) + .05) < 4.5) low.add(element.className + ': ' + element.textContent);
  }
  return [...low];
})()"""
LONG = "a-name-that-goes-on-" * 12


def long_names() -> Run:
    """Two regimes, variations, failures and controls, and a name too long for any line."""
    run = random_run(0)
    return replace(
        run, records=tuple(replace(r, defense=LONG if r.defense == "odd" else r.defense) for r in run.records)
    )


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    """The same page in all its kinds."""
    home = tmp_path_factory.mktemp("browser")
    full, hidden = write_run(home / "november"), write_run(home / "december")
    many = write_run(home / "many", clients=170)
    (home / "odd.html").write_text(render(long_names(), claim=0.01))
    return {
        "full": write_report(full),
        "redacted": write_report(hidden, redact=True, claim=0.01),
        "many": write_report(many),
        "odd": home / "odd.html",
    }


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
def visit(context, pages):
    """Open a report with all that it complains about or asks for on record."""
    opened = []

    def open_page(kind: str = "full"):
        page = context.new_page()
        opened.append(page)
        page.said, page.asked = [], []
        page.on("console", lambda message: page.said.append(message.text))
        page.on("pageerror", lambda error: page.said.append(str(error)))
        page.on("dialog", lambda dialog: (page.said.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: page.asked.append(request.url))
        page.goto(pages[kind].as_uri())
        return page

    yield open_page
    for page in opened:
        page.close()


@pytest.mark.parametrize("kind", ["full", "redacted", "many", "odd"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 768, 1440])
def test_fits_and_is_quiet(visit, pages, kind, width, scheme):
    page = visit(kind)
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.said == []
    assert [url for url in page.asked if not url.startswith("data:image/png")] == [pages[kind].as_uri()]


def test_pictures_are_drawn_and_enlarged_without_smoothing(visit):
    page = visit()
    drawn = page.evaluate("[...document.images].map(i => i.naturalWidth * i.complete)")
    assert drawn
    assert set(drawn) == {32}
    assert page.evaluate("getComputedStyle(document.images[0]).imageRendering") == "pixelated"


def test_dark_is_dark_and_light_is_light(visit):
    page, brightness = visit(), "parseInt(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])"
    page.emulate_media(color_scheme="light")
    assert page.evaluate(brightness) > 200
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(brightness) < 60


@pytest.mark.parametrize("kind", ["full", "odd"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(visit, kind, scheme):
    """4.5 : 1 and more, as WCAG 2 asks of text, for every text on the page."""
    page = visit(kind)
    page.emulate_media(color_scheme=scheme)
    assert page.evaluate(LOW_CONTRAST) == []


def test_the_verdict_is_above_the_fold(visit):
    page = visit()
    for width, height in ((1440, 900), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate("document.querySelector('h1').getBoundingClientRect().bottom") < height / 2
        bottoms = page.evaluate(
            "[...document.querySelectorAll('.pair img')].map(i => i.getBoundingClientRect().bottom)"
        )
        assert len(bottoms) == 2
        assert max(bottoms) < height  # the worst pair
    page.set_viewport_size({"width": 1440, "height": 900})
    assert page.evaluate("document.querySelector('.do').getBoundingClientRect().bottom") < 900


def test_every_flag_leads_to_its_explanation(visit):
    page = visit()
    chip = page.locator(".doubts a").first
    title = chip.inner_text()
    chip.click()
    assert page.locator(":target h3").inner_text() == title


def test_the_table_scrolls_inside_its_box_on_a_phone(visit):
    page = visit()
    page.set_viewport_size({"width": 390, "height": 800})
    inner, outer = page.evaluate("(b => [b.scrollWidth, b.clientWidth])(document.querySelector('.box'))")
    assert inner > outer


@pytest.mark.parametrize("kind", ["full", "redacted", "many", "odd"])
def test_fits_on_paper_and_nothing_is_clipped(visit, kind):
    page = visit(kind)
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size({"width": 688, "height": 1000})  # A4 less the margins
    assert page.evaluate("document.documentElement.scrollWidth") <= 688
    assert (
        page.evaluate("[...document.querySelectorAll('.box')].filter(b => b.scrollWidth > b.clientWidth).length") == 0
    )
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"  # ink is dear


def test_makes_a_pdf_of_some_pages(visit, tmp_path):
    page = visit()
    page.pdf(path=tmp_path / "report.pdf", format="A4", prefer_css_page_size=True)
    content = (tmp_path / "report.pdf").read_bytes()
    assert content.startswith(b"%PDF")
    assert 4 <= content.count(b"/Type /Page\n") <= 14
