"""Whole runs in a simulated world: judge, attribution, retry, breaker and placement together, without a clock."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from evalfleet.core.breaker import Breaker
from evalfleet.core.failures.attribution import History, Where, attribute
from evalfleet.core.failures.judge import judge
from evalfleet.core.failures.retry import Fail, Hold, Retry, decide
from evalfleet.core.placement import Candidate, HostRoom, Slot, place
from evalfleet.model import Blame, BreakerState, EndRecord, Failure, Kind, Policy, Verdict

Behaviour = Callable[[int, str], EndRecord]  # (number of the attempt, worker) -> how it ends

OK = EndRecord(cause="exited", exit_code=0, duration_s=3)
HANG = EndRecord(cause="stall", idle_s=10, duration_s=10)
MISSING = EndRecord(
    cause="launch_failed", errno=2, message="[Errno 2] No such file or directory: 'agent'", duration_s=0.01
)


def crash(line: str = "RuntimeError: injected") -> EndRecord:
    return EndRecord(cause="exited", exit_code=1, tail=f"Traceback:\n{line}\n", duration_s=1)


class EmulatorContext:
    """An engine reduced to its decisions."""

    def __init__(
        self,
        tasks: Sequence[Behaviour],
        workers: int,
        *,
        seed: int = 0,
        executables: Sequence[str] = (),
        hosts: int = 1,
    ) -> None:
        self.rng = random.Random(seed)
        self.policy = Policy(attempts=3)
        self.tasks = tasks
        self.executables = list(executables) or ["agent"] * len(tasks)
        self.host_of = {f"w{i}": f"h{i % hosts}" for i in range(workers)}
        self.history = History()
        self.breaker = Breaker()
        self.queue: dict[int, float] = dict.fromkeys(range(1, len(tasks) + 1), 0.0)
        self.attempts = Counter[int]()
        self.consumed = Counter[int]()
        self.lost = Counter[int]()
        self.final: dict[int, Verdict | Failure] = {}
        self.held: dict[int, str] = {}
        self.live: list[tuple[float, int, int, str, float]] = []
        self.free = list(self.host_of)
        self.now = 0.0
        self.quarantined: set[str] = set()

    @property
    def total(self) -> int:
        return self.attempts.total()

    def admit(self) -> None:
        room = min(self.breaker.allowance(self.now, len(self.live)), len(self.free))
        ready = [number for number, at in self.queue.items() if at <= self.now]
        candidates = [Candidate(number=n, failed_on=self.history.failed_on(f"task_{n}")) for n in ready]
        slots = [Slot(worker=worker, host=self.host_of[worker]) for worker in self.free]
        hosts = {host: HostRoom() for host in self.host_of.values()}
        placed = place(
            candidates, slots, hosts, workers=self.host_of, limit=room, fresh_first=self.breaker.prefers_fresh
        )
        for given_ in placed.assignments:
            number = given_.task
            self.attempts[number] += 1
            self.breaker = self.breaker.admitted(f"{number}.{self.attempts[number]}")
            del self.queue[number]
            self.free.remove(given_.worker)
            end = self.tasks[number - 1](self.attempts[number], given_.worker)
            at = self.now + end.duration_s * self.rng.uniform(0.8, 1.2)
            heapq.heappush(self.live, (at, number, self.attempts[number], given_.worker, self.now))

    def end_one(self) -> None:
        self.now, number, attempt, worker, _ = heapq.heappop(self.live)
        self.free.append(worker)
        name, key = f"{number}.{attempt}", f"task_{number}"
        where = Where(task=key, worker=worker, host=self.host_of[worker], executable=self.executables[number - 1])
        judged = judge(self.tasks[number - 1](attempt, worker), self.policy)
        if isinstance(judged, Verdict):
            self.history.add(where, None)
            self.breaker = self.breaker.succeeded(name)
            self.final[number] = judged
            return
        failure = attribute(judged, where, self.history)
        self.history.add(where, failure)
        self.quarantined |= set(self.history.blamed_hosts())
        self.breaker = self.breaker.failed(name, failure, key, self.now)
        (self.consumed if failure.consumes else self.lost)[number] += 1
        match decide(
            failure=failure, consumed=self.consumed[number], lost=self.lost[number], policy=self.policy, now=self.now,
            rng=self.rng,
        ):  # fmt: skip
            case Retry(not_before=at):
                self.queue[number] = at
            case Fail():
                self.final[number] = failure
            case Hold(reason=reason):
                self.held[number] = reason

    def run(self) -> EmulatorContext:
        """Until everything is decided or the breaker gives up and live work is over."""
        for _ in range(100_000):
            self.admit()
            wakes = [at for at in self.queue.values() if at > self.now]
            if self.breaker.next_probe_at is not None and self.breaker.next_probe_at > self.now:
                wakes.append(self.breaker.next_probe_at)
            for _, number, attempt, _, since in self.live:
                self.breaker = self.breaker.ran(f"{number}.{attempt}", since, self.now)
                wakes.append(since + 60)
            soonest = min((at for at in wakes if at > self.now), default=None)
            if self.live and (soonest is None or self.live[0][0] <= soonest):
                self.end_one()
            elif self.breaker.exhausted and not self.live:
                return self
            elif soonest is not None and (self.live or self.queue):
                self.now = soonest
            elif not self.queue and not self.live:
                return self
        raise AssertionError("does not end")


def test_outage_costs_at_most_ten_attempts():
    world = EmulatorContext([lambda _n, _w: MISSING] * 40, workers=10).run()
    assert world.total <= 10
    assert world.breaker.state is BreakerState.OPEN
    assert world.breaker.exhausted
    assert not world.final
    assert not world.held
    assert world.breaker.cause is not None
    assert "No such file or directory: 'agent'" in str(world.breaker.cause)


@settings(max_examples=60, deadline=None)
@given(
    workers=st.integers(1, 40),
    count=st.integers(3, 40),
    seed=st.integers(0, 999),
    seconds=st.sampled_from([0.001, 0.5, 3.0, 20.0]),
    kind=st.sampled_from(["launch", "backend", "import", "keyed", "start"]),
)
def test_every_outage_from_the_start_is_bounded(workers: int, count: int, seed: int, seconds: float, kind: str):
    ends = {
        "launch": EndRecord(cause="launch_failed", message="No such file or directory: 'x'", duration_s=seconds),
        "backend": EndRecord(cause="backend_error", message="no runner: connection refused", duration_s=seconds),
        "import": EndRecord(cause="exited", exit_code=1, tail="ImportError: no torch", duration_s=seconds),
        "start": EndRecord(cause="start_timeout", duration_s=seconds),
    }

    def behaviour(number: int) -> Behaviour:
        keyed = EndRecord(cause="exited", exit_code=1, tail=f"no /mnt/data/task_{number}/in.json", duration_s=seconds)
        return lambda _n, _w: ends.get(kind, keyed)

    world = EmulatorContext([behaviour(number) for number in range(1, count + 1)], workers=workers, seed=seed).run()
    assert world.total <= 10
    assert world.breaker.exhausted
    assert not world.final


@settings(max_examples=60, deadline=None)
@given(at=st.integers(0, 39), workers=st.integers(1, 12), seed=st.integers(0, 999), own=st.booleans())
def test_one_bad_executable_among_good_ones_is_its_own_failure(at: int, workers: int, seed: int, own: bool):
    tasks: list[Behaviour] = [lambda _n, _w: OK] * 40
    tasks[at] = lambda _n, _w: MISSING
    executables = ["agent"] * 40
    if own:
        executables[at] = "missing"
    world = EmulatorContext(tasks, workers=workers, seed=seed, executables=executables).run()
    failure = world.final.pop(at + 1)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.blame) == (Kind.LAUNCH_FAILED, Blame.TASK)
    assert world.attempts[at + 1] == 3
    assert len(world.final) == 39
    assert all(isinstance(verdict, Verdict) for verdict in world.final.values())
    assert world.breaker.state is BreakerState.CLOSED


def fault_mix(line: Callable[[int], str]) -> list[Behaviour]:
    """154 fine, 25 fail once, 6 always fail, 9 hang once, 6 hang always."""
    tasks: list[Behaviour] = [lambda _n, _w: OK] * 154
    tasks += [lambda n, _w, i=i: crash(line(i)) if n == 1 else OK for i in range(25)]
    tasks += [lambda _n, _w, i=i: crash(line(i)) for i in range(6)]
    tasks += [lambda n, _w: HANG if n == 1 else OK] * 9
    tasks += [lambda _n, _w: HANG] * 6
    return tasks


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 9999),
    shuffled=st.booleans(),
    hosts=st.sampled_from([1, 3, 10]),
    line=st.sampled_from(["", "RuntimeError: injected", "KeyError: 'x{}'"]),
)
def test_fault_mix(seed: int, shuffled: bool, hosts: int, line: str):
    tasks = fault_mix(line.format)
    if shuffled:
        random.Random(seed).shuffle(tasks)
    world = EmulatorContext(tasks, workers=10, seed=seed, hosts=hosts).run()
    failures = [end for end in world.final.values() if isinstance(end, Failure)]
    assert len(world.final) - len(failures) == 188
    assert Counter((failure.kind, failure.blame) for failure in failures) == {
        (Kind.BAD_EXIT, Blame.TASK): 6,
        (Kind.STALL, Blame.TASK): 6,
    }
    assert not world.held
    # Of several hosts one may, rarely, be unlucky enough to look bad; the only host of a pool never.
    assert len(world.quarantined) <= (hosts > 1)
    assert world.breaker.state is BreakerState.CLOSED


def test_tasks_that_fail_once_alike_at_the_very_start_do_not_stop_the_run():
    """They look like an outage until one of them is tried again: that is what the second probe does."""
    tasks: list[Behaviour] = [lambda n, _w: crash() if n == 1 else OK] * 25
    world = EmulatorContext([*tasks, *[lambda _n, _w: OK] * 100], workers=10).run()
    assert len(world.final) == 125
    assert all(isinstance(verdict, Verdict) for verdict in world.final.values())


def test_a_bad_host_is_blamed_and_its_tasks_are_not():
    """Everything hangs on w0, the only worker of its host."""
    tasks: list[Behaviour] = [lambda _n, worker: HANG if worker == "w0" else OK] * 40
    world = EmulatorContext(tasks, workers=4, hosts=4).run()
    assert len(world.final) == 40
    assert all(isinstance(verdict, Verdict) for verdict in world.final.values())
    assert world.quarantined == {"h0"}


def test_a_hanging_task_on_a_single_worker_is_told_from_the_worker_by_its_neighbours():
    world = EmulatorContext([lambda _n, _w: HANG, *[lambda _n, _w: OK] * 5], workers=1).run()
    failure = world.final[1]
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.blame) == (Kind.STALL, Blame.TASK)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), workers=st.integers(1, 6), seed=st.integers(0, 99))
def test_every_world_ends_within_the_caps(data: st.DataObject, workers: int, seed: int):
    ends = [OK, HANG, MISSING, crash(), EndRecord(cause="runner_lost"), EndRecord(cause="timeout", duration_s=90),
            EndRecord(cause="exited", exit_code=1, disk_full=True), EndRecord(cause="preempted", duration_s=70)]  # fmt: skip
    choice = st.lists(st.sampled_from(ends), min_size=1, max_size=9)
    plans = data.draw(st.lists(choice, min_size=1, max_size=8))
    tasks: list[Behaviour] = [lambda n, _w, plan=plan: plan[(n - 1) % len(plan)] for plan in plans]
    world = EmulatorContext(tasks, workers=workers, seed=seed).run()
    decided = set(world.final) | set(world.held)
    assert world.breaker.exhausted or decided == set(range(1, len(plans) + 1))
    for number in world.attempts:
        assert world.attempts[number] <= world.policy.attempts + world.policy.max_lost
