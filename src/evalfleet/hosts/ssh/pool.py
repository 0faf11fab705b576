"""A pool of existing machines over SSH. The store keeps the checked content of its hosts file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from evalfleet.core.readiness import Notice
from evalfleet.hosts.access import ReachableHost, UnavailableHost
from evalfleet.hosts.ssh.login.hosts_file import SshHostSpec, load, read
from evalfleet.layout import Home
from evalfleet.model import JsonObject, Pool, PoolHost, Tools

if TYPE_CHECKING:
    from evalfleet.hosts.ssh.backend import SshBackend


def settings(hosts_file: Path, *, trust_first_use: bool) -> JsonObject:
    """Return the settings of a pool with these hosts. Raises HostsFileError."""
    return _kept(load(hosts_file), str(hosts_file.absolute()), trust_first_use=trust_first_use)


def settings_in(text: str, folder: Path, *, trust_first_use: bool) -> JsonObject:
    """Like `settings`, for the text of a hosts file; key paths are relative to `folder`. Raises HostsFileError."""
    return _kept(read(text, "hosts", folder), None, trust_first_use=trust_first_use)


def _kept(specs: Sequence[SshHostSpec], file: str | None, *, trust_first_use: bool) -> JsonObject:
    rows = [msgspec.to_builtins(host, enc_hook=str) for host in specs]
    return {"hosts_file": file, "trust_first_use": trust_first_use, "hosts": rows}


def hosts(pool: Pool, rows: Sequence[PoolHost] = ()) -> list[SshHostSpec]:
    del rows  # the pool's own settings say it all
    return [msgspec.convert(row, SshHostSpec, dec_hook=_path) for row in pool.settings["hosts"]]


def reachable(pool: Pool, rows: Sequence[PoolHost]) -> Sequence[ReachableHost | UnavailableHost]:
    trust = pool.settings["trust_first_use"]
    return [ReachableHost(pool=pool.name, spec=host, trust_first_use=trust) for host in hosts(pool, rows)]


def slots(pool: Pool) -> int:
    return sum(host.slots for host in hosts(pool))


def backends(pool: Pool, home: Home, notice: Notice, tools: Tools | None = None) -> list[SshBackend]:
    from evalfleet.hosts.ssh.backend import SshBackend, SshSettings

    shared = SshSettings(trust_first_use=pool.settings["trust_first_use"])
    return [SshBackend(home, host, shared, notice, tools) for host in hosts(pool)]


def _path(kind: type[Any], value: Any) -> Any:
    return kind(value)
