"""Decides what happens next in one run: reads the store, asks `core`, applies the answer to the store.

A `step` takes what was observed since the last one and gives orders for the outside; it does no I/O but the store's. Read,
work, apply: launches and file transfers happen between steps, never inside a transaction.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from evalfleet.engine.attempts.end import AttemptEnds, told_of_pool
from evalfleet.engine.attempts.launch import launch_of
from evalfleet.engine.attempts.live import LiveAttempts
from evalfleet.engine.attempts.progress import ProgressBuffer
from evalfleet.engine.attempts.returned import ReturnedAttempts
from evalfleet.engine.hosts.canaries import Canaries
from evalfleet.engine.hosts.membership import HostMembership
from evalfleet.engine.hosts.reachability import Reachability
from evalfleet.engine.orders import Ended, LiveAttempt, Mode, Orders, taken_over
from evalfleet.engine.placement.admission import Admission
from evalfleet.engine.placement.budget import RunBudget
from evalfleet.engine.placement.gpu_queue import GpuQueue
from evalfleet.engine.placement.quotas import RunQuotas
from evalfleet.engine.placement.shared_slots import SharedSlots
from evalfleet.engine.placement.speculation import Chosen, Speculation
from evalfleet.engine.placement.workers import WorkerTable
from evalfleet.engine.requests import asked, barred, pause_reason
from evalfleet.engine.run_breaker import RunBreaker
from evalfleet.engine.settings import EngineSettings
from evalfleet.errors import MissingSecret
from evalfleet.hosts.base import AttemptEvent, HostInfo, Launch
from evalfleet.model import JsonObject, PauseCause, Request, Run, RunState, TaskState, Verb
from evalfleet.store.store import Store

if TYPE_CHECKING:
    from evalfleet.engine.trials import TrialFeed

Secrets = Callable[[Sequence[str]], dict[str, str]]

_LONG_S = 60.0
_SLOW_S = 1.0


class Dispatcher:
    """One per controller and run. Used by one thread at a time."""

    def __init__(
        self,
        store: Store,
        run: Run,
        settings: EngineSettings,
        secrets: Secrets,
        rng: random.Random,
        workers: WorkerTable,
    ) -> None:
        self.run = run
        self.mode = Mode.DRIVE
        self.live = LiveAttempts()
        self._store = store
        self._settings = settings
        self._secrets = secrets
        self._paused: JsonObject | None = None  # why no more work is admitted, if so
        self._unreachable = False
        self._refused = False  # a task did not fit into the budget at the last look
        self._moves = 0
        self._served: set[str] = set()  # hosts that could get work at the last step
        self._budget = RunBudget(run)
        self._progress = ProgressBuffer(store, run)
        self._breaker = RunBreaker(store, run, settings.breaker)
        self._gpu_queue = GpuQueue(store, run)
        self._ends = AttemptEnds(
            store, run, self._breaker, self._budget, settings.patterns, rng, self._gpu_queue, workers
        )
        self._workers = workers
        other_hosts = self._ends.other_hosts
        self._canaries = Canaries(
            store, run, workers, self._ends.history, other_hosts, settings.quarantine, settings.lease_s
        )
        self.returned = ReturnedAttempts(store, run)
        self._quotas = RunQuotas(store, run, settings.share_rules)
        self._admission = Admission(
            store, run, settings, workers, self._gpu_queue, other_hosts, self.returned, self._quotas
        )
        self._ends.requeued = self._admission.look_again
        self._speculation = Speculation(store, run)
        self._shared_slots = SharedSlots(store, run, workers, self._quotas)
        self._trials = None if run.policy.study is None else _trials(store, run)
        patience_s = settings.patience.give_up_s if workers.is_remote else 0.0
        reachability = Reachability(self._breaker, workers.hosts, settings.reconnect_s, patience_s)
        self.hosts = HostMembership(store, workers, self._canaries, self._admission, reachability)

    def start(self) -> list[Ended]:
        """Load the state that earlier controllers left. Returns the attempts whose files are not collected yet."""
        self._store.tasks.bound_waiting(self.run, self.run.policy.retry_cap_s)
        self._ends.load()
        self._ends.absolve(
            self._canaries.quarantine_blamed(at_once=True)
        )  # they may have been repaired before this start
        self._workers.banned = barred(self._store, self.run.id)
        self._paused = self.run.pausing  # an operator's pause outlives the controller that got the request
        self._breaker.load(proven=self._ends.history.successes > 0)
        self._budget.load(self._store)
        collecting: list[Ended] = []
        for attempt in self._store.attempts.unended(self.run.id):
            task = self._store.tasks.at(self.run.id, attempt.task_number)
            if attempt.outcome is None:
                self.live[attempt.id] = taken_over(task, attempt)
                if task.state in (TaskState.DONE, TaskState.CANCELLED):
                    self._ends.superseded.add(attempt.id)
            else:
                collecting.append(Ended(attempt, task.key, task.spec.secrets))
        return collecting

    def step(
        self,
        observations: Sequence[AttemptEvent],
        hosts: Sequence[HostInfo],
        *,
        draining: frozenset[str] = frozenset(),
        collecting: bool = False,
        moves: int = 0,
    ) -> Orders:
        """Take in what was seen, admit what may run, and find out whether the run is over.

        It is not over while files of ended attempts are still on their way (`collecting`).

        Args:
            hosts: those that are reached now.
            draining: those that the fleet wants no new work for.
            moves: see `FollowsHealth.moves`.
        """
        orders = Orders()
        if moves != self._moves:
            self._moves = moves
            self._breaker.moved_on()
        met, reached = hosts, self._meet(hosts, draining)
        observations = self._canaries.take(observations, orders)
        if self._shared_slots.moved(hosts):
            self._admission.freed()
        hosts = self._serving(hosts)
        ended = [seen for seen in observations if self._progress.note(self.live, seen)]
        admits = self._admits(hosts)
        if (
            ended
            or admits
            or self._ends.other_hosts.has_news
            or self._progress.is_due
            or self._gpu_queue.has_news(met)
            or self._speculation.due(self.live)
        ):
            with self._store.batch():
                self._gpu_queue.see(met)
                self._take_in(ended, orders)
                hosts = self._serving(hosts)
                self._progress.flush()
                self._propose(hosts)
                if self._admits(hosts):
                    self._admit(hosts, orders)
                if self._speculation.due(self.live) and self._has_room(hosts):
                    free = self._admission.free_slots(self.live, hosts, self._ends.history)
                    self._start(self._speculation.pick(self.live, free, self._allowance()), hosts, orders)
        if self._gpu_queue.turn is not None and not self._has_room(hosts):
            self._gpu_queue.leave()
        orders.gpu_turn = self._gpu_queue.turn
        self._ends.order_stops(self.live, self.returned, self.mode, orders)
        orders.want = self._want()
        orders.slots = self._shared_slots.wants(
            met, self.live, lambda: min(orders.want - len(self.live), self._allowance())
        )
        # A fleet that expects hosts may be trying a pool again, while others do all work.
        is_wanted = orders.want > len(self.live) or (self.hosts.expects and orders.want > 0)
        self._canaries.launch(reached, orders, wanted=is_wanted)
        if self._canaries.end_trials(live.attempt for live in self.live.values()):
            self._admission.freed()
            self._admission.look_again()
        if not (collecting or orders.collect) or self._unreachable:
            self._settle(orders, reached)
        orders.absent = self._canaries.absent()
        orders.proving = frozenset(self._canaries.in_flight.values())
        orders.wait_s = self._wait_s(hosts)
        return orders

    def _meet(self, hosts: Sequence[HostInfo], draining: frozenset[str]) -> set[str]:
        self._workers.draining = draining
        for host in hosts:
            if self._workers.info(host.name) is host:
                continue  # it says what it said before
            self._workers.met(host)
            self._budget.price(host.name, host.price_usd_per_hour)
        self._ends.other_hosts.reached = tuple(host.name for host in hosts)
        return set(self._ends.other_hosts.reached)

    def _propose(self, hosts: Sequence[HostInfo]) -> None:
        """Let a study propose its next trials if they could start. It may also find that it should stop."""
        if self._trials is None or not hosts or self.mode is not Mode.DRIVE or self._paused is not None:
            return
        free = self.run.policy.workers - len(self.live) if self._has_room(hosts) else 0
        changed = self._trials.propose(free, hosts)
        if self._trials.trouble is not None:
            self.pause(PauseCause.STUDY, self._trials.trouble)
        if changed is not None:
            self.run = replace(self.run, open=changed.open)
            self._admission.look_again()

    def _serving(self, hosts: Sequence[HostInfo]) -> list[HostInfo]:
        """Those that may get new work."""
        serving = self._workers.serving(hosts)
        names = {host.name for host in serving}
        if names != self._served:
            self._admission.freed()
        if not names <= self._served:
            self._admission.look_again()
        self._served = names
        return serving

    def _want(self) -> int:
        """How many workers the run could use now."""
        free = self.run.policy.workers - len(self.live)
        if free <= 0 or self.mode is not Mode.DRIVE or self._paused is not None:
            return len(self.live)
        free = min(free, self._quotas.allowance(len(self.live)))  # no machine is made for what may not run
        return len(self.live) + (free if self.run.open else self._store.tasks.waiting(self.run.id, free))

    # Ends

    def _take_in(self, ended: Sequence[AttemptEvent], orders: Orders) -> None:
        """Store how attempts ended, and what that says about hosts and about tasks that ended before."""
        for seen in self._speculation.in_order(ended):
            self._finish(seen, orders)
        if ended:
            self._ends.absolve(self._canaries.quarantine_blamed())
        if ended or self._ends.other_hosts.has_news:
            self._ends.other_hosts.conclude()

    def _finish(self, seen: AttemptEvent, orders: Orders) -> None:
        live = self.live.take(seen.attempt_id)
        if live is None:
            self.returned.ended(seen.attempt_id)
            self._ends.finish_late(seen, self.mode, orders)
            if self._trials is not None:
                self._trials.forget()
            return
        self._admission.freed()
        if self._budget.is_limited or live.attempt.devices:
            self._admission.look_again()  # it may have cost less than was kept for it; others may wait for its GPUs
        self._progress.close(live)
        finished = self._ends.finish(live, seen, self.mode, orders)
        if finished:
            self._shared_slots.share.used(finished.attempt.duration_s or 0.0)
            self._canaries.judge_trial(finished.attempt, finished.attempt.failure)
            orders.ended += told_of_pool(finished.attempt)
        if finished and finished.task.state is TaskState.QUEUED:
            self._admission.look_again(finished.task.not_before)

    # Admission

    def _admits(self, hosts: Sequence[HostInfo]) -> bool:
        """Whether tasks may start, so that a transaction is worthwhile."""
        return self._store.now() >= self._admission.look_at and self._has_room(hosts)

    def _has_room(self, hosts: Sequence[HostInfo]) -> bool:
        return (
            bool(hosts)
            and self.mode is Mode.DRIVE
            and self._paused is None
            and len(self.live) < self.run.policy.workers
            and self._allowance() > 0
        )

    def _allowance(self) -> int:
        self._breaker.watch(self.live.values())
        most = min(self._breaker.allowance(len(self.live)), self._quotas.allowance(len(self.live)))
        sure = self._budget.confirmed_room(self.live.values()) if self._quotas.limits_usd else most
        return min(most, sure, self._budget.allowance(self.live.values(), self._store.now()))

    def _admit(self, hosts: Sequence[HostInfo], orders: Orders) -> None:
        picked = self._admission.pick(
            self.live, hosts, self._allowance(), self._ends.history, self._breaker.prefers_fresh, self._breaker.probed
        )
        self._refused = False
        self._start([(*one, None) for one in picked], hosts, orders)

    def _start(self, chosen: Sequence[Chosen], hosts: Sequence[HostInfo], orders: Orders) -> None:
        by_name = {host.name: host for host in hosts}
        for task, made, granted, copy_of in chosen:
            usd = self._budget.estimate_usd(task, by_name[made.host].price_usd_per_hour)
            is_over = not self._budget.admits(task, self.live.values(), self._store.now())
            self._refused |= is_over
            if is_over or not self._quotas.admits(task, usd):
                self._admission.wait_for_room()
                continue
            try:
                values = self._secrets(task.spec.secrets)
            except MissingSecret as error:
                self.pause(PauseCause.SECRET, f"{error}, then `evalfleet resume {self.run.id}`")
                return
            claimed = self._admission.claim(task, made, by_name[made.host], granted, usd, copy_of)
            if claimed is None:
                self._admission.wait_for_room()
                continue
            self._breaker.admitted(claimed.attempt.id, made.host)
            self.live[claimed.attempt.id] = LiveAttempt(task=claimed.task, attempt=claimed.attempt)
            launch = launch_of(self.run, claimed.task, claimed.attempt, values, self._settings.lease_s)
            orders.launch.setdefault(made.host, []).append(launch)

    def obey(self, request: Request) -> bool:
        """Obey a request of another process and answer it. False if the run is over, so that no request can be obeyed."""
        with self._store.batch():
            if self._store.runs.get(self.run.id).state is not RunState.RUNNING:
                return False
            answer = asked(self._store, self.run, request, len(self.live), cancelling=self.mode is Mode.CANCEL)
            self._store.requests.obey(self.run, request, answer)
            if self._trials is not None:
                self._trials.forget()
        if "error" not in answer or request.verb is Verb.CANCEL:
            self._follow(request)
        self._admission.look_again()
        return True

    def _follow(self, request: Request) -> None:
        """Do the part of a request outside the store."""
        match request.verb:
            case Verb.CANCEL:
                self.mode = Mode.CANCEL
            case Verb.PAUSE:
                self._paused = self._paused or pause_reason(self.run, request.args)
            case Verb.RESUME | Verb.AMEND:
                self._amend(unpause=request.verb is Verb.RESUME)
            case Verb.QUARANTINE | Verb.UNQUARANTINE:
                self._workers.banned = barred(self._store, self.run.id)
            case Verb.WITHDRAW:
                why = str(request.args.get("reason") or f"asked by {request.asked_by}")
                self._ends.withdrawn |= dict.fromkeys(set(request.args.get("attempts") or ()) & self.live.keys(), why)
            case _:
                pass

    def _amend(self, *, unpause: bool) -> None:
        """Use the policy as it is in the store now."""
        before, stored = self.run.policy, self._store.runs.get(self.run.id)
        policy = stored.policy
        self.run = replace(self.run, policy=policy, open=stored.open)
        if self._trials is not None:
            self._trials.amend(self.run)
        self._budget.limit(policy.budget_usd, self._store)
        self._workers.resize(policy.workers)
        self._shared_slots.share.amend(self.run)
        lifted = {PauseCause.OPERATOR} if unpause else set[PauseCause]()
        if policy.budget_usd != before.budget_usd:
            lifted.add(PauseCause.BUDGET)
        if self._paused is not None and self._paused["cause"] in lifted:
            self._paused = None

    def gpus_moved(self) -> None:
        """GPUs were freed or granted: a task of this run may start."""
        self._admission.gpus_moved()

    def relaunch(self, attempt_id: str) -> Launch | None:
        """The launch of an attempt that its host does not know; None if it or one of its secrets is gone, or if its verdict
        is not needed: its task has one, or was cancelled."""
        live = self.live.get(attempt_id)
        if live is None or self.mode in (Mode.WITHDRAW, Mode.CANCEL) or attempt_id in self._ends.superseded:
            return None
        if self._store.tasks.at(self.run.id, live.attempt.task_number).state is not TaskState.RUNNING:
            return None
        try:
            values = self._secrets(live.task.spec.secrets)
        except MissingSecret as error:
            self.pause(PauseCause.SECRET, f"{error}, then `evalfleet resume {self.run.id}`")
            return None
        return launch_of(self.run, live.task, live.attempt, values, self._settings.lease_s)

    # The run's end

    def pause(self, cause: PauseCause, message: str) -> None:
        """Admit nothing more; the run pauses when its live attempts have ended."""
        if self._paused is None:
            self._paused = {"cause": str(cause), "message": message}

    def host_unreached(self, host: str, message: str) -> float | None:
        """A host could not be reached. Returns after how many seconds to try again; None: the run pauses as it is."""
        delay = self.hosts.unreached(host, message)
        if delay is None:
            self.pause(PauseCause.BREAKER, self._breaker.message())
            self._unreachable = True
        return delay

    def _settle(self, orders: Orders, reached: Collection[str]) -> None:
        if self.returned.is_on(reached) and self.mode is not Mode.STOP:
            return  # none of our attempts goes on where we could end it
        if self.run.state.is_over:
            orders.done = not self.live  # only files were left to collect
            return
        if self.live and self._unreachable and self._paused:
            # They cannot be asked now; the next controller asks them.
            orders.done = self._is_paused(self._paused)
            return
        if self.live or orders.launch or self.mode is Mode.STOP:
            return
        if self._canaries.in_flight and (self.mode is not Mode.DRIVE or self._paused is not None or not orders.want):
            self._canaries.stop(orders)  # nothing stays on a host
            return
        if self.mode is Mode.WITHDRAW:
            orders.done = True
            return
        if self.mode is Mode.CANCEL:
            self._store.tasks.cancel(self.run, "the run was cancelled")
            orders.done = self._store.runs.cancel(self.run) is not None
            return
        if self._paused is None and self._breaker.exhausted:
            self.pause(PauseCause.BREAKER, self._breaker.message())
        if (hopeless := self._canaries.message) and not self.hosts.expects:
            self.pause(PauseCause.QUARANTINE, hopeless)
        waits = self._store.tasks.waiting(self.run.id, 1)
        if not waits and self._store.runs.complete(self.run) is not None:
            orders.done = True
        elif self._paused is not None:
            orders.done = self._is_paused(self._paused)
        elif self._budget.is_spent(self._store.now(), refused=self._refused):
            self.pause(PauseCause.BUDGET, self._budget.message(self._store.now()))
            orders.done = self._is_paused(self._paused or {})

    def _is_paused(self, reason: JsonObject) -> bool:
        return self._store.runs.pause(self.run, self._budget.with_cost(reason, self._workers)) is not None

    def _wait_s(self, hosts: Sequence[HostInfo]) -> float:
        now = self._store.now()
        moments = [now + _LONG_S, self._progress.due_at, self._canaries.next_at, self._shared_slots.look_at]
        if hosts and self.mode is Mode.DRIVE and self._paused is None:
            probe = self._breaker.next_probe_at
            if len(self.live) < self.run.policy.workers and self._allowance() > 0:
                moments.append(self._admission.look_at)
            if probe is not None:
                moments.append(max(probe, self._admission.look_at))
            if self._speculation.is_on and self.live:
                moments.append(max(now + _SLOW_S, self._speculation.look_at))
            if (until := self._budget.waits_until(now)) is not None:
                moments.append(until)
            if self._breaker.is_slow and self.live:
                moments.append(now + _SLOW_S)
        return max(0.0, min(moments) - now)


def _trials(store: Store, run: Run) -> TrialFeed:
    from evalfleet.engine.trials import TrialFeed  # imports all strategies, which a plain run does not need

    return TrialFeed(store, run)
