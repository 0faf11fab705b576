"""Where the database of a home is: in the home itself, or on a PostgreSQL server that a file in the home names.

The file is written when a home is used with `[store] url` for the first time, so that every process of the home finds the same store,
whatever folder it was started in. It is never written again: its number tells a home from its copy, as that of an SQLite file does.
Further folders may join the home (`join`); such a folder is a *member*, and its file says which.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from evalfleet import config
from evalfleet.errors import StoreCorrupt, StoreError
from evalfleet.store.database.file import FILE

POINTER = "store.json"
_STAGED = "store.json.new"
_MARK = "store.mark"


class Pointer(msgspec.Struct, frozen=True, omit_defaults=True):
    url: str
    member: str = ""  # which further folder of the home it is; "": the first one


class Mark(msgspec.Struct, frozen=True):
    """An event that this home has seen in its store: one that lacks it was restored from an older backup."""

    number: int
    at: float
    type: str


def is_there(home: Path) -> bool:
    """Whether a home has a store already."""
    return anchor(home).exists()


def anchor(home: Path) -> Path:
    """The file that stands for the home's store on this machine."""
    pointer = home / POINTER
    return pointer if pointer.exists() else home / FILE


def pointed(home: Path) -> str | None:
    """The address that the file in the home names; None: there is no such file. Raises StoreCorrupt."""
    pointer = _read(home)
    return None if pointer is None else pointer.url


def member_of(home: Path) -> str:
    """Which further folder of a home it is; "": the first one. Raises StoreCorrupt."""
    pointer = _read(home)
    return "" if pointer is None else pointer.member


def _read(home: Path) -> Pointer | None:
    try:
        text = (home / POINTER).read_bytes()
    except (OSError, ValueError):
        return None
    try:
        return msgspec.json.decode(text, type=Pointer)
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(f"{home / POINTER} cannot be understood ({error}); restore it from a backup") from error


def url_of(home: Path) -> str | None:
    """The address of the home's store on a server; None: it is in the home. Raises StoreError, StoreCorrupt."""
    wanted, known = config.store_urls.get(home), pointed(home)
    if known is None:
        if wanted is not None and (home / FILE).exists():
            raise StoreError(
                f"{home} has its runs in {FILE}, and [store] url names a server; `evalfleet store copy {home} URL` moves them there"
            )
        return wanted
    if wanted is not None and wanted != known:
        raise StoreError(
            f"{home} has its store at {known}, and [store] url names another one; `evalfleet store copy {home} URL` moves it"
        )
    return known


def point(home: Path, url: str) -> None:
    """Let the home use that store from now on. Does nothing where it does already."""
    with suppress(FileExistsError):
        _write(home / POINTER, Pointer(url))


def stage(home: Path, url: str, member: str = "") -> Path:
    """Write the file beside its place; `use_staged` puts it there. Its number is that of the file in place."""
    file = home / _STAGED
    file.unlink(missing_ok=True)
    _write(file, Pointer(url, member))
    return file


def use_staged(home: Path) -> None:
    (home / _STAGED).rename(home / POINTER)


def set_aside(file: Path) -> str:
    """Keep a file that is not used any more under another name, which is returned."""
    kept = file.with_name(f"{file.name}.copied")
    file.rename(kept)
    return str(kept)


def _write(file: Path, pointer: Pointer) -> None:
    number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "wb") as opened:
        opened.write(msgspec.json.encode(pointer))
        opened.flush()
        os.fsync(number)


def mark_file(home: Path) -> Path:
    return home / _MARK


def read_mark(home: Path) -> Mark | None:
    try:
        return msgspec.json.decode(mark_file(home).read_bytes(), type=Mark)
    except (OSError, msgspec.MsgspecError):
        return None


def write_mark(home: Path, mark: Mark) -> None:
    partial = home / f"{_MARK}.{os.getpid()}"
    with suppress(OSError):  # it only serves to notice a backup
        partial.write_bytes(msgspec.json.encode(mark))
        partial.rename(mark_file(home))
