"""A session with a pilot as a byte stream, so that the runner's protocol works through a box as over a socket."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

import anyio
from anyio.abc import ByteStream

from evalfleet.errors import HostUnreachable
from evalfleet.hosts.mailbox.carrier import Carrier
from evalfleet.pilot import names
from evalfleet.pilot.carrier import BoxClosed, CarrierError
from evalfleet.pilot.frames import FRAME_BYTES, BadFrame, Frame, Receiver, Sender
from evalfleet.pilot.keys import BadSignature, Identity, Offer, PublicIdentity, SessionKeys

REPLY_S = 60.0
KEEP_S = 60.0  # between frames of a session without messages, so that the pilot knows that its controller lives
RETRY_S = (0.1, 2.0)  # between tries, first and longest
OUTAGE_S = 100.0  # a carrier that fails for so long breaks the stream; the next connection goes on
CLOSE_S = 1.5
TALK_S = 3.0  # after a message its answer is looked for quickly

T = TypeVar("T")


class MailboxStream(ByteStream):
    """Implements anyio's `ByteStream`. `serve` must run beside its users."""

    def __init__(self, carrier: Carrier, session: int, keys: SessionKeys) -> None:
        self._carrier = carrier
        self._in, self._out = names.from_pilot(session), names.to_pilot(session)
        self._sender = Sender(keys.to_pilot, keys.to_pilot_acks)
        self._receiver = Receiver(keys.from_pilot, keys.from_pilot_acks)
        self._arrived: deque[bytes] = deque()
        self._outgoing: deque[bytes] = deque()
        self._changed = anyio.Event()  # for `receive`
        self._wake = anyio.Event()  # for `serve`
        self._is_over = False
        self._is_closed = False
        self._problem: Exception | None = None
        self._busy = False
        self._talked_at = anyio.current_time()
        self._put_at = anyio.current_time()

    async def receive(self, max_bytes: int = 65536) -> bytes:
        while not self._arrived:
            if self._problem is not None:
                raise anyio.BrokenResourceError from self._problem
            if self._is_closed:
                raise anyio.ClosedResourceError
            if self._is_over:
                raise anyio.EndOfStream
            await self._changed.wait()
        data = self._arrived.popleft()
        if len(data) > max_bytes:
            self._arrived.appendleft(data[max_bytes:])
        return data[:max_bytes]

    async def send(self, item: bytes) -> None:
        """Queue bytes; they are put into the box at once. Waits while too much is on its way."""
        for start in range(0, len(item), FRAME_BYTES):
            while len(self._outgoing) >= 4 and not self._ended():
                await self._changed.wait()
            if self._problem is not None:
                raise anyio.BrokenResourceError from self._problem
            if self._ended():
                raise anyio.ClosedResourceError
            self._outgoing.append(item[start : start + FRAME_BYTES])
            self._talk()

    async def send_eof(self) -> None:
        raise NotImplementedError("a session is closed in both directions at once")

    async def aclose(self) -> None:
        """Tell the pilot, if the carrier works; otherwise the pilot notices the silence."""
        if self._is_closed:
            return
        self._is_closed = True
        self._tell()
        with anyio.move_on_after(CLOSE_S), suppress(CarrierError):
            if not self._is_over and self._problem is None:
                await self._put(b"", closes=True)

    async def serve(self) -> None:
        """Carry frames in both directions until the session ends. Never raises; `receive` says why it ended."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._write_all)
                await self._read_all()
                group.cancel_scope.cancel()
        except* (CarrierError, BadSignature) as bundle:
            self._problem = bundle.exceptions[0]
        finally:
            self._is_over = True
            self._tell()

    async def _read_all(self) -> None:
        pauses = self._carrier.pace.start()
        while True:
            number = self._receiver.next
            data = await self._insist(lambda number=number: self._carrier.get(names.frame(self._in, number)))
            frame = None
            if data is not None:
                with suppress(BadFrame):  # as good as missing: the pilot puts it again
                    frame = self._receiver.take(data, anyio.current_time())
            if frame is not None:
                pauses.found()
                self._busy = frame.busy
                await self._insist(lambda number=number: self._carrier.delete([names.frame(self._in, number)]))
                if frame.payload:
                    self._arrived.append(frame.payload)
                    self._tell()
                if frame.closes:
                    return
            await self._acknowledge()
            if frame is None:
                talks = anyio.current_time() - self._talked_at < TALK_S
                if talks:
                    pauses.found()
                with anyio.move_on_after(pauses.next(busy=self._busy or talks)):
                    await self._wake.wait()

    async def _write_all(self) -> None:
        while True:
            now = anyio.current_time()
            if self._sender.asks(now):
                await self._again()
            if self._outgoing and self._sender.has_room:
                data = self._outgoing.popleft()
                self._tell()
                await self._put(data)
                self._talk()
                continue
            if now - self._put_at >= KEEP_S:
                await self._put(b"")
            wait_s = self._carrier.pace.quick_s if self._outgoing else 1.0
            with anyio.move_on_after(wait_s):
                await self._changed.wait()

    async def _put(self, data: bytes, *, closes: bool = False) -> None:
        self._put_at = anyio.current_time()
        reads, writes = self._carrier.traffic.unreported()
        frame = Frame(data, closes=closes, reads=reads, writes=writes)
        number, sealed = self._sender.seal(frame, self._put_at)
        await self._insist(lambda: self._carrier.put(names.frame(self._out, number), sealed))

    async def _again(self) -> None:
        """Read how far the pilot is, and put what it seems to lack once more."""
        self._sender.acknowledge(await self._insist(lambda: self._carrier.get(names.ack(self._out))))
        for number, sealed in self._sender.overdue(anyio.current_time()):
            await self._insist(
                lambda number=number, sealed=sealed: self._carrier.put(names.frame(self._out, number), sealed)
            )

    async def _acknowledge(self) -> None:
        told = self._receiver.ack(anyio.current_time())
        if told is not None:
            await self._insist(lambda: self._carrier.put(names.ack(self._in), told))
            self._receiver.acked(anyio.current_time())

    async def _insist(self, call: Callable[[], Awaitable[T]]) -> T:
        return await insist(call, OUTAGE_S)

    def _ended(self) -> bool:
        return self._is_over or self._is_closed or self._problem is not None

    def _talk(self) -> None:
        self._talked_at = anyio.current_time()
        self._wake.set()
        self._wake = anyio.Event()
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


async def insist(call: Callable[[], Awaitable[T]], limit_s: float) -> T:
    """Call until the carrier works. Raises CarrierError after `limit_s` of failures, BoxClosed at once."""
    deadline = anyio.current_time() + limit_s
    pause_s, longest_s = RETRY_S
    while True:
        try:
            return await call()
        except BoxClosed:
            raise
        except CarrierError:
            if anyio.current_time() > deadline:
                raise
            await anyio.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)


@asynccontextmanager
async def open_session(
    carrier: Carrier,
    controller: Identity,
    pilot: PublicIdentity,
    generation: int,
    purpose: str,
    limit_s: float = REPLY_S,
) -> AsyncGenerator[MailboxStream]:
    """Hold a session with the pilot inside the block.

    Args:
        purpose: `runner` for a connection to the node's runner, `control` for one to the pilot itself.

    Raises HostUnreachable where the carrier fails, or the pilot does not reply in time.
    """
    offer = Offer(controller, pilot, generation, purpose)
    try:
        tried: list[int] = []
        session = await insist(lambda: _put_offer(carrier, offer, tried), limit_s)
        keys = await _reply(carrier, offer, session, limit_s)
    except (CarrierError, BadSignature) as error:
        raise HostUnreachable(f"its box: {error}") from error
    stream = MailboxStream(carrier, session, keys)
    async with anyio.create_task_group() as group:
        group.start_soon(stream.serve)
        try:
            yield stream
        finally:
            with anyio.CancelScope(shield=True):
                await stream.aclose()
            group.cancel_scope.cancel()


async def _put_offer(carrier: Carrier, offer: Offer, tried: list[int]) -> int:
    """Take the next number of a session. Numbers in `tried` may have been taken by us although the carrier reported a failure."""
    while True:
        for session in tried:
            if await carrier.get(names.opened(session)) == offer.document(session):
                return session
        found = await carrier.list(names.OPEN)
        session = max((names.session_of(name) for name, _ in found), default=0) + 1
        tried.append(session)
        with suppress(FileExistsError):  # another controller has it
            await carrier.put(names.opened(session), offer.document(session), new=True)
            return session


async def _reply(carrier: Carrier, offer: Offer, session: int, limit_s: float) -> SessionKeys:
    name = names.reply(session)
    pauses = carrier.pace.start()
    deadline = anyio.current_time() + limit_s
    while anyio.current_time() < deadline:
        data = await insist(lambda: carrier.get(name), limit_s)
        if data is not None:
            keys = offer.keys(session, data)
            await insist(lambda: carrier.delete([name]), limit_s)
            return keys
        await anyio.sleep(min(pauses.next(busy=True), max(0.0, deadline - anyio.current_time())))
    raise CarrierError(f"its pilot has not answered for {limit_s:.0f} s")
