"""Files that only the owner of one identity can read. They are written and read in pieces, and cannot be cut short unnoticed."""

from __future__ import annotations

import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from .keys import KEY_BYTES, BadSignature, Identity, PublicIdentity, derive, raw

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PIECE = 1 << 20
_SIZE = struct.Struct(">I")
_TAG_BYTES = 16
_MORE, _LAST = b"more", b"last"


class SealedWriter:
    """A file to write into: passes sealed bytes on to `write`."""

    def __init__(self, reader: PublicIdentity, write: Callable[[bytes], None]) -> None:
        key = X25519PrivateKey.generate()
        public = raw(key.public_key())
        self._cipher = ChaCha20Poly1305(derive(key.exchange(reader.seals), "archive", public))
        self._write = write
        self._buffer = bytearray()
        self._number = 0
        write(public)

    def write(self, data: bytes) -> int:
        self._buffer += data
        while len(self._buffer) > PIECE:
            self._put(bytes(self._buffer[:PIECE]), _MORE)
            del self._buffer[:PIECE]
        return len(data)

    def finish(self) -> None:
        self._put(bytes(self._buffer), _LAST)
        self._buffer.clear()

    def _put(self, data: bytes, place: bytes) -> None:
        sealed = self._cipher.encrypt(self._number.to_bytes(12, "big"), data, place)
        self._number += 1
        self._write(_SIZE.pack(len(sealed)) + sealed)


class SealedReader:
    """Opens what a `SealedWriter` wrote, as it arrives."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._cipher: ChaCha20Poly1305 | None = None
        self._buffer = bytearray()
        self._number = 0
        self._is_over = False

    def feed(self, data: bytes) -> bytes:
        """The plain bytes of what has arrived completely. Raises BadSignature."""
        self._buffer += data
        if self._cipher is None:
            if len(self._buffer) < KEY_BYTES:
                return b""
            public = bytes(self._buffer[:KEY_BYTES])
            self._cipher = ChaCha20Poly1305(derive(self._identity.agree(public), "archive", public))
            del self._buffer[:KEY_BYTES]
        plain: list[bytes] = []
        while len(self._buffer) >= _SIZE.size:
            size = int(_SIZE.unpack_from(self._buffer)[0])
            if size > PIECE + _TAG_BYTES or self._is_over:
                raise BadSignature("this archive is damaged")
            if len(self._buffer) < _SIZE.size + size:
                break
            plain.append(self._open(self._cipher, bytes(self._buffer[_SIZE.size : _SIZE.size + size])))
            del self._buffer[: _SIZE.size + size]
        return b"".join(plain)

    def finish(self) -> None:
        """Raises BadSignature unless the last piece was read."""
        if not self._is_over or self._buffer:
            raise BadSignature("this archive is cut short")

    def _open(self, cipher: ChaCha20Poly1305, sealed: bytes) -> bytes:
        nonce = self._number.to_bytes(12, "big")
        self._number += 1
        try:
            return cipher.decrypt(nonce, sealed, _MORE)
        except InvalidTag:
            pass
        try:
            plain = cipher.decrypt(nonce, sealed, _LAST)
        except InvalidTag:
            raise BadSignature("this archive does not open") from None
        self._is_over = True
        return plain
