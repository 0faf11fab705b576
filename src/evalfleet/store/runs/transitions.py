"""The writing half of a store, the same for every database. Each method is one transaction with its events."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evalfleet.model import Attempt, AttemptState, Failure, JsonObject, Outcome, Policy, Run, Task, TaskState
from evalfleet.store.access import Access
from evalfleet.store.base.store import Claim, Claimed, Finish, Finished, Progress
from evalfleet.store.daemon import Daemon
from evalfleet.store.gpus.leases import Leasing
from evalfleet.store.home import identity
from evalfleet.store.home.facts import Identity
from evalfleet.store.pools.hosts import Hosting
from evalfleet.store.runs import rows
from evalfleet.store.runs.events import place
from evalfleet.store.runs.requests import Steering
from evalfleet.store.runs.submission import Submitting
from evalfleet.store.series.writer import SeriesKeeping

_TASK_EVENTS = {
    TaskState.QUEUED: "task.retried",
    TaskState.FAILED: "task.failed",
    TaskState.HELD: "task.held",
    TaskState.CANCELLED: "task.cancelled",
}


class Writing(Submitting, Steering, Hosting, Leasing, Access, Daemon, SeriesKeeping):
    """Implements `Store`."""

    def adopt(self, home: Path) -> tuple[Identity, Identity] | None:
        """Let a copy of a home take the original's place; who that was, and who it is now. None: it is no copy.

        Raises CopiedHome: the original is in use.
        """
        with self._db.transaction():
            adopted = identity.adopt(self._db, home)
            if adopted is not None:
                was, now = adopted
                self._event("home", "home.adopted", {"from": was.id, "to": now.id, "original": was.facts.path})
            return adopted

    # A run and its owner

    def take(self, run_id: str, owner: str) -> Run:
        self.run(run_id)
        self._db.own(run_id, owner)
        try:
            with self._db.transaction():
                run = rows.run(self._db.rows("take_run", id=run_id, owner=owner)[0])
                self._drop_tickets(run_id)
                self._event(run_id, "run.taken", {"owner": owner, "epoch": run.epoch})
        except BaseException:
            self._db.disown(run_id)
            raise
        return run

    def leave(self, run: Run) -> None:
        with self._db.transaction():
            if not self._db.rows("leave_run", id=run.id, epoch=run.epoch):
                return
            self._drop_tickets(run.id)
            self._event(run.id, "run.left", {"owner": run.owner})
        self._db.disown(run.id)

    def begin(self, run: Run) -> Run | None:
        with self._db.transaction():
            before = self.run(run.id)
            event = "run.started" if before.started_at is None else "run.resumed"
            return self._change_run(run, "begin_run", event, {"from": before.state})

    def pause(self, run: Run, reason: JsonObject) -> Run | None:
        return self._change_run(run, "pause_run", "run.paused", reason, reason=rows.to_json(reason))

    def complete(self, run: Run) -> Run | None:
        return self._change_run(run, "complete_run", "run.completed", {})

    def cancel(self, run: Run) -> Run | None:
        return self._change_run(run, "cancel_run", "run.cancelled", {})

    def amend(self, run: Run, policy: Policy) -> Run | None:
        data: JsonObject = {
            "budget_usd": policy.budget_usd,
            "workers": policy.workers,
            "distribution": policy.distribution,
        }
        if policy.study is not None:
            data["trials"] = policy.study["study"].get("trials")
        with self._db.transaction():
            changed = self._change_run(run, "amend_policy", "run.amended", data, policy=rows.to_json(policy))
            if changed is not None and policy.budget_usd != run.policy.budget_usd and policy.study is None:
                self._rank_again(run, policy)
        return changed

    def _change_run(self, run: Run, statement: str, event: str, data: JsonObject, **values: Any) -> Run | None:
        with self._db.transaction():
            found = self._db.rows(statement, id=run.id, epoch=run.epoch, now=self.now(), **values)
            if not found:
                return None
            self._event(run.id, event, data)
            return rows.run(found[0])

    def store_breaker(
        self, run: Run, breaker: JsonObject, event: str | None = None, data: JsonObject | None = None
    ) -> None:
        with self._db.transaction():
            if self._db.rows("store_breaker", id=run.id, epoch=run.epoch, breaker=rows.to_json(breaker)) and event:
                self._event(run.id, event, data or {})

    # Attempts

    def claim(self, run: Run, claim: Claim) -> Claimed | None:
        with self._db.transaction():
            now = self.now()
            if claim.devices and not self._is_free(claim):
                return None
            claimed = self._db.rows(
                "claim_task",
                run_id=run.id,
                number=claim.task_number,
                epoch=run.epoch,
                now=now,
                worker=claim.worker,
                host=claim.host,
                memory_mb=claim.requests.memory_mb,
                host_memory_mb=claim.host_memory_mb,
                others=rows.to_json(sorted(claim.others)),
            )
            if not claimed:
                return None
            task = rows.task(claimed[0])
            inserted = self._db.rows(
                "insert_attempt",
                run_id=run.id,
                task_number=task.number,
                number=task.attempts,
                token=claim.token,
                lease_expires_at=now + claim.lease_s,
                host=claim.host,
                worker=claim.worker,
                gpus=claim.requests.gpus,
                memory_mb=claim.requests.memory_mb,
                devices=rows.to_json(claim.devices),
                price_usd_per_hour=claim.price_usd_per_hour,
                now=now,
            )
            attempt = rows.attempt(inserted[0])
            data: JsonObject = {"number": attempt.number, "worker": claim.worker}
            if claim.devices:
                data["gpus"] = [device.index for device in claim.devices]
                self._lease_claimed(claim, attempt)
            self._event(run.id, "attempt.claimed", data, task, attempt)
            return Claimed(task=task, attempt=attempt)

    def progress(self, run: Run, progress: Progress) -> Attempt | None:
        with self._db.transaction():
            before = self._db.rows("select_attempt", **place(progress.attempt))
            found = self._db.rows(
                "progress_attempt",
                **place(progress.attempt),
                epoch=run.epoch,
                state=_state(progress),
                started_at=progress.started_at,
                ready_at=progress.ready_at,
                step=progress.step,
                reported_usd=progress.reported_usd,
                last_event=progress.last_event,
            )
            if not found:
                return None
            attempt = rows.attempt(found[0])
            task = self.task_at(run.id, attempt.task_number)
            if attempt.state != before[0]["state"]:
                event = "attempt.started" if before[0]["state"] == AttemptState.LEASED else "attempt.readied"
                self._event(run.id, event, {"worker": attempt.worker, "state": attempt.state}, task, attempt)
            if progress.lines:
                data = {"step": progress.step, "cost_usd": progress.reported_usd, "lines": list(progress.lines)}
                self._event(run.id, "attempt.progressed", data, task, attempt)
            return attempt

    def finish(self, run: Run, finish: Finish) -> Finished | None:
        with self._db.transaction():
            found = self._db.rows(
                "finish_attempt",
                **place(finish.attempt),
                epoch=run.epoch,
                now=self.now(),
                outcome=str(finish.outcome),
                started_at=finish.started_at,
                ready_at=finish.ready_at,
                ended_at=finish.ended_at,
                duration_s=finish.duration_s,
                cost_usd=finish.cost_usd,
                reported_usd=finish.reported_usd,
                last_event=finish.last_event,
                end_record=rows.to_json(finish.end),
                judge_version=finish.judge_version,
                counted=_counted(finish),
                **rows.verdict_columns(finish.verdict),
                **rows.failure_columns(finish.failure),
            )
            if not found:
                return None
            attempt = rows.attempt(found[0])
            if attempt.devices:
                self._release(attempt.id)
            changed = self._succeed(finish) if finish.verdict else self._fail(finish)
            task = changed or self.task_at(run.id, attempt.task_number)
            self._event(run.id, "attempt.finished", _finish_data(finish, attempt), task, attempt)
            if changed:
                self._finish_event(finish, changed, attempt)
            siblings = self._db.rows("select_siblings", **place(attempt)) if changed and finish.verdict else []
            return Finished(
                task=task,
                attempt=attempt,
                counts=changed is not None,
                siblings=tuple(rows.attempt(row) for row in siblings),
            )

    def _succeed(self, finish: Finish) -> Task | None:
        found = self._db.rows(
            "succeed_task",
            run_id=finish.attempt.run_id,
            number=finish.attempt.task_number,
            duration_s=finish.duration_s,
            worker=finish.attempt.worker,
            attempt_number=finish.attempt.number,
            **rows.verdict_columns(finish.verdict),
        )
        return rows.task(found[0]) if found else None

    def _fail(self, finish: Finish) -> Task | None:
        assert finish.failure is not None
        assert finish.next_state is not None
        found = self._db.rows(
            "fail_attempt_of_task",
            run_id=finish.attempt.run_id,
            number=finish.attempt.task_number,
            siblings=self._db.rows("count_siblings", **place(finish.attempt))[0]["live"],
            state=str(finish.next_state),
            not_before=finish.not_before,
            reason=finish.reason,
            duration_s=finish.duration_s,
            worker=finish.attempt.worker,
            attempt_number=finish.attempt.number,
            **rows.failure_columns(finish.failure),
        )
        return rows.task(found[0]) if found else None

    def _finish_event(self, finish: Finish, task: Task, attempt: Attempt) -> None:
        if finish.verdict:
            data: JsonObject = {"score": finish.verdict.score, "success": finish.verdict.success}
            self._event(task.run_id, "task.done", data, task, attempt)
        elif task.state is not TaskState.RUNNING:
            data = {"reason": task.reason}
            if task.state is TaskState.QUEUED:
                data["not_before"] = task.not_before
            self._event(task.run_id, _TASK_EVENTS[task.state], data, task, attempt)

    def charge(
        self, run: Run, attempt: Attempt, cost_usd: float, reported_usd: float, duration_s: float
    ) -> Attempt | None:
        with self._db.transaction():
            found = self._db.rows(
                "charge_attempt",
                **place(attempt),
                epoch=run.epoch,
                cost_usd=cost_usd,
                reported_usd=reported_usd,
                duration_s=duration_s,
            )
            if not found:
                return None
            charged, task = rows.attempt(found[0]), self.task_at(run.id, attempt.task_number)
            data: JsonObject = {"cost_usd": cost_usd, "more_usd": cost_usd - attempt.cost_usd}
            self._event(run.id, "attempt.charged", data, task, charged)
            return charged

    def collect(self, run: Run, attempt: Attempt, artifacts: Sequence[JsonObject]) -> Attempt | None:
        with self._db.transaction():
            found = self._db.rows("collect_attempt", **place(attempt), epoch=run.epoch)
            if not found:
                return None
            ended = rows.attempt(found[0])
            task = self.task_at(run.id, ended.task_number)
            self._event(run.id, "attempt.collected", {"artifacts": list(artifacts)}, task, ended)
            return ended

    def bound_waiting(self, run: Run, most_s: float) -> None:
        with self._db.transaction():
            self._db.rows("bound_waiting", run_id=run.id, epoch=run.epoch, latest=self.now() + most_s)

    def renew(self, run: Run, lease_s: float) -> int:
        with self._db.transaction():
            return len(self._db.rows("renew_leases", run_id=run.id, epoch=run.epoch, until=self.now() + lease_s))

    def rejudge(
        self, run: Run, attempt: Attempt, failure: Failure, outcome: Outcome, version: int, next_state: TaskState | None
    ) -> Attempt | None:
        with self._db.transaction():
            before = self._db.rows("select_attempt", **place(attempt))
            columns = rows.failure_columns(failure)
            found = self._db.rows(
                "rejudge_attempt",
                **place(attempt),
                epoch=run.epoch,
                outcome=str(outcome),
                judge_version=version,
                **columns,
            )
            if not found:
                return None
            self._db.rows("recount_task", run_id=run.id, number=attempt.task_number)
            task, old = self.task_at(run.id, attempt.task_number), rows.failure(before[0])
            data: JsonObject = {"outcome": outcome, "version": version}
            data |= {"from": old and [old.kind, old.blame], "to": [failure.kind, failure.blame]}
            self._event(run.id, "attempt.judged", data, task, attempt)
            if next_state is not None:
                self._judge_task(task, attempt, failure, next_state)
            return rows.attempt(found[0])

    def conclude(self, run: Run, number: int, state: TaskState, reason: str) -> Task | None:
        with self._db.transaction():
            found = self._db.rows(
                "conclude_task", run_id=run.id, number=number, epoch=run.epoch, state=str(state), reason=reason
            )
            if not found:
                return None
            task = rows.task(found[0])
            self._event(run.id, _TASK_EVENTS[state], {"reason": reason}, task)
            return task

    def _judge_task(self, task: Task, attempt: Attempt, failure: Failure, next_state: TaskState) -> None:
        reason = f"{failure.kind}: {failure.evidence}"
        moved = self._db.rows(
            "judge_task",
            run_id=task.run_id,
            number=task.number,
            attempt_number=attempt.number,
            state=str(next_state),
            reason=reason,
            **rows.failure_columns(failure),
        )
        if moved and next_state is not task.state:
            self._event(task.run_id, _TASK_EVENTS[next_state], {"reason": reason}, task, attempt)


def _state(progress: Progress) -> str | None:
    if progress.state is not None:
        return str(progress.state)
    if progress.ready_at is not None:
        return str(AttemptState.RUNNING)
    return None if progress.started_at is None else str(AttemptState.STARTING)


def _counted(finish: Finish) -> str | None:
    """For which of its task's counts the attempt stands."""
    if finish.outcome is Outcome.CANCELLED:
        return None
    return "consumed" if finish.failure is None or finish.failure.consumes else "lost"


def _finish_data(finish: Finish, attempt: Attempt) -> JsonObject:
    data: JsonObject = {
        "outcome": finish.outcome,
        "worker": attempt.worker,
        "started_at": attempt.started_at,
        "duration_s": finish.duration_s,
        "cost_usd": finish.cost_usd,
    }
    if finish.failure:
        data |= {"kind": finish.failure.kind, "blame": finish.failure.blame, "evidence": finish.failure.evidence}
    return data
