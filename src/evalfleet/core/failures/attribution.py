"""The attribution of failures: whose fault one was, given what else happened in the run.

One attempt alone cannot tell a broken task from a broken machine. `attribute` looks at the history of the run and may
move the blame of the failure at hand; it never rewrites earlier attempts. The rules, first that fits:

0. **Accused host** (blame `worker`, not consumed). One task after the other fails there at once, of whatever kind, while
   another host serves (see `core.streaks`).
1. **Host** (blame `worker`, not consumed). Only a failure whose default blame is the worker's, on a host where at
   least 3 different tasks failed so, at least one of which has since succeeded on another host, and where such
   failures are at least half of the last 10 attempts, and of more than twice as many tasks as on the median host. A
   task that failed so on another host too is no witness, and its failure is not the host's. These conditions keep
   good hosts from being blamed for hanging tasks, above all at the end of a run, when only those are left.
   Preemptions do not count: the host is gone, not bad.
2. **Pool** (not consumed). The same kind and the same cause on at least 3 different tasks of one executable that never
   had a verdict in this pool, on at least 2 hosts where others serve. `launch_failed`, `start_timeout`, `result_missing` and
   `environment_failed` are specific by themselves: the program never got to work. `bad_exit`, `task_error`, `signalled`,
   `result_unreadable`, `port_taken` and `download` need a specific evidence line, because many programs just exit 1. `disk_full`
   and `host_failed` need no verdict in the pool since, whatever the executable: disks fill in the middle of a run. `timeout`
   and `stall` are never the pool's (a hanging task is told from a hanging worker by rule 3), nor is `out_of_memory` (what a
   task allocates is its own; its request says what it needs), nor are `bad_flag`, `startup_timeout` and `crash` (they follow
   from a trial's parameters).
3. **Task** (consumed). The same kind of this task on 2 different workers (`stall`) or 3 (others whose default blame is
   the worker's). A worker that had a verdict of another task in between counts as a different one, so that a run with
   one worker can tell as well. Never for lost or preempted attempts nor for `environment_failed`, which
   `Policy.max_lost` caps: a world that would not work is never scored as the agent's.

A task whose failures were all on one host may be that host's victim. `is_vouched` tells when it is not: the host gave other tasks
verdicts before the failure, and in attempts that began after it. Until then `core.retry` lets the task go on elsewhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from math import inf

from msgspec import Struct, field
from msgspec.structs import replace

from evalfleet.core.failures.kinds import RULES, Systemic, is_specific, same_cause
from evalfleet.core.failures.streaks import End, Streaks
from evalfleet.model import Blame, Failure, Kind

HOST_TASKS = 3
SYSTEMIC_TASKS = 3
STALL_WORKERS = 2
OTHER_WORKERS = 3
ALONE_AFTER = 2
_RECENT = 10
_MOST_CAUSES = 1000
_SHOWN = 3

_NEVER_THE_TASKS = frozenset(
    {
        Kind.RUNNER_LOST, Kind.WORKER_LOST, Kind.PREEMPTED, Kind.ENVIRONMENT_FAILED, Kind.GPU_TAKEN, Kind.HOST_FAILED,
    }
)  # fmt: skip
_DEATHS = frozenset({Kind.RUNNER_LOST, Kind.WORKER_LOST})
# How an attempt may end without a word about whether its host can work.
SILENT = frozenset(
    {
        Kind.RUNNER_LOST, Kind.WORKER_LOST, Kind.PREEMPTED, Kind.GPU_TAKEN, Kind.SERVICE_FAILED, Kind.SERVICE_REFUSED,
        Kind.BACKEND_ERROR, Kind.CANCELLED,
    }
)  # fmt: skip


class Where(Struct, frozen=True, kw_only=True):
    """The place and time of one attempt. Only the key of the task, the slot, its host and pool, and the program matter here."""

    task: str
    worker: str
    host: str
    pool: str = "local"
    executable: str = ""  # command[0]
    attempt: str = ""
    run_s: float = inf  # how long its program ran
    claimed_at: float = inf
    at: float = 0.0  # when it was judged


class _HostLog(Struct):
    failed: set[str] = field(default_factory=set[str])  # tasks that failed here by no fault of their own
    cleared: set[str] = field(default_factory=set[str])  # those of them that have since succeeded elsewhere
    recent: deque[str | None] = field(default_factory=lambda: deque[str | None](maxlen=_RECENT))  # None: a verdict
    verdicts: int = 0
    good_claim: float = -inf  # when the latest attempt began that had a verdict
    bad_claim: float = -inf  # and the latest that failed

    def unsay(self, task: str) -> None:
        """The task failed elsewhere too, so it is no evidence against this host."""
        self.failed.discard(task)
        self.recent = deque((entry for entry in self.recent if entry != task), maxlen=_RECENT)


class _Trial(Struct, frozen=True):
    """One failure of a task, with how many verdicts its worker and its host had by then."""

    kind: Kind
    worker: str
    host: str
    verdicts: int
    host_verdicts: int
    at: float


_Program = tuple[str, str | None]  # pool, executable (None = any of the pool)
_Line = tuple[Kind, str]


class History:
    """What the judged attempts of one run say about its tasks, hosts and programs.

    Small by design: of a success it keeps two counters, of a failure what the rules ask for, and it forgets a task's
    failures once the task has a verdict. Rebuild it at a take-over by adding the stored attempts in their order of end.
    Not safe for concurrent use.
    """

    def __init__(self) -> None:
        self.successes = 0
        self.failures = 0
        self._proven: set[tuple[str, str]] = set()
        self._verdicts: dict[str, int] = {}
        self._hosts: dict[str, _HostLog] = {}
        self._tasks: dict[str, tuple[_Trial, ...]] = {}
        self._causes: dict[_Program, dict[_Line, set[tuple[str, str]]]] = {}  # tasks and their hosts
        self.streaks = Streaks()

    def add(self, where: Where, failure: Failure | None) -> None:
        """Notes one judged attempt: its failure as attributed, or None for a verdict. A cancelled one says nothing."""
        if failure is None:
            self.streaks.add(_end(where, None), ())
            self._succeeded(where)
        elif failure.kind is not Kind.CANCELLED:
            if failure.blame not in (Blame.POOL, Blame.BACKEND):
                self.streaks.add(_end(where, failure.kind), self.hosts_against(where.task))
            self._failed(where, failure)

    def _succeeded(self, where: Where) -> None:
        self.successes += 1
        self._verdicts[where.worker] = self._verdicts.get(where.worker, 0) + 1
        host = self._host(where.host)
        host.recent.append(None)
        host.verdicts += 1
        host.good_claim = max(host.good_claim, where.claimed_at)
        self._proven.add((where.pool, where.executable))
        self._causes.pop((where.pool, where.executable), None)
        self._causes.pop((where.pool, None), None)
        hosts = self._accused(where.task)
        self.forget(where.task)
        for name in hosts:
            log = self._host(name)
            if name != where.host and where.task in log.failed:
                log.cleared.add(where.task)

    def _failed(self, where: Where, failure: Failure) -> None:
        self.failures += 1
        if failure.kind not in SILENT and where.claimed_at < inf:
            self._host(where.host).bad_claim = max(self._host(where.host).bad_claim, where.claimed_at)
        self._tasks[where.task] = (*self._tasks.get(where.task, ()), self._trial(failure.kind, where))
        if _is_the_workers(failure.kind):
            self._accuse(where, self._accused(where.task))
        cause = self._cause(failure, where)
        if cause is not None:
            program, line = cause
            lines = self._causes.setdefault(program, {})
            if len(lines) >= _MOST_CAUSES and line not in lines:
                del lines[next(iter(lines))]
            lines.setdefault(line, set()).add((where.task, where.host))

    def _accuse(self, where: Where, hosts: set[str]) -> None:
        if len(hosts) > 1:
            for name in hosts:
                self._host(name).unsay(where.task)
            return
        host = self._host(where.host)
        host.failed.add(where.task)
        host.recent.append(where.task)

    def _host(self, name: str) -> _HostLog:
        return self._hosts.setdefault(name, _HostLog())

    def _trial(self, kind: Kind, where: Where) -> _Trial:
        verdicts = self._verdicts.get(where.worker, 0)
        return _Trial(kind, where.worker, where.host, verdicts, self._host(where.host).verdicts, where.at)

    def _accused(self, task: str) -> set[str]:
        """The hosts on which the task failed by no fault of its own."""
        return {trial.host for trial in self._tasks.get(task, ()) if _is_the_workers(trial.kind)}

    def forget(self, task: str) -> None:
        """Drops what is kept of a task that will not run again; a run of many failing tasks stays small."""
        self._tasks.pop(task, None)

    def _cause(self, failure: Failure, where: Where) -> tuple[_Program, _Line] | None:
        """Under which key this failure may be systemic; None where it cannot be."""
        systemic = RULES[failure.kind].systemic
        if systemic is Systemic.NEVER:
            return None
        if systemic is Systemic.SINCE:
            return (where.pool, None), cause_line(failure, where.task)
        if (where.pool, where.executable) in self._proven:
            return None
        if systemic is Systemic.EVIDENCE and not is_specific(failure.evidence):
            return None
        return (where.pool, where.executable), cause_line(failure, where.task)

    def systemic_tasks(self, failure: Failure, where: Where, others: Collection[str] = ()) -> int:
        """How many different tasks, with this one, failed by this cause; 0 where it cannot be systemic.

        It cannot be while it is seen on one host only and others serve.
        """
        cause = self._cause(failure, where)
        if cause is None:
            return 0
        program, line = cause
        seen = self._causes.get(program, {}).get(line, set[tuple[str, str]]()) | {(where.task, where.host)}
        if others and len({host for _, host in seen}) == 1:
            return 0
        return len({task for task, _ in seen})

    def companions(self, failure: Failure, where: Where) -> set[str]:
        """The other tasks that failed by this cause."""
        cause = self._cause(failure, where)
        seen = (
            set[tuple[str, str]]()
            if cause is None
            else self._causes.get(cause[0], {}).get(cause[1], set[tuple[str, str]]())
        )
        return {task for task, _ in seen} - {where.task}

    def trials(self, failure: Failure, where: Where) -> int:
        """On how many different workers, with this one, the task failed by this kind."""
        trials = (*self._tasks.get(where.task, ()), self._trial(failure.kind, where))
        return len({(trial.worker, trial.verdicts) for trial in trials if trial.kind is failure.kind})

    def failed_on(self, task: str) -> frozenset[str]:
        """The workers on which the task failed, for `core.placement`: another worker comes first."""
        return frozenset(trial.worker for trial in self._tasks.get(task, ()))

    def runs_alone(self, task: str) -> bool:
        """Whether the task was there when two runners or hosts died. It may have killed them, so it gets a host of its own: those
        that it would take with it lose nothing, and what it loses from now on is its own doing."""
        return sum(trial.kind in _DEATHS for trial in self._tasks.get(task, ())) >= ALONE_AFTER

    def open_tasks(self) -> list[str]:
        """Those that failed and are not forgotten."""
        return list(self._tasks)

    def hosts_of(self, task: str) -> frozenset[str]:
        """The hosts on which the task failed, in whatever way."""
        return frozenset(trial.host for trial in self._tasks.get(task, ()))

    def hosts_against(self, task: str) -> frozenset[str]:
        """The hosts on which the task failed in a way that says something about it, or about them."""
        return frozenset(trial.host for trial in self._tasks.get(task, ()) if trial.kind not in SILENT)

    def is_vouched(self, task: str, host: str) -> bool:
        """Whether the host has shown that the task's last failure there was not its own: it gave other tasks verdicts before it,
        and in attempts that began after it."""
        last = self._last(task, host)
        return last is not None and last.host_verdicts > 0 and self._host(host).good_claim > last.at

    def may_be_vouched(self, task: str, host: str) -> bool:
        """Whether the next end on the host can still tell: it gave verdicts before, and nothing that began since has ended."""
        last, log = self._last(task, host), self._host(host)
        return last is not None and last.host_verdicts > 0 and max(log.good_claim, log.bad_claim) <= last.at

    def last_failed_at(self, task: str, host: str) -> float:
        last = self._last(task, host)
        return -inf if last is None else last.at

    def _last(self, task: str, host: str) -> _Trial | None:
        return next((trial for trial in reversed(self._tasks.get(task, ())) if trial.host == host), None)

    def blames_host(self, host: str, task: str | None = None) -> bool:
        """Whether rule 1 holds for the host, where `task` is one that fails there at this moment.

        Such a host should be quarantined; it proves itself with a canary, and then leaves quarantine.
        """
        log = self._hosts.get(host)
        if log is None or not log.cleared:
            return False
        failed, recent = log.failed, list(log.recent)
        if task is not None:
            if self._accused(task) - {host}:
                return False
            failed, recent = failed | {task}, [*recent, task][-_RECENT:]
        bad = sum(entry is not None for entry in recent)
        return len(failed) >= HOST_TASKS and 2 * bad >= len(recent) and len(failed) > 2 * self._usual()

    def _usual(self) -> int:
        """How many tasks failed on the median host (the lower one of two) by no fault of their own."""
        counts = sorted(len(log.failed) for log in self._hosts.values())
        return counts[(len(counts) - 1) // 2]

    def blamed_hosts(self) -> Iterator[str]:
        """The hosts that should be quarantined now."""
        return (host for host, log in self._hosts.items() if log.cleared and self.blames_host(host))

    def accusation(self, host: str) -> str:
        """The evidence against a blamed host, for people."""
        log = self._hosts[host]
        shown = ", ".join(sorted(log.failed)[:_SHOWN]) + (", …" if len(log.failed) > _SHOWN else "")
        return (
            f"{len(log.failed)} different tasks failed there through no fault of their own ({shown}), and {len(log.cleared)} "
            "of them succeeded on another host since"
        )

    def unquarantine(self, host: str) -> None:
        """Forget the evidence against the host, after it has proved itself."""
        self._hosts.pop(host, None)
        self.streaks.unquarantine(host)


def attribute(
    failure: Failure, where: Where, history: History, others: Collection[str] = (), tasks: int | None = None
) -> Failure:
    """The failure with the blame that the history of *earlier* attempts gives it; add the result to the history after.

    The kind and the evidence never change. A blame moved to the host or the pool does not consume.

    Args:
        others: the hosts besides its own that serve now.
        tasks: how many the run has; None: more may come. A missing program is the pool's where all of few tasks miss it.
    """
    if history.streaks.accuses(_end(where, failure.kind), history.hosts_against(where.task), others):
        return replace(failure, blame=Blame.WORKER, consumes=False)
    if _is_the_workers(failure.kind) and history.blames_host(where.host, where.task):
        return replace(failure, blame=Blame.WORKER, consumes=False)
    few = failure.kind is Kind.LAUNCH_FAILED and history.successes == 0 and tasks is not None
    if history.systemic_tasks(failure, where, others) >= (
        min(SYSTEMIC_TASKS, tasks) if few and tasks else SYSTEMIC_TASKS
    ):
        return replace(failure, blame=Blame.POOL, consumes=False)
    if failure.blame is Blame.WORKER and failure.kind not in _NEVER_THE_TASKS:
        enough = STALL_WORKERS if failure.kind is Kind.STALL else OTHER_WORKERS
        if history.trials(failure, where) >= enough:
            return replace(failure, blame=Blame.TASK, consumes=True)
    return failure


def cause_line(failure: Failure, task: str) -> tuple[Kind, str]:
    """What two failures of one program share if they have one cause."""
    if RULES[failure.kind].systemic is Systemic.SINCE:
        return failure.kind, ""
    return failure.kind, same_cause(failure.evidence, task)


def _end(where: Where, kind: Kind | None) -> End:
    return End(
        task=where.task, host=where.host, attempt=where.attempt, kind=kind, run_s=where.run_s,
        claimed_at=where.claimed_at, at=where.at,
    )  # fmt: skip


def _is_the_workers(kind: Kind) -> bool:
    return RULES[kind].blame is Blame.WORKER and kind not in (Kind.PREEMPTED, Kind.GPU_TAKEN)
