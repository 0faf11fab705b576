"""Turns a stream of bytes into numbered, sealed frames and back, whatever their carrier does to them. Pure.

Numbers decide: a frame is taken once, in its turn. A frame that is doubled or late is never looked for again; one that was lost or
overwritten is sent again, because it was not acknowledged; one that does not open is as good as missing. The number is also the
nonce, and a session has its own keys, so that a frame of another session or direction never opens.
"""

from __future__ import annotations

import hashlib
import hmac
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

FRAME_BYTES = 1 << 20
WINDOW = 32  # frames that are on their way at most
ACK_EVERY = 8  # frames
ACK_AFTER_S = 12.0
REPEAT_S = (
    15.0,
    300.0,
)  # between two equal acknowledgements, first and longest: an older one may have been put over the newer
RESEND_S = 20.0

_CLOSES, _BUSY = 1, 2
_HEAD = struct.Struct(">BII")
_ACK = struct.Struct(">Q")


class BadFrame(Exception):
    """It was not sealed by the other side as this frame of this session."""


class Frame:
    """What one frame says.

    Attributes:
        closes: the sender ends the session.
        busy: attempts run on the sender's node.
        reads, writes: requests to the carrier that the sender has made since its last frame.
    """

    def __init__(
        self, payload: bytes = b"", *, closes: bool = False, busy: bool = False, reads: int = 0, writes: int = 0
    ) -> None:
        self.payload = payload
        self.closes = closes
        self.busy = busy
        self.reads = reads
        self.writes = writes


class Sender:
    """One direction of a session, at the end where it begins."""

    def __init__(self, key: bytes, ack_key: bytes) -> None:
        self._cipher = ChaCha20Poly1305(key)
        self._ack_key = ack_key
        self._next = 1
        self._waiting: dict[int, tuple[bytes, float]] = {}  # number -> sealed frame, and when it was last put

    @property
    def has_room(self) -> bool:
        return len(self._waiting) < WINDOW

    @property
    def waiting(self) -> int:
        """Frames that are not acknowledged."""
        return len(self._waiting)

    def seal(self, frame: Frame, now: float) -> tuple[int, bytes]:
        """The number and the bytes of the next frame. They are kept until they are acknowledged."""
        flags = (_CLOSES if frame.closes else 0) | (_BUSY if frame.busy else 0)
        most = 0xFFFFFFFF
        head = _HEAD.pack(flags, min(frame.reads, most), min(frame.writes, most))
        number, self._next = self._next, self._next + 1
        data = self._cipher.encrypt(_nonce(number), head + frame.payload, None)
        self._waiting[number] = (data, now)
        return number, data

    def acknowledge(self, data: bytes | None) -> bool:
        """Take an acknowledgement; True if it told something new. A forged or old one changes nothing."""
        number = _read_ack(self._ack_key, data)
        known = [one for one in self._waiting if one <= number]
        for one in known:
            del self._waiting[one]
        return bool(known)

    def asks(self, now: float) -> bool:
        """Whether it is time to read the acknowledgement: the window is full, or a frame has waited for long."""
        return not self.has_room or any(now - put_at >= RESEND_S for _, put_at in self._waiting.values())

    def overdue(self, now: float) -> list[tuple[int, bytes]]:
        """The frames to put again, oldest first."""
        found = [(number, data) for number, (data, put_at) in self._waiting.items() if now - put_at >= RESEND_S]
        self._waiting.update((number, (data, now)) for number, data in found)
        return sorted(found)


class Receiver:
    """One direction of a session, at the end where it arrives."""

    def __init__(self, key: bytes, ack_key: bytes) -> None:
        self._cipher = ChaCha20Poly1305(key)
        self._ack_key = ack_key
        self.next = 1  # the number of the frame to look for
        self._told = 0
        self._since = 0.0  # when the first frame arrived that is not acknowledged
        self._repeat_at = 0.0
        self._repeat_s = REPEAT_S[0]

    def take(self, data: bytes, now: float) -> Frame:
        """Open the frame that was found under the next number. Raises BadFrame, and still waits for that number."""
        try:
            plain = self._cipher.decrypt(_nonce(self.next), data, None)
        except InvalidTag:
            raise BadFrame("frame %d does not open" % self.next) from None
        flags, reads, writes = _HEAD.unpack_from(plain)
        if self._told == self.next - 1:
            self._since = now
        self.next += 1
        payload = plain[_HEAD.size :]
        return Frame(
            payload, closes=bool(flags & _CLOSES), busy=bool(flags & _BUSY), reads=int(reads), writes=int(writes)
        )

    def ack(self, now: float) -> bytes | None:
        """The acknowledgement to write now; None if there is nothing to tell yet. Call `acked` once it is written."""
        arrived = self.next - 1 - self._told
        is_due = arrived >= ACK_EVERY or now - self._since >= ACK_AFTER_S if arrived else now >= self._repeat_at
        return _ack(self._ack_key, self.next - 1) if self.next > 1 and is_due else None

    def acked(self, now: float) -> None:
        """It was written."""
        self._repeat_s = REPEAT_S[0] if self._told < self.next - 1 else min(4 * self._repeat_s, REPEAT_S[1])
        self._repeat_at = now + self._repeat_s
        self._told = self.next - 1


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "big")


def _ack(key: bytes, number: int) -> bytes:
    told = _ACK.pack(number)
    return told + hmac.new(key, told, hashlib.sha256).digest()


def _read_ack(key: bytes, data: bytes | None) -> int:
    if data is None or len(data) != _ACK.size + hashlib.sha256().digest_size:
        return 0
    told = data[: _ACK.size]
    if not hmac.compare_digest(data[_ACK.size :], hmac.new(key, told, hashlib.sha256).digest()):
        return 0
    return int(_ACK.unpack(told)[0])
