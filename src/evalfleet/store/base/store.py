"""What the rest of evalfleet may ask of a store.

Contract of every implementation:

- A method is one transaction (or joins the open `batch`); it either happens whole, with its events, or not at all.
- A state change is guarded by the expected state and by `epoch`. If the guard does not hold, the method changes nothing
  and returns None (or an empty list): the row is not ours any more, and the caller drops its result.
- Records that come out are frozen snapshots.
- The store owns the clock: `now()` is the only time that leases, `not_before` and events are measured by.
- An instance is used by one thread at a time. Several processes may have instances of the same store open.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from msgspec import Struct

from evalfleet.model import (
    AccessToken,
    Attempt,
    Device,
    Event,
    Failure,
    JsonObject,
    Outcome,
    Policy,
    Request,
    Requests,
    Role,
    Run,
    Task,
    TaskSpec,
    TaskState,
    Verb,
    Verdict,
)
from evalfleet.store.base.daemon import DaemonReader, DaemonWriter
from evalfleet.store.base.gpus import GpuReader, GpuWriter
from evalfleet.store.base.money import MoneyReader
from evalfleet.store.base.pools import PoolReader, PoolWriter
from evalfleet.store.home.facts import Identity
from evalfleet.store.runs.judged import Judged
from evalfleet.store.runs.pages import PageReader
from evalfleet.store.series.queries import SeriesReader, SeriesWriter


class Claim(Struct, frozen=True, kw_only=True):
    """A task and the worker that shall run it."""

    task_number: int
    worker: str
    host: str
    token: str
    lease_s: float
    requests: Requests
    host_memory_mb: int | None = None  # None: the host's memory is not limited
    others: frozenset[str] = (
        frozenset()
    )  # attempts of other runs that the host is known to run, whatever their lease says
    devices: tuple[Device, ...] = ()  # the GPUs that the attempt shall have; refused where one is held
    price_usd_per_hour: float = 0.0  # of the worker


class Claimed(Struct, frozen=True, kw_only=True):
    task: Task
    attempt: Attempt


class Progress(Struct, frozen=True, kw_only=True):
    """New facts about a live attempt, up to the runner's event `last_event`."""

    attempt: Attempt
    last_event: int
    state: str | None = None  # starting or running
    started_at: float | None = None
    ready_at: float | None = None
    step: int | None = None
    reported_usd: float = 0.0
    lines: tuple[JsonObject, ...] = ()


class Finish(Struct, frozen=True, kw_only=True):
    """How an attempt ended, and what becomes of its task.

    With a verdict the task succeeds. With a failure it goes to `next_state`: queued (not before `not_before`), failed,
    held or cancelled.
    """

    attempt: Attempt
    outcome: Outcome
    ended_at: float
    duration_s: float
    started_at: float | None
    ready_at: float | None
    cost_usd: float
    reported_usd: float
    last_event: int
    end: JsonObject
    judge_version: int
    verdict: Verdict | None = None
    failure: Failure | None = None
    next_state: TaskState | None = None
    not_before: float = 0.0
    reason: str | None = None


class Finished(Struct, frozen=True, kw_only=True):
    task: Task
    attempt: Attempt
    counts: bool  # False: the task had a verdict already, or is cancelled; this attempt is evidence only
    siblings: tuple[Attempt, ...]  # live attempts of the same task, to be cancelled when this one brought the verdict


