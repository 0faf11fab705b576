"""Waits for a cloud that a person should know of. What waits says so here; the front end that was asked listens."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

QUIET_S = 1.0  # shorter waits are not worth a line
_listener: ContextVar[Callable[[str], None] | None] = ContextVar("evalfleet_waits", default=None)


@contextmanager
def told_to(listener: Callable[[str], None]) -> Generator[None]:
    """Inside the block, `listener` hears of each wait, in one line."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


def waiting(why: str, seconds: float) -> None:
    """Say in how many seconds the cloud is asked again, and why not now."""
    listener = _listener.get()
    if listener is not None and seconds >= QUIET_S:
        listener(f"{why}; asking again in {seconds:.0f} s")


def waiting_for(what: str) -> None:
    """Say that something else must end first."""
    listener = _listener.get()
    if listener is not None:
        listener(what)
