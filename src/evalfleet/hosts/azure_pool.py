"""A pool of VMs on Azure, as far as the store knows it. Imports nothing of Azure's libraries or SSH's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from evalfleet.azure import sizes
from evalfleet.azure.pool import AzurePool
from evalfleet.azure.settings import ADMIN_USER
from evalfleet.azure.vm_facts import facts_of
from evalfleet.hosts.access import Absent, Reachable
from evalfleet.hosts.ssh.login.hosts_file import Login, SshHostSpec
from evalfleet.model import HostState, Pool, PoolHost

_SYSTEM_MB = 1024  # of the memory, which tasks should leave alone
_WHY = {
    HostState.STOPPED: "is stopped; `evalfleet pool start {pool}` starts it",
    HostState.LOST: "was taken away",
    HostState.DRAINING: "is being stopped or deleted",
}


class Row(Struct, frozen=True, kw_only=True):
    """Implements `HostRow`."""

    name: str
    slots: int
    price_usd_per_hour: float


def settings_of(pool: Pool) -> AzurePool:
    return msgspec.convert(pool.settings, AzurePool)


def hosts(pool: Pool, rows: Sequence[PoolHost]) -> list[Row]:
    wanted = settings_of(pool)
    return [Row(name=row.name, slots=wanted.slots, price_usd_per_hour=row.usd_per_hour) for row in rows]


def slots(pool: Pool) -> int:
    wanted = settings_of(pool)
    return wanted.limit * wanted.slots


def reachable(pool: Pool, rows: Sequence[PoolHost]) -> list[Reachable | Absent]:
    wanted = settings_of(pool)
    return [_reached(row, pool.name, wanted) for row in rows]


def _reached(row: PoolHost, pool: str, wanted: AzurePool) -> Reachable | Absent:
    if facts_of(row).address is None or row.state in _WHY:
        why = _WHY.get(row.state, "is not made yet; `evalfleet pool status` shows how far it is").format(pool=pool)
        return Absent(pool=pool, name=row.name, slots=wanted.slots, why=why)
    return Reachable(pool=pool, spec=spec_of(row, wanted), known_hosts=())


def spec_of(row: PoolHost, pool: AzurePool) -> SshHostSpec:
    """How a VM that has an address is reached."""
    facts = facts_of(row)
    assert facts.address is not None
    assert facts.login_key is not None
    known = sizes.SIZES.get(facts.size)
    return SshHostSpec(
        name=row.name,
        login=Login(address=facts.address, port=facts.port, user=ADMIN_USER),
        key=Path(facts.login_key),
        host_key=facts.host_key,
        slots=pool.slots,
        price_usd_per_hour=row.usd_per_hour,
        memory_mb=int(known.memory_gb * 1024) - _SYSTEM_MB if known else None,
    )
