"""What people order of pools: written down as wishes here, made true by whoever keeps the pool.

The commands and the API order the same way. `by` names who did, where that is not the person at this terminal; it becomes the
event `pool.requested`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from evalfleet import config
from evalfleet.azure import settings as azure_settings
from evalfleet.azure.pool import AzurePool
from evalfleet.azure.settings import AzureSettings
from evalfleet.errors import InputError, NotFound, WrongState
from evalfleet.hosts import registry
from evalfleet.hosts.azure_pool import settings_of
from evalfleet.model import DesiredState, HostState, JsonObject, Pool
from evalfleet.pools.options import require_limits
from evalfleet.store.base.store import Store, StoreReader
from evalfleet.store.pools.pools import pool_subject
from evalfleet.validation import suggestion


def require_rented(pool: Pool) -> None:
    """Raises InputError for a pool of machines that we did not make."""
    if pool.backend == "ssh":
        raise InputError(
            f"pool {pool.name!r} has machines that exist by themselves; only machines of a cloud can be made so"
        )


def rent(settings: config.Settings, store: Store, name: str, wanted: JsonObject, by: str | None = None) -> Pool:
    """Write down a pool of VMs. Ordered again as it is, it goes on with what an earlier order left.

    Raises WrongState where there is another pool of that name, InputError where the cloud is not set up.
    """
    azure = azure_settings.of(settings)
    azure.admitted()  # what is missing there is said before anything is written
    wanted = {**wanted, "subscription": azure.subscription, "resource_group": azure.resource_group}
    with store.batch():
        try:
            pool = store.create_pool(name, "azure-vm", wanted)
        except WrongState:
            pool = store.pool(name)
            require_place(pool, azure)
            if _order(pool.settings) != _order(wanted):
                raise WrongState(
                    f"there is a pool {name!r} already, and it is another; `evalfleet pool scale {name}` changes its size, "
                    f"`evalfleet pool delete {name}` ends it"
                ) from None
            store.explain_pool(name, None)
        _note(store, name, by, "create", {"workers": wanted["workers"]})
        return pool


def require_place(pool: Pool, azure: AzureSettings) -> None:
    """Raises InputError where the settings name another subscription or resource group than the pool's machines are in:
    there nothing of it would be found, and all of it be called gone."""
    wanted = settings_of(pool)
    here = (azure.subscription, azure.resource_group)
    there = (wanted.subscription or here[0], wanted.resource_group or here[1])
    if [part.lower() for part in here] != [part.lower() for part in there]:
        raise InputError(
            f"pool {pool.name!r} is in subscription {there[0]}, resource group {there[1]}; this shell names subscription "
            f"{here[0]}, resource group {here[1]}. Set EVALFLEET_AZURE_SUBSCRIPTION and EVALFLEET_AZURE_RESOURCE_GROUP to "
            "those of the pool"
        )


def _order(settings: JsonObject) -> AzurePool:
    """What was ordered, however the pool stands now."""
    found = msgspec.convert(settings, AzurePool)
    return msgspec.structs.replace(found, stopped_at=None, subscription="", resource_group="")


def keep(store: Store, name: str, hosts: JsonObject, *, replace: bool = False, by: str | None = None) -> Pool:
    """Write down a pool of machines that exist. Raises WrongState, NotFound, InputError."""
    with store.batch():
        _refuse_shared_hosts(store, name, hosts["hosts"])
        pool = (store.replace_pool if replace else store.create_pool)(name, "ssh", hosts)
        _note(store, name, by, "replace" if replace else "create", {"hosts": len(hosts["hosts"])})
        return pool


def start(store: Store, pool: Pool, worker: str | None, by: str | None = None) -> list[str]:
    """Ask for all its machines, or one, to run. Returns their names."""
    require_rented(pool)
    with store.batch():
        if worker is None and pool.settings.get("stopped_at") is not None:
            store.amend_pool(pool.name, {**pool.settings, "stopped_at": None})
        return _set_all(store, pool, worker, DesiredState.RUNNING, "start", by)


def stop(store: Store, pool: Pool, worker: str | None, by: str | None = None, *, force: bool = False) -> list[str]:
    """Ask for all its machines, or one, to be stopped. Returns their names. A pool that is stopped makes no machines.

    Args:
        force: do not wait for work that is on them.
    """
    require_rented(pool)
    with store.batch():
        if worker is None:
            store.amend_pool(pool.name, merged(pool, stopped_at=store.now()))
        return _set_all(store, pool, worker, DesiredState.STOPPED, "stop", by, force=force)


def scale(
    store: Store, pool: Pool, changes: Mapping[str, Any], by: str | None = None, *, force: bool = False
) -> list[str]:
    """Change how many machines it has, its limits, its budget; lets it ask again, if it had stopped asking.

    Args:
        changes: of `workers`, `least`, `most`, `idle_s`, `budget_usd`; None where nothing is to change.
        force: do not wait for work that is on machines that are too many.

    Returns the names of machines that are too many now.
    """
    workers, least, most = (changes.get(name) for name in ("workers", "least", "most"))
    limits = least is not None or most is not None
    values = {
        **changes,
        "workers": most if workers is None and most is not None else workers,
        "scales": True if limits else (False if workers is not None else None),
    }
    if workers is not None and not limits:
        values |= {"most": workers}
    new = merged(pool, **values)
    if workers is not None or limits:
        new["stopped_at"] = None
    require_limits(new["least"], new["most"] or new["workers"])
    given = {name: value for name, value in changes.items() if value is not None}
    with store.batch():
        _note(store, pool.name, by, "scale", given)
        store.amend_pool(pool.name, new)
        store.explain_pool(pool.name, None)
        return [] if new["scales"] else _shed(store, pool.name, new["workers"], force=force)


def delete(store: Store, pool: Pool, worker: str | None, by: str | None = None, *, force: bool = False) -> list[str]:
    """Mark it for deletion with all its machines, or one of them. Returns their names. Raises WrongState while a run uses it.

    Args:
        force: do not wait for work that is on them.
    """
    with store.batch():
        _note(store, pool.name, by, "delete", {"worker": worker} if worker else {})
        if worker is None and pool.backend == "ssh":
            store.delete_pool(pool.name)
            return []
        require_rented(pool)
        names = machines(store, pool, worker)
        if worker is None:
            store.mark_pool_for_deletion(pool.name, force=force)
        else:
            store.amend_pool(pool.name, merged(pool, workers=max(0, pool.settings["workers"] - 1)))
            store.set_desired(pool.name, names, DesiredState.GONE, _why("delete", by), force=force)
        return names


def machines(store: StoreReader, pool: Pool, worker: str | None) -> list[str]:
    """Names of the pool's machines, or of the one that is meant. Raises NotFound."""
    names = [host.name for host in store.hosts(pool.name)]
    if worker is None:
        return names
    found = worker if worker in names else worker.rpartition("-")[0]
    if found not in names:
        raise NotFound(f'pool {pool.name!r} has no machine "{worker}"{suggestion(worker, names)}')
    return [found]


