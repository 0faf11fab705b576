"""The boxes and pilots of a pool's machines that cannot be called."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import msgspec

from evalfleet.core.hosts.health import OtherWay
from evalfleet.hosts.base import CanarySpec, Departure
from evalfleet.hosts.mailbox.backend import MailboxBackend, MailboxHostSpec, MailboxSettings
from evalfleet.hosts.mailbox.boxes import Boxes
from evalfleet.hosts.mailbox.carrier import Carrier
from evalfleet.hosts.mailbox.home_key import home_identity
from evalfleet.hosts.mailbox.pilot_files import pilot_start, put_pilot
from evalfleet.hosts.mailbox.pilot_view import PilotFacts
from evalfleet.layout import Home
from evalfleet.model import PoolHost
from evalfleet.pilot.carrier import CarrierError
from evalfleet.pools.cloud.problems import Action, Cause, Problem, Refusal
from evalfleet.pools.cloud.protocol import CloudProvider
from evalfleet.pools.cloud.records import Pilot
from evalfleet.pools.machine.facts import facts_of
from evalfleet.pools.machine.reach import SYSTEM_MB

AskCloud: TypeAlias = Callable[[str], Awaitable[OtherWay | None]]
BOX_S = 6.5 * 86400  # a signed address of a box is valid for a week at most; the cloud's deadline ends a pilot earlier


class Mailbox:
    """The boxes of one pool. Methods raise Refusal where the storage does not do as it is asked."""

    def __init__(self, boxes: Boxes, home: Home) -> None:
        self._boxes = boxes
        self._home = home

    async def prepare(self, name: str, generation: int, slots: int, now: float) -> tuple[str, Pilot]:
        """Make the box of a machine that is about to be asked for, with the program in it. May be done again.

        Returns where the box is, and how its pilot is started.
        """
        async with _storage():
            box = await self._boxes.open(name, generation, now + BOX_S)
            await put_pilot(self._boxes.carrier(box.address))
        identity = home_identity(self._home)
        token = identity.token(name, generation)
        start = pilot_start(box, controller=identity.public.text, token=token, slots=slots)
        return box.address, Pilot(command=start.command, secrets=start.secrets)

    async def delete(self, name: str, tries: int) -> None:
        """Delete the boxes of all tries to make a machine."""
        async with _storage():
            for number in range(1, tries + 1):
                await self._boxes.delete(name, number)

    async def delete_all(self) -> None:
        """Delete all boxes of this home and pool, also those that no row remembers: its machines are gone."""
        async with _storage():
            for address in await self._boxes.list():
                await self._boxes.delete_at(address)

    def carrier(self, address: str) -> Carrier:
        """The way into a box."""
        return self._boxes.carrier(address)

    def backend(
        self,
        provider: CloudProvider,
        row: PoolHost,
        slots: int,
        ask: AskCloud,
        *,
        canary: bool = False,
        left: Departure | None = None,
    ) -> PilotBackend:
        """The machine as a run uses it, or its box alone.

        Args:
            ask: as of `CloudBackend`.
            left: why the machine is gone; None: it is there.
        """
        facts = facts_of(row)
        assert facts.box is not None
        memory_gb = provider.memory_gb(facts.size)
        spec = MailboxHostSpec(
            name=row.name,
            generation=facts.generation,
            slots=slots,
            memory_mb=int(memory_gb * 1024) - SYSTEM_MB if memory_gb else None,
            price_usd_per_hour=row.usd_per_hour,
        )
        known = None if facts.pilot is None else msgspec.convert(facts.pilot, PilotFacts)
        settings = MailboxSettings(watch_eviction=True, canary=CanarySpec() if canary else None)
        return PilotBackend(self._home, spec, self._boxes.carrier(facts.box), known, settings, ask, left)


class PilotBackend(MailboxBackend):
    """Implements `Backend`. Before the beats of a silent machine are read, the cloud says whether it is still there.

    A machine that is gone is silent as long as its box may hold results: the pool's controller finds out, too, and then the fleet
    offers the box alone.
    """

    def __init__(
        self,
        home: Home,
        spec: MailboxHostSpec,
        carrier: Carrier,
        known: PilotFacts | None,
        settings: MailboxSettings,
        ask: AskCloud,
        left: Departure | None = None,
    ) -> None:
        super().__init__(home, spec, carrier, known, settings, is_gone=lambda: left)
        self._ask = ask

    async def ask_otherwise(self) -> OtherWay:
        said = await self._ask(self.name)
        if said is None:
            return await super().ask_otherwise()
        return OtherWay.SILENT if await self.may_hold_results() else said


@asynccontextmanager
async def _storage() -> AsyncGenerator[None]:
    try:
        yield
    except CarrierError as error:
        said = f"the storage of the boxes: {error}"
        raise Refusal(Problem(cause=Cause.SERVER, action=Action.WAIT, message=said, wait_s=2.0)) from error
