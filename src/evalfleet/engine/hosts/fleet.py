"""The hosts that a run may use."""

from __future__ import annotations

from evalfleet import config
from evalfleet.core.readiness import Notice
from evalfleet.errors import WrongFolder
from evalfleet.hosts.base import FixedFleet, Fleet
from evalfleet.hosts.local.backend import LocalBackend, LocalSettings
from evalfleet.model import Run
from evalfleet.pools.kinds import registry
from evalfleet.store.home.facts import identified
from evalfleet.store.reader import StoreReader


def require_here(store: StoreReader, run: Run) -> None:
    """Raise WrongFolder where the run can be driven in another folder of the home only."""
    need = store.controllers.need(run)
    if need.member not in (None, store.database.member):
        raise WrongFolder(
            f"run {run.id} can be driven in {store.home.folder(need.member)} only: {need.why}. A controller there takes it: "
            "`evalfleet controller`"
        )


def fleet_of(settings: config.Settings, store: StoreReader, run: Run, notice: Notice) -> Fleet:
    """The hosts of the run's pool, or this machine.

    Raises:
        NotFound: the pool was deleted.
        ConfigError: a package that the pool needs is not installed.
        WrongFolder: see `require_here`.
    """
    require_here(store, run)
    home = identified(settings.home, store.home.identity())
    if run.policy.pool is not None:
        from evalfleet.engine.supervisor import owner_name

        pool = store.pools.get(run.policy.pool)
        return registry.kind_of(pool).fleet(settings, store, pool, run, owner_name(), notice)
    local = LocalSettings(
        python=settings.local.python,
        idle_s=settings.local.runner_idle_s,
        price_usd_per_hour=settings.local.price_usd_per_hour,
        memory_mb=settings.local.memory_mb,
        slots=settings.local.slots,
    )
    return FixedFleet([LocalBackend(home, local)])


def slots_of(store: StoreReader, pool: str) -> int:
    """How many workers a pool has. Raises NotFound."""
    return sum(registry.kind_of(one).slots(one) for one in registry.with_members(store, store.pools.get(pool)))
