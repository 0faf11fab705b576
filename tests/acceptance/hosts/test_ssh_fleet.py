"""Real SSH hosts that come and go while a run goes on."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from tests.support import sshd
from tests.support.fake_fleet import FakeFleet
from tests.support.fleet import wait_for

from evalfleet.core.hosts.health import Patience
from evalfleet.core.hosts.quarantine import Terms
from evalfleet.engine.controller import take
from evalfleet.engine.settings import EngineSettings
from evalfleet.engine.supervisor import Ending, Supervisor
from evalfleet.hosts.base import CanarySpec
from evalfleet.hosts.ssh.backend import SshBackend, SshSettings
from evalfleet.layout import Home
from evalfleet.model import Outcome, Policy, TaskSpec
from evalfleet.store.open import open_reader, open_store

pytestmark = pytest.mark.anyio

SETTINGS = EngineSettings(
    lease_s=5.0,
    ping_s=0.5,
    audit_age_s=2.0,
    quarantine=Terms(pause_s=0.5),
    patience=Patience(quiet_s=1.0, give_up_s=60.0),
)


@pytest.fixture
def boxes(tmp_path: Path) -> Iterator[tuple[sshd.Sshd, sshd.Sshd]]:
    with sshd.host(tmp_path, "one") as one, sshd.host(tmp_path, "two") as two:
        yield one, two


class Driven:
    def __init__(self, home: Path, fleet: FakeFleet, script: str, count: int, **policy: object) -> None:
        self.home = home
        self.store = open_store(home)
        tasks = [TaskSpec(key=f"t_{n}", domain="t", command=("sh", "-c", script)) for n in range(1, count + 1)]
        wanted = Policy(workers=count, breaker=False, **policy)  # pyright: ignore[reportArgumentType]
        self.run = take(self.store, self.store.runs.submit("x", wanted, tasks, folder=str(home), base_env={}))
        self.supervisor = Supervisor(
            store=self.store, home=Home(home), fleet=fleet, run=self.run, settings=SETTINGS, secrets=lambda _: {}
        )
        self.ending: Ending | None = None

    async def drive(self) -> None:
        self.ending = await self.supervisor.drive()

    async def until(self, condition: Callable[[], object], what: str) -> None:
        await anyio.to_thread.run_sync(wait_for, condition, what)

    def read(self, what: str) -> list[object]:
        reader = open_reader(self.home)
        assert reader is not None
        with contextlib.closing(reader):
            if what == "events":
                return [
                    (event.type, event.data.get("host")) for event in reader.events.of_run(self.run.id, limit=10_000)
                ]
            return [(attempt.host, attempt.outcome, attempt.started_at) for attempt in reader.attempts.all(self.run.id)]

    def running(self, host: str) -> int:
        attempts = self.store_attempts()
        return sum(where == host and outcome is None and since is not None for where, outcome, since in attempts)

    def store_attempts(self) -> list[tuple[str, Outcome | None, float | None]]:
        return self.read("attempts")  # pyright: ignore[reportReturnType]


@contextlib.asynccontextmanager
async def driven(one: Driven) -> AsyncIterator[Driven]:
    with anyio.fail_after(90):
        async with anyio.create_task_group() as group:
            group.start_soon(one.drive)
            yield one
    assert one.ending is Ending.SETTLED
    one.store.close()


def backend(home: Path, box: sshd.Sshd, *, canary: CanarySpec | None = None) -> SshBackend:
    made = SshBackend(Home(home), box.spec(slots=2), SshSettings(idle_s=60.0, known_hosts=()))
    made.canary = canary
    return made


async def test_a_host_that_comes_proves_itself_and_takes_its_share(boxes: tuple[sshd.Sshd, sshd.Sshd], home: Path):
    one, two = boxes
    fleet = FakeFleet()
    async with driven(Driven(home, fleet, "sleep 1", 6)) as run:
        await run.until(lambda: fleet.wanted == [6], "the fleet to hear what is wanted")
        fleet.add(backend(home, one))
        await run.until(lambda: run.running("one") == 2, "two attempts on the first host")
        fleet.add(backend(home, two, canary=CanarySpec()))
        await run.until(lambda: run.running("two"), "work on the second host")
    attempts = run.store_attempts()
    assert [outcome for _, outcome, _ in attempts] == [Outcome.OK] * 6
    assert {where for where, _, _ in attempts} == {"one", "two"}
    events = run.read("events")
    assert events.index(("worker.joined", "two")) < events.index(("worker.canary_passed", "two"))
    for box in boxes:
        assert not list((box.spool / "attempts").glob("*")), "nothing is left there, no canary either"


async def test_a_canary_that_fails_keeps_work_away_until_it_passes(boxes: tuple[sshd.Sshd, sshd.Sshd], home: Path):
    one, _ = boxes
    mark = one.home / "repaired"
    fleet = FakeFleet(backend(home, one, canary=CanarySpec(command=("test", "-e", str(mark)))))
    async with driven(Driven(home, fleet, "true", 2)) as run:
        await run.until(lambda: ("worker.canary_failed", "one") in run.read("events"), "a failed canary")
        assert run.store_attempts() == []
        mark.touch()
    assert [outcome for _, outcome, _ in run.store_attempts()] == [Outcome.OK] * 2
    assert ("worker.returned", "one") in run.read("events")
    assert "bad_exit" in fleet.blamed["one"]


async def test_what_ran_on_a_host_that_was_taken_away_runs_elsewhere(boxes: tuple[sshd.Sshd, sshd.Sshd], home: Path):
    one, two = boxes
    fleet = FakeFleet(backend(home, one), backend(home, two))
    async with driven(Driven(home, fleet, "sleep 2", 4, attempts=1)) as run:
        await run.until(lambda: run.running("one") == 2 and run.running("two") == 2, "work on both")
        two.stop()
        fleet.remove("two", "preempted")
        await run.until(lambda: ("worker.left", "two") in run.read("events"), "its leave")
    outcomes = [(where, str(outcome)) for where, outcome, _ in run.store_attempts()]
    assert sorted(outcomes) == [("one", "ok")] * 4 + [("two", "preempted")] * 2
    two.start()
