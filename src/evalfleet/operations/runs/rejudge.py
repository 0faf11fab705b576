"""Judging a run again from what its runners saw, with the judge and the patterns of today. Nothing is run.

Every ended attempt without a verdict is judged from its stored end record, and the blame is attributed anew by replaying
the history in the order of the ends, with the verdicts that are there. Verdicts stay: an attempt that had one is never
judged again, and one that would get one by today's rules is reported and left as it is: a score comes from a task that
ran under rules that were known then. To apply the new rules, retry the task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from evalfleet import config
from evalfleet.core.failures.attribution import History, Where, attribute
from evalfleet.core.failures.end_record import end_from_json
from evalfleet.core.failures.judge import Builtin, Pattern, judge
from evalfleet.core.failures.kinds import JUDGE_VERSION, outcome_of
from evalfleet.engine.attempts.end import where_of
from evalfleet.engine.controller import engine_settings
from evalfleet.engine.supervisor import owner_name
from evalfleet.errors import Owned, WrongState
from evalfleet.model import Attempt, AttemptState, Blame, Failure, Kind, Outcome, Run, RunState, TaskState, Verdict
from evalfleet.operations.home import opened_for_writing
from evalfleet.report.reader import opened_run
from evalfleet.store.attempts.records import Judged
from evalfleet.store.reader import StoreReader
from evalfleet.store.store import Store

_FINISHED = frozenset({RunState.COMPLETED, RunState.CANCELLED, RunState.PAUSED})


class Change(Struct, frozen=True, kw_only=True):
    """An attempt that is judged otherwise today. Its old judgement is in `attempt`."""

    key: str  # of its task
    attempt: Attempt
    judged: Failure | Verdict  # the new judgement; a verdict is reported only
    outcome: Outcome
    moves: tuple[TaskState, TaskState] | None = None  # old and new state of its task, where the attempt decided it

    @property
    def move(self) -> tuple[TaskState, TaskState] | None:
        """The old and the new state of its task, where they differ."""
        return self.moves if self.moves and self.moves[0] is not self.moves[1] else None


class Rejudged(Struct, frozen=True, kw_only=True):
    """A run that was judged again, or would be."""

    run: Run
    changes: list[Change]
    tasks: dict[str, int]  # by state, after the changes


def judge_run(settings: config.Settings, text: str, *, dry_run: bool = False) -> Rejudged:
    """Judge the run that `text` names with today's judge and the patterns of the settings; with `dry_run` change nothing.

    Raises NotFound, Owned while a controller drives the run, WrongState where it is not finished.
    """
    patterns = engine_settings(settings).patterns
    if not dry_run:
        with opened_for_writing(settings.home, text) as (store, run):
            changes = rejudge(store, run, patterns)
            return Rejudged(run=run, changes=changes, tasks=_by_name(store.tasks.counts(run.id)))
    with opened_run(settings.home, text) as (reader, run):
        changes = review(reader, run, patterns)
        counts = dict(reader.tasks.counts(run.id))
    for old, new in (change.move for change in changes if change.move):
        counts[old] -= 1
        counts[new] += 1
    return Rejudged(run=run, changes=changes, tasks=_by_name(counts))


def _by_name(counts: Mapping[TaskState, int]) -> dict[str, int]:
    return {str(state): count for state, count in counts.items()}


class _Decided(Struct, frozen=True, kw_only=True):
    """A task without a verdict, and the attempt that made it so."""

    state: TaskState
    by: int


def rejudge(store: Store, run: Run, patterns: Sequence[Pattern | Builtin]) -> list[Change]:
    """Judge a finished run again and store what changed, whole or not at all. Returns the changes, in order of the ends.

    The caller owns the run meanwhile. Raises Owned while a controller drives it, WrongState where it is not finished.
    """
    _require_finished(run)
    taken = store.runs.take(run.id, owner_name())
    try:
        _require_finished(taken)
        with store.batch():
            changes = _review(store, taken, patterns)
            for change in changes:
                _apply(store, taken, change)
        return changes
    finally:
        store.runs.leave(taken)


def review(store: StoreReader, run: Run, patterns: Sequence[Pattern | Builtin]) -> list[Change]:
    """What `rejudge` would change. Writes nothing, and raises the same."""
    _require_finished(run)
    driver = store.runs.driver(run.id)
    if driver is not None:
        raise Owned(f"run {run.id} is driven by {driver}; judge it when it is finished")
    with store.snapshot():
        return _review(store, run, patterns)


def _require_finished(run: Run) -> None:
    if run.state not in _FINISHED:
        raise WrongState(
            f"run {run.id} is {run.state} and not over; judge it when it is finished (`evalfleet resume {run.id}`)"
        )


def _review(store: StoreReader, run: Run, patterns: Sequence[Pattern | Builtin]) -> list[Change]:
    history = History()
    decided = _decided(store, run)
    attempts = _Attempts(store, run)
    changes: list[Change] = []
    for past in list(store.attempts.judged(run.id)):
        where = where_of(past)
        stands = past.failure
        if past.failure is not None:
            attempt = attempts.of(past)
            judged = _judge(attempt, past.failure, run, patterns, where, history)
            if isinstance(judged, Failure):
                stands = judged
            change = _change(past, attempt, judged, decided.get(past.task_number))
            if change is not None:
                changes.append(change)
        history.add(where, stands)
    return changes


class _Attempts:
    """Attempts with their end records: of failed tasks only, one task at a time, because a run may have many."""

    def __init__(self, store: StoreReader, run: Run) -> None:
        self._store = store
        self._run = run
        self._task_number = 0
        self._found: list[Attempt] = []

    def of(self, past: Judged) -> Attempt:
        if self._task_number != past.task_number:
            self._found = self._store.attempts.all(self._run.id, past.task_number)
            self._task_number = past.task_number
        return next(attempt for attempt in self._found if attempt.number == past.number)


def _judge(
    attempt: Attempt, stored: Failure, run: Run, patterns: Sequence[Pattern | Builtin], where: Where, history: History
) -> Failure | Verdict:
    if attempt.end is None or attempt.state is not AttemptState.ENDED:
        return stored  # there is nothing to judge from, or its files are still on their way
    judged = judge(end_from_json(attempt.end), run.policy, patterns)
    if isinstance(judged, Verdict) or judged.kind is Kind.CANCELLED:
        return judged
    if judged.kind is stored.kind and stored.blame in (Blame.WORKER, Blame.POOL) and stored.blame is not judged.blame:
        # What moved the blame may have come later, or from which hosts served then: it is not told by earlier ends alone.
        return stored
    return attribute(judged, where, history)


def _change(past: Judged, attempt: Attempt, judged: Failure | Verdict, decided: _Decided | None) -> Change | None:
    old = attempt.failure
    if isinstance(judged, Verdict):
        return Change(key=past.key, attempt=attempt, judged=judged, outcome=Outcome.OK)
    outcome = outcome_of(judged.kind, judged.blame)
    if old is None or (old.kind, old.blame, attempt.outcome) == (judged.kind, judged.blame, outcome):
        return None
    moves = None
    if decided is not None and decided.by == attempt.number:
        crosses = (old.blame is Blame.TASK) != (judged.blame is Blame.TASK)
        own = TaskState.FAILED if judged.blame is Blame.TASK else TaskState.HELD
        # Whether it is failed or held only follows from the blame; a task that a person holds stays held.
        moves = (decided.state, own if crosses else decided.state)
    return Change(key=past.key, attempt=attempt, judged=judged, outcome=outcome, moves=moves)


def _decided(store: StoreReader, run: Run) -> dict[int, _Decided]:
    return {
        number: one for number, one in _decided_tasks(store, run) if one.state in (TaskState.FAILED, TaskState.HELD)
    }


def _decided_tasks(store: StoreReader, run: Run) -> Iterator[tuple[int, _Decided]]:
    for row in store.tasks.result_rows(run.id):
        if row["decided_by"] is not None:
            yield row["number"], _Decided(state=TaskState(row["state"]), by=row["decided_by"])


def _apply(store: Store, run: Run, change: Change) -> None:
    if isinstance(change.judged, Failure):
        state = change.moves[1] if change.moves else None
        store.attempts.rejudge(run, change.attempt, change.judged, change.outcome, JUDGE_VERSION, state)