class StoreReader(DaemonReader, PoolReader, GpuReader, PageReader, SeriesReader, MoneyReader, Protocol):
    """Reading. Any number of readers; none blocks a writer."""

    def close(self) -> None: ...

    def now(self) -> float: ...

    def identity(self) -> Identity:
        """Who the home is."""
        ...

    def snapshot(self) -> AbstractContextManager[None]:
        """All reads inside see the same moment."""
        ...

    def changed(self) -> bool:
        """Whether another connection has committed since the last call. Cheap enough to ask often."""
        ...

    def run(self, run_id: str) -> Run:
        """Raises NotFound."""
        ...

    def find_run(self, text: str) -> Run:
        """By id, unique prefix of an id, unique name, or `latest`. Raises NotFound, AmbiguousId."""
        ...

    def driver(self, run_id: str) -> str | None:
        """Who drives the run at this moment; None if nobody does (its state may still say running, after a crash)."""
        ...

    def runs(self, limit: int = 1000) -> list[Run]:
        """Newest first."""
        ...

    def task(self, run_id: str, key: str) -> Task:
        """Raises NotFound."""
        ...

    def task_at(self, run_id: str, number: int) -> Task:
        """By its number. Raises NotFound."""
        ...

    def tasks(self, run_id: str) -> Iterator[Task]:
        """In the order of submission, read in pages."""
        ...

    def counts(self, run_id: str) -> dict[TaskState, int]:
        """Number of tasks per state; every state is present."""
        ...

    def candidates(self, run_id: str, limit: int, shard: tuple[int, int] | None = None) -> list[Task]:
        """Queued tasks that are due, best first. `shard` = (index, count) keeps to one worker's fixed share."""
        ...

    def next_due(self, run_id: str) -> float | None:
        """When the next waiting task becomes due; None if none waits."""
        ...

    def attempts(self, run_id: str, task_number: int | None = None) -> list[Attempt]: ...

    def unended(self, run_id: str) -> list[Attempt]:
        """Attempts that a new owner must look after: live or collecting."""
        ...

    def judged(self, run_id: str) -> Iterator[Judged]:
        """All judged attempts in the order in which they were judged, whatever the clocks of their hosts said; read it to its
        end before the next call."""
        ...

    def events(self, run_id: str, after: int = 0, limit: int = 1000) -> list[Event]: ...

    def requests(self, run_id: str) -> list[Request]:
        """Those not yet obeyed, oldest first."""
        ...

    def answer(self, number: int) -> JsonObject | None:
        """What became of a request; None while it waits."""
        ...

    def breaker(self, run_id: str) -> JsonObject | None: ...

    def attempt_sums(self, run_id: str) -> list[dict[str, Any]]:
        """Per outcome: count, cost_usd, duration_s, max_cost_usd."""
        ...

    def task_sums(self, run_id: str) -> list[dict[str, Any]]:
        """Per domain, state and retried (more than one attempt): count, score, successes, duration_s,
        timed (with a duration), untried (without an attempt)."""
        ...

    def state_sums(self, run_id: str) -> list[dict[str, Any]]:
        """Per state: count, score, successes."""
        ...

    def result_rows(self, run_id: str) -> Iterator[dict[str, Any]]:
        """Like `results`, read in pages."""
        ...

    def episode_sums(self, run_id: str) -> list[dict[str, Any]]:
        """Of a benchmark's run, per benchmark, task and domain: episodes, counted (in the valid score), successes, and
        of the scores that count score (their sum), squares (the sum of their squares), low, high."""
        ...

    def episodes(self, run_id: str) -> list[dict[str, Any]]:
        """Of a benchmark's run, what the payload of each task says: key, benchmark, task, seed, max_steps."""
        ...

    def payloads(self, run_id: str) -> dict[str, str | None]:
        """The payload of each task as JSON, by key; None where it has none."""
        ...

    def attempt_rows(self, run_id: str) -> Iterator[dict[str, Any]]:
        """All attempts without their end records, by task and number, read in pages."""
        ...

    def live_attempts(self, run_id: str) -> list[dict[str, Any]]:
        """Attempts that are leased, starting or running, with their task's key; oldest first."""
        ...

    def worker_sums(self, run_id: str) -> list[dict[str, Any]]:
        """Per worker: assigned (attempts that it was given), completed (those that gave a verdict)."""
        ...

    def worker_events(self, run_id: str) -> list[Event]:
        """What was said of hosts (`worker.*`) and who took the run (`run.taken`), oldest first."""
        ...

    def failure_sums(self, run_id: str) -> list[dict[str, Any]]:
        """Per kind and blame: count (attempts), tasks, and key and evidence of the latest."""
        ...

    def failure_lines(self, run_id: str, limit: int = 5_000) -> list[dict[str, Any]]:
        """Per task, kind, blame and evidence: key, attempts, and when the latest ended; cancelled ones left out, latest first."""
        ...

    def last_failures(self, run_id: str, limit: int = 10) -> list[dict[str, Any]]:
        """The latest failed attempts, newest first; cancelled ones left out."""
        ...

    def durations(self, run_id: str, limit: int = 20_000) -> list[float]:
        """How long tasks took that are decided by themselves: done or failed."""
        ...

    def last_event(self, run_id: str, type: str | None = None) -> Event | None: ...

    def held(self, run_id: str, limit: int) -> list[dict[str, Any]]:
        """The first held tasks: key and reason."""
        ...


