"""Pools over HTTP: what an operator may order of them. Orders are written here; the pool's owner makes them true."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from aiohttp import web

from evalfleet.answers import pools as answers
from evalfleet.config.file import Duration
from evalfleet.config.pools import Dollars, Least, Machines, PoolOptions
from evalfleet.errors import InputError, Refused
from evalfleet.model import Pool
from evalfleet.operations.machines import pools
from evalfleet.pools.kinds import registry
from evalfleet.pools.kinds.base import HasMembers
from evalfleet.store.store import Store
from evalfleet.validation import seconds
from evalfleet.web import params
from evalfleet.web.answers import told
from evalfleet.web.context import Handlers, bearer_of

_Write = Callable[[Store, Pool, str], pools.Order]


class NewPool(PoolOptions, kw_only=True):
    """A pool to be made. What is not given is taken from its table in evalfleet.toml, then the default."""

    name: str
    backend: str | None = None
    replace: bool = False  # ssh: give a pool that is there other hosts


class OfPool(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    worker: str | None = None


class Size(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    workers: Least | None = None
    min: Least | None = None
    max: Machines | None = None
    idle: Duration = None
    budget_usd: Dollars | None = None


class Pools(Handlers):
    """Handlers of the role operator."""

    async def create(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, NewPool)
        settings, by = self._site.settings, str(bearer_of(request))
        kind = pools.kind_of_new(settings, wanted.name, wanted.backend, wanted)
        if kind.creates_machines:
            self._require_supervisor(wanted.name, f"create {wanted.name}")
        pool = await self._site.write(
            lambda store: pools.create(
                settings, store, wanted.name, wanted, backend=kind.name, replace=wanted.replace, by=by, texts=True
            )
        )
        members = await self._site.readers.call(lambda store: registry.with_members(store, pool))
        rows = await self._site.readers.call(lambda store: store.hosts.of_pool(pool.name))
        answer = answers.CreatedPool(
            pool=pool.name,
            backend=pool.backend,
            hosts=len(kind.hosts(pool, rows)),
            workers=sum(registry.kind_of(one).slots(one) for one in members),
            by=await self._see_to(pools.Order(pool=pool.name)) if kind.creates_machines else None,
        )
        return told(answer, 201)

    async def start(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, OfPool)
        return await self._ordered(request, lambda store, pool, by: pools.start(store, pool, wanted.worker, by=by))

    async def stop(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, OfPool)
        return await self._ordered(request, lambda store, pool, by: pools.stop(store, pool, wanted.worker, by=by))

    async def scale(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, Size)
        changes = {**msgspec.structs.asdict(wanted), "idle": seconds("idle", wanted.idle)}
        if all(value is None for value in changes.values()):
            raise InputError("one of `workers`, `min`, `max`, `idle` and `budget_usd` is missing")
        return await self._ordered(request, lambda store, pool, by: pools.scale(store, pool, changes, by=by))

    async def delete(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, OfPool)
        pool = await self._pool(request)
        if wanted.worker is None and not registry.creates_machines(pool):
            return await self._forgotten(pool, str(bearer_of(request)))
        return await self._ordered(
            request,
            lambda store, pool, by: pools.delete(store, pool, wanted.worker, by=by),
            deleting=wanted.worker is None,
        )

    # Inside

    async def _pool(self, request: web.Request) -> Pool:
        name = request.match_info["pool"]
        return await self._site.readers.call(lambda store: store.pools.get(name))

    async def _forgotten(self, pool: Pool, by: str) -> web.Response:
        """Delete a pool of machines that exist."""

        def write(store: Store) -> pools.Leave:
            pools.delete(store, pool, by=by)
            return pools.leave(self._site.settings, store, pool)

        leave = await self._site.write(write)
        return told(answers.DeletedPool(deleted=pool.name, left=await leave()))

    async def _ordered(self, request: web.Request, write: _Write, *, deleting: bool = False) -> web.Response:
        """Store the change, and make sure that a controller applies it."""
        pool = await self._pool(request)
        if isinstance(registry.kind_of(pool), HasMembers):
            by = str(bearer_of(request))
            await self._site.write(lambda store: write(store, store.pools.get(pool.name), by))
            return told(answers.PoolOrder(pool=pool.name, machines=[], by="this server", deleting=False))
        registry.cloud_of(pool)
        if await self._keeper(pool.name) is None:
            self._require_supervisor(pool.name, f"{request.path.rpartition('/')[2]} {pool.name}")
        by = str(bearer_of(request))
        order = await self._site.write(lambda store: write(store, store.pools.get(pool.name), by))
        by = await self._see_to(order)
        return told(answers.PoolOrder(pool=pool.name, machines=order.machines, by=by, deleting=deleting))

    async def _see_to(self, order: pools.Order) -> str:
        """Which process applies it: the pool's controller, else this server."""
        keeper = await self._keeper(order.pool)
        if self._site.pool_supervisor is not None:
            await self._site.pool_supervisor.request(order.pool, retry=order.again)
        return keeper or "this server"

    async def _keeper(self, name: str) -> str | None:
        return await self._site.readers.call(lambda store: store.pools.owner(name))

    def _require_supervisor(self, name: str, command: str) -> None:
        if self._site.pool_supervisor is None:
            raise Refused(
                f"this server manages no pools, and {name!r} has no controller: `evalfleet pool {command}`, or start "
                "`evalfleet serve` without --no-drive"
            )
