"""`vm_pool_registry.json`: a pool for tools that read files, in the words of such files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio.to_thread

from evalfleet.benchmarks.registry import container_of
from evalfleet.model import DesiredState, HostState, Pool, PoolHost
from evalfleet.pools.context import PoolContext
from evalfleet.pools.machine.facts import facts_of
from evalfleet.pools.settings import settings_of

_STATUS = {
    HostState.REQUESTED: "creating",
    HostState.CREATING: "creating",
    HostState.PREPARING: "creating",
    HostState.READY: "ready",
    HostState.QUARANTINED: "failed",
    HostState.DRAINING: "completed",
    HostState.STOPPED: "completed",
    HostState.LOST: "failed",
    HostState.GONE: "deleted",
}


Keys = Mapping[str, tuple[Sequence[str], Sequence[str]]]


class RegistryFile:
    """The file of one pool. Used in the loop's thread."""

    def __init__(self, context: PoolContext) -> None:
        self._context = context
        self._written = ""

    async def update(self, pool: Pool) -> None:
        """Write it, if it has changed."""
        record = self._context.record
        hosts = await record.hosts(gone=True)
        tallies = await record.call(record.store.pools.tallies, pool)
        keys = await record.call(record.store.pools.host_keys, pool)
        text = registry_text(pool, hosts, tallies, keys)
        if text != self._written:
            await anyio.to_thread.run_sync(write_registry, self._context.home.registry_file(pool.name), text)
            self._written = text


def registry_text(pool: Pool, hosts: Sequence[PoolHost], tallies: Mapping[str, Any], keys: Keys) -> str:
    """Pure. `tallies` and `keys` as `PoolQueries.tallies` and `host_keys` give them."""
    wanted = settings_of(pool)
    regions = [facts_of(host).region for host in hosts if facts_of(host).region]
    content = {
        "pool_id": datetime.fromtimestamp(pool.created_at, UTC).strftime("%Y%m%d_%H%M%S"),
        "created_at": _iso(pool.created_at),
        "resource_group": wanted.account.get("resource_group", ""),
        "location": regions[0] if regions else wanted.regions[0],
        "vm_size": wanted.size[0],
        "total_tasks": tallies["total"],
        "completed_tasks": tallies["completed"],
        "failed_tasks": tallies["failed"],
        "workers": [
            _worker(host, tallies["hosts"].get(host.name), keys.get(host.name, ((), ())), wanted.benchmark)
            for host in hosts
        ],
    }
    return json.dumps(content, indent=2) + "\n"


def _worker(
    host: PoolHost, tally: Mapping[str, Any] | None, keys: tuple[Sequence[str], Sequence[str]], benchmark: str | None
) -> dict[str, Any]:
    current = tally["current"] if tally else None
    is_ready = host.state is HostState.READY
    return {
        "name": host.name,
        "ip": facts_of(host).address,
        "status": "running" if is_ready and current else _STATUS[host.state],
        "docker_container": container_of(benchmark),
        "waa_ready": is_ready and container_of(benchmark) is not None,
        "assigned_tasks": list(keys[0]),
        "completed_tasks": list(keys[1]),
        "current_task": current,
        "error": host.reason if host.state in (HostState.QUARANTINED, HostState.LOST) or _is_refused(host) else None,
        "created_at": _iso(host.created_at),
        "updated_at": _iso(host.updated_at),
    }


def _is_refused(host: PoolHost) -> bool:
    """Whether it was lost although it should run."""
    return host.state is HostState.GONE and host.desired is not DesiredState.GONE


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def write_registry(path: Path, text: str) -> None:
    """In one step, so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(text, "utf-8")
    os.replace(partial, path)
