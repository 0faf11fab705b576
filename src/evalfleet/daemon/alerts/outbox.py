"""Alerts on their way to people: what every channel has not taken yet, tried again until it does.

What was delivered is an event. Whoever dies between sending and writing that down sends again, under the same id: at least once.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.to_thread

from evalfleet.config import AlertSettings
from evalfleet.core.alerts.rules import NOTICES
from evalfleet.daemon.alerts.channels import Courier, message_of
from evalfleet.daemon.alerts.state import DELIVERED, fold
from evalfleet.daemon.readers import Readers
from evalfleet.errors import EvalfleetError
from evalfleet.model import JsonObject
from evalfleet.store.base.store import Store

_RETRY_S = 2.0
_LONGEST_S = 120.0
_LOOK_S = 5.0
_MOST_REFUSED = 3  # in a row of tries

Write = Callable[[Callable[[Store], Any]], Awaitable[Any]]


class Outbox:
    """Used in the event loop's thread."""

    def __init__(self, settings: AlertSettings, readers: Readers, write: Write, notice: Callable[[str], None]) -> None:
        self._courier = Courier(settings)
        self._readers = readers
        self._write = write
        self._notice = notice
        self._poked: dict[str, anyio.Event] = {channel: anyio.Event() for channel in self._courier.channels}

    def poke(self) -> None:
        """Something may have been fired."""
        for event in self._poked.values():
            event.set()

    async def serve(self) -> None:
        """Each channel by itself: one that does not answer holds up no other."""
        async with anyio.create_task_group() as group:
            for channel in self._courier.channels:
                group.start_soon(self._serve, channel)

    async def _serve(self, channel: str) -> None:
        failed = 0
        while True:
            try:
                failed = 0 if await self._send_all(channel, failed) else failed + 1
            except (EvalfleetError, OSError) as error:  # the store is busy, the disk is full
                self._notice(f"alerts: {error}")
                failed += 1
            if failed:
                await anyio.sleep(_pause_s(failed))
                continue
            with anyio.move_on_after(_LOOK_S):
                await self._poked[channel].wait()
            self._poked[channel] = anyio.Event()

    async def _send_all(self, channel: str, failed: int) -> bool:
        """Send what the channel has not had, in order. False: it did not take one.

        One that is refused holds up no other; but a channel that takes none is left in peace for a while.
        """
        alerts = await self._readers.call(lambda store: fold(store.alert_events()))
        refused: set[int] = set()
        for alert, what in waiting(alerts, channel):
            if alert["id"] in refused or self._courier.is_quiet(alert["severity"], time.localtime()):
                continue
            error = await anyio.to_thread.run_sync(self._courier.send, channel, message_of(alert, what))
            if error is None:
                data = {"alert": alert["id"], "what": what, "channel": channel}
                await self._write(lambda store, about=alert["about"], data=data: store.note(about, DELIVERED, data))
                continue
            refused.add(alert["id"])
            again = _pause_s(failed + 1)
            self._notice(f"alerts: {channel} did not take an alert ({error}); again in {again:.0f} s")
            if len(refused) == _MOST_REFUSED:
                break
        return not refused


def waiting(alerts: dict[int, JsonObject], channel: str) -> list[tuple[JsonObject, str]]:
    """Alerts, and what is to be told of each. What was resolved before it could be told is still told, in order."""
    found: list[tuple[JsonObject, str]] = []
    for alert in alerts.values():
        whats = ["fired"]
        if alert["state"] == "resolved" and alert["rule"] not in NOTICES:
            whats.append("resolved")
        sent = {one["what"] for one in alert["delivered"] if one["channel"] == channel}
        found += [(alert, what) for what in whats if what not in sent]
    return found


def _pause_s(failed: int) -> float:
    return min(_LONGEST_S, _RETRY_S * 2.0 ** (failed - 1))
