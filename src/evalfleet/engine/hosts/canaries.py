"""Hosts that must pass a check: which are quarantined, which canaries are due, their results, and which hosts are on trial.

A canary is launched like an attempt, but belongs to no task and is not stored; events say how it ended.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf

from evalfleet.core.failures.attribution import SILENT, History
from evalfleet.core.failures.end_record import end_from_json
from evalfleet.core.failures.judge import judge
from evalfleet.core.hosts.quarantine import Quarantine, Terms
from evalfleet.engine.attempts.launch import canary_of
from evalfleet.engine.attempts.other_hosts import OtherHosts
from evalfleet.engine.orders import Orders
from evalfleet.engine.placement.workers import Absence, WorkerTable
from evalfleet.hosts.base import AttemptEvent, CanarySpec
from evalfleet.model import Attempt, AttemptState, Failure, JsonObject, Kind, Policy, Run, Verdict
from evalfleet.store.store import Store

_DEFAULT = CanarySpec()
_TRIAL_S = 60.0
_SILENT_KINDS = (Kind.CANCELLED, Kind.PREEMPTED)  # they say nothing about the host's work


class Canaries:
    """Part of the dispatcher; same thread."""

    def __init__(
        self,
        store: Store,
        run: Run,
        workers: WorkerTable,
        history: History,
        other_hosts: OtherHosts,
        terms: Terms,
        lease_s: float,
    ) -> None:
        self._store = store
        self._other_hosts = other_hosts
        self._run = run
        self._workers = workers
        self._history = history
        self._terms = terms
        self._lease_s = lease_s
        self._specs: dict[str, CanarySpec] = {}
        self._hosts: dict[str, Quarantine] = {}
        self.next_at = inf  # time of the next action
        self._blamed: dict[str, str] = {}  # not reported to the fleet yet

    @property
    def hosts(self) -> Mapping[str, Quarantine]:
        """The hosts that must pass a check."""
        return self._hosts

    @property
    def in_flight(self) -> dict[str, str]:
        """The canaries in flight, and their hosts."""
        return {one.canary: host for host, one in self._hosts.items() if one.canary is not None}

    def joined(self, host: str, spec: CanarySpec | None) -> None:
        """A host is new to the run. Forget what was known about its name: it is another machine, or a new one."""
        self.left(host)
        self._history.unquarantine(host)
        if spec is not None:
            self._specs[host] = spec
            self._hosts[host] = Quarantine.of_new(self._store.now(), self._terms)
            self._workers.set_apart(host, Absence.QUARANTINED, is_new=True)

    def left(self, host: str) -> None:
        self._hosts.pop(host, None)
        self._specs.pop(host, None)
        self._workers.alone -= {host}

    def quarantine_blamed(self, *, at_once: bool = False) -> list[str]:
        """Quarantine the hosts that the history blames. Returns those on which one task after the other failed."""
        self._acquit()
        suspects = self._other_hosts.suspects()
        for host in suspects:
            reason = self._history.streaks.words(host)
            self._history.streaks.accuse(host)
            now = self._store.now()
            self._hosts[host] = Quarantine.of_blamed(reason, now, self._terms, at_once=at_once, needs_trial=True)
            self._set_apart(host, reason)
        for host in list(self._history.blamed_hosts()):
            known = self._hosts.get(host)
            if host in self._workers.hosts and (known is None or known.is_new):
                reason = self._history.accusation(host)
                self._hosts[host] = Quarantine.of_blamed(reason, self._store.now(), self._terms, at_once=at_once)
                self._set_apart(host, reason)
        return suspects

    def _acquit(self) -> None:
        """Readmit the hosts whose failures turned out to be the tasks' fault."""
        for host in self._history.streaks.acquitted():
            one = self._hosts.get(host)
            self._history.streaks.unquarantine(host)
            if one is not None and one.needs_trial:
                self._free(host)
                if one.tried_since is None:
                    reason = "what failed there fails elsewhere, too"
                    self._note("worker.returned", {"host": host, "from": "quarantined", "reason": reason})

    def judge_trial(self, attempt: Attempt, failure: Failure | None) -> None:
        """Decide about a host on trial when an attempt ends there."""
        one = self._hosts.get(attempt.host)
        if one is None or one.tried_since is None or attempt.claimed_at < one.tried_since:
            return
        if failure is None:
            self._free(attempt.host)
            self._history.unquarantine(attempt.host)
        elif failure.kind not in SILENT:
            self._failed(attempt.host, f"its trial failed: {failure.kind}: {failure.evidence}")
            self._set_apart(attempt.host, f"its trial failed: {failure.kind}: {failure.evidence}")

    def end_trials(self, live: Iterable[Attempt]) -> bool:
        """A task that runs for a minute is enough: the failures that put its host on trial happen at once.

        Returns whether a host passed: its other slots may have work now.
        """
        passed = False
        if not self._workers.alone:
            return passed
        now = self._store.now()
        for attempt in live:
            one = self._hosts.get(attempt.host)
            if one is None or one.tried_since is None or attempt.claimed_at < one.tried_since:
                continue
            if attempt.state is AttemptState.RUNNING and now - (attempt.started_at or now) >= _TRIAL_S:
                self._free(attempt.host)
                self._history.unquarantine(attempt.host)
                passed = True
            else:
                self.next_at = min(self.next_at, now + _TRIAL_S)
        return passed

    def _free(self, host: str) -> None:
        self._hosts.pop(host, None)
        self._workers.alone -= {host}
        self._workers.take_back(host, Absence.QUARANTINED)

    def take(self, observations: Sequence[AttemptEvent], orders: Orders) -> list[AttemptEvent]:
        """Handle the events of canaries; returns the others."""
        rest: list[AttemptEvent] = []
        for seen in observations:
            if not is_canary(seen.attempt_id):
                rest.append(seen)
            elif seen.type == "ended":
                orders.forget.append(seen.attempt_id)
                host = self.in_flight.get(seen.attempt_id)
                if host is not None:
                    self._ended(host, seen)
        return rest

    def launch(self, reached: Collection[str], orders: Orders, *, wanted: bool) -> None:
        """Start the canaries that are due on hosts that are reached and needed."""
        now = self._store.now()
        self.next_at = inf
        for host, one in self._hosts.items():
            if one.canary is not None and host not in reached:
                self._hosts[host] = one.forgotten(now)  # its end would not be its fault
            elif one.canary is not None and now >= one.ends_by:
                orders.stop.setdefault(host, []).append(one.canary)
                self._failed(host, f"its canary did not end within {self._spec(host).timeout_s:g} s")
            elif wanted and one.is_due(now) and host in reached and self._may_prove(host):
                canary = f"{self._run.id}.canary.{secrets.token_hex(6)}"
                spec = self._spec(host)
                self._hosts[host] = one.started(canary, now + spec.timeout_s + self._lease_s)
                orders.launch.setdefault(host, []).append(canary_of(self._run, canary, spec, self._lease_s))
        for one in self._hosts.values():
            # A canary that is due but not started waits for its host, or for work; both wake the dispatcher.
            moment = one.ends_by if one.canary is not None else one.due_at
            self.next_at = min(self.next_at, inf if moment is None or moment <= now else moment)
        orders.blamed, self._blamed = self._blamed, {}
        orders.given_up = self._given_up()

    def _given_up(self) -> dict[str, str]:
        """Hosts that get no more work of this run until they are repaired, and why."""
        found: dict[str, str] = {}
        for host in self._workers.absent:
            absences = self._workers.absences(host)
            if Absence.LOST in absences:
                found[host] = f"it does not answer, and run {self._run.id} has given it up"
            elif Absence.BARRED in absences and host in self._hosts:
                found[host] = f"run {self._run.id} has given it up: {self._hosts[host].reason}"
        return found

    def absent(self) -> dict[str, str | None]:
        """Hosts that get no new work, and why; None: by no fault of theirs."""
        found: dict[str, str | None] = {}
        for host in self._workers.absent:
            absences = self._workers.absences(host)
            if Absence.LOST in absences:
                found[host] = "it does not answer, and is given up"
            elif {Absence.QUARANTINED, Absence.BARRED} & set(absences):
                one = self._hosts.get(host)
                found[host] = None if one is None or (one.is_new and not one.failed) else one.reason
            else:
                found[host] = None
        return found

    def stop(self, orders: Orders) -> None:
        """End all canaries: their results are no longer needed."""
        for canary, host in self.in_flight.items():
            orders.stop.setdefault(host, []).append(canary)

    @property
    def message(self) -> str | None:
        """Why no host can get work, and what to do; None if one still may."""
        hopeless = {Absence.BARRED, Absence.LOST, Absence.DRAINING}
        barred = [host for host, one in self._hosts.items() if one.is_barred]
        if not barred or any(hopeless.isdisjoint(self._workers.absences(host)) for host in self._workers.hosts):
            return None
        reasons = "; ".join(f"{host}: {self._hosts[host].reason}" for host in barred)
        others = [host for host in self._workers.hosts if host not in barred]
        more = f". Not reached or about to be taken away: {', '.join(others)}" if others else ""
        return (
            f"every host that is left is quarantined, and {self._terms.canaries} canaries failed on each ({reasons}){more}. "
            f"Repair or replace them, then `evalfleet resume {self._run.id}`, which tries each again"
        )

    def _may_prove(self, host: str) -> bool:
        stays = host not in self._workers.draining
        return stays and {Absence.LOST, Absence.DRAINING}.isdisjoint(self._workers.absences(host))

    def _spec(self, host: str) -> CanarySpec:
        return self._specs.get(host, _DEFAULT)

    def _ended(self, host: str, seen: AttemptEvent) -> None:
        judged = judge(end_from_json(seen.data), Policy())
        if isinstance(judged, Verdict):
            if judged.success:
                self._passed(host)
            else:
                self._failed(host, f"its canary's result is no success (score {judged.score:g})")
        elif judged.kind in _SILENT_KINDS:
            self._hosts[host] = self._hosts[host].forgotten(self._store.now())
        else:
            self._failed(host, f"its canary failed: {judged.kind}: {judged.evidence}")

    # Change the state before the event: a store that is busy for long must not leave a host between two states.

    def _passed(self, host: str) -> None:
        one = self._hosts[host]
        was_out = not one.is_new or one.failed > 0
        if was_out and not one.needs_trial:
            self._history.unquarantine(host)
        self._free(host)
        if one.needs_trial:
            self._hosts[host] = one.on_trial(self._store.now())
            self._workers.alone |= {host}
        self._note("worker.canary_passed", {"host": host})
        if was_out:
            self._note("worker.returned", {"host": host, "from": "quarantined", "trial": one.needs_trial})

    def _failed(self, host: str, why: str) -> None:
        before = self._hosts[host]
        self._hosts[host] = one = before.refuted(why, self._store.now())
        if one.is_barred:
            self._workers.set_apart(host, Absence.BARRED)
        self._note("worker.canary_failed", {"host": host, "reason": why, "failed": one.failed, "next_at": one.due_at})
        if before.is_new and before.failed == 0:
            self._set_apart(host, why)

    def _set_apart(self, host: str, reason: str) -> None:
        self._workers.set_apart(host, Absence.QUARANTINED)
        self._blamed[host] = reason
        self._note("worker.quarantined", {"host": host, "reason": reason})

    def _note(self, event: str, data: JsonObject) -> None:
        self._store.events.note(self._run.id, event, data)


def is_canary(attempt_id: str) -> bool:
    return attempt_id.rpartition(".")[0].endswith(".canary")
