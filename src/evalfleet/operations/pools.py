"""What is ordered of pools: written down here, and made true by `reconcile` or by the process that owns the pool.

The commands, the page and Python order the same way. `by` names who ordered, where that is not the person at this terminal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from evalfleet import config
from evalfleet.answers.pools import BackendRow, PoolFacts
from evalfleet.config.pools import PoolOptions, given, merged, script
from evalfleet.errors import InputError
from evalfleet.model import Pool, PoolHost
from evalfleet.pools import commands
from evalfleet.pools.kinds import registry
from evalfleet.pools.kinds.base import KeepsFolders, PoolKind
from evalfleet.report.pools import pool_facts
from evalfleet.store.home.facts import identified
from evalfleet.store.reader import StoreReader
from evalfleet.store.store import Store

Leave = Callable[[], Awaitable[dict[str, str]]]


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """An order that is written down, and how it is made true."""

    pool: str
    machines: list[str] = []  # those that it is about
    again: bool = False  # machines in quarantine may prove themselves again
    creates: bool = True  # machines that are missing are created


def backends() -> list[BackendRow]:
    """The kinds of pools that can be created here: the built-in ones, then those of plug-ins."""
    return [_backend(name) for name in registry.names()]


def _backend(name: str) -> BackendRow:
    try:
        kind = registry.find(name)
    except InputError as error:
        return BackendRow(name=name, title=name, creates_machines=False, options=[], broken=str(error))
    return BackendRow(
        name=name,
        title=kind.title,
        creates_machines=kind.creates_machines,
        options=list(kind.options),
        broken=None,
    )


def kind_of_new(
    settings: config.Settings, name: str, backend: str | None, options: PoolOptions | Mapping[str, object]
) -> PoolKind:
    """The kind of a pool that is to be created: as given, else as in evalfleet.toml, else ssh where hosts are given.

    Raises InputError.
    """
    commands.require_name(name)
    hosts = options.hosts if isinstance(options, PoolOptions) else options.get("hosts")
    found = backend or settings.pools.get(name, {}).get("backend") or (None if hosts is None else "ssh")
    if found is None:
        kinds = " or ".join(registry.names())
        raise InputError(f"backend: is missing; say {kinds}, or write [pool.{name}] in evalfleet.toml")
    return registry.find(found)


def create(
    settings: config.Settings,
    store: Store,
    name: str,
    options: PoolOptions | Mapping[str, object],
    *,
    backend: str | None = None,
    replace: bool = False,
    by: str | None = None,
    texts: bool = False,
) -> Pool:
    """Write down a pool. What the options leave out is taken from `[pool.NAME]` in evalfleet.toml.

    Args:
        options: of `PoolOptions`, by their names.
        backend: see `kind_of_new`.
        replace: give a pool of machines that exist other ones.
        texts: `hosts` and `setup` are what the files say, not their paths.

    Raises InputError, NotFound; WrongState where there is another pool of that name.
    """
    kind = kind_of_new(settings, name, backend, options)
    said = given(options if isinstance(options, PoolOptions) else _checked(options))
    written = settings.pools.get(name, {})
    if texts and "hosts" in said:
        said["hosts_text"] = said.pop("hosts")
        written = {word: value for word, value in written.items() if word != "hosts"}
    if not texts and "setup" in said:
        said["setup"] = script(Path(said["setup"]))
    return commands.create(settings, store, name, kind.name, merged(written, said), replace=replace, by=by)


def _checked(options: Mapping[str, object]) -> PoolOptions:
    from evalfleet.validation import explain, sentence

    try:
        return msgspec.convert(options, PoolOptions)
    except msgspec.ValidationError as error:
        raise InputError(sentence(explain(error, PoolOptions, {}))) from None


def status(settings: config.Settings, store: StoreReader, pool: Pool) -> PoolFacts:
    """Its hosts, what runs there and what they cost."""
    return pool_facts(store, pool, settings.azure.speed)


def scale(store: Store, pool: Pool, changes: Mapping[str, Any], *, by: str | None = None, force: bool = False) -> Order:
    """Change how many machines it has, its limits or its budget; see `commands.scale`."""
    return Order(pool=pool.name, machines=commands.scale(store, pool, changes, by, force=force))


def start(store: Store, pool: Pool, worker: str | None = None, *, by: str | None = None) -> Order:
    """Let its stopped machines run, or one."""
    return Order(pool=pool.name, machines=commands.start(store, pool, worker, by), again=True)


def stop(store: Store, pool: Pool, worker: str | None = None, *, by: str | None = None, force: bool = False) -> Order:
    """Deallocate its machines, or one; their disks stay. No machine is created for this order."""
    return Order(pool=pool.name, machines=commands.stop(store, pool, worker, by, force=force), creates=False)


def delete(store: Store, pool: Pool, worker: str | None = None, *, by: str | None = None, force: bool = False) -> Order:
    """Delete it with the machines that were created for it, or one of them. A pool of machines that exist is gone at once;
    then call `leave`. Raises WrongState while a run uses the pool."""
    if worker is not None:
        registry.cloud_of(pool)
    return Order(pool=pool.name, machines=commands.delete(store, pool, worker, by, force=force), creates=False)


def leave(settings: config.Settings, store: StoreReader, pool: Pool) -> Leave:
    """What removes our folders from the hosts of a pool that was deleted, as far as no other pool of this home uses them.

    It returns the hosts where a folder stays, and why.
    """
    kind = registry.kind_of(pool)
    if not isinstance(kind, KeepsFolders):
        return _nothing_left
    others = [other for other in store.pools.all() if other.backend == pool.backend]
    return partial(kind.leave, pool, others, identified(settings.home, store.home.identity()))


async def _nothing_left() -> dict[str, str]:
    return {}


def require_account(settings: config.Settings, pool: Pool) -> None:
    """Raises InputError for a pool whose machines exist, and where the settings name another account than the pool's."""
    registry.cloud_of(pool).require_account(pool, settings)


async def reconcile(
    settings: config.Settings,
    store: Store,
    order: Order,
    *,
    tell: Callable[[PoolHost], None] = lambda _: None,
    waits: bool = True,
) -> PoolFacts | None:
    """Return when the machines of the pool are what they should be, or cannot be now: `reason` says why not. None: the pool
    is deleted. Creates nothing for a pool that is stopped or being deleted.

    Args:
        tell: is called with each machine that changes.
        waits: also for machines that are to go and have work.
    """
    from evalfleet.engine.supervisor import owner_name  # heavy, and `pool status` needs neither
    from evalfleet.pools.reconcile import reconcile_pool

    await reconcile_pool(
        settings, store, order.pool, owner_name(), tell, again=order.again, creates=order.creates, waits=waits
    )
    left = [pool for pool in store.pools.all() if pool.name == order.pool]
    return status(settings, store, left[0]) if left else None
