"""Alerts on their way to people: what a channel has not taken yet, tried again until it does.

What was delivered is an event. A process that dies between sending and writing that event is followed by one that sends the alert again,
under the same id: at least once. Only the service that holds the claim sends.
"""

from __future__ import annotations

import time

import anyio
import anyio.to_thread

from evalfleet.answers.alerts import Alert
from evalfleet.config import AlertSettings
from evalfleet.core.alerts.rules import NOTICES
from evalfleet.daemon.alerts.access import Access, Claim
from evalfleet.daemon.alerts.channels import ChannelSender, message_of
from evalfleet.daemon.alerts.state import DELIVERED, fold
from evalfleet.errors import EvalfleetError

_RETRY_S = 2.0
_LONGEST_S = 120.0
_LOOK_S = 5.0
_MOST_REFUSED = 3  # in a row of tries

Item = tuple[int, str, str]  # an alert, what is told of it, and the channel


class Outbox:
    """Used in the event loop's thread."""

    def __init__(self, settings: AlertSettings, access: Access, claim: Claim) -> None:
        self._sender = ChannelSender(settings)
        self._access = access
        self._claim = claim
        self._poked: dict[str, anyio.Event] = {channel: anyio.Event() for channel in self._sender.channels}

    def poke(self) -> None:
        """Something may have been fired."""
        for event in self._poked.values():
            event.set()

    async def serve(self) -> None:
        """Channels are independent: one that does not answer does not delay the others."""
        async with anyio.create_task_group() as group:
            for channel in self._sender.channels:
                group.start_soon(self._serve, channel)

    async def send_once(self) -> set[Item]:
        """Send what waits, each alert once. Returns what was waiting."""
        items = await self.waiting()
        async with anyio.create_task_group() as group:
            for channel in self._sender.channels:
                group.start_soon(self._send_all, channel, 0)
        return items

    async def waiting(self) -> set[Item]:
        """What a channel has not had yet, though it is not quiet now."""
        alerts = await self._alerts()
        return {(alert.id, what, name) for name in self._sender.channels for alert, what in self._due(alerts, name)}

    async def _alerts(self) -> dict[int, Alert]:
        return await self._access.read(lambda store: fold(store.events.alerts()))

    def _due(self, alerts: dict[int, Alert], channel: str) -> list[tuple[Alert, str]]:
        now = time.localtime()
        return [each for each in waiting(alerts, channel) if not self._sender.is_quiet(each[0].severity, now)]

    async def _serve(self, channel: str) -> None:
        failed = 0
        while True:
            try:
                failed = 0 if await self._send_all(channel, failed) else failed + 1
            except (EvalfleetError, OSError) as error:  # the store is busy, the disk is full
                self._access.notice(f"alerts: {error}")
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
        refused: set[int] = set()
        for alert, what in self._due(await self._alerts(), channel):
            if alert.id in refused:
                continue
            if not await self._claim.hold():
                break  # another service has it, and sends the rest
            error = await anyio.to_thread.run_sync(self._sender.send, channel, message_of(alert, what))
            if error is None:
                data = {"alert": alert.id, "what": what, "channel": channel}
                await self._access.write(
                    lambda store, about=alert.about, data=data: store.events.note(about, DELIVERED, data)
                )
                continue
            refused.add(alert.id)
            again = _pause_s(failed + 1)
            self._access.notice(f"alerts: {channel} did not take an alert ({error}); again in {again:.0f} s")
            if len(refused) == _MOST_REFUSED:
                break
        return not refused


def waiting(alerts: dict[int, Alert], channel: str) -> list[tuple[Alert, str]]:
    """Alerts, and what is to be told of each. What was resolved before it could be told is still told, in order."""
    found: list[tuple[Alert, str]] = []
    for alert in alerts.values():
        whats = ["fired"]
        if alert.state == "resolved" and alert.rule not in NOTICES:
            whats.append("resolved")
        sent = {one.what for one in alert.delivered if one.channel == channel}
        found += [(alert, what) for what in whats if what not in sent]
    return found


def _pause_s(failed: int) -> float:
    return min(_LONGEST_S, _RETRY_S * 2.0 ** (failed - 1))
