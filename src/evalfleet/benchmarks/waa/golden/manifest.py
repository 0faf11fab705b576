"""What a golden image is: the files of its folder, their hashes, and how they were made."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from evalfleet.errors import InputError

NAME = "evalfleet-golden.json"
DISK = "data.img"
BOOT = "windows.boot"  # written by the container when Windows was installed and has ended well: without it, Windows is installed anew
_CHUNK = 4 << 20


class GoldenFile(Struct, frozen=True, kw_only=True):
    name: str
    bytes: int
    sha256: str


class Golden(Struct, frozen=True, kw_only=True):
    """One golden image, as its folder tells of it."""

    name: str
    created_at: str  # ISO 8601, UTC
    image: str  # of the container that made it
    digest: str | None  # of that image
    iso: str | None  # where Windows came from; None: the container downloaded it
    iso_sha256: str | None
    eula_accepted: bool
    programs: tuple[str, ...]  # that were found in it
    stages_s: Mapping[str, float]  # how long each stage of the build took
    evalfleet: str  # version
    files: tuple[GoldenFile, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def read(folder: Path) -> Golden | None:
    """The manifest of a folder; None where there is none. Raises InputError where it cannot be read."""
    try:
        return parsed((folder / NAME).read_bytes(), str(folder / NAME))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InputError(f"{folder / NAME}: {error}") from None


def parsed(data: bytes, name: str) -> Golden:
    """Raises InputError where it cannot be understood."""
    try:
        return msgspec.json.decode(data, type=Golden)
    except msgspec.DecodeError as error:
        raise InputError(f"{name}: {error}") from None


def write(folder: Path, golden: Golden) -> None:
    """Last of all, and at once: a folder without it is not finished."""
    partial = folder / f"{NAME}.partial"
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(golden)) + b"\n")
    partial.replace(folder / NAME)


def files_in(folder: Path) -> tuple[GoldenFile, ...]:
    """All files of the folder but the manifest, with their hashes. Thirty gigabytes take a minute or two."""
    found = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith(NAME))
    return tuple(GoldenFile(name=path.name, bytes=path.stat().st_size, sha256=sha256_of(path)) for path in found)


def differences(folder: Path, golden: Golden) -> list[str]:
    """What is not as the manifest says; empty where all is well."""
    wrong: list[str] = []
    for file in golden.files:
        path = folder / file.name
        if not path.is_file():
            wrong.append(f"{file.name} is missing")
        elif path.stat().st_size != file.bytes:
            wrong.append(f"{file.name} has {path.stat().st_size} bytes, not {file.bytes}")
        elif sha256_of(path) != file.sha256:
            wrong.append(f"{file.name} was changed")
    return wrong


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as source:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def protect(folder: Path) -> None:
    """Let nobody write to the image by mistake."""
    for path in folder.iterdir():
        os.chmod(path, 0o444)
