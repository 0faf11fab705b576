"""Runs: their submission, their owner and their state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from evalfleet.errors import Owned
from evalfleet.model import JsonObject, Ownership, Policy, Run, TaskSpec
from evalfleet.store import rows
from evalfleet.store.database.base import Database
from evalfleet.store.events import Events
from evalfleet.store.gpus.gpus import Gpus
from evalfleet.store.ids import new_id
from evalfleet.store.runs.order import TaskOrder
from evalfleet.store.runs.queries import RunQueries
from evalfleet.store.tasks.tasks import Tasks

_IN_MEMORY = 8_000_000  # bytes of submitted tasks; more are spooled to a file


class Runs(RunQueries):
    def __init__(self, database: Database, events: Events, tasks: Tasks, gpus: Gpus) -> None:
        super().__init__(database)
        self._events = events
        self._tasks = tasks
        self._gpus = gpus
        self._order = TaskOrder(database)

    def submit(
        self,
        name: str,
        policy: Policy,
        tasks: Iterable[TaskSpec],
        *,
        folder: str,
        base_env: dict[str, str],
        open: bool = False,
        ownership: Ownership | None = None,
        secrets: Iterable[str] = (),
    ) -> Run:
        """Store a run with all its tasks, and what it needs of its controller. Event `run.submitted`. `tasks` is read to its end before
        anything is written.

        Args:
            secrets: that tasks which are added later will ask for.

        Raises InputError for a key that is used twice.
        """
        from tempfile import SpooledTemporaryFile  # heavy, and only needed here

        whose = ownership or Ownership()
        wanted = set(secrets)
        # The tasks may come from a slow pipe: they are read before the transaction, which other writers wait for.
        with SpooledTemporaryFile(max_size=_IN_MEMORY) as spool:
            for spec in tasks:
                wanted.update(spec.secrets)
                spool.write(rows.to_json(spec).encode() + b"\n")
            spool.seek(0)
            with self._db.transaction():
                run_id = new_id()
                self._db.rows(
                    "insert_run",
                    id=run_id,
                    name=name,
                    open=int(open),
                    policy=rows.to_json(policy),
                    folder=folder,
                    base_env=rows.to_json(base_env),
                    now=self._db.now(),
                    owner=whose.owner,
                    project=whose.project,
                    tags=rows.to_json(whose.tags),
                )
                count = self._tasks.insert(run_id, spool, after=0)
                self._order.rank(run_id, name, policy)
                self._keep_need(run_id, policy, wanted)
                self._events.write(run_id, "run.submitted", {"name": name, "tasks": count})
                return self.get(run_id)

    def _keep_need(self, run_id: str, policy: Policy, secrets: set[str]) -> None:
        local, files = policy.pool is None, ", ".join(policy.files)
        why = "its tasks run on that machine" if local else f"its files ({files}) are there" if files else ""
        member = self._db.member if why else None
        self._db.rows("insert_need", id=run_id, member=member, why=why, secrets=rows.to_json(sorted(secrets)))

    def take(self, run_id: str, driver: str) -> Run:
        """Become the driver, and raise the epoch. Event `run.taken`. Raises Owned while another driver lives, NotFound."""
        self.get(run_id)
        other = self._db.lock(run_id, driver)
        if other is not None:
            raise Owned(
                f"run {run_id} is driven by {other}; "
                f"look at it with `evalfleet watch {run_id}`, stop it with `evalfleet cancel {run_id}`"
            )
        try:
            with self._db.transaction():
                run = rows.run(self._db.rows("take_run", id=run_id, driver=driver)[0])
                self._gpus.drop_tickets(run_id)
                self._events.write(run_id, "run.taken", {"owner": driver, "epoch": run.epoch})
        except BaseException:
            self._db.unlock(run_id)
            raise
        return run

    def leave(self, run: Run) -> None:
        """Give the run up, if it is ours. Event `run.left`."""
        with self._db.transaction():
            if not self._db.rows("leave_run", id=run.id, epoch=run.epoch):
                return
            self._gpus.drop_tickets(run.id)
            self._events.write(run.id, "run.left", {"owner": run.driver})
        self._db.unlock(run.id)

    def begin(self, run: Run) -> Run | None:
        """queued, paused, completed or cancelled -> running. Event `run.started` or `run.resumed`."""
        with self._db.transaction():
            before = self.get(run.id)
            event = "run.started" if before.started_at is None else "run.resumed"
            return self._change(run, "begin_run", event, {"from": before.state})

    def pause(self, run: Run, reason: JsonObject) -> Run | None:
        """running -> paused. Event `run.paused`."""
        return self._change(run, "pause_run", "run.paused", reason, reason=rows.to_json(reason))

    def complete(self, run: Run) -> Run | None:
        """running -> completed, if no task is queued or running. Event `run.completed`."""
        return self._change(run, "complete_run", "run.completed", {})

    def cancel(self, run: Run) -> Run | None:
        """-> cancelled, if no task is queued, running or held. Event `run.cancelled`."""
        return self._change(run, "cancel_run", "run.cancelled", {})

    def amend(self, run: Run, policy: Policy) -> Run | None:
        """Change the policy. Event `run.amended`."""
        data: JsonObject = {
            "budget_usd": policy.budget_usd,
            "workers": policy.workers,
            "priority": policy.priority,
            "distribution": policy.distribution,
        }
        if policy.study is not None:
            data["trials"] = policy.study["study"].get("trials")
        with self._db.transaction():
            changed = self._change(run, "amend_policy", "run.amended", data, policy=rows.to_json(policy))
            if changed is not None and policy.budget_usd != run.policy.budget_usd and policy.study is None:
                self._order.rank_again(run.id, run.name, policy)
        return changed

    def set_open(self, run: Run, open: bool, reason: str) -> Run | None:
        """Say whether tasks may still be added; a run completes only when they may not. Event `run.opened` or
        `run.closed`. None: it was so already, or the run is not ours any more."""
        event = "run.opened" if open else "run.closed"
        return self._change(run, "set_open", event, {"reason": reason}, open=int(open))

    def set_pausing(self, run: Run, reason: JsonObject | None) -> bool:
        """Remember that a running run is to pause once its live attempts have ended, also for its next driver; None: it is not.
        `begin`, `pause`, `complete` and `cancel` forget it. False: the run is not ours any more, or does not run."""
        with self._db.transaction():
            pausing = None if reason is None else rows.to_json(reason)
            return bool(self._db.rows("set_pausing", id=run.id, epoch=run.epoch, pausing=pausing))

    def store_breaker(
        self, run: Run, breaker: JsonObject, event: str | None = None, data: JsonObject | None = None
    ) -> None:
        """Keep the breaker's state; where `event` is given (`breaker.opened`, …), also write it, with `data`."""
        with self._db.transaction():
            if self._db.rows("store_breaker", id=run.id, epoch=run.epoch, breaker=rows.to_json(breaker)) and event:
                self._events.write(run.id, event, data or {})

    def _change(self, run: Run, statement: str, event: str, data: JsonObject, **values: Any) -> Run | None:
        with self._db.transaction():
            found = self._db.rows(statement, id=run.id, epoch=run.epoch, now=self._db.now(), **values)
            if not found:
                return None
            self._events.write(run.id, event, data)
            return rows.run(found[0])
