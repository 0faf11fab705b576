"""Solutions of MiniWoB++ tasks with sliders, lists and other things that are moved."""

from __future__ import annotations

from evalfleet.agents.base import Action, Drag, Element, Press, Scroll
from evalfleet.agents.solutions.miniwob_forms import fill
from evalfleet.agents.solutions.page import Page, Solver, click

_FAR = 5000.0  # pixels; further than any text of a task is long


def choose_from_list(page: Page) -> list[Action]:
    """By keyboard: the list that a click opens is a window of its own."""
    options = [option.text for option in page.all("option")]
    place = options.index(page.told(r"^Select (.*) from the list")[0])
    down: list[Action] = [Press(key="Tab"), Press(key="ArrowDown", times=place)] if place else []
    return [*down, page.submit()]


def slider(page: Page) -> list[Action]:
    wanted = int(page.told(r"Select (-?\d+) with")[0])
    handle = page.one("span", css_class="ui-slider-handle")
    return _slide(handle, int(page.one(id="val").text), wanted) or [page.submit()]


def sliders(page: Page) -> list[Action]:
    wanted = page.told(r"\[(\d+),(\d+),(\d+)\]")
    handles = page.all("span", css_class="ui-slider-handle")
    for number, (handle, value) in enumerate(zip(handles, wanted, strict=True), 1):
        if moves := _slide(handle, int(page.one(id=f"val-{number}").text), int(value)):
            return moves
    return [page.submit()]


def _slide(handle: Element, value: int, wanted: int) -> list[Action]:
    """Give the handle the focus, and move it by as many keys as are missing."""
    if value == wanted:
        return []
    key = "ArrowRight" if wanted > value else "ArrowLeft"
    # A click may already move it; how far is seen at the next step.
    return [Press(key=key, times=abs(wanted - value)) if handle.focused else click(handle)]


def slider_and_box(page: Page) -> list[Action]:
    wanted = int(page.told(r"Select (-?\d+) with")[0])
    handle = page.one("span", css_class="ui-slider-handle")
    if moves := _slide(handle, int(page.one(id="val").text), wanted):
        return moves
    return [click(page.all("input", type="checkbox")[page.places()[0]]), page.submit()]


def radio_and_text(page: Page) -> list[Action]:
    radio, field = page.places()
    return [click(page.all("input", type="radio")[radio]), *fill(page.fields()[field], page.quoted()[0]), page.submit()]


def dropdown_and_button(page: Page) -> list[Action]:
    wanted = page.told(r"^Choose (.*) from the dropdown")[0]
    opener = page.one(css_class="selectric")
    if page.one("span", css_class="label", inside=opener).text == wanted:
        return [click(page.one("button", text=page.quoted()[0]))]
    item = page.one("li", text=wanted)
    return [click(item if item.box.height else opener)]


def spinner(page: Page) -> list[Action]:
    missing = int(page.told(r"Select (-?\d+) with")[0]) - int(page.one(id="spinner").value or 0)
    arrow = page.one("a", css_class="ui-spinner-up" if missing > 0 else "ui-spinner-down")
    return [*[click(arrow)] * abs(missing), page.submit()]


def scroll_to_end(page: Page) -> list[Action]:
    if page.step > 1:
        return [page.submit()]
    text = page.one("textarea").box
    far = _FAR if "to the bottom" in page.goal else -_FAR
    return [Scroll(x=text.x + text.width / 2, y=text.y + text.height / 2, dy=far)]


def generate(page: Page) -> list[Action]:
    shown = page.one(id="display-number").text
    if shown != "-" and _fits(page.goal, int(shown)):
        return [page.submit()]
    return [click(page.one(id="generate"))]


def _fits(goal: str, number: int) -> bool:
    if "odd" in goal or "even" in goal:
        return (number % 2 == 1) == ("odd" in goal)
    bound = int("".join(character for character in goal if character.isdigit()))
    return number < bound if "less" in goal else number > bound


def box_into_box(page: Page) -> list[Action]:
    small, large = page.one(id="draggableSmall").box, page.one(id="draggableLarge").box
    x, y = small.x + small.width / 2, small.y + small.height / 2
    drag = Drag(x=x, y=y, to_x=large.x + large.width / 2, to_y=large.y + large.height / 2)
    return [drag, page.submit()]


def resize(page: Page) -> list[Action]:
    handle = page.one(css_class="ui-resizable-se").box
    by = 12.0 if "larger" in page.goal else -12.0
    x, y = handle.x + handle.width / 2, handle.y + handle.height / 2
    return [Drag(x=x, y=y, to_x=x + by, to_y=y + by), page.submit()]


SOLVERS: dict[str, Solver] = {
    "choose-list": choose_from_list,
    "drag-box": box_into_box,
    "form-sequence": slider_and_box,
    "form-sequence-2": radio_and_text,
    "form-sequence-3": dropdown_and_button,
    "generate-number": generate,
    "resize-textarea": resize,
    "scroll-text-2": scroll_to_end,
    "use-slider": slider,
    "use-slider-2": sliders,
    "use-spinner": spinner,
}
