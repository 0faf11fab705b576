"""The GPUs of this host, for the runner's loop. Loads nothing on hosts without GPUs.

A file `gpus.json` in the spool replaces the driver, for tests and for machines without a GPU; it is read at each probe.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Dict

    from ..attempt.spec import AttemptSpec
    from ..loop import Loop, Timer
    from .lease import AttemptGpus, GpuLeases
    from .probe_process import ProbeProcess

    Row = Dict[str, Any]

STAND_IN = "gpus.json"
SIGNS = ("/dev/nvidiactl", "/proc/driver/nvidia", "/dev/dxg")  # of a driver; the last one is WSL's
GIVEN = "EVALFLEET_GPUS_GIVEN"  # as CUDA_VISIBLE_DEVICES: the host gave these to the runner, and the others belong to others
LIBRARY = "EVALFLEET_NVML"  # names the file of NVIDIA's library, where it lies in an odd place
REFRESH_S = 2.0
OLD_S = 5.0  # an older probe is not reported
FIRST_S = 4.0  # how long an answer may wait for the first look
NONE_S = 60.0  # after a look that found no driver, or hung


def stand_in(spool: str) -> str:
    return os.path.join(spool, STAND_IN)


def given(rows: list[Row]) -> list[Row]:
    """Those of a host's GPUs that this runner may use: all, unless the host gave it some."""
    if GIVEN not in os.environ:
        return rows
    names = [name.strip() for name in os.environ[GIVEN].split(",") if name.strip()]
    return [row for row in rows if any(name == str(row["index"]) or row["uuid"].startswith(name) for name in names)]


def may_have_gpus() -> bool:
    """Whether this host shows signs of GPUs, so that probing is worthwhile."""
    if os.environ.get(LIBRARY) or any(os.path.exists(path) for path in SIGNS):
        return True
    folders = os.environ.get("PATH", os.defpath).split(":")
    return any(os.access(os.path.join(folder, "nvidia-smi"), os.X_OK) for folder in folders if folder)


class Gpus:
    """Probes, reports and leases the GPUs. Used in the loop's thread; no method waits."""

    def __init__(self, loop: Loop, spool: str, connected: Callable[[], bool], pids: set[int]) -> None:
        """
        Args:
            connected: whether a client is connected.
            pids: the set for the probe process's pid, so that it is not taken for a stray.
        """
        self.loop = loop
        self.spool = spool
        self._connected = connected
        self._pids = pids
        self._watch: ProbeProcess | None = None
        self._leases: GpuLeases | None = None
        self._refresh: Timer | None = None
        self._none_until = float("-inf")
        self._nothing: list[Row] | None = []  # what there is to see until then
        self._problem: str | None = None  # why the GPUs of a host with signs of a driver cannot be seen

    def tell(self, done: Callable[[dict[str, Any]], None], wait: bool) -> None:
        """The GPU fields of `hello` and `inventory`: at once if they are known, else after the first probe if the caller may wait."""
        told = self._known()
        if told is not None or not wait:
            done(told or _facts(None, []))
            return
        answered: list[bool] = []

        def answer(_found: list[Row] | None) -> None:
            if not answered:
                answered.append(True)
                timer.cancel()
                done(self._known() or _facts(None, []))

        timer = self.loop.at(time.monotonic() + FIRST_S, lambda: answer(None))
        self.look(answer)

    def look(self, done: Callable[[list[Row] | None], None]) -> None:
        """The state of every GPU after this call; None if the driver does not answer."""
        rows = self._stand_in()
        if rows is not None:
            done(rows)
        elif not self._may_look():
            done(self._nothing if time.monotonic() < self._none_until else [])
        else:
            self._watching().ask(lambda found: done(self._looked(found)))

    def lease(
        self,
        attempt: str,
        spec: AttemptSpec,
        go: Callable[[dict[str, str], list[int]], None],
        refuse: Callable[[str], None],
    ) -> AttemptGpus:
        """A lease of the GPUs in the spec, not begun. See `AttemptGpus`."""
        from .lease import AttemptGpus

        return AttemptGpus(self.leases(), attempt, spec, go, refuse)

    def leases(self) -> GpuLeases:
        from .lease import GpuLeases

        if self._leases is None:
            self._leases = GpuLeases(self)
        return self._leases

    def touch(self) -> None:
        """Keep the lock files from being cleaned up."""
        if self._leases is not None:
            self._leases.locks.touch()

    def leave(self) -> None:
        """In a forked child: close locks that only the runner and the attempts may hold."""
        for fd in self._leases.locks.descriptors if self._leases is not None else ():
            os.close(fd)

    def _known(self) -> dict[str, Any] | None:
        """What is known without waiting; None if nothing is yet."""
        rows = self._stand_in()
        if rows is not None:
            return _facts("file", self.leases().rows(rows))
        if not self._may_look():
            return _facts(None, [], problem=self._problem)
        watch = self._watching()
        self._keep_fresh()
        if watch.last is None or time.monotonic() - watch.last_at > OLD_S:
            return None
        age_s = time.monotonic() - watch.last_at
        return _facts(watch.last["from"], self.leases().rows(watch.last["rows"]), age_s)

    def _stand_in(self) -> list[Row] | None:
        if not os.path.exists(stand_in(self.spool)):
            return None
        from .probe import read_stand_in

        return read_stand_in(self.spool, os.getpid())

    def _may_look(self) -> bool:
        return time.monotonic() >= self._none_until and may_have_gpus()

    def _looked(self, found: dict[str, Any] | None) -> list[Row] | None:
        if found is None or found["from"] is None:
            self._none_until = time.monotonic() + NONE_S
            self._nothing = None if found is None else []
        self._problem = "the driver does not answer" if found is None else found.get("problem")
        return None if found is None else found["rows"]

    def _watching(self) -> ProbeProcess:
        if self._watch is None:
            from .probe_process import ProbeProcess

            self._watch = ProbeProcess(self.loop, self.spool, self._pids)
        return self._watch

    def _keep_fresh(self) -> None:
        """Probe from time to time while a client is connected."""
        if self._refresh is None:
            self._refresh = self.loop.at(time.monotonic() + REFRESH_S, self._look_again)

    def _look_again(self) -> None:
        self._refresh = None
        if self._connected() and self._may_look():
            self.look(lambda _rows: self._keep_fresh())


def _facts(source: str | None, rows: list[Row], age_s: float = 0.0, problem: str | None = None) -> dict[str, Any]:
    return {"gpus": rows, "gpus_from": source, "gpus_problem": problem, "gpus_age_s": round(age_s, 3)}
