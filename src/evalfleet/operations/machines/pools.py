"""What is ordered of pools: stored here as desired state, and made true by `reconcile` or by the process that owns the pool.

The commands, the page and Python order the same way. `by` names who ordered, where that is not the person at this terminal; it
becomes the event `pool.requested`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from evalfleet import config
from evalfleet.answers.pools import BackendRow, PoolFacts
from evalfleet.config.pools import PoolOptions, given, merged, script
from evalfleet.errors import InputError, NotFound, WrongState
from evalfleet.model import DesiredState, HostState, JsonObject, Pool, PoolHost
from evalfleet.pools.kinds import registry
from evalfleet.pools.kinds.base import HasMembers, KeepsFolders, PoolKind
from evalfleet.pools.kinds.cloud import require_limits
from evalfleet.pools.settings import PoolSettings, in_present_words, settings_of
from evalfleet.report.pools import pool_facts
from evalfleet.store.home.facts import identified
from evalfleet.store.pools.queries import pool_subject
from evalfleet.store.reader import StoreReader
from evalfleet.store.store import Store
from evalfleet.validation import explain, sentence, suggestion

Leave = Callable[[], Awaitable[dict[str, str]]]
_IMPLIED = {"hosts": "ssh", "tiers": "tiers"}  # options that say which backend is meant
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?")


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
    return BackendRow.copy_of(kind, name=name, options=list(kind.options), broken=None)


def kind_of_new(
    settings: config.Settings, name: str, backend: str | None, options: PoolOptions | Mapping[str, object]
) -> PoolKind:
    """The kind of a pool that is to be created: as given, else as in evalfleet.toml, else by its hosts or tiers.

    Raises InputError.
    """
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} cannot name a pool; use small letters, digits, '-', '_' and '.', at most 64 of them"
        )
    told = options if isinstance(options, Mapping) else msgspec.structs.asdict(options)
    written = settings.pools.get(name, {})
    implied = next((kind for word, kind in _IMPLIED.items() if told.get(word) or written.get(word)), None)
    found = backend or written.get("backend") or implied
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
    """Store a pool. What the options leave out is taken from `[pool.NAME]` in evalfleet.toml. One whose machines are created,
    and which is asked for again as it is, goes on with what an earlier order left.

    Args:
        options: of `PoolOptions`, by their names.
        backend: see `kind_of_new`.
        replace: give a pool of machines that exist, or of tiers, other ones.
        texts: `hosts` and `setup` are what the files say, not their paths.

    Raises InputError, NotFound; WrongState where there is another pool of that name.
    """
    if replace:
        options = _said_before(store, name, options)
    kind, kept = preview(settings, name, options, backend=backend, texts=texts)
    with store.batch():
        if not kind.creates_machines:
            pool = (store.pools.replace if replace else store.pools.create)(name, kind.name, kept)
            _refuse_shared_hosts(store, pool)
            if isinstance(kind, HasMembers):
                kind.join(store, pool)
            _note(store, name, by, "replace" if replace else "create", {"hosts": len(kind.hosts(pool, ()))})
            return pool
        try:
            pool = store.pools.create(name, kind.name, kept)
        except WrongState:
            pool = store.pools.get(name)
            registry.cloud_of(pool).require_account(pool, settings)
            if pool.backend != kind.name or _as_ordered(pool.settings) != _as_ordered(kept):
                raise WrongState(
                    f"there is a pool {name!r} already, and it is another; `evalfleet pool scale {name}` changes its size, "
                    f"`evalfleet pool delete {name}` ends it"
                ) from None
            store.pools.explain(name, None)
        _note(store, name, by, "create", {"workers": kept["workers"]})
        return pool


def _said_before(
    store: Store, name: str, options: PoolOptions | Mapping[str, object]
) -> PoolOptions | Mapping[str, object]:
    """The options with those of a pool of tiers that is there, so that new tiers do not cost it its budget."""
    pool = next((one for one in store.pools.all() if one.name == name), None)
    if pool is None or not isinstance(registry.kind_of(pool), HasMembers):
        return options
    told = options if isinstance(options, Mapping) else msgspec.structs.asdict(options)
    if any(value for word, value in told.items() if word not in pool.settings):
        return options  # it becomes a pool of another kind
    return pool.settings | {word: value for word, value in told.items() if value is not None}


def preview(
    settings: config.Settings,
    name: str,
    options: PoolOptions | Mapping[str, object],
    *,
    backend: str | None = None,
    texts: bool = False,
) -> tuple[PoolKind, JsonObject]:
    """The kind of a pool that is to be created, and what the store would keep of it; see `create`.

    Raises InputError for an option that the kind does not take.
    """
    kind = kind_of_new(settings, name, backend, options)
    try:
        said = given(options if isinstance(options, PoolOptions) else msgspec.convert(options, PoolOptions))
    except msgspec.ValidationError as error:
        raise InputError(sentence(explain(error, PoolOptions, {}))) from None
    written = settings.pools.get(name, {})
    if texts and "hosts" in said:
        said["hosts_text"] = said.pop("hosts")
        written = {word: value for word, value in written.items() if word != "hosts"}
    if not texts and "setup" in said:
        said["setup"] = script(Path(said["setup"]))
    found = merged(written, said)
    words = [option.removesuffix("_text") for option in found]
    wrong = next((word for word in words if word not in kind.options), None)
    if wrong is not None:
        raise InputError(f"{wrong}: is not for {kind.name}, which takes: {', '.join(kind.options)}")
    return kind, kind.settings(found, settings)


def _as_ordered(kept: JsonObject) -> PoolSettings:
    """What was ordered, however the pool is now."""
    found = msgspec.convert(in_present_words(kept), PoolSettings)
    return msgspec.structs.replace(found, stopped_at=None, account={})


def status(settings: config.Settings, store: StoreReader, pool: Pool) -> PoolFacts:
    """Its hosts, what runs there and what they cost."""
    return pool_facts(store, pool, registry.speed_of(pool, settings))


def scale(store: Store, pool: Pool, changes: Mapping[str, Any], *, by: str | None = None, force: bool = False) -> Order:
    """Change how many machines it has, its limits, its budget; lets it ask again, if it had stopped asking.

    Args:
        changes: of `workers`, `min`, `max`, `idle` (seconds), `budget_usd`; None where nothing is to change.
        force: do not wait for work that is on machines that are too many.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    if given.keys() == {"budget_usd"} and isinstance(registry.kind_of(pool), HasMembers):
        with store.batch():
            _note(store, pool.name, by, "scale", given)
            store.pools.amend(pool.name, {**pool.settings, **given})
        return Order(pool=pool.name)
    registry.cloud_of(pool)
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
        return Order(pool=pool.name, machines=[] if new.scales else _shed(store, pool.name, new.workers, force=force))


