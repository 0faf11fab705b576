"""Requests slots from hosts that count their slots over all runs, homes and users."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from evalfleet.core.shares.rule import Standing
from evalfleet.engine.attempts.live import LiveAttempts
from evalfleet.engine.placement.fair_share import FairShare
from evalfleet.engine.placement.quotas import RunQuotas
from evalfleet.engine.placement.workers import WorkerTable
from evalfleet.hosts.base import HostInfo, SlotReport
from evalfleet.model import Run
from evalfleet.store.store import Store

_MOST = 64  # asked for at a time


class SharedSlots:
    """A host keeps the slots that the run says it could use; see `SlotReport`. Used inside the dispatcher's steps."""

    def __init__(self, store: Store, run: Run, workers: WorkerTable, quotas: RunQuotas) -> None:
        self._store = store
        self._run = run
        self._workers = workers
        self.share = FairShare(store, run, quotas.given)
        self._quotas = quotas
        self._rooms: dict[str, SlotReport | None] = {}  # as they were at the last step
        self._wants: dict[str, int] = {}  # at the last step
        self._terms: object = None  # what those of all hosts followed from
        self._moved: set[str] = set()  # hosts that reported other slots since then
        self._waits: str | None = None  # its last event
        self._named: tuple[int, int, int | None] | None = None  # the share that its last event named
        self._troubles: set[str] = set()  # reported problems: each once, because it may last
        self.look_at = inf  # when a task falls due that needs a slot then

    def moved(self, hosts: Sequence[HostInfo]) -> bool:
        """Whether the slots of a host changed since the last step."""
        rooms = {host.name: host.room for host in hosts}
        before, self._rooms = self._rooms, rooms
        if rooms.keys() != before.keys():
            self._terms = None
            return True
        moved = {name for name, room in rooms.items() if before[name] is not room}
        self._moved |= moved
        return any(before[name] != rooms[name] for name in moved)

    def wants(self, hosts: Sequence[HostInfo], live: LiveAttempts, more: Callable[[], int]) -> dict[str, int]:
        """How many slots the run could use now on each of these hosts that counts them.

        Args:
            hosts: those of the last call of `moved`.
            more: how many attempts could be started now, if there were slots.
        """
        self.look_at = self._quotas.look_at
        counting = [host for host in hosts if host.room is not None]
        most = min(more(), _MOST)
        quota = self._quotas.waits if self._quotas.waits is not None and self._waits_for_quota() else None
        if not counting:
            self._say([], [quota], None, is_waiting=False)
            return {}
        due = self._due(most) if most > 0 else 0
        serving = {host.name for host in self._workers.serving(counting)} if due else set[str]()
        room = self.share.room(lambda: self._capacity(counting), len(live), due)
        self.look_at = min(self.look_at, self.share.look_at)
        may = due if room is None else min(due, max(0, room))
        excess = 0 if room is None else max(0, -room)
        terms = may, excess, serving, self._workers.version
        if terms == self._terms:
            changed = self._moved | live.moved
            counting_again = [host for host in counting if host.name in changed]
        else:
            self._wants, counting_again = {}, counting
        for host in counting_again:
            besides = may if host.name in serving else 0
            could = min(self._workers.slots(host.name), _ours(host, live) + besides)
            self._wants[host.name] = max(0, could - excess)  # so that a slot that becomes free goes to another run
        self._terms = terms
        self._moved.clear()
        live.moved.clear()
        share = self.share.standing if due > may else None
        self._say(counting, [share and share.words, quota], share, is_waiting=may > 0 or (due > 0 and share is None))
        return dict(self._wants)

    def _capacity(self, counting: Sequence[HostInfo]) -> int:
        """The slots of all hosts that get work."""
        return sum(self._workers.slots(host.name) for host in self._workers.serving(counting))

    def _waits_for_quota(self) -> bool:
        return self._store.tasks.due(self._run.id, 1) > 0

    def _due(self, most: int) -> int:
        found = self._store.tasks.due(self._run.id, most)
        if found < most:
            self.look_at = min(self.look_at, self._store.tasks.next_due(self._run.id) or inf)
        return found

    def _say(
        self, hosts: Sequence[HostInfo], why: Sequence[str | None], share: Standing | None, *, is_waiting: bool
    ) -> None:
        """Record when the run begins and ends to wait for slots that others have, or for its share or a quota: `why`."""
        if not is_waiting and self._waits is None and not any(why):
            return
        rooms = [(host.name, host.room) for host in hosts if host.room is not None]
        reasons = [reason for reason in why if reason is not None]
        if is_waiting and not any(room.free for _, room in rooms):
            reasons += [_words(name, room) for name, room in rooms if room.others or room.trouble]
        waits = "; ".join(reasons) or None
        troubles = {f"{name}: {room.trouble}" for name, room in rooms if room.trouble is not None}
        named = None if share is None else (share.share, share.slots, share.first)
        is_new = (waits is None) != (self._waits is None) or named != self._named
        if is_new or (waits is not None and troubles - self._troubles):
            self._troubles |= troubles
            what = "worker.granted" if waits is None else "worker.awaited"
            self._store.events.note(self._run.id, what, {} if waits is None else {"reason": waits})
        self._waits, self._named = waits, named


def _ours(host: HostInfo, live: LiveAttempts) -> int:
    """How many attempts of the run are there, or on their way."""
    known = host.room.live if host.room is not None else frozenset[str]()
    return len(known) + sum(one not in known for one in live.at(host.name))


def _words(host: str, room: SlotReport) -> str:
    used = [f"{room.others} in use by {', '.join(room.by) or 'others'}"] if room.others else []
    return f"{host}: {', '.join([*used, *([room.trouble] if room.trouble is not None else [])])}"
