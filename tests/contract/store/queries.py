"""The contract of a store: what readers get."""

from __future__ import annotations

import pytest
from tests.support.store import cases

from evalfleet.errors import AmbiguousId, NotFound
from evalfleet.model import Kind, Outcome, Policy, Run, TaskState
from evalfleet.store.store import Store
from evalfleet.testing.clock import FakeClock

T = TaskState


class ReadingContract:
    """Finding, listing, counting; rows for reports."""

    def test_an_empty_store_answers(self, store: Store) -> None:
        assert store.runs.newest() == []
        assert store.events.of_run("nothing") == []
        assert (
            store.attempts.all("nothing")
            == store.attempts.unended("nothing")
            == list(store.attempts.judged("nothing"))
            == []
        )
        assert store.runs.driver("nothing") is None
        assert store.runs.breaker("nothing") is None
        assert store.events.last("nothing") is None
        for text in ("latest", "nothing", "", "%", "_" * 8):
            with pytest.raises(NotFound):
                store.runs.find(text)
        with pytest.raises(NotFound):
            store.runs.get("nothing")
        with pytest.raises(NotFound):
            store.tasks.get("nothing", "key")
        with pytest.raises(NotFound):
            store.tasks.at("nothing", 1)

    def test_a_run_is_found_by_id_prefix_name_or_latest(self, store: Store) -> None:
        first, second = (cases.submit(store) for _ in range(2))
        assert store.runs.find(first.id) == first
        assert store.runs.find(second.id[:-1]).id == second.id
        assert store.runs.find("latest").id == second.id
        assert [run.id for run in store.runs.newest()] == [second.id, first.id]
        assert [run.id for run in store.runs.newest(limit=1)] == [second.id]
        with pytest.raises(AmbiguousId, match=first.id):
            store.runs.find("a run")
        for text in ("", "%", "_" * 8):
            with pytest.raises(NotFound):
                store.runs.find(text)

    def test_a_name_goes_before_the_beginning_of_another_runs_id(self, store: Store) -> None:
        other = cases.submit(store)
        named = store.runs.submit(other.id[:1], Policy(), [cases.task_spec("task")], folder="/tmp", base_env={})
        assert store.runs.find(other.id[:1]).id == named.id

    def test_tasks_come_in_order_however_many(self, store: Store) -> None:
        run = cases.submit(store, 1203)
        assert [task.number for task in store.tasks.all(run.id)] == list(range(1, 1204))
        assert store.tasks.get(run.id, "task_1203") == store.tasks.at(run.id, 1203)
        assert store.tasks.counts(run.id) == dict.fromkeys(T, 0) | {T.QUEUED: 1203}

    def test_counts_name_every_state(self, store: Store) -> None:
        run, other = cases.drive(store, 3), cases.submit(store, 2)
        cases.claimed(store, run, 2)
        counts = dict.fromkeys(T, 0) | {T.QUEUED: 2, T.RUNNING: 1}
        assert store.tasks.counts(run.id) == counts
        assert store.tasks.counts(other.id) == dict.fromkeys(T, 0) | {T.QUEUED: 2}

    def test_candidates_are_limited_and_may_be_sharded(self, store: Store) -> None:
        run = cases.drive(store, 10)
        assert [task.number for task in store.tasks.candidates(run.id, 3)] == [1, 2, 3]
        assert [task.number for task in store.tasks.candidates(run.id, 9, shard=(0, 4))] == [1, 5, 9]
        assert [task.number for task in store.tasks.candidates(run.id, 2, shard=(1, 4))] == [2, 6]
        cases.claimed(store, run, 1)
        assert [task.number for task in store.tasks.candidates(run.id, 1)] == [2]

    def test_unended_attempts_carry_what_a_new_owner_needs(self, store: Store, clock: FakeClock) -> None:
        run = cases.drive(store, 4)
        for number in (3, 1, 2, 4):
            cases.claimed(store, run, number)
            clock.advance(1)
        ended = cases.finished(store, run, cases.with_verdict(store.attempts.all(run.id, 1)[0])).attempt
        gone = cases.finished(store, run, cases.with_failure(store.attempts.all(run.id, 4)[0], T.FAILED)).attempt
        assert store.attempts.collect(run, gone, []) is not None
        store.runs.take(run.id, "the next")
        unended = store.attempts.unended(run.id)
        assert [attempt.task_number for attempt in unended] == [3, 1, 2]
        assert unended[1] == ended
        assert {attempt.token for attempt in unended} == {"token"}
        assert {attempt.host for attempt in unended} == {"h1"}
        assert ended.end == {"cause": "exited", "exit_code": 0}

    def test_events_are_paged_by_number(self, store: Store) -> None:
        run, other = cases.submit(store), cases.submit(store)
        for number in range(10):
            store.events.note((run, other)[number % 2].id, "test.noted", {"number": number})
        events = store.events.of_run(run.id)
        numbers = [event.number for event in events]
        assert numbers == sorted(set(numbers))
        assert [event.data.get("number") for event in events[1:]] == [0, 2, 4, 6, 8]
        assert store.events.of_run(run.id, after=numbers[2], limit=2) == events[3:5]
        assert store.events.last(run.id) == events[-1]

    def test_judged_attempts_come_by_their_ends(self, store: Store) -> None:
        run = self._mixed(store)
        judged = list(store.attempts.judged(run.id))
        assert [(found.key, found.number, found.outcome) for found in judged] == [
            ("task_2", 1, Outcome.TASK_ERROR),
            ("task_1", 1, Outcome.OK),
            ("task_2", 2, Outcome.OK),
            ("task_3", 1, Outcome.TIMEOUT),
        ]
        assert judged[0].failure == cases.new_failure()
        assert judged[1].failure is None
        assert (judged[1].executable, judged[1].host, judged[1].worker) == ("true", "h1", "w1")

    def test_judged_attempts_come_in_the_order_in_which_they_were_judged(self, store: Store, clock: FakeClock) -> None:
        """Independent of the hosts' clocks: the next controller must read what this one stored."""
        run = cases.drive(store, 3)
        attempts = [cases.claimed(store, run, number).attempt for number in (1, 2, 3)]
        for attempt, ended_at in zip(attempts, (clock() + 3600, clock() - 3600, clock()), strict=True):
            clock.advance(1)
            cases.finished(store, run, cases.with_failure(attempt, ended_at=ended_at))
        judged = list(store.attempts.judged(run.id))
        assert [found.key for found in judged] == ["task_1", "task_2", "task_3"]
        assert [found.judged_at for found in judged] == [clock() - 2, clock() - 1, clock()]
        assert (judged[0].attempt_id, judged[0].claimed_at, judged[0].duration_s) == (
            attempts[0].id,
            attempts[0].claimed_at,
            7.0,
        )

    def test_reports_find_their_rows(self, store: Store) -> None:
        run = self._mixed(store)
        assert [(row["key"], row["state"], row["score"]) for row in store.tasks.result_rows(run.id)] == [
            ("task_1", "done", 1.0),
            ("task_2", "done", 0.25),
            ("task_3", "failed", None),
            ("task_4", "running", None),
        ]
        assert {row["outcome"]: row["count"] for row in store.attempts.sums(run.id)} == {
            "ok": 2,
            "task_error": 1,
            "timeout": 1,
            None: 1,
        }
        assert sorted((row["kind"], row["tasks"]) for row in store.attempts.failure_sums(run.id)) == [
            ("bad_exit", 1),
            ("timeout", 1),
        ]
        assert sorted((row["kind"], row["key"], row["attempts"]) for row in store.attempts.failure_lines(run.id)) == [
            ("bad_exit", "task_2", 1),
            ("timeout", "task_3", 1),
        ]
        assert store.costs.waste_usd(run.id) == 1.0
        assert store.costs.waste_sums(run.id) == {"failed": 1.0}
        assert [(row["outcome"], row["cost_usd"]) for row in store.costs.of_attempts(run.id)] == [
            ("task_error", 0.5),
            ("ok", 0.5),
            ("ok", 0.5),
            ("timeout", 0.5),
        ]
        assert store.costs.total_usd(run.id) == 2.0
        assert {row["state"]: row["count"] for row in store.tasks.state_sums(run.id)} == {
            "done": 2,
            "failed": 1,
            "running": 1,
        }
        assert sum(row["count"] for row in store.tasks.sums(run.id)) == 4
        assert [(row["task_number"], row["number"]) for row in store.attempts.all_rows(run.id)] == [
            (1, 1),
            (2, 1),
            (2, 2),
            (3, 1),
            (4, 1),
        ]
        assert [row["key"] for row in store.attempts.live(run.id)] == ["task_4"]
        assert [(row["worker"], row["completed"]) for row in store.attempts.worker_sums(run.id)] == [("w1", 2)]
        assert [row["key"] for row in store.attempts.last_failures(run.id)] == ["task_3", "task_2"]
        assert store.tasks.durations(run.id) == [7.0, 7.0, 7.0]

    def test_episodes_of_a_benchmark_are_known_by_their_payloads(self, store: Store) -> None:
        payloads = [
            {"benchmark": "b", "task": "t", "seed": 0, "max_steps": 9},
            {"benchmark": "b", "task": "t", "seed": 1},
        ]
        specs = [cases.task_spec(f"t_{number}", payload=payload) for number, payload in enumerate([*payloads, "text"])]
        run = store.runs.submit("a run", Policy(), specs, folder="/tmp", base_env={})
        taken = store.runs.begin(store.runs.take(run.id, "me"))
        assert taken is not None
        cases.finished(store, taken, cases.with_verdict(cases.claimed(store, taken, 1).attempt, 0.5))
        assert [(row["key"], row["task"], row["seed"], row["max_steps"]) for row in store.tasks.episodes(run.id)] == [
            ("t_0", "t", 0, 9),
            ("t_1", "t", 1, None),
        ]
        assert store.tasks.episode_sums(run.id) == [
            {"benchmark": "b", "task": "t", "domain": "d", "episodes": 2, "counted": 1, "successes": 0.0}
            | {"score": 0.5, "squares": 0.25, "low": 0.5, "high": 0.5}
        ]
        plain = self._mixed(store)
        assert store.tasks.episodes(plain.id) == store.tasks.episode_sums(plain.id) == []

    def _mixed(self, store: Store) -> Run:
        """task_1 and, at the second attempt, task_2 have verdicts, task_3 failed, task_4 runs."""
        run = cases.drive(store, 4)
        for number in (1, 2, 3, 4):
            cases.claimed(store, run, number)
        first, second, third, _ = store.attempts.all(run.id)
        cases.finished(store, run, cases.with_failure(second, ended_at=1_000_001.0))
        cases.finished(store, run, cases.with_verdict(first, ended_at=1_000_002.0))
        second = cases.claimed(store, run, 2).attempt
        cases.finished(store, run, cases.with_verdict(second, 0.25, ended_at=1_000_003.0))
        timeout = cases.new_failure(Kind.TIMEOUT)
        late = cases.with_failure(third, T.FAILED, Outcome.TIMEOUT, timeout, ended_at=1_000_004.0)
        cases.finished(store, run, late)
        return run
