"""Shares the slots of this host among the runs of this runner and of all other runners on the host.

A run says how many slots it could use in total; that many are kept for it as they become free and its turn comes. A launch takes a
kept slot, or waits for one. Turns are by run: a run that was served goes to the end of the queue, so that a run with many tasks and
one with few get slots in turn. A slot never stays free for a run that does not take it: each run in the queue may take it a moment
later than the one before.
"""

from __future__ import annotations

import time

from .. import jsontext
from .slot_locks import SlotLocks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Protocol

    from ..loop import Loop, Timer
    from ..protocol import ClientConnection
    from .slot_locks import HeldSlot, SlotTicket

    class Named(Protocol):
        @property
        def run(self) -> str: ...


LOOK_S = 0.2  # how often who waits looks whether another runner's slot is free
PASS_S = 1.0  # how much longer than the one before it each one in the line leaves a free slot alone
MOST_PASSES = 5  # so that many tickets give a run no advantage
SEEN_S = 1.0  # how old the count of other runners' slots may be
KEPT_S = 5.0  # how long a slot is kept for a run that starts nothing, while others wait


class SlotLease:
    """The slot of one attempt: `begin`, then `go` is called sooner or later; `give_back` ends it at any time."""

    def __init__(self, slots: HostSlots, run: str, limit: int, go: Callable[[int], None]) -> None:
        self._slots = slots
        self.run = run
        self.limit = limit
        self.go = go
        self.slot: HeldSlot | None = None

    def begin(self) -> None:
        self._slots.begin(self)

    def give_back(self) -> None:
        self._slots.give_back(self)


