"""What is done about alerts besides telling people: the actions of rules, each once, by "alert RULE", and as events.

An alert's event names its action; what was done is another event. So a process that dies between them leaves nothing undone, and every
step may be taken again. Restarting a worker takes two steps, the second one when the first is done.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import anyio
from msgspec import Struct

from evalfleet.answers.alerts import Alert
from evalfleet.core.alerts.rules import Action
from evalfleet.daemon.alerts.access import Access, Claim
from evalfleet.daemon.alerts.state import ACTED, fold
from evalfleet.errors import EvalfleetError, NotFound
from evalfleet.model import DesiredState, HostState, JsonObject, PoolHost, Verb
from evalfleet.operations.runs.request import ask_or_do
from evalfleet.store.reader import StoreReader
from evalfleet.store.store import Store

_LOOK_S = 5.0


class Step(Struct, frozen=True, kw_only=True):
    """One thing to do about an alert. A later step with another name follows it, or none."""

    alert: Alert
    name: str
    act: Callable[[Store, Alert], JsonObject]


class ActionQueue:
    """Used in the event loop's thread."""

    def __init__(self, access: Access, claim: Claim) -> None:
        self._access = access
        self._claim = claim
        self._poked = anyio.Event()

    def poke(self) -> None:
        """Something may have been fired."""
        self._poked.set()

    async def serve(self) -> None:
        """Do what is to be done until cancelled."""
        while True:
            try:
                await self.take_due()
            except (EvalfleetError, OSError) as error:  # the store is busy, the disk is full
                self._access.notice(f"alerts: {error}")
            with anyio.move_on_after(_LOOK_S):
                await self._poked.wait()
            self._poked = anyio.Event()

    async def take_due(self) -> None:
        """Take the next step of every alert that has one."""
        for step in await self._access.read(due):
            if not await self._claim.hold():
                return
            await self._access.write(partial(_take, step, self._access.notice))


def _take(step: Step, notice: Callable[[str], None], store: Store) -> None:
    alert = step.alert
    data: JsonObject = {"alert": alert.id, "action": alert.action, "step": step.name, "by": _by(alert)}
    try:
        data |= step.act(store, alert)
    except EvalfleetError as error:  # it cannot be done, and will not be by trying again: a person is told of the alert
        data["error"] = str(error)
    store.events.note(alert.about, ACTED, data)
    notice(f"alerts: {_by(alert)}: {step.name} {data.get('error') or 'done'}")


def due(store: StoreReader) -> list[Step]:
    """The next step of every alert that has one."""
    found: list[Step] = []
    for alert in fold(store.events.alerts()).values():
        if alert.action != Action.NOTIFY:
            step = _next(store, alert)
            if step is not None:
                found.append(step)
    return found


def _next(store: StoreReader, alert: Alert) -> Step | None:
    taken = [one.step for one in alert.acted if one.error is None]
    if any(one.error for one in alert.acted):
        return None
    if not taken:
        return _first(store, alert) if alert.state == "firing" else None
    last = taken[-1]
    if last == "stop":
        row = _rented(store, alert.host)
        is_off = row is not None and row.state is HostState.STOPPED and row.desired is DesiredState.STOPPED
        return Step(alert=alert, name="start", act=_start) if is_off else None
    if last == "quarantine" and alert.state == "resolved":
        return Step(alert=alert, name="unquarantine", act=_unquarantine)
    return None


def _first(store: StoreReader, alert: Alert) -> Step | None:
    match alert.action:
        case Action.PAUSE:
            return Step(alert=alert, name="pause", act=_pause)
        case Action.RETRY:
            return Step(alert=alert, name="withdraw", act=_withdraw) if alert.attempts else None
        case Action.RESTART if _rented(store, alert.host) is not None:
            return Step(alert=alert, name="stop", act=_stop)
        case Action.RESTART:
            return Step(alert=alert, name="quarantine", act=_quarantine)
        case _:
            return None


def _by(alert: Alert) -> str:
    return f"alert {alert.rule}"


def _steer(store: Store, run_id: str, alert: Alert, verb: Verb, args: JsonObject) -> JsonObject:
    owned, answer = ask_or_do(store, store.runs.get(run_id), verb, args, by=_by(alert))
    if owned is not None:
        store.runs.leave(owned)
    return answer


def _pause(store: Store, alert: Alert) -> JsonObject:
    _steer(store, alert.about, alert, Verb.PAUSE, {"reason": f"{_by(alert)}: {alert.message}"})
    return {}


def _withdraw(store: Store, alert: Alert) -> JsonObject:
    args = {"attempts": alert.attempts, "reason": f"{_by(alert)}: {alert.message}"}
    return {"attempts": _steer(store, alert.about, alert, Verb.WITHDRAW, args).get("attempts", [])}


# A worker that is restarted


def _rented(store: StoreReader, host: str | None) -> PoolHost | None:
    """The machine that we made, where it is one."""
    rows = (row for pool in store.pools.all() for row in store.hosts.of_pool(pool.name))
    return next((row for row in rows if row.name == host), None)


def _stop(store: Store, alert: Alert) -> JsonObject:
    return _set_desired(store, alert, DesiredState.STOPPED)


def _start(store: Store, alert: Alert) -> JsonObject:
    return _set_desired(store, alert, DesiredState.RUNNING)


def _set_desired(store: Store, alert: Alert, desired: DesiredState) -> JsonObject:
    row = _rented(store, alert.host)
    if row is None:
        raise NotFound(f"the machine {alert.host} no longer exists")
    store.hosts.set_desired(row.pool, [row.name], desired, _by(alert))
    return {"host": row.name, "pool": row.pool}


def _quarantine(store: Store, alert: Alert) -> JsonObject:
    """In every run that uses it: a machine that evalfleet may not stop at least gets no more work."""
    args = {"worker": alert.host, "reason": _by(alert)}
    runs = _using(store, alert)
    if not runs:
        raise NotFound(f"no run uses {alert.host} now")
    for run_id in runs:
        _steer(store, run_id, alert, Verb.QUARANTINE, args)
    return {"host": alert.host, "runs": runs}


def _unquarantine(store: Store, alert: Alert) -> JsonObject:
    """Lift an automatic quarantine when the host recovers; what a person did meanwhile is kept."""
    for run_id in _using(store, alert):
        barred_by_us = [
            event.data.get("reason") == _by(alert)
            for event in store.events.quarantines(run_id)
            if event.data.get("worker") == alert.host
        ]
        if barred_by_us and barred_by_us[-1]:
            _steer(store, run_id, alert, Verb.UNQUARANTINE, {"worker": alert.host, "reason": "it is well again"})
    return {"host": alert.host}


def _using(store: StoreReader, alert: Alert) -> list[str]:
    """The runs that are not over and use the host: the one that the alert is about, or all."""
    if alert.run is not None:
        return [] if store.runs.get(alert.run).state.is_over else [alert.run]
    rows = store.runs.page(limit=1000, states=["running", "paused"])
    return [row["run"].id for row in rows if alert.host in store.attempts.hosts(row["run"].id)]
