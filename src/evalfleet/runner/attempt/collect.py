"""Reads the result and artifacts of a dead attempt, and removes secrets from them."""

from __future__ import annotations

import binascii
import errno
import os
import stat

from .. import jsontext
from ..redact import RedactedStream, Redactor
from ..safe_files import enter, open_below, open_folder, open_regular, parts_of, walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_RESULT = 1 << 20
MAX_CLEAN_RESULT = 8 << 20  # as JSON, once names stand in the place of secrets
MAX_FILES = 5000
MAX_DEPTH = 32
MAX_MANIFEST = 4 << 20  # bytes of JSON: an end record must fit into a line of the protocol
INLINE_BYTES = 4 << 20  # above that the work goes to a process of its own
INLINE_FILES = 200
CHUNK = 1 << 20
PATIENCE_S = 300.0
SLOWEST = 1 << 20  # bytes per second; who is slower hangs
FILES = (
    "journal.jsonl",
    "task.json",
    "result.json",
    "events.jsonl",
    "stdout.log",
    "stderr.log",
)  # that an attempt may have
WRITTEN = ("events.jsonl", "task.json")  # besides its result and artifacts, what a task can write into


def read_result(path: str, folder: int | None = None) -> tuple[Any, bool, str | None]:
    """The parsed result, whether there is one, and why it could not be read, if so."""
    try:
        fd = open_regular(path, folder)
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
        return jsontext.parse(data, number="score"), True, None
    except ValueError as error:
        return None, False, str(error)


def clean_file(name: str, redactor: Redactor, folder: int | None = None) -> tuple[int | None, bool]:
    """Redact a text file; only search a binary one.

    A copy without the secrets replaces the file. The file itself is not modified: it may have a second hard link elsewhere.

    Returns:
        The file's new size if it was replaced, and whether it still holds a secret.

    Raises:
        OSError: it could not be read or replaced. It may hold a secret.
    """
    fd = open_regular(name, folder)
    try:
        binary, found = _inspect(fd, redactor)
        if not found or binary:
            return None, found
        return _rewrite(fd, name, folder, redactor), False
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


