"""A run of tasks that all succeed, played by the rules of `core.placement` and `core.breaker`, without processes."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from evalfleet.core.breaker import Breaker
from evalfleet.core.placement import Candidate, HostRoom, Slot, place

HOST = "local"


def simulated(order: Sequence[int], durations: Mapping[int, float], workers: int, *, fixed: bool = False) -> float:
    """When the last task ends, if each lasts as long as given. `order` is that of the queue."""
    waiting = [Candidate(number=number) for number in order]
    free = [Slot(worker=f"w{index}", host=HOST, index=index) for index in range(workers)]
    live: list[tuple[float, int, Slot, float]] = []
    breaker, now = Breaker(), 0.0
    while waiting or live:
        room = min(len(free), breaker.allowance(now, len(live)))
        placed = place(waiting, free, {HOST: HostRoom()}, limit=room, shards=workers if fixed else None)
        for made in placed.assignments:
            slot = next(slot for slot in free if slot.worker == made.worker)
            free.remove(slot)
            breaker = breaker.admitted(str(made.task))
            heapq.heappush(live, (now + durations[made.task], made.task, slot, now))
        taken = {made.task for made in placed.assignments}
        waiting = [task for task in waiting if task.number not in taken]
        proof = min(since for _, _, _, since in live) + breaker.limits.slow_start_s
        if not breaker.healthy and proof < live[0][0]:
            now = proof
            for _, number, _, since in live:
                breaker = breaker.ran(str(number), since, now)
            continue
        now, number, slot, _ = heapq.heappop(live)
        breaker = breaker.succeeded(str(number))
        free.append(slot)
    return now
