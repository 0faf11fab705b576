"""The film strip in a real browser: it opens, goes by keys, and asks nobody for anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.report_builders import RunBuilder
from tests.unit.report.test_film import leave

from evalfleet.actions import Press
from evalfleet.environments.base import Size
from evalfleet.environments.browser.environment import find_chromium, launched
from evalfleet.environments.browser.page import Page
from evalfleet.report.html.page import page

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")

EVIL = "<img src=x onerror=document.title='broken'>_1"
ENLARGED = "document.querySelector('dialog[open] b')?.textContent ?? null"
# Pictures come when they are in view; a picture that is there has a width.
DRAWN = """new Promise(done => { const until = performance.now() + 20000, look = () => {
  const seen = [...document.querySelectorAll('.frame img')].filter(image => image.naturalWidth).length;
  seen >= %d || performance.now() > until ? done(seen) : setTimeout(look, 20) }; look() })"""


@pytest.fixture(params=[1280])
def browser(request: pytest.FixtureRequest, home: Path, tmp_path: Path):
    """A window of that width with a report, one task opened."""
    builder = RunBuilder(home, ["shop_1", EVIL], name="films").begin()
    for key in ("shop_1", EVIL):
        builder.attempt(key, 0.0)
        leave(builder, key, [10, 20, 30], note=EVIL)
    place = tmp_path / "report.html"
    place.write_text(page(builder.store, builder.run, home, beside=tmp_path), "utf-8")
    builder.close()
    with launched(str(CHROMIUM), tmp_path / "browser", Size(width=request.param, height=900)) as browser:
        browser.page.open(f"{place.as_uri()}#shop_1")
        yield browser.page


def focused(browser: Page) -> int:
    """Which frame has the focus, once the events of the last key have all been told."""
    place = "[...document.querySelectorAll('.frame button')].indexOf(document.activeElement)"
    return browser.evaluate(f"new Promise(r => requestAnimationFrame(() => setTimeout(() => r({place}), 0)))")


def test_keys_go_through_the_steps(browser: Page):
    assert browser.evaluate("document.querySelectorAll('.frame').length") == 4
    assert browser.evaluate(DRAWN % 4) == 4
    assert browser.evaluate("document.querySelectorAll('.frame .point').length") == 3
    browser.evaluate("document.querySelector('.frame button').focus()")
    browser.perform(Press(key="ArrowRight", times=2))
    assert focused(browser) == 2
    browser.perform(Press(key="ArrowLeft"))
    browser.perform(Press(key="Enter"))
    assert browser.evaluate(ENLARGED) == "2 of 4"
    browser.perform(Press(key="ArrowRight"))
    assert browser.evaluate(ENLARGED) == "3 of 4"
    browser.perform(Press(key="ArrowRight", times=5))
    assert browser.evaluate(ENLARGED) == "4 of 4"
    browser.perform(Press(key="Home"))
    assert browser.evaluate(ENLARGED) == "1 of 4"
    browser.perform(Press(key="Escape"))
    assert browser.evaluate(ENLARGED) is None
    assert focused(browser) == 0


def test_hostile_words_are_only_words(browser: Page):
    browser.evaluate(f"location.hash = encodeURIComponent({EVIL!r})")
    browser.evaluate("new Promise(done => setTimeout(done))")
    assert browser.evaluate("document.querySelectorAll('.film').length") == 2
    assert browser.evaluate("document.querySelector('.note').textContent") == EVIL
    assert browser.evaluate("document.title") == "films: evalfleet report"
    assert (
        browser.evaluate("performance.getEntriesByType('resource').filter(e => !e.name.startsWith('data:')).length")
        == 0
    )


@pytest.mark.parametrize("browser", [390, 1280], indirect=True)
def test_it_fits_a_phone_and_a_screen(browser: Page):
    assert browser.evaluate("innerWidth") in (390, 1280)
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    browser.evaluate("document.querySelector('.frame button').click()")
    box = browser.evaluate(
        "(b => [b.left, b.right, b.bottom])(document.querySelector('dialog').getBoundingClientRect())"
    )
    assert box[0] >= 0
    assert box[1] <= browser.evaluate("innerWidth")
    assert box[2] <= 900
