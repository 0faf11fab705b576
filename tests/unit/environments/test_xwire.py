"""The X protocol without an X server: what a server says is played by the test, and one that says nothing hangs nobody."""

from __future__ import annotations

import socket
import struct
import zlib
from collections.abc import Iterator

import pytest

from evalfleet.environments.base import Size
from evalfleet.environments.browser import keys
from evalfleet.environments.desktop.x11 import keys as xkeys
from evalfleet.environments.desktop.x11.protocol import XConnection
from evalfleet.environments.picture import png
from evalfleet.errors import DesktopError, DesktopRefused, InputError

VENDOR = b"nobody"
SCREEN = struct.pack("<IIIIIHH", 77, 0, 0, 0, 0, 640, 480) + bytes(16)
GREETING = (
    struct.pack("<IIIIHHBBBBBBBBI", 1, 0x200000, 0x1FFFFF, 0, len(VENDOR), 65535, 1, 0, 0, 0, 32, 32, 8, 255, 0)
    + VENDOR
    + bytes(2)
    + SCREEN
)
WELCOME = struct.pack("<BBHHH", 1, 0, 11, 0, len(GREETING) // 4) + GREETING


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def connected(ends: tuple[socket.socket, socket.socket]) -> XConnection:
    ends[1].sendall(WELCOME)
    connection = XConnection(ends[0], b"c" * 16, timeout_s=0.2)
    assert b"MIT-MAGIC-COOKIE-1" in ends[1].recv(4096)
    return connection


def reply(number: int, *, extra: bytes = b"") -> bytes:
    return struct.pack("<BBHI", 1, 0, number, len(extra) // 4) + bytes(24) + extra


def event(kind: int) -> bytes:
    return bytes([kind]) + bytes(31)


def test_the_greeting_tells_of_the_screen(ends: tuple[socket.socket, socket.socket]):
    connection = connected(ends)
    assert (connection.root, connection.size) == (77, Size(width=640, height=480))
    assert (connection.first_key, connection.last_key) == (8, 255)


def test_a_server_that_refuses_says_why(ends: tuple[socket.socket, socket.socket]):
    ends[1].sendall(struct.pack("<BBHHH", 0, 8, 11, 0, 2) + b"go away\n")
    with pytest.raises(DesktopError, match="refuses the connection: go away"):
        XConnection(ends[0], b"", timeout_s=0.2)


def test_answers_are_told_from_events_and_errors_of_others(ends: tuple[socket.socket, socket.socket]):
    connection = connected(ends)
    connection.tell(2)
    ends[1].sendall(event(28) + struct.pack("<BBH28x", 0, 3, 1) + reply(2, extra=b"data"))
    assert connection.ask(43)[32:] == b"data"
    ends[1].sendall(struct.pack("<BBH28x", 0, 3, 3))
    with pytest.raises(DesktopRefused, match="X request 14: bad Window"):
        connection.ask(14)
    seen: list[bytes] = []
    assert connection.holds(lambda events: bool(seen.extend(events) or seen), timeout_s=0)
    assert seen == [event(28)]
    assert not connection.holds(lambda _: False, timeout_s=0.01)


def test_a_server_that_hangs_or_goes_away_is_told(ends: tuple[socket.socket, socket.socket]):
    connection = connected(ends)
    with pytest.raises(DesktopError, match=r"did not answer within 0\.2 s"):
        connection.sync()
    with pytest.raises(DesktopError, match=r"did not answer within 0\.2 s"):
        [connection.tell(2, 0, bytes(200_000)) for _ in range(10)]
    ends[1].close()
    with pytest.raises(DesktopError, match="the X server is gone"):
        connection.sync()


def test_every_key_has_a_symbol():
    assert [xkeys.symbol(name) for name in keys.NAMES]
    assert (xkeys.symbol("a"), xkeys.symbol("ü"), xkeys.symbol("€")) == (0x61, 0xFC, 0x010020AC)
    assert xkeys.of_character("\n") == xkeys.symbol("Enter")
    for wrong in ("Return", "", "\x07", "\x7f", "\ud800"):
        with pytest.raises(InputError):
            xkeys.symbol(wrong)
    with pytest.raises(InputError, match="not a modifier"):
        xkeys.modifiers(("Ctrl",))


def test_a_picture_holds_its_pixels():
    data = png(bytes([1, 2, 3, 0, 4, 5, 6, 0, 7, 8, 9, 0, 10, 11, 12, 0]), Size(width=2, height=2))
    assert struct.unpack(">II", data[16:24]) == (2, 2)
    lines = zlib.decompress(data[data.index(b"IDAT") + 4 : data.index(b"IEND") - 8])
    assert lines == bytes([0, 3, 2, 1, 6, 5, 4, 0, 9, 8, 7, 12, 11, 10])
    with pytest.raises(ValueError, match="are not 2 x 2 pixels"):
        png(b"", Size(width=2, height=2))
