"""Inspects and locks the GPUs of this machine from this process, without a runner.

For programs that lease GPUs themselves, and for `evalfleet gpus`. The locks are the same that runners take, shared by all homes
and users of the machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec import Struct

from evalfleet.core.gpus.cards import Card
from evalfleet.hosts.base import gpus_of
from evalfleet.hosts.local.backend import HOST
from evalfleet.runner.gpu import devices, locks, probe, rules

NO_DRIVER = "this machine has no NVIDIA driver"


class LocalGpu(Struct, frozen=True, kw_only=True):
    cards: tuple[Card, ...]
    problem: str | None = None  # why none can be seen


class GpuInUse(Exception):
    """Another process has locked the GPU; the message says which."""


def look(spool: Path) -> LocalGpu:
    """The current state of every GPU. Takes seconds if the driver is asleep, so do not call it in an event loop."""
    rows = probe.read_stand_in(str(spool), os.getpid())
    if rows is not None:
        return LocalGpu(cards=_cards(spool, rows))
    if not devices.may_have_gpus():
        return LocalGpu(cards=(), problem=NO_DRIVER)
    try:
        return LocalGpu(cards=_cards(spool, probe.GpuProbe(str(spool), os.getpid()).rows()))
    except OSError as error:
        return LocalGpu(cards=(), problem=str(error))


def _cards(spool: Path, rows: Iterable[dict[str, Any]]) -> tuple[Card, ...]:
    return gpus_of(HOST, [_with_holder(spool, row) for row in rows])


def _with_holder(spool: Path, row: dict[str, Any]) -> dict[str, Any]:
    locked = locks.holder(locks.folder_for(str(spool)), row["uuid"], str(spool), names=False)
    return {
        **row,
        "foreign": [process["pid"] for process in rules.foreign(row)],
        "unexplained_mb": rules.unexplained_mb(row, {}),
        "held": None if locked is None else locked.words,
    }


def lock(spool: Path, uuid: str, words: str) -> int:
    """Lock a GPU on this machine for as long as the descriptor is open, here or in a child process.

    Args:
        words: name of the holder, shown to people.

    Raises Held where another process has it.
    """
    try:
        fd = locks.lock(locks.folder_for(str(spool)), uuid, words)
    except locks.GpuLockHeld as held:
        raise GpuInUse(held.words) from None
    os.set_inheritable(fd, True)
    return fd
