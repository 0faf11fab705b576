"""A pool of VMs on Azure: once one is ready, it is a machine over SSH whose cloud can be asked, too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import msgspec

from evalfleet.azure import sizes
from evalfleet.azure.facts import facts_of
from evalfleet.azure.pool import AzurePool
from evalfleet.azure.settings import ADMIN_USER
from evalfleet.backends.ssh import SshBackend, SshSettings
from evalfleet.backends.ssh_hostsfile import Login, SshHostSpec
from evalfleet.core.health import OtherWay
from evalfleet.layout import Home
from evalfleet.model import Pool, PoolHost

AskCloud: TypeAlias = Callable[[str], Awaitable[OtherWay | None]]
_SYSTEM_MB = 1024  # of the memory, which tasks should leave alone


def settings_of(pool: Pool) -> AzurePool:
    return msgspec.convert(pool.settings, AzurePool)


def spec_of(host: PoolHost, pool: AzurePool, key: Path, port: int) -> SshHostSpec:
    """How a VM that has an address is reached."""
    facts = facts_of(host)
    assert facts.address is not None
    known = sizes.SIZES.get(facts.size)
    return SshHostSpec(
        name=host.name,
        login=Login(address=facts.address, port=port, user=ADMIN_USER),
        key=key,
        host_key=facts.host_key,
        slots=pool.slots,
        price_usd_per_hour=host.usd_per_hour / pool.slots,
        memory_mb=int(known.memory_gb * 1024) - _SYSTEM_MB if known else None,
    )


class AzureVmBackend(SshBackend):
    """Implements `Backend`. Before a silent VM is asked by SSH, the cloud says whether it is still there."""

    def __init__(self, home: Home, spec: SshHostSpec, ask: AskCloud, notice: Callable[[str], None]) -> None:
        super().__init__(home, spec, SshSettings(), notice)
        self._ask = ask

    async def ask_otherwise(self) -> OtherWay:
        told = await self._ask(self.name)
        return told if told is not None else await super().ask_otherwise()
