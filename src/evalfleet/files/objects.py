"""Files of attempts as objects of a storage such as Azure Blob Storage or S3.

An attempt is `runs/<run>/<task>/<number>/<path>` for each file, and the manifest `runs/<run>/<task>/<number>.json`, which is written
last and only where there is none. So an attempt is there at once and whole, and an upload that was killed is done again in place.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from evalfleet.errors import FilesUnreachable
from evalfleet.files import address
from evalfleet.files.base import BLOCK, EVERY, AttemptKey, FileFacts, OpenFile, late
from evalfleet.files.cache import Cache
from evalfleet.files.folder import LocalFile
from evalfleet.files.manifest import Manifest, StoredFile, decoded, encoded, stored_file
from evalfleet.hosts.attempt_files import looked_into, open_there

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_SMALL = 1 << 20  # bytes of a file that is sent in one piece
_AT_ONCE = 8  # small files
_LARGE_AT_ONCE = 2
_PART = 8 << 20  # of a large file
_PARTS_AT_ONCE = 2
_KNOWN = 1000  # manifests that are remembered


class ObjectStorage:
    """Implements `FileStore`. May be used by several threads."""

    def __init__(self, url: str, cache: Cache | None = None, store: ObjectStore | None = None) -> None:
        """
        Args:
            store: what the address leads to, for tests.
        """
        self.where = url.rstrip("/")
        self._store = address.opened(url) if store is None else store
        self.cache = cache
        self._known: OrderedDict[AttemptKey, Manifest] = OrderedDict()
        self._mutex = threading.Lock()
        self._pool = ThreadPoolExecutor(_AT_ONCE, "files")
        self._large = threading.Semaphore(_LARGE_AT_ONCE)

    # FileStore

    def put(self, key: AttemptKey, folder: Path) -> int:
        known = self._manifest(key)
        with looked_into(folder) as (here, found, left_out):
            send = partial(self._sent, key, here, only_sum=known is not None)
            files = [one for one in self._pool.map(send, found) if one is not None]
        manifest = Manifest(files=tuple(files))
        if known is None:
            known = self._finish(key, manifest)
        if not known.is_same(manifest):
            return self.put(late(key), folder)
        return left_out + len(found) - len(files)

    def get(self, key: AttemptKey) -> ObjectFiles | None:
        manifest = self._manifest(key)
        return None if manifest is None else ObjectFiles(self, key, manifest)

    def keys(self, run: str | None = None) -> list[AttemptKey]:
        prefix = f"runs/{run}" if run else "runs"
        found = (one.split("/")[1:] for one in self._names(prefix) if one.count("/") == 3 and one.endswith(".json"))
        return sorted(AttemptKey(run, task, name.removesuffix(".json")) for run, task, name in found)

    def delete(self, key: AttemptKey) -> None:
        import obstore

        with self._mutex:
            self._known.pop(key, None)
        for names in ([_manifest_name(key)], list(self._names(f"runs/{key.path}"))):
            for name in names:
                try:
                    with address.told(self.where):
                        obstore.delete(self._store, name)
                except FileNotFoundError:
                    continue

    def probe(self) -> None:
        """Write, read and delete a small object. Raises FilesUnreachable."""
        import obstore

        name, data = f"doctor/{os.urandom(8).hex()}", b"evalfleet doctor"
        try:
            with address.told(self.where):
                obstore.put(self._store, name, data, use_multipart=False)
                found = bytes(obstore.get(self._store, name).bytes())
                obstore.delete(self._store, name)
        except FileNotFoundError as error:
            raise FilesUnreachable(f"{self.where}: what was written is not there ({address.words(error)})") from None
        if found != data:
            raise FilesUnreachable(f"{self.where}: something else was read than was written")

    # Writing

    def _sent(
        self, key: AttemptKey, here: int, found: tuple[str, os.stat_result], *, only_sum: bool
    ) -> StoredFile | None:
        """Send one file, or just look what it is. None where it cannot be read."""
        path, known = found
        try:
            descriptor = open_there(here, path)
        except OSError:
            return None
        with LocalFile(descriptor) as file:
            reader = _SummedReader(file)
            if only_sum:
                for _ in reader:
                    pass
            else:
                name = f"runs/{key.path}/{stored_file(path, 0, '', 0.0).object}"
                self._send(name, file, reader)
            return stored_file(path, reader.size, reader.digest.hexdigest(), known.st_mtime)

    def _send(self, name: str, file: LocalFile, reader: _SummedReader) -> None:
        import obstore

        try:
            with address.told(self.where):
                if file.size <= _SMALL:
                    obstore.put(self._store, name, b"".join(reader), use_multipart=False)
                    return
                with self._large:
                    obstore.put(self._store, name, reader, chunk_size=_PART, max_concurrency=_PARTS_AT_ONCE)
        except FileNotFoundError as error:
            raise FilesUnreachable(f"{self.where}: {address.words(error)}") from None

    def _finish(self, key: AttemptKey, manifest: Manifest) -> Manifest:
        """Write the manifest where there is none. Returns the one that is there."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        try:
            with address.told(self.where):
                obstore.put(self._store, _manifest_name(key), encoded(manifest), mode="create", use_multipart=False)
        except AlreadyExistsError:
            there = self._manifest(key)
            if there is None:
                raise FilesUnreachable(f"{self.where}: {key.path} was removed while it was written") from None
            return there
        except FileNotFoundError as error:
            raise FilesUnreachable(f"{self.where}: {address.words(error)}") from None
        return self._remembered(key, manifest)

    # Reading

    def _manifest(self, key: AttemptKey) -> Manifest | None:
        import obstore

        with self._mutex:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
        try:
            with address.told(self.where):
                data = bytes(obstore.get(self._store, _manifest_name(key)).bytes())
        except FileNotFoundError:
            return None
        return self._remembered(key, decoded(data, f"{self.where}/{_manifest_name(key)}"))

    def _remembered(self, key: AttemptKey, manifest: Manifest) -> Manifest:
        with self._mutex:
            self._known[key] = manifest
            while len(self._known) > _KNOWN:
                self._known.popitem(last=False)
        return manifest

    def _names(self, prefix: str) -> Iterator[str]:
        import obstore

        with address.told(self.where):
            for page in obstore.list(self._store, prefix=prefix):  # pyright: ignore[reportUnknownMemberType] - its other results are of pyarrow
                for one in page:
                    yield one["path"]

    def opened(self, key: AttemptKey, file: StoredFile) -> OpenFile:
        """From the cache where it fits in, else piece by piece from the storage."""
        remote = ObjectFile(self, f"runs/{key.path}/{file.object}", file.size)
        if self.cache is None or not self.cache.takes(file.size):
            return remote
        descriptor = self.cache.open(file.sha256)
        if descriptor is None:
            descriptor = self.cache.add(file.sha256, iter(partial(remote.next), b""))
        return ObjectFile(self, remote.name, file.size) if descriptor is None else LocalFile(descriptor)

    def range(self, name: str, offset: int, length: int) -> bytes:
        import obstore

        try:
            with address.told(self.where):
                return bytes(obstore.get_range(self._store, name, start=offset, length=length))
        except FileNotFoundError as error:
            raise FilesUnreachable(f"{self.where}: a file is gone: {address.words(error)}") from None


