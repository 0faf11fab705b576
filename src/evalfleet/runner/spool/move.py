"""Handles a spool that is moved while its runner lives, usually together with the home.

Running tasks know the old paths of their files. So the runner creates the old folders again with only a link to the spool, and
removes both when it ends; the link leads the tasks, the runner and other programs that use the old path to the files. The parent
folder is never a link itself: files that are put there, such as a backup, stay there and do not end up in the moved home.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class SpoolMove:
    def __init__(self, folder: str, log: Callable[[str], None]) -> None:
        self._folder = folder
        self._log = log
        self._fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._around = _file(os.path.dirname(folder))
        self._target: str | None = None  # where our link leads
        self._made: list[tuple[str, tuple[int, int]]] = []  # folders, the outermost first
        self._said = ""

    def follow(self) -> None:
        """Check whether the spool is where it was; never fails."""
        try:
            if self._is_there() or os.fstat(self._fd).st_nlink == 0:
                return
            self._leave_link(os.readlink("/proc/self/fd/%d" % self._fd))
        except OSError as error:
            self._say("the spool is not where it was: %s" % error)

    def leave(self) -> None:
        """Remove the link and folders that were created, if they are unchanged and hold nothing else."""
        self._unlink()
        made, self._made = self._made, []
        try:
            for path, file in reversed(made):
                if _file(path) != file:
                    return
                os.rmdir(path)
        except OSError:
            pass

    def _unlink(self) -> None:
        target, self._target = self._target, None
        try:
            if target is not None and os.readlink(self._folder) == target:
                os.unlink(self._folder)
        except OSError:
            pass

    def _is_there(self) -> bool:
        """Also true if something else is there by now."""
        try:
            os.stat(self._folder)
        except FileNotFoundError:
            return False
        return True

    def _leave_link(self, now: str) -> None:
        self._unlink()
        self._make_around()
        if _file(os.path.dirname(self._folder)) not in (self._around, *(file for _, file in self._made)):
            self._say("the spool was moved to %s, and something else is in its old place" % now)
            return
        os.symlink(now, self._folder)
        self._target = now
        self._say("the spool was moved: a link leads from %s to %s" % (self._folder, now))

    def _make_around(self) -> None:
        missing: list[str] = []
        path = os.path.dirname(self._folder)
        while not os.path.lexists(path):
            missing.append(path)
            path = os.path.dirname(path)
        for path in reversed(missing):
            os.mkdir(path, 0o700)
            self._made.append((path, _file(path)))

    def _say(self, words: str) -> None:
        """Log a message once: the check runs several times a second."""
        if words != self._said:
            self._said = words
            self._log(words)


def _file(path: str) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_dev, found.st_ino
