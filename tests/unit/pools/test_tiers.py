"""A run on a pool of tiers: it begins on the first, spills over, moves on when a tier fails, and comes back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.engine_play import QUICK, end_all, host, opened, played
from tests.support.fake_backend import FakeBackend
from tests.support.tier_play import MAIN, TierPlay, make_tiers, toys

from evalfleet import config
from evalfleet.core.hosts.health import Patience
from evalfleet.errors import InputError, WrongState
from evalfleet.model import Outcome
from evalfleet.operations.machines import pools
from evalfleet.store.open import open_store

pytestmark = pytest.mark.anyio
# Those that answer are not given up, however slow this machine is.
SLOW = replace(QUICK, lease_s=2.0, patience=Patience(quiet_s=0.5, give_up_s=2.0, reconnects=2))


@pytest.fixture(autouse=True)
def _known() -> Iterator[None]:
    with toys():
        yield


def some(tier: str, count: int) -> list[FakeBackend]:
    return [host(f"{tier}{number}") for number in range(1, count + 1)]


def down(hosts: list[FakeBackend]) -> None:
    for one in hosts:
        one.unreachable = "no route to host"
        one.cut()


def why(home: Path) -> dict[str, tuple[int, str]]:
    with opened(home) as reader:
        return {row.tier: (row.wanted, row.why) for row in reader.tiers.demand(pool=MAIN)}


async def test_work_starts_on_the_first_tier_and_the_next_stays_free(home: Path):
    a, b = some("a", 3), some("b", 3)
    async with played(TierPlay(home, 9, {"a": a, "b": b}, workers=3), QUICK) as play:
        await play.finish()
    play.assert_all_ok()
    assert {attempt.host for attempt in play.attempts()} <= {one.name for one in a}
    assert play.moves() == []
    assert max(play.fleets["a"].wanted) == 3
    assert set(play.fleets["b"].wanted) <= {0}


async def test_what_the_first_tier_has_no_room_for_goes_to_the_next(home: Path):
    a, b = some("a", 2), some("b", 4)
    async with played(TierPlay(home, 8, {"a": a, "b": b}, workers=5), QUICK) as play:
        await play.until(lambda: sum(len(one.launched) for one in b) == 3, "three on the second tier")
        assert sum(len(one.launched) for one in a) == 2
        await play.told("tier.spilled", "b")
        await play.until(lambda: why(home)["a"] == (2, "used: 2 of 2 workers serve; full"), "words about the first")
        assert why(home)["b"][0] == 3
        await play.finish()
    play.assert_all_ok()
    assert play.moves() == [("tier.spilled", "b")]
    with opened(home) as reader:
        assert reader.tiers.demand(pool=MAIN) == [], "a run that is over wants nothing"


async def test_a_tier_that_goes_silent_is_left_and_used_again_when_it_answers(home: Path):
    a, b = some("a", 3), some("b", 3)
    async with played(TierPlay(home, 40, {"a": a, "b": b}, workers=3, attempts=1), SLOW) as play:
        for one in a:
            await play.launched(one)
        down(a)
        await play.told("tier.opened", "a")
        await play.until(lambda: all(one.launched for one in b), "work on the second tier")
        for one in a:
            one.unreachable = None
        await play.told("tier.closed", "a")
        before = len(a[0].launched)
        await play.until(
            lambda: end_all(b[0]) or end_all(b[1]) or end_all(b[2]) or len(a[0].launched) > before, "return"
        )
        await play.finish()
    play.assert_all_ok()
    moves = [move for move in play.moves() if move[0] in ("tier.opened", "tier.closed")]
    assert moves == [("tier.opened", "a"), ("tier.closed", "a")]
    lost = [attempt for attempt in play.attempts() if attempt.outcome is Outcome.LOST]
    assert len(lost) <= 3
    assert not any(attempt.failure and attempt.failure.consumes for attempt in play.attempts())


async def test_a_run_whose_only_hosts_are_silent_waits_for_the_next_tier(home: Path):
    a = some("a", 2)
    async with played(TierPlay(home, 4, {"a": a, "b": []}, {"start_timeout": 0.3}, workers=2), QUICK) as play:
        await play.launched(a[0])
        down(a)
        await play.told("tier.opened", "a")
        await play.told("tier.probed", "a")  # its probes fail as well, for a long time
        assert play.ending is None
        late = host("b1", slots=2)
        play.hosts.append(late)
        play.store.pools.replace("b", "toy", {"slots": 2})
        play.fleets["b"].add(late)
        await play.launched(late, 2)
        await play.finish()
    play.assert_all_ok()


async def test_a_tier_on_which_tasks_fail_by_its_fault_gets_no_more_and_what_runs_there_goes_on(home: Path):
    a, b = some("a", 3), some("b", 3)
    async with played(TierPlay(home, 12, {"a": a, "b": b}, {"cool_down": 600.0}, workers=3), QUICK) as play:
        for one in a:
            await play.launched(one)
        assert play.tiered is not None
        for one in a:
            play.tiered.ended(one.name, "docker does not start")
        await play.told("tier.opened", "a")
        running = [attempt.id for attempt in play.attempts()]
        await play.until(lambda: end_all(a[0]) or any(one.launched for one in b), "work on the second tier")
        await play.finish()
    play.assert_all_ok()
    ended = {attempt.id: attempt.outcome for attempt in play.attempts()}
    assert [ended[one] for one in running] == [Outcome.OK] * 3, "no attempt is restarted because work moves on"


async def test_a_new_controller_goes_on_with_the_breakers_of_the_last_one(home: Path):
    a, b = some("a", 3), some("b", 3)
    with closing(open_store(home)) as store:
        make_tiers(store, {"x": 1}, cool_down=600.0)
        tier = store.tiers.of_pool(MAIN)[0]
        moved = store.tiers.move(tier, {**tier.breaker, "state": "open", "retry_at": 1e12}, "tier.opened", {})
        assert moved is not None
        assert store.tiers.move(tier, tier.breaker, "tier.closed", {}) is None, "as read before another moved it"
        store.pools.delete(MAIN)
        store.pools.delete("x")
    play = TierPlay(home, 6, {"a": a, "b": b}, workers=3)
    tier = play.store.tiers.of_pool(MAIN)[0]
    play.store.tiers.move(tier, {**tier.breaker, "state": "open", "retry_at": 1e12, "reason": "down"}, None, {})
    async with played(play, QUICK):
        await play.finish()
    play.assert_all_ok()
    assert {attempt.host[0] for attempt in play.attempts()} == {"b"}


def test_what_cannot_be_a_tier_is_refused_and_a_tier_cannot_be_deleted(home: Path):
    settings = config.load(str(home))
    with closing(open_store(home)) as store:
        make_tiers(store, {"a": 1, "b": 1})
        for tiers, said in ((["no"], "no pool 'no'"), (["a", MAIN], "has tiers itself"), (["a", "a"], "named twice")):
            with pytest.raises(InputError, match=said):
                pools.create(settings, store, "other", {"tiers": tiers})
        with pytest.raises(InputError, match="tiers: is missing"):
            pools.create(settings, store, "other", {}, backend="tiers")
        with pytest.raises(WrongState, match="'a' is a tier of pool 'main'"):
            store.pools.delete("a")
        with pytest.raises(WrongState, match="'a' is a tier of pool 'main'"):
            store.pools.mark_for_deletion("a")
        with pytest.raises(InputError, match="one of its tiers: a, b"):
            pools.stop(store, store.pools.get(MAIN))
        pools.create(settings, store, MAIN, {"tiers": "b", "budget_usd": 5.0}, backend="tiers", replace=True)
        pools.create(settings, store, MAIN, {"tiers": ["b"], "cool_down": 9.0}, replace=True)
        kept = store.pools.get(MAIN).settings
        assert (kept["budget_usd"], kept["cool_down"]) == (5.0, 9.0), "what is not said anew stays"
        with pytest.raises(InputError, match="cannot be a tier of itself"):
            pools.create(settings, store, "me", {"tiers": ["me"]})
        with pytest.raises(InputError, match=r"no pool 'no'; other pools: a, b, main$"):
            pools.create(settings, store, "me", {"tiers": ["no"]})
        store.pools.delete("a")
        pools.scale(store, store.pools.get(MAIN), {"budget_usd": 7.0})
        assert store.pools.get(MAIN).settings["budget_usd"] == 7.0
        store.pools.delete(MAIN)
        store.pools.delete("b")
