"""Solutions of MiniWoB++ tasks that want the right thing clicked."""

from __future__ import annotations

from evalfleet.agents.base import Action, Element, Move, Press, Wait
from evalfleet.agents.solutions.page import PAUSE_S, OutOfReach, Page, Solver, click

_SHAPES = {"rect": "rectangle", "circle": "circle", "polygon": "triangle"}
_SMALL = 15.0  # pixels; a large shape has 20, a small one 10
_PAUSE = Wait(seconds=PAUSE_S)


def button(page: Page) -> list[Action]:
    """The button whose label stands in quotes, is named, or is the only one."""
    return [click(page.one("button", text=page.quoted()[0]) if page.quoted() else page.one("button"))]


def buttons_in_turn(page: Page) -> list[Action]:
    """ONE, and TWO if it is asked for. They lie anywhere; ONE may lie under TWO, where the keyboard reaches it."""
    first, second = page.one("button", text="ONE"), page.one("button", text="TWO")
    begin = [click(first)] if first.point else [Press(key="Tab"), Press(key="Enter")]
    return [*begin, *([click(second)] if "TWO" in page.goal else [])]


def boxes(page: Page) -> list[Action]:
    """Check the named boxes or the named option, and submit."""
    names = page.told(r"^Select (.*) and click Submit")[0].split(", ")
    wanted = [label for label in page.all("label") if label.text in names]
    inputs = [page.one("input", inside=label) for label in wanted]
    return [*(click(box) for box in inputs if not box.checked), page.submit()]


def section(page: Page) -> list[Action]:
    header = page.one("h3")
    return [page.submit() if header.attributes.get("aria-expanded") == "true" else click(header)]


def link(page: Page) -> list[Action]:
    """The link in quotes; if it is not in view, the section or tab first that it lies in."""
    wanted = page.quoted()[0]
    if not page.all("span", css_class="alink", text=wanted):
        return [click(page.all("li", css_class="ui-tab")[1])]  # only "medium" has such a goal, and says so
    found = page.one("span", css_class="alink", text=wanted)
    if found.point:
        return [click(found)]
    names = [element.attributes.get("id", "") for element in page.around(found)]
    openers = [e for e in page.elements if e.tag in ("h3", "li") and e.attributes.get("aria-controls") in names]
    opened = [e for e in openers if "true" in (e.attributes.get("aria-expanded"), e.attributes.get("aria-selected"))]
    if opened or not openers:
        raise OutOfReach(found)
    return [click(openers[0])]


def tab(page: Page) -> list[Action]:
    return [click(page.one("a", text=page.told(r"(Tab #\d)")[0]))]


def colour(page: Page) -> list[Action]:
    return [click(page.one("div", data_color=page.told(r"the (\w+) colored")[0]))]


def dialog(page: Page) -> list[Action]:
    label = page.quoted()[0]
    if label == "x":
        return [click(page.one("button", css_class="ui-dialog-titlebar-close"))]
    return [click(page.one("button", text=label))]


def menu(page: Page) -> list[Action]:
    """By keyboard: an item that has a menu of its own must not be clicked."""
    actions: list[Action] = [Press(key="Tab")]
    inside = page.one(id="menu")
    names = page.told(r"^Select (.*)$")[0].split(">")
    for depth, name in enumerate(names):
        items = [e for e in page.all("li") if e.parent == inside.index]
        labels = [next(e.text for e in page.all("div") if e.parent == item.index) for item in items]
        place = labels.index(name)
        actions += [Press(key="ArrowDown", times=place)] if place else []
        if depth < len(names) - 1:
            actions += [Press(key="ArrowRight"), _PAUSE]  # it gives the focus on a moment later
            inside = next(e for e in page.all("ul") if e.parent == items[place].index)
    return [*actions, Press(key="Enter")]


def menu_with_icons(page: Page) -> list[Action]:
    opener = page.one(id="open-menu")
    if not page.one(id="menu").box.height:
        return [click(opener)]
    if "labeled" in page.goal:
        item = page.one("div", text=page.quoted()[1])
    else:
        icon = page.one("span", css_class="ui-icon", inside=page.one(id="query")).attributes["class"].split()[1]
        inside = page.one("span", css_class=icon, inside=page.one(id="menu"))
        item = next(page.around(inside))
    if item.point:
        return [click(item)]
    parent = page.one("div", text="Playback")
    if parent.point is None:
        raise OutOfReach(parent)
    return [Move(x=parent.point.x, y=parent.point.y), _PAUSE]


def listed(page: Page) -> list[Action]:
    """Options of a list that allows several."""
    names = page.told(r"^Select (.*) from the scroll list")[0].split(", ")
    left = [option for option in page.all("option") if option.text in names and not option.checked]
    return [click(left[0], "Control")] if left else [page.submit()]


