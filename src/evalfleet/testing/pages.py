"""Pages for an agent to look at, without any browser."""

from __future__ import annotations

from evalfleet.agents.base import Box, Element, Observation, Point
from evalfleet.environments.base import Size
from evalfleet.environments.picture import png

_WIDTH, _HEIGHT = 160, 120


def picture(width: int = _WIDTH, height: int = _HEIGHT) -> bytes:
    """Return a white PNG."""
    return png(b"\xff" * 4 * width * height, Size(width=width, height=height))


def looking(goal: str, *texts: str, step: int = 1) -> Observation:
    """Return what an agent sees of a page with a button for each text, one below the other."""
    buttons = [
        Element(
            index=number,
            parent=None,
            tag="button",
            text=text,
            value=None,
            checked=None,
            focused=False,
            box=Box(x=10, y=10 + 30 * number, width=60, height=20),
            point=Point(x=40, y=20 + 30 * number),
        )
        for number, text in enumerate(texts)
    ]
    return Observation(
        step=step, goal=goal, screenshot=picture(), width=_WIDTH, height=_HEIGHT, elements=tuple(buttons)
    )
