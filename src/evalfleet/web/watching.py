"""Watches the runs and pools of a home, and tells when something is wrong.

One server of a home does so at a time. What was told is in the events, so that the next one neither forgets nor repeats; what could not
be delivered yet is tried again until it is.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import anyio.to_thread

from evalfleet.backends import registry
from evalfleet.config import Settings
from evalfleet.core.alerts import (
    AlertLimits,
    Change,
    Condition,
    PoolFacts,
    RunFacts,
    conditions,
    latch,
    pool_conditions,
)
from evalfleet.errors import EvalfleetError
from evalfleet.model import Event, JsonObject, Pool
from evalfleet.store.base import Store, StoreReader
from evalfleet.store.filelock import FileLock
from evalfleet.web.alerts import DELIVERED, FIRED, HOME, RESOLVED, fold
from evalfleet.web.delivering import Courier, message_of
from evalfleet.web.facts import active_runs, facts_of
from evalfleet.web.readers import Readers

LOOK_S = 5.0
_SOON_S = 0.5
_RETRY_S = 2.0
_LONGEST_S = 120.0
WATCHED = "alert.watched"
_LOUD = ("run.", "breaker.", "worker.")  # events after which a look is due at once

Write = Callable[[Callable[[Store], Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What was seen at one moment."""

    alerts: dict[int, JsonObject]
    holding: dict[str, list[Condition]]  # by run, or pool
    names: dict[str, str]


