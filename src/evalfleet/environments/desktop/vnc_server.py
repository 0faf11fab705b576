"""A small VNC server on a Unix socket, through which people can watch and use a desktop.

It speaks RFB 3.8 without a password: anyone who may open the socket may watch and type; it is in the attempt's own folder. A
viewer gets the changed lines of the screen, uncompressed, because browsers are near. Viewers have their own threads and one
shared connection to the X server, separate from the agent's.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path

from evalfleet.environments.base import Size
from evalfleet.environments.desktop.x11.input import XInput
from evalfleet.environments.desktop.x11.protocol import XConnection
from evalfleet.environments.desktop.x11.windows import XWindows
from evalfleet.errors import EvalfleetError

NAME = "vnc.sock"
_VERSION = b"RFB 003.008\n"
_FRAME_S = 0.1
_MOST_TEXT = 1 << 20
# 32 bits a pixel, 24 used, little-endian, true colour; red, green and blue up to 255, at these bits; three bytes of nothing.
_FORMAT = struct.Struct(">BBBBHHHBBB3x")
_OURS = (16, 8, 0)
_REQUEST = struct.Struct(">BHHHH")


class VncServer:
    """Lets people watch and use a desktop until it is closed."""

    def __init__(self, path: Path, size: Size) -> None:
        self._path = path
        self._size = size
        self._lock = threading.Lock()  # around the connection: X answers one question at a time
        self._connection: XConnection | None = None
        self._input: XInput | None = None
        self._server = _listening(path)
        self._viewers: set[socket.socket] = set()
        threading.Thread(target=self._accept, name="viewing", daemon=True).start()

    def use(self, connection: XConnection) -> None:
        """Show this desktop from now on, in place of the discarded one. Owns the connection."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = connection
            self._input = XInput(connection, XWindows(connection))

    def close(self) -> None:
        """End it, and every viewer's connection."""
        self._path.unlink(missing_ok=True)
        for sock in [self._server, *self._viewers]:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    @property
    def size(self) -> Size:
        return self._size

    def image(self) -> bytes:
        """The screen, 4 bytes a pixel: blue, green, red, nothing. Raises EvalfleetError if it is gone."""
        with self._lock:
            if self._connection is None:
                raise EvalfleetError("the desktop is gone")
            return self._connection.image(self._size)

    def key(self, symbol: int, *, down: bool) -> None:
        with self._lock:
            if self._input is not None:
                self._input.hold(symbol, down=down)

    def point(self, x: int, y: int, before: int, now: int) -> None:
        with self._lock:
            if self._input is not None:
                self._input.point(x, y, before, now)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self._server.accept()
                self._viewers.add(sock)
                threading.Thread(target=self._serve, args=(sock,), name="viewer", daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        # A viewer that disconnects or sends invalid data ends only its own connection.
        with suppress(OSError, EvalfleetError, EOFError, struct.error), sock:
            _Viewer(self, sock).serve()
        self._viewers.discard(sock)


class _Viewer:
    def __init__(self, desktop: VncServer, sock: socket.socket) -> None:
        self._desktop = desktop
        self._socket = sock
        self._shifts = _OURS
        self._shown: bytes | None = None  # what the viewer has
        self._wanted: bool | None = None  # whether it waits for a picture: False, of what changed; True, of everything
        self._buttons = 0
        self._due = 0.0

    def serve(self) -> None:
        self._greet()
        while True:
            # While an update is due, wait for the next message only until the next look at the screen.
            self._socket.settimeout(None if self._wanted is None else max(0.001, self._due - time.monotonic()))
            try:
                kind = self._read(1)[0]
            except TimeoutError:
                kind = None
            self._socket.settimeout(None)  # an update may take long on a slow connection
            if kind is not None:
                self._obey(kind)
            if self._wanted is not None and time.monotonic() >= self._due:
                self._show()

    def _greet(self) -> None:
        self._socket.sendall(_VERSION)
        if self._read(len(_VERSION)) != _VERSION:
            raise EOFError
        self._socket.sendall(b"\x01\x01")  # one security type: none
        if self._read(1) != b"\x01":
            raise EOFError
        self._socket.sendall(b"\0\0\0\0")
        self._read(1)  # whether it shares the desktop; all do
        size, name = self._desktop.size, b"evalfleet"
        form = _FORMAT.pack(32, 24, 0, 1, 255, 255, 255, *_OURS)
        self._socket.sendall(struct.pack(">HH", size.width, size.height) + form + struct.pack(">I", len(name)) + name)

    def _obey(self, kind: int) -> None:
        match kind:
            case 0:
                self._set_format(self._read(19)[3:])
            case 2:
                self._read(4 * struct.unpack(">xH", self._read(3))[0])  # whole lines, raw: every viewer supports that
            case 3:
                incremental = _REQUEST.unpack(self._read(9))[0]
                self._wanted = bool(self._wanted) or not incremental or self._shown is None
            case 4:
                down, symbol = struct.unpack(">B2xI", self._read(7))
                self._desktop.key(symbol, down=bool(down))
            case 5:
                buttons, x, y = struct.unpack(">BHH", self._read(5))
                self._desktop.point(x, y, self._buttons, buttons)
                self._buttons = buttons
            case 6:
                length = struct.unpack(">3xi", self._read(7))[0]
                if abs(length) > _MOST_TEXT:
                    raise EOFError
                self._read(abs(length))  # the desktop's clipboard is the agent's
            case _:
                raise EOFError

    def _set_format(self, data: bytes) -> None:
        bits, _, big, true, red, green, blue, *shifts = _FORMAT.unpack(data)
        if (bits, big, true, red, green, blue) != (32, 0, 1, 255, 255, 255) or set(shifts) - {0, 8, 16, 24}:
            raise EOFError
        self._shifts = (shifts[0], shifts[1], shifts[2])
        self._shown = None

    def _show(self) -> None:
        """Send what changed, if something did."""
        self._due = time.monotonic() + _FRAME_S
        image, width = self._desktop.image(), 4 * self._desktop.size.width
        everything = self._wanted is True or self._shown is None
        bands = _bands(None if everything else self._shown, image, width)
        if not bands:
            return
        parts = [struct.pack(">BxH", 0, len(bands))]
        for first, last in bands:
            parts.append(struct.pack(">HHHHi", 0, first, self._desktop.size.width, last - first, 0))
            parts.append(_arranged(image[first * width : last * width], self._shifts))
        self._shown, self._wanted = image, None
        self._socket.sendall(b"".join(parts))

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self._socket.recv(count - len(data))
            if not piece:
                raise EOFError
            if not data:
                self._socket.settimeout(None)  # the rest of a message is on its way
            data += piece
        return data


def _bands(before: bytes | None, now: bytes, width: int) -> list[tuple[int, int]]:
    """Rows of lines that differ: first, and behind the last."""
    count = len(now) // width
    if before is None or len(before) != len(now):
        return [(0, count)]
    if before == now:
        return []
    bands: list[tuple[int, int]] = []
    for line in range(count):
        at = line * width
        if before[at : at + width] == now[at : at + width]:
            continue
        if bands and bands[-1][1] == line:
            bands[-1] = (bands[-1][0], line + 1)
        else:
            bands.append((line, line + 1))
    return bands


def _arranged(pixels: bytes, shifts: tuple[int, int, int]) -> bytes:
    """The pixels in the format that the viewer asked for."""
    if shifts == _OURS:
        return pixels
    arranged = bytearray(len(pixels))
    for shift, offset in zip(shifts, (2, 1, 0), strict=True):
        arranged[shift // 8 :: 4] = pixels[offset::4]
    return bytes(arranged)


def _listening(path: Path) -> socket.socket:
    """A socket with that path, which may be long: it is opened through the descriptor of its folder."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path.unlink(missing_ok=True)
        server.bind(f"/proc/self/fd/{folder}/{path.name}")
        path.chmod(0o600)
        server.listen()
    finally:
        os.close(folder)
    return server
