"""Pools of machines that a cloud creates and deletes, whichever cloud: what differs is its `CloudProvider`.

Imports nothing of a cloud's libraries or SSH's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from evalfleet.benchmarks.base import Benchmark, SharesMachine
from evalfleet.benchmarks.registry import find, is_known, needs_kvm
from evalfleet.config import Settings
from evalfleet.config.pools import CLOUD_OPTIONS
from evalfleet.core.readiness import Notice
from evalfleet.errors import InputError
from evalfleet.hosts.access import ReachableHost, UnavailableHost
from evalfleet.hosts.base import Fleet
from evalfleet.model import JsonObject, Pool, PoolHost, Run
from evalfleet.pools.cloud.protocol import CloudProvider, ReachedByMailbox, keeps_stopped
from evalfleet.pools.machine.reach import reached
from evalfleet.pools.settings import NAME_PREFIX, PoolSettings, settings_of
from evalfleet.store.reader import StoreReader
from evalfleet.validation import suggestion

CHECKS = (
    *("arm", "ssh", "host_key", "disk", "kvm", "runner", "setup", "benchmark"),
    *("node", "pilot", "docker", "image", "silence", "drain"),
)
_PREFIX = re.compile(r"[a-z]([a-z0-9-]{0,40}[a-z0-9])?")


class Row(Struct, frozen=True, kw_only=True):
    """Implements `HostRow`."""

    name: str
    slots: int
    price_usd_per_hour: float


class CloudKind:
    """Implements `PoolKind`."""

    creates_machines = True
    options = CLOUD_OPTIONS

    def __init__(self, provider: CloudProvider) -> None:
        self.provider = provider

    @property
    def name(self) -> str:
        return self.provider.name

    @property
    def title(self) -> str:
        return self.provider.title

    @property
    def keeps_stopped(self) -> bool:
        return keeps_stopped(self.provider)

    def settings(self, options: Mapping[str, Any], settings: Settings) -> JsonObject:
        self.provider.require_ready(settings)  # what is missing there is said before anything is written
        values = dict(options)
        values["size"] = tuple(map(self.provider.size, values.get("size") or (self.provider.default_size,)))
        values["regions"] = tuple(map(self.provider.region, values.get("regions") or self.provider.default_regions))
        values["workers"] = values.get("workers") or values.get("max") or 1
        values["kvm"] = needs_kvm(values.get("benchmark"))
        if is_known(values.get("benchmark") or ""):
            values["slots"] = self._slots(find(values["benchmark"], settings), values.get("slots"), values["size"])
        for check in values.get("deadline", ()):
            if check not in CHECKS:
                raise InputError(f'deadline: there is no readiness check "{check}"{suggestion(check, CHECKS)}')
        if isinstance(self.provider, ReachedByMailbox) and values.get("setup") is not None:
            raise InputError(
                "setup: its machines cannot be called, so no script can be run there; use an image that has all"
            )
        if not _PREFIX.fullmatch(values.get("name_prefix", NAME_PREFIX)):
            raise InputError(
                f"{values['name_prefix']!r} cannot begin a machine's name; use small letters, digits and '-'"
            )
        found = PoolSettings(**values, account=self.provider.account(settings))
        require_limits(found)
        return found.to_json()

    def _slots(self, benchmark: Benchmark, slots: int | None, sizes: Sequence[str]) -> int:
        """How many tasks a machine runs at a time. Raises InputError where that is too many."""
        if not isinstance(benchmark, SharesMachine):
            return slots or 1
        name, most = benchmark.name, benchmark.machine_slots
        if slots is not None and slots > most:
            raise InputError(
                f"slots: a machine runs {most} of {name} at a time, not {slots}: [{name}] has that many containers"
            )
        for size in sizes:
            has_gb = self.provider.memory_gb(size)
            if has_gb is not None and has_gb < benchmark.machine_gb:
                raise InputError(
                    f"size: {size} has {has_gb:g} GB of memory, and {most} of {name} at a time need {benchmark.machine_gb:g} GB; "
                    f"take a larger size, or fewer containers in [{name}]"
                )
        return slots or most

    def require_account(self, pool: Pool, settings: Settings) -> None:
        """Raises InputError where the settings name another account than the pool's machines are in: there nothing of it
        would be found, and all of it be called gone. Raises ConfigError where they name none."""
        here = self.provider.account(settings)
        there = {**here, **settings_of(pool).account}
        if {name: value.lower() for name, value in here.items()} != {n: v.lower() for n, v in there.items()}:
            raise InputError(
                f"pool {pool.name!r} is in {_place(there)}; this shell names {_place(here)}. {self.provider.account_help}"
            )

    def hosts(self, pool: Pool, rows: Sequence[PoolHost]) -> list[Row]:
        slots = settings_of(pool).slots
        return [Row(name=row.name, slots=slots, price_usd_per_hour=row.usd_per_hour) for row in rows]

    def slots(self, pool: Pool) -> int:
        wanted = settings_of(pool)
        return wanted.limit * wanted.slots

    def reachable(self, pool: Pool, rows: Sequence[PoolHost]) -> list[ReachableHost | UnavailableHost]:
        slots = settings_of(pool).slots
        return [reached(self.provider, row, slots) for row in rows]

    def fleet(
        self, settings: Settings, store: StoreReader, pool: Pool, run: Run, process: str, notice: Notice
    ) -> Fleet:
        from evalfleet.pools.fleet import PoolFleet  # brings SSH

        return PoolFleet(self, settings, store, pool, run, process, notice)


def require_limits(settings: PoolSettings) -> None:
    if settings.least > settings.limit:
        raise InputError(
            f"min {settings.least} is more than max {settings.limit}; a pool cannot keep more machines than it may have"
        )


def _place(account: Mapping[str, str]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in account.items())
