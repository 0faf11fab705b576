"""On a node that others use, too: what a pilot has there ends with it, however it dies.

A cluster that keeps jobs in control groups ends all processes of a job, and leaves their files; one without leaves processes as well.
"""

from __future__ import annotations

import fcntl
import glob
import os
import pkgutil
import shutil
import subprocess
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO

LAUNCH = "import os, sys; os.fork() and os._exit(0); os.setsid(); exec(sys.argv[1])"
LOCK = "pilot.lock"
SLOT_LOCKS = "EVALFLEET_SLOT_LOCKS"
END_S = 15.0
NEW_S = 60.0  # a folder without a lock may belong to a job that has just begun


class Guarded:
    """One folder, in which everything of this pilot is. Its siblings are those of other jobs of this user on the node."""

    def __init__(self, own: str) -> None:
        """
        Args:
            own: the folder; empty: the node is the pilot's alone, and nothing is done.
        """
        self._own = own
        self._lock: IO[bytes] | None = None
        self._alive: int | None = None

    def start(self, spool: str, programs: str) -> None:
        """Have a process of its own end the runner and remove the folder after us; clean up after pilots without such a process."""
        if not self._own:
            return
        os.environ[SLOT_LOCKS] = os.path.join(self._own, "slots")  # jobs do not share slots
        self._lock = open(os.path.join(self._own, LOCK), "wb")  # noqa: SIM115 - held until the process ends
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        reader, self._alive = os.pipe()  # nothing is ever written: its end is the end of this process
        try:
            self._launch(reader, spool, programs, self._own, inherited=(self._lock.fileno(),))
        finally:
            os.close(reader)
        self._sweep()

    def end(self) -> None:
        """Wait until nothing is left."""
        if self._alive is None:
            return
        os.close(self._alive)
        self._alive = None
        deadline = time.monotonic() + END_S
        while os.path.isdir(self._own) and time.monotonic() < deadline:
            time.sleep(0.05)

    def _sweep(self) -> None:
        for folder in glob.glob(os.path.join(os.path.dirname(self._own), "*")):
            if folder == self._own or not _is_left(folder):
                continue
            spools = glob.glob(os.path.join(glob.escape(folder), "*", "*", "spool"))
            for spool in spools:
                with open(os.devnull, "rb") as nothing:
                    self._launch(nothing.fileno(), spool, os.path.dirname(spool), folder)
            if not spools:
                shutil.rmtree(folder, ignore_errors=True)

    def _launch(self, stdin: int, spool: str, programs: str, removed: str, inherited: tuple[int, ...] = ()) -> None:
        """A child of init, in a session of its own, because a cluster ends the children of a job."""
        text = pkgutil.get_data(__package__ or "", "runner_guard.py") or b""
        words = [sys.executable, "-I", "-S", "-c", LAUNCH, text.decode(), spool, programs, removed]
        null = subprocess.DEVNULL
        subprocess.run(
            words, stdin=stdin, stdout=null, stderr=null, check=True, start_new_session=True, pass_fds=inherited
        )


def _is_left(folder: str) -> bool:
    """Whether neither a pilot nor its guard has it any more."""
    try:
        if os.stat(folder).st_uid != os.getuid():
            return False
        with open(os.path.join(folder, LOCK), "rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        try:
            return time.time() - os.stat(folder).st_mtime > NEW_S
        except OSError:
            return False
    except OSError:
        return False
    return True
