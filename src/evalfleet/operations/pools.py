"""Pools: the desired state is written here, and reached by the process that owns the pool, or by `reconcile`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from evalfleet import config
from evalfleet.config.pools import PoolOptions, given, merged, script
from evalfleet.engine.supervisor import owner_name
from evalfleet.errors import InputError
from evalfleet.model import Pool, PoolHost
from evalfleet.pools import commands
from evalfleet.pools.kinds import registry
from evalfleet.pools.reconcile import reconcile_pool
from evalfleet.store.store import Store
from evalfleet.validation import explain, sentence


def create(
    settings: config.Settings,
    store: Store,
    name: str,
    options: dict[str, object],
    *,
    backend: str | None = None,
    replace: bool = False,
    by: str | None = None,
) -> Pool:
    """Write down a pool. What the options leave out is taken from `[pool.NAME]` in evalfleet.toml.

    Args:
        options: of `PoolOptions`, by their names; `hosts` and `setup` are paths.
        backend: ssh, azure-vm or that of a plug-in; else the file's, or ssh where hosts are given.
        replace: give a pool of machines that exist other ones.

    Raises InputError, NotFound; WrongState where there is another pool of that name.
    """
    try:
        said = given(msgspec.convert(options, PoolOptions))
    except msgspec.ValidationError as error:
        raise InputError(sentence(explain(error, PoolOptions, {}))) from None
    if "setup" in said:
        said["setup"] = script(Path(said["setup"]))
    written = settings.pools.get(name, {})
    backend = backend or written.get("backend") or ("ssh" if "hosts" in said else None)
    if backend is None:
        raise InputError(f"backend: is missing; say {' or '.join(registry.names())}")
    return commands.create(settings, store, name, backend, merged(written, said), replace=replace, by=by)


def require_account(settings: config.Settings, pool: Pool) -> None:
    """Raises InputError for a pool whose machines exist, and where the settings name another account than the pool's."""
    registry.cloud_of(pool).require_account(pool, settings)


async def reconcile(
    settings: config.Settings,
    store: Store,
    name: str,
    *,
    tell: Callable[[PoolHost], None] = lambda _: None,
    again: bool = False,
    creates: bool = True,
) -> None:
    """Return when the machines of the pool are what they should be, or cannot be now: `Pool.reason` says why not.

    Args:
        tell: is called with each machine that changes.
        again: let machines in quarantine prove themselves again.
        creates: whether machines that are missing are created.
    """
    await reconcile_pool(settings, store, name, owner_name(), tell, again=again, creates=creates)
