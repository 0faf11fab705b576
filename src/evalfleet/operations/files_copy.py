"""Copying the files of attempts from one place to another: out of a home, into it, or between two storages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from evalfleet import config
from evalfleet.answers.home import FilesCopy
from evalfleet.errors import FilesUnreachable, InputError
from evalfleet.files import base
from evalfleet.files.base import AttemptKey, FileStore
from evalfleet.files.folder import FolderStore, copy_all, sums
from evalfleet.files.home import home_files
from evalfleet.files.objects import ObjectStorage
from evalfleet.report.reader import opened_run

HOME = "home"  # the word for the home of `--home`


def copy_files(
    settings: config.Settings,
    source: str,
    target: str,
    *,
    run: str | None = None,
    remove: bool = False,
    notice: Callable[[str], None] = lambda _: None,
) -> FilesCopy:
    """Copy every attempt that is in one place and not in the other, read it back, and compare all files by their SHA-256.

    Args:
        source: the word `home`, or an address as in `[files] url`.
        target: the same.
        run: only attempts of this run.
        remove: remove each attempt from the source after it was compared.
        notice: called with what stays in the source although it should be removed.

    Raises:
        InputError, ConfigError: the places cannot be meant.
        FilesUnreachable, OSError: one of them cannot be read or written; what was copied until then stays.
    """
    old, new = _place(settings, source), _place(settings, target)
    if old.where == new.where:
        raise InputError("the two places are the same")
    chosen = None
    if run is not None:
        with opened_run(settings.home, run) as (_, found):
            chosen = found.id
    keys = old.keys(chosen)
    copied = removed = size = 0
    for key in keys:
        is_new = new.get(key) is None
        bytes_, left_out = _copy(old, new, key)
        copied += is_new
        size += bytes_ if is_new else 0
        if left_out:
            notice(f"{key.path}: {left_out} entries cannot be read, and stay in {old.where}")
        elif remove:
            old.delete(key)
            removed += 1
    return FilesCopy(source=old.where, target=new.where, attempts=len(keys), copied=copied, bytes=size, removed=removed)


def _place(settings: config.Settings, text: str) -> FileStore:
    if text == HOME:
        return home_files(settings.home).folders
    if not config.is_file_place(text):
        raise InputError(f"{text} is not a place for files: it {config.FILE_PLACES}")
    return ObjectStorage(text)


def _copy(old: FileStore, new: FileStore, key: AttemptKey) -> tuple[int, int]:
    """Copy one attempt and compare it. Returns its bytes, and how many entries could not be read."""
    files = old.get(key)
    if files is None:
        return 0, 0  # it was removed meanwhile
    with TemporaryDirectory(prefix="evalfleet-copy-") as temporary:
        if isinstance(old, FolderStore):
            folder = old.folder(key)
        else:
            folder = Path(temporary)
            copy_all(files, folder)
        left_out = new.put(key, folder)
    wanted = sums(files)
    for there in (key, base.late(key), base.late(base.late(key))):
        kept = new.get(there)
        if kept is not None and sums(kept) == wanted:
            return sum(one.size for one in files.list()), left_out
    raise FilesUnreachable(f"{key.path} differs after it was copied to {new.where}; nothing of it was removed")
