"""A view-only filter for RFB: which messages of a viewer may reach a desktop.

RFB (what VNC speaks) has no read-only mode that a server must keep to. So the bytes of a viewer are read as the messages that they are,
and only those pass that ask for a picture: keys, pointer, clipboard and everything unknown stay behind. Pure; bytes in, bytes out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

_VERSION = 12
_SET_PIXEL_FORMAT, _SET_ENCODINGS, _UPDATE_REQUEST, _KEY, _POINTER, _CUT_TEXT = 0, 2, 3, 4, 5, 6
_CONTINUOUS, _FENCE, _POWER, _RESIZE, _QEMU = 150, 248, 250, 251, 255
_NO_SECURITY, _PASSWORD = 1, 2
_MOST = 1 << 20  # bytes of one message


class Foreign(Exception):
    """The viewer sent a message that is not known to be harmless, or is not RFB."""


class ViewOnly:
    """The direction from viewer to desktop of one connection."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._passed = bytearray()
        self._reading = self._conversation()
        self._wanted = next(self._reading)

    def feed(self, data: bytes) -> bytes:
        """What of it, and of what was kept back before, may go on. Raises Foreign."""
        self._buffer += data
        while len(self._buffer) >= self._wanted:
            piece = bytes(self._buffer[: self._wanted])
            del self._buffer[: self._wanted]
            self._wanted = self._reading.send(piece)
        passed = bytes(self._passed)
        self._passed.clear()
        return passed

    def _conversation(self) -> Generator[int, bytes, None]:
        """Yields how many bytes come next, and gets them."""
        version = yield _VERSION
        if version not in (b"RFB 003.007\n", b"RFB 003.008\n"):
            raise Foreign(f"the viewer speaks {version[:12]!r}")
        self._passed += version
        security = yield 1
        self._passed += security
        if security[0] == _PASSWORD:
            self._passed += yield 16
        elif security[0] != _NO_SECURITY:
            raise Foreign(f"security type {security[0]}")
        yield 1
        self._passed += b"\x01"  # always shared: a viewer must not throw out the one who acts
        while True:
            kind = (yield 1)[0]
            if kind not in _READERS:
                raise Foreign(f"message type {kind}")
            message = bytes([kind])
            for more in _READERS[kind]:
                count = more(message)
                if count > _MOST:
                    raise Foreign(f"a message of {count} bytes")
                if count:
                    message += yield count
            if kind in _HARMLESS:
                self._passed += message


Reader = Callable[[bytes], int]


def _fixed(count: int) -> Reader:
    return lambda _message: count


def _text_length(message: bytes) -> int:
    return abs(int.from_bytes(message[4:8], "big", signed=True))  # negative: the extended clipboard


_READERS: dict[int, tuple[Reader, ...]] = {
    _SET_PIXEL_FORMAT: (_fixed(19),),
    _SET_ENCODINGS: (_fixed(3), lambda message: 4 * int.from_bytes(message[2:4], "big")),
    _UPDATE_REQUEST: (_fixed(9),),
    _KEY: (_fixed(7),),
    _POINTER: (_fixed(5),),
    _CUT_TEXT: (_fixed(7), _text_length),
    _CONTINUOUS: (_fixed(9),),
    _FENCE: (_fixed(8), lambda message: message[8]),
    _POWER: (_fixed(3),),
    _RESIZE: (_fixed(7), lambda message: 16 * message[6]),
    _QEMU: (_fixed(11),),
}
_HARMLESS = frozenset({_SET_PIXEL_FORMAT, _SET_ENCODINGS, _UPDATE_REQUEST, _CONTINUOUS, _FENCE})
