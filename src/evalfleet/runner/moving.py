"""A spool that is moved while its runner lives.

Tasks that run know the paths of their files. So the runner leaves a link in the place of what was moved, and takes it away when
it ends; through it the tasks, the runner itself and whoever knows only the old place find everything.
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
        self._link: tuple[str, str] | None = None  # where it is, and where it leads

    def follow(self) -> None:
        """Look whether the folder is where it was; never fails."""
        try:
            if self._is_there() or os.fstat(self._fd).st_nlink == 0:
                return
            self.leave()
            self._leave_link(os.readlink("/proc/self/fd/%d" % self._fd))
        except OSError as error:
            self._log("the spool is not where it was: %s" % error)

    def leave(self) -> None:
        """Take the link away, if it is still ours."""
        if self._link is not None:
            path, target = self._link
            self._link = None
            try:
                if os.readlink(path) == target:
                    os.unlink(path)
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
        moved = self._folder
        while not os.path.lexists(os.path.dirname(moved)):
            moved = os.path.dirname(moved)
        rest = self._folder[len(moved) :]
        if not now.endswith(rest):
            return  # more than one part of the path has another name
        target = now[: len(now) - len(rest)]
        os.symlink(target, moved)
        self._link = (moved, target)
        self._log("the spool was moved: a link leads from %s to %s" % self._link)
