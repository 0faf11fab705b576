"""The GPUs of this machine, looked at and locked by this process itself, where no runner is asked.

What a runner does for attempts, for programs that lease GPUs on their own and for people who want to see them. The locks are
those that runners take, of all homes and users of the machine.
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


class Seen(Struct, frozen=True, kw_only=True):
    cards: tuple[Card, ...]
    problem: str | None = None  # why none can be seen


class Held(Exception):
    """Somebody else has locked the GPU; says who."""


def look(spool: Path) -> Seen:
    """Every GPU as it is now. Takes seconds where the driver must wake up; call it beside an event loop."""
    rows = probe.read_stand_in(str(spool), os.getpid())
    if rows is not None:
        return Seen(cards=_cards(spool, rows))
    if not devices.may_have_gpus():
        return Seen(cards=(), problem=NO_DRIVER)
    try:
        return Seen(cards=_cards(spool, probe.Look(str(spool), os.getpid()).rows()))
    except OSError as error:
        return Seen(cards=(), problem=str(error))


def _cards(spool: Path, rows: Iterable[dict[str, Any]]) -> tuple[Card, ...]:
    return gpus_of(HOST, [_told(spool, row) for row in rows])


def _told(spool: Path, row: dict[str, Any]) -> dict[str, Any]:
    locked = locks.holder(locks.folder_for(str(spool)), row["uuid"], str(spool), names=False)
    return {
        **row,
        "foreign": [process["pid"] for process in rules.foreign(row)],
        "unexplained_mb": rules.unexplained_mb(row, {}),
        "held": None if locked is None else locked.words,
    }


def lock(spool: Path, uuid: str, words: str) -> int:
    """Keep everybody else on this machine from a GPU for as long as the descriptor is open, here or in a child.

    Args:
        words: who we are, for people.

    Raises:
        Held: somebody has it.
    """
    try:
        fd = locks.lock(locks.folder_for(str(spool)), uuid, words)
    except locks.Held as held:
        raise Held(held.words) from None
    os.set_inheritable(fd, True)
    return fd
