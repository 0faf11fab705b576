"""Watches the runs, pools and hosts of a home, and tells when something is wrong.

One server of a home does so at a time. What was told is in the events, so that the next one neither forgets nor repeats; what could not
be delivered or done yet is tried again until it is.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.to_thread
from msgspec import Struct
from msgspec.structs import replace

from evalfleet.config import Settings
from evalfleet.core.alerts.host_checks import host_conditions, pool_conditions, reap_conditions
from evalfleet.core.alerts.rules import NOTICES, Change, Condition, latch
from evalfleet.core.alerts.run_checks import RunFacts, conditions
from evalfleet.daemon.alerts.actions import Remedies
from evalfleet.daemon.alerts.outbox import Outbox
from evalfleet.daemon.alerts.pool_facts import Idleness, host_facts, pool_facts, reap_facts
from evalfleet.daemon.alerts.run_facts import active_runs, facts_of
from evalfleet.daemon.alerts.state import FIRED, HOME, RESOLVED, fold, limits_of
from evalfleet.daemon.orphans import Orphans
from evalfleet.daemon.readers import Readers
from evalfleet.errors import EvalfleetError
from evalfleet.model import Event, JsonObject
from evalfleet.store.base.store import Store, StoreReader
from evalfleet.store.database.file_lock import FileLock

LOOK_S = 5.0
_SOON_S = 0.5
WATCHED = "alert.watched"
_LOUD = ("run.", "breaker.", "worker.", "pool.", "reap.")  # events after which a look is due at once

_log = logging.getLogger("evalfleet.web")

Write = Callable[[Callable[[Store], Any]], Awaitable[Any]]


class Look(Struct, frozen=True, kw_only=True):
    """What was seen at one moment."""

    alerts: dict[int, JsonObject]
    holding: dict[str, list[Condition]]  # by run, or `pool:NAME`, `host:NAME`, home
    names: dict[str, str]
    over: frozenset[str]  # runs that have ended


class Watch:
    """Used in the event loop's thread. Raises ConfigError where the rules are set in a way that cannot be."""

    def __init__(self, *, settings: Settings, readers: Readers, write: Write, notice: Callable[[str], None]) -> None:
        self._settings = settings
        self._readers = readers
        self._write = write
        self._notice = notice
        self._limits = limits_of(settings.alerts)
        self._idleness = Idleness()
        self._outbox = Outbox(settings.alerts, readers, write, notice)
        self._remedies = Remedies(readers, write, notice)
        self._orphans = Orphans(settings, readers, write, notice)
        self._wake = anyio.Event()

    def look_soon(self, events: list[Event]) -> None:
        if any(event.type.startswith(_LOUD) for event in events):
            self._wake.set()

    async def serve(self) -> None:
        """Watch until cancelled; does nothing while another server of the home does."""
        lock = FileLock(self._settings.home / "locks" / "alerts.lock")
        try:
            while not await anyio.to_thread.run_sync(lock.acquire, 0.0):  # noqa: ASYNC110 - another process has it
                await anyio.sleep(LOOK_S)
            begun = await self._begin()
            async with anyio.create_task_group() as group:
                # A receiver that does not answer, or a controller that does not, holds up no look.
                group.start_soon(self._outbox.serve)
                group.start_soon(self._remedies.serve)
                group.start_soon(self._orphans.serve)
                await self._watch(begun)
        finally:
            lock.close()

    async def _watch(self, begun: float) -> None:
        while True:
            try:
                await self._tell(await self._readers.call(lambda store: self._look(store, begun)))
            except (EvalfleetError, OSError) as error:  # a busy store, a full disk: the next look comes soon
                self._notice(f"alerts: {error}")
            except Exception:  # noqa: BLE001 - the boundary of a service: one odd run must not blind us for all others
                _log.exception("a look for alerts failed")
                self._notice(
                    "alerts: a look failed, which is a mistake of evalfleet; the server's log has the traceback"
                )
            self._outbox.poke()
            self._remedies.poke()
            with anyio.move_on_after(LOOK_S):
                await self._wake.wait()
                await anyio.sleep(_SOON_S)  # what belongs together comes together
            self._wake = anyio.Event()

    async def _begin(self) -> float:
        """Since when this home is watched: what ended before is nobody's news."""
        events = await self._readers.call(lambda store: store.alert_events())
        begun = next((event.at for event in events if event.type == WATCHED), None)
        if begun is not None:
            return begun
        await self._write(lambda store: store.note(HOME, WATCHED, {}))
        return await self._readers.call(lambda store: store.now())

    # Looking, in a thread

    def _look(self, store: StoreReader, begun: float) -> Look:
        limits = self._limits
        alerts = fold(store.alert_events())
        firing = [alert for alert in alerts.values() if alert["state"] == "firing"]
        watched = {alert["about"] for alert in firing}
        holding: dict[str, list[Condition]] = {
            about: [] for about in watched
        }  # what is not there any more is not wrong
        names: dict[str, str] = {}
        over: set[str] = set()
        for run_id in active_runs(store, begun, watched):
            facts = facts_of(store, run_id)
            names[run_id] = facts.name
            holding[run_id] = conditions(_since(facts, begun), limits)
            if facts.ended_at is not None:
                over.add(run_id)
        speed = self._settings.azure_speed or 1.0
        for pool in store.pools():
            seen = pool_facts(store, pool, self._idleness, speed)
            holding[f"pool:{pool.name}"] = pool_conditions(seen, limits)
        full = [(alert["host"], alert["subject"]) for alert in firing if alert["rule"] == "overload"]
        for host in host_facts(store, limits.load_s, full):
            holding[f"host:{host.name}"] = host_conditions(host, limits)
        holding[HOME] = reap_conditions(reap_facts(store.reap_events(), begun), limits)
        return Look(alerts=alerts, holding=holding, names=names, over=frozenset(over))

    # Telling

    async def _tell(self, look: Look) -> None:
        """Write what began to hold, and what holds no more."""
        for about, holding in look.holding.items():
            over = about in look.over
            ours = [alert for alert in look.alerts.values() if alert["about"] == about]
            firing = {(one["rule"], one["subject"]): one["id"] for one in ours if one["state"] == "firing"}
            told = {(one["rule"], one["subject"]) for one in ours if over or one["rule"] in NOTICES}
            change = latch(firing, told, holding, over=over)
            if change.fired or change.resolved:
                await self._write(
                    lambda store, about=about, change=change: self._note(store, about, change, look.names)
                )

    def _note(self, store: Store, about: str, change: Change, names: dict[str, str]) -> None:
        with store.batch():
            for one in change.fired:
                data: JsonObject = {
                    "rule": one.rule,
                    "subject": one.subject,
                    "severity": str(one.severity),
                    "message": one.message,
                    "run_name": names.get(about),
                    "action": str(self._limits.action(one.rule)),
                    "host": one.host,
                    "attempts": list(one.attempts),
                }
                store.note(about, FIRED, data)
            for number in change.resolved:
                store.note(about, RESOLVED, {"alert": number})


def _since(facts: RunFacts, begun: float) -> RunFacts:
    """A run that was over before anybody watched is no news."""
    return replace(facts, ended_at=None) if facts.ended_at is not None and facts.ended_at < begun else facts
