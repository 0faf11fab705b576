"""Attempts that were given up although their host still runs them.

Unreachable is not failed: a host that was given up may come back with its work. Such an attempt may finish, because a late
verdict counts if its task has none yet. Until then it uses its machine, so it occupies its worker and its memory. It is ended as
soon as its verdict is of no use, and no run is over while one of its attempts goes on where it can be reached.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from evalfleet.engine.hosts.canaries import is_canary
from evalfleet.engine.orders import Mode
from evalfleet.errors import NotFound
from evalfleet.hosts.base import KnownAttempt
from evalfleet.model import Attempt, AttemptState, Outcome, Run, RunState, TaskState
from evalfleet.store.store import Store

_DECIDED = (TaskState.DONE, TaskState.CANCELLED)


class ReturnedAttempts:
    """The returned attempts of one run. Used by its dispatcher."""

    def __init__(self, store: Store, run: Run) -> None:
        self._store = store
        self._run = run
        self.freed: Callable[[], None] = lambda: None  # called when a worker may have become free
        self._running: dict[str, tuple[str, Attempt | None]] = {}  # their host and their stored rows

    def found(self, host: str, attempt_ids: Iterable[str]) -> None:
        """A host that was reached again still runs these attempts."""
        self.only(host, ())
        for attempt_id in attempt_ids:
            if is_canary(attempt_id):
                continue  # it ends by itself, soon
            self._running[attempt_id] = (host, _stored(self._store, self._run.id, attempt_id))

    def only(self, host: str, attempt_ids: Collection[str]) -> None:
        """Forget the returned attempts of a host that it no longer runs."""
        for attempt_id, (where, _) in list(self._running.items()):
            if where == host and attempt_id not in attempt_ids:
                self.ended(attempt_id)

    def ended(self, attempt_id: str) -> None:
        if self._running.pop(attempt_id, None) is not None:
            self.freed()

    def hosts(self) -> list[str]:
        """The host of each attempt."""
        return [host for host, _ in self._running.values()]

    def is_on(self, hosts: Collection[str]) -> bool:
        return any(host in hosts for host, _ in self._running.values())

    def workers(self) -> set[str]:
        """The workers that they occupy."""
        return {attempt.worker for _, attempt in self._running.values() if attempt is not None}

    def memory_mb(self, host: str) -> int:
        found = (attempt for where, attempt in self._running.values() if where == host)
        return sum(attempt.requests.memory_mb for attempt in found if attempt is not None)

    def unwanted(self, mode: Mode) -> list[tuple[str, str]]:
        """The attempts to end, with their hosts. Reads the task of each from the store."""
        all_of_them = mode in (Mode.WITHDRAW, Mode.CANCEL) or self._run.state.is_over
        return [
            (host, attempt_id)
            for attempt_id, (host, attempt) in self._running.items()
            if all_of_them or attempt is None or not self._may_count(attempt)
        ]

    def _may_count(self, attempt: Attempt) -> bool:
        """Whether its verdict would count for its task."""
        task = self._store.tasks.at(self._run.id, attempt.task_number)
        return attempt.outcome is Outcome.LOST and task.state not in _DECIDED


def _stored(store: Store, run_id: str, attempt_id: str) -> Attempt | None:
    number = attempt_id.removeprefix(f"{run_id}.").partition(".")[0]
    found = store.attempts.all(run_id, int(number)) if number.isdigit() else []
    return next((attempt for attempt in found if attempt.id == attempt_id), None)


class LeftoverAttempts:
    """Ends what finished runs left on a host, because their controllers do not come back.

    Only runs that the store knows, that are over, and that have no controller. Uncollected verdicts stay on the host.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stopped: set[str] = set()

    def orders(self, others: Iterable[KnownAttempt]) -> list[tuple[Run, list[str], list[str]]]:
        """For each such run: the attempts to stop, and those to forget."""
        by_run: dict[str, list[KnownAttempt]] = {}
        for one in others:
            by_run.setdefault(one.attempt_id.rsplit(".", 2)[0], []).append(one)
        found = ((self._over(run_id), known) for run_id, known in by_run.items())
        made = [(run, *self._of(run, known)) for run, known in found if run is not None]
        return [(run, stop, forget) for run, stop, forget in made if stop or forget]

    def _over(self, run_id: str) -> Run | None:
        try:
            run = self._store.runs.get(run_id)
        except NotFound:
            return None  # of another home
        return run if run.state.is_over and self._store.runs.driver(run_id) is None else None

    def _of(self, run: Run, known: list[KnownAttempt]) -> tuple[list[str], list[str]]:
        stop = [one.attempt_id for one in known if one.live]
        ended = [one.attempt_id for one in known if not one.live]
        forget = [one for one in ended if one in self._stopped or self._is_done(run, one)]
        self._stopped |= set(stop)
        return stop, forget

    def _is_done(self, run: Run, attempt_id: str) -> bool:
        """Whether nothing of it is needed any more."""
        attempt = _stored(self._store, run.id, attempt_id)
        if attempt is None:
            return True
        if attempt.state is not AttemptState.ENDED:
            return False  # its files are not here
        task = self._store.tasks.at(run.id, attempt.task_number)
        return run.state is RunState.CANCELLED or task.state in _DECIDED
