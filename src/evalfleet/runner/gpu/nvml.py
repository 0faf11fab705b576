"""NVIDIA's management library (NVML) through ctypes, without any package.

A call that the device or driver does not support gives None, never 0. If a GPU is split by MIG, its parts are the devices:
nothing can run on the whole GPU.
"""

from __future__ import annotations

import ctypes
import os

from .devices import LIBRARY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIBRARIES = (
    "libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",  # where container platforms put it, told by a variable that we do not keep
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    "/run/opengl-driver/lib/libnvidia-ml.so.1",
)
NOT_AVAILABLE = (1 << 64) - 1
TOO_SMALL = 7
FIRST_ROOM = 64  # processes; more is asked for when it is too small
MEMORY_V2 = 2 << 24  # or the size of the structure
NVLINK = 2  # index of that capability
ANCESTORS = {
    0: 1,
    10: 1,
    20: 2,
    30: 3,
    40: 4,
    50: 5,
}  # to our levels; two GPUs on one board (0) are as near as one switch
MIG_PLACES = 1000  # parts are numbered from (place of the GPU + 1) times this on


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Memory2(ctypes.Structure):
    """Reports the driver's reserved memory separately, as nvidia-smi does."""

    _fields_ = [
        ("version", ctypes.c_uint),
        ("total", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


class Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Pci(ctypes.Structure):
    _fields_ = [
        ("legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("id", ctypes.c_uint),
        ("subsystem", ctypes.c_uint),
        ("name", ctypes.c_char * 32),
    ]


class Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class OldProcess(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong)]


class Nvml:
    """The library, loaded once per process. Raises OSError if there is no library or no driver."""

    def __init__(self, library: str | None = None) -> None:
        named = library or os.environ.get(LIBRARY)
        self._nvml = _open((named,) if named else LIBRARIES)
        if self._ask("nvmlInit_v2") != 0:
            raise OSError("NVIDIA's library finds no driver")
        self._links: dict[str, dict[str, int]] = {}
        self._linked: list[str] = []

    def rows(self) -> list[dict[str, Any]]:
        """Every device that reports its uuid, in PCI bus order.

        Raises:
            OSError: the driver went away.
        """
        count = ctypes.c_uint(0)
        if self._ask("nvmlDeviceGetCount_v2", ctypes.byref(count)) != 0:
            raise OSError("NVML does not report the number of GPUs")
        handles = [self._handle(index) for index in range(count.value)]
        cards = [(self._pci(handle), index, handle) for index, handle in enumerate(handles) if handle is not None]
        if all(place is not None for place, _, _ in cards):
            cards.sort(key=lambda card: card[0] or ())
        rows: list[dict[str, Any]] = []
        whole: list[tuple[str, ctypes.c_void_p]] = []
        for place, (pci, _, handle) in enumerate(cards):
            row = self._row(handle, place)
            if row["uuid"] is None:
                continue  # what does not say who it is cannot be leased
            row["pci"] = pci[3] if pci else None
            row["mig"] = self._is_split(handle)
            if row["mig"]:
                rows.extend(self._parts(handle, row))
            else:
                rows.append(row)
                whole.append((row["uuid"], handle))
        self._link(whole)
        return [dict(row, links=self._links.get(row["uuid"], {})) for row in rows]

    def _ask(self, name: str, *arguments: Any) -> int | None:
        """The result of a call; None if the library does not support it."""
        call = getattr(self._nvml, name, None)
        return None if call is None else call(*arguments)

    def _handle(self, index: int) -> ctypes.c_void_p | None:
        handle = ctypes.c_void_p()
        found = self._ask("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        return handle if found == 0 else None

    def _row(self, handle: ctypes.c_void_p, index: int) -> dict[str, Any]:
        busy = Utilization()
        has_busy = self._ask("nvmlDeviceGetUtilizationRates", handle, ctypes.byref(busy)) == 0
        row: dict[str, Any] = {"index": index, "uuid": self._text("nvmlDeviceGetUUID", handle)}
        row.update(name=self._text("nvmlDeviceGetName", handle), **self._memory(handle))
        row.update(utilization=busy.gpu if has_busy else None, processes=self._processes(handle))
        return row

    def _memory(self, handle: ctypes.c_void_p) -> dict[str, int | None]:
        split = Memory2(version=ctypes.sizeof(Memory2) | MEMORY_V2)
        if self._ask("nvmlDeviceGetMemoryInfo_v2", handle, ctypes.byref(split)) == 0:
            return {"memory_mb": split.total >> 20, "used_mb": split.used >> 20, "reserved_mb": split.reserved >> 20}
        memory = Memory()
        if self._ask("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory)) == 0:
            return {"memory_mb": memory.total >> 20, "used_mb": memory.used >> 20, "reserved_mb": None}
        return {"memory_mb": None, "used_mb": None, "reserved_mb": None}

    def _pci(self, handle: ctypes.c_void_p) -> tuple[int, int, int, str] | None:
        pci = Pci()
        if self._ask("nvmlDeviceGetPciInfo_v3", handle, ctypes.byref(pci)) != 0:
            return None
        return pci.domain, pci.bus, pci.device, pci.name.decode("ascii", "replace")

    def _is_split(self, handle: ctypes.c_void_p) -> bool | None:
        now, later = ctypes.c_uint(0), ctypes.c_uint(0)
        if self._ask("nvmlDeviceGetMigMode", handle, ctypes.byref(now), ctypes.byref(later)) != 0:
            return None
        return now.value == 1

    def _parts(self, card: ctypes.c_void_p, whole: dict[str, Any]) -> list[dict[str, Any]]:
        """The MIG devices of a GPU."""
        most = ctypes.c_uint(0)
        if self._ask("nvmlDeviceGetMaxMigDeviceCount", card, ctypes.byref(most)) != 0:
            return []
        rows: list[dict[str, Any]] = []
        for place in range(most.value):
            part = ctypes.c_void_p()
            found = self._ask("nvmlDeviceGetMigDeviceHandleByIndex", card, ctypes.c_uint(place), ctypes.byref(part))
            if found != 0:
                continue
            row = self._row(part, (whole["index"] + 1) * MIG_PLACES + place)
            if row["processes"] is None:
                row["processes"] = self._of_part(part, whole["processes"])
            if row["uuid"] is not None:
                rows.append(dict(row, pci=whole["pci"], mig=True, parent=whole["uuid"]))
        return rows

    def _of_part(self, part: ctypes.c_void_p, processes: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
        """The processes of the whole GPU that run on this part."""
        number = ctypes.c_uint(0)
        if processes is None or self._ask("nvmlDeviceGetGpuInstanceId", part, ctypes.byref(number)) != 0:
            return None
        return [process for process in processes if process["instance"] == number.value]

    def _processes(self, handle: ctypes.c_void_p) -> list[dict[str, Any]] | None:
        """Compute processes, then graphics processes; None if it does not report them."""
        computing = self._list("nvmlDeviceGetComputeRunningProcesses", handle)
        if computing is None:
            return None
        pids = {process["pid"] for process in computing}
        drawing = self._list("nvmlDeviceGetGraphicsRunningProcesses", handle) or []
        return computing + [dict(process, kind="graphics") for process in drawing if process["pid"] not in pids]

    def _list(self, name: str, handle: ctypes.c_void_p) -> list[dict[str, Any]] | None:
        for version, kind in (("_v3", Process), ("_v2", Process), ("", OldProcess)):
            room = FIRST_ROOM
            for _ in range(4):  # they may become more meanwhile
                count, found = ctypes.c_uint(room), (kind * room)()
                said = self._ask(name + version, handle, ctypes.byref(count), found)
                if said != TOO_SMALL:
                    break
                room = count.value + FIRST_ROOM
            else:
                return None
            if said == 0:
                return [_process(found[place]) for place in range(min(count.value, room))]
            if said is not None:
                return None
        return None

    def _text(self, name: str, handle: ctypes.c_void_p) -> str | None:
        text = ctypes.create_string_buffer(96)
        return text.value.decode("utf-8", "replace") if self._ask(name, handle, text, ctypes.c_uint(96)) == 0 else None

    def _link(self, cards: list[tuple[str, ctypes.c_void_p]]) -> None:
        """How closely two GPUs are connected. Constant while the GPUs are the same."""
        uuids = [uuid for uuid, _ in cards]
        if uuids == self._linked:
            return
        self._linked = uuids
        self._links = {uuid: {} for uuid in uuids}
        for place, (one, first) in enumerate(cards):
            for other, second in cards[place + 1 :]:
                level = self._level(first, second)
                if level is not None:
                    self._links[one][other] = self._links[other][one] = level

    def _level(self, first: ctypes.c_void_p, second: ctypes.c_void_p) -> int | None:
        status, ancestor = ctypes.c_uint(1), ctypes.c_uint(0)
        if self._ask("nvmlDeviceGetP2PStatus", first, second, NVLINK, ctypes.byref(status)) == 0 and status.value == 0:
            return 0
        if self._ask("nvmlDeviceGetTopologyCommonAncestor", first, second, ctypes.byref(ancestor)) != 0:
            return None
        return ANCESTORS.get(ancestor.value)


def _open(names: tuple[str, ...]) -> ctypes.CDLL:
    """The first library that can be loaded. Raises OSError with the loader's message about the first."""
    said: list[str] = []
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            said.append(str(error))
    raise OSError("NVIDIA's library cannot be loaded (%s); if it is elsewhere, set %s to its path" % (said[0], LIBRARY))


def _process(found: Any) -> dict[str, Any]:
    memory = None if found.memory == NOT_AVAILABLE else found.memory >> 20
    return {"pid": found.pid, "memory_mb": memory, "kind": "compute", "instance": getattr(found, "gpu_instance", None)}
