"""The agent `random`: clicks and types at random. It is the baseline that every other agent must beat."""

from __future__ import annotations

import random
import re

from evalfleet.agents.base import Action, Click, Decision, Element, Observation, Point, TaskPrompt, Write

_ACTIVE = frozenset({"a", "button", "input", "label", "li", "option", "select", "span", "textarea", "th", "td", "h3"})
_WRITABLE = frozenset({"input", "textarea", "window"})
_TYPING_SHARE = 0.5  # of the choices that fall on something that takes text


class RandomAgent:
    """Draws from the episode's seed: the same seed does the same to the same page."""

    title = "clicks and types at random, as a baseline"
    deterministic = True

    def __init__(self, prompt: TaskPrompt) -> None:
        self._random = random.Random(f"{prompt.benchmark} {prompt.task} {prompt.seed}")
        self._words = re.findall(r"\w+", prompt.goal) or ["x"]

    def act(self, observation: Observation) -> Decision:
        inside = [e for e in observation.elements if e.point and _lies_in(e.point, observation)]
        active = [e for e in inside if e.tag in _ACTIVE] or inside
        if not active:
            return Decision(done=True, note="there is nothing to click")
        element = self._random.choice(active)
        return Decision(actions=self._on(element), note=f"by chance: {element.tag} {element.text[:40]!r}")

    def _on(self, element: Element) -> tuple[Action, ...]:
        assert element.point is not None  # chosen among those that have one
        click = Click(x=element.point.x, y=element.point.y)
        if element.tag in _WRITABLE and self._random.random() < _TYPING_SHARE:
            return click, Write(text=self._random.choice(self._words))
        return (click,)


def _lies_in(point: Point, observation: Observation) -> bool:
    return 0 <= point.x < observation.width and 0 <= point.y < observation.height
