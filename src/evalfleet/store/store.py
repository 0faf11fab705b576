"""The store: all durable state, in parts over one database.

- A method is one transaction (or joins the open `batch`); it happens whole, with its events, or not at all.
- A state change is guarded by the expected state and by `epoch`. If the guard does not hold, the method changes nothing
  and returns None (or an empty list, or False): the row is not ours any more, and the caller drops its result.
- What comes out are frozen snapshots.
- The store owns the clock: `now()` is the only time by which leases, `not_before` and events are measured.
- An instance is used by one thread at a time. Several processes may have instances of the same store open.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cached_property

from evalfleet.store.attempts.attempts import Attempts
from evalfleet.store.audit import Audit
from evalfleet.store.controllers import Controllers
from evalfleet.store.daemon import Daemon
from evalfleet.store.events import Events
from evalfleet.store.gpus.gpus import Gpus
from evalfleet.store.home.home import HomeRecord
from evalfleet.store.loads import Loads
from evalfleet.store.plans import Plans
from evalfleet.store.pools.hosts import Hosts
from evalfleet.store.pools.pools import Pools
from evalfleet.store.pools.tiers import Tiers
from evalfleet.store.reader import StoreReader
from evalfleet.store.retention import Retention
from evalfleet.store.runs.requests import Requests
from evalfleet.store.runs.runs import Runs
from evalfleet.store.shares.shares import Shares
from evalfleet.store.tasks.tasks import Tasks
from evalfleet.store.tokens import Tokens
from evalfleet.store.users import Users


class Store(StoreReader):
    """Reading and writing, in parts named for what they hold: `store.attempts.claim(run, claim)`."""

    def batch(self) -> AbstractContextManager[None]:
        """Several methods in one transaction. One that raises leaves nothing behind, and the caller may go on."""
        return self.database.transaction()

    @cached_property
    def events(self) -> Events:
        return Events(self.database)

    @cached_property
    def gpus(self) -> Gpus:
        return Gpus(self.database, self.events)

    @cached_property
    def tasks(self) -> Tasks:
        return Tasks(self.database, self.events)

    @cached_property
    def attempts(self) -> Attempts:
        return Attempts(self.database, self.events, self.tasks, self.gpus, self.shares)

    @cached_property
    def runs(self) -> Runs:
        return Runs(self.database, self.events, self.tasks, self.gpus)

    @cached_property
    def shares(self) -> Shares:
        return Shares(self.database)

    @cached_property
    def requests(self) -> Requests:
        return Requests(self.database, self.events)

    @cached_property
    def hosts(self) -> Hosts:
        return Hosts(self.database, self.events)

    @cached_property
    def pools(self) -> Pools:
        return Pools(self.database, self.events, self.hosts)

    @cached_property
    def tiers(self) -> Tiers:
        return Tiers(self.database, self.events)

    @cached_property
    def loads(self) -> Loads:
        return Loads(self.database)

    @cached_property
    def tokens(self) -> Tokens:
        return Tokens(self.database)

    @cached_property
    def users(self) -> Users:
        return Users(self.database)

    @cached_property
    def audit(self) -> Audit:
        return Audit(self.database)

    @cached_property
    def home(self) -> HomeRecord:
        return HomeRecord(self.database, self.events)

    @cached_property
    def controllers(self) -> Controllers:
        return Controllers(self.database)

    @cached_property
    def daemon(self) -> Daemon:
        return Daemon(self.database)

    @cached_property
    def plans(self) -> Plans:
        return Plans(self.database)

    @cached_property
    def retention(self) -> Retention:
        return Retention(self.database, self.events)
