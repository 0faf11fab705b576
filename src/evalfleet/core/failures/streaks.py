"""Hosts on which one task after another fails at once: the evidence against a host, and whether it is enough.

A host that has lost its program fails whatever it gets within milliseconds, and would take the whole queue. So a host is
*accused*, whatever the kind of the failures, as soon as

- at least 3 different tasks failed there quickly (under 10 s; where the kind blames the worker, after any time) with no verdict
  of an attempt that began later, and each of them failed nowhere else;
- they are more than twice as many as on the median of the other hosts;
- and so many in a row would be rare (1 in 100) by what the rest of the run shows: attempts on other hosts, and on this one before.

A host that could not even start what it was given (`host_failed`, `disk_full` before there was a process) is accused at once.

The comparison keeps good hosts from being accused by tasks that fail honestly: these fail elsewhere too, and a task that does is
no witness any more, neither there nor here. When fewer than two witnesses are left the host is acquitted.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct, field

from evalfleet.core.failures.kinds import RULES
from evalfleet.model import Blame, Kind

QUICK_S = 10.0
TASKS = 3
_CHANCE = 0.01
_ACQUITTED_BELOW = 2
# What is known before anything has ended: as if a quarter of two attempts had failed quickly.
_PRIOR_FAILED, _PRIOR_ENDED = 0.5, 2.0

# They follow from how a program or its world starts. What follows from a trial's own parameters, from a service or from the end
# of a host says nothing about the host.
_TELLING = frozenset(
    {
        Kind.TASK_ERROR, Kind.BAD_EXIT, Kind.SIGNALLED, Kind.START_TIMEOUT, Kind.RESULT_MISSING, Kind.RESULT_UNREADABLE,
        Kind.LAUNCH_FAILED, Kind.DISK_FULL, Kind.HOST_FAILED, Kind.ENVIRONMENT_FAILED, Kind.PORT_TAKEN, Kind.DOWNLOAD,
    }
)  # fmt: skip
_REFUSING = frozenset({Kind.DISK_FULL, Kind.HOST_FAILED})


class End(Struct, frozen=True, kw_only=True):
    """One end of an attempt, as far as it matters here."""

    task: str
    host: str
    attempt: str
    kind: Kind | None  # None: a verdict
    run_s: float
    claimed_at: float
    at: float  # when it was judged

    @property
    def is_telling(self) -> bool:
        return self.kind in _TELLING

    @property
    def is_quick(self) -> bool:
        if self.kind is None or self.kind not in _TELLING:
            return False
        rule = RULES[self.kind]
        return self.run_s < QUICK_S or (rule.blame is Blame.WORKER and not rule.consumes)

    @property
    def is_refused(self) -> bool:
        return self.kind in _REFUSING and self.run_s <= 0


class _Log(Struct):
    ends: int = 0
    quick: int = 0
    witnesses: dict[str, End] = field(
        default_factory=dict[str, End]
    )  # by task; in the order of their first failure here


class Streaks:
    """Small by design: of every host two counts, and the tasks that failed there since its last verdict."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Log] = {}
        self._accused: set[str] = set()

    def add(self, end: End, failed_on: Collection[str]) -> None:
        """Note the end of an attempt of a task that failed on these hosts before."""
        log = self._hosts.setdefault(end.host, _Log())
        if end.kind is None:
            log.ends += 1
            log.witnesses = {task: one for task, one in log.witnesses.items() if one.at >= end.claimed_at}
            return
        if not end.is_telling:
            return
        log.ends += 1
        log.quick += end.is_quick
        if any(host != end.host for host in failed_on):
            for other in self._hosts.values():
                other.witnesses.pop(end.task, None)
        elif end.is_quick:
            log.witnesses[end.task] = end

    def accuses(self, end: End, failed_on: Collection[str], others: Collection[str]) -> bool:
        """Whether this failure, which was not added yet, is its host's; `others` are the hosts that serve besides."""
        if not end.is_telling:
            return False
        if end.host in self._accused:
            return True
        if not others or not end.is_quick or any(host != end.host for host in failed_on):
            return False
        log = self._hosts.get(end.host, _Log())
        return end.is_refused or self._is_streak(end.host, {*log.witnesses, end.task}, others)

    def witnesses(self, host: str) -> list[End]:
        """Failures that speak against a host."""
        return list(self._hosts[host].witnesses.values()) if host in self._hosts else []

    @property
    def witnessed(self) -> set[str]:
        """The hosts against which some failure speaks."""
        return {host for host, log in self._hosts.items() if log.witnesses}

    def may_be_suspect(self, host: str) -> bool:
        """Whether `is_suspect` can hold, whatever the other hosts are."""
        if host in self._accused or host not in self._hosts:
            return False
        count = len(self._hosts[host].witnesses)
        return (count >= TASKS and self._is_rare(host, count)) or self._refused(host)

    def is_suspect(self, host: str, others: Collection[str]) -> bool:
        """Whether a host that is not accused yet should be; `others` are the hosts that serve besides. The last one goes on."""
        if not others or host in self._accused or host not in self._hosts:
            return False
        return self._refused(host) or self._is_streak(host, self._hosts[host].witnesses.keys(), others)

    def _is_streak(self, host: str, tasks: Collection[str], others: Collection[str]) -> bool:
        return len(tasks) >= TASKS and len(tasks) > 2 * self._usual(others) and self._is_rare(host, len(tasks))

    def _usual(self, others: Collection[str]) -> int:
        """How many witnesses speak against the median of the others (the lower one of two)."""
        counts = sorted(len(self._hosts[name].witnesses) if name in self._hosts else 0 for name in others)
        return counts[(len(counts) - 1) // 2]

    def _is_rare(self, host: str, count: int) -> bool:
        ended, failed = _PRIOR_ENDED, _PRIOR_FAILED
        for name, log in self._hosts.items():
            aside = len(log.witnesses) if name == host or name in self._accused else 0
            ended += log.ends - aside
            failed += log.quick - aside
        return (max(failed, _PRIOR_FAILED) / max(ended, _PRIOR_ENDED)) ** count <= _CHANCE

    def accuse(self, host: str) -> None:
        """From now on what fails there is the host's."""
        self._accused.add(host)

    def words(self, host: str) -> str:
        """The evidence against a host, for people."""
        found = list(self._hosts[host].witnesses.values())
        refused = next((one for one in found if one.is_refused), None)
        if refused is not None:
            return f"it could not start task {refused.task} ({refused.kind})"
        kinds = ", ".join(sorted({str(one.kind) for one in found}))
        shown = ", ".join(sorted(one.task for one in found)[:TASKS]) + (", …" if len(found) > TASKS else "")
        return f"{len(found)} different tasks failed there one after another ({kinds}: {shown}), and other hosts do not fail like this"

    def acquitted(self) -> list[str]:
        """Accused hosts against which too little is left: what failed there fails elsewhere as well."""
        return [
            host
            for host in self._accused
            if len(self._hosts[host].witnesses) < _ACQUITTED_BELOW and not self._refused(host)
        ]

    def _refused(self, host: str) -> bool:
        return any(one.is_refused for one in self._hosts[host].witnesses.values())

    def unquarantine(self, host: str) -> None:
        """Forget the evidence against a host."""
        self._accused.discard(host)
        if host in self._hosts:
            self._hosts[host].witnesses = {}
