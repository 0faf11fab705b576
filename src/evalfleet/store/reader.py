"""A store that is only read. Any number of readers; none blocks a writer."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING

from evalfleet.store.attempts.costs import CostQueries
from evalfleet.store.attempts.queries import AttemptQueries
from evalfleet.store.controllers import ControllerQueries
from evalfleet.store.daemon import DaemonQueries
from evalfleet.store.database.base import Database
from evalfleet.store.events import EventQueries
from evalfleet.store.home.home import HomeQueries
from evalfleet.store.pools.queries import HostQueries, PoolQueries
from evalfleet.store.runs.queries import RunQueries
from evalfleet.store.runs.requests import RequestQueries
from evalfleet.store.tasks.queries import TaskQueries

if TYPE_CHECKING:
    from evalfleet.store.audit import AuditQueries
    from evalfleet.store.gpus.queries import GpuQueries
    from evalfleet.store.loads import LoadQueries
    from evalfleet.store.plans import PlanQueries
    from evalfleet.store.pools.tiers import TierQueries
    from evalfleet.store.retention import RetentionQueries
    from evalfleet.store.shares.shares import ShareQueries
    from evalfleet.store.tokens import TokenQueries
    from evalfleet.store.users import UserQueries


class StoreReader:
    """Everything that may be asked of a store, in parts named for what they hold: `store.tasks.counts(run_id)`.

    What comes out are frozen snapshots. Used by one thread at a time.
    """

    def __init__(self, database: Database) -> None:
        self.database = database

    def close(self) -> None:
        """Close the database, after the call that is under way."""
        self.database.close()

    def now(self) -> float:
        """The store's clock: the only one by which leases, waits and events are measured."""
        return self.database.now()

    def snapshot(self) -> AbstractContextManager[None]:
        """All reads inside see the data of one moment."""
        return self.database.snapshot()

    def changed(self) -> bool:
        """Whether another connection has committed since the last call. Cheap enough to poll."""
        return self.database.changed()

    @cached_property
    def runs(self) -> RunQueries:
        return RunQueries(self.database)

    @cached_property
    def tasks(self) -> TaskQueries:
        return TaskQueries(self.database)

    @cached_property
    def attempts(self) -> AttemptQueries:
        return AttemptQueries(self.database)

    @cached_property
    def costs(self) -> CostQueries:
        return CostQueries(self.database)

    @cached_property
    def events(self) -> EventQueries:
        return EventQueries(self.database)

    @cached_property
    def requests(self) -> RequestQueries:
        return RequestQueries(self.database)

    @cached_property
    def pools(self) -> PoolQueries:
        return PoolQueries(self.database)

    @cached_property
    def hosts(self) -> HostQueries:
        return HostQueries(self.database)

    @cached_property
    def home(self) -> HomeQueries:
        return HomeQueries(self.database)

    @cached_property
    def controllers(self) -> ControllerQueries:
        return ControllerQueries(self.database)

    @cached_property
    def daemon(self) -> DaemonQueries:
        return DaemonQueries(self.database)

    # Few commands ask for these, so their modules are loaded when they are asked for.

    @cached_property
    def gpus(self) -> GpuQueries:
        from evalfleet.store.gpus.queries import GpuQueries

        return GpuQueries(self.database)

    @cached_property
    def tiers(self) -> TierQueries:
        from evalfleet.store.pools.tiers import TierQueries

        return TierQueries(self.database)

    @cached_property
    def loads(self) -> LoadQueries:
        from evalfleet.store.loads import LoadQueries

        return LoadQueries(self.database)

    @cached_property
    def shares(self) -> ShareQueries:
        from evalfleet.store.shares.shares import ShareQueries

        return ShareQueries(self.database)

    @cached_property
    def tokens(self) -> TokenQueries:
        from evalfleet.store.tokens import TokenQueries

        return TokenQueries(self.database)

    @cached_property
    def users(self) -> UserQueries:
        from evalfleet.store.users import UserQueries

        return UserQueries(self.database)

    @cached_property
    def audit(self) -> AuditQueries:
        from evalfleet.store.audit import AuditQueries

        return AuditQueries(self.database)

    @cached_property
    def plans(self) -> PlanQueries:
        from evalfleet.store.plans import PlanQueries

        return PlanQueries(self.database)

    @cached_property
    def retention(self) -> RetentionQueries:
        from evalfleet.store.retention import RetentionQueries

        return RetentionQueries(self.database)
