"""The contract of a store: the GPUs that hosts report, the queue for them, and programs that lease GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.store import cases

from evalfleet.core.gpus.cards import Card
from evalfleet.core.transitions import GPU_EDGES
from evalfleet.errors import NotFound, WrongState
from evalfleet.model import Attempt, Device, GpuRequestState, Requests, Run
from evalfleet.store.gpus.gpus import devices_of
from evalfleet.store.gpus.records import AVOID_S, CLEAN_S, PROGRAM_S, TICKET_S, Ask, Program
from evalfleet.store.home import process
from evalfleet.store.store import Store
from evalfleet.testing.clock import FakeClock

HERE = frozenset({"h1"})


def card(index: int, **fields: Any) -> Card:
    seen = Card(host="h1", index=index, uuid=f"GPU-{index}", memory_mb=80_000, used_mb=600, utilization=0, processes=())
    return replace(seen, **fields)


def program(token: str = "p1", pid: int | None = None, born: str | None = None, boot: str | None = None) -> Program:
    own = process.me()
    return Program(
        token=token,
        name=f"program {token}",
        pid=own[0] if pid is None else pid,
        born=own[1] if born is None else born,
        boot=own[2] if boot is None else boot,
    )


def show(store: Store, *cards: Card) -> None:
    store.gpus.see(cards[0].host, cards, store.now())


def asked(
    store: Store, run: Run, *tasks: int, gpus: int = 1, memory_mb: int = 0, others: Iterable[str] = ()
) -> list[Attempt]:
    """Ask for tasks and claim what was granted, as a controller does."""
    asks = [Ask(gpus=gpus, hosts=HERE, task_number=task, memory_mb=memory_mb) for task in tasks]
    with store.batch():
        turn = store.gpus.ask(run, asks, others)
        made: list[Attempt] = []
        for task, granted in turn.grants.items():
            assert task is not None
            claim = cases.new_claim(task)
            found = store.attempts.claim(
                run,
                replace(
                    claim,
                    host=granted.host,
                    devices=devices_of(granted),
                    requests=Requests(gpus=gpus, gpu_memory_mb=memory_mb),
                    others=frozenset(others),
                ),
            )
            assert found is not None
            made.append(found.attempt)
        return made


def end(store: Store, run: Run, attempt: Attempt) -> None:
    cases.finished(store, run, cases.with_verdict(attempt))


class GpuContract:
    """GPUs that are seen, waited for and leased."""

    def test_what_a_host_shows_is_kept_until_it_shows_otherwise(self, store: Store, clock: FakeClock) -> None:
        more: dict[str, Any] = {
            "name": "H200",
            "links": {"GPU-1": 0},
            "mig": False,
            "processes": ({"pid": 7, "ours": True},),
        }
        show(store, card(0, **more), card(1))
        first, second = store.gpus.cards()
        assert first == card(0, **more, seen_at=clock(), base_mb=600)
        assert second.uuid == "GPU-1"
        clock.advance(5)
        show(store, card(0, used_mb=900))
        assert [(one.uuid, one.used_mb, one.seen_at) for one in store.gpus.cards()] == [("GPU-0", 900, clock())]
        store.gpus.see("h1", [card(0, used_mb=1)], clock() - 1)  # an older probe that came late
        assert store.gpus.cards()[0].used_mb == 900
        store.gpus.see("h1", [], clock())
        assert store.gpus.cards() == []

    def test_all_of_a_request_or_none_of_it_and_the_oldest_first(self, store: Store) -> None:
        one, two = cases.drive(store, 5), cases.drive(store, 5)
        show(store, card(0), card(1))
        first = asked(store, one, 1, gpus=1)
        assert [device.uuid for device in first[0].devices] == ["GPU-0"]
        assert asked(store, two, 1, gpus=2) == []
        assert asked(store, one, 2, gpus=2) == []
        waiting = store.gpus.tickets()
        assert [(ticket.owner, ticket.task_number, ticket.gpus) for ticket in waiting] == [
            (two.id, 1, 2),
            (one.id, 2, 2),
        ]
        end(store, one, first[0])
        assert asked(store, one, 2, gpus=2) == []  # it is the other's turn, even if this one asks first
        second = asked(store, two, 1, gpus=2)
        assert [device.uuid for device in second[0].devices] == ["GPU-0", "GPU-1"]
        assert {lease.holder for lease in store.gpus.leases()} == {second[0].id}
        end(store, two, second[0])
        assert len(asked(store, one, 2, gpus=2)) == 1
        assert store.gpus.tickets() == []

    def test_attempts_share_a_card_by_memory_and_never_beyond_it(self, store: Store) -> None:
        run, other = cases.drive(store, 5), cases.drive(store, 5)
        show(store, card(0, memory_mb=20_000, used_mb=1_000))
        made = [*asked(store, run, 1, memory_mb=8_000), *asked(store, other, 1, memory_mb=8_000)]
        assert [device for one in made for device in one.devices] == [
            Device(index=0, uuid="GPU-0", memory_mb=8_000)
        ] * 2
        assert asked(store, run, 2, memory_mb=8_000) == []
        claim = replace(cases.new_claim(3), devices=made[0].devices)
        assert store.attempts.claim(run, claim) is None  # nor does a claim without a grant
        assert store.attempts.claim(run, replace(claim, devices=(Device(index=0, uuid="GPU-0"),))) is None
        end(store, other, made[1])
        assert len(asked(store, run, 2, memory_mb=8_000)) == 1

    def test_a_look_from_before_a_release_says_nothing_of_the_memory_after_it(
        self, store: Store, clock: FakeClock
    ) -> None:
        run = cases.drive(store, 5)
        show(store, card(0))
        attempt = asked(store, run, 1, memory_mb=70_000)[0]
        clock.advance(5)
        show(store, card(0, used_mb=70_600))
        assert store.gpus.cards()[0].base_mb == 600  # what our own leases use is not what the card needs for itself
        clock.advance(5)
        looked_at = clock()
        clock.advance(0.1)
        end(store, run, attempt)
        store.gpus.see("h1", [card(0, used_mb=70_600)], looked_at)
        assert len(asked(store, run, 2, memory_mb=70_000)) == 1

    def test_runs_take_turns_however_many_of_each_wait(self, store: Store) -> None:
        holding, many, few = cases.drive(store, 9), cases.drive(store, 9), cases.drive(store, 9)
        show(store, card(0))
        held = (holding, asked(store, holding, 1)[0])
        assert asked(store, many, *range(1, 6)) == []
        assert asked(store, few, 1, 2) == []
        served: list[Run] = []
        wanted = {many.id: [*range(1, 6)], few.id: [1, 2]}
        while any(wanted.values()):
            end(store, *held)
            for run in (many, few):
                for attempt in asked(store, run, *wanted[run.id]):
                    served.append(run)
                    wanted[run.id].remove(attempt.task_number)
                    held = (run, attempt)
        assert served == [many, few, many, few, many, many, many]

    def test_a_turn_comes_when_somebody_may_go_on_and_not_when_nothing_changed(self, store: Store) -> None:
        run, other = cases.drive(store, 5), cases.drive(store, 5)
        show(store, card(0))
        first = asked(store, run, 1)[0]
        assert asked(store, other, 1) == []
        turn = store.gpus.turn()
        assert asked(store, other, 1) == []
        assert store.gpus.turn() == turn
        assert not store.gpus.is_turn(other.id)
        end(store, run, first)
        assert store.gpus.turn() != turn
        assert store.gpus.is_turn(other.id)

    def test_a_run_that_is_taken_over_or_left_waits_no_more(self, store: Store) -> None:
        holding, waiting = cases.drive(store, 2), cases.drive(store, 2)
        show(store, card(0))
        asked(store, holding, 1)
        for _ in range(2):
            assert asked(store, waiting, 1) == []
            assert len(store.gpus.tickets()) == 1
            store.runs.leave(waiting)
            assert store.gpus.tickets() == []
            waiting = store.runs.begin(waiting) or store.runs.take(waiting.id, "me")
        old = replace(waiting, epoch=waiting.epoch - 1)
        assert store.gpus.ask(old, [Ask(gpus=1, hosts=HERE, task_number=1)]).grants == {}
        assert store.gpus.tickets() == []

    def test_a_task_that_is_not_asked_for_any_more_holds_up_nobody(self, store: Store) -> None:
        holding, large, small = cases.drive(store, 2), cases.drive(store, 2), cases.drive(store, 2)
        show(store, card(0), card(1))
        held = asked(store, holding, 1)[0]
        assert asked(store, large, 1, gpus=2) == []
        end(store, holding, held)
        assert asked(store, small, 1) == []  # both cards are the large one's
        turn = store.gpus.turn()
        assert asked(store, large) == []
        assert store.gpus.turn() != turn
        assert len(asked(store, small, 1)) == 1

    def test_a_ticket_at_which_nobody_looks_is_passed_over_until_somebody_does(
        self, store: Store, clock: FakeClock
    ) -> None:
        holding, slow, quick = cases.drive(store, 2), cases.drive(store, 2), cases.drive(store, 2)
        show(store, card(0))
        held = asked(store, holding, 1)[0]
        assert asked(store, slow, 1) == []
        assert asked(store, quick, 1) == []
        clock.advance(TICKET_S + 0.1)
        assert asked(store, quick, 1) == []
        assert [ticket.owner for ticket in store.gpus.tickets()] == [quick.id]
        assert asked(store, slow, 1) == []
        assert [ticket.owner for ticket in store.gpus.tickets()] == [slow.id, quick.id]  # it has kept its place
        end(store, holding, held)
        assert asked(store, quick, 1) == []

    def test_a_program_waits_in_the_same_queue(self, store: Store) -> None:
        run = cases.drive(store, 3)
        show(store, card(0))
        held = asked(store, run, 1)[0]
        ask = Ask(gpus=1, hosts=HERE)
        assert store.gpus.lease(program(), ask) is None
        assert asked(store, run, 2) == []
        (first, second) = store.gpus.tickets()
        assert (first.program, first.task_number) == ("program p1", None)
        assert (second.owner, second.task_number) == (run.id, 2)
        end(store, run, held)
        assert asked(store, run, 2) == []
        assert store.gpus.lease(program(), ask) == (Device(index=0, uuid="GPU-0"),)
        (lease,) = store.gpus.leases()
        assert (lease.program, lease.pid, lease.run_id) == ("program p1", os.getpid(), None)
        assert store.gpus.renew(program())
        assert asked(store, run, 2) == []
        store.gpus.free(program())
        assert not store.gpus.renew(program())
        assert len(asked(store, run, 2)) == 1

    def test_a_request_moves_only_along_the_edges(self, store: Store) -> None:
        ask, me, other = Ask(gpus=1, hosts=HERE), program("me"), program("other")
        acts: dict[str, Callable[[], object]] = {
            "ask": lambda: store.gpus.lease(me, ask),
            "free": lambda: store.gpus.free(me),
            "renew": lambda: store.gpus.renew(me),
            "room": lambda: store.gpus.free(other),
            "rival": lambda: store.gpus.lease(other, ask),
        }
        ways = {
            GpuRequestState.WAITING: ("rival", "ask"),
            GpuRequestState.LEASED: ("ask",),
            GpuRequestState.WITHDRAWN: ("rival", "ask", "free"),
            GpuRequestState.RELEASED: ("ask", "free"),
        }

        def state(last: GpuRequestState | None) -> GpuRequestState | None:
            leased = "me" in {lease.holder for lease in store.gpus.leases()}
            waits = "me" in {ticket.owner for ticket in store.gpus.tickets()}
            assert not (leased and waits), "it does not queue behind itself"
            if leased or waits:
                return GpuRequestState.LEASED if leased else GpuRequestState.WAITING
            over = {
                GpuRequestState.WAITING: GpuRequestState.WITHDRAWN,
                GpuRequestState.LEASED: GpuRequestState.RELEASED,
            }
            return last if last is None else over.get(last, last)

        taken: set[tuple[GpuRequestState, GpuRequestState]] = set()
        for before, act, again in product(ways, acts, ("", "ask")):
            is_over = before in (GpuRequestState.WITHDRAWN, GpuRequestState.RELEASED)
            if is_over and "ask" in (act, again):
                continue  # to ask again is another request
            for one in (me, other):
                store.gpus.free(one)
            show(store, card(0))
            now: GpuRequestState | None = None
            for step in ways[before]:
                acts[step]()
                now = state(now)
            assert now is before
            for step in filter(None, (act, again)):
                acts[step]()
                after = state(now)
                assert after is not None
                if after is not now:
                    assert now is not None
                    taken.add((now, after))
                if after is GpuRequestState.WITHDRAWN or after is GpuRequestState.RELEASED:
                    break
                now = after
        assert taken == set(GPU_EDGES)

    def test_what_a_dead_program_had_or_waited_for_is_free(self, store: Store) -> None:
        ended = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        started = process.born(ended.pid)
        dying = program("dying", ended.pid, started)
        waiting = program("waits", ended.pid, started)
        show(store, card(0))
        assert store.gpus.lease(dying, Ask(gpus=1, hosts=HERE)) is not None
        assert store.gpus.lease(waiting, Ask(gpus=1, hosts=HERE)) is None
        assert store.gpus.lease(program(), Ask(gpus=1, hosts=HERE)) is None
        ended.kill()
        ended.wait()
        assert store.gpus.leases() == []
        assert store.gpus.lease(program(), Ask(gpus=1, hosts=HERE)) is not None
        assert store.gpus.tickets() == []

    def test_a_program_of_another_machine_must_say_that_it_lives(self, store: Store, clock: FakeClock) -> None:
        far = program("far", pid=1, boot="another")
        show(store, card(0))
        assert store.gpus.lease(far, Ask(gpus=1, hosts=HERE)) is not None
        clock.advance(PROGRAM_S - 1)
        assert store.gpus.lease(program(), Ask(gpus=1, hosts=HERE)) is None
        assert store.gpus.renew(far)
        clock.advance(PROGRAM_S - 1)
        assert store.gpus.lease(program(), Ask(gpus=1, hosts=HERE)) is None
        clock.advance(2)
        assert store.gpus.lease(program(), Ask(gpus=1, hosts=HERE)) is not None

    def test_a_card_in_quarantine_is_nobodys_until_a_person_says_so(self, store: Store) -> None:
        run = cases.drive(store, 3)
        show(store, card(0))
        store.gpus.quarantine(run, "h1", "GPU-0", "process 7 is still on it")
        assert store.gpus.cards()[0].quarantine == "process 7 is still on it"
        assert asked(store, run, 1) == []
        turn = store.gpus.turn()
        store.gpus.unquarantine("h1", "GPU-0", "Ada")
        assert store.gpus.turn() != turn
        assert len(asked(store, run, 1)) == 1
        with pytest.raises(WrongState, match="not in quarantine"):
            store.gpus.unquarantine("h1", "GPU-0", "Ada")
        with pytest.raises(NotFound, match="GPU-9"):
            store.gpus.unquarantine("h1", "GPU-9", "Ada")
        told = [(event.type, event.data) for event in store.events.of_run(run.id) if event.type.startswith("gpu.")]
        where = {"host": "h1", "uuid": "GPU-0", "index": 0}
        assert told == [
            ("gpu.quarantined", {**where, "reason": "process 7 is still on it"}),
            ("gpu.unquarantined", {**where, "by": "Ada"}),
        ]

    def test_a_card_in_quarantine_that_looks_well_for_long_enough_is_taken_back(
        self, store: Store, clock: FakeClock
    ) -> None:
        run = cases.drive(store, 3)
        show(store, card(0))
        store.gpus.quarantine(run, "h1", "GPU-0", "its memory did not come back")
        for used in (600, 5_000, 600, 600):  # in between it does not look well
            clock.advance(CLEAN_S - 1)
            show(store, card(0, used_mb=used))
            assert store.gpus.cards()[0].quarantine is not None
        clock.advance(1)
        show(store, card(0))
        assert store.gpus.cards()[0].quarantine is None
        assert [event.data["by"] for event in store.events.of_run(run.id) if event.type == "gpu.unquarantined"] == [
            "evalfleet: it has looked well for 30 s"
        ]

    def test_a_card_that_was_found_taken_is_avoided_for_a_while(self, store: Store, clock: FakeClock) -> None:
        run = cases.drive(store, 3)
        show(store, card(0), card(1))
        store.gpus.avoid("h1", ["GPU-0"])
        assert [device.uuid for device in asked(store, run, 1)[0].devices] == ["GPU-1"]
        assert asked(store, run, 2) == []
        clock.advance(1)
        show(store, card(0), card(1))  # so soon it may have missed the same
        assert asked(store, run, 2) == []
        clock.advance(AVOID_S)
        assert len(asked(store, run, 2)) == 1