class RunSlots:
    """The slots and demand of one run on this host."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.limit = 0  # how many slots the host has, as the run's home counts
        self.wanted = 0  # in all
        self.used = 0  # by attempts
        self.kept: list[HeldSlot] = []
        self.kept_at = 0.0
        self.waiting: list[SlotLease] = []
        self.ticket: SlotTicket | None = None
        self.connection: ClientConnection | None = None
        self.told: dict[str, Any] = {}

    @property
    def needs(self) -> bool:
        room = self.limit - self.used - len(self.kept)
        return room > 0 and max(len(self.waiting), self.wanted - self.used) > len(self.kept)

    @property
    def is_over(self) -> bool:
        return not (self.wanted or self.used or self.waiting or self.connection)


class HostSlots:
    """All slots of a runner. Used in the loop's thread; no method waits."""

    def __init__(self, loop: Loop, spool: str, live: Mapping[str, Named]) -> None:
        """
        Args:
            live: the live attempts.
        """
        self._loop = loop
        self._locks = SlotLocks(spool)
        self._live = live
        self._lines: dict[str, RunSlots] = {}
        self._timer: Timer | None = None
        self._seen: dict[int, tuple[float, tuple[int, list[str]]]] = {}  # what others had, by limit, and when
        self._free_since: float | None = None  # since when a run ahead in the queue has left a free slot unused

    def touch(self) -> None:
        self._locks.touch()

    @property
    def descriptors(self) -> list[int]:
        return self._locks.descriptors

    def want(self, connection: ClientConnection, run: str, limit: int, wanted: int) -> dict[str, Any]:
        """Set how many slots a run could use in total. Returns the run's slots, and reports them whenever they change."""
        line = self._line(run, limit)
        line.connection, line.wanted = connection, wanted
        self._serve()
        line.told = self._standing(line)
        return line.told

    def leave(self, connection: ClientConnection) -> None:
        """The controller that asked is gone: release the slots kept for its run. Waiting attempts still wait."""
        for line in list(self._lines.values()):
            if line.connection is connection:
                line.connection, line.wanted = None, 0
                self._serve()

    def lease(self, run: str, limit: int, go: Callable[[int], None]) -> SlotLease:
        """A slot for an attempt, not begun. `go` is called with the open file that its process inherits."""
        return SlotLease(self, run, limit, go)

    def begin(self, lease: SlotLease) -> None:
        self._line(lease.run, lease.limit).waiting.append(lease)
        self._serve()

    def give_back(self, lease: SlotLease) -> None:
        line = self._lines.get(lease.run)
        if line is None:
            return
        if lease in line.waiting:
            line.waiting.remove(lease)
        if lease.slot is not None:
            self._locks.drop(lease.slot)
            lease.slot = None
            line.used -= 1
        self._serve()

    def _line(self, run: str, limit: int) -> RunSlots:
        line = self._lines.setdefault(run, RunSlots(run))
        line.limit = limit
        return line

    def _serve(self) -> None:
        """Hand out free slots in turn; then queue the runs that must wait, and report the changes."""
        for line in self._lines.values():
            self._trim(line)
        served: set[str] = set()
        while self._serve_one(served):
            pass
        needy = [line for line in self._lines.values() if line.needs]
        for line in sorted(needy, key=lambda each: each.run in served):  # runs that got nothing come first
            if line.ticket is None:
                line.ticket = self._locks.join_queue(line.run)
        for line in list(self._lines.values()):
            if line.ticket is not None and not line.needs:
                self._leave_line(line)
            if line.is_over:
                del self._lines[line.run]
            else:
                self._tell(line)
        waits = needy or any(line.kept for line in self._lines.values())
        if waits and self._timer is None:
            self._timer = self._loop.at(time.monotonic() + LOOK_S, self._look)

    def _look(self) -> None:
        self._timer = None
        self._serve()

    def _trim(self, line: RunSlots) -> None:
        """Start waiting attempts on kept slots; release kept slots that are not wanted, or not used while others wait."""
        while line.kept and line.waiting:
            self._start(line, line.kept.pop())
        idle = bool(line.kept) and time.monotonic() - line.kept_at > KEPT_S and self._others_wait(line)
        while line.kept and (idle or line.used + len(line.kept) > line.wanted):
            self._locks.drop(line.kept.pop())
        if idle and line.ticket is None:
            line.ticket = self._locks.join_queue(line.run)

    def _others_wait(self, line: RunSlots) -> bool:
        return any(line.ticket is None or name != line.ticket.name for name in self._locks.line())

    def _serve_one(self, served: set[str]) -> bool:
        needy = [line for line in self._lines.values() if line.needs]
        if not needy:
            self._free_since = None
            return False
        queue = self._locks.line()
        for line in needy:
            if line.ticket is not None and line.ticket.name not in queue:
                self._leave_line(line)  # its file was cleaned up; the run gets another ticket
        places = {name: place for place, name in enumerate(queue)}
        passed = 0.0 if self._free_since is None else time.monotonic() - self._free_since
        found_free = False

        def place(line: RunSlots) -> int:
            return len(queue) if line.ticket is None else places[line.ticket.name]

        for line in sorted(needy, key=place):
            if passed < min(place(line), MOST_PASSES) * PASS_S:
                found_free = found_free or self._locks.others(line.limit)[0] < line.limit - self._own(line)
                continue
            slot = self._locks.take(line.limit, line.run)
            if slot is not None:
                self._leave_line(line)
                served.add(line.run)
                self._free_since = None
                if line.waiting:
                    self._start(line, slot)
                else:
                    line.kept.append(slot)
                    line.kept_at = time.monotonic()
                return True
        if not found_free:
            self._free_since = None
        elif self._free_since is None:
            self._free_since = time.monotonic()
        return False

    def _own(self, line: RunSlots) -> int:
        """How many of the first slots this runner holds, over all runs."""
        return sum(1 for slot in self._locks.numbers if slot <= line.limit)

    def _leave_line(self, line: RunSlots) -> None:
        if line.ticket is not None:
            self._locks.leave_queue(line.ticket)
            line.ticket = None

    def _start(self, line: RunSlots, slot: HeldSlot) -> None:
        lease = line.waiting.pop(0)
        lease.slot = slot
        line.used += 1
        self._loop.at(0.0, lambda: lease.go(slot.fd) if lease.slot is slot else None)

    def _standing(self, line: RunSlots) -> dict[str, Any]:
        """``free``: kept for the run; ``live``: its attempts that the runner knows of; ``others``: slots that are not this run's."""
        foreign, who = self._seen_others(line.limit) if line.needs else (0, [])
        who = list(who)
        for other in self._lines.values():
            mine = other.used + len(other.kept)
            if other is not line and mine and line.needs:
                foreign += mine
                who.append("run %s" % other.run)
        return {
            "slots": line.limit,
            "free": len(line.kept),
            "live": sorted(name for name, attempt in self._live.items() if attempt.run == line.run),
            "others": min(foreign, line.limit),
            "by": sorted(set(who))[:4],
            "trouble": self._locks.trouble if line.needs else None,
        }

    def _seen_others(self, limit: int) -> tuple[int, list[str]]:
        seen = self._seen.get(limit)
        if seen is None or time.monotonic() - seen[0] > SEEN_S:
            seen = self._seen[limit] = (time.monotonic(), self._locks.others(limit))
        return seen[1]

    def _tell(self, line: RunSlots) -> None:
        if line.connection is None:
            return
        standing = self._standing(line)
        if standing != line.told:
            line.told = standing
            line.connection.send(jsontext.encode(dict(standing, notice="slots", run=line.run)))