class Store(DaemonWriter, PoolWriter, GpuWriter, SeriesWriter, StoreReader, Protocol):
    """Reading and writing."""

    def batch(self) -> AbstractContextManager[None]:
        """Several methods in one transaction. One that raises leaves nothing behind, and the caller may go on."""
        ...

    # A run and its owner

    def submit(
        self,
        name: str,
        policy: Policy,
        tasks: Iterable[TaskSpec],
        *,
        folder: str,
        base_env: dict[str, str],
        open: bool = False,
    ) -> Run:
        """Store a run with all its tasks. Event `run.submitted`. `tasks` is drawn to its end before anything is
        written. Raises InputError on a key that stands twice."""
        ...

    def add_tasks(self, run: Run, tasks: Sequence[TaskSpec]) -> list[Task]:
        """Give an open run that runs more tasks, numbered after those that it has. Event `task.submitted` for each.
        Returns them; none if the run is not ours, not open or not running any more. Raises InputError on a key that
        it has already."""
        ...

    def set_open(self, run: Run, open: bool, reason: str) -> Run | None:
        """Say whether tasks may still be added; a run completes only when they may not. Event `run.opened` or
        `run.closed`. None: it was so already, or the run is not ours any more."""
        ...

    def take(self, run_id: str, owner: str) -> Run:
        """Become the owner; raises the epoch. Event `run.taken`. Raises Owned while another owner lives, NotFound."""
        ...

    def leave(self, run: Run) -> None:
        """Give the run up, if it is ours. Event `run.left`."""
        ...

    def begin(self, run: Run) -> Run | None:
        """queued, paused, completed or cancelled -> running. Event `run.started` or `run.resumed`."""
        ...

    def pause(self, run: Run, reason: JsonObject) -> Run | None:
        """running -> paused. Event `run.paused`."""
        ...

    def complete(self, run: Run) -> Run | None:
        """running -> completed, if no task is queued or running. Event `run.completed`."""
        ...

    def cancel(self, run: Run) -> Run | None:
        """-> cancelled, if no task is queued, running or held. Event `run.cancelled`."""
        ...

    def amend(self, run: Run, policy: Policy) -> Run | None:
        """Change the policy. Event `run.amended`."""
        ...

    def store_breaker(
        self, run: Run, breaker: JsonObject, event: str | None = None, data: JsonObject | None = None
    ) -> None:
        """Keep the breaker's state; with `event` (`breaker.opened`, ...) also say so, with `data`."""
        ...

    # Attempts

    def claim(self, run: Run, claim: Claim) -> Claimed | None:
        """Task queued -> running with a new attempt `leased`. Event `attempt.claimed`."""
        ...

    def progress(self, run: Run, progress: Progress) -> Attempt | None:
        """Attempt leased -> starting | running. Old news changes nothing. Events `attempt.started` (when it leaves
        `leased`; its data name the new state), `attempt.readied` (starting -> running), `attempt.progressed` (of lines)."""
        ...

    def finish(self, run: Run, finish: Finish) -> Finished | None:
        """Attempt -> collecting, task by the rules of `Finish`. Events `attempt.finished` and `task.done`,
        `task.retried`, `task.failed`, `task.held` or `task.cancelled`. None: the attempt was finished before.

        A task that an operator asked to hold is held instead of queued or failed. A verdict of an attempt that was
        given up as lost comes in late: the attempt is collecting again, and the verdict counts if the task has none."""
        ...

    def charge(
        self, run: Run, attempt: Attempt, cost_usd: float, reported_usd: float, duration_s: float
    ) -> Attempt | None:
        """Book what an ended attempt cost besides: its end came late, and tells more than was known. Event `attempt.charged`.
        None: as much is booked already."""
        ...

    def collect(self, run: Run, attempt: Attempt, artifacts: Sequence[JsonObject]) -> Attempt | None:
        """Attempt collecting -> ended. Event `attempt.collected`."""
        ...

    def bound_waiting(self, run: Run, most_s: float) -> None:
        """Let no task wait longer than that: the clock may have been set back since it was told to wait."""
        ...

    def renew(self, run: Run, lease_s: float) -> int:
        """Extend the leases of all live attempts; returns how many. 0 if the run is not ours any more."""
        ...

    def rejudge(
        self, run: Run, attempt: Attempt, failure: Failure, outcome: Outcome, version: int, next_state: TaskState | None
    ) -> Attempt | None:
        """Replace the judgement of an attempt that is over without a verdict, and move its task between failed and held where
        it decided it. Events `attempt.judged` with the old and the new kind and blame; `task.failed` or `task.held`."""
        ...

    def conclude(self, run: Run, number: int, state: TaskState, reason: str) -> Task | None:
        """A task that waits gets no further attempt: queued -> failed | held, by the attempt that failed last. Event
        `task.failed` or `task.held`. None: it does not wait any more."""
        ...

    # Steering

    def hold(self, run: Run, keys: Sequence[str], reason: str) -> list[str]:
        """queued -> held; a running task is held when its attempt is over and gave no verdict. Returns the keys that
        were affected. Raises NotFound. Event `task.held`, or `task.hold_asked` while it runs."""
        ...

    def release(self, run: Run, keys: Sequence[str]) -> list[str]:
        """held -> queued, with a fresh allowance of lost attempts, and of its own where none is left. A running task
        that should be held is not. Raises NotFound. Event `task.released`, or `task.hold_dropped` while it runs."""
        ...

    def retry(self, run: Run, keys: Sequence[str] | None, states: Sequence[TaskState]) -> list[str]:
        """Failed, held or cancelled tasks of `states` (all, or those of `keys`) -> queued with a fresh allowance. Event
        `task.retried`. Returns their keys. Raises NotFound, and WrongState for a key whose task is in none of `states`."""
        ...

    def cancel_tasks(self, run: Run, reason: str) -> list[str]:
        """queued, held -> cancelled, and the run is `cancelling` from now on: whoever drives it ends its live attempts.
        Event `task.cancelled`."""
        ...

    def set_pausing(self, run: Run, reason: JsonObject | None) -> bool:
        """Remember that a running run is to pause once its live attempts have ended, for whoever drives it next; None: it is not.
        `begin`, `pause`, `complete` and `cancel` forget it. False: the run is not ours any more, or does not run."""
        ...

    def request(self, run_id: str, verb: Verb, args: JsonObject, asked_by: str) -> int:
        """Ask the owner. Event `run.requested`. Returns the request's number. Raises NotFound."""
        ...

    def obey(self, run: Run, request: Request, answer: JsonObject) -> bool:
        """Mark a request as done; False if it was before, or if the run is not ours any more."""
        ...

    # Access

    def add_token(self, name: str, role: Role, digest: str, expires_at: float | None = None) -> AccessToken:
        """Keep a token by its digest. Those that have expired are forgotten."""
        ...

    def renew_token(self, token_id: str, name: str, role: Role, digest: str, expires_at: float | None) -> AccessToken:
        """A token of that id, or another text for the one that there is; then the former text is worthless."""
        ...

    def revoke_token(self, text: str) -> AccessToken:
        """Forget a token, by its id or its unique name. Raises NotFound."""
        ...

    def note(
        self, run_id: str, type: str, data: JsonObject, task: str | None = None, attempt: str | None = None
    ) -> None:
        """Write one event that changes no state, such as `worker.suspected`."""
        ...
