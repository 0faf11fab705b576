"""A run on tiers whose hosts are not there: each tier is a fleet that a test changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import msgspec
from tests.support.engine_play import QUICK, Play, opened
from tests.support.fake_backend import FakeBackend
from tests.support.fake_fleet import FakeFleet

from evalfleet import config
from evalfleet.engine.settings import EngineSettings
from evalfleet.engine.supervisor import Supervisor
from evalfleet.layout import Home
from evalfleet.model import Event, Pool
from evalfleet.pools.kinds import registry
from evalfleet.pools.kinds.tiers import KIND as TIERS
from evalfleet.pools.tiers.fleet import TieredFleet
from evalfleet.store.pools.queries import pool_subject
from evalfleet.store.store import Store

MAIN = "main"


class ToyKind:
    """A plug-in's kind. Its fleets are made by a test."""

    name, title, creates_machines, options = "toy", "Toys", False, ()
    fleets: ClassVar[dict[str, FakeFleet]] = {}

    def hosts(self, pool: Pool, rows: Sequence[object]) -> tuple[()]:
        return ()

    def slots(self, pool: Pool) -> int:
        return pool.settings["slots"]

    def fleet(self, _settings: Any, _store: Any, pool: Pool, *_: Any) -> FakeFleet:
        return self.fleets[pool.name]


TOY = ToyKind()


@contextmanager
def toys() -> Iterator[None]:
    with mock.patch.dict(registry.BUILT_IN, {"toy": f"{__name__}:TOY"}), mock.patch.dict(TOY.fleets, clear=True):
        yield


def make_tiers(store: Store, tiers: Mapping[str, int], **settings: Any) -> None:
    """A pool `main` of tiers with so many workers each."""
    for name, slots in tiers.items():
        store.pools.create(name, "toy", {"slots": slots})
    wanted = {"tiers": list(tiers), "cool_down": 0.2, "start_timeout": 5.0, **settings}
    TIERS.join(store, store.pools.create(MAIN, "tiers", wanted))


class TierPlay(Play):
    """A run on the pool `main`, whose tiers have these hosts."""

    def __init__(
        self,
        home: Path,
        tasks: int,
        tiers: Mapping[str, Sequence[FakeBackend]],
        settings: Mapping[str, Any] | None = None,
        **policy: Any,
    ) -> None:
        super().__init__(home, tasks, *[host for some in tiers.values() for host in some], pool=MAIN, **policy)
        capacity = {name: sum(host.slots or 0 for host in some) for name, some in tiers.items()}
        make_tiers(self.store, capacity, **(settings or {}))
        self.fleets = {name: FakeFleet(*some) for name, some in tiers.items()}
        TOY.fleets.update(self.fleets)
        self.settings: EngineSettings = QUICK
        self.tiered: TieredFleet | None = None

    async def drive(self) -> None:
        machine = config.load(str(self.home))
        patient = msgspec.structs.replace(machine.lease, give_up_s=1.0)
        machine = msgspec.structs.replace(machine, lease=patient)
        pool = self.store.pools.get(MAIN)
        self.tiered = TieredFleet(
            machine, self.store, pool, self.run, "a test", lambda said: self.notices.append(str(said))
        )
        self.supervisor = Supervisor(
            store=self.store,
            home=Home(self.home),
            fleet=self.tiered,
            run=self.run,
            settings=self.settings,
            secrets=lambda _: {},
            notice=self.notices.append,
        )
        self.ending = await self.supervisor.drive()

    def moves(self) -> list[tuple[str, str]]:
        """What was told of tiers, oldest first."""
        return [(event.type, event.data["tier"]) for event in self.pool_events() if event.type.startswith("tier.")]

    def pool_events(self) -> list[Event]:
        with opened(self.home) as reader:
            return reader.events.of_run(pool_subject(MAIN))

    async def told(self, event: str, tier: str) -> None:
        await self.until(lambda: (event, tier) in self.moves(), f"{event} of {tier}")
