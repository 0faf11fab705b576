"""Whether a pool is what it should be, by what is written. Imports nothing of Azure's libraries or SSH's: every page asks it."""

from __future__ import annotations

from collections.abc import Sequence

from evalfleet.model import DesiredState, HostState, Pool, PoolHost
from evalfleet.pools.settings import settings_of

_REACHED = {
    DesiredState.RUNNING: (HostState.READY, HostState.QUARANTINED),
    DesiredState.STOPPED: (HostState.STOPPED,),
    DesiredState.GONE: (HostState.GONE,),
}


def is_settled(pool: Pool, hosts: Sequence[PoolHost]) -> bool:
    """Whether, by the stored state, nothing is left to do; changes made by the cloud are seen only by a controller.

    A pool that said why it makes no more machines waits for a person, or for a run.
    """
    if pool.deleting or not all(host.state in _REACHED[host.desired] for host in hosts):
        return False
    wanted = settings_of(pool)
    have = sum(1 for host in hosts if host.state is not HostState.LOST)
    if wanted.stopped_at is not None:
        return True
    return pool.reason is not None or have >= (wanted.least if wanted.scales else wanted.workers)
