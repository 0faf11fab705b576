"""A run on a fleet whose hosts come and go, for tests of the engine to play with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar

import anyio
from msgspec.structs import replace
from tests.support.fake_backend import FakeBackend
from tests.support.fake_fleet import FakeFleet

from evalfleet.core.breaker import Limits
from evalfleet.core.hosts.health import OtherWay, Patience
from evalfleet.engine.controller import take
from evalfleet.engine.settings import EngineSettings
from evalfleet.engine.supervisor import Ending, Supervisor
from evalfleet.layout import Home
from evalfleet.model import Attempt, Event, Policy, Requests, Run, RunState, TaskSpec, TaskState
from evalfleet.store.open import open_reader, open_store
from evalfleet.store.reader import StoreReader

QUICK = EngineSettings(
    lease_s=0.3,
    ping_s=0.02,
    reconnect_s=0.01,
    audit_age_s=0.05,
    farewell_s=5.0,
    last_look_s=0.2,
    breaker=Limits(probe_base_s=0.02, slow_start=100),
    patience=Patience(quiet_s=0.05, give_up_s=0.3, reconnects=2),
)
# For tests in which nobody may be given up for his silence, however slow the machine that they run on.
PATIENT = replace(QUICK, lease_s=60.0, patience=Patience(quiet_s=0.05, give_up_s=60.0, reconnects=2))


def host(name: str, slots: int = 1, **fields: object) -> FakeBackend:
    made = FakeBackend(name, slots=slots, **fields)  # pyright: ignore[reportArgumentType]
    made.other_way = OtherWay.SILENT
    return made


@contextmanager
def opened(home: Path) -> Iterator[StoreReader]:
    reader = open_reader(home)
    assert reader is not None
    yield reader
    reader.close()


async def until(condition: Callable[[], object], what: str, told: Callable[[], object] = str) -> None:
    """Wait until it holds; `told` is asked what to add to the complaint if it never does."""
    with anyio.move_on_after(60) as scope:
        while not condition():  # noqa: ASYNC110 - conditions are of all kinds
            await anyio.sleep(0.005)
    assert not scope.cancelled_caught, f"waited for {what} {told()}"


P = TypeVar("P", bound="Play")


class Watched:
    """A run that is driven in the background, and what its store tells of it."""

    home: Path
    run: Run

    async def until(self, condition: Callable[[], object], what: str) -> None:
        await until(condition, what, self.types)

    def attempts(self) -> list[Attempt]:
        with opened(self.home) as reader:
            return reader.attempts.all(self.run.id)

    def events(self) -> list[Event]:
        with opened(self.home) as reader:
            return reader.events.of_run(self.run.id, limit=10_000)

    def types(self) -> list[tuple[str, object]]:
        return [(event.type, event.data.get("host")) for event in self.events()]


class Play(Watched):
    """A run of tasks that end when a test says so, on a fleet that a test changes."""

    def __init__(
        self,
        home: Path,
        tasks: int,
        *hosts: FakeBackend,
        program: str = "sleep",
        memory_mb: int = 0,
        **policy: object,
    ) -> None:
        self.home = home
        self.store = open_store(home)
        asked = Requests(memory_mb=memory_mb)
        specs = [
            TaskSpec(key=f"t_{number}", domain="t", command=(program,), requests=asked)
            for number in range(1, tasks + 1)
        ]
        wanted = Policy(**{"workers": 8, "retry_base_s": 0.01, **policy})  # pyright: ignore[reportArgumentType]
        self.run = take(self.store, self.store.runs.submit("x", wanted, specs, folder="/", base_env={}))
        self.fleet = FakeFleet(*hosts)
        self.hosts = list(hosts)
        self.notices: list[str] = []
        self.settings = PATIENT
        self.ending: Ending | None = None
        self.supervisor: Supervisor | None = None

    def add(self, backend: FakeBackend) -> None:
        self.hosts.append(backend)
        self.fleet.add(backend)

    async def drive(self) -> None:
        self.supervisor = Supervisor(
            store=self.store,
            home=Home(self.home),
            fleet=self.fleet,
            run=self.run,
            settings=self.settings,
            secrets=lambda _: {},
            notice=self.notices.append,
        )
        self.ending = await self.supervisor.drive()

    async def launched(self, backend: FakeBackend, count: int = 1) -> None:
        await self.until(lambda: len(backend.launched) >= count, f"{count} launches on {backend.name}")

    async def finish(self) -> None:
        """End whatever runs until the run is over."""
        with anyio.fail_after(60):
            while self.ending is None:
                for backend in self.hosts:
                    end_all(backend)
                await anyio.sleep(0.005)

    async def said(self, event: str, backend: FakeBackend) -> None:
        await self.until(lambda: (event, backend.name) in self.types(), f"{event} of {backend.name}")

    def assert_all_ok(self) -> None:
        with opened(self.home) as reader:
            assert reader.runs.get(self.run.id).state is RunState.COMPLETED
            assert {task.state for task in reader.tasks.all(self.run.id)} == {TaskState.DONE}
            assert all(task.consumed <= 1 for task in reader.tasks.all(self.run.id))


def end_all(backend: FakeBackend) -> None:
    for attempt_id, attempt in list(backend.attempts.items()):
        if attempt.live:
            backend.end(attempt_id)


@asynccontextmanager
async def played(play: P, settings: EngineSettings = PATIENT) -> AsyncIterator[P]:
    play.settings = settings
    async with anyio.create_task_group() as group:
        group.start_soon(play.drive)
        yield play
        await play.until(lambda: play.ending is not None, "the end")
    play.store.close()
