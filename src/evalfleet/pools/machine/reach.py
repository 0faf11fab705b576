"""How machines of a cloud are reached, as far as the store knows. Imports nothing of a cloud's libraries or SSH's."""

from __future__ import annotations

from pathlib import Path

from evalfleet.hosts.access import ReachableHost, UnavailableHost
from evalfleet.hosts.ssh.login.hosts_file import Login, SshHostSpec
from evalfleet.model import HostState, PoolHost
from evalfleet.pools.cloud.protocol import CloudProvider
from evalfleet.pools.machine.facts import facts_of

SYSTEM_MB = 1024  # of the memory, which tasks should leave alone
_WHY = {
    HostState.STOPPED: "is stopped; `evalfleet pool start {pool}` starts it",
    HostState.LOST: "was taken away",
    HostState.DRAINING: "is being stopped or deleted",
}


def reached(provider: CloudProvider, row: PoolHost, slots: int) -> ReachableHost | UnavailableHost:
    if facts_of(row).box is not None and row.state not in _WHY:
        why = "cannot be called: it is reached through its box; `evalfleet pool logs` shows what its cloud keeps of it"
        return UnavailableHost(pool=row.pool, name=row.name, slots=slots, why=why)
    if facts_of(row).address is None or row.state in _WHY:
        why = _WHY.get(row.state, "is not made yet; `evalfleet pool status` shows how far it is").format(pool=row.pool)
        return UnavailableHost(pool=row.pool, name=row.name, slots=slots, why=why)
    return ReachableHost(pool=row.pool, spec=ssh_spec(provider, row, slots), known_hosts=())


def ssh_spec(provider: CloudProvider, row: PoolHost, slots: int) -> SshHostSpec:
    """How a machine that has an address is reached."""
    facts = facts_of(row)
    assert facts.address is not None
    assert facts.login_key is not None
    memory_gb = provider.memory_gb(facts.size)
    return SshHostSpec(
        name=row.name,
        login=Login(address=facts.address, port=facts.port, user=provider.login_user),
        key=Path(facts.login_key),
        jump=None if facts.jump is None else _login(facts.jump),
        proxy=facts.proxy,
        host_key=facts.host_key,
        slots=slots,
        price_usd_per_hour=row.usd_per_hour,
        memory_mb=int(memory_gb * 1024) - SYSTEM_MB if memory_gb else None,
    )


def _login(text: str) -> Login:
    """Of `user@address:port`, where all but the address may be left out."""
    user, _, place = text.rpartition("@")
    address, _, port = place.partition(":")
    return Login(address=address, port=int(port) if port else None, user=user or None)
