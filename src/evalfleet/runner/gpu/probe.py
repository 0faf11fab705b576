"""Probes the GPUs of this host, and finds out which attempts the processes on them belong to.

No driver means no GPUs, never free GPUs. A value that a GPU does not report is None, not 0.
"""

from __future__ import annotations

import json
import os

from ..attempt import process_tree
from ..jsontext import as_list, as_object
from .devices import given, stand_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST_ANCESTORS = 64
KNOWN = ("index", "uuid", "name", "pci", "memory_mb", "used_mb", "reserved_mb", "utilization", "mig")


class GpuProbe:
    """Probes the GPUs through NVIDIA's library. Raises OSError if it cannot be loaded or finds no driver."""

    def __init__(self, spool: str, runner: int) -> None:
        """
        Args:
            runner: the runner's pid; all processes below it belong to attempts.
        """
        try:
            from .nvml import Nvml
        except ImportError as error:  # this Python was built without ctypes
            raise OSError("this Python cannot load NVIDIA's library: %s" % error) from None
        self._owners = ProcessOwners(spool, runner)
        self._nvml = Nvml()

    def rows(self) -> list[dict[str, Any]]:
        """Raises OSError: the driver went away."""
        return given([self._owners.row(row) for row in self._nvml.rows()])


def read_stand_in(spool: str, runner: int) -> list[dict[str, Any]] | None:
    """The rows of the file, as a driver would report them; None if there is no such file. A damaged file has no GPUs."""
    try:
        with open(stand_in(spool), "rb") as file:
            rows = as_list(json.loads(file.read())) or []
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return []
    owners = ProcessOwners(spool, runner)
    return given([owners.row(row) for row in map(as_object, rows) if row is not None and row.get("uuid")])


class ProcessOwners:
    """Distinguishes the processes of this spool's attempts from others."""

    def __init__(self, spool: str, runner: int) -> None:
        self._marked = os.fsencode(os.path.join(spool, "attempts")) + b"/"
        self._runner = runner

    def row(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row with every field, and with what is known about its processes."""
        full: dict[str, Any] = dict.fromkeys(KNOWN)
        full.update(row)
        full["links"] = as_object(row.get("links")) or {}
        processes = as_list(row.get("processes"))
        if processes is not None:
            processes = [self._process(process) for process in processes]
        full["processes"] = processes
        return full

    def _process(self, found: Any) -> dict[str, Any]:
        process: dict[str, Any] = {"kind": "compute", "memory_mb": None, "name": None}
        process.update(as_object(found) or {"pid": found})
        process.pop("instance", None)
        pid = int(process["pid"])
        ours, attempt = self.attempt_of(pid)
        name = (
            process["name"] or process_tree.read("/proc/%d/comm" % pid, 64).decode("utf-8", "replace").strip() or None
        )
        process.update(ours=ours, attempt=attempt, name=name, hidden=not os.path.exists("/proc/%d" % pid))
        return process

    def attempt_of(self, pid: int) -> tuple[bool, str | None]:
        """Whether a process belongs to an attempt of this spool, by its own mark or an ancestor's; and to which one."""
        for _ in range(MOST_ANCESTORS):
            if pid <= 1:
                break
            if pid == self._runner:
                return True, None  # it hid its mark, but only attempts are below us
            marked = process_tree.environment(pid).get(b"EVALFLEET_TASK", b"")
            if marked.startswith(self._marked) and marked.endswith(b"/task.json"):
                return True, os.fsdecode(marked[len(self._marked) : -len(b"/task.json")])
            found = process_tree.stat_of(pid)
            if found is None:
                break
            pid = found.parent
        return False, None
