"""An observation of a web page, for solvers that know what they look for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from evalfleet.agents.base import Action, Click, Element, Observation, Scroll, Wait

Solver = Callable[["Page"], list[Action]]
"""Says what to do next on the page as it is now. Called again with what became of it, until the episode is over."""

PAUSE_S = 0.1  # for what a page does by itself; how long that takes is seen, not guessed: solvers look again
_ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th)\b")


class NotFound(Exception):
    """The page lacks what a solver looks for."""


class OutOfReach(Exception):
    """The element is there, and no click would hit it: it is hidden, covered or out of view."""

    def __init__(self, element: Element) -> None:
        super().__init__(f"{element.tag} {element.text[:40]!r} is out of reach")
        self.element = element


class Page:
    """Looks things up in one observation. What is not there raises NotFound."""

    def __init__(self, observation: Observation) -> None:
        self.goal = observation.goal
        self.step = observation.step
        self.elements = observation.elements

    def all(
        self,
        tag: str | None = None,
        *,
        text: str | None = None,
        css_class: str | None = None,
        inside: Element | None = None,
        **attributes: str,
    ) -> list[Element]:
        """Return the elements that fit, in the page's order. An attribute `data_type` means `data-type`."""
        wanted = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
        return [
            element
            for element in self.elements
            if (tag is None or element.tag == tag)
            and (text is None or element.text == text)
            and (css_class is None or css_class in element.attributes.get("class", "").split())
            and all(element.attributes.get(name) == value for name, value in wanted.items())
            and (inside is None or inside in self.around(element))
        ]

    def one(
        self,
        tag: str | None = None,
        *,
        text: str | None = None,
        css_class: str | None = None,
        inside: Element | None = None,
        **attributes: str,
    ) -> Element:
        """Return the first that fits; one that a click would hit goes before others."""
        found = self.all(tag, text=text, css_class=css_class, inside=inside, **attributes)
        if not found:
            wanted = " ".join(filter(None, (text, css_class, *attributes.values())))
            raise NotFound(f"there is no {tag or 'element'} {wanted!r}")
        return next((element for element in found if element.point), found[0])

    def around(self, element: Element) -> Iterator[Element]:
        """Yield what lies around an element, from the innermost."""
        while element.parent is not None:
            element = self.elements[element.parent]
            yield element

    def towards(self, element: Element) -> Action:
        """Bring an element into view; where it should be in view already, wait for what hides it to go."""
        middle = element.box.y + element.box.height / 2
        for outer in self.around(element) if element.box.height else ():
            box = outer.box
            if box.height and not box.y <= middle <= box.y + box.height:
                centre = box.y + box.height / 2
                return Scroll(x=box.x + box.width / 2, y=centre, dy=middle - centre)
        return Wait(seconds=PAUSE_S)

    def fields(self) -> list[Element]:
        """Return what takes text, in the page's order."""
        kinds = ("checkbox", "radio", "button", "submit")
        return [e for e in self.elements if e.tag == "input" and e.attributes.get("type") not in kinds]

    def submit(self) -> Click:
        """Click the button that ends the form."""
        buttons = self.all("button")
        found = [e for e in buttons if e.attributes.get("id") in ("subbtn", "submit") or e.text == "Submit"]
        if not found:
            raise NotFound("there is no button that submits")
        return click(found[0])

    def quoted(self) -> list[str]:
        """Return what stands in quotes in the goal."""
        return re.findall(r'"([^"]*)"', self.goal)

    def told(self, pattern: str) -> tuple[str, ...]:
        """Return the groups of a pattern that the goal must have."""
        match = re.search(pattern, self.goal)
        if match is None:
            raise NotFound(f"the goal does not say {pattern!r}: {self.goal!r}")
        return tuple(match.groups())

    def places(self) -> list[int]:
        """Return the places that the goal names as "1st", "2nd", …, counted from 0."""
        return [int(number) - 1 for number in _ORDINAL.findall(self.goal)]


def click(element: Element, *held: str) -> Click:
    """Click where it can be hit. Raises OutOfReach."""
    if element.point is None:
        raise OutOfReach(element)
    return Click(x=element.point.x, y=element.point.y, held=held)
