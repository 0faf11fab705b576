"""The controller's side of the runner's protocol, over any byte stream."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import anyio
import msgspec
from anyio.abc import ByteStream
from msgspec import Struct

from evalfleet.errors import RunnerRefused, RunnerUnavailable
from evalfleet.hosts.protocol.host_clock import HostClock, our_time
from evalfleet.hosts.protocol.messages import ProtocolViolation, check_answer, check_event, check_slots, moment
from evalfleet.model import JsonObject

PROTOCOL = 1
READ_BYTES = 1 << 18
WRITE_S = 60.0  # a runner that reads nothing for this long is stuck
MAX_LINE = 64 << 20  # an end record with a full result and manifest is far below

# How a runner begins the line of an event.
_EVENT = re.compile(
    rb'\{"attempt":"(?P<attempt>[\w.-]{1,128})","event":(?P<event>\d{1,9}),"at":(?P<at>\d+(?:\.\d+)?),'
    rb'"type":"(?P<type>\w+)"'
)

OnEvents: TypeAlias = Callable[[list[JsonObject]], None]


class CommandRefused(RunnerRefused):
    """The runner refused a request.

    Attributes:
        code: the protocol's word: bad_request, unknown_attempt, stale_epoch, expired, shutting_down,
            draining, io_error.
        errno: of an io_error, if the system gave one.
    """

    def __init__(self, code: str, message: str, errno: int | None = None) -> None:
        super().__init__(f"the runner refused: {message} ({code})")
        self.code = code
        self.errno = errno


class _Call(Struct):
    """Requests that are sent together and awaited together."""

    asked_at: float
    left: int
    answers: list[JsonObject]
    done: anyio.Event
    broken: str | None = None


class RunnerLink:
    """One connection to a runner.

    `request` and `send_many` may be called by any number of tasks at once; `serve` must run beside them. Once the stream breaks,
    every pending and later request raises `RunnerUnavailable`. A broken link is not repaired; open a new one.
    """

    def __init__(self, stream: ByteStream, on_events: OnEvents) -> None:
        """
        Args:
            stream: the link takes ownership.
            on_events: called in the reader's task with all events of one chunk, in order, with times by our clock. It must not block;
                an exception ends `serve`. Each event has passed `messages.check_event`.
        """
        self._stream = stream
        self._on_events = on_events
        self._writing = anyio.Lock(fast_acquire=True)
        self._next_id = 0
        self._calls: dict[int, tuple[_Call, int]] = {}
        self._broken: str | None = None
        self.gone = anyio.Event()  # set once the stream is of no use any more
        self._clock = HostClock()
        self.on_slots: Callable[[JsonObject], None] = lambda _: None  # called with the run's slots on the host
        self._preemption = ""
        self._preempted = anyio.Event()
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder(dict[str, Any]).decode

    @classmethod
    @asynccontextmanager
    async def connect(cls, stream: ByteStream, on_events: OnEvents) -> AsyncGenerator[RunnerLink]:
        """Open a link, with its own task for `serve`, inside the block. Leaving the block closes the stream.

        A broken stream does not cancel the block: requests raise, and `broken` says why.
        """
        link = cls(stream, on_events)
        async with anyio.create_task_group() as group:
            group.start_soon(link.serve)
            try:
                yield link
            finally:
                await link.aclose()
                group.cancel_scope.cancel()

    @property
    def broken(self) -> str | None:
        """Why the stream can no longer be used; None while it can."""
        return self._broken

    async def preemption_notice(self) -> str:
        """Wait for the preemption notice of the runner's machine; returns its text."""
        await self._preempted.wait()
        return self._preemption

    async def serve(self) -> None:
        """Read until the stream ends or breaks, then return. Raises only what `on_events` raises."""
        pieces: list[bytes] = []
        size = 0
        skips = False  # the rest of a line that is too long
        try:
            while True:
                data = await self._stream.receive(READ_BYTES)
                if skips:
                    _, newline, data = data.partition(b"\n")
                    skips = not newline
                end = data.rfind(b"\n") + 1
                if not end:
                    if skips or not data:
                        continue
                    pieces.append(data)
                    size += len(data)
                    if size > MAX_LINE:
                        if not self._do_without(b"".join(pieces)):  # the first ones may be of a few bytes
                            self._break("the runner sent a line that is too long")
                            return
                        pieces, size, skips = [], 0, True
                    continue
                whole = b"".join((*pieces, data[:end])) if pieces else data[:end]
                pieces, size = ([data[end:]], len(data) - end) if end < len(data) else ([], 0)
                self._take(whole)
        except anyio.EndOfStream:
            self._break("the runner closed the connection")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
            self._break(_words(error))
        except (msgspec.MsgspecError, ProtocolViolation) as error:
            self._break(_foreign(error))
        finally:
            self._break("the connection is no longer being read")

    async def request(self, do: str, **fields: Any) -> JsonObject:
        """Send one command and return its answer.

        Raises:
            Refusal: the runner refused it.
            RunnerUnavailable: the stream broke before the answer arrived. The command may have been carried out.
        """
        (answer,) = await self.send_many([{"do": do, **fields}])
        raise_refusal(answer)
        try:
            check_answer(do, answer)
        except ProtocolViolation as error:
            self._break(_foreign(error))
            raise RunnerUnavailable(_foreign(error)) from error
        return answer

    async def send_many(self, messages: Iterable[JsonObject]) -> list[JsonObject]:
        """Send several commands in one write. Returns their answers in order, including refusals (`ok` is false; see
        `raise_refusal`).

        Raises:
            RunnerUnavailable: as for `request`.
        """
        numbered = self._number(messages)
        if not numbered:
            return []
        call = _Call(asked_at=our_time(), left=len(numbered), answers=[{} for _ in numbered], done=anyio.Event())
        if self._broken is not None:
            raise RunnerUnavailable(self._broken)
        for place, message in enumerate(numbered):
            self._calls[message["id"]] = (call, place)
        try:
            data = b"\n".join([self._encode(message) for message in numbered]) + b"\n"
            await self._write(data)
            await call.done.wait()
        finally:
            for message in numbered:
                self._calls.pop(message["id"], None)
        if call.broken is not None:
            raise RunnerUnavailable(call.broken)
        return call.answers

    def their_time(self) -> float | None:
        """What the runner's clock shows now; None while its offset is unknown."""
        return self._clock.theirs(our_time())

    async def aclose(self) -> None:
        """Close the stream; pending requests raise."""
        self._break("the connection was closed")
        with anyio.CancelScope(shield=True), anyio.move_on_after(2):
            await self._stream.aclose()

    def _number(self, messages: Iterable[JsonObject]) -> Sequence[JsonObject]:
        first = self._next_id + 1
        numbered = [{"id": first + place, **message} for place, message in enumerate(messages)]
        self._next_id += len(numbered)
        return numbered

    async def _write(self, data: bytes) -> None:
        async with self._writing:
            if self._broken is not None:
                raise RunnerUnavailable(self._broken)
            try:
                # a line that is written in part would spoil all that follow: a cancelled caller waits until it is whole
                with anyio.fail_after(WRITE_S, shield=True):
                    await self._stream.send(data)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
                self._break(_words(error))
                raise RunnerUnavailable(self._broken) from error

    def _do_without(self, beginning: bytes) -> bool:
        """Handle a line that is too long to read. If it is an event, only its attempt ends; otherwise returns False.

        Otherwise the connection would break at that line every time, and the attempt would never end.
        """
        found = _EVENT.match(beginning)
        if found is None:
            return False
        if found["type"] == b"ended":
            message = f"its end record is longer than {MAX_LINE} bytes and cannot be read"
            end = {"cause": "backend_error", "message": message}
            event = {"attempt": found["attempt"].decode(), "event": int(found["event"]), "at": float(found["at"])}
            self._take(self._encode({**event, "type": "ended", **end}))
        return True

    def _take(self, lines: bytes) -> None:
        events: list[JsonObject] = []
        for line in lines.splitlines():
            message = self._decode(line)
            if "event" in message:
                check_event(message)
                self._clock.translate(message)
                events.append(message)
                continue
            if message.get("doomed"):
                self._preemption = str(message["doomed"])
                self._preempted.set()
            if message.get("notice") == "slots":
                check_slots(message)
                self.on_slots(message)
            if "notice" not in message:
                self._answer(message)
        if events:
            self._on_events(events)

    def _answer(self, message: JsonObject) -> None:
        number = message.get("id")
        if number is None:
            self._break(f"the runner closed the connection: {message.get('message')}")
            return
        if not isinstance(number, int):
            raise ProtocolViolation(f"an answer to request {number!r:.80}")
        now = moment(message["now"]) if "now" in message else None
        found = self._calls.pop(number, None)
        if found is None:
            return  # its caller was cancelled
        call, place = found
        if now is not None:
            self._clock.learn(now, call.asked_at, our_time())
        call.answers[place] = message
        call.left -= 1
        if call.left == 0:
            call.done.set()

    def _break(self, why: str) -> None:
        if self._broken is None:
            self._broken = why
            self.gone.set()
        for call, _ in self._calls.values():
            call.broken = self._broken
            call.done.set()
        self._calls.clear()


def _foreign(error: Exception) -> str:
    return f"the runner sent an invalid message: {error}"


def _words(error: Exception) -> str:
    return f"the connection to the runner broke: {str(error.__cause__ or error) or type(error).__name__}"


def raise_refusal(answer: JsonObject) -> None:
    """Raise Refusal if the answer is a refusal."""
    if not answer.get("ok"):
        raise CommandRefused(str(answer.get("error")), str(answer.get("message")), answer.get("errno"))
