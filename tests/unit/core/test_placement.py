"""Which task goes where."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evalfleet.core.gpus.cards import Card
from evalfleet.core.placement import Candidate, HostRoom, Slot, place
from evalfleet.model import Requests

ONE_HOST = {"h": HostRoom()}


def slots(count: int, host: str = "h") -> list[Slot]:
    return [Slot(worker=f"{host}/{i}", host=host, index=i) for i in range(count)]


def task(number: int, *failed_on: str, gpus: int = 0, memory_mb: int = 0) -> Candidate:
    return Candidate(number=number, requests=Requests(gpus=gpus, memory_mb=memory_mb), failed_on=frozenset(failed_on))


def pairs(*args: object, **more: object) -> list[tuple[int, str]]:
    return [(one.task, one.worker) for one in place(*args, **more).assignments]  # type: ignore[arg-type]


def test_tasks_in_order_slots_in_order():
    assert pairs([task(3), task(1), task(2)], slots(2), ONE_HOST) == [(3, "h/0"), (1, "h/1")]
    assert pairs([], slots(2), ONE_HOST) == []
    assert pairs([task(1)], [], ONE_HOST) == []


def test_the_limit():
    assert len(pairs([task(n) for n in range(1, 9)], slots(8), ONE_HOST, limit=3)) == 3
    assert pairs([task(1)], slots(1), ONE_HOST, limit=0) == []


def test_hosts_take_turns():
    hosts = {"a": HostRoom(), "b": HostRoom()}
    got = pairs([task(n) for n in range(1, 5)], slots(2, "a") + slots(2, "b"), hosts)
    assert [worker for _, worker in got] == ["a/0", "b/0", "a/1", "b/1"]


def test_a_retried_task_takes_another_worker():
    assert pairs([task(1, "h/0")], slots(2), ONE_HOST) == [(1, "h/1")]
    assert pairs([task(1, "h/0"), task(2)], slots(2), ONE_HOST) == [(1, "h/1"), (2, "h/0")]


def test_it_waits_while_there_is_other_work_for_the_slot():
    workers = ["h/0", "h/1"]
    assert pairs([task(1, "h/0"), task(2)], slots(1), ONE_HOST, workers=workers) == [(2, "h/0")]
    assert pairs([task(1, "h/0")], slots(1), ONE_HOST, workers=workers) == [(1, "h/0")]


def test_it_has_no_preference_where_it_failed_everywhere():
    assert pairs([task(1, "h/0"), task(2)], slots(1), ONE_HOST, workers=["h/0"]) == [(1, "h/0")]


def test_fresh_tasks_first_or_last():
    tasks = [task(1, "w9"), task(2), task(3, "w9"), task(4)]
    assert [n for n, _ in pairs(tasks, slots(4), ONE_HOST, fresh_first=True)] == [2, 4, 1, 3]
    assert [n for n, _ in pairs(tasks, slots(4), ONE_HOST, fresh_first=False)] == [1, 3, 2, 4]
    assert [n for n, _ in pairs(tasks, slots(4), ONE_HOST)] == [1, 2, 3, 4]


def cards(count: int) -> tuple[Card, ...]:
    return tuple(Card(host="h", index=index, uuid=f"GPU-{index}", memory_mb=80_000) for index in range(count))


def test_memory_is_shared_and_gpus_bind_a_task_to_their_host():
    hosts = {
        "a": HostRoom(memory_mb=1000, free_memory_mb=700, cards=cards(4)),
        "b": HostRoom(memory_mb=1000, cards=cards(4)),
    }
    granted = replace(task(3, gpus=1, memory_mb=300), host="a")
    tasks = [task(1, memory_mb=500), task(2, memory_mb=500), granted, task(4, gpus=2), replace(granted, number=5)]
    made = place(tasks, [*slots(1, "a"), *slots(9, "b")], hosts).assignments
    # 3 finds its host full, 4 was granted nothing, and neither goes elsewhere.
    assert [(one.task, one.host) for one in made] == [(1, "a"), (2, "b")]
    made = place(tasks[1:], [*slots(2, "a"), *slots(9, "b")], hosts).assignments
    assert [(one.task, one.host) for one in made] == [(2, "a")]
    made = place(tasks[2:], [*slots(9, "a"), *slots(9, "b")], hosts).assignments
    assert [(one.task, one.host) for one in made] == [(3, "a"), (5, "a")]


def test_what_no_host_can_ever_hold():
    hosts = {"a": HostRoom(memory_mb=1000), "b": HostRoom(memory_mb=500, cards=cards(1))}
    tasks = [task(1, memory_mb=1001), task(2, gpus=1, memory_mb=600), task(3, gpus=1), task(4), task(5, gpus=2)]
    got = place(tasks, slots(1, "a"), hosts)
    assert [one.task for one in got.unplaceable] == [1, 2, 5]
    assert "1001 MB" in got.unplaceable[0].reason
    assert "600 MB of memory beside 1 GPU" in got.unplaceable[1].reason
    assert got.unplaceable[2].reason == "asks for 2 GPUs; no host has that much: the most is 1"
    assert [one.task for one in got.assignments] == [4]
    assert not place(tasks, [], {}).unplaceable
    assert [one.task for one in place(tasks[2:3], [], hosts, places=(1,)).unplaceable] == [3]


def test_unknown_memory_is_not_checked():
    assert pairs([task(1, memory_mb=10**9)], slots(1), ONE_HOST) == [(1, "h/0")]


def test_round_robin_never_moves_a_task():
    tasks = [task(n, "h/0") for n in range(1, 10)]
    assert pairs(tasks, slots(4), ONE_HOST, shards=4) == [(1, "h/0"), (2, "h/1"), (3, "h/2"), (4, "h/3")]
    assert pairs(tasks, slots(4)[2:3], ONE_HOST, shards=4) == [(3, "h/2")]
    assert pairs([task(1), task(5)], slots(4)[1:], ONE_HOST, shards=4) == []


@given(
    tasks=st.lists(st.tuples(st.integers(0, 40), st.none() | st.integers(0, 3)), max_size=30),
    rooms=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 5)), min_size=1, max_size=4),
    bad=st.lists(st.integers(0, 5), max_size=3),
    shards=st.none() | st.integers(1, 6),
)
def test_nothing_is_over_committed_lost_or_idle(
    tasks: list[tuple[int, int | None]], rooms: list[tuple[int, int]], bad: list[int], shards: int | None
):
    """A task is memory, and the host that it is bound to by its GPUs, where it has some."""
    hosts = {f"h{i}": HostRoom(memory_mb=m, cards=cards(1)) for i, (m, _) in enumerate(rooms)}
    free = [Slot(worker=f"h{i}/{k}", host=f"h{i}", index=0) for i, (_, n) in enumerate(rooms) for k in range(n)]
    free = [Slot(worker=slot.worker, host=slot.host, index=index) for index, slot in enumerate(free)]
    avoid = frozenset(f"h0/{k}" for k in bad)
    candidates = [
        Candidate(
            number=n,
            requests=Requests(gpus=int(bound is not None), memory_mb=memory),
            failed_on=avoid,
            host=None if bound is None else f"h{bound}",
        )
        for n, (memory, bound) in enumerate(tasks, 1)
    ]
    got = place(candidates, free, hosts, shards=shards)
    numbers = [one.task for one in got.assignments]
    assert len(set(numbers)) == len(numbers)
    assert len({one.worker for one in got.assignments}) == len(numbers)
    assert not set(numbers) & {one.task for one in got.unplaceable}
    for name, room in hosts.items():
        here = [one for one in got.assignments if one.host == name]
        assert all(candidates[one.task - 1].host in (None, name) for one in here)
        taken = sum(tasks[one.task - 1][0] for one in here)
        assert taken <= (room.memory_mb or 0)
        idle = any(slot.host == name and slot.worker not in {one.worker for one in here} for slot in free)
        if shards is None and idle:
            waiting = [one for one in candidates if one.number not in numbers and one.host in (None, name)]
            assert not any(one.requests.memory_mb <= (room.memory_mb or 0) - taken for one in waiting)


def test_a_thousand_by_a_thousand_is_quick():
    hosts = {f"h{i}": HostRoom(memory_mb=64_000, free_memory_mb=900, cards=cards(8)) for i in range(1000)}
    free = [Slot(worker=f"w{i}", host=f"h{i}", index=i) for i in range(1000)]
    tasks = [task(n, f"w{n}", memory_mb=n) for n in range(1, 1001)]
    tasks += [replace(task(n, gpus=n % 5), host=f"h{n - 1001}") for n in range(1001, 2001)]
    began = time.process_time()
    place(tasks, free, hosts)
    assert time.process_time() - began < 0.5  # about 0.01 s; the margin is for slow machines


def test_a_host_that_is_to_be_avoided_is_never_taken():
    slots = [Slot(worker="a-1", host="a")]
    hosts = {"a": HostRoom(), "b": HostRoom()}
    wanted = [Candidate(number=1, failed_on=frozenset({"a-1"}), avoid=frozenset({"a"}))]
    assert place(wanted, slots, hosts, workers=["a-1", "b-1"]).assignments == ()


def test_a_task_that_runs_alone_gets_an_idle_host_and_comes_last():
    slots = [Slot(worker=f"{host}-{turn}", host=host) for host in "ab" for turn in (1, 2)]
    hosts = {"a": HostRoom(is_idle=False), "b": HostRoom()}
    alone = Candidate(number=1, alone=True)
    assert [(made.task, made.host) for made in place([alone], slots, hosts).assignments] == [(1, "b")]
    others = [Candidate(number=number) for number in (2, 3, 4, 5)]
    assert [made.task for made in place([alone, *others], slots, hosts).assignments] == [2, 3, 4, 5]
    crowded = place([alone, alone_too := Candidate(number=6, alone=True)], slots, hosts)
    assert len(crowded.assignments) == 1, alone_too
