"""What a tier's machines say of the tier, and what a budget over all tiers leaves to each."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.engine_play import host
from tests.support.fake_backend import FakeBackend
from tests.support.fake_fleet import FakeFleet
from tests.support.store import cases

from evalfleet.core.tiers import Condition, TierBreaker, TierTerms
from evalfleet.model import BreakerState, DesiredState, HostState, Policy, Pool, PoolHost, StoredTier
from evalfleet.pools.busy import taken_before, wanted_workers
from evalfleet.pools.kinds.tiers import KIND
from evalfleet.pools.settings import PoolSettings
from evalfleet.pools.spending import spending_limit, tiers_usd
from evalfleet.pools.tiers.member import Member
from evalfleet.store.open import open_store
from evalfleet.testing.clock import FakeClock

TERMS = TierTerms(cool_down_s=300.0, start_s=600.0)
SILENCE_S = 60.0
OPEN, CLOSED = BreakerState.OPEN, BreakerState.CLOSED


class VmKind:
    """Of VMs: what a member asks of its kind."""

    name, title, creates_machines, options = "vm", "VMs", True, ()

    def slots(self, pool: Pool) -> int:
        return 10


def row(number: int, state: HostState, **fields: Any) -> PoolHost:
    made: dict[str, Any] = {
        "name": f"m-{number}", "pool": "vms", "number": number, "desired": DesiredState.RUNNING, "state": state,
        "reason": None, "readiness_check": None, "facts": {}, "usd_per_hour": 1.0, "kept_usd_per_hour": 0.0,
        "made_at": 1.0, "allocated_since": 1.0, "allocated_s": 0.0, "created_at": 0.0, "updated_at": 100.0,
        "gone_at": None,
    }  # fmt: skip
    return PoolHost(**(made | fields))


def member(*rows: PoolHost, hosts: tuple[FakeBackend, ...] = (), reason: dict[str, str] | None = None) -> Member:
    pool = Pool(name="vms", backend="vm", settings=PoolSettings(workers=10).to_json(), created_at=0.0, reason=reason)
    stored = StoredTier(
        pool="both", name="vms", place=0, breaker=TierBreaker().to_json(), base_usd=0.0, usd_per_hour=None
    )
    made = Member(VmKind(), pool, FakeFleet(*hosts), stored, 10)  # pyright: ignore[reportArgumentType]
    made.rows = rows
    return made


READY = [row(number, HostState.READY) for number in range(1, 5)]
WAYS = tuple(host(one.name) for one in READY)


@pytest.mark.parametrize(
    ("rows", "hosts", "state"),
    [
        (READY, WAYS, CLOSED),
        ([row(n, HostState.LOST, reason="was deleted") for n in range(4)], (), OPEN),
        ([row(n, HostState.GONE, gone_at=5.0) for n in range(4)], (), OPEN),
        ([row(n, HostState.GONE, made_at=None) for n in range(4)], (), CLOSED),
        ([row(n, HostState.LOST, facts={"preempted": True}) for n in range(4)], (), CLOSED),
        ([row(n, HostState.GONE, desired=DesiredState.GONE) for n in range(4)], (), CLOSED),
        ([row(n, HostState.STOPPED, desired=DesiredState.STOPPED) for n in range(4)], (), CLOSED),
        ([row(n, HostState.QUARANTINED) for n in range(4)], (), OPEN),
        ([*READY[:1], *(row(n, HostState.LOST) for n in range(5, 9))], WAYS[:1], CLOSED),
        ([row(n, HostState.PREPARING, made_at=None) for n in range(4)], (), CLOSED),
    ],
    ids=[
        "all serve", "deleted by hand", "gone by themselves", "never to be had", "preempted", "deleted as asked",
        "stopped as asked", "none became ready", "one is left", "on their way",
    ],
)  # fmt: skip
def test_machines_that_fail_open_the_breaker_of_their_tier(
    rows: list[PoolHost], hosts: tuple[FakeBackend, ...], state: BreakerState
):
    assert member(*rows, hosts=hosts).look({}, 200.0, TERMS, SILENCE_S).state is state


def test_machines_that_take_too_long_fail_and_a_row_that_is_written_again_is_no_new_failure():
    late = member(*[row(n, HostState.PREPARING, readiness_check="ssh") for n in range(4)])
    assert late.look({}, 0.0, TERMS, SILENCE_S).state is CLOSED
    after = late.look({}, TERMS.start_s, TERMS, SILENCE_S)
    assert after.state is OPEN
    assert "readiness check ssh" in str(after.reason)
    broken = member(*[row(n, HostState.QUARANTINED) for n in range(4)])
    opened = broken.look({}, 200.0, TERMS, SILENCE_S)
    broken.stored = replace(broken.stored, breaker=opened.to_json())
    tried = broken.look({}, 200.0 + TERMS.cool_down_s, TERMS, SILENCE_S)
    broken.stored = replace(broken.stored, breaker=tried.to_json())
    broken.rows = [replace(one, updated_at=900.0, desired=DesiredState.STOPPED) for one in broken.rows]
    assert broken.look({}, 900.0, TERMS, SILENCE_S).state is BreakerState.HALF_OPEN


def test_machines_that_were_lost_in_the_course_of_a_day_do_not_open_it_when_the_last_one_is_taken_back():
    found = member(*(row(n, HostState.LOST, updated_at=100.0) for n in range(4, 8)), hosts=WAYS[:1])
    found.rows = [READY[0], *found.rows]
    day = 86400.0
    assert found.look({}, 100.0, TERMS, SILENCE_S).state is CLOSED
    assert found.look({}, day, TERMS, SILENCE_S).state is CLOSED
    found.rows = [row(1, HostState.LOST, facts={"preempted": True}), *found.rows[1:]]
    found.fleet = FakeFleet()
    assert found.look({}, day + 1, TERMS, SILENCE_S).state is CLOSED


def test_silence_counts_after_a_while_and_only_if_it_is_a_fault():
    tier = member(*READY, hosts=WAYS)
    silent = {one.name: "no route to host" for one in READY}
    assert tier.look(silent, 0.0, TERMS, SILENCE_S).state is CLOSED
    assert {one.condition for one in tier.hosts} == {Condition.JOINING}
    assert tier.look(silent, SILENCE_S - 1, TERMS, SILENCE_S).state is CLOSED
    assert tier.look(silent, SILENCE_S, TERMS, SILENCE_S).state is OPEN
    spared = member(*READY, hosts=WAYS)
    for now in (0.0, 10 * SILENCE_S):
        assert spared.look(dict.fromkeys(silent), now, TERMS, SILENCE_S).state is CLOSED


def test_a_cloud_that_refuses_for_a_while_opens_it_and_one_that_is_sold_out_only_has_no_room():
    broken = member(reason={"cause": "cloud", "message": "503"})
    assert broken.look({}, 0.0, TERMS, SILENCE_S).state is CLOSED
    assert broken.look({}, SILENCE_S, TERMS, SILENCE_S).reason == "503"
    short = member(*READY, hosts=WAYS, reason={"cause": "capacity", "message": "sold out"})
    for now in (0.0, 10 * SILENCE_S):
        assert short.look({}, now, TERMS, SILENCE_S).state is CLOSED
    assert (short.state(0.0, TERMS).room, short.state(0.0, TERMS).shortage) == (4, "sold out")


def test_three_faults_of_tasks_with_no_success_between_open_it():
    tier = member(*READY, hosts=WAYS)
    for fault in ("docker", "docker", None, "docker", "docker"):
        tier.ended("m-1", fault)
    assert tier.look({}, 0.0, TERMS, SILENCE_S).state is CLOSED
    tier.ended("m-2", "docker")
    assert tier.look({}, 0.0, TERMS, SILENCE_S).reason == "tasks fail on m-2: docker"


def test_workers_that_are_for_other_runs_are_no_room_but_ours_stay_ours():
    tier = member(*READY, hosts=WAYS)
    tier.look({}, 0.0, TERMS, SILENCE_S)
    tier.taken = 7
    assert (tier.state(0.0, TERMS).capacity, tier.state(0.0, TERMS).serving) == (3, 3)
    tier.taken, tier.busy = 20, {"m-1": 1, "m-2": 1}
    assert (tier.state(0.0, TERMS).capacity, tier.state(0.0, TERMS).serving) == (2, 2)


def test_workers_at_work_are_the_last_to_be_left_free():
    tier = member(*READY, hosts=WAYS)
    tier.busy = {"m-3": 1}
    tier.look({}, 0.0, TERMS, SILENCE_S)
    tier.limit(1, is_open=False)
    assert tier.spare == {"m-1", "m-2", "m-4"}
    tier.limit(4, is_open=True)
    assert tier.spare == {"m-1", "m-2", "m-3", "m-4"}


def test_one_budget_holds_over_all_tiers_and_what_was_spent_before_is_not_counted(home: Path):
    clock = FakeClock(1000.0)
    with closing(open_store(home, clock)) as store:
        made: list[Pool] = []
        for name in ("one", "two"):
            pool = store.pools.create(name, "azure-vm", PoolSettings(workers=2).to_json())
            [machine] = store.hosts.request(name, f"{name}-", [{}])
            owned = store.pools.take(name, "me")
            paid = replace(machine, state=HostState.READY, usd_per_hour=2.0, allocated_since=store.now())
            cases.move_host(store, owned, paid)
            made.append(pool)
        clock.advance(1800)  # $1 each before they are tiers
        both = store.pools.create("both", "tiers", {"tiers": ["one", "two"], "budget_usd": 3.0})
        KIND.join(store, both)
        assert tiers_usd(store, "both") == pytest.approx(0.0, abs=1e-6)
        clock.advance(900)  # $0.50 each since
        for pool in made:
            limit = spending_limit(store, pool)
            assert limit.usd == pytest.approx(1.5 + 2.0), "what it has cost, and what is left of the budget"
            assert (limit.pool, limit.others_usd_per_hour) == ("both", 2.0)
        clock.advance(1800)
        spent = spending_limit(store, made[0]).usd
        assert spent == pytest.approx(2.5 + 0.0), "all is spent: no machine may cost more"
        store.pools.amend("one", {**made[0].settings, "budget_usd": 1.0})
        assert spending_limit(store, store.pools.get("one")).pool == "one", "its own budget is nearer"


def test_a_pool_serves_runs_on_its_tiers_and_its_own_at_the_same_time(home: Path):
    with closing(open_store(home)) as store:
        for name in ("one", "two"):
            store.pools.create(name, "azure-vm", PoolSettings(workers=9).to_json())
        KIND.join(store, store.pools.create("both", "tiers", {"tiers": ["one", "two"]}))
        first, second = (cases.drive(store, 9, policy=Policy(workers=4, pool="both")) for _ in range(2))
        cases.drive(store, 9, policy=Policy(workers=3, pool="one"))
        store.tiers.want("both", first.id, {"one": (4, "used"), "two": (0, "not needed")})
        store.tiers.want("both", second.id, {"one": (2, "used"), "two": (2, "used")})
        assert wanted_workers(store, "one", {}) == 4 + 2 + 3
        assert wanted_workers(store, "two", {}) == 2
        assert wanted_workers(store, "one", {first.id: 1}) == 1 + 2 + 3, "our own run knows better than the store"
        assert taken_before(store, "one", first.id) == 3, "runs that have no other pool come first"
        assert taken_before(store, "one", second.id) == 3 + 4, "then the older run: the younger one spills over"
        assert taken_before(store, "one", "a new one") == 3 + 4 + 2
