"""A backend whose hosts are process trees on this machine: `evalfleet pool create trees --backend process-trees`.

Each host is a runner with a folder of its own below the home. The tasks of a host are children of its runner, so that
the end of one runner is the loss of one host, and the others go on.
"""

import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from evalfleet.config import Settings
from evalfleet.core.readiness import Notice
from evalfleet.errors import InputError
from evalfleet.hosts.access import ReachableHost, UnavailableHost
from evalfleet.hosts.base import FixedFleet
from evalfleet.hosts.local.backend import LocalBackend, LocalSettings
from evalfleet.hosts.local.launcher import runner_info
from evalfleet.layout import Home
from evalfleet.model import JsonObject, Pool, PoolHost, Run
from evalfleet.store.home.facts import identified
from evalfleet.store.reader import StoreReader

MOST = 64


class TreeHost(Struct, frozen=True, kw_only=True):
    """Implements `HostRow`."""

    name: str
    slots: int = 1
    price_usd_per_hour: float = 0.0


class ProcessTrees:
    """Implements `PoolKind` and `KeepsFolders`."""

    name = "process-trees"
    title = "Process trees on this machine"
    creates_machines = False
    options = ("options",)  # --option count=N

    def settings(self, options: Mapping[str, Any], settings: Settings) -> JsonObject:
        given = dict(options.get("options", {}))
        count = str(given.pop("count", 1))
        if given:
            raise InputError(f"option {min(given)}: is not known; {self.name} takes count")
        if not count.isdecimal() or not 1 <= int(count) <= MOST:
            raise InputError(f"option count: must be a whole number from 1 to {MOST}, not {count!r}")
        return {"count": int(count)}

    def hosts(self, pool: Pool, rows: Sequence[PoolHost]) -> list[TreeHost]:
        return [TreeHost(name=f"{pool.name}-{number}") for number in range(1, pool.settings["count"] + 1)]

    def slots(self, pool: Pool) -> int:
        return sum(host.slots for host in self.hosts(pool, ()))

    def reachable(self, pool: Pool, rows: Sequence[PoolHost]) -> Sequence[ReachableHost | UnavailableHost]:
        return ()

    def fleet(
        self, settings: Settings, store: StoreReader, pool: Pool, run: Run, process: str, notice: Notice
    ) -> FixedFleet:
        home, local = identified(settings.home, store.home.identity()), settings.local
        return FixedFleet([tree(home, host, local.python, local.runner_idle_s) for host in self.hosts(pool, ())])

    async def leave(self, pool: Pool, others: Sequence[Pool], home: Home) -> dict[str, str]:
        left: dict[str, str] = {}
        for host in self.hosts(pool, ()):
            folder = tree_home(home, host.name)
            await tree(home, host, sys.executable, 0.0).release()
            if runner_info(folder.spool) is None:
                shutil.rmtree(folder.path, ignore_errors=True)
            else:
                left[host.name] = "its runner is busy"
        return left


def tree(home: Home, host: TreeHost, python: str, idle_s: float) -> LocalBackend:
    """The way to one host. Slots are counted per machine, so each tree counts its own."""
    own = tree_home(home, host.name)
    locks = own.path / "slots"
    return LocalBackend(
        own, LocalSettings(name=host.name, python=python, idle_s=idle_s, slots=host.slots, slot_locks=locks)
    )


def tree_home(home: Home, host: str) -> Home:
    """The folder of one host. It lies in the home, so that files of attempts are renamed and not copied."""
    return Home(home.path / "trees" / host, home.id, home.former)


KIND = ProcessTrees()
