"""Making a home of a backup. Everything is checked before the home is there; a home that exists is never written into."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from msgspec import Struct

from evalfleet.errors import InputError, Owned, Refused, StoreCorrupt
from evalfleet.operations.housekeeping.backup import FILE, KIND, BackupManifest, read_manifest, sum_of
from evalfleet.operations.housekeeping.bundle import BLOCK, is_inside, opened_bundle
from evalfleet.operations.housekeeping.database_copy import check_database
from evalfleet.operations.store_copy import copy_store
from evalfleet.store.copy import refuse_used
from evalfleet.store.database.file_lock import FileLock, holder
from evalfleet.store.home.place import is_there
from evalfleet.store.open import open_store

_CORE = ("run", "task", "attempt")


class Restored(Struct, frozen=True, kw_only=True):
    home: str
    source: str
    rows: int
    files: int
    adopted: bool  # False: it is a copy, to look into, until `--adopt`
    kept: str | None  # where the home that was there before is now
    store: str | None = None  # the server that remembers its runs from now on


def restore(
    source: str | os.PathLike[str], home: Path, *, adopt: bool = False, replace: bool = False, store: str | None = None
) -> Restored:
    """Make the home of a backup.

    Args:
        adopt: it takes the place of the original, which must be gone for good.
        replace: set a home aside that is there and that nothing uses.
        store: the address of an empty PostgreSQL database that remembers its runs from then on; needs `adopt`.

    Raises InputError: no backup, or it was changed; Refused: there is a home; Owned: something uses it, or another restore is at work;
    CopiedHome: the original is in use; StoreError, OSError.
    """
    path = Path(source).expanduser().absolute()
    if store is not None and not adopt:
        raise InputError("--store needs --adopt: on a server it could not be noticed that this home is a copy")
    partial = home.with_name(f"{home.name}.restore")
    home.parent.mkdir(parents=True, exist_ok=True)
    with _locked(home.with_name(f".{home.name}.restore.lock"), home):
        _refuse_home(home, replace=replace)
        shutil.rmtree(partial, ignore_errors=True)  # of a restore that was killed
        partial.mkdir(mode=0o700)
        files = _unpack(path, partial)
        rows = sum(check_database(partial / FILE).values())
        kept = _set_aside(home)
        partial.rename(home)
    if adopt:
        with closing(open_store(home, copies=True)) as opened:
            opened.home.adopt(home)
    if store is not None:
        copy_store(str(home), store, home)
    return Restored(home=str(home), source=str(path), rows=rows, files=files, adopted=adopt, kept=kept, store=store)


@contextmanager
def _locked(path: Path, home: Path) -> Generator[None]:
    lock = FileLock(path)
    try:
        if not lock.acquire(0):
            raise Owned(f"another restore to {home} is at work")
        yield
        path.unlink(missing_ok=True)
    finally:
        lock.close()


def _refuse_home(home: Path, *, replace: bool) -> None:
    if not home.exists() or (home.is_dir() and not any(home.iterdir())):
        return
    if not home.is_dir():
        raise InputError(f"{home} is not a folder")
    runner = holder(home / "spool" / "runner.lock") if (home / "spool").exists() else None
    if runner is not None:
        raise Owned(f"the runner of {home} is at work: end its runs first; nothing was changed")
    if is_there(home):
        with closing(open_store(home, copies=True)) as opened:
            refuse_used(opened)
    if not replace:
        raise Refused(
            f"{home} is there already, and is never overwritten; restore elsewhere, or set it aside with --replace"
        )


def _set_aside(home: Path) -> str | None:
    if not home.exists():
        return None
    if not any(home.iterdir()):
        home.rmdir()
        return None
    number = 1
    while (kept := home.with_name(f"{home.name}.before-restore-{number}")).exists():
        number += 1
    home.rename(kept)
    return str(kept)


def _unpack(source: Path, target: Path) -> int:
    """Copy all files, and check them. Returns how many."""
    if not source.is_dir():
        with opened_bundle(source, KIND) as bundle:
            _refuse_full(bundle.size, target)
            for entry in bundle.manifest.entries:
                bundle.extract(entry, target / entry.name)
            return len(bundle.manifest.entries)
    manifest = read_manifest(source)
    if manifest is None:
        raise InputError(f"{source} is not a backup: it has no backup.json")
    _refuse_full(manifest.database.size + sum(one.size for one in manifest.files), target)
    for one in manifest.files:
        if not is_inside(one.path):
            raise InputError(f"{source}: {one.path!r} leaves its folder")
        _copy(source / one.path, target / one.path)
        if sum_of(target / one.path) != one.sha256:
            raise InputError(f"{source / one.path} is not what the backup wrote; it was changed or is damaged")
    _copy_database(source, target, manifest)
    return len(manifest.files) + 1


def _copy_database(source: Path, target: Path, manifest: BackupManifest) -> None:
    """The file that the manifest means. One that a newer evalfleet has looked into was brought up to date: then its rows count."""
    for name in (FILE, f"{FILE}.new"):  # a backup was killed between its last two steps
        if (source / name).exists() and sum_of(source / name) == manifest.database.sha256:
            _copy(source / name, target / FILE)
            if sum_of(target / FILE) != manifest.database.sha256:
                raise StoreCorrupt(f"{target / FILE} is not what was written to it; check the disk")
            return
    if not (source / FILE).exists():
        raise InputError(f"{source} has no {FILE}")
    found = check_database(source / FILE)
    if any(found.get(table) != manifest.facts.rows.get(table) for table in _CORE):
        raise InputError(f"{source / FILE} is not what the backup wrote; it was changed or is damaged")
    _copy(source / FILE, target / FILE)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        number = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(f"{source} is missing in the backup, or is no file: {error.strerror}") from None
    with open(number, "rb") as file, target.open("xb") as copy:
        os.fchmod(copy.fileno(), 0o600)
        shutil.copyfileobj(file, copy, BLOCK)
    known = source.stat()
    os.utime(target, ns=(known.st_atime_ns, known.st_mtime_ns))


def _refuse_full(size: int, target: Path) -> None:
    free = shutil.disk_usage(target).free
    if size > free:
        raise Refused(
            f"the backup needs {size:,} bytes, and {target.parent} has {free:,} free; make room, or restore elsewhere"
        )
