"""Ten controllers, each a process, claim for one user at once: the quota holds to the attempt, on both databases."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.postgres import Server
from tests.support.store import cases

from evalfleet.core.shares.quota import ShareRule, Subject
from evalfleet.model import Ownership
from evalfleet.store.open import open_store

CONTROLLERS, TASKS, QUOTA = 10, 8, 23


def race(home: Path) -> list[int]:
    whose = Ownership(owner="alice")
    with closing(open_store(home)) as store:
        store.shares.set_rule(ShareRule(subject=Subject.USER, name="alice", running=QUOTA))
        runs = [cases.submit(store, TASKS, ownership=whose).id for _ in range(CONTROLLERS)]
    command = [sys.executable, "-m", "tests.support.claim_race", str(home)]
    racers = [
        subprocess.Popen([*command, run, str(TASKS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for run in runs
    ]
    try:
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        return [int(racer.communicate(timeout=120)[0]) for racer in racers]
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_quota_holds_to_the_attempt(database: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if database == "sqlite":
        home = tmp_path / "home"
        made = race(home)
    else:
        server: Server = request.getfixturevalue("postgres")
        with server.home(tmp_path / "home") as home:
            made = race(home)
    assert sum(made) == QUOTA
