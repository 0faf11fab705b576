"""The contract of a store: quotas hold in the claim, and runs on a pool know of each other."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.support.store import cases

from evalfleet.core.shares.quota import ShareRule, Subject, Use, Wanted
from evalfleet.model import Ownership, Policy, Requests, Run
from evalfleet.store.shares.shares import FRESH_S, HALF_S
from evalfleet.store.store import Store
from evalfleet.testing.clock import FakeClock


def of(store: Store, owner: str, project: str = "", tasks: int = 9, **policy: object) -> Run:
    whose = Ownership(owner=owner, project=project)
    return cases.drive(store, tasks, Policy(**policy), ownership=whose)  # pyright: ignore[reportArgumentType]


def claim(store: Store, run: Run, number: int, *, gpus: int = 0, usd: float = 0.0, rules: tuple[ShareRule, ...] = ()):
    wanted = replace(cases.new_claim(number), requests=Requests(gpus=gpus), committed_usd=usd, rules=rules)
    return store.attempts.claim(run, wanted)


def end(store: Store, run: Run, number: int, cost_usd: float = 0.0, ended_at: float | None = None) -> None:
    attempt = store.attempts.unended(run.id)[0]
    assert attempt.task_number == number
    when = store.now() if ended_at is None else ended_at
    cases.finished(store, run, cases.with_verdict(attempt, cost_usd=cost_usd, ended_at=when))


class ShareContract:
    """What operators say of users and projects holds for the next claim, and nobody needs to say anything."""

    def test_rules_are_kept_changed_and_removed(self, store: Store) -> None:
        assert store.shares.rules() == []
        alice = ShareRule(subject=Subject.USER, name="alice", weight=3.0, running=4, gpus=2, usd_per_day=1.5)
        nightly = ShareRule(subject=Subject.PROJECT, name="nightly", running=1)
        store.shares.set_rule(nightly)
        store.shares.set_rule(replace(alice, running=9))
        store.shares.set_rule(alice)
        assert store.shares.rules() == [nightly, alice]
        assert store.shares.remove_rule(Subject.USER, "alice")
        assert not store.shares.remove_rule(Subject.USER, "alice")
        assert store.shares.rules() == [nightly]

    def test_a_user_has_at_most_the_running_attempts_of_the_quota_over_all_runs(self, store: Store) -> None:
        store.shares.set_rule(ShareRule(subject=Subject.USER, name="alice", running=2))
        one, two, other = of(store, "alice"), of(store, "alice"), of(store, "bob")
        assert claim(store, one, 1)
        assert claim(store, two, 1)
        assert claim(store, one, 2) is None
        assert store.shares.refusal(two, Wanted()) == "your quota is 2 running attempts, 2 run"
        assert store.tasks.at(one.id, 2).attempts == 0
        assert claim(store, other, 1)
        end(store, two, 1)
        assert claim(store, one, 2)

    def test_the_quota_of_a_project_holds_for_all_its_users(self, store: Store) -> None:
        store.shares.set_rule(ShareRule(subject=Subject.PROJECT, name="p", running=1))
        one, two = of(store, "alice", "p"), of(store, "bob", "p")
        assert claim(store, one, 1)
        assert claim(store, two, 1) is None
        assert store.shares.refusal(two, Wanted()) == "the quota of project p is 1 running attempt, 1 run"
        assert claim(store, of(store, "bob", "q"), 1)

    def test_what_is_said_of_everybody_is_for_each_and_gives_way_to_what_is_said_of_one(self, store: Store) -> None:
        store.shares.set_rule(ShareRule(subject=Subject.USER, name="*", running=1))
        store.shares.set_rule(ShareRule(subject=Subject.USER, name="carol", running=2))
        for owner, most in (("alice", 1), ("bob", 1), ("carol", 2)):
            run = of(store, owner)
            assert [claim(store, run, number) is not None for number in (1, 2, 3)] == [i < most for i in range(3)]

    def test_gpus_are_counted(self, store: Store) -> None:
        store.shares.set_rule(ShareRule(subject=Subject.USER, name="alice", gpus=3))
        run = of(store, "alice")
        assert claim(store, run, 1, gpus=2)
        assert claim(store, run, 2, gpus=2) is None
        assert store.shares.refusal(run, Wanted(gpus=2)) == "your quota is 3 GPUs, 2 in use"
        assert claim(store, run, 3)
        assert claim(store, run, 4, gpus=1)

    def test_dollars_of_a_day_count_what_is_spent_and_what_runs_may_cost(self, store: Store, clock: FakeClock) -> None:
        clock.advance(86_400.0 - store.now() % 86_400.0 + 3600.0)  # to one o'clock of a day
        store.shares.set_rule(ShareRule(subject=Subject.USER, name="alice", usd_per_day=1.0))
        run, more = of(store, "alice"), of(store, "alice")
        assert claim(store, run, 1, usd=0.4)
        assert claim(store, more, 1, usd=0.4)
        assert claim(store, run, 2, usd=0.4) is None
        assert store.shares.use(Subject.USER, "alice") == Use(running=2, committed_usd=0.8)
        end(store, more, 1, cost_usd=0.1)
        assert claim(store, run, 2, usd=0.4)
        assert claim(store, run, 3, usd=0.2) is None
        words = store.shares.refusal(run, Wanted(usd=0.2))
        assert words is not None
        assert words.startswith("your quota is $1.00 a day: $0.10 spent, $0.80 committed")
        clock.advance(86_400.0)
        assert claim(store, run, 3, usd=0.2), "a new day: what runs still counts, what was spent does not"
        assert claim(store, run, 4, usd=0.2) is None

    def test_the_configuration_may_set_quotas_and_the_store_goes_first(self, store: Store) -> None:
        given = (ShareRule(subject=Subject.USER, name="alice", running=1),)
        run = of(store, "alice")
        assert claim(store, run, 1, rules=given)
        assert claim(store, run, 2, rules=given) is None
        store.shares.set_rule(ShareRule(subject=Subject.USER, name="alice", running=2))
        assert claim(store, run, 2, rules=given)

    def test_runs_on_a_pool_see_what_others_have_and_want(self, store: Store, clock: FakeClock) -> None:
        one, two, away = of(store, "alice", "p", priority=2), of(store, "bob"), of(store, "bob")
        store.shares.publish(one, "pool", 7, None)
        store.shares.publish(two, "pool", 3, store.now())
        store.shares.publish(away, "another", 3, None)
        assert claim(store, one, 1)
        clock.advance(5.0)
        [seen] = store.shares.on_pool("pool", two.id)
        assert (seen.run_id, seen.owner, seen.project, seen.priority) == (one.id, "alice", "p", 2)
        assert (seen.live, seen.wanted, seen.waits_since, seen.used_s) == (1, 7, None, pytest.approx(5.0))
        [seen] = store.shares.on_pool("pool", one.id)
        assert (seen.run_id, seen.live, seen.wanted, seen.waits_since) == (
            two.id,
            0,
            3,
            pytest.approx(store.now() - 5.0),
        )

    def test_what_a_dead_controller_wanted_is_forgotten_and_then_what_it_had(
        self, store: Store, clock: FakeClock
    ) -> None:
        dead, other = of(store, "alice", pool="pool"), of(store, "bob", pool="pool")
        store.shares.publish(dead, "pool", 7, None)
        assert claim(store, dead, 1)
        clock.advance(FRESH_S + 1.0)
        [seen] = store.shares.on_pool("pool", other.id)
        assert (seen.live, seen.wanted) == (1, 0)
        clock.advance(60.0)  # its lease
        assert all(not (seen.live or seen.wanted) for seen in store.shares.on_pool("pool", other.id))

    def test_slot_time_fades(self, store: Store, clock: FakeClock) -> None:
        run = of(store, "alice", "p")
        store.shares.add_use(run, 100.0)
        clock.advance(HALF_S)
        assert store.shares.slot_use() == {("alice", "p"): pytest.approx(50.0)}
        store.shares.add_use(run, 10.0)
        assert store.shares.slot_use() == {("alice", "p"): pytest.approx(60.0)}