def merged(pool: Pool, **changes: Any) -> JsonObject:
    """The pool's settings with those that were given."""
    return {**pool.settings, **{name: value for name, value in changes.items() if value is not None}}


def _set_all(
    store: Store,
    pool: Pool,
    worker: str | None,
    desired: DesiredState,
    verb: str,
    by: str | None,
    *,
    force: bool = False,
) -> list[str]:
    require_rented(pool)
    names = machines(store, pool, worker)
    with store.batch():
        _note(store, pool.name, by, verb, {"worker": worker} if worker else {})
        store.set_desired(pool.name, names, desired, _why(verb, by), force=force)
        store.explain_pool(pool.name, None)
    return names


def _shed(store: Store, pool: str, workers: int, *, force: bool) -> list[str]:
    """Mark those for deletion that are too many: those without work first, of them those that do not run, then the youngest."""
    work = store.host_work()
    hosts = [
        host for host in store.hosts(pool) if host.desired is not DesiredState.GONE and host.state is not HostState.LOST
    ]
    order = sorted(hosts, key=lambda host: (host.name in work, host.desired is DesiredState.RUNNING, -host.number))
    names = [host.name for host in order[: max(0, len(hosts) - workers)]]
    store.set_desired(pool, names, DesiredState.GONE, f"the pool is scaled to {workers}", force=force)
    return names


def _note(store: Store, pool: str, by: str | None, verb: str, args: Mapping[str, Any]) -> None:
    if by is not None:
        store.note(pool_subject(pool), "pool.requested", {**args, "verb": verb, "by": by})


def _why(verb: str, by: str | None) -> str:
    return f"evalfleet pool {verb}" if by is None else f"{verb}, asked by {by}"


def _refuse_shared_hosts(store: StoreReader, name: str, rows: list[dict[str, Any]]) -> None:
    """Attempts are kept by the name of their host, so that in one home a name stands for one machine."""
    taken = {
        host.name: pool.name
        for pool in store.pools()
        if pool.name != name
        for host in registry.kind_of(pool).hosts(pool, store.hosts(pool.name, gone=True))
    }
    for row in rows:
        if row["name"] in taken or row["name"] == "local":
            owner = f"pool {taken[row['name']]!r}" if row["name"] in taken else "this machine"
            raise InputError(
                f"the host name {row['name']!r} belongs to {owner}; give it another `name` in the hosts file"
            )
