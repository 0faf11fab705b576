"""The spool folder: attempts, stored files, fences."""

from __future__ import annotations

import errno
import json
import os
import stat

from .. import jsontext
from ..attempt.spec import SHA256, RequestRefused, bad
from ..safe_files import open_below, open_folder, parts_of, remove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ..attempt.spec import AttemptSpec

MAX_FENCES = 1000
LOG_BYTES = 1 << 20
COPY_BYTES = 1 << 20


def write_atomically(path: str, data: bytes) -> None:
    """Replace a file so that a reader sees either the old or the new content, even after a crash or on a full disk.

    Raises:
        OSError: the old one is still there.
    """
    fresh = "%s.%d.new" % (path, os.getpid())
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, data)
        os.fsync(fd)
        if os.fstat(fd).st_size != len(data):
            raise OSError(errno.EIO, "written in part", fresh)
        os.rename(fresh, path)
    except OSError:
        _gone(os.unlink, fresh)
        raise
    finally:
        os.close(fd)
    sync_folder(os.path.dirname(path))


def write_all(fd: int, data: bytes) -> None:
    """Write all data: on a nearly full disk one write may store only a part, without an error."""
    while data:
        data = data[os.write(fd, data) :]


def sync_folder(folder: str) -> None:
    """Fsync a folder: a new file name survives a power cut only after that."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _move(folder: str, target: str) -> None:
    try:
        os.rename(folder, target)
    except PermissionError:
        if os.path.islink(folder):
            raise
        os.chmod(folder, 0o700)  # the task closed it, and only who may write into a folder may give it another parent
        os.rename(folder, target)


def _try_to(remove: Callable[[str], None], path: str, failed: list[OSError]) -> None:
    try:
        _gone(remove, path)
    except OSError as error:
        failed.append(error)


def _gone(remove: Callable[[str], None], path: str) -> None:
    try:
        remove(path)
    except FileNotFoundError:
        pass


class Spool:
    """Paths and small files of one spool."""

    def __init__(self, folder: str) -> None:
        self.folder = os.path.realpath(folder)
        self.attempts = os.path.join(self.folder, "attempts")
        self.files = os.path.join(self.folder, "files")
        self._trash = os.path.join(self.folder, "trash")
        self._epochs_path = os.path.join(self.folder, "epochs.json")
        self._log_path = os.path.join(self.folder, "runner.log")
        self._epochs: dict[str, int] = {}
        self._homes: dict[str, str] = {}
        self._is_fenced = True  # what we know of the fences is on the disk
        self.wanted: set[str] = set()  # files that were announced to connected controllers

    def foreign(self) -> str | None:
        """A folder with a name that runners use but that no runner created: a runner would delete its content."""
        if os.path.lexists(self.path("runner.lock")):
            return None  # a runner was here before and created what is in them
        for folder in (self.attempts, self.files, self._trash):
            if os.path.isdir(folder) and os.listdir(folder):
                return folder
        return None

    def make(self) -> None:
        for folder in (self.folder, self.attempts, self.files, self._trash):
            os.makedirs(folder, mode=0o700, exist_ok=True)

    def load(self) -> None:
        """Read the fences. A damaged file is an error: without fences, an old controller could issue commands.

        Files that clients of an earlier runner put only in part are removed.
        """
        for name in os.listdir(self.files):
            if name.startswith("."):
                failed: list[OSError] = []
                _try_to(os.unlink, os.path.join(self.files, name), failed)
                for error in failed:
                    self.log("cannot remove a partial file: %s" % error)
        try:
            with open(self._epochs_path, "rb") as file:
                self._epochs = {str(run): int(epoch) for run, epoch in json.load(file).items()}
        except FileNotFoundError:
            self._epochs = {}
        except (ValueError, AttributeError, TypeError):
            raise OSError("%s is damaged; remove it once no old controller is left" % self._epochs_path) from None

        try:
            with open(self.path("homes.json"), "rb") as file:
                self._homes = {str(run): str(home) for run, home in json.load(file).items()}
        except (OSError, ValueError, AttributeError):
            self._homes = {}  # the next command of each run says whose it is

    def age_s(self) -> float | None:
        """The age of the spool: its lock file is created once and never written."""
        import time

        try:
            return round(max(0.0, time.time() - os.stat(self.path("runner.lock")).st_mtime), 3)
        except OSError:
            return None

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def attempt(self, name: str) -> str:
        return os.path.join(self.attempts, name)

    def claim(self, run: str, home: str, former: list[str]) -> None:
        """Record which home a run belongs to. A copy of a home has the same runs; only one of the two may issue commands.

        Args:
            former: ids of homes that this home replaced.

        Raises:
            Refusal: the run belongs to another home.
        """
        known = self._homes.get(run)
        if known == home:
            return
        if known is not None and known not in former:
            raise RequestRefused(
                "foreign_home",
                "run %s belongs to home %s here, but this is home %s: one is a copy of the other, or has replaced it"
                % (run, known[:12], home[:12]),
            )
        self._homes.pop(run, None)
        self._homes[run] = home
        while len(self._homes) > MAX_FENCES:
            del self._homes[next(iter(self._homes))]
        write_atomically(self.path("homes.json"), json.dumps(self._homes).encode())

    def fence(self, run: str, epoch: int) -> None:
        """Raise the fence of a run to `epoch`, for good.

        Raises:
            Refusal: a newer controller has taken the run.
        """
        known = self._epochs.get(run, -1)
        if epoch < known:
            raise RequestRefused(
                "stale_epoch", "run %s is at epoch %d; this command is from epoch %d" % (run, known, epoch)
            )
        if epoch == known and self._is_fenced:
            return
        self._epochs.pop(run, None)
        self._epochs[run] = epoch
        while len(self._epochs) > MAX_FENCES:
            del self._epochs[next(iter(self._epochs))]
        self._is_fenced = False
        write_atomically(self._epochs_path, json.dumps(self._epochs).encode())
        self._is_fenced = True

    def discard(self, name: str) -> None:
        """Remove an attempt's folder; never fails.

        The folder is first moved into the trash, so that a partly deleted one is never taken for an attempt. What cannot be deleted there
        (a file of another user, as containers leave them) stays and is logged; each new runner tries again.
        """
        folder, target = self.attempt(name), os.path.join(self._trash, name)
        turn = 0
        while os.path.lexists(target):
            turn += 1
            target = os.path.join(self._trash, "%s.%d" % (name, turn))
        try:
            _move(folder, target)
        except FileNotFoundError:
            return  # another process removed it
        except OSError as error:
            self.log("cannot remove %s: %s" % (folder, error))
            return
        self._report(target, remove(target))

    def empty_trash(self) -> None:
        """Try again to delete what could not be deleted; never fails."""
        for name in os.listdir(self._trash):
            path = os.path.join(self._trash, name)
            self._report(path, remove(path))

    def _report(self, path: str, error: OSError | None) -> None:
        if error is not None:
            self.log("%s could not be deleted completely: %s" % (path, error))

    def log(self, text: str) -> None:
        """Write one line to the runner's log; never fails. The log and its predecessor are capped in size."""
        import time

        line = "%s %s\n" % (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), text.rstrip())
        try:
            fd = os.open(self._log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, line.encode("utf-8", "replace"))
                if os.fstat(fd).st_size > LOG_BYTES:
                    os.rename(self._log_path, self._log_path + ".1")
            finally:
                os.close(fd)
        except OSError:
            pass

    def mark_reapable(self, now: float) -> None:
        """Record that the host is no longer needed, and since when. The next runner removes the record."""
        try:
            with open(self.path("reapable"), "w", encoding="utf-8") as file:
                file.write("%f\n" % now)
        except OSError:
            pass  # the spool itself may be gone: all the more reason to end

    def has_file(self, digest: str) -> bool:
        return os.path.exists(os.path.join(self.files, digest))

    def put(self, digest: str, offset: int, data: bytes, last: bool, who: int) -> bool:
        """Store one piece of a file. True if the file is there already and nothing was written.

        Raises:
            Refusal: a piece is missing, or the file does not have that sum.
        """
        if not SHA256.fullmatch(digest):
            raise bad("sha256 must be 64 hexadecimal digits")
        self.wanted.add(digest)
        if self.has_file(digest):
            self._touch(digest)
            return True
        partial = os.path.join(self.files, ".%s.%d" % (digest, who))
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_TRUNC if offset == 0 else 0)
        fd = os.open(partial, flags, 0o600)
        try:
            if os.fstat(fd).st_size != offset:
                raise bad("the next piece begins at %d, not at %d" % (os.fstat(fd).st_size, offset))
            os.lseek(fd, 0, os.SEEK_END)
            write_all(fd, data)
            if last:
                os.fsync(fd)
        finally:
            os.close(fd)
        if last:
            if sha256_of(partial) != digest:
                os.unlink(partial)
                raise bad("the data does not have the sum %s" % digest)
            os.rename(partial, os.path.join(self.files, digest))
        return False

    def _touch(self, digest: str) -> None:
        """Mark a file as used: pruning checks its modification time."""
        os.utime(os.path.join(self.files, digest))

    def stage(self, folder: str, spec: AttemptSpec) -> None:
        """Copy the named files into the attempt's work folder: a task may change its copy, never the stored file.

        Raises:
            Refusal: a file was never put.
        """
        work = os.path.join(folder, "work")
        if spec.files or spec.cwd is None:
            os.mkdir(work, 0o700)
        for path, digest in sorted(spec.files.items()):
            if not self.has_file(digest):
                raise bad("spec.files: %s (%s) was not put" % (path, digest))
            self._touch(digest)
            target = os.path.join(work, path)
            os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
            _copy(os.path.join(self.files, digest), target)


