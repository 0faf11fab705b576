"""The contract of a store: attempts, their verdicts and failures."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.support.store import cases

from evalfleet.model import Attempt, AttemptState, Blame, Kind, Outcome, Policy, Run, TaskState, Verdict
from evalfleet.store.attempts.records import Progress
from evalfleet.store.store import Store
from evalfleet.testing.clock import FakeClock

A, T = AttemptState, TaskState


def _types_after(store: Store, run: Run, number: int) -> list[str]:
    return [event.type for event in store.events.of_run(run.id, after=number)]


def _last(store: Store, run: Run) -> int:
    return store.events.of_run(run.id, limit=100_000)[-1].number


def _news(attempt: Attempt, last_event: int, **fields: object) -> Progress:
    return Progress(attempt=attempt, last_event=last_event, **fields)  # pyright: ignore[reportArgumentType]


class AttemptContract:
    """Claim, progress, finish, collect, renew, judge."""

    def test_claim_starts_an_attempt(self, store: Store, clock: FakeClock) -> None:
        run = cases.drive(store)
        before = _last(store, run)
        claimed = store.attempts.claim(run, cases.new_claim(1, worker="w7", memory_mb=50))
        assert claimed is not None
        task, attempt = claimed.task, claimed.attempt
        assert (task.state, task.attempts, task.worker, task.consumed) == (T.RUNNING, 1, "w7", 0)
        assert (attempt.id, attempt.state, attempt.outcome) == (f"{run.id}.1.1", A.LEASED, None)
        assert (attempt.worker, attempt.host, attempt.token) == ("w7", "h1", "token")
        assert (attempt.claimed_at, attempt.lease_expires_at) == (clock(), clock() + 60)
        assert attempt.requests.memory_mb == 50
        assert store.tasks.at(run.id, 1) == task
        assert store.attempts.all(run.id, 1) == store.attempts.unended(run.id) == [attempt]
        [event] = store.events.of_run(run.id, after=before)
        assert (event.type, event.task, event.attempt) == ("attempt.claimed", "task_1", attempt.id)

    def test_a_task_is_claimed_once(self, store: Store) -> None:
        run = cases.drive(store)
        cases.claimed(store, run)
        before = _last(store, run)
        assert store.attempts.claim(run, cases.new_claim(1, worker="w2")) is None
        assert store.attempts.claim(run, cases.new_claim(99)) is None
        assert _last(store, run) == before
        assert len(store.attempts.all(run.id)) == 1

    def test_a_run_that_does_not_run_gives_no_work(self, store: Store) -> None:
        run = store.runs.take(cases.submit(store).id, "me")
        assert store.attempts.claim(run, cases.new_claim(1)) is None
        assert store.runs.begin(run) is not None
        assert store.runs.pause(run, {"cause": "budget", "message": "m"}) is not None
        assert store.attempts.claim(run, cases.new_claim(1)) is None

    def test_a_task_waits_for_its_time(self, store: Store, clock: FakeClock) -> None:
        run = cases.drive(store)
        attempt = cases.claimed(store, run).attempt
        cases.finished(store, run, cases.with_failure(attempt, not_before=clock() + 10))
        assert store.tasks.candidates(run.id, 9) == []
        assert store.tasks.next_due(run.id) == clock() + 10
        assert store.attempts.claim(run, cases.new_claim(1)) is None
        clock.advance(10)
        assert [task.number for task in store.tasks.candidates(run.id, 9)] == [1]
        assert store.tasks.next_due(run.id) is None
        assert cases.claimed(store, run).attempt.number == 2

    def test_memory_of_a_host_is_never_promised_twice(self, store: Store) -> None:
        run, other = cases.drive(store, 3), cases.drive(store, 1)
        assert store.attempts.claim(run, cases.new_claim(1, memory_mb=600, limit_mb=1000)) is not None
        before = _last(store, other)
        assert store.attempts.claim(run, cases.new_claim(2, memory_mb=401, limit_mb=1000)) is None
        assert store.attempts.claim(other, cases.new_claim(1, memory_mb=401, limit_mb=1000)) is None
        assert _last(store, other) == before
        assert store.attempts.claim(run, cases.new_claim(2, memory_mb=400, limit_mb=1000)) is not None
        assert store.attempts.claim(run, cases.new_claim(3, memory_mb=0, limit_mb=1000)) is not None
        first = store.attempts.all(run.id, 1)[0]
        cases.finished(store, run, cases.with_verdict(first))
        assert store.attempts.claim(other, cases.new_claim(1, memory_mb=600, limit_mb=1000)) is not None

    # Progress

    def test_progress_moves_an_attempt_and_says_so_once(self, store: Store, clock: FakeClock) -> None:
        run = cases.drive(store)
        attempt, before = cases.claimed(store, run).attempt, _last(store, run)
        news = _news(attempt, 0, state="starting", started_at=clock() + 1)
        assert (found := store.attempts.progress(run, news)) is not None
        assert (found.state, found.started_at, found.last_event) == (A.STARTING, clock() + 1, 0)
        news = _news(attempt, 2, state="running", ready_at=clock() + 2, step=1, reported_usd=0.5, lines=({"step": 1},))
        assert (found := store.attempts.progress(run, news)) is not None
        assert (found.state, found.ready_at, found.step, found.reported_usd) == (A.RUNNING, clock() + 2, 1, 0.5)
        assert (
            store.attempts.progress(run, _news(attempt, 3, state="starting", started_at=1.0, ready_at=1.0)) is not None
        )
        last = store.attempts.all(run.id)[0]
        assert (last.state, last.started_at, last.ready_at) == (A.RUNNING, clock() + 1, clock() + 2)
        assert (last.step, last.reported_usd, last.last_event) == (1, 0.5, 3)
        assert _types_after(store, run, before) == ["attempt.started", "attempt.readied", "attempt.progressed"]

    def test_an_attempt_may_run_at_once(self, store: Store) -> None:
        run = cases.drive(store)
        attempt, before = cases.claimed(store, run).attempt, _last(store, run)
        assert store.attempts.progress(run, _news(attempt, 1, state="running", started_at=5.0)) is not None
        [event] = store.events.of_run(run.id, after=before)
        assert (event.type, event.data["state"]) == ("attempt.started", "running")

    def test_old_news_change_nothing(self, store: Store) -> None:
        run = cases.drive(store)
        attempt = cases.claimed(store, run).attempt
        assert store.attempts.progress(run, _news(attempt, 5, step=5, reported_usd=2.0)) is not None
        before = _last(store, run)
        assert store.attempts.progress(run, _news(attempt, 5, step=4, lines=({"step": 4},))) is None
        assert store.attempts.progress(run, _news(attempt, 4, state="running")) is None
        cases.finished(store, run, cases.with_verdict(attempt))
        assert store.attempts.progress(run, _news(attempt, 99, state="running")) is None
        assert store.attempts.all(run.id)[0].reported_usd == 2.0
        assert "attempt.progressed" not in _types_after(store, run, before)

    # Ends

    def test_a_verdict_finishes_attempt_and_task(self, store: Store) -> None:
        run = cases.drive(store)
        attempt, before = cases.claimed(store, run).attempt, _last(store, run)
        finished = cases.finished(store, run, cases.with_verdict(attempt, 0.25))
        verdict = Verdict(score=0.25, success=False, steps=3, metrics={"a": 1})
        assert finished.counts
        assert finished.siblings == ()
        assert (finished.task.state, finished.task.verdict, finished.task.failure) == (T.DONE, verdict, None)
        assert (finished.task.consumed, finished.task.lost, finished.task.duration_s) == (1, 0, 7.0)
        ended = finished.attempt
        assert (ended.state, ended.outcome, ended.verdict) == (A.COLLECTING, Outcome.OK, verdict)
        assert (ended.cost_usd, ended.reported_usd, ended.end) == (0.5, 0.25, {"cause": "exited", "exit_code": 0})
        assert store.attempts.unended(run.id) == [ended]
        assert _types_after(store, run, before) == ["attempt.finished", "task.done"]
        assert store.attempts.finish(run, cases.with_verdict(attempt, 1.0)) is None
        assert store.attempts.finish(run, cases.with_failure(attempt)) is None
        assert _types_after(store, run, before) == ["attempt.finished", "task.done"]

    @pytest.mark.parametrize(
        ("state", "event"),
        [
            (T.QUEUED, "task.retried"),
            (T.FAILED, "task.failed"),
            (T.HELD, "task.held"),
            (T.CANCELLED, "task.cancelled"),
        ],
    )
    def test_a_failure_sends_the_task_on(self, store: Store, state: TaskState, event: str) -> None:
        run = cases.drive(store)
        attempt, before = cases.claimed(store, run).attempt, _last(store, run)
        finished = cases.finished(store, run, cases.with_failure(attempt, state))
        task = finished.task
        assert (task.state, task.reason, task.verdict) == (state, "because", None)
        assert (task.failure, task.consumed, task.lost) == (cases.new_failure(), 1, 0)
        assert finished.attempt.failure == cases.new_failure()
        assert _types_after(store, run, before) == ["attempt.finished", event]
        assert store.attempts.finish(run, cases.with_verdict(attempt)) is None
        assert store.tasks.at(run.id, 1).state is state

    def test_only_own_failures_consume(self, store: Store) -> None:
        run = cases.drive(store)
        for outcome in (Outcome.LOST, Outcome.CANCELLED, Outcome.TASK_ERROR, Outcome.LOST):
            attempt = cases.claimed(store, run).attempt
            cases.finished(store, run, cases.with_failure(attempt, T.QUEUED, outcome))
        task = store.tasks.at(run.id, 1)
        assert (task.attempts, task.consumed, task.lost) == (4, 1, 2)
        assert [attempt.number for attempt in store.attempts.all(run.id, 1)] == [1, 2, 3, 4]

    def test_text_that_no_database_takes_is_mended(self, store: Store) -> None:
        run = cases.drive(store)
        attempt = cases.claimed(store, run).attempt
        lines = ({"note": "half \ud800"},)
        assert store.attempts.progress(run, _news(attempt, 1, lines=lines)) is not None
        failure = cases.new_failure(evidence="half \ud800")
        finish = cases.with_failure(attempt, failure=failure, end={"tail": "half \ud800"})
        assert cases.finished(store, run, finish).attempt.end == {"tail": "half ?"}
        assert store.tasks.at(run.id, 1).failure == cases.new_failure(evidence="half ?")

    def test_collect_ends_an_attempt(self, store: Store) -> None:
        run = cases.drive(store)
        attempt = cases.claimed(store, run).attempt
        assert store.attempts.collect(run, attempt, []) is None
        cases.finished(store, run, cases.with_verdict(attempt))
        before = _last(store, run)
        ended = store.attempts.collect(run, attempt, [{"path": "a.png", "size": 5}])
        assert ended is not None
        assert ended.state is A.ENDED
        assert store.attempts.collect(run, attempt, []) is None
        assert store.attempts.unended(run.id) == []
        [event] = store.events.of_run(run.id, after=before)
        assert (event.type, event.data) == ("attempt.collected", {"artifacts": [{"path": "a.png", "size": 5}]})

    # Late verdicts

    @pytest.mark.parametrize("collected", [True, False])
    @pytest.mark.parametrize("state", [T.QUEUED, T.FAILED, T.HELD])
    def test_a_late_verdict_counts_if_the_task_has_none(self, store: Store, state: TaskState, collected: bool) -> None:
        run = cases.drive(store)
        attempt = self._lost(store, run, state, collected=collected)
        before = _last(store, run)
        finished = cases.finished(store, run, cases.with_verdict(attempt))
        assert finished.counts
        assert (finished.task.state, finished.task.consumed, finished.task.lost) == (T.DONE, 1, 0)
        assert finished.attempt.state is A.COLLECTING
        assert store.attempts.unended(run.id) == [finished.attempt]
        assert _types_after(store, run, before) == ["attempt.finished", "task.done"]
        assert store.attempts.claim(run, cases.new_claim(1)) is None
        assert store.attempts.finish(run, cases.with_verdict(attempt)) is None

    def test_a_late_end_is_charged_once(self, store: Store) -> None:
        run = cases.drive(store)
        attempt = self._lost(store, run, T.QUEUED)
        before = _last(store, run)
        charged = store.attempts.charge(run, attempt, 0.75, 0.5, 9.0)
        assert charged is not None
        assert (charged.cost_usd, charged.reported_usd, charged.duration_s) == (0.75, 0.5, 9.0)
        assert charged.outcome is Outcome.LOST
        assert _types_after(store, run, before) == ["attempt.charged"]
        assert store.attempts.charge(run, attempt, 0.75, 0.5, 9.0) is None
        assert store.attempts.charge(run, attempt, 0.25, 0.5, 9.0) is None
        assert store.costs.total_usd(run.id) == 0.75

    def test_a_live_attempt_is_not_charged(self, store: Store) -> None:
        run = cases.drive(store)
        attempt = cases.claimed(store, run).attempt
        assert store.attempts.charge(run, attempt, 0.75, 0.5, 9.0) is None
        old = replace(run, epoch=run.epoch - 1)
        assert store.attempts.charge(old, self._lost(store, cases.drive(store), T.QUEUED), 9.0, 0.0, 1.0) is None

    def test_an_attempt_keeps_the_price_of_its_worker(self, store: Store, clock: FakeClock) -> None:
        run = cases.drive(store)
        found = store.attempts.claim(run, replace(cases.new_claim(1), price_usd_per_hour=3600.0))
        assert found is not None
        assert store.attempts.all(run.id)[0].price_usd_per_hour == 3600.0
        assert store.costs.total_usd(run.id) == 0.0
        clock.advance(2.0)
        assert store.costs.total_usd(run.id) == pytest.approx(2.0)

    def test_time_between_attempts_is_idle(self, store: Store, clock: FakeClock) -> None:
        run, other = cases.drive(store, 2), cases.drive(store)
        for driven, number in ((run, 1), (other, 1), (run, 2)):
            claim = replace(cases.new_claim(number), price_usd_per_hour=3600.0)
            found = store.attempts.claim(driven, claim)
            assert found is not None
            clock.advance(5.0)
            cases.finished(store, driven, cases.with_verdict(found.attempt, ended_at=clock()))
            clock.advance(2.0)
        assert store.costs.idle_usd(run.id) == pytest.approx(4.0)
        assert store.costs.idle_usd(other.id) == 0.0

    def test_a_late_verdict_calls_the_next_attempt_off(self, store: Store) -> None:
        run = cases.drive(store)
        first = self._lost(store, run, T.QUEUED)
        second = cases.claimed(store, run).attempt
        finished = cases.finished(store, run, cases.with_verdict(first))
        assert finished.siblings == (second,)
        called_off = cases.finished(store, run, cases.with_failure(second, T.CANCELLED, Outcome.CANCELLED))
        assert not called_off.counts
        assert (called_off.task.state, called_off.task.consumed, called_off.task.lost) == (T.DONE, 1, 0)

    def test_the_second_verdict_is_evidence(self, store: Store) -> None:
        run = cases.drive(store)
        first = self._lost(store, run, T.QUEUED)
        second = cases.claimed(store, run).attempt
        cases.finished(store, run, cases.with_verdict(second, 1.0))
        before = _last(store, run)
        late = cases.finished(store, run, cases.with_verdict(first, 0.0))
        assert not late.counts
        assert late.task.verdict is not None
        assert (late.task.verdict.score, late.task.consumed, late.task.lost) == (1.0, 1, 1)
        assert late.attempt.verdict is not None
        assert _types_after(store, run, before) == ["attempt.finished"]

    def test_a_late_verdict_of_a_cancelled_task_is_evidence(self, store: Store) -> None:
        run = cases.drive(store)
        first = self._lost(store, run, T.QUEUED)
        store.tasks.cancel(run, "asked")
        assert not cases.finished(store, run, cases.with_verdict(first)).counts
        assert store.tasks.at(run.id, 1).state is T.CANCELLED

    def test_a_late_failure_is_dropped(self, store: Store) -> None:
        run = cases.drive(store)
        first = self._lost(store, run, T.QUEUED)
        assert store.attempts.finish(run, cases.with_failure(first)) is None

    def test_lost_attempts_of_an_earlier_allowance_do_not_come_back(self, store: Store) -> None:
        run = cases.drive(store)
        first = self._lost(store, run, T.HELD)
        store.tasks.retry(run, ["task_1"], [T.HELD])
        self._lost(store, run, T.QUEUED)
        task = cases.finished(store, run, cases.with_verdict(first)).task
        assert (task.consumed, task.lost) == (1, 1)

    def _lost(self, store: Store, run: Run, state: TaskState, *, collected: bool = True) -> Attempt:
        attempt = cases.claimed(store, run).attempt
        attempt = cases.finished(store, run, cases.with_failure(attempt, state, Outcome.LOST)).attempt
        if collected:
            assert store.attempts.collect(run, attempt, []) is not None
        return attempt

    # Leases and judging

    def test_renew_extends_live_leases_only(self, store: Store, clock: FakeClock) -> None:
        run = cases.drive(store, 3)
        cases.claimed(store, run, 1)
        done = cases.claimed(store, run, 2).attempt
        cases.finished(store, run, cases.with_verdict(done))
        clock.advance(50)
        assert store.attempts.renew(run, 60) == 1
        leases = [attempt.lease_expires_at for attempt in store.attempts.all(run.id)]
        assert leases == [clock() + 60, clock() + 10]

    def test_rejudge_moves_blame_and_task(self, store: Store) -> None:
        run = cases.drive(store, policy=Policy(attempts=1))
        attempt = cases.claimed(store, run).attempt
        cases.finished(store, run, cases.with_failure(attempt, T.FAILED))
        newer = cases.Failure(kind=Kind.DISK_FULL, blame=Blame.WORKER, retryable=True, consumes=False, evidence="full")
        before = _last(store, run)
        judged = store.attempts.rejudge(run, attempt, newer, Outcome.INFRA_ERROR, 2, T.HELD)
        assert judged is not None
        assert (judged.failure, judged.outcome, judged.judge_version) == (newer, Outcome.INFRA_ERROR, 2)
        task = store.tasks.at(run.id, 1)
        assert (task.state, task.failure, task.consumed, task.lost) == (T.HELD, newer, 0, 1)
        assert _types_after(store, run, before) == ["attempt.judged", "task.held"]
        assert store.events.of_run(run.id, after=before)[0].data == {
            "from": ["bad_exit", "task"],
            "to": ["disk_full", "worker"],
            "version": 2,
            "outcome": "infra_error",
        }
        before = _last(store, run)
        assert store.attempts.rejudge(run, judged, newer, Outcome.INFRA_ERROR, 3, T.HELD) is not None
        assert _types_after(store, run, before) == ["attempt.judged"]

    def test_rejudge_of_a_waiting_task_gives_its_attempt_back(self, store: Store) -> None:
        run = cases.drive(store)
        attempt = cases.claimed(store, run).attempt
        newer = cases.Failure(kind=Kind.BAD_EXIT, blame=Blame.WORKER, retryable=True, consumes=False, evidence="1")
        assert store.attempts.rejudge(run, attempt, newer, Outcome.INFRA_ERROR, 2, None) is None, "it is not over"
        cases.finished(store, run, cases.with_failure(attempt, T.QUEUED))
        assert store.tasks.at(run.id, 1).consumed == 1
        assert store.attempts.rejudge(run, attempt, newer, Outcome.INFRA_ERROR, 2, None) is not None
        task = store.tasks.at(run.id, 1)
        assert (task.state, task.consumed, task.lost) == (T.QUEUED, 0, 1)

    @pytest.mark.parametrize("state", [T.FAILED, T.HELD])
    def test_conclude_ends_the_wait_of_a_task(self, store: Store, state: TaskState) -> None:
        run = cases.drive(store)
        attempt = cases.claimed(store, run).attempt
        assert store.tasks.conclude(run, 1, state, "enough") is None, "it runs"
        cases.finished(store, run, cases.with_failure(attempt, T.QUEUED))
        before = _last(store, run)
        task = store.tasks.conclude(run, 1, state, "enough")
        assert task == store.tasks.at(run.id, 1)
        assert task is not None
        assert (task.state, task.reason, task.failure) == (state, "enough", cases.new_failure())
        assert _types_after(store, run, before) == [f"task.{state}"]
        assert store.tasks.conclude(run, 1, state, "enough") is None
        row = next(row for row in store.tasks.result_rows(run.id) if row["number"] == 1)
        assert row["decided_by"] == attempt.number

    def test_rejudge_leaves_verdicts_and_an_operators_hold_alone(self, store: Store) -> None:
        run = cases.drive(store, 2)
        good = cases.claimed(store, run, 1).attempt
        cases.finished(store, run, cases.with_verdict(good))
        bad = cases.claimed(store, run, 2).attempt
        cases.finished(store, run, cases.with_failure(bad))
        store.tasks.hold(run, ["task_2"], "mine")
        for attempt in (good, bad):
            assert store.attempts.collect(run, attempt, []) is not None
        assert store.attempts.rejudge(run, good, cases.new_failure(), Outcome.TASK_ERROR, 2, T.FAILED) is None
        assert store.attempts.rejudge(run, bad, cases.new_failure(), Outcome.TASK_ERROR, 2, T.FAILED) is not None
        task = store.tasks.at(run.id, 2)
        assert (task.state, task.reason) == (T.HELD, "mine")
