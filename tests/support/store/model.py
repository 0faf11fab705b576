"""What a store should do, in plain Python: the yardstick of the state machine. Methods answer whether the guard holds."""

from __future__ import annotations

from msgspec import Struct, field

from evalfleet.model import LIVE_ATTEMPT_STATES, AttemptState, Outcome, RunState, TaskState

A, R, T = AttemptState, RunState, TaskState


class ModelAttempt(Struct):
    task: int
    number: int
    memory_mb: int
    state: AttemptState = A.LEASED
    outcome: Outcome | None = None
    last_event: int = -1

    @property
    def live(self) -> bool:
        return self.state in LIVE_ATTEMPT_STATES


class ModelTask(Struct):
    state: TaskState = T.QUEUED
    not_before: float = 0.0
    hold_asked: bool = False
    decided_by: int | None = None
    attempts: list[ModelAttempt] = field(default_factory=list[ModelAttempt])
    counted: dict[int, str] = field(default_factory=dict[int, str])  # attempt number -> consumed or lost
    verdicts: int = 0  # that ever counted

    def count(self, kind: str) -> int:
        return sum(1 for counted in self.counted.values() if counted == kind)


class Model:
    """One run. The caller has checked that the epoch is the newest."""

    def __init__(self, tasks: int, allowance: int, memory_mb: int) -> None:
        self.run = R.QUEUED
        self.epoch = 0
        self.tasks = {number: ModelTask() for number in range(1, tasks + 1)}
        self._allowance = allowance
        self._memory_mb = memory_mb

    @property
    def attempts(self) -> list[ModelAttempt]:
        return [attempt for task in self.tasks.values() for attempt in task.attempts]

    def states(self) -> set[TaskState]:
        return {task.state for task in self.tasks.values()}

    # The run

    def move(self, verb: str) -> bool:
        open_states = {T.QUEUED, T.RUNNING, T.HELD} if verb == "cancel" else {T.QUEUED, T.RUNNING}
        before, after = {
            "begin": ({R.QUEUED, R.PAUSED, R.COMPLETED, R.CANCELLED}, R.RUNNING),
            "pause": ({R.RUNNING}, R.PAUSED),
            "complete": ({R.RUNNING}, R.COMPLETED),
            "cancel": ({R.QUEUED, R.RUNNING, R.PAUSED}, R.CANCELLED),
        }[verb]
        if self.run not in before or (verb in ("complete", "cancel") and self.states() & open_states):
            return False
        self.run = after
        return True

    # Attempts

    def claim(self, number: int, memory_mb: int, now: float) -> bool:
        task = self.tasks[number]
        used = sum(attempt.memory_mb for attempt in self.attempts if attempt.live)
        fits = memory_mb == 0 or used + memory_mb <= self._memory_mb
        if self.run is not R.RUNNING or task.state is not T.QUEUED or task.not_before > now or not fits:
            return False
        task.state = T.RUNNING
        task.attempts.append(ModelAttempt(number, len(task.attempts) + 1, memory_mb))
        return True

    def progress(self, attempt: ModelAttempt, state: AttemptState | None, last_event: int) -> bool:
        if not attempt.live or last_event <= attempt.last_event:
            return False
        attempt.last_event = last_event
        if state is A.RUNNING or (state is A.STARTING and attempt.state is A.LEASED):
            attempt.state = state
        return True

    def finish(self, attempt: ModelAttempt, outcome: Outcome, next_state: TaskState, not_before: float) -> bool:
        late = attempt.outcome is Outcome.LOST and outcome is Outcome.OK
        if not attempt.live and not late:
            return False
        attempt.state, attempt.outcome = A.COLLECTING, outcome
        task = self.tasks[attempt.task]
        if outcome is Outcome.OK:
            if task.state in (T.DONE, T.CANCELLED):
                return True
            task.counted[attempt.number] = "consumed"
            task.state, task.hold_asked = T.DONE, False
            task.verdicts += 1
        elif task.state is T.RUNNING:
            if outcome is not Outcome.CANCELLED:
                task.counted[attempt.number] = "lost" if outcome is Outcome.LOST else "consumed"
            held = task.hold_asked and next_state in (T.QUEUED, T.FAILED)
            task.decided_by = None if held else attempt.number
            task.state, task.not_before, task.hold_asked = T.HELD if held else next_state, not_before, False
        return True

    def collect(self, attempt: ModelAttempt) -> bool:
        if attempt.state is not A.COLLECTING:
            return False
        attempt.state = A.ENDED
        return True

    def rejudge(self, attempt: ModelAttempt, outcome: Outcome, next_state: TaskState) -> bool:
        if attempt.state not in (A.COLLECTING, A.ENDED) or attempt.outcome is Outcome.OK:
            return False
        task, attempt.outcome = self.tasks[attempt.task], outcome
        if attempt.number in task.counted:
            task.counted[attempt.number] = "lost" if outcome is Outcome.LOST else "consumed"
        if task.state in (T.FAILED, T.HELD) and task.decided_by == attempt.number:
            task.state = next_state
        return True

    # Steering

    def hold(self, number: int) -> bool:
        task = self.tasks[number]
        if task.state is T.QUEUED:
            task.state, task.decided_by = T.HELD, None
            return True
        if task.state is not T.RUNNING or task.hold_asked:
            return False
        task.hold_asked = True
        return True

    def release(self, number: int) -> bool:
        task = self.tasks[number]
        if task.state is T.HELD:
            exhausted = task.count("consumed") >= self._allowance
            task.counted = {} if exhausted else {n: kind for n, kind in task.counted.items() if kind == "consumed"}
            task.state, task.not_before = T.QUEUED, 0.0
            return True
        dropped, task.hold_asked = task.hold_asked, False
        return dropped

    def retry(self, number: int) -> bool:
        task = self.tasks[number]
        if task.state not in (T.FAILED, T.HELD, T.CANCELLED):
            return False
        task.state, task.not_before, task.counted = T.QUEUED, 0.0, {}
        return True

    def cancel_tasks(self) -> list[int]:
        found = [number for number, task in self.tasks.items() if task.state in (T.QUEUED, T.HELD)]
        for number in found:
            self.tasks[number].state = T.CANCELLED
        return found
