"""Backend for one node that cannot be called: its pilot and the controller exchange messages through a box.

The pilot outlives connections, and so does the runner behind it; the next session continues after the last event that was seen. When
the node is gone for good, what ended there is still read from the box.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
from msgspec import Struct, field

from evalfleet.core.hosts.health import OtherWay
from evalfleet.errors import BackendError, HostRefused, HostUnreachable, RunnerUnavailable
from evalfleet.hosts.access import name_in_errors
from evalfleet.hosts.base import CanarySpec, Departure, Host, HostInfo, Inbox, gpus_of, single_error
from evalfleet.hosts.mailbox.carrier import Carrier
from evalfleet.hosts.mailbox.home_key import home_identity
from evalfleet.hosts.mailbox.host import MailboxHost
from evalfleet.hosts.mailbox.left_host import LeftHost
from evalfleet.hosts.mailbox.pilot_view import FRESH_S, PilotFacts, PilotView
from evalfleet.hosts.mailbox.stream import insist, open_session
from evalfleet.hosts.mailbox.uploaded import UploadedAttempts
from evalfleet.hosts.protocol.link import PROTOCOL, OnEvents, RunnerLink
from evalfleet.hosts.protocol.runner_host import into
from evalfleet.hosts.remote.bulk_link import BulkLink
from evalfleet.hosts.remote.collect import CollectLimits
from evalfleet.hosts.remote.upload import FileSums
from evalfleet.layout import Home
from evalfleet.model import JsonObject
from evalfleet.pilot.carrier import BoxClosed, CarrierError
from evalfleet.pilot.keys import BadSignature, PublicIdentity

_ANSWER_S = 120.0
_OUTAGE_S = 30.0


class MailboxHostSpec(Struct, frozen=True, kw_only=True):
    """One node as a pool knows it."""

    name: str
    generation: int
    slots: int = 1
    memory_mb: int | None = None  # None: what the node has
    price_usd_per_hour: float = 0.0


class MailboxSettings(Struct, frozen=True, kw_only=True):
    """Settings that all hosts of a pool share."""

    watch_eviction: bool = False  # the runner asks the cloud's metadata service whether its machine is taken away
    canary: CanarySpec | None = None
    caps: CollectLimits = field(default_factory=CollectLimits)


class MailboxBackend:
    """Implements `Backend`."""

    is_remote = True

    def __init__(
        self,
        home: Home,
        spec: MailboxHostSpec,
        carrier: Carrier,
        known: PilotFacts | None = None,
        settings: MailboxSettings | None = None,
        *,
        pin: Callable[[PilotFacts], None] = lambda _: None,
        is_gone: Callable[[], Departure | None] = lambda: None,
    ) -> None:
        """
        Args:
            carrier: of the host's box, see `Boxes.carrier`.
            known: the facts of its pilot that were pinned; None if it has not been seen yet.
            pin: called once with the facts of a pilot that proved its token, to be kept with the host.
            is_gone: why the node is gone for good, as its cloud says; None while that is not certain.
        """
        self.name = spec.name
        self.slots = spec.slots
        self._settings = settings or MailboxSettings()
        self.canary = self._settings.canary
        self._claim = home.claim
        self._identity = home_identity(home)
        self._spec = spec
        self._carrier = carrier
        self._known = known
        self._pin = pin
        self._is_gone = is_gone
        self._view = PilotView(carrier, spec.generation, known)
        self._sums = FileSums()

    @asynccontextmanager
    async def acquire(self, run_id: str, epoch: int, inbox: Inbox) -> AsyncGenerator[Host]:
        with single_error():
            async with AsyncExitStack() as stack:
                with name_in_errors(self.name), single_error():
                    facts = await self.facts()
                    uploads = self._uploads(facts)
                    why = await self._gone()
                    if why is not None:
                        yield await self._left(facts, uploads, run_id, inbox, why)
                        return
                    link = await stack.enter_async_context(self._linked(facts, into(inbox)))
                    await self._introduce(link, run_id, epoch)
                    info = self._info(await _in_time(link, "inventory"))
                bulk = BulkLink(lambda: self._linked(facts, lambda _: None))
                group = await stack.enter_async_context(anyio.create_task_group())
                stack.callback(group.cancel_scope.cancel)
                group.start_soon(bulk.serve)
                yield MailboxHost(
                    link,
                    bulk,
                    group,
                    inbox,
                    info,
                    run_id,
                    epoch,
                    sums=self._sums,
                    caps=self._settings.caps,
                    python=None,
                    slots=self.slots,
                    claim=self._claim,
                    uploads=uploads,
                )

    async def facts(self) -> PilotFacts:
        """The pinned facts of the pilot. Raises HostUnreachable while it has not said hello, HostRefused for a forged one."""
        if self._known is None:
            try:
                token = self._identity.token(self.name, self._spec.generation)
                found = await insist(lambda: self._view.hello(token), _OUTAGE_S)
            except BadSignature as error:
                raise HostRefused(str(error)) from error
            except CarrierError as error:
                raise HostUnreachable(f"its box: {error}") from error
            if found is None:
                raise HostUnreachable("its pilot has not said hello yet")
            self._known = found
            self._pin(found)
        return self._known

    async def ask_otherwise(self) -> OtherWay:
        """Read the pilot's beats, which need no session."""
        try:
            with name_in_errors(self.name):
                await self.facts()
                gone = await self._gone()
                if gone is not None and not await self.may_hold_results():
                    return OtherWay.EVICTED if gone.cause == "preempted" else OtherWay.GONE
                if gone is not None:
                    return OtherWay.SILENT
                if await self._view.is_alive(FRESH_S):
                    return OtherWay.ALIVE
        except (BackendError, CarrierError, BadSignature):
            pass
        return OtherWay.SILENT

    async def may_hold_results(self) -> bool:
        """Whether ended attempts are in the box, or could be: it cannot be read now."""
        try:
            return bool(await self._uploads(await self.facts()).list())
        except BackendError as error:
            return isinstance(error.__cause__, CarrierError) and not isinstance(error.__cause__, BoxClosed)

    async def control(self, do: str, **fields: Any) -> JsonObject:
        """Send one command to the pilot itself: `ping`, `facts` (probed now), `reset`, `end`. Raises BackendError."""
        with name_in_errors(self.name), single_error():
            facts = await self.facts()
            async with self._session(facts, "control", lambda _: None) as link:
                return await _in_time(link, do, **fields)

    async def reset(self) -> None:
        await self.control("reset")

    async def release(self) -> None:
        """The pilot keeps its runner; the pool ends both with the node."""

    async def _gone(self) -> Departure | None:
        """Why the node is gone for good; None while that is not certain."""
        why = self._is_gone()
        if why is not None:
            return why
        try:
            bye = await insist(self._view.bye, _OUTAGE_S)
        except BadSignature:
            return None  # a forged one says nothing
        except CarrierError as error:
            raise HostUnreachable(f"its box: {error}") from error
        return None if bye is None else Departure(cause="preempted", message=f"its pilot has ended: {bye.reason}")

    async def _left(
        self, facts: PilotFacts, uploads: UploadedAttempts, run_id: str, inbox: Inbox, why: Departure
    ) -> LeftHost:
        """The host as far as it is in the box. Raises HostUnreachable where the box cannot be read, and where it holds nothing and
        only the pilot says that it has ended."""
        if not await uploads.list() and self._is_gone() is None:
            raise HostUnreachable(why.message)
        info = self._info({"memory_mb": facts.facts.get("memory_mb")})
        return LeftHost(info, run_id, inbox, uploads, self._settings.caps, why)

    async def _introduce(self, link: RunnerLink, run_id: str, epoch: int) -> None:
        """Raise the fence of the run."""
        await _in_time(link, "hello", protocol=PROTOCOL, notices=True, run=run_id, epoch=epoch, **self._claim)
        if self._settings.watch_eviction:
            await _in_time(link, "watch")

    def _uploads(self, facts: PilotFacts) -> UploadedAttempts:
        return UploadedAttempts(self._carrier, self._identity, PublicIdentity(facts.identity), self._spec.generation)

    def _linked(self, facts: PilotFacts, on_events: OnEvents) -> Any:
        return self._session(facts, "runner", on_events)

    @asynccontextmanager
    async def _session(self, facts: PilotFacts, purpose: str, on_events: OnEvents) -> AsyncGenerator[RunnerLink]:
        pilot = PublicIdentity(facts.identity)
        async with (
            open_session(self._carrier, self._identity, pilot, self._spec.generation, purpose) as stream,
            RunnerLink.connect(stream, on_events) as link,
        ):
            yield link

    def _info(self, inventory: JsonObject) -> HostInfo:
        return HostInfo(
            name=self._spec.name,
            memory_mb=self._spec.memory_mb or inventory.get("memory_mb"),
            gpus=len(inventory.get("gpus") or ()),
            price_usd_per_hour=self._spec.price_usd_per_hour / self._spec.slots,
            devices=gpus_of(self._spec.name, inventory.get("gpus") or ()),
        )


async def _in_time(link: RunnerLink, do: str, **fields: Any) -> JsonObject:
    with anyio.move_on_after(_ANSWER_S):
        return await link.request(do, **fields)
    raise RunnerUnavailable(f"its runner has not answered for {_ANSWER_S:.0f} s")
