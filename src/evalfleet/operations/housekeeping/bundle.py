"""Many files as one: a zip file whose last entry lists all others with their sizes and SHA-256.

A reader trusts nothing in it: names that leave the folder, links, entries that overlap, that nothing lists or that are larger
than they say are refused, and so is what would not fit on the disk. Memory stays small, whatever the size of a file.
"""

from __future__ import annotations

import hashlib
import os
import stat
import zipfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Literal
from urllib.parse import quote

import msgspec
from msgspec import Struct

from evalfleet.errors import InputError

BLOCK = 1 << 20
_MANIFEST = "manifest.json"
_LARGEST_MANIFEST = 1 << 30
_MOST_SQUEEZED = 1100  # times that deflate can shrink a file is 1032
_PACKED = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".gz", ".zip", ".zst", ".xz", ".mp4", ".webm", ".whl", ".pyz")


class Entry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    path: str
    size: int
    sha256: str
    raw: bytes | None = None  # the path, where it is not text

    @property
    def name(self) -> str:
        return self.path if self.raw is None else os.fsdecode(self.raw)


class Manifest(Struct, frozen=True, kw_only=True):
    format: Literal[1] = 1
    kind: str  # run or home
    facts: dict[str, msgspec.Raw]
    entries: tuple[Entry, ...]


class BundleWriter:
    def __init__(self, file: IO[bytes], kind: str) -> None:
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
        self._kind = kind
        self._entries: list[Entry] = []

    def add(self, path: str, blocks: Iterable[bytes]) -> Entry:
        raw = os.fsencode(path)
        shown = path if raw.decode("utf-8", "replace") == path else quote(raw)
        info = zipfile.ZipInfo(shown)
        info.external_attr = (stat.S_IFREG | 0o600) << 16
        info.compress_type = zipfile.ZIP_STORED if shown.lower().endswith(_PACKED) else zipfile.ZIP_DEFLATED
        digest, size = hashlib.sha256(), 0
        with self._zip.open(info, "w", force_zip64=True) as target:
            for block in blocks:
                digest.update(block)
                size += len(block)
                target.write(block)
        entry = Entry(path=shown, size=size, sha256=digest.hexdigest(), raw=None if shown == path else raw)
        self._entries.append(entry)
        return entry

    def finish(self, facts: Struct) -> None:
        told = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in msgspec.to_builtins(facts).items()}
        manifest = Manifest(kind=self._kind, facts=told, entries=tuple(self._entries))
        self._zip.writestr(_MANIFEST, msgspec.json.encode(manifest), zipfile.ZIP_DEFLATED)
        self._zip.close()


class Bundle:
    """An open bundle whose outside is sound; its files are checked as they are read."""

    def __init__(self, file: zipfile.ZipFile, manifest: Manifest, where: str) -> None:
        self._zip = file
        self.manifest = manifest
        self.where = where

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.manifest.entries)

    def blocks(self, entry: Entry) -> Generator[bytes]:
        """The content. Raises InputError at its end where it is not what the manifest says."""
        digest, size = hashlib.sha256(), 0
        try:
            with self._zip.open(entry.path) as file:
                while block := file.read(BLOCK):
                    size += len(block)
                    if size > entry.size:
                        break
                    digest.update(block)
                    yield block
        except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError) as error:
            raise InputError(f"{self.where}: {entry.path!r} cannot be read: {error}") from None
        if (size, digest.hexdigest()) != (entry.size, entry.sha256):
            raise InputError(
                f"{self.where}: {entry.path!r} is not what the manifest says; the file was changed or is damaged"
            )

    def extract(self, entry: Entry, target: Path) -> None:
        """Write one file to a path that does not exist yet."""
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        number = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(number, "wb") as file:
            for block in self.blocks(entry):
                file.write(block)

    def verify(self) -> None:
        for entry in self.manifest.entries:
            for _ in self.blocks(entry):
                pass


@contextmanager
def opened_bundle(path: Path, kind: str) -> Generator[Bundle]:
    """Raises InputError: it is none of that kind, was tampered with, or is damaged."""
    try:
        file = zipfile.ZipFile(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise InputError(f"{path} is not a file of `evalfleet archive` or `evalfleet backup`: {error}") from None
    with file:
        manifest = _manifest(file, path)
        if manifest.kind != kind:
            raise InputError(f"{path} holds a {manifest.kind}, and not a {kind}")
        _check(file, manifest, path)
        yield Bundle(file, manifest, str(path))


def _manifest(file: zipfile.ZipFile, path: Path) -> Manifest:
    try:
        info = file.getinfo(_MANIFEST)
        if info.file_size > _LARGEST_MANIFEST or info.file_size > _MOST_SQUEEZED * max(1, info.compress_size):
            raise InputError(f"{path}: its manifest is larger than any that evalfleet writes")
        return msgspec.json.decode(file.read(info), type=Manifest)
    except KeyError:
        raise InputError(
            f"{path} is not a file of `evalfleet archive` or `evalfleet backup`: it has no manifest"
        ) from None
    except (msgspec.MsgspecError, zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError) as error:
        raise InputError(f"{path}: its manifest cannot be read: {error}") from None


def _check(file: zipfile.ZipFile, manifest: Manifest, path: Path) -> None:
    infos = file.infolist()
    names = [info.filename for info in infos]
    listed = {entry.path: entry for entry in manifest.entries}
    if len(set(names)) != len(names) or len(listed) != len(manifest.entries) or set(names) != {*listed, _MANIFEST}:
        raise InputError(f"{path}: its entries are not those that its manifest lists")
    if sum(info.compress_size for info in infos) > path.stat().st_size:
        raise InputError(f"{path}: its entries overlap")
    for info in infos:
        mode = info.external_attr >> 16
        if info.is_dir() or stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            raise InputError(f"{path}: {info.filename!r} is not a regular file")
        if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InputError(f"{path}: {info.filename!r} is packed in a way that evalfleet does not use")
        entry = listed.get(info.filename)
        if entry is not None and (not is_inside(entry.name) or info.file_size != entry.size):
            raise InputError(f"{path}: {info.filename!r} leaves its folder, or is not as large as it says")
        if info.file_size > _MOST_SQUEEZED * max(1, info.compress_size):
            raise InputError(f"{path}: {info.filename!r} grows too much when it is unpacked")


def is_inside(name: str) -> bool:
    """Whether a relative path stays where it begins, also on a system that has other separators."""
    parts = PurePosixPath(name).parts
    plain = name == "/".join(parts) and not {"..", "."}.intersection(parts) and "\\" not in name and "\0" not in name
    return plain and bool(parts) and not name.startswith("/") and all(len(os.fsencode(part)) < 256 for part in parts)


@contextmanager
def new_file(target: Path) -> Generator[IO[bytes]]:
    """A file that is there whole, or not at all. Raises InputError where it exists already."""
    if target.exists():
        raise InputError(f"{target} exists already; choose another name")
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    target.parent.mkdir(parents=True, exist_ok=True)
    number = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(number, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.link(partial, target)  # never over a file that appeared meanwhile
    except FileExistsError:
        raise InputError(f"{target} exists already; choose another name") from None
    finally:
        partial.unlink(missing_ok=True)
