"""What every place for the files of attempts offers.

A place holds whole attempts: one is there with all its files, or not at all, and does not change any more. Only regular files are kept.
Names are relative paths with slashes; a name that is not text has surrogates, as `os.fsdecode` makes them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Protocol

from msgspec import Struct

from evalfleet.layout import task_folder_name

EVERY = 1 << 30
BLOCK = 4 << 20


class AttemptKey(Struct, frozen=True, order=True):
    """Which attempt: the same three names lead to it in every place."""

    run: str
    task: str  # the task's folder name
    name: str  # its number; "3.late" holds what came after the place had been taken

    @classmethod
    def of(cls, run: str, key: str, number: int) -> AttemptKey:
        return cls(run, task_folder_name(key), str(number))

    @property
    def path(self) -> str:
        return f"{self.run}/{self.task}/{self.name}"


class FileFacts(Struct, frozen=True, kw_only=True):
    path: str
    size: int
    changed_at: float

    @property
    def is_text(self) -> bool:
        """Whether the name can be shown: a task may have written any bytes."""
        return not any("\udc80" <= char <= "\udcff" for char in self.path)


class OpenFile(Protocol):
    """One file, which stays readable whatever happens to its name. Use it as a context, or close it."""

    size: int
    descriptor: int | None  # where the whole file is on this machine

    def read(self, offset: int, limit: int) -> bytes:
        """The bytes from there on, fewer only at the end. Raises FilesUnreachable."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> OpenFile: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class AttemptFiles(Protocol):
    """The files of one attempt."""

    @property
    def where(self) -> str:
        """A folder or an address, for people."""
        ...

    def list(self, below: str = "", most: int = EVERY) -> list[FileFacts]:
        """At most that many files below a folder, by their paths relative to it, sorted. Raises FilesUnreachable."""
        ...

    def open(self, name: str) -> OpenFile | None:
        """None where there is no regular file of that name. Raises FilesUnreachable."""
        ...


class FileStore(Protocol):
    """A place for the files of attempts. Every method may raise FilesUnreachable, and can then be tried again."""

    @property
    def where(self) -> str: ...

    def put(self, key: AttemptKey, folder: Path) -> int:
        """Keep the regular files of a folder, which may go afterwards; they are there when this returns, and all at once.

        To put the same files again changes nothing. Other files under the key of an attempt that is there are kept beside it
        ("….late"). Returns how many entries could not be read, and were left out.
        """
        ...

    def get(self, key: AttemptKey) -> AttemptFiles | None:
        """None where the place does not have the attempt."""
        ...

    def keys(self, run: str | None = None) -> list[AttemptKey]:
        """The attempts that are there, of one run or of all."""
        ...

    def delete(self, key: AttemptKey) -> None:
        """Remove an attempt, if it is there."""
        ...


def late(key: AttemptKey) -> AttemptKey:
    """Beside an attempt that is kept already."""
    return AttemptKey(key.run, key.task, f"{key.name}.late")


def read(files: AttemptFiles, name: str, most: int, *, whole: bool = True) -> bytes | None:
    """The content of a file; None if there is none, or if it has more than `most` bytes. Without `whole` it is cut there instead.

    Raises FilesUnreachable.
    """
    found = files.open(name)
    if found is None:
        return None
    with found:
        return None if whole and found.size > most else found.read(0, most)


def blocks(file: OpenFile, size: int = BLOCK) -> Iterator[bytes]:
    """The content, a piece at a time. Raises FilesUnreachable."""
    offset = 0
    while block := file.read(offset, size):
        offset += len(block)
        yield block


def copy(files: AttemptFiles, name: str, target: Path) -> bool:
    """Copy a file to a new one. False if there is none. Raises OSError, FilesUnreachable."""
    found = files.open(name)
    if found is None:
        return False
    with found:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            file.writelines(blocks(found))
    return True


def shown(path: str) -> str:
    """A path in words, whatever its bytes are."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
