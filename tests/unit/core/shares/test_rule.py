"""The fair-share rule: what holds for all inputs, and the cases that people ask about."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.core.shares.division import Part, divide, ideal
from evalfleet.core.shares.order import WaitingRun, in_order
from evalfleet.core.shares.rule import STARVED_S, Group, Weights, allot, standing

parts = st.lists(
    st.builds(
        Part,
        weight=st.floats(0.01, 100),
        wanted=st.integers(0, 50),
        used_s=st.floats(0, 1e6),
    ),
    max_size=8,
)
groups = st.lists(
    st.builds(
        Group,
        user=st.sampled_from("abc"),
        project=st.sampled_from(["", "x", "y"]),
        priority=st.integers(-2, 2),
        live=st.integers(0, 9),
        wanted=st.integers(0, 20),
        used_s=st.floats(0, 1e5),
        waits_s=st.sampled_from([0.0, STARVED_S]),
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda group: (group.user, group.project, group.priority),
)
weights = st.builds(
    Weights,
    users=st.dictionaries(st.sampled_from("abc*"), st.floats(0.1, 10)),
    projects=st.dictionaries(st.sampled_from(["", "x", "*"]), st.floats(0.1, 10)),
)


@given(st.integers(0, 100), parts)
def test_all_slots_are_divided_and_nobody_gets_more_than_they_want(slots: int, given_: list[Part]) -> None:
    shares = divide(slots, given_)
    assert sum(shares) == min(slots, sum(part.wanted for part in given_))
    assert all(0 <= share <= part.wanted for share, part in zip(shares, given_, strict=True))


@given(st.integers(0, 100), parts)
def test_a_share_is_the_ideal_one_made_whole(slots: int, given_: list[Part]) -> None:
    for share, exact in zip(divide(slots, given_), ideal(slots, given_), strict=True):
        assert math.floor(exact + 1e-6) <= share <= math.ceil(exact - 1e-6) or abs(share - exact) < 1e-6


@given(st.integers(0, 100), parts)
def test_who_gets_less_than_they_want_has_no_smaller_a_share_by_weight_than_others(
    slots: int, given_: list[Part]
) -> None:
    exact = ideal(slots, given_)
    for share, part in zip(exact, given_, strict=True):
        if share < part.wanted - 1e-6:
            assert all(
                share / part.weight >= other / each.weight - 1e-6 for other, each in zip(exact, given_, strict=True)
            )


@given(st.integers(0, 40), groups, weights)
def test_the_slots_of_users_and_groups_add_up(slots: int, given_: list[Group], by: Weights) -> None:
    allotted = allot(slots, given_, by)
    for user, share in allotted.users.items():
        mine = [(group, count) for group, count in zip(given_, allotted.groups, strict=True) if group.user == user]
        assert sum(count for _, count in mine) == share
        assert all(0 <= count <= group.demand for group, count in mine)


@given(st.integers(0, 40), groups, weights)
def test_while_a_slot_is_free_and_somebody_wants_it_somebody_may_take_it(
    slots: int, given_: list[Group], by: Weights
) -> None:
    live, demand = sum(group.live for group in given_), sum(group.demand for group in given_)
    rooms = [standing(slots, given_, place, by).room for place in range(len(given_))]
    if live < min(slots, demand):
        assert any(room > 0 and group.wanted > group.live for room, group in zip(rooms, given_, strict=True))


@given(st.integers(0, 40), groups, weights)
def test_what_all_may_take_is_never_more_than_there_is(slots: int, given_: list[Group], by: Weights) -> None:
    live: dict[str, int] = {}
    for group in given_:
        live[group.user] = live.get(group.user, 0) + group.live
    allotted = allot(slots, given_, by)
    assert sum(allotted.users.values()) <= slots
    for place, group in enumerate(given_):
        assert standing(slots, given_, place, by).room + live[group.user] <= max(allotted.users[group.user], 0)


@given(st.integers(0, 40), groups, weights)
def test_a_priority_takes_nothing_from_other_users(slots: int, given_: list[Group], by: Weights) -> None:
    raised = [
        Group(**{**{name: getattr(one, name) for name in one.__struct_fields__}, "priority": one.priority * 100})
        for one in given_
    ]
    assert allot(slots, given_, by).users == allot(slots, raised, by).users


def _of(user: str, wanted: int, **more: object) -> Group:
    return Group(user=user, wanted=wanted, **more)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("slots", "wanted", "by", "shares"),
    [
        (8, {"a": 100, "b": 100}, {}, {"a": 4, "b": 4}),
        (8, {"a": 100, "b": 100}, {"b": 3}, {"a": 2, "b": 6}),
        (9, {"a": 100, "b": 100, "c": 0}, {}, {"a": 5, "b": 4, "c": 0}),
        (9, {"a": 100, "b": 100, "c": 1}, {}, {"a": 4, "b": 4, "c": 1}),
        (16, {"a": 2, "b": 100}, {"a": 10}, {"a": 2, "b": 14}),
        (0, {"a": 5, "b": 5}, {}, {"a": 0, "b": 0}),
        (4, {"a": 100, "b": 100}, {"*": 5}, {"a": 2, "b": 2}),
    ],
)
def test_shares_of_users(slots: int, wanted: dict[str, int], by: dict[str, float], shares: dict[str, int]) -> None:
    assert allot(slots, [_of(user, count) for user, count in wanted.items()], Weights(users=by)).users == shares


def test_two_projects_of_one_user_share_that_users_slots() -> None:
    found = allot(8, [_of("a", 9, project="x"), _of("a", 9, project="y"), _of("b", 9, project="x")], Weights())
    assert list(found.groups) == [2, 2, 4]
    found = allot(
        8, [_of("a", 9, project="x"), _of("a", 9, project="y"), _of("b", 9)], Weights(projects={"x": 3.0, "y": 1.0})
    )
    assert list(found.groups) == [3, 1, 4]


def test_a_higher_priority_goes_first_among_the_runs_of_one_user_only() -> None:
    found = allot(8, [_of("a", 9, priority=5), _of("a", 9), _of("b", 9)], Weights())
    assert list(found.groups) == [4, 0, 4]
    waits = standing(8, [_of("a", 9, priority=5, live=4), _of("a", 9), _of("b", 9, live=4)], 1, Weights())
    assert waits.room == 0
    assert waits.words == "your share is 4 of 8 slots, 4 run for others; your runs with priority 5 go first"


def test_a_group_that_has_waited_for_long_gets_a_slot_of_its_user() -> None:
    found = allot(8, [_of("a", 9, priority=5), _of("a", 9, waits_s=STARVED_S), _of("b", 9)], Weights())
    assert list(found.groups) == [3, 1, 4]


def test_where_slots_are_fewer_than_users_all_have_their_share_over_time() -> None:
    """One slot, weights 1 and 3, tasks of one minute."""
    used, held = {"a": 0.0, "b": 0.0}, {"a": 0, "b": 0}
    for _ in range(400):
        given_ = [_of(user, 9, used_s=used[user]) for user in used]
        taker = next(user for user, share in allot(1, given_, Weights(users={"b": 3})).users.items() if share)
        used[taker] += 60.0
        held[taker] += 1
    assert held["b"] == pytest.approx(300, abs=2)


def test_words_say_the_share_and_what_runs_for_others() -> None:
    found = standing(16, [_of("a", 9, live=4), _of("b", 99, live=12)], 0, Weights(users={"b": 3}))
    assert (found.room, found.words) == (0, "your share is 4 of 16 slots, 12 run for others")
    alone = standing(4, [_of("a", 9, live=4)], 0, Weights())
    assert alone.words == "your runs have 4 of 4 slots"


def _waiting(name: str, user: str, at: float, priority: int = 0) -> WaitingRun:
    return WaitingRun(id=name, user=user, priority=priority, created_at=at)


def test_the_next_run_is_of_who_has_the_fewest_for_their_weight() -> None:
    waiting = [_waiting("a1", "a", 1), _waiting("a2", "a", 2, 1), _waiting("a3", "a", 3), _waiting("b1", "b", 4)]
    assert [run.id for run in in_order(waiting, [], Weights())] == ["a2", "b1", "a1", "a3"]
    assert next(run.id for run in in_order(waiting, ["a", "a"], Weights())) == "b1"
    assert next(run.id for run in in_order(waiting, ["a", "a"], Weights(users={"a": 4}))) == "a2"