@dataclass(slots=True, kw_only=True)
class Watch:
    """Used in the event loop's thread."""

    settings: Settings
    readers: Readers
    write: Write
    notice: Callable[[str], None]
    _wake: anyio.Event = field(default_factory=anyio.Event)
    _idle_since: dict[str, float] = field(default_factory=dict[str, float])
    _tries: dict[tuple[int, str, str], tuple[int, float]] = field(
        default_factory=dict[tuple[int, str, str], tuple[int, float]]
    )

    def look_soon(self, events: list[Event]) -> None:
        if any(event.type.startswith(_LOUD) for event in events):
            self._wake.set()

    async def serve(self) -> None:
        """Watch until cancelled; does nothing while another server of the home does."""
        lock = FileLock(self.settings.home / "locks" / "alerts.lock")
        try:
            while not await anyio.to_thread.run_sync(lock.acquire, 0.0):  # noqa: ASYNC110 - another process has it
                await anyio.sleep(LOOK_S)
            begun = await self._begin()
            while True:
                try:
                    await self._tell(await self.readers.call(lambda store: self._look(store, begun)))
                    await self._deliver()
                except (EvalfleetError, OSError) as error:  # a busy store, a full disk: the next look comes soon
                    self.notice(f"alerts: {error}")
                with anyio.move_on_after(LOOK_S):
                    await self._wake.wait()
                    await anyio.sleep(_SOON_S)  # what belongs together comes together
                self._wake = anyio.Event()
        finally:
            lock.close()

    async def _begin(self) -> float:
        """Since when this home is watched: what ended before is nobody's news."""
        events = await self.readers.call(lambda store: store.alert_events())
        begun = next((event.at for event in events if event.type == WATCHED), None)
        if begun is not None:
            return begun
        await self.write(lambda store: store.note(HOME, WATCHED, {}))
        return await self.readers.call(lambda store: store.now())

    # Looking, in a thread

    def _look(self, store: StoreReader, begun: float) -> Look:
        limits = self.limits()
        holding: dict[str, list[Condition]] = {}
        names: dict[str, str] = {}
        alerts = fold(store.alert_events())
        watched = {alert["about"] for alert in alerts.values() if alert["state"] == "firing"}
        for run_id in active_runs(store, begun, watched):
            facts = facts_of(store, run_id)
            names[run_id] = facts.name
            holding[run_id] = conditions(_since(facts, begun), limits)
        for pool in store.pools():
            holding[f"pool:{pool.name}"] = pool_conditions(self._pool_facts(store, pool), limits)
        return Look(alerts=alerts, holding=holding, names=names)

    def limits(self) -> AlertLimits:
        given = self.settings.alerts
        return AlertLimits(
            no_progress_s=given.no_progress_s,
            failure_rate=given.failure_rate,
            retry_rate=given.retry_rate,
            budget_shares=given.budget_shares,
            idle_s=given.idle_s,
            off=frozenset(given.off),
        )

    def _pool_facts(self, store: StoreReader, pool: Pool) -> PoolFacts:
        loads = store.host_loads()
        hosts = registry.kind_of(pool).hosts(pool, store.hosts(pool.name))
        now = time.monotonic()
        if any(loads.get(host.name) for host in hosts):
            self._idle_since[pool.name] = now
        since = self._idle_since.setdefault(pool.name, now)
        price = sum(host.price_usd_per_hour * host.slots for host in hosts)
        return PoolFacts(name=pool.name, idle_s=now - since, usd_per_hour=price)

    # Telling

    async def _tell(self, look: Look) -> None:
        """Write what began to hold, and what holds no more."""
        for about, holding in look.holding.items():
            ours = [alert for alert in look.alerts.values() if alert["about"] == about]
            firing = {(one["rule"], one["subject"]): one["id"] for one in ours if one["state"] == "firing"}
            told = {(one["rule"], one["subject"]) for one in ours if one["rule"] == "finished"}
            change = latch(firing, told, holding)
            if change.fired or change.resolved:
                await self.write(lambda store, about=about, change=change: self._note(store, about, change, look.names))

    def _note(self, store: Store, about: str, change: Change, names: dict[str, str]) -> None:
        with store.batch():
            for one in change.fired:
                data: JsonObject = {
                    "rule": one.rule,
                    "subject": one.subject,
                    "severity": str(one.severity),
                    "message": one.message,
                    "run_name": names.get(about),
                }
                store.note(about, FIRED, data)
            for number in change.resolved:
                store.note(about, RESOLVED, {"alert": number})

    async def _deliver(self) -> None:
        """Send what waits to every channel; each is tried again by itself."""
        courier = Courier(self.settings.alerts)
        if not courier.channels:
            return
        alerts = await self.readers.call(lambda store: fold(store.alert_events()))
        for alert, what in _outbox(alerts):
            for channel in courier.channels:
                if any(sent["channel"] == channel and sent["what"] == what for sent in alert["delivered"]):
                    continue
                if courier.is_quiet(alert["severity"], time.localtime()):
                    continue
                await self._send(courier, alert, what, channel)

    async def _send(self, courier: Courier, alert: JsonObject, what: str, channel: str) -> None:
        key = (alert["id"], what, channel)
        times, not_before = self._tries.get(key, (0, 0.0))
        if time.monotonic() < not_before:
            return
        error = await anyio.to_thread.run_sync(courier.send, channel, message_of(alert, what))
        if error is None:
            self._tries.pop(key, None)
            data = {"alert": alert["id"], "what": what, "channel": channel}
            await self.write(lambda store: store.note(alert["about"], DELIVERED, data))
        else:
            pause_s = min(_LONGEST_S, _RETRY_S * 2.0**times)
            self._tries[key] = (times + 1, time.monotonic() + pause_s)
            self.notice(f"alerts: {channel} did not take an alert ({error}); again in {pause_s:.0f} s")


def _outbox(alerts: dict[int, JsonObject]) -> list[tuple[JsonObject, str]]:
    """Alerts and what is to be told of each. What was resolved before it could be told is still told, in order."""
    found: list[tuple[JsonObject, str]] = []
    for alert in alerts.values():
        found.append((alert, "fired"))
        if alert["state"] == "resolved" and alert["rule"] != "finished":
            found.append((alert, "resolved"))
    return found


def _since(facts: RunFacts, begun: float) -> RunFacts:
    """A run that was over before anybody watched is no news."""
    return replace(facts, ended_at=None) if facts.ended_at is not None and facts.ended_at < begun else facts
