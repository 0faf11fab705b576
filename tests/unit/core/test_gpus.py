"""Who gets which GPUs. The numbers in brackets are those of the defects of an earlier tool, each of which has its test here."""

from __future__ import annotations

import time
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from evalfleet.core.gpus.allocation import grant, in_turn, never
from evalfleet.core.gpus.cards import Card, Lease, Ticket, blocked, has_room
from evalfleet.core.gpus.room import _Spot  # pyright: ignore[reportPrivateUsage]
from evalfleet.model import Requests

GB = 1000
HERE = frozenset({"h"})


def card(index: int, free_gb: int | None = 80, **more: Any) -> Card:
    used = None if free_gb is None else 90 * GB - free_gb * GB
    seen = Card(host="h", index=index, uuid=f"G{index}", memory_mb=90 * GB, used_mb=used, processes=(), utilization=0)
    return replace(seen, **more)


def lease(index: int, memory_gb: int | None = None, host: str = "h", **more: Any) -> Lease:
    memory = None if memory_gb is None else memory_gb * GB
    holder = more.pop("holder", f"run.{index}.1")
    return Lease(host=host, uuid=f"G{index}", index=index, memory_mb=memory, holder=holder, **more)


def ticket(number: int, gpus: int = 1, memory_gb: int = 0, owner: str = "", **more: Any) -> Ticket:
    more.setdefault("hosts", HERE)
    return Ticket(number=number, owner=owner or f"o{number}", gpus=gpus, memory_mb=memory_gb * GB, **more)


def granted(tickets: list[Ticket], cards: list[Card], leases: list[Lease] | None = None) -> dict[int, list[int]]:
    decision = grant(tickets, cards, leases or [], 0.0)
    return {one.ticket.number: [found.index for found in one.cards] for one in decision.grants}


# Order


def test_first_come_first_served_1():
    """1: arrivals 1, 2, 3, 4 were served 3, 4, 1, 2."""
    tickets = [ticket(n) for n in (3, 1, 4, 2)]
    assert granted(tickets, [card(0)]) == {1: [0]}
    assert granted(tickets, [card(0), card(1), card(2)]).keys() == {1, 2, 3}


def test_what_is_leased_is_waited_for_2():
    """2: with all GPUs leased the request was an error after 0.00 s."""
    decision = grant([ticket(1)], [card(0)], [lease(0)], 0.0)
    assert decision.grants == ()
    assert decision.reserved == {1: ("h", ("G0",))}


def test_without_a_look_nothing_is_free_3():
    """3: without nvidia-smi GPU 0 was given to everybody."""
    assert granted([ticket(1)], []) == {}
    assert never(Requests(gpus=1), (), {"h": []}) == (
        "asks for 1 GPU; no host has that much: none shows a GPU (no NVIDIA driver answers there; "
        "`evalfleet gpus` says more)"
    )


def test_leases_of_everybody_count_4():
    """4: two pools both handed out GPUs 0 and 1."""
    others = [lease(0, holder="run"), lease(1, holder="program", program="a notebook", pid=7)]
    assert granted([ticket(1, 2)], [card(n) for n in range(4)], others) == {1: [2, 3]}
    assert granted([ticket(1, 2), ticket(2, 2)], [card(n) for n in range(4)]) == {1: [0, 1], 2: [2, 3]}


def test_each_request_is_for_what_it_needs_itself_5():
    """5: every experiment reserved what the largest of the search space needs."""
    tickets = [ticket(1, 1), ticket(2, 2), ticket(3, 1), ticket(4, 4)]
    assert granted(tickets, [card(n) for n in range(8)]) == {1: [0], 2: [1, 2], 3: [3], 4: [4, 5, 6, 7]}


def test_a_balanced_pair_is_searched_for_6():
    """6: free [90, 60, 60, 60] GB and a need of 2 was refused, because the two freest are not balanced."""
    cards = [card(0, 90), card(1, 60), card(2, 60), card(3, 60)]
    assert granted([ticket(1, 2)], cards) == {1: [1, 2]}
    assert granted([ticket(1, 2, 70)], cards) == {}  # both must have that much
    assert granted([ticket(1, 2, 70)], [*cards, card(4, 85)]) == {1: [0, 4]}


def test_capacity_and_choice_are_one_decision_7():
    """7: capacity was checked in one locked section and GPUs were taken in another. Here the decision sees its own grants."""
    assert granted([ticket(n, 1, 40) for n in range(1, 6)], [card(0), card(1)]) == {1: [0], 2: [1], 3: [0], 4: [1]}


