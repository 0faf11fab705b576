"""The GPUs of this host, asked of NVIDIA's own library by ctypes: nothing needs to be installed.

No library or no driver means no GPUs; it never means that some are free. What a GPU does not tell is None, not 0. A file
`gpus.json` in the spool takes the library's place, for tests and for machines without a GPU.
"""

from __future__ import annotations

import ctypes
import json
import os

from . import tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIBRARY = "libnvidia-ml.so.1"
STAND_IN = "gpus.json"
MOST_PROCESSES = 1024


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class Nvml:
    """The library, opened once for the life of the process. Raises OSError where there is none, or no driver."""

    def __init__(self, library: str = LIBRARY) -> None:
        self._nvml = ctypes.CDLL(library)
        if self._nvml.nvmlInit_v2() != 0:
            raise OSError("%s does not find a driver" % library)

    def devices(self) -> list[dict[str, Any]]:
        """Those that say who they are, in the order of the PCI bus."""
        count = ctypes.c_uint(0)
        if self._nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return []
        found = [self._device(index) for index in range(count.value)]
        return [device for device in found if device is not None]

    def _device(self, index: int) -> dict[str, Any] | None:
        handle = ctypes.c_void_p()
        if self._nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)) != 0:
            return None
        uuid = self._text(self._nvml.nvmlDeviceGetUUID, handle)
        if uuid is None:
            return None
        memory, busy = Memory(), Utilization()
        has_memory = self._nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0
        has_busy = self._nvml.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(busy)) == 0
        return {
            "index": index,
            "uuid": uuid,
            "name": self._text(self._nvml.nvmlDeviceGetName, handle),
            "memory_mb": memory.total >> 20 if has_memory else None,
            "used_mb": memory.used >> 20 if has_memory else None,
            "utilization": busy.gpu if has_busy else None,
            "processes": self._processes(handle),
        }

    def _processes(self, handle: ctypes.c_void_p) -> list[int] | None:
        count, infos = ctypes.c_uint(MOST_PROCESSES), (Process * MOST_PROCESSES)()
        if self._nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), infos) != 0:
            return None
        return [infos[place].pid for place in range(min(count.value, MOST_PROCESSES))]

    def _text(self, ask: Any, handle: ctypes.c_void_p) -> str | None:
        text = ctypes.create_string_buffer(96)
        return text.value.decode("utf-8", "replace") if ask(handle, text, ctypes.c_uint(96)) == 0 else None


class Gpus:
    """What a runner tells of its host's GPUs."""

    def __init__(self, spool: str, library: str = LIBRARY) -> None:
        self._spool = spool
        self._nvml: Nvml | None = None
        try:
            self._nvml = Nvml(library)
        except (OSError, AttributeError):
            pass

    def look(self) -> list[dict[str, Any]]:
        """Every GPU as it is now; `foreign` has the processes on it that are no attempt's of this runner."""
        found: list[dict[str, Any]] = []
        for device in self._devices():
            processes: list[int] = device.pop("processes", None) or []
            found.append(dict(device, foreign=[pid for pid in processes if not self._is_ours(pid)]))
        return found

    def _devices(self) -> list[dict[str, Any]]:
        try:
            with open(os.path.join(self._spool, STAND_IN), "rb") as file:
                return [dict(device) for device in json.loads(file.read())]
        except FileNotFoundError:
            return self._nvml.devices() if self._nvml is not None else []
        except (OSError, ValueError, TypeError):
            return []

    def _is_ours(self, pid: int) -> bool:
        marked = tree.environment(pid).get(b"EVALFLEET_TASK", b"")
        return marked.startswith(os.fsencode(self._spool) + b"/")