def shades(page: Page) -> list[Action]:
    wanted = page.all("span", data_color=page.told(r"shades of (\w+)")[0])
    return [*(click(shade) for shade in wanted if shade.attributes.get("class") != "selected"), page.submit()]


def shape(page: Page) -> list[Action]:
    return [click(_matching(page, page.told(r"^Click on an? (.*)$")[0])[0])]


def count_of_shapes(page: Page) -> list[Action]:
    count = len(_matching(page, page.told(r"^How many (.*)s are there")[0]))
    return [click(page.one("button", text=str(count)))]


def _matching(page: Page, description: str) -> list[Element]:
    """Return the shapes that fit words such as "large red letter", "item" or "small q"."""
    *adjectives, noun = description.split(" ")
    found = [e for e in page.elements if e.tag in ("text", *_SHAPES)]
    return [e for e in found if {noun, *adjectives} <= {*_words(e), "item"}]


def _words(element: Element) -> set[str]:
    size = element.box.width if element.tag != "text" else float(element.attributes["font-size"].removesuffix("px"))
    name = _SHAPES.get(element.tag, element.text)
    kind = "shape" if element.tag in _SHAPES else "digit" if name.isdigit() else "letter"
    return {"large" if size > _SMALL else "small", element.attributes.get("fill", ""), kind, name}


def kind_of_shape(page: Page) -> list[Action]:
    figure = next(e for e in page.elements if e.tag in ("text", *_SHAPES))
    kind = _SHAPES.get(figure.tag) or ("digit" if figure.text.isdigit() else "letter")
    return [click(page.one("button", data_type=kind))]


def widget(page: Page) -> list[Action]:
    return [click(page.one(data_type=page.quoted()[0]))]


def coordinate(page: Page) -> list[Action]:
    return [click(page.one("circle", id=page.told(r"(\(-?\d,-?\d\))")[0]))]


def focus(page: Page) -> list[Action]:
    return [click(page.fields()[(page.places() or [0])[0]])]


def numbers_in_turn(page: Page) -> list[Action]:
    """The first is a number, which hides the others; then those that are left, by their order."""
    shown = page.all("text", text="1")
    return [click(shown[0] if shown else page.all("rect")[0])]


def greatest(page: Page) -> list[Action]:
    best = max(page.all(css_class="card-value"), key=lambda e: int(e.text))
    return [click(next(page.around(best))), page.submit()]


def odd_or_even(page: Page) -> list[Action]:
    rows = page.all("div", css_class="row")
    odd = [int(page.one(css_class="display-number", inside=row).text) % 2 for row in rows]
    marks = [page.one("button", text="Odd" if o else "Even", inside=r) for r, o in zip(rows, odd, strict=True)]
    return [*map(click, marks), page.submit()]


def tree(page: Page) -> list[Action]:
    """The named file or folder; if it is not in view, the outermost closed folder that it lies in."""
    found = page.one("span", text=page.quoted()[0])
    if found.point:
        return [click(found)]
    folders = [e for e in page.around(found) if e.tag == "li"][:0:-1]
    closed = [e for e in folders if "expandable" in e.attributes.get("class", "")]
    if not closed:
        raise OutOfReach(found)
    return [click(next(e for e in page.all("span") if e.parent == closed[0].index))]


SOLVERS: dict[str, Solver] = {
    "ascending-numbers": numbers_in_turn,
    "click-button": button,
    "click-button-sequence": buttons_in_turn,
    "click-checkboxes": boxes,
    "click-checkboxes-large": boxes,
    "click-checkboxes-transfer": boxes,
    "click-collapsible": section,
    "click-collapsible-2": link,
    "click-collapsible-2-nodelay": link,
    "click-collapsible-nodelay": section,
    "click-color": colour,
    "click-dialog": dialog,
    "click-dialog-2": dialog,
    "click-link": link,
    "click-menu": menu,
    "click-menu-2": menu_with_icons,
    "click-option": boxes,
    "click-scroll-list": listed,
    "click-shades": shades,
    "click-shape": shape,
    "click-tab": tab,
    "click-tab-2": link,
    "click-tab-2-easy": link,
    "click-tab-2-hard": link,
    "click-tab-2-medium": link,
    "click-test": button,
    "click-test-2": buttons_in_turn,
    "click-test-transfer": buttons_in_turn,
    "click-widget": widget,
    "count-shape": count_of_shapes,
    "find-greatest": greatest,
    "focus-text": focus,
    "focus-text-2": focus,
    "grid-coordinate": coordinate,
    "identify-shape": kind_of_shape,
    "navigate-tree": tree,
    "odd-or-even": odd_or_even,
    "unicode-test": button,
}
