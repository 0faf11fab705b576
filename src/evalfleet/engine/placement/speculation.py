"""A second copy of a task on a slow host, when the queue is empty and a worker of another host is free. Off by default.

The first verdict counts, and the other attempt is cancelled; where both come at the same step the original's counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evalfleet.core.gpus.allocation import Grant
from evalfleet.core.placement import Assignment, Slot
from evalfleet.core.speculation import Running, slow_hosts, worth_a_copy
from evalfleet.engine.orders import LiveAttempt
from evalfleet.hosts.base import AttemptEvent
from evalfleet.model import Distribution, Run, Task
from evalfleet.store.store import Store

LOOK_S = 5.0


# A task, its worker and GPUs; and of a copy the number of the attempt that it is made beside.
Chosen = tuple[Task, Assignment, Grant | None, int | None]


class Speculation:
    def __init__(self, store: Store, run: Run) -> None:
        self._store = store
        self._run = run
        policy = run.policy
        self.is_on = policy.speculate and policy.study is None and policy.distribution is Distribution.QUEUE
        self.look_at = 0.0

    def due(self, live: Mapping[str, LiveAttempt]) -> bool:
        """Whether it is time for a look which tasks to double: nothing waits."""
        if not self.is_on or not live or self._store.now() < self.look_at:
            return False
        return not self._store.tasks.waiting(self._run.id, 1)

    def in_order(self, ended: Sequence[AttemptEvent]) -> Sequence[AttemptEvent]:
        """Of two attempts of one task that end at the same step the original comes first: its verdict counts."""
        return sorted(ended, key=lambda one: int(one.attempt_id.rsplit(".", 1)[1])) if self.is_on else ended

    def pick(self, live: Mapping[str, LiveAttempt], free: tuple[list[Slot], int], allowance: int) -> list[Chosen]:
        """What to double now. Looks again after `LOOK_S`: a host is found to be slow while others end.

        Args:
            free: workers without an attempt, and how many of them the run may use.
        """
        now = self._store.now()
        self.look_at = now + LOOK_S
        slots, most = list(free[0]), min(free[1], allowance)
        once = [one for one in live.values() if self._is_alone(one, live) and not one.task.spec.requests.gpus]
        if not once or not slots or most <= 0:
            return []
        shares, usual_s = self._store.attempts.shares(self._run.id)
        running = [
            Running(attempt=one.attempt.id, host=one.attempt.host, share=_elapsed_s(one, now) / usual)
            for one in once
            if (usual := one.task.expected_s or usual_s.get(one.task.spec.domain) or usual_s.get("")) is not None
        ]
        slow, found = slow_hosts(shares), list[Chosen]()
        for one in worth_a_copy(running, shares)[:most]:
            slot = next((slot for slot in slots if slot.host != one.host and slot.host not in slow), None)
            if slot is not None:
                slots.remove(slot)
                task = live[one.attempt].task
                made = Assignment(task=task.number, worker=slot.worker, host=slot.host)
                found.append((task, made, None, live[one.attempt].attempt.number))
        return found

    def _is_alone(self, one: LiveAttempt, live: Mapping[str, LiveAttempt]) -> bool:
        return sum(other.attempt.task_number == one.attempt.task_number for other in live.values()) == 1


def _elapsed_s(live: LiveAttempt, now: float) -> float:
    return max(0.0, now - (live.attempt.ready_at or live.attempt.started_at or live.attempt.claimed_at))
