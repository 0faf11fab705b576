"""The X11 protocol over a connected socket: the few requests that a desktop needs, each with a deadline.

One thread, one caller. A server that hangs or goes away raises `DesktopError` instead of hanging its caller, which no
library for X promises; that, and no dependency, is why it is spoken here.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable

from msgspec import Struct

from evalfleet.environments.base import Size
from evalfleet.errors import DesktopError, DesktopRefused

_COOKIE = b"MIT-MAGIC-COOKIE-1"
_BLOCK = 1 << 18
_KEPT_EVENTS = 1000
_GENERIC_EVENT = 35
_LONGEST_PROPERTY = 1 << 16  # in units of 4 bytes
_ERRORS = {1: "Request", 2: "Value", 3: "Window", 5: "Atom", 8: "Match", 9: "Drawable", 10: "Access", 11: "Alloc"}

PROPERTY_CHANGE = 1 << 22
SUBSTRUCTURE_NOTIFY = 1 << 19
SUBSTRUCTURE_REDIRECT = 1 << 20
PROPERTY_NOTIFY = 28
CLIENT_MESSAGE = 33


class Property(Struct, frozen=True, kw_only=True):
    """A window's property: its type's atom and its value as it came."""

    type: int
    value: bytes

    def numbers(self) -> tuple[int, ...]:
        """Return the value as 32-bit numbers: atoms, windows, counts."""
        return struct.unpack(f"<{len(self.value) // 4}I", self.value[: len(self.value) // 4 * 4])


class XConnection:
    """A conversation with an X server. Owns the socket.

    Args:
        sock: connected to the server.
        cookie: the secret with which the server was started.
        timeout_s: the limit of every request.

    Raises:
        DesktopError: the server refuses the connection, or does not answer.
    """

    def __init__(self, sock: socket.socket, cookie: bytes, *, timeout_s: float = 20.0) -> None:
        self._socket = sock
        self._timeout_s = timeout_s
        self._received = bytearray()
        self._sequence = 0
        self._events: deque[bytes] = deque(maxlen=_KEPT_EVENTS)  # not waited for yet
        self._atoms: dict[str, int] = {}
        sock.setblocking(False)
        self._deadline = time.monotonic() + timeout_s
        try:
            self._greet(cookie)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()

    def tell(self, opcode: int, data: int = 0, body: bytes = b"") -> int:
        """Send a request that has no answer, and return its number. Whether it was obeyed is seen in what follows."""
        body = _padded(body)
        self._sequence = (self._sequence + 1) & 0xFFFF
        self._deadline = time.monotonic() + self._timeout_s
        self._write(struct.pack("<BBH", opcode, data, 1 + len(body) // 4) + body)
        return self._sequence

    def ask(self, opcode: int, data: int = 0, body: bytes = b"") -> bytes:
        """Send a request and return its answer.

        Raises:
            DesktopRefused: the server says that it is wrong; a window may be gone, for example.
        """
        number = self.tell(opcode, data, body)
        while True:
            message = self._next()
            if self._note(message):
                continue
            if struct.unpack_from("<H", message, 2)[0] != number:
                continue  # the error of a request without an answer
            if message[0] == 0:
                raise DesktopRefused(f"X request {opcode}: bad {_ERRORS.get(message[1], message[1])}")
            return message

    def sync(self) -> None:
        """Return when the server has handled all requests so far."""
        self.ask(43)

    def holds(self, condition: Callable[[list[bytes]], bool], *, timeout_s: float) -> bool:
        """Ask for the condition after every event that the server sends, until it holds or the time is over.

        Args:
            condition: gets the events that came since it was asked last.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            events = list(self._events)
            self._events.clear()
            if condition(events):
                return True
            while not self._events:
                left = deadline - time.monotonic()
                if not self._received and not select.select([self._socket], [], [], max(0.0, left))[0]:
                    return False
                self._deadline = time.monotonic() + self._timeout_s
                self._note(self._next())

    # The requests

    def make_window(self, mask: int) -> int:
        """Make a window that is never shown, and have events of that kind about it sent here."""
        window, self._next_id = self._next_id, self._next_id + 1
        self.tell(1, 0, struct.pack("<IIhhHHHHIII", window, self.root, -1, -1, 1, 1, 0, 2, 0, 0x800, mask))
        return window

    def select_input(self, window: int, mask: int) -> None:
        """Have events of that kind sent here."""
        self.tell(2, 0, struct.pack("<III", window, 0x800, mask))

    def atom(self, name: str) -> int:
        if name not in self._atoms:
            answer = self.ask(16, 0, struct.pack("<HH", len(name), 0) + name.encode())
            self._atoms[name] = struct.unpack_from("<I", answer, 8)[0]
        return self._atoms[name]

    def property(self, window: int, name: str) -> Property | None:
        """Return a property's value, or None if the window has none of that name. Raises DesktopRefused."""
        answer = self.ask(20, 0, struct.pack("<IIIII", window, self.atom(name), 0, 0, _LONGEST_PROPERTY))
        kind, _, count = struct.unpack_from("<III", answer, 8)
        length = count * (answer[1] // 8)
        return Property(type=kind, value=bytes(answer[32 : 32 + length])) if kind else None

    def place(self, window: int) -> tuple[int, int, int, int]:
        """Return where a window lies on the screen: x, y, width, height. Raises DesktopRefused."""
        width, height = struct.unpack_from("<HH", self.ask(14, 0, struct.pack("<I", window)), 16)
        answer = self.ask(40, 0, struct.pack("<IIhh", window, self.root, 0, 0))
        x, y = struct.unpack_from("<hh", answer, 12)
        return x, y, width, height

    def image(self, size: Size) -> bytes:
        """Return the screen's upper left part, 4 bytes a pixel: blue, green, red, nothing."""
        answer = self.ask(73, 2, struct.pack("<IhhHHI", self.root, 0, 0, size.width, size.height, 0xFFFFFFFF))
        return answer[32 : 32 + 4 * size.width * size.height]

    def extension(self, name: str) -> int:
        """Return an extension's opcode. Raises DesktopError if the server lacks it."""
        answer = self.ask(98, 0, struct.pack("<HH", len(name), 0) + name.encode())
        if not answer[8]:
            raise DesktopError(f"the X server lacks the extension {name}")
        return answer[9]

    def keyboard(self) -> list[tuple[int, ...]]:
        """Return the key symbols of each key code, from `first_key` on."""
        count = self.last_key - self.first_key + 1
        answer = self.ask(101, 0, struct.pack("<BBH", self.first_key, count, 0))
        each: int = answer[1]
        symbols = struct.unpack_from(f"<{each * count}I", answer, 32)
        return [symbols[at : at + each] for at in range(0, each * count, each)]

    def map_keys(self, first: int, symbols: list[int]) -> None:
        """Give key codes that follow each other their symbols: two each, without and with Shift."""
        body = struct.pack(f"<BBH{len(symbols)}I", first, 2, 0, *symbols)
        self.tell(100, len(symbols) // 2, body)

    def send_message(self, to: int, window: int, kind: str, numbers: tuple[int, ...], mask: int = 0) -> None:
        """Send a client message of 32-bit numbers about a window."""
        values = (*numbers, 0, 0, 0, 0, 0)[:5]
        event = struct.pack("<BBHII5I", CLIENT_MESSAGE, 32, 0, window, self.atom(kind), *values)
        self.tell(25, 0, struct.pack("<II", to, mask) + event)

    # Reading and writing

    def _greet(self, cookie: bytes) -> None:
        name, data = _padded(_COOKIE), _padded(cookie)
        self._write(struct.pack("<BxHHHHxx", ord("l"), 11, 0, len(_COOKIE), len(cookie)) + name + data)
        status, reason, _, _, length = struct.unpack("<BBHHH", self._read(8))
        more = self._read(4 * length)
        if status != 1:
            raise DesktopError(f"the X server refuses the connection: {bytes(more[:reason]).decode('latin-1').strip()}")
        self._next_id: int = struct.unpack_from("<I", more, 4)[0]
        vendor, _, _, formats = struct.unpack_from("<HHBB", more, 16)
        self.first_key, self.last_key = more[26], more[27]
        screen = 32 + vendor + -vendor % 4 + 8 * formats
        self.root: int = struct.unpack_from("<I", more, screen)[0]
        width, height = struct.unpack_from("<HH", more, screen + 20)
        self.size = Size(width=width, height=height)

    def _note(self, message: bytes) -> bool:
        """Keep the message if it is an event, and say whether it is."""
        if message[0] > 1:
            self._events.append(message)
        return message[0] > 1

    def _next(self) -> bytes:
        """Return the next answer, error or event, whole."""
        head = self._read(32)
        if head[0] not in (1, _GENERIC_EVENT):
            return head
        return self._read(4 * struct.unpack_from("<I", head, 4)[0], head)

    def _read(self, count: int, head: bytes = b"") -> bytes:
        """Return `size` bytes after the head. Pictures are large: the received blocks are copied only once."""
        blocks = [head, bytes(self._received[:count])]
        del self._received[:count]
        left = count - len(blocks[-1])
        try:
            while left > 0:
                block = self._arrived()
                blocks.append(block[:left])
                self._received += block[left:]
                left -= len(block)
        except DesktopError:
            self._received += b"".join(blocks)  # the rest of the stream cannot be understood
            raise
        return b"".join(blocks)

    def _arrived(self) -> bytes:
        while True:
            try:
                block = self._socket.recv(_BLOCK)
            except BlockingIOError:
                self._await(for_reading=True)
                continue
            except OSError as error:
                raise DesktopError(f"the X server is gone: {error.strerror}") from None
            if not block:
                raise DesktopError("the X server is gone")
            return block

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[self._socket.send(left) :]
            except BlockingIOError:
                self._await(for_reading=False)
            except OSError as error:
                raise DesktopError(f"the X server is gone: {error.strerror}") from None

    def _await(self, *, for_reading: bool) -> None:
        ours = [self._socket]
        readable, writable, _ = select.select(
            ours if for_reading else [], [] if for_reading else ours, [], max(0.0, self._deadline - time.monotonic())
        )
        if not readable and not writable:
            raise DesktopError(f"the X server did not answer within {self._timeout_s:g} s")


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
