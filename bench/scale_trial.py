"""One trial of `scale`, in a process of its own, so that its memory and CPU time are its own: prints its figures as JSON.

python bench/scale_trial.py HOME '{"hosts": 100, "slots": 10, "runs": 1, "finished": 0, "ends": 2000}'
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # for what measurements share with the tests

from measuring import peak_mb
from tests.support.finished_tasks import add_finished
from tests.support.simulated_fleet import SimulatedFleet, SimulatedRun

from evalfleet.engine.orders import Mode
from evalfleet.model import Policy, TaskSpec
from evalfleet.store.open import open_store
from evalfleet.testing.clock import FakeClock

LASTS_S = (300.0, 900.0)
_FULL = 0.9  # of the slots in use: from then on steps are counted


class Costs:
    """What steps cost: CPU and wall time of each, and from an end to the next start on that host, in milliseconds."""

    def __init__(self) -> None:
        self.cpu: list[float] = []
        self.wall: list[float] = []
        self.end_to_start: list[float] = []
        self.store: list[float] = []  # CPU of what the collectors store after a step
        self.renewals: list[float] = []
        self.decisions = 0
        self.wants = 0  # messages to hosts: so many slots could be used
        self.spent = 0.0  # CPU of all steps so far

    def told(self) -> dict[str, object]:
        shares = {"p50": 0.5, "p95": 0.95, "max": 1.0}
        lists = {"cpu": self.cpu, "wall": self.wall, "end_to_start": self.end_to_start, "store": self.store}
        lists["renewals"] = self.renewals
        found = {name: {what: _at(values, share) for what, share in shares.items()} for name, values in lists.items()}
        a_second = self.decisions / (sum(self.cpu) / 1000) if self.cpu else 0.0
        return {**found, "steps": len(self.cpu), "decisions": self.decisions, "a_cpu_s": a_second, "wants": self.wants}


def _at(values: list[float], share: float) -> float:
    ordered = sorted(values) or [0.0]
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


class Trial:
    """Runs on a simulated fleet, stepped in turn in one process; each has a connection of its own to the store."""

    def __init__(self, home: Path, *, hosts: int, slots: int, runs: int, finished: int, ends: int, steps: int) -> None:
        self._clock = FakeClock(time.time())  # ids of runs are of their time
        self._home = home
        self._ends, self._most_steps = ends, steps
        self._fleet = SimulatedFleet(self._clock, hosts, slots, lambda rng: rng.uniform(*LASTS_S))
        self._slots = hosts * slots
        self._stores = [open_store(home, self._clock) for _ in range(runs)]
        workers = self._slots // runs
        self.costs = Costs()
        self._ended_at: dict[str, list[float]] = {}  # CPU time at the end of an attempt, by host, without a start since
        seconds = {"seed_s": time.process_time()}
        made = [self._submitted(number, workers, ends // runs + 2 * workers) for number in range(runs)]
        if finished:
            self._seed(made[0], finished)
            # What the copies took is not the controller's: count the peak of memory from here.
            self._stores[0].close()
            self._stores[0] = open_store(home, self._clock)
            Path("/proc/self/clear_refs").write_text("5")
        seconds["seed_s"] = time.process_time() - seconds["seed_s"]
        begun = time.process_time()
        self.runs = [
            SimulatedRun(store, store.runs.get(one), self._fleet) for store, one in zip(self._stores, made, strict=True)
        ]
        self.told: dict[str, object] = {**seconds, "take_over_s": (time.process_time() - begun) / runs, "run": made[0]}

    def _submitted(self, number: int, workers: int, tasks: int) -> str:
        specs = (
            TaskSpec(key=f"task-{turn:07}", domain=f"d{turn % 20}", command=("/bin/true",)) for turn in range(tasks)
        )
        policy = Policy(workers=workers)
        return self._stores[number].runs.submit(f"r{number}", policy, specs, folder="/", base_env={}).id

    def _seed(self, run_id: str, finished: int) -> None:
        """Drive one task to its end, and copy it."""
        store = self._stores[0]
        one = SimulatedRun(store, store.runs.get(run_id), SimulatedFleet(self._clock, 1, 1, lambda _: 600.0))
        while not (found := store.tasks.page(run_id, states=["done"], limit=1)):
            one.fleet.happen()
            one.renew()
            if one.is_awake:
                one.deliver(one.step(one.take()))
                if one.dispatcher.live:
                    one.dispatcher.mode = Mode.STOP  # nothing but the first tasks
            else:
                self._clock.advance(max(0.0, min(one.fleet.next_at, one.next_at) - self._clock()))
        store.runs.leave(one.run)
        add_finished(store, run_id, found[0]["number"], finished)

    def drive(self) -> None:
        """Fill all slots, then let attempts end and others start until there are enough ends."""
        left, steps = self._ends, 0
        while left > 0 and steps < self._most_steps and not all(one.is_over for one in self.runs):
            self._fleet.happen()
            awake = [one for one in self.runs if one.is_awake]
            if not awake:
                due = min(self._fleet.next_at, *(one.next_at for one in self.runs))
                self._clock.advance(max(0.0, due - self._clock()))
            for one in awake:
                is_full = sum(len(each.dispatcher.live) for each in self.runs) >= _FULL * self._slots
                ended = self._step(one, counts=is_full)
                left -= ended if is_full else 0
                steps += is_full
            for one in self.runs:
                begun = time.process_time()
                if one.renew():
                    self.costs.renewals.append((time.process_time() - begun) * 1000)

    def _step(self, one: SimulatedRun, *, counts: bool) -> int:
        seen = one.take()
        hosts = [one.dispatcher.live[each.attempt_id].attempt.host for each in seen if each.type == "ended"]
        cpu, wall = time.process_time(), time.perf_counter()
        for host in hosts:
            self._ended_at.setdefault(host, []).append(self.costs.spent)
        orders = one.step(seen)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        begun = time.process_time()
        self.costs.spent += cpu * 1000
        for host, launches in orders.launch.items():
            waits = self._ended_at.get(host, [])
            for _ in launches[: len(waits)]:
                self.costs.end_to_start.append(self.costs.spent - waits.pop(0))
        told = one.deliver(orders)
        if counts:
            self.costs.wants += told
            self.costs.cpu.append(cpu * 1000)
            self.costs.wall.append(wall * 1000)
            self.costs.decisions += len(hosts) + sum(map(len, orders.launch.values()))
            if orders.collect:
                self.costs.store.append((time.process_time() - begun) * 1000)
        return len(hosts)

    def close(self) -> dict[str, object]:
        self.told |= self.costs.told()
        self.told["live"] = sum(len(one.dispatcher.live) for one in self.runs)
        self.told["rss_mb"] = peak_mb(os.getpid())
        for store in self._stores:
            store.close()
        self.told["store_mb"] = (self._home / "evalfleet.db").stat().st_size / 1e6
        return self.told


def main() -> None:
    random.seed(1)
    trial = Trial(Path(sys.argv[1]), **json.loads(sys.argv[2]))
    trial.drive()
    print(json.dumps(trial.close()))


if __name__ == "__main__":
    main()
