"""What people do to a run from outside, and what they ask its owner to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evalfleet.errors import WrongState
from evalfleet.model import JsonObject, Request, Run, Task, TaskState, Verb
from evalfleet.store.runs import rows
from evalfleet.store.runs.events import Recording


class Steering(Recording):
    """The part of `Store` that operators use."""

    def hold(self, run: Run, keys: Sequence[str], reason: str) -> list[str]:
        with self._db.transaction():
            affected: list[str] = []
            for task in [self.task(run.id, key) for key in keys]:
                if self._db.rows("hold_task", **_place(run, task), reason=reason):
                    self._event(run.id, "task.held", {"reason": reason}, task)
                elif self._db.rows("ask_hold", **_place(run, task), reason=reason):
                    self._event(run.id, "task.hold_asked", {"reason": reason}, task)
                else:
                    continue
                affected.append(task.key)
            return affected

    def release(self, run: Run, keys: Sequence[str]) -> list[str]:
        with self._db.transaction():
            affected: list[str] = []
            for task in [self.task(run.id, key) for key in keys]:
                if self._db.rows("release_task", **_place(run, task), attempts=run.policy.attempts):
                    self._db.rows("uncount_attempts", run_id=run.id, number=task.number)
                    self._event(run.id, "task.released", {}, task)
                elif self._db.rows("unask_hold", **_place(run, task)):
                    self._event(run.id, "task.hold_dropped", {}, task)
                else:
                    continue
                affected.append(task.key)
            return affected

    def retry(self, run: Run, keys: Sequence[str] | None, states: Sequence[TaskState]) -> list[str]:
        with self._db.transaction():
            if keys is None:
                names = rows.to_json([str(state) for state in states])
                found = self._db.rows("select_task_numbers", run_id=run.id, states=names)
                tasks = [(row["number"], row["key"]) for row in found]
            else:
                tasks = [self._retriable(run, key, states) for key in keys]
            retried = [key for number, key in tasks if self._retry(run, number, key)]
            if retried:
                self._db.rows("unmark_cancelling", id=run.id, epoch=run.epoch)  # whoever retries takes a cancel back
            return retried

    def _retriable(self, run: Run, key: str, states: Sequence[TaskState]) -> tuple[int, str]:
        task = self.task(run.id, key)
        if task.state not in states:
            raise WrongState(f"task {key!r} is {task.state}; only {', '.join(states)} tasks can be retried")
        return task.number, key

    def _retry(self, run: Run, number: int, key: str) -> bool:
        found = self._db.rows("retry_task", run_id=run.id, number=number, epoch=run.epoch)
        if found:
            self._db.rows("uncount_attempts", run_id=run.id, number=number)
            self._event(run.id, "task.retried", {"reason": "asked"}, key)
        return bool(found)

    def cancel_tasks(self, run: Run, reason: str) -> list[str]:
        with self._db.transaction():
            self._db.rows("mark_cancelling", id=run.id, epoch=run.epoch)
            found = self._db.rows("cancel_tasks", run_id=run.id, epoch=run.epoch, reason=reason)
            keys = [row["key"] for row in sorted(found, key=lambda row: row["number"])]
            for key in keys:
                self._event(run.id, "task.cancelled", {"reason": reason}, key)
            return keys

    def set_pausing(self, run: Run, reason: JsonObject | None) -> bool:
        with self._db.transaction():
            pausing = None if reason is None else rows.to_json(reason)
            return bool(self._db.rows("set_pausing", id=run.id, epoch=run.epoch, pausing=pausing))

    def request(self, run_id: str, verb: Verb, args: JsonObject, asked_by: str) -> int:
        with self._db.transaction():
            self.run(run_id)
            found = self._db.rows(
                "insert_request",
                run_id=run_id,
                verb=str(verb),
                args=rows.to_json(args),
                asked_by=asked_by,
                now=self.now(),
            )
            self._event(run_id, "run.requested", {**args, "verb": verb, "by": asked_by})
            return found[0]["number"]

    def obey(self, run: Run, request: Request, answer: JsonObject) -> bool:
        with self._db.transaction():
            done = self._db.rows(
                "obey_request",
                run_id=run.id,
                epoch=run.epoch,
                number=request.number,
                now=self.now(),
                answer=rows.to_json(answer),
            )
            return bool(done)


def _place(run: Run, task: Task) -> dict[str, Any]:
    return {"run_id": run.id, "number": task.number, "epoch": run.epoch}
