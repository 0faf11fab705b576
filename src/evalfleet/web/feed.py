"""The live feed: every event once, in order, to any number of readers, by server-sent events.

One thread looks for commits of all processes. What is new is encoded once and put together to one frame per tenth of a second, which all
readers share. A reader joins at a number, gets what came before from the store, then the frames, straight to its connection: hundreds of
readers cost a write each, and wake no one. As event numbers rise without gaps becoming visible, nothing is missed and nothing comes twice,
whatever was between: a sleeping laptop, or another server. One that does not read is disconnected; it comes back with the last number
that it saw.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
from msgspec import Struct, field

from evalfleet.errors import StoreError
from evalfleet.model import Event
from evalfleet.report.terminal.events import event_row
from evalfleet.store.open import open_reader
from evalfleet.store.reader import StoreReader

T = TypeVar("T")

FRAME_S = 0.1
MOST_BEHIND = 20_000  # events; whoever is further behind begins anew
MOST_READERS = 1000
MOST_OF_ONE = 200  # readers with one token
_PAGE = 2000
_REPLAY = 2000
_MOST_BYTES = 2 << 20  # that wait for one reader

_encoder = msgspec.json.Encoder()


class Behind(Exception):
    """The reader is too far behind for single events; it continues after `number`."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Frame:
    """Messages for readers, put together once: as they are, and as a chunk of HTTP/1.1."""

    __slots__ = ("chunk", "plain")

    def __init__(self, plain: bytes) -> None:
        self.plain = plain
        self.chunk = b"%x\r\n%b\r\n" % (len(plain), plain)


class Line(Protocol):
    """The connection of a reader."""

    def send(self, frame: Frame) -> bool:
        """Send it, now or when there is room, and never wait. False: the connection is gone."""
        ...

    def waiting(self) -> int:
        """Bytes that there was no room for yet."""
        ...

    def cut(self) -> None:
        """End the connection at once: what waits there would never be read."""
        ...


class Subscriber(Struct, eq=False):
    """One reader. While it gets past events, new frames wait; from then on they go to its queue."""

    line: Line
    runs: frozenset[str]
    since: int  # frames hold what is above this number
    after: int  # what it has; an answer may have told it of more than we have seen ourselves
    frames: list[bytes] = field(default_factory=list[bytes])
    kept: int = 0  # bytes of these
    live: bool = False
    dropped: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, frame: Frame) -> None:
        # Looked at before: one frame alone may be large.
        if (self.line.waiting() if self.live else self.kept) > _MOST_BYTES:
            self.drop()
        elif not self.live:
            self.kept += len(frame.plain)
            self.frames.append(frame.plain)
        elif not self.line.send(frame):
            self.end()

    def go_live(self) -> bytes:
        """The frames that waited; if empty, frames go to the queue from now on."""
        frame = b"".join(self.frames)
        self.frames.clear()
        self.kept = 0
        self.live = not frame
        return frame

    def drop(self) -> None:
        self.end()
        self.line.cut()

    def end(self) -> None:
        self.dropped = True
        self.frames.clear()
        self.ended.set()


class Feed:
    """Used in the event loop's thread."""

    def __init__(self, home: Path, happened: Callable[[list[Event]], None]) -> None:
        self._home = home
        self._happened = happened
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="web-feed")
        self._reader: StoreReader | None = None
        self._subscribers: set[Subscriber] = set()
        self._more = True  # than was read; at first, what was committed between opening and the first look
        self.last = 0

    @property
    def readers(self) -> int:
        return len(self._subscribers)

    async def open(self) -> None:
        """Raises StoreError."""
        self.last = await self._call(self._open)

    async def close(self) -> None:
        for one in self._subscribers:
            one.end()
        if self._reader is not None:
            await self._call(self._reader.close)
        self._thread.shutdown(wait=True)

    async def serve(self) -> None:
        """Look for events until cancelled."""
        while True:
            await asyncio.sleep(FRAME_S)
            if events := await self._call(self._news):
                self.last = events[-1].number
                self._happened(events)
                self._share(events)

    def join(self, line: Line, runs: frozenset[str], after: int | None) -> Subscriber:
        """Begin to listen at this moment; `replay` gives what lies between `after` and it. To be left again."""
        subscriber = Subscriber(line=line, runs=runs, since=self.last, after=self.last if after is None else after)
        self._subscribers.add(subscriber)
        return subscriber

    def leave(self, subscriber: Subscriber) -> None:
        self._subscribers.discard(subscriber)

    async def replay(self, subscriber: Subscriber) -> AsyncGenerator[bytes]:
        """Frames of what the reader does not have at the moment of joining.

        Raises Behind, where that is too much, or where it says to have a number that this store never gave.
        """
        after = subscriber.after
        if after > subscriber.since and after > await self._call(self._last_number):
            subscriber.since = subscriber.after = self.last  # what came meanwhile was kept from it
            raise Behind(self.last)
        if subscriber.since - after > MOST_BEHIND:
            subscriber.after = subscriber.since
            raise Behind(subscriber.since)
        while after < subscriber.since:
            page = await self._call(lambda start=after: self._opened().events.all(start, _REPLAY))
            page = [event for event in page if event.number <= subscriber.since]
            if not page:
                return
            after = page[-1].number
            yield _messages([(event, encoded(event)) for event in page], subscriber.runs)
        subscriber.after = max(subscriber.after, subscriber.since)

    def _share(self, events: list[Event]) -> None:
        if not self._subscribers:
            return
        told = [(event, encoded(event)) for event in events]
        frames: dict[frozenset[str], Frame] = {}
        for subscriber in self._subscribers:
            frame = frames.get(subscriber.runs)
            if subscriber.after >= events[0].number:
                known = subscriber.after
                frame = Frame(_messages([one for one in told if one[0].number > known], subscriber.runs))
            elif frame is None:
                frame = frames[subscriber.runs] = Frame(_messages(told, subscriber.runs))
            if frame.plain and not subscriber.dropped:
                subscriber.put(frame)

    # In the thread

    def _open(self) -> int:
        self._reader = open_reader(self._home)
        return self._last_number()

    def _last_number(self) -> int:
        return self._opened().events.last_number()

    def _opened(self) -> StoreReader:
        if self._reader is None:
            raise StoreError(f"there is no database in {self._home}")
        return self._reader

    def _news(self) -> list[Event]:
        reader = self._opened()
        # A full page says that there may be more without another commit.
        if not reader.changed() and not self._more:
            return []
        events = reader.events.all(self.last, _PAGE)
        self._more = len(events) == _PAGE
        return events

    async def _call(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)


def encoded(event: Event) -> bytes:
    """One message. JSON has no line ends of its own, so that it is one line."""
    return b"id: %d\ndata: %b\n\n" % (event.number, _encoder.encode(event_row(event)))


def named(name: str, data: object, number: int | None = None) -> bytes:
    """A message with a name, such as `hello`."""
    place = b"" if number is None else b"id: %d\n" % number
    return b"%bevent: %b\ndata: %b\n\n" % (place, name.encode(), _encoder.encode(data))


def _messages(told: list[tuple[Event, bytes]], runs: frozenset[str]) -> bytes:
    return b"".join(message for event, message in told if not runs or event.run_id in runs)
