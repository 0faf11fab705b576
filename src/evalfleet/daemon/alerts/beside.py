"""Alerts of a controller: while a run or pool has one, problems in the home are reported, also without `serve`."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evalfleet.config import Settings


@contextmanager
def alerts_beside(settings: Settings, notice: Callable[[str], None]) -> Generator[None]:
    """Watch and send in a thread of its own while the block runs; at its end send what is new.

    Does nothing, and loads nothing, where [alerts] names no channel and no action; nor where this process lacks the addresses. Never
    ends the block with an error.
    """
    if not settings.alerts.is_set:
        yield
        return
    from evalfleet.daemon.alerts.background import in_thread

    with in_thread(settings, notice):
        yield
