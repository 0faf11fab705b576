"""How many slots a run may hold where several runs want the slots of one pool: `core.shares.rule`, with what the store knows.

Each controller says what its run could use, and reads what the others said, at most twice a second. A run that is alone pays for a row
every few seconds. A slot that stays free although another run may have it is lent: its
controller is dead, or it has no task that fits.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from math import inf

from evalfleet.core.shares.quota import ShareRule, Subject, merged, weights_of
from evalfleet.core.shares.rule import Group, Standing, Weights, standing
from evalfleet.model import Run
from evalfleet.store.shares.shares import PoolRun
from evalfleet.store.store import Store

LOOK_S = 0.5
SAY_S = 5.0  # how often an unchanged demand is said again
LEND_S = 2.0  # how long a slot that others may have must have been free
_MANY = 1 << 30
_SHARE_OF_TIME = 20  # a look may take this part of the time until the next


class FairShare:
    """Used inside the dispatcher's steps."""

    def __init__(self, store: Store, run: Run, rules: tuple[ShareRule, ...]) -> None:
        self._store = store
        self._run = run
        self._rules = rules
        self._pool = run.policy.pool or f"local@{socket.gethostname()}"
        self._others: list[PoolRun] = []
        self._weights = Weights()
        self._used: dict[tuple[str, str], float] = {}
        self._look_at = 0.0
        self._said: tuple[int, int] | None = None  # demand and priority
        self._say_at = 0.0
        self._waits_since: float | None = None
        self._free_since: float | None = None
        self.standing: Standing | None = None  # None: no other run wants slots of the pool
        self.look_at = inf  # when there may be news

    def amend(self, run: Run) -> None:
        self._run = run
        self._look_at = 0.0

    def room(self, capacity: Callable[[], int], live: int, due: int) -> int | None:
        """How many more slots the run may take now; below 0: it has that many too many. None: no other run wants any.

        Args:
            capacity: the slots of all hosts of the pool.
            live: attempts of the run.
            due: tasks that could start now.
        """
        now = self._store.now()
        if not due and not self._others and self._said in (None, (0, self._run.policy.priority)):
            self.look_at = inf
            return None
        self._note_wait(now, is_waiting=live == 0 and due > 0)
        if now >= self._look_at:
            self._look(now, live + due if due else 0)
        self.look_at = self._look_at if self._others else self._say_at if due else inf
        if not any(run.wanted or run.live for run in self._others):
            self.standing, self._free_since = None, None
            return None
        slots = capacity()
        groups, own = self._groups(live, due, now)
        self.standing = standing(slots, groups, own, self._weights)
        return max(self.standing.room, self._lent(slots - sum(group.live for group in groups), due, now))

    def used(self, seconds: float) -> None:
        """An attempt of the run ended. Counted only while others want slots."""
        if self.standing is not None:
            self._store.shares.add_use(self._run, seconds)

    def _note_wait(self, now: float, *, is_waiting: bool) -> None:
        if not is_waiting:
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = now

    def _look(self, now: float, wanted: int) -> None:
        begun = time.monotonic()
        said = (wanted, self._run.policy.priority)
        if said != self._said or (wanted and now >= self._say_at):
            self._store.shares.publish(self._run, self._pool, wanted, self._waits_since)
            self._said, self._say_at = said, now + SAY_S
        self._others = self._store.shares.on_pool(self._pool, self._run.id)
        if self._others:
            rules = merged(self._rules, self._store.shares.rules())
            self._weights = Weights(users=weights_of(rules, Subject.USER), projects=weights_of(rules, Subject.PROJECT))
            self._used = dict(self._store.shares.slot_use())
        self._look_at = now + max(LOOK_S, (time.monotonic() - begun) * _SHARE_OF_TIME)

    def _groups(self, live: int, due: int, now: float) -> tuple[list[Group], int]:
        """All that share the pool, in an order that is the same for every controller, and the place of the run's own."""
        run = self._run
        own_key = (run.owner, run.project, run.policy.priority)
        waits_s = 0.0 if self._waits_since is None else now - self._waits_since
        rows = [(own_key, live, live + due, waits_s)]
        used = dict(self._used)
        for other in self._others:
            waited = 0.0 if other.waits_since is None else now - other.waits_since
            rows.append(((other.owner, other.project, other.priority), other.live, other.wanted, waited))
            used[other.owner, other.project] = used.get((other.owner, other.project), 0.0) + other.used_s
        keys = sorted({key for key, *_ in rows})
        groups = [_group(key, [row[1:] for row in rows if row[0] == key], used.get(key[:2], 0.0)) for key in keys]
        return groups, keys.index(own_key)

    def _lent(self, free: int, due: int, now: float) -> int:
        """Slots that have been free for a while, though others may have them."""
        if free <= 0 or not due:
            self._free_since = None
            return -_MANY
        if self._free_since is None:
            self._free_since = now
        return free if now - self._free_since >= LEND_S else -_MANY


def _group(key: tuple[str, str, int], runs: Iterable[tuple[int, int, float]], used_s: float) -> Group:
    runs = list(runs)
    return Group(
        user=key[0],
        project=key[1],
        priority=key[2],
        live=sum(live for live, _, _ in runs),
        wanted=sum(wanted for _, wanted, _ in runs),
        used_s=used_s,
        waits_s=max(waits for _, _, waits in runs),
    )
