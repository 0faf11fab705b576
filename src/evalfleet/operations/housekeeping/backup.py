"""Backups of a home while its runs go on: a folder that grows by what is new, or one file.

The database is copied first, in one transaction; then the files, which are only ever added. Every file is hashed as it is copied and read
again. A folder is itself a home to look into, and a copy: it acts on nothing. A backup that was killed leaves the former one as it was.
Not in a backup: the spool of attempts that are not collected yet, locks, and what names a server of the store.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import msgspec
from msgspec import Struct

from evalfleet.engine.supervisor import owner_name
from evalfleet.errors import InputError, NotFound, Owned, StoreCorrupt
from evalfleet.operations.housekeeping.bundle import BLOCK, BundleWriter, new_file, opened_bundle
from evalfleet.operations.housekeeping.database_copy import copy_database
from evalfleet.operations.housekeeping.prune import LOCK
from evalfleet.store.database.file import FILE
from evalfleet.store.database.file_lock import FileLock
from evalfleet.store.home import identity
from evalfleet.store.home.place import is_there
from evalfleet.store.open import open_store
from evalfleet.store.store import Store
from evalfleet.version import version

MANIFEST = "backup.json"
KIND = "home"
_LOCK = ".backup.lock"
_LEFT_OUT = ("spool", "locks", "write.lock", "store.json", "store.mark", MANIFEST, _LOCK)
_PARTIAL = ".partial"


class BackedUpFile(Struct, frozen=True):
    path: str
    size: int
    sha256: str
    changed_ns: int


class BackupFacts(Struct, frozen=True, kw_only=True):
    """What a backup says of itself."""

    evalfleet: str
    home: str  # its id
    made_at: float
    rows: dict[str, int]  # of the database, by table


class BackupManifest(Struct, frozen=True, kw_only=True):
    format: int = 1
    facts: BackupFacts
    database: BackedUpFile
    files: list[BackedUpFile]


class BackedUp(Struct, frozen=True, kw_only=True):
    home: str
    to: str
    rows: int
    files: int  # in the backup
    bytes: int
    copied: int  # files that were copied now; the others were there already
    copied_bytes: int


def backup(home: Path, to: str | os.PathLike[str]) -> BackedUp:
    """Back a home up, and check what was written.

    Args:
        to: a folder, which gets what it lacks; or a name that ends in .zip, for one new file.

    Raises NotFound; InputError: the target is something else, or lies in the home; Owned: another backup or a prune is at work; StoreError,
    OSError.
    """
    target = Path(to).expanduser().absolute()
    if not is_there(home):
        raise NotFound(f"there is no home in {home}")
    if target.resolve().is_relative_to(home.resolve()):
        raise InputError(f"{target} lies in the home; choose a place outside of it, on another disk if there is one")
    with closing(open_store(home, copies=True)) as store:
        other = store.retention.lock(LOCK, owner_name())
        if other is not None:
            raise Owned(f"{other} is pruning or backing up this home; try again when it has ended")
        try:
            return _to_file(store, home, target) if target.suffix == ".zip" else _to_folder(store, home, target)
        finally:
            store.retention.unlock(LOCK)


def _to_folder(store: Store, home: Path, target: Path) -> BackedUp:
    former = _former(target, _id(store))
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = FileLock(target / _LOCK)
    if not lock.acquire(0):
        lock.close()
        raise Owned(f"another backup to {target} is at work; try again when it has ended")
    try:
        staged = target / f"{FILE}.new"
        staged.unlink(missing_ok=True)
        facts = _facts(store, copy_database(home, staged))
        known = {one.path: one for one in former.files} if former else {}
        kept: dict[str, BackedUpFile] = dict(
            known
        )  # what the home lost since, to retention or by hand, stays in the backup
        copied = copied_bytes = 0
        for path, found in files_of(home):
            before = known.get(path)
            if before is not None and _is_same(before, found) and _has(target / path, before.size):
                continue
            done = _copy(home / path, target / path, path)
            if done is not None:
                kept[path] = done
                copied, copied_bytes = copied + 1, copied_bytes + done.size
        database = BackedUpFile(FILE, staged.stat().st_size, sum_of(staged), 0)
        files = sorted(kept.values(), key=lambda one: one.path)
        _put_in_place(target, staged, BackupManifest(facts=facts, database=database, files=files))
    finally:
        lock.close()
    size = database.size + sum(one.size for one in files)
    return _told(home, target, facts, len(files) + 1, size, copied, copied_bytes)


def _put_in_place(target: Path, staged: Path, manifest: BackupManifest) -> None:
    """The manifest names the database by its sum: killed between the two renames, `restore` takes the newer one of both."""
    new = target / f"{MANIFEST}.new"
    new.write_bytes(msgspec.json.encode(manifest))
    for path in (staged, new):
        with path.open("rb") as file:
            os.fsync(file.fileno())
    for suffix in ("-wal", "-shm"):  # of a look into the former backup
        (target / f"{FILE}{suffix}").unlink(missing_ok=True)
    new.rename(target / MANIFEST)
    staged.rename(target / FILE)


def _to_file(store: Store, home: Path, target: Path) -> BackedUp:
    with new_file(target) as file:
        staged = target.with_name(f".{target.name}.{os.getpid()}.db")
        try:
            facts = _facts(store, copy_database(home, staged))
            writer = BundleWriter(file, KIND)
            entries = [writer.add(FILE, _read(staged))]
        finally:
            staged.unlink(missing_ok=True)
        for path, _ in files_of(home):
            entries += [writer.add(path, _read(home / path))] if (home / path).is_file() else []
        writer.finish(facts)
    try:
        with opened_bundle(target, KIND) as written:
            written.verify()
    except InputError as error:
        target.unlink()
        raise StoreCorrupt(
            f"what was read again is not what was written ({error}); check the disk of {target}"
        ) from None
    size = sum(entry.size for entry in entries)
    return _told(home, target, facts, len(entries), size, len(entries) - 1, size - entries[0].size)


def _told(home: Path, to: Path, facts: BackupFacts, files: int, size: int, copied: int, copied_bytes: int) -> BackedUp:
    rows = sum(facts.rows.values())
    return BackedUp(
        home=str(home), to=str(to), rows=rows, files=files, bytes=size, copied=copied, copied_bytes=copied_bytes
    )


def files_of(home: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Regular files of a home that belong into a backup, by their relative paths. Links are not followed."""
    waiting = [""]
    while waiting:
        below = waiting.pop()
        try:
            entries = sorted(os.scandir(home / below), key=lambda one: one.name)
        except FileNotFoundError:
            continue
        for entry in entries:
            path = f"{below}/{entry.name}" if below else entry.name
            left_out = not below and (entry.name in _LEFT_OUT or entry.name.startswith(FILE))
            if left_out or entry.name.endswith(_PARTIAL) or not _is_text(path):
                continue
            if entry.is_dir(follow_symlinks=False):
                waiting.append(path)
            elif entry.is_file(follow_symlinks=False):
                yield path, entry.stat(follow_symlinks=False)


