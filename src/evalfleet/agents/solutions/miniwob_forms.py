"""Solutions of MiniWoB++ tasks that want something typed into a form."""

from __future__ import annotations

import re

from evalfleet.agents.base import Action, Click, Element, Press, Write
from evalfleet.agents.solutions.page import NotFound, Page, Solver, click

_BEGINNING = 8.0  # pixels from the left edge of a field


def fill(element: Element, text: str) -> list[Action]:
    return [click(element), Write(text=text)]


def text(page: Page) -> list[Action]:
    """The text in quotes, in every field, in the case that is asked for."""
    wanted = page.quoted()[0]
    if "upper case" in page.goal:
        wanted = wanted.upper()
    elif "lower case" in page.goal:
        wanted = wanted.lower()
    return [*(action for field in page.fields() for action in fill(field, wanted)), page.submit()]


def login(page: Page) -> list[Action]:
    user, password = page.quoted()
    name, secret = page.fields()
    return [*fill(name, user), *fill(secret, password), page.submit()]


def login_with_popup(page: Page) -> list[Action]:
    """A step for each click, because a click into a field may bring up a question."""
    if page.all(id="popup-cancel"):
        return [click(page.one(id="popup-cancel"))]
    for field, wanted in zip(page.fields(), page.quoted(), strict=True):
        if field.value != wanted:
            return [Write(text=wanted)] if field.focused else [click(field)]
    return [page.submit()]


def date(page: Page) -> list[Action]:
    month, day, year = page.told(r"(\d+)/(\d+)/(\d+)")
    return _in_parts(page, month + day + year)


def time(page: Page) -> list[Action]:
    hour, minute, half = page.told(r"(\d+):(\d+)\s*([AP])M")
    return _in_parts(page, f"{int(hour):02d}{minute}{half}")


def _in_parts(page: Page, keys: str) -> list[Action]:
    """Fill a field whose parts take the focus one after the other."""
    return [_at_beginning(page), Write(text=keys), page.submit()]


def _at_beginning(page: Page) -> Click:
    """Click into the left end of a field that has arrows or further parts to the right."""
    box = page.fields()[0].box
    return Click(x=box.x + _BEGINNING, y=box.y + box.height / 2)


def word(page: Page) -> list[Action]:
    words = page.one("p").text.split()
    return [*fill(page.fields()[0], re.sub(r"[^a-zA-Z]", "", words[page.places()[0]])), page.submit()]


def last_word(page: Page) -> list[Action]:
    words = (page.one("textarea").value or "").split()
    return [*fill(page.fields()[0], words[-1].rstrip(".")), page.submit()]


def arithmetic(page: Page) -> list[Action]:
    left, sign, right = page.one(id="math-problem").text.removesuffix("=").split()
    a, b = int(left), int(right)
    return [*fill(page.fields()[0], str({"+": a + b, "-": a - b, "x": a * b}[sign])), page.submit()]


def algebra(page: Page) -> list[Action]:
    left, sign, right, _, total = page.one(id="math-problem").text.split()
    known, result = int(right if left == "x" else left), int(total)
    x = result - known if sign == "+" else result + known if left == "x" else known - result
    return [*fill(page.fields()[0], str(x)), page.submit()]


def blocks(page: Page) -> list[Action]:
    return [*fill(page.fields()[0], str(len(page.all(css_class="addition-block")))), page.submit()]


def captcha(page: Page) -> list[Action]:
    return [*fill(page.fields()[0], page.one(id="captcha").text), page.submit()]


def table(page: Page) -> list[Action]:
    key = page.told(r"value of (.*) into")[0]
    return [*fill(page.fields()[0], _cells(page)[key]), page.submit()]


def table_with_labels(page: Page) -> list[Action]:
    labels = [label.text.removesuffix(":") for label in page.all("label")]
    cells = _cells(page)
    filled = [a for field, key in zip(page.fields(), labels, strict=True) for a in fill(field, cells[key])]
    return [*filled, page.submit()]


def _cells(page: Page) -> dict[str, str]:
    cells = [cell.text for cell in page.all("td")]
    return dict(zip(cells[::2], cells[1::2], strict=True))


def copy(page: Page) -> list[Action]:
    source = page.all("textarea")[(page.places() or [0])[0]]
    return [*fill(page.fields()[0], source.value or ""), page.submit()]


def film(page: Page) -> list[Action]:
    """A search form whose fields and layout change places."""
    genre, director, year = page.told(r"for (\w+) movies directed by (.+) from year (\d+)")
    actions: list[Action] = []
    for field in page.fields():
        label = next(e.text.lower() for e in page.around(field) if e.text)
        actions += fill(field, genre if "genre" in label else director if "director" in label else year)
    sender = [e for e in page.elements if e.text in ("Submit", "Search", "Go!")][-1]
    return [*actions, click(sender)]


def guess(page: Page) -> list[Action]:
    """Up or down by one from the last guess, as the page says; the first guess is the middle."""
    hints = {"higher": 1, "lower": -1}
    shown = [
        (hints[e.attributes["id"]], e) for e in page.all("div") if e.attributes.get("id") in hints and e.box.height
    ]
    number = 5
    if shown:
        direction, element = shown[0]
        number = int(page.one("span", inside=element).text) + direction
    return [_at_beginning(page), Press(key="a", held=("Control",)), Write(text=str(number)), page.submit()]


def autocomplete(page: Page) -> list[Action]:
    field = page.fields()[0]
    beginning, *end = page.quoted()
    if not field.value:
        return fill(field, beginning)
    items = [e for e in page.all("li", css_class="ui-menu-item") if e.box.height]
    fits = [n for n, e in enumerate(items) if e.text.startswith(beginning) and e.text.endswith(end[0] if end else "")]
    if field.value != beginning:
        return [page.submit()]
    if not fits:
        raise NotFound("the list of suggestions is not there yet")
    return [Press(key="ArrowDown", times=fits[0] + 1), Press(key="Enter")]


SOLVERS: dict[str, Solver] = {
    "copy-paste": copy,
    "copy-paste-2": copy,
    "enter-date": date,
    "enter-password": text,
    "enter-text": text,
    "enter-text-2": text,
    "enter-text-dynamic": text,
    "enter-time": time,
    "find-word": word,
    "guess-number": guess,
    "login-user": login,
    "login-user-popup": login_with_popup,
    "multi-layouts": film,
    "multi-orderings": film,
    "read-table": table,
    "read-table-2": table_with_labels,
    "scroll-text": last_word,
    "simple-algebra": algebra,
    "simple-arithmetic": arithmetic,
    "text-transform": captcha,
    "use-autocomplete": autocomplete,
    "use-autocomplete-nodelay": autocomplete,
    "visual-addition": blocks,
}
