"""The client side of a WebSocket (RFC 6455), as far as a screen behind websockify or QEMU needs it. Pure; bytes in, bytes out."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator

_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUED, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_LARGEST = 64 << 20  # of one frame: a whole screen, uncompressed


class Broken(Exception):
    """The other side violates the protocol."""


def request(path: str, host: str, nonce: bytes) -> bytes:
    """What asks for a WebSocket. `nonce`: 16 random bytes."""
    key = base64.b64encode(nonce).decode()
    lines = [f"GET {path} HTTP/1.1", f"Host: {host}", "Connection: Upgrade", "Upgrade: websocket"]
    lines += ["Sec-WebSocket-Version: 13", "Sec-WebSocket-Protocol: binary", f"Sec-WebSocket-Key: {key}", "", ""]
    return "\r\n".join(lines).encode()


def is_accepted(head: bytes, nonce: bytes) -> bool:
    """Whether an answer, up to its empty line, is the one that makes the connection a WebSocket."""
    first, *rest = head.decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    proof = base64.b64encode(hashlib.sha1(base64.b64encode(nonce) + _MAGIC).digest()).decode()
    return len(words) >= 2 and words[1] == "101" and fields.get("sec-websocket-accept") == proof


def frame(data: bytes, mask: bytes, kind: int = _BINARY) -> bytes:
    """One message of ours. `mask`: 4 random bytes, by which proxies are kept from taking it for something else."""
    size = len(data)
    if size < 126:
        head = bytes([0x80 | kind, 0x80 | size])
    elif size < 1 << 16:
        head = bytes([0x80 | kind, 0xFE]) + size.to_bytes(2, "big")
    else:
        head = bytes([0x80 | kind, 0xFF]) + size.to_bytes(8, "big")
    return head + mask + _masked(data, mask)


class Frames:
    """What comes from the other side. Data is told as it comes, whatever messages it is cut into."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._pings: list[bytes] = []
        self.closed = False

    def feed(self, data: bytes) -> bytes:
        """The data in it. Raises Broken."""
        self._buffer += data
        return b"".join(self._messages())

    def pongs(self, mask: bytes) -> bytes:
        """What must be answered to pings since the last time."""
        told = b"".join(frame(ping, mask, _PONG) for ping in self._pings)
        self._pings.clear()
        return told

    def _messages(self) -> Iterator[bytes]:
        while not self.closed and (parsed := self._parse()) is not None:
            kind, payload = parsed
            if kind in (_CONTINUED, _BINARY, _TEXT):
                yield payload
            elif kind == _PING:
                self._pings.append(payload)
            elif kind == _CLOSE:
                self.closed = True
            elif kind != _PONG:
                raise Broken(f"a frame of kind {kind}")

    def _parse(self) -> tuple[int, bytes] | None:
        """The next whole frame; None if it has not come yet."""
        have = self._buffer
        if len(have) < 2:
            return None
        if have[0] & 0x70 or have[1] & 0x80:
            raise Broken("a frame that is masked, or compressed")
        size, begin = have[1] & 0x7F, 2
        if size >= 126:
            begin = 4 if size == 126 else 10
            size = int.from_bytes(have[2:begin], "big") if len(have) >= begin else 0
        if size > _LARGEST:
            raise Broken(f"a frame of {size} bytes")
        if len(have) < begin or len(have) < begin + size:
            return None
        kind, payload = have[0] & 0x0F, bytes(have[begin : begin + size])
        del have[: begin + size]
        return kind, payload


def _masked(data: bytes, mask: bytes) -> bytes:
    size = len(data)
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")