def _is_text(path: str) -> bool:
    """Whether the manifest can name it: a task may leave a file whose name is no text, and such a one is left out."""
    return not any("\udc80" <= char <= "\udcff" for char in path)


def _copy(source: Path, target: Path, path: str) -> BackedUpFile | None:
    """Copy as much as the file holds now, and read the copy again. None: it is gone. Raises StoreCorrupt."""
    partial = target.with_name(f"{target.name[:200]}{_PARTIAL}")
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    digest, size = hashlib.sha256(), 0
    try:
        number = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with open(number, "rb") as file, partial.open("wb") as copy:
        known = os.fstat(number)
        os.fchmod(copy.fileno(), 0o600)
        while block := file.read(BLOCK):
            digest.update(block)
            size += len(block)
            copy.write(block)
        copy.flush()
        os.fsync(copy.fileno())
    if sum_of(partial) != digest.hexdigest():
        raise StoreCorrupt(f"{partial} is not what was written to it; check the disk of the backup")
    os.utime(partial, ns=(known.st_atime_ns, known.st_mtime_ns))
    partial.rename(target)
    return BackedUpFile(path, size, digest.hexdigest(), known.st_mtime_ns)


def _read(path: Path) -> Generator[bytes]:
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            yield block


def sum_of(path: Path) -> str:
    digest = hashlib.sha256()
    for block in _read(path):
        digest.update(block)
    return digest.hexdigest()


def _is_same(known: BackedUpFile, found: os.stat_result) -> bool:
    return (known.size, known.changed_ns) == (found.st_size, found.st_mtime_ns)


def _has(path: Path, size: int) -> bool:
    try:
        return path.lstat().st_size == size
    except OSError:
        return False


def _facts(store: Store, rows: Mapping[str, int]) -> BackupFacts:
    return BackupFacts(evalfleet=version(), home=_id(store), made_at=store.now(), rows=dict(rows))


def _id(store: Store) -> str:
    known = identity.read(store.database)
    return known.id if known is not None else ""


def read_manifest(folder: Path) -> BackupManifest | None:
    """None where the folder is no backup. Raises InputError."""
    try:
        return msgspec.json.decode((folder / MANIFEST).read_bytes(), type=BackupManifest)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise InputError(f"{folder / MANIFEST} cannot be understood: {error}") from None


def _former(target: Path, home_id: str) -> BackupManifest | None:
    if target.exists() and not target.is_dir():
        raise InputError(f"{target} is not a folder; a backup in one file has a name that ends in .zip")
    former = read_manifest(target)
    left = {f"{FILE}.new", f"{FILE}.new.making", f"{MANIFEST}.new", _LOCK}
    begun = (target / _LOCK).exists()  # by a backup that was killed
    if former is None and target.is_dir() and not begun and {path.name for path in target.iterdir()} - left:
        raise InputError(f"{target} holds something that no backup made; choose a new folder, or empty it")
    if former is not None and former.facts.home != home_id:
        raise InputError(f"{target} holds a backup of another home; choose another folder")
    return former
