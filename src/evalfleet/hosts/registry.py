"""The backends of pools, by name. One is imported when a pool of its kind is used."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

from evalfleet.errors import InputError
from evalfleet.hosts.access import Absent, Reachable
from evalfleet.model import Pool, PoolHost

KINDS = {"ssh": "evalfleet.hosts.ssh.pool", "azure-vm": "evalfleet.hosts.azure_pool"}


class HostRow(Protocol):
    """What is known of a host without asking it."""

    @property
    def name(self) -> str: ...
    @property
    def slots(self) -> int: ...
    @property
    def price_usd_per_hour(self) -> float: ...


class PoolKind(Protocol):
    """A module that knows the pools of one backend."""

    def hosts(self, pool: Pool, rows: Sequence[PoolHost]) -> Sequence[HostRow]:
        """What it has. `rows`: the machines that the store keeps for the pool."""
        ...

    def slots(self, pool: Pool) -> int:
        """How many workers it has, or may have."""
        ...

    def reachable(self, pool: Pool, rows: Sequence[PoolHost]) -> Sequence[Reachable | Absent]:
        """Its hosts as commands such as `pool ssh` reach them."""
        ...


def kind_of(pool: Pool) -> PoolKind:
    """Raises InputError for a backend that this evalfleet does not know."""
    if pool.backend not in KINDS:
        raise InputError(f"pool {pool.name!r} has the backend {pool.backend!r}; known here: {', '.join(KINDS)}")
    return cast("PoolKind", import_module(KINDS[pool.backend]))
