"""What the dispatcher knows of live attempts, and what it wants done. No behaviour, no I/O."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct, field

from evalfleet.hosts.base import Launch
from evalfleet.model import Attempt, JsonObject, Task


class Mode(StrEnum):
    """How much the controller still wants."""

    DRIVE = "drive"
    STOP = "stop"  # admit nothing; what runs goes on without us
    WITHDRAW = "withdraw"  # end our live attempts and queue their tasks again
    CANCEL = "cancel"  # end everything; the run is cancelled


class LiveAttempt(Struct):
    """An attempt in flight, with progress that is not stored yet."""

    task: Task
    attempt: Attempt
    last_event: int = -1
    state: str | None = None
    started_at: float | None = None
    ready_at: float | None = None
    step: int | None = None
    reported_usd: float = 0.0
    lines: list[JsonObject] = field(default_factory=list[JsonObject])


def taken_over(task: Task, attempt: Attempt) -> LiveAttempt:
    """An attempt that another controller started, with everything that was stored about it."""
    return LiveAttempt(
        task=task,
        attempt=attempt,
        last_event=attempt.last_event,
        started_at=attempt.started_at,
        step=attempt.step,
        reported_usd=attempt.reported_usd,
    )


class Ended(NamedTuple):
    """An attempt whose files must be collected, with the key of its task and the names of its secrets."""

    attempt: Attempt
    key: str
    secrets: tuple[str, ...] = ()


class Orders(Struct):
    """What is to be done outside the store after one step. Hosts by name."""

    launch: dict[str, list[Launch]] = field(default_factory=dict[str, list[Launch]])
    stop: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    stop_reason: str = ""
    collect: list[Ended] = field(default_factory=list[Ended])
    forget: list[str] = field(default_factory=list[str])  # on any host that has them
    blamed: dict[str, str] = field(default_factory=dict[str, str])  # hosts that were quarantined, and why
    given_up: dict[str, str] = field(default_factory=dict[str, str])  # hosts that the run cannot use, and why
    # For fleets that follow the health of their hosts: those that get no new work, and why; and how attempts ended.
    absent: dict[str, str | None] = field(default_factory=dict[str, str | None])
    ended: list[tuple[str, str | None]] = field(default_factory=list[tuple[str, str | None]])
    proving: frozenset[str] = frozenset()  # hosts that have a canary
    want: int = 0  # workers that the run could use
    slots: dict[str, int] = field(default_factory=dict[str, int])  # the same, on each host that counts them
    wait_s: float = 60.0  # look again after this long, if nothing happens before
    gpu_turn: int | None = None  # tasks wait for GPUs: look again when the store's turn differs
    done: bool = False