def _rewrite(fd: int, path: str, folder: int | None, redactor: Redactor) -> int:
    fresh = os.path.join(os.path.dirname(path), ".evalfleet-%s" % binascii.hexlify(os.urandom(8)).decode())
    stream = RedactedStream(redactor)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    out = os.open(fresh, flags, stat.S_IMODE(os.fstat(fd).st_mode) & 0o777 | 0o200, dir_fd=folder)
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
        os.rename(fresh, path, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        os.unlink(fresh, dir_fd=folder)
        raise
    finally:
        os.close(out)
    return size


class AttemptFiles:
    """The files in a dead attempt's folder, found in one walk. Keeps the folder open until `close`."""

    def __init__(self, folder: str, redactor: Redactor) -> None:
        self._redactor = redactor
        self._unclean: list[str] = []
        self._error: str | None = None  # why there are fewer artifacts than the task left
        self._files: list[tuple[str, int]] = []
        self._left_out = 0
        self._here = self._artifacts = -1
        try:
            self._here = open_folder(folder)
            self._artifacts = open_folder("artifacts", self._here)
            found, self._left_out = walk(self._artifacts, MAX_FILES, MAX_DEPTH)
        except FileNotFoundError:
            return
        except OSError as error:
            self._error = self._no_folder(error)
            return
        self._files = [(path, known.st_size) for path, known in found]

    def close(self) -> None:
        for fd in (self._artifacts, self._here):
            if fd >= 0:
                os.close(fd)
        self._here = self._artifacts = -1

    def verdict(self, unknown_secrets: bool = False) -> dict[str, Any]:
        """Read the result, and remove secrets from it and its file: at most 1 MiB, so this is fast.

        Args:
            unknown_secrets: the attempt had secrets that are no longer known: nothing it wrote is trusted.
        """
        result, has_result, error = None, False, None
        if self._here >= 0:
            result, has_result, error = read_result("result.json", self._here)
        if self._redactor and (has_result or error is not None):
            result = self._redactor.value(result)
            self._clean_result()
            if len(jsontext.encode(result)) > MAX_CLEAN_RESULT:
                result, has_result, error = None, False, "it is too large once its secrets are replaced"
        if unknown_secrets and has_result:
            result, has_result, error = None, False, "not read: the runner that knew its secrets died"
        return {"result": result, "has_result": has_result, "result_error": error}

    def _clean_result(self) -> None:
        try:
            if os.stat("result.json", dir_fd=self._here, follow_symlinks=False).st_size > MAX_RESULT:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
            clean_file("result.json", self._redactor, self._here)
        except OSError:
            self._give_up("result.json")

    def _give_up(self, name: str) -> None:
        """Remove a file that may hold a secret and cannot be cleaned; if that fails too, mark it as not to be collected."""
        self._unclean.append(name)
        try:
            os.unlink(name, dir_fd=self._here)
        except OSError:
            pass

    def size(self) -> int:
        """How many bytes `collect` has to read."""
        total = sum(size for _, size in self._files)
        if self._redactor:
            for name in WRITTEN:
                try:
                    total += os.stat(name, dir_fd=self._here, follow_symlinks=False).st_size
                except OSError:
                    pass
        return total

    def heavy(self) -> bool:
        """Whether collecting would delay the other attempts noticeably."""
        return self.size() > INLINE_BYTES or len(self._files) > INLINE_FILES

    def patience_s(self) -> float:
        """How long collecting may take."""
        return PATIENCE_S + self.size() / SLOWEST + len(self._files)

    def collect(self, unknown_secrets: bool = False) -> dict[str, Any]:
        """List the artifacts, remove secrets, and fsync the files.

        Args:
            unknown_secrets: as for `verdict`.
        """
        if self._redactor and self._here >= 0:
            for name in WRITTEN:
                try:
                    clean_file(name, self._redactor, self._here)
                except FileNotFoundError:
                    pass
                except OSError:
                    self._give_up(name)
        return self._record(self._list(self._artifacts, unknown_secrets) if self._files else [])

    def uncollected(self, why: str) -> dict[str, Any]:
        """The record if collecting failed: of an attempt with secrets, only cleaned files are kept."""
        if not self._redactor:
            return self._record([_entry(path, size, False) for path, size in self._files])
        if self._here >= 0:
            for name in WRITTEN:
                self._give_up(name)
        self._left_out += len(self._files)
        self._error = why
        return self._record([])

    def _no_folder(self, error: OSError) -> str:
        try:
            is_link = stat.S_ISLNK(os.stat("artifacts", dir_fd=self._here, follow_symlinks=False).st_mode)
        except (OSError, ValueError):
            is_link = False
        return "the artifacts folder cannot be used: %s" % (
            "it is a symbolic link" if is_link else os.strerror(error.errno or 0)
        )

    def _list(self, here: int, unknown_secrets: bool) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = []
        folders: set[str] = {""}
        for path, size in self._files:
            try:
                entry = self._artifact(here, path, size, unknown_secrets)
            except OSError as error:
                self._left_out += 1
                self._error = "%s: %s" % (self._redactor.text(path), os.strerror(error.errno or 0))
                continue
            entries.append(entry)
            parent = os.path.dirname(path)
            while parent and parent not in folders:
                folders.add(parent)
                parent = os.path.dirname(parent)
        for folder in folders:
            _sync_folder(here, folder)
        return entries

    def _record(self, entries: list[dict[str, Any]]) -> dict[str, Any]:
        room = MAX_MANIFEST
        for place, entry in enumerate(entries):
            room -= len(jsontext.encode(entry))
            if room < 0:
                self._left_out += len(entries) - place
                self._error = "the list of artifacts is longer than %d bytes" % MAX_MANIFEST
                del entries[place:]
                break
        record: dict[str, Any] = {"artifacts": entries}
        if self._left_out:
            record["artifacts_left_out"] = self._left_out
        if self._error is not None:
            record["artifacts_error"] = self._error
        if self._unclean:
            record["unclean"] = self._unclean
        return record

    def _artifact(self, here: int, path: str, size: int, unknown_secrets: bool) -> dict[str, Any]:
        """Clean and fsync one file.

        Raises:
            OSError: it cannot be kept: it may hold a secret, or was replaced meanwhile.
        """
        holds = unknown_secrets
        if self._redactor:
            parts = parts_of(path)
            folder = enter(here, parts[:-1])
            try:
                fresh, holds = clean_file(parts[-1], self._redactor, folder)
            finally:
                os.close(folder)
            size = size if fresh is None else fresh
            path = self._renamed(here, path)
        fd = open_below(here, path)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        return _entry(path, size, holds)

    def _renamed(self, here: int, path: str) -> str:
        """Remove a secret from a file's path; returns the new path.

        Raises:
            OSError: the path still holds it.
        """
        clean = self._redactor.text(path)
        if clean == path:
            return path
        old, new = parts_of(path), parts_of(clean)
        opened: list[int] = []
        try:
            opened.append(enter(here, old[:-1]))
            opened.append(enter(here, new[:-1], make=True))
            if new[-1] in os.listdir(opened[1]):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            os.rename(old[-1], new[-1], src_dir_fd=opened[0], dst_dir_fd=opened[1])
        finally:
            for fd in opened:
                os.close(fd)
        return clean


def _entry(name: str, size: int, holds_secret: bool) -> dict[str, Any]:
    # a name that is not UTF-8 could not be sent as JSON text; escaped it can at least be seen
    entry: dict[str, Any] = {"path": os.fsencode(name).decode("utf-8", "backslashreplace"), "size": size}
    if holds_secret:
        entry["secret"] = True
    return entry


def _sync_folder(here: int, path: str) -> None:
    try:
        fd = enter(here, path.split("/") if path else ())
    except OSError:
        return
    try:
        os.fsync(fd)
    except OSError:
        pass
    finally:
        os.close(fd)


def sync(path: str) -> None:
    """Fsync a folder; errors are ignored."""
    try:
        fd = open_folder(path)
    except OSError:
        return
    try:
        os.fsync(fd)
    except OSError:
        pass
    finally:
        os.close(fd)
