"""Runs of several users on one machine with a few slots: real controllers, a real runner, real tasks; and who had how much of it."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec

from evalfleet.core.shares.quota import ShareRule
from evalfleet.model import Attempt, Ownership, Policy, TaskSpec
from evalfleet.store.open import open_reader, open_store


class Work(NamedTuple):
    """A run to submit."""

    user: str
    tasks: int
    sleep_s: float = 0.5
    project: str = ""
    priority: int = 0
    workers: int = 16


class Played(NamedTuple):
    """What became of a run."""

    work: Work
    attempts: list[Attempt]
    waits: list[str]  # why it waited, as its events say

    def slot_s(self, begin: float, end: float) -> float:
        """Slot time within a span."""
        spans = [(max(begin, one.claimed_at), min(end, one.ended_at or end)) for one in self.attempts]
        return sum(max(0.0, until - since) for since, until in spans)

    @property
    def begun(self) -> float:
        return min(one.claimed_at for one in self.attempts)

    @property
    def last_claim(self) -> float:
        return max(one.claimed_at for one in self.attempts)


def play(folder: Path, slots: int, *works: Work, rules: tuple[ShareRule, ...] = ()) -> list[Played]:
    """Submit all, let each have a controller, and wait for the end."""
    home = folder / "home"
    with closing(open_store(home)) as store:
        for rule in rules:
            store.shares.set_rule(rule)
        runs = [_submit(store, work, folder) for work in works]
    environ = {
        **os.environ,
        "EVALFLEET_LOCAL_SLOTS": str(slots),
        "EVALFLEET_SLOT_LOCKS": str(folder / "slots"),
        "EVALFLEET_BREAKER_SLOW_START": "1000",
    }
    command = [sys.executable, "-m", "evalfleet", "resume", "--home", str(home)]
    driven = [
        subprocess.Popen([*command, run], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for run in runs
    ]
    try:
        for process in driven:
            _, said = process.communicate(timeout=300)
            assert process.returncode == 0, said
    finally:
        for process in driven:
            process.kill()
            process.communicate()
    reader = open_reader(home)
    assert reader is not None
    with closing(reader):
        return [_played(reader, work, run) for work, run in zip(works, runs, strict=True)]


def _submit(store, work: Work, folder: Path) -> str:
    policy = Policy(workers=work.workers, priority=work.priority)
    specs = [
        TaskSpec(key=f"t_{number}", domain="t", command=("sleep", str(work.sleep_s))) for number in range(work.tasks)
    ]
    whose = Ownership(owner=work.user, project=work.project)
    environ = {"PATH": os.environ["PATH"]}
    return store.runs.submit(work.user, policy, specs, folder=str(folder), base_env=environ, ownership=whose).id


def _played(reader, work: Work, run: str) -> Played:
    waits = [str(event.data["reason"]) for event in reader.events.workers(run) if event.type == "worker.awaited"]
    return Played(work, reader.attempts.all(run), waits)


def while_all_wanted(*played: Played) -> tuple[float, float]:
    """From when all had begun to when the first had no task left to start."""
    return max(one.begun for one in played), min(one.last_claim for one in played)


def parts(*played: Played, first: tuple[Played, ...] = ()) -> list[float]:
    """The part of the slot time that each had, while all wanted some; or while those did that go `first`, before which another one
    may not begin at all."""
    begin, end = while_all_wanted(*(first or played))
    had = [one.slot_s(begin, end) for one in played]
    return [one / sum(had) for one in had]


def told(*played: Played) -> str:
    """For a person who reads the figures."""
    rows = [
        {"work": one.work._asdict(), "attempts": len(one.attempts), "waits": one.waits[:3], "events": len(one.waits)}
        for one in played
    ]
    return msgspec.json.format(msgspec.json.encode(rows)).decode()
