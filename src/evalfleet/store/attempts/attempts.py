"""Attempts: from the claim of a task to its verdict or failure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evalfleet.core.shares.quota import Wanted
from evalfleet.model import Attempt, AttemptState, Failure, JsonObject, Outcome, Run, Task, TaskState
from evalfleet.store import rows
from evalfleet.store.attempts.queries import AttemptQueries
from evalfleet.store.attempts.records import Claim, Claimed, Finish, Finished, Progress
from evalfleet.store.database.base import Database
from evalfleet.store.events import Events
from evalfleet.store.gpus.gpus import Gpus
from evalfleet.store.shares.shares import Shares
from evalfleet.store.tasks.tasks import EVENTS, Tasks


class Attempts(AttemptQueries):
    def __init__(self, database: Database, events: Events, tasks: Tasks, gpus: Gpus, shares: Shares) -> None:
        super().__init__(database)
        self._events = events
        self._tasks = tasks
        self._gpus = gpus
        self._shares = shares

    def claim(self, run: Run, claim: Claim) -> Claimed | None:
        """Task queued -> running with a new attempt `leased`. Event `attempt.claimed`. None: the task is not queued, the host
        lacks the memory, one of the GPUs is held, or a quota would be passed. With `copy_of` the task runs already, and goes
        on. Event `attempt.doubled`."""
        with self._db.transaction():
            now = self._db.now()
            if claim.devices and not self._gpus.is_free(claim):
                return None
            if self._shares.refusal(run, Wanted(gpus=claim.requests.gpus, usd=claim.committed_usd), claim.rules):
                return None
            claimed = self._db.rows(
                "claim_task" if claim.copy_of is None else "claim_copy",
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
                committed_usd=claim.committed_usd,
                now=now,
            )
            attempt = rows.attempt(inserted[0])
            data: JsonObject = {"number": attempt.number, "worker": claim.worker}
            if claim.devices:
                data["gpus"] = [device.index for device in claim.devices]
                self._gpus.lease_claimed(claim, attempt)
            self._events.write(run.id, "attempt.claimed", data, task, attempt)
            if claim.copy_of is not None:
                self._events.write(run.id, "attempt.doubled", {"number": claim.copy_of}, task, attempt)
            return Claimed(task=task, attempt=attempt)

    def progress(self, run: Run, progress: Progress) -> Attempt | None:
        """Attempt leased -> starting | running. Old news changes nothing. Events `attempt.started` (when it leaves
        `leased`; its data name the new state), `attempt.readied` (starting -> running), `attempt.progressed` (of lines)."""
        with self._db.transaction():
            before = self._db.rows("select_attempt", **_place(progress.attempt))
            found = self._db.rows(
                "progress_attempt",
                **_place(progress.attempt),
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
            task = self._tasks.at(run.id, attempt.task_number)
            if attempt.state != before[0]["state"]:
                event = "attempt.started" if before[0]["state"] == AttemptState.LEASED else "attempt.readied"
                self._events.write(run.id, event, {"worker": attempt.worker, "state": attempt.state}, task, attempt)
            if progress.lines:
                data = {"step": progress.step, "cost_usd": progress.reported_usd, "lines": list(progress.lines)}
                self._events.write(run.id, "attempt.progressed", data, task, attempt)
            return attempt

    def finish(self, run: Run, finish: Finish) -> Finished | None:
        """Attempt -> collecting, task by the rules of `Finish`. Events `attempt.finished` and `task.done`,
        `task.retried`, `task.failed`, `task.held` or `task.cancelled`. None: the attempt was finished before.

        A task that an operator asked to hold is held instead of queued or failed. A verdict of an attempt that was
        given up as lost may come late: the attempt is collecting again, and the verdict counts if the task has none."""
        with self._db.transaction():
            found = self._db.rows(
                "finish_attempt",
                **_place(finish.attempt),
                epoch=run.epoch,
                now=self._db.now(),
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
                self._gpus.release(attempt.id)
            changed = self._succeed(finish) if finish.verdict else self._fail(finish)
            task = changed or self._tasks.at(run.id, attempt.task_number)
            self._events.write(run.id, "attempt.finished", _finish_data(finish, attempt), task, attempt)
            if changed:
                self._finish_event(finish, changed, attempt)
            siblings = self._db.rows("select_siblings", **_place(attempt)) if changed and finish.verdict else []
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
            siblings=self._db.rows("count_siblings", **_place(finish.attempt))[0]["live"],
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
            self._events.write(task.run_id, "task.done", data, task, attempt)
        elif task.state is not TaskState.RUNNING:
            data = {"reason": task.reason}
            if task.state is TaskState.QUEUED:
                data["not_before"] = task.not_before
            self._events.write(task.run_id, EVENTS[task.state], data, task, attempt)

    def charge(
        self, run: Run, attempt: Attempt, cost_usd: float, reported_usd: float, duration_s: float
    ) -> Attempt | None:
        """Book what an ended attempt cost besides: its end came late, and tells more than was known. Event `attempt.charged`.
        None: as much is booked already."""
        with self._db.transaction():
            found = self._db.rows(
                "charge_attempt",
                **_place(attempt),
                epoch=run.epoch,
                cost_usd=cost_usd,
                reported_usd=reported_usd,
                duration_s=duration_s,
            )
            if not found:
                return None
            charged, task = rows.attempt(found[0]), self._tasks.at(run.id, attempt.task_number)
            data: JsonObject = {"cost_usd": cost_usd, "more_usd": cost_usd - attempt.cost_usd}
            self._events.write(run.id, "attempt.charged", data, task, charged)
            return charged

    def collect(self, run: Run, attempt: Attempt, artifacts: Sequence[JsonObject]) -> Attempt | None:
        """Attempt collecting -> ended. Event `attempt.collected`."""
        with self._db.transaction():
            found = self._db.rows("collect_attempt", **_place(attempt), epoch=run.epoch)
            if not found:
                return None
            ended = rows.attempt(found[0])
            task = self._tasks.at(run.id, ended.task_number)
            self._events.write(run.id, "attempt.collected", {"artifacts": list(artifacts)}, task, ended)
            return ended

    def renew(self, run: Run, lease_s: float) -> int:
        """Extend the leases of all live attempts; returns how many. 0 if the run is not ours any more."""
        with self._db.transaction():
            return len(self._db.rows("renew_leases", run_id=run.id, epoch=run.epoch, until=self._db.now() + lease_s))

    def rejudge(
        self, run: Run, attempt: Attempt, failure: Failure, outcome: Outcome, version: int, next_state: TaskState | None
    ) -> Attempt | None:
        """Replace the judgement of an attempt that is over without a verdict, and move its task between failed and held where
        it decided it. Events `attempt.judged` with the old and the new kind and blame; `task.failed` or `task.held`."""
        with self._db.transaction():
            before = self._db.rows("select_attempt", **_place(attempt))
            columns = rows.failure_columns(failure)
            found = self._db.rows(
                "rejudge_attempt",
                **_place(attempt),
                epoch=run.epoch,
                outcome=str(outcome),
                judge_version=version,
                **columns,
            )
            if not found:
                return None
            self._db.rows("recount_task", run_id=run.id, number=attempt.task_number)
            task, old = self._tasks.at(run.id, attempt.task_number), rows.failure(before[0])
            data: JsonObject = {"outcome": outcome, "version": version}
            data |= {"from": old and [old.kind, old.blame], "to": [failure.kind, failure.blame]}
            self._events.write(run.id, "attempt.judged", data, task, attempt)
            if next_state is not None:
                self._judge_task(task, attempt, failure, next_state)
            return rows.attempt(found[0])

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
            self._events.write(task.run_id, EVENTS[next_state], {"reason": reason}, task, attempt)


def _state(progress: Progress) -> str | None:
    if progress.state is not None:
        return str(progress.state)
    if progress.ready_at is not None:
        return str(AttemptState.RUNNING)
    return None if progress.started_at is None else str(AttemptState.STARTING)


def _counted(finish: Finish) -> str | None:
    """Which count of its task the attempt belongs to."""
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


def _place(attempt: Attempt) -> dict[str, Any]:
    return {"run_id": attempt.run_id, "task_number": attempt.task_number, "number": attempt.number}
