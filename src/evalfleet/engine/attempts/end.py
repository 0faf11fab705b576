"""From the end of an attempt to the next state of its task: judge, attribute, decide, store."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from evalfleet.core.failures.attribution import SYSTEMIC_TASKS, History, Where, attribute, cause_line
from evalfleet.core.failures.end_record import end_from_json
from evalfleet.core.failures.judge import Builtin, Pattern, judge
from evalfleet.core.failures.kinds import JUDGE_VERSION, RULES, outcome_of
from evalfleet.core.failures.retry import Fail, Hold, Retry, decide, is_spent
from evalfleet.engine.attempts.live import LiveAttempts
from evalfleet.engine.attempts.other_hosts import OtherHosts
from evalfleet.engine.attempts.returned import ReturnedAttempts
from evalfleet.engine.orders import Ended, LiveAttempt, Mode, Orders
from evalfleet.engine.placement.budget import RunBudget
from evalfleet.engine.placement.gpu_queue import GpuQueue
from evalfleet.engine.placement.workers import WorkerTable
from evalfleet.engine.run_breaker import RunBreaker
from evalfleet.hosts.base import AttemptEvent
from evalfleet.model import Attempt, Blame, EndRecord, Failure, Kind, Outcome, Run, TaskState, Verdict
from evalfleet.store.attempts.records import Finish, Finished, Judged
from evalfleet.store.store import Store

_OVER = (TaskState.FAILED, TaskState.HELD, TaskState.CANCELLED)


class AttemptEnds:
    def __init__(
        self,
        store: Store,
        run: Run,
        breaker: RunBreaker,
        budget: RunBudget,
        patterns: Sequence[Pattern | Builtin],
        rng: random.Random,
        gpu_queue: GpuQueue,
        workers: WorkerTable,
    ) -> None:
        self.history = History()
        self.other_hosts = OtherHosts(store, run, workers, self.history, rng)
        self.superseded: set[str] = set()  # attempts whose task has its verdict from another one
        self._absolved: set[tuple[str, Kind, str]] = set()  # tasks that failed by a cause of the pool's, and that
        self.requeued: Callable[[], None] = lambda: None  # called when a failed task is queued again
        self.withdrawn: dict[str, str] = {}  # attempts that are ended so that other workers try their tasks, and why
        self.stopped: dict[str, str] = {}  # attempts that are ended for the run, not because of a fault, and why
        self._store = store
        self._run = run
        self._breaker = breaker
        self._budget = budget
        self._patterns = patterns
        self._rng = rng
        self._gpu_queue = gpu_queue

    def load(self) -> None:
        for past in self._store.attempts.judged(self._run.id):
            self.history.add(where_of(past), past.failure)
        self.other_hosts.load()

    def order_stops(self, live: LiveAttempts, returned: ReturnedAttempts, mode: Mode, orders: Orders) -> None:
        """Order the end of attempts. Repeat it at every step until they have ended: the host may miss an order."""
        self.superseded &= live.keys()
        all_of_them = mode in (Mode.WITHDRAW, Mode.CANCEL)
        orders.stop_reason = "cancelled" if all_of_them else "another attempt of this task gave the verdict, or will"
        over = self._budget.over(live.values(), self._store.now())
        self.stopped |= dict.fromkeys(over, self._budget.stop_message)
        some = self.superseded | ((self.withdrawn.keys() | self.stopped.keys()) & live.keys())
        for attempt_id in live if all_of_them else some:
            orders.stop.setdefault(live[attempt_id].attempt.host, []).append(attempt_id)
        for host, attempt_id in returned.unwanted(mode):
            orders.stop.setdefault(host, []).append(attempt_id)

    def finish(self, live: LiveAttempt, seen: AttemptEvent, mode: Mode, orders: Orders) -> Finished | None:
        """Store how a live attempt ended. None if it no longer belongs to this controller."""
        why = self.withdrawn.pop(seen.attempt_id, None)
        if why is not None and seen.data.get("cause") == "cancelled":
            seen = replace(seen, data={**seen.data, "cause": "withdrawn", "message": f"withdrawn: {why}"})
        stopped = self.stopped.pop(seen.attempt_id, None)
        if stopped is not None and seen.data.get("cause") == "cancelled":
            seen = replace(seen, data={**seen.data, "message": stopped})
        end = end_from_json(seen.data)
        judged = judge(end, self._run.policy, self._patterns)
        bill = self._budget.bill(live, end, self._store.now())
        finish = Finish(
            attempt=live.attempt,
            outcome=Outcome.OK,
            ended_at=end.ended_at or self._store.now(),
            duration_s=end.duration_s or bill.seconds,
            started_at=end.started_at,
            ready_at=end.ready_at,
            cost_usd=bill.cost_usd,
            reported_usd=bill.reported_usd,
            last_event=seen.number,
            end=seen.data,
            judge_version=JUDGE_VERSION,
        )
        self.other_hosts.settled(live.task.key)
        finish = (
            replace(finish, verdict=judged) if isinstance(judged, Verdict) else self._failed(live, judged, finish, mode)
        )
        finished = self._store.attempts.finish(self._run, finish)
        if finished is not None:
            self._budget.book(live.attempt, bill, verdict=isinstance(judged, Verdict))
            if end.cause == "worker_lost":
                self._budget.lose(live.task, finished.attempt)
            self._gpu_queue.ended(live.attempt, seen.data, finish.failure)
            self.history.add(_where(live, end.duration_s, self._store.now()), finish.failure)
            self._breaker.ended(live.attempt.id, finish.failure, live.task.key)
            if finished.task.state in _OVER:
                self.history.forget(live.task.key)
            orders.collect.append(Ended(finished.attempt, live.task.key, live.task.spec.secrets))
            self.superseded |= {sibling.id for sibling in finished.siblings}
        return finished

    def finish_late(self, seen: AttemptEvent, mode: Mode, orders: Orders) -> None:
        """Store an unexpected end: of an attempt given up as lost, or one whose files may still be on its host."""
        task_number, number = (int(part) for part in seen.attempt_id.rsplit(".", 2)[1:])
        found = [one for one in self._store.attempts.all(self._run.id, task_number) if one.number == number]
        if not found:
            orders.forget.append(seen.attempt_id)
            return
        attempt, task = found[0], self._store.tasks.at(self._run.id, task_number)
        self._gpu_queue.ended(attempt, seen.data, None)
        live, end = LiveAttempt(task=task, attempt=attempt), end_from_json(seen.data)
        if attempt.outcome is Outcome.LOST:
            judged = judge(end, self._run.policy, self._patterns)
            if isinstance(judged, Verdict) and self.finish(live, seen, mode, orders):
                return
        self._charge(live, end)
        orders.collect.append(Ended(attempt, task.key, task.spec.secrets))

    def _charge(self, live: LiveAttempt, end: EndRecord) -> None:
        """Book the further cost of an attempt that went on after it was given up."""
        bill = self._budget.bill(live, end, self._store.now())
        if bill.cost_usd > live.attempt.cost_usd and self._store.attempts.charge(
            self._run, live.attempt, bill.cost_usd, bill.reported_usd, bill.seconds
        ):
            self._budget.book(live.attempt, bill, verdict=False)

    def absolve(self, hosts: Sequence[str]) -> None:
        """These hosts fail every task: blame them for their earlier failures too."""
        for host in hosts:
            for one in self.history.streaks.witnesses(host):
                self._absolve(one.task, Blame.WORKER, lambda attempt, one=one: attempt.id == one.attempt)

    def _absolve_pool(self, found: Failure, where: Where) -> None:
        """The pool turned out to be the cause: blame it for the earlier failures of that cause too.

        Not in a study: it must learn which trials fail, and it pauses if all of them do.
        """
        if self._run.policy.study is not None:
            return
        cause = cause_line(found, where.task)
        for key in self.history.companions(found, where):
            if (key, *cause) not in self._absolved:
                self._absolved.add((key, *cause))
                self._absolve(
                    key,
                    Blame.POOL,
                    lambda one, key=key: one.failure is not None and cause_line(one.failure, key) == cause,
                )

    def _absolve(self, key: str, blame: Blame, is_meant: Callable[[Attempt], bool]) -> None:
        """Give a task its attempts back; if it had failed finally, it is queued again."""
        task = self._store.tasks.get(self._run.id, key)
        is_last = False  # the attempt that decided a failed task is its last one
        for attempt in self._store.attempts.all(self._run.id, task.number):
            is_last = attempt.failure is not None and attempt.failure.consumes and is_meant(attempt)
            if is_last and attempt.failure is not None:
                found = replace(attempt.failure, blame=blame, consumes=False)
                outcome = outcome_of(found.kind, found.blame)
                self._store.attempts.rejudge(self._run, attempt, found, outcome, JUDGE_VERSION, None)
        self.other_hosts.recount(key)
        if is_last and task.state is TaskState.FAILED:
            self._store.tasks.retry(self._run, [key], [TaskState.FAILED])
            self.requeued()

    def _tasks(self, found: Failure) -> int | None:
        """The number of the run's tasks, as far as it matters."""
        if found.kind is not Kind.LAUNCH_FAILED or self.history.successes or self._run.open:
            return None
        return self._store.tasks.total(self._run.id, SYSTEMIC_TASKS)  # more make no difference

    def _failed(self, live: LiveAttempt, found: Failure, finish: Finish, mode: Mode) -> Finish:
        """The finish with the blame of its failure and the next state of its task."""
        if found.kind is Kind.CANCELLED:
            state = TaskState.CANCELLED if mode is Mode.CANCEL else TaskState.QUEUED
            return replace(finish, outcome=Outcome.CANCELLED, failure=found, next_state=state, reason="cancelled")
        task, host = live.task, live.attempt.host
        where = _where(live, finish.duration_s, self._store.now())
        found = attribute(found, where, self.history, self.other_hosts.others(task, host), self._tasks(found))
        if found.blame is Blame.POOL is not RULES[found.kind].blame:
            self._absolve_pool(found, where)
        consumed, lost = task.consumed + found.consumes, task.lost + (not found.consumes)
        decision = decide(
            failure=found,
            consumed=consumed,
            lost=lost,
            policy=self._run.policy,
            now=self._store.now(),
            rng=self._rng,
            elsewhere=self.other_hosts.is_open(task, host, found.kind),
        )
        finish = replace(finish, outcome=outcome_of(found.kind, found.blame), failure=found)
        match decision:
            case Retry(not_before=moment, elsewhere=elsewhere):
                reason = f"after {found.kind}"
                if is_spent(consumed, lost, self._run.policy):
                    self.other_hosts.wait(task)
                if elsewhere:
                    reason += f" on {host}: another host tries it before it is final"
                return replace(finish, next_state=TaskState.QUEUED, not_before=moment, reason=reason)
            case Fail(reason=reason):
                return replace(finish, next_state=TaskState.FAILED, reason=reason)
            case Hold(reason=reason):
                return replace(finish, next_state=TaskState.HELD, reason=reason)


def _where(live: LiveAttempt, run_s: float, now: float) -> Where:
    spec, attempt = live.task.spec, live.attempt
    return Where(
        task=spec.key, worker=attempt.worker, host=attempt.host, executable=spec.command[0], attempt=attempt.id,
        run_s=run_s, claimed_at=attempt.claimed_at, at=now,
    )  # fmt: skip


def where_of(past: Judged) -> Where:
    """The place of an attempt that was judged before."""
    return Where(
        task=past.key, worker=past.worker, host=past.host, executable=past.executable, attempt=past.attempt_id,
        run_s=past.duration_s, claimed_at=past.claimed_at, at=past.judged_at,
    )  # fmt: skip


def told_of_pool(attempt: Attempt) -> list[tuple[str, str | None]]:
    """What the end of an attempt says of the pool that its host is of, if anything. A service of others is not the pool's."""
    failed = attempt.failure
    if failed is None or failed.blame is Blame.TASK:
        return [(attempt.host, None)]
    is_own = failed.kind not in (Kind.SERVICE_FAILED, Kind.SERVICE_REFUSED)
    return [(attempt.host, failed.evidence)] if is_own and failed.blame in (Blame.POOL, Blame.BACKEND) else []
