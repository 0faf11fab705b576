"""Pools over HTTP: what an operator may order of them. Wishes are written here; whoever keeps the pool makes them true."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import msgspec
from aiohttp import web

from evalfleet import duration
from evalfleet.answers import pools as answers
from evalfleet.config.file import Dollars, Duration, Least, Machines, RentedTable
from evalfleet.errors import InputError, Refused
from evalfleet.hosts import registry
from evalfleet.hosts.ssh import pool as ssh_pool
from evalfleet.model import Pool
from evalfleet.pools import commands
from evalfleet.pools.options import require_name, wanted_pool
from evalfleet.store.store import Store
from evalfleet.web import params
from evalfleet.web.answers import told
from evalfleet.web.context import Site, bearer_of

T = TypeVar("T")

_SSH = ("hosts", "trust_first_use", "replace")
_RENAMED = {"min": "least", "max": "most", "name_prefix": "prefix"}


_Order = Callable[[Store, Pool, str], list[str]]


class NewPool(RentedTable, kw_only=True):
    """A pool to be made. What is not given is taken from its table in evalfleet.toml, then the default."""

    name: str
    backend: Literal["ssh", "azure-vm"] | None = None
    hosts: str | None = None  # ssh: what a hosts file says
    trust_first_use: bool = False  # ssh
    replace: bool = False  # ssh
    budget_usd: Dollars | None = None


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
        require_name(wanted.name)
        written = self._site.settings.pools.get(wanted.name, {})
        backend = wanted.backend or written.get("backend") or ("ssh" if wanted.hosts is not None else None)
        if backend is None:
            raise InputError("backend: is missing; say ssh or azure-vm")
        make = self._kept(wanted) if backend == "ssh" else self._rented(wanted)
        by = str(bearer_of(request))
        pool = await self._site.write(lambda store: make(store, by))
        rows = await self._site.readers.call(lambda store: store.hosts.of_pool(pool.name))
        answer = answers.CreatedPool(
            pool=pool.name,
            backend=pool.backend,
            hosts=len(registry.kind_of(pool).hosts(pool, rows)),
            workers=registry.kind_of(pool).slots(pool),
            by=None if pool.backend == "ssh" else await self._see_to(pool.name),
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
            "least": wanted.min,
            "most": wanted.max,
            "idle_s": _seconds(wanted.idle),
            "budget_usd": wanted.budget_usd,
        }
        if all(value is None for value in changes.values()):
            raise InputError("one of `workers`, `min`, `max`, `idle` and `budget_usd` is missing")
        return await self._ordered(request, _of(commands.scale, changes))

    async def delete(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, OfPool)
        pool = await self._pool(request)
        if pool.backend == "ssh":
            if wanted.worker is not None:
                commands.require_rented(pool)
            by = str(bearer_of(request))
            await self._site.write(lambda store: commands.delete(store, pool, None, by))
            return told(answers.DeletedPool(deleted=pool.name))
        return await self._ordered(request, _of(commands.delete, wanted.worker), deleting=wanted.worker is None)

    # Inside

    def _kept(self, wanted: NewPool) -> Callable[[Store, str], Pool]:
        given = [name for name in _given(wanted) if name not in _SSH]
        if given:
            raise InputError(f"{given[0]}: is for azure-vm; the hosts file says what machines of ssh are")
        if wanted.hosts is None:
            raise InputError("hosts: is missing; it is the text of a hosts file, with [[host]] above each machine")
        hosts = wanted.hosts
        found = ssh_pool.settings_in(hosts, self._site.settings.home, trust_first_use=wanted.trust_first_use)
        return lambda store, by: commands.keep(store, wanted.name, found, replace=wanted.replace, by=by)

    def _rented(self, wanted: NewPool) -> Callable[[Store, str], Pool]:
        settings = self._site.settings
        given = _given(wanted)
        wrong = next((name for name in given if name in _SSH), None)
        if wrong is not None:
            raise InputError(f"{wrong}: is for ssh; azure-vm makes its machines")
        self._require_supervisor(wanted.name, f"create {wanted.name}")
        deadlines: dict[str, str] = given.pop("deadline", {})
        values = {_RENAMED.get(name, name): value for name, value in given.items()}
        if wanted.idle is not None:
            values["idle"] = _seconds(wanted.idle)
        made = wanted_pool(settings.pools.get(wanted.name, {}), values, deadlines)
        return lambda store, by: commands.rent(settings, store, wanted.name, made, by)

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
        commands.require_rented(pool)
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


def _given(wanted: NewPool) -> dict[str, Any]:
    """What was given, but for the name and the backend."""
    values = msgspec.structs.asdict(wanted)
    return {
        name: value
        for name, value in values.items()
        if value is not None and name not in ("name", "backend") and not (name in _SSH and value is False)
    }


def _seconds(value: Duration) -> float | None:
    if value is None:
        return None
    try:
        return duration.parse(value)
    except ValueError as error:
        raise InputError(f"idle: {error}") from None