def test_what_is_not_known_is_not_free_8():
    """8: `[N/A]` made the whole snapshot None and then nothing was checked; unknown utilisation counted as idle."""
    silent = card(0, None, processes=None)
    assert blocked(silent, 0.0) == "does not report whether it is free"
    assert granted([ticket(1)], [silent]) == {}
    unsure = card(1, None, processes=())  # it tells its processes, and there are none
    assert granted([ticket(1)], [silent, unsure]) == {1: [1]}
    assert granted([ticket(1, 1, 1)], [unsure]) == {}
    assert granted([ticket(1)], [card(0, utilization=None), card(1, utilization=30)]) == {1: [1]}


def test_score_is_six_parts_memory_and_four_parts_idleness_9():
    """9: there were three definitions of the score, and a card with 90 % of its memory held was still a choice."""
    assert granted([ticket(1)], [card(0, 70, utilization=0), card(1, 80, utilization=10)]) == {1: [1]}
    assert granted([ticket(1)], [card(0, 70, utilization=0), card(1, 80, utilization=20)]) == {1: [0]}
    assert granted([ticket(1)], [card(0, 80, utilization=None), card(1, 80, utilization=90)]) == {1: [1]}
    assert granted([ticket(1, 1, 20)], [card(0, 9)]) == {}


def test_the_freest_scores_highest_and_what_is_unknown_is_not_free():
    def score(**told: Any) -> float:
        return _Spot(Card(host="h", index=0, uuid="G0", processes=(), **told), (), 0.0).score

    assert score(memory_mb=100, used_mb=0, utilization=0) == 1.0
    assert score(memory_mb=100, used_mb=90, utilization=0) == pytest.approx(0.46)
    assert score(memory_mb=100, used_mb=0, utilization=None) == pytest.approx(0.6)
    assert score() == 0.0


@pytest.mark.parametrize("asked", [ticket(1), ticket(1, 1, 1)])
def test_every_card_is_checked_and_nobody_is_let_through_with_a_warning_10(asked: Ticket):
    """10: local mode was not checked at all, and too little memory was "allowed with a warning"."""
    for bad in (
        card(0, foreign=(7,)),
        card(0, held="the runner of /home/b"),
        card(0, quarantine="its memory did not come back", quarantined_at=1.0),
        card(0, unexplained_mb=500),
        card(0, avoid_until=1.0),
    ):
        assert granted([asked], [bad]) == {}
        assert granted([asked], [bad, card(1)]) == {1: [1]}


# Turns


def test_owners_take_turns():
    many = [ticket(n, owner="many", line=3) for n in range(1, 6)]  # it was served a moment ago
    few = [ticket(6, owner="few", line=1), ticket(7, owner="few", line=1), ticket(8, owner="single", line=2)]
    assert [one.number for one in in_turn([*many, *few])] == [6, 8, 1, 7, 2, 3, 4, 5]


# Ranking


def test_the_nearest_cards_come_first():
    far = {f"G{n}": 5 for n in range(4)}
    cards = [
        card(0, 90, links={**far, "G3": 0}),
        card(1, 90, links=far),
        card(2, 90, links=far),
        card(3, 50, links={**far, "G0": 0}),
    ]
    assert granted([ticket(1, 2)], cards) == {1: [0, 3]}  # although they are the least balanced pair
    assert granted([ticket(1, 3)], cards) == {1: [0, 1, 2]}  # any three have a far link


def test_freest_first_and_pack_the_other_way_round():
    cards = [card(0, 50), card(1, 80), card(2, 30)]
    assert granted([ticket(1, 1, 10)], cards) == {1: [1]}
    assert granted([ticket(1, 1, 10, pack=True)], cards) == {1: [2]}
    assert granted([ticket(1, 1, 40, pack=True)], cards) == {1: [0]}


def test_only_the_places_and_hosts_that_were_asked_for():
    cards = [card(0), card(1), card(1, host="other")]
    assert granted([ticket(1, places=(1,))], cards) == {1: [1]}
    assert granted([ticket(1, 2, places=(1,))], cards) == {}
    assert granted([ticket(1, 2, hosts=frozenset({"h", "other"}))], cards) == {1: [0, 1]}  # never across hosts
    assert granted([ticket(1, hosts=frozenset({"gone"}))], cards) == {}


