"""Pools over HTTP: what an operator may order of them. Orders are written here; the pool's owner makes them true."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec
from aiohttp import web

from evalfleet import duration
from evalfleet.answers import pools as answers
from evalfleet.config.file import Duration
from evalfleet.config.pools import Dollars, Least, Machines, PoolOptions, given, merged
from evalfleet.errors import InputError, Refused
from evalfleet.model import Pool
from evalfleet.pools import commands
from evalfleet.pools.kinds import registry
from evalfleet.store.store import Store
from evalfleet.web import params
from evalfleet.web.answers import told
from evalfleet.web.context import Site, bearer_of

T = TypeVar("T")

_Order = Callable[[Store, Pool, str], list[str]]


class NewPool(PoolOptions, kw_only=True):
    """A pool to be made. What is not given is taken from its table in evalfleet.toml, then the default."""

    name: str
    backend: str | None = None
    replace: bool = False  # ssh: give a pool that is there other hosts


class OfPool(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Of a pool, or of one machine of it."""

    worker: str | None = None


class Size(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    workers: Least | None = None
    min: Least | None = None
    max: Machines | None = None
    idle: Duration = None
    budget_usd: Dollars | None = None


class Pools:
    """Handlers of the role operator."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def create(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, NewPool)
        commands.require_name(wanted.name)
        settings, by = self._site.settings, str(bearer_of(request))
        written = settings.pools.get(wanted.name, {})
        backend = wanted.backend or written.get("backend") or ("ssh" if wanted.hosts is not None else None)
        if backend is None:
            raise InputError(f"backend: is missing; say {' or '.join(registry.names())}")
        if registry.find(backend).creates_machines:
            self._require_supervisor(wanted.name, f"create {wanted.name}")
        said = given(wanted)
        if "hosts" in said:
            said["hosts_text"] = said.pop("hosts")
        options = merged({key: value for key, value in written.items() if key != "hosts"}, said)
        pool = await self._site.write(
            lambda store: commands.create(settings, store, wanted.name, backend, options, replace=wanted.replace, by=by)
        )
        rows = await self._site.readers.call(lambda store: store.hosts.of_pool(pool.name))
        answer = answers.CreatedPool(
            pool=pool.name,
            backend=pool.backend,
            hosts=len(registry.kind_of(pool).hosts(pool, rows)),
            workers=registry.kind_of(pool).slots(pool),
            by=await self._see_to(pool.name) if registry.creates_machines(pool) else None,
        )
        return told(answer, 201)

    async def start(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, OfPool)
        return await self._ordered(request, _of(commands.start, wanted.worker), again=True)

    async def stop(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, OfPool)
        return await self._ordered(request, _of(commands.stop, wanted.worker))

    async def scale(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, Size)
        changes = {
            "workers": wanted.workers,
            "min": wanted.min,
            "max": wanted.max,
            "idle": _seconds(wanted.idle),
            "budget_usd": wanted.budget_usd,
        }
        if all(value is None for value in changes.values()):
            raise InputError("one of `workers`, `min`, `max`, `idle` and `budget_usd` is missing")
        return await self._ordered(request, _of(commands.scale, changes))

    async def delete(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, OfPool)
        pool = await self._pool(request)
        if not registry.creates_machines(pool):
            if wanted.worker is not None:
                registry.cloud_of(pool)
            by = str(bearer_of(request))
            await self._site.write(lambda store: commands.delete(store, pool, None, by))
            return told(answers.DeletedPool(deleted=pool.name))
        return await self._ordered(request, _of(commands.delete, wanted.worker), deleting=wanted.worker is None)

    # Inside

    async def _pool(self, request: web.Request) -> Pool:
        name = request.match_info["pool"]
        return await self._site.readers.call(lambda store: store.pools.get(name))

    async def _ordered(
        self,
        request: web.Request,
        order: _Order,
        *,
        again: bool = False,
        deleting: bool = False,
    ) -> web.Response:
        """Write it down, and see to it that somebody does it."""
        pool = await self._pool(request)
        registry.cloud_of(pool)
        if await self._keeper(pool.name) is None:
            self._require_supervisor(pool.name, f"{request.path.rpartition('/')[2]} {pool.name}")
        by = str(bearer_of(request))
        names = await self._site.write(lambda store: order(store, store.pools.get(pool.name), by))
        by = await self._see_to(pool.name, again=again)
        return told(answers.PoolOrder(pool=pool.name, machines=names, by=by, deleting=deleting))

    async def _see_to(self, name: str, *, again: bool = False) -> str:
        """Who does it: whoever keeps the pool, else this server."""
        keeper = await self._keeper(name)
        if self._site.pool_supervisor is not None:
            await self._site.pool_supervisor.request(name, retry=again)
        return keeper or "this server"

    async def _keeper(self, name: str) -> str | None:
        return await self._site.readers.call(lambda store: store.pools.owner(name))

    def _require_supervisor(self, name: str, command: str) -> None:
        if self._site.pool_supervisor is None:
            raise Refused(
                f"this server keeps no pools, and nobody keeps {name!r} now: `evalfleet pool {command}`, or start "
                "`evalfleet serve` without --no-drive"
            )


def _of(order: Callable[[Store, Pool, T, str], list[str]], what: T) -> _Order:
    return lambda store, pool, by: order(store, pool, what, by)


def _seconds(value: Duration) -> float | None:
    if value is None:
        return None
    try:
        return duration.parse(value)
    except ValueError as error:
        raise InputError(f"idle: {error}") from None
