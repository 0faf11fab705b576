"""Jobs and their tasks: which runs where, how it ends, and that what a node lost is queued again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from evalfleet.azure.batch.duration import limit_s
from evalfleet.emulator.batch.nodes import Nodes, exit_failure
from evalfleet.emulator.batch.records import Account, Job, Node, Pool, Task
from evalfleet.emulator.context import EmulatorContext
from evalfleet.emulator.machines import processes

_TERMINATED = {"category": "usererror", "code": "TaskEnded", "message": "Task Was Ended by User Request"}
_LATE = {"category": "usererror", "code": "MaxWallClockTimeExpired", "message": "Task exceeded its wall-clock time"}


class Tasks:
    def __init__(self, world: EmulatorContext, nodes: Nodes, accounts: Callable[[], list[Account]]) -> None:
        self._world = world
        self._nodes = nodes
        self._accounts = accounts
        nodes.freed = self.schedule
        nodes.lost = self._requeue

    def add_job(self, account: Account, job: Job) -> None:
        account.jobs[job.id] = job
        self._tell(job)
        self._world.tasks.start_soon(self._end_in_time, account, job)

    def add(self, task: Task) -> None:
        task.job.tasks[task.id] = task
        self._enter(task, "active")
        self._schedule_job(task.job)

    def schedule(self, pool: Pool) -> None:
        """Give tasks that wait to nodes that are free."""
        for node in pool.nodes.values():
            while node.takes_tasks() and (task := self._next(pool)) is not None:
                task.turn += 1
                task.node, task.started_at, task.ended_at = node, self._world.clock.now(), None
                task.folder = node.folder / "workitems" / task.job.id / "job-1" / task.id
                node.tasks.append(task)
                node.total += 1
                node.state = "running"
                self._enter(task, "running")
                self._world.tasks.start_soon(self._run, node, task, task.turn)

    def _next(self, pool: Pool) -> Task | None:
        jobs = [job for account in self._accounts() if pool.id in account.pools for job in account.jobs.values()]
        waiting = [
            task
            for job in jobs
            if job.state == "active" and job.pool == pool.id
            for task in job.tasks.values()
            if task.state == "active"
        ]
        return min(waiting, key=lambda task: (-(task.job.body.get("priority") or 0), task.made_at), default=None)

    def _schedule_job(self, job: Job) -> None:
        for account in self._accounts():
            if account.jobs.get(job.id) is job and job.pool in account.pools:
                self.schedule(account.pools[job.pool])

    async def _run(self, node: Node, task: Task, turn: int) -> None:
        assert task.folder is not None
        more = {"AZ_BATCH_JOB_ID": task.job.id, "AZ_BATCH_TASK_ID": task.id}
        late = False
        try:
            async with asyncio.timeout(limit_s(task.body)):
                code, failure = await self._nodes.run(node, task.body, task.folder, more)
        except TimeoutError:
            code, failure, late = None, _LATE, True
        if task.turn != turn:
            return  # its node or a person has ended it meanwhile
        if late:
            await asyncio.to_thread(processes.end_all, task.folder)
        if failure is None and code != 0:
            failure = exit_failure(code)
        self._complete(task, code, failure)

    def _complete(self, task: Task, code: int | None, failure: dict[str, str] | None) -> None:
        task.turn += 1
        task.exit_code, task.failure, task.ended_at = code, failure, self._world.clock.now()
        self._leave(task)
        self._enter(task, "completed", exit=code)
        job = task.job
        manager: dict[str, Any] = job.body.get("jobManagerTask") or {}
        if manager.get("id") == task.id and manager.get("killJobOnCompletion", True) and job.state == "active":
            self._world.tasks.start_soon(self.terminate_job, job, "JMComplete")
        is_last = all(each.state == "completed" for each in job.tasks.values())
        if is_last and job.state == "active" and job.body.get("onAllTasksComplete") == "terminatejob":
            self._world.tasks.start_soon(self.terminate_job, job, "AllTasksComplete")

    def _leave(self, task: Task) -> None:
        node = task.node
        if node is None or task not in node.tasks:
            return
        node.tasks.remove(task)
        if node.state == "running" and not node.tasks:
            node.state, node.since = "idle", self._world.clock.now()
        node.pool.tell_freed()
        self.schedule(node.pool)

    def _requeue(self, task: Task) -> None:
        """Its node is gone from under it."""
        if task.state not in ("running", "preparing"):
            return
        task.requeued += 1
        task.requeued_at = self._world.clock.now()
        task.node = task.started_at = None
        self._enter(task, "active", requeued=task.requeued)
        self._schedule_job(task.job)

    async def terminate(self, task: Task) -> None:
        if task.state == "completed":
            return
        task.turn += 1
        if task.folder is not None:
            await asyncio.to_thread(processes.end_all, task.folder)
        self._complete(task, None, _TERMINATED)

    async def delete(self, task: Task) -> None:
        await self.terminate(task)
        task.job.tasks.pop(task.id, None)

    async def terminate_job(self, job: Job, reason: str) -> None:
        if job.state in ("terminating", "completed", "deleting"):
            return
        job.state, job.since, job.reason = "terminating", self._world.clock.now(), reason
        self._tell(job)
        for task in list(job.tasks.values()):
            await self.terminate(task)
        if job.state == "terminating":
            job.state, job.since = "completed", self._world.clock.now()
            job.ended_at = job.since
            self._tell(job)

    async def delete_job(self, account: Account, job: Job) -> None:
        job.state, job.since = "deleting", self._world.clock.now()
        self._tell(job)
        for task in list(job.tasks.values()):
            await self.delete(task)
        await self._world.clock.sleep(self._world.times.delete)
        account.jobs.pop(job.id, None)
        self._world.journal.tell("job.deleted", job.id)

    async def _end_in_time(self, account: Account, job: Job) -> None:
        """A job ends when its wall-clock time is over, which counts from when it was made."""
        while account.jobs.get(job.id) is job and job.state == "active":
            at = job.made_at + limit_s(job.body)
            job.changed = asyncio.Event()
            over = asyncio.ensure_future(self._world.clock.until(at))
            moved = asyncio.ensure_future(job.changed.wait())
            try:
                await asyncio.wait((over, moved), return_when=asyncio.FIRST_COMPLETED)
            finally:
                is_over = over.done()
                over.cancel()
                moved.cancel()
            if is_over and account.jobs.get(job.id) is job:
                await self.terminate_job(job, "MaxWallClockTimeExpiry")

    def _enter(self, task: Task, state: str, **data: object) -> None:
        task.state, task.since = state, self._world.clock.now()
        where = {} if task.node is None else {"node": task.node.id}
        self._world.journal.tell(f"task.{state}", f"{task.job.id}/{task.id}", **where, **data)

    def _tell(self, job: Job) -> None:
        self._world.journal.tell(f"job.{job.state}", job.id, pool=job.pool)
