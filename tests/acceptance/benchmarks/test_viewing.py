"""A real desktop, watched and used by VNC: what is on the screen arrives, and what is typed arrives there."""

from __future__ import annotations

import os
import socket
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.fleet import wait_for

from evalfleet.environments.base import Size
from evalfleet.environments.desktop import environment
from evalfleet.environments.desktop.environment import Desktop

pytestmark = pytest.mark.skipif(
    any(not need.present for need in environment.requirements()),
    reason="this machine has no desktop: see scripts/desktop",
)
SIZE = Size(width=640, height=400)
FRAME_S = 0.1  # from one look at the screen to the next
# What noVNC asks for: red in the lowest byte.
FORMAT = struct.pack(">B3xBBBBHHHBBB3x", 0, 32, 24, 0, 1, 255, 255, 255, 0, 8, 16)
EVERYTHING = struct.pack(">BBHHHH", 3, 0, 0, 0, SIZE.width, SIZE.height)
CHANGES = struct.pack(">BBHHHH", 3, 1, 0, 0, SIZE.width, SIZE.height)


class Viewer:
    """As much of a VNC viewer as shows whether the server keeps to the protocol."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(30)
        folder = os.open(path.parent, os.O_PATH)
        self._socket.connect(f"/proc/self/fd/{folder}/{path.name}")
        os.close(folder)
        assert self.read(12) == b"RFB 003.008\n"
        self.say(b"RFB 003.008\n")
        assert self.read(2) == b"\x01\x01"
        self.say(b"\x01")
        assert self.read(4) == b"\0\0\0\0"
        self.say(b"\x01")
        width, height = struct.unpack(">HH", self.read(4))
        assert (width, height) == (SIZE.width, SIZE.height)
        self.read(16)
        assert self.read(struct.unpack(">I", self.read(4))[0]) == b"evalfleet"
        self.screen = bytearray(4 * width * height)
        self.say(FORMAT + struct.pack(">BxHi", 2, 1, 0))

    def say(self, data: bytes) -> None:
        self._socket.sendall(data)

    def read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self._socket.recv(count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def update(self, request: bytes) -> int:
        """Ask for a picture and put it on our screen; returns how many lines came."""
        self.say(request)
        return self.picture()

    def await_picture(self) -> None:
        """Wait until it is on its way, and take none of it."""
        self._socket.recv(1, socket.MSG_PEEK)

    def picture(self) -> int:
        kind, count = struct.unpack(">BxH", self.read(4))
        assert kind == 0
        lines = 0
        for _ in range(count):
            x, y, width, height, encoding = struct.unpack(">HHHHi", self.read(12))
            assert (x, width, encoding) == (0, SIZE.width, 0)
            at = 4 * y * width
            self.screen[at : at + 4 * width * height] = self.read(4 * width * height)
            lines += height
        return lines

    def type(self, text: str) -> None:
        for character in text:
            symbol = 0xFF0D if character == "\n" else ord(character)
            for down in (1, 0):
                self.say(struct.pack(">BB2xI", 4, down, symbol))

    def colours(self) -> bytes:
        """Red, green and blue of every pixel."""
        found = bytearray(3 * SIZE.width * SIZE.height)
        for place in range(3):
            found[place::3] = self.screen[place::4]
        return bytes(found)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def colours(png: bytes) -> bytes:
    """The pixels of a screenshot: our PNGs have no filters."""
    data, at = b"", 8
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        data += png[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
        at += 12 + length
    lines = zlib.decompress(data)
    width = 3 * SIZE.width + 1
    return b"".join(lines[place + 1 : place + width] for place in range(0, len(lines), width))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / ("long" * 40) / "vnc.sock"


@pytest.fixture
def opened(tmp_path: Path, place: Path) -> Iterator[Desktop]:
    place.parent.mkdir()
    with environment.launched(tmp_path, size=SIZE, view=place) as found:
        yield found
    assert not place.exists()


def terminal(opened: Desktop) -> None:
    opened.launch(["xterm", "-e", "sh", "-c", "read line; echo $line > $HOME/typed; exec cat"])
    opened.wait_for_windows(lambda windows: any(one.active for one in windows), "the terminal")


def typed(opened: Desktop) -> str:
    return opened.execute(["sh", "-c", "cat $HOME/typed"]).stdout.decode()


def test_a_viewer_sees_the_screen_and_types(opened: Desktop, place: Path):
    with Viewer(place) as viewer:
        assert viewer.update(EVERYTHING) == SIZE.height
        terminal(opened)
        viewer.update(CHANGES)
        opened.settle()
        viewer.update(EVERYTHING)
        assert viewer.colours() == colours(opened.screenshot())
        window = opened.windows()[-1]
        middle = (window.x + window.width // 2, window.y + window.height // 2)
        for buttons in (0, 1, 0):
            viewer.say(struct.pack(">BBHH", 5, buttons, *middle))
        viewer.type("hello\n")
        assert 0 < viewer.update(CHANGES) < SIZE.height, "only the lines that changed"
        wait_for(lambda: typed(opened) == "hello\n", "what was typed")


def test_a_viewer_that_reads_slowly_gets_the_whole_picture(opened: Desktop, place: Path):
    with Viewer(place) as viewer:
        assert viewer.update(EVERYTHING) == SIZE.height
        viewer.say(CHANGES)
        terminal(opened)
        # The picture is larger than what waits in a socket, and several looks at the screen go by before it is read.
        viewer.await_picture()
        time.sleep(5 * FRAME_S)
        assert viewer.picture() > 0


def test_two_viewers_a_rude_one_and_a_reset(opened: Desktop, place: Path):
    with Viewer(place) as first:
        with Viewer(place) as second:
            assert first.update(EVERYTHING) == second.update(EVERYTHING) == SIZE.height
            second.say(b"\x63")  # no message that there is
            with pytest.raises((EOFError, ConnectionError)):
                second.read(1)
        opened.reset()
        assert first.update(EVERYTHING) == SIZE.height, "it sees the new desktop"
        terminal(opened)
        first.type("again\n")
        wait_for(lambda: typed(opened) == "again\n", "what was typed")
    assert opened.probe().ready
