"""Pools of machines that exist and are reached over SSH."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from evalfleet.config import Settings
from evalfleet.core.readiness import Notice
from evalfleet.errors import InputError
from evalfleet.hosts.base import FixedFleet
from evalfleet.hosts.ssh import pool as ssh_pool
from evalfleet.layout import Home
from evalfleet.model import JsonObject, Pool, Run
from evalfleet.store.home.facts import identified
from evalfleet.store.reader import StoreReader


class SshKind:
    """Implements `PoolKind`, `KeepsFolders` and `KeepsRunners`."""

    name = "ssh"
    title = "Machines that exist (SSH)"
    creates_machines = False
    options = ("hosts", "trust_first_use")
    hosts = staticmethod(ssh_pool.hosts)
    slots = staticmethod(ssh_pool.slots)
    reachable = staticmethod(ssh_pool.reachable)

    def settings(self, options: Mapping[str, Any], settings: Settings) -> JsonObject:
        trust = bool(options.get("trust_first_use"))
        if "hosts_text" in options:  # what the file says; keys are looked for from the home
            return ssh_pool.settings_in(options["hosts_text"], settings.home, trust_first_use=trust)
        if "hosts" not in options:
            raise InputError("hosts: is missing; it names a file with [[host]] above each machine")
        return ssh_pool.settings(Path(options["hosts"]), trust_first_use=trust)

    def needed_files(self, pool: Pool) -> list[Path]:
        return sorted({host.key for host in ssh_pool.hosts(pool) if host.key is not None})

    def fleet(
        self, settings: Settings, store: StoreReader, pool: Pool, run: Run, process: str, notice: Notice
    ) -> FixedFleet:
        del process  # such a pool has no owner
        home = identified(settings.home, store.home.identity())
        return FixedFleet(ssh_pool.backends(pool, home, notice, run.policy.tools))

    async def leave(self, pool: Pool, others: Sequence[Pool], home: Home) -> dict[str, str]:
        from evalfleet.hosts.ssh.removal import remove_folders  # brings SSH

        return await remove_folders(pool, others, home)

    async def end_idle_runners(
        self, pool: Pool, busy: Collection[str], home: Home, say: Callable[[str], None]
    ) -> list[str]:
        from evalfleet.hosts.ssh.removal import end_idle_runners  # brings SSH

        return await end_idle_runners(pool, busy, home, say)


KIND = SshKind()
