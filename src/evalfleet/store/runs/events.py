"""What every part of the writing half shares: transactions and their events."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from evalfleet.model import Attempt, JsonObject, Task
from evalfleet.store.runs import rows
from evalfleet.store.runs.queries import Reading


class Recording(Reading):
    """A reader that also keeps events."""

    def batch(self) -> AbstractContextManager[None]:
        return self._db.transaction()

    def note(
        self, run_id: str, type: str, data: JsonObject, task: str | None = None, attempt: str | None = None
    ) -> None:
        with self._db.transaction():
            self._write_event(run_id, type, data, task, attempt)

    def _event(
        self, run_id: str, type: str, data: JsonObject, task: Task | str | None = None, attempt: Attempt | None = None
    ) -> None:
        key = task.key if isinstance(task, Task) else task
        self._write_event(run_id, type, data, key, attempt.id if attempt else None)

    def _write_event(self, run_id: str, type: str, data: JsonObject, task: str | None, attempt: str | None) -> None:
        self._db.rows(
            "insert_event",
            run_id=run_id,
            now=self.now(),
            type=type,
            task=task,
            attempt=attempt,
            data=rows.to_json(data),
        )


def place(attempt: Attempt) -> dict[str, Any]:
    return {"run_id": attempt.run_id, "task_number": attempt.task_number, "number": attempt.number}
