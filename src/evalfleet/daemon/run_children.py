"""Processes that drive runs: one for every queued run without an owner, and for every run that a server was asked to resume.

A server that ends asks its controllers to leave. Their tasks go on, and the next server continues the runs. A controller outlives a
server that is killed; the next server waits for it, and starts another where it ends before the run is over.
"""

from __future__ import annotations

import socket
from collections.abc import Collection
from contextlib import suppress

from msgspec import Struct

from evalfleet.core.shares.order import WaitingRun, in_order
from evalfleet.core.shares.quota import Subject, weights_of
from evalfleet.core.shares.rule import Weights
from evalfleet.daemon.ability import Ability
from evalfleet.daemon.supervisor import Child, Next
from evalfleet.errors import NotFound
from evalfleet.model import PauseCause, Run, RunState
from evalfleet.store.controllers import UntakenRun
from evalfleet.store.reader import StoreReader

_MOMENT_S = 2.0  # an owner that stays longer is a controller
_FIRST_S = 60.0  # before a run that paused by its breaker is tried again; doubles each time
_LONGEST_S = 900.0
_CRASH_S = 5.0
_CRASHES = 5
_INTERRUPTED = 130
_UNKNOWN = -1  # how a process ended that is not our child


class RunStanding(Struct, frozen=True, kw_only=True):
    state: RunState
    cause: str | None = None  # of a pause
    owner: str | None = None
    epoch: int = 0
    unfinished: bool = True  # a controller would have something to do
    lacks: str | None = None  # what this controller lacks to drive it

    @property
    def startable(self) -> bool:
        return self.owner is None and self.unfinished


class RunChildren(Struct, frozen=True, kw_only=True):
    """Implements `ChildKind`."""

    most: int
    ability: Ability
    kind: str = "run"
    stops_with_server: bool = True
    former_file: tuple[str, str] = ("serve.json", "runs")

    def read(self, store: StoreReader, names: Collection[str], room: int) -> dict[str, RunStanding]:
        found: dict[str, RunStanding] = {}
        able = self.ability.look(store)
        for name in names:
            with suppress(NotFound):
                run = store.runs.get(name)
                found[name] = _standing(store, run, able.lacks(run.policy.pool, store.controllers.need(run)))
        for one in _in_turn(store):
            lacks = able.lacks(one.pool, one.need)
            if lacks is not None:
                found.setdefault(one.id, RunStanding(state=RunState.QUEUED, lacks=lacks))
            elif room > 0 and one.id not in found:
                found[one.id] = _standing(store, store.runs.get(one.id))
                room -= found[one.id].startable
        return found

    def lacks(self, state: RunStanding) -> str | None:
        return state.lacks if state.startable else None

    def needed(self, state: RunStanding, now: float) -> Child | None:
        return Child() if state.state is RunState.QUEUED and state.owner is None else None

    def next(self, child: Child, state: RunStanding | None, *, unseen: bool, now: float) -> Next:
        if child.recalled and state is not None and not unseen:
            then = self._outlived(child, state, now)
            if then is not None:
                return then
        brief = state is not None and _is_brief(child, state, now)
        if state is not None and state.owner is not None and not unseen and not brief:
            child.more = False  # its controller came after the request; a pause that follows is meant
        if child.not_before > now:
            return Next.WAIT
        if state is None or not state.startable:
            return Next.WAIT if unseen or brief else Next.FORGET
        return Next.START

    def _outlived(self, child: Child, state: RunStanding, now: float) -> Next | None:
        """A controller that outlived its server is waited for, and its end is treated as that of a child. None: there is none."""
        if state.owner is not None:
            child.owner = (state.epoch, now)
            return Next.WAIT
        if child.owner is None:
            return None
        child.owner, child.recalled = None, False
        delay = self.delay_s(_UNKNOWN, state, child.failures)
        if delay is None:
            return Next.FORGET
        child.not_before = now + delay
        child.failures += 1
        return Next.WAIT

    def delay_s(self, code: int, state: RunStanding, failures: int) -> float | None:
        """A breaker that stays open is probed on, with growing pauses. A controller that crashed is replaced, a few times. What waits
        for a person is left to a person."""
        if state.state.is_over or code == _INTERRUPTED:
            return None
        if state.state is RunState.PAUSED:
            return min(_LONGEST_S, _FIRST_S * 2.0**failures) if state.cause == PauseCause.BREAKER else None
        # A store that could not be reached is a crash, too. So is a run that another process had taken, and that is free again by
        # now: that process may have died meanwhile. What another error says is left to a person.
        if code in (0, 2):
            return None
        return _CRASH_S * 2.0**failures if failures < _CRASHES else None

    def describe(self, state: RunStanding) -> str:
        return str(state.state)

    def arguments(self, name: str, child: Child) -> tuple[str, ...]:
        return ("resume", name, "--stay-paused")

    def log(self, name: str) -> str:
        return f"runs/{name}/controller.log"


def _in_turn(store: StoreReader) -> list[UntakenRun]:
    """Queued runs, first the one that should be driven next: see `core.shares.order`."""
    untaken = {one.id: one for one in store.controllers.untaken()}
    if len(untaken) < 2:
        return list(untaken.values())
    waiting = [
        WaitingRun(id=one.id, user=one.owner, priority=one.priority, created_at=float(place))
        for place, one in enumerate(untaken.values())
    ]
    weights = Weights(users=weights_of(store.shares.rules(), Subject.USER))
    return [untaken[run.id] for run in in_order(waiting, store.controllers.taken_owners(), weights)]


def _standing(store: StoreReader, run: Run, lacks: str | None = None) -> RunStanding:
    return RunStanding(
        state=run.state,
        cause=(run.reason or {}).get("cause"),
        owner=store.runs.driver(run.id),
        epoch=run.epoch,
        unfinished=not run.state.is_over or bool(store.attempts.unended(run.id)),
        lacks=lacks,
    )


def _is_brief(child: Child, state: RunStanding, now: float) -> bool:
    """Whether the owner may leave in a moment, as one that only changes something in the run does: a request waits for that."""
    if state.owner is None:
        return False
    if child.owner is None or child.owner[0] != state.epoch:
        child.owner = (state.epoch, now)
    ours = child.process is not None and state.owner == f"process {child.process.pid} on {socket.gethostname()}"
    return not ours and now - child.owner[1] < _MOMENT_S