def test_many_cards_are_quick():
    links = {f"G{n}": 0 for n in range(8)}
    cards = [card(n, 40 + n, links=links if n < 8 else {}) for n in range(24)]
    began = time.process_time()
    found = granted([ticket(n, 8) for n in range(1, 31)], cards)
    assert time.process_time() - began < 0.5
    assert found[1] == list(range(8))
    assert found.keys() == {1, 2, 3}


# Memory


def test_leases_share_a_card_by_memory_and_a_whole_one_excludes_all():
    assert granted([ticket(1, 1, 40)], [card(0, 90)], [lease(0, 50)]) == {1: [0]}
    assert granted([ticket(1, 1, 41)], [card(0, 90)], [lease(0, 50)]) == {}
    assert granted([ticket(1)], [card(0, 90)], [lease(0, 1)]) == {}
    assert granted([ticket(1, 1, 1)], [card(0, 90)], [lease(0)]) == {}


def test_what_the_card_shows_limits_what_leases_leave():
    assert granted([ticket(1, 1, 40)], [card(0, 30)], [lease(0, 10)]) == {}  # somebody uses more than he leased
    before = card(0, 5, seen_at=1.0, released_at=2.0, base_mb=GB)
    assert granted([ticket(1, 1, 80)], [before]) == {1: [0]}  # what was seen before the release is gone
    assert granted([ticket(1, 1, 80)], [replace(before, base_mb=None)]) == {}  # and nobody knows what is left


def test_the_base_of_a_card_is_nobodys():
    assert granted([ticket(1, 1, 90)], [card(0, 89, base_mb=GB)]) == {}
    assert granted([ticket(1, 1, 89)], [card(0, 89, base_mb=GB)]) == {1: [0]}
    assert not has_room(card(0, 89, base_mb=GB), [], 90 * GB)
    assert not has_room(None, [], 1)
    assert has_room(None, [], None)


def test_so_much_of_a_whole_card_must_be_free():
    assert granted([ticket(1, least_mb=60 * GB)], [card(0, 50), card(1, 70)]) == {1: [1]}
    assert granted([ticket(1, least_mb=60 * GB)], [card(0, None, processes=())]) == {}


def test_a_program_that_leases_a_card_is_no_stranger_there():
    assert granted([ticket(1, 1, 10)], [card(0, foreign=(7,))], [lease(0, 10, pid=7)]) == {1: [0]}
    assert granted([ticket(1, 1, 10)], [card(0, foreign=(7, 8))], [lease(0, 10, pid=7)]) == {}


# Back-fill


def test_a_small_request_goes_where_the_large_one_in_front_will_not():
    cards = [card(n) for n in range(4)]
    busy = [lease(0), lease(1)]
    tickets = [ticket(1, 3), ticket(2, 1), ticket(3, 1)]
    decision = grant(tickets, cards, busy, 0.0)
    assert decision.reserved[1] == ("h", ("G0", "G1", "G2"))  # as many busy ones as there are
    assert {one.ticket.number: one.cards[0].index for one in decision.grants} == {2: 3}


def test_a_reserved_set_stays_so_that_small_ones_cannot_starve_it():
    cards = [card(n) for n in range(5)]
    large = ticket(1, 3, reserved=("h", ("G0", "G1", "G2")))
    # 0 is free by now, and 4 was taken by a small one: the set does not move on to whatever is busy.
    decision = grant([large, ticket(2), ticket(3)], cards, [lease(1), lease(2), lease(4)], 0.0)
    assert decision.reserved[1] == ("h", ("G0", "G1", "G2"))
    assert [(one.ticket.number, one.cards[0].index) for one in decision.grants] == [(2, 3)]


def test_it_takes_another_set_if_that_is_free_first():
    large = ticket(1, 2, reserved=("h", ("G0", "G1")))
    assert granted([large, ticket(2)], [card(n) for n in range(4)], [lease(0), lease(1)]) == {1: [2, 3]}


def test_a_set_that_cannot_come_true_any_more_is_replaced():
    large = ticket(1, 2, reserved=("h", ("G0", "G1")))
    cards = [card(0), card(1, foreign=(9,)), card(2), card(3)]
    decision = grant([large], cards, [lease(2), lease(3)], 0.0)
    assert decision.reserved[1] == ("h", ("G0", "G2"))


def test_what_only_a_strangers_leaving_makes_true_reserves_nothing():
    cards = [card(0), card(1, foreign=(9,))]
    decision = grant([ticket(1, 2), ticket(2)], cards, [], 0.0)
    assert decision.reserved == {1: None}
    assert [one.ticket.number for one in decision.grants] == [2]


