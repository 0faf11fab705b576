"""What all handlers share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, TypeVar

from aiohttp import web
from msgspec import Struct, field

from evalfleet.config import Settings
from evalfleet.daemon.readers import Readers
from evalfleet.layout import Home
from evalfleet.store.open import open_store
from evalfleet.store.store import Store
from evalfleet.web import params
from evalfleet.web.feed import Feed
from evalfleet.web.handlers.attempts import Place, place
from evalfleet.web.handlers.remote_attempts import Remote
from evalfleet.web.metrics.latency import Latency
from evalfleet.web.security.auth import Gate
from evalfleet.web.security.connections import ConnectionLimit
from evalfleet.web.security.tokens import Bearer

if TYPE_CHECKING:
    from evalfleet.daemon.pool_children import PoolStanding
    from evalfleet.daemon.run_children import RunStanding
    from evalfleet.daemon.supervisor import ChildSupervisor

T = TypeVar("T")

_BEARER = web.RequestKey("bearer", Bearer)
_WRITERS = 4
_WAITERS = 32  # what is asked of a run's controller waits up to ten seconds for it


class Site(Struct, kw_only=True):
    settings: Settings
    gate: Gate
    readers: Readers
    feed: Feed
    remote: Remote
    run_supervisor: ChildSupervisor[RunStanding] | None = None  # None: this server starts no controllers of runs
    pool_supervisor: ChildSupervisor[PoolStanding] | None = None  # None: nor of pools
    connections: ConnectionLimit = field(default_factory=lambda: ConnectionLimit(1000, shared=False))
    latency: Latency = field(default_factory=Latency)
    writers: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(_WRITERS, thread_name_prefix="web-writer")
    )

    waiters: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(_WAITERS, thread_name_prefix="web-waiter")
    )

    @property
    def home(self) -> Home:
        return Home(self.settings.home)

    async def write(self, function: Callable[[Store], T], *, waits: bool = False) -> T:
        """Call with a store of its own, in a thread. Once it has begun it is carried through, even if the request is cancelled.

        Args:
            waits: it waits for another process, which must hold up nothing else.
        """

        def call() -> T:
            with closing(open_store(self.settings.home)) as store:
                return function(store)

        try:
            return await asyncio.get_running_loop().run_in_executor(self.waiters if waits else self.writers, call)
        finally:
            self.readers.wrote()


class Handlers:
    """Answers requests of one kind to a site."""

    def __init__(self, site: Site) -> None:
        self._site = site


def admitted(request: web.Request, bearer: Bearer) -> None:
    """Remember who asks."""
    request[_BEARER] = bearer


def bearer_of(request: web.Request) -> Bearer:
    return request[_BEARER]


async def place_of(site: Site, request: web.Request) -> Place:
    """The attempt in the address. Raises NotFound."""
    text, home = request.match_info["run"], site.home
    task, number = params.number(request, "task"), params.number(request, "attempt")
    return await site.readers.call(lambda store: place(store, home, text, task, number))
