"""One episode of a desk task: the desktop is prepared, the agent acts in it, and its last state is judged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from evalfleet.agents.base import Action, Box, Element, Observation, Point
from evalfleet.benchmarks.desk.getters import clipboard
from evalfleet.benchmarks.desk.profile import prepare
from evalfleet.benchmarks.desk.task import DeskTask
from evalfleet.environments.desktop.base import WindowedDesktop
from evalfleet.environments.desktop.x11.windows import Window
from evalfleet.model import Verdict

_REST_S = 10.0  # longest wait for applications that work; what they do later, the agent sees later
_SHOWN = 200  # characters of a found state in the verdict
_SHARES = (0.5, 0.25, 0.75, 0.1, 0.9)  # of a window's size, where a click is tried


class DeskEpisode:
    """Implements `Episode`. The desktop is the caller's to make and to end."""

    def __init__(self, desktop: WindowedDesktop, task: DeskTask) -> None:
        self._desktop = desktop
        self._task = task
        self.goal = task.instruction
        prepare(desktop)
        for setup in task.setups:
            setup.apply(desktop)

    def observe(self, step: int) -> Observation:
        self._rest()
        screen = self._desktop.probe().screen
        windows = self._desktop.windows()
        elements = [_window_element(index, windows) for index in range(len(windows))]
        copied = clipboard(self._desktop)
        if copied is not None:
            elements.append(_clipboard_element(len(elements), copied))
        return Observation(
            step=step,
            goal=self.goal,
            screenshot=self._desktop.screenshot(),
            width=screen.width,
            height=screen.height,
            elements=tuple(elements),
        )

    def perform(self, action: Action) -> None:
        self._desktop.perform(action)

    def verdict(self) -> Verdict | None:
        """Return None: only the state at the end counts."""
        return None

    def finish(self) -> Verdict:
        self._rest()
        told: list[dict[str, Any]] = []
        for point in self._task.points:
            found = point.getter.get(self._desktop)
            told.append({"func": point.func, "holds": point.check.holds(found), "found": _short(found)})
        held = [each["holds"] for each in told]
        success = all(held) if self._task.conj == "and" else any(held)
        return Verdict(score=1.0 if success else 0.0, success=success, metrics={"checks": told})

    def _rest(self) -> None:
        self._desktop.rest(limit_s=_REST_S)


def _window_element(index: int, windows: Sequence[Window]) -> Element:
    window = windows[index]
    return Element(
        index=index,
        parent=None,
        tag="window",
        text=window.title,
        value=None,
        checked=None,
        focused=window.active,
        box=Box(x=window.x, y=window.y, width=window.width, height=window.height),
        point=_free_point(window, windows[index + 1 :]),
        attributes={"class": window.kind},
    )


def _free_point(window: Window, above: Sequence[Window]) -> Point | None:
    """Return where a click hits the window and none above it."""
    for down in _SHARES:
        for across in _SHARES:
            x, y = window.x + window.width * across, window.y + window.height * down
            if not any(w.x <= x < w.x + w.width and w.y <= y < w.y + w.height for w in above):
                return Point(x=x, y=y)
    return None


def _clipboard_element(index: int, text: str) -> Element:
    """What was copied last, which a person would see by pasting it."""
    nowhere = Box(x=0, y=0, width=0, height=0)
    return Element(
        index=index,
        parent=None,
        tag="clipboard",
        text=" ".join(text.split()),
        value=text,
        checked=None,
        focused=False,
        box=nowhere,
        point=None,
    )


def _short(found: Any) -> Any:
    """Return the state for a person's eye: text is cut, and so is what would be too long as JSON."""
    text = found if isinstance(found, str) else json.dumps(found)
    return found if len(text) <= _SHOWN else text[:_SHOWN] + "…"
