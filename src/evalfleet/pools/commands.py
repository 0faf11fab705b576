"""Changes to pools: stored here as desired state, applied by the controller of the pool.

The commands and the API order the same way. `by` names who did, where that is not the person at this terminal; it becomes the
event `pool.requested`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from evalfleet import config
from evalfleet.errors import InputError, NotFound, WrongState
from evalfleet.model import DesiredState, HostState, JsonObject, Pool
from evalfleet.pools.kinds import registry
from evalfleet.pools.kinds.cloud import require_limits
from evalfleet.pools.settings import PoolSettings, in_present_words, settings_of
from evalfleet.store.pools.queries import pool_subject
from evalfleet.store.reader import StoreReader
from evalfleet.store.store import Store
from evalfleet.validation import suggestion

_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?")


def create(
    settings: config.Settings,
    store: Store,
    name: str,
    backend: str,
    options: Mapping[str, Any],
    *,
    replace: bool = False,
    by: str | None = None,
) -> Pool:
    """Write down a pool. One whose machines are created, and which is asked for again as it is, goes on with what an
    earlier order left.

    Args:
        options: as `config.pools.merged` returns them.
        replace: give a pool of machines that exist other ones.

    Raises WrongState where there is another pool of that name, InputError where an option is wrong, NotFound.
    """
    require_name(name)
    kind = registry.find(backend)
    words = [option.removesuffix("_text") for option in options]
    wrong = next((word for word in words if word not in kind.options), None)
    if wrong is not None:
        raise InputError(f"{wrong}: is not for {backend}, which takes: {', '.join(kind.options)}")
    kept = kind.settings(options, settings)
    with store.batch():
        if not kind.creates_machines:
            pool = (store.pools.replace if replace else store.pools.create)(name, backend, kept)
            _refuse_shared_hosts(store, pool)
            _note(store, name, by, "replace" if replace else "create", {"hosts": len(kind.hosts(pool, ()))})
            return pool
        try:
            pool = store.pools.create(name, backend, kept)
        except WrongState:
            pool = store.pools.get(name)
            registry.cloud_of(pool).require_account(pool, settings)
            if pool.backend != backend or _order(pool.settings) != _order(kept):
                raise WrongState(
                    f"there is a pool {name!r} already, and it is another; `evalfleet pool scale {name}` changes its size, "
                    f"`evalfleet pool delete {name}` ends it"
                ) from None
            store.pools.explain(name, None)
        _note(store, name, by, "create", {"workers": kept["workers"]})
        return pool


def require_name(name: str) -> None:
    """Raises InputError for what cannot name a pool."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} cannot name a pool; use small letters, digits, '-', '_' and '.', at most 64 of them"
        )


def _order(kept: JsonObject) -> PoolSettings:
    """What was ordered, however the pool is now."""
    found = msgspec.convert(in_present_words(kept), PoolSettings)
    return msgspec.structs.replace(found, stopped_at=None, account={})


def start(store: Store, pool: Pool, worker: str | None, by: str | None = None) -> list[str]:
    """Ask for all its machines, or one, to run. Returns their names."""
    registry.cloud_of(pool)
    with store.batch():
        if worker is None and settings_of(pool).stopped_at is not None:
            amend(store, pool, stopped_at=None)
        return _set_all(store, pool, worker, DesiredState.RUNNING, "start", by)


def stop(store: Store, pool: Pool, worker: str | None, by: str | None = None, *, force: bool = False) -> list[str]:
    """Ask for all its machines, or one, to be stopped. Returns their names. A pool that is stopped creates no machines.

    Args:
        force: do not wait for work that is on them.
    """
    registry.cloud_of(pool)
    with store.batch():
        if worker is None:
            amend(store, pool, stopped_at=store.now())
        return _set_all(store, pool, worker, DesiredState.STOPPED, "stop", by, force=force)


