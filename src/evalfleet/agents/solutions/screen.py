"""A desktop as it is seen from observation to observation, for scripts that know what they do in it."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Generator

from evalfleet.agents.base import Action, Click, Decision, Element, Observation, Press, Wait

Steps = Generator[list[Action]]
Script = Callable[["Screen"], Steps]
"""Yields what to do next, and is resumed when the screen shows what became of it; ends when the task is done."""

PATIENCE_S = 60.0  # for what an application does; a machine may be very busy
_BEFORE_AGAIN_S = 5.0
_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 2.0


class NotSeen(Exception):
    """What a script waits for did not come."""


class Player:
    """Plays a script, an observation at a time.

    Args:
        patience_s: the longest wait for one thing.
        clock: seconds that never go back.
    """

    def __init__(
        self, script: Script, *, patience_s: float = PATIENCE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._screen = Screen(patience_s, clock)
        self._steps = script(self._screen)

    def act(self, observation: Observation) -> Decision:
        """Return the next step. A script that waits in vain gives up: the checker then says what is missing."""
        self._screen.see(observation)
        try:
            return Decision(actions=tuple(next(self._steps)), note=self._screen.take_note())
        except StopIteration:
            return Decision(done=True, note="done")
        except NotSeen as problem:
            return Decision(done=True, note=str(problem))


class Screen:
    """The latest observation. Waiting polls until a deadline; it never relies on a pause being long enough."""

    def __init__(self, patience_s: float, clock: Callable[[], float]) -> None:
        self._patience_s = patience_s
        self._clock = clock
        self._note = ""
        self.goal = ""
        self.windows: list[Element] = []
        self.clipboard: str | None = None

    def see(self, observation: Observation) -> None:
        self.goal = observation.goal
        self.windows = [element for element in observation.elements if element.tag == "window"]
        copied = [element.value for element in observation.elements if element.tag == "clipboard"]
        self.clipboard = copied[0] if copied else None

    def take_note(self) -> str:
        note, self._note = self._note, ""
        return note

    def window(self, title: str) -> Element | None:
        """Return the topmost window with this in its title."""
        return next((window for window in reversed(self.windows) if title in window.text), None)

    def has(self, title: str) -> bool:
        return self.window(title) is not None

    def is_active(self, title: str) -> bool:
        found = self.window(title)
        return found is not None and found.focused

    def quoted(self, place: int) -> str:
        """Return what stands in quotes in the goal, counted from 0."""
        return re.findall(r'"([^"]*)"', self.goal)[place]

    def until(self, condition: Callable[[], bool], what: str, *, patience_s: float | None = None) -> Steps:
        """Wait for a condition on what is seen. Raises NotSeen."""
        patience_s = self._patience_s if patience_s is None else patience_s
        deadline = self._clock() + patience_s
        pause_s = _FIRST_WAIT_S
        while not condition():
            if self._clock() > deadline:
                there = ", ".join(window.text for window in self.windows) or "none"
                raise NotSeen(f"waited {patience_s:g} s for {what}; windows: {there}")
            self._note = f"waiting for {what}"
            yield [Wait(seconds=pause_s)]
            pause_s = min(2 * pause_s, _LONGEST_WAIT_S)

    def active(self, title: str) -> Steps:
        """Wait until a window with this in its title has the focus."""
        yield from self.until(lambda: self.is_active(title), f"{title!r} to be active")

    def gone(self, title: str) -> Steps:
        """Wait until no window has this in its title."""
        yield from self.until(lambda: not self.has(title), f"{title!r} to close")

    def press_until(self, key: Press, condition: Callable[[], bool], what: str) -> Steps:
        """Press a key, and a second time where nothing came of it: a dialog may swallow one to close a list."""
        yield [key]
        with contextlib.suppress(NotSeen):
            yield from self.until(condition, what, patience_s=_BEFORE_AGAIN_S)
            return
        yield [key]
        yield from self.until(condition, what)

    def focus(self, title: str) -> Steps:
        """Bring a window to the front by a click into it."""
        found = self.window(title)
        if found is None or found.point is None:
            raise NotSeen(f"there is nothing to click of {title!r}")
        yield [Click(x=found.point.x, y=found.point.y)]
        yield from self.active(title)


def control(key: str, *more: str) -> Press:
    """Return a key pressed with Control, and perhaps Shift."""
    return Press(key=key, held=("Control", *more))


def alt(key: str) -> Press:
    return Press(key=key, held=("Alt",))


ENTER = Press(key="Enter")
ESCAPE = Press(key="Escape")