class ObjectFiles:
    """Implements `AttemptFiles`."""

    def __init__(self, storage: ObjectStorage, key: AttemptKey, manifest: Manifest) -> None:
        self.where = f"{storage.where}/runs/{key.path}"
        self.manifest = manifest
        self._storage = storage
        self._key = key
        self._files = {one.name: one for one in manifest.files}

    def list(self, below: str = "", most: int = EVERY) -> list[FileFacts]:
        start = f"{below}/" if below else ""
        inside = sorted(name for name in self._files if name.startswith(start))[:most]
        found = (self._files[name] for name in inside)
        return [FileFacts(path=one.name.removeprefix(start), size=one.size, changed_at=one.changed_at) for one in found]

    def open(self, name: str) -> OpenFile | None:
        file = self._files.get(name)
        return None if file is None else self._storage.opened(self._key, file)


class ObjectFile:
    """A file that is read from the storage, range by range. Implements `OpenFile`."""

    descriptor: int | None = None

    def __init__(self, storage: ObjectStorage, name: str, size: int) -> None:
        self.name = name
        self.size = size
        self._storage = storage
        self._at = 0

    def read(self, offset: int, limit: int) -> bytes:
        length = min(limit, self.size - offset)
        return self._storage.range(self.name, offset, length) if length > 0 else b""

    def next(self) -> bytes:
        """The next piece; none at the end."""
        block = self.read(self._at, BLOCK)
        self._at += len(block)
        return block

    def close(self) -> None:
        pass

    def __enter__(self) -> ObjectFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class _SummedReader:
    """The content of a file in pieces, with its sum and size so far."""

    def __init__(self, file: LocalFile) -> None:
        self.digest = hashlib.sha256()
        self.size = 0
        self._file = file

    def __iter__(self) -> Iterator[bytes]:
        while block := self._file.read(self.size, BLOCK):
            self.digest.update(block)
            self.size += len(block)
            yield block


def _manifest_name(key: AttemptKey) -> str:
    return f"runs/{key.path}.json"
