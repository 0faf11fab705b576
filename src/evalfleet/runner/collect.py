"""What a dead attempt left: its result, its artifacts, and the secrets in them."""

from __future__ import annotations

import errno
import os
import stat

from . import jsontext
from .redact import Redactor, Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_RESULT = 1 << 20
MAX_FILES = 5000
MAX_DEPTH = 32
INLINE_BYTES = 4 << 20  # above that the work goes to a process of its own
INLINE_FILES = 200
CHUNK = 1 << 20
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_regular(path: str, folder: int | None = None) -> int:
    """Open a regular file without following a link or waiting for a FIFO.

    Raises:
        OSError: it is missing, or no regular file.
    """
    fd = os.open(path, READ_FLAGS, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return fd


def read_result(path: str) -> tuple[Any, bool, str | None]:
    """The parsed result, whether there is one, and why a present one could not be read."""
    try:
        fd = open_regular(path)
    except FileNotFoundError:
        return None, False, None
    except OSError as error:
        words = {
            errno.ELOOP: "it is a symbolic link",
            errno.EINVAL: "it is not a regular file",
            errno.ENXIO: "it is not a regular file",
        }
        return None, False, words.get(error.errno or 0) or os.strerror(error.errno or 0)
    try:
        size = os.fstat(fd).st_size
        if size > MAX_RESULT:
            return None, False, "it is larger than %d bytes" % MAX_RESULT
        data = b""
        while len(data) <= MAX_RESULT:
            chunk = os.read(fd, MAX_RESULT + 1 - len(data))
            if not chunk:
                break
            data += chunk
    except OSError as error:
        return None, False, os.strerror(error.errno or 0)
    finally:
        os.close(fd)
    if not data.strip():
        return None, False, "it is empty"
    try:
        return jsontext.parse(data), True, None
    except ValueError as error:
        return None, False, str(error)


def walk(folder: str) -> tuple[list[tuple[str, int]], int]:
    """Regular files below a folder as (relative path, size), sorted, and how many were left out. Links are not followed."""
    found: list[tuple[str, int]] = []
    left_out = 0
    waiting = [("", 0)]
    while waiting:
        below, depth = waiting.pop()
        try:
            with os.scandir(os.path.join(folder, below)) as found_here:
                entries = list(found_here)
        except OSError:
            continue
        for entry in entries:
            path = below + entry.name
            try:
                if entry.is_dir(follow_symlinks=False):
                    if depth < MAX_DEPTH:
                        waiting.append((path + "/", depth + 1))
                    else:
                        left_out += 1
                elif entry.is_file(follow_symlinks=False):
                    if len(found) < MAX_FILES:
                        found.append((path, entry.stat(follow_symlinks=False).st_size))
                    else:
                        left_out += 1
            except OSError:
                left_out += 1
    return sorted(found), left_out


def clean_file(path: str, redactor: Redactor) -> tuple[int | None, bool]:
    """Redact a text file in place; only look into a binary one.

    Returns:
        The file's new size where it was rewritten, and whether it still holds a secret.
    """
    try:
        fd = open_regular(path)
    except OSError:
        return None, False
    try:
        binary, found = _inspect(fd, redactor)
        if not found or binary:
            return None, found
        return _rewrite(fd, path, redactor), False
    except OSError:
        return None, True  # could not be cleaned, so it must not be trusted
    finally:
        os.close(fd)


def _inspect(fd: int, redactor: Redactor) -> tuple[bool, bool]:
    binary = found = False
    overlap = b""
    while True:
        chunk = os.read(fd, CHUNK)
        if not chunk:
            return binary, found
        binary = binary or b"\0" in chunk
        found = found or redactor.finds(overlap + chunk)
        if found and binary:
            return binary, found
        overlap = (overlap + chunk)[-redactor.longest :]


def _rewrite(fd: int, path: str, redactor: Redactor) -> int:
    folder, name = os.path.split(path)
    fresh = os.path.join(folder, ".%s.redacted" % name[:200])
    stream = Stream(redactor)
    out = os.open(
        fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, stat.S_IMODE(os.fstat(fd).st_mode) | 0o200
    )
    size = 0
    try:
        os.lseek(fd, 0, os.SEEK_SET)
        while True:
            chunk = os.read(fd, CHUNK)
            data = stream.feed(chunk) if chunk else stream.flush()
            size += len(data)
            while data:
                data = data[os.write(out, data) :]
            if not chunk:
                break
        os.fsync(out)
        os.rename(fresh, path)
    except OSError:
        os.unlink(fresh)
        raise
    finally:
        os.close(out)
    return size


class Leavings:
    """What lies in a dead attempt's folder, found with one walk."""

    def __init__(self, folder: str, redactor: Redactor) -> None:
        self.folder = folder
        self.redactor = redactor
        self.artifacts = os.path.join(folder, "artifacts")
        self.files, self.left_out = walk(self.artifacts)

    def heavy(self) -> bool:
        """Whether collecting would stop the other attempts for long."""
        total = sum(size for _, size in self.files)
        if self.redactor:
            try:
                total += os.lstat(os.path.join(self.folder, "events.jsonl")).st_size
            except OSError:
                pass
        return total > INLINE_BYTES or len(self.files) > INLINE_FILES

    def collect(self, unknown_secrets: bool = False) -> dict[str, Any]:
        """Read the result, list the artifacts, remove secrets, and bring the files to the disk.

        Args:
            unknown_secrets: the attempt had secrets that nobody can tell any more: nothing it wrote is trusted.
        """
        result, has_result, result_error = read_result(os.path.join(self.folder, "result.json"))
        if self.redactor:
            result = self.redactor.value(result)
            for name in ("result.json", "events.jsonl"):
                clean_file(os.path.join(self.folder, name), self.redactor)
        if unknown_secrets and has_result:
            result, has_result, result_error = None, False, "not read: its secrets died with the runner"
        record: dict[str, Any] = {"result": result, "has_result": has_result, "result_error": result_error}
        record["artifacts"] = [self._artifact(path, size, unknown_secrets) for path, size in self.files]
        if self.left_out:
            record["artifacts_left_out"] = self.left_out
        if self.files:
            sync(self.artifacts)
        return record

    def uncollected(self, why: str) -> dict[str, Any]:
        """The record when collecting itself failed: nothing is trusted."""
        files = [_entry(path, size, bool(self.redactor)) for path, size in self.files]
        return {"result": None, "has_result": False, "result_error": why, "artifacts": files}

    def _artifact(self, name: str, size: int, unknown_secrets: bool) -> dict[str, Any]:
        path = os.path.join(self.artifacts, name)
        holds = unknown_secrets
        if self.redactor:
            fresh, holds = clean_file(path, self.redactor)
            size = size if fresh is None else fresh
            name, holds = self._rename(name, holds)
            path = os.path.join(self.artifacts, name)
        sync(path)
        return _entry(name, size, holds)

    def _rename(self, name: str, holds: bool) -> tuple[str, bool]:
        """Take a secret out of a file's path; the new path, and whether the file still holds one."""
        clean = self.redactor.text(name)
        if clean == name:
            return name, holds
        target = os.path.join(self.artifacts, clean)
        try:
            os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
            os.rename(os.path.join(self.artifacts, name), target)
        except OSError:
            return name, True
        return clean, holds


def _entry(name: str, size: int, holds_secret: bool) -> dict[str, Any]:
    # a name that is not UTF-8 could not be sent as JSON text; escaped it can at least be seen
    entry: dict[str, Any] = {"path": os.fsencode(name).decode("utf-8", "backslashreplace"), "size": size}
    if holds_secret:
        entry["secret"] = True
    return entry


def sync(path: str) -> None:
    """Bring one file or folder to the disk, as far as it goes."""
    try:
        fd = os.open(path, READ_FLAGS)
    except OSError:
        return
    try:
        os.fsync(fd)
    except OSError:
        pass
    finally:
        os.close(fd)
