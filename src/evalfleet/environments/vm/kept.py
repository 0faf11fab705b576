"""Guests that go on from one attempt to the next, for `reset = "restart"` and `"close"`: files of the host, one set per guest.

No process outlives its attempt: for `close` the running guest is saved at the end and goes on in the next attempt. One that was
killed cannot be saved, and the next attempt gets a new one.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Generator
from contextlib import contextmanager

from evalfleet.environments.vm.prepared import KEPT, GuestFiles, Prepared
from evalfleet.errors import VmError

_MOST = 256  # guests of one image at a time on a host


class Kept(GuestFiles, frozen=True, kw_only=True):
    """The files of one guest that goes on."""

    def renew(self, prepared: Prepared, *, running: bool) -> None:
        """Begin with a new guest."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(mode=0o700)
        shutil.copyfile(prepared.empty, self.disk)
        if running:
            shutil.copyfile(prepared.memory, self.memory)
            shutil.copyfile(prepared.state, self.state)


@contextmanager
def taken(prepared: Prepared) -> Generator[Kept]:
    """Take a guest that no other attempt has. Raises VmError where all are taken."""
    folder = prepared.folder.with_name(prepared.folder.name + KEPT)
    folder.mkdir(exist_ok=True, mode=0o700)
    for number in range(_MOST):
        with (folder / f"{number}.lock").open("a") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield Kept(folder=folder / str(number))
            return
    raise VmError(f"all {_MOST} guests of {prepared.golden.disk} are taken")
