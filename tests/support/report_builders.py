"""Builds stores with runs in any state, through the store's own methods, for tests of what reads them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from evalfleet.model import (
    Blame,
    Failure,
    JsonObject,
    Kind,
    Outcome,
    Policy,
    Requests,
    Run,
    TaskSpec,
    TaskState,
    Verdict,
)
from evalfleet.store.attempts.records import Claim, Claimed, Finish, Finished, Progress
from evalfleet.store.open import open_store

START = 1_760_000_000.0

OUTCOMES = {
    Kind.BAD_EXIT: Outcome.TASK_ERROR,
    Kind.TASK_ERROR: Outcome.TASK_ERROR,
    Kind.TIMEOUT: Outcome.TIMEOUT,
    Kind.STALL: Outcome.STALLED,
    Kind.RUNNER_LOST: Outcome.LOST,
    Kind.PREEMPTED: Outcome.PREEMPTED,
    Kind.CANCELLED: Outcome.CANCELLED,
}


class RunBuilder:
    """One run in a store with a clock of its own."""

    def __init__(
        self,
        home: Path,
        keys: Iterable[str] = ("a_1", "a_2"),
        *,
        name: str = "nightly",
        policy: Policy | None = None,
        payload: JsonObject | None = None,
    ) -> None:
        """With `payload` each task is an episode of a benchmark: its key is `<task>_<seed>`, and `payload` says the rest."""
        self.home = home
        self.time = START
        self.store = open_store(home, lambda: self.time)
        specs = [
            TaskSpec(key=key, domain=key.rsplit("_", 1)[0], command=("true",), payload=_payload(key, payload))
            for key in keys
        ]
        self.run: Run = self.store.runs.submit(
            name, policy or Policy(workers=2), specs, folder="/somewhere", base_env={"PATH": "/bin"}
        )
        self.numbers = {spec.key: number for number, spec in enumerate(specs, 1)}

    def begin(self, owner: str = "test") -> RunBuilder:
        self.run = self.store.runs.take(self.run.id, owner)
        begun = self.store.runs.begin(self.run)
        assert begun is not None
        self.run = begun
        return self

    def claim(self, key: str, worker: str = "local-1") -> Claimed:
        claim = Claim(
            task_number=self.numbers[key], worker=worker, host="local", token="t", lease_s=60, requests=Requests()
        )
        claimed = self.store.attempts.claim(self.run, claim)
        assert claimed is not None, f"{key} could not be claimed"
        return claimed

    def step(self, claimed: Claimed, step: int, lines: Sequence[JsonObject] = ()) -> None:
        attempt = self.store.attempts.progress(
            self.run,
            Progress(
                attempt=claimed.attempt,
                last_event=step,
                state="running",
                started_at=self.time,
                step=step,
                lines=tuple(lines),
            ),
        )
        assert attempt is not None

    def finish(
        self,
        claimed: Claimed,
        score: float | None = None,
        *,
        kind: Kind | None = None,
        blame: Blame = Blame.TASK,
        evidence: str = "it broke",
        then: TaskState | None = None,
        seconds: float = 10.0,
        cost_usd: float = 0.0,
    ) -> Finished:
        """End an attempt with a verdict (`score`) or a failure (`kind`), after which the task goes to `then`."""
        started, self.time = self.time, self.time + seconds
        facts: dict[str, Any] = {}
        if kind is None:
            facts["verdict"] = Verdict(score=score or 0.0, success=(score or 0.0) >= 1, steps=5)
            outcome = Outcome.OK
        else:
            failure = Failure(kind=kind, blame=blame, retryable=True, consumes=blame is Blame.TASK, evidence=evidence)
            facts |= {"failure": failure, "next_state": then or TaskState.QUEUED, "reason": f"{kind}: {evidence}"}
            outcome = OUTCOMES.get(kind, Outcome.INFRA_ERROR)
        finished = self.store.attempts.finish(
            self.run,
            Finish(
                attempt=claimed.attempt,
                outcome=outcome,
                started_at=started,
                ready_at=None,
                ended_at=self.time,
                duration_s=seconds,
                cost_usd=cost_usd,
                reported_usd=0.0,
                last_event=99,
                end={"cause": "exited"},
                judge_version=1,
                **facts,
            ),
        )
        assert finished is not None
        self.store.attempts.collect(self.run, finished.attempt, [])
        return finished

    def attempt(self, key: str, score: float | None = None, *, worker: str = "local-1", **how: Any) -> Finished:
        """Claim and finish in one go."""
        return self.finish(self.claim(key, worker), score, **how)

    def pause(self, cause: str = "budget", message: str = "the budget is spent") -> RunBuilder:
        paused = self.store.runs.pause(self.run, {"cause": cause, "message": message})
        assert paused is not None
        self.run = paused
        return self

    def complete(self) -> RunBuilder:
        done = self.store.runs.complete(self.run)
        assert done is not None
        self.run = done
        return self

    def leave(self) -> RunBuilder:
        self.store.runs.leave(self.run)
        self.run = replace(self.store.runs.get(self.run.id))
        return self

    def close(self) -> None:
        self.store.close()


def _payload(key: str, more: JsonObject | None) -> JsonObject | None:
    task, _, seed = key.rpartition("_")
    return None if more is None else {"benchmark": "shop", "task": task, "seed": int(seed), **more}


def mixed_run(home: Path) -> RunBuilder:
    """Six tasks: one right, one wrong, one right at the second try, one failed by itself, one held, one waiting."""
    builder = RunBuilder(home, ["pad_1", "pad_2", "sheet_1", "sheet_2", "web_1", "web_2"]).begin()
    builder.attempt("pad_1", 1.0, cost_usd=0.10)
    builder.attempt("pad_2", 0.0, cost_usd=0.10, worker="local-2")
    builder.attempt("sheet_1", kind=Kind.RUNNER_LOST, blame=Blame.WORKER, evidence="the runner died", cost_usd=0.05)
    builder.attempt("sheet_1", 1.0, cost_usd=0.10, worker="local-2")
    builder.attempt("sheet_2", kind=Kind.TIMEOUT, evidence="no end after 15m", then=TaskState.FAILED, cost_usd=0.20)
    builder.attempt(
        "web_1", kind=Kind.PREEMPTED, blame=Blame.POOL, evidence="evicted", then=TaskState.HELD, cost_usd=0.05
    )
    return builder
