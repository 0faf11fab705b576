"""A spool that is moved while its runner lives, mostly with the home around it.

Tasks that run know the paths of their files. So the runner makes the old folders anew with nothing in them but a link to the spool,
and takes both away when it ends; through it the tasks, the runner itself and whoever knows only the old place find everything.
The folder around is never a link itself: what somebody puts there, such as a backup, stays there and does not get into what was moved.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Mover:
    def __init__(self, folder: str, log: Callable[[str], None]) -> None:
        self._folder = folder
        self._log = log
        self._fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._around = _file(os.path.dirname(folder))
        self._target: str | None = None  # where our link leads
        self._made: list[tuple[str, tuple[int, int]]] = []  # folders, the outermost first
        self._said = ""

    def follow(self) -> None:
        """Look whether the folder is where it was; never fails."""
        try:
            if self._is_there() or os.fstat(self._fd).st_nlink == 0:
                return
            self._leave_link(os.readlink("/proc/self/fd/%d" % self._fd))
        except OSError as error:
            self._say("the spool is not where it was: %s" % error)

    def leave(self) -> None:
        """Take away what we made, as far as it is still that and nobody has put anything there."""
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
        """Also where something else is there by now."""
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
        """Once: it is looked at several times a second."""
        if words != self._said:
            self._said = words
            self._log(words)


def _file(path: str) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_dev, found.st_ino
