"""Which processes are killed in a round, and at which moments. All of it follows from the seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum


class Target(StrEnum):
    CONTROLLER = "controller"
    RUNNER = "runner"
    STARTING_RUNNER = "starting runner"
    TASK = "task"
    SERVER = "server"  # of the database: it crashes, and comes back
    CONNECTIONS = "connections"  # to it


class When(StrEnum):
    UP = "up"  # after the latest controller was started
    STARTS = "starts"  # so many lines of the ledger say that an attempt began
    ENDS = "ends"  # so many say that one came to its end: its result is on its way
    COLLECTING = "collecting"  # after so many ends, a verdict is stored and its files are not yet in their folder
    COMPLETED = "completed"  # the run is over in the store, and its controller has not left yet


@dataclass(frozen=True, slots=True)
class Kill:
    targets: tuple[Target, ...]  # in this order, at once
    when: When
    count: int
    delay_s: float
    pause_s: float  # before a killed controller is resumed

    def __str__(self) -> str:
        words = {
            When.UP: "start of the controller",
            When.COLLECTING: f"the first collecting attempt after {self.count} ends",
            When.COMPLETED: "the run was completed",
        }
        after = words.get(self.when, f"{self.count} {self.when}")
        return f"{' + '.join(self.targets)} {self.delay_s * 1000:.0f} ms after {after}"


_SHARED = ("two-runs", "broken-host", "full-disk", "copied-home", "killer-tasks", "pool-keeper")
POSTGRES = "postgres"
FLAVOURS = ("controller", "runner", "task", "mixed", POSTGRES, *_SHARED)
_ROTATION = (
    *("controller", "two-runs", "mixed", "broken-host", "runner", "full-disk"),
    *("mixed", "copied-home", "task", "killer-tasks", "controller", "pool-keeper", POSTGRES),
)
C, R, S, T = Target.CONTROLLER, Target.RUNNER, Target.STARTING_RUNNER, Target.TASK
D, N = Target.SERVER, Target.CONNECTIONS
_CHOICES: dict[str, tuple[tuple[Target, ...], ...]] = {
    "controller": ((C,),),
    "runner": ((R,), (R,), (R, S)),
    "task": ((T,), (T, T), (T, T, T)),
    POSTGRES: ((C,), (D,), (N,), (N, N), (D, C), (C, D), (N, C), (R, D)),
    "mixed": ((C,), (C,), (R,), (R, S), (C, R), (R, C), (T,), (T, T), (C, T), (T, R), (C, R, S)),
}


def flavour_of(number: int, only: str | None) -> str:
    return only or _ROTATION[number % len(_ROTATION)]


def plan(rng: random.Random, tasks: int, flavour: str) -> list[Kill]:
    """Kills in the order of their moments; some in quick succession."""
    kills: list[Kill] = []
    if flavour in ("controller", "mixed", POSTGRES) and rng.random() < 0.5:
        kills.append(_at_once(rng))
    moments = sorted(_moment(rng, tasks) for _ in range(rng.randint(3, 6) * (2 if flavour == "task" else 1)))
    for _, when, count, delay_s in moments:
        targets = rng.choice(_CHOICES[flavour])
        kills.append(Kill(targets, when, count, delay_s, _pause(rng)))
        while C in targets and rng.random() < 0.4:  # the next controller is killed while it begins
            kills.append(_at_once(rng))
    if flavour in ("controller", "mixed", POSTGRES) and rng.random() < 0.5:
        choices = {"controller": ((C,),), POSTGRES: ((C,), (D,), (N,))}
        targets = rng.choice(choices.get(flavour, ((C,), (C, R), (R,))))
        kills.append(Kill(targets, When.COMPLETED, tasks, rng.choice((0.0, 0.0, rng.uniform(0.0, 0.01))), _pause(rng)))
    return kills


def _moment(rng: random.Random, tasks: int) -> tuple[float, When, int, float]:
    """With its place in the round first, to sort by."""
    kind = rng.random()
    if kind < 0.15:  # the very end
        count = tasks - rng.randint(0, 6)
        return count + 0.5, When.ENDS, count, rng.uniform(0.0, 0.25)
    if kind < 0.30:  # while a result is on its way from the task to the store
        count = rng.randint(1, tasks)
        return count, When.ENDS, count, rng.uniform(0.0, 0.03)
    if kind < 0.45:  # while its files are on their way to their folder
        count = rng.randint(1, tasks - 1)
        return count, When.COLLECTING, count, rng.choice((0.0, rng.uniform(0.0, 0.005)))
    if kind < 0.55:  # the first ones
        count = rng.randint(1, 8)
        return count, When.STARTS, count, rng.uniform(0.0, 0.05)
    count = rng.randint(1, tasks)
    return count - 8.0, When.STARTS, count, rng.uniform(0.0, 0.25)


def _at_once(rng: random.Random) -> Kill:
    return Kill((C,), When.UP, 0, rng.uniform(0.0, 0.7), _pause(rng))


def _pause(rng: random.Random) -> float:
    return rng.choice((0.0, 0.0, rng.uniform(0.0, 0.2), rng.uniform(0.2, 1.0)))
