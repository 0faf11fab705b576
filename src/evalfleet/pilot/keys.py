"""Keys of a mailbox: identities, signed documents, the keys of a session, and files that only one side can read.

Both sides use this module. Every signature and every derived key names its purpose, so that none can be used for another.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KEY_BYTES = 32
PURPOSE = b"evalfleet mailbox 1 "


class BadSignature(Exception):
    """A document is not what its signature says, or is meant for another box, pilot or session."""


def derive(secret: bytes, purpose: str, salt: bytes = b"") -> bytes:
    """A key of 32 bytes for one purpose."""
    return HKDF(hashes.SHA256(), KEY_BYTES, salt, PURPOSE + purpose.encode()).derive(secret)


def raw(key: Ed25519PublicKey | X25519PublicKey) -> bytes:
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw)


def to_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def from_text(text: str) -> bytes:
    """Raises ValueError."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class PublicIdentity:
    """The public half of an identity: a key for signatures, and one for what only its owner can read."""

    def __init__(self, text: str) -> None:
        """Raises ValueError unless the text is the public half of an identity."""
        data = from_text(text)
        if len(data) != 2 * KEY_BYTES:
            raise ValueError("a public identity has %d bytes" % (2 * KEY_BYTES))
        self.text = text
        self._signs = Ed25519PublicKey.from_public_bytes(data[:KEY_BYTES])
        self.seals = X25519PublicKey.from_public_bytes(data[KEY_BYTES:])

    def verify(self, purpose: str, data: bytes, signature: bytes) -> None:
        """Raises BadSignature."""
        try:
            self._signs.verify(signature, PURPOSE + purpose.encode() + b"\0" + data)
        except InvalidSignature:
            raise BadSignature("the signature of this %s is wrong" % purpose) from None


class Identity:
    """The private half, made from a secret of 32 bytes."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._signs = Ed25519PrivateKey.from_private_bytes(derive(secret, "sign"))
        self._opens = X25519PrivateKey.from_private_bytes(derive(secret, "seal"))
        self.public = PublicIdentity(to_text(raw(self._signs.public_key()) + raw(self._opens.public_key())))

    def sign(self, purpose: str, data: bytes) -> bytes:
        return self._signs.sign(PURPOSE + purpose.encode() + b"\0" + data)

    def agree(self, other: bytes) -> bytes:
        """The secret that this identity shares with the owner of a public X25519 key."""
        return self._opens.exchange(X25519PublicKey.from_public_bytes(other))

    def token(self, host: str, generation: int) -> str:
        """The one-time token of a pilot. It is derived, so that no controller has to keep it."""
        return to_text(derive(self._secret, "token", ("%s\0%d" % (host, generation)).encode()))


def signed(identity: Identity, kind: str, fields: dict[str, Any]) -> bytes:
    """A document with its signature."""
    body = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return json.dumps({"body": body, "signature": to_text(identity.sign(kind, body.encode()))}).encode()


def read_signed(signer: PublicIdentity, kind: str, data: bytes) -> dict[str, Any]:
    """The fields of a document. Raises BadSignature unless it is of that kind and that signer signed it."""
    body, signature = _parts(kind, data)
    signer.verify(kind, body.encode(), signature)
    return _fields(kind, body)


def introduction(identity: Identity, token: str, fields: dict[str, Any]) -> bytes:
    """A pilot's first document: its public identity, proved by its token."""
    body = json.dumps(dict(fields, identity=identity.public.text), sort_keys=True, separators=(",", ":"))
    return json.dumps({"body": body, "signature": to_text(_mac(token, body))}).encode()


def read_introduction(token: str, data: bytes) -> dict[str, Any]:
    """Raises BadSignature unless the writer has the token."""
    body, signature = _parts("hello", data)
    if not hmac.compare_digest(signature, _mac(token, body)):
        raise BadSignature("this hello was not written with the token of its pilot")
    return _fields("hello", body)


def _mac(token: str, body: str) -> bytes:
    return hmac.new(token.encode(), PURPOSE + b"hello\0" + body.encode(), hashlib.sha256).digest()


def _parts(kind: str, data: bytes) -> tuple[str, bytes]:
    try:
        found = json.loads(data.decode())
        return str(found["body"]), from_text(found["signature"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadSignature("this %s is not a signed document" % kind) from None


def _fields(kind: str, body: str) -> dict[str, Any]:
    try:
        return dict(json.loads(body))
    except (ValueError, TypeError):
        raise BadSignature("this %s is not an object" % kind) from None


class SessionKeys:
    """The keys of one session: a pair per direction, for frames and for acknowledgements."""

    def __init__(self, shared: bytes, transcript: bytes) -> None:
        salt = hashlib.sha256(transcript).digest()
        self.to_pilot = derive(shared, "frames to pilot", salt)
        self.from_pilot = derive(shared, "frames from pilot", salt)
        self.to_pilot_acks = derive(shared, "acks to pilot", salt)
        self.from_pilot_acks = derive(shared, "acks from pilot", salt)


class Offer:
    """The controller's half of a handshake: what `open/N` says."""

    def __init__(self, controller: Identity, pilot: PublicIdentity, generation: int, purpose: str) -> None:
        self._controller = controller
        self._pilot = pilot
        self._fields = {"generation": generation, "pilot": pilot.text, "purpose": purpose}
        self._key = X25519PrivateKey.generate()

    def document(self, session: int) -> bytes:
        return signed(
            self._controller, "open", dict(self._fields, session=session, key=to_text(raw(self._key.public_key())))
        )

    def keys(self, session: int, reply: bytes) -> SessionKeys:
        """Raises BadSignature unless the pinned pilot wrote the reply to this offer."""
        told = read_signed(self._pilot, "reply", reply)
        document = self.document(session)
        if told.get("session") != session or told.get("offer") != hashlib.sha256(document).hexdigest():
            raise BadSignature("this reply belongs to another session")
        shared = self._key.exchange(X25519PublicKey.from_public_bytes(from_text(str(told["key"]))))
        return SessionKeys(shared, document + reply)


def accept(
    pilot: Identity, controller: PublicIdentity, generation: int, session: int, document: bytes
) -> tuple[str, bytes, SessionKeys]:
    """The pilot's half of a handshake: the purpose of the session, the reply, and the keys.

    Raises BadSignature unless the controller meant this session of this pilot.
    """
    told = read_signed(controller, "open", document)
    meant = (told.get("session"), told.get("generation"), told.get("pilot"))
    if meant != (session, generation, pilot.public.text):
        raise BadSignature("this session was opened for another pilot, generation or number")
    key = X25519PrivateKey.generate()
    fields = {
        "session": session,
        "offer": hashlib.sha256(document).hexdigest(),
        "key": to_text(raw(key.public_key())),
    }
    reply = signed(pilot, "reply", fields)
    try:
        shared = key.exchange(X25519PublicKey.from_public_bytes(from_text(str(told["key"]))))
    except (ValueError, KeyError) as error:
        raise BadSignature("this session has no valid key: %s" % error) from None
    return str(told.get("purpose")), reply, SessionKeys(shared, document + reply)


def new_secret() -> bytes:
    return os.urandom(KEY_BYTES)
