"""What a pilot tells of itself in its box: hello, beats, bye. Everything is verified."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import anyio
import msgspec
from msgspec import Struct, field

from evalfleet.hosts.mailbox.carrier import Carrier
from evalfleet.hosts.mailbox.stream import insist
from evalfleet.model import JsonObject
from evalfleet.pilot import names
from evalfleet.pilot.keys import BadSignature, PublicIdentity, read_introduction, read_signed

FRESH_S = 75.0  # two beats and a little
_LOOK_S = 2.0


class PilotFacts(Struct, frozen=True, kw_only=True):
    """What is pinned of a pilot when it is first seen; kept in the host's facts."""

    identity: str  # public
    generation: int
    slots: int = 1
    started_at: float = 0.0
    facts: JsonObject = field(
        default_factory=dict[str, object]
    )  # of the node: cpus, memory_mb, gpus, kvm, docker, images


class Beat(Struct, frozen=True, kw_only=True):
    """The newest sign of life."""

    number: int
    generation: int
    at: float  # by the node's clock
    started_at: float
    live: int = 0  # attempts that run
    waiting: int = 0  # ended attempts that are not uploaded yet
    notice: str | None = None  # why the node is taken away
    reads: int = 0  # requests of the pilot since its start; writes include lists
    writes: int = 0
    controllers_reads: int = 0  # of all controllers, as they told the pilot
    controllers_writes: int = 0


class Bye(Struct, frozen=True, kw_only=True):
    """The last word of a pilot."""

    generation: int
    at: float
    reason: str


_S = TypeVar("_S", PilotFacts, Beat, Bye)


class PilotView:
    """Reads a pilot's documents from its box. Methods raise CarrierError, and BadSignature for a forged document."""

    def __init__(self, carrier: Carrier, generation: int, known: PilotFacts | None = None) -> None:
        """
        Args:
            known: the pinned facts. A pilot with another identity is refused.
        """
        self._carrier = carrier
        self._generation = generation
        self._known = known

    async def hello(self, token: str) -> PilotFacts | None:
        """The facts of the pilot; None if it has not said hello yet."""
        data = await self._carrier.get(names.HELLO)
        if data is None:
            return None
        found = _convert(read_introduction(token, data), PilotFacts)
        if found.generation != self._generation:
            raise BadSignature(f"this hello belongs to generation {found.generation}, not {self._generation}")
        if self._known is not None and found.identity != self._known.identity:
            raise BadSignature("another pilot says hello in this box than the one that was pinned")
        PublicIdentity(found.identity)
        self._known = found
        return found

    async def beat(self) -> Beat | None:
        """The newest beat; None if there is none. Needs the pinned facts."""
        return await self._signed(names.BEAT, "beat", Beat)

    async def bye(self) -> Bye | None:
        """The last word; None while the pilot lives, or if it died without one."""
        return await self._signed(names.BYE, "bye", Bye)

    async def is_alive(self, wait_s: float = FRESH_S, now: Callable[[], float] = time.time) -> bool:
        """Whether the pilot beats. A node's clock may be wrong, so that an old beat is given time to change."""
        deadline = anyio.current_time() + wait_s
        first: Beat | None = None
        while True:
            beat = await insist(self.beat, wait_s)
            if beat is not None:
                if abs(now() - beat.at) < FRESH_S or (first is not None and beat.number != first.number):
                    return True
                first = first or beat
            if anyio.current_time() >= deadline:
                return False
            await anyio.sleep(min(_LOOK_S, max(0.0, deadline - anyio.current_time())))

    async def _signed(self, name: str, kind: str, shape: type[_S]) -> _S | None:
        data = await self._carrier.get(name)
        if data is None or self._known is None:
            return None
        found = _convert(read_signed(PublicIdentity(self._known.identity), kind, data), shape)
        if found.generation != self._generation:
            raise BadSignature(f"this {kind} belongs to another generation")
        return found


def _convert(fields: JsonObject, shape: type[_S]) -> _S:
    try:
        return msgspec.convert(fields, shape)
    except msgspec.ValidationError as error:
        raise BadSignature(f"a document of the pilot is not valid: {error}") from error
