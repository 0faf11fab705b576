"""How work is divided between tiers, and when a tier is left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.core.tiers import (
    LONGEST_COOL_DOWN_S,
    Condition,
    Prefer,
    Share,
    Tier,
    TierBreaker,
    TierHost,
    TierTerms,
    divide,
    explain,
)
from evalfleet.core.transitions import BREAKER_EDGES
from evalfleet.model import BreakerState

TERMS = TierTerms()
COOL_S = TERMS.cool_down_s
CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN


def seen(condition: Condition, name: str = "h", since: float = 0.0) -> TierHost:
    return TierHost(name=name, workers=1, condition=condition, since=since, reason=f"{name}: no answer")


def hosts(failed: int, other: Condition | None = None, others: int = 0, since: float = 0.0) -> list[TierHost]:
    found = [seen(Condition.FAILED, f"f{number}", since) for number in range(failed)]
    return found + [seen(other, f"o{number}") for number in range(others) if other]


OPENED = TierBreaker().opened("no answer", 0.0, TERMS)
TRIED = OPENED.observe([], COOL_S, TERMS)


def orders(tiers: list[Tier], wanted: int, prefer: Prefer = Prefer.ORDER) -> list[int]:
    found = divide(tiers, wanted, prefer)
    return [found[tier.name].order for tier in tiers]


def uses(tiers: list[Tier], wanted: int, most: int | None = None) -> list[int]:
    found = divide(tiers, wanted, most=most)
    return [found[tier.name].use for tier in tiers]


def test_the_first_tier_gets_what_it_has_room_for_and_the_next_the_rest():
    tiers = [Tier(name="a", capacity=6), Tier(name="b", capacity=10)]
    assert orders(tiers, 4) == [4, 0]
    assert orders(tiers, 10) == [6, 4]
    assert orders(tiers, 40) == [6, 10]


def test_the_cheapest_comes_first_where_it_is_preferred_and_an_unknown_price_last():
    tiers = [
        Tier(name="a", capacity=6, usd_per_hour=2.0),
        Tier(name="x", capacity=6),
        Tier(name="b", capacity=5, usd_per_hour=1.0),
    ]
    assert orders(tiers, 7, Prefer.CHEAPEST) == [2, 0, 5]
    assert orders(tiers, 12, Prefer.CHEAPEST) == [6, 1, 5]


def test_what_a_tier_cannot_get_is_asked_of_the_next():
    short = Tier(name="a", capacity=10, serving=3, starting=1, shortage="sold out")
    assert orders([short, Tier(name="b", capacity=10)], 10) == [4, 6]


def test_machines_on_their_way_are_waited_for_but_workers_that_are_there_work_meanwhile():
    tiers = [Tier(name="vms", capacity=10, starting=10), Tier(name="lab", capacity=4, serving=4)]
    assert orders(tiers, 10) == [10, 4]
    assert uses(tiers, 10) == [0, 4]
    up = [Tier(name="vms", capacity=10, serving=10), Tier(name="lab", capacity=4, serving=4)]
    assert divide(up, 10)["lab"] == Share(order=0, use=0)


def test_at_the_end_of_a_run_preferred_workers_stay_usable_and_no_others_are_kept():
    tiers = [Tier(name="a", capacity=4, serving=2), Tier(name="b", capacity=10, serving=10, busy=1)]
    assert orders(tiers, 2) == [2, 0]
    assert uses(tiers, 2, most=8) == [2, 6]


def test_an_open_tier_keeps_its_work_and_gets_no_more():
    tiers = [Tier(name="a", breaker=OPENED, capacity=10, serving=10, busy=3), Tier(name="b", capacity=10)]
    assert orders(tiers, 10) == [3, 7]
    assert uses(tiers, 10) == [0, 0]


def test_a_tier_that_is_tried_again_gets_one_worker_and_the_others_do_all_the_work():
    tiers = [Tier(name="a", breaker=TRIED, capacity=10), Tier(name="b", capacity=10, serving=10, busy=10)]
    assert orders(tiers, 10) == [1, 10]
    assert orders(tiers, 0) == [0, 0], "no work is there that a probe would help"


@pytest.mark.parametrize(
    ("looked", "state"),
    [
        ([], CLOSED),
        (hosts(2, Condition.STARTING, 8), CLOSED),
        (hosts(3, Condition.STARTING, 7), OPEN),
        (hosts(9, Condition.SERVING, 1), CLOSED),
        (hosts(3, Condition.LEAVING, 2), OPEN),
        (hosts(1), OPEN),
        (hosts(2), OPEN),
        (hosts(1, Condition.JOINING, 1), CLOSED),
    ],
    ids=["nothing", "two of ten", "three of ten", "one serves", "others leave", "the only one", "both", "one joins"],
)
def test_a_breaker_opens_when_several_hosts_failed_and_none_serves(looked: list[TierHost], state: BreakerState):
    found = TierBreaker().observe(looked, 5.0, TERMS)
    assert found.state is state
    assert (found.retry_at, found.reason is None) == ((5.0 + COOL_S, False) if state is OPEN else (None, True))


def test_failures_are_remembered_until_a_host_serves_and_each_host_counts_once():
    one = TierBreaker().observe(hosts(1, Condition.STARTING, 8), 1.0, TERMS)
    assert one.observe(hosts(1, Condition.STARTING, 8), 2.0, TERMS) is one
    gone = [seen(Condition.FAILED, "x"), seen(Condition.FAILED, "y"), seen(Condition.STARTING, "z")]
    assert one.observe(gone, 3.0, TERMS).state is OPEN
    served = one.observe([seen(Condition.SERVING)], 2.0, TERMS)
    assert served == TierBreaker()


def test_what_failed_before_it_closed_says_nothing_of_it_now():
    closed = TRIED.observe([seen(Condition.SERVING)], COOL_S + 5, TERMS)
    assert closed.state is CLOSED
    assert closed.observe(hosts(9, since=10.0), COOL_S + 6, TERMS).state is CLOSED
    assert closed.observe(hosts(3, since=COOL_S + 6), COOL_S + 6, TERMS).state is OPEN


def test_a_cloud_that_refuses_everything_opens_it_at_once():
    assert TierBreaker().observe([], 1.0, TERMS, "503").reason == "503"
    assert TierBreaker().observe([seen(Condition.STARTING)], 1.0, TERMS, "503").state is OPEN


def test_an_open_tier_is_left_alone_until_its_cool_down_is_over():
    assert OPENED.observe([seen(Condition.SERVING)], COOL_S - 1, TERMS) is OPENED
    assert TRIED.state is HALF_OPEN


@pytest.mark.parametrize(
    ("looked", "after_s", "refusal", "state"),
    [
        ([seen(Condition.SERVING)], 1.0, None, CLOSED),
        (hosts(9), 1.0, None, HALF_OPEN),
        (hosts(1, since=COOL_S), 1.0, None, OPEN),
        ([seen(Condition.STARTING)], TERMS.start_s - 1, None, HALF_OPEN),
        ([seen(Condition.STARTING)], TERMS.start_s, None, OPEN),
        ([], 1.0, "503", OPEN),
    ],
    ids=["serves", "failed long ago", "fails again", "starts", "too late", "refused"],
)
def test_a_probe_decides(looked: list[TierHost], after_s: float, refusal: str | None, state: BreakerState):
    assert TRIED.observe(looked, COOL_S + after_s, TERMS, refusal).state is state


def test_what_was_before_anybody_looked_says_little():
    """Machines that a run lost yesterday, and a trial that ended with its run, are nothing against the tier today."""
    day = 86400.0
    assert TierBreaker().observe(hosts(3), day, TERMS, began=day).state is CLOSED
    assert TierBreaker().observe(hosts(3, since=day - 60), day, TERMS, began=day).state is OPEN
    assert TRIED.observe([], day, TERMS, began=day).state is HALF_OPEN
    assert TRIED.observe([], day + TERMS.start_s, TERMS, began=day).state is OPEN


def test_each_cool_down_is_twice_as_long_up_to_a_limit_also_of_a_tier_that_comes_and_goes():
    waits: list[float] = []
    breaker, now = TierBreaker(), 0.0
    for turn in range(6):
        breaker = breaker.opened("no answer", now, TERMS)
        assert breaker.retry_at is not None
        waits.append(breaker.retry_at - now)
        now = breaker.retry_at
        breaker = breaker.observe([], now, TERMS)
        if turn % 2:
            breaker = breaker.observe([seen(Condition.SERVING)], now, TERMS)
            assert breaker.state is CLOSED
    assert waits[:3] == [COOL_S, 2 * COOL_S, 4 * COOL_S]
    assert waits[-1] == LONGEST_COOL_DOWN_S
    calm = breaker.observe([seen(Condition.SERVING)], now + COOL_S, TERMS)
    assert calm.openings == 0, "one that worked for a while starts anew"


def test_only_the_edges_of_breakers_are_taken():
    """Each edge is tried above; this one holds that no look takes another."""
    ways = {
        (CLOSED, OPEN): TierBreaker().observe(hosts(3), 0.0, TERMS),
        (OPEN, HALF_OPEN): TRIED,
        (HALF_OPEN, CLOSED): TRIED.observe([seen(Condition.SERVING)], COOL_S, TERMS),
        (HALF_OPEN, OPEN): TRIED.observe([], COOL_S, TERMS, "503"),
    }
    assert ways.keys() == BREAKER_EDGES.keys()
    assert all(found.state is after for (_, after), found in ways.items())
    assert OPENED.opened("again", 5.0, TERMS) is OPENED


def test_a_breaker_is_stored_whole():
    for one in (TierBreaker(), OPENED, TRIED, TierBreaker().observe(hosts(1, Condition.STARTING, 5), 1.0, TERMS)):
        assert TierBreaker.from_json(one.to_json()) == one


@pytest.mark.parametrize(
    ("tier", "share", "said"),
    [
        (Tier(name="a", capacity=4, serving=4), Share(order=4, use=4), "used: 4 of 4 workers serve; full"),
        (Tier(name="a", capacity=8, serving=2), Share(order=4, use=2), "used: 2 of 4 workers serve"),
        (Tier(name="a", capacity=8), Share(order=0, use=0), "not needed: the tiers before it have room"),
        (Tier(name="a", capacity=8, shortage="sold out"), Share(order=0, use=0), "not used: sold out"),
        (
            Tier(name="a", capacity=8, serving=1, shortage="sold out"),
            Share(order=1, use=1),
            "used: 1 of 1 workers serve; no more to be had: sold out",
        ),
        (Tier(name="a", capacity=8, busy=2), Share(order=0, use=0), "no longer needed: 2 at work there go on"),
        (
            Tier(name="a", capacity=8, breaker=OPENED, busy=2),
            Share(order=2, use=0),
            "not used: no answer; 2 at work there go on",
        ),
        (
            Tier(name="a", capacity=8, breaker=TRIED),
            Share(order=1, use=0),
            "tried again with 1 worker after: no answer",
        ),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_it_is_said_why_a_tier_is_used_or_not(tier: Tier, share: Share, said: str):
    assert explain(tier, share, is_first=False) == said


@pytest.mark.parametrize("prefer", Prefer)
@given(capacities=st.lists(st.integers(0, 20), min_size=1, max_size=4), wanted=st.integers(0, 50), data=st.data())
def test_no_work_is_left_where_there_is_room(prefer: Prefer, capacities: list[int], wanted: int, data: st.DataObject):
    tiers = [
        Tier(
            name=str(number),
            capacity=capacity,
            serving=data.draw(st.integers(0, capacity)),
            usd_per_hour=data.draw(st.none() | st.floats(0, 5)),
            breaker=data.draw(st.sampled_from([TierBreaker(), OPENED, TRIED])),
        )
        for number, capacity in enumerate(capacities)
    ]
    shares = divide(tiers, wanted, prefer)
    closed = [tier for tier in tiers if tier.breaker.state is BreakerState.CLOSED]
    ordered = sum(shares[tier.name].order for tier in closed)
    assert ordered >= min(wanted, sum(tier.capacity for tier in closed))
    assert all(shares[tier.name].use <= tier.serving for tier in tiers)
    assert sum(shares[tier.name].use for tier in closed) == min(wanted, sum(tier.serving for tier in closed))