def write_task(folder: str, spec: AttemptSpec) -> None:
    """Write the file that EVALFLEET_TASK points to."""
    fd = os.open(folder + "/task.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, jsontext.encode(spec.task()))
    finally:
        os.close(fd)


def sha256_of(path: str) -> str:
    import hashlib  # only `put` needs it

    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while True:
            data = file.read(COPY_BYTES)
            if not data:
                return digest.hexdigest()
            digest.update(data)


def _copy(source: str, target: str) -> None:
    with open(source, "rb", buffering=0) as file:
        # executable, because sums carry no mode and scripts are the usual case
        out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o755)
        try:
            while os.sendfile(out, file.fileno(), None, COPY_BYTES):
                pass
        finally:
            os.close(out)


def fetch(folder: str, path: str, offset: int, limit: int) -> tuple[bytes, int]:
    """A piece of a regular file below a folder, and the file's size. Follows no links.

    Raises:
        Refusal: the path leads out of the folder, or is not a regular file.
    """
    opened: list[int] = []
    try:
        parts_of(path)
    except OSError:
        raise bad("path must be a plain relative path") from None
    try:
        opened.append(open_folder(folder))
        opened.append(open_below(opened[0], path))
        return os.pread(opened[1], limit, offset), os.fstat(opened[1]).st_size
    except OSError as error:
        raise RequestRefused("io_error", "%s: %s" % (path, error.strerror), errno=error.errno) from None
    finally:
        for fd in opened:
            os.close(fd)


def verify_private(folder: str) -> None:
    """Refuse a runtime folder that another user could have prepared.

    Raises:
        PermissionError: it is not a folder of this user, closed to others.
    """
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError("%s must be a folder of uid %d with mode 0700" % (folder, os.getuid()))