def scale(
    store: Store, pool: Pool, changes: Mapping[str, Any], by: str | None = None, *, force: bool = False
) -> list[str]:
    """Change how many machines it has, its limits, its budget; lets it ask again, if it had stopped asking.

    Args:
        changes: of `workers`, `min`, `max`, `idle` (seconds), `budget_usd`; None where nothing is to change.
        force: do not wait for work that is on machines that are too many.

    Returns the names of machines that are too many now.
    """
    registry.cloud_of(pool)
    given = {name: value for name, value in changes.items() if value is not None}
    new = msgspec.structs.replace(settings_of(pool), **given)
    if "min" in given or "max" in given:
        new = msgspec.structs.replace(new, workers=given.get("workers") or new.limit, stopped_at=None)
    elif "workers" in given:
        new = msgspec.structs.replace(new, min=None, max=None, stopped_at=None)
    require_limits(new)
    with store.batch():
        _note(store, pool.name, by, "scale", given)
        store.pools.amend(pool.name, new.to_json())
        store.pools.explain(pool.name, None)
        return [] if new.scales else _shed(store, pool.name, new.workers, force=force)


def delete(store: Store, pool: Pool, worker: str | None, by: str | None = None, *, force: bool = False) -> list[str]:
    """Mark it for deletion with all its machines, or one of them. Returns their names. Raises WrongState while a run uses it.

    Args:
        force: do not wait for work that is on them.
    """
    with store.batch():
        _note(store, pool.name, by, "delete", {"worker": worker} if worker else {})
        if worker is None and not registry.creates_machines(pool):
            store.pools.delete(pool.name)
            return []
        registry.cloud_of(pool)
        names = machines(store, pool, worker)
        if worker is None:
            store.pools.mark_for_deletion(pool.name, force=force)
        else:
            amend(store, pool, workers=max(0, settings_of(pool).workers - 1))
            store.hosts.set_desired(pool.name, names, DesiredState.GONE, _why("delete", by), force=force)
        return names


def machines(store: StoreReader, pool: Pool, worker: str | None) -> list[str]:
    """Names of the pool's machines, or of the one given. Raises NotFound."""
    names = [host.name for host in store.hosts.of_pool(pool.name)]
    if worker is None:
        return names
    found = worker if worker in names else worker.rpartition("-")[0]
    if found not in names:
        raise NotFound(f'pool {pool.name!r} has no machine "{worker}"{suggestion(worker, names)}')
    return [found]


def amend(store: Store, pool: Pool, **changes: Any) -> None:
    """Change settings of the pool."""
    store.pools.amend(pool.name, msgspec.structs.replace(settings_of(pool), **changes).to_json())


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
    names = machines(store, pool, worker)
    with store.batch():
        _note(store, pool.name, by, verb, {"worker": worker} if worker else {})
        store.hosts.set_desired(pool.name, names, desired, _why(verb, by), force=force)
        store.pools.explain(pool.name, None)
    return names


def _shed(store: Store, pool: str, workers: int, *, force: bool) -> list[str]:
    """Mark those for deletion that are too many: those without work first, of them those that do not run, then the youngest."""
    work = store.hosts.work()
    hosts = [
        host
        for host in store.hosts.of_pool(pool)
        if host.desired is not DesiredState.GONE and host.state is not HostState.LOST
    ]
    order = sorted(hosts, key=lambda host: (host.name in work, host.desired is DesiredState.RUNNING, -host.number))
    names = [host.name for host in order[: max(0, len(hosts) - workers)]]
    store.hosts.set_desired(pool, names, DesiredState.GONE, f"the pool is scaled to {workers}", force=force)
    return names


def _note(store: Store, pool: str, by: str | None, verb: str, args: Mapping[str, Any]) -> None:
    if by is not None:
        store.events.note(pool_subject(pool), "pool.requested", {**args, "verb": verb, "by": by})


def _why(verb: str, by: str | None) -> str:
    return f"evalfleet pool {verb}" if by is None else f"{verb}, asked by {by}"


def _refuse_shared_hosts(store: StoreReader, pool: Pool) -> None:
    """Attempts are stored by host name, so in one home a name means one machine."""
    taken = {
        host.name: other.name
        for other in store.pools.all()
        if other.name != pool.name
        for host in registry.kind_of(other).hosts(other, store.hosts.of_pool(other.name, gone=True))
    }
    for host in registry.kind_of(pool).hosts(pool, ()):
        if host.name in taken or host.name == "local":
            owner = f"pool {taken[host.name]!r}" if host.name in taken else "this machine"
            raise InputError(
                f"the host name {host.name!r} belongs to {owner}; give it another `name` in the hosts file"
            )
