"""A child process that probes the GPUs, so that a driver that hangs blocks only this child.

It is started on first use, and again if it died. It keeps none of the runner's files open: if it were stuck in the driver, it
would otherwise hold the locks of a runner that is gone.
"""

from __future__ import annotations

import os
import signal
import time

from .. import jsontext
from ..attempt import process_tree
from ..loop import READ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional

    from ..loop import Loop, Timer

    Done = Callable[[Optional[Dict[str, Any]]], None]

NVML = "nvml"
LOOK_S = 10.0  # a driver without persistence mode takes seconds to wake up


class ProbeProcess:
    """Asks the child, one probe at a time. Used in the loop's thread."""

    def __init__(self, loop: Loop, spool: str, pids: set[int]) -> None:
        """
        Args:
            pids: the set that holds the child's pid while it lives, so that it is not taken for a stray.
        """
        self._loop = loop
        self._spool = spool
        self._pids = pids
        self._pid = 0
        self._reader = self._writer = -1
        self._data = b""
        self._timer: Timer | None = None
        self._asked: list[Done] = []  # they get the answer that is on its way
        self._next: list[Done] = []  # they asked after that look began
        self.last: dict[str, Any] | None = None
        self.last_at = float("-inf")

    def ask(self, done: Done) -> None:
        """Request a probe that begins after this call; `done` gets `{"from", "rows"}`, or None if there is no answer.

        Without a driver `from` is None, and `problem` says why.
        """
        self._next.append(done)
        if not self._asked:
            self._begin()

    def close(self) -> None:
        """End the child; a later probe starts a new one."""
        if self._pid:
            self._loop.forget(self._reader)
            os.close(self._reader)
            os.close(self._writer)
            process_tree.kill(self._pid)
            self._pid = 0

    def _begin(self) -> None:
        self._asked, self._next = self._next, []
        self._data = b""
        if not self._pid:
            self._start()
        self._timer = self._loop.at(time.monotonic() + LOOK_S, lambda: self._tell(None))
        try:
            os.write(self._writer, b"?")
        except OSError:
            pass  # it died: its end of the other pipe tells

    def _start(self) -> None:
        orders, answers = os.pipe(), os.pipe()
        runner = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                _become_child({orders[0], answers[1]})
                _serve(self._spool, runner, orders[0], answers[1])
            finally:
                os._exit(1)
        os.close(orders[0])
        os.close(answers[1])
        self._reader, self._writer = answers[0], orders[1]
        self._pids.add(self._pid)
        self._loop.watch(self._reader, READ, self._readable)

    def _readable(self, _mask: int) -> None:
        data = os.read(self._reader, 1 << 18)
        self._data += data
        if not data:
            self._tell(None)
        elif self._data.endswith(b"\n"):
            self._tell(jsontext.as_object(jsontext.parse_own(self._data)))

    def _tell(self, found: dict[str, Any] | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.last, self.last_at = found, time.monotonic()
        if found is None or found["from"] is None:
            self.close()
        asked, self._asked = self._asked, []
        for done in asked:
            done(found)
        if self._next and not self._asked:
            self._begin()


def _become_child(keep: set[int]) -> None:
    """Drop what belongs to the runner: signals and open files."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in keep:
            try:
                os.close(int(name))
            except OSError:
                pass  # the folder's own descriptor


def _serve(spool: str, runner: int, orders: int, answers: int) -> None:
    """Answer each byte with a probe, until the runner is gone."""
    from .probe import GpuProbe

    look: GpuProbe | None = None
    while os.read(orders, 1):
        try:
            look = look or GpuProbe(spool, runner)
            told: dict[str, Any] = {"from": NVML, "rows": look.rows()}
        except OSError as error:
            # the runner ends us: a driver that comes back wants a new process
            told = {"from": None, "rows": [], "problem": str(error)}
        data = jsontext.encode(told)
        while data:
            data = data[os.write(answers, data) :]