def start(store: Store, pool: Pool, worker: str | None = None, *, by: str | None = None) -> Order:
    """Let its stopped machines run, or one."""
    registry.cloud_of(pool)
    with store.batch():
        if worker is None and settings_of(pool).stopped_at is not None:
            amend(store, pool, stopped_at=None)
        names = _set_all(store, pool, worker, DesiredState.RUNNING, "start", by)
    return Order(pool=pool.name, machines=names, again=True)


def stop(store: Store, pool: Pool, worker: str | None = None, *, by: str | None = None, force: bool = False) -> Order:
    """Deallocate its machines, or one; their disks stay. A pool that is stopped creates no machines.

    Args:
        force: do not wait for work that is on them.
    """
    registry.cloud_of(pool)
    with store.batch():
        if worker is None:
            amend(store, pool, stopped_at=store.now())
        names = _set_all(store, pool, worker, DesiredState.STOPPED, "stop", by, force=force)
    return Order(pool=pool.name, machines=names, creates=False)


def delete(store: Store, pool: Pool, worker: str | None = None, *, by: str | None = None, force: bool = False) -> Order:
    """Delete it with the machines that were created for it, or one of them. A pool of machines that exist is gone at once;
    then call `leave`. Raises WrongState while a run uses the pool.

    Args:
        force: do not wait for work that is on them.
    """
    names: list[str] = []
    with store.batch():
        _note(store, pool.name, by, "delete", {"worker": worker} if worker else {})
        if worker is None and not registry.creates_machines(pool):
            store.pools.delete(pool.name)
        else:
            registry.cloud_of(pool)
            names = machines(store, pool, worker)
            if worker is None:
                store.pools.mark_for_deletion(pool.name, force=force)
            else:
                amend(store, pool, workers=max(0, settings_of(pool).workers - 1))
                store.hosts.set_desired(pool.name, names, DesiredState.GONE, _why("delete", by), force=force)
    return Order(pool=pool.name, machines=names, creates=False)


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
    from evalfleet.pools.controller import reconcile_pool

    await reconcile_pool(
        settings, store, order.pool, owner_name(), tell, again=order.again, creates=order.creates, waits=waits
    )
    left = [pool for pool in store.pools.all() if pool.name == order.pool]
    return status(settings, store, left[0]) if left else None


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
        if desired is DesiredState.RUNNING:
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
    else:
        store.audit.add(config.login_name(), f"pool.{verb}", pool)


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
                f"the host name {host.name!r} belongs to {owner}; a name means one machine in all pools: choose another name "
                "for the host, such as `name` in a hosts file, or for the pool"
            )