def test_cards_too_small_and_other_hosts_are_left_to_others():
    cards = [card(0), card(1, 80), card(2, 80, memory_mb=10 * GB, used_mb=0), card(0, host="b", uuid="B0")]
    everywhere = frozenset({"h", "b"})
    tickets = [ticket(1, 2, 50), ticket(2, 1, 5, hosts=everywhere), ticket(3, 1, 5, hosts=everywhere)]
    found = grant(tickets, cards, [lease(0)], 0.0)
    assert {one.ticket.number: (one.host, one.cards[0].index) for one in found.grants} == {2: ("h", 2), 3: ("b", 0)}


def test_never_says_what_is_missing():
    cards = {"h": [card(0, 80), card(1, 80, memory_mb=40 * GB)], "b": [card(0)]}
    assert never(Requests(gpus=2), (), cards) is None
    assert never(Requests(gpus=2, gpu_memory_mb=50 * GB), (), cards) == (
        "asks for 2 GPUs with 50000 MB each; no host has that much: the most is 1"
    )
    assert never(Requests(gpus=2), (0,), cards) == (
        "asks for 2 GPUs; no host has that much among its GPUs 0: the most is 1"
    )
    unknown = {"h": [card(0, None, memory_mb=None)]}
    assert "do not report their memory" in (never(Requests(gpus=1, gpu_memory_mb=1), (), unknown) or "")
    busy = {"h": [card(0, foreign=(1,)), card(1, quarantine="q", quarantined_at=0.0)]}
    assert never(Requests(gpus=2), (), busy) is None  # some day it may


# All at once

_cards = st.lists(
    st.builds(
        lambda host, free, foreign, quarantine, known: (host, free, foreign, quarantine, known),
        st.sampled_from("ab"), st.integers(0, 90), st.booleans(), st.booleans(), st.booleans(),
    ), min_size=1, max_size=7,
)  # fmt: skip
_asks = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from([0, 10, 45, 80]), st.sampled_from(["x", "y", "z"]), st.booleans()),
    max_size=8,
)


@settings(max_examples=150, deadline=None)
@given(shape=_cards, asks=_asks, held=st.lists(st.tuples(st.integers(0, 6), st.sampled_from([None, 20])), max_size=3))
def test_a_decision_is_always_sound(
    shape: list[tuple[str, int, bool, bool, bool]],
    asks: list[tuple[int, int, str, bool]],
    held: list[tuple[int, int | None]],
):
    cards = [
        card(
            n,
            free if known else None,
            host=host,
            foreign=(9,) if foreign and free < 10 else (),
            quarantine="q" if quarantine and free < 5 else None,
        )
        for n, (host, free, foreign, quarantine, known) in enumerate(shape)
    ]
    leases = [lease(n, gb, cards[n].host) for n, gb in {n: gb for n, gb in held if n < len(cards)}.items()]
    everywhere = frozenset("ab")
    tickets = [ticket(n, g, m, o, hosts=everywhere, pack=p) for n, (g, m, o, p) in enumerate(asks, 1)]
    decision = grant(tickets, cards, leases, 0.0)
    assert {one.ticket.number for one in decision.grants} | decision.reserved.keys() == {one.number for one in tickets}
    taken = {(one.host, one.uuid): [one.memory_mb] for one in leases}
    for one in decision.grants:
        assert len({found.uuid for found in one.cards}) == one.ticket.gpus
        assert {found.host for found in one.cards} == {one.host}
        for found in one.cards:
            assert blocked(found, 0.0) is None
            taken.setdefault((one.host, found.uuid), []).append(one.ticket.memory_mb or None)
    for (host, uuid), amounts in taken.items():
        whole = next(one for one in cards if (one.host, one.uuid) == (host, uuid))
        assert len(amounts) == 1 or None not in amounts
        if len(amounts) > 1:
            assert sum(amount or 0 for amount in amounts) <= (whole.memory_mb or 0)
    # Nobody is passed over by somebody behind him who took what he could have taken alone.
    order = in_turn(tickets)
    places = {one.ticket.number: one for one in decision.grants}
    for earlier, later in combinations(order, 2):
        if earlier.number in places or later.number not in places:
            continue
        reserved = decision.reserved[earlier.number]
        if reserved is not None and not later.memory_mb:
            mine = {(places[later.number].host, found.uuid) for found in places[later.number].cards}
            assert mine.isdisjoint({(reserved[0], uuid) for uuid in reserved[1]})
