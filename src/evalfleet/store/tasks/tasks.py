"""Tasks: new ones, and what operators do to them. What attempts do to them is in `attempts`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from evalfleet.errors import InputError, WrongState
from evalfleet.model import Run, Task, TaskSpec, TaskState
from evalfleet.store import rows
from evalfleet.store.database.base import Conflict, Database
from evalfleet.store.events import Events
from evalfleet.store.tasks.queries import TaskQueries

# The event of a task that enters a state without a verdict.
EVENTS = {
    TaskState.QUEUED: "task.retried",
    TaskState.FAILED: "task.failed",
    TaskState.HELD: "task.held",
    TaskState.CANCELLED: "task.cancelled",
}


class _Head(msgspec.Struct):
    key: str
    domain: str


_head = msgspec.json.Decoder(_Head)


class Tasks(TaskQueries):
    def __init__(self, database: Database, events: Events) -> None:
        super().__init__(database)
        self._events = events

    def add(self, run: Run, tasks: Sequence[TaskSpec]) -> list[Task]:
        """Give an open run that runs more tasks, numbered after those that it has. Event `task.submitted` for each.
        Returns them; none if the run is not ours, not open or not running any more. Raises InputError for a key that
        it has already."""
        with self._db.transaction():
            found = self._db.rows("select_room_for_tasks", id=run.id, epoch=run.epoch)
            if not found or not tasks:
                return []
            last: int = found[0]["last"]
            lines = (rows.to_json(spec).encode() + b"\n" for spec in tasks)
            self.insert(run.id, lines, after=last)
            added = [self.at(run.id, last + place) for place in range(1, len(tasks) + 1)]
            for task in added:
                self._events.write(run.id, "task.submitted", {"number": task.number}, task)
            return added

    def insert(self, run_id: str, lines: Iterable[bytes], after: int) -> int:
        """Insert tasks, one line of JSON each, inside the transaction of the caller; returns the number of the last. For the
        other parts of the store."""
        count = after

        def values() -> Iterator[dict[str, Any]]:
            nonlocal count
            for line in lines:
                head = _head.decode(line)
                count += 1
                yield {
                    "run_id": run_id,
                    "number": count,
                    "key": head.key,
                    "domain": head.domain,
                    "spec": line[:-1].decode(),
                }

        try:
            self._db.many("insert_task", values())
        except Conflict as error:
            raise InputError(
                f"task {error.values['number']}: the key {error.values['key']!r} is used twice; every task of a run needs its own"
            ) from error
        return count

    def bound_waiting(self, run: Run, most_s: float) -> None:
        """Let no task wait longer than that: the clock may have been set back since it was told to wait."""
        with self._db.transaction():
            self._db.rows("bound_waiting", run_id=run.id, epoch=run.epoch, latest=self._db.now() + most_s)

    def conclude(self, run: Run, number: int, state: TaskState, reason: str) -> Task | None:
        """End a task that waits by the attempt that failed last: queued -> failed | held. Event `task.failed` or
        `task.held`. None: it does not wait any more."""
        with self._db.transaction():
            found = self._db.rows(
                "conclude_task", run_id=run.id, number=number, epoch=run.epoch, state=str(state), reason=reason
            )
            if not found:
                return None
            task = rows.task(found[0])
            self._events.write(run.id, EVENTS[state], {"reason": reason}, task)
            return task

    # What operators do

    def hold(self, run: Run, keys: Sequence[str], reason: str) -> list[str]:
        """queued -> held; a running task is held when its attempt ends without a verdict. Returns the keys that were
        affected. Event `task.held`, or `task.hold_asked` while it runs. Raises NotFound."""
        with self._db.transaction():
            affected: list[str] = []
            for task in [self.get(run.id, key) for key in keys]:
                if self._db.rows("hold_task", **_place(run, task), reason=reason):
                    self._events.write(run.id, "task.held", {"reason": reason}, task)
                elif self._db.rows("ask_hold", **_place(run, task), reason=reason):
                    self._events.write(run.id, "task.hold_asked", {"reason": reason}, task)
                else:
                    continue
                affected.append(task.key)
            return affected

    def release(self, run: Run, keys: Sequence[str]) -> list[str]:
        """held -> queued, with a fresh allowance of lost attempts, and of its own where none is left. A running task that
        was to be held is not held any more. Event `task.released`, or `task.hold_dropped` while it runs. Raises NotFound."""
        with self._db.transaction():
            affected: list[str] = []
            for task in [self.get(run.id, key) for key in keys]:
                if self._db.rows("release_task", **_place(run, task), attempts=run.policy.attempts):
                    self._db.rows("uncount_attempts", run_id=run.id, number=task.number)
                    self._events.write(run.id, "task.released", {}, task)
                elif self._db.rows("unask_hold", **_place(run, task)):
                    self._events.write(run.id, "task.hold_dropped", {}, task)
                else:
                    continue
                affected.append(task.key)
            return affected

    def retry(self, run: Run, keys: Sequence[str] | None, states: Sequence[TaskState]) -> list[str]:
        """Failed, held or cancelled tasks of `states` (all, or those of `keys`) -> queued with a fresh allowance. Event
        `task.retried`. Returns their keys. Raises NotFound, and WrongState for a key whose task is in none of `states`."""
        with self._db.transaction():
            if keys is None:
                names = rows.to_json([str(state) for state in states])
                found = self._db.rows("select_task_numbers", run_id=run.id, states=names)
                tasks = [(row["number"], row["key"]) for row in found]
            else:
                tasks = [self._retriable(run, key, states) for key in keys]
            retried = [key for number, key in tasks if self._retry(run, number, key)]
            if retried:
                self._db.rows("unmark_cancelling", id=run.id, epoch=run.epoch)  # a retry takes a cancel back
            return retried

    def _retriable(self, run: Run, key: str, states: Sequence[TaskState]) -> tuple[int, str]:
        task = self.get(run.id, key)
        if task.state not in states:
            raise WrongState(f"task {key!r} is {task.state}; only {', '.join(states)} tasks can be retried")
        return task.number, key

    def _retry(self, run: Run, number: int, key: str) -> bool:
        found = self._db.rows("retry_task", run_id=run.id, number=number, epoch=run.epoch)
        if found:
            self._db.rows("uncount_attempts", run_id=run.id, number=number)
            self._events.write(run.id, "task.retried", {"reason": "asked"}, key)
        return bool(found)

    def cancel(self, run: Run, reason: str) -> list[str]:
        """queued, held -> cancelled, and the run is `cancelling` from now on: its driver ends its live attempts. Event
        `task.cancelled`. Returns the keys."""
        with self._db.transaction():
            self._db.rows("mark_cancelling", id=run.id, epoch=run.epoch)
            found = self._db.rows("cancel_tasks", run_id=run.id, epoch=run.epoch, reason=reason)
            keys = [row["key"] for row in sorted(found, key=lambda row: row["number"])]
            for key in keys:
                self._events.write(run.id, "task.cancelled", {"reason": reason}, key)
            return keys


def _place(run: Run, task: Task) -> dict[str, Any]:
    return {"run_id": run.id, "number": task.number, "epoch": run.epoch}
