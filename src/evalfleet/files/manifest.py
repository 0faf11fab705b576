"""What an attempt in object storage consists of: an object of its own, written last, so that it says that all files are there."""

from __future__ import annotations

import hashlib
import os
import re
from typing import Literal

import msgspec
from msgspec import Struct, field

from evalfleet.errors import FilesUnreachable
from evalfleet.files.base import FileFacts

_PLAIN = re.compile(rb"[^A-Za-z0-9._/-]|\.(?=/|\Z)")
_LONGEST = 200  # of a part of a name


class StoredFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    object: str  # its name below the attempt's
    path: str  # as it is shown
    size: int
    sha256: str
    changed_at: float
    raw: bytes | None = None  # the name, where it is not text

    @property
    def facts(self) -> FileFacts:
        return FileFacts(path=self.name, size=self.size, changed_at=self.changed_at)

    @property
    def name(self) -> str:
        return self.path if self.raw is None else os.fsdecode(self.raw)


class Manifest(Struct, frozen=True, kw_only=True):
    version: Literal[1] = 1
    files: tuple[StoredFile, ...] = field(default=())

    def is_same(self, other: Manifest) -> bool:
        """Whether both have the same files, whenever these were written."""
        return _contents(self) == _contents(other)


def _contents(manifest: Manifest) -> dict[str, str]:
    return {one.object: one.sha256 for one in manifest.files}


def stored_file(name: str, size: int, sha256: str, changed_at: float) -> StoredFile:
    raw = os.fsencode(name)
    is_text = raw.decode("utf-8", "replace") == name
    return StoredFile(
        object=object_name(name),
        path=raw.decode("utf-8", "backslashreplace"),
        size=size,
        sha256=sha256,
        changed_at=changed_at,
        raw=None if is_text else raw,
    )


def object_name(name: str) -> str:
    """A name that every storage takes: plain names as they are, other bytes as =XX, and a hash in place of a long one."""
    raw = os.fsencode(name)
    quoted = _PLAIN.sub(lambda found: b"=%02X" % found[0][0], raw).decode()
    if max(map(len, quoted.split("/"))) > _LONGEST or len(quoted) > 3 * _LONGEST:
        return f"={hashlib.sha256(raw).hexdigest()}"
    return quoted


def encoded(manifest: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1)


def decoded(data: bytes, where: str) -> Manifest:
    try:
        return msgspec.json.decode(data, type=Manifest)
    except msgspec.MsgspecError as error:
        raise FilesUnreachable(f"{where} cannot be understood: {error}") from error
