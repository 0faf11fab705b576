"""The health of a host: unreachable is not failed.

A silent host is suspected, then asked by another way (a new connection, its lock file, the cloud's API), and only then
given up. An expired lease is permission to ask, never by itself a reason to give up.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from msgspec import Struct


class Health(StrEnum):
    HEALTHY = "healthy"
    SUSPECT = "suspect"  # keep its attempts, place nothing there, ask by the other way
    LOST = "lost"  # its attempts are over, by `cause_of`


class OtherWay(StrEnum):
    """The answer of the second way to reach a host."""

    NOT_ASKED = "not_asked"
    ALIVE = "alive"  # the machine is there; only our connection is not
    SILENT = "silent"  # asked, and it knows nothing
    GONE = "gone"  # it is certain that the machine or its runner is no more
    EVICTED = "evicted"  # it is certain that the cloud took the machine back


class Observation(Struct, frozen=True, kw_only=True):
    """What is known about a host. Times are of the store's clock, never of the worker's."""

    last_answer_at: float
    lease_expires_at: float
    reconnects_failed: int = 0  # in a row
    other_way: OtherWay = OtherWay.NOT_ASKED
    preempted: bool = False  # it had said that it would be taken away


class Patience(Struct, frozen=True, kw_only=True):
    quiet_s: float = 15.0  # silence that raises suspicion
    give_up_s: float = 120.0  # least silence before a host that nobody can reach is given up
    reconnects: int = 3


def health_of(seen: Observation, now: float, patience: Patience | None = None) -> Health:
    """The health of the host.

    It is lost at once where the other way is certain that it is gone, never while the other way says that it lives,
    and else only with the lease expired, enough reconnects failed, long silence, and the other way asked in vain. Of a
    host that had said that it would be taken away, enough failed reconnects and the other way asked in vain suffice.
    """
    limits = patience or Patience()
    silent_s = now - seen.last_answer_at
    if seen.other_way in (OtherWay.GONE, OtherWay.EVICTED):
        return Health.LOST
    if silent_s <= limits.quiet_s and seen.reconnects_failed == 0:
        return Health.HEALTHY
    in_vain = seen.other_way is OtherWay.SILENT and seen.reconnects_failed >= limits.reconnects
    long_silent = now >= seen.lease_expires_at and silent_s >= limits.give_up_s
    return Health.LOST if in_vain and (seen.preempted or long_silent) else Health.SUSPECT


def cause_of(seen: Observation) -> Literal["preempted", "worker_lost"]:
    """Why the attempts of a lost host ended. One that had said that it would be taken away was, whatever the other way knows."""
    return "preempted" if seen.preempted or seen.other_way is OtherWay.EVICTED else "worker_lost"
