"""Files of attempts in folders of this machine."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from pathlib import Path
from types import TracebackType

from evalfleet.files.base import BLOCK, EVERY, AttemptFiles, AttemptKey, FileFacts, OpenFile, blocks, copy, late
from evalfleet.hosts.attempt_files import files_inside, looked_into, open_inside, open_there, remove_folder

_NUMBER = re.compile(r"[0-9]+(\.late)*")


class LocalFile:
    """An open file. Implements `OpenFile`."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor: int | None = descriptor
        self._opened = descriptor
        self.size = os.fstat(descriptor).st_size

    def read(self, offset: int, limit: int) -> bytes:
        return os.pread(self._opened, limit, offset)

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self._opened)
            self.descriptor = None

    def __enter__(self) -> LocalFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class FolderFiles:
    """Implements `AttemptFiles`. A task may still write in the folder: no link is followed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.where = str(folder)

    def list(self, below: str = "", most: int = EVERY) -> list[FileFacts]:
        found = files_inside(self.folder, below, most)
        return [FileFacts(path=path, size=known.st_size, changed_at=known.st_mtime) for path, known in found]

    def open(self, name: str) -> OpenFile | None:
        descriptor = open_inside(self.folder, name)
        return None if descriptor is None else LocalFile(descriptor)


class FolderStore:
    """Folders below one folder, as a home has them in `runs/`. Implements `FileStore`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.where = str(root)

    def folder(self, key: AttemptKey) -> Path:
        return self.root / key.path

    def put(self, key: AttemptKey, folder: Path) -> int:
        target = self.folder(key)
        if target.is_dir():
            if folder == target or sums(FolderFiles(folder)) == sums(FolderFiles(target)):
                return 0
            return self.put(late(key), folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f"{target.name}.partial")
        remove_folder(partial)
        partial.mkdir()
        left_out = copy_regular(folder, partial)
        partial.rename(target)
        return left_out

    def get(self, key: AttemptKey) -> FolderFiles | None:
        folder = self.folder(key)
        return FolderFiles(folder) if folder.is_dir() else None

    def keys(self, run: str | None = None) -> list[AttemptKey]:
        found = self.root.glob(f"{run or '*'}/*/*")
        parts = (path.relative_to(self.root).parts for path in found if _NUMBER.fullmatch(path.name) and path.is_dir())
        return sorted(AttemptKey(*one) for one in parts)

    def delete(self, key: AttemptKey) -> None:
        """Remove the folder: whole at once for those who look, then piece by piece."""
        folder = self.folder(key)
        going = folder.with_name(f"{folder.name}.deleted")
        try:
            remove_folder(going)
            folder.rename(going)
        except FileNotFoundError:
            return
        failed = remove_folder(going)
        if failed is not None:
            raise failed


def copy_regular(source: Path, target: Path) -> int:
    """Copy the regular files below a folder, with their times. Returns how many entries could not be read. Raises OSError."""
    with looked_into(source) as (here, found, left_out):
        for path, known in found:
            try:
                descriptor = open_there(here, path)
            except OSError:
                left_out += 1
                continue
            copy = target / path
            copy.parent.mkdir(parents=True, exist_ok=True)
            with open(descriptor, "rb") as file, copy.open("xb") as written:
                shutil.copyfileobj(file, written, BLOCK)
            os.utime(copy, ns=(known.st_atime_ns, known.st_mtime_ns))
    return left_out


def copy_all(files: AttemptFiles, target: Path) -> None:
    """Copy all files of an attempt, with their times, to an empty folder. Raises OSError, FilesUnreachable."""
    for one in files.list():
        if copy(files, one.path, target / one.path):
            os.utime(target / one.path, (one.changed_at, one.changed_at))


def sums(files: AttemptFiles) -> dict[str, str]:
    """SHA-256 of every file that can be read. Raises FilesUnreachable."""
    found: dict[str, str] = {}
    for one in files.list():
        opened = files.open(one.path)
        if opened is not None:
            with opened:
                digest = hashlib.sha256()
                for block in blocks(opened):
                    digest.update(block)
            found[one.path] = digest.hexdigest()
    return found
